//! Entries announced: what stands at each one's place, and so what is wanted of it.
//!
//! For: the receiving end, from an entry's announcement to its `Want`.
//! In and out: batches of `Entries` in; `Wants` to the sender and `Expect` to workers out.
//! Invariants: `Expect` goes to workers before `Want` goes to the sender; what was not preserved of an entry is told before the answer that
//! resolves it.
//! Absent on purpose: parts of an earlier run (`parts`), comparing versions (`compare`).

use std::sync::Arc;

use proto::ledger::{CHUNKS_MAX, chunk_count};
use proto::manifest::{Entry, EntryId, EntryKind};
use proto::wire::control::{Compare, FaultKind, Frame, Want};

use super::RecvEnd;
use super::carried::carried_key;
use crate::job::{Cmd, fault_kind};
use crate::machine::names::Further;
use crate::machine::{Outbox, Stop, fault};
use crate::platform::{Found, Owners, Platform, SinkTree, VolumeSet};

/// Why a further name of a file cannot be.
const FIRST_FAILED: &str = "name a file whose first name failed";

impl<P: Platform> RecvEnd<P> {
    /// Which files that stand there are compared by content from now on.
    pub fn compare_by(&mut self, compare: Compare) {
        self.compare = compare;
    }

    pub(super) fn on_entries(&mut self, entries: Vec<Entry>, out: &mut Outbox<P>) -> Result<(), Stop> {
        let mut wants = Vec::new();
        let mut expect = Vec::new();
        for mut entry in entries {
            if let Some(owners) = self.sink.owners() {
                owners.localize(&mut entry);
            }
            let entry = self.machine.on_entry(entry)?;
            self.record.announced(&entry);
            self.prune.announced(&entry);
            self.names.announced(&entry)?;
            match entry.kind {
                EntryKind::FolderEnd => {}
                EntryKind::Folder | EntryKind::Link { .. } | EntryKind::Node { .. } => self.make(&entry),
                EntryKind::Name { .. } => match self.names.further(&entry)? {
                    Further::Make => self.make(&entry),
                    Further::Wait => {}
                    Further::Fail => self.fail(entry.id, FaultKind::Other, None, FIRST_FAILED),
                },
                EntryKind::File { .. } => {
                    if let Some(want) = self.look(&entry, out) {
                        if matches!(want, Want::Compare { .. }) {
                            // The workers are told with the last word on it.
                        } else if self.record.dry {
                            self.coming.remove(&entry.id);
                            if self.resolve(entry.id).is_some() {
                                self.record.tally.files_done += 1;
                                self.first_stands(&entry, true);
                            }
                        } else if !matches!(want, Want::Keep { .. }) {
                            expect.push(entry.clone());
                        }
                        wants.push((entry.id, want));
                    }
                }
            }
        }
        if !expect.is_empty() {
            for worker in 0..self.workers {
                out.cmds.push((worker, Cmd::Expect { job: self.job, entries: expect.clone() }));
            }
        }
        // Before the answer that resolves the entry.
        self.tell_unkept(out);
        if !wants.is_empty() {
            out.frames.push(Frame::Wants(wants));
        }
        Ok(())
    }

    /// What the sink could not keep since it was last asked, while its entries are not resolved.
    fn take_unpreserved(&mut self) {
        let from = self.unkept.len();
        if let Some(owners) = self.sink.owners() {
            owners.take_unpreserved(&mut self.unkept);
        }
        for (id, what) in &self.unkept[from..] {
            if let Some(entry) = self.machine.entry(*id) {
                self.record.unkept.add(*what, &entry.path);
            }
        }
    }

    pub(super) fn tell_unkept(&mut self, out: &mut Outbox<P>) {
        self.take_unpreserved();
        if !self.unkept.is_empty() {
            out.frames.push(Frame::Unkept(std::mem::take(&mut self.unkept)));
        }
    }

    /// The entry is resolved, and the sink need not remember it.
    pub(super) fn resolve(&mut self, id: EntryId) -> Option<Arc<Entry>> {
        self.sink.forget(id);
        self.machine.resolve(id)
    }

    /// A first name of several is resolved: the names that waited for it can be made, or not.
    pub(super) fn first_stands(&mut self, entry: &Entry, stands: bool) {
        for further in self.names.resolved(entry, stands) {
            if stands {
                self.make(&further);
            } else {
                self.fail(further.id, FaultKind::Other, None, FIRST_FAILED);
            }
        }
    }

    pub(super) fn make(&mut self, entry: &Arc<Entry>) {
        if self.record.dry {
            self.committed.push((entry.id, [0; 32]));
            self.first_stands(entry, true);
            return;
        }
        match self.sink.make(entry) {
            Ok(()) => {
                self.committed.push((entry.id, [0; 32]));
                self.first_stands(entry, true);
            }
            Err(error) => {
                let step = match entry.kind {
                    EntryKind::Node { .. } => "make the node",
                    EntryKind::Name { .. } => "give the file one more name",
                    _ => "make the folder or link",
                };
                self.fail(entry.id, fault_kind(&error, false), Some(&error), step);
            }
        }
    }

    /// What stands at a file's place, and so what we want of it. None: it cannot be had, or that takes a look.
    fn look(&mut self, entry: &Arc<Entry>, out: &mut Outbox<P>) -> Option<Want> {
        if chunk_count(entry.bytes(), self.record.terms.chunk_bytes) > CHUNKS_MAX {
            self.fail_keeping(fault(entry.id, FaultKind::Unsupported, None, "take a file of so many chunks"), true);
            return None;
        }
        let keep = self.keep && self.compare != Compare::Always;
        match self.sink.inspect(entry, keep, self.record.dry) {
            Err(error) => {
                // Nothing was touched: a part that may be there stays.
                let kind = fault_kind(&error, false);
                self.fail_keeping(fault(entry.id, kind, Some(&error), "look at the destination"), true);
                None
            }
            Ok(Found::Same) => {
                let digest = self
                    .carried
                    .remove(&carried_key(&entry.path))
                    .filter(|known| (known.0, known.1, known.2) == (entry.bytes(), entry.mtime_s, entry.mtime_ns))
                    .map(|known| known.3);
                self.take_unpreserved();
                self.record.kept(entry, digest.as_ref(), false);
                self.resolve(entry.id);
                self.first_stands(entry, true);
                Some(Want::Keep { digest })
            }
            Ok(Found::Nothing) => match self.compare(entry, out) {
                Some(want) => Some(want),
                None if self.begins_clone(entry, out) => None,
                None => Some(self.begin(entry, &[], &[], false)),
            },
            Ok(Found::Parts(journals)) => Some(self.resume(entry, &journals, out)),
            Ok(Found::Busy(owner)) => {
                self.fail_in_use(entry.id, &owner);
                None
            }
        }
    }
}
