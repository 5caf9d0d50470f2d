//! Walking a source: entries in depth-first order, in batches.
//!
//! For: the manifest, streamed while data already moves.
//! In and out: the roots of a `LinuxSource` in; batches of entries and places that could not be looked at out.
//! Invariants: memory is one open folder per level, whatever their size, and the first names of files with several names that were
//! not all found yet, at most `LINK_GROUPS_MAX` and `LINK_NAME_BYTES_MAX`; a folder's end comes after everything below it; links are
//! not followed; our own parts and journals are left out.
//! Absent on purpose: sending order beyond the walk's own (readdir order; sorting by extent belongs to the storage work).

use std::collections::HashMap;
use std::io;

use proto::manifest::{
    Aspects, Entry, EntryKind, LINK_GROUPS_MAX, LINK_NAME_BYTES_MAX, Meta, NodeKind, check_path, join,
};
use proto::wire::control::IdName;
use sys::fs::{Dir, Kind, List, Stat};

use crate::linux::ids::Told;
use crate::linux::source::{LinuxSource, Root};
use crate::linux::{is_ours, meta};

/// Entries per batch, at most.
const BATCH_ENTRIES: usize = 512;
/// Bytes of names per batch, at most: well below a control frame.
const BATCH_NAME_BYTES: usize = 96 << 10;

/// What a batch brings.
#[derive(Debug, Default)]
pub struct Batch {
    /// Found.
    pub entries: Vec<Entry>,
    /// Names of users and groups that these entries are the first to have.
    pub names: Vec<IdName>,
    /// Not to be looked at, with the reason.
    pub faults: Vec<(Box<[u8]>, io::Error)>,
}

struct Level {
    dir: Dir,
    list: List,
    path: Box<[u8]>,
    end: Entry,
}

/// A walk in progress.
pub struct Scan {
    roots: std::vec::IntoIter<(Box<[u8]>, Root)>,
    levels: Vec<Level>,
    wanted: Aspects,
    told: Option<Told>,
    linked: Linked,
    attribute_names: Vec<u8>,
}

/// A first name, and how many more may come.
type First = (Box<[u8]>, u64);

/// First names of files of which more names may come.
#[derive(Default)]
struct Linked {
    /// By device and number.
    files: HashMap<(u64, u64), First>,
    name_bytes: usize,
}

impl Linked {
    /// The first name of this file, if this is not it.
    fn first(&mut self, stat: &Stat) -> Option<Box<[u8]>> {
        let key = (stat.dev, stat.ino);
        let (first, left) = self.files.get_mut(&key)?;
        *left -= 1;
        if *left > 0 {
            return Some(first.clone());
        }
        let (first, _) = self.files.remove(&key)?;
        self.name_bytes -= first.len();
        Some(first)
    }

    /// Remembers a first name. False: there is no room for more.
    fn remember(&mut self, stat: &Stat, path: &[u8]) -> bool {
        let name_bytes = self.name_bytes + path.len();
        if self.files.len() >= LINK_GROUPS_MAX || name_bytes > LINK_NAME_BYTES_MAX {
            return false;
        }
        self.name_bytes = name_bytes;
        // As many as the wire's count can say, and not one more.
        let left = stat.nlink.min(u64::from(u32::MAX)) - 1;
        self.files.insert((stat.dev, stat.ino), (path.into(), left));
        true
    }
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan").field("depth", &self.levels.len()).finish_non_exhaustive()
    }
}

impl Scan {
    /// Walks all roots of a source.
    #[must_use]
    pub fn new(source: &LinuxSource) -> Self {
        let mut roots: Vec<(Box<[u8]>, Root)> = source.roots().map(|(top, root)| (top.into(), root.clone())).collect();
        roots.sort_by(|a, b| a.0.cmp(&b.0));
        Scan {
            roots: roots.into_iter(),
            levels: Vec::new(),
            wanted: source.wanted(),
            told: (!source.is_numeric()).then(Told::of_this_host),
            linked: Linked::default(),
            attribute_names: Vec::new(),
        }
    }

    /// The next batch; None at the end.
    pub fn next_batch(&mut self) -> Option<Batch> {
        let mut batch = Batch::default();
        let mut name_bytes = 0;
        while batch.entries.len() < BATCH_ENTRIES && name_bytes < BATCH_NAME_BYTES {
            if !self.step(&mut batch) {
                return (!batch.entries.is_empty() || !batch.faults.is_empty()).then_some(batch);
            }
            name_bytes += batch.entries.last().map_or(0, Entry::window_bytes);
        }
        Some(batch)
    }

    fn step(&mut self, batch: &mut Batch) -> bool {
        let Some(level) = self.levels.last_mut() else {
            let Some((top, root)) = self.roots.next() else { return false };
            self.look(&root.parent, &root.name, top, batch);
            return true;
        };
        match level.list.next() {
            None => {
                let level = self.levels.pop().expect("seen above");
                batch.entries.push(level.end);
            }
            Some(Err(error)) => {
                let level = self.levels.pop().expect("seen above");
                batch.faults.push((level.path, error));
                batch.entries.push(level.end);
            }
            Some(Ok(found)) if is_ours(&found.name) => {}
            Some(Ok(found)) => {
                let path = join(&level.path, &found.name);
                let dir = level.dir.clone();
                self.look(&dir, &found.name, path, batch);
            }
        }
        true
    }

    fn look(&mut self, dir: &Dir, name: &[u8], path: Box<[u8]>, batch: &mut Batch) {
        if check_path(&path).is_err() {
            batch.faults.push((path, io::ErrorKind::InvalidFilename.into()));
            return;
        }
        if let Err(error) = self.try_look(dir, name, &path, batch) {
            batch.faults.push((path, error));
        }
    }

    fn try_look(&mut self, dir: &Dir, name: &[u8], path: &[u8], batch: &mut Batch) -> io::Result<()> {
        let (stat, flagged) = dir.look(name)?;
        let Some(kind) = self.kind(dir, name, &stat)? else { return Ok(()) };
        let several = stat.nlink > 1 && stat.kind != Kind::Folder && self.wanted.has(Aspects::HARD_LINKS);
        if several && let Some(first) = self.linked.first(&stat) {
            batch.entries.push(self.entry(path, EntryKind::Name { first }, &stat, Meta::default()));
            return Ok(());
        }
        let mut meta = meta::read(dir, name, &stat, flagged, self.wanted, &mut self.attribute_names);
        if several && self.linked.remember(&stat, path) {
            meta.names = u32::try_from(stat.nlink).unwrap_or(u32::MAX);
        } else if several {
            meta.lost = meta.lost.with(Aspects::HARD_LINKS);
        }
        if kind == EntryKind::Folder {
            let own = if name.is_empty() { dir.clone() } else { dir.open_dir(name)? };
            let list = own.list()?;
            // What it has is set when all below it is there: with its end.
            batch.entries.push(self.entry(path, kind, &stat, Meta::default()));
            let end = self.entry(path, EntryKind::FolderEnd, &stat, meta);
            self.tell(&end, batch);
            self.levels.push(Level { dir: own, list, path: path.into(), end });
        } else {
            let entry = self.entry(path, kind, &stat, meta);
            self.tell(&entry, batch);
            batch.entries.push(entry);
        }
        Ok(())
    }

    fn tell(&mut self, entry: &Entry, batch: &mut Batch) {
        if let Some(told) = &mut self.told {
            told.add(entry, &mut batch.names);
        }
    }

    /// What it is; `None`: the user does not want it.
    fn kind(&self, dir: &Dir, name: &[u8], stat: &Stat) -> io::Result<Option<EntryKind>> {
        let kind = match stat.kind {
            Kind::File => return Ok(Some(EntryKind::File { bytes: stat.bytes })),
            Kind::Link => return Ok(Some(EntryKind::Link { target: dir.read_link(name)?.into_boxed_slice() })),
            Kind::Folder => return Ok(Some(EntryKind::Folder)),
            Kind::Fifo => NodeKind::Fifo,
            Kind::Socket => NodeKind::Socket,
            Kind::Char => NodeKind::Char,
            Kind::Block => NodeKind::Block,
            Kind::Other => return Err(io::Error::new(io::ErrorKind::Unsupported, "of a kind that is not known")),
        };
        if !self.wanted.has(kind.aspect()) {
            return Ok(None);
        }
        let is_device = kind.aspect() == Aspects::DEVICES;
        let (major, minor) = if is_device { (stat.major, stat.minor) } else { (0, 0) };
        Ok(Some(EntryKind::Node { kind, major, minor }))
    }

    fn entry(&self, path: &[u8], kind: EntryKind, stat: &Stat, meta: Meta) -> Entry {
        let mode = meta::mode(stat, self.wanted);
        Entry { id: 0, path: path.into(), kind, mode, mtime_s: stat.mtime_s, mtime_ns: stat.mtime_ns, meta }
    }
}
