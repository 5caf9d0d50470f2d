#!/usr/bin/env bash
# Two jobs write one destination at once: one daemon, two daemons on one folder, ssh, locally; the same command twice, two sources of one
# name, a job that is stopped and continued. Whoever ends with exit code 0 has its own bytes, or another's whole ones, under the name; whoever
# is told that another is at the file says so, with exit code 24. PAIRS=n: more rounds (`make torture`).
source "$(dirname "$0")/check.sh"

mkdir -p "$SRC/one" "$SRC/two" "$DST"
random_file "$SRC/one/big.bin" $((24 << 20))
random_file "$SRC/two/big.bin" $((24 << 20))
for n in $(seq 40); do
    random_file "$SRC/one/s$n" $((n * 700))
    random_file "$SRC/two/s$n" $((n * 700))
done
touch -d 2020-01-01 "$SRC"/one/*
touch -d 2020-01-02 "$SRC"/two/*

SSH_OPTIONS=()
# copy SOURCE DEST NAME OPTIONS...: in the background on host a; $PID.
copy() {
    local source=$1 dest=$2 name=$3
    shift 3
    start a "$LONGHAUL" cp --json "$@" "$source"/* "$dest" >"$LAB/$name.json" 2>"$LAB/$name.err" </dev/null
    PID=$STARTED_PID
}
# whole FOLDER WORDS: each file is one of the two sources', all of it, and nothing of ours is left.
whole() {
    local bad=() file
    for file in "$1"/* "$1"/.longhaul-*; do
        [ -e "$file" ] || continue
        cmp -s "$file" "$SRC/one/$(basename "$file")" || cmp -s "$file" "$SRC/two/$(basename "$file")" || bad+=("$(basename "$file")")
    done
    if [ ${#bad[@]} = 0 ]; then ok "$2"; else not_ok "$2" "not whole, or left behind: ${bad[*]}"; fi
}
# pair WORDS SECOND-SOURCE DEST-1 DEST-2 FOLDER OPTIONS...: both at once, the second a little later.
pair() {
    local words=$1 second=$2 to1=$3 to2=$4 folder=$5 first_pid second_pid first_status second_status
    shift 5
    copy "$SRC/one" "$to1" first --rate 300Mbit "$@"
    first_pid=$PID
    sleep "0.$((RANDOM % 4))"
    copy "$second" "$to2" second --rate 400Mbit "$@"
    second_pid=$PID
    wait "$first_pid"
    first_status=$?
    wait "$second_pid"
    second_status=$?
    case "$first_status $second_status" in
    "0 0" | "0 24" | "24 0") ok "$words: exit codes $first_status and $second_status" ;;
    *) not_ok "$words: exit codes $first_status and $second_status" "$(tail -n 3 "$LAB/first.err" "$LAB/second.err")" ;;
    esac
    if [ "$first_status" = 24 ] || [ "$second_status" = 24 ]; then
        holds "$words: who was refused is told by whom" grep -q 'another job (process [0-9]* on ' "$LAB/first.json" "$LAB/second.json"
    fi
    whole "$folder" "$words: every file is one job's, all of it"
    # Alone, the same command comes through, and says so of what then stands there.
    cp_run "${SSH_OPTIONS[@]}" "$SRC/one"/* "$to1"
    cp_ends 0 "$words: and again, alone"
    same "$SRC/one" "$folder" "$words: then it is all of the first source"
    rm -rf "${folder:?}"/* "$folder"/.longhaul-*
}

mkdir -p "$DST/far" "$DST/near"
serve b "$DST/far"
url1=$URL
PORT=7441 serve b "$DST/far"
url2=$URL
for round in $(seq "${PAIRS:-1}"); do
    pair "one daemon, the same command twice ($round)" "$SRC/one" "$url1" "$url1" "$DST/far"
    pair "one daemon, two sources ($round)" "$SRC/two" "$url1" "$url1" "$DST/far"
    pair "two daemons, two sources ($round)" "$SRC/two" "$url1" "$url2" "$DST/far"
    pair "two daemons, two sources over UDP ($round)" "$SRC/two" "$url1" "$url2" "$DST/far" --transport udp
    pair "locally, the same command twice ($round)" "$SRC/one" "$DST/near/" "$DST/near/" "$DST/near" --reflink never
    pair "locally, two sources ($round)" "$SRC/two" "$DST/near/" "$DST/near/" "$DST/near" --durability written
done
if sshd_up b; then
    SSH_OPTIONS=(--ssh "$SSH" --remote-binary "$LONGHAUL")
    pair "over ssh, two sources" "$SRC/two" "root@$ADDR_B:$DST/far/" "root@$ADDR_B:$DST/far/" "$DST/far" "${SSH_OPTIONS[@]}"
else
    skip "over ssh: $SSHD_WHY"
fi

# --- a job that stands still (SIGSTOP) keeps its file; another is refused, by name, and harms nothing ---
copy "$SRC/one" "$DST/near/" stopped --rate 100Mbit
stopped=$PID
journalled "$DST/near"
kill -STOP "$stopped"
cp_run "$SRC/two/big.bin" "$DST/near/"
cp_ends 24 "a job that stands still keeps its large file: exit code 24 for another"
holds "and its process is named" grep -q "another job (process $stopped on " "$OUT"
holds "in words as well" grep -q "wait for the other job" <<<"$(on a "$LONGHAUL" cp "$SRC/two/big.bin" "$DST/near/" 2>&1)"
cp_run "$SRC/two"/s* "$DST/near/"
cp_ends 0 "small files beside it are nobody's alone"
kill -CONT "$stopped"
wait "$stopped"
is $? 0 "the first goes on and ends well"
whole "$DST/near" "a job that stood still: every file is one job's, all of it"
holds "its large file is its own" cmp "$SRC/one/big.bin" "$DST/near/big.bin"

# --- killed instead: what it held is free at once, and its left-overs go ---
rm -rf "${DST:?}/near"/* "$DST/near"/.longhaul-*
copy "$SRC/one" "$DST/near/" killed --rate 100Mbit
killed=$PID
journalled "$DST/near"
until_true 30 eval '[ "$(stat -c %s "$DST"/near/.longhaul-*.journal)" -gt 200 ]'
kill -9 "$killed"
wait "$killed" 2>/dev/null
# Four bytes of what its journal calls durable change on the disk: they are read back, and that chunk is sent again.
first=$(od -An --endian=little -tu8 -j64 -N8 "$DST"/near/.longhaul-*.journal)
printf 'ROTS' | dd of="$(echo "$DST"/near/.longhaul-*.part)" bs=1 seek=$(((first << 20) + 4321)) conv=notrunc status=none
cp_run "$SRC/one"/* "$DST/near/"
cp_ends 0 "a job that was killed holds nothing"
holds "and is gone on with" test "$(number resumed_bytes)" -gt 0
is "$(number readback_failed_bytes)" $((1 << 20)) "and the report says of how many bytes it was not what the journal says"
same "$SRC/one" "$DST/near" "after a kill: equal"
is "$(find "$DST/near" -name '.longhaul-*' | wc -l)" 0 "and nothing is left of it"

# --- a client that is killed, at a daemon that lives: of small files the daemon's end takes away what it had begun by itself ---
mkdir -p "$SRC/small"
for n in $(seq 300); do head -c 40000 /dev/zero | tr '\0' "$((n % 10))" >"$SRC/small/$n"; done
start a "$LONGHAUL" cp --rate 5Mbit "$SRC/small" "${url1}left" >/dev/null 2>&1
until_true 30 test -d "$DST/far/.longhaul-runs"
holds "a client that will be killed: its daemon has begun small files" test -d "$DST/far/.longhaul-runs"
kill -9 "$STARTED_PID"
wait "$STARTED_PID" 2>/dev/null
until_true 20 eval '[ -z "$(find "$DST/far" -name ".longhaul-*")" ]'
is "$(find "$DST/far" -name '.longhaul-*' | wc -l)" 0 "a client that was killed: its daemon leaves nothing of small files"
finish
