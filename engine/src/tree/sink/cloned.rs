//! Files that share their blocks with the source's.
//!
//! For: local copies on one file system that can share (btrfs, XFS, bcachefs): no byte is written.
//! In and out: an entry and a way to make its part; the part as a clone.
//! Invariants: the source is the entry's file before and after; where sharing is impossible that is found out once, not for every file.
//! Absent on purpose: believing the clone: its digest is taken from what stands at the destination (machine::compare); copy_file_range, which
//! without sharing is a copy that has to be read again to be known (docs/design/009).

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use proto::manifest::Entry;

use crate::platform::Clones;
use crate::tree::Sources;
use crate::tree::facts::{ESTALE, is_same, is_untouched};

/// "Operation not supported" and "inappropriate ioctl": this file system does not share.
const NEVER: [i32; 2] = [95, 25];
/// Files of other file systems, or otherwise not to be shared, after which no more are tried.
const FAILED_MAX: u32 = 8;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::tree) struct Cloned {
    from: Option<(Arc<Sources>, Clones)>,
    failed: AtomicU32,
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Cloned {
    pub(in crate::tree) fn of(source: Arc<Sources>, clones: Clones) -> Cloned {
        Cloned { from: Some((source, clones)), ..Cloned::default() }
    }

    /// Is cloning worth trying?
    pub(in crate::tree) fn now(&self) -> Clones {
        match &self.from {
            Some((_, Clones::WherePossible)) if self.failed.load(Ordering::Relaxed) >= FAILED_MAX => Clones::Never,
            Some((_, clones)) => *clones,
            None => Clones::Never,
        }
    }

    /// Files made so, and their bytes.
    pub(in crate::tree) fn count(&self) -> (u64, u64) {
        (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// See `Cloning::clone_part`.
    pub(in crate::tree) fn make(&self, entry: &Entry, part: impl FnOnce() -> io::Result<File>) -> io::Result<()> {
        let Some((source, _)) = &self.from else { return Err(io::ErrorKind::Unsupported.into()) };
        let stale = || io::Error::from_raw_os_error(ESTALE);
        let (from, before) = source.of(entry)?.open_stat(entry)?;
        if !is_same(&before, entry) {
            return Err(stale());
        }
        if let Err(error) = sys::fs::clone_content(&from, &part()?) {
            let never = error.raw_os_error().is_some_and(|errno| NEVER.contains(&errno));
            self.failed.fetch_add(if never { FAILED_MAX } else { 1 }, Ordering::Relaxed);
            return Err(error);
        }
        let after = sys::fs::stat_file(&from)?;
        if !is_same(&after, entry) || !is_untouched(&before, &after) {
            return Err(stale());
        }
        self.failed.store(0, Ordering::Relaxed);
        self.files.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(entry.bytes(), Ordering::Relaxed);
        Ok(())
    }
}
