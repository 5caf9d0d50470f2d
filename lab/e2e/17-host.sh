#!/usr/bin/env bash
# `longhaul host show` on this very machine: it tells what /sys tells, a record shows the same, and in an empty host nothing fails.
source "$(dirname "$0")/check.sh"

"$LONGHAUL" host show --record "$LAB/record" --html "$LAB/host.html" >"$LAB/host.txt" 2>"$LAB/host.err"
is $? 0 "host show: exit code 0"
"$LONGHAUL" host show --json >"$LAB/host.json"
read_json() { python3 -c 'import json, sys
facts = json.load(open(sys.argv[1]))
print(eval(sys.argv[2]))' "$LAB/host.json" "$1"; }
is "$(read_json 'len(facts["cores"])')" "$(getconf _NPROCESSORS_ONLN)" "host show: as many cores as are online"
disks=$(for d in /sys/block/*; do case "${d##*/}" in ram* | zram*) ;; *) [ "$(cat "$d/size")" -gt 0 ] && echo "${d##*/}" ;; esac; done | sort | tr '\n' ' ')
is "$(read_json '" ".join(sorted(d["name"] for d in facts["disks"])) + " " if facts["disks"] else ""')" "$disks" "host show: the disks of /sys/block"
cards=$(for d in /sys/class/net/*; do [ -e "$d/device" ] && echo "${d##*/}"; done | sort | tr '\n' ' ')
is "$(read_json '" ".join(sorted(n["name"] for n in facts["nics"])) + " " if facts["nics"] else ""')" "$cards" "host show: the NICs of /sys/class/net"
holds "host show: the root's file system is there" test "$(read_json 'any(m["at"] == "/" for m in facts["mounts"])')" = True
holds "host show: each finding has its reason and its source" test "$(read_json 'all(f["why"] and f["source"] for f in facts["findings"])')" = True
holds "host show: the page needs nothing else" eval 'grep -q "<svg" "$LAB/host.html" && ! grep -q "http\|<script" "$LAB/host.html"'
"$LONGHAUL" host show --from "$LAB/record" >"$LAB/again.txt"
holds "host show: its record shows the same" cmp "$LAB/host.txt" "$LAB/again.txt"
echo nonsense >"$LAB/bad"
"$LONGHAUL" host show --from "$LAB/bad" >/dev/null 2>"$LAB/bad.err"
is $? 2 "host show: what is no record is refused"
holds "host show: with the line" grep -q "line 1" "$LAB/bad.err"
finish
