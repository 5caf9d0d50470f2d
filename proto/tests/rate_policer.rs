//! Several flows behind one policer, which drops what is above its rate and keeps no queue: shares, and what is sent in vain.
//!
//! For: the ceiling that `delay` finds, where others find the same one.
//! In and out: flows that come one after the other; all of the policed rate and little loss asserted, shares and Jain's index printed.
//! Invariants: virtual time, one seed each; a line of ten times the policed rate is before the policer.
//! Absent on purpose: one flow behind a policer, in whole transfers (`flow_policer.rs`).

#[path = "rate/mod.rs"]
mod sim;

use proto::rate::{ControllerKind, Policy};
use sim::{Link, MS, SEC, World, config, jain, mbit};

/// Flows two seconds apart; over the last half: shares of the policed rate, and the part of what was sent that was dropped.
fn run(count: usize, rate: f64, bucket: f64, rtt_ms: u64, seconds: u64) -> (Vec<f64>, f64) {
    let line = 10.0 * rate;
    let mut world = World::new(Link { policer: Some((rate, bucket)), ..Link::clean(line, line / 20.0) }, 10 * MS, 5);
    for flow in 0..count {
        world.flow(2 * SEC * flow as u64, rtt_ms * MS, config(ControllerKind::Delay, Policy::Fair));
    }
    world.run(seconds / 2 * SEC);
    let before: Vec<(u64, u64)> = world.flows.iter().map(|flow| (flow.sent, flow.lost)).collect();
    world.run(seconds * SEC);
    let shares = (0..count).map(|flow| world.arrived(flow, seconds / 2 * SEC, seconds * SEC) / rate).collect();
    let sum = |of: fn(&sim::Flow) -> u64, was: fn(&(u64, u64)) -> u64| {
        world.flows.iter().zip(&before).map(|(flow, before)| of(flow) - was(before)).sum::<u64>() as f64
    };
    (shares, sum(|flow| flow.lost, |was| was.1) / sum(|flow| flow.sent, |was| was.0).max(1.0))
}

#[test]
fn flows_behind_one_policer_fill_it_and_do_not_flood_it() {
    for count in [1, 2, 4, 8] {
        for (rate, bucket) in [(20.0, 64_000.0), (100.0, 256_000.0)] {
            for rtt_ms in [10, 50, 200] {
                let (shares, lost) = run(count, mbit(rate), bucket, rtt_ms, 120);
                let (index, sum) = (jain(&shares), shares.iter().sum::<f64>());
                // Missed: shares are as the flows came (Jain 0.13 to 1). All find the same loss and give back the same part of what they have.
                println!(
                    "{count} behind {rate} Mbit/s, {bucket} B, {rtt_ms} ms: Jain {index:.3}, together {sum:.3}, dropped {:.1} %",
                    lost * 100.0
                );
                assert!(sum >= 0.97, "{count} behind {rate}, {rtt_ms} ms: together {sum:.3}");
                assert!(lost <= 0.15, "{count} behind {rate}, {rtt_ms} ms: {lost:.3} dropped");
            }
        }
    }
}

#[test]
fn the_policer_that_was_found_is_said_and_none_where_there_is_none() {
    let said = |link: Link| {
        let mut world = World::new(link, 10 * MS, 5);
        world.flow(0, 50 * MS, config(ControllerKind::Delay, Policy::Fair));
        let looks: Vec<Option<u64>> = (1..=400)
            .map(|tenth| {
                world.run(tenth * 100 * MS);
                let controller = &world.flows[0].controller;
                assert_eq!(controller.snapshot().policer, controller.policer());
                controller.policer()
            })
            .collect();
        looks
    };
    let clean = Link::clean(mbit(200.0), mbit(200.0) / 20.0);
    for rate in [20.0, 100.0] {
        let looks = said(Link { policer: Some((mbit(rate), 64_000.0)), ..clean });
        let near = |found: &Option<u64>| found.is_some_and(|it| (0.85..1.15).contains(&(it as f64 / mbit(rate))));
        let share = looks[100..].iter().filter(|it| near(it)).count();
        assert!(share >= 250, "{rate} Mbit/s: {share} of 300 looks: {looks:?}");
    }
    // Of losses of 5 % it is asked whether the rate is their cause.
    for link in [0.0, 0.01, 0.05].map(|share| Link { loss: sim::Loss::Random(share), ..clean }) {
        let looks = said(link);
        assert_eq!(looks.iter().flatten().count(), 0, "{looks:?}");
    }
}
