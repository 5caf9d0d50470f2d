//! Before there is a session: finding the host, connecting, and the handshake, all under one deadline.
//!
//! For: the blocking part of a link's life.
//! In and out: `host:port`, or several → connected sockets, the first to answer first; a TLS state and a socket → a finished handshake, or why not.
//! Invariants: nothing here outlasts its deadline, however slowly the peer drips (name look-up aside, which is the system's).
//! Absent on purpose: which keys are accepted (tls.rs), frames (mod.rs).

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::Connection;

use super::{LinkError, Ready, Step, timers};

/// Segments that pass wherever 1280 bytes of IPv6 do.
pub const SMALL_SEGMENT: u32 = proto::session::blackhole::SMALL_SEGMENT_BYTES;

/// For a socket that is not connected yet: with `small`, segments of `SMALL_SEGMENT` both ways.
pub fn bound_segments(fd: BorrowedFd<'_>, small: bool) -> io::Result<()> {
    if small { sys::sock::set_max_segment(fd, SMALL_SEGMENT) } else { Ok(()) }
}

/// Until when something may take.
#[derive(Clone, Copy)]
pub(super) struct Deadline {
    at: Instant,
    granted: Duration,
    /// Until when the peer must have been heard at all.
    heard_by: Option<Instant>,
}

impl Deadline {
    pub(super) fn after(granted: Duration) -> Deadline {
        Deadline { at: Instant::now() + granted, granted, heard_by: None }
    }

    /// Over sooner, unless something is heard within `patience`.
    pub(super) fn unless_heard(mut self, patience: Duration) -> Deadline {
        self.heard_by = Some(Instant::now() + patience);
        self
    }

    /// Nothing was heard in the time for that.
    pub(super) fn was_silent(&self) -> bool {
        self.heard_by.is_some_and(|at| at <= Instant::now())
    }

    /// The peer was heard.
    pub(super) fn on_heard(&mut self) {
        self.heard_by = None;
    }

    /// What is left, or `Timeout`.
    pub(super) fn left(&self, step: Step) -> Result<Duration, LinkError> {
        let at = self.heard_by.map_or(self.at, |heard_by| heard_by.min(self.at));
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(LinkError::Timeout { step, granted_ms: self.granted.as_millis() }) } else { Ok(left) }
    }

    /// Waits until the socket can be read or written.
    pub(super) fn wait(&self, fd: BorrowedFd<'_>, read: bool, write: bool, step: Step) -> Result<(), LinkError> {
        self.wait_beside(fd, (read, write), (None, None), step)
    }

    /// The same; or another one can be read, or so much time has passed.
    pub(super) fn wait_beside(
        &self,
        fd: BorrowedFd<'_>,
        (read, write): (bool, bool),
        (other, due): (Option<BorrowedFd<'_>>, Option<Duration>),
        step: Step,
    ) -> Result<(), LinkError> {
        loop {
            let left = self.left(step)?;
            let wait = Timespec::try_from(due.map_or(left, |due| due.min(left))).ok();
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, read);
            flags.set(PollFlags::OUT, write);
            let mut fds = vec![PollFd::from_borrowed_fd(fd, flags)];
            fds.extend(other.map(|other| PollFd::from_borrowed_fd(other, PollFlags::IN)));
            match poll(&mut fds, wait.as_ref()) {
                Ok(0) if due.is_some() => return Ok(()),
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(LinkError::Io { step: "wait for", source: errno.into() }),
            }
        }
    }
}

/// A connection that is not there within this time crosses a path on which round trips count (`proto::session::transport::SHORT_RTT`).
pub(super) const QUIET: Duration = proto::session::transport::SHORT_RTT;
/// An address that is silent does not hold up the next one for longer (RFC 8305 section 5).
const STAGGER: Duration = Duration::from_millis(250);
/// An address that does not answer gets another SYN after these pauses, from another port: the kernel repeats its own after 1 s and 3 s whatever the
/// path (RFC 6298, no socket option changes that), and at 10 % loss each way one connection in five is such a one. A path of 100 ms sees one SYN
/// more than it needs, one of a second three.
const SYN_PAUSES: [Duration; 3] = [Duration::from_millis(50), Duration::from_millis(100), Duration::from_millis(250)];
/// What a connection that ends with the deadline gets beyond it, to say why.
const LAST_WORD: Duration = Duration::from_millis(100);
/// One of several is given at least so long, even where the time is nearly over.
const PATIENCE_MIN: Duration = Duration::from_millis(1);

/// Who was dialled, as the user wrote it, and where.
type Place = (String, SocketAddr);
/// And what came of it.
type Dialled = (Place, io::Result<TcpStream>);

/// Connections to all addresses of a peer, in the order in which they come up.
pub(super) struct Dialling {
    waiting: VecDeque<Place>,
    /// Who was dialled last.
    newest: Option<Place>,
    /// Each connection that is being made, once.
    in_flight: Vec<SocketAddr>,
    done: (Sender<Dialled>, Receiver<Dialled>),
    small: bool,
    /// How long names were looked up.
    lookup: Duration,
    /// It goes before all others.
    ready: Option<Ready>,
    took_ready: Duration,
}

impl Dialling {
    /// Begins with a connection that is there.
    pub(super) fn with(self, ready: Option<Ready>) -> Dialling {
        let took_ready = ready.as_ref().map_or(Duration::ZERO, |ready| ready.took);
        Dialling { ready, took_ready, ..self }
    }

    /// So long the connection was waited for that was there.
    pub(super) fn took_ready(&self) -> Duration {
        self.took_ready
    }

    /// Finds the addresses of `HOST:PORT[,HOST:PORT…]`. A name that is not known is left out where another one is.
    pub(super) fn of(host_ports: &str, small: bool) -> Result<Dialling, LinkError> {
        let (mut waiting, mut unknown, begun) = (VecDeque::new(), None, Instant::now());
        for host_port in host_ports.split(',') {
            match host_port.to_socket_addrs() {
                Ok(found) => waiting.extend(found.map(|address| (host_port.to_owned(), address))),
                Err(source) => unknown = Some(LinkError::Resolve { host_port: host_port.to_owned(), source }),
            }
        }
        match unknown {
            Some(error) if waiting.is_empty() => Err(error),
            _ => Ok(Dialling {
                waiting,
                newest: None,
                in_flight: Vec::new(),
                done: channel(),
                small,
                lookup: begun.elapsed(),
                ready: None,
                took_ready: Duration::ZERO,
            }),
        }
    }

    /// How long names were looked up.
    pub(super) fn lookup(&self) -> Duration {
        self.lookup
    }

    /// Connections with small segments both ways?
    pub(super) fn is_small(&self) -> bool {
        self.small
    }

    /// May `next` still find one?
    pub(super) fn has_more(&self) -> bool {
        !self.waiting.is_empty() || !self.in_flight.is_empty()
    }

    /// The next connection that comes up, and to whom. Each address is tried when the one before it failed or was silent for `STAGGER`; the last,
    /// while it is silent, once more after each of `SYN_PAUSES`. `on_quiet` hears of one that is silent for `QUIET`, and each time that it is tried again.
    pub(super) fn next(
        &mut self,
        deadline: &Deadline,
        on_quiet: &mut dyn FnMut(SocketAddr),
    ) -> Result<(String, TcpStream), LinkError> {
        if let Some(Ready { stream, .. }) = self.ready.take() {
            let place = stream.peer_addr().map_or_else(|_| String::new(), |place| place.to_string());
            return Ok((self.waiting.front().map_or(place, |(host_port, _)| host_port.clone()), stream));
        }
        let (mut last, mut again) = (None, SYN_PAUSES.into_iter());
        while self.has_more() {
            let left = deadline.left(Step::Connect)?.max(PATIENCE_MIN);
            let next = self.waiting.pop_front();
            let is_new = next.is_some();
            if let Some(next) = next {
                self.begin(next.clone(), left);
                self.newest = Some(next);
            }
            let pause = if self.waiting.is_empty() { again.next() } else { Some(STAGGER) };
            let most = pause.unwrap_or(left + LAST_WORD).min(left + LAST_WORD);
            let done = self.done.1.recv_timeout(if is_new { most.min(QUIET) } else { most }).or_else(|silent| {
                let Some((_, newest)) = self.newest.as_ref().filter(|_| is_new) else { return Err(silent) };
                on_quiet(*newest);
                self.done.1.recv_timeout(most.saturating_sub(QUIET))
            });
            match done {
                Ok(((host_port, address), made)) => {
                    // The second of one address, whose first was taken.
                    let Some(at) = self.in_flight.iter().position(|it| *it == address) else { continue };
                    match made {
                        Ok(stream) => {
                            self.in_flight.retain(|it| *it != address);
                            return Ok((host_port, stream));
                        }
                        Err(source) => {
                            self.in_flight.swap_remove(at);
                            last = Some(LinkError::Connect { host_port, source });
                        }
                    }
                }
                Err(_) if self.waiting.is_empty() && pause.is_some() => {
                    if let Some(newest) = self.newest.clone() {
                        on_quiet(newest.1);
                        self.begin(newest, left);
                    }
                }
                Err(_) => {}
            }
        }
        let nowhere = || LinkError::Connect { host_port: String::new(), source: ErrorKind::AddrNotAvailable.into() };
        Err(last.unwrap_or_else(nowhere))
    }

    /// On a thread of its own. One that comes up when another was taken closes with the channel.
    fn begin(&mut self, place: Place, patience: Duration) {
        let (done, small, address) = (self.done.0.clone(), self.small, place.1);
        let dial = move || {
            let made = connect(place.1, patience, small);
            let _ = done.send((place, made));
        };
        if std::thread::Builder::new().name("dial".to_owned()).spawn(dial).is_ok() {
            self.in_flight.push(address);
        }
    }
}

fn connect(address: SocketAddr, patience: Duration, small: bool) -> io::Result<TcpStream> {
    sys::sock::connect_from(address, None, patience, |fd| {
        timers::set_first(fd);
        bound_segments(fd, small)
    })
}

/// Both sides' handshake over a non-blocking socket.
pub(super) fn handshake(
    connection: &mut Connection,
    stream: &TcpStream,
    deadline: &mut Deadline,
    moved: &mut (u64, u64),
) -> Result<(), LinkError> {
    while connection.is_handshaking() || connection.wants_write() {
        deadline.left(Step::Prove)?;
        let received = moved.1;
        if !step(connection, stream, moved)? {
            deadline.wait(stream.as_fd(), connection.is_handshaking(), connection.wants_write(), Step::Prove)?;
        }
        if moved.1 > received {
            deadline.on_heard();
        }
    }
    Ok(())
}

/// One write or read of it, as far as the kernel lets us; `false`: it does not now. `moved`: bytes sent and received.
pub(super) fn step(connection: &mut Connection, stream: &TcpStream, moved: &mut (u64, u64)) -> Result<bool, LinkError> {
    let io = |source| LinkError::Io { step: "set up", source };
    if connection.wants_write() {
        match connection.write_tls(&mut &*stream) {
            Ok(bytes) => {
                moved.0 += bytes as u64;
                return Ok(true);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(io(error)),
        }
    }
    if connection.is_handshaking() {
        match connection.read_tls(&mut &*stream) {
            Ok(0) => return Err(LinkError::Cut),
            Ok(bytes) => {
                moved.1 += bytes as u64;
                connection.process_new_packets().map_err(LinkError::Tls)?;
                return Ok(true);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Err(LinkError::Cut),
            Err(error) => return Err(io(error)),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// An address whose listener has no room for a connection: SYNs to it are dropped, as on a path that loses them.
    fn full() -> (TcpListener, Vec<TcpStream>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        rustix::net::listen(&listener, 1).expect("a small backlog");
        let address = listener.local_addr().expect("bound");
        let mut held = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
            held.push(stream);
        }
        (listener, held, address)
    }

    #[test]
    fn a_lost_syn_costs_a_pause_and_not_the_kernels_second() {
        let (listener, held, address) = full();
        let mut dialling = Dialling::of(&address.to_string(), false).expect("an address");
        // The first SYN is dropped; then there is room again.
        let makes_room = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            for _ in 0..held.len() {
                let _ = listener.accept();
            }
            (listener, held)
        });
        let began = Instant::now();
        dialling.next(&Deadline::after(Duration::from_secs(10)), &mut |_| ()).expect("a connection");
        let took = began.elapsed();
        assert!(took >= SYN_PAUSES[0] && took < Duration::from_millis(700), "{took:?}");
        assert!(!dialling.has_more(), "the others of this address count for nothing");
        drop(makes_room.join());
    }

    #[test]
    fn an_address_that_answers_nothing_ends_with_the_deadline() {
        let (_listener, _held, address) = full();
        let mut dialling = Dialling::of(&address.to_string(), false).expect("an address");
        let error =
            dialling.next(&Deadline::after(Duration::from_millis(600)), &mut |_| ()).expect_err("nobody answers");
        assert!(matches!(error, LinkError::Connect { .. } | LinkError::Timeout { .. }), "{error}");
    }
}
