//! `longhaul ticket`: what running daemons have given out, seen and revoked.
//!
//! For: whoever runs a daemon and wants to know who may come in without a key, or to take that back.
//! In and out: words of the command line → questions to the daemons of this LONGHAUL_HOME; what they say, on standard output.
//! Invariants: a ticket is named by the first digits of its name, and is never guessed; its secret is not known here.
//! Absent on purpose: making tickets (`serve --ticket`); daemons of other users and hosts.

use std::io::Write;

use anyhow::bail;
use clap::Subcommand;
use node::identity::Home;
use node::job::registry::{Answer, ControlSocket, Question, ShownTicket};
use text::exit::{Exit, Failure};
use text::time::show_utc;
use text::units;

use super::{UNKNOWN, short};
use crate::job_command::{answered, each_answer};
use crate::report::clean;

/// What can be done with tickets.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum TicketCommand {
    /// Show the tickets that are good at running daemons with this LONGHAUL_HOME: rights, holder, until when, what runs on them
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Let nobody in by a ticket any more, nor by those that clients asked for with it; what runs on them ends at once
    Revoke {
        /// The first digits of its name, as `longhaul ticket list` shows it
        ticket: String,
    },
}

/// Runs `longhaul ticket`.
///
/// # Errors
/// No home, no such ticket.
pub fn run(command: TicketCommand) -> anyhow::Result<()> {
    let home = Home::find().map_err(Failure::from)?;
    let all = given(&home)?;
    match command {
        TicketCommand::List { json } => list(&home, &all, json),
        TicketCommand::Revoke { ticket } => {
            let (socket, it) = find(&all, &ticket)?;
            let what = format!("revoke ticket {}", short(&it.ticket));
            let said = answered(socket, what, &Question::Revoke { ticket: it.ticket.clone() })?;
            writeln!(std::io::stdout(), "{}: {said}", short(&it.ticket))?;
            Ok(())
        }
    }
}

/// All tickets, oldest first, and where each is asked of.
fn given(home: &Home) -> anyhow::Result<Vec<(ControlSocket, ShownTicket)>> {
    let mut all = Vec::new();
    each_answer(home, &Question::Tickets {}, |socket, answer| match answer {
        Answer::Tickets { tickets } => {
            all.extend(tickets.into_iter().map(|it| (socket.clone(), it)));
            None
        }
        other => Some(other),
    })?;
    all.sort_by(|(_, a), (_, b)| (a.issued_unix_s, &a.ticket).cmp(&(b.issued_unix_s, &b.ticket)));
    Ok(all)
}

fn list(home: &Home, all: &[(ControlSocket, ShownTicket)], json: bool) -> anyhow::Result<()> {
    let tickets: Vec<&ShownTicket> = all.iter().map(|(_, it)| it).collect();
    let none = format!("no ticket is good here (of LONGHAUL_HOME {})", home.path("").display());
    let heads = ["ticket", "process", "kind", "may", "made (UTC)", "until (UTC)", "sessions", "running", "holder"];
    super::print(&tickets, (json, &none), &heads, |it| {
        let until = it.expires_unix_s.map_or_else(|| "daemon ends".to_owned(), show_utc);
        let holder = it.holder.as_deref().map_or_else(|| UNKNOWN.to_owned(), clean);
        let (process, made) = (it.pid.to_string(), show_utc(it.issued_unix_s));
        let (sessions, running) = (it.sessions.to_string(), it.running.to_string());
        vec![short(&it.ticket), process, clean(&it.kind), may(it), made, until, sessions, running, holder]
    })
}

fn may(it: &ShownTicket) -> String {
    let mut words = vec![clean(&it.access)];
    words.extend(it.root.as_ref().map(|root| format!("root={}", clean(root))));
    words.extend((it.rate_bps > 0).then(|| format!("rate={}", units::exact_rate(it.rate_bps))));
    words.extend(it.privileged.then(|| "privileged".to_owned()));
    words.extend(it.targets.iter().map(|path| format!("to={}", clean(path))));
    words.join(" ")
}

/// The one ticket whose name begins so.
fn find<'a>(all: &'a [(ControlSocket, ShownTicket)], name: &str) -> anyhow::Result<&'a (ControlSocket, ShownTicket)> {
    let name = name.to_lowercase();
    let begin: Vec<_> = all.iter().filter(|(_, it)| !name.is_empty() && it.ticket.starts_with(&name)).collect();
    // A secret may have been typed in the place of a name: it is not said again.
    let what =
        if name.len() > 16 { "find the ticket".to_owned() } else { format!("find the ticket '{}'", clean(&name)) };
    let next = "`longhaul ticket list` shows the tickets that are good, with their names";
    match begin[..] {
        [one] => Ok(one),
        [] => bail!(Exit::Vanished.fail(what, "none that is good has a name that begins so").next(next)),
        _ => bail!(Exit::Usage.fail(what, "several have names that begin so").next("give more digits")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_named_by_its_first_digits_and_never_guessed() {
        let ticket =
            |name: &str| (ControlSocket::default(), ShownTicket { ticket: name.to_owned(), ..ShownTicket::default() });
        let all = [ticket("aa11000000000000"), ticket("ab22000000000000")];
        assert_eq!(find(&all, "AB").expect("one").1.ticket, "ab22000000000000");
        for (name, exit) in [("a", Exit::Usage), ("c", Exit::Vanished), ("", Exit::Vanished)] {
            assert_eq!(Failure::of("find", &find(&all, name).unwrap_err()).exit, exit, "{name}");
        }
        let typed = "AdW7x2Zk9QmB3nHs5LpT8vYc1RfGj4XeUo6KiNwMbCaDqEtSyVzPhOlJr";
        assert!(!format!("{:?}", find(&all, typed).unwrap_err()).to_lowercase().contains(&typed.to_lowercase()));
    }
}
