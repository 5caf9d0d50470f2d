//! A file whose length is known at its end only: what another protocol's client sends until it stops.
//!
//! For: uploads by FTP.
//! In and out: runs of bytes in order; the file under its name, or a part that a later upload goes on with.
//! Invariants: the name has the file when all of it came and was brought to its durability level, and not before; the part beside it is touched by who
//! holds its lock only (`claims.rs`, so a job of ours and an upload of another protocol never write one part); the journal's chunks are a prefix, and what it
//! calls noted is believed after it was read back only.
//! Absent on purpose: when a stream has come to its end, and when it was cut (`rail::plain` and who calls it).
//!
//! ```text
//! part      0 ─────────── chunks in the journal, flushed ──────── noted ──── rest of a chunk, noted when the stream was cut
//! journal   that of proto::journal; its length is FILE_BYTES_MAX and its time 0: of a file of no length yet
//! ```

pub mod scattered; // the same, of bytes in any order

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use proto::journal::{JOURNAL_VERSION, JournalHeader, Replay, encode_header, encode_noted, encode_record};
use proto::wire::control::{Digest, DigestKind, Durability, FILE_BYTES_MAX};
use sys::fs::{Dir, Kind};

use super::claims::{self, Asked, Claim, EBUSY};
use super::{folder_of, sync_or_drop};
use crate::seal::digest::in_order::InOrder;
use crate::seal::hash::{Hash, HashAs};
use crate::tree::beside;
use crate::tree::commit::{FLUSH_BYTES, NOTE_BYTES};

/// Bytes of a journal's chunk.
pub const CHUNK_BYTES: u32 = 1 << 20;
/// A part that nobody went on with for so long is nobody's.
pub const PART_KEPT: Duration = Duration::from_secs(24 * 3600);
/// A file of nobody's making before: what the umask of most systems leaves of 0666 (`umask(2)`: 022).
const MODE_NEW: u32 = 0o644;
/// Runs of bytes in one call, as a rule: a record of TLS is one of 64 in a MiB.
const RUNS: usize = 64;
/// Of errno(3).
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
/// Flushes that wait for the disk at the same time as more bytes come: with `FLUSH_BYTES` what a power cut can cost.
const FLUSHES_AHEAD: usize = 2;

/// How files are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct How {
    /// What is reached before the file has its name.
    pub durability: Durability,
    /// The digest of its chunks.
    pub digest: DigestKind,
}

/// Where an upload begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// A new file, whatever stands there.
    Start,
    /// After so many bytes of the part, or of the file, that stands there.
    At(u64),
    /// After what stands there.
    End,
}

/// A file that came whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole {
    /// Its bytes.
    pub bytes: u64,
    /// Their digest: that of `b3sum`, or CRC-64/NVME in the first eight bytes.
    pub digest: Digest,
}

/// A journal that two threads append to, and where it ends.
#[derive(Debug)]
struct Journal(Mutex<(File, u64)>);

impl Journal {
    /// The journal under this name, cut to `end`; from 0 it begins anew.
    fn open(base: &Dir, name: &[u8], digest: DigestKind, end: u64) -> io::Result<Journal> {
        let file = base.create_file(name, false, false)?;
        sys::fs::truncate(&file, end)?;
        let journal = Journal(Mutex::new((file, end)));
        if end == 0 {
            journal.append(&encode_header(&header(digest)))?;
        }
        Ok(journal)
    }

    /// Puts records at its end; what could not be put whole is taken back, for nothing after it would be believed.
    fn append(&self, records: &[u8]) -> io::Result<()> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, end) = &mut *held;
        match file.write_all_at(records, *end) {
            Ok(()) => *end += records.len() as u64,
            Err(error) => {
                let _ = sys::fs::truncate(file, *end);
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Chunks in order, and the first one's index.
type Run = (u64, Vec<Digest>);

/// The thread that flushes while more bytes come.
#[derive(Debug)]
struct Flusher {
    to: SyncSender<Run>,
    thread: JoinHandle<io::Result<()>>,
}

/// A file that grows by what is put into it, until it is published, left as a part or discarded.
#[derive(Debug)]
pub struct OpenEnded {
    base: Dir,
    path: Vec<u8>,
    part: Arc<File>,
    /// `None`: it is over.
    claim: Option<Claim>,
    how: How,
    hash: InOrder,
    journal: Option<Arc<Journal>>,
    /// Whole chunks that the journal does not call flushed.
    fresh: Run,
    /// How many of them it calls noted.
    noted: usize,
    flusher: Option<Flusher>,
    /// Of a file system in memory all that is written is as safe as it can be.
    in_memory: bool,
    /// The last bytes were zeros, and stand as a hole that is to be.
    ends_in_hole: bool,
    /// Permission bits of the file.
    mode: u32,
}

/// The bytes of a part that a later upload can go on after, if one stands beside this name and nobody is at it: one less than stand there. A client that
/// was cut when all had come would take a length that is the file's for an upload that is done (`curl -C -`), and the file would never have its name.
///
/// # Errors
/// The file system's.
pub fn standing(base: &Dir, path: &[u8]) -> io::Result<Option<u64>> {
    match base.open_file_to_write(&beside(path, "lock")) {
        Ok(lock) if !sys::fs::try_lock(&lock)? => return Ok(None),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let part = match base.open_file(&beside(path, "part"), false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        part => part?,
    };
    Ok(prefix_of(base, path, &part)?.and_then(|it| it.bytes.checked_sub(1)).filter(|&bytes| bytes > 0))
}

/// What stands of a part.
#[derive(Debug)]
struct Prefix {
    bytes: u64,
    digest: DigestKind,
    /// Of its whole chunks.
    chunks: Vec<Digest>,
    /// Where its journal goes on.
    journal_bytes: u64,
}

/// A file that has no length yet.
fn header(digest: DigestKind) -> JournalHeader {
    JournalHeader {
        version: JOURNAL_VERSION,
        bytes: FILE_BYTES_MAX,
        mtime_s: 0,
        mtime_ns: 0,
        chunk_bytes: CHUNK_BYTES,
        digest,
        boot_id_hash: [0; 8],
        durability_written_only: false,
        sparse: false,
    }
}

/// What of a part can be gone on with. `None`: it is none of a file without a length, or too old.
fn prefix_of(base: &Dir, path: &[u8], part: &File) -> io::Result<Option<Prefix>> {
    let mut bytes = Vec::new();
    match base.open_file(&beside(path, "journal"), false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        journal => journal?.read_to_end(&mut bytes)?,
    };
    let stat = sys::fs::stat_file(part)?;
    let is_old = sys::clock::unix_time().0.saturating_sub(stat.mtime_s) > PART_KEPT.as_secs() as i64;
    let replay = Replay::parse(&bytes);
    let Some(found) = replay.header.filter(|it| !is_old && *it == header(it.digest)) else { return Ok(None) };
    let mut chunks: Vec<Digest> = Vec::new();
    for record in replay.records.iter().filter(|it| it.first <= FILE_BYTES_MAX / u64::from(CHUNK_BYTES)) {
        // Chunks come in order: a record goes on where the one before ended, or says again what came again.
        if record.first <= chunks.len() as u64 {
            chunks.truncate(record.first as usize);
            chunks.extend_from_slice(record.digests);
        }
    }
    chunks.truncate((stat.bytes / u64::from(CHUNK_BYTES)) as usize);
    let journal_bytes = replay.valid_bytes as u64;
    let bytes = chunks.len() as u64 * u64::from(CHUNK_BYTES);
    let mut prefix = Prefix { bytes, digest: found.digest, chunks, journal_bytes };
    let mut noted = BTreeMap::new();
    for record in &replay.noted {
        noted.extend((record.first..).zip(record.digests.iter().copied()));
    }
    prefix.read_back(part, &noted)?;
    Ok(Some(prefix))
}

impl Prefix {
    /// Goes on with chunks that are noted as long as they stand in the part.
    fn read_back(&mut self, part: &File, noted: &BTreeMap<u64, Digest>) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES as usize];
        while let Some(expected) = noted.get(&(self.chunks.len() as u64)) {
            let read = sys::fs::read_at_full(part, &mut chunk, self.bytes)?;
            let mut hash = Hash::alone(self.digest, HashAs { offset: self.bytes, whole: false, crc_only: false });
            hash.update(&chunk[..read]);
            if read == 0 || hash.finish().digest != *expected {
                break;
            }
            self.bytes += read as u64;
            if read < chunk.len() {
                break;
            }
            self.chunks.push(*expected);
        }
        Ok(())
    }
}

impl OpenEnded {
    /// Begins a file, or goes on with one: where it stands then is `bytes`.
    ///
    /// # Errors
    /// EBUSY: another job or upload is at it; InvalidInput: so many bytes stand nowhere; EISDIR, EINVAL: the name is that of no file; the file system's.
    pub fn begin(base: &Dir, path: &[u8], from: From, how: How) -> io::Result<OpenEnded> {
        let Asked::Ours(claim) = claims::ask(base, &beside(path, "lock"), false)? else {
            return Err(io::Error::from_raw_os_error(EBUSY));
        };
        match OpenEnded::open(base, path, from, how) {
            Ok(it) => Ok(OpenEnded { claim: Some(claim), ..it }),
            Err(error) => {
                claim.end(base);
                Err(error)
            }
        }
    }

    fn open(base: &Dir, path: &[u8], from: From, how: How) -> io::Result<OpenEnded> {
        let there = match base.stat(path) {
            Ok(stat) if stat.kind == Kind::File => Some(stat),
            Ok(stat) => {
                return Err(io::Error::from_raw_os_error(if stat.kind == Kind::Folder { EISDIR } else { EINVAL }));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let part = if from == From::Start { None } else { base.open_file_to_write(&beside(path, "part")).ok() };
        let prefix = match &part {
            Some(part) => prefix_of(base, path, part)?,
            None => None,
        };
        let (of_file, of_part) = (there.map(|it| it.bytes), prefix.as_ref().map(|it| it.bytes));
        let at = match from {
            From::Start => 0,
            From::At(at) => at,
            From::End => of_file.or(of_part).unwrap_or(0),
        };
        let mode = there.map_or(MODE_NEW, |it| it.mode);
        let fits = of_part.is_some_and(|it| at <= it && it <= at + 1) || of_file.is_none_or(|bytes| bytes < at);
        let mut it = match (part, prefix) {
            (Some(part), Some(prefix)) if at > 0 && prefix.bytes >= at && fits => {
                let mut it = OpenEnded::on(base, path, part, how, mode);
                it.go_on(prefix, at)?;
                it
            }
            _ if of_file.unwrap_or(0) < at => return Err(io::ErrorKind::InvalidInput.into()),
            _ => {
                let _ = base.remove_file(&beside(path, "journal"));
                let part = base.create_file(&beside(path, "part"), false, true)?;
                if at > 0 {
                    sys::fs::copy_range(&base.open_file(path, false)?, &part, 0, at)?;
                }
                let mut it = OpenEnded::on(base, path, part, how, mode);
                it.hash_again(at)?;
                it
            }
        };
        it.in_memory = sys::fs::is_memory_file_system(&it.part);
        Ok(it)
    }

    fn on(base: &Dir, path: &[u8], part: File, how: How, mode: u32) -> OpenEnded {
        OpenEnded {
            base: base.clone(),
            path: path.to_vec(),
            part: Arc::new(part),
            claim: None,
            how,
            hash: InOrder::new(how.digest, CHUNK_BYTES),
            journal: None,
            fresh: (0, Vec::new()),
            noted: 0,
            flusher: None,
            in_memory: false,
            ends_in_hole: false,
            mode,
        }
    }

    /// Takes the part that stands up to `at`.
    fn go_on(&mut self, prefix: Prefix, at: u64) -> io::Result<()> {
        sys::fs::truncate(&self.part, at)?;
        if prefix.digest != self.how.digest {
            return self.hash_again(at);
        }
        // The last chunk is read anew: with nothing behind it it may be the whole file.
        let kept = (at.saturating_sub(1) / u64::from(CHUNK_BYTES)) as usize;
        prefix.chunks[..kept].iter().for_each(|chunk| self.hash.skip(chunk));
        self.fresh.0 = kept as u64;
        self.hash_again(at)?;
        let end = if at == prefix.bytes { prefix.journal_bytes } else { 0 };
        let journal = Journal::open(&self.base, &beside(&self.path, "journal"), self.how.digest, end)?;
        if end == 0 {
            let mut records = Vec::new();
            encode_record(0, &prefix.chunks[..kept], &mut records);
            journal.append(&records)?;
        }
        self.journal = Some(Arc::new(journal));
        Ok(())
    }

    /// Hashes what stands in the part from where the digest is to `end`.
    fn hash_again(&mut self, end: u64) -> io::Result<()> {
        let mut chunk = vec![0; if self.hash.bytes() < end { CHUNK_BYTES as usize } else { 0 }];
        while self.hash.bytes() < end {
            let wanted = chunk.len().min((end - self.hash.bytes()) as usize);
            let read = sys::fs::read_at_full(&self.part, &mut chunk[..wanted], self.hash.bytes())?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.hash.update(&chunk[..read], |_, digest| self.fresh.1.push(digest));
        }
        Ok(())
    }

    /// Bytes that stand so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.hash.bytes()
    }

    /// The next bytes, in several runs: at most 1024 (IOV_MAX, writev(2)).
    ///
    /// # Errors
    /// The file system's; what stands is what stood before, or a part of the new bytes more.
    pub fn put<'a>(&mut self, runs: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
        let offset = self.hash.bytes();
        let mut slices = Vec::with_capacity(RUNS);
        let mut is_zero = true;
        for run in runs {
            self.hash.update(run, |_, digest| self.fresh.1.push(digest));
            is_zero = is_zero && is_zeros(run);
            slices.push(IoSlice::new(run));
        }
        // Behind the part's end there are zeros already: a hole stays a hole.
        self.ends_in_hole = is_zero && offset > 0;
        if !self.ends_in_hole {
            sys::fs::write_at_gathered(&self.part, &mut slices, offset)?;
        }
        self.note_many()
    }

    fn note_many(&mut self) -> io::Result<()> {
        if (self.fresh.1.len() - self.noted) as u64 * u64::from(CHUNK_BYTES) >= NOTE_BYTES {
            self.note()?;
        }
        Ok(())
    }

    fn journal(&mut self) -> io::Result<Arc<Journal>> {
        if let Some(journal) = &self.journal {
            return Ok(Arc::clone(journal));
        }
        let journal = Journal::open(&self.base, &beside(&self.path, "journal"), self.how.digest, 0)?;
        Ok(Arc::clone(self.journal.insert(Arc::new(journal))))
    }

    /// The journal hears of the chunks that came; those that are many enough go to the disk.
    fn note(&mut self) -> io::Result<()> {
        let journal = self.journal()?;
        let mut records = Vec::new();
        if self.in_memory {
            encode_record(self.fresh.0, &self.fresh.1, &mut records);
            self.next_run();
            return journal.append(&records);
        }
        encode_noted(self.fresh.0 + self.noted as u64, &self.fresh.1[self.noted..], &mut records);
        journal.append(&records)?;
        self.noted = self.fresh.1.len();
        if self.noted as u64 * u64::from(CHUNK_BYTES) >= FLUSH_BYTES {
            let run = self.next_run();
            if self.how.durability >= Durability::Flushed {
                self.flush(run, &journal)?;
            }
        }
        Ok(())
    }

    fn next_run(&mut self) -> Run {
        let next = self.fresh.0 + self.fresh.1.len() as u64;
        self.noted = 0;
        std::mem::replace(&mut self.fresh, (next, Vec::new()))
    }

    /// Hands a run to the thread that flushes; waits where the disk is so far behind.
    fn flush(&mut self, run: Run, journal: &Arc<Journal>) -> io::Result<()> {
        if self.flusher.is_none() {
            let (to, from) = sync_channel::<Run>(FLUSHES_AHEAD);
            let (part, journal) = (Arc::clone(&self.part), Arc::clone(journal));
            let thread = std::thread::Builder::new().name("ftp-flush".to_owned()).spawn(move || {
                for (first, digests) in from {
                    sync_or_drop(&part)?;
                    let mut records = Vec::new();
                    encode_record(first, &digests, &mut records);
                    journal.append(&records)?;
                }
                Ok(())
            })?;
            self.flusher = Some(Flusher { to, thread });
        }
        match self.flusher.as_ref().map(|it| it.to.send(run)) {
            // It ended, which it does after an error only.
            Some(Err(_)) => self.flushed(),
            _ => Ok(()),
        }
    }

    /// Waits until all flushes that were asked for are done.
    fn flushed(&mut self) -> io::Result<()> {
        let Some(Flusher { to, thread }) = self.flusher.take() else { return Ok(()) };
        drop(to);
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the flushing thread panicked")))
    }

    fn end_hole(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.ends_in_hole) { sys::fs::truncate(&self.part, self.hash.bytes()) } else { Ok(()) }
    }

    /// All of it came: it gets its name.
    ///
    /// # Errors
    /// The file system's; the part is gone then.
    pub fn publish(self) -> io::Result<Whole> {
        self.publish_seen(|_| ())
    }

    /// As `publish`; `before` sees the file, which nobody has open for writing any more, when it is whole and has no name yet. It is not called where
    /// the file cannot be opened once more.
    ///
    /// # Errors
    /// As of `publish`.
    pub fn publish_seen(mut self, before: impl FnOnce(&File)) -> io::Result<Whole> {
        let published = self.name(before);
        if published.is_err() {
            self.remove();
        }
        let _ = self.base.remove_file(&beside(&self.path, "journal"));
        self.unlock();
        published?;
        if self.how.durability >= Durability::Published {
            self.base.sync(folder_of(&self.path))?;
        }
        let bytes = self.hash.bytes();
        Ok(Whole { bytes, digest: self.hash.finish() })
    }

    fn name(&mut self, before: impl FnOnce(&File)) -> io::Result<()> {
        self.end_hole()?;
        self.flushed()?;
        sys::fs::set_file_meta(&self.part, Some(self.mode), None)?;
        if self.how.durability >= Durability::Flushed && !self.in_memory {
            sync_or_drop(&self.part)?;
        }
        if let Ok(whole) = self.base.open_file(&beside(&self.path, "part"), false) {
            self.part = Arc::new(whole);
            before(&self.part);
        }
        self.base.rename(&beside(&self.path, "part"), &self.path)
    }

    /// The stream was cut: what came stays, for an upload that goes on with it. Returns its bytes.
    ///
    /// # Errors
    /// The file system's; then less of it stays, or nothing.
    pub fn leave(mut self) -> io::Result<u64> {
        let bytes = self.hash.bytes();
        if bytes == 0 {
            self.discard();
            return Ok(0);
        }
        let kept = self.keep();
        self.unlock();
        kept.map(|()| bytes)
    }

    fn keep(&mut self) -> io::Result<()> {
        self.end_hole()?;
        self.flushed()?;
        if self.how.durability >= Durability::Flushed && !self.in_memory {
            sync_or_drop(&self.part)?;
        }
        let mut records = Vec::new();
        encode_record(self.fresh.0, &self.fresh.1, &mut records);
        if let Some((index, digest)) = self.hash.rest() {
            encode_noted(index, &[digest], &mut records);
        }
        self.journal()?.append(&records)
    }

    /// Nothing of it stays.
    pub fn discard(mut self) {
        let _ = self.flushed();
        self.remove();
        self.unlock();
    }

    fn remove(&self) {
        // The journal first: without it a part says nothing.
        let _ = self.base.remove_file(&beside(&self.path, "journal"));
        let _ = self.base.remove_file(&beside(&self.path, "part"));
    }

    fn unlock(&mut self) {
        self.claim.take().into_iter().for_each(|claim| claim.end(&self.base));
    }
}

/// Takes away what an upload left beside this name, unless one is at it.
///
/// # Errors
/// The file system's.
pub fn forget(base: &Dir, path: &[u8]) -> io::Result<()> {
    if let Asked::Ours(claim) = claims::ask(base, &beside(path, "lock"), false)? {
        for ending in ["journal", "part"] {
            let _ = base.remove_file(&beside(path, ending));
        }
        claim.end(base);
    }
    Ok(())
}

fn is_zeros(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<64>();
    words.iter().all(|word| word == &[0; 64]) && rest.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests;
