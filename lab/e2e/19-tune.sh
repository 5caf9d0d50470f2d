#!/usr/bin/env bash
# host plan, apply, undo: only inside a namespace of its own, with rules whose values are that namespace's alone.
source "$(dirname "$0")/check.sh"

if [ "$HOST_KIND" != netns ]; then
    skip "host apply: needs root and a network namespace of its own ($HOST_KIND here)"
    finish
fi
names="tcp_slow_start_after_idle tcp_mtu_probing tcp_rmem tcp_wmem"
values() { for name in $names; do on b cat "/proc/sys/net/ipv4/$name"; done; }
value() { on b cat "/proc/sys/net/ipv4/$1"; }
rules=(--rule idle-start --rule mtu-probing --rule socket-buffers)
state=(--state "$LAB/state")
on b sh -c 'echo 1 >/proc/sys/net/ipv4/tcp_slow_start_after_idle; echo 0 >/proc/sys/net/ipv4/tcp_mtu_probing; echo "4096 16384 1000000" >/proc/sys/net/ipv4/tcp_wmem'
before=$(values)
machine=$(sysctl -n net.ipv4.tcp_slow_start_after_idle net.ipv4.tcp_mtu_probing net.ipv4.tcp_wmem vm.swappiness net.ipv4.tcp_congestion_control net.ipv4.tcp_allowed_congestion_control)

# --- plan: told, with the shell for it, and nothing changed ---
on b "$LONGHAUL" host plan "${rules[@]}" >"$LAB/plan" 2>&1
is $? 0 "plan: exit code 0"
holds "plan: tells why, at what risk, from what to what" grep -q 'risk: ' "$LAB/plan"
holds "plan: and the shell" grep -q "sysctl -w net.ipv4.tcp_slow_start_after_idle='0'" "$LAB/plan"
is "$(values)" "$before" "plan: nothing is changed"
on b "$LONGHAUL" host plan "${rules[@]}" --shell >"$LAB/plan.sh"
holds "plan --shell: the shell does the same" on b sh -c "$(cat "$LAB/plan.sh") ; [ \$(cat /proc/sys/net/ipv4/tcp_mtu_probing) = 1 ]"
on b sh -c 'echo 1 >/proc/sys/net/ipv4/tcp_slow_start_after_idle; echo 0 >/proc/sys/net/ipv4/tcp_mtu_probing; echo "4096 16384 1000000" >/proc/sys/net/ipv4/tcp_wmem'
[ "$(values)" = "$before" ] || on b sh -c "echo '$(sed -n 3p <<<"$before")' >/proc/sys/net/ipv4/tcp_rmem"
on b "$LONGHAUL" host plan --rule no-such-rule >/dev/null 2>"$LAB/err"
is $? 2 "a rule that is none: exit code 2"
holds "and the rules are named" grep -q 'irqbalance, interrupts' "$LAB/err"

# --- a command under the values ---
said=$(on b "$LONGHAUL" host apply "${rules[@]}" "${state[@]}" -- cat /proc/sys/net/ipv4/tcp_mtu_probing 2>&1)
is "$(grep -c '^1$' <<<"$said")" 1 "apply -- COMMAND: the command sees the value"
is "$(values)" "$before" "apply -- COMMAND: every value is back"
holds "apply -- COMMAND: no journal is left" test ! -e "$LAB/state/host.journal"

# --- held, then killed in each way ---
held() { start b "$LONGHAUL" host apply "${rules[@]}" "${state[@]}" >"$LAB/apply.out" 2>"$LAB/apply.err" </dev/null; until_true 5 grep -q '^holding' "$LAB/apply.out"; }
gone() { [ "$(values)" = "$before" ]; }
moved() { [ "$(value "$1")" = "$2" ]; }
for signal in TERM KILL; do
    held
    holds "$signal: the values are set" test "$(value tcp_mtu_probing)$(value tcp_slow_start_after_idle)" = 10
    on b "$LONGHAUL" host apply "${rules[@]}" "${state[@]}" >/dev/null 2>&1
    is $? 3 "$signal: a second apply is turned away"
    on b "$LONGHAUL" host undo "${state[@]}" >/dev/null 2>&1
    is $? 3 "$signal: so is an undo while they are held"
    at=$(date +%s%N)
    kill "-$signal" "$STARTED_PID"
    holds "kill -$signal: every value is back within 5 s" until_true 5 gone
    echo "#   after $((($(date +%s%N) - at) / 1000000)) ms"
    wait "$STARTED_PID" 2>/dev/null
    until_true 5 test ! -e "$LAB/state/host.journal"
done

# --- the watchdog is killed: another one comes; then the lease holder ---
held
guard=$(cat "/proc/$STARTED_PID/task/$STARTED_PID/children")
kill -9 $guard
holds "the watchdog is killed: another one watches" until_true 5 grep -q 'another one watches' "$LAB/apply.err"
kill -9 "$STARTED_PID"
holds "and undoes" until_true 5 gone
wait "$STARTED_PID" 2>/dev/null

# --- both at once: the journal stays, undo reads it; what others have set since is left ---
until_true 5 test ! -e "$LAB/state/host.journal"
held
guard=$(cat "/proc/$STARTED_PID/task/$STARTED_PID/children")
kill -9 $guard "$STARTED_PID"
wait "$STARTED_PID" 2>/dev/null
holds "lease holder and watchdog killed at once: the values stand" test "$(value tcp_mtu_probing)" = 1
on b "$LONGHAUL" host apply "${rules[@]}" "${state[@]}" >/dev/null 2>"$LAB/err"
is $? 3 "and an apply says so instead of taking them for the old ones"
on b sh -c 'echo 2 >/proc/sys/net/ipv4/tcp_mtu_probing'
said=$(on b "$LONGHAUL" host undo "${state[@]}" 2>&1)
is "$(value tcp_slow_start_after_idle)" 1 "undo: puts the rest back"
is "$(value tcp_mtu_probing)" 2 "undo: leaves what somebody else has set since"
holds "undo: and says so" grep -q 'somebody else has set it since' <<<"$said"
on b sh -c 'echo 0 >/proc/sys/net/ipv4/tcp_mtu_probing'

# --- rules for NICs, tried on the veth of this namespace: its own /sys, so that nothing of the machine is seen ---
on b mount -t sysfs none /sys
# killed VALUES OLD WORDS: who holds the rules is killed: what VALUES prints is OLD again, and the journal is gone.
killed() {
    local values=$1 old=$2
    back() { [ "$($values)" = "$old" ]; }
    kill -9 "$STARTED_PID"
    holds "$3" until_true 5 back
    wait "$STARTED_PID" 2>/dev/null
    until_true 5 test ! -e "$LAB/state/host.journal"
}
cards() { on b sh -c 'cat /sys/class/net/lh0/mtu /sys/class/net/lh0/queues/rx-*/rps_flow_cnt; tc qdisc show dev lh0'; }
card_rules=(--nic lh0 --rule mtu --rule rfs --rule qdisc)
old_cards=$(cards)
on b "$LONGHAUL" host plan --nic lh0 >"$LAB/plan" 2>&1
holds "rules for NICs: an MTU is proposed only where it was named" test "$(grep -o '^mtu:\|^rfs:' "$LAB/plan" | paste -sd' ')" = rfs:
on b "$LONGHAUL" host plan "${card_rules[@]}" >"$LAB/plan" 2>&1
holds "rules for NICs: who else sets it is named" grep -q '  conflicts: .*NetworkManager' "$LAB/plan"
on b "$LONGHAUL" host plan --nic lh9 >/dev/null 2>"$LAB/err"
is "$? $(grep -c 'the interfaces are .*lh0' "$LAB/err")" "2 1" "rules for NICs: a name that is none: exit code 2, and the names"
on b "$LONGHAUL" host plan "${card_rules[@]}" --shell >"$LAB/plan.sh"
start b "$LONGHAUL" host apply "${card_rules[@]}" "${state[@]}" >"$LAB/apply.out" 2>"$LAB/apply.err" </dev/null
until_true 5 grep -q '^holding' "$LAB/apply.out"
set_cards=$(cards)
holds "rules for NICs: 9000 bytes, a table of flows" eval '[[ "$set_cards" == 9000*32768* ]]'
if grep -q '^not set: lh0 qdisc stays' "$LAB/apply.out"; then
    skip "rules for NICs: this kernel has no fq; that it cannot be set is told"
    is "$(tail -n 1 <<<"$set_cards")" "$(tail -n 1 <<<"$old_cards")" "rules for NICs: a discipline that cannot be had leaves the one that was"
    sed -i '/^tc /d' "$LAB/plan.sh"
else
    holds "rules for NICs: fq" grep -q 'qdisc fq ' <<<"$set_cards"
fi
killed cards "$old_cards" "rules for NICs: kill -9: every value is back within 5 s"
on b sh "$LAB/plan.sh"
plain() { sed 's/qdisc fq [0-9a-f]*:/qdisc fq/'; }
is "$(cards | plain)" "$(plain <<<"$set_cards")" "rules for NICs: the shell does the same"
on b sh -c 'tc qdisc del dev lh0 root 2>/dev/null; ip link set lh0 mtu 1500; for file in /sys/class/net/lh0/queues/rx-*/rps_flow_cnt; do echo 0 >$file; done'
on b tc qdisc replace dev lh0 root tbf rate 1gbit burst 128kb latency 20ms
on b "$LONGHAUL" host plan --card lh0 --rule qdisc >"$LAB/plan" 2>&1
holds "rules for NICs (by the older name of the option): a discipline that somebody chose is left" grep -q '^nothing to change' "$LAB/plan"
on b tc qdisc del dev lh0 root

# --- a NIC of one queue: its packets go to every core; a mask that somebody chose is left ---
masks() { on b sh -c 'cat /sys/class/net/lh0/queues/rx-*/rps_cpus | sed "s/^[0,]*//"'; }
if [ "$(nproc)" -lt 2 ]; then
    skip "rps: one core, no other to hand packets to"
else
    on b "$LONGHAUL" host plan --nic lh0 --rule rps --shell >"$LAB/plan.sh"
    holds "rps: the plan's shell names the queue" grep -q "^echo '[0-9a-f,]*' > /sys/class/net/lh0/queues/rx-0/rps_cpus   # was: 0" "$LAB/plan.sh"
    old_masks=$(masks)
    start b "$LONGHAUL" host apply --nic lh0 --rule rps "${state[@]}" >"$LAB/apply.out" 2>"$LAB/apply.err" </dev/null
    until_true 5 grep -q '^holding' "$LAB/apply.out"
    set_masks=$(masks)
    holds "rps: every core is in the mask" test -n "$set_masks" -a "$set_masks" != "$old_masks"
    on b sh -c 'echo 1 >/sys/class/net/lh0/queues/rx-0/rps_cpus'
    holds "rps: drift is told within 10 s" until_true 10 grep -q '^moved: /sys/class/net/lh0/queues/rx-0/rps_cpus = 1,' "$LAB/apply.err"
    on b sh -c "echo $set_masks >/sys/class/net/lh0/queues/rx-0/rps_cpus"
    killed masks "$old_masks" "rps: kill -9: the mask is back within 5 s"
    on b sh "$LAB/plan.sh"
    is "$(masks)" "$set_masks" "rps: the shell does the same"
    on b "$LONGHAUL" host plan --nic lh0 --rule rps >"$LAB/plan" 2>&1
    holds "rps: a mask that is set is left" grep -q '^nothing to change' "$LAB/plan"
    on b sh -c 'echo 0 >/sys/class/net/lh0/queues/rx-0/rps_cpus'
fi

# --- congestion control: only by name; of this namespace alone ---
laws() { on b cat /proc/sys/net/ipv4/tcp_congestion_control /proc/sys/net/ipv4/tcp_allowed_congestion_control; }
if ! on b grep -qw bbr /proc/sys/net/ipv4/tcp_allowed_congestion_control; then
    skip "congestion control: bbr is not permitted in a namespace here"
else
    was=$(value tcp_congestion_control)
    on b sh -c 'echo reno >/proc/sys/net/ipv4/tcp_congestion_control'
    old_laws=$(laws)
    holds "congestion control: not proposed where it was not named" eval '! on b "$LONGHAUL" host plan 2>&1 | grep -q ^congestion-control:'
    on b "$LONGHAUL" host plan --rule congestion-control >"$LAB/plan" 2>&1
    holds "congestion control: from what to what" grep -q '+ net.ipv4.tcp_congestion_control = bbr' "$LAB/plan"
    holds "congestion control: the shell" grep -q "sysctl -w net.ipv4.tcp_congestion_control='bbr'" "$LAB/plan"
    holds "congestion control: whom it touches, and who else sets it" eval 'grep -q "risk: .*every program" "$LAB/plan" && grep -q "conflicts: .*TCP_CONGESTION" "$LAB/plan"'
    start b "$LONGHAUL" host apply --rule congestion-control "${state[@]}" >"$LAB/apply.out" 2>"$LAB/apply.err" </dev/null
    until_true 5 grep -q '^holding' "$LAB/apply.out"
    is "$(value tcp_congestion_control)" bbr "congestion control: apply sets it"
    killed laws "$old_laws" "congestion control: kill -9: it is back within 5 s, with who is permitted what"
    on b sh -c "echo $was >/proc/sys/net/ipv4/tcp_congestion_control" || true
    on b "$LONGHAUL" host apply --keep --rule congestion-control "${state[@]}" >/dev/null 2>&1
    on b "$LONGHAUL" host undo "${state[@]}" >/dev/null 2>&1
    is "$(value tcp_congestion_control)" "$was" "congestion control: undo after --keep puts it back"
fi

# --- drift is told within ten seconds ---
held
on b sh -c 'echo 1 >/proc/sys/net/ipv4/tcp_slow_start_after_idle'
holds "drift: told within 10 s" until_true 10 grep -q '^moved: net.ipv4.tcp_slow_start_after_idle = 1' "$LAB/apply.err"
stop "$STARTED_PID"
is "$(values)" "$before" "drift: every value is back"

# --- proof: what does nothing is taken back, what helps stays, what hurts goes ---
cat >"$LAB/measure" <<'END'
#!/bin/sh
# One of the values helps, one hurts, the others do nothing; and noise.
base=$(awk 'BEGIN { srand(); print 100 + rand() }' /dev/null)
[ "$(cat /proc/sys/net/ipv4/tcp_slow_start_after_idle)" = 0 ] && base=$(echo "$base" | awk '{ print $1 * 1.2 }')
[ "$(cat /proc/sys/net/ipv4/tcp_mtu_probing)" = 1 ] && base=$(echo "$base" | awk '{ print $1 * 0.8 }')
echo "$base"
END
chmod +x "$LAB/measure"
said=$(on b "$LONGHAUL" host apply --rule idle-start --rule mtu-probing "${state[@]}" --ab-check --pairs 8 --keep --measure "$LAB/measure" 2>&1)
is $? 0 "apply --ab-check --keep: exit code 0"
holds "prove: what helps is named" grep -q '^idle-start: helps' <<<"$said"
holds "prove: what hurts is named" grep -q '^mtu-probing: hurts' <<<"$said"
is "$(value tcp_slow_start_after_idle)$(value tcp_mtu_probing)" 00 "prove: only what helps stays set"
on b "$LONGHAUL" host undo "${state[@]}" >/dev/null 2>&1
is "$(values)" "$before" "undo after --keep: every value is back"
on b "$LONGHAUL" host apply --rule idle-start "${state[@]}" --ab-check --measure false >/dev/null 2>&1
is "$? $(value tcp_slow_start_after_idle)" "3 1" "a measurement that fails: exit code 3, the value is back"

is "$(sysctl -n net.ipv4.tcp_slow_start_after_idle net.ipv4.tcp_mtu_probing net.ipv4.tcp_wmem vm.swappiness net.ipv4.tcp_congestion_control net.ipv4.tcp_allowed_congestion_control)" "$machine" "the machine around has its values"
finish
