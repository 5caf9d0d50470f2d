//! Speeds of the NICs behind paths: how fast each path should be, and whether data leaves by the wrong one.
//!
//! For: weights that shares are held against, and the way round where a name led to a management network.
//! In and out: both ends' interfaces (the peer's are in its offer) and the addresses of paths; weights, or a better path, out.
//! Invariants: no weight where either end does not know its NIC's speed, and none for any path then; a network is called the better one only
//! if an address of each end lies in it, both NICs tell their speed, and it is at least twice as fast.
//! Absent on purpose: finding out whether the peer answers there (the job driver), paths through routers (docs/design/012-paths.md).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use crate::negotiate::Interface;

/// A NIC this many times faster is worth a change of path: less may be lost again to the NUMA node or to the switch behind it.
const FASTER: u64 = 2;

/// Addresses of a path.
pub type Ends = (Option<IpAddr>, IpAddr);

/// An address of this host and the length of its network's prefix.
pub type Own = (IpAddr, u8);

fn nic(all: &[Interface], address: IpAddr) -> Option<&Interface> {
    all.iter().find(|it| it.address.parse::<IpAddr>().is_ok_and(|own| own.to_canonical() == address.to_canonical()))
}

/// Mbit/s of a path: what the slower of its two NICs takes. `None`: one of them does not say.
fn speed_mbit(local: IpAddr, remote: IpAddr, own: &[Interface], theirs: &[Interface]) -> Option<u64> {
    let (here, there) = (nic(own, local)?, nic(theirs, remote)?);
    let speed = here.speed_mbit.min(there.speed_mbit);
    (speed > 0).then_some(u64::from(speed))
}

/// The share that each path should have, of 1; empty: nobody said. The user's weights go before the NICs' speeds.
#[must_use]
pub fn weights(said: &[Option<u32>], ends: &[Ends], own: &[Interface], theirs: &[Interface]) -> Vec<f64> {
    let by_nics = || {
        let each = ends.iter().map(|&(local, remote)| speed_mbit(local?, remote, own, theirs));
        each.collect::<Option<Vec<u64>>>()
    };
    let by_user = || said.iter().map(|it| it.map(u64::from)).collect::<Option<Vec<u64>>>();
    let Some(all) = by_user().or_else(by_nics).filter(|all| all.len() > 1) else { return Vec::new() };
    let sum: u64 = all.iter().sum();
    all.into_iter().map(|weight| weight as f64 / sum as f64).collect()
}

/// A path between two NICs in one network, beside the one that a name led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Better {
    /// This end's address on it.
    pub here: IpAddr,
    /// The peer's.
    pub there: IpAddr,
    /// It, in words: NICs, addresses, speed.
    pub it: String,
    /// The path that the session uses, in words: NICs, addresses, speed.
    pub worse: String,
}

impl Better {
    /// Told where it is used.
    #[must_use]
    pub fn used(&self, named: IpAddr) -> String {
        format!(
            "data goes by {}, not by {} to which the name leads; --path {named} insists on that",
            self.it, self.worse
        )
    }

    /// Told where it is not tried.
    #[must_use]
    pub fn left(&self) -> String {
        let Better { here, there, it, worse } = self;
        format!("data goes by {worse}; faster is {it}, in one network: --path {here}={there} uses it")
    }

    /// Told where it was tried in vain.
    #[must_use]
    pub fn silent(&self, error: &dyn fmt::Display) -> String {
        let Better { there, it, worse, .. } = self;
        format!(
            "data goes by {worse}; faster would be {it}, but the peer does not answer at {there} ({error}): it listens elsewhere, or a filter is between"
        )
    }
}

/// A path that is much faster than the one from `local` to `remote`: between NICs of each end that have an address in one network.
#[must_use]
pub fn better(local: IpAddr, remote: IpAddr, nets: &[Own], own: &[Interface], theirs: &[Interface]) -> Option<Better> {
    let now = speed_mbit(local, remote, own, theirs)?;
    let pairs = nets.iter().flat_map(|&(here, bits)| {
        let there = theirs.iter().filter_map(|it| it.address.parse::<IpAddr>().ok());
        there.filter(move |&there| in_one_network(here, there, bits)).map(move |there| (here, there))
    });
    let known = pairs.filter_map(|(here, there)| Some((speed_mbit(here, there, own, theirs)?, here, there)));
    let (speed, here, there) = known.max_by_key(|(speed, ..)| *speed)?;
    let name = |all: &[Interface], address| nic(all, address).map(|it| it.name.clone()).unwrap_or_default();
    let words =
        |from, to, speed: u64| format!("{} ({from}) to {} ({to}) at {speed} Mbit/s", name(own, from), name(theirs, to));
    (speed >= now * FASTER).then(|| Better {
        here,
        there,
        it: words(here, there, speed),
        worse: words(local, remote, now),
    })
}

/// Two hosts' addresses in one network. Networks of one address, this host's own addresses, and those that mean nothing elsewhere do not count.
fn in_one_network(here: IpAddr, there: IpAddr, bits: u8) -> bool {
    let same = |one: u128, other: u128, width: u8| {
        bits > 0 && bits < width && one != other && (one ^ other) >> (width - bits) == 0
    };
    match (here.to_canonical(), there.to_canonical()) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            !one.is_loopback() && !one.is_link_local() && same(one.to_bits().into(), other.to_bits().into(), 32)
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            !one.is_loopback() && !one.is_unicast_link_local() && same(one.to_bits(), other.to_bits(), 128)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::ToOwned;

    use super::*;

    fn host(nics: &[(&str, &str, u32)]) -> Vec<Interface> {
        let of = |&(name, address, speed_mbit): &(&str, &str, u32)| Interface {
            name: name.to_owned(),
            address: address.to_owned(),
            mtu: 1500,
            speed_mbit,
        };
        nics.iter().map(of).collect()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_path_weighs_what_its_slower_nic_takes_and_nothing_where_one_does_not_say() {
        let own = host(&[("e0", "10.0.1.1", 1000), ("e1", "10.0.2.1", 25_000)]);
        let theirs = host(&[("n0", "10.0.1.2", 10_000), ("n1", "10.0.2.2", 10_000), ("v0", "10.0.3.2", 0)]);
        let ends = [(Some(ip("10.0.1.1")), ip("10.0.1.2")), (Some(ip("::ffff:10.0.2.1")), ip("10.0.2.2"))];
        let weights_of = |said: &[Option<u32>], ends: &[Ends]| weights(said, ends, &own, &theirs);
        assert_eq!(weights_of(&[None, None], &ends), [1.0 / 11.0, 10.0 / 11.0]);
        assert_eq!(weights_of(&[Some(1), Some(3)], &ends), [0.25, 0.75], "the user's word goes first");
        let unknown = [ends[0], (Some(ip("10.0.2.1")), ip("10.0.3.2"))];
        assert!(weights_of(&[None, None], &unknown).is_empty());
        assert!(weights_of(&[None], &ends[..1]).is_empty(), "one path has no share to be wrong");
        assert!(weights_of(&[None, None], &[(None, ip("10.0.1.2")), ends[1]]).is_empty());
    }

    #[test]
    fn a_management_nic_is_left_where_a_faster_network_joins_both_and_only_there() {
        let own = host(&[("mgmt", "192.168.7.5", 1000), ("fast", "10.0.2.1", 100_000), ("br", "172.17.0.1", 10_000)]);
        let theirs = host(&[("m", "192.168.9.6", 1000), ("f", "10.0.2.2", 40_000), ("br", "172.17.0.1", 10_000)]);
        let nets = [(ip("192.168.7.5"), 24), (ip("10.0.2.1"), 24), (ip("172.17.0.1"), 16), (ip("127.0.0.1"), 8)];
        let found = |local, remote| better(ip(local), ip(remote), &nets, &own, &theirs);
        let path = found("192.168.7.5", "192.168.9.6").expect("a better one");
        assert_eq!((path.here, path.there), (ip("10.0.2.1"), ip("10.0.2.2")));
        assert_eq!(path.it, "fast (10.0.2.1) to f (10.0.2.2) at 40000 Mbit/s");
        assert_eq!(path.worse, "mgmt (192.168.7.5) to m (192.168.9.6) at 1000 Mbit/s");
        assert!(path.used(ip("192.168.9.6")).ends_with("--path 192.168.9.6 insists on that"));
        assert!(path.left().contains("--path 10.0.2.1=10.0.2.2"));
        assert!(path.silent(&"connection refused").contains("does not answer at 10.0.2.2 (connection refused)"));
        assert_eq!(found("10.0.2.1", "10.0.2.2"), None);
        // The other end's fast NIC is in a network that this one is not in.
        let elsewhere = host(&[("m", "192.168.9.6", 1000), ("f", "10.0.3.2", 40_000)]);
        assert_eq!(better(ip("192.168.7.5"), ip("192.168.9.6"), &nets, &own, &elsewhere), None);
        // NICs that do not say, and one that is hardly faster.
        let unknown = host(&[("m", "192.168.9.6", 1000), ("f", "10.0.2.2", 0)]);
        assert_eq!(better(ip("192.168.7.5"), ip("192.168.9.6"), &nets, &own, &unknown), None);
        let hardly = host(&[("m", "192.168.9.6", 1000), ("f", "10.0.2.2", 1500)]);
        assert_eq!(better(ip("192.168.7.5"), ip("192.168.9.6"), &nets, &own, &hardly), None);
    }
}
