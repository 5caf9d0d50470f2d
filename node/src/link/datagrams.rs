//! The control session beside its connection: the same sealed bytes in datagrams, on a socket of their own.
//!
//! For: words that do not wait for TCP's timers where packets are lost.
//! In and out: what the link gives to its connection, and what came over it, in; datagrams to the peer and back; bytes of the session that came in
//! them, in order and once, out.
//! Invariants: nothing blocks; a datagram is believed only if its MAC holds, which is compared in constant time; a repeated one does no harm; at most
//! `TURN` of them in a turn; the connection never needs this.
//! Absent on purpose: what goes when (`proto::session::transport::duplicate`), how greetings are made and answered (the job's, which has the keys).
//! Source: docs/protocol.md section 6, *In datagrams*; docs/design/036.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use proto::packet::SessionPart;
use proto::session::Moment;
use proto::session::transport::duplicate::Duplicates;
use proto::session::transport::greeting::Greetings;

use super::{Link, LinkError};

/// Datagrams that are read in one turn.
const TURN: usize = 64;
/// The end of each.
const MAC_BYTES: usize = 16;
/// Longer than any of ours.
const DATAGRAM_BYTES: usize = 2048;
/// A path that went silent, or was never answered, is greeted again after this: longer than a NAT needs to forget a mapping and make another,
/// shorter than anybody waits for a stalled job.
const AGAIN: Duration = Duration::from_secs(8);
/// A path is greeted so often for a session, and then no more: a minute.
const GREETED_MAX: u32 = 8;
/// Bytes that a socket may hold each way: all that either end may have on its way at once, twice.
const SOCKET_BYTES: u64 = 256 << 10;

/// What the job's key gives.
#[derive(Clone, Copy)]
pub struct DatagramKeys {
    /// Of the MACs.
    pub mac: [u8; 32],
    /// 24 bits in each datagram.
    pub tag: u32,
}

impl fmt::Debug for DatagramKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("DatagramKeys").finish_non_exhaustive()
    }
}

/// How the initiator gets a path.
pub struct SessionGreeting {
    /// Who is greeted.
    pub peer: SocketAddr,
    /// The greeting, padded.
    pub greeting: Vec<u8>,
    /// What is said to an answer that holds.
    pub confirm: Answer,
}

/// From what came to what is said to it; `None`: it is no answer that holds.
pub(super) type Answer = Box<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send>;

impl fmt::Debug for SessionGreeting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SessionGreeting").field("peer", &self.peer).finish_non_exhaustive()
    }
}

enum Stage {
    /// No path: not yet, or not any more.
    None,
    Greeting(UdpSocket, Greetings),
    /// What confirms it goes with each datagram until the peer is heard.
    Up(UdpSocket, Option<Vec<u8>>),
}

/// See the module.
pub(super) struct Datagrams {
    keys: DatagramKeys,
    initiates: bool,
    duplicates: Duplicates,
    stage: Stage,
    rtt: Duration,
    /// Of an initiator: how it is greeted, when last, and how often.
    greeting: Option<SessionGreeting>,
    greeted: (Moment, u32),
    /// Sent and received.
    bytes: u64,
    /// Datagrams of the peer's.
    heard: u64,
}

fn now() -> Moment {
    Moment::from_ns(sys::clock::now_ns())
}

impl Datagrams {
    fn socket(&self) -> Option<&UdpSocket> {
        match &self.stage {
            Stage::None => None,
            Stage::Greeting(socket, _) | Stage::Up(socket, _) => Some(socket),
        }
    }

    pub(super) fn on_sent(&mut self, from: u64, bytes: &[u8]) {
        self.duplicates.on_sent(now(), from, bytes);
    }

    pub(super) fn on_stream(&mut self, received: u64, from: u64, bytes: &[u8]) -> Vec<u8> {
        self.duplicates.on_stream(now(), received, from, bytes)
    }

    /// Greets from a socket of its own, if there is somebody to greet.
    fn greet(&mut self, is_known: bool) {
        let Some(greeting) = &self.greeting else { return };
        let first = now();
        self.greeted = (first, self.greeted.1 + 1);
        self.stage = match sys::udp::open(None, greeting.peer, SOCKET_BYTES, SOCKET_BYTES) {
            Ok((socket, _)) => Stage::Greeting(prepared(socket), Greetings::new(first, self.rtt, is_known)),
            Err(_) => Stage::None,
        };
    }

    fn over(&mut self, socket: UdpSocket, confirm: Option<Vec<u8>>) {
        self.stage = Stage::Up(socket, confirm);
        self.duplicates.on_path(now());
    }

    /// Greetings and parts that are due.
    fn say(&mut self, received: u64) {
        let now = now();
        let rests = now.since(self.greeted.0) >= AGAIN && self.greeted.1 < GREETED_MAX;
        match &mut self.stage {
            Stage::Greeting(_, greetings) if greetings.is_over(now) => self.stage = Stage::None,
            Stage::Greeting(socket, greetings) => {
                if greetings.is_due(now)
                    && let Some(greeting) = &self.greeting
                {
                    let _ = socket.send(&greeting.greeting);
                    self.bytes += greeting.greeting.len() as u64;
                }
            }
            Stage::None if rests => self.greet(true),
            Stage::Up(..) if rests && self.duplicates.is_silent() => self.greet(true),
            Stage::None => {}
            Stage::Up(socket, confirm) => {
                while let Some(next) = self.duplicates.next(now, received) {
                    let (tag, is_initiators) = (self.keys.tag, self.initiates);
                    let (offset, beyond, bytes) = (next.offset, next.beyond, &next.bytes[..]);
                    let mut out = Vec::with_capacity(DATAGRAM_BYTES);
                    SessionPart { tag, is_initiators, received, beyond, offset, bytes }.encode(&mut out);
                    out.extend(&blake3::keyed_hash(&self.keys.mac, &out).as_bytes()[..MAC_BYTES]);
                    if let Some(confirm) = confirm {
                        let _ = socket.send(confirm);
                    }
                    // What is lost or refused goes again, or came over the connection.
                    let _ = socket.send(&out);
                    self.bytes += out.len() as u64;
                }
            }
        }
    }

    /// The next bytes of the session that a datagram brought. `None`: there is no datagram any more.
    fn hear(&mut self, received: u64) -> Option<Vec<u8>> {
        let mut bytes = [0; DATAGRAM_BYTES];
        let length = match self.socket()?.recv(&mut bytes) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            // What an ICMP message said of a datagram before is told once.
            Err(_) => return Some(Vec::new()),
        };
        self.bytes += length as u64;
        let come = &bytes[..length];
        if let Stage::Greeting(..) = &self.stage {
            let confirm = self.greeting.as_ref().and_then(|it| (it.confirm)(come));
            // The acceptor speaks: it knows where this end is, and what welcomed this end was lost, or comes later.
            let speaks = confirm.is_none() && self.part_of(come).is_some();
            // Whatever else comes changes nothing.
            if (confirm.is_some() || speaks)
                && let Stage::Greeting(socket, _) = std::mem::replace(&mut self.stage, Stage::None)
            {
                confirm.iter().for_each(|confirm| drop(socket.send(confirm)));
                self.over(socket, confirm);
            }
            return Some(if speaks { self.take(come, received).unwrap_or_default() } else { Vec::new() });
        }
        Some(self.take(come, received).unwrap_or_default())
    }

    /// A datagram of the peer's, if it is one.
    fn part_of<'a>(&self, come: &'a [u8]) -> Option<SessionPart<'a>> {
        let (said, mac) = come.split_last_chunk::<MAC_BYTES>()?;
        if said.first() != Some(&proto::packet::SESSION_KIND) {
            return None;
        }
        let own = blake3::keyed_hash(&self.keys.mac, said);
        let is_own = aws_lc_rs::constant_time::verify_slices_are_equal(&own.as_bytes()[..MAC_BYTES], mac).is_ok();
        let part = SessionPart::decode(said).ok();
        part.filter(|it| is_own && it.tag == self.keys.tag && it.is_initiators != self.initiates)
    }

    /// What it brings that is new.
    fn take(&mut self, come: &[u8], received: u64) -> Option<Vec<u8>> {
        let part = self.part_of(come)?;
        self.heard += 1;
        if let Stage::Up(_, confirm) = &mut self.stage {
            *confirm = None;
        }
        let now = now();
        self.duplicates.on_told(now, part.received, &part.beyond);
        Some(self.duplicates.on_piece(now, received, part.offset, part.bytes))
    }

    fn due(&self) -> Option<Moment> {
        let again = (self.greeted.1 < GREETED_MAX).then(|| self.greeted.0 + AGAIN);
        match &self.stage {
            Stage::None => again.filter(|_| self.greeting.is_some()),
            Stage::Greeting(_, greetings) => Some(greetings.next()),
            Stage::Up(..) => self.duplicates.due(),
        }
    }
}

fn prepared(socket: impl Into<UdpSocket>) -> UdpSocket {
    let socket = socket.into();
    let _ = sys::udp::set_joining(&socket, false);
    let _ = socket.set_nonblocking(true);
    socket
}

impl Link {
    /// What goes over the connection from here on is kept for datagrams, too, until it is known to have come. `initiates`: this end greets.
    pub fn duplicate(&mut self, keys: DatagramKeys, initiates: bool) {
        let Some(tcp) = self.tcp() else { return };
        let rtt = sys::sock::tcp_info(tcp).map_or(Duration::ZERO, |info| Duration::from_micros(info.rtt_us.into()));
        // Until now the connection alone brought what came.
        self.stream_at = self.bytes_received;
        let duplicates = Duplicates::new(self.bytes_sent, rtt);
        let (greeting, greeted) = (None, (now(), 0));
        let (stage, bytes, heard) = (Stage::None, 0, 0);
        self.datagrams =
            Some(Box::new(Datagrams { keys, initiates, duplicates, stage, rtt, greeting, greeted, bytes, heard }));
    }

    /// Looks for a path for them, while the peer may not know of the job yet.
    pub fn greet_datagrams(&mut self, greeting: SessionGreeting) {
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.greeting = Some(greeting);
            datagrams.greet(false);
            datagrams.say(self.bytes_received);
        }
    }

    /// The peer knows of the job.
    pub fn on_job_known(&mut self) {
        if let Some(Stage::Greeting(_, greetings)) = self.datagrams.as_mut().map(|it| &mut it.stage) {
            greetings.on_known(now());
        }
    }

    /// The peer has found a path for them, which ends in this socket.
    pub fn datagrams_over(&mut self, socket: OwnedFd) {
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.over(prepared(socket), None);
            datagrams.say(self.bytes_received);
        }
    }

    /// For poll, beside `as_fd`: for reading.
    #[must_use]
    pub fn datagram_fd(&self) -> Option<BorrowedFd<'_>> {
        self.datagrams.as_ref().and_then(|it| it.socket()).map(AsFd::as_fd)
    }

    /// A turn is wanted within this time.
    #[must_use]
    pub fn datagrams_due(&self) -> Option<Duration> {
        let rest = self.rest.as_ref().and_then(|it| it.due()).map(|due| due.saturating_duration_since(Instant::now()));
        self.datagrams.as_ref().and_then(|it| it.due()).map(|due| due.since(now())).into_iter().chain(rest).min()
    }

    /// Is there a path on which the peer was heard?
    #[cfg(test)]
    pub(crate) fn hears_datagrams(&self) -> bool {
        matches!(self.datagrams.as_ref().map(|it| (&it.stage, it.heard)), Some((Stage::Up(_, None), 1..)))
    }

    /// Bytes of datagrams, both ways.
    #[must_use]
    pub fn datagram_bytes(&self) -> u64 {
        self.datagrams.as_ref().map_or(0, |it| it.bytes)
    }

    /// Parts that are due go.
    pub(super) fn say_datagrams(&mut self) {
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.say(self.bytes_received);
        }
    }

    /// Takes what datagrams brought.
    pub(super) fn hear_datagrams(&mut self, frames: &mut Vec<Vec<u8>>) -> Result<(), LinkError> {
        for _ in 0..TURN {
            let Some(datagrams) = self.datagrams.as_mut().filter(|_| !self.peer_closed) else { return Ok(()) };
            let Some(new) = datagrams.hear(self.bytes_received) else { return Ok(()) };
            if !new.is_empty() {
                self.bytes_received += new.len() as u64;
                self.open(&new)?;
                self.cut_frames(frames)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "datagrams_tests.rs"]
mod tests;
