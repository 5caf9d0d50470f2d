//! An open file and the mode that moves its bytes.
//!
//! For: ops on files: what each mode does to them before the kernel gets them, and after.
//! In and out: a file and an `IoMode` in; calls by that mode out.
//! Invariants: a mode that the kernel or the file system refuses, at the first op or at any later one, gives way to `Buffered` for this
//! file, and the refused op is made again: the bytes are the same by every mode.
//! Absent on purpose: choosing (`tree/io_mode/mod.rs`), waiting (the ring).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use proto::storage::IoMode;
use proto::storage::selection::Candidate;
use sys::fs::Map;

/// Written bytes after which `Early` has the kernel write them out: at 1 GB/s a disk is told every 8 ms, and at 8 MiB an ext4 extent is
/// still written in one go.
const EARLY_BYTES: u64 = 8 << 20;
/// What was read through the cache is let go of in such steps, one step behind: read-ahead and slower workers are still in the last one.
const BEHIND_BYTES: u64 = 32 << 20;
/// O_DIRECT is used where these borders are enough, which the mode keeps anyway (`source::file::SECTOR`, `sys::mem`).
const DIRECT_ALIGN_MAX: u32 = 4096;

/// An open file, and how its bytes are moved. Clones share it.
#[derive(Debug, Clone)]
pub struct Handle {
    pub(crate) file: Arc<File>,
    pub(crate) by: Arc<By>,
    pub(crate) turns: Option<Turns>,
    /// An op moves no more than this; the worker asks for the rest.
    pub(crate) io_bytes: usize,
    /// Reads at once that pay; 0: not known.
    pub(crate) depth: usize,
}

/// I/O modes that a file system refused once: files opened later do not try them. Without this a file that is opened anew for each attempt
/// would be refused for ever. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Refused(Arc<Said>);

#[derive(Debug, Default)]
struct Said {
    /// I/O modes that were refused, bit by bit.
    modes: AtomicU8,
    /// The error number when the kernel would not lock a buf; -1: reported.
    fixed: AtomicI32,
}

impl Refused {
    fn put(&self, mode: IoMode) {
        self.0.modes.fetch_or(1 << mode as u8, Ordering::Relaxed);
    }

    /// Was this one refused?
    #[must_use]
    pub fn has(&self, mode: IoMode) -> bool {
        self.0.modes.load(Ordering::Relaxed) & (1 << mode as u8) != 0
    }

    /// The kernel would not be told of a buf for good.
    pub(crate) fn put_fixed(&self, error: &io::Error) {
        const EIO: i32 = 5;
        let errno = error.raw_os_error().unwrap_or(EIO);
        let _ = self.0.fixed.compare_exchange(0, errno, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// What it said, once in a job.
    pub(crate) fn take_fixed(&self) -> Option<io::Error> {
        let errno = self.0.fixed.load(Ordering::Relaxed);
        if errno <= 0 {
            return None;
        }
        self.0.fixed.store(-1, Ordering::Relaxed);
        Some(io::Error::from_raw_os_error(errno))
    }
}

/// How the bytes of one open file are moved.
#[derive(Debug)]
pub(crate) struct By {
    mode: AtomicU8,
    /// Calls are made on the worker's thread.
    at_once: bool,
    map: Option<Map>,
    pub(crate) refused: Refused,
    /// Bytes written since the kernel was last told to write them out.
    unsent: AtomicU64,
    /// The file's pages are to leave the cache behind us.
    behind: Option<Behind>,
}

/// Lets go of cached pages behind a reader.
#[derive(Debug)]
struct Behind {
    file: Arc<File>,
    /// The step that was read last.
    step: AtomicU64,
}

impl Drop for By {
    fn drop(&mut self) {
        // Pages that are mapped are not let go of.
        self.map = None;
        if let Some(behind) = &self.behind {
            let _ = sys::fs::drop_cache(&behind.file, 0, 0);
        }
    }
}

/// Whose turn it is to write a file that lives in memory. The kernel lets one thread at a time write such a file and has the others
/// spin on a core that the writer's peer needs: they sleep here instead. tmpfs to tmpfs, two workers, one file, in clear: 1.37 instead of
/// 1.71 CPU s/GB and 10.6 instead of 8.8 Gb/s (medians of 6 alternating rounds, 2 cores, Linux 6.18, 2026-11).
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns {
    locks: Arc<[Mutex<()>; TURNS]>,
    at: usize,
}

/// Files that can be written at the same time without ever sharing a lock; more of them share by chance.
const TURNS: usize = 16;

impl Turns {
    /// The turns of one file among a job's.
    pub(crate) fn of(&self, entry: u64) -> Turns {
        Turns { locks: self.locks.clone(), at: (entry % TURNS as u64) as usize }
    }
}

impl Handle {
    /// A file that is moved through the page cache. Calls of files that live in memory never wait: they are made at once, on the
    /// worker's thread.
    #[must_use]
    pub fn new(file: File) -> Handle {
        Handle::by(file, IoMode::Buffered, 0, false, &Refused::default())
    }

    /// A file that is moved by this mode, or by `Buffered` where it cannot be. `map_bytes`: what `Mmap` maps. `behind`: what is read
    /// through the cache leaves it again.
    #[must_use]
    pub fn by(file: File, mode: IoMode, map_bytes: u64, behind: bool, refused: &Refused) -> Handle {
        let in_memory = sys::fs::is_memory_file_system(&file);
        let mut mode = if refused.has(mode) { IoMode::Buffered } else { mode };
        let mut map = None;
        match mode {
            IoMode::Direct if !set_direct(&file) => {
                refused.put(mode);
                mode = IoMode::Buffered;
            }
            IoMode::Mmap => {
                map = Map::new(&file, map_bytes).ok();
                if map.is_none() {
                    mode = IoMode::Buffered;
                }
            }
            _ => {}
        }
        let file = Arc::new(file);
        let behind = (behind && mode.fills_cache() && !in_memory)
            .then(|| Behind { file: Arc::clone(&file), step: AtomicU64::new(0) });
        let at_once = in_memory || map.is_some();
        let by = By {
            mode: AtomicU8::new(mode as u8),
            at_once,
            map,
            refused: refused.clone(),
            unsent: AtomicU64::new(0),
            behind,
        };
        Handle { file, by: Arc::new(by), turns: None, io_bytes: usize::MAX, depth: 0 }
    }

    /// The same, by operations of this candidate's size and number.
    pub(crate) fn by_candidate(self, candidate: Candidate) -> Handle {
        Handle { io_bytes: candidate.io_bytes as usize, depth: usize::from(candidate.depth), ..self }
    }

    /// The same, for a file that several workers of this process write.
    pub(crate) fn taking_turns(self, turns: Turns) -> Handle {
        Handle { turns: Some(turns), ..self }
    }

    /// The mode that moves it now.
    #[must_use]
    pub fn mode(&self) -> IoMode {
        IoMode::by_number(self.by.mode.load(Ordering::Relaxed)).unwrap_or(IoMode::Buffered)
    }

    /// Are its calls made on the worker's thread?
    pub(crate) fn is_at_once(&self) -> bool {
        self.by.at_once
    }

    /// An op made by `engine` came back refused: does the file go on in another way? Then the op is to be made again.
    pub(crate) fn gives_way(&self, mode: IoMode, error: &io::Error) -> bool {
        // A file system that takes the flag and not the op says EINVAL to O_DIRECT, EOPNOTSUPP to a flag of RWF_.
        const EINVAL: i32 = 22;
        const EOPNOTSUPP: i32 = 95;
        if !matches!(mode, IoMode::Direct | IoMode::Dontcache)
            || !matches!(error.raw_os_error(), Some(EINVAL | EOPNOTSUPP))
        {
            return false;
        }
        self.by.refused.put(mode);
        if self.by.mode.swap(IoMode::Buffered as u8, Ordering::Relaxed) == IoMode::Direct as u8 {
            let _ = sys::fs::set_direct(&self.file, false);
        }
        true
    }

    /// Before a write of so many bytes.
    pub(crate) fn on_write(&self, mode: IoMode, bytes: usize) {
        if mode == IoMode::Early && self.by.unsent.fetch_add(bytes as u64, Ordering::Relaxed) >= EARLY_BYTES {
            self.by.unsent.store(0, Ordering::Relaxed);
            // It promises nothing and may fail: the flush of the part does and tells.
            let _ = sys::fs::start_write_out(&self.file, 0, 0);
        }
    }

    /// After a read at `offset`.
    pub(crate) fn on_read(&self, offset: u64) {
        let Some(behind) = &self.by.behind else { return };
        let step = offset / BEHIND_BYTES;
        if behind.step.fetch_max(step, Ordering::Relaxed) < step && step >= 2 {
            let _ = sys::fs::drop_cache(&self.file, (step - 2) * BEHIND_BYTES, BEHIND_BYTES);
        }
    }

    pub(crate) fn read_at_once(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.by.map {
            Some(map) => sys::fs::read_mapped(map, &self.file, into, offset),
            None => self.file.read_at(into, offset),
        }
    }

    pub(crate) fn write_at_once(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        // Nothing is guarded but time, so a poisoned lock is as good as any.
        let _turn = self.turns.as_ref().map(|turns| turns.locks[turns.at].lock());
        self.file.write_at(from, offset)
    }

    /// The same, if nobody is at it. `None`: another worker is.
    pub(crate) fn try_write_at_once(&self, from: &[u8], offset: u64) -> Option<io::Result<usize>> {
        let turn = self.turns.as_ref().map(|turns| turns.locks[turns.at].try_lock());
        if matches!(turn, Some(Err(TryLockError::WouldBlock))) {
            return None;
        }
        Some(self.file.write_at(from, offset))
    }
}

/// Bypasses the page cache from now on, if the file can be moved in the pieces that we make.
fn set_direct(file: &File) -> bool {
    let fits = sys::fs::direct_align(file)
        .is_none_or(|it| (1..=DIRECT_ALIGN_MAX).contains(&it.memory) && it.offset <= DIRECT_ALIGN_MAX);
    fits && sys::fs::set_direct(file, true).is_ok()
}
