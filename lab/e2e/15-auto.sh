#!/usr/bin/env bash
# cp --transport auto: chosen by a look at the path, changed while running when wrong; and datagram rails that go on after their return path died.
source "$(dirname "$0")/check.sh"

random_file "$SRC/one.bin" $((96 << 20))
random_file "$SRC/small.bin" 100000
mkdir -p "$DST/far"
needs_lab
cat >"$LAB/auto.sh" <<END
set -e
$(far_daemon auto 7441)
case "\$1" in
small) "$LONGHAUL" cp --json --transport auto "$SRC/small.bin" "\$url@10.99.0.2:7441/" >"$LAB/auto.json" ;;
pull)
    cp "$SRC/one.bin" "$DST/far/one.bin"
    "$LONGHAUL" cp --json --transport auto "\$url@10.99.0.2:7441/one.bin" "$DST/back.bin" >"$LAB/auto.json" ;;
rebind)
    "$LONGHAUL" cp --json -v --transport udp "$SRC/one.bin" "\$url@10.99.0.2:7441/" >"$LAB/auto.json" &
    job=\$!
    for _ in \$(seq 600); do find "$DST/far" -name '.longhaul-*' | grep -q . && break; sleep 0.05; done
    sleep 0.5
    # The acceptor's way back to that port is gone, and what comes from it too: as behind a NAT that forgot it.
    port=\$("$LONGHAUL" lab on b -- ss -Hnu state established | grep -o '10.99.0.1:[0-9]*' | head -n 1 | cut -d: -f2)
    "$LONGHAUL" lab on b -- ip rule add ipproto udp dport "\$port" blackhole
    wait \$job ;;
*) "$LONGHAUL" cp --json --transport auto "$SRC/one.bin" "\$url@10.99.0.2:7441/" >"$LAB/auto.json" ;;
esac
END
auto() { # auto WORDS WHAT OPTIONS...
    local words=$1 what=$2
    shift 2
    rm -f "$DST/far/"* "$DST/back.bin" "$LAB/auto-serve.out"
    LONGHAUL_HOME="$LAB/home-a" lab run -q "$@" -- bash "$LAB/auto.sh" "$what" >"$LAB/auto.out" 2>&1
    is $? 0 "$words: it ends well ($(field goodput_bps "$LAB/auto.json") bit/s)"
}
says() { grep '"event":"note"' "$LAB/auto.json" | grep -c "$1"; }

auto "40 ms" push --rate 300Mbit --rtt 40ms
holds "40 ms: the push is equal" cmp "$SRC/one.bin" "$DST/far/one.bin"
is "$(says 'auto: UDP.*expected .*bit/s.*gain')" 1 "40 ms: UDP is chosen, with rate and gain, in one line"
holds "40 ms: the report has the forecast and its error" grep -q '"forecast":{"choice":"udp".*"error_percent":-\?[0-9]' "$LAB/auto.json"
auto "40 ms, pull" pull --rate 300Mbit --rtt 40ms
holds "40 ms: the pull is equal" cmp "$SRC/one.bin" "$DST/back.bin"
is "$(says 'auto: UDP.*gain')" 1 "40 ms, pull: UDP is chosen"
auto "0.2 ms" push --rtt 0.2ms
is "$(field transport "$LAB/auto.json") $(says 'auto: TCP')" "tcp 1" "0.2 ms: TCP is chosen"
auto "a small job" small --rate 300Mbit --rtt 40ms
# Greeting and train went while the plan was made, so a look costs a small job nothing; it is over before TCP's windows have grown.
holds "a small job: equal" cmp "$SRC/small.bin" "$DST/far/small.bin"
is "$(field transport "$LAB/auto.json") $(says 'auto: UDP for 100')" "udp 1" "a small job, far off: over UDP"
printf 'at 1500ms link 0 loss=1%% rtt=30ms\n' >"$LAB/worse.txt"
auto "loss and distance appear on a TCP job" push --rate 150Mbit --rtt 0.5ms --script "$LAB/worse.txt"
holds "loss appears: equal" cmp "$SRC/one.bin" "$DST/far/one.bin"
auto "the return path of a rail dies" rebind --rate 300Mbit --rtt 20ms
holds "the return path dies: equal" cmp "$SRC/one.bin" "$DST/far/one.bin"
is "$(field transport "$LAB/auto.json")" udp "the return path dies: all of it over UDP"
holds "the return path dies: the rail goes on from another address" test "$(says 'goes on from another address')" -ge 1
finish
