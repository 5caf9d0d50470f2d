#!/usr/bin/env python3
"""Forged, changed and repeated datagrams beside a live job. forger.py ADDRESS PEER PORT COUNT OUR_PORT|0

Runs on the host with ADDRESS as root. A third are random bytes from a socket of its own to PEER:PORT (0: none); the others are packets of the
running rail, seen on the wire and sent again from the same address and port: as they are, cut, with bits turned, with another number or kind.
Out: `forged N: random R, repeated P, changed C`. Has no key; harms nobody else's packets.
"""

import os
import random
import socket
import struct
import sys
import time

address, peer, port, count, own_port = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
rng = random.Random(5)
wire = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0003))
wire.settimeout(0.05)
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here, there = socket.inet_aton(address), socket.inet_aton(peer)
seen = []  # (source port, target port, payload) of the newest packets
done = {"random": 0, "repeated": 0, "changed": 0}


def look():
    """Takes what is on the wire now."""
    for _ in range(20):
        try:
            frame = wire.recv(65535)
        except OSError:
            return
        if len(frame) < 36 or frame[9] != 17 or frame[12:16] != here or frame[16:20] != there:
            continue
        at = (frame[0] & 15) * 4
        source, target = struct.unpack("!HH", frame[at : at + 4])
        if port not in (source, target):
            continue
        # Bursts leave as one frame that is cut later: the first packet's worth is enough.
        seen.append((source, target, frame[at + 8 : at + 8 + 1400]))
        del seen[:-64]


def send(source, target, payload):
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 0, 0, 0, 64, 17, 0, here, there)
    udp = struct.pack("!HHHH", source, target, 8 + len(payload), 0)
    try:
        raw.sendto(head + udp + payload, (peer, 0))
    except OSError:
        time.sleep(0.001)


def change(payload):
    out = bytearray(payload)
    way = rng.randrange(6)
    if way == 0:
        return bytes(out[: rng.randrange(len(out))])
    if way == 1:
        for _ in range(rng.randrange(1, 9)):
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    elif way == 2:
        out[4:8] = os.urandom(4)  # another number
    elif way == 3:
        out[0] = rng.choice(b"DCFLWKR\0")
    elif way == 4:
        out[8:16] = os.urandom(8)
    else:
        out += os.urandom(rng.randrange(1, 60))
    return bytes(out)


began = time.monotonic()
while sum(done.values()) < count and time.monotonic() - began < max(60, count / 20_000):
    look()
    for _ in range(100):
        if own_port == 0 and rng.randrange(3) == 0:
            try:
                plain.sendto(os.urandom(rng.choice([0, 1, 8, 63, 64, 1199, 1200, 1472])), (peer, port))
            except OSError:
                pass
            done["random"] += 1
        elif seen:
            source, target, payload = rng.choice(seen)
            if rng.randrange(2) and payload:
                send(source, target, change(payload))
                done["changed"] += 1
            else:
                send(source, target, payload)
                done["repeated"] += 1
print(f"forged {sum(done.values())}: random {done['random']}, repeated {done['repeated']}, changed {done['changed']}", flush=True)
