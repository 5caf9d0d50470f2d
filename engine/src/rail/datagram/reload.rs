//! Units of which something was lost, read again from the source.
//!
//! For: the sending half, whose bufs are given back while units wait for their acknowledgement.
//! In and out: a unit and a buf in; the unit loaded again out.
//! Invariants: what can no longer be read does not fit its header, so the receiver throws the chunk away and asks anew.
//! Absent on purpose: which unit (`proto::flow`), whose buf (`worker::bufs`).

use proto::books::Stage;
use proto::send::Unit;
use sys::mem::{Buf, HEADROOM, Mem};

use super::send::Sending;
use super::wire::{UNIT_AT, Wire};
use crate::ends::file_source::FileSource;
use crate::ends::pack::read_pack;
use crate::ends::pieces::{SECTOR, go_on_from, is_again, read_piece};
use crate::platform::{Done, Op, Platform};
use crate::worker::cx::Cx;
use crate::worker::slots::{Kind as OpKind, Load, Slot};

/// Reads a unit again of which something was lost, into this buf.
pub(super) fn reload<P: Platform>(
    wire: &mut Wire<P>,
    half: &mut Sending<P>,
    source: &mut FileSource<P>,
    cx: &mut Cx<'_, P>,
    unit: u32,
    mut buf: Buf,
) {
    wire.counts.reloaded += 1;
    let going = half.units.get(&unit).expect("the caller looked");
    let bytes = going.bytes as usize;
    cx.watch.lap(Stage::Loop);
    match &going.chunk.unit {
        Unit::Pack { entries } => {
            // What changed since does not fit the header any more: the receiver throws the chunk away and asks anew.
            read_pack(&*source.tree, cx.terms.digest, entries, buf.payload_mut(), cx.watch);
        }
        Unit::Range { entry, offset, .. } => match source.file(entry, *offset) {
            Ok(file) if cx.platform.is_at_once(&file) => {
                let _ = read_piece(cx.platform, &file, *offset, &mut buf.payload_mut()[..bytes]);
                cx.watch.lap(Stage::Read);
            }
            Ok(file) => {
                let (rail, load) = (cx.index, Load::Unit(unit));
                let slot = Slot { kind: OpKind::Reload, rail, at: HEADROOM, done: 0, len: bytes, load };
                let (offset, len) = (*offset, bytes.next_multiple_of(SECTOR));
                return cx.submit(slot, Op::Read { file, offset, mem: Mem::Buf(buf), at: HEADROOM, len });
            }
            Err(_) => {}
        },
    }
    on_reloaded(wire, half, cx, unit, buf);
}

/// A unit was read again, as far as it could be: what could not be does not fit its header, and the chunk goes again anew.
fn on_reloaded<P: Platform>(wire: &mut Wire<P>, half: &mut Sending<P>, cx: &mut Cx<'_, P>, unit: u32, mut buf: Buf) {
    let Some(going) = half.units.get_mut(&unit) else { return cx.give_buf(buf) };
    buf.whole_mut()[UNIT_AT..HEADROOM].copy_from_slice(&going.head);
    going.buf = Some(buf);
    half.flow.reloaded(unit);
    wire.nudge();
}

/// A read for a reload came back: go on with the rest, or the unit is there.
pub(super) fn on_reload<P: Platform>(
    wire: &mut Wire<P>,
    half: &mut Sending<P>,
    source: &mut FileSource<P>,
    cx: &mut Cx<'_, P>,
    mut slot: Slot,
    done: Done,
) {
    let Load::Unit(unit) = slot.load else { unreachable!("reloads are of units") };
    let over = match &done.result {
        _ if wire.base.has_ended() => true,
        Err(error) => !is_again(error),
        Ok(moved) => *moved == 0,
    };
    slot.done = go_on_from(slot.done, slot.done + done.result.unwrap_or(0), slot.len);
    let file = match half.units.get(&unit).map(|going| &going.chunk.unit) {
        Some(Unit::Range { entry, offset, .. }) if !over && slot.done < slot.len => {
            source.file(entry, *offset).ok().map(|file| (file, *offset))
        }
        _ => None,
    };
    match (file, done.mem) {
        (Some((file, offset)), mem) => {
            let (at, offset) = (slot.at + slot.done, offset + slot.done as u64);
            let len = slot.len.next_multiple_of(SECTOR) - slot.done;
            cx.submit(slot, Op::Read { file, offset, mem, at, len });
        }
        (None, Mem::Buf(buf)) => on_reloaded(wire, half, cx, unit, buf),
        (None, Mem::Small(_)) => {}
    }
}
