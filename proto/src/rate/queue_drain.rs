//! Queue drains: when a flow lets the bottleneck's queue run empty, and for how long.
//!
//! For: the `delay` controller. A flow that starts beside a queue which never empties takes the queue's delay for the base delay of the path and
//! keeps a queue of its own above it. Drains show every flow the empty path (as BBR's ProbeRTT does, but without stopping).
//! In and out: time, queueing delay and this flow's share in; the part of the rate to hold back out.
//! Invariants: at most half of the rate is held back, for at most two rounds; a flow alone on its path leaves the link idle for `EXTRA_NS` only.
//! Absent on purpose: messages between flows: a flow that sees the queue fall joins the drain.

use super::non_congestive::DrainResult;
use super::path::Path;

/// Rounds between two drains: costs below 0.1 % of the link alone, below 1 % with eight flows (simulator, design 003).
const INTERVAL_ROUNDS: u64 = 20;
/// ... and at least this long, ns.
const INTERVAL_NS_MIN: u64 = 1_000_000_000;
/// Largest part of the rate that a drain holds back.
const PART_MAX: f64 = 0.5;
/// Part of the rate that is held back while a start on a busy path gives back the queue that it made.
const PAYBACK_PART: f64 = 0.9;
/// A flow joins a drain when the queue falls by this share of its usual delay: one of eight flows cannot take more off it in two rounds at 20 ms
/// (with 0.6 nobody joined in half of ten starts, design 003).
const JOIN_SHARE: f64 = 0.1;
/// Above this queueing delay, ns, a falling queue is no sign of a drain but of a backlog that is worked off: eight flows of ours keep 9 ms.
const DEEP_QUEUE_NS: f64 = 12_000_000.0;
/// There a flow joins only when the queue has fallen to this share of its usual delay.
const JOIN_DEEP_SHARE: f64 = 0.4;
/// A start that left more than so many targets in the queue, and jitter, sent too much ...
const OVERSHOOT_TARGETS: f64 = 4.0;
/// ... and gives it back as soon as the echo of its end is there, where so much of the link is its own.
const OVERSHOOT_SHARE: f64 = 0.8;
/// A drain goes this far beyond the queue that is seen, ns of the bottleneck's time: the error of the measurement ...
pub(super) const EXTRA_NS: f64 = 300_000.0;
/// ... and so many times as far as the one before where that lowered the base by this part of how far it went.
const EXTRA_GROWTH: f64 = 4.0;
const EXTRA_FELL: f64 = 0.3;

/// How far beyond the queue that is seen the next drain goes, ns, after one that went `extra_ns` beyond it and lowered the base by `fell_ns`, `noise_ns` of it by chance;
/// `most_ns` at most. A base that fell shows that a standing queue was taken for the empty path.
pub(super) fn next_extra_ns(extra_ns: f64, (fell_ns, noise_ns): (f64, f64), most_ns: f64) -> f64 {
    if fell_ns > EXTRA_FELL * extra_ns + noise_ns {
        (EXTRA_GROWTH * extra_ns).min(most_ns).max(EXTRA_NS)
    } else {
        EXTRA_NS
    }
}

#[derive(Debug, Clone)]
pub(super) struct QueueDrain {
    from_ns: u64,
    until_ns: u64,
    part: f64,
    count: u32,
    /// 0..128: spreads the drains of several flows.
    chance: u64,
    /// How far the next drain goes beyond the queue that is seen, ns.
    extra_ns: f64,
    queue_usual: f64,
    /// The least one-way delay known when the last one began; taken when it is judged.
    base_before: Option<i64>,
    /// Sending time that it holds back, ns of the bottleneck's time.
    held_ns: f64,
    /// Until then all flows together look for the empty path.
    cleared_until_ns: u64,
    /// Mean one-way delay above the base before its echo, ns.
    late_ns: Option<f64>,
}

impl QueueDrain {
    pub(super) const fn new(now_ns: u64) -> Self {
        Self {
            from_ns: now_ns,
            until_ns: now_ns,
            part: 0.0,
            count: 0,
            chance: 0,
            extra_ns: EXTRA_NS,
            queue_usual: 0.0,
            base_before: None,
            held_ns: 0.0,
            cleared_until_ns: 0,
            late_ns: None,
        }
    }

    /// A start used rate that competing flows had: the queue that it made is given back for `span_ns`.
    pub(super) fn pay(&mut self, now_ns: u64, span_ns: u64) {
        self.part = PAYBACK_PART;
        self.from_ns = now_ns;
        self.until_ns = now_ns.saturating_add(span_ns);
        self.count = self.count.max(1);
    }

    /// So much waits, nanoseconds of the bottleneck's time, which this flow made: it gives it back at once.
    pub(super) fn shed(&mut self, now_ns: u64, queue_ns: f64) {
        self.part = PART_MAX;
        self.from_ns = now_ns;
        self.until_ns = now_ns.saturating_add((queue_ns / PART_MAX) as u64);
        self.queue_usual = queue_ns;
        self.count = self.count.max(1);
    }

    /// Something else emptied the queue: what the last drain did is not known.
    pub(super) fn void(&mut self) {
        self.base_before = None;
        self.held_ns = 0.0;
    }

    /// All flows of the link empty it together: none has to drain it by itself, or to join one that does, until then.
    pub(super) fn rest(&mut self, until_ns: u64) {
        self.cleared_until_ns = until_ns;
    }

    pub(super) fn running(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns
    }

    /// What arrives now left while a drain was on.
    pub(super) fn echoes(&self, path: &Path, now_ns: u64) -> bool {
        let rtt = path.rtt_ns();
        let until = self.until_ns.saturating_add(rtt).saturating_add(path.report_ns());
        self.count > 0 && (self.from_ns.saturating_add(rtt)..=until).contains(&now_ns)
    }

    /// The part of the rate to hold back now. `queue_ns`, `target_ns`: what waits, and what should. `low`: a scavenger, which takes the word of no drain for
    /// more room.
    pub(super) fn held_back(
        &mut self,
        path: &mut Path,
        now_ns: u64,
        (queue_ns, target_ns): (f64, f64),
        share: f64,
        low: bool,
    ) -> f64 {
        let echo_ns = self.from_ns.saturating_add(path.rtt_ns());
        if self.late_ns.is_none() && self.held_ns > 0.0 && now_ns >= echo_ns {
            self.late_ns = path.late_mean(echo_ns.saturating_sub(path.round_ns()), echo_ns);
        }
        if self.running(now_ns) {
            if self.part <= PART_MAX && queue_ns < self.queue_usual / 16.0 {
                self.until_ns = now_ns; // the echo shows it empty: more would idle the link
                return 0.0;
            }
            // Paying goes on while the delay still falls: what a newcomer found at the start was no empty path.
            let paid =
                now_ns.saturating_sub(self.from_ns.max(path.base_fell_ns())) > path.round_ns().saturating_mul(3) / 2;
            if self.part > PART_MAX && paid {
                self.until_ns = now_ns;
                return 0.0;
            }
            return self.part;
        }
        let round = path.round_ns();
        self.queue_usual += (queue_ns - self.queue_usual) * 0.02;
        self.evaluate(path, now_ns);
        let since = now_ns.saturating_sub(self.until_ns);
        // Someone else drains: help, all at once it costs nobody.
        let dip = self.queue_usual - queue_ns;
        let part = if self.queue_usual < DEEP_QUEUE_NS { JOIN_SHARE } else { 1.0 - JOIN_DEEP_SHARE };
        let fell = dip > part * self.queue_usual + 3.0 * path.noise_ns();
        let join = fell && self.queue_usual > 500_000.0 && since > 8 * round;
        // A newcomer has seen no empty path yet, and who has just found a lower base may find a still lower one.
        let soon = self.count < 2 || self.extra_ns > EXTRA_NS || (path.is_uncertain() && round <= 2 * path.rtt_ns());
        // Up to half longer, by chance: one begins, the others see it and help, instead of all beginning at once.
        let overshot = self.count < 2
            && share > OVERSHOOT_SHARE
            && queue_ns > OVERSHOOT_TARGETS * target_ns + 2.0 * path.noise_ns();
        let pause = if overshot {
            round
        } else if soon {
            3 * round
        } else {
            (INTERVAL_ROUNDS * round).max(INTERVAL_NS_MIN) / 256 * (256 + self.chance)
        };
        let is_clear = now_ns < self.cleared_until_ns && !overshot;
        if is_clear || (!join && since <= pause) {
            return 0.0;
        }
        let need =
            if join { queue_ns } else { (1.1 * queue_ns + self.extra_ns + path.non_congestive_ns() / 2.0) / share };
        let span = (need / PART_MAX).max(path.report_ns() as f64).clamp(1.0, 2.0 * round as f64);
        self.part = (need / span).min(PART_MAX);
        self.from_ns = now_ns;
        self.until_ns = now_ns.saturating_add(span as u64);
        self.count = self.count.saturating_add(1);
        // Knuth's multiplicative hash: flows differ in their shares, and so in the digits.
        self.chance = (share.to_bits() >> 16).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 57;
        self.base_before = Some(path.base_one_way_ns());
        self.late_ns = None;
        self.held_ns = if join || low { 0.0 } else { self.part * span * share };
        self.part
    }

    /// Its echo is over. A base that fell shows that a standing queue was taken for the empty path: the next drain goes deeper.
    fn evaluate(&mut self, path: &mut Path, now_ns: u64) {
        let after_ns = self.until_ns.saturating_add(path.rtt_ns());
        let over = after_ns.saturating_add((2 * path.report_ns()).max(path.round_ns() / 2));
        let Some(before) = self.base_before.filter(|_| now_ns > over) else { return };
        self.base_before = None;
        if let (Some(late), Some(after)) = (self.late_ns, path.late_mean(after_ns, now_ns)) {
            path.on_drained(DrainResult { held_back_ns: self.held_ns, before_ns: late, after_ns: after });
        }
        self.held_ns = 0.0;
        let fell = before.saturating_sub(path.base_one_way_ns()) as f64;
        // Jitter lowers the base by chance.
        let most = path.round_ns() as f64 / 4.0;
        self.extra_ns = next_extra_ns(self.extra_ns, (fell, path.noise_ns()), most);
    }
}
