//! The committer's work: what makes bytes durable and files visible, off the loop.
//!
//! For: step 11 of a chunk's path: fdatasync, journal, rename, fsync of the folder.
//! In and out: tasks in order from the job driver; one answer each.
//! Invariants: a journal record is appended after the flush of the data it speaks of, or says that it was not; a name appears after the
//! flush its durability level asks for.
//! Absent on purpose: when to flush (machine::recv decides).

use std::io;
use std::sync::Arc;

use proto::manifest::{Entry, EntryId};
use proto::wire::control::Durability;

use crate::platform::{Firm, SinkTree};

/// Files above this length have a journal.
pub const JOURNAL_FILE_BYTES_MIN: u64 = 16 << 20;
/// A part is flushed and its journal appended after so many fresh bytes …
pub const FLUSH_BYTES: u64 = 32 << 20;
/// … or when the oldest of them is so old.
pub const FLUSH_NS: u64 = 1_000_000_000;
/// Before that, its journal notes what was written after so many bytes …
pub const NOTE_BYTES: u64 = 8 << 20;
/// … or when the oldest of them is so old.
pub const NOTE_NS: u64 = 50_000_000;

/// Work for the committer.
#[derive(Debug)]
pub enum Task {
    /// Flush a part, then append these records, which speak of the chunks `indices`.
    Flush { volume: usize, entry: Arc<Entry>, records: Vec<u8>, indices: Vec<u64>, firm: Firm },
    /// Append records of chunks that are written and not flushed; a header stands before them. It does not wait for flushes, nor they for it.
    Note { volume: usize, entry: Arc<Entry>, records: Vec<u8>, header: bool },
    /// Bring whole parts to the durability level and under their names.
    Publish { volume: usize, entries: Vec<Arc<Entry>>, durability: Durability },
    /// The entry failed: remove its part and journal.
    Discard { volume: usize, entry: Arc<Entry> },
    /// The job is over: make names durable.
    Settle { durability: Durability },
}

impl Task {
    /// Which committer does it, of one for each volume and one more for its notes: what is done to one entry by one of them is done in order.
    #[must_use]
    pub fn lane(&self, volumes: usize) -> usize {
        match self {
            Task::Flush { volume, .. } | Task::Publish { volume, .. } | Task::Discard { volume, .. } => *volume,
            Task::Settle { .. } => 0,
            Task::Note { volume, .. } => volumes + *volume,
        }
    }
}

/// The committer's answer.
#[derive(Debug)]
pub enum Settled {
    /// A flush.
    Flushed { volume: usize, entry: EntryId, indices: Vec<u64>, result: io::Result<()> },
    /// A note.
    Noted { volume: usize, entry: EntryId, header: bool, result: io::Result<()> },
    /// A batch of names; one result each.
    Published { volume: usize, entries: Vec<Arc<Entry>>, results: Vec<io::Result<()>> },
    /// A part is gone.
    Discarded,
    /// The end.
    Settled { result: io::Result<()> },
}

/// Does one task.
pub fn run<S: SinkTree>(sink: &S, task: Task) -> Settled {
    if let Task::Publish { entries, .. } = &task {
        entries.iter().for_each(|entry| crate::fault::panic_if_asked("committer", &entry.path));
    }
    match task {
        Task::Flush { volume, entry, records, indices, firm } => {
            let result = sink.flush(volume, &entry, &records, firm);
            Settled::Flushed { volume, entry: entry.id, indices, result }
        }
        Task::Note { volume, entry, records, header } => {
            let result = sink.flush(volume, &entry, &records, Firm::Written);
            Settled::Noted { volume, entry: entry.id, header, result }
        }
        Task::Publish { volume, entries, durability } => {
            let mut results = Vec::with_capacity(entries.len());
            sink.publish(&entries, durability, &mut results);
            Settled::Published { volume, entries, results }
        }
        Task::Discard { volume, entry } => {
            sink.discard_on(volume, &entry);
            Settled::Discarded
        }
        Task::Settle { durability } => Settled::Settled { result: sink.settle(durability) },
    }
}
