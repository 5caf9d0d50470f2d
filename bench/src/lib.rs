//! `longhaul bench`: each part alone, then together, on this very machine.
//!
//! For: knowing what a machine can do before asking why a job is not faster, and for the ratios the product promises.
//! In and out: options → a table for people, or one JSON object (`--json`), on standard output.
//! Invariants: what is compared is measured in alternation, in one run, and shown as the median of the rounds; the ceiling stands beside
//! each figure; nothing is left behind on disk, and nothing of the host is changed.
//! Absent on purpose: a verdict on the machine, any use of a job's state or keys. The product never depends on this crate: it is a feature of the
//! binary, which calls `run`. The program `longhaul-race` (bench/race), which is no part of the product, uses its parts.
#![forbid(unsafe_code)]

pub mod crypto; // ciphers, digests, memory, and both sides of the seal
pub mod disk; // a folder's file system by engine, size and depth
pub mod net; // memory to memory over TCP and UDP: bare, by the ring, by the rail
pub mod placement; // which cores, memory and streams, by search
pub mod path; // N disks to one receiver, one sender to N disks, as whole jobs
pub mod ceilings; // what bounds rates of disks, and what a figure above it is
pub mod wan; // distance, loss and rate on links of our own making
pub mod ftp; // servers and clients of FTP, and transports of ours
pub mod race; // contestants in turn
pub use text::plot; // lines over numbers
pub mod table; // columns, medians, JSON
#[cfg(test)]
#[path = "../pages/mod.rs"]
mod pages; // all pages, measured and looked at

use clap::Subcommand;

/// What can be measured.
#[derive(Debug, Clone, PartialEq, Subcommand)]
pub enum BenchCommand {
    /// Memory to memory over TCP and UDP: what the path allows, and what each layer takes of it
    Net(Box<net::NetArguments>),
    /// Read and write a file in a folder: by I/O mode, size and depth, around the page cache and through it
    Disk(disk::DiskArguments),
    /// Search which cores take the interrupts and which the workers, where memory lies and how many streams, at both ends; compared with the known presets
    Placement(placement::PlacementArguments),
    /// Whole jobs: one sender to N disks, N disks to one receiver; the rate of each disk over time
    #[command(name = "volumes", alias = "path")]
    Path(path::PathArguments),
    /// A grid of distance, loss and rate on links of this machine's own making: ours, TCP and other programs side by side
    Wan(Box<wan::WanArguments>),
    /// Servers and clients of FTP side by side: time over size and delay, traces of many files, processor time, where the time goes
    Ftp(Box<ftp::FtpArguments>),
    /// Ciphers, digests and memory on one core, and what sealing and opening cost together
    Crypto(crypto::CryptoArguments),
}

/// Measures and prints.
///
/// # Errors
/// What could not be opened, reached or had, in words.
pub fn run(cmd: BenchCommand) -> anyhow::Result<()> {
    match cmd {
        BenchCommand::Net(arguments) => net::run(&arguments),
        BenchCommand::Disk(arguments) => disk::run(&arguments),
        BenchCommand::Placement(arguments) => placement::run(&arguments),
        BenchCommand::Path(arguments) => path::run(&arguments),
        BenchCommand::Wan(arguments) => wan::run(&arguments),
        BenchCommand::Ftp(arguments) => ftp::run(&arguments),
        BenchCommand::Crypto(arguments) => crypto::run(&arguments),
    }
}
