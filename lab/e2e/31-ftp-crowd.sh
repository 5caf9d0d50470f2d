#!/usr/bin/env bash
# FTP: hundreds of clients that list a folder of many names at once, within the memory grant. SESSIONS=500 NAMES=1000000 is the full measure
# (`make ftp-crowd`); without them a tenth of the sessions and a hundredth of the names.
source "$(dirname "$0")/check.sh"

SESSIONS=${SESSIONS:-50} NAMES=${NAMES:-10000} GRANT_MIB=256
ROOT=$DST/ftp FTP_PORT=2192
mkdir -p "$ROOT/many" "$LAB/ftp-home"
chmod 700 "$LAB/ftp-home"
python3 -c '
import os, sys
os.chdir(sys.argv[1])
for at in range(int(sys.argv[2])):
    os.close(os.open("a file of a name of usual length %07d" % at, os.O_CREAT))' "$ROOT/many" "$NAMES"

printf 'pass word\n' | LONGHAUL_HOME=$LAB/ftp-home "$LONGHAUL" ftp user add ada --root many --ro --password-fd 0 >"$LAB/add" 2>&1
is "$(cat "$LAB/add")" "$(printf 'ada\tro,root=many')" "a user is added with a password that no command line shows"
LONGHAUL_HOME=$LAB/ftp-home "$LONGHAUL" ftp serve --root "$ROOT" --listen "127.0.0.1:$FTP_PORT" --clear 127.0.0.0/8 --memory "${GRANT_MIB}MiB" \
    >"$LAB/ftp.out" 2>"$LAB/ftp.err" &
DOOR=$!
until_true 20 grep -q '^file manager' "$LAB/ftp.out"

cat >"$LAB/crowd.py" <<'END'
import resource, socket, sys, threading, time
port, sessions, names = (int(it) for it in sys.argv[1:4])
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
wrong, right, begin = [], [], threading.Barrier(sessions)
# One address holds 256 clients at most: they come from several.
def one(number):
    try:
        own = ("127.0.0.%d" % (1 + number // 200), 0)
        control = socket.create_connection(("127.0.0.1", port), 120, own)
        said = control.makefile("rb")
        def ask(line):
            control.sendall(line + b"\r\n")
            return said.readline()
        said.readline()
        ask(b"USER ada")
        assert ask(b"PASS pass word").startswith(b"230"), "login"
        at = int(ask(b"EPSV").split(b"|")[3])
        data = socket.create_connection(("127.0.0.1", at), 120, own)
        begin.wait(120)
        assert ask(b"MLSD" if number % 2 else b"LIST").startswith(b"150"), "150"
        # A client that reads late: what is under way to it is the kernel's.
        time.sleep(2)
        lines, last = 0, b""
        while piece := data.recv(1 << 16):
            lines += piece.count(b"\n")
        assert lines == names + number % 2, lines
        assert said.readline().startswith(b"226"), "226"
        right.append(number)
    except Exception as error:
        begin.abort()
        wrong.append("%d: %r" % (number, error))
threading.stack_size(256 << 10)
threads = [threading.Thread(target=one, args=(number,)) for number in range(sessions)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(right), *wrong[:3])
END
is "$(timeout "${CROWD_LIMIT:-1500}" python3 "$LAB/crowd.py" "$FTP_PORT" "$SESSIONS" "$NAMES")" "$SESSIONS" "$SESSIONS sessions list $NAMES names at once"
peak=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$DOOR/status")
echo "# server's memory at most: $((peak / 1024)) MiB"
if [ "$peak" -le $((GRANT_MIB * 1024)) ]; then ok "within the grant of $GRANT_MIB MiB"; else not_ok "within the grant of $GRANT_MIB MiB" "$peak kB"; fi
is "$(LONGHAUL_HOME=$LAB/ftp-home "$LONGHAUL" ftp user remove ada)" "ada is removed" "a user is removed"
is "$(LONGHAUL_HOME=$LAB/ftp-home "$LONGHAUL" ftp user list | wc -l)" 0 "and nobody is left"
kill $DOOR
wait $DOOR 2>/dev/null

# The door of the daemon's own config: the same root, in the same process.
cat >"$LAB/daemon.toml" <<END
root = "$ROOT"
listen = "127.0.0.1:5799"
[ftp]
listen = "127.0.0.1:$FTP_PORT"
clear = "127.0.0.1"
anonymous = true
passive_ports = "2193"
END
LONGHAUL_HOME=$LAB/ftp-home "$LONGHAUL" serve --config "$LAB/daemon.toml" >"$LAB/daemon.out" 2>"$LAB/daemon.err" &
DOOR=$!
until_true 20 grep -q '^file manager' "$LAB/daemon.out"
echo hello >"$ROOT/hello"
cat >"$LAB/two.py" <<'END'
import ftplib, io, sys
ftps = [ftplib.FTP() for _ in range(4)]
for ftp in ftps:
    ftp.connect("127.0.0.1", int(sys.argv[1]), 20)
    ftp.login()
for ftp in ftps * 3:
    got = io.BytesIO()
    ftp.retrbinary("RETR hello", got.write)
    assert got.getvalue() == b"hello\n"
print("well")
END
is "$(python3 "$LAB/two.py" "$FTP_PORT" 2>&1 | tail -1)" well "the daemon's config opens a door for FTP, with one port for data"
printf 'root = "%s"\n[ftp]\nnonsense = 1\n' "$ROOT" >"$LAB/bad.toml"
LONGHAUL_HOME=$LAB/ftp-home "$LONGHAUL" serve --config "$LAB/bad.toml" >"$LAB/bad" 2>&1
is "$? $(grep -c 'table \[ftp\].*nonsense' "$LAB/bad")" "2 1" "a wrong key of its table is named"
kill $DOOR
wait $DOOR 2>/dev/null
finish
