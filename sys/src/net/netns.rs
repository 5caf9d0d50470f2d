//! Network namespaces, and the few things that are set in one.
//!
//! What it is for: the lab's hosts. In: descriptors of namespaces, names of interfaces, addresses. Out: descriptors that keep a
//! namespace alive; what runs in one.
//! Invariants: only threads made here, or children, change their namespace, except by [`enter`] and [`new_user`], whose callers know
//! it; a namespace has no name and ends with its last descriptor and process.
//! Absent on purpose: netlink, routes beyond the one an address brings, bridges, and names in /run/netns.

use std::ffi::CStr;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// A namespace of its own for network, empty but for a loopback that is down. Errors: EPERM, ENOSPC (user.max_net_namespaces),
/// ENOSYS.
pub fn new_net() -> io::Result<OwnedFd> {
    // A thread of its own: it alone goes over, and the caller stays where it was.
    let maker = std::thread::Builder::new().name("netns".to_owned()).spawn(|| {
        // SAFETY: NEWNET changes which interfaces this thread sees; it shares no memory or descriptors less than before.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
        open_namespace("/proc/thread-self/ns/net")
    })?;
    maker.join().unwrap_or_else(|_| Err(io::Error::other("the thread that makes a namespace panicked")))
}

/// Makes this process root of a user namespace of its own; the user and group it runs as are the only ones there. For a process
/// with one thread. Errors: EPERM (not allowed here), ENOSPC (user.max_user_namespaces), EINVAL (several threads).
pub fn new_user() -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    // SAFETY: NEWUSER changes rights and ids only; memory and descriptors stay shared as they were.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }?;
    // man user_namespaces: without this the group map may not be written.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
    std::fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))
}

/// This process's user namespace. Errors: ENOENT (no /proc).
pub fn user() -> io::Result<OwnedFd> {
    open_namespace("/proc/self/ns/user")
}

/// The calling thread's network namespace. Errors: ENOENT (no /proc).
pub fn net() -> io::Result<OwnedFd> {
    open_namespace("/proc/thread-self/ns/net")
}

fn open_namespace(path: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// The number by which two descriptors of namespaces, or links in /proc/PID/ns, are told to be the same.
pub fn number(namespace: impl AsFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(namespace)?.st_ino)
}

/// Moves the calling thread, and the children it will have, into a network namespace. Errors: EPERM, EINVAL.
pub fn enter(namespace: impl AsFd) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Moves this process into a user namespace, in which its user is then root. For a process with one thread. Errors: EPERM, EINVAL
/// (already there).
pub fn enter_user(namespace: impl AsFd) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User))?)
}

/// Does `work` inside of a network namespace, on a thread of its own. Errors: those of `enter` and of `work`.
pub fn inside<T: Send>(namespace: impl AsFd, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let namespace = namespace.as_fd();
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, move || {
            enter(namespace)?;
            work()
        })?;
        worker.join().unwrap_or_else(|_| Err(io::Error::other("a thread inside of a namespace panicked")))
    })
}

/// Makes a child end (SIGKILL) when the thread that starts it ends, however that comes about.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    let bind = || Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: between fork and exec `bind` makes one system call (prctl) and allocates nothing.
    unsafe { command.pre_exec(bind) }
}

/// Gives a child a network and a mount namespace of its own, with a /run of its own in it; mounts there are seen nowhere else. Errors of
/// its start: EPERM, ENOSPC (user.max_net_namespaces, user.max_mnt_namespaces).
pub fn found(command: &mut Command) -> &mut Command {
    let found = || {
        // SAFETY: NEWNET and NEWNS change which interfaces and mounts this process sees; it has one thread, which shares nothing.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET | UnshareFlags::NEWNS) }?;
        mount(c"/", c"", libc::MS_PRIVATE | libc::MS_REC)?;
        // A host without one is a host all the same: only a few programs want their folder there (sshd).
        let _ = mount(c"/run", c"tmpfs", 0);
        Ok(())
    };
    // SAFETY: between fork and exec `found` makes three system calls (unshare, mount twice) on constant texts and allocates nothing.
    unsafe { command.pre_exec(found) }
}

/// mount(2) of a file system that needs no device. Allocates nothing.
fn mount(target: &CStr, kind: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the call reads three texts that end with a zero, and no data.
    let result = unsafe { libc::mount(c"none".as_ptr(), target.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets a child begin in a network namespace, and in a mount namespace where one is given. Errors of its start: EPERM.
pub fn join(command: &mut Command, net: OwnedFd, mounts: Option<OwnedFd>) -> &mut Command {
    let join = move || {
        move_into_link_name_space(net.as_fd(), Some(LinkNameSpaceType::Network))?;
        if let Some(mounts) = &mounts {
            move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec `join` makes two system calls (setns) on descriptors that the command owns and allocates nothing.
    unsafe { command.pre_exec(join) }
}

/// The network namespace of another process. Errors: ENOENT (it has ended), EPERM.
pub fn net_of(process: u32) -> io::Result<OwnedFd> {
    open_namespace(&format!("/proc/{process}/ns/net"))
}

/// The mount namespace of another process. Errors: as above.
pub fn mounts_of(process: u32) -> io::Result<OwnedFd> {
    open_namespace(&format!("/proc/{process}/ns/mnt"))
}

/// Makes a child the leader of a session of its own: the terminal's Ctrl-C is not for it.
pub fn detach(command: &mut Command) -> &mut Command {
    let detach = || {
        rustix::process::setsid()?;
        Ok(())
    };
    // SAFETY: between fork and exec `detach` makes one system call (setsid) and allocates nothing.
    unsafe { command.pre_exec(detach) }
}

/// An `ifreq` with the interface's name. Errors: EINVAL (no name, longer than 15 bytes, or with a zero).
pub(crate) fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: an `ifreq` is integers, for which zero is a value, in a union of plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// `struct in6_ifreq` (linux/ipv6.h).
#[repr(C)]
struct Request6 {
    address: [u8; 16],
    prefix_bits: u32,
    index: libc::c_int,
}

fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

fn ask(fd: BorrowedFd<'_>, what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the SIOC calls used in this file (netdevice(7)) read and write one `ifreq` each.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), what, request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets an interface of this thread's namespace up. Errors: ENODEV, EPERM.
pub fn set_up(name: &str) -> io::Result<()> {
    let fd = socket(AddressFamily::INET)?;
    let mut request = request(name)?;
    ask(fd.as_fd(), libc::SIOCGIFFLAGS as libc::Ioctl, &mut request)?;
    // SAFETY: SIOCGIFFLAGS has just filled this member of the union.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as i16;
    ask(fd.as_fd(), libc::SIOCSIFFLAGS as libc::Ioctl, &mut request)
}

/// Sets the MTU, bytes of an IP packet. Errors: EINVAL (out of range), ENODEV, EPERM.
pub fn set_mtu(name: &str, bytes: u32) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_mtu = i32::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    ask(socket(AddressFamily::INET)?.as_fd(), libc::SIOCSIFMTU as libc::Ioctl, &mut request)
}

/// Sets how many packets wait in the interface before it drops. Errors: ENODEV, EPERM.
pub fn set_queue_packets(name: &str, packets: u32) -> io::Result<()> {
    let mut request = request(name)?;
    // ifr_qlen is an int where the MTU is (linux/if.h).
    request.ifr_ifru.ifru_mtu = i32::try_from(packets).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    ask(socket(AddressFamily::INET)?.as_fd(), libc::SIOCSIFTXQLEN as libc::Ioctl, &mut request)
}

/// Gives an interface an address and the route to its neighbours. An IPv4 address takes the place of the one before, IPv6 ones add up.
/// Errors: EINVAL, ENODEV, EPERM, EAFNOSUPPORT or EACCES (no IPv6 here), EEXIST.
pub fn add_address(name: &str, address: IpAddr, prefix_bits: u8) -> io::Result<()> {
    match address {
        IpAddr::V4(address) => {
            let fd = socket(AddressFamily::INET)?;
            let mut request = request(name)?;
            request.ifr_ifru.ifru_addr = internet(u32::from(address));
            ask(fd.as_fd(), libc::SIOCSIFADDR as libc::Ioctl, &mut request)?;
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix_bits.min(32))).unwrap_or(0);
            request.ifr_ifru.ifru_netmask = internet(mask);
            ask(fd.as_fd(), libc::SIOCSIFNETMASK as libc::Ioctl, &mut request)
        }
        IpAddr::V6(address) => six(name, address.octets(), prefix_bits, libc::SIOCSIFADDR as libc::Ioctl),
    }
}

/// Takes an IPv6 address from an interface. Errors: EADDRNOTAVAIL, ENODEV, EPERM.
pub fn remove_address6(name: &str, address: std::net::Ipv6Addr, prefix_bits: u8) -> io::Result<()> {
    six(name, address.octets(), prefix_bits, libc::SIOCDIFADDR as libc::Ioctl)
}

fn six(name: &str, address: [u8; 16], prefix_bits: u8, what: libc::Ioctl) -> io::Result<()> {
    let fd = socket(AddressFamily::INET6)?;
    let mut named = request(name)?;
    ask(fd.as_fd(), libc::SIOCGIFINDEX as libc::Ioctl, &mut named)?;
    // SAFETY: SIOCGIFINDEX has just filled this member of the union.
    let index = unsafe { named.ifr_ifru.ifru_ifindex };
    let mut request = Request6 { address, prefix_bits: u32::from(prefix_bits), index };
    // SAFETY: on an IPv6 socket SIOCSIFADDR and SIOCDIFADDR read one `in6_ifreq`, which `Request6` is.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), what, &mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A `sockaddr` that holds an IPv4 address, as the ioctls want it.
fn internet(address: u32) -> libc::sockaddr {
    // SAFETY: a `sockaddr` is integers, for which zero is a value.
    let mut out: libc::sockaddr = unsafe { std::mem::zeroed() };
    out.sa_family = libc::AF_INET as libc::sa_family_t;
    // `sockaddr_in` (netinet/in.h): two bytes of port, then the address in network order.
    for (to, from) in out.sa_data[2..6].iter_mut().zip(address.to_be_bytes()) {
        *to = from as libc::c_char;
    }
    out
}

/// Below the kernel's own interrupt threads (50), above whatever a user gives to a program that is to be measured.
const PROMPT: i32 = 40;

/// Puts the calling thread before all ordinary ones (SCHED_RR); what it starts later is ordinary again. Errors: EPERM.
pub fn be_prompt() -> io::Result<()> {
    // SAFETY: a `sched_param` is integers, for which zero is a value.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = PROMPT;
    // SAFETY: the call reads `param`; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &param) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets the calling thread's timers go off when they are due, not up to 50 us later (prctl(2), PR_SET_TIMERSLACK).
pub fn exact_timers() {
    // Not to be granted is no failure: packets are then some us late, and counted as such.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}
