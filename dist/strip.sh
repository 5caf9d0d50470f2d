#!/usr/bin/env bash
# The binary that is shipped: stripped, with its debug information in a file beside it.
# In, out: strip.sh BUILT SHIPPED -> SHIPPED, and SHIPPED.debug, which gdb finds by the name and checksum noted in SHIPPED.
#          Where there is no objcopy (binutils; OBJCOPY names that of another architecture), SHIPPED is a link to BUILT, and that is said.
set -euo pipefail
objcopy=${OBJCOPY:-objcopy}
built=$(realpath "$1") shipped=$2
if ! command -v "$objcopy" >/dev/null; then
    ln -sfn "$built" "$shipped"
    echo "no $objcopy: $shipped keeps its debug information" >&2
    exit 0
fi
cd "$(dirname "$shipped")"
name=$(basename "$shipped")
"$objcopy" --only-keep-debug --compress-debug-sections=zlib "$built" "$name.debug"
# What the linker warned of and the compiler's name are of no use to who runs it.
"$objcopy" --strip-all --remove-section='.gnu.warning.*' --remove-section=.comment \
    --add-gnu-debuglink="$name.debug" "$built" "$name.new"
# Moved into place: a running longhaul keeps the file that it was started from.
mv -f "$name.new" "$name"
