#!/usr/bin/env bash
# The world's faults: full disk, no permission, files that change or vanish. The rest goes on, each is named, a second run completes.
source "$(dirname "$0")/check.sh"

python3 "$E2E/tree.py" many "$SRC/many" 300
random_file "$SRC/aaa.bin" $((96 << 20))
random_file "$SRC/mmm.bin" $((32 << 20))
random_file "$SRC/zzz.bin" $((8 << 20))

# --- changed between two runs ---
mkdir -p "$DST/changed"
serve b "$DST/changed"
start a "$LONGHAUL" cp --json --rate 400Mbit "$SRC/aaa.bin" "$URL" >/dev/null 2>&1 </dev/null
pid=$STARTED_PID
holds "source changed after a cut: something of the old version would be found again" journalled "$DST/changed"
sleep 0.3
kill -9 "$pid"
wait "$pid" 2>/dev/null
random_file "$SRC/aaa.bin" $((96 << 20))
cp_run "$SRC/aaa.bin" "$URL"
is "$STATUS $(number resumed_bytes) $(number bytes)" "0 0 $((96 << 20))" "source changed after a cut: exit code 0, all of it is sent and nothing of the old counts"
same "$SRC/aaa.bin" "$DST/changed/aaa.bin" "source changed after a cut: the new bytes, none of the old"
stop "$SERVE_PID"

# --- torn: changed while it is read ---
mkdir -p "$DST/torn"
serve b "$DST/torn"
python3 - "$SRC/aaa.bin" <<'END' &
import sys, time
with open(sys.argv[1], "r+b", buffering=0) as f:
    for number in range(100000):
        f.seek((number * 7919 * 4096) % (96 << 20))
        f.write(b"torn%d" % number)
        time.sleep(0.002)
END
writer=$!
STARTED+=("$writer")
cp_run --rate 800Mbit "$SRC/aaa.bin" "$SRC/mmm.bin" "$URL"
kill -9 "$writer"
wait "$writer" 2>/dev/null
cp_ends 4 "a writer during the copy: exit code 4 (torn)"
holds "torn: the report names the file" grep -q '"path":"[^"]*aaa.bin".*torn\|torn.*aaa.bin' "$OUT"
same "$SRC/mmm.bin" "$DST/torn/mmm.bin" "torn: the other file is there, equal"
holds "torn: the file is not published" test ! -e "$DST/torn/aaa.bin"
cp_run "$SRC/aaa.bin" "$SRC/mmm.bin" "$URL"
cp_ends 0 "torn: when the writer has ended, a second run completes"
same "$SRC/aaa.bin" "$DST/torn/aaa.bin" "torn: equal after the second run"

# One byte, once, where the copy has been already: no later read would meet it.
start a "$LONGHAUL" cp --json --rate 400Mbit --no-keep "$SRC/aaa.bin" "${URL}once" >"$LAB/once.json" 2>"$LAB/once.err" </dev/null
pid=$STARTED_PID
journalled "$DST/torn"
printf x | dd of="$SRC/aaa.bin" bs=1 seek=4096 conv=notrunc status=none
wait "$pid"
STATUS=$? OUT="$LAB/once.json" ERR="$LAB/once.err"
cp_ends 4 "torn by one byte behind the reader: exit code 4"
holds "torn by one byte: not published" test ! -e "$DST/torn/once"
stop "$SERVE_PID"

# --- vanishing ---
mkdir -p "$DST/gone" "$SRC/gone"
random_file "$SRC/gone/1-first.bin" $((64 << 20))
for n in $(seq 3000); do printf '%s' "$n" >"$SRC/gone/2-$n"; done
random_file "$SRC/gone/3-last" 1000
serve b "$DST/gone"
start a "$LONGHAUL" cp --json --rate 300Mbit "$SRC/gone" "$URL" >"$LAB/gone.json" 2>"$LAB/gone.err" </dev/null
pid=$STARTED_PID
sleep 0.4
rm -f "$SRC"/gone/2-*5 "$SRC/gone/1-first.bin"
wait "$pid"
STATUS=$? OUT="$LAB/gone.json" ERR="$LAB/gone.err"
# What had been opened or read before it went away may well be whole: then all is well, and nothing is to be named.
there=$(find "$DST/gone/gone" -type f ! -path '*/.longhaul-*' -printf x | wc -c)
is $((there + $(number faults_count))) 3002 "files vanish in mid-job: each of 3002 is there ($there) or named in the report ($(number faults_count))"
cp_ends "$([ "$(number faults_count)" -gt 0 ] && echo 5 || echo 0)" "files vanish in mid-job: $(number faults_count) vanished, exit code $STATUS"
same "$SRC/gone/3-last" "$DST/gone/gone/3-last" "vanished: the rest is there"
cp_run "$SRC/missing-from-the-start" "$SRC/zzz.bin" "$URL"
cp_ends 5 "a source that is missing from the start: exit code 5"
holds "and it is named" grep -q missing-from-the-start "$OUT" "$ERR"
stop "$SERVE_PID"

# --- permission ---
mkdir -p "$DST/denied" "$SRC/denied/locked"
random_file "$SRC/denied/a" 5000
random_file "$SRC/denied/secret" 5000
random_file "$SRC/denied/locked/in" 5000
random_file "$SRC/denied/z" 5000
chmod 000 "$SRC/denied/secret" "$SRC/denied/locked"
serve b "$DST/denied"
if [ "$(id -u)" = 0 ]; then CP_AS="setpriv --bounding-set -dac_override,-dac_read_search"; else CP_AS=""; fi
cp_run "$SRC/denied" "$URL"
cp_ends 21 "permission denied in mid-tree: exit code 21"
holds "denied: the report names the file" grep -q 'secret' "$OUT"
holds "denied: the report names the folder" grep -q 'locked' "$OUT"
same "$SRC/denied/z" "$DST/denied/denied/z" "denied: the rest is there"
chmod 644 "$SRC/denied/secret"
chmod 755 "$SRC/denied/locked"
cp_run "$SRC/denied" "$URL"
cp_ends 0 "denied: with permission the second run completes"
CP_AS=""
same "$SRC/denied" "$DST/denied/denied" "denied: equal after the second run"
stop "$SERVE_PID"

# --- disk full ---
mkdir -p "$LAB/full"
if on b mount -t tmpfs -o size=64m none "$LAB/full" 2>/dev/null; then
    serve b "$LAB/full"
    cp_run "$SRC/aaa.bin" "$SRC/zzz.bin" "$SRC/many" "$URL"
    cp_ends 20 "disk full: exit code 20"
    holds "full: the report names the file" grep -q 'aaa.bin' "$OUT"
    holds "full: nothing partial under its own name" on b test ! -e "$LAB/full/aaa.bin"
    there=$(on b find "$LAB/full" -type f ! -path '*/.longhaul-*' -printf x | wc -c)
    is $((there + $(number faults_count))) 302 "full: each of 302 files is there ($there) or named in the report ($(number faults_count))"
    on b mount -o remount,size=512m "$LAB/full"
    cp_run "$SRC/aaa.bin" "$SRC/zzz.bin" "$SRC/many" "$URL"
    cp_ends 0 "full: with room the second run completes"
    same "$SRC/many" "$LAB/full/many" "full: the tree is equal after the second run" b
    same "$SRC/aaa.bin" "$LAB/full/aaa.bin" "full: the file is equal after the second run" b
    stop "$SERVE_PID"
    on b umount "$LAB/full"
else
    skip "disk full: no tmpfs can be mounted here"
fi

# --- quota: a btrfs of our own, whose tree may hold 64 MiB ---
quota_up() {
    command -v mkfs.btrfs btrfs >/dev/null || { echo "no btrfs-progs"; return 1; }
    mkdir -p "$LAB/quota" && truncate -s 512M "$LAB/quota.img" && mkfs.btrfs -q "$LAB/quota.img" >/dev/null 2>&1 || { echo "no btrfs can be made"; return 1; }
    on b mount -o loop "$LAB/quota.img" "$LAB/quota" 2>/dev/null || { echo "no loop device or no btrfs in this kernel"; return 1; }
    on b btrfs quota enable "$LAB/quota" && on b btrfs qgroup limit 64M "$LAB/quota" || { echo "no quota groups"; on b umount "$LAB/quota"; return 1; }
}
if said=$(quota_up 2>&1); then
    serve b "$LAB/quota"
    cp_run "$SRC/aaa.bin" "$SRC/zzz.bin" "$SRC/many" "$URL"
    cp_ends 20 "quota: exit code 20"
    holds "quota: the report names the file" grep -q 'aaa.bin' "$OUT"
    holds "quota: and EDQUOT by its number" grep -q '"kind":"full","errno":122' "$OUT"
    holds "quota: nothing partial under its own name" on b test ! -e "$LAB/quota/aaa.bin"
    there=$(on b find "$LAB/quota" -type f ! -path '*/.longhaul-*' -printf x | wc -c)
    is $((there + $(number faults_count))) 302 "quota: each of 302 files is there ($there) or named in the report ($(number faults_count))"
    on b btrfs qgroup limit none "$LAB/quota"
    cp_run "$SRC/aaa.bin" "$SRC/zzz.bin" "$SRC/many" "$URL"
    cp_ends 0 "quota: without it the second run completes"
    same "$SRC/many" "$LAB/quota/many" "quota: the tree is equal after the second run" b
    same "$SRC/aaa.bin" "$LAB/quota/aaa.bin" "quota: the file is equal after the second run" b
    stop "$SERVE_PID"
    on b umount "$LAB/quota"
else
    skip "quota: $said"
fi
finish
