//! Memory from which the network reads bursts itself, where that pays.
//!
//! For: the kernel's copy of a burst goes into memory that it must find for each one and that the receiver's core gives back; a copy (or the
//! sealing) into the same few megabytes again and again is cheaper, and there is no other. On a path where it is not, nothing is lost.
//! In and out: what a burst cost either way, and what the receiver has had in; which way the next burst goes out.
//! Invariants: a slot is filled again only when every packet that left from it is resolved, by the receiver's word: so long it is read by the
//! network, or by a receiver on this machine. What was called lost and comes late after all is a packet whose tag or digest does not hold,
//! or one that was here already.
//! Absent on purpose: slots on paths that hold more than the slots do: nearly every burst would find none free.

use std::collections::VecDeque;

use sys::udp::Splicer;

/// Memory of a rail's slots. 12 MiB carried most (design 002, *Socket cost*), 8 MiB hardly less; a rail's bound with what it takes of the grant.
pub(super) const SLOTS_BYTES: usize = 8 << 20;
/// Rails of a worker that have slots at one moment: with many jobs their memory would be gigabytes.
pub(super) const LENDERS_MAX: usize = 2;
/// Bursts shorter than this are not worth a pipe.
const BURST_BYTES_MIN: u32 = 32 << 10;
/// Bursts of a trial, by turns plain and lent, and those that go the cheaper way after it.
const TRIAL: u32 = 64;
const TERM: u32 = 8192;

/// Time and bytes of bursts sent one way.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    ns: u64,
    bytes: u64,
}

impl Cost {
    /// Is it less per byte than the other? A twentieth less, so that chance changes nothing.
    fn is_below(self, other: Cost) -> bool {
        u128::from(self.ns) * u128::from(other.bytes) * 20 < u128::from(other.ns) * u128::from(self.bytes) * 19
    }
}

/// Which way bursts go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// from: – · to: Warm, Never. No burst was long enough yet.
    New,
    /// from: New · to: Trial. So many bursts are left that go out lent and count for nothing: the memory is being touched for the first time.
    Warm { left: u32 },
    /// from: Warm, Term · to: Term. So many bursts of it are left.
    Trial { left: u32 },
    /// from: Trial · to: Trial. So many bursts are left that go out lent, or not.
    Term { left: u32, lends: bool },
    /// from: New. This kernel cannot.
    Never,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Slots {
    splicer: Option<Splicer>,
    stand: Stand,
    /// Of the slots that wait for the receiver's word, oldest first: packets below this number left from it.
    waiting: VecDeque<u64>,
    plain: Cost,
    lent: Cost,
    /// Bursts that went out of slots.
    pub(super) bursts: u64,
}

impl Slots {
    pub(super) fn new() -> Slots {
        let (plain, lent) = (Cost::default(), Cost::default());
        let waiting = VecDeque::with_capacity(SLOTS_BYTES >> 16);
        Slots { splicer: None, stand: Stand::New, waiting, plain, lent, bursts: 0 }
    }

    /// The rail has another socket: what is on its way over the old one keeps its memory by itself, and slots are made anew.
    pub(super) fn moved(&mut self) {
        *self = Slots { bursts: self.bursts, ..Slots::new() };
    }

    /// Would a burst of so many bytes make the slots?
    pub(super) fn asks(&self, burst_bytes: u32) -> bool {
        let is_open = matches!(self.stand, Stand::New | Stand::Trial { .. });
        burst_bytes >= BURST_BYTES_MIN && is_open && self.splicer.is_none()
    }

    /// Other rails have all there may be: bursts go out plain for a term.
    pub(super) fn none_free(&mut self) {
        self.stand = Stand::Term { left: TERM, lends: false };
    }

    /// Has it memory of its own?
    pub(super) fn are_made(&self) -> bool {
        self.splicer.is_some()
    }

    /// Shall this burst go out of a slot, and is there one? `make` makes the slots when the first burst is long enough. `in_flight`: wire
    /// bytes not resolved; `covered`: numbers below it are.
    pub(super) fn wants(
        &mut self,
        burst_bytes: u32,
        in_flight: u64,
        covered: u64,
        make: impl FnOnce() -> Option<Splicer>,
    ) -> bool {
        if burst_bytes < BURST_BYTES_MIN || in_flight > SLOTS_BYTES as u64 {
            return false;
        }
        if self.asks(burst_bytes) {
            self.splicer = make();
            self.stand = match &self.splicer {
                Some(splicer) => Stand::Warm { left: splicer.slots() as u32 },
                None => Stand::Never,
            };
        }
        let Some(splicer) = &self.splicer else { return false };
        while self.waiting.front().is_some_and(|below| *below <= covered) {
            self.waiting.pop_front();
        }
        let lends = match self.stand {
            Stand::Warm { .. } => true,
            Stand::Trial { left } => left.is_multiple_of(2),
            Stand::Term { lends, .. } => lends,
            Stand::New | Stand::Never => false,
        };
        lends && self.waiting.len() < splicer.slots()
    }

    /// The slots, for a burst that goes out of one.
    pub(super) fn splicer(&mut self) -> &mut Splicer {
        self.splicer.as_mut().expect("`wants` found it")
    }

    /// A burst whose last packet has the number before `below` left from the slot.
    pub(super) fn on_lent(&mut self, below: u64) {
        self.waiting.push_back(below);
        self.bursts += 1;
    }

    /// What a long burst cost, from its bytes in the chunk to the call's return.
    pub(super) fn on_sent(&mut self, lent: bool, ns: u64, bytes: u32) {
        if bytes < BURST_BYTES_MIN {
            return;
        }
        match &mut self.stand {
            Stand::Warm { left } => {
                *left -= u32::from(lent);
                if *left == 0 {
                    self.stand = Stand::Trial { left: TRIAL };
                }
            }
            Stand::Trial { left } => {
                let cost = if lent { &mut self.lent } else { &mut self.plain };
                *cost = Cost { ns: cost.ns + ns, bytes: cost.bytes + u64::from(bytes) };
                *left -= 1;
                if *left == 0 {
                    // Without a slot that was free in all the trial there is nothing to choose.
                    let lends = self.lent.bytes > 0 && !self.plain.is_below(self.lent);
                    self.stand = Stand::Term { left: TERM, lends };
                }
            }
            Stand::Term { left, .. } => {
                *left -= 1;
                if *left == 0 {
                    (self.plain, self.lent) = (Cost::default(), Cost::default());
                    self.stand = Stand::Trial { left: TRIAL };
                }
            }
            Stand::New | Stand::Never => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rail_that_found_no_slots_free_sends_plain_for_a_term_and_asks_again() {
        let mut slots = Slots::new();
        assert!(slots.asks(BURST_BYTES_MIN) && !slots.asks(BURST_BYTES_MIN - 1) && !slots.are_made());
        slots.none_free();
        for _ in 0..TERM {
            assert!(!slots.asks(BURST_BYTES_MIN));
            assert!(!slots.wants(BURST_BYTES_MIN, 0, 0, || panic!("there are none to be had")));
            slots.on_sent(false, 1000, BURST_BYTES_MIN);
        }
        assert!(slots.asks(BURST_BYTES_MIN), "after a term others may have gone");
        assert!(!slots.wants(BURST_BYTES_MIN, 0, 0, || None), "this kernel cannot");
        assert!(!slots.asks(BURST_BYTES_MIN));
    }
}
