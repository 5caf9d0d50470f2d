//! Where others reach this daemon.
//!
//! For: the address that `serve` prints, which must be right as it stands when it is pasted on another host.
//! In and out: the bound address, `--public` and the host's interfaces → hosts and ports, the best first.
//! Invariants: nothing is sent to find out; an address that only this host can reach is named only where there is no other.
//! Absent on purpose: asking somebody outside which address a NAT shows (`--public` says it).

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

use sys::host::Interface;

use crate::address::{ADDRESSES_MAX, AddressFault, host_and_port, spell};

/// As many are printed: the line is to be read and pasted.
const PRINTED_MAX: usize = 4;

/// One word of `--public`: the name or address, perhaps with a port, under which clients reach this daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicName {
    host: String,
    /// `None`: the one that is listened on.
    port: Option<u16>,
}

impl FromStr for PublicName {
    type Err = AddressFault;

    fn from_str(text: &str) -> Result<PublicName, AddressFault> {
        // Also without brackets: nothing follows that the colons could be taken for.
        let bare = text.parse::<Ipv6Addr>().map(|address| format!("[{address}]"));
        let text = bare.as_deref().unwrap_or(text);
        let (host, port) = host_and_port(text.as_bytes())?;
        let has_port = text.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
        Ok(PublicName { host, port: has_port.then_some(port) })
    }
}

/// As the config file has them.
#[must_use]
pub fn show(names: &[PublicName]) -> String {
    let one = |name: &PublicName| name.port.map_or_else(|| name.host.clone(), |port| spell(&name.host, port));
    if names.is_empty() { "found".to_owned() } else { names.iter().map(one).collect::<Vec<_>>().join(" ") }
}

/// The hosts and ports by which clients reach a daemon that listens at `bound`: what its user named, the address itself, or those of this host.
#[must_use]
pub fn hosts(bound: SocketAddr, public: &[PublicName]) -> Vec<String> {
    if !public.is_empty() {
        let spelt = |name: &PublicName| spell(&name.host, name.port.unwrap_or(bound.port()));
        return public.iter().take(ADDRESSES_MAX).map(spelt).collect();
    }
    if !bound.ip().to_canonical().is_unspecified() {
        return vec![bound.to_string()];
    }
    let interfaces = sys::host::interfaces().unwrap_or_default();
    // The kernel's choice for documentation's networks (RFC 5737, 3849), which no route but the default one leads to. Nothing is sent.
    let by_default: Vec<IpAddr> =
        ["192.0.2.1:9", "[2001:db8::1]:9"].iter().filter_map(|to| source_towards(to)).collect();
    let found = reachable(&interfaces, &by_default, bound.is_ipv6());
    found.into_iter().map(|ip| SocketAddr::new(ip, bound.port()).to_string()).collect()
}

/// This host's own address on packets to there.
fn source_towards(to: &str) -> Option<IpAddr> {
    let to: SocketAddr = to.parse().ok()?;
    let any: IpAddr = if to.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { std::net::Ipv4Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// Those of the default route first, then IPv4 before IPv6, one of each kind of an interface. With nothing else: the loopback.
fn reachable(interfaces: &[Interface], by_default: &[IpAddr], with_ipv6: bool) -> Vec<IpAddr> {
    let useful = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local() && !ip.is_unspecified(),
        IpAddr::V6(ip) => with_ipv6 && !ip.is_loopback() && !ip.is_unicast_link_local() && !ip.is_unspecified(),
    };
    let mut found: Vec<IpAddr> = by_default.iter().copied().filter(useful).collect();
    for want_ipv6 in [false, true] {
        // Bridges of containers and guests lead to those alone; one that leads outside has the default route or is named with --public.
        for interface in interfaces.iter().filter(|it| it.up && !it.loopback && !it.bridge) {
            let of_kind = || interface.addresses.iter().copied().filter(|ip| ip.is_ipv6() == want_ipv6 && useful(ip));
            if !of_kind().any(|ip| found.contains(&ip)) {
                found.extend(of_kind().next());
            }
        }
    }
    found.truncate(PRINTED_MAX);
    if found.is_empty() {
        let loopback = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
        found.push(loopback);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(words: &str) -> Vec<IpAddr> {
        words.split_whitespace().map(|word| word.parse().unwrap()).collect()
    }

    fn interface(name: &str, addresses: &str) -> Interface {
        Interface { name: name.to_owned(), addresses: ips(addresses), up: true, ..Interface::default() }
    }

    #[test]
    fn the_default_routes_address_comes_first_and_none_that_only_this_host_reaches() {
        let host = [
            Interface { bridge: true, ..interface("docker0", "172.17.0.1") },
            Interface { up: false, ..interface("down", "192.0.2.99") },
            interface("eth0", "198.51.100.7 2001:db8::7 2001:db8::8 fe80::7"),
            interface("ib0", "10.0.0.7 169.254.1.1"),
            Interface { loopback: true, ..interface("lo", "127.0.0.1 ::1") },
        ];
        let of = |with_ipv6| reachable(&host, &ips("10.0.0.7 2001:db8::8"), with_ipv6);
        assert_eq!(of(false), ips("10.0.0.7 198.51.100.7"));
        // Of eth0 the one that the kernel itself sends from, and no second one.
        assert_eq!(of(true), ips("10.0.0.7 2001:db8::8 198.51.100.7"));
        // The host's way out is a bridge.
        assert_eq!(reachable(&host[..1], &ips("172.17.0.1"), false), ips("172.17.0.1"));
        assert_eq!(reachable(&host[4..], &[], true), ips("127.0.0.1"));
        let many: Vec<Interface> = (0..9).map(|n| interface(&format!("eth{n}"), &format!("10.0.{n}.1"))).collect();
        assert_eq!(reachable(&many, &ips("10.0.8.1"), true).len(), PRINTED_MAX);
    }

    #[test]
    fn what_the_user_names_is_what_is_printed() {
        let bound = "0.0.0.0:5741".parse().unwrap();
        let names: Vec<PublicName> =
            ["data.example.org", "2001:db8::7", "[2001:db8::7]:99", "192.0.2.7:1"].map(|it| it.parse().unwrap()).into();
        let wanted = ["data.example.org:5741", "[2001:db8::7]:5741", "[2001:db8::7]:99", "192.0.2.7:1"];
        assert_eq!(hosts(bound, &names), wanted);
        assert_eq!(show(&names), "data.example.org 2001:db8::7 [2001:db8::7]:99 192.0.2.7:1");
        assert_eq!(hosts("192.0.2.7:5740".parse().unwrap(), &[]), ["192.0.2.7:5740"]);
        for bad in ["", "a b", "h:0", "h:x", "[::1", "longhaul://h"] {
            assert!(bad.parse::<PublicName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_daemon_on_all_addresses_names_none_that_cannot_be_dialled() {
        for bound in ["0.0.0.0:7", "[::]:7"] {
            let found = hosts(bound.parse().unwrap(), &[]);
            assert!(!found.is_empty() && found.len() <= PRINTED_MAX, "{found:?}");
            for host in found {
                let address: SocketAddr = host.parse().unwrap();
                assert!(!address.ip().is_unspecified() && address.port() == 7, "{address}");
            }
        }
    }
}
