//! Large files, chunk by chunk: of those that are sent side by side, which chunk is next.
//!
//! For: `Sender::next_chunk`.
//! In and out: files with ranges that are wanted in, units out; units that were never sent come back.
//! Invariants: files of as many volumes as can be are open side by side; a file that goes to one disk of several has no more on its way than
//! that disk may hold; nothing is handed out that is not mapped.
//! Absent on purpose: small files (packs), which rail takes it.

use super::{Item, Sender, State, Unit, View};
use crate::ledger::chunk_len;
use crate::manifest::EntryId;
use crate::wire::control::ChunkRange;

/// Chunks on their way of all files that are sent side by side, and of each at least. A receiver of 256 MiB has some 60 bufs: a volume that
/// hardly moves must not fill them, or it stops all others (16 volumes, one at a tenth: the job stood still for it, 2026-11).
const FLYING: usize = 48;
const FLYING_MIN: usize = 4;

/// What a file has next.
enum Next {
    Chunk(u64),
    /// It is not known yet where it has holes, or on which volumes it stands.
    Unmapped,
    Nothing,
}

impl Item {
    fn next(&mut self, view: View<'_>) -> Next {
        let State::Reading { ranges, mapped, .. } = &mut self.state else { return Next::Nothing };
        // Of a file with lanes these were handed out before.
        if let Some(range) = ranges.front_mut() {
            if self.lanes.is_none() && (self.entry.meta.striped || range.first >= *mapped) {
                return Next::Unmapped;
            }
            let index = range.first;
            range.first += 1;
            if range.first == range.end {
                ranges.pop_front();
            }
            return Next::Chunk(index);
        }
        let Some(lanes) = &mut self.lanes else { return Next::Nothing };
        match lanes.best(view) {
            Some((_, index)) if index >= *mapped => Next::Unmapped,
            Some((_, index)) => {
                lanes.take(index);
                Next::Chunk(index)
            }
            None => Next::Nothing,
        }
    }

    /// Is there nothing of it left to hand out?
    fn is_out(&self) -> bool {
        let State::Reading { ranges, .. } = &self.state else { return true };
        ranges.is_empty() && self.lanes.as_ref().is_none_or(|lanes| lanes.left() == 0)
    }
}

impl Sender {
    /// How much of a file is on its way, where it counts: at the volume that has its next chunk, if it stands on several and goes to one
    /// place. A file on a volume far from the rail counts more.
    fn pressure(&self, id: EntryId, rail: u16) -> usize {
        let Some(item) = self.items.get(&id) else { return 0 };
        let view = self.near.view(rail, &self.reading);
        match &item.lanes {
            Some(lanes) if !self.spreads_out => lanes.best(view).map_or(0, |(reading, _)| reading),
            Some(_) => item.flying,
            None => item.flying + view.way(usize::from(item.entry.meta.volume)),
        }
    }

    /// Has a file that goes to one disk of several as much on its way as that disk may hold?
    fn is_full(&self, id: EntryId) -> bool {
        let Some(item) = self.items.get(&id) else { return false };
        let has_bound = self.spread > 1 && (self.spreads_out || item.lanes.is_none());
        has_bound && item.flying >= (FLYING / self.spread).max(FLYING_MIN)
    }

    pub(super) fn next_range(&mut self, rail: u16) -> Option<Unit> {
        loop {
            self.open_more();
            let least =
                self.open.iter().enumerate().min_by_key(|(_, id)| (self.is_full(**id), self.pressure(**id, rail)));
            let (place, id) = least.map(|(place, &id)| (place, id))?;
            if self.is_full(id) {
                return None; // all that are open have as much on their way as one volume may hold of the receiver's bufs
            }
            let Some(item) = self.items.get_mut(&id) else {
                self.open.remove(place);
                continue;
            };
            let next = item.next(self.near.view(rail, &self.reading));
            let (entry, is_out) = (item.entry.clone(), item.is_out());
            if is_out || matches!(next, Next::Nothing) {
                self.open.remove(place); // the next may begin while the last chunks of this one are on their way
            }
            match next {
                Next::Nothing => {}
                Next::Unmapped => {
                    self.unmapped = Some(id);
                    return None;
                }
                Next::Chunk(index) => {
                    let offset = index * u64::from(self.chunk_bytes);
                    let bytes = chunk_len(entry.bytes(), self.chunk_bytes, index);
                    return Some(Unit::Range { entry, index, offset, bytes });
                }
            }
        }
    }

    /// As many files as there may be side by side, from as many volumes as can be.
    fn open_more(&mut self) {
        while self.open.len() < self.spread {
            let on = |volume: u16| {
                let of = |id: &&EntryId| self.items.get(id).is_some_and(|it| it.entry.meta.volume == volume);
                self.open.iter().filter(of).count()
            };
            // With one volume there is nothing to count.
            let next = if self.large.len() > 1 {
                self.large.keys().copied().min_by_key(|&volume| on(volume))
            } else {
                self.large.keys().copied().next()
            };
            let Some(volume) = next else { return };
            let waiting = self.large.get_mut(&volume).expect("one of the keys");
            let id = waiting.pop_front();
            if waiting.is_empty() {
                self.large.remove(&volume);
            }
            self.open.extend(id.filter(|id| !self.open.contains(id)));
        }
    }

    /// Never read, so never sent: back to its file, to count as read when it is.
    pub(super) fn take_back(&mut self, unit: &Unit) {
        if let Unit::Range { entry, index, .. } = unit {
            if let Some(Item { state: State::Reading { ranges, .. }, .. }) = self.items.get_mut(&entry.id) {
                ranges.push_front(ChunkRange { first: *index, end: *index + 1 });
                self.large.entry(entry.meta.volume).or_default().push_front(entry.id);
            }
        } else if let Unit::Pack { entries } = unit {
            for entry in entries.iter().rev() {
                self.small.push_front(entry.id);
            }
        }
    }

    /// The volume of the source that a unit is read from; a pack's first file stands for all.
    pub(super) fn volume_of(&self, unit: &Unit) -> u16 {
        match unit {
            Unit::Range { entry, index, .. } => {
                let lanes = self.items.get(&entry.id).and_then(|item| item.lanes.as_ref());
                lanes.and_then(|lanes| lanes.volume_of(*index)).unwrap_or(entry.meta.volume)
            }
            Unit::Pack { entries } => entries.first().map_or(0, |entry| entry.meta.volume),
        }
    }

    /// So many chunks more are being read from this volume.
    pub(super) fn reading_on(&mut self, volume: u16, more: isize) {
        let volume = usize::from(volume);
        if self.reading.len() <= volume {
            self.reading.resize(volume + 1, 0);
        }
        self.reading[volume] = self.reading[volume].saturating_add_signed(more);
    }
}
