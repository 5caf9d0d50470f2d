//! Who writes a large file's part.
//!
//! For: one writer for each part that outlives its job, whatever the number of jobs, processes and hosts that have the same destination.
//! In and out: entries of files with a journal; ours, or whose.
//! Invariants: the part and the journal beside a name are touched only by who holds the write lock on the lock file beside them; the lock
//! is held until the part is under its final name or removed, or until the job has let go of all its files, so that no write of this
//! job's can reach a part that is another's by then; the lock file is removed by its holder alone, who has it locked, and whoever locks a
//! file that has no name any more tries again.
//! Absent on purpose: small files, whose parts have names of their own (`runs.rs`); waiting.
//!
//! ```text
//! .longhaul-<16 hex of BLAKE3(name)>.part       what has come
//! .longhaul-<16 hex of BLAKE3(name)>.journal    which chunks of it
//! .longhaul-<16 hex of BLAKE3(name)>.lock       locked; its text says by whom
//! ```
//! Of a file that is striped by chunk the lock is on its map, which stays.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use proto::manifest::EntryId;
use sys::fs::{Dir, stat_file, truncate, try_lock, write_at_full};

/// Files that one job may be at the same time, at most: each costs a descriptor, and a peer decides how many it begins.
const CLAIMS_MAX: usize = 1024;
/// An owner's text is no longer.
const OWNER_BYTES_MAX: usize = 120;
/// "Too many open files", "device or resource busy" of `errno(3)`.
const EMFILE: i32 = 24;
/// See `EMFILE`.
pub(in crate::tree) const EBUSY: i32 = 16;

/// A part is ours to write.
#[derive(Debug)]
pub(in crate::tree) enum Claim {
    /// By this lock, which stands under this name if it is a file of its own.
    Locked { _lock: File, own_name: Option<Vec<u8>> },
    /// The file system has no locks: the part has a name that only this job knows, and no later job goes on with it.
    Unlocked,
}

/// What came of asking for a part.
#[derive(Debug)]
pub(in crate::tree) enum Asked {
    /// It is ours.
    Ours(Claim),
    /// Another job is at it: who.
    Theirs(String),
}

/// Parts that this job may write.
#[derive(Debug, Default)]
pub(in crate::tree) struct Claims(Mutex<HashMap<EntryId, Claim>>);

impl Claims {
    /// Held over asking and what follows from it, or two workers would both begin the part.
    pub(in crate::tree) fn lock(&self) -> MutexGuard<'_, HashMap<EntryId, Claim>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the part a name that only this job knows?
    pub(in crate::tree) fn is_unlocked(&self, id: EntryId) -> bool {
        matches!(self.lock().get(&id), Some(Claim::Unlocked))
    }

    /// Are there parts that are neither under their final names nor removed? A striped file's map stays claimed to the end.
    pub(in crate::tree) fn leave_parts(&self) -> bool {
        self.lock().values().any(|claim| !matches!(claim, Claim::Locked { own_name: None, .. }))
    }

    /// The part is under its final name, or removed.
    pub(in crate::tree) fn release(&self, base: &Dir, id: EntryId) {
        let claim = self.lock().remove(&id);
        claim.into_iter().for_each(|claim| claim.end(base));
    }
}

impl Claim {
    /// Takes the lock file away, while it is locked.
    pub(in crate::tree) fn end(self, base: &Dir) {
        if let Claim::Locked { own_name: Some(name), .. } = &self {
            let _ = base.remove_file(name);
        }
    }
}

/// Is there room for one more?
pub(in crate::tree) fn has_room(held: &HashMap<EntryId, Claim>) -> io::Result<()> {
    if held.len() < CLAIMS_MAX { Ok(()) } else { Err(io::Error::from_raw_os_error(EMFILE)) }
}

/// Asks for the lock under this name. `is_map`: it is the map of a striped file, which says nothing of its owner and stays.
pub(in crate::tree) fn ask(base: &Dir, name: &[u8], is_map: bool) -> io::Result<Asked> {
    loop {
        let lock = base.create_file(name, false, false)?;
        match try_lock(&lock) {
            Ok(true) => {}
            Ok(false) => return Ok(Asked::Theirs(if is_map { String::new() } else { owner_of(&lock) })),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                if !is_map {
                    let _ = base.remove_file(name);
                }
                return Ok(Asked::Ours(Claim::Unlocked));
            }
            Err(error) => return Err(error),
        }
        // Between opening and locking its holder may have removed it: then this is a lock on nothing.
        let own = stat_file(&lock)?;
        let is_there = base.stat(name).is_ok_and(|there| (there.dev, there.ino) == (own.dev, own.ino));
        if !is_there {
            continue;
        }
        if !is_map {
            // Who cannot say who it is holds the lock all the same.
            let _ = truncate(&lock, 0).and_then(|()| write_at_full(&lock, owner().as_bytes(), 0));
        }
        return Ok(Asked::Ours(Claim::Locked { _lock: lock, own_name: (!is_map).then(|| name.to_vec()) }));
    }
}

/// Who holds the lock under this name, for the user; empty if nobody knows.
pub(in crate::tree) fn holder(base: &Dir, name: &[u8]) -> String {
    base.open_file(name, false).map(|lock| owner_of(&lock)).unwrap_or_default()
}

fn owner_of(lock: &File) -> String {
    let mut text = [0; OWNER_BYTES_MAX];
    let read = sys::fs::read_at_full(lock, &mut text, 0).unwrap_or(0);
    let printable = |letter: &char| !letter.is_control();
    String::from_utf8_lossy(&text[..read]).chars().filter(printable).collect()
}

/// This process, as the user of another is told.
fn owner() -> String {
    let host = sys::host::hostname();
    // A host's name has 64 bytes at most (HOST_NAME_MAX).
    format!("process {} on {host}", std::process::id())
}
