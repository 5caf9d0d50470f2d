//! Rails without frames: a file's bytes and nothing else, in clear or as records of TLS.
//!
//! For: data connections of other protocols (FTP), whose clients know no frames.
//! In and out: a socket that is connected, a file; how many bytes went, or why it ended before.
//! Invariants: the thread waits in `Line::wait`, where it hears of the control connection too, or in a call that moves bytes, for `LOOK_TIME` at a
//! time; no byte is sent that the bound has not let go; a stream that is to be authenticated has an end only by the peer's word (`close_notify`),
//! never by its silence.
//! Absent on purpose: the worker's loop. A client's session has a thread of its own, which is idle meanwhile; what one stream of plain bytes can
//! do at once is overlapped by a second one (`receive`). `docs/design/041-ftp-server.md`.

pub mod bufs; // the memory of all of them
pub mod gather; // blocks of several streams into a file
pub mod range; // a stream into a range of one
pub mod receive; // a stream into a file
pub mod scatter; // a file into blocks of several streams
pub mod send; // a file, or bytes, into a stream

use std::io;
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use sys::event::Interest;

use crate::seal::record::{Broken, Key};
use crate::worker::bound::Bound;

/// From one look at the control connection to the next; a call that sends waits no longer for room.
const LOOK_TIME: Duration = Duration::from_millis(50);
/// A call that receives waits no longer for more bytes: so late may a stream be whose end is a word and no end (close_notify).
const MORE_TIME: Duration = Duration::from_millis(10);
/// Bytes of a call that sends, at least: what tcp_wmem(5) gives a connection to begin with, twice.
const AT_ONCE_BYTES_MIN: usize = 64 << 10;

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
    /// What came are no blocks of MODE E.
    Blocks(proto::ftp::blocks::Broken),
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
    /// After `prepare`.
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
    next_look: Instant,
    /// A call that receives waits for so many bytes.
    least: u32,
}

/// Makes a connected socket fit for a `Line`: its calls block, but not for long. One that sends a whole send buffer and more goes on in the kernel where a
/// non-blocking one would come back full.
///
/// # Errors
/// The kernel's.
pub fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_write_timeout(Some(LOOK_TIME))?;
    socket.set_read_timeout(Some(MORE_TIME))
}

/// The same for a socket that blocks already and only receives.
///
/// # Errors
/// The kernel's.
pub fn prepare_to_receive(socket: &TcpStream) -> io::Result<()> {
    socket.set_read_timeout(Some(MORE_TIME))
}

impl<'a, H: FnMut() -> Heard> Line<'a, H> {
    /// A connection, and the control connection beside it.
    pub fn new(socket: BorrowedFd<'a>, beside: BorrowedFd<'a>, heard: H, bound: &'a Bound, silence: Duration) -> Self {
        Line { socket, beside, heard, bound, silence, deaf: false, next_look: Instant::now() + LOOK_TIME, least: 1 }
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

    /// From now on a call that receives waits for so many bytes, or `MORE_TIME`. Where the kernel does not want to, it wakes us more often, and that is all.
    fn wake_from(&mut self, bytes: u32) {
        self.least = bytes;
        let _ = sys::sock::set_receive_least(self.socket, bytes);
    }

    /// Waits until there is anything to receive: also the one byte that a slow client sends now and then is a sign of it.
    fn wait_for_bytes(&mut self) -> Result<(), Cut> {
        let least = self.least;
        if least == 1 {
            return self.wait(Interest::Read);
        }
        self.wake_from(1);
        self.wait(Interest::Read)?;
        self.wake_from(least);
        Ok(())
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

    /// Bytes moved: is it time to look at the control connection?
    fn moved(&mut self) -> Result<(), Cut> {
        let now = Instant::now();
        if self.deaf || now < self.next_look {
            return Ok(());
        }
        self.next_look = now + LOOK_TIME;
        let ready = sys::event::poll(&[(self.beside, Interest::Read)], Some(Duration::ZERO)).map_err(Cut::Network)?;
        if ready[0].any() { self.listen() } else { Ok(()) }
    }

    /// As many bytes as a call may be given to send: it comes back when they are in the send buffer, and waits `LOOK_TIME` for a third of that each time.
    fn at_once(&self) -> usize {
        sys::sock::send_buffer(self.socket)
            .map_or(AT_ONCE_BYTES_MIN, |bytes| bytes.saturating_mul(2).max(AT_ONCE_BYTES_MIN))
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
        self.moved()
    }
}

/// Is it "not now"?
fn is_not_now(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
