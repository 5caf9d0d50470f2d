//! Two network interfaces that are the ends of one wire of the kernel's.
//!
//! For: the lab's hosts that need a wire as fast as the kernel has one. In: names and network namespaces. Out: nothing; both are down and
//! without an address.
//! Invariants: both ends are made where they belong: the caller's own namespace has neither for a moment.
//! Absent on purpose: bridges, and links that delay or lose (the lab's own, over [`crate::tun`]).
//! Sources: veth(4), linux/if_link.h, linux/veth.h.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::netlink::{ACK, CREATE, Message, exchange};

/// RTM_NEWLINK.
const NEW_LINK: u16 = 16;
/// What is there already is an error (EEXIST), not changed.
const EXCLUSIVE: u16 = 0x200;
/// IFLA_IFNAME, IFLA_LINKINFO, IFLA_NET_NS_FD.
const NAME: u16 = 3;
const LINK_INFO: u16 = 18;
const NAMESPACE: u16 = 28;
/// IFLA_INFO_KIND, IFLA_INFO_DATA; VETH_INFO_PEER.
const KIND: u16 = 1;
const DATA: u16 = 2;
const PEER: u16 = 1;
/// ifinfomsg with nothing said: family, type, index, flags, which flags change.
const ANY: [u32; 4] = [0; 4];

/// Makes both ends, each under this name in its network namespace. Errors: EPERM, EEXIST, EOPNOTSUPP (a kernel without veth).
pub fn make(name: &str, namespaces: [BorrowedFd<'_>; 2]) -> io::Result<()> {
    let [here, there] = namespaces;
    exchange(&message(name, here.as_raw_fd() as u32, there.as_raw_fd() as u32), |_| Ok(()))
}

fn message(name: &str, here: u32, there: u32) -> Vec<u8> {
    let mut out = Message::new(NEW_LINK, ACK | CREATE | EXCLUSIVE);
    out.words(&ANY);
    out.text(NAME, name);
    out.number(NAMESPACE, here);
    out.nest(LINK_INFO, |info| {
        info.text(KIND, "veth");
        info.nest(DATA, |data| {
            data.nest(PEER, |peer| {
                peer.words(&ANY);
                peer.text(NAME, name);
                peer.number(NAMESPACE, there);
            });
        });
    });
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::netlink::{HEAD, half, word};

    #[test]
    fn the_peer_is_within_the_data_of_its_kind() {
        let bytes = message("lh0", 7, 8);
        assert_eq!((word(&bytes, 0).unwrap() as usize, bytes.len() % 4), (bytes.len(), 0));
        // Behind the body: a name of 8 bytes, a namespace of 8, and all the rest is of the kind.
        let at = HEAD + 16 + 16;
        assert_eq!(
            (usize::from(half(&bytes, at).unwrap()), half(&bytes, at + 2).unwrap()),
            (bytes.len() - at, LINK_INFO)
        );
        assert_eq!(word(&bytes, bytes.len() - 4).unwrap(), 8);
    }

    #[test]
    fn a_name_that_no_interface_can_have_is_refused() {
        let net = crate::netns::net().unwrap();
        let namespaces = [std::os::fd::AsFd::as_fd(&net); 2];
        assert!(make("a name that is far longer than fifteen", namespaces).is_err());
    }
}
