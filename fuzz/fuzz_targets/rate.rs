//! The controllers of the rate, any list of operations.
//!
//! For: finding orders of signals, silences, trains and settings that make a controller panic, or say a rate that is none.
//! In and out: ten bytes per operation: which, which figure is the odd one, and a value; the others are those of an ordinary path.
//! Invariants: rate, window and burst stay within their bounds after each; so do they on the
//! ordinary path that follows.
//! Absent on purpose: whether the rates are good ones (`proto/tests/rate_*.rs`).
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::rate::{Controller, ControllerKind, Policy, RATE_MAX, RateConfig, Signal};

const LAWS: [ControllerKind; 4] =
    [ControllerKind::Delay, ControllerKind::Bbr, ControllerKind::Cubic, ControllerKind::Fixed];
const POLICIES: [Policy; 4] = [Policy::Fixed, Policy::High, Policy::Fair, Policy::Low];
const PACKET: u32 = 1500;

/// A link of 10 MB/s and 20 ms that reports every 5 ms what it passed of the rate.
struct Path {
    controller: Controller,
    config: RateConfig,
    now_ns: u64,
    sent: u64,
    arrived: u64,
}

impl Path {
    fn ordinary(&mut self) -> Signal {
        self.now_ns += 5_000_000;
        let passed = (self.controller.rate() / 200).clamp(u64::from(PACKET), 50_000);
        self.sent += passed;
        self.arrived += passed;
        Signal {
            now_ns: self.now_ns,
            rtt_ns: 20_000_000,
            one_way_ns: 10_000_000,
            burst_before: 2 * u64::from(PACKET),
            delivered: self.arrived,
            passed: self.sent,
            interval_ns: 5_000_000,
            interval_bytes: passed,
            sent_interval_ns: 5_000_000,
            lost: 0,
            marked: 0,
            in_flight: 4 * passed,
            limited: false,
        }
    }

    /// One figure of a signal is what the peer or the clock made of it.
    fn odd(&mut self, which: u8, value: u64) {
        let mut signal = self.ordinary();
        match which % 13 {
            0 => signal.now_ns = value,
            1 => signal.rtt_ns = value,
            2 => signal.one_way_ns = value.cast_signed(),
            3 => signal.delivered = value,
            4 => signal.passed = value,
            5 => signal.interval_ns = value,
            6 => signal.interval_bytes = value,
            7 => signal.sent_interval_ns = value,
            8 => signal.lost = value,
            9 => signal.marked = value,
            10 => signal.in_flight = value,
            11 => signal.burst_before = value,
            _ => signal.limited = true,
        }
        self.controller.on_signal(&signal);
    }

    fn check(&self) {
        let (rate, window, burst) = (self.controller.rate(), self.controller.window(), self.controller.burst());
        let most = if self.config.target == 0 { RATE_MAX } else { self.config.target.min(RATE_MAX) };
        assert!((1..=most.max(1)).contains(&rate), "rate {rate}");
        assert!(rate >= self.config.min.min(most), "rate {rate} below its minimum");
        assert!(window >= 4 * u64::from(PACKET) && (PACKET..=1 << 20).contains(&burst), "{window} {burst}");
        assert!(!self.controller.phase().is_empty());
    }
}

fuzz_target!(|ops: &[u8]| {
    let config =
        RateConfig { controller: ControllerKind::Delay, policy: Policy::Fair, target: 0, min: 0, packet_bytes: PACKET };
    let mut path = Path { controller: Controller::new(0, config), config, now_ns: 0, sent: 0, arrived: 0 };
    for op in ops.chunks_exact(10) {
        let value = u64::from_le_bytes(*op.last_chunk().expect("ten bytes"));
        match op[0] % 8 {
            0..=2 => {
                let signal = path.ordinary();
                path.controller.on_signal(&signal);
            }
            3 | 4 => path.odd(op[1], value),
            5 => path.controller.on_quiet(path.now_ns.saturating_add(value >> 32)),
            6 => drop(path.controller.train(path.now_ns)),
            _ => {
                path.config.controller = LAWS[usize::from(op[1] & 3)];
                path.config.policy = POLICIES[usize::from(op[1] >> 2 & 3)];
                path.config.target = if op[1] & 16 == 0 { 0 } else { value };
                path.config.min = if op[1] & 32 == 0 { 0 } else { value / 2 };
                path.controller.set(path.now_ns, path.config);
            }
        }
        path.check();
    }
    path.config.target = 0;
    path.config.min = 0;
    path.controller.set(path.now_ns, path.config);
    for _ in 0..200 {
        let signal = path.ordinary();
        path.controller.on_signal(&signal);
        path.check();
    }
});
