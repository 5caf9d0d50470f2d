#!/usr/bin/env bash
# Caps are those of a key, whatever the number of its jobs, and hold for small files as for large ones, over any two seconds.
source "$(dirname "$0")/check.sh"

PORT=7440
# gauge FILE: counts the wire's bytes every 50 ms until it is stopped.
gauge() {
    python3 - "$1" "${HOLDER_A:-self}" <<'END' &
import sys, time
out, holder = open(sys.argv[1], "w"), sys.argv[2]
card = "lo:" if holder == "self" else "lh0:"
while True:
    for line in open(f"/proc/{holder}/net/dev"):
        if line.strip().startswith(card):
            words = line.split(":")[1].split()
            out.write(f"{time.monotonic():.3f} {int(words[0]) + (0 if card == 'lo:' else int(words[8]))}\n")
            out.flush()
    time.sleep(0.05)
END
    GAUGE=$!
    STARTED+=("$GAUGE")
}
# peak FILE: the most bytes of any 2 s, and the bytes of all.
peak() {
    python3 - "$1" <<'END'
import sys
seen = [tuple(map(float, line.split())) for line in open(sys.argv[1]) if line.count(" ") == 1]
best = at = 0
for to, (then, bytes_) in enumerate(seen):
    while seen[at][0] < then - 2.0:
        at += 1
    best = max(best, bytes_ - seen[at][1])
print(int(best), int(seen[-1][1] - seen[0][1]))
END
}
# holds_over WORDS RATE FILE: no 2 s had more than RATE bit/s and a tenth; headers of packets (6 %) and the sampling (50 ms) are allowed for.
holds_over() {
    local most
    most=$(peak "$3" | cut -d' ' -f1)
    holds "$1: at most $((most * 4)) bit/s over any 2 s" test $((most * 4 * 100)) -le $(($2 * 119))
}

# --- one job: small files and a large one, each way ---
random_file "$SRC/large.bin" 1000000
mkdir -p "$SRC/small" "$DST/in"
for n in $(seq 100); do random_file "$SRC/small/$n" 10000; done
key_a=$(on a "$LONGHAUL" key show | grep -o 'longhaul-ed25519 [^ ]*' | head -n 1)
key_b=$(on b "$LONGHAUL" key show | grep -o 'longhaul-ed25519 [^ ]*' | head -n 1)
# shellcheck disable=SC2086
on a "$LONGHAUL" key trust "$ADDR_B:$PORT" $key_b >/dev/null
# shellcheck disable=SC2086
on b "$LONGHAUL" key authorize --rate 1Mbit $key_a >/dev/null
start b "$LONGHAUL" serve --root "$DST" --listen "$ADDR_B:$PORT" >"$LAB/serve" 2>&1 </dev/null
SERVE_PID=$STARTED_PID
until_true 10 listening b $PORT
door="longhaul://$ADDR_B:$PORT"
for what in large.bin small; do
    for transport in tcp udp; do
        gauge "$LAB/gauge"
        cp_run --transport $transport "$SRC/$what" "$door/in/$transport-$what"
        kill "$GAUGE"
        cp_ends 0 "$what over $transport at 1 Mbit/s: exit code 0"
        holds "$what over $transport at 1 Mbit/s: 8 Mbit take 8 s within a tenth ($TOOK ms)" test "$TOOK" -ge 7200 -a "$TOOK" -le 12000
        holds_over "$what over $transport" 1000000 "$LAB/gauge"
    done
done
gauge "$LAB/gauge"
cp_run "$door/in/tcp-large.bin" "$DST/fetched.bin"
kill "$GAUGE"
cp_ends 0 "fetched at 1 Mbit/s: exit code 0"
holds "fetched at 1 Mbit/s: 8 Mbit take 8 s within a tenth ($TOOK ms)" test "$TOOK" -ge 7200 -a "$TOOK" -le 12000
holds_over "fetched" 1000000 "$LAB/gauge"

# --- six jobs of one key, three each way, one after another in two of them ---
# shellcheck disable=SC2086
on b "$LONGHAUL" key authorize --rate 20Mbit $key_a >/dev/null
random_file "$DST/give.bin" 4000000
random_file "$SRC/take.bin" 4000000
gauge "$LAB/gauge"
began=$(date +%s%N)
pids=()
for n in 1 2 3; do
    start a "$LONGHAUL" cp --json "$SRC/take.bin" "$door/six-$n.bin" >"$LAB/up-$n" 2>&1 </dev/null
    pids+=("$STARTED_PID")
    start a "$LONGHAUL" cp --json "$door/give.bin" "$LAB/six-$n.bin" >"$LAB/down-$n" 2>&1 </dev/null
    pids+=("$STARTED_PID")
done
bad=0
for pid in "${pids[@]}"; do wait "$pid" || bad=$((bad + 1)); done
took=$((($(date +%s%N) - began) / 1000000))
kill "$GAUGE"
is $bad 0 "six jobs of one key at once: all end with exit code 0"
holds "six jobs of one key with 192 Mbit under 20 Mbit/s take 9.6 s within a tenth ($took ms)" test $took -ge 8640 -a $took -le 14000
holds_over "six jobs of one key" 20000000 "$LAB/gauge"
holds "and bring what they should" cmp "$SRC/take.bin" "$DST/six-3.bin"
holds "both ways" cmp "$DST/give.bin" "$LAB/six-3.bin"
stop "$SERVE_PID"
finish
