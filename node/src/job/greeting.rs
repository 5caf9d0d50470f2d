//! The greeting and the frames before data.
//!
//! For: from a fresh session to a plan both ends computed alike.
//! In and out: a `Link` and what is asked for in; offers, plan and choices out.
//! Invariants: one round trip for the initiator; a plan that is not what our own negotiation gives is refused.
//! Absent on purpose: who may do what (serve::session).

use std::time::Duration;

use engine::tree::scan::include::IncludeList;
use proto::error::{Breach, Refusal};
use proto::negotiate::{Choice, Offer, Plan, negotiate};
use proto::session::order::{Order, Wish};
use proto::wire::control::{Compare, Direction, Frame, Open, Place};

use crate::identity::ticket::{PROOF_LABEL, Ticket};
use crate::link::{Link, failure_of};
use text::exit::{Exit, Failure};
use text::refused;

/// An answer to a greeting may take so long.
pub const GREET: Duration = Duration::from_secs(20);

/// What this build calls itself.
#[must_use]
pub fn agent() -> String {
    format!("longhaul {}", env!("CARGO_PKG_VERSION"))
}

/// Queues a frame.
pub fn say(link: &mut Link, frame: &Frame) {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    link.send(&bytes);
}

/// Waits for a frame.
pub fn hear(link: &mut Link, timeout: Duration) -> Result<Frame, Failure> {
    let peer = link.peer_addr().map_or_else(|| "the other end".to_owned(), |addr| addr.to_string());
    let bytes =
        link.call(timeout).map_err(|error| failure_of(&format!("hear from {peer}"), &anyhow::Error::new(error)))?;
    match Frame::decode(&bytes) {
        Ok(Frame::Refuse { code, detail }) => Err(refused(&peer, code, detail)),
        Ok(frame) => Ok(frame),
        Err(breach) => Err(Exit::Breach.fail(format!("understand {peer}"), breach.what())),
    }
}

/// Waits for a frame that may come now; `what` was being done.
pub fn hear_in_order(link: &mut Link, timeout: Duration, order: &mut Order, what: &str) -> Result<Frame, Failure> {
    let frame = hear(link, timeout)?;
    order.on_frame(&frame).map_err(|breach| Exit::Breach.fail(what, breach.what()))?;
    Ok(frame)
}

fn refused(peer: &str, code: u16, detail: String) -> Failure {
    let what = match (Breach::from_code(code), Refusal::from_code(code)) {
        (Some(breach), _) => breach.what().to_owned(),
        (_, Some(refusal)) => refusal.what().to_owned(),
        _ => format!("code {code}"),
    };
    let of_a_path = [
        Refusal::NoSuchPath,
        Refusal::NotAFolder,
        Refusal::NoSpace,
        Refusal::OutsideRoot,
        Refusal::Denied,
        Refusal::Overlap,
    ];
    let is_let_in = Refusal::from_code(code).is_some_and(|it| of_a_path.contains(&it));
    let cause = match (detail.is_empty(), is_let_in) {
        (true, _) => what,
        // What the other end says of a path names it, and what was done with it.
        (false, true) => detail,
        (false, false) => format!("{what}: {detail}"),
    };
    let what = if is_let_in { format!("start the job at {peer}") } else { format!("be let in by {peer}") };
    refused::failure(code, what, cause)
}

/// The other end is there and would let us in, and has no room for another job now: worth asking again.
#[must_use]
pub fn is_busy(failure: &Failure) -> bool {
    failure.exit == Exit::of_refusal(Refusal::Busy) && failure.cause.starts_with(Refusal::Busy.what())
}

/// The initiator's first words; nothing is waited for yet.
pub fn begin(link: &mut Link, ticket: Option<&Ticket>) {
    say(link, &Frame::Hello { version_min: proto::VERSION_MIN, version: proto::VERSION, agent: agent() });
    if let Some(ticket) = ticket {
        let proof = ticket.proof(&link.export(PROOF_LABEL, &[]));
        say(link, &Frame::Ticket { proof });
    }
}

/// Tells which names of the source folder are taken, if not all are; before the frame that opens the job.
pub fn pick(link: &mut Link, picks: Option<&IncludeList>) -> Result<(), Failure> {
    /// Names to a frame; one that is too long is cut in two.
    const NAMES: usize = 4096;
    let Some(picks) = picks else { return Ok(()) };
    let mut names = picks.names();
    loop {
        let part: Vec<Box<[u8]>> = names.by_ref().take(NAMES).map(Box::from).collect();
        let last = part.len() < NAMES;
        Frame::Pick(part).encode_parts(&mut |bytes| link.send(bytes));
        // What waits to be sent is a few frames, not the whole list once more.
        let sent = link.flush_blocking(GREET);
        sent.map_err(|error| failure_of("tell the names of --files-from", &anyhow::Error::new(error)))?;
        if last {
            return Ok(());
        }
    }
}

/// The peer's `Hello`; versions must meet.
pub fn hello(link: &mut Link, timeout: Duration) -> Result<String, Failure> {
    match hear(link, timeout)? {
        Frame::Hello { version_min, version, agent } => {
            if version_min > proto::VERSION || version < proto::VERSION_MIN {
                let refusal = Refusal::VersionTooOld;
                let detail = format!("we speak {} to {}", proto::VERSION_MIN, proto::VERSION);
                say(link, &Frame::Refuse { code: refusal.code(), detail: detail.clone() });
                let _ = link.flush_blocking(Duration::from_secs(1));
                let what = format!("speak with {agent}");
                return Err(Exit::Negotiation.fail(what, format!("it speaks {version_min} to {version}, {detail}")));
            }
            Ok(agent)
        }
        _ => Err(Exit::Breach.fail("greet the other end", Breach::WrongOrder.what())),
    }
}

/// What both ends agreed on.
#[derive(Debug, Clone)]
pub struct Agreed {
    /// The acceptor's offer.
    pub theirs: Offer,
    /// The plan.
    pub plan: Plan,
    /// Each choice with its reason.
    pub choices: Vec<Choice>,
    /// Push: the name a single source gets there.
    pub top: Box<[u8]>,
    /// Push: what of the comparing that was asked for is done there.
    pub compare: Compare,
    /// Push: marks of the folders that entries are named below there.
    pub places: Vec<Place>,
    /// Push: what was said ahead counts.
    pub ahead: bool,
}

/// Asks for a job on a session that has begun, and says these frames ahead of the plan; `agree` hears the answer.
pub fn open(link: &mut Link, open: Open, ahead: &[Vec<u8>]) -> Result<(), Failure> {
    say(link, &Frame::Open(Box::new(open)));
    ahead.iter().for_each(|frame| link.send(frame));
    link.flush_blocking(GREET).map_err(|error| failure_of("ask for the job", &anyhow::Error::new(error)))
}

/// Comes to a plan for the job that was asked for.
pub fn agree(link: &mut Link, asked: &Open) -> Result<Agreed, Failure> {
    let (own, sends) = (&asked.offer, asked.direction == Direction::Push);
    let patience = link.patience(GREET);
    hello(link, patience)?;
    let mut order = Order::of_greeted(Wish::Job);
    let Frame::Accept { offer, plan, top, compare, places, ahead } =
        hear_in_order(link, GREET, &mut order, "open the job")?
    else {
        return Err(Exit::Breach.fail("open the job", Breach::WrongOrder.what()));
    };
    let (ours, choices) = negotiate(own, &offer, sends)
        .map_err(|refusal| Exit::of_refusal(refusal).fail("agree on a plan", refusal.what()))?;
    if ours != *plan {
        say(link, &Frame::Refuse { code: Breach::PlanMismatch.code(), detail: String::new() });
        let _ = link.flush_blocking(Duration::from_secs(1));
        return Err(Exit::Breach.fail("agree on a plan", Breach::PlanMismatch.what()));
    }
    if ahead && (asked.ahead == 0 || top != asked.top) {
        say(link, &Frame::Refuse { code: Breach::FieldOutOfRange.code(), detail: String::new() });
        let _ = link.flush_blocking(Duration::from_secs(1));
        return Err(Exit::Breach.fail("agree on what was said ahead", Breach::FieldOutOfRange.what()));
    }
    Ok(Agreed { theirs: *offer, plan: *plan, choices, top, compare, places, ahead })
}
