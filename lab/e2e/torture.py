#!/usr/bin/env python3
"""The torture tree: all that a file system may hold beside names and bytes.

In, out:  `make DIR` a tree (as root: owners, devices, capabilities too); `allocated A B` status 0 if the allocated sizes differ by 1 % at most;
          `deep A B` status 0 if the files below paths longer than PATH_MAX are equal, walked by descriptors; `alter FILE ATTRIBUTE UID GID MODE`
          sets these, the mode in octal; `guarded FILES` how many attributes they have that only the system or root may set.
Invariants: works on bytes; knows nothing of longhaul; whatever this user or this file system cannot make is left out, and named on standard error.
"""

import os
import socket
import stat
import struct
import sys

DEEP_NAME = b"deep-" + b"d" * 195
DEEP_LEVELS = 25  # 25 names of 200 bytes: 5,024 bytes, beyond PATH_MAX
ACL_HEAD = struct.pack("<I", 2)


def attempt(what, call, *args, **named):
    try:
        call(*args, **named)
    except OSError as error:
        print(f"left out: {what}: {error}", file=sys.stderr)


def put(path, content):
    with open(path, "wb") as out:
        out.write(content)


def acl(*lines):
    return ACL_HEAD + b"".join(struct.pack("<HHI", tag, perm, who & 0xFFFFFFFF) for tag, perm, who in lines)


def capability(bits):
    # struct vfs_cap_data, revision 2, effective: linux/capability.h
    return struct.pack("<IIIII", 0x02000001, bits, 0, 0, 0)


def make(root):
    os.makedirs(root)
    at = lambda name: os.path.join(root, name)
    for name in (b"plain", b"new\nline", b"not-utf8-\xff\xfe", b" ", b"-rf"):
        put(at(name), b"content of " + name)
    owned(at)
    attributes(at)
    several(at)
    nodes(at)
    sparse(at)
    for name, target in ((b"loop-a", b"loop-b"), (b"loop-b", b"loop-a"), (b"self", b"self"), (b"dangling", b"nowhere\n\xff"), (b"absolute", b"/etc/passwd")):
        os.symlink(target, at(name))
    if os.geteuid() == 0:
        attempt("owner of a link", os.chown, at(b"dangling"), 12, 34, follow_symlinks=False)
        attempt("attribute of a link", os.setxattr, at(b"self"), "trusted.of-a-link", b"x", follow_symlinks=False)
    deep(root)
    folder = at(b"read-only")
    os.mkdir(folder)
    put(os.path.join(folder, b"inside"), b"x" * 200_000)
    os.mkdir(os.path.join(folder, b"below"))
    put(os.path.join(folder, b"below", b"too"), b"y")
    os.chmod(os.path.join(folder, b"below"), 0o555)
    os.chmod(folder, 0o555)
    when = 1_600_000_000_123_456_789
    for number, (where, folders, files) in enumerate(os.walk(root, topdown=False)):
        for name in files:
            os.utime(os.path.join(where, name), ns=(when, when + number), follow_symlinks=False)
        os.utime(where, ns=(when, when - number))


def owned(at):
    for mode in (0o4755, 0o2755, 0o6711, 0o1644, 0o000, 0o444):
        name = at(b"mode-%o" % mode)
        put(name, b"mode\n")
        if os.geteuid() == 0:
            os.chown(name, 1234, 4321)
        os.chmod(name, mode)
    os.mkdir(at(b"set-group"))
    if os.geteuid() == 0:
        os.chown(at(b"set-group"), 99, 98)
    os.chmod(at(b"set-group"), 0o3775)


def attributes(at):
    name = at(b"attributes")
    put(name, b"a" * 5000)
    for key, value in ((b"user.one", b"1"), (b"user.empty", b""), (b"user.bytes", bytes(range(256))), (b"user.long-" + b"n" * 200, b"v" * 900)):
        attempt(key, os.setxattr, name, key, value)
    attempt("trusted", os.setxattr, name, b"trusted.mine", b"t")
    put(at(b"capable"), b"#!/bin/true\n")
    os.chmod(at(b"capable"), 0o755)
    attempt("capability", os.setxattr, at(b"capable"), b"security.capability", capability(1 << 10))
    lists = acl((1, 6, -1), (2, 4, 4242), (4, 4, -1), (8, 6, 4343), (16, 6, -1), (32, 0, -1))
    put(at(b"acl"), b"acl")
    attempt("ACL", os.setxattr, at(b"acl"), b"system.posix_acl_access", lists)
    folder = at(b"acl-folder")
    os.mkdir(folder)
    # Made before the default ACL is: it must not have it at the destination, either.
    put(os.path.join(folder, b"without"), b"w")
    os.mkdir(os.path.join(folder, b"sub-without"))
    attempt("default ACL", os.setxattr, folder, b"system.posix_acl_default", lists)
    attempt("ACL of a folder", os.setxattr, folder, b"system.posix_acl_access", lists)
    put(os.path.join(folder, b"with"), b"w")
    attempt("attribute of a folder", os.setxattr, folder, b"user.folder", b"f")


def several(at):
    put(at(b"first"), b"one file, many names")
    put(at(b"big-first"), os.urandom(3_000_000))
    os.mkdir(at(b"names"))
    for number in range(5):
        os.link(at(b"first"), at(b"names/again-%d" % number))
    os.link(at(b"big-first"), at(b"names/big"))
    os.link(at(b"big-first"), at(b"a-big"))
    os.symlink(b"first", at(b"link-first"))
    os.link(at(b"link-first"), at(b"names/link"), follow_symlinks=False)
    os.mkfifo(at(b"fifo-first"))
    os.link(at(b"fifo-first"), at(b"names/fifo"))


def nodes(at):
    os.mkfifo(at(b"fifo"), 0o640)
    here = os.getcwd()
    os.chdir(os.path.dirname(at(b"x")))
    try:
        with socket.socket(socket.AF_UNIX) as it:
            it.bind("socket")
    finally:
        os.chdir(here)
    for name, kind, numbers in ((b"char", stat.S_IFCHR, (1, 3)), (b"block", stat.S_IFBLK, (259, 70_000))):
        attempt(name, os.mknod, at(name), kind | 0o640, os.makedev(*numbers))


def sparse(at):
    with open(at(b"sparse-small"), "wb") as out:
        out.truncate(100_000)
        out.seek(40_960)
        out.write(b"s" * 4096)
    with open(at(b"sparse-fine"), "wb") as out:
        for number in range(40):
            out.seek(number * 65_536)
            out.write(os.urandom(4096))
        out.truncate(5 << 20)
    with open(at(b"sparse-big"), "wb") as out:
        out.truncate(64 << 20)
        out.seek(17 << 20)
        out.write(os.urandom(1 << 20))
        out.seek((64 << 20) - 5)
        out.write(b"end\n\n")
    with open(at(b"hole-only"), "wb") as out:
        out.truncate(20 << 20)


def deep(root):
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(DEEP_LEVELS):
        os.mkdir(DEEP_NAME, dir_fd=folder)
        inner = os.open(DEEP_NAME, os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
        os.close(folder)
        folder = inner
    with open(os.open(b"bottom", os.O_WRONLY | os.O_CREAT, 0o640, dir_fd=folder), "wb") as out:
        out.write(b"below PATH_MAX\n")
    os.symlink(b"bottom", b"link", dir_fd=folder)
    os.close(folder)


def allocated(one, other):
    def total(root):
        seen, blocks = set(), 0
        for where, _, files, folder in os.fwalk(root):
            for name in files:
                it = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISREG(it.st_mode) and it.st_ino not in seen:
                    seen.add(it.st_ino)
                    blocks += it.st_blocks
        return blocks

    a, b = total(one), total(other)
    print(f"{a * 512} bytes allocated at the source, {b * 512} at the destination")
    return abs(a - b) <= max(a, 1) * 0.01


def at_bottom(root):
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    found = []
    for _ in range(DEEP_LEVELS):
        inner = os.open(DEEP_NAME, os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
        os.close(folder)
        folder = inner
        it = os.fstat(folder)
        found.append((it.st_mode, it.st_uid, it.st_gid, it.st_mtime_ns))
    it = os.stat(b"bottom", dir_fd=folder)
    with open(os.open(b"bottom", os.O_RDONLY, dir_fd=folder), "rb") as file:
        found.append((it.st_mode, it.st_uid, it.st_gid, it.st_mtime_ns, file.read(), os.readlink(b"link", dir_fd=folder)))
    os.close(folder)
    return found


def alter(path, attribute, uid, gid, mode):
    os.setxattr(path, attribute, b"x")
    os.chown(path, int(uid), int(gid))
    os.chmod(path, int(mode, 8))  # last: a new owner costs the set-id bits


def guarded(paths):
    return sum(name.startswith(("security.", "trusted.")) for path in paths for name in os.listxattr(path))


def main():
    what, args = sys.argv[1], [os.fsencode(a) for a in sys.argv[2:]]
    if what == "make":
        make(args[0])
    elif what == "allocated":
        sys.exit(0 if allocated(*args) else 1)
    elif what == "deep":
        sys.exit(0 if at_bottom(args[0]) == at_bottom(args[1]) else 1)
    elif what == "alter":
        alter(*args)
    elif what == "guarded":
        print(guarded(args))
    else:
        sys.exit(f"no such word: {what}")


if __name__ == "__main__":
    main()
