#!/usr/bin/env bash
# longhaul job: running jobs are seen, changed and stopped, at either end, over TCP and UDP.
source "$(dirname "$0")/check.sh"

random_file "$SRC/one.bin" $((48 << 20))
mkdir -p "$DST/far"
serve b "$DST/far"

job() { on a "$LONGHAUL" job "$@"; }
job_b() { on b "$LONGHAUL" job "$@"; }
# running NAME ARGUMENTS...: a slow copy in the background; its lines are $LAB/NAME.json, $ID its name, $PID its process. One at a time.
running() {
    local name=$1
    shift
    start a "$LONGHAUL" cp --json "$@" >"$LAB/$name.json" 2>"$LAB/$name.err" </dev/null
    PID=$STARTED_PID
    ID=
    until_true 30 eval '[ "$(of bytes_done)" -gt 0 ] 2>/dev/null' || not_ok "$name: job list shows it" "$(job list; tail -n 3 "$LAB/$name.err")"
    ID=$(of job)
}
# of FIELD, far_of FIELD: of the job that runs, as the board at host a or b shows it; "gone" where none does.
FIELD='import json,sys; all=json.load(sys.stdin); print(all[0][sys.argv[1]] if all else "gone")'
of() { job list --json | python3 -c "$FIELD" "$1"; }
far_of() { job_b list --json | python3 -c "$FIELD" "$1"; }
ended() { # ended NAME CODE WORDS
    wait "$PID"
    STATUS=$? OUT="$LAB/$1.json" ERR="$LAB/$1.err"
    cp_ends "$2" "$3"
}

is "$(job list)" "no job runs here (of LONGHAUL_HOME $LAB/home-a/)" "no job: said in words"

for transport in tcp udp; do
    # --- seen, and its cap lifted: 48 MiB at 16 Mbit/s would take 25 s ---
    rm -f "$DST/far/one.bin"
    running "$transport" --transport $transport --rate 16Mbit "$SRC/one.bin" "${URL}"
    holds "$transport: the list has what goes where, and no ticket" grep -q 'one.bin -> longhaul://[^@]*$' <<<"$(job list | grep "${ID:0:8}" | head -n 1)"
    is "$(of cap_bps) $(far_of cap_bps) $(far_of end)" "16000000 16000000 receives" "$transport: both ends show the cap"
    holds "$transport: show has a page of it" grep -q "^rails .* over $transport" <<<"$(job show "${ID:0:10}")"
    t=$(date +%s%N)
    is "$(job set "${ID:0:8}" --rate 2Gbit 2>&1 | grep -c 'at most 2Gbit.* from now on')" 1 "$transport: set says what holds"
    ended $transport 0 "$transport: a job whose cap was lifted ends well"
    took=$((($(date +%s%N) - t) / 1000000))
    holds "$transport: and soon ($took ms)" test $took -lt 12000
    same "$SRC/one.bin" "$DST/far/one.bin" "$transport: equal"
    holds "$transport: the job's own lines say who asked" grep -q 'from now on: `longhaul job set` asked for it at this end' "$OUT" "$ERR"

    # --- lowered in mid-run by the end that receives; the sender follows ---
    rm -f "$LAB/back.bin"
    running "back-$transport" --transport $transport --rate 30Mbit "${URL}one.bin" "$LAB/back.bin"
    job set "$ID" --rate 8Mbit >/dev/null || not_ok "$transport: a pull is lowered"
    holds "$transport: a pull is lowered, and its sender at the daemon knows" until_true 5 eval '[ "$(far_of cap_bps)" = 8000000 ]'
    sleep 1 # what was on its way comes
    from=$(of bytes_done)
    sleep 3
    to=$(of bytes_done)
    # Chunks are 1 MiB: one more or less than 3 s of 8 Mbit/s are.
    holds "$transport: 3 s of 8 Mbit/s are $((to - from)) bytes" test $((to - from)) -gt 1000000 -a $((to - from)) -lt 5500000

    # --- stopped, and gone on with ---
    holds "$transport: stop says how to go on" grep -q 'stopped; the same command goes on' <<<"$(job stop "$ID")"
    ended "back-$transport" 32 "$transport: a stopped job ends with its own code"
    holds "$transport: it says why" grep -q 'longhaul job stop' "$OUT" "$ERR"
    cp_run --transport $transport "${URL}one.bin" "$LAB/back.bin"
    cp_ends 0 "$transport: the same command goes on"
    holds "$transport: $(number resumed_bytes) bytes were there" test "$(number resumed_bytes)" -gt 0
    same "$SRC/one.bin" "$LAB/back.bin" "$transport: equal"
done

# --- by the daemon's operator: what the client asked for stays its cap ---
rm -f "$DST/far/one.bin"
running operator --transport udp --rate 24Mbit "$SRC/one.bin" "${URL}"
is "$(far_of policy) $(far_of controller)" "fair delay" "the daemon's board has the policy"
# A cap above the other end's does not lift that.
is "$(job_b set "$ID" --rate 2Gbit --policy low | sed 's/^[^:]*: //')" "at most 24Mbit/s, policy low (the other end's cap) from now on" "at the daemon: a policy that claims less, and a cap that changes nothing"
holds "the client has it" until_true 5 eval '[ "$(of policy) $(of cap_bps)" = "low 24000000" ]'
job_b set "$ID" --min-rate 4Mbit >"$LAB/more" 2>&1
is "$? $(grep -c 'its own user alone' "$LAB/more")" "2 1" "at the daemon: it cannot make its client claim more"
job set "$ID" --min-rate 4Mbit >/dev/null || not_ok "the client's own user can"
holds "the daemon has the least rate" until_true 5 eval '[ "$(far_of policy) $(far_of min_rate_bps)" = "low 4000000" ]'
job set "$ID" --policy fixed >/dev/null || not_ok "a fixed pace at the cap"
is "$(of policy)" fixed "a fixed pace at the cap"
holds "the daemon knows" until_true 5 eval '[ "$(far_of policy)" = fixed ]'
job_b set "$ID" --rate none >/dev/null || not_ok "the daemon's own cap is taken back"
sleep 1 # of which nothing is to be seen here: the client's own cap is the smaller one
job set "$ID" --rate none >"$LAB/none" 2>&1
is "$? $(grep -c 'a fixed pace needs a rate' "$LAB/none")" "2 1" "a fixed pace without a cap is refused in words"
job set "$ID" --rate 2Gbit --policy fair >/dev/null || not_ok "back to fair"
ended operator 0 "a job that was changed four times ends well"
same "$SRC/one.bin" "$DST/far/one.bin" "equal"
holds "the report has the policy at the end" grep -q '"event":"done".*"policy":"fair"' "$OUT"

# --- stopped at the daemon; and a local copy, both ends of which are one process ---
rm -f "$DST/far/one.bin"
running far-stop --rate 16Mbit "$SRC/one.bin" "${URL}"
holds "stopped at the daemon" grep -q 'stopped' <<<"$(job_b stop "$ID")"
ended far-stop 32 "a job that the daemon's operator stopped ends with that code at its client"
rm -f "$LAB/local.bin"
running local --rate 16Mbit --reflink never "$SRC/one.bin" "$LAB/local.bin"
t=$(date +%s%N)
job set "$ID" --rate none >/dev/null || not_ok "a local copy is let go"
ended local 0 "a local copy ends well"
took=$((($(date +%s%N) - t) / 1000000))
holds "a local copy whose cap is taken away is fast ($took ms of 24 s)" test $took -lt 12000

# --- what cannot be ---
rm -f "$DST/far/one.bin"
running wrong --rate 16Mbit "$SRC/one.bin" "${URL}"
job set "$ID" --policy low >"$LAB/wrong" 2>&1
is "$? $(grep -c 'goes over TCP' "$LAB/wrong")" "2 1" "a policy over TCP is refused in words"
job set "$ID" >/dev/null 2>&1
is $? 2 "nothing to change is a usage error"
job set 00000000000000000000000000000000ff --rate 1Mbit >"$LAB/wrong" 2>&1
is "$? $(grep -c 'longhaul job list' "$LAB/wrong")" "5 1" "no such job: named, with the next step"
# --- a killed process leaves nothing that is shown ---
kill -9 "$PID"
wait "$PID" 2>/dev/null
is "$(of job)" gone "a killed job is not shown"
is "$(find "$LAB/home-a/run" -name '*.sock' | wc -l)" 0 "and its socket is swept"
is "$(stat -c %a "$LAB/home-a/run" "$LAB/home-b/run" | sort -u)" 700 "nobody else can ask"
stop "$SERVE_PID" TERM
is "$(find "$LAB/home-b/run" -name '*.sock' | wc -l)" 0 "a daemon that ends takes its socket away"

finish
