//! Bandwidth probe: what is taken where the queue is empty, or is so short that it must be jitter.
//!
//! For: the `delay` controller: room that competing flows left, and links whose rate no packet train has shown.
//! In and out: queueing delay, its target and the delivered rate in; a share to add to the rate out.
//! Invariants: growth doubles from 1 % per round; loss that grows with the rate ends it; a scavenger ramps up once and then waits.
//! Absent on purpose: the queue that is kept (`delay`), and competitors that keep one (`competitor`).

use super::{Delay, LOW};
use crate::rate::{Policy, maths};

/// Rounds of an empty queue before a scavenger takes what is free.
pub(super) const RAMP_WAIT_ROUNDS: f64 = 1.5;
/// ... and rounds more before it takes more than it had.
const RAMP_BACK_ROUNDS: f64 = 1.0;
/// Additional share of loss since the probe began that ends it: the queue is full and was never seen empty.
const PROBE_LOSS_MAX: f64 = 0.08;
/// Largest growth of a probe per round, a share of the rate.
const PROBE_GROWTH_MAX: f64 = 0.4;
/// Where jitter hides the queue a probe adds no more than this much queueing delay per round, ns: below the 10 ms that others shall notice.
const PROBE_QUEUE_NS_MAX: f64 = 8_000_000.0;
/// ... and does not run over rounds longer than this, ns, in which queues vary as much as jitter does.
const PROBE_ROUND_NS_MAX: u64 = 250_000_000;
/// A queue below this share of its target ...
const BELOW_TARGET: f64 = 0.75;
/// ... for so many rounds is none: a full link reaches the target with a time constant of 2.5 rounds (`SLOWNESS_ROUNDS`).
const BELOW_TARGET_ROUNDS: f64 = 5.0;

impl Delay {
    /// The queue stays empty, so there is room: back to what we had at once, beyond it faster and faster.
    /// `own`: what of the queue is the newest packet's wait for those of its own burst.
    pub(super) fn probe(&mut self, (queue, own): (f64, f64), target: f64, passed: f64, elapsed: f64) -> f64 {
        let packet_ns = f64::from(self.config.packet_bytes) * 1e9 / self.link.max(1.0);
        // A link that is full comes to the target within rounds; where the rate grows and the queue does not, what is seen of one is jitter.
        let below = queue < BELOW_TARGET * target;
        self.below_target_rounds =
            if below { self.below_target_rounds + elapsed } else { self.below_target_rounds - 3.0 * elapsed }
                .clamp(0.0, 2.0 * BELOW_TARGET_ROUNDS);
        // Over long rounds queues vary as much as jitter does, and a probe in vain is long.
        let jitter = self.seen_noise() > self.weight().queue_ns / 4.0 && self.path.round_ns() < PROBE_ROUND_NS_MAX;
        let empty = queue - own <= (target / 4.0).max(1.2 * packet_ns);
        let free = !empty
            && below
            && jitter
            && self.below_target_rounds > BELOW_TARGET_ROUNDS
            && self.others.ns() < 0.0
            && self.config.policy != Policy::Low;
        if !free && !empty {
            self.idle_rounds = 0.0;
            self.probed_from = passed;
            // What was too soon is forgotten while others keep the queue.
            self.ramp_wait_rounds += (RAMP_WAIT_ROUNDS - self.ramp_wait_rounds) * (elapsed / 100.0);
            // A ramp-up that ends with this flow holding the link was right.
            if self.ramping && self.full > 0.8 * self.link {
                self.ramp_wait_rounds = RAMP_WAIT_ROUNDS;
            }
            self.ramping &= self.full <= 0.8 * self.link && passed > 0.8 * self.link;
            if self.base_shift.is_uncertain() {
                return 0.0;
            }
            self.full += (passed - self.full) * (elapsed / 4.0).min(1.0);
            return 0.0;
        }
        if elapsed == 0.0 {
            return 0.0;
        }
        if free {
            // It has been waited for long enough.
            self.idle_rounds = self.idle_rounds.max(BELOW_TARGET_ROUNDS);
        }
        if self.config.policy == Policy::Low && passed < 0.9 * self.link {
            return self.ramp_up(passed, elapsed);
        }
        let back = 0.97 * self.full / passed.max(1.0) - 1.0;
        if back > 0.0 {
            self.idle_rounds = self.idle_rounds.min(1.0) + elapsed;
            return if self.idle_rounds > 1.0 { back.min(0.5) } else { 0.0 };
        }
        self.idle_rounds += elapsed;
        let lost = self.loss.latest();
        if self.idle_rounds < 2.0 {
            self.probe_loss_before = lost;
            0.0
        } else if lost > self.probe_loss_before + PROBE_LOSS_MAX {
            // No queue is seen and yet more is lost the more is sent: the queue is full, and what we took for the empty path was never empty.
            self.idle_rounds = 1.0;
            self.full = 0.5 * passed;
            -0.5 * elapsed
        } else {
            // What only seems to be free is not overrun by more than a few milliseconds before its echo says so.
            let most = if free {
                (PROBE_QUEUE_NS_MAX / self.path.round_ns() as f64).min(PROBE_GROWTH_MAX)
            } else {
                PROBE_GROWTH_MAX
            };
            // A link that had been full would not have carried more since: what it did shows that there is room, and how far from its end we are.
            if self.probed_from == 0.0 {
                self.probed_from = passed;
            }
            let proven = (passed / self.probed_from.max(1.0) - 1.0).clamp(0.0, 1.0);
            (0.01 * maths::exp((self.idle_rounds - 2.0) * core::f64::consts::LN_2)).min(most.max(0.5 * proven))
        }
    }

    /// A scavenger finds an empty queue: what it had, then a quarter of the link at once, then twice as much each round trip. Whoever left it free may only
    /// have paused: each such ramp-up makes the next one wait four times as long, eight round trips at most.
    fn ramp_up(&mut self, passed: f64, elapsed: f64) -> f64 {
        self.idle_rounds += elapsed;
        if self.idle_rounds < self.ramp_wait_rounds {
            return 0.0;
        }
        if !self.ramping {
            self.ramping = true;
            if passed < 0.5 * LOW.first * self.link {
                self.ramp_wait_rounds = (4.0 * self.ramp_wait_rounds).min(8.0);
            }
        }
        // What it had when the link was last full first: whoever has the rest may be there still.
        let back = 0.97 * self.full;
        let wanted = if passed < 0.95 * back || self.idle_rounds < self.ramp_wait_rounds + RAMP_BACK_ROUNDS {
            back.max(passed)
        } else {
            (2.0 * passed).clamp(LOW.first * self.link, 0.95 * self.link)
        };
        wanted / passed.max(1.0) - 1.0
    }
}
