//! A file of a length that is known, whose ranges come by several streams of another protocol at once.
//!
//! For: downloads by FTP.
//! In and out: stretches of chunks, each filled in order by one thread; the file under its name, or a part that the next run goes on with.
//! Invariants: the name has the file when all of it came and was brought to its durability level, and not before; the part beside it is touched by who
//! holds its lock only (`claims.rs`), or has a name that this copy alone knows (`small.rs`); what the journal says of chunks is believed after they were read back only, and only if length and time of the
//! file at its source are what they were.
//! Absent on purpose: who brings which stretch, and when a stream was cut (`rail::plain` and who calls it).

use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::journal::{JOURNAL_VERSION, JournalHeader, Replay, encode_header, encode_noted};
use proto::wire::control::{Digest, Durability};
use sys::fs::{Dir, Kind};

use super::claims::{self, Asked, Claim, EBUSY};
use super::open_ended::{CHUNK_BYTES, How, Whole};
use super::small::Small;
use super::{folder_of, sync_or_drop};
use crate::seal::digest::DigestTree;
use crate::seal::hash::{Hash, HashAs};
use crate::tree::beside;

/// A file of nobody's making before: what the umask of most systems leaves of 0666 (`umask(2)`: 022).
const MODE_NEW: u32 = 0o644;
/// Chunks that a stretch tells the journal of at once: 4 MiB of each connection are what a kill costs, and one write of some 200 bytes for them costs nothing beside.
const NOTED_AT_ONCE: usize = 4;
/// Files up to this have no journal: they come again sooner than it is read back.
pub const JOURNAL_BYTES_MIN: u64 = 8 << 20;
const CHUNK: u64 = CHUNK_BYTES as u64;
/// Of errno(3).
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;

/// The file at its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Its length.
    pub bytes: u64,
    /// When it changed, seconds since 1970; `None`: nobody knows, and nothing of an earlier run is believed.
    pub mtime_s: Option<i64>,
}

#[derive(Debug)]
struct State {
    digest: DigestTree,
    /// Which chunks are there.
    there: Vec<bool>,
    /// The journal, and where it ends.
    journal: Option<(File, u64)>,
}

/// A file on its way.
#[derive(Debug)]
pub struct Ranged {
    base: Dir,
    path: Vec<u8>,
    part: File,
    part_name: Vec<u8>,
    claim: Option<Claim>,
    /// Has neither lock nor journal.
    small: Option<Arc<Small>>,
    how: How,
    source: Source,
    mode: u32,
    /// Nothing of an earlier run stands in the part: what is not written is a hole.
    is_fresh: bool,
    /// Of a small file, whose part is as long as what was written of it.
    has_hole: AtomicBool,
    resumed: u64,
    state: Mutex<State>,
}

fn chunks_of(bytes: u64) -> usize {
    bytes.div_ceil(CHUNK) as usize
}

impl Ranged {
    /// Begins a file, or goes on with what an earlier run left of the same one.
    ///
    /// # Errors
    /// EBUSY: another job is at it; EISDIR, EINVAL: the name is that of no file; the file system's.
    pub fn begin(base: &Dir, path: &[u8], source: Source, mode: Option<u32>, how: How) -> io::Result<Ranged> {
        let Asked::Ours(claim) = claims::ask(base, &beside(path, "lock"), false)? else {
            return Err(io::Error::from_raw_os_error(EBUSY));
        };
        match Ranged::open(base, path, source, mode, how) {
            Ok(it) => Ok(Ranged { claim: Some(claim), ..it }),
            Err(error) => {
                claim.end(base);
                Err(error)
            }
        }
    }

    /// Begins a file that has no journal: shorter than `JOURNAL_BYTES_MIN`. `is_new`: its folder was made by this copy, and nothing stands at its name.
    ///
    /// # Errors
    /// EBUSY: this copy is at it already; else as `begin`.
    pub fn begin_small(
        (base, small): (&Dir, &Arc<Small>),
        path: &[u8],
        source: Source,
        (mode, is_new): (Option<u32>, bool),
        how: How,
    ) -> io::Result<Ranged> {
        debug_assert!(source.bytes < JOURNAL_BYTES_MIN, "a large file has a journal");
        let there = if is_new { None } else { mode_there(base, path)? };
        let part_name = small.part_of(base, path);
        let part = base.create_file(&part_name, true, false).map_err(|error| match error.kind() {
            // Its listing has the name twice.
            io::ErrorKind::AlreadyExists => io::Error::from_raw_os_error(EBUSY),
            _ => error,
        })?;
        let mode = mode.or(there).unwrap_or(MODE_NEW);
        Ok(Ranged { small: Some(Arc::clone(small)), ..Ranged::of(base, path, (part, part_name), (source, mode), how) })
    }

    fn of(
        base: &Dir,
        path: &[u8],
        (part, part_name): (File, Vec<u8>),
        (source, mode): (Source, u32),
        how: How,
    ) -> Ranged {
        let state = State {
            digest: DigestTree::new(how.digest, source.bytes, CHUNK_BYTES),
            there: vec![false; chunks_of(source.bytes)],
            journal: None,
        };
        Ranged {
            base: base.clone(),
            path: path.to_vec(),
            part,
            part_name,
            claim: None,
            small: None,
            how,
            source,
            mode,
            is_fresh: true,
            has_hole: AtomicBool::new(false),
            resumed: 0,
            state: Mutex::new(state),
        }
    }

    fn open(base: &Dir, path: &[u8], source: Source, mode: Option<u32>, how: How) -> io::Result<Ranged> {
        let there = mode_there(base, path)?;
        let keeps = source.bytes >= JOURNAL_BYTES_MIN;
        let noted = if keeps { noted_of(base, path, &header(source, how))? } else { None };
        let part_name = beside(path, "part");
        let part = base.create_file(&part_name, false, noted.is_none())?;
        let mode = mode.or(there).unwrap_or(MODE_NEW);
        let mut it =
            Ranged { is_fresh: noted.is_none(), ..Ranged::of(base, path, (part, part_name), (source, mode), how) };
        let known = it.read_back(noted.unwrap_or_default())?;
        sys::fs::truncate(&it.part, source.bytes)?;
        if keeps {
            it.new_journal(&known)?;
        }
        Ok(it)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chunk(&self, index: u64) -> Range<u64> {
        index * CHUNK..((index + 1) * CHUNK).min(self.source.bytes)
    }

    fn hash(&self, offset: u64) -> Hash {
        let whole = self.source.bytes <= CHUNK;
        Hash::alone(self.how.digest, HashAs { offset, whole, crc_only: false })
    }

    /// Chunks count as there if they are in the part as the journal has them. Gives those.
    fn read_back(&mut self, noted: Vec<(u64, Digest)>) -> io::Result<Vec<(u64, Digest)>> {
        let mut room = vec![0; if noted.is_empty() { 0 } else { CHUNK as usize }];
        let mut known = Vec::new();
        for (index, digest) in noted {
            let range = self.chunk(index);
            let wanted = (range.end - range.start) as usize;
            if self.lock().there[index as usize] {
                continue;
            }
            let read = sys::fs::read_at_full(&self.part, &mut room[..wanted], range.start)?;
            let mut hash = self.hash(range.start);
            hash.update(&room[..read]);
            if read == wanted && hash.finish().digest == digest {
                let mut state = self.lock();
                state.digest.put(index, digest);
                state.there[index as usize] = true;
                drop(state);
                self.resumed += wanted as u64;
                known.push((index, digest));
            }
        }
        known.sort_unstable_by_key(|it| it.0);
        Ok(known)
    }

    /// The journal anew, with what was found true.
    fn new_journal(&mut self, known: &[(u64, Digest)]) -> io::Result<()> {
        let file = self.base.create_file(&beside(&self.path, "journal"), false, true)?;
        let mut bytes = encode_header(&header(self.source, self.how)).to_vec();
        proto::journal::encode_runs(known, encode_noted, &mut bytes);
        file.write_all_at(&bytes, 0)?;
        self.lock().journal = Some((file, bytes.len() as u64));
        Ok(())
    }

    /// Bytes that an earlier run had brought.
    #[must_use]
    pub fn resumed(&self) -> u64 {
        self.resumed
    }

    /// The digest of all of it, by the algorithm that it was begun with: what came was hashed before it was written, what an earlier run had brought
    /// was read back. `None`: not all of it came.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        match self.source.bytes {
            0 => Some(self.hash(0).finish().digest),
            _ => self.lock().digest.root(),
        }
    }

    /// What came, to be read.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.part
    }

    /// What is missing, in ranges of whole chunks.
    #[must_use]
    pub fn missing(&self) -> Vec<Range<u64>> {
        let state = self.lock();
        let mut all: Vec<Range<u64>> = Vec::new();
        for (index, _) in state.there.iter().enumerate().filter(|(_, there)| !**there) {
            let chunk = self.chunk(index as u64);
            match all.last_mut() {
                Some(last) if last.end == chunk.start => last.end = chunk.end,
                _ => all.push(chunk),
            }
        }
        all
    }

    /// Where bytes of a range go, which begins at a chunk and ends at one or at the file's end.
    #[must_use]
    pub fn stretch(&self, range: Range<u64>) -> Stretch<'_> {
        debug_assert!(range.start.is_multiple_of(CHUNK), "a range begins at a chunk");
        let hash = self.hash(range.start);
        Stretch { of: self, at: range.start, end: range.end.min(self.source.bytes), hash, fresh: Vec::new() }
    }

    /// All of it came: it gets its name. `mtime_s`: its time, if that is to be kept.
    ///
    /// # Errors
    /// InvalidData: not all of it came; the file system's. The part is gone then.
    pub fn publish(mut self, mtime_s: Option<i64>) -> io::Result<Whole> {
        let named = self.name(mtime_s);
        if named.is_err() {
            self.remove();
        } else if self.lock().journal.is_some() {
            let _ = self.base.remove_file(&beside(&self.path, "journal"));
        }
        self.unlock();
        let digest = named?;
        if self.how.durability >= Durability::Published {
            match &self.small {
                Some(small) => small.named_in(folder_of(&self.path)),
                None => self.base.sync(folder_of(&self.path))?,
            }
        }
        Ok(Whole { bytes: self.source.bytes, digest })
    }

    fn name(&self, mtime_s: Option<i64>) -> io::Result<Digest> {
        let digest = self.digest().ok_or(io::ErrorKind::InvalidData)?;
        if self.has_hole.load(Ordering::Relaxed) {
            sys::fs::truncate(&self.part, self.source.bytes)?;
        }
        sys::fs::set_file_meta(&self.part, Some(self.mode), mtime_s.map(|seconds| (seconds, 0)))?;
        // Of a small file the question costs as much as the flush that it spares.
        let is_kept = self.small.is_some() || !sys::fs::is_memory_file_system(&self.part);
        if self.how.durability >= Durability::Flushed && is_kept {
            sync_or_drop(&self.part)?;
        }
        self.base.rename(&self.part_name, &self.path)?;
        Ok(digest)
    }

    /// It was cut: what came stays, if there is a journal that knows of it.
    pub fn leave(mut self) {
        if self.lock().journal.is_none() {
            self.remove();
        }
        self.unlock();
    }

    /// Nothing of it stays.
    pub fn discard(mut self) {
        self.remove();
        self.unlock();
    }

    fn remove(&self) {
        // The journal first: without it a part says nothing.
        if self.small.is_none() {
            let _ = self.base.remove_file(&beside(&self.path, "journal"));
        }
        let _ = self.base.remove_file(&self.part_name);
    }

    fn unlock(&mut self) {
        self.claim.take().into_iter().for_each(|claim| claim.end(&self.base));
    }

    fn note(&self, fresh: &mut Vec<(u64, Digest)>) -> io::Result<()> {
        let mut records = Vec::new();
        proto::journal::encode_runs(fresh, encode_noted, &mut records);
        let mut state = self.lock();
        for (index, digest) in fresh.drain(..) {
            state.digest.put(index, digest);
            state.there[index as usize] = true;
        }
        let Some((journal, end)) = &mut state.journal else { return Ok(()) };
        journal.write_all_at(&records, *end)?;
        *end += records.len() as u64;
        Ok(())
    }
}

/// Permission bits of the file that stands there, if one does.
fn mode_there(base: &Dir, path: &[u8]) -> io::Result<Option<u32>> {
    match base.stat(path) {
        Ok(stat) if stat.kind == Kind::File => Ok(Some(stat.mode)),
        Ok(stat) => Err(io::Error::from_raw_os_error(if stat.kind == Kind::Folder { EISDIR } else { EINVAL })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What makes a journal one of this file.
fn header(source: Source, how: How) -> JournalHeader {
    JournalHeader {
        version: JOURNAL_VERSION,
        bytes: source.bytes,
        mtime_s: source.mtime_s.unwrap_or(0),
        mtime_ns: 0,
        chunk_bytes: CHUNK_BYTES,
        digest: how.digest,
        boot_id_hash: [0; 8],
        durability_written_only: false,
        sparse: false,
    }
}

/// Chunks that an earlier run noted of the same file. `None`: there is none, or it was of another.
fn noted_of(base: &Dir, path: &[u8], wanted: &JournalHeader) -> io::Result<Option<Vec<(u64, Digest)>>> {
    let mut bytes = Vec::new();
    match base.open_file(&beside(path, "journal"), false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        journal => journal?.read_to_end(&mut bytes)?,
    };
    let replay = Replay::parse(&bytes);
    // A file without a time may be another by now.
    if wanted.mtime_s == 0 || replay.header.as_ref() != Some(wanted) {
        return Ok(None);
    }
    let count = chunks_of(wanted.bytes) as u64;
    let mut all = Vec::new();
    for record in replay.noted.iter().chain(&replay.records) {
        all.extend((record.first..count).zip(record.digests.iter().copied()));
    }
    Ok(Some(all))
}

/// A range of a file that one thread fills, in order.
pub struct Stretch<'a> {
    of: &'a Ranged,
    at: u64,
    end: u64,
    hash: Hash,
    /// Whole chunks that the journal has not heard of.
    fresh: Vec<(u64, Digest)>,
}

impl std::fmt::Debug for Stretch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stretch").field("at", &self.at).field("end", &self.end).finish_non_exhaustive()
    }
}

impl Stretch<'_> {
    /// Bytes that are missing.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.end - self.at
    }

    /// Does it end where the file does?
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.end == self.of.source.bytes
    }

    /// Offset in the file of the next byte that it takes.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The next bytes, in at most 1024 runs (IOV_MAX, writev(2)). What is behind its end is not taken: how much that is.
    ///
    /// # Errors
    /// The file system's.
    pub fn put<'a>(&mut self, runs: impl Iterator<Item = &'a [u8]>) -> io::Result<u64> {
        let from = self.at;
        let (mut slices, mut over, mut is_zero) = (Vec::new(), 0, self.of.is_fresh);
        for run in runs {
            let (now, rest) = run.split_at(run.len().min(self.left() as usize));
            over += rest.len() as u64;
            if now.is_empty() {
                continue;
            }
            is_zero = is_zero && is_zeros(now);
            self.hash_run(now);
            slices.push(IoSlice::new(now));
        }
        if !is_zero && !slices.is_empty() {
            sys::fs::write_at_gathered(&self.of.part, &mut slices, from)?;
        } else if self.of.small.is_some() && self.at > from {
            self.of.has_hole.store(true, Ordering::Relaxed);
        }
        // A chunk is noted after it was written.
        if self.fresh.len() >= NOTED_AT_ONCE || self.left() == 0 {
            self.of.note(&mut self.fresh)?;
        }
        Ok(over)
    }

    fn hash_run(&mut self, run: &[u8]) {
        let mut left = run;
        while !left.is_empty() {
            let chunk_end = self.of.chunk(self.at / CHUNK).end;
            let (now, rest) = left.split_at(left.len().min((chunk_end - self.at) as usize));
            self.hash.update(now);
            self.at += now.len() as u64;
            left = rest;
            if self.at == chunk_end {
                // At the file's end nothing follows, and what begins there is no chunk.
                let next = self.of.hash(self.at / CHUNK * CHUNK);
                let done = std::mem::replace(&mut self.hash, next);
                self.fresh.push(((chunk_end - 1) / CHUNK, done.finish().digest));
            }
        }
    }

    /// It was cut: the journal hears of the chunks that came whole.
    pub fn leave(mut self) {
        let _ = self.of.note(&mut self.fresh);
    }
}

fn is_zeros(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<64>();
    words.iter().all(|word| word == &[0; 64]) && rest.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::wire::control::DigestKind;

    const HOW: How = How { durability: Durability::Written, digest: DigestKind::Blake3 };

    fn folder(name: &str) -> (std::path::PathBuf, Dir) {
        let path = std::env::temp_dir().join(format!("longhaul-ranged-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        let dir = Dir::open(path.as_os_str().as_encoded_bytes()).unwrap();
        (path, dir)
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + at / 4093) as u8 | 1).collect()
    }

    #[test]
    fn ranges_that_come_in_any_order_are_one_file_and_nothing_else_stays() {
        let (path, dir) = folder("order");
        for len in [0usize, 1, 1 << 20, (3 << 20) + 5, (9 << 20) + 1] {
            let content = bytes(len);
            let source = Source { bytes: len as u64, mtime_s: Some(1_000_000) };
            let file = Ranged::begin(&dir, b"f", source, None, HOW).unwrap();
            let middle = (len as u64 / 2) / CHUNK * CHUNK;
            for range in [middle..len as u64, 0..middle] {
                let mut stretch = file.stretch(range.clone());
                for run in content[range.start as usize..range.end as usize].chunks(100_003) {
                    assert_eq!(stretch.put(std::iter::once(run)).unwrap(), 0);
                }
                assert_eq!(stretch.put(std::iter::once(&b"more"[..])).unwrap(), 4, "what is behind is not taken");
            }
            assert!(file.missing().is_empty());
            let whole = file.publish(Some(1_000_000)).unwrap();
            assert_eq!(whole.digest, *blake3::hash(&content).as_bytes());
            assert_eq!(std::fs::read(path.join("f")).unwrap(), content);
            assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
        }
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn small_files_have_their_length_also_where_they_end_in_zeros_and_nothing_stays_beside_them() {
        let (path, dir) = folder("small");
        let small = Arc::new(Small::default());
        for len in [0usize, 1, 100_000, (2 << 20) + 5] {
            let mut content = bytes(len);
            content[len / 2..].fill(0);
            let source = Source { bytes: len as u64, mtime_s: Some(1_000_000) };
            let name = format!("f{len}").into_bytes();
            let begin = || Ranged::begin_small((&dir, &small), &name, source, (Some(0o640), false), HOW);
            let file = begin().unwrap();
            assert_eq!(begin().unwrap_err().raw_os_error(), Some(EBUSY), "the same name twice in one copy");
            let mut stretch = file.stretch(0..len as u64);
            for run in content.chunks(30_001) {
                assert_eq!(stretch.put(std::iter::once(run)).unwrap(), 0);
            }
            drop(stretch);
            assert_eq!(file.publish(Some(1_000_000)).unwrap().digest, *blake3::hash(&content).as_bytes());
            assert_eq!(std::fs::read(path.join(format!("f{len}"))).unwrap(), content);
        }
        let cut = Source { bytes: 10, mtime_s: None };
        let file = Ranged::begin_small((&dir, &small), b"cut", cut, (None, true), HOW).unwrap();
        file.stretch(0..10).put(std::iter::once(&b"nine byte"[..])).unwrap();
        assert_eq!(file.publish(None).unwrap_err().kind(), io::ErrorKind::InvalidData);
        small.end(&dir, true).unwrap();
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 4, "the files and nothing else");
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn what_a_killed_copy_left_of_small_files_goes_with_the_next() {
        let (path, dir) = folder("killed");
        let source = Source { bytes: 3, mtime_s: None };
        let killed = Arc::new(Small::default());
        let file = Ranged::begin_small((&dir, &killed), b"f", source, (None, true), HOW).unwrap();
        // As a kill leaves it: its part stays, its lock is gone.
        let part = file.part_name.clone();
        drop((file, killed));
        assert!(dir.stat(&part).is_ok());
        let next = Arc::new(Small::default());
        let file = Ranged::begin_small((&dir, &next), b"f", source, (None, false), HOW).unwrap();
        assert!(dir.stat(&part).is_err(), "what was left is gone");
        file.stretch(0..3).put(std::iter::once(&b"all"[..])).unwrap();
        file.publish(None).unwrap();
        next.end(&dir, true).unwrap();
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn what_was_cut_goes_on_with_what_is_missing_and_believes_no_byte_unread() {
        let (path, dir) = folder("cut");
        let content = bytes(20 << 20);
        let source = Source { bytes: content.len() as u64, mtime_s: Some(5) };
        let file = Ranged::begin(&dir, b"f", source, None, HOW).unwrap();
        let mut stretch = file.stretch(4 << 20..20 << 20);
        stretch.put(content[4 << 20..(9 << 20) + 77].chunks(1 << 20)).unwrap();
        stretch.leave();
        file.leave();
        assert!(!path.join("f").exists());
        // A byte of the part turns.
        let part = path.join(std::ffi::OsStr::new(std::str::from_utf8(&beside(b"f", "part")).unwrap()));
        let handle = std::fs::OpenOptions::new().write(true).open(&part).unwrap();
        handle.write_all_at(&[0], (6 << 20) + 9).unwrap();
        let file = Ranged::begin(&dir, b"f", source, None, HOW).unwrap();
        assert_eq!(file.resumed(), 4 << 20);
        assert_eq!(file.missing(), [0..4 << 20, 6 << 20..7 << 20, 9 << 20..20 << 20]);
        file.leave();
        let other = Source { mtime_s: Some(6), ..source };
        let file = Ranged::begin(&dir, b"f", other, None, HOW).unwrap();
        assert!(matches!(&file.missing()[..], [it] if *it == (0..20 << 20)), "another file: nothing of it is believed");
        assert_eq!(file.publish(None).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
        std::fs::remove_dir_all(path).unwrap();
    }
}
