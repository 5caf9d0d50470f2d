//! Before there is a session: finding the host, connecting, and the handshake, all under one deadline.
//!
//! For: the blocking part of a link's life.
//! In and out: `host:port`, or several → connected sockets, the first to answer first; a TLS state and a socket → a finished handshake, or why not.
//! Invariants: nothing here outlasts its deadline, however slowly the peer drips (name look-up aside, which is the system's).
//! Absent on purpose: which keys are accepted (tls.rs), frames (mod.rs).

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
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
/// more than it needs, one of a second three. Where datagrams have shown the round trip, `Tries` knows better.
const SYN_PAUSES: [Duration; 3] = [Duration::from_millis(50), Duration::from_millis(100), Duration::from_millis(250)];
/// Once the round trip is known: so many more, the first after one and a quarter, each of the others after twice as long. What answered need not have
/// been the host (a router's ICMP message comes sooner), so that these last for half a second at least.
const TRIES_MAX: u32 = 9;
/// What goes beside the connection goes a second time so soon, and another SYN with it, unless one was answered by then: a loss of either would cost
/// a round trip or more, and a path on which that is little has answered.
const SECOND: Duration = Duration::from_millis(4);
/// Packets of one path come so far apart, at least, without one of them being lost: the kernel answers a SYN at once, and a thread of the other end
/// answers datagrams that were sent `QUIET` later.
const LATE: Duration = Duration::from_millis(1);
/// One of several is given at least so long, even where the time is nearly over.
const PATIENCE_MIN: Duration = Duration::from_millis(1);

/// Who was dialled, as the user wrote it, and where.
type Place = (String, SocketAddr);
/// Hears of an address that is silent, once more each time that it is tried again; gives the socket on which it may answer before the connection does.
pub(super) type OnQuiet<'a> = &'a mut dyn FnMut(SocketAddr) -> Option<UdpSocket>;

/// When the address that was dialled last is dialled again, and when datagrams go beside that.
struct Tries {
    said: usize,
    next_say: Option<Instant>,
    tried: u32,
    next_try: Option<Instant>,
    /// Where an answer to datagrams comes, and since when they are on their way.
    asked: Option<(UdpSocket, Instant)>,
    /// What that answer took.
    rtt: Option<Duration>,
}

impl Tries {
    fn begin(now: Instant, is_last: bool) -> Tries {
        let next_try = now + if is_last { SYN_PAUSES[0] } else { STAGGER };
        Tries { said: 0, next_say: Some(now + QUIET), tried: 0, next_try: Some(next_try), asked: None, rtt: None }
    }

    /// Datagrams go now.
    fn say(&mut self, now: Instant, to: SocketAddr, on_quiet: OnQuiet<'_>) {
        let answers = on_quiet(to);
        self.said += 1;
        self.next_say = (self.said == 1 && answers.is_some()).then_some(now + SECOND);
        if self.rtt.is_none() && self.asked.is_none() {
            self.asked = answers.map(|socket| (socket, now));
        }
    }

    /// They were answered: whoever is there would have taken the connection by now, had neither its packet nor the answer to that been lost.
    fn on_answer(&mut self, now: Instant) {
        if let Some((_, since)) = self.asked.take() {
            let rtt = now.duration_since(since);
            (self.rtt, self.next_say) = (Some(rtt), None);
            let then = now + rtt / 8 + LATE;
            self.next_try = Some(self.next_try.map_or(then, |next| next.min(then)));
        }
    }

    /// It is dialled again now.
    fn again(&mut self, now: Instant) {
        self.tried += 1;
        self.next_try = match self.rtt {
            Some(rtt) => (self.tried < TRIES_MAX).then(|| now + (rtt * 5 / 4 + LATE) * 2_u32.pow(self.tried - 1)),
            None => SYN_PAUSES.get(self.tried as usize).map(|pause| now + *pause),
        };
    }

    fn next(&self) -> Option<Instant> {
        self.next_say.into_iter().chain(self.next_try).min()
    }
}

/// Connections to all addresses of a peer, in the order in which they come up.
pub(super) struct Dialling {
    waiting: VecDeque<Place>,
    /// Who was dialled last.
    newest: Option<Place>,
    /// Each connection that is being made; of one address there may be several.
    in_flight: Vec<(Place, TcpStream)>,
    tries: Tries,
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
                tries: Tries::begin(begun, true),
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

    /// The next connection that comes up, non-blocking, and to whom. Each address is tried when the one before it failed or was silent for `STAGGER`;
    /// the last, while it is silent, once more by `Tries`.
    pub(super) fn next(
        &mut self,
        deadline: &Deadline,
        on_quiet: OnQuiet<'_>,
    ) -> Result<(String, TcpStream), LinkError> {
        if let Some(Ready { stream, .. }) = self.ready.take() {
            let place = stream.peer_addr().map_or_else(|_| String::new(), |place| place.to_string());
            return Ok((self.waiting.front().map_or(place, |(host_port, _)| host_port.clone()), stream));
        }
        let mut last = None;
        while self.has_more() {
            let left = match deadline.left(Step::Connect) {
                Ok(left) => left.max(PATIENCE_MIN),
                Err(timeout) => return Err(last.unwrap_or_else(|| self.silent().unwrap_or(timeout))),
            };
            let now = Instant::now();
            let is_next = self.in_flight.is_empty() || self.tries.next_try.is_some_and(|at| at <= now);
            if is_next && let Some(next) = self.waiting.pop_front() {
                self.tries = Tries::begin(now, self.waiting.is_empty());
                self.newest = Some(next.clone());
                self.begin(next, &mut last);
            } else if is_next && let Some(newest) = self.newest.clone() {
                self.tries.again(now);
                self.tries.say(now, newest.1, on_quiet);
                self.begin(newest, &mut last);
            } else if let (true, Some(newest)) = (self.tries.next_say.is_some_and(|at| at <= now), self.newest.clone())
            {
                self.tries.say(now, newest.1, on_quiet);
                if self.tries.said > 1 {
                    self.begin(newest, &mut last);
                }
            }
            let until = self.tries.next().map_or(left, |at| left.min(at.saturating_duration_since(Instant::now())));
            if let Some(connected) = self.wait(until, &mut last)? {
                return Ok(connected);
            }
        }
        let nowhere = || LinkError::Connect { host_port: String::new(), source: ErrorKind::AddrNotAvailable.into() };
        Err(last.unwrap_or_else(nowhere))
    }

    /// Why there is none when the time is over.
    fn silent(&self) -> Option<LinkError> {
        let (host_port, _) = self.newest.clone()?;
        Some(LinkError::Connect { host_port, source: ErrorKind::TimedOut.into() })
    }

    /// Waits until one comes up or fails, datagrams are answered, or so long.
    fn wait(
        &mut self,
        until: Duration,
        last: &mut Option<LinkError>,
    ) -> Result<Option<(String, TcpStream)>, LinkError> {
        let wait = Timespec::try_from(until).ok();
        let mut fds: Vec<PollFd<'_>> =
            self.in_flight.iter().map(|(_, stream)| PollFd::new(stream, PollFlags::OUT)).collect();
        fds.extend(self.tries.asked.as_ref().map(|(socket, _)| PollFd::new(socket, PollFlags::IN)));
        match poll(&mut fds, wait.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(LinkError::Io { step: "wait for", source: errno.into() }),
        }
        let is_ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if is_ready.get(self.in_flight.len()) == Some(&true) {
            self.tries.on_answer(Instant::now());
        }
        let Some(at) = is_ready.iter().take(self.in_flight.len()).position(|ready| *ready) else { return Ok(None) };
        let ((host_port, address), stream) = self.in_flight.swap_remove(at);
        match sys::sock::connected(&stream) {
            Ok(()) => {
                // Others of one address, whose first is taken.
                self.in_flight.retain(|((_, it), _)| *it != address);
                Ok(Some((host_port, stream)))
            }
            Err(source) => {
                *last = Some(LinkError::Connect { host_port, source });
                Ok(None)
            }
        }
    }

    fn begin(&mut self, place: Place, last: &mut Option<LinkError>) {
        let begun = sys::sock::connect_begin(place.1, |fd| {
            timers::set_first(fd);
            bound_segments(fd, self.small)
        });
        match begun {
            Ok(stream) => self.in_flight.push((place, stream)),
            Err(source) => *last = Some(LinkError::Connect { host_port: place.0, source }),
        }
    }
}

/// Both sides' handshake over a non-blocking socket. The initiator's last words of it wait for the first of the session (`hold_back`).
pub(super) fn handshake(
    connection: &mut Connection,
    stream: &TcpStream,
    deadline: &mut Deadline,
    moved: &mut (u64, u64),
) -> Result<(), LinkError> {
    while connection.is_handshaking() || connection.wants_write() {
        deadline.left(Step::Prove)?;
        if !connection.is_handshaking() && matches!(connection, Connection::Client(_)) {
            hold_back(stream);
        }
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

/// An initiator proves itself and goes on speaking at once: both go as one segment, of which one can be lost, and for which the other end wakes once.
/// `Link::flush` lets go of it; the kernel does by itself after 200 ms.
pub(super) fn hold_back(stream: &TcpStream) {
    let _ = sys::sock::set_corked(stream, true);
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
        dialling.next(&Deadline::after(Duration::from_secs(10)), &mut |_| None).expect("a connection");
        let took = began.elapsed();
        assert!(took >= SYN_PAUSES[0] && took < Duration::from_millis(700), "{took:?}");
        assert!(!dialling.has_more(), "the others of this address count for nothing");
        drop(makes_room.join());
    }

    #[test]
    fn a_path_whose_datagrams_are_answered_is_dialled_again_by_its_round_trip() {
        let (listener, held, address) = full();
        let mut dialling = Dialling::of(&address.to_string(), false).expect("an address");
        let makes_room = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(12));
            for _ in 0..held.len() {
                let _ = listener.accept();
            }
            (listener, held)
        });
        let answers = UdpSocket::bind("127.0.0.1:0").expect("a port");
        answers.connect(answers.local_addr().expect("bound")).expect("to itself");
        let (began, mut said) = (Instant::now(), 0);
        let mut on_quiet = |_| {
            said += 1;
            // It is heard as soon as it is said.
            answers.send(b"answer").expect("sent");
            Some(answers.try_clone().expect("a descriptor"))
        };
        dialling.next(&Deadline::after(Duration::from_secs(10)), &mut on_quiet).expect("a connection");
        let took = began.elapsed();
        assert!(took < SYN_PAUSES[0] && said > 2, "{took:?}, said {said} times");
        drop(makes_room.join());
    }

    #[test]
    fn an_address_that_answers_nothing_ends_with_the_deadline() {
        let (_listener, _held, address) = full();
        let mut dialling = Dialling::of(&address.to_string(), false).expect("an address");
        let error =
            dialling.next(&Deadline::after(Duration::from_millis(600)), &mut |_| None).expect_err("nobody answers");
        assert!(matches!(error, LinkError::Connect { .. } | LinkError::Timeout { .. }), "{error}");
    }
}
