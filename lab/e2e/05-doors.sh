#!/usr/bin/env bash
# Who may do what: tickets, keys, read-only and write-only roots, each refusal with its own exit code.
source "$(dirname "$0")/check.sh"

random_file "$SRC/file.bin" 300000
mkdir -p "$DST/w" "$DST/k"
PORT=7440
serve b "$DST/w"
# --- what is there, and nothing above it ---
mkdir -p "$DST/w/listed/deep"
random_file "$DST/w/listed/$(printf 'b\033[31m\377')" 5
ln -s /etc "$DST/w/listed/a"
cp_run_as ls "${URL}listed/"
cp_ends 0 "ls of a folder of a daemon: exit code 0"
is "$(grep -o '"path":"[^"]*"\|"path_hex":"[^"]*"' "$OUT" | cut -d'"' -f4 | tr '\n' ' ')" \
    'a b\\x1b[31m\\xff 621b5b33316dff deep ' "ls: sorted, exact, and without a word to the terminal"
for out in ../src x/../../src .. listed/a/passwd; do
    cp_run_as ls "$URL$out"
    cp_ends 12 "ls above the root, or through a link ('$out'), is refused"
done
cp_run_as ls "${URL}listed/absent"
cp_ends 5 "ls of what is not there: exit code 5"
rm -r "$DST/w/listed"
secret=${URL#longhaul://}
secret=${secret%%@*}
# Other letters in its middle; the last one may hold only part of a byte.
swapped=$(tr 'A-Ma-mN-Zn-z' 'N-Zn-zA-Ma-m' <<<"${secret: -14:10}")
cp_run "$SRC/file.bin" "longhaul://${secret:0:${#secret}-14}$swapped${secret: -4}@$ADDR_B:$PORT/"
cp_ends 12 "a ticket with another secret is refused"
cp_run "$SRC/file.bin" "longhaul://nonsense@$ADDR_B:$PORT/"
cp_ends 2 "nonsense for a ticket is refused"
holds "nothing was written for them" test -z "$(ls -A "$DST/w")"
for out in ../escape ../../escape x/../../escape ../escape/ ..; do
    cp_run "$SRC/file.bin" "$URL$out"
    cp_ends 12 "a destination above the root ('$out') is refused"
    holds "a destination above the root: it is said so" grep -q 'leads out of the folder that is served' "$OUT"
done
is "$(find "$LAB" -name 'escape*' | wc -l) $(ls -A "$DST/w" | wc -l)" "0 0" "and nothing stands there, nor below the root"
cp_run "${URL}../home-b/key" "$DST/stolen"
cp_ends 12 "a source above the root is refused"
holds "and nothing came" test ! -e "$DST/stolen"
stop "$SERVE_PID"
cp_run "$SRC/file.bin" "$URL"
cp_ends 10 "nobody listens: exit code 10"

serve b "$DST/w" --ro
cp_run "$SRC/file.bin" "$URL"
cp_ends 12 "read-only root: exit code 12"
stop "$SERVE_PID"
cp "$SRC/file.bin" "$DST/w/"
serve b "$DST/w" --wo
cp_run "${URL}file.bin" "$DST/out.bin"
cp_ends 12 "write-only root, fetched from: exit code 12"
cp_run_as ls "$URL"
cp_ends 12 "write-only root, listed: exit code 12"
stop "$SERVE_PID"

SERVE_COUNT=$((SERVE_COUNT + 1))
# As it is printed: a daemon on all addresses names those that others reach it by.
start b "$LONGHAUL" serve --root "$DST/w" --listen "0.0.0.0:$PORT" --ticket=once >"$LAB/once" 2>&1 </dev/null
once=$STARTED_PID
until_true 10 grep -q '^longhaul://' "$LAB/once"
URL=$(head -n 1 "$LAB/once")
cp_run "$SRC/file.bin" "${URL}first.bin"
cp_ends 0 "--ticket=once: the first job ends with exit code 0"
cp_run "$SRC/file.bin" "${URL}second.bin"
cp_ends 12 "--ticket=once: a second job is refused"
holds "--ticket=once: nothing of the second job" test ! -e "$DST/w/second.bin"
stop "$once"

# --- keys instead of tickets ---
key_a=$(on a "$LONGHAUL" key show | grep -o 'longhaul-ed25519 [^ ]*\|ed25519:[^ ]*' | head -n 1)
key_b=$(on b "$LONGHAUL" key show | grep -o 'longhaul-ed25519 [^ ]*\|ed25519:[^ ]*' | head -n 1)
if [ -z "$key_a" ]; then
    not_ok "key show prints a key" "$(on a "$LONGHAUL" key show)"
    fi
ok "key show prints a key"
door="$ADDR_B:$PORT"
start b "$LONGHAUL" serve --root "$DST/k" --listen "$door" >"$LAB/keyed" 2>&1 </dev/null
keyed=$STARTED_PID
until_true 10 listening b $PORT
cp_run "$SRC/file.bin" "longhaul://$door/"
cp_ends 11 "an unknown server: exit code 11"
# shellcheck disable=SC2086
on a "$LONGHAUL" key trust "$door" $key_b >/dev/null
cp_run "$SRC/file.bin" "longhaul://$door/"
cp_ends 12 "a client that is not authorised: exit code 12"
# shellcheck disable=SC2086
on b "$LONGHAUL" key authorize $key_a >/dev/null
kill -HUP "$keyed"
cp_run "$SRC/file.bin" "longhaul://$door/"
cp_ends 0 "trusted and authorised: exit code 0"
same "$SRC/file.bin" "$DST/k/file.bin" "trusted and authorised: equal"
# shellcheck disable=SC2086
on b "$LONGHAUL" key authorize --ro $key_a >/dev/null
kill -HUP "$keyed"
sleep 0.2
cp_run "$SRC/file.bin" "longhaul://$door/again.bin"
cp_ends 12 "authorised ro: pushing ends with exit code 12"
cp_run "longhaul://$door/file.bin" "$DST/fetched.bin"
cp_ends 0 "authorised ro: fetching ends with exit code 0"
same "$SRC/file.bin" "$DST/fetched.bin" "authorised ro: equal"
stop "$keyed"
serve b "$DST/w"
cp_run --integrity-only "$SRC/file.bin" "$URL"
cp_ends 14 "in clear without the server's consent is refused: no downgrade"
stop "$SERVE_PID"
serve b "$DST/w" --integrity-only
cp_run --integrity-only "$SRC/file.bin" "${URL}clear.bin"
cp_ends 0 "in clear with both ends' consent: exit code 0"
is "$(field integrity_only "$OUT")" true "in clear: the report says so"
same "$SRC/file.bin" "$DST/w/clear.bin" "in clear: equal"
cp_run --bare "$SRC/file.bin" "$URL"
cp_ends 14 "bare: consent to payload in clear is not enough"
stop "$SERVE_PID"
serve b "$DST/w" --bare
# Files in memory go unread; those of a disk are read, whatever of them is cached, since a page that is not would hold up a worker.
BARE="$SRC"
[ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ] && BARE=$(mktemp -d /dev/shm/longhaul-bare.XXXXXX)
random_file "$BARE/bare.bin" $((40 * 1048576 + 77))
cp_run --bare "$BARE/bare.bin" "$URL"
cp_ends 0 "bare, with both ends' consent: exit code 0"
same "$BARE/bare.bin" "$DST/w/bare.bin" "bare: equal"
is "$(field bare "$OUT") $(field integrity_only "$OUT")" "true false" "bare: the report says so, and does not call it authenticated"
is "$(grep -c '^source unread$' "$(field receipt "$OUT")")" 1 "bare: the receipt says so"
crossed() { tail -n 1 "$OUT" | grep -o '"what":"memory traffic"[^}]*'; }
if [ "$(stat -f -c %T "$BARE")" = tmpfs ]; then
    holds "bare: no step at this end touches the bytes: $(crossed)" grep -q '1.0 crossings.*"network 1.0;' <<<"$(crossed)"
else
    skip "bare, unread: no file system in memory here"
fi
if [ "$(stat -f -c %T "$SRC")" != tmpfs ]; then
    random_file "$SRC/disk.bin" $((20 * 1048576))
    cp_run --bare "$SRC/disk.bin" "$URL"
    holds "bare: what of a disk had to be read is told: $(crossed)" grep -q '"source read [12].[0-9], network [123].[0-9];' <<<"$(crossed)"
    rm -f "$SRC/disk.bin"
fi
cp_run --no-keep "$BARE/bare.bin" "${URL}"
holds "sealed: each step's crossings of memory are told: $(crossed)" grep -q '"source read [12].[0-9], digest 1.0, seal 2.0, network [123].[0-9];' <<<"$(crossed)"
holds "bare: verify compares with what arrived" "$LONGHAUL" verify "$(field receipt "$OUT")" "$DST/w"
cp_run --bare "${URL}bare.bin" "$DST/bare.bin"
cp_ends 0 "bare, pulled: exit code 0"
same "$BARE/bare.bin" "$DST/bare.bin" "bare, pulled: equal"
start a "$LONGHAUL" cp --bare --rate 100Mbit "$BARE/bare.bin" "${URL}short.bin" >"$LAB/short" 2>&1 </dev/null
begun "$DST/w"
truncate -s 1M "$BARE/bare.bin"
wait "$STARTED_PID"
is "$?" 4 "bare: a file that becomes shorter in mid-job is torn"
is "$(find "$DST/w" -name short.bin | wc -l)" 0 "bare, torn: nothing stands under its name"
stop "$SERVE_PID"

# --- revoked: for good, with a ticket or without ---
start b "$LONGHAUL" serve --root "$DST/k" --listen "$door" --ticket >"$LAB/revoked" 2>&1 </dev/null
keyed=$STARTED_PID
until_true 10 grep -q '^longhaul://' "$LAB/revoked"
URL=$(head -n 1 "$LAB/revoked")
# shellcheck disable=SC2086
on b "$LONGHAUL" key revoke $key_a >/dev/null
kill -HUP "$keyed"
sleep 0.2
cp_run "$SRC/file.bin" "longhaul://$door/revoked.bin"
cp_ends 12 "revoked: exit code 12"
holds "revoked: nothing was written" test ! -e "$DST/k/revoked.bin"
cp_run "$SRC/file.bin" "${URL}revoked.bin"
cp_ends 12 "revoked: a ticket does not help, exit code 12"
holds "revoked: nothing was written" test ! -e "$DST/k/revoked.bin"
stop "$keyed"
# The server shows another key than the one we trust.
# shellcheck disable=SC2086
on a "$LONGHAUL" key trust "$door" $key_a >/dev/null 2>&1
start b "$LONGHAUL" serve --root "$DST/k" --listen "$door" >"$LAB/keyed2" 2>&1 </dev/null
keyed=$STARTED_PID
until_true 10 listening b $PORT
cp_run "$SRC/file.bin" "longhaul://$door/again.bin"
cp_ends 11 "a server with another key than the trusted one: exit code 11"
stop "$keyed"

[ "$BARE" = "$SRC" ] || rm -rf "$BARE"
finish
