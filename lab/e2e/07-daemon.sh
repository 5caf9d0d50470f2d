#!/usr/bin/env bash
# The daemon's life: drain by SIGTERM, reload by SIGHUP, many clients, a peer that stands still.
source "$(dirname "$0")/check.sh"

random_file "$SRC/big.bin" $((64 << 20))
python3 "$E2E/tree.py" many "$SRC/many" 200
PORT=7440
mkdir -p "$DST/drain" "$DST/crowd" "$DST/stall"

# --- SIGTERM: running jobs end well, new ones are turned away ---
serve b "$DST/drain"
start a "$LONGHAUL" cp --json --rate 200Mbit "$SRC/big.bin" "$URL" >"$LAB/drain.json" 2>"$LAB/drain.err" </dev/null
pid=$STARTED_PID
begun "$DST/drain"
kill -TERM "$SERVE_PID"
sleep 0.2
cp_run "$SRC/many" "$URL"
cp_ends 10 "SIGTERM: a new job is turned away"
wait "$pid"
STATUS=$? OUT="$LAB/drain.json" ERR="$LAB/drain.err"
cp_ends 0 "SIGTERM: the job that runs ends with exit code 0"
same "$SRC/big.bin" "$DST/drain/big.bin" "SIGTERM: equal"
until_true 10 eval '! kill -0 $SERVE_PID 2>/dev/null' && { wait "$SERVE_PID"; is $? 0 "SIGTERM: the daemon ends by itself with exit code 0"; } || { not_ok "SIGTERM: the daemon ends by itself"; stop "$SERVE_PID" KILL; }

# --- SIGHUP: the config file is read again, running jobs go on ---
cat >"$LAB/serve.toml" <<END
root = "$DST/crowd"
listen = "$ADDR_B:$PORT"
END
start b "$LONGHAUL" serve --config "$LAB/serve.toml" --ticket >"$LAB/conf.out" 2>"$LAB/conf.err" </dev/null
conf=$STARTED_PID
if until_true 10 grep -q '^longhaul://' "$LAB/conf.out"; then
    ok "serve --config starts"
    URL=$(head -n 1 "$LAB/conf.out")
    start a "$LONGHAUL" cp --json --rate 300Mbit "$SRC/big.bin" "$URL" >"$LAB/hup.json" 2>"$LAB/hup.err" </dev/null
    pid=$STARTED_PID
    sleep 0.5
    kill -HUP "$conf"
    wait "$pid"
    STATUS=$? OUT="$LAB/hup.json" ERR="$LAB/hup.err"
    cp_ends 0 "SIGHUP: the job that runs goes on, exit code 0"
    holds "SIGHUP: the daemon stands" kill -0 "$conf"
    echo 'no such key = ' >>"$LAB/serve.toml"
    kill -HUP "$conf"
    sleep 0.3
    holds "SIGHUP with a broken file: the daemon stands with the old one" kill -0 "$conf"

    # --- many clients at once ---
    clients=24
    pids=()
    for n in $(seq $clients); do
        start a "$LONGHAUL" cp --json "$SRC/many" "${URL}client-$n/" >"$LAB/client-$n.json" 2>&1 </dev/null
        pids+=("$STARTED_PID")
    done
    good=0
    for pid in "${pids[@]}"; do wait "$pid" && good=$((good + 1)); done
    is $good $clients "$clients clients at once: all end with exit code 0"
    wrong=0
    for n in $(seq $clients); do python3 "$E2E/tree.py" same "$SRC/many" "$DST/crowd/client-$n/many" >/dev/null 2>&1 || wrong=$((wrong + 1)); done
    is $wrong 0 "$clients clients at once: all trees are equal"
    peak=$(awk '/VmHWM/ { print $2 * 1024 }' "/proc/$conf/status")
    holds "$clients clients at once: the daemon's peak is $((peak >> 20)) MiB" test "$peak" -le $((256 << 20))
else
    not_ok "serve --config starts" "$(cat "$LAB/conf.err")"
fi
stop "$conf"

# --- a peer that stands still ---
serve b "$DST/stall"
start a "$LONGHAUL" cp --json --stall 3 --rate 200Mbit "$SRC/big.bin" "$URL" >"$LAB/stall.json" 2>"$LAB/stall.err" </dev/null
pid=$STARTED_PID
sleep 0.8
kill -STOP "$SERVE_PID"
stopped=$(date +%s)
until_true 25 eval '! kill -0 $pid 2>/dev/null' || kill -9 "$pid"
wait "$pid"
STATUS=$? OUT="$LAB/stall.json" ERR="$LAB/stall.err"
took=$(($(date +%s) - stopped))
kill -CONT "$SERVE_PID"
cp_ends 30 "the peer stands still: exit code 30 after $took s (--stall 3)"
holds "it ended within 15 s" test $took -le 15
holds "the error names rail, stage or peer" grep -qiE 'rail|stage|peer|receiver|other end' "$ERR" "$OUT"
stop "$SERVE_PID" KILL
serve b "$DST/stall"
cp_run "$SRC/big.bin" "$URL"
cp_ends 0 "the peer is back: exit code 0"
same "$SRC/big.bin" "$DST/stall/big.bin" "the peer is back: equal"
stop "$SERVE_PID"
finish
