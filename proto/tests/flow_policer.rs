//! Token buckets: a policer drops what is above its rate and keeps no queue, so nothing but loss tells of it; a shaper's passes a train at once, which
//! therefore says nothing of the rate behind it.
//!
//! For: links that providers police and shape (tc-police(8), RFC 2697; tc-tbf(8)), and queues so short that no delay is seen.
//! In and out: rates, buckets, round trips, random loss beside them; what was sent beside what was asked, and how fast it came. `POLICERS=path` runs
//! the whole grid and writes a line per cell there (`make policers`); without it a part of the grid runs.
//! Invariants: virtual time, one seed each; a line of ten times the policed rate, at least 1 Gbit/s, is before the policer.
//! Absent on purpose: shares of flows behind one policer, which are as they came (docs/design/003).

#[path = "flow/link.rs"]
#[allow(dead_code, unreachable_pub)] // each test binary uses its own part
mod link;
#[path = "rate/mod.rs"]
mod sim;

use std::fmt::Write as _;

use link::{Job, MS, Outcome, Path, SECOND, World};
use proto::rate::{ControllerKind, Policy, TrainSeen};
use sim::{Link, config, jain, mbit};

/// One policed path.
#[derive(Debug, Clone, Copy)]
struct Cell {
    mbit: u64,
    bucket: u64,
    rtt_us: u64,
    loss_ppm: u64,
}

/// What a cell showed, the path's own loss taken off: bytes sent beside those asked for, and goodput beside the policed rate.
#[derive(Debug, Clone, Copy)]
struct Shown {
    sent: f64,
    goodput: f64,
}

fn job(bytes: u64) -> Job {
    let mut job = Job::fixed(1, bytes, 8192);
    job.unit_bytes = ((bytes / 200).clamp(20_000, 1 << 20)) as u32;
    job.config.rate.controller = ControllerKind::Delay;
    job.config.rate.policy = Policy::Fair;
    job.config.rate.target = 0;
    job
}

fn path(cell: Cell) -> Path {
    let line = (10 * cell.mbit * 125_000).max(125_000_000);
    let mut path = Path::new(line, cell.rtt_us * 1000, cell.loss_ppm);
    path.forth.queue_bytes = (line / 20).max(100_000);
    path.forth.policers = vec![(0, cell.mbit * 125_000, cell.bucket)];
    path
}

/// Twenty seconds or a hundred round trips of the policed rate, at least twenty buckets and 8 MiB.
fn run(cell: Cell) -> Shown {
    let rate = cell.mbit * 125_000;
    let spans = (20 * SECOND).max(cell.rtt_us * 1000 * 100) / MS;
    let long = (rate / 1000 * spans).max(20 * cell.bucket).max(8 << 20);
    // A gigabit for 20 s is many packets; a hundred round trips are there all the same.
    let bytes = if cell.mbit > 500 { long.min((400 << 20).max(rate * cell.rtt_us / 10_000)) } else { long };
    shown(cell, bytes, &World::new(1, &path(cell), &job(bytes)).run(200 * SECOND))
}

fn shown(cell: Cell, bytes: u64, out: &Outcome) -> Shown {
    let rate = cell.mbit * 125_000;
    let passes = 1.0 - cell.loss_ppm as f64 / 1e6;
    let sent = out.sender.fresh_bytes + out.sender.repair_bytes + out.sender.copy_bytes;
    Shown {
        sent: sent as f64 / bytes as f64 * passes,
        goodput: out.goodput(bytes) / (rate as f64 * 1440.0 / 1500.0 * passes),
    }
}

fn grid(rates: &[u64], buckets: &[u64], trips_us: &[u64], losses: &[u64]) -> Vec<(Cell, Shown)> {
    let mut all = Vec::new();
    for &mbit in rates {
        for &bucket in buckets {
            for &rtt_us in trips_us {
                for &loss_ppm in losses {
                    let cell = Cell { mbit, bucket, rtt_us, loss_ppm };
                    let shown = run(cell);
                    println!("{cell:?}: sent {:.3}, goodput {:.3}", shown.sent, shown.goodput);
                    all.push((cell, shown));
                }
            }
        }
    }
    all
}

fn share(all: &[(Cell, Shown)], holds: impl Fn(&Shown) -> bool) -> f64 {
    all.iter().filter(|(_, shown)| holds(shown)).count() as f64 / all.len() as f64
}

#[test]
fn a_policer_is_found_and_not_flooded() {
    if let Ok(to) = std::env::var("POLICERS") {
        let mut all = grid(
            &[1, 20, 100],
            &[16_000, 64_000, 256_000, 1_000_000],
            &[1_000, 20_000, 100_000, 600_000],
            &[0, 10_000, 50_000],
        );
        all.extend(grid(&[1000], &[64_000, 256_000, 1_000_000], &[1_000, 20_000, 100_000], &[0, 10_000, 50_000]));
        let mut text = String::new();
        for (cell, shown) in &all {
            let Cell { mbit, bucket, rtt_us, loss_ppm } = cell;
            let Shown { sent, goodput } = shown;
            let _ = writeln!(
                text,
                "{{\"mbit\":{mbit},\"bucket_bytes\":{bucket},\"rtt_us\":{rtt_us},\"loss_ppm\":{loss_ppm},\"sent\":{sent:.3},\"goodput\":{goodput:.3}}}"
            );
        }
        std::fs::write(to, text).expect("the file can be written");
        println!(
            "{} cells: sent <= 1.10 in {:.2}, <= 1.20 in {:.2}; goodput >= 0.9 in {:.2}",
            all.len(),
            share(&all, |shown| shown.sent <= 1.1),
            share(&all, |shown| shown.sent <= 1.2),
            share(&all, |shown| shown.goodput >= 0.9)
        );
        return;
    }
    let all = grid(&[1, 20, 100], &[16_000, 64_000], &[1_000, 20_000, 100_000], &[0, 10_000]);
    // Before there was a ceiling 1.5 to 8.8 times the file was sent in each of these cells.
    for (cell, shown) in &all {
        assert!(shown.sent <= 1.25 && shown.goodput >= 0.8, "{cell:?}: {shown:?}");
    }
    let few = share(&all, |shown| shown.sent <= 1.1 && shown.goodput >= 0.9);
    assert!(few >= 0.75, "{few:.2} of the cells send no more than 1.1 times the file at 0.9 of the rate");
}

#[test]
fn a_policer_that_begins_and_one_that_goes_in_mid_job_are_found() {
    let cell = Cell { mbit: 20, bucket: 64_000, rtt_us: 20_000, loss_ppm: 0 };
    let rate = 2_500_000;
    // A free link of 100 Mbit/s for five seconds, then policed at 20, then free again.
    let mut path = path(cell);
    path.forth.rate = 5 * rate;
    path.forth.queue_bytes = rate;
    path.forth.policers = vec![(0, 0, 0), (5 * SECOND, rate, cell.bucket), (25 * SECOND, 0, 0)];
    let bytes = rate * (5 * 5 + 20 + 5 * 10);
    let out = World::new(1, &path, &job(bytes)).run(20 * SECOND);
    let per_tenth = |from: usize, to: usize| out.progress[from..to].iter().sum::<u64>() as f64 / (to - from) as f64;
    let policed = per_tenth(60, 240) / (rate as f64 * 0.096);
    let after = per_tenth(280, 340) / (5.0 * rate as f64 * 0.096);
    println!("policed {policed:.3}, after it {after:.3}, dropped {:.4}", out.dropped_bytes as f64 / bytes as f64);
    assert!(policed >= 0.9, "{policed:.3} of the policed rate");
    assert!(after >= 0.9, "{after:.3} of the link when the policer has gone");
    assert!(out.dropped_bytes as f64 <= 0.06 * bytes as f64, "{} of {bytes} dropped", out.dropped_bytes);
}

/// Twenty round trips, or 2 MB: the start is a part of it that counts.
#[test]
fn a_short_job_is_not_mostly_its_start() {
    for mbit in [20, 100] {
        for bucket in [16_000, 64_000] {
            for rtt_us in [5_000, 30_000, 100_000, 300_000] {
                for loss_ppm in [0, 10_000] {
                    let cell = Cell { mbit, bucket, rtt_us, loss_ppm };
                    let mut path = path(cell);
                    // Ten times the policed rate on the line, also where that is slow.
                    (path.forth.rate, path.back.rate) = (10 * mbit * 125_000, 10 * mbit * 125_000);
                    let bytes = (mbit * rtt_us / 8 * 20).max(2_000_000);
                    let shown = shown(cell, bytes, &World::new(1, &path, &job(bytes)).run(200 * SECOND));
                    println!("{cell:?}: sent {:.3}, goodput {:.3}", shown.sent, shown.goodput);
                    // Where the start took the loss of its first flight for the path's own, 2.3 times the file was sent.
                    assert!(shown.sent <= 1.35 && shown.goodput >= 0.5, "{cell:?}: {shown:?}");
                }
            }
        }
    }
}

/// Flows two seconds and more apart, by the seed (5: two seconds), since nothing else here is chance; over the last half: shares of the policed rate, and the part of what was sent that was dropped.
fn behind(count: usize, (rate, bucket): (f64, f64), rtt_ms: u64, seed: u64) -> (Vec<f64>, f64) {
    let (line, seconds) = (10.0 * rate, 120);
    let mut world =
        sim::World::new(Link { policer: Some((rate, bucket)), ..Link::clean(line, line / 20.0) }, 10 * MS, seed);
    for flow in 0..count {
        world.flow(
            (2 * SECOND + (seed - 5) * 370 * MS) * flow as u64,
            rtt_ms * MS,
            config(ControllerKind::Delay, Policy::Fair),
        );
    }
    world.run(seconds / 2 * SECOND);
    let before: Vec<(u64, u64)> = world.flows.iter().map(|flow| (flow.sent, flow.lost)).collect();
    world.run(seconds * SECOND);
    let shares = (0..count).map(|flow| world.arrived(flow, seconds / 2 * SECOND, seconds * SECOND) / rate).collect();
    let sum = |of: fn(&sim::Flow) -> u64, was: fn(&(u64, u64)) -> u64| {
        world.flows.iter().zip(&before).map(|(flow, before)| of(flow) - was(before)).sum::<u64>() as f64
    };
    (shares, sum(|flow| flow.lost, |was| was.1) / sum(|flow| flow.sent, |was| was.0).max(1.0))
}

/// Missed: equal shares, since all find the same loss and give back the same part of what they have. Of two neither has less than a quarter of its half; of four and
/// eight one may still have a hundredth. When the next comes decides: of 54 pairs (seeds 5 to 13) one
/// had less than a fifth in 12, by this controller and by the one before the price of the queue; the means of 54 were 0.86, 0.68 and 0.49, and are 0.88, 0.64 and 0.44. How shares fall differs from seed to seed, so the mean of the index is asked for.
#[test]
fn flows_behind_one_policer_fill_it_and_do_not_flood_it() {
    for (count, least) in [(1, 1.0), (2, 0.85), (4, 0.6), (8, 0.4)] {
        let mut indices = Vec::new();
        for policer in [(mbit(20.0), 64_000.0), (mbit(100.0), 256_000.0)] {
            for (rtt_ms, seed) in [10, 50, 200].into_iter().flat_map(|rtt_ms| (5..8).map(move |seed| (rtt_ms, seed))) {
                let (shares, lost) = behind(count, policer, rtt_ms, seed);
                let (index, sum) = (jain(&shares), shares.iter().sum::<f64>());
                let named = format!("{count} behind {} B, {rtt_ms} ms, seed {seed}", policer.1);
                println!("{named}: Jain {index:.3}, together {sum:.3}, dropped {:.1} %", lost * 100.0);
                assert!(sum >= 0.95, "{named}: together {sum:.3}");
                assert!(lost <= 0.27, "{named}: {lost:.3} dropped");
                assert!(count != 2 || shares.iter().all(|&share| share >= 0.125), "{named}: {shares:.3?}");
                indices.push(index);
            }
        }
        let mean = indices.iter().sum::<f64>() / indices.len() as f64;
        println!("{count} flows: Jain {mean:.3} in the mean of {}", indices.len());
        assert!(mean >= least - 1e-9, "{count} flows: Jain {mean:.3} in the mean, asked {least}");
    }
}

#[test]
fn the_policer_that_was_found_is_said_and_none_where_there_is_none() {
    let said = |link: Link| {
        let mut world = sim::World::new(link, 10 * MS, 5);
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
            job.seen = Some(TrainSeen {
                rate: 200_000_000 + seed * 20_000_000,
                rtt_ns: rtt_us * 1000 + 200_000,
                jitter_ns: 0,
                is_uneven: false,
                is_even: true,
            });
            let out = World::new(seed, &path, &job).run(60 * SECOND);
            let dropped = out.dropped_packets as f64 / out.sender.packets.max(1) as f64;
            let seconds = out.landed_ns as f64 / 1e9;
            println!(
                "{mbit} Mbit/s, {rtt_us} us, bucket {bucket}, queue {queue_ms} ms, seed {seed}: {dropped:.3} dropped, {seconds:.2} s, queue {:.1} ms",
                out.queue_ms()
            );
            // 10 ms and four packets. The bucket makes the link seem to hold up to forty flows like this one, and their queue is kept at any round trip alike.
            assert!(
                out.queue_ms() < 10.0 + 4.0 * 12.0 / mbit as f64 && seconds < 22.0,
                "{mbit} Mbit/s, {rtt_us} us, seed {seed}: {seconds:.2} s, queue {:.1} ms",
                out.queue_ms()
            );
            worst = worst.max(dropped);
        }
    }
    assert!(worst < 0.08, "{worst:.3} dropped by our own doing");
}
