#!/usr/bin/env python3
"""One job over four links of 1 : 1 : 2 : 4: longhaul, MPTCP, and the links one by one.

In, out:  as bench/peers/peers.py, whose hosts, race and page it uses: target/bench/paths.json and .html. Each row: the rate of the whole, its share of
          all links, and the tail: the time from the first link that had nothing more to do until the last one had.
Invariants: the links are token buckets between two namespaces made here; bytes on them are counted by the kernel, not by contestants.
Absent on purpose: bonding (this needs a guest: the kernels this runs on often have no such module).
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

import peers
from peers import LH_PORT, RAW_PORT, Unable

WEIGHTS = (1, 1, 2, 4)
MPTCP = 262  # IPPROTO_MPTCP
SINK = ("import socket, sys\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, int(sys.argv[1])); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        "s.bind(('0.0.0.0', int(sys.argv[2]))); s.listen()\n"
        "c, _ = s.accept(); n = 0; b = bytearray(1 << 20)\n"
        "while (k := c.recv_into(b)): n += k\n"
        "c.send(b'x')\n")
SOURCE = ("import socket, sys\n"
          "s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, int(sys.argv[1])); s.connect((sys.argv[2], int(sys.argv[3])))\n"
          "n = int(sys.argv[4]); b = bytes(1 << 20)\n"
          "while n > 0: n -= s.send(b[:n])\n"
          "s.shutdown(socket.SHUT_WR); assert s.recv(1) == b'x'\n")


class Links:
    def __init__(self, hosts, unit):
        if not hosts.maker:
            raise Unable("needs two network namespaces")
        self.hosts, self.unit = hosts, unit
        for number, weight in enumerate(WEIGHTS):
            peers.must(["ip", "link", "add", f"lp{number}", "netns", str(hosts.ids["a"]), "type", "veth", "peer", "name", f"lp{number}", "netns", str(hosts.ids["b"])])
            for side, last in (("a", 1), ("b", 2)):
                on = lambda *words, side=side: peers.must(hosts.wrap(side, words))
                on("ip", "addr", "add", f"10.99.2{number}.{last}/24", "dev", f"lp{number}")
                on("ip", "link", "set", f"lp{number}", "up")
                on("tc", "qdisc", "replace", "dev", f"lp{number}", "root", "tbf", "rate", f"{unit * weight}mbit", "burst", "128kb", "latency", "20ms")
        for side in "ab":
            peers.must(hosts.wrap(side, ["sh", "-c", "echo 1 >/proc/sys/net/mptcp/enabled && ip mptcp limits set subflow 4 add_addr_accepted 4"]))
        for number in (1, 2, 3):
            peers.must(hosts.wrap("b", ["ip", "mptcp", "endpoint", "add", f"10.99.2{number}.2", "dev", f"lp{number}", "signal"]))

    def sent(self):
        text = open(f"/proc/{self.hosts.ids['a']}/net/dev").read()
        return [int(re.search(rf"lp{number}:\s*(.*)", text).group(1).split()[8]) for number in range(len(WEIGHTS))]


class Watch(threading.Thread):
    """What each link carried, every 20 ms."""

    def __init__(self, links):
        super().__init__()
        self.links, self.rows, self.over = links, [], False
        self.start()

    def run(self):
        while not self.over:
            self.rows.append((time.monotonic(), self.links.sent()))
            time.sleep(0.02)

    def tail_ms(self):
        self.over = True
        self.join()
        last = []
        for number, weight in enumerate(WEIGHTS):
            full = self.links.unit * weight * 1e6 / 8
            busy = [b[0] for a, b in zip(self.rows, self.rows[5:]) if (b[1][number] - a[1][number]) / (b[0] - a[0]) > full * 0.3]
            last.append(busy[-1] if busy else self.rows[0][0])
        shares = [after - before for before, after in zip(self.rows[0][1], self.rows[-1][1])]
        return (max(last) - min(last)) * 1e3, [share / max(sum(shares), 1) for share in shares]


def python(hosts, bytes_of, protocol):
    """Bytes from memory to memory over each of these (address, bytes) at once."""
    started = []
    try:
        for at in range(len(bytes_of)):
            started.append(hosts.start("b", [sys.executable, "-c", SINK, protocol, RAW_PORT + at]))
            hosts.listening("b", RAW_PORT + at, started[-1])
        began = time.monotonic()
        argvs = [[sys.executable, "-c", SOURCE, protocol, addr, RAW_PORT + at, amount] for at, (addr, amount) in enumerate(bytes_of)]
        sources = [hosts.start("a", argv) for argv in argvs]
        started += sources
        for source in sources:
            if source.wait(300):
                raise Unable(peers.tail(source))
        return time.monotonic() - began, ["python3", "-c", "SOURCE", *argvs[0][3:]]
    finally:
        for process in started:
            peers.stop(process)


def ours(hosts, lh, folder, size, several):
    dst = os.path.join(folder, "dst")
    subprocess.run(["rm", "-rf", dst], check=True)
    os.makedirs(dst)
    home = {"env": dict(os.environ, LONGHAUL_HOME=os.path.join(folder, "home"))}
    server = hosts.start("b", [lh, "serve", "--root", dst, "--listen", f"0.0.0.0:{LH_PORT}", "--ticket"], stdout=subprocess.PIPE, **home)
    try:
        url = re.sub(r"@[^/]*/", "@10.99.20.2:%d/" % LH_PORT, server.stdout.readline().decode().strip())
        paths = [f"--path=10.99.2{number}.1=10.99.2{number}.2" for number in range(len(WEIGHTS))] if several else []
        argv = [lh, "cp", "--json", *paths, os.path.join(folder, "src"), url]
        began = time.monotonic()
        client = subprocess.run(hosts.wrap("a", argv), stdin=subprocess.DEVNULL, capture_output=True, **home)
        seconds = time.monotonic() - began
        if client.returncode:
            raise Unable(client.stderr.decode()[-200:] or client.stdout.decode()[-200:])
        if subprocess.run(["cmp", os.path.join(folder, "src"), os.path.join(dst, "src")]).returncode:
            raise Unable("the destination DIFFERS from the source")
        return seconds, ["longhaul", "cp", *paths, "FILE", "URL"]
    finally:
        peers.stop(server)


def main():
    ask = argparse.ArgumentParser(description="one job over four links of 1 : 1 : 2 : 4")
    ask.add_argument("--longhaul", default=os.path.join(peers.HERE, "..", "..", "target", "longhaul"), help="the binary under test")
    ask.add_argument("--rounds", type=int, default=5)
    ask.add_argument("--unit", type=int, default=100, help="Mbit/s of the slowest link")
    ask.add_argument("--size", type=int, default=600, help="MB")
    ask.add_argument("--tmpfs", default="/dev/shm")
    ask.add_argument("--name", default="paths")
    ask.add_argument("--out", default=os.path.join(peers.HERE, "..", "..", "target", "bench"))
    args = ask.parse_args()
    lh, size = os.path.abspath(args.longhaul), args.size * 10**6
    hosts = peers.Hosts().up(lh)
    folder = tempfile.mkdtemp(prefix="longhaul-bench-", dir=args.tmpfs)
    try:
        links = Links(hosts, args.unit)
        with open(os.path.join(folder, "src"), "wb") as file:
            file.write(os.urandom(size))
        part = size // len(WEIGHTS)
        ways = {
            "longhaul, four paths": (lambda: ours(hosts, lh, folder, size, True), "", True),
            "longhaul, the one path of the address": (lambda: ours(hosts, lh, folder, size, False), "one link of four (the slowest)", True),
            "MPTCP, four subflows": (lambda: python(hosts, [("10.99.20.2", size)], MPTCP), "from memory to memory: no file, no encryption, no digest", False),
            "four TCP streams, a quarter each": (lambda: python(hosts, [(f"10.99.2{n}.2", part) for n in range(4)], 6),
                                                  "from memory to memory: no file, no encryption, no digest", False),
            "four TCP streams, by weight": (lambda: python(hosts, [(f"10.99.2{n}.2", size * w // sum(WEIGHTS)) for n, w in enumerate(WEIGHTS)], 6),
                                             "as above, and somebody knew the weights: the ceiling", False),
        }
        entries = [{"name": name, "lacks": lacks, "encrypts": is_ours, "ours": is_ours, "version": "", "why_not": ""} for name, (_, lacks, is_ours) in ways.items()]

        def run(entry, number):
            cpu, all_cpu, watch = [hosts.cpu(side) for side in "ab"], peers.busy(), Watch(links)
            try:
                seconds, argv = ways[entry["name"]][0]()
            finally:
                tail_ms, shares = watch.tail_ms()
            spent, all_cpu = sum(hosts.cpu(side) for side in "ab") - sum(cpu), peers.busy() - all_cpu
            gbps = size * 8 / seconds / 1e9
            found = {"gbps": gbps, "seconds": seconds, "cpu_s_per_gb": spent / (size / 1e9), "tail_ms": tail_ms, "shares": shares,
                     "of_links": gbps * 1e3 / (args.unit * sum(WEIGHTS)), "others_cpu_share": max(0.0, (all_cpu - spent) / seconds / os.cpu_count())}
            print(f"    {found['of_links']:.2f} of all links, tail {tail_ms:.0f} ms, shares of weights "
                  + " ".join(f"{share * sum(WEIGHTS) / weight:.2f}" for share, weight in zip(shares, WEIGHTS)), flush=True)
            return found, [str(word) for word in argv]

        raced = peers.race(f"{args.size} MB over four links of 1 : 1 : 2 : 4, {args.unit * 8} Mbit/s together", "gbps", entries, args.rounds, run)
        for row in raced["rows"]:
            for key in ("tail_ms", "of_links"):
                row[key] = peers.middle(row["rounds"], key)
            if row["tail_ms"]:
                print(f"{row['name']:<40} {row['of_links']['median']:.3f} of all links, tail {row['tail_ms']['median']:.0f} ms")
        raced["verdicts"] = []
        arguments = {k: v for k, v in vars(args).items() if k not in ("longhaul", "out")}
        peers.show_and_write({"machine": peers.machine(hosts), "arguments": arguments, "parts": [raced]}, args)
    finally:
        subprocess.run(["rm", "-rf", folder])
        hosts.down()


if __name__ == "__main__":
    sys.exit(main())
