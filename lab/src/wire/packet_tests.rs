//! Tests of packet.rs: golden packets, made by hand and checked by a checksum written a second time.
//!
//! For: the header rewriting. In and out: super-packets as the kernel hands them over → the runs that go out.
//! Invariants: nothing here uses the functions under test to say what is right.
//! Absent on purpose: the kernel (lab/e2e/lab.sh sends real ones).

use super::*;

const MSS: usize = 1000;

/// A TCP super-packet over IPv4: 12 bytes of TCP options, `payload` bytes that count up, FIN + PSH + CWR + ACK.
fn tcp4(payload: usize) -> Vec<u8> {
    let mut out = vec![1, 1 | 0x80, 0, 0, 0, 0, 20, 0, 16, 0];
    out[4..6].copy_from_slice(&u16::try_from(MSS).unwrap().to_le_bytes());
    let total = u16::try_from(20 + 32 + payload).unwrap().to_be_bytes();
    out.extend([0x45, 0x02, total[0], total[1], 0xff, 0xfe, 0x40, 0, 64, 6, 0, 0, 10, 99, 0, 1, 10, 99, 0, 2]);
    out.extend([0x30, 0x39, 0x14, 0x51, 0xff, 0xff, 0xff, 0x00, 1, 2, 3, 4, 0x80, 0x99, 2, 0, 0xaa, 0xbb, 0, 0]);
    out.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    out.extend((0..payload).map(|at| u8::try_from(at % 251).unwrap()));
    let pseudo = sum(&pseudo4(&out[VNET..]));
    put(&mut out, VNET + 36, pseudo);
    out
}

/// A UDP super-packet over IPv6.
fn udp6(payload: usize) -> Vec<u8> {
    let mut out = vec![1, 5, 0, 0, 0, 0, 40, 0, 6, 0];
    out[4..6].copy_from_slice(&u16::try_from(MSS).unwrap().to_le_bytes());
    let length = u16::try_from(8 + payload).unwrap().to_be_bytes();
    out.extend([0x60, 0x20, 0, 7, length[0], length[1], 17, 64]);
    for last in [1, 2] {
        let mut address = [0; 16];
        (address[0], address[1], address[15]) = (0xfd, 0x99, last);
        out.extend(address);
    }
    out.extend([0x30, 0x39, 0x14, 0x51, length[0], length[1], 0xaa, 0xbb]);
    out.extend((0..payload).map(|at| u8::try_from(at % 251).unwrap()));
    out
}

fn run(read: &[u8], range: Range<u16>) -> Vec<u8> {
    let mut space = [0; HEAD_BYTES_MAX];
    let shape = Shape::of(read);
    let (head, payload) = cut(read, &shape, range, false, &mut space);
    [head, payload].concat()
}

/// RFC 1071 the slow way: one's complement sum with an end-around carry at each step.
fn sum(bytes: &[u8]) -> u16 {
    let mut total = 0_u16;
    for pair in bytes.chunks(2) {
        let word = u16::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u16::from(*low));
        let (next, carry) = total.overflowing_add(word);
        total = next + u16::from(carry);
    }
    total
}

fn pseudo4(packet: &[u8]) -> Vec<u8> {
    let length = u16::try_from(packet.len() - 20).unwrap().to_be_bytes();
    [&packet[12..20], &[0, packet[9]], &length].concat()
}

#[test]
fn the_wire_packets_of_a_super_packet_are_counted_and_measured() {
    let read = tcp4(2 * MSS + 1);
    let shape = Shape::of(&read);
    assert_eq!((shape.count, shape.bytes, shape.head_bytes()), (3, 2053, 52));
    assert_eq!([0, 1, 2].map(|index| shape.packet_bytes(index)), [1052, 1052, 53]);
    let shape = Shape::of(&udp6(3 * MSS));
    assert_eq!((shape.count, shape.head_bytes()), (3, 48));
    assert_eq!([0, 1, 2].map(|index| shape.packet_bytes(index)), [1048; 3]);
}

#[test]
fn all_of_a_super_packet_goes_out_as_it_came() {
    for read in [tcp4(3 * MSS), udp6(2 * MSS + 7), tcp4(10)] {
        let count = Shape::of(&read).count;
        assert_eq!(run(&read, 0..count), read);
    }
}

#[test]
fn the_first_packet_of_tcp_keeps_cwr_and_loses_fin_and_push() {
    let out = run(&tcp4(3 * MSS), 0..1);
    // One packet: no segmentation, the checksum still to be made.
    assert_eq!(out[..VNET], [1, 0, 52, 0, 0, 0, 20, 0, 16, 0]);
    let packet = &out[VNET..];
    assert_eq!(packet.len(), 1052);
    assert_eq!(packet[2..4], 1052_u16.to_be_bytes());
    assert_eq!(packet[4..6], [0xff, 0xfe]);
    assert_eq!(sum(&packet[..20]), 0xffff, "the IP header sums up");
    assert_eq!(packet[24..28], [0xff, 0xff, 0xff, 0x00], "sequence");
    assert_eq!(packet[33], 0x90, "CWR and ACK, without FIN and PSH");
    assert_eq!(packet[36..38], sum(&pseudo4(packet)).to_be_bytes(), "sum of the pseudo header");
}

#[test]
fn a_run_in_the_middle_and_one_at_the_end_of_tcp_go_on_from_the_first() {
    let read = tcp4(4 * MSS + 5);
    let middle = run(&read, 1..3);
    assert_eq!(middle[..VNET], [1, 1, 52, 0, 0xe8, 3, 20, 0, 16, 0], "still a super-packet, no CWR in it");
    let packet = &middle[VNET..];
    assert_eq!(packet[2..4], 2052_u16.to_be_bytes());
    assert_eq!(packet[4..6], [0xff, 0xff], "id goes on by one");
    assert_eq!(packet[24..28], 0x0000_02e8_u32.to_be_bytes(), "0xffffff00 + 1000 wraps");
    assert_eq!(packet[33], 0x10, "ACK alone");
    assert_eq!(packet[52..], read[VNET + 52 + MSS..VNET + 52 + 3 * MSS]);
    let end = run(&read, 3..5);
    let packet = &end[VNET..];
    assert_eq!(packet[4..6], [0, 1], "id wraps");
    assert_eq!(packet[2..4], 1057_u16.to_be_bytes());
    assert_eq!(packet[33], 0x19, "FIN, PSH and ACK");
    assert_eq!(sum(&packet[..20]), 0xffff);
    assert_eq!(packet[36..38], sum(&pseudo4(packet)).to_be_bytes());
    assert_eq!(packet[52..], read[VNET + 52 + 3 * MSS..]);
}

#[test]
fn udp_over_ipv6_gets_its_lengths_and_sum() {
    let read = udp6(2 * MSS + 7);
    for (range, payload, kind) in [(0..1, MSS, 0), (0..2, 2 * MSS, 5), (2..3, 7, 0), (1..3, MSS + 7, 5)] {
        let out = run(&read, range.clone());
        assert_eq!(out[1], kind, "{range:?}");
        let packet = &out[VNET..];
        let length = u16::try_from(8 + payload).unwrap().to_be_bytes();
        assert_eq!((&packet[4..6], &packet[44..46]), (&length[..], &length[..]), "{range:?}");
        let pseudo = [&packet[8..40], &[0, 0], &length, &[0, 0, 0, 17]].concat();
        assert_eq!(packet[46..48], sum(&pseudo).to_be_bytes(), "{range:?}");
        assert_eq!(packet.len(), 48 + payload);
    }
}

#[test]
fn a_harmed_packet_has_a_sum_that_shows_it_and_differs_in_one_bit() {
    for (read, start, sum_at) in [(tcp4(3 * MSS), 20, 36), (tcp4(10), 20, 36)] {
        let shape = Shape::of(&read);
        let mut good = Vec::new();
        harm(&read, &shape, 0, 0, &mut good);
        good[VNET] ^= 1;
        let packet = &good[VNET..];
        assert_eq!(good[..VNET], [0; VNET], "nothing is left to the device");
        assert_eq!(sum(&[pseudo4(packet), packet[start..].to_vec()].concat()), 0xffff, "whole before it is harmed");
        assert_ne!(packet[sum_at..sum_at + 2], [0, 0]);
        for bit in [3_u64, 20 * 8, 52 * 8 + 5, u64::MAX] {
            let mut out = Vec::new();
            harm(&read, &shape, 0, bit, &mut out);
            let turned: u32 = out.iter().zip(&good).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert_eq!((turned, out.len()), (1, good.len()));
        }
    }
}

#[test]
fn a_mark_is_written_where_the_transport_takes_it_and_nowhere_else() {
    let mut space = [0; HEAD_BYTES_MAX];
    for (mut read, range) in
        [(tcp4(3 * MSS), 0..3), (tcp4(3 * MSS), 1..2), (udp6(2 * MSS), 0..2), (udp6(2 * MSS), 0..1)]
    {
        assert!(takes_mark(&read));
        let shape = Shape::of(&read);
        let (head, payload) = cut(&read, &shape, range.clone(), true, &mut space);
        let out = [head, payload].concat();
        let is_four = out[VNET] >> 4 == 4;
        let field = if is_four { out[VNET + 1] & 3 } else { out[VNET + 1] >> 4 & 3 };
        assert_eq!(field, 3);
        if is_four {
            assert_eq!(sum(&out[VNET..VNET + 20]), 0xffff);
        }
        read[VNET + 1] = 0;
        assert!(!takes_mark(&read));
        let (head, _) = cut(&read, &shape, range, true, &mut space);
        assert_eq!(head[VNET + 1], 0, "a transport that does not know marks is left alone");
    }
}

#[test]
fn whatever_the_bytes_are_nothing_panics_and_nothing_grows() {
    let mut dice = crate::wire::dice::Dice::new(5);
    let seeds = [tcp4(3 * MSS), udp6(2 * MSS + 7), tcp4(0), vec![0; VNET], Vec::new(), vec![0xff; 70]];
    let mut space = [0; HEAD_BYTES_MAX];
    let mut out = Vec::new();
    for round in 0..20_000_usize {
        let mut read = seeds[round % seeds.len()].clone();
        let keep = usize::try_from(dice.below(read.len() as u64 + 1)).unwrap();
        if dice.draw().is_multiple_of(2) {
            read.truncate(keep.max(VNET.min(read.len())));
        }
        for _ in 0..dice.below(6) {
            let at = usize::try_from(dice.below(70)).unwrap();
            if let Some(byte) = read.get_mut(at) {
                *byte = u8::try_from(dice.below(256)).unwrap();
            }
        }
        let shape = Shape::of(&read);
        let total: u32 = (0..shape.count).map(|index| shape.packet_bytes(index)).sum();
        assert!(total >= shape.bytes && shape.count >= 1);
        let first = u16::try_from(dice.below(u64::from(shape.count))).unwrap();
        let (head, payload) = cut(&read, &shape, first..first + 1, true, &mut space);
        assert!(head.len() + payload.len() <= read.len());
        harm(&read, &shape, first, dice.draw(), &mut out);
    }
}
