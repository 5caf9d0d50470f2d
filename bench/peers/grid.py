#!/usr/bin/env python3
"""The grid of distance x loss x rate in virtual time: both machines of a flow under the controller `delay`, no network.

In, out:  proto/tests/flow_grid.rs, built for release and run -> target/bench/grid-virtual.json and one self-contained grid-virtual.html.
Invariants: every cell is the median of the seeds that it names; what issue 3 asks and a cell misses stands in the cell.
Absent on purpose: real networks and hosts (`longhaul bench wan`), other flows (proto/tests/rate_fair.rs).
"""
import datetime
import html
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = os.path.join(HERE, "..", "..", "target", "bench", "grid-virtual")
FIGURES = [
    ("whole", "goodput / limit, start and last byte included", "{:.3f}", lambda v: (v - 0.8) / 0.2),
    ("steady", "goodput / limit between a fifth and nine tenths of the bytes", "{:.3f}", lambda v: (v - 0.8) / 0.2),
    ("redundant", "bytes sent needlessly", "{:.2%}", lambda v: 1 - v / 0.02),
    ("tail_rtt", "99 to 100 % of the bytes, round trips", "{:.2f}", lambda v: 1 - (v - 1) / 6),
    ("queue_ms", "mean wait in the queue, ms", "{:.1f}", lambda v: 1 - v / 20),
]


def colour(good):
    return f"hsl({round(120 * max(0.0, min(1.0, good)))} 60% 82%)"


def heat(cells, key, title, form, good):
    trips, losses = sorted({c["rtt_ms"] for c in cells}), sorted({c["loss_ppm"] for c in cells})
    rows = ["<tr><th>loss \\ round trip" + "".join(f"<th>{t} ms" for t in trips) + "<th>spread"]
    for loss in losses:
        line = {c["rtt_ms"]: c for c in cells if c["loss_ppm"] == loss}
        values = [c[key] for c in line.values()]
        row = f"<tr><th>{loss / 1e4:g} %"
        for trip in trips:
            cell = line.get(trip)
            note = html.escape(f"worst seed {cell['worst']}; {cell['seeds']} seeds; misses: {cell['missed'] or 'nothing'}") if cell else "not run"
            row += f'<td style="background:{colour(good(cell[key]))}" title="{note}">{form.format(cell[key])}' if cell else "<td>–"
        rows.append(row + f"<td>{(max(values) - min(values)) / max(max(values), 1e-9):.1%}")
    return f"<div><h3>{html.escape(title)}</h3><table>{''.join(rows)}</table></div>"


def page(result):
    rates = sorted({c["rate_mbit"] for c in result["cells"]})
    maps = ""
    for rate in rates:
        cells = [c for c in result["cells"] if c["rate_mbit"] == rate]
        maps += f"<h2>{rate} Mbit/s, packets of {cells[0]['packet']} bytes</h2><div class=maps>" + "".join(heat(cells, *figure) for figure in FIGURES) + "</div>"
    missed = "".join(f"<li>{c['rate_mbit']} Mbit/s, {c['rtt_ms']} ms, {c['loss_ppm'] / 1e4:g} %: {html.escape(c['missed'])}" for c in result["cells"] if c["missed"])
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>distance and loss, virtual</title>
<style>body{{font:14px/1.45 system-ui,sans-serif;max-width:1400px;margin:2em auto;padding:0 1em;color:#222}}.maps{{display:flex;flex-wrap:wrap;gap:1em 2em}}
h3{{font-size:13px;margin:.6em 0 .2em}}table{{border-collapse:collapse;font-size:12px}}td,th{{border:1px solid #ccc;padding:.25em .5em;text-align:right}}</style>
<h1>Distance and loss in virtual time</h1><p>{html.escape(result['date'])}, {html.escape(result['commit'])}, {result['seconds']} s of computing</p>
<p>One transfer of 100 round trips per seed through the real sending and receiving machines of a flow and the controller <code>delay</code>, policy <code>fair</code>, which knows nothing of the path.
Queue: one bandwidth-delay product, 100 kB at least. Limit: rate × (1 − loss) × payload share of a packet; above 1 random loss was below its mean. Loss strikes behind the queue.
The connection's own round trips are not in it. Spread: greatest less least over the distances, by the greatest.</p>
{maps}<h2>Missed of what issue 3 asks</h2><ul>{missed or '<li>nothing'}</ul></html>
"""


def main():
    os.makedirs(os.path.dirname(NAME), exist_ok=True)
    began, lines = time.time(), NAME + ".lines"
    run = ["cargo", "test", "--release", "--locked", "-p", "longhaul-proto", "--test", "flow_grid", "--", "--nocapture", "distance_and_loss"]
    status = subprocess.run(run, cwd=os.path.join(HERE, "..", ".."), env={**os.environ, "GRID": lines}).returncode
    if status != 0:
        return status
    cells = [json.loads(line) for line in open(lines)]
    os.remove(lines)
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True).stdout.strip()
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    result = {"date": date, "commit": commit, "seconds": round(time.time() - began), "cells": cells}
    with open(NAME + ".json", "w") as file:
        json.dump(result, file, indent=1)
    with open(NAME + ".html", "w") as file:
        file.write(page(result))
    missed = sum(1 for cell in cells if cell["missed"])
    print(f"written: {NAME}.json and .html; {len(cells)} cells, {missed} miss something")
    return 0


if __name__ == "__main__":
    sys.exit(main())
