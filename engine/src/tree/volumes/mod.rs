//! N destinations as one: a tree dealt out to volumes.
//!
//! For: jobs whose destination is a set of volumes; a set of one is every other job.
//! In and out: the calls of a `SinkTree`; each goes to the volume on which its entry stands, or to all (folders).
//! Invariants: a name stands on one volume, folders on all; an entry keeps its volume from the first word on it to its end; what stood
//! there before is replaced where it stands, so no name ever stands twice; a volume whose disk fails is out: it is given nothing more and
//! asked nothing more in this job; with one volume nothing is looked up, nothing is locked, and nothing is ever out.
//! Absent on purpose: order of work (the sender interleaves files, `proto::send`), moving bytes (the worker), redundancy.
//!
//! ```text
//! DST/0/   .longhaul-volume   run1/   run1/a.img              run1/deep/
//! DST/1/   .longhaul-volume   run1/              run1/b.img   run1/deep/   run1/deep/c
//! ```
//! Each volume is a tree of its own that any program reads; the set is the union.

mod existing; // of a striped file, the version before
pub mod source; // N disks read as one
mod striped; // one file on many disks
mod pieces; // and which disk has what of it
pub(crate) mod each; // a call for each disk, side by side

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use proto::manifest::{Aspects, Entry, EntryId, EntryKind};
use proto::wire::control::{Durability, IdName, Unnamed};

use crate::platform::{
    Capabilities, Clones, Cloning, Firm, Found, Holes, Old, Owners, PartClaims, Parts, PreviousVersions, Prune,
    Publish, ReadBack, Sign, SinkTree, Volume, VolumeSet,
};
use crate::tree::commit::JOURNAL_FILE_BYTES_MIN;
use crate::tree::sink_tree::unsupported;
use crate::tree::volumes::pieces::Striped;

/// An entry weighs so many bytes more than its content: names and inodes cost a disk, too (a journal block and an inode's, 4 KiB each).
const ENTRY_WEIGHT: u64 = 8192;

/// A set of destination volumes as one tree; `S` is the sink of one volume.
#[derive(Debug)]
pub struct Volumes<S> {
    volumes: Vec<Member<S>>,
    /// Large files are dealt out chunk by chunk.
    striped: Option<Striped>,
    /// Which volume an unresolved entry stands on.
    homes: Mutex<HashMap<EntryId, Home>>,
    /// Volumes that are out and were not told of yet.
    gone: Mutex<Vec<Gone>>,
    any_gone: AtomicBool,
    /// The memory node of each, where somebody said.
    nodes: OnceLock<Vec<Option<u16>>>,
}

/// A volume that is out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// As the user knows it.
    pub name: String,
    /// What its disk said.
    pub why: String,
    /// It was so before the job began, which never gave it anything.
    pub before: bool,
}

#[derive(Debug)]
struct Member<S> {
    tree: S,
    /// As the user knows it.
    name: String,
    /// What is still to be written of the entries that stand on it, and their weight until they are resolved: the one with the least is
    /// given the next. A slow volume keeps what it has for longer, and so is given less.
    outstanding: AtomicU64,
    /// Of striped files: what is in the file system and not flushed.
    waiting: AtomicU64,
    out: AtomicBool,
}

/// Is it the disk that failed, and not this call? EIO, ENXIO, ENODEV, EROFS (what a file system becomes that cannot write its journal),
/// ENOTCONN, EUCLEAN (its structures are broken) of `errno(3)`.
#[must_use]
pub fn is_dying(errno: i32) -> bool {
    matches!(errno, 5 | 6 | 19 | 30 | 107 | 117)
}

/// "Input/output error" of `errno(3)`: what is said when no volume is left to ask.
const EIO: i32 = 5;

#[derive(Debug, Clone, Copy)]
struct Home {
    volume: usize,
    weight: u64,
}

impl<S: Volume> From<S> for Volumes<S> {
    fn from(tree: S) -> Self {
        Volumes::new(vec![tree])
    }
}

impl<S: Volume> Volumes<S> {
    /// A set of these.
    ///
    /// # Panics
    /// Of none.
    #[must_use]
    pub fn new(trees: Vec<S>) -> Self {
        assert!(!trees.is_empty(), "a set has a volume");
        let volume = |tree| Member {
            tree,
            name: String::new(),
            outstanding: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            out: AtomicBool::new(false),
        };
        let volumes = trees.into_iter().map(volume).collect();
        let any_gone = AtomicBool::new(false);
        let (homes, gone, nodes) = (Mutex::default(), Mutex::default(), OnceLock::new());
        Volumes { volumes, striped: None, homes, gone, any_gone, nodes }
    }

    /// Large files are dealt out chunk by chunk, instead of whole.
    #[must_use]
    pub fn striping(mut self, by_chunk: bool) -> Self {
        self.striped = by_chunk.then(Striped::default);
        self
    }

    /// The same, with the name of each, and those that failed before anything began.
    #[must_use]
    pub fn named(mut self, names: impl IntoIterator<Item = String>, gone: Vec<Gone>) -> Self {
        for (volume, name) in self.volumes.iter_mut().zip(names) {
            volume.name = name;
        }
        self.any_gone = AtomicBool::new(!gone.is_empty());
        self.gone = Mutex::new(gone);
        self
    }

    /// On which memory node each is: chunks go rather to a volume on the node where they are. To be said once, before the first comes.
    pub fn lie_on(&self, nodes: Vec<Option<u16>>) {
        let _ = self.nodes.set(nodes);
    }

    /// Is this volume on another memory node than that one, as far as anybody knows?
    fn is_far(&self, volume: usize, node: Option<u16>) -> bool {
        let of = |nodes: &Vec<Option<u16>>| nodes.get(volume).copied().flatten();
        let own = node.and_then(|_| self.nodes.get().and_then(of));
        own.is_some() && own != node
    }

    /// Volumes that went out since this was last asked.
    #[must_use]
    pub fn take_gone(&self) -> Vec<Gone> {
        if !self.any_gone.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut *self.gone.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn retire(&self, volume: usize, errno: i32) {
        if !self.is_one() && is_dying(errno) && !self.volumes[volume].out.swap(true, Ordering::Relaxed) {
            let (name, why) = (self.volumes[volume].name.clone(), io::Error::from_raw_os_error(errno).to_string());
            self.gone.lock().unwrap_or_else(PoisonError::into_inner).push(Gone { name, why, before: false });
            self.any_gone.store(true, Ordering::Release);
        }
    }

    fn judge<T>(&self, volume: usize, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            self.retire(volume, error.raw_os_error().unwrap_or(0));
        }
        result
    }

    /// Those that are not out.
    fn live(&self) -> impl Iterator<Item = usize> + Clone {
        (0..self.volumes.len()).filter(|&index| !self.volumes[index].out.load(Ordering::Relaxed))
    }

    /// A call to the volume on which the entry stands, or is to stand.
    fn at_home<T>(&self, entry: &Entry, call: impl FnOnce(&S) -> io::Result<T>) -> io::Result<T> {
        let home = self.home_of(entry);
        self.judge(home, call(&self.volumes[home].tree))
    }

    /// A call to the volume that has a striped file's piece; of any other file, to its home.
    fn on<T>(&self, volume: usize, entry: &Entry, call: impl FnOnce(&S) -> io::Result<T>) -> io::Result<T> {
        if entry.meta.striped {
            self.judge(volume, call(&self.volumes[volume].tree))
        } else {
            self.at_home(entry, call)
        }
    }

    /// The same of a volume that is not the only one that could answer: `None` if it went out by it.
    fn ask<T>(&self, volume: usize, call: impl FnOnce(&S) -> io::Result<T>) -> io::Result<Option<T>> {
        match self.judge(volume, call(&self.volumes[volume].tree)) {
            Err(_) if self.volumes[volume].out.load(Ordering::Relaxed) => Ok(None),
            other => other.map(Some),
        }
    }

    /// A call to each that is not out. One that goes out by it is no failure, as long as another is left.
    fn each<T>(&self, mut call: impl FnMut(&S) -> io::Result<T>) -> io::Result<Vec<T>> {
        let mut all = Vec::with_capacity(self.volumes.len());
        for index in self.live() {
            all.extend(self.ask(index, &mut call)?);
        }
        if all.is_empty() { Err(io::Error::from_raw_os_error(EIO)) } else { Ok(all) }
    }

    /// The trees, in the order in which they were named.
    pub fn trees(&self) -> impl Iterator<Item = &S> {
        self.volumes.iter().map(|volume| &volume.tree)
    }

    /// Is it every other job's destination?
    fn is_one(&self) -> bool {
        self.volumes.len() == 1 && self.striped.is_none()
    }

    fn known(&self, id: EntryId) -> Option<usize> {
        if self.is_one() {
            return Some(0);
        }
        self.homes.lock().unwrap_or_else(PoisonError::into_inner).get(&id).map(|home| home.volume)
    }

    /// The entry stands here from now on.
    fn settle_on(&self, entry: &Entry, volume: usize) -> &S {
        if !self.is_one() {
            let home = Home { volume, weight: weight(entry) };
            let mut homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(before) = homes.insert(entry.id, home) {
                self.volumes[before.volume].outstanding.fetch_sub(before.weight, Ordering::Relaxed);
            }
            self.volumes[volume].outstanding.fetch_add(home.weight, Ordering::Relaxed);
        }
        &self.volumes[volume].tree
    }

    /// Where the entry stands: where it was found, or where the least waits now of those that have room for it.
    fn home_of(&self, entry: &Entry) -> usize {
        if self.is_one() {
            return 0;
        }
        // One lock over looking and choosing, or two workers would choose differently.
        let mut homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(home) = homes.get(&entry.id) {
            return home.volume;
        }
        let outstanding = |index: usize| self.volumes[index].outstanding.load(Ordering::Relaxed);
        let weight = weight(entry);
        let has_room = |index: usize| self.volumes[index].tree.room() >= outstanding(index) + weight;
        let mut by_outstanding: Vec<usize> = self.live().collect();
        by_outstanding.sort_unstable_by_key(|&index| (outstanding(index), index));
        // If none has room the first says so; if all are out, too.
        let first = by_outstanding.first().copied().unwrap_or(0);
        let volume = by_outstanding.into_iter().find(|&index| has_room(index)).unwrap_or(first);
        let home = Home { volume, weight };
        self.volumes[volume].outstanding.fetch_add(home.weight, Ordering::Relaxed);
        homes.insert(entry.id, home);
        volume
    }

    /// On which volume something stands under this path.
    fn find(&self, path: &[u8]) -> io::Result<Option<usize>> {
        for index in self.live() {
            if self.ask(index, |tree| tree.stands(path))? == Some(true) {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// All of them, at the same time: a call that waits for one disk does not wait for the others first.
    fn on_all(&self, call: impl Fn(&S) -> io::Result<()> + Sync) -> io::Result<()> {
        if self.is_one() {
            return call(&self.volumes[0].tree);
        }
        let call = &call;
        let results: Vec<_> = std::thread::scope(|scope| {
            let start = |index: usize| (index, scope.spawn(move || call(&self.volumes[index].tree)));
            let threads: Vec<_> = self.live().map(start).collect();
            let joined = threads.into_iter().map(|(index, thread)| (index, thread.join()));
            joined.map(|(index, it)| (index, it.unwrap_or_else(|_| Err(io::Error::other("a panic"))))).collect()
        });
        let mut left = false;
        for (index, result) in results {
            left |= self.ask(index, |_| result)?.is_some();
        }
        if left { Ok(()) } else { Err(io::Error::from_raw_os_error(EIO)) }
    }
}

/// The chunks of a striped file wait for the volumes that they were given, not for its home.
fn weight(entry: &Entry) -> u64 {
    if entry.meta.striped { 0 } else { entry.bytes() + ENTRY_WEIGHT }
}

impl<S: Volume> SinkTree for Volumes<S> {
    fn inspect(&self, entry: &Entry, keep: bool, dry: bool) -> io::Result<Found> {
        if self.is_one() {
            return self.volumes[0].tree.inspect(entry, keep, dry);
        }
        if entry.meta.striped {
            return self.inspect_pieces(entry, keep, dry);
        }
        if !dry {
            // Wherever the entry stands or is to stand: a job that was killed may have begun it elsewhere.
            self.live().for_each(|index| self.volumes[index].tree.sweep_left(&entry.path));
        }
        if let Some(volume) = self.find(&entry.path)? {
            self.settle_on(entry, volume);
            return self.at_home(entry, |tree| tree.inspect(entry, keep, dry));
        }
        if entry.bytes() > JOURNAL_FILE_BYTES_MIN {
            for index in self.live() {
                if let Some(found @ (Found::Parts(_) | Found::Busy(_))) =
                    self.ask(index, |tree| tree.inspect(entry, keep, dry))?
                {
                    self.settle_on(entry, index);
                    return Ok(found);
                }
            }
        }
        Ok(Found::Nothing)
    }

    fn make(&self, entry: &Entry) -> io::Result<()> {
        match &entry.kind {
            // In a row: a folder is a few microseconds, a thread for each volume is more.
            EntryKind::Folder | EntryKind::FolderEnd => self.each(|tree| tree.make(entry)).map(drop),
            EntryKind::Name { first } if !self.is_one() => match self.find(first)? {
                Some(volume) => self.add_name(entry, first, volume),
                None => Err(io::ErrorKind::NotFound.into()),
            },
            _ => {
                if let (false, Some(volume)) = (self.is_one(), self.find(&entry.path)?) {
                    self.settle_on(entry, volume);
                }
                self.at_home(entry, |tree| tree.make(entry))
            }
        }
    }

    fn discard(&self, entry: &Entry) {
        match self.known(entry.id).filter(|_| !entry.meta.striped) {
            Some(volume) => self.volumes[volume].tree.discard(entry),
            None => self.trees().for_each(|tree| tree.discard(entry)),
        }
        if entry.meta.striped {
            (0..self.volumes.len()).for_each(|volume| self.forget_piece(volume, entry.id));
        }
    }

    fn discard_on(&self, volume: usize, entry: &Entry) {
        if entry.meta.striped {
            self.volumes[volume].tree.discard(entry);
            self.forget_piece(volume, entry.id);
        } else {
            self.discard(entry);
        }
    }

    fn capabilities(self: Arc<Self>) -> Capabilities {
        // Of a set by chunk no piece is what the source has.
        let clones = self.striped.is_none() && self.volumes[0].tree.cloning().is_some();
        Capabilities {
            prune: Some(self.clone()),
            read_back: Some(self.clone()),
            cloning: clones.then(|| self.clone() as Arc<dyn Cloning>),
            previous: Some(self.clone()),
            owners: Some(self.clone()),
            claims: Some(self),
        }
    }
}

impl<S: Volume> Publish for Volumes<S> {
    fn flush(&self, volume: usize, entry: &Entry, records: &[u8], firm: Firm) -> io::Result<()> {
        // An entry that is over has no home any more, and gets no other.
        let volume = if entry.meta.striped { volume } else { self.known(entry.id).unwrap_or(volume) };
        self.judge(volume, self.volumes[volume].tree.flush(volume, entry, records, firm))
    }

    fn settle(&self, durability: Durability) -> io::Result<()> {
        self.on_all(|tree| tree.settle(durability))
    }

    fn publish(&self, entries: &[Arc<Entry>], durability: Durability, results: &mut Vec<io::Result<()>>) {
        // One batch is of one volume: `machine::recv` makes them so.
        for batch in entries.chunk_by(|a, b| self.volume_of(a.id) == self.volume_of(b.id)) {
            let mut own = Vec::with_capacity(batch.len());
            let home = self.home_of(&batch[0]);
            // A name is all that makes a striped file whole: those whose pieces are not all there get none.
            let whole: Vec<_> = batch.iter().map(|entry| self.are_pieces_there(entry, home)).collect();
            let fit: Vec<_> =
                batch.iter().zip(&whole).filter(|(_, whole)| whole.is_ok()).map(|(it, _)| it.clone()).collect();
            self.volumes[home].tree.publish(&fit, durability, &mut own);
            self.sweep_old(&fit, &own);
            let mut own = own.into_iter().map(|result| self.judge(home, result));
            results.extend(whole.into_iter().map(|whole| whole.and_then(|()| own.next().expect("one for each"))));
        }
    }
}

impl<S: Volume> Parts for Volumes<S> {
    type File = S::File;

    fn resume_part(
        &self,
        volume: usize,
        entry: &Entry,
        journal_bytes: usize,
        missing: &[(u64, u64)],
    ) -> io::Result<()> {
        self.on(volume, entry, |tree| tree.resume_part(volume, entry, journal_bytes, missing))
    }

    fn empty_part(&self, volume: usize, entry: &Entry, ranges: &[(u64, u64)]) -> io::Result<()> {
        self.on(volume, entry, |tree| tree.empty_part(volume, entry, ranges))
    }

    fn open_part(&self, volume: usize, entry: &Entry) -> io::Result<Self::File> {
        self.on(volume, entry, |tree| tree.open_part(volume, entry))
    }

    fn open_part_loose(&self, volume: usize, entry: &Entry) -> io::Result<Self::File> {
        self.on(volume, entry, |tree| tree.open_part_loose(volume, entry))
    }

    fn was_loose(&self) -> bool {
        self.trees().any(Parts::was_loose)
    }

    fn put_small(&self, entry: &Entry, content: &[u8], publish: bool) -> io::Result<()> {
        self.at_home(entry, |tree| tree.put_small(entry, content, publish))
    }
}

impl<S: Volume> VolumeSet for Volumes<S> {
    fn volumes(&self) -> usize {
        self.volumes.len()
    }

    fn volume_of(&self, id: EntryId) -> usize {
        self.known(id).unwrap_or(0)
    }

    fn has_turn(&self, id: EntryId, offset: u64) -> bool {
        self.has_chunk_turn(id, offset)
    }

    fn place(&self, entry: &Entry, offset: u64, bytes: u32, node: Option<u16>) -> usize {
        self.place_chunk(entry, offset, bytes, node)
    }

    fn landed(&self, id: EntryId, offset: u64, bytes: u64) -> usize {
        if self.is_one() {
            return 0;
        }
        if let Some(volume) = self.chunk_landed(id, offset) {
            return volume;
        }
        if let Some(home) = self.homes.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&id) {
            let paid = bytes.min(home.weight);
            home.weight -= paid;
            self.volumes[home.volume].outstanding.fetch_sub(paid, Ordering::Relaxed);
            return home.volume;
        }
        0
    }

    fn flushed(&self, volume: usize, id: EntryId, bytes: u64) {
        self.chunks_flushed(volume, id, bytes);
    }

    fn failed(&self, id: EntryId, offset: u64, errno: i32) {
        if let Some(volume) = self.volume_of_chunk(id, offset).or_else(|| self.known(id)) {
            self.retire(volume, errno);
        }
    }

    fn forget(&self, id: EntryId) {
        if self.is_one() {
            return;
        }
        self.forget_chunks(id);
        if let Some(home) = self.homes.lock().unwrap_or_else(PoisonError::into_inner).remove(&id) {
            self.volumes[home.volume].outstanding.fetch_sub(home.weight, Ordering::Relaxed);
        }
    }
}

impl<S: Volume> PartClaims for Volumes<S> {
    fn let_go(&self) {
        self.trees().filter_map(Volume::claims).for_each(PartClaims::let_go);
    }

    fn owner_of(&self, entry: &Entry) -> String {
        let claims = self.known(entry.id).and_then(|home| self.volumes[home].tree.claims());
        claims.map_or_else(String::new, |it| it.owner_of(entry))
    }
}

impl<S: Volume> Owners for Volumes<S> {
    fn learn(&self, names: &[IdName]) {
        // They are all of this host: one asks, and `localize` asks that one.
        if let Some(owners) = self.volumes[0].tree.owners() {
            owners.learn(names);
        }
    }

    fn unnamed(&self) -> Unnamed {
        self.volumes[0].tree.owners().map_or_else(Unnamed::default, Owners::unnamed)
    }

    fn localize(&self, entry: &mut Entry) {
        // They are all of this host: the numbers are the same.
        if let Some(owners) = self.volumes[0].tree.owners() {
            owners.localize(entry);
        }
        entry.meta.striped = self.striped.is_some() && entry.is_file() && entry.bytes() > JOURNAL_FILE_BYTES_MIN;
    }

    fn take_unpreserved(&self, into: &mut Vec<(EntryId, Aspects)>) {
        self.trees().filter_map(Volume::owners).for_each(|it| it.take_unpreserved(into));
    }
}

impl<S: Volume> PreviousVersions for Volumes<S> {
    fn previous_version(&self, entry: &Entry) -> io::Result<Option<Old>> {
        if entry.meta.striped {
            return self.old_pieces(entry);
        }
        if let Some(volume) = self.known(entry.id) {
            return self.judge(volume, self.volumes[volume].tree.previous_version(entry));
        }
        for index in self.live() {
            if let Some(Some(old)) = self.ask(index, |tree| tree.previous_version(entry))? {
                // The new version is built beside it.
                self.settle_on(entry, index);
                return Ok(Some(old));
            }
        }
        Ok(None)
    }

    fn read_previous(&self, entry: &Entry, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        if entry.meta.striped {
            return self.read_old_piece(entry, offset, into);
        }
        self.at_home(entry, |tree| tree.read_previous(entry, offset, into))
    }

    fn volume_of_previous(&self, entry: &Entry, offset: u64) -> usize {
        self.volume_of_old_piece(entry, offset).unwrap_or_else(|| self.volume_of(entry.id))
    }

    fn carry(&self, entry: &Entry, sign: Sign, ranges: &[(u64, u64)]) -> io::Result<()> {
        if entry.meta.striped {
            return self.carry_pieces(entry, ranges);
        }
        self.at_home(entry, |tree| tree.carry(entry, sign, ranges))
    }

    fn adopt(&self, entry: &Entry, sign: Sign) -> io::Result<()> {
        self.at_home(entry, |tree| tree.adopt(entry, sign))
    }
}

impl<S: Volume> Cloning for Volumes<S> {
    fn clones(&self) -> Clones {
        self.volumes[0].tree.cloning().map_or(Clones::Never, Cloning::clones)
    }

    fn clone_part(&self, entry: &Entry) -> io::Result<()> {
        self.at_home(entry, |tree| tree.cloning().ok_or_else(unsupported)?.clone_part(entry))
    }
}

impl<S: Volume> ReadBack for Volumes<S> {
    fn part_holes(&self, entry: &Entry, offset: u64) -> io::Result<Holes> {
        self.at_home(entry, |tree| tree.part_holes(entry, offset))
    }

    fn read_part(&self, volume: usize, entry: &Entry, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let volume = if entry.meta.striped { volume } else { self.known(entry.id).ok_or(io::ErrorKind::NotFound)? };
        self.judge(volume, self.volumes[volume].tree.read_part(volume, entry, offset, into))
    }
}

impl<S: Volume> Prune for Volumes<S> {
    fn extras(&self, folder: &Entry, names: &HashSet<u64>) -> io::Result<Vec<(Box<[u8]>, u64)>> {
        if self.is_one() {
            return self.volumes[0].tree.extras(folder, names);
        }
        let mut all: HashMap<Box<[u8]>, u64> = HashMap::new();
        for (path, count) in self.each(|tree| tree.extras(folder, names))?.into_iter().flatten() {
            *all.entry(path).or_default() += count;
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_unstable();
        Ok(all)
    }

    fn remove(&self, path: &[u8]) -> io::Result<u64> {
        let removed = self.each(|tree| match tree.remove(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.is_one() => Ok(0),
            other => other,
        })?;
        if self.striped.is_some() {
            self.trees().for_each(|tree| tree.sweep(path, None));
        }
        Ok(removed.into_iter().sum())
    }
}
