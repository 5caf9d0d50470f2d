//! The end of a job over several paths: what a straggler still owes is taken from it where the others bring it sooner.
//!
//! For: a path that was given more than it can bring by the end, because its rate was not known, or has fallen since.
//! In and out: what each rail brings now → the paths whose rails are to be cut. The caller cuts them; what the receiver then says has not arrived
//! goes again like that of any rail that is gone, so nothing is written twice.
//! Invariants: nothing is taken while there is anything left to hand out; a path is named only if the others, with all that it owes, are done
//! sooner than it is alone; so a job sends again at most what its slower paths owed at the end, once for each.
//! Absent on purpose: rates and time (the caller's), which chunk goes where before that (`send.rs`).

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Item, Sender, State};
use crate::manifest::EntryKind;

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
    owed: u64,
    rate: u64,
    rails: usize,
    in_hand: usize,
}

impl Sum {
    fn add(self, other: Sum) -> Sum {
        Sum {
            path: self.path,
            owed: self.owed + other.owed,
            rate: self.rate + other.rate,
            rails: self.rails + other.rails,
            in_hand: self.in_hand + other.in_hand,
        }
    }

    /// Until it has brought so many bytes.
    fn ns(&self, bytes: u64) -> u128 {
        u128::from(bytes) * 1_000_000_000 / u128::from(self.rate.max(1))
    }
}

impl Sender {
    /// Nothing is left to hand out, and nothing more will come.
    fn is_handed_out(&self) -> bool {
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
            let Some(book) = self.rails.get(&it.rail) else { continue };
            let own = Sum { path: it.path, owed: book.owed, rate: it.rate, rails: 1, in_hand: book.in_hand };
            match paths.iter_mut().find(|sum| sum.path == it.path) {
                Some(sum) => *sum = sum.add(own),
                None => paths.push(own),
            }
        }
        paths.sort_by_key(|sum| Reverse(sum.ns(sum.owed)));
        // As few as possible: two slow ones keep each other busy, and the fast one would wait for both.
        let few = (1..paths.len()).find(|&few| self.are_late(u128::from(lead_ns), &paths[..few], &paths[few..]));
        few.map_or(Vec::new(), |few| paths[..few].iter().map(|sum| sum.path).collect())
    }

    /// Would each of the first be done later than the others are with all that the first owe?
    fn are_late(&self, lead_ns: u128, first: &[Sum], others: &[Sum]) -> bool {
        let sum = |sums: &[Sum]| sums.iter().fold(Sum::default(), |all, it| all.add(*it));
        let (taken, keep) = (sum(first), sum(others));
        let best = others.iter().max_by_key(|it| it.rate).filter(|it| it.rate > 0);
        let (Some(best), Some(soonest)) = (best, first.iter().map(|it| it.ns(it.owed)).min()) else { return false };
        let is_soon_idle = keep.in_hand <= keep.rails || keep.ns(keep.owed) <= lead_ns;
        // A chunk is not divided, however many there are to bring it.
        let one = best.ns(taken.owed.min(u64::from(self.chunk_bytes)));
        // A quarter more: rates are what was, and a chunk that is nearly there is begun anew.
        is_soon_idle && soonest > lead_ns + keep.ns(keep.owed + taken.owed).max(one) * 5 / 4
    }
}
