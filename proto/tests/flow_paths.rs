//! A flow on paths that change: blackouts, packet sizes, reordering, marks, narrow memory.
//!
//! For: what the random worlds of `flow_link` cannot measure: how soon, how large, how often.
//! In and out: one path each, and what must have happened on it.
//! Invariants: virtual time, fixed seeds.
//! Absent on purpose: the grid of distance and loss (`flow_link`).

#[path = "flow/link.rs"]
#[allow(dead_code, unreachable_pub)] // each test binary uses its own part
mod link;

use link::{Job, MS, Outcome, Path, SECOND, World};
use proto::flow::{FlowReceiver, FlowSender, Step};
use proto::rate::{ControllerKind, Policy, RateConfig};

const MBIT100: u64 = 100_000_000 / 8;

fn run(seed: u64, path: &Path, job: &Job) -> Outcome {
    World::new(seed, path, job).run(40 * SECOND)
}

/// First tenth of a second after `from_ns` with at least `share` of `rate` as payload.
fn back_at(out: &Outcome, from_ns: u64, rate: u64, share: f64) -> u64 {
    let first = (from_ns / (SECOND / 10)) as usize;
    let need = (rate as f64 / 10.0 * share) as u64;
    let tenth = (first..out.progress.len()).find(|&tenth| out.progress[tenth] >= need).expect("the flow comes back");
    tenth as u64 * SECOND / 10
}

#[test]
fn a_blackout_of_ten_seconds_is_survived_and_the_flow_is_back_within_two_round_trips() {
    for rtt_ms in [10, 100, 600] {
        let mut path = Path::new(MBIT100, rtt_ms * MS, 1_000);
        let dark = (3 * SECOND, 13 * SECOND);
        path.forth.blackouts.push(dark);
        path.back.blackouts.push(dark);
        let job = Job::fixed(MBIT100, 100_000_000, 4096);
        let out = run(rtt_ms, &path, &job);
        assert_eq!(out.sender.quiets, 1);
        let back = back_at(&out, dark.1, MBIT100, 0.5);
        assert!(back <= dark.1 + 2 * rtt_ms * MS + SECOND / 10, "{rtt_ms} ms: back only at {} ms", back / MS);
        // Silence costs words, not data: what was lost is what was on its way when the path died, and what patience allowed.
        let patience = (3 * rtt_ms * MS).max(200 * MS) + rtt_ms * MS;
        let lost = (MBIT100 as u128 * u128::from(patience) / u128::from(SECOND)) as u64 + 1_000_000;
        assert!(out.dropped_bytes < lost, "{rtt_ms} ms: {} bytes into the dark", out.dropped_bytes);
        assert!(out.sender.words < 10_500 / 2, "{} words", out.sender.words);
        assert!(out.receiver.already_bytes <= out.sender.copy_bytes);
    }
}

#[test]
fn after_ten_seconds_of_nothing_the_rate_is_back_within_four_round_trips() {
    for rtt_ms in [20, 60, 150] {
        for seed in 1..=3 {
            let mut path = Path::new(MBIT100, rtt_ms * MS, 0);
            path.forth.queue_bytes = MBIT100 / 1000 * 60;
            let from = 4 * SECOND + seed * 17 * MS;
            let dark = (from, from + 10 * SECOND);
            path.forth.blackouts.push(dark);
            path.back.blackouts.push(dark);
            let mut job = Job::fixed(MBIT100, 200_000_000, 4096);
            job.config.rate =
                RateConfig { controller: ControllerKind::Delay, policy: Policy::Fair, target: 0, ..job.config.rate };
            let out = run(seed, &path, &job);
            // The silence itself was once taken for a distance between reports: 1.3 s at 60 ms, several at 150 ms.
            let back = back_at(&out, dark.1, MBIT100, 0.95 * 0.96) - dark.1;
            assert!(back <= 4 * rtt_ms * MS + SECOND / 5, "{rtt_ms} ms: back only after {} ms", back / MS);
        }
    }
}

#[test]
fn a_way_back_that_loses_a_third_of_the_feedback_costs_nothing_but_feedback() {
    for (rtt_ms, loss_ppm) in [(20, 300_000), (200, 300_000), (200, 600_000)] {
        let mut path = Path::new(MBIT100, rtt_ms * MS, 20_000);
        path.back.loss_ppm = loss_ppm;
        let job = Job::fixed(MBIT100, MBIT100 * rtt_ms / 10, 4096);
        let out = run(7, &path, &job);
        let limit = MBIT100 as f64 * 0.96 * 0.98;
        let share = out.goodput(job.bytes) / limit;
        println!(
            "way back loses {} %: {share:.3} of the limit, {} asks of {} feedbacks",
            loss_ppm / 10_000,
            out.sender.asks,
            out.receiver.feedbacks
        );
        assert!(share > 0.93, "{share:.3}");
        assert!(out.receiver.already_bytes <= out.sender.copy_bytes, "a lost feedback makes nothing go twice");
        assert_eq!(out.sender.cuts, 0);
    }
}

#[test]
fn a_narrow_way_back_carries_the_feedback_of_a_wide_path() {
    let mut path = Path::new(10 * MBIT100, 50 * MS, 10_000);
    path.back.rate = 10 * MBIT100 / 100;
    let job = Job::fixed(10 * MBIT100, 300_000_000, 4096);
    let out = run(8, &path, &job);
    assert!(out.goodput(job.bytes) > 0.92 * 1.25e8 * 0.95, "{} B/s", out.goodput(job.bytes));
    println!("feedback takes {:.4} of the data", out.feedback_bytes as f64 / job.bytes as f64);
    assert!(out.feedback_bytes * 200 < job.bytes, "feedback below half a percent");
}

#[test]
fn packets_grow_to_what_the_path_takes_within_a_few_round_trips() {
    for (mtu, max, want) in
        [(1472, 1472, 1472), (8972, 65_507, 8972), (1392, 8972, 1392), (65_507, 65_507, 65_507), (9_999, 9_000, 9_000)]
    {
        let mut path = Path::new(10 * MBIT100, 40 * MS, 50_000);
        path.forth.mtu.push((0, mtu));
        let mut job = Job::fixed(10 * MBIT100, 125_000_000, 4096);
        job.config.packet_bytes = 1200;
        job.config.packet_bytes_max = max;
        let out = run(mtu as u64, &path, &job);
        assert_eq!(usize::from(out.sender.packet_bytes), want, "mtu {mtu}, up to {max}");
        assert_eq!(out.sender.holes, 0);
        assert!(out.receiver.already_bytes <= out.sender.copy_bytes);
    }
}

#[test]
fn a_length_that_the_system_refuses_is_not_tried_again_and_costs_no_data() {
    let mut path = Path::new(10 * MBIT100, 40 * MS, 0);
    path.local_mtu = 1472;
    let mut job = Job::fixed(10 * MBIT100, 50_000_000, 4096);
    job.config.packet_bytes = 1200;
    job.config.packet_bytes_max = 65_507;
    let out = run(3, &path, &job);
    assert_eq!(out.sender.packet_bytes, 1472);
    assert_eq!((out.sender.lost_packets, out.sender.repair_bytes), (0, 0), "lost probes are no lost data");
}

#[test]
fn a_path_that_begins_to_drop_long_packets_is_found_out_and_served_with_short_ones() {
    for loss_ppm in [0, 20_000] {
        let mut path = Path::new(MBIT100, 30 * MS, loss_ppm);
        path.forth.mtu = vec![(0, 8972), (2 * SECOND, 1400)];
        let mut job = Job::fixed(MBIT100, 100_000_000, 4096);
        job.config.packet_bytes = 1472;
        job.config.packet_bytes_max = 8972;
        let out = run(4, &path, &job);
        assert_eq!(out.sender.holes, 1);
        assert_eq!(out.sender.packet_bytes, 1392, "the best of the ladder below 1400");
        let back = back_at(&out, 2 * SECOND + SECOND / 10, MBIT100, 0.8);
        assert!(back < 6 * SECOND, "back only at {} ms", back / MS);
        assert!(out.receiver.already_bytes <= out.sender.copy_bytes);
    }
}

#[test]
fn loss_alone_is_never_taken_for_a_path_that_swallows_long_packets() {
    for seed in 0..5 {
        let mut path = Path::new(MBIT100, 30 * MS, 200_000);
        path.forth.bad = Some((500, 20_000));
        let mut job = Job::fixed(MBIT100, 40_000_000, 4096);
        job.config.packet_bytes_max = 8972;
        let out = run(seed, &path, &job);
        assert_eq!(out.sender.holes, 0);
        assert_eq!(out.sender.packet_bytes, 8972);
    }
}

#[test]
fn reordering_is_learned_and_then_nothing_is_repaired_needlessly() {
    for (jitter_ms, swap_ms) in [(5, 0), (0, 8), (20, 0), (0, 40)] {
        let mut path = Path::new(MBIT100, 60 * MS, 0);
        path.forth.jitter_ns = jitter_ms * MS;
        if swap_ms > 0 {
            path.forth.swap_ppm = 10_000;
            path.forth.swap_ns = swap_ms * MS;
        }
        let job = Job::fixed(MBIT100, 100_000_000, 4096);
        let out = run(9, &path, &job);
        println!(
            "late by up to {} ms: held back {} ms, {} late, {} of them called lost, {:.3} % redundant",
            jitter_ms + swap_ms,
            out.receiver.hold_ns / MS,
            out.receiver.late,
            out.receiver.late_lost,
            out.redundant(job.bytes) * 100.0
        );
        // The first disorder cannot be known; after that the measure holds.
        assert!(out.receiver.late_lost * 200 < out.receiver.late.max(2000), "{out:?}");
        assert!(out.redundant(job.bytes) < 0.01);
        assert!(out.receiver.hold_ns < 2 * (jitter_ms + swap_ms) * MS);
    }
}

#[test]
fn reordering_that_ended_is_forgotten() {
    // Swaps only while the path is young: the first tenth of the packets.
    let mut path = Path::new(MBIT100, 60 * MS, 0);
    path.forth.swap_ppm = 100;
    path.forth.swap_ns = 30 * MS;
    let mut world = World::new(1, &path, &Job::fixed(MBIT100, 500_000_000, 4096));
    while world.receiver.stats().late == 0 {
        world.turn(40 * SECOND);
    }
    world.forth_way().swap_ppm = 0;
    assert!(world.receiver.stats().hold_ns > 25 * MS);
    let then = world.now_ns;
    while world.receiver.stats().hold_ns > MS {
        world.turn(40 * SECOND);
        assert!(world.now_ns < then + 13 * SECOND, "still held back {} ms", world.receiver.stats().hold_ns / MS);
    }
    assert!(world.now_ns > then + 5 * SECOND, "not forgotten at once either");
}

#[test]
fn marks_reach_the_sender_as_bytes() {
    let mut path = Path::new(MBIT100, 20 * MS, 0);
    path.forth.mark_bytes = 0;
    let job = Job::fixed(MBIT100 * 2, 20_000_000, 4096);
    let out = run(1, &path, &job);
    assert!(out.receiver.marked_bytes > out.receiver.wire_bytes * 9 / 10, "a queue that is never empty marks all");
}

#[test]
fn a_rate_that_halves_and_doubles_loses_nothing_for_good() {
    let mut path = Path::new(MBIT100, 50 * MS, 5_000);
    path.forth.rates = vec![(2 * SECOND, MBIT100 / 2), (4 * SECOND, MBIT100)];
    path.forth.queue_bytes = 300_000;
    let job = Job::fixed(MBIT100, 60_000_000, 4096);
    let out = run(1, &path, &job);
    assert!(out.receiver.already_bytes <= out.sender.copy_bytes);
    let back = back_at(&out, 4 * SECOND, MBIT100, 0.9);
    assert!(back <= 4 * SECOND + 200 * MS);
}

#[test]
fn bytes_let_go_are_read_again_only_for_repairs() {
    let mut path = Path::new(MBIT100, 100 * MS, 20_000);
    path.forth.bad = None;
    let mut job = Job::fixed(MBIT100, 50_000_000, 4096);
    job.unit_bytes = 200_000;
    let kept = run(2, &path, &job);
    job.reload_ns = Some(5 * MS);
    let out = run(2, &path, &job);
    assert!(out.receiver.already_bytes <= out.sender.copy_bytes);
    assert!(
        out.landed_ns < kept.landed_ns + SECOND / 2,
        "reading again costs little: {} and {}",
        out.landed_ns,
        kept.landed_ns
    );
}

#[test]
fn a_small_grant_is_slower_and_never_wrong() {
    let path = Path::new(MBIT100, 100 * MS, 10_000);
    let mut job = Job::fixed(MBIT100, 10_000_000, 2);
    job.unit_bytes = 100_000;
    let small = run(3, &path, &job);
    job.config.units_open = 64;
    let large = run(3, &path, &job);
    assert!(small.landed_ns > 2 * large.landed_ns);
    assert!(small.receiver.already_bytes <= small.sender.copy_bytes);
}

#[test]
fn a_word_of_more_grant_that_was_lost_is_asked_for() {
    for seed in 0..20 {
        let mut path = Path::new(MBIT100, 40 * MS, 50_000);
        path.back.loss_ppm = 700_000;
        let mut job = Job::fixed(MBIT100, 3_000_000, 3);
        job.unit_bytes = 100_000;
        // Longer than the flow has anything to say of the data itself.
        job.land_ns = 300 * MS;
        let out = run(seed, &path, &job);
        assert!(
            out.landed_ns < 15 * SECOND,
            "ten grants of 300 ms each, and what asking costs: {} ms",
            out.landed_ns / MS
        );
        assert!(out.sender.words < 4000, "{} words", out.sender.words);
        assert!(out.receiver.already_bytes <= out.sender.copy_bytes);
    }
}

#[test]
fn bursts_of_a_long_path_are_no_longer_than_its_shallowest_queue_holds() {
    let rate = 155_000_000 / 8;
    for (queue_packets, packets_most) in [(64, 16.0), (10, 9.0), (5, 5.0)] {
        let mut path = Path::new(rate, 100 * MS, 0);
        path.forth.queue_bytes = queue_packets * 1500;
        let job = Job::fixed(rate * 9 / 10, 150_000_000, 4096);
        let out = run(queue_packets, &path, &job);
        let lost = out.sender.lost_packets as f64 / out.sender.packets as f64;
        let each = out.sender.packets as f64 / out.sender.bursts as f64;
        println!("queue of {queue_packets}: {lost:.5} lost, {each:.1} packets a burst");
        // Finding out costs the ends of some dozens of bursts, and again each time when longer ones are tried.
        assert!(lost < 0.006, "queue of {queue_packets}: {lost} lost");
        assert!((2.0..packets_most).contains(&each), "queue of {queue_packets}: {each} packets a burst");
    }
}

/// At 20 Mbit/s the rate makes two packets in a millisecond, and each wake-up costs what eight packets do.
#[test]
fn a_slow_rate_over_a_long_path_leaves_in_few_bursts() {
    for (mbit, rtt_ms, least) in [(20, 60, 4.5), (20, 300, 5.0), (100, 60, 6.0), (4, 60, 1.0)] {
        let rate = mbit * 125_000;
        let out = run(mbit, &Path::new(rate, rtt_ms * MS, 0), &Job::fixed(rate * 9 / 10, rate * 20, 4096));
        let each = out.sender.packets as f64 / out.sender.bursts as f64;
        println!("{mbit} Mbit/s, {rtt_ms} ms: {each:.1} packets a burst");
        assert!(each >= least && each < 10.0, "{mbit} Mbit/s, {rtt_ms} ms: {each} packets a burst");
    }
    // A short path: no burst is longer than before.
    let rate = 20 * 125_000;
    let out = run(1, &Path::new(rate, 10 * MS, 0), &Job::fixed(rate * 9 / 10, rate * 20, 4096));
    assert!(out.sender.packets <= out.sender.bursts * 2, "{:?}", out.sender);
}

/// On a busy machine every wake-up is late; what was missed is caught up, and the controller hears nothing of a limit.
#[test]
fn a_loop_that_comes_late_sends_at_the_rate_all_the_same() {
    for (rate, late_ns) in [(250_000, 5 * MS), (250_000, 6 * MS), (5_000_000, 3 * MS), (20_000_000, 2 * MS)] {
        let mut config = Job::fixed(rate, 1 << 20, 64).config;
        config.unit_bytes_max = 1 << 20;
        let (mut sender, mut receiver) = (FlowSender::new(0, config.clone()), FlowReceiver::new(0, config));
        let (mut now, mut wire, mut done) = (0, 0_u64, Vec::new());
        while now < 10 * SECOND {
            while sender.room() > 0 {
                sender.add(1 << 20);
            }
            match sender.step(now, 65_000) {
                Step::Burst(burst) => {
                    let payload = u32::from(burst.payload);
                    for packet in 0..burst.packets() {
                        let offset = packet * payload;
                        let bytes = payload.min(burst.bytes - offset);
                        let number = burst.first + u64::from(packet);
                        receiver.on_data(now, number, burst.unit, burst.offset + offset, bytes, false).unwrap();
                        wire += u64::from(bytes) + 60;
                        if burst.offset + offset + bytes == 1 << 20 {
                            done.push(burst.unit);
                        }
                    }
                }
                Step::Control { number, body } => receiver.on_control(now, number, &body).unwrap(),
                Step::Reload { .. } => unreachable!("nothing was unloaded"),
                Step::Wait { until_ns } => now = until_ns.min(now + 20 * MS) + late_ns,
            }
            for unit in done.drain(..) {
                receiver.done(unit);
            }
            while let Some((_, feedback)) = receiver.feedback(now) {
                sender.on_feedback(now, &feedback).unwrap();
            }
            while sender.next_fact().is_some() {}
        }
        let share = wire as f64 / (rate as f64 * 10.0);
        assert!((0.97..1.03).contains(&share), "{rate} B/s, {} ms late: {share:.3}", late_ns / MS);
    }
}

/// A short path, far faster than the user's bound, whose receiver takes packets in lumps: the controller's trains show it nothing and it would like more of them.
#[test]
fn nothing_goes_beside_the_bound_of_the_user() {
    for (seed, controller) in [ControllerKind::Delay, ControllerKind::Bbr, ControllerKind::Cubic, ControllerKind::Fixed]
        .into_iter()
        .enumerate()
    {
        for (target, refuse_ppm) in [(50_000_000, 0), (50_000_000, 100_000), (1_000_000, 0)] {
            let mut path = Path::new(0, 60_000, 0);
            path.forth.coarse_ns = 50_000;
            let bytes = 2 * target;
            let mut job = Job::fixed(target, bytes, 64);
            job.config.rate = RateConfig { controller, policy: Policy::Fair, ..job.config.rate };
            job.refuse_ppm = refuse_ppm;
            let out = run(seed as u64, &path, &job);
            let wire = bytes + out.sender.packets * 60;
            let most = target as f64 * out.landed_ns as f64 / 1e9;
            let share = wire as f64 / most;
            println!(
                "{controller:?} at most {target} B/s, {refuse_ppm} ppm refused: {share:.4} of it, {:.0} bytes above",
                wire as f64 - most
            );
            // The newest burst, of two packets, is paid for after it left; a train at the start has long been.
            assert!(wire as f64 <= most + 3_000.0, "{controller:?} at most {target} B/s: {share:.4} of it");
            let ours = matches!(controller, ControllerKind::Delay | ControllerKind::Fixed);
            assert!(share > 0.95 || !ours, "{controller:?} at most {target} B/s: only {share:.4} of it");
        }
    }
}
