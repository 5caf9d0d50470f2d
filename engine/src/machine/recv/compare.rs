//! Another version stands there: only chunks that differ are wanted.
//!
//! For: the receiving half of comparing; see `machine/compare.rs`.
//! In and out: what the comparer saw and what the sender says of it; `Have` frames, and at last the file's `Want`.
//! Invariants: the version under the final name is only read; what is kept of it is copied into a part of its own and stands in the
//! journal before it is counted on; from the second `Want` on, the file's way is that of a resumed one.
//! Absent on purpose: reading and digesting (machine/compare.rs).

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use proto::error::Breach;
use proto::ledger::chunk_count;
use proto::manifest::{Entry, EntryId};
use proto::wire::chunk::PACK_FILE_BYTES_MAX;
use proto::wire::control::{ChunkRange, Compare, Digest, Durability, Frame, HAVE_DIGESTS_MAX, Want};

use super::parts::{first_runs, gaps};
use super::{RecvEnd, show};
use crate::job::{Cmd, fault_kind};
use crate::machine::compare::{Look, Seen, show_differ};
use crate::machine::{Outbox, Stop};
use crate::platform::{Clones, Old, Parts, Platform, SinkTree, VolumeSet};
use crate::seal::digest::DigestTree;
use crate::tree::commit::JOURNAL_FILE_BYTES_MIN;

/// A file whose versions are being compared.
#[derive(Debug)]
pub(super) struct Comparing {
    old: Old,
    /// Chunks that both versions have at the same place, in the same length.
    chunks: u64,
    digests: Vec<Digest>,
    /// The sender has said what differs.
    answered: bool,
    /// What is kept, once it is known.
    kept: Vec<(u64, Digest)>,
}

/// How many chunks two versions have in common by their lengths.
fn common_chunks(old: u64, new: u64, chunk_bytes: u32) -> u64 {
    if old == new { chunk_count(new, chunk_bytes) } else { old.min(new) / u64::from(chunk_bytes) }
}

impl<P: Platform> RecvEnd<P> {
    /// Is there a version worth comparing? Then the answer to the sender.
    pub(super) fn compare(&mut self, entry: &Arc<Entry>, out: &mut Outbox<P>) -> Option<Want> {
        if self.compare == Compare::Never || entry.bytes() == 0 {
            return None;
        }
        let old = self.can.previous.as_ref()?.previous_version(entry).ok().flatten()?;
        // A small file that changed travels in a pack for less than it would cost to ask; unless each byte is to be looked at.
        if self.compare == Compare::Changed && entry.bytes() <= PACK_FILE_BYTES_MAX && !old.elsewhere {
            return None;
        }
        let chunks = common_chunks(old.bytes, entry.bytes(), self.record.terms.chunk_bytes);
        if chunks == 0 {
            return None;
        }
        out.looks.push(Look::Old { entry: entry.clone(), chunks, sign: old.sign });
        self.comparing
            .insert(entry.id, Comparing { old, chunks, digests: Vec::new(), answered: false, kept: Vec::new() });
        Some(Want::Compare { chunks })
    }

    /// The comparer tells.
    ///
    /// # Errors
    /// None of its own; those of going on.
    pub fn on_seen(&mut self, seen: Seen, out: &mut Outbox<P>) -> Result<(), Stop> {
        match seen {
            Seen::Old { entry, first, digests } => {
                let Some(comparing) = self.comparing.get_mut(&entry) else { return Ok(()) };
                comparing.digests.extend_from_slice(&digests);
                self.record.tally.compared += digests.len() as u64 * u64::from(self.record.terms.chunk_bytes);
                for (step, part) in digests.chunks(HAVE_DIGESTS_MAX).enumerate() {
                    let first = first + (step * HAVE_DIGESTS_MAX) as u64;
                    out.frames.push(Frame::Have { entry, first, digests: part.to_vec() });
                }
            }
            Seen::Carried { entry: id, result } => {
                let Some(comparing) = self.comparing.remove(&id) else { return Ok(()) };
                let Some(entry) = self.machine.entry(id).cloned() else { return Ok(()) };
                let volumes = result.as_ref().cloned().unwrap_or_default();
                if let Err(error) = result {
                    out.notes
                        .push(format!("{}: nothing is carried over ({error}), it is sent whole", show(&entry.path)));
                    self.sink.discard(&entry);
                    self.ask(&entry, &[], out);
                } else {
                    self.ask_rest(&entry, &comparing.kept, &volumes, out);
                }
            }
            Seen::Adopted { entry: id, result } => {
                let Some(comparing) = self.comparing.remove(&id) else { return Ok(()) };
                let Some(entry) = self.machine.entry(id).cloned() else { return Ok(()) };
                if let Err(error) = result {
                    out.notes.push(format!("{}: it cannot be kept ({error}), it is sent whole", show(&entry.path)));
                    self.ask(&entry, &[], out);
                } else {
                    self.keep_compared(&entry, &comparing, out);
                }
            }
            Seen::Part { entry, good, last } => self.on_seen_part(entry, &good, last, out),
            Seen::Clone { entry, digests } => {
                self.record.tally.compared += digests.len() as u64 * u64::from(self.record.terms.chunk_bytes);
                if let Some(cloning) = self.cloning.get_mut(&entry) {
                    cloning.extend(digests);
                }
            }
            Seen::Cloned { entry, result } => self.on_cloned(&entry, result, out),
            Seen::Swept { result } => self.on_swept(result, out),
            Seen::Pruned { removed, failed } => self.on_pruned(removed, failed, out),
        }
        Ok(())
    }

    fn clones(&self) -> Clones {
        self.can.cloning.as_ref().map_or(Clones::Never, |it| it.clones())
    }

    /// Is the file to be had as a clone? Then the answer to the sender waits for it.
    pub(super) fn begins_clone(&mut self, entry: &Arc<Entry>, out: &mut Outbox<P>) -> bool {
        let clones = self.clones() != Clones::Never && entry.bytes() > PACK_FILE_BYTES_MAX && !self.record.dry;
        if clones {
            self.cloning.insert(entry.id, BTreeMap::new());
            out.looks.push(Look::Clone { entry: entry.clone() });
        }
        clones
    }

    fn on_cloned(&mut self, entry: &Arc<Entry>, result: io::Result<()>, out: &mut Outbox<P>) {
        let Some(digests) = self.cloning.remove(&entry.id) else {
            return self.sink.discard(entry); // it failed meanwhile
        };
        match result {
            Ok(()) => {
                let kept = first_runs(digests);
                let chunk_bytes = self.record.terms.chunk_bytes;
                // What is missing of a part reads as zeros; of a clone that is its holes, and whatever there is beyond many of them.
                let missing = gaps(&kept, chunk_count(entry.bytes(), chunk_bytes), chunk_bytes.into());
                if missing.is_empty() || self.sink.empty_part(self.sink.volume_of(entry.id), entry, &missing).is_ok() {
                    self.ask(entry, &kept, out);
                } else {
                    self.sink.discard(entry);
                    self.ask(entry, &[], out);
                }
            }
            Err(error) if self.clones() == Clones::Only => {
                self.fail(entry.id, fault_kind(&error, false), Some(&error), "clone the file");
            }
            Err(_) => {
                self.sink.discard(entry);
                self.ask(entry, &[], out);
            }
        }
    }

    /// The same bytes stand there.
    fn keep_compared(&mut self, entry: &Arc<Entry>, comparing: &Comparing, out: &mut Outbox<P>) {
        let mut tree = DigestTree::new(self.record.terms.digest, entry.bytes(), self.record.terms.chunk_bytes);
        for (index, digest) in (0..).zip(&comparing.digests) {
            tree.put(index, *digest);
        }
        let digest = tree.root();
        self.tell_unkept(out); // before the answer that resolves the entry
        self.record.kept(entry, digest.as_ref(), true);
        self.resolve(entry.id);
        self.first_stands(entry, true);
        out.frames.push(Frame::Wants(vec![(entry.id, Want::Keep { digest })]));
    }

    /// The file's last `Want`, with the workers told before.
    fn ask(&mut self, entry: &Arc<Entry>, kept: &[(u64, Digest)], out: &mut Outbox<P>) {
        let begun = [self.sink.volume_of(entry.id)];
        let volumes = if kept.is_empty() { &[][..] } else { &begun };
        self.ask_rest(entry, kept, volumes, out);
    }

    /// The same, where what is kept has journals on these volumes.
    fn ask_rest(&mut self, entry: &Arc<Entry>, kept: &[(u64, Digest)], volumes: &[usize], out: &mut Outbox<P>) {
        let promised = !kept.is_empty() && self.record.durability >= Durability::Flushed;
        let want = self.begin(entry, kept, volumes, promised);
        self.tell(entry, want, out);
    }

    /// What is wanted of a file, with the workers told before.
    pub(super) fn tell(&self, entry: &Arc<Entry>, want: Want, out: &mut Outbox<P>) {
        for worker in 0..self.workers {
            out.cmds.push((worker, Cmd::Expect { job: self.job, entries: vec![entry.clone()] }));
        }
        out.frames.push(Frame::Wants(vec![(entry.id, want)]));
    }

    /// The sender has compared.
    pub(super) fn on_differ(&mut self, id: EntryId, ranges: &[ChunkRange], out: &mut Outbox<P>) -> Result<(), Stop> {
        let Some(entry) = self.machine.entry(id).cloned() else {
            return if self.machine.knows(id) { Ok(()) } else { Err(Breach::EntryUnknown.into()) };
        };
        let Some(comparing) = self.comparing.get_mut(&id) else { return Err(Breach::WrongOrder.into()) };
        if (comparing.digests.len() as u64) < comparing.chunks || std::mem::replace(&mut comparing.answered, true) {
            return Err(Breach::WrongOrder.into());
        }
        let chunks = chunk_count(entry.bytes(), self.record.terms.chunk_bytes);
        if ranges.last().is_some_and(|range| range.end > chunks) {
            return Err(Breach::WantOutOfRange.into());
        }
        let mut kept: BTreeMap<u64, Digest> = (0..).zip(comparing.digests.iter().copied()).collect();
        for range in ranges {
            let tail = kept.split_off(&range.first);
            kept.extend(tail.into_iter().skip_while(|(index, _)| *index < range.end));
        }
        if kept.len() as u64 + ranges.iter().map(|range| range.end - range.first).sum::<u64>() != chunks {
            return Err(Breach::WantOutOfRange.into()); // what was never told cannot be the same
        }
        let kept = first_runs(kept);
        let same_chunks = ranges.is_empty() && comparing.old.bytes == entry.bytes();
        // The pieces of a striped file are named after its time: with another they are another version, which shares all chunks.
        let is_kept_as_it_is = same_chunks && !comparing.old.elsewhere && !entry.meta.striped;
        if !ranges.is_empty() {
            out.notes.push(show_differ(&entry, ranges, self.record.terms.chunk_bytes));
        }
        if self.record.dry {
            self.differ_dry(&entry, same_chunks, &kept, out);
        } else if is_kept_as_it_is {
            out.looks.push(Look::Adopt { entry, sign: comparing.old.sign });
        } else if kept.is_empty() || (entry.bytes() <= PACK_FILE_BYTES_MAX && !same_chunks) {
            self.comparing.remove(&id);
            self.ask(&entry, &[], out);
        } else {
            comparing.kept = kept;
            self.carry(&entry, out);
        }
        Ok(())
    }

    /// A dry run: what would be done is done with being counted.
    fn differ_dry(&mut self, entry: &Arc<Entry>, same: bool, kept: &[(u64, Digest)], out: &mut Outbox<P>) {
        let Some(comparing) = self.comparing.remove(&entry.id) else { return };
        if same && !comparing.old.elsewhere {
            self.keep_compared(entry, &comparing, out);
            return;
        }
        let want = self.begin(entry, kept, &[], false);
        self.coming.remove(&entry.id);
        if self.resolve(entry.id).is_some() {
            self.record.tally.files_done += 1;
            self.first_stands(entry, true);
        }
        out.frames.push(Frame::Wants(vec![(entry.id, want)]));
    }

    fn carry(&mut self, entry: &Arc<Entry>, out: &mut Outbox<P>) {
        let header = (entry.bytes() > JOURNAL_FILE_BYTES_MIN).then(|| self.journal_header(entry).into());
        let comparing = &self.comparing[&entry.id];
        let (sign, kept) = (comparing.old.sign, comparing.kept.clone());
        let durable = self.record.durability >= Durability::Flushed;
        out.looks.push(Look::Carry { entry: entry.clone(), sign, kept, header, durable });
    }
}
