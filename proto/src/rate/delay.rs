//! `delay`, our congestion controller: it keeps a small queueing delay; random loss is not congestion.
//!
//! For: the same rate over any distance and any loss, with an equal share beside other flows.
//! In and out: signals in; a rate out, and packet trains.
//! Invariants: see the table of equations in `docs/design/003-rate-control.md`; every rate is finite and positive.
//! Absent on purpose: retransmission timers, per-packet state.

mod ceiling; // a rate above which the path loses what is sent, although no queue is seen
mod clumps; // how clumped losses are
mod look; // what passed in a while, and what of it arrived
mod tail; // what arrives of a flight once its losses began
mod climb; // a start without trains
mod clearing; // all flows that share a queue, or doubt their path, send little at the same moment
mod surge; // more than the start has found
mod blurred; // a start that jitter hides the link from
mod train; // what a train shows
mod probe; // bandwidth probe: what is taken where the queue is empty
mod price; // how many flows a queue speaks for

pub use self::blurred::Gaps;
use self::ceiling::{Ceiling, LEAST_PACKETS, Restored};
use self::clearing::Clearing;
use self::climb::Climb;
use self::look::{Look, Report};
use self::price::Others;
use self::probe::RAMP_WAIT_ROUNDS;
use self::surge::{LINK_LEAST, Surge};
use super::base_shift::BaseShift;
use super::competitor::{Competitor, Observation};
use super::loss::LossClassifier;
use super::maths;
use super::path::{Path, rate_of};
use super::queue_drain::QueueDrain;
use super::trace::{Keep, Trace};
use super::weight::{FAIR, LOW, QUEUE_ALONE_NS, Weight, of};
use super::{Policy, RATE_MAX, RateConfig, Signal, TRAIN_PACKETS, TrainSeen};

/// Share of the link's rate that every flow adds each round trip, and gives back in proportion to what it has: makes shares converge (alpha of
/// docs/design/003; differences decay by N x 1.5 % per round).
pub(super) const PROBE_GAIN: f64 = 0.015;
/// Largest part of the queueing-delay target that jitter accounts for, ns.
const NOISE_NS_MAX: f64 = 5_000_000.0;
/// Loss above the usual share at which a longer round trip is no longer path.
const REBASE_LOSS: f64 = 0.02;
/// Growth of the rate per round trip while the start finds no queue at the rate that the train showed.
const START_GROWTH: f64 = 1.2;
/// Share of the train's rate that is sent after an eighth of a round trip at the full rate, until the echo: beside competing flows less has to
/// be given back.
const START_REST: f64 = 0.3;
/// A flight is at most this multiple of what has arrived: of the first train, then of the flights before. A policer's bucket passes a train at
/// the wire's rate, and what follows is lost; and a start that needs one round trip still does, up to 2 MB of product.
const FLIGHT_MULTIPLE: [f64; 2] = [32.0, 8.0];
/// ... and where the job is short, at most this multiple of the flight before, or that and this part of the job: what a policer drops of the last flight is
/// sent again.
const FLIGHT_GROWTH: f64 = 4.0;
const FLIGHT_JOB_PART: f64 = 0.08;
/// From this round trip on, ns, the first flight is not less for the job's sake: a round trip of everybody's is more than what a policer drops of it.
const FAR_NS: u64 = 100_000_000;
/// A flight's echo is looked at for so long at least, ns.
const FLIGHT_SPAN_NS: u64 = 500_000;
/// So many packets, and this share of a flight, are lost where it is asked whether it was too much.
const FLIGHT_LOST_PACKETS: f64 = 8.0;
const FLIGHT_LOST_SHARE: f64 = 0.1;
/// Share of such a flight that leaves within an eighth of the round trip, so that its echo is soon a measure, and that of the rest of it ...
const FLIGHT_FIRST: f64 = 0.6;
const FLIGHT_REST: f64 = 0.4;
/// ... and the first where the flight is more than `FLIGHT_JOB_PART` of the job: what is left out was lost behind policers more often than it was of use.
const FLIGHT_FIRST_SHORT: f64 = 0.4;
/// Where no train was seen spread out (the receiver's NIC merged it, or the link is far faster): the rate grows by the second factor each time it was proved, or by less,
/// the first at least, where a round trip of it would be more than `FLIGHT_JOB_PART` of the job.
const BLIND_GROWTH: (f64, f64) = (2.0, 4.0);
/// Packets of the longest train, sent where shorter ones were not seen spread out: 1.5 ms of 1 Gbit/s.
const TRAIN_PACKETS_MAX: u32 = 128;
/// The echo of a start is observed for this multiple of the jitter, so that jitter is a tenth of what is looked for.
const OBSERVE_NOISE_MULTIPLE: f64 = 10.0;
/// Time constant, in rounds, with which the queue comes to its target (2.5 R of docs/design/003).
pub(super) const SLOWNESS_ROUNDS: f64 = 2.5;
/// Two packets leave in this time, ns, or in a round trip, at least: reports need packets.
const SPARSE_NS: u64 = 2_000_000_000;

/// Beside others the link counts as no faster than this multiple of the most that arrived in a round.
const SHARED_MOST: f64 = 8.0;
/// What is pushed is a part of the link as long as so many times as many flows as the queue speaks for, each with this one's share, would fill it. Else the link may be one
/// that a shaper's bucket has shown, and less is pushed.
const PUSH_MULTIPLE: f64 = 1.5;
/// Where others keep a queue, and it is empty for once, the rate jumps to a ceiling that is no more than this multiple of what passes.
const CEILING_JUMP: f64 = 2.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waiting for the train's echo, or for the first packet where a train was seen before. from: new, on_quiet; to: Verify, Climb, Surge
    Start,
    /// The rate the train promised is on its way. from: Start; to: Prove
    Verify { since_ns: u64 },
    /// Its echo comes: does the queue grow? from: Verify; to: Hold, Surge, Steady
    Prove,
    /// The link was free: its rate is on its way. from: Prove; to: Steady
    Hold { until_ns: u64 },
    /// Step by step more, evenly. from: Start; to: Hold, Steady
    Climb,
    /// More is sent for a moment: does it pass? from: Start, Prove, Hold, Surge; to: Surge, Steady
    Surge,
    /// from: Prove, Hold, Climb, Surge; to: Start (on_quiet)
    Steady,
}

/// What the echo of a flight says of loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Echo {
    /// None that the path does not make by itself.
    Whole,
    /// The rest of the flight will tell.
    Wait,
    /// It was too much, or that is being asked: the start is over.
    Lost,
}

/// To the power of 0.75.
fn three_quarters(x: f64) -> f64 {
    let root = maths::sqrt(x);
    root * maths::sqrt(root)
}

#[derive(Debug, Clone)]
pub(super) struct Delay {
    path: Path,
    config: RateConfig,
    phase: Phase,
    /// Wire bytes per second.
    rate: f64,
    /// The bottleneck's rate as trains and deliveries show it; 0: unknown.
    link: f64,
    others: Others,
    /// Bytes that passed the bottleneck (arrived or lost), by the receiver's clock.
    passed: Trace,
    passed_bytes: f64,
    /// ... and what of it arrived.
    came: Trace,
    came_bytes: f64,
    arrival_ns: u64,
    jumped_arrival_ns: u64,
    /// What had passed and what had arrived at the last jump, bytes.
    jumped_sent: u64,
    jumped_delivered: u64,
    delivered: u64,
    /// What had passed at the signal before, and by the signal itself, bytes.
    sent: u64,
    passing: f64,
    train_due: bool,
    train_packets: u32,
    train_bytes: f64,
    train_ns: f64,
    /// How evenly it came.
    gaps: Gaps,
    /// Jitter that a train shows which came unevenly, ns; 0: none.
    blur_ns: f64,
    /// What a train before the flow showed, until the first packet; 0: none was seen.
    seen: f64,
    idle_rounds: f64,
    /// What passed when the probe began, bytes per second.
    probed_from: f64,
    /// Rounds of a queue below its target, less those above it.
    below_target_rounds: f64,
    /// Our delivered rate when the link was last full, bytes per second.
    full: f64,
    /// The most that arrived in a round, bytes per second, and what had arrived when this one began.
    arrived_most: f64,
    round_delivered: u64,
    /// Share of loss when the probe began.
    probe_loss_before: f64,
    stepped_ns: u64,
    round_from_ns: u64,
    loss: LossClassifier,
    /// Upper bound of the queueing delay kept where queues overflow, ns.
    queue_cap: f64,
    /// Upper bound of the whole target where packets come CE-marked, ns.
    mark_cap: f64,
    /// The rate that the equations give; `rate` is less while the queue is drained.
    goal: f64,
    drain: QueueDrain,
    ramp_wait_rounds: f64,
    ramping: bool,
    competitor: Competitor,
    base_shift: BaseShift,
    ceiling: Ceiling,
    /// What arrived between the last two signals, bytes.
    arriving: f64,
    /// What passed and what arrived of the first part of a first flight that was lost in part.
    lossy_first: Option<(f64, f64)>,
    /// What passed and what arrived of a flight since its losses began.
    tail: Look,
    /// Bytes that the flight may have; 0: it is no flight of the start.
    flight_bytes: f64,
    /// At which the first part of a first flight left, bytes per second.
    launched: f64,
    /// Until then what arrives is a first flight's rest.
    rest_until_ns: u64,
    /// The start is not over: no queue was seen yet.
    starting: bool,
    surge: Option<Surge>,
    climb: Option<Climb>,
    /// Of what left before then is no news of a ceiling.
    climbed_ns: u64,
    /// Wire bytes of the whole job; infinite: not known.
    job_bytes: f64,
    /// Lost since the start began, bytes.
    lost_at_start: f64,
    clearing: Clearing,
    /// The clock that all hosts share is ahead of the flow's by this much, ns.
    clock_ahead_ns: u64,
    /// After a silence: no train before something comes through again.
    silent: bool,
    goal_before: f64,
    tries: u32,
    /// What had arrived and what had passed when the start began.
    delivered_from: u64,
    sent_from: u64,
}

impl Delay {
    pub(super) fn new(now_ns: u64, config: RateConfig) -> Self {
        let mut controller = Self {
            path: Path::new(),
            config,
            phase: Phase::Start,
            rate: 0.0,
            link: 0.0,
            others: Others::default(),
            passed: Trace::new(Keep::First),
            passed_bytes: 0.0,
            came: Trace::new(Keep::First),
            came_bytes: 0.0,
            arrival_ns: 0,
            jumped_arrival_ns: 0,
            jumped_sent: 0,
            jumped_delivered: 0,
            delivered: 0,
            sent: 0,
            passing: 0.0,
            train_due: true,
            train_packets: TRAIN_PACKETS,
            train_bytes: 0.0,
            train_ns: 0.0,
            gaps: Gaps::default(),
            blur_ns: 0.0,
            seen: 0.0,
            idle_rounds: 0.0,
            probed_from: 0.0,
            below_target_rounds: 0.0,
            full: 0.0,
            arrived_most: 0.0,
            round_delivered: 0,
            probe_loss_before: 0.0,
            stepped_ns: now_ns,
            round_from_ns: now_ns,
            loss: LossClassifier::new(),
            queue_cap: 1e9,
            mark_cap: 1e9,
            goal: 0.0,
            drain: QueueDrain::new(now_ns),
            ramp_wait_rounds: RAMP_WAIT_ROUNDS,
            ramping: false,
            competitor: Competitor::new(),
            base_shift: BaseShift::new(),
            ceiling: Ceiling::new(),
            arriving: 0.0,
            lossy_first: None,
            tail: Look::default(),
            flight_bytes: 0.0,
            launched: 0.0,
            rest_until_ns: 0,
            starting: true,
            surge: None,
            climb: None,
            climbed_ns: 0,
            job_bytes: f64::INFINITY,
            lost_at_start: 0.0,
            clearing: Clearing::new(),
            clock_ahead_ns: 0,
            silent: false,
            goal_before: 0.0,
            tries: 0,
            delivered_from: 0,
            sent_from: 0,
        };
        controller.trickle();
        controller
    }

    /// Before anything is known: ten packets a second.
    fn trickle(&mut self) {
        self.rate = LEAST_PACKETS * f64::from(self.config.packet_bytes);
    }

    pub(super) fn start_from(&mut self, seen: TrainSeen) {
        if self.phase == Phase::Start && !self.path.known() && seen.rtt_ns > 0 {
            self.seen = seen.rate as f64;
            self.path.expect(seen.rtt_ns, if seen.is_uneven { 0 } else { seen.jitter_ns });
            self.blur_ns = if seen.is_uneven { seen.jitter_ns as f64 } else { 0.0 };
            self.gaps = if seen.is_even { Gaps::even() } else { Gaps::default() };
        }
    }

    pub(super) fn set_clock(&mut self, ahead_ns: u64) {
        self.clock_ahead_ns = ahead_ns;
    }

    /// Wire bytes of the whole job; 0: not known.
    pub(super) fn set_job(&mut self, bytes: u64) {
        self.job_bytes = if bytes == 0 { f64::INFINITY } else { bytes as f64 };
    }

    pub(super) fn set(&mut self, config: RateConfig) {
        self.config = config;
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn phase(&self) -> &'static str {
        match self.phase {
            Phase::Start => "start",
            Phase::Verify { .. } => "verify",
            Phase::Prove => "prove",
            Phase::Hold { .. } | Phase::Surge | Phase::Steady if self.ceiling.phase().is_some() => {
                self.ceiling.phase().unwrap_or_default()
            }
            Phase::Hold { .. } => "hold",
            Phase::Climb => "climb",
            Phase::Surge => "surge",
            Phase::Steady if self.competitor.present() => "competitor",
            Phase::Steady => "steady",
        }
    }

    pub(super) fn is_policed(&self) -> bool {
        self.ceiling.bound().is_some()
    }

    /// Its steps leave packet by packet.
    pub(super) fn is_climbing(&self) -> bool {
        self.phase == Phase::Climb
    }

    pub(super) fn policer(&self) -> Option<u64> {
        self.ceiling.found()
    }

    pub(super) fn rate(&self) -> u64 {
        self.rate as u64
    }

    /// Two round trips' worth: a bound for the case that feedback is lost, not a control.
    pub(super) fn window(&self) -> u64 {
        if !self.path.known() {
            return u64::MAX;
        }
        let held = (self.path.rtt_ns() + self.path.round_ns()) as f64 / 1e9 * self.rate;
        (held + 64.0 * f64::from(self.config.packet_bytes)) as u64
    }

    pub(super) fn train(&mut self, now_ns: u64) -> Option<u32> {
        // The caller asks before every burst: a drain ends when it should, not when a report happens to come.
        // So does a moment at which all send little.
        if matches!(self.phase, Phase::Hold { .. } | Phase::Steady) && !self.drain.running(now_ns) {
            self.rate = self.goal;
        }
        match self.phase {
            Phase::Surge => self.surge_on_time(now_ns),
            Phase::Climb => self.climb_on_time(now_ns),
            _ => {}
        }
        if let (Phase::Hold { .. } | Phase::Surge | Phase::Steady, Some(bound)) =
            (self.phase, self.ceiling.on_time(now_ns))
        {
            self.rate = self.rate.min(bound);
            self.goal = self.goal.min(bound);
        }
        self.clear(now_ns);
        if self.phase == Phase::Start && self.seen > 0.0 {
            self.link = core::mem::take(&mut self.seen);
            self.train_due = false;
            if self.start_from_blurred(now_ns) {
                return None;
            }
            self.launch(now_ns, self.first_flight(), self.weight().first * self.link);
        }
        // At full rate for an eighth of the round trip only: where others are, less is to be paid back.
        if let Phase::Verify { since_ns } = self.phase
            && self.flight_bytes > 0.0
            && self.link > 0.0
            && now_ns.saturating_sub(since_ns) >= self.path.rtt_ns() / 8
        {
            self.rate = self.rate.min(START_REST * self.link).min(self.flight_rate(FLIGHT_REST, 7.0 / 8.0));
        }
        let is_due = core::mem::take(&mut self.train_due);
        if is_due {
            // How old it is counts from now: a flow may wait long for its first bytes.
            self.stepped_ns = now_ns;
        }
        is_due.then_some(self.train_packets)
    }

    pub(super) fn on_quiet(&mut self, now_ns: u64) {
        if !self.silent && self.phase != Phase::Start {
            self.goal_before = self.goal;
        }
        self.restart(now_ns);
        self.silent = true;
        self.competitor = Competitor::new();
    }

    /// What was learned from losses was a length's, not the rate's: the rate is what it was when the link was last full.
    pub(super) fn on_black_hole(&mut self, now_ns: u64) {
        self.ceiling = Ceiling::new();
        self.loss = LossClassifier::new();
        if matches!(self.phase, Phase::Hold { .. } | Phase::Surge | Phase::Steady) {
            self.phase = Phase::Steady;
            self.goal = self.goal.max(0.5 * self.full).max(0.25 * self.link);
            self.rate = self.goal;
            self.stepped_ns = now_ns;
        }
    }

    /// Begin again with a train.
    fn restart(&mut self, now_ns: u64) {
        self.phase = Phase::Start;
        self.train_due = true;
        self.train_packets = TRAIN_PACKETS;
        self.train_bytes = 0.0;
        self.train_ns = 0.0;
        self.gaps = Gaps::default();
        self.blur_ns = 0.0;
        self.seen = 0.0;
        self.stepped_ns = now_ns;
        self.base_shift = BaseShift::new();
        self.lossy_first = None;
        self.delivered_from = self.delivered;
        self.sent_from = self.sent;
        self.lost_at_start = 0.0;
        self.climb = None;
        self.trickle();
    }

    pub(super) fn on_signal(&mut self, signal: &Signal) {
        self.path.on_signal(signal);
        self.count(signal);
        self.base_shift.on_signal(&self.path, signal, self.passing, self.passed());
        self.look_for_ceiling(signal);
        let began = !matches!(self.phase, Phase::Verify { .. } | Phase::Prove) || !self.late_echo(signal);
        match self.phase {
            _ if !began => {}
            Phase::Start => self.on_echo(signal),
            Phase::Verify { since_ns } => {
                if signal.now_ns.saturating_sub(since_ns) >= self.path.rtt_ns() {
                    self.jumped_arrival_ns = self.arrival_ns;
                    (self.jumped_sent, self.jumped_delivered) = (self.sent, self.delivered);
                    self.phase = Phase::Prove;
                    self.drain = QueueDrain::new(signal.now_ns);
                    self.goal = self.rate;
                }
            }
            Phase::Prove => self.prove(signal),
            Phase::Hold { until_ns } => {
                // One packet that is late is no queue: a receiver that naps, or is woken late, makes such.
                let since_ns = signal.now_ns.saturating_sub(self.path.report_ns().saturating_mul(2));
                let queued =
                    self.path.queue_least(since_ns, signal.now_ns) > 4.0 * QUEUE_ALONE_NS + 2.0 * self.start_noise();
                if queued && self.starting && self.start_in_doubt(signal, self.passed()) {
                    return;
                }
                if signal.now_ns >= until_ns || queued {
                    if !queued {
                        let passed = self.passed();
                        self.jumped_arrival_ns = self.arrival_ns;
                        if self.surge(signal, None) || self.starts_low(signal, passed) {
                            return;
                        }
                    }
                    self.stepped_ns = signal.now_ns;
                    self.starting = false;
                    self.phase = Phase::Steady;
                }
            }
            Phase::Climb => self.climbing(signal),
            Phase::Surge => self.surging(signal),
            Phase::Steady => self.step(signal),
        }
        if let (Phase::Hold { .. } | Phase::Surge | Phase::Steady, Some(bound)) = (self.phase, self.ceiling.bound()) {
            self.rate = self.rate.min(bound);
            self.goal = self.goal.min(bound);
        }
        self.clear(signal.now_ns);
        // Whatever a moment showed (nothing at all came through, say, while the path swallowed a size of packets): only packets show more.
        let least = 2.0 * f64::from(self.config.packet_bytes) * 1e9 / SPARSE_NS as f64;
        self.rate = self.rate.clamp(least, RATE_MAX as f64);
        let target = self.config.target;
        if target > 0 {
            self.rate = self.rate.min(target as f64);
        }
        self.rate = self.rate.max(self.config.min as f64);
    }

    /// The train said too little (the receiver's interface joins packets, and the first are not counted): as long as no queue shows at all,
    /// the start is not over.
    fn starts_low(&mut self, signal: &Signal, passed: f64) -> bool {
        let round = self.path.round_ns();
        let queue = self.path.queue_least(signal.now_ns.saturating_sub(round / 2), signal.now_ns);
        let low = self.config.policy == Policy::Low || !self.starting;
        if low || signal.limited || queue > self.queue_target() / 4.0 || passed < 0.9 * self.rate {
            return false;
        }
        self.goal = self.rate * START_GROWTH;
        self.rate = self.goal;
        self.link = self.link.max(passed);
        self.phase = Phase::Hold { until_ns: signal.now_ns.saturating_add(self.path.rtt_ns()) };
        true
    }

    /// Jitter, as far as a start allows for it: a scavenger takes what it sees for others' queues.
    fn start_noise(&self) -> f64 {
        if self.config.policy == Policy::Low { 0.0 } else { self.path.start_noise_ns() }
    }

    /// A few reports of the echo: where the queue does not grow the rest of the link is free, too.
    fn prove(&mut self, signal: &Signal) {
        let span = self.arrival_ns.saturating_sub(self.jumped_arrival_ns);
        // Jitter blurs what a short look shows: it is as long as makes it small beside what is looked for, and grants it.
        let noise = self.start_noise().max(self.path.noise_ns());
        let round = self.path.round_ns();
        let long = ((OBSERVE_NOISE_MULTIPLE * noise) as u64).min(round / 2);
        // A flight that another follows need not be judged to the percent.
        let least = if self.flight_rate(1.0, 1.0) < f64::INFINITY { FLIGHT_SPAN_NS } else { 2_000_000 };
        if span < (self.path.rtt_ns() / 8).max(least).max(long) {
            return;
        }
        let passed = self.passed();
        if passed <= 0.0 {
            // Time went by, and no packet: words alone say nothing of a rate.
            return;
        }
        let least = 0.9 - (noise / span as f64).min(0.2);
        let told = self.lossy_first.is_some();
        match self.echo_lost(signal, span) {
            Echo::Whole => {}
            Echo::Wait | Echo::Lost => return,
        }
        let short = !told && passed < least * self.rate;
        if self.path.queue_ns() as f64 > 0.1 * span as f64 + 3.0 * noise || short {
            // Someone else is here: what came through is our share, and what we put into the queue is taken back.
            // A flight that had to be small met others with less than it would have had.
            let small = self.launched < self.weight().first * self.link || self.rest_is_small();
            if self.start_in_doubt(signal, passed) {
                return;
            }
            self.goal = if small { passed } else { 0.9 * passed };
            // Or nobody is, and the train went through a shaper's bucket: who asked for all of the link had half of it at least.
            self.link = self.link.min(LINK_LEAST * passed);
            self.drain.pay(signal.now_ns, self.path.round_ns().saturating_mul(5));
            if small {
                // What still arrives of the flight was its rest, which was little: no measure.
                self.rest_until_ns = signal.now_ns.saturating_add(self.path.rtt_ns());
            }
            // The others still take back what they did without us.
            self.others = Others::of(self.link / passed.max(1.0) - 0.5);
        } else if self.link == 0.0 && (self.config.target == 0 || self.rate < self.config.target as f64) {
            // It all came, and no queue grew: the link is somewhere above.
            self.rate *= self.blind_growth();
            self.train_packets = (4 * self.train_packets).min(TRAIN_PACKETS_MAX);
            self.train_due = true;
            self.train_bytes = 0.0;
            self.train_ns = 0.0;
            self.gaps = Gaps::default();
            self.phase = Phase::Verify { since_ns: signal.now_ns };
            return;
        } else {
            // What comes until a round trip from now left at less than this: it is no measure.
            let whole = (0.98 * self.link).max(self.rate) * self.weight().first / FAIR.first;
            let flight = self.next_flight(signal);
            let bounded = self.flight_rate(1.0, 1.0) < f64::INFINITY;
            if bounded && flight < whole * self.path.rtt_ns() as f64 / 1e9 {
                // What has arrived is little beside what the link seems to hold: one more flight.
                self.launch(signal.now_ns, flight, whole);
                return;
            }
            self.goal = whole;
            self.rate = self.goal;
            self.phase = Phase::Hold { until_ns: signal.now_ns.saturating_add(self.path.rtt_ns()) };
            return;
        }
        self.rate = self.goal;
        self.stepped_ns = signal.now_ns;
        self.phase = Phase::Steady;
    }

    /// The echo of a drain shows how little was sent, not what the bottleneck would pass: it is left out of the delivered rate.
    fn count(&mut self, signal: &Signal) {
        let arrived = signal.delivered.saturating_sub(self.delivered);
        self.delivered = self.delivered.max(signal.delivered);
        self.arriving = arrived as f64;
        self.loss.count(arrived as f64, signal.lost as f64, signal.marked as f64);
        self.ceiling.count_lost(signal.lost as f64);
        // Losses are known later than arrivals: what left up to the newest arrival has passed, whatever became of it.
        self.passing = signal.passed.saturating_sub(self.sent) as f64;
        self.sent = self.sent.max(signal.passed);
        self.count_tail(signal);
        let cleared = self.clearing.echoes(signal.now_ns, self.path.rtt_ns(), self.path.report_ns());
        if cleared {
            self.clearing.count(self.passing, self.arriving);
        }
        if cleared || self.drain.echoes(&self.path, signal.now_ns) || signal.now_ns < self.rest_until_ns {
            return;
        }
        self.arrival_ns = self.arrival_ns.saturating_add(signal.interval_ns.min(1 << 40));
        self.passed_bytes += self.passing;
        self.passed.push(self.arrival_ns, self.path.round_ns() / 24, self.passed_bytes);
        self.came_bytes += self.arriving;
        self.came.push(self.arrival_ns, self.path.round_ns() / 24, self.came_bytes);
    }

    /// Loss beside an empty queue: the path's own, or what the rate itself causes?
    fn look_for_ceiling(&mut self, signal: &Signal) {
        if !matches!(self.phase, Phase::Hold { .. } | Phase::Surge | Phase::Steady)
            || self.is_clearing(signal)
            || self.competitor.present()
            || (self.phase == Phase::Surge && self.blur_ns > 0.0)
            || signal.now_ns < self.report(signal).echo_ns(self.climbed_ns)
        {
            return;
        }
        self.ceiling.on_report(&self.report(signal));
        if let Some(restored) = self.ceiling.take_restored() {
            self.restore(signal, restored);
        }
    }

    /// What was lost is the path's own: the rate is taken up again.
    fn restore(&mut self, signal: &Signal, restored: Restored) {
        match restored {
            // A start that was asked whether it was too much goes on.
            Restored::Start(rate) if rate < 0.9 * self.link => {
                self.launch(signal.now_ns, self.next_flight(signal), rate)
            }
            Restored::Start(rate) | Restored::Whole(rate) => {
                self.goal = self.goal.max(rate);
                self.rate = self.goal;
                self.flight_bytes = 0.0;
                self.phase = Phase::Hold { until_ns: signal.now_ns.saturating_add(self.path.rtt_ns()) };
            }
        }
    }

    /// The signal, as the search for a ceiling sees it.
    fn report(&self, signal: &Signal) -> Report {
        let packet = f64::from(self.config.packet_bytes);
        let few = 4.0 * packet * 1e9 / self.link.max(1.0);
        let queueless =
            (self.path.queue_ns() as f64) < QUEUE_ALONE_NS / 2.0 + few.min(QUEUE_ALONE_NS) + 3.0 * self.path.noise_ns();
        // Less is sent now and then for a queue's sake; what a ceiling is looked for at is the rate besides.
        let rate = match self.phase {
            Phase::Hold { .. } | Phase::Steady => self.rate.max(self.goal),
            _ => self.rate,
        };
        Report {
            now_ns: signal.now_ns,
            passed: self.passing,
            arrived: self.arriving,
            interval_ns: signal.interval_ns as f64,
            packet_bytes: packet,
            rtt_ns: self.path.rtt_ns(),
            report_ns: self.path.report_ns(),
            round_ns: self.path.round_ns(),
            queueless,
            limited: signal.limited,
            rate,
        }
    }

    /// What left closer together than it arrived was spread out by the bottleneck: its rate, or 0 where nothing can be said.
    fn dispersed(&self, signal: &Signal) -> f64 {
        let compressed = signal.sent_interval_ns < signal.interval_ns / 2;
        let enough = signal.interval_bytes as f64 >= 1.5 * f64::from(self.config.packet_bytes);
        if compressed && enough { rate_of(signal.interval_bytes, signal.interval_ns).unwrap_or(0.0) } else { 0.0 }
    }

    /// A flight of so many bytes at most: an eighth of a round trip at this rate, the rest at less.
    fn launch(&mut self, now_ns: u64, flight_bytes: f64, rate: f64) {
        self.starting = true;
        self.flight_bytes = flight_bytes;
        let is_short = flight_bytes > FLIGHT_JOB_PART * self.job_bytes;
        let first = if is_short { FLIGHT_FIRST_SHORT } else { FLIGHT_FIRST };
        self.rate = rate.min(self.flight_rate(first, 1.0 / 8.0));
        self.launched = self.rate;
        self.phase = Phase::Verify { since_ns: now_ns };
    }

    /// The rate at which a part of the flight may leave within a part of the round trip.
    fn flight_rate(&self, part: f64, of_rtt: f64) -> f64 {
        let round_trips = self.path.rtt_ns() as f64 / 1e9;
        // What an eighth of a round trip at the link's rate and the rest at START_REST of it are.
        let whole = (FAIR.first + 7.0 * START_REST) / 8.0 * self.link * round_trips;
        if whole <= self.flight_bytes { f64::INFINITY } else { part * self.flight_bytes / (of_rtt * round_trips) }
    }

    /// The first flight, bytes.
    fn first_flight(&self) -> f64 {
        let train = f64::from(TRAIN_PACKETS) * f64::from(self.config.packet_bytes);
        let most = if self.path.rtt_ns() < FAR_NS { self.flight_most(train) } else { f64::INFINITY };
        (FLIGHT_MULTIPLE[0] * train).min(most)
    }

    /// A flight after one of so many bytes that may be lost without much of the job being sent twice.
    fn flight_most(&self, before: f64) -> f64 {
        let most = (FLIGHT_GROWTH * before).max(before + FLIGHT_JOB_PART * self.job_bytes);
        if self.is_quiet() { most } else { f64::INFINITY }
    }

    /// By how much the rate grows where no train was seen spread out.
    fn blind_growth(&self) -> f64 {
        let flight = self.rate * self.path.rtt_ns() as f64 / 1e9;
        let (least, most) = BLIND_GROWTH;
        if self.path.rtt_ns() >= FAR_NS && most * flight <= self.first_flight() {
            return most;
        }
        (FLIGHT_JOB_PART * self.job_bytes / flight).max(least).min(most)
    }

    /// Jitter is little beside an eighth of the round trip.
    fn is_quiet(&self) -> bool {
        OBSERVE_NOISE_MULTIPLE * self.path.noise_ns() < self.path.rtt_ns() as f64 / 8.0
    }

    /// The next one: what is on its way counts as arrived, since its first part did.
    fn next_flight(&self, signal: &Signal) -> f64 {
        let came = self.delivered.saturating_sub(self.delivered_from).saturating_add(signal.in_flight);
        (FLIGHT_MULTIPLE[1] * came as f64).min(self.flight_most(came as f64 / 2.0))
    }

    /// The echo of a flight is lost in part: by the path itself, or because it was too much for a policer or for a queue too short to be seen? A first
    /// flight's rest left at a part of the rate: if less of it is lost, it was too much. Elsewhere less is sent until that is known.
    fn echo_lost(&mut self, signal: &Signal, span: u64) -> Echo {
        let packet = f64::from(self.config.packet_bytes);
        let passed = self.sent.saturating_sub(self.jumped_sent) as f64;
        let arrived = self.delivered.saturating_sub(self.jumped_delivered) as f64;
        let (mut share, mut known) = (1.0 - arrived / passed.max(1.0), false);
        if let Some(first) = self.lossy_first {
            match self.ceiling.fell(first, (passed, arrived), self.launched / self.rate.max(1.0), packet) {
                Some(false) => {
                    self.lossy_first = None;
                    return Echo::Whole;
                }
                None if span < self.path.rtt_ns() => return Echo::Wait,
                answer => known = answer.is_some(),
            }
            share = 1.0 - first.1 / first.0.max(1.0);
        } else {
            let lost = passed - arrived;
            let much = lost >= FLIGHT_LOST_PACKETS * packet && lost >= FLIGHT_LOST_SHARE * passed;
            if !much || !self.ceiling.is_much((passed, arrived), packet) {
                return Echo::Whole;
            }
            if self.flight_bytes > 0.0 && lost < 0.5 * passed {
                self.lossy_first = Some((passed, arrived));
                self.jumped_arrival_ns = self.arrival_ns;
                (self.jumped_sent, self.jumped_delivered) = (self.sent, self.delivered);
                return Echo::Wait;
            }
        }
        self.lossy_first = None;
        let most = self.next_flight(signal) * 1e9 / self.path.rtt_ns() as f64;
        let whole = (0.98 * self.link).max(self.rate).min(most.max(self.rate));
        let report = Report { passed, arrived, interval_ns: span as f64, ..self.report(signal) };
        let report = self.lasting(report);
        self.ceiling.suspect(&report, share, known, whole);
        self.goal = self.ceiling.bound().unwrap_or(self.rate);
        self.rate = self.goal;
        self.full = self.goal;
        self.jumped_arrival_ns = self.arrival_ns;
        self.stepped_ns = signal.now_ns;
        self.phase = Phase::Steady;
        Echo::Lost
    }

    /// A first flight's rest was less than the link would have borne.
    fn rest_is_small(&self) -> bool {
        self.flight_rate(FLIGHT_REST, 7.0 / 8.0) < START_REST * self.link
    }

    /// Mean of what a trace counts over the last round, bytes per second, but not from before the rate's last jump; none: not known.
    fn over_round(&self, trace: &Trace, bytes: f64) -> Option<f64> {
        let from = self.arrival_ns.saturating_sub(self.path.round_ns()).max(self.jumped_arrival_ns);
        let (then, before) = trace.at(from)?;
        let span = self.arrival_ns.saturating_sub(then);
        (span > 0).then(|| (bytes - before) * 1e9 / span as f64)
    }

    /// What the bottleneck passes of this flow, lost bytes counted as passed, bytes per second.
    fn passed(&self) -> f64 {
        self.over_round(&self.passed, self.passed_bytes).unwrap_or(self.rate)
    }

    /// One report of the steady state.
    fn step(&mut self, signal: &Signal) {
        let now = signal.now_ns;
        let round = self.path.round_ns();
        let elapsed = (now.saturating_sub(self.stepped_ns) as f64 / round as f64).min(1.0);
        self.stepped_ns = now;
        if self.clearing.echoes(now, self.path.rtt_ns(), self.path.report_ns()) {
            // A queue that is empty because all sent little is no room.
            return;
        }
        // A path that became longer loses no more for it; a queue that many filled at once does.
        let calm = self.loss.overflow() == 0.0 && self.loss.latest() <= self.loss.usual() + REBASE_LOSS;
        if self.base_shift.has_shifted(&self.path, now) && calm {
            // Only the way is longer: the rate that filled it fills it still.
            self.path.rebase();
            self.drain = QueueDrain::new(now);
            self.goal = self.goal.max(0.97 * self.full);
            self.rate = self.goal;
            self.phase = Phase::Hold { until_ns: now.saturating_add(self.path.rtt_ns()) };
            return;
        }
        let queue = self.path.queue_least(now.saturating_sub(round / 4), now);
        let target = self.queue_target();
        if now.saturating_sub(self.round_from_ns) >= round {
            self.on_round(now, target);
        }
        // Marks: half their share is given back, as DCTCP (RFC 8257) does.
        let passed = self.passed() * (1.0 - self.loss.overflow()) * (1.0 - self.loss.marks() / 2.0);
        // Only what arrives proves a link; what is lost may have been too much for it.
        let came = self.over_round(&self.came, self.came_bytes).unwrap_or(0.0);
        self.link = self.link.max(came).max(self.dispersed(signal));
        // What is lost at a ceiling without a queue is nobody's queue.
        let alone = self.ceiling.bound().is_some() && queue < target;
        if !alone && self.beside_competitor(signal, elapsed, queue, passed) {
            self.ceiling.forget();
            return;
        }
        let weight = self.weight();
        let low = self.config.policy == Policy::Low;
        // Flows of this one's share that the link would hold.
        let alike = self.link / passed.max(1.0);
        // A queue that others' pushes keep has its price, the same for all; what deviates from it is steered. A scavenger gives way to all of it besides.
        self.others.follow(queue - target, alike, (elapsed, round as f64), low);
        let kept = if low { target } else { target + self.others.ns() };
        let mut error = ((kept - queue) / (SLOWNESS_ROUNDS * round as f64)).clamp(-0.25, 0.25);
        if low {
            // A scavenger runs from what it would not have queued itself: a tenth a round, more the more there is.
            error = (error - 0.1 * ((queue - 1.3 * target) / target).max(0.0)).max(-0.6);
        }
        if self.base_shift.is_uncertain() {
            error = error.max(-0.05);
        }
        // The packets of a burst wait for each other on an empty link, too.
        let own = signal.burst_before as f64 * 1e9 / self.link.max(1.0);
        let growth = self.probe((queue, own), target, passed, if signal.limited { 0.0 } else { elapsed });
        let filled = PUSH_MULTIPLE * self.others.flows().max(1.0) / alike;
        let link = if low { self.link } else { self.link * three_quarters(filled.min(1.0)) };
        // What passes of a sender that has little to send is no measure of what would.
        let reference = if signal.limited { passed.max(self.goal * (1.0 - self.loss.overflow())) } else { passed };
        let next = reference * (1.0 + error - self.others.take() + growth) + self.others.push() * weight.gain * link;
        self.goal = if signal.limited { next.min(self.goal) } else { next };
        // Two packets a round keep the signals coming. A round is four reports at least, and reports wait for packets: who sends few must not
        // therefore send fewer.
        let round = round.min(self.path.rtt_ns().max(SPARSE_NS));
        let sparse = 2.0 * f64::from(self.config.packet_bytes) * 1e9 / round as f64;
        self.goal = self.goal.max(sparse);
        if let Some(bound) = self.ceiling.bound() {
            // No queue: what is known to go through goes at once.
            let near = self.others.ns() <= 0.0 || CEILING_JUMP * passed > bound;
            let whole = queue < target && !signal.limited && near;
            self.goal = if whole { bound } else { self.goal.min(bound) };
        }
        let share = (self.goal / self.link.max(1.0)).clamp(0.02, 1.0);
        let held = self.drain.held_back(&mut self.path, now, (queue, target), share, low);
        self.rate = (self.goal * (1.0 - held)).max(sparse);
    }

    /// Beside a flow that fills the queue whatever this one does: take a share as such a flow does.
    fn beside_competitor(&mut self, signal: &Signal, elapsed: f64, queue: f64, passed: f64) -> bool {
        // A bucket's packets came close together: a share of what they seem to show would be a flood.
        let (weight, link) = (self.weight(), self.link.min(SHARED_MOST * self.arrived_most));
        if weight.ceiling == 0.0 || signal.limited {
            return false;
        }
        // Jitter looks like a queue that is never empty.
        let target = self.queue_target() + 2.0 * self.path.noise_ns();
        let round = self.path.round_ns() as f64;
        let seen = Observation { elapsed, round, queue, target, link, passed, overflow: self.loss.overflow() };
        if !self.competitor.present() {
            if !self.competitor.watch(&seen, weight.gain) {
                return false;
            }
            self.competitor.enter(passed, weight.entry * link);
        }
        // The path's own loss is not caused by a competitor.
        let lost = if self.loss.usual() < 0.002 || seen.overflow > 0.0 { signal.lost } else { 0 };
        let signal = Signal { lost, ..*signal };
        let Some(rate) = self.competitor.rate(&self.path, &signal, &seen, (self.config, weight)) else {
            self.others = Others::of(link / passed.max(1.0));
            return false;
        };
        self.goal = rate;
        self.rate = rate;
        true
    }

    /// Queueing delay to keep: less where the queue is too short for it.
    fn queue_target(&self) -> f64 {
        // Two packets are the least queue there is while the link is busy; jitter hides what is below it.
        let two_packets = 2.0 * f64::from(self.config.packet_bytes) * 1e9 / self.link.max(1.0);
        // A queue too short for it bounds what is kept; jitter comes on top.
        let kept = self.weight().queue_ns.min(self.queue_cap).max(two_packets.min(1e9)) + self.seen_noise();
        kept.min(self.mark_cap)
    }

    /// What jitter adds to the least queue of a quarter round: that is still above the base by about as much as the mean is above it; a scavenger
    /// does not count on that.
    fn seen_noise(&self) -> f64 {
        let part = if self.config.policy == Policy::Low { 1.0 } else { 2.0 };
        (part * self.path.noise_ns()).min(NOISE_NS_MAX)
    }

    fn weight(&self) -> &'static Weight {
        of(self.config.policy)
    }

    fn on_round(&mut self, now: u64, target: f64) {
        let came = self.delivered.saturating_sub(self.round_delivered) as f64;
        self.round_delivered = self.delivered;
        self.arrived_most = self.arrived_most.max(came * 1e9 / now.saturating_sub(self.round_from_ns).max(1) as f64);
        let packet = f64::from(self.config.packet_bytes);
        let least = self.path.queue_least(self.round_from_ns, now);
        let few = (4.0 * packet * 1e9 / self.link.max(1.0)).min(target / 4.0);
        // What jitter leaves of the least queue is none: what is lost beside it was not lost in a queue.
        let jitter = if self.config.policy == Policy::Low { 0.0 } else { self.path.noise_ns() };
        self.loss.round(least <= few + jitter, packet);
        let queue = self.path.queue_ns() as f64;
        if self.loss.marks() > 0.0 {
            self.mark_cap = (0.8 * queue).max(100_000.0).min(self.mark_cap);
        } else if self.loss.overflow() > 0.0 {
            self.queue_cap = (0.6 * queue).max(100_000.0).min(self.queue_cap);
        } else {
            self.queue_cap = (self.queue_cap * 1.02).min(1e9);
            self.mark_cap = (self.mark_cap * 1.02).min(1e9);
        }
        self.round_from_ns = now;
    }
}
