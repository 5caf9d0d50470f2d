//! Blurred: a start that jitter hides the link from.
//!
//! For: the `delay` controller where jitter takes longer than a train does: how far apart the train's packets come says little of the link then, and a short look at the
//! delay takes jitter for a queue.
//! In and out: how evenly a train came, and what arrives of surges, in; surges that grow twofold or threefold, and at last the link's rate, out.
//! Invariants: a surge lasts a quarter of a round trip; it is judged by what arrived, over its own time and that of the jitter, and by no delay that jitter may cause;
//! what it left in a queue is given back at once; a train that came evenly is never doubted.
//! Absent on purpose: losses (`ceiling`, which looks at no report while overtaken packets look lost), jitter of the steady state (`path`).

use super::surge::Surge;
use super::{Delay, Phase, QUEUE_ALONE_NS};
use crate::rate::{Policy, Signal, maths};

/// A train whose rate may be wrong by this part came unevenly ...
const UNEVEN: f64 = 0.1;
/// ... and one of so many reports and less than this part came evenly.
const EVEN: (u32, f64) = (4, 0.03);
/// A train shorter than this part of a round trip is little beside what a first flight shows.
const SHORT: f64 = 0.02;
/// A surge is this multiple of the rate before it, or, where what is risked is more than a part of the job, the second.
const GROWTH: (f64, f64) = (3.0, 2.0);
const GROWTH_JOB_PART: f64 = 0.06;
/// No surge begins at this part of the user's bound, or above.
const BOUNDED: f64 = 0.8;
/// So much of what a surge sends beyond the rate before it arrives where the link has room for it.
const ROOM: f64 = 0.3;
/// Share of the queue that the surge would have made of a link no faster than before, from which on it is one.
const QUEUE_SHARE: f64 = 0.25;
/// What is sent after a surge without room: this part of what arrived.
const ARRIVED: f64 = 0.9;
/// Jitter takes this multiple of its mean, at most this part of a round trip.
const JITTER: f64 = 4.0;
const JITTER_MOST: f64 = 0.5;
/// Jitter of less than this part of a round trip hides no link ...
const DOUBT: f64 = 1.0 / 400.0;
/// ... nor does less than this part of a short one, so many ns at least and at most: with less for all, thirty flows of 10 to 200 ms came to Jain's index 0.44.
const DOUBT_SHORT: f64 = 1.0 / 33.0;
const DOUBT_NS: (f64, f64) = (100_000.0, 300_000.0);

/// How far apart a train's packets, or the reports of them, came. A link spreads packets evenly, jitter does not.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Gaps {
    count: u32,
    bytes: f64,
    ns: f64,
    /// Sum of ns² ÷ bytes.
    squares: f64,
}

impl Gaps {
    /// So many bytes passed the link, arrived or lost, in this time.
    pub fn push(&mut self, bytes: f64, ns: f64) {
        if bytes > 0.0 {
            self.count += 1;
            self.bytes += bytes;
            self.ns += ns;
            self.squares += ns * ns / bytes;
        }
    }

    /// How many gaps there were.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// By what part of itself the train's rate may be wrong: the deviation of a byte's time as a part of its mean, divided by the number of gaps.
    #[must_use]
    pub fn doubt(&self) -> f64 {
        let variance = self.bytes * self.squares / (self.ns * self.ns).max(1.0) - 1.0;
        maths::sqrt(variance.max(0.0)) / f64::from(self.count.max(1))
    }

    fn is_uneven(&self) -> bool {
        // A receiver that was woken late saw all of it at once.
        self.count > 1 && self.doubt() > UNEVEN
    }

    /// A link spread it: what looks like jitter is none.
    fn is_even(&self) -> bool {
        self.count >= EVEN.0 && self.doubt() < EVEN.1
    }

    /// Of a train that was looked at elsewhere.
    pub(super) const fn even() -> Self {
        Self { count: EVEN.0, bytes: 1.0, ns: 1.0, squares: 1.0 }
    }
}

impl Delay {
    /// A train came unevenly and says little of the link: what passes of surges does. False: it came evenly, or nothing can be sent.
    pub(super) fn start_blurred(&mut self, signal: &Signal, rate: f64) -> bool {
        let is_short = self.train_ns < SHORT * self.path.rtt_ns() as f64;
        if !self.gaps.is_uneven() || is_short || signal.limited || self.config.policy == Policy::Low {
            return false;
        }
        self.starting = true;
        self.flight_bytes = 0.0;
        self.link = 0.98 * rate;
        self.surge_blurred(signal.now_ns, self.train_ns, self.link)
    }

    /// The same of a train that left before the flow.
    pub(super) fn start_from_blurred(&mut self, now_ns: u64) -> bool {
        let jitter_ns = core::mem::take(&mut self.blur_ns);
        let is_short = jitter_ns < SHORT * self.path.rtt_ns() as f64;
        if jitter_ns == 0.0 || is_short || self.config.policy == Policy::Low {
            return false;
        }
        self.starting = true;
        self.link *= 0.98;
        self.surge_blurred(now_ns, jitter_ns, self.link)
    }

    /// What looks like a queue of others may be jitter: only what passes of a surge tells.
    pub(super) fn start_in_doubt(&mut self, signal: &Signal, passed: f64) -> bool {
        let (noise, rtt) = (self.path.start_noise_ns(), self.path.rtt_ns() as f64);
        let is_quiet = noise < (DOUBT * rtt).max((DOUBT_SHORT * rtt).clamp(DOUBT_NS.0, DOUBT_NS.1));
        if self.blur_ns > 0.0 || is_quiet || signal.limited || self.gaps.is_even() || self.config.policy == Policy::Low
        {
            return false;
        }
        self.surge_blurred(signal.now_ns, JITTER * noise, passed)
    }

    /// A surge from this rate on, beside so much jitter.
    fn surge_blurred(&mut self, now_ns: u64, jitter_ns: f64, low: f64) -> bool {
        let most = if self.config.target > 0 { self.config.target as f64 } else { f64::INFINITY };
        // What the user permits beyond it would be too little to be seen.
        if !self.starting || low <= 0.0 || low >= BOUNDED * most {
            return false;
        }
        let rtt = self.path.rtt_ns();
        let risked = (GROWTH.0 - 1.0) * low * rtt as f64 / 4e9;
        let growth = if risked < GROWTH_JOB_PART * self.job_bytes { GROWTH.0 } else { GROWTH.1 };
        let queue_ns = self.path.queue_least(now_ns.saturating_sub(rtt / 4), now_ns);
        self.blur_ns = jitter_ns.min(JITTER_MOST * rtt as f64);
        self.goal = low;
        let high = (growth * low).min(most);
        self.rate = high;
        self.surge = Some(Surge::new((now_ns, rtt), (low, high), queue_ns));
        self.phase = Phase::Surge;
        true
    }

    /// One report while such a surge is on its way.
    pub(super) fn surging_blurred(&mut self, signal: &Signal, mut surge: Surge) {
        let (now_ns, rtt) = (signal.now_ns, surge.rtt_ns);
        if now_ns < surge.began_ns.saturating_add(rtt) || surge.marked_ns == 0 {
            // Reports may be as far apart as a surge is long: what came is counted from the last one before it.
            surge.marked_ns = now_ns;
            (self.jumped_sent, self.jumped_delivered) = (self.sent, self.delivered);
            self.jumped_arrival_ns = self.arrival_ns;
            self.surge = Some(surge);
            return;
        }
        let late = (2.0 * self.blur_ns).min(rtt as f64 / 4.0).max(self.path.report_ns() as f64);
        if now_ns < surge.until_ns.saturating_add(rtt).saturating_add(late as u64) {
            return;
        }
        let span = surge.until_ns.saturating_sub(surge.began_ns) as f64;
        // Before a first surge nothing was on its way: from the last report before it to its echo nothing could come.
        let from_ns = surge.began_ns.saturating_add(rtt).saturating_sub(self.path.report_ns()).max(surge.marked_ns);
        let took = now_ns.saturating_sub(from_ns) as f64;
        // What would have come without the surge, and with all of it.
        let least = surge.low * took / 1e9;
        let all = least + (surge.high - surge.low) * span / 1e9;
        let arrived = self.delivered.saturating_sub(self.jumped_delivered) as f64;
        let lost = (self.sent.saturating_sub(self.jumped_sent) as f64 - arrived).max(0.0);
        let room = ((arrived - least) / (all - least).max(1.0)).clamp(0.0, 1.0);
        let grown = self.path.queue_least(now_ns.saturating_sub(rtt / 4), now_ns) - surge.queue_ns;
        let would = (surge.high / surge.low - 1.0) * span;
        if !signal.limited && room >= ROOM && grown <= (QUEUE_SHARE * would).max(QUEUE_ALONE_NS) + self.blur_ns {
            let goal = surge.low + room * (surge.high - surge.low);
            self.link = self.link.max(goal);
            if self.surge_blurred(now_ns, self.blur_ns, goal) {
                return;
            }
            surge.low = goal;
            self.surge = Some(surge);
            return self.surge_over(signal, grown);
        }
        // What a surge without room loses is its own doing, and is known later than it comes: it says nothing of a ceiling.
        self.climbed_ns = surge.until_ns.saturating_add(self.blur_ns as u64);
        let rate = arrived * 1e9 / took.max(1.0);
        if !signal.limited {
            surge.low = (ARRIVED * rate).max(surge.low * (arrived / all).clamp(0.5, 1.0));
            self.link = self.link.max(surge.low);
        }
        self.surge = Some(surge);
        let waits = (all - arrived - lost).max(0.0) * 1e9 / rate.max(1.0);
        self.surge_over(signal, if signal.limited { grown } else { grown.max(waits) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(all: &[(f64, f64)]) -> Gaps {
        let mut gaps = Gaps::default();
        all.iter().for_each(|&(bytes, ns)| gaps.push(bytes, ns));
        gaps
    }

    #[test]
    fn a_link_spreads_packets_evenly_and_jitter_does_not() {
        let even = gaps(&[(1500.0, 47_000.0); 6]);
        assert!(!even.is_uneven() && even.is_even());
        // Two packets in one report, one of them lost: they passed the link as well.
        let joined = gaps(&[(1500.0, 47_000.0), (3000.0, 94_000.0), (1500.0, 47_000.0), (1500.0, 47_000.0)]);
        assert!(!joined.is_uneven() && joined.is_even());
        let jitter = gaps(&[(3000.0, 93_000.0), (3000.0, 209_000.0), (1500.0, 442_000.0), (7500.0, 159_000.0)]);
        assert!(jitter.is_uneven() && !jitter.is_even());
        let at_once = gaps(&[(22_500.0, 1_143_000.0)]);
        assert!(!at_once.is_uneven() && !at_once.is_even(), "what came in one report says nothing of evenness");
        assert!(Gaps::even().is_even() && !Gaps::default().is_even() && !Gaps::default().is_uneven());
    }
}
