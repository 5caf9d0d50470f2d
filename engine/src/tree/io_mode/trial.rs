//! Trials of a selection over real files.
//!
//! For: rates of modes on this file system, by the very calls that a job makes.
//! In and out: a selection and a file to read from, or a folder to write into, in; a selection that is over out.
//! Invariants: runs beside the loop, never on a worker; what is written has no name and is gone at the end; what is read through the cache
//! leaves it again; each trial has bytes of its own, so that none finds what another one brought in; writes count up to the end of their flush.
//! Absent on purpose: deciding (`proto::storage::selection`), when (`tree/io_mode/mod.rs`).

use std::fs::File;
use std::io;

use proto::storage::Way;
use proto::storage::selection::{Candidate, Selection, TRIAL_BYTES_MAX, Trial};
use sys::mem::{HEADROOM, Mem};
use sys::ring;

use crate::linux::Linux;
use crate::platform::{Clock, Done, Op, Platform};
use crate::tree::handle::{Handle, Refused};

/// Bufs of the selection's own pool: the deepest candidate.
const BUFS: usize = 16;
/// Between the bytes of two trials: more than the kernel reads ahead.
const GAP_BYTES: u64 = 4 << 20;
/// A file that is written has room for all trials: 4 modes by 4 + 8 + 16 MiB and a refinement.
pub(in crate::tree) const WRITTEN_BYTES: u64 = 128 << 20;
/// A trial that does not end in this time is a disk that hangs; the job will say so itself.
const PATIENCE_NS: u64 = 5_000_000_000;

/// Runs a reading selection over a file that nobody has in the cache.
pub(in crate::tree) fn read(
    selection: &mut Selection,
    open: impl Fn() -> io::Result<File>,
    chunk_bytes: u32,
    driver: Option<ring::Kind>,
) -> io::Result<()> {
    let file_bytes = sys::fs::stat_file(&open()?)?.bytes;
    let (mut world, _) = Linux::new(BUFS, chunk_bytes as usize, driver)?;
    let mut offset = 0;
    while offset + TRIAL_BYTES_MAX <= file_bytes {
        let Some(trial) = selection.next_trial() else { break };
        let file = Handle::by(open()?, trial.candidate.mode, file_bytes, true, &Refused::default());
        run(&mut world, selection, trial, Way::Read, &file, offset)?;
        offset += trial.bytes + GAP_BYTES;
    }
    Ok(())
}

/// Runs a writing selection in a folder.
pub(in crate::tree) fn write(
    selection: &mut Selection,
    folder: &sys::fs::Dir,
    chunk_bytes: u32,
    driver: Option<ring::Kind>,
) -> io::Result<()> {
    let file = folder.create_unnamed()?;
    sys::fs::preallocate(&file, WRITTEN_BYTES)?;
    let (mut world, _) = Linux::new(BUFS, chunk_bytes as usize, driver)?;
    let mut offset = 0;
    while offset + TRIAL_BYTES_MAX <= WRITTEN_BYTES {
        let Some(trial) = selection.next_trial() else { break };
        let again = file.try_clone()?;
        sys::fs::set_direct(&again, false)?;
        let file = Handle::by(again, trial.candidate.mode, 0, false, &Refused::default());
        run(&mut world, selection, trial, Way::Write, &file, offset)?;
        sys::fs::drop_cache(&file.file, offset, trial.bytes)?;
        offset += trial.bytes;
    }
    Ok(())
}

/// One trial, from the first op to the last byte, with the flush if it writes.
fn run(
    world: &mut Linux,
    selection: &mut Selection,
    trial: Trial,
    way: Way,
    file: &Handle,
    offset: u64,
) -> io::Result<()> {
    let start = world.now_ns();
    if file.mode() != trial.candidate.mode {
        selection.on_refused(trial, 0);
        return Ok(());
    }
    let moved = moved(world, trial, way, file, offset)?;
    if way == Way::Write {
        sys::fs::sync_data(&file.file)?;
    }
    let ns = world.now_ns() - start;
    if file.mode() == trial.candidate.mode {
        selection.on_trial(trial, moved, ns)
    } else {
        selection.on_refused(trial, ns)
    }
    Ok(())
}

/// Bytes that one trial moved.
pub(super) fn moved(world: &mut Linux, trial: Trial, way: Way, file: &Handle, offset: u64) -> io::Result<u64> {
    let reads_at_once = way == Way::Read && file.is_at_once();
    if reads_at_once { at_once(world, trial, file, offset) } else { ring(world, trial, way, file, offset) }
}

/// Reads of a file that is read on the caller's thread.
fn at_once(world: &mut Linux, trial: Trial, file: &Handle, offset: u64) -> io::Result<u64> {
    let mut buf = world.pool().take().expect("nothing is in flight");
    let (mut moved, io_bytes) = (0, (trial.candidate.io_bytes as usize).min(buf.payload_mut().len()));
    while moved < trial.bytes {
        match file.read_at_once(&mut buf.payload_mut()[..io_bytes], offset + moved) {
            Ok(0) => break,
            Ok(bytes) => moved += bytes as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                world.pool().give(buf);
                return Err(error);
            }
        }
    }
    world.pool().give(buf);
    Ok(moved)
}

fn ring(world: &mut Linux, trial: Trial, way: Way, file: &Handle, offset: u64) -> io::Result<u64> {
    let Candidate { io_bytes, depth, .. } = trial.candidate;
    let depth = usize::from(depth).min(BUFS);
    let (mut asked, mut moved, mut in_flight) = (0, 0, 0);
    let mut failed = None;
    let mut done: Vec<Done> = Vec::with_capacity(BUFS);
    let end = world.now_ns() + PATIENCE_NS;
    while in_flight > 0 || (asked < trial.bytes && failed.is_none()) {
        while in_flight < depth && asked < trial.bytes && failed.is_none() {
            let Some(buf) = world.pool().take() else { break };
            // A buf is in one op at a time, and so is its number.
            let (token, file, at, len) = (buf.index() as u64, file.clone(), HEADROOM, io_bytes as usize);
            let (mem, offset) = (Mem::Buf(buf), offset + asked);
            let op = match way {
                Way::Read => Op::Read { file, offset, mem, at, len },
                Way::Write => Op::Write { file, offset, mem, at, len },
            };
            world.submit(token, op);
            asked += u64::from(io_bytes);
            in_flight += 1;
        }
        world.wait(100_000_000, &mut done);
        for it in done.drain(..) {
            in_flight -= 1;
            match it.result {
                // What came short or was refused is not asked for again: the rate counts what moved.
                Ok(bytes) => moved += bytes as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => failed = Some(error),
            }
            if let Mem::Buf(buf) = it.mem {
                world.pool().give(buf);
            }
        }
        if world.now_ns() > end {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    failed.map_or(Ok(moved), Err)
}
