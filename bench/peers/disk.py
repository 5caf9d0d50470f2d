#!/usr/bin/env python3
"""I/O modes: does a job choose well on each file system here, and does a large job leave the memory of others alone?

In, out:  `longhaul bench disk --fio` and `longhaul cp` on the root disk, on loop devices with XFS, ext4, btrfs, and on tmpfs -> one table,
          target/bench/io-modes.json. `--manners`: instead, a job four times the size of its memory group beside a program whose mapped
          files fill half of it -> target/bench/page-cache.json.
Invariants: nothing outside of folders, loop devices and a memory group made here is changed, and those are gone at the end; what could not
          be measured has a line that says why; figures of one line come from one run.
Absent on purpose: other programs' copies (peers.py).
"""
import argparse
import ctypes
import json
import mmap
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
# What the issue asks: the chosen engine beside the best of all, and beside fio.
ASKED = 0.95
GROUPS = "/sys/fs/cgroup/memory"


def say(*words):
    print(*words, flush=True)


def must(argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def fill(path, size):
    with open("/dev/urandom", "rb") as noise, open(path, "wb") as file:
        for _ in range(size // MIB):
            file.write(noise.read(MIB))
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Loop:
    """A file system of its own in a file."""

    def __init__(self, kind, folder, size):
        self.kind, self.image, self.at, self.device = kind, os.path.join(folder, kind + ".image"), os.path.join(folder, kind), None
        with open(self.image, "wb") as file:
            file.truncate(size)
        self.device = must(["losetup", "--find", "--show", "--direct-io=on", self.image]).strip()
        must(["mkfs." + kind, {"xfs": "-f", "btrfs": "-f", "ext4": "-F"}[kind], self.device])
        os.mkdir(self.at)
        must(["mount", self.device, self.at])

    def close(self):
        subprocess.run(["umount", self.at], capture_output=True)
        if self.device:
            subprocess.run(["losetup", "--detach", self.device], capture_output=True)
        os.path.exists(self.image) and os.remove(self.image)


def races(longhaul, folder, size, rounds):
    """What a copy of one file raced and chose, each time with no memory of the time before."""
    found = {"read": [], "write": []}
    fill(os.path.join(folder, "from"), size)
    for _ in range(rounds):
        home = os.path.join(folder, "home")
        shutil.rmtree(home, ignore_errors=True)
        with open(os.path.join(folder, "from"), "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        done = subprocess.run([longhaul, "cp", "--json", os.path.join(folder, "from"), os.path.join(folder, "to")], env={**os.environ, "LONGHAUL_HOME": home}, capture_output=True, text=True)
        last = json.loads(done.stdout.splitlines()[-1])
        for choice in last.get("choices", []):
            if choice["what"] in ("read I/O mode", "write I/O mode"):
                cost = re.search(r"trials and (\d+) ms", choice["reason"])
                found[choice["what"].split()[0]].append({"engine": choice["value"].split(",")[0], "cost_ms": int(cost.group(1)) if cost else 0, "reason": choice["reason"]})
        os.remove(os.path.join(folder, "to"))
    for name in ("from",):
        os.remove(os.path.join(folder, name))
    shutil.rmtree(home, ignore_errors=True)
    return found


def ground(longhaul, name, folder, args):
    """One file system: the race's choices beside the sweep's figures."""
    chosen = races(longhaul, folder, args.size * MIB, args.races)
    sweep = json.loads(must([longhaul, "bench", "disk", folder, "--size", f"{args.size}MiB", "--sweep", "io-mode", "--seconds", f"{round(args.seconds * 1000)}ms", "--rounds", str(args.rounds), "--fio", "--json"]))
    lines = []
    for way in ("read", "write"):
        cells = [c for c in sweep["cells"] if c["way"] == way]
        ours, fio = [c for c in cells if c["by"] != "fio"], [c for c in cells if c["by"] == "fio"]
        # Nothing raced (tmpfs): files in memory are moved through the cache.
        picks = [it["engine"] for it in chosen[way]] or ["buffered"]
        rate = {e: max((c["gbs"] for c in ours if c["io_mode"] == e), default=0) for e in {c["io_mode"] for c in ours}}
        best = max(rate, key=rate.get)
        beside = max(fio, key=lambda c: c["gbs"], default=None)
        share = statistics.median(rate.get(e, 0) for e in picks) / rate[best]
        to_fio = statistics.median(rate.get(e, 0) for e in picks) / beside["gbs"] if beside else None
        cost = [it["cost_ms"] for it in chosen[way]]
        lines.append({"file_system": name, "way": way, "chosen": picks, "cost_ms": cost, "rates_gbs": rate, "best": best, "of_best": share, "fio_best": beside and [beside["engine"], beside["gbs"]], "of_fio": to_fio, "reasons": [it["reason"] for it in chosen[way]]})
        say(f"{name:12} {way:5}  chosen {','.join(picks):32} best {best:9} {rate[best]:6.2f} GB/s  of best {share:.2f}  of fio {f'{to_fio:.2f}' if to_fio else '-':5} race {max(cost, default=0)} ms" + ("" if share >= ASKED and (to_fio or 1) >= ASKED else "  <- below what is asked"))
    return lines


def engines(args):
    longhaul, lines, notes = os.path.abspath(args.binary), [], []
    with tempfile.TemporaryDirectory(dir=args.root, prefix="longhaul-engines-") as root:
        def measure(name, folder):
            os.makedirs(folder, exist_ok=True)
            lines.extend(ground(longhaul, name, folder, args))
        measure("root disk", os.path.join(root, "plain"))
        for kind in ("xfs", "ext4", "btrfs"):
            loop = None
            try:
                if os.geteuid() != 0:
                    raise OSError("loop devices need root")
                loop = Loop(kind, root, (args.size * 5 + 1024) * MIB)
                measure(kind + " on loop", os.path.join(loop.at, "w"))
            except (OSError, subprocess.CalledProcessError) as why:
                notes.append(f"{kind} not measured: {getattr(why, 'stderr', None) or why}")
            finally:
                loop and loop.close()
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="longhaul-engines-") as memory:
        lines.extend(ground(longhaul, "tmpfs", memory, args))
        notes.append("tmpfs: nothing is raced, and the kernel takes all engines by one way; what they differ by is this machine's noise")
    for note in notes:
        say("note:", note)
    return {"lines": lines, "notes": notes}


def resident(memory, size):
    """Share of a mapping that is in memory."""
    pages = (ctypes.c_ubyte * (size // 4096))()
    ctypes.CDLL(None, use_errno=True).mincore(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory))), ctypes.c_size_t(size), pages)
    return sum(page & 1 for page in pages) / len(pages)


def one_job(longhaul, root, engine, group):
    """A copy in the group, and the least of the other program's set that was in memory meanwhile."""
    size = group["limit"] // 2
    with open(os.path.join(root, "set"), "r+b") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        memory = mmap.mmap(file.fileno(), size)
        # What the job before left in the group goes first; until the set has found its room there is nothing to be displaced.
        for _ in range(10):
            for at in range(0, size, 4096):
                memory[at]
            if resident(memory, size) > 0.99:
                break
        least = before = resident(memory, size)
        with open(os.path.join(root, "from"), "rb") as source:
            os.posix_fadvise(source.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        argv = [longhaul, "cp", "--json", "--memory", "64MiB"] + (["--io-mode", engine] if engine else []) + [os.path.join(root, "from"), os.path.join(root, "to")]
        job = subprocess.Popen(argv, env={**os.environ, "LONGHAUL_HOME": os.path.join(root, "home")}, stdout=subprocess.PIPE, text=True)
        while job.poll() is None:
            time.sleep(0.1)
            least = min(least, resident(memory, size))
        done = json.loads(job.stdout.read().splitlines()[-1])
        least = min(least, resident(memory, size))
        memory = None
    os.path.exists(os.path.join(root, "to")) and os.remove(os.path.join(root, "to"))
    left = next((c["value"] for c in done.get("choices", []) if c["what"] == "page cache"), "0")
    return {"engine": engine or "auto", "exit": done["exit"], "gbs": done["bytes"] / done["seconds"] / 1e9, "resident_before": before, "resident_least": least, "left_in_cache": left,
            "chosen": {c["what"]: c["value"].split(",")[0] for c in done.get("choices", []) if c["what"].endswith(" I/O mode")}}


def manners(args):
    if not os.access(GROUPS + "/cgroup.procs", os.W_OK):
        say(f"not measured: no memory groups can be made at {GROUPS} (cgroup v1, root)")
        return {"lines": [], "notes": ["no memory groups"]}
    longhaul = os.path.abspath(args.binary)
    path = os.path.join(GROUPS, f"longhaul-{os.getpid()}")
    os.mkdir(path)
    group = {"limit": args.limit * MIB}
    runs = []
    try:
        with tempfile.TemporaryDirectory(dir=args.root, prefix="longhaul-manners-") as root:
            # Filled before the group is entered: their pages are of no concern here.
            fill(os.path.join(root, "set"), group["limit"] // 2)
            fill(os.path.join(root, "from"), group["limit"] * 4)
            with open(path + "/memory.limit_in_bytes", "w") as file:
                file.write(str(group["limit"]))
            with open(path + "/cgroup.procs", "w") as file:
                file.write(str(os.getpid()))
            for number in range(args.rounds):
                for engine in (None, "direct", "dontcache", "early", "buffered"):
                    run = one_job(longhaul, root, engine, group)
                    runs.append(run)
                    say(f"round {number + 1}: {run['engine']:10} {run['gbs']:.2f} GB/s, the other's set in memory: {run['resident_before']:.1%} before, {run['resident_least']:.1%} at least; left in the cache {run['left_in_cache']} {run['chosen']}")
    finally:
        with open(GROUPS + "/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
        os.rmdir(path)
    middle = lambda engine, key: statistics.median(r[key] for r in runs if r["engine"] == engine)
    names = sorted({r["engine"] for r in runs})
    best = max(middle(name, "gbs") for name in names if name != "auto")
    least = min(r["resident_least"] for r in runs if r["engine"] == "auto")
    share = middle("auto", "gbs") / best
    say(f"auto: {least:.1%} of the other's set stayed at least (asked 95 %), {share:.2f} of the best engine's rate (asked 0.90)")
    return {"limit_mib": args.limit, "lines": runs, "least": least, "of_best": share, "medians_gbs": {name: middle(name, "gbs") for name in names}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(HERE, "..", "..", "target", "longhaul"))
    parser.add_argument("--root", default="/var/tmp", help="a folder on the disk to measure")
    parser.add_argument("--size", type=int, default=1024, help="MiB of the files; a race needs 1024")
    parser.add_argument("--seconds", type=float, default=2, help="time of each cell, all rounds together")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--races", type=int, default=5)
    parser.add_argument("--manners", action="store_true")
    parser.add_argument("--limit", type=int, default=512, help="MiB of the memory group")
    parser.add_argument("--out", default=os.path.join(HERE, "..", "..", "target", "bench"))
    args = parser.parse_args()
    name, result = ("page-cache", manners(args)) if args.manners else ("io-modes", engines(args))
    uname, commit = os.uname(), subprocess.run(["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True).stdout.strip()
    result = {"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "commit": commit, "kernel": uname.release, "cores": os.cpu_count(), "load": os.getloadavg()[0], **result}
    os.makedirs(args.out, exist_ok=True)
    with open(os.path.join(args.out, name + ".json"), "w") as file:
        json.dump(result, file, indent=1)
    say(f"written: {os.path.join(args.out, name)}.json")
    return 0 if result["lines"] else 1


if __name__ == "__main__":
    sys.exit(main())
