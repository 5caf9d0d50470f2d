#!/usr/bin/env bash
# Memory of each end stays below 256 MiB whatever the size and the count. BIG=1 (make torture-memory): 200 GiB, a million files.
source "$(dirname "$0")/check.sh"

most=$((256 << 20))
bounded() { # bounded WORDS: both ends of the last cp, by their own report and by the kernel's word on the daemon
    local near far daemon
    near=$(number peak_memory_bytes_local) far=$(number peak_memory_bytes_remote)
    daemon=$(awk '/VmHWM/ { print $2 * 1024 }' "/proc/$SERVE_PID/status" 2>/dev/null || echo 0)
    holds "$1: peak $((near >> 20)) MiB and $((far >> 20)) MiB (kernel: $((daemon >> 20)) MiB), at most 256" test "$near" -gt 0 -a "$near" -le $most -a "$far" -le $most -a "$daemon" -le $most
}
# Zeros that travel as bytes and take no room: beyond the first TiB holes are read.
reach=$((1 << 40)) zeros=$((3 << 30)) count=20000
[ -n "${BIG:-}" ] && zeros=$((200 << 30)) count=1000000
sparse=$((reach + zeros))
CP_LIMIT=3600

mkdir -p "$DST/sparse"
truncate -s $sparse "$SRC/sparse.bin"
printf 'in the middle' | dd of="$SRC/sparse.bin" bs=1 seek=$((reach + zeros / 2)) conv=notrunc status=none
if [ "$(df --output=avail -B1 "$DST" | tail -n 1)" -gt $((zeros + (1 << 30))) ] || [ -n "${BIG:-}" ]; then
    serve b "$DST/sparse"
    cp_run --rung written "$SRC/sparse.bin" "$URL"
    cp_ends 0 "$((zeros >> 30)) GiB of a sparse file: exit code 0"
    bounded "$((zeros >> 30)) GiB of a sparse file"
    holds "$((zeros >> 30)) GiB of a sparse file: they travelled" test "$(number bytes)" -ge $zeros
    holds "sparse file: equal" cmp --ignore-initial=$reach "$SRC/sparse.bin" "$DST/sparse/sparse.bin"
    stop "$SERVE_PID"
    rm -f "$DST/sparse/sparse.bin"
else
    skip "$((zeros >> 30)) GiB of a sparse file: not enough room below $LAB"
fi

mkdir -p "$DST/count"
python3 "$E2E/tree.py" many "$SRC/count" $count
serve b "$DST/count"
cp_run --rung written "$SRC/count" "$URL"
cp_ends 0 "$count files: exit code 0 (in $((TOOK / 1000)) s)"
bounded "$count files"
is "$(find "$DST/count/count" -type f -printf x | wc -c)" $count "$count files: all are there"
[ -n "${BIG:-}" ] || same "$SRC/count" "$DST/count/count" "$count files: equal"
stop "$SERVE_PID"
finish
