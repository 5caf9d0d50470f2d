//! `longhaul sync`: a folder made equal to another.
//!
//! For: turning what the user asked into a copy that compares what changed and removes what is too much.
//! In and out: arguments in; the exit code of the copy out.
//! Invariants: it is the content of SRC that DST gets, whether or not either ends in a slash; nothing is removed unless `--delete` says so.
//! Absent on purpose: comparing and removing (engine::machine), copying (cp).

use crate::args::SyncArguments;
use crate::cp;
use text::exit::Exit;

/// Runs `longhaul sync`.
#[must_use]
pub fn run(arguments: SyncArguments) -> Exit {
    let shown = cp::Shown { command: "sync", ..arguments.copy.shown() };
    cp::run(arguments.into_copy().and_then(|copy| copy.with_tickets()), shown)
}
