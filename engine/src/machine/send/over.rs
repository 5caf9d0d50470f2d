//! A file is read, or an entry is over: committed, or failed here or there.
//!
//! For: what is done and told when nothing more is to go of an entry.
//! In and out: what the machine says is due, `Committed` and faults in; `FileEnd` and faults out.
//! Invariants: a `FileEnd` goes out only after a look at the source that found it unchanged; the receiver's digest of a file must be ours.
//! Absent on purpose: when all of a file is read (`proto::send`).

use proto::error::Breach;
use proto::manifest::EntryId;
use proto::send::FollowUp;
use proto::wire::control::{Digest, EntryFault, FaultKind, Frame};

use super::SendEnd;
use crate::job::{Cmd, fault_kind};
use crate::machine::{Outbox, Stop, fault};
use crate::platform::{Platform, SourceTree};
use crate::seal::digest::DigestTree;

impl<P: Platform> SendEnd<P> {
    pub(super) fn on_committed(&mut self, id: EntryId, digest: &Digest) -> Result<(), Stop> {
        // It may have failed here while the word was on its way: then our `Faults` decides.
        let Some(entry) = self.machine.on_committed(id)? else { return Ok(()) };
        let own = self.digests.remove(&id);
        self.trees.remove(&id);
        self.resumed.remove(&id);
        self.holes.remove(&id);
        if entry.is_file() && own.is_some_and(|own| own != *digest) {
            return Err(Breach::DigestMismatch.into());
        }
        self.source.done(&entry);
        self.record.resolved(&entry, entry.is_file().then_some(digest));
        Ok(())
    }

    pub(super) fn on_peer_fault(&mut self, fault: EntryFault, out: &mut Outbox<P>) -> Result<(), Stop> {
        let id = fault.entry;
        let Some(entry) = self.machine.on_fault(id) else { return Ok(()) };
        self.source.done(&entry);
        self.forget(id, out);
        self.record.failed(fault, &entry.path, true);
        Ok(())
    }

    fn forget(&mut self, id: EntryId, out: &mut Outbox<P>) {
        self.trees.remove(&id);
        self.compared.remove(&id);
        self.resuming.remove(&id);
        self.resumed.remove(&id);
        self.record.tally.holes -= self.holes.remove(&id).unwrap_or(0);
        self.digests.remove(&id);
        for worker in 0..self.workers {
            out.cmds.push((worker, Cmd::Forget { job: self.job, entries: vec![id] }));
        }
    }

    /// An entry fails at this end.
    pub(super) fn give_up(&mut self, fault: EntryFault, out: &mut Outbox<P>) {
        let id = fault.entry;
        let Some(entry) = self.machine.on_fault(id) else { return };
        self.source.done(&entry);
        self.forget(id, out);
        out.frames.push(Frame::Faults(vec![fault.clone()]));
        self.record.failed(fault, &entry.path, false);
    }

    pub(super) fn follow_up(&mut self, due: FollowUp, out: &mut Outbox<P>) {
        match due {
            FollowUp::Nothing => {}
            FollowUp::Corrupt(id) => self.give_up(fault(id, FaultKind::Corrupt, None, "send it again and again"), out),
            FollowUp::CheckSource(id) if self.holds_end(id) => {}
            FollowUp::CheckSource(id) => {
                let Some(entry) = self.machine.entry(id).cloned() else { return };
                match self.source.is_unchanged(&entry) {
                    Ok(true) => {
                        let is_known = self.machine.is_whole(id) || self.resumed.contains_key(&id);
                        let digest = self.trees.get(&id).and_then(DigestTree::root).filter(|_| is_known);
                        if let Some(digest) = digest {
                            self.digests.insert(id, digest);
                        }
                        self.machine.file_ended(id);
                        out.frames.push(Frame::FileEnd { entry: id, digest });
                    }
                    Ok(false) => self.give_up(fault(id, FaultKind::Torn, None, "look at the source again"), out),
                    Err(error) => {
                        let kind = fault_kind(&error, true);
                        self.give_up(fault(id, kind, Some(&error), "look at the source again"), out);
                    }
                }
            }
        }
    }
}
