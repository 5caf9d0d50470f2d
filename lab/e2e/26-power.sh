#!/usr/bin/env bash
# The power of real file systems is cut in mid-job: ext4, XFS and btrfs on a disk with a volatile write cache (3 cuts; `make torture-power` 50).
set -u
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export LONGHAUL="${LONGHAUL:-$HERE/../../target/longhaul}"
[ -x "$LONGHAUL" ] || { echo "not ok no binary at $LONGHAUL: run 'make build' first"; exit 1; }
LONGHAUL="$(readlink -f "$LONGHAUL")"
export CUTS="${CUTS:-${N:-3}}"
unshare -m true 2>/dev/null || { echo "skip power cuts: no mount namespace can be made here"; exit 0; }
# Whatever becomes of this run, its mounts go with the namespace, and the loop devices with the mounts.
exec unshare -m -- python3 "$HERE/power.py"
