//! Bursts in: what the kernel has joined, in one call.
//!
//! What it is for: packets of one sender that arrived together, handed over as one run of bytes (GRO), with their marks.
//! In: memory. Out: how many bytes, how long each packet is, whether one of them was marked, who sent them.
//! Invariants: the kernel writes only into memory that is borrowed mutably for the whole call.
//! Absent on purpose: waiting (the ring's `Readable` does, or a socket that somebody has set to block), and packets of several senders in one run (the kernel joins none).
//! Sources: kernel net/ipv4/udp.c (udp_recvmsg, udp_cmsg_recv), net/ipv4/udp_offload.c (what is joined: same ends, same TOS, same size).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use super::send::empty_message;
use super::wire::{Heard, Name, Words};
use crate::host::clock::unix_ns;

/// Congestion experienced (RFC 3168 section 5).
const MARKED: u8 = 0b11;
/// Bursts in one `recvmmsg`.
const BURSTS_MAX: usize = 16;

/// Longer than any socket buffer holds at a rate that matters: then it was the calendar that jumped.
const WAITED_NS_MAX: u64 = 2_000_000_000;

/// A burst that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// Bytes written, from the front of the memory.
    pub bytes: usize,
    /// Bytes of each packet but the last, which may be shorter; equal to `bytes` when there is one.
    pub segment: usize,
    /// The path says that it is congested (CE). Packets that differ in this are not joined, so it is true of all of them.
    pub marked: bool,
    /// How long it has waited for us: a reader that was kept from its core must not take that for a queue of the path. 0 where the kernel
    /// does not say.
    pub waited_ns: u64,
    /// Who sent it; on a connected socket the peer, but for what came before it was connected.
    pub from: Option<SocketAddr>,
    /// The address of this host that it was sent to; only where [`super::set_telling_place`] asked for it.
    pub to: Option<IpAddr>,
}

impl Arrived {
    const NOTHING: Arrived = Arrived { bytes: 0, segment: 0, marked: false, waited_ns: 0, from: None, to: None };

    /// Bounds of the packets in the memory, one after another. A datagram without bytes is none.
    pub fn packets(&self) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let Arrived { bytes, segment, .. } = *self;
        (0..bytes).step_by(segment.max(1)).map(move |at| at..(at + segment).min(bytes))
    }

    fn new(bytes: usize, message: &libc::msghdr, name: &Name, heard: &Heard) -> Arrived {
        let Words { segment, ecn, came_ns, to } = heard.read(message.msg_controllen as _);
        // Against the calendar that the kernel's stamp is of; one that was set back meanwhile tells nothing.
        let waited_ns = came_ns.map_or(0, |came| unix_ns().saturating_sub(came)).min(WAITED_NS_MAX);
        let segment = segment.filter(|segment| (1..bytes).contains(segment)).unwrap_or(bytes);
        // Memory shorter than the burst: packets cut short are lost, as on the wire.
        let cut = message.msg_flags & libc::MSG_TRUNC != 0;
        let bytes = if cut { bytes - bytes % segment.max(1) } else { bytes };
        Arrived { bytes, segment, marked: ecn == MARKED, waited_ns, from: name.read(message.msg_namelen as usize), to }
    }
}

/// Receives one burst; 65,535 bytes of memory hold any. Errors: EAGAIN when there is none; the errors of earlier sends, see the
/// module (EMSGSIZE too: a router told of a smaller size).
pub fn recv_burst(fd: impl AsFd, into: &mut [u8]) -> io::Result<Arrived> {
    let (mut name, mut heard) = (Name::EMPTY, Heard::EMPTY);
    let mut place = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut message = room_for(&mut place, &mut name, &mut heard);
    // SAFETY: `message` points to `place`, `name` and `heard`, with their sizes, and `place` to `into`, borrowed mutably; all
    // outlive the call.
    let bytes = unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &mut message, 0) };
    match usize::try_from(bytes) {
        Ok(bytes) => Ok(Arrived::new(bytes, &message, &name, &heard)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Receives as many bursts as there are, at most 16: the `i`-th into the `i`-th `each` bytes of the memory, its description into
/// `arrived[i]`. Says how many came. Errors: as [`recv_burst`], when none came.
pub fn recv_bursts(fd: impl AsFd, into: &mut [u8], each: usize, arrived: &mut [Arrived]) -> io::Result<usize> {
    let mut names = [Name::EMPTY; BURSTS_MAX];
    let mut heards = [Heard::EMPTY; BURSTS_MAX];
    let mut places = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BURSTS_MAX];
    let mut messages = [libc::mmsghdr { msg_hdr: empty_message(), msg_len: 0 }; BURSTS_MAX];
    let rooms = names.iter_mut().zip(&mut heards).zip(places.iter_mut().zip(&mut messages));
    let mut count = 0;
    for (((name, heard), (place, message)), memory) in rooms.zip(into.chunks_exact_mut(each)).take(arrived.len()) {
        *place = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
        message.msg_hdr = room_for(place, name, heard);
        count += 1;
    }
    // On a socket that blocks: until one has come.
    let flags = libc::MSG_WAITFORONE as _;
    // SAFETY: the first `count` messages point to places, names and control rooms of their own, and those to disjoint pieces of
    // `into`, which is borrowed mutably; all outlive the call, and no time limit is given.
    let came =
        unsafe { libc::recvmmsg(fd.as_fd().as_raw_fd(), messages.as_mut_ptr(), count, flags, std::ptr::null_mut()) };
    let came = usize::try_from(came).map_err(|_| io::Error::last_os_error())?;
    for (number, arrived) in arrived.iter_mut().enumerate().take(came) {
        let message = &messages[number];
        *arrived = Arrived::new(message.msg_len as usize, &message.msg_hdr, &names[number], &heards[number]);
    }
    Ok(came)
}

fn room_for(place: &mut libc::iovec, name: &mut Name, heard: &mut Heard) -> libc::msghdr {
    let mut message = empty_message();
    message.msg_iov = place;
    message.msg_iovlen = 1;
    message.msg_name = name.0.as_mut_ptr().cast();
    message.msg_namelen = name.0.len() as _;
    message.msg_control = heard.0.as_mut_ptr().cast();
    message.msg_controllen = heard.0.len() as _;
    message
}

impl Default for Arrived {
    fn default() -> Arrived {
        Arrived::NOTHING
    }
}
