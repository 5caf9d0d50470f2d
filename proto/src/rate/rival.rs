//! Is someone here who does not yield to delay, and what then.
//!
//! For: `delay`, which beside a flow that fills the queue would shrink to nothing.
//! In and out: queue, share and signals in; the rate to take from a rival out.
//! Invariants: only entered after many rounds of evidence; left when the queue empties, and for a trial after `STAY_ROUNDS`.
//! Absent on purpose: names of rivals: CUBIC and BBR are answered alike, by CUBIC's own window between a floor and a ceiling of the link.

use alloc::boxed::Box;

use super::cubic::Cubic;
use super::delay::{PUSH, QUEUE_EACH_NS, SLOWNESS, Weight};
use super::path::Path;
use super::{RateConfig, Signal};

/// Rounds of evidence before entering: as many as a crowd of ours needs to settle from a start.
const PATIENCE_ROUNDS: f64 = 20.0;
/// After a cut the rate stays down for so many: 0.3 of the link empties a queue of four products in 13 empty round trips, 3 full ones.
const HOLD_ROUNDS: f64 = 4.0;
/// A trial of the delay law after so many rounds: two of ours may have met here.
const STAY_ROUNDS: f64 = 120.0;
/// One rival at its most costs us less than this share of our bytes.
const MANY: f64 = 0.15;
/// More delay than that of ten of ours is not ours.
const CROWD: f64 = 10.0;

#[derive(Debug, Clone)]
pub(super) struct Rival {
    /// Rounds of evidence so far.
    strained: f64,
    queue_slow: f64,
    queue_fast: f64,
    law: Option<Box<Cubic>>,
    stayed: f64,
    calm: f64,
    window: u64,
    /// What is left of the floor.
    floor: f64,
    rate: f64,
    /// Rounds still to hold, and the rate.
    hold: (f64, f64),
}

impl Rival {
    pub(super) const fn new() -> Self {
        Self { strained: 0.0, queue_slow: 0.0, queue_fast: 0.0, law: None, stayed: 0.0, calm: 0.0, window: 0, floor: 1.0, rate: 0.0, hold: (0.0, 0.0) }
    }

    pub(super) fn present(&self) -> bool {
        self.law.is_some()
    }

    /// One report; `share` is that of the link that passes of us. True: enter now.
    pub(super) fn watch(&mut self, elapsed: f64, queue: f64, target: f64, share: f64, weight: f64, round: f64) -> bool {
        self.queue_slow += (queue - self.queue_slow) * (elapsed / 24.0);
        self.queue_fast += (queue - self.queue_fast) * (elapsed / 6.0);
        // What a crowd of ours would be: by the queue it keeps, and by our share of the link.
        let by_queue = 1.0 + (self.queue_slow - target).max(0.0) * (1.0 / QUEUE_EACH_NS + 1.0 / (SLOWNESS * PUSH * round));
        let by_share = weight / share.max(1e-6);
        let falling = self.queue_fast < 0.9 * self.queue_slow;
        let deep = self.queue_slow > target + CROWD * QUEUE_EACH_NS && by_share > 1.5;
        let squeezed = self.queue_slow > target / 2.0 && by_share > 3.0 && by_share > 2.5 * by_queue;
        if (deep || squeezed) && !falling {
            self.strained += elapsed;
        } else {
            self.strained = (self.strained - 2.0 * elapsed).max(0.0);
        }
        self.strained > PATIENCE_ROUNDS
    }

    pub(super) fn enter(&mut self, config: RateConfig, window_bytes: f64) {
        self.law = Some(Box::new(Cubic::joining(config, window_bytes)));
        self.stayed = 0.0;
        self.calm = 0.0;
        self.window = 0;
        self.floor = 1.0;
    }

    /// The rate to take, bytes per second; none: the rival has gone, or it is time to see whether.
    pub(super) fn rate(
        &mut self,
        path: &Path,
        signal: &Signal,
        elapsed: f64,
        queue: f64,
        target: f64,
        link: f64,
        weight: &Weight,
        overflow: f64,
    ) -> Option<f64> {
        let law = self.law.as_mut()?;
        law.on_signal(signal);
        self.stayed += elapsed;
        self.calm = if queue < (target + 2.0 * QUEUE_EACH_NS).min(0.3 * self.queue_slow) { self.calm + elapsed } else { 0.0 };
        if self.calm > 1.0 || self.stayed > STAY_ROUNDS {
            *self = Self::new();
            return None;
        }
        // Far more lost than one rival can make us lose: many of ours hold on to their floors. Let go.
        if overflow > MANY {
            self.floor *= 1.0 - overflow * elapsed.min(1.0);
        }
        let said = (law.window() as f64 * 1e9 / path.rtt_ns() as f64).clamp(weight.floor * self.floor * link, weight.ceiling * link);
        // After a cut, stay: were all here of our kind, the queue would empty now, and all would see it.
        if law.window() < self.window {
            self.hold = (HOLD_ROUNDS, self.rate * 0.7);
        }
        self.window = law.window();
        self.hold.0 -= elapsed;
        self.rate = if self.hold.0 > 0.0 { said.min(self.hold.1) } else { said };
        Some(self.rate)
    }
}
