//! The first flights of the handshake in datagrams, beside a connection that is not there yet: the initiator's side, and what both sides share.
//!
//! For: a session that stands one round trip after the first packet, where TCP's own round trip goes before that of TLS; and whose next flight, the
//! initiator's proof and first words, waits for no timer of TCP's where a segment is lost.
//! In and out: a TLS greeting → datagrams; datagrams → the acceptor's whole answer, once; then the connection, over which all bytes go as ever.
//! Invariants: the connection carries the session from its first byte to its last, and whatever a datagram brought first is compared with it: what
//! differs ends the session (`LinkError::Elsewhere`), and who asked makes it again without datagrams. A datagram is believed only if its MAC holds; an
//! answer is a handshake of TLS, whose signature proves the acceptor's key as ever. Nothing of a job is said in these datagrams.
//! Absent on purpose: early data and resumption (docs/design/035-start.md); what the acceptor keeps (answered.rs).
//! Source: docs/protocol.md section 3, *The first flight in datagrams*.

mod answered; // greetings that came so, at the acceptor

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::packet::{HELLO_DATAGRAM_BYTES, HELLO_PART_BYTES, HELLO_PARTS_MAX, HelloFlight, HelloPart};
use rustls::{ClientConnection, Connection};

use super::handshake::{Deadline, hold_back};
use super::tls::{self, ServerCheck};
use super::{LinkError, READ_BYTES, Step};
use crate::identity::{Identity, PublicKey};

pub use answered::Hellos;
pub(in crate::link) use answered::{Claimed, Rest};

/// The end of each datagram.
const MAC_BYTES: usize = 16;
/// What the key of a greeting's MACs is derived for, from the acceptor's public key: who does not know whom it asks is not answered.
const ASKING: &str = "longhaul 1 hello in datagrams";
/// And that of an answer's, from the whole greeting: nobody answers who has not seen it.
const ANSWERING: &str = "longhaul 1 hello answered in datagrams";
/// And of what the initiator says to that, from the answer.
const GOING_ON: &str = "longhaul 1 hello goes on in datagrams";
/// A flight goes a second time so soon: what a burst of losses takes is over, on most paths, and nothing has been heard yet.
pub(super) const SECOND: Duration = Duration::from_millis(4);
/// Before what the initiator says: the port of its connection, by which an acceptor knows it that has not got its greeting.
const PORT_BYTES: usize = 2;
/// A connection that takes longer begins a handshake of its own: the acceptor keeps what it answered for six seconds (answered.rs), and two of them
/// are for what the connection loses.
const GOOD_FOR: Duration = Duration::from_secs(4);
/// Each way: three parts, as often as a SYN is repeated.
const SOCKET_BYTES: u64 = 32 << 10;

/// Of the MACs of a greeting to this acceptor.
pub(super) fn asking_key(acceptor: &PublicKey) -> [u8; 32] {
    blake3::derive_key(ASKING, acceptor)
}

/// Of the MACs of the answer to this greeting.
pub(super) fn answer_key(hello: &[u8]) -> [u8; 32] {
    blake3::derive_key(ANSWERING, hello)
}

/// Of the MACs of what the initiator says to this answer.
pub(super) fn rest_key(answer: &[u8]) -> [u8; 32] {
    blake3::derive_key(GOING_ON, answer)
}

/// A flight's name.
pub(super) fn name_of(flight: &[u8]) -> [u8; 16] {
    *blake3::hash(flight).as_bytes().first_chunk().expect("16 of 32")
}

/// A flight in datagrams; `None`: it is longer than these may be. `name`: its own, or that of the greeting which it goes on from.
pub(super) fn datagrams(which: HelloFlight, name: [u8; 16], bytes: &[u8], key: &[u8; 32]) -> Option<Vec<Vec<u8>>> {
    let parts = u8::try_from(bytes.len().div_ceil(HELLO_PART_BYTES)).ok()?;
    if !(1..=HELLO_PARTS_MAX).contains(&usize::from(parts)) {
        return None;
    }
    let datagram = |(part, bytes): (u8, &[u8])| {
        let mut out = Vec::with_capacity(HELLO_DATAGRAM_BYTES + MAC_BYTES);
        HelloPart { flight: which, part, parts, name, bytes }.encode(&mut out);
        let mac = blake3::keyed_hash(key, &out);
        out.extend(&mac.as_bytes()[..MAC_BYTES]);
        out
    };
    Some((0..).zip(bytes.chunks(HELLO_PART_BYTES)).map(datagram).collect())
}

/// A part whose MAC holds.
pub(super) fn opened<'a>(datagram: &'a [u8], which: HelloFlight, key: &[u8; 32]) -> Option<HelloPart<'a>> {
    let (said, mac) = datagram.split_last_chunk::<MAC_BYTES>()?;
    if said.len() != HELLO_DATAGRAM_BYTES {
        return None;
    }
    let own = blake3::keyed_hash(key, said);
    aws_lc_rs::constant_time::verify_slices_are_equal(&own.as_bytes()[..MAC_BYTES], mac).ok()?;
    HelloPart::decode(said).ok().filter(|part| part.flight == which)
}

/// Parts of one flight; those of another begin anew.
#[derive(Default)]
pub(super) struct Collected {
    name: [u8; 16],
    parts: Vec<Option<Vec<u8>>>,
}

impl Collected {
    /// Of which flight.
    pub(super) fn name(&self) -> [u8; 16] {
        self.name
    }

    /// The whole flight, once its last part is here.
    pub(super) fn take(&mut self, part: &HelloPart<'_>) -> Option<Vec<u8>> {
        if self.name != part.name || self.parts.len() != usize::from(part.parts) {
            *self = Collected { name: part.name, parts: vec![None; part.parts.into()] };
        }
        self.parts[usize::from(part.part)].get_or_insert_with(|| part.bytes.to_vec());
        let whole: Vec<u8> = self.parts.iter().flatten().flatten().copied().collect();
        // The rest has the greeting's name, which its MAC's key comes from.
        let is_whole = part.flight == HelloFlight::Rest || name_of(&whole) == self.name;
        (self.parts.iter().all(Option::is_some) && is_whole).then_some(whole)
    }
}

/// A greeting that went ahead of its connection.
pub(super) struct HelloAhead {
    to: SocketAddr,
    begun: Instant,
    connection: ClientConnection,
    check: Arc<ServerCheck>,
    datagrams: Vec<Vec<u8>>,
    asked: Asked,
}

/// What is left to do of it once there is a connection.
pub(super) struct Asked {
    /// And the proof behind it, once there is one.
    hello: Vec<u8>,
    /// So much of it is the greeting.
    hello_bytes: usize,
    /// So much of it went over the connection.
    sent: usize,
    socket: UdpSocket,
    key: [u8; 32],
    answer: Collected,
}

impl fmt::Debug for HelloAhead {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("HelloAhead").field("to", &self.to).finish_non_exhaustive()
    }
}

impl HelloAhead {
    /// Asks there, for this key. `None`: this host sends no datagrams there, which costs a round trip and nothing else.
    pub(super) fn begin(
        to: SocketAddr,
        id: &Identity,
        acceptor: PublicKey,
        revoked: Vec<PublicKey>,
    ) -> Option<HelloAhead> {
        let (mut connection, check) = tls::client(id, vec![acceptor], revoked).ok()?;
        let mut hello = Vec::new();
        while connection.wants_write() {
            connection.write_tls(&mut hello).ok()?;
        }
        let datagrams = datagrams(HelloFlight::Greeting, name_of(&hello), &hello, &asking_key(&acceptor))?;
        let (socket, _) = sys::udp::open(None, to, SOCKET_BYTES, SOCKET_BYTES).ok()?;
        let _ = sys::udp::set_joining(&socket, false);
        let key = answer_key(&hello);
        let hello_bytes = hello.len();
        let asked = Asked { hello, hello_bytes, sent: 0, socket: socket.into(), key, answer: Collected::default() };
        let ahead = HelloAhead { to, begun: Instant::now(), connection, check, datagrams, asked };
        ahead.say();
        Some(ahead)
    }

    /// Says it, once more while nothing is known of the connection.
    pub(super) fn say(&self) {
        for datagram in &self.datagrams {
            // What is lost or refused costs a round trip.
            let _ = self.asked.socket.send(datagram);
        }
    }

    /// Where it is answered.
    pub(super) fn answers(&self) -> Option<UdpSocket> {
        self.asked.socket.try_clone().ok()
    }

    /// Whom it asks.
    pub(super) fn to(&self) -> SocketAddr {
        self.to
    }

    /// For a connection to this peer, if that came soon enough.
    pub(super) fn of(self, peer: SocketAddr) -> Option<(ClientConnection, Arc<ServerCheck>, Asked)> {
        (self.to == peer && self.begun.elapsed() < GOOD_FOR).then_some((self.connection, self.check, self.asked))
    }
}

impl Asked {
    /// The acceptor's whole answer, if it is here.
    fn hear(&mut self) -> Option<Vec<u8>> {
        let mut bytes = [0; HELLO_DATAGRAM_BYTES + MAC_BYTES + 1];
        loop {
            let length = match self.socket.recv(&mut bytes) {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                // What an ICMP message said of a datagram before is told once.
                Err(_) => continue,
            };
            let Some(part) = opened(&bytes[..length], HelloFlight::Answer, &self.key) else { continue };
            if let Some(flight) = self.answer.take(&part) {
                return Some(flight);
            }
        }
    }

    /// The rest of the greeting, over the connection too. Was there any?
    fn send(&mut self, mut stream: &TcpStream, moved: &mut (u64, u64)) -> Result<bool, LinkError> {
        if self.is_sent() {
            return Ok(false);
        }
        match stream.write(&self.hello[self.sent..]) {
            Ok(bytes) => {
                self.sent += bytes;
                moved.0 += bytes as u64;
                Ok(true)
            }
            Err(error) => not_now(error),
        }
    }

    fn is_sent(&self) -> bool {
        self.sent == self.hello.len()
    }

    /// The initiator's handshake, with whichever answer comes first. What the connection is still to bring of it is in the answer.
    pub(super) fn handshake(
        mut self,
        connection: &mut Connection,
        stream: &TcpStream,
        deadline: &mut Deadline,
        moved: &mut (u64, u64),
    ) -> Result<Shaken, LinkError> {
        let (mut repeat, mut key, mut brought) = (None::<Repeat>, None, Vec::new());
        loop {
            deadline.left(Step::Prove)?;
            let mut goes_on = false;
            if moved.1 == 0
                && let Some(flight) = self.hear()
            {
                moved.1 = flight.len() as u64;
                open(connection, &flight)?;
                key = Some(rest_key(&flight));
                repeat = Some(Repeat { flight, at: 0 });
                goes_on = true;
            }
            if !connection.is_handshaking() {
                hold_back(stream);
                while connection.wants_write() {
                    connection.write_tls(&mut self.hello).map_err(|source| LinkError::Io { step: "set up", source })?;
                }
            }
            goes_on |= self.send(stream, moved)?;
            if !connection.is_handshaking() && self.is_sent() {
                let port = stream.local_addr().map_or(0, |it| it.port());
                return Ok(Shaken { repeat, rest: key.map(|key| RestAhead::of(self, key, port)) });
            }
            if connection.is_handshaking() {
                let read = read(connection, stream, (&mut repeat, &mut brought), moved)?;
                goes_on |= read;
                if read {
                    deadline.on_heard();
                    // The acceptor says no more before it has this end's proof: this was its answer, as datagrams would have brought it.
                    key = (!connection.is_handshaking() && repeat.is_none()).then(|| rest_key(&brought)).or(key);
                }
            }
            if !goes_on {
                let datagrams = (moved.1 == 0).then(|| self.socket.as_fd());
                let ways = (connection.is_handshaking(), !self.is_sent());
                deadline.wait_beside(stream.as_fd(), ways, (datagrams, None), Step::Prove)?;
            }
        }
    }
}

/// What is left of a handshake that began in datagrams.
#[derive(Default)]
pub(super) struct Shaken {
    /// The connection is to bring it.
    pub(super) repeat: Option<Repeat>,
    /// Datagrams are to bring it, too.
    pub(super) rest: Option<RestAhead>,
}

/// The initiator's proof and what it says first, for datagrams beside the connection: of a flight of a few segments each may be lost, and behind the
/// last of them nothing comes that would show it.
pub(super) struct RestAhead {
    socket: UdpSocket,
    key: [u8; 32],
    name: [u8; 16],
    bytes: Vec<u8>,
    /// Made, and once more to be sent then.
    again: Option<(Vec<Vec<u8>>, Instant)>,
}

impl RestAhead {
    fn of(asked: Asked, key: [u8; 32], port: u16) -> RestAhead {
        let (hello, proof) = asked.hello.split_at(asked.hello_bytes);
        let bytes = [&port.to_le_bytes()[..], proof].concat();
        RestAhead { name: name_of(hello), bytes, socket: asked.socket, key, again: None }
    }

    /// The connection took this.
    pub(super) fn on_sent(&mut self, bytes: &[u8]) {
        if self.again.is_none() {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// All of the flight went over the connection: it goes in datagrams as well, if these hold it. Is there anything left to do?
    pub(super) fn say(&mut self) -> bool {
        let Some(parts) = datagrams(HelloFlight::Rest, self.name, &self.bytes, &self.key) else { return false };
        self.send(&parts);
        self.again = Some((parts, Instant::now() + SECOND));
        true
    }

    /// The second time, if it is due. Is there anything left to do?
    pub(super) fn say_again(&self, now: Instant) -> bool {
        match &self.again {
            Some((parts, due)) if *due <= now => {
                self.send(parts);
                false
            }
            _ => true,
        }
    }

    /// When that is.
    pub(super) fn due(&self) -> Option<Instant> {
        self.again.as_ref().map(|(_, due)| *due)
    }

    fn send(&self, parts: &[Vec<u8>]) {
        for part in parts {
            // What is lost or refused comes over the connection.
            let _ = self.socket.send(part);
        }
    }
}

/// Reads what the connection has now, and keeps what is new of it. Was there any?
fn read(
    connection: &mut Connection,
    mut stream: &TcpStream,
    (repeat, brought): (&mut Option<Repeat>, &mut Vec<u8>),
    moved: &mut (u64, u64),
) -> Result<bool, LinkError> {
    let mut portion = [0; READ_BYTES];
    match stream.read(&mut portion) {
        Ok(0) => Err(LinkError::Cut),
        Ok(bytes) => {
            let new = Repeat::passed(repeat, &portion[..bytes])?;
            moved.1 += new.len() as u64;
            brought.extend_from_slice(new);
            open(connection, new)?;
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(LinkError::Cut),
        Err(error) => not_now(error),
    }
}

/// Gives TLS these bytes of the handshake.
pub(super) fn open(connection: &mut Connection, mut sealed: &[u8]) -> Result<(), LinkError> {
    while !sealed.is_empty() {
        connection.read_tls(&mut sealed).map_err(|source| LinkError::Io { step: "set up", source })?;
        connection.process_new_packets().map_err(LinkError::Tls)?;
    }
    Ok(())
}

/// `false` where the kernel only says: later.
fn not_now(error: io::Error) -> Result<bool, LinkError> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(false),
        _ => Err(LinkError::Io { step: "set up", source: error }),
    }
}

/// What datagrams brought, and the connection brings once more.
#[derive(Debug)]
pub(super) struct Repeat {
    flight: Vec<u8>,
    at: usize,
}

impl Repeat {
    /// A flight of which the connection has brought so much, and not all.
    pub(super) fn new(flight: Vec<u8>, at: usize) -> Repeat {
        Repeat { flight, at }
    }

    /// What is new of a portion; once all of the flight was passed, it is forgotten.
    pub(super) fn passed<'a>(repeat: &mut Option<Repeat>, portion: &'a [u8]) -> Result<&'a [u8], LinkError> {
        let Some(it) = repeat else { return Ok(portion) };
        let rest = &it.flight[it.at..];
        let (old, new) = portion.split_at(rest.len().min(portion.len()));
        if old != &rest[..old.len()] {
            return Err(LinkError::Elsewhere);
        }
        it.at += old.len();
        if it.at == it.flight.len() {
            *repeat = None;
        }
        Ok(new)
    }
}

#[cfg(test)]
mod tests;
