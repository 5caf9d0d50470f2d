//! The control session: whole frames, both ways, between two ends that proved their keys.
//!
//! For: everything that two ends of a job say to each other that is not payload.
//! In and out: frames ↔ a TCP connection under TLS 1.3, or a socket pair within one process.
//! Invariants: never blocks after the handshake but where the name or a timeout says so; holds at most one turn of what
//!   came (`TURN_BYTES_MAX`) and one incomplete frame; an end without a farewell is `Cut`, never `Closed`.
//! Absent on purpose: what frames mean (proto), when to reconnect, bounding what the caller queues (`backlog` tells it).
//!
//! ```text
//! stream (inside TLS)   0        4
//!                       +--------+------------------+
//!                       | bytes  | frame            |   bytes: u32 LE, 1 ..= FRAME_BYTES_MAX
//!                       +--------+------------------+
//! farewell: TLS close_notify; on a pair, where there is no TLS, and over a connection that is given back, bytes = 0xffff_ffff
//! ```

pub mod reachable; // where others reach this host
pub mod connect_retry; // again, where a daemon is overloaded or just being started
mod error; // one error per cause
mod retransmit; // what may have to be sent once more
mod datagrams; // the same bytes in datagrams, beside the connection
pub mod timers; // the kernel's timers on a path that loses
pub mod congestion; // TCP's congestion control, from the first packet on
mod connecting; // to whoever proves the key that is expected
mod handshake; // connecting and the handshake, under one deadline
mod hello; // its first flight in datagrams, while there is no connection yet
mod tls; // who proves what to whom
mod lent; // over the TLS of FTP

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use proto::FRAME_BYTES_MAX;
use proto::error::Breach;
use rustls::Connection;

use connecting::SILENT;
pub use connecting::{Beside, Connected, Expect, Ready, Start};
use datagrams::Datagrams;
pub use datagrams::{DatagramKeys, SessionGreeting};
use handshake::{Deadline, handshake, step};
pub use handshake::{SMALL_SEGMENT, bound_segments};
pub use hello::Hellos;
use hello::{Asked, Claimed, Repeat, Rest, RestAhead, Shaken};
pub use lent::Lent;
use lent::Loan;
use retransmit::RetransmitBuffer;

pub use error::{LinkError, Step, failure_of};

use crate::identity::{Identity, PublicKey};

/// Where the sessions of a job come from, if not from a Longhaul's own port.
pub trait Sessions: fmt::Debug {
    /// The next one. `beside` hears where its rails are before anything is said.
    ///
    /// # Errors
    /// No connection, no login, no key.
    fn session(&self, id: &Identity, beside: &mut dyn FnMut(Connected)) -> Result<Link, text::exit::Failure>;

    /// One ended well: its connection is again what it was.
    fn take_back(&self, link: Link);
}

/// Read at most so many bytes per turn: four whole frames, then it is the caller's turn again.
const TURN_BYTES_MAX: usize = 4 * (FRAME_BYTES_MAX + LENGTH_BYTES);
/// One read; a TLS record is at most 16 KiB and a little (RFC 8446 section 5.2).
const READ_BYTES: usize = 32 << 10;
/// Sealed ahead of the kernel at most so much.
const WIRE_BYTES: usize = 64 << 10;
/// A buffer with nothing in it keeps at most so much: a daemon has hundreds of idle sessions.
const IDLE_BYTES: usize = 16 << 10;
/// Frames that `drain` takes at most, about: as many as a few turns bring.
const READY_MAX: usize = 256;
/// Bytes of a frame's length.
const LENGTH_BYTES: usize = 4;
/// The farewell of a pair, and where the connection is given back.
const FAREWELL: [u8; LENGTH_BYTES] = [0xff; LENGTH_BYTES];

/// What a turn found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It goes on.
    Open,
    /// The peer said farewell; the frames handed out with this are its last.
    Closed,
}

enum Carrier {
    /// The peer's address is remembered: a socket forgets it when its connection ends, and the end of a job is told after that.
    Tls {
        connection: Box<Connection>,
        stream: TcpStream,
        peer: SocketAddr,
    },
    Pair {
        stream: UnixStream,
        secret: [u8; 32],
    },
}

/// The accepting side's handshake, as far as it has come: for a listener that gives nobody a thread before it has proved its key.
pub struct Accepting {
    connection: Connection,
    stream: TcpStream,
    peer: SocketAddr,
    moved: (u64, u64),
    /// Said in datagrams before, and not yet over the connection.
    said: Vec<u8>,
    /// What datagrams bring of what the initiator says to that; and how much of it the connection has brought.
    rest: Option<(Rest, usize)>,
    /// The greeting, where the connection is still to bring that too.
    hello: Vec<u8>,
    /// Once they have: what the connection is still to bring.
    repeat: Option<Repeat>,
}

impl fmt::Debug for Accepting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Accepting").field("peer", &self.peer).field("moved", &self.moved).finish_non_exhaustive()
    }
}

impl Accepting {
    /// Answers the TLS greeting `hello`, which is whole, of a non-blocking stream; as it was answered in datagrams, if it was.
    ///
    /// # Errors
    /// TLS, or the kernel's.
    pub fn begin(
        stream: TcpStream,
        mut hello: &[u8],
        (id, hellos): (&Identity, &Hellos),
    ) -> Result<Accepting, LinkError> {
        let io = |source| LinkError::Io { step: "set up the socket of", source };
        stream.set_nodelay(true).map_err(io)?;
        timers::set(&stream, timers::HANDSHAKE_QUARTERS);
        let peer = stream.peer_addr().map_err(io)?;
        let moved = (0, hello.len() as u64);
        if let Some((connection, said, rest)) = hellos.take(hello) {
            let (connection, rest, hello) = (Connection::Server(connection), Some((rest, 0)), Vec::new());
            return Ok(Accepting { connection, stream, peer, moved, said, rest, hello, repeat: None });
        }
        let mut connection = Connection::Server(tls::server(id).map_err(LinkError::Tls)?);
        while !hello.is_empty() {
            connection.read_tls(&mut hello).map_err(io)?;
        }
        if let Err(error) = connection.process_new_packets() {
            let _ = connection.write_tls(&mut &stream);
            return Err(LinkError::Tls(error));
        }
        let (said, hello) = (Vec::new(), Vec::new());
        Ok(Accepting { connection, stream, peer, moved, said, rest: None, hello, repeat: None })
    }

    /// A connection over which nothing has come, but which datagrams have told of: its greeting and proof are here. Given back: one of which nothing
    /// was told.
    ///
    /// # Errors
    /// The kernel's.
    pub fn claimed(stream: TcpStream, hellos: &Hellos) -> Result<Result<Accepting, TcpStream>, LinkError> {
        let peer = stream.peer_addr().map_err(|source| LinkError::Io { step: "set up the socket of", source })?;
        match hellos.claimed(peer) {
            Some(claimed) => Accepting::of_claimed(stream, claimed).map(Ok),
            None => Ok(Err(stream)),
        }
    }

    fn of_claimed(stream: TcpStream, claimed: Claimed) -> Result<Accepting, LinkError> {
        let io = |source| LinkError::Io { step: "set up the socket of", source };
        let Claimed { hello, connection, said, rest } = claimed;
        stream.set_nodelay(true).map_err(io)?;
        timers::set(&stream, timers::HANDSHAKE_QUARTERS);
        let peer = stream.peer_addr().map_err(io)?;
        let (connection, moved, rest) = (Connection::Server(connection), (0, hello.len() as u64), Some((rest, 0)));
        Ok(Accepting { connection, stream, peer, moved, said, rest, hello, repeat: None })
    }

    /// Goes as far as the kernel lets it. Is it done?
    ///
    /// # Errors
    /// TLS, or the kernel's.
    pub fn turn(&mut self) -> Result<bool, LinkError> {
        // Before anything that waits for the connection: it may have lost this.
        self.hear_rest()?;
        while !self.said.is_empty() {
            match (&self.stream).write(&self.said) {
                Ok(bytes) => {
                    self.said.drain(..bytes);
                    self.moved.0 += bytes as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(LinkError::Io { step: "set up", source }),
            }
        }
        loop {
            let received = self.moved.1;
            match step(&mut self.connection, &self.stream, &mut self.moved) {
                Ok(true) => {
                    if let Some((_, brought)) = &mut self.rest {
                        *brought += (self.moved.1 - received) as usize;
                    }
                }
                Ok(false) => return Ok(!self.connection.is_handshaking() && !self.connection.wants_write()),
                Err(error) => {
                    let _ = self.connection.write_tls(&mut &self.stream);
                    return Err(error);
                }
            }
        }
    }

    /// Takes what datagrams have brought of what the initiator says next. The handshake is over with it: what the connection brings after that is
    /// read as a link's.
    fn hear_rest(&mut self) -> Result<(), LinkError> {
        let whole = self.rest.as_ref().filter(|_| self.connection.is_handshaking()).and_then(|(rest, _)| rest.take());
        let Some(whole) = whole else { return Ok(()) };
        let brought = self.rest.take().map_or(0, |(_, brought)| brought);
        let Some(new) = whole.get(brought..).filter(|new| !new.is_empty()) else { return Ok(()) };
        hello::open(&mut self.connection, new)?;
        self.moved.1 += new.len() as u64;
        let all = [&self.hello, &whole[..]].concat();
        self.repeat = Some(Repeat::new(all, brought));
        Ok(())
    }

    /// For poll: for writing, too?
    #[must_use]
    pub fn wants_write(&self) -> bool {
        !self.said.is_empty() || self.connection.wants_write()
    }

    /// For poll.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// It is done.
    ///
    /// # Errors
    /// The peer speaks something else within TLS, or shows no usable key.
    pub fn finish(self) -> Result<Link, LinkError> {
        let Accepting { connection, stream, peer, moved, repeat, .. } = self;
        Link::shaken(connection, stream, peer, moved).map(|link| Link { repeat, ..link })
    }
}

/// One end of a control session. Non-blocking after the handshake.
pub struct Link {
    carrier: Carrier,
    peer_key: PublicKey,
    /// Made with small segments, because nothing came of ones of the usual size.
    small: bool,
    /// The last words of the handshake wait in the kernel for the first of the session.
    is_held_back: bool,
    /// How long the name of the other host was looked up.
    lookup: Duration,
    /// Framed, not yet sealed.
    queue: VecDeque<u8>,
    /// Sealed, not yet taken by the kernel, from `wire_at` on.
    wire: Vec<u8>,
    wire_at: usize,
    /// Opened, not yet a whole frame.
    inbox: Vec<u8>,
    /// Whole frames that came before anybody asked (with the handshake, or behind the one that `call` wanted).
    ready: VecDeque<Vec<u8>>,
    /// `close` was called.
    closing: bool,
    farewell_queued: bool,
    peer_closed: bool,
    /// The kernel takes no more; told once nothing is left to read, for the peer's last words explain it.
    broken: Option<LinkError>,
    bytes_sent: u64,
    /// In order, whichever way it came.
    bytes_received: u64,
    /// Up to there the connection brought it.
    stream_at: u64,
    /// What datagrams brought of the handshake before the connection did.
    repeat: Option<Repeat>,
    /// What is said first goes in datagrams, too.
    rest: Option<RestAhead>,
    kept: RetransmitBuffer,
    /// The connection is somebody else's.
    loan: Option<Loan>,
    datagrams: Option<Box<Datagrams>>,
    /// Lives until the peer is let in or the link is dropped; the listener counts it. The mark says which.
    guard: Option<(Box<dyn Send>, Arc<AtomicBool>)>,
}

impl fmt::Debug for Link {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Link")
            .field("peer", &self.peer_addr())
            .field("backlog", &self.backlog())
            .field("bytes_sent", &self.bytes_sent())
            .field("bytes_received", &self.bytes_received())
            .finish_non_exhaustive()
    }
}

impl Link {
    /// The accepting side's handshake, under one deadline however slowly the peer drips; the listener does the same step by step. Any peer
    /// that proves its key passes; whether it may do anything is asked afterwards with `peer_key`.
    ///
    /// # Errors
    /// No proof in time, or TLS.
    #[cfg(test)]
    pub fn accept(stream: TcpStream, id: &Identity, timeout: Duration) -> Result<Link, LinkError> {
        let connection = tls::server(id).map_err(LinkError::Tls)?;
        Link::shake(Connection::Server(connection), stream, &mut Deadline::after(timeout), None)
    }

    /// Two ends in one process; nothing is sealed, for nothing leaves the process. `peer_key` is zero on both.
    ///
    /// # Errors
    /// The kernel's, or no randomness.
    pub fn pair() -> io::Result<(Link, Link)> {
        let mut secret = [0; 32];
        aws_lc_rs::rand::fill(&mut secret).map_err(|_| io::Error::other("the system gives no randomness"))?;
        let (left, right) = UnixStream::pair()?;
        left.set_nonblocking(true)?;
        right.set_nonblocking(true)?;
        let end = |stream| Link::with(Carrier::Pair { stream, secret }, [0; 32]);
        Ok((end(left), end(right)))
    }

    fn with(carrier: Carrier, peer_key: PublicKey) -> Link {
        Link {
            carrier,
            peer_key,
            small: false,
            is_held_back: false,
            lookup: Duration::ZERO,
            queue: VecDeque::new(),
            wire: Vec::new(),
            wire_at: 0,
            inbox: Vec::new(),
            ready: VecDeque::new(),
            closing: false,
            farewell_queued: false,
            peer_closed: false,
            broken: None,
            bytes_sent: 0,
            bytes_received: 0,
            stream_at: 0,
            repeat: None,
            rest: None,
            kept: RetransmitBuffer::default(),
            loan: None,
            datagrams: None,
            guard: None,
        }
    }

    fn shake(
        mut connection: Connection,
        stream: TcpStream,
        deadline: &mut Deadline,
        asked: Option<Asked>,
    ) -> Result<Link, LinkError> {
        let io = |source| LinkError::Io { step: "set up the socket of", source };
        stream.set_nonblocking(true).map_err(io)?;
        stream.set_nodelay(true).map_err(io)?;
        timers::set(&stream, timers::HANDSHAKE_QUARTERS);
        let peer = stream.peer_addr().map_err(io)?;
        let mut moved = (0, 0);
        let shaken = match asked {
            Some(asked) => asked.handshake(&mut connection, &stream, deadline, &mut moved),
            None => handshake(&mut connection, &stream, deadline, &mut moved).map(|()| Shaken::default()),
        };
        match shaken {
            Ok(Shaken { repeat, rest }) => {
                Link::shaken(connection, stream, peer, moved).map(|link| Link { repeat, rest, ..link })
            }
            Err(error) => {
                // The alert tells the peer why; if it cannot be sent now, it is not worth waiting for.
                let _ = connection.write_tls(&mut &stream);
                Err(error)
            }
        }
    }

    /// A handshake is done.
    fn shaken(
        connection: Connection,
        stream: TcpStream,
        peer: SocketAddr,
        (sent, received): (u64, u64),
    ) -> Result<Link, LinkError> {
        if connection.alpn_protocol() != Some(tls::ALPN) {
            return Err(LinkError::NotLonghaul);
        }
        let peer_key = tls::peer_key(&connection).map_err(LinkError::Tls)?;
        let is_held_back = matches!(connection, Connection::Client(_));
        let mut link = Link::with(Carrier::Tls { connection: Box::new(connection), stream, peer }, peer_key);
        link.is_held_back = is_held_back;
        (link.bytes_sent, link.bytes_received, link.stream_at) = (sent, received, received);
        // The peer's first frames may have come with its last words of the handshake.
        link.open(&[])?;
        let mut frames = Vec::new();
        link.cut_frames(&mut frames)?;
        link.ready.extend(frames);
        Ok(link)
    }

    /// Takes one portion of what came; the frames wait. For a peer that is not let in yet and is worth no thread.
    ///
    /// # Errors
    /// `Cut`, also after a farewell; `Breach`, TLS or the kernel's.
    pub fn take_portion(&mut self) -> Result<(), LinkError> {
        let Carrier::Tls { stream, .. } = &self.carrier else { return Ok(()) };
        let mut portion = [0; READ_BYTES];
        match (&*stream).read(&mut portion) {
            Ok(0) => return Err(LinkError::Cut),
            Ok(bytes) => {
                let new = Repeat::passed(&mut self.repeat, &portion[..bytes])?;
                self.bytes_received += new.len() as u64;
                self.open(new)?;
                let mut frames = Vec::new();
                let cut = self.cut_frames(&mut frames);
                self.ready.extend(frames);
                cut?;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Err(LinkError::Cut),
            Err(source) => return Err(LinkError::Io { step: "read from", source }),
        }
        if self.peer_closed { Err(LinkError::Cut) } else { Ok(()) }
    }

    /// Whole frames that wait.
    #[must_use]
    pub fn frames_ready(&self) -> usize {
        self.ready.len()
    }

    /// The key that the peer proved; zero on a pair.
    #[must_use]
    pub fn peer_key(&self) -> PublicKey {
        self.peer_key
    }

    /// Has the connection brought what datagrams brought before it? Until then it may lead to somebody else, or carry nothing.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.repeat.is_none()
    }

    /// How long its first word is waited for: `most`, or until a connection that has not brought a byte is taken for one that brings none.
    #[must_use]
    pub fn patience(&self, most: Duration) -> Duration {
        let rtt = self.tcp().filter(|_| !self.is_confirmed()).and_then(|tcp| sys::sock::tcp_info(tcp).ok());
        rtt.map_or(most, |info| most.min(SILENT + 4 * Duration::from_micros(info.rtt_us.into())))
    }

    /// How long the other host's name was looked up before it was made from here.
    #[must_use]
    pub fn lookup(&self) -> Duration {
        self.lookup
    }

    /// Was it made only with segments of 1180 bytes?
    #[must_use]
    pub fn is_small(&self) -> bool {
        self.small
    }

    /// Where the peer is, or was; `None` on a pair.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        match &self.carrier {
            Carrier::Tls { peer, .. } => Some(*peer),
            Carrier::Pair { .. } => None,
        }
    }

    /// The address of ours that the peer sees; `None` on a pair or when the connection is gone.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.tcp()?.local_addr().ok()
    }

    fn tcp(&self) -> Option<&TcpStream> {
        match &self.carrier {
            Carrier::Tls { stream, .. } => Some(stream),
            Carrier::Pair { .. } => None,
        }
    }

    /// A secret that only the two ends of this very session know, for this label and context (RFC 8446 section 7.5).
    #[must_use]
    pub fn export(&self, label: &[u8], context: &[u8]) -> [u8; 32] {
        match &self.carrier {
            // Fails only before the handshake, and there is no Link before it.
            Carrier::Tls { connection, .. } => {
                // Of several sessions over one connection each has its own.
                let of_session = self.loan.map(|it| [&it.sessions.to_le_bytes()[..], context].concat());
                connection
                    .export_keying_material([0; 32], label, Some(of_session.as_deref().unwrap_or(context)))
                    .expect("a Link exists only after its handshake")
            }
            Carrier::Pair { secret, .. } => {
                let mut hasher = blake3::Hasher::new_keyed(secret);
                hasher.update(&(label.len() as u64).to_le_bytes()).update(label).update(context);
                *hasher.finalize().as_bytes()
            }
        }
    }

    /// Queues one frame; never blocks. What is queued is the caller's to bound, by `backlog`.
    ///
    /// # Panics
    /// On an empty frame or one above `FRAME_BYTES_MAX`, and after `close`: bugs of the caller.
    pub fn send(&mut self, frame: &[u8]) {
        assert!(!frame.is_empty() && frame.len() <= FRAME_BYTES_MAX, "a frame of {} bytes", frame.len());
        assert!(!self.closing, "a frame after the farewell");
        let bytes = u32::try_from(frame.len()).expect("checked above").to_le_bytes();
        self.queue.extend(bytes);
        self.queue.extend(frame);
    }

    /// Bytes queued and not yet taken by the kernel.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.queue.len() + self.wire.len() - self.wire_at
    }

    /// Is there anything to write? Then poll for writing too.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        let unsealed = match &self.carrier {
            Carrier::Tls { connection, .. } => connection.wants_write(),
            Carrier::Pair { .. } => false,
        };
        self.backlog() > 0 || unsealed || (self.closing && !self.farewell_queued)
    }

    /// Are frames here already? Then do a turn before polling: the socket need not become readable for them.
    /// True only after `connect`, `accept` and `call`, never after a turn.
    #[must_use]
    pub fn ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// For poll.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.carrier {
            Carrier::Tls { stream, .. } => stream.as_fd(),
            Carrier::Pair { stream, .. } => stream.as_fd(),
        }
    }

    /// Bytes given to the kernel, TLS and handshake included.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }

    /// Bytes taken from the kernel, TLS and handshake included.
    #[must_use]
    pub fn bytes_received(&self) -> u64 {
        self.bytes_received
    }

    /// Something to hold until the peer is let in (`admitted`, which sets the mark) or the link is dropped.
    pub fn hold(&mut self, guard: Box<dyn Send>, is_admitted: Arc<AtomicBool>) {
        self.guard = Some((guard, is_admitted));
    }

    /// The peer may do something here: it no longer counts as a stranger at the listener.
    pub fn admitted(&mut self) {
        if let Some((_, is_admitted)) = &self.guard {
            is_admitted.store(true, Ordering::Release);
        }
        self.guard = None;
    }

    /// The session may go on over another connection: what is sent from now on is kept until it has arrived. A pair is never cut.
    pub fn keep(&mut self) {
        if self.tcp().is_some() {
            self.kept.begin();
        }
    }

    /// The round trip beside data may be another one than before it: the connection's timers follow. Now and then.
    pub fn follow_round_trip(&self) {
        if let Some(tcp) = self.tcp() {
            timers::set(tcp, timers::JOB_QUARTERS);
        }
    }

    /// Takes what this connection still has; the frames wait for the next turn. How much of what the peer sent is here then.
    ///
    /// # Errors
    /// What came is no part of the session.
    pub fn drain(&mut self) -> Result<u64, LinkError> {
        loop {
            let (mut frames, before) = (Vec::new(), self.bytes_received);
            let came = self.take_in(&mut frames);
            self.ready.extend(frames);
            match came {
                Ok(()) | Err(LinkError::Cut | LinkError::Io { .. }) => {}
                Err(error) => return Err(error),
            }
            // A peer that never stops is not waited for: what is left it sends once more.
            if self.bytes_received == before || self.ready.len() >= READY_MAX {
                return Ok(self.bytes_received);
            }
        }
    }

    /// Goes on over another connection to the same peer, who has `theirs` of the bytes that were sent. `heard`: the peer is known to use it.
    ///
    /// # Errors
    /// `Cut`: what the peer lacks is not here any more; nothing has changed then. Or the kernel's.
    pub fn carry_on(&mut self, next: TcpStream, theirs: u64, heard: bool) -> Result<(), LinkError> {
        let io = |source| LinkError::Io { step: "set up the socket of", source };
        next.set_nonblocking(true).map_err(io)?;
        next.set_nodelay(true).map_err(io)?;
        timers::set(&next, timers::JOB_QUARTERS);
        let Carrier::Tls { stream, peer, .. } = &mut self.carrier else { return Err(LinkError::Cut) };
        let mut wire = self.kept.rest(self.bytes_sent, theirs, heard).ok_or(LinkError::Cut)?;
        wire.extend_from_slice(&self.wire[self.wire_at..]);
        // One that is dead already is found out by the next turn.
        *peer = next.peer_addr().unwrap_or(*peer);
        *stream = next;
        (self.wire, self.wire_at, self.bytes_sent, self.broken) = (wire, 0, theirs, None);
        // The peer goes on from what it was told.
        self.stream_at = self.bytes_received;
        (self.repeat, self.rest) = (None, None);
        self.loan.iter_mut().for_each(|it| it.clear_sent = 0);
        Ok(())
    }

    /// Writes what the kernel takes, reads what is there (a bounded portion), and appends whole frames to `frames`.
    /// Frames that came before an error stand in `frames` when it is returned.
    ///
    /// # Errors
    /// `Cut`, `Breach`, TLS or the kernel's; the link is of no use afterwards.
    pub fn turn(&mut self, frames: &mut Vec<Vec<u8>>) -> Result<Turn, LinkError> {
        let before = frames.len();
        frames.extend(self.ready.drain(..));
        if let Err(error) = self.flush() {
            self.broken.get_or_insert(error);
        }
        // Also where the connection is over: datagrams may have brought the peer's last words, which explain it.
        let (came, heard) = (self.take_in(frames), self.hear_datagrams(frames));
        let came = came.and(heard);
        // Opening may have queued an alert or an answer of TLS.
        if came.is_ok()
            && self.broken.is_none()
            && let Err(error) = self.flush()
        {
            self.broken = Some(error);
        }
        match came {
            Ok(()) if self.peer_closed => Ok(Turn::Closed),
            // A broken socket stays readable for poll, so the next turn comes soon.
            Ok(()) if frames.len() > before => Ok(Turn::Open),
            Ok(()) => self.broken.take().map_or(Ok(Turn::Open), Err),
            Err(LinkError::Cut) if frames.len() > before => Ok(Turn::Open),
            Err(error) => {
                let _ = self.flush();
                Err(error)
            }
        }
    }

    /// The next whole frame; waits for it up to `timeout`, writing meanwhile what is queued.
    ///
    /// # Errors
    /// As `turn`; `Timeout`; `Closed` if the peer said farewell instead.
    pub fn call(&mut self, timeout: Duration) -> Result<Vec<u8>, LinkError> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Ok(frame);
            }
            let mut frames = Vec::new();
            let turn = self.turn(&mut frames);
            self.ready.extend(frames);
            match turn {
                // Told once the frames before it are taken.
                Err(error) if self.ready() => self.broken = Some(error),
                Err(error) => return Err(error),
                Ok(_) if self.ready() => {}
                Ok(Turn::Open) => {
                    let beside = (self.datagram_fd(), self.datagrams_due());
                    deadline.wait_beside(self.as_fd(), (true, self.wants_write()), beside, Step::Wait)?;
                }
                Ok(Turn::Closed) => return Err(LinkError::Closed),
            }
        }
    }

    /// Waits until the kernel has taken all that is queued, the farewell included.
    ///
    /// # Errors
    /// `Timeout`, or the kernel's.
    pub fn flush_blocking(&mut self, timeout: Duration) -> Result<(), LinkError> {
        let deadline = Deadline::after(timeout);
        loop {
            self.flush()?;
            if !self.wants_write() {
                return Ok(());
            }
            deadline.wait(self.as_fd(), false, true, Step::Send)?;
        }
    }

    /// Reads and discards what the peer still sends until it closes its side, up to `timeout`: for whoever closed first and wants
    /// the last words to arrive. Nothing of it is opened.
    pub fn linger(&mut self, timeout: Duration) {
        // So that a peer that reads to the end goes at once.
        let _ = match &self.carrier {
            Carrier::Tls { stream, .. } => stream.shutdown(Shutdown::Write),
            Carrier::Pair { stream, .. } => stream.shutdown(Shutdown::Write),
        };
        let deadline = Deadline::after(timeout);
        let mut portion = [0; READ_BYTES];
        // The deadline is asked before each read: a peer that never stops sending does not hold this thread.
        while deadline.wait(self.as_fd(), true, false, Step::Wait).is_ok() {
            let read = match &self.carrier {
                Carrier::Tls { stream, .. } => (&*stream).read(&mut portion),
                Carrier::Pair { stream, .. } => (&*stream).read(&mut portion),
            };
            match read {
                Ok(0) => return,
                Ok(bytes) => self.bytes_received += bytes as u64,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(_) => return,
            }
        }
    }

    /// Says farewell behind all that is queued. Does not wait: turns or `flush_blocking` carry it out.
    pub fn close(&mut self) {
        self.closing = true;
        // What does not go now goes with the next turn, which also tells the error.
        if let Err(error) = self.flush() {
            self.broken.get_or_insert(error);
        }
    }

    /// Seals and writes until nothing is left or the kernel takes no more.
    fn flush(&mut self) -> Result<(), LinkError> {
        let io = |source| LinkError::Io { step: "write to", source };
        loop {
            if self.wire_at == self.wire.len() {
                self.wire.clear();
                self.wire_at = 0;
                self.seal().map_err(io)?;
                if self.wire.is_empty() {
                    if self.wire.capacity() > IDLE_BYTES {
                        self.wire = Vec::new();
                    }
                    if self.queue.capacity() > IDLE_BYTES {
                        self.queue = VecDeque::new();
                    }
                    self.let_go();
                    self.say_datagrams();
                    return Ok(());
                }
            }
            let rest = &self.wire[self.wire_at..];
            let wrote = match &self.carrier {
                Carrier::Tls { stream, .. } => (&*stream).write(rest),
                Carrier::Pair { stream, .. } => (&*stream).write(rest),
            };
            match wrote {
                Ok(bytes) => {
                    self.bytes_sent += bytes as u64;
                    if let Carrier::Tls { stream, .. } = &self.carrier {
                        // The kernel counts the connection's own first byte, too, and what was said before TLS.
                        let before = 1 + self.loan.map_or(0, |it| it.clear_sent);
                        let acked =
                            || sys::sock::tcp_info(stream).map_or(0, |info| info.bytes_acked.saturating_sub(before));
                        self.kept.push(&rest[..bytes], self.bytes_sent, acked);
                        if let Some(datagrams) = &mut self.datagrams {
                            datagrams.on_sent(self.bytes_sent - bytes as u64, &rest[..bytes]);
                        }
                        if let Some(ahead) = &mut self.rest {
                            ahead.on_sent(&rest[..bytes]);
                        }
                    }
                    self.wire_at += bytes;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.say_datagrams();
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(io(error)),
            }
        }
    }

    /// All that was said goes now, with what the handshake held back.
    fn let_go(&mut self) {
        if let (true, Carrier::Tls { stream, .. }) = (std::mem::take(&mut self.is_held_back), &self.carrier) {
            let _ = sys::sock::set_corked(stream, false);
            self.rest.take_if(|rest| !rest.say());
        }
        self.rest.take_if(|rest| !rest.say_again(Instant::now()));
    }

    /// Moves a portion of the queue, sealed, into the empty `wire`; then the farewell, if nothing else is left.
    fn seal(&mut self) -> io::Result<()> {
        match &mut self.carrier {
            Carrier::Tls { connection, .. } => {
                while self.wire.len() < WIRE_BYTES && !self.queue.is_empty() {
                    let (run, _) = self.queue.as_slices();
                    let taken = connection.writer().write(&run[..run.len().min(READ_BYTES)])?;
                    self.queue.drain(..taken);
                    connection.write_tls(&mut self.wire)?;
                }
                if self.closing && self.queue.is_empty() && !self.farewell_queued {
                    match self.loan {
                        Some(_) => connection.writer().write_all(&FAREWELL)?,
                        None => connection.send_close_notify(),
                    }
                    self.farewell_queued = true;
                }
                while connection.wants_write() {
                    connection.write_tls(&mut self.wire)?;
                }
            }
            Carrier::Pair { .. } => {
                let bytes = self.queue.len().min(WIRE_BYTES);
                self.wire.extend(self.queue.drain(..bytes));
                if self.closing && self.queue.is_empty() && !self.farewell_queued {
                    self.wire.extend(FAREWELL);
                    self.farewell_queued = true;
                }
            }
        }
        Ok(())
    }

    /// Reads a bounded portion and cuts it into frames.
    fn take_in(&mut self, frames: &mut Vec<Vec<u8>>) -> Result<(), LinkError> {
        let mut portion = [0; READ_BYTES];
        let mut taken = 0;
        // Datagrams may have brought a farewell before the connection, which brings it all the same.
        let is_behind = |link: &Link| link.loan.is_some() && link.stream_at < link.bytes_received;
        while taken < TURN_BYTES_MAX && (!self.peer_closed || is_behind(self)) {
            let read = match &self.carrier {
                Carrier::Tls { stream, .. } => (&*stream).read(&mut portion),
                Carrier::Pair { stream, .. } => (&*stream).read(&mut portion),
            };
            match read {
                Ok(0) => return Err(LinkError::Cut),
                Ok(bytes) => {
                    taken += bytes;
                    self.kept.heard();
                    self.take_stream(&portion[..bytes], frames)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                    return Err(LinkError::Cut);
                }
                Err(source) => return Err(LinkError::Io { step: "read from", source }),
            }
        }
        // A farewell in the middle of a frame is no farewell.
        let is_cut = self.peer_closed && !self.inbox.is_empty() && self.loan.is_none_or(|it| !it.is_over);
        if is_cut { Err(LinkError::Cut) } else { Ok(()) }
    }

    /// What the connection brought, but for what datagrams brought before it.
    fn take_stream(&mut self, portion: &[u8], frames: &mut Vec<Vec<u8>>) -> Result<(), LinkError> {
        let portion = Repeat::passed(&mut self.repeat, portion)?;
        let from = self.stream_at;
        self.stream_at += portion.len() as u64;
        let new = match &mut self.datagrams {
            Some(datagrams) => datagrams.on_stream(self.bytes_received, from, portion),
            None => portion.to_vec(),
        };
        self.bytes_received += new.len() as u64;
        self.open(&new)?;
        self.cut_frames(frames)
    }

    /// Sealed bytes → `inbox`.
    fn open(&mut self, mut sealed: &[u8]) -> Result<(), LinkError> {
        let Carrier::Tls { connection, .. } = &mut self.carrier else {
            self.inbox.extend_from_slice(sealed);
            return Ok(());
        };
        loop {
            if !sealed.is_empty() {
                connection.read_tls(&mut sealed).map_err(|source| LinkError::Io { step: "read from", source })?;
            }
            let state = connection.process_new_packets().map_err(LinkError::Tls)?;
            let start = self.inbox.len();
            self.inbox.resize(start + state.plaintext_bytes_to_read(), 0);
            connection
                .reader()
                .read_exact(&mut self.inbox[start..])
                .map_err(|source| LinkError::Io { step: "read from", source })?;
            let has_closed = state.peer_has_closed();
            self.peer_closed |= has_closed;
            if sealed.is_empty() || has_closed {
                return Ok(());
            }
        }
    }

    /// Whole frames at the front of `inbox` → `frames`.
    fn cut_frames(&mut self, frames: &mut Vec<Vec<u8>>) -> Result<(), LinkError> {
        if !self.take_key()? || self.loan.is_some_and(|it| it.is_over) {
            return Ok(());
        }
        let mut at = 0;
        let mut breach = None;
        while let Some((length, rest)) = self.inbox[at..].split_first_chunk::<LENGTH_BYTES>() {
            if *length == FAREWELL && matches!(self.carrier, Carrier::Pair { .. }) {
                self.peer_closed = true;
                at = self.inbox.len();
                break;
            }
            if let (true, Some(loan)) = (*length == FAREWELL, &mut self.loan) {
                // What follows is not of this session.
                (loan.is_over, self.peer_closed) = (true, true);
                at += LENGTH_BYTES;
                break;
            }
            let bytes = u32::from_le_bytes(*length) as usize;
            if bytes == 0 || bytes > FRAME_BYTES_MAX {
                breach = Some(if bytes == 0 { Breach::FrameTruncated } else { Breach::FrameTooLong });
                break;
            }
            let Some(frame) = rest.get(..bytes) else { break };
            frames.push(frame.to_vec());
            at += LENGTH_BYTES + bytes;
        }
        // Also before a breach is told, so that no frame is ever handed out twice.
        self.inbox.drain(..at);
        if self.inbox.is_empty() && self.inbox.capacity() > IDLE_BYTES {
            self.inbox = Vec::new();
        }
        breach.map_or(Ok(()), |breach| Err(breach.into()))
    }
}

#[cfg(test)]
pub(crate) mod tests;
