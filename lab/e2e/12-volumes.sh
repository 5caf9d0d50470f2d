#!/usr/bin/env bash
# N disks as one job: a tree dealt out to volumes, joined again on the way back, a volume that is missing told by name.
source "$(dirname "$0")/check.sh"

MIB=$((1024 * 1024))
VOLUMES=("$DST"/v0 "$DST"/v1 "$DST"/v2 "$DST"/v3)
mkdir -p "${VOLUMES[@]}"
python3 "$E2E/tree.py" make "$SRC/tree" 5
for n in 0 1 2 3 4 5 6 7; do random_file "$SRC/tree/big/$n.bin" $((20 * MIB + n)); done
random_file "$SRC/tree/big/odd.bin" $((3 * MIB + 17))
ln "$SRC/tree/big/odd.bin" "$SRC/tree/big/same.bin"
bytes_on() { find "$1" -type f -printf '%s\n' | awk '{ sum += $1 } END { printf "%d", sum }'; }

# --- by file: every file whole on one volume, none on two, all volumes used ---
cp_run --stripe file "$SRC/tree" "$DST/v{0..3}"
cp_ends 0 "by file: exit code 0"
receipt=$(field receipt "$OUT")
is "$(grep -c '^stripe file 4$' "$receipt")" 1 "the receipt says what was dealt out, and to how many"
is "$(find "${VOLUMES[@]}" -name '*.bin' ! -type d -printf '%P\n' | sort | uniq -d | wc -l)" 0 "no name stands on two volumes"
least=$(for volume in "${VOLUMES[@]}"; do bytes_on "$volume"; echo; done | sort -n | head -n 1)
holds "each volume has its part of the bytes (the least: $least)" [ "$least" -ge $((20 * MIB)) ]
holds "verify knows the set" "$LONGHAUL" verify "$receipt" "$DST/v{0..3}"
cp_run --join "$DST/v{0..3}/tree" "$DST/back"
cp_ends 0 "joined: exit code 0"
same "$SRC/tree" "$DST/back" "joined: equal to the source"

# --- again, and after a change: what stands somewhere is found where it stands ---
cp_run --stripe file "$SRC/tree" "${VOLUMES[@]}"
is "$STATUS $(number bytes)" "0 0" "again, the shell having expanded the set: nothing is sent"
printf changed >>"$SRC/tree/big/3.bin"
cp_run --stripe file "$SRC/tree" "$DST/v*"
is "$STATUS $(find "${VOLUMES[@]}" -name 3.bin | wc -l)" "0 1" "a changed file replaces the one that stands there"
on a rm -rf "$DST/back"
cp_run --join "${VOLUMES[@]/%//tree}" "$DST/back"
same "$SRC/tree" "$DST/back" "joined after the change: equal"
cp_run_as sync --delete --stripe file "$SRC/tree/big" "$DST/v{0..3}/tree/big"
is "$STATUS $(number bytes)" "0 0" "sync of a folder on the set: nothing to send, nothing to remove"

# --- over the wire, both ways ---
mkdir -p "$DST/root/d0" "$DST/root/d1" "$DST/root/d2"
serve b "$DST/root" || { not_ok "serve prints its address"; finish; }
cp_run --stripe file "$SRC/tree" "${URL}d{0..2}"
cp_ends 0 "to a daemon's volumes: exit code 0"
is "$(find "$DST/root" -name '*.bin' ! -type d -printf '%P\n' | grep -c .)" 10 "to a daemon's volumes: each file once"
cp_run --join "${URL}d{0..2}/tree" "$DST/pulled"
cp_ends 0 "from a daemon's volumes: exit code 0"
same "$SRC/tree" "$DST/pulled" "from a daemon's volumes: equal"
from=$URL
mkdir -p "$DST/third/d0" "$DST/third/d1"
if PORT=7441 serve a "$DST/third"; then
    cp_run --join --stripe chunk "${from}d{0..2}/tree" "${URL}d{0..1}"
    cp_ends 0 "from one daemon's set of three to another's of two, by chunk: exit code 0"
    is "$(grep -c '^stripe chunk 2$' "$LAB/home-b/receipts/$(basename "$(field receipt "$OUT")")" 2>/dev/null)" 1 "the receipt at the source's host says what was dealt out"
    cp_run --join "${URL}d{0..1}/tree" "$DST/steered"
    same "$SRC/tree" "$DST/steered" "from one daemon's set to another's: equal"
    cp_run --join "${from}d{0..2}/tree" "${URL}one"
    same "$SRC/tree" "$DST/third/one" "from one daemon's set to another's folder: equal"
else
    not_ok "a second daemon"
fi
URL=$from

# --- a volume that is not there is not an empty one ---
missing=$(find "${VOLUMES[2]}/tree" -type f ! -name '.*' | wc -l)
cp_run --join "${VOLUMES[0]}/tree" "${VOLUMES[1]}/tree" "${VOLUMES[3]}/tree" "$DST/partial"
cp_ends 5 "a volume is missing ($missing files): the exit code says so"
holds "the missing volume is named" grep -q "volume 2 of 4" "$OUT" "$ERR"
holds "what the others hold is there" [ "$(find "$DST/partial" -type f | wc -l)" -gt 5 ]
mkdir -p "$DST/stranger"
cp_run --stripe file "$SRC/tree" "${VOLUMES[@]}" "$DST/stranger"
cp_ends 2 "a folder that is not of the set: refused before anything is written"
cp_run --stripe file "$SRC/tree" "${VOLUMES[0]}" "${VOLUMES[0]}/."
cp_ends 2 "the same volume twice: refused"
cp_run --stripe file "$SRC/tree" "$DST/v0" "$DST/nowhere"
cp_ends 5 "a volume that is not mounted: refused"

# --- a disk dies while it is written: it is named and out, the others take what it should have taken ---
# dying HOST FOLDER: there, FOLDER/v1 is a file system that is to die.
dying() {
    mkdir -p "$2"/{v0,v1,v2}
    truncate -s 300M "$2/disk"
    mkfs.ext4 -q -J size=4 "$2/disk" && on "$1" mount -o loop "$2/disk" "$2/v1"
}
# dies HOST FOLDER: once more than 16 MiB are on it, all that it is asked ends in EIO (EXT4_IOC_SHUTDOWN of the kernel's ext4.h).
dies() {
    on "$1" python3 - "$2/v1" <<'EOF'
import fcntl, os, struct, sys, time
begun = os.statvfs(sys.argv[1]).f_bfree
open(sys.argv[1] + "/../looking", "w").close()
for _ in range(6000):
    now = os.statvfs(sys.argv[1])
    if (begun - now.f_bfree) * now.f_bsize > 16 << 20:
        fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack("I", 2))
        break
    time.sleep(0.002)
EOF
}
# survives HOST FOLDER DESTINATION STRIPE: a job to a set with a disk that dies is whole all the same.
survives() {
    cp_run --stripe "$4" "$SRC/tree/big/odd.bin" "$3v{0..2}"
    cp_ends 0 "three volumes, all well: exit code 0"
    dies "$1" "$2" &
    until_true 20 test -e "$2/looking"
    cp_run --stripe "$4" --rate 1Gbit "$SRC/tree" "$3v{0..2}"
    wait $!
    cp_ends 0 "by $4, one of three dies in the job: the job is whole all the same"
    holds "the disk that died is named" grep -q "/v1' (.*): out of the set" "$OUT" "$ERR"
    receipt=$(field receipt "$OUT")
    is "$(grep -c '^f - ' "$receipt")" 0 "the receipt knows every digest, also those of the first pass"
    on a rm -rf "$DST/survived"
    cp_run --join "$2/v0/tree" "$2/v2/tree" "$DST/survived"
    same "$SRC/tree" "$DST/survived" "what the others hold is equal to the source"
    on "$1" umount -l "$2/v1"
}
if dying a "$DST/sick" 2>/dev/null; then
    survives a "$DST/sick" "$DST/sick/" file
    dying b "$DST/root/sick" && survives b "$DST/root/sick" "${URL}sick/" file
    dying a "$DST/sick2" && survives a "$DST/sick2" "$DST/sick2/" chunk
else
    skip "no loop device can be mounted here: no disk dies"
fi

# --- a volume that is full is given nothing that it has no room for ---
mkdir -p "$DST"/full/{v0,v1}
if on a mount -t tmpfs -o size=8m tmpfs "$DST/full/v1" 2>/dev/null; then
    cp_run --stripe file "$SRC/tree" "$DST/full/v{0,1}"
    cp_ends 0 "one of two has little room: the other takes what does not fit"
    cp_run --join "$DST/full/v{0,1}/tree" "$DST/unfull"
    cp_ends 0 "joined from a disk and from memory: exit code 0"
    same "$SRC/tree" "$DST/unfull" "all of it stands on the two"
else
    skip "no tmpfs can be mounted here: no volume is full"
fi

# --- by chunk: one file over all volumes; its name stands on one of them ---
CHUNKED=("$DST"/c{0..3})
mkdir -p "${CHUNKED[@]}"
rm -rf "$SRC/tree/big"/{1,2,3,4,5,6,7}.bin
random_file "$SRC/tree/one.bin" $((60 * MIB + 77))
ln "$SRC/tree/one.bin" "$SRC/tree/two.bin"
cp_run --stripe chunk "$SRC/tree" "$DST/c{0..3}"
cp_ends 0 "by chunk: exit code 0"
receipt=$(field receipt "$OUT")
is "$(grep -c '^stripe chunk 4$' "$receipt")" 1 "by chunk: the receipt says so"
is "$(find "${CHUNKED[@]}" -name one.bin | wc -l)" 1 "by chunk: the name stands on one volume"
least=$(for volume in "${CHUNKED[@]}"; do du -s --block-size=1M "$volume" | cut -f 1; done | sort -n | head -n 1)
holds "by chunk: each volume has its part of one file (the least: $least MiB)" [ "$least" -ge 8 ]
holds "by chunk: verify reads the set" "$LONGHAUL" verify "$receipt" "$DST/c{0..3}"
cp_run --join "$DST/c{0..3}/tree" "$DST/unchunked"
cp_ends 0 "by chunk, joined: exit code 0"
same "$SRC/tree" "$DST/unchunked" "by chunk, joined: equal to the source"
cp_run --join "$DST/c{0..3}/tree/one.bin" "$DST/alone.bin"
holds "by chunk: one file alone is joined" cmp "$SRC/tree/one.bin" "$DST/alone.bin"
cp_run --stripe chunk "$SRC/tree" "$DST/c{0..3}"
is "$STATUS $(number bytes)" "0 0" "by chunk, again: nothing is sent"
printf changed >>"$SRC/tree/one.bin"
cp_run --stripe chunk "$SRC/tree" "$DST/c{0..3}"
is "$STATUS $(find "${CHUNKED[@]}" -name '.longhaul-*.map' -printf '%f\n' | sort -u | wc -l)" "0 3" "by chunk: a changed file replaces the old one and all its pieces"
cp_run_as sync --delete --stripe chunk "$SRC/tree/big" "$DST/c{0..3}/tree/big"
is "$STATUS $(number bytes)" "0 0" "by chunk: sync has nothing to do"
cp_run --stripe chunk "$SRC/tree" "${URL}d{3..5}"
cp_ends 5 "by chunk: a volume that is not there is refused"
mkdir -p "$DST/root"/d{3..5}
cp_run --stripe chunk --transport udp "$SRC/tree" "${URL}d{3..5}"
cp_ends 0 "by chunk, to a daemon's volumes over UDP: exit code 0"
cp_run --join "${URL}d{3..5}/tree" "$DST/pulled2"
cp_ends 0 "by chunk, from a daemon's volumes: exit code 0"
same "$SRC/tree" "$DST/pulled2" "by chunk, there and back: equal"

# --- of a changed version only what differs travels; the rest is carried over where it stands ---
python3 - "$SRC/tree/one.bin" <<'EOF'
import os, sys
file = os.open(sys.argv[1], os.O_RDWR)
for chunk in (5, 40):
    os.pwrite(file, bytes([os.pread(file, 1, chunk << 20)[0] ^ 1]), chunk << 20)
EOF
for set in "$DST/c{0..3}/tree" "${URL}d{3..5}/tree"; do
    cp_run_as sync -v --stripe chunk "$SRC/tree" "$set"
    is "$STATUS $(number bytes)" "0 $((2 * MIB))" "by chunk: sync sends the two chunks that differ, and no other"
    holds "by chunk: they are named" grep -Eq '(one|two).bin: 2 of 61 chunks of 1048576 bytes differ: 5, 40' "$OUT" "$ERR"
done
receipt=$(field receipt "$OUT")
touch "$SRC/tree/one.bin"
cp_run_as sync --stripe chunk "$SRC/tree" "$DST/c{0..3}/tree"
is "$STATUS $(number bytes)" "0 0" "by chunk: of a file with another time nothing is sent"
is "$(find "${CHUNKED[@]}" -name '.longhaul-*.map' -printf '%f\n' | sort -u | wc -l)" 3 "by chunk: the old version and all its pieces are gone"
cp_run --join "$DST/c{0..3}/tree" "$DST/compared"
same "$SRC/tree" "$DST/compared" "by chunk, compared and joined: equal to the source"
holds "by chunk: what was carried over at the daemon is what its receipt says" "$LONGHAUL" verify "$receipt" "$DST/root/d{3..5}/tree"

# --- what makes no sense is refused, what is missing or rotten is named ---
cp_run "$(find "${CHUNKED[@]}" -name one.bin)" "$DST/torn.bin"
cp_ends 2 "by chunk: a piece is not read as a file"
cp_run --stripe file "$SRC/tree" "$DST/c{0..3}"
cp_ends 2 "by chunk: the set is not used by file"
cp_run "$SRC/tree" "$DST/c1/"
cp_ends 2 "by chunk: no plain copy into one of its volumes"
cp_run --stripe chunk "$SRC/tree" "$DST/v{0..3}"
cp_ends 2 "by file: the set is not used by chunk"
home=$(find "${CHUNKED[@]}" -name one.bin -printf '%H\n' | grep -o '.$')
gone=$((home == 2 ? 1 : 2)) # without its name a file is not there at all
left=()
for volume in "${CHUNKED[@]}"; do [ "$volume" = "$DST/c$gone" ] || left+=("$volume/tree"); done
cp_run --join "${left[@]}" "$DST/partial2"
cp_ends 5 "by chunk: a volume is missing: the exit code says so"
holds "by chunk: the missing volume is named" grep -q "volume $gone of 4" "$OUT" "$ERR"
holds "by chunk: the file is named with what is missing of it" grep -Eq "[0-9]+ of its 61 chunks" "$OUT" "$ERR"
holds "by chunk: what cannot be joined is not there" [ ! -e "$DST/partial2/one.bin" ]
piece=$(find "$DST/c1/tree" "$DST/c2/tree" -maxdepth 1 -name '.longhaul-*.chunks' | head -n 1)
python3 - "$piece" <<'EOF'
import os, sys
file = os.open(sys.argv[1], os.O_RDWR)
at = os.lseek(file, 0, os.SEEK_DATA)
os.pwrite(file, bytes([os.pread(file, 1, at)[0] ^ 1]), at)
EOF
cp_run --join "$DST/c{0..3}/tree" "$DST/rotten"
cp_ends 23 "by chunk: a byte rotted on a disk: the exit code says so"
holds "by chunk: the chunk and its volume are named" grep -Eq "chunk [0-9]+ on volume [12]" "$OUT" "$ERR"

# --- kill -9 in mid-job: nothing has its name, and the next run sends what is missing ---
random_file "$SRC/slow.bin" $((80 * MIB + 5))
start a "$LONGHAUL" cp --stripe chunk --rate 200Mbit "$SRC/slow.bin" "${CHUNKED[@]}" >"$LAB/killed" 2>&1 </dev/null
pid=$STARTED_PID
maps() { [ "$(find "${CHUNKED[@]}" -maxdepth 1 -name '.longhaul-*.map' -size +0 | wc -l)" = 4 ]; }
until_true 20 maps
kill -9 "$pid"
wait "$pid" 2>/dev/null
is "$(find "${CHUNKED[@]}" -maxdepth 1 -name slow.bin | wc -l)" 0 "by chunk, killed: the file has no name yet"
cp_run --stripe chunk "$SRC/slow.bin" "${CHUNKED[@]}"
cp_ends 0 "by chunk, killed: the next run ends it"
holds "by chunk, killed: what was there is not sent again ($(number resumed_bytes) bytes)" [ "$(number resumed_bytes)" -gt 0 ]
cp_run --join "$DST/c{0..3}/slow.bin" "$DST/slow.bin"
holds "by chunk, killed: joined, it is the source" cmp "$SRC/slow.bin" "$DST/slow.bin"
finish
