#!/usr/bin/env bash
# Boots the guest, runs one command in it, and powers it off. Exits with the command's exit code.
#
#   boot.sh [options] -- COMMAND      one word: run by bash -c, so that it may hold ; | > and so on
#
#   --nodes N         memory nodes, 1 to 4 (2)                --nics N        cards of each of the two hosts: a0, a1, ... wired to b0, b1, ... (2)
#   --cpus N          cores, spread over the nodes (4)        --queues N      queues of each card (4)
#   --mem MIB         memory, spread over the nodes (3072)    --nvme N        NVMe drives, in turn on the nodes (2)
#   --nvme-dir DIR    keep the drives in DIR as nvme0.img, ... for the next run
#   --share DIR       that folder of the host at /share       --copy FILE     into /root; may be repeated
#   --timeout S       give up after S seconds (300)           --console FILE  keep the kernel's words there
#
# For:      lab/vm/test.sh, and trying things by hand on a machine of several nodes.
# Invariants: needs no root; nothing is left behind (QEMU and the wires live in a network namespace of their own, the files in a folder that goes).
# Exit codes: the command's own; 124 timed out; 125 the guest did not work (its console is shown); 2 wrong usage.
# Absent on purpose: KVM (it would show this machine's cores, and not every machine has it); a network to the outside.

set -uo pipefail
# shellcheck source=lab/vm/emulator.sh
source "$(dirname "${BASH_SOURCE[0]}")/emulator.sh"

bad() {
    echo "boot.sh: $*" >&2
    exit 2
}
NODES=2 CPUS=4 MEM=3072 NICS=2 QUEUES=4 NVME=2 NVME_DIR="" SHARE="" COPIES=() TIMEOUT=300 CONSOLE=""
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --) shift; break ;;
    --*) [ $# -ge 2 ] || bad "$1 needs a value" ;;
    *) break ;;
    esac
    case $1 in
    --nodes) NODES=$2 ;; --cpus) CPUS=$2 ;; --mem) MEM=$2 ;; --nics) NICS=$2 ;; --queues) QUEUES=$2 ;; --nvme) NVME=$2 ;;
    --nvme-dir) NVME_DIR=$2 ;; --share) SHARE=$2 ;; --copy) COPIES+=("$2") ;; --timeout) TIMEOUT=$2 ;; --console) CONSOLE=$2 ;;
    *) bad "unknown option $1 (try --help)" ;;
    esac
    shift 2
done
number() { [[ $2 =~ ^[0-9]+$ ]] && [ "$2" -ge "$3" ] && [ "$2" -le "$4" ] || bad "$1 must be a number from $3 to $4"; }
number --nodes "$NODES" 1 4; number --cpus "$CPUS" "$NODES" 16; number --mem "$MEM" 512 65536; number --nics "$NICS" 0 6
number --queues "$QUEUES" 1 8; number --nvme "$NVME" 0 8; number --timeout "$TIMEOUT" 1 1000000
[ $((CPUS % NODES)) = 0 ] || bad "--cpus must be a multiple of --nodes"
[ $# -gt 0 ] || bad "what shall it run? boot.sh [options] -- COMMAND"
[ -e "$VM_CACHE/root.ext4" ] && [ -e "$VM_CACHE/initrd.img" ] || die "no guest in $VM_CACHE: run lab/vm/setup.sh first"
find_qemu || die "no qemu-system-x86_64: run lab/vm/setup.sh first"
command -v cpio >/dev/null || die "no cpio: run lab/vm/setup.sh first"

RUN=$(mktemp -d "${TMPDIR:-/tmp}/longhaul-vm.XXXXXX") || die "cannot make a folder in ${TMPDIR:-/tmp}"
QEMU_PID=""
cleanup() {
    trap '' INT TERM HUP
    [ -n "$QEMU_PID" ] && kill -TERM "$QEMU_PID" 2>/dev/null && wait "$QEMU_PID" 2>/dev/null
    rm -rf "$RUN"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# --- what this run adds: a second initramfs archive, which the kernel unpacks over the first ---
overlay() {
    local into=$RUN/overlay file
    mkdir -p "$into/vm/run" "$into/copy/root"
    cp -a "$VM_DIR/guest/." "$into/vm/"
    if [ $# = 1 ]; then printf 'exec bash -c %q\n' "$1"; else printf 'exec'; printf ' %q' "$@"; echo; fi >"$into/vm/run/command"
    printf '%s\n' "VM_NICS=$NICS" "VM_QUEUES=$QUEUES" "VM_NVME=$NVME" "VM_CARD=$CARD" "VM_SHARE=$SHARE" >"$into/vm/run/conf"
    for file in "${COPIES[@]}"; do cp -aL "$file" "$into/copy/root/" || die "cannot copy $file"; done
    (cd "$into" && find . | cpio -o -H newc --quiet -R 0:0) >"$RUN/overlay.cpio" || die "cpio failed"
    cat "$VM_CACHE/initrd.img" "$RUN/overlay.cpio" >"$RUN/initrd"
    rm -rf "$into" "$RUN/overlay.cpio"
}

# --- the machine: one PCI Express host bridge per node; what is behind it belongs to the node ---
ARGS=()
machine() {
    local node other first=0 per=$((CPUS / NODES))
    ARGS=(-nodefaults -no-user-config -display none -no-reboot -name longhaul-vm -machine "q35,smbus=off,sata=off,vmport=off,usb=off"
        -accel "tcg,thread=multi" -cpu max -smp "$CPUS,sockets=$NODES,cores=$per,threads=1" -m "${MEM}M" -rtc base=utc
        -device "isa-debug-exit,iobase=0xf4,iosize=0x04" -device "virtio-rng-pci,bus=pcie.0")
    for ((node = 0; node < NODES; node++)); do
        ARGS+=(-object "memory-backend-ram,id=mem$node,size=$((MEM / NODES))M" -numa "node,nodeid=$node,memdev=mem$node,cpus=$first-$((first + per - 1))")
        first=$((first + per))
    done
    for ((node = 0; node < NODES; node++)); do
        for ((other = 0; other < NODES; other++)); do
            [ $node = $other ] || ARGS+=(-numa "dist,src=$node,dst=$other,val=20")
        done
    done
    # The firmware lists the last one first.
    for ((node = NODES - 1; node >= 0; node--)); do
        ARGS+=(-device "pxb-pcie,id=pxb$node,bus=pcie.0,bus_nr=$((16 + node * (224 / NODES))),numa_node=$node")
    done
}
PORTS=0
port() { # port NODE: a PCI Express port of that node, named in $BUS
    PORTS=$((PORTS + 1))
    ARGS+=(-device "pcie-root-port,id=port$PORTS,bus=pxb$1,chassis=$PORTS,slot=$PORTS,hotplug=off,io-reserve=0")
    BUS=port$PORTS
}
cards() {
    local wire side device
    for ((wire = 0; wire < NICS; wire++)); do
        for side in a b; do
            port $((wire % NODES))
            if [ "$WIRE" = tap ]; then
                ARGS+=(-netdev "tap,id=n$side$wire,ifname=$side$wire,script=no,downscript=no,vhost=off$([ "$CARD" = virtio ] && echo ",queues=$QUEUES")")
            else
                ARGS+=(-netdev "hubport,id=n$side$wire,hubid=$wire")
            fi
            device="netdev=n$side$wire,bus=$BUS,romfile=,mac=$(printf '52:54:00:%s0:00:%02x' $side "$wire")"
            if [ "$CARD" = igb ]; then
                ARGS+=(-device "igb,$device")
            else
                ARGS+=(-device "virtio-net-pci,$device,disable-legacy=on,speed=1000,duplex=full$([ "$WIRE" = tap ] && echo ",mq=on,vectors=$((2 * QUEUES + 2))")")
            fi
        done
    done
}
drives() {
    local number file
    for ((number = 0; number < NVME; number++)); do
        port $((number % NODES))
        file=${NVME_DIR:-$RUN}/nvme$number.img
        [ -e "$file" ] || { mkdir -p "${file%/*}" && truncate -s 2G "$file"; } || die "cannot make $file"
        ARGS+=(-drive "if=none,id=nv$number,file=$file,format=raw,cache=unsafe,discard=unmap"
            -device "nvme,serial=vm-nvme$number,drive=nv$number,bus=$BUS,max_ioqpairs=$CPUS,msix_qsize=$((CPUS + 1))")
    done
}
channels() { # root disk (changes are thrown away), the command's words out, its exit code
    ARGS+=(-drive "if=none,id=root,file=$VM_CACHE/root.ext4,format=raw,snapshot=on,cache=unsafe" -device "virtio-blk-pci,drive=root,bus=pcie.0"
        -drive "if=none,id=modules,file=$VM_CACHE/modules.ext4,format=raw,readonly=on,cache=unsafe" -device "virtio-blk-pci,drive=modules,bus=pcie.0"
        -device "virtio-serial-pci,max_ports=4,bus=pcie.0" -serial "file:$RUN/console"
        -chardev "file,id=ctl,path=$RUN/ctl" -device "virtserialport,chardev=ctl,name=vm.ctl"
        -chardev "file,id=out,path=$RUN/out,append=on" -device "virtserialport,chardev=out,name=vm.out")
    if [ -n "$SHARE" ]; then
        ARGS+=(-fsdev "local,id=share,path=$(cd "$SHARE" && pwd),security_model=none,multidevs=remap" -device "virtio-9p-pci,fsdev=share,mount_tag=share,bus=pcie.0")
    fi
}

# --- wires: in a network namespace of its own each pair of taps is joined; without taps QEMU's hubs do it ---
wires() {
    cat >"$RUN/wires" <<'END'
nics=$1 queues=$2; shift 2
wire=0
while [ $wire -lt $nics ]; do
    for side in a b; do
        ip tuntap add dev $side$wire mode tap $queues || exit 125
        ip link set $side$wire mtu 9216 txqueuelen 10000 up
        tc qdisc add dev $side$wire clsact || exit 125
    done
    tc filter add dev a$wire ingress prio 1 protocol all matchall action mirred egress redirect dev b$wire || exit 125
    tc filter add dev b$wire ingress prio 1 protocol all matchall action mirred egress redirect dev a$wire || exit 125
    wire=$((wire + 1))
done
exec "$@"
END
    NAMESPACE=(unshare -n)
    [ "$(id -u)" = 0 ] || NAMESPACE=(unshare -rn)
    WIRE=hub
    if "${NAMESPACE[@]}" sh -c 'ip tuntap add dev t0 mode tap && tc qdisc add dev t0 clsact && tc filter add dev t0 ingress prio 1 protocol all matchall action drop' >/dev/null 2>&1; then
        WIRE=tap
    fi
    LAUNCH=()
    [ $WIRE = hub ] || LAUNCH=("${NAMESPACE[@]}" sh "$RUN/wires" "$NICS" "$([ "$CARD" = virtio ] && echo multi_queue)")
}

CARD=igb
[ "$QEMU_HAS_IGB" = 1 ] || CARD=virtio
wires
: >"$RUN/ctl"
: >"$RUN/out"
: >"$RUN/console"
machine
cards
drives
channels
overlay "$@"
# Told how fast the time stamp counter runs, the kernel need not measure it, which goes wrong on a busy host.
KHZ=$(awk '/^flags/ && / constant_tsc / {c = 1} /^bogomips/ {b = $3} END {if (c && b) printf "%d", b * 500}' /proc/cpuinfo)
KERNEL=$VM_CACHE/kernel/vmlinux
[ -e "$KERNEL" ] || KERNEL=$VM_CACHE/kernel/vmlinuz
ARGS+=(-kernel "$KERNEL" -initrd "$RUN/initrd" -append "console=ttyS0 quiet loglevel=4 panic=-1 net.ifnames=0 mitigations=off nokaslr tsc=reliable no_timer_check nowatchdog \
audit=0 apparmor=0 selinux=0 random.trust_cpu=on rcupdate.rcu_cpu_stall_timeout=300 igb.async_probe=1 nvme_core.multipath=N 8250.nr_uarts=1${KHZ:+ tsc_early_khz=$KHZ lpj=$((KHZ * 4))}")

# An emulated machine hangs while booting once in a long while. The command has not been started then: it does no harm to start over.
END_AT=$((SECONDS + TIMEOUT))
for try in 1 2 3; do
    TMPDIR=$RUN setpriv --pdeathsig TERM timeout -k 5 $((END_AT - SECONDS)) "${LAUNCH[@]}" "${QEMU[@]}" "${ARGS[@]}" </dev/null >"$RUN/qemu.log" 2>&1 &
    QEMU_PID=$!
    tail -n +1 -f --pid=$QEMU_PID -s 0.2 "$RUN/out" 2>/dev/null &
    TAIL_PID=$!
    began=$SECONDS hung=0
    while [ $try -lt 3 ] && [ ! -s "$RUN/ctl" ] && kill -0 $QEMU_PID 2>/dev/null; do
        if [ $((SECONDS - began)) -ge 180 ]; then
            hung=1
            kill -TERM $QEMU_PID
            break
        fi
        sleep 0.2
    done
    wait $QEMU_PID
    QEMU_STATUS=$?
    QEMU_PID=""
    wait $TAIL_PID
    [ $hung = 1 ] && [ $SECONDS -lt $END_AT ] || break
    warn "the guest did not boot within 180 s; starting it again"
done
plain() { tr -d '\r' <"$RUN/console" | sed 's/\x1b[\[(][0-9;?]*[A-Za-z]//g; s/\x1bc//g'; }
[ -z "$CONSOLE" ] || plain >"$CONSOLE"
CODE=$(awk '$1 == "exit" {print $2}' "$RUN/ctl")
[ -z "$CODE" ] || exit "$CODE"
if [ "$QEMU_STATUS" = 124 ] || [ "$QEMU_STATUS" = 137 ]; then
    warn "timed out after $TIMEOUT s"
    exit 124
fi
warn "the guest stopped without a result (QEMU: $QEMU_STATUS)"
tail -20 "$RUN/qemu.log" | sed 's/^/qemu: /' >&2
plain | tail -60 | sed 's/^/console: /' >&2
exit 125
