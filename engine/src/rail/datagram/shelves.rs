//! Memory of what is written in pieces: runs of bytes of units that wait on disk.
//!
//! For: repairs, which are mostly single packets, on their way into their places.
//! In and out: empty pieces out, pieces that were written back in.
//! Invariants: memory is made when it is wanted first, up to `PIECES_BYTES` of a rail, and is used again.
//! Absent on purpose: writes (`spill`).

use proto::wire::chunk::HEADER_BYTES;

/// Memory of the pieces of a rail: collected, held or being written. What one iteration of the loop receives may all be repairs, in as many places.
pub(super) const PIECES_BYTES: usize = 3 << 20;
/// A part of it is in long pieces …
const RUNS_BYTES: usize = 512 << 10;
/// … of so much, so that packets in a row are one write.
const RUN_BYTES: usize = 32 << 10;
/// A repair is mostly one packet.
const PIECE_BYTES: usize = 2 << 10;

/// A run of bytes of one unit on its way into its place.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) unit: u32,
    /// In the payload.
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) mem: Box<[u8]>,
}

impl std::fmt::Debug for Shelves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places = |piece: &Piece| (piece.unit, piece.at, piece.len);
        let held: Vec<_> = self.held.iter().map(places).collect();
        let free: Vec<_> = self.shelves.iter().map(|shelf| shelf.free.len()).collect();
        f.debug_tuple("Shelves").field(&free).field(&self.growing.as_ref().map(places)).field(&held).finish()
    }
}

/// Pieces of one length, made when they are wanted first.
#[derive(Debug)]
struct Shelf {
    bytes: usize,
    /// Not made yet.
    left: usize,
    free: Vec<Box<[u8]>>,
}

impl Shelf {
    fn new(bytes: usize, of: usize) -> Self {
        let count = (of / bytes).max(4);
        Shelf { bytes, left: count, free: Vec::with_capacity(count) }
    }

    fn has(&self) -> bool {
        self.left > 0 || !self.free.is_empty()
    }

    fn take(&mut self) -> Option<Box<[u8]>> {
        if self.free.is_empty() && self.left > 0 {
            self.left -= 1;
            self.free.push(vec![0; self.bytes].into());
        }
        self.free.pop()
    }
}

/// Pieces of units that are in their place.
pub(super) struct Shelves {
    /// For single packets, for packets in a row.
    shelves: [Shelf; 2],
    /// The piece that grows.
    pub(super) growing: Option<Piece>,
    /// Their unit's first write is not back yet.
    pub(super) held: Vec<Piece>,
}

impl Shelves {
    pub(super) fn new(packet_bytes_max: usize) -> Self {
        let shelves = [
            Shelf::new(packet_bytes_max.max(PIECE_BYTES), PIECES_BYTES - RUNS_BYTES),
            Shelf::new(packet_bytes_max.max(RUN_BYTES), RUNS_BYTES),
        ];
        Shelves { shelves, growing: None, held: Vec::with_capacity(64) }
    }

    /// Do these bytes follow the piece that grows? Then whether they fit into it.
    pub(super) fn follows(&self, unit: u32, at: usize, len: usize) -> Option<bool> {
        let piece = self.growing.as_ref().filter(|piece| (piece.unit, piece.at + piece.len) == (unit, at))?;
        Some(piece.len + len <= piece.mem.len())
    }

    /// Can these bytes of a unit be taken?
    pub(super) fn has_room(&self, unit: u32, offset: u32, len: usize) -> bool {
        let at = (offset as usize).saturating_sub(HEADER_BYTES);
        self.shelves.iter().any(Shelf::has) || self.follows(unit, at, len) == Some(true)
    }

    /// Memory for a piece; what follows another is mostly the second packet of many. The caller looked whether there is any.
    pub(super) fn take(&mut self, in_a_row: bool) -> Box<[u8]> {
        let [single, run] = &mut self.shelves;
        let taken = if in_a_row { run.take().or_else(|| single.take()) } else { single.take().or_else(|| run.take()) };
        taken.expect("the caller looked")
    }

    /// A piece of this unit that may go now.
    pub(super) fn held_piece(&mut self, unit: u32) -> Option<Piece> {
        let at = self.held.iter().position(|piece| piece.unit == unit)?;
        Some(self.held.remove(at))
    }

    pub(super) fn give(&mut self, mem: Box<[u8]>) {
        let shelf = usize::from(mem.len() == self.shelves[1].bytes);
        self.shelves[shelf].free.push(mem);
    }
}
