//! `bench ftp`: servers and clients of FTP, and transports of ours, side by side on hosts of this machine's own making.
//!
//! For: seven figures: LAN, WAN, transport alone, a trace of files, processor time, where the time goes, and what tuning does.
//! In and out: figures, sizes, delays → each turn while it runs, tables, a JSON record and one HTML page.
//! Invariants: rows take turns, round by round; what is not installed or not in this build is told by name; what arrived is compared byte for byte;
//! a Ctrl-C keeps what was measured; nothing of the host is changed, and nothing but the results is left behind.
//! Absent on purpose: disks (files lie in memory), other machines, loss and rates of links (`bench wan`).

pub mod hosts; // two hosts, servers on one of them
pub mod rows; // who competes
pub mod turn; // one run
pub mod record; // medians, arithmetic
pub mod page; // HTML

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use sys::signals;
use text::exit::Exit;
use text::units;

use self::hosts::{Folders, Hosts, Kind, Server};
use self::record::{Absent, Cell, Lane, Report, sizes, zipf};
use self::rows::{Cover, ROWS, Row, Way};
use self::turn::{Ended, Ground, What};
use crate::race::content::Noise;
use crate::race::contestant::version;
use crate::table::{Host, ROUNDS, parse_rounds};

/// Of the Zipf traces: the paper's mean of 66 MB, and 20,000 small files in a GiB.
const LARGE: (usize, u64) = (60, 66_000_000);
const SMALL: (usize, u64) = (20_000, (1 << 30) / 20_000);
/// Over a distance a command for each file takes minutes: so many of them there.
const SMALL_FAR: usize = 500;
/// A session for each file takes longer still.
const APART: usize = 100;
/// More than so many curl is not asked for.
const CURL_FILES: usize = 1000;
/// From this delay on it is a distance.
const FAR: Duration = Duration::from_millis(1);
/// Of `breakdown`: (files, bytes of each).
const BROKEN_DOWN: [(usize, u64); 2] = [(1, 256 << 20), (50, 256 << 10)];
/// Messages of transports alone.
const MESSAGES: [u64; 5] = [4 << 10, 64 << 10, 256 << 10, CHUNK, 8 << 20];
/// Of a job's rails, as `cp` has it.
const CHUNK: u64 = 1 << 20;
/// Lines of `bench net` that `depth` shows: over which network, and what their names hold. First the one whose message has any size.
const LINES: [(&str, &str); 3] = [("tcp", "bare loop"), ("tcp", "rail"), ("udp", "packets,")];

/// What is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// Time of a get over the file's size, without delay
    Lan,
    /// The same over delays
    Wan,
    /// Transports alone, from memory to memory, over delay and message size
    Depth,
    /// Traces of many files, in one session and in one for each file
    Zipf,
    /// Processor time of client and server for a put
    Cpu,
    /// Connection time and data time
    Breakdown,
    /// GridFTP in steps of tuning, and ours as it is
    Motivation,
    All,
}

/// Whether files share a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Session {
    /// A client and a session for each file
    File,
    /// One for all files
    Persistent,
}

/// `longhaul bench ftp`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct FtpArguments {
    /// What to measure
    #[arg(long, value_enum, value_name = "NAME,...", value_delimiter = ',', default_value = "all")]
    pub figure: Vec<Figure>,

    /// Sizes of files: FROM..TO in steps of 16, or a list
    #[arg(long, value_name = "SIZES", default_value = "4KiB..1GiB")]
    pub sizes: String,

    /// Delays, one way: 5 us for each km. Without delay the hosts have a wire of the kernel's, else a link of `longhaul lab`
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', default_value = "0,10us,100us,1ms,10ms")]
    pub delays: Vec<String>,

    /// Rows whose name holds one of these texts; auto: all that can run
    #[arg(long, value_name = "TEXT,...", value_delimiter = ',', default_value = "auto")]
    pub peers: Vec<String>,

    /// Sessions of the traces
    #[arg(long, value_enum, value_name = "NAME,...", value_delimiter = ',', default_value = "file,persistent")]
    pub session: Vec<Session>,

    /// Rounds of which the median is shown
    #[arg(long, value_name = "N", value_parser = parse_rounds, default_value_t = ROUNDS)]
    pub rounds: usize,

    /// Files of one kind have at most so many bytes in all, and take room twice [default: 4 GB, or a quarter of the memory that is free]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub space: Option<u64>,

    /// Write PATH.json and PATH.html
    #[arg(long, value_name = "PATH", default_value = "longhaul-ftp")]
    pub out: PathBuf,

    /// Print one JSON object at the end instead of tables
    #[arg(long)]
    pub json: bool,
}

/// Measures, prints, writes.
///
/// # Errors
/// A word that means nothing; no hosts can be made here; the results cannot be written; stopped by a signal.
pub fn run(arguments: &FtpArguments) -> anyhow::Result<()> {
    let usage = |words: String| anyhow::Error::from(Exit::Usage.fail("understand what to measure", words));
    let list = sizes(&arguments.sizes).map_err(usage)?;
    rows::known(&arguments.peers).map_err(usage)?;
    let delay = |word: &String| if word == "0" { Ok(Duration::ZERO) } else { units::parse_duration(word) };
    let delays =
        arguments.delays.iter().map(delay).collect::<Result<Vec<_>, _>>().map_err(|error| usage(error.to_string()))?;
    // Both while this process has but one thread.
    lab::run::become_root()?;
    let signals = signals::watch(&[signals::SIGINT, signals::SIGTERM, signals::SIGHUP])?;
    let mut top = crate::wan::make_folder(None)?;
    top = top.canonicalize().unwrap_or(top);
    let folders = Folders { exe: std::env::current_exe().context("this program's own path is unknown")?, top };
    let whole = folders.make().context("folders could not be made").and_then(|()| {
        let free = sys::host::memory().map_or(u64::MAX, |memory| memory.available_bytes);
        let space = arguments.space.unwrap_or((free / 4).min(LARGE.0 as u64 * LARGE.1));
        Bench { arguments, folders: &folders, signals: &signals, space, report: new_report(arguments, space) }
            .all(&list, &delays)
    });
    let _ = std::fs::remove_dir_all(&folders.top);
    if whole? {
        return Ok(());
    }
    let out = arguments.out.display();
    Err(Exit::Interrupted
        .fail("measure all", "stopped")
        .next(format!("what was measured is in {out}.json and {out}.html"))
        .into())
}

fn new_report(arguments: &FtpArguments, space: u64) -> Report {
    let of = |words: &[&str]| version(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
    let versions = [
        of(&["sh", "-c", "vsftpd -v 0>&1"]),
        of(&["proftpd", "--version"]),
        of(&["globus-gridftp-server", "--version"]),
        of(&["globus-url-copy", "-version"]),
        of(&["curl", "--version"]),
        of(&["lftp", "--version"]),
    ];
    let mut versions: Vec<String> = versions.into_iter().filter(|line| !line.is_empty()).collect();
    versions.insert(0, format!("longhaul {}", env!("CARGO_PKG_VERSION")));
    let mut notes = vec![
        "Both hosts, all programs and the links' emulator share this machine's cores, and with whatever else runs there: ratios inside one table count, absolute figures do not.".to_owned(),
        "Files lie in memory (tmpfs) at both ends; nothing reaches a disk, and a flush costs ours next to nothing here.".to_owned(),
        "Without delay the hosts have a wire of the kernel's; with one, every packet goes through a program of ours, which costs time and processor: the step from 0 to the first delay is that.".to_owned(),
    ];
    if space < LARGE.0 as u64 * LARGE.1 {
        let mean = units::show_bytes(space / LARGE.0 as u64);
        notes.push(format!(
            "The trace of {} large files has a mean of {mean} instead of 66 MB: there is room for {}",
            LARGE.0,
            units::show_bytes(space)
        ));
    }
    Report {
        bench: "ftp",
        version: env!("CARGO_PKG_VERSION"),
        date: crate::table::date(),
        host: Host::here(),
        rounds: arguments.rounds,
        versions,
        notes,
        absent: Vec::new(),
        ftp: Vec::new(),
    }
}

/// A cell that is to be measured.
struct Plan {
    figure: &'static str,
    what: String,
    way: Way,
    dir: String,
    file: String,
    files: usize,
    bytes: u64,
}

struct Bench<'a> {
    arguments: &'a FtpArguments,
    folders: &'a Folders,
    signals: &'a signals::SignalFd,
    space: u64,
    report: Report,
}

impl Bench<'_> {
    fn wants(&self, figure: Figure) -> bool {
        self.arguments.figure.iter().any(|it| [figure, Figure::All].contains(it))
    }

    fn is_wanted(&self, row: &Row) -> bool {
        let names = &self.arguments.peers;
        names.iter().any(|text| text == "auto" || row.title().contains(text.as_str()))
    }

    /// All figures; false: stopped before the end.
    fn all(mut self, sizes: &[u64], delays: &[Duration]) -> anyhow::Result<bool> {
        eprintln!("{}\n{}", self.report.host, self.report.versions.join("; "));
        let mut whole = true;
        for (at, &delay) in delays.iter().enumerate() {
            let of_delay = self.plans(sizes, delay, at == 0);
            if of_delay.is_empty() && !self.wants(Figure::Depth) {
                continue;
            }
            whole = self.at_delay(delay, &of_delay)?;
            if !whole {
                break;
            }
        }
        if whole && self.wants(Figure::Motivation) {
            whole = self.motivation(delays)?;
        }
        // Whoever stopped it did so before these began.
        self.report.ftp.retain(|cell| cell.lanes.iter().any(record::Lane::began));
        self.report.notes.extend(self.report.verdicts());
        self.write()?;
        if self.arguments.json {
            println!("{}", serde_json::to_string(&self.report)?);
        } else {
            self.report.absent.iter().for_each(|it| println!("not run: {}: {}", it.name, it.why));
            self.report.notes.iter().for_each(|line| println!("{line}"));
            println!("written: {0}.json and {0}.html", self.arguments.out.display());
        }
        Ok(whole)
    }

    /// What is measured at this delay.
    fn plans(&self, sizes: &[u64], delay: Duration, is_first: bool) -> Vec<Plan> {
        let mut plans = Vec::new();
        let far = if delay.is_zero() { "no delay".to_owned() } else { format!("{delay:?} one way") };
        let mut one = |figure, way, bytes: u64, word: &str| {
            let (dir, file, what) =
                ("one".to_owned(), format!("s{bytes}"), format!("{word} {}, {far}", units::show_memory(bytes)));
            plans.push(Plan { figure, what, way, dir, file, files: 1, bytes });
        };
        for &bytes in sizes.iter().filter(|&&bytes| bytes <= self.space) {
            if is_first && self.wants(Figure::Lan) {
                one("lan", Way::Get, bytes, "get");
            }
            // The largest take minutes over a distance and say the same.
            if self.wants(Figure::Wan) && bytes <= 256 << 20 {
                one("wan", Way::Get, bytes, "get");
            }
        }
        let largest = sizes.iter().copied().filter(|&bytes| bytes <= self.space).max();
        if let Some(bytes) = largest.filter(|_| is_first && self.wants(Figure::Cpu)) {
            one("cpu", Way::Put, bytes, "put");
            one("cpu", Way::Get, bytes, "get");
        }
        let mut many = |figure, way, name: &str, files: usize, bytes: u64| {
            let session = if way == Way::PerFile { "a session each" } else { "one session" };
            let what = format!(
                "{} files of {} in all, {session}, {far}",
                units::show_count(files as u64),
                units::show_bytes(bytes)
            );
            plans.push(Plan { figure, what, way, dir: format!("{name}{files}"), file: String::new(), files, bytes });
        };
        if self.wants(Figure::Zipf) {
            let small = if delay >= FAR { SMALL_FAR } else { SMALL.0 };
            let of_small = |files: usize| (files as u64 * SMALL.1).min(self.space);
            for &session in &self.arguments.session {
                match session {
                    Session::Persistent => {
                        many("zipf", Way::Persistent, "large", LARGE.0, self.space.min(LARGE.0 as u64 * LARGE.1));
                        many("zipf", Way::Persistent, "small", small, of_small(small));
                    }
                    Session::File => many("zipf", Way::PerFile, "small", APART, of_small(APART)),
                }
            }
        }
        if self.wants(Figure::Breakdown) && (is_first || delay >= FAR) {
            for (files, bytes) in BROKEN_DOWN {
                let bytes = bytes.min(self.space / files as u64);
                let ways: &[Way] = if files == 1 { &[Way::Get] } else { &[Way::Persistent, Way::PerFile] };
                for &way in ways {
                    if files == 1 {
                        let (what, file) = (format!("get {}, {far}", units::show_memory(bytes)), format!("s{bytes}"));
                        plans.push(Plan { figure: "breakdown", what, way, dir: "one".to_owned(), file, files, bytes });
                    } else {
                        let files = if way == Way::PerFile { APART / 4 } else { files };
                        let session = if way == Way::PerFile { "a session each" } else { "one session" };
                        let what = format!("{files} files of {}, {session}, {far}", units::show_memory(bytes));
                        let bytes = bytes * files as u64;
                        plans.push(Plan {
                            figure: "breakdown",
                            what,
                            way,
                            dir: format!("even{files}"),
                            file: String::new(),
                            files,
                            bytes,
                        });
                    }
                }
            }
        }
        plans
    }

    /// Writes what a plan moves, if it is not there; what others left goes first.
    fn fill(&self, plan: &Plan) -> anyhow::Result<()> {
        let folder = self.folders.at("root/data").join(&plan.dir);
        let names: Vec<(String, u64)> = if plan.files == 1 {
            vec![(plan.file.clone(), plan.bytes)]
        } else {
            let even = vec![plan.bytes / plan.files as u64; plan.files];
            let sizes = if plan.dir.starts_with("even") { even } else { zipf(plan.files, plan.bytes) };
            sizes.into_iter().enumerate().map(|(at, bytes)| (format!("f{at}"), bytes)).collect()
        };
        if folder.join(&names[0].0).exists() {
            return Ok(());
        }
        for entry in std::fs::read_dir(self.folders.at("root/data"))?.flatten() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
        std::fs::create_dir(&folder)?;
        let mut noise = Noise::new(plan.bytes | 1);
        for (name, bytes) in names {
            noise.write(&mut File::create(folder.join(name))?, bytes)?;
        }
        Ok(())
    }

    fn at_delay(&mut self, delay: Duration, plans: &[Plan]) -> anyhow::Result<bool> {
        let hosts = Hosts::make(delay, 1500)?;
        let by = format!("TCP's congestion controller at {delay:?} one way: {}", hosts.congestion());
        eprintln!("{by}");
        self.report.notes.push(by);
        let done = self.between(&hosts, delay, plans);
        hosts.end();
        done
    }

    /// Starts the servers of the rows that can run; the others are noted once.
    fn servers(&mut self, hosts: &Hosts) -> (Vec<Server>, Vec<&'static Row>) {
        let (mut servers, mut rows): (Vec<Server>, Vec<&Row>) = (Vec::new(), Vec::new());
        let wanted: Vec<&'static Row> = ROWS.iter().filter(|row| self.is_wanted(row)).collect();
        for row in wanted {
            let is_here = servers.iter().any(|server| server.kind == row.kind);
            let installed = [row.kind.of().0, row.client]
                .iter()
                .all(|name| name.is_empty() || crate::race::contestant::is_here(name));
            let mut why = None;
            if !is_here && installed {
                match Server::start(row.kind, hosts, self.folders) {
                    Ok(server) => servers.push(server),
                    Err(error) => why = Some(format!("{error:#}")),
                }
            }
            match why.or_else(|| row.why_not(hosts)) {
                None => rows.push(row),
                Some(why) if self.report.absent.iter().all(|it| it.name != row.title()) => {
                    eprintln!("not run: {}: {why}", row.title());
                    self.report.absent.push(Absent { name: row.title(), why });
                }
                Some(_) => {}
            }
        }
        (servers, rows)
    }

    fn between(&mut self, hosts: &Hosts, delay: Duration, plans: &[Plan]) -> anyhow::Result<bool> {
        let (servers, rows) = self.servers(hosts);
        let ground = Ground { hosts, folders: self.folders, servers: &servers, signals: self.signals };
        for plan in plans {
            self.fill(plan)?;
            if !self.cell(&ground, plan, delay, &rows)? {
                return Ok(false);
            }
        }
        drop(servers);
        if self.wants(Figure::Depth) { self.depth(hosts, delay) } else { Ok(true) }
    }

    /// All rounds of a cell; false: stopped.
    fn cell(
        &mut self,
        ground: &Ground<'_>,
        plan: &Plan,
        delay: Duration,
        rows: &[&'static Row],
    ) -> anyhow::Result<bool> {
        let what = What {
            way: plan.way,
            dir: &plan.dir,
            file: &plan.file,
            files: plan.files,
            parts: plan.figure == "breakdown",
        };
        // curl takes the files of one session one by one, with waits of its own between them: minutes for thousands.
        let can =
            |row: &&Row| row.command(plan.way, &[]).is_some() && (plan.files <= CURL_FILES || row.client != "curl");
        let rows: Vec<&Row> = rows.iter().copied().filter(can).collect();
        let mut lanes: Vec<Lane> = rows.iter().map(|row| new_lane(row, row.shown(plan.way))).collect();
        eprintln!("{}: {}", plan.figure, plan.what);
        let mut whole = true;
        'rounds: for round in 0..self.arguments.rounds {
            for turn in 0..rows.len() {
                // The next round begins with another one.
                let at = (turn + round) % rows.len();
                // What fails twice fails.
                if lanes[at].failed.len() > 1 || lanes[at].failed.iter().any(|why| why.starts_with(turn::GIVEN_UP)) {
                    continue;
                }
                match ground.turn(rows[at], what)? {
                    Ended::Measured(turn) => {
                        eprintln!(
                            "  {}/{} {:<24} {:>9.4} s, CPU {:.2} + {:.2} s",
                            round + 1,
                            self.arguments.rounds,
                            lanes[at].name,
                            turn.seconds,
                            turn.client_s,
                            turn.server_s
                        );
                        lanes[at].turns.push(turn);
                    }
                    Ended::Failed(why) => {
                        eprintln!("  {}/{} {:<24} failed: {why}", round + 1, self.arguments.rounds, lanes[at].name);
                        lanes[at].failed.push(why);
                    }
                    Ended::Stopped => {
                        whole = false;
                        break 'rounds;
                    }
                }
            }
        }
        self.keep(plan.figure, plan.what.clone(), delay, (plan.bytes, plan.files), lanes)?;
        Ok(whole)
    }

    fn keep(
        &mut self,
        figure: &'static str,
        what: String,
        delay: Duration,
        (bytes, files): (u64, usize),
        mut lanes: Vec<Lane>,
    ) -> anyhow::Result<()> {
        for lane in &mut lanes {
            lane.seconds = lane.of(|turn| turn.seconds);
        }
        let cell = Cell { figure, what, delay_us: delay.as_secs_f64() * 1e6, bytes, files, lanes };
        if !self.arguments.json {
            println!("{}", page::text_table(&cell));
        }
        self.report.ftp.push(cell);
        self.write()
    }

    /// Transports alone.
    fn depth(&mut self, hosts: &Hosts, delay: Duration) -> anyhow::Result<bool> {
        let server = [Server::start(Kind::Memory, hosts, self.folders)?];
        let ground = Ground { hosts, folders: self.folders, servers: &server, signals: self.signals };
        for block in MESSAGES {
            let mut lanes = Vec::new();
            // A rail's message is its chunk, whatever is asked.
            let of_rails = if block == CHUNK { &LINES[..] } else { &LINES[..1] };
            for &lines in of_rails {
                match turn::memory(&ground, lines, block, 0.5)? {
                    // A bare loop has its message in its name, and so has the cell.
                    Ok(found) => lanes.extend(found.into_iter().map(|(name, gbps)| {
                        let name = if lines == LINES[0] { lines.1 } else { &name };
                        turn::memory_lane(name, block, gbps)
                    })),
                    Err(why) => lanes.push(Lane { failed: vec![why], ..turn::memory_lane(lines.1, block, 0.0) }),
                }
            }
            let what = format!("messages of {}, {delay:?} one way", units::show_memory(block));
            eprintln!("depth: {what}");
            self.keep("depth", what, delay, (block, 1), lanes)?;
            if self.signals.take().is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// GridFTP in steps of tuning, at the longest delay, and ours as it is.
    fn motivation(&mut self, delays: &[Duration]) -> anyhow::Result<bool> {
        let delay = delays.iter().copied().max().unwrap_or_default();
        let bytes = (256 << 20).min(self.space);
        let plan = Plan {
            figure: "motivation",
            what: String::new(),
            way: Way::Get,
            dir: "one".to_owned(),
            file: format!("s{bytes}"),
            files: 1,
            bytes,
        };
        self.fill(&plan)?;
        let steps: &[(&str, u32, &[&Row])] =
            &[("MTU 1500", 1500, &rows::TUNING[..1]), ("MTU 9000", 9000, rows::TUNING)];
        for &(name, mtu, wanted) in steps {
            let hosts = Hosts::make(delay, mtu)?;
            let (servers, here) = self.servers(&hosts);
            let ground = Ground { hosts: &hosts, folders: self.folders, servers: &servers, signals: self.signals };
            let ours = here.iter().copied().filter(|row| row.ours && row.cover != Cover::Tls);
            let can =
                |row: &&&Row| servers.iter().any(|server| server.kind == row.kind) && row.why_not(&hosts).is_none();
            let rows: Vec<&'static Row> = wanted.iter().filter(can).copied().chain(ours).collect();
            let plan = Plan {
                what: format!("get {}, {delay:?} one way, {name}", units::show_memory(bytes)),
                file: plan.file.clone(),
                dir: plan.dir.clone(),
                ..plan
            };
            let whole = self.cell(&ground, &plan, delay, &rows);
            drop(servers);
            hosts.end();
            if !whole? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn write(&self) -> anyhow::Result<()> {
        for (ending, text) in
            [("json", serde_json::to_string_pretty(&self.report)? + "\n"), ("html", page::page(&self.report))]
        {
            let mut path = self.arguments.out.as_os_str().to_owned();
            path.push(format!(".{ending}"));
            let path = PathBuf::from(path);
            std::fs::write(&path, text).map_err(|error| {
                Exit::of_io(&error)
                    .fail(format!("write {}", path.display()), &error)
                    .next("give a path that can be written with --out")
            })?;
        }
        Ok(())
    }
}

fn new_lane(row: &Row, command: String) -> Lane {
    Lane {
        name: row.title(),
        ours: row.ours,
        cover: Some(row.cover),
        lacks: row.lacks,
        command,
        turns: Vec::new(),
        failed: Vec::new(),
        seconds: None,
    }
}
