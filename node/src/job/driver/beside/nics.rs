//! What the interfaces of this end counted while the job ran.
//!
//! For: a check of the report's rates by somebody else's figures, the kernel's.
//! In and out: the kernel's counters at the beginning and later in; the difference for the peer (the frame NicCounts) and for the report out.
//! Invariants: where the session's own address is on none of this process's interfaces (a socket from another network namespace), or on the loopback
//! one, nothing is said: these counters would not be the path's.
//! Absent on purpose: judging (node::report::check), which NIC a path should use (proto::session::nic_speeds).

use std::net::IpAddr;

use proto::negotiate::{INTERFACES_MAX, Interface, NicCount};
use proto::session::replan::Offers;
use sys::host::InterfaceCounts;

use crate::link::Link;

/// Bytes of a packet where the kernel does not say: Ethernet's.
const MTU: u32 = 1500;

/// Counters when the job began, and what a packet of its session has beside payload.
#[derive(Debug)]
pub(in crate::job::driver) struct Nics {
    /// `None`: they would not be the path's.
    from: Option<Vec<InterfaceCounts>>,
    headers: Headers,
    /// What the peer said.
    pub(in crate::job::driver) theirs: Vec<NicCount>,
}

/// For the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// What this end's interfaces counted; empty: not known.
    pub own: Vec<NicCount>,
    /// And the peer's.
    pub theirs: Vec<NicCount>,
    /// Addresses of this end's interfaces, and of the peer's.
    pub offered: (Vec<Interface>, Vec<Interface>),
    /// Of the path's packets.
    pub headers: Headers,
}

/// What packets of the job's path are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// Bytes of the longest IP packet.
    pub mtu: u32,
    /// Bytes of an IP header.
    pub ip: u32,
}

impl Nics {
    pub(in crate::job::driver) fn new(link: &Link) -> Nics {
        let local = link.local_addr().map(|it| it.ip().to_canonical());
        let is_here = |local: IpAddr| {
            let all = sys::host::interfaces().unwrap_or_default();
            all.iter().any(|it| !it.loopback && it.addresses.contains(&local))
        };
        let is_counted = local.is_some_and(|local| !local.is_loopback() && is_here(local));
        let info = local.and_then(|_| sys::sock::tcp_info(link.as_fd()).ok());
        let mtu = info.map(|info| info.pmtu).filter(|mtu| *mtu > 0).unwrap_or(MTU);
        Nics {
            from: if is_counted { sys::host::interface_counts().ok() } else { None },
            theirs: Vec::new(),
            headers: Headers { mtu, ip: if local.is_some_and(|local| local.is_ipv6()) { 40 } else { 20 } },
        }
    }

    /// At the end of the job.
    pub(in crate::job::driver) fn counted(&self, offers: Option<&Offers>) -> Counted {
        let offered = |it: &Offers| {
            let (initiator, acceptor) = (it.initiator.interfaces.clone(), it.acceptor.interfaces.clone());
            if it.is_initiator { (initiator, acceptor) } else { (acceptor, initiator) }
        };
        Counted {
            own: self.since(),
            theirs: self.theirs.clone(),
            offered: offers.map(offered).unwrap_or_default(),
            headers: self.headers,
        }
    }

    /// What each counted since, the busiest first.
    pub(in crate::job::driver) fn since(&self) -> Vec<NicCount> {
        let (Some(from), Ok(now)) = (&self.from, sys::host::interface_counts()) else { return Vec::new() };
        let since = |now: InterfaceCounts| {
            let from = from.iter().find(|it| it.name == now.name).cloned().unwrap_or_default();
            NicCount {
                sent_bytes: now.sent_bytes.saturating_sub(from.sent_bytes),
                received_bytes: now.received_bytes.saturating_sub(from.received_bytes),
                name: now.name,
            }
        };
        let mut counts: Vec<NicCount> = now.into_iter().map(since).collect();
        counts.sort_by_key(|it| std::cmp::Reverse(it.sent_bytes.saturating_add(it.received_bytes)));
        counts.truncate(INTERFACES_MAX);
        counts
    }
}
