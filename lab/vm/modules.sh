# shellcheck shell=bash
# Soft-iWARP, and a soft-RoCE that knows network namespaces, as modules of the guest's kernel. Source this file in setup.sh.
#
# For:      checks with RDMA devices: two hosts of one machine, each with a device of its own.
# In, out:  rdma_modules INTO: INTO/updates/{siw,rdma_rxe}.ko; status 1 and a word where that cannot be done (the guest is made without them).
# Invariants: Debian's own source of that kernel, changed by lab/vm/patches: its kernel has no siw, and its rxe receives in the first namespace alone.
# Absent on purpose: any other kernel's source; loading anything on this machine.

rdma_modules() {
    local into=$1 work=$TMP/modules package version module object tree
    package=linux-source-$(cut -d. -f1,2 <<<"$KVER")
    version=$(candidate "linux-headers-$KVER")
    [ -n "$version" ] || {
        warn "no linux-headers-$KVER: the guest has no RDMA devices"
        return 1
    }
    say "siw and rxe for $KVER"
    DEBIAN_FRONTEND=noninteractive logged apt-get -q -y install --no-install-recommends "linux-headers-$KVER" make gcc patch
    fetch_deb "$work" "$package=$version" || fetch_deb "$work" "$package" || {
        warn "cannot download $package: the guest has no RDMA devices"
        return 1
    }
    dpkg-deb --fsys-tarfile "$work/$package"_*.deb | tar -xO --wildcards './usr/src/*.tar.xz' | xz -dc |
        tar -x -C "$work" --strip-components=1 --wildcards '*/drivers/infiniband/sw/siw' '*/drivers/infiniband/sw/rxe' || return 1
    mkdir -p "$into/updates"
    for module in siw rxe; do
        tree=$work/drivers/infiniband/sw/$module
        if ! patch -s -d "$tree" -p1 <"$VM_DIR/patches/$module.patch" >>"$LOG" 2>&1; then
            warn "patches/$module.patch does not fit kernel $KVER"
            return 1
        fi
        make -j"$(nproc)" -C "/usr/src/linux-headers-$KVER" "M=$tree" CONFIG_RDMA_SIW=m CONFIG_RDMA_RXE=m modules >>"$LOG" 2>&1 || {
            warn "$module does not build for kernel $KVER ($LOG)"
            return 1
        }
        for object in "$tree"/*.ko; do strip -g -o "$into/updates/${object##*/}" "$object"; done
    done
}
