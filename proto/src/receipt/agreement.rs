//! Whether a receipt refers to a former one: both ends must have that, and find that nothing has changed since.
//!
//! For: the driver of either end, before the receiver signs.
//! In and out: that this end has nothing left to do, what it found, the peer's word, and time in; what is to be done out.
//! Invariants: an end says yes only after it found so by itself; whatever is lost or late, the receipt is written whole and the job goes on; the
//! sender is asked once; after the decision nothing changes it.
//! Absent on purpose: finding a former receipt, and reading it (node), what the line says (`receipt.rs`).
//!
//! ```text
//! receiver                                        sender
//! idle      → looking   (it has nothing left to do)
//! looking   → asked     Former                  →  idle    → looking
//! asked     → decided                           ←  looking → decided    Former, the same or zeros
//! looking, asked → decided, whole: nothing was found, or `patience` is over
//! ```

use core::time::Duration;

use super::Former;
use crate::error::Breach;
use crate::session::Moment;

/// The name of a receipt on the wire: its job, and the digest of its body.
pub type Named = ([u8; 16], [u8; 32]);

/// The sender's answer where it has no such receipt, or finds another list.
pub const NONE: Named = ([0; 16], [0; 32]);

/// What the driver does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It looks for a former receipt that says the same (a sender: whether this one does).
    Look(Option<Named>),
    /// It waits.
    Wait,
    /// It asks the sender, or answers the receiver.
    Say(Named),
    /// The receiver signs: a receipt that refers to this one, or one that is written whole.
    Sign(Option<Former>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    Looking { since: Moment, named: Option<Named> },
    Asked { since: Moment, former: Former },
    Decided,
}

/// One end's part of the agreement.
#[derive(Debug)]
pub struct Agreement {
    sends: bool,
    /// From the beginning of the look to the decision: within what the peer may be silent about.
    patience: Duration,
    stage: Stage,
    agreed: Option<Former>,
}

impl Agreement {
    /// Of an end that sends or receives.
    #[must_use]
    pub const fn new(sends: bool, patience: Duration) -> Agreement {
        Agreement { sends, patience, stage: Stage::Idle, agreed: None }
    }

    /// The former receipt, once both ends agreed.
    #[must_use]
    pub const fn agreed(&self) -> Option<Former> {
        self.agreed
    }

    /// Receiver: all is done, it could sign. `may`: a former receipt would be worth a look.
    pub fn next_before_sign(&mut self, now: Moment, may: bool) -> Next {
        match self.stage {
            Stage::Idle if may => {
                self.stage = Stage::Looking { since: now, named: None };
                Next::Look(None)
            }
            Stage::Looking { since, .. } | Stage::Asked { since, .. } if now.since(since) < self.patience => Next::Wait,
            _ => {
                self.stage = Stage::Decided;
                Next::Sign(self.agreed)
            }
        }
    }

    /// Sender: the receiver asks.
    ///
    /// # Errors
    /// A second time, or of a receiver that was not asked.
    pub fn on_peer(&mut self, now: Moment, named: Named) -> Result<Option<Next>, Breach> {
        match (self.stage, self.sends) {
            (Stage::Idle, true) => {
                self.stage = Stage::Looking { since: now, named: Some(named) };
                Ok(Some(Next::Look(Some(named))))
            }
            (Stage::Asked { former, .. }, false) => {
                self.stage = Stage::Decided;
                self.agreed = Some(former).filter(|it| (it.job, it.body) == named);
                Ok(None)
            }
            // The answer came after the receiver's patience was over, and it signs what is whole.
            (Stage::Decided, false) => Ok(None),
            _ => Err(Breach::WrongOrder),
        }
    }

    /// What the look found. A receiver whose patience is over, or a sender that was asked for another one, has found nothing.
    pub fn on_found(&mut self, now: Moment, found: Option<Former>) -> Option<Next> {
        let Stage::Looking { since, named } = self.stage else { return None };
        if self.sends {
            let found = found.filter(|it| Some((it.job, it.body)) == named);
            (self.stage, self.agreed) = (Stage::Decided, found);
            return Some(Next::Say(found.map_or(NONE, |it| (it.job, it.body))));
        }
        match found.filter(|_| now.since(since) < self.patience) {
            Some(former) => {
                self.stage = Stage::Asked { since, former };
                Some(Next::Say((former.job, former.body)))
            }
            None => {
                self.stage = Stage::Decided;
                None
            }
        }
    }

    /// Sender: is a look on its way, whose answer the receiver may wait for?
    #[must_use]
    pub const fn is_looking(&self) -> bool {
        matches!(self.stage, Stage::Looking { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receipt::Alike;

    const PATIENCE: Duration = Duration::from_secs(10);
    const FORMER: Former = Former { job: [1; 16], body: [2; 32], alike: Alike::Times };
    const NAMED: Named = (FORMER.job, FORMER.body);

    fn at(s: u64) -> Moment {
        Moment::from_ns(s * 1_000_000_000)
    }

    /// A receiver that has found a former receipt, and asks.
    fn asking() -> Agreement {
        let mut receiver = Agreement::new(false, PATIENCE);
        assert_eq!(receiver.next_before_sign(at(0), true), Next::Look(None));
        assert_eq!(receiver.next_before_sign(at(1), true), Next::Wait);
        assert_eq!(receiver.on_found(at(2), Some(FORMER)), Some(Next::Say(NAMED)));
        receiver
    }

    #[test]
    fn both_ends_refer_to_a_former_receipt_that_each_has_found_to_say_the_same() {
        let mut receiver = asking();
        let mut sender = Agreement::new(true, PATIENCE);
        assert_eq!(sender.on_peer(at(3), NAMED), Ok(Some(Next::Look(Some(NAMED)))));
        assert!(sender.is_looking());
        assert_eq!(sender.on_found(at(4), Some(FORMER)), Some(Next::Say(NAMED)));
        assert_eq!(receiver.next_before_sign(at(4), true), Next::Wait);
        assert_eq!(receiver.on_peer(at(5), NAMED), Ok(None));
        assert_eq!(receiver.next_before_sign(at(5), true), Next::Sign(Some(FORMER)));
        assert_eq!((sender.agreed(), receiver.agreed(), sender.is_looking()), (Some(FORMER), Some(FORMER), false));
    }

    #[test]
    fn a_receipt_is_whole_where_either_end_finds_nothing_or_another() {
        let mut alone = Agreement::new(false, PATIENCE);
        assert_eq!(alone.next_before_sign(at(0), true), Next::Look(None));
        assert_eq!(alone.on_found(at(1), None), None);
        assert_eq!(alone.next_before_sign(at(1), true), Next::Sign(None));
        assert_eq!(
            Agreement::new(false, PATIENCE).next_before_sign(at(0), false),
            Next::Sign(None),
            "not worth a look"
        );

        for found in [None, Some(Former { body: [9; 32], ..FORMER })] {
            let mut sender = Agreement::new(true, PATIENCE);
            sender.on_peer(at(0), NAMED).expect("asked once");
            assert_eq!((sender.on_found(at(1), found), sender.agreed()), (Some(Next::Say(NONE)), None));
        }
        for answer in [NONE, ([1; 16], [9; 32]), ([9; 16], [2; 32])] {
            let mut receiver = asking();
            receiver.on_peer(at(3), answer).expect("it asked");
            assert_eq!(receiver.next_before_sign(at(3), true), Next::Sign(None));
        }
    }

    #[test]
    fn a_look_or_an_answer_that_takes_too_long_costs_no_more_than_the_patience() {
        let mut slow = Agreement::new(false, PATIENCE);
        assert_eq!(slow.next_before_sign(at(0), true), Next::Look(None));
        assert_eq!(slow.next_before_sign(at(10), true), Next::Sign(None));
        assert_eq!(slow.on_found(at(11), Some(FORMER)), None, "too late");

        let mut unanswered = asking();
        assert_eq!(unanswered.next_before_sign(at(9), true), Next::Wait);
        assert_eq!(unanswered.next_before_sign(at(10), true), Next::Sign(None), "of both together");
        assert_eq!(unanswered.on_peer(at(11), NAMED), Ok(None), "the answer was on its way");
        assert_eq!(unanswered.next_before_sign(at(11), true), Next::Sign(None), "and changes nothing");
    }

    #[test]
    fn who_was_not_asked_or_asks_twice_breaks_the_order() {
        let mut sender = Agreement::new(true, PATIENCE);
        sender.on_peer(at(0), NAMED).expect("once");
        assert_eq!(sender.on_peer(at(0), NAMED), Err(Breach::WrongOrder));
        sender.on_found(at(1), Some(FORMER));
        assert_eq!(sender.on_peer(at(2), NAMED), Err(Breach::WrongOrder));
        let mut receiver = Agreement::new(false, PATIENCE);
        assert_eq!(receiver.on_peer(at(0), NAMED), Err(Breach::WrongOrder), "nothing was asked");
        receiver.next_before_sign(at(0), true);
        assert_eq!(receiver.on_peer(at(1), NAMED), Err(Breach::WrongOrder), "not yet");
    }
}
