//! Which volumes are near a rail: on the memory node of the worker that serves it.
//!
//! For: chunks that are read into bufs of the node that their disk is on.
//! In and out: nodes of volumes and of workers in; how much is on its way at a volume, as seen from a rail, out.
//! Invariants: a preference, never a bound: a rail that takes chunks is given one whenever there is one; where nothing is known nothing changes.
//! Absent on purpose: which node a worker is put on (`engine::numa`).

use alloc::vec::Vec;

/// A volume on another node is read over a rail when so many chunks less are on their way from it. Volumes of one speed are then each read from their
/// own node; a slow one keeps no more than these beyond its share of what is on its way (`FLYING_MIN`).
const FAR: usize = 4;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Near {
    pub(super) volumes: Vec<Option<u16>>,
    /// Rail n is served by the n-th, and begins again with the first.
    pub(super) workers: Vec<u16>,
}

/// What is being read, as seen from one rail.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    /// Chunks by volume.
    reading: &'a [usize],
    volumes: &'a [Option<u16>],
    /// Of the rail's worker; `None`: all volumes are equally near.
    node: Option<u16>,
}

impl Near {
    pub(super) fn view<'a>(&'a self, rail: u16, reading: &'a [usize]) -> View<'a> {
        let node = match self.workers.len() {
            0 => None,
            count => self.workers.get(usize::from(rail) % count).copied(),
        };
        View { reading, volumes: &self.volumes, node }
    }
}

impl View<'_> {
    /// How much more a volume counts because it is on another node.
    pub(super) fn way(&self, volume: usize) -> usize {
        let Some(node) = self.node else { return 0 };
        let own = self.volumes.get(volume).copied().flatten();
        if own.is_some_and(|own| own != node) { FAR } else { 0 }
    }

    /// Chunks that are being read from a volume, and the way there.
    pub(super) fn reading(&self, volume: usize) -> usize {
        self.reading.get(volume).copied().unwrap_or(0) + self.way(volume)
    }
}
