#!/usr/bin/env bash
# I/O modes by the real binary: each one's copy is the same bytes; `bench disk` in a few seconds, its page, its table, nothing left behind.
source "$(dirname "$0")/check.sh"

# 24 MiB and an odd end: more than I/O modes are asked for, with a tail that fills no sector.
head -c 25165829 /dev/urandom >"$SRC/large"
for engine in buffered early dontcache direct mmap read=mmap,write=dontcache; do
    cp_run --io-mode "$engine" "$SRC/large" "$DST/$engine"
    is "$STATUS" 0 "I/O mode $engine: exit code 0"
    holds "I/O mode $engine: the same bytes" cmp "$SRC/large" "$DST/$engine"
    rm -f "$DST/$engine"
done
"$LONGHAUL" cp --io-mode fast "$SRC/large" "$DST/x" >/dev/null 2>"$LAB/bad.err"
is $? 2 "I/O mode: a name that is none is refused"
holds "I/O mode: with the names that there are" grep -q "buffered, early, dontcache, direct and mmap" "$LAB/bad.err"

# In which order a tree's files are read, and why.
mkdir -p "$SRC/some" && touch "$SRC"/some/{a,b,c}
cp_run --explain "$SRC/some" "$DST/some"
is "$STATUS" 0 "order of files: exit code 0"
holds "order of files: told with the reason" grep -q "order of files" "$OUT" "$ERR"

# Bufs that the kernel will not lock: without, and it says so.
if [ "$(stat -f -c %T "$LAB")" = tmpfs ] || ! command -v setpriv prlimit >/dev/null; then
    skip "registered buffers: they need a disk, and setpriv and prlimit"
else
    prlimit --memlock=2000000:2000000 setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock \
        "$LONGHAUL" cp --io-mode direct --explain "$SRC/large" "$DST/unlocked" >"$LAB/unlocked.txt" 2>&1 </dev/null
    is $? 0 "registered buffers refused: exit code 0"
    holds "registered buffers refused: the same bytes" cmp "$SRC/large" "$DST/unlocked"
    if grep -q "driver here *io_uring" "$LAB/unlocked.txt"; then
        holds "registered buffers refused: told with the reason" grep -q "registered buffers.*ulimit -l" "$LAB/unlocked.txt"
    else
        skip "registered buffers refused: no io_uring here"
    fi
    rm -f "$DST/unlocked"
fi

# What a job displaced of others' page cache is told: of an I/O mode that was named and fills it, and nothing of one that does not.
if [ "$(stat -f -c %T "$LAB")" = tmpfs ]; then
    skip "displaced page cache: it needs a disk"
else
    cp_run --io-mode buffered "$SRC/large" "$DST/filled"
    if python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None, use_errno=True).syscall(451, -1, None, None, 0) and ctypes.get_errno() == 38)'; then
        holds "displaced page cache: told, in bytes (cachestat)" grep -q '"page cache","value":"24' "$OUT"
        cp_run --io-mode direct "$SRC/large" "$DST/unfilled"
        holds "displaced page cache: past the cache there is none of the part" [ "$(grep -c '"page cache","value":"24' "$OUT")" = 0 ]
    else
        skip "displaced page cache: no cachestat here (Linux 6.5)"
    fi
    rm -f "$DST/filled" "$DST/unfilled"
fi

# A result that is kept is measured again when its rate has fallen: a disk of its own, throttled for one job.
throttle=/sys/fs/cgroup/blkio group="" loop=""
[ -d "$throttle" ] || throttle=/sys/fs/cgroup
made() {
    [ "$(id -u)" = 0 ] && [ "$(stat -f -c %T "$LAB")" != tmpfs ] || { echo "no root, or no disk"; return 1; }
    [ "$(df --output=avail -m "$LAB" | tail -n 1)" -gt 4096 ] || { echo "less than 4 GiB of room"; return 1; }
    group="$throttle/longhaul-raced-$$" && mkdir "$group" 2>/dev/null || { group="" && echo "no control group"; return 1; }
    [ -f "$group/blkio.throttle.read_bps_device" ] || [ -f "$group/io.max" ] || { echo "no controller of disks"; return 1; }
    truncate -s 1400M "$LAB/raced.img" && mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$LAB/raced.img" 2>/dev/null || { echo "no ext4 can be made"; return 1; }
    # The loop device goes with its mount, and that with the host.
    mkdir "$LAB/raced" && on a mount -o loop "$LAB/raced.img" "$LAB/raced" 2>/dev/null || { echo "no loop device can be mounted"; return 1; }
    # Bytes that are no hole; what is in the page cache is not measured.
    on a sh -c "head -c 1100000000 /dev/zero | tr '\\0' x >'$LAB/raced/file' && sync '$LAB/raced/file' && dd if='$LAB/raced/file' iflag=nocache count=0 status=none"
}
# said WORDS HOW: one job that reads that disk says of its I/O mode how it was found.
said() {
    rm -f "$DST/raced"
    CP_LIMIT=120 cp_run --explain "$LAB/raced/file" "$DST/raced"
    is "$STATUS" 0 "$1: exit code 0"
    holds "$1: $2" grep -q "read I/O mode.*$2" "$OUT" "$ERR"
}
if why_not=$(made); then
    group="$throttle/longhaul-raced-$$" loop=$(losetup -j "$LAB/raced.img" | cut -d: -f1)
    printf '#!/bin/sh\necho $$ >"$1/cgroup.procs" && shift && exec "$@"\n' >"$LAB/in-group" && chmod 755 "$LAB/in-group"
    said "a disk that nobody knows" "measured now"
    said "the same disk again" "known from an earlier measurement"
    number="$((0x$(stat -c %t "$loop"))):$((0x$(stat -c %T "$loop")))"
    # 60 MB/s: less than half of what any disk that this runs on gave in the measurement.
    if [ -f "$group/blkio.throttle.read_bps_device" ]; then echo "$number 60000000" >"$group/blkio.throttle.read_bps_device"; else echo "$number rbps=60000000" >"$group/io.max"; fi
    CP_AS="$LAB/in-group $group" said "the disk became slow" "known from an earlier measurement"
    said "the next job" "measured now"
    rm -f "$DST/raced"
else
    skip "measured again: $why_not"
fi
[ -d "$LAB/raced" ] && on a umount "$LAB/raced" 2>/dev/null
[ -d "$throttle/longhaul-raced-$$" ] && rmdir "$throttle/longhaul-raced-$$"
rm -rf "$LAB/raced" "$LAB/raced.img"

before=$(ls -A "$LAB" | wc -l)
t=$(date +%s%N)
timeout 60 "$LONGHAUL" bench disk "$LAB" --size 16MiB --seconds 2ms --rounds 1 --json --html "$LAB/disk.html" --csv "$LAB/disk.csv" >"$LAB/disk.json" 2>"$LAB/disk.err" </dev/null
is $? 0 "bench disk: exit code 0"
echo "# bench disk took $((($(date +%s%N) - t) / 1000000)) ms"
of_json() { python3 -c 'import json, sys
report = json.loads(open(sys.argv[1]).read())
cells = report["cells"]
print(eval(sys.argv[2]))' "$LAB/disk.json" "$1"; }
is "$(of_json 'sorted({c["sweep"] for c in cells})')" "['block', 'depth', 'files', 'io_mode', 'memory', 'threads']" "bench disk: every sweep has figures"
is "$(of_json 'all(c["gbs"] > 0 for c in cells) and {c["way"] for c in cells} == {"read", "write"}')" True "bench disk: reads and writes, and no figure is nothing"
is "$(of_json 'any("copy in memory" in line for line in report["ceilings"])')" True "bench disk: with its ceilings"
is "$(of_json 'sum("fragmentation tax" in line for line in report["notes"]) >= 2')" True "bench disk: with the tax of memory in pieces"
is "$(($(wc -l <"$LAB/disk.csv") - 1))" "$(of_json 'len(cells)')" "bench disk: the table has as many lines"
holds "bench disk: the page needs nothing else" eval 'grep -q "<svg" "$LAB/disk.html" && ! grep -q "http\|<script" "$LAB/disk.html"'
is "$(ls -A "$LAB" | wc -l)" $((before + 4)) "bench disk: nothing is left but what was asked for"
"$LONGHAUL" bench disk "$LAB/nowhere" >/dev/null 2>"$LAB/bad.err"
holds "bench disk: a folder that is not there is named" grep -q nowhere "$LAB/bad.err"

# What a disk did in a measurement is known to the next job before it begins, at both ends, with the bufs that each has for it.
if [ "$(stat -f -c %T "$LAB")" = tmpfs ] || [ "$(df --output=avail -B1M "$LAB" | tail -n 1)" -lt 6000 ]; then
    skip "a disk's rate in the offers: it needs a disk, and 6 GB of it"
else
    head -c 67108864 /dev/urandom >"$LAB/part"
    for _ in $(seq 17); do cat "$LAB/part"; done >"$SRC/race"
    serve b "$DST"
    offered() { python3 -c 'import json, sys
for line in open(sys.argv[1]):
    for offer in json.loads(line).get("offers", []):
        if offer["what"] == sys.argv[2]: print(offer["remote"])' "$OUT" "$1"; }
    cp_run --explain --transport auto "$SRC/race" "$URL"first
    is "$STATUS $(offered "disk, when measured")" "0 not known" "a disk that was never measured: its rate is not known"
    holds "the bufs that the other end has for this job are" grep -q "^[1-9][0-9]* .iB$" <(offered "bufs for this job")
    rm -f "$DST/first"
    if ! LONGHAUL_HOME="$LAB/home-b" find "$LAB" -name engines | grep -q .; then
        skip "a disk's rate in the offers: this file system is not measured"
    else
        cp_run --explain --transport auto "$SRC/race" "$URL"second
        holds "the next job knows it" grep -q "^[1-9][0-9.]*.*bit/s$" <(offered "disk, when measured")
        holds "and expects no more than that of the whole" python3 -c 'import json, re, sys
records = [json.loads(line) for line in open(sys.argv[1])]
number, unit = re.match("([0-9.]+)([kMGT]?)bit", sys.argv[2]).groups()
disk = float(number) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[unit]
sys.exit(not records[-1]["forecast"]["rate_bps"] <= disk * 1.01)' "$OUT" "$(offered "disk, when measured")"
        holds "the next job: the same bytes" cmp "$SRC/race" "$DST/second"
    fi
    stop "$SERVE_PID"
    rm -f "$LAB/part" "$SRC/race" "$DST/second"
fi
finish
