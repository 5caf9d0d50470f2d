#!/usr/bin/env bash
# Many jobs at once on one daemon: equal, within its grant, in like times, and no newcomer waits (60; `make thousand` 1,000).
set -u
source "$(dirname "${BASH_SOURCE[0]}")/binary.sh"
python3 "$E2E/thousand.py"
status=$?
# A grant that has places for 32 jobs: the others wait.
JOBS=48 MEMORY_MIB=64 QUEUED=1 python3 "$E2E/thousand.py" || status=1
# Readers that are slow have all bufs of a small daemon away.
python3 "$E2E/slow.py" || status=1
exit $status
