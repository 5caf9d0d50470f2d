//! What a trace remembers: looks at rails, in bounded memory.
//!
//! For: a job of any length. In and out: looks at any pace in; a series for each rail out, all with one spacing.
//! Invariants: no more than `LOOKS_MAX` looks of all rails together, and the last one of each; when they are full every second one goes, and the
//! spacing doubles: counts stay exact, of a queue the peak stays. No more than `RAILS_MAX` rails; those beyond are counted.
//! Absent on purpose: clocks, rails.

use std::collections::BTreeMap;

use super::sample::{RailFacts, RailId, Sample};

/// Looks of all rails together: 170 bytes each, 2.8 MB. One rail has 160 s at a look each 10 ms, and never fewer than half of it.
pub const LOOKS_MAX: usize = 16_384;
/// Rails that are remembered: as many as `--streams` allows.
const RAILS_MAX: usize = 256;
/// The first spacing after a halving, ns: twice the shortest pace of looks.
const SPACING_NS: u64 = 20_000_000;

/// What is known of one rail.
#[derive(Debug, Clone)]
pub struct Series {
    /// Its transport, its controller, its path.
    pub facts: RailFacts,
    /// In the order of time.
    looks: Vec<Sample>,
    /// The newest look, if it came too soon after the last one that is kept.
    newest: Option<Sample>,
}

impl Series {
    /// All looks.
    pub fn looks(&self) -> impl Iterator<Item = &Sample> + Clone {
        self.looks.iter().chain(&self.newest)
    }

    fn add(&mut self, spacing_ns: u64, sample: Sample) {
        let sample = self.newest.take().map_or(sample, |newest| sample.after(&newest));
        // Looks come a bit early now and then.
        let is_soon = |last: &Sample| sample.at_ns.saturating_sub(last.at_ns) + spacing_ns / 4 < spacing_ns;
        if self.looks.last().is_some_and(is_soon) {
            self.newest = Some(sample);
        } else {
            self.looks.push(sample);
        }
    }

    /// Every second look goes; the first one stays.
    fn halve(&mut self) {
        let mut before: Option<Sample> = None;
        let mut number = 0;
        self.looks.retain_mut(|look| {
            number += 1;
            if number % 2 == 0 {
                before = Some(*look);
                return false;
            }
            *look = before.take().map_or(*look, |before| look.after(&before));
            true
        });
        self.newest = before.map(|before| self.newest.map_or(before, |newest| newest.after(&before))).or(self.newest);
    }
}

/// All looks of a job that are remembered, by rail.
#[derive(Debug, Default)]
pub struct Looks {
    rails: BTreeMap<RailId, Series>,
    spacing_ns: u64,
    count: usize,
    left_out: u64,
}

impl Looks {
    /// One look more.
    pub fn add(&mut self, id: RailId, facts: impl FnOnce() -> RailFacts, sample: Sample) {
        if self.rails.len() >= RAILS_MAX && !self.rails.contains_key(&id) {
            self.left_out += 1;
            return;
        }
        let series = self.rails.entry(id).or_insert_with(|| Series { facts: facts(), looks: Vec::new(), newest: None });
        let before = series.looks.len();
        series.add(self.spacing_ns, sample);
        self.count += series.looks.len() - before;
        if self.count >= LOOKS_MAX {
            self.spacing_ns = (self.spacing_ns * 2).max(SPACING_NS);
            self.rails.values_mut().for_each(Series::halve);
            self.count = self.rails.values().map(|series| series.looks.len()).sum();
        }
    }

    /// Each rail.
    pub fn rails(&self) -> impl Iterator<Item = (RailId, &Series)> {
        self.rails.iter().map(|(id, series)| (*id, series))
    }

    /// Looks nearer to each other than this are not kept; 0: all are.
    #[must_use]
    pub fn spacing_ns(&self) -> u64 {
        self.spacing_ns
    }

    /// Looks at rails beyond those that are remembered.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// How many are kept.
    #[must_use]
    pub fn count(&self) -> usize {
        self.rails.values().map(|series| series.looks().count()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn facts() -> RailFacts {
        RailFacts { transport: "udp", controller: "delay", path: String::new() }
    }

    #[test]
    fn a_long_job_is_remembered_whole_in_the_same_memory() {
        let (mut looks, id) = (Looks::default(), RailId { session: 0, rail: 0 });
        let last = 10 * LOOKS_MAX as u64;
        for at in 0..=last {
            let queue_ns = Some(if at == 777 { 9 } else { 1 });
            looks.add(id, facts, Sample { at_ns: at * 10 * MS, delivered: at, queue_ns, ..Sample::default() });
            assert!(looks.count() <= LOOKS_MAX + 1);
        }
        let (_, series) = looks.rails().next().expect("a rail");
        let kept: Vec<&Sample> = series.looks().collect();
        assert!(kept.len() >= LOOKS_MAX / 2, "{}", kept.len());
        assert_eq!((kept[0].at_ns, kept[kept.len() - 1].delivered), (0, last), "from the first to the last");
        assert!(kept.windows(2).all(|two| two[0].at_ns < two[1].at_ns));
        assert!(kept[..kept.len() - 1].windows(2).all(|two| two[1].at_ns - two[0].at_ns >= 120 * MS), "evenly");
        assert_eq!(kept.iter().filter(|it| it.queue_ns == Some(9)).count(), 1, "the peak of the queue stays");
        assert_eq!(looks.spacing_ns(), 160 * MS);
    }

    #[test]
    fn rails_beyond_the_bound_are_counted_and_not_kept() {
        let mut looks = Looks::default();
        for rail in 0..1_000_u16 {
            looks.add(RailId { session: 0, rail }, facts, Sample::default());
        }
        assert_eq!((looks.rails().count(), looks.left_out()), (RAILS_MAX, 1_000 - RAILS_MAX as u64));
    }
}
