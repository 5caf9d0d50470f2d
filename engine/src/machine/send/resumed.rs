//! What of a resumed file the receiver has already: the source's own digests of it.
//!
//! For: a part that an earlier run left is taken for that of the same source by length and time; only the bytes can say whether it is.
//! In and out: the chunks that a `Want::MissingSoFar` does not ask for; work for the comparer, batch by batch, and its answers; the file's
//! digest in `FileEnd`, which is held until the last of them.
//! Invariants: each chunk has one digest in the file's tree: of those here it is the comparer's, whatever is sent again; one batch of a
//! file is on its way at a time; the look at the source that `FileEnd` needs comes after the last was read.
//! Absent on purpose: clones and versions that were compared (their chunks were read at both ends already), sources that are striped by
//! chunk (their maps have digests), jobs that take no digest of the source.

use std::io;
use std::sync::Arc;

use proto::ledger::chunk_count;
use proto::manifest::{Entry, EntryId};
use proto::send::FollowUp;
use proto::wire::control::{ChunkRange, Digest, FaultKind};

use super::SendEnd;
use super::resumed_chunks::Resumed;
use crate::job::{Cover, fault_kind};
use crate::machine::compare::Compare;
use crate::machine::{Outbox, fault};
use crate::platform::Platform;
use crate::seal::digest::DigestTree;

impl<P: Platform> SendEnd<P> {
    /// The receiver asks for these chunks of a file, and has the others from an earlier run.
    pub(super) fn read_resumed(&mut self, entry: &Arc<Entry>, asked: &[ChunkRange], out: &mut Outbox<P>) {
        let terms = self.record.terms;
        if terms.cover == Cover::Bare || entry.meta.striped {
            return;
        }
        let resumed = Resumed::but(asked, chunk_count(entry.bytes(), terms.chunk_bytes));
        self.trees.insert(entry.id, DigestTree::new(terms.digest, entry.bytes(), terms.chunk_bytes));
        self.resumed.insert(entry.id, resumed);
        self.read_more(entry, out);
    }

    fn read_more(&mut self, entry: &Arc<Entry>, out: &mut Outbox<P>) {
        let chunk_bytes = u64::from(self.record.terms.chunk_bytes);
        if let Some(chunks) = self.resumed.get_mut(&entry.id).and_then(|it| it.next(chunk_bytes)) {
            out.compares.push(Compare::Own { entry: entry.clone(), chunks });
        }
    }

    /// The comparer has read some of them.
    pub(super) fn on_own(&mut self, id: EntryId, first: u64, digests: io::Result<Vec<Digest>>, out: &mut Outbox<P>) {
        let Some(entry) = self.machine.entry(id).cloned() else { return };
        let (Some(resumed), Some(tree)) = (self.resumed.get_mut(&id), self.trees.get_mut(&id)) else { return };
        let digests = match digests {
            Ok(digests) => digests,
            Err(error) => {
                let is_short = error.kind() == io::ErrorKind::UnexpectedEof;
                let kind = if is_short { FaultKind::Torn } else { fault_kind(&error, true) };
                return self.give_up(fault(id, kind, Some(&error), "read what an earlier run had sent"), out);
            }
        };
        self.record.tally.read_again += digests.len() as u64 * u64::from(self.record.terms.chunk_bytes);
        for (index, digest) in (first..).zip(digests) {
            tree.put(index, digest);
        }
        resumed.reading = false;
        self.read_more(&entry, out);
        if self.resumed.get(&id).is_some_and(|it| it.held && it.is_over()) {
            self.follow_up(FollowUp::CheckSource(id), out);
        }
    }

    /// Is `FileEnd` to wait? Then it comes with the last of them.
    pub(super) fn holds_end(&mut self, id: EntryId) -> bool {
        let Some(resumed) = self.resumed.get_mut(&id) else { return false };
        resumed.held = !resumed.is_over();
        resumed.held
    }
}
