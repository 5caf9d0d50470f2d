#!/usr/bin/env bash
# Patterns and lists of names choose what is copied, wherever the scan runs; what patterns leave out is not removed either.
source "$(dirname "$0")/check.sh"

names() { (cd "$1" && find . -mindepth 1 -print0 | LC_ALL=C sort -z | tr '\n\0' '? '); } # names FOLDER: all below it; a newline is a question mark
mkdir -p "$SRC/t/"{build,src/build,doc/deep} "$DST/root"
for name in a.o keep.o build/x src/a.c src/a.o src/build/y doc/deep/n.txt "odd
name" "#hash"; do echo "$name" >"$SRC/t/$name"; done
ln -s /etc "$SRC/t/out"
serve b "$DST/root" || { not_ok "serve prints its address"; finish; }
EXPECTED="./#hash ./doc ./doc/deep ./doc/deep/n.txt ./keep.o ./odd?name ./out ./src ./src/a.c ./src/build ./src/build/y "
RULES=(--exclude '*.o' --include keep.o --exclude /build/)

# --- patterns ---
cp_run "${RULES[@]}" "$SRC/t" "${URL}push"
is "$STATUS $(names "$DST/root/push")" "0 $EXPECTED" "push: patterns in order, anchored ones at SRC"
cp -a "$SRC/t" "$DST/root/there"
cp_run "${RULES[@]}" "${URL}there" "$DST/pull"
is "$STATUS $(names "$DST/pull")" "0 $EXPECTED" "pull: the same, chosen at the other end"
printf '# a list\n*.o\n\n!keep.o\n/build/\n' >"$LAB/rules"
cp_run --exclude-from "$LAB/rules" "$SRC/t" "$DST/local"
is "$STATUS $(names "$DST/local")" "0 $EXPECTED" "local: the same from a file"
cp_run "${RULES[@]}" "${URL}there" "${URL}relayed"
is "$STATUS $(names "$DST/root/relayed")" "0 $EXPECTED" "between two daemons: the same"
cp_run --exclude '[z-a]' "$SRC/t" "$DST/bad"
is "$STATUS $([ -e "$DST/bad" ] && echo made)" "2 " "a pattern that is none: usage, nothing made"
holds "it is named" grep -qF "'[z-a]'" "$OUT"
cp_run --exclude '*' "$SRC/t/a.o" "$DST/named"
is "$STATUS $(cat "$DST/named")" "0 a.o" "what is named as a source is never left out"

# --- sync --delete ---
mkdir -p "$DST/mirror/gone/deep" && touch "$DST/mirror/"{mine.o,extra,gone/deep/mine.o,gone/file}
cp_run_as sync --delete "${RULES[@]}" "$SRC/t" "$DST/mirror"
is "$STATUS $(number removed)" "0 2" "sync --delete: what is too much goes"
is "$(names "$DST/mirror" | grep -o '[^ ]*mine.o' | tr '\n' ' ')" "./gone/deep/mine.o ./mine.o " "what patterns leave out stays, with its folders"
cp -a "$DST/mirror" "$DST/root/mirror" && touch "$DST/root/mirror/extra"
cp_run_as sync --delete "${RULES[@]}" "$SRC/t" "${URL}mirror"
is "$STATUS $(number removed) $(names "$DST/root/mirror" | grep -o '[^ ]*mine.o' | tr '\n' ' ')" "0 1 ./gone/deep/mine.o ./mine.o " "the same at a daemon"

# --- lists of names ---
printf '%s\0' "odd
name" ./src//a.c doc "#hash" src/a.c >"$LAB/names"
PICKED="./#hash ./doc ./odd?name ./src ./src/a.c "
cp_run -0 --files-from "$LAB/names" "$SRC/t" "${URL}picked"
is "$STATUS $(names "$DST/root/picked")" "0 $PICKED" "push: the names of a list, each by itself"
cp_run -0 --files-from "$LAB/names" "${URL}there" "$DST/picked"
is "$STATUS $(names "$DST/picked")" "0 $PICKED" "pull: the names travel"
is "$(stat -c %Y.%a "$DST/picked/src" "$DST/picked/doc")" "$(stat -c %Y.%a "$SRC/t/src" "$SRC/t/doc")" "folders that lead there have their modes and times"
cp_run -0 --files-from "$LAB/names" "${URL}there" "${URL}picked-relayed"
is "$STATUS $(names "$DST/root/picked-relayed")" "0 $PICKED" "between two daemons: the same"
OUT="$LAB/stdin.json"
(cd "$SRC/t" && find . -name '*.c') | on a "$LONGHAUL" cp --json --files-from - "$SRC/t" "$DST/piped" >"$OUT" 2>&1
is "$(names "$DST/piped")" "./src ./src/a.c " "a list from standard input"
: >"$LAB/nothing"
cp_run --files-from "$LAB/nothing" "${URL}there" "$DST/nothing"
is "$STATUS $(names "$DST/nothing")" "0 " "an empty list: nothing is taken"
printf 'src/a.c\nnot there\nsrc/a.c/below\nout/passwd\n' >"$LAB/names"
cp_run --files-from "$LAB/names" "${URL}there" "$DST/faults"
is "$(names "$DST/faults")" "./src ./src/a.c " "names that are not there, and names behind a link: the rest is done"
is "$(number faults_count) $([ "$STATUS" = 0 ] && echo well) $(tail -n 1 "$OUT" | grep -o '"not there"' | head -n 1)" '3  "not there"' "they are faults, and named"
for bad in ../up /etc/passwd; do
    echo "$bad" >"$LAB/names"
    cp_run --files-from "$LAB/names" "$SRC/t" "$DST/bad"
    is "$STATUS" 2 "$bad in a list: usage"
done
cp_run_as sync --delete --files-from "$LAB/nothing" "$SRC/t" "$DST/mirror"
is "$STATUS" 2 "a list and --delete: usage"

# --- bounds ---
seq -f '%060.0f' 0 599999 >"$LAB/many"
cp_run --files-from "$LAB/many" "${URL}there" "$DST/many"
is "$STATUS" 2 "more names than fit into the bound: usage"
stop "$SERVE_PID"
serve b "$DST/root" --wo || not_ok "serve --wo"
cp_run --files-from "$LAB/nothing" "${URL}there" "$DST/wo"
is "$STATUS" 12 "who may only write picks nothing"
finish
