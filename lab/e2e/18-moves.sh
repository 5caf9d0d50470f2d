#!/usr/bin/env bash
# A running job on a path that changes: another address of the client, another rate, ten seconds of nothing. Files of two sizes, so that the
# control session has much to say.
source "$(dirname "$0")/check.sh"

random_file "$SRC/one.bin" $((16 << 20))
python3 "$E2E/tree.py" many "$SRC/tree" 1500
mkdir -p "$DST/far"
needs_lab
cat >"$LAB/moves.sh" <<END
set -e
$(far_daemon moves 7442)
"$LONGHAUL" cp --json -v "\$@" "\$url@10.99.0.2:7442/" >"$LAB/moves.json"
END
moves() { # moves WORDS SCRIPT OPTIONS AND SOURCES...
    local words=$1
    rm -rf "$DST/far/"* "$LAB/moves-serve.out"
    printf "$2" >"$LAB/moves.txt"
    shift 2
    LONGHAUL_HOME="$LAB/home-a" lab run -q --rate 40Mbit --rtt 60ms --script "$LAB/moves.txt" -- bash "$LAB/moves.sh" "$@" >"$LAB/moves.out" 2>&1
    is $? 0 "$words: it ends well ($(field goodput_bps "$LAB/moves.json") bit/s)"
    holds "$words: the file is equal" cmp "$SRC/one.bin" "$DST/far/one.bin"
}
says() { grep '"event":"note"' "$LAB/moves.json" | grep -c "$1"; }

mistaken() { is "$(says 'do not get through')" 0 "$1: nobody takes it for packets that are too long"; }

# At a rate that is given: this is not about finding one.
udp=(--transport udp --policy fixed --rate 30Mbit)
moves "another address, streams" 'at 2s host a address 10.99.0.7\n' --transport tcp "$SRC/one.bin"
holds "another address, streams: the control session goes on" test "$(says 'control session goes on')" -ge 1
moves "two moves, a tree" 'at 2s host a address 10.99.0.7\nat 5s host a address 10.99.0.8\n' "${udp[@]}" "$SRC/tree" "$SRC/one.bin"
same "$SRC/tree" "$DST/far/tree" "two moves, a tree: equal"
is "$(field transport "$LAB/moves.json")" udp "two moves, a tree: all of it over UDP"
holds "two moves, a tree: the control session goes on, after each" test "$(says 'control session goes on')" -ge 2
mistaken "two moves, a tree"
moves "three seconds of nothing, streams" 'at 2s link 0 down\nat 5100ms link 0 up\n' --transport tcp "$SRC/one.bin"
mistaken "three seconds of nothing, streams"
moves "ten seconds of nothing" 'at 2s link 0 down\nat 12s link 0 up\n' "${udp[@]}" "$SRC/one.bin"
holds "ten seconds of nothing: the control session goes on" test "$(says 'control session goes on')" -ge 1
mistaken "ten seconds of nothing"

# What a greeting from a new address meets: this end's address changes while it waits; the session is back before it ends.
moves "another address while one is greeted" 'at 2s link 0 down\nat 3s host a address 10.99.0.7\nat 3200ms link 0 up\n' "${udp[@]}" "$SRC/one.bin"
is "$(field transport "$LAB/moves.json")" udp "another address while one is greeted: all of it over UDP"
moves "a greeting in an outage" 'at 2s link 0 down\nat 4800ms link 0 up\n' "${udp[@]}" "$SRC/one.bin"
is "$(field transport "$LAB/moves.json")" udp "a greeting in an outage: all of it over UDP"

# Last words where one packet of twelve is lost: the sender is gone when they arrive, and the daemon's receipts have both signatures. (That a
# job may not even connect there is not the question.)
random_file "$SRC/last.bin" 2000
cat >"$LAB/last.sh" <<END
LONGHAUL_HOME="$LAB/home-b" "$LONGHAUL" lab on b -b --log "$LAB/last-serve.out" -- "$LONGHAUL" serve --root "$DST/far" --listen 10.99.0.2:7442 --ticket=reusable >/dev/null
for _ in \$(seq 100); do url=\$(grep -m1 -o '^longhaul://[^@]*' "$LAB/last-serve.out") && break; sleep 0.05; done
well=0
for n in 1 2 3 4; do "$LONGHAUL" cp --json --transport tcp "$SRC/last.bin" "\$url@10.99.0.2:7442/\$n" >>"$LAB/last.json" && well=\$((well + 1)); done
for _ in \$(seq 300); do [ "\$(grep -l '^signed sender' "$LAB/home-b/receipts/"*.receipt | wc -l)" = \$well ] && break; sleep 0.1; done
[ \$well -gt 0 ] && [ "\$(grep -l '^signed sender' "$LAB/home-b/receipts/"*.receipt | wc -l)" = \$well ]
END
holds "jobs at 8 % of loss: the daemon has the sender's signature under each that ended well" env LONGHAUL_HOME="$LAB/home-a" timeout 90 "$LONGHAUL" lab run -q --rate 40Mbit --rtt 60ms --loss 8% -- bash "$LAB/last.sh"
finish
