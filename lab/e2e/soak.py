#!/usr/bin/env python3
"""One daemon and thousands of jobs of every kind, with kills on both sides: its memory, descriptors and threads stay flat, and nothing is left behind.

In:         LONGHAUL, SECONDS_OF_SOAK (25), SEED. Jobs, some at a time: pushes and pulls of large and small files over TCP and UDP, syncs with --delete, copies from
            daemon to daemon, pipes; a third of them ended by kill -9 of the client, by `longhaul job stop`, or (relays) by kill -9 of the other
            daemon, and then run again to their end. Now and then all are waited for, and the daemon is looked at.
Out:        lines of ok, not ok; each look behind `#`; status 0 only if nothing failed.
Invariants: equality is judged by bytes; looks are taken when no job runs, the first ones (warm-up) do not count.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import judge

LONGHAUL = os.environ["LONGHAUL"]
AT_ONCE = 6
IDLE = 5  # seconds that a daemon waits for a client that was killed
IN_USE = 24  # exit code: another job writes it now
GRANT = 128 << 20  # half of it is bufs, which count from their first use on; code, threads and lent memory (30 MiB) are the same for any
GROWTH_MAX = 6 << 20  # bytes of RSS after the warm-up: the allocator's arenas find their size late
WARM = 300  # seconds; a shorter run is all warm-up, and its memory is only held against the grant


def comm(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return "iou-gone"


class Daemon:
    def __init__(self, folder, name):
        self.root, self.home, self.name, self.folder = os.path.join(folder, name), os.path.join(folder, "home-" + name), name, folder
        os.makedirs(self.root, exist_ok=True)
        self.start()

    def start(self):
        config = os.path.join(self.folder, self.name + ".toml")
        with open(config, "w") as out:
            # A client that was killed is waited for so long: it may come again from another address.
            out.write(f'root = "{self.root}"\nlisten = "127.0.0.1:0"\nidle_timeout = "{IDLE}s"\nmemory = "{GRANT >> 20}MiB"\n')
        words = [LONGHAUL, "serve", "--config", config, "--ticket"]
        err = open(os.path.join(self.folder, self.name + ".err"), "a")
        self.process = subprocess.Popen(words, env=dict(os.environ, LONGHAUL_HOME=self.home), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err, text=True)
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("longhaul://"), f"{self.name} did not start"

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def look(self):
        pid = self.process.pid
        # Threads of our own: the kernel's for io_uring come and go as it likes.
        names = [comm(f"/proc/{pid}/task/{it}/comm") for it in os.listdir(f"/proc/{pid}/task")]
        threads = sum(not name.startswith("iou-") for name in names)
        return {**judge.has(pid), "threads": threads}


class Soak:
    def __init__(self, folder, seed):
        self.folder, self.rng = folder, random.Random(seed)
        self.src = os.path.join(folder, "src")
        os.makedirs(self.src)
        for n in range(3):
            self.file(f"large-{n}", self.rng.randrange(5 << 20, 30 << 20))
            for f in range(60):
                self.file(f"many-{n}/d{f % 5}/f{f}", self.rng.randrange(0, 50_000))
        self.main, self.other = Daemon(folder, "main"), Daemon(folder, "other")
        shutil.copytree(self.src, os.path.join(self.main.root, "src"))
        for place in (os.path.join(self.main.root, "in"), os.path.join(self.other.root, "in"), os.path.join(folder, "out")):
            os.makedirs(place)
        self.env = dict(os.environ, LONGHAUL_HOME=os.path.join(folder, "home-client"), TMPDIR=os.path.join(folder, "tmp"))
        os.makedirs(self.env["TMPDIR"])
        self.count = self.cuts = self.wrong = 0
        self.kinds, self.why, self.were_cut = {}, [], []
        time.sleep(0.5)
        self.idle = self.main.look()

    def file(self, name, size):
        path = os.path.join(self.src, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(self.rng.randbytes(size))

    def job(self):
        """Its words as a function (addresses change when a daemon is started anew), where it goes to and what shall be there."""
        rng, number = self.rng, self.count
        self.count += 1
        what = rng.choice(["large-0", "large-1", "large-2", "many-0", "many-1", "many-2"])
        source, options = os.path.join(self.src, what), ["--json", "--stall", "20", "--transport", rng.choice(["tcp", "tcp", "udp"])]
        if rng.random() < 0.3:
            options += ["--rate", "200Mbit"]
        kind = rng.choice(["push", "push", "pull", "pull", "sync", "delete", "relay", "pipe"])
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        # A tree comes under the very name, also when it is begun again.
        verb = "cp" if what.startswith("large") else "sync"
        if kind == "push":
            return kind, lambda: [verb, *options, source, f"{self.main.url}in/{number}"], os.path.join(self.main.root, "in", str(number)), source
        if kind == "pull":
            to = os.path.join(self.folder, "out", str(number))
            return kind, lambda: [verb, *options, f"{self.main.url}src/{what}", to], to, source
        if kind == "relay":
            return kind, lambda: [verb, *options, f"{self.main.url}src/{what}", f"{self.other.url}in/{number}"], os.path.join(self.other.root, "in", str(number)), source
        if kind == "pipe":
            source = os.path.join(self.src, "large-0")
            return kind, lambda: ["cp", *options, "-", f"{self.main.url}in/{number}"], os.path.join(self.main.root, "in", str(number)), source
        # One folder that each time becomes another tree, by itself: two at once are the subject of other checks.
        tree, to = os.path.join(self.src, f"many-{number % 3}"), f"sync-{number % AT_ONCE}-{number // AT_ONCE % 5}"
        words = ["sync", *options, *(["--delete"] if kind == "delete" else [])]
        if kind == "sync":
            to = f"sync-once-{number}"
        return kind, lambda: [*words, tree, self.main.url + to], os.path.join(self.main.root, to), tree

    def start(self, words, kind):
        stdin = open(os.path.join(self.src, "large-0"), "rb") if kind == "pipe" else subprocess.DEVNULL
        it = subprocess.Popen([LONGHAUL, *words], env=self.env, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if kind == "pipe":
            stdin.close()
        return it

    def cut(self, process, kind):
        self.cuts += 1
        how = self.rng.choice(["kill", "kill", "stop", "daemon"])
        if how == "daemon" and kind == "relay":
            self.other.kill()
            self.other.start()
        elif how == "stop":
            listed = subprocess.run([LONGHAUL, "job", "list", "--json"], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout.decode()
            for line in listed.splitlines():
                try:
                    shown = json.loads(line)
                except ValueError:
                    continue
                for job in shown.get("jobs", [shown]) if isinstance(shown, dict) else shown:
                    if job.get("pid") == process.pid:
                        subprocess.run([LONGHAUL, "job", "stop", job["job"]], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        else:
            process.kill()
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()

    def batch(self):
        """Some jobs at once, a third of them cut and run again; then all must be equal."""
        begun = []
        for _ in range(AT_ONCE):
            kind, words, to, source = self.job()
            begun.append((kind, words, to, source, self.start(words(), kind)))
        time.sleep(self.rng.random() * 0.3)
        again = []
        for job in begun:
            if self.rng.random() < 0.33:
                self.cut(job[4], job[0])
                again.append(job)
                self.were_cut.append(job[:3])
        for kind, words, to, source, process in begun:
            out, _ = process.communicate() if process.returncode is None else (b"", None)
            # A relay to a daemon that was killed meanwhile, or a job that a kill made wait: once more, as a user would.
            tries = 0
            while process.returncode != 0 and tries < 4:
                tries += 1
                # A relay whose client was killed goes on until its daemons have waited for the client: "in use" until then, which is what it has to say.
                if process.returncode == IN_USE:
                    time.sleep(IDLE / 2)
                process = self.start(words(), kind)
                out, _ = process.communicate()
            if process.returncode != 0:
                self.wrong += 1
                self.why.append(f"{kind} ended with {process.returncode}: {out.decode(errors='replace').splitlines()[-1:]}")
            elif subprocess.run(["diff", "-rq", source, to], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).returncode != 0:
                self.wrong += 1
                self.why.append(f"{kind} {' '.join(words())[:200]}: {to} differs")
            if not to.startswith(os.path.join(self.main.root, "sync-")) or "once" in to:
                shutil.rmtree(to) if os.path.isdir(to) else os.path.exists(to) and os.unlink(to)

    def settle(self):
        """Until no job runs any more at the daemon, as before the first one: so long at the most as it waits for those that were killed."""
        for _ in range(200):
            now = self.main.look()
            if now["threads"] <= self.idle["threads"]:
                break
            time.sleep(0.1)
        else:
            self.hangs()
        return now

    def finish(self):
        """What was cut once more if a part is left: a relay whose client was killed goes on without it for a while, and may begin a part after the next
        run has ended. The same command again must take it up."""
        self.settle()
        time.sleep(IDLE)  # the other daemon may still wait for the first one
        found = [path for path in self.left() if f"{os.sep}in{os.sep}" in path]
        if found:
            print(f"# left after all jobs: {' '.join(found)}", flush=True)
            for kind, words, to in self.were_cut:
                self.start(words(), kind).communicate()
                if os.path.basename(os.path.dirname(to)) == "in":
                    shutil.rmtree(to) if os.path.isdir(to) else os.path.exists(to) and os.unlink(to)
        return [path for path in self.left() if f"{os.sep}in{os.sep}" in path]

    def hangs(self):
        """Says what the daemon still has though no client runs."""
        task = f"/proc/{self.main.process.pid}/task"
        threads = sorted(open(f"{task}/{it}/comm").read().strip() for it in os.listdir(task))
        shown = subprocess.run([LONGHAUL, "job", "list"], env=dict(os.environ, LONGHAUL_HOME=self.main.home), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        fds = [os.readlink(f"/proc/{self.main.process.pid}/fd/{it}") for it in os.listdir(f"/proc/{self.main.process.pid}/fd")]
        print(f"# it has not settled: {' '.join(threads)}; {' '.join(sorted(fds))}")
        print("\n".join("#   " + line for line in shown.stdout.decode(errors="replace").splitlines()), flush=True)

    def left(self):
        """What nobody wants, by its names."""
        found = []
        for top in (self.main.root, self.other.root, os.path.join(self.folder, "out")):
            found += [os.path.join(where, name) for where, _, names in os.walk(top) for name in names if name.startswith(".longhaul-")]
        for home in (self.main.home, self.other.home, self.env["LONGHAUL_HOME"]):
            found += [os.path.join(where, name) for where, _, names in os.walk(home) for name in names if name.endswith((".part", ".tmp", ".new", ".sock"))]
        return found + [os.path.join(self.env["TMPDIR"], name) for name in os.listdir(self.env["TMPDIR"])]


def age(paths):
    """As if it had been left two hours ago: what is young may be of a process that begins."""
    for path in paths:
        os.utime(path, (time.time() - 7300,) * 2, follow_symlinks=False)


def main():
    seconds, seed = float(os.environ.get("SECONDS_OF_SOAK", "25")), int(os.environ.get("SEED") or random.randrange(1 << 30))
    with tempfile.TemporaryDirectory(prefix="longhaul-soak-", dir=os.environ.get("E2E_DIR")) as folder:
        soak = Soak(folder, seed)
        looks, began, told = [], time.monotonic(), 0.0
        try:
            while time.monotonic() - began < seconds:
                soak.batch()
                if time.monotonic() - told > seconds / 16:
                    looks.append(soak.settle())
                    told = time.monotonic()
                    it = looks[-1]
                    print(f"# {told - began:.0f} s: {soak.count} jobs, {soak.cuts} cut; the daemon has {it['rss'] / 1048576:.1f} MiB, {it['fds']} descriptors, {it['threads']} threads", flush=True)
            weigh(soak, looks, seed, seconds)
            left = soak.finish()
            judge.said(not left, "no part is left of a job that was cut and has been run again", "\n".join(left))
            sweeps(soak)
        finally:
            soak.main.kill()
            soak.other.kill()
    return judge.status


def weigh(soak, looks, seed, seconds):
    judge.said(soak.wrong == 0, f"{soak.count} jobs ({', '.join(f'{n} {kind}' for kind, n in sorted(soak.kinds.items()))}), {soak.cuts} cut and run again (SEED={seed}): all whole and equal", "\n".join(soak.why))
    # The second half against the second quarter: what only warms up is over by then.
    quarter = max(len(looks) // 4, 1)
    early, late = looks[quarter : 2 * quarter] or looks[:1], looks[2 * quarter :] or looks[-1:]
    most = lambda some, what: max(it[what] for it in some)
    grown = most(late, "rss") - most(early, "rss")
    judge.said(most(looks, "rss") <= GRANT, f"memory is within the grant of {GRANT >> 20} MiB: {most(looks, 'rss') >> 10} KiB at most")
    if seconds >= WARM:
        judge.said(grown <= GROWTH_MAX, f"memory is flat: {most(early, 'rss') >> 10} KiB in the second quarter, {most(late, 'rss') >> 10} KiB afterwards")
    # Workers keep pipes for a while, and folders open: a few more or less.
    fds = most(early, "fds"), most(late, "fds")
    judge.said(fds[1] <= fds[0] + 8, f"descriptors are flat: {fds[0]} in the second quarter, {fds[1]} at most afterwards")
    threads = soak.idle["threads"], most(looks, "threads")
    judge.said(threads[1] <= threads[0], f"threads are flat: {threads[0]} before the first job, {threads[1]} at most whenever none ran")


def sweeps(soak):
    """Both sides are killed in mid-job: what they leave goes at the next start, but for the part, which the next run wants."""
    soak.file("last", 40 << 20)  # 8 s at this rate: it does not end by itself before the kill
    words = lambda: ["cp", "--json", "--rate", "40Mbit", os.path.join(soak.src, "last"), soak.main.url + "in/last"]
    job, piped = soak.start(words(), "push"), subprocess.Popen([LONGHAUL, "cp", "-", soak.main.url + "in/piped"], env=soak.env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(200):
        # The part of this job: receipts of jobs that were cut before end in .part, too.
        parts = [path for path in soak.left() if path.startswith(os.path.join(soak.main.root, "in")) and path.endswith(".part")]
        if parts and os.listdir(soak.env["TMPDIR"]):
            break
        time.sleep(0.05)
    time.sleep(0.5)
    for process in (job, piped, soak.main.process):
        process.kill()
        process.wait()
    piped.stdin.close()
    soak.main.process.stdout.close()
    left = soak.left()
    wanted = [path for path in left if path.startswith(os.path.join(soak.main.root, "in"))]
    judge.said(len(left) > len(wanted) > 0, f"both sides killed in mid-job: {len(left) - len(wanted)} things are left beside {len(wanted)} that the next run wants", left)
    age(path for path in left if path not in wanted)
    stamp = os.path.join(soak.env["LONGHAUL_HOME"], "run", "swept")
    if os.path.exists(stamp):
        age([stamp])
    soak.main.start()
    soak.other.kill()
    soak.other.start()
    again = soak.start(words()[:2] + words()[4:], "push")
    again.communicate()
    for _ in range(100):
        left = soak.left()
        sockets = [path for path in left if path.endswith(".sock")]
        if len(left) == len(sockets) == 2:
            break
        time.sleep(0.05)
    judge.said(again.returncode == 0 and len(left) == len(sockets), "started again, both of them: the job is whole, and nothing is left but sockets", f"exit code {again.returncode}\n" + "\n".join(left))
    judge.said(len(sockets) == 2, "each living daemon has its socket, and no dead process has one", sockets)


if __name__ == "__main__":
    sys.exit(main())
