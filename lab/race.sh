#!/usr/bin/env bash
# The race over distance and loss: one file over 100 ms and 1 % loss, by each mover in turn, drawn while it runs.
#
# For:      `make demo` (its sixth part), or by hand: lab/race.sh.
# In, out:  a file of random bytes -> `longhaul lab run` (two hosts, one emulated link) -> a line per mover that grows while bytes arrive.
# Settings: RACE_LINK (words of `lab run`), RACE_MIB, RACE_SECONDS (after which a mover is given up), LONGHAUL (the binary).
# Invariants: what is drawn is what the far host's kernel counted; a copy counts as done only when the file there is equal; nothing outside
#           its temporary folder is written. Without root, or without TUN devices, it says why there is no race and ends with 0.
# Absent on purpose: figures for the record (make bench-wan).

set -u
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
LONGHAUL="${LONGHAUL:-$(dirname "$HERE")/target/longhaul}"
RACE_LINK="${RACE_LINK:---rate 1Gbit --rtt 100ms --loss 1%}"
RACE_MIB="${RACE_MIB:-128}"
RACE_SECONDS="${RACE_SECONDS:-12}"

# --- outside: the file, the lab ------------------------------------------------------------------
if [ "${1:-}" != inside ]; then
    RACE_DIR="$(mktemp -d "${TMPDIR:-/tmp}/longhaul-race.XXXXXX")"
    trap 'rm -rf "$RACE_DIR"' EXIT
    export LONGHAUL RACE_DIR RACE_MIB RACE_SECONDS
    # Lines that redraw themselves only where somebody looks.
    [ -t 1 ] && export RACE_LIVE=1
    if ! said=$("$LONGHAUL" lab run -q -- true 2>&1); then
        echo "  no race here: $(echo "$said" | head -n 1)"
        exit 0
    fi
    mkdir -p "$RACE_DIR/dst" "$RACE_DIR/home-a" "$RACE_DIR/home-b"
    head -c $((RACE_MIB << 20)) /dev/urandom >"$RACE_DIR/file"
    echo "  one link: longhaul lab run $RACE_LINK; $RACE_MIB MiB; given up after $RACE_SECONDS s; TCP here: $(cat /proc/sys/net/ipv4/tcp_congestion_control)"
    # shellcheck disable=SC2086
    "$LONGHAUL" lab run -q $RACE_LINK -- bash "$HERE/race.sh" inside 2>"$RACE_DIR/lab.err"
    status=$?
    grep "did not get the processor" "$RACE_DIR/lab.err" >/dev/null && echo "  (the emulator shared the cores with both ends and was late at times: on a quiet machine it is faster)"
    exit $status
fi

# --- inside, on host a ----------------------------------------------------------------------------
far() { "$LONGHAUL" lab on b -- "$@"; }
arrived() { far cat /proc/net/dev | awk '/link/ { sub(/.*:/, ""); n += $1 } END { printf "%.0f", n }'; }
draw() { # draw NAME BYTES SECONDS END
    local line
    line=$(awk -v name="$1" -v n="$2" -v s="$3" -v all=$((RACE_MIB << 20)) 'BEGIN {
        share = n / all; if (share > 1) share = 1; bar = sprintf("%*s", int(share * 40), ""); gsub(/ /, "#", bar)
        printf "  %-18s |%-40s| %5.1f s %6.1f MB %9.2f Mbit/s", name, bar, s, n / 1e6, (s > 0 ? n * 8 / s / 1e6 : 0) }')
    if [ -n "$4" ]; then echo "${RACE_LIVE:+$'\r'}$line  $4"; elif [ -n "${RACE_LIVE:-}" ]; then printf '\r%s' "$line"; fi
}
run() { # run NAME CMD...
    local name=$1 from began s pid status word
    shift
    rm -rf "$RACE_DIR/dst/"*
    from=$(arrived)
    began=$(date +%s.%N)
    timeout "$RACE_SECONDS" "$@" </dev/null >"$RACE_DIR/out" 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null; do
        s=$(echo "$(date +%s.%N) $began" | awk '{ print $1 - $2 }')
        draw "$name" $(($(arrived) - from)) "$s" ""
        sleep 0.3
    done
    wait $pid
    status=$?
    s=$(echo "$(date +%s.%N) $began" | awk '{ print $1 - $2 }')
    if [ $status = 0 ] && cmp -s "$RACE_DIR/file" "$RACE_DIR/dst/file"; then
        word="done, equal"
        draw "$name" $((RACE_MIB << 20)) "$s" "$word"
    else
        word="given up"
        [ $status = 124 ] || word="failed: $(tail -n 1 "$RACE_DIR/out" | cut -c1-100)"
        draw "$name" $(($(arrived) - from)) "$s" "$word"
    fi
    [ "$name" != "longhaul" ] || [ "$word" = "done, equal" ]
}

if [ "$(id -u)" = 0 ] && [ -x /usr/sbin/sshd ] && command -v ssh ssh-keygen >/dev/null; then
    ssh-keygen -q -t ed25519 -N '' -f "$RACE_DIR/host"
    ssh-keygen -q -t ed25519 -N '' -f "$RACE_DIR/user"
    cat >"$RACE_DIR/sshd" <<END
Port 2222
HostKey $RACE_DIR/host
AuthorizedKeysFile $RACE_DIR/user.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
END
    # A /run of its own: sshd wants its folder there.
    far_sshd='mount -t tmpfs none /run && mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -f '"$RACE_DIR/sshd"
    "$LONGHAUL" lab on b -b --log "$RACE_DIR/sshd.log" -- unshare -m sh -c "$far_sshd" >/dev/null 2>&1
    SSH="-F /dev/null -i $RACE_DIR/user -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    sleep 1
    # shellcheck disable=SC2086
    command -v scp >/dev/null && run scp scp -q -P 2222 $SSH "$RACE_DIR/file" "root@$LONGHAUL_LAB_B:$RACE_DIR/dst/file"
    command -v rsync >/dev/null && run "rsync over ssh" rsync --inplace -e "ssh -p 2222 $SSH" "$RACE_DIR/file" "root@$LONGHAUL_LAB_B:$RACE_DIR/dst/file"
else
    echo "  no sshd here: scp and rsync are left out"
fi
"$LONGHAUL" lab on b -b --log "$RACE_DIR/serve.log" -- env LONGHAUL_HOME="$RACE_DIR/home-b" "$LONGHAUL" serve --root "$RACE_DIR/dst" \
    --listen "$LONGHAUL_LAB_B:7440" --ticket >/dev/null 2>&1
for _ in $(seq 100); do grep -q '^longhaul://' "$RACE_DIR/serve.log" 2>/dev/null && break; sleep 0.1; done
URL=$(grep -m 1 -o '^longhaul://.*' "$RACE_DIR/serve.log")
# The demo's patience with the others is not for us: we must arrive.
RACE_SECONDS=60 run longhaul env LONGHAUL_HOME="$RACE_DIR/home-a" "$LONGHAUL" cp --transport udp "$RACE_DIR/file" "$URL"
