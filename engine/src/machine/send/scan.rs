//! What the scan found, announced to the receiver.
//!
//! For: the sending end's entries, in the order in which they were met.
//! In and out: batches of the scan in; `Names`, `Entries`, `Unseen` and `ScanEnd` out.
//! Invariants: users and groups go before the entries that have them; totals go with the end of the scan.
//! Absent on purpose: walking (`tree::scan`), the window of unresolved entries (`proto::send`).

use proto::manifest::{ENTRY_PATH_BYTES_MAX, Entry};
use proto::wire::control::{Frame, IdName, STEP_BYTES_MAX, Unnamed};

use super::SendEnd;
use crate::job::fault_kind;
use crate::machine::{Outbox, fault};
use crate::platform::Platform;

impl<P: Platform> SendEnd<P> {
    /// Entries that may be announced now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.machine.room()
    }

    /// The scan met these users and groups, before the entries that have them.
    pub fn names(&mut self, names: Vec<IdName>, unnamed: Unnamed, out: &mut Outbox<P>) {
        self.record.unnamed = unnamed;
        if !names.is_empty() {
            out.frames.push(Frame::Names(names));
        }
    }

    /// The scan found these.
    pub fn scan(&mut self, batch: Vec<Entry>, out: &mut Outbox<P>) {
        let entries: Vec<Entry> = batch
            .into_iter()
            .map(|entry| {
                self.record.announced(&entry);
                (*self.machine.announce(entry)).clone()
            })
            .collect();
        if !entries.is_empty() {
            out.frames.push(Frame::Entries(entries));
        }
    }

    /// The scan could not look at this place.
    pub fn scan_fault(&mut self, path: &[u8], error: &std::io::Error, out: &mut Outbox<P>) {
        self.scan_faults += 1;
        // What is no system call's error says itself what it is.
        let own = error.get_ref().map(|it| it.to_string()).filter(|it| it.len() <= STEP_BYTES_MAX);
        let fault = fault(u64::MAX, fault_kind(error, true), Some(error), own.as_deref().unwrap_or("scan"));
        let shown = &path[..path.len().min(ENTRY_PATH_BYTES_MAX)];
        out.frames.push(Frame::Unseen(vec![(fault.clone(), shown.into())]));
        self.record.failed(fault, path, false);
    }

    /// The scan is over.
    pub fn scan_ended(&mut self, out: &mut Outbox<P>) {
        self.machine.scan_ended();
        self.record.tally.scan_ended = true;
        self.announced_end = true;
        let tally = &self.record.tally;
        out.frames.push(Frame::ScanEnd {
            entries: self.machine.announced(),
            files: tally.files_total,
            bytes: tally.bytes_total,
            faults: self.scan_faults,
        });
    }
}
