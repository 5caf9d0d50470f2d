//! Two hosts and the links between them.
//!
//! For: `lab run` and `lab up`. In and out: settings of links → namespaces, TUN devices, addresses and running directions.
//! Invariants: the hosts are anonymous namespaces, held by descriptors of this process and by what runs in them; dropping a `Lab`
//! leaves nothing; nothing of the machine outside of the two namespaces is changed.
//! Absent on purpose: commands and their ends (run.rs), words (settings.rs).

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::Context;
use sys::netns;
use sys::tun::Offloads;

use crate::settings::{AB, BA, LinkSettings};
use crate::wire::emulator::{Direction, Told};
use crate::wire::line::{self, Line};
use crate::wire::link::{Link, bytes_in};
use text::exit::{Exit, Failure};

/// As many as fit into the third byte of the addresses.
pub const LINKS_MAX: usize = 64;
/// Packets that wait in a host's device for the emulator: 2 ms at a million packets a second; at most 128 MiB of super-packets.
const DEVICE_PACKETS: u32 = 2_000;
/// Blocks for what is read but not yet queued, and what waits for its last run: some bursts of 64 KiB.
const SLACK_BYTES: u64 = 8 << 20;
/// With neither a rate nor a memory given, what the wire may hold: 10 Gbit/s × 50 ms.
const FREE_FLIGHT_BYTES: u64 = 64 << 20;

/// The side of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The one the command runs on.
    A,
    /// The other.
    B,
}

impl Side {
    /// Side a first.
    pub const BOTH: [Side; 2] = [Side::A, Side::B];

    /// `a` or `b`.
    #[must_use]
    pub fn word(self) -> &'static str {
        ["a", "b"][self.index()]
    }

    /// From the user's word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Side> {
        Side::BOTH.into_iter().find(|side| side.word() == word)
    }

    /// 0 or 1.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

/// Address of a side of a link: private ranges (RFC 1918, RFC 4193), known to nobody but the two namespaces.
#[must_use]
pub fn address4(link: usize, side: Side) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, u8::try_from(link).unwrap_or(u8::MAX), if side == Side::A { 1 } else { 2 })
}

/// The same for IPv6.
#[must_use]
pub fn address6(link: usize, side: Side) -> Ipv6Addr {
    let link = u16::try_from(link).unwrap_or(u16::MAX);
    Ipv6Addr::new(0xfd99, link, 0, 0, 0, 0, 0, if side == Side::A { 1 } else { 2 })
}

/// Name of a link's device, the same on both hosts.
#[must_use]
pub fn device(link: usize) -> String {
    format!("link{link}")
}

/// How the emulator is made.
#[derive(Debug, Clone, Copy)]
pub struct Making<'a> {
    /// First number of all chance.
    pub seed: u64,
    /// Bytes that the emulator's pools may have in all; `None`: what the links need.
    pub memory_bytes: Option<u64>,
    /// Packets of a burst due within so much time are delivered together, ns.
    pub granule_ns: u64,
    /// Congestion control of TCP; `None`: the machine's.
    pub tcp: Option<&'a str>,
}

/// One link at work.
#[derive(Debug)]
pub struct LiveLink {
    /// What it is like now.
    pub settings: LinkSettings,
    /// `AB` and `BA`.
    pub directions: [Direction; 2],
    /// Each side's address now.
    pub addresses: [Ipv4Addr; 2],
    /// There is IPv6.
    pub has_v6: bool,
}

/// The hosts, the links, and their memory.
#[derive(Debug)]
pub struct Lab {
    /// Network namespaces of a and b.
    pub hosts: [OwnedFd; 2],
    /// The links.
    pub links: Vec<LiveLink>,
    /// What packets the devices hand over uncut.
    pub offloads: Offloads,
    /// Bytes of all pools.
    pub memory_bytes: u64,
    /// Less than what the links need was allowed.
    pub is_short: bool,
}

/// Bytes of blocks that a direction needs: what is on the wire and in the queue. Packets are stored on cache lines with their runs'
/// heads, which costs at most an eighth at ordinary sizes.
fn need_bytes(settings: &LinkSettings, direction: usize) -> u64 {
    let wire = &settings.wires[direction];
    if wire.rate_bps == 0 {
        return if wire.delay_ns == 0 { SLACK_BYTES } else { SLACK_BYTES + FREE_FLIGHT_BYTES };
    }
    let held = wire.flight_bytes().saturating_add(wire.queue_bytes(settings.rtt_ns()));
    held.saturating_add(held / 8).saturating_add(SLACK_BYTES)
}

impl Lab {
    /// Makes all of it.
    ///
    /// # Errors
    /// What the system refused, in words.
    pub fn make(links: &[LinkSettings], making: Making<'_>) -> anyhow::Result<Lab> {
        let hosts = [(); 2].map(|()| netns::new_net());
        let [a, b] = hosts;
        let hosts =
            [a.context("a network namespace could not be made")?, b.context("a network namespace could not be made")?];
        for host in &hosts {
            netns::inside(host, || netns::set_up("lo")).context("the loopback of a host could not be set up")?;
            set_tcp(host, links, making.tcp)?;
        }
        let needed: u64 = links.iter().flat_map(|link| [need_bytes(link, AB), need_bytes(link, BA)]).sum();
        let allowed = making.memory_bytes.unwrap_or(needed);
        let mut lab = Lab {
            hosts,
            links: Vec::new(),
            offloads: Offloads::default(),
            memory_bytes: 0,
            is_short: allowed < needed,
        };
        for (number, settings) in links.iter().enumerate() {
            let blocks = [AB, BA].map(|direction| {
                let need = u128::from(need_bytes(settings, direction));
                u64::try_from(need * u128::from(allowed) / u128::from(needed.max(1))).unwrap_or(u64::MAX)
            });
            lab.memory_bytes += blocks.into_iter().map(line::memory_bytes).sum::<u64>();
            let live = lab.connect(number, settings, making, blocks)?;
            lab.links.push(live);
        }
        Ok(lab)
    }

    fn connect(
        &mut self,
        number: usize,
        settings: &LinkSettings,
        making: Making<'_>,
        blocks: [u64; 2],
    ) -> anyhow::Result<LiveLink> {
        let mut ends: Vec<Arc<File>> = Vec::new();
        let mut has_v6 = true;
        for side in Side::BOTH {
            let made = netns::inside(&self.hosts[side.index()], || make_device(number, side, settings.mtu));
            let (file, offloads, six) = made.map_err(|error| tun_failure(&error))?;
            self.offloads = offloads;
            has_v6 &= six;
            ends.push(Arc::new(file));
        }
        let start = |direction: usize| {
            let seed = making.seed.wrapping_add((number * 2 + direction) as u64);
            let link = Link::new(settings.wires[direction], settings.rtt_ns(), seed);
            let line = Line::new(link, blocks[direction], making.granule_ns).context(
                "there is not enough memory for what the link holds; give --memory or a smaller rate or delay",
            )?;
            let (from, to) = (Arc::clone(&ends[direction]), Arc::clone(&ends[1 - direction]));
            let name = format!("{}{number}", ["ab", "ba"][direction]);
            Direction::start(name, line, from, to).context("a thread of the emulator could not be started")
        };
        let directions = [start(AB)?, start(BA)?];
        let addresses = [address4(number, Side::A), address4(number, Side::B)];
        Ok(LiveLink { settings: *settings, directions, addresses, has_v6 })
    }

    /// A command that begins on a host, and sees what [`Lab::environment`] says.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn command(&self, side: Side, program: impl AsRef<Path>) -> anyhow::Result<Command> {
        let mut command = Command::new(program.as_ref());
        command.envs(self.environment());
        netns::join(&mut command, self.hosts[side.index()].try_clone()?, None);
        Ok(command)
    }

    /// Changes a link while it runs.
    ///
    /// # Errors
    /// There is no such link; an interface refused the MTU.
    pub fn set(&mut self, number: usize, settings: LinkSettings) -> anyhow::Result<()> {
        let count = self.links.len();
        let link = self.links.get_mut(number);
        let link = link.with_context(|| format!("there is no link {number}; they are numbered 0 to {}", count - 1))?;
        if settings.mtu != link.settings.mtu {
            for host in &self.hosts {
                netns::inside(host, || netns::set_mtu(&device(number), settings.mtu))
                    .with_context(|| format!("link {number} does not take an MTU of {}", settings.mtu))?;
            }
        }
        link.settings = settings;
        for direction in [AB, BA] {
            link.directions[direction].shared().set(settings.wires[direction], settings.rtt_ns());
        }
        Ok(())
    }

    /// Gives a host another IPv4 address on a link; connections from the old one are dead, as after a move to another network.
    ///
    /// # Errors
    /// There is no such link; the address is not of the link's network, or taken.
    pub fn move_host(&mut self, side: Side, number: usize, address: Ipv4Addr) -> anyhow::Result<()> {
        let link = self.links.get_mut(number).with_context(|| format!("there is no link {number}"))?;
        let [one, two, three, last] = address.octets();
        let [net_one, net_two, net_three, _] = link.addresses[0].octets();
        let is_inside = [one, two, three] == [net_one, net_two, net_three] && !matches!(last, 0 | 255);
        anyhow::ensure!(
            is_inside && link.addresses[1 - side.index()] != address,
            "{address} is not free in {net_one}.{net_two}.{net_three}.0/24, the network of link {number}"
        );
        netns::inside(&self.hosts[side.index()], || netns::add_address(&device(number), IpAddr::V4(address), 24))
            .context("the address could not be set")?;
        link.addresses[side.index()] = address;
        Ok(())
    }

    /// Stops all directions; what each has done, `AB` and `BA` of each link.
    pub fn stop(&mut self) -> Vec<[Told; 2]> {
        self.links.iter_mut().map(|link| [AB, BA].map(|direction| link.directions[direction].stop())).collect()
    }

    /// What a command sees: LONGHAUL_LAB_A and _B (of link 0), and of every link LONGHAUL_LAB_A0, _B0, _A0_V6, ...
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let mut pairs = vec![("LONGHAUL_LAB_LINKS".to_owned(), self.links.len().to_string())];
        for (number, link) in self.links.iter().enumerate() {
            for side in Side::BOTH {
                let letter = side.word().to_uppercase();
                let address = link.addresses[side.index()].to_string();
                if number == 0 {
                    pairs.push((format!("LONGHAUL_LAB_{letter}"), address.clone()));
                }
                pairs.push((format!("LONGHAUL_LAB_{letter}{number}"), address));
                if link.has_v6 {
                    pairs.push((format!("LONGHAUL_LAB_{letter}{number}_V6"), address6(number, side).to_string()));
                }
            }
        }
        pairs
    }
}

/// TCP's windows fit the longest link twice (CUBIC's buffer holds what is in flight and what must be repaired), so that they are
/// not what limits it there; they are never made smaller than the machine's.
fn set_tcp(host: &OwnedFd, links: &[LinkSettings], congestion: Option<&str>) -> anyhow::Result<()> {
    let fits = links.iter().flat_map(|link| {
        link.wires
            .iter()
            .map(|wire| 2 * (bytes_in(wire.rate_bps, link.rtt_ns()).saturating_add(wire.queue_bytes(link.rtt_ns()))))
    });
    // An int in the kernel (net/ipv4/sysctl_net_ipv4.c).
    let wanted = fits.max().unwrap_or(0).min(i32::MAX as u64);
    netns::inside(host, || {
        for name in ["tcp_rmem", "tcp_wmem"] {
            let path = format!("/proc/sys/net/ipv4/{name}");
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let values: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            if let [least, first, most] = values[..]
                && most < wanted
            {
                // A machine that forbids it is slower, and that is what is then measured.
                let _ = std::fs::write(path, format!("{least} {first} {wanted}"));
            }
        }
        Ok(())
    })?;
    let Some(name) = congestion else { return Ok(()) };
    netns::inside(host, || std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", name))
        .with_context(|| format!("this kernel does not let the hosts have '{name}' as congestion control"))
}

/// A device with its addresses, up, in this thread's namespace; whether it has IPv6.
fn make_device(number: usize, side: Side, mtu: u32) -> io::Result<(File, Offloads, bool)> {
    let name = device(number);
    let (file, offloads) = sys::tun::open(&name)?;
    netns::set_mtu(&name, mtu)?;
    // Root of a user namespace alone may not (net/core/dev_ioctl.c asks for the machine's own right): then it is the kernel's 500.
    let _ = netns::set_queue_packets(&name, DEVICE_PACKETS);
    // The kernel makes no link-local addresses and sends no router solicitations over a wire that the user measures.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/addr_gen_mode"), "1");
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/router_solicitations"), "0");
    netns::add_address(&name, IpAddr::V4(address4(number, side)), 24)?;
    netns::set_up(&name)?;
    let six = netns::add_address(&name, IpAddr::V6(address6(number, side)), 64);
    Ok((file, offloads, six.is_ok()))
}

fn tun_failure(error: &io::Error) -> Failure {
    let next = match error.kind() {
        io::ErrorKind::NotFound => "this kernel has no TUN devices (/dev/net/tun): as root, try `modprobe tun`",
        io::ErrorKind::PermissionDenied => {
            "/dev/net/tun is not open to this user: let root run `chmod 666 /dev/net/tun`, or run this as root"
        }
        _ => "docs/lab.md says what a lab needs",
    };
    Exit::of_io(error).fail("make the lab", format!("a TUN device could not be made: {error}")).next(next)
}
