//! Pieces of files that are striped by chunk: which volumes have some, and which are on their way.
//!
//! For: `striped` and `existing`, which deal chunks out and compare versions.
//! In and out: state alone.
//! Invariants: a piece is on the account of its volume until its entry is resolved.
//! Absent on purpose: which volume is given a chunk (`proto::striped`), the calls.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::manifest::{Entry, EntryId};
use proto::striped::{Dealer, Join};

use crate::platform::Sign;

/// Pieces of unresolved files.
#[derive(Debug, Default)]
pub(super) struct Striped(Mutex<Books>);

impl Striped {
    /// The state of all of them, for the time of a call.
    pub(super) fn lock(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub(super) struct Books {
    /// Chunks that were given a volume and have not landed.
    pub(super) dealer: Dealer,
    /// Which volumes have chunks of an entry, and how many bytes of it are not flushed there. From the look at it until it is resolved: what
    /// still comes of others is on nobody's account.
    pub(super) pieces: HashMap<EntryId, Box<[Option<u64>]>>,
    /// Earlier versions that are compared.
    pub(super) stood: HashMap<EntryId, Arc<ExistingTarget>>,
}

impl Books {
    pub(super) fn piece(&mut self, id: EntryId, volume: usize) -> Option<&mut u64> {
        Some(self.pieces.get_mut(&id)?[volume].get_or_insert(0))
    }
}

/// A version that stands.
#[derive(Debug)]
pub(super) struct ExistingTarget {
    /// The entry with its length and time.
    pub(super) entry: Entry,
    pub(super) join: Join,
    /// Of its pieces, by volume.
    pub(super) signs: BTreeMap<usize, Sign>,
}

impl ExistingTarget {
    /// The volume that has all of these bytes, if one has.
    pub(super) fn volume_of(&self, offset: u64, bytes: u64) -> Option<usize> {
        let volume = self.join.volume_at(offset)?;
        let step = self.join.chunk_bytes() as usize;
        let is_there = |at: u64| self.join.volume_at(at) == Some(volume);
        let end = offset + bytes.max(1);
        ((offset..end).step_by(step).all(is_there) && is_there(end - 1)).then_some(usize::from(volume))
    }
}
