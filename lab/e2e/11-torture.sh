#!/usr/bin/env bash
# The torture tree, by rsync's eyes: owners, attributes, ACLs, capabilities, hard links, nodes, holes, depth; and what must not be set for others.
source "$(dirname "$0")/check.sh"

# rsync_finds_nothing A B WORDS: rsync would change nothing. What lies deeper than PATH_MAX it cannot name: torture.py looks there.
rsync_finds_nothing() {
    local said
    said=$(rsync -aHAXS --numeric-ids --dry-run --itemize-changes --checksum --delete --exclude='/deep-*' "$1/" "$2/" 2>&1)
    if [ -z "$said" ]; then ok "$3: rsync -aHAXS finds nothing to add"; else not_ok "$3: rsync -aHAXS finds nothing to add" "$said"; fi
}
all_kept() { # all_kept RESULT WORDS
    rsync_finds_nothing "$SRC/tree" "$1" "$2"
    holds "$2: what lies deeper than PATH_MAX is equal" python3 "$E2E/torture.py" deep "$SRC/tree" "$1"
    holds "$2: the allocated size is within 1 %" python3 "$E2E/torture.py" allocated "$SRC/tree" "$1"
}

python3 "$E2E/torture.py" make "$SRC/tree" 2>"$LAB/left-out"
sed 's/^/# /' "$LAB/left-out"
mkdir -p "$DST/local" "$DST/push" "$DST/plain" "$DST/cut"
IS_ROOT=$([ "$HOST_KIND" = netns ] && echo 1)
command -v rsync >/dev/null || { skip "no rsync to compare with"; finish; }
[ -n "$IS_ROOT" ] || { skip "owners and devices need root"; finish; }

cp_run "$SRC/tree" "$DST/local/"
cp_ends 0 "local: exit code 0"
all_kept "$DST/local/tree" "local"
is "$(field unkept "$OUT")" "[]" "local: the report says that all was kept"
cp_run "$SRC/tree" "$DST/local/"
is "$STATUS $(number bytes)" "0 0" "local, again: nothing is sent"
all_kept "$DST/local/tree" "local, again"

serve b "$DST/push" --privileged || { not_ok "serve prints its address"; finish; }
cp_run --numeric-ids "$SRC/tree" "$URL"
cp_ends 0 "host to host: exit code 0"
all_kept "$DST/push/tree" "host to host"
stop "$SERVE_PID"

# Somebody else's changes are mended, without sending a byte.
for name in attributes acl-folder; do python3 "$E2E/torture.py" alter "$DST/local/tree/$name" user.stray 7 7 777; done
cp_run "$SRC/tree" "$DST/local/"
is "$STATUS $(number bytes)" "0 0" "owner, mode and a stray attribute: mended without payload"
all_kept "$DST/local/tree" "mended"

# sync: what goes in chunks or stays as it is carries all the same what it has beside content, and nothing that the source has is too much.
large="$SRC/tree/large.bin"
random_file "$large" $((5 * 1024 * 1024))
ln "$large" "$SRC/tree/larger.bin"
cp_run_as sync --delete "$SRC/tree" "$DST/local/tree"
is "$STATUS $(number bytes) $(number removed)" "0 $((5 * 1024 * 1024)) 0" "sync --delete: one of two names is sent, none is removed, no node either"
all_kept "$DST/local/tree" "sync"
python3 "$E2E/torture.py" alter "$large" user.new 12 34 6751
touch -d @9 "$large"
cp_run_as sync --delete "$SRC/tree" "$DST/local/tree"
is "$STATUS $(number bytes) $(number removed)" "0 0 0" "sync, touched: nothing is sent"
all_kept "$DST/local/tree" "sync, touched"
printf changed | dd of="$large" bs=1 seek=2000000 conv=notrunc status=none
chmod 6751 "$large"
cp_run_as sync --delete "$SRC/tree" "$DST/local/tree"
is "$STATUS $(number bytes) $(number removed)" "0 $((1024 * 1024)) 0" "sync, changed: one chunk is sent"
all_kept "$DST/local/tree" "sync, changed"
mkfifo "$DST/local/tree/extra-pipe"
mknod "$DST/local/tree/extra-device" c 1 3
ln "$DST/local/tree/large.bin" "$DST/local/tree/extra-name"
cp_run_as sync --delete --no-specials --no-devices "$SRC/tree" "$DST/local/tree"
is "$STATUS $(number removed) $(find "$DST/local/tree" -type p -name extra-pipe | wc -l)" "0 1 1" "sync, nodes left out: they are left alone"
cp_run_as sync --delete "$SRC/tree" "$DST/local/tree"
is "$STATUS $(number removed)" "0 2" "sync: nodes that are too much go"
all_kept "$DST/local/tree" "sync, nodes removed"

# A daemon that does not permit it sets nothing of this, says so, and all the rest is there.
PORT=7441 serve b "$DST/plain" || { not_ok "serve prints its address"; finish; }
cp_run "$SRC/tree" "$URL"
cp_ends 21 "not privileged: devices are faults, the rest is done"
is "$(find "$DST/plain/tree" -perm /6000 -type f | wc -l)" 0 "not privileged: no setuid file"
is "$(find "$DST/plain/tree" \( -type b -o -type c \) | wc -l)" 0 "not privileged: no device"
is "$(find "$DST/plain/tree" ! -uid 0 | wc -l)" 0 "not privileged: no owner is set"
is "$(python3 "$E2E/torture.py" guarded "$DST/plain/tree/capable" "$DST/plain/tree/attributes")" 0 "not privileged: no capability, nothing trusted"
for word in owner group setid security; do
    holds "not privileged: the report counts $word" grep -q "\"$word\",[1-9]" <(tail -n 1 "$OUT")
done
same "$SRC/tree/names" "$DST/plain/tree/names" "not privileged: names and contents are there"
stop "$SERVE_PID"

# Options leave things out without a word of regret.
cp_run --no-owner --no-group --no-xattrs --no-acls --no-hard-links --no-devices --no-specials --no-setid "$SRC/tree" "$DST/left-out/"
cp_ends 0 "left out as asked: exit code 0"
is "$(find "$DST/left-out/tree" \( -type b -o -type c -o -type p -o -type s \) | wc -l)" 0 "left out as asked: no nodes"
is "$(find "$DST/left-out/tree" -type f -links +1 | wc -l)" 0 "left out as asked: no hard links"

# Without root: the file system says no, the report says what.
if command -v setpriv >/dev/null; then
    mkdir -p "$LAB/home-user" "$DST/user" && chown 65534:65534 "$LAB/home-user" "$DST/user"
    chmod -R a+rX "$SRC" && chmod 755 "$LAB" "$DST"
    cp_as() { env LONGHAUL_HOME="$LAB/home-user" setpriv --reuid 65534 --regid 65534 --clear-groups "$LONGHAUL" cp --json "$@"; }
    cp_as "$SRC/tree" "$DST/user/" >"$LAB/user.json" 2>"$LAB/user.err"
    # shellcheck disable=SC2034 # `why` reads them
    STATUS=$? OUT="$LAB/user.json" ERR="$LAB/user.err"
    cp_ends 21 "without root: devices and what may not be read are faults, the rest is done"
    holds "without root: the report counts owners that were not kept" grep -q '"owner",[1-9]' <(tail -n 1 "$OUT")
    is "$(find "$DST/user/tree" -perm /4000 -type f | wc -l)" 0 "without root: nothing is setuid for another owner"
    holds "without root: hard links are kept" test "$DST/user/tree/first" -ef "$DST/user/tree/names/again-3"
else
    skip "without root: no setpriv"
fi

# Killed in the middle, and again: the same tree.
start a "$LONGHAUL" cp --rate 160Mbit "$SRC/tree" "$DST/cut/" >/dev/null 2>&1
sleep 1
stop "$STARTED_PID" KILL
cp_run "$SRC/tree" "$DST/cut/"
cp_ends 0 "killed and run again: exit code 0"
all_kept "$DST/cut/tree" "killed and run again"
finish
