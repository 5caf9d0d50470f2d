# shellcheck shell=bash
# What a check is made of, on any machine. Source this file; lab/hosts.sh does, and so do the checks in the guest (lab/vm).
#
# In, out:    what was got, what was wanted, and words for it -> lines of ok, not ok, skip; $BAD and the exit code of `finish`.
# Invariants: no check passes without having looked.

BAD=0
ok() { echo "ok $*"; }
not_ok() {
    echo "not ok $1"
    BAD=1
    [ -n "${2:-}" ] && sed 's/^/#   /' <<<"$2" | head -n 12
    return 0
}
skip() { echo "skip $*"; }
finish() { exit $BAD; }
# is GOT WANTED WORDS
is() {
    if [ "$1" = "$2" ]; then ok "$3"; else not_ok "$3" "got '$1', wanted '$2'"; fi
}
# holds WORDS CMD...: the command succeeds.
holds() {
    local words=$1 said
    shift
    if said=$("$@" 2>&1); then ok "$words"; else not_ok "$words" "$said"; fi
}
# until_true SECONDS CMD...: tries until it holds; the time is a limit, never a pause that must pass.
until_true() {
    local end=$(($(date +%s%N) + $1 * 1000000000))
    shift
    until "$@"; do
        [ "$(date +%s%N)" -lt "$end" ] || return 1
        sleep 0.02
    done
}
