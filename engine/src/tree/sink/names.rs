//! What a destination has besides files with content.
//!
//! For: `SinkTree::make`: folders, links, nodes, further names of files.
//! In and out: entries in; what stands then.
//! Invariants: what is there already and the same is left; all else is made whole beside its name and renamed over it.
//! Absent on purpose: files with content, which come through parts (`sink.rs`).

use std::io;
use std::sync::PoisonError;

use proto::manifest::{Aspects, Entry, NodeKind};
use sys::fs::{Kind, Stat};

use super::{FRESH_MAX, LinuxSink, OWNER_ALL};

impl LinuxSink {
    pub(super) fn make_folder(&self, entry: &Entry) -> io::Result<()> {
        if entry.path.is_empty() {
            return Ok(());
        }
        match self.base.make_dir(&entry.path, entry.mode | OWNER_ALL) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let stat = self.base.stat(&entry.path)?;
                if stat.kind != Kind::Folder {
                    return Err(io::ErrorKind::NotADirectory.into());
                }
                if stat.mode & OWNER_ALL != OWNER_ALL {
                    self.base.set_meta(&entry.path, Some(stat.mode | OWNER_ALL), None, false)?;
                }
                Ok(())
            }
            other => {
                let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
                if other.is_ok() && fresh.len() < FRESH_MAX {
                    fresh.insert(entry.path.clone());
                }
                other
            }
        }
    }

    pub(super) fn make_link(&self, entry: &Entry, target: &[u8]) -> io::Result<()> {
        let same = self.base.stat(&entry.path).is_ok_and(|stat| stat.kind == Kind::Link)
            && self.base.read_link(&entry.path).is_ok_and(|there| there == target);
        if same {
            return self.set_standing(entry, Kind::Link);
        }
        let part = self.aside(entry);
        self.base.make_link(target, &part)?;
        self.base.rename(&part, &entry.path)?;
        self.set(&self.base.pin(&entry.path, Kind::Link)?, entry)
    }

    /// A node that is the same already is left; else it is made whole beside its name first, as a file is.
    pub(super) fn make_node(&self, entry: &Entry, node: NodeKind, major: u32, minor: u32) -> io::Result<()> {
        let kind = match node {
            NodeKind::Fifo => Kind::Fifo,
            NodeKind::Socket => Kind::Socket,
            NodeKind::Char => Kind::Char,
            NodeKind::Block => Kind::Block,
        };
        let is_device = node.aspect() == Aspects::DEVICES;
        let same = |it: &Stat| it.kind == kind && (!is_device || (it.major, it.minor) == (major, minor));
        if self.base.stat(&entry.path).is_ok_and(|there| same(&there)) {
            return self.set_standing(entry, kind);
        }
        if !self.permitted.has(node.aspect()) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let part = self.aside(entry);
        self.base.make_node(&part, kind, major, minor)?;
        self.set(&self.base.pin(&part, kind)?, entry)?;
        self.base.rename(&part, &entry.path)
    }

    /// One more name of what stands under `first`.
    pub(super) fn add_name(&self, entry: &Entry, first: &[u8]) -> io::Result<()> {
        let there = self.base.stat(first)?;
        if there.kind == Kind::Folder {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // Renaming one name of a file over another name of it does nothing at all, not even remove the first.
        if self.base.stat(&entry.path).is_ok_and(|it| (it.dev, it.ino) == (there.dev, there.ino)) {
            return Ok(());
        }
        let part = self.aside(entry);
        self.base.add_name(first, &part)?;
        self.base.rename(&part, &entry.path)
    }
}
