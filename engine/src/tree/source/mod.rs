//! Names at the source.
//!
//! For: opening what the manifest names, and seeing whether it is still that.
//! In and out: entries in; open files, contents, verdicts out.
//! Invariants: no link is followed below the user's own path; a read never goes past what the manifest says.
//! Absent on purpose: walking (scan.rs).

pub mod joined; // a striped file read as one
pub mod watched; // files that may be written while they are read

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use proto::manifest::{Aspects, Entry};
use proto::negotiate::StorageLook;
use proto::storage::Way;
use proto::striped::Whole;
use sys::fs::{Dir, Kind, Stat, Writers};

use crate::platform::{Holes, SourceTree};
use crate::tree::beside_of;
use crate::tree::commit::JOURNAL_FILE_BYTES_MIN;
use crate::tree::facts::{folder_of, holes_of, is_cached, is_same, is_untouched};
use crate::tree::handle::Handle;
use crate::tree::io_mode::{Chooser, LARGE_FILE_BYTES_MIN, look};
use crate::tree::scan::filter::Filter;
use crate::tree::scan::include::IncludeList;
use crate::tree::scan::overlap::Own;
pub use crate::tree::scan::root::Root;
use crate::tree::source::watched::{Cloned, Snapshot, Watched, is_recent};

/// The source folder of one job: opens what the scan named and tells whether it changed since.
#[derive(Debug)]
pub struct LinuxSource {
    roots: HashMap<Box<[u8]>, Root>,
    wanted: Aspects,
    numeric: bool,
    chooser: Arc<Chooser>,
    filter: Option<Arc<Filter>>,
    picks: Option<Arc<IncludeList>>,
    own: Option<Arc<Own>>,
    snapshot: Snapshot,
    watched: Watched,
}

impl LinuxSource {
    /// Sources by the first component they are announced under; the empty component stands for all.
    #[must_use]
    pub fn new(roots: HashMap<Box<[u8]>, Root>, chooser: Arc<Chooser>) -> Self {
        let (snapshot, watched) = (Snapshot::Auto, Watched::default());
        LinuxSource {
            roots,
            wanted: Aspects::ALL,
            numeric: false,
            chooser,
            filter: None,
            picks: None,
            own: None,
            snapshot,
            watched,
        }
    }

    /// What is read of entries beside content, mode and time; `numeric`: owners are not told by name.
    #[must_use]
    pub fn keeping(mut self, wanted: Aspects, numeric: bool) -> Self {
        (self.wanted, self.numeric) = (wanted, numeric);
        self
    }

    /// Leaves out what the rules match below each source, and takes only what is picked, if anything is: with one source, a folder.
    #[must_use]
    pub fn choosing(mut self, filter: Option<Arc<Filter>>, picks: Option<Arc<IncludeList>>) -> Self {
        (self.filter, self.picks) = (filter, picks);
        self
    }

    /// Leaves out the job's own destination, should it stand in the source.
    #[must_use]
    pub fn avoiding(mut self, own: Option<Arc<Own>>) -> Self {
        self.own = own;
        self
    }

    /// See `avoiding`.
    pub(crate) fn own(&self) -> Option<Arc<Own>> {
        self.own.clone()
    }

    /// Which files are read from a clone.
    #[must_use]
    pub fn from_snapshots(mut self, snapshot: Snapshot) -> Self {
        self.snapshot = snapshot;
        self
    }

    /// Files that were read from a clone; and files that somebody had open for writing where a write through a mapping is not seen.
    #[must_use]
    pub fn written_meanwhile(&self) -> (u64, u64) {
        self.watched.counts()
    }

    /// The clone to read from in the file's place, if there is one.
    fn watch(&self, entry: &Entry, file: &File) -> io::Result<Option<Cloned>> {
        if entry.meta.striped {
            return Ok(None); // its pieces are ours, and their map has a digest of each chunk
        }
        let unnamed = || {
            let (dir, rel) = self.locate(&entry.path)?;
            dir.open_dir(folder_of(&rel))?.create_unnamed()
        };
        self.watched.begin(entry, file, self.snapshot, unnamed, |clone| self.handle(entry, clone))
    }

    fn handle(&self, entry: &Entry, file: File) -> Handle {
        let bytes = entry.bytes();
        let (candidate, behind) = self.chooser.candidate(Way::Read, &file, bytes, || is_cached(&file, bytes));
        Handle::by(file, candidate.mode, bytes, behind, &self.chooser.refused).by_candidate(candidate)
    }

    /// See `choosing`.
    pub(crate) fn chosen(&self) -> (Option<Arc<Filter>>, Option<Arc<IncludeList>>) {
        (self.filter.clone(), self.picks.clone())
    }

    /// See `keeping`.
    pub(crate) fn wanted(&self) -> Aspects {
        self.wanted
    }

    /// See `keeping`.
    pub(crate) fn is_numeric(&self) -> bool {
        self.numeric
    }

    /// Who chooses its I/O modes.
    #[must_use]
    pub fn chooser(&self) -> &Arc<Chooser> {
        &self.chooser
    }

    /// What its file system gave in an earlier measurement, if it is one large file that is not in memory already.
    pub(super) fn remembered(&self) -> Option<(u64, u64)> {
        let mut roots = self.roots.values();
        let (Some(root), None) = (roots.next(), roots.next()) else { return None };
        let stat = root.parent.stat(&root.name).ok().filter(|stat| stat.kind == Kind::File)?;
        let file = root.parent.open_file(&root.name, false).ok()?;
        if stat.bytes < LARGE_FILE_BYTES_MIN || is_cached(&file, stat.bytes) {
            return None;
        }
        self.chooser.remembered(Way::Read, &file)
    }

    /// What its storage gives now, if it is one file or folder; some tens of milliseconds. `None`: it is a few small files.
    pub(super) fn look(&self) -> Option<StorageLook> {
        let mut roots = self.roots.values();
        match (roots.next(), roots.next()) {
            (Some(root), None) => look::read(&self.chooser, root),
            _ => Some(StorageLook::default()),
        }
    }

    /// The roots, for the scan.
    pub fn roots(&self) -> impl Iterator<Item = (&[u8], &Root)> {
        self.roots.iter().map(|(top, root)| (&**top, root))
    }

    /// The file of an entry with its facts, for plain calls.
    pub(crate) fn open_stat(&self, entry: &Entry) -> io::Result<(File, Stat)> {
        let (dir, rel) = self.locate(&entry.path)?;
        if entry.bytes() > JOURNAL_FILE_BYTES_MIN && dir.stat(&beside_of(&rel, Whole::of(entry), "map")).is_ok() {
            return Err(io::ErrorKind::Unsupported.into()); // a piece of a striped file: it is read chunk by chunk
        }
        dir.open_file_stat(&rel)
    }

    /// What stands of an entry here: the file, or this volume's piece of it.
    fn open_plain(&self, entry: &Entry) -> io::Result<File> {
        let (dir, rel) = self.locate(&entry.path)?;
        let piece = entry.meta.striped.then(|| beside_of(&rel, Whole::of(entry), "chunks"));
        match piece.map(|piece| dir.open_file(&piece, false)) {
            // Where its name stands, that is the piece.
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => dir.open_file(&rel, false),
            Some(piece) => piece,
            None => dir.open_file(&rel, false),
        }
    }

    fn locate(&self, path: &[u8]) -> io::Result<(&Dir, Vec<u8>)> {
        let (top, rest) = match path.iter().position(|&byte| byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (path, &path[path.len()..]),
        };
        let (root, rest) = match (self.roots.get(top), self.roots.get(&[][..])) {
            (Some(root), _) if !top.is_empty() => (root, rest),
            (_, Some(root)) => (root, path),
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok((&root.parent, proto::manifest::join(&root.name, rest).into_vec()))
    }
}

impl SourceTree for LinuxSource {
    type File = Handle;

    fn open(&self, entry: &Entry, _volume: usize) -> io::Result<Handle> {
        let file = self.open_plain(entry)?;
        self.chooser.cached_before(entry.id, entry.bytes(), &file);
        Ok(self.watch(entry, &file)?.map_or_else(|| self.handle(entry, file), |clone| clone.handle))
    }

    fn map_of(&self, entry: &Entry) -> io::Result<Vec<u8>> {
        let (dir, rel) = self.locate(&entry.path)?;
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut dir.open_file(&beside_of(&rel, Whole::of(entry), "map"), false)?, &mut bytes)?;
        Ok(bytes)
    }

    fn read_small(&self, entry: &Entry, into: &mut [u8]) -> io::Result<Option<()>> {
        let (file, before) = self.open_stat(entry)?;
        if !is_same(&before, entry) {
            return Ok(None);
        }
        if is_recent(&before) && sys::fs::writers_of(&file) == Writers::Some {
            self.watched.settle(&file, Writers::Some);
        }
        match file.read_exact_at(into, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let after = sys::fs::stat_file(&file)?;
        Ok((is_same(&after, entry) && is_untouched(&before, &after)).then_some(()))
    }

    fn expect_small(&self, entry: &Entry) {
        // Its name was looked at by the scan, its number is in memory: opening it waits for nothing but where that is long ago.
        let _ = self.open_plain(entry).and_then(|file| sys::fs::begin_read(&file, entry.bytes()));
    }

    fn read_at(&self, entry: &Entry, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        // What is compared and what is sent of it later is one version.
        let file = self.open_plain(entry)?;
        match self.watch(entry, &file)? {
            Some(clone) => sys::fs::read_at_full(&clone.plain, into, offset),
            None => sys::fs::read_at_full(&file, into, offset),
        }
    }

    fn is_unchanged(&self, entry: &Entry) -> io::Result<bool> {
        let (dir, rel) = self.locate(&entry.path)?;
        if entry.bytes() >= LARGE_FILE_BYTES_MIN
            && let Ok(file) = dir.open_file(&rel, false)
        {
            self.chooser.cached_after(entry.id, entry.bytes(), &file);
        }
        self.watched.is_one_version(entry, || dir.stat(&rel))
    }

    fn resumes(&self, entry: &Entry) {
        self.watched.resumes(entry.id);
    }

    fn done(&self, entry: &Entry) {
        self.watched.done(entry.id);
    }

    fn holes(&self, entry: &Entry, offset: u64) -> io::Result<Holes> {
        let (dir, rel) = self.locate(&entry.path)?;
        let file = dir.open_file(&rel, false)?;
        match self.watch(entry, &file)? {
            Some(clone) => holes_of(&clone.plain, offset),
            None => holes_of(&file, offset),
        }
    }
}
