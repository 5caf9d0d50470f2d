//! Topology: what this machine has, which parts of it sit together, and which placement of work on it is best.
//!
//! For: `host show`, the host rules, benches, and jobs that put workers beside the NIC and the disks that they serve.
//! In and out: /sys, /proc and questions to drivers, or a record of another machine → plain facts; measured rates → a placement.
//! Invariants: changes nothing: no file is written, no setting of the host is set (`clippy.toml` of this crate refuses the calls); what the machine
//! does not tell is `None`, never a guess.
//! Absent on purpose: settings and rules (`tune`), measuring (the benches), threads (`engine` places its workers).
#![forbid(unsafe_code)]

pub mod tree; // where facts come from: this machine, or a record of another
pub mod facts; // cores, NUMA nodes, settings
pub mod nics; // network cards
pub mod disks; // disks and file systems
pub mod nodes; // NUMA nodes of cores, NICs and disks, for a job
pub mod machine; // the machine as a search for a placement sees it
pub mod placement; // which cores, memory and streams, found by measuring
pub mod cached; // what such searches found, read back
