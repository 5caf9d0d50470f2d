//! Reassembly at the receiving end: what of each open unit has arrived.
//!
//! For: which bytes are new, what is missing, how many units may be open.
//! In and out: ranges come in; units are done in any order; the grant follows.
//! Invariants: a unit below the grant has a place, one above it is a breach; the grant never goes back; memory is bounded by the
//! grant and by the pieces that a unit may be cut into.
//! Absent on purpose: the bytes (engine), packet numbers (`window`).

use alloc::vec::Vec;
use core::ops::Range;

use super::Placed;
use super::ranges::{Ranges, Spare};
use crate::error::Breach;

/// Bytes of a unit per piece it may be in: honest pieces are packets, hardly ever shorter than 500 bytes (`PACKET_BYTES_MIN`).
const PIECE_BYTES_LEAST: u32 = 256;
/// Pieces that a short unit may be in all the same.
const PIECES_LEAST: usize = 64;
/// Bytes of all open units per piece that they may be in together: packets of 548 bytes at random loss make one piece per 2,192 bytes at most,
/// and that at 50 %.
const PIECE_BYTES_MEAN: u32 = 2048;
/// Units between the oldest unfinished and the newest granted, as a multiple of those open: one slow unit holds up no other for long.
pub(super) const SPAN: u32 = 4;

#[derive(Debug, Default)]
struct Part {
    got: Ranges,
    /// 0: not known yet.
    bytes: u32,
    begun: bool,
    done: bool,
}

/// A ring of units by number.
#[derive(Debug)]
pub(super) struct Reassembly {
    ring: Vec<Part>,
    /// The oldest unit that is not done.
    base: u32,
    granted: u32,
    /// How many may be open.
    units: u32,
    done: u32,
    /// Begun and not done.
    open: u32,
    unit_bytes_max: u32,
    /// Pieces of all open units, and how many there may be.
    pieces: usize,
    pieces_max: usize,
    /// Sets of units that are done.
    spare: Spare,
}

impl Reassembly {
    /// `units` are granted at first, `units_most` at most.
    pub(super) fn new(units: u32, units_most: u32, unit_bytes_max: u32) -> Self {
        let most = units_most.max(units) as usize;
        let mut parts = Reassembly {
            ring: Vec::new(),
            base: 0,
            granted: 0,
            units,
            done: 0,
            open: 0,
            unit_bytes_max,
            pieces: 0,
            pieces_max: most * (unit_bytes_max / PIECE_BYTES_MEAN) as usize + PIECES_LEAST.max(most),
            spare: Spare::default(),
        };
        parts.ring.resize_with(64, Part::default);
        parts.regrant();
        parts
    }

    pub(super) const fn granted(&self) -> u32 {
        self.granted
    }

    pub(super) const fn open(&self) -> u32 {
        self.open
    }

    pub(super) const fn units(&self) -> u32 {
        self.units
    }

    pub(super) fn grant(&mut self, units: u32) {
        self.units = units;
        self.regrant();
    }

    fn regrant(&mut self) {
        let by_count = self.done.saturating_add(self.units);
        let by_span = self.base.saturating_add(self.units.saturating_mul(SPAN));
        self.granted = self.granted.max(by_count.min(by_span));
    }

    const fn slot(&self, unit: u32) -> usize {
        unit as usize & (self.ring.len() - 1)
    }

    fn get(&self, unit: u32) -> Option<&Part> {
        let known = unit >= self.base && ((unit - self.base) as usize) < self.ring.len();
        known.then(|| &self.ring[self.slot(unit)]).filter(|part| !part.done)
    }

    /// A place for `unit`, which is granted and not below the base.
    fn place(&mut self, unit: u32) -> &mut Part {
        while (unit - self.base) as usize >= self.ring.len() {
            // Happens while the path fills, not after.
            let slots = self.ring.len() * 2;
            let mut ring = Vec::new();
            ring.resize_with(slots, Part::default);
            for number in self.base..self.base + self.ring.len() as u32 {
                let slot = self.slot(number);
                ring[number as usize & (slots - 1)] = core::mem::take(&mut self.ring[slot]);
            }
            self.ring = ring;
        }
        let slot = self.slot(unit);
        &mut self.ring[slot]
    }

    /// Bytes of a unit came.
    ///
    /// # Errors
    /// `UnitBeyondGrant`, `UnitTooLong`, `UnitPieces`.
    pub(super) fn put(&mut self, unit: u32, offset: u32, bytes: u32) -> Result<Placed, Breach> {
        if unit >= self.granted {
            return Err(Breach::UnitBeyondGrant);
        }
        let end = offset.checked_add(bytes).filter(|&end| end <= self.unit_bytes_max).ok_or(Breach::UnitTooLong)?;
        if unit < self.base {
            return Ok(Placed::Already);
        }
        // After a grant was taken back there are fewer places than promises; the oldest unit always has one.
        let full = self.open >= self.units && unit != self.base;
        let pieces_max = (self.unit_bytes_max / PIECE_BYTES_LEAST) as usize + PIECES_LEAST;
        self.place(unit);
        let slot = self.slot(unit);
        let part = &mut self.ring[slot];
        if part.done {
            return Ok(Placed::Already);
        }
        if part.bytes > 0 && end > part.bytes {
            return Err(Breach::UnitTooLong);
        }
        let begins = !part.begun;
        if begins && full {
            return Ok(Placed::NoRoom);
        }
        if begins {
            part.begun = true;
            part.got = self.spare.take();
        }
        let part = &mut self.ring[slot];
        let before = part.got.count();
        let new = part.got.insert(offset..end);
        let count = part.got.count();
        self.pieces = self.pieces + count - before;
        if count > pieces_max || self.pieces > self.pieces_max {
            return Err(Breach::UnitPieces);
        }
        self.open += u32::from(begins);
        Ok(if new > 0 { Placed::New } else { Placed::Already })
    }

    /// The unit is so long.
    ///
    /// # Errors
    /// `UnitLength` if that differs from before, `UnitTooLong` if bytes beyond it came or it is longer than agreed.
    pub(super) fn set_len(&mut self, unit: u32, bytes: u32) -> Result<(), Breach> {
        if unit >= self.granted {
            return Err(Breach::UnitBeyondGrant);
        }
        if unit < self.base {
            return Ok(());
        }
        let unit_bytes_max = self.unit_bytes_max;
        let part = self.place(unit);
        if part.done || part.bytes == bytes {
            return Ok(());
        }
        if part.bytes > 0 {
            return Err(Breach::UnitLength);
        }
        if bytes == 0 || bytes > unit_bytes_max || part.got.end() > bytes {
            return Err(Breach::UnitTooLong);
        }
        part.bytes = bytes;
        Ok(())
    }

    pub(super) fn missing(&self, unit: u32) -> impl Iterator<Item = Range<u32>> + '_ {
        let within = |part: &Part| 0..if part.bytes > 0 { part.bytes } else { part.got.end() };
        self.get(unit).into_iter().flat_map(move |part| part.got.gaps(within(part)))
    }

    pub(super) fn has(&self, unit: u32, range: Range<u32>) -> bool {
        self.get(unit).is_some_and(|part| part.got.contains(range))
    }

    pub(super) fn is_whole(&self, unit: u32) -> bool {
        self.get(unit).is_some_and(|part| part.bytes > 0 && part.got.bytes() == part.bytes)
    }

    /// The unit is over: landed or thrown away.
    pub(super) fn done(&mut self, unit: u32) {
        if unit < self.base || unit >= self.granted {
            return;
        }
        let part = self.place(unit);
        if core::mem::replace(&mut part.done, true) {
            return;
        }
        let got = core::mem::take(&mut part.got);
        let begun = part.begun;
        self.pieces -= got.count();
        if begun {
            self.spare.give_back(got);
        }
        self.open -= u32::from(begun);
        self.done += 1;
        while self.base < self.granted && self.ring[self.slot(self.base)].done {
            let slot = self.slot(self.base);
            let part = &mut self.ring[slot];
            part.bytes = 0;
            part.begun = false;
            part.done = false;
            self.base += 1;
        }
        self.regrant();
    }
}
