//! A job whose source and destination touch each other.
//!
//! For: a destination inside the source is refused, and never copied into itself; a source is neither written over itself nor removed by `--delete`.
//! In and out: marks of folders that only who sees them can tell; from the receiver's marks and the sender's folders what must not be done.
//! Invariants: folders are known by device and number, never by name, so links, bind mounts and other ways to write a path change nothing;
//! who shares no kernel with the other end finds nothing, and nothing of these numbers is told.
//! Absent on purpose: two hosts that have one file system mounted (NFS): their numbers are not comparable (the book, limits).

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use proto::manifest::join;
use proto::wire::control::Place;
use sys::fs::{Dir, Kind, Stat};

use crate::tree::Sources;
use crate::tree::scan::root::Root;

/// The kernel's boot: the same for all that share its device numbers, containers too, and another after each boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Marks folders for one job.
#[derive(Debug, Clone)]
pub struct Marks(blake3::Hasher);

impl Marks {
    /// Those of this kernel; `None` where it does not tell its boot.
    #[must_use]
    pub fn of(job: &[u8; 16]) -> Option<Marks> {
        let boot = std::fs::read(BOOT).ok()?;
        Some(Marks::at(job, boot.trim_ascii_end()))
    }

    fn at(job: &[u8; 16], boot: &[u8]) -> Marks {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"longhaul place").update(job).update(boot);
        Marks(hasher)
    }

    fn mark(&self, dev: u64, ino: u64) -> Place {
        let mut hasher = self.0.clone();
        hasher.update(&dev.to_le_bytes()).update(&ino.to_le_bytes());
        let mut place = Place::default();
        place.copy_from_slice(&hasher.finalize().as_bytes()[..size_of::<Place>()]);
        place
    }

    /// A folder that another one is below: told apart from that one.
    fn mark_above(&self, dev: u64, ino: u64) -> Place {
        let mut above = Marks(self.0.clone());
        above.0.update(b"above");
        above.mark(dev, ino)
    }

    /// The marks of the folders that a job's entries are named below; of one alone also those of the folders above it, so that a source which holds it
    /// is found out before it is read.
    #[must_use]
    pub fn places(&self, bases: &[Dir]) -> Vec<Place> {
        let own = bases.iter().filter_map(|base| base.stat_self().ok()).map(|stat| self.mark(stat.dev, stat.ino));
        let above = match bases {
            [base] => std::fs::canonicalize(OsStr::from_bytes(base.path())).ok(),
            _ => None,
        };
        let above = above.iter().flat_map(|path| path.ancestors().skip(1)).filter_map(|it| std::fs::metadata(it).ok());
        let above = above.map(|it| self.mark_above(it.dev(), it.ino())).take(ABOVE_MAX);
        own.chain(above).collect()
    }
}

/// So many folders above a destination are marked: the list has room for the volumes of a set.
const ABOVE_MAX: usize = 200;

/// What a job must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Overlap {
    /// The source with this path is what would be written.
    Same(Vec<u8>),
    /// What stands at this path in the source would be written into the source itself, which is a folder of the destination by that name.
    Into(Vec<u8>),
    /// The destination, which this path leads to from the source, is inside the source.
    Inside(Vec<u8>),
    /// The source with this path stands below the destination, where what the source does not have is removed.
    Pruned(Vec<u8>),
}

impl std::fmt::Display for Overlap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Overlap::Same(path) => {
                write!(f, "'{}' is both the source and the destination", String::from_utf8_lossy(path))
            }
            Overlap::Into(path) => write!(
                f,
                "'{}' would be written into the source, which stands in the destination under that name",
                String::from_utf8_lossy(path)
            ),
            Overlap::Inside(path) => {
                write!(f, "the destination '{}' is inside the source", String::from_utf8_lossy(path))
            }
            Overlap::Pruned(path) => write!(
                f,
                "the source '{}' stands in the destination, and --delete would remove it there",
                String::from_utf8_lossy(path)
            ),
        }
    }
}

/// Where a job's entries go, seen from its source.
#[derive(Debug)]
pub struct Own {
    marks: Marks,
    places: Vec<Place>,
    /// The destination is one folder, no set of volumes.
    is_one: bool,
}

impl Own {
    /// `None`: nothing is known of the destination, or it is not of this kernel's. `volumes`: of the destination.
    #[must_use]
    pub fn new(job: &[u8; 16], places: &[Place], volumes: u16) -> Option<Own> {
        let marks = Marks::of(job).filter(|_| !places.is_empty())?;
        Some(Own { marks, places: places.to_vec(), is_one: volumes == 1 })
    }

    fn has(&self, dev: u64, ino: u64) -> bool {
        self.places.contains(&self.marks.mark(dev, ino))
    }

    /// Are entries named below this folder?
    pub(in crate::tree) fn is_base(&self, stat: &Stat) -> bool {
        self.has(stat.dev, stat.ino)
    }

    /// Is it one of the folders above the one that entries are named below?
    fn is_above(&self, stat: &Stat) -> bool {
        self.places.contains(&self.marks.mark_above(stat.dev, stat.ino))
    }

    /// The destination, if it is inside a source of which it is not left out: all of it would be copied into itself, less the copy. `rest`: the
    /// way on from the folder that is marked, where its own folders are still to be made.
    #[must_use]
    pub fn inside(&self, source: &Sources, rest: Option<&[u8]>) -> Option<Overlap> {
        let [tree] = source.trees() else { return None };
        let (filter, picks) = tree.chosen();
        if !self.is_one || picks.is_some() {
            return None; // what is named by itself is looked at when it is met
        }
        let leaves_out = |path: &Path| {
            let parts = path.ancestors().map(|part| part.as_os_str().as_bytes());
            let mut parts = parts.filter(|part| !part.is_empty());
            filter.as_ref().is_some_and(|filter| parts.any(|part| filter.leaves_out(part, true)))
        };
        tree.roots().find_map(|(top, root)| {
            let below = self.way_down(&root.parent, &root.name)?;
            // What is joined with nothing would end in a `/`.
            let below = join(below.as_os_str().as_bytes(), rest.unwrap_or(top));
            let below = Path::new(OsStr::from_bytes(&below));
            let is_it = !below.as_os_str().is_empty() && !leaves_out(below);
            is_it.then(|| Overlap::Inside([&path_of(root), &b"/"[..], below.as_os_str().as_bytes()].concat()))
        })
    }

    /// From a folder to the one that entries are named below, if that is in it: by marks, so that no link and no bind mount hides it.
    fn way_down(&self, parent: &Dir, name: &[u8]) -> Option<PathBuf> {
        if parent.stat(name).is_ok_and(|it| it.kind != Kind::Folder) {
            return None;
        }
        let mut dir = if name.is_empty() { parent.clone() } else { parent.open_dir(name).ok()? };
        let mut below = PathBuf::new();
        for _ in 0..=ABOVE_MAX {
            let stat = dir.stat_self().ok()?;
            if self.is_base(&stat) {
                return Some(below);
            }
            if !self.is_above(&stat) {
                return None;
            }
            let is_next = |name: &[u8]| {
                dir.stat(name).is_ok_and(|it| it.kind == Kind::Folder && (self.is_base(&it) || self.is_above(&it)))
            };
            let may_be = |kind: Option<Kind>| matches!(kind, None | Some(Kind::Folder));
            let mut names = dir.list().ok()?.flatten().filter(|it| may_be(it.kind)).map(|it| it.name);
            let next = names.find(|name| is_next(name))?;
            dir = dir.open_dir(&next).ok()?;
            below.push(OsStr::from_bytes(&next));
        }
        None
    }

    /// Is a source what would be written, does it hold that, or would it be removed?
    #[must_use]
    pub fn overlap(&self, source: &Sources, prunes: bool) -> Option<Overlap> {
        let roots = source.trees().iter().flat_map(|tree| tree.roots());
        // A set of volumes may be dealt out anew over disks of which some hold it.
        let is_one = self.is_one && source.trees().len() == 1;
        for (top, root) in roots {
            let path = || path_of(root);
            if is_one && self.is_same(top, root) {
                return Some(Overlap::Same(path()));
            }
            // The source as it is named below the folder that its copy becomes.
            let below = if is_one || prunes { self.below_its_copy(top, root, source) } else { None };
            let is_folder = |(source, below): &&(PathBuf, PathBuf)| {
                std::fs::symlink_metadata(source.join(below)).is_ok_and(|it| it.is_dir())
            };
            if is_one && let Some((_, below)) = below.as_ref().filter(is_folder) {
                return Some(Overlap::Into([&path(), &b"/"[..], below.as_os_str().as_bytes()].concat()));
            }
            if prunes && below.is_some() {
                return Some(Overlap::Pruned(path()));
            }
        }
        self.inside(source, None)
    }

    fn is_same(&self, top: &[u8], root: &Root) -> bool {
        if top.is_empty() {
            return root.parent.stat(&root.name).is_ok_and(|stat| self.is_base(&stat));
        }
        *root.name == *top && root.parent.stat_self().is_ok_and(|stat| self.is_base(&stat))
    }

    /// A source that stands below the folder that its copy becomes, where no rule leaves it out: it, and where below.
    fn below_its_copy(&self, top: &[u8], root: &Root, source: &Sources) -> Option<(PathBuf, PathBuf)> {
        if root.parent.stat(&root.name).map_or(true, |stat| stat.kind != Kind::Folder) {
            return None;
        }
        let path = PathBuf::from(OsStr::from_bytes(root.parent.path()));
        let path = std::fs::canonicalize(path.join(OsStr::from_bytes(&root.name))).ok()?;
        let is_base = |path: &Path| std::fs::metadata(path).is_ok_and(|it| self.has(it.dev(), it.ino()));
        let becomes = |above: &Path| match (top, above.parent()) {
            (b"", _) => is_base(above),
            (_, Some(parent)) => above.file_name().is_some_and(|name| name.as_bytes() == top) && is_base(parent),
            (_, None) => false,
        };
        let copy = path.ancestors().skip(1).find(|above| becomes(above))?;
        let below = path.strip_prefix(copy).expect("it is one of its folders");
        let (filter, _) = source.trees()[0].chosen();
        let is_kept = |part: &Path| {
            let part = part.as_os_str().as_bytes();
            !part.is_empty() && filter.as_ref().is_some_and(|filter| filter.leaves_out(part, true))
        };
        let is_left_out = below.ancestors().any(is_kept);
        (!is_left_out).then(|| (path.clone(), below.to_path_buf()))
    }
}

/// As the user named it: the content of a folder (`dir/.`) by the folder.
fn path_of(root: &Root) -> Vec<u8> {
    let mut folder = root.parent.path();
    while let Some(shorter) = folder.strip_suffix(b"/.").or_else(|| folder.strip_suffix(b"/")) {
        folder = shorter;
    }
    if root.name.is_empty() { folder.to_vec() } else { [folder, b"/", &root.name].concat() }
}

/// Why a folder is not announced.
pub(in crate::tree) fn own_destination() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "left out: it is the destination of this very job (--exclude it)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::fs;

    use crate::tree::io_mode::Chooser;
    use crate::tree::scan::Scan;
    use crate::tree::scan::filter::Filter;
    use crate::tree::source::LinuxSource;
    use proto::manifest::EntryKind;
    use std::sync::Arc;

    struct Place {
        folder: PathBuf,
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    const JOB: [u8; 16] = [9; 16];

    impl Place {
        /// `src` with a file, `src/sub` with a file, and `other`.
        fn new(name: &str) -> Place {
            let folder = std::env::temp_dir().join(format!("longhaul-overlap-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(folder.join("src/sub")).expect("a folder for the test");
            fs::create_dir_all(folder.join("other")).expect("a folder for the test");
            fs::write(folder.join("src/file"), b"x").expect("a file");
            fs::write(folder.join("src/sub/old"), b"x").expect("a file");
            Place { folder }
        }

        fn dir(&self, path: &str) -> Dir {
            Dir::open(self.folder.join(path).as_os_str().as_bytes()).expect("it is there")
        }

        fn source(&self, parent: &str, name: &str, top: &str) -> LinuxSource {
            let root = Root { parent: self.dir(parent), name: name.as_bytes().into() };
            LinuxSource::new(
                HashMap::from([(top.as_bytes().into(), root)]),
                Chooser::new(crate::tree::io_mode::Demands::default()),
            )
        }

        fn own(&self, base: &str) -> Own {
            let marks = Marks::of(&JOB).expect("this kernel tells its boot");
            Own::new(&JOB, &marks.places(&[self.dir(base)]), 1).expect("a place")
        }

        /// Paths that a scan announces, and those it does not.
        fn scanned(source: LinuxSource) -> (Vec<String>, Vec<String>) {
            let text = |path: &[u8]| String::from_utf8(path.to_vec()).expect("ASCII");
            let (mut found, mut left) = (Vec::new(), Vec::new());
            let mut scan = Scan::new(&Sources::from(source));
            while let Some(batch) = scan.next_batch() {
                let entries = batch.entries.iter().filter(|it| it.kind != EntryKind::FolderEnd);
                found.extend(entries.map(|it| text(&it.path)));
                left.extend(batch.faults.iter().map(|(path, _)| text(path)));
            }
            found.sort();
            (found, left)
        }
    }

    #[test]
    fn a_destination_inside_the_source_is_left_out_and_told() {
        let place = Place::new("inside");
        // cp src src/sub, whose content goes into the folder that stands there.
        let own = Arc::new(place.own("src/sub"));
        let it = Place::scanned(place.source("src", "", "").avoiding(Some(own)));
        assert_eq!(it, (vec!["".into(), "file".into()], vec!["sub".into()]));
        // cp src src/: below src, under its own name, whether or not that stands there already.
        for _ in 0..2 {
            let own = Arc::new(place.own("src"));
            let (found, left) = Place::scanned(place.source("", "src", "src").avoiding(Some(own)));
            assert_eq!(
                (found, left),
                (["src", "src/file", "src/sub", "src/sub/old"].map(String::from).to_vec(), vec!["src/src".to_owned()])
            );
            fs::create_dir_all(place.folder.join("src/src/deep")).expect("as a run before made it");
        }
        // A link to it, or any other path, is the same folder: it is known by its number.
        std::os::unix::fs::symlink(place.folder.join("src/sub"), place.folder.join("way")).expect("a link");
        let (_, left) = Place::scanned(place.source("src", "", "").avoiding(Some(Arc::new(place.own("way")))));
        assert_eq!(left, ["sub"]);
    }

    #[test]
    fn what_the_rules_leave_out_is_not_told() {
        let place = Place::new("rules");
        let filter = || Some(Arc::new(Filter::new(&["/sub/".into()]).expect("a rule")));
        let own = Arc::new(place.own("src/sub"));
        let (found, left) = Place::scanned(place.source("src", "", "").choosing(filter(), None).avoiding(Some(own)));
        assert_eq!((found, left), (vec![String::new(), "file".into()], vec![]));
    }

    #[test]
    fn the_same_place_and_a_source_that_would_be_removed_are_found() {
        let place = Place::new("same");
        fs::create_dir_all(place.folder.join("src/src")).expect("a folder");
        let ask = |base: &str, parent: &str, name: &str, top: &str, prunes| {
            place.own(base).overlap(&Sources::from(place.source(parent, name, top)), prunes)
        };
        let is_same = |it| matches!(it, Some(Overlap::Same(_)));
        let is_pruned = |it| matches!(it, Some(Overlap::Pruned(_)));
        assert!(is_same(ask("src", "src", "", "", false)), "a folder onto itself");
        assert!(is_same(ask("src", "src", "file", "file", false)), "a file onto itself");
        assert!(is_same(ask("", "", "src", "src", true)), "a folder into the one it stands in");
        assert_eq!(ask("other", "", "src", "src", true), None, "elsewhere");
        assert_eq!(
            ask("", "src", "src", "src", false),
            None,
            "up by one, onto the folder it stands in: nothing is removed"
        );
        assert!(is_pruned(ask("", "src", "src", "src", true)), "the same with --delete");
        assert!(is_pruned(ask("src", "src/sub", "", "", true)), "content up by one");
        assert_eq!(ask("src", "src/sub", "", "", false), None, "the same without --delete");
        let filter = Some(Arc::new(Filter::new(&["/sub/".into()]).expect("a rule")));
        let source = Sources::from(place.source("src/sub", "", "").choosing(filter, None));
        assert_eq!(
            place.own("src").overlap(&source, true),
            None,
            "the same where a rule lets nothing of it be removed"
        );
        let is_inside = |it| matches!(it, Some(Overlap::Inside(path)) if path.ends_with(b"/src/sub"));
        assert!(is_inside(ask("src/sub", "src", "", "", true)), "the destination is inside the source");
        fs::create_dir_all(place.folder.join("src/src/src")).expect("a folder");
        fs::create_dir_all(place.folder.join("src/sub/sub")).expect("a folder");
        let is_into =
            |it| matches!(it, Some(Overlap::Into(path)) if path.ends_with(b"/src") || path.ends_with(b"/sub"));
        assert!(is_into(ask("", "src", "src", "src", false)), "up by one, and what is below it would come into it");
        assert!(is_into(ask("src", "src/sub", "", "", false)), "content up by one, the same");
        assert_eq!(place.own("src").overlap(&source, false), None, "unless a rule leaves it out");
    }

    #[test]
    fn a_destination_inside_the_source_is_found_before_anything_is_read_unless_it_is_left_out() {
        let place = Place::new("found");
        fs::create_dir_all(place.folder.join("src/sub/deep/er")).expect("a folder");
        std::os::unix::fs::symlink(place.folder.join("src/sub/deep"), place.folder.join("way")).expect("a link");
        let ask = |base: &str, rules: &[&str], parent: &str, name: &str, top: &str| {
            let rules: Vec<Box<str>> = rules.iter().map(|&it| it.into()).collect();
            let filter = Some(Arc::new(Filter::new(&rules).expect("rules")));
            let source = Sources::from(place.source(parent, name, top).choosing(filter, None));
            match place.own(base).inside(&source, None) {
                Some(Overlap::Inside(path)) => {
                    let base = [place.folder.as_os_str().as_bytes(), b"/"].concat();
                    let path = path.strip_prefix(&base[..]).expect("as the user named it").to_vec();
                    Some(String::from_utf8(path).expect("ASCII"))
                }
                None => None,
                other => panic!("{other:?}"),
            }
        };
        let some = |path: &str| Some(path.to_owned());
        assert_eq!(ask("src/sub/deep", &[], "src", "", ""), some("src/sub/deep"), "cp src src/sub/deep");
        assert_eq!(ask("src/sub/deep", &[], "", "src", "x"), some("src/sub/deep/x"), "a new name in it");
        assert_eq!(ask("src", &[], "", "src", "new"), some("src/new"), "cp src src/new");
        assert_eq!(ask("way", &[], "", "src", "src"), some("src/sub/deep/src"), "a link leads there");
        assert_eq!(ask("src/sub", &[], "src", "", ""), some("src/sub"));
        for rules in [&["/sub/deep/"][..], &["/sub/"], &["deep"]] {
            assert_eq!(ask("src/sub/deep", rules, "src", "", ""), None, "left out by {rules:?}");
        }
        assert_eq!(ask("src/sub/deep", &["/other/"], "src", "", ""), some("src/sub/deep"), "left out is another");
        for (base, parent, name, top) in [
            ("other", "", "src", "src"),
            ("src", "src", "file", "x"),
            ("src", "src", "sub", "sub2"),
            ("", "", "src", "x"),
        ] {
            assert_eq!(ask(base, &[], parent, name, top), None, "{parent}/{name} to {base}/{top}");
        }
        let marks = Marks::of(&JOB).expect("this kernel tells its boot");
        let set = [place.dir("src/sub"), place.dir("other")];
        let own = Own::new(&JOB, &marks.places(&set), 2).expect("a set");
        assert_eq!(
            own.inside(&Sources::from(place.source("src", "", "")), None),
            None,
            "of a set the scan leaves its volumes out"
        );
    }

    #[test]
    fn marks_of_another_job_or_another_boot_are_others() {
        let (stat, boot) = ((7, 8), b"3b1b3c1e-0000-4000-8000-000000000000");
        let mark = |marks: Marks| marks.mark(stat.0, stat.1);
        assert_eq!(mark(Marks::at(&JOB, boot)), mark(Marks::at(&JOB, boot)));
        assert_ne!(mark(Marks::at(&JOB, boot)), mark(Marks::at(&[8; 16], boot)));
        assert_ne!(mark(Marks::at(&JOB, boot)), mark(Marks::at(&JOB, b"3b1b3c1e-0000-4000-8000-000000000001")));
        assert_ne!(Marks::at(&JOB, boot).mark(7, 8), Marks::at(&JOB, boot).mark(8, 7));
    }
}
