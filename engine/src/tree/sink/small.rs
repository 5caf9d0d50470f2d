//! What the small files of a copy share that come each by one stream of another protocol.
//!
//! For: downloads by FTP.
//! In and out: the copy's tag, which is in its parts' names; folders whose names are to be brought to stable storage, all of them at the copy's end.
//! Invariants: as `runs.rs` has them: no other job writes a part of this one's, and what it leaves when it is killed the next one takes away; after `end`
//! every name that was given is as durable as was asked.
//! Absent on purpose: files (`ranged.rs`).

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, PoisonError};

use sys::fs::Dir;

use super::runs::Runs;
use super::{SYNC_FS_FOLDERS_MIN, folder_of};
use crate::tree::beside;

/// What small files of one copy share: the tag of their parts, and folders that are still to be flushed.
#[derive(Debug, Default)]
pub struct Small {
    runs: Runs,
    named: Mutex<Named>,
}

/// Folders in which names were given.
#[derive(Debug, Default)]
struct Named {
    all: BTreeSet<Vec<u8>>,
    last: Option<Vec<u8>>,
}

impl Small {
    /// The name of a file's part. What a killed job left of the same file is removed.
    pub(super) fn part_of(&self, base: &Dir, path: &[u8]) -> Vec<u8> {
        self.runs.look(base);
        self.runs.sweep(base, path);
        self.runs.at(base, path);
        beside(path, &self.runs.ending("part"))
    }

    /// A file got its name in this folder, which may be new, and so may be those above.
    pub(super) fn named_in(&self, folder: &[u8]) {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if named.last.as_deref() == Some(folder) {
            return;
        }
        named.last = Some(folder.to_vec());
        let mut folder = folder;
        while named.all.insert(folder.to_vec()) && !folder.is_empty() {
            folder = folder_of(folder);
        }
    }

    /// The copy is over. `is_well`: all that it met is there, and of jobs that were killed before nothing is left.
    ///
    /// # Errors
    /// EIO, ENOSPC: names of files may be gone after a power cut.
    pub fn end(&self, base: &Dir, is_well: bool) -> io::Result<()> {
        if is_well {
            self.runs.end(base, false);
        } else {
            self.runs.let_go(base, false);
        }
        let named = std::mem::take(&mut *self.named.lock().unwrap_or_else(PoisonError::into_inner));
        if named.all.len() >= SYNC_FS_FOLDERS_MIN {
            return base.sync_fs();
        }
        named.all.iter().try_for_each(|folder| base.sync(folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_not_said_to_be_safe_where_their_folder_or_one_above_cannot_be_flushed() {
        let path = std::env::temp_dir().join(format!("longhaul-small-{}", std::process::id()));
        std::fs::create_dir_all(path.join("a/b")).unwrap();
        let base = Dir::open(path.as_os_str().as_encoded_bytes()).unwrap();
        let small = Small::default();
        small.named_in(b"a/b");
        small.named_in(b"a/b");
        assert_eq!(small.named.lock().unwrap().all.len(), 3, "the folder, the one above, the base");
        small.end(&base, true).unwrap();
        small.named_in(b"a/gone");
        assert!(small.end(&base, true).is_err());
        small.end(&base, true).unwrap();
        std::fs::remove_dir_all(path).unwrap();
    }
}
