//! Entries: what is to be moved, one by one.
//!
//! For: the agreed form of a file, folder, link or node, and which names may stand in a tree.
//! In and out: an `Entry` is made by the scan, crosses the wire, and is checked by `check_path` before anything touches a disk.
//! Invariants: a checked path is relative, not empty (but for the root entry), has no empty, `.` or `..` component and no NUL.
//! Absent on purpose: file-system calls; normalising of names (names are bytes).

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::error::Breach;

mod meta; // owner, attributes, names of one file

pub use meta::{
    Aspects, LINK_GROUPS_MAX, LINK_NAME_BYTES_MAX, Meta, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XATTRS_BYTES_MAX,
    Xattr,
};

/// Files above this length, in bytes, are never packed.
pub const PACK_FILE_BYTES_MAX: u64 = 128 << 10;

/// Counts entries of one job in scan order, from 0.
pub type EntryId = u64;

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file of `bytes` bytes.
    File { bytes: u64 },
    /// A folder is entered: made writable for us until `FolderEnd`.
    Folder,
    /// All that is below the folder has been announced: its mode and times may be set once all before it is resolved.
    FolderEnd,
    /// A symbolic link and where it points, as bytes, never followed.
    Link { target: Box<[u8]> },
    /// A FIFO, a socket or a device; its numbers are 0 but for devices.
    Node { kind: NodeKind, major: u32, minor: u32 },
    /// One more name of what was announced under the path `first`, with `Meta::names`, earlier in this job.
    Name { first: Box<[u8]> },
}

/// What stands there and has no content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// A FIFO.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device.
    Char,
    /// A block device.
    Block,
}

impl NodeKind {
    /// Which permission it needs.
    #[must_use]
    pub const fn aspect(self) -> Aspects {
        match self {
            NodeKind::Fifo | NodeKind::Socket => Aspects::SPECIALS,
            NodeKind::Char | NodeKind::Block => Aspects::DEVICES,
        }
    }
}

/// One line of the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Position in the scan.
    pub id: EntryId,
    /// Relative to the destination's root, components joined by `/`; empty is the root itself.
    pub path: Box<[u8]>,
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits, 0o7777 at most.
    pub mode: u32,
    /// Modification time, seconds since 1970.
    pub mtime_s: i64,
    /// Nanoseconds of the modification time, below 10^9.
    pub mtime_ns: u32,
    /// All that not every entry has.
    pub meta: Meta,
}

impl Entry {
    /// Length of the content in bytes; 0 for all that is not a file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self.kind {
            EntryKind::File { bytes } => bytes,
            _ => 0,
        }
    }

    /// What it takes of the memory that bounds a job's window: all that has no fixed length.
    #[must_use]
    pub fn window_bytes(&self) -> usize {
        let target = match &self.kind {
            EntryKind::Link { target } => target.len(),
            EntryKind::Name { first } => first.len(),
            _ => 0,
        };
        self.path.len() + target + self.meta.xattr_bytes()
    }

    /// Is it a regular file?
    #[must_use]
    pub fn is_file(&self) -> bool {
        matches!(self.kind, EntryKind::File { .. })
    }

    /// May what is zeros of it be told, instead of being sent?
    #[must_use]
    pub fn tells_holes(&self) -> bool {
        self.meta.sparse && self.bytes() > PACK_FILE_BYTES_MAX
    }
}

/// Longest path that Linux takes in one call (`PATH_MAX` of `linux/limits.h`, with its NUL): what users name, and targets of links.
pub const PATH_BYTES_MAX: usize = 4095;
/// Longest path of an entry: a tree may be deeper than one call can name, and is then walked in steps.
pub const ENTRY_PATH_BYTES_MAX: usize = 16_384;
/// Longest component (`NAME_MAX` of `linux/limits.h`).
pub const NAME_BYTES_MAX: usize = 255;

/// Refuses every path that could leave the root or that no file system takes.
pub fn check_path(path: &[u8]) -> Result<(), Breach> {
    if path.is_empty() {
        return Ok(());
    }
    if path.len() > ENTRY_PATH_BYTES_MAX {
        return Err(Breach::PathTooLong);
    }
    if path[0] == b'/' {
        return Err(Breach::PathAbsolute);
    }
    for name in path.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." | b".." => return Err(Breach::PathEscapes),
            _ if name.len() > NAME_BYTES_MAX => return Err(Breach::PathTooLong),
            _ if name.contains(&0) => return Err(Breach::PathHasNul),
            _ => {}
        }
    }
    Ok(())
}

/// Joins a root-relative folder and a name.
#[must_use]
pub fn join(folder: &[u8], name: &[u8]) -> Box<[u8]> {
    let mut path = Vec::with_capacity(folder.len() + 1 + name.len());
    path.extend_from_slice(folder);
    if !folder.is_empty() && !name.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path.into_boxed_slice()
}
