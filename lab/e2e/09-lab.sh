#!/usr/bin/env bash
# `longhaul lab`: hosts, links, changes while it runs, what is left behind (nothing), and whether the links are what they say.
source "$(dirname "$0")/check.sh"

LAB_LIMIT=60
needs_lab

lab run -q -- sh -c 'exit 7'
is $? 7 "run: the command's exit code is passed on"
lab run -q -- sh -c 'kill -TERM $$'
is $? 143 "run: a signal's code is passed on as shells do"
lab run -q -- /no/such/command 2>"$LAB/none.err"
is $? 2 "run: a command that is not there is a usage error"
lab run --loss 1 -- true 2>"$LAB/word.err"
is $? 2 "run: a value without its unit is refused"
is "$(lab run -q -- sh -c 'echo $LONGHAUL_LAB_A $LONGHAUL_LAB_B')" "10.99.0.1 10.99.0.2" "run: the environment has the addresses"

# --- ends: whatever runs in the hosts goes with the lab ---
inside="sleep 86399.5"
count() { pgrep -fc "^$inside" || true; }
lab run -q -- sh -c "'$LONGHAUL' lab on b -b -- $inside >/dev/null; setsid $inside & sleep 0.2" >/dev/null 2>&1
is "$(count)" 0 "run: nothing is left in the hosts"
"$LONGHAUL" lab run -q -- sh -c "'$LONGHAUL' lab on b -b -- $inside >/dev/null; exec $inside" >/dev/null 2>&1 </dev/null &
pid=$!
until_true 10 eval '[ "$(count)" = 2 ]'
kill -9 $pid
wait $pid 2>/dev/null
holds "kill -9: nothing is left in the hosts" until_true 5 eval '[ "$(count)" = 0 ]'
holds "kill -9: no socket is left" until_true 5 eval '[ -z "$(ls "$LAB"/longhaul-lab-*/ 2>/dev/null)" ]'
"$LONGHAUL" lab run -q -- sleep 60 </dev/null &
pid=$!
sleep 0.5
kill -TERM $pid # a shell's background commands ignore SIGINT
wait $pid
is $? 143 "SIGTERM: reaches the command, whose end is passed on"

# --- a lab that stays ---
lab up one --rtt 4ms --rate 100Mbit --link "" --link "rate=50Mbit" >/dev/null
is "$(lab list)" one "up: the lab is listed"
lab up one >/dev/null 2>&1
is $? 2 "up: a name is given once"
is "$(lab on b -- sh -c 'echo $LONGHAUL_LAB_A1')" 10.99.1.1 "on: a command on host b"
holds "set: rate and loss of one direction" lab set 1 ab.rate=10Mbit ba.loss=2%
holds "set: is shown" eval 'lab show | grep -q "link 1:.*ab.rate=10Mbit/s ba.rate=50Mbit/s.*ab.loss=0% ba.loss=2%"'
lab set 2 down >/dev/null 2>&1
is $? 2 "set: a link that is not there is refused"
lab move a 10.99.0.77 >/dev/null
holds "move: the host has the new address" eval 'lab on a -- cat /proc/net/fib_trie | grep -q "10\.99\.0\.77"'
lab down one >"$LAB/down.out"
holds "down: says what the links did" grep -q "link 1 a to b" "$LAB/down.out"
is "$(lab list)" "" "down: the lab is gone"

# --- a script ---
cat >"$LAB/script" <<END
at 300ms link 0 down   # for half a second
at 800ms link 0 rate=20Mbit up
END
lab run -q --script "$LAB/script" --rtt 2ms -- sh -c "sleep 0.5; '$LONGHAUL' lab show; sleep 0.6; '$LONGHAUL' lab show" >"$LAB/script.out" 2>&1
is "$(grep -c ' down$' "$LAB/script.out") $(grep -c 'rate=20Mbit/s.* up$' "$LAB/script.out")" "1 1" "script: the link goes down and comes up again"

# --- bytes: what goes through a bad link comes out right ---
random_file "$SRC/data.bin" $((16 << 20))
mkdir -p "$DST/lab"
cat >"$LAB/cp.sh" <<END
set -e
"$LONGHAUL" lab on b -b --log "$LAB/lab-serve.out" -- "$LONGHAUL" serve --root "$DST/lab" --listen "[::]:7440" --ticket >/dev/null
for _ in \$(seq 100); do url=\$(grep -m1 -o '^longhaul://[^@]*' "$LAB/lab-serve.out") && break; sleep 0.05; done
exec "$LONGHAUL" cp --json "$SRC/data.bin" "\$url@\$1:7440/"
END
for to in 10.99.0.2 '[fd99::2]'; do
    rm -f "$DST/lab/data.bin" "$LAB/lab-serve.out"
    LONGHAUL_HOME="$LAB/home-a" lab run -q --rate 1Gbit --rtt 2ms --loss 0.5% --reorder 1%/1ms --duplicate 1% --corrupt 0.5% -- bash "$LAB/cp.sh" "$to" >"$LAB/lab-cp.out" 2>&1
    is $? 0 "a copy over loss, reordering, doubles and turned bits to $to ends well"
    holds "it is equal" cmp "$SRC/data.bin" "$DST/lab/data.bin"
done

# --- the links are what they say (times are measured up to three times, and up to ten where the emulator itself was late: a busy machine makes them later, never truer) ---
lab measure --quick >"$LAB/measure.out" 2>&1
if [ $? = 0 ]; then ok "measure: every link is what it says"; else not_ok "measure: a link is not what it says" "$(grep 'not ok' "$LAB/measure.out")"; fi
finish
