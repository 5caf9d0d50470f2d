//! A look at an end's storage before a job: some tens of milliseconds, for a forecast.
//!
//! For: `--transport auto`, which says what it expects before data moves, where no earlier measurement is known.
//! In and out: a job's source or destination in; what its storage gives or takes now, and what a small file costs, out.
//! Invariants: what is written has no name and is gone at the end; steps grow only while the time is below `STEPS_NS`, so a disk that is slow is
//! asked for a few MiB; what cannot be found out that way is 0, never a guess.
//! Absent on purpose: choosing an I/O mode (`io_mode/mod.rs`, whose trials are longer), remembering, sets of volumes (nobody knows the share of each).

use std::fs::File;
use std::io::{self, Read as _};

use proto::negotiate::{STORAGE_BPS_MAX, StorageLook};
use proto::storage::selection::{Candidate, Trial};
use proto::storage::{IoMode, Way};
use sys::fs::{Dir, Kind};

use crate::linux::Linux;
use crate::tree::handle::{Handle, Refused};
use crate::tree::io_mode::{Chooser, LARGE_FILE_BYTES_MIN, trial};
use crate::tree::scan::root::Root;

/// No step begins later than this after the first: the last one may take as long again, or as long as a disk of 10 MB/s needs for 2 MiB.
const STEPS_NS: u64 = 40_000_000;
/// The first step; each is twice as long as the one before. Bursts that a quota allows are over after it (Linux' blk-throttle lets a tenth of a
/// second's bytes pass at once).
const STEP_BYTES_MIN: u64 = 1 << 20;
/// And the longest.
const STEP_BYTES_MAX: u64 = 16 << 20;
/// All steps: 1 + 2 + 4 + 8 + 16 MiB.
const ALL_BYTES: u64 = 31 << 20;
/// Operations at once: a job has more chunks on their way than this on any disk.
const DEPTH: u16 = 4;
/// Bufs of its own pool.
const BUFS: usize = 4;
/// Small files that are made, or read.
const SMALL_FILES: u32 = 16;
/// What is written into each.
const SMALL_BYTES: usize = 4096;
/// Files of a source tree that are looked at, and names that are read for them.
const FILES_MAX: usize = 64;
const NAMES_MAX: usize = 1024;
/// A destination with less room is left alone.
const ROOM_FACTOR: u64 = 8;

/// What a folder or file on this storage gives; `root`: what the user named. `None`: it is a few small files, for which nobody should wait.
pub(in crate::tree) fn read(chooser: &Chooser, root: &Root) -> Option<StorageLook> {
    let sample = Sample::of(root);
    (sample.bytes >= LARGE_FILE_BYTES_MIN || !sample.is_whole).then(|| read_sample(chooser, &sample))
}

fn read_sample(chooser: &Chooser, sample: &Sample) -> StorageLook {
    if sample.bytes == 0 {
        return StorageLook::default();
    }
    let file_ns = small_reads(&sample.cold_small);
    if sample.cached_bytes / 10 * 10 >= sample.bytes / 10 * 9 {
        return StorageLook { bps: STORAGE_BPS_MAX, file_ns };
    }
    let Some((folder, name)) = &sample.largest else { return StorageLook { bps: 0, file_ns } };
    StorageLook { bps: bps(read_steps(chooser, folder, name)), file_ns }
}

/// What this folder takes.
pub(in crate::tree) fn write(chooser: &Chooser, folder: &Dir) -> StorageLook {
    let has_room = folder.space().is_ok_and(|space| space.free_bytes >= ALL_BYTES * ROOM_FACTOR);
    if !has_room {
        return StorageLook::default();
    }
    let bps = bps(write_steps(chooser, folder));
    let file_ns = small_writes(folder).unwrap_or(0);
    StorageLook { bps, file_ns }
}

fn bps(bytes_per_second: io::Result<u64>) -> u64 {
    bytes_per_second.unwrap_or(0).saturating_mul(8).min(STORAGE_BPS_MAX)
}

fn read_steps(chooser: &Chooser, folder: &Dir, name: &[u8]) -> io::Result<u64> {
    let open = || folder.open_file(name, false);
    let mode = chooser.guess(&open()?).mode;
    let bytes = sys::fs::stat_file(&open()?)?.bytes;
    let file = Handle::by(open()?, mode, bytes, true, &Refused::default());
    // The beginning may have been read by somebody; the middle is colder.
    steps(chooser, Way::Read, &file, (bytes / 2) & !(STEP_BYTES_MIN - 1), bytes / 2)
}

fn write_steps(chooser: &Chooser, folder: &Dir) -> io::Result<u64> {
    let file = folder.create_unnamed()?;
    // In memory that would be half of the work.
    if !sys::fs::is_memory_file_system(&file) {
        sys::fs::preallocate(&file, ALL_BYTES)?;
    }
    let mode = chooser.guess(&file).mode;
    let file = Handle::by(file, mode, 0, false, &Refused::default());
    steps(chooser, Way::Write, &file, 0, ALL_BYTES)
}

/// Bytes per second of the last step that there was time for: the first ones are of the disk's waking up, and of what a quota lets pass.
fn steps(chooser: &Chooser, way: Way, file: &Handle, from: u64, bytes_max: u64) -> io::Result<u64> {
    let (mut world, _) = Linux::new(BUFS, STEP_BYTES_MIN as usize, chooser.demands.driver)?;
    let candidate = Candidate { mode: file.mode(), io_bytes: STEP_BYTES_MIN as u32, depth: DEPTH };
    let (begun, mut moved, mut bytes, mut rate) = (sys::clock::now_ns(), 0, STEP_BYTES_MIN, 0);
    while moved + bytes <= bytes_max && sys::clock::now_ns() - begun < STEPS_NS {
        let start = sys::clock::now_ns();
        let step = Trial { number: 0, candidate, bytes };
        let got = trial::moved(&mut world, step, way, file, from + moved)?;
        if way == Way::Write && file.mode() != IoMode::Direct {
            sys::fs::sync_data(&file.file)?;
        }
        let ns = (sys::clock::now_ns() - start).max(1);
        if got < bytes {
            break;
        }
        rate = (u128::from(got) * 1_000_000_000 / u128::from(ns)) as u64;
        moved += bytes;
        bytes = (bytes * 2).min(STEP_BYTES_MAX);
    }
    Ok(rate)
}

/// Nanoseconds of one file without a name: the inode, its first block.
fn small_writes(folder: &Dir) -> io::Result<u32> {
    let start = sys::clock::now_ns();
    for _ in 0..SMALL_FILES {
        let file = folder.create_unnamed()?;
        sys::fs::write_at_full(&file, &[0x5A; SMALL_BYTES], 0)?;
    }
    Ok(each(sys::clock::now_ns() - start, SMALL_FILES))
}

/// Nanoseconds of opening and reading one that no cache has; 0: there is none.
fn small_reads(files: &[(Dir, Vec<u8>)]) -> u32 {
    let (start, mut count, mut buf) = (sys::clock::now_ns(), 0, vec![0; SMALL_BYTES]);
    for (folder, name) in files.iter().take(SMALL_FILES as usize) {
        let read = folder.open_file(name, false).and_then(|mut file| file.read(&mut buf));
        count += u32::from(read.is_ok());
        if sys::clock::now_ns() - start > STEPS_NS {
            break;
        }
    }
    each(sys::clock::now_ns() - start, count)
}

fn each(ns: u64, count: u32) -> u32 {
    ns.checked_div(count.into()).map_or(0, |ns| u32::try_from(ns).unwrap_or(u32::MAX))
}

/// Some files of a source.
#[derive(Debug, Default)]
struct Sample {
    bytes: u64,
    cached_bytes: u64,
    /// The largest that is not in the cache, and large enough for a step.
    largest: Option<(Dir, Vec<u8>)>,
    largest_bytes: u64,
    /// Small ones that are not in the cache.
    cold_small: Vec<(Dir, Vec<u8>)>,
    files: usize,
    /// There are no others.
    is_whole: bool,
}

impl Sample {
    fn of(root: &Root) -> Sample {
        let mut sample = Sample { is_whole: true, ..Sample::default() };
        if root.name.is_empty() {
            sample.walk(root.parent.clone());
        } else {
            match root.parent.stat(&root.name).map(|stat| stat.kind) {
                Ok(Kind::File) => sample.add(&root.parent, &root.name),
                Ok(Kind::Folder) => root.parent.open_dir(&root.name).into_iter().for_each(|dir| sample.walk(dir)),
                _ => {}
            }
        }
        sample
    }

    fn walk(&mut self, top: Dir) {
        let (mut folders, mut names) = (vec![top], 0);
        while let Some(folder) = folders.pop() {
            for entry in folder.list().into_iter().flatten().map_while(Result::ok) {
                names += 1;
                if names > NAMES_MAX || self.files >= FILES_MAX {
                    self.is_whole = false;
                    return;
                }
                match entry.kind {
                    Some(Kind::File) => self.add(&folder, &entry.name),
                    Some(Kind::Folder) => folders.extend(folder.open_dir(&entry.name)),
                    _ => {}
                }
            }
        }
    }

    fn add(&mut self, folder: &Dir, name: &[u8]) {
        let Ok(file) = folder.open_file(name, false) else { return };
        let Ok(bytes) = sys::fs::stat_file(&file).map(|stat| stat.bytes) else { return };
        let cached = cached_bytes(&file, bytes);
        self.files += 1;
        self.bytes += bytes;
        self.cached_bytes += cached;
        if cached * 2 > bytes {
            return;
        }
        if bytes < LARGE_FILE_BYTES_MIN {
            self.cold_small.push((folder.clone(), name.to_vec()));
        } else if bytes > self.largest_bytes {
            (self.largest, self.largest_bytes) = (Some((folder.clone(), name.to_vec())), bytes);
        }
    }
}

/// In memory, of a file: all of one that lives there; none where the kernel does not count.
fn cached_bytes(file: &File, bytes: u64) -> u64 {
    if sys::fs::is_memory_file_system(file) {
        return bytes;
    }
    sys::fs::cached(file, 0, 0).map_or(0, |it| it.bytes.min(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::io_mode::IoModes;

    #[test]
    fn a_look_leaves_nothing_behind_and_tells_a_disk_from_memory() {
        let place = std::env::temp_dir().join(format!("longhaul-look-{}", std::process::id()));
        std::fs::create_dir_all(place.join("empty")).expect("a folder");
        let folder = Dir::open(place.as_os_str().as_encoded_bytes()).expect("it is there");
        let chooser = Chooser::new(IoModes::default());
        let takes = write(&chooser, &folder);
        let names: Vec<_> = folder.list().expect("it is there").map(|it| it.expect("a name").name).collect();
        assert_eq!(names, [b"empty".to_vec()], "nothing stays behind");
        assert!(takes.bps > 0 && takes.bps < STORAGE_BPS_MAX && takes.file_ns > 0, "{takes:?}");
        let root = |name: &[u8]| Root { parent: folder.clone(), name: name.into() };
        assert_eq!(read(&chooser, &root(b"empty")), None, "nobody waits for a look at nothing");
        // What was written just now is in the page cache.
        std::fs::write(place.join("file"), vec![7; 16 << 20]).expect("room");
        let gives = read(&chooser, &root(b"file"));
        let kept = folder.open_file(b"file", false).is_ok_and(|file| cached_bytes(&file, 1) > 0);
        assert!(!kept || gives.is_some_and(|it| it.bps == STORAGE_BPS_MAX), "{gives:?}");
        std::fs::write(place.join("small"), "a few bytes").expect("room");
        assert_eq!(read(&chooser, &root(b"small")), None, "nor at a small file");
        std::fs::remove_dir_all(&place).expect("it is ours");
    }
}
