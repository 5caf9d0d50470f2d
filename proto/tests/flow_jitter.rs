//! Delay that varies: a path's jitter is neither a queue of ours nor somebody else's.
//!
//! For: radio links, busy hosts, tunnels: milliseconds of jitter beside a queueing delay to keep of 1.5 ms.
//! In and out: one path each, with jitter in both directions, in order and not, with loss and without; what became of a job.
//! Invariants: virtual time, fixed seeds; the limit is rate x (1 - loss) x payload share.
//! Absent on purpose: jitter of the machine itself (`rate_path.rs`).

#[path = "flow/link.rs"]
#[allow(dead_code, unreachable_pub)] // each test binary uses its own part
mod link;

use link::{Job, MS, Outcome, Path, SECOND, World};
use proto::rate::{ControllerKind, Policy};

/// Five seconds' worth, queue of one product: of the limit, all in all and between a fifth and nine tenths.
fn transfer(mbit: u64, rtt_ms: u64, jitter_us: u64, in_order: bool, loss_ppm: u64, seed: u64) -> (f64, f64, Outcome) {
    let rate = mbit * 125_000;
    let bytes = rate * 5;
    // What is asked for is the mean round trip, and jitter to either side of it.
    let mut path = Path::new(rate, rtt_ms * MS - 2 * jitter_us * 1000, loss_ppm);
    for way in [&mut path.forth, &mut path.back] {
        way.jitter_ns = 2 * jitter_us * 1000;
        way.in_order = in_order;
    }
    path.forth.queue_bytes = (rate * rtt_ms / 1000).max(100_000);
    let mut job = Job::fixed(rate, bytes, 8192);
    job.unit_bytes = (bytes / 1000).clamp(20_000, 1 << 20) as u32;
    job.config.rate.controller = ControllerKind::Delay;
    job.config.rate.policy = Policy::Fair;
    job.config.rate.target = 0;
    let out = World::new(seed, &path, &job).run(20 * SECOND);
    let limit = rate as f64 * 1440.0 / 1500.0 * (1.0 - loss_ppm as f64 / 1e6);
    (out.goodput(bytes) / limit, out.steady(bytes) / limit, out)
}

/// Mbit/s, round trip, milliseconds to either side, in order; whole jobs of five seconds keep so much of the limit.
const CASES: [(u64, u64, u64, bool, f64); 10] = [
    (100, 30, 1, true, 0.9),
    (100, 30, 1, false, 0.9),
    (100, 30, 2, true, 0.85),
    (100, 30, 2, false, 0.85),
    (100, 30, 5, true, 0.6),
    (20, 60, 2, true, 0.85),
    (20, 60, 5, false, 0.8),
    (1000, 30, 1, true, 0.75),
    (1000, 30, 1, false, 0.85),
    (1000, 30, 2, true, 0.7),
];

#[test]
fn jitter_costs_little_of_the_rate() {
    for (mbit, rtt_ms, jitter_ms, in_order, least) in CASES {
        for loss_ppm in [0, 10_000] {
            let mut shares = Vec::new();
            for seed in 1..=3 {
                let (whole, steady, out) = transfer(mbit, rtt_ms, jitter_ms * 1000, in_order, loss_ppm, seed);
                shares.push(whole);
                let twice = out.receiver.already_bytes as f64 / (mbit * 625_000) as f64;
                assert!(twice < 0.01, "{mbit} Mbit/s, {jitter_ms} ms: {twice:.4} came twice");
                println!(
                    "{mbit} Mbit/s {rtt_ms} ms, {jitter_ms} ms to either side {}, loss {} %: {whole:.3}, later {steady:.3}, queue {:.1} ms",
                    if in_order { "in order" } else { "overtaking" },
                    loss_ppm / 10_000,
                    out.queue_ms()
                );
            }
            shares.sort_by(f64::total_cmp);
            assert!(
                shares[1] >= least,
                "{mbit} Mbit/s {rtt_ms} ms, {jitter_ms} ms, {in_order}, {loss_ppm}: {shares:.3?}"
            );
        }
    }
}
