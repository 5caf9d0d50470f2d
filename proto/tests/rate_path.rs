//! One flow on one path: does it fill it, however far and lossy, and does it follow when the path changes.
//!
//! For: `proto::rate`, controller `delay` (and `fixed`) in the world of `rate/`.
//! In and out: paths in; goodput, queueing delay and overflow asserted.
//! Invariants: every bound is one of issue 3 or, where a comment says so, what was reached instead.
//! Absent on purpose: other flows (`rate_fair.rs`).

#[path = "rate/mod.rs"]
mod sim;

use proto::rate::{ControllerKind, Policy, RateConfig};
use sim::{Change, Link, Loss, MS, SEC, World, config, mbit};

fn fair() -> RateConfig {
    config(ControllerKind::Delay, Policy::Fair)
}

/// One flow alone: share of the limit over the first 100 round trips, then over the last two thirds, and the mean wait in ms.
fn alone(link: Link, rtt_ms: u64, seconds: u64, config: RateConfig) -> (f64, f64, f64, World) {
    let rtt = rtt_ms * MS;
    let mut world = World::new(link, (rtt / 4).max(MS), 7);
    world.flow(0, rtt, config);
    world.run(seconds * SEC);
    let passes = match link.loss {
        // Loss before the bottleneck leaves the bottleneck's rate whole; the limit of issue 3 counts it off all the same.
        Loss::Random(share) => 1.0 - share,
        Loss::Burst { bad, good, loss } => 1.0 - loss * bad / (bad + good),
        Loss::None => 1.0,
    };
    let limit = link.rate * passes;
    let first = world.arrived(0, 0, (100 * rtt).min(seconds * SEC)) / limit;
    let steady = world.arrived(0, seconds * SEC / 3, seconds * SEC) / limit;
    let wait = world.waited_ms(seconds * SEC / 3, seconds * SEC).0;
    (first, steady, wait, world)
}

#[test]
fn distance_and_random_loss_do_not_matter() {
    for rtt_ms in [10, 50, 200, 550, 1000] {
        for share in [0.0, 0.001, 0.01, 0.05, 0.1, 0.3] {
            for before in [false, true] {
                let rate = mbit(if rtt_ms < 500 { 155.0 } else { 50.0 });
                let mut link = Link::clean(rate, rate * rtt_ms as f64 / 1e3 * 4.0);
                link.loss = if share > 0.0 { Loss::Random(share) } else { Loss::None };
                link.loss_before = before;
                let seconds = (rtt_ms * 110 / 1000).max(6);
                let (first, steady, wait, _) = alone(link, rtt_ms, seconds, fair());
                let label = format!("{rtt_ms} ms, loss {share}, before {before}: {first:.4} {steady:.4} {wait:.2} ms");
                assert!(first >= if share < 0.3 { 0.95 } else { 0.85 }, "start included, {label}");
                assert!(steady >= 0.97, "steady, {label}");
                assert!(wait <= 10.0, "queue, {label}");
            }
        }
    }
}

/// Where the rate stayed at a quarter for a round trip after a moment at which all send little, or a look at losses took that quarter for what is sent, 550 ms with 10 % of
/// loss came to 0.94 of the limit in one of these, and to 0.84 in one of others.
#[test]
fn a_moment_of_little_costs_a_far_flow_no_more_than_that_moment() {
    let rtt_ms = 550;
    let rate = mbit(50.0);
    let steady: Vec<f64> = (0..16)
        .map(|seed| {
            let mut link = Link::clean(rate, rate * rtt_ms as f64 / 1e3 * 4.0);
            link.loss = Loss::Random(0.1);
            let mut world = World::new(link, rtt_ms * MS / 4, seed);
            world.flow(0, rtt_ms * MS, fair());
            world.run(60 * SEC);
            world.arrived(0, 20 * SEC, 60 * SEC) / rate / 0.9
        })
        .collect();
    let mean = steady.iter().sum::<f64>() / steady.len() as f64;
    let least = steady.iter().copied().fold(1.0, f64::min);
    println!("550 ms, 10 %: {mean:.3} of the limit, least {least:.3}");
    assert!(mean >= 0.97 && least >= 0.9, "{mean:.3}, least {least:.3}: {steady:.3?}");
}

#[test]
fn a_gigabit_over_a_second_is_filled_within_six_round_trips() {
    let rate = mbit(1000.0);
    let mut world = World::new(Link::clean(rate, rate), 250 * MS, 1);
    world.flow(0, SEC, fair());
    world.run(9 * SEC);
    // The train's echo is here at 1 s. 125 MB are on their way when it is full, and no flight may have more than eight times what has arrived: a
    // policer would drop it all. It was three, with a first flight of 50 MB.
    let share = world.arrived(0, 6 * SEC, 8 * SEC) / rate;
    assert!(share >= 0.95, "{share}");
}

#[test]
fn bursts_of_loss_are_not_congestion() {
    let rate = mbit(155.0);
    for rtt_ms in [20, 200] {
        let mut link = Link::clean(rate, rate * 0.1);
        link.loss = Loss::Burst { bad: 0.002, good: 0.1, loss: 0.5 };
        let (first, steady, ..) = alone(link, rtt_ms, 25, fair());
        assert!(first >= 0.93 && steady >= 0.95, "{rtt_ms} ms: {first:.4} {steady:.4}");
    }
}

#[test]
fn a_queue_of_a_few_packets_is_not_overrun() {
    for rtt_ms in [10, 100, 500] {
        for packets in [20.0, 50.0] {
            for share in [0.0, 0.02] {
                let rate = mbit(155.0);
                let mut link = Link::clean(rate, packets * 1500.0);
                link.loss = if share > 0.0 { Loss::Random(share) } else { Loss::None };
                let (first, steady, _, world) = alone(link, rtt_ms, (rtt_ms * 110 / 1000).max(10), fair());
                let over = world.flows[0].overflow as f64 / world.flows[0].sent as f64;
                let label =
                    format!("{rtt_ms} ms, {packets} packets, loss {share}: {first:.4} {steady:.4} overflow {over:.4}");
                assert!(first >= 0.93 && steady >= 0.95 && over <= 0.03, "{label}");
            }
        }
    }
}

#[test]
fn rates_from_64_kbit_to_400_gbit() {
    let cases: [(f64, u64, u64, u32, f64); 6] = [
        // Mbit/s, RTT ms, seconds, packet bytes, least share
        (0.064, 200, 400, 1200, 0.93),
        (1.0, 600, 120, 1500, 0.95),
        (10_000.0, 50, 3, 9000, 0.97),
        (40_000.0, 100, 3, 9000, 0.97),
        (400_000.0, 10, 1, 60_000, 0.95),
        (1_000.0, 1, 1, 1500, 0.97),
    ];
    for (rate, rtt_ms, seconds, packet_bytes, least) in cases {
        let rate = mbit(rate);
        let link = Link::clean(rate, (rate * rtt_ms as f64 / 1e3).max(20.0 * f64::from(packet_bytes)));
        let (_, steady, wait, _) = alone(link, rtt_ms, seconds, RateConfig { packet_bytes, ..fair() });
        assert!(steady >= least, "{rate} B/s over {rtt_ms} ms: {steady:.4}, waits {wait:.2} ms");
    }
}

#[test]
fn jitter_and_drifting_clocks_are_borne() {
    let rate = mbit(155.0);
    for (jitter_ms, skew) in [(1, 0.0), (5, 0.0), (0, 100.0), (0, -100.0)] {
        let mut link = Link::clean(rate, rate * 0.2);
        link.jitter_ns = jitter_ms * MS;
        let mut world = World::new(link, 25 * MS, 3);
        world.skew_ppm = skew;
        world.flow(0, 50 * MS, fair());
        world.run(40 * SEC);
        // Jitter longer than the first train hides the link's rate: half of it is found by hunting, which takes its time.
        let from = if jitter_ms > 1 { 20 * SEC } else { 10 * SEC };
        let steady = world.arrived(0, from, 40 * SEC) / rate;
        let wait = world.waited_ms(from, 40 * SEC).0;
        assert!(steady >= 0.95 && wait <= 15.0, "jitter {jitter_ms} ms, skew {skew} ppm: {steady:.4}, {wait:.2} ms");
    }
}

/// On a busy machine packets leave, and are seen, some milliseconds late, and the receiver reports only every quarter of a round trip: a quarter
/// round holds one sample, whose lateness looks like a queue that never empties.
#[test]
fn lateness_that_each_report_has_is_no_queue() {
    for (rtt_ms, jitter_ms) in [(20, 3), (60, 3), (60, 6), (100, 6), (200, 6)] {
        let rate = mbit(40.0);
        let mut link = Link::clean(rate, rate * 0.2);
        link.jitter_ns = jitter_ms * MS;
        let mut world = World::new(link, 25 * MS, 3);
        world.reports = (4, 5 * MS, 50 * MS);
        world.flow(0, rtt_ms * MS, fair());
        world.change(10 * SEC, Change::Down(true));
        world.change(16 * SEC, Change::Down(false));
        world.run(40 * SEC);
        // The start is as slow as ever under such jitter (design 003): what is asserted is that nothing sinks for good.
        let share = world.arrived(0, 25 * SEC, 40 * SEC) / rate;
        assert!(share >= 0.95, "{rtt_ms} ms, {jitter_ms} ms late: {share:.3}");
    }
}

#[test]
fn a_path_that_changes_is_followed_within_ten_round_trips_or_a_second() {
    for rtt_ms in [10u64, 50, 200] {
        let (rtt, rate) = (rtt_ms * MS, mbit(100.0));
        let mut world = World::new(Link::clean(rate, rate * rtt_ms as f64 / 1e3 * 4.0), MS, 5);
        world.flow(0, rtt, fair());
        for (at, change) in [
            (20, Change::Rate(rate / 2.0)),
            (40, Change::Rate(rate)),
            (60, Change::Rtt(2 * rtt)),
            (80, Change::Down(true)),
            (90, Change::Down(false)),
            (110, Change::Rtt(rtt)),
        ] {
            world.change(at * SEC, change);
        }
        world.run(130 * SEC);
        let bound = (10 * rtt).max(SEC);
        for (what, at, rtt, limit) in [
            ("halved", 20, rtt, rate / 2.0),
            ("doubled", 40, rtt, rate),
            ("twice as far", 60, 2 * rtt, rate),
            ("back from ten seconds of nothing", 90, 2 * rtt, rate),
            ("nearer", 110, rtt, rate),
        ] {
            // Feedback of the change needs a round trip more where silence was; the silence's own word comes up to a trickle's gap late.
            let begin = at * SEC + bound.max(10 * rtt) + rtt + 100 * MS;
            let share = world.arrived(0, begin, begin + (4 * rtt).max(SEC)) / limit;
            assert!(share >= 0.95, "{rtt_ms} ms, {what}: {share:.4}");
        }
    }
}

#[test]
fn marks_are_heeded_before_the_queue_is_full() {
    let rate = mbit(100.0);
    let mut link = Link::clean(rate, rate * 0.1);
    link.mark_bytes = rate * 0.000_5; // half a millisecond
    let (_, steady, wait, _) = alone(link, 40, 20, fair());
    let unmarked = alone(Link::clean(rate, rate * 0.1), 40, 20, fair()).2;
    // 0.97 is not reached with so low a threshold: half a millisecond is four packets here.
    assert!(steady >= 0.88 && wait < 0.7 * unmarked, "{steady:.4}, {wait:.2} ms with marks, {unmarked:.2} ms without");
}

#[test]
fn fixed_sends_at_the_target_from_the_first_packet_on() {
    let rate = mbit(155.0);
    let target = (rate * 0.99) as u64;
    let config =
        RateConfig { controller: ControllerKind::Fixed, policy: Policy::Fixed, target, min: 0, packet_bytes: 1500 };
    let mut link = Link::clean(rate, rate * 0.1);
    link.loss = Loss::Random(0.05);
    let mut world = World::new(link, 50 * MS, 1);
    world.flow(0, 200 * MS, config);
    world.run(30 * 200 * MS);
    let share = world.arrived(0, 0, 30 * 200 * MS) / (rate * 0.95);
    assert!(share >= 0.9, "{share}");
}

#[test]
fn a_limited_sender_keeps_its_rate_and_starts_again_without_a_flood() {
    let rate = mbit(100.0);
    let mut world = World::new(Link::clean(rate, rate * 0.2), 10 * MS, 1);
    world.flow(0, 50 * MS, fair());
    world.change(5 * SEC, Change::Supply(0, rate / 10.0));
    world.change(10 * SEC, Change::Supply(0, f64::INFINITY));
    world.run(15 * SEC);
    let limited = world.arrived(0, 6 * SEC, 10 * SEC) / rate;
    assert!((0.09..=0.11).contains(&limited), "{limited}");
    let after = world.arrived(0, 11 * SEC, 15 * SEC) / rate;
    assert!(after >= 0.95, "{after}");
    assert!(world.waited_ms(10 * SEC, 15 * SEC).1 < 60.0, "{:?}", world.waited_ms(10 * SEC, 15 * SEC));
}
