//! Surge: is there more than the start has found?
//!
//! For: the `delay` controller after its start. Jitter, and receivers that join packets, make the first train look slower than the link; a window that doubles
//! (RFC 5681) would find the rest within rounds, and a probe of a few percent would take dozens.
//! In and out: the queue and what passes in; a quarter of a round trip of more, and its judgement a round trip later, out.
//! Invariants: what a surge adds to a queue is at most a quarter of a round trip of what it is above the rate before, and is given back at once; the next one follows
//! only if no queue grew and all of this one passed, as far as jitter and the distance of reports let that be seen.
//! Absent on purpose: loss (`ceiling`), and room that others leave later (`probe`).

use super::{Delay, Phase, QUEUE_ALONE_NS};
use crate::rate::{Policy, Signal};

/// The first surge is this multiple of the rate that a train showed ...
const FIRST: f64 = 1.25;
/// ... and after one that found room, the next.
const NEXT: f64 = 2.0;
/// Noise below this part of what a burst makes by itself is no jitter.
const SHARP: f64 = 0.75;
/// Share of loss above the usual one that a surge may have.
const LOST_MORE: f64 = 0.08;
/// Of a surge passes at least this where the link has room for it.
const ALL: f64 = 0.8;
/// Jitter is this part of what a train was spread out, or more, where the train is no measure.
const TRAIN_BLURRED: f64 = 0.25;
/// What passes of a surge is known to this part of it, or it is no measure.
const BLURRED: f64 = 0.15;
/// Share of the queue that the surge would have made of a link no faster than before, from which on it is one.
const QUEUE_SHARE: f64 = 0.25;
/// What a surge sent beyond the rate before, by the queue that it made, is the link's rate; it counts as at most so many times that, since others may have sent more
/// at that moment, too ...
const LINK_MOST: f64 = 4.0;
/// ... but as at least so many times what goes through of this flow.
pub(super) const LINK_LEAST: f64 = 2.5;

/// One surge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Surge {
    pub(super) began_ns: u64,
    /// A round trip then, ns.
    pub(super) rtt_ns: u64,
    /// Until then more is sent.
    pub(super) until_ns: u64,
    /// The rate before and that of the surge, bytes per second.
    pub(super) low: f64,
    pub(super) high: f64,
    /// Queueing delay when it began, ns.
    pub(super) queue_ns: f64,
    /// Its echo comes.
    echoing: bool,
    /// What came of one that follows a blurred train is counted from then on; 0: it was not reported yet.
    pub(super) marked_ns: u64,
}

impl Surge {
    /// From now on for a quarter of a round trip the second rate in place of the first.
    pub(super) fn new((now_ns, rtt_ns): (u64, u64), (low, high): (f64, f64), queue_ns: f64) -> Self {
        let until_ns = now_ns.saturating_add(rtt_ns / 4);
        Self { began_ns: now_ns, rtt_ns, until_ns, low, high, queue_ns, echoing: false, marked_ns: 0 }
    }
}

impl Delay {
    /// The start found a rate and no queue: begins a surge, unless there is no reason to.
    pub(super) fn surge(&mut self, signal: &Signal, times: Option<f64>) -> bool {
        let bounded = self.config.target > 0 && self.goal >= self.config.target as f64;
        // Packets of a burst wait for each other; what else makes delays differ has blurred the train.
        let burst = (2.0 * f64::from(self.config.packet_bytes)).max(self.goal / 8_000.0) * 1e9 / self.link.max(1.0);
        let sharp = self.path.start_noise_ns() < SHARP * burst;
        if !self.starting
            || signal.limited
            || bounded
            || self.config.policy == Policy::Low
            || (times.is_none() && sharp)
        {
            return false;
        }
        // Where jitter may hide the link a surge is judged by what arrives of it alone.
        if times.is_none() && self.start_in_doubt(signal, self.goal) {
            return true;
        }
        let now_ns = signal.now_ns;
        let rtt = self.path.rtt_ns();
        // A train that is no longer than what jitter does to it says little.
        let jitter = self.path.start_noise_ns();
        let first = if jitter > TRAIN_BLURRED * self.train_ns && jitter > QUEUE_ALONE_NS { NEXT } else { FIRST };
        let times = times.unwrap_or(first);
        let high = self.goal * times;
        let span = rtt as f64 / 4.0;
        if (times - 1.0) * span < 2.0 * self.path.start_noise_ns() {
            // It could not be judged.
            return false;
        }
        let queue_ns = self.path.queue_least(now_ns.saturating_sub(rtt / 4), now_ns);
        self.surge = Some(Surge::new((now_ns, rtt), (self.goal, high), queue_ns));
        self.rate = high;
        self.phase = Phase::Surge;
        true
    }

    /// A surge ends on time, not with the next report.
    pub(super) fn surge_on_time(&mut self, now_ns: u64) {
        if let Some(surge) = self.surge.filter(|it| now_ns >= it.until_ns) {
            self.rate = self.rate.min(surge.low);
        }
    }

    /// One report while a surge is on its way.
    pub(super) fn surging(&mut self, signal: &Signal) {
        let Some(mut surge) = self.surge else { return self.surge_over(signal, 0.0) };
        if self.blur_ns > 0.0 {
            return self.surging_blurred(signal, surge);
        }
        let (now_ns, rtt) = (signal.now_ns, self.path.rtt_ns());
        let noise = self.path.start_noise_ns();
        let queue =
            self.path.queue_least(now_ns.saturating_sub(self.path.report_ns().saturating_mul(2).max(rtt / 8)), now_ns);
        let would = (surge.high / surge.low - 1.0) * (surge.until_ns - surge.began_ns) as f64;
        let grown = queue - surge.queue_ns;
        // A queue of others, or one that the surge would make of a link that is full already.
        if grown > (QUEUE_SHARE * would).max(QUEUE_ALONE_NS) + 2.0 * noise {
            return self.surge_over(signal, grown);
        }
        if !surge.echoing && now_ns >= surge.began_ns.saturating_add(rtt) {
            surge.echoing = true;
            self.jumped_arrival_ns = self.arrival_ns;
            (self.jumped_sent, self.jumped_delivered) = (self.sent, self.delivered);
            self.surge = Some(surge);
        }
        if now_ns < surge.until_ns.saturating_add(rtt) {
            return;
        }
        let passed = self.passed();
        // Reports are few in a round trip: what they say of a part of one is blurred.
        let least = (0.5 * (surge.low + surge.high)).max(ALL * surge.high);
        let sent = self.sent.saturating_sub(self.jumped_sent) as f64;
        let lost = 1.0 - self.delivered.saturating_sub(self.jumped_delivered) as f64 / sent.max(1.0);
        // A queue that is full grows no more: what is lost in it is the rate's doing.
        if would < 2.0 * noise || lost > self.loss.usual() + LOST_MORE {
            return self.surge_over(signal, grown);
        }
        // Where jitter, or reports as far apart as a surge is long, blur what passes, the queue that did not grow says it alone.
        let blur = noise.max(self.path.report_ns() as f64) / (surge.until_ns - surge.began_ns) as f64;
        let is_blurred = blur > BLURRED && passed > surge.low * (1.0 - BLURRED);
        if passed < least && !is_blurred {
            return self.surge_over(signal, grown);
        }
        self.link = self.link.max(passed * (1.0 - lost));
        self.goal = if passed < least { 0.5 * (surge.low + surge.high) } else { surge.high.min(passed) };
        if !self.surge(signal, Some(NEXT)) {
            self.surge_over(signal, grown);
        }
    }

    pub(super) fn surge_over(&mut self, signal: &Signal, grown_ns: f64) {
        let surge = self.surge.take();
        let low = surge.map_or(self.goal, |it| it.low);
        self.goal = low;
        self.rate = low;
        if grown_ns > QUEUE_ALONE_NS + 2.0 * self.path.start_noise_ns() {
            self.drain.shed(signal.now_ns, grown_ns);
            // What was sent beyond the rate before takes the link this long: a train that a shaper's bucket passed made it seem far faster.
            let more = surge.map_or(0.0, |it| (it.high - it.low) * it.until_ns.saturating_sub(it.began_ns) as f64);
            self.link = self.link.min((LINK_MOST * more / grown_ns).max(LINK_LEAST * low));
        }
        self.jumped_arrival_ns = self.arrival_ns;
        self.stepped_ns = signal.now_ns;
        self.starting = false;
        self.phase = Phase::Steady;
    }
}
