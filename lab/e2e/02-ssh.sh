#!/usr/bin/env bash
# user@host:path: the far side is started through a real sshd, with and without a binary of its own.
source "$(dirname "$0")/check.sh"

if ! sshd_up b; then
    skip "all checks over ssh: $SSHD_WHY"
    finish
fi
python3 "$E2E/tree.py" make "$SRC/odd" 11
random_file "$SRC/big.bin" $((48 << 20))
mkdir -p "$DST/push" "$DST/pull" "$DST/brought" "$LAB/empty"

cp_run --ssh "$SSH" --remote-binary "$LONGHAUL" "$SRC/odd" "$SRC/big.bin" "root@$ADDR_B:$DST/push/"
cp_ends 0 "push over ssh: exit code 0"
same "$SRC" "$DST/push" "push over ssh: equal"

# The client goes when it has its own last word; the far side still has its receipt to flush.
printf '#!/bin/sh\nLONGHAUL_HOME=%q exec %q "$@"\n' "$LAB/home-far" "$LONGHAUL" >"$LAB/far-longhaul"
chmod +x "$LAB/far-longhaul"
for turn in 1 2 3 4 5 6; do
    rm -rf "$LAB/home-far" "$DST/push/big.bin"
    cp_run --ssh "$SSH" --remote-binary "$LAB/far-longhaul" "$SRC/big.bin" "root@$ADDR_B:$DST/push/"
    receipt=$(find "$LAB/home-far" -name '*.receipt' -exec cat {} +)
    is "$STATUS $(grep -c '^signed' <<<"$receipt") $(find "$LAB/home-far" -name '*.part' | wc -l)" "0 2 0" "push over ssh: the far side holds the receipt with both signatures ($turn)"
done

cp_run --ssh "$SSH" --remote-binary "$LONGHAUL" "root@$ADDR_B:$DST/push/odd" "$DST/pull/"
cp_ends 0 "pull over ssh: exit code 0"
same "$SRC/odd" "$DST/pull/odd" "pull over ssh: equal"

# A run before may have brought this very build.
for build in ~/.cache/longhaul/bin/longhaul-*; do
    ! cmp -s "$build" "$LONGHAUL" || rm -f "$build"
done
holds "the far side has no longhaul of its own" on a $SSH "root@$ADDR_B" '! command -v longhaul'
cp_run --ssh "$SSH" "$SRC/odd" "root@$ADDR_B:$DST/brought/"
cp_ends 0 "binary missing there: it is brought along, exit code 0"
same "$SRC/odd" "$DST/brought/odd" "binary missing there: equal"
# What travelled, as the copy says it: "longhaul is not on HOST: ...", then "5.9 MB sent".
sent=$(sed -n 's/.*"\([0-9.]* [kMG]B\) sent".*/\1/p' "$OUT" | head -n 1)
megabytes=$(awk -v said="${sent:-999 GB}" 'BEGIN { split(said, it, " "); print it[1] * (it[2] == "GB" ? 1000 : it[2] == "kB" ? 0.001 : 1) }')
whole=$(stat -L -c %s "$LONGHAUL")
if [ "$whole" -le 20000000 ]; then
    # Where the other host has xz; gzip makes a sixth more of it (docs/design/023).
    most=8
    ! command -v xz >/dev/null || most=6
    holds "binary missing there: at most $most MB travel (${sent:-nothing said}, of $whole bytes)" awk -v mb="$megabytes" -v most="$most" 'BEGIN { exit !(mb <= most) }'
    holds "the shipped binary has at most 16 MB ($whole bytes)" test "$whole" -le 16000000
else
    # A build that keeps its debug information is not what is shipped: compressed it is, all the same.
    holds "binary missing there: it travels compressed (${sent:-nothing said}, of $whole bytes)" awk -v mb="$megabytes" -v whole="$whole" 'BEGIN { exit !(mb * 2e6 < whole) }'
fi

cp_run --ssh "$SSH" --remote-binary "$LONGHAUL" "$SRC/big.bin" "root@$ADDR_B:$DST/no/such/folder/x/"
cp_ends 0 "a folder whose parents are missing there is made: exit code 0"
same "$SRC/big.bin" "$DST/no/such/folder/x/big.bin" "a folder whose parents are missing there: equal"

sed -i 's/AAAA[^ ]*/AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f/' "$LAB/ssh/known"
cp_run --ssh "$SSH" "$SRC/odd" "root@$ADDR_B:$DST/brought/"
cp_ends 10 "a host key that ssh does not know stops the job: exit code 10"
holds "and ssh's own words are shown" grep -qiE 'host key|verification' "$ERR" "$OUT"
finish
