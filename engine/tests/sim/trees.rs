//! Source and sink over the simulated disk, call for call what `engine::linux` does over the real one.
//!
//! For: `SourceTree` and `SinkTree` of the simulated platform.
//! In and out: entries in; files, verdicts out.
//! Invariants: the order of calls on the disk is that of `tree/sink/mod.rs`; a change there is a change here.
//! Absent on purpose: O_DIRECT, caches.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use engine::machine::recv::JOURNAL_FILE_BYTES_MIN;
use engine::platform::{
    Capabilities, Firm, Found, HOLES_AT_ONCE, Holes, Old, Parts, PreviousVersions, Prune, Publish, ReadBack, Sign,
    SinkTree, SourceTree, Striped, Volume, VolumeSet,
};
use engine::tree::sink_tree::name_sign;
use engine::tree::{beside, beside_of, is_ours};
use proto::manifest::{Entry, EntryKind, Meta, NodeKind, Xattr};
use proto::striped::Whole;
use proto::wire::chunk::PACK_FILE_BYTES_MAX;
use proto::wire::control::Durability;

use crate::disk::{Carried, Disk, Kind, SECTOR, parent};

pub(crate) type SharedDisk = Arc<Mutex<Disk>>;

/// An open file of either tree.
#[derive(Debug, Clone)]
pub(crate) struct SimFile {
    pub(crate) disk: SharedDisk,
    pub(crate) ino: usize,
    /// Moved by an engine that the file system may refuse; gives way as `tree::handle` does.
    pub(crate) special: Arc<AtomicBool>,
}

impl SimFile {
    fn new(disk: &SharedDisk, ino: usize, special: bool) -> SimFile {
        let special = special && !lock(disk).refused;
        SimFile { disk: disk.clone(), ino, special: Arc::new(AtomicBool::new(special)) }
    }
}

/// The volume on which a scan finds every entry, as if the source were one of several joined: entries that crossed the wire do not say it.
pub(crate) const VOLUME: u16 = 1;

/// The volume of this number of a source: it has no entry of another.
#[derive(Debug)]
pub(crate) struct SimSource(pub(crate) SharedDisk, pub(crate) u16);

impl SimSource {
    fn of(&self, entry: &Entry) -> io::Result<MutexGuard<'_, Disk>> {
        if entry.meta.volume == self.1 { Ok(lock(&self.0)) } else { Err(io::Error::from_raw_os_error(2)) }
    }
}

/// With the number of its run: parts of small files are named after it, and it holds the locks of large ones.
#[derive(Debug, Clone)]
pub(crate) struct SimSink(pub(crate) SharedDisk, pub(crate) u64);

fn lock(disk: &SharedDisk) -> MutexGuard<'_, Disk> {
    disk.lock().expect("one thread")
}

fn is_same(disk: &Disk, ino: usize, entry: &Entry) -> bool {
    let node = &disk.nodes[ino];
    matches!(&node.kind, Kind::File(content) if content.data.len() as u64 == entry.bytes())
        && node.mtime == (entry.mtime_s, entry.mtime_ns)
}

impl SourceTree for SimSource {
    type File = SimFile;

    fn open(&self, entry: &Entry, _volume: usize) -> io::Result<SimFile> {
        let ino = self.of(entry)?.open(&entry.path)?;
        Ok(SimFile::new(&self.0, ino, true))
    }

    fn read_small(&self, entry: &Entry, into: &mut [u8]) -> io::Result<Option<()>> {
        let mut disk = self.of(entry)?;
        let ino = disk.open(&entry.path)?;
        if !is_same(&disk, ino, entry) {
            return Ok(None);
        }
        let mut done = 0;
        while done < into.len() {
            match disk.read(ino, done as u64, &mut into[done..])? {
                0 => return Ok(None),
                moved => done += moved,
            }
        }
        Ok(is_same(&disk, ino, entry).then_some(()))
    }

    fn read_at(&self, entry: &Entry, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut disk = self.of(entry)?;
        let ino = disk.open(&entry.path)?;
        read_full(&mut disk, ino, offset, into)
    }

    fn is_unchanged(&self, entry: &Entry) -> io::Result<bool> {
        let mut disk = self.of(entry)?;
        let ino = disk.lookup(&entry.path)?;
        Ok(is_same(&disk, ino, entry))
    }

    fn holes(&self, entry: &Entry, offset: u64) -> io::Result<Holes> {
        let mut disk = self.of(entry)?;
        let ino = disk.open(&entry.path)?;
        let data = disk.data(ino);
        let mut holes = Holes { ranges: Vec::new(), until: u64::MAX };
        let (mut at, end) = (offset as usize, data.len());
        while at < end {
            let is_zero = |at: usize| data[at..end.min(at + SECTOR)].iter().all(|&byte| byte == 0);
            let start = (at..end).step_by(SECTOR).find(|&it| is_zero(it)).unwrap_or(end);
            at = (start..end).step_by(SECTOR).find(|&it| !is_zero(it)).unwrap_or(end);
            if at - start >= SECTOR * 16 {
                holes.ranges.push((start as u64, at as u64));
            }
            if holes.ranges.len() == HOLES_AT_ONCE {
                holes.until = at as u64;
                break;
            }
        }
        Ok(holes)
    }
}

fn read_full(disk: &mut Disk, ino: usize, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match disk.read(ino, offset + done as u64, &mut into[done..])? {
            0 => break,
            moved => done += moved,
        }
    }
    Ok(done)
}

fn sign_of(disk: &Disk, ino: usize) -> Sign {
    let node = &disk.nodes[ino];
    let bytes = disk.data(ino).len() as u64;
    Sign([ino as u64, bytes, node.mtime.0.cast_unsigned(), node.mtime.1.into(), node.mode.into(), 0])
}

impl SimSink {
    /// The tree of a job that begins.
    pub(crate) fn begin(disk: &SharedDisk) -> SimSink {
        let number = lock(disk).begin_run();
        SimSink(disk.clone(), number)
    }

    fn signed(disk: &mut Disk, entry: &Entry, sign: Sign) -> io::Result<usize> {
        let ino = disk.open(&entry.path)?;
        if sign_of(disk, ino) == sign { Ok(ino) } else { Err(io::Error::from_raw_os_error(116)) }
    }

    /// Where what comes of a file stands: of a small one under a name of this run's.
    fn part_of(&self, entry: &Entry) -> Vec<u8> {
        if entry.meta.striped || entry.bytes() > JOURNAL_FILE_BYTES_MIN {
            part_of(entry)
        } else {
            ending(&entry.path, self.1)
        }
    }

    /// Where what is no file is made.
    fn aside(&self, disk: &mut Disk, entry: &Entry) -> Vec<u8> {
        let part = ending(&entry.path, self.1);
        let _ = disk.remove(&part);
        part
    }

    /// Asks for the part of a large file: false, it is another run's. What another left there since it was looked at goes.
    fn own(&self, disk: &mut Disk, entry: &Entry, seen: bool) -> bool {
        if entry.meta.striped || entry.bytes() <= JOURNAL_FILE_BYTES_MIN {
            return true;
        }
        let asked = disk.claim(lock_of(&entry.path), self.1);
        if asked == Some(true) && !seen {
            let _ = disk.remove(&journal_of(entry));
            let _ = disk.remove(&part_of(entry));
        }
        asked.is_some()
    }

    /// As `LinuxSink::discard_large`.
    fn discard_large(&self, disk: &mut Disk, path: &[u8]) {
        if disk.claim(lock_of(path), self.1).is_some() {
            let _ = disk.remove(&beside(path, "journal"));
            let _ = disk.remove(&beside(path, "part"));
            disk.unclaim(&lock_of(path));
        }
    }

    /// As `Runs::sweep`.
    fn sweep_killed(&self, disk: &mut Disk, path: &[u8]) {
        for run in disk.killed.clone() {
            if disk.get(&ending(path, run)).is_some() {
                let _ = disk.remove(&ending(path, run));
            }
        }
    }

    /// Owner and attributes before mode and time, as `tree/meta.rs` has them.
    fn set(disk: &mut Disk, ino: usize, entry: &Entry) -> io::Result<()> {
        let mode = (!matches!(entry.kind, EntryKind::Link { .. })).then_some(entry.mode);
        disk.set_carried(ino, carried(entry))?;
        disk.set_meta(ino, mode, Some((entry.mtime_s, entry.mtime_ns)))
    }

    fn ready(&self, disk: &mut Disk, entry: &Entry, durability: Durability, sync: bool) -> io::Result<()> {
        if entry.bytes() <= PACK_FILE_BYTES_MAX && !(sync && durability >= Durability::Flushed) {
            return Ok(());
        }
        let part = disk.open(&self.part_of(entry))?;
        if entry.bytes() > PACK_FILE_BYTES_MAX {
            disk.truncate(part, entry.bytes())?;
            SimSink::set(disk, part, entry)?;
        }
        if sync && durability >= Durability::Flushed {
            disk.sync_data(part)?;
        }
        Ok(())
    }

    fn name(&self, disk: &mut Disk, entry: &Entry) -> io::Result<()> {
        disk.rename(&self.part_of(entry), &entry.path)?;
        if entry.meta.striped {
            return Ok(());
        }
        if entry.bytes() > JOURNAL_FILE_BYTES_MIN {
            let _ = disk.remove(&journal_of(entry));
            disk.unclaim(&lock_of(&entry.path));
        }
        Ok(())
    }

    fn make_link(&self, disk: &mut Disk, entry: &Entry, target: &[u8]) -> io::Result<()> {
        let same =
            matches!(disk.get(&entry.path).map(|node| &node.kind), Some(Kind::Link(there)) if **there == *target);
        if !same {
            let part = self.aside(disk, entry);
            disk.make_link(target, &part)?;
            disk.rename(&part, &entry.path)?;
        }
        let ino = disk.lookup(&entry.path)?;
        SimSink::set(disk, ino, entry)
    }

    fn make_node(&self, disk: &mut Disk, entry: &Entry, kind: NodeKind, major: u32, minor: u32) -> io::Result<()> {
        let same =
            |kind_there: &Kind| matches!(kind_there, Kind::Node(k, a, b) if (*k, *a, *b) == (kind, major, minor));
        if disk.get(&entry.path).is_some_and(|there| same(&there.kind)) {
            let ino = disk.lookup(&entry.path)?;
            return SimSink::set(disk, ino, entry);
        }
        let part = self.aside(disk, entry);
        let ino = disk.make_node(&part, kind, major, minor)?;
        SimSink::set(disk, ino, entry)?;
        disk.rename(&part, &entry.path)
    }

    fn add_name(&self, disk: &mut Disk, entry: &Entry, first: &[u8]) -> io::Result<()> {
        let there = disk.lookup(first)?;
        if disk.lookup(&entry.path).is_ok_and(|it| it == there) {
            return Ok(());
        }
        let part = self.aside(disk, entry);
        disk.add_name(first, &part)?;
        disk.rename(&part, &entry.path)
    }
}

/// The one attribute of this world.
const NOTE: &[u8] = b"user.note";

fn carried(entry: &Entry) -> Carried {
    let note = entry.meta.xattrs.first().map(|it| it.value.clone());
    Carried { uid: entry.meta.uid.unwrap_or(0), gid: entry.meta.gid.unwrap_or(0), note }
}

impl VolumeSet for SimSink {}

impl SinkTree for SimSink {
    fn inspect(&self, entry: &Entry, keep: bool, dry: bool) -> io::Result<Found> {
        let mut disk = lock(&self.0);
        if !dry {
            self.sweep_killed(&mut disk, &entry.path);
        }
        match disk.lookup(&entry.path) {
            Ok(ino) if matches!(disk.nodes[ino].kind, Kind::Folder) => {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            Ok(ino) if keep && is_same(&disk, ino, entry) => {
                let node = &disk.nodes[ino];
                if (node.mode != entry.mode || node.carried != carried(entry)) && !dry {
                    SimSink::set(&mut disk, ino, entry)?;
                }
                if entry.bytes() > JOURNAL_FILE_BYTES_MIN && !dry && !entry.meta.striped {
                    self.discard_large(&mut disk, &entry.path);
                }
                return Ok(Found::Same);
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if entry.bytes() <= JOURNAL_FILE_BYTES_MIN {
            let was_large = disk.get(&entry.path).is_some_and(
                |node| matches!(&node.kind, Kind::File(it) if it.data.len() as u64 > JOURNAL_FILE_BYTES_MIN),
            );
            if !dry && (was_large || !disk.killed.is_empty()) {
                self.discard_large(&mut disk, &entry.path);
            }
            return Ok(Found::Nothing);
        }
        let part = disk.lookup(&part_of(entry));
        if part.is_err() && disk.get(&journal_of(entry)).is_none() {
            return Ok(Found::Nothing);
        }
        if !dry && !self.own(&mut disk, entry, true) {
            return Ok(Found::Busy(String::new()));
        }
        match disk.open(&journal_of(entry)) {
            Ok(journal) if part.is_ok() => Ok(Found::Parts(vec![(0, disk.data(journal).to_vec())])),
            _ if dry => Ok(Found::Nothing),
            _ => {
                drop(disk);
                self.discard(entry);
                Ok(Found::Nothing)
            }
        }
    }

    fn make(&self, entry: &Entry) -> io::Result<()> {
        let mut disk = lock(&self.0);
        self.sweep_killed(&mut disk, &entry.path);
        match &entry.kind {
            EntryKind::Folder if entry.path.is_empty() => Ok(()),
            EntryKind::Folder => match disk.make_dir(&entry.path, entry.mode | 0o700) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let ino = disk.lookup(&entry.path)?;
                    if matches!(disk.nodes[ino].kind, Kind::Folder) {
                        Ok(())
                    } else {
                        Err(io::ErrorKind::NotADirectory.into())
                    }
                }
                other => other,
            },
            EntryKind::FolderEnd => {
                let ino = disk.lookup(&entry.path)?;
                SimSink::set(&mut disk, ino, entry)
            }
            EntryKind::Link { target } => self.make_link(&mut disk, entry, target),
            EntryKind::Node { kind, major, minor } => self.make_node(&mut disk, entry, *kind, *major, *minor),
            EntryKind::Name { first } => self.add_name(&mut disk, entry, first),
            EntryKind::File { .. } => unreachable!("files come through parts"),
        }
    }

    fn discard(&self, entry: &Entry) {
        let mut disk = lock(&self.0);
        if !self.own(&mut disk, entry, true) {
            return;
        }
        if entry.meta.striped || entry.bytes() > JOURNAL_FILE_BYTES_MIN {
            let _ = disk.remove(&journal_of(entry));
            disk.unclaim(&lock_of(&entry.path));
        }
        let _ = disk.remove(&self.part_of(entry));
    }

    fn capabilities(self: Arc<Self>) -> Capabilities {
        Capabilities {
            prune: Some(self.clone()),
            read_back: Some(self.clone()),
            previous: Some(self),
            ..Capabilities::default()
        }
    }
}

impl Publish for SimSink {
    fn flush(&self, _volume: usize, entry: &Entry, records: &[u8], firm: Firm) -> io::Result<()> {
        let mut disk = lock(&self.0);
        let part = disk.open(&self.part_of(entry))?;
        if firm >= Firm::Flushed {
            disk.sync_data(part)?;
        }
        let journal = disk.create(&journal_of(entry), false)?;
        let end = disk.data(journal).len() as u64;
        let put = disk.write_all(journal, end, records);
        if put.is_err() {
            let _ = disk.truncate(journal, end);
        }
        put?;
        if firm >= Firm::Flushed {
            disk.sync_data(journal)?;
        }
        if firm == Firm::Named { disk.sync_names() } else { Ok(()) }
    }

    fn settle(&self, durability: Durability) -> io::Result<()> {
        if durability == Durability::Published { lock(&self.0).sync_all() } else { Ok(()) }
    }

    fn publish(&self, entries: &[Arc<Entry>], durability: Durability, results: &mut Vec<io::Result<()>>) {
        let mut disk = lock(&self.0);
        let together = durability >= Durability::Flushed && entries.len() >= 64;
        let named = |entry: &Entry| durability < Durability::Flushed && entry.bytes() <= PACK_FILE_BYTES_MAX;
        for entry in entries {
            results.push(if named(entry) { Ok(()) } else { self.ready(&mut disk, entry, durability, !together) });
        }
        let mut all = if together { disk.sync_all() } else { Ok(()) };
        if all.is_ok() {
            let mut folders = BTreeSet::new();
            for (entry, result) in entries.iter().zip(results.iter_mut()) {
                if result.is_ok() && !named(entry) {
                    *result = self.name(&mut disk, entry);
                    folders.insert(parent(&entry.path));
                }
            }
            if durability == Durability::Published && !folders.is_empty() {
                all = disk.sync_names();
            }
        }
        if let Err(error) = all {
            for result in results.iter_mut().filter(|result| result.is_ok()) {
                *result = Err(io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(5)));
            }
        }
    }
}

impl Parts for SimSink {
    type File = SimFile;

    fn resume_part(
        &self,
        _volume: usize,
        entry: &Entry,
        journal_bytes: usize,
        missing: &[(u64, u64)],
    ) -> io::Result<()> {
        self.empty_part(0, entry, missing)?;
        let mut disk = lock(&self.0);
        let journal = disk.open(&journal_of(entry))?;
        disk.truncate(journal, journal_bytes as u64)?;
        disk.sync_data(journal)
    }

    fn empty_part(&self, _volume: usize, entry: &Entry, ranges: &[(u64, u64)]) -> io::Result<()> {
        let mut disk = lock(&self.0);
        let part = disk.open(&self.part_of(entry))?;
        ranges.iter().try_for_each(|(offset, bytes)| disk.punch(part, *offset, *bytes))
    }

    fn open_part(&self, _volume: usize, entry: &Entry) -> io::Result<SimFile> {
        let mut disk = lock(&self.0);
        if !self.own(&mut disk, entry, false) {
            return Err(io::Error::from_raw_os_error(16));
        }
        let ino = disk.create(&self.part_of(entry), false)?;
        if (disk.data(ino).len() as u64) < entry.bytes() {
            disk.truncate(ino, entry.bytes())?;
        }
        drop(disk);
        Ok(SimFile::new(&self.0, ino, true))
    }

    fn open_part_loose(&self, volume: usize, entry: &Entry) -> io::Result<SimFile> {
        lock(&self.0).loose = true;
        let file = self.open_part(volume, entry)?;
        file.special.store(false, Ordering::Relaxed);
        Ok(file)
    }

    fn was_loose(&self) -> bool {
        lock(&self.0).loose
    }

    fn put_small(&self, entry: &Entry, content: &[u8], publish: bool) -> io::Result<()> {
        let mut disk = lock(&self.0);
        let name = self.part_of(entry);
        if disk.get(&name).is_some() {
            disk.remove(&name)?;
        }
        let part = disk.create(&name, false)?;
        disk.write_all(part, 0, content)?;
        SimSink::set(&mut disk, part, entry)?;
        if publish { disk.rename(&name, &entry.path) } else { Ok(()) }
    }
}

impl Volume for SimSink {
    fn stands(&self, path: &[u8]) -> io::Result<bool> {
        Ok(lock(&self.0).lookup(path).is_ok())
    }
}

impl Striped for SimSink {
    fn add_piece(&self, first: &[u8], file: Whole, path: &[u8]) -> io::Result<()> {
        let mut disk = lock(&self.0);
        for ending in ["chunks", "map"] {
            let from = beside_of(first, file, ending);
            if disk.get(&from).is_some() {
                disk.add_name(&from, &beside_of(path, file, ending))?;
            }
        }
        Ok(())
    }

    fn map_of(&self, entry: &Entry) -> io::Result<Vec<u8>> {
        let mut disk = lock(&self.0);
        let map = disk.open(&journal_of(entry))?;
        Ok(disk.data(map).to_vec())
    }

    fn reopen(&self, entry: &Entry) -> io::Result<()> {
        let mut disk = lock(&self.0);
        disk.rename(&entry.path, &part_of(entry))?;
        disk.sync_names()
    }

    fn striped_at(&self, path: &[u8]) -> Option<Whole> {
        let disk = lock(&self.0);
        let node = disk.get(path)?;
        let Kind::File(content) = &node.kind else { return None };
        let file = Whole { bytes: content.data.len() as u64, mtime_s: node.mtime.0, mtime_ns: node.mtime.1 };
        disk.get(&beside_of(path, file, "map")).is_some().then_some(file)
    }

    fn sign_of_piece(&self, old: &Entry) -> io::Result<Sign> {
        let mut disk = lock(&self.0);
        let ino = open_piece(&mut disk, old)?;
        Ok(sign_of(&disk, ino))
    }

    fn read_piece(&self, old: &Entry, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut disk = lock(&self.0);
        let ino = open_piece(&mut disk, old)?;
        read_full(&mut disk, ino, offset, into)
    }

    fn carry_piece(&self, old: &Entry, entry: &Entry, ranges: &[(u64, u64)]) -> io::Result<()> {
        let mut disk = lock(&self.0);
        let (from, part) = (open_piece(&mut disk, old)?, disk.create(&part_of(entry), true)?);
        disk.truncate(part, entry.bytes())?;
        for (offset, bytes) in ranges {
            let mut range = vec![0; *bytes as usize];
            read_full(&mut disk, from, *offset, &mut range)?;
            disk.write_all(part, *offset, &range)?;
        }
        Ok(())
    }

    fn sweep(&self, path: &[u8], but: Option<Whole>) {
        let mut disk = lock(&self.0);
        let kept = but.map(|file| ["chunks", "map"].map(|ending| beside_of(path, file, ending)));
        let mut stem = beside(path, "");
        stem.pop();
        stem.push(b'-');
        let all = disk.tree().map(|(path, _)| path.clone()).filter(|it| it.starts_with(&stem)).collect::<Vec<_>>();
        for piece in all.iter().filter(|it| !kept.iter().flatten().any(|kept| kept[..] == it[..])) {
            let _ = disk.remove(piece);
        }
    }
}

impl PreviousVersions for SimSink {
    fn previous_version(&self, entry: &Entry) -> io::Result<Option<Old>> {
        let mut disk = lock(&self.0);
        let ino = disk.lookup(&entry.path)?;
        let Kind::File(content) = &disk.nodes[ino].kind else { return Ok(None) };
        Ok(Some(Old { bytes: content.data.len() as u64, sign: sign_of(&disk, ino), elsewhere: false }))
    }

    fn read_previous(&self, entry: &Entry, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut disk = lock(&self.0);
        let ino = disk.open(&entry.path)?;
        read_full(&mut disk, ino, offset, into)
    }

    fn carry(&self, entry: &Entry, sign: Sign, ranges: &[(u64, u64)]) -> io::Result<()> {
        let mut disk = lock(&self.0);
        let old = SimSink::signed(&mut disk, entry, sign)?;
        if !self.own(&mut disk, entry, false) {
            return Err(io::Error::from_raw_os_error(16));
        }
        if entry.bytes() > JOURNAL_FILE_BYTES_MIN {
            let _ = disk.remove(&journal_of(entry));
        }
        let _ = disk.remove(&self.part_of(entry));
        let part = disk.create(&self.part_of(entry), true)?;
        for (offset, bytes) in ranges {
            let mut range = vec![0; *bytes as usize];
            if read_full(&mut disk, old, *offset, &mut range)? < range.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if (disk.data(part).len() as u64) < *offset {
                disk.truncate(part, *offset)?;
            }
            disk.write_all(part, *offset, &range)?;
        }
        SimSink::signed(&mut disk, entry, sign).map(|_| ())
    }

    fn adopt(&self, entry: &Entry, sign: Sign) -> io::Result<()> {
        let mut disk = lock(&self.0);
        let ino = SimSink::signed(&mut disk, entry, sign)?;
        SimSink::set(&mut disk, ino, entry)?;
        if entry.bytes() > JOURNAL_FILE_BYTES_MIN {
            self.discard_large(&mut disk, &entry.path);
        }
        Ok(())
    }
}

impl ReadBack for SimSink {
    fn read_part(&self, _volume: usize, entry: &Entry, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut disk = lock(&self.0);
        let ino = disk.open(&self.part_of(entry))?;
        read_full(&mut disk, ino, offset, into)
    }
}

impl Prune for SimSink {
    fn extras(&self, folder: &Entry, names: &HashSet<u64>) -> io::Result<Vec<(Box<[u8]>, u64)>> {
        let mut disk = lock(&self.0);
        disk.lookup(&folder.path)?;
        let all = disk.tree().map(|(path, _)| path).filter(|path| !path.is_empty() && parent(path) == &*folder.path);
        let extras = all.filter(|path| !is_ours(name(path)) && !names.contains(&name_sign(name(path))));
        Ok(extras.map(|path| (path.clone(), 1)).collect())
    }

    fn remove(&self, path: &[u8]) -> io::Result<u64> {
        let mut disk = lock(&self.0);
        let folder = disk.lookup(parent(path))?;
        let time = disk.nodes[folder].mtime;
        disk.remove(path)?;
        disk.set_meta(folder, None, Some(time))?;
        Ok(1)
    }
}

/// What stands of a version: where its name stands, that is the piece.
fn open_piece(disk: &mut Disk, old: &Entry) -> io::Result<usize> {
    disk.open(&part_of(old)).or_else(|_| disk.open(&old.path))
}

fn whole(entry: &Entry) -> Whole {
    Whole { bytes: entry.bytes(), mtime_s: entry.mtime_s, mtime_ns: entry.mtime_ns }
}

/// As on Linux: what comes of a striped file stands beside every version that stands already.
pub(crate) fn part_of(entry: &Entry) -> Vec<u8> {
    if entry.meta.striped { beside_of(&entry.path, whole(entry), "chunks") } else { beside(&entry.path, "part") }
}

/// The part of a small file, or of what is none, of this run.
fn ending(path: &[u8], run: u64) -> Vec<u8> {
    beside(path, &format!("{run:016x}.part"))
}

fn lock_of(path: &[u8]) -> Box<[u8]> {
    beside(path, "lock").into()
}

fn journal_of(entry: &Entry) -> Vec<u8> {
    if entry.meta.striped { beside_of(&entry.path, whole(entry), "map") } else { beside(&entry.path, "journal") }
}

/// The source's entries as the real scan would find them, depth first.
pub(crate) fn scan(disk: &SharedDisk) -> Vec<Entry> {
    let disk = lock(disk);
    let mut entries = Vec::new();
    below(&disk, b"", &mut entries, &mut HashMap::new());
    entries.iter_mut().for_each(|it| it.meta.volume = VOLUME);
    entries
}

/// `firsts`: of what has several names, the one that was found first.
fn below(disk: &Disk, path: &[u8], entries: &mut Vec<Entry>, firsts: &mut HashMap<usize, Box<[u8]>>) {
    let node = disk.get(path).expect("listed");
    let entry = |kind, meta| Entry {
        id: 0,
        path: path.into(),
        kind,
        mode: node.mode,
        mtime_s: node.mtime.0,
        mtime_ns: node.mtime.1,
        meta,
    };
    let note = node.carried.note.iter().map(|value| Xattr { name: NOTE.into(), value: value.clone() });
    let mut meta =
        Meta { uid: Some(node.carried.uid), gid: Some(node.carried.gid), xattrs: note.collect(), ..Meta::default() };
    let names = disk.names_of(path).len();
    if names > 1 {
        let ino = disk.ino(path).expect("listed");
        if let Some(first) = firsts.get(&ino) {
            entries.push(entry(EntryKind::Name { first: first.clone() }, Meta::default()));
            return;
        }
        firsts.insert(ino, path.into());
        meta.names = names as u32;
    }
    match &node.kind {
        Kind::File(content) => {
            meta.sparse = content.data.chunks(SECTOR).any(|block| block.iter().all(|&byte| byte == 0));
            entries.push(entry(EntryKind::File { bytes: content.data.len() as u64 }, meta));
        }
        Kind::Link(target) => entries.push(entry(EntryKind::Link { target: target.clone() }, meta)),
        Kind::Node(kind, major, minor) => {
            entries.push(entry(EntryKind::Node { kind: *kind, major: *major, minor: *minor }, meta));
        }
        Kind::Folder => {
            entries.push(entry(EntryKind::Folder, Meta::default()));
            let children: Vec<_> = disk
                .tree()
                .filter(|(it, _)| !it.is_empty() && parent(it) == path && !is_ours(name(it)))
                .map(|(it, _)| it.clone())
                .collect();
            for child in children {
                below(disk, &child, entries, firsts);
            }
            entries.push(entry(EntryKind::FolderEnd, meta));
        }
    }
}

pub(crate) fn name(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&byte| byte == b'/').map_or(path, |slash| &path[slash + 1..])
}
