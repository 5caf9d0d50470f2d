#!/usr/bin/env bash
# What a report may claim: kept is not verified, and a receipt that is missing is said, by the exit code too.
source "$(dirname "$0")/check.sh"

mkdir -p "$DST/far"
random_file "$SRC/tree/a" 300000
random_file "$SRC/tree/b" 5000
random_file "$SRC/tree/big" $((20 << 20))
PORT=7460
serve b "$DST/far"

# said: the first line of the same run for people
said() { on a timeout --kill-after=5 60 "$LONGHAUL" "$@" 2>/dev/null </dev/null | head -n 1; }
for to in "${URL}t/" "$DST/here/"; do
    name=$([[ $to == longhaul* ]] && echo "to a daemon" || echo "on one host")
    cp_run "$SRC/tree" "$to"
    cp_ends 0 "$name: copied"
    is "$(number files):$(number kept_files)" "3:0" "$name: all sent"
    place=$([[ $to == longhaul* ]] && echo "$DST/far/t/tree/a" || echo "${to}tree/a")
    # Four bytes flip, size and time stay.
    python3 -c 'import os,sys
p = sys.argv[1]; s = os.stat(p); f = open(p, "r+b"); f.seek(1000); b = f.read(4); f.seek(1000); f.write(bytes(x ^ 255 for x in b)); f.close()
os.utime(p, ns=(s.st_atime_ns, s.st_mtime_ns))' "$place"
    cp_run "$SRC/tree" "$to"
    cp_ends 0 "$name: again"
    is "$(number files):$(number kept_files):$(number equal_files)" "0:3:0" "$name: again: kept, not compared, and said so"
    line=$(said cp "$SRC/tree" "$to")
    holds "$name: a file that nobody read is not called verified ($line)" eval '[[ $line == *"3 files kept by size and time, not read"* && $line != *verified* ]]'
done
cp_run_as sync --checksum "$SRC/tree/" "$DST/here/tree/"
cp_ends 0 "compared: ends well"
is "$(number files):$(number kept_files):$(number equal_files)" "1:2:2" "compared: what differs was sent, the others were compared"
line=$(said sync --checksum "$SRC/tree/" "$DST/here/tree/")
holds "compared: said ($line)" eval '[[ $line == *"3 files compared and found equal"* ]]'
same "$SRC/tree" "$DST/here/tree" "compared: equal now"

# --- a receipt that cannot be written ---
random_file "$SRC/one" 100000
cp_run --receipt "$LAB/no/such" "$SRC/one" "${URL}r1"
cp_ends 0 "--receipt: its folder is made"
holds "--receipt: it is there" test -s "$LAB/no/such"
mkdir -p "$LAB/folder"
cp_run --receipt "$LAB/folder" "$SRC/one" "${URL}r2"
cp_ends 41 "--receipt names a folder: refused"
holds "--receipt names a folder: before anything was moved" test ! -e "$DST/far/r2"
cp_run --receipt "$LAB/x" "${URL}r1" "${URL}r3"
cp_ends 2 "--receipt of a job between two other hosts: refused, not forgotten"
if on a mount -t tmpfs -o size=64k none "$LAB/folder" 2>/dev/null; then
    on a dd if=/dev/zero of="$LAB/folder/fill" bs=4k 2>/dev/null
    cp_run --receipt "$LAB/folder/r" "$SRC/one" "${URL}r4"
    cp_ends 41 "--receipt on a full disk: refused"
    holds "--receipt on a full disk: before anything was moved" test ! -e "$DST/far/r4"
    # Room for a beginning, not for the lines of 3,000 files.
    on a truncate -s 8k "$LAB/folder/fill"
    on a dd if=/dev/zero of="$LAB/folder/fill" bs=4k count=11 2>/dev/null
    python3 "$E2E/tree.py" many "$SRC/many" 3000
    for to in "${URL}m/" "$DST/m/"; do
        rm -rf "$DST/m" "$DST/far/m"
        cp_run --receipt "$LAB/folder/r" "$SRC/many" "$to"
        cp_ends 41 "a disk that fills while the receipt is written ($to): its own exit code"
        is "$(field receipt "$OUT"):$(number files)" "null:3000" "the data is there ($to)"
        holds "and why is said ($to)" eval '[[ $(field receipt_missing "$OUT") == *"No space left"* ]]'
    done
    same "$SRC/many" "$DST/m/many" "all of it"
    on a umount "$LAB/folder"
else
    skip "a full disk for receipts: no tmpfs can be mounted here"
fi

# --- LONGHAUL_HOME is read-only, here and there ---
home_a=$LAB/home-ro
mkdir -p "$home_a"
LONGHAUL_HOME="$home_a" "$LONGHAUL" key show >/dev/null 2>&1
if on a mount --bind "$home_a" "$home_a" 2>/dev/null && on a mount -o remount,ro,bind "$home_a" 2>/dev/null; then
    CP_AS="env LONGHAUL_HOME=$home_a" cp_run "$SRC/one" "${URL}h1"
    cp_ends 41 "a read-only LONGHAUL_HOME here: the exit code says that the receipt is missing"
    holds "a read-only LONGHAUL_HOME here: the data is there" cmp -s "$SRC/one" "$DST/far/h1"
    holds "a read-only LONGHAUL_HOME here: said" eval '[[ $(field receipt_missing "$OUT") == *"Read-only"* ]]'
    PORT=7461
    home_b=$LAB/home-far
    cp -a "$home_a" "$home_b"
    on b mount --bind "$home_b" "$home_b" && on b mount -o remount,ro,bind "$home_b"
    start b env LONGHAUL_HOME="$home_b" "$LONGHAUL" serve --root "$DST/far" --listen "$ADDR_B:$PORT" --ticket >"$LAB/ro.out" 2>"$LAB/ro.err" </dev/null
    if until_true 10 grep -q '^longhaul://' "$LAB/ro.out"; then
        cp_run "$SRC/one" "$(head -n 1 "$LAB/ro.out")h2"
        cp_ends 41 "a read-only LONGHAUL_HOME there: the exit code here says it"
        holds "a read-only LONGHAUL_HOME there: the data is there" cmp -s "$SRC/one" "$DST/far/h2"
        holds "a read-only LONGHAUL_HOME there: said" eval '[[ $(field receipt_missing "$OUT") == *"other end"* ]]'
        holds "a read-only LONGHAUL_HOME there: the daemon's log says why" grep -q "no receipt can be kept" "$LAB/ro.err"
    else
        not_ok "a daemon with a read-only LONGHAUL_HOME starts" "$(cat "$LAB/ro.err")"
    fi
    on a umount "$home_a"
    on b umount "$home_b"
else
    skip "a read-only LONGHAUL_HOME: nothing can be mounted here"
fi
finish
