//! Is someone here who does not yield to delay, and what then.
//!
//! For: `delay`, which beside a flow that fills the queue would shrink to nothing.
//! In and out: queue, share and signals in; the rate to take from a rival out.
//! Invariants: only entered after many rounds of evidence; left when the queue empties, and for a trial after `STAY_ROUNDS`.
//! Absent on purpose: names of rivals: CUBIC and BBR are answered alike, by CUBIC's own window between a floor and a ceiling of the link.

use alloc::boxed::Box;

use super::cubic::Cubic;
use super::delay::QUEUE_EACH_NS;
use super::path::Path;
use super::weight::Weight;
use super::{RateConfig, Signal};

/// Rounds, and nanoseconds, of a queue that is never empty before entering. Flows of ours drain it all 20 to 30 rounds, but not more often
/// than once in 1 to 1.5 s, and settle from a start in as long.
const PATIENCE_ROUNDS: f64 = 42.0;
const PATIENCE_NS: f64 = 3_000_000_000.0;
/// Rounds of a queue that overflows all the time before entering.
const PRESSED_ROUNDS: f64 = 40.0;
/// A queue below this part of its mean is empty, and one below so many nanoseconds.
const EMPTY_PART: f64 = 0.12;
const EMPTY_NS: f64 = 400_000.0;
/// A rival that was here is expected back for so long, and then half the evidence suffices.
const AGAIN_ROUNDS: f64 = 100.0;
/// The part of the patience that suffices then: still more than flows of ours leave between two drains.
const AGAIN_PART: f64 = 0.6;
/// An empty queue for so many rounds: no rival.
const CALM_ROUNDS: f64 = 3.0;
/// Tests begin so many rounds apart, are joined so many rounds after the last, last so long, and send such a part of what passed.
const TEST_EVERY_ROUNDS: f64 = 40.0;
const JOIN_ROUNDS: f64 = 20.0;
const TEST_ROUNDS: f64 = 6.0;
const TEST_PART: f64 = 0.4;
/// A trial of the delay law after so many rounds: two of ours may have met here.
const STAY_ROUNDS: f64 = 300.0;
/// One rival at its most costs us less than this share of our bytes; more is lost where many of ours hold on to their floors.
const MANY: f64 = 0.3;
/// What was let go of the floor is taken back, a share of it per round.
const BACK: f64 = 0.005;

/// What one report shows, in nanoseconds, bytes per second, and shares.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sight {
    /// Rounds since the report before.
    pub(super) elapsed: f64,
    /// A round, nanoseconds.
    pub(super) round: f64,
    pub(super) queue: f64,
    /// The queueing delay that the delay law would keep.
    pub(super) target: f64,
    pub(super) link: f64,
    /// What passes of us.
    pub(super) passed: f64,
    /// The share of ours that overflows.
    pub(super) overflow: f64,
}

#[derive(Debug, Clone)]
pub(super) struct Rival {
    /// Rounds for which a rival is expected back.
    again: f64,
    /// Rounds of evidence so far.
    strained: f64,
    pressed: f64,
    queue_slow: f64,
    queue_fast: f64,
    /// Part of the late rounds in which something overflowed.
    lossy: f64,
    law: Option<Box<Cubic>>,
    stayed: f64,
    calm: f64,
    /// What is left of the floor.
    floor: f64,
    rate: f64,
    queue_late: f64,
    /// Rounds since the last test, rounds it still lasts, and its rate.
    tested: f64,
    test_left: f64,
    test_rate: f64,
}

impl Rival {
    pub(super) const fn new() -> Self {
        Self {
            again: 0.0,
            strained: 0.0,
            pressed: 0.0,
            queue_slow: 0.0,
            queue_fast: 0.0,
            lossy: 0.0,
            law: None,
            stayed: 0.0,
            calm: 0.0,
            floor: 1.0,
            rate: 0.0,
            queue_late: 0.0,
            tested: 0.0,
            test_left: 0.0,
            test_rate: 0.0,
        }
    }

    pub(super) fn present(&self) -> bool {
        self.law.is_some()
    }

    /// One report of the delay law. True: enter now.
    pub(super) fn watch(&mut self, sight: &Sight, weight: f64) -> bool {
        let Sight { elapsed, queue, target, overflow, round, .. } = *sight;
        let by_share = weight * sight.link / sight.passed.max(1.0);
        self.queue_slow += (queue - self.queue_slow) * (elapsed / 24.0);
        self.queue_fast += (queue - self.queue_fast) * (elapsed / 6.0);
        // Flows of ours drain the queue together; one that nobody empties is a rival's, and so is one that overflows whatever we give up.
        let empty = queue < (EMPTY_PART * self.queue_slow).max(EMPTY_NS).max(target / 3.0);
        let falling = self.queue_fast < 0.8 * self.queue_slow;
        if empty {
            self.strained = 0.0;
        } else if by_share > 1.5 && self.queue_slow > target + 0.5 * QUEUE_EACH_NS && !falling {
            self.strained += elapsed;
        }
        self.lossy += ((if overflow > 0.0 { 1.0 } else { 0.0 }) - self.lossy) * (elapsed / 24.0);
        let pressed = self.lossy > 0.25 && by_share > 2.0;
        self.pressed = if pressed { self.pressed + elapsed } else { (self.pressed - 2.0 * elapsed).max(0.0) };
        self.again = (self.again - elapsed).max(0.0);
        let part = if self.again > 0.0 { AGAIN_PART } else { 1.0 };
        let stands = self.strained > part * PATIENCE_ROUNDS && self.strained * round > part * PATIENCE_NS;
        stands || self.pressed > part * PRESSED_ROUNDS
    }

    pub(super) fn enter(&mut self, config: RateConfig, window_bytes: f64) {
        self.law = Some(Box::new(Cubic::joining(config, window_bytes)));
        self.stayed = 0.0;
        self.calm = 0.0;
        self.queue_late = self.queue_fast;
        self.rate = f64::MAX;
        self.tested = 0.0;
        self.test_left = 0.0;
        self.floor = 1.0;
    }

    /// The rate to take, bytes per second; none: the rival has gone, or it is time to see whether.
    pub(super) fn rate(&mut self, path: &Path, signal: &Signal, sight: &Sight, weight: &Weight) -> Option<f64> {
        let Sight { elapsed, queue, target, link, overflow, passed, .. } = *sight;
        let law = self.law.as_mut()?;
        law.on_signal(signal);
        self.stayed += elapsed;
        self.calm =
            if queue < (target + 2.0 * QUEUE_EACH_NS).min(0.3 * self.queue_slow) { self.calm + elapsed } else { 0.0 };
        if self.calm > CALM_ROUNDS || self.stayed > STAY_ROUNDS {
            // What empties the queue for a moment (BBR's own look at the base) is soon known again.
            *self = Self { again: AGAIN_ROUNDS, queue_slow: self.queue_slow, ..Self::new() };
            return None;
        }
        let change = if overflow > MANY { -overflow } else { BACK };
        self.floor = (self.floor * (1.0 + change * elapsed)).min(1.0);
        let said = (law.window() as f64 * 1e9 / path.rtt_ns() as f64)
            .clamp(weight.floor * self.floor * link, weight.ceiling * link);
        // While the queue empties the round trip shrinks, and the window would be a higher rate.
        let said = if self.calm > 0.0 { said.min(self.rate) } else { said };
        self.rate = self.test(said, elapsed, queue, passed);
        Some(self.rate)
    }

    /// Now and then less than half is sent. A rival bound by a window fills the gap; flows of our kind see the queue fall and do the same,
    /// so that it empties, and all of them go back to the delay law.
    fn test(&mut self, said: f64, elapsed: f64, queue: f64, passed: f64) -> f64 {
        self.queue_late += (queue - self.queue_late) * (elapsed / 8.0);
        if self.test_left > 0.0 {
            self.test_left -= elapsed;
            self.tested = 0.0;
            return self.test_rate.min(said);
        }
        self.tested += elapsed;
        let join = queue < 0.7 * self.queue_late && self.tested > JOIN_ROUNDS;
        if join || self.tested > TEST_EVERY_ROUNDS {
            self.test_left = TEST_ROUNDS;
            self.test_rate = TEST_PART * passed;
        }
        said
    }
}
