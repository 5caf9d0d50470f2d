//! Interfaces of this machine.
//!
//! What it is for: which paths there may be, how fast, and what went over them. In: getifaddrs(3), /sys/class/net, /proc/net/dev. Out: one record each.
//! Invariants: the list of getifaddrs is freed once, after the last look at it.
//! Absent on purpose: routes; a connected socket knows its own.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interface {
    /// Like `eth0`.
    pub name: String,
    /// Addresses of both families, in the kernel's order.
    pub addresses: Vec<IpAddr>,
    /// How many bits of each of them name its network.
    pub prefixes: Vec<u8>,
    /// Bytes per packet; 0 if unknown.
    pub mtu: u32,
    /// Bits per second; `None` for interfaces without a speed (virtual ones) or without a link.
    pub speed_bps: Option<u64>,
    /// Switched on, and with a link.
    pub up: bool,
    /// Leads back to this machine.
    pub loopback: bool,
    /// Joins others, as those of containers and guests do.
    pub bridge: bool,
}

impl Interface {
    /// Each address with the bits of its network.
    pub fn networks(&self) -> impl Iterator<Item = (IpAddr, u8)> + '_ {
        self.addresses.iter().copied().zip(self.prefixes.iter().copied())
    }
}

/// Bits of a mask that are set: they are its first.
fn ones(mask: IpAddr) -> u8 {
    let count = match mask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    count as u8
}

/// All interfaces, by name. Errors: ENOMEM and those of netlink.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut found: BTreeMap<String, Interface> = BTreeMap::new();
    let list = AddressList::new()?;
    for entry in list.iter() {
        let name = name_of(entry);
        let interface = found.entry(name.clone()).or_insert_with(|| facts(name, entry.ifa_flags));
        if let Some(address) = address_of(entry, |it| it.ifa_addr) {
            interface.addresses.push(address);
            interface.prefixes.push(address_of(entry, |it| it.ifa_netmask).map_or(0, ones));
        }
    }
    Ok(found.into_values().collect())
}

/// What an interface counted since it was made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InterfaceCounts {
    /// Like `eth0`.
    pub name: String,
    /// Bytes sent, heads of the link included.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
}

/// Of all interfaces of the calling thread's network namespace. Errors: those of reading /proc.
pub fn interface_counts() -> io::Result<Vec<InterfaceCounts>> {
    // Not /sys/class/net, which shows the namespace that it was mounted in.
    Ok(counts_of(&std::fs::read_to_string("/proc/thread-self/net/dev")?))
}

fn counts_of(table: &str) -> Vec<InterfaceCounts> {
    let line = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        // Linux, Documentation/networking/statistics: eight columns of receiving, then those of sending; bytes come first.
        let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let (received_bytes, sent_bytes) = (*numbers.first()?, *numbers.get(8)?);
        Some(InterfaceCounts { name: name.trim().to_owned(), sent_bytes, received_bytes })
    };
    table.lines().filter_map(line).collect()
}

fn facts(name: String, flags: u32) -> Interface {
    let read = |fact: &str| std::fs::read_to_string(format!("/sys/class/net/{name}/{fact}")).ok();
    let number = |fact: &str| read(fact).and_then(|text| text.trim().parse::<i64>().ok());
    let has = |flag: i32| flags & flag as u32 != 0;
    Interface {
        mtu: number("mtu").and_then(|mtu| u32::try_from(mtu).ok()).unwrap_or(0),
        // Mbit/s; -1 where the driver does not know.
        speed_bps: number("speed").and_then(|speed| u64::try_from(speed).ok()).map(|speed| speed * 1_000_000),
        up: has(libc::IFF_UP) && has(libc::IFF_RUNNING),
        loopback: has(libc::IFF_LOOPBACK),
        bridge: std::path::Path::new(&format!("/sys/class/net/{name}/bridge")).is_dir(),
        addresses: Vec::new(),
        prefixes: Vec::new(),
        name,
    }
}

/// Owns what getifaddrs has made.
struct AddressList(*mut libc::ifaddrs);

impl AddressList {
    fn new() -> io::Result<AddressList> {
        let mut first = std::ptr::null_mut();
        // SAFETY: `first` is writable; on success it points to a list that only we know.
        let result = unsafe { libc::getifaddrs(&mut first) };
        if result == 0 { Ok(AddressList(first)) } else { Err(io::Error::last_os_error()) }
    }

    fn iter(&self) -> impl Iterator<Item = &libc::ifaddrs> {
        // SAFETY: null at the end of the list, otherwise an entry that lives until the drop of `self`, which is borrowed.
        let step = |at: *mut libc::ifaddrs| unsafe { at.as_ref() };
        std::iter::successors(step(self.0), move |entry| step(entry.ifa_next))
    }
}

impl Drop for AddressList {
    fn drop(&mut self) {
        // SAFETY: the list of `new`, freed once; references to entries cannot outlive `self`.
        unsafe { libc::freeifaddrs(self.0) };
    }
}

fn name_of(entry: &libc::ifaddrs) -> String {
    // SAFETY: getifaddrs gives each entry a name that ends with a zero byte and lives as long as the entry.
    unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned()
}

/// Its address, or the mask of its network.
fn address_of(entry: &libc::ifaddrs, which: fn(&libc::ifaddrs) -> *mut libc::sockaddr) -> Option<IpAddr> {
    let of = which(entry);
    // SAFETY: null, or an address that lives as long as the entry; its family comes first in all kinds of addresses.
    let family = i32::from(unsafe { of.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: the family says that it is a sockaddr_in, which malloc (getifaddrs) has aligned for.
            let address = unsafe { &*of.cast::<libc::sockaddr_in>() };
            Some(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is a sockaddr_in6, which malloc (getifaddrs) has aligned for.
            let address = unsafe { &*of.cast::<libc::sockaddr_in6>() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_column_and_heads_are_no_interface() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets\n    \
                     lo: 900 9 0 0 0 0 0 0 800 8 0 0 0 0 0 0\neth0.7:12 1 0 0 0 0 0 0 34 1 0 0 0 0 0 0\nbroken: 1 2\n";
        let counts = |name: &str, received_bytes, sent_bytes| InterfaceCounts {
            name: name.to_owned(),
            sent_bytes,
            received_bytes,
        };
        assert_eq!(counts_of(table), [counts("lo", 900, 800), counts("eth0.7", 12, 34)]);
        assert!(interface_counts().is_ok_and(|all| all.iter().any(|it| it.name == "lo")), "each namespace has it");
    }
}
