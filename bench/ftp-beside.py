#!/usr/bin/env python3
"""Our FTP server beside vsftpd: one file each way, in clear and by TLS, by the same clients, in turn.

For: `make bench-ftp-beside`, by hand; the table of docs/design/041-ftp-server.md.
In and out: LONGHAUL (the binary) and arguments -> versions, commands, each case's rounds, medians, spreads and ratios on standard output, and the
same as JSON.
Invariants: files lie in memory; every round runs every server, and the next round begins with another one; servers and clients have one niceness; a
server's processor time is that of its control group, with all its children, or that of its process tree in ticks of 10 ms where no group can be made;
nothing is left behind.
Absent on purpose: many files, many clients, distance, disks; other servers. vsftpd does less: it has no digest, no journal of what came, and gives a file
its name before it is whole. Nothing here proves a rate of another machine: only ratios within one run count.
"""

import argparse
import contextlib
import ftplib
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20
GIB = 1 << 30
TICKS = os.sysconf("SC_CLK_TCK")
# A server that is not there by then does not come.
START_S = 20
# vsftpd's session process ends after its client; then its time has been counted.
SETTLE_S = 0.1

VSFTPD = """listen=YES
listen_ipv6=NO
background=NO
listen_port={port}
anonymous_enable=YES
local_enable=NO
no_anon_password=YES
ftp_username={user}
nopriv_user=nobody
anon_root={root}
write_enable=YES
anon_upload_enable=YES
anon_other_write_enable=YES
anon_umask=022
anon_world_readable_only=NO
secure_chroot_dir={empty}
use_sendfile=YES
xferlog_enable=NO
seccomp_sandbox=NO
{more}"""
VSFTPD_TLS = """ssl_enable=YES
allow_anon_ssl=YES
force_anon_data_ssl=YES
force_anon_logins_ssl=YES
rsa_cert_file={cert}
ssl_tlsv1=YES
ssl_sslv2=NO
ssl_sslv3=NO
ssl_ciphers=HIGH
"""


def receive(host, port, user, password, name):
    """A client that does nothing but receive, 1 MiB at a time; says the seconds between RETR and its last reply."""
    room = bytearray(MIB)
    ftp = ftplib.FTP()
    ftp.connect(host, int(port))
    ftp.login(user, password)
    ftp.voidcmd("TYPE I")
    began, came = time.monotonic(), 0
    with ftp.transfercmd(f"RETR {name}") as data:
        while True:
            bytes_now = data.recv_into(room)
            if bytes_now == 0:
                break
            came += bytes_now
    ftp.voidresp()
    print(time.monotonic() - began, came)
    ftp.quit()


class Group:
    """Counts the processor time of a server."""

    def __init__(self, name):
        self.path, self.pid = None, None
        for line in pathlib.Path("/proc/mounts").read_text().splitlines():
            _, place, kind, *_ = line.split()
            if kind != "cgroup2":
                continue
            path = pathlib.Path(place) / f"ftp-beside-{os.getpid()}-{name}"
            with contextlib.suppress(OSError):
                path.mkdir()
                (path / "cpu.stat").read_text()
                self.path = path

    def join(self):
        if self.path:
            (self.path / "cgroup.procs").write_text("0")

    def seconds(self):
        if self.path:
            words = (self.path / "cpu.stat").read_text().split()
            return int(words[words.index("usage_usec") + 1]) / 1e6
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return sum(map(int, fields[11:15])) / TICKS

    def remove(self):
        if self.path:
            with contextlib.suppress(OSError):
                self.path.rmdir()


class Server:
    """A server process; `scheme` words of curl reach it."""

    def __init__(self, name, command, at, user, password, run, env=None):
        self.name, self.command, self.at, self.user, self.password = name, command, at, user, password
        self.group = Group(name.replace(" ", "-"))
        log = open(run.place / f"{name}.log", "wb")

        def prepare():
            self.group.join()
            os.nice(run.nice)

        self.process = subprocess.Popen(
            [*run.at_server, *command], stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})},
            preexec_fn=prepare, start_new_session=True)
        self.group.pid = self.process.pid
        self.log = run.place / f"{name}.log"

    def wait_for(self, run):
        until = time.monotonic() + START_S
        word = [sys.executable, "-c", f"import socket; socket.create_connection({self.at!r}, 2)"]
        while subprocess.run([*run.at_client, *word], stderr=subprocess.DEVNULL).returncode != 0:
            if time.monotonic() > until or self.process.poll() is not None:
                sys.exit(f"{self.name} does not start: {self.log.read_text()}")
            time.sleep(0.1)

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()
        self.group.remove()


class Run:
    """Where it happens."""

    def __init__(self, arguments, place):
        self.place, self.nice, self.bytes = place, arguments.nice, arguments.size_mib * MIB
        self.host, self.at_server, self.at_client = "127.0.0.1", [], []
        self.rounds, self.longhaul = arguments.rounds, arguments.longhaul
        if arguments.veth:
            self.host = "10.213.7.1"
            self.at_server, self.at_client = ["ip", "netns", "exec", "ftpb0"], ["ip", "netns", "exec", "ftpb1"]
        if arguments.cpus:
            of_server, of_client = arguments.cpus.split(":")
            self.at_server += ["taskset", "-c", of_server]
            self.at_client += ["taskset", "-c", of_client]

    def links(self, undo):
        if self.host == "127.0.0.1":
            return
        for end in ("ftpb0", "ftpb1"):
            ip("netns", "add", end)
            undo.callback(ip, "netns", "del", end)
        ip("link", "add", "ftpb0", "netns", "ftpb0", "type", "veth", "peer", "name", "ftpb1", "netns", "ftpb1")
        for end, address in (("ftpb0", "10.213.7.1/24"), ("ftpb1", "10.213.7.2/24")):
            ip("-n", end, "address", "add", address, "dev", end)
            ip("-n", end, "link", "set", end, "up")
            ip("-n", end, "link", "set", "lo", "up")

    def timed(self, command):
        """Runs a client; returns what it said and its processor time."""
        process = subprocess.Popen([*self.at_client, *command], stdout=subprocess.PIPE, preexec_fn=lambda: os.nice(self.nice))
        said = process.stdout.read().decode()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = status
        if status != 0:
            sys.exit(f"failed: {' '.join(command)}: {os.waitstatus_to_exitcode(status)} {said}")
        return said.split(), used.ru_utime + used.ru_stime

    def curl(self, server, words, name):
        words = ["curl", "-sS", "-u", f"{server.user}:{server.password}", "-w", "%{time_total}", *words]
        return [*words, f"ftp://{server.at[0]}:{server.at[1]}/{name}"]


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def weigh_by_niceness(undo):
    """The kernel weighs sessions before niceness, and vsftpd makes one for each client: not during the run (sched(7), autogroup)."""
    switch = pathlib.Path("/proc/sys/kernel/sched_autogroup_enabled")
    with contextlib.suppress(OSError):
        was = switch.read_text()
        switch.write_text("0")
        undo.callback(switch.write_text, was)


def free_port():
    with socket.socket() as it:
        it.bind(("", 0))
        return it.getsockname()[1]


def make_vsftpd(run, name, more=""):
    port = free_port()
    empty = run.place / "empty"
    empty.mkdir(exist_ok=True)
    config = run.place / f"{name}.conf"
    # vsftpd wants one with a home that is there.
    user = next(it.pw_name for it in pwd.getpwall() if it.pw_uid != 0 and pathlib.Path(it.pw_dir).is_dir())
    config.write_text(VSFTPD.format(port=port, user=user, root=run.place / "root", empty=empty, more=more))
    return Server(name, ["vsftpd", str(config)], (run.host, port), "anonymous", "x", run)


def make_ours(run, name, digest):
    port, home = free_port(), run.place / f"{name}.home"
    network = run.host.rsplit(".", 1)[0] + ".0/24"
    words = [run.longhaul, "ftp", "serve", "--root", str(run.place / "root"), "--user", "bench", "--digest", digest]
    words += ["--listen", f"{run.host}:{port}", "--clear", network]
    server = Server(name, words, (run.host, port), "bench", None, run, {"LONGHAUL_HOME": str(home)})
    server.wait_for(run)
    for line in server.log.read_text().splitlines():
        if line.startswith("password of bench"):
            server.password = line.rsplit(" ", 1)[1]
    return server


def cases(run, servers):
    """(case, command of a client for a server, the servers that are compared: vsftpd's first)"""
    data = run.place / "root/data"
    loop = [sys.executable, __file__, "--receive"]
    tls = ["--ssl-reqd", "-k"]
    stored = ["-T", str(data)]
    return [
        ("RETR clear, curl", lambda it: run.curl(it, ["-o", "/dev/null"], "data"), [servers["vsftpd"], servers["blake3"]]),
        ("RETR clear, 1 MiB receives", lambda it: [*loop, it.at[0], str(it.at[1]), it.user, it.password, "data"], [servers["vsftpd"], servers["blake3"]]),
        ("STOR clear, curl", lambda it: run.curl(it, stored, "in/up"), [servers["vsftpd"], servers["crc64"], servers["blake3"]]),
        ("RETR TLS, curl", lambda it: run.curl(it, [*tls, "-o", "/dev/null"], "data"), [servers["vsftpd tls"], servers["vsftpd tls one"], servers["blake3"]]),
        ("STOR TLS, curl", lambda it: run.curl(it, [*tls, *stored], "in/up"), [servers["vsftpd tls"], servers["vsftpd tls one"], servers["crc64"], servers["blake3"]]),
    ]


LABELS = {
    "vsftpd": "vsftpd, no digest, no journal",
    "vsftpd tls": "vsftpd, no digest, no journal",
    "vsftpd tls one": "vsftpd, one process (anonymous users only)",
    "crc64": "longhaul, CRC-64",
    "blake3": "longhaul, BLAKE3",
}


def label(case, name):
    """Nothing is hashed on its way out."""
    return LABELS[name].split(",")[0] if case.startswith("RETR") and "one" not in name else LABELS[name]


def same(one, other):
    return subprocess.run(["cmp", "-s", one, other]).returncode == 0


def measure(run, command, server):
    up = run.place / "root/in/up"
    with contextlib.suppress(FileNotFoundError):
        up.unlink()
    before = server.group.seconds()
    said, client_s = run.timed(command)
    time.sleep(SETTLE_S)
    server_s = server.group.seconds() - before
    if "-T" in command and not same(run.place / "root/data", up):
        sys.exit(f"{server.name} stored another file")
    return {"gbit_s": run.bytes * 8 / float(said[0]) / 1e9, "server_s": server_s, "client_s": client_s}


def play(run, chosen):
    results = {}
    for case, command, servers in chosen:
        for server in servers:  # the first login of ours hashes a password for a quarter of a second; the file's pages are mapped
            measure(run, command(server), server)
    for number in range(run.rounds):
        for case, command, servers in chosen:
            turn = number % len(servers)
            for server in servers[turn:] + servers[:turn]:
                one = measure(run, command(server), server)
                results.setdefault(case, {}).setdefault(server.name, []).append(one)
                print(f"round {number + 1}: {case}, {label(case, server.name)}: {one['gbit_s']:.1f} Gbit/s, server {one['server_s']:.3f} s", file=sys.stderr)
    return results


def summary(run, results):
    """Medians of the rounds, and ratios to the first server of a case: of the medians, and the median of the rounds'."""
    table = []
    per_gib = GIB / run.bytes
    for case, servers in results.items():
        first = servers.get("vsftpd") or servers["vsftpd tls"]
        for name in sorted(servers, key=list(LABELS).index):
            rounds = servers[name]
            of = lambda key, where=rounds: [it[key] for it in where]
            median = lambda key, where=rounds: statistics.median(of(key, where))
            rates = of("gbit_s")
            table.append({
                "case": case, "server": label(case, name), "rounds_gbit_s": [round(it, 2) for it in rates],
                "gbit_s": round(median("gbit_s"), 2), "spread_gbit_s": [round(min(rates), 2), round(max(rates), 2)],
                "server_s_per_gib": round(median("server_s") * per_gib, 3), "client_s_per_gib": round(median("client_s") * per_gib, 3),
                "rate_to_vsftpd": round(median("gbit_s") / median("gbit_s", first), 2),
                "rate_to_vsftpd_by_round": round(statistics.median(a / b for a, b in zip(rates, of("gbit_s", first))), 2),
                "server_time_to_vsftpd": round(median("server_s") / max(median("server_s", first), 1e-6), 2),
                # On one host the network's work is booked to whoever runs it, now the one, now the other: their sum says more.
                "both_times_to_vsftpd": round((median("server_s") + median("client_s")) / (median("server_s", first) + median("client_s", first)), 2),
                "client_time_to_vsftpd": round(median("client_s") / max(median("client_s", first), 1e-6), 2),
            })
    return table


def show(table):
    print("| | Gbit/s, all rounds | to vsftpd (by round) | server s/GiB | to vsftpd | client s/GiB | both to vsftpd |\n|---|---|---|---|---|---|---|")
    for it in table:
        rounds = " ".join(f"{rate:.1f}" for rate in it["rounds_gbit_s"])
        print(f"| {it['case']}, {it['server']} | {it['gbit_s']:.1f} ({rounds}) | {it['rate_to_vsftpd']:.2f} ({it['rate_to_vsftpd_by_round']:.2f}) "
              f"| {it['server_s_per_gib']:.3f} | {it['server_time_to_vsftpd']:.2f} | {it['client_s_per_gib']:.2f} | {it['both_times_to_vsftpd']:.2f} |")


def first_line(*command):
    said = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    return (said.stdout + said.stderr).decode().splitlines()[0]


def versions(run):
    # vsftpd says its version to its standard input.
    said = subprocess.run(["sh", "-c", "vsftpd -v 0>&1"], capture_output=True).stdout.decode().strip()
    return {"longhaul": first_line(run.longhaul, "--version"), "vsftpd": said, "curl": first_line("curl", "--version"), "python": sys.version.split()[0],
            "kernel": os.uname().release, "cores": os.cpu_count(), "load": os.getloadavg()[0]}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size-mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="cases whose name begins so")
    parser.add_argument("--veth", action="store_true", help="between two namespaces instead of over loopback (root)")
    parser.add_argument("--cpus", default="", metavar="SERVER:CLIENT", help="hold them on these: 0:1 apart, 0:0 together")
    parser.add_argument("--nice", type=int, default=-10 if os.geteuid() == 0 else 0, help="of servers and clients")
    parser.add_argument("--out", default=str(ROOT / "target/bench/ftp-beside.json"))
    parser.add_argument("--longhaul", default=os.environ.get("LONGHAUL", str(ROOT / "target/longhaul")))
    parser.add_argument("--receive", nargs=5, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    given = arguments()
    if given.receive:
        return receive(*given.receive)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [it for it in ("vsftpd", "curl", "openssl") if not shutil.which(it)]
    if missing or os.geteuid() != 0:
        sys.exit(f"needs root, as vsftpd does, and {', '.join(missing) or 'nothing else'}")
    with contextlib.ExitStack() as undo:
        place = pathlib.Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="ftp-beside-", dir="/dev/shm")))
        place.chmod(0o755)
        run = Run(given, place)
        run.links(undo)
        weigh_by_niceness(undo)
        root = place / "root"
        # vsftpd refuses to serve a folder to anybody who may write into it; into one below they may.
        (root / "in").mkdir(parents=True)
        (root / "in").chmod(0o777)
        with open(root / "data", "wb") as data:
            for _ in range(given.size_mib):
                data.write(os.urandom(MIB))
        cert = place / "cert.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=bench", "-keyout", cert, "-out", place / "c"],
                       check=True, capture_output=True)
        cert.write_text(cert.read_text() + (place / "c").read_text())
        servers = {}
        tls = VSFTPD_TLS.format(cert=cert)
        # By TLS vsftpd passes each record from one process to another, unless it serves anonymous users alone.
        for name, make in [("vsftpd", lambda name: make_vsftpd(run, name)),
                           ("vsftpd tls", lambda name: make_vsftpd(run, name, tls)),
                           ("vsftpd tls one", lambda name: make_vsftpd(run, name, tls + "one_process_model=YES\n")),
                           ("crc64", lambda name: make_ours(run, name, "crc64")), ("blake3", lambda name: make_ours(run, name, "blake3"))]:
            servers[name] = make(name)
            undo.callback(servers[name].end)
            servers[name].wait_for(run)
        chosen = [it for it in cases(run, servers) if it[0].startswith(given.only)]
        said = {"versions": versions(run), "nice": given.nice, "mib": given.size_mib, "where": "veth" if given.veth else "loopback", "cpus": given.cpus or "as the scheduler likes",
                "commands": {case: " ".join(command(its[0])) for case, command, its in chosen}}
        print(json.dumps(said, indent=1))
        table = summary(run, play(run, chosen))
        show(table)
        out = pathlib.Path(given.out)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({**said, "results": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
