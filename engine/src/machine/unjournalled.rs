//! What a crash would cost now: bytes that are in the file system but neither in a journal nor under their final name.
//!
//! For: bounding what is sent again after a crash, and the dirty memory a slow disk piles up.
//! In and out: bytes by entry in; "stop taking", "take again" out.
//! Invariants: only what can be journalled or published without another frame counts (journalled chunks, whole files), so a hold always ends; the sum is that of all entries; between the two marks nothing changes, so rails are not switched at every chunk.
//! Absent on purpose: why bytes settle (recv.rs).

use std::collections::HashMap;

use proto::manifest::EntryId;

/// Above this much, rails take no new frames: what one flush carries is on its way to the disk, as much again fills. A flush interval is
/// shorter, but while a slow disk is at one, the next grows.
pub const HOLD_BYTES: u64 = 256 << 20;
/// Below this much they take them again.
const GO_ON_BYTES: u64 = HOLD_BYTES / 2;

/// See the module.
#[derive(Debug)]
pub(crate) struct UnjournalledBytes {
    by_entry: HashMap<EntryId, u64>,
    sum: u64,
    held: bool,
    marks: (u64, u64),
}

impl Default for UnjournalledBytes {
    fn default() -> Self {
        UnjournalledBytes { by_entry: HashMap::new(), sum: 0, held: false, marks: (HOLD_BYTES, GO_ON_BYTES) }
    }
}

impl UnjournalledBytes {
    /// Bytes of an entry reached the file system.
    pub(crate) fn add(&mut self, entry: EntryId, bytes: u64) {
        *self.by_entry.entry(entry).or_default() += bytes;
        self.sum += bytes;
    }

    /// So many bytes of an entry are in its journal.
    pub(crate) fn on_journalled(&mut self, entry: EntryId, bytes: u64) {
        if let Some(left) = self.by_entry.get_mut(&entry) {
            let less = bytes.min(*left);
            *left -= less;
            self.sum -= less;
        }
    }

    /// The entry is published, or given up.
    pub(crate) fn settle(&mut self, entry: EntryId) {
        self.sum -= self.by_entry.remove(&entry).unwrap_or(0);
    }

    /// Stops above `bytes`, goes on below half of that.
    pub(crate) fn bound(&mut self, bytes: u64) {
        self.marks = (bytes, bytes / 2);
    }

    /// A change of mind, if there is one: `Some(true)` is stop.
    pub(crate) fn hold(&mut self) -> Option<bool> {
        let (stop, go_on) = self.marks;
        let hold = if self.held { self.sum > go_on } else { self.sum > stop };
        (std::mem::replace(&mut self.held, hold) != hold).then_some(hold)
    }
}
