#!/usr/bin/env python3
"""A disk with a volatile write cache, whose power can be cut: a file on a FUSE file system of its own, for a loop device.

In:         `powerdisk.py IMAGE FOLDER`: IMAGE has what the medium holds; FOLDER shows one file, `disk`, of the same size. Then words on standard
            input: `after writes N`, `after flushes N` (the power goes right after the Nth from now on), `cut` (now), `counts`, `end`.
Out:        a line for each word; `cut WRITES FLUSHES LOST KEPT` once the power is gone. IMAGE is then what such a disk holds afterwards.
Invariants: a write is answered when it is in the cache, a flush (FSYNC, which the loop driver makes of REQ_OP_FLUSH and FUA) when all that was written
            before it is in IMAGE; at the cut each 4 KiB of a write that no flush covered is kept or lost by itself (SEED, KEEP: the part that is kept).
            After it nothing is written and every flush fails, so that no program can be told of durable bytes that are not in IMAGE.
Absent:     libfuse. The protocol is the kernel's own (include/uapi/linux/fuse.h), read from /dev/fuse, as far as a loop device needs it.
"""

import ctypes
import errno
import os
import random
import selectors
import struct
import sys

PAGE = 4096  # what a disk of today writes whole or not at all
WRITE_MAX = 1 << 20
LOOKUP, FORGET, GETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT = 1, 2, 3, 14, 15, 16, 17, 18, 20, 25, 26
OPENDIR, READDIR, RELEASEDIR, INTERRUPT, DESTROY, BATCH_FORGET = 27, 28, 29, 36, 38, 42
BIG_WRITES, MAX_PAGES, DIRECT_IO = 1 << 5, 1 << 22, 1


class Disk:
    def __init__(self, image, seed, keep):
        self.medium = os.open(image, os.O_RDWR)
        self.size = os.fstat(self.medium).st_size
        self.pending = []  # (offset, bytes) since the last flush, in order
        self.fresh = {}  # page number -> its bytes as they are read, where the medium has others
        self.writes = self.flushes = 0
        self.cut_at = None
        self.is_cut = False
        self.random = random.Random(seed)
        self.keep = keep
        self.lost = self.kept = 0

    def page(self, number):
        return self.fresh.get(number) or os.pread(self.medium, PAGE, number * PAGE)

    def read(self, offset, size):
        end = min(offset + size, self.size)
        first, last = offset // PAGE, (end + PAGE - 1) // PAGE
        if not any(number in self.fresh for number in range(first, last)):
            return os.pread(self.medium, end - offset, offset)
        whole = b"".join(self.page(number) for number in range(first, last))
        return whole[offset - first * PAGE : end - first * PAGE]

    def write(self, offset, data):
        if self.is_cut:
            raise OSError(errno.EIO, "no power")
        self.writes += 1
        at = offset
        while at < offset + len(data):
            number, inside = divmod(at, PAGE)
            part = data[at - offset : at - offset + PAGE - inside]
            if len(part) < PAGE:
                old = self.page(number)
                part = old[:inside] + part + old[inside + len(part) :]
            part = bytes(part)
            self.fresh[number] = part
            self.pending.append((number, part))
            at = (number + 1) * PAGE
        self.due("writes", self.writes)

    def flush(self):
        if self.is_cut:
            raise OSError(errno.EIO, "no power")
        for number, page in self.fresh.items():
            os.pwrite(self.medium, page, number * PAGE)
        self.fresh.clear()
        self.pending.clear()
        self.flushes += 1
        self.due("flushes", self.flushes)

    def due(self, what, count):
        if self.cut_at == (what, count):
            self.cut()

    def cut(self):
        if self.is_cut:
            return
        self.is_cut = True
        for number, page in self.pending:
            if self.random.random() < self.keep:
                os.pwrite(self.medium, page, number * PAGE)
                self.kept += 1
            else:
                self.lost += 1
        print(f"cut {self.writes} {self.flushes} {self.lost} {self.kept}", flush=True)


def attributes(node, disk):
    mode, size = (0o40755, 0) if node == 1 else (0o100600, disk.size)
    return struct.pack("<6Q10I", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, PAGE, 0)


def answer(disk, op, node, body):
    """The bytes of the answer; None: none is awaited."""
    if op in (FORGET, BATCH_FORGET, INTERRUPT):
        return None
    if op == INIT:
        major, minor, readahead, _ = struct.unpack_from("<4I", body)
        return struct.pack("<4I2H2I2H8I", major, min(minor, 31), readahead, BIG_WRITES | MAX_PAGES, 16, 12, WRITE_MAX, 1, WRITE_MAX // PAGE, *[0] * 9)
    if op == LOOKUP:
        if node != 1 or body.rstrip(b"\0") != b"disk":
            raise OSError(errno.ENOENT, "no such name")
        return struct.pack("<4QII", 2, 0, 1 << 30, 1 << 30, 0, 0) + attributes(2, disk)
    if op == GETATTR:
        return struct.pack("<QII", 1 << 30, 0, 0) + attributes(node, disk)
    if op in (OPEN, OPENDIR):
        return struct.pack("<QII", 0, DIRECT_IO, 0)
    if op == READ:
        _, offset, size = struct.unpack_from("<QQI", body)
        return disk.read(offset, size)
    if op == WRITE:
        _, offset, size = struct.unpack_from("<QQI", body)
        disk.write(offset, body[40 : 40 + size])
        return struct.pack("<II", size, 0)
    if op == FSYNC:
        disk.flush()
        return b""
    if op == STATFS:
        return bytes(80)
    if op in (RELEASE, RELEASEDIR, FLUSH, READDIR, DESTROY):
        return b""
    raise OSError(errno.ENOSYS, "not of a disk")


def serve_one(fuse, disk, room):
    try:
        count = os.readv(fuse, [room])
    except OSError as error:
        if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
            return True
        return False  # ENODEV: unmounted
    _, op, unique, node = struct.unpack_from("<IIQQ", room)
    try:
        said, status = answer(disk, op, node, memoryview(room)[40:count].toreadonly() if op == WRITE else bytes(room[40:count])), 0
    except OSError as error:
        said, status = b"", -error.errno
    if said is not None:
        try:
            os.writev(fuse, [struct.pack("<IiQ", 16 + len(said), status, unique), said])
        except OSError as error:
            if error.errno != errno.ENOENT:  # who asked is gone
                return False
    return op != DESTROY


def obey(line, disk):
    words = line.split()
    if words[:1] == ["after"]:
        disk.cut_at = (words[1], getattr(disk, words[1]) + int(words[2]))
    elif words == ["cut"]:
        disk.cut()
    print(f"{line}: {disk.writes} {disk.flushes}", flush=True)
    return words != ["end"]


def main():
    image, folder, seed, keep = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    disk = Disk(image, seed, keep)
    fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,max_read={WRITE_MAX}"
    if libc.mount(b"powerdisk", os.fsencode(folder), b"fuse.powerdisk", 0, options.encode()) != 0:
        sys.exit(f"cannot mount FUSE: {os.strerror(ctypes.get_errno())}")
    os.set_blocking(fuse, False)
    room = bytearray(WRITE_MAX + 8192)
    wait = selectors.DefaultSelector()
    wait.register(fuse, selectors.EVENT_READ)
    wait.register(0, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in wait.select():
            if key.fd == 0:
                line = sys.stdin.readline().strip()
                if not line or not obey(line, disk):
                    return
            elif not serve_one(fuse, disk, room):
                return


if __name__ == "__main__":
    main()
