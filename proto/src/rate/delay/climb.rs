//! Climb: a start without trains, for a path that dropped a good part of one.
//!
//! For: the `delay` controller where a policer's bucket, or a queue, holds fewer packets than a train has. More trains would be lost as well, and say nothing.
//! In and out: what passed and what arrived of each step in; a rate that doubles from step to step, and at last a ceiling, out.
//! Invariants: packets leave evenly, so that what a step loses is its rate's doing or the path's own; a step is judged by packets that left in it alone, and by
//! what was lost of the steps before it; it lasts as long as it is looked at, and until its echo the rate before it is sent, which is known to go through.
//! Absent on purpose: the search for a lower ceiling, and for a higher one (`ceiling`).

use super::{Delay, Phase, QUEUE_ALONE_NS};
use crate::rate::Signal;
use crate::rate::maths;

/// Packets of a step at least; and the part of a round trip that it is looked at.
const STEP_PACKETS: f64 = 12.0;
const STEP_PART: u64 = 8;
/// So many packets leave in it at least, and reports of it come.
const LEAVING_PACKETS: f64 = 20.0;
const LEAVING_REPORTS: u64 = 2;
/// Each step leaves at this multiple of the one before, or, where half a round trip of that is less than a part of the job, at the larger one.
const GROWTH: (f64, f64) = (2.0, 4.0);
const GROWTH_JOB_PART: f64 = 0.06;
/// The first step has this part of the job's packets in a round trip, within these bounds, and lasts until its echo.
const FIRST_PART: f64 = 0.02;
const FIRST_PACKETS: (f64, f64) = (12.0, 16.0);
/// So many lost packets, and this share above that of the steps before, are too much: a step at twice the ceiling's rate loses a half.
const LOST_PACKETS: f64 = 4.0;
const LOST_MORE: f64 = 0.12;
const OWN_FIRST: f64 = 0.1;
/// No more than this of what the steps before lost counts as the path's own, or one step's loss would excuse the next one's.
const OWN_MOST: f64 = 0.25;
/// Packets after the first loss that show what the ceiling is: the bucket is empty then.
const EMPTY_PACKETS: f64 = 8.0;
/// A step of so many packets shows it whole: the bucket holds fewer than a train.
const MANY_PACKETS: f64 = 128.0;

/// One step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Climb {
    since_ns: u64,
    /// Its rate, bytes per second, until `until_ns`, and that of what leaves then.
    rate: f64,
    low: f64,
    until_ns: u64,
    /// Counts when the first packet of the step had arrived: (passed, arrived), bytes, and the receiver's clock.
    from: Option<Mark>,
    /// ... and when the first loss of it was seen.
    empty: Option<Mark>,
    /// What passed and what arrived of the steps before, packets.
    before: (f64, f64),
}

/// Counts at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Mark {
    passed: u64,
    arrived: u64,
    clock_ns: u64,
}

impl Delay {
    /// The first step begins.
    pub(super) fn climb(&mut self, now_ns: u64) {
        let packet = f64::from(self.config.packet_bytes);
        let packets = (FIRST_PART * self.job_bytes / packet).clamp(FIRST_PACKETS.0, FIRST_PACKETS.1);
        let rate = packets * packet * 1e9 / self.path.rtt_ns() as f64;
        self.climb_at(now_ns, (rate, rate), (0.0, 0.0));
    }

    fn climb_at(&mut self, now_ns: u64, (rate, low): (f64, f64), before: (f64, f64)) {
        self.rate = rate;
        self.goal = rate;
        self.flight_bytes = 0.0;
        self.ceiling.recount();
        let looked_ns = self.path.rtt_ns() / STEP_PART + LEAVING_REPORTS * self.path.report_ns();
        let leaving_ns = LEAVING_PACKETS * f64::from(self.config.packet_bytes) * 1e9 / rate;
        // Where jitter mixes what left at both rates the step goes on.
        let until_ns = if self.is_quiet() { now_ns.saturating_add(looked_ns.max(leaving_ns as u64)) } else { u64::MAX };
        self.climb = Some(Climb { since_ns: now_ns, rate, low, until_ns, from: None, empty: None, before });
        self.phase = Phase::Climb;
    }

    /// A step ends on time, not with the next report.
    pub(super) fn climb_on_time(&mut self, now_ns: u64) {
        if let Some(climb) = self.climb.filter(|it| now_ns >= it.until_ns) {
            self.rate = climb.low;
        }
    }

    fn mark(&self) -> Mark {
        Mark { passed: self.sent, arrived: self.delivered, clock_ns: self.arrival_ns }
    }

    /// One report while a step is on its way.
    pub(super) fn climbing(&mut self, signal: &Signal) {
        let Some(mut climb) = self.climb else { return self.climbed(signal, self.rate) };
        if signal.now_ns.saturating_sub(self.path.rtt_ns()) < climb.since_ns {
            return;
        }
        let now = self.mark();
        let Some(from) = climb.from else {
            climb.from = Some(now);
            self.climb = Some(climb);
            return;
        };
        let packet = f64::from(self.config.packet_bytes);
        let passed = now.passed.saturating_sub(from.passed) as f64 / packet;
        let arrived = now.arrived.saturating_sub(from.arrived) as f64 / packet;
        let lost = passed - arrived;
        if lost >= 0.5 && climb.empty.is_none() {
            climb.empty = Some(now);
            self.climb = Some(climb);
        }
        let own = (climb.before.0 - climb.before.1).max(0.0) / climb.before.0.max(1.0);
        let share = lost / passed.max(1.0);
        // The first step has nothing to be compared with: a path may well lose a tenth.
        let own = if climb.before.0 > 0.0 { own.min(OWN_MOST) } else { OWN_FIRST };
        let chance = 3.0 * maths::sqrt(own.max(0.02) * (1.0 - own) / passed.max(1.0));
        if lost >= LOST_PACKETS && share > own + LOST_MORE + chance {
            // The step may be over before more of it come.
            let empty = if passed >= MANY_PACKETS { from } else { climb.empty.unwrap_or(from) };
            if now.passed.saturating_sub(empty.passed) as f64 >= EMPTY_PACKETS * packet {
                self.climbed_too_far(signal, &climb, (empty, now), own);
            }
            return;
        }
        let queue = self.path.queue_least(signal.now_ns.saturating_sub(self.path.rtt_ns() / 4), signal.now_ns);
        if queue > 4.0 * QUEUE_ALONE_NS + 2.0 * self.path.noise_ns() {
            // A queue is a measure of what is too much.
            return self.climbed(signal, self.passed().min(climb.rate));
        }
        let is_over = now.clock_ns.saturating_sub(from.clock_ns) >= self.path.rtt_ns() / STEP_PART;
        if passed < STEP_PACKETS || !is_over {
            return;
        }
        if self.link > 0.0 && climb.rate >= 0.9 * self.link {
            return self.climbed(signal, climb.rate);
        }
        let most = if self.link > 0.0 { self.link } else { f64::INFINITY };
        let before = (climb.before.0 + passed, climb.before.1 + arrived);
        let large = 0.5 * GROWTH.1 * climb.rate * self.path.rtt_ns() as f64 / 1e9 < GROWTH_JOB_PART * self.job_bytes;
        let growth = if large { GROWTH.1 } else { GROWTH.0 };
        self.climb_at(signal.now_ns, ((growth * climb.rate).min(most), climb.rate), before);
    }

    /// No step was too much.
    fn climbed(&mut self, signal: &Signal, rate: f64) {
        self.climb = None;
        self.goal = rate;
        self.rate = rate;
        self.stepped_ns = signal.now_ns;
        self.phase = Phase::Hold { until_ns: signal.now_ns.saturating_add(self.path.rtt_ns()) };
    }

    /// What arrives of a step is the ceiling.
    fn climbed_too_far(&mut self, signal: &Signal, climb: &Climb, (empty, now): (Mark, Mark), own: f64) {
        let arrived = now.arrived.saturating_sub(empty.arrived) as f64;
        let span = now.clock_ns.saturating_sub(empty.clock_ns).max(1) as f64;
        let rate = (arrived * 1e9 / span).clamp(climb.rate / 16.0, climb.rate);
        self.ceiling.settle(signal.now_ns, rate / (1.0 - own), (own, climb.before.0));
        self.climb = None;
        self.goal = self.ceiling.bound().unwrap_or(self.rate);
        self.rate = self.goal;
        self.full = self.goal;
        self.link = self.goal;
        self.jumped_arrival_ns = self.arrival_ns;
        self.stepped_ns = signal.now_ns;
        self.climbed_ns = signal.now_ns;
        self.starting = false;
        self.phase = Phase::Steady;
    }
}
