//! Tickets: a server's key and a secret in one word, so that the far side needs nothing else.
//!
//! For: the first meeting of two hosts, and the one job that a daemon runs on behalf of another.
//! In and out: a ticket ↔ its text in an address; secret + session → proof; proof → rights, at the server.
//! Invariants: a secret never crosses the wire; a proof holds in one TLS session only; proofs are compared in constant time,
//!   each against every ticket; a spent, expired or foreign ticket gives the same answer as one that never was.
//!   a one-job ticket and those delegated from it are good for one job together; a delegated one only for whom and what it names.
//! Absent on purpose: keeping tickets on disk (a daemon that starts anew makes new ones).
//!
//! ```text
//! text: base64url without padding of
//!  0         1                        33               49
//!  +---------+------------------------+----------------+
//!  | 1       | server's public key    | secret         |
//!  +---------+------------------------+----------------+
//! proof: HMAC-SHA256(secret, TLS exporter with PROOF_LABEL and no context)
//! ```

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::hmac;

use proto::wire::control::{Compare, Direction, Open};

use super::encoding::{base64url, from_base64url};
use super::{IdentityError, PublicKey, Rights, keys};

/// The environment variable in which a user keeps tickets; children of a job do not get it.
pub const TICKET_VARIABLE: &str = "LONGHAUL_TICKET";
/// What `Link::export` is asked for to prove a ticket (RFC 8446 section 7.5; RFC 5705 section 4 for the prefix).
pub const PROOF_LABEL: &[u8] = b"EXPORTER-longhaul ticket v1";
/// The first byte of a ticket.
const VERSION: u8 = 1;
/// Bytes of a ticket's secret: 128 bits, and each guess costs a TLS session.
pub const SECRET_BYTES: usize = 16;
/// A daemon holds at most so many tickets; above, expired and then oldest one-job tickets give way.
const TICKETS_MAX: usize = 4096;

/// A server's key and a secret that it gave out.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    /// Whom to expect.
    pub server_key: PublicKey,
    /// What to prove.
    pub secret: [u8; SECRET_BYTES],
}

impl fmt::Debug for Ticket {
    /// Without the secret: debug texts end up in logs.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Ticket").field("server", &keys::fingerprint(&self.server_key)).finish_non_exhaustive()
    }
}

impl fmt::Display for Ticket {
    /// With the secret: the text is the ticket.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&[VERSION][..], &self.server_key, &self.secret].concat();
        out.write_str(&base64url(&bytes))
    }
}

/// Why a ticket cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TicketFault {
    /// Letters missing, added or changed.
    #[error("the ticket is damaged; copy it whole from where it was printed")]
    Damaged,
    /// Made by a later version.
    #[error("the ticket is of version {0}, which this build does not know; install the newer longhaul here")]
    Version(u8),
}

impl FromStr for Ticket {
    type Err = TicketFault;

    fn from_str(text: &str) -> Result<Ticket, TicketFault> {
        let bytes = from_base64url(text).ok_or(TicketFault::Damaged)?;
        match bytes.split_first() {
            Some((&VERSION, rest)) => {
                let (key, secret) = rest.split_first_chunk::<32>().ok_or(TicketFault::Damaged)?;
                let secret = secret.try_into().map_err(|_| TicketFault::Damaged)?;
                if keys::usable(key) { Ok(Ticket { server_key: *key, secret }) } else { Err(TicketFault::Damaged) }
            }
            Some((&version, _)) if version != 0 => Err(TicketFault::Version(version)),
            _ => Err(TicketFault::Damaged),
        }
    }
}

impl Ticket {
    /// The proof for a session, from what the session exports for `PROOF_LABEL`.
    #[must_use]
    pub fn proof(&self, exported: &[u8; 32]) -> [u8; 32] {
        let mut proof = [0; 32];
        proof.copy_from_slice(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.secret), exported).as_ref());
        proof
    }
}

/// How often a ticket is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uses {
    /// Until it expires.
    Many,
    /// For one successful job; until then only for the first client that showed it, which may try again.
    Once,
}

/// What a delegated ticket is bound to: a client asked for it, so that another host sends in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegation {
    /// Who asked. Its rights end, and the ticket with them, when its key is revoked.
    pub issuer: PublicKey,
    /// The ticket that let the issuer in; `None`: its key did.
    pub parent: Option<u64>,
    /// Push to these paths, and to no other.
    pub targets: Vec<Box<[u8]>>,
    /// At most so much is compared there.
    pub compare: Compare,
    /// At most so many entries are removed there.
    pub prune: Option<u64>,
}

impl Delegation {
    /// Is this the job that the ticket was given for?
    #[must_use]
    pub fn permits(&self, open: &Open) -> bool {
        let compares = |compare| match compare {
            Compare::Never => 0,
            Compare::Changed => 1,
            Compare::Always => 2,
        };
        open.direction == Direction::Push
            && open.paths == self.targets
            && compares(open.compare) <= compares(self.compare)
            && open.prune.is_none_or(|most| self.prune.is_some_and(|granted| most <= granted))
    }
}

/// A server's tickets.
#[derive(Debug, Default)]
pub struct Tickets {
    given: Mutex<Given>,
}

#[derive(Debug, Default)]
struct Given {
    /// Oldest first.
    all: Vec<One>,
}

struct One {
    /// Random: tickets of several daemons with one home are told apart by it. It says nothing of the secret.
    number: u64,
    issued: SystemTime,
    /// Sessions that it let in.
    sessions: u64,
    key: hmac::Key,
    uses: Uses,
    rights: Rights,
    expires: Option<Instant>,
    /// The client that a one-job ticket now belongs to.
    holder: Option<PublicKey>,
    ending: Ending,
    delegation: Option<Arc<Delegation>>,
}

/// A job of the ticket is about to say its last words, after which its client may be gone and come again; whether they were heard, and the
/// ticket with that spent, is known a moment later.
#[derive(Debug, Clone, Default)]
pub struct Ending(Arc<AtomicBool>);

impl Ending {
    /// Before the words are said.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// They were not heard: the job may be tried again.
    pub fn take_back(&self) {
        self.0.store(false, Ordering::Release);
    }

    fn has_begun(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A ticket whose job is ending is asked about for so long.
const ENDING_MAX: Duration = Duration::from_secs(5);

impl fmt::Debug for One {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("One").field("number", &self.number).field("uses", &self.uses).finish_non_exhaustive()
    }
}

/// A ticket as its daemon's user may see it: all but the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenTicket {
    /// Its random number, by which it is named.
    pub number: u64,
    /// How often it is good.
    pub uses: Uses,
    /// What it allows.
    pub rights: Rights,
    /// When it was made.
    pub issued: SystemTime,
    /// How long it is still good; `None`: until its daemon ends.
    pub left: Option<Duration>,
    /// The client that a one-job ticket belongs to.
    pub holder: Option<PublicKey>,
    /// Sessions that it let in.
    pub sessions: u64,
    /// What it is bound to, if it was given to another host in a client's place.
    pub delegation: Option<Arc<Delegation>>,
}

/// A ticket that held.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Give it back to `Tickets::spend` after the job succeeded.
    pub number: u64,
    /// What it allows.
    pub rights: Rights,
    /// For the job that runs on it.
    pub ending: Ending,
    /// What it is bound to, if it was given to another host in a client's place.
    pub delegation: Option<Arc<Delegation>>,
    /// The one-job ticket that all which runs on this one counts for; `None`: it is reusable.
    pub one_job: Option<u64>,
}

impl Grant {
    /// The ticket itself, and the one that it was delegated from.
    pub fn family(&self) -> impl Iterator<Item = u64> {
        std::iter::once(self.number).chain(self.delegation.as_ref().and_then(|it| it.parent))
    }
}

impl Tickets {
    /// No tickets.
    #[must_use]
    pub fn new() -> Tickets {
        Tickets::default()
    }

    /// Makes a ticket for the server with `server_key`.
    ///
    /// # Errors
    /// No randomness.
    pub fn issue(
        &self,
        server_key: PublicKey,
        uses: Uses,
        rights: Rights,
        expires: Option<Instant>,
    ) -> Result<Ticket, IdentityError> {
        let (secret, number) = (random()?, u64::from_le_bytes(random()?));
        self.given().add((&secret, number), uses, rights, expires, (None, Ending::default(), None));
        Ok(Ticket { server_key, secret })
    }

    /// Makes a ticket for one job of the owner of `to`, on the word of a client that was let in itself. What was delegated from the same
    /// one-job ticket before is no longer good.
    ///
    /// # Errors
    /// No randomness.
    pub fn delegate(
        &self,
        server_key: PublicKey,
        to: PublicKey,
        rights: Rights,
        expires: Instant,
        delegation: Delegation,
    ) -> Result<Ticket, IdentityError> {
        let (secret, number) = (random()?, u64::from_le_bytes(random()?));
        let mut given = self.given();
        let mut ending = Ending::default();
        if let Some(parent) = delegation.parent.filter(|parent| given.is_one_job(*parent)) {
            given.all.retain(|one| one.parent() != Some(parent));
            // Whoever comes with the one waits for the end of the other's job, too.
            let parent = given.all.iter().find(|one| one.number == parent);
            ending = parent.map_or(ending, |one| one.ending.clone());
        }
        given.add((&secret, number), Uses::Once, rights, Some(expires), (Some(to), ending, Some(Arc::new(delegation))));
        Ok(Ticket { server_key, secret })
    }

    /// A pass of the grant's job is over and another one follows: a delegated ticket lives until then at least.
    pub fn extend(&self, grant: &Grant, until: Instant) {
        if let Some(one) = self.given().all.iter_mut().find(|one| one.number == grant.number) {
            one.expires = one.expires.map(|at| at.max(until));
        }
    }

    fn given(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `client` prove a ticket that is still good at `now`? Of a one-job ticket whose job is just ending, that end is waited for.
    #[must_use]
    pub fn redeem(&self, proof: &[u8; 32], exported: &[u8; 32], client: &PublicKey, now: Instant) -> Option<Grant> {
        let until = Instant::now() + ENDING_MAX;
        loop {
            let grant = self.look_up(proof, exported, client, now)?;
            if !grant.ending.has_begun() {
                return Some(grant);
            }
            if Instant::now() >= until {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn look_up(&self, proof: &[u8; 32], exported: &[u8; 32], client: &PublicKey, now: Instant) -> Option<Grant> {
        let mut given = self.given();
        let mut found = None;
        // All of them, hit or not, so that the time tells nothing.
        for one in &mut given.all {
            if hmac::verify(&one.key, exported, proof).is_ok() {
                found = Some(one);
            }
        }
        let one = found.filter(|one| one.expires.is_none_or(|at| now < at))?;
        let is_once = one.uses == Uses::Once;
        if is_once && *one.holder.get_or_insert(*client) != *client {
            return None;
        }
        // Jobs of any other ticket do not wait for each other.
        let ending = if is_once { one.ending.clone() } else { Ending::default() };
        let (number, rights, delegation) = (one.number, one.rights.clone(), one.delegation.clone());
        let parent = one.parent();
        // Of a ticket that is gone nothing lives on.
        if parent.is_some_and(|parent| given.all.iter().all(|one| one.number != parent)) {
            return None;
        }
        let one_job = parent.filter(|parent| given.is_one_job(*parent)).or(is_once.then_some(number));
        given.all.iter_mut().filter(|one| one.number == number).for_each(|one| one.sessions += 1);
        Some(Grant { number, rights, ending, delegation, one_job })
    }

    /// Those that are still good at `now`, oldest first.
    #[must_use]
    pub fn list(&self, now: Instant) -> Vec<GivenTicket> {
        let given = self.given();
        let good = given.all.iter().filter(|one| one.expires.is_none_or(|at| now < at));
        let shown = good.map(|one| GivenTicket {
            number: one.number,
            uses: one.uses,
            rights: one.rights.clone(),
            issued: one.issued,
            left: one.expires.map(|at| at.saturating_duration_since(now)),
            holder: one.holder,
            sessions: one.sessions,
            delegation: one.delegation.clone(),
        });
        shown.collect()
    }

    /// From now on this ticket lets nobody in, nor does any that was delegated from it. The numbers of all that are gone; empty: there was none.
    pub fn revoke(&self, number: u64) -> Vec<u64> {
        let mut given = self.given();
        if given.all.iter().all(|one| one.number != number) {
            return Vec::new();
        }
        let (gone, stay) = std::mem::take(&mut given.all)
            .into_iter()
            .partition::<Vec<One>, _>(|one| one.number == number || one.parent() == Some(number));
        given.all = stay;
        gone.iter().map(|one| one.number).collect()
    }

    /// The job of this grant succeeded: a one-job ticket is gone, with all that was delegated from it and that it was delegated from. `false` if
    /// it was gone already.
    pub fn spend(&self, grant: &Grant) -> bool {
        let mut given = self.given();
        let before = given.all.len();
        let Some(root) = grant.one_job else { return given.all.iter().any(|one| one.number == grant.number) };
        given.all.retain(|one| ![root, grant.number].contains(&one.number) && one.parent() != Some(root));
        given.all.len() < before
    }
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], IdentityError> {
    let mut bytes = [0; BYTES];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| IdentityError::NoRandom)?;
    Ok(bytes)
}

impl One {
    fn parent(&self) -> Option<u64> {
        self.delegation.as_ref().and_then(|it| it.parent)
    }
}

impl Given {
    fn is_one_job(&self, number: u64) -> bool {
        self.all.iter().any(|one| one.number == number && one.uses == Uses::Once)
    }

    fn add(
        &mut self,
        (secret, number): (&[u8; SECRET_BYTES], u64),
        uses: Uses,
        rights: Rights,
        expires: Option<Instant>,
        (holder, ending, delegation): (Option<PublicKey>, Ending, Option<Arc<Delegation>>),
    ) {
        self.make_room(Instant::now());
        let (issued, key) = (SystemTime::now(), hmac::Key::new(hmac::HMAC_SHA256, secret));
        self.all.push(One { number, issued, sessions: 0, key, uses, rights, expires, holder, ending, delegation });
    }

    fn make_room(&mut self, now: Instant) {
        self.all.retain(|one| one.expires.is_none_or(|at| now < at));
        if self.all.len() >= TICKETS_MAX {
            // Clients make delegated ones, as many as they like: those go before what this host's own user gave out.
            let delegated = self.all.iter().position(|one| one.delegation.is_some());
            let oldest = delegated.or_else(|| self.all.iter().position(|one| one.uses == Uses::Once));
            self.all.remove(oldest.unwrap_or(0));
        }
    }
}
