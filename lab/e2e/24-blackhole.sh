#!/usr/bin/env bash
# A path that swallows packets above 1400 bytes from the start and says nothing of it.
source "$(dirname "$0")/check.sh"

random_file "$SRC/one.bin" $((12 << 20))
mkdir -p "$DST/far"
needs_lab
cat >"$LAB/hole.sh" <<END
set -e
$(far_daemon hole 7443)
"$LONGHAUL" cp --json -v --transport "\$1" "$SRC/one.bin" "\$url@10.99.0.2:7443/" >"$LAB/hole.json"
"$LONGHAUL" cp --json -v --transport "\$1" "\$url@10.99.0.2:7443/one.bin" "$DST/back.bin" >"$LAB/hole-back.json"
END
hole() { # hole WORDS TRANSPORT OPTIONS...
    local words=$1 transport=$2
    rm -rf "$DST/far/"* "$DST/back.bin" "$LAB/hole-serve.out" "$LAB/"hole*.json
    shift 2
    LONGHAUL_HOME="$LAB/home-a" lab run -q "$@" -- bash "$LAB/hole.sh" "$transport" >"$LAB/hole.out" 2>&1
    is $? 0 "$words: it ends well ($(field seconds "$LAB/hole.json") and $(field seconds "$LAB/hole-back.json") s)"
    holds "$words: the push is equal" cmp "$SRC/one.bin" "$DST/far/one.bin"
    holds "$words: the pull is equal" cmp "$SRC/one.bin" "$DST/back.bin"
}
for transport in tcp udp; do
    hole "swallowed from the start, $transport" $transport --link "rate=50Mbit rtt=10ms blackhole=1400"
    is "$(grep -c 'path MTU black hole to .* segments of 1180 bytes' "$LAB/hole.json")" 1 "swallowed from the start, $transport: it is said, with the remedy"
done
hole "nothing is swallowed" tcp --link "rate=50Mbit rtt=10ms"
is "$(grep -c 'path MTU black hole' "$LAB/hole.json")" 0 "nothing is swallowed: no word"

# It begins under a running job: long segments of streams, and long frames of the session, which a tree has.
python3 "$E2E/tree.py" many "$SRC/tree" 1500
cat >"$LAB/hole.sh" <<END
set -e
$(far_daemon hole 7443)
if [ "\$1" = push ]; then "$LONGHAUL" cp --json -v --transport tcp "$SRC/\$2" "\$url@10.99.0.2:7443/" >"$LAB/hole.json" &
else "$LONGHAUL" cp --json -v --transport tcp "\$url@10.99.0.2:7443/\$2" "$DST/back/" >"$LAB/hole.json" & fi
job=\$!
# When it is under way, whatever the time is then.
for _ in \$(seq 600); do
    [ "\$("$LONGHAUL" job list --json | grep -o '"bytes_done":[0-9]*' | grep -o "[0-9]*" | head -n 1)" -gt 200000 ] 2>/dev/null && break
    sleep 0.05
done
"$LONGHAUL" lab set 0 blackhole=1400
wait \$job
END
for what in one.bin tree; do
    [ $what = tree ] && rate=3Mbit || rate=20Mbit
    for way in push pull; do
        rm -rf "$DST/far/"* "$DST/back" "$LAB/hole-serve.out"
        mkdir "$DST/back"
        [ $way = pull ] && cp -a "$SRC/$what" "$DST/far/"
        LONGHAUL_HOME="$LAB/home-a" lab run -q --link "rate=$rate rtt=10ms" -- bash "$LAB/hole.sh" $way $what >"$LAB/hole.out" 2>&1
        is $? 0 "swallowed in mid-job, $way $what: it ends well ($(field seconds "$LAB/hole.json") s)"
        [ $way = push ] && there="$DST/far" || there="$DST/back"
        same "$SRC/$what" "$there/$what" "swallowed in mid-job, $way $what: equal"
        is "$(grep -c 'path MTU black hole to .* any more' "$LAB/hole.json")" 1 "swallowed in mid-job, $way $what: it is said, with the remedy"
    done
done
finish
