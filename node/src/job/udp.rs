//! How a datagram rail comes about: the words before its first packet, and the initiator's part of them.
//!
//! For: a socket that reaches the peer and no one else, with the packet size that the path takes, before a worker sees it.
//! In and out: a rail number and the job's secret in; a connected UDP socket and sizes out, or the reason why UDP does not get through.
//! Invariants: a word is believed only if its MAC holds; no answer is longer than what it answers; the dialler's thread is the only
//! one that waits here, and never longer than the last of `RETRIES`.
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
use std::time::{Duration, Instant};

use proto::flow::PACKET_BYTES_BASE;
use proto::packet::{Head, Kind};
use proto::rate::TrainSeen;
use sys::event::Interest;

use crate::job::keys::JobSecret;
use crate::job::packet_train;
use crate::probe::result::Train;

/// Greetings are no shorter than this: what every path takes (RFC 9000 section 14.1), so that no answer amplifies.
pub const GREETING_BYTES_MIN: usize = PACKET_BYTES_BASE as usize;
/// Bytes of a word, without its padding.
pub const WORD_BYTES: usize = 48;
/// Largest UDP payload that is tried: an Ethernet frame of 9000 bytes less the headers of IPv6 and UDP.
pub const PACKET_BYTES_MAX: u16 = 9000 - 48;
/// Greetings leave at 0 and at these times; after the last one the path takes no datagrams.
const RETRIES: [Duration; 4] =
    [Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// So often a greeting begins anew because this end's address changed while it waited.
const MOVES: u32 = 3;
/// A train says what the path carries for so long, or for four round trips.
const TRAIN_HOLDS: Duration = Duration::from_secs(1);
/// The answer to a larger greeting may come so much later than that to a smaller one.
const LARGER: Duration = Duration::from_millis(10);
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

/// What a word says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Say {
    /// The greeting of this length came.
    Welcome = b'W',
    /// So long are the packets at the start.
    Confirm = b'K',
    /// The rail is up.
    Ready = b'R',
    /// One packet of a train; the size field is its index.
    Train = b'P',
    /// That was all of the train: what came of it?
    TrainEnd = b'E',
    /// So many came (the size field), over so many µs (token 0..4), up to that index (token 4..6).
    Told = b'T',
    /// A train is wanted, of packets of this size.
    TrainAsk = b'A',
}

/// A word between greeting and packets.
///
/// ```text
///  0      1          4         6              8          16         48
///  +------+----------+---------+--------------+----------+----------+---------
///  | kind | rail tag | rail no | packet bytes | token    | MAC      | padding
///  +------+----------+---------+--------------+----------+----------+---------
///  MAC: BLAKE3 keyed with the job's greeting key, over bytes 0..16
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// What it says.
    pub say: Say,
    /// Which rail.
    pub rail: u16,
    /// Length of the greeting that is answered (`W`), of packets at the start (`K`, `R`).
    pub packet_bytes: u16,
    /// Made by the acceptor for each rail; `K` shows that its sender got the `W`.
    pub token: [u8; 8],
}

impl Word {
    /// The bytes of the drawing, without padding.
    #[must_use]
    pub fn encode(&self, secret: &JobSecret) -> [u8; WORD_BYTES] {
        let mut out = [0; WORD_BYTES];
        out[0] = self.say as u8;
        out[1..4].copy_from_slice(&secret.tag(self.rail).to_le_bytes()[..3]);
        out[4..6].copy_from_slice(&self.rail.to_le_bytes());
        out[6..8].copy_from_slice(&self.packet_bytes.to_le_bytes());
        out[8..16].copy_from_slice(&self.token);
        let mac = secret.vouch(&out[..16]);
        out[16..].copy_from_slice(&mac);
        out
    }

    /// Reads a word of this rail; `None` for anything else, and for a word that nobody with the secret wrote.
    #[must_use]
    pub fn decode(bytes: &[u8], secret: &JobSecret, rail: u16) -> Option<Word> {
        let bytes: &[u8; WORD_BYTES] = bytes.first_chunk()?;
        let say = match bytes[0] {
            b'W' => Say::Welcome,
            b'K' => Say::Confirm,
            b'R' => Say::Ready,
            b'P' => Say::Train,
            b'E' => Say::TrainEnd,
            b'T' => Say::Told,
            b'A' => Say::TrainAsk,
            _ => return None,
        };
        let packet_bytes = u16::from_le_bytes([bytes[6], bytes[7]]);
        let word = Word { say, rail, packet_bytes, token: *bytes[8..].first_chunk()? };
        // Compared in constant time, as `blake3::Hash` does.
        let (mac, own) = (bytes[16..].first_chunk::<32>()?, word.encode(secret));
        let own = blake3::Hash::from_bytes(*own[16..].first_chunk()?);
        (own == blake3::Hash::from_bytes(*mac) && bytes[..6] == word.encode(secret)[..6]).then_some(word)
    }
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
}

/// Greets `to.addr` for a rail; anew from this end's new address, should it change meanwhile.
///
/// # Errors
/// `TimedOut`: nothing came back; `ConnectionRefused` and others: the system's word.
pub fn greet(to: Peer, secret: &JobSecret, rail: u16) -> io::Result<Greeted> {
    let mut moves = 0;
    loop {
        match greet_from_here(to, secret, rail) {
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable && moves < MOVES => moves += 1,
            made => return made,
        }
    }
}

fn greet_from_here(to: Peer, secret: &JobSecret, rail: u16) -> io::Result<Greeted> {
    let Peer { addr, from, packet_bytes: most } = to;
    let (fd, _) = sys::udp::open(from.map(|ip| (ip, 0).into()), addr, SOCKET_BYTES, SOCKET_BYTES)?;
    let socket = UdpSocket::from(fd);
    // Words are read one by one; joining is for packets.
    let _ = sys::udp::set_joining(&socket, false);
    let ordinary = if addr.ip().to_canonical().is_ipv4() { 1472 } else { 1452 };
    let mut sizes = vec![most, ordinary.min(most), PACKET_BYTES_BASE];
    sizes.dedup();
    let (start, token, rtt) = greet(&socket, to, secret, rail, &sizes)?;
    Ok(Greeted { socket, rail, token, sizes: Sizes { tag: secret.tag(rail), start, most }, rtt, train: None })
}

impl Greeted {
    /// A train the way that data will go: `sends`, from here to there, then of so many packets.
    pub fn measure(&mut self, secret: &JobSecret, sends: bool, packets: u16) -> Option<Train> {
        let Greeted { rail, token, rtt, .. } = *self;
        let path = packet_train::Greeted { secret, rail, token, packet_bytes: self.sizes.start, rtt };
        let train = path.measure(&self.socket, sends, packets);
        self.train = train.map(|train| (train, Instant::now()));
        train
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
        Some(TrainSeen { rate: (bps / 8.0) as u64, rtt_ns })
    }

    /// Makes a rail of it. `sends`: data goes from here to there.
    ///
    /// # Errors
    /// The system's word.
    pub fn confirm(self, secret: &JobSecret, sends: bool) -> io::Result<(OwnedFd, Sizes)> {
        let Greeted { socket, rail, token, sizes, rtt, .. } = self;
        let confirm = Word { say: Say::Confirm, rail, packet_bytes: sizes.start, token };
        confirm_rail(&socket, &confirm.encode(secret), secret, rail, rtt, sends)?;
        let _ = sys::udp::set_joining(&socket, true);
        Ok((socket.into(), sizes))
    }
}

/// Greets until a welcome comes: the largest size that passed both ways, the token, and the round trip. `AddrNotAvailable`: this end's
/// address is another one now.
fn greet(
    socket: &UdpSocket,
    to: Peer,
    secret: &JobSecret,
    rail: u16,
    sizes: &[u16],
) -> io::Result<(u16, [u8; 8], Duration)> {
    let mut greeting = vec![0; usize::from(sizes[0])];
    greeting[..64].copy_from_slice(&secret.greeting(rail));
    let mut heard = vec![0; usize::from(PACKET_BYTES_MAX)];
    let began = Instant::now();
    for (at, after) in RETRIES.into_iter().enumerate() {
        // An answer to an address that is gone comes to nobody.
        if at > 0 && to.from.is_none() {
            let own = socket.local_addr()?.ip();
            if address_towards(to.addr).is_ok_and(|now| now != own) {
                return Err(ErrorKind::AddrNotAvailable.into());
            }
        }
        for &size in sizes {
            // What the interface does not take is no size of this path. Any other trouble shows in the silence.
            let _ = socket.send(&greeting[..usize::from(size)]);
        }
        let mut until = began + after;
        let mut best: Option<(u16, [u8; 8], Duration)> = None;
        while let Some(bytes) = hear(socket, until, &mut heard)? {
            let Some(word) = Word::decode(&heard[..bytes], secret, rail).filter(|word| word.say == Say::Welcome) else {
                continue;
            };
            let passed = word.packet_bytes.min(u16::try_from(bytes).unwrap_or(u16::MAX));
            let now = Instant::now();
            // Which of several greetings is answered is not known: the first, at worst.
            let rtt = best.map_or(now - began, |(_, _, rtt)| rtt);
            best = Some((best.map_or(passed, |(size, ..)| size.max(passed)), word.token, rtt));
            until = if passed >= sizes[0] { now } else { until.min(now + LARGER) };
        }
        if let Some((size, token, rtt)) = best.filter(|(size, ..)| *size >= PACKET_BYTES_BASE) {
            return Ok((size, token, rtt));
        }
    }
    Err(io::Error::new(ErrorKind::TimedOut, "no answer to greetings within 4 s"))
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
            let mut head = [0; WORD_BYTES];
            let bytes = match socket.peek(&mut head) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            };
            if is_packet(&head[..bytes], secret.tag(rail)) {
                return Ok(());
            }
            let _ = socket.recv(&mut head);
            if Word::decode(&head[..bytes], secret, rail).is_some_and(|word| word.say == Say::Ready) {
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

/// Waits for something to read.
pub(super) fn wait(socket: &UdpSocket, until: Instant) -> io::Result<bool> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(false);
    }
    sys::event::poll(&[(socket.as_fd(), Interest::Read)], Some(left))?;
    Ok(true)
}

/// The next datagram until then; `None`: none came.
fn hear(socket: &UdpSocket, until: Instant, into: &mut [u8]) -> io::Result<Option<usize>> {
    while wait(socket, until)? {
        match socket.recv(into) {
            Ok(bytes) => return Ok(Some(bytes)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
