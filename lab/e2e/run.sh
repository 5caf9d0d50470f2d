#!/usr/bin/env bash
# Runs the end-to-end checks: lab/e2e/NN-NAME.sh, each by itself, each under a limit of time, then those that read reports (lab/tests/reports,
# in Rust). `run.sh NAME` runs those with that in their name; E2E_SET="NAME NAME" only the files of these names, and no reports.
# Out: `ok`, `not ok` and `skip` lines of all, and last `e2e: N passed, N failed, N skipped`. Status 0 only if nothing failed.
# Absent on purpose: order (each file makes its own two hosts and leaves nothing behind).
set -u
cd "$(dirname "$0")" || exit 2
passed=0 failed=0 skipped=0
limit=${E2E_SECONDS:-$([ -n "${BIG:-}${N:-}" ] && echo 7200 || echo 180)}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() { # run NAME SECONDS CMD...
    local name=$1 limit=$2 began=$SECONDS status good bad
    shift 2
    echo "# $name"
    timeout --kill-after=10 "$limit" "$@" </dev/null 2>&1 | grep --line-buffered -v "^[^ ]*: line [0-9]*: *[0-9]* Killed " | tee "$log"
    status=${PIPESTATUS[0]}
    good=$(grep -c '^ok ' "$log") bad=$(grep -c '^not ok ' "$log")
    if [ "$status" != 0 ] && [ "$bad" = 0 ]; then
        echo "not ok $name ended with status $status$([ "$status" = 124 ] && echo " (not done after $limit s)")"
        bad=1
    fi
    echo "# $name: $((SECONDS - began)) s"
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + $(grep -c '^skip ' "$log")))
}
for file in [0-9][0-9]-*.sh; do
    [ -n "${1:-}" ] && [[ "$file" != *"$1"* ]] && continue
    [ -n "${E2E_SET:-}" ] && [[ " $E2E_SET " != *" ${file%.sh} "* ]] && continue
    run "$file" "$limit" bash "$file"
done
reports=../tests/reports
if [ -n "${E2E_SET:-}" ]; then
    : # the long checks are not in the set
elif [ -z "${1:-}" ] || [ -n "$(find $reports -mindepth 1 -name "*$1*")" ]; then
    LONGHAUL="$(readlink -f "${LONGHAUL:-../../target/longhaul}")"
    export LONGHAUL
    # As long as all files of it would have, were each of them one in shell.
    run reports $((limit * 10)) cargo test -q --locked -p longhaul-lab --test reports -- ${1:+"$1"}
fi
echo "e2e: $passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $passed -gt 0 ]
