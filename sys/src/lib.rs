//! All `unsafe` of the project is here, and nothing here decides.
//!
//! What it is for: one safe door to the kernel for memory, disk, network, clocks and the host's facts.
//! In and out: plain values and file descriptors; errors are always [`std::io::Error`] with the kernel's number.
//! Invariants: memory lent to the kernel is owned by the ring until the kernel has answered ([`ring`]); every name
//! below a root is resolved beneath that root and through no link ([`fs`]).
//! Absent on purpose: policy. Which engine, socket buffer, congestion control or core to use is asked by callers.
//!
//! Six folders, each using only those before it; the names that read well without their folder stand here once more.

// The memory chunks live in: pools of page-aligned bufs.
pub mod mem;
// Files and folders, beneath a root.
pub mod fs;
// What this machine is and has, its clocks and signals, and what a process may do on it.
pub mod host;
// Sockets, interfaces, and memory that the network reads itself.
mod net;
// The asynchronous door to disk and network, in two engines.
pub mod ring;
// Queue pairs: messages between registered memory here and there.
pub mod rdma;

pub use host::{clock, confine, event, forbid, handed, signals, words};
pub use mem::count;
pub use net::{netns, nic, qdisc, sock, tun, udp, veth};
