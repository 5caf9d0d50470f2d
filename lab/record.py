#!/usr/bin/env python3
"""Records a real `longhaul cp` in a terminal of its own and draws it as SVG: the picture in README.md.

In, out:  record.py [OUT.svg] [--longhaul PATH] [--mib N] -> a daemon and a client on this machine, made-up files, docs/terminal.svg.
          The picture holds the screen in the middle of the copy and the one after it.
Invariants: every character and number is the program's own, but for three names: the ticket, the temporary folder and the address.
          Nothing is left behind.
Absent on purpose: timing and cursor animation; more of a terminal than this program uses (indicatif's cursor moves, SGR colours).
"""
import argparse
import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import tempfile
import termios
import time
from html import escape

COLUMNS, ROWS = 110, 60
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COLOURS = {31: "#ff7b72", 32: "#7ee787", 33: "#e3b341", 34: "#79c0ff", 35: "#d2a8ff", 36: "#76e3ea", 90: "#8b949e"}


class Screen:
    """Lines of cells (character, style); a cursor."""

    def __init__(self):
        self.lines, self.row, self.column, self.style = [[]], 0, 0, ()

    def put(self, letter):
        if self.column >= COLUMNS:
            self.down()
            self.column = 0
        line = self.lines[self.row]
        line.extend([(" ", ())] * (self.column + 1 - len(line)))
        line[self.column] = (letter, self.style)
        self.column += 1

    def down(self, count=1):
        self.row += count
        self.lines.extend([] for _ in range(self.row + 1 - len(self.lines)))

    def escape(self, numbers, kind):
        first = int(numbers.split(";")[0] or 0) if numbers.replace(";", "").isdigit() or not numbers else 0
        if kind == "A":
            self.row = max(0, self.row - max(1, first))
        elif kind == "B":
            self.down(max(1, first))
        elif kind == "K":
            self.lines[self.row] = [] if first == 2 else self.lines[self.row][: self.column]
        elif kind == "m":
            codes = [int(it) for it in numbers.split(";") if it.isdigit()] or [0]
            for code in codes:
                self.style = () if code == 0 else self.style + (code,)

    def feed(self, text):
        for found in re.finditer(r"\x1b\[([0-9;?]*)([A-Za-z])|([\s\S])", text):
            numbers, kind, letter = found.groups()
            if kind:
                self.escape(numbers, kind)
            elif letter == "\r":
                self.column = 0
            elif letter == "\n":
                self.down()
            elif letter >= " ":
                self.put(letter)

    def shown(self):
        kept = [list(line) for line in self.lines]
        while kept and not "".join(letter for letter, _ in kept[-1]).strip():
            kept.pop()
        return kept


def record(argv, cwd, env):
    """Runs a command in a terminal; gives (seconds, what it wrote) and its exit code."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execve(argv[0], argv, env)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    written, began = [], time.monotonic()
    while True:
        try:
            some = os.read(terminal, 65536)
        except OSError:
            break
        if not some:
            break
        written.append((time.monotonic() - began, some))
    return written, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def text_of(line):
    return "".join(letter for letter, _ in line)


def spans(line):
    """One line as tspans, neighbours of one style together."""
    out, at = [], 0
    while at < len(line):
        style, end = line[at][1], at
        while end < len(line) and line[end][1] == style:
            end += 1
        colour = next((COLOURS[code] for code in style if code in COLOURS), None)
        attributes = (f' fill="{colour}"' if colour else "") + (' font-weight="bold"' if 1 in style else "")
        words = escape(text_of(line[at:end]))
        out.append(f"<tspan{attributes}>{words}</tspan>" if attributes else words)
        at = end
    return "".join(out)


def svg(lines):
    wide, high = COLUMNS * 7.83 + 32, len(lines) * 18 + 56
    rows = "\n".join(
        f'<text x="16" y="{52 + 18 * number}" xml:space="preserve">{line}</text>' for number, line in enumerate(lines) if line
    )
    dots = "".join(f'<circle cx="{20 + 18 * n}" cy="18" r="6" fill="{c}"/>' for n, c in enumerate(["#ff5f56", "#ffbd2e", "#27c93f"]))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high}" role="img" '
        f'aria-label="A terminal: longhaul cp while it runs, and its report">\n'
        f'<rect width="{wide:.0f}" height="{high}" rx="8" fill="#0d1117"/>{dots}\n'
        '<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="13" fill="#e6edf3">\n'
        f"{rows}\n</g>\n</svg>\n"
    )


def main():
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("out", nargs="?", default=f"{ROOT}/docs/terminal.svg")
    parse.add_argument("--longhaul", default=f"{ROOT}/target/longhaul")
    parse.add_argument("--mib", type=int, default=1500, help="size of the large file")
    asked = parse.parse_args()
    longhaul = os.path.abspath(asked.longhaul)
    work = tempfile.mkdtemp(prefix="longhaul-record-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    env = {"PATH": "/usr/bin:/bin", "TERM": "xterm-256color", "LANG": "C.UTF-8", "LONGHAUL_HOME": f"{work}/home"}
    daemon = None
    try:
        os.makedirs(f"{work}/here/results")
        os.makedirs(f"{work}/data")
        for number in range(200):
            with open(f"{work}/here/results/run-{number:03}.dat", "wb") as file:
                file.write(os.urandom(100_000))
        with open(f"{work}/here/huge.img", "wb") as file:
            for _ in range(asked.mib):
                file.write(os.urandom(1 << 20))
        daemon = subprocess.Popen(
            [longhaul, "serve", "--root", f"{work}/data", "--listen", "127.0.0.1:0", "--ticket"],
            env=env | {"LONGHAUL_HOME": f"{work}/there"}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        address = daemon.stdout.readline().strip()
        argv = [longhaul, "cp", "results", "huge.img", address]
        written, code = record(argv, f"{work}/here", env)
    finally:
        if daemon:
            daemon.terminate()
            daemon.wait()
        shutil.rmtree(work)
    if code != 0:
        raise SystemExit(f"cp ended with {code}: {b''.join(some for _, some in written).decode(errors='replace')}")
    whole, frames, ends = Screen(), [], written[-1][0]
    for at, some in written:
        whole.feed(some.decode(errors="replace"))
        shown = whole.shown()
        if at <= ends * 0.7:
            frames.append(shown)
    # A redraw that was only half written is no screen that anybody saw: the last of the fullest ones.
    most = max((len(frame) for frame in frames), default=0)
    middle = next((frame for frame in reversed(frames) if len(frame) == most), [])

    def named(line):
        line = line.replace(escape(address), "longhaul://TICKET@192.0.2.7:5740/")
        return line.replace(f"{work}/home", "~/.config/longhaul").rstrip()

    lines = [f'<tspan fill="#7ee787">here$</tspan> longhaul cp {" ".join(argv[2:])}'.replace(address, "longhaul://TICKET@192.0.2.7:5740/")]
    lines += [named(spans(line)) for line in middle]
    lines += ['<tspan fill="#8b949e">… and when it is done:</tspan>'] + [named(spans(line)) for line in whole.shown()]
    with open(asked.out, "w") as file:
        file.write(svg(lines))
    print(asked.out)


if __name__ == "__main__":
    main()
