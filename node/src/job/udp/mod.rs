//! How a datagram rail comes about: the words before its first packet, and the initiator's part of them.
//!
//! For: a socket that reaches the peer and no one else, with the packet size that the path takes, before a worker sees it.
//! In and out: a rail number and the job's secret in; a connected UDP socket and sizes out, or the reason why UDP does not get through.
//! Invariants: a word is believed only if its MAC holds; no answer is longer than what it answers; the dialler's thread is the only
//! one that waits here, and never longer than `proto::session::transport::greeting` says.
//! Absent on purpose: who may greet (serve), the acceptor's waiting (demultiplexer.rs), packets (engine).
//! Source: docs/protocol.md section 7.
//!
//! ```text
//! initiator                                   acceptor
//! greeting, 64 bytes, padded to each size  →
//!                                          ←  W, as long as what it answers: that size passes both ways
//! (auto) P: a train, then E, or A           ⇄  T: what came of it, or P: a train
//! K: the size, and W's token               →  now it knows that the address is the initiator's
//!                                          ←  R (or, if the acceptor sends, its first packet)
//! ```

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use proto::flow::PACKET_BYTES_BASE;
use proto::packet::{Head, Kind};
use proto::rate::TrainSeen;
use proto::session::Moment;
use proto::session::transport::greeting::Greetings;
use sys::event::{Event, Interest};

use crate::job::keys::JobSecret;
use crate::probe::result::Train;
use setup::wait;

pub use setup::{SETUP_BYTES, SetupKind, SetupMessage};

mod setup; // the messages before the first packet
pub mod packet_train; // a train of packets over a greeted path: rate, loss, buffer

/// Greetings are no shorter than this: what every path takes (RFC 9000 section 14.1), so that no answer amplifies.
pub const GREETING_BYTES_MIN: usize = PACKET_BYTES_BASE as usize;
/// Largest UDP payload that is tried: an Ethernet frame of 9000 bytes less the headers of IPv6 and UDP.
pub const PACKET_BYTES_MAX: u16 = 9000 - 48;
/// So often a greeting begins anew because this end's address changed while it waited.
const MOVES: u32 = 3;
/// A train says what the path carries for so long, or for four round trips.
const TRAIN_HOLDS: Duration = Duration::from_secs(1);
/// The larger greeting goes first, so that its answer comes later than that to a smaller one only by jitter: an eighth of the round trip is waited
/// for that, no less and no more than this.
const LARGER_MIN: Duration = Duration::from_millis(2);
const LARGER_MAX: Duration = Duration::from_millis(10);
/// So often `K` is said where its answer is waited for; what comes after shows in the rail itself.
const CONFIRMS: u32 = 6;
/// Between the first two of these, at least.
const CONFIRM_PAUSE: Duration = Duration::from_millis(50);
/// Bytes a rail's socket may hold each way, as far as the system grants them: 3 ms at 45 Gbit/s, a nap of the worker.
const SOCKET_BYTES: u64 = 16 << 20;

/// Who is greeted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Where it listens.
    pub addr: SocketAddr,
    /// This end's address on the way there; `None`: the system's choice.
    pub from: Option<IpAddr>,
    /// The largest UDP payload that is tried, see `packet_bytes_of`.
    pub packet_bytes: u16,
    /// A train of so many packets goes right behind the first greeting; 0: none.
    pub train: u16,
    /// There and back, as the session sees it; zero: not known. Greetings that are lost go again by it.
    pub rtt: Duration,
}

/// Whether the acceptor knows of the job that is greeted for: told by whoever talks to it, while greetings go already.
#[derive(Debug, Clone)]
pub struct Opened {
    told: Event,
    is_over: Arc<AtomicBool>,
}

impl Opened {
    /// Not yet.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn not_yet() -> io::Result<Opened> {
        Ok(Opened { told: Event::new()?, is_over: Arc::default() })
    }

    /// It knows of the job; or it never will (`over`).
    pub fn tell(&self, over: bool) {
        self.is_over.store(over, Ordering::Relaxed);
        self.told.signal();
    }
}

/// What both ends know of a rail when its words are said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// 24 bits in each packet.
    pub tag: u32,
    /// UDP payload that passed both ways.
    pub start: u16,
    /// UDP payload that this end's interface takes: the search goes no further.
    pub most: u16,
}

/// UDP payload of the largest packet that the path of this connection takes, as far as the kernel knows: the interface's, or what a router
/// said. An ordinary one where it knows nothing.
#[must_use]
pub fn packet_bytes_of(session: impl AsFd, peer: IpAddr) -> u16 {
    let headers = if peer.to_canonical().is_ipv4() { 28 } else { 48 };
    let mtu = sys::sock::tcp_info(session).map_or(0, |info| info.pmtu);
    let mtu = if mtu == 0 { 1500 } else { mtu };
    u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX).clamp(PACKET_BYTES_BASE, PACKET_BYTES_MAX)
}

/// Gives a socket its room. What the system's limits withhold of it, and what to do about that.
pub fn widen(socket: impl AsFd) -> Option<String> {
    let granted = sys::udp::size_buffers(&socket, SOCKET_BYTES, SOCKET_BYTES).ok()?;
    sys::udp::shortage(&granted, SOCKET_BYTES, SOCKET_BYTES)
}

/// A path that was greeted and answered; no data goes over it yet.
#[derive(Debug)]
pub struct Greeted {
    socket: UdpSocket,
    rail: u16,
    token: [u8; 8],
    /// What passes both ways, and at most.
    pub sizes: Sizes,
    /// There and back, at most: a greeting may have been lost.
    pub rtt: Duration,
    /// The last train, and when it was told of.
    train: Option<(Train, Instant)>,
    /// Of the packets of a train that went with the greeting.
    ahead_bytes: u16,
}

/// Greets `to.addr` for a rail; anew from this end's new address, should it change meanwhile. `opened`: the acceptor may not know of the job
/// yet, and no silence before it does says anything of the path.
///
/// # Errors
/// `TimedOut`: nothing came back; `ConnectionAborted`: there will be no job; `ConnectionRefused` and others: the system's word.
pub fn greet(to: Peer, secret: &JobSecret, rail: u16, opened: Option<&Opened>) -> io::Result<Greeted> {
    let (mut moves, mut greetings) = (0, Greetings::new(now(), to.rtt, opened.is_none()));
    loop {
        match greet_from_here(to, secret, rail, (&mut greetings, opened)) {
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable && moves < MOVES => {
                moves += 1;
                greetings = Greetings::new(now(), to.rtt, greetings.is_known());
            }
            made => return made,
        }
    }
}

fn now() -> Moment {
    Moment::from_ns(sys::clock::now_ns())
}

fn greet_from_here(
    to: Peer,
    secret: &JobSecret,
    rail: u16,
    when: (&mut Greetings, Option<&Opened>),
) -> io::Result<Greeted> {
    let Peer { addr, from, packet_bytes: most, .. } = to;
    let (fd, _) = sys::udp::open(from.map(|ip| (ip, 0).into()), addr, SOCKET_BYTES, SOCKET_BYTES)?;
    let socket = UdpSocket::from(fd);
    // Setup messages are read one by one; joining is for packets.
    let _ = sys::udp::set_joining(&socket, false);
    let ordinary = if addr.ip().to_canonical().is_ipv4() { 1472 } else { 1452 };
    let mut sizes = vec![most, ordinary.min(most), PACKET_BYTES_BASE];
    sizes.dedup();
    let (start, token, rtt) = greet_by_sizes(&socket, to, (secret, rail), &sizes, when)?;
    // What was greeted in vain is no part of the round trip.
    let rtt = if to.rtt.is_zero() { rtt } else { rtt.min(to.rtt) };
    let (sizes, ahead_bytes) = (Sizes { tag: secret.tag(rail), start, most }, train_bytes(&sizes));
    Ok(Greeted { socket, rail, token, sizes, rtt, train: None, ahead_bytes })
}

/// Bytes of the packets of a train that goes before it is known what passes: an ordinary Ethernet's, where the interface takes them.
fn train_bytes(sizes: &[u16]) -> u16 {
    sizes[sizes.len().saturating_sub(2)]
}

impl Greeted {
    /// What came of the train of so many packets that went with the greeting. `None`: nothing is known of it.
    pub fn ahead(&mut self, secret: &JobSecret, packets: u16) -> Option<Train> {
        let Greeted { rail, token, rtt, ahead_bytes: packet_bytes, .. } = *self;
        let path = packet_train::Greeted { secret, rail, token, packet_bytes, rtt };
        let train = path.ahead(&self.socket, packets);
        self.remember(train)
    }

    fn remember(&mut self, train: Option<Train>) -> Option<Train> {
        self.train = train.map(|train| (train, Instant::now()));
        train
    }

    /// A train the way that data will go: `sends`, from here to there, then of so many packets.
    pub fn measure(&mut self, secret: &JobSecret, sends: bool, packets: u16) -> Option<Train> {
        let Greeted { rail, token, rtt, .. } = *self;
        let path = packet_train::Greeted { secret, rail, token, packet_bytes: self.sizes.start, rtt };
        let train = path.measure(&self.socket, sends, packets);
        self.remember(train)
    }

    /// The last train, while it holds.
    #[must_use]
    pub fn train(&self) -> Option<Train> {
        let (train, told) = self.train?;
        (told.elapsed() < TRAIN_HOLDS.max(self.rtt * 4)).then_some(train)
    }

    /// What the train showed that went from here to there, if that can be built on.
    #[must_use]
    pub fn seen(&self) -> Option<TrainSeen> {
        let train = self.train()?;
        let bps = train.rate_bps().filter(|_| train.lost().1 == 0)?;
        let rtt_ns = u64::try_from(self.rtt.as_nanos()).unwrap_or(u64::MAX);
        let (rate, jitter_ns) = ((bps / 8.0) as u64, train.jitter_ns());
        Some(TrainSeen { rate, rtt_ns, jitter_ns, is_uneven: train.is_uneven(), is_even: train.is_even() })
    }

    /// Makes a rail of it. `sends`: data goes from here to there.
    ///
    /// # Errors
    /// The system's word.
    pub fn confirm(self, secret: &JobSecret, sends: bool) -> io::Result<(OwnedFd, Sizes)> {
        let Greeted { socket, rail, token, sizes, rtt, .. } = self;
        let confirm = SetupMessage { say: SetupKind::Confirm, rail, packet_bytes: sizes.start, token };
        confirm_rail(&socket, &confirm.encode(secret), secret, rail, rtt, sends)?;
        let _ = sys::udp::set_joining(&socket, true);
        Ok((socket.into(), sizes))
    }
}

/// Greets until a welcome comes: the largest size that passed both ways, the token, and the round trip. `AddrNotAvailable`: this end's
/// address is another one now.
fn greet_by_sizes(
    socket: &UdpSocket,
    to: Peer,
    (secret, rail): (&JobSecret, u16),
    sizes: &[u16],
    (greetings, opened): (&mut Greetings, Option<&Opened>),
) -> io::Result<(u16, [u8; 8], Duration)> {
    let mut greeting = vec![0; usize::from(sizes[0])];
    greeting[..64].copy_from_slice(&secret.greeting(rail));
    let mut heard = vec![0; usize::from(PACKET_BYTES_MAX)];
    let (began, mut is_first, mut train) = (now(), true, to.train);
    // The longest that was answered, and until when a longer one may be.
    let mut best: Option<(Welcomed, Moment)> = None;
    loop {
        let at = now();
        if let Some((welcomed, _)) = best.filter(|(_, until)| at >= *until) {
            return Ok(welcomed);
        }
        if best.is_none() && greetings.is_due(at) {
            let goes_first = std::mem::take(&mut is_first);
            // An answer to an address that is gone comes to nobody.
            if !goes_first && to.from.is_none() {
                let own = socket.local_addr()?.ip();
                if address_towards(to.addr).is_ok_and(|now| now != own) {
                    return Err(ErrorKind::AddrNotAvailable.into());
                }
            }
            for &size in sizes {
                // What the interface does not take is no size of this path. Any other trouble shows in the silence.
                let _ = socket.send(&greeting[..usize::from(size)]);
            }
            if train > 0 && !greetings.is_alone() {
                // What is too large for the path is a train of which nothing came.
                packet_train::send_ahead(socket, secret, rail, (train, train_bytes(sizes)));
                train = 0;
            }
        }
        if best.is_none() && greetings.is_over(at) {
            let waited = greetings.patience().as_secs();
            return Err(io::Error::new(ErrorKind::TimedOut, format!("no answer to greetings within {waited} s")));
        }
        let until = best.map_or(greetings.next(), |(_, until)| until);
        wait_for_either(socket, opened, until, greetings)?;
        while let Some(bytes) = take(socket, &mut heard)? {
            let word = SetupMessage::decode(&heard[..bytes], secret, rail);
            let Some(word) = word.filter(|word| word.say == SetupKind::Welcome) else { continue };
            let passed = word.packet_bytes.min(u16::try_from(bytes).unwrap_or(u16::MAX));
            if passed < PACKET_BYTES_BASE {
                continue;
            }
            let at = now();
            // Which of several greetings is answered is not known: the first, at worst.
            let rtt = best.map_or(at.since(began), |((_, _, rtt), _)| rtt);
            let size = best.map_or(passed, |((size, ..), _)| size.max(passed));
            let larger = if to.rtt.is_zero() { LARGER_MAX } else { (to.rtt / 8).clamp(LARGER_MIN, LARGER_MAX) };
            let until = best.map_or(at + larger, |(_, until)| until);
            if passed >= sizes[0] {
                // What is told of a train that went along is read by whoever asks for it.
                return Ok((size, word.token, rtt));
            }
            best = Some(((size, word.token, rtt), until));
        }
    }
}

/// A size that passed both ways, the acceptor's token, and the round trip.
type Welcomed = (u16, [u8; 8], Duration);

/// Waits for a word, or for what is told of the job.
fn wait_for_either(
    socket: &UdpSocket,
    opened: Option<&Opened>,
    until: Moment,
    greetings: &mut Greetings,
) -> io::Result<()> {
    let mut fds = vec![(socket.as_fd(), Interest::Read)];
    fds.extend(opened.map(|it| (it.told.as_fd(), Interest::Read)));
    let left = until.since(now());
    if !left.is_zero() {
        sys::event::poll(&fds, Some(left))?;
    }
    if let Some(opened) = opened.filter(|it| it.told.drain()) {
        if opened.is_over.load(Ordering::Relaxed) {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        greetings.on_known(now());
    }
    Ok(())
}

/// The address that this end would send from now.
fn address_towards(addr: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if addr.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(addr)?;
    Ok(socket.local_addr()?.ip())
}

/// Says `K`. Whoever sends goes on at once, its first packet says the same; a receiver repeats it until something comes.
fn confirm_rail(
    socket: &UdpSocket,
    confirm: &[u8],
    secret: &JobSecret,
    rail: u16,
    rtt: Duration,
    sends: bool,
) -> io::Result<()> {
    let mut pause = (rtt * 2).max(CONFIRM_PAUSE);
    for _ in 0..CONFIRMS {
        let _ = socket.send(confirm);
        if sends {
            return Ok(());
        }
        let until = Instant::now() + pause;
        while wait(socket, until)? {
            // Only looked at: what is a packet belongs to the rail.
            let mut head = [0; SETUP_BYTES];
            let bytes = match socket.peek(&mut head) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            };
            if is_packet(&head[..bytes], secret.tag(rail)) {
                return Ok(());
            }
            let _ = socket.recv(&mut head);
            if SetupMessage::decode(&head[..bytes], secret, rail).is_some_and(|word| word.say == SetupKind::Ready) {
                return Ok(());
            }
        }
        pause *= 2;
    }
    Ok(())
}

/// Does this begin a packet from sender to receiver on the rail with that tag?
#[must_use]
pub fn is_packet(bytes: &[u8], tag: u32) -> bool {
    let head = bytes.first_chunk().and_then(|head| Head::decode(head).ok());
    head.is_some_and(|head| head.tag == tag && head.kind != Kind::Feedback)
}

/// The next datagram; `None`: none is there.
fn take(socket: &UdpSocket, into: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match socket.recv(into) {
            Ok(bytes) => return Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
