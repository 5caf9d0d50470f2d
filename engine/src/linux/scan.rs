//! Walking a source: entries in depth-first order, in batches.
//!
//! For: the manifest, streamed while data already moves.
//! In and out: the roots of a `LinuxSource` in; batches of entries and places that could not be looked at out.
//! Invariants: memory is one open folder per level, whatever their size; a folder's end comes after everything below it; links are not
//! followed; our own parts and journals are left out.
//! Absent on purpose: sending order beyond the walk's own (readdir order; sorting by extent belongs to the storage work).

use std::io;

use proto::manifest::{Entry, EntryKind, check_path, join};
use sys::fs::{Dir, Kind, List, Stat};

use crate::linux::is_ours;
use crate::linux::source::{LinuxSource, Root};

/// Entries per batch, at most.
const BATCH_ENTRIES: usize = 512;
/// Bytes of names per batch, at most: well below a control frame.
const BATCH_NAME_BYTES: usize = 96 << 10;

/// What a batch brings.
#[derive(Debug, Default)]
pub struct Batch {
    /// Found.
    pub entries: Vec<Entry>,
    /// Not to be looked at, with the reason.
    pub faults: Vec<(Box<[u8]>, io::Error)>,
}

struct Level {
    dir: Dir,
    list: List,
    path: Box<[u8]>,
    end: Entry,
}

/// A walk in progress.
pub struct Scan {
    roots: std::vec::IntoIter<(Box<[u8]>, Root)>,
    levels: Vec<Level>,
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan").field("depth", &self.levels.len()).finish_non_exhaustive()
    }
}

impl Scan {
    /// Walks all roots of a source.
    #[must_use]
    pub fn new(source: &LinuxSource) -> Self {
        let mut roots: Vec<(Box<[u8]>, Root)> = source.roots().map(|(top, root)| (top.into(), root.clone())).collect();
        roots.sort_by(|a, b| a.0.cmp(&b.0));
        Scan { roots: roots.into_iter(), levels: Vec::new() }
    }

    /// The next batch; None at the end.
    pub fn next_batch(&mut self) -> Option<Batch> {
        let mut batch = Batch::default();
        let mut name_bytes = 0;
        while batch.entries.len() < BATCH_ENTRIES && name_bytes < BATCH_NAME_BYTES {
            if !self.step(&mut batch) {
                return (!batch.entries.is_empty() || !batch.faults.is_empty()).then_some(batch);
            }
            name_bytes += batch.entries.last().map_or(0, |entry| entry.path.len());
        }
        Some(batch)
    }

    fn step(&mut self, batch: &mut Batch) -> bool {
        let Some(level) = self.levels.last_mut() else {
            let Some((top, root)) = self.roots.next() else { return false };
            self.look(&root.parent, &root.name, top, batch);
            return true;
        };
        match level.list.next() {
            None => {
                let level = self.levels.pop().expect("seen above");
                batch.entries.push(level.end);
            }
            Some(Err(error)) => {
                let level = self.levels.pop().expect("seen above");
                batch.faults.push((level.path, error));
                batch.entries.push(level.end);
            }
            Some(Ok(found)) if is_ours(&found.name) => {}
            Some(Ok(found)) => {
                let path = join(&level.path, &found.name);
                let dir = level.dir.clone();
                self.look(&dir, &found.name, path, batch);
            }
        }
        true
    }

    fn look(&mut self, dir: &Dir, name: &[u8], path: Box<[u8]>, batch: &mut Batch) {
        if check_path(&path).is_err() {
            batch.faults.push((path, io::ErrorKind::InvalidFilename.into()));
            return;
        }
        if let Err(error) = self.try_look(dir, name, &path, batch) {
            batch.faults.push((path, error));
        }
    }

    fn try_look(&mut self, dir: &Dir, name: &[u8], path: &[u8], batch: &mut Batch) -> io::Result<()> {
        let stat = if name.is_empty() { dir.stat_self()? } else { dir.stat(name)? };
        let kind = match stat.kind {
            Kind::File => EntryKind::File { bytes: stat.bytes },
            Kind::Link => EntryKind::Link { target: dir.read_link(name)?.into_boxed_slice() },
            Kind::Folder => EntryKind::Folder,
            _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "neither file, folder nor link")),
        };
        if kind == EntryKind::Folder {
            let own = if name.is_empty() { dir.clone() } else { dir.open_dir(name)? };
            let list = own.list()?;
            batch.entries.push(entry(path, kind, &stat));
            let end = entry(path, EntryKind::FolderEnd, &stat);
            self.levels.push(Level { dir: own, list, path: path.into(), end });
        } else {
            batch.entries.push(entry(path, kind, &stat));
        }
        Ok(())
    }
}

fn entry(path: &[u8], kind: EntryKind, stat: &Stat) -> Entry {
    let mode = stat.mode & 0o7777;
    Entry { id: 0, path: path.into(), kind, mode, mtime_s: stat.mtime_s, mtime_ns: stat.mtime_ns }
}
