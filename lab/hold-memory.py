#!/usr/bin/env python3
"""Runs a command while the host of this virtual machine cannot take memory back: `lab/hold-memory.py COMMAND ...`.

For: benchmarks in memory. A guest that reports its free pages (Linux: mm/page_reporting.c) loses them two seconds later, and the host gives each one anew when it is first
written to: measured 3.2 s a GiB instead of 0.6, upon whichever program comes to such pages.
In and out: a command -> its exit code. Where no pages are reported, or nobody may look, the command is run as it is, and that is said.
Invariants: free memory is written to once and given back but for one page of each MiB, so that no block is free that is large enough to be reported (order 9: 2 MiB);
both that and the smallest order reported are undone when the command ends. 4 MiB a GiB are held.
Absent on purpose: memory that a benchmark itself would have to keep; huge pages, of which none is free meanwhile.
"""

import mmap
import pathlib
import re
import signal
import subprocess
import sys

ORDER = pathlib.Path("/sys/module/page_reporting/parameters/page_reporting_order")
PAGE, BLOCK = mmap.PAGESIZE, 1 << 20
# Left alone: what the system needs while the rest is taken.
SPARE_MIB = 1024


def main():
    if len(sys.argv) < 2:
        sys.exit("hold-memory: a command is missing: lab/hold-memory.py COMMAND ...")
    # So that what is undone at the end is undone then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        order = ORDER.read_text()
        ORDER.write_text("10")
    except OSError as error:
        print(f"hold-memory: nothing is held: {error}", file=sys.stderr)
        return subprocess.call(sys.argv[1:])
    try:
        with hold():
            return subprocess.call(sys.argv[1:])
    finally:
        ORDER.write_text(order)


def hold():
    free_mib = int(re.search(r"^MemFree: +(\d+)", pathlib.Path("/proc/meminfo").read_text(), re.M)[1]) // 1024
    length = max(free_mib - SPARE_MIB, 1) << 20
    memory = mmap.mmap(-1, length)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, length, PAGE):
        memory[at] = 1
    for at in range(0, length, BLOCK):
        memory.madvise(mmap.MADV_DONTNEED, at + PAGE, BLOCK - PAGE)
    return memory


if __name__ == "__main__":
    sys.exit(main())
