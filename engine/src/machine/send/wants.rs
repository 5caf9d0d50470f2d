//! What the receiver wants of each entry, and what comparing two versions found.
//!
//! For: the sending end's answer to `Wants` and to its comparer.
//! In and out: wants and compared chunks in; `Differ` frames, notes and work for the comparer out.
//! Invariants: what is kept or only counted is resolved at once; a file that comes whole has a tree of digests before its first chunk goes.
//! Absent on purpose: which want is in order (`proto::send`), reading to compare (`machine::compare`).

use proto::manifest::{Entry, EntryId};
use proto::wire::control::{ChunkRange, Frame, Want};

use super::SendEnd;
use crate::job::{Cover, fault_kind};
use crate::machine::compare::{Compared, show_differ};
use crate::machine::{Outbox, Stop, fault};
use crate::platform::{Platform, SourceTree};
use crate::seal::digest::DigestTree;

impl<P: Platform> SendEnd<P> {
    pub(super) fn on_want(&mut self, id: EntryId, want: &Want, out: &mut Outbox<P>) -> Result<(), Stop> {
        let entry = self.machine.entry(id).cloned();
        let is_last = !matches!(want, Want::Compare { .. } | Want::MissingSoFar { .. });
        if let (true, true, Some(entry)) = (is_last, self.record.dry, &entry) {
            self.count_want(entry, want);
            self.source.done(entry);
            self.compared.remove(&id);
            self.machine.on_committed(id)?;
            return Ok(());
        }
        let due = self.machine.on_want(id, want)?;
        let compared = is_last && self.compared.remove(&id);
        let Some(entry) = entry else { return Ok(()) };
        let chunk_bytes = self.record.terms.chunk_bytes;
        let is_striped = entry.meta.striped && !matches!(want, Want::Keep { .. });
        if is_striped && self.join(&entry, out).is_none() {
            return Ok(());
        }
        match want {
            Want::Keep { digest } => {
                self.source.done(&entry);
                self.record.kept(&entry, digest.as_ref(), compared);
            }
            Want::All => {
                if entry.bytes() > proto::wire::chunk::PACK_FILE_BYTES_MAX && self.record.terms.cover != Cover::Bare {
                    let tree = DigestTree::new(self.record.terms.digest, entry.bytes(), chunk_bytes);
                    self.trees.insert(id, tree);
                }
            }
            Want::Missing { ranges } => {
                self.source.resumes(&entry);
                let asked_for = bytes_in(ranges, &entry, chunk_bytes);
                let asked_before = self.resuming.remove(&id);
                let missing = asked_for + asked_before.unwrap_or(0);
                let tally = &mut self.record.tally;
                tally.bytes_resumed += entry.bytes().saturating_sub(missing);
                // After `MissingSoFar` the receiver asks for what it read back and found to be something else.
                tally.bytes_readback_failed += asked_before.map_or(0, |_| asked_for);
            }
            // What the receiver does have is known when it has read it back.
            Want::MissingSoFar { ranges } => {
                self.source.resumes(&entry);
                self.resuming.insert(id, bytes_in(ranges, &entry, chunk_bytes));
                self.read_resumed(&entry, ranges, out);
            }
            Want::Compare { .. } => _ = self.compared.insert(id),
        }
        self.follow_up(due, out);
        Ok(())
    }

    /// The comparer tells.
    pub fn on_compared(&mut self, compared: Compared, out: &mut Outbox<P>) {
        let (id, same) = match compared {
            Compared::Told { entry, same } => (entry, same),
            Compared::Own { entry, first, digests } => return self.on_own(entry, first, digests, out),
        };
        match same {
            Ok(same) => {
                self.record.tally.compared += same.len() as u64 * u64::from(self.record.terms.chunk_bytes);
                if let Some(ranges) = self.machine.compared(id, &same) {
                    if let Some(entry) = self.machine.entry(id).filter(|_| !ranges.is_empty()) {
                        out.notes.push(show_differ(entry, &ranges, self.record.terms.chunk_bytes));
                    }
                    out.frames.push(Frame::Differ { entry: id, ranges });
                }
            }
            Err(error) => self.give_up(fault(id, fault_kind(&error, true), Some(&error), "read it to compare"), out),
        }
    }

    /// A dry run: what would be done is done with being counted.
    fn count_want(&mut self, entry: &Entry, want: &Want) {
        let tally = &mut self.record.tally;
        tally.files_done += 1;
        tally.bytes_done += entry.bytes();
        match want {
            Want::Keep { .. } => tally.kept(entry.bytes(), self.compared.contains(&entry.id)),
            Want::All | Want::Compare { .. } => {}
            Want::Missing { ranges } | Want::MissingSoFar { ranges } => {
                let missing = bytes_in(ranges, entry, self.record.terms.chunk_bytes);
                tally.bytes_resumed += entry.bytes().saturating_sub(missing);
            }
        }
    }
}

/// Bytes of these chunks of a file; the last may be short.
fn bytes_in(ranges: &[ChunkRange], entry: &Entry, chunk_bytes: u32) -> u64 {
    let chunk_bytes = u64::from(chunk_bytes);
    let end = |index: u64| index.saturating_mul(chunk_bytes).min(entry.bytes());
    ranges.iter().map(|range| end(range.end) - end(range.first)).sum()
}
