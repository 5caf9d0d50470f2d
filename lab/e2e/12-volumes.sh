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

# --- a volume that is not there is not an empty one ---
missing=$(find "${VOLUMES[2]}/tree" -type f ! -name '.*' | wc -l)
cp_run --join "${VOLUMES[0]}/tree" "${VOLUMES[1]}/tree" "${VOLUMES[3]}/tree" "$DST/partial"
cp_ends "5|3" "a volume is missing ($missing files): the exit code says so"
holds "the missing volume is named" grep -q "volume 2 of 4" "$OUT" "$ERR"
holds "what the others hold is there" [ "$(find "$DST/partial" -type f | wc -l)" -gt 5 ]
mkdir -p "$DST/stranger"
cp_run --stripe file "$SRC/tree" "${VOLUMES[@]}" "$DST/stranger"
cp_ends 2 "a folder that is not of the set: refused before anything is written"
cp_run --stripe file "$SRC/tree" "${VOLUMES[0]}" "${VOLUMES[0]}/."
cp_ends 2 "the same volume twice: refused"
cp_run --stripe file "$SRC/tree" "$DST/v0" "$DST/nowhere"
cp_ends "5|2|22" "a volume that is not mounted: refused"
finish
