//! Which mode moves the files of one end of a job.
//!
//! For: `SourceTree::open` and `SinkTree::open_part`, which ask; the scanner and the job driver, which have large files looked at before any
//! worker opens them; reports.
//! In and out: open files, their sizes, what an earlier selection found → a candidate; what was chosen and why as text.
//! Invariants: what the user named is never overruled; small files and files in memory are moved through the cache; a selection is run once per
//! file system and way, never on a worker, and never for a job that has announced little.
//! Absent on purpose: the selection's rules (`proto::storage::selection`), moving bytes (`tree/handle.rs`).

pub(super) mod look; // what storage does now, for a forecast
mod trial; // trials of a selection

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::checked;
use proto::negotiate::Choice;
use proto::storage::cached::{self, Line};
use proto::storage::selection::{BUDGET_NS, Candidate, Selection, Verdict, is_aged, is_stale};
use proto::storage::{IoMode, IoModes, Way};
use sys::fs::{Dir, Mount};
use sys::ring;

use crate::tree::handle::Refused;

/// Files from this length on are worth another mode than `Buffered`: below, the page cache absorbs them anyway.
pub const LARGE_FILE_BYTES_MIN: u64 = 16 << 20;
/// A selection needs a file with bytes of its own for each trial.
const RACE_FILE_BYTES_MIN: u64 = 512 << 20;
/// A job that has announced less in large files does not measure: what a selection could gain is less than what it costs.
const RACE_JOB_BYTES_MIN: u64 = 1 << 30;
/// A destination with less room than this many times the selection's own file is not measured.
const ROOM_FACTOR: u64 = 8;

/// What a job's end is told about storage.
#[derive(Debug, Clone, Default)]
pub struct Demands {
    /// What the user insists on.
    pub modes: IoModes,
    /// Where selections are remembered; `None`: nowhere, and none is run.
    pub memory: Option<PathBuf>,
    /// Way to the kernel the user insists on.
    pub driver: Option<ring::Kind>,
    /// Bytes per chunk; 0: the default.
    pub chunk_bytes: u32,
}

impl From<IoModes> for Demands {
    fn from(modes: IoModes) -> Demands {
        Demands { modes, ..Demands::default() }
    }
}

/// Chooses the I/O mode of each large file of one end, once per file system and direction.
#[derive(Debug, Default)]
pub struct Chooser {
    demands: Demands,
    pub(super) refused: Refused,
    announced: AtomicU64,
    /// What is known of each file system that was met, by its device and the way.
    known: Mutex<HashMap<(u64, Way), Known>>,
    news: Mutex<Vec<Choice>>,
    /// Bytes of the job's large files in the page cache, before and after.
    cached: Mutex<HashMap<u64, u64>>,
    left: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    key: u64,
    candidate: Candidate,
    /// Bytes per second in the selection; 0: none was run.
    bps: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Plain maps: one that a panicking thread held is still a map.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Chooser {
    /// A chooser for one end of a job, and all its volumes.
    #[must_use]
    pub fn new(demands: impl Into<Demands>) -> Arc<Self> {
        Arc::new(Chooser { demands: demands.into(), ..Chooser::default() })
    }

    fn chunk_bytes(&self) -> u32 {
        if self.demands.chunk_bytes == 0 { 1 << 20 } else { self.demands.chunk_bytes }
    }

    /// Is the mode ours to choose?
    pub(super) fn is_free(&self, way: Way) -> bool {
        self.requested(way).is_none()
    }

    fn requested(&self, way: Way) -> Option<IoMode> {
        if way == Way::Read { self.demands.modes.read } else { self.demands.modes.write }
    }

    /// Nothing measured: past the cache where that reaches a device.
    fn guess(&self, file: &File) -> Candidate {
        Candidate { mode: default_mode(file), io_bytes: self.chunk_bytes(), depth: 1 }
    }

    /// How a file is moved, and whether its pages are to leave the cache again.
    pub(super) fn candidate(
        &self,
        way: Way,
        file: &File,
        bytes: u64,
        is_cached: impl Fn() -> bool,
    ) -> (Candidate, bool) {
        let plain = Candidate { mode: IoMode::Buffered, io_bytes: self.chunk_bytes(), depth: 1 };
        if let Some(mode) = self.requested(way) {
            return (Candidate { mode, ..plain }, false);
        }
        if bytes < LARGE_FILE_BYTES_MIN || sys::fs::is_memory_file_system(file) || is_cached() {
            return (plain, false);
        }
        let known = sys::fs::stat_file(file).ok().and_then(|stat| lock(&self.known).get(&(stat.dev, way)).copied());
        (known.map_or_else(|| self.guess(file), |known| known.candidate), true)
    }

    /// A large file was announced: is its file system known, or worth a selection now? `open` is the file to read, or the folder to write.
    pub(super) fn announce(&self, way: Way, bytes: u64, dev: u64, ground: &Ground<'_>) {
        if bytes < LARGE_FILE_BYTES_MIN || !self.is_free(way) {
            return;
        }
        let sum = self.announced.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let Some(path) = &self.demands.memory else { return };
        if lock(&self.known).get(&(dev, way)).is_some_and(|known| known.bps > 0) {
            return;
        }
        let Ok(mount) = ground.mount() else { return };
        if matches!(mount.fs_type.as_str(), "tmpfs" | "ramfs") {
            return;
        }
        let key = key_of(&mount);
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = checked::decode::<Line>(&text).into_iter().find(|it| (it.key, it.verdict.way) == (key, way));
        let pays = sum >= RACE_JOB_BYTES_MIN && bytes >= RACE_FILE_BYTES_MIN;
        let now_s = wall_s();
        let is_due = pays && line.as_ref().is_none_or(|line| is_aged(&line.verdict, line.measured_s, now_s));
        let measured = if is_due { self.measure(way, ground) } else { None };
        let (verdict, how) = match (measured, line) {
            (Some(verdict), _) => {
                remember(path, &Line { key, verdict: verdict.clone(), measured_s: now_s });
                (verdict, "measured now")
            }
            // An old measurement is better than none.
            (None, Some(line)) => (line.verdict, "known from an earlier measurement"),
            (None, None) => return,
        };
        self.decided(dev, key, &mount, &verdict, how);
    }

    fn measure(&self, way: Way, ground: &Ground<'_>) -> Option<Verdict> {
        let default = ground.default_mode().ok()?;
        let refused = |mode| self.refused.has(mode);
        let mut selection = Selection::new(way, default, self.chunk_bytes(), BUDGET_NS, refused);
        let begun_ns = sys::clock::now_ns();
        ground.selection(&mut selection, self.chunk_bytes(), self.demands.driver).ok()?;
        // With what is around the trials: it is time of the job all the same.
        Some(Verdict { spent_ns: sys::clock::now_ns() - begun_ns, ..selection.verdict()? })
    }

    fn decided(&self, dev: u64, key: u64, mount: &Mount, verdict: &Verdict, how: &str) {
        let candidate = Candidate { io_bytes: verdict.candidate.io_bytes.min(self.chunk_bytes()), ..verdict.candidate };
        lock(&self.known).insert((dev, verdict.way), Known { key, candidate, bps: verdict.bps });
        let what = if verdict.way == Way::Read { "read I/O mode" } else { "write I/O mode" };
        let value = format!("{}, {} KiB a call, {} at once", candidate.mode, candidate.io_bytes >> 10, candidate.depth);
        let reason = format!("{} on {}, {how}: {}", mount.fs_type, mount.device, verdict.sentence());
        lock(&self.news).push(Choice { what, value, reason });
    }

    /// Something was chosen elsewhere.
    pub(super) fn tell(&self, choice: Choice) {
        lock(&self.news).push(choice);
    }

    /// What an earlier selection found for the file system that this is on: its name among the remembered, bytes per second.
    pub(super) fn remembered(&self, way: Way, on: impl AsFd) -> Option<(u64, u64)> {
        let path = self.demands.memory.as_ref().filter(|_| self.is_free(way))?;
        let key = key_of(&sys::fs::mount_of(on).ok()?);
        let lines = checked::decode::<Line>(&std::fs::read_to_string(path).ok()?);
        let line = lines.into_iter().find(|it| (it.key, it.verdict.way) == (key, way))?;
        Some((key, line.verdict.bps))
    }

    /// What was chosen since this was last asked.
    #[must_use]
    pub fn take_news(&self) -> Vec<Choice> {
        let mut news = std::mem::take(&mut *lock(&self.news));
        news.extend(self.refused.take_fixed().map(|error| Choice {
            what: "registered buffers",
            value: "not all".to_owned(),
            reason: format!("the kernel would not lock more memory for the disk ('ulimit -l' bounds it): {error}"),
        }));
        news
    }

    /// The job is over; `was_limit`: this end's disk is what it waited for. A file system that has become slower is measured again next time.
    pub fn settle(&self, way: Way, bytes: u64, ns: u64, was_limit: bool) {
        let Some(path) = self.demands.memory.as_ref().filter(|_| was_limit) else { return };
        let known = lock(&self.known);
        let mut of_way = known.iter().filter(|((_, it), _)| *it == way).map(|(_, known)| known);
        // With two file systems nobody can say whose rate it was.
        let (Some(one), None) = (of_way.next(), of_way.next()) else { return };
        if one.bps > 0 && is_stale(one.bps, bytes, ns) {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let _ = replace(path, &checked::encode(&cached::without(&text, one.key, way)));
        }
    }

    /// A large file is opened to be read: what of it is in the page cache already is not ours.
    pub(super) fn cached_before(&self, entry: u64, bytes: u64, file: &File) {
        // In memory it is nowhere else, and walking its pages took 2 % of a local copy.
        let has_cache = bytes >= LARGE_FILE_BYTES_MIN && !sys::fs::is_memory_file_system(file);
        if has_cache && !lock(&self.cached).contains_key(&entry) {
            let before = sys::fs::cached(file, 0, 0).map_or(u64::MAX, |it| it.bytes);
            lock(&self.cached).insert(entry, before);
        }
    }

    /// The job is done with a large file: what is in the page cache beyond what was there before is what it displaced of others.
    pub(super) fn cached_after(&self, entry: u64, bytes: u64, file: &File) {
        if bytes >= LARGE_FILE_BYTES_MIN && !sys::fs::is_memory_file_system(file) {
            let before = lock(&self.cached).remove(&entry).unwrap_or(0);
            let after = sys::fs::cached(file, 0, 0).map_or(0, |it| it.bytes);
            self.left.fetch_add(after.saturating_sub(before), Ordering::Relaxed);
        }
    }

    /// Bytes of page cache that the job's large files took and kept, and so displaced of others' at most.
    #[must_use]
    pub fn displaced_bytes(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }
}

/// Where a selection is run.
#[derive(Debug)]
pub(super) enum Ground<'a> {
    /// A file to read: its folder and name.
    File(&'a Dir, &'a [u8]),
    /// A folder to write into.
    Folder(&'a Dir),
}

impl Ground<'_> {
    fn mount(&self) -> io::Result<Mount> {
        match self {
            Ground::File(folder, name) => sys::fs::mount_of(folder.open_file(name, false)?),
            Ground::Folder(folder) => sys::fs::mount_of(folder),
        }
    }

    fn default_mode(&self) -> io::Result<IoMode> {
        Ok(match self {
            Ground::File(folder, name) => default_mode(folder.open_file(name, false)?),
            Ground::Folder(folder) => default_mode(folder),
        })
    }

    fn selection(&self, selection: &mut Selection, chunk_bytes: u32, driver: Option<ring::Kind>) -> io::Result<()> {
        match self {
            Ground::File(folder, name) => {
                let open = || folder.open_file(name, false);
                if super::facts::is_cached(&open()?, sys::fs::stat_file(&open()?)?.bytes) {
                    // It would say how fast memory is.
                    return Err(io::ErrorKind::ResourceBusy.into());
                }
                trial::read(selection, open, chunk_bytes, driver)
            }
            Ground::Folder(folder) => {
                if folder.space()?.free_bytes < trial::WRITTEN_BYTES * ROOM_FACTOR {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                trial::write(selection, folder, chunk_bytes, driver)
            }
        }
    }
}

/// What moves large files on this file system where nothing was measured: past the cache where that reaches a device.
fn default_mode(on: impl AsFd) -> IoMode {
    if sys::fs::is_block_file_system(on) { IoMode::Direct } else { IoMode::Buffered }
}

/// Seconds since 1970; a clock before that is one that nobody set.
fn wall_s() -> u64 {
    u64::try_from(sys::clock::unix_time().0).unwrap_or(0)
}

/// Names a file system as it is mounted now, under this kernel: any of them may change what is best.
fn key_of(mount: &Mount) -> u64 {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let text = format!("{}\n{}\n{}\n{:x}\n{kernel}", mount.fs_type, mount.device, mount.options, mount.id);
    u64::from_be_bytes(*blake3::hash(text.as_bytes()).as_bytes().first_chunk().expect("longer than that"))
}

/// What these file systems do together, bit/s; 0: that is not known of all of them. One that several volumes stand on counts once.
pub(super) fn together_bps(known: impl IntoIterator<Item = Option<(u64, u64)>>) -> u64 {
    let all: Option<HashMap<u64, u64>> = known.into_iter().collect();
    all.map_or(0, |all| all.values().fold(0_u64, |sum, bps| sum.saturating_add(bps.saturating_mul(8))))
}

/// Two jobs at once: the later one's line may be lost, and is found again by the next selection.
fn remember(path: &std::path::Path, line: &Line) {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // A home that cannot be written means a selection per job: slower, and right.
    let _ = replace(path, &checked::with(&text, line));
}

/// Never half a file: written beside, then renamed.
fn replace(path: &std::path::Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    std::fs::write(&beside, text)?;
    std::fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BPS: u64 = 1_000_000_000;

    /// A home's memory of selections that goes away with the test.
    struct Memory(PathBuf);

    impl Memory {
        fn new(name: &str) -> Memory {
            Memory(std::env::temp_dir().join(format!("longhaul-choice-{name}-{}", std::process::id())))
        }
        fn chooser(&self) -> Chooser {
            Chooser { demands: Demands { memory: Some(self.0.clone()), ..Demands::default() }, ..Chooser::default() }
        }
        fn has(&self, key: u64, way: Way) -> bool {
            let text = std::fs::read_to_string(&self.0).unwrap_or_default();
            checked::decode::<Line>(&text).into_iter().any(|it| (it.key, it.verdict.way) == (key, way))
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn verdict(way: Way) -> Verdict {
        let mut selection = Selection::new(way, IoMode::Direct, 1 << 20, BUDGET_NS, |_| false);
        while let Some(trial) = selection.next_trial() {
            selection.on_trial(trial, trial.bytes, trial.bytes * 1_000_000_000 / BPS);
        }
        selection.verdict().expect("a selection that ran has a winner")
    }

    fn mount(id: u64) -> Mount {
        Mount { fs_type: "ext4".into(), device: "/dev/x".into(), options: "rw".into(), id }
    }

    /// A job on one disk with a winner that another job's selection found.
    fn job(memory: &Memory, way: Way) -> (Chooser, u64) {
        let (chooser, key, verdict) = (memory.chooser(), key_of(&mount(1)), verdict(way));
        remember(&memory.0, &Line { key, verdict: verdict.clone(), measured_s: wall_s() });
        chooser.decided(7, key, &mount(1), &verdict, "known from an earlier measurement");
        (chooser, key)
    }

    #[test]
    fn a_winner_whose_rate_fell_is_forgotten_and_only_that_one() {
        let memory = Memory::new("stale");
        for way in [Way::Read, Way::Write] {
            let other = key_of(&mount(2));
            remember(&memory.0, &Line { key: other, verdict: verdict(way), measured_s: wall_s() });
            let (chooser, key) = job(&memory, way);
            let seconds = |seconds: u64| seconds * 1_000_000_000;
            chooser.settle(way, 4 * BPS, seconds(7), true);
            assert!(memory.has(key, way), "more than half of the measured rate");
            chooser.settle(way, 4 * BPS, seconds(60), false);
            assert!(memory.has(key, way), "something else was the limit");
            chooser.settle(way, BPS / 2, seconds(60), true);
            assert!(memory.has(key, way), "too little was moved to say");
            chooser.settle(way, 4 * BPS, seconds(9), true);
            assert!(!memory.has(key, way), "less than half of the measured rate");
            assert!(memory.has(other, way), "what is known of another file system stays");
        }
    }

    #[test]
    fn what_was_found_long_ago_is_measured_again_by_a_job_that_is_large_enough() {
        let memory = Memory::new("aged");
        let place = std::env::temp_dir().join(format!("longhaul-aged-{}", std::process::id()));
        std::fs::create_dir_all(&place).expect("a folder");
        let folder = Dir::open(place.as_os_str().as_encoded_bytes()).expect("it is there");
        let (ground, way) = (Ground::Folder(&folder), Way::Write);
        let mount = ground.mount().expect("it is on something");
        let key = key_of(&mount);
        let found = |age_s: u64, bytes: u64| {
            let measured_s = wall_s() - age_s;
            remember(&memory.0, &Line { key, verdict: verdict(way), measured_s });
            let chooser = memory.chooser();
            chooser.announce(way, bytes, 7, &ground);
            let text = std::fs::read_to_string(&memory.0).unwrap_or_default();
            let line = checked::decode::<Line>(&text).into_iter().find(|it| it.key == key).expect("never forgotten");
            let how = chooser.take_news().first().map(|it| it.reason.clone()).unwrap_or_default();
            (line.measured_s > measured_s, how.contains("known from an earlier measurement"))
        };
        let month_s = 31 * 24 * 3600;
        // In memory nothing is measured, nor where there is too little room.
        let is_memory = matches!(mount.fs_type.as_str(), "tmpfs" | "ramfs");
        let has_room = folder.space().is_ok_and(|it| it.free_bytes >= trial::WRITTEN_BYTES * ROOM_FACTOR);
        if !is_memory {
            assert_eq!(found(60, RACE_JOB_BYTES_MIN), (false, true), "it is fresh");
            assert_eq!(
                found(month_s, LARGE_FILE_BYTES_MIN),
                (false, true),
                "better than nothing for a job that does not measure"
            );
            assert_eq!(found(month_s, RACE_JOB_BYTES_MIN), (has_room, !has_room), "measured again");
        }
        std::fs::remove_dir_all(&place).expect("it is ours");
    }

    #[test]
    fn of_two_disks_nobody_can_say_whose_rate_fell() {
        let memory = Memory::new("two");
        let (chooser, key) = job(&memory, Way::Read);
        let (other, verdict) = (key_of(&mount(2)), verdict(Way::Read));
        remember(&memory.0, &Line { key: other, verdict: verdict.clone(), measured_s: wall_s() });
        chooser.decided(8, other, &mount(2), &verdict, "measured now");
        chooser.settle(Way::Read, 4 * BPS, 60_000_000_000, true);
        // Neither, whichever of them is looked at first.
        assert!(memory.has(key, Way::Read) && memory.has(other, Way::Read));
    }

    #[test]
    fn pages_that_a_job_brought_in_and_left_are_what_it_displaced() {
        let path = std::env::temp_dir().join(format!("longhaul-displaced-{}", std::process::id()));
        let bytes = LARGE_FILE_BYTES_MIN;
        std::fs::write(&path, vec![1; bytes as usize]).unwrap();
        let file = File::open(&path).unwrap();
        let cached = || sys::fs::cached(&file, 0, 0).map_or(0, |it| it.bytes);
        let chooser = Chooser::new(IoModes::default());
        // What was in the cache before is not the job's; a small file is not looked at.
        let before = cached();
        chooser.cached_before(1, bytes, &file);
        std::io::copy(&mut File::open(&path).unwrap(), &mut io::sink()).unwrap();
        chooser.cached_after(1, bytes, &file);
        assert!(
            chooser.displaced_bytes() <= cached().saturating_sub(before) + (1 << 20),
            "{}",
            chooser.displaced_bytes()
        );
        // A part is new: all that stays of it.
        let displaced = chooser.displaced_bytes();
        chooser.cached_after(2, bytes, &file);
        assert!((chooser.displaced_bytes() - displaced).abs_diff(cached()) <= 1 << 20, "{}", chooser.displaced_bytes());
        chooser.cached_after(3, bytes - 1, &file);
        assert!((chooser.displaced_bytes() - displaced).abs_diff(cached()) <= 1 << 20, "{}", chooser.displaced_bytes());
        std::fs::remove_file(&path).unwrap();
    }
}
