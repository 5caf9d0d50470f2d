//! Seal and open: plain buf → frame, frame → plain buf.
//!
//! For: everything that touches payload between the disk and the network, one pass per stage, piece by piece so that each stage finds the
//! bytes its neighbour left in cache.
//! In and out: `seal` turns a filled buf into a frame that stands right before and in the payload; `open_header`, `open_payload` undo it.
//! Invariants: a nonce is used once per key: the counter only grows, keys change every `EPOCH_FRAMES` frames, and a rail number (hence a
//! secret) is used for one connection only; the header is sealed, so a chunk cannot be moved to another place; nothing is handed on
//! before its tag held.
//! Absent on purpose: where keys come from (node/link), which chunk goes next (proto).
//! Sources: RFC 5116 (AEAD), NIST SP 800-38D section 8 (nonces, GMAC), docs/protocol.md "Rails".

use std::io;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use proto::PIECE_BYTES;
use proto::books::Stage;
use proto::error::Breach;
use proto::negotiate::Cipher;
use proto::wire::chunk::{HEADER_BYTES, Header, SEALED_HEADER_BYTES, TAG_BYTES};
use proto::wire::control::Corrupt;
use sys::mem::{Buf, HEADROOM};

use crate::job::{Cover, RailKey, Terms};
use crate::seal::hash::{Hash, HashAs, Hashed, Touch};
use crate::worker::stages::Stopwatch;

/// Frames under one key. × 16 MiB chunks = 2^36 pieces of at most 2^17 bytes at the very most 2^40 bytes; with 1 MiB chunks 64 GiB,
/// within the GCM limits of RFC 8446 section 5.5 scaled to pieces.
const EPOCH_FRAMES: u64 = 1 << 16;

/// The bytes of a header that every piece is bound to.
const PLACE_BYTES: usize = 32;

/// One direction of one rail.
pub struct Sealer {
    terms: Terms,
    key: RailKey,
    aead: LessSafeKey,
    counter: u64,
    frames: u64,
    /// `EPOCH_FRAMES`, but for tests.
    epoch_frames: u64,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").field("terms", &self.terms).field("frames", &self.frames).finish_non_exhaustive()
    }
}

/// Where a frame stands in its buf.
#[derive(Debug, Clone, Copy)]
pub struct FrameSpan {
    /// First byte, counted from the start of the headroom.
    pub at: usize,
    /// Bytes of header, tags and payload.
    pub len: usize,
}

fn algorithm(cipher: Cipher) -> &'static aead::Algorithm {
    match cipher {
        Cipher::Aes128Gcm => &aead::AES_128_GCM,
        Cipher::Aes256Gcm => &aead::AES_256_GCM,
        Cipher::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
    }
}

fn epoch_key(terms: &Terms, secret: &[u8; 32], epoch: u64) -> LessSafeKey {
    let mut hasher = blake3::Hasher::new_keyed(secret);
    hasher.update(b"longhaul rail epoch v1");
    hasher.update(&epoch.to_le_bytes());
    let bytes = *hasher.finalize().as_bytes();
    let algorithm = algorithm(terms.cipher);
    let key = UnboundKey::new(algorithm, &bytes[..algorithm.key_len()]).expect("the length is the algorithm's own");
    LessSafeKey::new(key)
}

/// Tags that stand between header and payload.
#[must_use]
pub fn tag_count(cover: Cover, payload_bytes: usize) -> usize {
    if matches!(cover, Cover::Hashed | Cover::Bare) { 0 } else { payload_bytes.div_ceil(PIECE_BYTES) }
}

impl Sealer {
    /// A new direction of a new rail.
    #[must_use]
    pub fn new(terms: Terms, key: RailKey) -> Self {
        let aead = epoch_key(&terms, &key.secret, 0);
        Sealer { terms, key, aead, counter: 0, frames: 0, epoch_frames: EPOCH_FRAMES }
    }

    fn next_frame(&mut self) -> u64 {
        let frame = self.frames;
        self.frames += 1;
        if frame > 0 && frame.is_multiple_of(self.epoch_frames) {
            self.aead = epoch_key(&self.terms, &self.key.secret, frame / self.epoch_frames);
            self.counter = 0;
        }
        frame
    }

    fn nonce(&mut self) -> Nonce {
        let mut bytes = [0; 12];
        bytes[4..].copy_from_slice(&self.counter.to_le_bytes());
        self.counter += 1;
        Nonce::assume_unique_for_key(bytes)
    }

    /// Hashes and seals the first `header.payload_bytes` of a filled buf and puts the frame's head before them. `header.crc` and
    /// `header.digest` are set here. `harm` is the test hook between the two passes.
    pub fn seal(
        &mut self,
        header: &mut Header,
        how: HashAs,
        buf: &mut Buf,
        watch: &mut Stopwatch,
        mut harm: impl FnMut(&mut [u8]),
    ) -> FrameSpan {
        let touch = |touch, _, piece: &mut [u8]| {
            if touch == Touch::Harm {
                harm(piece);
            }
            Ok(())
        };
        self.seal_filling(header, how, buf, watch, touch).expect("there is nothing to fill, so it cannot fail")
    }

    /// The same for a buf that may not be filled yet: each piece is handed to `touch` with its place in the payload, to be filled, right
    /// before it is hashed, so that it stays in the nearest cache from the source to the seal. When filling fails, nothing was sealed as
    /// far as the rail is concerned: nonces and frame count are as before, and what they sealed is never sent.
    pub fn seal_filling(
        &mut self,
        header: &mut Header,
        how: HashAs,
        buf: &mut Buf,
        watch: &mut Stopwatch,
        mut touch: impl FnMut(Touch, usize, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<FrameSpan> {
        let frame = self.next_frame();
        let before = self.counter;
        let len = header.payload_bytes as usize;
        let cover = self.terms.cover.of(header.kind);
        let tags = tag_count(cover, len);
        let at = HEADROOM - SEALED_HEADER_BYTES - tags * TAG_BYTES;
        let place = place_of(header);
        let header_nonce = self.nonce();
        let mut hash = Hash::new(self.terms.digest, how);
        let (head, payload) = buf.whole_mut().split_at_mut(HEADROOM);
        let tag_room = &mut head[at + SEALED_HEADER_BYTES..];
        for (index, piece) in payload[..len].chunks_mut(PIECE_BYTES).enumerate() {
            let filled = touch(Touch::Fill, index * PIECE_BYTES, piece);
            watch.lap(Stage::Read);
            if let Err(error) = filled {
                (self.frames, self.counter) = (frame, before);
                return Err(error);
            }
            if cover == Cover::Bare {
                continue;
            }
            hash.update(piece);
            watch.lap(Stage::Hash);
            touch(Touch::Harm, index * PIECE_BYTES, piece)?;
            if cover != Cover::Hashed {
                let tag = self.seal_piece(cover, &place, index, piece);
                tag_room[index * TAG_BYTES..(index + 1) * TAG_BYTES].copy_from_slice(tag.as_ref());
                watch.lap(Stage::Seal);
            }
        }
        if cover != Cover::Bare {
            hash.finish_into(header);
        }
        self.seal_header(header, frame, header_nonce, &mut head[at..at + SEALED_HEADER_BYTES]);
        watch.lap(Stage::Seal);
        Ok(FrameSpan { at, len: SEALED_HEADER_BYTES + tags * TAG_BYTES + len })
    }

    /// The head of a frame whose payload follows out of a file, unread.
    pub fn seal_bare(&mut self, header: &Header, buf: &mut Buf) -> FrameSpan {
        let frame = self.next_frame();
        let nonce = self.nonce();
        let at = HEADROOM - SEALED_HEADER_BYTES;
        self.seal_header(header, frame, nonce, &mut buf.whole_mut()[at..HEADROOM]);
        FrameSpan { at, len: SEALED_HEADER_BYTES }
    }

    fn seal_header(&self, header: &Header, frame: u64, nonce: Nonce, into: &mut [u8]) {
        let mut plain = header.encode();
        let tag = self
            .aead
            .seal_in_place_separate_tag(nonce, Aad::from(self.header_place(frame)), &mut plain)
            .expect("a header is far below the AEAD's limit");
        into[..HEADER_BYTES].copy_from_slice(&plain);
        into[HEADER_BYTES..].copy_from_slice(tag.as_ref());
    }

    fn seal_piece(&mut self, cover: Cover, place: &[u8; PLACE_BYTES], index: usize, piece: &mut [u8]) -> aead::Tag {
        let nonce = self.nonce();
        let sealed = match cover {
            Cover::Sealed => self.aead.seal_in_place_separate_tag(nonce, Aad::from(piece_place(place, index)), piece),
            // GMAC: nothing to encrypt, the payload is the associated data; the counter in the nonce binds the place.
            Cover::Tagged => self.aead.seal_in_place_separate_tag(nonce, Aad::from(&*piece), &mut []),
            Cover::Hashed | Cover::Bare => unreachable!("such payload has no pieces"),
        };
        sealed.expect("a piece is far below the AEAD's limit")
    }

    fn header_place(&self, frame: u64) -> [u8; 26] {
        let mut place = [0; 26];
        place[..18].copy_from_slice(&self.key.place);
        place[18..].copy_from_slice(&frame.to_le_bytes());
        place
    }

    /// Opens a sealed header. A failure ends the rail: where the next frame begins is no longer known.
    pub fn open_header(&mut self, sealed: &mut [u8; SEALED_HEADER_BYTES]) -> Result<Header, Breach> {
        let frame = self.next_frame();
        let nonce = self.nonce();
        let place = self.header_place(frame);
        let plain = self.aead.open_in_place(nonce, Aad::from(place), sealed).map_err(|_| Breach::HeaderSeal)?;
        let plain: &[u8; HEADER_BYTES] = (&*plain).try_into().map_err(|_| Breach::HeaderSeal)?;
        Header::decode(plain)
    }

    /// Opens and checks a payload whose tags stand right before it. Outer error: nonces stay in step, so the rail goes on.
    pub fn open_payload(
        &mut self,
        header: &Header,
        how: HashAs,
        buf: &mut Buf,
        watch: &mut Stopwatch,
        mut harm: impl FnMut(&mut [u8]),
    ) -> Result<Hashed, Corrupt> {
        self.open_draining(header, how, buf, watch, |touch, _, piece| {
            if touch == Touch::Harm {
                harm(piece);
            }
        })
    }

    /// The same, and each piece whose tag held is handed to `touch` with its place in the payload, to be drained, while it is in the
    /// nearest cache. The chunk as a whole may still turn out corrupt: then what was drained must be taken back.
    pub fn open_draining(
        &mut self,
        header: &Header,
        how: HashAs,
        buf: &mut Buf,
        watch: &mut Stopwatch,
        mut touch: impl FnMut(Touch, usize, &mut [u8]),
    ) -> Result<Hashed, Corrupt> {
        let len = header.payload_bytes as usize;
        let cover = self.terms.cover.of(header.kind);
        let tags = tag_count(cover, len);
        let place = place_of(header);
        let mut hash = Hash::new(self.terms.digest, how);
        let mut sound = true;
        let (head, payload) = buf.whole_mut().split_at_mut(HEADROOM);
        let tag_room = &head[HEADROOM - tags * TAG_BYTES..];
        for (index, piece) in payload[..len].chunks_mut(PIECE_BYTES).enumerate() {
            if !matches!(cover, Cover::Hashed | Cover::Bare) {
                let tag = &tag_room[index * TAG_BYTES..(index + 1) * TAG_BYTES];
                sound &= self.open_piece(cover, &place, index, piece, tag);
                watch.lap(Stage::Seal);
            }
            if !sound {
                continue; // keep counting nonces
            }
            hash.drain(index, piece, watch, &mut touch);
        }
        if !sound {
            return Err(Corrupt::Wire);
        }
        hash.verdict(header, cover, watch)
    }

    fn open_piece(
        &mut self,
        cover: Cover,
        place: &[u8; PLACE_BYTES],
        index: usize,
        piece: &mut [u8],
        tag: &[u8],
    ) -> bool {
        let nonce = self.nonce();
        match cover {
            Cover::Sealed => {
                self.aead.open_in_place_separate_tag(nonce, Aad::from(piece_place(place, index)), tag, piece).is_ok()
            }
            Cover::Tagged => self.aead.open_in_place_separate_tag(nonce, Aad::from(&*piece), tag, &mut []).is_ok(),
            Cover::Hashed | Cover::Bare => true,
        }
    }
}

fn place_of(header: &Header) -> [u8; PLACE_BYTES] {
    let encoded = header.encode();
    encoded[..PLACE_BYTES].try_into().expect("a header is longer")
}

fn piece_place(place: &[u8; PLACE_BYTES], index: usize) -> [u8; PLACE_BYTES + 4] {
    let mut bytes = [0; PLACE_BYTES + 4];
    bytes[..PLACE_BYTES].copy_from_slice(place);
    bytes[PLACE_BYTES..].copy_from_slice(&(index as u32).to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests; // round trips, flips, replays, nonces
