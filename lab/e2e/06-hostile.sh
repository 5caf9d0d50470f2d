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

# --- a bit in the control session: refused by name, never a hang, never a wrong file ---
mkdir -p "$DST/control"
serve b "$DST/control"
proxy flip-control=700
cp_run --stall 10 "$SRC/big.bin" "$VIA"
holds "one bit flipped in the control session: ends (exit code $STATUS)" test "$STATUS" != 124 -a "$STATUS" != 137
holds "and no wrong file stands there" sh -c "[ ! -e '$DST/control/big.bin' ] || cmp '$SRC/big.bin' '$DST/control/big.bin'"
stop "$PROXY" KILL
stop "$SERVE_PID"

# --- a rail that breaks takes nothing with it ---
mkdir -p "$DST/cut"
serve b "$DST/cut"
proxy cut-rail=30000000
cp_run --streams 2 "$SRC/big.bin" "$VIA"
cp_ends 0 "one rail of two is cut: exit code 0"
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
tries=0
until [ $tries -ge 10 ]; do
    tries=$((tries + 1))
    cp_run "$SRC/small.bin" "$URL"
    [ "$STATUS" = 0 ] && break
done
cp_ends 0 "while 10,000 strangers knock, a newcomer is let in (tries: $tries)"
wait "$pid"
STATUS=$? OUT="$LAB/crowd.json" ERR="$LAB/crowd.err"
cp_ends 0 "10,000 connects, garbage and slow-loris beside a running job: exit code 0"
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
