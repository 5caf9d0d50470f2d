//! A client of the daemon: what it may do here, what its jobs may have, and why it is refused.
//!
//! For: whoever serves it: `session` (its own jobs) and `relay` (jobs made here in its place).
//! In and out: the rights of its key or ticket in; the folder its paths begin in, its account, its part of the daemon's rate, refusals out.
//! Invariants: a refusal has a code; what was delegated is booked to whoever delegated it.
//! Absent on purpose: the order of frames, jobs (`session`, `relay`); which keys may come in (`identity::authorized`).

use std::sync::Arc;
use std::time::Duration;

use engine::job::JobNo;
use engine::tree::scan::filter::BadRule;
use proto::error::{Breach, Refusal};
use proto::manifest::Aspects;

use super::Daemon;
use super::shares::{Account, Shares};
use crate::identity::ticket::Grant;
use crate::identity::{PublicKey, Rights};
use crate::job::cancel::Cancel;
use crate::job::endpoint::PathBase;
use text::exit::{Exit, Failure};

/// The next frame of the greeting must come in this time.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Why a client is sent away.
pub(super) struct No {
    pub(super) code: u16,
    pub(super) detail: String,
}

impl From<Refusal> for No {
    fn from(refusal: Refusal) -> No {
        No { code: refusal.code(), detail: String::new() }
    }
}

impl From<Breach> for No {
    fn from(breach: Breach) -> No {
        No { code: breach.code(), detail: String::new() }
    }
}

impl From<BadRule> for No {
    fn from(bad: BadRule) -> No {
        No { code: Breach::FieldOutOfRange.code(), detail: bad.to_string() }
    }
}

/// A refusal with its reason.
pub(super) fn no(refusal: Refusal, detail: impl Into<String>) -> No {
    No { code: refusal.code(), detail: detail.into() }
}

/// A failure to open a source or a destination of this end, as the client is told it.
pub(super) fn told(failure: &Failure) -> No {
    let Failure { exit, what, cause, .. } = failure;
    let detail = format!("{what}: {cause}");
    match exit {
        Exit::Full => no(Refusal::NoSpace, detail),
        Exit::Refused => no(Refusal::OutsideRoot, detail),
        Exit::Denied => no(Refusal::Denied, format!("{detail}; longhaul runs there as {}", user())),
        _ => no(Refusal::NoSuchPath, detail),
    }
}

/// Whom this process runs as, for a client that was denied what this user may not do.
fn user() -> String {
    let uid = sys::host::user_number();
    let list = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = list.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    });
    name.map_or_else(|| format!("the user of uid {uid}"), |name| format!("user '{name}' (uid {uid})"))
}

/// What a client may do here, and under which ticket.
pub(super) struct Guest {
    pub(super) rights: Rights,
    pub(super) grant: Option<Grant>,
    /// The key that asked for what is done: the client's, or that of the one in whose place the client was sent.
    pub(super) owner: PublicKey,
    /// It came by a login of FTP, whose account this is: it has what the login has, one job, and no word for others.
    pub(super) login: Option<[u8; 32]>,
    /// By which all that is done for it is ended.
    pub(super) cancel: Arc<Cancel>,
}

impl Guest {
    pub(super) fn new(client: PublicKey, rights: Rights, grant: Option<Grant>) -> Guest {
        let owner = grant.as_ref().and_then(|grant| grant.delegation.as_ref()).map_or(client, |it| it.issuer);
        Guest { rights, grant, owner, login: None, cancel: Arc::default() }
    }
}

/// Where the paths of a client with these rights begin.
pub(super) fn path_base(daemon: &Daemon, rights: &Rights) -> Result<PathBase, No> {
    let Some(root) = &rights.root else { return Ok(daemon.path_base.clone()) };
    // What lies beneath the daemon's own root, which holds nothing of that, holds nothing of it either.
    if root.is_absolute() || !matches!(daemon.path_base, PathBase::Root(_)) {
        daemon.guards.refuse(root).map_err(|failure| {
            daemon.log(0, &failure.to_string());
            no(Refusal::OutsideRoot, "this key's root holds what this daemon keeps to itself; its log says more")
        })?;
    }
    let path = root.as_os_str().as_encoded_bytes();
    let dir = match (&daemon.path_base, root.is_absolute()) {
        (PathBase::Root(base), false) => base.open_dir(path),
        _ => sys::fs::Dir::open(path),
    };
    dir.map(PathBase::Root).map_err(|error| no(Refusal::Internal, format!("the key's root cannot be opened: {error}")))
}

/// Whom the bytes of a client's jobs are booked to.
fn account(guest: &Guest) -> Account {
    if let Some(login) = guest.login {
        return Account::Key(login);
    }
    // What was delegated is its giver's.
    match guest.grant.as_ref().map(|grant| (grant.number, grant.delegation.as_ref())) {
        None => Account::Key(guest.owner),
        Some((number, None)) => Account::Ticket(number),
        Some((_, Some(given))) => given.parent.map_or(Account::Key(given.issuer), Account::Ticket),
    }
}

/// What all jobs on this client's key or ticket have together.
pub(super) fn shares(daemon: &Daemon, guest: &Guest) -> Arc<Shares> {
    daemon.account(account(guest), guest.rights.rate_bps)
}

/// What a job may have of its account and of the daemon, B/s; 0: no cap. Asked now and then with the bytes that it let go, and whether its peer's
/// datagrams come in, which nothing here can hold.
pub(super) fn share(daemon: &Daemon, shares: Arc<Shares>, no: JobNo) -> Box<dyn Fn(u64, bool) -> u64 + Send + '_> {
    Box::new(move |taken, is_even| {
        let own = shares.of_account(no, taken, is_even, sys::clock::now_ns());
        let of_all = daemon.rate_share(no, taken, is_even);
        if own == 0 || of_all == 0 { own.max(of_all) } else { own.min(of_all) }
    })
}

/// What of `asked` this client may set here.
pub(super) fn permitted(daemon: &Daemon, rights: &Rights, asked: Aspects) -> Aspects {
    let is_privileged = rights.privileged && daemon.settings.read().is_ok_and(|settings| settings.privileged);
    if is_privileged { asked } else { asked.without(Aspects::PRIVILEGED) }
}
