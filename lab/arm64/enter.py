#!/usr/bin/env -S python3 -B
"""Runs a command where the kernel starts arm64 programs by qemu: enter.py QEMU CMD...

In, out:    a static qemu-aarch64, a command -> the command's exit status.
Invariants: the rest of the machine runs them no more than before: the kernel's table (binfmt_misc) is that of a user namespace made here, which Linux has
            since 6.7, and ends with the command. Users are those of the machine, one for one; the network is a loopback of its own, below which
            tests may make more (the machine's belongs to users outside).
Absent on purpose: newuidmap(1), which few machines have: root writes the maps itself.
"""

import ctypes
import os
import subprocess
import sys

# CLONE_NEWUSER, CLONE_NEWNET and CLONE_NEWNS of linux/sched.h.
NEW_ALL = 0x1000_0000 | 0x4000_0000 | 0x0002_0000
PRIVATE = 0x4000 | 0x40000  # MS_REC, MS_PRIVATE of linux/mount.h
TABLE = "/proc/sys/fs/binfmt_misc"
# The first 20 bytes of a 64-bit little-endian ELF file that is executable (type 2) or position independent (3), for machine 183; and which bits count.
MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"


def called(result: int, what: str) -> None:
    if result:
        raise SystemExit(f"{what}: {os.strerror(ctypes.get_errno())}\n  next: be root, on Linux 6.7 or later")


def map_users(pid: int) -> None:
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{name}", "w") as file:
            file.write("0 0 65536\n")


def enter(qemu: str, command: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    ready, is_ready = os.pipe()
    mapped, is_mapped = os.pipe()
    inside = os.fork()
    if inside:
        os.close(mapped)
        os.close(is_ready)
        # Nothing to read: it ended, and has said why.
        if os.read(ready, 1):
            map_users(inside)
            os.write(is_mapped, b"x")
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(inside, 0)[1]) & 255)
    os.close(ready)
    os.close(is_mapped)
    called(libc.unshare(NEW_ALL), "make a user namespace")
    os.write(is_ready, b"x")
    if not os.read(mapped, 1):
        raise SystemExit("the users could not be mapped")
    called(libc.mount(b"none", b"/", None, PRIVATE, None), "keep mounts to itself")
    called(libc.mount(b"binfmt_misc", TABLE.encode(), b"binfmt_misc", 0, None), "mount the kernel's table of programs")
    with open(f"{TABLE}/register", "w") as file:
        # F: the file is opened now, so that it is found in every root folder.
        file.write(f":longhaul-arm64:M::{MAGIC}:{MASK}:{qemu}:F")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    os.execvp(command[0], command)


if __name__ == "__main__":
    enter(sys.argv[1], sys.argv[2:])
