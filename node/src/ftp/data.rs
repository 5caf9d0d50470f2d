//! The data connection: which port, who may connect, TLS.
//!
//! For: transfers of a session.
//! In and out: PASV, EPSV, PORT, EPRT → a connected socket, covered as PROT says.
//! Invariants: a port is bound between the command and the transfer only, takes one connection, and from the control connection's peer alone; we dial that
//! peer alone, and no port below 1024 (RFC 2577); with TLS the connection resumes the control connection's session, if that is asked for.
//! Absent on purpose: what moves over it (`transfer`).

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use sys::event::Interest;

/// A client has so long to connect, and to make the handshake.
pub const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Ports tried at random before they are tried one by one.
const RANDOM_TRIES: usize = 16;
/// Ports below are those of others' services (RFC 2577 section 3).
const PORT_MIN: u16 = 1024;

/// What the next transfer goes over.
#[derive(Debug, Default)]
pub enum Way {
    /// Nothing was said.
    #[default]
    None,
    /// The client connects.
    Passive(TcpListener),
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
        let bad = || format!("'{text}' is no range of ports: 50000-50100");
        let (first, last) = text.split_once('-').ok_or_else(bad)?;
        let range = Range { first: first.parse().map_err(|_| bad())?, last: last.parse().map_err(|_| bad())? };
        if range.first == 0 || range.first > range.last { Err(bad()) } else { Ok(range) }
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

/// May we connect there? Only to the peer itself, and to no service of it.
#[must_use]
pub fn may_dial(address: SocketAddr, peer: IpAddr) -> bool {
    address.ip().to_canonical() == peer.to_canonical() && address.port() >= PORT_MIN
}

/// The data connection. `gone`: the control connection, whose client may be gone.
///
/// # Errors
/// TimedOut: nobody came; NotConnected: nothing was said of it; the network's.
pub fn connect(way: Way, peer: IpAddr, local: IpAddr) -> io::Result<TcpStream> {
    let stream = match way {
        Way::None => return Err(ErrorKind::NotConnected.into()),
        Way::Active(address) => sys::sock::connect_from(address, Some(local), CONNECT_TIME, |_| Ok(()))?,
        Way::Passive(listener) => accept(&listener, peer)?,
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(CONNECT_TIME))?;
    stream.set_write_timeout(Some(CONNECT_TIME))?;
    Ok(stream)
}

fn accept(listener: &TcpListener, peer: IpAddr) -> io::Result<TcpStream> {
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
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(ErrorKind::TimedOut.into());
                }
                let fd: BorrowedFd<'_> = listener.as_fd();
                sys::event::poll(&[(fd, Interest::Read)], Some(left))?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// `h1,h2,h3,h4,p1,p2` (RFC 959 section 4.1.2).
#[must_use]
pub fn parse_port(text: &[u8]) -> Option<SocketAddr> {
    let numbers: Option<Vec<u8>> =
        std::str::from_utf8(text).ok()?.trim().split(',').map(|it| it.parse().ok()).collect();
    let [a, b, c, d, high, low] = numbers?[..] else { return None };
    Some(SocketAddr::new([a, b, c, d].into(), u16::from_be_bytes([high, low])))
}

/// `|1|132.235.1.2|6275|` (RFC 2428 section 2).
#[must_use]
pub fn parse_eprt(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let mark = text.chars().next().filter(|it| it.is_ascii_graphic())?;
    let mut words = text[1..].split(mark);
    let (family, address, port) = (words.next()?, words.next()?.parse::<IpAddr>().ok()?, words.next()?.parse().ok()?);
    let fits = matches!((family, address), ("1", IpAddr::V4(_)) | ("2", IpAddr::V6(_)));
    fits.then(|| SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_nothing_but_the_peers_is_dialled() {
        let peer: IpAddr = "10.0.0.9".parse().unwrap();
        assert_eq!(parse_port(b"10,0,0,9,4,1"), Some("10.0.0.9:1025".parse().unwrap()));
        assert_eq!(parse_eprt(b"|1|10.0.0.9|1025|"), Some("10.0.0.9:1025".parse().unwrap()));
        assert_eq!(parse_eprt(b"|2|::1|1025|"), Some("[::1]:1025".parse().unwrap()));
        for bad in [&b"1,2,3"[..], b"1,2,3,4,5,256", b"", b"a,b,c,d,e,f"] {
            assert_eq!(parse_port(bad), None);
        }
        for bad in [&b""[..], b"|", b"|2|10.0.0.9|1025|", b"|1|::1|1|", b"|1|10.0.0.9|99999|"] {
            assert_eq!(parse_eprt(bad), None);
        }
        assert!(may_dial("10.0.0.9:1025".parse().unwrap(), peer));
        assert!(may_dial("10.0.0.9:1025".parse().unwrap(), "::ffff:10.0.0.9".parse().unwrap()));
        assert!(!may_dial("10.0.0.9:25".parse().unwrap(), peer), "no service");
        assert!(!may_dial("10.0.0.8:1025".parse().unwrap(), peer), "no third host");
    }

    #[test]
    fn a_stranger_at_a_data_port_takes_nothing_from_the_client() {
        let listener = bind("127.0.0.1".parse().unwrap(), None).unwrap();
        let address = listener.local_addr().unwrap();
        let from =
            |ip: &str| sys::sock::connect_from(address, Some(ip.parse().unwrap()), CONNECT_TIME, |_| Ok(())).unwrap();
        let _thief = from("127.0.0.2");
        let client = from("127.0.0.1");
        let taken = connect(Way::Passive(listener), "127.0.0.1".parse().unwrap(), address.ip()).unwrap();
        assert_eq!(taken.peer_addr().unwrap(), client.local_addr().unwrap());
    }

    #[test]
    fn a_range_that_is_full_says_so() {
        let taken = bind("127.0.0.1".parse().unwrap(), None).unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = bind("127.0.0.1".parse().unwrap(), Some(Range { first: port, last: port })).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert!("5-4".parse::<Range>().is_err() && "0-9".parse::<Range>().is_err() && "9".parse::<Range>().is_err());
    }
}
