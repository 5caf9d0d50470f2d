//! What stands at one path, for who only wants to see it.
//!
//! For: `longhaul ls`, at this host and at a daemon.
//! In and out: a folder and a name in it in; batches of entries with owners, modes, times and targets, and of places that could not be looked at, out.
//! Invariants: links are not followed; our own parts and journals are left out, as a scan leaves them out; memory is one batch and one open folder per
//! level, however many names a folder has: names come in the file system's order, and whoever wants another sorts them.
//! Absent on purpose: contents, extended attributes, rules and lists of names (`scan`).

use std::io;

use proto::manifest::{Entry, EntryKind, Meta, check_path, join};
use sys::fs::{Dir, List, Stat};

use crate::tree::ids::Told;
use crate::tree::is_ours;
use crate::tree::scan::{BATCH_ENTRIES, BATCH_NAME_BYTES, Batch, kind_of};

/// A folder that is being listed.
struct Level {
    dir: Dir,
    names: List,
    path: Box<[u8]>,
}

/// A listing in progress.
pub struct Listing {
    /// What was named, until it was looked at.
    named: Option<(Dir, Box<[u8]>)>,
    levels: Vec<Level>,
    recursive: bool,
    told: Told,
    next: u64,
    totals: Totals,
}

/// What was found in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Entries, what was named among them.
    pub entries: u64,
    /// Regular files.
    pub files: u64,
    /// Their lengths together; of lengths that nobody has on a disk the sum overflows.
    pub bytes: u64,
    /// Places that could not be looked at.
    pub faults: u64,
}

impl std::fmt::Debug for Listing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listing").field("depth", &self.levels.len()).finish_non_exhaustive()
    }
}

impl Listing {
    /// Of the name in this folder, or of the folder itself if the name is empty. `told`: the names of users and groups.
    ///
    /// # Errors
    /// It is not there, or cannot be looked at.
    pub fn new(parent: Dir, name: &[u8], recursive: bool, told: Told) -> io::Result<Listing> {
        parent.look(name)?;
        let named = Some((parent, name.into()));
        Ok(Listing { named, levels: Vec::new(), recursive, told, next: 0, totals: Totals::default() })
    }

    /// What was found so far.
    #[must_use]
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// The next batch; None at the end.
    pub fn next_batch(&mut self) -> Option<Batch> {
        let (mut batch, mut bytes) = (Batch::default(), 0);
        while batch.entries.len() + batch.faults.len() < BATCH_ENTRIES && bytes < BATCH_NAME_BYTES {
            if !self.step(&mut batch) {
                break;
            }
            bytes += batch.entries.last().map_or(0, Entry::window_bytes);
        }
        self.told.ask(&mut batch.names);
        self.totals.faults += batch.faults.len() as u64;
        (!batch.entries.is_empty() || !batch.faults.is_empty()).then_some(batch)
    }

    /// One name further; false at the end.
    fn step(&mut self, batch: &mut Batch) -> bool {
        if let Some((parent, name)) = self.named.take() {
            if self.look(&parent, &name, Box::default(), batch) {
                self.enter(&parent, &name, Box::default(), batch);
            }
            return true;
        }
        let Some(level) = self.levels.last_mut() else { return false };
        match level.names.next() {
            None => _ = self.levels.pop(),
            Some(Err(error)) => {
                batch.faults.push((level.path.clone(), error));
                self.levels.pop();
            }
            Some(Ok(found)) if is_ours(&found.name) => {}
            Some(Ok(found)) => {
                let (dir, path) = (level.dir.clone(), join(&level.path, &found.name));
                if self.look(&dir, &found.name, path.clone(), batch) && self.recursive {
                    self.enter(&dir, &found.name, path, batch);
                }
            }
        }
        true
    }

    /// Looks at one name. Is it a folder?
    fn look(&mut self, dir: &Dir, name: &[u8], path: Box<[u8]>, batch: &mut Batch) -> bool {
        let looked = check_path(&path)
            .map_err(|_| io::ErrorKind::InvalidFilename.into())
            .and_then(|()| dir.look(name))
            .and_then(|(stat, _)| Ok((kind_of(dir, name, &stat)?, stat)));
        match looked {
            Ok((kind, stat)) => {
                let is_folder = kind == EntryKind::Folder;
                let entry = entry_of(self.next, path, kind, &stat);
                self.next += 1;
                self.totals.entries += 1;
                self.totals.files += u64::from(entry.is_file());
                self.totals.bytes = self.totals.bytes.wrapping_add(entry.bytes());
                self.told.add(&entry, &mut batch.names);
                batch.entries.push(entry);
                is_folder
            }
            // Removed since its folder gave the name: it does not stand there.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_empty() => false,
            Err(error) => {
                batch.faults.push((path, error));
                false
            }
        }
    }

    fn enter(&mut self, dir: &Dir, name: &[u8], path: Box<[u8]>, batch: &mut Batch) {
        let own = if name.is_empty() { Ok(dir.clone()) } else { dir.open_dir(name) };
        match own.and_then(|dir| Ok((dir.list()?, dir))) {
            Ok((names, dir)) => self.levels.push(Level { dir, names, path }),
            Err(error) => batch.faults.push((path, error)),
        }
    }
}

fn entry_of(id: u64, path: Box<[u8]>, kind: EntryKind, stat: &Stat) -> Entry {
    // All ones is no number but "leave it" to chown(2), and none on the wire.
    let some = |id: u32| Some(id).filter(|&id| id != u32::MAX);
    let meta = Meta { uid: some(stat.uid), gid: some(stat.gid), ..Meta::default() };
    Entry { id, path, kind, mode: stat.mode & 0o7777, mtime_s: stat.mtime_s, mtime_ns: stat.mtime_ns, meta }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    use super::*;

    struct Tree(PathBuf);

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    impl Tree {
        fn new(name: &str) -> Tree {
            let folder = std::env::temp_dir().join(format!("longhaul-list-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(folder.join("sub/deep")).expect("a folder");
            Tree(folder)
        }

        /// Batches of the listing of a name in it, all of them.
        fn batches(&self, name: &str, recursive: bool) -> (Vec<Batch>, Totals) {
            let dir = Dir::open(self.0.as_os_str().as_bytes()).expect("it is there");
            let told = Told::of_this_host();
            let mut listing = Listing::new(dir, name.as_bytes(), recursive, told).expect("it is there");
            let all = std::iter::from_fn(|| listing.next_batch()).collect();
            (all, listing.totals())
        }

        fn paths(&self, name: &str, recursive: bool) -> Vec<String> {
            let (batches, _) = self.batches(name, recursive);
            let all = batches.iter().flat_map(|it| &it.entries);
            let mut paths: Vec<String> = all.map(|it| String::from_utf8_lossy(&it.path).into_owned()).collect();
            assert_eq!(paths[0], "", "what was named comes first");
            paths.sort();
            paths
        }
    }

    #[test]
    fn a_listing_has_what_a_copy_would_take_and_nothing_of_ours() {
        let tree = Tree::new("ours");
        for name in ["b", ".hidden", "sub/in", "sub/deep/er", ".longhaul-0123456789abcdef.part", ".longhaul-volume"] {
            fs::write(tree.0.join(name), b"12345").expect("a file");
        }
        fs::set_permissions(tree.0.join("b"), fs::Permissions::from_mode(0o4750)).expect("set");
        symlink("/nowhere", tree.0.join("link")).expect("a link");
        symlink("sub", tree.0.join("to-sub")).expect("a link");
        assert_eq!(tree.paths("", false), ["", ".hidden", "b", "link", "sub", "to-sub"]);
        let deep = ["", ".hidden", "b", "link", "sub", "sub/deep", "sub/deep/er", "sub/in", "to-sub"];
        assert_eq!(tree.paths("", true), deep, "links are not followed");
        assert_eq!(tree.paths("sub", false), ["", "deep", "in"]);
        assert_eq!((tree.paths("b", true), tree.paths("to-sub", true)), (vec![String::new()], vec![String::new()]));
        let (batches, totals) = tree.batches("", true);
        assert_eq!(totals, Totals { entries: 9, files: 4, bytes: 20, faults: 0 });
        let all: Vec<&Entry> = batches.iter().flat_map(|it| &it.entries).collect();
        let of = |path: &str| all.iter().find(|it| &*it.path == path.as_bytes()).expect("it is listed");
        assert_eq!((of("b").mode, of("b").bytes()), (0o4750, 5));
        assert_eq!(of("link").kind, EntryKind::Link { target: (*b"/nowhere").into() });
        assert!(all.iter().enumerate().all(|(at, it)| it.id == at as u64 && it.meta.uid.is_some()));
    }

    #[test]
    fn a_large_folder_comes_in_batches_of_bounded_size() {
        let tree = Tree::new("many");
        for at in 0..2 * BATCH_ENTRIES + 100 {
            fs::write(tree.0.join(format!("{at}-{}", "n".repeat(200))), b"").expect("a file");
        }
        let (batches, totals) = tree.batches("", false);
        let is_bounded = |it: &Batch| {
            let bytes: usize = it.entries.iter().map(Entry::window_bytes).sum();
            it.entries.len() <= BATCH_ENTRIES && bytes <= BATCH_NAME_BYTES + 16_384
        };
        assert!(batches.len() > 2 && batches.iter().all(is_bounded), "{}", batches.len());
        assert_eq!(totals.entries, 2 * BATCH_ENTRIES as u64 + 102, "the folder, `sub`, and all files");
    }

    #[test]
    fn what_cannot_be_looked_at_is_told_and_the_rest_is_listed() {
        let tree = Tree::new("denied");
        let dir = Dir::open(tree.0.as_os_str().as_bytes()).expect("it is there");
        let absent = Listing::new(dir, b"absent", false, Told::of_this_host());
        assert_eq!(absent.expect_err("it is not there").kind(), io::ErrorKind::NotFound);
        fs::set_permissions(tree.0.join("sub"), fs::Permissions::from_mode(0o0)).expect("set");
        if fs::read_dir(tree.0.join("sub")).is_ok() {
            return; // root may read all
        }
        let (batches, totals) = tree.batches("", true);
        fs::set_permissions(tree.0.join("sub"), fs::Permissions::from_mode(0o755)).expect("set");
        assert_eq!((totals.entries, totals.faults), (2, 1));
        let faults: Vec<_> = batches.iter().flat_map(|it| &it.faults).collect();
        assert_eq!((&*faults[0].0, faults[0].1.kind()), (&b"sub"[..], io::ErrorKind::PermissionDenied));
    }
}
