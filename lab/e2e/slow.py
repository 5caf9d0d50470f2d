#!/usr/bin/env python3
"""Slow readers have all bufs of a small daemon away: a newcomer's small file comes at once all the same.

In:         LONGHAUL. Out: lines of ok, not ok; status 0 only if nothing failed.
Invariants: the slow ones are there all the time, and each has a chunk in hand.
"""

import os
import subprocess
import sys
import tempfile
import time

LONGHAUL, SLOW, WAIT_MAX = os.environ["LONGHAUL"], 30, 2.0


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-slow-", dir=os.environ.get("E2E_DIR")) as folder:
        at = lambda name: os.path.join(folder, name)
        os.makedirs(at("root"))
        for name, size in (("large", 8 << 20), ("small", 13)):
            with open(at("root/" + name), "wb") as out:
                out.write(os.urandom(size))
        home = lambda name: dict(os.environ, LONGHAUL_HOME=at(name))
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        # 32 bufs in all.
        words = [LONGHAUL, "serve", "--root", at("root"), "--listen", "127.0.0.1:0", "--ticket", "--memory", "64MiB"]
        daemon = subprocess.Popen(words, env=home("home-daemon"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        url = daemon.stdout.readline().strip()
        slow = [subprocess.Popen([LONGHAUL, "cp", "--rate", "400kbit", "--memory", "16MiB", url + "large", at(f"slow-{n}")], env=home("home-client"), **quiet) for n in range(SLOW)]
        try:
            time.sleep(4)
            waits = []
            for number in range(4):
                began = time.monotonic()
                try:
                    code = subprocess.run([LONGHAUL, "cp", url + "small", at(f"new-{number}")], env=home("home-client"), timeout=30, check=False, **quiet).returncode
                except subprocess.TimeoutExpired:
                    code = None
                waits.append((time.monotonic() - began, code))
            alive = sum(it.poll() is None for it in slow)
        finally:
            for it in (*slow, daemon):
                it.kill()
                it.wait()
        good = alive == SLOW and all(code == 0 and took <= WAIT_MAX for took, code in waits)
        print(f"{'ok' if good else 'not ok'} {alive} slow readers at a daemon with 32 bufs: four newcomers had their small files after {', '.join(f'{took:.2f} s ({code})' for took, code in waits)}")
        return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
