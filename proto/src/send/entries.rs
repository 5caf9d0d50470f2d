//! Entries of a sending job, from announced to resolved.
//!
//! For: the window of entries that both ends remember.
//! In and out: entries of the scan and what became of them in; how many more there may be out.
//! Invariants: at most `WINDOW` entries and `WINDOW_NAME_BYTES` of names are unresolved; ids count up from 0 and none is used twice.
//! Absent on purpose: what is wanted of an entry (`wants`), chunks (`send`).

use alloc::sync::Arc;

use super::{Item, Sender, State};
use crate::error::Breach;
use crate::manifest::{Entry, EntryId};
use crate::{WINDOW, WINDOW_NAME_BYTES};

impl Sender {
    /// How many more entries may be announced now.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.name_bytes >= WINDOW_NAME_BYTES { 0 } else { WINDOW.saturating_sub(self.items.len()) }
    }

    /// Takes the next entry of the scan; its id is set here. The caller sends it in an `Entries` frame.
    pub fn announce(&mut self, mut entry: Entry) -> Arc<Entry> {
        assert!(!self.scan_ended, "entries after the end of the scan");
        entry.id = self.next_entry;
        self.next_entry += 1;
        let entry = Arc::new(entry);
        self.name_bytes += entry.window_bytes();
        self.items.insert(
            entry.id,
            Item { entry: entry.clone(), state: State::Announced, retries: 0, flying: 0, lanes: None },
        );
        entry
    }

    /// No more entries.
    pub fn scan_ended(&mut self) {
        self.scan_ended = true;
    }

    /// Entries announced so far.
    #[must_use]
    pub fn announced(&self) -> u64 {
        self.next_entry
    }

    /// Was the whole file sent in this run (so that its digest is known here)?
    #[must_use]
    pub fn is_whole(&self, id: EntryId) -> bool {
        matches!(self.items.get(&id), Some(Item { state: State::Reading { whole: true, .. }, .. }))
    }

    /// The caller has looked at the source and sent `FileEnd`.
    pub fn file_ended(&mut self, id: EntryId) {
        if let Some(item) = self.items.get_mut(&id) {
            item.state = State::Ended;
        }
    }

    /// Entries are resolved at the receiver.
    pub fn on_committed(&mut self, id: EntryId) -> Result<Option<Arc<Entry>>, Breach> {
        if id >= self.next_entry {
            return Err(Breach::EntryUnknown);
        }
        Ok(self.resolve(id))
    }

    /// An entry has failed, here or there.
    pub fn on_fault(&mut self, id: EntryId) -> Option<Arc<Entry>> {
        self.resolve(id)
    }

    pub(super) fn resolve(&mut self, id: EntryId) -> Option<Arc<Entry>> {
        let item = self.items.remove(&id)?;
        self.name_bytes -= item.entry.window_bytes();
        Some(item.entry)
    }

    /// The entry, while it is unresolved.
    #[must_use]
    pub fn entry(&self, id: EntryId) -> Option<&Arc<Entry>> {
        self.items.get(&id).map(|item| &item.entry)
    }

    /// Everything announced is resolved and the scan is over.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.scan_ended && self.items.is_empty()
    }

    /// The largest file that is being sent: a range of it was handed out.
    #[must_use]
    pub fn largest_open(&self) -> Option<&Arc<Entry>> {
        let open = self.items.values().filter(|item| item.flying > 0 && item.entry.is_file());
        open.map(|item| &item.entry).max_by_key(|entry| entry.bytes())
    }

    /// Entries unresolved and chunks outstanding, for the watchdog's sentence.
    #[must_use]
    pub fn open_counts(&self) -> (usize, usize) {
        (self.items.len(), self.out.len())
    }
}
