//! Tests of line.rs, in virtual time.
//!
//! For: the delay line's order, memory and counts. In and out: super-packets at made-up times → what is due when.
//! Invariants: no thread, no descriptor.
//! Absent on purpose: the model of the wire (link_tests.rs) and headers (packet_tests.rs).

use super::*;
use crate::wire::dice::Share;
use crate::wire::link::{Jitter, Loss};

const MS: u64 = 1_000_000;
const GRANULE: u64 = 50_000;

/// A UDP super-packet over IPv4 of `count` packets of 1028 bytes, each filled with its number.
fn super_packet(count: u8) -> Vec<u8> {
    let mut out = vec![1, 5, 0, 0, 0xe8, 3, 20, 0, 6, 0];
    let bytes = usize::from(count) * 1000;
    let total = u16::try_from(28 + bytes).unwrap().to_be_bytes();
    out.extend([0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 99, 0, 1, 10, 99, 0, 2]);
    out.extend([0, 1, 0, 2, 0, 0, 0, 0]);
    out.extend((0..count).flat_map(|number| [number; 1000]));
    out
}

fn line(wire: Wire) -> Line {
    Line::new(Link::new(wire, 2 * wire.delay_ns, 3), 4 << 20, GRANULE).unwrap()
}

fn send(line: &mut Line, now_ns: u64, packet: &[u8]) {
    line.room().unwrap()[..packet.len()].copy_from_slice(packet);
    line.admit(now_ns, packet.len());
}

/// Takes all that is due by `now_ns`: time, and the payload's first byte of each wire packet.
fn take(line: &mut Line, now_ns: u64) -> Vec<(u64, Vec<u8>)> {
    let mut out = Vec::new();
    let mut space = [0; HEAD_BYTES_MAX];
    while let Some(run) = line.take_due(now_ns) {
        let (head, rest) = line.bytes(&run, &mut space);
        let whole = [head, rest].concat();
        let numbers = whole[VNET_HEADER_BYTES + 28..].chunks(1000).map(|packet| packet[0]).collect();
        line.done(&run, whole.len() - VNET_HEADER_BYTES);
        out.push((run.due_ns(), numbers));
    }
    out
}

#[test]
fn a_burst_comes_whole_where_the_rate_is_high_and_in_granules_where_it_is_not() {
    let mut fast = line(Wire { rate_bps: 100_000_000_000, delay_ns: MS, ..Wire::default() });
    send(&mut fast, 0, &super_packet(10));
    assert_eq!(take(&mut fast, MS), []);
    let runs = take(&mut fast, 2 * MS);
    assert_eq!(runs, [(MS + 822, (0..10).collect())], "10 x 1028 bytes take 822.4 ns");
    // 1028 bytes take 82.24 us, longer than a granule: each by itself, each when it is due.
    let mut slow = line(Wire { rate_bps: 100_000_000, delay_ns: MS, ..Wire::default() });
    send(&mut slow, 0, &super_packet(3));
    let runs = take(&mut slow, 3 * MS);
    assert_eq!(runs, [(MS + 82_240, vec![0]), (MS + 164_480, vec![1]), (MS + 246_720, vec![2])]);
    assert_eq!((slow.counts.packets_out, slow.counts.bytes_out), (3, 3084));
}

#[test]
fn lost_packets_are_missing_from_their_burst_and_the_others_are_there() {
    let loss = Loss::Random(Share::from_ppb(300_000_000));
    let mut line = line(Wire { loss, delay_ns: MS, ..Wire::default() });
    let mut seen = 0;
    for round in 0..200 {
        send(&mut line, round * MS, &super_packet(20));
        let numbers: Vec<u8> = take(&mut line, (round + 1) * MS).into_iter().flat_map(|run| run.1).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
        seen += numbers.len() as u64;
    }
    assert_eq!(line.counts.packets_out, seen);
    assert_eq!(line.counts.packets_out + line.counts.wire, 4000);
    assert_eq!(line.counts.bytes_out, seen * 1028);
    assert!((1100..1300).contains(&line.counts.wire), "{}", line.counts.wire);
}

#[test]
fn late_packets_are_overtaken_and_double_ones_come_again() {
    let wire = Wire {
        reorder: Share::from_ppb(100_000_000),
        reorder_ns: 5 * MS,
        duplicate: Share::from_ppb(100_000_000),
        delay_ns: MS,
        ..Wire::default()
    };
    let mut line = line(wire);
    for round in 0..100_u64 {
        send(&mut line, round * MS, &super_packet(10));
    }
    let runs = take(&mut line, 200 * MS);
    assert!(runs.windows(2).all(|pair| pair[0].0 <= pair[1].0), "in order of time");
    let packets: usize = runs.iter().map(|run| run.1.len()).sum();
    assert_eq!(packets as u64, 1000 + line.counts.twice);
    assert!((60..140).contains(&line.counts.twice) && (60..140).contains(&line.counts.late));
}

#[test]
fn memory_is_bounded_and_comes_back() {
    let mut line = line(Wire { delay_ns: 100 * MS, ..Wire::default() });
    let packet = super_packet(60);
    let mut kept = 0;
    while line.room().is_some() {
        send(&mut line, 0, &packet);
        kept += 1;
    }
    // 4 MiB hold 69 packets of 60038 bytes, less what is wasted at the end of each of 8 blocks.
    assert!((8 * 7..=69).contains(&kept), "{kept}");
    line.refuse(&packet);
    assert_eq!(line.counts.no_room, 60);
    assert_eq!(take(&mut line, 100 * MS).len(), kept);
    for round in 0..1000 {
        send(&mut line, round * 200 * MS, &packet);
        assert_eq!(take(&mut line, (round * 200 + 100) * MS).len(), 1);
    }
    assert_eq!(line.counts.no_room, 60);
    assert_eq!(line.counts.packets_in, line.counts.packets_out + 60);
}

#[test]
fn a_change_of_rate_moves_what_queues_and_going_down_loses_it() {
    let before = Wire { rate_bps: 100_000_000, delay_ns: 10 * MS, ..Wire::default() };
    let mut line = line(before);
    send(&mut line, 0, &super_packet(50));
    // 50 packets take 4.112 ms. At 2.056 ms half have left; the rest takes ten times as long.
    line.set(2_056_000, Wire { rate_bps: 10_000_000, ..before }, 20 * MS);
    let runs = take(&mut line, u64::MAX);
    let dues: Vec<u64> = runs.iter().map(|run| run.0).collect();
    assert_eq!(dues[24], 10 * MS + 2_056_000);
    assert_eq!(dues[25], 10 * MS + 2_056_000 + 822_400);
    assert_eq!(dues[49], 10 * MS + 2_056_000 + 25 * 822_400);
    let mut line = self::line(before);
    send(&mut line, 0, &super_packet(50));
    line.set(2_056_000, Wire { up: false, ..before }, 20 * MS);
    assert_eq!(take(&mut line, u64::MAX).len(), 25);
    assert_eq!(line.counts.down, 25);
}

#[test]
fn under_every_trouble_at_once_no_packet_is_unaccounted_for() {
    let wire = Wire {
        rate_bps: 400_000_000,
        delay_ns: 3 * MS,
        jitter: Jitter { ns: 2 * MS, bell: true, overtakes: true },
        loss: Loss::Random(Share::from_ppb(50_000_000)),
        reorder: Share::from_ppb(20_000_000),
        reorder_ns: 4 * MS,
        duplicate: Share::from_ppb(20_000_000),
        corrupt: Share::from_ppb(20_000_000),
        queue: crate::wire::link::Depth::Bytes(300_000),
        ..Wire::default()
    };
    let mut line = line(wire);
    let mut dice = crate::wire::dice::Dice::new(11);
    let mut now = 0;
    let mut before = 0;
    let mut space = [0; HEAD_BYTES_MAX];
    for _ in 0..20_000 {
        now += dice.below(2 * MS);
        let count = 1 + u8::try_from(dice.below(60)).unwrap();
        if line.room().is_some() {
            send(&mut line, now, &super_packet(count));
        }
        while let Some(run) = line.take_due(now) {
            assert!(run.due_ns() >= before && run.due_ns() <= now);
            before = run.due_ns();
            let (head, rest) = line.bytes(&run, &mut space);
            let bytes = head.len() + rest.len();
            line.done(&run, bytes - VNET_HEADER_BYTES);
        }
        before = before.min(now);
    }
    take(&mut line, u64::MAX);
    let counts = line.counts;
    assert_eq!(counts.packets_in + counts.twice, counts.packets_out + counts.queue + counts.wire + counts.no_room);
    assert!(counts.queue > 0 && counts.wire > 0 && counts.corrupt > 0 && counts.late > 0);
    assert_eq!(counts.no_room, 0);
    assert!(counts.queued_bytes_max <= 300_000, "{}", counts.queued_bytes_max);
    assert!(line.blocks.iter().all(|block| block.runs == 0), "all memory is free again");
}
