//! CUBIC (RFC 9438): a window that grows by a cube of the time since the last loss, paced at 1.2 windows a round trip.
//!
//! For: paths where others run CUBIC and nothing else is wanted, and as the competitor in our simulations.
//! In and out: signals in; window and rate out.
//! Invariants: one decrease a round trip at most; the window is never below two packets.
//! Absent on purpose: HyStart++ (RFC 9406), SACK scoreboards (coverage says what is lost), policies.

use super::maths::cbrt;
use super::path::Path;
use super::{RateConfig, Signal};

/// RFC 9438, 5: the cube's factor, packets per second cubed.
const C: f64 = 0.4;
/// RFC 9438, 4.6: what is left of the window after a loss.
const BETA: f64 = 0.7;
/// RFC 9438, 4.3: additive increase that makes Reno's average with this BETA: 3(1-β)/(1+β).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Initial window, packets (RFC 6928).
const WINDOW_FIRST: f64 = 10.0;
/// Largest window, packets: 2^40, so that cubes stay finite and bytes fit into u64.
const WINDOW_MAX: f64 = 1_099_511_627_776.0;

#[derive(Debug, Clone)]
pub(super) struct Cubic {
    path: Path,
    packet_bytes: f64,
    /// Packets.
    window: f64,
    slow_start_until: f64,
    window_max: f64,
    window_reno: f64,
    epoch_ns: Option<u64>,
    epoch_from: f64,
    epoch_k: f64,
    reduced_ns: Option<u64>,
    delivered: u64,
}

impl Cubic {
    pub(super) fn new(_now_ns: u64, config: RateConfig) -> Self {
        Self {
            path: Path::new(),
            packet_bytes: f64::from(config.packet_bytes),
            window: WINDOW_FIRST,
            slow_start_until: WINDOW_MAX,
            window_max: 0.0,
            window_reno: 0.0,
            epoch_ns: None,
            epoch_from: 0.0,
            epoch_k: 0.0,
            reduced_ns: None,
            delivered: 0,
        }
    }

    /// Past slow start, with the window that another controller had.
    pub(super) fn joining(config: RateConfig, window_bytes: f64) -> Self {
        let mut cubic = Self::new(0, config);
        cubic.window = (window_bytes / cubic.packet_bytes).clamp(2.0, WINDOW_MAX);
        cubic.slow_start_until = cubic.window;
        cubic.window_max = cubic.window;
        cubic
    }

    pub(super) fn set(&mut self, config: RateConfig) {
        self.packet_bytes = f64::from(config.packet_bytes);
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn phase(&self) -> &'static str {
        if self.window < self.slow_start_until { "slow start" } else { "avoidance" }
    }

    pub(super) fn window(&self) -> u64 {
        (self.window * self.packet_bytes) as u64
    }

    /// 1.2 windows a round trip, 2 in slow start, as Linux paces TCP.
    pub(super) fn rate(&self) -> u64 {
        let gain = if self.window < self.slow_start_until / 2.0 { 2.0 } else { 1.2 };
        (gain * self.window * self.packet_bytes * 1e9 / self.path.rtt_ns() as f64) as u64
    }

    pub(super) fn on_signal(&mut self, signal: &Signal) {
        self.path.on_signal(signal);
        let arrived = signal.delivered.saturating_sub(self.delivered).min(signal.interval_bytes.max(1)) as f64
            / self.packet_bytes;
        self.delivered = self.delivered.max(signal.delivered);
        let now = signal.now_ns;
        if signal.lost > 0 || signal.marked > 0 {
            let again = self.reduced_ns.is_none_or(|at| now.saturating_sub(at) > self.path.rtt_ns());
            if again {
                self.reduce(now);
            }
            return;
        }
        // RFC 9438, 5.8 (RFC 7661): an application that does not fill the window does not widen it.
        if signal.limited || arrived <= 0.0 {
            return;
        }
        if self.window < self.slow_start_until {
            self.window = (self.window + arrived).min(WINDOW_MAX);
            return;
        }
        self.avoid(now, arrived);
    }

    fn reduce(&mut self, now_ns: u64) {
        // RFC 9438, 4.7: fast convergence.
        self.window_max = if self.window < self.window_max { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = (self.window * BETA).max(2.0);
        self.slow_start_until = self.window;
        self.reduced_ns = Some(now_ns);
        self.epoch_ns = None;
    }

    fn avoid(&mut self, now_ns: u64, arrived: f64) {
        let began = *self.epoch_ns.get_or_insert_with(|| {
            self.epoch_from = self.window;
            self.window_reno = self.window;
            self.epoch_k = if self.window_max > self.window { cbrt((self.window_max - self.window) / C) } else { 0.0 };
            self.window_max = self.window_max.max(self.window);
            now_ns
        });
        let t = now_ns.saturating_sub(began) as f64 / 1e9;
        let rtt = self.path.rtt_ns() as f64 / 1e9;
        self.window_reno += ALPHA * arrived / self.window;
        // 4.2: the target is the cube one round trip ahead, at most half again the window.
        let ahead = t + rtt - self.epoch_k;
        let target = (C * ahead * ahead * ahead + self.window_max).clamp(self.window, 1.5 * self.window);
        self.window += (target - self.window) / self.window * arrived.min(self.window);
        self.window = self.window.max(self.window_reno).min(WINDOW_MAX);
    }

    /// Nothing came for several round trips: a retransmission timeout (RFC 9438, 4.8).
    pub(super) fn on_quiet(&mut self, now_ns: u64) {
        self.reduce(now_ns);
        self.window = 2.0;
    }
}
