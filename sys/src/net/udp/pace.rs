//! Departure rates, and who keeps them.
//!
//! What it is for: knowing whether the interface's queue spaces packets out by itself (fq), so that bursts may be long.
//! In: an interface's name, or a connected socket. Out: the queueing discipline.
//! Invariants: an answer of the kernel is read only within the length it gives.
//! Absent on purpose: changing it. SO_TXTIME as well: fq keeps SO_MAX_PACING_RATE between bursts, and within one neither spaces the
//! segments of an offloaded send, which is why the rail sizes its bursts.
//! Sources: rtnetlink(7), linux/rtnetlink.h (struct tcmsg), tc-fq(8), net/sched/sch_fq.c.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

use crate::host;

/// What orders the packets that wait for an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// The interface.
    pub interface: String,
    /// Like `fq`, `fq_codel`, `pfifo_fast`, `noqueue`; for interfaces with several queues, those of the queues if all are alike.
    pub kind: String,
}

impl Queue {
    /// It keeps SO_MAX_PACING_RATE by itself.
    #[must_use]
    pub fn paces(&self) -> bool {
        self.kind == "fq"
    }
}

/// struct nlmsghdr and struct tcmsg.
const HEAD: usize = 16;
const BODY: usize = 20;
/// TC_H_ROOT: hangs on the interface itself.
const ROOT: u32 = 0xffff_ffff;

/// The queue that packets of a bound or connected socket wait in. Errors: the socket has no address yet, or it is on no interface of
/// this namespace; netlink's.
pub fn queue_of(fd: impl AsFd) -> io::Result<Queue> {
    let ip = crate::net::sock::local_addr(fd)?.ip().to_canonical();
    let on = |it: &host::Interface| it.addresses.iter().any(|address| address.to_canonical() == ip);
    let found = host::interfaces()?.into_iter().find(on);
    let interface = found.ok_or_else(|| io::Error::from_raw_os_error(libc::EADDRNOTAVAIL))?.name;
    let kind = kind_of(&interface)?;
    Ok(Queue { interface, kind })
}

/// Timers of this thread fire within a microsecond of when they are due instead of within fifty (the default slack; prctl(2),
/// PR_SET_TIMERSLACK): what paced bursts need. Errors: none known.
pub fn fine_timers() -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?)
}

fn kind_of(interface: &str) -> io::Result<String> {
    // Protocol 0 is NETLINK_ROUTE.
    let netlink = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let index = rustix::net::netdevice::name_to_index(&netlink, interface)?;
    send(&netlink, &dump_request(), SendFlags::empty())?;
    let queues = answers(&netlink, index)?;
    let root = queues.iter().find(|queue| queue.parent == ROOT);
    let Some(root) = root else { return Ok(String::from("noqueue")) };
    // mq only spreads over one queue each; they hang below its handle.
    let mut below = queues.iter().filter(|queue| queue.parent != ROOT && queue.parent >> 16 == root.handle >> 16);
    let child = below.next().filter(|first| below.all(|queue| queue.kind == first.kind));
    match child {
        Some(child) if root.kind.starts_with("mq") => Ok(child.kind.clone()),
        _ => Ok(root.kind.clone()),
    }
}

/// RTM_GETQDISC for all interfaces: kernels filter by interface only since 4.20, so we do.
fn dump_request() -> [u8; HEAD + BODY] {
    let mut bytes = [0; HEAD + BODY];
    bytes[..4].copy_from_slice(&((HEAD + BODY) as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&libc::RTM_GETQDISC.to_ne_bytes());
    bytes[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    bytes
}

#[derive(Debug)]
struct Discipline {
    handle: u32,
    parent: u32,
    kind: String,
}

fn answers(netlink: &OwnedFd, index: u32) -> io::Result<Vec<Discipline>> {
    let mut found = Vec::new();
    // One datagram of a dump has at most 32 KiB (net/netlink/af_netlink.c, netlink_dump).
    let mut bytes = vec![0; 32 << 10];
    loop {
        let (_, filled) = recv(netlink, &mut bytes[..], RecvFlags::empty())?;
        let mut rest = &bytes[..filled.min(bytes.len())];
        if rest.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while let Some(len) = four(rest, 0).map(|len| len as usize).filter(|len| (HEAD..=rest.len()).contains(len)) {
            let kind = u16::from_ne_bytes([rest[4], rest[5]]);
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(found),
                libc::NLMSG_ERROR => {
                    let errno = four(rest, HEAD).map_or(libc::EIO, |code| -(code as i32));
                    return Err(io::Error::from_raw_os_error(errno));
                }
                _ => found.extend(discipline(&rest[HEAD..len], index)),
            }
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        }
    }
}

fn four(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// tcm_ifindex at 4, tcm_handle at 8, tcm_parent at 12, then attributes: length, type, value.
fn discipline(message: &[u8], index: u32) -> Option<Discipline> {
    (four(message, 4)? == index).then_some(())?;
    let mut rest = message.get(BODY..)?;
    loop {
        let len = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let name = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
        let value = rest.get(4..len)?;
        if name == libc::TCA_KIND {
            let kind = String::from_utf8_lossy(value).trim_end_matches('\0').to_owned();
            return Some(Discipline { handle: four(message, 8)?, parent: four(message, 12)?, kind });
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}
