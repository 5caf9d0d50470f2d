//! TUN devices: a network interface whose wire is a descriptor.
//!
//! What it is for: the lab's emulator reads what one host sends and writes what the other receives. In: a name. Out: a
//! non-blocking file; each read or write is one packet, [`VNET_HEADER_BYTES`] of virtio header before its IP header.
//! Invariants: the device lives in the network namespace of the thread that opened it, and as long as the file.
//! Absent on purpose: addresses and MTU ([`crate::net::netns`]), Ethernet frames, several queues, and what the packets mean.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

/// `struct virtio_net_hdr` (linux/virtio_net.h): flags, gso_type, then hdr_len, gso_size, csum_start, csum_offset as
/// little-endian u16.
pub const VNET_HEADER_BYTES: usize = 10;
/// The largest packet the kernel hands over: GSO_LEGACY_MAX_SIZE (linux/netdevice.h), which bounds TUN devices.
pub const PACKET_BYTES_MAX: usize = 65_536;

// linux/if_tun.h.
const TUNSETIFF: libc::Ioctl = 0x4004_54ca_u32 as libc::Ioctl;
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0_u32 as libc::Ioctl;
const TUNSETVNETHDRSZ: libc::Ioctl = 0x4004_54d8_u32 as libc::Ioctl;
const TUNSETVNETLE: libc::Ioctl = 0x4004_54dc_u32 as libc::Ioctl;
const IFF_TUN: i16 = 0x0001;
const IFF_NO_PI: i16 = 0x1000;
const IFF_VNET_HDR: i16 = 0x4000;
const TUN_F_CSUM: u32 = 0x01;
const TUN_F_TSO4: u32 = 0x02;
const TUN_F_TSO6: u32 = 0x04;
const TUN_F_TSO_ECN: u32 = 0x08;
const TUN_F_USO4: u32 = 0x20;
const TUN_F_USO6: u32 = 0x40;

/// Which packets the kernel hands over uncut and without checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offloads {
    /// TCP, IPv4 and IPv6.
    pub tcp: bool,
    /// UDP, IPv4 and IPv6 (Linux 6.2).
    pub udp: bool,
}

/// Makes a TUN device called `name` (at most 15 bytes) in this thread's network namespace, down and without address, and asks for
/// every offload the kernel has. Errors: ENOENT (no TUN in this kernel), EACCES, EPERM, EBUSY (the name is taken), EINVAL.
pub fn open(name: &str) -> io::Result<(File, Offloads)> {
    let fd = rustix::fs::open("/dev/net/tun", OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let mut request = crate::net::netns::request(name)?;
    request.ifr_ifru.ifru_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which `request` is.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETIFF, &mut request) })?;
    let header_bytes = VNET_HEADER_BYTES as libc::c_int;
    // SAFETY: TUNSETVNETHDRSZ reads one int.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETVNETHDRSZ, &header_bytes) })?;
    // The header's order of bytes is the machine's unless asked; little endian everywhere is one reader less.
    let little: libc::c_int = 1;
    // SAFETY: TUNSETVNETLE reads one int.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETVNETLE, &little) })?;
    let offloads = ask_offloads(&fd);
    Ok((File::from(fd), offloads))
}

/// The most the kernel grants: it refuses a set with one flag it does not know (drivers/net/tun.c, set_offload).
fn ask_offloads(fd: &OwnedFd) -> Offloads {
    let tcp = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
    let attempts = [(tcp | TUN_F_USO4 | TUN_F_USO6, true, true), (tcp, true, false), (0, false, false)];
    for (flags, tcp, udp) in attempts {
        // SAFETY: TUNSETOFFLOAD takes its argument by value.
        let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), TUNSETOFFLOAD, libc::c_ulong::from(flags)) };
        if result == 0 {
            return Offloads { tcp, udp };
        }
    }
    Offloads::default()
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
