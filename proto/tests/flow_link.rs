//! Both ends of a flow over virtual paths of every kind.
//!
//! For: what issue 3 promises of the transport: whole, never needlessly twice, near the limit at any distance and loss.
//! In and out: paths and jobs; numbers that are compared with the promise, some printed as a table.
//! Invariants: virtual time, one seed each: `SEED=n COUNT=m` runs other seeds and more of them.
//! Absent on purpose: the controllers' own behaviour (`tests/rate`), competing flows.

#[path = "flow/link.rs"]
#[allow(dead_code, unreachable_pub)] // each test binary uses its own part
mod link;

use std::sync::atomic::{AtomicU64, Ordering};

use proto::rate::{ControllerKind, Policy};

use link::{Job, MS, Outcome, Path, Rng, SECOND, World};

/// What a world's flow has: `fixed` twice as often as any other.
const CONTROLLERS: [ControllerKind; 5] =
    [ControllerKind::Fixed, ControllerKind::Fixed, ControllerKind::Delay, ControllerKind::Bbr, ControllerKind::Cubic];

fn knob(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Share of a full packet on the wire that is payload.
const PAYLOAD_SHARE: f64 = 1440.0 / 1500.0;

/// A job of so many round trips at the link's rate, the user's word being just that rate.
fn long_job(rate: u64, rtt_ns: u64, loss_ppm: u64, round_trips: u64) -> (Path, Job) {
    let path = Path::new(rate, rtt_ns, loss_ppm);
    let goodput = rate as f64 * PAYLOAD_SHARE * (1.0 - loss_ppm as f64 / 1e6);
    let bytes = (goodput * rtt_ns as f64 / 1e9 * round_trips as f64) as u64;
    let mut job = Job::fixed(rate, bytes, 4096);
    job.unit_bytes = (bytes / 1000).clamp(20_000, 1 << 20) as u32;
    (path, job)
}

fn limit(rate: u64, loss_ppm: u64) -> f64 {
    rate as f64 * PAYLOAD_SHARE * (1.0 - loss_ppm as f64 / 1e6)
}

fn run(seed: u64, path: &Path, job: &Job) -> Outcome {
    let rtt_ns = path.forth.delay_ns + path.back.delay_ns;
    World::new(seed, path, job).run(20 * SECOND + 20 * rtt_ns)
}

#[test]
fn distance_and_loss_cost_no_more_than_the_loss_itself() {
    println!(
        "goodput / limit, tail in round trips, redundant %, by round trip (ms) and loss (%); 155 Mbit/s, 100 round trips"
    );
    let rate = 155_000_000 / 8;
    for rtt_ms in [10, 50, 200, 1000] {
        let mut line = format!("{rtt_ms:>5}");
        for loss_ppm in [0, 1_000, 10_000, 50_000, 100_000, 300_000] {
            if rtt_ms == 1000 && ![0, 100_000].contains(&loss_ppm) && knob("COUNT", 0) == 0 {
                continue; // a million packets each
            }
            let (path, job) = long_job(rate, rtt_ms * MS, loss_ppm, 100);
            let out = run(knob("SEED", 1) + rtt_ms, &path, &job);
            let share = out.goodput(job.bytes) / limit(rate, loss_ppm);
            let tail = out.tail_ns as f64 / (rtt_ms * MS) as f64;
            let redundant = out.redundant(job.bytes) * 100.0;
            line += &format!("  {:>4}: {share:.3} {tail:.2} {redundant:.2}", loss_ppm as f64 / 1e4);
            let least = if loss_ppm == 300_000 { 0.85 } else { 0.95 };
            assert!(share >= least, "{rtt_ms} ms, {loss_ppm} ppm: {share:.3} of the limit; {out:?}");
            assert!(redundant < 1.0, "{rtt_ms} ms, {loss_ppm} ppm: {redundant:.2} % redundant");
            if loss_ppm <= 100_000 {
                assert!(tail <= 3.0, "{rtt_ms} ms, {loss_ppm} ppm: tail of {tail:.2} round trips");
            }
        }
        println!("{line}");
    }
}

/// A path and a job of some thousand packets, with any troubles.
fn any_world(seed: u64) -> (Path, Job) {
    let mut rng = Rng(seed.wrapping_mul(0x1_0001));
    let rng = &mut rng;
    let packets = rng.log(1, 8_000);
    let rate = rng.log(64_000 / 8, 400_000_000_000 / 8);
    let rtt_ns = if rng.chance(50_000) { 0 } else { rng.log(10_000, 2 * SECOND) };
    let mut path = Path::new(rate, rtt_ns, 0);
    path.back.rate = rng.log(rate / 100 + 8_000, rate + 8_000);
    for way in [&mut path.forth, &mut path.back] {
        if rng.chance(600_000) {
            way.loss_ppm = rng.log(100, 300_000);
        }
        if rng.chance(250_000) {
            way.bad = Some((rng.log(100, 20_000), rng.log(20_000, 500_000)));
        }
        if rng.chance(250_000) {
            way.duplicate_ppm = rng.log(100, 200_000);
        }
        if rng.chance(250_000) {
            way.jitter_ns = rng.log(1_000, way.delay_ns + 2_000);
        }
        if rng.chance(250_000) {
            way.swap_ppm = rng.log(100, 100_000);
            way.swap_ns = rng.log(1_000, 50 * MS);
        }
        if rng.chance(200_000) {
            way.queue_bytes = rng.log(10_000, 10_000_000);
        }
        if rng.chance(100_000) {
            let from = rng.below(5 * SECOND);
            way.blackouts.push((from, from + rng.log(MS, 10 * SECOND)));
        }
        if rng.chance(100_000) {
            way.mark_bytes = rng.log(10_000, 1_000_000);
        }
        if rng.chance(100_000) {
            way.rates.push((rng.below(2 * SECOND), rng.log(way.rate / 4 + 1000, way.rate * 4)));
        }
    }
    let bytes = packets * 1400 + rng.below(1400);
    let share = 500_000 + rng.below(600_000);
    let mut job = Job::fixed((rate as u128 * u128::from(share) / 1_000_000) as u64, bytes, rng.log(4, 2000) as u32);
    job.unit_bytes = rng.log(100, 1 << 20).min(bytes.max(2000)) as u32;
    job.config.rate.controller = CONTROLLERS[rng.below(5) as usize];
    if job.config.rate.controller != ControllerKind::Fixed {
        job.config.rate.policy = Policy::Fair;
        job.config.rate.target = if rng.chance(500_000) { 0 } else { rate };
    }
    job.config.packet_bytes = [548, 1200, 1472, 8972][rng.below(4) as usize];
    job.config.packet_bytes_max = job.config.packet_bytes.max([1200, 1472, 8972, 65_507][rng.below(4) as usize]);
    job.burst_bytes_max = [1, 1500, 20_000, 65_000][rng.below(4) as usize];
    if rng.chance(200_000) {
        path.forth.mtu.push((0, rng.log(u64::from(job.config.packet_bytes), 65_507) as usize));
    }
    if rng.chance(100_000) {
        path.forth.mtu.push((rng.below(2 * SECOND), 1200));
    }
    if rng.chance(200_000) {
        path.local_mtu = rng.log(u64::from(job.config.packet_bytes), 65_507) as usize;
    }
    if rng.chance(250_000) {
        job.reload_ns = Some(rng.log(1_000, 200 * MS));
    }
    if rng.chance(200_000) {
        job.refuse_ppm = rng.log(1_000, 500_000);
    }
    (path, job)
}

#[test]
fn whatever_the_path_does_everything_arrives_once_and_nothing_stays_behind() {
    let first = knob("SEED", 1);
    let next = AtomicU64::new(first);
    let end = first + knob("COUNT", 6000);
    // One thread per core: each world is a run of its own.
    let failed: Vec<u64> = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let takes = || std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed)).take_while(|seed| *seed < end);
        let all: Vec<_> = (0..threads)
            .map(|_| scope.spawn(move || takes().filter(|seed| !is_well(*seed)).collect::<Vec<_>>()))
            .collect();
        all.into_iter().flat_map(|it| it.join().expect("worlds are caught")).collect()
    });
    assert!(failed.is_empty(), "each by SEED=n COUNT=1: {failed:?}");
}

fn is_well(seed: u64) -> bool {
    let (path, job) = any_world(seed);
    let told = std::panic::catch_unwind(|| {
        let out = run(seed, &path, &job);
        let disorder = [&path.forth, &path.back].iter().any(|way| way.jitter_ns > 0 || way.swap_ppm > 0);
        if !disorder && out.sender.cuts == 0 {
            // Without reordering nothing but a copy at the end is ever sent needlessly.
            assert!(out.receiver.already_bytes <= out.sender.copy_bytes, "needless: {out:?}");
            assert!(out.sender.repair_bytes <= out.dropped_bytes, "more repairs than losses: {out:?}");
        }
        assert!(out.sender.copy_bytes * 100 <= job.bytes, "copies above 1 %: {out:?}");
    });
    if told.is_err() {
        eprintln!("SEED={seed} COUNT=1: {path:?} {job:?}");
    }
    told.is_ok()
}

#[test]
fn with_our_own_controller_the_whole_chain_is_near_the_limit_too() {
    println!(
        "goodput / limit with the controller `delay`, by round trip (ms) and loss (%); 155 Mbit/s, 100 round trips"
    );
    let rate = 155_000_000 / 8;
    for rtt_ms in [10, 50, 200] {
        let mut line = format!("{rtt_ms:>5}");
        for loss_ppm in [0, 1_000, 10_000, 50_000, 100_000] {
            let (mut path, mut job) = long_job(rate, rtt_ms * MS, loss_ppm, 100);
            path.forth.queue_bytes = rate * rtt_ms / 1000;
            job.config.rate.controller = ControllerKind::Delay;
            job.config.rate.policy = Policy::Fair;
            job.config.rate.target = 0;
            let out = run(knob("SEED", 1) + rtt_ms, &path, &job);
            let share = out.goodput(job.bytes) / limit(rate, loss_ppm);
            let needless = out.receiver.already_bytes.saturating_sub(out.sender.copy_bytes);
            line += &format!("  {:>4}: {share:.3} ({} ms queued)", loss_ppm as f64 / 1e4, out.queue_ns_max / MS);
            assert_eq!(needless, 0, "nothing goes twice, whatever the rate does");
            // The controller's own promises stand in `tests/rate`; here only that both work together.
            assert!(share > 0.7, "{rtt_ms} ms, {loss_ppm} ppm: {share:.3}; {out:?}");
        }
        println!("{line}");
    }
}
