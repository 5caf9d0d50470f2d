//! Tests of link.rs, in virtual time and from seeds.
//!
//! For: rate, queue, delay and the loss models. In and out: packets at made-up times → their fates.
//! Invariants: every number that is asserted follows from the model on paper, not from a run.
//! Absent on purpose: clocks and kernels.

use super::*;

const MS: u64 = 1_000_000;

fn share(ppb: u64) -> Share {
    Share::from_ppb(ppb)
}

fn arrives(fate: Fate) -> Arrival {
    match fate {
        Fate::Arrives(arrival) => arrival,
        Fate::Lost(cause) => panic!("lost: {cause:?}"),
    }
}

fn wire(rate_bps: u64, delay_ns: u64) -> Wire {
    Wire { rate_bps, delay_ns, ..Wire::default() }
}

#[test]
fn packets_leave_one_after_the_other_at_the_rate_to_the_nanosecond() {
    // 1500 bytes at 7 Mbit/s take 1714285.714... ns: rounding each would lose 0.7 ns of each.
    let wire = Wire { queue: Depth::Bytes(u64::MAX / 16), ..wire(7_000_000, 30 * MS) };
    let mut link = Link::new(wire, 60 * MS, 1);
    let mut last = 0;
    for _ in 0..7000 {
        let arrival = arrives(link.on_packet(0, 1500));
        assert_eq!(arrival.hold_ns, 30 * MS);
        last = arrival.leaves_ns;
    }
    assert_eq!(last, 12_000 * MS);
}

#[test]
fn a_link_without_rate_only_delays() {
    let mut link = Link::new(wire(0, 5 * MS), 10 * MS, 1);
    for _ in 0..1000 {
        let arrival = arrives(link.on_packet(77, 65_535));
        assert_eq!((arrival.leaves_ns, arrival.hold_ns), (77, 5 * MS));
    }
}

#[test]
fn the_queue_holds_what_it_says_and_drops_the_rest_at_its_tail() {
    for (queue, fits) in [
        (Depth::Bytes(15_000), 10),
        (Depth::Bytes(1), 1),
        // 100 Mbit/s x 40 ms are 500 kB; 333 packets of 1500 are 499.5 kB.
        (Depth::Time(40 * MS), 333),
        (Depth::BdpMilli(500), 333),
        // Below the least: 100 kB.
        (Depth::Time(1), 66),
    ] {
        let mut link = Link::new(Wire { queue, ..wire(100_000_000, 40 * MS) }, 80 * MS, 1);
        let got = (0..1000).filter(|_| matches!(link.on_packet(0, 1500), Fate::Arrives(_))).count();
        assert_eq!(got, fits, "{queue:?}");
        // 120 us later one packet has left, and one fits.
        if fits > 1 {
            arrives(link.on_packet(120_000, 1500));
            assert_eq!(link.on_packet(120_000, 1500), Fate::Lost(Cause::Queue));
        }
    }
}

#[test]
fn a_policer_passes_its_bucket_and_then_its_rate_and_delays_nothing() {
    // 12 Mbit/s are a packet of 1500 bytes each millisecond; the bucket holds ten.
    let policed = Wire { police_bps: 12_000_000, police_bytes: 15_000, ..wire(0, MS) };
    let mut link = Link::new(policed, 2 * MS, 1);
    let passed =
        |link: &mut Link, at| (0..1000).filter(|_| matches!(link.on_packet(at, 1500), Fate::Arrives(_))).count();
    assert_eq!(passed(&mut link, 0), 10);
    assert_eq!(link.on_packet(MS - 1, 1500), Fate::Lost(Cause::Police));
    assert_eq!(arrives(link.on_packet(MS, 1500)).leaves_ns, MS, "nothing waits");
    assert_eq!(passed(&mut link, 4 * MS), 3);
    assert_eq!(passed(&mut link, 1000 * MS), 10, "a bucket holds no more after a long rest");
    // Ten seconds of twice the rate: half of it, and the bucket, to the packet.
    let mut link = Link::new(policed, 2 * MS, 1);
    let steady = (0..20_000).filter(|n| matches!(link.on_packet(n * MS / 2, 1500), Fate::Arrives(_))).count();
    assert_eq!(steady, 10_009);
    // A bucket smaller than a packet still passes one at a time.
    let mut link = Link::new(Wire { police_bytes: 1, ..policed }, 2 * MS, 1);
    assert_eq!((passed(&mut link, 0), passed(&mut link, MS)), (1, 1));
}

#[test]
fn framing_takes_its_share_of_the_rate() {
    let mut link = Link::new(Wire { framing_bytes: 38, ..wire(1_000_000_000, 0) }, 0, 1);
    assert_eq!(arrives(link.on_packet(0, 1500)).leaves_ns, 1538 * 8);
}

#[test]
fn random_loss_is_the_share_it_says_and_uses_the_rate() {
    let loss = Loss::Random(share(50_000_000));
    let mut link = Link::new(Wire { loss, ..wire(1_000_000_000, 0) }, 0, 9);
    let packets = 1_000_000_u32;
    let mut lost = 0_u32;
    let mut now = 0;
    let mut last = 0;
    for _ in 0..packets {
        match link.on_packet(now, 1250) {
            Fate::Lost(Cause::Wire) => lost += 1,
            other => last = arrives(other).leaves_ns,
        }
        now += 10_000;
    }
    let sigma = (f64::from(packets) * 0.05 * 0.95).sqrt();
    assert!((f64::from(lost) - 50_000.0).abs() < 3.0 * sigma, "{lost}");
    assert!(last <= 10_000 * u64::from(packets) && last > 10_000 * u64::from(packets) - 1_000_000);
}

#[test]
fn bursts_have_the_mean_loss_and_the_mean_length_they_say() {
    // Mean burst 8: leave with 1/8. Mean loss 2 %: worse = 1/8 x 0.02 / 0.98.
    let loss = Loss::Bursts {
        worse: share(2_551_020),
        better: share(125_000_000),
        good: Share::NEVER,
        bad: share(1_000_000_000),
    };
    assert!((loss.mean() - 0.02).abs() < 1e-6);
    let mut link = Link::new(Wire { loss, ..Wire::default() }, 0, 5);
    let packets = 4_000_000_u32;
    let (mut lost, mut bursts, mut before) = (0_u32, 0_u32, false);
    for _ in 0..packets {
        let is_lost = matches!(link.on_packet(0, 100), Fate::Lost(_));
        lost += u32::from(is_lost);
        bursts += u32::from(is_lost && !before);
        before = is_lost;
    }
    let share = f64::from(lost) / f64::from(packets);
    let length = f64::from(lost) / f64::from(bursts);
    // 10^4 bursts of 8 ± 8: the mean length is within 3 x 8 / 100, the share within 3 x sqrt(2) x 1 %.
    assert!((share - 0.02).abs() < 0.02 * 0.045, "{share}");
    assert!((length - 8.0).abs() < 0.24, "{length}");
}

#[test]
fn loss_in_both_states_of_gilbert_and_elliott_adds_up() {
    let loss = Loss::Bursts {
        worse: share(1_000_000),
        better: share(9_000_000),
        good: share(1_000_000),
        bad: share(500_000_000),
    };
    // In the bad state a tenth of the time: 0.1 x 0.5 + 0.9 x 0.001.
    assert!((loss.mean() - 0.0509).abs() < 1e-9);
    let mut link = Link::new(Wire { loss, ..Wire::default() }, 0, 6);
    let lost = (0..4_000_000).filter(|_| matches!(link.on_packet(0, 100), Fate::Lost(_))).count();
    assert!((185_000..222_000).contains(&lost), "{lost} of 203600, a bad stretch is 111 packets long");
}

#[test]
fn jitter_stays_in_its_width_and_keeps_the_order_unless_told_otherwise() {
    for (bell, overtakes) in [(false, false), (false, true), (true, false), (true, true)] {
        let jitter = Jitter { ns: 2 * MS, bell, overtakes };
        let mut link = Link::new(Wire { jitter, ..wire(0, 20 * MS) }, 40 * MS, 2);
        let mut dues = Vec::new();
        for number in 0..20_000_u64 {
            let now = number * 100_000;
            let arrival = arrives(link.on_packet(now, 100));
            let width = if bell { 7 * MS } else { 2 * MS };
            assert!(arrival.hold_ns.abs_diff(20 * MS) <= width, "{}", arrival.hold_ns);
            dues.push((now + arrival.hold_ns, arrival.hold_ns));
        }
        let passed = dues.windows(2).any(|pair| pair[1].0 < pair[0].0);
        assert_eq!(passed, overtakes);
        if overtakes {
            let mean = dues.iter().map(|due| due.1).sum::<u64>() / 20_000;
            assert!(mean.abs_diff(20 * MS) < MS / 20, "{mean}");
        }
    }
}

#[test]
fn shares_of_late_harmed_and_double_packets_are_those_asked_for() {
    let wire = Wire {
        reorder: share(20_000_000),
        reorder_ns: 3 * MS,
        duplicate: share(10_000_000),
        corrupt: share(30_000_000),
        ..wire(0, MS)
    };
    let mut link = Link::new(wire, 2 * MS, 8);
    let (mut late, mut twice, mut harmed) = (0_u32, 0_u32, 0_u32);
    for number in 0..1_000_000_u64 {
        let arrival = arrives(link.on_packet(number * 1000, 100));
        assert_eq!(arrival.hold_ns, if arrival.late { 4 * MS } else { MS });
        late += u32::from(arrival.late);
        twice += u32::from(arrival.twice);
        harmed += u32::from(arrival.corrupt);
    }
    for (got, share) in [(late, 0.02), (twice, 0.01), (harmed, 0.03)] {
        let mean = share * 1e6;
        let sigma = f64::sqrt(mean * (1.0 - share));
        assert!((f64::from(got) - mean).abs() < 3.5 * sigma, "{got} of {mean}");
    }
}

#[test]
fn marks_come_when_the_wait_is_longer_than_the_threshold() {
    let wire = Wire { mark_ns: 5 * MS, queue: Depth::Bytes(10_000_000), ..wire(100_000_000, 0) };
    let mut link = Link::new(wire, 0, 1);
    // 1250 bytes take 100 us: the 52nd waits 5.1 ms.
    let marks: Vec<bool> = (0..60).map(|_| arrives(link.on_packet(0, 1250)).marked).collect();
    assert_eq!(marks.iter().position(|marked| *marked), Some(51));
    assert!(marks[51..].iter().all(|marked| *marked));
}

#[test]
fn a_link_that_is_down_or_too_narrow_says_why() {
    let mut link = Link::new(Wire { up: false, ..Wire::default() }, 0, 1);
    assert_eq!(link.on_packet(0, 100), Fate::Lost(Cause::Down));
    let mut link = Link::new(Wire { black_hole_above: 1400, ..Wire::default() }, 0, 1);
    arrives(link.on_packet(0, 1400));
    assert_eq!(link.on_packet(0, 1401), Fate::Lost(Cause::BlackHole));
}

#[test]
fn half_the_rate_doubles_the_wait_of_what_still_queues() {
    let before = Wire { queue: Depth::Bytes(1 << 30), ..wire(100_000_000, 10 * MS) };
    let mut link = Link::new(before, 20 * MS, 1);
    let arrivals: Vec<Arrival> = (0..100).map(|_| arrives(link.on_packet(0, 1250))).collect();
    // At 5 ms half of the 10 ms of queue is gone.
    let shift = link.set(5 * MS, Wire { rate_bps: 50_000_000, delay_ns: 30 * MS, ..before }, 60 * MS);
    assert_eq!(link.queued_bytes(5 * MS), 62_500);
    let moved: Vec<(u64, u64)> = arrivals.iter().map(|one| shift.apply(one.leaves_ns, one.hold_ns)).collect();
    assert_eq!(moved[49], (5 * MS, 10 * MS), "what has left is on its way");
    assert_eq!(moved[50], (5 * MS + 200_000, 30 * MS));
    assert_eq!(moved[99], (15 * MS, 30 * MS));
    assert_eq!(arrives(link.on_packet(5 * MS, 1250)).leaves_ns, 15 * MS + 200_000);
}

#[test]
fn a_link_that_goes_down_empties_its_queue() {
    let before = wire(100_000_000, 10 * MS);
    let mut link = Link::new(before, 20 * MS, 1);
    for _ in 0..50 {
        arrives(link.on_packet(0, 1250));
    }
    let shift = link.set(MS, Wire { up: false, ..before }, 20 * MS);
    assert!(shift.cleared);
    assert_eq!(link.queued_bytes(MS), 0);
    link.set(2 * MS, before, 20 * MS);
    assert_eq!(arrives(link.on_packet(2 * MS, 1250)).leaves_ns, 2 * MS + 100_000);
}

#[test]
fn the_same_seed_tells_the_same_story() {
    let wire = Wire {
        loss: Loss::Random(share(100_000_000)),
        jitter: Jitter { ns: MS, ..Jitter::default() },
        ..wire(1 << 30, MS)
    };
    let story = |seed| {
        let mut link = Link::new(wire, 2 * MS, seed);
        (0..1000).map(|number| link.on_packet(number * 5000, 1000)).collect::<Vec<Fate>>()
    };
    assert_eq!(story(1), story(1));
    assert_ne!(story(1), story(2));
}
