//! Cells: what is measured.
//!
//! For: one list that tables, files, plots and the test agree on.
//! In and out: which sweeps → cells.
//! Invariants: a sweep varies one thing and leaves the rest at what jobs do: 1 MiB, 8 at once, one thread, one file.
//! Absent on purpose: measuring.

use std::fmt;

use clap::ValueEnum;
use proto::storage::{IoMode, Way};
use serde::{Serialize, Serializer};

use super::Measured;
use text::units;

/// What jobs do.
pub const BLOCK: u64 = 1 << 20;
const DEPTH: usize = 8;
/// From a byte to a GiB.
const BLOCKS: [u64; 11] = [1, 16, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20, 32 << 20, 256 << 20, 1 << 30];
const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const THREADS: [usize; 4] = [1, 2, 4, 8];
/// Past the cache nothing is smaller than a sector.
const SECTOR: u64 = 4096;

/// What is varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Sweep {
    /// The I/O mode, and who asks the kernel
    #[value(alias = "engine")]
    IoMode,
    /// Bytes of one operation, 1 B to 1 GiB
    Block,
    /// Operations at once
    Depth,
    /// Threads, on one file
    Threads,
    /// Files, a thread each
    Files,
    /// Memory: fresh, and in pieces as after months
    Memory,
    /// Nothing: the rate from moment to moment
    Time,
}

impl Sweep {
    /// In the order in which they are run and printed.
    pub const ALL: [Sweep; 7] =
        [Sweep::IoMode, Sweep::Block, Sweep::Depth, Sweep::Threads, Sweep::Files, Sweep::Memory, Sweep::Time];

    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Sweep::IoMode => "io-mode",
            Sweep::Block => "block",
            Sweep::Depth => "depth",
            Sweep::Threads => "threads",
            Sweep::Files => "files",
            Sweep::Memory => "memory",
            Sweep::Time => "time",
        }
    }
}

/// Who asks the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The job's own ring.
    Uring,
    /// The job's own plain calls.
    Plain,
    /// fio.
    Fio,
}

impl By {
    /// As in tables.
    pub const fn name(self) -> &'static str {
        match self {
            By::Uring => "io_uring",
            By::Plain => "plain",
            By::Fio => "fio",
        }
    }
}

fn io_mode<S: Serializer>(io_mode: &IoMode, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(io_mode.name())
}

fn way<S: Serializer>(way: &Way, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(way.name())
}

/// One thing to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// In which sweep.
    pub sweep: Sweep,
    /// Reading or writing.
    #[serde(serialize_with = "way")]
    pub way: Way,
    /// Through the page cache or past it.
    #[serde(serialize_with = "io_mode")]
    pub io_mode: IoMode,
    /// By whom.
    pub by: By,
    /// Bytes per operation.
    pub block_bytes: u64,
    /// Operations at once, per thread.
    pub depth: usize,
    /// Threads.
    pub threads: usize,
    /// Files they share.
    pub files: usize,
    /// The memory is of single pages, far from each other.
    pub scattered: bool,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let block = if self.block_bytes < 1024 {
            format!("{} B", self.block_bytes)
        } else {
            units::show_memory(self.block_bytes)
        };
        let Cell { io_mode, depth, threads, files, .. } = self;
        write!(f, "{io_mode}, {}, {depth} x {block}", self.by.name())?;
        if *threads > 1 {
            write!(f, ", {threads} threads on {files} {}", if *files == 1 { "file" } else { "files" })?;
        }
        if self.sweep == Sweep::Memory {
            f.write_str(if self.scattered { ", memory in pieces" } else { ", fresh memory" })?;
        }
        Ok(())
    }
}

/// Is this sweep asked for?
pub fn has(asked: &[Sweep], sweep: Sweep) -> bool {
    asked.is_empty() || asked.contains(&sweep)
}

/// All cells of the sweeps asked for that can be measured. Rates over time need the I/O modes to be compared first.
pub fn cells(asked: &[Sweep], bytes: u64, mut can: impl FnMut(Cell) -> bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    for way in [Way::Read, Way::Write] {
        for io_mode in IoMode::ALL.into_iter().filter(|io_mode| io_mode.can(way)) {
            let cell = Cell {
                sweep: Sweep::IoMode,
                way,
                io_mode,
                by: By::Uring,
                block_bytes: BLOCK,
                depth: DEPTH,
                threads: 1,
                files: 1,
                scattered: false,
            };
            if has(asked, Sweep::IoMode) || has(asked, Sweep::Time) {
                // What is mapped is read by plain calls, whoever asks for the rest.
                let rings = [By::Uring, By::Plain].into_iter().skip(usize::from(io_mode == IoMode::Mmap));
                cells.extend(rings.map(|by| Cell { by, ..cell }));
            }
            if !matches!(io_mode, IoMode::Direct | IoMode::Buffered) {
                continue;
            }
            let mut add = |sweep, varied: Vec<Cell>| {
                if has(asked, sweep) {
                    cells.extend(varied.into_iter().map(|cell| Cell { sweep, ..cell }));
                }
            };
            let smallest = if io_mode == IoMode::Direct { SECTOR } else { 1 };
            let blocks = BLOCKS.into_iter().filter(|block| (smallest..=bytes).contains(block));
            // One at a time: what a caller of read(2) and write(2) sees.
            add(
                Sweep::Block,
                blocks.map(|block_bytes| Cell { by: By::Plain, block_bytes, depth: 1, ..cell }).collect(),
            );
            add(Sweep::Depth, DEPTHS.map(|depth| Cell { depth, ..cell }).to_vec());
            add(Sweep::Threads, THREADS.map(|threads| Cell { threads, depth: 1, ..cell }).to_vec());
            add(Sweep::Memory, [false, true].map(|scattered| Cell { scattered, ..cell }).to_vec());
            add(Sweep::Files, THREADS.map(|files| Cell { threads: files, files, depth: 1, ..cell }).to_vec());
        }
    }
    cells.retain(|cell| can(*cell));
    cells
}

/// The fastest I/O mode of each way.
pub fn best_of_each_way(cells: &[Measured]) -> Vec<Cell> {
    let ways = [Way::Read, Way::Write].into_iter();
    let best = ways.filter_map(|way| {
        let of_way =
            cells.iter().filter(|it| it.cell.sweep == Sweep::IoMode && it.cell.way == way && it.cell.by != By::Fio);
        of_way.max_by(|one, other| one.gbs.total_cmp(&other.gbs))
    });
    best.map(|it| Cell { sweep: Sweep::Time, ..it.cell }).collect()
}
