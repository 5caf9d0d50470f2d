#!/usr/bin/env python3
"""What checks of a daemon under many jobs share: their lines of ok and not ok, and what a process has.

Invariants: `status` is 1 from the first `not ok` on.
"""

import os

status = 0


def said(holds, words, detail=""):
    global status
    print(("ok " if holds else "not ok ") + words, flush=True)
    if not holds:
        status = 1
        for line in str(detail).splitlines()[:12]:
            print("#   " + line)


def has(pid):
    """Memory in bytes, threads and descriptors of a process."""
    with open(f"/proc/{pid}/status") as file:
        facts = {name: value.split() for name, _, value in (line.partition(":") for line in file)}
    kib = lambda name: int(facts[name][0]) << 10
    return {"rss": kib("VmRSS"), "peak": kib("VmHWM"), "anon": kib("RssAnon"), "threads": int(facts["Threads"][0]), "fds": len(os.listdir(f"/proc/{pid}/fd"))}
