//! The control connection: bytes in, replies out, in clear or by TLS.
//!
//! For: a session's thread, which waits here and nowhere else while no file moves.
//! In and out: bytes of a socket; what the session's machine says.
//! Invariants: the socket never blocks; nothing is read that the machine has no room for.
//! Absent on purpose: lines and what they mean (`proto::ftp`).

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::seal::record::record_bytes;
use proto::ftp::session::Session as Machine;
use rustls::{Connection, ProtocolVersion, ServerConfig, ServerConnection};
use sys::event::Interest;

use crate::link::Lent;

/// A client that does not read its replies for so long is gone.
const REPLY_TIME: Duration = Duration::from_secs(30);
/// What is read at once: what the machine takes beyond its room.
const READ_BYTES: usize = 4096;

/// A control connection.
#[derive(Debug)]
pub struct ControlLine {
    stream: TcpStream,
    tls: Option<Box<ServerConnection>>,
    is_closed: bool,
    /// Bytes of TLS that went out and came in.
    moved: (u64, u64),
    /// Bytes that went out before TLS.
    clear_sent: u64,
    /// What came behind the session of ours that had the connection.
    early: Vec<u8>,
    /// Sessions that had it.
    sessions: u32,
}

impl AsFd for ControlLine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl ControlLine {
    /// Over a connection that was just accepted.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(stream: TcpStream) -> io::Result<ControlLine> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let (moved, clear_sent, early, sessions) = Default::default();
        Ok(ControlLine { stream, tls: None, is_closed: false, moved, clear_sent, early, sessions })
    }

    /// What comes first of TLS: a record, or what is none.
    ///
    /// # Errors
    /// The client is gone, or takes too long.
    pub fn hello(&mut self, until: Instant) -> io::Result<Vec<u8>> {
        let (mut hello, mut room) = (Vec::new(), [0; READ_BYTES]);
        while record_bytes(&hello).is_ok_and(|bytes| bytes.is_none_or(|bytes| bytes > hello.len())) {
            match self.stream.read(&mut room) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => hello.extend_from_slice(&room[..bytes]),
                Err(error) if is_not_now(&error) => self.ready(Interest::Read, until)?,
                Err(error) => return Err(error),
            }
        }
        Ok(hello)
    }

    /// TLS from the next byte on, which `hello` begins with.
    ///
    /// # Errors
    /// Of the handshake, or that it takes too long.
    pub fn secure(&mut self, config: &Arc<ServerConfig>, mut hello: &[u8], until: Instant) -> io::Result<()> {
        let mut tls = Box::new(ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?);
        while tls.is_handshaking() || tls.wants_write() {
            let moved = if tls.wants_write() {
                tls.write_tls(&mut self.stream).inspect(|&bytes| self.moved.0 += bytes as u64)
            } else {
                let from: &mut dyn Read = if hello.is_empty() { &mut self.stream } else { &mut hello };
                tls.read_tls(from).and_then(|bytes| {
                    self.moved.1 += bytes as u64;
                    if let Err(error) = tls.process_new_packets() {
                        // The alert says why.
                        let _ = tls.write_tls(&mut self.stream);
                        return Err(io::Error::other(error));
                    }
                    if bytes == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
                })
            };
            match moved {
                Ok(_) => {}
                Err(error) if is_not_now(&error) => {
                    self.ready(if tls.wants_write() { Interest::Write } else { Interest::Read }, until)?;
                }
                Err(error) => return Err(error),
            }
        }
        self.tls = Some(tls);
        Ok(())
    }

    /// Waits until the socket can be read or written.
    fn ready(&self, interest: Interest, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        sys::event::poll(&[(self.stream.as_fd(), interest)], Some(left)).map(drop)
    }

    /// Does TLS cover it?
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Gives the machine what has come, without waiting. False: the client is gone.
    pub fn pull(&mut self, machine: &mut Machine, now_ns: u64) -> bool {
        let mut room = [0; READ_BYTES];
        while !self.is_closed && machine.has_room() {
            match self.receive(&mut room) {
                Ok(Some(0)) => self.is_closed = true,
                Ok(Some(bytes)) => machine.on_bytes(now_ns, &room[..bytes]),
                Ok(None) => {}
                Err(error) if is_not_now(&error) => break,
                Err(_) => self.is_closed = true,
            }
        }
        !self.is_closed
    }

    /// `None`: a part of a record came.
    fn receive(&mut self, room: &mut [u8]) -> io::Result<Option<usize>> {
        if !self.early.is_empty() {
            let bytes = self.early.len().min(room.len());
            room[..bytes].copy_from_slice(&self.early[..bytes]);
            self.early.drain(..bytes);
            return Ok(Some(bytes));
        }
        let Some(tls) = &mut self.tls else { return self.stream.read(room).map(Some) };
        match tls.reader().read(room) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => return read.map(Some),
        }
        let bytes = tls.read_tls(&mut self.stream)?;
        if bytes == 0 {
            return Ok(Some(0));
        }
        self.moved.1 += bytes as u64;
        tls.process_new_packets().map_err(io::Error::other)?;
        while tls.wants_write() {
            let Ok(bytes) = tls.write_tls(&mut self.stream) else { break };
            self.moved.0 += bytes as u64;
        }
        match tls.reader().read(room) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            read => read.map(Some),
        }
    }

    /// Waits until something comes, no longer than this.
    pub fn wait(&self, within: Duration) {
        if !self.early.is_empty() {
            return;
        }
        let _ = sys::event::poll(&[(self.stream.as_fd(), Interest::Read)], Some(within));
    }

    /// Says something.
    ///
    /// # Errors
    /// The client is gone, or does not read.
    pub fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        let until = Instant::now() + REPLY_TIME;
        let mut left = bytes;
        loop {
            let moved = match &mut self.tls {
                None if left.is_empty() => return Ok(()),
                None => self.stream.write(left).map(|bytes| {
                    self.clear_sent += bytes as u64;
                    left = &left[bytes..];
                }),
                Some(tls) => {
                    if !left.is_empty() {
                        let bytes = tls.writer().write(left)?;
                        left = &left[bytes..];
                    }
                    if left.is_empty() && !tls.wants_write() {
                        return Ok(());
                    }
                    tls.write_tls(&mut self.stream).map(|bytes| self.moved.0 += bytes as u64)
                }
            };
            match moved {
                Ok(()) => {}
                Err(error) if is_not_now(&error) => self.ready(Interest::Write, until)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Does what both ends export of TLS name this handshake and no other? Of TLS 1.2 it does with the extended master secret alone (RFC 7627), of which
    /// the library does not tell.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.protocol_version() == Some(ProtocolVersion::TLSv1_3))
    }

    /// Gives the connection to a session of ours. `None`: there is no TLS, or no descriptor.
    pub fn lend(&mut self) -> Option<Lent> {
        let stream = self.stream.try_clone().ok()?;
        let connection = Connection::Server(*self.tls.take()?);
        let early = std::mem::take(&mut self.early);
        Some(Lent {
            connection,
            stream,
            moved: self.moved,
            clear_sent: self.clear_sent,
            early,
            sessions: self.sessions,
        })
    }

    /// Has it back.
    pub fn take_back(&mut self, lent: Lent) {
        let Lent { connection, stream, moved, clear_sent, early, sessions } = lent;
        if let Connection::Server(tls) = connection {
            self.tls = Some(Box::new(tls));
            (self.stream, self.moved, self.clear_sent) = (stream, moved, clear_sent);
            (self.early, self.sessions) = (early, sessions);
        }
    }

    /// The last word of TLS.
    pub fn end(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = tls.write_tls(&mut self.stream);
        }
    }
}

fn is_not_now(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
