#!/usr/bin/env bash
# `longhaul bench wan`: a tiny grid with ours, bare TCP where iperf3 is, and a peer; its record, its page, Ctrl-C, and what is left behind (nothing).
source "$(dirname "$0")/check.sh"

wan() { timeout --kill-after=5 60 "$LONGHAUL" bench wan --folder "$LAB" --trips 20 --seconds 300ms --rounds 1 "$@" </dev/null; }
if ! said=$("$LONGHAUL" lab run -q -- true 2>&1); then
    skip "no lab can be made here: $(head -n 1 <<<"$said")"
    finish
fi
read_json() { python3 -c 'import json, sys
report = json.load(open(sys.argv[1]))
print(eval(sys.argv[2]))' "$1" "$2"; }

wan --rtt 10ms,20ms --loss 1% --rate 200Mbit --tcp cubic --streams 1 --out "$LAB/tiny" \
    --peer 'cat=cp "$BENCH_FILE" "$BENCH_FOLDER/file"; echo "{\"bytes\": $BENCH_BYTES, \"seconds\": $BENCH_SECONDS}"' \
    --peer 'liar=head -c 99 "$BENCH_FILE" >"$BENCH_FOLDER/file"' --peer-server 'liar=sleep 60' >"$LAB/tiny.out" 2>"$LAB/tiny.err"
is $? 0 "wan: two cells: exit code 0"
is "$(read_json "$LAB/tiny.json" 'len(report["cells"])')" 2 "wan: the record has both cells"
ours='[r for c in report["cells"] for r in c["rows"] if r["name"].startswith("longhaul")]'
is "$(read_json "$LAB/tiny.json" "[len(r['rounds']) for r in $ours]")" "[1, 1, 1, 1]" "wan: ours ran over UDP and over TCP in each"
holds "wan: no share is above the limit, none is nothing" \
    test "$(read_json "$LAB/tiny.json" "all(0 < r['share']['median'] < 1.02 for r in $ours)")" = True
holds "wan: over UDP less than 1 % is redundant" \
    test "$(read_json "$LAB/tiny.json" "all(r['redundant_percent']['median'] < 1 for r in $ours if 'udp' in r['name'])")" = True
is "$(read_json "$LAB/tiny.json" '[r["failed"] != [] for c in report["cells"] for r in c["rows"] if r["name"] in ("cat", "liar")]')" "[True, True, True, True]" \
    "wan: a peer that sent nothing over the link, and one whose file is not whole, have failed"
why='{r["name"]: sorted(set(w["failed"][0] for c in report["cells"] for w in c["rows"] if w["name"] == r["name"])) for c in report["cells"] for r in c["rows"] if r["name"] in ("cat", "liar")}'
is "$(read_json "$LAB/tiny.json" "$why")" "{'cat': ['fewer bytes crossed the link than were delivered: nothing to compare'], 'liar': ['what arrived differs from byte 99 on']}" \
    "wan: each for its own reason"
if command -v iperf3 >/dev/null; then
    holds "wan: bare TCP ran, or it is said why not" grep -q "TCP CUBIC × 1 *[0-9]\|TCP cubic: this kernel" "$LAB/tiny.out" "$LAB/tiny.err"
else
    holds "wan: it is said that iperf3 is missing" grep -q "iperf3 is not installed" "$LAB/tiny.err"
fi
holds "wan: the page has a map for each, and nothing from elsewhere" eval \
    '[ "$(grep -o "<svg" "$LAB/tiny.html" | wc -l)" -ge 5 ] && ! grep -q "http\|<script" "$LAB/tiny.html"'
holds "wan: no path of this machine is in the results" eval '! grep -q "$LAB" "$LAB/tiny.json" "$LAB/tiny.html"'
holds "wan: how long it will take is said before" grep -q "about [0-9.]* s" "$LAB/tiny.err"

# --- stopped by the user ---
"$LONGHAUL" bench wan --folder "$LAB" --rtt 10ms,500ms --loss 0% --rate 100Mbit --rounds 1 --trips 20 --seconds 200ms --only udp --out "$LAB/cut" </dev/null >"$LAB/cut.out" 2>"$LAB/cut.err" &
pid=$!
until_true 10 test -e "$LAB/cut.json"
kill -TERM $pid # a shell's background commands ignore SIGINT
wait $pid
is $? 32 "wan: stopped by a signal: exit code 32"
is "$(read_json "$LAB/cut.json" '(len(report["cells"]), report["cells_wanted"])')" "(1, 2)" "wan: what was measured until then is kept"
holds "wan: no file of the transfers is left" eval '[ -z "$(ls -d "$LAB"/longhaul-bench-* 2>/dev/null)" ]'
wan --rate none >"$LAB/none.out" 2>&1
is $? 2 "wan: a link without a rate is refused"
finish
