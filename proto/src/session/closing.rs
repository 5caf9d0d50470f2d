//! How a session ends well: the receiver signs, the sender answers, both say farewell.
//!
//! For: the driver of either end, which makes and checks the signatures.
//! In and out: what is done at this end, the peer's last frames and the end of its connection in; what is to be said, and that the session is
//! over, out.
//! Invariants: the receiver signs first, and only a whole job; a signature is answered once; a receiver that has signed says nothing more
//! before it is answered, so that the answer outlives the process that gave it; whoever has the other's signature needs no farewell.
//! Absent on purpose: deciding that all is done (send, recv), the receipt's form (receipt), refusals (the driver).
//!
//! ```text
//! receiver                                 sender
//! open    → signed    Sign               →
//!                                        ←  Sign, Bye     open → bye; over at once if it is the initiator
//! signed  → bye       Bye                →  bye → over
//! bye     → over
//! ```

use alloc::boxed::Box;
use core::time::Duration;

use super::Moment;
use crate::error::Breach;

/// No worker reports what it sent later than this after the receiver has all of it; if one does, the report is short by what it did not tell, and the
/// job ends. A worker's longest sleep is 100 ms, and its queue of events is emptied in each iteration.
pub const HOLD: Duration = Duration::from_secs(1);

/// How far the last words of a job are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Data moves.
    Open,
    /// Receiver: its signature is sent, the sender's is awaited.
    Signed,
    /// `Bye` is sent; the peer's is awaited.
    Bye,
    /// Nothing more is said or awaited.
    Over,
}

/// The peer's signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The digest of the receipt's body that it signed; zeros: it keeps no receipt.
    pub body: [u8; 32],
    /// As it came: it may be anything.
    pub signature: Box<[u8]>,
}

/// The digest of a receipt's body, and this end's signature over it.
pub type Signed = ([u8; 32], [u8; 64]);

/// The state of the end of a session: which of `Sign` and `Bye` was sent and came.
#[derive(Debug)]
pub struct Closing {
    sends: bool,
    initiates: bool,
    stage: Stage,
    /// The receiver's signature, and since when it waits for this end's workers to report what they sent.
    held: Option<(Moment, Signature)>,
    /// Receiver: what it signed.
    signed: Option<Signed>,
}

impl Closing {
    /// Of an end that sends or receives, and that began the session or was reached.
    #[must_use]
    pub const fn new(sends: bool, initiates: bool) -> Closing {
        Closing { sends, initiates, stage: Stage::Open, held: None, signed: None }
    }

    /// Does data move?
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Is nothing more said or awaited?
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Is the connection's end no loss? What matters was said.
    #[must_use]
    pub fn may_end(&self) -> bool {
        matches!(self.stage, Stage::Bye | Stage::Over)
    }

    /// Is this end to sign now, where its machine has nothing left to do? A sender waits for the receiver.
    #[must_use]
    pub fn next_signature(&self, is_done: bool) -> bool {
        self.is_open() && is_done && !self.sends
    }

    /// The receiver has signed, and said so.
    pub fn on_signed(&mut self, body: [u8; 32], signature: [u8; 64]) {
        (self.stage, self.signed) = (Stage::Signed, Some((body, signature)));
    }

    /// The peer's signature came. It waits until `next_answer`: what the receiver has, this end's workers have sent; but their report of it may
    /// come later than the receiver's, and the job's report is to count it.
    ///
    /// # Errors
    /// It came twice.
    pub fn on_signature(&mut self, now: Moment, signature: Signature) -> Result<(), Breach> {
        if self.held.is_some() {
            return Err(Breach::WrongOrder);
        }
        self.held = Some((now, signature));
        Ok(())
    }

    /// The signature that is to be checked and answered now. `has_untold`: workers have not reported all yet; `at_most`: so long that is waited for.
    pub fn next_answer(&mut self, now: Moment, has_untold: bool, at_most: Duration) -> Option<Signature> {
        let waits = has_untold && self.sends && self.is_open();
        self.held.take_if(|(since, _)| !waits || now.since(*since) >= at_most).map(|(_, signature)| signature)
    }

    /// May the peer's signature be answered? `is_done`: this end's machine has nothing left to do. Returns what this end signed already; `None`:
    /// it signs now.
    ///
    /// # Errors
    /// The peer's signature may not come now.
    pub fn begin_answer(&self, is_done: bool) -> Result<Option<Signed>, Breach> {
        match (self.stage, self.sends) {
            (Stage::Signed, false) => Ok(self.signed),
            (Stage::Open, true) if is_done => Ok(None),
            _ => Err(Breach::WrongOrder),
        }
    }

    /// The signature was good, and the answer (a sender's signature, and `Bye`) is said. An initiator that sends is done: nothing more is to be
    /// learned, and its kernel brings the last words. One that receives may have lost its path: it comes again over another connection, and must
    /// find somebody.
    pub fn on_answered(&mut self) {
        self.stage = if self.sends && self.initiates { Stage::Over } else { Stage::Bye };
    }

    /// The peer's farewell.
    ///
    /// # Errors
    /// It may not come before the signatures.
    pub fn on_bye(&mut self) -> Result<(), Breach> {
        if !self.may_end() {
            return Err(Breach::WrongOrder);
        }
        self.stage = Stage::Over;
        Ok(())
    }

    /// The connection ended, with or without a farewell. True: that is no loss, and the session is over.
    pub fn on_connection_over(&mut self) -> bool {
        if self.may_end() {
            self.stage = Stage::Over;
        }
        self.is_over()
    }

    /// The job ends here without a signature, and not as a failure: a volume of the set is out, and the peer knows it.
    pub fn on_given_up(&mut self) {
        self.stage = Stage::Over;
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_ns(ms * 1_000_000)
    }

    fn signature(of: u8) -> Signature {
        Signature { body: [of; 32], signature: Box::new([of; 64]) }
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Said {
        Sign,
        Bye,
    }

    /// Two ends that have nothing left to do; the connection brings `lives` frames in all and then ends, seen by both. How each ends.
    fn close(sender_initiates: bool, lives: usize) -> [Stage; 2] {
        let mut ends = [Closing::new(true, sender_initiates), Closing::new(false, !sender_initiates)];
        let mut ways: [Vec<Said>; 2] = [Vec::new(), Vec::new()];
        let mut brought = 0;
        for _ in 0..10 {
            for (end, other) in [(0, 1), (1, 0)] {
                if ends[end].next_signature(true) {
                    ends[end].on_signed([1; 32], [1; 64]);
                    ways[other].push(Said::Sign);
                }
                while !ways[end].is_empty() && brought < lives {
                    brought += 1;
                    match ways[end].remove(0) {
                        Said::Bye => ends[end].on_bye().unwrap(),
                        Said::Sign => {
                            ends[end].on_signature(at(0), signature(1)).unwrap();
                            ends[end].next_answer(at(0), false, HOLD).unwrap();
                            let own = ends[end].begin_answer(true).unwrap();
                            ways[other].extend(own.is_none().then_some(Said::Sign));
                            ways[other].push(Said::Bye);
                            ends[end].on_answered();
                        }
                    }
                }
            }
        }
        if brought == lives || ends.iter().any(Closing::is_over) {
            ends.iter_mut().for_each(|end| _ = end.on_connection_over());
        }
        [ends[0].stage, ends[1].stage]
    }

    #[test]
    fn both_ends_close_well_and_a_lost_farewell_harms_neither() {
        use Stage::{Open, Over, Signed};
        for sender_initiates in [false, true] {
            assert_eq!(close(sender_initiates, 0), [Open, Signed], "the receiver's signature is lost");
            assert_eq!(
                close(sender_initiates, 1),
                [Over, Signed],
                "the answer is lost: nothing shows the receiver that it was given"
            );
            for lives in 2..6 {
                assert_eq!(close(sender_initiates, lives), [Over, Over], "of the last words {lives} came");
            }
        }
    }

    #[test]
    fn a_signature_waits_for_the_workers_reports_for_a_second() {
        let mut sender = Closing::new(true, true);
        sender.on_signature(at(0), signature(1)).unwrap();
        assert_eq!(sender.next_answer(at(999), true, HOLD), None);
        assert_eq!(sender.on_signature(at(999), signature(1)), Err(Breach::WrongOrder), "and comes once");
        assert_eq!(sender.next_answer(at(1000), true, HOLD), Some(signature(1)));
        assert_eq!(sender.next_answer(at(1001), false, HOLD), None, "it is answered once");
        // All is reported, or the connection has ended: at once.
        for (untold, at_most) in [(false, HOLD), (true, Duration::ZERO)] {
            let mut sender = Closing::new(true, true);
            sender.on_signature(at(5), signature(1)).unwrap();
            assert_eq!(sender.next_answer(at(5), untold, at_most), Some(signature(1)));
        }
        // A receiver's workers have nothing to report.
        let mut receiver = Closing::new(false, true);
        receiver.on_signature(at(0), signature(1)).unwrap();
        assert_eq!(receiver.next_answer(at(0), true, HOLD), Some(signature(1)));
    }

    #[test]
    fn last_words_before_their_time_are_a_breach() {
        let (mut sender, mut receiver) = (Closing::new(true, true), Closing::new(false, false));
        assert_eq!(sender.begin_answer(false), Err(Breach::WrongOrder), "chunks are not acknowledged");
        assert_eq!(receiver.begin_answer(true), Err(Breach::WrongOrder), "a sender does not sign first");
        assert_eq!(sender.on_bye(), Err(Breach::WrongOrder));
        receiver.on_signed([1; 32], [2; 64]);
        assert_eq!(receiver.on_bye(), Err(Breach::WrongOrder), "a farewell is no answer");
        assert_eq!(receiver.begin_answer(true), Ok(Some(([1; 32], [2; 64]))));
        receiver.on_answered();
        assert_eq!(receiver.begin_answer(true), Err(Breach::WrongOrder), "a second answer");
        assert_eq!((receiver.on_bye(), receiver.is_over()), (Ok(()), true));
    }

    #[test]
    fn a_sender_that_was_reached_waits_for_the_receivers_farewell_and_one_that_came_goes() {
        for (initiates, stage) in [(true, Stage::Over), (false, Stage::Bye)] {
            let mut sender = Closing::new(true, initiates);
            assert_eq!(sender.begin_answer(true), Ok(None));
            sender.on_answered();
            assert_eq!(sender.stage, stage);
        }
    }

    #[test]
    fn only_a_receiver_that_has_nothing_left_to_do_signs_and_once() {
        let mut receiver = Closing::new(false, false);
        assert!(!receiver.next_signature(false) && receiver.next_signature(true));
        assert!(!Closing::new(true, false).next_signature(true));
        receiver.on_signed([1; 32], [2; 64]);
        assert!(!receiver.next_signature(true));
        let mut given_up = Closing::new(false, false);
        given_up.on_given_up();
        assert!(given_up.is_over() && !given_up.next_signature(true));
    }

    #[test]
    fn a_connection_that_ends_while_data_moves_or_an_answer_is_awaited_is_a_loss() {
        let mut receiver = Closing::new(false, false);
        assert!(!receiver.on_connection_over());
        receiver.on_signed([1; 32], [2; 64]);
        assert!(!receiver.on_connection_over());
        receiver.on_answered();
        assert!(receiver.on_connection_over() && receiver.is_over());
    }
}
