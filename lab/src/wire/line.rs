//! One direction's delay line: packets from the moment the host has sent them until they are due at the other.
//!
//! For: the emulator's threads, which read into it and write out of it; tests, which do so in virtual time.
//! In and out: room to read into; `admit` what was read; runs of packets when they are due.
//! Invariants: all memory is had at the start; a byte is never moved; each run lies in one block, which is free again when its last
//! run is done; runs come in the order in which they are due, equal ones in the order in which they came.
//! Absent on purpose: clocks and descriptors (emulator.rs), what the wire does (link.rs), headers (packet.rs).

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::io;

use sys::mem::{Buf, Pool};
use sys::tun::{PACKET_BYTES_MAX, VNET_HEADER_BYTES};

use crate::wire::link::{Cause, Fate, Link, Wire};
use crate::wire::packet::{self, HEAD_BYTES_MAX, Shape};

/// Reads share a block: at most one read's room of it is wasted, an eighth.
pub const BLOCK_BYTES: usize = 512 << 10;
/// Room that a read needs.
const READ_BYTES: usize = PACKET_BYTES_MAX + VNET_HEADER_BYTES;
/// Runs begin on a cache line.
const ALIGN: usize = 64;
/// Bytes of blocks for which there is one place in the list of runs. A run of the smallest packet takes two cache lines.
const BYTES_PER_RUN: usize = 256;

/// Packets of one super-packet that arrive together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    leaves_ns: u64,
    hold_ns: u64,
    order: u64,
    block: u32,
    at: u32,
    bytes: u32,
    first: u16,
    end: u16,
    corrupt: bool,
    marked: bool,
    late: bool,
}

impl Run {
    /// When its last packet is due.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        self.leaves_ns.saturating_add(self.hold_ns)
    }

    /// How many packets.
    #[must_use]
    pub fn count(&self) -> u64 {
        u64::from(self.end - self.first)
    }
}

/// Earliest first in a heap whose top is the greatest.
#[derive(Debug, PartialEq, Eq)]
struct Early(Run);

impl Ord for Early {
    fn cmp(&self, other: &Early) -> Ordering {
        (other.0.due_ns(), other.0.order).cmp(&(self.0.due_ns(), self.0.order))
    }
}

impl PartialOrd for Early {
    fn partial_cmp(&self, other: &Early) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What has passed. Packets are those of the wire, bytes those of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Came from the host.
    pub packets_in: u64,
    /// The same in bytes.
    pub bytes_in: u64,
    /// Super-packets they came in.
    pub reads: u64,
    /// Went to the other host; with doubles.
    pub packets_out: u64,
    /// The same in bytes.
    pub bytes_out: u64,
    /// Writes they went in.
    pub writes: u64,
    /// Lost because the link was down.
    pub down: u64,
    /// Dropped by a path that does not carry that size.
    pub black_holed: u64,
    /// Dropped by the policer.
    pub police: u64,
    /// Dropped at the tail of the queue.
    pub queue: u64,
    /// Lost on the wire.
    pub wire: u64,
    /// Came harmed.
    pub corrupt: u64,
    /// Came twice.
    pub twice: u64,
    /// Came marked.
    pub marked: u64,
    /// Made late, so that others overtake them.
    pub late: u64,
    /// Dropped because the emulator's memory was used up: its fault, not the link's.
    pub no_room: u64,
    /// The deepest that the queue has been, bytes.
    pub queued_bytes_max: u64,
}

#[derive(Debug)]
struct Block {
    buf: Buf,
    runs: u32,
}

/// See the head of this file.
#[derive(Debug)]
pub struct Line {
    link: Link,
    blocks: Vec<Block>,
    free: Vec<u32>,
    current: Option<u32>,
    at: usize,
    in_order: VecDeque<Run>,
    early: BinaryHeap<Early>,
    runs_max: usize,
    order: u64,
    granule_ns: u64,
    scratch: Vec<u8>,
    /// What has passed so far.
    pub counts: Counts,
}

/// Bytes of memory that a line with so many bytes of blocks has.
#[must_use]
pub fn memory_bytes(block_bytes: u64) -> u64 {
    let blocks = blocks_for(block_bytes) as u64;
    let runs = runs_for(blocks_for(block_bytes)) as u64;
    blocks * (BLOCK_BYTES + sys::mem::HEADROOM) as u64 + runs * size_of::<Run>() as u64 * 2
}

fn blocks_for(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(BLOCK_BYTES as u64)).unwrap_or(usize::MAX).max(4)
}

fn runs_for(blocks: usize) -> usize {
    blocks * (BLOCK_BYTES / BYTES_PER_RUN)
}

impl Line {
    /// A line with so many bytes of blocks; packets of one super-packet whose arrivals are within `granule_ns` go out in one write.
    /// Errors: ENOMEM.
    pub fn new(link: Link, block_bytes: u64, granule_ns: u64) -> io::Result<Line> {
        let count = blocks_for(block_bytes);
        let mut pool = Pool::new(count, BLOCK_BYTES)?;
        let blocks: Vec<Block> = std::iter::from_fn(|| pool.take()).map(|buf| Block { buf, runs: 0 }).collect();
        let runs_max = runs_for(count);
        let free = (0..u32::try_from(blocks.len()).unwrap_or(u32::MAX)).rev().collect();
        Ok(Line {
            link,
            blocks,
            free,
            current: None,
            at: 0,
            in_order: VecDeque::with_capacity(runs_max),
            early: BinaryHeap::with_capacity(runs_max),
            runs_max,
            order: 0,
            granule_ns,
            scratch: Vec::with_capacity(READ_BYTES),
            counts: Counts::default(),
        })
    }

    /// Where the next packet may be read to; `None`: all memory is in flight, read it away with [`Line::refuse`].
    pub fn room(&mut self) -> Option<&mut [u8]> {
        let has_room = self.current.is_some() && self.at + READ_BYTES <= BLOCK_BYTES;
        if !has_room {
            // What is left of the old block goes free with its last run.
            if let Some(old) = self.current.take()
                && self.blocks[old as usize].runs == 0
            {
                self.free.push(old);
            }
            self.current = Some(self.free.pop()?);
            self.at = 0;
        }
        let block = self.current?;
        let at = self.at;
        Some(&mut self.blocks[block as usize].buf.payload_mut()[at..at + READ_BYTES])
    }

    /// A packet that was read to nowhere, because there was no room.
    pub fn refuse(&mut self, read: &[u8]) {
        let shape = Shape::of(read);
        self.counts.reads += 1;
        self.counts.packets_in += u64::from(shape.count);
        self.counts.bytes_in += u64::from(shape.bytes);
        self.counts.no_room += u64::from(shape.count);
    }

    /// The first `bytes` of the room are what the host sent at `now_ns`.
    pub fn admit(&mut self, now_ns: u64, bytes: usize) {
        let Some(block) = self.current else { return };
        let at = self.at;
        let read = &self.blocks[block as usize].buf.payload()[at..at + bytes];
        let shape = Shape::of(read);
        let can_mark = self.link.wire().mark_ns != 0 && packet::takes_mark(read);
        let place = Run {
            leaves_ns: 0,
            hold_ns: 0,
            order: 0,
            block,
            at: u32::try_from(at).unwrap_or(0),
            bytes: u32::try_from(bytes).unwrap_or(0),
            first: 0,
            end: 0,
            corrupt: false,
            marked: false,
            late: false,
        };
        self.counts.reads += 1;
        self.counts.packets_in += u64::from(shape.count);
        let mut open: Option<(u64, Run)> = None;
        for index in 0..shape.count {
            let packet_bytes = shape.packet_bytes(index);
            self.counts.bytes_in += u64::from(packet_bytes);
            match self.link.on_packet(now_ns, packet_bytes) {
                Fate::Lost(cause) => self.count_lost(cause),
                Fate::Arrives(arrival) => {
                    let run = Run {
                        leaves_ns: arrival.leaves_ns,
                        hold_ns: arrival.hold_ns,
                        first: index,
                        end: index + 1,
                        corrupt: arrival.corrupt,
                        marked: arrival.marked && can_mark,
                        late: arrival.late,
                        ..place
                    };
                    self.join(&mut open, run);
                    if arrival.twice {
                        self.counts.twice += 1;
                        self.close(&mut open);
                        self.push(run);
                    }
                }
            }
        }
        self.close(&mut open);
        self.counts.queued_bytes_max = self.counts.queued_bytes_max.max(self.link.queued_bytes(now_ns));
        if self.blocks[block as usize].runs > 0 {
            self.at = (at + bytes).next_multiple_of(ALIGN);
        }
    }

    /// Makes a packet part of the open run, or opens the next one with it.
    fn join(&mut self, open: &mut Option<(u64, Run)>, run: Run) {
        if let Some((opened_ns, last)) = open
            && last.end == run.first
            && !last.corrupt
            && !run.corrupt
            && last.marked == run.marked
            && last.late == run.late
            && run.due_ns() >= last.due_ns()
            && run.due_ns() - *opened_ns <= self.granule_ns
        {
            *last = Run { first: last.first, ..run };
            return;
        }
        self.close(open);
        *open = Some((run.due_ns(), run));
    }

    fn close(&mut self, open: &mut Option<(u64, Run)>) {
        if let Some((_, run)) = open.take() {
            self.push(run);
        }
    }

    fn push(&mut self, run: Run) {
        if self.in_order.len() >= self.runs_max || self.early.len() >= self.runs_max {
            self.counts.no_room += run.count();
            return;
        }
        self.order += 1;
        let run = Run { order: self.order, ..run };
        self.blocks[run.block as usize].runs += 1;
        self.counts.late += if run.late { run.count() } else { 0 };
        match self.in_order.back() {
            // What is made late would turn all that follows into exceptions.
            _ if run.late => self.early.push(Early(run)),
            Some(last) if run.due_ns() < last.due_ns() => self.early.push(Early(run)),
            _ => self.in_order.push_back(run),
        }
    }

    fn count_lost(&mut self, cause: Cause) {
        match cause {
            Cause::Down => self.counts.down += 1,
            Cause::BlackHole => self.counts.black_holed += 1,
            Cause::Police => self.counts.police += 1,
            Cause::Queue => self.counts.queue += 1,
            Cause::Wire => self.counts.wire += 1,
        }
    }

    /// When the next run is due.
    #[must_use]
    pub fn next_due_ns(&self) -> Option<u64> {
        let in_order = self.in_order.front().map(Run::due_ns);
        let early = self.early.peek().map(|early| early.0.due_ns());
        match (in_order, early) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The next run that is due by now. It must be given to [`Line::done`].
    pub fn take_due(&mut self, now_ns: u64) -> Option<Run> {
        let due_ns = self.next_due_ns()?;
        if due_ns > now_ns {
            return None;
        }
        let in_order = self.in_order.front().map(|run| (run.due_ns(), run.order));
        let early = self.early.peek().map(|early| (early.0.due_ns(), early.0.order));
        let is_early = match (in_order, early) {
            (Some(in_order), Some(early)) => early < in_order,
            (None, _) => true,
            (Some(_), None) => false,
        };
        if is_early { self.early.pop().map(|early| early.0) } else { self.in_order.pop_front() }
    }

    /// The bytes to write for a run: what to write first (may be empty), then the rest.
    pub fn bytes<'a>(&'a mut self, run: &Run, space: &'a mut [u8; HEAD_BYTES_MAX]) -> (&'a [u8], &'a [u8]) {
        let at = run.at as usize;
        let read = &self.blocks[run.block as usize].buf.payload()[at..at + run.bytes as usize];
        let shape = Shape::of(read);
        if run.corrupt {
            // The bit is found from the run itself, so that the link's dice are thrown in one place.
            let bit = run.order.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8;
            packet::harm(read, &shape, run.first, bit, &mut self.scratch);
            return (&[], &self.scratch);
        }
        packet::cut(read, &shape, run.first..run.end, run.marked, space)
    }

    /// The run was written (`bytes`: what was written, of IP) or could not be: its memory is free.
    pub fn done(&mut self, run: &Run, bytes: usize) {
        let block = &mut self.blocks[run.block as usize];
        block.runs -= 1;
        if block.runs == 0 {
            if self.current == Some(run.block) {
                // Again from its warm beginning.
                self.at = 0;
            } else {
                self.free.push(run.block);
            }
        }
        if bytes > 0 {
            let heads = (run.count() - 1) * self.head_bytes_of(run);
            let counts = &mut self.counts;
            counts.writes += 1;
            counts.packets_out += run.count();
            counts.bytes_out += bytes as u64 + heads;
            counts.corrupt += u64::from(run.corrupt);
            counts.marked += if run.marked { run.count() } else { 0 };
        }
    }

    /// Headers that all but the first packet of a written run repeat on the wire.
    fn head_bytes_of(&self, run: &Run) -> u64 {
        let at = run.at as usize;
        let read = &self.blocks[run.block as usize].buf.payload()[at..at + run.bytes as usize];
        u64::from(Shape::of(read).head_bytes())
    }

    /// The link changes while it runs.
    pub fn set(&mut self, now_ns: u64, wire: Wire, rtt_ns: u64) {
        let shift = self.link.set(now_ns, wire, rtt_ns);
        let mut runs: Vec<Run> = self.in_order.drain(..).collect();
        runs.extend(self.early.drain().map(|early| early.0));
        for run in &mut runs {
            (run.leaves_ns, run.hold_ns) = shift.apply(run.leaves_ns, run.hold_ns);
        }
        runs.sort_by_key(|run| (run.due_ns(), run.order));
        for run in runs {
            if shift.cleared && run.leaves_ns > shift.at_ns {
                self.counts.down += run.count();
                self.done(&run, 0);
            } else {
                self.in_order.push_back(run);
            }
        }
    }

    /// What the link is like now.
    #[must_use]
    pub fn link(&self) -> &Link {
        &self.link
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
