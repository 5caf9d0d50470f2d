//! What the programs in the two hosts use, and how much has come over the link, while a run lasts.
//!
//! For: contestants that tell neither their processor time nor their memory, and the tail of every transfer.
//! In and out: numbers of the hosts' namespaces, the link's counts → processor time, peak memory of each host, the time from 99 % of the bytes on.
//! Invariants: only processes inside of the two hosts are counted; what a process used after the last look before its end is missing
//! (at most `LOOK_NS` of it).
//! Absent on purpose: judgement.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;

use sys::clock::now_ns;

/// Processes are looked at so often.
const LOOK_NS: u64 = 100_000_000;
/// USER_HZ, 100 on every architecture that Longhaul knows (include/asm-generic/param.h).
const TICK_NS: u64 = 10_000_000;
/// From here on it is the tail.
const TAIL_PERCENT: u64 = 99;

/// A process inside of a host.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    cpu_ns: u64,
    peak_bytes: u64,
}

/// What was seen so far.
#[derive(Debug)]
pub struct Meter {
    hosts: [u64; 2],
    seen: [HashMap<u32, Seen>; 2],
    looked_ns: u64,
    arrived: Vec<(u64, u64)>,
}

impl Meter {
    /// Over hosts a and b, by the numbers of their network namespaces.
    #[must_use]
    pub fn new(hosts: [u64; 2]) -> Meter {
        Meter { hosts, seen: Default::default(), looked_ns: 0, arrived: Vec::new() }
    }

    /// A look, with what host b has been given so far, bytes on the wire.
    pub fn look(&mut self, arrived_bytes: u64) {
        let now_ns = now_ns();
        if self.arrived.last().is_none_or(|&(_, bytes)| bytes != arrived_bytes) {
            self.arrived.push((now_ns, arrived_bytes));
        }
        if now_ns < self.looked_ns + LOOK_NS {
            return;
        }
        self.looked_ns = now_ns;
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let Ok(meta) = std::fs::metadata(entry.path().join("ns/net")) else { continue };
            let Some(side) = self.hosts.iter().position(|&host| host == meta.ino()) else { continue };
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            let seen = self.seen[side].entry(number).or_default();
            seen.cpu_ns = seen.cpu_ns.max(cpu_ns(&stat).unwrap_or(0));
            seen.peak_bytes = seen.peak_bytes.max(peak_bytes(&status).unwrap_or(0));
        }
    }

    /// Processor time of all that ran in both hosts, ns.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        self.seen.iter().flat_map(HashMap::values).map(|seen| seen.cpu_ns).sum()
    }

    /// The largest process of each host, bytes.
    #[must_use]
    pub fn peak_bytes(&self) -> [u64; 2] {
        self.seen.each_ref().map(|host| host.values().map(|seen| seen.peak_bytes).max().unwrap_or(0))
    }

    /// From the moment at which 99 % of the bytes had come until `end_ns`.
    #[must_use]
    pub fn tail_ns(&self, end_ns: u64) -> Option<u64> {
        let all = self.arrived.last()?.1;
        let (at_ns, _) = self.arrived.iter().find(|&&(_, bytes)| bytes * 100 >= all * TAIL_PERCENT)?;
        Some(end_ns.saturating_sub(*at_ns))
    }
}

/// Fields 14 and 15 of /proc/PID/stat (proc(5)); the name in brackets may hold blanks and brackets.
fn cpu_ns(stat: &str) -> Option<u64> {
    let rest = stat.rsplit_once(')')?.1;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) * TICK_NS)
}

/// `VmHWM` of /proc/PID/status; a process that has ended has none.
fn peak_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "42 (a) b (c) R 1 42 42 0 -1 4194304 100 0 0 0 7 5 0 0 20 0 1 0 100 1000 200 18446744073709551615";
        assert_eq!(cpu_ns(stat), Some(120_000_000));
        assert_eq!(cpu_ns("42 (a) R 1"), None);
        assert_eq!(peak_bytes("Name:\tx\nVmHWM:\t    2048 kB\n"), Some(2 << 20));
        assert_eq!(peak_bytes("Name:\tx\n"), None);
    }

    #[test]
    fn the_tail_begins_when_all_but_a_hundredth_has_come() {
        let mut meter = Meter::new([0, 0]);
        meter.arrived = vec![(10, 100), (20, 980), (30, 995), (40, 1000)];
        assert_eq!(meter.tail_ns(100), Some(70));
        assert_eq!(Meter::new([0, 0]).tail_ns(100), None);
    }
}
