//! What the loop and the job ends need from the names at the source.
//!
//! For: running the same worker and job ends over a file system, the simulator and benchmarks.
//! In and out: entries of the manifest in, open files and bytes out.
//! Invariants: calls may block for a moment, for they touch cached metadata; none is made for each chunk but `open`.
//! Absent on purpose: walking (scan), order of work (proto).

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use proto::manifest::Entry;
use proto::striped::Join;

/// The source end's names. Calls may block for a moment: they touch cached metadata.
pub trait SourceTree: Debug + Send + Sync + 'static {
    /// An open file.
    type File;
    /// Opens a file for chunk reads; of one that is striped by chunk, what stands of it on this volume.
    fn open(&self, entry: &Entry, volume: usize) -> io::Result<Self::File>;
    /// How many disks are read side by side.
    fn volumes(&self) -> usize {
        1
    }
    /// What this volume says of its chunks of a striped file: the bytes of its map. Errors: NotFound, it has none.
    fn map_of(&self, _entry: &Entry) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
    /// Where the chunks of a striped file stand. Errors: what is missing of it.
    fn join(&self, _entry: &Entry) -> io::Result<Arc<Join>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Reads a whole small file; `Ok(None)`: it is not what the manifest says any more (torn).
    fn read_small(&self, entry: &Entry, into: &mut [u8]) -> io::Result<Option<()>>;
    /// A small file that is read soon: a disk may begin with it, beside others. Nobody waits, and an error is told when it is read.
    fn expect_small(&self, _entry: &Entry) {}
    /// Fills `into` from a file, to compare; less only at its end.
    fn read_at(&self, _entry: &Entry, _offset: u64, _into: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Is the file still what the manifest says (size, times, and no write since it was first opened for this job)?
    fn is_unchanged(&self, entry: &Entry) -> io::Result<bool>;
    /// Some of this file is at the other end already, from another time: what is read of it now must be the version that the manifest names.
    fn resumes(&self, _entry: &Entry) {}
    /// The entry is resolved, well or not: nothing more is asked of it.
    fn done(&self, _entry: &Entry) {}
    /// The next holes of a file from `offset` on. A tree that cannot know has none.
    fn holes(&self, _entry: &Entry, _offset: u64) -> io::Result<Holes> {
        Ok(Holes { ranges: Vec::new(), until: u64::MAX })
    }
}

/// Where a file has no bytes, as far as it was looked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holes {
    /// First byte and end, ascending.
    pub ranges: Vec<(u64, u64)>,
    /// Up to here there are no others; `u64::MAX`: up to the end.
    pub until: u64,
}

/// Holes that are looked up at once: so few that neither end has much to remember of what lies between them, and nobody waits.
pub const HOLES_AT_ONCE: usize = 16;
