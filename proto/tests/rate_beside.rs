//! Shares of a link beside one loss-based competitor, over buffers and round trips: a grid in virtual time.
//!
//! For: the shares that `docs/design/003-rate-control.md` states beside CUBIC and BBR.
//! In and out: a policy and a competitor in; the share of each in the second half of two minutes out.
//! Invariants: the same seeds give the same shares; a cell is the mean of several starts of the competitor.
//! Absent on purpose: the kernel's own CUBIC and BBR (`make beside`).

#[path = "rate/mod.rs"]
mod sim;

use proto::rate::{ControllerKind, Policy};
use sim::{Link, MS, SEC, World, config, mbit};

const BUFFERS: [f64; 3] = [0.25, 1.0, 4.0];
const ROUND_TRIPS_MS: [u64; 3] = [10, 60, 300];

/// Shares of ours and of the competitor, mean of three starts.
fn cell(policy: Policy, other: ControllerKind, buffer: f64, rtt_ms: u64) -> (f64, f64) {
    let rate = mbit(155.0);
    let mut sum = (0.0, 0.0);
    for start in 0..3u64 {
        let queue = buffer * rate * rtt_ms as f64 / 1000.0;
        let mut world = World::new(Link::clean(rate, queue), 50 * MS, 7 + start);
        world.flow(0, rtt_ms * MS, config(other, Policy::Fair));
        world.flow((500 + 370 * start) * MS, rtt_ms * MS, config(ControllerKind::Delay, policy));
        world.run(120 * SEC);
        let share = |flow| world.arrived(flow, 40 * SEC, 120 * SEC) / rate / 3.0;
        sum = (sum.0 + share(1), sum.1 + share(0));
    }
    sum
}

#[test]
fn grid() {
    for other in [ControllerKind::Cubic, ControllerKind::Bbr] {
        for policy in [Policy::Fair, Policy::High, Policy::Low] {
            for buffer in BUFFERS {
                for rtt_ms in ROUND_TRIPS_MS {
                    let (ours, theirs) = cell(policy, other, buffer, rtt_ms);
                    println!("{other:?} {policy:?} {buffer} products {rtt_ms} ms: {ours:.2} : {theirs:.2}");
                }
            }
        }
    }
}

#[test]
fn pair() {
    let rate = mbit(155.0);
    for buffer in BUFFERS {
        for rtt_ms in [10, 20, 60, 150, 300] {
            let queue = buffer * rate * rtt_ms as f64 / 1000.0;
            let mut world = World::new(Link::clean(rate, queue), 50 * MS, 7);
            world.flow(0, rtt_ms * MS, config(ControllerKind::Delay, Policy::Fair));
            world.flow(2 * SEC, rtt_ms * MS, config(ControllerKind::Delay, Policy::Fair));
            world.run(60 * SEC);
            let share = |flow, from, to| world.arrived(flow, from * SEC, to * SEC) / rate;
            let jain = |a: f64, b: f64| (a + b) * (a + b) / (2.0 * (a * a + b * b));
            for (from, to) in [(4, 12), (12, 30), (30, 60)] {
                let (a, b) = (share(0, from, to), share(1, from, to));
                println!("pair {buffer} {rtt_ms} ms {from}-{to} s: {a:.2} {b:.2} Jain {:.3}", jain(a, b));
            }
        }
    }
}
