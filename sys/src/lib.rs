//! All `unsafe` of the project is here, and nothing here decides.
//!
//! What it is for: one safe door to the kernel for memory, disk, network, clocks and the host's facts.
//! In and out: plain values and file descriptors; errors are always [`std::io::Error`] with the kernel's number.
//! Invariants: memory lent to the kernel is owned by the ring until the kernel has answered ([`ring`]); every name
//! below a root is resolved beneath that root and through no link ([`fs`]).
//! Absent on purpose: policy. Which engine, socket buffer, congestion control or core to use is asked by callers.
//!
//! Contents, in the order in which data moves:

// The memory chunks live in: pools of page-aligned bufs.
pub mod mem;

// The asynchronous door to disk and network, in two engines.
pub mod ring;
// Its engine on io_uring.
mod uring;
// Its engine on plain system calls.
mod plain;

// Files and folders, beneath a root.
pub mod fs;
// TCP sockets: listen, connect, options, and what the kernel knows of a path.
pub mod sock;
// Memory that the network reads itself.
mod pipe;
// UDP sockets: bursts of packets in one call.
pub mod udp;

// Waking a thread that waits in the kernel, and waiting for several descriptors.
pub mod event;
// The words of the command line, as others see them.
pub mod words;
// Signals as something to read.
pub mod signals;
// What time it is, and what the process has used.
pub mod clock;
// What this machine is and has.
pub mod host;
// An allocator that counts, for tests.
pub mod count;
// System calls that fail, for tests.
pub mod forbid;
// For the lab: network interfaces whose wire is a descriptor, and hosts made of namespaces.
pub mod tun;
pub mod netns;
pub mod nic;
pub mod qdisc;
// Giving up rights, for good.
pub mod confine;
