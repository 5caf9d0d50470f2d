//! Before there is a session: finding the host, connecting, and the handshake, all under one deadline.
//!
//! For: the blocking part of a link's life.
//! In and out: `host:port` → a connected socket; a TLS state and a socket → a finished handshake, or why not.
//! Invariants: nothing here outlasts its deadline, however slowly the peer drips (name look-up aside, which is the system's).
//! Absent on purpose: which keys are accepted (tls.rs), frames (mod.rs).

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::Connection;

use super::{LinkError, Step};

/// Segments that pass wherever 1280 bytes of IPv6 do.
pub const SMALL_SEGMENT: u32 = proto::session::blackhole::SMALL_SEGMENT_BYTES;

/// For a socket that is not connected yet: with `small`, segments of `SMALL_SEGMENT` both ways.
pub fn bound_segments(fd: BorrowedFd<'_>, small: bool) -> io::Result<()> {
    if small { sys::sock::set_max_segment(fd, SMALL_SEGMENT) } else { Ok(()) }
}

/// Until when something may take.
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

    /// What is left, or `Timeout`.
    fn left(&self, step: Step) -> Result<Duration, LinkError> {
        let at = self.heard_by.map_or(self.at, |heard_by| heard_by.min(self.at));
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(LinkError::Timeout { step, granted_ms: self.granted.as_millis() }) } else { Ok(left) }
    }

    /// Waits until the socket can be read or written.
    pub(super) fn wait(&self, fd: BorrowedFd<'_>, read: bool, write: bool, step: Step) -> Result<(), LinkError> {
        loop {
            let left = Timespec::try_from(self.left(step)?).ok();
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, read);
            flags.set(PollFlags::OUT, write);
            match poll(&mut [PollFd::from_borrowed_fd(fd, flags)], left.as_ref()) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(LinkError::Io { step: "wait for", source: errno.into() }),
            }
        }
    }
}

/// The first address of the host that answers; each gets an even share of the time that is left. And how long its name was looked up.
pub(super) fn dial(host_port: &str, deadline: &Deadline, small: bool) -> Result<(TcpStream, Duration), LinkError> {
    let begun = Instant::now();
    let resolve = |source| LinkError::Resolve { host_port: host_port.to_owned(), source };
    let addresses: Vec<SocketAddr> = host_port.to_socket_addrs().map_err(resolve)?.collect();
    let lookup = begun.elapsed();
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    for (index, address) in addresses.iter().enumerate() {
        let share = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        let patience = (deadline.left(Step::Connect)? / share).max(Duration::from_millis(1));
        match sys::sock::connect_from(*address, None, patience, |fd| bound_segments(fd, small)) {
            Ok(stream) => return Ok((stream, lookup)),
            Err(error) => last = error,
        }
    }
    Err(LinkError::Connect { host_port: host_port.to_owned(), source: last })
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
            deadline.heard_by = None;
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
