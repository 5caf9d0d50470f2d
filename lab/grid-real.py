#!/usr/bin/env python3
"""Sixty cells of links and jobs: TCP, UDP and `auto` in turn, and whether `auto` took what was right.

For: `make grid-real`, by hand; the promise that leaving the choice to the program costs nothing.
In and out: LONGHAUL (the binary), CELLS (a pattern: only those whose name has it), ROUNDS (1), OUT (target/bench/grid-real) -> a line for each
cell, OUT.json and OUT.html; `keep NAME` makes NAME.json and NAME.md of the last run (bench/results); exit code 1 if `auto` got less than 0.95 of the better of both in more than one cell of twenty, or 0.99 in the median.
Invariants: every job has hosts of its own, so nothing of the one before is in it; the order of the three turns with the cell; files lie in memory;
a cell below 0.95 is played twice more, all three transports, and its medians count; jobs of some milliseconds are played nine times; nothing is left
behind.
Absent on purpose: other programs (bench/race), the model (proto/src/session/transport/forecast.rs), rounds enough for a verdict on one cell.
"""

import contextlib
import json
import mmap
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LONGHAUL = os.environ.get("LONGHAUL", str(ROOT / "target/longhaul"))
TRANSPORTS = ["tcp", "udp", "auto"]
# A job that is not done by then has lost: nobody waits for the slower of both without end.
PATIENCE_S = 60
MB = 1_000_000
# A job of some hundredths of a second is as long as one pause of the scheduler: of so many the median is taken.
QUICK_BYTES, QUICK_ROUNDS = 1_000_000, 9
# Free memory that a run touches before it begins, at most, in MiB. A virtual machine's host gives it a page when it is first written to: 3.2 s a GiB instead of
# 0.6, measured, which fell upon whichever job came to such pages first (1000 MB at MTU 9000: 0.6 to 2 s in all three columns; touched, 0.57 to 0.76).
TOUCHED_MIB = 8192
# What is the least that `auto` may get of the better of both, in so many cells, and in the median.
SHARE_MIN, CELLS_BELOW, MEDIAN_MIN = 0.95, 0.05, 0.99


def cell(name, where, words="", megabytes=1, rate=0, tc="", mtu=1500, pull=False, blocked=False, loss=0):
    """`where`: loop, veth or tun. `rate`: of the narrowest link, Mbit/s; 0: the hosts are."""
    return dict(name=name, where=where, words=words, bytes=int(megabytes * MB), rate=rate * 1e6, tc=tc, mtu=mtu, pull=pull, blocked=blocked, loss=loss)


def tun(kind, rate, rtt, megabytes, extra="", **more):
    """A link of the emulator; `rate` 0: none."""
    words = f"rate={rate}Mbit rtt={rtt}ms {extra}" if rate else f"rtt={rtt}ms {extra}"
    size = "1 MB" if megabytes == 1 else f"{megabytes} MB"
    name = f"{kind}: {f'{rate} Mbit/s' if rate else 'no bound'}, {rtt} ms{', ' + extra.strip() if extra.strip() else ''}, {size}"
    for word, value in (("pull", more.get("pull")), ("UDP blocked", more.get("blocked"))):
        name += f", {word}" if value else ""
    return cell(name, "tun", words, megabytes, rate, **more)


def policed(rate, burst, rtt, megabytes):
    words = f"rtt={rtt}ms police={rate}Mbit/{burst}KiB"
    return cell(f"policer: {rate} Mbit/s, {burst} KiB, {rtt} ms, {megabytes} MB", "tun", words, megabytes, rate)


def lan(name, megabytes, tc="", rate=0, mtu=1500, **more):
    """Two hosts on one wire of the kernel's; `tc`: its queueing discipline at both ends."""
    more_words = ", pull" if more.get("pull") else ", UDP blocked" if more.get("blocked") else ""
    return cell(f"veth: {name}, MTU {mtu}, {megabytes} MB{more_words}", "veth", "", megabytes, rate, tc, mtu, **more)


def htb(rate):
    return f"htb default 1; class add dev lh0 parent 1: classid 1:1 htb rate {rate}mbit burst 256k cburst 256k"


def tbf(rate):
    return f"tbf rate {rate}mbit burst 256k latency 20ms"


def cells():
    clean = [(20, 30, 8), (100, 10, 40), (100, 40, 40), (100, 150, 50), (155, 90, 60), (155, 550, 80), (300, 40, 120), (500, 20, 200)]
    clean += [(1000, 2, 250), (1000, 50, 250), (1000, 100, 250)]
    lossy = [(45, 60, 2, 16), (100, 30, 0.1, 40), (100, 150, 0.5, 6), (155, 90, 1, 40), (155, 200, 0.1, 40), (300, 100, 5, 60), (500, 50, 1, 150)]
    lossy += [(1000, 20, 0.1, 250), (100, 2, 0.5, 40), (100, 40, 1, 1), (155, 150, 0.5, 1)]
    return [
        *(cell(f"loopback: {size} MB", "loop", megabytes=size) for size in (1, 1000)),
        *(lan("no bound", size) for size in (1, 1000)),
        *(lan("no bound", size, mtu=9000) for size in (1, 1000)),
        lan("no bound", 1000, pull=True),
        *(lan("htb 1 Gbit/s", size, htb(1000), 1000) for size in (1, 250)),
        *(lan("tbf 100 Mbit/s", size, tbf(100), 100) for size in (1, 40)),
        *(lan("htb 5 Gbit/s", 700, htb(5000), 5000, mtu) for mtu in (1500, 9000)),
        *(tun("tun", 0, 0.2, size) for size in (1, 250)),
        *(tun("tun", rate, 0.5, size) for rate, size in ((1000, 1), (1000, 250))),
        tun("tun", 1000, 1.5, 250, "mtu=9000"),
        *(tun("WAN", *it) for it in clean),
        *(tun("WAN", rate, rtt, 1) for rate, rtt in ((100, 40), (100, 150), (155, 550), (1000, 20), (20, 30))),
        *(tun("loss", rate, rtt, size, f"loss={loss}%", loss=loss) for rate, rtt, loss, size in lossy),
        tun("jitter", 100, 30, 40, "jitter=2ms"),
        *(policed(*it) for it in ((20, 64, 60, 8), (50, 64, 30, 20), (100, 256, 20, 40), (100, 64, 2, 40), (200, 1024, 5, 80), (50, 64, 30, 1))),
        *(lan("no bound", size, blocked=True) for size in (1, 1000)),
        *(tun("WAN", 100, 40, size, blocked=True) for size in (1, 40)),
        tun("loss", 500, 20, 150, "loss=0.1%", blocked=True, loss=0.1),
        *(tun("WAN", *it, pull=True) for it in ((100, 40, 40), (1000, 20, 250))),
        tun("loss", 155, 90, 40, "loss=1%", pull=True, loss=1),
    ]


def main():
    if sys.argv[1:2] == ["inside"]:
        return inside(json.loads(sys.argv[2]))
    rounds, out = int(os.environ.get("ROUNDS", "1")), pathlib.Path(os.environ.get("OUT", ROOT / "target/bench/grid-real"))
    if sys.argv[1:2] == ["keep"]:
        return keep(json.loads(out.with_suffix(".json").read_text()), pathlib.Path(sys.argv[2]))
    wanted = [it for it in cells() if re.search(os.environ.get("CELLS", "."), it["name"])]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="longhaul-grid.", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    results, began = [], time.time()
    touch_memory()
    print(f"{len(wanted)} cells, load {os.getloadavg()[0]:.1f}; seconds of the whole command: tcp, udp, auto; share of the better of both; of the link; sent / file")
    try:
        for number, one in enumerate(wanted):
            played = {transport: [] for transport in TRANSPORTS}
            is_quick = one["bytes"] <= QUICK_BYTES and not re.search(r"\d\d ms", one["name"])
            play(one, played, number, max(rounds, QUICK_ROUNDS) if is_quick else rounds, folder)
            if judged(one, played)["share"] < SHARE_MIN:
                play(one, played, number + 1, 2, folder)
            results.append(judged(one, played))
            print(line(results[-1]), flush=True)
    except KeyboardInterrupt:
        print("stopped: what was measured is kept")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return verdict(results, out, time.time() - began)


def touch_memory():
    """Writes to each page of half of the free memory once, and gives it back."""
    free_kib = int(re.search(r"^MemFree: +(\d+)", pathlib.Path("/proc/meminfo").read_text(), re.M)[1])
    length = min(free_kib // 2048, TOUCHED_MIB) << 20
    if length:
        with mmap.mmap(-1, length) as memory:
            for at in range(0, length, mmap.PAGESIZE):
                memory[at] = 1


def play(one, played, number, rounds, folder):
    """All transports, in turn, so often."""
    for again in range(rounds):
        turn = (number + again) % 3
        for transport in TRANSPORTS[turn:] + TRANSPORTS[:turn]:
            played[transport].append(job(one, transport, folder))


def job(one, transport, folder):
    """One job between hosts of its own: what `inside` wrote."""
    for name in ("home-a", "home-b", "from", "to"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    with open(folder / "from/file", "wb") as file, open("/dev/urandom", "rb") as chance:
        for at in range(0, one["bytes"], 8 * MB):
            file.write(chance.read(min(8 * MB, one["bytes"] - at)))
    told = folder / "told.json"
    told.unlink(missing_ok=True)
    request = dict(one, transport=transport, folder=str(folder), told=str(told), prefix_b=[])
    with hosts(one, request) as enter:
        words = [*enter, sys.executable, __file__, "inside", json.dumps(request)]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S + 60)
    if not told.exists():
        sys.exit(f"{one['name']}, {transport}: {done.stdout[-500:]}{done.stderr[-1500:]}")
    result = json.loads(told.read_text())
    result["late"] = "did not get the processor" in done.stderr
    return result


@contextlib.contextmanager
def hosts(one, request):
    """Makes them; yields the words that put a command on host a, and says in `request` how host b is entered."""
    if one["where"] == "loop":
        request["address"] = "127.0.0.1"
        yield []
    elif one["where"] == "tun":
        yield [LONGHAUL, "lab", "run", "-q", "--link", one["words"], "--"]
    else:
        with subprocess.Popen([LONGHAUL, "lab", "hosts"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as made:
            try:
                facts = dict(word.split("=", 1) for word in made.stdout.readline().split() if "=" in word)
                enter = {side: ["nsenter", "-t", facts[f"HOLDER_{side}"], "-n", "-m", "--"] for side in "AB"}
                shape(one, enter)
                request.update(address=facts["ADDR_B"], prefix_b=enter["B"])
                yield enter["A"]
            finally:
                made.terminate()


def shape(one, enter):
    """MTU, queueing discipline and congestion control of a host's wire: the machine's own is what a host has in the field."""
    machine = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    for words in enter.values():
        subprocess.run([*words, "ip", "link", "set", "lh0", "mtu", str(one["mtu"])], check=True)
        subprocess.run([*words, "sh", "-c", f"echo {machine} >/proc/sys/net/ipv4/tcp_congestion_control"], check=True)
        if one["tc"]:
            root, *more = one["tc"].split("; ")
            handle = "handle 1: " if more else ""
            for command in (f"qdisc add dev lh0 root {handle}{root}", *more):
                # HTB warns of its quantum, which is of no matter where there is one class.
                subprocess.run([*words, "tc", *command.split()], check=True, stderr=subprocess.DEVNULL)


def inside(request):
    """On host a: the daemon on host b, one copy, and what the kernel counted."""
    folder, address = pathlib.Path(request["folder"]), request.get("address") or os.environ["LONGHAUL_LAB_B"]
    on_b = request["prefix_b"] if request["where"] != "tun" else [LONGHAUL, "lab", "on", "b", "--"]
    if request["blocked"]:
        subprocess.run([*on_b, "ip", "rule", "add", "ipproto", "udp", "blackhole"], check=True)
    serve = [*on_b, "env", f"LONGHAUL_HOME={folder}/home-b", LONGHAUL, "serve", "--listen", f"{address}:7447", "--ticket"]
    serve += ["--root", str(folder / ("from" if request["pull"] else "to"))]
    with subprocess.Popen(serve, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as daemon:
        try:
            url = daemon.stdout.readline().strip()
            ends = [f"{url}file", str(folder / "to")] if request["pull"] else [str(folder / "from/file"), url]
            # What nobody says is what most jobs get.
            named = [] if request["transport"] == "auto" else ["--transport", request["transport"]]
            words = [LONGHAUL, "cp", "--json", *named, *ends]
            before, began = wire_bytes(request), time.monotonic()
            try:
                done = subprocess.run(words, env=os.environ | {"LONGHAUL_HOME": f"{folder}/home-a"}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S)
                lines, code = [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")], done.returncode
            except subprocess.TimeoutExpired:
                lines, code = [], None
            seconds, sent = time.monotonic() - began, wire_bytes(request) - before
        finally:
            daemon.terminate()
    if code not in (0, None):
        sys.exit(f"exit code {code}: {done.stderr[-500:]} {done.stdout[-300:]}")
    report = lines[-1] if lines else {}
    said = [it.get("text", "") for it in lines if "does not get through" in json.dumps(it)]
    cpu = (report.get("cpu_seconds_local") or 0) + (report.get("cpu_seconds_remote") or 0)
    told = dict(seconds=seconds if code == 0 else None, sent=sent, over=report.get("transport"), cpu_s=cpu, fell_back=len(said), goodput_bps=report.get("goodput_bps"), load=os.getloadavg()[0])
    pathlib.Path(request["told"]).write_text(json.dumps(told))
    return 0


def wire_bytes(request):
    """Bytes that left or reached this host, as the data goes."""
    total = 0
    for text in pathlib.Path("/proc/self/net/dev").read_text().splitlines()[2:]:
        name, counts = text.split(":", 1)
        if (name.strip() == "lo") == (request["where"] == "loop"):
            total += int(counts.split()[0 if request["pull"] else 8])
    return total


def judged(one, played):
    """A cell in figures: medians of its rounds."""
    def middle(transport):
        return statistics.median(it["seconds"] or PATIENCE_S for it in played[transport])
    seconds = {transport: middle(transport) for transport in TRANSPORTS}
    auto = played["auto"][-1]
    return {
        "name": one["name"],
        "seconds": seconds,
        "share": min(seconds["tcp"], seconds["udp"]) / seconds["auto"],
        "of_link": one["bytes"] * 8 / seconds["auto"] / one["rate"] if one["rate"] else None,
        "sent_per_file": statistics.median(it["sent"] for it in played["auto"]) / one["bytes"],
        "over": auto["over"],
        "fell_back": auto["fell_back"],
        "got_bps": auto["goodput_bps"],
        "cpu_s": {transport: statistics.median(it["cpu_s"] for it in played[transport]) for transport in TRANSPORTS},
        "rounds": len(played["auto"]),
        "late": any(it["late"] for runs in played.values() for it in runs),
        "load": auto["load"],
        "played": played,
    }


def line(it):
    took = " ".join(f"{it['seconds'][transport]:6.2f}" for transport in TRANSPORTS)
    link = f"{it['of_link']:5.2f}" if it["of_link"] else "    -"
    flags = f"{', fell back' if it['fell_back'] else ''}{', late' if it['late'] else ''}{f', {it_rounds} rounds' if (it_rounds := it['rounds']) > 1 else ''}"
    return f"{it['name']:58} {took}  {it['share']:5.2f}  {link}  {it['sent_per_file']:5.2f}  {it['over']}{flags}"


def verdict(results, out, took_s):
    """The last lines, the record and the page; the exit code."""
    if not results:
        return 1
    shares = [it["share"] for it in results]
    below, middle = sum(share < SHARE_MIN for share in shares), statistics.median(shares)
    record = dict(date=time.strftime("%Y-%m-%d"), kernel=os.uname().release, cores=os.cpu_count(), seconds=took_s, median=middle, below=below, cells=results)
    is_good = below <= CELLS_BELOW * len(shares) and middle >= MEDIAN_MIN
    print(f"{words(record)}: {'as promised' if is_good else 'NOT as promised'}")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(json.dumps(record, indent=1))
    out.with_suffix(".html").write_text(page(record))
    print(f"written: {out}.json and .html")
    return 0 if is_good else 1


def words(record):
    least = min(it["share"] for it in record["cells"])
    return f"{len(record['cells'])} cells in {record['seconds'] / 60:.0f} min: auto gets {record['median']:.3f} of the better of both in the median, {least:.2f} at least; {record['below']} below {SHARE_MIN}"


def keep(record, to):
    """What is kept of a run: no single rounds; JSON, and a page that people read."""
    cells = [{key: value for key, value in it.items() if key not in ("played", "cpu_s", "got_bps")} for it in record["cells"]]
    rounded = json.loads(json.dumps(dict(record, cells=cells)), parse_float=lambda it: round(float(it), 3))
    rows = ["| cell | TCP, s | UDP, s | auto, s | of the better | of the link | sent ÷ file | over | rounds |", "|---|---|---|---|---|---|---|---|---|"]
    for it in record["cells"]:
        values = [f"{it['seconds'][transport]:.2f}" for transport in TRANSPORTS] + [f"{it['share']:.2f}", f"{it['of_link']:.2f}" if it["of_link"] else "", f"{it['sent_per_file']:.2f}"]
        rows.append(f"| {it['name']} | {' | '.join(values)} | {it['over']}{', fell back' if it['fell_back'] else ''} | {it['rounds']} |")
    text = f"""# Benchmark `grid-real`

TCP, UDP and `--transport auto`, the default, over sixty real links and jobs, in turn, each job between hosts of its own; seconds of the whole command. {record["date"]}, Linux {record["kernel"]}, {record["cores"]} cores: {words(record)}.
Promised: 0.95 of the better of both in all cells but three, 0.99 in the median.

{chr(10).join(rows)}

Make it: `make grid-real`, then `lab/grid-real.py keep bench/results/grid-real`. Why it is as it is: [039](../../docs/design/039-auto-by-default.md).
"""
    to.with_suffix(".json").write_text(json.dumps(rounded, separators=(",", ":"), ensure_ascii=False) + "\n")
    to.with_suffix(".md").write_text(text)
    return 0


def page(record):
    style = re.search(r'const STYLE: &str = "\\\n(.*?)";', (ROOT / "text/src/page.rs").read_text(), re.DOTALL).group(1).replace("\\\n", "")
    head = "".join(f"<th>{it}</th>" for it in ("cell", "TCP, s", "UDP, s", "auto, s", "of the better", "of the link", "sent ÷ file", "over", "rounds"))
    rows = ""
    for it in record["cells"]:
        flag = ' class="flag"' if it["share"] < SHARE_MIN else ""
        link = f"{it['of_link']:.2f}" if it["of_link"] else ""
        values = [f"{it['seconds'][transport]:.2f}" for transport in TRANSPORTS]
        rows += f'<tr><td style="text-align:left">{it["name"]}</td>' + "".join(f"<td>{value}</td>" for value in values)
        rows += f"<td{flag}>{it['share']:.2f}</td><td>{link}</td><td>{it['sent_per_file']:.2f}</td><td>{it['over']}{', fell back' if it['fell_back'] else ''}</td><td>{it['rounds']}</td></tr>\n"
    title = "TCP, UDP and auto over sixty links"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1"><title>{title}, {record["date"]}</title>'
        f'<style>{style}</style></head><body><main>\n<h1>{title}</h1><p class="soft">{record["date"]}, Linux {record["kernel"]}, {record["cores"]} cores</p>\n<p>{words(record)}.</p>\n'
        f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div></main></body></html>\n'
    )


if __name__ == "__main__":
    sys.exit(main())
