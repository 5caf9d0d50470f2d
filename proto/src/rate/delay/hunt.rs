//! What is taken where the queue is empty, or only seems not to be.
//!
//! For: `delay`: room that others left, and links whose rate no train has shown.
//! In and out: queue, target and what passes in; a share to add to the rate out.
//! Invariants: growth doubles from a hundredth a round; loss that comes with it ends it; a scavenger leaps and then waits.
//! Absent on purpose: the queue that is kept (`delay`), and who else keeps one (`rival`).

use super::{Delay, LOW, PUSH};
use crate::rate::{Policy, maths};

/// A scavenger waits so many empty rounds before it takes what is free.
pub(super) const LEAP_ROUNDS: f64 = 1.5;
/// Loss that came with a hunt: ours.
const HUNT_LOSS: f64 = 0.08;
/// A hunt grows by this share a round at most, and where the queue is not empty by no more than makes a queue so long.
const HUNT_MAX: f64 = 0.4;
const FREE_NS: f64 = 8_000_000.0;
const FREE_ROUND_NS: u64 = 250_000_000;
/// A queue below this part of its target for so many rounds is none.
const BELOW: f64 = 0.75;
const BELOW_ROUNDS: f64 = 5.0;

impl Delay {
    /// The queue stays empty, so there is room: back to what we had at once, beyond it faster and faster.
    /// `own`: what of the queue is the newest packet's wait for those of its own burst.
    pub(super) fn hunt(&mut self, (queue, own): (f64, f64), target: f64, passed: f64, elapsed: f64) -> f64 {
        let packet_ns = f64::from(self.config.packet_bytes) * 1e9 / self.link.max(1.0);
        // A link that is full comes to the target within rounds; where the rate grows and the queue does not, what is seen of one is jitter.
        let below = queue < BELOW * target;
        self.below_rounds = if below { self.below_rounds + elapsed } else { self.below_rounds - 3.0 * elapsed }
            .clamp(0.0, 2.0 * BELOW_ROUNDS);
        // Over long rounds queues vary as much as jitter does, and a hunt in vain is long.
        let jitter = self.seen_noise() > self.weight().queue_ns / 4.0 && self.path.round_ns() < FREE_ROUND_NS;
        let empty = queue - own <= (target / 4.0).max(1.2 * packet_ns);
        let free = !empty
            && below
            && jitter
            && self.below_rounds > BELOW_ROUNDS
            && self.take < PUSH
            && self.config.policy != Policy::Low;
        if !free && !empty {
            self.idle_rounds = 0.0;
            // What was too soon is forgotten while others keep the queue.
            self.leap_rounds += (LEAP_ROUNDS - self.leap_rounds) * (elapsed / 100.0);
            // A leap that ends with the link in our hands was right.
            if self.leaping && self.full > 0.8 * self.link {
                self.leap_rounds = LEAP_ROUNDS;
            }
            self.leaping &= self.full <= 0.8 * self.link && passed > 0.8 * self.link;
            if self.shift.doubtful() {
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
            self.idle_rounds = self.idle_rounds.max(BELOW_ROUNDS);
        }
        if self.config.policy == Policy::Low && passed < 0.9 * self.link {
            return self.refill(passed, elapsed);
        }
        let back = 0.97 * self.full / passed.max(1.0) - 1.0;
        if back > 0.0 {
            self.idle_rounds = self.idle_rounds.min(1.0) + elapsed;
            return if self.idle_rounds > 1.0 { back.min(0.5) } else { 0.0 };
        }
        self.idle_rounds += elapsed;
        let lost = self.judge.latest();
        if self.idle_rounds < 2.0 {
            self.hunt_lost = lost;
            0.0
        } else if lost > self.hunt_lost + HUNT_LOSS {
            // No queue is seen and yet more is lost the more is sent: the queue is full, and what we took for the empty path was never empty.
            self.idle_rounds = 1.0;
            self.full = 0.5 * passed;
            -0.5 * elapsed
        } else {
            // What only seems to be free is not overrun by more than a few milliseconds before its echo says so.
            let most = if free { (FREE_NS / self.path.round_ns() as f64).min(HUNT_MAX) } else { HUNT_MAX };
            (0.01 * maths::exp((self.idle_rounds - 2.0) * core::f64::consts::LN_2)).min(most)
        }
    }

    /// A scavenger finds an empty queue: a quarter of the link at once, then twice as much each round trip. Whoever left it free may only
    /// have paused: each such leap makes the next one wait four times as long, eight round trips at most.
    fn refill(&mut self, passed: f64, elapsed: f64) -> f64 {
        self.idle_rounds += elapsed;
        if self.idle_rounds < self.leap_rounds {
            return 0.0;
        }
        if !self.leaping {
            self.leaping = true;
            if passed < 0.5 * LOW.first * self.link {
                self.leap_rounds = (4.0 * self.leap_rounds).min(8.0);
            }
        }
        let wanted = (2.0 * passed).clamp(LOW.first * self.link, 0.95 * self.link);
        wanted / passed.max(1.0) - 1.0
    }
}
