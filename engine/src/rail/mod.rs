//! Rails: one path each: TCP (and the socket pair of a local copy), and datagrams.
//!
//! For: frames onto a path and off it.
//! In and out: handouts in, chunks in order of readiness out; the lower half the other way.
//! Invariants: frames of a rail are sealed in the order in which they are sent (nonces count); a rail is over only when all its ops are back.
//! Absent on purpose: choosing a rail (proto::send).

pub mod stream; // steps of the loop for stream rails
pub mod datagram; // steps of the loop for datagram rails

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;

use proto::manifest::EntryId;
use proto::send::{CHUNKS_IN_HAND_MAX, Handout, Unit};
use proto::wire::chunk::{ChunkKind, Header, PACK_LINE_BYTES, SEALED_HEADER_BYTES, TAKEN_BYTES};
use proto::wire::control::Digest;
use sys::mem::{Buf, Mem};

use crate::job::{JobNo, RailEnd, RailKey, Terms};
use crate::platform::Platform;
use crate::rail::datagram::Packets;
use crate::seal::frame::{FrameSpan, Sealer};
use crate::worker::bound::Bound;

/// What an op in flight is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Kind {
    /// Source → buf.
    Read = 0,
    /// Frame → rail.
    Send = 1,
    /// Rail → header.
    Head = 2,
    /// Rail → buf.
    Payload = 3,
    /// Buf → sink.
    Write = 4,
    /// A datagram socket has something.
    Readable = 5,
    /// Source → buf once more, to send again what was lost.
    Reload = 6,
    /// Part of a chunk that is not whole → sink.
    Spill = 7,
    /// Sink → buf: a chunk that became whole in its place.
    Check = 8,
    /// Count of frames taken → rail.
    Taken = 9,
}

/// How many kinds there are.
pub(crate) const KINDS: usize = 10;

/// An op in flight: whose, what is done of it, and what goes with it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) kind: Kind,
    pub(crate) rail: usize,
    pub(crate) at: usize,
    pub(crate) done: usize,
    pub(crate) len: usize,
    pub(crate) load: Load,
}

/// What goes with an op.
#[derive(Debug)]
pub(crate) enum Load {
    None,
    Fill(Handout),
    Frame {
        chunk: u64,
        payload: u64,
    },
    Header(Header),
    Landing {
        header: Header,
        digest: Digest,
    },
    /// A datagram rail's unit.
    Unit(u32),
}

/// Ops in flight by token; slots are used again, so nothing is allocated in steady state.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
}

impl Slots {
    /// Room for as many ops as a few rails have in flight at the most; with more rails it grows once.
    pub(crate) fn new() -> Self {
        const ROOM: usize = 8 * (AHEAD_MAX + 4);
        Slots { slots: Vec::with_capacity(ROOM), free: Vec::with_capacity(ROOM) }
    }

    pub(crate) fn put(&mut self, slot: Slot) -> u64 {
        if let Some(index) = self.free.pop() {
            self.slots[index] = Some(slot);
            index as u64
        } else {
            self.slots.push(Some(slot));
            (self.slots.len() - 1) as u64
        }
    }
    pub(crate) fn free(&mut self, token: u64) -> Slot {
        let index = usize::try_from(token).expect("tokens are indices");
        self.free.push(index);
        self.slots[index].take().expect("each token completes once")
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().flatten()
    }
}

/// A filled chunk that waits to be sealed.
#[derive(Debug)]
pub(crate) struct Filled<F> {
    pub(crate) handout: Handout,
    pub(crate) buf: Buf,
    pub(crate) bytes: u32,
    pub(crate) files: u64,
    /// Not filled yet: read from here, piece by piece, when it is sealed.
    pub(crate) from: Option<F>,
}

impl<F> Filled<F> {
    /// The header of its chunk, but for the digests, and the length of its file (0 for a pack).
    pub(crate) fn header(&self) -> (Header, u64) {
        let (kind, entry, offset, file_bytes) = match &self.handout.unit {
            Unit::Range { entry, offset, .. } => (ChunkKind::Range, entry.id, *offset, entry.bytes()),
            Unit::Pack { .. } => (ChunkKind::Pack, self.files, 0, 0),
        };
        let (chunk, payload_bytes) = (self.handout.chunk, self.bytes);
        (Header { kind, payload_bytes, chunk, entry, offset, crc: 0, digest: [0; 32] }, file_bytes)
    }

    /// The user's bytes in it: a pack's index is not.
    pub(crate) fn files_bytes(&self) -> u64 {
        let index = match self.handout.unit {
            Unit::Pack { .. } => self.files * PACK_LINE_BYTES as u64,
            Unit::Range { .. } => 0,
        };
        u64::from(self.bytes) - index
    }
}

/// A sealed frame that waits for the rail.
#[derive(Debug)]
pub(crate) struct Frame<F> {
    pub(crate) chunk: u64,
    pub(crate) buf: Buf,
    pub(crate) span: FrameSpan,
    pub(crate) payload: u64,
    /// Its payload, where that is not in the buf.
    pub(crate) bare: Option<Bare<F>>,
}

impl<F> Frame<F> {
    /// Bytes on the wire.
    pub(crate) fn len(&self) -> usize {
        self.span.len + self.bare.as_ref().map_or(0, |bare| bare.bytes as usize)
    }
}

/// A payload that goes from its file to the network without being read here.
#[derive(Debug)]
pub(crate) struct Bare<F> {
    pub(crate) file: F,
    pub(crate) entry: EntryId,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
}

/// A frame whose memory the network reads itself.
#[derive(Debug)]
pub(crate) struct Lent {
    /// Where it ends in the stream.
    pub(crate) end: u64,
    /// Frames before it and itself.
    pub(crate) count: u64,
    pub(crate) buf: Buf,
}

/// What a stream rail lends to the network, and what its receiver says about it.
#[derive(Debug)]
pub(crate) struct Loan {
    /// The memory a count of frames travels in; away while one is on its way.
    pub(crate) word: Option<Box<[u8]>>,
    /// Frames sent (sender) or taken whole (receiver).
    pub(crate) frames: u64,
    /// The newest count told (receiver) or heard (sender).
    pub(crate) told: u64,
    /// The network reads our memory itself …
    pub(crate) lends: bool,
    /// … and that of the frame in flight.
    pub(crate) lending: bool,
    /// Bytes of whole frames handed to the socket.
    pub(crate) stream_bytes: u64,
    /// Frames that were lent and may still be read.
    pub(crate) lent: VecDeque<Lent>,
}

impl Loan {
    fn new() -> Self {
        Loan {
            word: Some(Box::new([0; TAKEN_BYTES])),
            frames: 0,
            told: 0,
            lends: false,
            lending: false,
            stream_bytes: 0,
            lent: VecDeque::with_capacity(32),
        }
    }
}

/// The receiving half's place in the stream.
#[derive(Debug)]
pub(crate) enum Taking {
    /// Sending rail: only waits for the peer's close.
    Nothing,
    /// A header is to be asked for.
    Idle,
    /// An op is in flight.
    Busy,
    /// A header came, a buf is wanted.
    Hungry(Header),
}

/// Chunks read ahead of the seal at the least; more would only leave the cache before they are hashed.
pub(crate) const AHEAD_MIN: usize = 2;
/// And at the most, as many as a rail has in hand: a disk's queue is full long before, and that of each of many disks.
pub(crate) const AHEAD_MAX: usize = CHUNKS_IN_HAND_MAX;

/// One path of one job.
#[derive(Debug)]
pub(crate) struct Rail<P: Platform> {
    pub(crate) job: JobNo,
    pub(crate) rail: u16,
    pub(crate) socket: P::Socket,
    pub(crate) terms: Terms,
    /// Of a stream rail; a datagram rail seals packets.
    pub(crate) sealer: Option<Sealer>,
    pub(crate) waiting: VecDeque<Handout>,
    pub(crate) filled: VecDeque<Filled<P::File>>,
    pub(crate) sealed: VecDeque<Frame<P::File>>,
    /// The payload of the frame in flight, if it is bare.
    pub(crate) bare: Option<Bare<P::File>>,
    /// A file system refused to hand its bytes over: they are read from here on.
    pub(crate) reads_all: bool,
    /// Reads in flight.
    pub(crate) reads: usize,
    /// Reads in flight and chunks filled, at most: grows while the rail starves for its source.
    pub(crate) ahead: usize,
    pub(crate) sending: bool,
    pub(crate) taking: Taking,
    /// No new frames for now.
    pub(crate) hold: bool,
    pub(crate) head: Option<Box<[u8]>>,
    pub(crate) loan: Loan,
    pub(crate) ops: usize,
    /// What a datagram rail has beside; a stream rail has none.
    pub(crate) packets: Option<Box<Packets>>,
    pub(crate) bound: Arc<Bound>,
    /// The next slice's place: it leaves (or is taken) then; and its bytes.
    place: Option<(u64, usize)>,
    /// A frame of which a part has gone (or come), and the rest waits for the bound.
    pub(crate) part: Option<(Slot, Mem)>,
    /// Bytes of the frame in flight that the bound has let go.
    pub(crate) granted: usize,
    end: Option<RailEnd>,
}

impl<P: Platform> Rail<P> {
    pub(crate) fn new(
        job: JobNo,
        rail: u16,
        socket: P::Socket,
        terms: Terms,
        key: RailKey,
        bound: Arc<Bound>,
        sends: bool,
    ) -> Self {
        Rail {
            job,
            rail,
            socket,
            terms,
            sealer: Some(Sealer::new(terms, key)),
            waiting: VecDeque::with_capacity(32),
            filled: VecDeque::with_capacity(32),
            sealed: VecDeque::with_capacity(4),
            bare: None,
            reads_all: false,
            reads: 0,
            ahead: AHEAD_MIN,
            sending: false,
            taking: if sends { Taking::Nothing } else { Taking::Idle },
            hold: false,
            head: Some(vec![0; SEALED_HEADER_BYTES].into_boxed_slice()),
            loan: Loan::new(),
            ops: 0,
            packets: None,
            bound,
            place: None,
            part: None,
            granted: 0,
            end: None,
        }
    }

    /// A datagram rail.
    pub(crate) fn datagram(
        job: JobNo,
        rail: u16,
        socket: P::Socket,
        terms: Terms,
        packets: Packets,
        bound: Arc<Bound>,
    ) -> Self {
        Rail {
            job,
            rail,
            socket,
            terms,
            sealer: None,
            waiting: VecDeque::with_capacity(32),
            filled: VecDeque::with_capacity(32),
            sealed: VecDeque::new(),
            bare: None,
            reads_all: false,
            reads: 0,
            ahead: AHEAD_MIN,
            sending: false,
            taking: Taking::Nothing,
            hold: false,
            head: None,
            loan: Loan::new(),
            ops: 0,
            packets: Some(Box::new(packets)),
            bound,
            place: None,
            part: None,
            granted: 0,
            end: None,
        }
    }

    pub(crate) fn take_handout(&mut self, handout: Handout) {
        self.waiting.push_back(handout);
    }

    /// How many of a frame's `bytes` may pass now, if any. They are paid for before they do, so that the last ones are, too.
    pub(crate) fn may_pass(&mut self, now_ns: u64, bytes: usize) -> Option<usize> {
        let slice = usize::try_from(self.bound.slice(bytes as u64)).unwrap_or(bytes);
        self.may_pass_slice(now_ns, slice)
    }

    /// May just so many pass now?
    pub(crate) fn may_pass_slice(&mut self, now_ns: u64, bytes: usize) -> Option<usize> {
        self.place = self.place.or_else(|| Some((self.bound.take(now_ns, bytes as u64)?, bytes)));
        self.place.take_if(|(place, _)| *place <= now_ns).map(|(_, bytes)| bytes)
    }

    /// Are frames of so many bytes sent and taken whole?
    pub(crate) fn goes_whole(&self, bytes: usize) -> bool {
        self.bound.slice(bytes as u64) == bytes as u64
    }

    /// Nanoseconds until the bound lets the next bytes pass, or until it is worth asking again.
    pub(crate) fn held_ns(&self, now_ns: u64) -> Option<u64> {
        let bytes = match (&self.part, &self.taking) {
            (Some((slot, _)), _) => Some(slot.len - slot.done),
            (None, Taking::Nothing) if self.sending => None,
            (None, Taking::Nothing) => self.sealed.front().map(Frame::len),
            (None, Taking::Hungry(header)) => Some(header.payload_bytes as usize),
            (None, Taking::Idle | Taking::Busy) => None,
        }?;
        let wait_ns = match self.place {
            Some((place, _)) => place.saturating_sub(now_ns),
            None => self.bound.held_ns(now_ns, self.bound.slice(bytes as u64)),
        };
        (wait_ns > 0).then_some(wait_ns)
    }

    /// May the network still read memory of this rail's frames?
    pub(crate) fn has_lent(&self) -> bool {
        !self.loan.lent.is_empty() || (self.loan.lending && self.part.is_some())
    }

    /// Has it nothing to send, although there is more to read?
    pub(crate) fn is_starved(&self) -> bool {
        let idle = self.filled.is_empty() && self.sealed.is_empty() && !self.sending;
        idle && self.packets.as_ref().is_none_or(|packets| packets.is_starved())
    }

    /// Are there chunks here that are not units yet?
    pub(crate) fn has_more(&self) -> bool {
        !(self.filled.is_empty() && self.waiting.is_empty() && self.reads == 0)
    }

    /// Do chunks come in here?
    pub(crate) fn is_receiving(&self) -> bool {
        match &self.packets {
            Some(packets) => packets.is_receiving(),
            None => self.sealer.is_some() && !matches!(self.taking, Taking::Nothing),
        }
    }

    pub(crate) fn is_hungry(&self) -> bool {
        matches!(self.taking, Taking::Hungry(_))
    }

    /// The rail has ended; only the first reason counts.
    pub(crate) fn end(&mut self, end: RailEnd) {
        self.end.get_or_insert(end);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some() && self.ops == 0
    }

    pub(crate) fn take_end(&mut self) -> RailEnd {
        self.end.take().unwrap_or(RailEnd::Cut)
    }

    pub(crate) fn take_bufs(&mut self) -> impl Iterator<Item = Buf> + '_ {
        let units = self.packets.iter_mut().flat_map(|packets| packets.take_bufs());
        let filled = self.filled.drain(..).map(|filled| filled.buf);
        filled
            .chain(self.sealed.drain(..).map(|frame| frame.buf))
            .chain(units)
            .chain(self.loan.lent.drain(..).map(|lent| lent.buf))
            .chain(self.part.take().and_then(|(_, mem)| if let Mem::Buf(buf) = mem { Some(buf) } else { None }))
    }
}
