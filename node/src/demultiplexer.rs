//! The daemon's UDP port: greetings of datagram rails, and of sessions whose connection is not there yet, beside the TCP port of the same number.
//!
//! For: a connected socket per rail, made only for who holds a job's secret and hears what is sent to its address.
//! In and out: a bound UDP socket in; `Arrival`s for the jobs out.
//! Invariants: a datagram that is too short, unknown, or whose MAC does not hold costs a look and leaves nothing; no answer is longer
//! than what it answers; no data leaves before the other end has shown that it hears (`K`, docs/protocol.md section 7); at most
//! `HALVES_MAX` rails wait for that, none longer than `PATIENCE`; this thread never does a job's work. A rail number is given a socket for one
//! greeting, the first; whoever repeats that greeting elsewhere, be it the rail's end that has moved or a stranger who recorded it, is answered
//! with a token made of its address and remembered by nobody: only who says the token under the job's key leaves anything here.
//! Absent on purpose: who may greet (serve), what begins a session (link), packets (engine). A connected socket gets its packets from the kernel, so this one sees none.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proto::packet::HELLO_KIND;
use proto::wire::chunk::{GREETING_BYTES, Greeting};
use sys::event::{Event, Interest};

use crate::job::keys::JobSecret;
use crate::job::rails::{Arrival, CONTROL, Carrier, Socket};
use crate::job::udp::packet_train::{self, Tally};
use crate::job::udp::{self, GREETING_BYTES_MIN, PACKET_BYTES_MAX, SETUP_BYTES, SetupKind, SetupMessage, Sizes};

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
/// Greetings of jobs that are not known, at most: one may have overtaken `Open`. Each is 64 bytes and an address.
const EARLY_MAX: usize = 128;
/// And so long: `Open` came with it, and whoever reads that has a thread to start.
const EARLY: Duration = Duration::from_millis(250);

/// The jobs whose rails may come. All is called on the port's thread and must not block.
pub trait Jobs {
    /// Whose greeting it is, if it holds, and whether its number is new here.
    fn judge(&self, greeting: &Greeting) -> Option<(Guest, Standing)>;
    /// The jobs whose names begin so and that a rail of this number was greeted for; and how often it was confirmed.
    fn find(&self, begins: [u8; 4], rail: u16) -> Vec<([u8; 16], Guest, u32)>;
    /// Hands a rail to its job.
    fn deliver(&self, job: &[u8; 16], arrival: Arrival) -> bool;
    /// Signalled when a job more may be greeted for.
    fn new_jobs(&self) -> &Event;
    /// A datagram that is none of these. `None`: it begins no session either; else what is answered.
    fn hello(&self, datagram: &[u8], from: SocketAddr) -> Option<Vec<Vec<u8>>>;
}

/// How often the number of a greeted rail was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Never.
    New,
    /// It was greeted, and since then confirmed so many times: each time from another address.
    Known(u32),
}

/// Who is let in under a greeting that holds.
#[derive(Debug, Clone)]
pub struct Guest {
    /// The job's.
    pub secret: JobSecret,
    /// Where its session arrived: the rail answers from there if the kernel does not say where its greeting arrived.
    pub local: SocketAddr,
    /// Where its session came from.
    pub peer: IpAddr,
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
    /// Rails that wait now to be confirmed.
    pub waiting: AtomicU64,
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
    /// Of its packets: derived once.
    tag: u32,
    token: [u8; 8],
    /// The longest greeting that came.
    longest: u16,
    /// What has come of the initiator's train.
    tally: Tally,
    /// Trains that it may still ask for.
    trains_left: u8,
    since: Instant,
}

/// A greeting that may have overtaken its job.
struct EarlyGreeting {
    greeting: Greeting,
    length: usize,
    from: SocketAddr,
    to: Option<IpAddr>,
    since: Instant,
}

/// Who waits at the port.
#[derive(Default)]
struct Guests {
    /// Greeted, and not confirmed.
    halves: Vec<Half>,
    /// Oldest first.
    early: VecDeque<EarlyGreeting>,
}

/// The UDP port.
#[derive(Debug)]
pub struct Demultiplexer {
    socket: UdpSocket,
    local: SocketAddr,
    /// Another program has made the port's socket.
    is_handed: bool,
    /// Tokens of greetings that nobody remembers are made with it.
    key: [u8; 32],
    /// How long a greeting is kept whose job is not known: [`EARLY`].
    early: Duration,
}

impl Demultiplexer {
    /// Binds to the address of the TCP port.
    ///
    /// # Errors
    /// The kernel's: the port is taken by another program.
    pub fn bind(address: SocketAddr) -> io::Result<Demultiplexer> {
        Demultiplexer::bound(sys::udp::bind(address, true)?)
    }

    /// On a socket of `sys::udp::bind`, with reuse, that belongs to the user of this process.
    ///
    /// # Errors
    /// The kernel's.
    pub fn bound(socket: OwnedFd) -> io::Result<Demultiplexer> {
        Demultiplexer::over(socket, false)
    }

    /// On a UDP socket that another program has bound.
    ///
    /// # Errors
    /// The kernel's.
    pub fn handed(socket: OwnedFd) -> io::Result<Demultiplexer> {
        Demultiplexer::over(sys::udp::adopt(socket)?, true)
    }

    fn over(socket: OwnedFd, is_handed: bool) -> io::Result<Demultiplexer> {
        let socket = UdpSocket::from(socket);
        let _ = sys::udp::set_joining(&socket, false);
        // Without it a rail answers from its session's address.
        let _ = sys::udp::set_telling_place(&socket);
        let local = socket.local_addr()?;
        let mut key = [0; 32];
        aws_lc_rs::rand::fill(&mut key).map_err(|_| io::Error::other("the system gives no randomness"))?;
        Ok(Demultiplexer { socket, local, is_handed, key, early: EARLY })
    }

    /// What only who hears at `from` can say, until the rail is confirmed once more: the job's name begins with the first half of it.
    fn token(&self, from: SocketAddr, job: &[u8; 16], rail: u16, confirmed: u32) -> [u8; 8] {
        let address = match from.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&address).update(&from.port().to_le_bytes()).update(job);
        hasher.update(&rail.to_le_bytes()).update(&confirmed.to_le_bytes());
        let mut token = [0; 8];
        token[..4].copy_from_slice(&job[..4]);
        token[4..].copy_from_slice(&hasher.finalize().as_bytes()[..4]);
        token
    }

    /// Serves until `over` is signalled.
    pub fn run(&self, jobs: &impl Jobs, counts: &Counts, over: &Event) {
        let mut guests = Guests::default();
        let mut bytes = vec![0; usize::from(PACKET_BYTES_MAX)];
        loop {
            counts.waiting.store(guests.halves.len() as u64, Ordering::Relaxed);
            let ready = {
                let mut fds = vec![
                    (over.as_fd(), Interest::Read),
                    (self.socket.as_fd(), Interest::Read),
                    (jobs.new_jobs().as_fd(), Interest::Read),
                ];
                fds.extend(guests.halves.iter().map(|half| (half.socket.as_fd(), Interest::Read)));
                let pause = if guests.halves.is_empty() { None } else { Some(Duration::from_secs(1)) };
                match sys::event::poll(&fds, pause) {
                    Ok(ready) => ready,
                    Err(_) => return,
                }
            };
            if ready[0].any() {
                return;
            }
            let now = Instant::now();
            let (mut waiting, mut up) = (Vec::with_capacity(guests.halves.len()), Vec::new());
            for (index, mut half) in guests.halves.drain(..).enumerate() {
                let speaks = ready.get(index + 3).is_some_and(|ready| ready.any());
                match speaks.then(|| half.hear(&mut bytes)).flatten() {
                    Some(start) => up.push((half, start)),
                    None if now - half.since < PATIENCE => waiting.push(half),
                    None => {}
                }
            }
            guests.halves = waiting;
            up.into_iter().for_each(|(half, start)| arrive(&mut guests.halves, half, start, jobs, counts));
            if ready[2].any() {
                jobs.new_jobs().drain();
                self.hear_again(&mut guests, &mut bytes, jobs, counts);
            }
            if ready[1].any() {
                self.hear(&mut guests, &mut bytes, jobs, counts);
            }
        }
    }

    /// Greetings that came before their job was known.
    fn hear_again(&self, guests: &mut Guests, bytes: &mut [u8], jobs: &impl Jobs, counts: &Counts) {
        let now = Instant::now();
        for early in std::mem::take(&mut guests.early).into_iter().filter(|it| now - it.since < self.early) {
            let EarlyGreeting { greeting, length, from, to, .. } = &early;
            if !self.on_greeting(&mut guests.halves, (greeting, *length), (*from, *to), bytes, jobs, counts) {
                guests.early.push_back(early);
            }
        }
    }

    /// Takes what came to the port itself: first greetings, repeated ones, and whatever strangers send.
    fn hear(&self, guests: &mut Guests, bytes: &mut [u8], jobs: &impl Jobs, counts: &Counts) {
        let Guests { halves, early } = guests;
        for _ in 0..TURN {
            let come = match sys::udp::recv_burst(&self.socket, bytes) {
                Ok(come) => come,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // ICMP messages are told for connected sockets only; anything else is the kernel's trouble of a moment.
                Err(_) => return,
            };
            let (length, Some(from)) = (come.bytes, come.from) else { continue };
            let is_welcome = match greeting_of(&bytes[..length]) {
                Some(greeting) => {
                    let is = self.on_greeting(halves, (&greeting, length), (from, come.to), bytes, jobs, counts);
                    if !is {
                        if early.len() == EARLY_MAX {
                            early.pop_front();
                        }
                        let (to, since) = (come.to, Instant::now());
                        early.push_back(EarlyGreeting { greeting, length, from, to, since });
                    }
                    is
                }
                None if bytes.first() == Some(&HELLO_KIND) => {
                    let answer = jobs.hello(&bytes[..length], from);
                    answer.iter().for_each(|answer| self.answer(answer, from, come.to));
                    answer.is_some()
                }
                None => {
                    let waited_ns = come.waited_ns;
                    self.on_word(halves, &bytes[..length], (from, come.to), waited_ns, jobs, counts)
                }
            };
            counts.strangers.fetch_add(u64::from(!is_welcome), Ordering::Relaxed);
        }
    }

    /// Says these from where the other was heard.
    fn answer(&self, datagrams: &[Vec<u8>], from: SocketAddr, to: Option<IpAddr>) {
        if datagrams.is_empty() {
            return;
        }
        // Where the port has one address, it answers by itself.
        let socket = to.filter(|_| self.local.ip().is_unspecified()).and_then(|to| self.beside(from, to).ok());
        for datagram in datagrams {
            // Lost or refused, the other has the connection.
            let _ = match &socket {
                Some(socket) => socket.send(datagram).map(drop),
                None => sys::udp::send_to(&self.socket, datagram, from),
            };
        }
    }

    /// A socket of the port's number at `to`, for this peer alone.
    fn beside(&self, from: SocketAddr, to: IpAddr) -> io::Result<UdpSocket> {
        let place = match (from, to) {
            // A socket of both families speaks of IPv4 in mapped addresses.
            (SocketAddr::V6(_), IpAddr::V4(to)) => to.to_ipv6_mapped().into(),
            (_, to) => to,
        };
        let local = SocketAddr::new(place, self.local.port());
        let socket = if self.is_handed { sys::udp::bind_beside(local) } else { sys::udp::bind(local, true) }?;
        sys::udp::connect(&socket, from)?;
        Ok(UdpSocket::from(socket))
    }

    fn on_greeting(
        &self,
        halves: &mut Vec<Half>,
        (greeting, length): (&Greeting, usize),
        (from, to): (SocketAddr, Option<IpAddr>),
        bytes: &mut [u8],
        jobs: &impl Jobs,
        counts: &Counts,
    ) -> bool {
        let same = |half: &&mut Half| half.job == greeting.job && half.rail == greeting.rail && half.from == from;
        if let Some(half) = halves.iter_mut().find(same) {
            return half.welcome(greeting, length);
        }
        let crowd = halves.iter().filter(|half| half.job == greeting.job).count();
        let Some((guest, standing)) = jobs.judge(greeting) else { return false };
        let (job, rail) = (greeting.job, greeting.rail);
        let has_room = halves.len() < HALVES_MAX && crowd < HALVES_PER_JOB;
        let mut token = [0; 8];
        let (token, stays) = match standing {
            Standing::New if has_room && aws_lc_rs::rand::fill(&mut token).is_ok() => (token, true),
            Standing::New => (self.token(from, &job, rail, 0), false),
            Standing::Known(confirmed) => (self.token(from, &job, rail, confirmed), false),
        };
        // Where the port has one address, it answers by itself: what comes next comes here.
        if !stays && !self.local.ip().is_unspecified() {
            let length = u16::try_from(length).unwrap_or(u16::MAX);
            let word = SetupMessage { say: SetupKind::Welcome, rail, packet_bytes: length, token };
            let mut answer = vec![0; usize::from(length.min(PACKET_BYTES_MAX))];
            answer[..SETUP_BYTES].copy_from_slice(&word.encode(&guest.secret));
            return length <= PACKET_BYTES_MAX && sys::udp::send_to(&self.socket, &answer, from).is_ok();
        }
        // Words for the session's own peer, at its address: nobody else can be meant, so that they wait for no confirmation.
        let is_peers = stays && rail == CONTROL && from.ip().to_canonical() == guest.peer.to_canonical();
        let Some(mut half) = self.half(guest, (job, rail), token, (from, to)) else { return false };
        let welcomed = half.welcome(greeting, length);
        if is_peers && welcomed {
            let start = half.longest;
            arrive(halves, half, start, jobs, counts);
        } else if stays {
            halves.push(half);
        } else if let Some(start) = half.hear(bytes) {
            // It answered before the socket that said the welcome was closed.
            arrive(halves, half, start, jobs, counts);
        }
        welcomed
    }

    /// A word to the port itself: of a rail that was answered and not remembered, or that overtook its rail's socket.
    fn on_word(
        &self,
        halves: &mut Vec<Half>,
        bytes: &[u8],
        (from, to): (SocketAddr, Option<IpAddr>),
        waited_ns: u64,
        jobs: &impl Jobs,
        counts: &Counts,
    ) -> bool {
        let Some(head) = bytes.first_chunk::<SETUP_BYTES>() else { return false };
        let rail = u16::from_le_bytes([head[4], head[5]]);
        let token: [u8; 8] = *head[8..].first_chunk().expect("8 of 48");
        // A train may go behind the greeting, before it has an answer.
        let is_its = |half: &Half| {
            half.token == token
                || SetupMessage::decode(bytes, &half.guest.secret, rail).is_some_and(|it| packet_train::is_ahead(&it))
        };
        let known = halves.iter().position(|half| half.from == from && half.rail == rail && is_its(half));
        let at = known.or_else(|| {
            // The token first: a forged word costs one hash for each job whose name begins as it says.
            let begins = [token[0], token[1], token[2], token[3]];
            let all = jobs.find(begins, rail);
            let mut its =
                all.into_iter().filter(|(job, _, confirmed)| self.token(from, job, rail, *confirmed) == token);
            let (job, guest, _) = its.next()?;
            SetupMessage::decode(bytes, &guest.secret, rail)?;
            let half = self.half(guest, (job, rail), token, (from, to))?;
            if halves.len() >= HALVES_MAX {
                halves.remove(0);
            }
            halves.push(half);
            Some(halves.len() - 1)
        });
        let Some(at) = at else { return false };
        let half = &mut halves[at];
        let Some(word) = SetupMessage::decode(bytes, &half.guest.secret, rail) else { return false };
        // Greetings that nobody remembers told no length: what it confirms passed, since it was heard there.
        if !packet_train::is_ahead(&word) {
            half.longest = half.longest.max(word.packet_bytes.min(PACKET_BYTES_MAX));
        }
        if let Some(start) = half.on_word(word, bytes.len(), waited_ns) {
            let half = halves.remove(at);
            arrive(halves, half, start, jobs, counts);
        }
        true
    }

    /// A socket of its own, for who may have one.
    fn half(
        &self,
        guest: Guest,
        (job, rail): ([u8; 16], u16),
        token: [u8; 8],
        (from, to): (SocketAddr, Option<IpAddr>),
    ) -> Option<Half> {
        // It answers from where it was greeted: with several paths that is another address than the session's.
        let socket = self.beside(from, to.unwrap_or(guest.local.ip())).ok()?;
        let _ = sys::udp::set_joining(&socket, false);
        let _ = udp::widen(&socket);
        let tag = guest.secret.tag(rail);
        let (tally, trains_left, since) = (Tally::default(), TRAINS_MAX, Instant::now());
        Some(Half { job, rail, from, socket, guest, tag, token, longest: 0, tally, trains_left, since })
    }
}

/// A rail is confirmed: to its job. Whoever else greeted its number has a token that is no longer good.
fn arrive(halves: &mut Vec<Half>, half: Half, start: u16, jobs: &impl Jobs, counts: &Counts) {
    let (job, arrival) = half.arrive(start);
    halves.retain(|half| half.job != job || half.rail != arrival.rail);
    counts.rails.fetch_add(u64::from(jobs.deliver(&job, arrival)), Ordering::Relaxed);
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
        let word =
            SetupMessage { say: SetupKind::Welcome, rail: self.rail, packet_bytes: length_told, token: self.token };
        let mut answer = vec![0; length];
        answer[..SETUP_BYTES].copy_from_slice(&word.encode(&self.guest.secret));
        // Refused or lost, it is asked for again.
        let _ = self.socket.send(&answer);
        true
    }

    /// Something came to this rail's socket. `Some`: it is confirmed, and packets are to have this length at the start.
    fn hear(&mut self, bytes: &mut [u8]) -> Option<u16> {
        for _ in 0..TURN {
            let mut head = [0; SETUP_BYTES];
            let length = match self.socket.peek(&mut head) {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                // What an ICMP message said of an answer is told once.
                Err(_) => continue,
            };
            if !self.guest.sends && udp::is_packet(&head[..length], self.tag) {
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
            let word = SetupMessage::decode(&bytes[..length], &self.guest.secret, self.rail);
            // Who says the token is at the address that was greeted.
            let is_its = |word: &SetupMessage| word.token == self.token || packet_train::is_ahead(word);
            let Some(word) = word.filter(is_its) else { continue };
            if let Some(start) = self.on_word(word, length, come.waited_ns) {
                return Some(start);
            }
        }
        None
    }

    /// A word with its token. `Some`: it is confirmed.
    fn on_word(&mut self, word: SetupMessage, length: usize, waited_ns: u64) -> Option<u16> {
        match word.say {
            SetupKind::Confirm => {
                let ready = SetupMessage { say: SetupKind::Ready, ..word };
                let _ = self.socket.send(&ready.encode(&self.guest.secret));
                return Some(word.packet_bytes);
            }
            SetupKind::Train => self.tally.take(word.packet_bytes, length, packet_train::came(waited_ns)),
            SetupKind::TrainEnd => {
                let _ = self.socket.send(&self.tally.word(self.rail).encode(&self.guest.secret));
            }
            SetupKind::TrainAsk if self.trains_left > 0 => {
                self.trains_left -= 1;
                let size = word.packet_bytes.min(self.longest);
                let packets = packet_train::TRAIN_PACKETS;
                let _ = packet_train::send(&self.socket, &self.guest.secret, self.rail, self.token, (packets, size));
            }
            _ => {}
        }
        None
    }

    /// What its job gets.
    fn arrive(self, start: u16) -> ([u8; 16], Arrival) {
        let _ = sys::udp::set_joining(&self.socket, true);
        let most = self.guest.packet_bytes;
        let start = start.clamp(proto::flow::PACKET_BYTES_BASE, most);
        let sizes = Sizes { tag: self.tag, start, most };
        let arrival = Arrival {
            rail: self.rail,
            carrier: Carrier::Packets(sizes, None),
            socket: Ok(Socket::Fd(self.socket.into())),
        };
        (self.job, arrival)
    }
}

#[cfg(test)]
mod lossy_tests;
#[cfg(test)]
mod tests;
