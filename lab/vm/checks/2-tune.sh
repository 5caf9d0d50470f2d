#!/bin/bash
# plan, apply, undo on real NICs and with a real irqbalance: what is set, that every value is back, and what moves meanwhile.
source /vm/hosts.sh
holds "four links come up" cards_up
state=(--state "$LAB/state")
# It looks once in ten minutes: a pass of its own, right after it is let go again, would move what is compared here.
irqbalance --interval=600 >/dev/null 2>&1
holds "irqbalance runs" until_true 30 pidof irqbalance
balancer=$(pidof irqbalance)
sleep 3

# Every value that a rule may touch here, as the kernel's own tools tell it.
values() {
    local card file
    for card in a0 a1 b0 b1; do
        ethtool -g $card | grep -E '^(RX|TX):'
        ethtool -k $card | grep -E '^(tcp-segmentation-offload|generic-segmentation-offload|generic-receive-offload|ntuple-filters):'
        cat /sys/class/net/$card/queues/tx-*/xps_cpus /sys/class/net/$card/queues/rx-*/rps_flow_cnt /sys/class/net/$card/mtu
        tc qdisc show dev $card | sed 's/ refcnt.*//'
    done
    for file in $(interrupts); do echo "$file $(cat "$file")"; done
    cat /sys/block/nvme*/queue/{read_ahead_kb,scheduler} /proc/sys/net/ipv4/tcp_{rmem,wmem,slow_start_after_idle,mtu_probing}
    cat /proc/sys/net/core/{rmem_max,wmem_max,netdev_max_backlog,rps_sock_flow_entries} /proc/sys/kernel/numa_balancing /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages
}
interrupts() { for card in a0 a1 b0 b1; do for irq in $(ls /sys/class/net/$card/device/msi_irqs | sort -n); do echo "/proc/irq/$irq/smp_affinity_list"; done; done; }
stopped() { grep -q '^State:.T' "/proc/$balancer/status"; }
running() { ! stopped; }

before=$(values)
"$LONGHAUL" host plan >"$LAB/plan" 2>&1
is $? 0 "plan: exit code 0"
for rule in irqbalance interrupts xps rings qdisc rfs socket-buffers read-ahead; do holds "plan: names $rule" grep -q "^$rule: " "$LAB/plan"; done
holds "plan: irqbalance runs on" running

# --- under a command: set there, back afterwards ---
"$LONGHAUL" host apply "${state[@]}" -- bash -c "grep -q '^State:.T' /proc/$balancer/status && ethtool -g a0 | tail -n +6 | grep -q '^RX:.*4096' && echo inside" >"$LAB/apply" 2>&1
is $? 0 "apply -- COMMAND: exit code 0"
holds "apply -- COMMAND: it sees long rings, and irqbalance held" grep -q '^inside' "$LAB/apply"
holds "apply -- COMMAND: irqbalance runs again" running
is "$(diff <(echo "$before") <(values) | head -8)" "" "apply -- COMMAND: every value is back"

# --- held, what moves, killed ---
mapfile -t every < <("$LONGHAUL" host plan --rule no-such 2>&1 | sed -n 's/.*the rules are //p' | tr ',' '\n' | sed 's/^ */--rule=/')
"$LONGHAUL" host apply "${state[@]}" "${every[@]}" >"$LAB/held" 2>"$LAB/moved" </dev/null &
owner=$!
holds "apply of all rules, also those that must be named, holds" until_true 120 grep -q '^holding' "$LAB/held"
echo "# $(grep '^holding' "$LAB/held"); not set: $(grep -c '^not set' "$LAB/held")"
grep '^not set' "$LAB/held" | sed 's/^/#   /' | head -8
holds "irqbalance is held" stopped
is "$(cat /sys/class/net/[ab][01]/mtu | sort -u)" 9000 "long packets"
is "$(for card in a0 a1 b0 b1; do tc qdisc show dev $card | grep -c 'qdisc fq '; done | sort -u)" "$VM_QUEUES" "fq at each queue of each NIC"
is "$(cat /sys/devices/system/node/node?/hugepages/hugepages-2048kB/nr_hugepages | sort -u)" 128 "huge pages on both nodes"
is "$(cat /proc/sys/net/core/rps_sock_flow_entries)" 32768 "tables of flows"
count=$(for file in $(interrupts); do [ "$(cat "$file")" != "0-3" ] && echo x; done | grep -c x)
is "$count" "$(interrupts | grep -c .)" "every interrupt of the NICs is on a core of its own choice"
far=$(for card in a0 a1 b0 b1; do
    for irq in /sys/class/net/$card/device/msi_irqs/*; do
        [ $(($(cat "/proc/irq/${irq##*/}/smp_affinity_list") / 2)) = "${card#?}" ] || echo "${irq##*/}"
    done
done)
is "$far" "" "and of the NIC's node"
sleep 8 # what our own rings did to the links is over, and the first look was taken
told() { # told WORDS PATTERN: within ten seconds
    local from
    from=$(date +%s%N)
    holds "$1" until_true 10 grep -q "$2" "$LAB/moved"
    echo "#   after $((($(date +%s%N) - from) / 1000000)) ms"
}
kill -CONT "$balancer"
told "drift: irqbalance goes on: told within 10 s" '^moved: irqbalance.*= running'
ip link set a1 mtu 1400
told "drift: an MTU changes: told within 10 s" '^moved: .*a1.*1400'
ip link set b0 down
told "drift: a link goes: told within 10 s" '^moved: .*[ab]0.*down'
ip link set b0 up
ip link set a1 mtu 9000
kill -STOP "$balancer"
sleep 4
from=$(date +%s%N)
kill -9 $owner
gone() { [ ! -e "$LAB/state/host.journal" ]; }
holds "kill -9: the watchdog has undone it" until_true 60 gone
took=$((($(date +%s%N) - from) / 1000000))
from=$(date +%s%N)
ethtool -G a0 rx 512 && ethtool -G a0 rx 256
echo "#   after $took ms, in an emulated machine, where one change of a ring (there were four) takes $((($(date +%s%N) - from) / 2000000)) ms"
wait $owner 2>/dev/null
until_true 60 all_up
is "$(diff <(echo "$before") <(values) | head -8)" "" "kill -9: every value is back"
kill -9 "$balancer"

# --- another irqbalance, started while it is held ---
"$LONGHAUL" host apply "${state[@]}" --rule idle-start >"$LAB/held" 2>"$LAB/moved" </dev/null &
owner=$!
until_true 60 grep -q '^holding' "$LAB/held"
sleep 5
irqbalance >/dev/null 2>&1
told "drift: an irqbalance is started: told within 10 s" '^moved: irqbalance (process [0-9]*) was started'
kill -TERM $owner
wait $owner 2>/dev/null
kill -9 "$(pidof irqbalance)"

# --- kept over a new start of the machine: the second boot looks at it (3-reboot.sh) ---
mkfs.xfs -q -f /dev/drives/nvme0 && mkdir -p /mnt/nvme0 && mount /dev/drives/nvme0 /mnt/nvme0
"$LONGHAUL" host apply --keep --state /mnt/nvme0/state --rule idle-start --rule mtu-probing --rule rings --rule interrupts --rule read-ahead >"$LAB/kept" 2>&1
is $? 0 "apply --keep: exit code 0"
is "$(cat /proc/sys/net/ipv4/tcp_mtu_probing)" 1 "apply --keep: the values stay"
cp /proc/sys/kernel/random/boot_id /mnt/nvme0/boot
umount /mnt/nvme0
finish
