//! Loop-device volumes as one destination and one source: the sum beside fio's on the same volumes, and one of them throttled in mid-run; by file,
//! or one file by chunk (`--stripe chunk`).
//!
//! For: `make bench-volumes`. In and out: root, loop devices, a block-I/O controller (cgroup v1 blkio or v2 io), fio → NAME.json and, by
//! `longhaul bench volumes`, NAME-plain.* and NAME-sick.*.
//! Invariants: every volume is capped alike, so that the disks are the limit and not the processor; rounds alternate, medians count; nothing is
//! left behind.
//! Absent on purpose: real disks.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use bench::race::alternate;
use bench::race::reading::fio;
use bench::table::median;
use clap::Args;
use serde_json::{Map, Value, json};

use super::disk::Group;
use super::ground::{Content, Ground};
use super::loops::Loop;
use super::{Common, call};

const FIO: &str = "fio --output-format=json --ioengine=io_uring --direct=1 --bs=1M --iodepth=4 --end_fsync=1";
const WAYS: [&str; 2] = ["write", "read"];

/// `longhaul-race volumes`.
#[derive(Debug, Args)]
pub(crate) struct VolumesArguments {
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value_t = 16)]
    volumes: u64,
    /// MB/s of each volume; 0: none, and none falls to a tenth
    #[arg(long, default_value_t = 10)]
    cap: u64,
    /// MiB of each file
    #[arg(long, default_value_t = 24)]
    size: u64,
    /// Files for each volume
    #[arg(long, default_value_t = 4)]
    files: u64,
    /// chunk: one file of as many bytes as all the others have
    #[arg(long, default_value = "file", value_parser = ["file", "chunk"])]
    stripe: String,
    /// Folder of the files behind the loop devices
    #[arg(long, default_value = "/dev/shm")]
    backing: PathBuf,
    /// write: nothing is read back, which wants memory for all of it
    #[arg(long, default_value = "both", value_parser = ["both", "write"])]
    programs: String,
    #[arg(long, default_value = "volumes")]
    name: String,
}

/// The volumes while they are measured.
struct Rig<'a> {
    arguments: &'a VolumesArguments,
    group: Group,
    is_old: bool,
    volumes: Vec<Loop>,
    /// `MAJOR:MINOR` of each.
    devices: Vec<String>,
    /// B/s of each; 0: not capped.
    cap: u64,
}

impl Rig<'_> {
    fn make<'a>(arguments: &'a VolumesArguments, folder: &Path) -> anyhow::Result<Rig<'a>> {
        let bytes = (arguments.size * arguments.files * 2 + 40) << 20;
        let mkfs = "mkfs.ext4 -q -J size=4 -E lazy_itable_init=0,lazy_journal_init=0";
        let volume = |number: u64| Loop::make(&folder.join(format!("v{number}")), bytes, mkfs, "noatime,discard");
        let volumes = (0..arguments.volumes).map(volume).collect::<anyhow::Result<Vec<_>>>()?;
        let device = |it: &Loop| call("lsblk", &["-dno", "MAJ:MIN", &it.device]);
        let devices = volumes.iter().map(device).collect::<anyhow::Result<Vec<_>>>()?;
        let is_old = Path::new("/sys/fs/cgroup/blkio").is_dir();
        if !is_old {
            std::fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+io")?;
        }
        let group = Group::enter(if is_old { "/sys/fs/cgroup/blkio" } else { "/sys/fs/cgroup" }, &[])?;
        let rig = Rig { arguments, group, is_old, volumes, devices, cap: arguments.cap * 1_000_000 };
        rig.devices.iter().filter(|_| rig.cap > 0).try_for_each(|device| rig.set_cap(device, rig.cap))?;
        Ok(rig)
    }

    fn set_cap(&self, device: &str, bps: u64) -> anyhow::Result<()> {
        if !self.is_old {
            return self.group.set("io.max", &format!("{device} rbps={bps} wbps={bps}"));
        }
        WAYS.iter()
            .try_for_each(|way| self.group.set(&format!("blkio.throttle.{way}_bps_device"), &format!("{device} {bps}")))
    }

    /// Bytes for each volume.
    fn share(&self) -> u64 {
        (self.arguments.size * self.arguments.files) << 20
    }

    /// The sum that fio reaches on all volumes at once, with as many bytes as a job of ours moves, B/s.
    fn fio(&self, way: &str) -> anyhow::Result<f64> {
        let mut words: Vec<String> = FIO.split(' ').skip(1).map(str::to_owned).collect();
        words.extend([format!("--rw={way}"), format!("--size={}", self.share())]);
        for (number, volume) in self.volumes.iter().enumerate() {
            words.extend([format!("--name=v{number}"), format!("--filename={}/fio", volume.mount.display())]);
        }
        let moved = fio(&call("fio", &words)?, way).map_err(anyhow::Error::msg)?;
        Ok(moved.bytes / moved.seconds)
    }

    fn bench(&self, program: &str, kind: &str) -> anyhow::Result<Child> {
        let VolumesArguments { common, size, files, volumes, stripe, name, .. } = self.arguments;
        // By chunk: as many bytes in one file.
        let (size, files) = if stripe == "chunk" { (size * files * volumes, 1) } else { (*size, *files) };
        let mut command = Command::new(&common.longhaul);
        command.args(["bench", "volumes", "--json", "--program", program, "--stripe", stripe]);
        command
            .args(["--size", &format!("{size}MiB"), "--files", &files.to_string()])
            .arg("--memory")
            .arg(&common.tmpfs);
        command.arg("--out").arg(common.out.join(format!("{name}-{kind}"))).arg("--disks");
        command.args(self.volumes.iter().map(|it| &it.mount)).stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(command.spawn()?)
    }

    /// fio, then ours, both ways: B/s.
    fn side_by_side(&self) -> anyhow::Result<Map<String, Value>> {
        let both = &self.arguments.programs;
        let ways = if both == "both" { &WAYS[..] } else { &WAYS[..1] };
        let fio = ways.iter().map(|way| self.fio(way)).collect::<anyhow::Result<Vec<_>>>()?;
        for volume in &self.volumes {
            std::fs::remove_file(volume.mount.join("fio"))?;
        }
        let runs = runs(self.bench(both, "plain")?)?;
        let figures = ways.iter().zip(fio).zip(runs).map(|((way, fio), run)| {
            let rate = run["bytes_per_second"].as_f64().unwrap_or(f64::NAN);
            let figures = json!({"fio": fio, "whole_job": rate, "of_fio": rate / fio, "limiter": run["limiter"]});
            ((*way).to_owned(), figures)
        });
        Ok(figures.collect())
    }

    /// Bytes written to a device: sectors of /sys/dev/block/*/stat, field 7 (Documentation/block/stat.rst).
    fn written(&self, device: &str) -> anyhow::Result<u64> {
        let text = std::fs::read_to_string(format!("/sys/dev/block/{device}/stat"))?;
        Ok(text.split_whitespace().nth(6).context("a short line of a device")?.parse::<u64>()? * 512)
    }

    /// One volume falls to a tenth when a third of the job is done.
    fn sick(&self) -> anyhow::Result<Value> {
        let (cap, count) = (self.cap as f64, self.arguments.volumes as f64);
        let third = self.share() as f64 / cap / 3.0;
        let (first, fourth) = (&self.devices[0], self.devices.get(3).context("at least four volumes")?);
        let before = self.written(first)?;
        let mut job = self.bench("write", "sick")?;
        while job.try_wait()?.is_none() && self.written(first)? - before < 2 << 20 {
            std::thread::sleep(Duration::from_millis(20)); // it has not begun to write
        }
        std::thread::sleep(Duration::from_secs_f64(third));
        self.set_cap(fourth, self.cap / 10)?;
        let run = runs(job)?.into_iter().next().context("a report without a run")?;
        self.set_cap(fourth, self.cap)?;
        // Seconds since the start, B/s of each volume.
        let samples = run["samples"].as_array().into_iter().flatten().filter_map(|it| {
            let rates = it["bytes_per_second"].as_array()?.iter().filter_map(Value::as_f64).collect::<Vec<f64>>();
            Some((it["seconds"].as_f64()?, rates))
        });
        let samples: Vec<(f64, Vec<f64>)> = samples.filter(|it| it.1.len() == self.devices.len()).collect();
        let at = third + samples.iter().find(|it| it.1[0] > cap / 4.0).map_or(f64::NAN, |it| it.0);
        let after: Vec<_> = samples.iter().filter(|it| at + 2.0 < it.0 && it.0 <= at + 2.0 + third).collect();
        let mean = |of: &dyn Fn(&[f64]) -> f64| after.iter().map(|it| of(&it.1)).sum::<f64>() / after.len() as f64;
        let (sum, ideal) = (mean(&|rates| rates.iter().sum()), cap * (count - 0.9));
        let fell = samples.iter().find(|it| it.0 > at && it.1[3] < cap / 4.0).map(|it| it.0 - at);
        // What the job took beside what it would have, had each disk done its best up to the last byte.
        let best = at + (self.share() as f64 * count - at * cap * count).max(0.0) / ideal;
        let seconds = run["seconds"].as_f64().unwrap_or(f64::NAN);
        Ok(
            json!({"throttled_at": at, "fell_within_seconds": fell, "its_rate": mean(&|rates| rates[3]), "sum": sum, "of_ideal": sum / ideal,
                  "seconds_of_the_job": seconds, "whole_job_of_ideal": best / seconds}),
        )
    }
}

/// The runs of a report.
fn runs(job: Child) -> anyhow::Result<Vec<Value>> {
    let said = job.wait_with_output()?.stdout;
    let report: Value = serde_json::from_slice(&said).context("no report of longhaul bench volumes")?;
    Ok(report["runs"].as_array().cloned().unwrap_or_default())
}

/// Of each figure of `write`, `read` and `sick` in all rounds.
fn medians(rounds: &[Map<String, Value>]) -> Map<String, Value> {
    let mut found = Map::new();
    for part in ["write", "read", "sick"] {
        for key in rounds[0].get(part).and_then(Value::as_object).into_iter().flat_map(Map::keys) {
            let samples: Vec<f64> = rounds.iter().filter_map(|it| it[part][key].as_f64()).collect();
            if !samples.is_empty() && key != "throttled_at" {
                found.insert(format!("{part} {key}"), json!(median(&samples)));
            }
        }
    }
    found
}

pub(crate) fn run(mut arguments: VolumesArguments) -> anyhow::Result<()> {
    arguments.common.settle()?;
    std::fs::create_dir_all(&arguments.common.out)?;
    let ground = Ground::make(&arguments.backing, Content::None, 0)?;
    let mut lanes = [Rig::make(&arguments, &ground.folder)?];
    let mut rounds = Vec::new();
    alternate(arguments.common.rounds, &mut lanes, |_, rig| {
        let mut found = rig.side_by_side()?;
        found.insert("load".to_owned(), json!(sys::host::load()));
        if rig.cap > 0 {
            found.insert("sick".to_owned(), rig.sick()?);
        }
        eprintln!("{}", json!(found));
        rounds.push(found);
        anyhow::Ok(ControlFlow::Continue(()))
    })?;
    let VolumesArguments { common, volumes, cap, size, files, stripe, backing, name, .. } = &arguments;
    let medians = medians(&rounds);
    println!("{}", serde_json::to_string_pretty(&medians)?);
    let result = json!({"volumes": volumes, "cap_bytes_per_second": cap * 1_000_000, "backing": backing, "file_mib": size, "files_per_volume": files,
                        "stripe": stripe, "fio": FIO, "medians": medians, "rounds": rounds});
    let path = common.out.join(name).with_extension("json");
    Ok(std::fs::write(path, serde_json::to_string_pretty(&result)? + "\n")?)
}
