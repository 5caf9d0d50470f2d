//! Winners of searches for a placement, in `LONGHAUL_HOME`.
//!
//! For: `host probe`, which keeps them, and jobs, which use them.
//! In and out: this host and a peer's address → what was found for that path, if it was, and whether its world is still there.
//! Invariants: no file is no winner; a file is replaced whole; a home that cannot be written costs another search, never a job.
//! Absent on purpose: their form (`proto::placement::remembered`).

use std::net::IpAddr;

use engine::host::Hold;
use proto::checked;
use proto::negotiate::Choice;
use proto::placement::Side;
use proto::placement::remembered::{Line, word};

use crate::host::machine::{Machine, card_of};
use crate::identity::{Home, IdentityError};
use text::units::show_bits_per_second;

/// The file's name.
const FILE: &str = "placements";

/// What is known of the path from this host to a peer by this card.
#[must_use]
pub fn find(home: &Home, host: &str, peer: IpAddr, card: &str) -> Option<Line> {
    let text = std::fs::read_to_string(home.path(FILE)).ok()?;
    let (host, peer, card) = (word(host), word(&peer.to_string()), word(card));
    checked::decode::<Line>(&text).into_iter().rev().find(|it| (&it.host, &it.peer, &it.card) == (&host, &peer, &card))
}

/// Keeps a line.
///
/// # Errors
/// The home cannot be written.
pub fn keep(home: &Home, line: &Line) -> Result<(), IdentityError> {
    let text = std::fs::read_to_string(home.path(FILE)).unwrap_or_default();
    home.write(FILE, checked::with(&text, line).as_bytes(), false).map(drop)
}

/// A side as threads take it.
#[must_use]
pub fn hold(side: &Side) -> Hold {
    let cores = side.workers.iter().map(|core| usize::from(*core)).collect();
    Hold { cores, exact: side.exact, memory: side.memory, node: None }
}

/// Where a job's workers go that sends from `local` to `peer`, and what `--explain` says of it. Nothing is known: `job::homes` says where.
#[must_use]
pub fn for_job(home: &Home, local: IpAddr, peer: IpAddr, workers: u16) -> (Option<Hold>, Option<Choice>) {
    // Most hosts have no such file: nothing else is looked at then.
    if !home.path(FILE).exists() {
        return (None, None);
    }
    let Some(line) = find(home, &sys::host::hostname(), peer, &card_of(local)) else { return (None, None) };
    let what = "placement here";
    let rate = show_bits_per_second(line.bps as f64);
    if Machine::here(local, false).world != line.world {
        let reason = format!(
            "the one remembered for {peer} ({rate}) is of another kernel, card or set of cores: longhaul host probe --server {peer}:PORT"
        );
        return (None, Some(Choice { what, value: "not as remembered".to_owned(), reason }));
    }
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
