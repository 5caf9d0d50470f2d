//! Clearing: all flows that share a queue, or are in doubt of their path, send little at the same moment.
//!
//! For: the `delay` controller. What a flow in a crowd takes for the empty path may be a queue that never empties, and the queue's overflow for the path's own
//! loss; nothing that it does alone shows that. BBR's flows look for the empty path together by seeing each other do so (Cardwell et al. 2016,
//! ProbeRTT), which flows that each take a full queue for empty cannot. Clocks of hosts agree within milliseconds (NTP, RFC 5905): so these flows
//! begin by the clock.
//! In and out: time, round trip and doubt in; "send little now" and "leave that out of what is measured" out.
//! Invariants: the moments are multiples of a period; a flow that has nothing to doubt, and sees nobody else's queue, clears nothing; one that found nothing new leaves out ever more of them.
//! Absent on purpose: messages between flows, and any need for a clock that is right: one that is wrong clears by itself.

use super::{Delay, Phase};
use crate::rate::queue_drain::{EXTRA_NS, next_extra_ns};
use crate::rate::{Policy, Signal, maths};

/// The moments are this far apart, ns (about four seconds).
const PERIOD_NS: u64 = 1 << 32;
/// Where no queue is known little is sent for so long, ns: one of 150 ms is empty then.
const LASTS_NS: f64 = 200_000_000.0;
/// ... where the round trip is at most so many times as long ...
const RTT_MOST: f64 = 3.5;
/// ... and so much less, a share of the rate, at most.
const LESS_MOST: f64 = 0.75;
/// Where one is known, all flows of the link would empty so much of it together: what is left is the part of those who do not yield.
const TIMES: f64 = 1.1;
/// A moment is seen if it lasts for so many reports.
const REPORTS: f64 = 1.5;
/// Of these moments one in so many is used at most: a power of two, so that those who leave out many meet those who leave out few.
const SKIP_MAX: u64 = 32;
/// ... and at first, where the doubt is of losses alone: most paths that lose do so by themselves.
const SKIP_FIRST: u64 = 4;
/// A clearing goes at most this far beyond the queue that is seen, ns.
const EXTRA_NS_MOST: f64 = 10_000_000.0;
/// Where less than this is left of a queue all flows empty it together ...
const EMPTIED_SHARE: f64 = 0.3;
/// ... and nobody has to by itself until so many moments later.
const CLEARED_PERIODS: f64 = 2.5;
/// What others keep of a queue from which on it is cleared, whoever they are, ns.
const SHARED_NS: f64 = 300_000.0;
/// A base that fell by this much was no empty path, ns.
const FELL_NS: i64 = 2_000_000;

/// Packets of which the loss is looked at, how far it has to be from chance, and by how much less.
const PACKETS: f64 = 12.0;
const DEVIATIONS: f64 = 1.0;
const LESS_LOST: f64 = 0.02;

/// Loss of the path's own above this share is doubted: it may be a crowd's.
const DOUBTED_LOSS: f64 = 0.005;

#[derive(Debug, Clone)]
pub(super) struct Clearing {
    /// The number of the moment at which it was last looked whether to begin.
    seen: u64,
    from_ns: u64,
    until_ns: u64,
    /// One in so many moments is used.
    skip: u64,
    /// The part of the rate that is left out.
    less: f64,
    queue_ns: f64,
    passed: f64,
    arrived: f64,
    /// The base when it began; taken when it is judged.
    base_ns: Option<i64>,
    /// How far the next one goes beyond the queue that is seen, ns.
    extra_ns: f64,
}

impl Clearing {
    pub(super) const fn new() -> Self {
        Self {
            seen: 0,
            from_ns: 0,
            until_ns: 0,
            skip: SKIP_FIRST,
            less: 0.0,
            queue_ns: 0.0,
            passed: 0.0,
            arrived: 0.0,
            base_ns: None,
            extra_ns: EXTRA_NS,
        }
    }

    /// The part of the rate that is to be left out now. `clock_ns`: of the clock that all share. `doubted`: the queue that is doubted, ns; 0: it is not
    /// known; none: there is nothing to doubt.
    pub(super) fn less(
        &mut self,
        (now_ns, clock_ns): (u64, u64),
        (rtt_ns, report_ns): (u64, u64),
        base_ns: i64,
        doubted: Option<f64>,
    ) -> f64 {
        // Half a round trip before: at the queue all meet at the moment itself.
        let moment = clock_ns.saturating_add(rtt_ns / 2) / PERIOD_NS;
        if moment != self.seen {
            let is_first = self.seen == 0;
            self.seen = moment;
            // Reports are a quarter of a round trip apart: over the longest ones they would not show it.
            let long = rtt_ns as f64 > RTT_MOST * LASTS_NS;
            let doubted = doubted.filter(|queue| *queue > 0.0 || !long);
            if let Some(queue) = doubted.filter(|queue| !is_first && (*queue > 0.0 || moment.is_multiple_of(self.skip)))
            {
                let whole = TIMES * queue + self.extra_ns;
                let wanted = if queue > 0.0 { whole / LESS_MOST } else { LASTS_NS };
                let lasts = wanted.max(REPORTS * report_ns as f64).min(LASTS_NS);
                self.less = if queue > 0.0 { (whole / lasts).min(LESS_MOST) } else { LESS_MOST };
                self.queue_ns = queue;
                self.from_ns = now_ns;
                self.until_ns = now_ns.saturating_add(lasts as u64);
                self.base_ns = Some(base_ns);
                (self.passed, self.arrived) = (0.0, 0.0);
            }
        }
        if now_ns < self.until_ns { self.less } else { 0.0 }
    }

    /// The queue that was known when the last one began, ns; 0: none was.
    pub(super) const fn queue_ns(&self) -> f64 {
        self.queue_ns
    }

    /// What arrives now left while little was sent.
    pub(super) const fn echoes(&self, now_ns: u64, rtt_ns: u64, report_ns: u64) -> bool {
        let from = self.from_ns.saturating_add(rtt_ns);
        let until = self.until_ns.saturating_add(rtt_ns).saturating_add(report_ns);
        self.until_ns > 0 && from <= now_ns && now_ns <= until
    }

    /// What passed of what left while little was sent, and what of it arrived, bytes.
    pub(super) fn count(&mut self, passed: f64, arrived: f64) {
        self.passed += passed;
        self.arrived += arrived;
    }

    /// Less was lost in it than the path is believed to lose by itself, by more than chance: the share.
    pub(super) fn lost_less(&self, believed: f64, packet_bytes: f64) -> Option<f64> {
        let packets = self.passed / packet_bytes;
        let share = (1.0 - self.arrived / self.passed.max(1.0)).clamp(0.0, 1.0);
        let chance = DEVIATIONS * maths::sqrt(believed * (1.0 - believed) / packets.max(1.0));
        (packets >= PACKETS && believed - share > chance.max(LESS_LOST)).then_some(share)
    }

    /// The next moment is used.
    pub(super) fn doubt(&mut self) {
        self.skip = 1;
    }

    /// Once its echo is over: when that began. None: there is nothing to judge.
    pub(super) fn judge(&mut self, now_ns: u64, rtt_ns: u64, report_ns: u64, base_ns: i64) -> Option<u64> {
        let over = self.until_ns.saturating_add(rtt_ns).saturating_add(report_ns);
        if now_ns <= over {
            return None;
        }
        let fell = self.base_ns.take()?.saturating_sub(base_ns);
        self.extra_ns = next_extra_ns(self.extra_ns, (fell as f64, 0.0), EXTRA_NS_MOST);
        self.skip = if fell > FELL_NS { 1 } else { (2 * self.skip).min(SKIP_MAX) };
        Some(self.from_ns.saturating_add(rtt_ns))
    }
}

impl Delay {
    /// At the moments at which all who doubt do so, little is sent.
    pub(super) fn clear(&mut self, now_ns: u64) {
        if !matches!(self.phase, Phase::Hold { .. } | Phase::Surge | Phase::Steady) {
            return;
        }
        let low = self.config.policy == Policy::Low;
        let shared = !low && self.phase == Phase::Steady && self.others.ns() > SHARED_NS;
        let doubted = if shared || self.competitor.doubted() {
            Some(self.competitor.queue_ns())
        } else {
            (self.loss.usual() > DOUBTED_LOSS || self.ceiling.bound().is_some()).then_some(0.0)
        };
        let times = (self.path.rtt_ns(), self.path.report_ns());
        let clock = (now_ns, now_ns.saturating_add(self.clock_ahead_ns));
        let less = self.clearing.less(clock, times, self.path.base_one_way_ns(), doubted);
        if less > 0.0 {
            self.drain.void();
            self.rate = self.rate.min((1.0 - less) * self.goal);
        }
    }

    /// The echo of a moment at which all sent little comes; once it is over, what it showed is taken in.
    pub(super) fn is_clearing(&mut self, signal: &Signal) -> bool {
        let (now, rtt, report) = (signal.now_ns, self.path.rtt_ns(), self.path.report_ns());
        if self.clearing.echoes(now, rtt, report) {
            return true;
        }
        let Some(from_ns) = self.clearing.judge(now, rtt, report, self.path.base_one_way_ns()) else {
            return false;
        };
        let believed = self.ceiling.own().max(self.loss.usual());
        if let Some(share) = self.clearing.lost_less(believed, f64::from(self.config.packet_bytes)) {
            // What is not lost when all send little was not the path's own.
            self.ceiling.unlearn(share);
            self.loss.unlearn(share);
            self.clearing.doubt();
        }
        let (left, queue) = (self.path.queue_least(from_ns, now), self.clearing.queue_ns());
        if self.config.policy != Policy::Low && left < EMPTIED_SHARE * queue {
            self.path.on_cleared();
            self.drain.rest(now.saturating_add((CLEARED_PERIODS * PERIOD_NS as f64) as u64));
        }
        self.competitor.on_cleared(left, queue);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::{ControllerKind, RateConfig};

    const MS: u64 = 1_000_000;

    #[test]
    fn flows_of_any_round_trip_clear_at_the_same_moment_and_those_without_a_doubt_never() {
        let mut flows = [20 * MS, 300 * MS].map(|rtt| (rtt, Clearing::new()));
        let mut calm = Clearing::new();
        let mut began = [None; 2];
        for now in (0..10_000).map(|ms| ms * MS) {
            for ((rtt, flow), began) in flows.iter_mut().zip(&mut began) {
                let less = flow.less((now, now), (*rtt, *rtt / 4), 0, Some(20e6));
                if less > 0.0 && began.is_none() {
                    // Half a round trip later it is at the queue.
                    *began = Some(now + *rtt / 2);
                }
            }
            assert_eq!(calm.less((now, now), (20 * MS, 5 * MS), 0, None), 0.0);
        }
        let [one, other] = began.map(|it| it.expect("the first moment that is not the one it began in"));
        assert!(one.abs_diff(other) <= 2 * MS && one.abs_diff(2 * PERIOD_NS) <= 2 * MS, "{one} {other}");
    }

    #[test]
    fn who_doubts_its_losses_alone_leaves_out_ever_more_moments_until_less_is_lost() {
        let mut flow = Clearing::new();
        let (rtt, report) = (20 * MS, 5 * MS);
        let mut moments = alloc::vec::Vec::new();
        for now in (0..700_000).map(|ms| ms * MS) {
            let before = flow.from_ns;
            flow.less((now, now), (rtt, report), 0, Some(0.0));
            if flow.from_ns != before {
                moments.push((now + rtt / 2) / PERIOD_NS);
            }
            flow.judge(now, rtt, report, 0);
        }
        assert_eq!(moments[..4], [4, 8, 16, 32], "{moments:?}");
        flow.count(100_000.0, 100_000.0);
        assert_eq!(flow.lost_less(0.3, 1500.0), Some(0.0), "nothing was lost of what was sent then");
        flow.doubt();
        assert_eq!(flow.skip, 1);
        assert_eq!(flow.lost_less(0.01, 1500.0), None, "chance");
    }

    #[test]
    fn a_rate_that_is_held_is_back_when_the_moment_is_over_and_no_report_calls_less_the_rate() {
        let config = RateConfig {
            controller: ControllerKind::Delay,
            policy: Policy::Fair,
            target: 0,
            min: 0,
            packet_bytes: 1500,
        };
        let mut delay = Delay::new(0, config);
        delay.phase = Phase::Hold { until_ns: u64::MAX };
        (delay.goal, delay.rate) = (1e6, 1e6);
        delay.ceiling.settle(0, 1e6, (0.0, 1.0));
        let mut little_ms = 0;
        for now_ns in (0..40_000).map(|ms| ms * MS) {
            let _ = delay.train(now_ns);
            little_ms += u64::from(delay.rate() < 500_000);
            assert_eq!(delay.report(&Signal { now_ns, ..Signal::default() }).rate as u64, 980_000);
        }
        // Two moments of 200 ms, while only losses are doubted.
        assert!((390..=402).contains(&little_ms), "{little_ms} ms");
    }
}
