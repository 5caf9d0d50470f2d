#!/usr/bin/env python3
"""Our FTP server beside globus-gridftp-server: MODE E by the same client, globus-url-copy, in turn.

For: `make bench-mode-e-beside`, by hand; the table of docs/design/045-mode-e.md.
In and out: LONGHAUL (the binary) and arguments -> each case's rounds, medians and ratios on standard output.
Invariants: files lie in memory; every round runs both servers, and the next round begins with the other one; servers and clients have one niceness; what was
put is compared byte for byte; nothing is left behind.
Absent on purpose: distance, disks, GSI. globus-gridftp-server does less: it has no digest and no journal, and a file has its name before it is whole. Only
ratios within one run count.
"""

import argparse
import contextlib
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
START_S = 20


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


class Server:
    """A server process, and the URL of its folder."""

    def __init__(self, name, command, port, url, place, nice, env=None):
        self.name, self.url = name, url
        self.log = place / f"{name}.log"
        self.process = subprocess.Popen(command, stdout=self.log.open("wb"), stderr=subprocess.STDOUT, env={**os.environ, **(env or {})},
                                        preexec_fn=lambda: os.nice(nice), start_new_session=True)
        until = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 2):
                return
            if time.monotonic() > until or self.process.poll() is not None:
                sys.exit(f"{name} does not start: {self.log.read_text()}")
            time.sleep(0.1)

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()


def servers(place, arguments):
    port = free_port()
    globus = Server("globus", ["globus-gridftp-server", "-aa", "-anonymous-user", arguments.user, "-p", str(port), "-control-interface", "127.0.0.1",
                               "-data-interface", "127.0.0.1"], port, f"ftp://127.0.0.1:{port}{place}/globus.root", place, arguments.nice)
    port = free_port()
    words = [arguments.longhaul, "ftp", "serve", "--root", str(place / "ours.root"), "--user", "bench", "--digest", arguments.digest,
             "--listen", f"127.0.0.1:{port}", "--clear", "127.0.0.1"]
    ours = Server("ours", words, port, None, place, arguments.nice, {"LONGHAUL_HOME": str(place / "home")})
    until = time.monotonic() + START_S
    while time.monotonic() < until and not ours.url:
        for line in ours.log.read_text().splitlines():
            if line.startswith("password of bench"):
                ours.url = f"ftp://bench:{line.rsplit(' ', 1)[1]}@127.0.0.1:{port}"
    return [globus, ours]


def timed(words, nice):
    began = time.monotonic()
    done = subprocess.run(["globus-url-copy", "-nodcau", *words], capture_output=True, preexec_fn=lambda: os.nice(nice))
    if done.returncode != 0:
        sys.exit(f"failed: {words}: {done.stderr.decode()}")
    return time.monotonic() - began


def make_tree(at, count):
    """Sizes as of a Zipf law: many small ones, few large ones."""
    numbers, bytes_ = random.Random(1), os.urandom(8 << 20)
    for index in range(count):
        folder = at / f"d{index // 1000}"
        folder.mkdir(parents=True, exist_ok=True)
        size = min(8 << 20, int(4096 * numbers.paretovariate(0.9)))
        start = numbers.randrange(0, len(bytes_) - size + 1)
        (folder / f"f{index}").write_bytes(bytes_[start:start + size])


def open_to_all(path):
    for folder, _, names in os.walk(path):
        os.chmod(folder, 0o777)
        for name in names:
            os.chmod(os.path.join(folder, name), 0o666)


def same(one, other):
    return subprocess.run(["diff", "-rq", one, other], stdout=subprocess.DEVNULL).returncode == 0


def measure(case, server, place, nice):
    """Seconds of one run of a case: (get or put, streams or "tree")."""
    way, streams = case
    root = place / f"{server.name}.root"
    back = place / "back"
    if streams == "tree":
        words = ["-r", "-cc", "4", "-pp", "-fast"]
        if way == "get":
            back.mkdir()
            seconds = timed([*words, f"{server.url}/tree/", f"file://{back}/"], nice)
            source, result = place / "tree", back
        else:
            seconds = timed([*words, "-cd", f"file://{place}/tree/", f"{server.url}/up/"], nice)
            source, result = place / "tree", root / "up"
    else:
        words = ["-p", str(streams), "-fast", "-bs", "4194304"]
        if way == "get":
            return timed([*words, f"{server.url}/data", "file:///dev/null"], nice)
        seconds = timed([*words, f"file://{place}/data", f"{server.url}/up"], nice)
        source, result = place / "data", root / "up"
    if not same(source, result):
        sys.exit(f"{server.name}: {case} is another file")
    shutil.rmtree(result) if result.is_dir() else result.unlink()
    return seconds


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--longhaul", default=os.environ.get("LONGHAUL", str(ROOT / "target/longhaul")))
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--size-mib", type=int, default=1024)
    words.add_argument("--files", type=int, default=20_000)
    words.add_argument("--nice", type=int, default=0)
    words.add_argument("--digest", default="crc64")
    words.add_argument("--user", default="nobody", help="whom globus-gridftp-server becomes")
    arguments = words.parse_args()
    cases = [(way, streams) for streams in (1, 2, 4, "tree") for way in ("get", "put")]
    with contextlib.ExitStack() as undo:
        place = pathlib.Path(undo.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm", prefix="mode-e-")))
        os.chmod(place, 0o755)
        (place / "home").mkdir(mode=0o700)
        with (place / "data").open("wb") as out:
            for _ in range(arguments.size_mib):
                out.write(os.urandom(1 << 20))
        make_tree(place / "tree", arguments.files)
        for name in ("globus", "ours"):
            root = place / f"{name}.root"
            root.mkdir()
            os.link(place / "data", root / "data")
            shutil.copytree(place / "tree", root / "tree", copy_function=os.link)
            open_to_all(root)
        both = servers(place, arguments)
        for server in both:
            undo.callback(server.end)
        results = {}
        for case in cases:
            for number in range(-1, arguments.rounds):
                for server in both if number % 2 else both[::-1]:
                    seconds = measure(case, server, place, arguments.nice)
                    print(f"{case} {server.name}: {seconds:.2f} s", file=sys.stderr, flush=True)
                    if number >= 0:  # the first one maps pages and hashes a password
                        results.setdefault((case, server.name), []).append(seconds)
        print("| | globus-gridftp-server, all rounds | ours, all rounds | ours to it, medians (by round) |\n|---|---|---|---|")
        for case in cases:
            theirs, ours = results[case, "globus"], results[case, "ours"]
            way, streams = case
            if streams == "tree":
                name, unit = f"{way}, {arguments.files} files, -cc 4 -pp -fast", "s"
                said = lambda seconds: seconds
            else:
                name, unit = f"{way} -p {streams} -fast", "Gbit/s"
                said = lambda seconds: arguments.size_mib * (8 << 20) / seconds / 1e9
            cell = lambda rounds: f"{said(statistics.median(rounds)):.1f} {unit} ({' '.join(f'{said(it):.1f}' for it in rounds)})"
            ratio = statistics.median(theirs) / statistics.median(ours)
            by_round = statistics.median(a / b for a, b in zip(theirs, ours))
            print(f"| {name} | {cell(theirs)} | {cell(ours)} | {ratio:.2f} ({by_round:.2f}) |")


if __name__ == "__main__":
    main()
