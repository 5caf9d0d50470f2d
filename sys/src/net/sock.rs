//! TCP sockets: made, set, and asked.
//!
//! What it is for: everything about a connection but moving bytes, which the ring does. In: addresses, options, any
//! descriptor of a socket. Out: blocking, close-on-exec sockets; what the kernel knows of a path ([`TcpInfo`]).
//! Invariants: options return what the kernel really granted where that may differ from what was asked.
//! Absent on purpose: names of hosts (node resolves), and the choice of any value.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, sockopt};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

/// Connections waiting to be accepted. The kernel cuts it to net.core.somaxconn (4096 since Linux 5.4).
const BACKLOG: i32 = 4096;

/// Listens on an address, which may have been in use a moment ago. `[::]` listens for IPv4 too. Errors: EADDRINUSE,
/// EACCES, EADDRNOTAVAIL.
pub fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if addr.is_ipv6() {
        // Where a host has set bindv6only, [::] alone would not be "all addresses".
        let _ = socket.set_only_v6(false);
    }
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// What a socket is that another program has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketKind {
    /// TCP, and it listens.
    Listener,
    /// UDP.
    Datagrams,
    /// Neither, or no socket at all.
    Other,
}

/// What this descriptor is.
pub fn kind_of(fd: impl AsFd) -> SocketKind {
    let socket = SockRef::from(&fd);
    if !matches!(socket.domain(), Ok(family) if family == Domain::IPV4 || family == Domain::IPV6) {
        return SocketKind::Other;
    }
    match socket.protocol() {
        Ok(Some(Protocol::TCP)) if socket.is_listener().unwrap_or(false) => SocketKind::Listener,
        Ok(Some(Protocol::UDP)) => SocketKind::Datagrams,
        _ => SocketKind::Other,
    }
}

/// Connects within `timeout`. Errors: ETIMEDOUT, ECONNREFUSED and others.
pub fn connect(addr: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    connect_from(addr, None, timeout, |_| Ok(()))
}

/// As `connect`, from a given local address, and with `prepare` called before the handshake: buffer sizes and congestion
/// control take full effect only then (the window scale is fixed by the first packet).
pub fn connect_from(
    addr: SocketAddr,
    from: Option<IpAddr>,
    timeout: Duration,
    prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(from) = from {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    prepare(socket.as_fd())?;
    socket.connect_timeout(&addr.into(), timeout)?;
    Ok(socket.into())
}

/// As `connect`, in fewer calls: the socket blocks from its beginning, and its calls that send wait no longer than `timeout`. Errors: as `connect`.
pub fn connect_blocking(addr: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_write_timeout(Some(timeout))?;
    match socket.connect(&addr.into()) {
        Ok(()) => Ok(socket.into()),
        // The time is over (connect(2) with SO_SNDTIMEO, socket(7)).
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Err(io::ErrorKind::TimedOut.into()),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => connect(addr, timeout),
        Err(error) => Err(error),
    }
}

/// What comes next on this connection is acknowledged at once (TCP_QUICKACK, tcp(7)), for a peer that sends no more before. The kernel forgets it.
pub fn acknowledge_now(stream: impl AsFd) {
    // Where it is not known, acknowledgements come 40 ms later.
    let _ = rustix::net::sockopt::set_tcp_quickack(stream, true);
}

/// As `connect_from`, and waits for nothing: the socket is non-blocking, and can be written to once it is connected, or refused (`connected`).
pub fn connect_begin(
    addr: SocketAddr,
    prepare: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    prepare(socket.as_fd())?;
    socket.set_nonblocking(true)?;
    match socket.connect(&addr.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

/// What came of `connect_begin`, once the socket can be written to. Errors: ECONNREFUSED and others.
pub fn connected(stream: &TcpStream) -> io::Result<()> {
    stream.take_error()?.map_or(Ok(()), Err)
}

/// Two connected stream sockets of this host.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// This end's address.
pub fn local_addr(fd: impl AsFd) -> io::Result<SocketAddr> {
    internet(SockRef::from(&fd).local_addr()?)
}

/// The other end's address. Errors: ENOTCONN.
pub fn peer_addr(fd: impl AsFd) -> io::Result<SocketAddr> {
    internet(SockRef::from(&fd).peer_addr()?)
}

fn internet(addr: SockAddr) -> io::Result<SocketAddr> {
    addr.as_socket().ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
}

/// No more bytes from this end; the other end reads the end of the stream.
pub fn shutdown_send(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::shutdown(fd, Shutdown::Write)?)
}

/// Makes a connected socket ready for `Op::Lend`: non-blocking. False: it is no TCP socket, so nobody can say when the peer has what was
/// lent; nothing was changed.
pub fn lend_ready(fd: impl AsFd) -> io::Result<bool> {
    let socket = SockRef::from(&fd);
    if socket.protocol()? != Some(Protocol::TCP) {
        return Ok(false);
    }
    socket.set_nonblocking(true)?;
    Ok(true)
}

/// Bytes of a TCP socket that the peer's kernel has not acknowledged yet (SIOCOUTQ, tcp(7)): their memory may be read again.
pub fn unacknowledged(fd: impl AsFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (the same number as TIOCOUTQ) writes one int, and `bytes` is one that lives through the call.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
    if result == 0 { Ok(u64::try_from(bytes).unwrap_or(0)) } else { Err(io::Error::last_os_error()) }
}

/// Breaks a TCP connection off and throws away what was not sent or not acknowledged: afterwards the kernel reads none of the memory it was
/// lent (kernel net/ipv4/tcp.c, tcp_disconnect). Every operation in flight on the socket ends.
pub fn abort(fd: impl AsFd) -> io::Result<()> {
    // An address of no family takes the peer away.
    let none = libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
    // SAFETY: `none` is a whole `sockaddr` of the length that is given, and is only read.
    let result = unsafe {
        libc::connect(fd.as_fd().as_raw_fd(), &raw const none, size_of::<libc::sockaddr>() as libc::socklen_t)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Ends both directions and every operation in flight on the socket.
pub fn shutdown(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::shutdown(fd, Shutdown::Both)?)
}

/// The error that waits on a socket, if there is one; taking it clears it.
pub fn take_error(fd: impl AsFd) -> io::Result<Option<io::Error>> {
    Ok(sockopt::socket_error(fd)?.err().map(io::Error::from))
}

/// Hands bytes of a file to a socket, which nobody reads here (sendfile(2)). Returns how many went; 0: the file ends before `offset`.
/// Errors: EAGAIN: the socket takes nothing, now or within its write timeout; EINVAL, ENOSYS: it cannot be done so with this file.
pub fn send_file(socket: impl AsFd, file: &std::fs::File, offset: u64, bytes: usize) -> io::Result<usize> {
    let mut at = offset;
    Ok(rustix::fs::sendfile(socket, file, Some(&mut at), bytes)?)
}

/// Sends what a socket takes, now or within its write timeout. Errors: EAGAIN: nothing.
pub fn send(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, bytes, rustix::net::SendFlags::NOSIGNAL)?)
}

/// The same, of bytes behind which more follow at once: they leave together (MSG_MORE, send(2)).
pub fn send_more(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    use rustix::net::SendFlags;
    Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::MORE)?)
}

/// Receives what a socket has, now or within its read timeout; 0: the other end has ended its stream. Errors: EAGAIN: nothing.
pub fn receive(socket: impl AsFd, into: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::net::recv(socket, into, rustix::net::RecvFlags::empty())?.0)
}

/// The size of a socket's send buffer as the kernel counts it, which grows while it is used (SO_SNDBUF, socket(7)).
pub fn send_buffer(fd: impl AsFd) -> io::Result<usize> {
    Ok(sockopt::socket_send_buffer_size(fd)?)
}

/// A socket that is asked whether there is something to read says yes from so many bytes on, or at the end of the stream (SO_RCVLOWAT, socket(7)); a call
/// that receives waits for as many, or for its read timeout.
pub fn set_receive_least(fd: impl AsFd, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: SO_RCVLOWAT reads one int, and `bytes` is one that lives through the call.
    let result = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Send small writes at once (true) instead of waiting for more.
pub fn set_nodelay(fd: impl AsFd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_tcp_nodelay(fd, on)?)
}

/// Holds back what is no whole segment (true) until this is taken back, 200 ms at most (`TCP_CORK`, tcp(7)): several writes go as one segment.
pub fn set_corked(fd: impl AsFd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_tcp_cork(fd, on)?)
}

/// Chooses the congestion control (`cubic`, `bbr`, …). Errors: ENOENT if the kernel has it not, EPERM if it is not
/// among net.ipv4.tcp_allowed_congestion_control.
pub fn set_congestion(fd: impl AsFd, name: &str) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(fd, name)?)
}

/// The congestion control in use.
pub fn get_congestion(fd: impl AsFd) -> io::Result<String> {
    Ok(sockopt::tcp_congestion(fd)?)
}

/// Asks for the first probe after `idle` of silence, then every `interval`, giving up after `count`.
pub fn set_keepalive(fd: impl AsFd, idle: Duration, interval: Duration, count: u32) -> io::Result<()> {
    let fd = fd.as_fd();
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, idle)?;
    sockopt::set_tcp_keepintvl(fd, interval)?;
    Ok(sockopt::set_tcp_keepcnt(fd, count)?)
}

/// Fails the connection when sent bytes stay unacknowledged for so long (ETIMEDOUT).
pub fn set_user_timeout(fd: impl AsFd, timeout: Duration) -> io::Result<()> {
    let ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(fd, ms)?)
}

/// Since Linux 6.15 and 6.16 (include/uapi/linux/tcp.h); libc has no names for them yet.
const TCP_RTO_MAX_MS: libc::c_int = 44;
const TCP_RTO_MIN_US: libc::c_int = 45;
const TCP_DELACK_MAX_US: libc::c_int = 46;

/// When a TCP connection sends again what was not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossTimers {
    /// After the round trip and so much more (at least four times its deviation); 5 to 200 ms.
    pub above_rtt: Duration,
    /// Never after more than this; at least 1 s.
    pub longest: Duration,
    /// Acknowledges what comes within this; 5 to 200 ms.
    pub acknowledge: Duration,
    /// The connection fails when nothing was acknowledged for so long.
    pub give_up: Duration,
}

/// Sets them, and has the first six repeats of a connection with few segments on their way not double (tcp(7), TCP_THIN_LINEAR_TIMEOUTS). How many
/// of these options the kernel has and refuses the value of; one that it has not changes nothing.
pub fn set_loss_timers(fd: impl AsFd, timers: &LossTimers) -> usize {
    let fd = fd.as_fd();
    let us = |it: Duration| u32::try_from(it.as_micros()).unwrap_or(u32::MAX);
    let longest_ms = u32::try_from(timers.longest.as_millis()).unwrap_or(u32::MAX);
    let set = |name, value: u32| set_option(fd, libc::IPPROTO_TCP, name, value);
    let done = [
        // Before the others: with short timers the kernel's own count of repeats ends a connection within seconds.
        set_user_timeout(fd, timers.give_up),
        set(libc::TCP_THIN_LINEAR_TIMEOUTS, 1),
        set(TCP_RTO_MAX_MS, longest_ms),
        set(TCP_RTO_MIN_US, us(timers.above_rtt)),
        set(TCP_DELACK_MAX_US, us(timers.acknowledge)),
    ];
    let is_wrong = |it: &io::Error| it.raw_os_error() == Some(libc::EINVAL);
    done.into_iter().filter_map(Result::err).filter(is_wrong).count()
}

/// What the kernel granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffers {
    /// Receive buffer, bytes of payload counted as the caller does (the kernel's own figure is twice this).
    pub recv_bytes: u64,
    /// Send buffer, likewise.
    pub send_bytes: u64,
    /// net.core.rmem_max: what an unprivileged process may ask for.
    pub recv_bytes_limit: u64,
    /// net.core.wmem_max.
    pub send_bytes_limit: u64,
}

/// Fixes the sizes of the socket buffers; 0 leaves one to the kernel's own tuning. Root passes the limits (SO_RCVBUFFORCE);
/// others get at most the limit, and see it in the answer.
pub fn set_buffers(fd: impl AsFd, recv_bytes: u64, send_bytes: u64) -> io::Result<Buffers> {
    let fd = fd.as_fd();
    // The kernel's int holds twice the value (net/core/sock.c, __sock_set_rcvbuf).
    let capped = |bytes: u64| bytes.min(i32::MAX as u64 / 2) as usize;
    if recv_bytes > 0 && sockopt::set_socket_recv_buffer_size_force(fd, capped(recv_bytes)).is_err() {
        sockopt::set_socket_recv_buffer_size(fd, capped(recv_bytes))?;
    }
    if send_bytes > 0 && sockopt::set_socket_send_buffer_size_force(fd, capped(send_bytes)).is_err() {
        sockopt::set_socket_send_buffer_size(fd, capped(send_bytes))?;
    }
    Ok(Buffers {
        recv_bytes: sockopt::socket_recv_buffer_size(fd)? as u64 / 2,
        send_bytes: sockopt::socket_send_buffer_size(fd)? as u64 / 2,
        recv_bytes_limit: core_limit("rmem_max"),
        send_bytes_limit: core_limit("wmem_max"),
    })
}

fn core_limit(name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Says "writable" only while fewer than so many bytes wait unsent: keeps a sender's queue in the sender's hands.
pub fn set_notsent_lowat(fd: impl AsFd, bytes: u32) -> io::Result<()> {
    set_option(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

/// The largest segment that this end sends and, said before it connects, that it asks of the other (tcp(7), TCP_MAXSEG): for paths that
/// swallow larger packets and do not say so.
pub fn set_max_segment(fd: impl AsFd, bytes: u32) -> io::Result<()> {
    SockRef::from(&fd).set_tcp_mss(bytes)
}

/// Paces the socket at so many bytes per second at most; `u64::MAX` takes the limit away.
pub fn set_max_pacing_rate(fd: impl AsFd, bytes_per_s: u64) -> io::Result<()> {
    set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, bytes_per_s)
}

/// A receiver that must sleep is woken only when so many bytes have come, or what is missing if that is less: each wake of a
/// sleeping core is an interrupt, and the sender pays for it. Of 128, 256, 512 KiB and 1 MiB (1 MiB receive loop over loopback,
/// Linux 6.18, EPYC, busy machine, 25 rounds, 2026-11) all gave 1.14 to 1.20 of the rate without, which is within their noise;
/// more costs the receiver less processor time, less holds data back less on a slow path.
const WAKE_BYTES: usize = 256 << 10;

/// Called before sleeping for `missing` more bytes, all of which are to be received. Where the kernel does not want to, it
/// wakes us more often, and that is all; it also wakes earlier when the window is full.
pub(crate) fn wake_for(fd: impl AsFd, missing: usize) {
    let bytes = missing.clamp(1, WAKE_BYTES) as u32;
    let _ = set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes);
}

/// Numbers only: that is what makes the cast to bytes right for every caller.
pub(crate) trait Number: Copy {}
impl Number for u32 {}
impl Number for u64 {}

pub(crate) fn set_option<T: Number>(fd: BorrowedFd<'_>, level: i32, name: i32, value: T) -> io::Result<()> {
    let (at, bytes) = (std::ptr::from_ref(&value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: `at` points to `bytes` initialised bytes of the local `value` (`Number` has no padding).
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, at, bytes) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn get_option(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<u32> {
    let (mut value, mut bytes) = (0u32, size_of::<u32>() as libc::socklen_t);
    let at = std::ptr::from_mut(&mut value).cast();
    // SAFETY: the kernel writes at most `bytes` bytes, which is the size of the local `value`; any bytes are a u32.
    let result = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, at, &mut bytes) };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// What the kernel knows of a connection; figures a kernel does not have yet are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpInfo {
    /// It recovers from a retransmission timeout (TCP_CA_Loss).
    pub in_timeout: bool,
    /// Timeouts in a row without an acknowledgement between.
    pub timeouts: u8,
    /// Smoothed round trip.
    pub rtt_us: u32,
    /// Its mean deviation.
    pub rtt_var_us: u32,
    /// Shortest round trip seen (tcp_min_rtt_wlen, 5 minutes).
    pub min_rtt_us: u32,
    /// Round trip as the receiver estimates it.
    pub recv_rtt_us: u32,
    /// Congestion window, packets.
    pub cwnd: u32,
    /// Slow start threshold, packets.
    pub ssthresh: u32,
    /// Bytes per packet to send.
    pub mss: u32,
    /// Path MTU.
    pub pmtu: u32,
    /// Packets in flight.
    pub unacked: u32,
    /// Packets thought lost now.
    pub lost: u32,
    /// Since the peer's data came last.
    pub last_data_recv_ms: u32,
    /// Since the peer's kernel acknowledged anything, or sent anything, last.
    pub last_ack_recv_ms: u32,
    /// Packets sent again, in all.
    pub retrans: u32,
    /// Bytes in the send buffer that were never sent.
    pub notsent_bytes: u32,
    /// The peer's window, bytes.
    pub send_window_bytes: u32,
    /// Packets sent with data.
    pub segments_out: u32,
    /// Pacing, bytes per second.
    pub pacing_rate: u64,
    /// Rate at which the peer takes data, bytes per second, as last measured.
    pub delivery_rate: u64,
    /// Time with data to send.
    pub busy_time_us: u64,
    /// Of this: time stopped by the peer's window.
    pub rwnd_limited_us: u64,
    /// Of this: time stopped by our send buffer.
    pub sndbuf_limited_us: u64,
    /// Payload bytes sent, again ones included.
    pub bytes_sent: u64,
    /// Payload bytes sent again.
    pub bytes_retrans: u64,
    /// Payload bytes the peer has acknowledged.
    pub bytes_acked: u64,
    /// Payload bytes received.
    pub bytes_received: u64,
    /// The delivery rate was limited by us, not by the path.
    pub app_limited: bool,
}

/// Asks the kernel about a connection. Errors: ENOPROTOOPT or EOPNOTSUPP if it is no TCP socket.
pub fn tcp_info(fd: impl AsFd) -> io::Result<TcpInfo> {
    // linux/tcp.h, struct tcp_info: 232 bytes up to tcpi_snd_wnd (5.4); later fields are cut off, earlier kernels fill less.
    let mut bytes = [0u8; 232];
    let mut filled = bytes.len() as libc::socklen_t;
    let (fd, at) = (fd.as_fd().as_raw_fd(), bytes.as_mut_ptr().cast());
    // SAFETY: the kernel writes at most `filled` bytes, which is the length of `bytes`, and sets `filled` to what it wrote.
    let result = unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, at, &mut filled) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(parse_info(&bytes))
}

/// By offset, because the struct grows at its end from kernel to kernel.
fn parse_info(bytes: &[u8; 232]) -> TcpInfo {
    let four = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let eight = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    TcpInfo {
        // tcpi_ca_state; 4 is TCP_CA_Loss in linux/tcp.h.
        in_timeout: bytes[1] == 4,
        timeouts: bytes[2],
        app_limited: bytes[7] & 1 != 0,
        mss: four(16),
        unacked: four(24),
        lost: four(32),
        last_data_recv_ms: four(52),
        last_ack_recv_ms: four(56),
        pmtu: four(60),
        rtt_us: four(68),
        rtt_var_us: four(72),
        ssthresh: four(76),
        cwnd: four(80),
        recv_rtt_us: four(92),
        retrans: four(100),
        pacing_rate: eight(104),
        bytes_acked: eight(120),
        bytes_received: eight(128),
        notsent_bytes: four(144),
        min_rtt_us: four(148),
        segments_out: four(156),
        delivery_rate: eight(160),
        busy_time_us: eight(168),
        rwnd_limited_us: eight(176),
        sndbuf_limited_us: eight(184),
        bytes_sent: eight(200),
        bytes_retrans: eight(208),
        send_window_bytes: four(228),
    }
}
