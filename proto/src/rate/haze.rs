//! Delay that is no queue, and how it is told from one.
//!
//! For: `delay`. Where packets are late by milliseconds and do not overtake each other, whoever sends densely always waits for somebody who is
//! late: a delay that grows with the rate, stands above the base, and is nobody's queue.
//! In and out: what a drain should have taken off the queue and what it did in; the part of the delay that is no queue out.
//! Invariants: a queue has a memory of what was not sent: hold back bytes and it is shorter by these. What is not was no queue. No other sign
//! is taken, and the next drain that finds it shorter takes the word back.
//! Absent on purpose: why packets are late.

/// Less than this is not worth a word, nanoseconds.
const LEAST_NS: f64 = 600_000.0;
/// A queue falls by what was held back; others take a part of it at once, and samples are late by chance.
const FELL: f64 = 0.35;
/// So many drains must say the same: others come and go while one lasts.
const DRAINS: u32 = 2;

#[derive(Debug, Clone)]
pub(super) struct Haze {
    ns: f64,
    /// Drains in a row that found no queue, and the least lateness that they left.
    drains: u32,
    least: f64,
}

impl Haze {
    pub(super) const fn new() -> Self {
        Self { ns: 0.0, drains: 0, least: f64::MAX }
    }

    pub(super) fn ns(&self) -> f64 {
        self.ns
    }

    /// The last drain found no queue, and one more must say so.
    pub(super) fn doubtful(&self) -> bool {
        self.drains > 0
    }

    /// A drain is over: what was held back, nanoseconds of the link, and how late packets were on average before and after, above the base.
    pub(super) fn drained(&mut self, held_back: f64, before: f64, after: f64) {
        let expected = held_back.min(before);
        let fell = before - after;
        if after < self.ns {
            self.ns = if fell > FELL * held_back { after } else { (self.ns + after) / 2.0 };
        }
        if expected < LEAST_NS || fell < -FELL * expected {
            return; // nothing could be seen, or somebody came
        }
        if fell > FELL * expected {
            *self = Self { ns: self.ns, ..Self::new() };
            return;
        }
        self.drains += 1;
        self.least = self.least.min(after);
        if self.drains >= DRAINS {
            *self = Self { ns: self.least.max(self.ns), ..Self::new() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_yields_to_no_drain_is_no_queue() {
        let mut haze = Haze::new();
        haze.drained(4e6, 3.7e6, 3.5e6);
        assert!(haze.ns() == 0.0 && haze.doubtful(), "one drain is chance");
        haze.drained(4e6, 3.7e6, 3.6e6);
        assert!(haze.ns() == 3.5e6 && !haze.doubtful());
        haze.drained(2e6, 5e6, 3.1e6);
        assert_eq!(haze.ns(), 3.1e6, "what falls as it should falls to the truth");
        haze.drained(4e6, 4e6, 0.1e6);
        assert_eq!(haze.ns(), 0.1e6, "and the haze is gone when the queue shows it");
    }

    #[test]
    fn a_queue_that_falls_by_what_was_held_back_is_a_queue() {
        let mut haze = Haze::new();
        for (held_back, before, after) in
            [(2e6, 1.5e6, 0.0), (1e6, 30e6, 29.2e6), (2e6, 8e6, 6.5e6), (1e5, 3e6, 3e6), (2e6, 2e6, 9e6)]
        {
            haze.drained(held_back, before, after);
            assert_eq!(haze.ns(), 0.0, "{held_back} {before} {after}");
        }
    }
}
