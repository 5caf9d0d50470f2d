//! N sources as one: what stands on a set of volumes is one tree.
//!
//! For: jobs whose source is a set of volumes; a set of one is every other job.
//! In and out: the calls of a `SourceTree`; each goes to the volume that the scan found the entry on, or that has the chunk.
//! Invariants: an entry is read where it was found, and nowhere else; a file that is striped by chunk is read where its maps say, which
//! must know a place for each chunk; joins in memory are at most those of `JOINS_MIN` files, or of two for each volume.
//! Absent on purpose: walking (tree/scan/mod.rs), order of work (proto::send interleaves files of different volumes).

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use proto::manifest::{Entry, EntryId};
use proto::striped::{Join, JoinFault, Whole};

use crate::platform::{HOLES_AT_ONCE, Holes, SourceTree};

/// Joins that are kept, at least: a file is sent by several workers, and several files are sent side by side.
const JOINS_MIN: usize = 16;

/// A set of source volumes as one tree; `S` is the source of one volume.
#[derive(Debug)]
pub struct Volumes<S> {
    trees: Vec<S>,
    /// Volumes that are not there, with the reason.
    missing: Vec<(Box<[u8]>, io::Error)>,
    /// Large files are striped by chunk.
    by_chunk: bool,
    /// Of the files that were asked for last.
    joins: Mutex<VecDeque<(EntryId, Arc<Join>)>>,
}

impl<S: SourceTree> From<S> for Volumes<S> {
    fn from(tree: S) -> Self {
        Volumes::new(vec![tree])
    }
}

impl<S: SourceTree> Volumes<S> {
    /// A set of these.
    ///
    /// # Panics
    /// Of none.
    #[must_use]
    pub fn new(trees: Vec<S>) -> Self {
        assert!(!trees.is_empty(), "a set has a volume");
        Volumes { trees, missing: Vec::new(), by_chunk: false, joins: Mutex::default() }
    }

    /// The same, with volumes that are not there: the scan tells of them.
    #[must_use]
    pub fn without(self, missing: Vec<(Box<[u8]>, io::Error)>) -> Self {
        Volumes { missing, ..self }
    }

    /// The same, of a set that is striped by chunk.
    #[must_use]
    pub fn striped(self, by_chunk: bool) -> Self {
        Volumes { by_chunk, ..self }
    }

    /// Are large files striped by chunk?
    #[must_use]
    pub fn is_striped(&self) -> bool {
        self.by_chunk
    }

    /// Volumes that are not there, by name.
    pub fn missing(&self) -> impl Iterator<Item = (Box<[u8]>, io::Error)> {
        self.missing.iter().map(|(name, error)| (name.clone(), same(error)))
    }

    /// Each of them made into another.
    #[must_use]
    pub fn map(self, make: impl FnMut(S) -> S) -> Self {
        Volumes { trees: self.trees.into_iter().map(make).collect(), ..self }
    }

    /// The trees, in the order in which they were named.
    #[must_use]
    pub fn trees(&self) -> &[S] {
        &self.trees
    }

    /// The tree on which an entry was found.
    pub(crate) fn of(&self, entry: &Entry) -> io::Result<&S> {
        self.trees.get(usize::from(entry.meta.volume)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn same(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

impl<S: SourceTree> SourceTree for Volumes<S> {
    type File = S::File;

    fn open(&self, entry: &Entry, volume: usize) -> io::Result<Self::File> {
        if entry.meta.striped {
            return self.trees.get(volume).ok_or(io::ErrorKind::NotFound)?.open(entry, volume);
        }
        self.of(entry)?.open(entry, volume)
    }

    fn volumes(&self) -> usize {
        self.trees.len()
    }

    fn join(&self, entry: &Entry) -> io::Result<Arc<Join>> {
        let mut joins = self.joins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = joins.iter().position(|(id, _)| *id == entry.id) {
            let found = joins.remove(at).expect("just found");
            let join = Arc::clone(&found.1);
            joins.push_back(found);
            return Ok(join);
        }
        let mut maps = Vec::new();
        for (index, tree) in (0..).zip(&self.trees) {
            match tree.map_of(entry) {
                Ok(map) => maps.push((index, map)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let join = Join::of(Whole::of(entry), &maps).map_err(|fault| {
            let kind = match fault {
                JoinFault::Missing { .. } => io::ErrorKind::NotFound,
                _ => io::ErrorKind::InvalidData,
            };
            io::Error::new(kind, fault.to_string())
        })?;
        let join = Arc::new(join);
        if joins.len() >= JOINS_MIN.max(2 * self.trees.len()) {
            joins.pop_front();
        }
        joins.push_back((entry.id, Arc::clone(&join)));
        Ok(join)
    }

    fn read_small(&self, entry: &Entry, into: &mut [u8]) -> io::Result<Option<()>> {
        self.of(entry)?.read_small(entry, into)
    }

    fn expect_small(&self, entry: &Entry) {
        if let Ok(tree) = self.of(entry) {
            tree.expect_small(entry);
        }
    }

    fn read_at(&self, entry: &Entry, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        if entry.meta.striped {
            // One call is of one chunk, which stands on one volume.
            let volume = self.join(entry)?.volume_at(offset).ok_or(io::ErrorKind::UnexpectedEof)?;
            return self.trees[usize::from(volume)].read_at(entry, offset, into);
        }
        self.of(entry)?.read_at(entry, offset, into)
    }

    fn is_unchanged(&self, entry: &Entry) -> io::Result<bool> {
        self.of(entry)?.is_unchanged(entry)
    }

    fn resumes(&self, entry: &Entry) {
        if let Ok(tree) = self.of(entry) {
            tree.resumes(entry);
        }
    }

    fn done(&self, entry: &Entry) {
        if let Ok(tree) = self.of(entry) {
            tree.done(entry);
        }
    }

    fn holes(&self, entry: &Entry, offset: u64) -> io::Result<Holes> {
        if entry.meta.striped {
            let (ranges, until) = self.join(entry)?.holes(offset, HOLES_AT_ONCE);
            return Ok(Holes { ranges, until });
        }
        self.of(entry)?.holes(entry, offset)
    }
}
