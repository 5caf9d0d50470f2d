//! All `unsafe` of the project is here, and nothing here decides.
//!
//! What it is for: one safe door to the kernel for memory, disk, network, clocks and the host's facts.
//! In and out: plain values and file descriptors; errors are always [`std::io::Error`] with the kernel's number.
//! Invariants: memory lent to the kernel is owned by the ring until the kernel has answered ([`ring`]); every name
//! below a root is resolved beneath that root and through no link ([`fs`]).
//! Absent on purpose: policy. Which engine, socket buffer, congestion control or core to use is asked by callers.
//!
//! Contents, in the order in which data moves:
#![cfg_attr(not(target_os = "linux"), allow(unused))]

/// The memory chunks live in: pools of page-aligned bufs.
pub mod mem;

/// Waking a thread that waits in the kernel: eventfd.
pub mod event;
mod plain;
/// The asynchronous door to disk and network, in two engines.
pub mod ring;
mod uring;

/// Files and folders, beneath a root.
pub mod fs;
/// TCP sockets: listen, connect, options, and what the kernel knows of a path.
pub mod sock;
