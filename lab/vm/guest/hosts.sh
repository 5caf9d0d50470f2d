# shellcheck shell=bash disable=SC2034
# Two hosts, a and b, of the guest's cards, and words for its checks. Source this file in the guest.
#
# For:      lab/vm/checks.
# In, out:  cards_up, or hosts_up; then `on a|b CMD...`, `start a|b CMD...`; rate MBIT (every wire), bond MODE [HASH], bond_down; sent (bytes by card of a);
#           $LONGHAUL, $LAB. Wire N: 10.9.N.1 on aN, 10.9.N.2 on bN. Bonds: 10.7.0.1 and 10.7.0.2.
# Invariants: token buckets stand on the cards, below a bond, so that what limits is the wire and not the emulation.

source /root/words.sh
source /vm/run/conf
LONGHAUL=/root/longhaul
LAB=/tmp/lab
mkdir -p "$LAB" "$LAB/home-a" "$LAB/home-b"

on() {
    local host=$1
    shift
    LONGHAUL_HOME="$LAB/home-$host" ip netns exec "$host" "$@"
}
start() { # its process id: $STARTED_PID
    local host=$1
    shift
    LONGHAUL_HOME="$LAB/home-$host" ip netns exec "$host" "$@" &
    STARTED_PID=$!
}
# cards_up: as they are, on no host. A card has its interrupts only while it is up.
cards_up() {
    local card
    for card in a0 a1 b0 b1; do ip link set $card up; done
    until_true 60 all_up
}
all_up() { [ "$(cat /sys/class/net/[ab][01]/operstate | grep -c '^up$')" = 4 ]; }
wires() { seq 0 $((VM_NICS - 1)); }
links_up() { [ "$(ip -n "$1" -br link show up 2>/dev/null | grep -c "^$1[0-9].*LOWER_UP")" = "$VM_NICS" ]; }

hosts_up() {
    local host wire last=0
    for host in a b; do
        last=$((last + 1))
        ip netns add $host
        ip -n $host link set lo up
        for wire in $(wires); do
            ip link set $host"$wire" netns $host
            ip -n $host addr add "10.9.$wire.$last/24" dev $host"$wire"
            ip -n $host link set $host"$wire" up
        done
    done
    for host in a b; do until_true 60 links_up $host || return 1; done
}
rate() { # rate MBIT: of every wire, both ways
    local host wire
    for host in a b; do
        for wire in $(wires); do tc -n $host qdisc replace dev $host"$wire" root tbf rate "$1mbit" burst 64kb latency 40ms || return 1; done
    done
}
bond() { # bond MODE [HASH]: the same at both ends, one card wired to one
    local host wire last=0 options=(miimon 100)
    [ "$1" != 802.3ad ] || options+=(lacp_rate fast)
    [ -z "${2:-}" ] || options+=(xmit_hash_policy "$2")
    modprobe bonding max_bonds=0
    for host in a b; do
        last=$((last + 1))
        ip -n $host link add bond0 type bond mode "$1" "${options[@]}" || return 1
        for wire in $(wires); do
            ip -n $host addr flush dev $host"$wire"
            ip -n $host link set $host"$wire" down
            ip -n $host link set $host"$wire" master bond0 || return 1
        done
        ip -n $host link set bond0 up
        ip -n $host addr add 10.7.0.$last/24 dev bond0
    done
    until_true 60 bonded "$1" && until_true 60 on a ping -c 1 -W 1 10.7.0.2 >/dev/null
}
bonded() {
    local said
    said=$(on a cat /proc/net/bonding/bond0)
    # Both ports in one aggregator: LACP has agreed.
    [ "$(awk '/^Slave Interface/ {s = 1} s && /^MII Status: up/ {n++} END {print n + 0}' <<<"$said")" = "$VM_NICS" ] &&
        { [ "$1" != 802.3ad ] || [ "$(awk '/Number of ports:/ {print $4}' <<<"$said")" = "$VM_NICS" ]; }
}
bond_down() {
    local host wire last=0
    for host in a b; do
        last=$((last + 1))
        ip -n $host link del bond0
        for wire in $(wires); do
            ip -n $host addr replace "10.9.$wire.$last/24" dev $host"$wire"
            ip -n $host link set $host"$wire" up
        done
    done
    for host in a b; do until_true 60 links_up $host || return 1; done
}
sent() { for wire in $(wires); do on a cat /sys/class/net/a"$wire"/statistics/tx_bytes; done | paste -sd' '; }
listening() { on "$1" ss -Hltn "sport = :$2" | grep -q .; }

# serve ROOT: a daemon on b, on all its addresses; sets $URL, which names no address yet: ${URL/@0.0.0.0:/@ADDRESS:}file.
serve() {
    start b "$LONGHAUL" serve --root "$1" --listen 0.0.0.0:7440 --ticket >"$LAB/serve.out" 2>"$LAB/serve.err" </dev/null
    until_true 60 grep -q '^longhaul://' "$LAB/serve.out" || return 1
    URL=$(head -n 1 "$LAB/serve.out")
}
# streams SECONDS "ADDRESS=COUNT"...: iperf3 to each of these at once; prints Mbit/s of all.
streams() {
    local seconds=$1 target port=5201 pids=() servers=() sum
    shift
    rm -f "$LAB"/iperf.*
    for target; do
        start b iperf3 -s -1 -p $port >/dev/null 2>&1
        servers+=("$STARTED_PID")
        until_true 60 listening b $port
        start a iperf3 -J -c "${target%=*}" -P "${target#*=}" -p $port -t "$seconds" -O 1 >"$LAB/iperf.$port"
        pids+=("$STARTED_PID")
        port=$((port + 1))
    done
    wait "${pids[@]}" "${servers[@]}"
    sum=$(jq -s 'map(.end.sum_received.bits_per_second // 0) | add / 1e6' "$LAB"/iperf.*)
    printf '%.1f\n' "$sum"
}
