#!/usr/bin/env bash
# The books of both ends sum to their workers' wall time within 2 %, over jobs of every kind; and that wall time is no more than the job's own.
source "$(dirname "$0")/check.sh"

random_file "$SRC/big.bin" $((192 << 20))
python3 "$E2E/tree.py" many "$SRC/many" 1500
mkdir -p "$DST/far"

# summed WORDS: both ends of the last cp. A wall of less than 20 ms is one timer's slack away from anything: it must be right within 0.4 ms there.
summed() {
    local said
    if said=$(python3 - "$OUT" 2>&1 <<'END'
import json, sys
done = json.loads(open(sys.argv[1]).read().splitlines()[-1])
whole = done["seconds"] * 1000
for side in ("local", "remote"):
    books = done[f"stages_{side}"]
    if books is None:
        sys.exit(f"{side}: no books")
    stages, wall, workers = sum(s["ms"] for s in books["stages"]), books["wall_ms"], books["workers"]
    if workers == 0 or wall == 0 or books["payload_bytes"] < done["bytes"]:
        sys.exit(f"{side}: {workers} workers, {wall} ms, {books['payload_bytes']} of {done['bytes']} B")
    if abs(stages - wall) > max(0.02 * wall, 0.4 * workers):
        sys.exit(f"{side}: {stages:.2f} ms booked of {wall:.2f}: {stages * 100 / wall:.2f} %")
    if done["impossible"]:
        sys.exit(f"impossible: {done['impossible']}")
    if wall / workers > whole * 1.02 + 5:
        sys.exit(f"{side}: {wall / workers:.1f} ms of each worker in a job of {whole:.1f} ms")
    print(f"{side} {stages * 100 / wall:.2f} % of {wall / workers:.0f} ms", end="; ")
print(f"the job {whole:.0f} ms")
END
    ); then ok "$1: $said"; else not_ok "$1" "$said $(why)"; fi
}
job() { # job WORDS ARGUMENTS...: into an empty folder
    local words=$1
    shift
    rm -rf "$DST/far" "$DST/near"
    mkdir -p "$DST/far" "$DST/near"
    cp_run "$@"
    summed "$words"
}

serve b "$DST" --integrity-only
job "one large file" "$SRC/big.bin" "${URL}far/"
job "written only" --durability written "$SRC/big.bin" "${URL}far/"
job "in clear, CRC-64" --integrity-only --digest crc64 "$SRC/big.bin" "${URL}far/"
job "one stream" --streams 1 "$SRC/big.bin" "${URL}far/"
job "16 MiB of memory" --memory 16MiB "$SRC/big.bin" "${URL}far/"
job "held at a rate" --rate 800Mbit "$SRC/big.bin" "${URL}far/"
job "small files" "$SRC/many" "${URL}far/"
job "a tree and a file" "$SRC/many" "$SRC/big.bin" "${URL}far/"
job "over datagrams" --transport udp "$SRC/big.bin" "${URL}far/"
job "small files over datagrams" --transport udp "$SRC/many" "${URL}far/"
cp -a "$SRC/big.bin" "$SRC/many" "$DST/"
job "pulled" "${URL}big.bin" "$DST/near/"
job "a tree, pulled" "${URL}many" "$DST/near/"
job "pulled over datagrams" --transport udp "${URL}big.bin" "$DST/near/"
# Short jobs, where what a worker tells last is most of it.
random_file "$SRC/short.bin" 3145728
cp "$SRC/short.bin" "$DST/"
for turn in 1 2 3 4 5; do
    job "short, pulled over datagrams ($turn)" --transport udp "${URL}short.bin" "$DST/near/"
    job "short, written only ($turn)" --durability written "$SRC/short.bin" "${URL}far/"
done
finish
