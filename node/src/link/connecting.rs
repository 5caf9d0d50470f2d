//! Finding a peer that proves the key which is expected: which connection, in which manner, again where it came to nothing.
//!
//! For: the initiator's way to a session.
//! In and out: names, the keys that are expected, time → a session; or the error that says most.
//! Invariants: a session is gone on with only under a key that was expected; what datagrams began and the connection does not bear out is begun
//! again without them; a peer that is silent once connected is asked again in small segments.
//! Absent on purpose: connecting and the handshake themselves (handshake.rs, hello/), waiting for a daemon that is away (connect_retry.rs).

use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustls::Connection;

use super::handshake::{Deadline, Dialling, QUIET};
use super::hello::HelloAhead;
use super::{Link, LinkError, tls};
use crate::identity::{Identity, PublicKey, authorized, trust};

/// Which server key a client goes on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// This one: the ticket, or whoever started the far side, named it.
    Key(PublicKey),
    /// One that the file `trusted` names for the address.
    Trusted,
}

/// Which keys a client goes on with, and why not with another.
struct Keys {
    expect: Expect,
    accepted: Vec<PublicKey>,
    revoked: Vec<PublicKey>,
}

impl Keys {
    /// What a handshake that failed says to the user, who named the peer so and saw it prove this key.
    fn explain(&self, error: LinkError, seen: Option<&PublicKey>, host_port: String) -> LinkError {
        let (LinkError::Tls(rustls::Error::InvalidCertificate(_)), Some(&key)) = (&error, seen) else { return error };
        match self.expect {
            _ if self.revoked.contains(&key) => LinkError::PeerRevoked { host_port, key },
            Expect::Key(wanted) if wanted != key => LinkError::PeerWrong { host_port, key, wanted },
            Expect::Trusted if self.accepted.is_empty() => LinkError::PeerUnknown { host_port, key },
            Expect::Trusted => LinkError::PeerChanged { host_port, key },
            Expect::Key(_) => error,
        }
    }
}

/// A connection that was made to find out whether somebody answers there.
#[derive(Debug)]
pub struct Ready {
    /// Nothing was said over it.
    pub stream: TcpStream,
    /// So long it was waited for.
    pub took: Duration,
}

/// A connection that stands, or is being made, and over which nothing was said yet.
#[derive(Debug, Clone, Copy)]
pub struct Connected {
    /// Where it leads.
    pub to: SocketAddr,
    /// With small segments.
    pub is_small: bool,
    /// So long it was waited for.
    pub took: Duration,
}

/// How a session is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Where the connection takes a while the first flight of the handshake goes ahead in datagrams.
    Ahead,
    /// All of it goes over the connection.
    Plain,
    /// And in small segments.
    Small,
}

/// What there is beside an address and a key.
pub struct Beside<'a> {
    /// A connection that is there already, if that proves the key.
    pub ready: Option<Ready>,
    /// Hears of each connection before its handshake, and once of one that is not there within `QUIET`.
    pub met: &'a mut dyn FnMut(Connected),
    /// In which manner.
    pub start: Start,
}

impl fmt::Debug for Beside<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Beside").field("ready", &self.ready).field("start", &self.start).finish_non_exhaustive()
    }
}

/// Why none of a peer's connections became a session.
enum Missed {
    /// Nothing was said over it.
    Silent,
    /// It had begun in datagrams.
    Ahead,
    Otherwise,
}

/// A peer that took the connection and then says nothing for so long (and four round trips) is asked again with small segments.
pub(super) const SILENT: Duration = Duration::from_secs(4);

impl Link {
    /// Connects, shows our key, and goes on only with the key that is expected. Blocks up to `timeout` (name look-up aside), twice as long where
    /// nothing but small segments get through. Of several addresses of one peer (`HOST:PORT,HOST:PORT`) the first to prove the key is taken.
    ///
    /// # Errors
    /// No address, no answer, no time left; a key that is unknown, changed, wrong or revoked (`Peer…`); TLS.
    pub fn connect(host_ports: &str, id: &Identity, expect: Expect, timeout: Duration) -> Result<Link, LinkError> {
        let beside = Beside { ready: None, met: &mut |_| (), start: Start::Plain };
        Link::connect_beside(host_ports, id, expect, timeout, beside)
    }

    /// The same, in this manner.
    ///
    /// # Errors
    /// As of `connect`.
    pub fn connect_beside(
        host_ports: &str,
        id: &Identity,
        expect: Expect,
        timeout: Duration,
        Beside { ready, met, start }: Beside<'_>,
    ) -> Result<Link, LinkError> {
        let (mut accepted, mut revoked) = (Vec::new(), Vec::new());
        if let Some(home) = id.home() {
            revoked = authorized::revoked(home)?;
            for host_port in host_ports.split(',').filter(|_| expect == Expect::Trusted) {
                accepted.extend(trust::look_up(home, host_port)?);
            }
        }
        if let Expect::Key(key) = expect {
            accepted = vec![key];
        }
        // Several addresses of one host have one key.
        accepted.sort_unstable();
        accepted.dedup();
        let keys = Keys { expect, accepted, revoked };
        let mut first = |ready: Option<Ready>, start: Start| {
            let dialling = Dialling::of(host_ports, start == Start::Small)?.with(ready);
            Ok::<_, LinkError>(Link::first_of(dialling, id, &keys, timeout, (start, &mut *met)))
        };
        let mut link = first(ready, start)?;
        if let Err((_, Missed::Ahead)) = link {
            // What a datagram said came to nothing: who can answer one need not be the daemon.
            link = first(None, Start::Plain)?;
        }
        if let Err((_, Missed::Silent)) = link {
            // Connected, and then not a word: what is lost may be what is long. Small packets went through.
            link = first(None, Start::Small)?;
        }
        link.map_err(|(error, _)| error)
    }

    /// The first connection over which the peer proves its key.
    fn first_of(
        mut dialling: Dialling,
        id: &Identity,
        keys: &Keys,
        timeout: Duration,
        (start, met): (Start, &mut dyn FnMut(Connected)),
    ) -> Result<Link, (LinkError, Missed)> {
        let (whole, small) = (Deadline::after(timeout), dialling.is_small());
        let mut why: Option<(LinkError, Missed)> = None;
        let (mut slow, mut ahead) = (None, None::<HelloAhead>);
        loop {
            let begun = Instant::now();
            let mut on_quiet = |to: SocketAddr| {
                if slow.is_none() {
                    slow = Some(to);
                    met(Connected { to, is_small: small, took: QUIET });
                    if let ([acceptor], Start::Ahead) = (&keys.accepted[..], start) {
                        ahead = HelloAhead::begin(to, id, *acceptor, keys.revoked.clone());
                    }
                } else if let Some(ahead) = ahead.as_ref().filter(|it| it.to() == to) {
                    ahead.say();
                }
                ahead.as_ref().and_then(HelloAhead::answers)
            };
            let (host_port, stream) = match dialling.next(&whole, &mut on_quiet) {
                Ok(connected) => connected,
                // Whoever answered with a wrong key says more than whoever did not answer.
                Err(error) => return Err(why.unwrap_or((error, Missed::Otherwise))),
            };
            let to = stream.peer_addr().ok();
            if let Some(to) = to.filter(|it| slow != Some(*it)) {
                met(Connected { to, is_small: small, took: dialling.took_ready().max(begun.elapsed()) });
            }
            let mut deadline = if small { whole } else { whole.unless_heard(SILENT + begun.elapsed() * 4) };
            let (connection, check, asked) = match ahead.take().and_then(|it| it.of(to?)) {
                Some((connection, check, asked)) => (connection, check, Some(asked)),
                None => {
                    let client = tls::client(id, keys.accepted.clone(), keys.revoked.clone());
                    let (connection, check) = client.map_err(|error| (LinkError::Tls(error), Missed::Otherwise))?;
                    (connection, check, None)
                }
            };
            let is_ahead = asked.is_some();
            let error = match Link::shake(Connection::Client(connection), stream, &mut deadline, asked) {
                Ok(link) => return Ok(Link { lookup: dialling.lookup(), small, ..link }),
                Err(error) => keys.explain(error, check.seen.get(), host_port),
            };
            let missed = match (is_ahead, !small && deadline.was_silent()) {
                (_, true) => Missed::Silent,
                (true, _) => Missed::Ahead,
                (false, false) => Missed::Otherwise,
            };
            if !dialling.has_more() {
                return Err((error, missed));
            }
            why.get_or_insert((error, missed));
        }
    }
}
