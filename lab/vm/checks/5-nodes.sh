#!/bin/bash
# Where nobody measured: a job's workers, and the bufs that they touch, are on the NUMA node of its disk, of its NIC, of each of its volumes.
source /vm/hosts.sh
# Node 0 has cores 0 and 1, drive 0, NICs a0 and b0; node 1 has cores 2 and 3, drive 1, NICs a1 and b1 (1-facts.sh looks at that).
# Jobs are looked at while they run, so they are made slow; the looks are at what is there, never at how fast it came.
MIB=${MIB:-48} RATE=${RATE:-8Mbit} SECONDS_MAX=${SECONDS_MAX:-120}
for number in 0 1; do
    mkdir -p /mnt/nvme$number
    holds "drive $number: a file system" mkfs.xfs -q -f -K /dev/drives/nvme$number
    holds "drive $number: mounted" mount /dev/drives/nvme$number /mnt/nvme$number
    mkdir /mnt/nvme$number/{src,dst,volume}
    head -c $((MIB << 20)) /dev/urandom >/mnt/nvme$number/src/file
done
mkdir -p "$LAB/src"
head -c $((MIB << 20)) /dev/urandom >"$LAB/src/file"

# Cores of a process's workers: how many threads on which.
workers() {
    local task
    for task in /proc/"$1"/task/*; do
        case $(cat "$task/comm" 2>/dev/null) in worker-*) awk '/^Cpus_allowed_list:/ {print $2}' "$task/status" ;; esac
    done | sort | uniq -c | awk '{print $1 "x" $2}' | paste -sd' '
}
# Pages of its bufs on node 0 and on node 1: the mappings that no child gets (madvise(2), MADV_DONTFORK: `dc`) and that are of no file.
bufs() {
    awk 'FNR == 1 {file++}
        file == 1 && /^[0-9a-f]+-[0-9a-f]+ / {at = $1; sub(/-.*/, "", at)}
        file == 1 && /^VmFlags:.* dc( |$)/ {own[at] = 1}
        file == 2 && ($1 in own) && !/ file=/ {for (i = 3; i <= NF; i++) if ($i ~ /^N[01]=/) n[substr($i, 2, 1)] += substr($i, 4)}
        END {print n[0] + 0, n[1] + 0}' /proc/"$1"/smaps /proc/"$1"/numa_maps 2>/dev/null
}
touched() { # touched PID PAGES: so many are there
    local pages
    read -ra pages <<<"$(bufs "$1")"
    [ $((pages[0] + pages[1])) -ge "$2" ] || ! kill -0 "$1" 2>/dev/null
}
# all_on NODE PID WORDS: of its bufs that were touched, 95 of 100 and more.
all_on() {
    local pages
    read -ra pages <<<"$(bufs "$2")"
    [ -n "${pages[1]:-}" ] || pages=(0 0)
    echo "#   $3: bufs of ${pages[0]} pages on node 0, ${pages[1]} on node 1"
    holds "$3: its bufs are on node $1 (${pages[*]})" test $((pages[$1] * 100)) -ge $(((pages[0] + pages[1]) * 95 + 1))
}
# job ARGUMENTS...: begins a copy on this host; $JOB is its process.
job() {
    LONGHAUL_HOME=$LAB/home-a "$@" >"$LAB/cp.json" 2>"$LAB/cp.err" </dev/null &
    JOB=$!
    until_true "$SECONDS_MAX" touched $JOB 512
}
over() { # it is not waited for: what there was to see was seen
    kill -KILL $JOB 2>/dev/null
    wait $JOB 2>/dev/null
}
says() { # says WORDS WHAT VALUE REASON: in what --explain told
    holds "$1" grep -q "\"what\":\"$2\",\"value\":\"$3\",\"reason\":\"$4" "$LAB/cp.json"
}
# A clone would have nobody read anything.
CP=("$LONGHAUL" cp --json --explain --reflink never --rate "$RATE")

for node in 0 1; do
    cores=$((2 * node))-$((2 * node + 1))
    job "${CP[@]}" --workers 2 /mnt/nvme$node/src/file /mnt/nvme$node/dst/file
    is "$(workers $JOB)" "4x$cores" "from drive $node to drive $node, two workers at each end: all on its node"
    all_on $node $JOB "from drive $node to drive $node"
    says "and it says why" "placement, reading" "workers: 2 on node $node" "its disk is there"
    over
done
job "${CP[@]}" --workers 2 /mnt/nvme0/src/file /mnt/nvme1/dst/other
is "$(workers $JOB)" "2x0-1 2x2-3" "from drive 0 to drive 1: the readers on one node, the writers on the other"
over
job "${CP[@]}" /mnt/nvme1/src/file /mnt/nvme1/dst/more
is "$(workers $JOB)" "4x0-1 4x2-3" "with a worker for each core: as many on the drive's node as it has cores"
says "and it says so" "placement, reading" "workers: 2 on node 0, 2 on node 1" "its disk is there, which has no more cores"
over
job "${CP[@]}" --workers 2 --stripe chunk "$LAB/src/file" /mnt/nvme0/volume /mnt/nvme1/volume
is "$(workers $JOB | tr ' ' '\n' | grep -v 0-3)" "$(printf '1x0-1\n1x2-3')" "to volumes on both nodes: a writer on each, and readers of a file in memory anywhere"
says "and it says why" "placement, writing" "workers: 1 on node 0, 1 on node 1" "its disks are on several nodes: 1 on 0, 1 on 1"
over

# --- the user chose: by cores, by a policy for memory ---
job taskset -c 2,3 "${CP[@]}" --workers 2 /mnt/nvme0/src/file /mnt/nvme0/dst/cores
is "$(workers $JOB)" "4x2-3" "taskset: the user's cores"
holds "and nothing is said of a placement" eval "! grep -q '\"placement' $LAB/cp.json"
over
job taskset -c 1,2 "${CP[@]}" --workers 1 /mnt/nvme1/src/file /mnt/nvme1/dst/two
is "$(workers $JOB)" "2x2" "taskset with a core of either node: the one on the drive's"
over
job numactl --interleave=all "${CP[@]}" --workers 2 /mnt/nvme1/src/file /mnt/nvme1/dst/policy
is "$(workers $JOB)" "4x0-3" "numactl: a policy for memory, and workers wherever the kernel puts them"
over

# --- by the NIC, at both ends ---
holds "two hosts of the guest's NICs" hosts_up
mkdir -p "$LAB/dst"
serve "$LAB/dst"
is $? 0 "a daemon on b"
SERVER=$STARTED_PID
is "$(workers "$SERVER")" "2x0-1 2x2-3" "the daemon's workers are spread over the nodes"
start a "${CP[@]}" --workers 1 --transport tcp "$LAB/src/file" "${URL/@0.0.0.0:/@10.9.1.2:}file" >"$LAB/cp.json" 2>"$LAB/cp.err" </dev/null
JOB=$STARTED_PID
until_true "$SECONDS_MAX" touched "$SERVER" 512
is "$(workers $JOB)" "1x2-3" "a push from memory by NIC a1: its worker on the NIC's node"
says "and it says why" "placement here" "workers: 1 on node 1" "its NIC is there"
all_on 1 $JOB "a push by NIC a1"
all_on 1 "$SERVER" "the daemon, whose NIC is b1"
over
kill -KILL "$SERVER" 2>/dev/null
umount /mnt/nvme0 /mnt/nvme1
finish
