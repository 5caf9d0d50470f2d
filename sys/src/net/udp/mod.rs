//! UDP sockets whose packets go and come in bursts.
//!
//! What it is for: the datagram rails' door to the network: many packets per system call (segmentation offload, GSO, on the way out;
//! receive offload, GRO, on the way in), congestion marks (ECN) both ways, and packets that are never cut on their way.
//! In: addresses, slices of memory. Out: non-blocking, close-on-exec sockets; counts of packets; the kernel's errors as they are.
//! Invariants: no call here blocks or allocates; memory is only borrowed for the time of a call, but for [`Splicer`], which owns its own.
//! Errors that mean something to a rail: EAGAIN (full, or dry), EMSGSIZE (a packet is larger than the interface takes, or a router
//! said so), ECONNREFUSED, EHOSTUNREACH, ENETUNREACH (an ICMP message about an earlier packet of a connected socket; told once, by
//! whichever call comes next).
//! Absent on purpose: io_uring for bursts (measured: it brings nothing to UDP), MSG_ZEROCOPY (measured slower wherever delivery is
//! local), retries, and the choice of any size.
//! Sources: udp(7), ip(7), ipv6(7); kernel net/ipv4/udp.c, udp_offload.c; RFC 3168 and RFC 8311 (ECN), RFC 8899 (packet sizes).

mod pace; // departure rates, and whether the queue keeps them
mod recv; // bursts in
mod send; // bursts out
mod splice; // bursts out of memory that the network reads itself
mod wire; // control messages and addresses as bytes

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::sockopt;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

pub use self::pace::{Queue, fine_timers, queue_of};
pub use self::recv::{Arrived, recv_burst, recv_bursts};
pub use self::send::{BURST_BYTES_MAX, HEAD_BYTES, How, SEGMENTS_MAX, send_burst, send_by, send_sealed, send_to};
pub use self::splice::Splicer;
pub use crate::net::sock::{Buffers, local_addr, peer_addr, set_max_pacing_rate, take_error};
use crate::net::sock::{get_option, set_buffers, set_option};

/// ECN-capable, first code point: what all packets leave with (RFC 3168 section 5).
const ECT0: u8 = 0b10;

/// A socket bound to an address: non-blocking, its packets never fragmented and ECT(0), ready to tell marks and to receive bursts.
/// With `reuse` sockets of the same user may share the address (a connected one beside a listening one: the kernel hands packets to
/// the one that fits best). Until such a socket is connected, packets of anybody may get into it, and stay there: compare
/// [`Arrived::from`]. `[::]` takes IPv4 too. What an old kernel lacks (GRO: 5.0) is left out: then bursts have one packet.
/// Errors: EADDRINUSE, EACCES, EADDRNOTAVAIL.
pub fn bind(addr: SocketAddr, reuse: bool) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    if reuse {
        // Not SO_REUSEADDR: with it the sockets of any user could share, and take packets away.
        socket.set_reuse_port(true)?;
    }
    prepare(&socket, addr.is_ipv6())?;
    socket.bind(&addr.into())?;
    Ok(socket.into())
}

/// As `bind`, beside a socket that went through [`adopt`]. It belongs to whoever made it, often another user, and SO_REUSEPORT is for sockets of
/// one user: these two share by SO_REUSEADDR. Errors: those of `bind`.
pub fn bind_beside(addr: SocketAddr) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    prepare(&socket, addr.is_ipv6())?;
    socket.bind(&addr.into())?;
    Ok(socket.into())
}

/// Makes of a UDP socket that another program has bound what `bind` makes; [`bind_beside`] may share its address. Errors: it is no UDP socket.
pub fn adopt(fd: OwnedFd) -> io::Result<OwnedFd> {
    let is_ipv6 = local_addr(&fd)?.is_ipv6();
    let socket = Socket::from(fd);
    socket.set_reuse_address(true)?;
    prepare(&socket, is_ipv6)?;
    Ok(socket.into())
}

/// What all sockets of ours have in common.
fn prepare(socket: &Socket, is_ipv6: bool) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let fd = socket.as_fd();
    if is_ipv6 {
        // Where a host has set bindv6only, [::] alone would not be "all addresses".
        let _ = socket.set_only_v6(false);
        sockopt::set_ipv6_tclass(fd, ECT0.into())?;
        sockopt::set_ipv6_recvtclass(fd, true)?;
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE as u32)?;
    }
    // On IPv6 sockets these rule the packets to and from mapped IPv4 addresses.
    sockopt::set_ip_tos(fd, ECT0)?;
    sockopt::set_ip_recvtos(fd, true)?;
    // PROBE: DF is set, and what routers say about sizes is told but does not bind: the rail's own search decides (RFC 8899).
    set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE as u32)?;
    let _ = set_joining(fd, true);
    // When each burst came (SO_TIMESTAMPNS, socket(7)); without it a busy reader looks like a queue.
    let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1u32);
    Ok(())
}

/// On a socket of all addresses: each burst tells to which of them it was sent. Errors: none that a bound UDP socket of Linux has.
pub fn set_telling_place(fd: impl AsFd) -> io::Result<()> {
    let fd = fd.as_fd();
    // Refused on a socket of the other family.
    let _ = set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1u32);
    set_option(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1u32)
}

/// Fixes the other end: only its packets come in, and only then ICMP errors are told. May be called again for another address.
/// Errors: ENETUNREACH, EACCES (broadcast), EAFNOSUPPORT.
pub fn connect(fd: impl AsFd, addr: SocketAddr) -> io::Result<()> {
    SockRef::from(&fd).connect(&addr.into())
}

/// A socket for one rail: bound to `from` (or anywhere), connected to `to`, its buffers as near to `recv_bytes` and `send_bytes` as
/// the system lets. What it granted is in the answer; [`shortage`] puts a shortfall into words. Errors: those of `bind` and `connect`.
pub fn open(
    from: Option<SocketAddr>,
    to: SocketAddr,
    recv_bytes: u64,
    send_bytes: u64,
) -> io::Result<(OwnedFd, Buffers)> {
    let socket = bind(from.unwrap_or_else(|| anywhere(to)), false)?;
    let granted = set_buffers(&socket, recv_bytes, send_bytes)?;
    connect(&socket, to)?;
    Ok((socket, granted))
}

/// UDP payload of the largest packet that the route of a connected socket takes at its first hop, as far as the kernel knows: the upper
/// end of a search for the path's. Errors: ENOTCONN.
pub fn packet_bytes_max(fd: impl AsFd) -> io::Result<usize> {
    let fd = fd.as_fd();
    let (mtu, heads) = match peer_addr(fd)?.ip().to_canonical() {
        IpAddr::V4(_) => (get_option(fd, libc::IPPROTO_IP, libc::IP_MTU)?, 28),
        IpAddr::V6(_) => (get_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU)?, 48),
    };
    Ok((mtu as usize).saturating_sub(heads).min(BURST_BYTES_MAX))
}

/// The address that means "any of this host, any port", of the other's family.
fn anywhere(to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
        SocketAddr::V6(_) => SocketAddr::from(([0u16; 8], 0)),
    }
}

/// Sizes the buffers of a socket that is there already, as `open` does. The kernel counts whole pages per packet: a burst that waits
/// takes up to 1.3 times its bytes, single packets of 1500 bytes up to 1.7 times. Errors: EBADF and the like.
pub fn size_buffers(fd: impl AsFd, recv_bytes: u64, send_bytes: u64) -> io::Result<Buffers> {
    set_buffers(fd, recv_bytes, send_bytes)
}

/// What the system's limits forbid of what was wanted, and what to do about it; `None`: all of it was granted.
#[must_use]
pub fn shortage(granted: &Buffers, recv_bytes: u64, send_bytes: u64) -> Option<String> {
    let sides =
        [("receive", "rmem_max", granted.recv_bytes, recv_bytes), ("send", "wmem_max", granted.send_bytes, send_bytes)];
    let short = sides.into_iter().filter(|(_, _, got, wanted)| got < wanted);
    let words: Vec<String> = short
        .map(|(side, name, got, wanted)| {
            format!("{side} buffer {got} bytes instead of {wanted}: sysctl -w net.core.{name}={wanted}")
        })
        .collect();
    (!words.is_empty()).then(|| words.join("; "))
}

/// Joins packets into bursts on the way in (as `bind` asks for), or hands them over one by one. Errors: ENOPROTOOPT before 5.0.
pub fn set_joining(fd: impl AsFd, on: bool) -> io::Result<()> {
    set_option(fd.as_fd(), libc::SOL_UDP, libc::UDP_GRO, u32::from(on))
}

/// What this kernel can do with the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offload {
    /// UDP_SEGMENT is known (4.18): bursts leave in one call, unless the route's interface refuses.
    pub segments_out: bool,
    /// UDP_GRO is on (5.0): bursts arrive in one call, if the interface or the kernel has joined them.
    pub segments_in: bool,
}

/// Asks the kernel; it cannot say what a route's interface will refuse (then `send_burst` sends the packets one by one).
pub fn offload(fd: impl AsFd) -> Offload {
    let fd = fd.as_fd();
    let value = |name| get_option(fd, libc::SOL_UDP, name).ok();
    Offload {
        segments_out: value(libc::UDP_SEGMENT).is_some(),
        segments_in: value(libc::UDP_GRO).is_some_and(|on| on != 0),
    }
}
