# shellcheck shell=bash
# Two hosts, a and b, joined by a pair of virtual links, each with an RDMA device of its own. Source this file in the guest, after hosts.sh.
#
# In, out:  rdma_up rxe|siw -> hosts a (10.8.0.1) and b (10.8.0.2), devices rxe_a and rxe_b; rdma_device rxe|siw a|b: one of them; rdma_down; rnr NAME: messages of its port that found no receive.
# Invariants: a device is made in the first namespace and moved, so that each host sees its own alone.

RDMA_MTU=${RDMA_MTU:-4200}

rdma_hosts() {
    local host last=0
    [ ! -e /run/netns/a ] || return 0
    # Only while there is no other namespace.
    rdma system set netns exclusive || return 1
    ip netns add a && ip netns add b || return 1
    # Made here and moved: two devices of the machine never have the same index, over which siw would stumble.
    ip link add va mtu "$RDMA_MTU" type veth peer name vb mtu "$RDMA_MTU" || return 1
    for host in a b; do
        last=$((last + 1))
        ip link set v$host netns $host
        ip -n $host link set lo up
        ip -n $host addr add 10.8.0.$last/24 dev v$host
        ip -n $host link set v$host up
    done
}
rdma_up() { # rdma_up rxe|siw
    local kind=$1 module=siw host
    [ "$kind" = siw ] || module=rdma_rxe
    modprobe -a ib_uverbs rdma_ucm $module || return 1
    rdma_hosts || return 1
    for host in a b; do rdma_device "$kind" $host || return 1; done
}
rdma_device() { # rdma_device rxe|siw HOST
    ip netns exec "$2" rdma link add "$1_$2" type "$1" netdev "v$2" || return 1
    # Where the kernel put it into the first namespace, it is moved.
    ip netns exec "$2" test -e "/sys/class/infiniband/$1_$2" || rdma dev set "$1_$2" netns "$2" || return 1
    until_true 20 rdma_ready "$1" "$2"
}
rdma_ready() { ip netns exec "$2" rdma link show "$1_$2/1" | grep -q 'state ACTIVE'; }
rdma_down() { for host in a b; do ip netns exec $host rdma link delete "$1_$host" 2>/dev/null || rdma link delete "$1_$host"; done; }
# Messages that found no receive at this host's device, as the driver counts them; siw has no such message.
rnr() {
    local host=$1 kind=$2
    ip netns exec "$host" bash -c "cat /sys/class/infiniband/${kind}_$host/ports/1/hw_counters/{send_rnr_err,rcvd_rnr_err} 2>/dev/null" | awk '{n += $1} END {print n + 0}'
}
