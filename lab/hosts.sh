#!/usr/bin/env bash
# Two hosts on one machine, a and b, for the demo and the end-to-end tests. Source this file.
#
# For:      whoever needs two ends that share nothing but a wire.
# In, out:  hosts_enter "$0" "$@" (first line of a script), hosts_up; then `on a CMD...`, `start a CMD...`; $ADDR_A, $ADDR_B,
#           $HOST_KIND (netns, userns, loopback), $LAB (a private folder). hosts_down runs by itself when the script ends.
# Invariants: only what was started here or runs in the two hosts is ended, by its id; no file outside $LAB is written.
# Absent on purpose: making hosts, which is the binary's (`longhaul lab hosts`); here are only the ways to use them, and what is done without.

set -u
LAB_DIR="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ROOT_DIR="$(dirname "$LAB_DIR")"
# shellcheck source=lab/words.sh
source "$LAB_DIR/words.sh"
LONGHAUL="${LONGHAUL:-$ROOT_DIR/target/longhaul}"
PATH="$PATH:/usr/sbin:/sbin" # where mkfs and sshd are, also for those whose PATH has none of it
HOST_KIND=""
ADDR_A=127.0.0.1
ADDR_B=127.0.0.1
HOLDER_A="" HOLDER_B="" HOSTS_PID=""
LAB=""
STARTED=()

# Without root: run the script again as root of a user namespace of its own, where the kernel permits that.
hosts_enter() {
    if [ "$(id -u)" != 0 ] && [ -z "${LONGHAUL_LAB_INSIDE:-}" ] && [ "${LONGHAUL_LAB:-}" != loopback ] &&
        unshare -Urnm true 2>/dev/null; then
        LONGHAUL_LAB_INSIDE=1 exec unshare -Urnm --kill-child -- bash "$@"
    fi
}

hosts_up() {
    # A short path: sockets of ssh and others have a limit of about 100 bytes.
    LAB="$(mktemp -d "${LAB_PARENT:-${TMPDIR:-/tmp}}/longhaul-lab.XXXXXX")"
    chmod 755 "$LAB"
    trap 'hosts_down' EXIT
    trap 'exit 130' INT TERM
    mkdir -p "$LAB/home-a" "$LAB/home-b"
    HOST_KIND=loopback
    if [ "$(id -u)" = 0 ] && [ "${LONGHAUL_LAB:-}" != loopback ] && [ -x "$LONGHAUL" ] && command -v nsenter >/dev/null; then
        _hosts_namespaces && HOST_KIND="$([ -n "${LONGHAUL_LAB_INSIDE:-}" ] && echo userns || echo netns)"
    fi
    export HOST_KIND ADDR_A ADDR_B LAB LONGHAUL
}

hosts_words() {
    case "$HOST_KIND" in
    netns) echo "two hosts: network namespaces joined by a veth pair ($ADDR_A, $ADDR_B)" ;;
    userns) echo "two hosts: network namespaces inside a user namespace, no root ($ADDR_A, $ADDR_B)" ;;
    *) echo "two ends on loopback: no network namespaces can be made here" ;;
    esac
}

# The hosts are `longhaul lab hosts` (lab/src/pair.rs): it ends, and with it whatever runs in them, when this script ends, however that comes about.
_hosts_namespaces() {
    local words word fd
    exec {fd}< <(exec "$LONGHAUL" lab hosts 2>/dev/null)
    HOSTS_PID=$!
    read -r -t 20 words <&"$fd"
    exec {fd}<&-
    for word in $words; do
        case "$word" in HOLDER_[AB]=* | ADDR_[AB]=*) printf -v "${word%%=*}" %s "${word#*=}" ;; esac
    done
    [ -n "$HOLDER_B" ]
}

_hosts_release() {
    [ -n "$HOSTS_PID" ] && stop "$HOSTS_PID"
    HOLDER_A="" HOLDER_B="" HOSTS_PID=""
}

# _inside a|b: sets INSIDE to the words that put a command on that host.
_inside() {
    local holder=$HOLDER_A
    [ "$1" = b ] && holder=$HOLDER_B
    INSIDE=(env "LONGHAUL_HOME=$LAB/home-$1")
    [ -n "$holder" ] && INSIDE=(nsenter -t "$holder" -n -m -- "${INSIDE[@]}")
    return 0
}

# on a|b CMD...: runs there, waits, hands back its status.
on() {
    local INSIDE
    _inside "$1"
    shift
    "${INSIDE[@]}" "$@"
}

# start a|b CMD...: runs there in the background; its process id is $STARTED_PID (the command itself: no shell between).
start() {
    local INSIDE
    _inside "$1"
    shift
    "${INSIDE[@]}" "$@" &
    STARTED_PID=$!
    STARTED+=("$STARTED_PID")
}

# stop PID [SIGNAL]: ends one process that `start` started, and waits for it.
stop() {
    kill "-${2:-TERM}" "$1" 2>/dev/null
    for _ in $(seq 100); do
        kill -0 "$1" 2>/dev/null || break
        sleep 0.05
    done
    kill -9 "$1" 2>/dev/null
    wait "$1" 2>/dev/null
    return 0
}

# field NAME FILE: that field of the last JSON line, first occurrence, without quotes.
field() {
    tail -n 1 "$2" | grep -o "\"$1\":\(\"[^\"]*\"\|[^,}]*\)" | head -n 1 | sed 's/^[^:]*://; s/^"//; s/"$//'
}

listening() { # listening a|b PORT
    on "$1" cat /proc/self/net/tcp /proc/self/net/tcp6 2>/dev/null | grep -qi ":$(printf %04X "$2") [0-9A-F]*:0000 0A"
}

# serve b ROOT [options]: a daemon with a ticket, on that host's address or on $LISTEN; sets $SERVE_PID and $URL (ends in /).
SERVE_COUNT=0
serve() {
    local side=$1 root=$2 addr=$ADDR_A
    shift 2
    [ "$side" = b ] && addr=$ADDR_B
    SERVE_COUNT=$((SERVE_COUNT + 1))
    SERVE_OUT="$LAB/serve-$SERVE_COUNT"
    start "$side" "$LONGHAUL" serve --root "$root" --listen "${LISTEN:-$addr}:${PORT:-7440}" --ticket "$@" >"$SERVE_OUT.out" 2>"$SERVE_OUT.err" </dev/null
    SERVE_PID=$STARTED_PID
    if ! until_true 10 grep -q '^longhaul://' "$SERVE_OUT.out"; then
        echo "serve did not print its address: $(tail -n 3 "$SERVE_OUT.err")" >&2
        return 1
    fi
    URL="$(head -n 1 "$SERVE_OUT.out")"
}

# b3 FILE: its BLAKE3 digest by a program of another language that shares nothing with longhaul (b3.c), compiled and checked on first use.
b3() {
    [ -x "$LAB/b3" ] || { cc -O2 -o "$LAB/b3" "$LAB_DIR/e2e/b3.c" && "$LAB/b3" --test; } || { echo "no judge of digests: $LAB_DIR/e2e/b3.c"; return 1; }
    "$LAB/b3" "$1"
}

# sshd_up SIDE: a private sshd with throw-away keys; sets $SSH (the words of the client) and $SSH_PORT; fails where it cannot be.
sshd_up() {
    local sshd=/usr/sbin/sshd key="$LAB/ssh" addr=$ADDR_B
    [ "$1" = a ] && addr=$ADDR_A
    SSH_PORT=2222 SSHD_WHY=""
    [ -x $sshd ] || { SSHD_WHY="no sshd is installed"; return 1; }
    [ "$HOST_KIND" = netns ] || { SSHD_WHY="sshd needs real root and a host of its own ($HOST_KIND here)"; return 1; }
    mkdir -p "$key"
    [ -e "$key/user" ] || {
        ssh-keygen -q -t ed25519 -N '' -f "$key/host"
        ssh-keygen -q -t ed25519 -N '' -f "$key/user"
        cp "$key/user.pub" "$key/authorized"
        echo "[$addr]:$SSH_PORT $(cut -d' ' -f1,2 "$key/host.pub")" >"$key/known"
        local sftp
        sftp="$(ls /usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server /usr/lib/ssh/sftp-server 2>/dev/null | head -n 1)"
        cat >"$key/config" <<END
Port $SSH_PORT
HostKey $key/host
AuthorizedKeysFile $key/authorized
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
Subsystem sftp ${sftp:-internal-sftp}
SetEnv LONGHAUL_HOME=$LAB/home-$1
END
    }
    on "$1" mkdir -p /run/sshd
    start "$1" $sshd -D -e -f "$key/config" 2>"$LAB/sshd.err" </dev/null
    SSHD_PID=$STARTED_PID
    SSH_OPTIONS=(-F /dev/null -i "$key/user" -o IdentitiesOnly=yes -o BatchMode=yes -o "UserKnownHostsFile=$key/known" -o LogLevel=ERROR)
    SSH="ssh -p $SSH_PORT ${SSH_OPTIONS[*]}"
    until_true 10 listening "$1" $SSH_PORT || { SSHD_WHY="sshd did not start: $(tail -n 1 "$LAB/sshd.err")"; return 1; }
}

hosts_down() {
    local status=$? pid mount
    trap - EXIT INT TERM
    for pid in "${STARTED[@]}"; do kill -9 "$pid" 2>/dev/null; done
    [ ${#STARTED[@]} -gt 0 ] && wait "${STARTED[@]}" 2>/dev/null
    _hosts_release
    if [ -n "$LAB" ] && [ -d "$LAB" ]; then
        for mount in $(awk -v lab="$LAB/" 'index($2, lab) == 1 {print $2}' /proc/self/mounts | tac); do umount -l "$mount"; done
        chmod -R u+rwX "$LAB" 2>/dev/null
        rm -rf "$LAB"
    fi
    exit $status
}

# Run by hand: shows which hosts this machine gives.
if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    hosts_enter "$0" "$@"
    hosts_up
    hosts_words
    on a sh -c 'ip -br addr' 2>/dev/null
    on b sh -c 'ip -br addr' 2>/dev/null
    sshd_up b && on a $SSH "root@$ADDR_B" echo "ssh from a to b works" || echo "no ssh: ${SSHD_WHY:-the login failed}"
fi
