//! Units that became whole in their place on disk, read back and hashed.
//!
//! For: the receiving half: nothing has landed before the whole was checked.
//! In and out: units that are written in full in; `Landed`, or `Corrupt`, out.
//! Invariants: a unit is read back only when all its writes are; one buf each.
//! Absent on purpose: writing them there (`spill`).

use std::io;

use proto::wire::chunk::Header;
use sys::mem::{Buf, HEADROOM, Mem};

use super::spill::unit_is_over;
use super::units::{Home, Receiving};
use super::wire::Wire;
use crate::ends::file_sink::FileSink;
use crate::ends::pieces::is_again;
use crate::job::Event;
use crate::platform::{Done, Harm, Op, Platform};
use crate::seal::hash::{Touch, check_draining, hash_as};
use crate::worker::cx::{Cx, Next};
use crate::worker::slots::{Kind as OpKind, Load, Slot};

/// Reads whole units back, as far as there are bufs.
pub(super) fn check_spilled<P: Platform>(half: &mut Receiving, sink: &mut FileSink<P>, cx: &mut Cx<'_, P>) {
    while let Some(&unit) = half.checks.front() {
        let Some(buf) = cx.platform.pool().take() else { return };
        half.checks.pop_front();
        let coming = half.units.get_mut(&unit).expect("it waits to be checked");
        let header = coming.header.expect("it was spilled");
        match sink.unaligned_file(&header) {
            Some(Ok(file)) => {
                coming.home = Home::Checking;
                let (len, load) = (header.payload_bytes as usize, Load::Unit(unit));
                let slot = Slot { kind: OpKind::Check, rail: cx.index, at: HEADROOM, done: 0, len, load };
                let (offset, mem) = (header.offset, Mem::Buf(buf));
                cx.submit(slot, Op::Read { file, offset, mem, at: HEADROOM, len });
            }
            other => {
                coming.home = Home::Over { told: other.is_some() };
                cx.give_buf(buf);
                if let Some(Err(error)) = other {
                    cx.report_write_failed(&header, &error, "read the part back");
                }
                unit_is_over(half, cx, unit);
            }
        }
    }
}

/// A read back came: go on with the rest, or the chunk is checked.
pub(super) fn on_check<P: Platform>(
    wire: &mut Wire<P>,
    half: &mut Receiving,
    sink: &mut FileSink<P>,
    cx: &mut Cx<'_, P>,
    mut slot: Slot,
    done: Done,
) -> Next {
    let Load::Unit(unit) = slot.load else { unreachable!("checks are of units") };
    if wire.base.has_ended() {
        cx.give(done.mem);
        return Next::Idle;
    }
    wire.nudge();
    let header = half.units.get(&unit).and_then(|coming| coming.header).expect("it is being checked");
    let moved = match done.result {
        Err(error) if is_again(&error) => Ok(0),
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        other => other,
    };
    slot.done += *moved.as_ref().unwrap_or(&0);
    if moved.is_ok()
        && slot.done < slot.len
        && let Some(Ok(file)) = sink.unaligned_file(&header)
    {
        let (at, len) = (slot.at + slot.done, slot.len - slot.done);
        let offset = header.offset + slot.done as u64;
        let slot = Slot { load: Load::Unit(unit), ..slot };
        cx.submit(slot, Op::Read { file, offset, mem: done.mem, at, len });
        return Next::Idle;
    }
    half.units.remove(&unit);
    half.end(unit);
    let Mem::Buf(buf) = done.mem else { unreachable!("chunks are read into bufs") };
    let error = moved.err().or_else(|| (slot.done < slot.len).then(|| io::ErrorKind::UnexpectedEof.into()));
    check(sink, cx, header, buf, error)
}

/// A chunk that became whole in its place is hashed: it has landed, or is asked for again.
fn check<P: Platform>(
    sink: &FileSink<P>,
    cx: &mut Cx<'_, P>,
    header: Header,
    mut buf: Buf,
    error: Option<io::Error>,
) -> Next {
    let file_bytes = sink.entry(header.entry).map(|entry| entry.bytes());
    let (Some(file_bytes), None) = (file_bytes, &error) else {
        cx.give_buf(buf);
        match error {
            Some(error) if file_bytes.is_some() => cx.report_write_failed(&header, &error, "read the part back"),
            _ => cx.report_unexpected(header.chunk, header.entry),
        }
        return Next::Idle;
    };
    let how = hash_as(&header, file_bytes, cx.terms.chunk_bytes);
    let platform = &mut *cx.platform;
    let checked = check_draining(&cx.terms, &header, how, &mut buf, cx.watch, |touch, _, piece| {
        if touch == Touch::Harm {
            platform.harm(Harm::SinkBuf, piece);
        }
    });
    cx.give_buf(buf);
    match checked {
        Ok(hashed) => Next::Landed { header, digest: hashed.digest },
        Err(corrupt) => {
            cx.events.push(Event::Corrupt { chunk: header.chunk, entry: header.entry, corrupt });
            Next::Idle
        }
    }
}
