#!/usr/bin/env bash
# Between two daemons, and who may do what there: one-job tickets, revoked keys, whom a relay reaches, when it ends; roots that hold keys; tickets that do
# not stand on the command line.
source "$(dirname "$0")/check.sh"

random_file "$SRC/file.bin" 300000
random_file "$DST/from/big.bin" $((24 << 20))
mkdir -p "$DST/to"
until_gone() { until_true "$1" eval "! kill -0 $2 2>/dev/null"; }
# relay_hosts [options of the source's daemon]: two daemons; $FROM and $TO are their addresses.
relay_hosts() {
    PORT=7443 serve a "$DST/from" -v "$@"
    FROM=$URL FROM_PID=$SERVE_PID FROM_ERR="$SERVE_OUT.err"
    PORT=7444 serve b "$DST/to" -v
    TO=$URL TO_PID=$SERVE_PID TO_ERR="$SERVE_OUT.err"
}
relay_hosts_end() { stop "$FROM_PID"; stop "$TO_PID"; }

# --- one job ---
once() { # once SIDE ROOT PORT: a daemon with a one-job ticket; sets $ONCE and $ONCE_PID
    local addr=$ADDR_A
    [ "$1" = b ] && addr=$ADDR_B
    start "$1" "$LONGHAUL" serve --root "$2" --listen "$addr:$3" --ticket=once >"$LAB/once-$3" 2>&1 </dev/null
    ONCE_PID=$STARTED_PID
    until_true 10 grep -q '^longhaul://' "$LAB/once-$3"
    ONCE=$(head -n 1 "$LAB/once-$3")
}
once a "$DST/from" 7443
FROM=$ONCE FROM_PID=$ONCE_PID
once b "$DST/to" 7444
TO=$ONCE TO_PID=$ONCE_PID
cp_run "${FROM}big.bin" "${TO}one.bin"
cp_ends 0 "between two daemons with one-job tickets: exit code 0"
same "$DST/from/big.bin" "$DST/to/one.bin" "between two daemons: equal"
cp_run "$SRC/file.bin" "${TO}two.bin"
cp_ends 12 "the destination's one-job ticket is spent by the relay"
cp_run "${FROM}big.bin" "$LAB/fetched.bin"
cp_ends 12 "and so is the source's"
relay_hosts_end

# --- policy of the source's daemon ---
relay_hosts --relay-to none
cp_run "${FROM}big.bin" "${TO}none.bin"
cp_ends 12 "serve --relay-to none: exit code 12"
cp_run --integrity-only "${FROM}big.bin" "${TO}clear.bin"
cp_ends 14 "in clear without the source's consent: exit code 14"
is "$(ls "$DST/to")" one.bin "nothing was written for them"
relay_hosts_end

# --- a relay ends with its client, or with the key that asked for it ---
relay_hosts --rate 16Mbit
start a "$LONGHAUL" cp --json "${FROM}big.bin" "${TO}gone.bin" >"$LAB/gone.json" 2>&1 </dev/null
client=$STARTED_PID
begun "$DST/to"
kill -9 "$client"
holds "the client is killed: the source's daemon ends the relay within 5 s" until_true 5 grep -q 'is gone' "$FROM_ERR" "$TO_ERR"
rm -rf "$DST"/to/.longhaul-*
key_a=$(on a "$LONGHAUL" key show | grep -o 'longhaul-ed25519 [^ ]*' | head -n 1)
for side in a b; do
    start a "$LONGHAUL" cp --json "${FROM}big.bin" "${TO}revoked-$side.bin" >"$LAB/revoked.json" 2>"$LAB/revoked.err" </dev/null
    client=$STARTED_PID
    begun "$DST/to"
    # The source's daemon has the key of host a as its own: it goes on being one, and its clients' key is another.
    # shellcheck disable=SC2086
    on $side "$LONGHAUL" key revoke $key_a >/dev/null
    from=$(date +%s%N)
    until_gone 8 "$client" || kill -9 "$client"
    wait "$client"
    STATUS=$? OUT="$LAB/revoked.json" ERR="$LAB/revoked.err"
    took=$((($(date +%s%N) - from) / 1000000))
    cp_ends 12 "the key is revoked at $side in mid-job: exit code 12"
    holds "revoked at $side: it ended within 5 s ($took ms)" test $took -le 5000
    holds "revoked at $side: the client is told why" grep -q 'is revoked' "$OUT" "$ERR"
    holds "revoked at $side: and so is the other daemon" grep -q 'is revoked' "$([ $side = a ] && echo "$TO_ERR" || echo "$FROM_ERR")"
    rm -f "$LAB/home-$side/revoked"
    rm -rf "$DST"/to/.longhaul-*
done
start a "$LONGHAUL" cp --json --unattended "${FROM}big.bin" "${TO}stays.bin" >"$LAB/stays.json" 2>&1 </dev/null
client=$STARTED_PID
begun "$DST/to"
kill -9 "$client"
holds "--unattended: without its client the relay goes on" until_true 60 test -e "$DST/to/stays.bin"
same "$DST/from/big.bin" "$DST/to/stays.bin" "--unattended: equal"
relay_hosts_end

# --- roots that hold the daemon's own keys ---
refused() { # refused WORDS ROOT...: serve does not start there
    local words=$1
    shift
    timeout 10 env LONGHAUL_HOME="$LAB/home-b" "$LONGHAUL" serve --listen 127.0.0.1:0 --root "$@" >"$LAB/refused" 2>&1 </dev/null
    is $? 2 "$words: exit code 2"
    holds "$words: the folder and the next step are named" grep -q "next: .*LONGHAUL_HOME" "$LAB/refused"
}
refused "a root that holds LONGHAUL_HOME" "$LAB"
refused "LONGHAUL_HOME itself" "$LAB/home-b"
ln -s "$LAB" "$SRC/link"
refused "a link to such a root" "$SRC/link"
mkdir -p "$DST/bound/in"
if [ "$HOST_KIND" != loopback ] && mount --bind "$LAB/home-b" "$DST/bound/in" 2>/dev/null; then
    refused "a root with LONGHAUL_HOME bound below" "$DST/bound"
    umount "$DST/bound/in"
    mount --bind "$LAB" "$DST/bound/in"
    refused "a root that is bound to where it is" "$DST/bound/in"
    umount "$DST/bound/in"
else
    skip "bind mounts are not allowed here"
fi
mkdir -p "$DST/etc"
printf 'root = "%s"\n' "$DST" >"$DST/etc/serve.toml"
timeout 10 "$LONGHAUL" serve --listen 127.0.0.1:0 --config "$DST/etc/serve.toml" >"$LAB/refused" 2>&1 </dev/null
is $? 2 "a root that holds the daemon's config file: exit code 2"

# --- tickets that do not stand on the command line ---
PORT=7445 serve b "$DST/to"
ticket=${URL#longhaul://}
host=${ticket#*@}
ticket=${ticket%%@*}
LONGHAUL_TICKET=$ticket cp_run "$SRC/file.bin" "longhaul://${host}variable.bin"
cp_ends 0 "LONGHAUL_TICKET: exit code 0"
(umask 077 && echo "$URL" >"$LAB/ticket")
cp_run --ticket-file "$LAB/ticket" "$SRC/file.bin" "longhaul://@${host}file.bin"
cp_ends 0 "--ticket-file, as serve printed it: exit code 0"
same "$SRC/file.bin" "$DST/to/file.bin" "--ticket-file: equal"
cp_run "$SRC/file.bin" "longhaul://@${host}none.bin" # from the terminal, which there is none of
is "$STATUS" 2 "an address that asks for its ticket, without a terminal: exit code 2"
python3 - "$LONGHAUL" "$SRC/file.bin" "longhaul://@${host}asked.bin" "$ticket" "$LAB/home-a" ${HOLDER_A:+nsenter -t $HOLDER_A -n -m --} >"$LAB/asked" 2>&1 <<'END'
import os, pty, sys
binary, source, address, ticket, home, *inside = sys.argv[1:]
pid, terminal = pty.fork()
if pid == 0:
    os.environ["LONGHAUL_HOME"] = home
    words = inside + [binary, "cp", source, address]
    os.execvp(words[0], words)
shown = b""
while b"ticket for" not in shown:
    shown += os.read(terminal, 4096)
os.write(terminal, ticket.encode() + b"\n")
try:
    while piece := os.read(terminal, 4096):
        shown += piece
except OSError:
    pass
print(shown.decode(errors="replace"))
print("shown" if ticket.encode() in shown else "unseen", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
END
is "$(tail -n 1 "$LAB/asked")" "unseen 0" "typed at the terminal: unseen, exit code 0"
stop "$SERVE_PID"
finish
