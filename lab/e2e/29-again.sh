#!/usr/bin/env bash
# The same command again: one rule for what DST means (the table of `longhaul help cp`), at all ends, whatever stood there before; what was cut is
# completed in place, what was done is not sent again. And source and destination that touch each other.
source "$(dirname "$0")/check.sh"

mkdir -p "$SRC/tree/in" "$DST/near" "$DST/far"
random_file "$SRC/tree/in/a" 300000
random_file "$SRC/tree/b" 2000
random_file "$SRC/one" 200000
files="in/a b"

serve b "$DST/far" || { not_ok "serve prints its address"; finish; }
far=$URL
PORT=7441 serve b "$SRC" --ro || { not_ok "a daemon of the sources"; finish; }
from=$URL

# has FOLDER NAMES: these and no other files stand there.
has() { [ "$(cd "$1" && find . -type f -printf '%P\n' | sort | tr '\n' ' ')" = "$(tr ' ' '\n' <<<"$2" | sort | tr '\n' ' ')" ]; }
below() { sed "s|[^ ]*|$1/&|g" <<<"$files"; }

# table KIND SOURCE... : each line of the table twice, by this kind of ends. $AT is where DST begins, $ROOT the same on this machine.
eight() { # eight WORDS NAMES DST BEFORE SOURCE...: what stands below $ROOT/case after each of two runs; the second sends nothing
    local words=$1 names=$2 to=$3 before=$4
    shift 4
    rm -rf "$ROOT/case" && mkdir "$ROOT/case"
    eval "$before"
    CP_AS=${CD:+env -C $CD} cp_run "${WAY[@]}" "$@" "$AT/case/$to"
    local first="$STATUS"
    if ! has "$ROOT/case" "$names"; then
        not_ok "$words: first run" "$(why) stands: $(cd "$ROOT/case" && find . -type f | tr '\n' ' ')"
        return
    fi
    CP_AS=${CD:+env -C $CD} cp_run "${WAY[@]}" "$@" "$AT/case/$to"
    is "$first $STATUS $(number bytes) $(number files)" "0 0 0 0" "$words: again, nothing is sent"
    if has "$ROOT/case" "$names"; then ok "$words: the same stands there"; else not_ok "$words: the same stands there" "$(cd "$ROOT/case" && find . -type f)"; fi
}
table() { # table KIND SOURCES
    local s=$2
    eight "$1, 1: a file, nothing there" "x" x : "$s/one"
    eight "$1, 2: a file, a file there" "x" x 'echo old >"$ROOT/case/x"' "$s/one"
    eight "$1, 3: a file, a folder there" "x/one x/old" x 'mkdir "$ROOT/case/x"; echo old >"$ROOT/case/x/old"' "$s/one"
    eight "$1, 4: a file, into x/" "x/one" x/ : "$s/one"
    eight "$1, 5: a folder, nothing there" "$(below x)" x : "$s/tree"
    eight "$1, 6: a folder, a folder there" "$(below x) x/old" x 'mkdir "$ROOT/case/x"; echo old >"$ROOT/case/x/old"' "$s/tree"
    eight "$1, 7: a folder, into x/" "$(below x/tree)" x/ : "$s/tree"
    eight "$1, 8: several, into a folder" "$(below x/tree) x/one" x : "$s/tree" "$s/one"
}
WAY=()
AT=$DST/near ROOT=$DST/near
table local "$SRC"
AT=${far%/} ROOT=$DST/far
table push "$SRC"
AT=$DST/near ROOT=$DST/near
table pull "${from%/}"
AT=${far%/} ROOT=$DST/far
table relay "${from%/}"
if sshd_up b; then
    WAY=(--ssh "$SSH" --remote-binary "$LONGHAUL")
    AT=root@$ADDR_B:$DST/far
    table ssh "$SRC"
    WAY=()
else
    skip "the table over ssh: $SSHD_WHY"
fi

# --- what no line of the table has: an error, and nothing is replaced ---
# Where both ends are seen it is refused before anything is tried; from another host each entry is a fault.
for to in "$DST/near/" "$far"; do
    onto_file=$([ "$to" = "$far" ] && echo 3 || echo 2)
    echo old >"$DST/near/file"
    echo old >"$DST/far/file"
    cp_run "$SRC/one" "$SRC/tree/b" "${to}file"
    is "$STATUS $(cat "$DST/near/file" "$DST/far/file" | tr '\n' ' ')" "2 old old " "several into a file: usage"
    cp_run "$SRC/tree" "${to}file"
    is "$STATUS $(cat "$DST/near/file" "$DST/far/file" | tr '\n' ' ')" "$onto_file old old " "a folder onto a file: not moved"
done

# --- `.`, and the content of a folder ---
mkdir -p "$DST/near/dot"
CP_AS="env -C $DST/near/dot" cp_run "$SRC/tree" .
CP_AS="env -C $DST/near/dot" cp_run "$SRC/tree" .
is "$STATUS $(number bytes)" "0 0" "a folder into '.': again, nothing is sent"
holds "a folder into '.': under its own name" has "$DST/near/dot" "$(below tree)"
CP_AS="env -C $DST/near/dot" cp_run "$SRC/tree/." made/.
holds "content into a folder that is made" has "$DST/near/dot/made" "$files"
cp_run -n "$SRC/tree" "$DST/near/dot/made"
is "$STATUS $(number bytes)" "0 0" "a dry run means the same"

mkdir -m 1777 "$DST/near/shared"
cp_run "$SRC/tree" "$DST/near/shared"
is "$STATUS $(stat -c %a "$DST/near/shared")" "0 1777" "content into a folder that all users share: it stays as it is"
holds "and the content is there" has "$DST/near/shared" "$files"

# --- a set of volumes is a folder, what is read of one follows the table ---
mkdir -p "$DST/near/v0" "$DST/near/v1"
for turn in 1 2; do
    cp_run --stripe file "$SRC/tree" "$DST/near/v0" "$DST/near/v1"
    first="$STATUS $(number files)"
    cp_run --join "$DST/near/v0/tree" "$DST/near/v1/tree" "$DST/near/joined"
    is "$first $STATUS $(number files) $(find "$DST/near/joined" -type f | wc -l)" "0 $((turn == 1 ? 2 : 0)) 0 $((turn == 1 ? 2 : 0)) 2" "dealt out to volumes and joined, run $turn"
done

# --- cut by kill -9, and run again ---
random_file "$SRC/big/large.bin" $((48 << 20))
random_file "$SRC/big/small" 1000
cut() { # cut WORDS FOLDER ARGUMENTS...: the job is killed, and made again, twice
    local words=$1 folder=$2
    shift 2
    start a "$LONGHAUL" cp --json --rate 160Mbit "$@" >"$LAB/cut.json" 2>&1 </dev/null
    half_way "$folder" || not_ok "$words: something came" "$(tail -n 1 "$LAB/cut.json")"
    stop "$STARTED_PID" KILL
    again "$words" "$folder" "$@"
}
# half_way FOLDER: until a small file stands there, and what came of the large one would be found again.
half_way() { until_true 30 test -e "$1/small" && journalled "$1"; }
again() {
    local words=$1 folder=$2
    shift 2
    # A daemon that has just lost its client may still have the job.
    for _ in $(seq 20); do
        cp_run "$@"
        [ "$STATUS" = 0 ] && break
        sleep 0.2
    done
    is "$STATUS $(($(number resumed_bytes) > 0)) $(number kept_files)" "0 1 1" "$words: cut and again: it goes on where it was"
    same "$SRC/big" "$folder" "$words: equal, and nothing below it but the tree"
    "$LONGHAUL" verify --json "$(field receipt "$OUT")" "$folder" >"$LAB/verify.json" 2>&1
    is "$(field exit "$LAB/verify.json") $(field without_digest "$LAB/verify.json")" "0 0" "$words: the receipt has the digest of what the run before brought"
    cp_run "$@"
    is "$STATUS $(number bytes) $(number kept_files)" "0 0 2" "$words: the third sends nothing"
}
cut local "$DST/near/new" "$SRC/big" "$DST/near/new"
cut push "$DST/far/new" "$SRC/big" "${far}new"
cut pull "$DST/near/pulled" "${from}big" "$DST/near/pulled"
PORT=7442 serve b "$SRC" --ro || not_ok "a daemon to be killed"
start a "$LONGHAUL" cp --json --rate 160Mbit "${URL}big" "${far}relayed" >"$LAB/cut.json" 2>&1 </dev/null
half_way "$DST/far/relayed" || not_ok "relay: something came" "$(tail -n 1 "$LAB/cut.json")"
stop "$SERVE_PID" KILL
stop "$STARTED_PID" KILL
again relay "$DST/far/relayed" "${from}big" "${far}relayed"

# --- source and destination that touch each other; folders are known by what they are, on this host through a daemon, too ---
PORT=7443 serve b "$DST/far" --ro || not_ok "a daemon of the destination's folder"
read_far=$URL
touching() { # touching WORDS A B: the same folder as a source (A) and as a destination (B) of this kind of ends
    local words=$1 a=$2 b=$3 o=$DST/far/o
    rm -rf "$o" && mkdir -p "$o/src/in" && echo 1 >"$o/src/in/f" && echo 2 >"$o/src/g" && cp -a "$o/src" "$LAB/touching"
    for command in cp sync; do
        for into in sub sub/ in/sub in ""; do
            [ "$command$into" = sync ] && continue # onto itself, see below
            cp_run_as $command "$a/o/src" "$b/o/src/$into"
            [ "$STATUS" = 2 ] && grep -q 'is inside the source' "$OUT" || not_ok "$words: $command of a folder into itself ('$into') is refused" "$(why)"
        done
    done
    rmdir "$o/src/sub" "$o/src/in/sub" 2>/dev/null # a daemon makes the folders of a destination before it knows whose source it stands in
    holds "$words: a folder into itself is refused, and nothing was written" diff -r "$LAB/touching" "$o/src"
    if [ "$words" = local ]; then
        cp_run "$a/o/src" "$b/o/src/new/er/x"
        is "$STATUS $(test -e "$o/src/new"; echo $?)" "2 1" "$words: also before the folders of the destination are made"
    fi
    for turn in 1 2; do
        cp_run_as sync --exclude /sub/ "$a/o/src" "$b/o/src/sub"
        is "$STATUS $(number files) $(find "$o/src" -type f | wc -l)" "0 $((turn == 1 ? 2 : 0)) 4" "$words: where it is excluded all else is copied into it, run $turn"
    done
    rm -r "$o/src/sub"
    for ends in "$a/o/src $b/o/src" "$a/o/src $b/o/" "$a/o/src/g $b/o/src/" "$a/o/src/g $b/o/src/g" "$a/o/src/. $b/o/src/"; do
        # shellcheck disable=SC2086 # two words
        cp_run --no-keep $ends
        [ "$STATUS" = 2 ] || not_ok "$words: the same as source and destination: ${ends//$DST/}" "$(why)"
    done
    holds "$words: what is both source and destination is refused, and as it was" diff -r "$LAB/touching" "$o/src"
    cp_run_as sync --delete "$a/o/src/in" "$b/o/src"
    is "$STATUS $(cat "$o/src/in/f" 2>&1)" "2 1" "$words: --delete does not remove the source"
    cp_run_as sync -n --delete --exclude /in/ "$a/o/src/in" "$b/o/src"
    is "$STATUS" 0 "$words: unless a rule keeps it there"
    cp_run "$a/o/src/in/." "$b/o/src"
    is "$STATUS $(cat "$o/src/f" 2>&1)" "0 1" "$words: up by one, without --delete: as anywhere"
    mkdir "$o/src/in/in" && echo 3 >"$o/src/in/in/f"
    cp_run --no-keep "$a/o/src/in/." "$b/o/src"
    is "$STATUS $(cat "$o/src/f" "$o/src/in/f" "$o/src/in/in/f" 2>&1 | tr '\n' ' ')" "2 1 1 3 " "$words: up by one, where the source's own folder has that name: refused, nothing is written into the source"
    holds "$words: and what would be is named" grep -q "in/in' would be written into the source" "$OUT"
    cp_run_as sync --exclude /in/ "$a/o/src/in/." "$b/o/src"
    is "$STATUS $(cat "$o/src/in/f")" "0 1" "$words: unless a rule leaves that out"
    rm -r "$LAB/touching"
}
touching local "$DST/far" "$DST/far"
touching push "$DST/far" "${far%/}"
touching pull "${read_far%/}" "$DST/far"
touching relay "${read_far%/}" "${far%/}"
# --- links in a path that lead in a circle, or that a daemon does not follow: said, with a code of their own, not `not there` ---
ln -s circle "$DST/far/circle" && ln -s o "$DST/far/link"
for ends in "$DST/far/circle/x $DST/near/x" "$SRC/one $DST/far/circle/x" "$SRC/one $DST/far/circle/"; do
    # shellcheck disable=SC2086 # two words
    cp_run $ends
    is "$STATUS $(grep -c 'lead in a circle' "$OUT")" "2 1" "links in a circle: ${ends//$DST/}: usage"
done
for link in circle link; do
    for ends in "${read_far}$link/x $DST/near/x" "$SRC/one ${far}$link/x" "$SRC/one ${far}$link/" "${read_far}$link/x ${far}x"; do
        # shellcheck disable=SC2086 # two words
        cp_run $ends
        is "$STATUS $(grep -c 'a link stands in this path' "$OUT")" "12 1" "a link in a path below a root: ${ends//$DST/}: refused"
    done
done

# --- the same command again touches nothing: neither links nor folders nor nodes, not even their time of change ---
mkdir -p "$SRC/quiet/in/empty" && echo 1 >"$SRC/quiet/in/f" && ln -s in/f "$SRC/quiet/link" && ln -s nowhere "$SRC/quiet/in/dangling"
mkfifo "$SRC/quiet/fifo" && ln "$SRC/quiet/in/f" "$SRC/quiet/name"
chmod 2750 "$SRC/quiet/in" && touch -h -d 2001-02-03T04:05:06.789 "$SRC/quiet/link" "$SRC/quiet/in" "$SRC/quiet/in/empty" "$SRC/quiet"
standing() { find "$1" -printf '%P %i %C@ %T@ %m %U %n\n' | sort; }
for ends in "$SRC/quiet $DST/near/quiet" "$SRC/quiet ${far}quiet" "${from}quiet $DST/near/pulled-quiet" "${from}quiet ${far}relayed-quiet"; do
    to=${ends#* }
    at=${to/#"$far"/"$DST/far/"}
    # shellcheck disable=SC2086 # two words
    cp_run $ends
    standing "$at" >"$LAB/standing"
    sleep 0.02
    # shellcheck disable=SC2086
    cp_run $ends
    is "$STATUS $(number bytes) $(number files)" "0 0 0" "${ends//$DST/}: again"
    holds "and nothing there was touched" diff <(standing "$at") "$LAB/standing"
done

mkdir -p "$DST/l/src/sub" && echo 1 >"$DST/l/src/f" && ln -s src/sub "$DST/l/way"
cp_run "$DST/l/src" "$DST/l/way"
is "$STATUS $(find "$DST/l/src" -type f | wc -l)" "2 1" "a link that leads into the source is that folder: refused"
finish
