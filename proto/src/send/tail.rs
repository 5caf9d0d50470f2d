//! The end of a job over several paths: what a straggler still has outstanding is taken from it where the others bring it sooner.
//!
//! For: a path that was given more than it can bring by the end, because its rate was not known, or has fallen since.
//! In and out: what each rail brings now → the paths whose rails are to be cut. The caller cuts them; what the receiver then says has not arrived
//! goes again like that of any rail that is gone, so nothing is written twice.
//! Invariants: nothing is taken while there is anything left to hand out; a path is named only if the others, with all that it has outstanding, are done
//! sooner than it is alone; so a job sends again at most what its slower paths outstanding at the end, once for each.
//! Absent on purpose: rates and time (the caller's), which chunk goes where before that (`send.rs`).

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::lanes::Lanes;
use super::{Item, Sender, State, Unit};
use crate::manifest::EntryKind;

/// With more entries open than this, what is left is not summed: the end is not near.
const LEFT_ENTRIES_MAX: usize = 256;

/// What a rail brings now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Brings {
    /// The number of the rail.
    pub rail: u16,
    /// The path that it goes over: rails of one path share its rate.
    pub path: usize,
    /// Bytes per second; 0: not known.
    pub rate: u64,
}

/// What a path is at.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    path: usize,
    outstanding: u64,
    rate: u64,
    rails: usize,
    in_flight: usize,
}

impl Sum {
    fn add(self, other: Sum) -> Sum {
        Sum {
            path: self.path,
            outstanding: self.outstanding + other.outstanding,
            rate: self.rate + other.rate,
            rails: self.rails + other.rails,
            in_flight: self.in_flight + other.in_flight,
        }
    }

    /// Until it has brought so many bytes.
    fn ns(&self, bytes: u64) -> u128 {
        u128::from(bytes) * 1_000_000_000 / u128::from(self.rate.max(1))
    }
}

impl Sender {
    /// Bytes that are not assigned yet; `None`: many, or not known.
    pub(super) fn left_bytes(&self) -> Option<u64> {
        if !self.scan_ended || self.items.len() > LEFT_ENTRIES_MAX {
            return None;
        }
        let chunk = u64::from(self.chunk_bytes);
        let items = self.items.values().map(|item| match &item.state {
            State::Reading { ranges, .. } => {
                let chunks: u64 = ranges.iter().map(|range| range.end - range.first).sum();
                (chunks + item.lanes.as_ref().map_or(0, Lanes::left)) * chunk
            }
            State::Ended => 0,
            _ => item.entry.bytes(),
        });
        let small = self.small.iter().filter_map(|id| self.items.get(id)).map(|item| item.entry.bytes());
        Some(items.sum::<u64>() + small.sum::<u64>() + self.again.iter().map(Unit::bytes).sum::<u64>())
    }

    /// Nothing is left to hand out, and nothing more will come.
    #[must_use]
    pub fn is_handed_out(&self) -> bool {
        // Of a folder or a link there is nothing to ask for.
        let may_come = |item: &Item| match item.state {
            State::Announced => matches!(item.entry.kind, EntryKind::File { .. }),
            State::Comparing { .. } | State::Compared { .. } => true,
            State::Reading { open, .. } => open,
            State::Ended => false,
        };
        self.scan_ended && !self.has_work() && !self.items.values().any(may_come)
    }

    /// The paths whose rails are to be cut now. `lead_ns`: until what is taken from them is on its way over the others, so that these have
    /// something to do all the time, and those have until then.
    #[must_use]
    pub fn stragglers(&self, lead_ns: u64, brings: &[Brings]) -> Vec<usize> {
        if self.out.is_empty() || !self.is_handed_out() {
            return Vec::new();
        }
        let mut paths: Vec<Sum> = Vec::new();
        for it in brings {
            let Some(rail) = self.rails.get(it.rail) else { continue };
            let (outstanding, in_flight) = (rail.outstanding, rail.in_flight);
            let own = Sum { path: it.path, outstanding, rate: it.rate, rails: 1, in_flight };
            match paths.iter_mut().find(|sum| sum.path == it.path) {
                Some(sum) => *sum = sum.add(own),
                None => paths.push(own),
            }
        }
        paths.sort_by_key(|sum| Reverse(sum.ns(sum.outstanding)));
        // As few as possible: two slow ones keep each other busy, and the fast one would wait for both.
        let few = (1..paths.len()).find(|&few| self.are_late(u128::from(lead_ns), &paths[..few], &paths[few..]));
        few.map_or(Vec::new(), |few| paths[..few].iter().map(|sum| sum.path).collect())
    }

    /// Would each of the first be done later than the others are with all that the first have outstanding?
    fn are_late(&self, lead_ns: u128, first: &[Sum], others: &[Sum]) -> bool {
        let sum = |sums: &[Sum]| sums.iter().fold(Sum::default(), |all, it| all.add(*it));
        let (taken, keep) = (sum(first), sum(others));
        let best = others.iter().max_by_key(|it| it.rate).filter(|it| it.rate > 0);
        let (Some(best), Some(soonest)) = (best, first.iter().map(|it| it.ns(it.outstanding)).min()) else {
            return false;
        };
        let is_soon_idle = keep.in_flight <= keep.rails || keep.ns(keep.outstanding) <= lead_ns;
        // A chunk is not divided, however many there are to bring it.
        let one = best.ns(taken.outstanding.min(u64::from(self.chunk_bytes)));
        // A quarter more: rates are what was, and a chunk that is nearly there is begun anew.
        is_soon_idle && soonest > lead_ns + keep.ns(keep.outstanding + taken.outstanding).max(one) * 5 / 4
    }
}
