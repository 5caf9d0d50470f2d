//! The sender's open units: what of each was sent, confirmed, lost.
//!
//! For: which bytes go next, and when a unit is whole at the other end.
//! In and out: units are added at the end; ranges become sent, confirmed or lost.
//! Invariants: a byte waits to be sent again only while nobody confirmed it; slots are used again with their room, so that
//! steady state allocates nothing.
//! Absent on purpose: packet numbers (`flight`), the bytes (engine).

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::ranges::{Ranges, Spare};

/// Where a unit's bytes are.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// In memory. from: Away (reloaded), new; to: Away (unloaded).
    #[default]
    Here,
    /// Only in the source. from: Here; to: Asked.
    Away,
    /// Being read back. from: Away; to: Here.
    Asked,
}

#[derive(Debug, Default)]
pub(super) struct Unit {
    pub(super) bytes: u32,
    /// Bytes below were sent once.
    pub(super) next: u32,
    pub(super) confirmed: Ranges,
    /// Known to be lost, to be sent again.
    pub(super) lost: Ranges,
    pub(super) home: Home,
    /// Say `Fact::Sent` when nothing of it waits.
    pub(super) owes_sent: bool,
    pub(super) whole: bool,
}

/// A ring of units by number.
#[derive(Debug)]
pub(super) struct Units {
    ring: Vec<Unit>,
    /// Slots with bytes to be sent again, one bit each, so that the oldest is found at once.
    repairs: Vec<u64>,
    /// The oldest unit that is not whole.
    base: u32,
    /// The number of the next unit added.
    next: u32,
    /// The oldest unit that was not sent to its end.
    fresh: u32,
    /// Units not whole.
    open: u32,
    /// Units with bytes to be sent again.
    repairing: u32,
    /// Sets of units that are whole.
    spare: Spare,
}

impl Units {
    pub(super) fn new() -> Self {
        let mut units = Units {
            ring: Vec::new(),
            repairs: Vec::new(),
            base: 0,
            next: 0,
            fresh: 0,
            open: 0,
            repairing: 0,
            spare: Spare::default(),
        };
        units.ring.resize_with(64, Unit::default);
        units.repairs.resize(1, 0);
        units
    }

    pub(super) const fn next(&self) -> u32 {
        self.next
    }

    /// Units from the oldest that is not whole to the newest.
    pub(super) const fn span(&self) -> u32 {
        self.next - self.base
    }

    pub(super) const fn open(&self) -> u32 {
        self.open
    }

    pub(super) const fn repairing(&self) -> u32 {
        self.repairing
    }

    const fn slot(&self, unit: u32) -> usize {
        unit as usize & (self.ring.len() - 1)
    }

    /// An open unit.
    pub(super) fn get(&mut self, unit: u32) -> Option<&mut Unit> {
        let slot = self.slot(unit);
        (unit >= self.base && unit < self.next).then(|| &mut self.ring[slot]).filter(|unit| !unit.whole)
    }

    pub(super) fn add(&mut self, bytes: u32) -> u32 {
        if (self.next - self.base) as usize == self.ring.len() {
            self.grow();
        }
        let (number, slot) = (self.next, self.slot(self.next));
        let unit = &mut self.ring[slot];
        unit.bytes = bytes;
        unit.next = 0;
        unit.confirmed = self.spare.take();
        unit.lost = self.spare.take();
        unit.home = Home::Here;
        unit.owes_sent = true;
        unit.whole = false;
        self.next += 1;
        self.open += 1;
        number
    }

    /// Twice as many slots. Happens while the path fills, not after.
    fn grow(&mut self) {
        let mut ring = Vec::new();
        let slots = self.ring.len() * 2;
        ring.resize_with(slots, Unit::default);
        let mut repairs = vec![0_u64; slots / 64];
        for number in self.base..self.next {
            let slot = self.slot(number);
            let to = number as usize & (slots - 1);
            ring[to] = core::mem::take(&mut self.ring[slot]);
            if !ring[to].lost.is_empty() {
                repairs[to / 64] |= 1 << (to % 64);
            }
        }
        self.ring = ring;
        self.repairs = repairs;
    }

    /// Nothing of this unit is known to be at the other end. Of one that is closed, something is.
    pub(super) fn is_unarrived(&mut self, number: u32) -> bool {
        self.get(number).is_some_and(|unit| unit.confirmed.is_empty())
    }

    /// The unit's bytes are gone from memory: what was never sent of it waits to be sent again. False, and nothing changes: an older unit has to be
    /// sent first.
    pub(super) fn forget_fresh(&mut self, number: u32) -> bool {
        let fresh = self.fresh;
        let Some(unit) = self.get(number) else { return false };
        let rest = unit.next..unit.bytes;
        if rest.is_empty() {
            return true;
        }
        if number != fresh {
            return false;
        }
        unit.next = unit.bytes;
        self.fresh += 1;
        self.lose(number, rest);
        true
    }

    /// The oldest unit of which something was never sent.
    pub(super) fn oldest_fresh(&mut self) -> Option<u32> {
        (self.fresh < self.next).then_some(self.fresh)
    }

    /// The next `max` bytes of that unit leave for the first time; whether that was its end.
    pub(super) fn take_fresh(&mut self, max: u32) -> (Range<u32>, bool) {
        let slot = self.slot(self.fresh);
        let unit = &mut self.ring[slot];
        let range = unit.next..unit.bytes.min(unit.next.saturating_add(max));
        unit.next = range.end;
        let ended = unit.next == unit.bytes;
        if ended {
            self.fresh += 1;
        }
        (range, ended)
    }

    /// Bytes that did not leave after all. First sendings roll back where they were the newest, so that order is kept.
    pub(super) fn give_back(&mut self, number: u32, range: Range<u32>, repair: bool) {
        let fresh = self.fresh;
        let Some(unit) = self.get(number) else { return };
        if !repair && unit.next == range.end && number + 1 >= fresh && number <= fresh {
            unit.next = range.start;
            unit.owes_sent = true;
            self.fresh = number;
        } else {
            unit.owes_sent |= unit.home == Home::Here;
            self.lose(number, range);
        }
    }

    /// These bytes must go again, but for those that are confirmed.
    pub(super) fn lose(&mut self, number: u32, range: Range<u32>) {
        let slot = self.slot(number);
        let Some(unit) = self.get(number) else { return };
        let before = unit.lost.is_empty();
        let Unit { confirmed, lost, .. } = unit;
        if confirmed.is_empty() || confirmed.end() <= range.start {
            lost.insert(range);
        } else {
            for gap in confirmed.gaps(range) {
                lost.insert(gap);
            }
        }
        if before && !unit.lost.is_empty() {
            self.repairs[slot / 64] |= 1 << (slot % 64);
            self.repairing += 1;
        }
    }

    /// The receiver has these bytes; `true` if it has the whole unit now.
    pub(super) fn confirm(&mut self, number: u32, range: Range<u32>) -> bool {
        let slot = self.slot(number);
        let Some(unit) = self.get(number) else { return false };
        unit.confirmed.insert(range.clone());
        if !unit.lost.is_empty() {
            unit.lost.remove(range);
            if unit.lost.is_empty() {
                self.repairs[slot / 64] &= !(1 << (slot % 64));
                self.repairing -= 1;
            }
        }
        let unit = &mut self.ring[slot];
        if unit.confirmed.bytes() < unit.bytes {
            return false;
        }
        unit.whole = true;
        for set in [core::mem::take(&mut unit.lost), core::mem::take(&mut unit.confirmed)] {
            self.spare.give_back(set);
        }
        self.open -= 1;
        while self.base < self.next && self.ring[self.slot(self.base)].whole {
            self.base += 1;
        }
        true
    }

    /// Does the receiver have these bytes of a unit? Of one that is closed, it does.
    pub(super) fn is_confirmed(&mut self, number: u32, range: Range<u32>) -> bool {
        self.get(number).is_none_or(|unit| unit.confirmed.contains(range))
    }

    /// The oldest unit after `after` (or from the beginning) with bytes to be sent again.
    pub(super) fn oldest_repair(&self, after: Option<u32>) -> Option<u32> {
        if self.repairing == 0 {
            return None;
        }
        let mut number = after.map_or(self.base, |after| after + 1);
        while number < self.next {
            let slot = self.slot(number);
            // The rest of this word of bits, oldest first: slots of a word are consecutive numbers.
            let word = self.repairs[slot / 64] >> (slot % 64);
            if word != 0 {
                let found = number + word.trailing_zeros();
                return (found < self.next).then_some(found);
            }
            number += 64 - (slot % 64) as u32;
        }
        None
    }

    /// Takes up to `max` lost bytes of this unit to send them again.
    pub(super) fn take_lost(&mut self, number: u32, max: u32) -> Option<Range<u32>> {
        let slot = self.slot(number);
        let unit = self.get(number)?;
        let range = unit.lost.take_last(max)?;
        if unit.lost.is_empty() {
            self.repairs[slot / 64] &= !(1 << (slot % 64));
            self.repairing -= 1;
        }
        Some(range)
    }

    /// `Fact::Sent` is due: all went out, nothing waits. Asked after each burst of the unit.
    pub(super) fn take_sent(&mut self, number: u32) -> bool {
        let Some(unit) = self.get(number) else { return false };
        let due = unit.owes_sent && unit.next == unit.bytes && unit.lost.is_empty();
        unit.owes_sent &= !due;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrived_late_does_not_go_again() {
        let mut units = Units::new();
        let unit = units.add(1000);
        units.take_fresh(1000);
        units.lose(unit, 0..800);
        assert!(!units.confirm(unit, 300..1000), "its beginning is missing");
        assert_eq!((units.take_lost(unit, 1000), units.take_lost(unit, 1000)), (Some(0..300), None));
        // All of what was lost: nothing is left to be repaired.
        units.lose(unit, 0..300);
        assert_eq!(units.repairing(), 1);
        assert!(units.confirm(unit, 0..300));
        assert_eq!((units.repairing(), units.open()), (0, 0));
    }
}
