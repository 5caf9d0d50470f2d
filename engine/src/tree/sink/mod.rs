//! Names at the destination.
//!
//! For: parts, journals, folders, links, nodes, and the moment a file appears under its name.
//! In and out: entries in; open parts and verdicts out.
//! Invariants: everything is resolved beneath the base and through no link; a name appears by rename only, when the file is whole, with
//! owner, attributes, mode and times set before.
//! Absent on purpose: deciding when (machine::recv).

mod claims; // who writes a large file
mod cloned; // files that share their blocks with the source's
mod names; // folders, links, nodes
pub mod open_ended; // files of no length before their end
pub mod ranged; // files of known length that come in ranges
mod pieces; // what stands of striped files on a volume
pub(in crate::tree) mod previous; // what stands at the destination from before
pub(in crate::tree) mod runs; // what a job that was killed left
pub mod small; // files that come whole by one stream

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use proto::manifest::{Aspects, Entry, EntryId, EntryKind};
use proto::negotiate::StorageLook;
use proto::storage::Way;
use proto::striped::Whole;
use proto::wire::chunk::PACK_FILE_BYTES_MAX;
use proto::wire::control::{Durability, IdName, Unnamed};
use sys::fs::{Dir, HOLE_BYTES, Kind, Pin, Stat};

use crate::platform::{
    Capabilities, Clones, Cloning, Firm, Found, Holes, Old, Owners, PartClaims, Parts, PreviousVersions, Prune,
    Publish, ReadBack, Sign, SinkTree, Striped, Volume, VolumeSet,
};
use crate::tree::commit::JOURNAL_FILE_BYTES_MIN;
use crate::tree::facts::{ESTALE, folder_of, holes_of, is_same, sign_of};
use crate::tree::handle::{Handle, Turns};
use crate::tree::ids::Mapped;
use crate::tree::io_mode::{Chooser, Ground, LARGE_FILE_BYTES_MIN, look};
use crate::tree::scan::filter::Filter;
use crate::tree::sink::cloned::Cloned;
use crate::tree::sink::runs::Runs;
use crate::tree::{Sources, beside, beside_of, meta};
use claims::{Asked, Claim, Claims, EBUSY};
use pieces::Pieces;
use previous::{Moved, ProtectedPaths};

/// From so many files on, one flush of the file system is cheaper than one per file.
const SYNC_FS_FILES_MIN: usize = 64;
/// The same for folders.
const SYNC_FS_FOLDERS_MIN: usize = 8;
/// Folders remembered as made by this run, at most: a tree is rarely so deep, and a peer that ends no folder fills no memory.
const FRESH_MAX: usize = 4096;
/// Our folders must be ours to write while the job runs; `FolderEnd` sets the final mode.
const OWNER_ALL: u32 = 0o700;

/// The names of one destination folder: parts, journals, and their publication by rename.
#[derive(Debug)]
pub struct LinuxSink {
    base: Dir,
    chooser: Arc<Chooser>,
    names_made: AtomicBool,
    loose: AtomicBool,
    turns: Turns,
    /// Held while a journal grows: two threads append to it, one of which does not wait for the disk.
    appending: Mutex<()>,
    moved: Option<Moved>,
    permitted: Aspects,
    filter: Option<Arc<Filter>>,
    /// Folders of this run's own making, while they are not ended: nothing stood in them before.
    fresh: Mutex<HashSet<Box<[u8]>>>,
    pieces: Pieces,
    claims: Claims,
    runs: Runs,
    cloned: Cloned,
    mapped: Mutex<Mapped>,
    /// Is there something in `lost`? Looked at often, and nearly always not.
    any_lost: AtomicBool,
    lost: Mutex<Vec<(EntryId, Aspects)>>,
}

impl LinuxSink {
    /// Puts records at a journal's end; what could not be put whole is taken back, for nothing after it would be believed.
    fn append(&self, journal: &File, records: &[u8]) -> io::Result<()> {
        let _one_at_a_time = self.appending.lock().unwrap_or_else(PoisonError::into_inner);
        let end = sys::fs::stat_file(journal)?.bytes;
        let put = journal.write_all_at(records, end);
        if put.is_err() {
            let _ = sys::fs::truncate(journal, end);
        }
        put
    }

    /// A destination: entries are named below `base`.
    #[must_use]
    pub fn new(base: Dir, chooser: Arc<Chooser>) -> Self {
        LinuxSink {
            base,
            chooser,
            names_made: AtomicBool::new(false),
            loose: AtomicBool::new(false),
            turns: Turns::default(),
            appending: Mutex::default(),
            moved: None,
            permitted: Aspects::ALL,
            filter: None,
            fresh: Mutex::default(),
            pieces: Pieces::default(),
            claims: Claims::default(),
            runs: Runs::default(),
            cloned: Cloned::default(),
            mapped: Mutex::default(),
            any_lost: AtomicBool::new(false),
            lost: Mutex::default(),
        }
    }

    /// The folder that entries are named below.
    #[must_use]
    pub fn base(&self) -> &Dir {
        &self.base
    }

    /// Files that the source has under another name now are looked for at the destination.
    #[must_use]
    pub fn finding_moved(mut self) -> Self {
        self.moved = Some(Moved::default());
        self
    }

    /// Where the version stands that an entry is compared with.
    fn old_path(&self, entry: &Entry) -> io::Result<Option<(Vec<u8>, Stat)>> {
        let own = match self.base.stat(&entry.path) {
            Ok(stat) if stat.kind == Kind::File => return Ok(Some((entry.path.to_vec(), stat))),
            Ok(_) => return Ok(None),
            Err(error) => error,
        };
        let Some(moved) = &self.moved else { return Ok(None) };
        if own.kind() != io::ErrorKind::NotFound {
            return Ok(None);
        }
        let Some(path) = moved.find(&self.base, entry) else { return Ok(None) };
        Ok(self.base.stat(&path).ok().filter(|stat| is_same(stat, entry)).map(|stat| (path, stat)))
    }

    fn signed(&self, entry: &Entry, sign: Sign) -> io::Result<Vec<u8>> {
        match self.old_path(entry)? {
            Some((path, stat)) if sign_of(&stat) == sign => Ok(path),
            _ => Err(io::Error::from_raw_os_error(ESTALE)),
        }
    }

    /// Sets nothing but this of what entries carry, whatever they carry.
    #[must_use]
    pub fn permitting(mut self, permitted: Aspects) -> Self {
        self.permitted = permitted;
        self
    }

    /// Makes files as clones of those of this source, which stands on this host.
    #[must_use]
    pub fn cloning(mut self, source: Arc<Sources>, clones: Clones) -> Self {
        self.cloned = Cloned::of(source, clones);
        self
    }

    /// Files made as clones, and their bytes.
    #[must_use]
    pub fn cloned(&self) -> (u64, u64) {
        self.cloned.count()
    }

    /// What these rules leave out, as `LinuxSource::choosing` has it for the source, is never removed.
    #[must_use]
    pub fn filtering(mut self, filter: Option<Arc<Filter>>) -> Self {
        self.filter = filter;
        self
    }

    fn stays(&self) -> ProtectedPaths<'_> {
        ProtectedPaths { permitted: self.permitted, filter: self.filter.as_deref() }
    }

    /// Sets all that an entry carries, and remembers what of it could not be.
    fn set(&self, pin: &Pin<'_>, entry: &Entry) -> io::Result<()> {
        let lost = meta::set(pin, entry, self.permitted)?;
        if !lost.is_empty() {
            self.lost.lock().unwrap_or_else(PoisonError::into_inner).push((entry.id, lost));
            self.any_lost.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// The same of what stands under its name. Where all of it is so already, nothing is touched: it keeps its time of change, too.
    fn set_standing(&self, entry: &Entry, kind: Kind) -> io::Result<()> {
        let is_so = |stat: &Stat| {
            stat.kind == kind
                && (stat.mtime_s, stat.mtime_ns) == (entry.mtime_s, entry.mtime_ns)
                && meta::is_set(&self.base, stat, entry, self.permitted)
        };
        if self.base.stat(&entry.path).is_ok_and(|stat| is_so(&stat)) {
            return Ok(());
        }
        self.set(&self.base.pin(&entry.path, kind)?, entry)
    }

    /// Who chooses its I/O modes.
    #[must_use]
    pub fn chooser(&self) -> &Chooser {
        &self.chooser
    }

    /// What its file system took in an earlier measurement.
    pub(super) fn remembered(&self) -> Option<(u64, u64)> {
        self.chooser.remembered(Way::Write, &self.base)
    }

    /// What its storage takes now; some tens of milliseconds.
    pub(super) fn look(&self) -> StorageLook {
        look::write(&self.chooser, &self.base)
    }

    /// Once a large part is on the disk its pages need not stay in memory, if the I/O mode was ours to choose.
    fn let_go(&self, entry: &Entry, part: &File) {
        if entry.bytes() >= LARGE_FILE_BYTES_MIN && self.chooser.is_free(Way::Write) {
            let _ = sys::fs::drop_cache(part, 0, 0);
        }
    }

    fn ready(&self, entry: &Entry, durability: Durability, sync: bool) -> io::Result<()> {
        if entry.bytes() <= PACK_FILE_BYTES_MAX {
            return if sync && durability >= Durability::Flushed { self.sync_small(entry) } else { Ok(()) };
        }
        // Never made here: a part that is gone (its entry failed) must not come back empty under the final name.
        let part = self.base.open_file_to_write(&self.part_of(entry))?;
        sys::fs::truncate(&part, entry.bytes())?;
        if entry.meta.sparse && !entry.meta.striped {
            sys::fs::dig(&part)?;
        }
        self.set(&Pin::of(&part), entry)?;
        if entry.meta.striped && !is_same(&sys::fs::stat_file(&part)?, entry) {
            // Its pieces are found by length and time.
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the file system does not keep the time to the nanosecond",
            ));
        }
        if sync && durability >= Durability::Flushed {
            sync_or_drop(&part)?;
            self.let_go(entry, &part);
        }
        self.chooser.cached_after(entry.id, entry.bytes(), &part);
        Ok(())
    }

    /// Flushes the part of a small file, which has its mode already: one that keeps even its owner out is flushed with all others.
    fn sync_small(&self, entry: &Entry) -> io::Result<()> {
        match self.base.open_file(&self.part_of(entry), false) {
            Ok(part) => sys::fs::sync_data(&part),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => self.base.sync_fs(),
            Err(error) => Err(error),
        }
    }

    /// The part of a small file, made now. One that this job made before, of a pack that came corrupt or twice, goes.
    fn new_part(&self, entry: &Entry) -> io::Result<(Vec<u8>, File)> {
        let name = self.part_of(entry);
        self.runs.at(&self.base, &entry.path);
        let part = match self.base.create_file(&name, true, false) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.base.remove_file(&name)?;
                self.base.create_file(&name, true, false)
            }
            other => other,
        };
        Ok((name, part?))
    }

    /// Where what is no file is made before it gets its name.
    fn aside(&self, entry: &Entry) -> Vec<u8> {
        self.runs.at(&self.base, &entry.path);
        let name = beside(&entry.path, &self.runs.ending("part"));
        let _ = self.base.remove_file(&name);
        name
    }

    /// Where what comes of a file stands until it is whole: of a small one under a name that only this job knows.
    fn part_of(&self, entry: &Entry) -> Vec<u8> {
        self.place_of(entry, "chunks", "part")
    }

    /// What tells which chunks of it are there.
    fn journal_of(&self, entry: &Entry) -> Vec<u8> {
        self.place_of(entry, "map", "journal")
    }

    fn place_of(&self, entry: &Entry, striped: &str, else_: &str) -> Vec<u8> {
        if entry.meta.striped {
            beside_of(&entry.path, Whole::of(entry), striped)
        } else if entry.bytes() > JOURNAL_FILE_BYTES_MIN && !self.claims.is_unlocked(entry.id) {
            beside(&entry.path, else_)
        } else {
            beside(&entry.path, &self.runs.ending(else_))
        }
    }

    /// Asks for the part of a file with a journal. `Some`: another job is at it.
    fn ask(&self, entry: &Entry) -> io::Result<Option<String>> {
        let mut held = self.claims.lock();
        if held.contains_key(&entry.id) {
            return Ok(None);
        }
        claims::has_room(&held)?;
        match claims::ask(&self.base, &lock_of(entry), entry.meta.striped)? {
            Asked::Theirs(owner) => Ok(Some(owner)),
            Asked::Ours(claim) => {
                held.insert(entry.id, claim);
                self.runs.at(&self.base, &entry.path);
                Ok(None)
            }
        }
    }

    /// Makes the part of a file with a journal ours, before its first byte. Since the destination was looked at another job may have been at
    /// it and gone: what that left is not what was seen, and goes. Errors: EBUSY, another job is at it.
    fn own(&self, entry: &Entry) -> io::Result<()> {
        if entry.bytes() <= JOURNAL_FILE_BYTES_MIN {
            self.runs.at(&self.base, &entry.path);
            return Ok(());
        }
        let mut held = self.claims.lock();
        if held.contains_key(&entry.id) {
            return Ok(());
        }
        claims::has_room(&held)?;
        let was_there = entry.meta.striped && self.base.is_there(&lock_of(entry)).is_ok();
        let Asked::Ours(claim) = claims::ask(&self.base, &lock_of(entry), entry.meta.striped)? else {
            return Err(io::Error::from_raw_os_error(EBUSY));
        };
        if was_there {
            // The chunks that a map speaks of may be of a version that stands.
            return Err(io::Error::from_raw_os_error(EBUSY));
        }
        if matches!(claim, Claim::Locked { .. }) && !entry.meta.striped {
            let _ = self.base.remove_file(&beside(&entry.path, "journal"));
            let _ = self.base.remove_file(&beside(&entry.path, "part"));
        }
        held.insert(entry.id, claim);
        drop(held);
        self.runs.at(&self.base, &entry.path);
        Ok(())
    }

    /// The part of a file, empty, and ours.
    fn own_new(&self, entry: &Entry) -> io::Result<File> {
        self.own(entry)?;
        let _ = self.base.remove_file(&self.journal_of(entry));
        let _ = self.base.remove_file(&self.part_of(entry));
        self.create_part(&self.part_of(entry), true)
    }

    /// Removes part and journal of a large version that some job left beside this name, unless one is at it.
    fn discard_large(&self, path: &[u8]) {
        let part = beside(path, "part");
        let journal = beside(path, "journal");
        if self.base.is_there(&part).is_err() && self.base.is_there(&journal).is_err() {
            return;
        }
        if let Ok(Asked::Ours(claim)) = claims::ask(&self.base, &beside(path, "lock"), false) {
            // The journal first: without it a part says nothing.
            let _ = self.base.remove_file(&journal);
            let _ = self.base.remove_file(&part);
            claim.end(&self.base);
        }
    }

    /// Was the folder this stands in made by this run?
    fn is_in_fresh(&self, path: &[u8]) -> bool {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner).contains(folder_of(path))
    }

    /// A part of a run that was killed may carry the final mode already, which may forbid writing: it is made anew.
    fn create_part(&self, name: &[u8], truncate: bool) -> io::Result<File> {
        match self.base.create_file(name, false, truncate) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.base.remove_file(name)?;
                self.base.create_file(name, true, truncate)
            }
            other => other,
        }
    }

    fn name(&self, entry: &Entry) -> io::Result<()> {
        self.base.rename(&self.part_of(entry), &entry.path)?;
        if entry.meta.striped {
            return Ok(()); // its journal is its map from here on
        }
        if entry.bytes() > JOURNAL_FILE_BYTES_MIN {
            let _ = self.base.remove_file(&self.journal_of(entry));
            self.claims.release(&self.base, entry.id);
        }
        Ok(())
    }
}

/// What is locked by who writes a file with a journal.
fn lock_of(entry: &Entry) -> Vec<u8> {
    if entry.meta.striped { beside_of(&entry.path, Whole::of(entry), "map") } else { beside(&entry.path, "lock") }
}

/// Writes all blocks but those of zeros.
fn write_sparse(part: &File, content: &[u8]) -> io::Result<()> {
    for (index, block) in content.chunks(HOLE_BYTES).enumerate() {
        if block.iter().any(|&byte| byte != 0) {
            part.write_all_at(block, (index * HOLE_BYTES) as u64)?;
        }
    }
    sys::fs::truncate(part, content.len() as u64)
}

impl VolumeSet for LinuxSink {}

impl SinkTree for LinuxSink {
    fn inspect(&self, entry: &Entry, keep: bool, dry: bool) -> io::Result<Found> {
        if !dry {
            self.sweep_left(&entry.path);
        }
        let is_fresh = self.is_in_fresh(&entry.path);
        let there = if is_fresh { Err(io::ErrorKind::NotFound.into()) } else { self.base.stat(&entry.path) };
        match there {
            Ok(stat) if stat.kind == Kind::Folder => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(stat) if keep && is_same(&stat, entry) => {
                if !dry && !meta::is_set(&self.base, &stat, entry, self.permitted) {
                    self.set(&self.base.pin(&entry.path, Kind::File)?, entry)?;
                }
                if entry.bytes() > JOURNAL_FILE_BYTES_MIN && !dry && !entry.meta.striped {
                    self.discard_large(&entry.path); // a run that died right after the rename left its journal
                }
                return Ok(Found::Same);
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            // A run that died right after it named a large version left that one's journal.
            Ok(stat) if !dry && stat.bytes > JOURNAL_FILE_BYTES_MIN && entry.bytes() <= JOURNAL_FILE_BYTES_MIN => {
                self.discard_large(&entry.path);
            }
            _ if self.runs.any_dead() && !dry && entry.bytes() <= JOURNAL_FILE_BYTES_MIN => {
                self.discard_large(&entry.path);
            }
            _ => {}
        }
        if entry.bytes() <= JOURNAL_FILE_BYTES_MIN {
            return Ok(Found::Nothing);
        }
        // Nor for each of the volumes that get a piece.
        if entry.bytes() >= LARGE_FILE_BYTES_MIN && !entry.meta.sparse && !entry.meta.striped && !dry {
            let dev = self.base.stat_self()?.dev;
            self.chooser.announce(Way::Write, entry.bytes(), dev, &Ground::Folder(&self.base));
        }
        if is_fresh {
            return Ok(Found::Nothing);
        }
        let (part, journal) = (self.part_of(entry), self.journal_of(entry));
        if self.base.is_there(&part).is_err() && self.base.is_there(&journal).is_err() {
            return Ok(Found::Nothing);
        }
        // Before a byte of it is looked at: nobody else changes it from here on.
        if !dry && let Some(owner) = self.ask(entry)? {
            return Ok(Found::Busy(owner));
        }
        let part = self.base.stat(&part);
        match self.base.open_file(&journal, false) {
            Ok(mut journal) if part.is_ok() => {
                let mut bytes = Vec::new();
                io::Read::read_to_end(&mut journal, &mut bytes)?;
                Ok(Found::Parts(vec![(0, bytes)]))
            }
            _ => {
                // A part without a journal, or the reverse, says nothing about what is in it.
                if !dry {
                    self.discard(entry);
                }
                Ok(Found::Nothing)
            }
        }
    }

    fn make(&self, entry: &Entry) -> io::Result<()> {
        self.names_made.store(true, Ordering::Relaxed);
        self.sweep_left(&entry.path);
        match &entry.kind {
            EntryKind::Folder => self.make_folder(entry),
            EntryKind::FolderEnd => {
                let is_new = self.fresh.lock().unwrap_or_else(PoisonError::into_inner).remove(&entry.path);
                self.pieces.left(&entry.path);
                if entry.path.is_empty() && is_shared(&self.base.stat_self()?) {
                    return Ok(()); // as what all users share it must stay: `cp runs /tmp` is no wish to take it from them
                }
                if is_new {
                    return self.set(&self.base.pin(&entry.path, Kind::Folder)?, entry);
                }
                self.set_standing(entry, Kind::Folder)
            }
            EntryKind::Link { target } => self.make_link(entry, target),
            EntryKind::Node { kind, major, minor } => self.make_node(entry, *kind, *major, *minor),
            EntryKind::Name { first } => self.add_name(entry, first),
            EntryKind::File { .. } => unreachable!("files come through parts"),
        }
    }

    fn discard(&self, entry: &Entry) {
        if entry.bytes() > JOURNAL_FILE_BYTES_MIN && !matches!(self.ask(entry), Ok(None)) {
            return; // another job's
        }
        // What is not there need not be removed. The journal first: without it a part says nothing.
        let _ = self.base.remove_file(&self.journal_of(entry));
        let _ = self.base.remove_file(&self.part_of(entry));
        self.claims.release(&self.base, entry.id);
    }

    fn capabilities(self: Arc<Self>) -> Capabilities {
        Capabilities {
            prune: Some(self.clone()),
            read_back: Some(self.clone()),
            cloning: Some(self.clone()),
            previous: Some(self.clone()),
            owners: Some(self.clone()),
            claims: Some(self),
        }
    }
}

impl Publish for LinuxSink {
    fn flush(&self, _volume: usize, entry: &Entry, records: &[u8], firm: Firm) -> io::Result<()> {
        if firm >= Firm::Flushed {
            let part = self.base.open_file_to_write(&self.part_of(entry))?;
            sync_or_drop(&part)?;
            self.let_go(entry, &part);
        } else {
            // Only looked at: to close what could be written is a flush where the disk is a server's (NFS).
            self.base.is_there(&self.part_of(entry))?;
        }
        let journal = self.base.create_file(&self.journal_of(entry), false, false)?;
        self.append(&journal, records)?;
        if firm >= Firm::Flushed {
            sys::fs::sync_data(&journal)?;
        }
        if firm == Firm::Named { self.base.sync(folder_of(&entry.path)) } else { Ok(()) }
    }

    fn publish(&self, entries: &[Arc<Entry>], durability: Durability, results: &mut Vec<io::Result<()>>) {
        let together = durability >= Durability::Flushed && entries.len() >= SYNC_FS_FILES_MIN;
        for entry in entries {
            let named_already = durability < Durability::Flushed && entry.bytes() <= PACK_FILE_BYTES_MAX;
            results.push(if named_already { Ok(()) } else { self.ready(entry, durability, !together) });
        }
        if together && let Err(error) = self.base.sync_fs() {
            for entry in entries.iter().filter(|entry| entry.bytes() > PACK_FILE_BYTES_MAX) {
                let part = self.base.open_file(&self.part_of(entry), false);
                let _ = part.and_then(|part| sys::fs::drop_cache(&part, 0, entry.bytes()));
            }
            fail_all(results, &error);
        }
        let mut folders = BTreeSet::new();
        for (entry, result) in entries.iter().zip(results.iter_mut()) {
            let named_already = durability < Durability::Flushed && entry.bytes() <= PACK_FILE_BYTES_MAX;
            if result.is_ok() && !named_already {
                *result = self.name(entry);
                folders.insert(folder_of(&entry.path));
            }
        }
        if durability < Durability::Published || folders.is_empty() {
            return;
        }
        let flushed = if folders.len() >= SYNC_FS_FOLDERS_MIN {
            self.base.sync_fs()
        } else {
            folders.iter().try_for_each(|folder| self.base.sync(folder))
        };
        if let Err(error) = flushed {
            fail_all(results, &error);
        }
    }

    fn settle(&self, durability: Durability) -> io::Result<()> {
        self.runs.end(&self.base, self.claims.leave_parts());
        if durability == Durability::Published && self.names_made.load(Ordering::Relaxed) {
            self.base.sync_fs()
        } else {
            Ok(())
        }
    }
}

impl Parts for LinuxSink {
    type File = Handle;

    fn resume_part(
        &self,
        _volume: usize,
        entry: &Entry,
        journal_bytes: usize,
        missing: &[(u64, u64)],
    ) -> io::Result<()> {
        self.empty_part(0, entry, missing)?;
        let journal = self.base.create_file(&self.journal_of(entry), false, false)?;
        sys::fs::truncate(&journal, journal_bytes as u64)?;
        sys::fs::sync_data(&journal)
    }

    fn empty_part(&self, _volume: usize, entry: &Entry, ranges: &[(u64, u64)]) -> io::Result<()> {
        let part = self.base.open_file_to_write(&self.part_of(entry))?;
        ranges.iter().try_for_each(|(offset, bytes)| sys::fs::punch(&part, *offset, *bytes))
    }

    fn open_part(&self, _volume: usize, entry: &Entry) -> io::Result<Handle> {
        self.own(entry)?;
        let file = self.create_part(&self.part_of(entry), false)?;
        // Once for a part, not by each worker: the call waits for all direct writes to the file that are on their way (ext4), and with
        // it the worker, which has other disks to serve.
        let is_short = sys::fs::stat_file(&file)?.bytes < entry.bytes();
        match (is_short, entry.meta.sparse || entry.meta.striped) {
            (false, _) => {}
            // Room is taken as data comes: what never comes must stay a hole.
            (true, true) => sys::fs::truncate(&file, entry.bytes())?,
            (true, false) => sys::fs::preallocate(&file, entry.bytes())?,
        }
        let (candidate, _) = self.chooser.candidate(Way::Write, &file, entry.bytes(), || false);
        let handle = Handle::by(file, candidate.mode, 0, false, &self.chooser.refused).by_candidate(candidate);
        Ok(handle.taking_turns(self.turns.of(entry.id)))
    }

    fn open_part_loose(&self, _volume: usize, entry: &Entry) -> io::Result<Handle> {
        // Whoever writes such a chunk anew was told to by the job driver, after this: the mailboxes order it.
        self.loose.store(true, Ordering::Relaxed);
        self.own(entry)?;
        Ok(Handle::new(self.create_part(&self.part_of(entry), false)?))
    }

    fn was_loose(&self) -> bool {
        self.loose.load(Ordering::Relaxed)
    }

    fn put_small(&self, entry: &Entry, content: &[u8], publish: bool) -> io::Result<()> {
        let (name, mut part) = self.new_part(entry)?;
        if entry.meta.sparse {
            write_sparse(&part, content)?;
        } else {
            part.write_all(content)?;
        }
        self.set(&Pin::of(&part), entry)?;
        if publish { self.base.rename(&name, &entry.path) } else { Ok(()) }
    }
}

impl Volume for LinuxSink {
    fn cloning(&self) -> Option<&dyn Cloning> {
        Some(self)
    }

    fn owners(&self) -> Option<&dyn Owners> {
        Some(self)
    }

    fn claims(&self) -> Option<&dyn PartClaims> {
        Some(self)
    }

    fn stands(&self, path: &[u8]) -> io::Result<bool> {
        match self.base.stat(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn room(&self) -> u64 {
        self.base.space().map_or(u64::MAX, |space| space.free_bytes)
    }

    fn sweep_left(&self, path: &[u8]) {
        self.runs.look(&self.base);
        self.runs.sweep(&self.base, path);
    }

    fn unclaim(&self, entry: &Entry) {
        self.claims.release(&self.base, entry.id);
    }
}

impl Striped for LinuxSink {
    fn map_of(&self, entry: &Entry) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut self.base.open_file(&self.journal_of(entry), false)?, &mut bytes)?;
        Ok(bytes)
    }

    fn reopen(&self, entry: &Entry) -> io::Result<()> {
        if self.ask(entry)?.is_some() {
            return Err(io::Error::from_raw_os_error(EBUSY));
        }
        self.base.rename(&entry.path, &self.part_of(entry))?;
        self.base.sync(folder_of(&entry.path))
    }

    fn striped_at(&self, path: &[u8]) -> Option<Whole> {
        let stat = self.base.stat(path).ok().filter(|stat| stat.kind == Kind::File)?;
        let file = Whole { bytes: stat.bytes, mtime_s: stat.mtime_s, mtime_ns: stat.mtime_ns };
        self.base.stat(&beside_of(path, file, "map")).is_ok().then_some(file)
    }

    fn sign_of_piece(&self, old: &Entry) -> io::Result<Sign> {
        Ok(sign_of(&pieces::open(&self.base, old)?.1))
    }

    fn read_piece(&self, old: &Entry, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        sys::fs::read_at_full(&pieces::open(&self.base, old)?.0, into, offset)
    }

    fn carry_piece(&self, old: &Entry, entry: &Entry, ranges: &[(u64, u64)]) -> io::Result<()> {
        let (from, _) = pieces::open(&self.base, old)?;
        self.own(entry)?;
        let part = self.create_part(&self.part_of(entry), true)?;
        sys::fs::truncate(&part, entry.bytes())?;
        ranges.iter().try_for_each(|(offset, bytes)| sys::fs::copy_range(&from, &part, *offset, *bytes))
    }

    fn add_piece(&self, first: &[u8], file: Whole, path: &[u8]) -> io::Result<()> {
        self.pieces.add_name(&self.base, first, file, path)
    }

    fn sweep(&self, path: &[u8], but: Option<Whole>) {
        if !self.is_in_fresh(path) {
            self.pieces.sweep(&self.base, path, but);
        }
    }
}

impl PartClaims for LinuxSink {
    fn owner_of(&self, entry: &Entry) -> String {
        if entry.meta.striped { String::new() } else { claims::holder(&self.base, &lock_of(entry)) }
    }

    fn let_go(&self) {
        let leaves_parts = self.claims.leave_parts();
        self.claims.lock().clear();
        self.runs.let_go(&self.base, leaves_parts);
    }
}

impl Owners for LinuxSink {
    fn learn(&self, names: &[IdName]) {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner).learn(names);
    }

    fn unnamed(&self) -> Unnamed {
        // Where no owner is set no number is kept either, and nobody misses a name.
        let sets_owners = self.permitted.has(Aspects::OWNER) || self.permitted.has(Aspects::GROUP);
        let unnamed = self.mapped.lock().unwrap_or_else(PoisonError::into_inner).unnamed();
        if sets_owners { unnamed } else { Unnamed::default() }
    }

    fn localize(&self, entry: &mut Entry) {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner).localize(entry);
    }

    fn take_unpreserved(&self, into: &mut Vec<(EntryId, Aspects)>) {
        if self.any_lost.swap(false, Ordering::Acquire) {
            into.append(&mut self.lost.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl PreviousVersions for LinuxSink {
    fn previous_version(&self, entry: &Entry) -> io::Result<Option<Old>> {
        let old = self.old_path(entry)?;
        Ok(old.map(|(path, stat)| Old { bytes: stat.bytes, sign: sign_of(&stat), elsewhere: *path != *entry.path }))
    }

    fn read_previous(&self, entry: &Entry, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let Some((path, _)) = self.old_path(entry)? else { return Err(io::ErrorKind::NotFound.into()) };
        sys::fs::read_at_full(&self.base.open_file(&path, false)?, into, offset)
    }

    fn carry(&self, entry: &Entry, sign: Sign, ranges: &[(u64, u64)]) -> io::Result<()> {
        let path = self.signed(entry, sign)?;
        let (old, stat) = self.base.open_file_stat(&path)?;
        let part = self.own_new(entry)?;
        for (offset, bytes) in ranges {
            sys::fs::copy_range(&old, &part, *offset, *bytes)?;
        }
        if sign_of(&stat) == sign && sign_of(&sys::fs::stat_file(&old)?) == sign {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(ESTALE))
        }
    }

    fn adopt(&self, entry: &Entry, sign: Sign) -> io::Result<()> {
        let path = self.signed(entry, sign)?;
        self.set(&self.base.pin(&path, Kind::File)?, entry)?;
        if entry.bytes() > JOURNAL_FILE_BYTES_MIN {
            self.discard_large(&entry.path);
        }
        Ok(())
    }
}

impl Cloning for LinuxSink {
    fn clones(&self) -> Clones {
        self.cloned.now()
    }

    fn clone_part(&self, entry: &Entry) -> io::Result<()> {
        self.cloned.make(entry, || self.own_new(entry))
    }
}

impl ReadBack for LinuxSink {
    fn part_holes(&self, entry: &Entry, offset: u64) -> io::Result<Holes> {
        holes_of(&self.base.open_file(&self.part_of(entry), false)?, offset)
    }

    fn read_part(&self, _volume: usize, entry: &Entry, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        sys::fs::read_at_full(&self.base.open_file(&self.part_of(entry), false)?, into, offset)
    }
}

impl Prune for LinuxSink {
    fn extras(&self, folder: &Entry, names: &HashSet<u64>) -> io::Result<Vec<(Box<[u8]>, u64)>> {
        previous::extras(&self.base, &folder.path, names, self.stays())
    }

    fn remove(&self, path: &[u8]) -> io::Result<u64> {
        previous::remove(&self.base, path, self.stays())
    }
}

/// A folder in which all users have what is theirs.
fn is_shared(folder: &Stat) -> bool {
    const STICKY_AND_OPEN: u32 = 0o1002;
    folder.mode & STICKY_AND_OPEN == STICKY_AND_OPEN
}

fn fail_all(results: &mut [io::Result<()>], error: &io::Error) {
    for result in results.iter_mut().filter(|result| result.is_ok()) {
        *result = Err(match error.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => error.kind().into(),
        });
    }
}

/// Flushes a part. What the disk did not take is clean in memory from then on, and nobody is told twice: a later run must not find it there
/// and believe it.
fn sync_or_drop(part: &File) -> io::Result<()> {
    sys::fs::sync_data(part).inspect_err(|_| {
        let _ = sys::fs::stat_file(part).and_then(|it| sys::fs::drop_cache(part, 0, it.bytes));
    })
}
