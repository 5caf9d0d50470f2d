#!/bin/bash
# Two NICs as two rails of one job, beside bonding (NTT's Table I) and N streams of iperf3, all over wires of the same rate.
source /vm/hosts.sh
# Wires so slow that sealing and hashing by an emulated core, on a machine that does something else besides, are faster than both together.
MBIT=${MBIT:-4} MIB=${MIB:-8} SECONDS_EACH=${SECONDS_EACH:-6}
holds "two hosts of the guest's NICs" hosts_up
# --- NTT's Tables II to IV and CERN's figures, by one command, over both NICs: before the wires are made slow ---
start b "$LONGHAUL" bench placement --listen 0.0.0.0:5741 --once >/dev/null 2>"$LAB/listen.err" </dev/null
until_true 60 listening b 5741
on a timeout 500 "$LONGHAUL" bench placement --tables --server 10.9.0.2:5741 --also 10.9.1.2:5741 --heat 5ms --json --html "$LAB/tables.html" >"$LAB/tables.json" 2>"$LAB/err" </dev/null
is $? 0 "bench placement --tables: exit code 0"
[ -s "$LAB/tables.json" ] || head -c 400 "$LAB/err" "$LAB/listen.err" | sed 's/^/#   /'
of() { jq -r "$1" "$LAB/tables.json"; }
is "$(of '[.sheets[] | select(.cells | length == 4)] | length')" 9 "four by four cores, three message sizes over UDP that fit a packet, six over TCP"
# A processor of two cores, both of which take interrupts, has none beside them: pattern A says so.
is "$(of '[.patterns.lines[] | select((.shares | length == 4) != (.why != null)) | .pattern] | unique | length')" 5 "four streams over $(of .patterns.paths) NICs: patterns A to D, and none: shares for each stream, or why not"
holds "and four of them have shares" test "$(of '[.patterns.lines[] | select(.shares | length == 4) | .pattern] | unique | length')" -ge 4
is "$(of '[.figures.figures[] | select((.before | length > 0) and (.after | length > 0)) | .streams] | map(tostring) | join(" ")')" "4 12" "before and after over time, 4 and 12 streams"
[ -z "$VM_SHARE" ] || cp "$LAB/tables.html" "$LAB/tables.json" /share/

holds "token buckets of $MBIT Mbit/s" rate "$MBIT"
mkdir -p "$LAB/src" "$LAB/dst"
head -c $((MIB << 20)) /dev/urandom >"$LAB/src/file"
serve "$LAB/dst" # not by `holds`, which would keep $URL to itself
is $? 0 "a daemon on b"
# ours WORDS ADDRESS [--path ...]: Mbit/s of the file's bytes in $RATE, percent that a0 carried in $SHARE.
ours() {
    local words=$1 address=$2 first
    shift 2
    rm -f "$LAB/dst/file"
    read -ra first <<<"$(sent)"
    on a timeout 240 "$LONGHAUL" cp --json "$@" "$LAB/src/file" "${URL/@0.0.0.0:/@$address:}file" >"$LAB/cp.json" 2>"$LAB/cp.err" </dev/null
    is $? 0 "$words: exit code 0"
    [ -e "$LAB/dst/file" ] || tail -n 3 "$LAB/cp.json" "$LAB/cp.err" | cut -c 1-400 | sed 's/^/#   /'
    holds "$words: the same bytes" cmp "$LAB/src/file" "$LAB/dst/file"
    read -ra last <<<"$(sent)"
    SHARE=$(((last[0] - first[0]) * 100 / (last[0] - first[0] + last[1] - first[1] + 1)))
    RATE=$(tail -n 1 "$LAB/cp.json" | jq '.goodput_bps / 1e5 | round / 10')
    row "$words" "$RATE" $SHARE
}
ROWS=""
row() {
    ROWS+="$1|$2|$3"$'\n'
    echo "#   $1: $2 Mbit/s, $3 % of it over a0"
}
others() { # others WORDS TARGET...: iperf3
    local words=$1 first last
    shift
    read -ra first <<<"$(sent)"
    RATE=$(streams "$SECONDS_EACH" "$@")
    read -ra last <<<"$(sent)"
    row "$words" "$RATE" $(((last[0] - first[0]) * 100 / (last[0] - first[0] + last[1] - first[1] + 1)))
}
at_least() { awk -v a="$1" -v b="$2" 'BEGIN {exit !(a >= b)}'; }

ours "longhaul, one path" 10.9.0.2
ONE=$RATE
# A busy machine is late, never early: the best of three.
TWO=0 HALF=0
for _ in 1 2 3; do
    ours "longhaul, two rails" 10.9.0.2 --path 10.9.0.1=10.9.0.2 --path 10.9.1.1=10.9.1.2
    at_least "$RATE" "$TWO" && TWO=$RATE HALF=$SHARE
    at_least "$TWO" "$(awk -v m="$MBIT" 'BEGIN {print m * 1.6}')" && break
done
holds "two rails: three quarters of both wires and more ($TWO of $((2 * MBIT)) Mbit/s)" at_least "$TWO" $((MBIT * 3 / 2))
holds "two rails: each carries about half ($HALF %)" eval "[ $HALF -ge 38 ] && [ $HALF -le 62 ]"
holds "two rails: well above one ($TWO and $ONE)" at_least "$TWO" "$(awk -v one="$ONE" 'BEGIN {print one * 1.4}')"
others "iperf3, one stream a wire" 10.9.0.2=1 10.9.1.2=1
IPERF=$RATE
for mode in balance-rr 802.3ad balance-xor; do
    hash=""
    [ $mode = balance-rr ] || hash=layer3+4
    if ! bond $mode $hash; then
        skip "$mode: the bond did not come up"
        bond_down
        continue
    fi
    rate "$MBIT"
    others "$mode, iperf3, one stream" 10.7.0.2=1
    BONDED=$RATE
    holds "two rails against one stream over $mode ($TWO and $BONDED)" at_least "$TWO" "$(awk -v b="$BONDED" 'BEGIN {print b * 0.75}')"
    others "$mode, iperf3, four streams" 10.7.0.2=4
    ours "$mode, longhaul" 10.7.0.2
    holds "the bond is taken down" bond_down
    rate "$MBIT"
done
holds "two rails against a stream by hand on each wire ($TWO and $IPERF)" at_least "$TWO" "$(awk -v i="$IPERF" 'BEGIN {print i * 0.75}')"
echo "# way | Mbit/s | % over a0"
sed '/^$/d; s/^/# /' <<<"$ROWS"
[ -z "$VM_SHARE" ] || printf '%s' "$ROWS" >/share/rails.txt
finish
