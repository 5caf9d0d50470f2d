#!/usr/bin/env bash
# `make test-arm64`: the tests of the crates below the daemon, and the binary, built for arm64 and run by qemu-user on this machine.
#
# In, out:    the repository -> what cargo test says; ok, not ok and skip lines; last `arm64: N passed, N failed, N skipped`, of its own lines. Status 0 only if nothing failed.
#             SIM_SEEDS: seeds of the simulator (400). PARTS: of `unit trace pair` only these.
# Invariants: what arm64 programs are run by is seen by nobody else (lab/arm64/enter.py). What qemu-user lacks is a list (lab/arm64/lacks), each line of
#             which is checked; no test knows of it.
# Absent on purpose: node, cli, bench and lab (their tests are about this machine's network and files, and run natively), speed, other pages than 4 KiB.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
source lab/words.sh
TRIPLE=aarch64-unknown-linux-gnu
PARTS=${PARTS:-unit trace pair}
LOG=target/test-arm64.log
UNDER=(-p longhaul-proto -p longhaul-text -p longhaul-sys -p longhaul-topology -p longhaul-tune -p longhaul-engine)
TARGET=${CARGO_TARGET_DIR:-target}

lacks() {
    echo "arm64 tests: $1"
    echo "  next: $2"
    exit 1
}
prepared() {
    NEEDS_OF=arm64 lab/needs.sh
    QEMU=$(command -v qemu-aarch64-static) || lacks "no qemu-aarch64-static" "apt-get install qemu-user-static"
    command -v aarch64-linux-gnu-gcc >/dev/null || lacks "no compiler for arm64" "apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
    [ -d "$(rustc --print sysroot)/lib/rustlib/$TRIPLE/lib" ] || lacks "no library of Rust for $TRIPLE" "rustup target add $TRIPLE"
    lab/arm64/enter.py "$QEMU" true || exit 1
    export QEMU CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C target-feature=+crt-static -C relocation-model=static"
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$PWD/lab/arm64/run.sh"
    # A test that looks for what it has left, or a killed one, leaves nothing behind.
    TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/longhaul-arm64.XXXXXX")
    export TMPDIR
    trap 'rm -rf --one-file-system "$TMPDIR"' EXIT
}
emulated() { lab/arm64/enter.py "$QEMU" "$@"; }

unit() { SIM_SEEDS=${SIM_SEEDS:-400} emulated cargo test --quiet --locked --no-fail-fast --target $TRIPLE "${UNDER[@]}"; }
# What the workers do, step by step, in whole simulated jobs: the same on both.
trace() {
    local said of
    for of in native arm64; do
        said=(cargo test --quiet --locked -p longhaul-engine --test sim)
        [ $of = arm64 ] && said=(emulated "${said[@]}" --target "$TRIPLE")
        TRACE=10 "${said[@]}" -- --nocapture digests_of_traces 2>&1 | grep -E '^(seed|all) ' >"$TMPDIR/$of.trace"
    done
    holds "20 simulated jobs do the same, step by step, as natively" test -s "$TMPDIR/native.trace" -a "$(cat "$TMPDIR/native.trace")" = "$(cat "$TMPDIR/arm64.trace")"
}
pair() {
    cargo build --quiet --locked -p longhaul-cli && cargo build --quiet --locked --target $TRIPLE -p longhaul-cli || { not_ok "the binary is built"; return; }
    emulated bash -c 'set -u; source lab/words.sh; source lab/arm64/pair.sh; pairs "$@"' pair "$TARGET/$TRIPLE/debug/longhaul" "$TARGET/debug/longhaul" "$TMPDIR/pair"
}

prepared
mkdir -p target
for part in $PARTS; do $part; done 2>&1 | tee "$LOG"
count() { grep -c "$1" "$LOG"; }
echo "arm64: $(count '^ok ') passed, $(count '^not ok ') failed, $(count '^skip ') skipped"
# Those of cargo count themselves.
! grep -q '^not ok \|^test result: FAILED\|^error: ' "$LOG" && grep -q '^ok \|^test result: ok' "$LOG"
