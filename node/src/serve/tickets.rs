//! The tickets of a running daemon, as its own user sees and revokes them.
//!
//! For: `longhaul ticket`, which asks over the control socket.
//! In and out: a question of the registry in; what is shown, or what was ended, out.
//! Invariants: no secret is in any answer; a ticket that is revoked lets nobody in from then on, nor do those that were delegated from it, and what
//! runs on any of them is told to end before the answer is given.
//! Absent on purpose: giving tickets out (`Server::ticket`, `relay`), what they are good for (identity::ticket), who may ask (job::registry).

use std::sync::Weak;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::Daemon;
use crate::identity::Access;
use crate::identity::keys::fingerprint;
use crate::identity::ticket::{GivenTicket, Uses};
use crate::job::registry::{Answer, ShownTicket, TicketRequest};
use crate::report::show_path;
use text::exit::Exit;

/// Answers of a daemon that may be gone by then.
pub(super) fn answer_of(daemon: &Weak<Daemon>, request: TicketRequest) -> Answer {
    match daemon.upgrade() {
        Some(daemon) => answer(&daemon, request),
        None => Answer::failed(&Exit::Vanished.fail("ask of tickets", "the daemon has ended")),
    }
}

pub(super) fn answer(daemon: &Daemon, request: TicketRequest) -> Answer {
    match request {
        TicketRequest::List => {
            let now = Instant::now();
            Answer::Tickets { tickets: daemon.tickets.list(now).iter().map(|it| shown(daemon, it)).collect() }
        }
        TicketRequest::Revoke(name) => {
            let number = u64::from_str_radix(&name, 16).ok();
            let gone = number.map_or_else(Vec::new, |number| daemon.tickets.revoke(number));
            if gone.is_empty() {
                let failure = Exit::Vanished.fail(format!("revoke ticket {name}"), "it is spent, expired or revoked");
                return Answer::failed(&failure.next("`longhaul ticket list` shows those that are still good"));
            }
            let ended = daemon.live.revoke(&gone);
            daemon.log(0, &format!("ticket {name} was revoked by `longhaul ticket revoke`; {}", told(&gone, ended)));
            Answer::Done { text: format!("revoked: it lets nobody in from now on; {}", told(&gone, ended)) }
        }
    }
}

/// What went with it.
fn told(gone: &[u64], ended: usize) -> String {
    let jobs = match ended {
        0 => "nothing ran on it".to_owned(),
        1 => "one session that ran on it ends now".to_owned(),
        more => format!("{more} sessions that ran on it end now"),
    };
    match gone.len() - 1 {
        0 => jobs,
        1 => format!("{jobs}; one that was delegated from it went with it"),
        more => format!("{jobs}; {more} that were delegated from it went with it"),
    }
}

fn name(number: u64) -> String {
    format!("{number:016x}")
}

fn shown(daemon: &Daemon, it: &GivenTicket) -> ShownTicket {
    let unix_s = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs());
    let delegation = it.delegation.as_deref();
    let kind = match (it.uses, delegation) {
        (_, Some(_)) => "delegated",
        (Uses::Once, None) => "once",
        (Uses::Many, None) => "reusable",
    };
    let access = match it.rights.access {
        Access::ReadWrite => "rw",
        Access::ReadOnly => "ro",
        Access::WriteOnly => "wo",
    };
    ShownTicket {
        ticket: name(it.number),
        pid: std::process::id(),
        kind: kind.to_owned(),
        access: access.to_owned(),
        root: it.rights.root.as_ref().map(|root| root.display().to_string()),
        rate_bps: it.rights.rate_bps,
        privileged: it.rights.privileged,
        issued_unix_s: unix_s(it.issued),
        expires_unix_s: it.left.map(|left| unix_s(SystemTime::now() + left)),
        holder: it.holder.as_ref().map(fingerprint),
        issuer: delegation.map(|it| fingerprint(&it.issuer)),
        parent: delegation.and_then(|it| it.parent).map(name),
        targets: delegation.map_or_else(Vec::new, |it| it.targets.iter().map(|path| show_path(path)).collect()),
        sessions: it.sessions,
        running: daemon.live.count_on(it.number),
    }
}
