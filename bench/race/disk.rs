//! I/O modes: does a job choose well on each file system here, and does a large job leave the memory of others alone?
//!
//! For: `make bench-disk`. In and out: `longhaul bench disk --fio` and `longhaul cp` on the root disk, on loop devices with XFS, ext4, btrfs, and
//! on tmpfs → one table, io-modes.json. `--manners`: instead, a job four times the size of its memory group beside a program whose mapped files
//! fill half of it → page-cache.json.
//! Invariants: nothing outside of folders, loop devices and a memory group made here is changed, and those are gone at the end; what could not
//! be measured has a line that says why; figures of one line come from one run.
//! Absent on purpose: other programs' copies (peers.rs).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use bench::race::content::Noise;
use bench::table::median;
use clap::Args;
use serde_json::{Value, json};
use sys::fs::{Map, cached, drop_cache};

use super::ground::{Content, Ground};
use super::loops::Loop;
use super::{Common, write_facts};

const MIB: u64 = 1 << 20;
/// What was asked: the chosen mode beside the best of all, and beside fio.
const ASKED: f64 = 0.95;
const GROUPS: &str = "/sys/fs/cgroup/memory";

/// `longhaul-race disk`.
#[derive(Debug, Args)]
pub(crate) struct DiskArguments {
    #[command(flatten)]
    common: Common,
    /// A folder on the disk to measure
    #[arg(long, default_value = "/var/tmp")]
    root: PathBuf,
    /// MiB of the files; a race needs 1024
    #[arg(long, default_value_t = 1024)]
    size: u64,
    /// Time of each cell, all rounds together
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Jobs that choose
    #[arg(long, default_value_t = 5)]
    races: usize,
    /// What a job leaves of others' memory
    #[arg(long)]
    manners: bool,
    /// MiB of the memory group
    #[arg(long, default_value_t = 512)]
    limit: u64,
}

pub(crate) fn run(mut arguments: DiskArguments) -> anyhow::Result<()> {
    arguments.common.settle()?;
    let (name, result) =
        if arguments.manners { ("page-cache", arguments.manners()?) } else { ("io-modes", arguments.modes()?) };
    write_facts(&arguments.common.out.join(name), result)
}

/// Bytes by chance on the disk, and none of them in memory.
fn fill(path: &Path, bytes: u64) -> anyhow::Result<()> {
    let mut file = File::create(path)?;
    Noise::new(1).write(&mut file, bytes)?;
    file.sync_all()?;
    Ok(drop_cache(&file, 0, 0)?)
}

/// What a job that has ended says of itself, and what it chose, by what was chosen.
fn choices(done: &Value) -> impl Iterator<Item = (&str, &str, &str)> {
    let choices = done["choices"].as_array().into_iter().flatten();
    choices
        .filter_map(|it| Some((it["what"].as_str()?, it["value"].as_str()?, it["reason"].as_str().unwrap_or_default())))
}

/// The first word of a value: `direct, 8 at once` → `direct`.
fn mode(value: &str) -> String {
    value.split(',').next().unwrap_or_default().to_owned()
}

impl DiskArguments {
    fn copy(&self, folder: &Path, options: &[&str]) -> Command {
        let mut command = Command::new(&self.common.longhaul);
        command.args(["cp", "--json"]).args(options).args([folder.join("from"), folder.join("to")]);
        command.env("LONGHAUL_HOME", folder.join("home")).stdin(Stdio::null());
        command
    }

    /// What copies of one file chose for a way (`read`, `write`), each with no memory of the time before: mode, cost in ms, reason.
    fn races(&self, folder: &Path) -> anyhow::Result<[Vec<(String, u64, String)>; 2]> {
        let mut found = [Vec::new(), Vec::new()];
        fill(&folder.join("from"), self.size * MIB)?;
        for _ in 0..self.races {
            let _ = std::fs::remove_dir_all(folder.join("home"));
            drop_cache(&File::open(folder.join("from"))?, 0, 0)?;
            let output = self.copy(folder, &[]).output()?;
            let said = String::from_utf8_lossy(&output.stdout);
            let done: Value = serde_json::from_str(said.lines().last().unwrap_or_default())?;
            for (what, value, reason) in choices(&done) {
                let cost = reason.split("trials and ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
                let way = ["read I/O mode", "write I/O mode"].iter().position(|it| *it == what);
                way.into_iter().for_each(|way| found[way].push((mode(value), cost.unwrap_or(0), reason.to_owned())));
            }
            std::fs::remove_file(folder.join("to"))?;
        }
        std::fs::remove_file(folder.join("from"))?;
        Ok(found)
    }

    /// One file system: the choices beside the sweep's figures, a line for each way.
    fn ground(&self, name: &str, folder: &Path) -> anyhow::Result<Vec<Value>> {
        std::fs::create_dir_all(folder)?;
        let chosen = self.races(folder)?;
        let (size, time) = (format!("{}MiB", self.size), format!("{:.0}ms", self.seconds * 1e3));
        let mut sweep = Command::new(&self.common.longhaul);
        sweep.args(["bench", "disk"]).arg(folder).args(["--size", &size, "--sweep", "io-mode", "--seconds", &time]);
        sweep.args(["--rounds", &self.common.rounds.to_string(), "--fio", "--json"]);
        let sweep: Value =
            serde_json::from_slice(&sweep.output()?.stdout).context("no report of longhaul bench disk")?;
        let cells = sweep["cells"].as_array().cloned().unwrap_or_default();
        let line = |(way, chosen): (&str, Vec<(String, u64, String)>)| {
            let of_way = cells.iter().filter(|cell| cell["way"] == way);
            // The best of each mode, of ours or of fio's.
            let best_of = |is_fio: bool| {
                let mut best = serde_json::Map::new();
                for cell in of_way.clone().filter(|cell| (cell["by"] == "fio") == is_fio) {
                    let (mode, gbs) =
                        (cell["io_mode"].as_str().unwrap_or_default(), cell["gbs"].as_f64().unwrap_or(0.0));
                    let known = best.get(mode).and_then(Value::as_f64).unwrap_or(0.0);
                    best.insert(mode.to_owned(), json!(known.max(gbs)));
                }
                best
            };
            let (ours, fio) = (best_of(false), best_of(true));
            let top = |rates: &serde_json::Map<String, Value>| {
                let rates = rates.iter().filter_map(|(mode, gbs)| Some((mode.clone(), gbs.as_f64()?)));
                rates.max_by(|a, b| a.1.total_cmp(&b.1))
            };
            let (best, best_gbs) = top(&ours).unwrap_or_default();
            // Nothing raced (tmpfs): files in memory are moved through the cache.
            let picks: Vec<String> = chosen.iter().map(|it| it.0.clone()).collect();
            let picks = if picks.is_empty() { vec!["buffered".to_owned()] } else { picks };
            let rates: Vec<f64> = picks.iter().map(|it| ours.get(it).and_then(Value::as_f64).unwrap_or(0.0)).collect();
            let (share, beside) = (median(&rates) / best_gbs, top(&fio));
            let to_fio = beside.as_ref().map(|(_, gbs)| median(&rates) / gbs);
            let cost: Vec<u64> = chosen.iter().map(|it| it.1).collect();
            let is_less = share < ASKED || to_fio.is_some_and(|it| it < ASKED);
            println!(
                "{name:12} {way:5}  chosen {:32} best {best:9} {best_gbs:6.2} GB/s  of best {share:.2}  of fio {:5} race {} ms{}",
                picks.join(","),
                to_fio.map_or("-".to_owned(), |it| format!("{it:.2}")),
                cost.iter().max().unwrap_or(&0),
                if is_less { "  <- below what is asked" } else { "" }
            );
            let reasons: Vec<&str> = chosen.iter().map(|it| it.2.as_str()).collect();
            json!({"file_system": name, "way": way, "chosen": picks, "cost_ms": cost, "rates_gbs": ours, "best": best, "of_best": share,
                   "fio_best": beside, "of_fio": to_fio, "reasons": reasons})
        };
        Ok(["read", "write"].into_iter().zip(chosen).map(line).collect())
    }

    fn modes(&self) -> anyhow::Result<Value> {
        let root = Ground::make(&self.root, Content::None, 0)?;
        let (mut lines, mut notes) = (self.ground("root disk", &root.folder.join("plain"))?, Vec::new());
        for (kind, mkfs) in [("xfs", "mkfs.xfs -f"), ("ext4", "mkfs.ext4 -F"), ("btrfs", "mkfs.btrfs -f")] {
            let image = root.folder.join(kind);
            let made = Loop::make(&image, (self.size * 5 + 1024) * MIB, mkfs, "defaults");
            match made.and_then(|made| self.ground(&format!("{kind} on loop"), &made.mount.join("w"))) {
                Ok(found) => lines.extend(found),
                Err(why) => notes.push(format!("{kind} not measured: {why:#}")),
            }
        }
        drop(root);
        let memory = Ground::make(&self.common.tmpfs, Content::None, 0)?;
        lines.extend(self.ground("tmpfs", &memory.folder)?);
        notes.push("tmpfs: nothing is raced, and the kernel takes all modes by one way; what they differ by is this machine's noise".to_owned());
        notes.iter().for_each(|note| println!("note: {note}"));
        Ok(json!({"lines": lines, "notes": notes}))
    }

    /// A copy in the group, and the least of the other program's set that was in memory meanwhile.
    fn one_job(&self, root: &Path, engine: &str) -> anyhow::Result<Value> {
        let bytes = self.limit * MIB / 2;
        let set = File::open(root.join("set"))?;
        let resident = || cached(&set, 0, 0).map(|it| it.bytes as f64 / bytes as f64);
        drop_cache(&set, 0, 0)?;
        let (map, mut block) = (Map::held(&set, bytes)?, vec![0; 1 << 20]);
        // What the job before left in the group goes first; until the set has found its room there is nothing to be displaced.
        for _ in 0..10 {
            for at in (0..bytes).step_by(block.len()) {
                map.read_at(&mut block, at)?;
            }
            if resident()? > 0.99 {
                break;
            }
        }
        let before = resident()?;
        drop_cache(&File::open(root.join("from"))?, 0, 0)?;
        let options = if engine == "auto" { vec![] } else { vec!["--io-mode", engine] };
        let report = File::create(root.join("report"))?;
        let mut job = self.copy(root, &[&["--memory", "64MiB"][..], &options].concat()).stdout(report).spawn()?;
        let mut least = before;
        while job.try_wait()?.is_none() {
            std::thread::sleep(Duration::from_millis(100));
            least = least.min(resident()?);
        }
        drop(map);
        let _ = std::fs::remove_file(root.join("to"));
        let said = std::fs::read_to_string(root.join("report"))?;
        let done: Value = serde_json::from_str(said.lines().last().unwrap_or_default())?;
        let left = choices(&done).find(|it| it.0 == "page cache").map_or("0", |it| it.1);
        let modes = choices(&done).filter(|it| it.0.ends_with(" I/O mode"));
        let modes: serde_json::Map<String, Value> = modes.map(|it| (it.0.to_owned(), json!(mode(it.1)))).collect();
        let gbs = done["bytes"].as_f64().unwrap_or(0.0) / done["seconds"].as_f64().unwrap_or(f64::NAN) / 1e9;
        println!(
            "{engine:10} {gbs:.2} GB/s, the other's set in memory: {:.1} % before, {:.1} % at least; left in the cache {left} {}",
            before * 100.0,
            least * 100.0,
            json!(modes)
        );
        Ok(
            json!({"engine": engine, "exit": done["exit"], "gbs": gbs, "resident_before": before, "resident_least": least, "left_in_cache": left, "chosen": modes}),
        )
    }

    fn manners(&self) -> anyhow::Result<Value> {
        let limit = self.limit * MIB;
        let root = Ground::make(&self.root, Content::None, 0)?;
        // Filled before the group is entered: their pages are of no concern here.
        fill(&root.folder.join("set"), limit / 2)?;
        fill(&root.folder.join("from"), limit * 4)?;
        let group = Group::enter(GROUPS, &[("memory.limit_in_bytes", &limit.to_string())]);
        let _group = group.context("no memory group can be made (cgroup v1, root)")?;
        let engines = ["auto", "direct", "dontcache", "early", "buffered"];
        let mut runs = Vec::new();
        for engine in (0..self.common.rounds).flat_map(|_| engines) {
            runs.push(self.one_job(&root.folder, engine)?);
        }
        let of = |engine: &str, key: &str| -> Vec<f64> {
            runs.iter().filter(|it| it["engine"] == engine).filter_map(|it| it[key].as_f64()).collect()
        };
        let medians: serde_json::Map<String, Value> =
            engines.iter().map(|it| ((*it).to_owned(), json!(median(&of(it, "gbs"))))).collect();
        let best = engines[1..].iter().map(|it| median(&of(it, "gbs"))).fold(0.0, f64::max);
        let (least, share) =
            (of("auto", "resident_least").into_iter().fold(1.0, f64::min), median(&of("auto", "gbs")) / best);
        println!(
            "auto: {:.1} % of the other's set stayed at least (asked 95 %), {share:.2} of the best mode's rate (asked 0.90)",
            least * 100.0
        );
        Ok(json!({"limit_mib": self.limit, "lines": runs, "least": least, "of_best": share, "medians_gbs": medians}))
    }
}

/// A control group that this process, and all that it starts from here on, is in until this value goes.
#[derive(Debug)]
pub(crate) struct Group(PathBuf);

impl Group {
    /// Below `root`, with these settings.
    pub(crate) fn enter(root: &str, settings: &[(&str, &str)]) -> anyhow::Result<Group> {
        let group = Group(PathBuf::from(format!("{root}/longhaul-race-{}", std::process::id())));
        std::fs::create_dir(&group.0)?;
        settings.iter().try_for_each(|(name, value)| group.set(name, value))?;
        group.set("cgroup.procs", &std::process::id().to_string())?;
        Ok(group)
    }

    pub(crate) fn set(&self, name: &str, value: &str) -> anyhow::Result<()> {
        let path = self.0.join(name);
        std::fs::write(&path, value).with_context(|| format!("{}: {value}", path.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // To where it was before: the parent.
        let _ = std::fs::write(self.0.with_file_name("cgroup.procs"), std::process::id().to_string());
        let _ = std::fs::remove_dir(&self.0);
    }
}
