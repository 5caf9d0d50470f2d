#!/usr/bin/env bash
# LHDATA: two Longhauls that meet over FTP. Trees and a large file both ways, over TCP and UDP; sync; kill -9 of either end; what a login may not.
source "$(dirname "$0")/check.sh"

export LONGHAUL_HOME=$LAB/client-home
mkdir -p "$LONGHAUL_HOME" "$LAB/server-home"
chmod 700 "$LONGHAUL_HOME" "$LAB/server-home"
is_same() { if diff -r "$1" "$2" >"$LAB/diff" 2>&1; then ok "$3"; else not_ok "$3" "$(head -3 "$LAB/diff")"; fi; }
done_field() { grep '"event":"done"' "$1" | grep -o "\"$2\":[^,]*" | head -1 | cut -d: -f2-; }

TREE=$SRC/tree
mkdir -p "$TREE/a folder/deep" "$TREE/empty folder"
random_file "$TREE/large" 100000000
for number in $(seq 200); do head -c $((number * 100)) "$TREE/large" >"$TREE/a folder/deep/small $number"; done
: >"$TREE/empty"
printf y >"$TREE/"$'ff\xff'
ln -s large "$TREE/link"
find "$TREE" -exec touch -h -d '2026-01-02 03:04:05' {} +
ROOT=$DST/root
mkdir -p "$ROOT/inbox"

# door: a server on this host, at a port of rails that is the same after kill -9.
door() {
    LONGHAUL_HOME=$LAB/server-home "$LONGHAUL" ftp serve --listen 127.0.0.1:2195 --lhdata 5795 --root "$ROOT" --user ada,reader:ro,writer:wo \
        >"$LAB/door.out" 2>"$LAB/door.err" &
    DOOR=$!
    until_true 20 grep -q '^file manager' "$LAB/door.out"
    local user
    for user in ada reader writer; do
        [ -s "$LAB/$user" ] || sed -n "s/^password of $user, said once: //p" "$LAB/door.out" >"$LAB/$user"
        chmod 600 "$LAB/$user"
    done
}
door
FINGERPRINT=$(sed -n 's/^certificate SHA-256 \([0-9A-F:]*\).*/\1/p' "$LAB/door.out")
far() { printf 'ftp://%s@127.0.0.1:2195/%s' "$1" "$2"; }
as() { # as USER COMMAND ARGUMENTS...: $LAB/said has what it says
    local user=$1
    shift
    timeout --kill-after=5 60 "$LONGHAUL" "$1" --ftp-fingerprint "$FINGERPRINT" --password-file "$LAB/$user" --json "${@:2}" >"$LAB/said" 2>&1
}

for transport in tcp udp; do
    as ada cp --transport $transport "$TREE" "$(far ada $transport)"
    is $? 0 "$transport: a tree is put"
    is "$(done_field "$LAB/said" transport)" "\"over ftp" "$transport: the report says over what"
    is "$(grep -c "over ftp, LHDATA, $transport\"" "$LAB/said")" 1 "$transport: and by which transport"
    is_same "$TREE" "$ROOT/$transport" "$transport: it is the same"
    as ada cp --transport $transport "$(far ada $transport)" "$DST/$transport"
    is $? 0 "$transport: a tree is got"
    is_same "$TREE" "$DST/$transport" "$transport: what came is the same"
    is "$(stat -c %Y "$DST/$transport/large")" "$(stat -c %Y "$TREE/large")" "$transport: with its times"
    as ada cp --transport $transport "$TREE" "$(far ada $transport)"
    is "$(done_field "$LAB/said" files)" 0 "$transport: a second run moves nothing"
done
if [ -n "$(find "$LONGHAUL_HOME/receipts" -name '*.receipt' 2>/dev/null)" ]; then ok "both ends signed receipts"; else not_ok "both ends signed receipts"; fi
as ada cp --plain-ftp "$(far ada tcp/large)" "$DST/plain"
is $? 0 "--plain-ftp: a file is got"
is "$(grep -c LHDATA "$LAB/said")" 0 "--plain-ftp: without LHDATA"

# sync --delete, both ways.
printf extra >"$DST/tcp/extra"
as ada sync --delete "$(far ada tcp)" "$DST/tcp"
is_same "$TREE" "$DST/tcp" "sync --delete from it"
printf extra >"$ROOT/tcp/extra"
as ada sync --delete "$TREE" "$(far ada tcp)"
is_same "$TREE" "$ROOT/tcp" "sync --delete to it"

# kill -9 of either end: no file under its name, and the same command again moves what is missing.
killed() { # killed WHO WORDS FROM TO FOLDER
    "$LONGHAUL" cp --ftp-fingerprint "$FINGERPRINT" --password-file "$LAB/ada" --rate 400Mbit --stall 2s "$3" "$4" >"$LAB/killed" 2>&1 &
    local client=$! moved
    journalled "$5"
    sleep 0.7
    if [ "$1" = client ]; then kill -9 $client; else kill -9 $DOOR; fi
    wait $client 2>/dev/null
    [ "$1" = client ] || { wait $DOOR 2>/dev/null; door; }
    if [ -e "$5/large" ]; then not_ok "$2: no file has its name"; else ok "$2: no file has its name"; fi
    as ada cp "$3" "$4"
    is $? 0 "$2: the same command goes on"
    cmp -s "$TREE/large" "$5/large"
    is $? 0 "$2: and the file is whole"
    moved=$(done_field "$LAB/said" bytes)
    if [ "${moved:-0}" -gt 0 ] && [ "$moved" -lt 95000000 ]; then ok "$2: what was missing moved"; else not_ok "$2: what was missing moved" "$moved"; fi
}
for who in client server; do
    mkdir -p "$ROOT/up-$who" "$DST/down-$who"
    killed $who "the $who is killed in a put" "$TREE/large" "$(far ada "up-$who/large")" "$ROOT/up-$who"
    killed $who "the $who is killed in a get" "$(far ada tcp/large)" "$DST/down-$who/large" "$DST/down-$who"
done
is "$(find "$ROOT" "$DST" -name '.longhaul-*' | wc -l)" 0 "nothing of ours stands anywhere"

# What a login may not.
as reader cp "$TREE/empty" "$(far reader no)"
is $? 12 "who may only read puts nothing"
as writer cp "$(far writer tcp/large)" "$DST/no"
is $? 12 "who may only write gets nothing"
as ada cp "$(far ada ../server-home/ftp-users)" "$DST/no"
if [ $? != 0 ] && [ ! -e "$DST/no" ]; then ok "nothing above the root is got"; else not_ok "nothing above the root is got"; fi
as ada cp "$TREE/empty" "$(far ada ../escaped)"
if [ $? != 0 ] && [ ! -e "$DST/escaped" ]; then ok "nothing above the root is put"; else not_ok "nothing above the root is put"; fi
"$LONGHAUL" cp longhaul://127.0.0.1:5795/tcp/large "$DST/no" >"$LAB/stranger" 2>&1
if [ $? != 0 ] && [ ! -e "$DST/no" ]; then ok "the port of rails lets nobody in"; else not_ok "the port of rails lets nobody in"; fi
kill $DOOR
wait $DOOR 2>/dev/null
finish
