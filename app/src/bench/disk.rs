//! `bench disk`: what a folder's file system gives to reads and writes, by engine, size and depth.
//!
//! For: the ceiling of a job's disk ends, and for choosing depth and engine; the figures stand beside fio's.
//! In and out: a folder and a size → GB/s (10^9) and processor time; one file in that folder, which has no name while it is measured.
//! Invariants: the file is gone when the process is, however it ends; there is room for it or nothing is written; reads through the page cache
//! begin with none of the file in it, but for the lines that say cached; buffered writes count up to the end of their sync.
//! Absent on purpose: random access and small blocks (a job has neither), several files.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use serde::Serialize;
use sys::clock;
use sys::fs;
use sys::mem::{Buf, HEADROOM, Mem, Pool};
use sys::ring::{Done, Driver, Kind, Op};

use crate::bench::table::{Host, ROUNDS, Table, median, print_json};
use crate::units;

const BLOCKS: [usize; 3] = [128 << 10, 1 << 20, 4 << 20];
const DEPTHS: [usize; 5] = [1, 4, 8, 16, 32];
/// Largest operation, and most of them at once: the pool.
const BLOCK_MAX: usize = BLOCKS[2];
const DEPTH_MAX: usize = DEPTHS[4];
/// The file is a whole number of the largest operations, and more than a few.
const FILE_BYTES_MIN: u64 = 16 << 20;
/// Left free beside the file: a full file system disturbs others.
const SPARE_BYTES: u64 = 64 << 20;
/// No completion for so long is an error.
const STALL: Duration = Duration::from_secs(60);

/// `longhaul bench disk`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct DiskArguments {
    /// Folder on the file system to measure
    #[arg(value_name = "PATH")]
    pub path: PathBuf,

    /// Size of the file that is read and written; more than the disk's own cache says more
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, default_value = "1GiB")]
    pub size: u64,

    /// Time for each cell of the table, all rounds together
    #[arg(long, value_name = "SECONDS", value_parser = units::parse_duration, default_value = "250ms")]
    pub seconds: Duration,

    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
}

/// What is done to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Work {
    ReadDirect,
    ReadBuffered,
    ReadCached,
    WriteDirect,
    WriteBuffered,
}

impl Work {
    const ALL: [Work; 5] =
        [Work::ReadDirect, Work::ReadBuffered, Work::ReadCached, Work::WriteDirect, Work::WriteBuffered];

    fn name(self) -> &'static str {
        match self {
            Work::ReadDirect => "read, O_DIRECT",
            Work::ReadBuffered => "read, buffered, cache dropped before",
            Work::ReadCached => "read, buffered, from the cache",
            Work::WriteDirect => "write, O_DIRECT",
            Work::WriteBuffered => "write, buffered, with the sync at the end",
        }
    }

    fn is_direct(self) -> bool {
        matches!(self, Work::ReadDirect | Work::WriteDirect)
    }

    fn writes(self) -> bool {
        matches!(self, Work::WriteDirect | Work::WriteBuffered)
    }
}

/// Who asks the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Engine {
    Bare,
    Uring,
    Plain,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Engine::Bare => "bare loop",
            Engine::Uring => "io_uring",
            Engine::Plain => "plain",
        }
    }
}

/// One cell of the table.
#[derive(Debug, Clone, Serialize)]
struct Cell {
    work: Work,
    engine: Engine,
    block_bytes: usize,
    depth: usize,
    gbs: f64,
    cpu_s_per_gb: f64,
    rounds_gbs: Vec<f64>,
}

/// Everything.
#[derive(Debug, Serialize)]
struct Report {
    path: String,
    file_system: String,
    file_bytes: u64,
    notes: Vec<String>,
    cells: Vec<Cell>,
}

/// Measures and prints.
///
/// # Errors
/// The folder cannot be written, has no room, or its disk failed.
pub fn run(arguments: &DiskArguments) -> anyhow::Result<()> {
    let host = Host::here();
    let report = measure(arguments)?;
    if arguments.json {
        return print_json("disk", &host, &report);
    }
    println!("{host}\n{report}");
    Ok(())
}

fn measure(arguments: &DiskArguments) -> anyhow::Result<Report> {
    let shown = arguments.path.display().to_string();
    let file_bytes = arguments.size - arguments.size % BLOCK_MAX as u64;
    ensure!(file_bytes >= FILE_BYTES_MIN, "the file must have at least {} MiB", FILE_BYTES_MIN >> 20);
    let path = std::os::unix::ffi::OsStrExt::as_bytes(arguments.path.as_os_str());
    let folder = fs::Dir::open(path).with_context(|| format!("failed to open the folder {shown}"))?;
    let space = folder.space().with_context(|| format!("failed to ask {shown} for its room"))?;
    ensure!(
        space.free_bytes >= file_bytes + SPARE_BYTES,
        "{shown} has {} free: too little for a file of {} (choose another with --size)",
        units::show_memory(space.free_bytes),
        units::show_memory(file_bytes)
    );
    let mut rig = Rig::new(&arguments.path, file_bytes).with_context(|| format!("failed to write into {shown}"))?;
    let mut notes = std::mem::take(&mut rig.notes);
    let in_memory = matches!(space.fs_type.as_str(), "tmpfs" | "ramfs");
    if in_memory {
        notes.push(format!("{} has no disk below it: only reads and writes of memory are measured", space.fs_type));
    }
    let works = Work::ALL.into_iter().filter(|work| match in_memory {
        true => matches!(work, Work::ReadCached | Work::WriteBuffered),
        false => rig.can(*work, &mut notes),
    });
    let works: Vec<Work> = works.collect();
    let mut cells: Vec<Cell> = works.iter().flat_map(|&work| rig.cells_of(work)).collect();
    let mut cpu: Vec<Vec<f64>> = vec![Vec::new(); cells.len()];
    let slice = arguments.seconds / ROUNDS as u32;
    for _ in 0..ROUNDS {
        for (cell, cpu) in cells.iter_mut().zip(&mut cpu) {
            let what = || format!("failed to measure: {}, {}", cell.work.name(), cell.engine.name());
            let (bytes, ns, cpu_ns) = rig.measure(cell, slice).with_context(what)?;
            cell.rounds_gbs.push(bytes as f64 / ns as f64);
            cpu.push(cpu_ns as f64 / bytes as f64);
        }
    }
    for (cell, cpu) in cells.iter_mut().zip(&cpu) {
        cell.gbs = median(&cell.rounds_gbs);
        cell.cpu_s_per_gb = median(cpu);
    }
    Ok(Report { path: shown, file_system: space.fs_type, file_bytes, notes, cells })
}

/// A file without a name, a pool, and the engines.
struct Rig {
    file: Arc<File>,
    file_bytes: u64,
    pool: Pool,
    uring: Option<Driver>,
    plain: Driver,
    done: Vec<Done>,
    notes: Vec<String>,
}

impl Rig {
    fn new(folder: &Path, file_bytes: u64) -> io::Result<Rig> {
        let name = folder.join(format!(".longhaul-bench-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&name)?;
        // Without a name from here on: whatever ends this process, the file goes with it.
        std::fs::remove_file(&name)?;
        let mut pool = Pool::new(DEPTH_MAX, BLOCK_MAX)?;
        let mut bufs: Vec<Buf> = std::iter::from_fn(|| pool.take()).collect();
        for (number, buf) in bufs.iter_mut().enumerate() {
            fill(buf.whole_mut(), number as u64);
        }
        let mut notes = Vec::new();
        let mut offset = 0;
        while offset < file_bytes {
            let buf = &bufs[(offset / BLOCK_MAX as u64) as usize % bufs.len()];
            fs::write_at_full(&file, buf.payload(), offset)?;
            offset += BLOCK_MAX as u64;
        }
        bufs.into_iter().for_each(|buf| pool.give(buf));
        fs::sync_data(&file)?;
        let uring = match Driver::choose(&pool, Some(Kind::Uring)) {
            Ok((mut driver, _)) => {
                if let Err(error) = driver.register() {
                    notes.push(format!("io_uring without registered memory: {error}"));
                }
                Some(driver)
            }
            Err(error) => {
                notes.push(format!("no lines for io_uring: {error}"));
                None
            }
        };
        let (plain, _) = Driver::choose(&pool, Some(Kind::Plain))?;
        Ok(Rig { file: Arc::new(file), file_bytes, pool, uring, plain, done: Vec::with_capacity(DEPTH_MAX), notes })
    }

    /// File systems without O_DIRECT have no such lines.
    fn can(&self, work: Work, notes: &mut Vec<String>) -> bool {
        if !work.is_direct() {
            return true;
        }
        // Some file systems take the flag and refuse the operation.
        let mut tried = fs::set_direct(&self.file, true);
        if tried.is_ok() {
            let mut probe = Pool::new(1, BLOCK_MAX).map(|mut pool| pool.take().expect("just made"));
            tried = probe
                .as_mut()
                .map_err(|_| io::ErrorKind::OutOfMemory.into())
                .and_then(|buf| fs::read_at_full(&self.file, buf.payload_mut(), 0).map(|_| ()));
        }
        let _ = fs::set_direct(&self.file, false);
        if let Err(error) = &tried {
            notes.push(format!("no lines for {}: {error}", work.name()));
        }
        tried.is_ok()
    }

    fn cells_of(&self, work: Work) -> Vec<Cell> {
        let mut cells = Vec::new();
        for engine in [Engine::Bare, Engine::Uring, Engine::Plain] {
            if engine == Engine::Uring && self.uring.is_none() {
                continue;
            }
            for block_bytes in BLOCKS {
                for depth in DEPTHS {
                    if engine == Engine::Bare && depth > 1 {
                        break;
                    }
                    let (gbs, cpu_s_per_gb, rounds_gbs) = (0.0, 0.0, Vec::new());
                    cells.push(Cell { work, engine, block_bytes, depth, gbs, cpu_s_per_gb, rounds_gbs });
                }
            }
        }
        cells
    }

    /// Bytes, wall and processor nanoseconds of one round.
    fn measure(&mut self, cell: &Cell, time: Duration) -> io::Result<(u64, u64, u64)> {
        fs::set_direct(&self.file, cell.work.is_direct())?;
        match cell.work {
            Work::ReadCached => self.warm()?,
            _ => {
                fs::sync_data(&self.file)?;
                fs::drop_cache(&self.file, 0, 0)?;
            }
        }
        let (start, cpu) = (clock::now_ns(), clock::process_cpu_ns());
        let end = Instant::now() + time;
        let bytes = match cell.engine {
            Engine::Bare => self.bare(cell, end)?,
            Engine::Uring | Engine::Plain => self.through_ring(cell, end)?,
        };
        if cell.work == Work::WriteBuffered {
            fs::sync_data(&self.file)?;
        }
        Ok((bytes, (clock::now_ns() - start).max(1), clock::process_cpu_ns() - cpu))
    }

    /// Reads the whole file once, so that it is in the page cache.
    fn warm(&mut self) -> io::Result<()> {
        let mut buf = self.pool.take().expect("nothing is in flight");
        let mut offset = 0;
        while offset < self.file_bytes {
            offset += fs::read_at_full(&self.file, buf.payload_mut(), offset)?.max(1) as u64;
        }
        self.pool.give(buf);
        Ok(())
    }

    /// Where the next operation goes; from the beginning again at the end.
    fn next(&self, offset: &mut u64, cell: &Cell) -> io::Result<u64> {
        if *offset + cell.block_bytes as u64 > self.file_bytes {
            *offset = 0;
            if cell.work == Work::ReadBuffered {
                fs::drop_cache(&self.file, 0, 0)?;
            }
        }
        *offset += cell.block_bytes as u64;
        Ok(*offset - cell.block_bytes as u64)
    }

    fn bare(&mut self, cell: &Cell, end: Instant) -> io::Result<u64> {
        let mut buf = self.pool.take().expect("nothing is in flight");
        let (mut bytes, mut offset) = (0, 0);
        while bytes == 0 || Instant::now() < end {
            let at = self.next(&mut offset, cell)?;
            let block = &mut buf.payload_mut()[..cell.block_bytes];
            if cell.work.writes() {
                fs::write_at_full(&self.file, block, at)?;
            } else if fs::read_at_full(&self.file, block, at)? < cell.block_bytes {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes += cell.block_bytes as u64;
        }
        self.pool.give(buf);
        Ok(bytes)
    }

    fn through_ring(&mut self, cell: &Cell, end: Instant) -> io::Result<u64> {
        let (mut bytes, mut offset, mut in_flight) = (0, 0, 0);
        loop {
            while in_flight < cell.depth && (bytes == 0 || Instant::now() < end) {
                let offset = self.next(&mut offset, cell)?;
                let (file, len) = (Arc::clone(&self.file), cell.block_bytes);
                let mem = Mem::Buf(self.pool.take().expect("as many as the greatest depth"));
                let op = match cell.work.writes() {
                    true => Op::Write { file, offset, mem, at: HEADROOM, len, uncached: false },
                    false => Op::Read { file, offset, mem, at: HEADROOM, len, uncached: false },
                };
                self.driver(cell.engine).submit(0, op);
                in_flight += 1;
            }
            if in_flight == 0 {
                return Ok(bytes);
            }
            let mut done = std::mem::take(&mut self.done);
            let asked = Instant::now();
            self.driver(cell.engine).wait(Some(STALL), &mut done)?;
            if done.is_empty() && asked.elapsed() >= STALL {
                return Err(io::ErrorKind::TimedOut.into());
            }
            for done in done.drain(..) {
                in_flight -= 1;
                let moved = done.result?;
                if let Mem::Buf(buf) = done.mem {
                    self.pool.give(buf);
                }
                // Short but for no reason that a file of this size could give: what was moved is what counts.
                bytes += moved as u64;
            }
            self.done = done;
        }
    }

    fn driver(&mut self, engine: Engine) -> &mut Driver {
        match (engine, &mut self.uring) {
            (Engine::Uring, Some(uring)) => uring,
            _ => &mut self.plain,
        }
    }
}

/// Bytes that no disk can squeeze. xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators" (2016).
fn fill(bytes: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for word in bytes.chunks_mut(8) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
        word.copy_from_slice(&random[..word.len()]);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, size) = (&self.path, units::show_memory(self.file_bytes));
        writeln!(
            f,
            "{path} ({}), a file of {size}, in sequence; medians of {ROUNDS} rounds in turn",
            self.file_system
        )?;
        for note in &self.notes {
            writeln!(f, "{note}")?;
        }
        let mut heads = vec![String::from("GB/s")];
        heads.extend(DEPTHS.map(|depth| format!("{depth} at once")));
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        for work in Work::ALL {
            let cells: Vec<&Cell> = self.cells.iter().filter(|cell| cell.work == work).collect();
            let Some(best) = cells.iter().max_by(|one, other| one.gbs.total_cmp(&other.gbs)) else { continue };
            let mut table = Table::new(&heads);
            for engine in [Engine::Bare, Engine::Uring, Engine::Plain] {
                for block_bytes in BLOCKS {
                    let row = cells.iter().filter(|cell| cell.engine == engine && cell.block_bytes == block_bytes);
                    let row: Vec<String> = row.map(|cell| format!("{:.2}", cell.gbs)).collect();
                    if !row.is_empty() {
                        let name = format!("{}, {}", engine.name(), units::show_memory(block_bytes as u64));
                        table.line(std::iter::once(name).chain(row));
                    }
                }
            }
            write!(f, "\n{}\n{table}", work.name())?;
            writeln!(
                f,
                "ceiling: {:.2} GB/s, {} × {} by {}, {:.3} CPU s/GB",
                best.gbs,
                best.depth,
                units::show_memory(best.block_bytes as u64),
                best.engine.name(),
                best.cpu_s_per_gb
            )?;
        }
        Ok(())
    }
}
