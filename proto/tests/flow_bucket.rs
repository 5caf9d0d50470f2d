//! A shaper's token bucket: after a rest it passes a burst at once, so a train through it says nothing of the rate behind it.
//!
//! For: links that providers and hypervisors shape (tc-tbf(8)).
//! In and out: rates, buckets, queues; what was dropped by our own doing.
//! Invariants: virtual time, one seed each.
//! Absent on purpose: other flows beside it (`rate_fair.rs`).

#[path = "flow/link.rs"]
#[allow(dead_code, unreachable_pub)] // each test binary uses its own part
mod link;

use link::{Job, Path, SECOND, World};
use proto::rate::{ControllerKind, Policy, TrainSeen};

#[test]
fn a_bucket_that_passes_a_train_at_once_does_not_make_us_flood_the_link_behind_it() {
    let mut worst: f64 = 0.0;
    for (mbit, rtt_us, bucket, queue_ms) in [
        (20, 50, 32_000, 20),
        (20, 50, 128_000, 20),
        (200, 50, 128_000, 20),
        (20, 20_000, 32_000, 20),
        (100, 20_000, 256_000, 50),
        (20, 2_000, 32_000, 200),
    ] {
        for seed in 1..=8 {
            let rate = mbit * 125_000;
            let bytes = rate * 20;
            let mut path = Path::new(rate, rtt_us * 1000, 0);
            path.forth.queue_bytes = rate * queue_ms / 1000;
            path.forth.bucket_bytes = bucket;
            let mut job = Job::fixed(rate, bytes, 8192);
            job.unit_bytes = 1 << 20;
            job.config.rate.controller = ControllerKind::Delay;
            job.config.rate.policy = Policy::Fair;
            job.config.rate.target = 0;
            // The greeting's train went through the bucket at the wire's rate.
            job.seen = Some(TrainSeen { rate: 200_000_000 + seed * 20_000_000, rtt_ns: rtt_us * 1000 + 200_000 });
            let out = World::new(seed, &path, &job).run(60 * SECOND);
            let dropped = out.dropped_packets as f64 / out.sender.packets.max(1) as f64;
            let seconds = out.landed_ns as f64 / 1e9;
            println!(
                "{mbit} Mbit/s, {rtt_us} us, bucket {bucket}, queue {queue_ms} ms, seed {seed}: {dropped:.3} dropped, {seconds:.2} s, queue {:.1} ms",
                out.queue_ms()
            );
            assert!(
                out.queue_ms() < 10.0 && seconds < 22.0,
                "{mbit} Mbit/s, {rtt_us} us, seed {seed}: {seconds:.2} s, queue {:.1} ms",
                out.queue_ms()
            );
            worst = worst.max(dropped);
        }
    }
    assert!(worst < 0.08, "{worst:.3} dropped by our own doing");
}
