#!/usr/bin/env bash
# cp --transport rdma: both ways over an emulated device, a queue pair that is cut or harmed in mid-job, refusals that say what to do next.
source "$(dirname "$0")/check.sh"

python3 "$E2E/tree.py" many "$SRC/tree" 300
random_file "$SRC/tree/big.bin" $((48 << 20))
random_file "$SRC/one.bin" $((96 << 20))
mkdir -p "$DST/push" "$DST/pull"
EMULATED="--transport rdma --rdma-device emulated"
PORT=7640
proxy() { # proxy FAULT...: a faulty wire on host a before the daemon; sets $VIA, the address to use
    start a python3 "$E2E/proxy.py" "$ADDR_A:7991" "$ADDR_B:$PORT" "$@" >"$LAB/proxy" 2>&1 </dev/null
    PROXY=$STARTED_PID
    until_true 10 grep -q ready "$LAB/proxy"
    VIA="${URL%@*}@$ADDR_A:7991/"
}

# --- push and pull ---
serve b "$DST" --rdma-device emulated
cp_run $EMULATED --explain "$SRC/tree" "${URL}push/"
cp_ends 0 "push over queue pairs: exit code 0"
same "$SRC/tree" "$DST/push/tree" "push over queue pairs: equal"
is "$(field transport "$OUT")" "rdma (emulated)" "push over queue pairs: the report says so"
holds "explain names the transport and why" grep -q '"what":"transport","value":"rdma (emulated)","reason":"[^"]' "$OUT"
cp_run $EMULATED --streams 2 "${URL}push/tree" "$DST/pull/"
cp_ends 0 "pull over two queue pairs: exit code 0"
same "$SRC/tree" "$DST/pull/tree" "pull over two queue pairs: equal"
is "$(field transport "$OUT")" "rdma (emulated)" "pull over queue pairs: the report says so"
holds "each message found a receive" eval '! grep -q "found no receive" "$OUT" "$ERR"'
rm -f "$DST/push/one.bin"
cp_run $EMULATED --rate 400Mbit "$SRC/one.bin" "${URL}push/"
holds "a cap holds over queue pairs: $(number goodput_bps) bit/s" test "$(number goodput_bps)" -lt 410000000
same "$SRC/one.bin" "$DST/push/one.bin" "capped: equal"

# --- a queue pair dies in mid-job ---
for direction in push pull; do
    rm -f "$DST/push/one.bin" "$DST/pull/one.bin"
    proxy cut-rail=30000000
    if [ $direction = push ]; then
        cp_run $EMULATED --streams 1 --rate 400Mbit "$SRC/one.bin" "${VIA}push/"
    else
        cp "$SRC/one.bin" "$DST/push/one.bin"
        cp_run $EMULATED --streams 1 --rate 400Mbit "${VIA}push/one.bin" "$DST/pull/"
    fi
    holds "$direction: the queue pair was cut" grep -q '^cut' "$LAB/proxy"
    cp_ends 0 "$direction: a queue pair that is cut in mid-job: exit code 0"
    is "$(field transport "$OUT")" "rdma (emulated)+tcp" "$direction: its chunks went over TCP, and the report says so"
    same "$SRC/one.bin" "$DST/$direction/one.bin" "$direction: cut in mid-job: equal"
    stop "$PROXY"
done
rm -f "$DST/push/one.bin"
proxy flip-rail=20000000
cp_run $EMULATED "$SRC/one.bin" "${VIA}push/"
holds "a bit of a message was flipped" grep -q flipped "$LAB/proxy"
cp_ends 0 "a flipped bit: exit code 0"
same "$SRC/one.bin" "$DST/push/one.bin" "a flipped bit: equal"
stop "$PROXY"

# --- nobody gets queue pairs that one end did not agree to ---
rm -rf "$DST/push/tree"
cp_run "$SRC/tree" "${URL}push/"
is "$STATUS $(field transport "$OUT")" "0 tcp" "auto does not take an emulated device"
cp_run --transport rdma "$SRC/tree" "${URL}push/"
cp_ends 14 "without a device: refused"
holds "the refusal says what to do next" grep -q -e '--rdma-device emulated' "$OUT" "$ERR"
stop "$SERVE_PID"
PORT=7641
serve b "$DST"
cp_run $EMULATED "$SRC/tree" "${URL}push/"
cp_ends 14 "a daemon that was not asked to emulate: refused"
holds "that refusal says what to do next, too" grep -q 'longhaul serve --rdma-device emulated' "$OUT" "$ERR"
stop "$SERVE_PID"
finish
