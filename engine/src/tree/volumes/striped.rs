//! Large files dealt out chunk by chunk: which volume has which piece, and when a file is whole.
//!
//! For: destinations that are striped by chunk.
//! In and out: chunks whose bytes are there → a volume each; pieces that stand from before → what is missing; whole files → names.
//! Invariants: a chunk keeps its volume until it has landed; a file gets its name, which alone makes it whole, when the map of each of its
//! pieces stands as flushed as the job asks, and only while every volume that has one is in; a file of which pieces went is no longer
//! whole, and loses its name before anything is written.
//! Absent on purpose: names on the disk (tree/sink/mod.rs), reading (tree/volumes/source.rs), what a map holds (`proto::striped`).

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use proto::manifest::{Entry, EntryId};
use proto::striped::{Join, Load, Whole};

use crate::platform::{Found, Parts, Volume};
use crate::tree::commit::FLUSH_BYTES;
use crate::tree::volumes::Volumes;
use crate::tree::volumes::pieces::{Books, Striped};

/// "Input/output error" of `errno(3)`: a piece is on a volume that is out.
const EIO: i32 = 5;

/// Volumes on the memory node of a chunk are given it until as many chunks more are on their way to each of them than to another: volumes of one speed
/// are then written from their own node, and of the 48 that a job has on their way a slow one keeps two beyond its share at most. Where writes end in
/// memory it is what is not flushed that tells, in which a flush's worth more or less is chance.
const LEAD: u64 = 2;

impl<S: Volume> Volumes<S> {
    pub(super) fn books(&self) -> Option<MutexGuard<'_, Books>> {
        self.striped.as_ref().map(Striped::lock)
    }

    /// See `VolumeSet::has_turn`.
    pub(super) fn has_chunk_turn(&self, id: EntryId, offset: u64) -> bool {
        // Chunks that lie in parts until repairs of datagrams come have their volumes for round trips: then nobody's turns are known. One that has its
        // volume already does not wait for another.
        self.was_loose()
            || self
                .books()
                .is_none_or(|books| books.dealer.volume_of(id, offset).is_some() || books.dealer.has_turn(self.live()))
    }

    /// See `VolumeSet::place`.
    pub(super) fn place_chunk(&self, entry: &Entry, offset: u64, bytes: u32, node: Option<u16>) -> usize {
        let Some(mut books) = self.books() else { return 0 };
        if let Some(volume) = books.dealer.volume_of(entry.id, offset) {
            if !self.volumes[volume].out.load(Ordering::Relaxed) {
                return volume;
            }
            books.dealer.landed(entry.id, offset);
            self.volumes[volume].outstanding.fetch_sub(bytes.into(), Ordering::Relaxed);
        }
        let has_room = |index: usize| {
            let volume = &self.volumes[index];
            volume.tree.room() >= volume.outstanding.load(Ordering::Relaxed) + u64::from(bytes)
        };
        // If none has room the first says so; if all are out, too.
        let first = self.choose(&mut books, (bytes, node), |_| true).unwrap_or(0);
        if !books.pieces.contains_key(&entry.id) {
            return first;
        }
        let volume =
            if has_room(first) { first } else { self.choose(&mut books, (bytes, node), has_room).unwrap_or(first) };
        self.volumes[volume].outstanding.fetch_add(bytes.into(), Ordering::Relaxed);
        books.dealer.deal(entry.id, offset, bytes, volume);
        drop(books);
        if self.known(entry.id).is_none() {
            self.settle_on(entry, volume);
        }
        volume
    }

    /// The volume of these that is given a chunk: of those near it the one with the least to do, unless they all lead the others by too much.
    fn choose(
        &self,
        books: &mut Books,
        (bytes, node): (u32, Option<u16>),
        may: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let load = |index: usize| {
            let volume = &self.volumes[index];
            Load { flying: volume.outstanding.load(Ordering::Relaxed), waiting: volume.waiting.load(Ordering::Relaxed) }
        };
        let alike = self.live().count();
        let mut least = |of: &dyn Fn(usize) -> bool| {
            books.dealer.choose(alike, self.live().filter(|&it| may(it) && of(it)).map(|it| (it, load(it))))
        };
        if !self.live().any(|it| self.is_far(it, node)) {
            return least(&|_| true);
        }
        let (near, far) = (least(&|it| !self.is_far(it, node)), least(&|it| self.is_far(it, node)));
        let (Some(here), Some(there)) = (near, far) else { return near.or(far) };
        let (own, other) = (load(here), load(there));
        let wanted = [here, there].map(|it| books.dealer.wants(it, alike));
        if wanted[0] != wanted[1] {
            return Some(if wanted[0] { here } else { there });
        }
        let leads = own.flying > other.flying + LEAD * u64::from(bytes) || own.waiting > other.waiting + FLUSH_BYTES;
        Some(if leads { there } else { here })
    }

    /// Where a chunk that has landed is; `None`: it is of no striped file.
    pub(super) fn chunk_landed(&self, id: EntryId, offset: u64) -> Option<usize> {
        let mut books = self.books()?;
        let (volume, bytes) = books.dealer.landed(id, offset)?;
        if let Some(waiting) = books.piece(id, volume) {
            *waiting += u64::from(bytes);
            self.volumes[volume].waiting.fetch_add(bytes.into(), Ordering::Relaxed);
        }
        self.volumes[volume].outstanding.fetch_sub(bytes.into(), Ordering::Relaxed);
        Some(volume)
    }

    /// See `VolumeSet::flushed`.
    pub(super) fn chunks_flushed(&self, volume: usize, id: EntryId, bytes: u64) {
        let Some(mut books) = self.books() else { return };
        if let Some(Some(waiting)) = books.pieces.get_mut(&id).map(|pieces| &mut pieces[volume]) {
            let paid = bytes.min(*waiting);
            *waiting -= paid;
            self.volumes[volume].waiting.fetch_sub(paid, Ordering::Relaxed);
        }
    }

    /// The volume of a chunk that is on its way.
    pub(super) fn volume_of_chunk(&self, id: EntryId, offset: u64) -> Option<usize> {
        self.books()?.dealer.volume_of(id, offset)
    }

    /// The entry is resolved.
    pub(super) fn forget_chunks(&self, id: EntryId) {
        let Some(mut books) = self.books() else { return };
        for (volume, bytes) in books.dealer.forget(id) {
            self.volumes[volume].outstanding.fetch_sub(bytes.into(), Ordering::Relaxed);
        }
        for (volume, waiting) in books.pieces.remove(&id).into_iter().flatten().enumerate() {
            self.volumes[volume].waiting.fetch_sub(waiting.unwrap_or(0), Ordering::Relaxed);
        }
        books.stood.remove(&id);
    }

    /// This volume has no piece of it any more.
    pub(super) fn forget_piece(&self, volume: usize, id: EntryId) {
        let Some(mut books) = self.books() else { return };
        let waiting = books.pieces.get_mut(&id).and_then(|pieces| pieces[volume].take());
        self.volumes[volume].waiting.fetch_sub(waiting.unwrap_or(0), Ordering::Relaxed);
    }

    /// What stands of a striped file. The same size and time under its name is not enough: each chunk must be on a volume that is in.
    pub(super) fn inspect_pieces(&self, entry: &Entry, keep: bool, dry: bool) -> io::Result<Found> {
        let home = self.find(&entry.path)?;
        if let Some(home) = home {
            self.settle_on(entry, home);
        }
        if let Some(mut books) = self.books() {
            books.pieces.insert(entry.id, vec![None; self.volumes.len()].into());
        }
        let mut is_named = false;
        let mut maps: Vec<(u16, Vec<u8>)> = Vec::new();
        for index in self.live() {
            let mut busy = None;
            let looked = self.ask(index, |tree| match tree.inspect(entry, true, dry)? {
                Found::Same => Ok((true, tree.map_of(entry).ok())),
                Found::Parts(parts) => Ok((false, parts.into_iter().next().map(|(_, map)| map))),
                Found::Nothing => Ok((false, None)),
                Found::Busy(owner) => {
                    busy = Some(owner);
                    Ok((false, None))
                }
            })?;
            if let Some(owner) = busy {
                return Ok(Found::Busy(owner));
            }
            let Some((named, map)) = looked else { continue };
            is_named |= named;
            maps.extend(map.map(|map| (index as u16, map)));
        }
        if is_named && keep && Join::of(Whole::of(entry), &maps).is_ok() {
            if !dry {
                // A run that died right after it named this version left the pieces of the one before.
                self.live().for_each(|index| self.volumes[index].tree.unclaim(entry));
                self.live().for_each(|index| self.volumes[index].tree.sweep(&entry.path, Some(Whole::of(entry))));
            }
            return Ok(Found::Same);
        }
        if !dry && let (true, Some(home)) = (is_named, home) {
            self.judge(home, self.volumes[home].tree.reopen(entry))?;
        }
        if !keep && !dry {
            self.trees().for_each(|tree| tree.discard(entry));
        }
        let Some((first, _)) = maps.first().filter(|_| keep) else { return Ok(Found::Nothing) };
        if self.known(entry.id).is_none() {
            self.settle_on(entry, usize::from(*first));
        }
        if let Some(mut books) = self.books() {
            for (volume, _) in &maps {
                books.piece(entry.id, usize::from(*volume));
            }
        }
        Ok(Found::Parts(maps.into_iter().map(|(volume, map)| (usize::from(volume), map)).collect()))
    }

    /// One more name of what stands on this volume under `first`: of a striped file, of its pieces before.
    pub(super) fn add_name(&self, entry: &Entry, first: &[u8], home: usize) -> io::Result<()> {
        let file = self.striped.as_ref().and_then(|_| self.volumes[home].tree.striped_at(first));
        if let Some(file) = file {
            for index in self.live() {
                self.judge(index, self.volumes[index].tree.add_piece(first, file, &entry.path))?;
            }
        }
        self.judge(home, self.volumes[home].tree.make(entry))?;
        if self.striped.is_some() {
            self.live().for_each(|index| self.volumes[index].tree.sweep(&entry.path, file));
        }
        Ok(())
    }

    /// May this whole file get its name on this volume?
    pub(super) fn are_pieces_there(&self, entry: &Entry, home: usize) -> io::Result<()> {
        if !entry.meta.striped {
            return Ok(());
        }
        let is_out = |index: usize| self.volumes[index].out.load(Ordering::Relaxed);
        let has_one = {
            let books = self.books();
            let pieces = books.as_ref().and_then(|books| books.pieces.get(&entry.id));
            let has = |index: usize| pieces.is_some_and(|pieces| pieces[index].is_some());
            if (0..self.volumes.len()).any(|index| has(index) && is_out(index)) {
                return Err(io::Error::from_raw_os_error(EIO));
            }
            has(home)
        };
        if has_one {
            return Ok(());
        }
        // An earlier version stands here, and no chunk of this one: its name still wants a file to stand for.
        self.volumes[home].tree.open_part(home, entry).map(drop)
    }

    /// What stood under these names before goes with all its pieces.
    pub(super) fn sweep_old(&self, entries: &[Arc<Entry>], results: &[io::Result<()>]) {
        if self.striped.is_none() {
            return;
        }
        for (entry, _) in entries.iter().zip(results).filter(|(_, result)| result.is_ok()) {
            let own = entry.meta.striped.then(|| Whole::of(entry));
            if own.is_some() {
                self.live().for_each(|index| self.volumes[index].tree.unclaim(entry));
            }
            self.live().for_each(|index| self.volumes[index].tree.sweep(&entry.path, own));
        }
    }
}
