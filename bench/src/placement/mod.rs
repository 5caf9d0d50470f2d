//! `longhaul bench placement`: which cores take the interrupts and which the workers, where memory lies, how many streams; found by trying.
//!
//! For: hosts whose arrangement nobody has measured, and for holding the known presets against each other.
//! In and out: another bench's address, or none for loopback → each contestant's rate, interval and processor time, and the winner.
//! Invariants: a trial is a run of `bench net`'s rail, placed at both ends; interrupts are moved only with `--irq`, at each end by its own
//! operator's word, through the journal of `host apply`; all are back at the end, also after kill -9.
//! Absent on purpose: moving interrupts (`tune::irq_affinity`), which placement is tried (`topology::placement`).

pub mod probe; // the search once, its winner kept for jobs
pub mod rig; // one trial
pub mod report; // the table
pub mod tables; // sender's core by receiver's core by message size
pub mod patterns; // four streams over several NICs, by pattern
pub mod figures; // before and after, over time
pub mod page; // all of these to look at

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use sys::sock;
use topology::placement::Placement;
use topology::placement::search::{Search, Settings};

use self::report::Report;
use self::rig::Rig;
use crate::net::EndsArguments;
use crate::net::session::{Cores, serve};
use crate::table::{Host, print_json};
use text::exit::Exit;
use text::units;

/// What a search needs, of `bench placement` and `host probe`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct SearchArguments {
    /// Time for all trials
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "30s")]
    pub budget: Duration,

    /// Time for the bytes of one trial; a path of many milliseconds needs more
    #[arg(long, alias = "heat", value_name = "TIME", value_parser = units::parse_duration, default_value = "50ms")]
    pub trial: Duration,

    /// So many streams and no other number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub streams: Option<u16>,

    /// Trials in clear with CRC-64 instead of sealed with BLAKE3 as jobs are
    #[arg(long)]
    pub clear: bool,

    /// Also move interrupts (RPS where a NIC has none), set rings and send queues at this end, while the search runs
    #[arg(long)]
    pub irq: bool,

    /// Folder of the journal for --irq
    #[arg(long, value_name = "DIR", default_value = tune::arguments::STATE)]
    pub state: PathBuf,
}

/// `longhaul bench placement`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(after_help = "\
  host B:  longhaul bench placement --listen 0.0.0.0:5741          (--irq: its interrupts may be moved, too)
  host A:  longhaul bench placement --server hostb:5741
Nothing is kept: `longhaul host probe --server hostb:5741` searches in the same way and keeps the winner for jobs.
The listener takes orders from anybody who reaches it: start it on networks you trust, and end it afterwards.")]
pub struct PlacementArguments {
    #[command(flatten)]
    pub ends: EndsArguments,

    /// In place of the search: rate and load of both ends for each pair of cores, by message size, over UDP and TCP; four streams by pattern with
    /// each one's share; rate and load over time before and after (NTT's Tables II to IV, CERN's figures)
    #[arg(long, conflicts_with_all = ["listen", "streams", "budget", "clear"])]
    pub tables: bool,

    /// For --tables: another address of the same listener, over another NIC; the streams by pattern are dealt out over all
    #[arg(long = "also", value_name = "HOST:PORT", requires = "tables", requires = "server")]
    pub also: Vec<String>,

    /// For --tables: write a page with heat maps, bars and lines
    #[arg(long, value_name = "FILE", requires = "tables")]
    pub html: Option<PathBuf>,

    #[command(flatten)]
    pub search: SearchArguments,

    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
}

/// Listens, or searches and prints.
///
/// # Errors
/// The address cannot be had or reached, or the connection broke.
pub fn run(arguments: &PlacementArguments) -> anyhow::Result<()> {
    if let Some(addr) = arguments.ends.listen {
        let listener = sock::listen(addr).with_context(|| format!("failed to listen on {addr}"))?;
        eprintln!("listening on {}", listener.local_addr()?);
        let state = arguments.search.irq.then_some(arguments.search.state.as_path());
        return serve(&listener, &Cores::new(None)?, arguments.ends.once, state);
    }
    let host = Host::here();
    let mut rig = Rig::open(arguments.ends.server.as_deref(), &arguments.search)?;
    if arguments.tables {
        let paths = rig.also(&arguments.also)?;
        let tables = tables::measure(&mut rig, paths)?;
        rig.close()?;
        if let Some(path) = &arguments.html {
            std::fs::write(path, page::page(&host, &tables))
                .map_err(|error| Exit::of_io(&error).fail(format!("write {}", path.display()), &error))?;
        }
        if arguments.json {
            return print_json("placement-tables", &host, tables::ROUNDS, &tables);
        }
        println!("{host}\n{tables}");
        return Ok(());
    }
    let report = search(&mut rig, &arguments.search, None)?;
    rig.close()?;
    if arguments.json {
        return print_json("placement", &host, report.trials as usize, &report);
    }
    println!("{host}\n{report}");
    Ok(())
}

/// Searches with what is left of the budget. `known`: a winner of earlier.
///
/// # Errors
/// The connection broke, or nothing at all could be measured.
pub fn search(rig: &mut Rig, arguments: &SearchArguments, known: Option<Placement>) -> anyhow::Result<Report> {
    let (near, far) = rig.shapes()?;
    let budget_ns = u64::try_from(arguments.budget.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
    let settings = Settings { budget_ns, streams: arguments.streams, known, seed: sys::clock::now_ns() };
    let mut search = Search::new(near, far, settings);
    let mut refused = Vec::new();
    while let Some(trial) = search.next_trial() {
        let begun = Instant::now();
        let measured = rig.measure(&trial.placement)?;
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        match measured {
            Ok(measured) => {
                search.on_rate(&trial, measured.bps, ns);
                rig.book(trial.number, &measured);
            }
            Err(why) => {
                search.on_refused(&trial, ns);
                if !refused.contains(&why) {
                    refused.push(why);
                }
            }
        }
    }
    let verdict = search.verdict().with_context(|| format!("nothing could be measured: {}", refused.join("; ")))?;
    Ok(Report::new(rig, arguments, &verdict, refused))
}
