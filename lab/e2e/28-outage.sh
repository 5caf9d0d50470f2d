#!/usr/bin/env bash
# A daemon that is started again and a path that is away for a while: the client goes on by itself for as long as --stall allows, and says so meanwhile.
source "$(dirname "$0")/check.sh"

mkdir -p "$DST/far" "$LAB/home-b"
random_file "$SRC/tree/a/big" $((40 << 20))
random_file "$SRC/tree/b" 5000
for i in 1 2 3; do random_file "$SRC/tree/small/$i" $((100000 * i)); done
PORT=7470
KEY_A=$(on a "$LONGHAUL" key show 2>/dev/null | grep -o 'longhaul-ed25519 [^ ]*')
on b "$LONGHAUL" key authorize "$KEY_A" >/dev/null
KEY_B=$(on b "$LONGHAUL" key show 2>/dev/null | grep -o 'longhaul-ed25519 [^ ]*')
on a "$LONGHAUL" key trust "$ADDR_B:$PORT" "$KEY_B" >/dev/null
URL="longhaul://$ADDR_B:$PORT"
daemon() { # daemon WORDS...: without a ticket; those who may come have keys
    start b "$LONGHAUL" serve --root "$DST/far" --listen "$ADDR_B:$PORT" "$@" >>"$LAB/daemon.out" 2>>"$LAB/daemon.err" </dev/null
    SERVE_PID=$STARTED_PID
}
# The kernel says when a port is listened on, without a connection that a daemon would count.
listening() { until_true 20 on b sh -c "grep -q ':$(printf %04X "$PORT") .* 0A ' /proc/net/tcp"; }
# job NAME ARGUMENTS...: a cp in the background
job() {
    OUT="$LAB/$1.json" ERR="$LAB/$1.err"
    shift
    start a "$LONGHAUL" cp --json "$@" >"$OUT" 2>"$ERR" </dev/null
    CP=$STARTED_PID
}
ended() {
    until_true "${1:-60}" eval '! kill -0 $CP 2>/dev/null' || { kill -9 "$CP"; echo "# ended by force"; }
    wait "$CP" 2>/dev/null
    STATUS=$?
}

# --- the daemon dies in mid-job and is back two seconds later ---
again() { # again NAME OPTIONS...: pushes, then pulls
    local name=$1
    shift
    rm -rf "$DST/far" "$DST/back" && mkdir -p "$DST/far" "$DST/back"
    daemon && listening
    job "push-$name" --stall 30 --rate 100Mbit "$@" "$SRC/tree" "$URL/new"
    journalled "$DST/far"
    kill -9 "$SERVE_PID"
    sleep 2
    holds "push, $name: it waits for the daemon" kill -0 "$CP"
    daemon && listening
    ended
    cp_ends 0 "push, $name: the daemon was started again: the same command ends well"
    same "$SRC/tree" "$DST/far/new" "push, $name: equal, and under the name that was asked for"
    is "$(number lost_sessions)" 1 "push, $name: the report says that the session was made again"
    holds "push, $name: said meanwhile, since and until when" eval 'grep -q "\"event\":\"progress\".*\"reconnecting\":{\"since_s\":[0-9]*,\"until_s\":[0-9]*}" "$OUT" && grep -q "RECONNECTING since" "$OUT"'
    holds "push, $name: what was durable is not sent again ($(number resumed_bytes) bytes)" test "$(number resumed_bytes)" -gt 0
    is "$(number kept_files)" 0 "push, $name: what this run sent before is not called kept"
    job "pull-$name" --stall 30 --rate 100Mbit "$@" "$URL/new" "$DST/back/tree"
    journalled "$DST/back"
    kill -9 "$SERVE_PID"
    sleep 1
    daemon && listening
    ended
    cp_ends 0 "pull, $name: the daemon was started again: the same command ends well"
    same "$SRC/tree" "$DST/back/tree" "pull, $name: equal"
    stop "$SERVE_PID"
}
again tcp
again udp --transport udp

# --- between two daemons: the one that has the source is killed, and with it the session that the client follows the job on ---
on a "$LONGHAUL" key authorize "$KEY_A" >/dev/null
on a "$LONGHAUL" key trust "$ADDR_A:7472" "$KEY_A" >/dev/null
source_daemon() {
    start a "$LONGHAUL" serve --root "$SRC" --listen "$ADDR_A:7472" >/dev/null 2>>"$LAB/source.err" </dev/null
    FROM_PID=$STARTED_PID
    until_true 20 on a sh -c "grep -q ':$(printf %04X 7472) .* 0A ' /proc/net/tcp"
}
rm -rf "$DST/far" && mkdir -p "$DST/far"
daemon && listening && source_daemon
job relay --stall 30 --rate 100Mbit "longhaul://$ADDR_A:7472/tree" "$URL/relayed"
journalled "$DST/far"
kill -9 "$FROM_PID"
sleep 2
holds "relay: the client waits for the source's daemon" kill -0 "$CP"
source_daemon
ended
cp_ends 0 "relay: the source's daemon was started again: the same command ends well"
same "$SRC/tree" "$DST/far/relayed" "relay: equal, and under the name that was asked for"
holds "relay: said meanwhile, since and until when" grep -q 'RECONNECTING since' "$OUT"
holds "relay: what was durable is not sent again ($(number resumed_bytes) bytes)" test "$(number resumed_bytes)" -gt 0
# And where it does not come back: the time of --stall, and no longer.
job relay-gone --stall 4 --rate 100Mbit "longhaul://$ADDR_A:7472/tree" "$URL/relayed-gone"
journalled "$DST/far/relayed-gone"
kill -9 "$FROM_PID"
ended 30
cp_ends 31 "relay: the source's daemon stays away: exit code 31"
stop "$SERVE_PID"

# --- it does not come back: the time of --stall, and no longer ---
rm -rf "$DST/far" && mkdir -p "$DST/far"
daemon && listening
job gone --stall 4 --rate 100Mbit "$SRC/tree" "$URL/gone"
journalled "$DST/far"
kill -9 "$SERVE_PID"
t=$(date +%s%N)
ended 30
took=$((($(date +%s%N) - t) / 1000000))
cp_ends 31 "the daemon stays away: exit code 31"
holds "after the time of --stall 4 ($took ms)" test $took -ge 3900 -a $took -le 15000
# A daemon with another key is not waited for.
daemon && listening
job other --stall 60 --rate 100Mbit "$SRC/tree" "$URL/other"
journalled "$DST/far/other"
kill -9 "$SERVE_PID"
LONGHAUL_HOME="$LAB/home-c" "$LONGHAUL" key show >/dev/null 2>&1
start b env LONGHAUL_HOME="$LAB/home-c" "$LONGHAUL" serve --root "$DST/far" --listen "$ADDR_B:$PORT" >/dev/null 2>&1 </dev/null
SERVE_PID=$STARTED_PID
t=$(date +%s%N)
ended 50
cp_ends 11 "another key answers there: said at once ($((($(date +%s%N) - t) / 1000000)) ms)"
stop "$SERVE_PID" KILL
# Nor one whose ticket is another.
PORT=7471
serve b "$DST/far"
job ticket --stall 60 --rate 100Mbit "$SRC/tree" "${URL}ticket/"
journalled "$DST/far/ticket"
stop "$SERVE_PID" KILL
serve b "$DST/far"
ended 50
cp_ends 12 "a new ticket there: the old one is refused, and that is said"
stop "$SERVE_PID"

# --- the path is away for less than --stall: nothing ends ---
PORT=7470
URL="longhaul://$ADDR_B:$PORT"
if [ -n "$HOLDER_A" ]; then
    for transport in tcp udp; do
        rm -rf "$DST/far" && mkdir -p "$DST/far"
        daemon && listening
        job "path-$transport" --stall 20 --rate 100Mbit --transport $transport "$SRC/tree" "$URL/path"
        journalled "$DST/far"
        on b ip link set lh0 down
        sleep 14
        on b ip link set lh0 up
        ended 60
        cp_ends 0 "$transport: the path was away for 14 s (--stall 20): ends well"
        same "$SRC/tree" "$DST/far/path" "$transport: equal"
        holds "$transport: said meanwhile" grep -q '"reconnecting":{"since_s"' "$OUT"
        stop "$SERVE_PID"
    done
    # For longer than the daemon waits: it gives its job up, and the client comes with a new one.
    rm -rf "$DST/far" && mkdir -p "$DST/far"
    printf 'root = "%s"\nlisten = "%s:%s"\nidle_timeout = "3s"\n' "$DST/far" "$ADDR_B" "$PORT" >"$LAB/idle.toml"
    start b "$LONGHAUL" serve --config "$LAB/idle.toml" >/dev/null 2>&1 </dev/null
    SERVE_PID=$STARTED_PID
    listening
    job idle --stall 40 --rate 100Mbit "$SRC/tree" "$URL/idle"
    journalled "$DST/far"
    on b ip link set lh0 down
    sleep 10
    on b ip link set lh0 up
    ended 90
    cp_ends 0 "the path was away for longer than the daemon's idle_timeout: ends well"
    same "$SRC/tree" "$DST/far/idle" "idle_timeout: equal"
    is "$(number lost_sessions)" 1 "idle_timeout: by another session"
    stop "$SERVE_PID"
else
    skip "a path that is away: no namespaces here"
fi
finish
