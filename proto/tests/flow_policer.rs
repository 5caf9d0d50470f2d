//! A policer drops what is above its rate and keeps no queue: nothing but loss tells of it.
//!
//! For: links that providers police (tc-police(8), RFC 2697), and queues so short that no delay is seen.
//! In and out: rates, buckets, round trips, random loss beside them; what was sent beside what was asked, and how fast it came. `POLICERS=path` runs
//! the whole grid and writes a line per cell there (`make policers`); without it a part of the grid runs.
//! Invariants: virtual time, one seed each; a line of ten times the policed rate, at least 1 Gbit/s, is before the policer.
//! Absent on purpose: other flows behind the same policer.

#[path = "flow/link.rs"]
#[allow(dead_code, unreachable_pub)] // each test binary uses its own part
mod link;

use std::fmt::Write as _;

use link::{Job, MS, Outcome, Path, SECOND, World};
use proto::rate::{ControllerKind, Policy};

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
