#!/usr/bin/env python3
"""Side by side: longhaul and its peers, in one run, on one machine, between two hosts made on the spot.

For:      the speed promises of SPECIFICATION.md. Rounds alternate over all contestants, so that drift of
          the machine hits each alike; a ratio inside one run counts, an absolute figure does not.
In, out:  the contestants that are installed -> target/bench/<name>.json and one self-contained <name>.html.
Invariants: every figure stands beside its exact command, its version and what that contestant does NOT do;
          every destination file is compared with its source once per contestant; what other processes of the
          machine burnt meanwhile is recorded with each run.
Absent on purpose: third-party modules, downloads, any change of the host outside its own namespaces.
"""

import argparse
import dataclasses
import datetime
import filecmp
import html
import json
import os
import re
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
GB = 1e9
SIDES = ("a", "b")
ADDR = {"a": "10.99.7.1", "b": "10.99.7.2"}  # where hosts are made, what the binary says of them
SSH_PORT, RSYNC_PORT, HTTP_PORT, HTTPS_PORT, FTP_PORT, XRD_PORT, GRID_PORT, RAW_PORT, IPERF_PORT, LH_PORT = (
    2222, 8730, 8080, 8443, 2121, 1094, 2811, 9000, 5201, 7440)


class Unable(Exception):
    """A contestant that cannot run here; the text is the reason shown in the table."""


# --- two hosts ---------------------------------------------------------------------------------


class Hosts:
    """The two hosts that `longhaul lab hosts` makes, which end with it; loopback otherwise."""

    def __init__(self):
        self.maker, self.kind, self.groups = None, "loopback", {}

    def up(self, binary):
        if os.geteuid() == 0 and shutil.which("nsenter"):
            try:
                self.maker = subprocess.Popen([binary, "lab", "hosts"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                              stderr=subprocess.DEVNULL, text=True, start_new_session=True)
                words = dict(word.split("=") for word in self.maker.stdout.readline().split())
                if not words:
                    raise Unable(f"{binary} lab hosts made none")
                self.ids = {side: int(words["HOLDER_" + side.upper()]) for side in SIDES}
                ADDR.update({side: words["ADDR_" + side.upper()] for side in SIDES})
                self.kind = "two network namespaces joined by veth"
                for side in SIDES:
                    self.control = self._unpaced(side)
                    # Names of the two hosts and a /run of their own, seen only inside: nothing stays behind on this machine.
                    must(self.wrap(side, ["sh", "-c", "mkdir /run/sshd && echo '127.0.0.1 localhost' > /run/hosts && "
                                          f"echo '{ADDR[side]} {socket.gethostname()}' >> /run/hosts && echo '{ADDR['a']} a' >> /run/hosts && echo '{ADDR['b']} b' >> /run/hosts && mount --bind /run/hosts /etc/hosts"]))
            except (subprocess.CalledProcessError, Unable) as why:
                self.down()
                self.maker, self.kind = None, "loopback"
                print(f"no namespaces ({why}): both ends share loopback", file=sys.stderr)
        if self.kind == "loopback":
            ADDR["a"] = ADDR["b"] = "127.0.0.1"
        self._meters()
        return self

    def _unpaced(self, side):
        """Where the default is BBR, its pacing would cost every peer a factor of five on this path: CUBIC, or Reno where CUBIC is refused."""
        for name in ("cubic", "reno"):
            word = f"echo {name} > /proc/sys/net/ipv4/tcp_congestion_control"
            if subprocess.run(self.wrap(side, ["sh", "-c", word]), stdin=subprocess.DEVNULL, capture_output=True).returncode == 0:
                return name
        return "the system's default"

    def _meters(self):
        for root, usage in (("/sys/fs/cgroup/cpuacct", "cpuacct.usage"), ("/sys/fs/cgroup", "cpu.stat")):
            try:
                for side in SIDES:
                    group = f"{root}/longhaul-bench-{os.getpid()}-{side}"
                    os.mkdir(group)
                    self.groups[side] = group
                    open(f"{group}/{usage}").close()
                self.usage = usage
                return
            except OSError:
                for group in self.groups.values():
                    shutil.rmtree(group, ignore_errors=True)
                    try:
                        os.rmdir(group)
                    except OSError:
                        pass
                self.groups = {}

    def cpu(self, side):
        """CPU seconds burnt so far by everything started on this side."""
        if side in self.groups:
            text = open(f"{self.groups[side]}/{self.usage}").read()
            if self.usage == "cpu.stat":
                return int(re.search(r"usage_usec (\d+)", text).group(1)) / 1e6
            return int(text) / 1e9
        return float("nan")

    def wrap(self, side, argv, pin=None):
        out = []
        if side in self.groups:
            out += ["sh", "-c", f'echo $$ > {self.groups[side]}/cgroup.procs; exec "$@"', "sh"]
        if self.maker:
            out += ["nsenter", "-t", str(self.ids[side]), "-n", "-m", "--"]
        if pin is not None and shutil.which("taskset"):
            out += ["taskset", "-c", str(pin)]
        return out + [str(word) for word in argv]

    def start(self, side, argv, pin=None, **more):
        more.setdefault("stdin", subprocess.DEVNULL)
        more.setdefault("stdout", subprocess.DEVNULL)
        more.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen(self.wrap(side, argv, pin), start_new_session=True, **more)

    def listening(self, side, port, process, seconds=15):
        """Waits until somebody listens on the port of that side; reads the kernel's table, so nobody is disturbed."""
        want = f":{port:04X}"
        pid = self.ids[side] if self.maker else os.getpid()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for table in ("tcp", "tcp6"):
                try:
                    for line in open(f"/proc/{pid}/net/{table}").read().splitlines()[1:]:
                        word = line.split()
                        if word[1].endswith(want) and word[3] == "0A":
                            return
                except OSError:
                    pass
            if process.poll() not in (None, 0):
                raise Unable("server ended: " + tail(process))
            time.sleep(0.02)
        raise Unable(f"nobody listens on port {port}")

    def down(self):
        if self.maker:
            stop(self.maker)
        for group in self.groups.values():
            for _ in range(50):
                try:
                    os.rmdir(group)
                    break
                except OSError:
                    time.sleep(0.05)


def must(argv):
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def tail(process):
    try:
        text = process.stderr.read() if process.stderr else b""
    except ValueError:
        text = b""
    text = text.decode(errors="replace") if isinstance(text, bytes) else text
    return " / ".join(text.strip().splitlines()[-3:])[-300:] or f"status {process.returncode}"


def stop(process):
    """Ends one process group that this program itself started."""
    for sig in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sig)
        except ProcessLookupError:
            pass
        try:
            process.wait(3)
            break
        except subprocess.TimeoutExpired:
            continue
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()


# --- contestants -------------------------------------------------------------------------------


@dataclasses.dataclass
class Way:
    """One contestant of the copy race. `serve` and `client` are (side, argv); `{words}` are filled from the ground."""

    name: str
    needs: tuple
    client: tuple
    serve: tuple = None
    port: int = 0
    oneshot: bool = False  # the far side ends by itself, and only then the file is whole
    encrypts: bool = False
    lacks: str = ""  # what it does NOT do
    setup: object = None
    version: tuple = ()
    ours: bool = False
    flush: bool = False


def ssh_words(ground):
    return ["ssh", "-F", "/dev/null", "-p", SSH_PORT, "-i", ground.at("user_key"), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
            "-o", "UserKnownHostsFile=" + ground.at("known_hosts"), "-o", "LogLevel=ERROR"]


class Ground:
    """Source file, destination folder and the servers' files of one run; all below one temporary folder."""

    def __init__(self, place, folder, size):
        self.place, self.folder, self.size = place, folder, size
        os.chmod(folder, 0o755)
        self.src = os.path.join(folder, "src", "random.bin")
        self.dst_dir = os.path.join(folder, "dst")
        self.dst = os.path.join(self.dst_dir, "random.bin")
        self.etc = os.path.join(folder, "etc")
        for path in (os.path.dirname(self.src), self.dst_dir, self.etc):
            os.makedirs(path, exist_ok=True)
        os.chmod(self.dst_dir, 0o1777)

    def at(self, name):
        return os.path.join(self.etc, name)

    def write(self, name, text, mode=0o644):
        with open(self.at(name), "w") as f:
            f.write(text)
        os.chmod(self.at(name), mode)
        return self.at(name)

    def fill(self):
        with open(self.src, "wb") as out, open("/dev/urandom", "rb") as noise:
            left = self.size
            while left:
                piece = noise.read(min(left, 8 << 20))
                out.write(piece)
                left -= len(piece)
            out.flush()
            os.fsync(out.fileno())

    def clear(self):
        shutil.rmtree(self.dst_dir, ignore_errors=True)
        os.makedirs(self.dst_dir)
        os.chmod(self.dst_dir, 0o1777)

    def warm(self):
        """Takes as much memory as the copy will need and gives it back. In a virtual machine whose host takes free pages away, writing into
        them again costs up to 2 s/GB: whoever begins just after another's destination went is lucky. So all begin alike."""
        scratch = os.path.join(self.folder, "scratch")
        page = bytes(8 << 20)
        with open(scratch, "wb") as out:
            for _ in range(self.size // len(page) + 1):
                out.write(page)
        os.unlink(scratch)

    def check(self):
        """Is all of it there?"""
        if not os.path.exists(self.dst) or os.path.getsize(self.dst) != self.size:
            raise Unable("the destination is not as long as the source")

    def flush(self):
        with open(self.dst, "rb") as f:
            os.fsync(f.fileno())

    def same(self):
        return filecmp.cmp(self.src, self.dst, shallow=False)

    def figures(self, seconds, flushed, cpu):
        """What one copy that took so long came to; `cpu`: seconds of each side."""
        return {"seconds": seconds, "seconds_flushed": flushed, "gbps": self.size * 8 / seconds / 1e9, "gbps_flushed": self.size * 8 / flushed / 1e9,
                "cpu_a": cpu["a"], "cpu_b": cpu["b"], "cpu_s_per_gb": (cpu["a"] + cpu["b"]) / (self.size / GB)}

    def cold(self):
        """Drops the source from the page cache; without root only this file, by advice."""
        os.sync()
        with open(self.src, "rb") as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def key_setup(g):
    if os.path.exists(g.at("user_key")):
        return
    if os.geteuid() != 0:
        raise Unable("sshd of our own needs root here")
    for name in ("host_key", "user_key"):
        must(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", g.at(name)])
    shutil.copy(g.at("user_key.pub"), g.at("authorized"))
    host = open(g.at("host_key.pub")).read().split()
    g.write("known_hosts", "".join(f"[{a}]:{SSH_PORT} {host[0]} {host[1]}\n" for a in sorted(set(ADDR.values()))))
    sub = next((p for p in ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server")
                if os.path.exists(p)), "internal-sftp")
    g.write("sshd_config", f"""Port {SSH_PORT}
HostKey {g.at("host_key")}
AuthorizedKeysFile {g.at("authorized")}
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
Subsystem sftp {sub}
MaxStartups 1000
""")
    if not os.path.isdir("/run/sshd") and ADDR["a"] == ADDR["b"]:
        raise Unable("no /run/sshd, and no host of our own to make it in")


def rsyncd_setup(g):
    g.write("rsyncd.conf", f"use chroot = no\nmax verbosity = 0\nuid = {os.geteuid()}\ngid = {os.getegid()}\n[m]\npath = {g.dst_dir}\nread only = no\n")


def nginx_setup(g):
    cert = g.at("web.crt")
    if not os.path.exists(cert):
        must(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=bench",
              "-addext", f"subjectAltName=IP:{ADDR['a']}", "-days", "2", "-keyout", g.at("web.key"), "-out", cert])
    os.makedirs(g.at("nginx"), exist_ok=True)
    temp = "".join(f"{kind}_temp_path {g.at('nginx')}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    g.write("nginx.conf", f"""{'user root;' if os.geteuid() == 0 else ''}
daemon off; worker_processes 1; pid {g.at("nginx")}/pid; error_log stderr;
events {{ worker_connections 64; }}
http {{ access_log off; sendfile on; sendfile_max_chunk 1m; tcp_nopush on; {temp}
 server {{ listen {ADDR['a']}:{HTTP_PORT}; root {os.path.dirname(g.src)}; }}
 server {{ listen {ADDR['a']}:{HTTPS_PORT} ssl; ssl_certificate {cert}; ssl_certificate_key {g.at("web.key")};
  ssl_protocols TLSv1.2; ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256; ssl_buffer_size 16k; root {os.path.dirname(g.src)}; }} }}
""")


def ftp_setup(g):
    if os.geteuid() != 0:
        raise Unable("vsftpd needs root")
    os.makedirs(g.at("empty"), exist_ok=True)
    os.chmod(os.path.dirname(g.src), 0o755)
    os.chmod(g.src, 0o644)
    g.write("vsftpd.conf", f"""listen=YES
listen_port={FTP_PORT}
anonymous_enable=YES
no_anon_password=YES
local_enable=NO
anon_root={os.path.dirname(g.src)}
secure_chroot_dir={g.at("empty")}
seccomp_sandbox=NO
background=NO
use_sendfile=YES
xferlog_enable=NO
""")


def xrd_setup(g):
    if os.geteuid() != 0:
        raise Unable("xrootd here wants root, to drop to its own user")
    must(["chmod", "a+rx", g.folder])
    for name in ("admin", "run"):
        os.makedirs(g.at(name), exist_ok=True)
        os.chmod(g.at(name), 0o1777)
    g.write("xrd.cfg", f"all.export {g.folder}\nall.adminpath {g.at('admin')}\nall.pidpath {g.at('run')}\nxrd.port {XRD_PORT}\nxrd.allow host *\n")


def grid_setup(g):
    if os.geteuid() != 0:
        raise Unable("the anonymous GridFTP server here is started by root")


def lh_setup(g):
    for side in SIDES:
        os.makedirs(g.at("home-" + side), exist_ok=True)


def nc_end():
    """The two netcats spell "end when the input ends" differently."""
    text = subprocess.run(["nc", "-h"], stdin=subprocess.DEVNULL, capture_output=True, text=True) if shutil.which("nc") else None
    return "--send-only" if text and "ncat" in (text.stdout + text.stderr).lower() else "-N"


def contestants(lh):
    ssh_serve = ("b", ["/usr/sbin/sshd", "-D", "-e", "-f", "{etc}/sshd_config"])
    ssh_version = ("ssh", "-V")
    gcm = ["-c", "aes128-gcm@openssh.com"]
    lh_serve = ("b", [lh, "serve", "--root", "{dst_dir}", "--listen", f"{{b}}:{LH_PORT}", "--ticket"])
    nginx = ("a", ["nginx", "-c", "{etc}/nginx.conf"])
    rclone = ["--config", "/dev/null", "--ignore-checksum", "--retries", "1", "-q"]
    ways = [
        Way("longhaul (default)", (lh,), ("a", [lh, "cp", "--json", "{flushed}", "{src}", "{lh_url}random.bin"]), lh_serve, LH_PORT,
            encrypts=True, setup=lh_setup, version=(lh, "--version"), ours=True, flush=True),
        Way("longhaul (sealed, crc64)", (lh,), ("a", [lh, "cp", "--json", "--digest", "crc64", "{flushed}", "{src}", "{lh_url}random.bin"]),
            lh_serve, LH_PORT, encrypts=True, setup=lh_setup, version=(lh, "--version"), ours=True, flush=True),
        Way("longhaul (in clear, crc64)", (lh,), ("a", [lh, "cp", "--json", "--integrity-only", "--digest", "crc64", "{flushed}", "{src}",
            "{lh_url}random.bin"]), ("b", lh_serve[1] + ["--integrity-only"]), LH_PORT, setup=lh_setup, version=(lh, "--version"), ours=True, flush=True),
        Way("scp", ("scp", "/usr/sbin/sshd"), ("a", ["scp", "-q"] + ["{ssh_opts}"] + ["{src}", "root@{b}:{dst}"]), ssh_serve, SSH_PORT,
            encrypts=True, setup=key_setup, version=ssh_version, lacks="no fsync, no digest of the file, no resume, name visible while partial"),
        Way("scp aes128-gcm", ("scp", "/usr/sbin/sshd"), ("a", ["scp", "-q"] + gcm + ["{ssh_opts}"] + ["{src}", "root@{b}:{dst}"]), ssh_serve, SSH_PORT,
            encrypts=True, setup=key_setup, version=ssh_version, lacks="no fsync, no digest of the file, no resume, name visible while partial"),
        Way("cat | ssh cat", ("ssh", "/usr/sbin/sshd"), ("a", ["sh", "-c", "{ssh} -c aes128-gcm@openssh.com root@{b} 'cat > {dst}' < {src}"]), ssh_serve,
            SSH_PORT, encrypts=True, setup=key_setup, version=ssh_version, lacks="a pipe: no fsync, no digest, no resume, no metadata"),
        Way("rsync over ssh", ("rsync", "/usr/sbin/sshd"), ("a", ["rsync", "-W", "--inplace", "-e", "{ssh} -c aes128-gcm@openssh.com", "{src}", "root@{b}:{dst}"]),
            ssh_serve, SSH_PORT, encrypts=True, setup=key_setup, version=("rsync", "--version"), lacks="no fsync; digest of the stream only"),
        Way("rclone sftp push", ("rclone", "/usr/sbin/sshd"), ("a", ["rclone", "copyto"] + rclone + ["--sftp-host", "{b}", "--sftp-port", SSH_PORT,
            "--sftp-user", "root", "--sftp-key-file", "{etc}/user_key", "--sftp-known-hosts-file", "{etc}/known_hosts", "--sftp-chunk-size", "255k",
            "--sftp-concurrency", "64", "--sftp-disable-hashcheck", "{src}", ":sftp:{dst}"]), ssh_serve, SSH_PORT, encrypts=True, setup=key_setup,
            version=("rclone", "version"), lacks="no fsync, no digest (hash check off), no resume inside a file"),
        Way("rclone sftp pull, 4 streams", ("rclone", "/usr/sbin/sshd"), ("b", ["rclone", "copyto"] + rclone + ["--multi-thread-streams", "4",
            "--sftp-host", "{a}", "--sftp-port", SSH_PORT, "--sftp-user", "root", "--sftp-key-file", "{etc}/user_key", "--sftp-known-hosts-file",
            "{etc}/known_hosts", "--sftp-chunk-size", "255k", "--sftp-disable-hashcheck", ":sftp:{src}", "{dst}"]), ("a", ssh_serve[1]), SSH_PORT,
            encrypts=True, setup=key_setup, version=("rclone", "version"), lacks="no fsync, no digest (hash check off), no resume inside a file"),
        Way("curl from nginx, https", ("nginx", "curl"), ("b", ["curl", "-sf", "--cacert", "{etc}/web.crt", "-o", "{dst}",
            f"https://{{a}}:{HTTPS_PORT}/random.bin"]), nginx, HTTPS_PORT, encrypts=True, setup=nginx_setup, version=("curl", "--version"),
            lacks="one file by hand: no fsync, no digest, no metadata, no restart by itself"),
        Way("socat, TLS", ("socat", "openssl"), ("a", ["socat", "-u", "-b", "1048576", "FILE:{src}",
            f"OPENSSL:{{b}}:{RAW_PORT},cafile={{etc}}/web.crt,verify=0"]), ("b", ["socat", "-u", "-b", "1048576",
            f"OPENSSL-LISTEN:{RAW_PORT},reuseaddr,cert={{etc}}/web.crt,key={{etc}}/web.key,verify=0", "CREATE:{dst}"]), RAW_PORT, oneshot=True,
            encrypts=True, setup=nginx_setup, version=("socat", "-V"), lacks="a pipe: no identity here, no fsync, no digest, no resume, no metadata"),
        Way("xrdcp push", ("xrootd", "xrdcp"), ("a", ["env", "XRD_CPUSEPGWRTRD=0", "xrdcp", "-f", "-N", "-s", "{src}", f"root://{{b}}:{XRD_PORT}/{{dst}}"]),
            ("b", ["xrootd", "-R", "daemon", "-c", "{etc}/xrd.cfg",]), XRD_PORT, setup=xrd_setup, version=("xrdcp", "--version"),
            lacks="no encryption, no fsync, no digest (page checksums off: its fastest way)"),
        Way("xrdcp pull", ("xrootd", "xrdcp"), ("b", ["env", "XRD_CPUSEPGWRTRD=0", "xrdcp", "-f", "-N", "-s", f"root://{{a}}:{XRD_PORT}/{{src}}", "{dst}"]),
            ("a", ["xrootd", "-R", "daemon", "-c", "{etc}/xrd.cfg"]), XRD_PORT, setup=xrd_setup, version=("xrdcp", "--version"),
            lacks="no encryption, no fsync, no digest (page checksums off: its fastest way)"),
        Way("xrdcp pull, page checksums", ("xrootd", "xrdcp"), ("b", ["xrdcp", "-f", "-N", "-s", f"root://{{a}}:{XRD_PORT}/{{src}}", "{dst}"]),
            ("a", ["xrootd", "-R", "daemon", "-c", "{etc}/xrd.cfg"]), XRD_PORT, setup=xrd_setup, version=("xrdcp", "--version"),
            lacks="no encryption, no fsync; CRC-32C per page on the wire (its default)"),
        Way("socat", ("socat",), ("a", ["socat", "-u", "-b", "1048576", "FILE:{src}", f"TCP:{{b}}:{RAW_PORT}"]),
            ("b", ["socat", "-u", "-b", "1048576", f"TCP-LISTEN:{RAW_PORT},reuseaddr", "CREATE:{dst}"]), RAW_PORT, oneshot=True, version=("socat", "-V"),
            lacks="a pipe: no encryption, no fsync, no digest, no resume, no metadata"),
        Way("nc", ("nc",), ("a", ["sh", "-c", f"nc {nc_end()} {{b}} {RAW_PORT} < {{src}}"]), ("b", ["sh", "-c", f"nc -l {RAW_PORT} > {{dst}}"]), RAW_PORT, oneshot=True,
            lacks="a pipe: no encryption, no fsync, no digest, no resume, no metadata"),
        Way("rsync daemon", ("rsync",), ("a", ["rsync", "-W", "--inplace", "{src}", f"rsync://{{b}}:{RSYNC_PORT}/m/random.bin"]),
            ("b", ["rsync", "--daemon", "--no-detach", "--config", "{etc}/rsyncd.conf", "--port", RSYNC_PORT]), RSYNC_PORT, setup=rsyncd_setup,
            version=("rsync", "--version"), lacks="no encryption, no fsync; digest of the stream only"),
        Way("rclone http, 4 streams", ("rclone",), ("b", ["rclone", "copyto"] + rclone + ["--multi-thread-streams", "4", "--http-url",
            f"http://{{a}}:{HTTP_PORT}", ":http:random.bin", "{dst}"]), ("a", ["rclone", "serve", "http", "--config", "/dev/null", "-q", "--addr",
            f"{{a}}:{HTTP_PORT}", "{src_dir}"]), HTTP_PORT, version=("rclone", "version"), lacks="no encryption, no fsync, no digest"),
        Way("curl from nginx, http", ("nginx", "curl"), ("b", ["curl", "-sf", "-o", "{dst}", f"http://{{a}}:{HTTP_PORT}/random.bin"]), nginx, HTTP_PORT,
            setup=nginx_setup, version=("curl", "--version"), lacks="one file by hand: no encryption, no fsync, no digest, no metadata"),
        Way("rclone from nginx, 4 streams", ("nginx", "rclone"), ("b", ["rclone", "copyto"] + rclone + ["--multi-thread-streams", "4", "--http-url",
            f"http://{{a}}:{HTTP_PORT}", ":http:random.bin", "{dst}"]), nginx, HTTP_PORT, setup=nginx_setup, version=("rclone", "version"),
            lacks="no encryption, no fsync, no digest"),
        Way("curl from vsftpd", ("vsftpd", "curl"), ("b", ["curl", "-sf", "-o", "{dst}", f"ftp://{{a}}:{FTP_PORT}/random.bin"]),
            ("a", ["vsftpd", "{etc}/vsftpd.conf"]), FTP_PORT, setup=ftp_setup, version=("curl", "--version"), lacks="no encryption, no fsync, no digest, no metadata"),
        Way("wget from vsftpd", ("vsftpd", "wget"), ("b", ["wget", "-q", "-O", "{dst}", f"ftp://{{a}}:{FTP_PORT}/random.bin"]),
            ("a", ["vsftpd", "{etc}/vsftpd.conf"]), FTP_PORT, setup=ftp_setup, version=("wget", "--version"), lacks="no encryption, no fsync, no digest, no metadata"),
        Way("GridFTP", ("globus-gridftp-server", "globus-url-copy"), ("a", ["env", "GLOBUS_HOSTNAME={a}", "globus-url-copy", "-bs", "4M", "file://{src}", f"ftp://{{b}}:{GRID_PORT}{{dst}}"]),
            ("b", ["env", "GLOBUS_HOSTNAME={b}", "globus-gridftp-server", "-control-interface", "{b}", "-data-interface", "{b}", "-aa", "-anonymous-user", "nobody", "-p", GRID_PORT, "-no-detach"]), GRID_PORT, setup=grid_setup,
            version=("globus-url-copy", "-version"), lacks="no encryption, no fsync, no digest"),
        Way("GridFTP, 4 streams", ("globus-gridftp-server", "globus-url-copy"), ("a", ["env", "GLOBUS_HOSTNAME={a}", "globus-url-copy", "-bs", "4M", "-p", "4", "file://{src}", f"ftp://{{b}}:{GRID_PORT}{{dst}}"]),
            ("b", ["env", "GLOBUS_HOSTNAME={b}", "globus-gridftp-server", "-control-interface", "{b}", "-data-interface", "{b}", "-aa", "-anonymous-user", "nobody", "-p", GRID_PORT, "-no-detach"]), GRID_PORT, setup=grid_setup,
            version=("globus-url-copy", "-version"), lacks="no encryption, no fsync, no digest"),
    ]
    return ways


def fill(ground, argv, flushed, lh_url=""):
    words = {"src": ground.src, "dst": ground.dst, "etc": ground.etc, "dst_dir": ground.dst_dir, "src_dir": os.path.dirname(ground.src),
             "a": ADDR["a"], "b": ADDR["b"], "lh_url": lh_url}
    words["ssh"] = shlex.join(str(w) for w in ssh_words(ground))
    out = []
    for word in argv:
        if word == "{ssh_opts}":  # scp spells the port differently
            out += [str(w) if w != "-p" else "-P" for w in ssh_words(ground)[1:]]
        elif word == "{flushed}":
            out += ["--durability", "flushed"] if flushed else []
        else:
            out.append(str(word).format(**words))
    return out


def busy():
    """CPU seconds the whole machine has burnt (user, nice, system, irq, softirq)."""
    word = [int(w) for w in open("/proc/stat").readline().split()[1:]]
    return (word[0] + word[1] + word[2] + word[5] + word[6]) / os.sysconf("SC_CLK_TCK")


def run_copy(hosts, way, ground, cold, timeout):
    """One timed copy; returns the figures of this round."""
    if way.setup:
        way.setup(ground)
    ground.clear()
    server, lh_url, env = None, "", dict(os.environ)
    try:
        if way.serve:
            side, argv = way.serve
            if way.ours:
                env["LONGHAUL_HOME"] = ground.at("home-" + side)
            server = hosts.start(side, fill(ground, argv, False), env=env, stdout=subprocess.PIPE if way.ours else subprocess.DEVNULL)
            if way.ours:
                lh_url = server.stdout.readline().decode().strip()
                if not lh_url:
                    raise Unable("longhaul serve: " + tail(server))
            else:
                hosts.listening(side, way.port, server)
        if cold:
            ground.cold()
        else:
            ground.warm()
        side, argv = way.client
        argv = fill(ground, argv, cold, lh_url)
        if way.ours:
            env["LONGHAUL_HOME"] = ground.at("home-" + side)
        cpu = {s: hosts.cpu(s) for s in SIDES}
        all_cpu, start = busy(), time.monotonic()
        client = hosts.start(side, argv, env=env, stdout=subprocess.PIPE if way.ours else subprocess.DEVNULL)
        try:
            out, err = client.communicate(timeout=timeout)
            if way.oneshot and client.returncode == 0:
                server.wait(timeout)
        except subprocess.TimeoutExpired:
            stop(client)
            raise Unable(f"not done after {timeout} s")
        seconds = time.monotonic() - start
        cpu = {s: hosts.cpu(s) - cpu[s] for s in SIDES}
        all_cpu = busy() - all_cpu
        if client.returncode != 0:
            words = (err or b"").decode(errors="replace").strip().splitlines()
            raise Unable(f"status {client.returncode}: " + (" / ".join(words[-3:])[-300:] or "no word"))
        ground.check()
        ground.flush()
        found = ground.figures(seconds, time.monotonic() - start, cpu)
        found["others_cpu_share"] = max(0.0, (all_cpu - cpu["a"] - cpu["b"]) / seconds / os.cpu_count())
        if way.ours:
            lines = [l for l in out.decode(errors="replace").splitlines() if l.startswith("{")]
            found["report"] = json.loads(lines[-1]) if lines else {}
        return found, argv
    finally:
        if server:
            stop(server)


# --- memory to memory --------------------------------------------------------------------------


def net_ways(lh):
    """(name, needs, far side, near side, what it is). Each pair is pinned: near side core 0, far side core 1."""
    ways = []
    for block in ("128K", "1M"):
        ways.append((f"iperf3 -l {block}", ("iperf3",), ["iperf3", "-s", "-1", "-p", str(IPERF_PORT)],
                     ["iperf3", "-c", "{b}", "-p", str(IPERF_PORT), "-t", "{t}", "-l", block, "-C", "cubic", "-J"], "one stream, CUBIC"))
    ways.append(("nuttcp -l 1M", ("nuttcp",), ["nuttcp", "-1", "--nofork", "-P", str(IPERF_PORT)],
                 ["nuttcp", "-P", str(IPERF_PORT), "-p", str(IPERF_PORT + 1), "-l1m", "-T", "{t}", "-fparse", "{b}"], "one stream"))
    # One line each, and all of its time in one piece, as the others have theirs: in fifths, each begins with cold memory.
    for name, more in (("longhaul bare loop (the ceiling)", ["--only", "bare", "--block", "1MiB"]),
                       ("longhaul ring (bytes unlooked at, as the peers do)", ["--clear", "--only", "ring"]),
                       ("longhaul rail, in clear", ["--clear", "--only", "clear, CRC-64"]),
                       ("longhaul rail, sealed", ["--sealed", "--only", "sealed, CRC-64"])):
        ways.append((name, (lh,), [lh, "bench", "net", "--listen", f"{{b}}:{LH_PORT}", "--once"],
                     [lh, "bench", "net", "--json", "--seconds", "{t}", "--rounds", "1", "--tcp", "--server", f"{{b}}:{LH_PORT}"] + more, "one rail; CPU of the threads that move the bytes"))
    return ways


def run_net(hosts, way, seconds):
    name, _, far, near, _ = way
    far = [w.format(b=ADDR["b"], t=seconds) for w in far]
    near = [w.format(b=ADDR["b"], t=seconds) for w in near]
    cores = os.cpu_count() or 1
    server = hosts.start("b", far, pin=1 % cores)
    try:
        hosts.listening("b", LH_PORT if "longhaul" in name else IPERF_PORT, server)
        cpu = {s: hosts.cpu(s) for s in SIDES}
        all_cpu, start = busy(), time.monotonic()
        client = hosts.start("a", near, pin=0, stdout=subprocess.PIPE)
        out, err = client.communicate(timeout=seconds + 30)
        wall = time.monotonic() - start
        cpu = {s: hosts.cpu(s) - cpu[s] for s in SIDES}
        all_cpu = busy() - all_cpu
        text = out.decode(errors="replace")
        if client.returncode != 0:
            raise Unable((err.decode(errors="replace") or text).strip()[-300:])
        report = {}
        if name.startswith("iperf3"):
            done = json.loads(text)["end"]["sum_received"]
            size, took = done["bytes"], done["seconds"]
        elif name.startswith("nuttcp"):
            size = float(re.search(r"megabytes=([\d.]+)", text).group(1)) * (1 << 20)
            took = float(re.search(r"real_seconds=([\d.]+)", text).group(1))
        else:
            report = json.loads(text)
            # `--sealed` prints the clear line beside the sealed ones: each entry takes its own.
            key = "bare" if "bare" in name else "ring" if " ring " in name else "sealed, CRC-64" if "sealed" in name else "clear, CRC-64"
            line = max((l for l in report["lines"] if key in l["what"]), key=lambda l: l["gbps"])
            return {"gbps": line["gbps"], "cpu_a": line["send_cpu_s_per_gb"], "cpu_b": line["recv_cpu_s_per_gb"],
                    "cpu_s_per_gb": line["send_cpu_s_per_gb"] + line["recv_cpu_s_per_gb"], "seconds": wall,
                    "others_cpu_share": max(0.0, (all_cpu - cpu["a"] - cpu["b"]) / wall / cores), "report": report}, near
        return {"gbps": size * 8 / took / 1e9, "cpu_a": cpu["a"], "cpu_b": cpu["b"], "cpu_s_per_gb": (cpu["a"] + cpu["b"]) / (size / GB),
                "seconds": wall, "others_cpu_share": max(0.0, (all_cpu - cpu["a"] - cpu["b"]) / wall / cores), "report": report}, near
    finally:
        stop(server)


# --- results -----------------------------------------------------------------------------------


def missing(needs):
    return [n for n in needs if not (shutil.which(n) or os.access(n, os.X_OK) and os.path.isfile(n))]


def version_of(argv):
    if not argv:
        return ""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10)
        lines = [l for l in (done.stdout + done.stderr).splitlines() if re.search(r"\d\.\d", l)]
        return lines[0].strip()[:80] if lines else ""
    except (OSError, subprocess.TimeoutExpired):
        return ""


def middle(rounds, key):
    values = sorted(r[key] for r in rounds if key in r)
    if not values:
        return None
    return {"median": statistics.median(values), "min": values[0], "max": values[-1]}


# What a figure counts, as tables and plots say it.
SAID = {"gbps": "Gbit/s", "gbps_flushed": "Gbit/s", "files_per_s": "files/s", "cpu_s_per_gb": "CPU s/GB", "cpu_s_per_million": "CPU s/10^6"}


def race(title, unit_key, entries, rounds, run, cost_key="cpu_s_per_gb"):
    """Alternates over the entries; one that fails is out, with its reason."""
    rows = [{"name": e["name"], "rounds": [], "why_not": e.get("why_not", ""), **{k: e[k] for k in ("lacks", "encrypts", "version", "ours") if k in e}}
            for e in entries]
    for number in range(rounds):
        for entry, row in zip(entries, rows):
            if row["why_not"]:
                continue
            try:
                found, argv = run(entry, number)
                row["rounds"].append(found)
                row["command"] = shlex.join(argv)
                print(f"  {title} {number + 1}/{rounds} {entry['name']:<32} {found[unit_key]:9.2f} {SAID[unit_key]} {found[cost_key]:6.2f} {SAID[cost_key]}"
                      f"  (others {found['others_cpu_share']:4.0%})", flush=True)
            except (Unable, subprocess.CalledProcessError, OSError, ValueError, KeyError, AttributeError, subprocess.TimeoutExpired) as why:
                if isinstance(why, subprocess.CalledProcessError):
                    why = f"{why} {why.stderr}"
                row["why_not"] = f"{type(why).__name__}: {why}" if not isinstance(why, (Unable, str)) else str(why)
                print(f"  {title} {number + 1}/{rounds} {entry['name']:<32} out: {row['why_not']}", flush=True)
    for row in rows:
        for key in {unit_key, cost_key, "gbps", "gbps_flushed", "seconds", "others_cpu_share", "memory_a", "memory_b"}:
            row[key] = middle(row["rounds"], key)
    rows.sort(key=lambda r: -(r[unit_key]["median"] if r[unit_key] else -1))
    return {"title": title, "unit": unit_key, "cost": cost_key, "rows": rows}


def table(part):
    key, cost = part["unit"], part["cost"]
    out = [f"\n{part['title']}", f"  {'':<34}{SAID[key]:>10} {'min':>10} {'max':>10} {SAID[cost]:>10}  does not"]
    for row in part["rows"]:
        if row[key]:
            g, c = row[key], row[cost]
            note = row.get("lacks", "")
            out.append(f"  {row['name']:<34}{g['median']:10.2f} {g['min']:10.2f} {g['max']:10.2f} {c['median']:10.2f}  {note}")
        else:
            out.append(f"  {row['name']:<34}{'-':>10}  {row['why_not'][:110]}")
    return "\n".join(out)


def verdicts(part):
    """The ratios of the promises: ours against the best peer of the same kind in this run."""
    key, cost, out = part["unit"], part["cost"], []
    peers = [r for r in part["rows"] if r[key] and not r.get("ours")]
    for row in part["rows"]:
        if not row.get("ours") or not row[key]:
            continue
        like = [p for p in peers if bool(p.get("encrypts")) == bool(row.get("encrypts")) or part["title"].startswith("net")]
        if not like:
            continue
        best = max(like, key=lambda p: p[key]["median"])
        cheap = min(like, key=lambda p: p[cost]["median"])
        out.append({"part": part["title"], "ours": row["name"], "peer": best["name"], "speed_ratio": row[key]["median"] / best[key]["median"],
                    "cheapest_peer": cheap["name"], "cpu_ratio": row[cost]["median"] / cheap[cost]["median"]})
    return out


def asked(verdict):
    """What was asked, where something was."""
    return f" (asked: {verdict['asked_ratio']:.1f} x in speed)" if verdict.get("asked_ratio") else ""


def svg(part):
    """Horizontal bars with the spread of the rounds as a line over each; no script, no outside file."""
    key, cost = part["unit"], part["cost"]
    rows = [r for r in part["rows"] if r[key]]
    if not rows:
        return ""
    width, left, step = 980, 250, 26
    plots = []
    for what, name, color in ((key, f"{SAID[key]}, median and spread of the rounds (longer is better)", "#2a6f97"),
                              (cost, f"{SAID[cost]}, both ends together (shorter is better)", "#b56576")):
        top = max(r[what]["max"] for r in rows) or 1
        scale = (width - left - 90) / top
        bars = [f'<text x="0" y="14" class="h">{html.escape(name)}</text>']
        for i, r in enumerate(rows):
            y, v = 26 + i * step, r[what]
            fill_color = "#e09f3e" if r.get("ours") else color
            bars.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{html.escape(r["name"])}</text>'
                        f'<rect x="{left}" y="{y}" width="{v["median"] * scale:.1f}" height="18" fill="{fill_color}"/>'
                        f'<line x1="{left + v["min"] * scale:.1f}" x2="{left + v["max"] * scale:.1f}" y1="{y + 9}" y2="{y + 9}" stroke="#111" stroke-width="2"/>'
                        f'<text x="{left + v["max"] * scale + 6:.1f}" y="{y + 14}">{v["median"]:.2f}</text>')
        plots.append(f'<svg viewBox="0 0 {width} {34 + len(rows) * step}" role="img">{"".join(bars)}</svg>')
    return "".join(plots)


def page(result):
    parts = []
    for part in result["parts"]:
        lines = []
        for r in part["rows"]:
            g, c = r[part["unit"]], r[part["cost"]]
            cells = [f"{g['median']:.2f}", f"{g['min']:.2f}–{g['max']:.2f}", f"{c['median']:.2f}", f"{r['others_cpu_share']['median']:.0%}"] if g else ["–"] * 4
            lines.append("<tr>" + "".join(f"<td>{html.escape(x)}</td>" for x in [r["name"]] + cells + [r["why_not"] or r.get("lacks", ""),
                         r.get("version", ""), r.get("command", "")]) + "</tr>")
        parts.append(f"<h2>{html.escape(part['title'])}</h2>{svg(part)}<table><tr><th>contestant<th>{SAID[part['unit']]}<th>spread<th>{SAID[part['cost']]}"
                     f"<th>others' share of the CPU<th>does not<th>version<th>command</tr>{''.join(lines)}</table>")
    ratios = "".join(f"<li>{html.escape(v['part'])}: {html.escape(v['ours'])} = <b>{v['speed_ratio']:.2f} ×</b> {html.escape(v['peer'])}, "
                     f"CPU {v['cpu_ratio']:.2f} × {html.escape(v['cheapest_peer'])}{asked(v)}</li>" for v in result["verdicts"])
    facts = html.escape("; ".join(f"{k}: {v}" for k, v in result["machine"].items()))
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>longhaul and its peers</title>
<style>body{{font:14px/1.45 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}}svg{{width:100%;margin:.8em 0}}
svg text{{font:12px system-ui,sans-serif}}svg .h{{font-weight:600}}table{{border-collapse:collapse;font-size:12px}}td,th{{border:1px solid #ccc;padding:.25em .5em;
text-align:left;vertical-align:top}}td:last-child{{font-family:monospace;font-size:10px;word-break:break-all}}</style>
<h1>longhaul and its peers</h1><p>{facts}</p><p>Rounds alternate over all contestants. A ratio inside this page counts; an absolute figure belongs to this machine and hour.</p>
<ul>{ratios}</ul>{''.join(parts)}</html>
"""


def machine(hosts):
    def read(path):
        try:
            return open(path).read().strip()
        except OSError:
            return "?"
    model = re.search(r"model name\s*: (.*)", read("/proc/cpuinfo"))
    return {"cpu": f"{os.cpu_count()} × {model.group(1) if model else '?'}", "kernel": os.uname().release, "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "hosts": hosts.kind, "congestion control": hosts.control + " in both namespaces" if hosts.maker else read("/proc/sys/net/ipv4/tcp_congestion_control"),
            "cpu meter": hosts.usage if hosts.groups else "none (no cgroup can be made here)", "load before": read("/proc/loadavg"),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")}


def copy_part(hosts, args, place, folder_root):
    size = args.size
    need = size * 2 + (256 << 20)
    if shutil.disk_usage(folder_root).free < need:
        return {"title": f"cp, {place}", "unit": "gbps", "cost": "cpu_s_per_gb", "rows": []}
    folder = tempfile.mkdtemp(prefix="longhaul-bench-", dir=folder_root)
    ground = Ground(place, folder, size)
    try:
        ground.fill()
        cold = place == "disk"
        entries = []
        for way in contestants(args.longhaul):
            if args.only and not re.search(args.only, way.name):
                continue
            gone = missing(way.needs)
            entries.append({"name": way.name, "way": way, "lacks": way.lacks, "encrypts": way.encrypts, "ours": way.ours,
                            "version": version_of(way.version) if not gone else "", "why_not": f"not here: {', '.join(gone)}" if gone else ""})

        def run(entry, number):
            found, argv = run_copy(hosts, entry["way"], ground, cold, args.timeout)
            if number == 0 and not ground.same():
                raise Unable("the destination DIFFERS from the source")
            return found, argv

        gib = size / (1 << 30)
        kind = f"cp of one {gib:g} GiB file of random bytes, {place} to {place}" + (", cold source, until flushed to disk" if cold else "")
        return race(kind, "gbps_flushed" if cold else "gbps", entries, args.rounds, run)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def net_part(hosts, args):
    entries = []
    for way in net_ways(args.longhaul):
        if args.only and not re.search(args.only, way[0]):
            continue
        gone = missing(way[1])
        entries.append({"name": way[0], "way": way, "lacks": way[4], "encrypts": way[0].endswith("sealed"), "ours": way[0].startswith("longhaul rail"),
                        "version": version_of((way[1][0], "--version")) if not gone else "", "why_not": f"not here: {', '.join(gone)}" if gone else ""})
    return race("net: memory to memory, one stream, a core each", "gbps", entries, args.rounds, lambda e, n: run_net(hosts, e["way"], args.net_seconds))


def show_and_write(result, args):
    """Tables on the screen, `<name>.json` and `<name>.html` in the folder of results."""
    result["machine"]["load after"] = open("/proc/loadavg").read().strip()
    result["verdicts"] = [v for p in result["parts"] for v in p.get("verdicts") or verdicts(p)]
    for part in result["parts"]:
        print(table(part))
    for v in result["verdicts"]:
        print(f"{v['part']}: {v['ours']} = {v['speed_ratio']:.2f} x {v['peer']} in speed, {v['cpu_ratio']:.2f} x {v['cheapest_peer']} in CPU{asked(v)}")
    os.makedirs(args.out, exist_ok=True)
    # Results are kept with the code: where the tree stood on the machine that ran them is nobody's business.
    root = os.path.dirname(os.path.dirname(HERE)) + "/"
    with open(os.path.join(args.out, args.name + ".json"), "w") as f:
        f.write(json.dumps(result, indent=1).replace(root, ""))
    with open(os.path.join(args.out, args.name + ".html"), "w") as f:
        f.write(page(result).replace(root, ""))
    print(f"\nwritten: {args.out}/{args.name}.json and .html")


def main():
    bytes_of = lambda text: int(float(re.match(r"[\d.]+", text).group(0)) * {"": 1, "M": 1 << 20, "G": 1 << 30}[re.sub(r"[\d.]|iB|B", "", text)])
    ask = argparse.ArgumentParser(description="longhaul beside its peers, in one run")
    ask.add_argument("--longhaul", default=os.path.join(HERE, "..", "..", "target", "longhaul"), help="the binary under test")
    ask.add_argument("--rounds", type=int, default=5)
    ask.add_argument("--size", type=bytes_of, default=4 << 30, help="e.g. 512MiB, 4GiB")
    ask.add_argument("--net-seconds", type=int, default=5)
    ask.add_argument("--parts", default="net,tmpfs,disk")
    ask.add_argument("--only", help="regular expression over the contestants' names")
    ask.add_argument("--tmpfs", default="/dev/shm", help="a folder on tmpfs")
    ask.add_argument("--disk", default=os.environ.get("TMPDIR", "/var/tmp"), help="a folder on a disk")
    ask.add_argument("--timeout", type=int, default=180, help="seconds after which one copy is given up")
    ask.add_argument("--name", default="peers")
    ask.add_argument("--out", default=os.path.join(HERE, "..", "..", "target", "bench"))
    args = ask.parse_args()
    args.longhaul = os.path.abspath(args.longhaul)
    hosts = Hosts().up(args.longhaul)
    try:
        result = {"machine": machine(hosts), "arguments": {k: v for k, v in vars(args).items() if k != "longhaul"}, "parts": []}
        for part in args.parts.split(","):
            if part == "net":
                result["parts"].append(net_part(hosts, args))
            elif part in ("tmpfs", "disk"):
                result["parts"].append(copy_part(hosts, args, part, getattr(args, part)))
            else:
                ask.error(f"no part {part}")
        show_and_write(result, args)
    finally:
        hosts.down()


if __name__ == "__main__":
    main()
