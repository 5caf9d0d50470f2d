#!/usr/bin/env bash
# Holes are neither read nor sent, and the digest is that of all bytes: locally, to and from a daemon, after a cut, by sync, and when a hole
# gets data in mid-job. BIG=1 (make torture-holes): 2^40 bytes instead of 2^36, and all of them hashed once by verify.
source "$(dirname "$0")/check.sh"

bits=36
[ -n "${BIG:-}" ] && bits=40
CP_LIMIT=1200
MIB=$((1 << 20))

# islands PATH BYTES OFFSET...: a hole of BYTES with one MiB and a bit of chance at each offset.
islands() {
    python3 - "$@" <<'END'
import os, sys
path, size, offsets = sys.argv[1], int(sys.argv[2]), map(int, sys.argv[3:])
with open(path, "wb") as out:
    out.truncate(size)
    for offset in offsets:
        out.seek(offset)
        out.write(os.urandom(min((1 << 20) + 5000, size - offset)))
END
}
# alike A B: length, and what stands where either has data; allocated within 1 % and 64 KiB.
alike() {
    python3 - "$1" "$2" <<'END'
import os, sys
one, other = (os.open(path, os.O_RDONLY) for path in sys.argv[1:])
a, b = os.fstat(one), os.fstat(other)
assert a.st_size == b.st_size, (a.st_size, b.st_size)
assert abs(a.st_blocks - b.st_blocks) <= max(a.st_blocks // 100, 128), (a.st_blocks, b.st_blocks)
for file in (one, other):
    at = 0
    while True:
        try:
            start = os.lseek(file, at, os.SEEK_DATA)
        except OSError:
            break
        at = os.lseek(file, start, os.SEEK_HOLE)
        for offset in range(start, at, 1 << 20):
            count = min(1 << 20, at - offset)
            assert os.pread(one, count, offset) == os.pread(other, count, offset), offset
END
}
digest_of() { # the receipt's word on the one file of the last cp
    awk '$1 == "f" { print $2 }' "$(field receipt "$OUT")"
}

size=$((1 << bits))
islands "$SRC/huge" $size 0 $((5 << 30)) $(((5 << 30) + 3 * MIB + 77)) $((size / 2 - MIB)) $((size / 3)) $((size - 2 * MIB))
sent_most=$((16 * MIB))
holes_least=$((size - sent_most))
mkdir -p "$DST/local" "$DST/push" "$DST/pull"
cp_run "$SRC/huge" "$DST/local/"
cp_ends 0 "2^$bits bytes of hole with islands, local: exit code 0 (in $TOOK ms)"
is $(($(number bytes) + $(number hole_bytes))) $size "local: every byte was either moved or told"
holds "local: $(number bytes) bytes were moved" test "$(number bytes)" -le $sent_most -a "$(number hole_bytes)" -ge $holes_least
holds "local: equal where there is data, allocated alike" alike "$SRC/huge" "$DST/local/huge"
digest=$(digest_of)
[ -n "${BIG:-}" ] && holds "verify hashes all of it and agrees" "$LONGHAUL" verify "$(field receipt "$OUT")" "$DST/local"
serve b "$DST/push" || { not_ok "serve prints its address"; finish; }
before=$(wire)
cp_run "$SRC/huge" "$URL"
cp_ends 0 "push: exit code 0 (in $TOOK ms)"
holds "push: $(($(wire) - before)) bytes on the wire" test $(($(wire) - before)) -le $((2 * sent_most))
holds "push: equal where there is data, allocated alike" alike "$SRC/huge" "$DST/push/huge"
is "$(digest_of)" "$digest" "push: the same digest"
cp_run "${URL}huge" "$DST/pull/"
cp_ends 0 "pull: exit code 0 (in $TOOK ms)"
holds "pull: equal where there is data, allocated alike" alike "$SRC/huge" "$DST/pull/huge"
is "$(digest_of)" "$digest" "pull: the same digest"
cp_run --digest crc64 --no-keep "$SRC/huge" "$URL"
cp_ends 0 "crc64: exit code 0 (in $TOOK ms)"
stop "$SERVE_PID"
rm -rf "$DST/local" "$DST/pull" "$DST/push"

# By chunk over four volumes, and back: the maps speak of holes.
mkdir -p "$DST"/s{0..3}
cp_run --stripe chunk "$SRC/huge" "$DST/s{0..3}"
cp_ends 0 "by chunk: exit code 0 (in $TOOK ms)"
holds "by chunk: $(number bytes) bytes were moved" test "$(number bytes)" -le $sent_most -a "$(number hole_bytes)" -ge $holes_least
is "$(digest_of)" "$digest" "by chunk: the same digest"
cp_run --stripe chunk "$SRC/huge" "$DST/s{0..3}"
is "$STATUS $(number bytes)" "0 0" "by chunk, again: nothing is sent"
cp_run --join "$DST/s{0..3}/huge" "$DST/unstriped"
cp_ends 0 "by chunk, joined: exit code 0 (in $TOOK ms)"
holds "by chunk, joined: $(number bytes) bytes were moved" test "$(number bytes)" -le $sent_most -a "$(number hole_bytes)" -ge $holes_least
holds "by chunk, joined: equal where there is data, allocated alike" alike "$SRC/huge" "$DST/unstriped"
is "$(digest_of)" "$digest" "by chunk, joined: the same digest"
rm -rf "$DST"/s{0..3} "$DST/unstriped"

# The digest by somebody else: both kinds, of a file that can be hashed in a second.
mkdir -p "$DST/small"
islands "$SRC/small" $(((1 << 30) + 12345)) $((70 * MIB)) $((500 * MIB + 9)) $(((1 << 30) - 5))
cp_run "$SRC/small" "$DST/small/"
cp_ends 0 "1 GiB: exit code 0"
is "$(digest_of)" "$(b3 "$SRC/small")" "the digest is what another program finds"
holds "verify, which reads every byte, agrees" "$LONGHAUL" verify "$(field receipt "$OUT")" "$DST/small"
mkdir -p "$DST"/t{0..3}
start a "$LONGHAUL" cp --rate 60Mbit --stripe chunk "$SRC/small" "$DST"/t{0..3} >"$LAB/cut.chunk" 2>&1 </dev/null
sleep 0.6
stop "$STARTED_PID" KILL
cp_run --stripe chunk "$SRC/small" "$DST/t{0..3}"
cp_ends 0 "1 GiB by chunk, killed and run again: exit code 0"
holds "by chunk: verify agrees" "$LONGHAUL" verify "$(field receipt "$OUT")" "$DST/t{0..3}"
cp_run --join "$DST/t{0..3}/small" "$DST/small-again"
holds "by chunk, joined: equal, byte by byte" cmp "$SRC/small" "$DST/small-again"
rm -rf "$DST"/t{0..3} "$DST/small-again"
cp_run --digest crc64 --no-keep "$SRC/small" "$DST/small/"
holds "crc64: verify agrees, too" "$LONGHAUL" verify "$(field receipt "$OUT")" "$DST/small"

# Small files: as sparse as they were; what is longer than a pack's leaves its zeros at home.
mkdir -p "$SRC/few" "$DST/few"
at_once() { # NAME BYTES OFFSET LENGTH: a hole with so many bytes of chance in it
    truncate -s "$2" "$SRC/few/$1"
    head -c "$4" /dev/urandom | dd of="$SRC/few/$1" bs=64K seek="$3" oflag=seek_bytes conv=notrunc status=none
}
at_once end $((12 * MIB)) $((12 * MIB - 65536)) 65536
at_once page 102400 40960 4096
at_once middle $((16 * MIB)) $((5 * MIB)) 4096
at_once odd 3333333 2222222 10
truncate -s $((7 * MIB)) "$SRC/few/nothing"
sync -f "$SRC/few"
cp_run "$SRC/few" "$DST/few/"
cp_ends 0 "small files: exit code 0"
holds "small files: $(number bytes) bytes moved, $(number hole_bytes) told" test "$(number bytes)" -le $((6 * MIB)) -a "$(number hole_bytes)" -ge $((33 * MIB))
for name in end page middle odd nothing; do
    is "$(stat -c '%b %s' "$DST/few/few/$name")" "$(stat -c '%b %s' "$SRC/few/$name")" "small files: $name is allocated alike"
    holds "small files: $name is equal" cmp "$SRC/few/$name" "$DST/few/few/$name"
done
holds "small files: verify agrees" "$LONGHAUL" verify "$(field receipt "$OUT")" "$DST/few"

# sync: a hole gets data, data becomes a hole; what is equal does not travel.
mkdir -p "$SRC/dir"
islands "$SRC/dir/changing" $((1 << 28)) $((8 * MIB)) $((200 * MIB))
mkdir -p "$DST/sync"
cp_run "$SRC/dir/changing" "$DST/sync/"
head -c 100 /dev/urandom | dd of="$SRC/dir/changing" bs=1 seek=$((100 * MIB + 7)) conv=notrunc status=none
fallocate --punch-hole --offset $((8 * MIB)) --length $((3 * MIB)) "$SRC/dir/changing"
cp_run_as sync "$SRC/dir" "$DST/sync"
is "$STATUS $(number bytes)" "0 $((3 * MIB))" "sync: three chunks differ, and travel, whatever they hold"
holds "sync: equal, byte by byte" cmp "$SRC/dir/changing" "$DST/sync/changing"
holds "sync: allocated alike" alike "$SRC/dir/changing" "$DST/sync/changing"
cp_run --checksum "$SRC/dir/changing" "$DST/sync/"
is "$STATUS $(number bytes)" "0 0" "--checksum: nothing differs, nothing is sent"

# A hole that gets data while the file is on its way: torn, not published.
islands "$SRC/torn" $((1 << 33)) 0
random_file "$LAB/fill" $((96 * MIB))
dd if="$LAB/fill" of="$SRC/torn" bs=1M seek=1000 conv=notrunc status=none
mkdir -p "$DST/torn"
start a "$LONGHAUL" cp --json --rate 400Mbit "$SRC/torn" "$DST/torn/" >"$LAB/torn.json" 2>&1 </dev/null
begun "$DST/torn"
sleep 0.3
printf 'in the hole' | dd of="$SRC/torn" bs=1 seek=$((5 << 30)) conv=notrunc status=none
wait "$STARTED_PID"
is "$?" 4 "a hole that got data in mid-job: torn, exit code 4"
is "$(find "$DST/torn" -type f -name torn | wc -l)" 0 "torn: nothing stands under its name"

# Killed in the middle, and again: the islands that came are not sent again.
start a "$LONGHAUL" cp --json --rate 400Mbit "$SRC/torn" "$DST/torn/" >"$LAB/cut.json" 2>&1 </dev/null
journalled "$DST/torn"
stop "$STARTED_PID" KILL
cp_run "$SRC/torn" "$DST/torn/"
cp_ends 0 "killed and run again: exit code 0"
holds "killed and run again: $(number resumed_bytes) bytes of data were there, $(number bytes) came, $(number hole_bytes) are holes" test "$(number resumed_bytes)" -gt 0 -a "$(number hole_bytes)" -gt $((7 << 30))
holds "killed and run again: equal where there is data, allocated alike" alike "$SRC/torn" "$DST/torn/torn"
finish
