//! What stands on a rail: one greeting, then frames of chunks.
//!
//! For: the fixed layouts that the data path reads and writes without allocating.
//! In and out: greeting, header and pack line to bytes and back; a pack's index checked against its payload.
//! Invariants: decoding never panics; a pack that `pack_lines` accepts covers its payload exactly, once, without gaps.
//! Absent on purpose: keys, MACs, tags, digests (engine).
//!
//! ```text
//! greeting, initiator → acceptor, 64 bytes, in clear, authenticated
//!  0        4        6        8                24               32                64
//!  +--------+--------+--------+----------------+----------------+-----------------+
//!  | "LHRL" | version| rail no| job id (16)    | zero (8)       | MAC (32)        |
//!  +--------+--------+--------+----------------+----------------+-----------------+
//!  MAC: keyed BLAKE3 of bytes 0..32 under the job's rail-greeting key. The answer is one byte: 1 = go on.
//!
//! frame, sender → receiver
//!  +-------------------------+---------------------+------------------------------+
//!  | sealed header 72 + 16   | tags, 16 per piece  | payload, sealed by the piece |
//!  +-------------------------+---------------------+------------------------------+
//!  header (plain form)
//!  0      1      2        4               8          16         24         32        40           72
//!  +------+------+--------+---------------+----------+----------+----------+---------+------------+
//!  | kind | flags| zero   | payload bytes | chunk id | entry id | offset   | CRC-64  | digest     |
//!  +------+------+--------+---------------+----------+----------+----------+---------+------------+
//!  taken, receiver → sender, after frames: u64 count of frames of this rail taken whole so far
//!
//!  kind 1 range: `digest` is the chunk's chaining value (zero with crc64); `entry`, `offset` say where it belongs.
//!  kind 2 pack: `entry` is the count of files, `offset` is 0, `digest` is zero; the payload begins with the index.
//!
//! pack index, one line of 48 bytes per file, contents follow in the same order without gaps
//!  0          8          12         16             48
//!  +----------+----------+----------+--------------+
//!  | entry id | bytes    | zero     | file digest  |
//!  +----------+----------+----------+--------------+
//! ```
//! All integers little endian.

use core::ops::Range;

use crate::error::Breach;
use crate::manifest::EntryId;

pub use crate::manifest::PACK_FILE_BYTES_MAX;

/// Counts chunks of one job in the order the sender hands them out, from 0.
pub type ChunkId = u64;

/// A file's digest or a chunk's chaining value; CRC-64 stands in the first 8 bytes, little endian, the rest zero.
pub type Digest = [u8; 32];

/// Longest content of a file that the protocol can speak of: what `off_t` counts.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Bytes of a rail's greeting.
pub const GREETING_BYTES: usize = 64;
/// Bytes of a header before sealing.
pub const HEADER_BYTES: usize = 72;
/// Bytes of an AEAD tag (GCM and Poly1305 alike).
pub const TAG_BYTES: usize = 16;
/// Bytes of a sealed header.
pub const SEALED_HEADER_BYTES: usize = HEADER_BYTES + TAG_BYTES;
/// Bytes of a line of a pack's index.
pub const PACK_LINE_BYTES: usize = 48;
/// Bytes of the receiver's word on a rail: u64, frames of this rail it has taken whole. It grows with every word.
pub const TAKEN_BYTES: usize = 8;

/// The first bytes of a rail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// Which job.
    pub job: [u8; 16],
    /// Counts the rails of a job over its whole life; a number is never used twice, so no key is either.
    pub rail: u16,
    /// Protocol version.
    pub version: u16,
    /// What follows are the messages of a queue pair, emulated over this connection.
    pub is_pair: bool,
    /// See the drawing.
    pub mac: [u8; 32],
}

/// What a chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkKind {
    /// A range of one file.
    Range,
    /// Whole small files.
    Pack,
}

/// The place and the digests of one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Range or pack.
    pub kind: ChunkKind,
    /// Payload that follows, without tags.
    pub payload_bytes: u32,
    /// The sender's count.
    pub chunk: ChunkId,
    /// File (range) or count of files (pack).
    pub entry: EntryId,
    /// Where in the file.
    pub offset: u64,
    /// CRC-64/NVME of the plain payload.
    pub crc: u64,
    /// Chaining value of the plain payload.
    pub digest: Digest,
}

/// One file in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackLine {
    /// The entry's number in scan order.
    pub entry: EntryId,
    /// How long.
    pub bytes: u32,
    /// Its digest, of the kind agreed.
    pub digest: Digest,
}

/// Longest chunk any plan may name; also the longest payload of a frame.
pub const CHUNK_BYTES_MAX: u32 = 16 << 20;
/// Shortest chunk any plan may name: BLAKE3 subtrees and the cost per chunk both want at least this.
pub const CHUNK_BYTES_MIN: u32 = 1 << 20;
/// The first bytes of a rail; the first of them tells a rail from TLS, whose first byte is 0x16.
pub const GREETING_MAGIC: [u8; 4] = *b"LHRL";
/// The part of a greeting that its MAC covers.
pub const GREETING_PLAIN_BYTES: usize = 32;
/// The acceptor's one byte of answer: go on.
pub const GREETING_GO: u8 = 1;

/// The `N` bytes at `at` of a fixed layout.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("the layout's constants keep every field inside")
}

impl Greeting {
    /// The 64 bytes of the drawing, with the MAC as it stands in `self`.
    #[must_use]
    pub fn encode(&self) -> [u8; GREETING_BYTES] {
        let mut out = [0; GREETING_BYTES];
        out[..4].copy_from_slice(&GREETING_MAGIC);
        out[4..6].copy_from_slice(&self.version.to_le_bytes());
        out[6..8].copy_from_slice(&self.rail.to_le_bytes());
        out[8..24].copy_from_slice(&self.job);
        out[24] = u8::from(self.is_pair);
        out[GREETING_PLAIN_BYTES..].copy_from_slice(&self.mac);
        out
    }

    /// Reads a greeting. The MAC is not checked here: keys belong to the engine, and nothing may be stored before it holds.
    ///
    /// # Errors
    /// `RailGreeting` for other bytes, `VersionUnknown` for a version this build does not speak.
    pub fn decode(bytes: &[u8; GREETING_BYTES]) -> Result<Greeting, Breach> {
        if field::<4>(bytes, 0) != GREETING_MAGIC || bytes[24] > 1 || field::<7>(bytes, 25) != [0; 7] {
            return Err(Breach::RailGreeting);
        }
        let version = u16::from_le_bytes(field(bytes, 4));
        if !(crate::VERSION_MIN..=crate::VERSION).contains(&version) {
            return Err(Breach::VersionUnknown);
        }
        let (job, rail, mac) = (field(bytes, 8), u16::from_le_bytes(field(bytes, 6)), field(bytes, 32));
        Ok(Greeting { job, rail, version, is_pair: bytes[24] == 1, mac })
    }
}

impl Header {
    /// The 72 bytes of the drawing.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0] = match self.kind {
            ChunkKind::Range => 1,
            ChunkKind::Pack => 2,
        };
        out[4..8].copy_from_slice(&self.payload_bytes.to_le_bytes());
        out[8..16].copy_from_slice(&self.chunk.to_le_bytes());
        out[16..24].copy_from_slice(&self.entry.to_le_bytes());
        out[24..32].copy_from_slice(&self.offset.to_le_bytes());
        out[32..40].copy_from_slice(&self.crc.to_le_bytes());
        out[40..].copy_from_slice(&self.digest);
        out
    }

    /// Reads an opened header.
    ///
    /// # Errors
    /// `HeaderKind`, `FieldOutOfRange` (bytes that must be zero are not), `PayloadTooLong`, `ChunkOutOfRange`, `PackIndex`.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, Breach> {
        let kind = match bytes[0] {
            1 => ChunkKind::Range,
            2 => ChunkKind::Pack,
            _ => return Err(Breach::HeaderKind),
        };
        if field::<3>(bytes, 1) != [0; 3] {
            return Err(Breach::FieldOutOfRange);
        }
        let header = Header {
            kind,
            payload_bytes: u32::from_le_bytes(field(bytes, 4)),
            chunk: u64::from_le_bytes(field(bytes, 8)),
            entry: u64::from_le_bytes(field(bytes, 16)),
            offset: u64::from_le_bytes(field(bytes, 24)),
            crc: u64::from_le_bytes(field(bytes, 32)),
            digest: field(bytes, 40),
        };
        if header.payload_bytes > CHUNK_BYTES_MAX {
            return Err(Breach::PayloadTooLong);
        }
        match kind {
            ChunkKind::Range => {
                let end = header.offset.checked_add(u64::from(header.payload_bytes));
                if end.is_none_or(|end| end > FILE_BYTES_MAX) {
                    return Err(Breach::ChunkOutOfRange);
                }
            }
            ChunkKind::Pack => {
                let lines_max = u64::from(header.payload_bytes) / PACK_LINE_BYTES as u64;
                if header.entry == 0 || header.entry > lines_max {
                    return Err(Breach::PackIndex);
                }
                if header.offset != 0 || header.digest != [0; 32] {
                    return Err(Breach::FieldOutOfRange);
                }
            }
        }
        Ok(header)
    }
}

impl PackLine {
    /// The 48 bytes of the drawing.
    #[must_use]
    pub fn encode(&self) -> [u8; PACK_LINE_BYTES] {
        let mut out = [0; PACK_LINE_BYTES];
        out[..8].copy_from_slice(&self.entry.to_le_bytes());
        out[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        out[16..].copy_from_slice(&self.digest);
        out
    }

    /// Reads one line of an index.
    ///
    /// # Errors
    /// `PackIndex` for a file too long to be packed, or bytes that must be zero and are not.
    pub fn decode(bytes: &[u8; PACK_LINE_BYTES]) -> Result<PackLine, Breach> {
        let line = PackLine {
            entry: u64::from_le_bytes(field(bytes, 0)),
            bytes: u32::from_le_bytes(field(bytes, 8)),
            digest: field(bytes, 16),
        };
        if u64::from(line.bytes) > PACK_FILE_BYTES_MAX || field::<4>(bytes, 12) != [0; 4] {
            return Err(Breach::PackIndex);
        }
        Ok(line)
    }
}

/// How many tags stand between header and payload: one per piece begun; none when nothing is tagged (integrity-only with
/// BLAKE3, where the digest in the sealed header authenticates).
#[must_use]
pub const fn frame_tags(payload_bytes: u32, piece_bytes: usize, tagged: bool) -> usize {
    if tagged { (payload_bytes as usize).div_ceil(piece_bytes) } else { 0 }
}

/// The files of one pack, checked as a whole before the first is handed out.
#[derive(Debug, Clone)]
pub struct PackLines<'a> {
    index: &'a [[u8; PACK_LINE_BYTES]],
    at: usize,
}

/// Checks a whole pack: the index lies inside the payload, no file is longer than a packed file may be, and index and
/// contents together are exactly the payload. Then yields each line with the place of its content in `payload`.
///
/// # Errors
/// `PackIndex`, or `PayloadTooLong` above `chunk_bytes`.
pub fn pack_lines(payload: &[u8], count: u64, chunk_bytes: u32) -> Result<PackLines<'_>, Breach> {
    if payload.len() > chunk_bytes as usize {
        return Err(Breach::PayloadTooLong);
    }
    let count = usize::try_from(count).map_err(|_| Breach::PackIndex)?;
    let (lines, _) = payload.as_chunks::<PACK_LINE_BYTES>();
    let index = lines.get(..count).filter(|index| !index.is_empty()).ok_or(Breach::PackIndex)?;
    let mut end = count * PACK_LINE_BYTES;
    for line in index {
        // At most 2^24/48 lines of at most 2^17 bytes each: no overflow.
        end += PackLine::decode(line)?.bytes as usize;
    }
    if end != payload.len() {
        return Err(Breach::PackIndex);
    }
    Ok(PackLines { index, at: count * PACK_LINE_BYTES })
}

impl Iterator for PackLines<'_> {
    type Item = (PackLine, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        let (first, rest) = self.index.split_first()?;
        let line = PackLine::decode(first).expect("`pack_lines` has checked every line");
        let place = self.at..self.at + line.bytes as usize;
        self.index = rest;
        self.at = place.end;
        Some((line, place))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.index.len(), Some(self.index.len()))
    }
}

impl ExactSizeIterator for PackLines<'_> {}
