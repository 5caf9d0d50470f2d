//! N destinations as one: a tree dealt out to volumes.
//!
//! For: jobs whose destination is a set of volumes; a set of one is every other job.
//! In and out: the calls of a `SinkTree`; each goes to the volume on which its entry stands, or to all (folders).
//! Invariants: a name stands on one volume, folders on all; an entry keeps its volume from the first word on it to its end; what stood
//! there before is replaced where it stands, so no name ever stands twice; with one volume nothing is looked up and nothing is locked.
//! Absent on purpose: order of work (the sender interleaves files, `proto::send`), moving bytes (the worker), redundancy.
//!
//! ```text
//! DST/0/   .longhaul-volume   run1/   run1/a.img              run1/deep/
//! DST/1/   .longhaul-volume   run1/              run1/b.img   run1/deep/   run1/deep/c
//! ```
//! Each volume is a tree of its own that any program reads; the set is the union.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use proto::manifest::{Aspects, Entry, EntryId, EntryKind};
use proto::wire::control::{IdName, Rung};

use crate::end::recv::JOURNAL_FILE_BYTES_MIN;
use crate::platform::{Clones, Found, Old, Sign, SinkTree};

/// An entry weighs so many bytes more than its content: names and inodes cost a disk, too (a journal block and an inode's, 4 KiB each).
const ENTRY_WEIGHT: u64 = 8192;

/// See the module.
#[derive(Debug)]
pub struct Volumes<S> {
    volumes: Vec<Volume<S>>,
    /// Which volume an unresolved entry stands on.
    homes: Mutex<HashMap<EntryId, Home>>,
}

#[derive(Debug)]
struct Volume<S> {
    tree: S,
    /// Weight of the entries that stand on it and are not resolved: the one with the least is given the next. A slow volume keeps what it
    /// has for longer, and so is given less.
    owed: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
struct Home {
    volume: usize,
    weight: u64,
}

impl<S: SinkTree> From<S> for Volumes<S> {
    fn from(tree: S) -> Self {
        Volumes::new(vec![tree])
    }
}

impl<S: SinkTree> Volumes<S> {
    /// A set of these.
    ///
    /// # Panics
    /// Of none.
    #[must_use]
    pub fn new(trees: Vec<S>) -> Self {
        assert!(!trees.is_empty(), "a set has a volume");
        let volumes = trees.into_iter().map(|tree| Volume { tree, owed: AtomicU64::new(0) }).collect();
        Volumes { volumes, homes: Mutex::default() }
    }

    /// The trees, in the order in which they were named.
    pub fn trees(&self) -> impl Iterator<Item = &S> {
        self.volumes.iter().map(|volume| &volume.tree)
    }

    fn is_one(&self) -> bool {
        self.volumes.len() == 1
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
            let home = Home { volume, weight: entry.bytes() + ENTRY_WEIGHT };
            let mut homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(before) = homes.insert(entry.id, home) {
                self.volumes[before.volume].owed.fetch_sub(before.weight, Ordering::Relaxed);
            }
            self.volumes[volume].owed.fetch_add(home.weight, Ordering::Relaxed);
        }
        &self.volumes[volume].tree
    }

    /// Where the entry stands: where it was found, or where the least waits now.
    fn home(&self, entry: &Entry) -> &S {
        if self.is_one() {
            return &self.volumes[0].tree;
        }
        // One lock over looking and choosing, or two workers would choose differently.
        let mut homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(home) = homes.get(&entry.id) {
            return &self.volumes[home.volume].tree;
        }
        let owed = |volume: &Volume<S>| volume.owed.load(Ordering::Relaxed);
        let least = self.volumes.iter().enumerate().min_by_key(|(_, volume)| owed(volume));
        let (volume, _) = least.expect("a set has a volume");
        let home = Home { volume, weight: entry.bytes() + ENTRY_WEIGHT };
        self.volumes[volume].owed.fetch_add(home.weight, Ordering::Relaxed);
        homes.insert(entry.id, home);
        &self.volumes[volume].tree
    }

    /// On which volume something stands under this path.
    fn find(&self, path: &[u8]) -> io::Result<Option<usize>> {
        for (index, volume) in self.volumes.iter().enumerate() {
            if volume.tree.stands(path)? {
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
        std::thread::scope(|scope| {
            let threads: Vec<_> = self.trees().map(|tree| scope.spawn(move || call(tree))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| io::Error::other("a panic"))?)
        })
    }
}

impl<S: SinkTree> SinkTree for Volumes<S> {
    type File = S::File;

    fn volumes(&self) -> usize {
        self.volumes.len()
    }

    fn volume_of(&self, id: EntryId) -> usize {
        self.known(id).unwrap_or(0)
    }

    fn stands(&self, path: &[u8]) -> io::Result<bool> {
        Ok(self.find(path)?.is_some())
    }

    fn forget(&self, id: EntryId) {
        if self.is_one() {
            return;
        }
        if let Some(home) = self.homes.lock().unwrap_or_else(PoisonError::into_inner).remove(&id) {
            self.volumes[home.volume].owed.fetch_sub(home.weight, Ordering::Relaxed);
        }
    }

    fn inspect(&self, entry: &Entry, keep: bool, dry: bool) -> io::Result<Found> {
        if self.is_one() {
            return self.volumes[0].tree.inspect(entry, keep, dry);
        }
        if let Some(volume) = self.find(&entry.path)? {
            return self.settle_on(entry, volume).inspect(entry, keep, dry);
        }
        if entry.bytes() > JOURNAL_FILE_BYTES_MIN {
            for (index, volume) in self.volumes.iter().enumerate() {
                if let found @ Found::Part(_) = volume.tree.inspect(entry, keep, dry)? {
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
            EntryKind::Folder | EntryKind::FolderEnd => self.trees().try_for_each(|tree| tree.make(entry)),
            EntryKind::Name { first } if !self.is_one() => match self.find(first)? {
                Some(volume) => self.volumes[volume].tree.make(entry),
                None => Err(io::ErrorKind::NotFound.into()),
            },
            _ => {
                if let (false, Some(volume)) = (self.is_one(), self.find(&entry.path)?) {
                    self.settle_on(entry, volume);
                }
                self.home(entry).make(entry)
            }
        }
    }

    fn resume_part(&self, entry: &Entry, journal_bytes: usize, missing: &[(u64, u64)]) -> io::Result<()> {
        self.home(entry).resume_part(entry, journal_bytes, missing)
    }

    fn open_part(&self, entry: &Entry) -> io::Result<Self::File> {
        self.home(entry).open_part(entry)
    }

    fn open_part_loose(&self, entry: &Entry) -> io::Result<Self::File> {
        self.home(entry).open_part_loose(entry)
    }

    fn was_loose(&self) -> bool {
        self.trees().any(SinkTree::was_loose)
    }

    fn put_small(&self, entry: &Entry, content: &[u8], publish: bool) -> io::Result<()> {
        self.home(entry).put_small(entry, content, publish)
    }

    fn flush(&self, entry: &Entry, records: &[u8], durable: bool) -> io::Result<()> {
        self.home(entry).flush(entry, records, durable)
    }

    fn settle(&self, rung: Rung) -> io::Result<()> {
        self.on_all(|tree| tree.settle(rung))
    }

    fn publish(&self, entries: &[Arc<Entry>], rung: Rung, results: &mut Vec<io::Result<()>>) {
        // One batch is of one volume: `end::recv` makes them so.
        for batch in entries.chunk_by(|a, b| self.volume_of(a.id) == self.volume_of(b.id)) {
            let mut own = Vec::with_capacity(batch.len());
            self.home(&batch[0]).publish(batch, rung, &mut own);
            results.append(&mut own);
        }
    }

    fn learn(&self, names: &[IdName]) {
        self.trees().for_each(|tree| tree.learn(names));
    }

    fn localize(&self, entry: &mut Entry) {
        // They are all of this host: the numbers are the same.
        self.volumes[0].tree.localize(entry);
    }

    fn take_lost(&self, into: &mut Vec<(EntryId, Aspects)>) {
        self.trees().for_each(|tree| tree.take_lost(into));
    }

    fn discard(&self, entry: &Entry) {
        match self.known(entry.id) {
            Some(volume) => self.volumes[volume].tree.discard(entry),
            None => self.trees().for_each(|tree| tree.discard(entry)),
        }
    }

    fn old(&self, entry: &Entry) -> io::Result<Option<Old>> {
        if let Some(volume) = self.known(entry.id) {
            return self.volumes[volume].tree.old(entry);
        }
        for (index, volume) in self.volumes.iter().enumerate() {
            if let Some(old) = volume.tree.old(entry)? {
                // The new version is built beside it.
                self.settle_on(entry, index);
                return Ok(Some(old));
            }
        }
        Ok(None)
    }

    fn read_old(&self, entry: &Entry, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.home(entry).read_old(entry, offset, into)
    }

    fn carry(&self, entry: &Entry, sign: Sign, ranges: &[(u64, u64)]) -> io::Result<()> {
        self.home(entry).carry(entry, sign, ranges)
    }

    fn adopt(&self, entry: &Entry, sign: Sign) -> io::Result<()> {
        self.home(entry).adopt(entry, sign)
    }

    fn clones(&self) -> Clones {
        self.volumes[0].tree.clones()
    }

    fn clone_part(&self, entry: &Entry) -> io::Result<()> {
        self.home(entry).clone_part(entry)
    }

    fn read_part(&self, entry: &Entry, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.home(entry).read_part(entry, offset, into)
    }

    fn extras(&self, folder: &Entry, names: &HashSet<u64>) -> io::Result<Vec<(Box<[u8]>, u64)>> {
        if self.is_one() {
            return self.volumes[0].tree.extras(folder, names);
        }
        let mut all: HashMap<Box<[u8]>, u64> = HashMap::new();
        for tree in self.trees() {
            for (path, count) in tree.extras(folder, names)? {
                *all.entry(path).or_default() += count;
            }
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_unstable();
        Ok(all)
    }

    fn remove(&self, path: &[u8]) -> io::Result<u64> {
        let mut removed = 0;
        for tree in self.trees() {
            match tree.remove(path) {
                Ok(count) => removed += count,
                Err(error) if error.kind() == io::ErrorKind::NotFound && !self.is_one() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }
}
