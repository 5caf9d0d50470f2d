//! Cached results of searches for a placement, read from the file that the caller names.
//!
//! For: `host probe`, which keeps results, and jobs, which use them.
//! In and out: a file, this host and a peer's address → what was found for that path, if something was, and whether it still holds.
//! Invariants: no file is no result; nothing is written here: the caller replaces the file whole by the text of `with`.
//! Absent on purpose: the form of a line (`placement::cached`), where the file is.

use std::net::IpAddr;
use std::path::Path;

use proto::checked;

use crate::machine::{Machine, nic_of};
use crate::placement::cached::{Line, word};

/// The file's name within the folder of the program's state.
pub const FILE: &str = "placements";

/// What is known of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// Nobody searched.
    Nothing,
    /// The kernel, the NIC or the set of cores is another than at the time of the search.
    Stale(Line),
    /// The result of a search in this world.
    Holds(Line),
}

/// What the file says of the path from this host to a peer by this NIC.
#[must_use]
pub fn find(file: &Path, host: &str, peer: IpAddr, nic: &str) -> Option<Line> {
    let text = std::fs::read_to_string(file).ok()?;
    let (host, peer, nic) = (word(host), word(&peer.to_string()), word(nic));
    checked::decode::<Line>(&text).into_iter().rev().find(|it| (&it.host, &it.peer, &it.nic) == (&host, &peer, &nic))
}

/// The file's text with this line in it, in place of an older one of the same path.
#[must_use]
pub fn with(file: &Path, line: &Line) -> String {
    checked::with(&std::fs::read_to_string(file).unwrap_or_default(), line)
}

/// What is known of the path from `local`, an address of this host, to `peer`.
#[must_use]
pub fn of_path(file: &Path, local: IpAddr, peer: IpAddr) -> Known {
    // Most hosts have no such file: nothing else is looked at then.
    if !file.exists() {
        return Known::Nothing;
    }
    match find(file, &sys::host::hostname(), peer, &nic_of(local)) {
        None => Known::Nothing,
        Some(line) if Machine::here(local, false).world != line.world => Known::Stale(line),
        Some(line) => Known::Holds(line),
    }
}
