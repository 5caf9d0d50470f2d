#!/usr/bin/env bash
# Makes the guest: its kernel, root file system and first stage, from the packages of this Debian, under $VM_CACHE.
#
# For:      `make vmtest`, once per machine (some minutes, 2 GB); nothing is made again that is there already.
# In, out:  apt's sources of this machine -> $VM_CACHE/{kernel,modules.ext4,root.ext4,initrd.img} and, where the system's QEMU has no igb
#           card, a newer one out of the backports suite (unpacked there, not installed).
#             setup.sh             make what is missing or out of date
#             setup.sh --clean     remove all of it
#           VM_KVER=RELEASE: that kernel instead of the distribution's current one. VM_PACKAGES="a b": more packages in the guest.
# Invariants: needs root (apt, and files of root's in the image); installs the tools it names, and changes nothing else of this machine.
# Absent on purpose: other distributions and architectures, an image that is downloaded ready-made.

set -euo pipefail
# shellcheck source=lab/vm/emulator.sh
source "$(dirname "${BASH_SOURCE[0]}")/emulator.sh"
# shellcheck source=lab/vm/modules.sh
source "$VM_DIR/modules.sh"

case ${1:-} in
'') ;;
--clean) rm -rf "$VM_CACHE"; exit 0 ;;
*) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
hint="the guest is made from Debian's packages; on another system, make it on a Debian (12 or newer, amd64, root) and copy \$VM_CACHE here"
command -v apt-get dpkg >/dev/null || die "no apt here: $hint"
[ "$(dpkg --print-architecture)" = amd64 ] || die "this is not amd64: $hint"
[ "$(id -u)" = 0 ] || die "setup.sh needs root: sudo VM_CACHE=$VM_CACHE $0"

mkdir -p "$VM_CACHE"
VM_CACHE=$(cd "$VM_CACHE" && pwd)
exec 9>"$VM_CACHE/.lock"
flock 9
LOG=$VM_CACHE/setup.log
: >"$LOG"
TMP=$(mktemp -d "$VM_CACHE/tmp.XXXXXX")
trap 'rm -rf "$TMP"' EXIT
say() { printf '[%4ds] %s\n' "$SECONDS" "$*"; }
logged() {
    echo "+ $*" >>"$LOG"
    "$@" >>"$LOG" 2>&1 || { tail -20 "$LOG" >&2; die "failed: $1 (all of it: $LOG)"; }
}
# A part is made again when what it is made from has another digest.
key() { sha256sum | cut -d' ' -f1; }
fresh() { [ "$(cat "$VM_CACHE/$1.key" 2>/dev/null)" = "$2" ]; }
stamp() { echo "$2" >"$VM_CACHE/$1.key"; }

all=$({ cat "$VM_DIR"/{setup.sh,emulator.sh,modules.sh,packages.txt,first.sh} "$VM_DIR"/patches/*; stat -c %Y /var/lib/apt/lists; echo "${VM_PACKAGES:-} ${VM_KVER:-}"; } | key)
if fresh all "$all" && [ -e "$VM_CACHE/root.ext4" ] && [ -e "$VM_CACHE/initrd.img" ] && find_qemu; then
    exit 0
fi
rm -f "$VM_CACHE/all.key"
# shellcheck source=/dev/null
source /etc/os-release
SUITE=${VERSION_CODENAME:?}
candidate() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | awk '/Candidate:/ && $2 != "(none)" {print $2}'; }
fetch_deb() { # fetch_deb DIR PACKAGE [apt options]
    local dir=$1 package=$2
    shift 2
    mkdir -p "$dir"
    (cd "$dir" && apt-get -q "$@" -o APT::Sandbox::User=root download "$package") >>"$LOG" 2>&1
}

tools() {
    local tool missing=()
    for tool in qemu-system-x86 qemu-system-data seabios mmdebstrap busybox-static cpio e2fsprogs xz-utils zstd kmod util-linux iproute2; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$tool" 2>/dev/null)" = installed ] || missing+=("$tool")
    done
    if [ -z "$(candidate linux-image-amd64)" ] || [ ${#missing[@]} -gt 0 ]; then
        say "reading the package lists"
        logged apt-get -q update
    fi
    [ ${#missing[@]} = 0 ] && return 0
    say "installing: ${missing[*]}"
    DEBIAN_FRONTEND=noninteractive logged apt-get -q -y install --no-install-recommends "${missing[@]}"
}

sources() { # every suite that this machine's own apt knows
    local keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    # shellcheck disable=SC2016 # apt's own variables
    apt-get indextargets --format 'deb [SIGNED] $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
        awk -v suite="$SUITE" '$4 ~ "^" suite' | sort -u >"$TMP/sources"
    [ -s "$TMP/sources" ] || die "apt knows no Debian source for $SUITE; run apt-get update"
    if [ -e $keyring ]; then sed -i "s#\[SIGNED\]#[signed-by=$keyring]#" "$TMP/sources"; else sed -i 's#\[SIGNED\] ##' "$TMP/sources"; fi
}

newer_qemu() {
    local apt=$TMP/apt options package deb line
    has_igb qemu-system-x86_64 && return 0
    line=$(awk -v suite="$SUITE" '$4 == suite || $3 == suite {print; exit}' "$TMP/sources")
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
    sed -E "s# $SUITE ([a-z])# $SUITE-backports \\1#" <<<"$line" >"$apt/sources"
    options=(-o "Dir::Etc::sourcelist=$apt/sources" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Get::List-Cleanup=0)
    say "looking for a QEMU with the igb card in $SUITE-backports"
    apt-get -q "${options[@]}" update >>"$LOG" 2>&1 || return 1
    for package in qemu-system-x86 qemu-system-common qemu-system-data seabios; do
        fetch_deb "$TMP/debs" "$package/$SUITE-backports" "${options[@]}" || return 1
    done
    for deb in "$TMP"/debs/*.deb; do dpkg-deb -x "$deb" "$TMP/qemu"; done
    has_igb env "QEMU_MODULE_DIR=$TMP/qemu/usr/lib/x86_64-linux-gnu/qemu" "$TMP/qemu/usr/bin/qemu-system-x86_64" || return 1
    rm -rf "$VM_CACHE/qemu"
    mv "$TMP/qemu" "$VM_CACHE/qemu"
}

unpacked() { # unpacked VMLINUZ VMLINUX: without its compression (Linux Documentation/x86/boot.rst), which costs an emulated machine seconds
    local from at bytes tool
    word() { od -An -t"$1" -j"$2" -N"${1#u}" "$from" | tr -d ' '; }
    from=$1
    at=$((($(word u1 497) + 1) * 512 + $(word u4 584))) bytes=$(word u4 588)
    dd if="$from" of="$TMP/payload" iflag=skip_bytes,count_bytes skip=$at count="$bytes" bs=1M status=none
    for tool in 'xz -dc --single-stream' 'zstd -dcq' 'gzip -dc'; do
        $tool <"$TMP/payload" >"$2" 2>/dev/null || true
        [ "$(head -c 4 "$2" | tail -c 3)" = ELF ] && return 0
    done
    rm -f "$2"
}

kernel() {
    local from=$TMP/kernel into=$VM_CACHE/kernel/lib/modules/$KVER
    say "kernel $KVER"
    if [ -e "/boot/vmlinuz-$KVER" ] && [ -e "/lib/modules/$KVER/modules.dep" ]; then
        from=/
    else
        fetch_deb "$TMP" "linux-image-$KVER" || die "cannot download linux-image-$KVER: is the package server reachable? (apt-get update)"
        mkdir "$from" && dpkg-deb -x "$TMP"/linux-image-*.deb "$from"
    fi
    rm -rf "$VM_CACHE/kernel"
    mkdir -p "$into"
    cp "$from/boot/vmlinuz-$KVER" "$VM_CACHE/kernel/vmlinuz"
    unpacked "$VM_CACHE/kernel/vmlinuz" "$VM_CACHE/kernel/vmlinux"
    # What hangs on an emulated machine, and what its network and drives are used with.
    (cd "$from/lib/modules/$KVER" && find . -type f \( -path ./modules.\* -o -path ./kernel/net/\* -o -path ./kernel/fs/\* -o -path ./kernel/lib/\* -o -path ./kernel/crypto/\* \
        -o -path ./kernel/arch/\* -o -path ./kernel/block/\* -o -path ./kernel/drivers/net/\*.ko\* -o -path ./kernel/drivers/nvme/\* -o -path ./kernel/drivers/block/\* \
        -o -path ./kernel/drivers/virtio/\* -o -path ./kernel/drivers/char/\* -o -path ./kernel/drivers/md/\* -o -path ./kernel/drivers/i2c/\* -o -path ./kernel/drivers/dca/\* \
        -o -path ./kernel/drivers/ptp/\* -o -path ./kernel/drivers/infiniband/core/\* -o -path ./kernel/drivers/infiniband/sw/\* -o -path ./kernel/drivers/pps/\* \) -not -path ./kernel/drivers/net/wireless/\* -not -path ./kernel/net/mac80211/\* -print0 |
        cpio -0 -pdm --quiet "$into")
    rdma_modules "$into" || warn "going on without: checks with RDMA devices will be skipped"
    rm -rf "$TMP/modules"
    depmod -b "$VM_CACHE/kernel" "$KVER" 2>>"$LOG"
    # A disk of their own: another kernel does not make the root anew.
    logged mke2fs -q -F -t ext4 -O ^has_journal,^metadata_csum -m 0 -d "$VM_CACHE/kernel/lib/modules" "$VM_CACHE/modules.ext4" \
        "$(($(du -sm "$into" | cut -f1) * 115 / 100 + 16))M"
}

root() {
    local into=$TMP/root
    say "the root file system ($SUITE)"
    logged mmdebstrap --mode=root --variant=essential --architectures=amd64 --aptopt='APT::Install-Recommends "false"' --dpkgopt=force-unsafe-io \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
        --include="$(sort -u <<<"$PACKAGES" | paste -sd,)" "$SUITE" "$into" - <"$TMP/sources"
    mkdir -p "$into/lib/modules" "$into/vm" "$into/share" "$into/mnt"
    echo guest >"$into/etc/hostname"
    printf '%s\n' '127.0.0.1 localhost guest' '::1 localhost' >"$into/etc/hosts"
    : >"$into/etc/fstab"
    : >"$into/etc/resolv.conf"
    : >"$into/etc/machine-id"
    ln -sf /proc/self/mounts "$into/etc/mtab"
    rm -rf "$into"/var/cache/apt/* "$into"/var/lib/apt/lists/* "${into:?}"/dev/* "${into:?}"/run/*
    rm -f "$VM_CACHE/root.ext4"
    logged mke2fs -q -F -t ext4 -O ^has_journal,^metadata_csum -m 0 -L guest -d "$into" "$VM_CACHE/root.ext4" "$(($(du -sm "$into" | cut -f1) * 115 / 100 + 512))M"
    rm -rf "$into"
}

first_stage() {
    local into=$TMP/initrd module path
    mkdir -p "$into"/{bin,lib/modules,proc,sys,dev,newroot}
    cp /bin/busybox "$into/bin/busybox"
    for module in virtio_pci virtio_blk ext4; do
        modprobe -d "$VM_CACHE/kernel" -S "$KVER" --show-depends $module
    done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' >"$TMP/order"
    while read -r path; do
        cp "$path" "$into/lib/modules/"
        echo "${path##*/}"
    done <"$TMP/order" >"$into/lib/modules/order"
    install -m 755 "$VM_DIR/first.sh" "$into/init"
    (cd "$into" && find . | cpio -o -H newc --quiet -R 0:0) >"$VM_CACHE/initrd.img"
}

tools
sources
if ! newer_qemu; then warn "no QEMU with an igb card is to be had: the guest has virtio cards, whose interrupts are fewer"; fi
find_qemu || die "no qemu-system-x86_64, and it could not be installed"

KVER=${VM_KVER:-$(LC_ALL=C apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ {sub("linux-image-", "", $2); print $2; exit}')}
[ -n "$KVER" ] || die "apt does not tell which kernel linux-image-amd64 is (apt-get update)"
k=$({ echo "$KVER $(candidate "linux-image-$KVER")"; declare -f kernel rdma_modules; cat "$VM_DIR"/patches/*; } | key)
if ! fresh kernel "$k" || [ ! -e "$VM_CACHE/modules.ext4" ]; then
    kernel
    stamp kernel "$k"
fi
PACKAGES=$({ sed 's/#.*//; /^ *$/d' "$VM_DIR/packages.txt"; tr ' ' '\n' <<<"${VM_PACKAGES:-}"; } | sed '/^$/d')
k=$({ echo "$PACKAGES"; cat "$TMP/sources"; declare -f root; } | key)
if ! fresh root "$k" || [ ! -e "$VM_CACHE/root.ext4" ]; then
    root
    stamp root "$k"
fi
first_stage
say "ready: $("${QEMU[@]}" --version | sed -n '1s/.*version \([^ ]*\).*/QEMU \1/p'), kernel $KVER, $(du -sh "$VM_CACHE" | cut -f1) in $VM_CACHE"
stamp all "$all"
