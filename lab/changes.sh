#!/usr/bin/env bash
# How soon a running job has the link again after it changed: halved, doubled, longer, dead for ten seconds, another address.
#
# For:      `make changes`, by hand.
# In, out:  nothing -> for each change when the first half second begins in which the wire is at 0.95 of the new limit, by host b's own interface
#           counter, looked at every 20 ms; right if that is within ten round trips or a second, whichever is longer.
# Invariants: the link's limit is what the emulator passes; ROUNDS=N runs each so often and takes the median.
# Absent on purpose: the law in virtual time (proto/tests/rate_path.rs).

source "$(dirname "$0")/e2e/check.sh"
needs_lab
random_file "$SRC/one.bin" $((192 << 20))
mkdir -p "$DST/far"
cat >"$LAB/sample.py" <<'P'
import sys, time
out = open(sys.argv[1], "w")
while True:
    for line in open("/proc/net/dev"):
        name, _, rest = line.strip().partition(":")
        if name and name != "lo" and rest:
            out.write(f"{time.time():.4f} {name} {rest.split()[0]}\n")
    out.flush()
    time.sleep(0.02)
P
cat >"$LAB/job.sh" <<'S'
set -e
echo "$EPOCHREALTIME" >"$LAB/began"
"$LONGHAUL" lab on b -b --log "$LAB/serve.out" -- "$LONGHAUL" serve --root "$DST/far" --listen "$LONGHAUL_LAB_B:7442" --ticket >/dev/null
"$LONGHAUL" lab on b -b --log "$LAB/sample.out" -- python3 "$LAB/sample.py" "$LAB/samples" >/dev/null
for _ in $(seq 100); do url=$(grep -m1 '^longhaul://' "$LAB/serve.out") && break; sleep 0.05; done
"$LONGHAUL" cp --json -v --transport udp "$SRC/one.bin" "$url" >"$LAB/job.json"
S
export LAB SRC DST LONGHAUL
# change WORDS LIMIT_MBIT RTT_MS SCRIPT [NEW_RTT_MS]: the last line of the script is the change that counts.
change() {
    local words=$1 limit=$2 rtt=$3 then=${5:-$3} took=()
    for _ in $(seq "${ROUNDS:-3}"); do
        rm -rf "$DST/far/"* "$LAB/serve.out" "$LAB/samples" "$LAB/began"
        printf "$4" >"$LAB/script.txt"
        LONGHAUL_HOME="$LAB/home-a" LAB_LIMIT=90 lab run --rate 100Mbit --rtt "${rtt}ms" --script "$LAB/script.txt" -- bash "$LAB/job.sh" >"$LAB/job.out" 2>&1 ||
            { not_ok "$words" "$(tail -n 3 "$LAB/job.out")"; return; }
        [ -n "${KEEP:-}" ] && cp "$LAB/job.json" "$LAB/samples" "$LAB/began" "$KEEP/"
        cmp -s "$SRC/one.bin" "$DST/far/one.bin" || { not_ok "$words: not equal"; return; }
        took+=("$(python3 - "$LAB/samples" "$LAB/began" "$limit" "$(tail -n1 "$LAB/script.txt" | grep -o 'at [0-9.]*s' | grep -o '[0-9.]*')" <<'P'
import sys
began, limit, at = float(open(sys.argv[2]).read()), float(sys.argv[3]) * 125_000, float(sys.argv[4])
rows = {}
for line in open(sys.argv[1]):
    when, name, count = line.split()
    rows.setdefault(name, []).append((float(when) - began, int(count)))
rows = max(rows.values(), key=lambda all: all[-1][1] - all[0][1])
first = 0
for when, count in rows:
    if when < at:
        continue
    while rows[first][0] < max(at, when - 0.5):
        first += 1
    # What waited in the link's queue when it changed leaves at the new rate, too: only whole half seconds after the change count.
    if when - rows[first][0] >= 0.48 and (count - rows[first][1]) / (when - rows[first][0]) >= 0.95 * limit:
        print(f"{(rows[first][0] - at) * 1000:.0f}")
        break
else:
    print(99999)
P
)")
    done
    local median allowed
    median=$(printf '%s\n' "${took[@]}" | sort -n | sed -n "$(((${#took[@]} + 1) / 2))p")
    allowed=$((10 * then > 1000 ? 10 * then : 1000))
    if [ "$median" -le "$allowed" ]; then ok "$words, $rtt ms: at 0.95 of the new limit after $median ms (${took[*]}; allowed $allowed)"; else not_ok "$words, $rtt ms: at 0.95 of the new limit only after $median ms (${took[*]}; allowed $allowed)"; fi
}
for rtt in ${RTTS:-20 60 150}; do
    change "rate halved" 50 "$rtt" 'at 5s link 0 rate=50Mbit\n'
    change "rate doubled" 200 "$rtt" 'at 5s link 0 rate=200Mbit\n'
    change "way twice as long" 100 "$rtt" "at 5s link 0 rtt=$((2 * rtt))ms\n" $((2 * rtt))
    change "dead for ten seconds" 100 "$rtt" 'at 4s link 0 down\nat 14s link 0 up\n'
    change "another address" 100 "$rtt" 'at 5s host a address 10.99.0.7\n'
done
finish
