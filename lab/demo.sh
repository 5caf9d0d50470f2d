#!/usr/bin/env bash
# make demo: the main job in front of your eyes, in at most two minutes.
#
# For:      a stranger who wants to see it before reading about it.
# In, out:  this machine's own files -> two hosts made on the spot, one copy with the plug pulled in the middle and run again,
#           one without, scp and rsync beside it where they are installed, a check by tools that are not ours, a table.
# Settings: DEMO_DIR (where it works: needs about 8 GB; a disk by default), DEMO_QUICK=1 (small, for CI),
#           DEMO_KILL=receiver|sender|both.
# Invariants: all it writes is below one temporary folder, gone at the end; it ends with status 0 only if every check held.
# Absent on purpose: made-up data; downloads; measuring for the record (that is `make bench`).

source "$(dirname "${BASH_SOURCE[0]}")/hosts.sh"
hosts_enter "$0" "$@"
LAB_PARENT="${DEMO_DIR:-/var/tmp}" hosts_up
[ -x "$LONGHAUL" ] || { echo "no binary at $LONGHAUL: run 'make build' first"; exit 2; }
exec 2>"$LAB/shell.err" # bash tells there of every process that was killed; what fails says so itself
KILL="${DEMO_KILL:-both}"
FAILED=0
began=$(date +%s)

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
check() { # check WORDS STATUS
    if [ "$2" = 0 ]; then echo "  ok      $1"; else echo "  FAILED  $1"; FAILED=1; fi
}
human() { awk -v n="$1" 'BEGIN { printf "%.2f GB", n / 1e9 }'; }
now() { date +%s.%N; }
wire() { # bytes host a has sent and received so far: the kernel's counters, not ours
    if [ -n "$HOLDER_A" ]; then awk '/lh0:/ { sub(/.*:/, ""); printf "%.0f", $1 + $9 }' "/proc/$HOLDER_A/net/dev"; else awk '/lo:/ { sub(/.*:/, ""); printf "%.0f", $1 }' /proc/net/dev; fi
}

# Bytes of files that are whole and have their names below DIR.
whole() { find "$1" -type f ! -name '.longhaul-*' -printf '%s\n' | awk '{ n += $1 } END { printf "%.0f", n }'; }

# --- the files ---------------------------------------------------------------------------------
say "1. The hosts and the files"
hosts_words
least=10000 most_mib=1500 big_bytes=$((1100 << 20))
[ -n "${DEMO_QUICK:-}" ] && big_bytes=$((512 << 20))
TREE=""
for candidate in /usr/lib/python3 /usr/share/man /usr/include /usr/share /usr/lib /usr; do
    [ -d "$candidate" ] || continue
    count=$(find "$candidate" -xdev -type f -readable 2>/dev/null | head -n 200000 | wc -l)
    [ "$count" -ge $least ] && [ "$count" -lt 200000 ] && [ "$(du -sxm "$candidate" 2>/dev/null | cut -f1)" -le $most_mib ] && TREE=$candidate && break
done
[ -n "$TREE" ] || { TREE=/usr/share; echo "no folder of this machine has $least files within $most_mib MiB: taking $TREE"; }
# A folder that somebody writes to in the meantime would be a different demonstration (torn sources): take a snapshot by hard facts only.
BIG="$LAB/machine.tar"
mkdir -p "$LAB/dst"
tar -cf - --ignore-failed-read /usr/lib /usr/bin /usr/share 2>/dev/null | head -c $big_bytes >"$BIG"
TREE_BYTES=$(find "$TREE" -xdev -type f -printf '%s\n' 2>/dev/null | awk '{ n += $1 } END { printf "%.0f", n }')
TREE_FILES=$(find "$TREE" -xdev -type f 2>/dev/null | wc -l)
TOTAL=$((TREE_BYTES + $(stat -c %s "$BIG")))
echo "tree:  $TREE, $TREE_FILES files, $(human "$TREE_BYTES")"
echo "file:  a tar of this machine's programs, $(human "$(stat -c %s "$BIG")")"

# --- pull the plug -----------------------------------------------------------------------------
say "2. longhaul cp from a to b; at about 40 % the plug is pulled (kill -9: $KILL), then the same command again"
DST="$LAB/dst/plug"
mkdir -p "$DST"
serve b "$DST" || exit 1
echo "  b: longhaul serve --root DIR --listen $ADDR_B:${PORT:-7440} --ticket      prints longhaul://TICKET@..."
echo "  a: longhaul cp TREE FILE longhaul://TICKET@.../"
before=$(wire)
start a "$LONGHAUL" cp --json --stall 2 "$TREE" "$BIG" "$URL" >"$LAB/first.json" 2>"$LAB/first.err" </dev/null
CP=$STARTED_PID
while kill -0 "$CP" 2>/dev/null && [ $((($(wire) - before) * 100)) -lt $((TOTAL * 40)) ]; do sleep 0.01; done
kill -0 "$CP" 2>/dev/null && alive=0 || alive=1
[ "$KILL" != sender ] && kill -9 "$SERVE_PID" 2>/dev/null
[ "$KILL" != receiver ] && kill -9 "$CP" 2>/dev/null
wait "$CP" 2>/dev/null
code=$?
first=$(($(wire) - before))
echo "  killed; cp's exit code: $code (128 + the signal); on the wire so far: $(human $first)"
check "the plug was pulled while the copy ran" $alive
partial=$(find "$DST" -type f ! -name '.longhaul-*' -size +1M -print0 | while IFS= read -r -d '' f; do
    rel=${f#"$DST"/}; [ "$rel" = machine.tar ] && src="$BIG" || src="$(dirname "$TREE")/$rel"
    cmp -s "$src" "$f" || echo "$rel"; done)
check "no file stands there half under its own name" "$([ -z "$partial" ]; echo $?)"
stop "$SERVE_PID" KILL
named=$(whole "$DST")
serve b "$DST" || exit 1
before=$(wire)
on a "$LONGHAUL" cp -v "$TREE" "$BIG" "$URL" </dev/null 2>&1 | tee "$LAB/second" | sed 's/^/  | /'
check "the second run ends with exit code 0" "${PIPESTATUS[0]}"
second=$(($(wire) - before))
# "resumed     146 MB were there already": bytes of the large file that counted.
resumed=$(awk '$1 == "resumed" { unit["kB"] = 1e3; unit["MB"] = 1e6; unit["GB"] = 1e9; printf "%.0f", $2 * unit[$3] }' "$LAB/second")
counted=$((named + ${resumed:-0}))
echo "  the first run brought $(human $first); $(human $counted) of it count: $(human "$named") in whole files, $(human "${resumed:-0}") of the large one's part"
echo "  second run, by the kernel's counters: $(human $second) crossed the wire, of $(human $TOTAL)"
# What does not count was in buffers, in small files that had no names yet, or written within the last 50 ms; where the disk stalls, notes of what was
# written wait with it. How little that is where it does not stall, lab/e2e/03-plug.sh holds. Frames are 3 % and less; 8 MiB are for names and rounding.
check "what counts did not cross the wire again" "$([ $second -lt $(((TOTAL - counted) / 100 * 103 + (8 << 20))) ]; echo $?)"
check "a fifth and more of what the first run brought counts" "$([ $((counted * 5)) -ge $first ]; echo $?)"
stop "$SERVE_PID" TERM

say "3. Is it the same? Asked of tools that are not ours"
diff -r --no-dereference "$TREE" "$DST/$(basename "$TREE")" >"$LAB/diff" 2>&1
check "diff -r: the tree is equal" $?
cmp "$BIG" "$DST/machine.tar"
check "cmp: the file is equal" $?
if command -v rsync >/dev/null; then
    rsync -rlptnic --delete --modify-window=-1 "$TREE/" "$DST/$(basename "$TREE")/" >"$LAB/rsync-diff" 2>&1
    check "rsync -c: names, bytes, modes and times to the nanosecond are equal" "$([ ! -s "$LAB/rsync-diff" ]; echo $?)"
fi
digest=$(b3 "$DST/machine.tar")
grep -rqs "^f $digest .*machine.tar\$" "$LAB/home-a" "$LAB/home-b"
check "BLAKE3, by a C program of its own: the receipt's digest of the file is $digest" $?
rm -rf "$DST"

# --- beside the others -------------------------------------------------------------------------
say "4. The whole copy without a cut, beside scp and rsync over ssh"
ROWS=()
row() { # row NAME SECONDS CPU_SECONDS SEALED CHECKED WHOLE RESUMES FLUSHED
    ROWS+=("$(awk -v name="$1" -v s="$2" -v cpu="$3" -v total=$TOTAL -v rest="$4|$5|$6|$7|$8" 'BEGIN {
        split(rest, word, "|"); cost = cpu == "" ? "-" : sprintf("%.2f", cpu / (total / 1e9));
        printf "%-22s %8.1f %8.2f %9s  %-7s %-9s %-8s %-8s %-8s", name, s, total * 8 / s / 1e9, cost, word[1], word[2], word[3], word[4], word[5] }')")
    echo "  $1: $2 s"
}
DST="$LAB/dst/whole"
mkdir -p "$DST"
serve b "$DST" || exit 1
sync
t=$(now)
on a "$LONGHAUL" cp --json "$TREE" "$BIG" "$URL" >"$LAB/whole.json" 2>"$LAB/whole.err" </dev/null
check "longhaul cp ends with exit code 0" $?
t=$(echo "$(now) $t" | awk '{ printf "%.2f", $1 - $2 }')
row longhaul "$t" "$(echo "$(field cpu_seconds_local "$LAB/whole.json") $(field cpu_seconds_remote "$LAB/whole.json")" | awk '{ print $1 + $2 }')" yes yes yes yes yes
stop "$SERVE_PID" TERM
rm -rf "$DST"

ticks() { # CPU seconds of one process and all its children that have ended
    awk '{ sub(/.*\) /, ""); print ($12 + $13 + $14 + $15) / 100 }' "/proc/$1/stat" 2>/dev/null || echo 0
}
peer() { # peer NAME CHECKED RESUMES CMD...: CPU of the near end by bash, of the far end by sshd's own children
    local name=$1 checked=$2 resumes=$3 t far near TIMEFORMAT='%U %S'
    shift 3
    DST="$LAB/dst/peer"
    mkdir -p "$DST"
    sync
    far=$(ticks "$SSHD_PID")
    t=$(now)
    { time on a timeout "${DEMO_PEER_SECONDS:-20}" "$@" </dev/null >/dev/null 2>"$LAB/peer.err"; } 2>"$LAB/peer.time"
    local status=$?
    t=$(echo "$(now) $t" | awk '{ printf "%.2f", $1 - $2 }')
    near=$(tail -n 1 "$LAB/peer.time" | awk '{ print $1 + $2 }')
    sleep 0.2 # the far sshd reaps its children after our end has gone
    far=$(echo "$(ticks "$SSHD_PID") $far" | awk '{ print $1 - $2 }')
    case $status in
    0) row "$name" "$t" "$(echo "$near $far" | awk '{ print $1 + $2 }')" yes "$checked" no "$resumes" no ;;
    124) echo "  $name: given up after ${DEMO_PEER_SECONDS:-20} s" ;;
    *) echo "  $name: failed: $(tail -n 1 "$LAB/peer.err")" ;;
    esac
    rm -rf "$DST"
}
if ! command -v ssh >/dev/null; then
    echo "  no ssh is installed: scp and rsync are left out"
elif sshd_up b; then
    command -v rsync >/dev/null && peer "rsync -a over ssh" stream no rsync -a -e "$SSH" "$TREE" "$BIG" "root@$ADDR_B:$LAB/dst/peer/" || echo "  rsync is not installed"
    command -v scp >/dev/null && peer "scp -rp" no no scp -rpq -P $SSH_PORT "${SSH_OPTIONS[@]}" "$TREE" "$BIG" "root@$ADDR_B:$LAB/dst/peer/" || echo "  scp is not installed"
else
    echo "  scp and rsync are left out: $SSHD_WHY"
fi

say "5. $(human $TOTAL) in $((TREE_FILES + 1)) files"
printf '  %-22s %8s %8s %9s  %-7s %-9s %-8s %-8s %-8s\n' "" seconds Gbit/s "CPU s/GB" sealed verified whole resumes flushed
for line in "${ROWS[@]}"; do echo "  $line"; done
cat <<END
  sealed: encrypted on the way   verified: each file's digest compared at both ends   whole: a name appears only when its file is complete
  resumes: a cut copy goes on inside a file by itself   flushed: on stable storage before it is reported as done
END
echo "  longhaul's own word on its limit: $(field limiter "$LAB/whole.json")"
echo "  peak memory: a $(human "$(field peak_memory_bytes_local "$LAB/whole.json")"), b $(human "$(field peak_memory_bytes_remote "$LAB/whole.json")")"
echo "  receipt of both ends: $(field receipt "$LAB/whole.json")"

# --- distance and loss ---------------------------------------------------------------------------
say "6. The race over 100 ms and 1 % loss, drawn from what the far host's kernel has counted"
[ -n "${DEMO_QUICK:-}" ] && export RACE_MIB=48 RACE_SECONDS=5
LONGHAUL="$LONGHAUL" "$LAB_DIR/race.sh"
check "longhaul arrived" $?
echo
echo "demo: $([ $FAILED = 0 ] && echo all checks held || echo SOME CHECKS FAILED), $(($(date +%s) - began)) s"
exit $FAILED
