#!/usr/bin/env bash
# What one core per side carries, memory to memory, over UDP: the per-packet socket, the raw GSO -> GRO ceiling and the datagram rail, clear and sealed.
#
# For:      `make host-limit`: CHECKLIST A 1 to 8 (37.75 Gb/s where one socket, packet by packet, does 4.2); the table of docs/design/002.
# In, out:  ROUNDS (5), SECONDS_EACH (2.5 per line, all rounds), MTUS ("1500 9000"), LINES (all) -> per MTU the bench's own table, then rate, processor
#           time per byte and the two ratios that are promised; all of it as JSON in target/bench/host-limit.json.
# Invariants: two namespaces joined by veth, no emulator; the sender on core 0, the receiver on core 1; all lines of a table in one run, in turn.
# Absent on purpose: verdicts; other programs on the machine are not kept away: its load stands beside the figures.

source "$(dirname "$0")/hosts.sh"
hosts_enter "$0" "$@"
hosts_up
[ -n "$HOLDER_A" ] || { echo "host limit: two network namespaces are needed, and cannot be made here"; exit 1; }
[ "$(nproc)" -ge 2 ] || { echo "host limit: needs a core for each side"; exit 1; }
ROUNDS=${ROUNDS:-5} SECONDS_EACH=${SECONDS_EACH:-2.5}
options=(--udp --in-one-go --rounds "$ROUNDS" --seconds "${SECONDS_EACH}s" --json)
for line in ${LINES:-}; do options+=(--only "$line"); done
OUT="${OUT:-$ROOT_DIR/target/bench/host-limit.json}"
: >"$LAB/all"
for mtu in ${MTUS:-1500 9000}; do
    on a ip link set lh0 mtu "$mtu" && on b ip link set lh0 mtu "$mtu" || exit 1
    start b taskset -c 1 "$LONGHAUL" bench net --listen "$ADDR_B:7450" >"$LAB/listen.out" 2>&1
    until_true 10 listening b 7450 || { cat "$LAB/listen.out"; exit 1; }
    echo "MTU $mtu, load $(cut -d' ' -f1 /proc/loadavg): taskset -c 0 longhaul bench net ${options[*]} --server $ADDR_B:7450"
    on a taskset -c 0 "$LONGHAUL" bench net "${options[@]}" --server "$ADDR_B:7450" >"$LAB/one.json" || { cat "$LAB/one.json"; exit 1; }
    stop "$STARTED_PID" INT
    python3 - "$mtu" "$LAB/one.json" "$LAB/all" <<'P' || exit 1
import json, sys
mtu, one, all_of = int(sys.argv[1]), json.load(open(sys.argv[2])), sys.argv[3]
lines = one["lines"]
def of(what):
    return next((it["gbps"] for it in lines if what in it["what"]), None)
marks = [("the per-packet socket", of("a call per packet")), ("the raw ceiling", of(": GSO -> GRO"))]
for it in lines:
    ratios = [f"{it['gbps'] / by:.2f} x {what}" for what, by in marks if by]
    cpu = it["send_cpu_s_per_gb"] + it["recv_cpu_s_per_gb"]
    print(f"  {it['what']:62} {it['gbps']:6.1f} Gb/s  {cpu:5.2f} CPU s/GB  {', '.join(ratios)}")
with open(all_of, "a") as out:
    out.write(json.dumps({"mtu": mtu, **one}) + "\n")
P
done
mkdir -p "$(dirname "$OUT")"
python3 -c 'import json, sys; json.dump([json.loads(line) for line in open(sys.argv[1])], open(sys.argv[2], "w"), indent=1)' "$LAB/all" "$OUT"
echo "written: ${OUT#"$ROOT_DIR"/}"
