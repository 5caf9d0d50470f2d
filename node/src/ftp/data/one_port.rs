//! One port for the data connections of all clients, for firewalls that let one through.
//!
//! For: `--passive-ports N`; a range has a port for each (`data::bind`).
//! In and out: sessions that wait for their client; connections → the session that each is of.
//! Invariants: a connection is given to a session of its own address alone; with TLS to the one whose TLS session it resumes; in clear one session of an address
//! waits at a time, so there is nothing to mix up; one that nobody waits for is closed.
//! Absent on purpose: the handshake (`tls`), which refuses what only looks like a resumption.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sys::event::{Event, Interest};

use crate::ftp::tls::TlsSessions;

/// A client has so long to connect, and to make the handshake.
pub const CONNECT_TIME: Duration = Duration::from_secs(10);
/// A connection that says nothing for so long is of a session in clear, whose client waits for a file; a client of TLS speaks first.
const SILENT_TIME: Duration = Duration::from_millis(200);
/// A ClientHello that is not whole is looked at again after so long.
const LOOK_TIME: Duration = Duration::from_millis(5);
/// What of it is looked at: tickets stand in its last extension (RFC 8446 section 4.2.11), and browsers' have 1.8 KiB with post-quantum keys.
const HELLO_BYTES_MAX: usize = 8 << 10;
/// Connections that are looked at, at once; the next is closed.
const LOOKED_AT_MAX: usize = 256;
/// TLS: content type 22, a handshake (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 22;

/// A session that waits.
#[derive(Debug)]
struct Waiter {
    number: u64,
    peer: IpAddr,
    /// `None`: in clear.
    sessions: Option<Arc<TlsSessions>>,
    came: Arc<Came>,
}

#[derive(Debug)]
struct Came {
    stream: Mutex<Option<TcpStream>>,
    event: Event,
}

#[derive(Debug, Default)]
struct Waiters {
    all: Vec<Waiter>,
    number: u64,
}

/// The port and who waits at it.
#[derive(Debug)]
pub struct OnePort {
    listener: TcpListener,
    waiters: Mutex<Waiters>,
    left: Condvar,
}

/// A session's place at the port, until it goes.
#[derive(Debug)]
pub struct Place {
    port: Arc<OnePort>,
    number: u64,
    came: Arc<Came>,
}

/// A connection that is looked at.
struct Looked {
    stream: TcpStream,
    peer: IpAddr,
    since: Instant,
}

/// Whose it is.
enum Whose {
    Of(u64),
    Nobody,
    LookAgain,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OnePort {
    /// Binds it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn bind(address: SocketAddr) -> io::Result<OnePort> {
        let listener = sys::sock::listen(address)?;
        listener.set_nonblocking(true)?;
        Ok(OnePort { listener, waiters: Mutex::default(), left: Condvar::new() })
    }

    /// Its number.
    ///
    /// # Errors
    /// The kernel's.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// A place for a session. In clear it waits until no other session of this address does.
    ///
    /// # Errors
    /// TimedOut: another one did for too long; the kernel's.
    pub fn wait(self: &Arc<OnePort>, peer: IpAddr, sessions: Option<Arc<TlsSessions>>) -> io::Result<Place> {
        let came = Arc::new(Came { stream: Mutex::new(None), event: Event::new()? });
        let peer = peer.to_canonical();
        let mut waiters = held(&self.waiters);
        let until = Instant::now() + CONNECT_TIME;
        while sessions.is_none() && waiters.all.iter().any(|it| it.peer == peer && it.sessions.is_none()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            waiters = self.left.wait_timeout(waiters, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        waiters.number += 1;
        let number = waiters.number;
        waiters.all.push(Waiter { number, peer, sessions, came: Arc::clone(&came) });
        drop(waiters);
        Ok(Place { port: Arc::clone(self), number, came })
    }

    /// Takes connections and gives them to whom they are of, until `stop` is signalled.
    ///
    /// # Errors
    /// The kernel's.
    pub fn run(&self, stop: &Event) -> io::Result<()> {
        let mut looked: Vec<Looked> = Vec::new();
        loop {
            let mut fds = vec![(stop.as_fd(), Interest::Read), (self.listener.as_fd(), Interest::Read)];
            fds.extend(looked.iter().map(|it| (it.stream.as_fd(), Interest::Read)));
            if sys::event::poll(&fds, (!looked.is_empty()).then_some(LOOK_TIME))?[0].any() {
                return Ok(());
            }
            while let Ok((stream, from)) = self.listener.accept() {
                let may = looked.len() < LOOKED_AT_MAX && stream.set_nonblocking(true).is_ok();
                if may {
                    looked.push(Looked { stream, peer: from.ip().to_canonical(), since: Instant::now() });
                }
            }
            let before = looked.len();
            let mut again = Vec::new();
            for it in looked.drain(..) {
                match self.whose(&it) {
                    Whose::LookAgain => again.push(it),
                    Whose::Nobody => {}
                    Whose::Of(number) => self.give(number, it.stream),
                }
            }
            looked = again;
            if looked.len() == before && before > 0 {
                // Part of a hello makes its socket readable: without this the loop would spin.
                std::thread::sleep(LOOK_TIME);
            }
        }
    }

    fn whose(&self, it: &Looked) -> Whose {
        let waiters = held(&self.waiters);
        let mine: Vec<&Waiter> = waiters.all.iter().filter(|waiter| waiter.peer == it.peer).collect();
        // A session has its place before the reply that names the port, so who connects finds it.
        let clear = mine.iter().find(|waiter| waiter.sessions.is_none());
        match (&mine[..], clear) {
            ([], _) => return Whose::Nobody,
            ([one], _) => return Whose::Of(one.number),
            _ => {}
        }
        let patience = if clear.is_some() { SILENT_TIME } else { CONNECT_TIME };
        let mut room = vec![0; HELLO_BYTES_MAX];
        let bytes = match it.stream.peek(&mut room) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && it.since.elapsed() < patience => {
                return Whose::LookAgain;
            }
            Err(_) => 0,
        };
        let hello = &room[..bytes];
        if hello.first() != Some(&HANDSHAKE) {
            return clear.map_or(Whose::Nobody, |waiter| Whose::Of(waiter.number));
        }
        let knows = |waiter: &&&Waiter| waiter.sessions.as_ref().is_some_and(|sessions| sessions.are_named_in(hello));
        match mine.iter().find(knows) {
            Some(waiter) => Whose::Of(waiter.number),
            None if it.since.elapsed() < CONNECT_TIME => Whose::LookAgain,
            None => Whose::Nobody,
        }
    }

    fn give(&self, number: u64, stream: TcpStream) {
        let mut waiters = held(&self.waiters);
        let Some(at) = waiters.all.iter().position(|it| it.number == number) else { return };
        let waiter = waiters.all.swap_remove(at);
        *held(&waiter.came.stream) = Some(stream);
        waiter.came.event.signal();
        self.left.notify_all();
    }
}

impl Place {
    /// The connection, if it came.
    #[must_use]
    pub fn take(&self) -> Option<TcpStream> {
        held(&self.came.stream).take()
    }
}

impl AsFd for Place {
    /// Readable when it came.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.came.event.as_fd()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        held(&self.port.waiters).all.retain(|it| it.number != self.number);
        self.port.left.notify_all();
    }
}
