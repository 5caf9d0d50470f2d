//! Names at the source.
//!
//! For: opening what the manifest names, and seeing whether it is still that.
//! In and out: entries in; open files, contents, verdicts out.
//! Invariants: no link is followed below the user's own path; a read never goes past what the manifest says.
//! Absent on purpose: walking (scan.rs).

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use proto::manifest::{Aspects, Entry};
use sys::fs::Dir;

use crate::linux::old::is_same;
use crate::linux::{DIRECT_FILE_BYTES_MIN, Direct, Handle};
use crate::platform::SourceTree;

/// One thing the user named: where it stands, and under which first component it is announced.
#[derive(Debug, Clone)]
pub struct Root {
    /// The folder it stands in.
    pub parent: Dir,
    /// Its own name there; empty: the folder itself.
    pub name: Box<[u8]>,
}

/// See the module.
#[derive(Debug)]
pub struct LinuxSource {
    roots: HashMap<Box<[u8]>, Root>,
    direct: Direct,
    wanted: Aspects,
    numeric: bool,
}

impl LinuxSource {
    /// Sources by the first component they are announced under; the empty component stands for all.
    #[must_use]
    pub fn new(roots: HashMap<Box<[u8]>, Root>, direct: Direct) -> Self {
        LinuxSource { roots, direct, wanted: Aspects::ALL, numeric: false }
    }

    /// What is read of entries beside content, mode and time; `numeric`: owners are not told by name.
    #[must_use]
    pub fn keeping(mut self, wanted: Aspects, numeric: bool) -> Self {
        (self.wanted, self.numeric) = (wanted, numeric);
        self
    }

    /// See `keeping`.
    pub(crate) fn wanted(&self) -> Aspects {
        self.wanted
    }

    /// See `keeping`.
    pub(crate) fn is_numeric(&self) -> bool {
        self.numeric
    }

    /// The roots, for the scan.
    pub fn roots(&self) -> impl Iterator<Item = (&[u8], &Root)> {
        self.roots.iter().map(|(top, root)| (&**top, root))
    }

    fn locate(&self, path: &[u8]) -> io::Result<(&Dir, Vec<u8>)> {
        let (top, rest) = match path.iter().position(|&byte| byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (path, &path[path.len()..]),
        };
        let (root, rest) = match (self.roots.get(top), self.roots.get(&[][..])) {
            (Some(root), _) if !top.is_empty() => (root, rest),
            (_, Some(root)) => (root, path),
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok((&root.parent, proto::manifest::join(&root.name, rest).into_vec()))
    }
}

/// Does the page cache hold the file's beginning, middle and end? Then reading it past the cache would be the slower way.
fn is_cached(file: &File, bytes: u64) -> bool {
    [0, bytes / 2, bytes.saturating_sub(1)].iter().all(|&offset| sys::fs::is_cached_at(file, offset))
}

impl SourceTree for LinuxSource {
    type File = Handle;

    fn open(&self, entry: &Entry) -> io::Result<Handle> {
        let (dir, rel) = self.locate(&entry.path)?;
        let file = dir.open_file(&rel, false)?;
        let wanted = match self.direct {
            Direct::On => true,
            Direct::Off => false,
            Direct::Auto => {
                entry.bytes() >= DIRECT_FILE_BYTES_MIN
                    && sys::fs::is_block_file_system(&file)
                    && !is_cached(&file, entry.bytes())
            }
        };
        if wanted {
            // A file system without O_DIRECT is read through the cache: the same bytes, another way.
            let _ = sys::fs::set_direct(&file, true);
        }
        Ok(Handle::new(file))
    }

    fn read_small(&self, entry: &Entry, into: &mut [u8]) -> io::Result<Option<()>> {
        let (dir, rel) = self.locate(&entry.path)?;
        let (file, before) = dir.open_file_stat(&rel, false)?;
        if !is_same(&before, entry) {
            return Ok(None);
        }
        match file.read_exact_at(into, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        Ok(is_same(&sys::fs::stat_file(&file)?, entry).then_some(()))
    }

    fn read_at(&self, entry: &Entry, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let (dir, rel) = self.locate(&entry.path)?;
        sys::fs::read_at_full(&dir.open_file(&rel, false)?, into, offset)
    }

    fn is_unchanged(&self, entry: &Entry) -> io::Result<bool> {
        let (dir, rel) = self.locate(&entry.path)?;
        Ok(is_same(&dir.stat(&rel)?, entry))
    }
}
