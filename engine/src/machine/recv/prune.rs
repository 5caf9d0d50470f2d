//! What the source does not have goes, if that was asked for and is not too much.
//!
//! For: `sync --delete`.
//! In and out: names announced, folder by folder; at the end one removal, or a word why not.
//! Invariants: nothing is removed before everything else is done and well; a failed entry or scan, or more than the user's bound, and
//! nothing is removed at all; only folders that the source announced are looked into; our own parts and journals stay.
//! Absent on purpose: the calls (the sink).

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use proto::manifest::{Entry, EntryKind};
use proto::wire::control::{Frame, PRUNED_BYTES_MAX, PRUNED_PATHS_MAX};

use super::{RecvEnd, show};
use crate::machine::Outbox;
use crate::machine::compare::Look;
use crate::platform::Platform;
use crate::tree::sink_tree::name_sign;

/// What is known of what is too much.
#[derive(Debug, Default)]
pub(super) struct Prune {
    /// Entries that may be removed; `None`: nothing is pruned.
    most: Option<u64>,
    /// Folders announced and not ended, with what they have.
    folders: HashMap<Box<[u8]>, HashSet<u64>>,
    /// Folders being looked into.
    sweeping: usize,
    extras: Vec<Box<[u8]>>,
    extra_count: u64,
    unseen: bool,
    /// Places that the source could not be scanned at.
    pub(super) scan_faults: u64,
    stage: Stage,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Stage {
    /// from: – · to: Removing, Over.
    #[default]
    Looking,
    /// from: Looking · to: Over.
    Removing,
    /// from: Looking, Removing · to: –.
    Over,
}

impl Prune {
    pub(super) fn new(most: Option<u64>) -> Prune {
        Prune { most, ..Prune::default() }
    }

    /// The source has this.
    pub(super) fn announced(&mut self, entry: &Entry) {
        if self.most.is_none() || entry.kind == EntryKind::FolderEnd {
            return;
        }
        if !entry.path.is_empty() {
            let slash = entry.path.iter().rposition(|&byte| byte == b'/');
            let (folder, name) = match slash {
                Some(slash) => (&entry.path[..slash], &entry.path[slash + 1..]),
                None => (&[][..], &entry.path[..]),
            };
            if let Some(names) = self.folders.get_mut(folder) {
                names.insert(name_sign(name));
            }
        }
        if entry.kind == EntryKind::Folder {
            self.folders.insert(entry.path.clone(), HashSet::new());
        }
    }
}

impl<P: Platform> RecvEnd<P> {
    /// Removes what is too much from now on, at most so many entries.
    pub fn prune(&mut self, most: Option<u64>) {
        self.prune = Prune::new(most);
    }

    /// Everything before a folder's end is resolved: look what else stands there.
    pub(super) fn sweep(&mut self, end: &Arc<Entry>, out: &mut Outbox<P>) {
        if let Some(names) = self.prune.folders.remove(&end.path) {
            self.prune.sweeping += 1;
            out.looks.push(Look::Sweep { folder: end.clone(), names });
        }
    }

    pub(super) fn on_swept(&mut self, result: io::Result<Vec<(Box<[u8]>, u64)>>, out: &mut Outbox<P>) {
        self.prune.sweeping -= 1;
        match result {
            Ok(extras) => {
                let most = self.prune.most.unwrap_or(0);
                for (path, count) in extras {
                    self.prune.extra_count += count;
                    // Beyond the bound nothing will be removed: a few names for the report are enough.
                    if self.prune.extra_count <= most || self.prune.extras.len() < PRUNED_PATHS_MAX {
                        self.prune.extras.push(path);
                    }
                }
            }
            // A dry run may look for a folder that does not exist yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                self.prune.unseen = true;
                out.notes.push(format!("a folder cannot be looked into for what is too much: {error}"));
            }
        }
    }

    /// When everything is resolved: may the job settle? Begins the removal if there is one.
    pub(super) fn is_pruned(&mut self, out: &mut Outbox<P>) -> bool {
        let Some(most) = self.prune.most else { return true };
        if self.prune.stage != Stage::Looking || self.prune.sweeping > 0 {
            return self.prune.stage == Stage::Over;
        }
        let count = self.prune.extra_count;
        let is_whole = self.record.tally.failed == 0 && self.prune.scan_faults == 0 && !self.prune.unseen;
        if count > 0 && count <= most && is_whole && !self.record.dry {
            self.prune.stage = Stage::Removing;
            out.looks.push(Look::Prune { paths: self.prune.extras.clone() });
            return false;
        }
        self.prune.stage = Stage::Over;
        let would = self.record.dry && count <= most && is_whole;
        let (removed, left) = if would { (count, 0) } else { (0, count) };
        self.tell_pruned(removed, left, out);
        true
    }

    pub(super) fn on_pruned(&mut self, removed: u64, failed: Vec<(Box<[u8]>, io::Error)>, out: &mut Outbox<P>) {
        self.prune.stage = Stage::Over;
        if !failed.is_empty() {
            for (path, error) in &failed {
                out.notes.push(format!("{}: it cannot be removed: {error}", show(path)));
            }
            self.prune.extras = failed.into_iter().map(|(path, _)| path).collect();
        }
        let left = self.prune.extra_count.saturating_sub(removed);
        self.tell_pruned(removed, left, out);
    }

    fn tell_pruned(&mut self, removed: u64, left: u64, out: &mut Outbox<P>) {
        (self.record.tally.removed, self.record.tally.left) = (removed, left);
        let mut room = PRUNED_BYTES_MAX;
        let paths: Vec<Box<[u8]>> = std::mem::take(&mut self.prune.extras)
            .into_iter()
            .take(PRUNED_PATHS_MAX)
            .take_while(|path| {
                room = room.saturating_sub(path.len() + 2);
                room > 0
            })
            .collect();
        self.record.extras.clone_from(&paths);
        out.frames.push(Frame::Pruned { removed, left, paths });
    }
}
