//! Walking a source: entries in depth-first order, in batches.
//!
//! For: the manifest, streamed while data already moves.
//! In and out: the roots of the volumes in; batches of entries and places that could not be looked at out.
//! Invariants: memory is one open folder per level, whatever their size, and the first names of files with several names that were
//! not all found yet, at most `LINK_GROUPS_MAX` and `LINK_NAME_BYTES_MAX`; of a set of volumes also one open folder per level and volume,
//! and 8 bytes for each name of an open folder; on some disks names that wait in order, at most `order::NAMES_MAX`; a folder's end comes after everything below it; links are
//! not followed; our own parts and journals are left out, and what the job's rules leave out or its list does not name.
//! Absent on purpose: sending order beyond the walk's own (tree/scan/order.rs) and a pack's (source/file.rs).

pub mod filter; // what is left out by rules
pub mod include; // what is taken where not all is
mod order; // in which order names are looked at
pub mod root; // what the user named
pub mod overlap; // source and destination that touch each other

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use proto::journal::{JOURNAL_HEADER_BYTES, JournalHeader, Replay};
use proto::manifest::{
    Aspects, Entry, EntryKind, LINK_GROUPS_MAX, LINK_NAME_BYTES_MAX, Meta, NodeKind, check_path, join,
};
use proto::storage::Way;
use proto::striped::Whole;
use proto::wire::control::{IdName, Unnamed};
use sys::fs::{Dir, Kind, Stat};

use crate::tree::commit::JOURNAL_FILE_BYTES_MIN;
use crate::tree::ids::Told;
use crate::tree::io_mode::{Chooser, Ground, LARGE_FILE_BYTES_MIN};
use crate::tree::scan::filter::Filter;
use crate::tree::scan::include::{IncludeList, Taken};
use crate::tree::scan::order::{Names, Orders};
use crate::tree::scan::overlap::{Own, own_destination};
use crate::tree::sink_tree::name_sign;
use crate::tree::source::Root;
use crate::tree::{Sources, beside_of, is_ours, meta};

/// Entries per batch, at most.
pub(super) const BATCH_ENTRIES: usize = 512;
/// Bytes of names per batch, at most: well below a control frame.
pub(super) const BATCH_NAME_BYTES: usize = 96 << 10;

/// What a batch brings.
#[derive(Debug, Default)]
pub struct Batch {
    /// Found.
    pub entries: Vec<Entry>,
    /// Names of users and groups that these entries are the first to have.
    pub names: Vec<IdName>,
    /// Numbers without a name, in all batches so far.
    pub unnamed: Unnamed,
    /// Not to be looked at, with the reason.
    pub faults: Vec<(Box<[u8]>, io::Error)>,
}

/// An open folder: the same one on each volume that has it.
struct Level {
    /// By volume.
    dirs: Vec<(u16, Dir)>,
    /// What is not read to its end. Each gives one name in turn, so that large files of all volumes are announced side by side.
    lists: VecDeque<(u16, Names)>,
    /// What is left of the picks in it, if not all that stands there is taken.
    picked: Option<Range<usize>>,
    path: Box<[u8]>,
    end: Entry,
    /// Names met so far, if there are several volumes: a folder stands on all, a file on one.
    met: HashSet<u64>,
    /// The job's entries are named below it: what it has under the name of a source is the job's own.
    is_base: bool,
}

/// Where something stands: under a name, on a volume; and its folder on each volume that has it.
struct Place<'a> {
    volume: u16,
    dirs: &'a [(u16, Dir)],
    name: &'a [u8],
    /// No other volume has had this name in this folder yet.
    is_first: bool,
}

/// The first component of what the user named, and where it stands: by volume.
type Top = (Box<[u8]>, Vec<(u16, Root)>);

/// A walk in progress.
pub struct Scan {
    /// What the user named: on each volume that has it.
    roots: std::vec::IntoIter<Top>,
    volumes: usize,
    /// Large files are striped by chunk.
    by_chunk: bool,
    /// Volumes that are not there.
    missing: Vec<(Box<[u8]>, io::Error)>,
    levels: Vec<Level>,
    wanted: Aspects,
    told: Option<Told>,
    filter: Option<Arc<Filter>>,
    picks: Option<Arc<IncludeList>>,
    own: Option<Arc<Own>>,
    /// What folders that the user named are announced as.
    folders: Vec<Box<[u8]>>,
    /// Bytes of the paths of entries that lead to the source which is walked.
    top_bytes: usize,
    linked: Linked,
    attribute_names: Vec<u8>,
    chooser: Arc<Chooser>,
    orders: Orders,
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
    pub fn new(source: &Sources) -> Self {
        let mut tops: BTreeMap<Box<[u8]>, Vec<(u16, Root)>> = BTreeMap::new();
        for (volume, source) in (0..).zip(source.trees()) {
            for (top, root) in source.roots() {
                tops.entry(top.into()).or_default().push((volume, root.clone()));
            }
        }
        let (volumes, by_chunk) = (source.trees().len(), source.is_striped());
        let (missing, source) = (source.missing().collect(), &source.trees()[0]); // what is wanted is wanted of all
        let (filter, picks) = source.chosen();
        let is_folder = |root: &Root| root.parent.stat(&root.name).is_ok_and(|it| it.kind == Kind::Folder);
        let own = source.own();
        let folders = match &own {
            Some(_) => tops
                .iter()
                .filter(|(_, on)| on.iter().any(|(_, root)| is_folder(root)))
                .map(|(top, _)| top.clone())
                .collect(),
            None => Vec::new(),
        };
        Scan {
            own,
            folders,
            missing,
            roots: tops.into_iter().collect::<Vec<Top>>().into_iter(),
            volumes,
            by_chunk,
            levels: Vec::new(),
            wanted: source.wanted(),
            told: (!source.is_numeric()).then(Told::of_this_host),
            filter,
            picks,
            top_bytes: 0,
            linked: Linked::default(),
            attribute_names: Vec::new(),
            chooser: Arc::clone(source.chooser()),
            orders: Orders::default(),
        }
    }

    /// The next batch; None at the end.
    pub fn next_batch(&mut self) -> Option<Batch> {
        let mut batch = Batch { faults: std::mem::take(&mut self.missing), ..Batch::default() };
        let mut name_bytes = 0;
        while batch.entries.len() < BATCH_ENTRIES && name_bytes < BATCH_NAME_BYTES {
            if !self.step(&mut batch) {
                self.name(&mut batch);
                return (!batch.entries.is_empty() || !batch.faults.is_empty()).then_some(batch);
            }
            name_bytes += batch.entries.last().map_or(0, Entry::window_bytes);
        }
        self.name(&mut batch);
        Some(batch)
    }

    /// Asks for the names that are on no list of this host.
    fn name(&mut self, batch: &mut Batch) {
        if let Some(told) = &mut self.told {
            told.ask(&mut batch.names);
            batch.unnamed = told.unnamed();
        }
    }

    fn step(&mut self, batch: &mut Batch) -> bool {
        let Some(level) = self.levels.last_mut() else {
            let Some((top, roots)) = self.roots.next() else { return false };
            self.top_bytes = if top.is_empty() { 0 } else { top.len() + 1 };
            self.look_root(&top, &roots, batch);
            return true;
        };
        if let Some(range) = &mut level.picked {
            let picks = self.picks.as_ref().expect("what is picked comes from picks");
            let lead = level.path.len() + usize::from(!level.path.is_empty());
            let Some(picked) = picks.next(range, lead.saturating_sub(self.top_bytes)) else { return self.leave(batch) };
            if is_ours(picked.name) {
                return true; // as where a folder is read: `find` lists our parts, too
            }
            let (name, taken) = (picked.name.to_vec(), picked.taken);
            let (path, dirs) = (join(&level.path, &name), level.dirs.clone());
            self.look_somewhere(&dirs, &name, path, Some(taken), batch);
            return true;
        }
        let Some((volume, mut list)) = level.lists.pop_front() else { return self.leave(batch) };
        match list.next(&mut self.orders) {
            None => {}
            Some(Err(error)) => batch.faults.push((level.path.clone(), error)),
            Some(Ok(found)) => {
                level.lists.push_back((volume, list));
                if is_ours(&found.name) || (level.is_base && self.folders.iter().any(|top| **top == *found.name)) {
                    return true;
                }
                let path = join(&level.path, &found.name);
                let is_first = self.volumes == 1 || level.met.insert(name_sign(&found.name));
                let dirs = level.dirs.clone();
                self.look(Place { volume, dirs: &dirs, name: &found.name, is_first }, path, None, batch);
            }
        }
        true
    }

    /// A folder is done.
    fn leave(&mut self, batch: &mut Batch) -> bool {
        batch.entries.push(self.levels.pop().expect("the caller is in it").end);
        true
    }

    /// What the user named: a folder on all volumes, or a file on one.
    fn look_root(&mut self, top: &[u8], roots: &[(u16, Root)], batch: &mut Batch) {
        let Some((_, first)) = roots.first() else { return };
        let taken = self.picks.as_ref().map(|picks| picks.all());
        if roots.iter().all(|(_, root)| root.name == first.name) {
            let dirs: Vec<(u16, Dir)> = roots.iter().map(|(volume, root)| (*volume, root.parent.clone())).collect();
            self.look_somewhere(&dirs, &first.name, top.into(), taken, batch);
            return;
        }
        // Folders that have a name each are one folder under another: each is opened by its own, and no name is looked for on another's volume.
        let mut dirs = Vec::new();
        for (volume, Root { parent, name }) in roots {
            match if name.is_empty() { Ok(parent.clone()) } else { parent.open_dir(name) } {
                Ok(own) => dirs.push((*volume, own)),
                // Of a volume that is not there the job has told already.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                    let said =
                        format!("'{}' is no folder: only folders are joined under several names", name.escape_ascii());
                    batch.faults.push((top.into(), io::Error::new(error.kind(), said)));
                }
                Err(error) => batch.faults.push((top.into(), error)),
            }
        }
        if !dirs.is_empty() {
            self.look_somewhere(&dirs, &[], top.into(), taken, batch);
        }
    }

    /// A name that somebody gave, and that may stand on any volume.
    fn look_somewhere(
        &mut self,
        dirs: &[(u16, Dir)],
        name: &[u8],
        path: Box<[u8]>,
        taken: Option<Taken>,
        batch: &mut Batch,
    ) {
        let may_differ = dirs.len() > 1 && !name.is_empty();
        let mut others = dirs.iter().filter(|(_, dir)| !may_differ || dir.stat(name).is_ok());
        // Nowhere: the fault is told of the first.
        let volume = others.next().map_or(dirs[0].0, |(volume, _)| *volume);
        let others: Vec<u16> = if may_differ { others.map(|(volume, _)| *volume).collect() } else { Vec::new() };
        self.look(Place { volume, dirs, name, is_first: true }, path.clone(), taken, batch);
        for volume in others {
            self.look(Place { volume, dirs, name, is_first: false }, path.clone(), None, batch);
        }
    }

    /// Looks at one name. `taken`: what of it is taken, if it is a folder; `None`: all.
    fn look(&mut self, place: Place<'_>, path: Box<[u8]>, taken: Option<Taken>, batch: &mut Batch) {
        if check_path(&path).is_err() {
            batch.faults.push((path, io::ErrorKind::InvalidFilename.into()));
            return;
        }
        let Some((_, dir)) = place.dirs.iter().find(|(it, _)| *it == place.volume) else { return };
        let from = batch.entries.len();
        let looked =
            if place.is_first { self.try_look(dir, &place, &path, taken, batch) } else { again(dir, place.name) };
        if let Err(error) = looked {
            batch.faults.push((path, error));
        }
        for entry in &mut batch.entries[from..] {
            entry.meta.volume = place.volume;
            if entry.is_file() && entry.bytes() > JOURNAL_FILE_BYTES_MIN {
                // What is a hole here stands elsewhere; also where the marks of the volumes are gone.
                // A map says whether the file itself has any.
                let map = if entry.meta.sparse { header_of(dir, place.name, entry) } else { None };
                if self.by_chunk || map.is_some() {
                    (entry.meta.striped, entry.meta.sparse) = (true, map.is_some_and(|it| it.sparse));
                }
            }
        }
    }

    /// Do the rules leave it out? Never what the user named as a source.
    fn is_left_out(&self, path: &[u8], stat: &Stat) -> bool {
        let below = path.get(self.top_bytes..).filter(|below| !below.is_empty() && !self.levels.is_empty());
        match (&self.filter, below) {
            (Some(filter), Some(below)) => filter.leaves_out(below, stat.kind == Kind::Folder),
            _ => false,
        }
    }

    fn try_look(
        &mut self,
        dir: &Dir,
        place: &Place<'_>,
        path: &[u8],
        picked: Option<Taken>,
        batch: &mut Batch,
    ) -> io::Result<()> {
        let name = place.name;
        let (stat, flagged) = dir.look(name)?;
        if self.is_left_out(path, &stat) {
            return Ok(());
        }
        if stat.kind != Kind::Folder
            && let Some(taken) = picked.as_ref().filter(|taken| !taken.below.is_empty())
        {
            // Whatever is picked below it is not there.
            batch.faults.push((path.into(), io::ErrorKind::NotADirectory.into()));
            if !taken.itself {
                return Ok(());
            }
        }
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
            let has_content = self.folders.iter().any(|top| top.is_empty());
            if has_content && !self.levels.is_empty() && self.own.as_ref().is_some_and(|own| own.is_base(&stat)) {
                return Err(own_destination());
            }
            // What it has is set when all below it is there: with its end.
            let end = self.entry(path, EntryKind::FolderEnd, &stat, meta);
            let level = self.open_level(place, path, end, picked, batch)?;
            batch.entries.push(self.entry(path, kind, &stat, Meta::default()));
            self.tell(&level.end, batch);
            self.levels.push(level);
        } else {
            // A measurement over holes would measure nothing.
            if stat.kind == Kind::File && stat.bytes >= LARGE_FILE_BYTES_MIN && !meta.sparse && !self.by_chunk {
                self.chooser.announce(Way::Read, stat.bytes, stat.dev, &Ground::File(dir, name));
            }
            let entry = self.entry(path, kind, &stat, meta);
            self.tell(&entry, batch);
            batch.entries.push(entry);
        }
        Ok(())
    }

    /// The folder on each volume that has it. Where it cannot be opened, what stands in it is missing, and that is said.
    fn open_level(
        &mut self,
        place: &Place<'_>,
        path: &[u8],
        end: Entry,
        taken: Option<Taken>,
        batch: &mut Batch,
    ) -> io::Result<Level> {
        let picked = taken.map(|taken| taken.below);
        let (dirs, lists, path) = (Vec::new(), VecDeque::new(), Box::from(path));
        let mut level = Level { dirs, lists, picked, path, end, met: HashSet::new(), is_base: false };
        for (volume, dir) in place.dirs {
            let own = if place.name.is_empty() { Ok(dir.clone()) } else { dir.open_dir(place.name) };
            match own.and_then(|own| Ok((own.list()?, own.stat_self()?, own))) {
                Ok((list, stat, own)) => {
                    level.is_base |= self.own.as_ref().is_some_and(|it| it.is_base(&stat));
                    let by_number = self.orders.of(stat.dev, &own, |choice| self.chooser.tell(choice));
                    level.lists.push_back((*volume, Names::new(list, by_number)));
                    level.dirs.push((*volume, own));
                }
                Err(error) if self.volumes > 1 && error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if self.volumes == 1 => return Err(error),
                Err(error) => batch.faults.push((level.path.clone(), error)),
            }
        }
        if level.is_base {
            self.tell_own(&level.path, batch);
        }
        Ok(level)
    }

    /// Tells what this folder has, or will have, of the job's own.
    fn tell_own(&self, path: &[u8], batch: &mut Batch) {
        let tops = self.folders.iter().filter(|top| !top.is_empty());
        for path in tops.map(|top| join(path, top)) {
            let below = path.get(self.top_bytes..).unwrap_or_default();
            if !self.filter.as_ref().is_some_and(|filter| filter.leaves_out(below, true)) {
                batch.faults.push((path, own_destination()));
            }
        }
    }

    fn tell(&mut self, entry: &Entry, batch: &mut Batch) {
        if let Some(told) = &mut self.told {
            told.add(entry, &mut batch.names);
        }
    }

    /// What it is; `None`: the user does not want it.
    fn kind(&self, dir: &Dir, name: &[u8], stat: &Stat) -> io::Result<Option<EntryKind>> {
        Ok(match kind_of(dir, name, stat)? {
            EntryKind::Node { kind, .. } if !self.wanted.has(kind.aspect()) => None,
            kind => Some(kind),
        })
    }

    fn entry(&self, path: &[u8], kind: EntryKind, stat: &Stat, meta: Meta) -> Entry {
        let mode = meta::mode(stat, self.wanted);
        Entry { id: 0, path: path.into(), kind, mode, mtime_s: stat.mtime_s, mtime_ns: stat.mtime_ns, meta }
    }
}

/// What stands there, in the words of entries.
pub(super) fn kind_of(dir: &Dir, name: &[u8], stat: &Stat) -> io::Result<EntryKind> {
    let kind = match stat.kind {
        Kind::File => return Ok(EntryKind::File { bytes: stat.bytes }),
        Kind::Link => return Ok(EntryKind::Link { target: dir.read_link(name)?.into_boxed_slice() }),
        Kind::Folder => return Ok(EntryKind::Folder),
        Kind::Fifo => NodeKind::Fifo,
        Kind::Socket => NodeKind::Socket,
        Kind::Char => NodeKind::Char,
        Kind::Block => NodeKind::Block,
        Kind::Other => return Err(io::Error::new(io::ErrorKind::Unsupported, "of a kind that is not known")),
    };
    let is_device = kind.aspect() == Aspects::DEVICES;
    let (major, minor) = if is_device { (stat.major, stat.minor) } else { (0, 0) };
    Ok(EntryKind::Node { kind, major, minor })
}

/// What the map of this volume's piece of the file says of it; `None`: it has none.
fn header_of(dir: &Dir, name: &[u8], entry: &Entry) -> Option<JournalHeader> {
    let map = dir.open_file(&beside_of(name, Whole::of(entry), "map"), false).ok()?;
    let mut head = [0; JOURNAL_HEADER_BYTES];
    sys::fs::read_at_full(&map, &mut head, 0).ok()?;
    Replay::parse(&head).header
}

/// The same name on another volume: a folder is the same folder, all else is too much.
fn again(dir: &Dir, name: &[u8]) -> io::Result<()> {
    if dir.stat(name)?.kind == Kind::Folder {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "the same name stands on more than one volume"))
}
