//! The two ends of a job: proto's state machines joined to trees, workers and the control session.
//!
//! For: what a job driver thread (or the simulator) turns: frames, events and answers in; frames, commands and tasks out.
//! In and out: see `Outbox`.
//! Invariants: no waiting here; every call returns at once (name calls of the trees excepted); the order of `Outbox::frames` is the order
//! on the wire, and both ends write the receipt in that order.
//! Absent on purpose: sockets, threads, clocks (time is an argument).

pub mod compare; // two versions of a file, chunk by chunk
pub mod unjournalled; // what a crash would cost now
pub mod names; // files with several names, as they arrive
pub mod recv; // the receiving end
pub mod send; // the sending end
pub mod unpreserved; // what could not be kept, by name and count

use proto::error::Breach;
use proto::manifest::{Entry, EntryKind};
use proto::receipt;
use proto::wire::control::{Digest, Durability, EntryFault, FaultKind, Frame, Unnamed};
use std::string::String;

use crate::job::{Cmd, EntryError, Terms};
use crate::machine::compare::{Compare, Look};
use crate::platform::Platform;
use crate::tree::commit::Task;

/// What an end wants done.
#[derive(Debug)]
pub struct Outbox<P: Platform> {
    /// To the peer, in order.
    pub frames: Vec<Frame>,
    /// To workers (index, command).
    pub cmds: Vec<(usize, Cmd<P>)>,
    /// To the committer.
    pub tasks: Vec<Task>,
    /// To the receiver's comparer.
    pub looks: Vec<Look>,
    /// To the sender's comparer.
    pub compares: Vec<Compare>,
    /// Worth telling the user with `-v`.
    pub notes: Vec<String>,
}

impl<P: Platform> Default for Outbox<P> {
    fn default() -> Self {
        Outbox {
            frames: Vec::new(),
            cmds: Vec::new(),
            tasks: Vec::new(),
            looks: Vec::new(),
            compares: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// Why an end cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The peer broke the protocol.
    Breach(Breach),
    /// The peer said it cannot go on.
    Refused { code: u16, detail: String },
    /// The destination as a whole fails (the last settle).
    Fault { step: &'static str, errno: i32 },
}

impl From<Breach> for Stop {
    fn from(breach: Breach) -> Self {
        Stop::Breach(breach)
    }
}

/// Counts for screens and reports. Bytes are payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Files announced.
    pub files_total: u64,
    /// Bytes announced.
    pub bytes_total: u64,
    /// Is the scan over (are the totals final)?
    pub scan_ended: bool,
    /// Files resolved well in this run, kept ones included.
    pub files_done: u64,
    /// Bytes of these.
    pub bytes_done: u64,
    /// Folders and links made.
    pub folders_done: u64,
    /// Links made.
    pub links_done: u64,
    /// FIFOs, sockets and devices made.
    pub nodes_done: u64,
    /// Further names of files made.
    pub names_done: u64,
    /// Files found complete.
    pub files_kept: u64,
    /// Bytes found complete.
    pub bytes_kept: u64,
    /// Of the files found complete, those whose bytes were compared; the others were believed by length and time.
    pub files_equal: u64,
    /// Bytes of these.
    pub bytes_equal: u64,
    /// Bytes found in parts of an earlier run.
    pub bytes_resumed: u64,
    /// Bytes that a journal of an earlier run speaks of, and that were something else when they were read back: they are sent again.
    pub bytes_readback_failed: u64,
    /// Bytes in holes of files that are on their way or done: told, not sent.
    pub holes: u64,
    /// Bytes read at this end to be compared with the other's version.
    pub compared: u64,
    /// Bytes of what an earlier run had sent, read again at the source.
    pub read_again: u64,
    /// Entries removed at the destination, for the source does not have them (dry run: would be).
    pub removed: u64,
    /// Entries that the source does not have and that stay: more than was allowed, or something failed.
    pub left: u64,
    /// Entries that failed.
    pub failed: u64,
    /// Payload bytes sent (sender) or received (receiver), repeats included.
    pub moved: u64,
    /// Bytes on rails, headers and tags included.
    pub rail_bytes: u64,
    /// Payload bytes sent again.
    pub resent: u64,
    /// Receiver: bytes in the file system.
    pub written: u64,
    /// Receiver: bytes durable (flushed parts and published files).
    pub durable: u64,
    /// Chunks that came corrupt and went again.
    pub corrupt: u64,
}

impl Tally {
    fn kept(&mut self, bytes: u64, compared: bool) {
        self.files_kept += 1;
        self.bytes_kept += bytes;
        self.files_equal += u64::from(compared);
        self.bytes_equal += if compared { bytes } else { 0 };
    }
}

/// Faults kept for the report; beyond, only the count is.
const FAULTS_KEPT: usize = 10_000;

/// An entry that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedEntry {
    /// Its path below the root of the copy.
    pub path: Box<[u8]>,
    /// How it failed.
    pub fault: EntryFault,
    /// It failed at the other end.
    pub is_peers: bool,
}

/// What both ends keep for the report and the receipt.
#[derive(Debug)]
pub struct Record {
    /// What was agreed.
    pub terms: Terms,
    /// The durability level asked for.
    pub durability: Durability,
    /// Counts.
    pub tally: Tally,
    /// Failed entries, the first of them.
    pub faults: Vec<FailedEntry>,
    /// Receipt lines not yet taken by the caller.
    pub lines: Vec<u8>,
    /// What of entries could not be kept.
    pub unkept: unpreserved::Unpreserved,
    /// Owners of which this end knew no name, or no number.
    pub unnamed: Unnamed,
    /// And the other end, as far as it said so.
    pub unnamed_there: Unnamed,
    /// Nothing is moved or made: only counted.
    pub dry: bool,
    /// Some of the paths removed or left, at most `PRUNED_PATHS_MAX`.
    pub extras: Vec<Box<[u8]>>,
}

impl Record {
    fn new(terms: Terms, durability: Durability) -> Self {
        Record {
            terms,
            durability,
            tally: Tally::default(),
            faults: Vec::new(),
            lines: Vec::new(),
            unkept: unpreserved::Unpreserved::default(),
            unnamed: Unnamed::default(),
            unnamed_there: Unnamed::default(),
            dry: false,
            extras: Vec::new(),
        }
    }

    /// Files that were announced, and neither are there nor failed. At the end of a job there are none: whatever went wrong with a file is told and
    /// decides the exit code, or it is a bug.
    #[must_use]
    pub fn files_open(&self) -> u64 {
        self.tally.files_total.saturating_sub(self.tally.files_done + self.tally.failed)
    }

    fn announced(&mut self, entry: &Entry) {
        self.unkept.add(entry.meta.lost, &entry.path);
        if entry.is_file() {
            self.tally.files_total += 1;
            self.tally.bytes_total += entry.bytes();
        }
    }

    /// An entry is resolved well; its line goes into the receipt.
    fn resolved(&mut self, entry: &Entry, digest: Option<&Digest>) {
        match entry.kind {
            EntryKind::File { bytes } => {
                self.tally.files_done += 1;
                self.tally.bytes_done += bytes;
            }
            EntryKind::Link { .. } => self.tally.links_done += 1,
            EntryKind::Node { .. } => self.tally.nodes_done += 1,
            EntryKind::Name { .. } => self.tally.names_done += 1,
            EntryKind::Folder => return, // its end carries the line
            EntryKind::FolderEnd => self.tally.folders_done += 1,
        }
        receipt::write_entry(&mut self.lines, entry, digest, self.terms.digest, self.durability);
    }

    /// `compared`: by content, not by length and time.
    fn kept(&mut self, entry: &Entry, digest: Option<&Digest>, compared: bool) {
        self.tally.kept(entry.bytes(), compared);
        self.resolved(entry, digest);
    }

    fn failed(&mut self, fault: EntryFault, path: &[u8], is_peers: bool) {
        if crate::fault::loses_if_asked(path) {
            return;
        }
        self.tally.failed += 1;
        if self.faults.len() < FAULTS_KEPT {
            self.faults.push(FailedEntry { path: path.into(), fault, is_peers });
        }
    }
}

/// A worker's error as the peer is told it.
#[must_use]
pub fn told(error: &EntryError) -> EntryFault {
    EntryFault { entry: error.entry, kind: error.kind, errno: error.errno, step: step(error.kind, error.step) }
}

/// Who was denied permission is told as well: at a daemon that is not who reads it.
fn step(kind: FaultKind, step: &str) -> String {
    if kind == FaultKind::Denied { format!("{step}, as uid {}", sys::host::user_number()) } else { step.into() }
}

/// An entry fault made here.
#[must_use]
pub fn fault(entry: u64, kind: FaultKind, error: Option<&std::io::Error>, step: &str) -> EntryFault {
    let errno = error.and_then(std::io::Error::raw_os_error).unwrap_or(0);
    EntryFault { entry, kind, errno, step: self::step(kind, step) }
}
