#!/usr/bin/env python3
"""Our FTP client beside curl and lftp, with vsftpd as the server of all: one file each way and a tree, in clear and by TLS, in turn.

For: `make bench-ftp-client-beside`, by hand; the tables of docs/design/044-ftp-client.md.
In and out: LONGHAUL (the binary) and arguments -> each case's rounds, medians, spreads, processor times and ratios on standard output.
Invariants: files lie in memory; every round runs every client, and the next round begins with another one; servers and clients have one niceness; what
came is compared byte for byte; nothing is left behind. Processor time of the server is that of its control group.
Absent on purpose: distance, disks, other servers. curl and lftp do less: no digest, no journal, and a file has its name before it is whole. Only ratios
within one run count.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import os
import pathlib
import shutil
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20


def neighbour(name):
    """A program of this folder, for what both need."""
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), ROOT / "bench" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


server_side, tree_side = neighbour("ftp-beside"), neighbour("mode-e-beside")


class Clients:
    """Commands of each client for each case."""

    def __init__(self, longhaul, place, certificate):
        self.longhaul, self.place = longhaul, place
        pem = certificate.read_text()
        first = pem[pem.index("-----BEGIN CERTIFICATE"):]
        self.fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).hexdigest()

    def ours(self, server, source, destination, *more):
        terms = ["--ftp-fingerprint", self.fingerprint] if "tls" in server.name else ["--allow-clear"]
        return [self.longhaul, "cp", "-q", *terms, *more, source, destination]

    def at(self, server, path):
        return f"ftp://{server.at[0]}:{server.at[1]}/{path}"

    def curl(self, server, words, path):
        tls = ["--ssl-reqd", "-k"] if "tls" in server.name else []
        return ["curl", "-sS", *tls, *words, self.at(server, path)]

    def lftp(self, server, words):
        terms = ["ssl:verify-certificate no", "ftp:ssl-force yes", "ftp:ssl-protect-data yes", "ftp:ssl-allow-anonymous yes"]
        tls = "; ".join(f"set {it}" for it in (terms if "tls" in server.name else ["ftp:ssl-allow no"]))
        return ["lftp", "-c", f"set xfer:buffer-size 1048576; {tls}; open ftp://{server.at[0]}:{server.at[1]}; {words}"]

    def cases(self, servers, ceiling):
        """(case, {client: command}, what is to be the same as what)."""
        data, back = str(self.place / "root/data"), str(self.place / "back")
        # By TLS lftp needs some 20 ms a file.
        for name, kind, path in (("clear", "vsftpd", "tree"), ("TLS", "vsftpd tls", "tree/d0")):
            tree = str(self.place / "root" / path)
            it = servers[kind]
            yield f"get {name}", {
                "curl": self.curl(it, ["-o", back], "data"),
                "lftp pget -n 2": self.lftp(it, f"pget -n 2 data -o {back}"),
                "ours": self.ours(it, self.at(it, "data"), back),
                "ours, 1 connection": self.ours(it, self.at(it, "data"), back, "--streams", "1"),
            }, (data, back)
            yield f"put {name}", {
                "curl": self.curl(it, ["-T", data], "in/up"),
                "ours": self.ours(it, data, self.at(it, "in/up")),
            }, (data, str(self.place / "root/in/up"))
            clients = {
                "lftp mirror -P4": self.lftp(it, f"mirror -P4 {path} {back}"),
                "ours": self.ours(it, self.at(it, path), back),
            }
            if ceiling and name == "clear":
                clients["ceiling"] = [ceiling, str(it.at[1]), tree, back]
            yield f"tree {name}", clients, (tree, back)


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def measure(run, server, command, same):
    remove(same[1])
    before, began = server.group.seconds(), time.monotonic()
    _, client_s = run.timed(command)
    seconds = time.monotonic() - began
    time.sleep(server_side.SETTLE_S)
    server_s = server.group.seconds() - before
    if subprocess.run(["diff", "-rq", *same], stdout=subprocess.DEVNULL).returncode != 0:
        sys.exit(f"{command} brought something else")
    remove(same[1])
    return {"seconds": seconds, "client_s": client_s, "server_s": server_s}


def play(run, chosen, servers):
    results = {}
    for number in range(run.rounds + 1):
        for case, clients, same in chosen:
            server = servers["vsftpd tls" if "TLS" in case else "vsftpd"]
            names = list(clients)
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                one = measure(run, server, clients[name], same)
                # The first round maps the pages of what is sent.
                if number > 0:
                    results.setdefault(case, {}).setdefault(name, []).append(one)
                    print(f"round {number}: {case}, {name}: {one['seconds']:.2f} s, client {one['client_s']:.2f}, server {one['server_s']:.2f}", file=sys.stderr, flush=True)
    return results


def show(results, gib):
    print("| | seconds, all rounds | faster than curl or lftp mirror (by round) | client s/GiB | to curl or lftp mirror | server s/GiB |\n|---|---|---|---|---|---|")
    for case, clients in results.items():
        clients = {name: clients[name] for name in sorted(clients)}
        first = clients.get("curl") or clients.get("lftp mirror -P4") or next(iter(clients.values()))
        median = lambda rounds, key: statistics.median(it[key] for it in rounds)
        for name, rounds in clients.items():
            scale = gib[case.replace("get", "data").replace("put", "data")]
            seconds = " ".join(f"{it['seconds']:.2f}" for it in rounds)
            by_round = statistics.median(a["seconds"] / b["seconds"] for a, b in zip(first, rounds))
            print(f"| {case}, {name} | {median(rounds, 'seconds'):.2f} ({seconds}) "
                  f"| {median(first, 'seconds') / median(rounds, 'seconds'):.2f} ({by_round:.2f}) | {median(rounds, 'client_s') / scale:.2f} "
                  f"| {median(rounds, 'client_s') / median(first, 'client_s'):.2f} | {median(rounds, 'server_s') / scale:.2f} |")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size-mib", type=int, default=1024)
    parser.add_argument("--files", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="cases whose name begins so; several with commas")
    parser.add_argument("--nice", type=int, default=-10 if os.geteuid() == 0 else 0, help="of server and clients")
    parser.add_argument("--clients", default="", help="these alone, with semicolons")
    parser.add_argument("--beside", default="", metavar="NAME=BINARY", help="another build of ours, in turn with this one")
    parser.add_argument("--ceiling", default="", help="a program that is given port, tree and destination, as the bound of the tree in clear")
    parser.add_argument("--longhaul", default=os.environ.get("LONGHAUL", str(ROOT / "target/longhaul")))
    return parser.parse_args()


def main():
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [it for it in ("vsftpd", "curl", "lftp", "openssl") if not shutil.which(it)]
    if missing or os.geteuid() != 0:
        sys.exit(f"needs root, as vsftpd does, and {', '.join(missing) or 'nothing else'}")
    given.veth, given.cpus = False, ""
    with contextlib.ExitStack() as undo:
        place = pathlib.Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="ftp-client-beside-", dir="/dev/shm")))
        place.chmod(0o755)
        os.environ["LONGHAUL_HOME"] = str(place / "home")
        run = server_side.Run(given, place)
        server_side.weigh_by_niceness(undo)
        root = place / "root"
        (root / "in").mkdir(parents=True)
        (root / "in").chmod(0o777)
        with open(root / "data", "wb") as data:
            for _ in range(given.size_mib):
                data.write(os.urandom(MIB))
        tree_side.make_tree(root / "tree", given.files)
        cert = place / "cert.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=bench", "-keyout", cert, "-out", place / "c"],
                       check=True, capture_output=True)
        cert.write_text(cert.read_text() + (place / "c").read_text())
        servers = {}
        for name, more in (("vsftpd", ""), ("vsftpd tls", server_side.VSFTPD_TLS.format(cert=cert))):
            servers[name] = server_side.make_vsftpd(run, name, more + "mdtm_write=YES\n")
            undo.callback(servers[name].end)
            servers[name].wait_for(run)
        clients = Clients(given.longhaul, place, cert)
        chosen = [it for it in clients.cases(servers, given.ceiling) if not given.only or it[0].startswith(tuple(given.only.split(",")))]
        if given.beside:
            name, _, binary = given.beside.partition("=")
            for _, commands, _ in chosen:
                commands[name] = [binary, *commands["ours"][1:]]
        if given.clients:
            chosen = [(case, {k: v for k, v in commands.items() if k in given.clients.split(";")}, same) for case, commands, same in chosen]
        print(server_side.versions(run))
        bytes_of = lambda path: sum(it.stat().st_size for it in (root / path).rglob("*") if it.is_file())
        gib = {"data clear": run.bytes, "data TLS": run.bytes, "tree clear": bytes_of("tree"), "tree TLS": bytes_of("tree/d0")}
        print(f"data {given.size_mib} MiB; trees: {given.files} files, {gib['tree clear'] / MIB:.0f} MiB; by TLS the first 1,000 of them, {gib['tree TLS'] / MIB:.0f} MiB; "
              f"niceness {given.nice}; load {os.getloadavg()[0]:.1f}")
        show(play(run, chosen, servers), {case: count / (1 << 30) for case, count in gib.items()})


if __name__ == "__main__":
    main()
