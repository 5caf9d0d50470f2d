//! Digests of a payload on its way: at the source, and checked at the sink.
//!
//! For: both kinds of rails; on a stream rail each piece is sealed or opened beside it (`frame`), on a datagram rail packets are (`packet`).
//! In and out: pieces in order; the header's CRC and digest out, or what was harmed.
//! Invariants: a piece is hashed once for each digest, right after it was filled or opened, while it is in the nearest cache.
//! Absent on purpose: digests of whole files (`digest`).

use std::io;

use blake3::hazmat::HasherExt;
use crc_fast::CrcAlgorithm;
use proto::PIECE_BYTES;
use proto::books::Stage;
use proto::wire::chunk::{ChunkKind, Header};
use proto::wire::control::{Corrupt, Digest, DigestKind};
use sys::mem::Buf;

use crate::job::{Cover, Terms};
use crate::seal::digest::crc_digest;
use crate::worker::stages::Stopwatch;

/// What the digest pass found.
#[derive(Debug, Clone, Copy)]
pub struct Hashed {
    /// CRC-64/NVME of the payload.
    pub crc: u64,
    /// Chaining value, file digest (one-chunk file) or CRC as digest.
    pub digest: Digest,
}

/// Why a piece is handed out on its way through the passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// Its bytes are wanted now.
    Fill,
    /// Between two passes: where a test flips bits.
    Harm,
    /// It was opened and hashed: its bytes may go on.
    Drain,
}

/// What a payload is hashed as.
#[derive(Debug, Clone, Copy)]
pub struct HashAs {
    /// Where it stands in its file.
    pub offset: u64,
    /// It is the whole file: the digest is the root, not a chaining value.
    pub whole: bool,
    /// A pack: only the CRC.
    pub crc_only: bool,
}

/// A pack has no digest of its own; its CRC guards it on the way.
#[must_use]
pub fn hash_as(header: &Header, file_bytes: u64, chunk_bytes: u32) -> HashAs {
    match header.kind {
        ChunkKind::Pack => HashAs { offset: 0, whole: false, crc_only: true },
        ChunkKind::Range => {
            HashAs { offset: header.offset, whole: file_bytes <= u64::from(chunk_bytes), crc_only: false }
        }
    }
}

/// Running digests of one payload.
pub(crate) struct Hash {
    crc: crc_fast::Digest,
    blake3: Option<blake3::Hasher>,
    how: HashAs,
    /// The digest is enough: no CRC travels beside it.
    alone: bool,
}

impl Hash {
    pub(super) fn new(kind: DigestKind, how: HashAs) -> Self {
        let blake3 = (kind == DigestKind::Blake3 && !how.crc_only).then(|| {
            let mut hasher = blake3::Hasher::new();
            if !how.whole {
                hasher.set_input_offset(how.offset);
            }
            hasher
        });
        Hash { crc: crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme), blake3, how, alone: false }
    }

    /// With BLAKE3 no CRC beside it, for a payload that travels nowhere.
    pub(crate) fn alone(kind: DigestKind, how: HashAs) -> Self {
        let hash = Hash::new(kind, how);
        Hash { alone: hash.blake3.is_some(), ..hash }
    }

    pub(crate) fn finish(self) -> Hashed {
        let crc = self.crc.finalize();
        let digest = match self.blake3 {
            Some(hasher) if self.how.whole => *hasher.finalize().as_bytes(),
            Some(hasher) => hasher.finalize_non_root(),
            None if self.how.crc_only => [0; 32],
            None => crc_digest(crc),
        };
        Hashed { crc, digest }
    }

    #[inline]
    pub(crate) fn update(&mut self, piece: &[u8]) {
        if !self.alone {
            self.crc.update(piece);
        }
        if let Some(hasher) = &mut self.blake3 {
            hasher.update(piece);
        }
    }

    /// A piece that came: hashed, then handed on.
    pub(super) fn drain(
        &mut self,
        index: usize,
        piece: &mut [u8],
        watch: &mut Stopwatch,
        touch: &mut impl FnMut(Touch, usize, &mut [u8]),
    ) {
        self.crc.update(piece);
        // Between the two passes: what flips here is seen by the digest alone.
        touch(Touch::Harm, index * PIECE_BYTES, piece);
        if let Some(hasher) = &mut self.blake3 {
            hasher.update(piece);
        }
        watch.lap(Stage::Hash);
        touch(Touch::Drain, index * PIECE_BYTES, piece);
        watch.lap(Stage::Write);
    }

    /// At the source: the header carries what was found.
    pub(super) fn finish_into(self, header: &mut Header) {
        let crc_only = self.how.crc_only;
        let hashed = self.finish();
        header.crc = hashed.crc;
        if !crc_only {
            header.digest = hashed.digest;
        }
    }

    /// At the sink: is it what the header says?
    pub(super) fn verdict(self, header: &Header, cover: Cover, watch: &mut Stopwatch) -> Result<Hashed, Corrupt> {
        let crc_only = self.how.crc_only;
        let hashed = self.finish();
        watch.lap(Stage::Hash);
        if cover == Cover::Bare {
            return Ok(hashed); // of what came: nobody knows what should have
        }
        if hashed.crc != header.crc {
            // Without tags the digest in the sealed header is what vouches: a wrong CRC may come from the wire as well.
            return Err(if cover == Cover::Hashed { Corrupt::Wire } else { Corrupt::SourceMemory });
        }
        if !crc_only && hashed.digest != header.digest {
            return Err(Corrupt::SinkMemory);
        }
        Ok(hashed)
    }
}

/// Fills and hashes a payload that no frame is made of (a datagram rail seals packets): `seal_filling` without the seal. `header.crc` and
/// `header.digest` are set here.
pub(crate) fn hash_filling(
    kind: DigestKind,
    header: &mut Header,
    how: HashAs,
    buf: &mut Buf,
    watch: &mut Stopwatch,
    mut touch: impl FnMut(Touch, usize, &mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut hash = Hash::new(kind, how);
    let payload = &mut buf.payload_mut()[..header.payload_bytes as usize];
    for (index, piece) in payload.chunks_mut(PIECE_BYTES).enumerate() {
        let filled = touch(Touch::Fill, index * PIECE_BYTES, piece);
        watch.lap(Stage::Read);
        filled?;
        hash.update(piece);
        watch.lap(Stage::Hash);
        touch(Touch::Harm, index * PIECE_BYTES, piece)?;
    }
    hash.finish_into(header);
    Ok(())
}

/// Checks a payload that came in packets, whose tags held: `open_draining` without opening.
pub(crate) fn check_draining(
    terms: &Terms,
    header: &Header,
    how: HashAs,
    buf: &mut Buf,
    watch: &mut Stopwatch,
    mut touch: impl FnMut(Touch, usize, &mut [u8]),
) -> Result<Hashed, Corrupt> {
    let mut hash = Hash::new(terms.digest, how);
    let payload = &mut buf.payload_mut()[..header.payload_bytes as usize];
    for (index, piece) in payload.chunks_mut(PIECE_BYTES).enumerate() {
        hash.drain(index, piece, watch, &mut touch);
    }
    hash.verdict(header, terms.cover.of(header.kind), watch)
}

/// The digest of a chunk at `offset` of a file of `file_bytes`: what its header would carry.
#[must_use]
pub fn chunk_digest(terms: &Terms, file_bytes: u64, offset: u64, bytes: &[u8]) -> Digest {
    let whole = file_bytes <= u64::from(terms.chunk_bytes);
    let mut hash = Hash::new(terms.digest, HashAs { offset, whole, crc_only: false });
    hash.update(bytes);
    hash.finish().digest
}
