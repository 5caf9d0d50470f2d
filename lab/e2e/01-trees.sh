#!/usr/bin/env bash
# Trees with everything a file system may hold: pushed, pulled, copied locally, from many sources, between two other hosts.
source "$(dirname "$0")/check.sh"

python3 "$E2E/tree.py" make "$SRC/odd" 7
mkdir -p "$DST/push" "$DST/pull" "$DST/local" "$DST/many" "$DST/third"

serve b "$DST/push" || { not_ok "serve prints its address"; finish; }
ok "serve prints its address"
cp_run "$SRC/odd" "$URL"
cp_ends 0 "push: exit code 0"
same "$SRC/odd" "$DST/push/odd" "push: names, kinds, modes, times and bytes are equal"
is "$(find "$DST/push" -name '.longhaul-*' | wc -l)" 0 "push: no partial file or journal is left"
receipt=$(field receipt "$OUT")
holds "push: there is a receipt" test -s "$receipt"
theirs=$(find "$LAB/home-b" -name "$(basename "$receipt")")
holds "push: both ends hold the same one, by another file" eval '[ ! "$receipt" -ef "$theirs" ] && cmp "$receipt" "$theirs"'
is "$(grep -c '^signed ' "$receipt") $(grep '^signed ' "$receipt" | sort -u | wc -l)" "2 2" "push: with a signature of each"
for altered in "s/^f .\(.\)/f \1\1/;t done;b;:done" "s/^end \([0-9]*\) /end 1\1 /" "s/^job ./job x/" "\$ s/.\$/A/" "0,/^f /{/^f /d}"; do
    sed "$altered" "$receipt" >"$LAB/altered.receipt"
    if cmp -s "$receipt" "$LAB/altered.receipt"; then not_ok "receipts: '$altered' alters one"; fi
    on b "$LONGHAUL" verify "$LAB/altered.receipt" "$DST/push" >"$LAB/altered.out" 2>&1
    is "$? $(grep -c 'nothing was compared with this one' "$LAB/altered.out")" "40 1" "receipts: one altered by '$altered' is refused, and nothing compared with it"
done
sed "/^signed receiver/d" "$receipt" >"$LAB/altered.receipt"
on b "$LONGHAUL" verify "$LAB/altered.receipt" "$DST/push" >"$LAB/altered.out" 2>&1
is "$(grep -c 'signed by sender lh:[a-z2-7]*$' "$LAB/altered.out")" 1 "receipts: one whose other signature was taken off is said to be signed by one end alone"
holds "verify finds every byte of it" on b "$LONGHAUL" verify "$receipt" "$DST/push"

# What stands there, by all that a rewrite would change: numbers of inodes and times of their change (of files: folders have their times set again, links are made again).
standing() { find "$1" -type f -printf '%i %C@ %P\n' | sort; }
standing "$DST/push" >"$LAB/before"
begin=$(wire)
cp_run "$SRC/odd" "$URL"
crossed=$(($(wire) - begin))
cp_ends 0 "the same again: exit code 0"
is "$(number bytes)" 0 "the same again: no payload is sent"
payload=$(find "$SRC/odd" -type f ! -size +1G -printf '%s\n' | awk '{ n += $1 } END { print n }')
holds "the same again: by the kernel's counters, $crossed bytes crossed of $payload" test "$crossed" -le $((20000 + 400 * $(find "$SRC/odd" -printf x | wc -c)))
standing "$DST/push" >"$LAB/after"
holds "the same again: no file that stands there was touched" cmp "$LAB/before" "$LAB/after"
is "$(number kept_files)" "$(find "$SRC/odd" -type f -printf x | wc -c)" "the same again: every file is kept"

printf 'changed' >"$SRC/odd/size-4096"
cp_run "$SRC/odd" "$URL"
is "$STATUS $(number files) $(number bytes)" "0 1 7" "one file changed: exactly that one is sent"
standing "$DST/push" >"$LAB/after"
is "$(diff "$LAB/before" "$LAB/after" | sed -n 's/^[<>] [^ ]* [^ ]* //p' | sort -u)" "odd/size-4096" "one file changed: no other that stands there was touched"
same "$SRC/odd" "$DST/push/odd" "one file changed: equal again"

before=$(find "$DST/push" -printf . | wc -c)
random_file "$SRC/new.bin" 100000
cp_run --dry-run "$SRC/new.bin" "$URL"
is "$STATUS $(find "$DST/push" -printf . | wc -c)" "0 $before" "--dry-run changes nothing"

cp_run "$SRC/new.bin" "${URL}renamed.bin"
cp_ends 0 "one file under another name: exit code 0"
same "$SRC/new.bin" "$DST/push/renamed.bin" "one file under another name: equal"

cp_run "$SRC/new.bin" "$SRC/odd/plain" "$SRC/odd/links" "${URL}several/"
cp_ends 0 "many sources: exit code 0"
mkdir -p "$LAB/want/several" && cp -a "$SRC/new.bin" "$SRC/odd/plain" "$SRC/odd/links" "$LAB/want/several/"
same "$LAB/want/several" "$DST/push/several" "many sources: equal"
stop "$SERVE_PID"

serve b "$SRC" --ro || not_ok "serve --ro"
cp_run "${URL}odd" "$DST/pull/"
cp_ends 0 "pull: exit code 0"
standing "$DST/pull" >"$LAB/before"
cp_run "${URL}odd" "$DST/pull/"
is "$STATUS $(number bytes) $(standing "$DST/pull" | cmp - "$LAB/before" 2>&1)" "0 0 " "pull, again: nothing is sent, nothing touched"
same "$SRC/odd" "$DST/pull/odd" "pull: equal"
from=$URL

PORT=7441 serve a "$DST/third" || not_ok "a second daemon"
cp_run "${from}odd" "$URL"
cp_ends 0 "between two daemons: exit code 0"
same "$SRC/odd" "$DST/third/odd" "between two daemons: equal"

cp_run "$SRC/odd" "$DST/local/"
cp_ends 0 "local: exit code 0"
standing "$DST/local" >"$LAB/before"
cp_run "$SRC/odd" "$DST/local/"
is "$STATUS $(number bytes) $(standing "$DST/local" | cmp - "$LAB/before" 2>&1)" "0 0 " "local, again: nothing is copied, nothing touched"
same "$SRC/odd" "$DST/local/odd" "local: equal"

random_file "$SRC/big.bin" $((37 * 1024 * 1024 + 12345))
mkdir -p "$DST/digest"
for digest in blake3 crc64; do
    cp_run --digest $digest "$SRC/big.bin" "$DST/digest/$digest.bin"
    is "$STATUS $(field digest "$OUT")" "0 $digest" "--digest $digest is what the report says"
    same "$SRC/big.bin" "$DST/digest/$digest.bin" "--digest $digest: equal"
done
cp_run --receipt "$LAB/receipt" "$SRC/big.bin" "$DST/digest/b3.bin"
is "$(awk '$1 == "f" { print $2 }' "$LAB/receipt")" "$(b3 "$SRC/big.bin")" "the receipt holds the BLAKE3 digest that another program finds"

cp_run --streams 1 --driver plain "$SRC/odd" "$DST/local/plain/"
cp_ends 0 "--driver plain: exit code 0"
same "$SRC/odd" "$DST/local/plain/odd" "--driver plain: equal"

# --- flags that no copy may set: told, by file ---
mkdir -p "$SRC/flags"
echo fixed >"$SRC/flags/fixed" && echo grows >"$SRC/flags/grows"
if chattr +i "$SRC/flags/fixed" 2>/dev/null && chattr +a "$SRC/flags/grows" 2>/dev/null; then
    cp_run "$SRC/flags" "$DST/local/"
    is "$STATUS $(grep -o '\["flags",[0-9]*\]' "$OUT" | head -n 1)" '0 ["flags",2]' "immutable and append-only: counted as not kept"
    holds "immutable and append-only: the files are there, and can be removed" rm -r "$DST/local/flags"
    chattr -i "$SRC/flags/fixed" && chattr -a "$SRC/flags/grows"
else
    skip "immutable and append-only flags: they cannot be set here"
fi
finish
