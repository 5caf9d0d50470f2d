//! Greetings that came in datagrams, the acceptor's side: answered at once, and kept until their connection is there.
//!
//! For: a handshake whose answer is on its way while the connection is being made.
//! In and out: datagrams to the port → datagrams back; the same greeting over a connection → the TLS state that has answered it, and what datagrams
//! bring of what its initiator says next.
//! Invariants: the address of who asks has shown nothing, so an answer is no longer than what it answers; a greeting is answered only under a MAC
//! that takes this host's public key; `BUDGET` new ones a second at most cost a key exchange, at most `ANSWERED_MAX` are kept, none for longer than
//! `KEPT`; beyond that this is silent, and whoever asked has the round trip that everybody had before. A greeting is good for one connection, and one
//! that comes again is answered with the same bytes. Nothing is made, read or logged for it. What goes on from a greeting is kept only under a MAC that
//! takes the answer, one flight of at most three parts for each, and is read by nobody but the connection's TLS.
//! Absent on purpose: who may do what: that is asked when the handshake is over, as of anybody (listener.rs).

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use proto::packet::{HelloFlight, HelloPart};
use rustls::ServerConnection;
use sys::event::Event;

use super::tls;
use super::{Collected, PORT_BYTES, answer_key, asking_key, datagrams, name_of, opened, rest_key};
use crate::identity::Identity;

/// Greetings answered with a key exchange: so many at once, and a second. At 0.3 ms each this is a hundredth of a core, whoever asks.
const BUDGET: f64 = 32.0;
/// A connection comes one round trip after its greeting; what it loses on its way has its time too.
const KEPT: Duration = Duration::from_secs(6);
/// What `BUDGET` makes in `KEPT`, and no more: some 30 kB each while nobody came for it, 3 kB afterwards.
const ANSWERED_MAX: usize = 224;
/// Greetings of which a part is missing.
const PARTIAL_MAX: usize = 64;
/// A connection that is claimed is there, or was dialled from another port than this end sees (NAT).
const CLAIMED: Duration = Duration::from_secs(1);

/// Greetings that came in datagrams to one port.
pub struct Hellos {
    id: Arc<Identity>,
    key: [u8; 32],
    inside: Mutex<Inside>,
    /// Signalled when datagrams brought what a connection is waited for that is there.
    came: Event,
}

struct Inside {
    /// Oldest first.
    partial: Vec<(SocketAddr, Collected)>,
    answered: HashMap<[u8; 16], Answered>,
    /// Connections that are said to be those of greetings, before they have brought these.
    claims: Vec<Claim>,
    budget: f64,
    at: Instant,
}

struct Claim {
    /// Where the connection comes from.
    from: SocketAddr,
    name: [u8; 16],
    since: Instant,
}

/// A greeting that datagrams brought all of, and its initiator's proof, for a connection that has lost them.
pub(in crate::link) struct Claimed {
    pub(in crate::link) hello: Vec<u8>,
    pub(in crate::link) connection: ServerConnection,
    pub(in crate::link) said: Vec<u8>,
    pub(in crate::link) rest: Rest,
}

struct Answered {
    hello: Vec<u8>,
    /// Until its connection came.
    connection: Option<ServerConnection>,
    flight: Vec<u8>,
    rest: Rest,
    since: Instant,
}

/// What an initiator says to the answer, as far as datagrams have brought it; shared with the connection.
#[derive(Debug, Clone, Default)]
pub(in crate::link) struct Rest(Arc<Mutex<RestCome>>);

#[derive(Default)]
struct RestCome {
    parts: Collected,
    whole: Option<Vec<u8>>,
    /// Read: whatever comes now comes too late.
    is_over: bool,
}

impl fmt::Debug for RestCome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RestCome").field("whole", &self.whole.is_some()).finish_non_exhaustive()
    }
}

impl Rest {
    fn come(&self) -> MutexGuard<'_, RestCome> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Was this the part that was missing?
    fn take_part(&self, part: &HelloPart<'_>) -> bool {
        let mut come = self.come();
        if come.is_over || come.whole.is_some() {
            return false;
        }
        come.whole = come.parts.take(part);
        come.whole.is_some()
    }

    /// All of it, once.
    pub(in crate::link) fn take(&self) -> Option<Vec<u8>> {
        let mut come = self.come();
        let whole = come.whole.take();
        come.is_over |= whole.is_some();
        // Behind the port of its connection.
        whole.and_then(|it| Some(it.get(PORT_BYTES..)?.to_vec()))
    }

    /// The port from which its connection was dialled, once all of it has come.
    fn port(&self) -> Option<u16> {
        let come = self.come();
        come.whole.as_ref()?.first_chunk().map(|port| u16::from_le_bytes(*port))
    }
}

impl fmt::Debug for Hellos {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Hellos").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Hellos {
    /// For the port of who has this key.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn of(id: Arc<Identity>) -> io::Result<Hellos> {
        let (partial, answered, claims) = (Vec::new(), HashMap::new(), Vec::new());
        let inside = Inside { partial, answered, claims, budget: BUDGET, at: Instant::now() };
        Ok(Hellos { key: asking_key(&id.public()), id, inside: Mutex::new(inside), came: Event::new()? })
    }

    /// Signalled when datagrams brought what an initiator says to an answer: a connection that is there may go on.
    #[must_use]
    pub fn came(&self) -> &Event {
        &self.came
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A datagram that came to the port. `None`: it is no part of a greeting to this host; else what is said to it, perhaps nothing.
    pub fn on_datagram(&self, datagram: &[u8], from: SocketAddr) -> Option<Vec<Vec<u8>>> {
        let Some(part) = opened(datagram, HelloFlight::Greeting, &self.key) else {
            return self.on_rest(datagram, from);
        };
        let Some(hello) = self.inside().collect(&part, from) else { return Some(Vec::new()) };
        // The key exchange waits for nobody and holds up nobody: this thread alone comes here.
        let known = self.inside().known(&hello);
        let flight = match known {
            Known::Answered(flight) => Some(flight),
            Known::Never => self.answer(&hello),
            Known::Refused => None,
        };
        let answered = |flight: Vec<u8>| datagrams(HelloFlight::Answer, name_of(&flight), &flight, &answer_key(&hello));
        let answer = flight.and_then(answered);
        // Who asks may be somebody else's address.
        Some(answer.filter(|parts| parts.len() <= usize::from(part.parts)).unwrap_or_default())
    }

    /// What goes on from a greeting that was answered: nothing is said to it.
    fn on_rest(&self, datagram: &[u8], from: SocketAddr) -> Option<Vec<Vec<u8>>> {
        // Whose it is, before its MAC can be looked at.
        let said = datagram.get(..proto::packet::HELLO_DATAGRAM_BYTES)?;
        let name = HelloPart::decode(said).ok().filter(|it| it.flight == HelloFlight::Rest)?.name;
        let (key, rest) = {
            let inside = self.inside();
            let answered = inside.answered.get(&name)?;
            (rest_key(&answered.flight), answered.rest.clone())
        };
        let part = opened(datagram, HelloFlight::Rest, &key)?;
        if rest.take_part(&part) {
            let mut inside = self.inside();
            let waits = inside.answered.get(&name).is_some_and(|it| it.connection.is_some());
            if let Some(port) = rest.port().filter(|_| waits) {
                let from = SocketAddr::new(from.ip().to_canonical(), port);
                inside.claims.push(Claim { from, name, since: Instant::now() });
            }
            drop(inside);
            self.came.signal();
        }
        Some(Vec::new())
    }

    /// Is a connection waited for that has not brought its greeting?
    pub(crate) fn has_claims(&self) -> bool {
        let (now, mut inside) = (Instant::now(), self.inside());
        inside.claims.retain(|it| now.duration_since(it.since) < CLAIMED);
        !inside.claims.is_empty()
    }

    /// The greeting that a connection from there is to bring, with all that datagrams have brought of it: once.
    pub(in crate::link) fn claimed(&self, from: SocketAddr) -> Option<Claimed> {
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        let mut inside = self.inside();
        let at = inside.claims.iter().position(|it| it.from == from)?;
        let claim = inside.claims.swap_remove(at);
        let answered = inside.answered.get_mut(&claim.name)?;
        let (hello, rest) = (answered.hello.clone(), answered.rest.clone());
        Some(Claimed { hello, connection: answered.connection.take()?, said: answered.flight.clone(), rest })
    }

    /// Answers it with a key exchange, and keeps what that came to.
    pub(super) fn answer(&self, hello: &[u8]) -> Option<Vec<u8>> {
        let mut connection = tls::server(&self.id).ok()?;
        let mut rest = hello;
        while !rest.is_empty() {
            connection.read_tls(&mut rest).ok()?;
        }
        connection.process_new_packets().ok()?;
        let mut flight = Vec::new();
        while connection.wants_write() {
            connection.write_tls(&mut flight).ok()?;
        }
        let since = Instant::now();
        let (hello, rest) = (hello.to_vec(), Rest::default());
        let name = name_of(&hello);
        let answered = Answered { hello, connection: Some(connection), flight: flight.clone(), rest, since };
        self.inside().answered.insert(name, answered);
        Some(flight)
    }

    /// Greetings without an end, and answered ones.
    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize) {
        let inside = self.inside();
        (inside.partial.len(), inside.answered.len())
    }

    /// The state that has answered this greeting in datagrams, what it said, and where datagrams bring what is said to that: once.
    pub(in crate::link) fn take(&self, hello: &[u8]) -> Option<(ServerConnection, Vec<u8>, Rest)> {
        let mut inside = self.inside();
        inside.forget(Instant::now());
        let answered = inside.answered.get_mut(&name_of(hello)).filter(|it| it.hello == hello)?;
        Some((answered.connection.take()?, answered.flight.clone(), answered.rest.clone()))
    }
}

/// What is known of a greeting.
enum Known {
    /// It was answered so.
    Answered(Vec<u8>),
    /// It may be answered.
    Never,
    /// It may not, now.
    Refused,
}

impl Inside {
    /// The whole greeting, with the part that was missing.
    fn collect(&mut self, part: &HelloPart<'_>, from: SocketAddr) -> Option<Vec<u8>> {
        let its = |(whose, it): &(SocketAddr, Collected)| *whose == from && it.name() == part.name;
        let at = self.partial.iter().position(its).unwrap_or_else(|| {
            if self.partial.len() == PARTIAL_MAX {
                self.partial.remove(0);
            }
            self.partial.push((from, Collected::default()));
            self.partial.len() - 1
        });
        let whole = self.partial[at].1.take(part)?;
        self.partial.remove(at);
        Some(whole)
    }

    fn known(&mut self, hello: &[u8]) -> Known {
        let now = Instant::now();
        self.forget(now);
        if let Some(answered) = self.answered.get(&name_of(hello)) {
            return Known::Answered(answered.flight.clone());
        }
        self.budget = BUDGET.min(self.budget + now.duration_since(self.at).as_secs_f64() * BUDGET);
        self.at = now;
        if self.answered.len() >= ANSWERED_MAX || self.budget < 1.0 {
            return Known::Refused;
        }
        self.budget -= 1.0;
        Known::Never
    }

    fn forget(&mut self, now: Instant) {
        self.answered.retain(|_, it| now.duration_since(it.since) < KEPT);
    }
}
