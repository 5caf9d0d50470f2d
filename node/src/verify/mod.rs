//! A receipt against a disk, without the source.
//!
//! For: checking a copy days or years later.
//! In and out: a receipt (`Paper`) and a place on disk (`Place`) → each entry that differs (`files::check`).
//! Invariants: nothing of the receipt is believed before its own digest and signatures hold; links below the folder are never
//!   followed; memory does not grow with the number or the size of files.
//! Absent on purpose: mending (a copy sends what differs), looking for files that the receipt does not name, showing what was found.
//!
//! The modules stand in the order in which a receipt meets them.

pub mod receipt; // the receipt itself: shape, digest, signatures
pub mod files; // each entry against the disk, over all cores
mod by_volume; // of a set, over all volumes
mod content; // a file that is checked, and what its readers share
pub mod listing; // those that are kept here, by their first and last lines

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use proto::manifest::EntryKind;
use sys::fs::Dir;

use receipt::Paper;
use text::exit::{Exit, Failure};

/// Where the entries are looked for.
#[derive(Debug)]
pub enum Place {
    /// All of them, below this folder or on these volumes, without the first `strip` bytes of their paths.
    Folder {
        /// The folder, or each volume of a set.
        volumes: Vec<Dir>,
        /// Bytes.
        strip: usize,
    },
    /// One of them: `entry` of the receipt is the file `name` in this folder.
    One { folder: Dir, name: Vec<u8>, entry: Vec<u8>, bytes: u64 },
}

impl Place {
    /// What `PATH` means for this receipt. A file stands for the entry whose path is the longest end of its own path; the
    /// entry without a path is the root of a copy of a single file.
    ///
    /// # Errors
    /// It cannot be opened, or the receipt does not name it.
    pub fn find(path: &Path, paper: &mut Paper) -> Result<Self, Failure> {
        let what = || format!("open {}", path.display());
        let fail = |error: std::io::Error| {
            Exit::of_io(&error)
                .fail(what(), &error)
                .next("name the folder that was the destination of the copy, or a file of it")
        };
        if std::fs::metadata(path).map_err(fail)?.is_dir() {
            let folder = Dir::open(path.as_os_str().as_bytes()).map_err(fail)?;
            let strip = strip_of(&folder, paper)?;
            return Ok(Self::Folder { volumes: vec![folder], strip });
        }
        let full = std::path::absolute(path).map_err(fail)?;
        let (Some(parent), Some(name)) = (full.parent(), full.file_name()) else {
            return Err(Exit::Usage.fail(what(), "it is neither a file nor a folder"));
        };
        let mut best: Option<(Vec<u8>, u64)> = None;
        paper.entries(|line| {
            let entry = &line.entry;
            let longer = best.as_ref().is_none_or(|(best, _)| entry.path.len() > best.len());
            if entry.is_file() && longer && is_end_of(&entry.path, full.as_os_str().as_bytes()) {
                best = Some((entry.path.to_vec(), entry.bytes()));
            }
            true
        })?;
        let Some((entry, bytes)) = best else {
            let failure = Exit::Usage.fail(format!("verify {}", path.display()), "the receipt names no such file");
            return Err(failure.next("name the folder that was the destination of the copy"));
        };
        let folder = Dir::open(parent.as_os_str().as_bytes()).map_err(fail)?;
        Ok(Self::One { folder, name: name.as_bytes().to_vec(), entry, bytes })
    }

    /// The volumes of a set.
    ///
    /// # Errors
    /// One that cannot be opened.
    pub fn set(paths: &[OsString], paper: &mut Paper) -> Result<Self, Failure> {
        let mut volumes = Vec::new();
        for path in paths {
            let fail = |error: std::io::Error| {
                Exit::of_io(&error)
                    .fail(format!("open the volume {}", Path::new(path).display()), &error)
                    .next("mount it, or leave it out: what only it holds is told as missing")
            };
            volumes.push(Dir::open(path.as_bytes()).map_err(fail)?);
        }
        let mut strip = usize::MAX;
        for folder in &volumes {
            strip = strip.min(strip_of(folder, paper)?);
        }
        Ok(Self::Folder { volumes, strip })
    }

    /// Files and bytes that will be read.
    #[must_use]
    pub fn totals(&self, paper: &Paper) -> (u64, u64) {
        match self {
            Self::Folder { .. } => (paper.sealed().files, paper.sealed().bytes),
            Self::One { bytes, .. } => (1, *bytes),
        }
    }
}

/// A tree that was copied under a new name stands in the receipt with that name in front, and users name the tree itself. So:
/// if all entries are below one folder `top`, and there is no `top` in the folder they named, that folder is `top`.
fn strip_of(folder: &Dir, paper: &mut Paper) -> Result<usize, Failure> {
    let Some(top) = top_of(paper)? else { return Ok(0) };
    let is_missing = folder.stat(&top).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
    Ok(if is_missing { top.len() + 1 } else { 0 })
}

/// The one folder that all entries are below, if there is one.
pub(crate) fn top_of(paper: &mut Paper) -> Result<Option<Vec<u8>>, Failure> {
    let mut top: Option<Vec<u8>> = None;
    let mut is_one_tree = true;
    paper.entries(|line| {
        let path = &line.entry.path;
        let first = path.split(|&byte| byte == b'/').next().unwrap_or_default();
        let top = top.get_or_insert_with(|| first.to_vec());
        let is_top_itself = path.len() == first.len();
        let is_folder = matches!(line.entry.kind, EntryKind::Folder | EntryKind::FolderEnd);
        is_one_tree &= !path.is_empty() && *top == first && (!is_top_itself || is_folder);
        is_one_tree
    })?;
    Ok(top.filter(|_| is_one_tree))
}

/// Is `entry` the last components of `full`?
#[must_use]
pub fn is_end_of(entry: &[u8], full: &[u8]) -> bool {
    entry.is_empty() || full.strip_suffix(entry).is_some_and(|before| before.ends_with(b"/"))
}
