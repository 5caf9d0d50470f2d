//! Rates as the kernel's counters of interfaces have them, and bytes of the wire with the headers of packets.
//!
//! For: the report: goodput, what that is on the wire, and what somebody else counted, side by side.
//! In and out: both ends' counts, paths and addresses in; records of `--json`, a line of text each, and the sums for `check`, out.
//! Invariants: only interfaces are shown that moved a part of the job worth naming; counters have all traffic, the job's and others'.
//! Absent on purpose: reading counters (job::driver::beside::nics), judging (check).

use std::fmt::Write as _;

use proto::negotiate::{Interface, NicCount};
use serde::{Deserialize, Serialize};

use super::clean;
use crate::job::driver::PathShare;
use crate::job::driver::beside::nics::{Counted, Headers};
use text::units::show_bits_per_second;

/// Ethernet's header and checksum, bytes a frame (IEEE 802.3, without preamble and gap).
const ETHERNET_BYTES: u64 = 14 + 4;
/// A TCP header with timestamps (RFC 9293, RFC 7323).
const TCP_BYTES: u32 = 20 + 12;
/// A UDP header.
const UDP_BYTES: u32 = 8;
/// An interface that moved less of what its end counted did not carry the job.
const NAMED: f64 = 0.02;

/// One interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NicRecord {
    /// `local`, `remote`.
    pub end: String,
    /// As the kernel calls it.
    pub name: String,
    /// The path that begins or ends at one of its addresses; `null`: not known.
    pub path: Option<String>,
    /// bit/s over the job, all traffic.
    pub sent_bps: f64,
    /// As `sent_bps`.
    pub received_bps: f64,
}

impl NicRecord {
    /// A line of the end report.
    pub fn show(&self, text: &mut String) {
        let end = if self.end == "remote" { "other end" } else { "this end" };
        let (sent, received) = (show_bits_per_second(self.sent_bps), show_bits_per_second(self.received_bps));
        let path = self.path.as_ref().map_or_else(String::new, |path| format!(" (path {})", clean(path)));
        let _ = writeln!(text, "  NIC         {end}, {}: sent {sent}, received {received}{path}", clean(&self.name));
    }
}

/// Both ends' interfaces.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NicRates {
    /// Those that carried the job, this end's first.
    pub records: Vec<NicRecord>,
    /// Bytes that all interfaces of this end, and of the other, counted the way of the data; `None`: not known.
    pub counted: (Option<u64>, Option<u64>),
}

impl NicRates {
    /// From both ends' counts. `sends`: this end does.
    #[must_use]
    pub fn of(counted: &Counted, sends: bool, paths: &[PathShare], seconds: f64) -> Self {
        let (here, there) = &counted.offered;
        let mut rates = Self::default();
        let mut end = |name: &str, counts: &[NicCount], offered: &[Interface], sends: bool| {
            let of = |it: &NicCount| if sends { it.sent_bytes } else { it.received_bytes };
            let sum = counts.iter().fold(0_u64, |sum, it| sum.saturating_add(of(it)));
            let bps = |bytes: u64| bytes as f64 * 8.0 / seconds.max(1e-9);
            let is_named = |it: &&NicCount| of(it) > 0 && of(it) as f64 >= sum as f64 * NAMED;
            rates.records.extend(counts.iter().filter(is_named).map(|it| NicRecord {
                end: name.to_owned(),
                name: it.name.clone(),
                path: path_at(&it.name, offered, paths),
                sent_bps: bps(it.sent_bytes),
                received_bps: bps(it.received_bytes),
            }));
            (!counts.is_empty()).then_some(sum)
        };
        let counted = (end("local", &counted.own, here, sends), end("remote", &counted.theirs, there, !sends));
        Self { counted, ..rates }
    }
}

/// The path with an end at this interface.
fn path_at(name: &str, offered: &[Interface], paths: &[PathShare]) -> Option<String> {
    let of_path = |path: &PathShare, address: &str| path.name.split(['=', ' ']).any(|word| word == address);
    let addresses = || offered.iter().filter(|it| it.name == name).map(|it| it.address.as_str());
    paths.iter().find(|path| addresses().any(|address| of_path(path, address))).map(|path| path.name.clone())
}

/// Bytes on the wire of so many that connections carried; `datagrams`: those of which so many packets were datagrams of our own.
#[must_use]
pub fn wire_bytes(headers: Headers, bytes: u64, datagrams: u64) -> u64 {
    let ethernet = ETHERNET_BYTES + u64::from(headers.ip);
    let most = u64::from(headers.mtu.saturating_sub(headers.ip + TCP_BYTES).max(500));
    // What datagrams carried is not in streams: at most a packet of the path's size each.
    let by_datagrams =
        datagrams.saturating_mul(u64::from(headers.mtu.saturating_sub(headers.ip + UDP_BYTES))).min(bytes);
    let segments = (bytes - by_datagrams).div_ceil(most);
    let streams = segments.saturating_mul(ethernet + u64::from(TCP_BYTES));
    bytes.saturating_add(streams).saturating_add(datagrams.saturating_mul(ethernet + u64::from(UDP_BYTES)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: &str, sent_bytes: u64, received_bytes: u64) -> NicCount {
        NicCount { name: name.to_owned(), sent_bytes, received_bytes }
    }

    #[test]
    fn interfaces_that_carried_are_named_with_their_path_and_all_are_summed() {
        let address = |name: &str, address: &str| Interface {
            name: name.to_owned(),
            address: address.to_owned(),
            mtu: 1500,
            speed_mbit: 0,
        };
        let (here, there) = ([address("eth0", "10.0.0.1"), address("eth1", "10.1.0.1")], [address("ens3", "10.0.0.2")]);
        let path = |name: &str| PathShare { name: name.to_owned(), bytes: 1, weight: None, was_off: false };
        let paths = [path("10.0.0.1=10.0.0.2"), path("10.1.0.1=10.1.0.2")];
        let own = vec![count("eth0", 600_000_000, 7), count("eth1", 400_000_000, 9), count("lo", 1000, 1000)];
        let (headers, offered) = (Headers { mtu: 1500, ip: 20 }, (here.to_vec(), there.to_vec()));
        let counted = Counted { own, theirs: vec![count("ens3", 5, 990_000_000)], offered, headers };
        let rates = NicRates::of(&counted, true, &paths, 8.0);
        assert_eq!(rates.counted, (Some(1_000_001_000), Some(990_000_000)));
        let mut text = String::new();
        rates.records.iter().for_each(|it| it.show(&mut text));
        let wanted = "  NIC         this end, eth0: sent 600 Mbit/s, received 7.00 bit/s (path 10.0.0.1=10.0.0.2)\n  \
                      NIC         this end, eth1: sent 400 Mbit/s, received 9.00 bit/s (path 10.1.0.1=10.1.0.2)\n  \
                      NIC         other end, ens3: sent 5.00 bit/s, received 990 Mbit/s (path 10.0.0.1=10.0.0.2)\n";
        assert_eq!(text, wanted);
        let blank = Counted { own: Vec::new(), theirs: Vec::new(), ..counted };
        assert_eq!(NicRates::of(&blank, true, &paths, 8.0), NicRates::default(), "nobody counted");
    }

    #[test]
    fn the_wire_has_headers_of_ip_and_ethernet_in_it() {
        let headers = Headers { mtu: 1500, ip: 20 };
        // 1448 bytes a segment, each with 70 beside them.
        assert_eq!(wire_bytes(headers, 1_448_000, 0), 1_448_000 + 1000 * 70);
        // 1472 a datagram, with 46.
        assert_eq!(wire_bytes(headers, 1_472_000, 1000), 1_472_000 + 1000 * 46);
        assert_eq!(wire_bytes(Headers { mtu: 9000, ip: 40 }, 8928, 0), 8928 + 90);
        assert_eq!(wire_bytes(Headers { mtu: 0, ip: 0 }, u64::MAX, u64::MAX), u64::MAX);
    }
}
