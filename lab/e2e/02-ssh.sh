#!/usr/bin/env bash
# user@host:path: the far side is started through a real sshd, with and without a binary of its own.
source "$(dirname "$0")/check.sh"

if ! sshd_up b; then
    skip "all checks over ssh: $SSHD_WHY"
    finish
fi
# logged_in TIMES WORDS: so many logins since this was asked last, by the server's own log.
LOGINS=0
logged_in() {
    local now
    now=$(grep -c 'Accepted publickey' "$LAB/sshd.err")
    is "$((now - LOGINS))" "$1" "$2"
    LOGINS=$now
}
python3 "$E2E/tree.py" make "$SRC/odd" 11
random_file "$SRC/big.bin" $((48 << 20))
mkdir -p "$DST/push" "$DST/pull" "$DST/relay" "$DST/brought" "$LAB/empty"

cp_run --ssh "$SSH" --remote-binary "$LONGHAUL" "$SRC/odd" "$SRC/big.bin" "root@$ADDR_B:$DST/push/"
cp_ends 0 "push over ssh: exit code 0"
same "$SRC" "$DST/push" "push over ssh: equal"
logged_in 1 "push over ssh: one login"

# The client goes when it has its own last word; the far side still has its receipt to flush.
printf '#!/bin/sh\nLONGHAUL_HOME=%q exec %q "$@"\n' "$LAB/home-far" "$LONGHAUL" >"$LAB/far-longhaul"
chmod +x "$LAB/far-longhaul"
for turn in 1 2 3 4 5 6; do
    rm -rf "$LAB/home-far" "$DST/push/big.bin"
    cp_run --ssh "$SSH" --remote-binary "$LAB/far-longhaul" "$SRC/big.bin" "root@$ADDR_B:$DST/push/"
    receipt=$(find "$LAB/home-far" -name '*.receipt' -exec cat {} +)
    is "$STATUS $(grep -c '^signed' <<<"$receipt") $(find "$LAB/home-far" -name '*.part' | wc -l)" "0 2 0" "push over ssh: the far side holds the receipt with both signatures ($turn)"
done

logged_in 6 "six copies: six logins"
cp_run --ssh "$SSH" --remote-binary "$LONGHAUL" "root@$ADDR_B:$DST/push/odd" "$DST/pull/"
cp_ends 0 "pull over ssh: exit code 0"
same "$SRC/odd" "$DST/pull/odd" "pull over ssh: equal"
logged_in 1 "pull over ssh: one login"
cp_run --ssh "$SSH" --remote-binary "$LONGHAUL" "root@$ADDR_B:$DST/push/odd" "root@$ADDR_B:$DST/relay/"
cp_ends 0 "from one host behind ssh to another: exit code 0"
same "$SRC/odd" "$DST/relay/odd" "from one host behind ssh to another: equal"
logged_in 2 "from one host behind ssh to another: one login at each"

# A run before may have brought this very build.
for build in ~/.cache/longhaul/bin/longhaul-*; do
    ! cmp -s "$build" "$LONGHAUL" || rm -f "$build"
done
holds "the far side has no longhaul of its own" on a $SSH "root@$ADDR_B" '! command -v longhaul'
logged_in 1 "(the look at it is a login of its own)"
cp_run --ssh "$SSH" "$SRC/odd" "root@$ADDR_B:$DST/brought/"
cp_ends 0 "binary missing there: it is brought along, exit code 0"
same "$SRC/odd" "$DST/brought/odd" "binary missing there: equal"
logged_in 1 "binary missing there: looked for, brought and started with one login"
# What travelled, as the copy says it: "longhaul is not on HOST: ...", then "5.9 MB sent in 0.4 s".
sent=$(sed -n 's/.*"\([0-9.]* [kMG]B\) sent in .*/\1/p' "$OUT" | head -n 1)
megabytes=$(awk -v said="${sent:-999 GB}" 'BEGIN { split(said, it, " "); print it[1] * (it[2] == "GB" ? 1000 : it[2] == "kB" ? 0.001 : 1) }')
whole=$(stat -L -c %s "$LONGHAUL")
if [ "$whole" -le 20000000 ]; then
    # Where the other host has xz; gzip makes a sixth more of it (docs/design/023).
    most=8
    ! command -v xz >/dev/null || most=6
    holds "binary missing there: at most $most MB travel (${sent:-nothing said}, of $whole bytes)" awk -v mb="$megabytes" -v most="$most" 'BEGIN { exit !(mb <= most) }'
    holds "the shipped binary has at most 16 MB ($whole bytes)" test "$whole" -le 16000000
else
    # A build that keeps its debug information is not what is shipped: compressed it is, all the same.
    holds "binary missing there: it travels compressed (${sent:-nothing said}, of $whole bytes)" awk -v mb="$megabytes" -v whole="$whole" 'BEGIN { exit !(mb * 2e6 < whole) }'
fi

# 37 bytes beside scp, in turn. Measured: 1.1 of scp's time; of each the least counts, and the bound leaves room for a machine that does other things.
head -c 37 /dev/urandom >"$SRC/tiny"
mkdir -p "$DST/tiny"
least() { sort -n "$1" | head -n 1; }
LOGINS=$(grep -c 'Accepted publickey' "$LAB/sshd.err")
for turn in 1 2 3 4 5; do
    began=$(date +%s%N)
    on a scp -q -P "$SSH_PORT" "${SSH_OPTIONS[@]}" "$SRC/tiny" "root@$ADDR_B:$DST/tiny/scp" </dev/null
    echo $((($(date +%s%N) - began) / 1000000)) >>"$LAB/scp-ms"
    cp_run --ssh "$SSH" "$SRC/tiny" "root@$ADDR_B:$DST/tiny/$turn"
    echo "$TOOK" >>"$LAB/tiny-ms"
    holds "37 bytes arrived ($turn)" cmp -s "$SRC/tiny" "$DST/tiny/$turn"
done
logged_in 10 "binary there: one login a copy, as many as scp"
ours=$(least "$LAB/tiny-ms") theirs=$(least "$LAB/scp-ms")
holds "37 bytes take at most 1.6 of scp's time ($ours ms, scp $theirs ms)" test $((ours * 10)) -le $((theirs * 16))

cp_run_as ls --ssh "$SSH" "root@$ADDR_B:$DST/tiny/"
cp_ends 0 "ls through ssh: exit code 0"
is "$(field entries "$OUT") $(grep -c '"path":"1"' "$OUT")" "$(find "$DST/tiny" -mindepth 1 | wc -l) 1" "ls through ssh: what is there"
logged_in 1 "ls through ssh: one login"

# Two that bring it at once. The file in place is one of theirs, whole.
for build in ~/.cache/longhaul/bin/longhaul-*; do
    ! cmp -s "$build" "$LONGHAUL" || rm -f "$build"
done
start a "$LONGHAUL" cp -q --ssh "$SSH" "$SRC/tiny" "root@$ADDR_B:$DST/tiny/other" 2>"$LAB/other.err" </dev/null
cp_run --ssh "$SSH" "$SRC/tiny" "root@$ADDR_B:$DST/tiny/one"
cp_ends 0 "two bring it at once: exit code 0"
wait "$STARTED_PID"
ended=$?
for build in ~/.cache/longhaul/bin/longhaul-*; do
    ! cmp -s "$build" "$LONGHAUL" || halves=$(find ~/.cache/longhaul/bin -name "${build##*/}.*" | wc -l)
done
is "$ended ${halves:-no whole one}" "0 0" "two bring it at once: the other as well; one whole binary stands there and no half one"
logged_in 2 "two bring it at once: one login each"

# A firewall that drops all but ssh: what b would answer from such ports goes nowhere.
if on b ip rule add pref 10 from "$ADDR_B" ipproto tcp sport 10000-49999 blackhole 2>/dev/null &&
    on b ip rule add pref 11 from "$ADDR_B" ipproto tcp sport 50011-65534 blackhole; then
    for turn in first second; do
        cp_run --ssh "$SSH" "$SRC/tiny" "root@$ADDR_B:$DST/tiny/$turn"
        cp_ends 0 "behind a firewall, $turn copy: exit code 0"
        logged_in 1 "behind a firewall, $turn copy: the tunnel is no login"
        holds "behind a firewall, $turn copy: it says so" grep -q "does not answer directly" "$OUT"
        holds "behind a firewall, $turn copy: nothing waits three seconds ($TOOK ms)" test "$TOOK" -lt 2500
    done
    cp_run --ssh "$SSH" "root@$ADDR_B:$SRC/big.bin" "$DST/tiny/tunnelled"
    cp_ends 0 "through the tunnel: exit code 0"
    holds "through the tunnel: equal" cmp -s "$SRC/big.bin" "$DST/tiny/tunnelled"
    cp_run --ssh "$SSH" --far-port 50000-50010 "$SRC/tiny" "root@$ADDR_B:$DST/tiny/ranged"
    cp_ends 0 "a firewall with some open ports, and --far-port: exit code 0"
    holds "a firewall with some open ports, and --far-port: directly" eval '! grep -q "through ssh" "$OUT"'
    # And an sshd that permits no tunnel: its client learns that when the tunnel is used.
    sed "s/^Port .*/Port 2223/" "$LAB/ssh/config" >"$LAB/ssh/config-closed"
    echo "AllowTcpForwarding no" >>"$LAB/ssh/config-closed"
    sed "s/:$SSH_PORT /:2223 /" "$LAB/ssh/known" >"$LAB/ssh/known-closed"
    cat "$LAB/ssh/known-closed" >>"$LAB/ssh/known"
    start b /usr/sbin/sshd -D -e -f "$LAB/ssh/config-closed" 2>"$LAB/sshd-closed.err" </dev/null
    until_true 10 listening b 2223
    cp_run --ssh "${SSH/-p $SSH_PORT/-p 2223}" "$SRC/tiny" "root@$ADDR_B:$DST/tiny/none"
    cp_ends 10 "a firewall, and an sshd without tunnels: exit code 10"
    holds "a firewall, and an sshd without tunnels: it says so" grep -q "ssh is permitted no tunnel.*AllowTcpForwarding" "$OUT"
    holds "a firewall, and an sshd without tunnels: known within 4 s ($TOOK ms)" test "$TOOK" -lt 4000
    on b ip rule del pref 10
    on b ip rule del pref 11
else
    skip "a firewall between: no rules by port here"
fi

# IPv6 alone.
if on a ip -6 addr add fd99::1/64 dev lh0 nodad 2>/dev/null && on b ip -6 addr add fd99::2/64 dev lh0 nodad; then
    sed "s/^\[[^]]*\]/[fd99::2]/" "$LAB/ssh/known" >"$LAB/ssh/known6"
    cat "$LAB/ssh/known6" >>"$LAB/ssh/known"
    cp_run --ssh "$SSH" "$SRC/tiny" "root@[fd99::2]:$DST/tiny/six"
    cp_ends 0 "by IPv6: exit code 0"
    holds "by IPv6: directly, and equal" eval 'cmp -s "$SRC/tiny" "$DST/tiny/six" && ! grep -q "through ssh" "$OUT"'
else
    skip "by IPv6: none here"
fi

cp_run --ssh "$SSH" --remote-binary "$LONGHAUL" "$SRC/big.bin" "root@$ADDR_B:$DST/no/such/folder/x/"
cp_ends 0 "a folder whose parents are missing there is made: exit code 0"
same "$SRC/big.bin" "$DST/no/such/folder/x/big.bin" "a folder whose parents are missing there: equal"

sed -i 's/AAAA[^ ]*/AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f/' "$LAB/ssh/known"
cp_run --ssh "$SSH" "$SRC/odd" "root@$ADDR_B:$DST/brought/"
cp_ends 10 "a host key that ssh does not know stops the job: exit code 10"
holds "and ssh's own words are shown" grep -qiE 'host key|verification' "$ERR" "$OUT"
finish
