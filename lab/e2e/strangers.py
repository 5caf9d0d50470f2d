#!/usr/bin/env python3
"""Strangers at a daemon's door: connects that say nothing, nonsense, or one byte at a time. strangers.py HOST PORT COUNT

Out: `holding` when the first half-open connections stand, `done` at the end. Never authenticates; harms nothing but patience.
"""

import os
import random
import resource
import socket
import sys
import time

host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
room = min(count // 4, hard - 64)
rng = random.Random(1)
hello = bytes.fromhex("16030100f8010000f40303") + bytes(32)
words = [b"", b"L", b"\x16", b"GET / HTTP/1.1\r\n\r\n", hello, b"L" + bytes(200), b"\x16\x03\x01\xff\xff", b"L" + b"\xff" * 4096, b"SSH-2.0-x\r\n"]
held, refused = [], 0


def knock():
    global refused
    try:
        conn = socket.create_connection((host, port), timeout=3)
        return conn
    except OSError:
        refused += 1
        return None


for number in range(min(200, room)):
    conn = knock()
    if conn:
        held.append(conn)
print("holding", len(held), flush=True)
for number in range(count):
    conn = knock()
    if not conn:
        continue
    try:
        conn.setblocking(False)
        conn.send(rng.choice(words) if number % 3 else os.urandom(rng.randrange(1, 600)))
    except OSError:
        pass
    if number % 4 == 0 and len(held) < room:
        held.append(conn)
    else:
        conn.close()
    if number % 500 == 0:
        for slow in rng.sample(held, min(50, len(held))):  # slow-loris: one more byte now and then
            try:
                slow.send(b"\x16")
            except OSError:
                pass
print("done", count, "knocks,", refused, "not let in,", len(held), "held", flush=True)
time.sleep(1)
