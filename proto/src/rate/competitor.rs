//! Loss-based competitor detection: is there a flow that does not yield to delay, and which rate to take beside it.
//!
//! For: the `delay` controller, which beside a flow that keeps the queue full (CUBIC, BBR) would shrink to nothing.
//! In and out: queue, share and signals in; the rate to take beside a competitor out.
//! Invariants: the competitive mode is entered only after many rounds of evidence and clearings that the queue withstood; it is left when a clearing
//! empties the queue, or it stays empty for `CALM_ROUNDS`. The question is that of Nimbus (Goyal et al. 2022), the evidence (a queue that nobody empties) that of Copa (Arun and
//! Balakrishnan 2018).
//! Absent on purpose: telling competitors apart: CUBIC and BBR are answered alike, by a CUBIC window between a floor and a ceiling of the link.

use alloc::boxed::Box;

use super::cubic::Cubic;
use super::path::Path;
use super::weight::{QUEUE_EACH_NS, Weight};
use super::{RateConfig, Signal};

/// Share of a queue that is left where all together cleared it, at most.
const CLEARED_SHARE: f64 = 0.2;
/// Share of the evidence from which on it is doubted.
const DOUBT_SHARE: f64 = 0.2;
/// Rounds of a queue that is never empty before the competitive mode. Flows of our kind drain it every 20 to 30 rounds (measured with 2, 4 and 8
/// flows: at most 30, docs/design/003); with 36 eight of ours at 100 ms took each other for competitors.
const EVIDENCE_ROUNDS: f64 = 42.0;
/// ... and nanoseconds: our drains are 1 to 1.5 s apart at least, 2.8 s at most (measured, docs/design/003).
const EVIDENCE_NS: f64 = 3_000_000_000.0;
/// A mean queue above this is far deeper than what many of ours keep (10.5 ms: eight at 200 ms), ns ...
const DEEP_NS: f64 = 40_000_000.0;
/// ... and where it stands for this share of the rounds ...
const DEEP_SHARE: f64 = 0.4;
/// ... and for so many nanoseconds, that is evidence, too: BBR's look at the base, every ten seconds, comes before 42 long rounds are over.
/// Rounds of eight of ours that were mistaken for competitors (45 ms of queue at 20 ms) are so short that this says nothing new of them.
const DEEP_EVIDENCE_NS: f64 = 6_000_000_000.0;
/// Clearings in a row that the queue withstood: a flow that is just coming, or does not doubt yet, withstands one ...
const IN_VAIN: u32 = 3;
/// ... and so many where a competitor is expected back.
const IN_VAIN_RETURN: u32 = 2;
/// Rounds of a queue that overflows all the time before the competitive mode.
const OVERFLOW_ROUNDS: f64 = 40.0;
/// A queue below this share of its mean counts as empty (measured, docs/design/003: what our own drains leave) ...
const EMPTY_SHARE: f64 = 0.12;
/// ... and so does one below this, ns.
const EMPTY_NS: f64 = 400_000.0;
/// After a competitor went it is expected back for so many rounds: BBR empties the queue itself every ten seconds (ProbeRTT).
const RETURN_ROUNDS: f64 = 100.0;
/// Share of the evidence that suffices meanwhile: still more than flows of ours leave between two drains.
const RETURN_SHARE: f64 = 0.2;
/// Rounds of an empty queue that end the competitive mode.
const CALM_ROUNDS: f64 = 20.0;
/// Share of our bytes that one competitor costs us at most; more is lost where many of ours hold on to their floors, which then fall.
const OVERFLOW_SHARE_MAX: f64 = 0.1;
/// Growth per round of what is taken while the mode is entered.
const ENTRY_GROWTH: f64 = 0.2;
/// ... from this part of what is aimed at.
const ENTRY_LEAST: f64 = 0.1;
/// Share of the floor that is taken back per round after it fell.
const FLOOR_GROWTH: f64 = 0.005;

/// What one report shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observation {
    /// Rounds since the report before.
    pub(super) elapsed: f64,
    /// A round, nanoseconds.
    pub(super) round: f64,
    /// Queueing delay, ns.
    pub(super) queue: f64,
    /// The queueing delay that `delay` would keep, ns.
    pub(super) target: f64,
    /// The bottleneck's rate, bytes per second.
    pub(super) link: f64,
    /// What the bottleneck passes of this flow, bytes per second.
    pub(super) passed: f64,
    /// Share of this flow's bytes that overflow a queue.
    pub(super) overflow: f64,
}

#[derive(Debug, Clone)]
pub(super) struct Competitor {
    /// Rounds for which a competitor is expected back.
    returning: f64,
    /// Rounds of a queue that nobody emptied.
    standing: f64,
    /// ... and nanoseconds of it.
    standing_ns: f64,
    /// Rounds of a queue that overflowed.
    overflowing: f64,
    /// Queueing delay smoothed over 24 rounds, ns.
    queue_slow: f64,
    /// The same over 6 rounds, ns.
    queue_fast: f64,
    /// Share of the last 24 rounds in which something overflowed.
    lossy: f64,
    /// The window that is followed in the competitive mode; none: not in it.
    cubic: Option<Box<Cubic>>,
    /// The rate and where it goes, before the window.
    entering: Option<(f64, f64)>,
    /// Rounds of an empty queue in it.
    calm: f64,
    /// What is left of the floor.
    floor: f64,
    rate: f64,
    /// The queue did not empty when all who doubt sent little, and has not since ...
    withstood: bool,
    /// ... and did so many times in a row.
    in_vain: u32,
}

impl Competitor {
    pub(super) const fn new() -> Self {
        Self {
            returning: 0.0,
            standing: 0.0,
            standing_ns: 0.0,
            overflowing: 0.0,
            queue_slow: 0.0,
            queue_fast: 0.0,
            lossy: 0.0,
            cubic: None,
            entering: None,
            calm: 0.0,
            floor: 1.0,
            rate: 0.0,
            withstood: false,
            in_vain: 0,
        }
    }

    /// The queue that stands here, ns.
    pub(super) fn queue_ns(&self) -> f64 {
        self.queue_fast.min(self.queue_slow).max(1.0)
    }

    pub(super) fn present(&self) -> bool {
        self.cubic.is_some() || self.entering.is_some()
    }

    /// A queue stands here, and nobody knows whose it is.
    pub(super) fn doubted(&self) -> bool {
        let stands = self.standing > DOUBT_SHARE * EVIDENCE_ROUNDS && self.standing_ns > DOUBT_SHARE * EVIDENCE_NS;
        let deep = self.queue_slow > DEEP_NS && self.queue_fast > DEEP_NS;
        self.present() || stands || deep || self.overflowing > DOUBT_SHARE * OVERFLOW_ROUNDS
    }

    /// All who doubt have sent little: the least queueing delay that was left, ns.
    pub(super) fn on_cleared(&mut self, least_ns: f64, before_ns: f64) {
        // What is left is the part of the link that did not yield.
        self.withstood = before_ns > 0.0 && least_ns > CLEARED_SHARE * before_ns + EMPTY_NS;
        self.in_vain = if self.withstood { self.in_vain.saturating_add(1) } else { 0 };
        if !self.withstood {
            // It was theirs and ours, and nobody's who does not yield.
            (self.standing, self.standing_ns, self.overflowing) = (0.0, 0.0, 0.0);
            self.calm = if self.present() { CALM_ROUNDS + 1.0 } else { 0.0 };
        }
    }

    /// A queue below this is none.
    fn empty_ns(&self, target_ns: f64) -> f64 {
        (EMPTY_SHARE * self.queue_slow).max(EMPTY_NS).max(target_ns / 3.0)
    }

    fn see(&mut self, elapsed: f64, queue: f64) {
        self.queue_slow += (queue - self.queue_slow) * (elapsed / 24.0);
        self.queue_fast += (queue - self.queue_fast) * (elapsed / 6.0);
    }

    /// One report outside the competitive mode. True: enter it now.
    pub(super) fn watch(&mut self, seen: &Observation, weight: f64) -> bool {
        let Observation { elapsed, queue, target, overflow, round, .. } = *seen;
        let by_share = weight * seen.link / seen.passed.max(1.0);
        self.see(elapsed, queue);
        // Flows of ours drain the queue together: one that nobody empties is a competitor's, and so is one that overflows whatever we give up.
        let empty = queue < self.empty_ns(target);
        let falling = self.queue_fast < 0.8 * self.queue_slow;
        if empty {
            (self.standing, self.standing_ns) = (0.0, 0.0);
            self.withstood = false;
        } else if by_share > 1.5 && self.queue_slow > target + 0.5 * QUEUE_EACH_NS && !falling {
            self.standing += elapsed;
            self.standing_ns += elapsed * round;
        }
        self.lossy += ((if overflow > 0.0 { 1.0 } else { 0.0 }) - self.lossy) * (elapsed / 24.0);
        let overflows = self.lossy > 0.25 && by_share > 2.0;
        self.overflowing =
            if overflows { self.overflowing + elapsed } else { (self.overflowing - 2.0 * elapsed).max(0.0) };
        self.returning = (self.returning - elapsed).max(0.0);
        let part = if self.returning > 0.0 { RETURN_SHARE } else { 0.4 };
        let stands = self.standing > part * EVIDENCE_ROUNDS && self.standing * round > part * EVIDENCE_NS;
        let deep = self.queue_slow > DEEP_NS && self.queue_fast > DEEP_NS;
        let long = self.standing > DEEP_SHARE * EVIDENCE_ROUNDS && self.standing * round > DEEP_EVIDENCE_NS;
        let in_vain = if self.returning > 0.0 { IN_VAIN_RETURN } else { IN_VAIN };
        self.withstood
            && self.in_vain >= in_vain
            && (stands || (deep && long) || self.overflowing > part * OVERFLOW_ROUNDS)
    }

    /// Enters the competitive mode with this rate, and goes on to that one.
    pub(super) fn enter(&mut self, rate: f64, entry: f64) {
        self.cubic = None;
        self.entering = Some((rate, (entry * self.floor).max(rate)));
        self.calm = 0.0;
        self.rate = f64::MAX;
    }

    /// The rate to take, bytes per second; none: the competitor has gone, or it is time for a trial without the mode.
    pub(super) fn rate(
        &mut self,
        path: &Path,
        signal: &Signal,
        seen: &Observation,
        (config, weight): (RateConfig, &Weight),
    ) -> Option<f64> {
        let Observation { elapsed, queue, target, link, overflow, .. } = *seen;
        self.see(elapsed, queue);
        if let Some((rate, goal)) = self.entering {
            let rate = rate.max(ENTRY_LEAST * goal);
            // Step by step: a queue that is there at once looks like a longer path to others.
            let rate = rate * (1.0 + ENTRY_GROWTH * elapsed);
            self.entering = (rate < goal && overflow == 0.0).then_some((rate, goal));
            if self.entering.is_some() {
                return Some(rate);
            }
            let window = rate.min(goal) * path.rtt_ns() as f64 / 1e9;
            self.cubic = Some(Box::new(Cubic::joining(config, window)));
        }
        let cubic = self.cubic.as_mut()?;
        cubic.on_signal(signal);
        let is_calm = queue < (target + 2.0 * QUEUE_EACH_NS).min(0.3 * self.queue_slow);
        // What all have cleared together is calm at once.
        self.calm = if is_calm {
            self.calm + elapsed
        } else if self.calm > CALM_ROUNDS {
            self.calm
        } else {
            0.0
        };
        if self.calm > CALM_ROUNDS {
            // What empties the queue for a moment (BBR's own look at the base) is soon known again.
            *self = Self { returning: RETURN_ROUNDS, queue_slow: self.queue_slow, floor: self.floor, ..Self::new() };
            return None;
        }
        let change = if overflow > OVERFLOW_SHARE_MAX { -overflow } else { FLOOR_GROWTH };
        self.floor = (self.floor * (1.0 + change * elapsed)).min(1.0);
        let said = (cubic.window() as f64 * 1e9 / path.rtt_ns() as f64)
            .clamp(weight.floor * self.floor * link, weight.ceiling * link);
        // While the queue empties the round trip shrinks, and the window would be a higher rate.
        let said = if self.calm > 0.0 { said.min(self.rate) } else { said };
        self.rate = said;
        Some(self.rate)
    }
}
