//! Seal and open against each other and against everything in between that may harm a frame.
//!
//! For: round trips in all covers, ciphers and digests; flips, swaps, replays, nonces.
//! In and out: bufs of a small pool.
//! Invariants: none of its own.
//! Absent on purpose: rails and workers (tests/sim).

use std::collections::HashSet;
use std::sync::Arc;

use proto::wire::chunk::{ChunkKind, HEADER_BYTES, Header};
use proto::wire::control::DigestKind;
use sys::mem::Pool;

use super::*;
use crate::seal::hash::hash_as;
use crate::worker::stages::Counters;

const CHUNK: usize = 1 << 20;
const CIPHERS: [Cipher; 3] = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];
const COVERS: [Cover; 3] = [Cover::Sealed, Cover::Tagged, Cover::Hashed];

fn terms(cover: Cover, cipher: Cipher, digest: DigestKind) -> Terms {
    Terms { chunk_bytes: CHUNK as u32, digest, cipher, cover, publish_small: false }
}

fn key(number: u8) -> RailKey {
    RailKey { secret: [number; 32], place: [number; 18] }
}

fn watch() -> Stopwatch {
    Stopwatch::new(Arc::new(Counters::default()))
}

fn header(kind: ChunkKind, chunk: u64, bytes: usize) -> Header {
    let (entry, offset) = match kind {
        ChunkKind::Range => (5, CHUNK as u64 * 3),
        ChunkKind::Pack => (1, 0),
    };
    Header { kind, payload_bytes: bytes as u32, chunk, entry, offset, crc: 0, digest: [0; 32] }
}

fn fill(buf: &mut Buf, bytes: usize, seed: u8) {
    for (at, byte) in buf.payload_mut()[..bytes].iter_mut().enumerate() {
        *byte = (at as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ seed;
    }
}

/// Both ends of one rail, and a file of eight chunks that all frames are of.
struct Ends {
    terms: Terms,
    seal: Sealer,
    open: Sealer,
    pool: Pool,
}

const FILE_BYTES: u64 = 8 * CHUNK as u64;

impl Ends {
    fn new(terms: Terms) -> Self {
        let (seal, open) = (Sealer::new(terms, key(1)), Sealer::new(terms, key(1)));
        Ends { terms, seal, open, pool: Pool::new(2, CHUNK).expect("memory") }
    }

    fn frame_of(&mut self, kind: ChunkKind, chunk: u64, bytes: usize) -> Vec<u8> {
        self.frame_harmed(kind, chunk, bytes, |_| {})
    }

    fn frame_harmed(&mut self, kind: ChunkKind, chunk: u64, bytes: usize, harm: impl FnMut(&mut [u8])) -> Vec<u8> {
        let mut buf = self.pool.take().expect("a buf");
        fill(&mut buf, bytes, chunk as u8);
        let mut header = header(kind, chunk, bytes);
        let how = hash_as(&header, FILE_BYTES, self.terms.chunk_bytes);
        let span = self.seal.seal(&mut header, how, &mut buf, &mut watch(), harm);
        let frame = buf.whole()[span.at..span.at + span.len].to_vec();
        self.pool.give(buf);
        frame
    }

    /// What the receiving worker does with a frame's bytes.
    fn take(&mut self, frame: &[u8]) -> Result<Result<Vec<u8>, Corrupt>, Breach> {
        self.take_harmed(frame, |_| {})
    }

    fn take_harmed(&mut self, frame: &[u8], harm: impl FnMut(&mut [u8])) -> Result<Result<Vec<u8>, Corrupt>, Breach> {
        let mut sealed: [u8; SEALED_HEADER_BYTES] = frame[..SEALED_HEADER_BYTES].try_into().expect("long enough");
        let header = self.open.open_header(&mut sealed)?;
        let mut buf = self.pool.take().expect("a buf");
        let rest = &frame[SEALED_HEADER_BYTES..];
        let tags = tag_count(self.terms.cover.of(header.kind), header.payload_bytes as usize) * TAG_BYTES;
        assert_eq!(rest.len(), tags + header.payload_bytes as usize);
        buf.whole_mut()[HEADROOM - tags..HEADROOM - tags + rest.len()].copy_from_slice(rest);
        let how = hash_as(&header, FILE_BYTES, self.terms.chunk_bytes);
        let opened = self.open.open_payload(&header, how, &mut buf, &mut watch(), harm);
        let bytes = buf.payload()[..header.payload_bytes as usize].to_vec();
        self.pool.give(buf);
        Ok(opened.map(|_| bytes))
    }
}

fn plain(bytes: usize, chunk: u64) -> Vec<u8> {
    let mut pool = Pool::new(1, CHUNK).expect("memory");
    let mut buf = pool.take().expect("a buf");
    fill(&mut buf, bytes, chunk as u8);
    buf.payload()[..bytes].to_vec()
}

fn each(mut test: impl FnMut(Terms, ChunkKind)) {
    for cipher in CIPHERS {
        for cover in COVERS {
            for kind in [ChunkKind::Range, ChunkKind::Pack] {
                test(terms(cover, cipher, DigestKind::Blake3), kind);
            }
            if cover != Cover::Hashed {
                test(terms(cover, cipher, DigestKind::Crc64), ChunkKind::Range);
            }
        }
    }
}

#[test]
fn every_cover_cipher_and_length_comes_back() {
    each(|terms, kind| {
        let mut ends = Ends::new(terms);
        for (chunk, bytes) in [1, 48, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, CHUNK].into_iter().enumerate() {
            let bytes = if kind == ChunkKind::Pack { bytes.max(48) } else { bytes };
            let frame = ends.frame_of(kind, chunk as u64, bytes);
            let taken = ends.take(&frame).expect("a sound header").expect("a sound payload");
            assert!(taken == plain(bytes, chunk as u64), "{terms:?} {kind:?} {bytes}");
            let in_clear = frame[frame.len() - bytes..] == taken;
            assert_eq!(in_clear, terms.cover.of(kind) != Cover::Sealed, "{terms:?} {kind:?} {bytes}");
        }
    });
}

#[test]
fn a_flipped_bit_anywhere_is_refused_with_its_name() {
    each(|terms, kind| {
        let bytes = PIECE_BYTES + 100;
        let places = [0, 1, 40, HEADER_BYTES - 1, HEADER_BYTES, SEALED_HEADER_BYTES - 1];
        let tags = tag_count(terms.cover.of(kind), bytes) * TAG_BYTES;
        let rest = [0, 15, 16, 31, tags, tags + 1, tags + PIECE_BYTES, tags + bytes - 1];
        for place in places.into_iter().chain(rest.map(|at| at + SEALED_HEADER_BYTES)) {
            let mut ends = Ends::new(terms);
            let mut frame = ends.frame_of(kind, 1, bytes);
            let next = ends.frame_of(kind, 2, bytes);
            frame[place] ^= 1 << (place % 8);
            let taken = ends.take(&frame);
            if place < SEALED_HEADER_BYTES {
                assert_eq!(taken, Err(Breach::HeaderSeal), "{terms:?} {kind:?} byte {place}");
            } else {
                assert_eq!(taken, Ok(Err(Corrupt::Wire)), "{terms:?} {kind:?} byte {place}");
                let after = ends.take(&next).expect("the rail goes on").expect("and the next is sound");
                assert!(after == plain(bytes, 2));
            }
        }
    });
}

#[test]
fn a_bit_that_flips_in_memory_is_named_by_the_end_where_it_flipped() {
    each(|terms, kind| {
        let mut ends = Ends::new(terms);
        let bytes = PIECE_BYTES * 2;
        let mut left = 1;
        let frame = ends.frame_harmed(kind, 1, bytes, |piece| {
            if left == 0 {
                piece[77] ^= 4;
            }
            left -= 1;
        });
        // In clear without tags the digest is all there is: it cannot tell the sender's memory from the wire.
        let named = if terms.cover.of(kind) == Cover::Hashed { Corrupt::Wire } else { Corrupt::SourceMemory };
        assert_eq!(ends.take(&frame), Ok(Err(named)), "{terms:?} {kind:?}");
        if terms.digest == DigestKind::Blake3 && kind == ChunkKind::Range {
            let frame = ends.frame_of(kind, 2, bytes);
            let taken = ends.take_harmed(&frame, |piece| piece[5] ^= 1);
            assert_eq!(taken, Ok(Err(Corrupt::SinkMemory)), "{terms:?} {kind:?}");
        }
    });
}

#[test]
fn frames_swapped_replayed_or_of_another_rail_are_refused() {
    each(|terms, kind| {
        let mut ends = Ends::new(terms);
        let frames: Vec<Vec<u8>> = (0..3).map(|chunk| ends.frame_of(kind, chunk, 5000)).collect();
        ends.take(&frames[0]).expect("in order").expect("sound");
        assert_eq!(ends.take(&frames[2]), Err(Breach::HeaderSeal), "out of order");

        let mut ends = Ends::new(terms);
        let frame = ends.frame_of(kind, 0, 5000);
        ends.take(&frame).expect("in order").expect("sound");
        assert_eq!(ends.take(&frame), Err(Breach::HeaderSeal), "twice");

        for other in [RailKey { place: [2; 18], ..key(1) }, RailKey { secret: [2; 32], ..key(1) }] {
            let mut ends = Ends::new(terms);
            let frame = ends.frame_of(kind, 0, 5000);
            ends.open = Sealer::new(terms, other);
            assert_eq!(ends.take(&frame), Err(Breach::HeaderSeal), "another rail");
        }
    });
}

#[test]
fn the_payload_of_one_frame_does_not_pass_under_the_header_of_another() {
    each(|terms, kind| {
        let mut ends = Ends::new(terms);
        let first = ends.frame_of(kind, 1, 5000);
        let second = ends.frame_of(kind, 2, 5000);
        let mut mixed = first[..SEALED_HEADER_BYTES].to_vec();
        mixed.extend_from_slice(&second[SEALED_HEADER_BYTES..]);
        assert_eq!(ends.take(&mixed), Ok(Err(Corrupt::Wire)), "{terms:?} {kind:?}");
    });
}

#[test]
fn pieces_of_one_frame_do_not_change_places() {
    each(|terms, kind| {
        let mut ends = Ends::new(terms);
        let cover = terms.cover.of(kind);
        let tags = tag_count(cover, 2 * PIECE_BYTES) * TAG_BYTES;
        let mut frame = ends.frame_of(kind, 1, 2 * PIECE_BYTES);
        let payload = SEALED_HEADER_BYTES + tags;
        let (one, two) = frame[payload..].split_at_mut(PIECE_BYTES);
        one.swap_with_slice(two);
        if cover != Cover::Hashed {
            let (one, two) = frame[SEALED_HEADER_BYTES..payload].split_at_mut(TAG_BYTES);
            one.swap_with_slice(two);
        }
        assert_eq!(ends.take(&frame), Ok(Err(Corrupt::Wire)), "{terms:?} {kind:?}");
    });
}

#[test]
fn no_nonce_is_used_twice_under_one_key() {
    for cover in COVERS {
        let mut ends = Ends::new(terms(cover, Cipher::Aes128Gcm, DigestKind::Blake3));
        (ends.seal.epoch_frames, ends.open.epoch_frames) = (3, 3);
        let mut used = HashSet::new();
        for frame in 0..10_u64 {
            let before = if frame % 3 == 0 { 0 } else { ends.seal.counter };
            let kind = if frame % 2 == 0 { ChunkKind::Range } else { ChunkKind::Pack };
            let bytes = 1 + PIECE_BYTES * (1 + frame as usize % 3);
            let sealed = ends.frame_of(kind, frame, bytes);
            let pieces = tag_count(cover.of(kind), bytes) as u64;
            assert_eq!(ends.seal.counter - before, 1 + pieces, "one for the header and one per piece");
            for counter in before..ends.seal.counter {
                assert!(used.insert((frame / 3, counter)), "frame {frame} uses {counter} again");
            }
            assert!(
                ends.take(&sealed).expect("keys change at both ends at once").expect("sound") == plain(bytes, frame)
            );
            assert_eq!(ends.seal.counter, ends.open.counter);
        }
    }
}

#[test]
fn each_epoch_has_its_own_key() {
    let terms = terms(Cover::Sealed, Cipher::Aes128Gcm, DigestKind::Blake3);
    let secret = [1; 32];
    let mut outputs = HashSet::new();
    for epoch in 0..100 {
        let aead = epoch_key(&terms, &secret, epoch);
        let mut bytes = [0; 16];
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        let tag = aead.seal_in_place_separate_tag(nonce, Aad::empty(), &mut bytes).expect("short");
        assert!(outputs.insert((bytes, tag.as_ref().to_vec())));
    }
}
