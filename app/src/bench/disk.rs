//! `bench disk`: what a folder's file system gives to reads and writes: by engine, buffer size, depth, threads and files.
//!
//! For: the ceiling of a job's disk ends, and for seeing whether the race chose well; fio's figures stand beside ours if asked for.
//! In and out: a folder and a size → B/s and processor time as table, JSON, CSV and one page with plots; files in that folder without a name.
//! Invariants: the files are gone when the process is, however it ends; there is room for them or nothing is written; reads through the page
//! cache begin with none of the file in it; writes count up to the end of their flush; what cannot be is flagged, not hidden.
//! Absent on purpose: random access (a job has none).
//!
//! The modules stand in the order in which a measurement meets them.

mod cell; // what can be measured, and which of it is
mod rig; // files and threads that measure it
mod ceilings; // what the system says about the device
mod rival; // fio with the same settings
mod page; // plots

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use proto::storage::Way;
use serde::Serialize;
use sys::fs;

use crate::bench::table::{Host, ROUNDS, Table, median, parse_rounds, print_json};
use crate::units;
use cell::{Cell, Sweep};
use rig::Rig;

/// The files are whole numbers of the largest ordinary operation, and more than a few.
const FILE_BYTES_MIN: u64 = 16 << 20;
/// One file with all bytes and eight with as many together; each to read and to write.
const COPIES: u64 = 4;
/// Left free beside the files: a full file system disturbs others.
const SPARE_BYTES: u64 = 64 << 20;

/// `longhaul bench disk`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct DiskArguments {
    /// Folder on the file system to measure
    #[arg(value_name = "PATH")]
    pub path: PathBuf,

    /// Size of what is read and written; more than the disk's own cache says more
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, default_value = "1GiB")]
    pub size: u64,

    /// Time for each cell of the table, all rounds together
    #[arg(long, value_name = "SECONDS", value_parser = units::parse_duration, default_value = "250ms")]
    pub seconds: Duration,

    /// Rounds, each cell once in each; the median of them counts
    #[arg(long, value_name = "N", default_value_t = ROUNDS, value_parser = parse_rounds)]
    pub rounds: usize,

    /// What to vary, with commas between: engine, block, depth, threads, files, memory, time [default: all]
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',')]
    pub sweep: Vec<Sweep>,

    /// Run fio with the same settings in turn, where it is installed
    #[arg(long)]
    pub fio: bool,

    /// Write one page with all plots to this file; it needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write all figures to this file, one line each
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// What was done.
    #[serde(flatten)]
    pub cell: Cell,
    /// 10^9 B/s, the median of the rounds.
    pub gbs: f64,
    /// Processor seconds of all threads per 10^9 bytes.
    pub cpu_s_per_gb: f64,
    /// Each round.
    pub rounds_gbs: Vec<f64>,
    /// Why it cannot be what it says; empty: it can.
    pub flag: String,
}

/// A rate from moment to moment.
#[derive(Debug, Clone, Serialize)]
pub struct Course {
    /// What was done.
    #[serde(flatten)]
    pub cell: Cell,
    /// Seconds since the start, bytes moved since the start, without the flush at the end.
    pub samples: Vec<(f64, u64)>,
}

/// Everything.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The folder.
    pub path: String,
    /// Type of its file system.
    pub file_system: String,
    /// Device and mount options.
    pub mount: String,
    /// All files together.
    pub bytes: u64,
    /// Of each figure; beside the machine in JSON.
    #[serde(skip)]
    pub rounds: usize,
    /// What the system says of the device, and what memory allows.
    pub ceilings: Vec<String>,
    /// 10^9 B/s of a copy in memory by one thread.
    pub memory_gbs: f64,
    /// What could not be measured, and why.
    pub notes: Vec<String>,
    /// The figures.
    pub cells: Vec<Measured>,
    /// Rates over time.
    pub courses: Vec<Course>,
}

/// Measures and prints.
///
/// # Errors
/// The folder cannot be written, has no room, or its disk failed.
pub fn run(arguments: &DiskArguments) -> anyhow::Result<()> {
    let host = Host::here();
    let report = measure(arguments)?;
    let write = |path: &PathBuf, text: String| {
        std::fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
    };
    arguments.html.as_ref().map_or(Ok(()), |path| write(path, page::page(&report, &host.to_string())))?;
    arguments.csv.as_ref().map_or(Ok(()), |path| write(path, csv(&report)))?;
    if arguments.json {
        return print_json("disk", &host, report.rounds, &report);
    }
    println!("{host}\n{}", text(&report));
    Ok(())
}

fn measure(arguments: &DiskArguments) -> anyhow::Result<Report> {
    let shown = arguments.path.canonicalize().unwrap_or_else(|_| arguments.path.clone()).display().to_string();
    let bytes = arguments.size - arguments.size % cell::BLOCK;
    ensure!(bytes >= FILE_BYTES_MIN, "the file must have at least {} MiB", FILE_BYTES_MIN >> 20);
    let path = std::os::unix::ffi::OsStrExt::as_bytes(arguments.path.as_os_str());
    let folder = fs::Dir::open(path).with_context(|| format!("failed to open the folder {shown}"))?;
    let space = folder.space().with_context(|| format!("failed to ask {shown} for its room"))?;
    ensure!(
        space.free_bytes >= COPIES.saturating_mul(bytes).saturating_add(SPARE_BYTES),
        "{shown} has {} free: too little for {} (choose another size with --size)",
        units::show_memory(space.free_bytes),
        units::show_memory(COPIES.saturating_mul(bytes))
    );
    let mount = fs::mount_of(&folder).with_context(|| format!("failed to find the mount of {shown}"))?;
    let dev = folder.stat_self().with_context(|| format!("failed to look at {shown}"))?.dev;
    let mut notes = Vec::new();
    let in_memory = matches!(space.fs_type.as_str(), "tmpfs" | "ramfs");
    if in_memory {
        notes.push(format!("{} has no disk below it: only reads and writes of memory are measured", space.fs_type));
    }
    let rig = Rig::new(&folder, bytes).with_context(|| format!("failed to write into {shown}"))?;
    let (ceilings, memory_gbs) = ceilings::find(dev);
    let cells = cell::cells(&arguments.sweep, bytes, |cell| rig.can(cell, &mut notes));
    let mut cells = rounds(&rig, cells, arguments, &mut notes).with_context(|| format!("failed to measure {shown}"))?;
    let mut courses = Vec::new();
    if cell::has(&arguments.sweep, Sweep::Time) {
        for cell in cell::best_of_each_way(&cells) {
            courses.push(Course { cell, samples: rig.course(cell, arguments.seconds * 8)? });
        }
    }
    flag(&mut cells, memory_gbs, in_memory);
    notes.extend(tax(&cells));
    let mount = format!("{} ({})", mount.device, mount.options);
    let (file_system, rounds) = (space.fs_type, arguments.rounds);
    Ok(Report { path: shown, file_system, mount, bytes, rounds, ceilings, memory_gbs, notes, cells, courses })
}

/// Every cell once per round, fio in turn with ours.
fn rounds(
    rig: &Rig,
    cells: Vec<Cell>,
    arguments: &DiskArguments,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<Measured>> {
    let mut all = cells;
    if arguments.fio {
        match rival::version() {
            Some(version) => {
                notes.push(format!("{version} beside ours, with the same file, size, depth and flush"));
                let beside: Vec<Cell> = all.iter().filter_map(|cell| rival::of(*cell)).collect();
                all.extend(beside);
                // Pairs stand side by side, so that what disturbs the machine meets both.
                all.sort_by_key(|cell| (cell.sweep, cell.way, cell.engine));
            }
            None => notes.push("no lines for fio: it is not installed".to_owned()),
        }
    }
    let mut rates: Vec<Vec<(f64, f64)>> = vec![Vec::new(); all.len()];
    let slice = arguments.seconds / arguments.rounds as u32;
    for _ in 0..arguments.rounds {
        for (cell, rates) in all.iter().zip(&mut rates) {
            let measured =
                if cell.by == cell::By::Fio { rival::run(rig, *cell, slice)? } else { rig.measure(*cell, slice)? };
            rates.push(measured);
        }
    }
    let figures = all.into_iter().zip(rates).map(|(cell, rates)| {
        let (rounds_gbs, cpu): (Vec<f64>, Vec<f64>) = rates.into_iter().unzip();
        let (gbs, cpu_s_per_gb) = (median(&rounds_gbs), median(&cpu));
        Measured { cell, gbs, cpu_s_per_gb, rounds_gbs, flag: String::new() }
    });
    let (ran, not): (Vec<Measured>, Vec<Measured>) = figures.partition(|it| it.gbs > 0.0);
    notes.extend(not.iter().map(|it| format!("no line for {} by {}: it did not run", it.cell.way.name(), it.cell)));
    Ok(ran)
}

/// Says of figures that cannot be a disk's why they are what they are.
fn flag(cells: &mut [Measured], memory_gbs: f64, in_memory: bool) {
    let direct = |way: Way| {
        let it = cells.iter().filter(|it| it.cell.way == way && it.cell.engine == proto::storage::Engine::Direct);
        it.map(|it| it.gbs).fold(0.0, f64::max)
    };
    let device = [direct(Way::Read), direct(Way::Write)];
    for it in cells {
        let limit = device[usize::from(it.cell.way == Way::Write)];
        if it.gbs > memory_gbs * it.cell.threads as f64 * 1.05 {
            it.flag = format!("faster than a copy in memory ({memory_gbs:.1} GB/s a thread): impossible");
        } else if !in_memory && limit > 0.0 && it.gbs > 1.5 * limit {
            it.flag = format!(
                "1.5 x faster than the best past the cache ({limit:.2} GB/s): a cache's rate, not the device's"
            );
        }
    }
}

/// What memory in pieces costs, way by way and engine by engine.
fn tax(cells: &[Measured]) -> Vec<String> {
    let of = |cell: Cell| cells.iter().find(|it| it.cell == cell).filter(|it| it.gbs > 0.0);
    let broken = cells.iter().filter(|it| it.cell.scattered);
    let taxes = broken.filter_map(|broken| {
        let fresh = of(Cell { scattered: false, ..broken.cell })?;
        let change = |from: f64, to: f64| (to / from.max(1e-9) - 1.0) * 100.0;
        Some(format!(
            "fragmentation tax, {} {}: rate {:+.0} %, processor time per byte {:+.0} %",
            broken.cell.way.name(),
            broken.cell.engine,
            change(fresh.gbs, broken.gbs),
            change(fresh.cpu_s_per_gb, broken.cpu_s_per_gb)
        ))
    });
    taxes.collect()
}

fn csv(report: &Report) -> String {
    let mut text = String::from("sweep,way,engine,by,block_bytes,depth,threads,files,memory,gbs,cpu_s_per_gb,flag\n");
    for it in &report.cells {
        let Cell { sweep, way, engine, by, block_bytes, depth, threads, files, scattered } = it.cell;
        let (sweep, way, by) = (sweep.name(), way.name(), by.name());
        let memory = if scattered { "pieces" } else { "fresh" };
        let _ = writeln!(
            text,
            "{sweep},{way},{engine},{by},{block_bytes},{depth},{threads},{files},{memory},{:.4},{:.4},\"{}\"",
            it.gbs, it.cpu_s_per_gb, it.flag
        );
    }
    text
}

fn text(report: &Report) -> String {
    let mut text = format!(
        "{} ({}), {} in sequence; medians of {} rounds in turn\nmounted from {}\n",
        report.path,
        report.file_system,
        units::show_memory(report.bytes),
        report.rounds,
        report.mount
    );
    for line in report.ceilings.iter().chain(&report.notes) {
        let _ = writeln!(text, "{line}");
    }
    for sweep in Sweep::ALL {
        for way in [Way::Read, Way::Write] {
            let cells: Vec<&Measured> =
                report.cells.iter().filter(|it| it.cell.sweep == sweep && it.cell.way == way).collect();
            if cells.is_empty() {
                continue;
            }
            let mut table = Table::new(&[&format!("{}, by {}", way.name(), sweep.name()), "GB/s", "CPU s/GB", "flag"]);
            for it in cells {
                let (gbs, cpu) = (format!("{:.3}", it.gbs), format!("{:.3}", it.cpu_s_per_gb));
                table.line([it.cell.to_string(), gbs, cpu, it.flag.clone()]);
            }
            let _ = write!(text, "\n{table}");
        }
    }
    text
}
