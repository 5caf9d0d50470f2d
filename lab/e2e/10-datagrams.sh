#!/usr/bin/env bash
# cp --transport udp: both ways, over bad paths, cut and resumed, blocked, and with forged packets beside it.
source "$(dirname "$0")/check.sh"

python3 "$E2E/tree.py" many "$SRC/tree" 300
random_file "$SRC/tree/big.bin" $((48 << 20))
random_file "$SRC/one.bin" $((96 << 20))

# --- push and pull ---
mkdir -p "$DST/push" "$DST/pull"
serve b "$DST"
cp_run --transport udp "$SRC/tree" "${URL}push/"
cp_ends 0 "push over UDP: exit code 0"
same "$SRC/tree" "$DST/push/tree" "push over UDP: equal"
is "$(field transport "$OUT")" udp "push over UDP: the report says so"
holds "push over UDP: the report has round trip, loss and rate" grep -q '"path":{"controller":"delay","policy":"fair","rtt_ms":[0-9]' "$OUT"
cp_run --transport udp --streams 2 --policy low "${URL}push/tree" "$DST/pull/"
cp_ends 0 "pull over two UDP rails: exit code 0"
same "$SRC/tree" "$DST/pull/tree" "pull over two UDP rails: equal"
is "$(field transport "$OUT")" udp "pull over UDP: the report says so"
rm -rf "$DST/pull/tree"
cp_run --transport udp --explain "${URL}push/tree" "$DST/pull/"
holds "explain names the transport and why" grep -q '"what":"transport","value":"udp, 1 rail","reason":"[^"]' "$OUT"
cp_run --transport auto "$SRC/one.bin" "${URL}push/"
is "$STATUS $(field transport "$OUT")" "0 tcp" "auto: a short path goes over TCP"
for transport in tcp udp; do
    rm -f "$DST/push/one.bin"
    cp_run --transport $transport --rate 400Mbit "$SRC/one.bin" "${URL}push/"
    holds "a cap holds over $transport: $(number goodput_bps) bit/s" test "$(number goodput_bps)" -lt 400000000
    same "$SRC/one.bin" "$DST/push/one.bin" "capped: equal"
done
cp_run --transport udp --policy fixed "$SRC/one.bin" "${URL}push/"
cp_ends 2 "a fixed rate that is not given is a usage error"

# --- cut and resumed ---
rm -f "$DST/push/one.bin"
start a "$LONGHAUL" cp --json --transport udp --rate 300Mbit "$SRC/one.bin" "${URL}push/" >/dev/null 2>&1 </dev/null
pid=$STARTED_PID
journalled "$DST/push"
kill -9 "$pid"
wait "$pid" 2>/dev/null
cp_run --transport udp "$SRC/one.bin" "${URL}push/"
cp_ends 0 "kill -9 in mid-job: the second run ends well"
holds "it resumes: $(number resumed_bytes) bytes were there" test "$(number resumed_bytes)" -gt 0
same "$SRC/one.bin" "$DST/push/one.bin" "resumed: equal"

# --- forged packets: FORGED=N of them (make torture-forged: a million random ones and as many changed) beside a job that lasts as long ---
FORGED=${FORGED:-100000}
if [ -n "$HOLDER_A" ]; then
    rm -f "$DST/push/one.bin" "$DST/push/two.bin"
    cat "$SRC/one.bin" "$SRC/one.bin" "$SRC/one.bin" >"$SRC/two.bin"
    start a python3 "$E2E/forger.py" "$ADDR_A" "$ADDR_B" 7440 "$FORGED" 0 >"$LAB/forged-a" 2>&1
    one=$STARTED_PID
    start b python3 "$E2E/forger.py" "$ADDR_B" "$ADDR_A" 7440 $((FORGED / 5)) 1 >"$LAB/forged-b" 2>&1
    two=$STARTED_PID
    CP_LIMIT=300 cp_run --transport udp --rate "$((FORGED > 100000 ? 12 : 250))Mbit" "$SRC/two.bin" "${URL}push/"
    cp_ends 0 "forged, changed and repeated packets beside the job: exit code 0"
    is "$(field transport "$OUT")" udp "forged: it stayed on UDP"
    same "$SRC/two.bin" "$DST/push/two.bin" "forged: equal"
    wait "$one" "$two" 2>/dev/null
    holds "forged: $(cat "$LAB/forged-a" "$LAB/forged-b")" grep -q 'repeated [1-9][0-9]*, changed [1-9]' "$LAB/forged-a" "$LAB/forged-b"
    rm -f "$SRC/two.bin" "$DST/push/two.bin"
else
    skip "forged packets: needs network namespaces"
fi
stop "$SERVE_PID"

# --- blocked ---
if [ -n "$HOLDER_A" ] && on b ip rule add ipproto udp blackhole 2>/dev/null; then
    rm -rf "$DST/push/tree"
    serve b "$DST"
    cp_run --transport udp "$SRC/tree" "${URL}push/"
    cp_ends 0 "UDP blocked: exit code 0"
    is "$(field transport "$OUT")" tcp "UDP blocked: TCP takes its place"
    is "$(cat "$OUT" "$ERR" | grep -c 'UDP to .* does not get through')" 1 "UDP blocked: one line says so"
    same "$SRC/tree" "$DST/push/tree" "UDP blocked: equal"
    on b ip rule del ipproto udp blackhole
    rm -f "$DST/push/one.bin"
    (begun "$DST/push" && sleep 1 && on b ip rule add ipproto udp blackhole) &
    CP_LIMIT=100 cp_run --transport udp --rate 200Mbit --stall 60 "$SRC/one.bin" "${URL}push/"
    cp_ends 0 "UDP blocked in mid-job: exit code 0"
    is "$(field transport "$OUT")" tcp+udp "UDP blocked in mid-job: TCP brings the rest"
    same "$SRC/one.bin" "$DST/push/one.bin" "UDP blocked in mid-job: equal"
    # Blocked when the job begins, and not any more two seconds after it went over to TCP.
    rm -f "$DST/push/one.bin"
    (begun "$DST/push" && sleep 2 && on b ip rule del ipproto udp blackhole) &
    CP_LIMIT=100 cp_run --transport udp --rate 32Mbit "$SRC/one.bin" "${URL}push/"
    cp_ends 0 "UDP that comes back in mid-job: exit code 0"
    is "$(field transport "$OUT")" tcp+udp "UDP that comes back in mid-job: it is used"
    is "$(cat "$OUT" "$ERR" | grep -c 'UDP to .* gets through after all')" 1 "UDP that comes back in mid-job: one line says so"
    same "$SRC/one.bin" "$DST/push/one.bin" "UDP that comes back in mid-job: equal"
    on b ip rule del ipproto udp blackhole 2>/dev/null
    stop "$SERVE_PID"
else
    skip "UDP blocked: no rule can be made here"
fi

# --- a far side that ssh starts ---
if sshd_up b; then
    mkdir -p "$DST/ssh"
    cp_run --transport udp --ssh "$SSH" --remote-binary "$LONGHAUL" "$SRC/tree" "root@$ADDR_B:$DST/ssh/"
    cp_ends 0 "started through ssh: exit code 0"
    is "$(field transport "$OUT")" udp "started through ssh: data goes over UDP"
    same "$SRC/tree" "$DST/ssh/tree" "started through ssh: equal"
else
    skip "started through ssh: $SSHD_WHY"
fi

# --- long and lossy paths ---
needs_lab
mkdir -p "$DST/far"
cat >"$LAB/far.sh" <<END
set -e
$(far_daemon far 7441)
"$LONGHAUL" cp --json --transport "\$1" \$LAW "$SRC/one.bin" "\$url@10.99.0.2:7441/" >"$LAB/far-push.json"
"$LONGHAUL" cp --json --transport "\$1" "\$url@10.99.0.2:7441/one.bin" "$DST/back.bin" >"$LAB/far-pull.json"
END
far() { # far WORDS TRANSPORT OPTIONS...
    local words=$1 transport=$2
    shift 2
    rm -f "$DST/far/one.bin" "$DST/back.bin" "$LAB/far-serve.out"
    LAW="${LAW:-}" LONGHAUL_HOME="$LAB/home-a" lab run ${LOUD--q} "$@" -- bash "$LAB/far.sh" "$transport" >"$LAB/far.out" 2>&1
    is $? 0 "$words: push and pull end well"
    holds "$words: the push is equal" cmp "$SRC/one.bin" "$DST/far/one.bin"
    holds "$words: the pull is equal" cmp "$SRC/one.bin" "$DST/back.bin"
    is "$(field transport "$LAB/far-push.json") $(field transport "$LAB/far-pull.json")" "udp udp" "$words: over UDP ($(field goodput_bps "$LAB/far-push.json") and $(field goodput_bps "$LAB/far-pull.json") bit/s)"
}
far "50 ms, 1 % loss" udp --rate 500Mbit --rtt 50ms --loss 1%
far "loss, reordering, doubles and turned bits" udp --rate 500Mbit --rtt 20ms --loss 0.5% --reorder 1%/2ms --duplicate 1% --corrupt 0.5%
LAW="--congestion-controller cubic" LOUD= far "marks, CUBIC" udp --rtt 20ms --link "rate=200Mbit ecn=3ms queue=300ms"
holds "marks, CUBIC: it is marked and slows down, nothing is dropped: $(grep -o '[0-9 ]* marked.*' "$LAB/far.out" | head -n 1)" eval 'grep -q "a to b:.* marked" "$LAB/far.out" && ! grep -q "a to b:.* dropped by the full queue" "$LAB/far.out"'
far "auto on 40 ms" auto --rate 500Mbit --rtt 40ms
finish
