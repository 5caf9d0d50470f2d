//! A placement that `host probe` has measured, as the workers of a job take it.
//!
//! For: `host probe`, which keeps results, and jobs that send to a peer for which there is one.
//! In and out: this host's address and a peer's → where the workers are held, and what `--explain` says of it.
//! Invariants: the file is replaced whole; a home that cannot be written costs another search, never a job.
//! Absent on purpose: reading the file (`topology::cached`), jobs for which nobody measured (`homes`).

use std::net::IpAddr;
use std::path::PathBuf;

use engine::host::Hold;
use proto::negotiate::Choice;
use text::units::show_bits_per_second;
use topology::cached::{self, FILE, Known};
use topology::placement::Side;
use topology::placement::cached::Line;

use crate::identity::{Home, IdentityError};

/// The file of cached results.
#[must_use]
pub fn file(home: &Home) -> PathBuf {
    home.path(FILE)
}

/// Keeps a line.
///
/// # Errors
/// The home cannot be written.
pub fn keep(home: &Home, line: &Line) -> Result<(), IdentityError> {
    home.write(FILE, cached::with(&file(home), line).as_bytes(), false).map(drop)
}

/// A side as threads take it.
#[must_use]
pub fn hold(side: &Side) -> Hold {
    let cores = side.workers.iter().map(|core| usize::from(*core)).collect();
    Hold { cores, exact: side.exact, memory: side.memory, node: None }
}

/// Where a job's workers go that sends from `local` to `peer`, and what `--explain` says of it. Nothing is known: `homes` says where.
#[must_use]
pub fn for_job(home: &Home, local: IpAddr, peer: IpAddr, workers: u16) -> (Option<Hold>, Option<Choice>) {
    let what = "placement here";
    let line = match cached::of_path(&file(home), local, peer) {
        Known::Nothing => return (None, None),
        Known::Stale(line) => {
            let rate = show_bits_per_second(line.bps as f64);
            let reason = format!(
                "the one remembered for {peer} ({rate}) is of another kernel, NIC or set of cores: longhaul host probe --server {peer}:PORT"
            );
            return (None, Some(Choice { what, value: "not as remembered".to_owned(), reason }));
        }
        Known::Holds(line) => line,
    };
    let rate = show_bits_per_second(line.bps as f64);
    let moved = !line.placement.send.irqs.is_empty();
    let side = line.placement.send.without_irqs();
    let mut hold = hold(&side);
    // A rail of the search has a thread of its own; more workers than cores share them all.
    hold.exact &= usize::from(workers) <= hold.cores.len();
    let side = Side { exact: hold.exact, ..side };
    let streams = line.placement.streams;
    let with = if moved { ", interrupts moved (which no job does)" } else { "" };
    let reason = format!("remembered from `longhaul host probe`: {rate} to {peer} with {streams} streams{with}");
    (Some(hold), Some(Choice { what, value: side.to_string(), reason }))
}
