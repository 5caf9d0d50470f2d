#!/usr/bin/env python3
"""Makes the small summary that is kept of a benchmark's full result: one JSON of at most 20 KB and one page.

In, out:  summary.py FULL.json [NAME] -> bench/results/NAME.json and NAME.md. Full results stand in target/bench/.
Invariants: each row keeps its median, least and most, the program's version, the command and what it does not do; single rounds go.
          Figures are rounded to four digits; nothing is computed anew.
Absent on purpose: plots (the full result's HTML has them); judging which of two runs is the better one.
"""
import json
import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BYTES_MAX = 20_000
UNITS = {
    "gbps": "Gbit/s", "gbps_flushed": "Gbit/s, flushed", "cpu_s_per_gb": "CPU s/GB", "files_per_s": "files/s",
    "cpu_s_per_million": "CPU s per million files", "seconds": "seconds",
}


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(it) for key, it in value.items()}
    if isinstance(value, list):
        return [rounded(it) for it in value]
    return value


def plain(command):
    """A command without the names of one run: temporary folders, tickets, addresses."""
    command = re.sub(r"longhaul-bench-\w+", "BENCH", command or "")
    return re.sub(r"longhaul://[\w-]{20,}@", "longhaul://TICKET@", command)[:240]


def race(full):
    """peers.py, small.py, paths.py: parts with one row for each program."""
    parts = []
    for part in full["parts"]:
        keys = [key for key in dict.fromkeys([part["unit"], part["cost"], "of_links"]) if key]
        rows = []
        for row in part["rows"]:
            kept = {key: row.get(key) for key in ("name", "version", "encrypts", "lacks", "why_not") if row.get(key)}
            kept["command"] = plain(row.get("command"))
            kept |= {key: row[key] for key in keys if row.get(key)}
            kept["rounds"] = len(row.get("rounds") or [])
            rows.append({key: it for key, it in kept.items() if it not in ("", None)})
        parts.append({"title": part["title"], "unit": part["unit"], "cost": part["cost"], "rows": rows})
    machine = {key: it for key, it in full["machine"].items() if isinstance(it, (str, int, float))}
    return {"machine": machine, "parts": parts}


def distance(full):
    """longhaul bench wan: cells of rate, distance and loss, with one row for each program."""
    keep = ("bench", "version", "host", "rounds", "trips", "tcp_default", "programs", "notes")
    out = {key: full[key] for key in keep if key in full}
    out["date"] = time.strftime("%Y-%m-%d", time.gmtime(full["began_unix_s"]))
    commands, cells = {}, []
    for cell in full["cells"]:
        rows = []
        for row in cell["rows"]:
            commands.setdefault(row["name"], plain(row.get("command")))
            wanted = {"share": "share", "redundant_percent": "redundant_percent", "cpu_s_per_gb": "cpu_s_per_gb"}
            rows.append({"name": row["name"]} | {to: row[key]["median"] for key, to in wanted.items() if row.get(key)})
        cells.append({key: cell[key] for key in ("rate", "rtt", "loss", "seconds", "load")} | {"rows": rows})
    return out | {"commands": commands, "cells": cells}


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(str(it).replace("|", "\\|") for it in row) + " |" for row in rows]


def number(value):
    middle = value["median"] if isinstance(value, dict) else value
    spread = f" ({value['min']:.3g}–{value['max']:.3g})" if isinstance(value, dict) and value["min"] != value["max"] else ""
    return f"{middle:.3g}{spread}" if middle < 1000 else f"{middle:,.0f}"


def page_of_race(name, small):
    machine = small["machine"]
    lines = [f"# Benchmark `{name}`", "", f"Measured {machine.get('date', '?')} on {machine.get('cpu', '?')}, Linux {machine.get('kernel', '?')}, "
             f"{machine.get('hosts', '')}; load before: {str(machine.get('load before', '?')).split(' ')[0]}.",
             "Medians (least–most) of the rounds of one run, programs in turn. A ratio inside one table counts; absolute figures are this machine's.",
             f"Each program's exact command and version: [{name}.json]({name}.json).", ""]
    for part in small["parts"]:
        unit, cost = part["unit"], part["cost"]
        rows = [[row["name"], "yes" if row.get("encrypts") else "no", number(row[unit]), number(row[cost]) if row.get(cost) else "–",
                 row.get("lacks", "")] for row in part["rows"] if row.get(unit)]
        lines += [f"## {part['title']}", ""] + table(["program", "encrypts", UNITS.get(unit, unit), UNITS.get(cost, cost), "what it does not do"], rows)
        lines += [f"\nNot run: {row['name']}: {row['why_not']}" for row in part["rows"] if row.get("why_not")] + [""]
    return lines


def page_of_distance(name, small):
    lines = [f"# Benchmark `{name}`", "", f"Measured {small['date']} on {small['host']['cpu']}, {small['host']['cores']} cores, Linux {small['host']['kernel']}, "
             f"load {small['host']['load']:.2g} at the start; {small['rounds']} round(s) a cell; links made by `longhaul lab`.",
             f"Programs: longhaul {small['version']}; {'; '.join(small['programs'])}. TCP's default there: {small['tcp_default']}.", "",
             "Share of the limit (rate × (1 − loss) × payload share of a 1500-byte packet) that each filled, over the whole transfer, start-up and end included:", ""]
    names = list(small["commands"])
    rows = []
    for cell in small["cells"]:
        by = {row["name"]: row for row in cell["rows"]}
        rows.append([cell["rate"], cell["rtt"], cell["loss"]] + [f"{by[it]['share']:.2f}" if it in by and "share" in by[it] else "–" for it in names])
    return lines + table(["rate", "round trip", "loss"] + names, rows) + ["", f"Commands: [{name}.json]({name}.json). Run it: `longhaul bench wan --help`.", ""]


def write(full, name, folder):
    small = rounded(distance(full) if "cells" in full else race(full) if "parts" in full else full)
    text = json.dumps(small, separators=(",", ":"), ensure_ascii=False).replace('{"name":', '\n{"name":').replace('{"rate":', '\n{"rate":')
    if len(text.encode()) > BYTES_MAX:
        raise SystemExit(f"{name}: the summary has {len(text.encode())} bytes, at most {BYTES_MAX} are kept")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"{name}.json"), "w") as file:
        file.write(text + "\n")
    if "cells" in full or "parts" in full:
        with open(os.path.join(folder, f"{name}.md"), "w") as file:
            file.write("\n".join((page_of_distance if "cells" in full else page_of_race)(name, small)))
    else:
        print(f"{name}: the page of this one is written by hand: {folder}/{name}.md")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    path = sys.argv[1]
    with open(path) as file:
        write(json.load(file), sys.argv[2] if len(sys.argv) > 2 else os.path.splitext(os.path.basename(path))[0], os.path.join(HERE, "..", "results"))
