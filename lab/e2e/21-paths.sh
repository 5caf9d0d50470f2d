#!/usr/bin/env bash
# One job over several paths: four links of 1 : 1 : 2 : 4 between the two hosts, beside the one of the session. What each brings, a link that goes
# and comes in mid-file, one that becomes slow, one that leads nowhere.
source "$(dirname "$0")/check.sh"
[ -n "$HOLDER_A" ] || { skip "paths: they need two network namespaces"; finish; }

UNIT=${UNIT:-60} # Mbit/s of the slowest link; UNIT=25 TIMES=50 UP=2.2 is the long run
WEIGHTS=(1 1 2 4)
PATHS=()
for i in 0 1 2 3; do
    ip link add "lp$i" netns "$HOLDER_A" type veth peer name "lp$i" netns "$HOLDER_B"
    on a ip addr add "10.99.2$i.1/24" dev "lp$i"
    on b ip addr add "10.99.2$i.2/24" dev "lp$i"
    for side in a b; do
        on $side ip link set "lp$i" up
        if ! on $side tc qdisc replace dev "lp$i" root tbf rate "$((UNIT * WEIGHTS[i]))mbit" burst 128kb latency 20ms; then
            skip "paths: no token bucket here"
            finish
        fi
    done
    PATHS+=(--path "10.99.2$i.1=10.99.2$i.2")
done
# It listens on all addresses; the client is given that of the session.
LISTEN=0.0.0.0 serve b "$DST"
URL="${URL/@0.0.0.0:/@$ADDR_B:}"
URL_ALL=$URL
random_file "$SRC/large" $((UNIT * 3000000))
# shares: each path's share of what all brought, in percent of its weight's; of the last report
shares() { python3 - "$OUT" <<'P'
import json, sys
rails = json.loads(open(sys.argv[1]).readlines()[-1])["rails"]
total, weights = sum(rail["bytes"] for rail in rails), [1, 1, 2, 4]
print(*(round(100 * rail["bytes"] / total * sum(weights) / weight) for rail, weight in zip(rails, weights)))
P
}
within() { # within LOW HIGH NUMBERS...
    local low=$1 high=$2
    shift 2
    for each in "$@"; do [ "$each" -ge "$low" ] && [ "$each" -le "$high" ] || return 1; done
}
percent_of_links() { python3 -c 'import json, sys
print(round(json.loads(open(sys.argv[1]).readlines()[-1])["wire_bps"] / float(sys.argv[2]) / 8e6 * 100))' "$OUT" "$UNIT"; }

# A busy machine makes links late, never faster: three tries.
for try in 1 2 3; do
    rm -f "$DST/push"
    cp_run "${PATHS[@]}" "$SRC/large" "$URL"push
    echo "# push: shares in percent of the weights: $(shares); $(percent_of_links) % of all links"
    within 75 130 $(shares) && within 75 101 "$(percent_of_links)" && break
    grep -o '"text":"path[^"]*' "$OUT" | sed 's/^/#   /'
done
cp_ends 0 "four paths, push: exit code 0"
holds "four paths, push: the same bytes" cmp "$SRC/large" "$DST/push"
holds "four paths, push: each carries as its weight is ($(shares) %)" within 75 130 $(shares)
holds "four paths, push: the sum of the links is used ($(percent_of_links) %)" within 75 101 "$(percent_of_links)"

for try in 1 2 3; do
    rm -f "$LAB/pulled"
    cp_run "${PATHS[@]}" "$URL"push "$LAB/pulled"
    echo "# pull: shares in percent of the weights: $(shares); $(percent_of_links) % of all links"
    within 70 101 "$(percent_of_links)" && break
done
cp_ends 0 "four paths, pull: exit code 0"
holds "four paths, pull: the same bytes" cmp "$SRC/large" "$LAB/pulled"
holds "four paths, pull: the sum of the links is used ($(percent_of_links) %)" within 70 101 "$(percent_of_links)"
rm -f "$LAB/pulled" "$DST/push"

# A bound of three quarters of them: split evenly, the three narrower links would leave a third of it unused.
BOUND=$((UNIT * 6))
capped() { # capped WORDS LEAST ARGUMENTS...: share of the bound, in percent; three tries, since a busy machine is late and never early
    local words=$1 least=$2
    shift 2
    for try in 1 2 3; do
        rm -f "$DST/capped"
        cp_run "${PATHS[@]}" --rate "${BOUND}Mbit" "$@" "$SRC/large" "$URL"capped
        share=$(python3 -c 'import sys; print(round(float(sys.argv[1]) / float(sys.argv[2]) / 1e4, 1))' "$(number goodput_bps)" "$BOUND")
        echo "# $words: $share % of the bound; shares in percent of the weights: $(shares)"
        [ "$(printf '%.0f' "$share")" -ge "$least" ] && break
    done
    holds "$words: the same bytes" cmp "$SRC/large" "$DST/capped"
    holds "$words: reached ($share %), and not passed" python3 -c 'import sys; sys.exit(not float(sys.argv[2]) <= float(sys.argv[1]) <= 100)' "$share" "$least"
}
capped "--rate over unlike paths" 85
capped "--rate over unlike paths, UDP" 70 --transport udp
rm -f "$DST/capped"

# The widest link goes and comes, again and again.
TIMES=${TIMES:-3} UP=${UP:-2.4} DOWN=${DOWN:-0.7}
flap() {
    sleep 1
    for _ in $(seq "$TIMES"); do
        on a ip link set lp3 down
        sleep "$DOWN"
        on a ip link set lp3 up
        date +%s%N >>"$LAB/ups"
        sleep "$UP"
    done
}
watch_link() { # what lp3 has sent, ten times a second
    while sleep 0.1; do awk -v now="$(date +%s%N)" '/lp3:/ { sub(/.*:/, ""); print now, $9 }' "/proc/$HOLDER_A/net/dev"; done >"$LAB/sent"
}
# recovered: the median and the longest time, ms, from each `up` until the link carried 80 % of its rate for 300 ms; -1: it never did
recovered() { python3 - "$LAB/ups" "$LAB/sent" "$((UNIT * 4))" <<'P'
import statistics, sys
ups = [int(line) for line in open(sys.argv[1])]
sent = [tuple(map(int, line.split())) for line in open(sys.argv[2]) if len(line.split()) == 2]
wanted, took = float(sys.argv[3]) * 1e6 / 8 * 0.8, []
for number, up in enumerate(ups):
    end = ups[number + 1] if number + 1 < len(ups) else sent[-1][0]
    spans = [(a, b) for a, b in zip(sent, sent[3:]) if a[0] >= up and b[0] <= end]
    full = [a[0] for a, b in spans if (b[1] - a[1]) / ((b[0] - a[0]) / 1e9) >= wanted]
    if full:
        took.append((full[0] - up) // 1000000)
    elif end - up > 2e9:
        took.append(-1)
print(int(statistics.median(took)) if took else -1, -1 if -1 in took or not took else max(took), len(took))
P
}
random_file "$SRC/flap" "$(python3 -c "print(int($UNIT * 1e6 * (1.5 + $TIMES * ($UP + $DOWN * 0.5))))")"
flap &
FLAP=$!
watch_link &
WATCH=$!
CP_LIMIT=600 cp_run "${PATHS[@]}" "$SRC/flap" "$URL"flap
kill $WATCH
wait $FLAP
on a ip link set lp3 up
cp_ends 0 "a link that goes and comes $TIMES times: exit code 0"
holds "a link that goes and comes: the same bytes" cmp "$SRC/flap" "$DST/flap"
holds "a link that goes and comes: it is said which" grep -q "path 10.99.23.1=10.99.23.2 .*over the others" "$OUT"
read -r median longest count <<<"$(recovered)"
echo "# flapping: $(number resent_bytes) bytes sent again; back at its rate after $median ms (median of $count, longest $longest)"
holds "a link that goes and comes: back at its rate within seconds ($median ms)" within 0 2000 "$median"
rm -f "$DST/flap" "$SRC/flap"

# All four go at once, longer than any try to connect takes: an outage, not an error. The session's own link stays.
outage() {
    sleep 1
    for i in 0 1 2 3; do on a ip link set "lp$i" down; done
    sleep 4
    for i in 0 1 2 3; do on a ip link set "lp$i" up; done
}
outage &
OUTAGE=$!
cp_run "${PATHS[@]}" "$SRC/large" "$URL"outage
wait $OUTAGE
cp_ends 0 "all paths away for four seconds: exit code 0"
holds "all paths away for four seconds: the same bytes" cmp "$SRC/large" "$DST/outage"
echo "# outage: $TOOK ms, $(number resent_bytes) bytes sent again"
rm -f "$DST/outage"

# The widest becomes forty times slower.
slow() {
    sleep 2
    on a tc qdisc change dev lp3 root tbf rate "$((UNIT / 10))mbit" burst 128kb latency 20ms
}
slow &
SLOW=$!
cp_run "${PATHS[@]}" "$SRC/large" "$URL"slow
wait $SLOW
cp_ends 0 "a link that becomes slow: exit code 0"
holds "a link that becomes slow: the same bytes" cmp "$SRC/large" "$DST/slow"
echo "# slow: $TOOK ms; $(grep -o "path [^\"]* brings[^\"]*" "$OUT" | head -n 1)"
holds "a link that becomes slow: it is named" grep -q "path 10.99.23.1=10.99.23.2 brings" "$OUT"
# All of it over the other three takes 6 s; had its share waited for the slow one, 40.
holds "a link that becomes slow: the others bring what it does not ($TOOK ms)" within 0 25000 "$TOOK"
rm -f "$DST/slow"

# Shares beside weights: the cards say 1 : 1 : 2 : 8 (a /sys of our own, seen by these hosts alone), the links carry 1 : 1 : 2 : 4.
cards() { # cards a|b NAME=SPEED...: what that host's cards say
    local side=$1 card
    shift
    on "$side" mount -t tmpfs none /sys/class/net || return 1
    for card in "$@"; do
        on "$side" sh -c "mkdir -p '/sys/class/net/${card%=*}' && echo '${card#*=}' >'/sys/class/net/${card%=*}/speed' && echo 1500 >'/sys/class/net/${card%=*}/mtu'"
    done
}
rails() { python3 -c 'import json, sys
print(*("%s/%s" % (rail["weight"] and round(rail["weight"] * 100), rail["off_weight"]) for rail in json.loads(open(sys.argv[1]).readlines()[-1])["rails"]))' "$OUT"; }
for side in a b; do on $side tc qdisc replace dev lp3 root tbf rate "$((UNIT * 4))mbit" burst 128kb latency 20ms; done

# The end of a job over two links of 10 : 1: one waits for the other no longer than it takes to bring what that owes. Before, the ten times slower
# one had seven chunks left when the other was done: 1.5 s. What is above the links' sum is in chunk times of the wide one; three tries.
for side in a b; do on $side tc qdisc replace dev lp0 root tbf rate "$((UNIT * 4 / 10))mbit" burst 32kb latency 20ms; done
random_file "$SRC/tail" $((UNIT * 1500000))
mkdir -p "$SRC/tails"
split -b 333000 "$SRC/tail" "$SRC/tails/f"
above() { # chunk times of the wide link that the job took beyond what both carry in sum, headers (4 %) left out
    python3 -c 'import json, sys
done, wide = json.loads(open(sys.argv[1]).readlines()[-1]), float(sys.argv[2]) * 4e6 / 8
print(round((done["seconds"] - done["bytes"] / (wide * 1.1 * 0.96)) / ((1 << 20) / wide), 1))' "$OUT" "$UNIT"; }
tail_of() { # tail_of WORDS SRC DST MADE
    for try in 1 2 3; do
        rm -rf "$4"
        cp_run --path 10.99.20.1=10.99.20.2 --path 10.99.23.1=10.99.23.2 "$2" "$3"
        above=$(above 2>/dev/null || echo 99)
        echo "# tail, $1: $above chunk times of the wide link above the sum of both; $(number resent_bytes) bytes sent again"
        within 0 12 "$(printf '%.0f' "${above#-}")" && break
    done
    cp_ends 0 "the end over 10 : 1, $1: exit code 0"
    holds "the end over 10 : 1, $1: nobody waits for the slow one ($above chunk times, session and all)" within 0 12 "$(printf '%.0f' "${above#-}")"
    holds "the end over 10 : 1, $1: no more than eight chunks go again" within 0 $((8 << 20)) "$(number resent_bytes)"
}
tail_of "one file, push" "$SRC/tail" "$URL"tail "$DST/tail"
holds "the end over 10 : 1: the same bytes" cmp "$SRC/tail" "$DST/tail"
tail_of "one file, pull" "${URL}tail" "$LAB/tail" "$LAB/tail"
holds "the end over 10 : 1, pull: the same bytes" cmp "$SRC/tail" "$LAB/tail"
tail_of "many files, push" "$SRC/tails" "$URL"tails "$DST/tails"
holds "the end over 10 : 1, many files: the same bytes" diff -r "$SRC/tails" "$DST/tails"
rm -rf "$DST/tail" "$DST/tails" "$LAB/tail"
for side in a b; do on $side tc qdisc replace dev lp0 root tbf rate "${UNIT}mbit" burst 128kb latency 20ms; done
random_file "$SRC/long" $((UNIT * 8000000))
if cards a lh0=1000 lp0=1000 lp1=1000 lp2=2000 lp3=8000 && cards b lh0=1000 lp0=1000 lp1=1000 lp2=2000 lp3=40000; then
    cp_run "${PATHS[@]}" "$SRC/long" "$URL"long
    cp_ends 0 "shares: exit code 0"
    is "$(rails | sed 's/False/-/g; s/True/-/g')" "8/- 8/- 17/- 67/-" "shares: each path's weight is what the slower of its two cards says"
    holds "shares: a card that says twice what its link carries is off its weight" grep -q '"name":"10.99.23.1=10.99.23.2"[^}]*"off_weight":true' "$OUT"
    is "$(grep -c 'other shares than their weights' "$OUT")" 1 "shares: it is told once, in one line"
    holds "shares: the line says share and weight" grep -q '10.99.23.1=10.99.23.2 [0-9]* % (weight 67 %)' "$OUT"
    rm -f "$DST/long"
    # A name that leads to the slowest of five networks: what the path brings is what the widest link carries.
    by_slow() { on a awk '$1 == "lh0:" { print $10 }' /proc/net/dev; }
    before=$(by_slow)
    cp_run "$SRC/large" "$URL"wrong
    cp_ends 0 "a slow card although a faster one of each end is in one network: exit code 0"
    holds "a slow card: the faster path is used, with the reason" grep -q 'data goes by lp3 (10.99.23.1) to lp3 (10.99.23.2) at 8000 Mbit/s, not by lh0' "$OUT"
    holds "a slow card: no payload by it ($(($(by_slow) - before)) bytes of the session)" test $(($(by_slow) - before)) -lt 2000000
    holds "a slow card: the same bytes" cmp "$SRC/large" "$DST/wrong"
    cp_run --transport udp "$SRC/large" "$URL"wrong-udp
    is "$(field transport "$OUT") $(grep -c 'data goes by lp3' "$OUT")" "udp 1" "a slow card, over UDP: the faster path is used"
    cp_run "${URL}wrong" "$DST/pulled"
    is "$STATUS $(grep -c 'data goes by lp3' "$OUT")" "0 1" "a slow card, pulled: the faster path is used"
    cp_run --path "$ADDR_B" "$SRC/large" "$URL"said
    is "$STATUS $(grep -c 'data goes by' "$OUT")" "0 0" "a slow card that the user insists on: it is used, without a word"
    URL_FAST="${URL/@$ADDR_B:/@10.99.23.2:}"
    cp_run "$SRC/large" "$URL_FAST"right
    is "$(grep -c 'data goes by' "$OUT")" 0 "the fastest card: no word"
    # A daemon that listens at one address alone.
    PORT=7441 serve b "$DST"
    cp_run "$SRC/large" "$URL"deaf
    is "$STATUS $(grep -c 'does not answer at 10.99.23.2' "$OUT")" "0 1" "a faster path on which the peer does not answer: told, and the named one is used"
    holds "a faster path without an answer: the same bytes" cmp "$SRC/large" "$DST/deaf"
    stop "$SERVE_PID"
    URL=$URL_ALL
    rm -f "$DST/wrong" "$DST/wrong-udp" "$DST/pulled" "$DST/said" "$DST/right" "$DST/deaf"
    for side in a b; do on $side umount /sys/class/net; done
else
    skip "shares: no /sys of our own here"
fi
cp_run --path 10.99.20.1=10.99.20.2@1 --path 10.99.23.1=10.99.23.2 "$SRC/large" "$URL"weighed
cp_ends 2 "a weight for one path and none for the other: refused"

random_file "$SRC/small" 20000000
# IPv4 beside IPv6, on links of their own.
if on a ip -6 addr add fd99:21::1/64 dev lp1 nodad && on b ip -6 addr add fd99:21::2/64 dev lp1 nodad; then
    LISTEN='[::]' PORT=7442 serve b "$DST"
    URL_SIX="${URL/@\[::\]:/@$ADDR_B:}"
    for transport in tcp udp; do
        cp_run --transport $transport --path 10.99.20.1=10.99.20.2 --path fd99:21::1=fd99:21::2 "$SRC/small" "$URL_SIX"six-$transport
        is "$STATUS $(field transport "$OUT")" "0 $transport" "IPv4 beside IPv6 over $transport: exit code 0"
        holds "IPv4 beside IPv6 over $transport: the same bytes" cmp "$SRC/small" "$DST/six-$transport"
        holds "IPv4 beside IPv6 over $transport: both carry" python3 -c 'import json, sys
rails = json.loads(open(sys.argv[1]).readlines()[-1])["rails"]
sys.exit(not (len(rails) == 2 and min(rail["bytes"] for rail in rails) > 2000000))' "$OUT"
    done
    stop "$SERVE_PID"
    URL=$URL_ALL
else
    skip "IPv4 beside IPv6: no IPv6 here"
fi
cp_run --path 10.99.20.2 --path 10.99.77.2 "$SRC/small" "$URL"away
cp_ends 0 "a path that leads nowhere: exit code 0"
holds "a path that leads nowhere: the same bytes" cmp "$SRC/small" "$DST/away"
holds "a path that leads nowhere: it is named" grep -q "path 10.99.77.2 cannot be connected" "$OUT"
cp_run --path eth7 "$SRC/small" "$URL"never
cp_ends 2 "a path that is no address: refused"
holds "a path that is no address: with the cause" grep -q "'eth7' is no IP address" "$ERR"
finish
