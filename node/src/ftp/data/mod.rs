//! The data connection: which port, who may connect, TLS.
//!
//! For: transfers of a session.
//! In and out: a way that the session's machine chose → a connected socket.
//! Invariants: a port is bound between the command and the transfer only, takes one connection, and from the control connection's peer alone.
//! Absent on purpose: whom we dial (`proto::ftp`); TLS (`tls`); what moves over it (`transfer`).

pub mod one_port; // where all of them come to one port

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use engine::rail::plain::Heard;
use sys::event::Interest;

use self::one_port::{CONNECT_TIME, Place};

/// Ports tried at random before they are tried one by one.
const RANDOM_TRIES: usize = 16;

/// What the next transfer goes over.
#[derive(Debug, Default)]
pub enum Way {
    /// Nothing was said.
    #[default]
    None,
    /// The client connects.
    Passive(TcpListener),
    /// The client connects to the port of all.
    Shared(Place),
    /// We do.
    Active(SocketAddr),
}

/// Ports for passive connections: both ends of the range included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

impl std::str::FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Range, String> {
        let bad = || format!("'{text}' is no range of ports and no port: 50000-50100, 50000");
        let (first, last) = text.split_once('-').ok_or_else(bad)?;
        let range = Range { first: first.parse().map_err(|_| bad())?, last: last.parse().map_err(|_| bad())? };
        if range.first == 0 || range.first > range.last { Err(bad()) } else { Ok(range) }
    }
}

/// Which ports data connections have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ports {
    /// Each its own, of these.
    Range(Range),
    /// All of them one.
    One(u16),
}

impl std::str::FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Ports, String> {
        match text.parse::<u16>() {
            Ok(port) if port > 0 => Ok(Ports::One(port)),
            _ => text.parse().map(Ports::Range),
        }
    }
}

/// Binds a port of the range that is free, at random; without a range the kernel chooses. Errors: EADDRINUSE: none is free.
pub fn bind(address: IpAddr, range: Option<Range>) -> io::Result<TcpListener> {
    let Some(Range { first, last }) = range else { return listen(address, 0) };
    let count = u32::from(last - first) + 1;
    for _ in 0..RANDOM_TRIES {
        let mut random = [0; 4];
        aws_lc_rs::rand::fill(&mut random).map_err(|_| io::Error::other("the system has no randomness"))?;
        let port = first + (u32::from_le_bytes(random) % count) as u16;
        match listen(address, port) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            bound => return bound,
        }
    }
    for port in first..=last {
        match listen(address, port) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            bound => return bound,
        }
    }
    Err(ErrorKind::AddrInUse.into())
}

fn listen(address: IpAddr, port: u16) -> io::Result<TcpListener> {
    let listener = sys::sock::listen(SocketAddr::new(address, port))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Gives a socket buffers of so many bytes, each way. 0, and more than the host lets anybody have (net.core.rmem_max, wmem_max): it is left to the kernel,
/// whose own sizing may go beyond these limits where a fixed buffer may not. It is a wish: what cannot be had ends nothing.
pub fn set_buffers(fd: impl AsFd, bytes: u64) {
    if bytes == 0 {
        return;
    }
    let _ = sys::sock::set_buffers(&fd, 0, 0).and_then(|it| {
        let is_within = bytes <= it.recv_bytes_limit.min(it.send_bytes_limit);
        if is_within { sys::sock::set_buffers(&fd, bytes, bytes) } else { Ok(it) }
    });
}

/// The data connection. `beside`: the control connection, of which `heard` is asked when it has something.
///
/// # Errors
/// TimedOut: nobody came; Interrupted: the control connection says stop; NotConnected: nothing was said of it; the network's.
pub fn connect(
    way: Way,
    peer: IpAddr,
    local: IpAddr,
    beside: BorrowedFd<'_>,
    heard: impl FnMut() -> Heard,
) -> io::Result<TcpStream> {
    let stream = match way {
        Way::None => return Err(ErrorKind::NotConnected.into()),
        Way::Active(address) => sys::sock::connect_from(address, Some(local), CONNECT_TIME, |_| Ok(()))?,
        Way::Shared(place) => taken(&place, beside, heard)?,
        Way::Passive(listener) => accept(&listener, peer, beside, heard)?,
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(CONNECT_TIME))?;
    stream.set_write_timeout(Some(CONNECT_TIME))?;
    Ok(stream)
}

fn taken(place: &Place, beside: BorrowedFd<'_>, mut heard: impl FnMut() -> Heard) -> io::Result<TcpStream> {
    let (until, mut is_deaf) = (Instant::now() + CONNECT_TIME, false);
    loop {
        if let Some(stream) = place.take() {
            return Ok(stream);
        }
        wait(place.as_fd(), beside, until, &mut is_deaf, &mut heard)?;
    }
}

/// Waits until the socket or the event can be read, or the control connection has something.
fn wait(
    fd: BorrowedFd<'_>,
    beside: BorrowedFd<'_>,
    until: Instant,
    is_deaf: &mut bool,
    heard: &mut impl FnMut() -> Heard,
) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    let fds = [(fd, Interest::Read), (beside, Interest::Read)];
    let ready = sys::event::poll(if *is_deaf { &fds[..1] } else { &fds }, Some(left))?;
    if ready.get(1).is_some_and(|it| it.any()) {
        match heard() {
            Heard::On => {}
            Heard::Deaf => *is_deaf = true,
            Heard::Stop => return Err(ErrorKind::Interrupted.into()),
        }
    }
    Ok(())
}

fn accept(
    listener: &TcpListener,
    peer: IpAddr,
    beside: BorrowedFd<'_>,
    mut heard: impl FnMut() -> Heard,
) -> io::Result<TcpStream> {
    let mut is_deaf = false;
    let until = Instant::now() + CONNECT_TIME;
    loop {
        match listener.accept() {
            // Somebody else's is closed, and does not cost the client its port.
            Ok((stream, from)) if from.ip().to_canonical() == peer.to_canonical() => return Ok(stream),
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                ) =>
            {
                wait(listener.as_fd(), beside, until, &mut is_deaf, &mut heard)?;
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_at_a_data_port_takes_nothing_from_the_client() {
        let listener = bind("127.0.0.1".parse().unwrap(), None).unwrap();
        let address = listener.local_addr().unwrap();
        let from =
            |ip: &str| sys::sock::connect_from(address, Some(ip.parse().unwrap()), CONNECT_TIME, |_| Ok(())).unwrap();
        let _thief = from("127.0.0.2");
        let client = from("127.0.0.1");
        let taken =
            connect(Way::Passive(listener), "127.0.0.1".parse().unwrap(), address.ip(), client.as_fd(), || Heard::Deaf)
                .unwrap();
        assert_eq!(taken.peer_addr().unwrap(), client.local_addr().unwrap());
    }

    #[test]
    fn a_range_that_is_full_says_so() {
        let taken = bind("127.0.0.1".parse().unwrap(), None).unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = bind("127.0.0.1".parse().unwrap(), Some(Range { first: port, last: port })).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert!("5-4".parse::<Range>().is_err() && "0-9".parse::<Range>().is_err() && "9".parse::<Range>().is_err());
        assert_eq!("9".parse::<Ports>(), Ok(Ports::One(9)));
        assert!("0".parse::<Ports>().is_err());
    }
}
