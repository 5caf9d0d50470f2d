#!/usr/bin/env python3
"""16 loop-device volumes as one destination and one source: the sum beside fio's on the same volumes, and one of them throttled in mid-run; by file,
or one file by chunk (--stripe chunk).

Needs root, loop devices, a block-I/O controller (cgroup v1 blkio or v2 io), fio. Every volume is capped alike, so that the disks are the
limit and not the processor. Rounds alternate, medians count. Writes NAME.json and, by `longhaul bench volumes`, NAME-plain.* and NAME-sick.*. Leaves nothing behind.
"""
import argparse, json, os, shutil, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
# Of /sys/dev/block/*/stat: sectors.
COLUMN = {"write": 6, "read": 2}
FIO = ["fio", "--output-format=json", "--ioengine=io_uring", "--direct=1", "--bs=1M", "--iodepth=4", "--end_fsync=1"]


def call(*words, **more):
    return subprocess.run(words, check=True, text=True, capture_output=True, **more).stdout.strip()


class Cap:
    """A control group in which devices are capped."""

    def __init__(self):
        self.old = os.path.isdir("/sys/fs/cgroup/blkio")
        self.path = f"/sys/fs/cgroup/{'blkio/' if self.old else ''}longhaul-volumes-{os.getpid()}"
        if not self.old:
            with open("/sys/fs/cgroup/cgroup.subtree_control", "w") as control:
                control.write("+io")
        os.mkdir(self.path)
        # This process and all it starts from here on.
        self.put("cgroup.procs", str(os.getpid()))

    def put(self, name, text):
        with open(f"{self.path}/{name}", "w") as control:
            control.write(text)

    def set(self, device, bps):
        if self.old:
            for way in COLUMN:
                self.put(f"blkio.throttle.{way}_bps_device", f"{device} {bps}")
        else:
            self.put("io.max", f"{device} rbps={bps} wbps={bps}")

    def close(self):
        root = os.path.dirname(self.path)
        with open(f"{root}/cgroup.procs", "w") as control:
            control.write(str(os.getpid()))
        os.rmdir(self.path)


class Volumes:
    def __init__(self, count, mib, backing):
        self.folder = tempfile.mkdtemp(prefix="longhaul-volumes-", dir=backing)
        self.loops, self.mounts, self.devices = [], [], []
        for number in range(count):
            disk, mount = f"{self.folder}/disk{number}", f"{self.folder}/v{number}"
            with open(disk, "w") as file:
                file.truncate(mib << 20)
            loop = call("losetup", "-f", "--show", disk)
            self.loops.append(loop)
            call("mkfs.ext4", "-q", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0", loop)
            os.mkdir(mount)
            call("mount", "-o", "noatime,discard", loop, mount)
            self.mounts.append(mount)
            stat = os.stat(loop).st_rdev
            self.devices.append(f"{os.major(stat)}:{os.minor(stat)}")

    def close(self):
        for mount in self.mounts:
            call("umount", mount)
        for loop in self.loops:
            call("losetup", "-d", loop)
        shutil.rmtree(self.folder)


def fio(volumes, way, mib):
    """The sum that fio reaches on all volumes at once, with as many bytes as a job of ours moves, B/s."""
    words = FIO + [f"--rw={way}", f"--size={mib}M"]
    for number, mount in enumerate(volumes.mounts):
        words += [f"--name=v{number}", f"--filename={mount}/fio"]
    jobs = json.loads(call(*words))["jobs"]
    # The sum over the time of the slowest: as a job counts, too.
    return sum(job[way]["io_bytes"] for job in jobs) * 1000 / max(job[way]["runtime"] for job in jobs)


def bench(arguments, volumes, program, out):
    if arguments.stripe == "chunk":  # as many bytes in one file
        size, files = arguments.size * arguments.files * arguments.volumes, 1
    else:
        size, files = arguments.size, arguments.files
    words = [arguments.longhaul, "bench", "path", "--json", "--program", program, "--stripe", arguments.stripe, "--size", f"{size}MiB", "--files", str(files),
             "--memory", arguments.memory, "--out", out, "--disks", *volumes.mounts]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def written(device):
    with open(f"/sys/dev/block/{device}/stat") as stat:
        return int(stat.read().split()[COLUMN["write"]])


def side_by_side(arguments, volumes):
    """fio, then ours, both ways: B/s."""
    mib = arguments.size * arguments.files
    ways = [way for way in COLUMN if arguments.programs == "both" or way == "write"]
    found = {way: {"fio": fio(volumes, way, mib)} for way in ways}
    for mount in volumes.mounts:
        os.remove(f"{mount}/fio")
    runs = json.loads(bench(arguments, volumes, arguments.programs, arguments.name + "-plain").communicate()[0])["runs"]
    for way, run in zip(ways, runs):
        ratio = run["bytes_per_second"] / found[way]["fio"]
        found[way] |= {"whole_job": run["bytes_per_second"], "of_fio": ratio, "limiter": run["limiter"]}
    return found


def sick(arguments, volumes, cap, bps):
    """One volume falls to a tenth when a third of the job is done."""
    third = arguments.size * arguments.files * 1.048576e6 / bps / 3
    first, fourth = volumes.devices[0], volumes.devices[3]
    before = written(first)
    job = bench(arguments, volumes, "write", arguments.name + "-sick")
    while written(first) - before < 4096:
        time.sleep(0.02)  # the job has not begun to write
    time.sleep(third)
    cap.set(fourth, bps // 10)
    run = json.loads(job.communicate()[0])["runs"][0]
    cap.set(fourth, bps)
    at = next(it["seconds"] for it in run["samples"] if it["bytes_per_second"][0] > bps / 4) + third
    after = [it["bytes_per_second"] for it in run["samples"] if at + 2 < it["seconds"] <= at + 2 + third]
    total = statistics.mean(sum(it) for it in after)
    ideal = bps * (arguments.volumes - 0.9)
    fell = next((it["seconds"] - at for it in run["samples"] if it["seconds"] > at and it["bytes_per_second"][3] < bps / 4), None)
    return {"throttled_at": at, "fell_within_seconds": fell, "its_rate": statistics.mean(it[3] for it in after), "sum": total,
            "of_ideal": total / ideal, "seconds_of_the_job": run["seconds"], "whole_job_of_ideal": whole(arguments, bps, at, run["seconds"])}


def whole(arguments, bps, at, seconds):
    """What the job took beside what it would have, had each disk done its best up to the last byte."""
    bytes_ = arguments.size * arguments.files * arguments.volumes << 20
    best = at + max(bytes_ - at * bps * arguments.volumes, 0) / (bps * (arguments.volumes - 0.9))
    return best / seconds


def median(rounds, *path):
    values = []
    for it in rounds:
        for key in path:
            it = it[key]
        values.append(it)
    return statistics.median(values)


def main():
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--longhaul", default=f"{HERE}/../../target/longhaul")
    parse.add_argument("--volumes", type=int, default=16)
    parse.add_argument("--cap", type=int, default=10, help="MB/s of each volume; 0: none, and none falls to a tenth")
    parse.add_argument("--size", type=int, default=24, help="MiB of each file")
    parse.add_argument("--files", type=int, default=4, help="files for each volume")
    parse.add_argument("--stripe", default="file", choices=["file", "chunk"], help="chunk: one file of as many bytes as all the others have")
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--backing", default="/dev/shm", help="folder of the files behind the loop devices")
    parse.add_argument("--memory", default="/dev/shm", help="folder in memory for the other end: the source, and what is received")
    parse.add_argument("--programs", default="both", choices=["both", "write"], help="write: nothing is read back, which wants memory for all of it")
    parse.add_argument("--name", default=f"{HERE}/../../target/bench/volumes")
    arguments = parse.parse_args()
    volumes = cap = None
    bps = arguments.cap * 1_000_000
    rounds = []
    try:
        volumes = Volumes(arguments.volumes, arguments.size * arguments.files * 2 + 40, arguments.backing)
        cap = Cap()
        for device in volumes.devices if bps else []:
            cap.set(device, bps)
        for _ in range(arguments.rounds):
            found = side_by_side(arguments, volumes) | {"load": os.getloadavg()[0]}
            if bps:
                found["sick"] = sick(arguments, volumes, cap, bps)
            rounds.append(found)
            print(json.dumps(found), file=sys.stderr)
    finally:
        for made in (cap, volumes):
            if made:
                made.close()
    medians = {f"{way} {what}": median(rounds, way, what) for way in rounds[0] if way in COLUMN for what in ("fio", "whole_job", "of_fio")}
    if bps:
        medians |= {f"sick {what}": median(rounds, "sick", what) for what in ("fell_within_seconds", "its_rate", "sum", "of_ideal", "seconds_of_the_job", "whole_job_of_ideal")}
    result = {"volumes": arguments.volumes, "cap_bytes_per_second": bps, "backing": arguments.backing, "file_mib": arguments.size,
              "files_per_volume": arguments.files, "stripe": arguments.stripe, "fio": " ".join(FIO), "medians": medians, "rounds": rounds}
    os.makedirs(os.path.dirname(os.path.abspath(arguments.name)), exist_ok=True)
    with open(arguments.name + ".json", "w") as file:
        json.dump(result, file, indent=1)
    print(json.dumps(medians, indent=1))


if __name__ == "__main__":
    sys.exit(main())
