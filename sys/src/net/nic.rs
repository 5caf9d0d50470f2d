//! What a network card tells of itself that is not in /sys.
//!
//! What it is for: `host`. In: an interface's name and one of ethtool's questions, or an order. Out: the words of its answer.
//! Invariants: `ask` sets nothing.
//! Absent on purpose: ethtool's netlink family (the old calls answer on every kernel), strings and statistics.

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Rings. linux/ethtool.h; words of the answers, the command first: most rx, mini, jumbo, tx; then these as they are.
pub const RINGS: u32 = 0x10;
/// Interrupt moderation: 1 rx us, 2 rx frames, 5 tx us, 6 tx frames, 10 adaptive rx, 11 adaptive tx.
pub const COALESCING: u32 = 0x0e;
/// Queues: most rx, tx, other, combined; then these as they are.
pub const CHANNELS: u32 = 0x3c;
/// TCP segmentation by the card: 0 or 1.
pub const TSO: u32 = 0x1e;
/// Segmentation just before the card: 0 or 1.
pub const GSO: u32 = 0x23;
/// Joining of received packets: 0 or 1.
pub const GRO: u32 = 0x2b;
/// Bits: 15 LRO, 27 steering by rules (ntuple), 28 receive hash.
pub const FLAGS: u32 = 0x25;

/// Orders: the words of the answer go back, the command changed.
pub const SET_RINGS: u32 = 0x11;
/// Interrupt moderation (`ETHTOOL_SCOALESCE`).
pub const SET_COALESCING: u32 = 0x0f;
/// Number of queues (`ETHTOOL_SCHANNELS`).
pub const SET_CHANNELS: u32 = 0x3d;
/// TCP segmentation by the NIC (`ETHTOOL_STSO`).
pub const SET_TSO: u32 = 0x1f;
/// Segmentation in software, late in the stack (`ETHTOOL_SGSO`).
pub const SET_GSO: u32 = 0x24;
/// Joining of received segments (`ETHTOOL_SGRO`).
pub const SET_GRO: u32 = 0x2c;

/// LRO, ntuple filters, receive hash (`ETHTOOL_SFLAGS`).
pub const SET_FLAGS: u32 = 0x26;

/// linux/sockios.h.
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// The longest answer asked for here: `struct ethtool_coalesce`, 23 words.
pub const WORDS: usize = 32;

/// Asks a card. Errors: ENODEV, EOPNOTSUPP (the driver does not tell), EPERM.
pub fn ask(name: &str, question: u32) -> io::Result<[u32; WORDS]> {
    let mut words = [0_u32; WORDS];
    words[0] = question;
    exchange(name, words)
}

/// Tells a card: an answer of `ask` with the order as its first word. Errors: as for `ask`, EINVAL.
pub fn tell(name: &str, words: &[u32; WORDS]) -> io::Result<()> {
    exchange(name, *words).map(drop)
}

fn exchange(name: &str, mut words: [u32; WORDS]) -> io::Result<[u32; WORDS]> {
    let fd = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut request = crate::net::netns::request(name)?;
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: SIOCETHTOOL reads and writes one `ifreq`, and the structure of the command at `ifru_data`: for those above at most 23
    // words, and `words`, which outlives the call, has 32.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), SIOCETHTOOL, &mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(words) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_answers_and_what_is_not_there_does_not() {
        let words = ask("lo", GSO).unwrap();
        assert!(words[1] <= 1, "{words:?}");
        assert_eq!(ask("no-such-card", GSO).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert!(ask("lo", RINGS).is_err(), "the loopback has no rings");
    }
}
