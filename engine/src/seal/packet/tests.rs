//! Packets there and back, in every cover and cipher.

use proptest::prelude::*;

use super::*;
use crate::seal::packet_keys::DERIVED;

const COVERS: [Cover; 3] = [Cover::Sealed, Cover::Tagged, Cover::Hashed];
const CIPHERS: [Cipher; 3] = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];

fn packer(cover: Cover, cipher: Cipher) -> Packer {
    Packer::new([7; 32], 0x12_3456, cover, cipher)
}

fn vouched(cover: Cover) -> u32 {
    if cover == Cover::Hashed { 72 } else { u32::MAX }
}

/// The packets of a run as they go over the wire.
fn packets(packer: &mut Packer, run: Run, bytes: &[u8], vouched: u32) -> Vec<Vec<u8>> {
    if packer.is_sealed() {
        let mut out = vec![0; bytes.len() + (bytes.len() / run.payload + 2) * HEAD_BYTES];
        let end = packer.seal(run, bytes, &mut out);
        return out[..end].chunks(HEAD_BYTES + run.payload).map(<[u8]>::to_vec).collect();
    }
    let mut heads = [[0; HEAD_BYTES]; BURST_PACKETS_MAX];
    let count = packer.stamp(run, bytes, vouched, &mut heads);
    let payloads = bytes.chunks(run.payload);
    heads[..count].iter().zip(payloads).map(|(head, payload)| [&head[..], payload].concat()).collect()
}

/// Opens one packet as the receiver does. Its bytes, if it holds.
fn open(packer: &mut Packer, number: u64, packet: &[u8]) -> Option<(Place, Vec<u8>)> {
    let place = Place::of(packet)?;
    if packer.is_sealed() {
        let mut into = vec![0; packet.len() - HEAD_BYTES];
        let gathered = packer.open_into(number, packet, &mut into);
        let mut here = packet.to_vec();
        assert_eq!(packer.open_here(number, &mut here), gathered, "both ways agree");
        return gathered.then(|| {
            assert_eq!(here[HEAD_BYTES..], into);
            (place, into)
        });
    }
    let mut pads = [[0; TAG_BYTES]];
    packer.pads(&[number], &[place], &mut pads);
    packer.holds(number, place, pads[0], packet).then(|| (place, packet[HEAD_BYTES..].to_vec()))
}

proptest! {
    #[test]
    fn every_packet_opens_to_its_bytes_in_its_place(
        cover in 0..3_usize, cipher in 0..3_usize, len in 1..9000_usize, payload in 300..1500_usize,
        first in prop_oneof![0..1000_u64, (1_u64 << 24) - 20..(1 << 24) + 3, Just((5 << 32) - 2)],
        unit: u32, offset in 0..1_u32 << 24, seed: u8,
    ) {
        let (cover, cipher) = (COVERS[cover], CIPHERS[cipher]);
        let bytes: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect();
        let (mut here, mut there) = (packer(cover, cipher), packer(cover, cipher));
        let run = Run { first, unit, offset, payload };
        let sent = packets(&mut here, run, &bytes, vouched(cover));
        prop_assert_eq!(sent.len(), len.div_ceil(payload));
        // It had packets up to here: numbers do not leap over an epoch.
        there.data.enter(first);
        for (index, packet) in sent.iter().enumerate() {
            let number = first + index as u64;
            let head = Head::decode(packet.first_chunk().expect("a head")).expect("a kind");
            prop_assert_eq!((head.kind, head.tag, head.low), (Kind::Data, 0x12_3456, number as u32));
            let (place, opened) = open(&mut there, number, packet).expect("it holds");
            prop_assert_eq!((place.unit, place.offset), (unit, offset + (index * payload) as u32));
            prop_assert_eq!(&opened[..], &bytes[index * payload..len.min((index + 1) * payload)]);
        }
    }

    #[test]
    fn no_flipped_bit_that_the_tag_covers_passes(
        cover in 0..3_usize, cipher in 0..3_usize, len in 1..600_usize, offset in 0..200_u32, flip: prop::sample::Index,
    ) {
        let (cover, cipher) = (COVERS[cover], CIPHERS[cipher]);
        let (mut here, mut there) = (packer(cover, cipher), packer(cover, cipher));
        let run = Run { first: 9, unit: 4, offset, payload: 1000 };
        let mut packet = packets(&mut here, run, &vec![3; len], vouched(cover)).remove(0);
        // The head's own eight bytes choose kind, rail and number: the keys and the nonce, not the tag, bind these.
        let bytes_covered = cover != Cover::Hashed || offset < 72;
        let end = if bytes_covered { packet.len() } else { HEAD_BYTES };
        let bit = flip.index((end - 8) * 8);
        packet[8 + bit / 8] ^= 1 << (bit % 8);
        prop_assert!(open(&mut there, 9, &packet).is_none());
    }
}

#[test]
fn a_packet_holds_under_its_own_number_kind_and_rail_only() {
    for cover in COVERS {
        for cipher in CIPHERS {
            let (mut here, mut there) = (packer(cover, cipher), packer(cover, cipher));
            let run = Run { first: 9, unit: 4, offset: 500, payload: 1000 };
            let packet = packets(&mut here, run, &[3; 100], vouched(cover)).remove(0);
            assert!(open(&mut there, 9, &packet).is_some());
            for number in [8, 10, 9 + (1 << 24), 9 + (1 << 32)] {
                assert!(open(&mut there, number, &packet).is_none(), "{cover:?} {cipher:?} {number}");
            }
            assert!(open(&mut there, 9, &packet).is_some(), "keys of other epochs do not stay in the way");
            let mut other = Packer::new([8; 32], 0x12_3456, cover, cipher);
            assert!(open(&mut other, 9, &packet).is_none(), "another rail has another secret");
        }
    }
}

#[test]
fn words_and_feedback_have_keys_of_their_own_and_hold_once_whole() {
    for cipher in CIPHERS {
        let (mut here, mut there) = (packer(Cover::Hashed, cipher), packer(Cover::Hashed, cipher));
        for kind in [Kind::Control, Kind::Feedback] {
            let mut sealed = vec![0; SMALL_HEAD_BYTES];
            sealed.extend_from_slice(b"a body");
            here.seal_small(kind, 7, &mut sealed);
            assert!(!sealed.windows(6).any(|run| run == b"a body"), "it is sealed in every cover");
            let mut copy = sealed.clone();
            assert_eq!(there.open_small(kind, 7, &mut copy), Some(&b"a body"[..]));
            let other = if kind == Kind::Control { Kind::Feedback } else { Kind::Control };
            assert_eq!(there.open_small(other, 7, &mut sealed.clone()), None);
            assert_eq!(there.open_small(kind, 8, &mut sealed.clone()), None);
            assert_eq!(there.open_small(kind, 7, &mut sealed[..20].to_vec()), None, "shorter than its head");
            for bit in 0..sealed.len() * 8 {
                let mut flipped = sealed.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(there.open_small(kind, 7, &mut flipped), None, "bit {bit}");
            }
        }
    }
}

#[test]
fn one_burst_may_cross_into_another_epoch() {
    for cover in COVERS {
        let (mut here, mut there) = (packer(cover, Cipher::Aes128Gcm), packer(cover, Cipher::Aes128Gcm));
        let first = (1 << EPOCH_BITS) - 2;
        let run = Run { first, unit: 0, offset: 0, payload: 100 };
        let sent = packets(&mut here, run, &[1; 400], vouched(cover));
        let numbers: Vec<u64> = (first..first + 4).collect();
        let places: Vec<Place> = sent.iter().map(|packet| Place::of(packet).expect("a place")).collect();
        let mut pads = vec![[0; TAG_BYTES]; 4];
        there.pads(&numbers, &places, &mut pads);
        for (index, packet) in sent.iter().enumerate() {
            assert!(open(&mut there, numbers[index], packet).is_some());
            if cover != Cover::Sealed {
                assert!(
                    there.holds(numbers[index], places[index], pads[index], packet),
                    "pads of a burst across epochs"
                );
            }
        }
    }
}

/// As `proto/tests/vectors.rs` does: compared with `docs/vectors/`, or written there with `LONGHAUL_VECTORS=write`.
fn check(name: &str, bytes: &[u8]) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/vectors").join(name);
    let hex = |line: &[u8]| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n";
    let text: String = bytes.chunks(32).map(hex).collect();
    if std::env::var_os("LONGHAUL_VECTORS").is_some_and(|how| how == "write") {
        std::fs::write(&path, &text).expect("a vector can be written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(stored, text, "{name} differs; if the wire is meant to change, so must the version");
}

#[test]
fn whole_packets_have_their_bytes() {
    let bytes: [u8; 40] = std::array::from_fn(|at| at as u8);
    // The last packet of the first epoch and the first of the next, so that both keys are in it.
    let run = Run { first: (1 << 24) - 1, unit: 5, offset: 60, payload: 24 };
    for (cover, cover_name) in COVERS.into_iter().zip(["sealed", "tagged", "hashed"]) {
        for (cipher, cipher_name) in CIPHERS.into_iter().zip(["aes128", "aes256", "chacha20"]) {
            let sent = packets(&mut packer(cover, cipher), run, &bytes, vouched(cover));
            assert_eq!(sent.len(), 2);
            check(&format!("packet-data-{cover_name}-{cipher_name}.hex"), &sent.concat());
        }
    }
    for (kind, name) in [(Kind::Control, "control"), (Kind::Feedback, "feedback")] {
        let mut packet = [vec![0; SMALL_HEAD_BYTES], bytes.to_vec()].concat();
        packer(Cover::Sealed, Cipher::Aes128Gcm).seal_small(kind, 300, &mut packet);
        check(&format!("packet-{name}.hex"), &packet);
    }
}

/// Packets that nobody with the secret made, with numbers of every epoch that 32 bits can name, as a receiver meets them.
fn forge(there: &mut Packer, count: u64) {
    let mut packet = vec![0; HEAD_BYTES + 1200];
    for number in (0..count).map(|at| at * 0x9e37_79b9 % (1 << 32)) {
        packet[..8].copy_from_slice(&Head { kind: Kind::Data, tag: 0x12_3456, low: number as u32 }.encode());
        assert!(open(there, number, &packet).is_none());
        for kind in [Kind::Control, Kind::Feedback] {
            assert!(there.open_small(kind, number, &mut packet.clone()).is_none());
        }
    }
}

#[test]
fn forged_packets_derive_no_key_and_leave_the_ones_in_use() {
    for cover in COVERS {
        for cipher in CIPHERS {
            let (mut here, mut there) = (packer(cover, cipher), packer(cover, cipher));
            let derived = DERIVED.get();
            forge(&mut there, 2000);
            assert_eq!(DERIVED.get(), derived, "{cover:?} {cipher:?}");
            // The peer goes on from epoch to epoch, and each costs one key.
            for epoch in 0..6 {
                let first = (epoch << EPOCH_BITS) + 5;
                let run = Run { first, unit: 4, offset: 500, payload: 1000 };
                let packet = packets(&mut here, run, &[3; 100], vouched(cover)).remove(0);
                let derived = DERIVED.get();
                assert!(open(&mut there, first, &packet).is_some(), "epoch {epoch}");
                forge(&mut there, 100);
                assert!(DERIVED.get() - derived <= 1, "epoch {epoch}");
            }
        }
    }
}
