//! Greetings that came in datagrams, the acceptor's side: answered at once, and kept until their connection is there.
//!
//! For: a handshake whose answer is on its way while the connection is being made.
//! In and out: datagrams to the port → datagrams back; the same greeting over a connection → the TLS state that has answered it.
//! Invariants: the address of who asks has shown nothing, so an answer is no longer than what it answers; a greeting is answered only under a MAC
//! that takes this host's public key; `BUDGET` new ones a second at most cost a key exchange, at most `ANSWERED_MAX` are kept, none for longer than
//! `KEPT`; beyond that this is silent, and whoever asked has the round trip that everybody had before. A greeting is good for one connection, and one
//! that comes again is answered with the same bytes. Nothing is made, read or logged for it.
//! Absent on purpose: who may do what: that is asked when the handshake is over, as of anybody (listener.rs).

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::ServerConnection;

use super::tls;
use super::{Collected, answer_key, asking_key, datagrams, name_of, opened};
use crate::identity::Identity;

/// Greetings answered with a key exchange: so many at once, and a second. At 0.3 ms each this is a hundredth of a core, whoever asks.
const BUDGET: f64 = 32.0;
/// A connection comes one round trip after its greeting; what it loses on its way has its time too.
const KEPT: Duration = Duration::from_secs(6);
/// What `BUDGET` makes in `KEPT`, and no more: some 30 kB each while nobody came for it, 3 kB afterwards.
const ANSWERED_MAX: usize = 224;
/// Greetings of which a part is missing.
const PARTIAL_MAX: usize = 64;

/// Greetings that came in datagrams to one port.
pub struct Hellos {
    id: Arc<Identity>,
    key: [u8; 32],
    inside: Mutex<Inside>,
}

struct Inside {
    /// Oldest first.
    partial: Vec<(SocketAddr, Collected)>,
    answered: HashMap<[u8; 16], Answered>,
    budget: f64,
    at: Instant,
}

struct Answered {
    hello: Vec<u8>,
    /// Until its connection came.
    connection: Option<ServerConnection>,
    flight: Vec<u8>,
    since: Instant,
}

impl fmt::Debug for Hellos {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Hellos").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Hellos {
    /// For the port of who has this key.
    #[must_use]
    pub fn of(id: Arc<Identity>) -> Hellos {
        let inside = Inside { partial: Vec::new(), answered: HashMap::new(), budget: BUDGET, at: Instant::now() };
        Hellos { key: asking_key(&id.public()), id, inside: Mutex::new(inside) }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A datagram that came to the port. `None`: it is no part of a greeting to this host; else what is said to it, perhaps nothing.
    pub fn on_datagram(&self, datagram: &[u8], from: SocketAddr) -> Option<Vec<Vec<u8>>> {
        let part = opened(datagram, true, &self.key)?;
        let Some(hello) = self.inside().collect(&part, from) else { return Some(Vec::new()) };
        // The key exchange waits for nobody and holds up nobody: this thread alone comes here.
        let known = self.inside().known(&hello);
        let flight = match known {
            Known::Answered(flight) => Some(flight),
            Known::Never => self.answer(&hello),
            Known::Refused => None,
        };
        let answer = flight.and_then(|flight| datagrams(false, &flight, &answer_key(&hello)));
        // Who asks may be somebody else's address.
        Some(answer.filter(|parts| parts.len() <= usize::from(part.parts)).unwrap_or_default())
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
        let answered = Answered { hello: hello.to_vec(), connection: Some(connection), flight: flight.clone(), since };
        self.inside().answered.insert(name_of(hello), answered);
        Some(flight)
    }

    /// Greetings without an end, and answered ones.
    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize) {
        let inside = self.inside();
        (inside.partial.len(), inside.answered.len())
    }

    /// The state that has answered this greeting in datagrams, and what it said: once.
    pub(in crate::link) fn take(&self, hello: &[u8]) -> Option<(ServerConnection, Vec<u8>)> {
        let mut inside = self.inside();
        inside.forget(Instant::now());
        let answered = inside.answered.get_mut(&name_of(hello)).filter(|it| it.hello == hello)?;
        Some((answered.connection.take()?, answered.flight.clone()))
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
    fn collect(&mut self, part: &proto::packet::HelloPart<'_>, from: SocketAddr) -> Option<Vec<u8>> {
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
