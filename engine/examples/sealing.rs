//! What sealing and opening one packet costs, by each way the cipher's library has.
//!
//! For: the choice in `packets.rs`, and the figures of docs/design/002-datagrams.md, "Sealing cost".
//! In and out: bytes per packet (1440 and 8940 unless given) → a table, nanoseconds of processor time per packet. Alone on its core:
//! `chrt -r 10 cargo run --release -p longhaul-engine --example sealing`.
//! Invariants: bytes come from a chunk of 1 MiB and go to a burst of 64 KiB (and back), as on a rail; the ways take turns in each round;
//! medians of 5 rounds.
//! Absent on purpose: key changes, numbers, sockets.

use std::hint::black_box;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use sys::clock::thread_cpu_ns;

const ROUNDS: usize = 5;
/// Payload sealed per way and round: some tens of milliseconds.
const ROUND_BYTES: usize = 64 << 20;
const CHUNK: usize = 1 << 20;
const BURST: usize = 64 << 10;
const HEAD: usize = 32;
const PLACE: usize = 16;

type Way = (&'static str, fn(&LessSafeKey, u64, &mut [u8], &mut [u8]));

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// A packet's parts: its place, its tag, its bytes.
fn parts(packet: &mut [u8]) -> (&mut [u8], &mut [u8], &mut [u8]) {
    let (head, bytes) = packet.split_at_mut(HEAD);
    let (place, tag) = head.split_at_mut(PLACE);
    (place, tag, bytes)
}

/// From the plain bytes to the packet. The packet's memory is 16 bytes longer, for the tag where it comes behind.
const SEALS: [Way; 5] = [
    ("copy alone", |_, _, plain, packet| parts(packet).2[..plain.len()].copy_from_slice(plain)),
    ("seal in place, no copy", |key, number, plain, packet| {
        let (place, tag, bytes) = parts(packet);
        let bytes = &mut bytes[..plain.len()];
        let sealed = key.seal_in_place_separate_tag(nonce(number), Aad::from(&*place), bytes).expect("short");
        tag.copy_from_slice(sealed.as_ref());
    }),
    ("copy, seal in place", |key, number, plain, packet| {
        let (place, tag, bytes) = parts(packet);
        let bytes = &mut bytes[..plain.len()];
        bytes.copy_from_slice(plain);
        let sealed = key.seal_in_place_separate_tag(nonce(number), Aad::from(&*place), bytes).expect("short");
        tag.copy_from_slice(sealed.as_ref());
    }),
    ("seal_in_place_scatter, all of it extra, tag moved", |key, number, plain, packet| {
        let (place, tag, bytes) = parts(packet);
        key.seal_in_place_scatter(nonce(number), Aad::from(&*place), &mut [], plain, bytes).expect("short");
        tag.copy_from_slice(&bytes[plain.len()..]);
    }),
    ("seal_out_of_place_scatter", |key, number, plain, packet| {
        let (place, tag, bytes) = parts(packet);
        let bytes = &mut bytes[..plain.len()];
        key.seal_out_of_place_scatter(nonce(number), Aad::from(&*place), plain, bytes, &[], tag).expect("short");
    }),
];

/// From the packet to the plain bytes. "No copy" destroys the packet, which then does not hold: what that costs is the same.
const OPENS: [Way; 3] = [
    ("open in place, no copy", |key, number, plain, packet| {
        let (place, tag, bytes) = parts(packet);
        let bytes = &mut bytes[..plain.len()];
        let _ = key.open_in_place_separate_tag(nonce(number), Aad::from(&*place), tag, bytes);
    }),
    ("copy, open in place", |key, number, plain, packet| {
        let (place, tag, bytes) = parts(packet);
        plain.copy_from_slice(&bytes[..plain.len()]);
        let opened = key.open_in_place_separate_tag(nonce(number), Aad::from(&*place), tag, plain);
        assert!(opened.is_ok(), "it was sealed so");
    }),
    ("open_separate_gather", |key, number, plain, packet| {
        let (place, tag, bytes) = parts(packet);
        let opened = key.open_separate_gather(nonce(number), Aad::from(&*place), &bytes[..plain.len()], tag, plain);
        assert!(opened.is_ok(), "it was sealed so");
    }),
];

/// Nanoseconds per packet of one way, all over the chunk and the burst.
fn run(key: &LessSafeKey, each: usize, way: &Way, chunk: &mut [u8], burst: &mut [u8]) -> f64 {
    let per_burst = BURST / (HEAD + each);
    let start = thread_cpu_ns();
    let mut packets = 0;
    while packets * each < ROUND_BYTES {
        for plain in chunk.chunks_exact_mut(each) {
            // The same number in the same place of the burst: what was sealed there is what is opened there.
            let slot = packets % per_burst;
            let packet = &mut burst[slot * (HEAD + each)..(slot + 1) * (HEAD + each) + 16];
            way.1(key, slot as u64, plain, packet);
            packets += 1;
        }
        black_box(&burst);
    }
    (thread_cpu_ns() - start) as f64 / packets as f64
}

/// Seals the burst anew, so that there is something that opens.
fn refill(key: &LessSafeKey, each: usize, burst: &mut [u8]) {
    let mut plain = vec![7; each];
    for slot in 0..BURST / (HEAD + each) {
        let packet = &mut burst[slot * (HEAD + each)..(slot + 1) * (HEAD + each)];
        SEALS[4].1(key, slot as u64, &mut plain, packet);
    }
}

fn main() {
    let ciphers = [
        ("AES-128-GCM", &aead::AES_128_GCM),
        ("AES-256-GCM", &aead::AES_256_GCM),
        ("ChaCha20", &aead::CHACHA20_POLY1305),
    ];
    let (mut chunk, mut burst) = (vec![0x5a; CHUNK], vec![0x5a; BURST + 16]);
    println!("{}; ns of processor time per packet, medians of {ROUNDS} rounds in turn", sys::host::cpu_model());
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    for each in if sizes.is_empty() { vec![1440, 8940] } else { sizes } {
        for (name, algorithm) in ciphers {
            let key = UnboundKey::new(algorithm, &[9; 32][..algorithm.key_len()]).expect("the algorithm's length");
            let key = LessSafeKey::new(key);
            let ways: Vec<&Way> = SEALS.iter().chain(&OPENS).collect();
            let mut samples = vec![Vec::with_capacity(ROUNDS); ways.len()];
            for _ in 0..ROUNDS {
                for (way, samples) in ways.iter().zip(&mut samples) {
                    refill(&key, each, &mut burst);
                    samples.push(run(&key, each, way, &mut chunk, &mut burst));
                }
            }
            for (way, samples) in ways.iter().zip(&mut samples) {
                samples.sort_by(f64::total_cmp);
                let ns = samples[ROUNDS / 2];
                let (least, most) = (samples[0], samples[ROUNDS - 1]);
                let what = way.0;
                println!(
                    "{each:>5} B  {name:<12} {what:<52} {ns:>8.0}  ({least:.0} to {most:.0})  {:.3} ns/B",
                    ns / each as f64
                );
            }
        }
    }
}
