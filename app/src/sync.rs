//! `longhaul sync`: a folder made equal to another.
//!
//! For: turning what the user asked into a copy that compares what changed and removes what is too much.
//! In and out: arguments in; those of `cp` out, and its exit code.
//! Invariants: it is the content of SRC that DST gets, whether or not either ends in a slash; nothing is removed unless `--delete` says so.
//! Absent on purpose: comparing and removing (engine::machine), copying (cp).

use crate::args::SyncArguments;
use crate::cp;
use crate::report::{Mode, Screen};
use text::exit::Exit;

/// Runs `longhaul sync`.
#[must_use]
pub fn run(arguments: SyncArguments) -> Exit {
    let mut copy = arguments.copy;
    let [source, destination] = &copy.paths[..] else {
        let failure = Exit::Usage
            .fail("find the folders", format!("{} were named", copy.paths.len()))
            .next("name two: longhaul sync SRC DST");
        return Screen::new(Mode::choose(copy.json)).fail(&failure);
    };
    copy.paths = vec![cp::folder_path(source, b"."), cp::folder_path(destination, b"")];
    copy.mirror = true;
    copy.prune = arguments.delete.then_some(arguments.max_delete);
    cp::run(&copy)
}
