//! Sockets that somebody else has bound for a daemon: a service manager.
//!
//! For: a port that stays open while the daemon is started again, and one that a daemon without rights could not bind.
//! In and out: descriptors → a TCP listener and, where there is one, the UDP socket of the same port.
//! Invariants: nothing is guessed: a descriptor that is neither, or a second of a kind, or two ports, is refused with a sentence.
//! Absent on purpose: where descriptors come from (sys::handed).

use std::net::TcpListener;
use std::os::fd::OwnedFd;

use sys::sock::SocketKind;
use text::exit::{Exit, Failure};

/// A daemon's port, bound by another program.
#[derive(Debug)]
pub struct Handed {
    pub(super) tcp: TcpListener,
    pub(super) udp: Option<OwnedFd>,
}

impl Handed {
    /// Sorts sockets that were handed over; `None`: there are none.
    ///
    /// # Errors
    /// They are not one listening TCP socket and at most one UDP socket of the same port.
    pub fn of(sockets: Vec<OwnedFd>) -> Result<Option<Handed>, Failure> {
        let failed = |cause: String| {
            let failure = Exit::Usage.fail("use the sockets that the service manager handed over", cause);
            failure.next("give the unit one ListenStream= and one ListenDatagram= with the same IP address and port")
        };
        if sockets.is_empty() {
            return Ok(None);
        }
        let count = sockets.len();
        let (mut tcp, mut udp) = (Vec::new(), Vec::new());
        for socket in sockets {
            match sys::sock::kind_of(&socket) {
                SocketKind::Listener => tcp.push(TcpListener::from(socket)),
                SocketKind::Datagrams => udp.push(socket),
                SocketKind::Other => {
                    return Err(failed("one is neither a listening TCP socket nor a UDP socket".to_owned()));
                }
            }
        }
        if udp.len() > 1 || tcp.len() > 1 {
            return Err(failed(format!("{count} came, and a daemon has one port")));
        }
        let Some(tcp) = tcp.pop() else { return Err(failed("none is a listening TCP socket".to_owned())) };
        let udp = udp.pop();
        let ports = [tcp.local_addr(), udp.as_ref().map_or_else(|| tcp.local_addr(), sys::udp::local_addr)];
        match ports {
            [Ok(one), Ok(other)] if one.port() == other.port() => Ok(Some(Handed { tcp, udp })),
            [Ok(one), Ok(other)] => Err(failed(format!("TCP is {one} and UDP is {other}"))),
            [Err(error), _] | [_, Err(error)] => Err(failed(error.to_string())),
        }
    }
}
