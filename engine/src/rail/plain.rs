//! Rails without frames: a file's bytes and nothing else, in clear or as records of TLS.
//!
//! For: data connections of other protocols (FTP), whose clients know no frames.
//! In and out: a socket that is connected, a file; how many bytes went, or why it ended before.
//! Invariants: the thread waits in `Line::wait` only, where it hears of the control connection too; no byte is sent that the bound has not let go; a
//! stream that is to be authenticated has an end only by the peer's word (`close_notify`), never by its silence.
//! Absent on purpose: the worker's loop. A client's session has a thread of its own, which is idle meanwhile; what one stream of plain bytes can
//! do at once is overlapped by a second one (`receive`). `docs/design/041-ftp-server.md`.

pub mod bufs; // the memory of all of them
pub mod range; // a stream into a range of one
pub mod receive; // a stream into a file
pub mod send; // a file, or bytes, into a stream

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use sys::event::Interest;

use crate::seal::record::{Broken, Key};
use crate::worker::bound::Bound;

/// Bytes that move between two looks at the control connection, where the network never makes us wait.
const LOOK_BYTES: u64 = 8 << 20;

/// Why a stream ended before its end.
#[derive(Debug)]
pub enum Cut {
    /// The control connection said so.
    Stopped,
    /// The other end neither took nor sent anything for so long.
    Silent,
    /// The network failed.
    Network(io::Error),
    /// The file failed.
    File(io::Error),
    /// The stream ended without the word that it is whole.
    Truncated,
    /// What came is no record of TLS.
    Broken(Broken),
}

/// What the control connection has to say to a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// Go on.
    On,
    /// Go on, and do not ask again.
    Deaf,
    /// Stop.
    Stop,
}

/// Which direction of a TLS connection, seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// What is sent.
    Sealing,
    /// What is received.
    Opening,
}

/// A TLS connection whose handshake is over. `next` gives the key that follows (RFC 8446 section 7.2); `None`: there is none.
#[derive(Debug)]
pub struct Keys<N> {
    /// Of what is sent.
    pub sealing: Key,
    /// Of what is received.
    pub opening: Key,
    /// Bytes that came behind the handshake.
    pub early: Vec<u8>,
    /// Gives the key that follows in a direction.
    pub next: N,
}

/// A data connection and what is beside it.
#[derive(Debug)]
pub struct Line<'a, H> {
    /// Non-blocking.
    pub socket: BorrowedFd<'a>,
    /// The control connection.
    pub beside: BorrowedFd<'a>,
    /// Asked when that has something.
    pub heard: H,
    /// How fast.
    pub bound: &'a Bound,
    /// For so long nothing may happen.
    pub silence: Duration,
    deaf: bool,
    since_look: u64,
}

impl<'a, H: FnMut() -> Heard> Line<'a, H> {
    /// A connection, and the control connection beside it.
    pub fn new(socket: BorrowedFd<'a>, beside: BorrowedFd<'a>, heard: H, bound: &'a Bound, silence: Duration) -> Self {
        Line { socket, beside, heard, bound, silence, deaf: false, since_look: 0 }
    }

    /// Waits until the socket can be read or written.
    fn wait(&mut self, interest: Interest) -> Result<(), Cut> {
        let until = Instant::now() + self.silence;
        loop {
            let fds = [(self.socket, interest), (self.beside, Interest::Read)];
            let fds = if self.deaf { &fds[..1] } else { &fds[..] };
            let left = until.saturating_duration_since(Instant::now());
            let ready = sys::event::poll(fds, Some(left)).map_err(Cut::Network)?;
            if ready.get(1).is_some_and(|it| it.any()) {
                self.listen()?;
            }
            if ready[0].any() {
                return Ok(());
            }
            if left.is_zero() {
                return Err(Cut::Silent);
            }
        }
    }

    fn listen(&mut self) -> Result<(), Cut> {
        match (self.heard)() {
            Heard::On => Ok(()),
            Heard::Deaf => {
                self.deaf = true;
                Ok(())
            }
            Heard::Stop => Err(Cut::Stopped),
        }
    }

    /// So many bytes moved.
    fn moved(&mut self, bytes: usize) -> Result<(), Cut> {
        self.since_look += bytes as u64;
        if self.since_look < LOOK_BYTES || self.deaf {
            return Ok(());
        }
        self.since_look = 0;
        let ready = sys::event::poll(&[(self.beside, Interest::Read)], Some(Duration::ZERO)).map_err(Cut::Network)?;
        if ready[0].any() { self.listen() } else { Ok(()) }
    }

    /// Waits for a moment of the clock, if it is not over.
    fn rest(&mut self, until_ns: u64) -> Result<(), Cut> {
        loop {
            let left = Duration::from_nanos(until_ns.saturating_sub(sys::clock::now_ns()));
            if left.is_zero() {
                return Ok(());
            }
            if self.deaf {
                std::thread::sleep(left);
            } else {
                let beside = [(self.beside, Interest::Read)];
                if sys::event::poll(&beside, Some(left)).map_err(Cut::Network)?[0].any() {
                    self.listen()?;
                }
            }
        }
    }

    /// As many of these bytes as may leave now, once they may.
    fn let_go(&mut self, bytes: u64) -> Result<u64, Cut> {
        if !self.bound.is_bound() {
            return Ok(bytes);
        }
        let slice = self.bound.slice(bytes);
        loop {
            let now_ns = sys::clock::now_ns();
            match self.bound.take(now_ns, slice) {
                Some(from_ns) => {
                    self.rest(from_ns)?;
                    return Ok(slice);
                }
                None => self.rest(now_ns + self.bound.held_ns(now_ns, slice))?,
            }
        }
    }

    /// These bytes came, and are paid for.
    fn came(&mut self, bytes: usize) -> Result<(), Cut> {
        if self.bound.is_bound() {
            let now_ns = sys::clock::now_ns();
            self.bound.pay(now_ns, bytes as u64);
            self.rest(now_ns + self.bound.owes_ns(now_ns))?;
        }
        self.moved(bytes)
    }
}

/// Is it "not now"?
fn is_not_now(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
