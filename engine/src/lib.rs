//! The engine: source → seal → rail → open → sink, one loop per core.
//!
//! For: moving the bytes of jobs whose order `proto` decides.
//! In and out: `Cmd` in, `Event` out through mailboxes; plain data at the border.
//! Invariants: the loop never awaits, never locks, and in steady state never allocates; a chunk never changes thread.
//! Absent on purpose: users, configuration, TLS, HTTP (node); unsafe and system calls (sys); decisions about order (proto).
//!
//! The modules stand in the order in which a chunk meets them.
#![forbid(unsafe_code)]

pub mod job; // what a worker is told and what it reports: Cmd, Event, JobPart
pub mod platform; // the one generic: what the loop needs from a world, real or simulated
pub mod worker; // THE loop, the only caller of steps; ops in flight, stage accounting, rate bounds
pub mod ends; // file → plain buf, plain buf → file
pub mod seal; // plain buf ↔ sealed frame or packets, digests
pub mod rail; // frames and packets ↔ network
pub mod fault; // panics, on purpose and not
pub mod seldom; // figures of the process that many jobs ask for
pub mod meter; // what a datagram rail tells of itself
pub mod machine; // the two job ends: proto's machines joined to trees and workers
pub mod tree; // names on disk, at both ends
pub mod linux; // the real world: sys behind Platform
pub mod host; // worker threads of this process
pub mod numa; // which NUMA node each worker of a job is on

pub use sys::mem::{Buf, Mem, Pool};
