//! `bench disk`: what a folder's file system gives to reads and writes: by I/O mode, buffer size, depth, threads and files.
//!
//! For: the ceiling of a job's disk ends, and for seeing whether the I/O mode was chosen well; fio's figures stand beside ours if asked for.
//! In and out: one folder or several and a size → B/s and processor time as table, JSON, CSV and one page with plots; files in that folder without a name.
//! Invariants: the files are gone when the process is, however it ends; there is room for them or nothing is written; reads through the page
//! cache begin with none of the file in it; writes count up to the end of their flush; what cannot be is flagged, not hidden.
//! Absent on purpose: random access (a job has none).
//!
//! The modules stand in the order in which a measurement meets them.

pub mod cell; // what can be measured, and which of it is
pub mod rig; // files and threads that measure it
pub mod rival; // fio with the same settings
pub mod page; // plots
pub mod beside; // several file systems, side by side

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use proto::storage::{IoMode, Way};
use serde::Serialize;
use sys::fs;

use crate::ceilings::{self, Ceilings, Figure};
use crate::race::alternate;
use crate::table::{Host, ROUNDS, median, parse_rounds, print_json};
use cell::{By, Cell, Sweep};
use rig::Rig;
use text::table::Table;
use text::units;

/// The files are whole numbers of the largest ordinary operation, and more than a few.
const FILE_BYTES_MIN: u64 = 16 << 20;
/// One file with all bytes and eight with as many together; each to read and to write.
const COPIES: u64 = 4;
/// Left free beside the files: a full file system disturbs others.
const SPARE_BYTES: u64 = 64 << 20;

/// `longhaul bench disk`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct DiskArguments {
    /// Folder on the file system to measure; several: side by side, in turn, over threads and files if --sweep does not say otherwise
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,

    /// Size of what is read and written; more than the disk's own cache says more
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, default_value = "1GiB")]
    pub size: u64,

    /// Time for each cell of the table, all rounds together
    #[arg(long, value_name = "SECONDS", value_parser = units::parse_duration, default_value = "250ms")]
    pub seconds: Duration,

    /// Rounds, each cell once in each; the median of them counts
    #[arg(long, value_name = "N", default_value_t = ROUNDS, value_parser = parse_rounds)]
    pub rounds: usize,

    /// What to vary, with commas between: io-mode, block, depth, threads, files, memory, time [default: all]
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
    /// 10^9 B/s of all links to the device, where the system tells them.
    pub links_gbs: Option<f64>,
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
    let reports = measure(arguments)?;
    let write = |path: &PathBuf, text: String| {
        std::fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
    };
    let several = reports.len() > 1;
    let page = || {
        if several { beside::page(&reports, &host.to_string()) } else { page::page(&reports[0], &host.to_string()) }
    };
    arguments.html.as_ref().map_or(Ok(()), |path| write(path, page()))?;
    arguments.csv.as_ref().map_or(Ok(()), |path| write(path, csv(&reports)))?;
    match (arguments.json, several) {
        (true, false) => return print_json("disk", &host, arguments.rounds, &reports[0]),
        (true, true) => return print_json("disk", &host, arguments.rounds, &beside::Beside { places: &reports }),
        (false, false) => println!("{host}\n{}", text(&reports[0])),
        (false, true) => println!("{host}\n{}", beside::text(&reports)),
    }
    Ok(())
}

/// A folder, its files, and what is told of it so far.
struct Place {
    rig: Rig,
    dev: u64,
    /// The block device; what has none: as `dev`.
    device: u64,
    in_memory: bool,
    report: Report,
}

impl Place {
    /// Looks at a folder and writes the files; `others` have been given room already.
    fn new(path: &Path, bytes: u64, others: &[Place]) -> anyhow::Result<Place> {
        let shown = path.canonicalize().unwrap_or_else(|_| path.to_owned()).display().to_string();
        let folder = fs::Dir::open(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))
            .with_context(|| format!("failed to open the folder {shown}"))?;
        let space = folder.space().with_context(|| format!("failed to ask {shown} for its room"))?;
        let dev = folder.stat_self().with_context(|| format!("failed to look at {shown}"))?.dev;
        let device = ceilings::device_of(path).with_context(|| format!("failed to look at {shown}"))?;
        // What others of the same file system will still write is not there for this one.
        let taken = others.iter().filter(|it| it.dev == dev).count() as u64 * (COPIES / 2) * bytes;
        ensure!(
            space.free_bytes >= COPIES.saturating_mul(bytes).saturating_add(SPARE_BYTES).saturating_add(taken),
            "{shown} has {} free: too little for {} (choose another size with --size)",
            units::show_memory(space.free_bytes),
            units::show_memory(COPIES.saturating_mul(bytes).saturating_add(taken))
        );
        let mount = fs::mount_of(&folder).with_context(|| format!("failed to find the mount of {shown}"))?;
        let mut notes = Vec::new();
        let in_memory = matches!(space.fs_type.as_str(), "tmpfs" | "ramfs");
        if in_memory {
            notes.push(format!("{} has no disk below it: only reads and writes of memory are measured", space.fs_type));
        }
        let rig = Rig::new(&folder, bytes).with_context(|| format!("failed to write into {shown}"))?;
        let report = Report {
            path: shown,
            file_system: space.fs_type,
            mount: format!("{} ({})", mount.device, mount.options),
            bytes,
            rounds: 0,
            ceilings: Vec::new(),
            memory_gbs: 0.0,
            links_gbs: None,
            notes,
            cells: Vec::new(),
            courses: Vec::new(),
        };
        Ok(Place { rig, dev, device, in_memory, report })
    }
}

/// One report for each folder, cell by cell in turn.
fn measure(arguments: &DiskArguments) -> anyhow::Result<Vec<Report>> {
    let bytes = arguments.size - arguments.size % cell::BLOCK;
    ensure!(bytes >= FILE_BYTES_MIN, "the file must have at least {} MiB", FILE_BYTES_MIN >> 20);
    let mut places: Vec<Place> = Vec::new();
    for path in &arguments.paths {
        let place = Place::new(path, bytes, &places)?;
        places.push(place);
    }
    // Side by side all sweeps would take an hour; over threads is what file systems differ by.
    let beside = arguments.sweep.is_empty() && places.len() > 1;
    let asked = if beside { vec![Sweep::Threads, Sweep::Files] } else { arguments.sweep.clone() };
    let memory = ceilings::memory();
    let ceilings: Vec<Ceilings> = places.iter().map(|place| memory.clone().with_devices(&[place.device])).collect();
    let mut plan = Vec::new();
    for (number, Place { rig, report, .. }) in places.iter_mut().enumerate() {
        let cells = cell::cells(&asked, bytes, |cell| rig.can(cell, &mut report.notes));
        plan.extend(cells.into_iter().map(|cell| (number, cell)));
    }
    rounds(&mut places, plan, arguments)?;
    for (place, ceilings) in places.iter_mut().zip(ceilings) {
        let Place { rig, report, in_memory, .. } = place;
        if cell::has(&asked, Sweep::Time) {
            for cell in cell::best_of_each_way(&report.cells) {
                report.courses.push(Course { cell, samples: rig.course(cell, arguments.seconds * 8)? });
            }
        }
        flag(&mut report.cells, &ceilings, *in_memory);
        report.notes.extend(tax(&report.cells));
        report.rounds = arguments.rounds;
        (report.memory_gbs, report.links_gbs, report.ceilings) =
            (ceilings.copy_gbs, ceilings.links_gbs, ceilings.lines);
    }
    Ok(places.into_iter().map(|place| place.report).collect())
}

/// A cell of a place: rate and processor time of its rounds.
type Lane = (usize, Cell, Vec<(f64, f64)>);

/// Every cell once per round, fio in turn with ours, and the same cell of all places one after another.
fn rounds(places: &mut [Place], plan: Vec<(usize, Cell)>, arguments: &DiskArguments) -> anyhow::Result<()> {
    let mut all = plan;
    if arguments.fio {
        let beside: Vec<(usize, Cell)> =
            all.iter().filter_map(|(place, cell)| Some((*place, rival::of(*cell)?))).collect();
        let version = beside.first().map(|(_, cell)| rival::contestant(*cell).version(&[])).unwrap_or_default();
        let note = if version.is_empty() {
            "no lines for fio: it is not installed".to_owned()
        } else {
            all.extend(beside);
            format!("{version} beside ours, with the same file, size, depth and flush")
        };
        places.iter_mut().for_each(|place| place.report.notes.push(note.clone()));
    }
    if arguments.fio || places.len() > 1 {
        // Pairs stand side by side, so that what disturbs the machine meets both.
        all.sort_by_key(|(place, cell)| {
            (
                cell.sweep,
                cell.way,
                cell.io_mode,
                cell.scattered,
                cell.block_bytes,
                cell.depth,
                cell.threads,
                cell.files,
                *place,
            )
        });
    }
    let mut lanes: Vec<Lane> = all.into_iter().map(|(place, cell)| (place, cell, Vec::new())).collect();
    let slice = arguments.seconds / arguments.rounds as u32;
    alternate(arguments.rounds, &mut lanes, |_, (place, cell, rates)| {
        let Place { rig, report, .. } = &places[*place];
        let measured = if cell.by == By::Fio {
            rival::run(rig, *cell, slice)
        } else {
            rig.measure(*cell, slice).map_err(anyhow::Error::from)
        };
        rates.push(measured.with_context(|| format!("failed to measure {}", report.path))?);
        anyhow::Ok(ControlFlow::Continue(()))
    })?;
    for (place, cell, rates) in lanes {
        let (rounds_gbs, cpu): (Vec<f64>, Vec<f64>) = rates.into_iter().unzip();
        let (gbs, cpu_s_per_gb) = (median(&rounds_gbs), median(&cpu));
        let report = &mut places[place].report;
        if gbs > 0.0 {
            report.cells.push(Measured { cell, gbs, cpu_s_per_gb, rounds_gbs, flag: String::new() });
        } else {
            report.notes.push(format!("no line for {} by {cell}: it did not run", cell.way.name()));
        }
    }
    Ok(())
}

/// Says of figures that cannot be a disk's why they are what they are.
fn flag(cells: &mut [Measured], ceilings: &Ceilings, in_memory: bool) {
    let direct = |way: Way| {
        let it = cells.iter().filter(|it| it.cell.way == way && it.cell.io_mode == IoMode::Direct);
        it.map(|it| it.gbs).fold(0.0, f64::max)
    };
    let device = [direct(Way::Read), direct(Way::Write)];
    for it in cells {
        let Cell { way, io_mode, by, threads, depth, .. } = it.cell;
        let copiers = match (io_mode, by) {
            (IoMode::Direct, _) => 0,
            (_, By::Plain) => threads,
            // What would wait is done by threads of the kernel, one for each operation.
            _ => threads * depth,
        };
        let device_gbs = if in_memory { 0.0 } else { device[usize::from(way == Way::Write)] };
        // A file in memory has no device, and no link to it.
        let linked = Ceilings { links_gbs: ceilings.links_gbs.filter(|_| !in_memory), ..ceilings.clone() };
        it.flag = linked.flag(Figure { gbs: it.gbs, copiers, device_gbs });
    }
}

/// What memory in pieces costs, way by way and I/O mode by I/O mode.
fn tax(cells: &[Measured]) -> Vec<String> {
    let of = |cell: Cell| cells.iter().find(|it| it.cell == cell).filter(|it| it.gbs > 0.0);
    let broken = cells.iter().filter(|it| it.cell.scattered);
    let taxes = broken.filter_map(|broken| {
        let fresh = of(Cell { scattered: false, ..broken.cell })?;
        let change = |from: f64, to: f64| (to / from.max(1e-9) - 1.0) * 100.0;
        Some(format!(
            "fragmentation tax, {} {}: rate {:+.0} %, processor time per byte {:+.0} %",
            broken.cell.way.name(),
            broken.cell.io_mode,
            change(fresh.gbs, broken.gbs),
            change(fresh.cpu_s_per_gb, broken.cpu_s_per_gb)
        ))
    });
    taxes.collect()
}

fn csv(reports: &[Report]) -> String {
    let mut text = String::from(
        "sweep,way,io_mode,by,block_bytes,depth,threads,files,memory,gbs,cpu_s_per_gb,flag,file_system,path\n",
    );
    for (report, it) in reports.iter().flat_map(|report| report.cells.iter().map(move |it| (report, it))) {
        let Cell { sweep, way, io_mode, by, block_bytes, depth, threads, files, scattered } = it.cell;
        let (sweep, way, by) = (sweep.name(), way.name(), by.name());
        let memory = if scattered { "pieces" } else { "fresh" };
        let _ = writeln!(
            text,
            "{sweep},{way},{io_mode},{by},{block_bytes},{depth},{threads},{files},{memory},{:.4},{:.4},\"{}\",{},\"{}\"",
            it.gbs,
            it.cpu_s_per_gb,
            it.flag,
            report.file_system,
            report.path.replace('"', "\"\"")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_moves_bytes_itself_may_be_faster_than_one_core_and_a_copy_may_not() {
        let ceilings =
            Ceilings { copy_gbs: 10.0, copy_gbs_max: 20.0, memory_gbs: 60.0, cores: 8, ..Ceilings::default() };
        let measured = |io_mode, by, depth, gbs| {
            let (sweep, way, block_bytes) = (Sweep::IoMode, Way::Read, cell::BLOCK);
            let cell = Cell { sweep, way, io_mode, by, block_bytes, depth, threads: 1, files: 1, scattered: false };
            Measured { cell, gbs, cpu_s_per_gb: 0.0, rounds_gbs: Vec::new(), flag: String::new() }
        };
        let mut cells = [
            measured(IoMode::Direct, By::Uring, 8, 25.0),
            measured(IoMode::Buffered, By::Plain, 1, 25.0),
            measured(IoMode::Buffered, By::Uring, 8, 25.0),
            measured(IoMode::Buffered, By::Uring, 8, 40.0),
            measured(IoMode::Direct, By::Uring, 8, 70.0),
        ];
        let flags = |cells: &[Measured]| cells.iter().map(|it| it.flag.clone()).collect::<Vec<_>>();
        flag(&mut cells[..4], &ceilings, false);
        let said = flags(&cells);
        assert_eq!((said[0].as_str(), said[2].as_str()), ("", ""), "eight operations of a ring may have eight copiers");
        assert!(said[1].contains("one core") && said[1].contains("impossible"), "{said:?}");
        assert!(said[3].contains("a cache's rate"), "{said:?}");
        flag(&mut cells, &ceilings, true);
        let said = flags(&cells);
        assert!(said[4].contains("memory") && said[4].contains("impossible") && said[3].is_empty(), "{said:?}");
    }
}
