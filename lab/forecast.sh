#!/usr/bin/env bash
# Twenty jobs over twenty links: what `--transport auto` expected beside what came of it.
#
# For:      `make forecast`, by hand; a forecast nobody checks is an ornament.
# In, out:  nothing -> a line per job (expected and taken seconds, the error, what was chosen), and right if the median of the errors, each
#           without its sign, is at most 15 %. FORECAST_JSON=FILE keeps the lines for a page.
# Invariants: the links are the lab's, and say when their emulator had no core: such a job is marked late and counts all the same.
# Absent on purpose: the model (node/src/probe), its tests on made-up paths.

source "$(dirname "$0")/e2e/check.sh"
needs_lab
# Large enough for ten seconds of the fastest links, and a tree.
random_file "$SRC/one.bin" $((512 << 20))
python3 "$E2E/tree.py" many "$SRC/tree" 4000
random_file "$SRC/tree/large.bin" $((64 << 20))
mkdir -p "$DST/far"
cat >"$LAB/job.sh" <<'S'
set -e
"$LONGHAUL" lab on b -b --log "$LAB/serve.out" -- "$LONGHAUL" serve --root "$DST/far" --listen "$LONGHAUL_LAB_B:7441" --ticket >/dev/null
for _ in $(seq 100); do url=$(grep -m1 '^longhaul://' "$LAB/serve.out") && break; sleep 0.05; done
"$LONGHAUL" cp --json --transport auto ${3:-} "$1" "$url" >"$2"
S
export LAB DST LONGHAUL
LINES_JSON="${FORECAST_JSON:-$LAB/forecast.json}"
: >"$LINES_JSON"

# job MIB|tree LINK...: so much of the file, or the tree.
job() {
    local what=$1 from words
    shift
    words="$*"
    RUNS=$((RUNS + 1))
    if [ "$what" = tree ]; then
        from="$SRC/tree"
    else
        from="$LAB/part.bin"
        head -c $((what << 20)) "$SRC/one.bin" >"$from"
    fi
    rm -rf "$DST/far/"* "$LAB/serve.out" "$LAB/job.json"
    # shellcheck disable=SC2086
    LONGHAUL_HOME="$LAB/home-a" LAB_LIMIT=150 lab run -q $words -- bash "$LAB/job.sh" "$from" "$LAB/job.json" >"$LAB/job.out" 2>&1 || { not_ok "$what over $words" "$(tail -n 3 "$LAB/job.out")"; return; }
    python3 - "$LAB/job.json" "$what" "$words" "$(grep -c 'did not get the processor' "$LAB/job.out")" "$LINES_JSON" <<'P'
import json, sys
done = json.loads(open(sys.argv[1]).read().splitlines()[-1])
what, words, late, out = sys.argv[2:6]
told = done.get("forecast")
if told is None:
    print(f"# {what} over {words}: no forecast")
    sys.exit()
print(f"{what:>5} over {words:48} expected {told['seconds']:6.2f} s, took {told['took_seconds']:6.2f}: {told['error_percent']:+6.1f} %  {told['choice']}, {told['rate_bps'] / 1e6:.0f} Mbit/s, {told['limiter']}{' (late)' if late != '0' else ''}")
with open(out, "a") as file:
    file.write(json.dumps(told | {"what": what, "link": words, "late": late != "0"}) + "\n")
P
}
job 256 --rate 1Gbit --rtt 1ms
job 256 --rate 1Gbit --rtt 10ms
job 256 --rate 1Gbit --rtt 50ms
job 256 --rate 1Gbit --rtt 50ms --loss 1%
job 256 --rate 500Mbit --rtt 20ms --loss 0.1%
job 256 --rate 500Mbit --rtt 150ms
job 192 --rate 300Mbit --rtt 40ms
job 192 --rate 300Mbit --rtt 100ms --loss 5%
job 128 --rate 155Mbit --rtt 90ms --loss 1%
job 128 --rate 155Mbit --rtt 200ms --loss 0.1%
job 64 --rate 155Mbit --rtt 550ms
job 128 --rate 155Mbit --rtt 10ms
job 64 --rate 100Mbit --rtt 30ms --jitter 2ms
job 64 --rate 100Mbit --rtt 30ms --loss 1% --jitter 2ms
job 32 --rate 45Mbit --rtt 60ms --loss 2%
job 16 --rate 20Mbit --rtt 30ms
job 512 --rate 2Gbit --rtt 0.5ms
job tree --rate 1Gbit --rtt 10ms
job tree --rate 300Mbit --rtt 50ms
job tree --rate 155Mbit --rtt 100ms --loss 1%
python3 - "$LINES_JSON" <<'P'
import json, statistics, sys
errors = [abs(json.loads(line)["error_percent"]) for line in open(sys.argv[1])]
median = statistics.median(errors)
print(f"forecast: {len(errors)} jobs, median error {median:.1f} %, {sum(e <= 15 for e in errors)} within 15 %, largest {max(errors):.1f} %")
sys.exit(median > 15 or len(errors) < 20)
P
