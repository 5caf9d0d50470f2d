//! The ledger of a part file as bytes on disk.
//!
//! For: resuming after a kill, a lost link or a power cut with only the missing chunks.
//! In and out: a header and records of written chunks to bytes; a journal's bytes to what can be trusted of it.
//! Invariants: a record is appended only after the data it speaks of is stable (or, with `rung_written_only`, is good for the
//! same boot only); one that says *noted* may come before, and is worth nothing until the data was read back and its digests hold; replay stops quietly at the first byte that does not check, never panics, and allocates less than its input is long.
//! Absent on purpose: file calls and the time of flushing (engine's committer).
//!
//! ```text
//! header, 64 bytes
//!  0       4        6       7       8        16       24       28       32        40         60      64
//!  +-------+--------+-------+-------+--------+--------+--------+--------+---------+----------+-------+
//!  | "LHJ1"| version| digest| flags | bytes  | mtime s|mtime ns| chunk  | boot id | zero (20)| CRC   |
//!  +-------+--------+-------+-------+--------+--------+--------+--------+---------+----------+-------+
//!  flags: bit 0 = records speak of data that was written, not flushed; bit 1 = of a file with holes. CRC-32C of bytes 0..60.
//!
//! record, 16 + 32 × count bytes, append only
//!  0          8        12      16
//!  +----------+--------+-------+----------------+----------------+----
//!  | first    | count  | CRC   | digest (32)    | digest (32)    | ...
//!  +----------+--------+-------+----------------+----------------+----
//!  CRC-32C of first, count and all digests. `first` is a chunk index within the file.
//!  With the highest bit of count set: so many chunks that are zeros, without digests (maps of striped files only). With the one below it:
//!  noted, not flushed.
//! ```
//! All integers little endian.

use alloc::vec::Vec;

use crate::manifest::Entry;
use crate::wire::chunk::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN};
use crate::wire::control::{ChunkRange, Digest, DigestKind, FILE_BYTES_MAX};

/// Bytes of a journal's header.
pub const JOURNAL_HEADER_BYTES: usize = 64;
/// Bytes of a record before its digests.
pub const RECORD_HEAD_BYTES: usize = 16;
/// Bytes of a digest in a record.
const DIGEST_BYTES: usize = 32;
/// The version this build writes and reads; another is as good as no journal.
pub const JOURNAL_VERSION: u16 = 1;
/// In a record's count: zeros, without digests.
const HOLE: u32 = 1 << 31;
/// In a record's count: the data was handed to the file system, and nobody waited for the disk.
const NOTED: u32 = 1 << 30;
const MAGIC: [u8; 4] = *b"LHJ1";

/// Which source, cut how, the part belongs to. If one of these differs, the part is done anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalHeader {
    /// Layout; see `JOURNAL_VERSION`.
    pub version: u16,
    /// Length of the source, bytes.
    pub bytes: u64,
    /// Modification time of the source, seconds since 1970.
    pub mtime_s: i64,
    /// Its nanoseconds.
    pub mtime_ns: u32,
    /// Bytes per chunk, a power of two.
    pub chunk_bytes: u32,
    /// What the digests of the records are.
    pub digest: DigestKind,
    /// The receiver's boot: with `rung_written_only` a journal of another boot is worth nothing.
    pub boot_id_hash: [u8; 8],
    /// Records were appended without flushing the data first (`--durability received|written`).
    pub durability_written_only: bool,
    /// Of a striped file that has holes at its source: there may be records of zeros.
    pub sparse: bool,
}

/// Chunks that stand in the part file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Index of the first chunk within the file.
    pub first: u64,
    /// Chaining values of `first`, `first + 1`, …
    pub digests: &'a [Digest],
}

/// What a journal says, as far as it can be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay<'a> {
    /// None: not a journal of this version; nothing below is valid either.
    pub header: Option<JournalHeader>,
    /// In the order of writing; a chunk may appear again, and the later record is the true one.
    pub records: Vec<Record<'a>>,
    /// Chunks that may stand in the part: to be read back before they count.
    pub noted: Vec<Record<'a>>,
    /// Chunks that are zeros and never came; a record of the same chunk is the true one.
    pub holes: Vec<ChunkRange>,
    /// Where the next record may be appended; what follows is torn and must be cut off first.
    pub valid_bytes: usize,
}

impl JournalHeader {
    /// Of this version of a file, durable and of no boot: what a receiver sets besides depends on its host and durability level.
    #[must_use]
    pub fn of(entry: &Entry, chunk_bytes: u32, digest: DigestKind) -> JournalHeader {
        JournalHeader {
            version: JOURNAL_VERSION,
            bytes: entry.bytes(),
            mtime_s: entry.mtime_s,
            mtime_ns: entry.mtime_ns,
            chunk_bytes,
            digest,
            boot_id_hash: [0; 8],
            durability_written_only: false,
            sparse: entry.meta.striped && entry.meta.sparse,
        }
    }

    /// How many chunks the file has; an empty file has none.
    #[must_use]
    pub const fn chunks(&self) -> u64 {
        self.bytes.div_ceil(self.chunk_bytes as u64)
    }

    fn decode(bytes: &[u8]) -> Option<JournalHeader> {
        let head = bytes.first_chunk::<JOURNAL_HEADER_BYTES>()?;
        let crc = u32::from_le_bytes(field(head, 60));
        let flags = head[7];
        if head[..4] != MAGIC || crc != crc32c(&[&head[..60]]) || flags > 3 || field::<20>(head, 40) != [0; 20] {
            return None;
        }
        let header = JournalHeader {
            version: u16::from_le_bytes(field(head, 4)),
            bytes: u64::from_le_bytes(field(head, 8)),
            mtime_s: i64::from_le_bytes(field(head, 16)),
            mtime_ns: u32::from_le_bytes(field(head, 24)),
            chunk_bytes: u32::from_le_bytes(field(head, 28)),
            digest: DigestKind::from_byte(head[6]).ok()?,
            boot_id_hash: field(head, 32),
            durability_written_only: flags & 1 == 1,
            sparse: flags & 2 == 2,
        };
        let valid = header.version == JOURNAL_VERSION
            && header.bytes <= FILE_BYTES_MAX
            && header.mtime_ns < 1_000_000_000
            && header.chunk_bytes.is_power_of_two()
            && (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&header.chunk_bytes);
        valid.then_some(header)
    }
}

/// The first bytes of a journal.
#[must_use]
pub fn encode_header(header: &JournalHeader) -> [u8; JOURNAL_HEADER_BYTES] {
    let mut out = [0; JOURNAL_HEADER_BYTES];
    out[..4].copy_from_slice(&MAGIC);
    out[4..6].copy_from_slice(&header.version.to_le_bytes());
    out[6] = header.digest as u8;
    out[7] = u8::from(header.durability_written_only) | u8::from(header.sparse) << 1;
    out[8..16].copy_from_slice(&header.bytes.to_le_bytes());
    out[16..24].copy_from_slice(&header.mtime_s.to_le_bytes());
    out[24..28].copy_from_slice(&header.mtime_ns.to_le_bytes());
    out[28..32].copy_from_slice(&header.chunk_bytes.to_le_bytes());
    out[32..40].copy_from_slice(&header.boot_id_hash);
    let crc = crc32c(&[&out[..60]]);
    out[60..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Appends one record. An empty list of digests appends nothing.
///
/// # Panics
/// Above 2^30 digests at once.
pub fn encode_record(first: u64, digests: &[Digest], out: &mut Vec<u8>) {
    encode_chunks(first, digests, 0, out);
}

/// Appends one record of chunks that were written and not flushed.
///
/// # Panics
/// Above 2^30 digests at once.
pub fn encode_noted(first: u64, digests: &[Digest], out: &mut Vec<u8>) {
    encode_chunks(first, digests, NOTED, out);
}

/// Appends one record for each run of these chunks, which are in order, by `encode_record` or `encode_noted`.
pub fn encode_runs(chunks: &[(u64, Digest)], encode: fn(u64, &[Digest], &mut Vec<u8>), out: &mut Vec<u8>) {
    for run in chunks.chunk_by(|a, b| a.0 + 1 == b.0) {
        let digests: Vec<Digest> = run.iter().map(|(_, digest)| *digest).collect();
        encode(run[0].0, &digests, out);
    }
}

fn encode_chunks(first: u64, digests: &[Digest], mark: u32, out: &mut Vec<u8>) {
    if digests.is_empty() {
        return;
    }
    let count =
        u32::try_from(digests.len()).ok().filter(|count| *count < NOTED).expect("a record holds what one flush covers");
    encode_head(first, count | mark, digests, out);
    out.extend_from_slice(digests.as_flattened());
}

/// Appends one record of chunks that are zeros.
///
/// # Panics
/// Above 2^30 chunks at once.
pub fn encode_hole(hole: ChunkRange, out: &mut Vec<u8>) {
    let count =
        u32::try_from(hole.end - hole.first).ok().filter(|count| *count < NOTED).expect("within the reach of holes");
    encode_head(hole.first, count | HOLE, &[], out);
}

fn encode_head(first: u64, count: u32, digests: &[Digest], out: &mut Vec<u8>) {
    let mut head = [0; 12];
    head[..8].copy_from_slice(&first.to_le_bytes());
    head[8..].copy_from_slice(&count.to_le_bytes());
    let crc = crc32c(&[&head, digests.as_flattened()]);
    out.extend_from_slice(&head);
    out.extend_from_slice(&crc.to_le_bytes());
}

impl<'a> Replay<'a> {
    /// Reads all that checks, and stops at the first that does not: a power cut tears the tail, and a flipped bit costs
    /// only what comes after it.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Replay<'a> {
        let Some(header) = JournalHeader::decode(bytes) else {
            return Replay { header: None, records: Vec::new(), noted: Vec::new(), holes: Vec::new(), valid_bytes: 0 };
        };
        let (mut records, mut noted, mut holes) = (Vec::new(), Vec::new(), Vec::new());
        let mut rest = &bytes[JOURNAL_HEADER_BYTES..];
        while let Some((record, after)) = next_record(rest, header.chunks()) {
            match record {
                Line::Chunks(record) => records.push(record),
                Line::Noted(record) => noted.push(record),
                Line::Hole(hole) => holes.push(hole),
            }
            rest = after;
        }
        Replay { header: Some(header), records, noted, holes, valid_bytes: bytes.len() - rest.len() }
    }
}

enum Line<'a> {
    Chunks(Record<'a>),
    Noted(Record<'a>),
    Hole(ChunkRange),
}

/// The record at the front, if it is whole, checks, and lies within the file.
fn next_record(bytes: &[u8], chunks: u64) -> Option<(Line<'_>, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<RECORD_HEAD_BYTES>()?;
    let first = u64::from_le_bytes(field(head, 0));
    let count = u32::from_le_bytes(field(head, 8));
    let crc = u32::from_le_bytes(field(head, 12));
    let (count, mark) = ((count & !(HOLE | NOTED)) as usize, count & (HOLE | NOTED));
    let is_hole = mark == HOLE;
    let (all, _) = rest.as_chunks::<DIGEST_BYTES>();
    let digests = all.get(..if is_hole { 0 } else { count })?;
    let end = first.checked_add(count as u64).filter(|end| count > 0 && *end <= chunks)?;
    if crc != crc32c(&[&head[..12], digests.as_flattened()]) {
        return None;
    }
    let line = match mark {
        0 => Line::Chunks(Record { first, digests }),
        NOTED => Line::Noted(Record { first, digests }),
        HOLE => Line::Hole(ChunkRange { first, end }),
        _ => return None,
    };
    Some((line, &rest[digests.len() * DIGEST_BYTES..]))
}

/// The `N` bytes at `at` of a fixed layout.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("the layout's constants keep every field inside")
}

/// CRC-32C (Castagnoli, RFC 3720 appendix B.4) of the parts one after the other. A table, because journals are short and
/// this crate has no `unsafe` for the CPU's own instruction.
fn crc32c(parts: &[&[u8]]) -> u32 {
    const TABLE: [u32; 256] = crc32c_table();
    let mut crc = !0;
    for part in parts {
        for &byte in *part {
            crc = TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8);
        }
    }
    !crc
}

const fn crc32c_table() -> [u32; 256] {
    /// The polynomial 0x1EDC6F41, bits reversed.
    const REVERSED: u32 = 0x82F6_3B78;
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ REVERSED } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn header() -> JournalHeader {
        JournalHeader {
            version: JOURNAL_VERSION,
            bytes: 100 << 20,
            mtime_s: -5,
            mtime_ns: 999_999_999,
            chunk_bytes: 1 << 20,
            digest: DigestKind::Blake3,
            boot_id_hash: *b"bootboot",
            durability_written_only: false,
            sparse: true,
        }
    }

    fn journal() -> Vec<u8> {
        let mut bytes = encode_header(&header()).to_vec();
        encode_record(0, &[[1; 32], [2; 32]], &mut bytes);
        encode_record(98, &[[3; 32], [4; 32]], &mut bytes);
        bytes
    }

    #[test]
    fn crc32c_is_the_one_of_rfc_3720() {
        assert_eq!(crc32c(&[b"123456789"]), 0xE306_9283);
        assert_eq!(crc32c(&[&[0; 32]]), 0x8A91_36AA);
        assert_eq!(crc32c(&[b"1234", b"", b"56789"]), 0xE306_9283);
    }

    #[test]
    fn a_journal_comes_back_whole() {
        let bytes = journal();
        let replay = Replay::parse(&bytes);
        assert_eq!(replay.header, Some(header()));
        assert_eq!(replay.valid_bytes, bytes.len());
        assert_eq!(replay.records.len(), 2);
        assert_eq!(replay.records[1], Record { first: 98, digests: &[[3; 32], [4; 32]] });
    }

    #[test]
    fn records_of_zeros_stand_between_the_others_and_a_flipped_bit_makes_none() {
        let mut bytes = journal();
        let hole = ChunkRange { first: 2, end: 98 };
        encode_hole(hole, &mut bytes);
        encode_record(50, &[[9; 32]], &mut bytes);
        let replay = Replay::parse(&bytes);
        assert_eq!((replay.records.len(), replay.holes, replay.valid_bytes), (3, vec![hole], bytes.len()));
        for bit in 224 * 8..240 * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let replay = Replay::parse(&bytes);
            assert_eq!((replay.holes.len(), replay.valid_bytes), (0, 224), "bit {bit}");
        }
        let mut beyond = journal();
        encode_hole(ChunkRange { first: 99, end: 101 }, &mut beyond);
        assert_eq!(Replay::parse(&beyond).valid_bytes, 224, "beyond the file");
    }

    #[test]
    fn what_was_only_noted_is_told_apart_and_no_flipped_bit_makes_it_more() {
        let mut bytes = journal();
        encode_noted(40, &[[8; 32], [9; 32]], &mut bytes);
        let replay = Replay::parse(&bytes);
        assert_eq!(replay.noted, vec![Record { first: 40, digests: &[[8; 32], [9; 32]] }]);
        assert_eq!((replay.records.len(), replay.valid_bytes), (2, bytes.len()));
        for bit in 224 * 8..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let replay = Replay::parse(&bytes);
            assert_eq!((replay.records.len(), replay.noted.len(), replay.valid_bytes), (2, 0, 224), "bit {bit}");
        }
        // Both marks at once say nothing, even with a sum that holds.
        bytes.truncate(224);
        encode_head(40, 1 | HOLE | NOTED, &[], &mut bytes);
        assert_eq!(Replay::parse(&bytes).valid_bytes, 224);
    }

    #[test]
    fn a_cut_at_any_byte_leaves_a_prefix_of_whole_records() {
        let bytes = journal();
        for end in 0..bytes.len() {
            let replay = Replay::parse(&bytes[..end]);
            let whole = [64, 144, 224].iter().filter(|&&border| border <= end).count();
            assert_eq!(replay.header.is_some(), whole > 0, "cut at {end}");
            assert_eq!(replay.records.len(), whole.saturating_sub(1), "cut at {end}");
            assert_eq!(replay.valid_bytes, if whole == 0 { 0 } else { 64 + 80 * (whole - 1) });
        }
    }

    #[test]
    fn any_flipped_bit_ends_the_replay_before_it() {
        let good = journal();
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Replay::parse(&bytes).valid_bytes <= bit / 8, "bit {bit}");
        }
    }

    #[test]
    fn zeros_after_a_power_cut_and_chunks_beyond_the_file_are_not_believed() {
        let mut bytes = journal();
        let end = bytes.len();
        bytes.extend_from_slice(&vec![0; 4096]);
        assert_eq!(Replay::parse(&bytes).valid_bytes, end);
        bytes.truncate(end);
        encode_record(99, &[[5; 32], [6; 32]], &mut bytes);
        assert_eq!(Replay::parse(&bytes).valid_bytes, end);
        bytes.truncate(end);
        encode_record(u64::MAX, &[[5; 32]], &mut bytes);
        assert_eq!(Replay::parse(&bytes).valid_bytes, end);
    }
}
