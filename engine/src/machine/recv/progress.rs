//! What was written and not flushed: noted, so that a kill of this process costs next to nothing.
//!
//! For: parts whose flushes take their time. A killed process leaves what it wrote in the kernel's memory; all that is lost is who knew it.
//! In and out: chunks that landed → records of notes.
//! Invariants: one note of a part at a time, and none is on its way when its journal goes; a flush covers only what has its note.
//! Absent on purpose: parts of striped files, whose journals stay as maps; flushes (parts.rs).

use proto::journal;
use proto::manifest::EntryId;

use super::RecvEnd;
use super::coming::{Fresh, Noting};
use crate::machine::Outbox;
use crate::platform::Platform;
use crate::tree::commit::Task;

impl<P: Platform> RecvEnd<P> {
    pub(super) fn pump_notes(&mut self, now_ns: u64, out: &mut Outbox<P>) {
        let mut due: Vec<(EntryId, usize)> = Vec::new();
        for (&id, coming) in self.coming.iter().filter(|(_, it)| it.journalled && it.noting() == Noting::Before) {
            if !self.noting.contains(&id) {
                // What is due to be flushed goes first, or notes that come fast would never let it.
                let is_due = |it: &Fresh| it.is_note_due(now_ns) && !it.is_due(now_ns, false, Noting::Before);
                due.extend(coming.fresh.iter().filter(|(_, it)| is_due(it)).map(|(&volume, _)| (id, volume)));
            }
        }
        due.sort_unstable(); // the same facts give the same order
        for (id, volume) in due {
            let Some(entry) = self.machine.entry(id).cloned() else { continue };
            let own = self.journal_header(&entry);
            let coming = self.coming.get_mut(&id).expect("listed above");
            let fresh = coming.fresh.get_mut(&volume).expect("listed above");
            let mut records = Vec::new();
            let header = !std::mem::replace(&mut fresh.header_written, true);
            if header {
                records.extend_from_slice(&journal::encode_header(&own));
            }
            let mut chunks = fresh.take_unnoted();
            chunks.sort_unstable_by_key(|(index, _)| *index);
            journal::encode_runs(&chunks, journal::encode_noted, &mut records);
            self.noting.insert(id);
            out.tasks.push(Task::Note { volume, entry, records, header });
        }
    }

    /// Does nobody make or remove anything of a file that is over?
    pub(super) fn is_calm(&self) -> bool {
        let are_of_open = || self.noting.iter().all(|&id| self.machine.entry(id).is_some());
        self.discarding + self.discards.len() == 0 && are_of_open()
    }

    /// A note stands, or could not be put: then a kill costs more, and the next flush says what is wrong.
    pub(super) fn on_noted(&mut self, volume: usize, id: EntryId, header: bool, stands: bool) {
        self.noting.remove(&id);
        let Some(coming) = self.coming.get_mut(&id) else { return };
        if let Some(fresh) = coming.fresh.get_mut(&volume).filter(|_| header && !stands) {
            fresh.header_written = false;
        }
        self.is_ready_at_last(id);
    }

    /// May a file that has all its chunks be published? Of a striped one the journals must know all of it. Of any other nothing is on its way:
    /// a flush that failed says so once, and whoever flushes again hears nothing.
    pub(super) fn is_free(&self, id: EntryId) -> bool {
        let Some(coming) = self.coming.get(&id) else { return false };
        if coming.striped { coming.is_flushed() } else { !self.noting.contains(&id) && !coming.is_flushing() }
    }

    /// A flush or a note is back: was it the last that the file waited for?
    pub(super) fn is_ready_at_last(&mut self, id: EntryId) {
        let closing = self.coming.get(&id).is_some_and(|coming| coming.closing);
        if closing
            && self.is_free(id)
            && let Some(entry) = self.machine.entry(id)
        {
            self.ready.push(entry.clone());
        }
    }
}
