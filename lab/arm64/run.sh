#!/usr/bin/env bash
# What cargo calls with each test program for arm64: run.sh PROGRAM ARGUMENTS... Runs it by $QEMU; tests that need what qemu-user lacks (lab/arm64/lacks)
# are run apart and must fail there.
#
# In, out:    a test program -> its own words, and for each test of the list a line: skip with the reason, or not ok where it passes after all.
# Invariants: no test is skipped that would pass: the list cannot outlive what it says. The tests themselves know nothing of it.
# Absent on purpose: retries.
set -u
program=$1 name=$(basename "${1%-*}") status=0 skips=() tests=() reasons=()
while read -r of test reason; do
    [ "$of" = "$name" ] || continue
    skips+=(--skip "$test") tests+=("$test") reasons+=("$reason")
done < <(grep -v '^#' "$(dirname "${BASH_SOURCE[0]}")/lacks")
"$QEMU" "$@" --exact "${skips[@]}" || status=$?
for at in "${!tests[@]}"; do
    # A name that is no test's would end well without having run anything.
    if "$QEMU" "$program" --exact "${tests[at]}" >/dev/null 2>&1; then
        echo "not ok $name ${tests[at]}: passes, or is there no more: take it from lab/arm64/lacks"
        status=1
    else
        echo "skip $name ${tests[at]}: qemu-user lacks ${reasons[at]}"
    fi
done
exit "$status"
