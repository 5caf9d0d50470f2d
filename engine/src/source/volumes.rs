//! N sources as one: what stands on a set of volumes is one tree.
//!
//! For: jobs whose source is a set of volumes; a set of one is every other job.
//! In and out: the calls of a `SourceTree`; each goes to the volume that the scan found the entry on.
//! Invariants: an entry is read where it was found, and nowhere else.
//! Absent on purpose: walking (linux/scan.rs), order of work (proto::send interleaves files of different volumes).

use std::io;

use proto::manifest::Entry;

use crate::platform::{Holes, SourceTree};

/// See the module.
#[derive(Debug)]
pub struct Volumes<S> {
    trees: Vec<S>,
    /// Volumes that are not there, with the reason.
    missing: Vec<(Box<[u8]>, io::Error)>,
}

impl<S: SourceTree> From<S> for Volumes<S> {
    fn from(tree: S) -> Self {
        Volumes { trees: vec![tree], missing: Vec::new() }
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
        Volumes { trees, missing: Vec::new() }
    }

    /// The same, with volumes that are not there: the scan tells of them.
    #[must_use]
    pub fn without(self, missing: Vec<(Box<[u8]>, io::Error)>) -> Self {
        Volumes { missing, ..self }
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

    fn open(&self, entry: &Entry) -> io::Result<Self::File> {
        self.of(entry)?.open(entry)
    }

    fn read_small(&self, entry: &Entry, into: &mut [u8]) -> io::Result<Option<()>> {
        self.of(entry)?.read_small(entry, into)
    }

    fn read_at(&self, entry: &Entry, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.of(entry)?.read_at(entry, offset, into)
    }

    fn is_unchanged(&self, entry: &Entry) -> io::Result<bool> {
        self.of(entry)?.is_unchanged(entry)
    }

    fn holes(&self, entry: &Entry, offset: u64) -> io::Result<Holes> {
        self.of(entry)?.holes(entry, offset)
    }
}
