//! A short memory of one figure over time.
//!
//! For: controllers that ask how much had passed a round trip ago, or how low the queue was within the last quarter of one.
//! In and out: `(now, value)` in; the least of a span and the value at a time out.
//! Invariants: constant size; times never fall; entries nearer than the spacing are one entry (its least or first value).
//! Absent on purpose: growth: what is older than the entries reach back counts as the oldest entry.

/// Entries kept; with a spacing of 1/24 of a round trip that is more than two round trips.
const ENTRIES: usize = 64;

/// Which value stands for samples that fall into one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Least,
    First,
}

#[derive(Debug, Clone)]
pub(super) struct Trace {
    entries: [(u64, f64); ENTRIES],
    newest: usize,
    count: usize,
    keep: Keep,
}

impl Trace {
    pub(super) const fn new(keep: Keep) -> Self {
        Self { entries: [(0, 0.0); ENTRIES], newest: 0, count: 0, keep }
    }

    pub(super) fn clear(&mut self) {
        self.count = 0;
    }

    pub(super) fn push(&mut self, now_ns: u64, spacing_ns: u64, value: f64) {
        if self.count > 0 {
            let (began, held) = &mut self.entries[self.newest];
            if now_ns.saturating_sub(*began) < spacing_ns {
                *held = match self.keep {
                    Keep::Least => held.min(value),
                    Keep::First => *held,
                };
                return;
            }
        }
        self.newest = (self.newest + 1) % ENTRIES;
        self.entries[self.newest] = (now_ns, value);
        self.count = (self.count + 1).min(ENTRIES);
    }

    /// Newest first.
    fn iter(&self) -> impl Iterator<Item = (u64, f64)> + '_ {
        (0..self.count).map(|back| self.entries[(self.newest + ENTRIES - back) % ENTRIES])
    }

    /// Least value of the entries that touch [from, to]; the value in force at `from` counts when none begins inside.
    pub(super) fn least(&self, from_ns: u64, to_ns: u64) -> Option<f64> {
        let mut least: Option<f64> = None;
        for (began, value) in self.iter() {
            if began > to_ns {
                continue;
            }
            if began < from_ns && least.is_some() {
                break;
            }
            least = Some(least.map_or(value, |l| l.min(value)));
            if began < from_ns {
                break;
            }
        }
        least.or_else(|| self.iter().last().map(|(_, value)| value))
    }

    /// Mean of the entries that began inside; none: no such entry.
    pub(super) fn mean(&self, from_ns: u64, to_ns: u64) -> Option<f64> {
        let inside = self.iter().filter(|(began, _)| (from_ns..=to_ns).contains(began));
        let (sum, count) = inside.fold((0.0, 0.0), |(sum, count), (_, value)| (sum + value, count + 1.0));
        (count > 0.0).then(|| sum / count)
    }

    /// The newest entry that began at or before `at`, else the oldest.
    pub(super) fn at(&self, at_ns: u64) -> Option<(u64, f64)> {
        self.iter().find(|(began, _)| *began <= at_ns).or_else(|| self.iter().last())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_and_newest_are_those_of_the_span() {
        let mut trace = Trace::new(Keep::First);
        assert_eq!(trace.least(0, 10), None);
        assert_eq!(trace.at(10), None);
        for (at, value) in [(100, 1.0), (200, 3.0), (300, 2.0), (305, 9.0)] {
            trace.push(at, 10, value);
        }
        assert_eq!(trace.least(200, 300), Some(2.0));
        assert_eq!(trace.least(250, 260), Some(3.0), "what was in force before the span");
        assert_eq!(trace.least(0, 1000), Some(1.0));
        assert_eq!(trace.at(299), Some((200, 3.0)));
        assert_eq!(trace.at(1000), Some((300, 2.0)), "the first value of an entry stands");
        assert_eq!(trace.at(5), Some((100, 1.0)), "before memory the oldest holds");
    }

    #[test]
    fn entries_nearer_than_the_spacing_are_one() {
        let mut trace = Trace::new(Keep::Least);
        for at in 0..1000u64 {
            trace.push(at, 100, (1000 - at) as f64);
        }
        assert_eq!(trace.count, 10);
        assert_eq!(trace.least(900, 1000), Some(1.0));
        assert_eq!(trace.at(0), Some((0, 901.0)));
        for at in 1000..100_000 {
            trace.push(at, 100, 5.0);
        }
        assert_eq!(trace.count, ENTRIES);
    }
}
