#!/usr/bin/env bash
# The checks that need a machine of several memory nodes, cards with many queues and a real irqbalance: in an emulated guest (`make vmtest`).
#
# In, out:  $LONGHAUL (the static binary) -> `ok`, `not ok`, `skip` lines, last `vm: N passed, N failed, N skipped`; pages and records of the
#           guest in $VM_OUT, if set. `test.sh NAME` runs the checks whose names match NAME (a pattern). Status 0 only if nothing failed.
# Invariants: the guest is told the wall clock's limits generously: it runs 10 to 100 times slower than a machine; only ratios are judged.
# Absent on purpose: speed (what is measured there says which way, never how fast).

set -uo pipefail
# shellcheck source=lab/vm/emulator.sh
source "$(dirname "${BASH_SOURCE[0]}")/emulator.sh"
LONGHAUL=${LONGHAUL:-$VM_DIR/../../target/longhaul}
[ -x "$LONGHAUL" ] || die "no binary at $LONGHAUL: run 'make build' first"
if ldd "$LONGHAUL" 2>/dev/null | grep -q '=>'; then die "$LONGHAUL is not static: the guest has other libraries (make build)"; fi
"$VM_DIR/setup.sh" || die "the guest could not be made; the lines above say why. What needs no guest: make e2e"

WORK=$(mktemp -d "${TMPDIR:-/tmp}/longhaul-vmtest.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
mkdir -p "$WORK/drives" "${VM_OUT:=$WORK/out}"
# Without what debuggers want the binary is a fifth, and is copied into the guest's memory.
strip -o "$WORK/longhaul" "$LONGHAUL" 2>/dev/null || cp "$LONGHAUL" "$WORK/longhaul"
# The build with RDMA devices (make build-rdma), and what its lowest layer is tried with.
BESIDE=()
for file in "${LONGHAUL_RDMA:-$VM_DIR/../../target/longhaul-rdma}" "${QUEUE_PAIRS:-$VM_DIR/../../target/queue_pairs}"; do
    [ -x "$file" ] || continue
    strip -o "$WORK/${file##*/}" "$file" 2>/dev/null || cp "$file" "$WORK/${file##*/}"
    BESIDE+=(--copy "$WORK/${file##*/}")
done
passed=0 failed=0 skipped=0
# boot CHECK...: all of them in one start of the guest.
boot() {
    local check words="" copies=() status good bad
    for check; do
        [[ "$check" =~ ${WANTED:-.} ]] || continue
        copies+=(--copy "$VM_DIR/checks/$check")
        [[ $check != *rdma* ]] || copies+=("${BESIDE[@]}")
        words+="echo '# $check'; bash /root/$check || bad=1; "
    done
    [ -n "$words" ] || return 0
    began=$SECONDS
    nice -n 19 "$VM_DIR/boot.sh" --nvme-dir "$WORK/drives" --share "$VM_OUT" --timeout "${VM_SECONDS:-2400}" --console "$WORK/console" \
        --copy "$WORK/longhaul" --copy "$VM_DIR/../words.sh" "${copies[@]}" -- "bad=0; $words exit \$bad" 2>&1 |
        grep --line-buffered -v "^[^ ]*: line [0-9]*: *[0-9]* Killed " | tee "$WORK/log"
    status=${PIPESTATUS[0]}
    good=$(grep -c '^ok ' "$WORK/log") bad=$(grep -c '^not ok ' "$WORK/log")
    if [ "$status" != 0 ] && [ "$bad" = 0 ]; then
        echo "not ok the guest ended with status $status"
        bad=1
    fi
    echo "# this start of the guest: $((SECONDS - began)) s"
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + $(grep -c '^skip ' "$WORK/log")))
}
WANTED=${1:-}
boot 1-facts.sh 2-tune.sh
boot 3-reboot.sh 4-rails.sh
boot 5-nodes.sh
boot 6-rdma.sh
echo "vm: $passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $passed -gt 0 ]
