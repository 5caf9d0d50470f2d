#!/usr/bin/env python3
"""kill -9 of client or server at random instants of transfers by FTP, then the same command again.

In:         LONGHAUL, LAB (a folder), FTP_ADDRESS, N (instants), SEED, KINDS (names of KINDS below, separated by commas; all).
Out:        lines of ok, not ok and skip; what each kind came to behind `#`; status 0 only if nothing failed.
Invariants: what may stand under a file's name is nothing, all of the old file or all of the new one, compared byte for byte whenever its inode changes,
            before, during and after the kill; instants are drawn from the whole time that a run without a kill takes. The second run is not limited.
Absent on purpose: downloads by others (what they leave under a name is theirs).
"""

import glob
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

LONGHAUL, LAB, ADDRESS = os.environ["LONGHAUL"], os.environ["LAB"], os.environ["FTP_ADDRESS"]
N, SEED = int(os.environ["N"]), int(os.environ["SEED"])
FILE_BYTES = 40 << 20  # of two ranges
RATE_MB_S = 50
CHUNK = 1 << 20
# What is not noted yet when a process dies: 8 MiB or 50 ms (promise 133), and what the connections hold, which a server of others may write without having told.
AGAIN_MAX = 12 << 20
WORK = os.path.join(LAB, "torture")
ROOT, NEAR = os.path.join(WORK, "root"), os.path.join(WORK, "near")
OURS, DATA, THEIRS = 2201, 5801, 2202
draw = random.Random(SEED)


class Server:
    """One that is started, killed with all its processes, and started again."""

    def __init__(self, port, words, home=None):
        self.port, self.words, self.home, self.process = port, words, home, None

    def up(self):
        env = dict(os.environ, LONGHAUL_HOME=self.home) if self.home else None
        out = open(os.path.join(WORK, f"server-{self.port}"), "ab")
        self.process = subprocess.Popen(self.words, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=env)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                return socket.create_connection((ADDRESS, self.port), 1).close()
            except OSError:
                time.sleep(0.01)
        sys.exit(f"not ok the server at port {self.port} does not start")

    def kill(self):
        if self.process is None:
            return
        for pid in [self.process.pid, *children(self.process.pid)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        self.process = None


def children(pid):
    """Processes that this one started, and theirs."""
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            for child in map(int, open(path).read().split()):
                found += [child, *children(child)]
        except OSError:
            pass
    return found


def contents(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, IsADirectoryError):
        return None


class Watch:
    """Looks at a name until it is told to stop: `wrong` says what stood there that may not."""

    def __init__(self, path, allowed):
        self.path, self.allowed, self.wrong, self.looks = path, allowed, None, 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        seen = None
        while not self.over.is_set():
            try:
                stat = os.stat(self.path)
                now = (stat.st_ino, stat.st_size)
            except FileNotFoundError:
                now = None
            self.looks += 1
            if now is not None and now != seen and (there := contents(self.path)) is not None and there not in self.allowed:
                self.wrong = f"{len(there)} bytes under the name that are neither file"
            seen = now
            self.over.wait(0.001)

    def stop(self):
        self.over.set()
        self.thread.join()


def standing(folder, name, new):
    """Bytes of whole chunks of the new file that stand beside the name."""
    most = 0
    for other in os.listdir(folder):
        if other != name and (there := contents(os.path.join(folder, other))) is not None:
            most = max(most, sum(CHUNK for at in range(0, len(new), CHUNK) if there[at : at + CHUNK] == new[at : at + CHUNK]))
    return most


def ours(server, options, put):
    """`longhaul cp` to or from it."""
    def words(name, is_limited):
        far = f"ftp://{'ada@' if server is LONGHAULS else ''}{ADDRESS}:{server.port}/up/{name}"
        ends = [os.path.join(WORK, "new"), far] if put else [far, os.path.join(NEAR, name)]
        # A server that was killed is not waited for long; one that has just come back may be.
        first = ["--rate", f"{RATE_MB_S}MB/s", "--stall", "2s"] if is_limited else []
        return [LONGHAUL, "cp", "--json", *options, *first, *ends]
    return words


def curl(options):
    def words(name, is_limited):
        rate = ["--limit-rate", f"{RATE_MB_S}M"] if is_limited else []
        at = f"ftp://{ADDRESS}:{OURS}/up/{name}"
        return ["curl", "-sS", *options, *rate, "-u", "ada:pass word", "-C", "-", "-w", "%{size_upload}", "-T", os.path.join(WORK, "new"), at]
    return words


def globus(name, _):
    at = f"ftp://ada:pass%20word@{ADDRESS}:{OURS}/up/{name}"
    return ["globus-url-copy", "-nodcau", "-p", "2", "-fast", "file://" + os.path.join(WORK, "new"), at]


def moved_by_json(out):
    for line in out.splitlines():
        if '"event":"done"' in line:
            return json.loads(line)["bytes"]
    return None


def moved_by_number(out):
    return int(out) if out.isdigit() else None


class Kind:
    """One way to move a file: its words, its server, where the file comes to, what the second run says of what it moved, whether an old file may stand there."""

    def __init__(self, needs, server, put, words, moved=moved_by_json, old=True, source=None):
        self.needs, self.server, self.put, self.words, self.moved, self.old = needs, server, put, words, moved, old
        self.source = source
        self.rounds, self.hits, self.whole, self.again_worst, self.seconds = 0, 0, 0, 0, None

    @property
    def folder(self):
        if not self.put:
            return NEAR
        return os.path.join(ROOT, "up") if self.server is LONGHAULS else os.path.join(WORK, "theirs", "up")


def far_folder(kind):
    return os.path.join(ROOT, "up") if kind.server is LONGHAULS else os.path.join(WORK, "theirs", "up")


def fresh(path, bytes_):
    """A file under this name at once, as another inode than before."""
    with open(path + ".fresh", "wb") as file:
        file.write(bytes_)
    os.chmod(path + ".fresh", 0o644)
    os.rename(path + ".fresh", path)


def run(words, seconds):
    try:
        done = subprocess.run(words, capture_output=True, timeout=seconds, text=True, env=CLIENT, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        return "no end", "", f"not done after {seconds} s"


def let_go(folder):
    """Until nobody holds the part of a client that is gone."""
    until = time.monotonic() + 3
    while time.monotonic() < until and any(it.endswith(".lock") for it in os.listdir(folder)):
        time.sleep(0.01)


def empty(kind):
    for folder in {NEAR, os.path.join(ROOT, "up"), os.path.join(WORK, "theirs", "up")}:
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def round_of(kind, number):
    """One kill and the run after it. Returns what was wrong, or nothing."""
    name, victim = "file", ("client", "server")[number % 2]
    new = draw.randbytes(FILE_BYTES)
    old = new[: draw.randrange(FILE_BYTES)] if kind.old and draw.random() < 0.4 else None
    empty(kind)
    final = os.path.join(kind.folder, name)
    if old is not None:
        fresh(final, old)
    fresh(os.path.join(WORK, "new") if kind.put else os.path.join(far_folder(kind), name), new)
    if kind.seconds is None:
        # How long a run takes that nobody kills.
        began = time.monotonic()
        status, _, said = run(kind.words(name, True), 60)
        kind.seconds = time.monotonic() - began
        if status != 0 or contents(final) != new:
            return f"without a kill: status {status}, {said[-300:]}"
        os.remove(final)
        if old is not None:
            fresh(final, old)
    watch = Watch(final, [new] if old is None else [new, old])
    instant = draw.random() * kind.seconds
    client = subprocess.Popen(kind.words(name, True), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=CLIENT)
    began = time.monotonic()
    try:
        client.wait(instant)
        # The machine was busier when a run was timed: the next instants are drawn from less.
        kind.seconds = min(kind.seconds, time.monotonic() - began)
    except subprocess.TimeoutExpired:
        kind.hits += 1
    if victim == "client":
        client.kill()
        client.wait()
        let_go(kind.folder)
    else:
        kind.server.kill()
        is_back = draw.random() < 0.5
        if is_back:
            kind.server.up()
        try:
            client.wait(30)
        except subprocess.TimeoutExpired:
            client.kill()
            client.wait()
        if not is_back:
            kind.server.up()
    is_whole = contents(final) == new
    kind.whole += is_whole
    there = standing(kind.folder, name, new)
    status, out, said = run(kind.words(name, False), 60)
    watch.stop()
    wrong = [watch.wrong] if watch.wrong else []
    if status != 0:
        wrong.append(f"the second run: status {status}, {said[-300:]} {out[-300:]}")
    if contents(final) != new:
        wrong.append("the file is not what was sent after the second run")
    if left := [it for it in os.listdir(kind.folder) if it != name and it.startswith((".longhaul-", ".lh-upload-"))]:
        wrong.append(f"left behind: {left}")
    if kind.moved and not is_whole and status == 0:
        moved = kind.moved(out)
        again = (FILE_BYTES if moved is None else moved) - (FILE_BYTES - there)
        kind.again_worst = max(kind.again_worst, again)
        if again > AGAIN_MAX:
            wrong.append(f"{moved} bytes moved by the second run, {there} stood")
    return wrong and f"{victim} killed after {instant:.3f} of {kind.seconds:.3f} s: " + "; ".join(wrong)


def vsftpd():
    conf, empty_ = os.path.join(WORK, "vsftpd.conf"), os.path.join(WORK, "empty")
    os.mkdir(empty_)
    with open(conf, "w") as out:
        out.write(f"""listen=YES
listen_address={ADDRESS}
listen_port={THEIRS}
anonymous_enable=YES
anon_root={WORK}/theirs
anon_upload_enable=YES
anon_mkdir_write_enable=YES
anon_other_write_enable=YES
anon_umask=022
write_enable=YES
mdtm_write=YES
no_anon_password=YES
background=NO
secure_chroot_dir={empty_}
seccomp_sandbox=NO
""")
    return Server(THEIRS, ["vsftpd", conf])


for folder in (os.path.join(ROOT, "up"), NEAR, os.path.join(WORK, "theirs", "up"), os.path.join(WORK, "home"), os.path.join(WORK, "client")):
    os.makedirs(folder)
os.chmod(os.path.join(WORK, "home"), 0o700)
os.chmod(os.path.join(WORK, "theirs", "up"), 0o777)
CLIENT = dict(os.environ, LONGHAUL_HOME=os.path.join(WORK, "client"))
HOME = os.path.join(WORK, "home")
subprocess.run([LONGHAUL, "ftp", "user", "add", "ada", "--password-fd", "0"], input=b"pass word\n", env=dict(os.environ, LONGHAUL_HOME=HOME), check=True, stdout=subprocess.DEVNULL)
LONGHAULS = Server(OURS, [LONGHAUL, "ftp", "serve", "--root", ROOT, "--listen", f"{ADDRESS}:{OURS}", "--lhdata", str(DATA), "--clear", ADDRESS], HOME)
OTHERS = vsftpd()
LONGHAULS.up()
with open(os.path.join(WORK, "password"), "w") as file:
    file.write("pass word")
os.chmod(os.path.join(WORK, "password"), 0o600)
said = open(os.path.join(WORK, f"server-{OURS}")).read()
until = time.monotonic() + 20
while "certificate SHA-256 " not in said and time.monotonic() < until:
    time.sleep(0.05)
    said = open(os.path.join(WORK, f"server-{OURS}")).read()
FINGERPRINT = said.split("certificate SHA-256 ")[1].split()[0]
TRUST = ["--ftp-fingerprint", FINGERPRINT, "--password-file", os.path.join(WORK, "password")]

KINDS = {
    "get from our server": Kind(None, LONGHAULS, False, ours(LONGHAULS, ["--plain-ftp", *TRUST], False)),
    "put to our server": Kind(None, LONGHAULS, True, ours(LONGHAULS, ["--plain-ftp", *TRUST], True)),
    "get from vsftpd": Kind("vsftpd", OTHERS, False, ours(OTHERS, ["--allow-clear"], False)),
    "put to vsftpd": Kind("vsftpd", OTHERS, True, ours(OTHERS, ["--allow-clear"], True)),
    # `-C -` goes on behind whatever file has the name: none may.
    "curl put, TLS": Kind("curl", LONGHAULS, True, curl(["--ssl-reqd", "-k"]), moved_by_number, False),
    "curl put, clear": Kind("curl", LONGHAULS, True, curl([]), moved_by_number, False),
    # It begins anew.
    "MODE E put": Kind("globus-url-copy", LONGHAULS, True, globus, None),
    "LHDATA get": Kind(None, LONGHAULS, False, ours(LONGHAULS, TRUST, False)),
    "LHDATA put": Kind(None, LONGHAULS, True, ours(LONGHAULS, TRUST, True)),
}

asked = [it for it in os.environ.get("KINDS", "").split(",") if it]
kinds = []
for title, kind in KINDS.items():
    if asked and title not in asked:
        continue
    if kind.needs and (not shutil.which(kind.needs) or (kind.needs == "vsftpd" and os.geteuid() != 0)):
        print(f"skip {title}: {kind.needs} is not installed, or this is not root", flush=True)
    else:
        kinds.append((title, kind))
if any(kind.server is OTHERS for _, kind in kinds):
    OTHERS.up()
draw.shuffle(kinds)
bad = 0
try:
    for number in range(N):
        title, kind = kinds[number % len(kinds)]
        kind.rounds += 1
        # Each kind has both victims in turn.
        if wrong := round_of(kind, kind.rounds + number % len(kinds)):
            bad += 1
            print(f"# round {number} (SEED={SEED}), {title}: {wrong}", flush=True)
        if N > 20 and number % 20 == 19:
            print(f"# {number + 1} of {N}, {bad} wrong", flush=True)
finally:
    LONGHAULS.kill()
    OTHERS.kill()
for title, kind in kinds:
    if kind.rounds:
        again = f", sent again at worst {kind.again_worst / 1e6:.1f} MB" if kind.moved else ""
        print(f"# {title}: {kind.rounds} kills, {kind.hits} in mid-run, {kind.whole} whole all the same{again}; {kind.seconds:.2f} s a run")
hits = sum(kind.hits for _, kind in kinds)
words = f"kill -9 at {N} random instants of transfers by FTP ({hits} in mid-run; SEED={SEED}): no wrong or partial file, and what stood was not sent again"
print(("not ok " if bad or not hits else "ok ") + words, flush=True)
sys.exit(bad > 0 or not hits)
