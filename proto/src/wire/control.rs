//! Control frames: everything both ends say to each other that is not payload.
//!
//! For: greeting, negotiation, manifest, ledger feedback, books and receipts of one job.
//! In and out: a `Frame` to bytes and back; the session below adds a length before each.
//! Invariants: decoding never panics, never allocates more than the frame's own length asks for, and refuses trailing bytes.
//! Absent on purpose: the order of frames (send.rs, recv.rs), encryption (TLS below), the bytes themselves (encode.rs, decode.rs).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::books::Books;
use crate::layout::Layout;
use crate::manifest::{Aspects, Entry, EntryId};
pub use crate::negotiate::DigestKind;
use crate::negotiate::{NicCount, Offer, Plan, RequestedSettings, Resources};
use crate::wire::chunk::PACK_FILE_BYTES_MAX;
pub use crate::wire::chunk::{ChunkId, Digest, FILE_BYTES_MAX};
use crate::wire::request::RelayRequest;
pub use crate::wire::request::{Compare, Durability, RULES_BYTES_MAX, RULES_MAX, TEXT_BYTES_MAX};

/// Which way the bytes go, seen from the initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The initiator sends.
    Push,
    /// The initiator receives.
    Pull,
}

/// What the initiator wants: the first frame after the greeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Names the job on rails, in receipts, in logs. Both ends derive it from their session, so that neither chooses it.
    pub job: [u8; 16],
    /// The job of this client whose session was lost, and in whose place this one comes: that one ends first. Zeros: none.
    pub after: [u8; 16],
    /// Which way.
    pub direction: Direction,
    /// Push: where to put it, or the volumes of the destination. Pull: the sources, joined below `paths`. Bytes as the user gave them.
    pub paths: Vec<Box<[u8]>>,
    /// The destination is a set of volumes.
    pub layout: Option<Layout>,
    /// Pull: the sources are the volumes of one set, what stands on them is one tree.
    pub joined: bool,
    /// Several sources, a destination that ends in `/` or has no name of its own, or a set of volumes: sources go into a folder under their own
    /// names. Otherwise the destination is the name of the one source's copy; if a folder stands there, what is in a folder goes into it.
    pub into_folder: bool,
    /// Pull: the name a single source gets at the destination, one component; empty: its own. Push: the one that the entries said ahead have.
    pub top: Box<[u8]>,
    /// Files that stand at the destination with the same size and time are kept.
    pub keep: bool,
    /// Nothing is moved or made: only said what would be.
    pub dry: bool,
    /// Which files that stand at the destination are compared by content, chunk by chunk.
    pub compare: Compare,
    /// Entries at the destination that the source does not have are removed, if they are no more than so many; `None`: they stay.
    pub prune: Option<u64>,
    /// The durability level the user asked for.
    pub durability: Durability,
    /// What is to be kept of the entries.
    pub aspects: Aspects,
    /// Owners go by number; otherwise by name, where the receiver knows it.
    pub numeric: bool,
    /// Lines in gitignore's syntax: what they match is not in the source, and stays at the destination.
    pub rules: Vec<Box<str>>,
    /// Pull: the folders that entries are named below, so that a source which holds its own destination is found out. Push: none.
    pub places: Vec<Place>,
    /// Push: so many of the sender's frames follow at once, before the plan is known here: entries are named as if `Accept` had this frame's `top`.
    pub ahead: u8,
    /// What the initiator has.
    pub offer: Offer,
}

/// Frames that may follow `Open` before it is answered: names, entries and the end of the scan are three.
pub const AHEAD_FRAMES_MAX: u8 = 8;

/// Tells a folder from all others of its kernel to who sees that folder, and nothing to anybody else: BLAKE3 of the job, the kernel's boot and
/// the folder's device and number, cut.
pub type Place = [u8; 16];

/// A range of chunk indices of one file, end excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkRange {
    /// First index.
    pub first: u64,
    /// One past the last.
    pub end: u64,
}

/// The receiver's answer to a file entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    /// Same size and time are there already, with this digest if it is known.
    Keep { digest: Option<Digest> },
    /// All of it.
    All,
    /// A part is there: only these chunk ranges are missing. After `MissingSoFar`: these are missing, too.
    Missing { ranges: Vec<ChunkRange> },
    /// A part is there: these chunk ranges are missing in any case. The rest is being read back, and `Missing` follows with what of it
    /// does not stand. Never twice for a file.
    MissingSoFar { ranges: Vec<ChunkRange> },
    /// Another version stands there: `Have` frames will tell the digests of so many chunks, from the first on; then `Differ` is awaited,
    /// and this file's last `Want` follows. Never 0, and never twice for a file.
    Compare { chunks: u64 },
}

/// Why an entry could not be moved; the user's exit code and sentence come from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The source is gone.
    Vanished,
    /// The source changed while it was read.
    Torn,
    /// Permission denied, read-only file system.
    Denied,
    /// No space, quota.
    Full,
    /// Input/output error.
    Io,
    /// Digests differ again and again.
    Corrupt,
    /// The name or kind cannot stand at the destination.
    Unsupported,
    /// Something else; errno tells.
    Other,
    /// Another job writes the same file at the destination.
    InUse,
}

/// One entry that failed at one end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryFault {
    /// The entry that failed.
    pub entry: EntryId,
    /// The kind of failure.
    pub kind: FaultKind,
    /// The system's number, 0 if none.
    pub errno: i32,
    /// Which call or step failed, for the reader of the report; at most 200 bytes.
    pub step: String,
}

/// Where a chunk was found corrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Corrupt {
    /// The AEAD tag does not hold: flipped on the wire or by someone in between.
    Wire,
    /// Tag holds, CRC does not: flipped in the sender's memory after it was read.
    SourceMemory,
    /// CRC held after opening, the digest does not: flipped in the receiver's memory.
    SinkMemory,
}

/// One protocol element of the control session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// 1: First frame each way: versions spoken, and the build's name.
    Hello { version_min: u16, version: u16, agent: String },
    /// 2: Initiator: proof of a ticket's secret: HMAC-SHA256(secret, TLS exporter).
    Ticket { proof: [u8; 32] },
    /// 3: Initiator: what it wants.
    Open(Box<Open>),
    /// 4: Acceptor: what it has, and the plan; `choices` are recomputed, not sent.
    /// `top`: push, the name a single source gets at the destination; empty: see `into_folder`. `compare`: what of the comparing that was asked for
    /// is done. `places`: push, as in `Open`. `ahead`: what followed `Open` counts; else it was thrown away, and the sender says it again.
    Accept { offer: Box<Offer>, plan: Box<Plan>, top: Box<[u8]>, compare: Compare, places: Vec<Place>, ahead: bool },
    /// 5: Either: cannot go on. `code` is a Breach's or a refusal's wire code; the session ends.
    Refuse { code: u16, detail: String },
    /// 6: Sender: some lines of the manifest, ids ascending without gaps.
    Entries(Vec<Entry>),
    /// 7: Sender: the scan is over; totals of files and bytes, and how many places could not be scanned.
    ScanEnd { entries: u64, files: u64, bytes: u64, faults: u64 },
    /// 8: Receiver: answers to file entries.
    Wants(Vec<(EntryId, Want)>),
    /// 9: Receiver: these chunks are written (or received, by the durability level). Ranges of chunk ids.
    Acks(Vec<ChunkRange>),
    /// 10: Receiver: this chunk came corrupt; send it again.
    Nack { chunk: ChunkId, corrupt: Corrupt },
    /// 11: Sender: all chunks of the file were read, it did not change meanwhile, and this is its digest (None: some
    /// chunks were kept from an earlier run, so only the receiver can know).
    FileEnd { entry: EntryId, digest: Option<Digest> },
    /// 12: Receiver: entries are resolved at the job's durability level, with their digests (zero for folders and links).
    Committed(Vec<(EntryId, Digest)>),
    /// 13: Either: an entry failed.
    Faults(Vec<EntryFault>),
    /// 14: Either, about once a second: how it goes, for the other's screen and for the watchdog. `received`/`durable` are bytes.
    Pulse { received: u64, written: u64, durable: u64, books: Box<Books> },
    /// 15: Receiver → sender at the end: BLAKE3 of the receipt's body and the signature over it.
    Sign { body: Digest, signature: Box<[u8]> },
    /// 16: Last frame each way.
    Bye,
    /// 17: Client → daemon: run this job yourself against another daemon (remote to remote). `source` are paths below this
    /// daemon's root, `target` a whole address with a ticket, `volumes` the paths there of a set's further volumes, `request` how it is to be done.
    Relay { sources: Vec<Box<[u8]>>, target: String, volumes: Vec<Box<[u8]>>, request: Box<RelayRequest> },
    /// 18: Daemon → client during a relayed job: one JSON event line.
    Event { line: String },
    /// 19: Client → daemon: a ticket for one job of the owner of `key`: a push to exactly these paths, with my own rights and no more than is
    /// asked for here.
    AskTicket { key: [u8; 32], targets: Vec<Box<[u8]>>, compare: Compare, prune: Option<u64> },
    /// 20: Daemon → client: the ticket's secret, and the key and addresses by which the daemon can be reached.
    GiveTicket { secret: [u8; 16], key: [u8; 32], addresses: Vec<String> },
    /// 21: Initiator → acceptor while data flows: the number of rails wanted from now on (learned by measuring).
    Rails { count: u16 },
    /// 22: Receiver: an older receipt's line for a kept file travels with `Wants`; this one carries a new rate cap, bit/s; 0 is none.
    Rate { bits_per_second: u64 },
    /// 23: Sender: I cut this rail, or found it dead; nothing more is sent on it.
    RailDown { rail: u16 },
    /// 24: Receiver: this rail is over and every chunk that came over it has been acknowledged before this frame: the rest is lost.
    RailClosed { rail: u16 },
    /// 25: Receiver: digests of chunks of the version that stands there, in order without gaps; `NO_DIGEST` where one could not be read.
    Have { entry: EntryId, first: u64, digests: Vec<Digest> },
    /// 26: Sender: all that was told with `Have` is compared; these chunks of the file are not there, and so must travel.
    Differ { entry: EntryId, ranges: Vec<ChunkRange> },
    /// 27: Receiver, before `Sign`, if the job prunes: how many entries were removed (dry run: would be), how many stay though the source
    /// does not have them, and some of their paths.
    Pruned { removed: u64, left: u64, paths: Vec<Box<[u8]>> },
    /// 28: Sender: these numbers have these names at its host; told before the first entry that has the number.
    Names(Vec<IdName>),
    /// 29: Receiver: of these entries this could not be kept; told before the entry is resolved.
    Unkept(Vec<(EntryId, Aspects)>),
    /// 30: Initiator, before `Open` of a pull or `Relay`: of the one source folder only these are taken, each by itself, with the folders
    /// that lead there. Several frames mean their sum; one, even an empty one, means that nothing else is taken.
    Pick(Vec<Box<[u8]>>),
    /// 31: Sender, before `ScanEnd`: these paths could not be looked at, and why. No entry stands for them.
    Unseen(Vec<(EntryFault, Box<[u8]>)>),
    /// 32: Sender, after a file's last `Want`: of what is missing these chunks are zeros at the source and do not travel.
    Holes { entry: EntryId, ranges: Vec<ChunkRange> },
    /// 33: While data flows: this end may use so many cores from now on. Both ends make the plan anew.
    Resources(Resources),
    /// 34: While data flows: this end's user wants the job moved so from now on.
    Pace(RequestedSettings),
    /// 35: Either, once, before it signs: what its interfaces counted since the job began (`INTERFACES_MAX` at most). For people and for a check of
    /// rates; nothing is decided by it.
    NicCounts(Vec<NicCount>),
    /// 36: Client → daemon, in place of a job: what stands at this path? Answered with `Names`, `Entries`, `Unseen` and `ScanEnd`. `recursive`: what
    /// stands in the folders below it, too.
    List { path: Box<[u8]>, recursive: bool },
    /// 37: Either, once, before it signs: owners that go by number. Of a sender: numbers that have no name there; of a receiver: names that were told
    /// and that it does not know. For people: nothing is decided by it.
    Unnamed(Unnamed),
    /// 38: Receiver, before `Sign`: all entries are as this receipt has them, of which both ends may have a copy. Sender, once, as the answer: the
    /// same if it says so, too; zeros if not.
    Former { job: [u8; 16], body: Digest },
}

/// Of files of at most so many bytes holes are not told: they go in packs, zeros and all, and become holes again when they are written.
pub const HOLE_FILE_BYTES_MIN: u64 = PACK_FILE_BYTES_MAX;
/// Holes are told up to here, and read beyond. Up to here both ends know the digests of long runs of zeros without hashing them (BLAKE3
/// counts its blocks, so that no two are the same); beyond, a few bytes of a peer's could ask for hours.
pub const HOLE_REACH_BYTES: u64 = 1 << 40;

/// Most bytes of picked names in a job, each with `PICK_NAME_BYTES` more.
pub const PICK_BYTES_MAX: usize = 32 << 20;
/// What a picked name takes beside its bytes.
pub const PICK_NAME_BYTES: usize = 8;

/// Stands for a chunk that could not be read: no chunk has this digest (CRC-64 leaves 24 bytes zero; BLAKE3 would have to be inverted).
pub const NO_DIGEST: Digest = [0xff; 32];
/// Most digests in one `Have`: 128 KiB of a frame.
pub const HAVE_DIGESTS_MAX: usize = 4096;
/// Most paths in one `Pruned`.
pub const PRUNED_PATHS_MAX: usize = 1000;
/// Most bytes of these together.
pub const PRUNED_BYTES_MAX: usize = 128 << 10;

/// A user's or a group's number and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdName {
    /// A group, not a user.
    pub is_group: bool,
    /// The number at the sender.
    pub id: u32,
    /// The user's or group's name at the sender, as bytes.
    pub name: Box<[u8]>,
}

/// Users and groups that go by number, because one end knew no name, or no number to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unnamed {
    /// How many; users and groups together.
    pub count: u32,
    /// For some of them that is because the name service of that end did not answer in time.
    pub is_silent: bool,
}

/// Longest name of a user or group: what `/etc/passwd` may have is 32 (useradd(8)); others have longer ones.
pub const ID_NAME_BYTES_MAX: usize = 256;
/// Names a job may tell; beyond, numbers stand for themselves.
pub const ID_NAMES_MAX: usize = 16_384;

/// Longest agent name in `Hello`, in bytes.
pub const AGENT_BYTES_MAX: usize = 200;
/// Longest `step` of a fault, in bytes.
pub const STEP_BYTES_MAX: usize = 200;
/// Longest detail of a refusal, in bytes.
pub const DETAIL_BYTES_MAX: usize = 1024;
/// Longest event line, in bytes: what the two bytes of its length can say.
pub const LINE_BYTES_MAX: usize = 65_535;
/// Longest signature, in bytes; Ed25519 has 64, the rest is for a later kind.
pub const SIGNATURE_BYTES_MAX: usize = 256;
/// Most chunk ranges in one `Want`: 64 KiB of a frame. A part with more holes asks for the smallest gaps between them too.
pub const WANT_RANGES_MAX: usize = 4096;
/// Most addresses in a `GiveTicket`.
pub const ADDRESSES_MAX: usize = 64;
