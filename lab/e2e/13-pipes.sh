#!/usr/bin/env bash
# A pipe as source or destination: whole or nothing, verified before it leaves; and clones within one file system.
source "$(dirname "$0")/check.sh"

MIB=$((1024 * 1024))
export TMPDIR="$LAB/tmp"
mkdir -p "$TMPDIR" "$DST/root/folder"
random_file "$SRC/data" $((20 * MIB + 123))
serve b "$DST/root" || { not_ok "serve prints its address"; finish; }

piped() { # piped INPUT OUTPUT ARGUMENTS...: longhaul cp with these as its standard input and output
    local in=$1 out=$2
    shift 2
    ERR="$LAB/piped.err"
    on a timeout 60 "$LONGHAUL" cp --json "$@" <"$in" >"$out" 2>"$ERR"
    STATUS=$?
}
for to in "${URL}in" "$DST/in"; do
    piped <(cat "$SRC/data") "$LAB/out" - "$to"
    is "$STATUS $(ls "$TMPDIR")" "0 " "a pipe in: exit code 0, no spool is left"
done
holds "a pipe to a daemon: equal" cmp "$SRC/data" "$DST/root/in"
holds "a pipe to a local file: equal" cmp "$SRC/data" "$DST/in"
holds "its digest stands in the receipt" grep -q "^f $(b3 "$SRC/data") .* in\$" "$(field receipt "$LAB/out")"
piped /dev/null "$LAB/out" - "${URL}empty"
is "$STATUS $(stat -c %s "$DST/root/empty")" "0 0" "an empty pipe: an empty file"
for from in "${URL}in" "$DST/in"; do
    piped /dev/null "$LAB/out" "$from" -
    is "$STATUS $(ls "$TMPDIR")" "0 " "a pipe out: exit code 0, no spool is left"
    holds "a pipe out: equal, nothing else in it" cmp "$SRC/data" "$LAB/out"
    holds "the report is on standard error" grep -q '"event":"done"' "$ERR"
done
(on a "$LONGHAUL" cp "${URL}in" - 2>"$ERR" </dev/null; echo $? >"$LAB/status") | head -c 10 >/dev/null
is "$(cat "$LAB/status")" 22 "a pipe whose reader ends: exit code 22"
holds "it is named" grep -q 'standard output' "$ERR"

# --- whole or nothing ---
mkfifo "$LAB/slow"
sleep 60 >"$LAB/slow" & # holds the pipe open and never ends it
WRITER=$!
start a sh -c 'exec "$0" cp - "$1" <"$2" >/dev/null 2>&1' "$LONGHAUL" "${URL}never" "$LAB/slow"
for _ in $(seq 50); do
    [ -n "$(ls "$TMPDIR")" ] && break
    sleep 0.1
done
holds "a stream waits in a spool" test -n "$(ls "$TMPDIR")"
stop "$STARTED_PID"
kill "$WRITER"
is "$(ls "$TMPDIR") $([ -e "$DST/root/never" ] && echo there)" " " "stopped while it reads: nothing at the destination, no spool left"

# --- refused ---
piped /dev/null "$LAB/out" - -
is "$STATUS" 2 "both ends a pipe: usage"
piped /dev/null "$LAB/out" - "${URL}folder"
is "$STATUS $(ls "$DST/root/folder")" "2 " "a stream into a folder has no name: usage, nothing made"
piped /dev/null "$LAB/out" "${URL}folder" -
is "$STATUS $(wc -c <"$LAB/out")" "2 0" "a folder into a pipe: usage, nothing written"
stop "$SERVE_PID"

# --- clones ---
clones() { # clones FOLDER: on a file system that shares
    on a cp "$SRC/data" "$1/data"
    cp_run --reflink always "$1/data" "$1/clone"
    cp_ends 0 "--reflink always where blocks are shared"
    holds "a clone is equal" on a cmp "$1/data" "$1/clone"
    holds "it shares its blocks" on a sh -c 'filefrag -v "$1" | grep -q shared' _ "$1/clone"
    holds "its digest was read from the destination" grep -q "^f $(b3 "$SRC/data") " "$(field receipt "$OUT")"
    holds "verify agrees" on a "$LONGHAUL" verify "$(field receipt "$OUT")" "$1"
    cp_run --reflink never "$1/data" "$1/copy"
    holds "--reflink never: no shared blocks" on a sh -c '! filefrag -v "$1" | grep -q shared' _ "$1/copy"
    printf x | on a dd of="$1/data" bs=1 seek=5 conv=notrunc status=none
    holds "writing to the source does not change the clone" on a cmp "$SRC/data" "$1/clone"
    # A terabyte of hole: what is not there is not read back.
    on a sh -c 'truncate -s 1T "$1" && dd if="$2" of="$1" bs=1M count=2 seek=5000 conv=notrunc status=none' _ "$1/hole" "$SRC/data"
    cp_run --reflink always "$1/hole" "$1/hole-clone"
    is "$STATUS $(number bytes)" "0 0" "a clone of a file with holes: nothing is moved (in $TOOK ms)"
    local cloned
    cloned=$(awk '$1 == "f" { print $2 }' "$(field receipt "$OUT")")
    cp_run --reflink never "$1/hole" "$1/hole-copy"
    is "$(awk '$1 == "f" { print $2 }' "$(field receipt "$OUT")")" "$cloned" "it has the digest that a copy has"
}
on a mount -t tmpfs none "$LAB/tmp" && on a cp "$SRC/data" "$LAB/tmp/data"
cp_run --reflink always "$LAB/tmp/data" "$LAB/tmp/clone"
is "$STATUS $(on a ls "$LAB/tmp")" "3 data" "--reflink always where blocks cannot be shared: the file fails, nothing is left"
cp_run "$LAB/tmp/data" "$LAB/tmp/copy"
holds "--reflink auto: it is copied" on a cmp "$LAB/tmp/data" "$LAB/tmp/copy"
made() { # a file system that shares, at $LAB/mnt of host a
    command -v mkfs.btrfs && command -v filefrag || { echo "no mkfs.btrfs or no filefrag"; return 1; }
    truncate -s 300M "$LAB/image" && mkfs.btrfs -q "$LAB/image" && mkdir "$LAB/mnt" || return 1
    on a mount -o loop "$LAB/image" "$LAB/mnt" || { echo "no loop device or no btrfs in this kernel"; return 1; }
}
if said=$(made 2>&1); then
    clones "$LAB/mnt"
    on a umount "$LAB/mnt"
else
    skip "no file system that shares blocks: $(tail -n 1 <<<"$said")"
fi
finish
