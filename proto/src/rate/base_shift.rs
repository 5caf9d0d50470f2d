//! Base-RTT change: has the path itself become longer.
//!
//! For: the `delay` controller: after a reroute over a longer path the added delay looks like a queue that no lower rate empties.
//! In and out: queueing delays in; "the base delay has changed" out.
//! Invariants: only a jump that no queue could build in that time counts, and only if it lasts for two round trips.
//! Absent on purpose: shorter paths: the base delay, a minimum, follows these by itself.

use super::Signal;
use super::path::Path;

/// Smaller jumps, ns, are within the queueing delay that the controller keeps anyway (1.5 ms and jitter).
const JUMP_NS: u64 = 2_000_000;

#[derive(Debug, Clone)]
pub(super) struct BaseShift {
    /// Queueing delay of the signal before, ns; `u64::MAX` before the first.
    queue_ns: u64,
    /// When the delay jumped, and by how much, ns.
    jumped: Option<(u64, u64)>,
}

impl BaseShift {
    pub(super) const fn new() -> Self {
        Self { queue_ns: u64::MAX, jumped: None }
    }

    /// A jump is being watched: what looks like a queue may be a longer path.
    pub(super) fn is_uncertain(&self) -> bool {
        self.jumped.is_some()
    }

    /// True: the base delay of `path` is out of date.
    pub(super) fn on_signal(&mut self, path: &Path, signal: &Signal) -> bool {
        let before = core::mem::replace(&mut self.queue_ns, path.queue_ns());
        let jump = path.queue_ns().saturating_sub(before);
        // A queue's delay grows by (input / link rate - 1) per second: 1.5 s per second would take 2.5 times the link's rate at once.
        if jump > JUMP_NS && jump > signal.sent_interval_ns.saturating_mul(3) / 2 {
            self.jumped = Some((signal.now_ns, jump));
            return false;
        }
        let Some((since, height)) = self.jumped else { return false };
        if path.queue_ns() < height / 10 * 7 {
            self.jumped = None;
            return false;
        }
        let stays = signal.now_ns.saturating_sub(since) > path.rtt_ns().saturating_mul(2);
        if stays {
            *self = Self::new();
        }
        stays
    }
}
