#!/bin/bash
# What the guest has, by `host show`, beside what its /sys says: NUMA nodes, NICs with queues and a vector each, drives by node.
source /vm/hosts.sh
holds "four links come up" cards_up

"$LONGHAUL" host show --json >"$LAB/host.json" 2>"$LAB/err"
is $? 0 "host show: exit code 0"
"$LONGHAUL" host show >"$LAB/host.txt"
field() { jq -r "$1" "$LAB/host.json"; }
is "$(field '[.nodes[] | .cores | map(tostring) | join(",")] | join(" ")')" "0,1 2,3" "two NUMA nodes with two cores each"
is "$(field '[.nodes[] | .distances | map(tostring) | join(",")] | join(" ")')" "10,20 20,10" "and the distances of the firmware"
for card in a0 a1 b0 b1; do
    one=".nics[] | select(.name == \"$card\")"
    is "$(field "$one | .driver")" "$(basename "$(readlink /sys/class/net/$card/device/driver)")" "$card: its driver"
    is "$(field "$one | .node")" "$(cat /sys/class/net/$card/device/numa_node)" "$card: its NUMA node"
    is "$(field "$one | .node")" "${card#?}" "$card: which is that of its wire"
    is "$(field "$one | .rx_queues")" "$VM_QUEUES" "$card: $VM_QUEUES receive queues"
    is "$(field "$one | .rings[0][0]")" "$(ethtool -g $card | awk '/^Current/ {c = 1} c && /^RX:/ {print $2}')" "$card: its receive ring"
    map=$(for irq in $(ls /sys/class/net/$card/device/msi_irqs | sort -n); do echo "$irq:$(cat /proc/irq/"$irq"/effective_affinity_list)"; done | paste -sd' ')
    is "$(field "$one | [.irqs[] | \"\(.number):\(.cores | map(tostring) | join(\",\"))\"] | join(\" \")")" "$map" "$card: each interrupt and its core"
    holds "$card: a vector for each queue and more" test "$(field "$one | .irqs | length")" -gt "$VM_QUEUES"
done
for number in 0 1; do
    drive=$(basename "$(readlink /dev/drives/nvme$number)")
    is "$(field ".disks[] | select(.name == \"$drive\") | .node")" "$number" "drive $number: its NUMA node"
done
holds "the tree draws NICs and drives at their nodes" awk '/^node 0:/ {n = 0} /^node 1:/ {n = 1} /^  NIC a0/ && n == 0 {a = 1} /^  NIC a1/ && n == 1 {b = 1} END {exit !(a && b)}' "$LAB/host.txt"
"$LONGHAUL" host show --record "$LAB/record" --html "$LAB/host.html" >/dev/null
holds "its record shows the same" test "$("$LONGHAUL" host show --from "$LAB/record" --json | jq -c .nics)" = "$("$LONGHAUL" host show --from "$LAB/record" --json | jq -c .nics)"
[ -z "$VM_SHARE" ] || cp "$LAB/host.html" "$LAB/record" /share/
finish
