//! The engine: source → seal → rail → open → sink, one loop per core.
//!
//! For: moving the bytes of jobs whose order `proto` decides.
//! In and out: `Cmd` in, `Event` out through mailboxes; plain data at the border.
//! Invariants: the loop never awaits, never locks, and in steady state never allocates; a chunk never changes thread.
//! Absent on purpose: users, configuration, TLS, HTTP (app); unsafe and system calls (sys); decisions about order (proto).
//!
//! The modules stand in the order in which a chunk meets them.
#![forbid(unsafe_code)]

pub mod job; // what a worker is told and what it tells: Cmd, Event, JobPart
pub mod platform; // the one generic: what the loop needs from a world, real or simulated
pub mod worker; // THE loop
pub mod source; // file → plain buf
pub mod seal; // plain buf → sealed frame, and back
pub mod packets; // runs of a unit ↔ datagrams
pub mod rail; // frames ↔ network
pub mod sink; // plain buf → file, commit
pub mod digest; // chunk digests merged to the file's
pub mod books; // laps booked to stages
pub mod fault; // panics, on purpose and not
pub mod bound; // --rate: one for all rails of a job
pub mod limit; // and what comes of a sender that ignores it
pub mod seldom; // figures of the process that many jobs ask for
pub mod meter; // what a datagram rail tells of itself
pub mod end; // the two job ends: proto's machines joined to trees and workers
pub mod linux; // the real world: sys behind Platform
pub mod host; // worker threads of this process
pub mod numa; // which NUMA node each worker of a job is on

pub use sys::mem::{Buf, Mem, Pool};
