//! What stands at the destination from before.
//!
//! For: comparing versions, finding what was renamed, removing what is too much.
//! In and out: the destination's base and paths below it; versions, paths, counts out.
//! Invariants: no link is followed and nothing outside the base is seen; our own parts and journals are not seen either.
//! Absent on purpose: deciding (machine::recv).

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Mutex, PoisonError};

use proto::manifest::{Aspects, Entry, join};
use proto::wire::chunk::PACK_FILE_BYTES_MAX;
use sys::fs::{Dir, Kind, Stat};

use crate::tree::facts::folder_of;
use crate::tree::is_ours;
use crate::tree::scan::filter::Filter;
use crate::tree::sink::pieces;
use crate::tree::sink_tree::name_sign;
/// Files remembered for finding renamed ones, at most: some 30 MB. What is beyond is sent.
const MOVED_MAX: usize = 250_000;
/// Of these, small ones: to send one anew costs little, so they leave room for others.
const MOVED_SMALL_MAX: usize = 200_000;

/// Files at the destination by length and time, read once, when the first file is missed.
#[derive(Debug, Default)]
pub(in crate::tree) struct Moved(Mutex<Option<HashMap<Mark, Box<[u8]>>>>);

/// Length and time.
type Mark = (u64, i64, u32);

impl Moved {
    /// Where a file of this length and time stands.
    pub(in crate::tree) fn find(&self, base: &Dir, entry: &Entry) -> Option<Vec<u8>> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let files = files.get_or_insert_with(|| {
            let (mut files, mut small) = (HashMap::new(), 0);
            // What cannot be read is not found, and so sent.
            let _ = walk(base, b"", &|_, _| false, &mut |path, stat| {
                let is_small = stat.bytes <= PACK_FILE_BYTES_MAX;
                let has_room = files.len() < MOVED_MAX && (!is_small || small < MOVED_SMALL_MAX);
                if stat.kind == Kind::File && stat.bytes > 0 && has_room {
                    small += usize::from(is_small);
                    files.insert((stat.bytes, stat.mtime_s, stat.mtime_ns), path.into());
                }
            });
            files
        });
        files.get(&(entry.bytes(), entry.mtime_s, entry.mtime_ns)).map(|path| path.to_vec())
    }
}

/// Tells of everything below a folder, the folder itself excluded; folders after what they hold. What `stays` says of (path, is a folder)
/// is not told, nor what it holds, nor the folders that lead there. Does anything stay?
fn walk(
    base: &Dir,
    folder: &[u8],
    stays: &dyn Fn(&[u8], bool) -> bool,
    each: &mut dyn FnMut(&[u8], &Stat),
) -> io::Result<bool> {
    /// A folder being read: its path, the names in it that are not done, and whether something in it stays.
    type Level = (Box<[u8]>, Vec<Vec<u8>>, bool);
    let names = |path: &[u8]| -> io::Result<Vec<Vec<u8>>> {
        let dir = if path.is_empty() { base.clone() } else { base.open_dir(path)? };
        let own = |name: &Vec<u8>| !is_ours(name);
        dir.list()?.map(|entry| Ok(entry?.name)).filter(|name| name.as_ref().map_or(true, own)).collect()
    };
    let mut levels: Vec<Level> = vec![(folder.into(), names(folder)?, false)];
    loop {
        let (path, rest, kept) = levels.last_mut().expect("the first level ends the loop");
        let Some(name) = rest.pop() else {
            let (path, _, kept) = levels.pop().expect("seen above");
            let Some((_, _, above)) = levels.last_mut() else { return Ok(kept) };
            *above |= kept;
            if !kept {
                each(&path, &base.stat(&path)?);
            }
            continue;
        };
        let path = join(path, &name);
        let stat = base.stat(&path)?;
        if stays(&path, stat.kind == Kind::Folder) {
            *kept = true;
        } else if stat.kind == Kind::Folder {
            let names = names(&path)?;
            levels.push((path, names, false));
        } else {
            each(&path, &stat);
        }
    }
}

/// Which entries a destination has for its own reasons: they are not removed.
#[derive(Debug, Clone, Copy)]
pub(in crate::tree) struct ProtectedPaths<'a> {
    /// Kinds that are left out are not announced: the source may well have this one.
    pub permitted: Aspects,
    /// What the rules leave out is not announced either.
    pub filter: Option<&'a Filter>,
}

impl ProtectedPaths<'_> {
    fn by_kind(self, kind: Kind) -> bool {
        match kind {
            Kind::Fifo | Kind::Socket => !self.permitted.has(Aspects::SPECIALS),
            Kind::Char | Kind::Block => !self.permitted.has(Aspects::DEVICES),
            Kind::File | Kind::Folder | Kind::Link => false,
            Kind::Other => true,
        }
    }

    fn by_rule(self, path: &[u8], is_folder: bool) -> bool {
        self.filter.is_some_and(|filter| filter.leaves_out(path, is_folder))
    }
}

/// See `Prune::extras`.
pub(in crate::tree) fn extras(
    base: &Dir,
    folder: &[u8],
    names: &HashSet<u64>,
    stays: ProtectedPaths<'_>,
) -> io::Result<Vec<(Box<[u8]>, u64)>> {
    let dir = if folder.is_empty() { base.clone() } else { base.open_dir(folder)? };
    let mut extras = Vec::new();
    for entry in dir.list()? {
        let name = entry?.name;
        if is_ours(&name) || names.contains(&name_sign(&name)) {
            continue;
        }
        let path = join(folder, &name);
        let kind = base.stat(&path)?.kind;
        if stays.by_kind(kind) || stays.by_rule(&path, kind == Kind::Folder) {
            continue;
        }
        let mut count = 0;
        let by_rule = |path: &[u8], is_folder| stays.by_rule(path, is_folder);
        let kept = kind == Kind::Folder && walk(base, &path, &by_rule, &mut |_, _| count += 1)?;
        count += u64::from(!kept);
        if count > 0 {
            extras.push((path, count));
        }
    }
    extras.sort_unstable(); // the same folder gives the same list
    Ok(extras)
}

/// See `Prune::remove`.
pub(in crate::tree) fn remove(base: &Dir, path: &[u8], stays: ProtectedPaths<'_>) -> io::Result<u64> {
    let folder = folder_of(path);
    let before = if folder.is_empty() { base.stat_self()? } else { base.stat(folder)? };
    let mut removed = 0;
    if base.stat(path)?.kind == Kind::Folder {
        let mut below = Vec::new();
        let by_rule = |path: &[u8], is_folder| stays.by_rule(path, is_folder);
        let kept = walk(base, path, &by_rule, &mut |path, stat| below.push((Box::<[u8]>::from(path), stat.kind)))?;
        for (path, kind) in below {
            if kind == Kind::Folder {
                pieces::clear(base, &path)?;
                base.remove_dir(&path)?
            } else {
                base.remove_file(&path)?
            }
            removed += 1;
        }
        if !kept {
            pieces::clear(base, path)?;
            base.remove_dir(path)?;
            removed += 1;
        }
    } else {
        base.remove_file(path)?;
        removed += 1;
    }
    base.pin(folder, Kind::Folder)?.set_mtime((before.mtime_s, before.mtime_ns))?;
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(name: &str) -> (std::path::PathBuf, Dir) {
        let path = std::env::temp_dir().join(format!("longhaul-old-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("a/b/c")).expect("the test's folder");
        std::fs::write(path.join("a/b/c/file"), b"x").expect("a file");
        std::fs::write(path.join("a/keep"), b"x").expect("a file");
        std::fs::write(path.join("a/.longhaul-0123456789abcdef.part"), b"x").expect("a part");
        std::os::unix::fs::symlink("/", path.join("a/b/root")).expect("a link");
        let dir = Dir::open(path.as_os_str().as_encoded_bytes()).expect("it was just made");
        (path, dir)
    }

    #[test]
    fn what_is_too_much_is_counted_with_all_below_and_our_own_files_stay() {
        let (path, dir) = base("extras");
        let names = HashSet::from([name_sign(b"keep")]);
        let all_kinds = ProtectedPaths { permitted: Aspects::ALL, filter: None };
        let found = extras(&dir, b"a", &names, all_kinds).expect("it can be read");
        assert_eq!(found, [(Box::from(*b"a/b"), 4)]);
        // A FIFO the source does not have goes; where FIFOs are left out nobody knows, and it stays.
        dir.make_node(b"a/pipe", Kind::Fifo, 0, 0).expect("a FIFO");
        let all = extras(&dir, b"a", &names, all_kinds).expect("it can be read");
        assert_eq!(all, [(Box::from(*b"a/b"), 4), (Box::from(*b"a/pipe"), 1)]);
        let some = extras(&dir, b"a", &names, ProtectedPaths { permitted: Aspects::OWNER, filter: None })
            .expect("it can be read");
        assert_eq!(some, [(Box::from(*b"a/b"), 4)]);
        assert_eq!(remove(&dir, b"a/pipe", all_kinds).expect("it can be removed"), 1);
        std::fs::remove_dir_all(path).expect("it is there");
    }

    #[test]
    fn removal_follows_no_link_and_leaves_the_folders_time() {
        let (path, dir) = base("remove");
        let before = dir.stat(b"a").expect("it is there");
        let stays = ProtectedPaths { permitted: Aspects::ALL, filter: None };
        assert_eq!(remove(&dir, b"a/b", stays).expect("it can be removed"), 4);
        assert!(!path.join("a/b").exists() && path.join("a/keep").exists());
        let after = dir.stat(b"a").expect("it is there");
        assert_eq!((before.mtime_s, before.mtime_ns), (after.mtime_s, after.mtime_ns));
        std::fs::remove_dir_all(path).expect("it is there");
    }

    #[test]
    fn what_the_rules_leave_out_stays_with_the_folders_that_lead_there() {
        let (path, dir) = base("stays");
        std::fs::create_dir_all(path.join("a/b/d")).expect("a folder");
        std::fs::write(path.join("a/b/c/own.log"), b"x").expect("a file");
        let filter = Filter::new(&["*.log".into()]).expect("a rule");
        let stays = ProtectedPaths { permitted: Aspects::ALL, filter: Some(&filter) };
        // Of b: c/file, d, root; not c/own.log, c, b.
        let found = extras(&dir, b"a", &HashSet::from([name_sign(b"keep")]), stays).expect("it can be read");
        assert_eq!(found, [(Box::from(*b"a/b"), 3)]);
        assert_eq!(remove(&dir, b"a/b", stays).expect("it can be removed"), 3);
        let left = |name: &str| path.join("a/b").join(name).exists();
        assert!(left("c/own.log") && !left("c/file") && !left("d"));
        // Nothing but what stays is left there: nothing is too much.
        assert_eq!(extras(&dir, b"a", &HashSet::from([name_sign(b"keep")]), stays).expect("it can be read"), []);
        std::fs::remove_dir_all(path).expect("it is there");
    }
}
