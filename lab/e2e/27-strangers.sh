#!/usr/bin/env bash
# 5,000 half-open connections from 1,000 networks: every newcomer, by key or by ticket, is in within 2 s, at its first knock.
LONGHAUL_LAB=loopback # a thousand networks are there on the loopback alone
source "$(dirname "$0")/check.sh"

random_file "$SRC/small.bin" 1000
mkdir -p "$DST"
PORT=7460
if [ "$(ulimit -Hn)" -lt 12000 ]; then
    skip "5,000 half-open connections: this system allows $(ulimit -Hn) descriptors"
    finish
fi
ulimit -n "$(ulimit -Hn)"
key_a=$(on a "$LONGHAUL" key show | grep -o 'longhaul-ed25519 [^ ]*' | head -n 1)
key_b=$(on b "$LONGHAUL" key show | grep -o 'longhaul-ed25519 [^ ]*' | head -n 1)
# shellcheck disable=SC2086
on b "$LONGHAUL" key authorize $key_a >/dev/null
# shellcheck disable=SC2086
on a "$LONGHAUL" key trust "127.0.0.1:$PORT" $key_b >/dev/null
serve b "$DST" -v
# What a client of ours says first, to be said again by people who go no further.
python3 "$E2E/halfopen.py" record $((PORT + 1)) "$LAB/hello" >"$LAB/record" &
STARTED+=("$!")
until_true 10 grep -q ready "$LAB/record"
# shellcheck disable=SC2086
on a "$LONGHAUL" key trust "127.0.0.1:$((PORT + 1))" $key_b >/dev/null
cp_run --stall 2 "$SRC/small.bin" "longhaul://127.0.0.1:$((PORT + 1))/x" &
until_true 10 test -s "$LAB/hello"
wait $!
# newcomers: ten by key, ten by ticket; the slowest, in ms, in $SLOWEST.
newcomers() {
    local n
    SLOWEST=0
    for n in $(seq 10); do
        for way in "longhaul://127.0.0.1:$PORT/key-" "${URL}ticket-"; do
            cp_run -v --no-keep "$SRC/small.bin" "$way$1-$n.bin"
            [ "$STATUS" = 0 ] || not_ok "newcomer $n ($1): exit code 0" "$(why)"
            [ "$TOOK" -gt $SLOWEST ] && SLOWEST=$TOOK
            KNOCKS=$((KNOCKS + $(grep -c "trying again" "$ERR")))
        done
    done
}
KNOCKS=0
newcomers quiet
quiet=$SLOWEST
python3 "$E2E/halfopen.py" $PORT 5000 "$LAB/hello" >"$LAB/halfopen" 2>&1 &
crowd=$!
STARTED+=("$crowd")
until_true 60 grep -q standing "$LAB/halfopen"
holds "5,000 stand at the door, from 1,000 networks ($(cat "$LAB/halfopen"))" grep -q "standing 5000" "$LAB/halfopen"
KNOCKS=0
newcomers crowd
holds "all of 20 newcomers are in, the slowest $SLOWEST ms after it was started (alone: $quiet ms)" test $SLOWEST -le $((2000 + quiet))
is $KNOCKS 0 "none had to knock twice"
is "$(find "$DST" -name '*-crowd-*.bin' | wc -l)" 20 "and all files are there"
peak=$(awk '/VmHWM/ { print $2 * 1024 }' "/proc/$SERVE_PID/status")
holds "the daemon's peak is $((peak >> 20)) MiB" test "$peak" -le $((256 << 20))
kill "$crowd"
stop "$SERVE_PID"
finish
