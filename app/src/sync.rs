//! `longhaul sync`: a folder made equal to another.
//!
//! For: turning what the user asked into a copy that compares what changed and removes what is too much.
//! In and out: arguments in; those of `cp` out, and its exit code.
//! Invariants: it is the content of SRC that DST gets, whether or not either ends in a slash; nothing is removed unless `--delete` says so.
//! Absent on purpose: comparing and removing (engine::end), copying (cp).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::args::SyncArguments;
use crate::cp;
use crate::exit::Exit;
use crate::report::{Mode, Screen};

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
    copy.paths = vec![ended(source, b"."), ended(destination, b"")];
    copy.mirror = true;
    copy.prune = arguments.delete.then_some(arguments.max_delete);
    cp::run(&copy)
}

/// The path as that of a folder's content (`.`) or of a folder.
fn ended(path: &OsStr, last: &[u8]) -> OsString {
    let mut path = path.as_bytes().to_vec();
    // `host:` is that host's home: a slash would make it its root.
    match path.last() {
        Some(b'/') => {}
        Some(b':') => path.extend_from_slice(b"./"),
        _ => path.push(b'/'),
    }
    path.extend_from_slice(last);
    OsString::from_vec(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_is_meant_with_and_without_a_slash() {
        for (given, source, destination) in [
            ("a", "a/.", "a/"),
            ("a/", "a/.", "a/"),
            (".", "./.", "./"),
            ("host:", "host:./.", "host:./"),
            ("host:x", "host:x/.", "host:x/"),
            ("longhaul://t@h:1/x", "longhaul://t@h:1/x/.", "longhaul://t@h:1/x/"),
        ] {
            assert_eq!(ended(OsStr::new(given), b"."), source);
            assert_eq!(ended(OsStr::new(given), b""), destination);
        }
    }
}
