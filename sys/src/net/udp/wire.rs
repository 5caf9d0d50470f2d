//! Control messages and addresses as the kernel lays them out in bytes.
//!
//! What it is for: building and reading them without a pointer. In and out: aligned byte arrays.
//! Invariants: nothing the kernel wrote is read beyond the length it gave.
//! Absent on purpose: more than one control message on the way out.
//! Sources: linux/socket.h (struct cmsghdr), linux/in.h, linux/in6.h.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// `cmsg_len`, `cmsg_level`, `cmsg_type`; what follows is aligned like `cmsg_len`.
const HEAD: usize = size_of::<usize>() + 8;

const fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(size_of::<usize>())
}

/// One control message to send.
#[derive(Debug)]
#[repr(C, align(8))]
pub(super) struct Told([u8; aligned(HEAD) + 8]);

impl Told {
    /// UDP_SEGMENT: cut what is sent into packets of so many bytes.
    pub(super) fn segment(bytes: u16) -> Told {
        let mut told = [0; aligned(HEAD) + 8];
        let value = bytes.to_ne_bytes();
        told[..size_of::<usize>()].copy_from_slice(&(aligned(HEAD) + value.len()).to_ne_bytes());
        told[HEAD - 8..HEAD - 4].copy_from_slice(&libc::SOL_UDP.to_ne_bytes());
        told[HEAD - 4..HEAD].copy_from_slice(&libc::UDP_SEGMENT.to_ne_bytes());
        told[aligned(HEAD)..aligned(HEAD) + value.len()].copy_from_slice(&value);
        Told(told)
    }

    /// What the kernel is shown: whole, with its padding.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Room for what the kernel tells with a burst: its segment, when it came, and its marks and where it was sent for one family or, on sockets of
/// both, for either.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Heard(pub(super) [u8; HEARD_BYTES]);

/// Three words of up to 8 bytes, one of a `timespec`, two of an `in6_pktinfo` at most.
const HEARD_BYTES: usize = 3 * (aligned(HEAD) + 8) + aligned(HEAD) + 16 + 2 * (aligned(HEAD) + 24);

/// What was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Words {
    /// Bytes of a packet, if the kernel joined several.
    pub(super) segment: Option<usize>,
    /// The ECN field.
    pub(super) ecn: u8,
    /// When the kernel had it: nanoseconds of the calendar.
    pub(super) came_ns: Option<u64>,
    /// The address of this host that it was sent to, see `set_telling_place`.
    pub(super) to: Option<IpAddr>,
}

impl Heard {
    pub(super) const EMPTY: Heard = Heard([0; HEARD_BYTES]);

    /// What the first `filled` bytes say.
    pub(super) fn read(&self, filled: usize) -> Words {
        let mut words = Words::default();
        let mut rest = &self.0[..filled.min(self.0.len())];
        while let Some((head, more)) = rest.split_at_checked(HEAD) {
            let (len, place) = head.split_at(HEAD - 8);
            let len = usize::from_ne_bytes(len.try_into().expect("the size of a length"));
            let number = |at: usize| i32::from_ne_bytes(place[at..at + 4].try_into().expect("four bytes"));
            let Some(data) =
                len.checked_sub(aligned(HEAD)).and_then(|bytes| more.get(aligned(HEAD) - HEAD..)?.get(..bytes))
            else {
                break;
            };
            let int = || data.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
            match (number(0), number(4)) {
                (libc::SOL_UDP, libc::UDP_GRO) => words.segment = int().and_then(|bytes| usize::try_from(bytes).ok()),
                (libc::IPPROTO_IP, libc::IP_TOS) => words.ecn |= data.first().copied().unwrap_or(0) & 0b11,
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => words.ecn |= int().unwrap_or(0) as u8 & 0b11,
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => words.to = destination(data).or(words.to),
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => words.to = destination6(data).or(words.to),
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => words.came_ns = calendar_ns(data),
                _ => {}
            }
            rest = rest.get(aligned(len)..).unwrap_or(&[]);
        }
        words
    }
}

/// `struct in_pktinfo`: index, this host's address, the header's.
fn destination(data: &[u8]) -> Option<IpAddr> {
    let ip: [u8; 4] = *data.get(8..)?.first_chunk()?;
    Some(Ipv4Addr::from(ip).into())
}

/// `struct in6_pktinfo`: the header's address, index. Of a packet of IPv4 it is a mapped one.
fn destination6(data: &[u8]) -> Option<IpAddr> {
    let ip: [u8; 16] = *data.first_chunk()?;
    Some(Ipv6Addr::from(ip).to_canonical())
}

/// A `struct timespec` as nanoseconds; none where its fields are not 64 bits long.
fn calendar_ns(data: &[u8]) -> Option<u64> {
    let (seconds, rest) = data.split_first_chunk::<8>()?;
    let ns = u64::try_from(i64::from_ne_bytes(*rest.first_chunk()?)).ok()?;
    u64::try_from(i64::from_ne_bytes(*seconds)).ok()?.checked_mul(1_000_000_000)?.checked_add(ns)
}

/// Room for an address of either family (struct sockaddr_in6 is the longer).
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Name(pub(super) [u8; 28]);

impl Name {
    pub(super) const EMPTY: Name = Name([0; 28]);

    /// The address in the first `filled` bytes, if it is one of the internet's.
    pub(super) fn read(&self, filled: usize) -> Option<SocketAddr> {
        let bytes = &self.0[..filled.min(self.0.len())];
        let family = u16::from_ne_bytes(*bytes.first_chunk()?);
        let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
        match i32::from(family) {
            libc::AF_INET => {
                let ip: [u8; 4] = *bytes.get(4..)?.first_chunk()?;
                Some(SocketAddrV4::new(Ipv4Addr::from(ip), port).into())
            }
            libc::AF_INET6 => {
                let flow = u32::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
                let ip: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
                let scope = u32::from_ne_bytes(*bytes.get(24..)?.first_chunk()?);
                Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_told_as_the_c_macros_would() {
        let told = Told::segment(1472);
        // SAFETY: CMSG_LEN computes a size and touches no memory.
        let len = unsafe { libc::CMSG_LEN(2) } as usize;
        // SAFETY: CMSG_SPACE computes a size and touches no memory.
        let space = unsafe { libc::CMSG_SPACE(2) } as usize;
        assert_eq!(told.bytes()[..size_of::<usize>()], len.to_ne_bytes());
        assert_eq!((told.bytes().len(), told.bytes()[len - 2..len].to_vec()), (space, 1472u16.to_ne_bytes().to_vec()));
    }

    #[test]
    fn half_a_message_and_nonsense_are_read_as_nothing() {
        let mut heard = Heard::EMPTY;
        assert_eq!(heard.read(heard.0.len()), Words::default());
        heard.0.fill(0xff);
        assert_eq!(heard.read(heard.0.len()), Words::default());
        assert_eq!(heard.read(7), Words::default());
        assert_eq!(Name::EMPTY.read(28), None);
        let mut name = Name::EMPTY;
        name.0[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        assert_eq!((name.read(16), name.read(28).map(|addr| addr.is_ipv6())), (None, Some(true)));
    }
}
