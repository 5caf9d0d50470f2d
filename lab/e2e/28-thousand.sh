#!/usr/bin/env bash
# Many jobs at once on one daemon: equal, within its grant, in like times, and no newcomer waits (60; `make thousand` 1,000).
set -u
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
LONGHAUL="${LONGHAUL:-$HERE/../../target/longhaul}"
[ -x "$LONGHAUL" ] || { echo "not ok no binary at $LONGHAUL: run 'make build' first"; exit 1; }
LONGHAUL="$(readlink -f "$LONGHAUL")"
export LONGHAUL
python3 "$HERE/thousand.py"
status=$?
# A grant that has places for 32 jobs: the others wait.
JOBS=48 MEMORY_MIB=64 QUEUED=1 python3 "$HERE/thousand.py" || status=1
# Readers that are slow have all bufs of a small daemon away.
python3 "$HERE/slow.py" || status=1
exit $status
