# shellcheck shell=bash
# For checks that make no hosts of their own: $LONGHAUL, the binary, and $E2E, this folder. Source it first.
E2E="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
LONGHAUL="${LONGHAUL:-$E2E/../../target/longhaul}"
[ -x "$LONGHAUL" ] || { echo "not ok no binary at $LONGHAUL: run 'make build' first"; exit 1; }
LONGHAUL="$(readlink -f "$LONGHAUL")"
export LONGHAUL
