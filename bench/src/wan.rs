//! `bench wan`: distance × loss × rate × transport, on links of this machine's own making.
//!
//! For: what share of a link each transport fills, what it sends again for that, and what it costs; others' programs beside it.
//! In and out: lists of round trips, losses and rates → a table per cell while it runs, a JSON record and one HTML page with heat maps.
//! Invariants: contestants take turns, round by round; every run has a link of its own; what could not be had or failed is said; a Ctrl-C
//! keeps what was measured; nothing of the host is changed, and nothing but the two results is left behind.
//! Absent on purpose: disks (files lie in memory where there is a tmpfs), other machines, a judgement on others' programs.

pub mod contest; // who competes
pub mod grid; // links, limits, lengths
pub mod meter; // what programs use
pub mod page; // HTML
pub mod race; // one run
pub mod record; // rounds, medians, verdicts

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use sys::{netns, signals};

use self::contest::{Entrant, Have, Wanted};
use self::grid::{Cell, Wish};
use self::race::{Ended, Ground};
use self::record::{CellRecord, Report, Round, Row};
use crate::race::alternate;
use crate::race::contestant::version;
use crate::table::{Host, ROUNDS};
use text::exit::Exit;
use text::units;

/// `longhaul bench wan`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(after_help = "\
A peer's command runs in a shell on host a, its --peer-server's before it on host b, ended with the run. They find there LONGHAUL_LAB_A and
LONGHAUL_LAB_B (addresses), BENCH_FILE (to be sent), BENCH_FOLDER (where the file is to appear), BENCH_BYTES and BENCH_SECONDS (of a run at
the limit). A peer is timed to its end and its file compared; one that writes none prints {\"bytes\": N, \"seconds\": S} as its last line.
  longhaul bench wan --quick
  longhaul bench wan --rtt 100ms --loss 1% --rate 1Gbit --peer 'nc=nc -N $LONGHAUL_LAB_B 9 <$BENCH_FILE' \\
      --peer-server 'nc=nc -l 9 >$BENCH_FOLDER/file'")]
pub struct WanArguments {
    /// Round trips
    #[arg(
        long,
        value_name = "TIME,...",
        value_delimiter = ',',
        default_value = "10ms,50ms,90ms,150ms,200ms,550ms,1000ms"
    )]
    pub rtt: Vec<String>,

    /// Losses of each direction: 1%, burst:1%/8
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',', default_value = "0%,0.1%,1%,2%,5%,10%")]
    pub loss: Vec<String>,

    /// Rates
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', default_value = "155Mbit,1Gbit")]
    pub rate: Vec<String>,

    /// Rounds of which the median is shown
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    pub rounds: usize,

    /// A run lasts at least so many round trips at the limit
    #[arg(long, value_name = "N", default_value_t = 100.0)]
    pub trips: f64,

    /// And at least so long
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "5s")]
    pub seconds: Duration,

    /// But no longer, whatever the round trips [default: no bound]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub seconds_max: Option<Duration>,

    /// 100 ms, 0 and 1 % loss, 155 Mbit/s and 1 Gbit/s, one round of 30 round trips, TCP with 1 and 8 streams: two minutes
    #[arg(long, conflicts_with_all = ["rtt", "loss", "rate", "rounds", "trips", "seconds", "streams"])]
    pub quick: bool,

    /// Policies of ours over UDP: fixed (at 99 % of the link's rate), high, fair, low
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = ["fixed", "high", "fair", "low"], default_value = "fair")]
    pub policy: Vec<String>,

    /// Congestion controllers of ours over UDP
    #[arg(long = "congestion-controller", alias = "law", value_name = "NAME,...", value_delimiter = ',', value_parser = ["delay", "bbr", "cubic", "fixed"], default_value = "delay")]
    pub controller: Vec<String>,

    /// Congestion controls of bare TCP, by iperf3; none: `--tcp ""`
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "cubic,bbr")]
    pub tcp: Vec<String>,

    /// Connections of bare TCP
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=128), default_value = "1,8,16")]
    pub streams: Vec<u16>,

    /// Another program: a command for host a; again for another one
    #[arg(long = "peer", value_name = "NAME=COMMAND")]
    pub peers: Vec<String>,

    /// What that peer needs on host b
    #[arg(long = "peer-server", value_name = "NAME=COMMAND")]
    pub peer_servers: Vec<String>,

    /// Only contestants whose name holds this text; several times for several
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,

    /// Memory of each end of ours
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, default_value = "256MiB")]
    pub memory: u64,

    /// A copy is given up after so many times the time it would need at the limit
    #[arg(long, value_name = "N", default_value_t = 3.0)]
    pub patience: f64,

    /// Where the files of the transfers lie [default: /dev/shm, else the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,

    /// So much of a file is chance, and takes room twice; what is longer goes on as a hole
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, default_value = "1GiB")]
    pub space: u64,

    /// The same number gives the same losses
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Write PATH.json and PATH.html
    #[arg(long, value_name = "PATH", default_value = "longhaul-wan")]
    pub out: PathBuf,

    /// Keep in this folder what congestion control did in each cell, a page for each contestant of ours, of the first round; PATH.html leads to them
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,

    /// Print one JSON object at the end instead of tables
    #[arg(long)]
    pub json: bool,
}

impl WanArguments {
    /// With what `--quick` stands for.
    fn settled(&self) -> WanArguments {
        let mut settled = self.clone();
        if self.quick {
            let words = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
            (settled.rtt, settled.loss, settled.rate) = (words("100ms"), words("0%,1%"), words("155Mbit,1Gbit"));
            (settled.rounds, settled.trips, settled.seconds) = (1, 30.0, Duration::from_secs(3));
            settled.streams = vec![1, 8];
        }
        settled.tcp.retain(|name| !name.is_empty());
        settled
    }

    fn wish(&self) -> Wish {
        let seconds_max = self.seconds_max.map_or(f64::INFINITY, |time| time.as_secs_f64());
        Wish { trips: self.trips, seconds_min: self.seconds.as_secs_f64(), seconds_max }
    }
}

/// Measures, prints, writes.
///
/// # Errors
/// A word that means nothing; no lab can be made here; the results cannot be written; stopped by a signal.
pub fn run(arguments: &WanArguments) -> anyhow::Result<()> {
    let arguments = &arguments.settled();
    let usage = |words: String| anyhow::Error::from(Exit::Usage.fail("understand the grid", words));
    let cells = grid::cells(&arguments.rate, &arguments.rtt, &arguments.loss).map_err(usage)?;
    let sensible = arguments.rounds > 0 && arguments.trips >= 0.0 && arguments.patience >= 1.0;
    anyhow::ensure!(sensible, usage("--rounds and --patience are at least 1, --trips at least 0".to_owned()));
    // Both while this process has but one thread.
    lab::run::become_root()?;
    let signals = signals::watch(&[signals::SIGINT, signals::SIGTERM, signals::SIGHUP])?;
    let have = look_around(&arguments.tcp)?;
    let wanted = Wanted {
        policies: &arguments.policy,
        controllers: &arguments.controller,
        controls: &arguments.tcp,
        streams: &arguments.streams,
        peers: &arguments.peers,
        servers: &arguments.peer_servers,
        only: &arguments.only,
        memory_bytes: arguments.memory,
    };
    let (contestants, mut notes) = contest::all(wanted, &have).map_err(usage)?;
    if let Some(longest) = cells.iter().map(|cell| cell.plan(arguments.wish()).bytes).max()
        && longest > arguments.space
    {
        notes.push(format!("files above {} go on as a hole (--space)", units::show_memory(arguments.space)));
    }
    let mut report =
        Report::new(Host::here(), contestants.iter().map(|one| one.contestant.name.clone()).collect(), notes);
    (report.rounds, report.trips, report.seed) = (arguments.rounds, arguments.trips, arguments.seed);
    report.cells_wanted = cells.len();
    report.tcp_default = read_line("/proc/sys/net/ipv4/tcp_congestion_control");
    report.programs.extend(have.iperf3.clone());
    let estimate = grid::estimate_seconds(&cells, arguments.wish(), contestants.len(), arguments.rounds);
    eprintln!("{}", report.host);
    for note in &report.notes {
        eprintln!("note: {note}");
    }
    eprintln!(
        "{} cells × {} contestants × {} rounds: about {}, longer where a transport cannot fill the link; Ctrl-C keeps what was measured",
        cells.len(),
        contestants.len(),
        arguments.rounds,
        units::show_seconds(estimate)
    );
    let ground = Ground {
        exe: std::env::current_exe().context("this program's own path is unknown")?,
        folder: make_folder(arguments.folder.as_deref())?,
        traces: arguments.trace.as_deref().map(make_traces).transpose()?,
        patience: arguments.patience,
        seed: arguments.seed,
        signals,
    };
    let whole = measure(arguments, &ground, &cells, &contestants, &mut report)?;
    drop(ground);
    finish(arguments, &report, whole)
}

/// All cells; false: stopped before the end.
fn measure(
    arguments: &WanArguments,
    ground: &Ground,
    cells: &[Cell],
    contestants: &[Entrant],
    report: &mut Report,
) -> anyhow::Result<bool> {
    for cell in cells {
        let plan = cell.plan(arguments.wish());
        ground.fill(plan.bytes, arguments.space).map_err(|error| {
            Exit::of_io(&error).fail("write the file to send", &error).next("give another --folder, or less --space")
        })?;
        let rows = contestants.iter().map(|one| Row {
            trace: ground.trace(cell, one).map(|path| link(&arguments.out, &path)),
            ..Row::new(&one.contestant.name, cell.limit_bps(one.payload_bytes))
        });
        let mut record = CellRecord {
            cell: cell.clone(),
            bytes: plan.bytes,
            seconds: plan.seconds,
            load: sys::host::load(),
            rows: rows.collect(),
        };
        eprintln!(
            "{}: {}, {:.0} round trips",
            cell.words(),
            units::show_bytes(plan.bytes),
            plan.seconds * 1e3 / cell.rtt_ms.max(1e-3)
        );
        let whole = race(arguments.rounds, contestants, &mut record, |one, round| ground.run(cell, plan, one, round))?;
        if whole || record.rows.iter().any(|row| !row.rounds.is_empty()) {
            if !arguments.json {
                println!("{}\n{}", cell.words(), record.table());
            }
            report.cells.push(record);
            write(&arguments.out, report)?;
        }
        if !whole {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The rounds of a cell, contestants in turn; false: stopped before the end.
fn race(
    rounds: usize,
    contestants: &[Entrant],
    record: &mut CellRecord,
    run: impl Fn(&Entrant, usize) -> anyhow::Result<(Ended, String)>,
) -> anyhow::Result<bool> {
    let mut lanes: Vec<(&Entrant, &mut Row)> = contestants.iter().zip(&mut record.rows).collect();
    alternate(rounds, &mut lanes, |round, (one, row)| {
        let (ended, command) = run(one, round)?;
        row.command = command;
        let name = &one.contestant.name;
        match ended {
            Ended::Measured(measured) => {
                eprintln!("  {}/{rounds} {name:<24} {}", round + 1, in_short(&measured));
                row.add(measured);
            }
            Ended::Failed(why) => {
                eprintln!("  {}/{rounds} {name:<24} failed: {why}", round + 1);
                row.failed.push(why);
            }
            Ended::Stopped => return Ok(ControlFlow::Break(())),
        }
        Ok(ControlFlow::Continue(()))
    })
}

fn in_short(round: &Round) -> String {
    let mut text = format!(
        "{:>10.2} Mbit/s {:>5.1} % of the limit, {:.2} CPU s/GB",
        round.goodput_bps / 1e6,
        round.share * 100.0,
        round.cpu_s_per_gb
    );
    if round.given_up {
        text += &format!(", given up after {}", units::show_seconds(round.seconds));
    }
    if round.emulator_was_limit {
        text += ", the emulator was the limit";
    }
    text
}

fn write(out: &Path, report: &Report) -> anyhow::Result<()> {
    for (ending, text) in [("json", serde_json::to_string_pretty(report)? + "\n"), ("html", page::page(report))] {
        let mut path = out.as_os_str().to_owned();
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

fn finish(arguments: &WanArguments, report: &Report, whole: bool) -> anyhow::Result<()> {
    if report.cells.is_empty() {
        anyhow::bail!(
            Exit::Interrupted
                .fail("measure", "stopped before anything was")
                .next("run it again, with --quick if it takes too long")
        );
    }
    let out = arguments.out.display();
    if arguments.json {
        println!("{}", serde_json::to_string(report)?);
    } else {
        for line in report.verdicts() {
            println!("{line}");
        }
        println!("written: {out}.json and {out}.html");
    }
    std::io::stdout().flush()?;
    if whole {
        return Ok(());
    }
    let words = format!("stopped in cell {} of {}", report.cells.len(), report.cells_wanted);
    Err(Exit::Interrupted
        .fail("measure all of the grid", words)
        .next(format!("what was measured is in {out}.json and {out}.html"))
        .into())
}

/// The folder of traces, by its whole name: what runs in a lab may stand elsewhere.
fn make_traces(folder: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(folder).and_then(|()| folder.canonicalize()).map_err(|error| {
        Exit::of_io(&error)
            .fail(format!("make the folder {}", folder.display()), &error)
            .next("name one that can be written with --trace")
            .into()
    })
}

/// How the page at `out` names a file: from where it stands, so that both can be moved together, if it is below.
fn link(out: &Path, path: &Path) -> String {
    let stands = out.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let stands = stands.canonicalize().unwrap_or_else(|_| stands.to_owned());
    path.strip_prefix(stands).unwrap_or(path).to_string_lossy().into_owned()
}

/// A folder of our own, in memory where that can be had.
pub(crate) fn make_folder(wanted: Option<&Path>) -> anyhow::Result<PathBuf> {
    let memory = Path::new("/dev/shm");
    let parent = match wanted {
        Some(folder) => folder.to_owned(),
        None if memory.is_dir() => memory.to_owned(),
        None => std::env::temp_dir(),
    };
    let folder = parent.join(format!("longhaul-bench-{}", std::process::id()));
    std::fs::create_dir(&folder).map_err(|error| {
        Exit::of_io(&error)
            .fail(format!("make the folder {}", folder.display()), &error)
            .next("name one that can be written with --folder")
    })?;
    Ok(folder)
}

fn read_line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// What of bare TCP can be had in a host that is not the machine's own.
fn look_around(controls: &[String]) -> anyhow::Result<Have> {
    let said = version(&["iperf3", "--version"].map(str::to_owned));
    let iperf3 = Some(said).filter(|said| !said.is_empty());
    let host = netns::new_net().context("a network namespace could not be made")?;
    let known = read_line("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let mut have = Have { iperf3, ..Have::default() };
    for control in controls {
        let may = netns::inside(&host, || {
            let socket = std::net::TcpListener::bind("0.0.0.0:0")?;
            sys::sock::set_congestion(&socket, control)
        });
        if may.is_ok() {
            have.controls.push(control.clone());
        } else if known.split_whitespace().any(|name| name == control) {
            have.forbidden.push(control.clone());
        }
    }
    Ok(have)
}
