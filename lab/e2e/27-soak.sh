#!/usr/bin/env bash
# One daemon, jobs of every kind with kills on both sides: flat in memory, descriptors and threads, and nothing left behind (25 s; `make soak` an hour).
set -u
source "$(dirname "${BASH_SOURCE[0]}")/binary.sh"
exec python3 "$E2E/soak.py"
