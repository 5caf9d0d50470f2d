//! Which control frame may come when.
//!
//! For: every place that hears a control frame: the greeting of either side, the job driver, the client of a relay.
//! In and out: each frame that came, in order, in; nothing, or the breach `WrongOrder`, out.
//! Invariants: this is the table of docs/protocol.md section 6; a frame that is let through here may still be refused by the machine that it is
//! for, which knows the entry or chunk.
//! Absent on purpose: who may ask for what (rights), signatures and farewells beyond their place (closing), an entry's and a chunk's way (send, recv).
//!
//! ```text
//! from: greeting    Hello                                  → to: opening (acceptor), answered (initiator)
//! from: opening     Ticket once, then Pick*, then one of:
//!                   Open                                   → to: opened; `moving` begins with the plan
//!                   Relay; AskTicket, List (not after Pick) → to: over
//! from: answered    by the wish: Accept; Event*; GiveTicket → to: opened, relaying, over
//!                   List: Names*, Entries*, Unseen*, then ScanEnd → to: over
//! from: relaying    Event*, Bye                            → to: over
//! from: moving      what this end's role hears; Sign       → to: signing
//! from: signing     the same, and Bye                      → to: over
//! Refuse may come at any time.
//! ```

use crate::error::Breach;
use crate::wire::control::{Direction, Frame};

/// What an initiator asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// A job with this end: `Open`.
    Job,
    /// A job of the other end's with a third one: `Relay`.
    Relay,
    /// A ticket for a third one: `AskTicket`.
    Ticket,
    /// What stands at a path: `List`.
    List,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Of an acceptor if there is no wish.
    Greeting(Option<Wish>),
    Opening {
        ticket: bool,
        picks: bool,
    },
    Answered(Wish),
    Relaying,
    /// The plan is being made, or the session is over: nothing is to come.
    Over,
    Moving {
        sends: bool,
        scan_ended: bool,
        signing: bool,
    },
}

/// Which control frames may come next from the peer.
#[derive(Debug, Clone)]
pub struct Order {
    state: State,
}

impl Order {
    /// Of an end that was reached: nothing came yet.
    #[must_use]
    pub const fn of_acceptor() -> Order {
        Order { state: State::Greeting(None) }
    }

    /// Of an end that came and has said what it wants: nothing came yet.
    #[must_use]
    pub const fn of_initiator(wish: Wish) -> Order {
        Order { state: State::Greeting(Some(wish)) }
    }

    /// The same, where the other end's `Hello` was heard.
    #[must_use]
    pub const fn of_greeted(wish: Wish) -> Order {
        Order { state: State::Answered(wish) }
    }

    /// The plan is made: data moves. `sends`: this end sends it.
    #[must_use]
    pub const fn of_job(sends: bool) -> Order {
        Order { state: State::Moving { sends, scan_ended: false, signing: false } }
    }

    /// This end signed, before the other.
    pub const fn on_signed(&mut self) {
        if let State::Moving { signing, .. } = &mut self.state {
            *signing = true;
        }
    }

    /// A frame came.
    ///
    /// # Errors
    /// It may not come now.
    pub fn on_frame(&mut self, frame: &Frame) -> Result<(), Breach> {
        if matches!(frame, Frame::Refuse { .. }) {
            return Ok(());
        }
        self.state = match self.state {
            State::Moving { sends, scan_ended, signing } => {
                let may = is_of_role(frame, sends, scan_ended) || is_common(frame) || (signing && is_of_end(frame));
                may.then_some(State::Moving {
                    sends,
                    scan_ended: scan_ended || matches!(frame, Frame::ScanEnd { .. }),
                    signing: signing || matches!(frame, Frame::Sign { .. }),
                })
            }
            state => before_data(state, frame),
        }
        .ok_or(Breach::WrongOrder)?;
        Ok(())
    }
}

/// Frames of the greeting, and of a session that carries no data of its own.
fn before_data(state: State, frame: &Frame) -> Option<State> {
    match (state, frame) {
        (State::Greeting(None), Frame::Hello { .. }) => Some(State::Opening { ticket: false, picks: false }),
        (State::Greeting(Some(wish)), Frame::Hello { .. }) => Some(State::Answered(wish)),
        (State::Opening { ticket: false, picks: false }, Frame::Ticket { .. }) => {
            Some(State::Opening { ticket: true, picks: false })
        }
        (State::Opening { ticket, .. }, Frame::Pick(_)) => Some(State::Opening { ticket, picks: true }),
        (State::Opening { picks: false, .. }, Frame::AskTicket { .. } | Frame::List { .. }) => Some(State::Over),
        (State::Opening { picks, .. }, Frame::Open(open)) if !picks || open.direction == Direction::Pull => {
            Some(State::Over)
        }
        (State::Opening { .. }, Frame::Relay { .. })
        | (State::Answered(Wish::Job), Frame::Accept { .. })
        | (State::Answered(Wish::Ticket), Frame::GiveTicket { .. })
        | (State::Answered(Wish::List), Frame::ScanEnd { .. })
        | (State::Answered(Wish::Relay) | State::Relaying, Frame::Bye) => Some(State::Over),
        // More of it may come; it stays the answer to the same wish.
        (State::Answered(Wish::List), Frame::Names(_) | Frame::Entries(_) | Frame::Unseen(_)) => Some(state),
        (State::Answered(Wish::Relay) | State::Relaying, Frame::Event { .. }) => Some(State::Relaying),
        _ => None,
    }
}

/// Frames that only a sender hears, or only a receiver.
fn is_of_role(frame: &Frame, sends: bool, scan_ended: bool) -> bool {
    if sends {
        matches!(
            frame,
            Frame::Wants(_)
                | Frame::Have { .. }
                | Frame::Acks(_)
                | Frame::Nack { .. }
                | Frame::Unkept(_)
                | Frame::Committed(_)
                | Frame::RailClosed { .. }
                | Frame::Pruned { .. }
                | Frame::Rate { .. }
                | Frame::Former { .. }
        )
    } else {
        match frame {
            Frame::Names(_) | Frame::Unseen(_) => !scan_ended,
            // Once the scan is over these have a breach of their own.
            Frame::Entries(_) | Frame::ScanEnd { .. } => true,
            Frame::FileEnd { .. } | Frame::Differ { .. } | Frame::Holes { .. } | Frame::RailDown { .. } => true,
            Frame::Former { .. } => true,
            _ => false,
        }
    }
}

/// Frames that either end hears while data moves.
const fn is_common(frame: &Frame) -> bool {
    matches!(
        frame,
        Frame::Faults(_)
            | Frame::Pulse { .. }
            | Frame::Resources(_)
            | Frame::Pace(_)
            | Frame::NicCounts(_)
            | Frame::Unnamed(_)
            | Frame::Sign { .. }
    )
}

/// Frames that may come once an end has signed, beside those that were on their way.
const fn is_of_end(frame: &Frame) -> bool {
    matches!(frame, Frame::Bye | Frame::RailDown { .. } | Frame::RailClosed { .. })
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::string::String;
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    fn hello() -> Frame {
        Frame::Hello { version_min: 1, version: 1, agent: String::new() }
    }

    fn ticket() -> Frame {
        Frame::Ticket { proof: [0; 32] }
    }

    fn relay() -> Frame {
        Frame::Relay { sources: vec![], target: String::new(), volumes: vec![], request: Default::default() }
    }

    fn ask_ticket() -> Frame {
        Frame::AskTicket { key: [0; 32], targets: vec![], compare: Default::default(), prune: None }
    }

    fn list() -> Frame {
        Frame::List { path: Box::default(), recursive: false }
    }

    fn give_ticket() -> Frame {
        Frame::GiveTicket { secret: [0; 16], key: [0; 32], addresses: vec![] }
    }

    fn event() -> Frame {
        Frame::Event { line: String::new() }
    }

    fn sign() -> Frame {
        Frame::Sign { body: [0; 32], signature: Box::new([]) }
    }

    fn scan_end() -> Frame {
        Frame::ScanEnd { entries: 0, files: 0, bytes: 0, faults: 0 }
    }

    /// The first frame of these that may not come, by its place.
    fn refused(mut order: Order, frames: &[Frame]) -> Option<usize> {
        frames.iter().position(|frame| order.on_frame(frame) == Err(Breach::WrongOrder))
    }

    #[test]
    fn an_acceptor_hears_who_comes_with_what_proof_and_then_one_wish() {
        let accepts = |frames: &[Frame]| refused(Order::of_acceptor(), frames);
        assert_eq!(accepts(&[ticket()]), Some(0), "Hello first");
        assert_eq!(accepts(&[hello(), hello()]), Some(1));
        assert_eq!(accepts(&[hello(), ticket(), relay()]), None);
        assert_eq!(accepts(&[hello(), ticket(), ticket()]), Some(2));
        assert_eq!(accepts(&[hello(), Frame::Pick(vec![]), ticket()]), Some(2));
        assert_eq!(accepts(&[hello(), Frame::Pick(vec![]), Frame::Pick(vec![]), relay()]), None);
        assert_eq!(accepts(&[hello(), ask_ticket()]), None);
        assert_eq!(accepts(&[hello(), Frame::Pick(vec![]), ask_ticket()]), Some(2), "a ticket picks nothing");
        assert_eq!(accepts(&[hello(), ticket(), list()]), None);
        assert_eq!(accepts(&[hello(), Frame::Pick(vec![]), list()]), Some(2), "a listing picks nothing");
        assert_eq!(accepts(&[hello(), relay(), relay()]), Some(2), "one wish");
        assert_eq!(accepts(&[hello(), Frame::Acks(vec![])]), Some(1), "no data before a plan");
    }

    #[test]
    fn an_initiator_hears_the_answer_to_its_own_wish() {
        let hears = |wish, frames: &[Frame]| refused(Order::of_initiator(wish), frames);
        for wish in [Wish::Job, Wish::Relay, Wish::Ticket, Wish::List] {
            assert_eq!(hears(wish, &[event()]), Some(0));
            let refuse = Frame::Refuse { code: 1, detail: String::new() };
            assert_eq!(hears(wish, &[refuse.clone(), hello(), refuse]), None);
        }
        assert_eq!(hears(Wish::Ticket, &[hello(), give_ticket(), give_ticket()]), Some(2));
        assert_eq!(hears(Wish::Job, &[hello(), give_ticket()]), Some(1));
        assert_eq!(hears(Wish::Relay, &[hello(), event(), event(), Frame::Bye, event()]), Some(4));
        assert_eq!(refused(Order::of_greeted(Wish::Relay), &[Frame::Bye]), None);
        let listed =
            [Frame::Names(vec![]), Frame::Entries(vec![]), Frame::Unseen(vec![]), Frame::Entries(vec![]), scan_end()];
        assert_eq!(hears(Wish::List, &[&[hello()], &listed[..]].concat()), None);
        assert_eq!(hears(Wish::List, &[hello(), scan_end(), Frame::Entries(vec![])]), Some(2), "it is over");
        assert_eq!(hears(Wish::Job, &[hello(), Frame::Entries(vec![])]), Some(1), "nobody asked for a listing");
    }

    #[test]
    fn names_and_unseen_places_come_before_the_scan_is_over() {
        let mut receiver = Order::of_job(false);
        for frame in [Frame::Names(vec![]), Frame::Unseen(vec![]), Frame::Entries(vec![]), scan_end()] {
            assert_eq!(receiver.on_frame(&frame), Ok(()));
        }
        assert_eq!(receiver.on_frame(&Frame::Unseen(vec![])), Err(Breach::WrongOrder));
        assert_eq!(receiver.on_frame(&Frame::Names(vec![])), Err(Breach::WrongOrder));
    }

    #[test]
    fn a_frame_that_may_not_come_changes_nothing() {
        let mut order = Order::of_acceptor();
        assert_eq!(order.on_frame(&relay()), Err(Breach::WrongOrder));
        assert_eq!((order.on_frame(&hello()), order.on_frame(&relay())), (Ok(()), Ok(())));
    }

    #[test]
    fn a_farewell_comes_after_a_signature_of_either_end_and_what_was_on_its_way_still_comes() {
        for sends in [false, true] {
            let mut order = Order::of_job(sends);
            assert_eq!(order.on_frame(&Frame::Bye), Err(Breach::WrongOrder));
            let mut heard = order.clone();
            assert_eq!((heard.on_frame(&sign()), heard.on_frame(&Frame::Bye)), (Ok(()), Ok(())));
            order.on_signed();
            let late: Vec<Frame> = vec![
                Frame::RailDown { rail: 1 },
                Frame::RailClosed { rail: 1 },
                if sends { Frame::Acks(vec![]) } else { Frame::FileEnd { entry: 0, digest: None } },
                sign(),
                Frame::Bye,
            ];
            assert_eq!(refused(order, &late), None);
        }
    }
}
