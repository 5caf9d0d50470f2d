#!/usr/bin/env bash
# sync and --checksum: only chunks that differ travel, renamed files are found, what is too much goes or is kept back.
source "$(dirname "$0")/check.sh"

sync_run() { # as cp_run, with the command's name changed
    cp_run_as sync "$@"
}
flip() { # flip FILE OFFSET: one bit, and size and time stay
    python3 - "$1" "$2" <<'END'
import os, sys
path, at = sys.argv[1], int(sys.argv[2])
before = os.stat(path)
with open(path, "r+b") as file:
    file.seek(at)
    byte = file.read(1)[0]
    file.seek(at)
    file.write(bytes([byte ^ 4]))
os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
END
}
MIB=$((1024 * 1024))
python3 "$E2E/tree.py" make "$SRC/tree" 3
random_file "$SRC/tree/big.bin" $((40 * MIB + 777))
random_file "$SRC/tree/middle.bin" $((3 * MIB))
mkdir -p "$DST/root"
serve b "$DST/root" || { not_ok "serve prints its address"; finish; }

sync_run "$SRC/tree" "${URL}copy"
cp_ends 0 "sync: exit code 0"
same "$SRC/tree" "$DST/root/copy" "sync: the content is there, equal"
sync_run "$SRC/tree/" "${URL}copy/"
is "$STATUS $(number bytes) $(number compared_bytes)" "0 0 0" "again: nothing is sent, nothing is read to be compared"

# --- large files: what changed, what grew, what shrank, what was only touched ---
printf changed | dd of="$SRC/tree/big.bin" bs=1 seek=$((17 * MIB + 5)) conv=notrunc status=none
sync_run "$SRC/tree" "${URL}copy"
is "$STATUS $(number bytes)" "0 $MIB" "7 bytes of 40 MiB changed: one chunk is sent"
same "$SRC/tree" "$DST/root/copy" "changed: equal"
head -c 1000 /dev/urandom >>"$SRC/tree/big.bin"
sync_run "$SRC/tree" "${URL}copy"
is "$STATUS $(number bytes)" "0 1777" "appended to: only the last chunk is sent"
same "$SRC/tree" "$DST/root/copy" "appended to: equal"
truncate -s $((30 * MIB + 1)) "$SRC/tree/big.bin"
sync_run "$SRC/tree" "${URL}copy"
is "$STATUS $(number bytes)" "0 1" "cut: only the last chunk is sent"
same "$SRC/tree" "$DST/root/copy" "cut: equal"
touch -d '2001-02-03 04:05:06.789' "$SRC/tree/big.bin" "$SRC/tree/middle.bin"
chmod 0604 "$SRC/tree/middle.bin"
inode=$(stat -c %i "$DST/root/copy/big.bin")
sync_run "$SRC/tree" "${URL}copy"
is "$STATUS $(number bytes) $(stat -c %i "$DST/root/copy/big.bin")" "0 0 $inode" "touched: nothing is sent, the file stays the one it was"
same "$SRC/tree" "$DST/root/copy" "touched: equal, times and modes too"

# --- a bit flips on the destination's disk: named, and only that chunk is sent again ---
receipt=$(field receipt "$OUT")
flip "$DST/root/copy/big.bin" $((12 * MIB + 99))
flip "$DST/root/copy/size-4096" 1000
sync_run "$SRC/tree" "${URL}copy"
is "$STATUS $(number bytes)" "0 0" "a flipped bit is not seen by size and time"
cp_run -v --checksum "$SRC/tree/." "${URL}copy/"
is "$STATUS $(number bytes)" "0 $((MIB + 4096))" "--checksum: the chunk and the small file that differ are sent, nothing else"
holds "the chunk is named" grep -q 'big.bin: 1 of 31 chunks of 1048576 bytes differ: 12' "$OUT"
same "$SRC/tree" "$DST/root/copy" "--checksum: equal again"
cp_run --checksum "$SRC/tree/." "${URL}copy/"
is "$STATUS $(number bytes)" "0 0" "--checksum again: nothing is sent"
holds "verify agrees" on b "$LONGHAUL" verify "$(field receipt "$OUT")" "$DST/root/copy"
cp_run --checksum --digest crc64 "$SRC/tree/." "${URL}copy/"
is "$STATUS $(number bytes)" "0 0" "--checksum --digest crc64: nothing is sent"
[ -s "$receipt" ] || not_ok "the sync before had a receipt"

# --- renamed ---
mkdir "$SRC/tree/elsewhere"
mv "$SRC/tree/big.bin" "$SRC/tree/elsewhere/large.bin"
sync_run "$SRC/tree" "${URL}copy"
is "$STATUS $(number bytes) $(number files)" "0 0 1" "renamed: found, not sent"
holds "renamed: equal" cmp "$SRC/tree/elsewhere/large.bin" "$DST/root/copy/elsewhere/large.bin"

mv "$SRC/tree/size-4096" "$SRC/tree/elsewhere/small.bin"
cp -p "$SRC/tree/elsewhere/small.bin" "$SRC/tree/elsewhere/twin.bin"
printf other | dd of="$SRC/tree/elsewhere/twin.bin" bs=1 seek=7 conv=notrunc status=none
touch -r "$SRC/tree/elsewhere/small.bin" "$SRC/tree/elsewhere/twin.bin"
sync_run "$SRC/tree" "${URL}copy"
is "$STATUS $(number bytes) $(number files)" "0 4096 2" "a small one renamed: found; one that only looks like it is sent"
holds "renamed, small: equal" cmp "$SRC/tree/elsewhere/small.bin" "$DST/root/copy/elsewhere/small.bin"
holds "only looks like it: equal" cmp "$SRC/tree/elsewhere/twin.bin" "$DST/root/copy/elsewhere/twin.bin"
mv "$SRC/tree/elsewhere/small.bin" "$SRC/tree/elsewhere/small-2.bin"
sync_run --durability written "$SRC/tree" "${URL}copy"
is "$STATUS $(number bytes) $(number files)" "0 0 1" "the same below the durability level at which names are flushed"

# --- what is too much ---
echo x >"$DST/root/copy/extra"
mkdir -p "$DST/root/copy/more/of it" && touch "$DST/root/copy/more/of it/"{1,2,3}
sync_run "$SRC/tree" "${URL}copy"
holds "without --delete nothing is removed" test -e "$DST/root/copy/extra" -a -e "$DST/root/copy/big.bin"
sync_run --delete -n "$SRC/tree" "${URL}copy"
is "$STATUS $(number removed)" "0 9" "--delete -n says how many entries would go"
holds "--delete -n removes nothing" test -e "$DST/root/copy/extra"
sync_run --delete --max-delete 8 "$SRC/tree" "${URL}copy"
is "$STATUS $(number removed) $(number left)" "3 0 9" "more than --max-delete: nothing is removed, exit code 3"
holds "none of them is gone" test -e "$DST/root/copy/extra" -a -e "$DST/root/copy/more/of it/3"
sync_run --delete "$SRC/tree" "${URL}copy"
is "$STATUS $(number removed) $(number left)" "0 9 0" "--delete removes them"
same "$SRC/tree" "$DST/root/copy" "--delete: equal, times of folders too"
stop "$SERVE_PID"

# --- rights, and the other ways ---
serve b "$DST/root" --wo || not_ok "serve --wo"
sync_run --delete "$SRC/tree" "${URL}copy"
is "$STATUS" 12 "who may only write may not remove what he cannot see"
sync_run "$SRC/tree" "${URL}copy"
is "$STATUS $(number compared_bytes)" "0 0" "who may only write learns nothing by comparing"
is "$(field compare "$OUT") $(field uncompared "$OUT")" "never true" "and the report says so"
holds "in words, too" grep -q 'nothing is compared: the other end may only be written to' "$OUT"
writes=$SERVE_PID
PORT=7441 serve b "$SRC" --ro || not_ok "serve the source"
from=$URL reads=$SERVE_PID URL=$(head -n 1 "$LAB/serve-$((SERVE_COUNT - 1)).out")
flip "$DST/root/copy/elsewhere/large.bin" $((3 * MIB))
unheld() { # unheld COMMAND ARGUMENTS...: --checksum is refused where nothing can be compared, before anything is done
    cp_run_as "$1" --checksum "${@:2}"
    is "$STATUS" 12 "$*: --checksum where one may only write is refused"
    holds "$*: what it needs is said" grep -q 'right to read' "$OUT"
}
unheld sync "$SRC/tree" "${URL}copy"
unheld cp "$SRC/tree/." "${URL}copy/"
unheld sync "${from}tree" "${URL}copy"
cp_run_as sync "${from}tree" "${URL}copy"
is "$STATUS $(field compare "$OUT") $(field uncompared "$OUT")" "0 never true" "between two daemons the report says it, too"
stop "$writes"

# --- between two daemons: as directly ---
serve b "$DST/root" || not_ok "serve"
cp_run_as sync --checksum "${from}tree" "${URL}copy"
is "$STATUS $(number bytes) $(field compare "$OUT")" "0 $MIB always" "between two daemons: --checksum finds the chunk with the flipped bit"
same "$SRC/tree" "$DST/root/copy" "between two daemons: equal again"
printf again | dd of="$SRC/tree/elsewhere/large.bin" bs=1 seek=$((17 * MIB + 5)) conv=notrunc status=none
echo x >"$DST/root/copy/extra"
cp_run_as sync --delete "${from}tree" "${URL}copy"
is "$STATUS $(number bytes) $(number removed)" "0 $MIB 1" "between two daemons: one chunk is sent, one entry removed"
same "$SRC/tree" "$DST/root/copy" "between two daemons: --delete: equal"
mv "$SRC/tree/elsewhere/large.bin" "$SRC/tree/elsewhere/larger.bin"
cp_run_as sync --delete "${from}tree" "${URL}copy"
is "$STATUS $(number bytes) $(number removed)" "0 0 1" "between two daemons: renamed is found, not sent"
stop "$reads"
stop "$SERVE_PID"
serve b "$DST/root" --ro || not_ok "serve --ro"
cp -a "$SRC/tree" "$DST/mine"
printf other | dd of="$DST/mine/middle.bin" bs=1 seek=$((2 * MIB)) conv=notrunc status=none
echo x >"$DST/mine/extra"
sync_run --delete "${URL}copy" "$DST/mine"
is "$STATUS $(number bytes) $(number removed)" "0 $MIB 1" "pull: one chunk, one removed"
same "$SRC/tree" "$DST/mine" "pull: equal"
stop "$SERVE_PID"
printf other | dd of="$DST/mine/middle.bin" bs=1 seek=5 conv=notrunc status=none
sync_run --delete "$SRC/tree" "$DST/mine"
is "$STATUS $(number bytes)" "0 $MIB" "local: one chunk"
same "$SRC/tree" "$DST/mine" "local: equal"
sync_run "$SRC/tree/middle.bin" "$DST/mine"
is "$STATUS" 2 "a file is no folder: usage"
sync_run "$SRC/tree" "$SRC/tree" "$DST/mine"
is "$STATUS" 2 "three folders: usage"
finish
