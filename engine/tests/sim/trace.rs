//! What workers asked of the simulated world, as one number per story.
//!
//! For: telling whether a change of the engine's shape changed what the engine does: the same seed must leave the same digest before and after.
//! In and out: every op, burst and cut in the order in which a worker hands it over, with its place and length → a digest of 64 bits.
//! Invariants: one story runs on one thread, so the digest of a thread is the digest of its story; nothing of it depends on addresses, on
//! tokens or on the machine's clock.
//! Absent on purpose: payload (the checker compares every byte), what the job ends do (their effects reach the world through the workers).

use std::cell::Cell;

thread_local! { static DIGEST: Cell<u64> = const { Cell::new(0) }; }

/// A story begins on this thread.
pub(crate) fn begin() {
    DIGEST.set(0);
}

/// One fact: what kind, and its numbers in order.
pub(crate) fn note(kind: &str, numbers: &[u64]) {
    let of_kind = kind.bytes().map(u64::from);
    DIGEST.set(of_kind.chain(numbers.iter().copied()).fold(DIGEST.get(), mix));
}

/// The digest of everything that was noted since `begin`.
pub(crate) fn digest() -> u64 {
    DIGEST.get()
}

/// One step of a digest: splitmix64 (Steele, Lea, Flood 2014) over the sum of both.
pub(crate) fn mix(digest: u64, word: u64) -> u64 {
    let mut mixed = (digest ^ word).wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
