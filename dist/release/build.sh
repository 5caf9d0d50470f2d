#!/usr/bin/env bash
# The static binary of a release: build.sh x86_64|aarch64 -> its path on standard output, stripped. Status 3: it cannot be built here; why is printed.
#
# Invariants: in a target folder of its own; neither the builder's folders nor the time of the build are in the binary.
# Absent on purpose: installing compilers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
arch=$1 triple="$1-unknown-linux-gnu" folder=target/release-build
lacks=()
if [ "$(uname -m)" != "$arch" ]; then
    compiler="$arch-linux-gnu-gcc"
    command -v "$compiler" >/dev/null || lacks+=("no $compiler (Debian: apt-get install gcc-${arch/_/-}-linux-gnu)")
    [ -d "$(rustc --print sysroot)/lib/rustlib/$triple/lib" ] || lacks+=("no library of Rust for $triple (rustup target add $triple)")
    if [ ${#lacks[@]} != 0 ]; then
        printf 'no cross compiler here: %s%s\n' "${lacks[0]}" "${lacks[1]:+, $(printf %s "${lacks[1]}")}"
        exit 3
    fi
    upper=$(tr 'a-z-' 'A-Z_' <<<"$triple")
    export "CARGO_TARGET_${upper}_LINKER=$compiler" "CC_${triple//-/_}=$compiler"
fi
# Dependencies are compiled by their absolute paths, which end up in the words of panics; those of C in its assertions.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
export CFLAGS="${CFLAGS:-} -ffile-prefix-map=$cargo_home=/cargo -ffile-prefix-map=$PWD=/longhaul"
# Equal functions are kept once where rustc links with lld, as `make build` has it.
once=
[ "$triple" != x86_64-unknown-linux-gnu ] || once="-C link-arg=-Wl,--icf=all"
export RUSTFLAGS="-C target-feature=+crt-static -C relocation-model=static $once --remap-path-prefix=$cargo_home=/cargo --remap-path-prefix=$PWD=/longhaul"
cargo build --release --locked --target "$triple" --target-dir "$folder" -p longhaul-cli >&2
# One name for each architecture: what strip.sh links to it is found by gdb.
shipped="$folder/longhaul-$arch"
[ "$(uname -m)" = "$arch" ] || export OBJCOPY="$arch-linux-gnu-objcopy"
dist/strip.sh "$folder/$triple/release/longhaul" "$shipped" >&2
realpath "$shipped"
