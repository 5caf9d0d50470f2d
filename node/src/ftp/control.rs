//! The control connection: lines in, replies out, in clear or by TLS.
//!
//! For: a session's thread, which waits here and nowhere else while no file moves.
//! In and out: bytes of a socket; lines without their end, with Telnet's words taken out (RFC 959 section 5.3, RFC 854).
//! Invariants: the socket never blocks; a line is at most `LINE_BYTES_MAX`, what waits to be a line at most `WAITING_BYTES_MAX`.
//! Absent on purpose: what lines mean (`session`).

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection};
use sys::event::Interest;

/// A line has no more bytes.
pub const LINE_BYTES_MAX: usize = 4096;
/// Commands ahead of their turn: 64 of usual length.
const WAITING_BYTES_MAX: usize = 16 << 10;
/// A client that does not read its replies for so long is gone.
const REPLY_TIME: Duration = Duration::from_secs(30);
/// Telnet: interpret as command, and those with an operand (RFC 854).
const IAC: u8 = 255;
const WILL: u8 = 251;
const WORD_MIN: u8 = 240;

/// What was waited for.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A line.
    Of(Vec<u8>),
    /// One that is too long; it was thrown away.
    TooLong,
    /// The client is gone.
    Closed,
    /// Nothing came in time.
    Late,
}

/// A control connection and what of it waits to be a line.
#[derive(Debug)]
pub struct ControlLine {
    stream: TcpStream,
    tls: Option<Box<ServerConnection>>,
    waiting: Vec<u8>,
    skips: bool,
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
        Ok(ControlLine { stream, tls: None, waiting: Vec::new(), skips: false, is_closed: false })
    }

    /// TLS from the next byte on; what came before it is thrown away (RFC 7457 section 2.2: nothing said in clear is believed after it).
    ///
    /// # Errors
    /// Of the handshake, or that it takes too long.
    pub fn secure(&mut self, config: &Arc<ServerConfig>, within: Duration) -> io::Result<()> {
        self.waiting.clear();
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

    /// Is there no room for more commands ahead of their turn?
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_BYTES_MAX
    }

    /// Takes what has come, without waiting. False: the client is gone.
    pub fn pull(&mut self) -> bool {
        while !self.is_closed && !self.is_full() {
            match self.receive() {
                Ok(0) => self.is_closed = true,
                Ok(_) => {}
                Err(error) if is_not_now(&error) => break,
                Err(_) => self.is_closed = true,
            }
        }
        !self.is_closed
    }

    fn receive(&mut self) -> io::Result<usize> {
        let mut room = [0; 4096];
        let bytes = match &mut self.tls {
            None => self.stream.read(&mut room)?,
            Some(tls) => match tls.reader().read(&mut room) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if tls.read_tls(&mut self.stream)? == 0 {
                        return Ok(0);
                    }
                    tls.process_new_packets().map_err(io::Error::other)?;
                    while tls.wants_write() && tls.write_tls(&mut self.stream).is_ok() {}
                    // Whole records may have come, or a part of one: the next turn sees.
                    match tls.reader().read(&mut room) {
                        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(1),
                        read => read?,
                    }
                }
                read => read?,
            },
        };
        self.waiting.extend_from_slice(&room[..bytes]);
        Ok(bytes)
    }

    /// Has a whole line come that is this word alone? It is taken; lines before it stay. For ABOR while a file moves.
    pub fn take_abort(&mut self) -> bool {
        let mut at = 0;
        while let Some(len) = self.waiting[at..].iter().position(|&byte| byte == b'\n') {
            if plain(&self.waiting[at..at + len]).eq_ignore_ascii_case(b"ABOR") {
                self.waiting.drain(at..=at + len);
                return true;
            }
            at += len + 1;
        }
        false
    }

    /// The next line.
    pub fn next(&mut self, within: Duration) -> Line {
        let until = Instant::now() + within;
        loop {
            if let Some(len) = self.waiting.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.waiting.drain(..=len).collect();
                if std::mem::take(&mut self.skips) || len > LINE_BYTES_MAX {
                    return Line::TooLong;
                }
                return Line::Of(plain(&line[..len]));
            }
            if self.waiting.len() > LINE_BYTES_MAX {
                self.waiting.clear();
                self.skips = true;
            }
            if !self.pull() && !self.waiting.contains(&b'\n') {
                return Line::Closed;
            }
            if self.waiting.contains(&b'\n') || self.waiting.len() > LINE_BYTES_MAX {
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Line::Late;
            }
            let _ = sys::event::poll(&[(self.stream.as_fd(), Interest::Read)], Some(left));
        }
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

/// A line without its end and without the words of Telnet before it. A doubled IAC is one byte 0xFF; alone it is itself, in the name of a client that does
/// not double it.
fn plain(line: &[u8]) -> Vec<u8> {
    let mut line = line.strip_suffix(b"\r").unwrap_or(line);
    while let [IAC, word, rest @ ..] = line {
        line = match *word {
            WILL..=254 => rest.get(1..).unwrap_or_default(), // an option: what it is of follows
            WORD_MIN..WILL => rest,
            // Its urgent byte went another way.
            _ => &line[1..],
        };
    }
    let mut out = Vec::with_capacity(line.len());
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte == IAC {
            bytes.next_if_eq(&IAC);
        }
        out.push(byte);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn telnet_is_taken_out_of_lines_and_names_keep_their_bytes() {
        for (line, wanted) in [
            (&b"RETR a\r"[..], &b"RETR a"[..]),
            (b"\xff\xf4\xff\xf2ABOR\r", b"ABOR"),
            (b"STOR \xff\xff\r", b"STOR \xff"),
            (b"STOR a\xff\r", b"STOR a\xff"),
            (b"STOR \xffb", b"STOR \xffb"),
            (b"STOR \xff\xfe", b"STOR \xff\xfe"),
            (b"\xff\xf4\xffABOR\r", b"ABOR"),
            (b"\xff", b"\xff"),
            (b"\xff\xfb\x01NOOP", b"NOOP"),
        ] {
            assert_eq!(plain(line), wanted);
        }
    }
}
