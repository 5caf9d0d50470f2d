# shellcheck shell=bash
# An arm64 binary by qemu beside the native one: a copy on one host, jobs between the two, a job that one begins and the other ends.
#
# In, out:    pairs ARM64 NATIVE FOLDER, inside of lab/arm64/enter.py; lab/words.sh is sourced first -> ok and not ok lines. All files are below FOLDER.
# Invariants: trees are compared by lab/e2e/tree.py, which knows nothing of longhaul. Daemons end with the shell that called.
# Absent on purpose: speed; emulated code says nothing of it.

TREE="$(dirname "${BASH_SOURCE[0]}")/../e2e/tree.py"
DAEMONS=()

# of KIND ARGUMENTS...: the program for that architecture, with keys and receipts of its own.
of() { LONGHAUL_HOME="$PLACE/home-$1" timeout --kill-after=5 120 "$(program "$1")" "${@:2}" </dev/null; }
program() { if [ "$1" = arm64 ]; then echo "$ARM64"; else echo "$NATIVE"; fi; }
# serve KIND ROOT NAME [OPTIONS]: a daemon; $URL leads to it, $DAEMON ends it.
serve() {
    local kind=$1 root=$2 log="$PLACE/$3"
    shift 3
    mkdir -p "$root"
    # In place of the shell: its id is the daemon's.
    (LONGHAUL_HOME="$PLACE/home-$kind" exec "$(program "$kind")" serve --root "$root" --listen 127.0.0.1:0 --ticket "$@" >"$log.out" 2>"$log.err") &
    DAEMON=$!
    DAEMONS+=("$DAEMON")
    until_true 30 grep -qs '^longhaul://' "$log.out" || { not_ok "a daemon of $kind starts" "$(cat "$log.err")"; return 1; }
    URL=$(head -n 1 "$log.out")
}
same_tree() { holds "$3" python3 "$TREE" same "$1" "$2"; }
# receipt KIND: of the last copy that KIND made.
receipt() { find "$PLACE/home-$1/receipts" -name '*.receipt' -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-; }

# between CLIENT SERVER: both ways, over TCP and UDP; each side's receipt holds by the other's eyes.
between() {
    local client=$1 server=$2 transport words
    serve "$server" "$PLACE/at-$server" "serve-$server" || return
    for transport in tcp udp; do
        words="$client to $server over ${transport^^}"
        holds "$words" of "$client" cp -q --transport $transport "$PLACE/tree" "$URL$transport/"
        same_tree "$PLACE/tree" "$PLACE/at-$server/$transport/tree" "$words: equal"
        holds "$words: the receipt holds by $server's binary" of "$server" verify "$(receipt "$client")" "$PLACE/at-$server/$transport"
        words="$server to $client over ${transport^^}"
        holds "$words" of "$client" cp -q --transport $transport "$URL$transport/tree" "$PLACE/back-$client-$transport/"
        same_tree "$PLACE/tree" "$PLACE/back-$client-$transport/tree" "$words: equal"
    done
    printf 'changed' | dd of="$PLACE/tree/big" bs=1 seek=5000000 conv=notrunc status=none
    holds "$client to $server, the same tree again with a few bytes changed" of "$client" sync -q "$PLACE/tree/" "${URL}tcp/tree/"
    same_tree "$PLACE/tree" "$PLACE/at-$server/tcp/tree" "$client to $server, the same tree again: equal"
    kill "$DAEMON" && wait "$DAEMON" 2>/dev/null
}
# handed FIRST SECOND: what FIRST's journal says is gone on with by SECOND, in the same folder.
handed() {
    local first=$1 second=$2 root="$PLACE/handed-$1" began resumed
    began="a job that $first began and $second ends"
    serve "$first" "$root" "handed-$first" || return
    of "$second" cp -q --rate 40Mbit "$PLACE/tree/big" "$URL" >"$PLACE/handed.err" 2>&1 &
    local job=$!
    until_true 60 eval "find '$root' -name '.longhaul-*.journal' -size +0 | grep -q ." || { not_ok "$began: it has a journal" "$(cat "$PLACE/handed.err")"; return; }
    sleep 2
    kill -KILL "$DAEMON"
    kill -TERM "$job"
    wait "$job" "$DAEMON" 2>/dev/null
    resumed=$(of "$second" cp --json "$PLACE/tree/big" "$root/" 2>"$PLACE/handed.err" | tail -n 1 | python3 -c 'import json, sys; print(json.load(sys.stdin)["resumed_bytes"])')
    holds "$began: equal" cmp "$PLACE/tree/big" "$root/big"
    holds "$began: what was written is not sent again" test "$resumed" -gt 0
}
pairs() {
    ARM64=$1 NATIVE=$2 PLACE=$3
    trap 'kill "${DAEMONS[@]}" 2>/dev/null' EXIT
    mkdir -p "$PLACE"
    is "$(of arm64 --version)" "$(of native --version)" "arm64: --version says what the native binary says"
    python3 "$TREE" make "$PLACE/tree" 7
    head -c 20000000 /dev/urandom >"$PLACE/tree/big"
    holds "arm64: a copy on one host" of arm64 cp -q "$PLACE/tree" "$PLACE/local/"
    same_tree "$PLACE/tree" "$PLACE/local/tree" "arm64: a copy on one host: equal"
    between native arm64
    between arm64 native
    handed arm64 native
    handed native arm64
}
