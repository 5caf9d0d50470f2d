//! Base-RTT change: has the path itself become longer.
//!
//! For: the `delay` controller: after a reroute over a longer path the added delay looks like a queue that no lower rate empties.
//! In and out: queueing delays in; "the base delay has changed" out.
//! Invariants: only a jump that no queue could build in that time counts, what this flow itself sent faster than the link included, and only if the delay
//! neither falls nor grows for two round trips; a queue does one or the other.
//! Absent on purpose: shorter paths: the base delay, a minimum, follows these by itself.

use super::Signal;
use super::path::Path;

/// Smaller jumps, ns, are within the queueing delay that the controller keeps anyway (1.5 ms and jitter).
const JUMP_NS: u64 = 2_000_000;
/// A path that became longer by some time stays between these shares of it.
const STAYS: (f64, f64) = (0.7, 1.3);
/// ... and jitter above them, so many times its mean.
const NOISE_MULTIPLE: f64 = 3.0;

/// A jump that is being watched.
#[derive(Debug, Clone, Copy)]
struct Jump {
    at_ns: u64,
    /// Queueing delay before it, and by how much it rose, ns.
    before_ns: u64,
    height_ns: u64,
}

impl Jump {
    /// The delay went up with the path, and stays there. What of a queue stood before may go, up to half of the jump: more would let any queue that is worked off pass for it.
    fn stays(&self, path: &Path) -> bool {
        let (queue, before, height) = (path.queue_ns() as f64, self.before_ns as f64, self.height_ns as f64);
        let least = before - before.min(height / 2.0) + STAYS.0 * height;
        let most = before + STAYS.1 * height + JUMP_NS as f64 / 2.0 + NOISE_MULTIPLE * path.noise_ns();
        (least..=most).contains(&queue)
    }
}

#[derive(Debug, Clone)]
pub(super) struct BaseShift {
    /// Queueing delay of the signal before, ns; `u64::MAX` before the first.
    queue_ns: u64,
    jumped: Option<Jump>,
}

impl BaseShift {
    pub(super) const fn new() -> Self {
        Self { queue_ns: u64::MAX, jumped: None }
    }

    /// A jump is being watched: what looks like a queue may be a longer path.
    pub(super) fn is_uncertain(&self) -> bool {
        self.jumped.is_some()
    }

    /// Each signal, in every phase. `passed`: bytes of this flow that the bottleneck passed since the one before; `rate`: its rate lately, bytes per second.
    pub(super) fn on_signal(&mut self, path: &Path, signal: &Signal, passed: f64, rate: f64) {
        let before_ns = core::mem::replace(&mut self.queue_ns, path.queue_ns());
        let height_ns = path.queue_ns().saturating_sub(before_ns);
        // A queue's delay grows by (input / link rate - 1) per second: 1.5 s per second would take 2.5 times the link's rate at once. What this flow itself
        // sent, however fast, takes the link as long as its bytes do.
        let own_ns = (passed * 1e9 / rate.max(1.0)) as u64;
        if height_ns > JUMP_NS && height_ns > signal.sent_interval_ns.max(own_ns).saturating_mul(3) / 2 {
            self.jumped = Some(Jump { at_ns: signal.now_ns, before_ns, height_ns });
        } else if self.jumped.is_some_and(|jump| !jump.stays(path)) {
            self.jumped = None;
        }
    }

    /// True, once: the path became longer, and its base delay is out of date.
    pub(super) fn has_shifted(&mut self, path: &Path, now_ns: u64) -> bool {
        let lasts_ns = path.rtt_ns().saturating_mul(2);
        let has_shifted = self.jumped.is_some_and(|jump| now_ns.saturating_sub(jump.at_ns) > lasts_ns);
        if has_shifted {
            *self = Self::new();
        }
        has_shifted
    }
}
