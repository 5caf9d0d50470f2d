#!/usr/bin/env bash
# Storage engines by the real binary: each one's copy is the same bytes; `bench disk` in a few seconds, its page, its table, nothing left behind.
source "$(dirname "$0")/check.sh"

# 24 MiB and an odd end: more than engines are asked for, with a tail that fills no sector.
head -c 25165829 /dev/urandom >"$SRC/large"
for engine in buffered early dontcache direct mmap read=mmap,write=dontcache; do
    cp_run --engine "$engine" "$SRC/large" "$DST/$engine"
    is "$STATUS" 0 "engine $engine: exit code 0"
    holds "engine $engine: the same bytes" cmp "$SRC/large" "$DST/$engine"
    rm -f "$DST/$engine"
done
"$LONGHAUL" cp --engine fast "$SRC/large" "$DST/x" >/dev/null 2>"$LAB/bad.err"
is $? 2 "engine: a name that is none is refused"
holds "engine: with the names that there are" grep -q "buffered, early, dontcache, direct and mmap" "$LAB/bad.err"

# Bufs that the kernel will not lock: without, and it says so.
if [ "$(stat -f -c %T "$LAB")" = tmpfs ] || ! command -v setpriv prlimit >/dev/null; then
    skip "registered buffers: they need a disk, and setpriv and prlimit"
else
    prlimit --memlock=2000000:2000000 setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock \
        "$LONGHAUL" cp --engine direct --explain "$SRC/large" "$DST/unlocked" >"$LAB/unlocked.txt" 2>&1 </dev/null
    is $? 0 "registered buffers refused: exit code 0"
    holds "registered buffers refused: the same bytes" cmp "$SRC/large" "$DST/unlocked"
    if grep -q "driver here *io_uring" "$LAB/unlocked.txt"; then
        holds "registered buffers refused: told with the reason" grep -q "registered buffers.*ulimit -l" "$LAB/unlocked.txt"
    else
        skip "registered buffers refused: no io_uring here"
    fi
    rm -f "$DST/unlocked"
fi

before=$(ls -A "$LAB" | wc -l)
t=$(date +%s%N)
timeout 60 "$LONGHAUL" bench disk "$LAB" --size 16MiB --seconds 2ms --rounds 1 --json --html "$LAB/disk.html" --csv "$LAB/disk.csv" >"$LAB/disk.json" 2>"$LAB/disk.err" </dev/null
is $? 0 "bench disk: exit code 0"
echo "# bench disk took $((($(date +%s%N) - t) / 1000000)) ms"
of_json() { python3 -c 'import json, sys
report = json.loads(open(sys.argv[1]).read())
cells = report["cells"]
print(eval(sys.argv[2]))' "$LAB/disk.json" "$1"; }
is "$(of_json 'sorted({c["sweep"] for c in cells})')" "['block', 'depth', 'engine', 'files', 'memory', 'threads']" "bench disk: every sweep has figures"
is "$(of_json 'all(c["gbs"] > 0 for c in cells) and {c["way"] for c in cells} == {"read", "write"}')" True "bench disk: reads and writes, and no figure is nothing"
is "$(of_json 'any("copy in memory" in line for line in report["ceilings"])')" True "bench disk: with its ceilings"
is "$(of_json 'sum("fragmentation tax" in line for line in report["notes"]) >= 2')" True "bench disk: with the tax of memory in pieces"
is "$(($(wc -l <"$LAB/disk.csv") - 1))" "$(of_json 'len(cells)')" "bench disk: the table has as many lines"
holds "bench disk: the page needs nothing else" eval 'grep -q "<svg" "$LAB/disk.html" && ! grep -q "http\|<script" "$LAB/disk.html"'
is "$(ls -A "$LAB" | wc -l)" $((before + 4)) "bench disk: nothing is left but what was asked for"
"$LONGHAUL" bench disk "$LAB/nowhere" >/dev/null 2>"$LAB/bad.err"
holds "bench disk: a folder that is not there is named" grep -q nowhere "$LAB/bad.err"
finish
