//! Loss classification: which losses are congestion (a queue overflowed) and which are the path's own.
//!
//! For: the `delay` controller, to which random loss is not congestion; the overflow of a queue too short for its target is.
//! In and out: arrivals, losses, CE marks and whether the queue was empty, per round, in; the share that overflowed out.
//! Invariants: shares are in 0..1; loss that also occurs while the queue is empty counts as overflow only until that is seen.
//! Absent on purpose: the reaction.

/// Smallest share of bytes above the usual loss that counts as overflow: 1 %, below which single packets decide.
const OVERFLOW_LEAST: f64 = 0.01;
/// Largest share that the path may lose by itself: the transport serves up to 30 % of random loss; a queue that is sent twice its link's rate
/// loses half.
const OWN_MOST: f64 = 0.45;

#[derive(Debug, Clone)]
pub(super) struct LossClassifier {
    /// The path's own loss: mean share over rounds without overflow.
    usual: f64,
    /// ... and its mean deviation.
    spread: f64,
    arrived: f64,
    lost: f64,
    rounds: u32,
    overflow: f64,
    latest: f64,
    marked: f64,
    /// Share of arrivals that carried marks, smoothed (DCTCP's alpha, RFC 8257).
    marks: f64,
    marked_now: bool,
}

impl LossClassifier {
    pub(super) const fn new() -> Self {
        Self {
            usual: 0.0,
            spread: 0.0,
            arrived: 0.0,
            lost: 0.0,
            rounds: 0,
            overflow: 0.0,
            latest: 0.0,
            marked: 0.0,
            marks: 0.0,
            marked_now: false,
        }
    }

    pub(super) fn count(&mut self, arrived: f64, lost: f64, marked: f64) {
        self.arrived += arrived;
        self.marked += marked;
        self.lost += lost;
    }

    /// A round is over; `queue_empty`: its queue was empty some time, so that what was lost was not lost there.
    pub(super) fn round(&mut self, queue_empty: bool, packet_bytes: f64) {
        let all = self.arrived + self.lost;
        if all < 8.0 * packet_bytes {
            return;
        }
        let share = self.lost / all;
        self.marked_now = self.marked > 0.0;
        self.marks += ((self.marked / self.arrived.max(1.0)).min(1.0) - self.marks) / 8.0;
        self.marked = 0.0;
        self.arrived = 0.0;
        self.lost = 0.0;
        self.latest = share;
        self.rounds = self.rounds.saturating_add(1);
        // One packet in few is a large share, and no sign.
        let one = packet_bytes / all;
        let deviation = super::maths::sqrt(self.usual.max(one) * one);
        if share > OWN_MOST {
            // However empty the queue is by now.
            self.overflow = share - self.usual;
            return;
        }
        let excess = share - self.usual - OVERFLOW_LEAST.max(3.0 * deviation).max(2.0 * self.spread);
        if excess > 0.0 && !queue_empty {
            self.overflow = share - self.usual;
            return;
        }
        self.overflow = 0.0;
        // Loss beside an empty queue is the path's. Beside a full one it may be overflow that creeps: it is learned slowly, unlearned fast.
        let weight: f64 = if self.rounds <= 2 {
            1.0
        } else if queue_empty {
            0.5
        } else if share < self.usual - 2.0 * deviation {
            0.125
        } else {
            0.02
        };
        self.spread += ((share - self.usual).abs() - self.spread) * weight.clamp(0.02, 0.25);
        self.usual += (share - self.usual) * weight;
    }

    /// Share of the last round's bytes that overflowed a queue; of this round's, where so much is lost that it need not end to be judged.
    pub(super) fn overflow(&self) -> f64 {
        let share = self.lost / (self.arrived + self.lost).max(1.0);
        if share > OWN_MOST { (share - self.usual).max(self.overflow) } else { self.overflow }
    }

    /// Smoothed share of arrivals with congestion marks; 0 where the last round had none.
    pub(super) fn marks(&self) -> f64 {
        if self.marked_now { self.marks } else { 0.0 }
    }

    /// Share of the last round's bytes that were lost, wherever.
    pub(super) fn latest(&self) -> f64 {
        self.latest
    }

    /// The path's own loss is no more than this share.
    pub(super) fn unlearn(&mut self, share: f64) {
        self.usual = self.usual.min(share);
        self.spread = self.spread.min(share);
    }

    /// Share of bytes the path loses by itself.
    pub(super) fn usual(&self) -> f64 {
        self.usual
    }
}
