//! Digests of long runs of zeros, without hashing them.
//!
//! For: holes, which are neither read nor sent, in files whose digest is that of all their bytes.
//! In and out: where a run of zeros begins and how long it is → its digest as a part of a file.
//! Invariants: what is answered is what hashing would answer; `make zeros` hashes all of the table again.
//! Absent on purpose: whole files of zeros (the last chunk of a file always travels).
//! Source: BLAKE3 paper, section 2.4: each block of 1 KiB is compressed with its number, so that no two runs of zeros have the same
//! chaining value; but each has one for ever, whatever the file.

use blake3::hazmat::{HasherExt, Mode, left_subtree_len, merge_subtrees_non_root};
use proto::wire::control::{Digest, DigestKind, HOLE_REACH_BYTES};
use std::sync::LazyLock;

use super::{crc_digest, join_crc};

/// One entry of the table speaks of so many bytes. Half as many would be 1 MiB more of binary; twice as many, 10 ms more of hashing for
/// each island of data in a hole (6 GB/s).
pub const ZEROS_BYTES: u64 = 64 << 20;

/// Chaining values of zeros at 0, 64 MiB, … up to the reach.
static TABLE: &[u8; (HOLE_REACH_BYTES / ZEROS_BYTES) as usize * 32] = include_bytes!("zeros.bin");

/// What is hashed where the table has no answer: it stays in the nearest cache, so no memory is moved.
static PAGE: LazyLock<Box<[u8]>> = LazyLock::new(|| vec![0; 64 << 10].into());

/// The digest of `bytes` zeros at `offset` of a longer file. For BLAKE3 they must be a subtree of the file's tree.
#[must_use]
pub fn zeros_digest(kind: DigestKind, offset: u64, bytes: u64) -> Digest {
    match kind {
        DigestKind::Blake3 => chaining_value(offset, bytes),
        DigestKind::Crc64 => crc_digest(crc_of_zeros(bytes)),
    }
}

fn chaining_value(offset: u64, bytes: u64) -> Digest {
    if bytes == ZEROS_BYTES && offset.is_multiple_of(ZEROS_BYTES) && offset < HOLE_REACH_BYTES {
        let (entries, _) = TABLE.as_chunks::<32>();
        return entries[(offset / ZEROS_BYTES) as usize];
    }
    if bytes <= ZEROS_BYTES {
        return hash_zeros(offset, bytes);
    }
    let left = left_subtree_len(bytes);
    merge_subtrees_non_root(&chaining_value(offset, left), &chaining_value(offset + left, bytes - left), Mode::Hash)
}

/// The same by hashing them.
#[must_use]
pub fn hash_zeros(offset: u64, bytes: u64) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(offset);
    let mut left = bytes;
    while left > 0 {
        let part = left.min(PAGE.len() as u64);
        hasher.update(&PAGE[..part as usize]);
        left -= part;
    }
    hasher.finalize_non_root()
}

/// By doubling: a few µs for any length.
fn crc_of_zeros(bytes: u64) -> u64 {
    let crc = |bytes: &[u8]| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes);
    let (mut all, mut all_bytes) = (crc(&[]), 0);
    let (mut power, mut power_bytes) = (crc(&[0]), 1_u64);
    let mut left = bytes;
    while left > 0 {
        if left & 1 == 1 {
            all = if all_bytes == 0 { power } else { join_crc(all, power, power_bytes) };
            all_bytes += power_bytes;
        }
        left >>= 1;
        if left > 0 {
            power = join_crc(power, power, power_bytes);
            power_bytes *= 2;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_what_hashing_gives() {
        // Ends, middle, and some between; all of them take minutes.
        for entry in [0, 1, 2, 1023, 8191, 8192, 12_345, 16_383] {
            let offset = entry * ZEROS_BYTES;
            assert_eq!(chaining_value(offset, ZEROS_BYTES), hash_zeros(offset, ZEROS_BYTES), "entry {entry}");
        }
    }

    #[test]
    fn no_two_entries_are_the_same_and_their_sum_is_what_was_computed_once() {
        let (entries, _) = TABLE.as_chunks::<32>();
        let different: std::collections::HashSet<_> = entries.iter().collect();
        assert_eq!(different.len(), entries.len());
        assert_eq!(
            blake3::hash(TABLE).to_hex().as_str(),
            SUM,
            "`make zeros` says whether the table or this line is wrong"
        );
    }

    const SUM: &str = "de422eea4e31341f07db88263b0bf076ddccf874188fe3c8b352c33340eef5e9";

    #[test]
    fn parts_of_any_length_are_those_of_the_bytes() {
        let mib = 1 << 20;
        for (offset, bytes) in
            [(0, mib), (3 * mib, mib), (4 * mib, 4 * mib), (64 * mib, 64 * mib), (0, 128 * mib), (128 * mib, 128 * mib)]
        {
            assert_eq!(
                zeros_digest(DigestKind::Blake3, offset, bytes),
                hash_zeros(offset, bytes),
                "{bytes} at {offset}"
            );
        }
    }

    #[test]
    fn the_crc_of_zeros_is_that_of_the_bytes() {
        for bytes in [0, 1, 2, 3, 63, 64, 65, 4096, 65_535, 65_536] {
            let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &PAGE[..bytes]);
            assert_eq!(crc_of_zeros(bytes as u64), crc, "{bytes} zeros");
        }
        // Two halves of a run too long to be hashed here.
        let half = crc_of_zeros(1 << 39);
        assert_eq!(join_crc(half, half, 1 << 39), crc_of_zeros(1 << 40));
    }
}
