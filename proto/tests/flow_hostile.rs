//! The two machines against peers that lie, and against callers in any order.
//!
//! For: feedback about what was never sent, data beyond any grant, numbers out of this world, any list of operations.
//! In and out: bodies and packets as an enemy behind a true seal would make them; breaches by name, or nothing but a counter.
//! Invariants: no panic, no memory or time beyond the grant, and an honest flow goes on after a replay.
//! Absent on purpose: seals and keys (engine).

use proptest::prelude::*;
use proto::error::Breach;
use proto::flow::{Burst, Fact, FlowConfig, FlowReceiver, FlowSender, Placed, Step};
use proto::packet::{BODY_OVERHEAD, Control, Feedback, HEAD_BYTES, Head, Kind, RUNS_BYTES_MAX, Runs, expand};
use proto::rate::{ControllerKind, Policy, RateConfig};

fn config() -> FlowConfig {
    FlowConfig {
        packet_bytes: 1200,
        packet_bytes_max: 1472,
        unit_bytes_max: 100_000,
        rate: RateConfig {
            controller: ControllerKind::Fixed,
            policy: Policy::Fixed,
            target: 1_000_000_000,
            min: 0,
            packet_bytes: 1228,
        },
        units_open: 8,
        units_most: 8,
    }
}

fn feedback(number: u64, from: u64, seen: u64, runs: &[u64]) -> Feedback {
    let mut all = Runs::new();
    for (index, &count) in runs.iter().enumerate() {
        assert!(all.push(count, index % 2 == 0, RUNS_BYTES_MAX));
    }
    Feedback {
        number,
        from,
        seen,
        newest_at_ns: number * 1000,
        hold_ns: 0,
        delivered_bytes: number * 1000,
        delivered_packets: number,
        marked_bytes: 0,
        duplicates: 0,
        granted: 8,
        cut: false,
        runs: all,
    }
}

/// A sender with 80 data packets of one unit on their way, numbers from 0.
fn sending() -> FlowSender {
    let mut sender = FlowSender::new(0, config());
    sender.add(80 * 1168);
    let mut now_ns = 0;
    let mut sent = 0;
    while sent < 80 {
        match sender.step(now_ns, 65_000) {
            Step::Burst(burst) => sent += burst.packets(),
            Step::Wait { until_ns } => now_ns = until_ns,
            step => panic!("{step:?}"),
        }
    }
    sender
}

#[test]
fn heads_come_back_and_other_kinds_are_none() {
    for kind in [Kind::Data, Kind::Control, Kind::Feedback] {
        let head = Head { kind, tag: 0xAB_CDEF, low: 0x1234_5678 };
        assert_eq!(Head::decode(&head.encode()), Ok(head));
    }
    let head = Head { kind: Kind::Data, tag: 0x00_0201, low: 4 };
    assert_eq!(head.encode(), [b'D', 1, 2, 0, 4, 0, 0, 0]);
    for first in (0..=255).filter(|byte| !b"DCF".contains(byte)) {
        assert_eq!(Head::decode(&[first; HEAD_BYTES]), Err(Breach::PacketKind));
    }
}

#[test]
fn coverage_of_what_was_never_sent_is_a_breach_and_changes_nothing() {
    let mut sender = sending();
    assert_eq!(sender.on_feedback(1, &feedback(1, 0, 81, &[80])), Err(Breach::CoverageUnsent));
    assert_eq!(sender.on_feedback(1, &feedback(1, 0, 10, &[11])), Err(Breach::CoverageUnsent));
    assert_eq!(sender.on_feedback(1, &feedback(1, 1 << 61, 1 << 61, &[])), Err(Breach::CoverageUnsent));
    assert_eq!((sender.stats().feedbacks, sender.stats().units), (0, 1));
    assert_eq!(sender.on_feedback(1, &feedback(1, 0, 80, &[80])), Ok(()));
    assert_eq!(sender.next_fact(), Some(Fact::Sent { unit: 0 }));
    assert_eq!(sender.next_fact(), Some(Fact::Whole { unit: 0 }));
}

#[test]
fn a_later_feedback_takes_nothing_back_and_an_earlier_one_does_no_harm() {
    let mut sender = sending();
    sender.on_feedback(1, &feedback(5, 0, 50, &[40, 5])).expect("honest");
    let lost = sender.stats().lost_packets;
    assert_eq!(lost, 5);
    for (number, seen, delivered) in [(6, 49, 6000), (6, 50, 4000)] {
        let liar = Feedback { delivered_bytes: delivered, ..feedback(number, 0, seen, &[40]) };
        assert_eq!(sender.on_feedback(2, &liar), Err(Breach::CoverageBackward));
    }
    let liar = Feedback { granted: 7, ..feedback(6, 0, 50, &[]) };
    assert_eq!(sender.on_feedback(2, &liar), Err(Breach::CoverageBackward));
    // Replayed, late, and with another word about numbers that are resolved: each number is resolved once.
    for old in [feedback(5, 0, 50, &[40, 5]), feedback(4, 0, 45, &[45]), feedback(2, 0, 10, &[0, 10])] {
        sender.on_feedback(3, &old).expect("only late");
    }
    assert_eq!((sender.stats().lost_packets, sender.stats().feedbacks), (lost, 1));
}

#[test]
fn coverage_that_does_not_join_is_asked_for_and_not_taken() {
    let mut sender = sending();
    sender.on_feedback(1000, &feedback(3, 20, 80, &[60])).expect("honest");
    assert_eq!(sender.stats().units, 1);
    assert!(matches!(sender.step(2000, 65_000), Step::Control { body: Control::Ask { from: 0 }, .. }));
    assert!(
        !matches!(sender.step(3000, 65_000), Step::Control { body: Control::Ask { .. }, .. }),
        "asked once a round trip"
    );
    sender.on_feedback(4000, &feedback(4, 0, 80, &[80])).expect("honest");
    assert_eq!(sender.stats().units, 0);
}

#[test]
fn what_the_receiver_cannot_know_any_more_is_sent_again() {
    let mut sender = sending();
    let cut = Feedback { cut: true, ..feedback(3, 20, 80, &[60]) };
    sender.on_feedback(1000, &cut).expect("honest");
    let Step::Burst(Burst { unit: 0, offset: 0, bytes, .. }) = sender.step(1_000_000, 65_000) else {
        panic!("the first twenty packets go again");
    };
    assert_eq!((bytes, sender.stats().cuts), (20 * 1168, 1));
}

#[test]
fn no_timer_sends_data_again() {
    let mut sender = sending();
    let mut now_ns = 0;
    let (mut words, mut quiets) = (0, 0);
    while now_ns < 60_000_000_000 {
        match sender.step(now_ns, 65_000) {
            Step::Wait { until_ns } => now_ns = until_ns,
            Step::Control { .. } => words += 1,
            step => panic!("{step:?} after {now_ns} ns of silence"),
        }
        while let Some(fact) = sender.next_fact() {
            quiets += u32::from(matches!(fact, Fact::Quiet { .. }));
        }
    }
    assert!((100..5000).contains(&words), "{words} words in a minute of silence");
    assert!((3..10).contains(&quiets), "silence is told each time it doubles: {quiets}");
}

#[test]
fn data_outside_its_place_is_a_breach() {
    let mut receiver = FlowReceiver::new(0, config());
    assert_eq!(receiver.on_data(0, 0, 8, 0, 1, false), Err(Breach::UnitBeyondGrant));
    assert_eq!(receiver.on_data(0, 0, 0, 0, 0, false), Err(Breach::PacketEmpty));
    assert_eq!(receiver.on_data(0, 0, 0, 99_999, 2, false), Err(Breach::UnitTooLong));
    assert_eq!(receiver.on_data(0, 0, 0, u32::MAX, 2, false), Err(Breach::UnitTooLong));
    assert_eq!(receiver.on_data(0, 1 << 40, 0, 0, 1, false), Err(Breach::NumberAbsurd));
    assert_eq!(receiver.on_control(0, u64::MAX, &Control::Close), Err(Breach::NumberAbsurd));
    assert_eq!(receiver.on_control(0, 5, &Control::Ask { from: 6 }), Err(Breach::CoverageUnsent));
    assert_eq!(receiver.on_control(0, 5, &Control::Tell { newest: 6, rtt_us: 0 }), Err(Breach::CoverageUnsent));
    assert_eq!(receiver.stats().packets, 0, "what is refused leaves no trace");

    assert_eq!(receiver.on_data(0, 0, 0, 500, 500, false), Ok(Placed::New));
    assert_eq!(receiver.set_len(0, 999), Err(Breach::UnitTooLong));
    assert_eq!(receiver.set_len(0, 100_001), Err(Breach::UnitTooLong));
    assert_eq!(receiver.set_len(0, 1000), Ok(()));
    assert_eq!(receiver.set_len(0, 1001), Err(Breach::UnitLength));
    assert_eq!(receiver.set_len(8, 1), Err(Breach::UnitBeyondGrant));
    assert_eq!(receiver.on_data(0, 1, 0, 1000, 1, false), Err(Breach::UnitTooLong));
    assert!(receiver.missing(0).eq(std::iter::once(0..500)));
    assert_eq!(receiver.on_data(0, 1, 0, 0, 500, false), Ok(Placed::New));
    assert!(receiver.is_whole(0) && receiver.has(0, 0..1000));
}

#[test]
fn replays_and_overlaps_are_only_counted() {
    let mut receiver = FlowReceiver::new(0, config());
    assert_eq!(receiver.on_data(0, 0, 0, 0, 1000, false), Ok(Placed::New));
    for _ in 0..1000 {
        assert!(!receiver.wants(0));
        assert_eq!(receiver.on_data(0, 0, 0, 5000, 1000, false), Ok(Placed::Already), "a number is taken once");
    }
    assert_eq!(receiver.stats().duplicates, 2000);
    assert_eq!(receiver.on_data(0, 1, 0, 500, 500, false), Ok(Placed::Already));
    assert_eq!(receiver.on_data(0, 2, 0, 500, 1000, false), Ok(Placed::New), "half of it is new");
    assert_eq!(receiver.missing(0).count(), 0);
    assert_eq!(receiver.stats().already_bytes, 500);
    receiver.done(0);
    assert_eq!(receiver.on_data(0, 3, 0, 0, 1000, false), Ok(Placed::Already), "a unit that is over takes nothing");
}

#[test]
fn a_word_that_came_already_is_not_heard_again() {
    let mut receiver = FlowReceiver::new(0, config());
    let word = Control::Tell { newest: 0, rtt_us: 0 };
    receiver.on_control(0, 0, &word).expect("honest");
    assert!(receiver.feedback(1 << 40).is_some(), "it asked for feedback");
    assert!(receiver.feedback(1 << 41).is_none(), "once");
    receiver.on_control(1 << 41, 0, &word).expect("only a replay");
    assert!(receiver.feedback(1 << 42).is_none());
    assert_eq!(receiver.stats().duplicates, 1);
}

#[test]
fn a_unit_in_confetti_is_a_breach_before_it_costs_memory() {
    let mut receiver = FlowReceiver::new(0, config());
    let refused = (0..50_000_u32).find(|&piece| receiver.on_data(0, u64::from(piece), 0, piece * 2, 1, false).is_err());
    assert!(refused.expect("refused at some point") < 500);
}

#[test]
fn the_grant_follows_units_that_are_done_and_never_goes_back() {
    let mut receiver = FlowReceiver::new(0, config());
    receiver.on_data(0, 0, 7, 0, 100, false).expect("the last one granted");
    assert_eq!(receiver.on_data(0, 1, 8, 0, 100, false), Err(Breach::UnitBeyondGrant));
    receiver.done(7);
    receiver.on_data(0, 1, 8, 0, 100, false).expect("one more");
    receiver.grant(1);
    assert_eq!(receiver.on_data(0, 2, 1, 0, 100, false), Ok(Placed::NoRoom), "granted once, but there is no room now");
    assert!(receiver.wants(2), "without room a number counts as not come");
    assert_eq!(receiver.on_data(0, 2, 0, 0, 100, false), Ok(Placed::New), "the oldest always has room");
    // One laggard holds up the others at four times the grant, not for ever further.
    receiver.grant(8);
    (1..200).for_each(|unit| receiver.done(unit));
    let (_, told) = receiver.feedback(1 << 40).expect("there is news");
    assert_eq!(told.granted, 32);
}

#[test]
fn leaps_of_numbers_cost_no_memory() {
    let mut receiver = FlowReceiver::new(0, config());
    let mut number = 0;
    for leap in 0..200_u64 {
        number += 1 << 25;
        receiver.on_data(leap, number, 0, 0, 100, false).expect("within the leap");
        if let Some((_, told)) = receiver.feedback(leap * 1_000_000_000) {
            let mut body = Vec::new();
            told.encode(&mut body, 1200 - BODY_OVERHEAD);
            assert_eq!(Feedback::decode(&body), Ok(told));
        }
    }
}

proptest! {
    #[test]
    fn numbers_are_expanded_to_the_nearest(expected in 0_u64..1 << 62, away in -(1_i64 << 31) + 1..1 << 31) {
        if let Some(number) = expected.checked_add_signed(away) {
            prop_assert_eq!(expand(number as u32, expected), number);
        }
    }

    #[test]
    fn bodies_that_decode_have_one_encoding(bytes in prop::collection::vec(prop_oneof![Just(0_u8), 0..8_u8, any::<u8>()], 0..64)) {
        if let Ok(control) = Control::decode(&bytes) {
            let mut again = Vec::new();
            control.encode(&mut again);
            prop_assert_eq!(&again, &bytes);
        }
        if let Ok(feedback) = Feedback::decode(&bytes) {
            let mut again = Vec::new();
            feedback.encode(&mut again, usize::MAX);
            prop_assert_eq!(&again, &bytes);
        }
    }

    #[test]
    fn a_body_cut_to_fit_is_a_shorter_true_one(runs in prop::collection::vec(1_u64..100_000, 0..300), max in 100_usize..1176) {
        let mut all = Runs::new();
        for (index, &count) in runs.iter().enumerate() {
            if !all.push(count, index % 2 == 1, RUNS_BYTES_MAX) {
                break;
            }
        }
        let whole = Feedback { runs: all, ..feedback(9, 1000, 1000 + all.total(), &[]) };
        let mut body = Vec::new();
        whole.encode(&mut body, max);
        prop_assert!(body.len() <= max);
        let cut = Feedback::decode(&body).expect("a cut body is a body");
        prop_assert_eq!((cut.from, cut.seen, cut.delivered_bytes), (whole.from, whole.seen, whole.delivered_bytes));
        prop_assert!(cut.coverage().zip(whole.coverage()).all(|(one, other)| one == other));
    }

    #[test]
    fn any_list_of_operations_leaves_the_sender_sane(ops in prop::collection::vec((0_u8..12, any::<u32>()), 0..300)) {
        drive_sender(&ops);
    }

    #[test]
    fn any_list_of_operations_leaves_the_receiver_sane(ops in prop::collection::vec((0_u8..8, any::<u32>()), 0..300)) {
        drive_receiver(&ops);
    }
}

/// Operations on a sender, with feedback that is honest, late, foolish or false.
fn drive_sender(ops: &[(u8, u32)]) {
    let mut sender = FlowSender::new(0, config());
    let (mut now_ns, mut number, mut next, mut covered) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut last: Option<Burst> = None;
    for &(op, value) in ops {
        let wide = u64::from(value);
        match op {
            0 if sender.room() > 0 => {
                let _ = sender.add(1 + value % 100_000);
            }
            1..=4 => {
                let step = sender.step(now_ns, value % 70_000);
                last = None;
                match step {
                    Step::Burst(burst) => {
                        assert_eq!(burst.first, next, "numbers have no gaps");
                        assert!(burst.bytes > 0 && burst.offset + burst.bytes <= 100_000);
                        next += u64::from(burst.packets());
                        last = Some(burst);
                    }
                    Step::Control { number, .. } => {
                        assert_eq!(number, next);
                        next += 1;
                    }
                    Step::Wait { until_ns } => {
                        assert!(until_ns > now_ns);
                        now_ns = until_ns.min(now_ns + 1_000_000_000);
                    }
                    Step::Reload { .. } => {}
                }
            }
            5 => {
                // Honest: what is covered joins.
                let seen = covered.max(wide % (next + 1));
                let runs = [(seen - covered) / 3, (seen - covered) / 5, (seen - covered) / 7];
                number += 1;
                let told = Feedback { granted: 8 + number as u32, ..feedback(number, covered, seen, &runs) };
                if sender.on_feedback(now_ns, &told).is_ok() {
                    covered = covered.max(told.to());
                }
            }
            6 => {
                let told =
                    feedback(wide % (number + 3), wide % (next + 3), wide % (next * 2 + 3), &[wide % 7, wide % 11]);
                let _ = sender.on_feedback(now_ns, &told);
            }
            7 => sender.unloaded(value % 16),
            8 => sender.reloaded(value % 16),
            9 => {
                if let Some(burst) = last.take() {
                    sender.refused(now_ns, &burst, value % (burst.packets() + 1));
                }
            }
            10 => sender.too_big(now_ns),
            _ => sender.end(),
        }
        while sender.next_fact().is_some() {}
        now_ns += wide % 1000;
        assert!(sender.stats().copy_bytes * 100 <= sender.stats().fresh_bytes);
        assert!(sender.stats().in_flight < 1 << 40);
    }
}

/// Packets of any kind and number, and everything a caller may do.
fn drive_receiver(ops: &[(u8, u32)]) {
    let mut receiver = FlowReceiver::new(0, config());
    let (mut now_ns, mut number, mut told_to) = (0_u64, 0_u64, 0_u64);
    for &(op, value) in ops {
        let wide = u64::from(value);
        now_ns += wide % 3_000_000;
        match op {
            0..=2 => {
                number += wide % 5;
                let _ = receiver.on_data(now_ns, number, value % 9, value % 100_100, 1 + value % 1500, value % 2 == 0);
            }
            3 => {
                let old = number.saturating_sub(wide % 50);
                let _ = receiver.on_data(now_ns, old, value % 12, 0, 1 + value % 1500, false);
            }
            4 => {
                let _ = receiver.set_len(value % 12, value % 100_100);
            }
            5 => receiver.done(value % 40),
            6 => receiver.grant(value % 20),
            _ => {
                let word = [Control::Ask { from: wide % (number + 9) }, Control::Tell { newest: number, rtt_us: wide }];
                let _ = receiver.on_control(now_ns, number + 1, &word[value as usize % 2]);
            }
        }
        if let Some((_, told)) = receiver.feedback(now_ns) {
            assert!(told.from <= told_to, "coverage has no gaps");
            assert!(told.to() <= told.seen && told.seen == receiver.expected());
            told_to = told_to.max(told.to());
            let mut body = Vec::new();
            told.encode(&mut body, 1200 - BODY_OVERHEAD);
            assert_eq!(Feedback::decode(&body), Ok(told));
            assert!(receiver.next_at() > now_ns, "a feedback once told is not due again at once");
        }
    }
}
