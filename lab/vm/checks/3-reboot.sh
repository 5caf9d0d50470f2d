#!/bin/bash
# After a new start of the guest: what `apply --keep` left in the journal is undone by `undo`, and nothing but that is touched.
source /vm/hosts.sh
mkdir -p /mnt/nvme0
mount /dev/drives/nvme0 /mnt/nvme0
holds "this is another start of the machine" eval '! cmp -s /mnt/nvme0/boot /proc/sys/kernel/random/boot_id'
holds "the journal is there" test -s /mnt/nvme0/state/host.journal
holds "four links come up" cards_up
values() {
    local card
    for card in a0 a1 b0 b1; do ethtool -g $card | grep -E '^(RX|TX):'; done
    cat /proc/irq/*/smp_affinity_list /sys/block/nvme*/queue/read_ahead_kb /proc/sys/net/ipv4/tcp_{slow_start_after_idle,mtu_probing}
}
# One of the values is there again, as if a script of the operator's had set it at the start of the machine: it is ours to undo by its value.
echo 0 >/proc/sys/net/ipv4/tcp_slow_start_after_idle
"$LONGHAUL" host apply --state /mnt/nvme0/state --rule mtu-probing >/dev/null 2>"$LAB/err"
is $? 3 "an apply before the undo is turned away"
echo 1 >/proc/sys/net/ipv4/tcp_slow_start_after_idle
before=$(values)
echo 0 >/proc/sys/net/ipv4/tcp_slow_start_after_idle
"$LONGHAUL" host undo --state /mnt/nvme0/state >"$LAB/undo" 2>&1
is $? 0 "undo: exit code 0"
holds "undo: says that the machine has started anew" grep -q 'started anew' "$LAB/undo"
is "$(diff <(echo "$before") <(values) | head -8)" "" "undo: every value is as this start left it"
holds "undo: no journal is left" test ! -e /mnt/nvme0/state/host.journal
umount /mnt/nvme0
finish
