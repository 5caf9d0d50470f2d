#!/bin/bash
# RDMA devices between two hosts of the guest, soft-RoCE and soft-iWARP: the real binary's jobs, its lowest layer beside perftest, a device that goes in mid-job.
source /vm/hosts.sh
source /vm/rdma.sh
# siw counts locked memory against the limit of root, too.
ulimit -l unlimited
DEPTH=${DEPTH:-8} ROUNDS=${ROUNDS:-5}
LONGHAUL=/root/longhaul-rdma
[ -x "$LONGHAUL" ] || { skip "no binary with RDMA (make build-rdma)"; finish; }
if "$LONGHAUL" host show 2>&1 | grep -q 'RDMA: not in this build'; then
    skip "this binary has no RDMA: the archives were not there when it was built"
    finish
fi
modprobe -n siw 2>/dev/null || { skip "the guest has no RDMA modules"; finish; }
mkdir -p "$LAB/src/tree" "$LAB/dst" "$LAB/back"
for n in $(seq 1000); do printf 'file %s %0*d\n' "$n" $((n % 700)) 7 >"$LAB/src/tree/$n"; done
head -c $((24 << 20)) /dev/urandom >"$LAB/src/tree/big"
head -c $((96 << 20)) /dev/urandom >"$LAB/src/one"

median() { sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
at_least() { awk -v a="$1" -v b="$2" 'BEGIN {exit !(a >= b)}'; }
PORT=7000
# ours [each]: MB/s of messages from memory to memory, and what was registered in $SAID.
ours() {
    PORT=$((PORT + 1))
    start b timeout 120 /root/queue_pairs serve 10.8.0.2:$PORT "$SIZE" "$DEPTH" "$@" >"$LAB/pairs.b" 2>&1
    local server=$STARTED_PID
    until_true 30 grep -q listening "$LAB/pairs.b"
    on a timeout 120 /root/queue_pairs send 10.8.0.2:$PORT "$SIZE" "$DEPTH" "$COUNT" "$@" >"$LAB/pairs.a" 2>&1
    wait "$server"
    SAID=$(cat "$LAB/pairs.a" "$LAB/pairs.b")
    RATE=$(awk '$3 == "megabytes_per_second" {print $4}' "$LAB/pairs.a")
}
# perftest KIND: the same by ib_send_bw (MiB/s there, MB/s here).
perftest() {
    PORT=$((PORT + 1))
    start b timeout 120 ib_send_bw -d "$1_b" -R -F -p $PORT -s "$SIZE" -n "$COUNT" -t "$DEPTH" -r "$DEPTH" >"$LAB/perf.b" 2>&1
    local server=$STARTED_PID
    until_true 30 grep -q 'Waiting for client' "$LAB/perf.b"
    on a timeout 120 ib_send_bw -d "$1_a" -R -F -p $PORT -s "$SIZE" -n "$COUNT" -t "$DEPTH" -r "$DEPTH" 10.8.0.2 >"$LAB/perf.a" 2>&1
    wait "$server"
    RATE=$(awk -v size="$SIZE" '$1 == size {print $4 * 1.048576}' "$LAB/perf.a")
}
beside() { # beside KIND SIZE COUNT: messages from memory to memory, in turn with perftest and with memory registered for each message
    local kind=$1
    SIZE=$2 COUNT=$3
    : >"$LAB/ours"; : >"$LAB/theirs"; : >"$LAB/each"
    for _ in $(seq "$ROUNDS"); do
        ours; echo "$RATE" >>"$LAB/ours"
        holds "$kind, $SIZE bytes: every message whole, in its order, every buf home" grep -q "^messages $COUNT wrong 0 " "$LAB/pairs.b"
        is "$(grep -c '^regions 1 ' <<<"$SAID")" 2 "$kind, $SIZE bytes: each end registered once"
        perftest $kind; echo "$RATE" >>"$LAB/theirs"
        ours each; echo "$RATE" >>"$LAB/each"
        is "$(awk '/^regions/ {print $2}' "$LAB/pairs.a")" "$COUNT" "$kind, $SIZE bytes: without the cache each message is registered"
    done
    OURS=$(median <"$LAB/ours") THEIRS=$(median <"$LAB/theirs") EACH=$(median <"$LAB/each")
    echo "#   $kind, $SIZE bytes, $DEPTH in flight, MB/s: ours $OURS ($(paste -sd' ' "$LAB/ours")), ib_send_bw $THEIRS ($(paste -sd' ' "$LAB/theirs")), registered each $EACH ($(paste -sd' ' "$LAB/each"))"
    holds "$kind, $SIZE bytes: at least 0.9 of ib_send_bw, medians ($OURS and $THEIRS)" at_least "$OURS" "$(awk -v it="$THEIRS" 'BEGIN {print it * 0.9}')"
}
daemon() { # daemon KIND
    start b "$LONGHAUL" serve --root "$LAB/dst" --listen 0.0.0.0:$((PORT += 2)) --rdma-device "$1_b" --ticket >"$LAB/serve.out" 2>"$LAB/serve.err" </dev/null
    SERVE_PID=$STARTED_PID
    until_true 60 grep -q '^longhaul://' "$LAB/serve.out" || { tail -n 5 "$LAB/serve.err"; return 1; }
    URL=$(head -n 1 "$LAB/serve.out")
    URL=${URL/@*:/@10.8.0.2:}
}
copy() { # copy WORDS...: cp by device, its last line in $RECORD
    on a timeout 300 "$LONGHAUL" cp -v --json --transport rdma "$@" >"$LAB/cp.json" 2>"$LAB/cp.err" </dev/null
    STATUS=$?
    RECORD=$(tail -n 1 "$LAB/cp.json")
    [ $STATUS = 0 ] || tail -n 3 "$LAB/cp.json" "$LAB/cp.err" | cut -c 1-600 | sed 's/^/#   /'
}
goes() { # goes KIND HOST WORDS...: that host's device goes six seconds after a job of twenty has begun
    local kind=$1 host=$2
    shift 2
    (sleep 6; ip netns exec $host rdma link delete "${kind}_$host") &
    copy --rate 40Mbit "$@"
    is "$STATUS $(jq -r .transport <<<"$RECORD")" "0 rdma+tcp" "$kind: rdma link delete at $host under load: the job ends well, over TCP"
}
for kind in ${KINDS:-rxe siw}; do
    echo "# $kind"
    rdma_up $kind
    is $? 0 "$kind: a device on each of two hosts"
    holds "$kind: host show lists it, and that it is used" eval "on a '$LONGHAUL' host show 2>&1 | grep -q '^  ${kind}_a (.*: use\$'"

    beside $kind 65536 200
    beside $kind 1048576 40

    # --- jobs of the real binary ---
    rm -rf "$LAB/dst"/* "$LAB/back"/*
    # What perftest, which has no credits, has left in the counters is not ours.
    BEFORE="$(rnr a $kind) $(rnr b $kind)"
    daemon $kind
    is $? 0 "$kind: a daemon that lets queue pairs in"
    copy --rdma-device "${kind}_a" --streams 2 "$LAB/src/tree" "$URL"
    is "$STATUS $(jq -r .transport <<<"$RECORD")" "0 rdma" "$kind: push of 1,001 files over queue pairs"
    holds "$kind: push: equal" diff -r "$LAB/src/tree" "$LAB/dst/tree"
    SEEN=$(grep -o 'rdma: [a-z]*_a port 1.*registered at this end' "$LAB/cp.json" | head -n 1)
    echo "#   $SEEN"
    holds "$kind: the report names device, port, GID and MTU" test -n "$SEEN"
    is "$(sed -E 's/.* on ([0-9]+) workers, .*/\1/' <<<"$SEEN")" "$(sed -E 's/.* ([0-9]+) regions .*/\1/' <<<"$SEEN")" "$kind: each worker's pool was registered once, for 1,001 files"
    copy --streams 2 "${URL}tree" "$LAB/back/"
    is "$STATUS $(jq -r .transport <<<"$RECORD")" "0 rdma" "$kind: pull over queue pairs, any device"
    holds "$kind: pull: equal" diff -r "$LAB/src/tree" "$LAB/back/tree"
    copy --rdma-device none_0 "$LAB/src/tree/1" "$URL"
    is "$STATUS" 14 "$kind: a device that is not there is refused by name"
    is "$(rnr a $kind) $(rnr b $kind)" "$BEFORE" "$kind: no message found no receive"

    # --- the device goes under load: the client's in a push, the daemon's in a pull ---
    goes $kind a "$LAB/src/one" "$URL"
    holds "$kind: rdma link delete at the client's under load: equal" cmp "$LAB/src/one" "$LAB/dst/one"
    rdma_device $kind a
    is $? 0 "$kind: the client's device is there again"
    goes $kind b "${URL}one" "$LAB/back/"
    holds "$kind: rdma link delete at the daemon's under load: equal" cmp "$LAB/src/one" "$LAB/back/one"
    holds "$kind: the daemon lives" kill -0 "$SERVE_PID"
    kill "$SERVE_PID" 2>/dev/null
    wait "$SERVE_PID" 2>/dev/null
    ip netns exec a rdma link delete "${kind}_a"
done
finish
