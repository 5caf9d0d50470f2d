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

use proto::ftp::session::Session as Machine;
use rustls::{ServerConfig, ServerConnection};
use sys::event::Interest;

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
        Ok(ControlLine { stream, tls: None, is_closed: false })
    }

    /// TLS from the next byte on.
    ///
    /// # Errors
    /// Of the handshake, or that it takes too long.
    pub fn secure(&mut self, config: &Arc<ServerConfig>, within: Duration) -> io::Result<()> {
        let mut tls = Box::new(ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?);
        let until = Instant::now() + within;
        while tls.is_handshaking() || tls.wants_write() {
            let moved = if tls.wants_write() {
                tls.write_tls(&mut self.stream)
            } else {
                tls.read_tls(&mut self.stream).and_then(|bytes| {
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
                    let interest = if tls.wants_write() { Interest::Write } else { Interest::Read };
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    sys::event::poll(&[(self.stream.as_fd(), interest)], Some(left))?;
                }
                Err(error) => return Err(error),
            }
        }
        self.tls = Some(tls);
        Ok(())
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
        let Some(tls) = &mut self.tls else { return self.stream.read(room).map(Some) };
        match tls.reader().read(room) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => return read.map(Some),
        }
        if tls.read_tls(&mut self.stream)? == 0 {
            return Ok(Some(0));
        }
        tls.process_new_packets().map_err(io::Error::other)?;
        while tls.wants_write() && tls.write_tls(&mut self.stream).is_ok() {}
        match tls.reader().read(room) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            read => read.map(Some),
        }
    }

    /// Waits until something comes, no longer than this.
    pub fn wait(&self, within: Duration) {
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
                None => self.stream.write(left).map(|bytes| left = &left[bytes..]),
                Some(tls) => {
                    if !left.is_empty() {
                        let bytes = tls.writer().write(left)?;
                        left = &left[bytes..];
                    }
                    if left.is_empty() && !tls.wants_write() {
                        return Ok(());
                    }
                    tls.write_tls(&mut self.stream).map(|_| ())
                }
            };
            match moved {
                Ok(()) => {}
                Err(error) if is_not_now(&error) => {
                    let time = until.saturating_duration_since(Instant::now());
                    if time.is_zero() {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    sys::event::poll(&[(self.stream.as_fd(), Interest::Write)], Some(time))?;
                }
                Err(error) => return Err(error),
            }
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
