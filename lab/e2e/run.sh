#!/usr/bin/env bash
# Runs the end-to-end checks: lab/e2e/NN-NAME.sh, each by itself, each under a limit of time. `run.sh NAME` runs one.
# Out: `ok`, `not ok` and `skip` lines of all, and last `e2e: N passed, N failed, N skipped`. Status 0 only if nothing failed.
# Absent on purpose: order (each file makes its own two hosts and leaves nothing behind).
set -u
cd "$(dirname "$0")" || exit 2
passed=0 failed=0 skipped=0
limit=${E2E_SECONDS:-$([ -n "${BIG:-}${N:-}" ] && echo 7200 || echo 180)}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for file in [0-9][0-9]-*.sh; do
    [ -n "${1:-}" ] && [[ "$file" != *"$1"* ]] && continue
    echo "# $file"
    began=$SECONDS
    timeout --kill-after=10 "$limit" bash "$file" </dev/null 2>&1 | grep --line-buffered -v "^[^ ]*: line [0-9]*: *[0-9]* Killed " | tee "$log"
    status=${PIPESTATUS[0]}
    good=$(grep -c '^ok ' "$log") bad=$(grep -c '^not ok ' "$log")
    if [ "$status" != 0 ] && [ "$bad" = 0 ]; then
        echo "not ok $file ended with status $status$([ "$status" = 124 ] && echo " (not done after $limit s)")"
        bad=1
    fi
    echo "# $file: $((SECONDS - began)) s"
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + $(grep -c '^skip ' "$log")))
done
echo "e2e: $passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $passed -gt 0 ]
