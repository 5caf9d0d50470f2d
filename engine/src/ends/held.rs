//! Chunks that came whole and whose volume does not want them yet.
//!
//! For: files that are striped by chunk: who takes a chunk's turn at a volume goes on at once, others wait here, in their bufs.
//! In and out: opened chunks in; the first whose turn has come out.
//! Invariants: the first that came is the first that goes; whoever waits goes after `HOLD_NS`, whatever was counted wrong.
//! Absent on purpose: whose turn it is (the sink's tree).

use std::collections::VecDeque;

use proto::wire::chunk::Header;
use proto::wire::control::Digest;
use sys::mem::Buf;

/// So soon a worker looks again whether a volume wants what is held, ns: chunks also land by other workers.
pub(crate) const LOOK_NS: u64 = 2_000_000;
/// If no volume wants any for so long, ns, one goes all the same.
const HOLD_NS: u64 = 1_000_000_000;

/// A chunk in its buf.
#[derive(Debug)]
pub(crate) struct Held {
    /// Index of the rail that it came by.
    pub(crate) rail: usize,
    /// What it is.
    pub(crate) header: Header,
    /// Its digest.
    pub(crate) digest: Digest,
    /// Its payload.
    pub(crate) buf: Buf,
    /// Nobody waits for it any more.
    pub(crate) unexpected: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct HeldChunks {
    chunks: VecDeque<Held>,
    /// Since when none of them had a turn.
    since_ns: u64,
}

impl HeldChunks {
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(super) fn push(&mut self, now_ns: u64, held: Held) {
        if self.is_empty() {
            self.since_ns = now_ns;
        }
        self.chunks.push_back(held);
    }

    /// The first, if it goes now. `is_unexpected`: nobody waits for it; `has_turn`: its volume wants it.
    pub(super) fn next(
        &mut self,
        now_ns: u64,
        is_unexpected: impl Fn(&Header) -> bool,
        has_turn: impl Fn(&Header) -> bool,
    ) -> Option<Held> {
        let header = &self.chunks.front()?.header;
        let unexpected = is_unexpected(header);
        let is_long = now_ns.saturating_sub(self.since_ns) > HOLD_NS;
        if !unexpected && !is_long && !has_turn(header) {
            return None;
        }
        self.since_ns = now_ns;
        self.chunks.pop_front().map(|held| Held { unexpected, ..held })
    }
}
