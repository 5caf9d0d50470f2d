//! What a worker is told and what it tells.
//!
//! For: the border between job ends (job drivers) and workers: plain data through mailboxes.
//! In and out: `Cmd` to a worker, `Event` from it.
//! Invariants: `Expect` for an entry reaches a worker before any chunk of it can (it is sent before the `Want`); events of a rail come
//! before its `RailDead`.
//! Absent on purpose: payload.
//!
//! Every job is one line of this table:
//!
//! | job | source | seal | rail | open | sink | after |
//! |---|---|---|---|---|---|---|
//! | send | file | yes | tcp, udp → | | | |
//! | receive | | | → tcp, udp | yes | file | verify, commit |
//! | bench net | zero | – | tcp | – | null | |
//! | bench disk, crypto | file or zero | yes or – | – | – | null | |

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};

use proto::error::Breach;
use proto::flow::FlowConfig;
use proto::manifest::{Entry, EntryId};
use proto::negotiate::Cipher;
use proto::rate::{Policy, TrainSeen};
use proto::send::{Assignment, Unit};
use proto::wire::chunk::ChunkKind;
use proto::wire::control::{ChunkId, Corrupt, Digest, DigestKind, FaultKind};

use crate::meter::{Meter, PairMeter};
use crate::platform::Platform;
use crate::worker::bound::Bound;
use crate::worker::stages::Snapshot;

/// Names a job within this process.
pub type JobNo = u32;

/// How payload stands on a rail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cover {
    /// Encrypted and authenticated by the piece.
    Sealed,
    /// In clear; each piece has a tag.
    Tagged,
    /// In clear; the digest in the sealed header vouches.
    Hashed,
    /// In clear, and the source's bytes are not looked at: the header is sealed, nothing vouches for what follows it.
    Bare,
}

impl Cover {
    /// How a chunk of this kind stands: a pack's header has no digest, so nothing but tags can vouch for a pack in clear.
    #[must_use]
    pub const fn of(self, kind: ChunkKind) -> Cover {
        match (self, kind) {
            (Cover::Hashed | Cover::Bare, ChunkKind::Pack) => Cover::Tagged,
            (cover, _) => cover,
        }
    }
}

/// What both ends agreed that a worker must know.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// Bytes per chunk.
    pub chunk_bytes: u32,
    /// Which digest.
    pub digest: DigestKind,
    /// Which AEAD.
    pub cipher: Cipher,
    /// How payload stands on the wire.
    pub cover: Cover,
    /// Small files may be renamed as soon as they are written.
    pub publish_small: bool,
}

/// Which end of the job a worker serves.
pub enum Role<P: Platform> {
    /// Reads here.
    Send(Arc<P::Source>),
    /// Writes here.
    Recv(Arc<P::Sink>),
}

impl<P: Platform> std::fmt::Debug for Role<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Role::Send(_) => "Send",
            Role::Recv(_) => "Recv",
        })
    }
}

/// A chunk whose header alone crosses the rail, with the file in which the sending end would have read it: open already, and where it stands. Of a
/// source of several volumes only the sending end knows that place.
#[derive(Debug)]
pub struct Offered<F> {
    /// The chunk, as its header names it.
    pub chunk: ChunkId,
    /// Its entry: with it the file is closed.
    pub entry: EntryId,
    /// The length of that, as the scan found it.
    pub file_bytes: u64,
    /// Where its bytes are read.
    pub file: F,
}

/// Chunks that may be offered to a worker and not taken up yet: all that a rail has outstanding. Beyond, they travel.
pub const OFFERS_MAX: usize = proto::send::CHUNKS_IN_FLIGHT_MAX;

/// What the writing end of a job has where the source is at hand: both ends are workers of this process.
#[derive(Debug)]
pub struct Beside<P: Platform> {
    /// What this worker is to read: each offer comes before its header.
    pub offers: Receiver<Offered<P::File>>,
    /// To the other end's job driver.
    pub told: EventQueue,
}

/// Are chunks read where they are written?
#[derive(Debug)]
pub enum InPlace<P: Platform> {
    /// No: they travel.
    Never,
    /// The sending end: those that it would read without waiting are, by the worker of the other end that has their rail. Of its workers each has
    /// one of these; a rail is with that of its number, modulo their count.
    Send(Vec<SyncSender<Offered<P::File>>>),
    /// The end that does it.
    Recv(Beside<P>),
}

/// A job as a worker sees it.
#[derive(Debug)]
pub struct JobPart<P: Platform> {
    /// Source or sink.
    pub role: Role<P>,
    /// What was agreed.
    pub terms: Terms,
    /// Where events go.
    pub events: EventQueue,
    /// The bound of all its rails together.
    pub bound: Arc<Bound>,
    /// Are chunks read where they are written?
    pub in_place: InPlace<P>,
}

/// Secrets and place of one rail.
#[derive(Debug, Clone)]
pub struct RailKey {
    /// From the session's exporter, for this rail number alone.
    pub secret: [u8; 32],
    /// The job's id and the rail's number: associated data of every header.
    pub place: [u8; 18],
}

/// What a datagram rail is made from; both ends have the same, but for `rate` in `flow`, which is the sender's.
#[derive(Debug, Clone)]
pub struct Path {
    /// 24 bits in every packet, by which a listening socket finds the rail.
    pub tag: u32,
    /// Sizes, units and rate. `unit_bytes_max` is set by the worker.
    pub flow: FlowConfig,
    /// The rail ends as a fault when something is on its way and nothing was heard for so long.
    pub silence_ns: u64,
    /// Where the rail tells of itself.
    pub meter: Arc<Meter>,
    /// The sender's: what a train showed of the path just before.
    pub seen: Option<TrainSeen>,
    /// Bytes of the whole job, as far as known when the rail began; 0: not known. Where a job is short, less of it is risked at a time.
    pub job_bytes: u64,
}

/// What of a datagram rail's rate may change while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RailPace {
    /// Not faster than this by itself, B/s; 0: as fast as it goes. (`JobPart::bound` holds in sum.)
    pub target: u64,
    /// Not slower than this, B/s; 0: no bound.
    pub min: u64,
    /// The claim against others.
    pub policy: Policy,
}

/// Told to a worker.
#[derive(Debug)]
pub enum Cmd<P: Platform> {
    /// A job begins.
    Open { job: JobNo, part: JobPart<P> },
    /// A job ends: its rails are cut, its bufs come home, then `Event::Closed`.
    Close { job: JobNo },
    /// A connected, greeted rail.
    RailUp { job: JobNo, rail: u16, socket: P::Socket, key: RailKey },
    /// A datagram rail: a socket that reaches the peer and no one else, and what both ends agreed for it.
    PacketsUp { job: JobNo, rail: u16, socket: P::Socket, key: RailKey, path: Path },
    /// A queue pair: a connection that was agreed on; where it tells of itself.
    PairUp { job: JobNo, rail: u16, connection: P::Connection, key: RailKey, meter: Arc<PairMeter> },
    /// The datagram rail goes on over this socket: an end has another address.
    RailMoved { job: JobNo, rail: u16, socket: P::Socket },
    /// Cut this rail.
    RailDown { job: JobNo, rail: u16 },
    /// Take no new frames (or take them again): too much waits for the destination's disk.
    Backpressure { job: JobNo, on: bool },
    /// How each datagram rail of the job on this worker goes from now on.
    Pace { job: JobNo, pace: RailPace },
    /// Send this chunk.
    Send { job: JobNo, assignment: Assignment },
    /// Chunks of these entries may come.
    Expect { job: JobNo, entries: Vec<Arc<Entry>> },
    /// These will not come any more.
    Forget { job: JobNo, entries: Vec<EntryId> },
    /// End the thread.
    Stop,
}

/// Why a rail ended.
#[derive(Debug)]
pub enum RailEnd {
    /// The other side closed it between frames.
    Closed,
    /// The other side broke the protocol.
    Breach(Breach),
    /// The network failed.
    Fault(io::Error),
    /// We cut it.
    Cut,
}

/// One entry that failed in a worker.
#[derive(Debug)]
pub struct EntryError {
    /// The entry's number within this job.
    pub entry: EntryId,
    /// What the report counts it as.
    pub kind: FaultKind,
    /// The system's number, 0 if none.
    pub errno: i32,
    /// Which step.
    pub step: &'static str,
}

/// Told by a worker.
#[derive(Debug)]
pub enum Event {
    /// Sender: a range was read and hashed.
    Read { chunk: ChunkId, entry: EntryId, offset: u64, digest: Digest },
    /// Sender: a range went whose bytes were not all there; what is missing went as zeros, so its entry fails.
    SourceChanged { chunk: ChunkId, error: EntryError },
    /// Sender: a pack was read; these digests, these failed.
    PackRead { chunk: ChunkId, digests: Vec<(EntryId, Digest)>, failed: Vec<EntryError> },
    /// Sender: the rail took the whole frame. `bytes` on the wire, `payload` of them the user's.
    Sent { rail: u16, chunk: ChunkId, bytes: u64, payload: u64 },
    /// Sender: the chunk cannot be sent, its entry failed.
    Dropped { rail: u16, chunk: ChunkId, error: EntryError },
    /// Receiver: a range is in the file system.
    Landed { chunk: ChunkId, entry: EntryId, offset: u64, bytes: u32, digest: Digest },
    /// Receiver: a pack's files are in the file system, but for those that failed. `payload` is its length, index included.
    PackLanded { chunk: ChunkId, payload: u32, files: Vec<(EntryId, u64, Digest)>, failed: Vec<EntryError> },
    /// Receiver: the chunk came for an entry that is no longer wanted.
    Unexpected { chunk: ChunkId, entry: EntryId },
    /// Receiver: the chunk was corrupt and thrown away; `entry` is `EntryId::MAX` for a pack.
    Corrupt { chunk: ChunkId, entry: EntryId, corrupt: Corrupt },
    /// Receiver: the chunk could not be written.
    WriteFailed { chunk: ChunkId, offset: u64, error: EntryError },
    /// A rail is gone; everything it brought has been told.
    RailDead { rail: u16, end: RailEnd },
    /// The worker has let go of the job.
    Closed { books: Box<Snapshot> },
    /// The worker panicked, and has nothing of the job any more.
    Panicked { why: String },
}

/// Events on their way to a job's end, through a bounded mailbox: never blocks, keeps the order, wakes once per batch.
#[derive(Debug)]
pub struct EventQueue {
    to: SyncSender<Event>,
    late: std::collections::VecDeque<Event>,
    /// Wakes the job's end (an eventfd).
    wake: Option<sys::event::Event>,
    wake_is_due: bool,
}

impl EventQueue {
    /// Events go into `to`; `wake` wakes whoever reads them.
    #[must_use]
    pub fn new(to: SyncSender<Event>, wake: Option<sys::event::Event>) -> Self {
        EventQueue { to, late: std::collections::VecDeque::new(), wake, wake_is_due: false }
    }

    /// Queues one event, or keeps it until there is room.
    pub fn push(&mut self, event: Event) {
        self.wake_is_due = true;
        if self.late.is_empty() {
            if let Err(TrySendError::Full(event)) = self.to.try_send(event) {
                self.late.push_back(event);
            }
        } else {
            self.late.push_back(event);
        }
    }

    /// Once per iteration of the loop: moves late events on and wakes the job's end. Returns whether some are still late.
    pub fn flush(&mut self) -> bool {
        while let Some(event) = self.late.pop_front() {
            match self.to.try_send(event) {
                Ok(()) => {}
                Err(TrySendError::Full(event)) => {
                    self.late.push_front(event);
                    break;
                }
                Err(TrySendError::Disconnected(_)) => {
                    self.late.clear();
                }
            }
        }
        if std::mem::take(&mut self.wake_is_due)
            && let Some(wake) = &self.wake
        {
            wake.signal();
        }
        !self.late.is_empty()
    }
}

/// The entry under which a chunk is reported when it fails as a whole.
#[must_use]
pub fn first_entry(unit: &Unit) -> EntryId {
    match unit {
        Unit::Range { entry, .. } => entry.id,
        Unit::Pack { entries } => entries[0].id,
    }
}

/// What an error number means for the entry it hit.
#[must_use]
pub fn fault_kind(error: &io::Error, at_source: bool) -> FaultKind {
    use io::ErrorKind as K;
    match error.kind() {
        K::NotFound if at_source => FaultKind::Vanished,
        K::PermissionDenied | K::ReadOnlyFilesystem => FaultKind::Denied,
        K::StorageFull | K::QuotaExceeded | K::FileTooLarge => FaultKind::Full,
        K::InvalidFilename
        | K::InvalidInput
        | K::Unsupported
        | K::IsADirectory
        | K::NotADirectory
        | K::AlreadyExists
        | K::DirectoryNotEmpty => FaultKind::Unsupported,
        K::ResourceBusy => FaultKind::InUse,
        _ if error.raw_os_error() == Some(5) => FaultKind::Io,
        _ => FaultKind::Other,
    }
}
