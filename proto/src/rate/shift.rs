//! Has the path itself become longer.
//!
//! For: `delay`: a reroute looks like a queue that no yielding empties.
//! In and out: queueing delays in; the word that the base is another one out.
//! Invariants: only a jump that no queue could make in that time counts, and only if it stays for two round trips.
//! Absent on purpose: shorter paths: the base follows these by itself.

use super::Signal;
use super::path::Path;

/// Jumps smaller than this are within what the law bears.
const JUMP_NS: u64 = 2_000_000;

#[derive(Debug, Clone)]
pub(super) struct Shift {
    /// That of the signal before; the greatest number before there was one.
    queue_ns: u64,
    /// When, and the queueing delay that appeared.
    jumped: Option<(u64, u64)>,
}

impl Shift {
    pub(super) const fn new() -> Self {
        Self { queue_ns: u64::MAX, jumped: None }
    }

    /// A jump is being watched: what looks like a queue may be none.
    pub(super) fn doubtful(&self) -> bool {
        self.jumped.is_some()
    }

    /// True: the base of `path` is not the base any more.
    pub(super) fn on_signal(&mut self, path: &Path, signal: &Signal) -> bool {
        let before = core::mem::replace(&mut self.queue_ns, path.queue_ns());
        let jump = path.queue_ns().saturating_sub(before);
        // A queue grows by input over output: half as fast again as time is a rate 2.5 times the link's all at once.
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
