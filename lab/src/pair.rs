//! Two hosts on one wire of the kernel's: no emulator between them, so that nothing but the machine limits what goes over it.
//!
//! For: end-to-end checks, the demo and the races, through `longhaul lab hosts`; checks in Rust, as a library.
//! In and out: nothing → two hosts, each a network and a mount namespace with an address and a /run of its own.
//! Invariants: each host is held by one sleeping process, which ends with the thread that made it; dropping a `Pair` ends whatever runs in
//! its hosts; nothing of the machine outside of them is changed, no name is left in /run/netns.
//! Absent on purpose: links that delay or lose (hosts.rs), root where there is none (whoever wants it begins in a user namespace).

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use sys::event::{Interest, poll};
use sys::signals;
use sys::{netns, veth};

use crate::guard::end_all_of;
use crate::hosts::Side;
use text::exit::{Exit, Failure};

/// Name of the interface on both hosts.
pub const DEVICE: &str = "lh0";
/// The congestion controllers to have, the first that the kernel permits: BBR's pacing costs a path as short as this one four fifths of its rate.
const CONTROLLERS: [&str; 2] = ["cubic", "reno"];

/// Both hosts.
#[derive(Debug)]
pub struct Pair {
    holders: [Child; 2],
    nets: [OwnedFd; 2],
}

/// Address of a host: of a private range (RFC 1918), known to nobody but the two namespaces.
#[must_use]
pub fn address(side: Side) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 8, if side == Side::A { 1 } else { 2 })
}

impl Pair {
    /// Makes them.
    ///
    /// # Errors
    /// What the system refused, in words.
    pub fn make() -> anyhow::Result<Pair> {
        let [a, b] = [(); 2].map(|()| Host::begin());
        let [mut a, mut b] = [a?, b?];
        let nets = [a.net()?, b.net()?];
        veth::make(DEVICE, [nets[0].as_fd(), nets[1].as_fd()])
            .context("two interfaces with one wire could not be made")?;
        for side in Side::BOTH {
            netns::inside(&nets[side.index()], || {
                netns::set_up("lo")?;
                netns::add_address(DEVICE, IpAddr::V4(address(side)), 24)?;
                netns::set_up(DEVICE)?;
                let path = "/proc/sys/net/ipv4/tcp_congestion_control";
                // Where neither is permitted, the machine's own stays.
                let _ = CONTROLLERS.iter().any(|name| std::fs::write(path, name).is_ok());
                Ok(())
            })
            .context("a host's interface could not be set up")?;
        }
        Ok(Pair { holders: [a.take(), b.take()], nets })
    }

    /// The process that holds a host; whoever knows it can go there (`nsenter -t ID -n -m`).
    #[must_use]
    pub fn holder(&self, side: Side) -> u32 {
        self.holders[side.index()].id()
    }

    /// A command that begins on a host.
    ///
    /// # Errors
    /// The host has ended.
    pub fn command(&self, side: Side, program: impl AsRef<Path>) -> anyhow::Result<Command> {
        let mut command = Command::new(program.as_ref());
        let mounts = netns::mounts_of(self.holder(side)).context("the host has ended")?;
        netns::join(&mut command, self.nets[side.index()].try_clone()?, Some(mounts));
        Ok(command)
    }

    /// Does `work` on a thread in a host's network namespace.
    ///
    /// # Errors
    /// Those of `work`; the namespace cannot be entered.
    pub fn inside<T: Send>(&self, side: Side, work: impl FnOnce() -> std::io::Result<T> + Send) -> std::io::Result<T> {
        netns::inside(&self.nets[side.index()], work)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // Whoever cannot be found any more has ended; the holders end in any case.
        let numbers: Vec<u64> = self.nets.iter().filter_map(|net| netns::number(net).ok()).collect();
        end_all_of(&numbers);
        self.holders.iter_mut().for_each(end);
    }
}

fn end(holder: &mut Child) {
    let _ = holder.kill();
    let _ = holder.wait();
}

/// One host while it is made: ends with it unless it is taken.
struct Host(Option<Child>);

impl Host {
    fn begin() -> anyhow::Result<Host> {
        let mut command = Command::new("sleep");
        command.arg("2147483647").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        netns::found(netns::die_with_parent(signals::unblock_in_child(&mut command)));
        let child = command.spawn().map_err(|error| failure(&error))?;
        Ok(Host(Some(child)))
    }

    fn net(&self) -> anyhow::Result<OwnedFd> {
        let id = self.0.as_ref().map_or(0, Child::id);
        netns::net_of(id).context("the namespace of a host cannot be opened")
    }

    fn take(&mut self) -> Child {
        self.0.take().expect("a host is taken once")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(end);
    }
}

fn failure(error: &std::io::Error) -> Failure {
    Exit::of_io(error)
        .fail("make two hosts", format!("a process with namespaces of its own could not be started: {error}"))
        .next("they need root, or root of a user namespace: unshare -Urnm COMMAND")
}

/// `lab hosts`: makes two hosts, says where they are in one line of `NAME=VALUE` words, and stays until its parent or a signal ends it.
///
/// # Errors
/// The hosts could not be made.
pub fn run() -> anyhow::Result<u8> {
    let parent = rustix::process::getppid();
    // Before the hosts are there, so that no end of the caller is missed; nothing has been made that the default way to end would leave behind.
    let signals = signals::watch(&[signals::SIGINT, signals::SIGTERM, signals::SIGHUP])?;
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    if rustix::process::getppid() != parent {
        return Ok(0);
    }
    let pair = Pair::make()?;
    println!(
        "HOLDER_A={} HOLDER_B={} ADDR_A={} ADDR_B={}",
        pair.holder(Side::A),
        pair.holder(Side::B),
        address(Side::A),
        address(Side::B)
    );
    while signals.take().is_none() {
        poll(&[(signals.as_fd(), Interest::Read)], None::<Duration>)?;
    }
    drop(pair);
    Ok(0)
}
