#!/usr/bin/env bash
# One daemon, jobs of every kind with kills on both sides: flat in memory, descriptors and threads, and nothing left behind (25 s; `make soak` an hour).
set -u
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
LONGHAUL="${LONGHAUL:-$HERE/../../target/longhaul}"
[ -x "$LONGHAUL" ] || { echo "not ok no binary at $LONGHAUL: run 'make build' first"; exit 1; }
LONGHAUL="$(readlink -f "$LONGHAUL")"
export LONGHAUL
exec python3 "$HERE/soak.py"
