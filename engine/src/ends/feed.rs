//! Chunks between a source and its rail: assigned, being read, filled.
//!
//! For: reading ahead of a rail by as much as its source needs and no more.
//! In and out: assignments in from the job's end; filled bufs out to the rail.
//! Invariants: as many chunks as `ahead` are being read or filled at most; the limit grows only while the rail starves.
//! Absent on purpose: which chunk goes next (`proto::send`), bufs (the loop hands them out).

use std::collections::VecDeque;

use proto::send::{Assignment, CHUNKS_IN_FLIGHT_MAX, Unit};
use proto::wire::chunk::{ChunkKind, Header, PACK_LINE_BYTES};
use sys::mem::Buf;

/// Chunks read ahead of the seal at the least; more would only leave the cache before they are hashed.
const AHEAD_MIN: usize = 2;
/// And at the most, as many as a rail has outstanding: a disk's queue is full long before, and that of each of many disks.
pub(crate) const AHEAD_MAX: usize = CHUNKS_IN_FLIGHT_MAX;
/// What a new connection's send buffer takes at once, as good as: a buf with no more in it is back in a moment, however slow the peer.
pub(crate) const SMALL_BYTES: u64 = 64 << 10;

/// A filled chunk that waits to be sealed.
#[derive(Debug)]
pub(crate) struct Filled<F> {
    /// What was assigned.
    pub(crate) chunk: Assignment,
    /// Its payload.
    pub(crate) buf: Buf,
    /// Length of the payload; a pack's index included.
    pub(crate) bytes: u32,
    /// Files in it.
    pub(crate) files: u64,
    /// Not filled yet: read from here, piece by piece, when it is sealed.
    pub(crate) from: Option<F>,
}

impl<F> Filled<F> {
    /// The header of its chunk, but for the digests, and the length of its file (0 for a pack).
    pub(crate) fn header(&self) -> (Header, u64) {
        let (kind, entry, offset, file_bytes) = match &self.chunk.unit {
            Unit::Range { entry, offset, .. } => (ChunkKind::Range, entry.id, *offset, entry.bytes()),
            Unit::Pack { .. } => (ChunkKind::Pack, self.files, 0, 0),
        };
        let (chunk, payload_bytes) = (self.chunk.chunk, self.bytes);
        (Header { kind, payload_bytes, chunk, entry, offset, crc: 0, digest: [0; 32] }, file_bytes)
    }

    /// The user's bytes in it: a pack's index is not.
    pub(crate) fn files_bytes(&self) -> u64 {
        let index = match self.chunk.unit {
            Unit::Pack { .. } => self.files * PACK_LINE_BYTES as u64,
            Unit::Range { .. } => 0,
        };
        u64::from(self.bytes) - index
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Feed<F> {
    /// Assigned, and without a buf.
    pub(crate) waiting: VecDeque<Assignment>,
    /// Filled, and not sealed.
    pub(crate) filled: VecDeque<Filled<F>>,
    /// Reads in flight.
    reads: usize,
    /// Reads in flight and chunks filled, at most.
    ahead: usize,
}

impl<F> Feed<F> {
    /// Of a new rail.
    pub(crate) fn new() -> Self {
        let (waiting, filled) = (VecDeque::with_capacity(32), VecDeque::with_capacity(32));
        Feed { waiting, filled, reads: 0, ahead: AHEAD_MIN }
    }

    /// Chunks that wait for a buf, filled ones, reads in flight and how many of these there may be: for whoever found everything still.
    pub(crate) fn counts(&self) -> (usize, usize, usize, usize) {
        (self.waiting.len(), self.filled.len(), self.reads, self.ahead)
    }

    /// Is a buf wanted for the next chunk? Few for a source that is fast (its chunks stay in cache), more for one that makes the rail wait.
    pub(crate) fn wants_buf(&self) -> bool {
        self.reads + self.filled.len() < self.ahead && !self.waiting.is_empty()
    }

    /// Is the next chunk one of few bytes?
    pub(crate) fn next_is_small(&self) -> bool {
        self.waiting.front().is_some_and(|it| bytes_of(&it.unit) <= SMALL_BYTES)
    }

    /// Are there chunks here that the rail has not taken?
    pub(crate) fn has_more(&self) -> bool {
        !(self.filled.is_empty() && self.waiting.is_empty() && self.reads == 0)
    }

    /// A read begins, of a file that likes to have so many at once.
    pub(crate) fn on_read_begins(&mut self, reads_ahead: usize) {
        self.reads += 1;
        self.ahead = self.ahead.max(reads_ahead.min(AHEAD_MAX));
    }

    /// A read is over; `starved`: the rail had nothing to send meanwhile.
    pub(crate) fn on_read_over(&mut self, starved: bool) {
        self.reads -= 1;
        if starved {
            self.ahead = (self.ahead + 1).min(AHEAD_MAX);
        }
    }

    /// Takes the buf of the chunk that would go last: the chunk is read again when its turn comes.
    pub(crate) fn take_back_last(&mut self) -> Option<Buf> {
        let filled = self.filled.pop_back()?;
        // A pack has reported its digests; reported again they are the same, or the pack goes again anyway.
        self.waiting.push_front(filled.chunk);
        Some(filled.buf)
    }
}

fn bytes_of(unit: &Unit) -> u64 {
    match unit {
        Unit::Range { bytes, .. } => u64::from(*bytes),
        Unit::Pack { entries } => entries.iter().map(|entry| entry.bytes()).sum(),
    }
}
