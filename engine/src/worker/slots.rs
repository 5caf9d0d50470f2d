//! Ops in flight: what each is for, whose it is, and what goes with it.
//!
//! For: finding the rail and the chunk of a completion by its token.
//! In and out: slots in, tokens out; tokens in, slots back.
//! Invariants: a token is given back exactly once; slots are used again, so that nothing is allocated in steady state; the count of a rail's
//! ops is the number of its slots, so that no step has to keep one.
//! Absent on purpose: the memory that an op owns (it travels with the op, see `platform`).

use proto::books::Stage;
use proto::send::{Assignment, CHUNKS_IN_FLIGHT_MAX};
use proto::wire::chunk::Header;
use proto::wire::control::Digest;

/// What an op in flight is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Kind {
    /// Source → buf.
    Read = 0,
    /// Frame → stream rail.
    Send = 1,
    /// Stream rail → header (receiver) or count of consumed frames (sender).
    Head = 2,
    /// Stream rail → buf.
    Payload = 3,
    /// Buf → sink.
    Write = 4,
    /// A datagram socket has something to be received.
    Readable = 5,
    /// Source → buf once more, to send again what was lost.
    Reload = 6,
    /// Part of a chunk that is not whole → sink.
    Spill = 7,
    /// Sink → buf: a chunk that became whole in its place.
    Check = 8,
    /// Count of consumed frames → stream rail.
    Consumed = 9,
}

/// How many kinds there are.
pub(crate) const KINDS: usize = 10;

impl Kind {
    /// What a thread does that hands it to the kernel: for the most part, the kernel moves the bytes in that call.
    pub(crate) fn stage(self) -> Stage {
        match self {
            Kind::Read | Kind::Reload => Stage::Read,
            Kind::Send | Kind::Consumed => Stage::Send,
            Kind::Head | Kind::Payload | Kind::Readable => Stage::Recv,
            Kind::Write | Kind::Spill | Kind::Check => Stage::Write,
        }
    }
}

/// An op in flight.
#[derive(Debug)]
pub(crate) struct Slot {
    /// What it is for.
    pub(crate) kind: Kind,
    /// Index of its rail in the worker.
    pub(crate) rail: usize,
    /// First byte in its memory.
    pub(crate) at: usize,
    /// Bytes moved so far.
    pub(crate) done: usize,
    /// Bytes to be moved in all.
    pub(crate) len: usize,
    /// What goes with it.
    pub(crate) load: Load,
}

/// What goes with an op.
#[derive(Debug)]
pub(crate) enum Load {
    /// Nothing.
    None,
    /// The chunk that is being read.
    Fill(Assignment),
    /// The frame that is being sent: its chunk, and how many bytes of it are the user's.
    Frame { chunk: u64, payload: u64 },
    /// The header of the payload that is being received.
    Header(Header),
    /// The chunk that is being written.
    Landing { header: Header, digest: Digest },
    /// The unit of a datagram rail.
    Unit(u32),
}

/// All ops in flight of a worker, by token.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// By index of the rail: its ops in flight and its chunks that are held.
    of_rail: Vec<usize>,
    /// The kind of the last op since `take_newest`.
    newest: Option<Kind>,
}

impl Slots {
    /// Room for as many ops as a few rails have in flight at the most; with more rails it grows once.
    pub(crate) fn new() -> Self {
        const ROOM: usize = 8 * (CHUNKS_IN_FLIGHT_MAX + 4);
        let (slots, free) = (Vec::with_capacity(ROOM), Vec::with_capacity(ROOM));
        Slots { slots, free, of_rail: Vec::with_capacity(64), newest: None }
    }

    /// An op begins or goes on. Returns its token.
    pub(crate) fn put(&mut self, slot: Slot) -> u64 {
        self.hold(slot.rail);
        self.newest = Some(slot.kind);
        if let Some(index) = self.free.pop() {
            self.slots[index] = Some(slot);
            index as u64
        } else {
            self.slots.push(Some(slot));
            (self.slots.len() - 1) as u64
        }
    }

    /// The kind of the last op that began since this was asked, if any did.
    pub(crate) fn take_newest(&mut self) -> Option<Kind> {
        self.newest.take()
    }

    /// An op came back.
    pub(crate) fn take(&mut self, token: u64) -> Slot {
        let index = usize::try_from(token).expect("tokens are indices");
        self.free.push(index);
        let slot = self.slots[index].take().expect("each token completes once");
        self.release(slot.rail);
        slot
    }

    /// A chunk of this rail is held for its sink: the rail stays as long.
    pub(crate) fn hold(&mut self, rail: usize) {
        if self.of_rail.len() <= rail {
            self.of_rail.resize(rail + 1, 0);
        }
        self.of_rail[rail] += 1;
    }

    /// A chunk of this rail is held no more.
    pub(crate) fn release(&mut self, rail: usize) {
        self.of_rail[rail] -= 1;
    }

    /// Ops in flight and chunks held of a rail.
    pub(crate) fn in_flight(&self, rail: usize) -> usize {
        self.of_rail.get(rail).copied().unwrap_or(0)
    }

    /// All that are in flight.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rail: usize) -> Slot {
        Slot { kind: Kind::Head, rail, at: 0, done: 0, len: 1, load: Load::None }
    }

    #[test]
    fn a_rail_has_ops_in_flight_until_all_are_back_and_no_chunk_of_it_is_held() {
        let mut slots = Slots::new();
        let tokens = [3, 0, 3].map(|rail| slots.put(of(rail)));
        slots.hold(3);
        assert_eq!([0, 1, 3, 9].map(|rail| slots.in_flight(rail)), [1, 0, 3, 0]);
        for token in tokens {
            slots.take(token);
        }
        assert_eq!([0, 3].map(|rail| slots.in_flight(rail)), [0, 1]);
        slots.release(3);
        assert_eq!((slots.in_flight(3), slots.iter().count()), (0, 0));
        assert!(tokens.contains(&slots.put(of(1))), "slots are used again");
    }
}
