//! `longhaul bench volumes --disks`: N disks → one receiver, and one sender → N disks, as whole jobs.
//!
//! For: the read and the write program of a data acquisition: does the path carry what the disks give, and which of both is the limit?
//! In and out: folders on N disks → the rate over time of each disk and of all, a sentence that names the limiter, and with `--sweep` the rate over
//! the number of disks; what bounds them, and a word at figures that cannot be; table, JSON, one page.
//! Invariants: a device counts once, however many of the folders are on it; what is read was let go of by the page cache before; a figure that
//! cannot be makes the command fail; each run is the product itself, a daemon and a client of this binary with keys and homes of their own; the disks' rates are
//! the kernel's own counters of the block devices, not the job's; everything that was made is removed.
//! Absent on purpose: the network between two machines (`bench net`, `bench wan`): both ends share this host and its cores.

use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use proto::layout::Stripe;
use serde::Serialize;

use crate::ceilings::{self, Ceilings, Figure};
use crate::table::Host;
use text::table::Table;
use text::units;

pub mod page; // the same as one page with plots

/// What `Ceilings::flag` says of a figure that no machine could bring.
const IMPOSSIBLE: &str = ": impossible";
/// What the counters are looked at so often.
const LOOK: Duration = Duration::from_millis(200);
/// Bytes of a sector in `/sys/dev/block/*/stat` (Documentation/block/stat.rst), whatever the device's own.
const SECTOR: u64 = 512;
/// The folder that is made on each volume.
const FOLDER: &str = "longhaul-bench-volumes";

/// `longhaul bench volumes`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct PathArguments {
    /// Folders on the disks: /data/{0..15}, or quoted
    #[arg(long, required = true, num_args = 1.., value_name = "DIR")]
    pub disks: Vec<PathBuf>,

    /// Which program: one sender to all disks, all disks to one receiver, or both one after the other
    #[arg(long, value_enum, default_value_t = Program::Both)]
    pub program: Program,

    /// How files are dealt out, as `cp --stripe` does
    #[arg(long, value_parser = stripe_parser(), default_value = "file")]
    pub stripe: Stripe,

    /// Also with only 1, 2, 4, ... of the disks: the rate over their number
    #[arg(long)]
    pub sweep: bool,

    /// Bytes of each file
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, default_value = "64MiB")]
    pub size: u64,

    /// Files: so many for each disk; with `--stripe chunk`, over all of them
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub files: u16,

    /// Folder in memory for the other end: one file of `--size` to send, all files received
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub memory: PathBuf,

    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,

    /// Also write PREFIX.json and PREFIX.html
    #[arg(long, value_name = "PREFIX")]
    pub out: Option<PathBuf>,
}

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Program {
    /// One sender to N disks
    Write,
    /// N disks to one receiver
    Read,
    /// Write, then read what was written
    Both,
}

/// The names of `cp --stripe`.
fn stripe_parser() -> impl TypedValueParser<Value = Stripe> {
    let choices = [
        PossibleValue::new("file").help("Each file stands whole on one of them: any program reads a volume"),
        PossibleValue::new("chunk")
            .help("Files above 16 MiB stand in chunks on all of them, and are read again with --join"),
    ];
    PossibleValuesParser::new(choices).map(|name| Stripe::by_name(name.as_bytes()).expect("one of these two"))
}

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    host: Host,
    volumes: Vec<String>,
    file_bytes: u64,
    /// With all volumes.
    files: u64,
    /// What the system says of the devices, and what memory allows.
    ceilings: Vec<String>,
    /// The smallest number of volumes first; the last ones are with all of them.
    runs: Vec<Run>,
}

/// One program.
#[derive(Debug, Serialize)]
pub struct Run {
    program: &'static str,
    /// The first so many of the volumes.
    volumes: usize,
    bytes: u64,
    seconds: f64,
    /// Of the whole job, greeting, flushes and names included.
    bytes_per_second: f64,
    /// What the disks' own counters say, over the same time.
    disks_bytes_per_second: f64,
    limiter: String,
    /// Why it cannot be what it says; empty: it can.
    flag: String,
    /// The devices below the volumes, by the volumes on each: what the samples' columns are of.
    disks: Vec<String>,
    samples: Vec<Sample>,
}

/// Bytes per second of each disk since the sample before.
#[derive(Debug, Serialize)]
pub struct Sample {
    seconds: f64,
    bytes_per_second: Vec<f64>,
}

/// Everything that is removed at the end, and the processes that end with it.
struct Ground {
    volumes: Vec<PathBuf>,
    memory: PathBuf,
    daemon: Option<Child>,
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        for volume in &self.volumes {
            let _ = std::fs::remove_dir_all(volume.join(FOLDER));
        }
        let _ = std::fs::remove_dir_all(&self.memory);
    }
}

/// Measures and prints.
///
/// # Errors
/// A folder that is not there or is no disk's, a job that did not end whole.
pub fn run(arguments: &PathArguments) -> anyhow::Result<()> {
    let patterns: Vec<_> = arguments.disks.iter().map(|path| path.as_os_str().to_owned()).collect();
    let disks =
        node::client::patterns::expand_all(&patterns).map_err(|failure| anyhow::anyhow!("{}", failure.cause))?;
    let volumes =
        disks.iter().map(|disk| std::fs::canonicalize(disk).with_context(|| format!("find {}", disk.display())));
    let volumes = volumes.collect::<Result<Vec<_>, _>>()?;
    let memory = std::fs::canonicalize(&arguments.memory)
        .with_context(|| format!("find {}", arguments.memory.display()))?
        .join(format!("{FOLDER}-{}", std::process::id()));
    let host = Host::here();
    let mut ground = Ground { volumes, memory, daemon: None };
    let devs = ground.volumes.iter().map(|volume| ceilings::device_of(volume));
    let devs = devs.collect::<std::io::Result<Vec<u64>>>()?;
    let all = ground.volumes.len();
    let each = if arguments.stripe == Stripe::File { all as u64 } else { 1 };
    let files = u64::from(arguments.files) * each;
    ground.plant(arguments.size)?;
    let url = ground.serve()?;
    let mut runs = Vec::new();
    for count in if arguments.sweep { counts(all) } else { vec![all] } {
        runs.extend(ground.programs(arguments, &url, count)?);
    }
    // Nobody's memory is measured while a job runs.
    let ceilings = ceilings::memory().with_devices(&devs);
    for run in &mut runs {
        // With fewer disks fewer links bound it; which ones is not worth another look.
        let links_gbs = ceilings.links_gbs.filter(|_| run.volumes == all);
        run.flag = flag(run, &Ceilings { links_gbs, ..ceilings.clone() });
    }
    let volumes = ground.volumes.iter().map(|volume| volume.display().to_string()).collect();
    let report = Report { host, volumes, file_bytes: arguments.size, files, ceilings: ceilings.lines, runs };
    if let Some(prefix) = &arguments.out {
        let with = |end: &str| PathBuf::from(format!("{}.{end}", prefix.display()));
        std::fs::write(with("json"), serde_json::to_string_pretty(&report)?).context("write the JSON")?;
        std::fs::write(with("html"), page::page(&report)).context("write the page")?;
    }
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{}", table(&report));
    }
    believed(&report.runs)
}

/// Errors: a run whose figures cannot be.
fn believed(runs: &[Run]) -> anyhow::Result<()> {
    match runs.iter().find(|run| run.flag.contains(IMPOSSIBLE)) {
        Some(run) => bail!("an impossible figure, do not trust this report: {}: {}", run.program, run.flag),
        None => Ok(()),
    }
}

/// 1, 2, 4, ... and all.
fn counts(all: usize) -> Vec<usize> {
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|it| *it < all).collect();
    counts.push(all);
    counts
}

/// Why a run cannot be what it says. The disks' counters are bounded as devices are; the job as what cores copy, and as what the disks counted.
fn flag(run: &Run, ceilings: &Ceilings) -> String {
    let (job, disks) = (run.bytes_per_second / 1e9, run.disks_bytes_per_second / 1e9);
    let counted = ceilings.flag(Figure { gbs: disks, copiers: 0, device_gbs: 0.0 });
    if !counted.is_empty() {
        return format!("the disks' counters: {counted}");
    }
    // Every chunk is copied at least once, by any of the cores. A disk that counted nothing at all was not asked: everything was a cache's.
    ceilings.flag(Figure { gbs: job, copiers: ceilings.cores, device_gbs: disks.max(1e-6) })
}

/// Bytes that a folder's file system has left.
fn free_bytes(folder: &Path) -> anyhow::Result<u64> {
    Ok(sys::fs::Dir::open(folder.as_os_str().as_bytes())?.space()?.free_bytes)
}

impl Ground {
    /// One file of random bytes in memory.
    fn plant(&self, bytes: u64) -> anyhow::Result<()> {
        let source = self.memory.join("source");
        for folder in [&source, &self.memory.join("home-a"), &self.memory.join("home-b")] {
            std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        }
        ensure!(free_bytes(&self.memory)? > bytes, "{} has no room for one file", self.memory.display());
        let first = source.join("0");
        let random = std::fs::File::open("/dev/urandom")?;
        std::io::copy(&mut std::io::Read::take(random, bytes), &mut std::fs::File::create(&first)?)?;
        Ok(())
    }

    /// The first so many volumes, empty, and the file under as many names as files are to be sent: each is sent as a file of its own.
    fn lay_out(&self, files: u64, count: usize) -> anyhow::Result<()> {
        let source = self.memory.join("source");
        for number in 1..files {
            let name = source.join(number.to_string());
            if !name.exists() {
                std::fs::hard_link(source.join("0"), name)?;
            }
        }
        let _ = std::fs::remove_dir_all(self.memory.join("received"));
        for (number, volume) in self.volumes.iter().enumerate() {
            let folder = volume.join(FOLDER);
            let _ = std::fs::remove_dir_all(&folder);
            if number < count {
                std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
            }
        }
        Ok(())
    }

    /// What was asked for, with the first so many volumes.
    fn programs(&self, arguments: &PathArguments, url: &str, count: usize) -> anyhow::Result<Vec<Run>> {
        let each = if arguments.stripe == Stripe::File { count as u64 } else { 1 };
        let files = u64::from(arguments.files) * each;
        self.lay_out(files, count)?;
        let mut runs = vec![self.write(url, arguments.stripe, count)?];
        if arguments.program != Program::Write {
            let room = free_bytes(&self.memory)?;
            let need = arguments.size * files;
            ensure!(
                room > need + (64 << 20),
                "the received files need {} in {}, and {} are free: give fewer or another --memory",
                units::show_bytes(need),
                self.memory.display(),
                units::show_bytes(room)
            );
            runs.push(self.read(url, count)?);
        }
        if arguments.program == Program::Read {
            runs.remove(0); // it only laid the files out
        }
        Ok(runs)
    }

    fn command(&self, home: &str) -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env("LONGHAUL_HOME", self.memory.join(home)).stdin(Stdio::null());
        Ok(command)
    }

    /// A daemon of this binary; its address with a ticket.
    fn serve(&mut self) -> anyhow::Result<String> {
        let root = self.root();
        ensure!(
            !self.memory.starts_with(&root),
            "no daemon serves a folder that holds its own keys: give disks with a common folder which is not above --memory {}",
            self.memory.display()
        );
        let mut command = self.command("home-b")?;
        command.args(["serve", "--root"]).arg(root).args(["--listen", "127.0.0.1:0", "--ticket"]);
        let mut daemon = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("start a daemon")?;
        let out = daemon.stdout.take().context("the daemon's words")?;
        self.daemon = Some(daemon);
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        ensure!(line.starts_with("longhaul://"), "the daemon did not say its address");
        Ok(line.trim_end().to_owned())
    }

    /// The deepest folder that all volumes are below, or are.
    fn root(&self) -> PathBuf {
        let mut root = self.volumes[0].clone();
        while !self.volumes.iter().all(|volume| volume.starts_with(&root)) && root.pop() {}
        root
    }

    /// The volumes' folders below the daemon's root.
    fn targets(&self, url: &str, below: &str, count: usize) -> Vec<String> {
        let root = self.root();
        let path = |volume: &PathBuf| {
            let inner = volume.strip_prefix(&root).unwrap_or(volume).join(FOLDER);
            format!("{url}{}{below}", inner.display())
        };
        self.volumes[..count].iter().map(path).collect()
    }

    fn write(&self, url: &str, stripe: Stripe, count: usize) -> anyhow::Result<Run> {
        let mut command = self.command("home-a")?;
        command.args(["cp", "--json", "--no-hard-links", "--stripe", stripe.name()]).arg(self.memory.join("source"));
        command.args(self.targets(url, "", count));
        self.measure("one sender to the disks", command, 6, count)
    }

    /// What was written leaves the page cache: it would be read at the rate of memory.
    fn cool(&self, count: usize) -> anyhow::Result<()> {
        for volume in &self.volumes[..count] {
            sys::fs::Dir::open(volume.as_os_str().as_bytes())?.sync_fs()?;
            cool(&volume.join(FOLDER)).with_context(|| format!("read {}", volume.display()))?;
        }
        Ok(())
    }

    fn read(&self, url: &str, count: usize) -> anyhow::Result<Run> {
        self.cool(count)?;
        let mut command = self.command("home-a")?;
        command
            .args(["cp", "--json", "--join"])
            .args(self.targets(url, "/source", count))
            .arg(self.memory.join("received"));
        self.measure("the disks to one receiver", command, 2, count)
    }

    /// Runs a job and looks at the disks' counters meanwhile: `column` of their `stat`.
    fn measure(
        &self,
        program: &'static str,
        mut command: Command,
        column: usize,
        volumes: usize,
    ) -> anyhow::Result<Run> {
        let devices = self.volumes[..volumes].iter().map(|volume| device_of(volume)).collect::<Result<Vec<_>, _>>()?;
        let (devices, disks) = each_once(devices, &self.volumes);
        let over = AtomicBool::new(false);
        let (output, samples) = std::thread::scope(|scope| {
            let watch = scope.spawn(|| watch(&devices, column, &over));
            let output = command.stderr(Stdio::inherit()).output();
            over.store(true, Ordering::Relaxed);
            (output, watch.join())
        });
        let output = output.context("run the job")?;
        let Ok(samples) = samples else { bail!("the disks' counters could not be watched") };
        let text = String::from_utf8_lossy(&output.stdout);
        let done: serde_json::Value =
            serde_json::from_str(text.lines().last().unwrap_or_default()).context("the job's last word")?;
        ensure!(output.status.success(), "the job failed: {done}");
        let number = |field: &str| done[field].as_f64().unwrap_or(0.0);
        let (bytes, seconds) = (number("bytes"), number("seconds"));
        let limiter = done["limiter"].as_str().unwrap_or("the limiter is not known").to_owned();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes are whole and not negative")]
        let bytes_whole = bytes as u64;
        let (bytes, bytes_per_second) = (bytes_whole, bytes / seconds.max(1e-9));
        let mut run = Run {
            program,
            volumes,
            bytes,
            seconds,
            bytes_per_second,
            disks_bytes_per_second: 0.0,
            limiter,
            flag: String::new(),
            disks,
            samples,
        };
        run.disks_bytes_per_second = sums(&run).iter().sum::<f64>() / seconds.max(1e-9);
        Ok(run)
    }
}

/// Each device once, and the volumes on it as its name.
fn each_once(devices: Vec<PathBuf>, volumes: &[PathBuf]) -> (Vec<PathBuf>, Vec<String>) {
    let (mut each, mut names): (Vec<PathBuf>, Vec<String>) = (Vec::new(), Vec::new());
    for (device, volume) in devices.into_iter().zip(volumes) {
        match each.iter().position(|it| *it == device) {
            Some(at) => names[at] += &format!(", {}", volume.display()),
            None => {
                each.push(device);
                names.push(volume.display().to_string());
            }
        }
    }
    (each, names)
}

/// All files below a folder leave the page cache.
fn cool(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            cool(&entry.path())?;
        } else if entry.file_type()?.is_file() {
            sys::fs::drop_cache(&std::fs::File::open(entry.path())?, 0, 0)?;
        }
    }
    Ok(())
}

/// Where the kernel counts for a folder's block device.
fn device_of(folder: &Path) -> anyhow::Result<PathBuf> {
    let dev = ceilings::device_of(folder)?;
    let path = PathBuf::from(format!("/sys/dev/block/{}:{}/stat", rustix::fs::major(dev), rustix::fs::minor(dev)));
    ensure!(path.exists(), "{} is on no block device, so nobody counts what it reads and writes", folder.display());
    Ok(path)
}

fn sectors(stat: &Path, column: usize) -> u64 {
    let text = std::fs::read_to_string(stat).unwrap_or_default();
    text.split_whitespace().nth(column).and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn watch(devices: &[PathBuf], column: usize, over: &AtomicBool) -> Vec<Sample> {
    let look = || devices.iter().map(|it| sectors(it, column)).collect::<Vec<_>>();
    let (begun, mut at, mut before) = (Instant::now(), Instant::now(), look());
    let mut samples = Vec::new();
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
        let (now, after) = (Instant::now(), look());
        let span = (now - at).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        let rate = |(after, before): (&u64, &u64)| after.saturating_sub(*before).saturating_mul(SECTOR) as f64 / span;
        let bytes_per_second = after.iter().zip(&before).map(rate).collect();
        samples.push(Sample { seconds: (now - begun).as_secs_f64(), bytes_per_second });
        (at, before) = (now, after);
    }
    samples
}

/// Bytes of each disk over a run.
fn sums(run: &Run) -> Vec<f64> {
    let mut sums = vec![0.0; run.samples.first().map_or(0, |it| it.bytes_per_second.len())];
    let mut before = 0.0;
    for sample in &run.samples {
        for (sum, rate) in sums.iter_mut().zip(&sample.bytes_per_second) {
            *sum += rate * (sample.seconds - before);
        }
        before = sample.seconds;
    }
    sums
}

fn rate(value: f64) -> String {
    format!("{:.1} MB/s", value / 1e6)
}

fn table(report: &Report) -> String {
    let mut text = report.ceilings.iter().fold(String::new(), |text, line| text + line + "\n") + "\n";
    for run in report.runs.iter().filter(|run| run.volumes == report.volumes.len()) {
        let mut table = Table::new(&["disk", "mean", "share"]);
        let sums = sums(run);
        let all: f64 = sums.iter().sum();
        for (disk, sum) in run.disks.iter().zip(&sums) {
            table.line([disk.clone(), rate(sum / run.seconds), format!("{:.1} %", sum / all.max(1.0) * 100.0)]);
        }
        table.line(["all".to_owned(), rate(all / run.seconds), String::new()]);
        text += &format!(
            "{}: {} in {:.2} s, {}{}\n{table}{}\n\n",
            run.program,
            units::show_bytes(run.bytes),
            run.seconds,
            rate(run.bytes_per_second),
            flagged(run),
            run.limiter
        );
    }
    if report.runs.iter().any(|run| run.volumes != report.volumes.len()) {
        let mut table = Table::new(&["disks", "program", "job", "disks' counters", "flag"]);
        for run in &report.runs {
            let (job, disks) = (rate(run.bytes_per_second), rate(run.disks_bytes_per_second));
            table.line([run.volumes.to_string(), run.program.to_owned(), job, disks, run.flag.clone()]);
        }
        text += &format!("over the number of disks\n{table}");
    }
    text
}

/// A flag behind a figure.
fn flagged(run: &Run) -> String {
    if run.flag.is_empty() { String::new() } else { format!(" (!) {}", run.flag) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_run(samples: Vec<Sample>, bytes_per_second: f64, disks_bytes_per_second: f64) -> Run {
        let (limiter, flag) = (String::new(), String::new());
        let (program, volumes, bytes, seconds) = ("", 2, 100, 1.5);
        let disks = vec!["/a".to_owned(), "/b".to_owned()];
        Run {
            program,
            volumes,
            bytes,
            seconds,
            bytes_per_second,
            disks_bytes_per_second,
            limiter,
            flag,
            disks,
            samples,
        }
    }

    #[test]
    fn four_folders_of_one_disk_count_its_bytes_once() {
        let folders: Vec<PathBuf> = ["/d/0", "/d/1", "/e", "/d/2", "/d/3"].iter().map(PathBuf::from).collect();
        let devices = ["8:0", "8:0", "8:16", "8:0", "8:0"].iter().map(PathBuf::from).collect();
        let (devices, names) = each_once(devices, &folders);
        assert_eq!(devices, ["8:0", "8:16"].map(PathBuf::from));
        assert_eq!(names, ["/d/0, /d/1, /d/2, /d/3", "/e"]);
    }

    #[test]
    fn an_impossible_figure_is_an_error_and_a_caches_rate_a_mark() {
        let with = |flag: &str| [Run { flag: flag.to_owned(), ..a_run(Vec::new(), 1.0, 1.0) }];
        assert!(believed(&with("")).is_ok() && believed(&with("a cache's rate, not the device's")).is_ok());
        let why = believed(&with("the disks' counters: faster than memory (30.0 GB/s): impossible"));
        assert!(why.is_err_and(|why| why.to_string().contains("do not trust this report")));
    }

    #[test]
    fn a_disks_bytes_are_its_rates_times_their_spans() {
        let sample = |seconds, rates: [f64; 2]| Sample { seconds, bytes_per_second: rates.to_vec() };
        let samples = vec![sample(0.5, [100.0, 0.0]), sample(1.5, [10.0, 40.0])];
        assert_eq!(sums(&a_run(samples, 66.0, 66.0)), [60.0, 40.0]);
    }

    #[test]
    fn a_sum_above_memory_or_links_is_impossible_and_one_that_the_disks_did_not_count_is_a_caches() {
        let ceilings =
            Ceilings { copy_gbs_max: 20.0, memory_gbs: 30.0, links_gbs: Some(8.0), cores: 2, ..Ceilings::default() };
        let said = |job: f64, disks: f64| flag(&a_run(Vec::new(), job * 1e9, disks * 1e9), &ceilings);
        assert_eq!(said(4.0, 4.1), "");
        assert!(said(4.0, 1.0).contains("a cache's rate"), "{}", said(4.0, 1.0));
        assert!(said(4.0, 0.0).contains("a cache's rate"));
        assert!(said(9.0, 10.0).starts_with("the disks' counters") && said(9.0, 10.0).contains("link"));
        assert!(said(9.0, 40.0).contains("memory (30.0 GB/s): impossible"));
        assert!(said(50.0, 7.0).contains("2 cores"));
    }

    #[test]
    fn a_sweep_doubles_up_to_all_disks() {
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(4), [1, 2, 4]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
    }
}
