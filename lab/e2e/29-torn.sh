#!/usr/bin/env bash
# Sources that are written while they are read: whole as of one moment, or told as torn; never a mixture.
source "$(dirname "$0")/check.sh"

mkdir -p "$DST/far"
PORT=7480
serve b "$DST/far"
# writer.py: writes one byte pattern over the whole file, then the next, in place, for ever. `set`: by calls, the time set back after each.
# `map`: through a mapping whose descriptor is closed, from before the copy begins.
cat >"$LAB/writer.py" <<'END'
import mmap, os, sys, time
way, path = sys.argv[1:]
size = os.path.getsize(path)
if way == "map":
    fd = os.open(path, os.O_RDWR)
    view = mmap.mmap(fd, size)
    os.close(fd)
print("on", flush=True)
value = 0
while True:
    value = (value + 1) % 256
    if way == "map":
        # One byte in each page, last page first: a reader from the front meets both versions.
        for at in range(size - 4096, -1, -4096 * 16):
            view[at] = value
    else:
        before = os.stat(path)
        with open(path, "r+b", buffering=0) as file:
            for at in range(size - 4096, -1, -4096 * 16):
                file.seek(at)
                file.write(bytes([value]))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    time.sleep(0.01)
END
# one_moment FILE: all the bytes that the writer sets are of one round, or of two where it was in the middle of one, newest last.
cat >"$LAB/moment.py" <<'END'
import os, sys
path = sys.argv[1]
size = os.path.getsize(path)
with open(path, "rb") as file:
    seen = []
    for at in range(size - 4096, -1, -4096 * 16):
        file.seek(at)
        byte = file.read(1)[0]
        if not seen or seen[-1] != byte:
            seen.append(byte)
# The writer goes from the end to the front: a moment's image is NEW...NEW OLD...OLD, one step apart.
sys.exit(not (len(seen) == 1 or (len(seen) == 2 and (seen[0] - seen[1]) % 256 == 1)))
END
writer() { # writer WAY FILE
    start a python3 "$LAB/writer.py" "$@" >"$LAB/writer.out" 2>&1
    WRITER=$STARTED_PID
    until_true 10 grep -q on "$LAB/writer.out"
    sleep 0.3
}
# torn NAME FILE DESTINATION...: every copy ends torn, and nothing stands there
torn() {
    local name=$1 file=$2 to=$3
    shift 3
    cp_run --rate 400Mbit "$@" "$file" "$to"
    cp_ends 4 "$name: told as torn"
    holds "$name: nothing of it was published" test ! -e "${PLACE}"
}
for way in set map; do
    mkdir -p "$SRC/$way"
    for size in 100000 $((24 << 20)); do
        head -c $size /dev/zero >"$SRC/$way/file"
        writer $way "$SRC/$way/file"
        name="$([ $way = set ] && echo "in place, the time set back" || echo "through a mapping"), $size bytes"
        kind=$(on a stat -f -c %T "$SRC/$way")
        if [ $size -lt 200000 ]; then
            # So small a file is read by one call: it may well be of one moment.
            cp_run "$SRC/$way/file" "$DST/small-$way"
            holds "$name: whole or torn" eval '[ $STATUS = 4 ] || { [ $STATUS = 0 ] && python3 "$LAB/moment.py" "$DST/small-$way"; }'
        elif [ $way = map ] && [ "$kind" = tmpfs ]; then
            skip "$name: the folder for tests is in memory, where the kernel does not tell"
        else
            PLACE="$DST/far/$way" torn "$name, to a daemon" "$SRC/$way/file" "${URL}$way" --snapshot never
            PLACE="$DST/here-$way" torn "$name, on one host" "$SRC/$way/file" "$DST/here-$way" --snapshot never --reflink never
        fi
        stop "$WRITER" KILL
    done
done

# --- file systems that clone ---
for kind in xfs btrfs; do
    disk=$LAB/$kind
    mkdir -p "$disk" && truncate -s 400M "$disk.img"
    if ! "mkfs.$kind" -q "$disk.img" >/dev/null 2>&1 || ! on a mount -o loop "$disk.img" "$disk" 2>/dev/null; then
        skip "$kind: no mkfs.$kind or no loop device here"
        continue
    fi
    on a sh -c "head -c $((24 << 20)) /dev/zero >'$disk/file'"
    for way in set map; do
        writer $way "$disk/file"
        rm -f "$DST/far/$kind-$way"
        cp_run --rate 400Mbit "$disk/file" "${URL}$kind-$way"
        cp_ends 0 "$kind, $way: a file that is being written is read from a clone"
        holds "$kind, $way: it is as it was at one moment" python3 "$LAB/moment.py" "$DST/far/$kind-$way"
        holds "$kind, $way: said" grep -q "private clones" "$OUT"
        cp_run --rate 400Mbit --snapshot never "$disk/file" "${URL}$kind-never-$way"
        cp_ends 4 "$kind, $way: without clones it is torn"
        stop "$WRITER" KILL
    done
    cp_run --snapshot always "$disk/file" "${URL}$kind-always"
    cp_ends 0 "$kind: --snapshot always"
    is "$(on a find "$disk" -mindepth 1 | wc -l)" 1 "$kind: nothing is left beside the source"
    on a umount "$disk"
done
head -c 200000 /dev/urandom >"$SRC/plain"
if [ "$(on a stat -f -c %T "$SRC")" = tmpfs ] || [ "$(on a stat -f -c %T "$SRC")" = ext2/ext3 ]; then
    cp_run --snapshot always "$SRC/plain" "${URL}plain"
    cp_ends 3 "--snapshot always where nothing can be cloned: the file fails"
    holds "and says why" grep -q 'unsupported' "$OUT"
fi
finish
