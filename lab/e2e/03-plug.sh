#!/usr/bin/env bash
# kill -9 of sender, receiver or both at N random instants (6; `make torture` 200): the next run completes the job byte for byte,
# no name ever shows a partial file, and what had been made durable is not sent again.
source "$(dirname "$0")/check.sh"

N=${N:-6}
SEED=${SEED:-$RANDOM}
RANDOM=$SEED
python3 "$E2E/tree.py" make "$SRC/odd" 3
python3 "$E2E/tree.py" many "$SRC/many" 600
random_file "$SRC/big.bin" $((160 << 20))
random_file "$SRC/middle.bin" $((24 << 20))
total=$(find "$SRC" -type f -printf '%s\n' | awk '{ n += $1 } END { printf "%.0f", n }')
# One run takes about 2.2 s at this rate, so that instants fall on all parts of it.
rate=800Mbit
wrong=0 hits=0 early=0 sent_worst=0
for round in $(seq "$N"); do
    rm -rf "$DST" && mkdir -p "$DST"
    victim=$((round % 3)) # 0 sender, 1 receiver, 2 both
    serve b "$DST" || { not_ok "serve, round $round"; finish; }
    exec {feed}> >(python3 "$E2E/tree.py" watch "$SRC" "$DST" >"$LAB/watch" 2>&1; echo $? >"$LAB/watch.status")
    before=$(wire)
    start a "$LONGHAUL" cp --json --stall 2 --rate $rate --streams $((1 + RANDOM % 4)) "$SRC/odd" "$SRC/many" "$SRC/big.bin" "$SRC/middle.bin" "$URL" >"$LAB/first.json" 2>&1 </dev/null
    pid=$STARTED_PID
    sleep "$(awk -v r=$RANDOM 'BEGIN { printf "%.3f", 0.02 + 2.3 * r / 32768 }')"
    if kill -0 "$pid" 2>/dev/null; then hits=$((hits + 1)); else early=$((early + 1)); fi
    [ $victim != 0 ] && kill -9 "$SERVE_PID" 2>/dev/null
    [ $victim != 1 ] && kill -9 "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    [ $victim = 0 ] && sleep 0.1
    stop "$SERVE_PID" KILL
    first=$(($(wire) - before))
    serve b "$DST" || { not_ok "serve again, round $round"; finish; }
    before=$(wire)
    cp_run --streams $((1 + RANDOM % 4)) "$SRC/odd" "$SRC/many" "$SRC/big.bin" "$SRC/middle.bin" "$URL"
    second=$(($(wire) - before))
    stop "$SERVE_PID"
    exec {feed}>&-
    until_true 20 test -s "$LAB/watch.status"
    again=$((first + second - total))
    [ $again -gt $sent_worst ] && sent_worst=$again
    said=""
    [ "$STATUS" = 0 ] || said="second run: $(why)"
    said+=$(on a python3 "$E2E/tree.py" same "$SRC" "$DST" 2>&1 | grep -v 'entries are equal')
    said+=$(find "$DST" -name '.longhaul-*' | head -n 3)
    [ "$(cat "$LAB/watch.status")" = 0 ] || said+=" watcher: $(cat "$LAB/watch")"
    rm -f "$LAB/watch.status"
    if [ -n "$said" ]; then
        wrong=$((wrong + 1))
        echo "# round $round (SEED=$SEED, victim $victim): $said" | head -n 8
    fi
    [ "$N" -gt 20 ] && [ $((round % 20)) = 0 ] && echo "# $round of $N rounds, $hits in mid-job, $wrong wrong"
done
is $wrong 0 "kill -9 at $N random instants ($hits in mid-job, $early after its end; SEED=$SEED): equal every time, nothing partial ever seen or left"
# One flush interval (256 MiB or 2 s) is more than this job at this rate: the bound that can be shown here is 2 s at the rate, plus framing.
bound=$((2 * 100000000 + total / 20))
holds "sent again at worst $((sent_worst / 1000000)) MB: at most one flush interval (2 s at $rate = 200 MB)" test $sent_worst -le $bound

# A job large enough to flush in between: the second run is told what is durable, and takes that as a gift.
rm -rf "$DST" && mkdir -p "$DST"
random_file "$SRC/large.bin" $((700 << 20))
serve b "$DST"
start a "$LONGHAUL" cp --json --rate 1600Mbit "$SRC/large.bin" "$URL" >"$LAB/first.json" 2>&1 </dev/null
pid=$STARTED_PID
before=$(wire)
until_true 30 eval '[ $(($(wire) - before)) -gt $((560 << 20)) ]'
kill -9 "$pid" "$SERVE_PID"
wait "$pid" 2>/dev/null
stop "$SERVE_PID" KILL
serve b "$DST"
cp_run --streams 3 "$SRC/large.bin" "$URL"
cp_ends 0 "both ends killed at 80 %: the second run ends with exit code 0"
same "$SRC/large.bin" "$DST/large.bin" "both ends killed at 80 %: equal"
holds "both ends killed at 80 %: $(number resumed_bytes) bytes came from the first run, $(number bytes) were sent" test "$(number resumed_bytes)" -ge $((140 << 20))
is $(($(number resumed_bytes) + $(number bytes))) $((700 << 20)) "both ends killed at 80 %: no byte is counted twice"
finish
