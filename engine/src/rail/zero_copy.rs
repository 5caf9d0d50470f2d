//! Frames whose memory the network reads itself, and the receiver's count of frames that gives it back.
//!
//! For: stream rails: no copy into the kernel on the sending side.
//! In and out: frames sent by reference, and the receiver's counts, in; bufs that are ours again out. At the receiver: frames consumed in, counts
//! to the sender out.
//! Invariants: a buf is filled again only when the receiver has consumed its frame and its kernel has acknowledged it: a count that anybody
//! in between could forge must not let the next chunk's plain bytes be sent in the place of this one's sealed ones.
//! Absent on purpose: the pipes through which memory is lent (`sys::pipe`).

use std::collections::VecDeque;

use proto::error::Breach;
use proto::wire::chunk::TAKEN_BYTES;
use sys::mem::{Buf, Mem, Pool};

use crate::platform::{Done, Op, Platform};
use crate::rail::base::Base;
use crate::worker::cx::Cx;
use crate::worker::slots::{Kind, Load, Slot};

/// A frame whose memory the network reads itself.
#[derive(Debug)]
struct ByReference {
    /// Where it ends in the stream.
    end: u64,
    /// Frames before it and itself.
    count: u64,
    buf: Buf,
}

/// The sender's side: frames in flight by reference, and how many frames the receiver has consumed.
#[derive(Debug)]
pub(super) struct ZeroCopy {
    /// The network reads our memory itself …
    pub(super) enabled: bool,
    /// … and that of the frame in flight.
    pub(super) this_frame: bool,
    /// Frames sent.
    frames: u64,
    /// Frames that the receiver says it has consumed.
    consumed: u64,
    /// Bytes of whole frames handed to the socket.
    stream_bytes: u64,
    /// Frames that may still be read.
    in_flight: VecDeque<ByReference>,
}

impl ZeroCopy {
    pub(super) fn new(enabled: bool) -> Self {
        let in_flight = VecDeque::with_capacity(32);
        ZeroCopy { enabled, this_frame: false, frames: 0, consumed: 0, stream_bytes: 0, in_flight }
    }

    /// A frame begins: does it go by reference? It comes back a round trip later: half of the bufs stay for reading ahead.
    pub(super) fn begin_frame(&mut self, pool: &Pool) -> bool {
        self.this_frame = self.enabled && pool.free() * 2 >= pool.count();
        self.this_frame
    }

    /// May the network still read memory of frames that were sent whole?
    pub(super) fn has_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// A frame could not be sent, but part of it may be read still. Memory that may not is returned.
    pub(super) fn on_failed(&mut self, mem: Mem) -> Option<Mem> {
        self.keep(mem, u64::MAX, u64::MAX)
    }

    /// A frame was sent whole. Memory that nobody reads any more is returned.
    pub(super) fn on_sent(&mut self, bytes: usize, mem: Mem) -> Option<Mem> {
        self.frames += 1;
        self.stream_bytes += bytes as u64;
        self.keep(mem, self.stream_bytes, self.frames)
    }

    fn keep(&mut self, mem: Mem, end: u64, count: u64) -> Option<Mem> {
        match mem {
            Mem::Buf(buf) if self.this_frame => {
                self.in_flight.push_back(ByReference { end, count, buf });
                None
            }
            mem => Some(mem),
        }
    }

    /// The receiver has consumed so many frames: what went of them by reference is ours again, if its kernel says so too. `busy`: a frame is in
    /// flight, whose send may be reported after the peer's count.
    pub(super) fn on_consumed<P: Platform>(
        &mut self,
        socket: &P::Socket,
        busy: bool,
        cx: &mut Cx<'_, P>,
        count: u64,
    ) -> Result<(), Breach> {
        if count <= self.consumed || count > self.frames + u64::from(busy) {
            return Err(Breach::RailDirection);
        }
        self.consumed = count;
        if self.in_flight.front().is_some_and(|frame| frame.count <= count) {
            let acknowledged = self.stream_bytes.saturating_sub(cx.platform.unacknowledged(socket));
            while self.in_flight.front().is_some_and(|frame| frame.count <= count && frame.end <= acknowledged) {
                let frame = self.in_flight.pop_front().expect("seen in front");
                cx.give_buf(frame.buf);
            }
        }
        Ok(())
    }

    /// The rail is over.
    pub(super) fn give_bufs(self, give: &mut impl FnMut(Buf)) {
        self.in_flight.into_iter().for_each(|frame| give(frame.buf));
    }
}

/// The receiver's side: frames consumed whole, and the count of them that the sender is told.
#[derive(Debug)]
pub(super) struct Consumed {
    frames: u64,
    /// The newest count that the sender was told.
    reported: u64,
    /// The memory that a count travels in; away while one is on its way.
    memory: Option<Box<[u8]>>,
}

impl Consumed {
    pub(super) fn new() -> Self {
        Consumed { frames: 0, reported: 0, memory: Some(vec![0; TAKEN_BYTES].into_boxed_slice()) }
    }

    /// A frame was consumed whole: the sender is told.
    pub(super) fn on_frame<P: Platform>(&mut self, base: &Base<P>, cx: &mut Cx<'_, P>) {
        self.frames += 1;
        self.report(base, cx);
    }

    fn report<P: Platform>(&mut self, base: &Base<P>, cx: &mut Cx<'_, P>) {
        if self.reported == self.frames || base.has_ended() {
            return;
        }
        let Some(mut memory) = self.memory.take() else { return };
        self.reported = self.frames;
        memory.copy_from_slice(&self.reported.to_le_bytes());
        let (socket, len) = (base.socket.clone(), memory.len());
        let slot = Slot { kind: Kind::Consumed, rail: cx.index, at: 0, done: 0, len, load: Load::None };
        cx.submit(slot, Op::Send { socket, mem: Mem::Small(memory), at: 0, len, lend: false });
    }

    /// A count is on its way, and perhaps another is due.
    pub(super) fn on_sent<P: Platform>(&mut self, base: &Base<P>, cx: &mut Cx<'_, P>, mut slot: Slot, done: Done) {
        let Mem::Small(memory) = done.mem else { unreachable!("counts are sent from small memory") };
        match done.result {
            Ok(moved) if slot.done + moved < slot.len && moved > 0 && !base.has_ended() => {
                let socket = base.socket.clone();
                slot.done += moved;
                let (at, len) = (slot.done, slot.len - slot.done);
                cx.submit(slot, Op::Send { socket, mem: Mem::Small(memory), at, len, lend: false });
            }
            // If it failed, the receive that is in flight will say why.
            _ => {
                self.memory = Some(memory);
                self.report(base, cx);
            }
        }
    }
}
