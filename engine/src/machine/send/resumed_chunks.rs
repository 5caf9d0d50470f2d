//! The chunks of one file that the receiver has from an earlier run.
//!
//! For: `resumed`, which has the source read them again.
//! In and out: ranges that are asked for in; batches of the others out.
//! Invariants: each chunk is handed out once, in order; a range is one of these or one of the others, never both.
//! Absent on purpose: digests (the file's tree), reading (the comparer).

use std::collections::VecDeque;

use proto::wire::control::ChunkRange;

/// Read at once: so much that the files take turns, and that the watchdog sees that it goes on.
const BATCH_BYTES: u64 = 64 << 20;

/// Chunks of one file that the receiver has from an earlier run.
#[derive(Debug)]
pub(super) struct Resumed {
    all: Vec<ChunkRange>,
    /// Those that the comparer was not given yet.
    left: VecDeque<ChunkRange>,
    /// It has some in hand.
    pub(super) reading: bool,
    /// All else is read: `FileEnd` waits for these.
    pub(super) held: bool,
}

impl Resumed {
    /// All chunks of a file but those that are asked for, which ascend.
    pub(super) fn but(asked: &[ChunkRange], chunks: u64) -> Resumed {
        let mut all = Vec::with_capacity(asked.len() + 1);
        let mut next = 0;
        for range in asked.iter().copied().chain([ChunkRange { first: chunks, end: chunks }]) {
            if range.first > next {
                all.push(ChunkRange { first: next, end: range.first });
            }
            next = range.end;
        }
        Resumed { left: all.iter().copied().collect(), all, reading: false, held: false }
    }

    pub(super) fn next(&mut self, chunk_bytes: u64) -> Option<ChunkRange> {
        let range = self.left.front_mut()?;
        let end = range.end.min(range.first + (BATCH_BYTES / chunk_bytes).max(1));
        let batch = ChunkRange { first: std::mem::replace(&mut range.first, end), end };
        if range.first == range.end {
            self.left.pop_front();
        }
        self.reading = true;
        Some(batch)
    }

    pub(super) fn is_over(&self) -> bool {
        self.left.is_empty() && !self.reading
    }

    /// Is the comparer's digest of this chunk the one that counts?
    pub(super) fn has(&self, index: u64) -> bool {
        self.all.iter().any(|it| (it.first..it.end).contains(&index))
    }

    /// What of a range is none of these.
    pub(super) fn others(&self, range: ChunkRange) -> Vec<ChunkRange> {
        let mut others = Vec::new();
        let mut next = range.first;
        for own in self.all.iter().filter(|it| it.first < range.end && it.end > range.first) {
            if own.first > next {
                others.push(ChunkRange { first: next, end: own.first });
            }
            next = own.end;
        }
        if next < range.end {
            others.push(ChunkRange { first: next, end: range.end });
        }
        others
    }
}
