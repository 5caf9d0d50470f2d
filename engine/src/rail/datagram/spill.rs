//! Chunks that wait for repairs on disk instead of in memory.
//!
//! For: receiving over any distance within the memory granted: what is not whole goes into its place in the part file when bufs are short.
//! In and out: units with a known header and their later packets in; writes, a read back, and `Landed` or `Corrupt` out.
//! Invariants: what a unit misses is written as zeros first, and its later packets only after that write is back; nothing has landed before
//! the whole was read back and hashed; from the first part opened for this on (`SinkTree::was_loose`) nobody takes what is missing for zeros.
//! Absent on purpose: packs (they have no place before they are whole), durability (commit).

use std::io;

use proto::wire::chunk::{ChunkKind, HEADER_BYTES, Header};
use sys::mem::{Buf, HEADROOM, Mem};

use super::recv::{Coming, Home};
use super::{Half, Packets, UNIT_AT};
use crate::job::{Event, Role};
use crate::platform::{Done, Harm, Op, Platform};
use crate::rail::stream::is_again;
use crate::rail::{Kind as OpKind, Load, Slot};
use crate::seal::frame::{Touch, check_draining, hash_as};
use crate::worker::Worker;

/// Memory of the pieces of a rail: collected, held or being written. What one turn of the loop receives may all be repairs, in as many places.
pub(super) const PIECES_BYTES: usize = 3 << 20;
/// A part of it is in long pieces …
const RUNS_BYTES: usize = 512 << 10;
/// … of so much, so that packets in a row are one write.
const RUN_BYTES: usize = 32 << 10;
/// A repair is mostly one packet.
const PIECE_BYTES: usize = 2 << 10;

/// A run of bytes of one unit on its way into its place.
#[derive(Debug)]
struct Piece {
    unit: u32,
    /// In the payload.
    at: usize,
    len: usize,
    mem: Box<[u8]>,
}

impl std::fmt::Debug for Spill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places = |piece: &Piece| (piece.unit, piece.at, piece.len);
        let held: Vec<_> = self.held.iter().map(places).collect();
        let free: Vec<_> = self.shelves.iter().map(|shelf| shelf.free.len()).collect();
        f.debug_tuple("Spill").field(&free).field(&self.growing.as_ref().map(places)).field(&held).finish()
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
pub(super) struct Spill {
    /// For single packets, for packets in a row.
    shelves: [Shelf; 2],
    /// The piece that grows.
    growing: Option<Piece>,
    /// Their unit's first write is not back yet.
    held: Vec<Piece>,
}

impl Spill {
    pub(super) fn new(packet_bytes_max: usize) -> Self {
        let shelves = [
            Shelf::new(packet_bytes_max.max(PIECE_BYTES), PIECES_BYTES - RUNS_BYTES),
            Shelf::new(packet_bytes_max.max(RUN_BYTES), RUNS_BYTES),
        ];
        Spill { shelves, growing: None, held: Vec::with_capacity(64) }
    }

    /// Do these bytes follow the piece that grows? Then whether they fit into it.
    fn follows(&self, unit: u32, at: usize, len: usize) -> Option<bool> {
        let piece = self.growing.as_ref().filter(|piece| (piece.unit, piece.at + piece.len) == (unit, at))?;
        Some(piece.len + len <= piece.mem.len())
    }

    /// Can these bytes of a unit be taken?
    pub(super) fn has_room(&self, unit: u32, offset: u32, len: usize) -> bool {
        let at = (offset as usize).saturating_sub(HEADER_BYTES);
        self.shelves.iter().any(Shelf::has) || self.follows(unit, at, len) == Some(true)
    }

    /// Memory for a piece; what follows another is mostly the second packet of many. The caller looked whether there is any.
    fn take(&mut self, in_a_row: bool) -> Box<[u8]> {
        let [single, run] = &mut self.shelves;
        let taken = if in_a_row { run.take().or_else(|| single.take()) } else { single.take().or_else(|| run.take()) };
        taken.expect("the caller looked")
    }

    fn give(&mut self, mem: Box<[u8]>) {
        let shelf = usize::from(mem.len() == self.shelves[1].bytes);
        self.shelves[shelf].free.push(mem);
    }
}

impl Packets {
    /// A piece of this unit that may go now.
    fn held_piece(&mut self, unit: u32) -> Option<Piece> {
        let Half::Recv(half) = &mut self.half else { return None };
        let held = &mut half.spill.held;
        let at = held.iter().position(|piece| piece.unit == unit)?;
        Some(held.remove(at))
    }
}

impl<P: Platform> Worker<P> {
    /// Memory is short: the oldest units whose place is known go there.
    pub(super) fn spill_units(&mut self, index: usize, it: &mut Packets) {
        self.end_piece(index, it);
        // Two, so that the next unit and the next check find one each; more where there are many.
        let low = (self.platform.pool().count() / 8).max(2);
        loop {
            let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
            let leaving = half.units.values().filter(|coming| matches!(coming.home, Home::Leaving)).count();
            if self.platform.pool().free() + leaving >= low {
                return;
            }
            let movable = half.units.iter().filter(|(_, coming)| {
                let is_range = coming.header.is_some_and(|header| header.kind == ChunkKind::Range);
                is_range && matches!(coming.home, Home::Here(_))
            });
            let Some(unit) = movable.map(|(&unit, _)| unit).min() else { return };
            if !self.spill(index, it, unit) {
                return;
            }
        }
    }

    /// Puts what came of a unit into its place.
    fn spill(&mut self, index: usize, it: &mut Packets, unit: u32) -> bool {
        let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
        let rail = self.rails[index].as_mut().expect("the caller has it");
        let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
        let Role::Recv(tree) = &seat.part.role else { unreachable!("checked when the rail came up") };
        let coming = half.units.get_mut(&unit).expect("the caller found it");
        let header = coming.header.expect("the caller looked");
        let file = seat.parts.entry(header.entry).is_some().then(|| seat.parts.loose_file(tree, &header));
        let Home::Here(mut buf) = std::mem::replace(&mut coming.home, Home::Leaving) else {
            unreachable!("the caller looked")
        };
        it.counts.spilled += 1;
        let end = coming.fresh_from as usize;
        let file = match file {
            Some(Ok(file)) => file,
            other => {
                coming.home = Home::Over { told: other.is_some() };
                self.platform.pool().give(buf);
                if let Some(Err(error)) = other {
                    self.write_failed(index, &header, &error, "open the part");
                }
                return true;
            }
        };
        if end <= HEADER_BYTES {
            coming.home = Home::There;
            self.platform.pool().give(buf);
            return true;
        }
        for gap in half.flow.missing(unit) {
            let (start, stop) = (gap.start as usize, (gap.end as usize).min(end));
            if start < stop {
                buf.whole_mut()[UNIT_AT + start..UNIT_AT + stop].fill(0);
            }
        }
        rail.ops += 1;
        let len = end - HEADER_BYTES;
        let slot = Slot { kind: OpKind::Spill, rail: index, at: 0, done: 0, len, load: Load::Unit(unit) };
        let token = self.slots.put(slot);
        self.platform.submit(token, Op::Write { file, offset: header.offset, mem: Mem::Buf(buf), at: HEADROOM, len });
        true
    }

    /// Bytes of a unit that is in its place. There is room, the caller looked.
    pub(super) fn put_piece(&mut self, index: usize, it: &mut Packets, unit: u32, offset: u32, bytes: &[u8]) {
        let skipped = HEADER_BYTES.saturating_sub(offset as usize).min(bytes.len());
        let (at, bytes) =
            ((offset as usize + skipped) - HEADER_BYTES.min(offset as usize + skipped), &bytes[skipped..]);
        if bytes.is_empty() {
            return;
        }
        let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
        let spill = &mut half.spill;
        let follows = spill.follows(unit, at, bytes.len());
        if follows == Some(true) {
            let piece = spill.growing.as_mut().expect("it grows");
            piece.mem[piece.len..piece.len + bytes.len()].copy_from_slice(bytes);
            piece.len += bytes.len();
            return;
        }
        let mut mem = spill.take(follows.is_some());
        mem[..bytes.len()].copy_from_slice(bytes);
        let piece = Piece { unit, at, len: bytes.len(), mem };
        half.units.get_mut(&unit).expect("the caller has it").writes += 1;
        self.end_piece(index, it);
        let Half::Recv(half) = &mut it.half else { unreachable!("seen above") };
        half.spill.growing = Some(piece);
    }

    /// The growing piece grows no more.
    fn end_piece(&mut self, index: usize, it: &mut Packets) {
        let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
        let Some(piece) = half.spill.growing.take() else { return };
        match half.units.get(&piece.unit).map(|coming| &coming.home) {
            Some(Home::Leaving) => half.spill.held.push(piece),
            _ => self.write_spilled(index, it, piece),
        }
    }

    fn write_spilled(&mut self, index: usize, it: &mut Packets, piece: Piece) {
        let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
        let rail = self.rails[index].as_mut().expect("the caller has it");
        let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
        let Role::Recv(tree) = &seat.part.role else { unreachable!("checked when the rail came up") };
        let Piece { unit, at, len, mem } = piece;
        let header = half.units.get(&unit).filter(|coming| matches!(coming.home, Home::There)).and_then(|it| it.header);
        let expected = header.filter(|header| seat.parts.entry(header.entry).is_some());
        let file = expected.map(|header| (header, seat.parts.loose_file(tree, &header)));
        match file {
            Some((header, Ok(file))) => {
                rail.ops += 1;
                let slot = Slot { kind: OpKind::Spill, rail: index, at, done: 0, len, load: Load::Unit(unit) };
                let token = self.slots.put(slot);
                let offset = header.offset + at as u64;
                self.platform.submit(token, Op::Write { file, offset, mem: Mem::Small(mem), at: 0, len });
            }
            other => {
                let error = other.and_then(|(_, file)| file.err());
                half.spill.give(mem);
                self.piece_is_over(index, it, unit, error);
            }
        }
    }

    /// A write of a spilled unit came back.
    pub(crate) fn on_spilled(&mut self, mut slot: Slot, done: Done) {
        let Load::Unit(unit) = slot.load else { unreachable!("spills are of units") };
        let index = slot.rail;
        let rail = self.rails[index].as_mut().expect("a rail stays until its ops are back");
        if rail.has_ended() {
            return self.drop_mem(index, done.mem);
        }
        let Some(mut it) = rail.packets.take() else { unreachable!("only datagram rails spill") };
        let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
        let Role::Recv(tree) = &seat.part.role else { unreachable!("checked when the rail came up") };
        let Half::Recv(half) = &mut it.half else { unreachable!("spills are the receiver's") };
        let moved = match done.result {
            Err(error) if is_again(&error) => Ok(0),
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            other => other,
        };
        slot.done += *moved.as_ref().unwrap_or(&0);
        let header = half.units.get(&unit).and_then(|coming| coming.header);
        let header = header.filter(|header| seat.parts.entry(header.entry).is_some());
        if let (Ok(_), Some(header), true) = (&moved, header, slot.done < slot.len)
            && let Ok(file) = seat.parts.loose_file(tree, &header)
        {
            let start = if matches!(done.mem, Mem::Buf(_)) { HEADROOM } else { 0 };
            let (at, len) = (start + slot.done, slot.len - slot.done);
            let offset = header.offset + (slot.at + slot.done) as u64;
            let token = self.slots.put(Slot { load: Load::Unit(unit), ..slot });
            self.platform.submit(token, Op::Write { file, offset, mem: done.mem, at, len });
        } else {
            rail.ops -= 1;
            let short = slot.done < slot.len;
            let error = moved.err().or_else(|| short.then(|| io::ErrorKind::WriteZero.into()));
            match done.mem {
                Mem::Buf(buf) => {
                    self.platform.pool().give(buf);
                    self.unit_is_there(index, &mut it, unit, error);
                }
                Mem::Small(mem) => {
                    half.spill.give(mem);
                    self.piece_is_over(index, &mut it, unit, error);
                }
            }
        }
        it.nudge();
        self.rails[index].as_mut().expect("seen above").packets = Some(it);
    }

    /// The first write of a unit is back: what came meanwhile may follow.
    fn unit_is_there(&mut self, index: usize, it: &mut Packets, unit: u32, error: Option<io::Error>) {
        let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
        if let Some(coming) = half.units.get_mut(&unit) {
            coming.home = Home::There;
        }
        if let Some(error) = error {
            self.give_unit_up(index, it, unit, &error);
        }
        while let Some(piece) = it.held_piece(unit) {
            self.write_spilled(index, it, piece);
        }
        self.look_if_whole(index, it, unit);
    }

    /// A piece is in its place, or will never be.
    fn piece_is_over(&mut self, index: usize, it: &mut Packets, unit: u32, error: Option<io::Error>) {
        let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
        let Some(coming) = half.units.get_mut(&unit) else { return };
        coming.writes -= 1;
        if let Some(error) = error {
            self.give_unit_up(index, it, unit, &error);
        }
        self.look_if_whole(index, it, unit);
    }

    fn look_if_whole(&mut self, index: usize, it: &mut Packets, unit: u32) {
        let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
        if half.flow.is_whole(unit) {
            self.spilled_is_whole(index, it, unit);
        }
    }

    /// The destination does not take a unit: its entry fails, what comes of it is thrown away.
    fn give_unit_up(&mut self, index: usize, it: &mut Packets, unit: u32, error: &io::Error) {
        let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
        let Some(coming) = half.units.get_mut(&unit) else { return };
        let was = std::mem::replace(&mut coming.home, Home::Over { told: true });
        if let (false, Some(header)) = (matches!(was, Home::Over { .. }), coming.header) {
            self.write_failed(index, &header, error, "write the part");
        }
    }

    /// All of a spilled unit came. It is checked as soon as all of it is written and there is a buf.
    pub(super) fn spilled_is_whole(&mut self, index: usize, it: &mut Packets, unit: u32) {
        let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
        let Some(coming) = half.units.get(&unit) else { return };
        match coming.home {
            // Pieces that were held while its entry failed are all over before the word that they may go is.
            Home::There if half.checks.contains(&unit) => {}
            Home::There if coming.writes == 0 => half.checks.push_back(unit),
            Home::Over { .. } if coming.writes == 0 => self.unit_is_over(index, it, unit),
            _ => {}
        }
    }

    /// A unit that nobody wants any more is whole: its number is done with.
    pub(super) fn unit_is_over(&mut self, index: usize, it: &mut Packets, unit: u32) {
        let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
        if half.units.get(&unit).is_none_or(|coming| coming.writes > 0) {
            return;
        }
        half.end(unit);
        if let Some(Coming { header: Some(header), home: Home::Over { told: false }, .. }) = half.units.remove(&unit) {
            self.stray(index, &header);
        }
    }

    /// A chunk whose entry went meanwhile.
    fn stray(&mut self, index: usize, header: &Header) {
        let rail = self.rails[index].as_ref().expect("the caller has it");
        let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
        seat.part.post.put(Event::Stray { chunk: header.chunk, entry: header.entry });
    }

    /// Reads whole units back, as far as there are bufs.
    pub(super) fn check_spilled(&mut self, index: usize, it: &mut Packets) {
        loop {
            let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
            let Some(&unit) = half.checks.front() else { return };
            let Some(buf) = self.platform.pool().take() else { return };
            half.checks.pop_front();
            let rail = self.rails[index].as_mut().expect("the caller has it");
            let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
            let Role::Recv(tree) = &seat.part.role else { unreachable!("checked when the rail came up") };
            let coming = half.units.get_mut(&unit).expect("it waits to be checked");
            let header = coming.header.expect("it was spilled");
            let expected = seat.parts.entry(header.entry).is_some();
            match expected.then(|| seat.parts.loose_file(tree, &header)) {
                Some(Ok(file)) => {
                    coming.home = Home::Checking;
                    rail.ops += 1;
                    let len = header.payload_bytes as usize;
                    let load = Load::Unit(unit);
                    let token =
                        self.slots.put(Slot { kind: OpKind::Check, rail: index, at: HEADROOM, done: 0, len, load });
                    let (offset, mem) = (header.offset, Mem::Buf(buf));
                    self.platform.submit(token, Op::Read { file, offset, mem, at: HEADROOM, len });
                }
                other => {
                    coming.home = Home::Over { told: other.is_some() };
                    self.platform.pool().give(buf);
                    if let Some(Err(error)) = other {
                        self.write_failed(index, &header, &error, "read the part back");
                    }
                    self.unit_is_over(index, it, unit);
                }
            }
        }
    }

    /// A read back came: go on with the rest, or the chunk is checked.
    pub(crate) fn on_check(&mut self, mut slot: Slot, done: Done) {
        let Load::Unit(unit) = slot.load else { unreachable!("checks are of units") };
        let index = slot.rail;
        let rail = self.rails[index].as_mut().expect("a rail stays until its ops are back");
        if rail.has_ended() {
            return self.drop_mem(index, done.mem);
        }
        let Some(mut it) = rail.packets.take() else { unreachable!("only datagram rails check") };
        let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
        let Role::Recv(tree) = &seat.part.role else { unreachable!("checked when the rail came up") };
        let Half::Recv(half) = &mut it.half else { unreachable!("checks are the receiver's") };
        let header = half.units.get(&unit).and_then(|coming| coming.header).expect("it is being checked");
        let expected = seat.parts.entry(header.entry).is_some();
        let moved = match done.result {
            Err(error) if is_again(&error) => Ok(0),
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            other => other,
        };
        slot.done += *moved.as_ref().unwrap_or(&0);
        let file = if expected && moved.is_ok() && slot.done < slot.len {
            seat.parts.loose_file(tree, &header).ok()
        } else {
            None
        };
        if let Some(file) = file {
            let (at, len) = (slot.at + slot.done, slot.len - slot.done);
            let offset = header.offset + slot.done as u64;
            let token = self.slots.put(Slot { load: Load::Unit(unit), ..slot });
            self.platform.submit(token, Op::Read { file, offset, mem: done.mem, at, len });
        } else {
            rail.ops -= 1;
            half.units.remove(&unit);
            half.end(unit);
            let Mem::Buf(buf) = done.mem else { unreachable!("chunks are read into bufs") };
            let error = moved.err().or_else(|| (slot.done < slot.len).then(|| io::ErrorKind::UnexpectedEof.into()));
            self.checked(index, header, buf, error, expected);
        }
        it.nudge();
        self.rails[index].as_mut().expect("seen above").packets = Some(it);
    }

    /// A chunk that became whole in its place is hashed: it has landed, or is asked for again.
    fn checked(&mut self, index: usize, header: Header, mut buf: Buf, error: Option<io::Error>, expected: bool) {
        if !expected || error.is_some() {
            self.platform.pool().give(buf);
            return match error {
                Some(error) if expected => self.write_failed(index, &header, &error, "read the part back"),
                _ => self.stray(index, &header),
            };
        }
        let rail = self.rails[index].as_ref().expect("the caller has it");
        let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
        let file_bytes = seat.parts.entry(header.entry).map_or(0, |entry| entry.bytes());
        let how = hash_as(&header, file_bytes, rail.terms.chunk_bytes);
        let platform = &mut self.platform;
        let checked = check_draining(&rail.terms, &header, how, &mut buf, &mut self.laps, |touch, _, piece| {
            if touch == Touch::Harm {
                platform.harm(Harm::SinkBuf, piece);
            }
        });
        self.platform.pool().give(buf);
        let (chunk, entry, offset, bytes) = (header.chunk, header.entry, header.offset, header.payload_bytes);
        seat.part.post.put(match checked {
            Ok(hashed) => Event::Landed { chunk, entry, offset, bytes, digest: hashed.digest },
            Err(corrupt) => Event::Corrupt { chunk, entry, corrupt },
        });
    }
}
