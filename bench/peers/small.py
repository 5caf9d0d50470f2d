#!/usr/bin/env python3
"""Small files: longhaul and its peers over trees of many files, between two hosts made on the spot.

For:      issue's lines on small files: 20,000 files of Zipf sizes, a million empty files, one folder with 200,000 entries, and
          the second run of `sync` when nothing changed.
In, out:  as bench/peers/peers.py, whose hosts, race, tables and page it uses: target/bench/<name>.json and .html.
Invariants: the same tree for all contestants of a part; names, lengths and (Zipf) contents of every destination are compared once per
          contestant; a server is started anew for each copy, before the clock runs.
Absent on purpose: third-party modules, downloads, disks (a tmpfs shows what the programs cost, not what a disk does).
"""

import argparse
import filecmp
import os
import random
import shutil
import subprocess
import sys
import tempfile

import peers
from peers import LH_PORT, RAW_PORT, RSYNC_PORT, SIDES, SSH_PORT, Unable, Way


class Tree(peers.Ground):
    """A tree of many files as source; destinations stand below `dst_dir`."""

    def __init__(self, folder, files, size, per_folder):
        super().__init__("tmpfs", folder, size)
        self.src = os.path.join(folder, "src", "tree")
        self.dst = os.path.join(self.dst_dir, "tree")
        self.files, self.per_folder, self.keep = files, per_folder, False

    def fill(self):
        weight = self.size / sum(1 / rank for rank in range(1, self.files + 1)) if self.size else 0
        ranks = list(range(1, self.files + 1))
        random.Random(1).shuffle(ranks)
        noise, at = os.urandom(4 << 20), random.Random(2)
        self.size = 0
        for number, rank in enumerate(ranks):
            folder = os.path.join(self.src, f"{number // self.per_folder:04d}")
            if number % self.per_folder == 0:
                os.makedirs(folder)
            left = int(weight / rank)
            self.size += left
            with open(os.path.join(folder, f"file-{number}"), "wb", buffering=0) as out:
                while left:
                    begin = at.randrange(2 << 20)
                    left -= out.write(noise[begin:begin + min(left, 2 << 20)])

    def clear(self):
        if not self.keep:
            super().clear()

    def check(self):
        count = sum(len(files) for _, _, files in os.walk(self.dst))
        if count != self.files:
            raise Unable(f"{count} of {self.files} files are at the destination")

    def flush(self):
        pass  # memory

    def same(self):
        if not self.size:
            return True  # `check` counted them, and they are empty
        for folder, _, files in os.walk(self.src):
            there = os.path.join(self.dst, os.path.relpath(folder, self.src))
            _, other, odd = filecmp.cmpfiles(folder, there, files, shallow=False)
            if other or odd:
                return False
        return True

    def figures(self, seconds, flushed, cpu):
        found = super().figures(seconds, flushed, cpu) if self.size else {"seconds": seconds, "cpu_a": cpu["a"], "cpu_b": cpu["b"]}
        found["files_per_s"] = self.files / seconds
        found["cpu_s_per_million"] = (cpu["a"] + cpu["b"]) / self.files * 1e6
        return found


def contestants(lh):
    ssh = ("b", ["/usr/sbin/sshd", "-D", "-e", "-f", "{etc}/sshd_config"])
    gcm = "{ssh} -c aes128-gcm@openssh.com"
    serve = ["serve", "--root", "{dst_dir}", "--listen", f"{{b}}:{LH_PORT}", "--ticket"]
    ours = {"needs": (lh,), "port": LH_PORT, "setup": peers.lh_setup, "version": (lh, "--version"), "ours": True}
    clear = ["--integrity-only", "--digest", "crc64"]
    daemon = ("b", ["rsync", "--daemon", "--no-detach", "--config", "{etc}/rsyncd.conf", "--port", RSYNC_PORT])
    nc = ("b", ["sh", "-c", f"mkdir {{dst}} && nc -l {RAW_PORT} | tar -C {{dst}} -xf -"])
    socat = ("b", ["sh", "-c", f"mkdir {{dst}} && socat -u -b 1048576 TCP-LISTEN:{RAW_PORT},reuseaddr - | tar -C {{dst}} -xf -"])
    pipe = "a pipe: no encryption, no digest, no resume, names visible while partial"
    return [
        Way("longhaul (default)", client=("a", [lh, "cp", "--json", "{src}/.", "{lh_url}tree/"]), serve=("b", [lh] + serve), encrypts=True, **ours),
        Way("longhaul (in clear, crc64)", client=("a", [lh, "cp", "--json"] + clear + ["{src}/.", "{lh_url}tree/"]),
            serve=("b", [lh] + serve + ["--integrity-only"]), **ours),
        Way("rsync over ssh", ("rsync", "/usr/sbin/sshd"), ("a", ["rsync", "-a", "-W", "-e", gcm, "{src}/", "root@{b}:{dst}/"]), ssh, SSH_PORT,
            encrypts=True, setup=peers.key_setup, version=("rsync", "--version"), lacks="no fsync; digest of the stream only"),
        Way("tar | ssh tar", ("tar", "/usr/sbin/sshd"), ("a", ["sh", "-c", f"tar -C {{src}} -cf - . | {gcm} root@{{b}} 'mkdir {{dst}} && tar -C {{dst}} -xf -'"]),
            ssh, SSH_PORT, encrypts=True, setup=peers.key_setup, version=("tar", "--version"), lacks=pipe.replace("encryption", "fsync")),
        Way("rsync daemon", ("rsync",), ("a", ["rsync", "-a", "-W", "{src}/", f"rsync://{{b}}:{RSYNC_PORT}/m/tree/"]), daemon, RSYNC_PORT,
            setup=peers.rsyncd_setup, version=("rsync", "--version"), lacks="no encryption, no fsync; digest of the stream only"),
        Way("tar | nc", ("tar", "nc"), ("a", ["sh", "-c", f"tar -C {{src}} -cf - . | nc {peers.nc_end()} {{b}} {RAW_PORT}"]), nc, RAW_PORT, oneshot=True,
            version=("tar", "--version"), lacks=pipe),
        Way("tar | socat", ("tar", "socat"), ("a", ["sh", "-c", f"tar -C {{src}} -cf - . | socat -u -b 1048576 - TCP:{{b}}:{RAW_PORT}"]), socat, RAW_PORT,
            oneshot=True, version=("socat", "-V"), lacks=pipe),
        Way("longhaul, local", client=("a", [lh, "cp", "--json", "{src}/.", "{dst}/"]), **{**ours, "port": 0}),
        Way("cp -a, local", ("cp",), ("a", ["cp", "-a", "{src}", "{dst}"]), version=("cp", "--version"), lacks="one host; no digest, no fsync"),
    ]


def again(lh):
    """The second run: all is there."""
    ways = {way.name: way for way in contestants(lh)}
    ours, rsync, daemon = ways["longhaul (default)"], ways["rsync over ssh"], ways["rsync daemon"]
    ours.name, ours.client = "longhaul sync", ("a", [lh, "sync", "--json", "{src}", "{lh_url}tree"])
    return [ours, rsync, daemon]


# Whom each of ours is held against, and how many times as fast it was asked to be over the Zipf tree (None: nothing was asked).
PAIRS = [("longhaul (default)", "rsync over ssh", 3.0), ("longhaul (default)", "tar | ssh tar", None),
         ("longhaul (in clear, crc64)", "rsync daemon", 1.5), ("longhaul (in clear, crc64)", "tar | nc", 1.5),
         ("longhaul (in clear, crc64)", "tar | socat", None), ("longhaul, local", "cp -a, local", None),
         ("longhaul sync", "rsync over ssh", None), ("longhaul sync", "rsync daemon", None)]


def pairs(raced, is_zipf):
    """Like with like: what is sealed against what is sealed, two hosts against two, one against one."""
    unit, cost = raced["unit"], raced["cost"]
    rows = {row["name"]: row for row in raced["rows"] if row[unit]}
    for ours, peer, asked in PAIRS:
        if ours in rows and peer in rows:
            yield {"part": raced["title"], "ours": ours, "peer": peer, "speed_ratio": rows[ours][unit]["median"] / rows[peer][unit]["median"],
                   "asked_ratio": asked if is_zipf else None, "cheapest_peer": peer, "cpu_ratio": rows[ours][cost]["median"] / rows[peer][cost]["median"]}


def with_memory(found):
    report = found.get("report") or {}
    for side, key in (("a", "peak_memory_bytes_local"), ("b", "peak_memory_bytes_remote")):
        if report.get(key):
            found["memory_" + side] = report[key]
    return found


def part(hosts, args, title, tree, ways, unit, cost, rounds):
    need = 2 * tree.size + 2 * tree.files * 2048 + (256 << 20)
    if shutil.disk_usage(args.tmpfs).free < need:
        return {"title": title, "unit": unit, "cost": cost, "rows": []}
    entries = []
    for way in ways:
        if args.only and not peers.re.search(args.only, way.name):
            continue
        gone = peers.missing(way.needs)
        entries.append({"name": way.name, "way": way, "lacks": way.lacks, "encrypts": way.encrypts, "ours": way.ours,
                        "version": peers.version_of(way.version) if not gone else "", "why_not": f"not here: {', '.join(gone)}" if gone else ""})

    def run(entry, number):
        found, argv = peers.run_copy(hosts, entry["way"], tree, False, args.timeout)
        if number == 0 and not tree.same():
            raise Unable("the destination DIFFERS from the source")
        return with_memory(found), argv

    return peers.race(f"{title} (median of {rounds})", unit, entries, rounds, run, cost)


def main():
    ask = argparse.ArgumentParser(description="longhaul beside its peers over many small files")
    ask.add_argument("--longhaul", default=os.path.join(peers.HERE, "..", "..", "target", "longhaul"), help="the binary under test")
    ask.add_argument("--rounds", type=int, default=5, help="of each part; of `empty`, which takes minutes, at most 3")
    ask.add_argument("--parts", default="zipf,again,folder,empty")
    ask.add_argument("--files", type=int, default=1_000_000, help="of `empty` and `again`")
    ask.add_argument("--only", help="regular expression over the contestants' names")
    ask.add_argument("--tmpfs", default="/dev/shm", help="a folder on tmpfs")
    ask.add_argument("--timeout", type=int, default=600, help="seconds after which one copy is given up")
    ask.add_argument("--name", default="small")
    ask.add_argument("--out", default=os.path.join(peers.HERE, "..", "..", "target", "bench"))
    args = ask.parse_args()
    args.longhaul = lh = os.path.abspath(args.longhaul)
    hosts = peers.Hosts().up(lh)
    folder = ""
    try:
        result = {"machine": peers.machine(hosts), "arguments": {k: v for k, v in vars(args).items() if k != "longhaul"}, "parts": []}
        for name in args.parts.split(","):
            folder = tempfile.mkdtemp(prefix="longhaul-bench-", dir=args.tmpfs)
            if name == "zipf":
                tree, ways, unit, cost = Tree(folder, 20_000, 1 << 30, 200), contestants(lh), "gbps", "cpu_s_per_gb"
                title = "20,000 files of Zipf sizes, 1 GiB, tmpfs to tmpfs"
            elif name in ("empty", "again"):
                tree, unit, cost = Tree(folder, args.files, 0, 1000), "files_per_s", "cpu_s_per_million"
                ways = contestants(lh) if name == "empty" else again(lh)
                title = f"{args.files:,} empty files, 1,000 to a folder" + ("" if name == "empty" else ": the second run, nothing changed")
            elif name == "folder":
                tree, ways, unit, cost = Tree(folder, 200_000, 0, 200_000), contestants(lh), "files_per_s", "cpu_s_per_million"
                title = "one folder of 200,000 empty files"
            else:
                ask.error(f"no part {name}")
            tree.fill()
            if name == "again":
                subprocess.run(["cp", "-a", tree.src, tree.dst], check=True)
                tree.keep = True
            raced = part(hosts, args, title, tree, ways, unit, cost, min(args.rounds, 3) if name == "empty" else args.rounds)
            raced["verdicts"] = list(pairs(raced, name == "zipf"))
            result["parts"].append(raced)
            shutil.rmtree(folder)
        peers.show_and_write(result, args)
    except KeyboardInterrupt:
        print("stopped: the parts that were done are kept")
        peers.show_and_write(result, args)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        hosts.down()


if __name__ == "__main__":
    sys.exit(main())
