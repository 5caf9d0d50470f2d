#!/usr/bin/env python3
"""Distance and loss: the datagram rail beside TCP over links of `longhaul lab`, cell by cell of a grid.

For:      what share of a link each transport fills, by round trip, loss and rate; what it sends again, and what it costs.
In, out:  lists of round trips, losses and rates -> bench/results/<name>.json and one self-contained <name>.html.
Invariants: all transports of a cell run one after another on the same link, in turn over the rounds, for the same time, memory to
          memory; goodput is what the receiver took; a run that failed is shown with its reason and never left out.
Absent on purpose: third-party modules, disks (bench/peers.py), any change of the host: a cell's hosts go with its lab.
"""

import argparse
import datetime
import html
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PORT, IPERF_PORT = 5741, 5201
IP_BYTES = 1500
# Bytes of the user in a packet of IP_BYTES: less IPv4, UDP and our head (28 + 32); less IPv4, TCP and its timestamps (52).
OURS_BYTES, TCP_BYTES = 1440, 1448
# Above this the emulator, both ends and their kernels on two cores are themselves the limit.
RATE_MAX = 2e9


def number(text, units):
    for unit, scale in units.items():
        if text.endswith(unit):
            return float(text[: -len(unit)]) * scale
    return float(text)


def seconds_of(text):
    return number(text, {"us": 1e-6, "ms": 1e-3, "s": 1})


def rate_of(text):
    return number(text, {"Gbit": 1e9, "Mbit": 1e6, "kbit": 1e3})


def loss_of(text):
    return number(text, {"%": 0.01})


def contestants(args):
    entries = [{"name": f"longhaul packets, sealed ({law})", "kind": "ours", "law": law} for law in args.laws]
    for control in args.tcp:
        entries += [{"name": f"TCP {control.upper()} × {streams}", "kind": "iperf3", "control": control, "streams": streams} for streams in args.streams]
    return entries


# --- inside of the lab -------------------------------------------------------------------------


def ours(cell, entry, seconds):
    bdp = rate_of(cell["rate"]) / 8 * seconds_of(cell["rtt"])
    memory = min(1024, max(64, int(3 * bdp / (1 << 20)) + 32))
    argv = [cell["bin"], "bench", "net", "--server", f"{os.environ['LONGHAUL_LAB_B']}:{PORT}", "--udp", "--only", "packets, sealed", "--law", entry["law"],
            "--rounds", "1", "--in-one-go", "--seconds", f"{seconds}s", "--memory", f"{memory}MiB", "--packet", str(IP_BYTES - 28), "--json"]
    server = subprocess.Popen([cell["bin"], "lab", "on", "b", "--", cell["bin"], "bench", "net", "--listen", f"0.0.0.0:{PORT}"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.4)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds + 90)
        if done.returncode != 0:
            return {"why_not": done.stderr.strip()[-300:]}, argv
        line = json.loads(done.stdout)["lines"][0]
    finally:
        server.terminate()
        server.wait()
    sent = line["packets"]
    return {"gbps": line["gbps"], "share_of": OURS_BYTES / IP_BYTES, "cpu_s_per_gb": line["send_cpu_s_per_gb"] + line["recv_cpu_s_per_gb"],
            "again": (sent["repair_bytes"] + sent["copy_bytes"]) / max(1, sent["fresh_bytes"]), "copies": sent["copy_bytes"] / max(1, sent["fresh_bytes"]),
            "needless": line["packets_received"]["already_bytes"] / max(1, sent["fresh_bytes"]),
            "lost": sent["lost_packets"] / max(1, sent["packets"]), "tail_ms": sent["tail_ns"] / 1e6, "rtt_ms": sent["rtt_ns"] / 1e6}, argv


def iperf3(cell, entry, seconds):
    argv = ["iperf3", "-c", os.environ["LONGHAUL_LAB_B"], "-p", str(IPERF_PORT), "-t", str(int(seconds)), "-C", entry["control"], "-P", str(entry["streams"]), "-J"]
    server = subprocess.Popen([cell["bin"], "lab", "on", "b", "--", "iperf3", "-s", "-p", str(IPERF_PORT), "-1"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.4)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds + 90)
        report = json.loads(done.stdout or "{}")
        if done.returncode != 0 or "error" in report:
            return {"why_not": (report.get("error") or done.stderr).strip()[-300:]}, argv
    finally:
        server.terminate()
        server.wait()
    end, cpu = report["end"], report["end"]["cpu_utilization_percent"]
    size = max(1, end["sum_received"]["bytes"])
    return {"gbps": size * 8 / end["sum_received"]["seconds"] / 1e9, "share_of": TCP_BYTES / IP_BYTES,
            "cpu_s_per_gb": (cpu["host_total"] + cpu["remote_total"]) / 100 * end["sum_sent"]["seconds"] / (size / 1e9),
            "again": end["sum_sent"].get("retransmits", 0) * TCP_BYTES / size,
            "rtt_ms": statistics.median(s["sender"]["mean_rtt"] for s in end["streams"]) / 1e3}, argv


def inside(cell):
    """All rounds of a cell, on host a; prints one JSON line."""
    rows = [{"name": e["name"], "rounds": [], "why_not": []} for e in cell["entries"]]
    for turn in range(cell["rounds"]):
        for entry, row in zip(cell["entries"], rows):
            try:
                found, argv = (ours if entry["kind"] == "ours" else iperf3)(cell, entry, cell["seconds"])
                row["command"] = " ".join(["longhaul" if a == cell["bin"] else a for a in argv])
            except (subprocess.TimeoutExpired, OSError, ValueError, KeyError, IndexError) as why:
                found = {"why_not": f"{type(why).__name__}: {why}"[:300]}
            if "why_not" in found:
                row["why_not"].append(found["why_not"])
                print(f"    {turn + 1}/{cell['rounds']} {row['name']:<34} failed: {found['why_not']}", file=sys.stderr, flush=True)
                continue
            limit = rate_of(cell["rate"]) / 1e9 * (1 - loss_of(cell["loss"])) * found.pop("share_of")
            found["share"] = found["gbps"] / limit
            row["rounds"].append(found)
            print(f"    {turn + 1}/{cell['rounds']} {row['name']:<34} {1000 * found['gbps']:8.1f} Mbit/s {found['share']:5.0%} of the limit,"
                  f" sent again {found['again']:6.2%}, CPU {found['cpu_s_per_gb']:.2f} s/GB", file=sys.stderr, flush=True)
    for row in rows:
        for key in ("gbps", "share", "again", "copies", "needless", "cpu_s_per_gb", "tail_ms", "rtt_ms"):
            values = [r[key] for r in row["rounds"] if key in r]
            if values:
                row[key] = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    print(json.dumps(rows))


# --- outside -----------------------------------------------------------------------------------


def run_cell(args, rtt, loss, rate):
    seconds = max(args.seconds, min(args.seconds_max, args.trips * seconds_of(rtt)))
    cell = {"bin": args.bin, "rtt": rtt, "loss": loss, "rate": rate, "rounds": args.rounds, "seconds": round(seconds, 1), "entries": contestants(args)}
    result = {"rtt": rtt, "loss": loss, "rate": rate, "seconds": cell["seconds"], "round_trips": round(seconds / max(1e-9, seconds_of(rtt)))}
    argv = [args.bin, "lab", "run", "-q", "--rate", rate, "--rtt", rtt, "--loss", loss, "--seed", str(args.seed), "--",
            sys.executable, os.path.abspath(__file__), "--cell", json.dumps(cell)]
    print(f"  {rate}, {rtt}, loss {loss}: {cell['seconds']} s each", flush=True)
    load = os.getloadavg()[0]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    sys.stderr.write(done.stderr)
    words = [l for l in done.stderr.splitlines() if not l.startswith("    ")]
    rows = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 and done.stdout.strip() else []
    return {**result, "load": load, "lab_says": "\n".join(words)[-1500:], "rows": rows}


def colour(share):
    share = max(0.0, min(1.0, share))
    return f"hsl({round(120 * share)} 65% {round(88 - 22 * abs(share - 0.5))}%)"


def heat(result, name, rate):
    cells = [c for c in result["cells"] if c["rate"] == rate]
    trips = sorted({c["rtt"] for c in cells}, key=seconds_of)
    losses = sorted({c["loss"] for c in cells}, key=loss_of)
    lines = ["<tr><th>loss \\ round trip" + "".join(f"<th>{html.escape(t)}" for t in trips) + "</tr>"]
    for loss in losses:
        line = f"<tr><th>{html.escape(loss)}"
        for trip in trips:
            rows = [r for c in cells if (c["rtt"], c["loss"]) == (trip, loss) for r in c["rows"] if r["name"] == name]
            if rows and "share" in rows[0]:
                row = rows[0]
                failed = f", {len(row['why_not'])} failed" if row["why_not"] else ""
                line += (f'<td style="background:{colour(row["share"]["median"])}"><b>{row["share"]["median"]:.0%}</b><br>{1000 * row["gbps"]["median"]:.1f} Mbit/s'
                         f'<br>again {row["again"]["median"]:.2%}{failed}')
            else:
                why = rows[0]["why_not"][0] if rows and rows[0]["why_not"] else "not run"
                line += f'<td title="{html.escape(why)}">–<br>{html.escape(why[:40])}'
        lines.append(line + "</tr>")
    return f"<div><h3>{html.escape(name)}</h3><table>{''.join(lines)}</table></div>"


def page(result):
    rates = sorted({c["rate"] for c in result["cells"]}, key=rate_of)
    maps = "".join(f"<h2>{html.escape(rate)}/s</h2><div class=maps>" + "".join(heat(result, name, rate) for name in result["names"]) + "</div>" for rate in rates)
    lines = []
    for cell in result["cells"]:
        for row in cell["rows"]:
            def mid(key, form):
                return form.format(row[key]["median"]) if key in row else ""
            spread = f"{row['share']['min']:.0%}–{row['share']['max']:.0%}" if "share" in row else "; ".join(row["why_not"])
            texts = [cell["rate"], cell["rtt"], cell["loss"], row["name"], f"{cell['seconds']} s, {cell['round_trips']} trips, {len(row['rounds'])} rounds", f"{cell['load']:.1f}",
                     mid("gbps", "{:.4f}"), mid("share", "{:.0%}"), spread, mid("again", "{:.2%}"), mid("needless", "{:.2%}"), mid("tail_ms", "{:.0f}"), mid("rtt_ms", "{:.1f}"), mid("cpu_s_per_gb", "{:.2f}")]
            lines.append("<tr>" + "".join(f"<td>{html.escape(t)}" for t in texts) + "</tr>")
    heads = ["rate", "round trip", "loss", "transport", "measured", "load before", "Gbit/s", "of the limit", "spread", "sent again", "came twice", "tail, ms", "round trip seen, ms", "CPU s/GB"]
    facts = html.escape("; ".join(f"{k}: {v}" for k, v in result["machine"].items()))
    said = "".join(f"<li>{html.escape(c['rate'])}, {html.escape(c['rtt'])}, {html.escape(c['loss'])}: <pre>{html.escape(c['lab_says'])}</pre>" for c in result["cells"] if c["lab_says"])
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>distance and loss</title>
<style>body{{font:14px/1.45 system-ui,sans-serif;max-width:1300px;margin:2em auto;padding:0 1em;color:#222}}.maps{{display:flex;flex-wrap:wrap;gap:1em 2em}}
h3{{font-size:14px;margin:.6em 0 .2em}}table{{border-collapse:collapse;font-size:12px}}td,th{{border:1px solid #ccc;padding:.25em .5em;text-align:left;vertical-align:top}}pre{{white-space:pre-wrap;font-size:11px}}</style>
<h1>Distance and loss: share of the link that each transport fills</h1><p>{facts}</p>
<p>Memory to memory between two hosts of <code>longhaul lab</code>. The limit is rate × (1 − loss) × payload share of a 1500-byte packet ({OURS_BYTES} bytes ours, {TCP_BYTES} TCP's); the queue is one
bandwidth-delay product, at least 100 kB. Goodput is the receiver's, the start of the flow included (ours: from its first whole MiB; with it the repair of the tail). Transports alternate on one link.</p>
{maps}<h2>All figures</h2><table><tr>{''.join(f'<th>{h}' for h in heads)}</tr>{''.join(lines)}</table><h2>What the lab said of itself</h2><ul>{said or 'nothing: it was nowhere the limit'}</ul></html>
"""


def read(path):
    try:
        return open(path).read().strip()
    except OSError:
        return "?"


def version(argv):
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=10).stdout.splitlines()[0].strip()
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return "?"


def main():
    words = lambda text: [w for w in text.split(",") if w]
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rtt", type=words, default=words("10ms,50ms,100ms,200ms,500ms"))
    parser.add_argument("--loss", type=words, default=words("0%,0.1%,1%,5%,10%"))
    parser.add_argument("--rate", type=words, default=words("155Mbit,1Gbit"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="time of a run, at least")
    parser.add_argument("--trips", type=float, default=100, help="round trips of a run, at least")
    parser.add_argument("--seconds-max", type=float, default=60, help="but not longer than this for the sake of --trips")
    parser.add_argument("--laws", type=words, default=words("delay"), help="controllers of ours: delay, bbr, cubic")
    parser.add_argument("--tcp", type=words, default=words("cubic,bbr"))
    parser.add_argument("--streams", type=lambda t: [int(w) for w in words(t)], default=[1, 8, 16])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bin", default=os.path.join(HERE, "..", "target", "longhaul"))
    parser.add_argument("--name", default="wan")
    parser.add_argument("--out", default=os.path.join(HERE, "results"))
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.cell:
        return inside(json.loads(args.cell))
    args.bin = os.path.realpath(args.bin)
    if not shutil.which("iperf3"):
        print("iperf3 is not installed: no TCP lines", file=sys.stderr)
        args.tcp = []
    allowed = read("/proc/sys/net/ipv4/tcp_available_congestion_control").split()
    args.tcp = [c for c in args.tcp if c in allowed]
    for rate in args.rate:
        if rate_of(rate) > RATE_MAX:
            print(f"{rate}: on this many cores the lab itself may be the limit; its words are in the report", file=sys.stderr)
    model = next((l.split(":", 1)[1].strip() for l in read("/proc/cpuinfo").splitlines() if l.startswith("model name")), "?")
    result = {"machine": {"cpu": f"{os.cpu_count()} × {model}", "kernel": os.uname().release, "load before": read("/proc/loadavg"), "iperf3": version(["iperf3", "--version"]),
                          "longhaul": version([args.bin, "--version"]), "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "seed": args.seed},
              "names": [e["name"] for e in contestants(args)], "cells": []}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.makedirs(args.out, exist_ok=True)
    for rate in args.rate:
        for rtt in args.rtt:
            for loss in args.loss:
                result["cells"].append(run_cell(args, rtt, loss, rate))
                # After every cell: a grid takes hours, and what it has is worth keeping.
                result["machine"]["load after"] = read("/proc/loadavg")
                with open(os.path.join(args.out, args.name + ".json"), "w") as file:
                    json.dump(result, file, indent=1)
                with open(os.path.join(args.out, args.name + ".html"), "w") as file:
                    file.write(page(result))
    print(f"written: {args.out}/{args.name}.json and .html")
    return 1 if any(not c["rows"] for c in result["cells"]) else 0


if __name__ == "__main__":
    sys.exit(main())
