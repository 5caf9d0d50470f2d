//! What the loop, the committer and the job ends need from the names at the destination.
//!
//! For: running the same worker and job ends over a file system, the simulator and benchmarks.
//! In and out: entries of the manifest in, open parts and what stands there out.
//! Invariants: one trait for each consumer, at most twelve methods each; what a tree cannot do it does not implement.
//! Absent on purpose: deciding when (machine), moving bytes (platform).

use std::collections::HashSet;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use proto::manifest::{Aspects, Entry, EntryId};
use proto::striped::Whole;
use proto::wire::control::{Durability, IdName, Unnamed};

use crate::tree::source_tree::Holes;

/// What stands at a file's place in the destination.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing that helps.
    Nothing,
    /// The same size and modification time: nothing to do.
    Same,
    /// Parts with the bytes of their journals, by volume: one, or of a striped file one for each volume that has chunks of it.
    Parts(Vec<(usize, Vec<u8>)>),
    /// Another job writes this file now, and has its part: who, as far as that is known.
    Busy(String),
}

/// Tells one version of a file from every other: changes with each write, with each rename over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sign(pub [u64; 6]);

/// An earlier version of a file at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Old {
    /// How long it is.
    pub bytes: u64,
    /// Tells this version from any later one of the same name.
    pub sign: Sign,
    /// It stands under another name: the file was renamed at the source.
    pub elsewhere: bool,
}

/// May files be made as clones of the source's, which share its blocks until one of both is written to?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Clones {
    /// No.
    #[default]
    Never,
    /// Where it is possible; else their bytes are copied.
    WherePossible,
    /// Yes; what cannot be cloned fails.
    Only,
}

/// How firmly a part stands before its journal says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Firm {
    /// In the file system: it outlives a kill.
    Written,
    /// On the disk, as far as the disk says so.
    Flushed,
    /// The names of part and journal too: once for a part, for after a power cut the records are of no use without.
    Named,
}

/// The error of a call that needs a capability which the tree does not have.
#[must_use]
pub fn unsupported() -> io::Error {
    io::ErrorKind::Unsupported.into()
}

/// What a tree can beyond what every tree can. A job asks for it once, when it begins, and keeps the answer; `None`: this tree cannot.
#[derive(Clone, Default)]
pub struct Capabilities {
    /// Removal of what the source does not have.
    pub prune: Option<Arc<dyn Prune>>,
    /// Reading of parts.
    pub read_back: Option<Arc<dyn ReadBack>>,
    /// Parts made as clones.
    pub cloning: Option<Arc<dyn Cloning>>,
    /// Use of the version of a file that stands there.
    pub previous: Option<Arc<dyn PreviousVersions>>,
    /// Owners and groups by name.
    pub owners: Option<Arc<dyn Owners>>,
    /// Parts claimed against other jobs.
    pub claims: Option<Arc<dyn PartClaims>>,
}

impl Debug for Capabilities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capabilities")
            .field("prune", &self.prune.is_some())
            .field("read_back", &self.read_back.is_some())
            .field("cloning", &self.cloning.is_some())
            .field("previous", &self.previous.is_some())
            .field("owners", &self.owners.is_some())
            .field("claims", &self.claims.is_some())
            .finish()
    }
}

/// The names at the destination: the sum of what every tree can, and what this one can beyond it.
pub trait SinkTree: VolumeSet + Parts + Publish + Debug + Send + Sync + 'static {
    /// What is there? `keep`: the same size and time count as the same file. `dry`: look only, mend nothing, claim nothing. A part that is found is
    /// this job's alone from here on, until it is published or discarded, or the tree is dropped.
    fn inspect(&self, entry: &Entry, keep: bool, dry: bool) -> io::Result<Found>;
    /// Makes a folder, a link, a node, or one more name of a file; or sets what a folder carries, at its end.
    fn make(&self, entry: &Entry) -> io::Result<()>;
    /// Removes a part and its journal; of a striped file, on all volumes.
    fn discard(&self, entry: &Entry);
    /// The same on this volume, where the entry may stand on several.
    fn discard_on(&self, _volume: usize, entry: &Entry) {
        self.discard(entry);
    }
    /// What this tree can beyond all that.
    fn capabilities(self: Arc<Self>) -> Capabilities {
        Capabilities::default()
    }
}

/// How bytes become durable and files visible: the work of the committer.
pub trait Publish {
    /// Makes what is written as firm as asked, then appends these journal records, as firm. Two may append at a time.
    fn flush(&self, volume: usize, entry: &Entry, records: &[u8], firm: Firm) -> io::Result<()>;
    /// The last word of a job: what was made besides files (folders, links) is durable as well.
    fn settle(&self, durability: Durability) -> io::Result<()>;
    /// Brings whole parts to the durability level and under their names. One result per entry.
    fn publish(&self, entries: &[Arc<Entry>], durability: Durability, results: &mut Vec<io::Result<()>>);
}

/// Parts: where the bytes of a file stand until it has its name.
pub trait Parts {
    /// An open file.
    type File;
    /// Takes up a part again: cuts its journal to the valid bytes, so that records can follow, and empties the ranges (offset, bytes)
    /// of the part that no record speaks of, so that what is missing reads as zeros.
    fn resume_part(&self, volume: usize, entry: &Entry, journal_bytes: usize, missing: &[(u64, u64)])
    -> io::Result<()>;
    /// Empties these ranges (offset, bytes) of the part, so that they read as zeros. Errors: NotFound, there is none.
    fn empty_part(&self, volume: usize, entry: &Entry, ranges: &[(u64, u64)]) -> io::Result<()>;
    /// Opens (or makes) the part for chunk writes; of a striped file, the one on this volume. Errors: EBUSY, another job writes this file.
    fn open_part(&self, volume: usize, entry: &Entry) -> io::Result<Self::File>;
    /// The same for reads and writes of any offset and length, where `open_part` opens for whole sectors.
    fn open_part_loose(&self, volume: usize, entry: &Entry) -> io::Result<Self::File> {
        self.open_part(volume, entry)
    }
    /// Was any part ever opened so, by any worker? Then chunks may stand in parts that never became whole. A tree that does not keep
    /// account says yes.
    fn was_loose(&self) -> bool {
        true
    }
    /// Writes a small file into its part, with its mode and times; publishes at once if asked.
    fn put_small(&self, entry: &Entry, content: &[u8], publish: bool) -> io::Result<()>;
}

/// One disk's pieces of striped files, as `volumes::Volumes` asks for them.
pub trait Striped {
    /// The map of a striped file's piece on this volume. Errors: NotFound.
    fn map_of(&self, entry: &Entry) -> io::Result<Vec<u8>>;
    /// Takes the name from a striped file of which chunks are missing: from here on it is a part like those on other volumes.
    fn reopen(&self, entry: &Entry) -> io::Result<()>;
    /// Which striped file has its name here; `None`: what stands here, if anything, is whole on its own.
    fn striped_at(&self, path: &[u8]) -> Option<Whole>;
    /// One more name for this volume's piece of a striped file, if it has one.
    fn add_piece(&self, first: &[u8], file: Whole, path: &[u8]) -> io::Result<()>;
    /// Removes the pieces of all versions that ever stood under this path, but of this one.
    fn sweep(&self, path: &[u8], but: Option<Whole>);
    /// Which this volume's piece of a striped version is that stands (`old`: the entry, with the length and time of that version). Errors:
    /// NotFound, it has none.
    fn sign_of_piece(&self, old: &Entry) -> io::Result<Sign>;
    /// Fills `into` from that piece; less only at its end.
    fn read_piece(&self, old: &Entry, offset: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Makes this volume's piece of a new version, with these ranges (offset, bytes) of its piece of the old one.
    fn carry_piece(&self, old: &Entry, entry: &Entry, ranges: &[(u64, u64)]) -> io::Result<()>;
}

/// One disk of a destination, as `volumes::Volumes` asks it.
pub trait Volume: SinkTree + Striped + PreviousVersions + ReadBack + Prune {
    /// Parts made as clones. `None`: this volume cannot.
    fn cloning(&self) -> Option<&dyn Cloning> {
        None
    }
    /// Owners and groups by name. `None`: this volume cannot.
    fn owners(&self) -> Option<&dyn Owners> {
        None
    }
    /// Parts claimed against other jobs. `None`: this volume cannot.
    fn claims(&self) -> Option<&dyn PartClaims> {
        None
    }
    /// Does anything stand under this path?
    fn stands(&self, path: &[u8]) -> io::Result<bool>;
    /// Bytes that can still be written here, as far as anybody knows.
    fn room(&self) -> u64 {
        u64::MAX
    }
    /// Takes away what jobs that were killed left of a small file beside this name.
    fn sweep_left(&self, _path: &[u8]) {}
    /// Nothing is to be written of a file whose part was claimed by `inspect`: another job may have it.
    fn unclaim(&self, _entry: &Entry) {}
}

/// Which disk of a destination has what. A destination of one disk implements nothing of it.
pub trait VolumeSet {
    /// How many disks work side by side: each has a committer of its own.
    fn volumes(&self) -> usize {
        1
    }
    /// Which of them an entry stands on, from `inspect` or its first byte on.
    fn volume_of(&self, _id: EntryId) -> usize {
        0
    }
    /// Is there a volume that wants this chunk of a striped file now? If not, it waits in its buf, and is given one as late as can be.
    fn has_turn(&self, _id: EntryId, _offset: u64) -> bool {
        true
    }
    /// The volume that is given this chunk of a striped file, whose bytes are there, on this memory node if that is known: the same until it has
    /// landed.
    fn place(&self, _entry: &Entry, _offset: u64, _bytes: u32, _node: Option<u16>) -> usize {
        0
    }
    /// So many bytes of it, from `offset` on, are in the file system of the volume that is returned.
    fn landed(&self, _id: EntryId, _offset: u64, _bytes: u64) -> usize {
        0
    }
    /// So many bytes of it are flushed there.
    fn flushed(&self, _volume: usize, _id: EntryId, _bytes: u64) {}
    /// A write of this entry at `offset` failed with this number.
    fn failed(&self, _id: EntryId, _offset: u64, _errno: i32) {}
    /// The entry is resolved: nothing more will be asked of it.
    fn forget(&self, _id: EntryId) {}
}

/// Parts that another job may want: one job has a part at a time.
pub trait PartClaims: Send + Sync {
    /// Which job writes this file, if a call for it said EBUSY; empty: nobody knows.
    fn owner_of(&self, entry: &Entry) -> String;
    /// Nothing of this job is in flight any more: other jobs may have the parts that it did not publish.
    fn let_go(&self);
}

/// Owners, groups and what of them cannot be set here.
pub trait Owners: Send + Sync {
    /// Users and groups of the source by name.
    fn learn(&self, names: &[IdName]);
    /// Names that were learnt and mean nobody here, where owners may be set.
    fn unnamed(&self) -> Unnamed;
    /// Puts this end's numbers of users and groups into an entry.
    fn localize(&self, entry: &mut Entry);
    /// Metadata of entries that was not preserved, since this was last asked.
    fn take_unpreserved(&self, into: &mut Vec<(EntryId, Aspects)>);
}

/// The version of a file that stands at the destination, to be compared and carried over.
pub trait PreviousVersions: Send + Sync {
    /// The version that stands there, or one elsewhere with the same length and time; `None`: there is none.
    fn previous_version(&self, entry: &Entry) -> io::Result<Option<Old>>;
    /// Fills `into` from that version; less only at its end.
    fn read_previous(&self, entry: &Entry, offset: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Which volume has this byte of that version, and gets it where it is carried over.
    fn volume_of_previous(&self, _entry: &Entry, _offset: u64) -> usize {
        0
    }
    /// Makes the part anew, and copies these ranges (offset, bytes) of that version into it. Errors: ESTALE, it is not the one of this
    /// sign any more, and the part is worth nothing.
    fn carry(&self, entry: &Entry, sign: Sign, ranges: &[(u64, u64)]) -> io::Result<()>;
    /// That version is the file: gives it mode and times. Errors: ESTALE.
    fn adopt(&self, entry: &Entry, sign: Sign) -> io::Result<()>;
}

/// Parts made as clones of the source's files.
pub trait Cloning: Send + Sync {
    /// Are parts made as clones now? It may end when the first one was refused.
    fn clones(&self) -> Clones;
    /// Makes the part anew as a clone of the source's file. Errors: Unsupported, its blocks cannot be shared; ESTALE, it is not the file
    /// that the entry speaks of.
    fn clone_part(&self, entry: &Entry) -> io::Result<()>;
}

/// Reading what stands in parts, to be compared with a journal or a source.
pub trait ReadBack: Send + Sync {
    /// The next holes of the part from `offset` on. A tree that cannot know has none.
    fn part_holes(&self, _entry: &Entry, _offset: u64) -> io::Result<Holes> {
        Ok(Holes { ranges: Vec::new(), until: u64::MAX })
    }
    /// Fills `into` from the part, of a striped file from the one on this volume; less only at its end.
    fn read_part(&self, volume: usize, entry: &Entry, offset: u64, into: &mut [u8]) -> io::Result<usize>;
}

/// A name in few bytes, for knowing what a folder has: 64 bits of BLAKE3. Two of 200,000 names share them once in 10^9 folders; then
/// something stays that could have been removed.
#[must_use]
pub fn name_sign(name: &[u8]) -> u64 {
    u64::from_le_bytes(*blake3::hash(name).as_bytes().first_chunk().expect("32 bytes have eight"))
}

/// Removing what the source does not have; for `--delete`, at the end of a job.
pub trait Prune: Send + Sync {
    /// What stands in a folder beside these names (`name_sign`) and our own files: paths, each with the number of entries
    /// from there on.
    fn extras(&self, folder: &Entry, names: &HashSet<u64>) -> io::Result<Vec<(Box<[u8]>, u64)>>;
    /// Removes an entry with all below it, and gives its folder the time back that it had; how many entries went.
    fn remove(&self, path: &[u8]) -> io::Result<u64>;
}
