//! `bench crypto`: what one core must pay for every byte, before any network or disk.
//!
//! For: the line "what the cipher itself must cost", and for choosing cipher and digest.
//! In and out: nothing in but the time to spend; GB/s (10^9) and ns per byte of one core out.
//! Invariants: time is the thread's processor time, so that other programs on the core do not count (their use of caches and memory
//! does); opening is always measured on what was sealed a moment before; cases are measured in turn, round by round.
//! Absent on purpose: several threads (payload is worked on by one core per rail), public-key operations (once per session).

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use clap::Args;
use crc_fast::CrcAlgorithm;
use engine::job::{Cover, RailKey, Terms};
use engine::seal::frame::Sealer;
use engine::seal::hash::HashAs;
use engine::worker::stages::{Counters, Stopwatch};
use proto::PIECE_BYTES;
use proto::negotiate::Cipher;
use proto::wire::chunk::{CHUNK_BYTES_MIN, ChunkKind, Header, SEALED_HEADER_BYTES, TAG_BYTES};
use proto::wire::control::DigestKind;
use serde::Serialize;
use sys::clock;
use sys::mem::{Buf, Pool};

use crate::table::{Host, ROUNDS, median, print_json};
use text::table::Table;
use text::units;

/// Bytes of a chunk: the unit of hashing and sealing in a job nobody has tuned.
const CHUNK_BYTES: usize = CHUNK_BYTES_MIN as usize;
/// Chunks of a streaming pass: 128 MiB, several times the last-level cache a core can have to itself.
const STREAM_CHUNKS: usize = 128;
/// Bytes a hot pass works on: they fit, with their copy, into a level-2 cache of 1 MiB.
const HOT_BYTES: usize = 4 * PIECE_BYTES;

/// `longhaul bench crypto`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct CryptoArguments {
    /// Time for each line of the table, all rounds together
    #[arg(long, value_name = "SECONDS", value_parser = units::parse_duration, default_value = "500ms")]
    pub seconds: Duration,

    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
}

/// One line of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// What was done.
    pub what: String,
    /// Bytes per call.
    pub unit_bytes: usize,
    /// GB/s of one core, on bytes in its cache.
    pub hot_gbs: f64,
    /// The same per byte; also CPU seconds per GB.
    pub hot_ns_per_byte: f64,
    /// GB/s of one core, on bytes that come from memory.
    pub streaming_gbs: f64,
    /// The same per byte.
    pub streaming_ns_per_byte: f64,
}

#[derive(Debug, Serialize)]
struct Lines<'a> {
    lines: &'a [Line],
}

/// Bytes done and processor time taken by up to two lines of the table (seal, then open).
type Spent = [(u64, u64); 2];

/// Works on each chunk, on that many first bytes of it.
type Work = Box<dyn FnMut(&mut [Buf], usize) -> Spent>;

/// Something to measure: works once on each chunk, on the first `reach` bytes of it.
struct Case {
    names: Vec<String>,
    unit_bytes: usize,
    hot_bytes: usize,
    work: Work,
}

/// Measures and prints.
///
/// # Errors
/// No memory for the chunks.
pub fn run(arguments: &CryptoArguments) -> anyhow::Result<()> {
    let host = Host::here();
    let lines = measure(arguments.seconds)?;
    if arguments.json {
        return print_json("crypto", &host, ROUNDS, &Lines { lines: &lines });
    }
    println!("{host}");
    println!("one core, medians of {ROUNDS} rounds; hot: in its cache, streaming: from memory; ns/byte is CPU s/GB\n");
    let mut table = Table::new(&["", "unit", "hot GB/s", "ns/byte", "streaming GB/s", "ns/byte"]);
    for line in &lines {
        table.line([
            line.what.clone(),
            units::show_memory(line.unit_bytes as u64),
            format!("{:.2}", line.hot_gbs),
            format!("{:.4}", line.hot_ns_per_byte),
            format!("{:.2}", line.streaming_gbs),
            format!("{:.4}", line.streaming_ns_per_byte),
        ]);
    }
    print!("{table}");
    Ok(())
}

/// All lines, with `time` spent on each.
///
/// # Errors
/// No memory for the chunks.
pub fn measure(time: Duration) -> anyhow::Result<Vec<Line>> {
    let mut pool = Pool::new(STREAM_CHUNKS, CHUNK_BYTES)?;
    let mut bufs: Vec<Buf> = std::iter::from_fn(|| pool.take()).collect();
    for (number, buf) in bufs.iter_mut().enumerate() {
        // Touched, and not zero: some memories are quick with zeros.
        buf.payload_mut().fill(number as u8 ^ 0x5a);
    }
    let mut cases = cases();
    let slice_ns = (time.as_nanos() / ROUNDS as u128 / 2) as u64;
    let mut samples: Vec<[[Vec<f64>; 2]; 2]> = cases.iter().map(|_| Default::default()).collect();
    for _ in 0..ROUNDS {
        for (case, samples) in cases.iter_mut().zip(&mut samples) {
            let hot = spend(case, &mut bufs[..1], case.hot_bytes, slice_ns);
            let streaming = spend(case, &mut bufs, CHUNK_BYTES, slice_ns);
            for (place, spent) in [hot, streaming].into_iter().enumerate() {
                for (line, (bytes, ns)) in spent.into_iter().enumerate() {
                    samples[line][place].push(ns.max(1) as f64 / bytes.max(1) as f64);
                }
            }
        }
    }
    let mut lines = Vec::new();
    for (case, samples) in cases.iter().zip(&samples) {
        for (what, places) in case.names.iter().zip(samples) {
            let (hot, streaming) = (median(&places[0]), median(&places[1]));
            lines.push(Line {
                what: what.clone(),
                unit_bytes: case.unit_bytes,
                hot_gbs: 1.0 / hot,
                hot_ns_per_byte: hot,
                streaming_gbs: 1.0 / streaming,
                streaming_ns_per_byte: streaming,
            });
        }
    }
    Ok(lines)
}

/// What a cipher takes to seal and to open by pieces of so many bytes on this core, ns per byte, on bytes in its cache.
///
/// # Errors
/// No memory for the chunk.
pub fn cipher_cost(cipher: Cipher, piece_bytes: usize, time: Duration) -> anyhow::Result<(f64, f64)> {
    let algorithm = match cipher {
        Cipher::Aes128Gcm => &AES_128_GCM,
        Cipher::Aes256Gcm => &AES_256_GCM,
        Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
    };
    let mut pool = Pool::new(1, CHUNK_BYTES)?;
    let mut bufs: Vec<Buf> = pool.take().into_iter().collect();
    let mut case = aead_case("", algorithm, piece_bytes);
    let (mut seal, mut open) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let [sealed, opened] = spend(&mut case, &mut bufs, HOT_BYTES, (time.as_nanos() / ROUNDS as u128) as u64);
        seal.push(sealed.1 as f64 / sealed.0 as f64);
        open.push(opened.1 as f64 / opened.0 as f64);
    }
    Ok((median(&seal), median(&open)))
}

/// Works on the chunks again and again for `slice_ns`, at least once.
fn spend(case: &mut Case, bufs: &mut [Buf], reach: usize, slice_ns: u64) -> Spent {
    let mut sum = Spent::default();
    let start = clock::thread_cpu_ns();
    loop {
        let spent = (case.work)(bufs, reach);
        for (sum, spent) in sum.iter_mut().zip(spent) {
            *sum = (sum.0 + spent.0, sum.1 + spent.1);
        }
        if clock::thread_cpu_ns() - start >= slice_ns {
            return sum;
        }
    }
}

/// Processor time of `work`.
fn timed(work: impl FnOnce()) -> u64 {
    let start = clock::thread_cpu_ns();
    work();
    clock::thread_cpu_ns() - start
}

fn cases() -> Vec<Case> {
    let mut cases = vec![
        aead_case("AES-128-GCM", &AES_128_GCM, PIECE_BYTES),
        aead_case("AES-256-GCM", &AES_256_GCM, PIECE_BYTES),
        aead_case("ChaCha20-Poly1305", &CHACHA20_POLY1305, PIECE_BYTES),
    ];
    let gmac = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[7; 16]).expect("16 bytes are its key"));
    let mut counter = 0;
    cases.push(each("GMAC tag, AES-128", PIECE_BYTES, HOT_BYTES, move |bytes| {
        for piece in bytes.chunks(PIECE_BYTES) {
            let tag = gmac.seal_in_place_separate_tag(nonce(&mut counter), Aad::from(piece), &mut []);
            let _ = std::hint::black_box(tag.expect("a piece is below the limit"));
        }
    }));
    cases.push(each("BLAKE3 of a chunk", CHUNK_BYTES, CHUNK_BYTES, |bytes| {
        std::hint::black_box(blake3::hash(bytes));
    }));
    cases.push(each("CRC-64/NVME", CHUNK_BYTES, HOT_BYTES, |bytes| {
        std::hint::black_box(crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes));
    }));
    cases.push(memcpy_case());
    for (name, cover, digest) in [
        ("sealed, BLAKE3 (default)", Cover::Sealed, DigestKind::Blake3),
        ("sealed, CRC-64", Cover::Sealed, DigestKind::Crc64),
        ("clear, BLAKE3", Cover::Hashed, DigestKind::Blake3),
        ("clear, tagged, CRC-64", Cover::Tagged, DigestKind::Crc64),
    ] {
        cases.push(frame_case(name, cover, digest));
    }
    cases
}

/// A case of one line that looks at each chunk.
fn each(name: &str, unit_bytes: usize, hot_bytes: usize, mut work: impl FnMut(&mut [u8]) + 'static) -> Case {
    let work = move |bufs: &mut [Buf], reach: usize| {
        let bytes = (bufs.len() * reach) as u64;
        let ns = timed(|| bufs.iter_mut().for_each(|buf| work(&mut buf.payload_mut()[..reach])));
        [(bytes, ns), (0, 0)]
    };
    Case { names: vec![name.to_owned()], unit_bytes, hot_bytes, work: Box::new(work) }
}

/// Half of each chunk onto the other half; a byte copied counts once.
fn memcpy_case() -> Case {
    let work = |bufs: &mut [Buf], reach: usize| {
        let ns = timed(|| {
            for buf in bufs.iter_mut() {
                let (from, to) = buf.payload_mut()[..reach].split_at_mut(reach / 2);
                to.copy_from_slice(std::hint::black_box(from));
                std::hint::black_box(to);
            }
        });
        [((bufs.len() * reach / 2) as u64, ns), (0, 0)]
    };
    Case { names: vec!["memcpy".to_owned()], unit_bytes: HOT_BYTES, hot_bytes: HOT_BYTES, work: Box::new(work) }
}

fn nonce(counter: &mut u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_le_bytes());
    *counter += 1;
    Nonce::assume_unique_for_key(bytes)
}

/// A cipher by the piece, as it is used on rails.
fn aead_case(name: &str, algorithm: &'static Algorithm, piece_bytes: usize) -> Case {
    let bytes = [7; 32];
    let key = UnboundKey::new(algorithm, &bytes[..algorithm.key_len()]).expect("the length is the algorithm's own");
    let key = LessSafeKey::new(key);
    let (mut sealed, mut opened) = (0, 0);
    let mut tags: Vec<[u8; TAG_BYTES]> = Vec::with_capacity(STREAM_CHUNKS * CHUNK_BYTES.div_ceil(piece_bytes));
    let work = move |bufs: &mut [Buf], reach: usize| {
        tags.clear();
        let seal_ns = timed(|| {
            for piece in bufs.iter_mut().flat_map(|buf| buf.payload_mut()[..reach].chunks_mut(piece_bytes)) {
                let tag = key.seal_in_place_separate_tag(nonce(&mut sealed), Aad::empty(), piece);
                let tag = tag.expect("a piece is below the limit");
                tags.push(tag.as_ref().try_into().expect("every tag has 16 bytes"));
            }
        });
        let open_ns = timed(|| {
            let pieces = bufs.iter_mut().flat_map(|buf| buf.payload_mut()[..reach].chunks_mut(piece_bytes));
            for (piece, tag) in pieces.zip(&tags) {
                let plain = key.open_in_place_separate_tag(nonce(&mut opened), Aad::empty(), tag, piece);
                plain.expect("sealed a moment ago");
            }
        });
        let bytes = (bufs.len() * reach) as u64;
        [(bytes, seal_ns), (bytes, open_ns)]
    };
    let names = vec![format!("{name} seal"), format!("{name} open")];
    Case { names, unit_bytes: piece_bytes, hot_bytes: HOT_BYTES, work: Box::new(work) }
}

/// The engine's own two passes over a chunk: hash and seal, open and hash.
fn frame_case(name: &str, cover: Cover, digest: DigestKind) -> Case {
    let terms = Terms { chunk_bytes: CHUNK_BYTES_MIN, digest, cipher: Cipher::Aes128Gcm, cover, publish_small: false };
    let key = RailKey { secret: [7; 32], place: [7; 18] };
    let (mut sealer, mut opener) = (Sealer::new(terms, key.clone()), Sealer::new(terms, key));
    let mut watch = Stopwatch::new(Arc::new(Counters::default()));
    let mut spans = Vec::with_capacity(STREAM_CHUNKS);
    let mut chunk = 0_u64;
    let work = move |bufs: &mut [Buf], _: usize| {
        spans.clear();
        let first = chunk;
        let seal_ns = timed(|| {
            for buf in bufs.iter_mut() {
                let mut header = header_of(chunk);
                chunk += 1;
                let how = hash_of(&header);
                spans.push(sealer.seal(&mut header, how, buf, &mut watch, |_| ()));
            }
        });
        let open_ns = timed(|| {
            for (buf, span) in bufs.iter_mut().zip(&spans) {
                let head = &buf.whole()[span.at..span.at + SEALED_HEADER_BYTES];
                let mut head: [u8; SEALED_HEADER_BYTES] = head.try_into().expect("cut to this length");
                let header = opener.open_header(&mut head).expect("sealed a moment ago");
                let opened = opener.open_payload(&header, hash_of(&header), buf, &mut watch, |_| ());
                opened.expect("sealed a moment ago");
            }
        });
        let bytes = (chunk - first) * CHUNK_BYTES as u64;
        [(bytes, seal_ns), (bytes, open_ns)]
    };
    let names = vec![format!("frame out: {name}"), format!("frame in: {name}")];
    Case { names, unit_bytes: CHUNK_BYTES, hot_bytes: CHUNK_BYTES, work: Box::new(work) }
}

/// A chunk in the middle of a large file.
fn header_of(chunk: u64) -> Header {
    let offset = chunk * CHUNK_BYTES as u64;
    let payload_bytes = CHUNK_BYTES_MIN;
    Header { kind: ChunkKind::Range, payload_bytes, chunk, entry: 1, offset, crc: 0, digest: [0; 32] }
}

fn hash_of(header: &Header) -> HashAs {
    HashAs { offset: header.offset, whole: false, crc_only: false }
}
