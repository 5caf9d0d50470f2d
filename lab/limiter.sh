#!/usr/bin/env bash
# Thirty jobs, each with exactly one thing made slow: does the report name it, and do the books of both ends sum?
#
# For:      `make limiter`. The plants are in lab/tests/plants/ (list.rs has the thirty, and what would be right to say).
# In, out:  ROUNDS (5), SEED (1: another seed draws other sizes and rates), PLANT (words; those whose name has one of them), RESULTS (a file for the
#           results as JSON) -> a line per run, the tally; status 0 if at least 28 of 30 runs were right and the books summed.
# Invariants: files are in memory (/dev/shm), so that only the disk that was made slow is.
# Absent on purpose: the judgement on made-up books (proto/tests/limiter.rs).
set -u
cd "$(dirname "$0")/.." || exit 2
LONGHAUL="$(readlink -f "${LONGHAUL:-target/longhaul}")"
E2E_DIR="${E2E_DIR:-/dev/shm}"
export LONGHAUL E2E_DIR LIMITER_ROUNDS="${ROUNDS:-5}" LIMITER_SEED="${SEED:-1}" LIMITER_PLANT="${PLANT:-}"
[ -z "${RESULTS:-}" ] || export LIMITER_OUT="$RESULTS"
cargo test -q --locked -p longhaul-lab --test reports
