# shellcheck shell=bash disable=SC2034
# Where the guest's parts are kept and which emulator runs them. Source this file.
#
# For:      setup.sh, which makes the parts, and boot.sh, which runs them.
# In, out:  VM_CACHE (default ~/.cache/longhaul-vm), VM_QEMU (a path; default: the newer one that setup.sh may have unpacked, else the
#           system's); then $VM_DIR, $VM_CACHE, die, warn, find_qemu -> ${QEMU[@]}, $QEMU_HAS_IGB.
# Absent on purpose: anything that changes this machine.

VM_CACHE=${VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/longhaul-vm}
VM_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

die() {
    echo "vm: $*" >&2
    exit 125
}
warn() { echo "vm: $*" >&2; }

# The igb card (QEMU 8): eight receive queues, RSS, a vector for each, whatever it is wired to.
has_igb() { [[ $("$@" -device igb,help 2>&1) == *'igb options'* ]]; }

find_qemu() {
    local own=$VM_CACHE/qemu
    if [ -n "${VM_QEMU:-}" ]; then
        QEMU=("$VM_QEMU")
    elif [ -x "$own/usr/bin/qemu-system-x86_64" ]; then
        # Its loadable parts must not be mixed up with those of the system's.
        QEMU=(env "QEMU_MODULE_DIR=$own/usr/lib/x86_64-linux-gnu/qemu" "$own/usr/bin/qemu-system-x86_64" -L "$own/usr/share/qemu" -L "$own/usr/share/seabios")
    else
        QEMU=(qemu-system-x86_64)
    fi
    "${QEMU[@]}" --version >/dev/null 2>&1 || return 1
    QEMU_HAS_IGB=0
    if has_igb "${QEMU[@]}"; then QEMU_HAS_IGB=1; fi
}
