//! A daemon's port that was bound before the daemon is made: by a service manager, or by this process while it has the rights to.
//!
//! For: a port that stays open while the daemon is started again, and one that a daemon without rights could not bind.
//! In and out: descriptors, or an address → a TCP listener and, where there is one, the UDP socket of the same port.
//! Invariants: nothing is guessed: a descriptor that is neither, or a second of a kind, or two ports, is refused with a sentence.
//! Absent on purpose: where descriptors come from (sys::handed).

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use sys::sock::SocketKind;
use text::attempt::Attempt;
use text::exit::{Exit, Failure};

/// A daemon's port, bound already.
#[derive(Debug)]
pub struct Handed {
    pub(super) tcp: TcpListener,
    pub(super) udp: Option<OwnedFd>,
    /// This process made them: sockets of rails share the port as those of one user.
    pub(super) is_ours: bool,
}

impl Handed {
    /// Binds the port for a process that becomes this user and group next. The UDP socket is given to them: sockets of rails are made later, and
    /// the kernel lets only sockets of one owner share a port (SO_REUSEPORT). Without it data goes over TCP.
    ///
    /// # Errors
    /// The kernel's: the port is taken, or wants more rights.
    pub fn bind(listen: SocketAddr, (uid, gid): (u32, u32)) -> Result<Handed, Failure> {
        let failed = |error: std::io::Error| Attempt::Listen.fail(format!("listen on {listen}"), &error);
        let tcp = sys::sock::listen(listen).map_err(failed)?;
        let udp = sys::udp::bind(tcp.local_addr().map_err(failed)?, true).ok();
        let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
        let udp = udp.filter(|socket| rustix::fs::fchown(socket, Some(uid), Some(gid)).is_ok());
        Ok(Handed { tcp, udp, is_ours: true })
    }

    /// The port that is bound, as the kernel has it.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.tcp.local_addr().ok().map(|address| address.port())
    }

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
            [Ok(one), Ok(other)] if one.port() == other.port() => Ok(Some(Handed { tcp, udp, is_ours: false })),
            [Ok(one), Ok(other)] => Err(failed(format!("TCP is {one} and UDP is {other}"))),
            [Err(error), _] | [_, Err(error)] => Err(failed(error.to_string())),
        }
    }
}
