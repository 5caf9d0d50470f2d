//! The ledger of one file: the state of each of its chunks at the receiver.
//!
//! For: knowing what is missing, what has landed and what is durable, in 2 bits per chunk.
//! In and out: chunk indices in, counts and missing ranges out.
//! Invariants: `Missing → Landed → Durable`, one step at a time, never back; what an earlier run claims is `Claimed` until it was read back, and
//! then one of these; asserted in `advance`.
//! Absent on purpose: bytes, digests (engine's digest tree), disk form (journal.rs).

use alloc::vec;
use alloc::vec::Vec;

use crate::wire::control::ChunkRange;

/// What is known of one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkState {
    /// from: –, Claimed · to: Landed, Claimed. Not here yet.
    Missing,
    /// from: Missing · to: Missing, Landed, Durable. An earlier run says that it wrote it; nobody has read it back yet.
    Claimed,
    /// from: Missing, Claimed · to: Durable. Opened, checked, handed to the file system.
    Landed,
    /// from: Landed, Claimed · to: –. On stable storage, or kept from a journal that says so.
    Durable,
}

#[derive(Debug, Clone)]
struct Bits {
    words: Vec<u64>,
    count: u64,
}

impl Bits {
    fn new(len: u64) -> Self {
        Bits { words: vec![0; len.div_ceil(64) as usize], count: 0 }
    }
    fn has(&self, index: u64) -> bool {
        self.words[(index / 64) as usize] >> (index % 64) & 1 == 1
    }
    fn set(&mut self, index: u64) {
        self.words[(index / 64) as usize] |= 1 << (index % 64);
        self.count += 1;
    }
    fn clear(&mut self, index: u64) {
        self.words[(index / 64) as usize] &= !(1 << (index % 64));
        self.count -= 1;
    }
}

/// State of all chunks of one file.
#[derive(Debug, Clone)]
pub struct Ledger {
    chunks: u64,
    landed: Bits,
    /// Of a chunk that has landed: is it durable? Of one that has not: is it claimed?
    firm: Bits,
    claimed: u64,
}

impl Ledger {
    /// All chunks missing.
    #[must_use]
    pub fn new(chunks: u64) -> Self {
        Ledger { chunks, landed: Bits::new(chunks), firm: Bits::new(chunks), claimed: 0 }
    }

    /// How many chunks the file has.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// The state of one chunk.
    #[must_use]
    pub fn state(&self, index: u64) -> ChunkState {
        match (self.landed.has(index), self.firm.has(index)) {
            (true, true) => ChunkState::Durable,
            (true, false) => ChunkState::Landed,
            (false, true) => ChunkState::Claimed,
            (false, false) => ChunkState::Missing,
        }
    }

    /// One step up the ladder; the table in `ChunkState` is the assertion.
    pub fn advance(&mut self, index: u64, to: ChunkState) {
        let from = self.state(index);
        match (from, to) {
            (ChunkState::Missing, ChunkState::Landed) => self.landed.set(index),
            (ChunkState::Landed, ChunkState::Durable) => self.firm.set(index),
            (ChunkState::Missing, ChunkState::Claimed) => {
                self.firm.set(index);
                self.claimed += 1;
            }
            (ChunkState::Claimed, ChunkState::Missing | ChunkState::Landed | ChunkState::Durable) => {
                self.claimed -= 1;
                if to != ChunkState::Durable {
                    self.firm.clear(index);
                }
                if to != ChunkState::Missing {
                    self.landed.set(index);
                }
            }
            _ => panic!("ledger: chunk {index} may not go from {from:?} to {to:?}"),
        }
    }

    /// Have all chunks landed?
    #[must_use]
    pub fn is_landed(&self) -> bool {
        self.landed.count == self.chunks
    }

    /// How many chunks have landed.
    #[must_use]
    pub fn landed_count(&self) -> u64 {
        self.landed.count
    }

    /// How many chunks are claimed and were not read back.
    #[must_use]
    pub fn claimed_count(&self) -> u64 {
        self.claimed
    }

    /// The missing chunks as ranges, ascending.
    #[must_use]
    pub fn missing(&self) -> Vec<ChunkRange> {
        if self.landed.count + self.claimed == 0 && self.chunks > 0 {
            return vec![ChunkRange { first: 0, end: self.chunks }];
        }
        self.ranges(ChunkState::Missing)
    }

    /// The claimed chunks as ranges, ascending.
    #[must_use]
    pub fn claimed(&self) -> Vec<ChunkRange> {
        self.ranges(ChunkState::Claimed)
    }

    fn ranges(&self, state: ChunkState) -> Vec<ChunkRange> {
        let mut ranges: Vec<ChunkRange> = Vec::new();
        for index in (0..self.chunks).filter(|&index| self.state(index) == state) {
            match ranges.last_mut() {
                Some(range) if range.end == index => range.end = index + 1,
                _ => ranges.push(ChunkRange { first: index, end: index + 1 }),
            }
        }
        ranges
    }
}

/// Chunks of one file, at most: 64 TiB in chunks of 1 MiB, 1 PiB in chunks of 16 MiB; its ledger takes 16 MiB. A peer that announces
/// more must not make us ask for that much memory.
pub const CHUNKS_MAX: u64 = 1 << 26;

/// How many chunks a file of `bytes` has.
#[must_use]
pub fn chunk_count(bytes: u64, chunk_bytes: u32) -> u64 {
    bytes.div_ceil(u64::from(chunk_bytes))
}

/// How long chunk `index` of a file of `bytes` is.
#[must_use]
pub fn chunk_len(bytes: u64, chunk_bytes: u32, index: u64) -> u32 {
    let start = index * u64::from(chunk_bytes);
    u32::try_from(bytes.saturating_sub(start).min(u64::from(chunk_bytes))).unwrap_or(chunk_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranges_are_joined() {
        let mut ledger = Ledger::new(130);
        for index in [0, 1, 63, 64, 129] {
            ledger.advance(index, ChunkState::Landed);
        }
        let ranges: Vec<_> = ledger.missing().iter().map(|r| (r.first, r.end)).collect();
        assert_eq!(ranges, [(2, 63), (65, 129)]);
        assert_eq!(ledger.landed_count(), 5);
        let mut ledger = Ledger::new(3);
        ledger.advance(0, ChunkState::Landed);
        assert_eq!(ledger.missing(), [ChunkRange { first: 1, end: 3 }], "up to the end of the file");
        assert_eq!(Ledger::new(1).missing(), [ChunkRange { first: 0, end: 1 }]);
    }

    #[test]
    fn what_is_claimed_is_neither_missing_nor_there_until_it_was_read_back() {
        let mut ledger = Ledger::new(4);
        for index in 0..3 {
            ledger.advance(index, ChunkState::Claimed);
        }
        assert_eq!(ledger.missing(), [ChunkRange { first: 3, end: 4 }]);
        ledger.advance(3, ChunkState::Landed);
        ledger.advance(0, ChunkState::Durable);
        ledger.advance(1, ChunkState::Landed);
        assert_eq!((ledger.claimed_count(), ledger.landed_count(), ledger.is_landed()), (1, 3, false));
        assert_eq!(ledger.claimed(), [ChunkRange { first: 2, end: 3 }]);
        ledger.advance(2, ChunkState::Missing);
        assert_eq!((ledger.claimed_count(), ledger.missing()), (0, vec![ChunkRange { first: 2, end: 3 }]));
        assert_eq!(
            [0, 1, 2].map(|it| ledger.state(it)),
            [ChunkState::Durable, ChunkState::Landed, ChunkState::Missing]
        );
    }

    #[test]
    #[should_panic(expected = "may not go")]
    fn a_chunk_cannot_be_durable_before_it_landed() {
        Ledger::new(1).advance(0, ChunkState::Durable);
    }

    #[test]
    fn the_last_chunk_is_short() {
        assert_eq!(chunk_count((1 << 20) + 1, 1 << 20), 2);
        assert_eq!(chunk_len((1 << 20) + 1, 1 << 20, 1), 1);
        assert_eq!(chunk_count(0, 1 << 20), 0);
    }
}
