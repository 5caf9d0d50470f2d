#!/usr/bin/env python3
"""Power cuts of real file systems under real jobs: what was acknowledged is there, and nothing has its final name with wrong bytes.

In:         LONGHAUL, CUTS, SEED; as root, in a mount namespace of its own (26-power.sh). Each cut: a file system on a disk with a volatile write cache
            (powerdisk.py), jobs that write into it one after another (copies and syncs of versions of one tree; locally, to a daemon over TCP and UDP),
            the power gone after some write or some flush; both processes killed; fsck, mount, look, run the job again, look again.
Out:        lines of ok, not ok, skip; status 0 only if nothing failed.
Invariants: what is equal is judged by the sources' bytes, never by longhaul; LONGHAUL_HOME of the cut machine is on the cut disk.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LONGHAUL = os.environ["LONGHAUL"]
IMAGE_BYTES = 640 << 20  # mkfs.xfs wants 300 MB, and two versions of everything have room
MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-K"],
    "btrfs": ["mkfs.btrfs", "-q", "-f", "-K"],
}
# Before and after the mount that replays the log; the statuses that say that the file system is sound.
CHECK = {
    "ext4": ((["e2fsck", "-fy"], (0, 1)), (["e2fsck", "-fn"], (0,))),
    "xfs": (None, (["xfs_repair", "-n"], (0,))),
    "btrfs": ((["btrfs", "check", "--readonly"], (0,)), (["btrfs", "check", "--readonly"], (0,))),
}
WAYS = ("local", "tcp", "udp")
VERSIONS = 4


class Wrong(Exception):
    pass


def call(words, statuses=(0,), **named):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, **named)
    if done.returncode not in statuses:
        raise Wrong(f"{' '.join(words)}: status {done.returncode}: {done.stdout.decode(errors='replace')[-600:]}")
    return done.stdout.decode(errors="replace")


# --- sources -----------------------------------------------------------------------------------


def make_versions(root, rng):
    """Trees v0, v1, ...: each has some files of the one before with other bytes, and some new ones."""
    sizes = [rng.randrange(0, 40_000) for _ in range(150)] + [rng.randrange(1 << 20, 5 << 20) for _ in range(5)] + [(40 << 20) + 12345]
    files = {f"folder-{n % 7}/deep-{n % 3}/file-{n}": rng.randbytes(size) for n, size in enumerate(sizes)}
    versions = []
    for version in range(VERSIONS):
        if version:
            for name in rng.sample(sorted(files), 25):
                old = files[name]
                files[name] = rng.randbytes(len(old)) if rng.random() < 0.5 else rng.randbytes(rng.randrange(0, len(old) + 9000))
            files |= {f"new-{version}/file-{n}": rng.randbytes(rng.randrange(0, 90_000)) for n in range(12)}
        folder = os.path.join(root, f"v{version}", "dst")
        for n, (name, content) in enumerate(sorted(files.items())):
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as out:
                out.write(content)
            os.utime(path, ns=(0, (1_600_000_000 + version) * 10**9 + n))
        versions.append((folder, {name: (content, os.stat(os.path.join(folder, name)).st_mtime_ns) for name, content in files.items()}))
    return versions


def is_ours(folder, path):
    """A partial file, or what tells whose it is."""
    return any(part.startswith(".longhaul-") for part in os.path.relpath(path, folder).split(os.sep))


def seen(folder):
    """Every file below it but partial ones: name -> (bytes, time)."""
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            if not is_ours(folder, path):
                with open(path, "rb") as file:
                    found[os.path.relpath(path, folder)] = (file.read(), os.fstat(file.fileno()).st_mtime_ns)
    return found


def left_over(folder):
    paths = [os.path.join(where, name) for where, folders, names in os.walk(folder) for name in folders + names]
    return [path for path in paths if is_ours(folder, path)]


# --- the machine that loses its power ----------------------------------------------------------


class Machine:
    """A disk with a file system, mounted; words to the disk."""

    def __init__(self, work, image, seed, keep):
        self.folder = tempfile.mkdtemp(prefix="disk-", dir=work)
        self.mount = tempfile.mkdtemp(prefix="mount-", dir=work)
        words = [sys.executable, os.path.join(HERE, "powerdisk.py"), image, self.folder, str(seed), str(keep)]
        self.disk = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.cut = threading.Event()
        self.facts = None
        self.answers = []
        self.spoke = threading.Condition()
        if self.disk.stdout.readline().strip() != "ready":
            raise Wrong("the disk did not start")
        threading.Thread(target=self.listen, daemon=True).start()
        call(["mount", "-o", "loop", os.path.join(self.folder, "disk"), self.mount])

    def listen(self):
        for line in self.disk.stdout:
            with self.spoke:
                if line.startswith("cut "):
                    self.facts = [int(word) for word in line.split()[1:]]
                    self.cut.set()
                else:
                    self.answers.append(line.split(":")[1].split())
                self.spoke.notify()

    def say(self, words):
        with self.spoke:
            before = len(self.answers)
            self.disk.stdin.write(words + "\n")
            self.disk.stdin.flush()
            if not self.spoke.wait_for(lambda: len(self.answers) > before, 20):
                raise Wrong(f"the disk does not answer to '{words}'")
            return [int(word) for word in self.answers[-1]]

    def off(self):
        unmount(self.mount)
        if self.disk.poll() is None:
            subprocess.run(["umount", "-l", self.folder], check=False)
        self.disk.stdin.close()
        self.disk.wait(20)


def unmount(folder):
    for _ in range(100):
        if subprocess.run(["umount", folder], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return
        time.sleep(0.05)
    subprocess.run(["umount", "-l", folder], check=False)


# --- jobs --------------------------------------------------------------------------------------


class Ran:
    """One job's end, and what it acknowledged on the way."""

    def __init__(self, lines, status):
        events = []
        for line in lines:
            try:
                events.append(json.loads(line))
            except ValueError:
                pass  # cut off with its process
        self.status = status
        self.done = next((it for it in reversed(events) if it.get("event") in ("done", "failed")), {})
        last = next((it for it in reversed(events) if it.get("event") == "progress"), {})
        self.files_done, self.durable = last.get("files_done", 0), last.get("durable", 0)


class Jobs:
    """Copies of versions, in turn, to `mount`/dst: by one process, or two."""

    def __init__(self, mount, way, away, rate):
        self.mount, self.way, self.rate = mount, way, rate
        self.env = dict(os.environ, LONGHAUL_HOME=os.path.join(mount if way == "local" else away, "home"))
        self.daemon = self.client = None
        self.ended = False
        self.lock = threading.Lock()
        # No daemon serves a root that holds its own keys.
        root = os.path.join(mount, "root")
        os.makedirs(root, exist_ok=True)
        self.to = root + "/"
        if way != "local":
            env = dict(os.environ, LONGHAUL_HOME=os.path.join(mount, "home"))
            words = [LONGHAUL, "serve", "--root", root, "--listen", "127.0.0.1:0", "--ticket"]
            self.daemon = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            address = self.daemon.stdout.readline().strip()
            if not address.startswith("longhaul://"):
                raise Wrong("the daemon printed no address")
            self.to = address

    def run(self, source, version):
        options = [] if self.way == "local" else ["--transport", self.way, "--stall", "10"]
        ends = ["cp", source, self.to] if version % 2 == 0 else ["sync", source, self.to + "dst"]
        words = [LONGHAUL, ends[0], "--json", "--rate", self.rate, *options, *ends[1:]]
        with self.lock:
            if self.ended:
                return Ran([], -9)
            self.client = subprocess.Popen(words, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        lines = self.client.stdout.readlines()
        return Ran(lines, self.client.wait())

    def kill(self):
        with self.lock:
            self.ended = True
            for process in (self.client, self.daemon):
                if process is not None:
                    process.kill()
                    process.wait()


# --- one cut -----------------------------------------------------------------------------------


def look(folder, versions, acked, running):
    """What must be so at any time: acknowledged is there, and no name has bytes that no version gave it."""
    found = seen(folder) if os.path.isdir(folder) else {}
    allowed = versions[: running + 1]
    for name, (content, _) in found.items():
        if not any(name in files and files[name][0] == content for _, files in allowed):
            of = [number for number, (_, files) in enumerate(allowed) if name in files]
            zeros = content.count(0)
            raise Wrong(f"{name} has {len(content)} bytes of no version (it is in {of}; {zeros} of its bytes are zeros)")
    if acked < 0:
        return found
    for name, wanted in versions[acked][1].items():
        may = [wanted] + ([versions[running][1].get(name)] if running > acked else [])
        if found.get(name) not in may:
            got = "is not there" if name not in found else "has an older version's bytes or time"
            raise Wrong(f"{name} {got}, though version {acked} was acknowledged with exit code 0")
    return found


def jobs_until_cut(machine, jobs, versions, begin):
    """Runs versions from `begin` on; (last acknowledged, the one in flight, its job, ids acknowledged)."""
    acked, running, ran, ids = begin - 1, begin, Ran([], 0), []
    for version in range(begin, VERSIONS):
        running = version
        ran = jobs.run(versions[version][0], version)
        if ran.status == 0:
            acked = version
            ids.append(ran.done["job"])
        elif not machine.cut.is_set():
            raise Wrong(f"version {version} ended with {ran.status} before the power went: {ran.done}")
        if machine.cut.is_set():
            break
    return acked, running, ran, ids


def receipts(mount, way, ids):
    # A daemon's client leaves with its own receipt, as the daemon begins to flush its: that one may be lost with the power, those before it may not.
    for job in ids if way == "local" else ids[:-1]:
        path = os.path.join(mount, "home", "receipts", f"{job}.receipt")
        if not os.path.exists(path):
            raise Wrong(f"the receipt of job {job}, which ended with exit code 0, is gone")


def next_run(mount, way, away, versions, running, acked, ran):
    jobs = Jobs(mount, way, away, "10Gbit")
    try:
        again = jobs.run(versions[running][0], running)
    finally:
        jobs.kill()
    if again.status != 0:
        raise Wrong(f"the next run ended with {again.status}: {again.done}")
    found, files = seen(os.path.join(mount, "root", "dst")), versions[running][1]
    for name, wanted in files.items():
        if found.get(name) != wanted:
            raise Wrong(f"after the next run {name} is {'other' if name in found else 'not there'}")
    left = left_over(mount)
    if left:
        raise Wrong(f"the next run left {left[:3]}")
    total = sum(len(content) for content, _ in files.values())
    sent, resumed, kept = again.done["bytes"], again.done["resumed_bytes"], again.done["kept_bytes"]
    if acked == running and sent:
        raise Wrong(f"{sent} bytes of a version that had been acknowledged were sent again")
    if sent + resumed + kept + again.done["hole_bytes"] < total or resumed > total:
        raise Wrong(f"of {total} bytes {sent} were sent, {resumed} resumed, {kept} kept")
    if acked != running and resumed + kept < ran.durable:
        raise Wrong(f"{ran.durable} bytes had been told as durable, {resumed} were resumed and {kept} kept")
    return sent, resumed


def one(kind, image, way, versions, begin, plan, work, rng):
    away = os.path.join(work, "away")
    machine = Machine(work, image, rng.randrange(1 << 30), rng.choice((0, 0, 0.5, 0.9)))
    facts = ""
    try:
        # The slow one is flushed and journalled in between.
        jobs = Jobs(machine.mount, way, away, rng.choice(("800Mbit", "400Mbit", "120Mbit")))
        try:
            if plan:
                machine.say(f"after {plan[0]} {plan[1]}")
            killer = threading.Thread(target=lambda: machine.cut.wait() and jobs.kill(), daemon=True)
            # Half of the time the programs live on a little on a machine whose disk is gone: they may acknowledge nothing more.
            if rng.random() < 0.5:
                killer.start()
            acked, running, ran, ids = jobs_until_cut(machine, jobs, versions, begin)
            in_mid_job = ran.status != 0
            if not machine.cut.is_set():
                counts = machine.say("counts")
                machine.say("cut")
            else:
                counts = None
        finally:
            jobs.kill()
            machine.cut.set()
    finally:
        machine.off()
    facts = machine.facts
    before, after = CHECK[kind]
    if before:
        call(before[0] + [image], before[1])
    mount = tempfile.mkdtemp(prefix="after-", dir=work)
    call(["mount", "-o", "loop", image, mount])
    try:
        found = look(os.path.join(mount, "root", "dst"), versions, acked, running)
        if len(found) < ran.files_done:
            raise Wrong(f"{ran.files_done} files were told as done, {len(found)} are there")
        receipts(mount, way, ids)
        sent, resumed = next_run(mount, way, away, versions, running, acked, ran)
    finally:
        unmount(mount)
    call(after[0] + [image], after[1])
    return running, counts, in_mid_job, f"{facts[0]} writes, {facts[1]} flushes, then {facts[2]} pages lost, {facts[3]} kept; acknowledged to {acked}, in flight {running}; again {sent} sent, {resumed} resumed"


def can(kind, work):
    image = os.path.join(work, f"{kind}.pristine")
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    os.environ["PATH"] = path
    for tool in (MAKE[kind][0], CHECK[kind][1][0][0]):
        if not shutil.which(tool, path=path):
            return f"no {tool} here (packages e2fsprogs, xfsprogs, btrfs-progs)"
    if not re.search(rf"\b{kind}$", open("/proc/filesystems").read(), re.M):
        return f"this kernel has no {kind}"
    with open(image, "wb") as out:
        out.truncate(IMAGE_BYTES)
    call(MAKE[kind] + [image])
    mount = tempfile.mkdtemp(prefix="made-", dir=work)
    call(["mount", "-o", "loop", image, mount])
    os.makedirs(os.path.join(mount, "home"), mode=0o700)
    call([LONGHAUL, "key", "show"], (0, 1, 2), env=dict(os.environ, LONGHAUL_HOME=os.path.join(mount, "home")))
    unmount(mount)
    return None


def main():
    cuts, seed = int(os.environ.get("CUTS", "3")), int(os.environ.get("SEED") or random.randrange(1 << 30))
    rng = random.Random(seed)
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse") or not os.path.exists("/dev/loop-control"):
        print("skip power cuts: they need root, /dev/fuse and loop devices")
        return 0
    bad = 0
    with tempfile.TemporaryDirectory(prefix="longhaul-power-", dir=os.environ.get("E2E_DIR")) as work:
        versions = make_versions(os.path.join(work, "src"), rng)
        kinds = []
        for kind in os.environ.get("FS", "ext4,xfs,btrfs").split(","):
            why = can(kind, work)
            if why:
                print(f"skip power cuts of {kind}: {why}")
            else:
                kinds.append(kind)
        done = dict.fromkeys(kinds, 0)
        wrong, mid, totals = dict.fromkeys(kinds, 0), dict.fromkeys(kinds, 0), {}
        chain = {}
        for number in range(cuts if kinds else 0):
            kind = kinds[number % len(kinds)]
            way = WAYS[(number // len(kinds) + number) % len(WAYS)]
            image, begin = chain.pop(kind, (None, 0))
            if image is None:
                image = os.path.join(work, f"{kind}.img")
                call(["cp", "--sparse=always", os.path.join(work, f"{kind}.pristine"), image])
            what = rng.choice(("writes", "flushes"))
            # What a whole sequence makes of them, found as jobs run; at first a guess.
            writes, flushes = totals.get(kind, (700, 250))
            plan = (what, rng.randrange(1, max(2, writes if what == "writes" else flushes)))
            words = f"cut {number + 1} of {cuts}, {kind}, {way}, after {plan[1]} {plan[0]}"
            try:
                running, counts, in_mid_job, facts = one(kind, image, way, versions, begin, plan, work, rng)
                done[kind] += 1
                mid[kind] += in_mid_job
                print(f"# {words}: {facts}", flush=True)
                if counts and begin == 0:
                    totals[kind] = counts
                # On the same disk again, with what it holds now, or on a new one.
                if running + 1 < VERSIONS and rng.random() < 0.5:
                    chain[kind] = (image, running + 1)
            except (Wrong, OSError, subprocess.TimeoutExpired) as why:
                wrong[kind] += 1
                done[kind] += 1
                print(f"# {words} (SEED={seed}): {why}", flush=True)
        for kind in kinds:
            said = f"power cuts of {kind}: {done[kind]}, {mid[kind]} in mid-job (SEED={seed}): acknowledged is there, nothing is wrong under its name, the next run completes"
            print(f"{'not ok' if wrong[kind] else 'ok'} {said}")
            bad += wrong[kind]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
