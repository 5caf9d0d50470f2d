#!/usr/bin/env bash
# MODE E of GridFTP: globus-url-copy against `longhaul ftp serve`, in clear: files each way over 1, 2 and 4 connections, trees over kept ones, parts of files,
# a client that is killed. Skips where the client is not installed (lab/needs.sh installs it where it can).
source "$(dirname "$0")/check.sh"

if ! command -v globus-url-copy >/dev/null; then
    skip "MODE E" "globus-url-copy is not installed"
    finish
fi
ROOT=$DST/ftp FTP_PORT=2193
mkdir -p "$ROOT" "$LAB/ftp-home" "$DST/got"
chmod 700 "$LAB/ftp-home"
LONGHAUL_HOME=$LAB/ftp-home "$LONGHAUL" ftp serve --root "$ROOT" --listen "127.0.0.1:$FTP_PORT" --user ada --clear 127.0.0.1 >"$LAB/ftp.out" 2>"$LAB/ftp.err" &
DOOR=$!
until_true 20 grep -q '^file manager' "$LAB/ftp.out"
AT=ftp://ada:$(sed -n 's/^password of ada, said once: //p' "$LAB/ftp.out")@127.0.0.1:$FTP_PORT
copy() { timeout 120 globus-url-copy -nodcau "$@" >>"$LAB/globus" 2>&1; }
same() { if cmp -s "$1" "$2"; then ok "$3"; else not_ok "$3" "$1 and $2 differ: $(tail -2 "$LAB/globus" | tr '\n' ' ')"; fi; }
same_tree() { if diff -r "$1" "$2" >>"$LAB/globus" 2>&1; then ok "$3"; else not_ok "$3" "$(tail -2 "$LAB/globus" | tr '\n' ' ')"; fi; }

random_file "$SRC/one" 30000001
: >"$SRC/empty"
for streams in 1 2 4; do
    for keep in "" -fast; do
        rm -f "$ROOT/up" "$DST/back"
        copy -p $streams $keep "file://$SRC/one" "$AT/up"
        same "$SRC/one" "$ROOT/up" "put -p $streams $keep"
        copy -p $streams $keep "$AT/up" "file://$DST/back"
        same "$SRC/one" "$DST/back" "get -p $streams $keep"
    done
done
copy -p 2 -fast "file://$SRC/empty" "$AT/empty"
same "$SRC/empty" "$ROOT/empty" "an empty file, put"
copy -p 2 -fast "$AT/empty" "file://$DST/empty"
same "$SRC/empty" "$DST/empty" "and got"

# Parts of a file: ERET, ESTO.
copy -p 2 -off 1000 -len 5000000 "$AT/up" "file://$DST/part"
same <(tail -c +1001 "$SRC/one" | head -c 5000000) <(tail -c +1001 "$DST/part") "a part, got"
copy -p 2 -off 1000 -len 5000000 "file://$SRC/one" "$AT/part"
same <(tail -c +1001 "$SRC/one" | head -c 5000000) <(tail -c +1001 "$ROOT/part") "a part, put"

# Many small files over kept connections, commands ahead of replies.
python3 - "$SRC/tree" "${FILES:-4000}" <<'END'
import os, random, sys
numbers, some = random.Random(1), os.urandom(1 << 20)
for at in range(int(sys.argv[2])):
    folder = f"{sys.argv[1]}/d{at // 1000}"
    os.makedirs(folder, exist_ok=True)
    size = min(1 << 18, int(numbers.paretovariate(0.9) * 100) - 100)
    with open(f"{folder}/f{at}", "wb") as out:
        out.write(some[at:at + size])
END
copy -r -cd -cc 4 -pp -fast "file://$SRC/tree/" "$AT/tree/"
same_tree "$SRC/tree" "$ROOT/tree" "${FILES:-4000} small files, put by -cc 4 -pp -fast"
copy -r -cc 4 -pp -fast "$AT/tree/" "file://$DST/got/"
same_tree "$SRC/tree" "$DST/got" "and got"

# Killed in the middle: nothing under the name.
random_file "$SRC/large" 400000000
globus-url-copy -nodcau -p 2 -fast "file://$SRC/large" "$AT/large" >>"$LAB/globus" 2>&1 &
client=$!
until_true 10 test -n "$(find "$ROOT" -name '.longhaul-*')"
kill -9 $client
wait $client 2>/dev/null
until_true 10 sh -c "! ls -A '$ROOT' | grep -q lock"
if [ ! -e "$ROOT/large" ] || cmp -s "$SRC/large" "$ROOT/large"; then ok "a client that was killed leaves no partial file"; else not_ok "a client that was killed leaves no partial file"; fi
copy -p 2 -fast "file://$SRC/large" "$AT/large"
same "$SRC/large" "$ROOT/large" "the next put is whole"
is "$(find "$ROOT" -name '.longhaul-*' | wc -l)" 0 "and nothing else stands there"

# Refused by name: GSI.
cat >"$LAB/refused.py" <<'END'
import ftplib, sys
ftp = ftplib.FTP()
ftp.connect("127.0.0.1", int(sys.argv[1]), 20)
ftp.login("ada", sys.argv[2])
for said in ("DCAU A", "MODE Z", "AUTH GSSAPI"):
    try:
        ftp.voidcmd(said)
        print("taken", said)
    except ftplib.error_perm as refused:
        assert str(refused).startswith("504"), refused
print("well")
END
password=${AT#ftp://ada:}
is "$(python3 "$LAB/refused.py" "$FTP_PORT" "${password%%@*}" 2>&1 | tail -1)" well "GSI is refused by its name"
kill "$DOOR"
wait "$DOOR" 2>/dev/null
finish
