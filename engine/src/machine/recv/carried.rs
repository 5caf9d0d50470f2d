//! Digests of files that an earlier run published.
//!
//! For: the receipt of files that are kept as they stand.
//! In and out: a path → its key; lengths, times and digests by key.
//! Invariants: a digest counts only for the length and time that it was taken with (`entries`).
//! Absent on purpose: where they are kept (the job's driver).

use std::collections::HashMap;

use proto::wire::control::Digest;

/// Digests of files published by an earlier run, by the first 16 bytes of the path's BLAKE3.
pub type Carried = HashMap<[u8; 16], (u64, i64, u32, Digest)>;

/// The key of `Carried`.
#[must_use]
pub fn carried_key(path: &[u8]) -> [u8; 16] {
    let hash = blake3::hash(path);
    let mut key = [0; 16];
    key.copy_from_slice(&hash.as_bytes()[..16]);
    key
}
