//! What feedback says of the path: round-trip time, base delay, queueing delay, jitter.
//!
//! For: every congestion controller; all read the same figures.
//! In and out: signals in; nanoseconds and bytes per second out.
//! Invariants: absurd signals are clamped here, so that no controller meets a zero or an overflow; the base is the least one-way delay of the
//! last two to three spans, so that clock drift and reroutes age out of it.
//! Absent on purpose: rates.

use super::Signal;
use super::non_congestive::{DrainResult, NonCongestive};
use super::trace::{Keep, Trace};

/// Round-trip times outside this range are clamped, ns: two hosts on one switch measure 10 µs and more, and no path we serve exceeds 60 s.
const RTT_NS_MIN: u64 = 10_000;
const RTT_NS_MAX: u64 = 60_000_000_000;
/// The base delay is the least of two to three spans, each this many round trips long: twice the distance of queue drains (`queue_drain`,
/// 20 round trips), so that each span sees one.
const SPAN_ROUNDS: u64 = 40;
/// ... and at least this long, ns: drains are a second apart at least.
const SPAN_NS_MIN: u64 = 4_000_000_000;

/// Divisor: the base delay rises by at most 1/1000 of the time that passes, ten times the drift of a quartz clock (100 ppm).
const RISE_DIVISOR: i64 = 1000;
/// A base delay that falls by less than this, ns, counts as unchanged: a seventh of the queueing delay that one flow keeps.
const FALL_NS_MIN: i64 = 200_000;

/// Non-congestive delay is at most this multiple of the noise. Measured (design 003): 1 to 9 times under jitter; 10 to 40 times where the
/// standing queue of competing flows was mistaken for it.
const NOISE_MULTIPLE_MAX: f64 = 6.0;

/// Reports over which jitter is a mean ...
const NOISE_REPORTS: f64 = 64.0;
/// ... and the first ones, in which that mean is still too small.
const EARLY_REPORTS: f64 = 128.0;
/// The jitter that a train before the flow showed counts as so many reports.
const EXPECTED_REPORTS: u64 = 32;

/// The least of the last two to three spans.
#[derive(Debug, Clone, Copy)]
struct Floor {
    spans: [i64; 3],
    began_ns: u64,
}

impl Floor {
    const fn new() -> Self {
        Self { spans: [i64::MAX; 3], began_ns: 0 }
    }

    fn push(&mut self, now_ns: u64, span_ns: u64, value: i64) {
        if now_ns.saturating_sub(self.began_ns) >= span_ns {
            // Forgetting goes slowly: a queue that stands for minutes is not the path, and a path that jumps is told (`rebase`).
            let before = self.least();
            let since = now_ns.saturating_sub(self.began_ns).min(RTT_NS_MAX) as i64;
            let bound = if before == i64::MAX { before } else { before.saturating_add(since / RISE_DIVISOR) };
            self.spans = [bound, self.spans[0], self.spans[1]];
            self.began_ns = now_ns;
        }
        self.spans[0] = self.spans[0].min(value);
    }

    fn least(&self) -> i64 {
        self.spans[0].min(self.spans[1]).min(self.spans[2])
    }
}

#[derive(Debug, Clone)]
pub(super) struct Path {
    now_ns: u64,
    rtt_ns: u64,
    rtt_floor: Floor,
    delay_floor: Floor,
    /// Reports come so far apart, smoothed.
    report_ns: f64,
    /// When the base last became notably less.
    fell_ns: u64,
    /// One-way delay of the newest packet above the base, ns.
    late_ns: u64,
    /// The part of it that is no queue.
    non_congestive: NonCongestive,
    /// How far samples are above the least of their quarter round, or from each other, mean: jitter.
    noise_ns: f64,
    /// The same from the first reports alone, of falls.
    early_noise_ns: f64,
    lates: Trace,
    signals: u64,
}

impl Path {
    pub(super) fn new() -> Self {
        Self {
            now_ns: 0,
            rtt_ns: 0,
            rtt_floor: Floor::new(),
            delay_floor: Floor::new(),
            report_ns: 0.0,
            fell_ns: 0,
            late_ns: 0,
            non_congestive: NonCongestive::new(),
            noise_ns: 0.0,
            early_noise_ns: 0.0,
            lates: Trace::new(Keep::Least),
            signals: 0,
        }
    }

    pub(super) fn on_signal(&mut self, signal: &Signal) {
        let since = signal.now_ns.saturating_sub(self.now_ns);
        self.now_ns = signal.now_ns;
        self.signals = self.signals.saturating_add(1);
        // The first report has none before it, though the jitter of a train counts as some.
        if self.signals > 1 && since < signal.now_ns {
            let since = since.clamp(1_000, RTT_NS_MAX) as f64;
            self.report_ns =
                if self.report_ns == 0.0 { since } else { self.report_ns + (since - self.report_ns) / 8.0 };
        }
        if signal.rtt_ns > 0 {
            self.rtt_ns = signal.rtt_ns.clamp(RTT_NS_MIN, RTT_NS_MAX);
        }
        let span = (self.rtt_ns.saturating_mul(SPAN_ROUNDS)).max(SPAN_NS_MIN);
        if self.rtt_ns > 0 {
            self.rtt_floor.push(self.now_ns, span, self.rtt_ns as i64);
        }
        // Clocks may differ by anything; half the range keeps differences representable.
        let one_way = signal.one_way_ns.clamp(i64::MIN / 4, i64::MAX / 4);
        if one_way < self.delay_floor.least().saturating_sub(FALL_NS_MIN) {
            self.fell_ns = self.now_ns;
        }
        self.delay_floor.push(self.now_ns, span, one_way);
        let before = self.late_ns;
        self.late_ns = u64::try_from(one_way - self.delay_floor.least()).unwrap_or(0).min(RTT_NS_MAX);
        let least = self
            .lates
            .least(self.now_ns.saturating_sub(self.round_ns() / 4), self.now_ns)
            .unwrap_or(self.late_ns as f64);
        // A quarter round may hold one report: then jitter shows in how far it is from the one before, which a queue's own changes hardly are.
        let above = (self.late_ns as f64 - least).max(self.late_ns.abs_diff(before) as f64).max(0.0);
        self.noise_ns += (above - self.noise_ns) / NOISE_REPORTS;
        // A queue that a start builds only grows; jitter falls as often as it rises.
        let fell = before.saturating_sub(self.late_ns) as f64;
        self.early_noise_ns += (2.0 * fell - self.early_noise_ns) / (self.signals as f64).min(NOISE_REPORTS);
        self.lates.push(self.now_ns, self.round_ns() / 24, self.late_ns as f64);
    }

    /// The path changed: what was the base is not any more.
    pub(super) fn rebase(&mut self) {
        self.rtt_floor = Floor::new();
        self.delay_floor = Floor::new();
        self.lates.clear();
        self.late_ns = 0;
        self.non_congestive = NonCongestive::new();
    }

    /// After a silence the path may be another one, and the silence is no distance between reports.
    pub(super) fn resume(&mut self) {
        self.rebase();
        self.report_ns = 0.0;
        self.signals = 0;
    }

    pub(super) fn base_rtt_ns(&self) -> u64 {
        u64::try_from(self.rtt_floor.least()).ok().filter(|least| *least < i64::MAX as u64).unwrap_or(0)
    }

    /// Least one-way delay known; only differences mean something.
    pub(super) fn base_one_way_ns(&self) -> i64 {
        self.delay_floor.least()
    }

    /// Jitter, as far as it hides the queue.
    pub(super) fn noise_ns(&self) -> f64 {
        self.noise_ns
    }

    /// The same for whoever has to know it after a few reports.
    pub(super) fn start_noise_ns(&self) -> f64 {
        if self.signals as f64 <= EARLY_REPORTS { self.noise_ns.max(self.early_noise_ns) } else { self.noise_ns }
    }

    /// When the base last became notably less.
    pub(super) fn base_fell_ns(&self) -> u64 {
        self.fell_ns
    }

    /// Queueing delay of the newest packet.
    pub(super) fn queue_ns(&self) -> u64 {
        self.late_ns.saturating_sub(self.non_congestive_ns() as u64)
    }

    /// The round trip, and the jitter, before a packet of ours has shown one.
    pub(super) fn expect(&mut self, rtt_ns: u64, noise_ns: u64) {
        if noise_ns > 0 {
            (self.early_noise_ns, self.signals) = (noise_ns as f64, EXPECTED_REPORTS);
        }
        self.rtt_ns = rtt_ns.clamp(RTT_NS_MIN, RTT_NS_MAX);
    }

    /// Round trip of the newest packet; 100 ms before there was one.
    pub(super) fn rtt_ns(&self) -> u64 {
        if self.rtt_ns == 0 { 100_000_000 } else { self.rtt_ns }
    }

    pub(super) fn known(&self) -> bool {
        self.rtt_ns > 0
    }

    /// What a controller takes for a round, ns: a round trip, but at least four reports and 2 ms, so that a round holds samples.
    pub(super) fn round_ns(&self) -> u64 {
        self.rtt_ns().max((self.report_ns * 4.0) as u64).clamp(2_000_000, RTT_NS_MAX)
    }

    /// Reports come about so far apart.
    pub(super) fn report_ns(&self) -> u64 {
        self.report_ns as u64
    }

    /// Least queueing delay of a span, nanoseconds.
    pub(super) fn queue_least(&self, from_ns: u64, to_ns: u64) -> f64 {
        (self.lates.least(from_ns, to_ns).unwrap_or(0.0) - self.non_congestive_ns()).max(0.0)
    }

    /// Delay above the base that is no queue, nanoseconds.
    pub(super) fn non_congestive_ns(&self) -> f64 {
        // A link that delays packets together also delays them unevenly; a queue's delay is steady by comparison.
        self.non_congestive.ns().min(NOISE_MULTIPLE_MAX * self.noise_ns)
    }

    /// The last drain did not shorten the delay; the next one, which should follow soon, decides what that means.
    pub(super) fn is_uncertain(&self) -> bool {
        self.non_congestive.is_uncertain()
    }

    /// Mean one-way delay above the base in a span, ns, non-congestive delay included; none: no report in it.
    pub(super) fn late_mean(&self, from_ns: u64, to_ns: u64) -> Option<f64> {
        self.lates.mean(from_ns, to_ns)
    }

    /// All flows together emptied the queue: what stood was one.
    pub(super) fn on_cleared(&mut self) {
        self.non_congestive = NonCongestive::new();
    }

    /// A queue drain is over.
    pub(super) fn on_drained(&mut self, drain: DrainResult) {
        self.non_congestive.on_drained(drain);
    }
}

/// Bytes per second, or nothing where there was no interval.
pub(super) fn rate_of(bytes: u64, interval_ns: u64) -> Option<f64> {
    (interval_ns > 0 && bytes > 0).then(|| (bytes as f64 * 1e9 / interval_ns as f64).min(super::RATE_MAX as f64))
}
