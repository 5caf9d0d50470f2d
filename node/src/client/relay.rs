//! Remote to remote: the client only steers.
//!
//! For: data that goes directly between two daemons.
//! In and out: two addresses in; the source daemon's event lines, shown as if the job ran here.
//! Invariants: a session that was lost after the job had begun is made again for as long as `--stall` allows, as in any job, and what the source's
//! host may still do for the lost one ends first; the source gets a one-job ticket for the destination path with our rights there, good for its key alone; nothing of our own keys.
//! Absent on purpose: payload.

use std::time::Duration;

use engine::machine::Tally;
use proto::session::order::{Order, Wish};
use proto::wire::control::{Frame, TEXT_BYTES_MAX};
use proto::wire::request::RelayRequest;

use crate::address::Address;
use crate::client::{Copy, session};
use crate::event::Events;
use crate::identity::PublicKey;
use crate::identity::ticket::Ticket;
use crate::job::driver::Sync;
use crate::job::greeting::{self, GREET};
use crate::report;
use text::exit::{Exit, Failure};

/// What the source's host is told. A rule is cut nowhere: one that a frame cannot hold ends the job here.
fn request(copy: &Copy<'_>) -> Result<RelayRequest, Failure> {
    let request = copy.request.relayed(copy.again.was_lost());
    match request.rules.iter().find(|rule| rule.len() > TEXT_BYTES_MAX) {
        None => Ok(request),
        Some(long) => {
            let begin: String = long.chars().take(60).collect();
            let cause = format!("'{begin}…' is longer than {TEXT_BYTES_MAX} bytes");
            Err(Exit::Usage.fail("tell the source's host the patterns", cause))
        }
    }
}

/// Copies from one daemon to another.
pub fn run(
    copy: &Copy<'_>,
    from: &Address,
    paths: &[Box<[u8]>],
    to: &Address,
    targets: &[Box<[u8]>],
    events: &mut Events<'_>,
) -> Result<Exit, Failure> {
    let request = Box::new(request(copy)?);
    let target = one_job_address(copy, key_of(copy, from, events)?, to, targets, events)?;
    let (mut link, ticket) = session::connect(copy, from, events)?;
    greeting::begin(&mut link, ticket.as_ref());
    greeting::pick(&mut link, copy.choice.picks.as_deref())?;
    // The target has the first of them.
    let volumes = targets.iter().skip(1).cloned().collect();
    let frame = Frame::Relay { sources: paths.to_vec(), target: target.with_secret(), volumes, request };
    greeting::say(&mut link, &frame);
    greeting::hello(&mut link, GREET)?;
    // The source tells how it goes at least every few seconds; silence for longer than its own watchdog is a lost session.
    let patience = copy.request.stall + Duration::from_secs(60);
    let (mut came, mut order) = (None, Order::of_greeted(Wish::Relay));
    loop {
        // Once it has told of the job, a session that is lost is made again as any other is.
        let frame = greeting::hear(&mut link, patience)
            .inspect_err(|_| came.into_iter().for_each(|it| copy.again.broke(it)))?;
        order.on_frame(&frame).map_err(|breach| Exit::Breach.fail("follow the job", breach.what()))?;
        match frame {
            Frame::Event { line } => {
                let (durable, files_done) = report::moved(&line).unwrap_or_default();
                let had: Tally = came.unwrap_or_default();
                let (durable, files_done) = (durable.max(had.durable), files_done.max(had.files_done));
                came = Some(Tally { durable, files_done, ..had });
                if let Some(exit) = events.relay(&line) {
                    return Ok(exit);
                }
            }
            // `Bye` is all that the order leaves.
            _ => return Err(Exit::Lost.fail("follow the job", "the source ended it without a report")),
        }
    }
}

/// The key of the source's host. A session that only waits for the destination's answer would be shown out, so none is kept open.
fn key_of(copy: &Copy<'_>, from: &Address, events: &mut Events<'_>) -> Result<PublicKey, Failure> {
    match from {
        Address::Daemon { ticket: Some(ticket), .. } => Ok(ticket.server_key),
        _ => session::connect(copy, from, events).map(|(link, _)| link.peer_key()),
    }
}

/// The destination's address with a ticket for this one job, which is good for the source's host alone.
fn one_job_address(
    copy: &Copy<'_>,
    source: PublicKey,
    to: &Address,
    targets: &[Box<[u8]>],
    events: &mut Events<'_>,
) -> Result<Address, Failure> {
    let Address::Daemon { host, port, others, path, .. } = to else {
        unreachable!("ssh hosts were made daemons before")
    };
    let (mut link, ticket) = session::connect(copy, to, events)?;
    greeting::begin(&mut link, ticket.as_ref());
    let Sync { compare, prune } = session::sync(copy);
    greeting::say(&mut link, &Frame::AskTicket { key: source, targets: targets.to_vec(), compare, prune });
    greeting::hello(&mut link, GREET)?;
    let Frame::GiveTicket { secret, key, .. } = greeting::hear(&mut link, GREET)? else {
        return Err(Exit::Breach.fail("ask for a ticket", proto::error::Breach::WrongOrder.what()));
    };
    greeting::say(&mut link, &Frame::Bye);
    let _ = link.flush_blocking(Duration::from_secs(1));
    let ticket = Some(Ticket { server_key: key, secret });
    Ok(Address::Daemon { ticket, host: host.clone(), port: *port, others: others.clone(), path: path.clone() })
}
