//! Non-congestive delay: the part of the one-way delay above the base that no queue of the path makes.
//!
//! For: the `delay` controller. Where a link delays packets by milliseconds without reordering them (radio links, tunnels, busy hosts), a dense
//! flow's packets always queue behind a delayed one: the measured delay stands above the base and grows with the rate, and no bottleneck queue
//! is there. Arun, Alizadeh and Balakrishnan (2022) show that every delay-bounding controller must tell the two apart or set its target above
//! the jitter.
//! In and out: the result of each queue drain in; nanoseconds of delay that are not queueing out.
//! Invariants: if holding back N bytes does not shorten the measured queue by about N, the delay is not queueing. Two drains in a row must agree
//! before the delay counts as non-congestive; one drain that shortens the queue as expected lowers the figure again.
//! Absent on purpose: the cause of the jitter.

/// A drain that should shorten the queue by less than this is no measurement: 0.6 ms (chosen in the
/// simulator, docs/design/003).
const EXPECTED_NS_MIN: f64 = 600_000.0;
/// Share of the held-back time by which a real queue falls at least: below 1, since competing flows fill part of the room at once and samples
/// scatter (chosen in the simulator, docs/design/003).
const FALL_SHARE_MIN: f64 = 0.35;
/// Consecutive drains that must agree: competing flows start and stop while one drain lasts.
const DRAINS_MIN: u32 = 2;

/// What one queue drain did, all in nanoseconds of the bottleneck's time.
#[derive(Debug, Clone, Copy)]
pub(super) struct DrainResult {
    /// Sending time that was held back.
    pub(super) held_back_ns: f64,
    /// Mean one-way delay above the base in the round before the drain's echo.
    pub(super) before_ns: f64,
    /// The same in the half round after it.
    pub(super) after_ns: f64,
}

#[derive(Debug, Clone)]
pub(super) struct NonCongestive {
    ns: f64,
    /// Consecutive drains that did not shorten the delay.
    drains: u32,
    /// The least delay above the base that they left, ns; `f64::MAX` before the first.
    least: f64,
}

impl NonCongestive {
    pub(super) const fn new() -> Self {
        Self { ns: 0.0, drains: 0, least: f64::MAX }
    }

    pub(super) fn ns(&self) -> f64 {
        self.ns
    }

    /// The last drain found no queue, and the next one has to confirm that.
    pub(super) fn is_uncertain(&self) -> bool {
        self.drains > 0
    }

    /// A queue drain is over.
    pub(super) fn on_drained(&mut self, drain: DrainResult) {
        let DrainResult { held_back_ns, before_ns, after_ns } = drain;
        let expected = held_back_ns.min(before_ns);
        let fell = before_ns - after_ns;
        if after_ns < self.ns {
            self.ns = if fell > FALL_SHARE_MIN * held_back_ns { after_ns } else { (self.ns + after_ns) / 2.0 };
        }
        if expected < EXPECTED_NS_MIN || fell < -FALL_SHARE_MIN * expected {
            return; // too small to measure, or a competing flow began meanwhile
        }
        if fell > FALL_SHARE_MIN * expected {
            *self = Self { ns: self.ns, ..Self::new() };
            return;
        }
        self.drains += 1;
        self.least = self.least.min(after_ns);
        if self.drains >= DRAINS_MIN {
            *self = Self { ns: self.least.max(self.ns), ..Self::new() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_yields_to_no_drain_is_no_queue() {
        let drain = |held_back_ns, before_ns, after_ns| DrainResult { held_back_ns, before_ns, after_ns };
        let mut delay = NonCongestive::new();
        delay.on_drained(drain(4e6, 3.7e6, 3.5e6));
        assert!(delay.ns() == 0.0 && delay.is_uncertain(), "one drain may be chance");
        delay.on_drained(drain(4e6, 3.7e6, 3.6e6));
        assert!(delay.ns() == 3.5e6 && !delay.is_uncertain());
        delay.on_drained(drain(2e6, 5e6, 3.1e6));
        assert_eq!(delay.ns(), 3.1e6, "a fall as expected sets it to what is left");
        delay.on_drained(drain(4e6, 4e6, 0.1e6));
        assert_eq!(delay.ns(), 0.1e6, "and it is queueing again when a drain shows it");
    }

    #[test]
    fn a_queue_that_falls_by_what_was_held_back_is_a_queue() {
        let mut delay = NonCongestive::new();
        for (held_back_ns, before_ns, after_ns) in
            [(2e6, 1.5e6, 0.0), (1e6, 30e6, 29.2e6), (2e6, 8e6, 6.5e6), (1e5, 3e6, 3e6), (2e6, 2e6, 9e6)]
        {
            delay.on_drained(DrainResult { held_back_ns, before_ns, after_ns });
            assert_eq!(delay.ns(), 0.0, "{held_back_ns} {before_ns} {after_ns}");
        }
    }
}
