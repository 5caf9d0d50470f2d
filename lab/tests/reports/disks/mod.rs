//! What stands on disks: how they are read and written, what is known of them, what measures them.
//!
//! For: the scenarios of this folder. Out: what they ask of the file system that their folder is on.
//! Absent on purpose: disks that lose power (lab/e2e/power.py), sets of volumes as trees (lab/e2e/12-volumes.sh).

pub(crate) mod bench;
pub(crate) mod io_modes;
pub(crate) mod known;

use std::fs::File;

use crate::world::{Run, Skip, World};

/// Skips where the scenario's folder is in memory, or has less room than this.
fn needs_disk(world: &World, words: &str, bytes: u64) -> Result<(), Skip> {
    let folder = File::open(world.at("dst")).expect("the folder is there");
    if sys::fs::is_memory_file_system(&folder) {
        return Err(Skip(format!("{words}: it needs a disk")));
    }
    let space = rustix::fs::fstatvfs(&folder).expect("the folder is there");
    if space.f_bavail * space.f_frsize < bytes {
        return Err(Skip(format!("{words}: it needs {} GiB of room", bytes >> 30)));
    }
    Ok(())
}

/// Does one of its lines, for whomever it is, have these words in this order?
fn says(run: &Run, words: &[&str]) -> bool {
    run.lines_with(words) > 0 || run.err.lines().any(|line| crate::world::has_in_order(line, words))
}
