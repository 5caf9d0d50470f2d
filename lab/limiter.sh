#!/usr/bin/env bash
# Twelve jobs, each with exactly one thing made slow on one side: does the report name it, and do the books sum?
#
# For:      `make limiter`, by hand; the sentence an operator reads at night is only worth reading if it is right.
# In, out:  nothing -> a line per run, and right if at least eleven of twelve name the end and the stage that was made slow, and the
#           books of both ends sum to wall time within 2 % in all. A run that cannot be made here is said and counts for nothing.
# Invariants: what is made slow is taken away again; groups, loop devices and mounts of this run only.
# Absent on purpose: a slow hash (no machine here has one: its books are made up in proto/tests/limiter.rs), the judgement itself on made-up books (proto/tests/limiter.rs).

source "$(dirname "$0")/e2e/check.sh"
[ "$(id -u)" = 0 ] && [ "$HOST_KIND" = netns ] || { echo "skip: needs root (control groups, loop devices, qdiscs)"; exit 0; }
needs_lab
RIGHT=0 MADE=0 SUMMED=0
MIB=$((1 << 20))
FAST=$(mktemp -d /dev/shm/longhaul-limiter.XXXXXX)
GROUPS_MADE=() LOOPS=() MOUNTS=()
clean() {
    local status=$? it
    for it in "${STARTED[@]}"; do kill -9 "$it" 2>/dev/null; done
    [ ${#STARTED[@]} -gt 0 ] && wait "${STARTED[@]}" 2>/dev/null
    for it in "${MOUNTS[@]}"; do on "${it%%:*}" umount "${it#*:}"; done
    for it in "${LOOPS[@]}"; do losetup -d "$it"; done
    for it in "${GROUPS_MADE[@]}"; do rmdir "$it"; done
    rm -rf "$FAST"
    (exit $status)
    hosts_down # ends the script
}
trap clean EXIT

# group KIND NAME: a control group of that controller (cpu or blkio; io where there is one tree of groups); its folder in $GROUP.
group() {
    if [ -d "/sys/fs/cgroup/$1" ]; then GROUP="/sys/fs/cgroup/$1/longhaul-$2-$$"; else GROUP="/sys/fs/cgroup/longhaul-$2-$$"; fi
    mkdir "$GROUP" 2>/dev/null || return 1
    GROUPS_MADE+=("$GROUP")
}
# quota GROUP PERCENT of one core.
quota() {
    if [ -f "$1/cpu.cfs_quota_us" ]; then
        echo 20000 >"$1/cpu.cfs_period_us" && echo $((200 * $2)) >"$1/cpu.cfs_quota_us"
    else
        echo "$((200 * $2)) 20000" >"$1/cpu.max"
    fi
}
# disk a|b NAME MIB: an ext4 on a loop device, mounted on that host only; its folder in $DISK, its number in $DEVICE.
disk() {
    local loop
    truncate -s "$3M" "$LAB/$2.img" && loop=$(losetup -f --show "$LAB/$2.img") || return 1
    LOOPS+=("$loop")
    mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$loop" && mkdir -p "$LAB/$2" && on "$1" mount "$loop" "$LAB/$2" || return 1
    MOUNTS+=("$1:$LAB/$2")
    DISK="$LAB/$2" DEVICE=$(printf '%d:%d' "0x$(stat -c %t "$loop")" "0x$(stat -c %T "$loop")")
}
# slow_disk GROUP DEVICE read|write BYTES
slow_disk() {
    if [ -f "$1/blkio.throttle.$3_bps_device" ]; then echo "$2 $4" >"$1/blkio.throttle.$3_bps_device"; else echo "$2 ${3:0:1}bps=$4" >"$1/io.max"; fi
}
# A command in a group: `CP_AS="$IN GROUP"` before a client, `start b "$IN" GROUP` before a daemon.
IN="$LAB/in-group"
printf '#!/bin/sh\necho $$ >"$1/cgroup.procs" && shift && exec "$@"\n' >"$IN" && chmod 755 "$IN"

# daemon [GROUP] ROOT: one on host b, its address in $URL; ended by `stop $SERVE_PID`.
daemon() {
    SERVE_COUNT=$((SERVE_COUNT + 1))
    local out="$LAB/daemon-$SERVE_COUNT" before=()
    [ $# = 2 ] && before=("$IN" "$1") && shift
    start b "${before[@]}" "$LONGHAUL" serve --root "$1" --listen "$ADDR_B:7440" --ticket --integrity-only ${SERVE_MORE:-} >"$out" 2>"$out.err" </dev/null
    SERVE_PID=$STARTED_PID
    until_true 10 grep -q '^longhaul://' "$out" || { echo "no daemon: $(cat "$out.err")"; exit 1; }
    URL=$(head -n 1 "$out")
}

# judged WORDS ENDS STAGES: the report of the last cp, against the ends and stages that would be right (alternatives by |).
judged() {
    MADE=$((MADE + 1))
    local said
    [ "$STATUS" = 0 ] || { not_ok "$1" "$(why)"; return; }
    said=$(python3 - "$OUT" "$2" "$3" <<'P'
import json, sys
done = json.loads(open(sys.argv[1]).read().splitlines()[-1])
ends, stages = (words.split("|") for words in sys.argv[2:4])
right = done["limiter_end"] in ends and done["limiter_stage"] in stages
gaps = []
for side in ("local", "remote"):
    books = done[f"stages_{side}"]
    gaps.append(abs(sum(s["ms"] for s in books["stages"]) - books["wall_ms"]) / books["wall_ms"] * 100)
print(int(right), int(max(gaps) <= 2), f"{done['goodput_bps'] / 1e6:.0f} Mbit/s, books within {max(gaps):.2f} %: {done['limiter']} [{done['limiter_end']}, {done['limiter_stage']}]")
P
    ) || { not_ok "$1" "no report"; return; }
    SUMMED=$((SUMMED + ${said:2:1}))
    if [ "${said:0:1}" = 1 ]; then RIGHT=$((RIGHT + 1)) && ok "$1: ${said:4}"; else echo "WRONG $1: ${said:4}"; fi
}

random_file "$FAST/src/large" $((1024 * MIB))
random_file "$FAST/src/small" $((192 * MIB))
fresh() { rm -rf "$FAST/dst/"*; }
mkdir -p "$FAST/dst"

# --- disks ---
if group blkio disks && disk a source 400 && on a cp "$FAST/src/small" "$DISK/small" && on a sync "$DISK/small" && slow_disk "$GROUP" "$DEVICE" read $((40 * MIB)); then
    daemon "$FAST/dst"
    CP_AS="$IN $GROUP" cp_run --io-mode direct "$DISK/small" "$URL"
    judged "source disk at 40 MiB/s" sender "wait for source"
    stop "$SERVE_PID"
    fresh
else echo "skip: no slow disk can be made here"; fi
if group blkio target && disk b target 400 && slow_disk "$GROUP" "$DEVICE" write $((40 * MIB)); then
    on b mkdir "$DISK/dst"
    daemon "$GROUP" "$DISK/dst"
    cp_run --io-mode direct "$FAST/src/small" "$URL"
    judged "destination disk at 40 MiB/s" receiver "wait for destination"
    stop "$SERVE_PID"
    fresh
else echo "skip: no slow disk can be made here"; fi

# --- cores ---
if group cpu sender && quota "$GROUP" 10; then
    daemon "$FAST/dst"
    CP_AS="$IN $GROUP" cp_run "$FAST/src/large" "$URL"
    judged "the sender has a tenth of a core" sender "wait for a core"
    stop "$SERVE_PID"
    fresh
else echo "skip: no quota of cores can be set here"; fi
if group cpu receiver && quota "$GROUP" 25; then
    daemon "$GROUP" "$FAST/dst"
    cp_run "$FAST/src/large" "$URL"
    judged "the receiver has a quarter of a core" receiver "wait for a core"
    stop "$SERVE_PID"
    fresh
else echo "skip: no quota of cores can be set here"; fi

# --- caps ---
daemon "$FAST/dst"
cp_run --rate 800Mbit "$FAST/src/small" "$URL"
judged "capped by the user at 800 Mbit/s" cap "held by rate cap"
stop "$SERVE_PID"
fresh
SERVE_MORE="--rate 500Mbit" daemon "$FAST/dst"
cp_run "$FAST/src/small" "$URL"
judged "capped by the daemon at 500 Mbit/s" cap "held by rate cap"
stop "$SERVE_PID"
fresh

# --- the network ---
daemon "$FAST/dst"
for side in a b; do on $side tc qdisc add dev lh0 root tbf rate 200mbit burst 64kb latency 20ms; done
cp_run --transport tcp "$FAST/src/small" "$URL"
judged "a link of 200 Mbit/s, streams" network "wait to send"
fresh
cp_run --transport udp "$FAST/src/small" "$URL"
judged "a link of 200 Mbit/s, datagrams" network "wait to send"
fresh
for side in a b; do on $side tc qdisc del dev lh0 root; done
stop "$SERVE_PID"

# far WORDS LINK ARGUMENTS...: over an emulated link, with socket buffers of $BUFFERS if that is set.
far() {
    local words=$1 link=$2
    shift 2
    RUNS=$((RUNS + 1))
    OUT="$LAB/cp-$RUNS.json" ERR="$LAB/cp-$RUNS.err"
    # shellcheck disable=SC2086
    lab run -q $link -- bash "$LAB/far.sh" "$@" >"$OUT" 2>"$ERR"
    STATUS=$?
    judged "$words" network "wait to send"
    fresh
}
cat >"$LAB/far.sh" <<'S'
small() { [ -z "${BUFFERS:-}" ] || "$@" sh -c 'echo "$BUFFERS" >/proc/sys/net/ipv4/tcp_wmem; echo "$BUFFERS" >/proc/sys/net/ipv4/tcp_rmem'; }
far="$LONGHAUL lab on b --"
small
small $far
$far env LONGHAUL_HOME="$LAB/home-b" "$LONGHAUL" serve --root "$FAST/dst" --listen "$LONGHAUL_LAB_B:7440" --ticket >"$LAB/far.out" 2>"$LAB/far.err" </dev/null &
for _ in $(seq 200); do grep -q ^longhaul:// "$LAB/far.out" && break; sleep 0.05; done
LONGHAUL_HOME="$LAB/home-a" "$LONGHAUL" cp --json "$@" "$(head -n 1 "$LAB/far.out")"
S
export FAST LAB LONGHAUL
far "1 Gbit/s, 40 ms, 1 % loss, streams" "--rate 1Gbit --rtt 40ms --loss 1%" --transport tcp --streams 1 "$FAST/src/small"
far "100 Mbit/s, 100 ms, datagrams" "--rate 100Mbit --rtt 100ms" --transport udp "$FAST/src/small"
export BUFFERS="4096 65536 65536"
far "socket buffers of 64 KiB over 20 ms" "--rate 1Gbit --rtt 20ms" --transport tcp "$FAST/src/small"
unset BUFFERS

# --- what lies behind the bytes ---
if group blkio flush && disk b flush 400 && slow_disk "$GROUP" "$DEVICE" write $((5 * MIB)); then
    on b mkdir "$DISK/dst"
    python3 "$E2E/tree.py" many "$FAST/many" 3000
    daemon "$GROUP" "$DISK/dst"
    cp_run --rung flushed "$FAST/many" "$URL"
    judged "3000 files onto a disk at 5 MiB/s" receiver "wait for destination|destination write"
    stop "$SERVE_PID"
else echo "skip: no slow disk can be made here"; fi

echo "limiter: $RIGHT of $MADE right, the books of $SUMMED of $MADE within 2 %"
[ "$SUMMED" = "$MADE" ] && [ $((RIGHT + 1)) -ge "$MADE" ] && [ "$MADE" -gt 0 ]
