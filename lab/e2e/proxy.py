#!/usr/bin/env python3
"""A wire with faults: a TCP proxy that flips a bit or cuts, for the end-to-end checks.

In, out:  proxy.py LISTEN_IP:PORT TARGET_IP:PORT [flip-rail=N | flip-control=N | stretch-control=N | cut-rail=N | record=FILE]; prints `ready`, then one word
          for each fault it made. FILE gets all that crosses, both ways. N counts payload bytes from the initiator to the acceptor (or back, whichever carries more).
          stretch-control: in what comes back, the first record of TLS from byte N on says that it is 4096 bytes longer.
Invariants: only the first rail (first byte `L`) or the first control session (first byte 0x16) is harmed, and only once.
"""

import socket
import sys
import threading

LOCK = threading.Lock()
DONE = set()
RECORD = []


def once(word):
    with LOCK:
        fresh = word not in DONE
        DONE.add(word)
    if fresh:
        print(word, flush=True)
    return fresh


def pump(source, target, kind, faults, forward):
    place, record = 0, 0
    try:
        while True:
            data = source.recv(1 << 18)
            if not data:
                break
            for what, at in faults:
                wanted = b"L" if what.endswith("rail") else b"\x16"
                if kind != wanted or not place <= at < place + len(data):
                    continue
                if what.startswith("flip") and once("flipped"):
                    data = bytearray(data)
                    data[at - place] ^= 0x10
                if what.startswith("stretch"):
                    continue
                if what.startswith("cut") and once("cut"):
                    source.close()
                    target.close()
                    return
            while kind == b"\x16" and record < place + len(data):
                if record + 5 > place + len(data):
                    more = source.recv(record + 5 - place - len(data), socket.MSG_WAITALL)
                    data = bytes(data) + more
                length = int.from_bytes(data[record - place + 3 : record - place + 5], "big")
                for what, at in faults:
                    if what.startswith("stretch") and not forward and record >= at and length < 4096 and once("stretched"):
                        data = bytearray(data)
                        data[record - place + 3] |= 0x10
                record += 5 + length
            place += len(data)
            if RECORD:
                with LOCK:
                    RECORD[0].write(data)
            target.sendall(data)
    except OSError:
        pass
    try:
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def serve(conn, target, faults):
    try:
        first = conn.recv(1, socket.MSG_PEEK)
        far = socket.create_connection(target, timeout=10)
        far.settimeout(None)
    except OSError:
        conn.close()
        return
    for a, b, forward in ((conn, far, True), (far, conn, False)):
        threading.Thread(target=pump, args=(a, b, first, faults, forward), daemon=True).start()


def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def main():
    listen, target = address(sys.argv[1]), address(sys.argv[2])
    words = [word.split("=", 1) for word in sys.argv[3:]]
    RECORD.extend(open(value, "wb", buffering=0) for what, value in words if what == "record")
    faults = [(what, int(value)) for what, value in words if what != "record"]
    door = socket.create_server(listen, backlog=128)
    print("ready", flush=True)
    while True:
        conn, _ = door.accept()
        threading.Thread(target=serve, args=(conn, target, faults), daemon=True).start()


if __name__ == "__main__":
    main()
