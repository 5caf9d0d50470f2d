#!/usr/bin/env python3
"""Trees for the end-to-end checks: make odd ones, compare two, watch one while it is written.

In, out:  `make DIR [SEED]` an odd tree; `many DIR COUNT` small files; `same A B` status 0 if equal, else the differences;
          `watch SRC DST` looks until its input closes, then says which finished names ever showed other bytes than the source.
Invariants: works on bytes, never on decoded names; knows nothing of longhaul but the prefix of its partial files.
"""

import os
import random
import stat
import sys
import threading

PARTIAL = b".longhaul-"


def make(root, seed):
    rng = random.Random(seed)
    names = [b"plain", b"with space", b"-leading-dash", b"--rsh=x", b"new\nline", b"tab\tand\rreturn", b"not-utf8-\xff\xfe\x80", b"\xc3\xa9-composed",
             b"e\xcc\x81-decomposed", b"quote'\"`$(x)", b"back\\slash", b"*?[glob]", b"x" * 255, b"..hidden", b"...", b" ", b"con.txt.", b"%2e%2e", b"~", b":colon:", b"a@b:c"]
    os.makedirs(root, exist_ok=True)
    sizes = [0, 1, 511, 4095, 4096, 4097, 65536, 131071, 131072, 131073, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 * (1 << 20) + 17]
    for number, name in enumerate(names):
        put(os.path.join(root, name), rng.randbytes(sizes[number % len(sizes)]))
    for size in sizes:
        put(os.path.join(root, b"size-%d" % size), rng.randbytes(size))
    os.makedirs(os.path.join(root, b"empty folder"))
    for number, name in enumerate(names[:12]):
        folder = os.path.join(root, b"dir-" + name)
        os.makedirs(folder)
        for inner in names[:6]:
            put(os.path.join(folder, inner), rng.randbytes(rng.randrange(0, 9000)))
    deep = root
    for level in range(60):
        deep = os.path.join(deep, b"level-%02d" % level)
        os.mkdir(deep)
    put(os.path.join(deep, b"bottom"), b"deep down\n")
    links = os.path.join(root, b"links")
    os.mkdir(links)
    for name, target in ((b"to-file", b"../plain"), (b"to-folder", b"../empty folder"), (b"dangling", b"nowhere/at all"), (b"absolute", b"/etc/hostname"),
                         (b"outside", b"../../../../../../etc"), (b"loop", b"loop"), (b"odd\n\xff", b"not-utf8-\xff\nx"), (b"long", b"y" * 4000)):
        os.symlink(target, os.path.join(links, name))
    modes = os.path.join(root, b"modes")
    os.mkdir(modes)
    for mode in (0o400, 0o440, 0o444, 0o600, 0o640, 0o644, 0o664, 0o666, 0o700, 0o755, 0o777, 0o111 | 0o400):
        path = os.path.join(modes, b"%o" % mode)
        put(path, b"mode %o\n" % mode)
        os.chmod(path, mode)
    for mode in (0o500, 0o700, 0o750, 0o755, 0o777):
        path = os.path.join(modes, b"folder-%o" % mode)
        os.mkdir(path)
        put(os.path.join(path, b"in"), b"x")
        os.chmod(path, mode)
    times = (0, 1, 999999999, 1_000_000_000_000_000_001, 1_600_000_000_123_456_789, 4_000_000_000_987_654_321, -1_000_000_001)
    for number, when in enumerate(times):
        path = os.path.join(root, b"time-%d" % number)
        put(path, b"t")
        os.utime(path, ns=(when, when))
    for where, folders, files in os.walk(root, topdown=False):
        for name in files + folders:
            path = os.path.join(where, name)
            if not name.startswith(b"time-"):
                when = rng.randrange(1_000_000_000_000_000_000, 1_700_000_000_000_000_000)
                os.utime(path, ns=(when, when), follow_symlinks=False)


def many(root, count):
    rng = random.Random(count)
    for number in range(count):
        if number % 1000 == 0:
            folder = os.path.join(root, b"%04d" % (number // 1000))
            os.makedirs(folder, exist_ok=True)
        put(os.path.join(folder, b"f%07d" % number), rng.randbytes(rng.randrange(0, 2000)) if count < 100000 else b"%d" % number)


def put(path, data):
    with open(path, "wb") as out:
        out.write(data)


def entries(root):
    found = {b"": os.lstat(root)}
    for where, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(where, name)
            found[os.path.relpath(path, root)] = os.lstat(path)
    return found


def differing(one, two):
    with open(one, "rb") as a, open(two, "rb") as b:
        place = 0
        while True:
            left, right = a.read(1 << 20), b.read(1 << 20)
            if left != right:
                return place + next((i for i, (x, y) in enumerate(zip(left, right)) if x != y), min(len(left), len(right)))
            if not left:
                return None
            place += len(left)


def same(one, two):
    if not os.path.isdir(one):
        left, right = {b"": os.lstat(one)}, {b"": os.lstat(two)}
    else:
        left, right = entries(one), entries(two)
    wrong = [f"missing: {p!r}" for p in sorted(left.keys() - right.keys())] + [f"too many: {p!r}" for p in sorted(right.keys() - left.keys())]
    for path in sorted(left.keys() & right.keys()):
        a, b = left[path], right[path]
        full_a, full_b = (os.path.join(one, path), os.path.join(two, path)) if path else (one, two)
        if stat.S_IFMT(a.st_mode) != stat.S_IFMT(b.st_mode):
            wrong.append(f"other kind: {path!r}")
            continue
        if stat.S_ISLNK(a.st_mode):
            if os.readlink(full_a) != os.readlink(full_b):
                wrong.append(f"other target: {path!r}")
        elif a.st_mode != b.st_mode and path:
            wrong.append(f"mode {a.st_mode:o} became {b.st_mode:o}: {path!r}")
        if path and a.st_mtime_ns != b.st_mtime_ns:
            wrong.append(f"time {a.st_mtime_ns} became {b.st_mtime_ns}: {path!r}")
        if stat.S_ISREG(a.st_mode):
            place = differing(full_a, full_b) if a.st_size == b.st_size else min(a.st_size, b.st_size)
            if place is not None:
                wrong.append(f"bytes differ at {place} ({a.st_size} and {b.st_size} bytes): {path!r}")
    if not wrong:
        print(f"{len(left)} entries are equal")
    else:
        print("\n".join(wrong[:20]) + (f"\n... and {len(wrong) - 20} more" if len(wrong) > 20 else ""))
    return not wrong


def watch(source, target):
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), over.set()), daemon=True).start()
    seen, bad, rounds = {}, set(), 0
    while not over.is_set() or rounds == 0:
        rounds += 1
        for where, _, files in os.walk(target):
            for name in files:
                path = os.path.join(where, name)
                if name.startswith(PARTIAL):
                    continue
                try:
                    now = os.lstat(path)
                    mark = (now.st_ino, now.st_size, now.st_mtime_ns)
                    if not stat.S_ISREG(now.st_mode) or seen.get(path) == mark:
                        continue
                    if differing(os.path.join(source, os.path.relpath(path, target)), path) is not None:
                        bad.add(path)
                    seen[path] = mark
                except FileNotFoundError:
                    continue
    print(f"looked {rounds} times at {len(seen)} finished files; partial under a final name: {len(bad)}")
    for path in sorted(bad)[:5]:
        print(repr(path))
    return not bad


def main():
    what, args = sys.argv[1], [os.fsencode(a) for a in sys.argv[2:]]
    if what == "make":
        make(args[0], int(args[1]) if len(args) > 1 else 1)
    elif what == "many":
        many(args[0], int(args[1]))
    elif what in ("same", "watch"):
        sys.exit(0 if {"same": same, "watch": watch}[what](args[0], args[1]) else 1)
    else:
        sys.exit(f"no such word: {what}")


if __name__ == "__main__":
    main()
