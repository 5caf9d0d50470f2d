#!/usr/bin/env bash
# Twenty jobs over twenty links, and jobs that disks, files or processors bound: what `--transport auto` expected beside what came of it.
#
# For:      `make forecast`, by hand; a forecast nobody checks is an ornament.
# In, out:  nothing -> a line per job (expected and taken seconds, the error, what was chosen; or why nothing was forecast), and right if the
#           median of the errors, each without its sign, is at most 15 %, over the links and over the rest. FORECAST_JSON=FILE keeps the lines
#           for a page; FORECAST_ONLY=links|local does one half.
# Invariants: a slow disk is a file system of its own whose readers and writers a control group holds back; the links are the lab's, and say when their emulator had no core: such a job is marked late and counts all the same.
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
"$LONGHAUL" lab on b -b --log "$LAB/serve.out" -- bash "$LAB/in.sh" "$SERVED_BY" "$LONGHAUL" serve --root "$FAR" --listen "$LONGHAUL_LAB_B:7441" --ticket >/dev/null
for _ in $(seq 100); do url=$(grep -m1 '^longhaul://' "$LAB/serve.out") && break; sleep 0.05; done
bash "$LAB/in.sh" "$COPIED_BY" "$LONGHAUL" cp --json --transport auto ${3:-} "$1" "$url" >"$2"
S
cat >"$LAB/near.sh" <<'S'
set -e
bash "$LAB/in.sh" "$SERVED_BY" "$LONGHAUL" serve --root "$FAR" --listen 127.0.0.1:0 --ticket >"$LAB/serve.out" 2>/dev/null &
daemon=$!
trap 'kill $daemon' EXIT
for _ in $(seq 100); do url=$(grep -m1 '^longhaul://' "$LAB/serve.out") && break; sleep 0.05; done
bash "$LAB/in.sh" "$COPIED_BY" "$LONGHAUL" cp --json --transport auto "$1" "$url" >"$2"
S
# in.sh GROUP COMMAND...: in a control group, if one is named.
cat >"$LAB/in.sh" <<'S'
[ -z "$1" ] || echo $$ >"$1/cgroup.procs"
shift
exec "$@"
S
FAR="$DST/far" SERVED_BY="" COPIED_BY=""
export LAB DST LONGHAUL FAR SERVED_BY COPIED_BY
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
        from="${PART:-$LAB/part.bin}"
        [ -n "${PART:-}" ] || head -c $((what << 20)) "$SRC/one.bin" >"$from"
    fi
    rm -rf "${FAR:?}/"* "$LAB/serve.out" "$LAB/job.json"
    # shellcheck disable=SC2086
    LONGHAUL_HOME="$LAB/home-a" LAB_LIMIT=150 lab run -q $words -- bash "$LAB/job.sh" "$from" "$LAB/job.json" >"$LAB/job.out" 2>&1 || { not_ok "$what over $words" "$(tail -n 3 "$LAB/job.out")"; return; }
    told "$what" "$words" "${KIND:-links}"
}
# near WORDS SOURCE: over loopback, as SERVED_BY, COPIED_BY and FAR say.
near() {
    RUNS=$((RUNS + 1))
    rm -rf "${FAR:?}/"[!l]* "$LAB/serve.out" "$LAB/job.json"
    LONGHAUL_HOME="$LAB/home-a" timeout 150 bash "$LAB/near.sh" "$2" "$LAB/job.json" >"$LAB/job.out" 2>&1 || { not_ok "$1" "$(tail -n 3 "$LAB/job.out")"; return; }
    told local "$1" local
}
# told WHAT WORDS KIND: the line of the last job.
told() {
    python3 - "$LAB/job.json" "$1" "$2" "$(grep -c 'did not get the processor' "$LAB/job.out")" "$LINES_JSON" "$3" <<'P'
import json, sys
done = json.loads(open(sys.argv[1]).read().splitlines()[-1])
what, words, late, out, kind = sys.argv[2:7]
told = done.get("forecast")
if told is None:
    print(f"# {what} over {words}: no forecast")
    sys.exit()
if told.get("unknown"):
    print(f"{what:>5} over {words:48} not forecast: {told['unknown']}; took {told['took_seconds']:6.2f} s")
elif told["error_percent"] is None:
    print(f"{what:>5} over {words:48} expected {told['seconds']:6.2f} s, took {told['took_seconds']:6.2f}: below 1 s, no error is said")
else:
    print(f"{what:>5} over {words:48} expected {told['seconds']:6.2f} s, took {told['took_seconds']:6.2f}: {told['error_percent']:+6.1f} %  {told['choice']}, {told['rate_bps'] / 1e6:.0f} Mbit/s, {told['limiter']}{' (late)' if late != '0' else ''}")
with open(out, "a") as file:
    file.write(json.dumps(told | {"what": what, "link": words, "late": late != "0", "kind": kind}) + "\n")
P
}
links() {
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
}
# 40 MB/s: a tenth of what this disk does, or less.
SLOW=40000000
# slow_disk: an ext4 of its own below $LAB/slow, and a control group whose processes read and write it at SLOW; 1: not here.
slow_disk() {
    local parent limit device
    for parent in /sys/fs/cgroup/blkio /sys/fs/cgroup; do [ -d "$parent" ] && break; done
    GROUP="$parent/longhaul-forecast-$$"
    mkdir "$GROUP" 2>/dev/null || return 1
    trap 'umount "$LAB/slow" 2>/dev/null; rmdir "$GROUP" 2>/dev/null' EXIT
    truncate -s 3G "$LAB/slow.img" && mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$LAB/slow.img" || return 1
    mkdir -p "$LAB/slow" && mount -o loop "$LAB/slow.img" "$LAB/slow" || return 1
    device=$(mountpoint -d "$LAB/slow")
    for limit in read write; do
        if [ -f "$GROUP/blkio.throttle.${limit}_bps_device" ]; then
            echo "$device $SLOW" >"$GROUP/blkio.throttle.${limit}_bps_device"
        else
            echo "$device ${limit:0:1}bps=$SLOW" >"$GROUP/io.max"
        fi
    done
}
# cold FILE: no cache has it any more.
cold() { sync "$1" && dd if="$1" iflag=nocache count=0 status=none; }
near_home() {
    local memory
    memory=$(mktemp -d /dev/shm/longhaul-forecast.XXXXXX)
    near "loopback, one file in the page cache" "$SRC/one.bin"
    near "loopback, small files and a large one" "$SRC/tree"
    cp "$SRC/one.bin" "$memory/one.bin"
    mkdir "$memory/far"
    FAR="$memory/far" near "loopback, tmpfs to tmpfs" "$memory/one.bin"
    rm -rf "$memory"
    if slow_disk; then
        mkdir "$LAB/slow/far"
        head -c $((256 << 20)) "$SRC/one.bin" >"$LAB/part.bin"
        FAR="$LAB/slow/far" SERVED_BY="$GROUP" near "loopback, slow destination" "$LAB/part.bin"
        FAR="$LAB/slow/far" SERVED_BY="$GROUP" KIND=local job 256 --rate 1Gbit --rtt 10ms
        rm -rf "$LAB/slow/far"
        cp "$LAB/part.bin" "$LAB/slow/cold.bin" && cold "$LAB/slow/cold.bin"
        COPIED_BY="$GROUP" near "loopback, slow source" "$LAB/slow/cold.bin"
        cold "$LAB/slow/cold.bin"
        # The same file by the other name that job() makes of what it sends.
        COPIED_BY="$GROUP" KIND=local PART="$LAB/slow/cold.bin" job 256 --rate 1Gbit --rtt 10ms
    else
        skip "a slow disk: no control group of disks, or no loop device"
    fi
}
[ "${FORECAST_ONLY:-links}" = links ] && links
[ "${FORECAST_ONLY:-local}" = local ] && near_home
python3 - "$LINES_JSON" <<'P'
import json, os, statistics, sys
only, bad = os.environ.get("FORECAST_ONLY", ""), False
jobs = [json.loads(line) for line in open(sys.argv[1])]
for kind, least in [("links", 17), ("local", 2)]:
    if only not in ("", kind):
        continue
    of = [job for job in jobs if job["kind"] == kind]
    errors = [abs(job["error_percent"]) for job in of if job["error_percent"] is not None]
    if not errors:
        bad = True
        continue
    median = statistics.median(errors)
    print(f"forecast, {kind}: {len(of)} jobs, {len(errors)} with an error, median {median:.1f} %, {sum(e <= 15 for e in errors)} within 15 %, largest {max(errors):.1f} %")
    bad = bad or median > 15 or len(errors) < least
sys.exit(bad)
P
