#!/usr/bin/env bash
# One job over UDP and one TCP stream of the kernel's on one link: who gets what of it.
#
# For:      `make beside`, by hand: fairness beside CUBIC and BBR as they are, not as we model them.
# In, out:  POLICY (fair), RATE (100Mbit), RTT (60ms), SECONDS (30) -> per law and buffer (quarter, one, four products) the shares of the wire from
#           the fifth second on: ours by host b's interface counter less what iperf3 says its stream brought.
# Invariants: both begin within half a second; the stream first.
# Absent on purpose: virtual time (proto/tests/rate_fair.rs), verdicts: the table goes to docs/design/003.

source "$(dirname "$0")/e2e/check.sh"
needs_lab
command -v iperf3 >/dev/null || { skip "beside: no iperf3 here"; finish; }
POLICY=${POLICY:-fair} RATE=${RATE:-100Mbit} RTT=${RTT:-60ms} SECONDS_EACH=${SECONDS_EACH:-30}
random_file "$SRC/one.bin" $((600 << 20))
mkdir -p "$DST/far"
cat >"$LAB/beside.sh" <<'S'
set -e
"$LONGHAUL" lab on b -b --log "$LAB/serve.out" -- "$LONGHAUL" serve --root "$DST/far" --listen "$LONGHAUL_LAB_B:7442" --ticket >/dev/null
"$LONGHAUL" lab on b -b -- iperf3 -s -p 7443 >/dev/null
for _ in $(seq 100); do url=$(grep -m1 '^longhaul://' "$LAB/serve.out") && break; sleep 0.05; done
received() { "$LONGHAUL" lab on b -- awk '/:/ && !/ lo:/ { sub(/.*:/, ""); sum += $1 } END { printf "%.0f", sum }' /proc/net/dev; }
iperf3 -c "$LONGHAUL_LAB_B" -p 7443 -C "$LAW" -t $((SECONDS_EACH + 2)) --json >"$LAB/iperf.json" &
stream=$!
timeout $((SECONDS_EACH + 4)) "$LONGHAUL" cp --json --transport udp --policy "$POLICY" "$SRC/one.bin" "$url" >"$LAB/cp.json" 2>&1 &
job=$!
sleep 5
from=$(received)
sleep $((SECONDS_EACH - 5))
echo $(($(received) - from)) >"$LAB/wire"
wait $stream
kill $job 2>/dev/null || true
wait $job 2>/dev/null || true
S
export LAB DST SRC LONGHAUL SECONDS_EACH POLICY
echo "| $RATE, $RTT, $POLICY beside | ours | theirs | of the link |"
echo "|---|---|---|---|"
for LAW in cubic bbr; do
    export LAW
    for buffer in 0.25bdp 1bdp 4bdp; do
        rm -rf "$DST/far/"* "$DST/far/".l* "$LAB/serve.out" "$LAB/wire"
        LONGHAUL_HOME="$LAB/home-a" timeout 90 "$LONGHAUL" lab run -q --rtt "$RTT" --link "rate=$RATE queue=$buffer" -- bash "$LAB/beside.sh" >"$LAB/beside.out" 2>&1
        python3 - "$LAB/iperf.json" "$LAB/wire" "$SECONDS_EACH" "$LAW, $buffer" "$RATE" <<'P' || { sed 's/^/#   /' "$LAB/beside.out"; continue; }
import json, re, sys
intervals = json.load(open(sys.argv[1]))["intervals"]
wire, seconds = int(open(sys.argv[2]).read()), int(sys.argv[3]) - 5
# Payload of full frames; the wire has 52 B of headers beside 1448.
theirs = sum(i["sum"]["bytes"] for i in intervals if 5 <= i["sum"]["start"] < 5 + seconds) * 1500 / 1448
number, unit = re.match(r"([0-9.]+)(\w)", sys.argv[5]).groups()
link = float(number) * {"M": 1e6, "G": 1e9}[unit] / 8 * seconds
print(f"| {sys.argv[4]} | {(wire - theirs) / link:.2f} | {theirs / link:.2f} | {wire / link:.2f} |")
P
    done
done
finish
