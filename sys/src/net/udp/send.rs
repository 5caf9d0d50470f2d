//! Bursts out: many packets in one call.
//!
//! What it is for: packets of equal size, the last may be shorter, from where they stand to the network.
//! In: heads and payload apart ([`send_burst`]), or packets that stand one after another ([`send_sealed`]). Out: how many were taken,
//! from the front; those never partly.
//! Invariants: addresses handed to the kernel are those of slices borrowed for the whole call; nothing is remembered between calls.
//! A refused offload costs one call per burst and is tried again with the next one, because a route may move to an interface that
//! does not refuse, and one call in forty is not worth a state.
//! Absent on purpose: waiting (but on a socket that somebody has set to block); sending the rest of a burst that was taken in part.
//! Sources: kernel net/ipv4/udp.c (udp_send_skb, __udp_gso_segment), include/linux/udp.h (UDP_MAX_SEGMENTS).

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::net::SendFlags;

use super::wire::Told;

/// Bytes before the payload of a packet: its head, its place in the unit, its tag.
pub const HEAD_BYTES: usize = 32;
/// Packets in one call: UDP_MAX_SEGMENTS was 64 until Linux 6.9, 128 since.
pub const SEGMENTS_MAX: usize = 64;
/// Bytes in one call: an IPv4 packet's 65,535 without the heads of IPv4 and UDP.
pub const BURST_BYTES_MAX: usize = 65_507;

/// How packets get into the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// One call with segmentation offload; where that is refused, as `Batched`.
    Segmented,
    /// One `sendmmsg` for all, each by itself in the kernel.
    Batched,
    /// One call for each.
    Single,
}

/// Packets as they stand in memory.
#[derive(Clone, Copy)]
enum Packets<'a> {
    /// Each is a head and its slice of the payload.
    Apart { heads: &'a [[u8; HEAD_BYTES]], payload: &'a [u8], each: usize },
    /// One after another.
    Whole { bytes: &'a [u8], each: usize },
}

impl<'a> Packets<'a> {
    fn count(self) -> usize {
        match self {
            Packets::Apart { heads, .. } => heads.len(),
            Packets::Whole { bytes, each } => bytes.len().div_ceil(each),
        }
    }

    /// Bytes of each packet but the last.
    fn packet_bytes(self) -> usize {
        match self {
            Packets::Apart { each, .. } => HEAD_BYTES + each,
            Packets::Whole { each, .. } => each,
        }
    }

    /// How many fit into one call.
    fn per_call(self) -> usize {
        (BURST_BYTES_MAX / self.packet_bytes()).clamp(1, SEGMENTS_MAX)
    }

    fn whole(bytes: &'a [u8], each: usize, range: Range<usize>) -> &'a [u8] {
        &bytes[range.start * each..(range.end * each).min(bytes.len())]
    }

    /// Where the packets of a range stand; says how many places were filled in.
    fn gather(self, range: Range<usize>, places: &mut [libc::iovec]) -> usize {
        match self {
            Packets::Whole { bytes, each } => {
                places[0] = place(Packets::whole(bytes, each, range));
                1
            }
            Packets::Apart { heads, payload, each } => {
                let parts = Packets::whole(payload, each, range.clone()).chunks(each);
                let mut filled = 0;
                for (head, part) in heads[range].iter().zip(parts) {
                    places[filled] = place(head);
                    places[filled + 1] = place(part);
                    filled += 2;
                }
                filled
            }
        }
    }
}

const NOWHERE: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

fn place(bytes: &[u8]) -> libc::iovec {
    // The kernel only reads what is sent; the type has no const variant.
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// Sends packets whose heads stand apart: packet `i` is `heads[i]` and the `i`-th `segment_payload` bytes of `payload`, the last one
/// may have less. Says how many were taken, from the front; fewer than all when the socket's buffer is full. On a connected socket.
/// Nothing of ours copies a byte. A wrong number of heads, or a packet above 65,507 bytes, is a bug and panics.
/// Errors, when none was taken: see the module; EMSGSIZE: the packets are too large for the interface.
pub fn send_burst(
    fd: impl AsFd,
    heads: &[[u8; HEAD_BYTES]],
    payload: &[u8],
    segment_payload: usize,
) -> io::Result<usize> {
    assert!(segment_payload > 0 && heads.len() == payload.len().div_ceil(segment_payload), "one head per packet");
    send(fd.as_fd(), How::Segmented, Packets::Apart { heads, payload, each: segment_payload })
}

/// Sends packets that stand one after another, each `segment` bytes long, the last may be shorter. Otherwise as [`send_burst`].
pub fn send_sealed(fd: impl AsFd, bytes: &[u8], segment: usize) -> io::Result<usize> {
    send_by(fd, How::Segmented, bytes, segment)
}

/// As [`send_sealed`], by a given way: for the figures beside which offload is measured, and for the tests.
pub fn send_by(fd: impl AsFd, how: How, bytes: &[u8], segment: usize) -> io::Result<usize> {
    assert!(segment > 0, "a packet has bytes");
    send(fd.as_fd(), how, Packets::Whole { bytes, each: segment })
}

/// Sends one packet to an address, on a socket that is not connected. Errors: see the module.
pub fn send_to(fd: impl AsFd, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
    rustix::net::sendto(fd, bytes, SendFlags::NOSIGNAL, &to)?;
    Ok(())
}

fn send(fd: BorrowedFd<'_>, how: How, packets: Packets<'_>) -> io::Result<usize> {
    assert!(packets.packet_bytes() <= BURST_BYTES_MAX, "a packet of {} bytes", packets.packet_bytes());
    let (count, per_call) = (packets.count(), packets.per_call());
    let mut taken = 0;
    while taken < count {
        let end = (taken + per_call).min(count);
        let step = match how {
            How::Segmented => segmented(fd, packets, taken..end),
            How::Batched => batched(fd, packets, taken..end),
            How::Single => single(fd, packets, taken..end),
        };
        match step {
            Ok(more) => {
                taken += more;
                if taken < end {
                    break;
                }
            }
            // What was taken counts. A full socket stays full for the next call, a packet too large stays too large.
            Err(_) if taken > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}

/// One call; as `batched` where segmentation is refused.
fn segmented(fd: BorrowedFd<'_>, packets: Packets<'_>, range: Range<usize>) -> io::Result<usize> {
    let mut places = [NOWHERE; 2 * SEGMENTS_MAX];
    let filled = packets.gather(range.clone(), &mut places);
    // Named for a single packet too: a socket that a `Splicer` has set would cut it otherwise.
    let bytes: usize = places[..filled].iter().map(|place| place.iov_len).sum();
    let told = Told::segment(packets.packet_bytes().min(bytes) as u16);
    match send_message(fd, &mut places[..filled], Some(&told)) {
        Ok(()) => Ok(range.len()),
        Err(error) if is_refusal(&error) => batched(fd, packets, range),
        Err(error) => Err(error),
    }
}

/// The kernel or the interface does not do it. EIO: no checksum offload there (udp_send_skb, until 6.11). EINVAL: the kernel knows no
/// such control message, or cannot cut for this route; if the packets are too large for it, sending one by one will say EMSGSIZE.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::ENOPROTOOPT | libc::EOPNOTSUPP))
}

fn single(fd: BorrowedFd<'_>, packets: Packets<'_>, range: Range<usize>) -> io::Result<usize> {
    let (first, all) = (range.start, range.len());
    for number in range {
        let mut places = [NOWHERE; 2];
        let filled = packets.gather(number..number + 1, &mut places);
        match send_message(fd, &mut places[..filled], None) {
            Ok(()) => {}
            Err(_) if number > first => return Ok(number - first),
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// One `sendmmsg`. ENOSYS: a sandbox without it.
fn batched(fd: BorrowedFd<'_>, packets: Packets<'_>, range: Range<usize>) -> io::Result<usize> {
    let mut places = [NOWHERE; 2 * SEGMENTS_MAX];
    let mut messages = [empty_messages(); SEGMENTS_MAX];
    for ((number, places), message) in range.clone().zip(places.chunks_mut(2)).zip(&mut messages) {
        message.msg_hdr.msg_iovlen = packets.gather(number..number + 1, places) as _;
        message.msg_hdr.msg_iov = places.as_mut_ptr();
    }
    let (count, flags) = (range.len() as libc::c_uint, libc::MSG_NOSIGNAL);
    // SAFETY: the first `count` messages point into `places`, and those to slices that `packets` borrows; all outlive the call, and
    // the kernel writes only lengths into `messages`, which is ours alone.
    let taken = unsafe { libc::sendmmsg(fd.as_raw_fd(), messages.as_mut_ptr(), count, flags as _) };
    match usize::try_from(taken) {
        Ok(taken) => Ok(taken),
        Err(_) => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOSYS) => single(fd, packets, range),
            error => Err(error),
        },
    }
}

fn empty_messages() -> libc::mmsghdr {
    libc::mmsghdr { msg_hdr: empty_message(), msg_len: 0 }
}

pub(super) fn empty_message() -> libc::msghdr {
    // SAFETY: a struct of integers and pointers, for which zero is a value; some C libraries hide padding in it.
    unsafe { std::mem::zeroed() }
}

fn send_message(fd: BorrowedFd<'_>, places: &mut [libc::iovec], told: Option<&Told>) -> io::Result<()> {
    let mut message = empty_message();
    message.msg_iov = places.as_mut_ptr();
    message.msg_iovlen = places.len() as _;
    if let Some(told) = told {
        message.msg_control = told.bytes().as_ptr().cast_mut().cast();
        message.msg_controllen = told.bytes().len() as _;
    }
    // SAFETY: `message` points to `places` and `told`, and the places to slices borrowed by the caller; all outlive the call, which
    // only reads them. A datagram is taken whole or not at all, so the count that is returned says nothing more.
    let result = unsafe { libc::sendmsg(fd.as_raw_fd(), &message, libc::MSG_NOSIGNAL) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
