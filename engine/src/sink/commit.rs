//! The committer's work: what makes bytes durable and files visible, off the loop.
//!
//! For: step 11 of a chunk's path: fdatasync, journal, rename, fsync of the folder.
//! In and out: tasks in order from the keeper; one answer each.
//! Invariants: a journal record is appended after the flush of the data it speaks of; a name appears after the flush its rung asks for.
//! Absent on purpose: when to flush (end::recv decides).

use std::io;
use std::sync::Arc;

use proto::manifest::{Entry, EntryId};
use proto::wire::control::Rung;

use crate::platform::SinkTree;

/// Work for the committer.
#[derive(Debug)]
pub enum Task {
    /// Flush a part, then append these records, which speak of the chunks `indices`.
    Flush { volume: usize, entry: Arc<Entry>, records: Vec<u8>, indices: Vec<u64>, durable: bool },
    /// Bring whole parts to the rung and under their names.
    Publish { volume: usize, entries: Vec<Arc<Entry>>, rung: Rung },
    /// The entry failed: remove its part and journal.
    Discard { volume: usize, entry: Arc<Entry> },
    /// The job is over: make names durable.
    Settle { rung: Rung },
}

impl Task {
    /// The volume whose committer does it: what is done to one entry is done in order.
    #[must_use]
    pub fn volume(&self) -> usize {
        match self {
            Task::Flush { volume, .. } | Task::Publish { volume, .. } | Task::Discard { volume, .. } => *volume,
            Task::Settle { .. } => 0,
        }
    }
}

/// The committer's answer.
#[derive(Debug)]
pub enum Settled {
    /// A flush.
    Flushed { volume: usize, entry: EntryId, indices: Vec<u64>, result: io::Result<()> },
    /// A batch of names; one result each.
    Published { volume: usize, entries: Vec<Arc<Entry>>, results: Vec<io::Result<()>> },
    /// A part is gone.
    Discarded,
    /// The end.
    Settled { result: io::Result<()> },
}

/// Does one task.
pub fn run<S: SinkTree>(sink: &S, task: Task) -> Settled {
    match task {
        Task::Flush { volume, entry, records, indices, durable } => {
            let result = sink.flush(volume, &entry, &records, durable);
            Settled::Flushed { volume, entry: entry.id, indices, result }
        }
        Task::Publish { volume, entries, rung } => {
            let mut results = Vec::with_capacity(entries.len());
            sink.publish(&entries, rung, &mut results);
            Settled::Published { volume, entries, results }
        }
        Task::Discard { volume, entry } => {
            sink.discard_on(volume, &entry);
            Settled::Discarded
        }
        Task::Settle { rung } => Settled::Settled { result: sink.settle(rung) },
    }
}
