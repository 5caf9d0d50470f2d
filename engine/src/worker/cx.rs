//! What a step works with besides its rail and its end, what it may report to the job, and what it says is next.
//!
//! For: steps that are functions: `fn step(&mut Rail, &mut Cx) -> Next`.
//! In and out: borrowed by the loop for one call of a step.
//! Invariants: a `Cx` reaches nothing of another rail or another job; ops that are put here belong to the rail at work.
//! Absent on purpose: rails and ends (the loop hands them over beside it), order (the loop).

use std::io;

use proto::manifest::EntryId;
use proto::send::Assignment;
use proto::wire::chunk::Header;
use proto::wire::control::{Digest, FaultKind};
use sys::mem::{Buf, Mem};

use crate::job::{EntryError, Event, EventQueue, RailEnd, Terms, fault_kind, first_entry};
use crate::platform::{Op, Platform};
use crate::worker::slots::{Slot, Slots};
use crate::worker::stages::Stopwatch;

/// What comes after a step; the loop does it.
#[derive(Debug)]
pub(crate) enum Next {
    /// Nothing: this rail has no more to do for now.
    Idle,
    /// A header came on a stream: once the sink admits it, its payload may be received.
    Announced(Header),
    /// A payload came: it is to be opened and to land.
    Received { header: Header, buf: Buf },
    /// A header came whose payload is in the source beside: it is to be read from there, and to land.
    InPlace { header: Header, buf: Buf },
    /// A chunk is in its place already, and was checked there.
    Landed { header: Header, digest: Digest },
    /// A unit is to be read again, for which the loop finds a buf.
    WantsBuf,
    /// The rail ends.
    Broken(RailEnd),
}

/// What a rail may take of the worker in this iteration, and who else is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    /// Bursts that a datagram rail may send or receive.
    pub(crate) bursts: usize,
    /// Rails on which chunks come in.
    pub(crate) receivers: usize,
    /// Of these, queue pairs.
    pub(crate) pairs: usize,
    /// Other rails that have memory from which the network reads bursts itself.
    pub(crate) lenders: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Cx<'a, P: Platform> {
    /// Where ops go; clock and pool.
    pub(crate) platform: &'a mut P,
    /// Ops in flight.
    pub(crate) slots: &'a mut Slots,
    /// Stage accounting of this thread.
    pub(crate) watch: &'a mut Stopwatch,
    /// To the job's end.
    pub(crate) events: &'a mut EventQueue,
    /// What both ends of the job agreed.
    pub(crate) terms: Terms,
    /// Index of the rail at work, as slots name it.
    pub(crate) index: usize,
    /// Number of the rail at work, as both ends name it.
    pub(crate) rail: u16,
    /// See `Share`.
    pub(crate) share: Share,
}

impl<P: Platform> Cx<'_, P> {
    /// Hands an op to the platform.
    pub(crate) fn submit(&mut self, slot: Slot, op: Op<P::File, P::Socket>) {
        let token = self.slots.put(slot);
        self.platform.submit(token, op);
    }

    /// Gives a buf back to the pool; other memory goes.
    pub(crate) fn give(&mut self, mem: Mem) {
        if let Mem::Buf(buf) = mem {
            self.give_buf(buf);
        }
    }

    /// Gives a buf back to the pool.
    pub(crate) fn give_buf(&mut self, buf: Buf) {
        self.platform.pool().give(buf);
    }

    /// Reports that a chunk cannot be sent.
    pub(crate) fn report_dropped(
        &mut self,
        chunk: &Assignment,
        kind: FaultKind,
        error: &io::Error,
        step: &'static str,
    ) {
        let entry = first_entry(&chunk.unit);
        let error = EntryError { entry, kind, errno: error.raw_os_error().unwrap_or(0), step };
        self.events.push(Event::Dropped { rail: self.rail, chunk: chunk.chunk, error });
    }

    /// Reports that the source could not be read when the chunk's turn came. That it ends too early means that it changed.
    pub(crate) fn report_unreadable(&mut self, chunk: &Assignment, error: &io::Error) {
        let changed = error.kind() == io::ErrorKind::UnexpectedEof;
        let kind = if changed { FaultKind::Torn } else { fault_kind(error, true) };
        self.report_dropped(chunk, kind, error, "read the source");
    }

    /// Reports that the destination does not take a chunk.
    pub(crate) fn report_write_failed(&mut self, header: &Header, error: &io::Error, step: &'static str) {
        let kind = if error.raw_os_error().is_none() { FaultKind::Io } else { fault_kind(error, false) };
        let error = EntryError { entry: header.entry, kind, errno: error.raw_os_error().unwrap_or(0), step };
        self.events.push(Event::WriteFailed { chunk: header.chunk, offset: header.offset, error });
    }

    /// Reports a chunk whose entry is not expected, or no more.
    pub(crate) fn report_unexpected(&mut self, chunk: u64, entry: EntryId) {
        self.events.push(Event::Unexpected { chunk, entry });
    }
}
