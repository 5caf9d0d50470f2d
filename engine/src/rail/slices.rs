//! A bound's slices of the frame in flight.
//!
//! For: streams below a bound: a frame passes slice by slice, each paid for before it does.
//! In and out: how many bytes are left of a frame; how many of them may pass now, or how long to wait.
//! Invariants: one slice at most is paid for and has not passed.
//! Absent on purpose: the bound (`worker::bound`), datagrams (they pay by the burst).

use std::sync::Arc;

use sys::mem::Mem;

use crate::worker::bound::Bound;
use crate::worker::slots::Slot;

/// The bound's slices of the frame in flight.
#[derive(Debug)]
pub(super) struct Slices {
    bound: Arc<Bound>,
    /// The next slice's place: it leaves (or is received) then; and its bytes.
    place: Option<(u64, usize)>,
    /// A frame of which a part has gone (or come), and the rest waits for the bound.
    pub(super) part: Option<(Slot, Mem)>,
    /// Bytes of the frame in flight that the bound has let go.
    pub(super) granted: usize,
}

impl Slices {
    /// Of a new rail below this bound.
    pub(super) fn new(bound: Arc<Bound>) -> Self {
        Slices { bound, place: None, part: None, granted: 0 }
    }

    /// How many of a frame's `bytes` may pass now, if any. They are paid for before they do, so that the last ones are, too.
    pub(super) fn may_pass(&mut self, now_ns: u64, bytes: usize) -> Option<usize> {
        let slice = usize::try_from(self.bound.slice(bytes as u64)).unwrap_or(bytes);
        self.may_pass_slice(now_ns, slice)
    }

    /// May just so many pass now?
    pub(super) fn may_pass_slice(&mut self, now_ns: u64, bytes: usize) -> Option<usize> {
        self.place = self.place.or_else(|| Some((self.bound.take(now_ns, bytes as u64)?, bytes)));
        self.place.take_if(|(place, _)| *place <= now_ns).map(|(_, bytes)| bytes)
    }

    /// Are frames of so many bytes sent and received whole?
    pub(super) fn goes_whole(&self, bytes: usize) -> bool {
        self.bound.slice(bytes as u64) == bytes as u64
    }

    /// What is left of the frame in flight, if the bound lets some of it pass now: `granted` says how much.
    pub(super) fn next(&mut self, now_ns: u64) -> Option<(Slot, Mem)> {
        let rest = self.part.as_ref().map(|(slot, _)| slot.len - slot.done)?;
        self.granted = self.may_pass(now_ns, rest)?;
        self.part.take()
    }

    /// Nanoseconds until the bound lets some of so many bytes pass, or until it is worth asking again.
    pub(super) fn held_ns(&self, now_ns: u64, bytes: usize) -> Option<u64> {
        let wait_ns = match self.place {
            Some((place, _)) => place.saturating_sub(now_ns),
            None => self.bound.held_ns(now_ns, self.bound.slice(bytes as u64)),
        };
        (wait_ns > 0).then_some(wait_ns)
    }
}
