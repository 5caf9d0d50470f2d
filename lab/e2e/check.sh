# shellcheck shell=bash
# Words that the end-to-end checks share. Source it first: it makes the two hosts.
# Out of it: ok/not ok/skip lines; cp_run, is, holds, same; $OUT (JSON lines of the last cp), $STATUS (its exit code).
# Invariants: no check passes without having looked at a file, an exit code or a field of the report.

source "$(dirname "${BASH_SOURCE[0]}")/../hosts.sh"
E2E="$LAB_DIR/e2e"
hosts_enter "$0" "$@"
LAB_PARENT="${E2E_DIR:-${TMPDIR:-/tmp}}" hosts_up
[ -x "$LONGHAUL" ] || { echo "not ok no binary at $LONGHAUL: run 'make build' first"; exit 1; }
RUNS=0
SRC="$LAB/src"
DST="$LAB/dst"
mkdir -p "$SRC" "$DST"

# cp_run ARGUMENTS...: longhaul cp --json on host a. $OUT has its lines, $ERR its words, $STATUS its exit code, $TOOK its seconds.
cp_run() { cp_run_as cp "$@"; }
cp_run_as() { # cp_run_as COMMAND ARGUMENTS...: the same with another command of the same kind
    local command=$1
    shift
    RUNS=$((RUNS + 1))
    OUT="$LAB/cp-$RUNS.json" ERR="$LAB/cp-$RUNS.err"
    local t
    t=$(date +%s%N)
    on a timeout --kill-after=5 "${CP_LIMIT:-60}" ${CP_AS:-} "$LONGHAUL" "$command" --json "$@" >"$OUT" 2>"$ERR" </dev/null
    STATUS=$?
    TOOK=$((($(date +%s%N) - t) / 1000000))
}
# far_daemon NAME PORT: lines for a script that runs in the lab's host a: a daemon in host b whose root is $DST/far; its address up to the host is in
# \$url. Its output is $LAB/NAME-serve.out.
far_daemon() {
    cat <<END
"$LONGHAUL" lab on b -b --log "$LAB/$1-serve.out" -- "$LONGHAUL" serve --root "$DST/far" --listen 10.99.0.2:$2 --ticket >/dev/null
for _ in \$(seq 100); do url=\$(grep -m1 -o '^longhaul://[^@]*' "$LAB/$1-serve.out") && break; sleep 0.05; done
END
}
# begun FOLDER: waits until a job has begun to write below it. journalled FOLDER: until what came of a file would be found again after kill -9.
begun() { until_true 30 eval "find '$1' -name '.longhaul-*' 2>/dev/null | grep -q ."; }
journalled() { until_true 30 eval "find '$1' -name '.longhaul-*.journal' -size +0 2>/dev/null | grep -q ."; }
why() { echo "status $STATUS; $(tail -n 3 "$ERR" 2>/dev/null); $(tail -n 1 "$OUT" 2>/dev/null | cut -c1-400)"; }

# cp_ends CODE WORDS: the last cp ended with that exit code, the one that the book's table of exit codes has for it.
cp_ends() {
    if [ "$STATUS" = "$1" ]; then ok "$2"; else not_ok "$2: exit code $1 expected" "$(why)"; fi
}
# same A B WORDS [SIDE]: names, kinds, modes, times, targets and bytes are equal, by a comparison of our own that knows nothing of longhaul.
same() {
    local said
    if said=$(on "${4:-a}" python3 "$E2E/tree.py" same "$1" "$2" 2>&1); then ok "$3"; else not_ok "$3" "$said"; fi
}
number() { # number FIELD: of the last report, 0 where there is none
    local n
    n=$(field "$1" "$OUT")
    [[ "$n" =~ ^[0-9.e+]+$ ]] && printf '%.0f' "$n" || echo 0
}
random_file() { # random_file PATH BYTES
    mkdir -p "$(dirname "$1")"
    head -c "$2" /dev/urandom >"$1"
}
wire() { # bytes that host a has sent and received so far, by the kernel's counters
    if [ -n "$HOLDER_A" ]; then awk '/lh0:/ { sub(/.*:/, ""); printf "%.0f", $1 + $9 }' "/proc/$HOLDER_A/net/dev"; else awk '/lo:/ { sub(/.*:/, ""); printf "%.0f", $1 }' /proc/net/dev; fi
}
lab() { timeout --kill-after=5 "${LAB_LIMIT:-100}" "$LONGHAUL" lab "$@" </dev/null; }
# needs_lab: ends this file where no lab can be made; its sockets and logs stand away from those of others.
needs_lab() {
    local said
    export TMPDIR="$LAB"
    unset XDG_RUNTIME_DIR
    if ! said=$(lab run -q -- true 2>&1); then
        skip "no lab can be made here: $(head -n 1 <<<"$said")"
        finish
    fi
}
