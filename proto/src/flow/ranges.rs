//! Sets of byte ranges of one unit.
//!
//! For: what of a unit arrived, is confirmed, or waits to be sent again.
//! In and out: ranges in, ranges out.
//! Invariants: sorted, none empty, none touching; room once taken is kept for the next unit.
//! Absent on purpose: trees: bytes mostly come in order, so that nearly every insertion is at the end.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

/// Ranges that a set has room for at first: nearly every unit of a clean path is one or two.
const ROOM_FIRST: usize = 4;
/// ... and when these are not enough: a unit of 1 MiB at 10 % loss is in 66 pieces, hardly ever in more than 100.
const ROOM: usize = 124;

/// A set of `u32` as ranges.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    list: Vec<(u32, u32)>,
    bytes: u32,
}

impl Ranges {
    /// Bytes in the set.
    pub(super) const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// How many ranges.
    pub(super) const fn count(&self) -> usize {
        self.list.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Where the last range ends; 0 if there is none.
    pub(super) fn end(&self) -> u32 {
        self.list.last().map_or(0, |last| last.1)
    }

    /// Empties it; the room stays.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.bytes = 0;
    }

    /// Adds a range; how many of its bytes were new.
    pub(super) fn insert(&mut self, range: Range<u32>) -> u32 {
        if range.is_empty() {
            return 0;
        }
        let end = self.end();
        if range.start >= end {
            let bytes = range.end - range.start;
            match self.list.last_mut() {
                Some(last) if last.1 == range.start => last.1 = range.end,
                _ => {
                    self.widen();
                    self.list.push((range.start, range.end));
                }
            }
            self.bytes += bytes;
            return bytes;
        }
        self.insert_inside(range)
    }

    /// Room for one more, taken in few large steps.
    fn widen(&mut self) {
        if self.list.len() == self.list.capacity() {
            let more = if self.list.is_empty() { ROOM_FIRST } else { self.list.len().max(ROOM) };
            self.list.reserve_exact(more);
        }
    }

    fn insert_inside(&mut self, range: Range<u32>) -> u32 {
        // The ranges that `range` overlaps or touches: first..past.
        let first = self.list.partition_point(|known| known.1 < range.start);
        let past = first + self.list[first..].partition_point(|known| known.0 <= range.end);
        if first == past {
            self.widen();
            self.list.insert(first, (range.start, range.end));
            self.bytes += range.end - range.start;
            return range.end - range.start;
        }
        let had: u32 = self.list[first..past].iter().map(|known| known.1 - known.0).sum();
        let joined = (self.list[first].0.min(range.start), self.list[past - 1].1.max(range.end));
        self.list[first] = joined;
        self.list.drain(first + 1..past);
        let new = joined.1 - joined.0 - had;
        self.bytes += new;
        new
    }

    /// Are all bytes of `range` in it?
    pub(super) fn contains(&self, range: Range<u32>) -> bool {
        if range.is_empty() {
            return true;
        }
        let at = self.list.partition_point(|known| known.1 <= range.start);
        self.list.get(at).is_some_and(|known| known.0 <= range.start && range.end <= known.1)
    }

    /// Takes up to `max` bytes off the end of the last range.
    pub(super) fn take_last(&mut self, max: u32) -> Option<Range<u32>> {
        let last = self.list.last_mut()?;
        // From the front of the last range, so that packets go out in the order of their bytes.
        let range = last.0..last.1.min(last.0.saturating_add(max));
        last.0 = range.end;
        if last.0 == last.1 {
            self.list.pop();
        }
        self.bytes -= range.end - range.start;
        Some(range)
    }

    /// Takes a range out; bytes of it that are not there do not matter.
    pub(super) fn remove(&mut self, range: Range<u32>) {
        if range.is_empty() {
            return;
        }
        let mut at = self.list.partition_point(|known| known.1 <= range.start);
        while let Some(&(start, end)) = self.list.get(at)
            && start < range.end
        {
            self.bytes -= end.min(range.end) - start.max(range.start);
            match (start < range.start, end > range.end) {
                (true, true) => {
                    self.widen();
                    self.list[at].1 = range.start;
                    self.list.insert(at + 1, (range.end, end));
                    return;
                }
                (true, false) => {
                    self.list[at].1 = range.start;
                    at += 1;
                }
                (false, true) => {
                    self.list[at].0 = range.end;
                    return;
                }
                (false, false) => {
                    self.list.remove(at);
                }
            }
        }
    }

    /// What is not in it, within `within`.
    pub(super) fn gaps(&self, within: Range<u32>) -> impl Iterator<Item = Range<u32>> + '_ {
        let mut at = within.start;
        let mut index = self.list.partition_point(|known| known.1 <= within.start);
        core::iter::from_fn(move || {
            while at < within.end {
                let gap = match self.list.get(index) {
                    Some(&(start, end)) => {
                        let gap = at..start.min(within.end);
                        at = end;
                        index += 1;
                        gap
                    }
                    None => {
                        let gap = at..within.end;
                        at = within.end;
                        gap
                    }
                };
                if !gap.is_empty() {
                    return Some(gap);
                }
            }
            None
        })
    }
}

/// Sets made at once.
const SPARE: usize = 16;

/// Empty sets to be used again in turn. What one unit needed, the next ones have from the start: so allocation ends soon.
#[derive(Debug, Default)]
pub(super) struct Spare {
    sets: VecDeque<Ranges>,
    /// Sets made so far: all of them may come back at once.
    made: usize,
    /// The most that one of them needed.
    room: usize,
}

impl Spare {
    pub(super) fn take(&mut self) -> Ranges {
        if self.sets.is_empty() {
            // More units are open than ever before; a few more are to be expected.
            self.made += SPARE;
            self.sets.reserve_exact(self.made);
            self.sets.resize_with(SPARE, Ranges::default);
            self.sets.iter_mut().for_each(|set| set.list.reserve_exact(self.room));
        }
        let mut set = self.sets.pop_front().unwrap_or_default();
        if set.list.capacity() < self.room {
            set.list.reserve_exact(self.room);
        }
        set
    }

    pub(super) fn give_back(&mut self, mut set: Ranges) {
        set.clear();
        self.room = self.room.max(set.list.capacity());
        self.sets.push_back(set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    /// Small steps of a multiplicative generator (Knuth, MMIX).
    fn next(state: &mut u64) -> u32 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 40) as u32
    }

    #[test]
    fn any_mix_of_insertions_and_removals_is_the_same_set_as_one_of_single_bytes() {
        for seed in 0..200 {
            let (mut ranges, mut model, mut state) = (Ranges::default(), BTreeSet::new(), seed);
            for _ in 0..60 {
                let start = next(&mut state) % 100;
                let range = start..start + next(&mut state) % 12;
                match next(&mut state) % 4 {
                    0 => {
                        ranges.remove(range.clone());
                        range.for_each(|byte| assert!(model.remove(&byte) || !model.contains(&byte)));
                    }
                    1 => {
                        if let Some(taken) = ranges.take_last(1 + start % 5) {
                            taken.for_each(|byte| assert!(model.remove(&byte)));
                        }
                    }
                    _ => {
                        let new = range.clone().filter(|&byte| model.insert(byte)).count();
                        assert_eq!(ranges.insert(range) as usize, new);
                    }
                }
                assert_eq!(ranges.bytes() as usize, model.len());
                assert!(ranges.list.windows(2).all(|pair| pair[0].1 < pair[1].0 && pair[0].0 < pair[0].1));
                let gaps: Vec<u32> = ranges.gaps(10..90).flatten().collect();
                assert!(gaps.iter().copied().eq((10..90).filter(|byte| !model.contains(byte))));
                let probe = start..start + 3;
                assert_eq!(ranges.contains(probe.clone()), probe.clone().all(|byte| model.contains(&byte)));
            }
        }
    }
}
