//! Sources that are striped by chunk: where their chunks stand, and that each is what its map says.
//!
//! For: the sending end of files that several volumes have pieces of.
//! In and out: an entry in; its `Join` out, or the entry's failure.
//! Invariants: no chunk of such a file counts as read whose digest is not that of its map.
//! Absent on purpose: maps (`proto::striped`), which volume is read next (`proto::send`).

use std::sync::Arc;

use proto::ledger::chunk_len;
use proto::manifest::{Entry, EntryId};
use proto::striped::Join;
use proto::wire::control::{Digest, FaultKind};

use super::SendEnd;
use crate::job::{Cover, Terms, fault_kind};
use crate::machine::{Outbox, fault};
use crate::platform::{Platform, SourceTree};
use crate::seal::hash::chunk_digest;

impl<P: Platform> SendEnd<P> {
    /// Where the chunks of a striped file stand. `None`: not all of them do, and it has failed.
    pub(super) fn join(&mut self, entry: &Entry, out: &mut Outbox<P>) -> Option<Arc<Join>> {
        let join = self.source.join(entry).and_then(|join| match join.chunk_bytes() {
            least if self.record.terms.chunk_bytes > least => {
                let cause = format!("it is cut into chunks of {least} bytes: read it with --chunk of no more");
                Err(std::io::Error::new(std::io::ErrorKind::Unsupported, cause))
            }
            _ => Ok(join),
        });
        let error = match join {
            Ok(join) => return Some(join),
            Err(error) => error,
        };
        let damaged = error.kind() == std::io::ErrorKind::InvalidData;
        let kind = if damaged { FaultKind::Corrupt } else { fault_kind(&error, true) };
        self.give_up(fault(entry.id, kind, Some(&error), &format!("join its chunks: {error}")), out);
        None
    }

    /// A chunk of a striped file is to be what its map says.
    pub(super) fn check_piece(&mut self, id: EntryId, offset: u64, digest: &Digest, out: &mut Outbox<P>) {
        let Some(entry) = self.machine.entry(id).filter(|entry| entry.meta.striped).cloned() else { return };
        let terms = self.record.terms;
        if terms.cover == Cover::Bare {
            return; // nobody looked at it
        }
        let join = self.source.join(&entry).ok();
        let is_right = |join: &Arc<Join>| match join.is_hole(offset) {
            true => is_of_zeros(&terms, &entry, offset, digest),
            false => join.agrees(offset, terms.chunk_bytes, terms.digest, digest),
        };
        if !join.as_ref().is_some_and(is_right) {
            let index = offset / u64::from(terms.chunk_bytes);
            let volume = join.and_then(|it| it.volume_at(offset)).unwrap_or(0);
            let step = format!("read chunk {index} on volume {volume}: it is not what its map says");
            self.give_up(fault(id, FaultKind::Corrupt, None, &step), out);
        }
    }
}

/// Is this the digest of a chunk of zeros there? Seldom asked: holes are told, not read.
fn is_of_zeros(terms: &Terms, entry: &Entry, offset: u64, digest: &Digest) -> bool {
    let bytes = chunk_len(entry.bytes(), terms.chunk_bytes, offset / u64::from(terms.chunk_bytes));
    chunk_digest(terms, entry.bytes(), offset, &vec![0; bytes as usize]) == *digest
}
