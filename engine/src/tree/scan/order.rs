//! In which order the names of a folder are looked at.
//!
//! For: the scan: small files are read in the order in which they were found, so that order is the way of a disk's head.
//! In and out: an open list of names, and whether this file system is walked by number → its names, one at a time.
//! Invariants: at most `NAMES_MAX` names are held back by a walk, whatever the number and size of its open folders; none is left out and
//! none comes twice; an error ends a folder after the names that came before it.
//! Absent on purpose: where the bytes of each file are (one question per file, while the number of a file comes with its name).

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;

use proto::negotiate::Choice;
use sys::fs::{Dir, Entry, Kind, List};

/// Names of all open folders of a walk that are held back to be put in order: some 3 MiB. More bring nothing: a window of so many numbers
/// passes over the tables of a file system once, in one direction.
const NAMES_MAX: usize = 32 << 10;
/// The first window of a folder: the job begins before a large folder is read. Each further one is twice as large.
const WINDOW_FIRST: usize = 2 << 10;

/// Where the order of names is no order of places: which file systems are walked by number.
#[derive(Debug, Default)]
pub(in crate::tree) struct Orders {
    /// By device.
    known: HashMap<u64, bool>,
    /// What was said: a file system may have thousands of devices (btrfs has one for each subvolume).
    told: BTreeSet<String>,
    /// Names that are held back now.
    held: usize,
}

impl Orders {
    /// Is this folder walked by number? What is said of a device that was not met before, is said once.
    pub(in crate::tree) fn of(&mut self, dev: u64, dir: &Dir, tell: impl FnOnce(Choice)) -> bool {
        *self.known.entry(dev).or_insert_with(|| {
            let (by_number, reason) = judge(dev, dir, Path::new("/sys"));
            let value = if by_number { "by inode" } else { "as folders give them" };
            if self.told.insert(reason.clone()) {
                tell(Choice { what: "order of files", value: value.to_owned(), reason });
            }
            by_number
        })
    }
}

/// Measured, docs/design/006: on a rotational disk an ext4's files come a fifth sooner by number, because its folders give names in the
/// order of their hashes; XFS and btrfs give them nearly as they were made, and flash has no order.
fn judge(dev: u64, dir: &Dir, folder: &Path) -> (bool, String) {
    let fs =
        dir.space().map_or_else(|_| "a file system that does not say what it is".to_owned(), |space| space.fs_type);
    match (fs.as_str(), turns(dev, folder)) {
        ("ext4", Some(true)) => {
            (true, "ext4 on a rotational disk: its folders give names in the order of hashes".to_owned())
        }
        ("ext4", Some(false)) => (false, "ext4 on a device that does not turn: no order is faster".to_owned()),
        ("ext4", None) => (false, "ext4 on a device that does not say whether it turns".to_owned()),
        _ => (false, format!("{fs}: no other order was measured faster")),
    }
}

/// Does the disk turn? A partition's is the disk it is on.
fn turns(dev: u64, folder: &Path) -> Option<bool> {
    let (major, minor) = sys::fs::device_numbers(dev);
    let device = folder.join(format!("dev/block/{major}:{minor}"));
    let text = ["queue/rotational", "../queue/rotational"]
        .iter()
        .find_map(|file| std::fs::read_to_string(device.join(file)).ok())?;
    Some(text.trim() == "1")
}

/// The names of a folder.
#[derive(Debug)]
pub(in crate::tree) struct Names {
    list: List,
    by_number: bool,
    /// The last one is the next.
    window: Vec<Entry>,
    /// How many were asked for at once.
    asked: usize,
    /// After the window.
    error: Option<io::Error>,
    over: bool,
}

impl Names {
    /// Of a list.
    pub(in crate::tree) fn new(list: List, by_number: bool) -> Names {
        Names { list, by_number, window: Vec::new(), asked: WINDOW_FIRST / 2, error: None, over: false }
    }

    /// The next; after an error there is none.
    pub(in crate::tree) fn next(&mut self, orders: &mut Orders) -> Option<io::Result<Entry>> {
        if !self.by_number {
            return self.list.next();
        }
        if self.window.is_empty() && !self.over {
            self.fill(orders);
        }
        match self.window.pop() {
            Some(entry) => {
                orders.held -= 1;
                Some(Ok(entry))
            }
            None => self.error.take().map(Err),
        }
    }

    fn fill(&mut self, orders: &mut Orders) {
        self.asked = (self.asked * 2).min(NAMES_MAX);
        // Below many folders that hold all of the room, a folder is walked as it comes.
        let room = NAMES_MAX.saturating_sub(orders.held).clamp(1, self.asked);
        while self.window.len() < room {
            match self.list.next() {
                Some(Ok(entry)) => self.window.push(entry),
                Some(Err(error)) => (self.error, self.over) = (Some(error), true),
                None => self.over = true,
            }
            if self.over {
                break;
            }
        }
        orders.held += self.window.len();
        // Folders last: what is below them lies elsewhere.
        self.window.sort_unstable_by_key(|it| std::cmp::Reverse((it.kind == Some(Kind::Folder), it.ino)));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("longhaul-order-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
        fn dir(&self) -> Dir {
            Dir::open(self.0.as_os_str().as_bytes()).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn all(mut names: Names, orders: &mut Orders) -> Vec<Entry> {
        std::iter::from_fn(|| names.next(orders)).map(Result::unwrap).collect()
    }

    #[test]
    fn names_come_by_number_with_folders_last_and_none_is_lost() {
        let folder = Folder::new("many");
        // More than the first window holds: two windows, each in order.
        for number in 0..WINDOW_FIRST + 500 {
            let name = folder.0.join(format!("{:x}", number * 7919 % 100_003));
            if number % 100 == 0 { std::fs::create_dir(name).unwrap() } else { std::fs::write(name, b"").unwrap() }
        }
        let mut orders = Orders::default();
        let found = all(Names::new(folder.dir().list().unwrap(), true), &mut orders);
        let plain = all(Names::new(folder.dir().list().unwrap(), false), &mut orders);
        let key = |it: &Entry| (it.kind == Some(Kind::Folder), it.ino);
        assert!(found[..WINDOW_FIRST].is_sorted_by_key(key) && found[WINDOW_FIRST..].is_sorted_by_key(key));
        let names = |list: &[Entry]| {
            let mut names: Vec<_> = list.iter().map(|it| it.name.clone()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&found), names(&plain));
        assert_eq!((found.len(), orders.held), (WINDOW_FIRST + 500, 0));
    }

    #[test]
    fn where_others_hold_all_of_the_room_a_folder_is_walked_as_it_comes() {
        let folder = Folder::new("room");
        (0..50).for_each(|number| std::fs::write(folder.0.join(format!("{number}")), b"").unwrap());
        let mut orders = Orders { held: NAMES_MAX, ..Orders::default() };
        let found = all(Names::new(folder.dir().list().unwrap(), true), &mut orders);
        assert_eq!(found, all(Names::new(folder.dir().list().unwrap(), false), &mut orders));
        assert_eq!(orders.held, NAMES_MAX);
    }

    #[test]
    fn a_disk_that_turns_is_known_by_its_partition_too() {
        let folder = Folder::new("sys");
        let at = |number: &str| folder.0.join("dev/block").join(number);
        for (number, text) in [("8:0", Some("1\n")), ("8:16", Some("0\n")), ("0:40", None)] {
            std::fs::create_dir_all(at(number).join("queue")).unwrap();
            if let Some(text) = text {
                std::fs::write(at(number).join("queue/rotational"), text).unwrap();
            }
        }
        // A partition's folder is below its disk's.
        std::fs::create_dir_all(at("8:0").join("part")).unwrap();
        std::os::unix::fs::symlink("8:0/part", at("8:1")).unwrap();
        let turns = |major: u64, minor: u64| turns(major << 8 | minor, &folder.0);
        assert_eq!([turns(8, 0), turns(8, 1), turns(8, 16)], [Some(true), Some(true), Some(false)]);
        assert_eq!([turns(0, 40), turns(9, 9)], [None, None]);
    }
}
