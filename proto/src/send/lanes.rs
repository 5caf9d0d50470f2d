//! A striped file's chunks, by the volume that has them.
//!
//! For: reading one file as fast as all its disks.
//! In and out: where the file's chunks stand (`Join`) and which are wanted in; the next chunk of the volume with the fewest being read out.
//! Invariants: each wanted chunk is handed out once; a lane knows only its next chunk, so a file of any length takes a few bytes for each
//! volume; no volume is further ahead of the slowest than `LEAD_MAX`.
//! Absent on purpose: how many may be on their way (`Sender`, by rails and bufs), measuring disks: a slow one keeps its chunks for longer, so
//! it has its share of them in flight and no more.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::holes::leave_out;
use super::{Item, Sender, State, View};
use crate::manifest::EntryId;
use crate::striped::Join;
use crate::wire::control::ChunkRange;

/// Chunks between the next of the slowest volume and those of the others, at most. Digests that wait for what lies between take some 80
/// bytes each at either end: 10 MiB.
const LEAD_MAX: u64 = 1 << 17;
/// The same of a file with holes: each of these may be one, and a receiver remembers 2^18 of all files.
const LEAD_SPARSE_MAX: u64 = 1 << 14;

/// No chunk is left.
const NONE: u64 = u64::MAX;

/// See the module.
#[derive(Debug)]
pub(super) struct Lanes {
    join: Arc<Join>,
    chunk_bytes: u32,
    /// What is wanted of the file; stays as it is while lanes go over it.
    wanted: VecDeque<ChunkRange>,
    /// By volume: its next chunk.
    next: Vec<u64>,
    left: u64,
    lead_max: u64,
}

impl Lanes {
    fn new(join: Arc<Join>, chunk_bytes: u32, sparse: bool, wanted: VecDeque<ChunkRange>) -> Lanes {
        let volumes = usize::from(join.volumes());
        let lead_max = if sparse { LEAD_SPARSE_MAX } else { LEAD_MAX };
        let left = wanted.iter().map(|range| range.end - range.first).sum();
        let mut lanes = Lanes { join, chunk_bytes, wanted, next: alloc::vec![0; volumes], left, lead_max };
        lanes.look_again();
        lanes
    }

    /// What is wanted has changed, where no lane has been yet.
    fn look_again(&mut self) {
        self.next = (0..).zip(&self.next).map(|(volume, &next)| self.seek(volume, next)).collect();
    }

    /// The first chunk from `index` on that is wanted and stands on this volume.
    fn seek(&self, volume: u16, mut index: u64) -> u64 {
        let from = self.wanted.partition_point(|range| range.end <= index);
        for range in self.wanted.range(from..) {
            index = index.max(range.first);
            while index < range.end {
                if self.volume_of(index) == Some(volume) {
                    return index;
                }
                index += 1;
            }
        }
        NONE
    }

    /// These chunks are zeros, as far as they are `within`: those that were wanted are not any more.
    pub(super) fn leave_out(&mut self, holes: &[ChunkRange], within: ChunkRange) -> Vec<ChunkRange> {
        let told = leave_out(&mut self.wanted, holes, within);
        self.left -= told.iter().map(|range| range.end - range.first).sum::<u64>();
        self.look_again();
        told
    }

    /// Chunks that were not taken.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// The volume of a chunk.
    pub(super) fn volume_of(&self, index: u64) -> Option<u16> {
        self.join.volume_at(index * u64::from(self.chunk_bytes))
    }

    /// The next chunk of the volume from which the fewest are being read, and how many those are (with the way there); of equals the first in the
    /// file.
    pub(super) fn best(&self, view: View<'_>) -> Option<(usize, u64)> {
        let slowest = self.next.iter().copied().min()?;
        let lanes = self.next.iter().enumerate().filter(|(_, next)| **next != NONE && **next - slowest < self.lead_max);
        lanes.map(|(volume, &next)| (view.reading(volume), next)).min()
    }

    /// This chunk, the next of its volume, is handed out.
    pub(super) fn take(&mut self, index: u64) {
        let volume = self.volume_of(index).expect("it was found on one");
        self.next[usize::from(volume)] = self.seek(volume, index + 1);
        self.left -= 1;
    }
}

impl Sender {
    /// The turn of a striped file has come: here its chunks stand.
    pub fn on_places(&mut self, id: EntryId, join: Arc<Join>) {
        let chunk_bytes = self.chunk_bytes;
        let Some(Item { entry, state: State::Reading { ranges, .. }, lanes, .. }) = self.items.get_mut(&id) else {
            return;
        };
        *lanes = Some(Lanes::new(join, chunk_bytes, entry.meta.sparse, core::mem::take(ranges)));
    }

    /// Is it known where the chunks of this file stand?
    #[must_use]
    pub fn has_places(&self, id: EntryId) -> bool {
        self.items.get(&id).is_some_and(|item| item.lanes.is_some())
    }
}
