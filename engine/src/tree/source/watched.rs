//! Source files that are read while somebody may write them.
//!
//! For: a file is sent as it was at one moment, or not at all.
//! In and out: a file that is about to be read in, a clone of it to read from in its place where that is possible and asked for; later, whether
//! it was written meanwhile.
//! Invariants: a clone may be of a later moment than the scan's, with the time that the scan saw, but only where no byte of an earlier version
//! is at the other end, which would make a mixture; what the kernel says of the file is noted before its first byte or hole is looked at, and compared after the last; the time of
//! change of the inode counts, which nobody can set; a clone has no name, stands in the file's own folder, and goes with its last reader.
//! Absent on purpose: small files (read by one call between two looks: `source.rs`), snapshots of whole file systems, which need their owner.
//! Source: docs/design/020-torn-sources-and-retries.md.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use proto::manifest::{Entry, EntryId};
use sys::fs::{Stat, Writers};

use crate::tree::facts::{is_same, is_untouched};
use crate::tree::handle::Handle;
use crate::tree::io_mode::LARGE_FILE_BYTES_MIN;

/// `--snapshot`: which files are read from a clone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Snapshot {
    /// Large ones that somebody has open for writing, or wrote a moment ago, where the file system can clone.
    #[default]
    Auto,
    /// All that are not small; one that cannot be cloned fails.
    Always,
    /// None.
    Never,
}

/// Pages that were stored to through a mapping are written out after 30 s or so (vm.dirty_expire_centisecs), and the next store is noted. Of a
/// file that did not change for twenty times as long, no store can be hidden.
const RECENT: Duration = Duration::from_secs(600);
/// Who changed a file so shortly before it is read may well do it again.
const JUST_NOW: Duration = Duration::from_secs(2);
/// Clones held at once: each is an open file.
const CLONES_MAX: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::tree) struct Watched {
    files: Mutex<HashMap<EntryId, Seen>>,
    resumed: Mutex<HashSet<EntryId>>,
    clones: AtomicU64,
    unseen: AtomicU64,
}

/// A file as it was before it was read.
#[derive(Debug)]
struct Seen {
    stat: Stat,
    clone: Option<Cloned>,
}

/// A clone, opened twice: what one of them is told (O_DIRECT) does not concern the other.
#[derive(Debug, Clone)]
pub(in crate::tree) struct Cloned {
    /// For plain calls.
    pub(in crate::tree) plain: Arc<File>,
    /// For chunks.
    pub(in crate::tree) handle: Handle,
}

impl Watched {
    /// Before a file's content is looked at, by whomever: notes how it is. The clone to read from, if there is one; `make` makes it readable,
    /// `unnamed` a file to clone into.
    pub(in crate::tree) fn begin(
        &self,
        entry: &Entry,
        file: &File,
        snapshot: Snapshot,
        unnamed: impl Fn() -> io::Result<File>,
        make: impl FnOnce(File) -> Handle,
    ) -> io::Result<Option<Cloned>> {
        if let Some(seen) = self.lock().get(&entry.id) {
            return Ok(seen.clone.clone());
        }
        // Not under the lock: a clone and what is written out may wait for a disk. Of two workers that are here at once, one is believed.
        let stat = sys::fs::stat_file(file)?;
        let (is_large, is_recent) = (entry.bytes() >= LARGE_FILE_BYTES_MIN, is_recent(&stat));
        let writers = if is_large || is_recent { sys::fs::writers_of(file) } else { Writers::None };
        let may_change = writers == Writers::Some || (writers == Writers::Unknown && is_recent);
        // Who opens, writes and closes again and again is not seen by a look, but by what came of it.
        let just_changed = is_younger(&stat, JUST_NOW) || !is_same(&stat, entry);
        let wanted = match snapshot {
            Snapshot::Auto => is_large && (may_change || just_changed) && self.held() < CLONES_MAX,
            Snapshot::Always => true,
            Snapshot::Never => false,
        };
        let of = self.resumed().contains(&entry.id).then_some(&stat);
        let clone = if wanted { cloned(entry, file, of, unnamed) } else { Err(io::ErrorKind::Unsupported.into()) };
        let clone = match clone {
            Ok(clone) => {
                self.clones.fetch_add(1, Ordering::Relaxed);
                let [plain, chunks] = clone;
                Some(Cloned { plain: Arc::new(plain), handle: make(chunks) })
            }
            // A file that changed is told as such when it was read.
            Err(error) if snapshot == Snapshot::Always && error.raw_os_error().is_some() => return Err(error),
            Err(_) => None,
        };
        if clone.is_none() && may_change {
            self.settle(file, writers);
        }
        Ok(self.lock().entry(entry.id).or_insert(Seen { stat, clone }).clone.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<EntryId, Seen>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resumed(&self) -> MutexGuard<'_, HashSet<EntryId>> {
        self.resumed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See `SourceTree::resumes`.
    pub(in crate::tree) fn resumes(&self, id: EntryId) {
        self.resumed().insert(id);
    }

    fn held(&self) -> usize {
        self.lock().values().filter(|seen| seen.clone.is_some()).count()
    }

    /// Has what was stored through a mapping written out, so that the next store is noted; where that cannot be, it is counted.
    pub(in crate::tree) fn settle(&self, file: &File, writers: Writers) {
        let settled = sys::fs::settle(file).is_ok() && !sys::fs::is_memory_file_system(file);
        if !settled && writers == Writers::Some {
            self.unseen.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// After its last byte: is what was read one version of the file? `now`: what its name leads to.
    pub(in crate::tree) fn is_one_version(
        &self,
        entry: &Entry,
        now: impl FnOnce() -> io::Result<Stat>,
    ) -> io::Result<bool> {
        let before = match self.lock().get(&entry.id) {
            Some(Seen { clone: Some(_), .. }) => return Ok(true),
            Some(seen) => Some(seen.stat),
            None => None,
        };
        let now = now()?;
        Ok(is_same(&now, entry) && before.is_none_or(|before| is_untouched(&before, &now)))
    }

    pub(in crate::tree) fn done(&self, id: EntryId) {
        self.lock().remove(&id);
        self.resumed().remove(&id);
    }

    /// Files read from a clone; files that somebody had open for writing where writes through a mapping cannot be seen.
    pub(in crate::tree) fn counts(&self) -> (u64, u64) {
        (self.clones.load(Ordering::Relaxed), self.unseen.load(Ordering::Relaxed))
    }
}

/// Did the file change lately, by its own word? A clock that was set back makes it recent.
pub(in crate::tree) fn is_recent(stat: &Stat) -> bool {
    is_younger(stat, RECENT)
}

fn is_younger(stat: &Stat, age: Duration) -> bool {
    let changed = u64::try_from(stat.ctime_s).map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    changed.is_ok_and(|changed| changed.elapsed().map_or(true, |it| it < age))
}

/// A clone of the file: as it is now, or, `of` this version, as it was when this was noted. Errors: the kernel's; without a number, it is another
/// file than the manifest names.
fn cloned(
    entry: &Entry,
    file: &File,
    of: Option<&Stat>,
    unnamed: impl Fn() -> io::Result<File>,
) -> io::Result<[File; 2]> {
    let other = || io::Error::from(io::ErrorKind::InvalidData);
    if of.is_some_and(|before| !is_same(before, entry)) {
        return Err(other());
    }
    let clone = unnamed()?;
    sys::fs::clone_content(file, &clone)?;
    if sys::fs::stat_file(&clone)?.bytes != entry.bytes() {
        return Err(other());
    }
    if let Some(before) = of
        && !is_untouched(before, &sys::fs::stat_file(file)?)
    {
        return Err(other());
    }
    let second = unnamed()?;
    sys::fs::clone_content(&clone, &second)?;
    Ok([clone, second])
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};

    use proto::manifest::EntryKind;

    use super::*;

    /// A file of a test's own, as a manifest has it.
    fn planted(name: &str, bytes: usize) -> (PathBuf, Entry) {
        let path = std::env::temp_dir().join(format!("longhaul-watched-{}-{name}", std::process::id()));
        std::fs::write(&path, vec![7; bytes]).expect("a file");
        let stat = sys::fs::stat_file(&File::open(&path).expect("it is there")).expect("an open file");
        let entry = Entry {
            id: 1,
            path: Box::default(),
            kind: EntryKind::File { bytes: bytes as u64 },
            mode: 0o600,
            mtime_s: stat.mtime_s,
            mtime_ns: stat.mtime_ns,
            meta: Default::default(),
        };
        (path, entry)
    }

    fn begin(watched: &Watched, entry: &Entry, path: &Path, snapshot: Snapshot) -> io::Result<Option<Cloned>> {
        let file = File::open(path).expect("it is there");
        watched.begin(entry, &file, snapshot, || Err(io::Error::from_raw_os_error(95)), Handle::new)
    }

    fn stat(path: &Path) -> io::Result<Stat> {
        sys::fs::stat_file(&File::open(path)?)
    }

    #[test]
    fn a_write_in_place_is_seen_although_the_time_was_set_back() {
        let (path, entry) = planted("ctime", 200_000);
        let watched = Watched::default();
        assert!(begin(&watched, &entry, &path, Snapshot::Auto).expect("opened").is_none());
        assert!(watched.is_one_version(&entry, || stat(&path)).expect("looked"), "nobody wrote");
        let file = OpenOptions::new().write(true).open(&path).expect("it is there");
        file.write_all_at(b"torn", 100_000).expect("written");
        sys::fs::set_file_meta(&file, None, Some((entry.mtime_s, entry.mtime_ns))).expect("its owner may");
        assert!(is_same(&stat(&path).expect("looked"), &entry), "length and time are those of the manifest");
        assert!(!watched.is_one_version(&entry, || stat(&path)).expect("looked"));
        // Another file under its name, of the same length and time, is not it either.
        watched.done(entry.id);
        assert!(begin(&watched, &entry, &path, Snapshot::Auto).expect("opened").is_none());
        let beside = path.with_extension("new");
        std::fs::copy(&path, &beside).expect("a copy");
        let copy = OpenOptions::new().write(true).open(&beside).expect("it is there");
        sys::fs::set_file_meta(&copy, None, Some((entry.mtime_s, entry.mtime_ns))).expect("its owner may");
        std::fs::rename(&beside, &path).expect("renamed");
        assert!(!watched.is_one_version(&entry, || stat(&path)).expect("looked"));
        std::fs::remove_file(path).expect("it is there");
    }

    #[test]
    fn what_is_to_be_cloned_and_cannot_be_fails_by_the_kernels_word() {
        let (path, entry) = planted("always", 200_000);
        let watched = Watched::default();
        let error = begin(&watched, &entry, &path, Snapshot::Always).expect_err("nothing to clone into");
        assert_eq!(error.raw_os_error(), Some(95));
        assert!(begin(&watched, &entry, &path, Snapshot::Never).expect("opened").is_none());
        assert_eq!(watched.counts().0, 0);
        std::fs::remove_file(path).expect("it is there");
    }
}
