//! An entry is over: published, or failed.
//!
//! For: what is done and told when nothing more is to come of an entry.
//! In and out: whole files and faults in; publishing tasks, discards, `Committed` and faults out.
//! Invariants: what failed leaves nothing behind, but parts worth going on from; what failed meanwhile is told as failed, never as done.
//! Absent on purpose: when a file is whole (`recv.rs`).

use std::io;
use std::sync::Arc;

use proto::manifest::{Entry, EntryId};
use proto::wire::control::{Durability, EntryFault, FaultKind, Frame};

use super::RecvEnd;
use crate::machine::{Outbox, fault};
use crate::platform::{Platform, VolumeSet};
use crate::tree::commit::{JOURNAL_FILE_BYTES_MIN, Task};

/// Files in one publishing batch, at most: beyond, a fault of the disk is told late.
const ENTRIES_PER_BATCH_MAX: usize = 2048;

impl<P: Platform> RecvEnd<P> {
    pub(super) fn fail(&mut self, id: EntryId, kind: FaultKind, error: Option<&io::Error>, step: &str) {
        self.fail_with(fault(id, kind, error, step));
    }

    pub(super) fn fail_with(&mut self, fault: EntryFault) {
        // A full disk keeps a large part: the next run goes on from it. Of a striped file the other disks have most, whatever one said.
        let is_striped = self.machine.entry(fault.entry).is_some_and(|entry| entry.meta.striped);
        let keep = fault.kind == FaultKind::Full || (is_striped && fault.kind != FaultKind::Corrupt);
        self.fail_keeping(fault, keep);
    }

    pub(super) fn fail_keeping(&mut self, fault: EntryFault, keep: bool) {
        let Some(entry) = self.machine.resolve(fault.entry) else { return };
        self.let_go(&entry, keep);
        self.record.failed(fault.clone(), &entry.path, false);
        self.faults.push(fault);
    }

    /// Another job writes this file, with whatever part there is.
    pub(super) fn fail_in_use(&mut self, id: EntryId, owner: &str) {
        let owner = if owner.is_empty() { "another job".to_owned() } else { format!("another job ({owner})") };
        let fault = EntryFault { entry: id, kind: FaultKind::InUse, errno: 0, step: format!("{owner} writes it now") };
        self.fail_keeping(fault, true);
    }

    /// The entry is over. Only parts with a journal are worth keeping.
    pub(super) fn let_go(&mut self, entry: &Arc<Entry>, keep: bool) {
        let volume = self.sink.volume_of(entry.id);
        self.sink.forget(entry.id);
        self.unjournalled.settle(entry.id);
        self.record.tally.holes -= self.coming.remove(&entry.id).map_or(0, |coming| coming.holes);
        self.comparing.remove(&entry.id);
        self.cloning.remove(&entry.id);
        self.reading_back.remove(&entry.id);
        self.digests.remove(&entry.id);
        self.forget.push(entry.id);
        self.ready.retain(|it| it.id != entry.id);
        self.first_stands(entry, false);
        if entry.is_file() && !(keep && entry.bytes() > JOURNAL_FILE_BYTES_MIN) {
            if entry.meta.striped {
                self.discards.extend((0..self.sink.volumes()).map(|volume| (volume, entry.clone())));
            } else {
                self.discards.push((volume, entry.clone()));
            }
        }
    }

    pub(super) fn published(&mut self, entry: &Arc<Entry>) {
        let Some(digest) = self.digests.remove(&entry.id) else { return };
        let flushed = self.coming.remove(&entry.id).map_or(0, |coming| coming.durable_bytes);
        if self.record.durability >= Durability::Flushed {
            // Whole chunks were counted as they were flushed; the last may be short.
            self.record.tally.durable = (self.record.tally.durable + entry.bytes()).saturating_sub(flushed);
        }
        self.unjournalled.settle(entry.id);
        self.forget.push(entry.id);
        self.committed.push((entry.id, digest));
        self.first_stands(entry, true);
    }

    /// A batch of whole files for each volume that has none on its way.
    pub(super) fn pump_published(&mut self, out: &mut Outbox<P>) {
        if self.ready.is_empty() || self.publishing.iter().all(|&busy| busy) {
            return;
        }
        let mut batches: Vec<Vec<Arc<Entry>>> = vec![Vec::new(); self.publishing.len()];
        self.ready.retain(|entry| {
            let volume = self.sink.volume_of(entry.id);
            let takes = !self.publishing[volume] && batches[volume].len() < ENTRIES_PER_BATCH_MAX;
            if takes {
                batches[volume].push(entry.clone());
            }
            !takes
        });
        for (volume, entries) in batches.into_iter().enumerate().filter(|(_, entries)| !entries.is_empty()) {
            self.publishing[volume] = true;
            out.tasks.push(Task::Publish { volume, entries, durability: self.record.durability });
        }
    }

    pub(super) fn pump_committed(&mut self, out: &mut Outbox<P>) {
        self.tell_unkept(out);
        if self.committed.is_empty() {
            return;
        }
        let (machine, record, sink) = (&mut self.machine, &mut self.record, &self.sink);
        // What failed meanwhile is told as failed.
        self.committed.retain(|(id, digest)| {
            let entry = machine.resolve(*id);
            sink.forget(*id);
            if let Some(entry) = &entry {
                record.resolved(entry, entry.is_file().then_some(digest));
            }
            entry.is_some()
        });
        for list in self.committed.chunks(4096) {
            out.frames.push(Frame::Committed(list.to_vec()));
        }
        self.committed.clear();
    }
}
