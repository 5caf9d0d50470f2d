#!/usr/bin/env bash
# Bits that flip, wires that break, strangers at the door: caught, named, and nobody else is disturbed.
source "$(dirname "$0")/check.sh"

random_file "$SRC/big.bin" $((96 << 20))
mkdir -p "$DST"
PORT=7440
proxy() { # proxy FAULT...: a faulty wire on host a before the daemon; sets $VIA, the address to use
    start a python3 "$E2E/proxy.py" "$ADDR_A:7990" "$ADDR_B:$PORT" "$@" >"$LAB/proxy" 2>&1 </dev/null
    PROXY=$STARTED_PID
    until_true 10 grep -q ready "$LAB/proxy"
    VIA="${URL%@*}@$ADDR_A:7990/"
}

# --- one bit on the wire, sealed and in clear ---
for mode in sealed clear; do
    mkdir -p "$DST/$mode"
    options=()
    [ $mode = clear ] && options=(--integrity-only)
    serve b "$DST/$mode" "${options[@]}"
    proxy flip-rail=20000000
    cp_run "${options[@]}" "$SRC/big.bin" "$VIA"
    cp_ends 0 "one bit flipped on the wire ($mode): exit code 0"
    holds "the bit was flipped ($mode)" grep -q flipped "$LAB/proxy"
    same "$SRC/big.bin" "$DST/$mode/big.bin" "one bit flipped ($mode): equal"
    resent=$(number resent_bytes)
    holds "one bit flipped ($mode): only that chunk is sent again ($resent bytes)" test "$resent" -gt 0 -a "$resent" -le $((1 << 20))
    stop "$PROXY" KILL
    stop "$SERVE_PID"
done

# --- what a listener on the wire sees: payload only where both ends said so, a ticket's secret nowhere ---
python3 - "$SRC/marked.bin" <<'END'
import os, sys
with open(sys.argv[1], "wb") as f:
    for _ in range(64):
        f.write(os.urandom(60_000) + b"what nobody else shall read")
END
mkdir -p "$DST/marked"
for mode in sealed refused clear; do
    options=() consent=()
    [ $mode != sealed ] && options=(--integrity-only)
    [ $mode = clear ] && consent=(--integrity-only)
    serve b "$DST/marked" "${consent[@]}"
    ticket=${URL#longhaul://}
    ticket=${ticket%@*}
    rm -f "$DST/marked/marked.bin"
    proxy "record=$LAB/wire"
    cp_run "${options[@]}" "$SRC/marked.bin" "$VIA"
    case $mode in
    sealed) cp_ends 0 "a listener, nobody asked for clear: exit code 0" ;;
    refused) cp_ends 14 "a listener, one end asks for clear: refused, exit code 14" ;;
    clear) cp_ends 0 "a listener, both ends want clear: exit code 0" ;;
    esac
    if [ $mode = clear ]; then
        holds "a listener, $mode: reads payload (so this check would see it)" grep -aq "what nobody else shall read" "$LAB/wire"
        is "$(field integrity_only "$OUT") $(grep -c 'in clear' "$ERR" "$OUT" | awk -F: '{ n += $2 } END { print (n > 0) }')" "true 1" "a listener, $mode: and the user is told"
    else
        is "$(grep -ac "what nobody else shall read" "$LAB/wire")" 0 "a listener, $mode: reads none of the payload ($(stat -c %s "$LAB/wire") bytes crossed)"
    fi
    said=$(python3 - "$LAB/wire" "$ticket" <<'END'
import base64, sys
wire, text = open(sys.argv[1], "rb").read(), sys.argv[2]
raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
secret = raw[33:49]
assert len(raw) == 49 and len(wire) > 1000, "a ticket of another make, or nothing crossed"
for piece in [secret[:8], secret[8:], text[-20:-10].encode(), text[-10:].encode(), secret.hex().encode()[:16]]:
    print("seen" if piece in wire else "-", end="")
END
    )
    is "$said" "-----" "a listener, $mode: the ticket's secret is not on the wire, in bytes or in letters"
    stop "$PROXY" KILL
    stop "$SERVE_PID"
done

# --- a bit in the control session: before anything is agreed the job is refused by name; behind it the session is lost, and made again by the
# --- client itself, whole; never a hang, never a wrong file ---
mkdir -p "$DST/control"
SLOWLY=(--rate 200Mbit) # 4 s: the control session says more than what is harmed here, however fast the machine is
for at in 700 2500 2650; do # in the handshake, and in two frames behind it
    serve b "$DST/control"
    proxy flip-control=$at
    cp_run --stall 10 "${SLOWLY[@]}" "$SRC/big.bin" "$VIA"
    holds "one bit flipped in the control session, byte $at: it was" grep -q '^flipped' "$LAB/proxy"
    if [ $at = 700 ]; then
        cp_ends 10 "one bit flipped in the control session, byte $at: refused by name"
        is "$(find "$DST/control" -name big.bin | wc -l)" 0 "one bit flipped in the control session, byte $at: no file stands there"
    else
        cp_ends 0 "one bit flipped in the control session, byte $at: what was lost was made again"
        holds "one bit flipped in the control session, byte $at: the file is whole" cmp "$SRC/big.bin" "$DST/control/big.bin"
        rm -f "$DST/control/big.bin"
    fi
    stop "$PROXY" KILL
    stop "$SERVE_PID"
done

# A record that says that it is longer than it is: what follows it is never heard, over however many connections. The session is lost and made again.
for at in 2500 3500; do
    serve b "$DST/control"
    proxy stretch-control=$at
    rm -f "$DST/control/big.bin"
    cp_run --stall 30 "${SLOWLY[@]}" "$SRC/big.bin" "$VIA"
    holds "a record of the control session made longer, from byte $at on: it was" grep -q '^stretched' "$LAB/proxy"
    cp_ends 0 "a record made longer, from byte $at on: what was lost was made again"
    holds "a record made longer, from byte $at on: the file is whole" cmp "$SRC/big.bin" "$DST/control/big.bin"
    holds "a record made longer, from byte $at on: within 30 s ($TOOK ms)" test $TOOK -lt 30000
    stop "$PROXY" KILL
    stop "$SERVE_PID"
done

# --- a rail that breaks takes nothing with it ---
mkdir -p "$DST/cut"
serve b "$DST/cut"
proxy cut-rail=30000000
before=$(wire)
cp_run --streams 2 "$SRC/big.bin" "$VIA"
crossed=$(($(wire) - before))
cp_ends 0 "one rail of two is cut: exit code 0"
holds "one rail of two is cut: it was" grep -q '^cut' "$LAB/proxy"
holds "one rail of two is cut: what it had in hand goes again, and no more ($((crossed >> 20)) MiB crossed)" test $crossed -le $(((96 + 40) << 20))
same "$SRC/big.bin" "$DST/cut/big.bin" "one rail of two is cut: equal"
stop "$PROXY" KILL
stop "$SERVE_PID"

# --- one bit on the destination's disk ---
mkdir -p "$DST/disk"
serve b "$DST/disk"
cp_run --receipt "$LAB/receipt" "$SRC/big.bin" "$URL"
stop "$SERVE_PID"
python3 - "$DST/disk/big.bin" <<'END'
import os, sys
when = os.stat(sys.argv[1])
with open(sys.argv[1], "r+b") as f:
    f.seek(50_000_000)
    byte = f.read(1)[0]
    f.seek(50_000_000)
    f.write(bytes([byte ^ 1]))
os.utime(sys.argv[1], ns=(when.st_atime_ns, when.st_mtime_ns))
END
on b "$LONGHAUL" verify "$LAB/receipt" "$DST/disk" >"$LAB/verify" 2>&1
is $? 40 "one bit flipped on the disk: verify ends with exit code 40"
holds "and names the file" grep -q big.bin "$LAB/verify"

# --- a folder of the destination becomes a link that leads out, during the job ---
mkdir -p "$DST/swap" "$LAB/outside" "$SRC/swap/sub"
python3 "$E2E/tree.py" many "$SRC/swap/sub" 2000
serve b "$DST/swap"
python3 - "$DST/swap/swap/sub" "$LAB/outside" <<'END' &
import os, sys, time
sub, outside = sys.argv[1:]
end = time.monotonic() + 8
while time.monotonic() < end:
    try:
        os.rename(sub, sub + ".away")
        os.symlink(outside, sub)
        time.sleep(0.001)
        os.unlink(sub)
        os.rename(sub + ".away", sub)
    except OSError:
        pass
    time.sleep(0.001)
END
swapper=$!
STARTED+=("$swapper")
cp_run --stall 10 "$SRC/swap" "$URL"
kill -9 "$swapper" 2>/dev/null
wait "$swapper" 2>/dev/null
is "$(find "$LAB/outside" -mindepth 1 | wc -l)" 0 "a link swapped into the destination: nothing is written outside the root (exit code $STATUS)"
holds "a link swapped in: the job ends" test "$STATUS" != 124 -a "$STATUS" != 137
stop "$SERVE_PID"

# --- strangers at the door while a job runs ---
mkdir -p "$DST/crowd"
serve b "$DST/crowd"
start a "$LONGHAUL" cp --json --rate 200Mbit "$SRC/big.bin" "$URL" >"$LAB/crowd.json" 2>"$LAB/crowd.err" </dev/null
pid=$STARTED_PID
begun "$DST/crowd"
start a python3 "$E2E/strangers.py" "$ADDR_B" $PORT 10000 >"$LAB/strangers" 2>&1 </dev/null
strangers=$STARTED_PID
until_true 20 grep -q holding "$LAB/strangers"
random_file "$SRC/small.bin" 100000
slowest=0
for newcomer in 1 2 3; do
    cp_run "$SRC/small.bin" "${URL}newcomer-$newcomer"
    cp_ends 0 "while 10,000 strangers knock, newcomer $newcomer is let in at the first try"
    [ $TOOK -gt $slowest ] && slowest=$TOOK
done
holds "newcomers are done within 5 s while strangers knock (slowest: $slowest ms)" test $slowest -le 5000
wait "$pid"
STATUS=$? OUT="$LAB/crowd.json" ERR="$LAB/crowd.err"
cp_ends 0 "10,000 connects, garbage and slow-loris beside a running job: exit code 0"
crowd=$(($(number goodput_bps) / 1000000))
holds "the running job kept its rate beside them: $crowd of 200 Mbit/s" test "$crowd" -ge 150
same "$SRC/big.bin" "$DST/crowd/big.bin" "beside the crowd: equal"
until_true 60 grep -q "done" "$LAB/strangers"
holds "the strangers did what they came for" grep -q "done" "$LAB/strangers"
peak=$(awk '/VmHWM/ { print $2 * 1024 }' "/proc/$SERVE_PID/status" 2>/dev/null || echo 0)
holds "the daemon stands, at its peak with $((${peak:-0} >> 20)) MiB" test "${peak:-0}" -gt 0 -a "${peak:-0}" -le $((256 << 20))
rm -f "$DST/crowd/big.bin"
cp_run "$SRC/big.bin" "$URL"
cp_ends 0 "and serves the next job"
stop "$strangers" KILL
stop "$SERVE_PID"
finish
