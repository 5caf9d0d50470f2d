#!/usr/bin/env python3
"""Half-open connections from a thousand networks of the loopback. halfopen.py PORT COUNT HELLO-FILE

Holds COUNT connections to 127.0.0.1:PORT from 1,000 networks 127.x.y.0/24: silent, one byte, a piece of a rail's greeting, half of a TLS
greeting, and a whole one (HELLO-FILE) after which nothing comes. Whoever is shown out is replaced at once. Out: `standing` when all were made
once. `halfopen.py record PORT HELLO-FILE` writes what the first client that comes says first. Never proves anything.
"""

import collections
import resource
import socket
import sys

if sys.argv[1] == "record":
    ear = socket.create_server(("127.0.0.1", int(sys.argv[2])))
    print("ready", flush=True)
    conn = ear.accept()[0]
    data = b""
    while len(data) < 5 or len(data) < 5 + int.from_bytes(data[3:5], "big"):
        data += conn.recv(65536)
    open(sys.argv[3], "wb").write(data)
    sys.exit()

port, count = int(sys.argv[1]), int(sys.argv[2])
hello = open(sys.argv[3], "rb").read()
words = [b"", hello[:1], b"LHRL", hello[:700], hello]
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = collections.deque()
number = 0
while True:
    network, kind = 1 + number % 1000, number // 1000 % len(words)
    number += 1
    conn = socket.socket()
    try:
        conn.bind((f"127.{network >> 8}.{network & 255}.{1 + number // 1000 % 250}", 0))
        conn.settimeout(5)
        conn.connect(("127.0.0.1", port))
        if words[kind]:
            conn.send(words[kind])
        held.append(conn)
    except OSError:
        conn.close()
    if len(held) > count:
        held.popleft().close()
    if number == count:
        print("standing", len(held), flush=True)
