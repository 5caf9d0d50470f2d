//! The daemon's UDP port: greetings of datagram rails, beside the TCP port of the same number.
//!
//! For: a connected socket per rail, made only for who holds a job's secret and hears what is sent to its address.
//! In and out: a bound UDP socket in; `Arrival`s for the jobs out.
//! Invariants: a datagram that is too short, unknown, or whose MAC does not hold costs a look and leaves nothing; no answer is longer
//! than what it answers; no data leaves before the other end has shown that it hears (`K`, docs/protocol.md section 7); at most
//! `HALVES_MAX` rails wait for that, none longer than `PATIENCE`; this thread never does a job's work.
//! Absent on purpose: who may greet (serve), packets (engine). A connected socket gets its packets from the kernel, so this one sees none.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proto::wire::chunk::{GREETING_BYTES, Greeting};
use sys::event::{Event, Interest};

use crate::job::keys::JobSecret;
use crate::job::rails::{Arrival, Carrier};
use crate::job::train::{self, Tally};
use crate::job::udp::{self, GREETING_BYTES_MIN, PACKET_BYTES_MAX, Say, Sizes, WORD_BYTES, Word};

/// Rails that were greeted and not confirmed, at most, of all jobs.
const HALVES_MAX: usize = 256;
/// And of one job.
const HALVES_PER_JOB: usize = 16;
/// A greeted rail waits so long for its confirmation.
const PATIENCE: Duration = Duration::from_secs(60);
/// Trains that one greeted rail is sent: one that was lost may be asked for again.
const TRAINS_MAX: u8 = 3;
/// Datagrams taken from one socket before the others get their turn.
const TURN: usize = 64;

/// Who is let in under a greeting that holds.
#[derive(Debug, Clone)]
pub struct Guest {
    /// The job's.
    pub secret: JobSecret,
    /// Where its session arrived: the rail answers from there if the kernel does not say where its greeting arrived.
    pub local: SocketAddr,
    /// The largest UDP payload that the path takes, as far as this end knows.
    pub packet_bytes: u16,
    /// Data goes from here to there.
    pub sends: bool,
}

/// What came to the port. One writer, read at any time.
#[derive(Debug, Default)]
pub struct Counts {
    /// Datagrams that were no greeting of a live job.
    pub strangers: AtomicU64,
    /// Rails handed over.
    pub rails: AtomicU64,
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rails, strangers] = [&self.rails, &self.strangers].map(|field| field.load(Ordering::Relaxed));
        write!(out, "{rails} datagram rails; {strangers} datagrams to the port were no greeting of a running job")
    }
}

/// A greeted rail that is not confirmed.
struct Half {
    job: [u8; 16],
    rail: u16,
    from: SocketAddr,
    socket: UdpSocket,
    guest: Guest,
    token: [u8; 8],
    /// The longest greeting that came.
    longest: u16,
    /// What has come of the initiator's train.
    tally: Tally,
    /// Trains that it may still ask for.
    trains_left: u8,
    since: Instant,
}

/// The UDP port.
#[derive(Debug)]
pub struct Door {
    socket: UdpSocket,
    local: SocketAddr,
}

impl Door {
    /// Binds to the address of the TCP port.
    ///
    /// # Errors
    /// The kernel's: the port is taken by another program.
    pub fn bind(address: SocketAddr) -> io::Result<Door> {
        let socket = UdpSocket::from(sys::udp::bind(address, true)?);
        let _ = sys::udp::set_joining(&socket, false);
        // Without it a rail answers from its session's address.
        let _ = sys::udp::set_telling_place(&socket);
        let local = socket.local_addr()?;
        Ok(Door { socket, local })
    }

    /// Serves until `over` is signalled. `judge` says whose greeting it is, if it holds and its number is new or that of a rail that is up,
    /// which then moves to another address; `deliver` hands a rail to
    /// its job. Both are called on this thread and must not block.
    pub fn run(
        &self,
        judge: impl Fn(&Greeting) -> Option<Guest>,
        deliver: impl Fn(&[u8; 16], Arrival) -> bool,
        counts: &Counts,
        over: &Event,
    ) {
        let mut halves: Vec<Half> = Vec::new();
        let mut bytes = vec![0; usize::from(PACKET_BYTES_MAX)];
        loop {
            let ready = {
                let mut fds = vec![(over.as_fd(), Interest::Read), (self.socket.as_fd(), Interest::Read)];
                fds.extend(halves.iter().map(|half| (half.socket.as_fd(), Interest::Read)));
                let pause = if halves.is_empty() { None } else { Some(Duration::from_secs(1)) };
                match sys::event::poll(&fds, pause) {
                    Ok(ready) => ready,
                    Err(_) => return,
                }
            };
            if ready[0].any() {
                return;
            }
            if ready[1].any() {
                self.hear(&mut halves, &mut bytes, &judge, counts);
            }
            let now = Instant::now();
            let mut waiting = Vec::with_capacity(halves.len());
            for (index, mut half) in halves.drain(..).enumerate() {
                let speaks = ready.get(index + 2).is_some_and(|ready| ready.any());
                match speaks.then(|| half.hear(&mut bytes)).flatten() {
                    Some(start) => {
                        let (job, arrival) = half.arrive(start);
                        counts.rails.fetch_add(u64::from(deliver(&job, arrival)), Ordering::Relaxed);
                    }
                    None if now - half.since < PATIENCE => waiting.push(half),
                    None => {}
                }
            }
            halves = waiting;
        }
    }

    /// Takes what came to the port itself: first greetings, repeated ones, and whatever strangers send.
    fn hear(
        &self,
        halves: &mut Vec<Half>,
        bytes: &mut [u8],
        judge: &impl Fn(&Greeting) -> Option<Guest>,
        counts: &Counts,
    ) {
        for _ in 0..TURN {
            let come = match sys::udp::recv_burst(&self.socket, bytes) {
                Ok(come) => come,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // ICMP messages are told for connected sockets only; anything else is the kernel's trouble of a moment.
                Err(_) => return,
            };
            let (length, Some(from)) = (come.bytes, come.from) else { continue };
            let greeting = greeting_of(&bytes[..length]);
            let welcomed = greeting.is_some_and(|greeting| {
                let known = halves
                    .iter()
                    .position(|half| half.job == greeting.job && half.rail == greeting.rail && half.from == from);
                let at = known.or_else(|| {
                    let half = self.admit(halves, &greeting, (from, come.to), judge)?;
                    halves.push(half);
                    Some(halves.len() - 1)
                });
                at.is_some_and(|at| halves[at].welcome(&greeting, length))
            });
            counts.strangers.fetch_add(u64::from(!welcomed), Ordering::Relaxed);
        }
    }

    /// A socket of its own for who may have one.
    fn admit(
        &self,
        halves: &[Half],
        greeting: &Greeting,
        (from, to): (SocketAddr, Option<IpAddr>),
        judge: &impl Fn(&Greeting) -> Option<Guest>,
    ) -> Option<Half> {
        let mut crowds: HashMap<[u8; 16], usize> = HashMap::new();
        for half in halves {
            *crowds.entry(half.job).or_default() += 1;
        }
        let crowd = crowds.get(&greeting.job).copied().unwrap_or(0);
        if halves.len() >= HALVES_MAX || crowd >= HALVES_PER_JOB {
            return None;
        }
        let guest = judge(greeting)?;
        // It answers from where it was greeted: with several paths that is another address than the session's.
        let place = to.map(|to| match (from, to) {
            // A socket of both families speaks of IPv4 in mapped addresses.
            (SocketAddr::V6(_), IpAddr::V4(to)) => to.to_ipv6_mapped().into(),
            (_, to) => to,
        });
        let local = SocketAddr::new(place.unwrap_or(guest.local.ip()), self.local.port());
        let socket = sys::udp::bind(local, true).and_then(|socket| {
            sys::udp::connect(&socket, from)?;
            Ok(UdpSocket::from(socket))
        });
        let socket = socket.ok()?;
        let _ = sys::udp::set_joining(&socket, false);
        let _ = udp::widen(&socket);
        let mut token = [0; 8];
        aws_lc_rs::rand::fill(&mut token).ok()?;
        let (job, rail) = (greeting.job, greeting.rail);
        let (tally, trains_left, since) = (Tally::default(), TRAINS_MAX, Instant::now());
        Some(Half { job, rail, from, socket, guest, token, longest: 0, tally, trains_left, since })
    }
}

/// A datagram that is a greeting, long enough to be answered.
fn greeting_of(datagram: &[u8]) -> Option<Greeting> {
    let head: &[u8; GREETING_BYTES] = datagram.first_chunk()?;
    if datagram.len() < GREETING_BYTES_MIN { None } else { Greeting::decode(head).ok() }
}

impl Half {
    /// Answers a greeting of this rail, as often as it comes, in its own length.
    fn welcome(&mut self, greeting: &Greeting, length: usize) -> bool {
        let length_told = u16::try_from(length).unwrap_or(u16::MAX);
        if !self.guest.secret.holds(greeting) || length_told > PACKET_BYTES_MAX {
            return false;
        }
        self.longest = self.longest.max(length_told);
        let word = Word { say: Say::Welcome, rail: self.rail, packet_bytes: length_told, token: self.token };
        let mut answer = vec![0; length];
        answer[..WORD_BYTES].copy_from_slice(&word.encode(&self.guest.secret));
        // Refused or lost, it is asked for again.
        let _ = self.socket.send(&answer);
        true
    }

    /// Something came to this rail's socket. `Some`: it is confirmed, and packets are to have this length at the start.
    fn hear(&mut self, bytes: &mut [u8]) -> Option<u16> {
        for _ in 0..TURN {
            let mut head = [0; WORD_BYTES];
            let length = match self.socket.peek(&mut head) {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                // What an ICMP message said of an answer is told once.
                Err(_) => continue,
            };
            if !self.guest.sends && udp::is_packet(&head[..length], self.guest.secret.tag(self.rail)) {
                // The first packet says what a lost `K` would have said; it is the rail's to read.
                return Some(self.longest);
            }
            let come = sys::udp::recv_burst(&self.socket, bytes).ok()?;
            let length = come.bytes;
            if let Some(greeting) = greeting_of(&bytes[..length]) {
                if greeting.job == self.job && greeting.rail == self.rail {
                    self.welcome(&greeting, length);
                }
                continue;
            }
            let word = Word::decode(&bytes[..length], &self.guest.secret, self.rail);
            // Who says the token is at the address that was greeted.
            let Some(word) = word.filter(|word| word.token == self.token) else { continue };
            match word.say {
                Say::Confirm => {
                    let ready = Word { say: Say::Ready, ..word };
                    let _ = self.socket.send(&ready.encode(&self.guest.secret));
                    return Some(word.packet_bytes);
                }
                Say::Train => self.tally.take(word.packet_bytes, length, train::came(come.waited_ns)),
                Say::TrainEnd => {
                    let _ = self.socket.send(&self.tally.word(self.rail).encode(&self.guest.secret));
                }
                Say::TrainAsk if self.trains_left > 0 => {
                    self.trains_left -= 1;
                    let size = word.packet_bytes.min(self.longest);
                    let packets = train::TRAIN_PACKETS;
                    let _ = train::send(&self.socket, &self.guest.secret, self.rail, self.token, (packets, size));
                }
                _ => {}
            }
        }
        None
    }

    /// What its job gets.
    fn arrive(self, start: u16) -> ([u8; 16], Arrival) {
        let _ = sys::udp::set_joining(&self.socket, true);
        let most = self.guest.packet_bytes;
        let start = start.clamp(proto::flow::PACKET_BYTES_BASE, most);
        let sizes = Sizes { tag: self.guest.secret.tag(self.rail), start, most };
        let arrival =
            Arrival { rail: self.rail, carrier: Carrier::Packets(sizes, None), socket: Ok(self.socket.into()) };
        (self.job, arrival)
    }
}

#[cfg(test)]
#[path = "door_tests.rs"]
mod tests;
