//! Files on their way: what of each has landed, and what its journals say of it.
//!
//! For: `parts` and `progress`, which flush and note.
//! In and out: chunks that landed in; what is due to be flushed or noted out.
//! Invariants: a chunk is taken for a flush once; one flush of a part is on its way at a time, and it covers only what has its note.
//! Absent on purpose: the clock and the calls.

use std::collections::{BTreeMap, BTreeSet};

use proto::wire::control::{ChunkRange, Digest};

use crate::seal::digest::DigestTree;
use crate::tree::commit::{FLUSH_BYTES, FLUSH_NS, NOTE_BYTES, NOTE_NS};

/// What becomes of a part's fresh chunks in its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Noting {
    /// Noted, then flushed and recorded.
    Before,
    /// Recorded as written, as often as others are noted: nobody asked for a flush.
    Instead,
    /// Flushed and recorded.
    Never,
}

/// A file on its way.
#[derive(Debug)]
pub(super) struct Coming {
    pub(super) tree: DigestTree,
    pub(super) journalled: bool,
    pub(super) striped: bool,
    /// Flushed before each record: the job asks for it, or the journal's header promises it.
    pub(super) durable: bool,
    /// By volume.
    pub(super) fresh: BTreeMap<usize, Fresh>,
    /// All of it has landed: it waits for nothing but the flushes of its pieces, or a note that is on its way.
    pub(super) closing: bool,
    pub(super) durable_bytes: u64,
    /// Bytes of holes told.
    pub(super) holes: u64,
    /// Of a striped file: those that stand in no map yet.
    pub(super) unmapped: Vec<ChunkRange>,
    /// Some of it is of an earlier run.
    pub(super) resumed: bool,
}

impl Coming {
    /// Do the journals speak of all that has landed?
    pub(super) fn is_flushed(&self) -> bool {
        let is_flushed = |fresh: &Fresh| fresh.chunks.is_empty() && fresh.holes.is_empty() && !fresh.flushing;
        self.unmapped.is_empty() && self.fresh.values().all(is_flushed)
    }

    /// Is a flush of it on its way?
    pub(super) fn is_flushing(&self) -> bool {
        self.fresh.values().any(|fresh| fresh.flushing)
    }

    pub(super) fn noting(&self) -> Noting {
        match (self.durable, self.striped) {
            (false, _) => Noting::Instead,
            (true, true) => Noting::Never,
            (true, false) => Noting::Before,
        }
    }
}

/// What landed in a part since its last flush.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    pub(super) header_written: bool,
    /// In the order of landing.
    pub(super) chunks: Vec<(u64, Digest)>,
    /// The journal has notes of so many of them.
    pub(super) noted: usize,
    /// Zeros, told since then.
    pub(super) holes: Vec<ChunkRange>,
    pub(super) bytes: u64,
    pub(super) since_ns: u64,
    /// The same of those without a note.
    pub(super) unnoted_bytes: u64,
    pub(super) unnoted_ns: u64,
    pub(super) flushing: bool,
    /// The flush on its way brings the journal's header: nothing may come before.
    pub(super) flush_heads: bool,
    /// After a power cut both names are there.
    pub(super) named: bool,
}

impl Fresh {
    pub(super) fn add(&mut self, now_ns: u64, index: u64, bytes: u32, digest: Digest) {
        if self.chunks.is_empty() {
            self.since_ns = now_ns;
        }
        if self.chunks.len() == self.noted {
            self.unnoted_ns = now_ns;
        }
        self.bytes += u64::from(bytes);
        self.unnoted_bytes += u64::from(bytes);
        self.chunks.push((index, digest));
    }

    /// A chunk of an earlier run that stands in the part and was not flushed: it waits for the next flush, which is due.
    pub(super) fn add_read_back(&mut self, index: u64, bytes: u32, digest: Digest) {
        self.add(0, index, bytes, digest);
    }

    pub(super) fn is_due(&self, now_ns: u64, closing: bool, noting: Noting) -> bool {
        let (most, long) = if noting == Noting::Instead { (NOTE_BYTES, NOTE_NS) } else { (FLUSH_BYTES, FLUSH_NS) };
        let is_late = self.bytes >= most || now_ns.saturating_sub(self.since_ns) >= long;
        let is_due = match (closing, noting) {
            (true, _) => !self.holes.is_empty() || !self.chunks.is_empty(),
            (false, Noting::Before) => is_late && self.noted > 0,
            (false, _) => is_late && !self.chunks.is_empty(),
        };
        is_due && !self.flushing
    }

    pub(super) fn is_note_due(&self, now_ns: u64) -> bool {
        self.noted < self.chunks.len()
            && !(self.flushing && self.flush_heads)
            && (self.unnoted_bytes >= NOTE_BYTES || now_ns.saturating_sub(self.unnoted_ns) >= NOTE_NS)
    }

    /// What a note would say, which is then said.
    pub(super) fn take_unnoted(&mut self) -> Vec<(u64, Digest)> {
        let fresh = self.chunks[self.noted..].to_vec();
        (self.noted, self.unnoted_bytes) = (self.chunks.len(), 0);
        fresh
    }

    /// What a flush now covers, in order.
    pub(super) fn take(&mut self, noting: Noting) -> Vec<(u64, Digest)> {
        let end = if noting == Noting::Before { self.noted } else { self.chunks.len() };
        let mut taken: Vec<_> = self.chunks.drain(..end).collect();
        taken.sort_unstable_by_key(|(index, _)| *index);
        (self.noted, self.since_ns) = (0, self.unnoted_ns);
        self.bytes = if self.chunks.is_empty() { 0 } else { self.unnoted_bytes };
        self.unnoted_bytes = self.bytes;
        self.flushing = true;
        taken
    }
}

/// A part that can be gone on with.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) volume: usize,
    pub(super) valid_bytes: usize,
    /// Its header promises that what it says was flushed.
    pub(super) promised: bool,
    pub(super) kept: BTreeMap<u64, Digest>,
    /// What was written besides, and not flushed.
    pub(super) noted: BTreeMap<u64, Digest>,
}

/// A file whose parts are being read back, while the chunks that no journal speaks of are on their way already.
#[derive(Debug)]
pub(super) struct ReadBack {
    /// Chunks that journals speak of.
    pub(super) claims: usize,
    pub(super) stood: usize,
    /// Written, and not flushed.
    pub(super) noted: BTreeSet<u64>,
    /// Where parts are.
    pub(super) volumes: Vec<usize>,
}

impl Taken {
    /// All that it speaks of, each with the volume it is on.
    pub(super) fn chunks(&self) -> impl Iterator<Item = (usize, u64, Digest)> {
        self.kept.iter().chain(&self.noted).map(|(index, digest)| (self.volume, *index, *digest))
    }
}
