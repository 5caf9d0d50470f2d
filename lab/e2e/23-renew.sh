#!/usr/bin/env bash
# The receiver loses half of its cores in mid-job, and gets them back: the plan is made anew at both ends, and what comes of it is what a job
# has that was begun so.
source "$(dirname "$0")/check.sh"
command -v taskset >/dev/null || { skip "renew: no taskset here"; finish; }
[ "$(nproc)" -ge 2 ] || { skip "renew: a host of one core has no half"; finish; }

random_file "$SRC/large" $((150 << 20))
serve b "$DST"
# cores LIST: all threads of the daemon run there from now on
cores() { taskset -a -c -p "$1" "$SERVE_PID" >/dev/null; }
all=$(taskset -c -p $$ | sed 's/.*: //')
one=${all%%[-,]*}
count=$(nproc)
# told WORDS: how long until the job says so, ms; -1: not within ten seconds
told() {
    local from words=$1
    from=$(date +%s%N)
    until_true 10 grep -q "$words" "$LAB/job.json" && echo $((($(date +%s%N) - from) / 1000000)) || echo -1
}
within() { [ "$2" -ge "$1" ] && [ "$2" -le "$3" ]; }

# A busy machine looks late, never early: three tries.
for _ in 1 2 3; do
    rm -f "$DST/large"
    cores "$all"
    start a "$LONGHAUL" cp --json --rate 200Mbit "$SRC/large" "$URL" >"$LAB/job.json" 2>"$LAB/job.err" </dev/null
    pid=$STARTED_PID
    sleep 1.2
    cores "$one"
    fewer=$(told "the other end may use 1 core (before: $count)")
    cores "$all"
    more=$(told "the other end may use $count cores (before: 1)")
    wait "$pid"
    STATUS=$? OUT="$LAB/job.json" ERR="$LAB/job.err"
    within 0 "$fewer" 2000 && within 0 "$more" 2000 && break
done
cp_ends 0 "half of the receiver's cores in mid-job: exit code 0"
holds "half of the receiver's cores: the plan is made anew within 2 s ($fewer ms)" within 0 "$fewer" 2000
holds "the cores are back: and so is the plan within 2 s ($more ms)" within 0 "$more" 2000
holds "the line says workers, streams and why" grep -q 'workers [0-9]* here and 1 there, streams 1 (before: [0-9]*): one per worker of the smaller end' "$OUT"
holds "streams let go of and dialled again cost no byte" cmp "$SRC/large" "$DST/large"
is "$(number resent_bytes)" 0 "nothing goes twice"

# The same of a job that reads there: the sender is the other end.
cores "$all"
start a "$LONGHAUL" cp --json --rate 400Mbit "${URL}large" "$LAB/pulled" >"$LAB/job.json" 2>"$LAB/job.err" </dev/null
pid=$STARTED_PID
sleep 0.5
cores "$one"
holds "half of the sender's cores, pulled: the plan is made anew" test "$(told 'the other end may use 1 core')" -ge 0
wait "$pid"
STATUS=$? OUT="$LAB/job.json" ERR="$LAB/job.err"
cp_ends 0 "half of the sender's cores, pulled: exit code 0"
holds "half of the sender's cores, pulled: the same bytes" cmp "$SRC/large" "$LAB/pulled"
finish
