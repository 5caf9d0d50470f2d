//! `delay`, ours: the price of a path is the delay of its queue; random loss costs nothing.
//!
//! For: the same rate over any distance and any loss, beside others without harm.
//! In and out: signals in; a rate out, and trains.
//! Invariants: see the table of equations in `docs/design/003-rate-control.md`; every rate is finite and positive.
//! Absent on purpose: retransmission timers, per-packet state.

use super::path::{Path, rate_of};
use super::trace::{Keep, Trace};
use super::{Policy, RATE_MAX, RateConfig, Signal, TRAIN_PACKETS};

/// Queueing delay that one flow alone keeps, nanoseconds.
const QUEUE_ALONE_NS: f64 = 2_000_000.0;
/// Share of the link's rate that every flow adds each round trip, and gives back in proportion to what it has.
const PUSH: f64 = 0.02;
/// Queueing delay that every further flow adds.
const QUEUE_EACH_NS: f64 = 800_000.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waiting for the train's echo. from: new, on_quiet; to: Verify
    Start,
    /// The rate the train promised is on its way. from: Start; to: Steady
    Verify { since_ns: u64 },
    /// from: Verify; to: Start (on_quiet)
    Steady,
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
    /// What each round trip takes back, a share of the rate.
    take: f64,
    sent: Trace,
    train_due: bool,
    train_bytes: f64,
    train_ns: f64,
    idle_rounds: f64,
    stepped_ns: u64,
}

impl Delay {
    pub(super) fn new(now_ns: u64, config: RateConfig) -> Self {
        let mut law = Self {
            path: Path::new(),
            config,
            phase: Phase::Start,
            rate: 0.0,
            link: 0.0,
            take: PUSH,
            sent: Trace::new(Keep::Last),
            train_due: true,
            train_bytes: 0.0,
            train_ns: 0.0,
            idle_rounds: 0.0,
            stepped_ns: now_ns,
        };
        law.trickle();
        law
    }

    /// Before anything is known: ten packets a second.
    fn trickle(&mut self) {
        self.rate = 10.0 * f64::from(self.config.packet_bytes);
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
            Phase::Steady => "steady",
        }
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

    pub(super) fn train(&mut self) -> Option<u32> {
        core::mem::take(&mut self.train_due).then_some(TRAIN_PACKETS)
    }

    pub(super) fn on_quiet(&mut self, now_ns: u64) {
        self.phase = Phase::Start;
        self.train_due = true;
        self.train_bytes = 0.0;
        self.train_ns = 0.0;
        self.stepped_ns = now_ns;
        self.trickle();
    }

    pub(super) fn on_signal(&mut self, signal: &Signal) {
        self.path.on_signal(signal);
        match self.phase {
            Phase::Start => self.on_echo(signal),
            Phase::Verify { since_ns } => {
                if signal.now_ns.saturating_sub(since_ns) >= self.path.rtt_ns() {
                    self.phase = Phase::Steady;
                }
            }
            Phase::Steady => self.step(signal),
        }
        self.rate = self.rate.clamp(1.0, RATE_MAX as f64);
        let target = self.config.target;
        if target > 0 {
            self.rate = self.rate.min(target as f64);
        }
        self.rate = self.rate.max(self.config.min as f64);
        self.sent.push(signal.now_ns, self.path.round_ns() / 24, self.rate);
    }

    /// A train left back to back and arrives spread out: by how much is the bottleneck's rate.
    fn on_echo(&mut self, signal: &Signal) {
        if !self.path.known() {
            return;
        }
        let packet = f64::from(self.config.packet_bytes);
        let compressed = signal.sent_interval_ns < signal.interval_ns / 2;
        if compressed && signal.interval_bytes as f64 >= 1.5 * packet {
            self.train_bytes += signal.interval_bytes as f64;
            self.train_ns += signal.interval_ns as f64;
        }
        if self.train_bytes < 6.0 * packet
            && signal.delivered < u64::from(self.config.packet_bytes) * u64::from(TRAIN_PACKETS) / 2
        {
            return;
        }
        let seen = rate_of(self.train_bytes as u64, self.train_ns as u64);
        // No dispersion seen: what a doubling window would do, from the train's size.
        let blind = 2.0 * packet * f64::from(TRAIN_PACKETS) * 1e9 / self.path.rtt_ns() as f64;
        self.link = seen.unwrap_or(0.0);
        self.rate = seen.map_or(blind, |rate| 0.9 * rate);
        self.phase = Phase::Verify { since_ns: signal.now_ns };
        self.sent.clear();
    }

    fn weight(&self) -> f64 {
        match self.config.policy {
            Policy::High => 2.0,
            Policy::Low => 0.2,
            Policy::Fair | Policy::Fixed => 1.0,
        }
    }

    /// One report of the steady state; all terms are those of one round trip, applied to the rate of one round trip ago.
    fn step(&mut self, signal: &Signal) {
        let now = signal.now_ns;
        let round = self.path.round_ns();
        let elapsed = (now.saturating_sub(self.stepped_ns) as f64 / round as f64).min(1.0);
        self.stepped_ns = now;
        let rtt = self.path.rtt_ns();
        let queue = self.path.queue_least(now.saturating_sub(round / 4), now);
        let half = round / 2;
        let before = self.path.queue_least(now.saturating_sub(half + round / 4), now.saturating_sub(half));
        let slope = ((queue - before) / half as f64).clamp(-0.5, 2.0);
        let ago = self.sent.mean(now.saturating_sub(rtt + round / 4), now.saturating_sub(rtt)).unwrap_or(self.rate);
        let target = QUEUE_ALONE_NS;
        let slowness = 2.2 * round as f64;
        // Integral: what has to be taken back for others' pushes, leaking, so that all flows come to the same.
        let gain = elapsed / 16.0;
        self.take += gain * ((queue - target) / round as f64 - (self.take / PUSH - 1.0) * QUEUE_EACH_NS / round as f64);
        self.take = self.take.clamp(0.0, 0.5);
        self.link = self.link.max(self.path.arrived(round));
        let error = ((target - queue) / slowness).clamp(-0.25, 0.25);
        self.idle_rounds = if queue < target / 4.0 && !signal.limited { self.idle_rounds + elapsed } else { 0.0 };
        let hunt = if self.idle_rounds > 2.0 {
            (0.01 * (1u64 << (self.idle_rounds as u32 - 2).min(5)) as f64).min(0.3)
        } else {
            0.0
        };
        let next = ago / (1.0 + slope) * (1.0 + error - self.take + hunt) + PUSH * self.weight() * self.link;
        self.rate = if signal.limited { next.min(self.rate) } else { next };
    }
}
