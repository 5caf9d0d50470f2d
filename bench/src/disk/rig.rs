//! Files without names, and threads that read and write them by the job's own calls.
//!
//! For: every cell of `bench disk`.
//! In and out: a cell and a time → rate and processor time, or the rate from moment to moment.
//! Invariants: what is measured is `engine::linux`, as workers use it; threads share a file by turns of one operation; a read through the
//! cache finds nothing of the file there; a write ends with the flush of all files,
//! and what was written through the cache is flushed before it is written over.
//! Absent on purpose: which cells (cell.rs).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::linux::Linux;
use engine::platform::{Disk, Done, Op, Platform};
use engine::tree::handle::{Handle, Refused};
use proto::storage::{IoMode, Way};
use sys::mem::{HEADROOM, Mem, Pool};
use sys::{clock, fs, ring};

use super::cell::{BLOCK, By, Cell};

/// Memory of all bufs of a cell, at most; deeper ones of large operations have fewer at once.
const POOL_BYTES_MAX: u64 = 1 << 30;
/// Most files of any cell.
const FILES: usize = 8;
/// What memory is touched by.
const PAGE: usize = 4096;
/// No completion for so long is an error.
const STALL: Duration = Duration::from_secs(60);
/// Between two looks at a running cell.
const MOMENT: Duration = Duration::from_millis(50);

/// Open files without names, and threads that read and write them.
#[derive(Debug)]
pub struct Rig {
    /// As many as the widest cell has, each an equal part of all bytes.
    read: Vec<File>,
    /// The same for writing: made anew for each cell, with room taken and nothing in it, as parts are.
    write: Vec<File>,
    bytes: u64,
}

impl Rig {
    /// Writes the files.
    pub fn new(folder: &fs::Dir, bytes: u64) -> io::Result<Rig> {
        let mut block = vec![0; BLOCK as usize];
        let share = bytes / FILES as u64 / BLOCK * BLOCK;
        let mut files = Vec::new();
        // The first one is read and written alone as well, and has room for all of it.
        for number in 0..FILES {
            let file = folder.create_unnamed()?;
            let end = if number == 0 { bytes } else { share };
            for offset in (0..end).step_by(BLOCK as usize) {
                fill(&mut block, offset + number as u64);
                fs::write_at_full(&file, &block, offset)?;
                if number > 0 && bytes < 64 << 20 {
                    break; // moments: not for the figures
                }
            }
            fs::truncate(&file, end)?;
            fs::sync_data(&file)?;
            files.push(file);
        }
        let write = (0..FILES).map(|_| folder.create_unnamed()).collect::<io::Result<_>>()?;
        Ok(Rig { read: files, write, bytes })
    }

    /// How another program opens the first file.
    pub fn name(&self, way: Way) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.files(way)[0].as_raw_fd())
    }

    fn files(&self, way: Way) -> &[File] {
        if way == Way::Read { &self.read } else { &self.write }
    }

    /// Of one of so many files.
    fn end(&self, files: usize) -> u64 {
        if files == 1 { self.bytes } else { self.bytes / FILES as u64 / BLOCK * BLOCK }
    }

    /// Bytes of the first file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// IoModes that do not work here have no lines, and a note.
    pub fn can(&self, cell: Cell, notes: &mut Vec<String>) -> bool {
        let trial = Cell { block_bytes: BLOCK, depth: 1, threads: 1, files: 1, ..cell };
        if cell.block_bytes > POOL_BYTES_MAX.min(available_bytes() / 4) {
            notes.push(format!("no line for {cell}: too little memory"));
            return false;
        }
        let why = match self
            .clear(trial)
            .and_then(|()| self.handle(trial, 0))
            .and_then(|file| Ok((self.runner(trial, file.clone(), 0)?, file)))
            .and_then(|(runner, file)| runner.run(Duration::ZERO, &AtomicU64::new(0)).map(|()| file.mode()))
        {
            Ok(io_mode) if io_mode == cell.io_mode => return true,
            Ok(_) => "this file system refuses it".to_owned(),
            Err(error) => error.to_string(),
        };
        let note = format!("no lines for {} by {}, {}: {why}", cell.way.name(), cell.io_mode, cell.by.name());
        if !notes.contains(&note) {
            notes.push(note);
        }
        false
    }

    fn handle(&self, cell: Cell, number: usize) -> io::Result<Handle> {
        let file = self.files(cell.way)[number].try_clone()?;
        // Clones share their flags: those of the cell before go.
        fs::set_direct(&file, false)?;
        let bytes = fs::stat_file(&file)?.bytes;
        Ok(Handle::by(file, cell.io_mode, bytes, false, &Refused::default()))
    }

    /// Files to read are flushed and out of the cache; files to write have room and nothing in it.
    pub fn clear(&self, cell: Cell) -> io::Result<()> {
        self.files(cell.way)[..cell.files].iter().try_for_each(|file| {
            if cell.way == Way::Write {
                fs::set_direct(file, false)?;
                fs::truncate(file, 0)?;
                fs::preallocate(file, self.end(cell.files))?;
            }
            fs::sync_data(file)?;
            fs::drop_cache(file, 0, 0)
        })
    }

    /// 10^9 B/s and processor seconds per 10^9 bytes of one round.
    pub fn measure(&self, cell: Cell, time: Duration) -> io::Result<(f64, f64)> {
        let moved = AtomicU64::new(0);
        let (ns, cpu_ns) = self.run(cell, time, &moved, |_| {})?;
        let bytes = moved.into_inner().max(1) as f64;
        Ok((bytes / ns as f64, cpu_ns as f64 / bytes))
    }

    /// Seconds and bytes from moment to moment.
    pub fn course(&self, cell: Cell, time: Duration) -> io::Result<Vec<(f64, u64)>> {
        let moved = AtomicU64::new(0);
        let mut samples = vec![(0.0, 0)];
        self.run(cell, time, &moved, |elapsed| samples.push((elapsed.as_secs_f64(), moved.load(Ordering::Relaxed))))?;
        Ok(samples)
    }

    /// Runs a cell's threads; `look` is called now and then. Wall and processor nanoseconds, the flush included.
    fn run(
        &self,
        cell: Cell,
        time: Duration,
        moved: &AtomicU64,
        mut look: impl FnMut(Duration),
    ) -> io::Result<(u64, u64)> {
        self.clear(cell)?;
        let files: Vec<Handle> = (0..cell.files).map(|number| self.handle(cell, number)).collect::<io::Result<_>>()?;
        // Nobody is measured while another one's memory is still being made.
        let ready = Barrier::new(cell.threads + 1);
        let (mut start, mut cpu) = (0, 0);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..cell.threads)
                .map(|number| {
                    let (file, ready) = (files[number % cell.files].clone(), &ready);
                    scope.spawn(move || {
                        let runner = self.runner(cell, file, number);
                        ready.wait();
                        runner?.run(time, moved)
                    })
                })
                .collect();
            ready.wait();
            (start, cpu) = (clock::now_ns(), clock::process_cpu_ns());
            let began = Instant::now();
            while threads.iter().any(|thread| !thread.is_finished()) {
                std::thread::sleep(MOMENT.min(time.saturating_sub(began.elapsed()).max(Duration::from_micros(200))));
                look(began.elapsed());
            }
            threads.into_iter().try_for_each(|thread| thread.join().expect("a measuring thread does not panic"))
        })?;
        if cell.way == Way::Write {
            self.write[..cell.files].iter().try_for_each(fs::sync_data)?;
        }
        Ok(((clock::now_ns() - start).max(1), clock::process_cpu_ns() - cpu))
    }

    /// What one thread needs.
    fn runner(&self, cell: Cell, file: Handle, number: usize) -> io::Result<Runner<'_>> {
        let len = (cell.block_bytes as usize).next_multiple_of(PAGE);
        let depth = cell.depth.min((POOL_BYTES_MAX / cell.block_bytes.max(1)) as usize).max(1);
        let driver = if cell.by == By::Uring { ring::Kind::Uring } else { ring::Kind::Plain };
        let pool = if cell.scattered { Pool::scattered(depth, len) } else { Pool::new(depth, len) }?;
        let (mut world, _) = Linux::over(pool, Some(driver))?;
        touch(world.pool());
        let sharing = (cell.threads / cell.files).max(1) as u64;
        let turn = Turn {
            at: (number / cell.files) as u64,
            step: sharing,
            end: self.end(cell.files),
            block: cell.block_bytes,
        };
        Ok(Runner { cell, file, whole: &self.files(cell.way)[number % cell.files], turn, world, in_flight: 0, depth })
    }
}

/// One thread's part of a cell.
struct Runner<'a> {
    cell: Cell,
    file: Handle,
    /// The file, for what is not reading or writing.
    whole: &'a File,
    turn: Turn,
    world: Linux,
    in_flight: usize,
    depth: usize,
}

impl Runner<'_> {
    /// Its turns of the file, over and over; one at least.
    fn run(mut self, time: Duration, moved: &AtomicU64) -> io::Result<()> {
        let mut done: Vec<Done> = Vec::with_capacity(self.depth);
        let (end, mut first, mut heard) = (Instant::now() + time, true, Instant::now());
        loop {
            while self.in_flight < self.depth && (first || Instant::now() < end) {
                first = false;
                self.begin(moved)?;
            }
            if self.in_flight == 0 {
                return Ok(());
            }
            self.world.wait(u64::try_from(STALL.as_nanos()).unwrap_or(u64::MAX), &mut done);
            // A wait may end with nothing, as after a signal.
            if !done.is_empty() {
                heard = Instant::now();
            } else if heard.elapsed() > STALL {
                return Err(io::ErrorKind::TimedOut.into());
            }
            for it in done.drain(..) {
                self.in_flight -= 1;
                match it.result {
                    Ok(bytes) => _ = moved.fetch_add(bytes as u64, Ordering::Relaxed),
                    // Refused: `can` sees by the handle that it gave way.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
                if let Mem::Buf(buf) = it.mem {
                    self.world.pool().give(buf);
                }
            }
        }
    }

    /// One operation: over at once for files that workers move at once, else in flight.
    fn begin(&mut self, moved: &AtomicU64) -> io::Result<()> {
        let (offset, again) = self.turn.next();
        if again && self.cell.way == Way::Read && self.cell.io_mode.fills_cache() {
            fs::drop_cache(self.whole, 0, 0)?;
        }
        if again && self.cell.way == Way::Write && self.cell.io_mode != IoMode::Direct {
            // Else the same pages are written over in memory, and one flush at the end counts for all of them.
            fs::sync_data(self.whole)?;
        }
        let mut buf = self.world.pool().take().expect("as many as may be in flight");
        let (file, len) = (&self.file, self.cell.block_bytes as usize);
        if self.world.is_at_once(file) {
            let bytes = match self.cell.way {
                Way::Read => self.world.read_at_once(file, offset, &mut buf.payload_mut()[..len]),
                Way::Write => self.world.write_at_once(file, offset, &buf.payload()[..len]),
            };
            self.world.pool().give(buf);
            moved.fetch_add(bytes? as u64, Ordering::Relaxed);
            return Ok(());
        }
        // A buf is in one op at a time, and so is its number.
        let (token, file, at) = (buf.index() as u64, file.clone(), HEADROOM);
        let mem = Mem::Buf(buf);
        let op = match self.cell.way {
            Way::Read => Op::Read { file, offset, mem, at, len },
            Way::Write => Op::Write { file, offset, mem, at, len },
        };
        self.world.submit(token, op);
        self.in_flight += 1;
        Ok(())
    }
}

/// The kernel's first look at each page is no part of any figure.
fn touch(pool: &mut Pool) {
    let mut bufs: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    bufs.iter_mut().for_each(|buf| buf.whole_mut().iter_mut().step_by(PAGE).for_each(|byte| *byte = 1));
    bufs.into_iter().rev().for_each(|buf| pool.give(buf));
}

/// Where a thread's next operation goes.
struct Turn {
    at: u64,
    step: u64,
    end: u64,
    block: u64,
}

impl Turn {
    /// The offset, and whether the file begins again.
    fn next(&mut self) -> (u64, bool) {
        let blocks = (self.end / self.block).max(1);
        let again = self.at >= blocks;
        self.at %= blocks;
        let offset = self.at * self.block;
        self.at += self.step;
        (offset, again)
    }
}

/// Memory that can be had.
fn available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).map_or(u64::MAX, |kib| kib << 10)
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
