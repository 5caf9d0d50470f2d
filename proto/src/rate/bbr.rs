//! BBR-like: paced at the most that was delivered of late, in flight at most two bandwidth-delay products.
//!
//! For: comparison, paths where others run BBR, and the competitor in our simulations.
//! In and out: signals in; rate and window out.
//! Invariants: the cycle of gains averages 1; every ten seconds the queue is given 200 ms to drain.
//! Absent on purpose: BBRv3's loss and ECN bounds (draft-ietf-ccwg-bbr): random loss is what this house is made for; policies.

use super::path::Path;
use super::{RateConfig, Signal};

/// Cardwell et al. 2017: 2/ln 2, the least gain that doubles delivery each round.
const STARTUP_GAIN: f64 = 2.885;
/// Pacing gains of the probe cycle, one a round (Cardwell et al. 2017): their mean is 1.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Length of the max filter of the delivery rate, rounds (Cardwell et al. 2017).
const ROUNDS: usize = 10;
/// Distance of two looks at the base round-trip time, ns (draft-cardwell-iccrg-bbr-congestion-control-00).
const PROBE_RTT_EVERY_NS: u64 = 10_000_000_000;
/// Length of such a look, ns (the same draft).
const PROBE_RTT_NS: u64 = 200_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// from: new, on_quiet; to: Drain
    Startup,
    /// from: Startup; to: Cycle
    Drain,
    /// from: Drain, ProbeRtt; to: ProbeRtt
    Cycle(usize),
    /// from: Cycle; to: Cycle
    ProbeRtt { until_ns: u64 },
}

#[derive(Debug, Clone)]
pub(super) struct Bbr {
    path: Path,
    packet_bytes: f64,
    phase: Phase,
    /// Greatest delivery of each of the last rounds, bytes per second; the newest first.
    most: [f64; ROUNDS],
    full: f64,
    full_rounds: u32,
    round_ns: u64,
    round_delivered: u64,
    round_limited: bool,
    base_seen_ns: u64,
    base_ns: u64,
}

impl Bbr {
    pub(super) fn new(now_ns: u64, config: RateConfig) -> Self {
        Self {
            path: Path::new(),
            packet_bytes: f64::from(config.packet_bytes),
            phase: Phase::Startup,
            most: [0.0; ROUNDS],
            full: 0.0,
            full_rounds: 0,
            round_ns: now_ns,
            round_delivered: 0,
            round_limited: false,
            base_seen_ns: now_ns,
            base_ns: u64::MAX,
        }
    }

    pub(super) fn set(&mut self, config: RateConfig) {
        self.packet_bytes = f64::from(config.packet_bytes);
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn phase(&self) -> &'static str {
        match self.phase {
            Phase::Startup => "startup",
            Phase::Drain => "drain",
            Phase::Cycle(_) => "cycle",
            Phase::ProbeRtt { .. } => "probe rtt",
        }
    }

    fn bandwidth(&self) -> f64 {
        self.most.iter().fold(0.0, |most, round| round.max(most))
    }

    fn base_ns(&self) -> f64 {
        if self.base_ns == u64::MAX { self.path.rtt_ns() as f64 } else { self.base_ns as f64 }
    }

    fn product(&self) -> f64 {
        self.bandwidth() * self.base_ns() / 1e9
    }

    pub(super) fn rate(&self) -> u64 {
        let gain = match self.phase {
            Phase::Startup => STARTUP_GAIN,
            Phase::Drain => 1.0 / STARTUP_GAIN,
            Phase::Cycle(at) => CYCLE[at],
            Phase::ProbeRtt { .. } => 1.0,
        };
        let first = 10.0 * self.packet_bytes * 1e9 / self.path.rtt_ns() as f64;
        (gain * if self.bandwidth() > 0.0 { self.bandwidth() } else { first }) as u64
    }

    pub(super) fn window(&self) -> u64 {
        let packets = match self.phase {
            Phase::ProbeRtt { .. } => return (4.0 * self.packet_bytes) as u64,
            Phase::Startup | Phase::Drain => STARTUP_GAIN * self.product(),
            Phase::Cycle(_) => 2.0 * self.product(),
        };
        packets.max(10.0 * self.packet_bytes) as u64
    }

    pub(super) fn on_signal(&mut self, signal: &Signal) {
        self.path.on_signal(signal);
        let now = signal.now_ns;
        if signal.rtt_ns > 0 && self.path.rtt_ns() <= self.base_ns {
            self.base_ns = self.path.rtt_ns();
            self.base_seen_ns = now;
        }
        self.round_limited |= signal.limited;
        let since = now.saturating_sub(self.round_ns);
        if since >= self.path.rtt_ns() {
            let arrived = signal.delivered.saturating_sub(self.round_delivered) as f64 * 1e9 / since as f64;
            self.round_delivered = signal.delivered;
            self.round_ns = now;
            self.round(arrived.min(super::RATE_MAX as f64));
            self.round_limited = false;
        }
        match self.phase {
            Phase::Drain if signal.in_flight as f64 <= self.product() => self.phase = Phase::Cycle(2),
            Phase::Cycle(1) if signal.in_flight as f64 <= self.product() => self.phase = Phase::Cycle(2),
            Phase::Cycle(_) if now.saturating_sub(self.base_seen_ns) > PROBE_RTT_EVERY_NS => {
                self.base_ns = u64::MAX;
                self.phase = Phase::ProbeRtt { until_ns: now.saturating_add(PROBE_RTT_NS.max(2 * self.path.rtt_ns())) };
            }
            Phase::ProbeRtt { until_ns } if now >= until_ns => {
                self.base_seen_ns = now;
                self.phase = Phase::Cycle(2);
            }
            _ => {}
        }
    }

    /// A round trip is over and `arrived` bytes per second came through in it.
    fn round(&mut self, arrived: f64) {
        let probing_rtt = matches!(self.phase, Phase::ProbeRtt { .. });
        // A round that was held back says nothing about the path unless it was better than all.
        if !((self.round_limited || probing_rtt) && arrived < self.bandwidth()) {
            self.most.rotate_right(1);
            self.most[0] = arrived;
        }
        match self.phase {
            Phase::Startup => {
                if arrived > self.full * 1.25 {
                    self.full = arrived;
                    self.full_rounds = 0;
                } else if !self.round_limited {
                    self.full_rounds += 1;
                }
                if self.full_rounds >= 3 {
                    self.phase = Phase::Drain;
                }
            }
            Phase::Cycle(at) => self.phase = Phase::Cycle((at + 1) % CYCLE.len()),
            _ => {}
        }
    }

    /// Nothing came for several round trips: begin again, but from what the path once gave.
    pub(super) fn on_quiet(&mut self, now_ns: u64) {
        let once = self.bandwidth();
        self.most = [0.0; ROUNDS];
        self.most[0] = once / 8.0;
        self.phase = Phase::Startup;
        self.full = 0.0;
        self.full_rounds = 0;
        self.base_ns = u64::MAX;
        self.base_seen_ns = now_ns;
    }
}
