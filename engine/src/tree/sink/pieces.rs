//! What stands of striped files on one volume, beside their names.
//!
//! For: removing what is of no version that stands any more; further names of striped files; reading what stands, to compare.
//! In and out: a volume's folder and paths below it.
//! Invariants: a folder is listed once, and only if it stood before this run; the pieces of the version that is kept are never touched.
//! Absent on purpose: which version stands (sink::striped), what is in a map (`proto::striped`).

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::{Mutex, PoisonError};

use proto::manifest::Entry;
use proto::striped::Whole;
use sys::fs::{Dir, Stat};

use crate::tree::facts::folder_of;
use crate::tree::{beside, beside_of, is_piece};

/// Folders whose pieces are remembered, at most: those that lead to where the job is, and some more.
const FOLDERS_MAX: usize = 64;

/// Does another job write the version that this piece or map is of?
fn is_written(base: &Dir, piece: &[u8]) -> bool {
    let stem = piece.len() - piece.iter().rev().position(|&byte| byte == b'.').map_or(0, |ending| ending + 1);
    let map = [&piece[..stem], b".map"].concat();
    base.open_file_to_write(&map).is_ok_and(|map| matches!(sys::fs::try_lock(&map), Ok(false)))
}

/// Pieces that stood in a folder when it was first asked for: names by what they begin with.
type ExistingTarget = HashMap<Vec<u8>, Vec<Vec<u8>>>;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::tree) struct Pieces(Mutex<HashMap<Box<[u8]>, ExistingTarget>>);

impl Pieces {
    /// A folder is done.
    pub(in crate::tree) fn left(&self, folder: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(folder);
    }

    /// See `Striped::sweep`. What cannot be removed stays, and is nothing but room: no name leads to it.
    pub(in crate::tree) fn sweep(&self, base: &Dir, path: &[u8], but: Option<Whole>) {
        let mut folders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = folder_of(path);
        if !folders.contains_key(folder) {
            if folders.len() >= FOLDERS_MAX {
                folders.clear();
            }
            folders.insert(folder.into(), stood(base, folder).unwrap_or_default());
        }
        let Some(names) = folders.get_mut(folder).and_then(|stood| stood.remove(&stem(path))) else { return };
        let kept = but.map(|file| ["chunks", "map"].map(|ending| beside_of(path, file, ending)));
        for name in names {
            let whole = proto::manifest::join(folder, &name);
            if is_written(base, &whole) {
                continue;
            }
            if !kept.iter().flatten().any(|kept| kept[..] == whole[..]) {
                let _ = base.remove_file(&whole);
            }
        }
    }

    /// See `Striped::add_piece`.
    pub(in crate::tree) fn add_name(&self, base: &Dir, first: &[u8], file: Whole, path: &[u8]) -> io::Result<()> {
        // The map last: without it a piece says nothing.
        for ending in ["chunks", "map"] {
            let (from, to) = (beside_of(first, file, ending), beside_of(path, file, ending));
            match base.add_name(&from, &to) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    base.remove_file(&to)?;
                    base.add_name(&from, &to)?;
                }
                // Where the name itself stands, it is the piece; and not every volume has one.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        Ok(())
    }
}

/// Opens what stands here of a version: where its name stands, that is the piece.
pub(in crate::tree) fn open(base: &Dir, old: &Entry) -> io::Result<(File, Stat)> {
    match base.open_file_stat(&beside_of(&old.path, Whole::of(old), "chunks")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => base.open_file_stat(&old.path),
        other => other,
    }
}

/// How all pieces of one name begin.
fn stem(path: &[u8]) -> Vec<u8> {
    let mut stem = beside(&path[path.len() - name_bytes(path)..], "");
    stem.pop(); // the dot
    stem
}

fn name_bytes(path: &[u8]) -> usize {
    path.len() - path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1)
}

fn stood(base: &Dir, folder: &[u8]) -> io::Result<ExistingTarget> {
    let dir = if folder.is_empty() { base.clone() } else { base.open_dir(folder)? };
    let mut stood = ExistingTarget::new();
    for entry in dir.list()? {
        let name = entry?.name;
        if let Some(dash) = name.iter().rposition(|&byte| byte == b'-').filter(|_| is_piece(&name)) {
            stood.entry(name[..dash].to_vec()).or_default().push(name);
        }
    }
    Ok(stood)
}

/// Removes all pieces in a folder of which all names are gone.
pub(in crate::tree) fn clear(base: &Dir, folder: &[u8]) -> io::Result<()> {
    let names: Vec<_> = stood(base, folder)?.into_values().flatten().collect();
    names.iter().try_for_each(|name| base.remove_file(&proto::manifest::join(folder, name)))
}
