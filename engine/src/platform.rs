//! The one generic: what the loop and the job ends need from a world.
//!
//! For: running the same worker and job ends on Linux (`linux.rs`) and in the simulator (`tests/sim`).
//! In and out: asynchronous reads, writes, sends and receives by token; the two trees' synchronous name calls.
//! Invariants: an op owns its memory until its `Done` gives it back; results may be short, the caller goes on.
//! Absent on purpose: retries, order, protocol.

use std::collections::HashSet;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use proto::manifest::{Aspects, Entry, EntryId};
use proto::packet::PACKET_OVERHEAD;
use proto::striped::{Join, Whole};
use proto::wire::control::{IdName, Rung};
use sys::mem::{Mem, Pool};
pub use sys::udp::{Arrived, Splicer};

/// One asynchronous step. `at` and `len` index into the memory's bytes.
#[derive(Debug)]
pub enum Op<F, S> {
    /// Fill memory from a file.
    Read { file: F, offset: u64, mem: Mem, at: usize, len: usize },
    /// Put memory into a file.
    Write { file: F, offset: u64, mem: Mem, at: usize, len: usize },
    /// Put memory on a rail. `lend`: the network may read the memory itself, also after the `Done`; it stays unchanged until the peer's
    /// word that it has it.
    Send { socket: S, mem: Mem, at: usize, len: usize, lend: bool },
    /// Put memory on a rail, and behind it `bytes` of a file that nobody reads here. Errors: EINVAL, EOPNOTSUPP: it cannot be done so, and nothing
    /// went. Less than both together: the file was shorter, and zeros went in its place.
    SendFile { socket: S, mem: Mem, at: usize, len: usize, file: F, offset: u64, bytes: usize },
    /// Fill memory from a rail.
    Recv { socket: S, mem: Mem, at: usize, len: usize },
    /// A datagram socket has something (or was cut). Comes back with no bytes and an empty `Mem::Small`.
    Readable { socket: S },
}

/// What became of an op.
#[derive(Debug)]
pub struct Done {
    /// The submitter's own number.
    pub token: u64,
    /// Bytes moved; 0 is the end of file or of the stream.
    pub result: io::Result<usize>,
    /// The memory, back.
    pub mem: Mem,
}

/// Where a test may flip bits; on Linux nothing happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// After the source was hashed, before it is sealed.
    SourceBuf,
    /// After the received chunk's CRC was taken, before its digest is.
    SinkBuf,
}

/// A world.
pub trait Platform {
    /// An open file; clones share it.
    type File: Clone + Debug;
    /// A connected rail; clones share it.
    type Socket: Clone + Debug;
    /// Where bytes come from.
    type Source: SourceTree<File = Self::File>;
    /// Where bytes go.
    type Sink: SinkTree<File = Self::File>;

    /// Monotonic nanoseconds.
    fn now_ns(&self) -> u64;
    /// Nanoseconds this thread has been running, for telling work from waiting.
    fn busy_ns(&self) -> u64;
    /// The bufs of this worker.
    fn pool(&mut self) -> &mut Pool;
    /// Queues an op.
    fn submit(&mut self, token: u64, op: Op<Self::File, Self::Socket>);
    /// Hands queued ops to the world without waiting.
    fn flush(&mut self);
    /// Hands over, then waits for a completion, a wake or the time; collects all completions there are.
    fn wait(&mut self, timeout_ns: u64, done: &mut Vec<Done>);
    /// Cuts a rail: its pending ops end soon.
    fn cut(&mut self, socket: &Self::Socket);
    /// Datagrams whose heads stand apart: packet `i` is `heads[i]` and the `i`-th `segment` bytes of `payload`, the last may have
    /// less. Returns how many went, from the front; `WouldBlock` for none. Never waits.
    fn send_burst(
        &mut self,
        _socket: &Self::Socket,
        _heads: &[[u8; PACKET_OVERHEAD]],
        _payload: &[u8],
        _segment: usize,
    ) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Datagrams that stand one after another, each `segment` bytes long, the last may be shorter; else as `send_burst`.
    fn send_sealed(&mut self, _socket: &Self::Socket, _bytes: &[u8], _segment: usize) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Memory from which the network reads this socket's bursts itself; the caller fills a slot again only when the receiver's word on what
    /// left from it has come. `None`: it cannot be had here.
    fn burst_slots(&mut self, _socket: &Self::Socket, _bytes: usize) -> Option<Splicer> {
        None
    }
    /// Datagrams that came together, one after another; `WouldBlock` when there are none. Never waits.
    fn recv_burst(&mut self, _socket: &Self::Socket, _into: &mut [u8]) -> io::Result<Arrived> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Do reads and writes of this file never wait? Then they are made piece by piece, between hashing and sealing, on warm cache.
    fn is_at_once(&self, _file: &Self::File) -> bool {
        false
    }
    /// How many reads of this file its file system likes to have at once, as far as that is known; 0: it is not.
    fn reads_ahead(&self, _file: &Self::File) -> usize {
        0
    }
    /// Reads such a file.
    fn read_at_once(&self, _file: &Self::File, _offset: u64, _into: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Writes such a file.
    fn write_at_once(&self, _file: &Self::File, _offset: u64, _from: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Bytes that devices read from bufs, or wrote into them, themselves, of all files so far.
    fn direct_bytes(&self) -> u64 {
        0
    }
    /// The memory node that this worker and its bufs are held on, if they are.
    fn node(&self) -> Option<u16> {
        None
    }
    /// Makes a rail ready to be lent memory. False: it has to be copied.
    fn lend_ready(&mut self, _socket: &Self::Socket) -> bool {
        false
    }
    /// Bytes sent that the peer's kernel has not acknowledged, of a rail that is lent memory.
    fn unacknowledged(&self, _socket: &Self::Socket) -> u64 {
        0
    }
    /// Breaks a rail off at once: what it was lent is read no more.
    fn abort(&mut self, _socket: &Self::Socket) {}
    /// Test hook, see `Harm`.
    fn harm(&mut self, _at: Harm, _bytes: &mut [u8]) {}
}

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
    /// Which.
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

/// The sink end's names.
pub trait SinkTree: Debug + Send + Sync + 'static {
    /// An open file.
    type File;
    /// How many disks work side by side: each has a committer of its own.
    fn volumes(&self) -> usize {
        1
    }
    /// Which of them an entry stands on, from `inspect` or its first byte on.
    fn volume_of(&self, _id: EntryId) -> usize {
        0
    }
    /// Does anything stand under this path?
    fn stands(&self, path: &[u8]) -> io::Result<bool>;
    /// Bytes that can still be written here, as far as anybody knows.
    fn room(&self) -> u64 {
        u64::MAX
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
    /// What is there? `keep`: the same size and time count as the same file. `dry`: look only, mend nothing, claim nothing. A part that is found is
    /// this job's alone from here on, until it is published or discarded, or the tree is dropped.
    fn inspect(&self, entry: &Entry, keep: bool, dry: bool) -> io::Result<Found>;
    /// Which job writes this file, if a call for it said EBUSY; empty: nobody knows.
    fn owner_of(&self, _entry: &Entry) -> String {
        String::new()
    }
    /// Nothing of this job is in flight any more: other jobs may have the parts that it did not publish.
    fn let_go(&self) {}
    /// Takes away what jobs that were killed left of a small file beside this name.
    fn sweep_left(&self, _path: &[u8]) {}
    /// Nothing is to be written of a file whose part was claimed by `inspect`: another job may have it.
    fn unclaim(&self, _entry: &Entry) {}
    /// Makes a folder, a link, a node, or one more name of a file; or sets what a folder carries, at its end.
    fn make(&self, entry: &Entry) -> io::Result<()>;
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
    /// Makes what is written as firm as asked, then appends these journal records, as firm. Two may append at a time.
    fn flush(&self, volume: usize, entry: &Entry, records: &[u8], firm: Firm) -> io::Result<()>;
    /// The last word of a job: what was made besides files (folders, links) is durable as well.
    fn settle(&self, rung: Rung) -> io::Result<()>;
    /// Brings whole parts to the rung and under their names. One result per entry.
    fn publish(&self, entries: &[Arc<Entry>], rung: Rung, results: &mut Vec<io::Result<()>>);
    /// Users and groups of the source by name.
    fn learn(&self, _names: &[IdName]) {}
    /// Puts this end's numbers of users and groups into an entry.
    fn localize(&self, _entry: &mut Entry) {}
    /// What of entries could not be kept since this was last asked.
    fn take_lost(&self, _into: &mut Vec<(EntryId, Aspects)>) {}
    /// Removes a part and its journal; of a striped file, on all volumes.
    fn discard(&self, entry: &Entry);
    /// The same on this volume, where the entry may stand on several.
    fn discard_on(&self, _volume: usize, entry: &Entry) {
        self.discard(entry);
    }
    /// The map of a striped file's piece on this volume. Errors: NotFound.
    fn map_of(&self, _entry: &Entry) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
    /// Takes the name from a striped file of which chunks are missing: from here on it is a part like those on other volumes.
    fn reopen(&self, _entry: &Entry) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Which striped file has its name here; `None`: what stands here, if anything, is whole on its own.
    fn striped_at(&self, _path: &[u8]) -> Option<Whole> {
        None
    }
    /// One more name for this volume's piece of a striped file, if it has one.
    fn add_piece(&self, _first: &[u8], _file: Whole, _path: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Removes the pieces of all versions that ever stood under this path, but of this one.
    fn sweep(&self, _path: &[u8], _but: Option<Whole>) {}
    /// Which this volume's piece of a striped version is that stands (`old`: the entry, with the length and time of that version). Errors:
    /// NotFound, it has none.
    fn sign_of_piece(&self, _old: &Entry) -> io::Result<Sign> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Fills `into` from that piece; less only at its end.
    fn read_piece(&self, _old: &Entry, _offset: u64, _into: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Makes this volume's piece of a new version, with these ranges (offset, bytes) of its piece of the old one.
    fn carry_piece(&self, _old: &Entry, _entry: &Entry, _ranges: &[(u64, u64)]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// The version that stands there, or one elsewhere with the same length and time; `None`: there is none.
    fn old(&self, _entry: &Entry) -> io::Result<Option<Old>> {
        Ok(None)
    }
    /// Fills `into` from that version; less only at its end.
    fn read_old(&self, _entry: &Entry, _offset: u64, _into: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Which volume has this byte of that version, and gets it where it is carried over.
    fn volume_of_old(&self, entry: &Entry, _offset: u64) -> usize {
        self.volume_of(entry.id)
    }
    /// Makes the part anew, and copies these ranges (offset, bytes) of that version into it. Errors: ESTALE, it is not the one of this
    /// sign any more, and the part is worth nothing.
    fn carry(&self, _entry: &Entry, _sign: Sign, _ranges: &[(u64, u64)]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// That version is the file: gives it mode and times. Errors: ESTALE.
    fn adopt(&self, _entry: &Entry, _sign: Sign) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Are parts made as clones?
    fn clones(&self) -> Clones {
        Clones::Never
    }
    /// Makes the part anew as a clone of the source's file. Errors: Unsupported, its blocks cannot be shared; ESTALE, it is not the file
    /// that the entry speaks of.
    fn clone_part(&self, _entry: &Entry) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// The next holes of the part from `offset` on. A tree that cannot know has none.
    fn part_holes(&self, _entry: &Entry, _offset: u64) -> io::Result<Holes> {
        Ok(Holes { ranges: Vec::new(), until: u64::MAX })
    }
    /// Fills `into` from the part, of a striped file from the one on this volume; less only at its end.
    fn read_part(&self, _volume: usize, _entry: &Entry, _offset: u64, _into: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// What stands in a folder beside these names (`end::compare::name_sign`) and our own files: paths, each with the number of entries
    /// from there on.
    fn extras(&self, _folder: &Entry, _names: &HashSet<u64>) -> io::Result<Vec<(Box<[u8]>, u64)>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Removes an entry with all below it, and gives its folder the time back that it had; how many entries went.
    fn remove(&self, _path: &[u8]) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
