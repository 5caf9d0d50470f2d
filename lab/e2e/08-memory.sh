#!/usr/bin/env bash
# Memory of each end stays below 256 MiB whatever the size and the count. BIG=1 (make torture-memory): 200 GiB, a million files.
source "$(dirname "$0")/check.sh"

most=$((256 << 20))
cat >"$LAB/peak" <<'END'
#!/usr/bin/env python3
import resource, subprocess, sys
status = subprocess.call(sys.argv[2:])
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024))
sys.exit(status)
END
chmod 755 "$LAB/peak"
CP_AS="$LAB/peak $LAB/client"
bounded() { # bounded WORDS: both ends of the last cp, by their own report and by the kernel's word on both processes
    local near far daemon client
    client=$(cat "$LAB/client")
    near=$(number peak_memory_bytes_local) far=$(number peak_memory_bytes_remote)
    daemon=$(awk '/VmHWM/ { print $2 * 1024 }' "/proc/$SERVE_PID/status" 2>/dev/null || echo 0)
    holds "$1: peak $((near >> 20)) MiB and $((far >> 20)) MiB (kernel: $((client >> 20)) and $((daemon >> 20)) MiB), at most 256" test "$near" -gt 0 -a "$client" -gt 1000000 -a "$client" -le $most -a "$daemon" -gt 1000000 -a "$near" -le $most -a "$far" -le $most -a "$daemon" -le $most
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
    cp_run --durability written "$SRC/sparse.bin" "$URL"
    cp_ends 0 "$((zeros >> 30)) GiB of a sparse file: exit code 0"
    bounded "$((zeros >> 30)) GiB of a sparse file"
    holds "$((zeros >> 30)) GiB of a sparse file: they travelled" test "$(number bytes)" -ge $zeros
    holds "sparse file: equal" cmp --ignore-initial=$reach "$SRC/sparse.bin" "$DST/sparse/sparse.bin"
    stop "$SERVE_PID"
    rm -f "$DST/sparse/sparse.bin"
else
    skip "$((zeros >> 30)) GiB of a sparse file: not enough room below $LAB"
fi

# All the streams there may be, and datagrams: what is on its way is memory, too.
mkdir -p "$DST/wide"
random_file "$SRC/wide.bin" $((700 << 20))
for how in "--streams 16 --transport tcp" "--transport udp" "--chunk 16MiB --streams 8"; do
    serve b "$DST/wide"
    # shellcheck disable=SC2086
    cp_run --durability written --no-keep $how "$SRC/wide.bin" "$URL"
    cp_ends 0 "$how: exit code 0"
    bounded "$how"
    stop "$SERVE_PID"
done
rm -f "$SRC/wide.bin" "$DST/wide/wide.bin"

mkdir -p "$DST/count"
python3 "$E2E/tree.py" many "$SRC/count" $count
serve b "$DST/count"
cp_run --durability written "$SRC/count" "$URL"
cp_ends 0 "$count files: exit code 0 (in $((TOOK / 1000)) s)"
bounded "$count files"
is "$(find "$DST/count/count" -type f -printf x | wc -c)" $count "$count files: all are there"
[ -n "${BIG:-}" ] || same "$SRC/count" "$DST/count/count" "$count files: equal"
stop "$SERVE_PID"
finish
