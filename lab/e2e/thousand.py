#!/usr/bin/env python3
"""Many jobs at once on one daemon: all end whole and equal, within its memory grant, in like times, and nobody who comes meanwhile waits.

In:         LONGHAUL, JOBS (60); a folder for all that is written. Each job is a process: a push or a pull over TCP, a fifth of them over UDP, of one large
            file or some small ones. What the daemon carries is capped (RATE), so that all of them run at the same time; clients stand for other
            hosts and have only what is left of the cores (nice 19). A newcomer asks for one small file each half second.
Out:        lines of ok, not ok; status 0 only if nothing failed. What was measured stands behind `#`.
Invariants: equality is judged by bytes; a job's time is from its process's start to its end.
"""

import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import judge

LONGHAUL = os.environ["LONGHAUL"]
MEMORY = int(os.environ.get("MEMORY_MIB", "256"))
WAIT_MAX = 2.0  # seconds; issue: no newcomer waits longer


class Daemon:
    def __init__(self, folder, home, options):
        self.env = dict(os.environ, LONGHAUL_HOME=home)
        self.err = open(os.path.join(folder, "daemon.err"), "w")
        words = [LONGHAUL, "serve", "--root", os.path.join(folder, "root"), "--listen", "127.0.0.1:0", "--ticket", "--memory", f"{MEMORY}MiB", "-v", *options]
        # As a distribution starts it: few descriptors, unless it asks for more.
        limits = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        self.process = subprocess.Popen(words, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.err, text=True, preexec_fn=limits)
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("longhaul://"), self.url
        self.pid = self.process.pid


def client(words, home, out, nice=19):
    return subprocess.Popen(["nice", "-n", str(nice), LONGHAUL, *words], env=dict(os.environ, LONGHAUL_HOME=home), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)


def newcomers(url, folder, homes, stop, waits):
    """Each asks for a small file: seconds until it is there."""
    number = 0
    while not stop.is_set():
        number += 1
        began = time.monotonic()
        it = client(["cp", "--json", "-v", "--memory", "16MiB", url + "small", os.path.join(folder, f"new-{number}")], homes, subprocess.PIPE, nice=0)
        out, _ = it.communicate()
        waits.append((time.monotonic() - began, it.returncode, [line[:300] for line in out.decode(errors="replace").splitlines()]))
        stop.wait(0.5)


def tree(folder, rng, total):
    """Files of 1 byte to 90 kB, of so many bytes in all."""
    os.makedirs(folder)
    number = 0
    while total:
        size = min(total, rng.randrange(1, 90_000))
        with open(os.path.join(folder, f"file-{number}"), "wb") as out:
            out.write(rng.randbytes(size))
        number, total = number + 1, total - size


def equal(a, b):
    return subprocess.run(["diff", "-rq", a, b], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def plan(number, folder, url):
    """The words of a job, and what must be equal in the end."""
    source = "large" if number % 5 else "many"
    there = os.path.join(folder, "root", f"in-{number}")
    here = os.path.join(folder, "out", str(number))
    options = ["--json", "-v", "--memory", "16MiB", "--stall", "60", *(["--transport", "udp"] if number % 5 == 1 else [])]
    if number % 2:
        return ["cp", *options, os.path.join(folder, "src", source), f"{url}in-{number}"], there, source
    return ["cp", *options, f"{url}{source}", here], here, source


def main():
    jobs, seed = int(os.environ.get("JOBS", "60")), int(os.environ.get("SEED") or random.randrange(1 << 30))
    rate = os.environ.get("RATE")
    large = int(os.environ.get("LARGE_KIB", "4096")) << 10
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="longhaul-many-", dir=os.environ.get("E2E_DIR")) as folder:
        for name in ("src", "out", "logs", "new", "home-clients", "home-new"):
            os.makedirs(os.path.join(folder, name), mode=0o700)
        with open(os.path.join(folder, "src", "large"), "wb") as out:
            out.write(rng.randbytes(large))
        tree(os.path.join(folder, "src", "many"), rng, large)
        subprocess.run(["cp", "-r", os.path.join(folder, "src"), os.path.join(folder, "root")], check=True)
        with open(os.path.join(folder, "root", "small"), "wb") as out:
            out.write(b"a newcomer's\n")
        daemon = Daemon(folder, os.path.join(folder, "home"), ["--rate", rate] if rate else [])
        begun, ended, codes, peak = {}, {}, {}, {}
        stop, waits = threading.Event(), []
        try:
            running = {}
            asks = threading.Thread(target=newcomers, args=(daemon.url, os.path.join(folder, "new"), os.path.join(folder, "home-new"), stop, waits))
            asks.start()
            since = time.monotonic()
            for number in range(jobs):
                words, _, _ = plan(number, folder, daemon.url)
                with open(os.path.join(folder, "logs", str(number)), "wb") as log:
                    running[number] = client(words, os.path.join(folder, "home-clients"), log)
                begun[number] = time.monotonic()
            spawned = time.monotonic() - since
            until, at_once = time.monotonic() + float(os.environ.get("LIMIT", "600")), 0
            while running and time.monotonic() < until:
                for number, process in list(running.items()):
                    if process.poll() is not None:
                        ended[number], codes[number] = time.monotonic(), process.returncode
                        del running[number]
                at_once = max(at_once, len(running))
                for name, value in judge.has(daemon.pid).items():
                    peak[name] = max(peak.get(name, 0), value)
                time.sleep(0.05)
            stop.set()
            asks.join(60)
            for process in running.values():
                process.kill()
            taken = sorted(ended[number] - begun[number] for number in ended)
            wrong = [number for number in range(jobs) if codes.get(number) != 0]
            last = lambda number: open(os.path.join(folder, "logs", str(number)), errors="replace").read().splitlines()[-1:]
            print(f"# {jobs} jobs: started in {spawned:.1f} s, {at_once} at once, all over after {time.monotonic() - since:.1f} s (SEED={seed})")
            print(f"# the daemon at most: {peak['peak'] >> 20} MiB ({peak['anon'] >> 20} MiB anonymous), {peak['fds']} descriptors, {peak['threads']} threads")
            judge.said(not wrong, f"{jobs} jobs at once: all end with exit code 0", "\n".join(f"{codes.get(n)}: {last(n)}" for n in wrong[:6]) + f"\n{len(wrong)} in all")
            unequal = [number for number in range(jobs) if number not in wrong and not equal(os.path.join(folder, "src", plan(number, folder, "")[2]), plan(number, folder, "")[1])]
            judge.said(not unequal, f"{jobs} jobs at once: all are equal", unequal[:20])
            # The smallest grants have 32 places all the same, which is 6 MiB more, and the code that runs.
            most = MEMORY + (16 if os.environ.get("QUEUED") else 0)
            judge.said(peak["peak"] <= most << 20, f"{jobs} jobs at once: the daemon stays within {most} MiB", f"{peak['peak'] >> 20} MiB")
            if os.environ.get("QUEUED"):
                waited = sum("waiting for a place" in open(os.path.join(folder, "logs", str(n)), errors="replace").read() for n in range(jobs))
                judge.said(waited > 0, f"more jobs than places: {waited} waited for one, and said so")
            elif taken:
                median = statistics.median(taken)
                streams = max(ended[n] - begun[n] for n in ended if n % 5 != 1)
                print(f"# of all the slowest took {taken[-1]:.1f} s")
                judge.said(streams <= 2 * median, f"{jobs} jobs at once: the slowest over TCP took {streams:.1f} s, the median of all is {median:.1f} s")
                for kind in range(10):
                    some = [ended[n] - begun[n] for n in ended if n % 10 == kind]
                    words = " ".join(plan(kind, "", "")[0][6:-2]) or "tcp"
                    print(f"# {'push' if kind % 2 else 'pull'} {plan(kind, '', '')[2]} {words}: median {statistics.median(some):.1f} s, at most {max(some):.1f} s") if some else None
            worst = max(waits)
            if os.environ.get("QUEUED"):
                return judge.status
            lost = [it for it in waits if it[1] != 0]
            judge.said(not lost, f"{len(waits)} newcomers meanwhile: each got its file", lost[:3])
            if worst[0] > WAIT_MAX:
                print("\n".join(f"# the slowest newcomer: {line[:160]}" for line in worst[2]))
            judge.said(worst[0] <= WAIT_MAX, f"{len(waits)} newcomers meanwhile: none waited longer than {worst[0]:.2f} s (median {statistics.median(it[0] for it in waits):.2f} s)")
        finally:
            stop.set()
            daemon.process.terminate()
            try:
                daemon.process.wait(20)
            except subprocess.TimeoutExpired:
                daemon.process.kill()
            if os.environ.get("VERBOSE"):
                print(open(os.path.join(folder, "daemon.err")).read()[-1500:])
    return judge.status


if __name__ == "__main__":
    sys.exit(main())
