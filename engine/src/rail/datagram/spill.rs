//! Chunks that wait for repairs on disk instead of in memory.
//!
//! For: receiving over any distance within the memory granted: what is not whole goes into its place in the part file when bufs are short.
//! In and out: units with a known header and their later packets in; writes, a read back, and `Landed` or `Corrupt` out.
//! Invariants: what a unit misses is written as zeros first, and its later packets only after that write is back; nothing has landed before
//! the whole was read back and hashed; from the first part opened for this on (`SinkTree::was_loose`) nobody takes what is missing for zeros.
//! Absent on purpose: packs (they have no place before they are whole), durability (commit).

use std::io;

use proto::wire::chunk::{ChunkKind, HEADER_BYTES};
use sys::mem::{HEADROOM, Mem};

use super::shelves::Piece;
use super::units::{Coming, Home, Receiving};
use super::wire::{UNIT_AT, Wire};
use crate::ends::file_sink::FileSink;
use crate::ends::pieces::is_again;
use crate::platform::{Done, Op, Platform};
use crate::worker::cx::Cx;
use crate::worker::slots::{Kind as OpKind, Load, Slot};

/// Memory is short: the oldest units whose place is known go there.
pub(super) fn spill_units<P: Platform>(
    wire: &mut Wire<P>,
    half: &mut Receiving,
    sink: &mut FileSink<P>,
    cx: &mut Cx<'_, P>,
) {
    end_piece(half, sink, cx);
    // Two, so that the next unit and the next check find one each; more where there are many.
    let low = (cx.platform.pool().count() / 8).max(2);
    loop {
        let leaving = half.units.values().filter(|coming| matches!(coming.home, Home::Leaving)).count();
        if cx.platform.pool().free() + leaving >= low {
            return;
        }
        let movable = half.units.iter().filter(|(_, coming)| {
            let is_range = coming.header.is_some_and(|header| header.kind == ChunkKind::Range);
            is_range && matches!(coming.home, Home::Here(_))
        });
        let Some(unit) = movable.map(|(&unit, _)| unit).min() else { return };
        wire.counts.spilled += 1;
        spill_unit(half, sink, cx, unit);
    }
}

/// Puts what came of a unit into its place.
fn spill_unit<P: Platform>(half: &mut Receiving, sink: &mut FileSink<P>, cx: &mut Cx<'_, P>, unit: u32) {
    let coming = half.units.get_mut(&unit).expect("the caller found it");
    let header = coming.header.expect("the caller looked");
    let file = sink.unaligned_file(&header);
    let Home::Here(mut buf) = std::mem::replace(&mut coming.home, Home::Leaving) else {
        unreachable!("the caller looked")
    };
    let end = coming.fresh_from as usize;
    let file = match file {
        Some(Ok(file)) => file,
        other => {
            coming.home = Home::Over { told: other.is_some() };
            cx.give_buf(buf);
            if let Some(Err(error)) = other {
                cx.report_write_failed(&header, &error, "open the part");
            }
            return;
        }
    };
    if end <= HEADER_BYTES {
        coming.home = Home::There;
        cx.give_buf(buf);
        return;
    }
    for gap in half.flow.missing(unit) {
        let (start, stop) = (gap.start as usize, (gap.end as usize).min(end));
        if start < stop {
            buf.whole_mut()[UNIT_AT + start..UNIT_AT + stop].fill(0);
        }
    }
    let len = end - HEADER_BYTES;
    let slot = Slot { kind: OpKind::Spill, rail: cx.index, at: 0, done: 0, len, load: Load::Unit(unit) };
    cx.submit(slot, Op::Write { file, offset: header.offset, mem: Mem::Buf(buf), at: HEADROOM, len });
}

/// Bytes of a unit that is in its place. There is room, the caller looked.
pub(super) fn put_piece<P: Platform>(
    half: &mut Receiving,
    sink: &mut FileSink<P>,
    cx: &mut Cx<'_, P>,
    unit: u32,
    offset: u32,
    bytes: &[u8],
) {
    let skipped = HEADER_BYTES.saturating_sub(offset as usize).min(bytes.len());
    let (at, bytes) = ((offset as usize + skipped) - HEADER_BYTES.min(offset as usize + skipped), &bytes[skipped..]);
    if bytes.is_empty() {
        return;
    }
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
    end_piece(half, sink, cx);
    half.spill.growing = Some(piece);
}

/// The growing piece grows no more.
fn end_piece<P: Platform>(half: &mut Receiving, sink: &mut FileSink<P>, cx: &mut Cx<'_, P>) {
    let Some(piece) = half.spill.growing.take() else { return };
    match half.units.get(&piece.unit).map(|coming| &coming.home) {
        Some(Home::Leaving) => half.spill.held.push(piece),
        _ => write_piece(half, sink, cx, piece),
    }
}

fn write_piece<P: Platform>(half: &mut Receiving, sink: &mut FileSink<P>, cx: &mut Cx<'_, P>, piece: Piece) {
    let Piece { unit, at, len, mem } = piece;
    let header = half.units.get(&unit).filter(|coming| matches!(coming.home, Home::There)).and_then(|it| it.header);
    let file = header.and_then(|header| Some((header, sink.unaligned_file(&header)?)));
    match file {
        Some((header, Ok(file))) => {
            let slot = Slot { kind: OpKind::Spill, rail: cx.index, at, done: 0, len, load: Load::Unit(unit) };
            let offset = header.offset + at as u64;
            cx.submit(slot, Op::Write { file, offset, mem: Mem::Small(mem), at: 0, len });
        }
        other => {
            let error = other.and_then(|(_, file)| file.err());
            half.spill.give(mem);
            on_piece_over(half, cx, unit, error);
        }
    }
}

/// A write of a spilled unit came back.
pub(super) fn on_spilled<P: Platform>(
    wire: &mut Wire<P>,
    half: &mut Receiving,
    sink: &mut FileSink<P>,
    cx: &mut Cx<'_, P>,
    mut slot: Slot,
    done: Done,
) {
    let Load::Unit(unit) = slot.load else { unreachable!("spills are of units") };
    if wire.base.has_ended() {
        return cx.give(done.mem);
    }
    let moved = match done.result {
        Err(error) if is_again(&error) => Ok(0),
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        other => other,
    };
    slot.done += *moved.as_ref().unwrap_or(&0);
    let header = half.units.get(&unit).and_then(|coming| coming.header);
    if let (Ok(_), Some(header), true) = (&moved, header, slot.done < slot.len)
        && let Some(Ok(file)) = sink.unaligned_file(&header)
    {
        let start = if matches!(done.mem, Mem::Buf(_)) { HEADROOM } else { 0 };
        let (at, len) = (start + slot.done, slot.len - slot.done);
        let offset = header.offset + (slot.at + slot.done) as u64;
        let slot = Slot { load: Load::Unit(unit), ..slot };
        cx.submit(slot, Op::Write { file, offset, mem: done.mem, at, len });
    } else {
        let short = slot.done < slot.len;
        let error = moved.err().or_else(|| short.then(|| io::ErrorKind::WriteZero.into()));
        match done.mem {
            Mem::Buf(buf) => {
                cx.give_buf(buf);
                on_unit_there(half, sink, cx, unit, error);
            }
            Mem::Small(mem) => {
                half.spill.give(mem);
                on_piece_over(half, cx, unit, error);
            }
        }
    }
    wire.nudge();
}

/// The first write of a unit is back: what came meanwhile may follow.
fn on_unit_there<P: Platform>(
    half: &mut Receiving,
    sink: &mut FileSink<P>,
    cx: &mut Cx<'_, P>,
    unit: u32,
    error: Option<io::Error>,
) {
    if let Some(coming) = half.units.get_mut(&unit) {
        coming.home = Home::There;
    }
    if let Some(error) = error {
        give_up(half, cx, unit, &error);
    }
    while let Some(piece) = half.spill.held_piece(unit) {
        write_piece(half, sink, cx, piece);
    }
    look_if_whole(half, cx, unit);
}

/// A piece is in its place, or will never be.
fn on_piece_over<P: Platform>(half: &mut Receiving, cx: &mut Cx<'_, P>, unit: u32, error: Option<io::Error>) {
    let Some(coming) = half.units.get_mut(&unit) else { return };
    coming.writes -= 1;
    if let Some(error) = error {
        give_up(half, cx, unit, &error);
    }
    look_if_whole(half, cx, unit);
}

fn look_if_whole<P: Platform>(half: &mut Receiving, cx: &mut Cx<'_, P>, unit: u32) {
    if half.flow.is_whole(unit) {
        on_whole(half, cx, unit);
    }
}

/// The destination does not take a unit: its entry fails, what comes of it is thrown away.
fn give_up<P: Platform>(half: &mut Receiving, cx: &mut Cx<'_, P>, unit: u32, error: &io::Error) {
    let Some(coming) = half.units.get_mut(&unit) else { return };
    let was = std::mem::replace(&mut coming.home, Home::Over { told: true });
    if let (false, Some(header)) = (matches!(was, Home::Over { .. }), coming.header) {
        cx.report_write_failed(&header, error, "write the part");
    }
}

/// All of a spilled unit came. It is checked as soon as all of it is written and there is a buf.
pub(super) fn on_whole<P: Platform>(half: &mut Receiving, cx: &mut Cx<'_, P>, unit: u32) {
    let Some(coming) = half.units.get(&unit) else { return };
    match coming.home {
        // Pieces that were held while its entry failed are all over before the word that they may go is.
        Home::There if half.checks.contains(&unit) => {}
        Home::There if coming.writes == 0 => half.checks.push_back(unit),
        Home::Over { .. } if coming.writes == 0 => unit_is_over(half, cx, unit),
        _ => {}
    }
}

/// A unit that nobody wants any more is whole: its number is done with.
pub(super) fn unit_is_over<P: Platform>(half: &mut Receiving, cx: &mut Cx<'_, P>, unit: u32) {
    if half.units.get(&unit).is_none_or(|coming| coming.writes > 0) {
        return;
    }
    half.end(unit);
    if let Some(Coming { header: Some(header), home: Home::Over { told: false }, .. }) = half.units.remove(&unit) {
        cx.report_unexpected(header.chunk, header.entry);
    }
}
