//! Holes: what of a file is neither read nor sent.
//!
//! For: asking where a file has holes when its turn comes, and leaving them out.
//! In and out: a file and a chunk from which on its map is wanted out; holes in; those that the receiver must be told out.
//! Invariants: nothing is handed out beyond what is mapped (lanes of a striped file are mapped as far as the fastest has come); a chunk is either handed out or told as a hole, never both, and what was handed
//! out once stays data; the last chunk of a file always travels.
//! Absent on purpose: looking (`engine::platform::SourceTree::holes`), the digest of zeros (`engine::seal::digest::zeros`).

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{FollowUp, Item, Sender, State};
use crate::ledger::chunk_count;
use crate::manifest::{Entry, EntryId};
use crate::wire::control::{ChunkRange, HOLE_REACH_BYTES};

impl Sender {
    /// A file that cannot go on before it is known where it has holes, and the chunk from which on that is to be known.
    pub fn next_unmapped(&mut self) -> Option<(Arc<Entry>, u64)> {
        let item = self.items.get(&self.unmapped.take()?)?;
        let State::Reading { ranges, mapped, .. } = &item.state else { return None };
        let first = if item.lanes.is_some() { *mapped } else { ranges.front()?.first };
        Some((item.entry.clone(), first))
    }

    /// Up to chunk `until` it is known where a file has holes: these chunks are zeros. Those of them that are to be told to the receiver,
    /// for they will not travel: not the last (it may be short, and a file without one chunk that travels would never be a file there), and
    /// none beyond `HOLE_REACH_BYTES`.
    pub fn on_map(&mut self, id: EntryId, holes: &[ChunkRange], until: u64) -> (Vec<ChunkRange>, FollowUp) {
        let chunk_bytes = self.chunk_bytes;
        let Some(Item { entry, state: State::Reading { ranges, unread, open, mapped, .. }, lanes, .. }) =
            self.items.get_mut(&id)
        else {
            return (Vec::new(), FollowUp::Nothing);
        };
        // Lanes may have handed out anything before the map's end. And what is asked for twice without an answer that leads on would be
        // asked for ever.
        let (from, next) = match lanes {
            Some(_) => (*mapped, *mapped + 1),
            None => (0, ranges.front().map_or(u64::MAX, |range| range.first + 1)),
        };
        *mapped = until.max(next);
        let last = chunk_count(entry.bytes(), chunk_bytes) - 1;
        let within = ChunkRange { first: from, end: last.min(HOLE_REACH_BYTES / u64::from(chunk_bytes)) };
        let told = match lanes {
            Some(lanes) => lanes.leave_out(holes, within),
            None => leave_out(ranges, holes, within),
        };
        *unread -= told.iter().map(|range| range.end - range.first).sum::<u64>();
        (told, if *unread == 0 && !*open { FollowUp::CheckSource(id) } else { FollowUp::Nothing })
    }
}

/// Takes from what is wanted those of these holes that are `within`: they are to be told.
pub(super) fn leave_out(
    wanted: &mut VecDeque<ChunkRange>,
    holes: &[ChunkRange],
    within: ChunkRange,
) -> Vec<ChunkRange> {
    let mut told: Vec<ChunkRange> = Vec::new();
    let mut left = VecDeque::with_capacity(wanted.len());
    for mut range in wanted.drain(..) {
        for hole in holes {
            let (first, end) = (hole.first.max(range.first).max(within.first), hole.end.min(range.end).min(within.end));
            if first >= end {
                continue;
            }
            if range.first < first {
                left.push_back(ChunkRange { first: range.first, end: first });
            }
            told.push(ChunkRange { first, end });
            range.first = end;
        }
        if range.first < range.end {
            left.push_back(range);
        }
    }
    *wanted = left;
    told
}
