//! What a scenario has: two hosts, a folder, the binary, and ways to say what held.
//!
//! For: all scenarios. In and out: arguments → processes on a host, their exit codes and the lines of their reports.
//! Invariants: whatever runs in the hosts, and the folder, end with the `World`; every process has a limit of time; a report that is none is an
//! empty one, whose fields are `null`, so that no check passes by it.
//! Absent on purpose: links that delay or lose (emulated/mod.rs).

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use lab::hosts::Side;
use lab::pair::{Pair, address};
use lab::wire::dice::Dice;
use serde_json::Value;

/// Bytes of a MiB.
pub(crate) const MIB: u64 = 1 << 20;
/// Port of a daemon that a scenario starts.
pub(crate) const PORT: u16 = 7440;
/// A process that takes longer than this is ended, and its check fails.
const LIMIT: Duration = Duration::from_secs(60);
/// Between two looks at something that is waited for.
const PAUSE: Duration = Duration::from_millis(20);

/// Why a scenario cannot run here.
pub(crate) struct Skip(pub(crate) String);

/// See the module.
pub(crate) struct World {
    pair: Pair,
    binary: PathBuf,
    folder: PathBuf,
    runs: u32,
    bad: u32,
}

/// A job that has ended, and what it said.
pub(crate) struct Run {
    /// Exit code; 128 + signal where it has none.
    pub(crate) status: i32,
    /// All that it wrote to its standard output.
    pub(crate) out: String,
    /// The lines of JSON in it.
    pub(crate) lines: Vec<Value>,
    /// What it wrote for people.
    pub(crate) err: String,
    /// From its start to its end.
    pub(crate) took: Duration,
    /// The most memory it has had at once, as the kernel counts it; bytes.
    pub(crate) peak_bytes: u64,
}

impl Run {
    /// A field of the report, which is its last line.
    pub(crate) fn field(&self, name: &str) -> &Value {
        self.lines.last().map_or(&Value::Null, |line| &line[name])
    }

    /// A number of the report; 0 where there is none.
    pub(crate) fn number(&self, name: &str) -> f64 {
        self.field(name).as_f64().unwrap_or(0.0)
    }

    /// A text of the report; empty where there is none.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.field(name).as_str().unwrap_or_default()
    }

    /// Its notes that have all of these words, in this order.
    pub(crate) fn notes(&self, words: &[&str]) -> usize {
        let notes = self.lines.iter().filter(|line| line["event"] == "note");
        notes.filter(|line| has_in_order(line["text"].as_str().unwrap_or_default(), words)).count()
    }

    /// Lines of its output that have all of these words, in this order.
    pub(crate) fn lines_with(&self, words: &[&str]) -> usize {
        self.out.lines().filter(|line| has_in_order(line, words)).count()
    }

    /// For whoever reads that a check failed.
    pub(crate) fn why(&self) -> String {
        let report = self.lines.last().map_or(String::from("no report"), Value::to_string);
        format!("status {}; {}; {}", self.status, self.err.trim(), report.chars().take(400).collect::<String>())
    }
}

/// Do these words stand in the text, each behind the one before?
pub(crate) fn has_in_order(text: &str, words: &[&str]) -> bool {
    words.iter().try_fold(text, |rest, word| rest.split_once(word).map(|(_, rest)| rest)).is_some()
}

/// A process that runs; killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    out: PathBuf,
    err: PathBuf,
    began: Instant,
}

impl Running {
    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written so far.
    pub(crate) fn out(&self) -> String {
        std::fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// Waits for its end; one that takes longer than `limit` is killed.
    pub(crate) fn end_within(mut self, limit: Duration) -> Run {
        let (status, peak_bytes) = wait(&mut self.child, self.began + limit);
        let took = self.began.elapsed();
        let out = self.out();
        let lines = out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let err = std::fs::read_to_string(&self.err).unwrap_or_default();
        Run { status: code(status), out, lines, err, took, peak_bytes }
    }

    /// As above, with the usual limit.
    pub(crate) fn end(self) -> Run {
        self.end_within(LIMIT)
    }

    /// Sends SIGKILL and waits.
    pub(crate) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn stop(self) -> Run {
        self.signal(rustix::process::Signal::TERM);
        self.end()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let id = i32::try_from(self.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(id) = id {
            // It may have ended meanwhile, which is what was wanted.
            let _ = rustix::process::kill_process(id, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A daemon on host b.
pub(crate) struct Daemon {
    /// Its process.
    pub(crate) running: Running,
    /// Its address with a ticket, which ends in `/`.
    pub(crate) url: String,
}

impl Daemon {
    /// The one that this process is; waits until it says where.
    pub(crate) fn of(running: Running) -> Daemon {
        until(Duration::from_secs(10), || running.out().starts_with("longhaul://"));
        let url = running.out().lines().next().unwrap_or_default().to_owned();
        assert!(url.starts_with("longhaul://"), "serve did not print its address");
        Daemon { running, url }
    }
}

impl World {
    /// Makes it, for this binary.
    pub(crate) fn make(binary: &OsStr) -> Result<World, Skip> {
        if !rustix::process::geteuid().is_root() {
            return Err(Skip("needs root, for two network namespaces".into()));
        }
        let binary = std::fs::canonicalize(binary).map_err(|error| Skip(format!("{}: {error}", binary.display())))?;
        let pair = Pair::make().map_err(|error| Skip(format!("no hosts can be made here: {error:#}")))?;
        let parent = std::env::var_os("E2E_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let number = sys::clock::now_ns();
        let folder = parent.join(format!("longhaul-reports.{}.{number}", std::process::id()));
        for name in ["src", "dst/far", "home-a", "home-b"] {
            std::fs::create_dir_all(folder.join(name))
                .map_err(|error| Skip(format!("{}: {error}", folder.display())))?;
        }
        Ok(World { pair, binary, folder, runs: 0, bad: 0 })
    }

    /// A path below the scenario's folder.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The same as a word of a command line.
    pub(crate) fn word(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }

    /// The binary.
    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    /// The hosts.
    pub(crate) fn pair(&self) -> &Pair {
        &self.pair
    }

    /// How many checks failed.
    pub(crate) fn bad(&self) -> u32 {
        self.bad
    }

    /// Says that something held.
    pub(crate) fn ok(&self, words: &str) {
        println!("ok {words}");
    }

    /// Says that something did not, and why.
    pub(crate) fn not_ok(&mut self, words: &str, why: &str) {
        self.bad += 1;
        println!("not ok {words}");
        why.lines().take(12).for_each(|line| println!("#   {line}"));
    }

    /// Says whether it held; `why` for whoever reads that it did not.
    pub(crate) fn holds(&mut self, words: &str, held: bool, why: &str) {
        if held { self.ok(words) } else { self.not_ok(words, why) }
    }

    /// Says whether two things are the same.
    pub(crate) fn is<T: PartialEq + std::fmt::Debug>(&mut self, got: T, wanted: T, words: &str) {
        let why = format!("got {got:?}, wanted {wanted:?}");
        self.holds(words, got == wanted, &why);
    }

    /// Says whether a job ended with this exit code.
    pub(crate) fn ends(&mut self, run: &Run, code: i32, words: &str) {
        self.holds(words, run.status == code, &format!("exit code {code} expected; {}", run.why()));
    }

    /// Says whether two files have the same bytes.
    pub(crate) fn same(&mut self, one: &str, other: &str, words: &str) {
        self.same_from(0, one, other, words);
    }

    /// Says whether two files have the same bytes from `offset` on.
    pub(crate) fn same_from(&mut self, offset: u64, one: &str, other: &str, words: &str) {
        let (one, other) = (self.at(one), self.at(other));
        let status = Command::new("cmp").arg(format!("--ignore-initial={offset}")).arg(&one).arg(&other).output();
        let why =
            status.as_ref().map_or_else(ToString::to_string, |it| String::from_utf8_lossy(&it.stdout).into_owned());
        self.holds(words, status.is_ok_and(|it| it.status.success()), &why);
    }

    /// Says whether names, kinds, modes, times, targets and bytes are equal, by a comparison of our own that knows nothing of longhaul.
    pub(crate) fn same_tree(&mut self, one: &str, other: &str, words: &str) {
        let (one, other) = (self.at(one), self.at(other));
        let judge = concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/tree.py");
        let output = Command::new("python3").args([judge, "same"]).arg(&one).arg(&other).output();
        let why = output.as_ref().map_or_else(ToString::to_string, |it| {
            String::from_utf8_lossy(&it.stdout).into_owned() + &String::from_utf8_lossy(&it.stderr)
        });
        self.holds(words, output.is_ok_and(|it| it.status.success()), &why);
    }

    /// A file of random bytes, the same for the same name and size.
    pub(crate) fn random_file(&self, name: &str, bytes: u64) {
        let path = self.at(name);
        std::fs::create_dir_all(path.parent().expect("below the folder")).expect("a folder");
        let mut dice = Dice::new(bytes ^ name.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31) ^ u64::from(byte)));
        let mut file = std::io::BufWriter::with_capacity(1 << 20, File::create(path).expect("a file"));
        let mut left = bytes;
        while left > 0 {
            let word = dice.draw().to_ne_bytes();
            let part = usize::try_from(left.min(8)).expect("at most 8");
            file.write_all(&word[..part]).expect("room");
            left -= part as u64;
        }
        file.flush().expect("room");
    }

    /// So many files of less than 2,000 random bytes, a thousand in a folder.
    pub(crate) fn many_files(&self, name: &str, count: u64) {
        let mut dice = Dice::new(count);
        let bytes: Vec<u8> = (0..2_048).map(|_| dice.draw().to_ne_bytes()[0]).collect();
        for number in 0..count {
            let folder = self.at(&format!("{name}/{:04}", number / 1000));
            if number % 1000 == 0 {
                std::fs::create_dir_all(&folder).expect("a folder");
            }
            let size = usize::try_from(dice.below(2_000)).expect("less than 2,000");
            std::fs::write(folder.join(format!("f{number:07}")), &bytes[..size]).expect("room");
        }
    }

    /// Starts the binary on a host.
    pub(crate) fn start(&mut self, side: Side, words: &[&str]) -> Running {
        let mut command = self.pair.command(side, &self.binary).expect("the host is there");
        command.args(words);
        self.spawn(side, command)
    }

    /// Starts a command as a process of a host: with that host's LONGHAUL_HOME, its output into files.
    pub(crate) fn spawn(&mut self, side: Side, mut command: Command) -> Running {
        self.runs += 1;
        let [out, err] = ["out", "err"].map(|end| self.at(&format!("run-{}.{end}", self.runs)));
        command.env("LONGHAUL_HOME", self.at(if side == Side::A { "home-a" } else { "home-b" }));
        command.stdin(Stdio::null());
        command.stdout(File::create(&out).expect("a file")).stderr(File::create(&err).expect("a file"));
        let began = Instant::now();
        let child = sys::netns::die_with_parent(&mut command).spawn().expect("the process starts");
        Running { child, out, err, began }
    }

    /// Runs the binary on the machine itself, outside of the hosts, to its end.
    pub(crate) fn here(&mut self, words: &[&str]) -> Run {
        self.start_here(words).end()
    }

    /// The same in the background.
    pub(crate) fn start_here(&mut self, words: &[&str]) -> Running {
        let mut command = Command::new(&self.binary);
        command.args(words);
        self.spawn(Side::A, command)
    }

    /// `longhaul cp --json` on host a, to its end.
    pub(crate) fn cp(&mut self, words: &[&str]) -> Run {
        self.start_cp(words).end()
    }

    /// The same in the background.
    pub(crate) fn start_cp(&mut self, words: &[&str]) -> Running {
        self.start(Side::A, &[&["cp", "--json"], words].concat())
    }

    /// A daemon with a ticket on host b.
    pub(crate) fn serve(&mut self, root: &str, words: &[&str]) -> Daemon {
        self.serve_at(&format!("{}:{PORT}", address(Side::B)), root, words)
    }

    /// The same that listens there.
    pub(crate) fn serve_at(&mut self, listen: &str, root: &str, words: &[&str]) -> Daemon {
        let root = self.word(root);
        let running =
            self.start(Side::B, &[&["serve", "--root", &root, "--listen", listen, "--ticket"], words].concat());
        Daemon::of(running)
    }

    /// Runs a program on a host; what it wrote, if it did what it was asked.
    pub(crate) fn run(&self, side: Side, program: &str, words: &[&str]) -> Option<String> {
        let output = self.pair.command(side, program).ok()?.args(words).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Does something on that host listen at this TCP port?
    pub(crate) fn listens(&self, side: Side, port: u16) -> bool {
        let table = self.pair.inside(side, || std::fs::read_to_string("/proc/thread-self/net/tcp"));
        table.is_ok_and(|table| table.contains(&format!(":{port:04X} 00000000:0000 0A")))
    }

    /// Takes away a file, or a folder with all below.
    pub(crate) fn remove(&self, name: &str) {
        let path = self.at(name);
        let _ = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
    }

    /// An empty folder in the place of what was there.
    pub(crate) fn empty(&self, name: &str) {
        let _ = std::fs::remove_dir_all(self.at(name));
        std::fs::create_dir_all(self.at(name)).expect("a folder");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Tries until it holds; the time is a limit, never a pause that must pass.
pub(crate) fn until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

/// Its end, and the most memory that it had until some ms before: the kernel forgets the figure with the process.
fn wait(child: &mut Child, end: Instant) -> (ExitStatus, u64) {
    let mut peak_bytes = 0;
    loop {
        peak_bytes = peak_memory_bytes(child.id()).max(peak_bytes);
        if let Some(status) = child.try_wait().expect("a child of ours") {
            return (status, peak_bytes);
        }
        if Instant::now() > end {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// VmHWM of a process that runs; bytes, 0 where it has ended.
pub(crate) fn peak_memory_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
