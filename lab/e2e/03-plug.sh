#!/usr/bin/env bash
# kill -9 of sender, receiver or both at N random instants (6; `make torture` 200): the next run completes the job byte for byte,
# no name ever shows a partial file, and what had been written, flushed or not, is not sent again (but for 8 MiB or 50 ms of it).
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
# What was written counts (promise 133): again goes what was in the network's and the receiver's hands at that instant, small files that had no name
# yet, and the frames' own bytes. A third of the job holds all of it; without notes a kill late in the job sends nearly all of it again.
holds "sent again at worst $((sent_worst / 1000000)) MB of $((total / 1000000)): at most 64 MB and the frames" test $sent_worst -le $((64000000 + total / 20))

# What a killed receiver had written, flushed or not, counts at the next run but for 8 MiB or 50 ms of it: by the bytes that stand in the part.
rm -rf "$DST" && mkdir -p "$DST"
random_file "$SRC/large.bin" $((320 << 20))
written() { # bytes of whole chunks of the source that stand in the part
    python3 - "$SRC/large.bin" "$(find "$DST" -name '.longhaul-*' -size +1M)" <<'END'
import sys
chunk, there = 1 << 20, 0
with open(sys.argv[1], "rb") as source, open(sys.argv[2], "rb") as part:
    while bytes_ := source.read(chunk):
        there += chunk * (part.read(chunk) == bytes_)
print(there)
END
}
# killed_at MIB OPTIONS...: at that much on the wire, at 400 Mbit/s (50 ms are 2.5 MB; a flush is due every 2 s, which are 100 MB).
killed_at() {
    local mib=$1 pid before there
    shift
    rm -rf "${DST:?}"/* "$DST"/.longhaul-*
    serve b "$DST"
    start a "$LONGHAUL" cp --json --rate 400Mbit "$SRC/large.bin" "$URL" >"$LAB/first.json" 2>&1 </dev/null
    pid=$STARTED_PID
    before=$(wire)
    until_true 60 eval '[ $(($(wire) - before)) -gt $((mib << 20)) ]'
    kill -9 "$SERVE_PID" "$pid"
    wait "$pid" 2>/dev/null
    stop "$SERVE_PID" KILL
    there=$(written)
    serve b "$DST"
    before=$(wire)
    cp_run "$@" "$SRC/large.bin" "$URL"
    cp_ends 0 "both ends killed at $mib MiB: the second run ends with exit code 0"
    same "$SRC/large.bin" "$DST/large.bin" "both ends killed at $mib MiB: equal"
    holds "both ends killed at $mib MiB: $((there >> 20)) MiB had been written" test "$there" -ge $(((mib - 32) << 20))
    holds "both ends killed at $mib MiB: $(number resumed_bytes) bytes of them count, all but 8 MiB" test "$(number resumed_bytes)" -ge $((there - (8 << 20)))
    is $(($(number resumed_bytes) + $(number bytes))) $((320 << 20)) "both ends killed at $mib MiB: no byte is counted twice"
    holds "both ends killed at $mib MiB: and no more than the rest crosses the wire" test $(($(wire) - before)) -le $((($(number bytes) + (1 << 20)) * 105 / 100))
    stop "$SERVE_PID"
}
killed_at 80 --streams 3
killed_at 190
finish
