//! Each entry of a receipt against the disk, over all cores.
//!
//! For: `longhaul verify`.
//! In and out: the receipt's entries and a folder → what differs, as it is found.
//! Invariants: names are resolved beneath the folder and through no link; big files are shared by all workers, on a set by the threads of
//!   the volumes that have them; memory is 1 MiB for each of these, and queues of bounded length.
//! Absent on purpose: reading from the page cache where the kernel lets go of it: the disk is to be checked, not memory.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use blake3::hazmat::HasherExt;
use crc_fast::CrcAlgorithm;
use engine::machine::recv::JOURNAL_FILE_BYTES_MIN;
use engine::seal::digest::crc_digest;
use engine::tree::source::joined::Joined;
use proto::manifest::{Aspects, EntryKind, NodeKind};
use proto::receipt::{EntryLine, put_digest};
use proto::striped::Whole;
use proto::wire::control::{Digest, DigestKind};
use rustix::io::Errno;
use sys::fs::{Dir, Kind, Stat};

use super::Place;
use super::by_volume::{Feed, Feeder, Spread, feeds};
use super::content::{Big, Content};
use super::receipt::Paper;
use crate::report::show_path;
use text::exit::Failure;

/// One read: big enough for a disk to stream, small enough to stay in the L2 cache while it is hashed.
const READ_BYTES: usize = 1 << 20;
/// Files above this are cut into segments of this size, a power of two as BLAKE3's tree wants it.
const SEGMENT_BYTES: u32 = 64 << 20;
/// Entries waiting per worker: enough that none starves while a folder is opened.
const QUEUE_PER_WORKER: usize = 16;

/// What differs.
#[derive(Debug)]
pub enum Found {
    /// Nothing stands at the path.
    Missing,
    /// Something else stands there.
    Kind { expected: &'static str, found: &'static str },
    /// Another length, bytes.
    Size { expected: u64, found: u64 },
    /// Same length, other contents.
    Digest { kind: DigestKind, expected: Digest, found: Digest },
    /// The link points elsewhere.
    Target { expected: Vec<u8>, found: Vec<u8> },
    /// Same contents, other permission bits or time.
    Metadata { expected: String, found: String },
    /// It cannot be looked at or read.
    Unreadable(io::Error),
}

impl Found {
    /// In one word, for JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Kind { .. } => "kind",
            Self::Size { .. } => "size",
            Self::Digest { .. } => "digest",
            Self::Target { .. } => "target",
            Self::Metadata { .. } => "metadata",
            Self::Unreadable(_) => "unreadable",
        }
    }

    /// What the receipt says, and what the disk.
    pub fn sides(&self) -> (Option<String>, Option<String>) {
        match self {
            Self::Missing => (None, None),
            Self::Kind { expected, found } => (Some((*expected).to_owned()), Some((*found).to_owned())),
            Self::Size { expected, found } => (Some(expected.to_string()), Some(found.to_string())),
            Self::Digest { kind, expected, found } => {
                (Some(digest_text(expected, *kind)), Some(digest_text(found, *kind)))
            }
            Self::Target { expected, found } => (Some(show_path(expected)), Some(show_path(found))),
            Self::Metadata { expected, found } => (Some(expected.clone()), Some(found.clone())),
            Self::Unreadable(error) => (None, Some(error.to_string())),
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (expected, found) = self.sides();
        let (expected, found) = (expected.unwrap_or_default(), found.unwrap_or_default());
        match self {
            Self::Missing => write!(out, "MISSING"),
            Self::Kind { .. } => write!(out, "DIFFERS: it is {found}, the receipt says {expected}"),
            Self::Size { .. } => write!(out, "DIFFERS: it is {found} B long, the receipt says {expected} B"),
            Self::Digest { .. } => {
                write!(out, "DIFFERS: same length, but its digest is {found}, the receipt says {expected}")
            }
            Self::Target { .. } => write!(out, "DIFFERS: it points to {found}, the receipt says {expected}"),
            Self::Metadata { .. } => write!(out, "note: same contents, but {found}, the receipt says {expected}"),
            Self::Unreadable(_) => write!(out, "UNREADABLE: {found}"),
        }
    }
}

fn digest_text(digest: &Digest, kind: DigestKind) -> String {
    let mut text = Vec::with_capacity(64);
    put_digest(&mut text, digest, kind);
    String::from_utf8(text).expect("hex digits are ASCII")
}

/// How far it is; written by workers, read by the screen.
#[derive(Debug, Default)]
pub struct Tally {
    files: AtomicU64,
    bytes: AtomicU64,
    others: AtomicU64,
    without_digest: AtomicU64,
}

impl Tally {
    /// A file was looked at.
    pub(crate) fn file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    /// So many bytes were read.
    pub(crate) fn read(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A folder or a link was looked at.
    pub(crate) fn other(&self) {
        self.others.fetch_add(1, Ordering::Relaxed);
    }

    /// Of a file the size was compared alone.
    pub(crate) fn undigested(&self) {
        self.without_digest.fetch_add(1, Ordering::Relaxed);
    }

    /// Files looked at, and bytes read.
    pub fn so_far(&self) -> (u64, u64) {
        (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Folders and links looked at.
    pub fn others(&self) -> u64 {
        self.others.load(Ordering::Relaxed)
    }

    /// Files of which the receipt knows the size only.
    pub fn without_digest(&self) -> u64 {
        self.without_digest.load(Ordering::Relaxed)
    }
}

/// What a worker takes.
enum Work {
    Entry(Box<EntryLine>),
    Segment(Arc<Big>, u64),
}

/// What every worker sees.
struct Floor<'a> {
    place: &'a Place,
    tally: &'a Tally,
    queue: Mutex<Receiver<Work>>,
}

/// Where the receipt's reader puts what is to be looked at.
struct Tables {
    workers: SyncSender<Work>,
    /// Of a set.
    volumes: Option<Feeder>,
}

/// Checks every entry. `tick` is called on this thread for each finding, and every `look_every` without one.
///
/// # Errors
/// The receipt cannot be read any more.
pub fn check(
    paper: &mut Paper,
    place: &Place,
    workers: usize,
    tally: &Tally,
    look_every: Duration,
    mut tick: impl FnMut(Option<(Vec<u8>, Found)>),
) -> Result<(), Failure> {
    let (give, queue) = sync_channel::<Work>(workers * QUEUE_PER_WORKER);
    let (tell, findings) = channel();
    let floor = Floor { place, tally, queue: Mutex::new(queue) };
    let (volumes, readers) = match place {
        Place::Folder { volumes, .. } if volumes.len() > 1 => feeds(volumes.len(), workers),
        _ => feeds(0, workers),
    };
    let give = Tables { workers: give, volumes };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let (floor, tell) = (&floor, tell.clone());
            scope.spawn(move || floor.work(&tell));
        }
        for (volume, feed) in readers {
            let (floor, tell) = (&floor, tell.clone());
            scope.spawn(move || floor.read_volume(volume, &feed, &tell));
        }
        let floor = &floor;
        let reader = scope.spawn(move || paper.entries(|line| floor.hand_out(line, &give, &tell)));
        loop {
            match findings.recv_timeout(look_every) {
                Ok(finding) => tick(Some(finding)),
                Err(RecvTimeoutError::Timeout) => tick(None),
                // The reader and all workers have dropped their ends.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

type Tell = Sender<(Vec<u8>, Found)>;

impl Floor<'_> {
    /// On the reader's thread: an entry into the queue, a big file as its segments, on a set to the volumes that have it. False: nobody
    /// takes any more.
    fn hand_out(&self, line: Box<EntryLine>, give: &Tables, tell: &Tell) -> bool {
        if let Place::One { entry, .. } = self.place
            && (line.entry.path[..] != entry[..] || !line.entry.is_file())
        {
            return true;
        }
        let least = give.volumes.as_ref().map_or(u64::from(SEGMENT_BYTES), |_| JOURNAL_FILE_BYTES_MIN);
        let Some(expected) = line.digest.filter(|_| line.entry.bytes() > least) else {
            return give.workers.send(Work::Entry(line)).is_ok();
        };
        let content = match self.open(&line) {
            Ok(content) => content,
            Err(found) => {
                self.tally.files.fetch_add(1, Ordering::Relaxed);
                let _ = tell.send((line.entry.path.to_vec(), found));
                return true;
            }
        };
        let Some(feeder) = &give.volumes else {
            let big = Arc::new(Big::new(content, line, expected, SEGMENT_BYTES));
            return (0..big.parts()).all(|index| give.workers.send(Work::Segment(Arc::clone(&big), index)).is_ok());
        };
        let part_bytes = content.joined.as_ref().map_or(READ_BYTES as u32, Joined::chunk_bytes);
        let spread = Spread::new(Big::new(content, line, expected, part_bytes), feeder.volumes());
        feeder.give(&Arc::new(spread))
    }

    /// The whole life of a thread that reads one volume of a set.
    fn read_volume(&self, volume: usize, feed: &Feed, tell: &Tell) {
        let mut buffer = vec![0; READ_BYTES];
        while let Ok(spread) = feed.recv() {
            while let Some(index) = spread.take(volume) {
                self.part(&spread.big, index, &mut buffer, tell);
            }
        }
    }

    /// A worker's whole life.
    fn work(&self, tell: &Tell) {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            // The lock is held while waiting: the others wait for the lock instead, which is the same.
            let work = self.queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
            match work {
                Ok(Work::Entry(line)) => {
                    if let Err(found) = self.entry(&line, &mut buffer, tell) {
                        let _ = tell.send((line.entry.path.to_vec(), found));
                    }
                }
                Ok(Work::Segment(big, index)) => self.part(&big, index, &mut buffer, tell),
                Err(_) => return,
            }
        }
    }

    fn entry(&self, line: &EntryLine, buffer: &mut [u8], tell: &Tell) -> Result<(), Found> {
        let (folder, name) = self.locate(&line.entry.path);
        match &line.entry.kind {
            EntryKind::File { bytes } => {
                self.tally.files.fetch_add(1, Ordering::Relaxed);
                let content = self.open(line)?;
                let Some((kind, expected)) = line.digest else {
                    self.tally.without_digest.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                };
                let mut hash = Hash::new(kind, 0);
                self.read(&content, 0, *bytes, buffer, |part| hash.update(part)).map_err(Found::Unreadable)?;
                let found = hash.finish_whole();
                if found != expected {
                    return Err(Found::Digest { kind, expected, found });
                }
                self.metadata(line, &content.file, tell);
                Ok(())
            }
            EntryKind::Folder | EntryKind::FolderEnd => {
                self.tally.others.fetch_add(1, Ordering::Relaxed);
                expect_kind(&stat(folder, name)?, Kind::Folder)
            }
            EntryKind::Link { target } => {
                self.tally.others.fetch_add(1, Ordering::Relaxed);
                expect_kind(&stat(folder, name)?, Kind::Link)?;
                let found = folder.read_link(name).map_err(Found::Unreadable)?;
                if found[..] == target[..] { Ok(()) } else { Err(Found::Target { expected: target.to_vec(), found }) }
            }
            EntryKind::Node { kind, major, minor } => {
                self.tally.others.fetch_add(1, Ordering::Relaxed);
                let facts = stat(folder, name)?;
                let expected = match kind {
                    NodeKind::Fifo => Kind::Fifo,
                    NodeKind::Socket => Kind::Socket,
                    NodeKind::Char => Kind::Char,
                    NodeKind::Block => Kind::Block,
                };
                expect_kind(&facts, expected)?;
                let text = |major, minor| format!("device {major}:{minor}");
                if kind.aspect() != Aspects::DEVICES || (facts.major, facts.minor) == (*major, *minor) {
                    return Ok(());
                }
                Err(Found::Metadata { expected: text(*major, *minor), found: text(facts.major, facts.minor) })
            }
            EntryKind::Name { first } => {
                self.tally.others.fetch_add(1, Ordering::Relaxed);
                let (first_folder, first_name) = self.locate(first);
                let (one, other) = (stat(first_folder, first_name)?, stat(folder, name)?);
                if (one.dev, one.ino) == (other.dev, other.ino) {
                    return Ok(());
                }
                let expected = format!("one file with {}", show_path(first));
                Err(Found::Metadata { expected, found: "another file".to_owned() })
            }
        }
    }

    fn part(&self, big: &Big, index: u64, buffer: &mut [u8], tell: &Tell) {
        let offset = index * u64::from(big.part_bytes);
        let len = (big.line.entry.bytes() - offset).min(big.part_bytes.into());
        let mut hash = Hash::new(big.kind, offset);
        match self.read(&big.content, offset, len, buffer, |part| hash.update(part)) {
            Ok(()) => big.tree.lock().unwrap_or_else(PoisonError::into_inner).put(index, hash.finish_part()),
            Err(error) => {
                if !big.told.swap(true, Ordering::Relaxed) {
                    let _ = tell.send((big.line.entry.path.to_vec(), Found::Unreadable(error)));
                }
            }
        }
        if big.parts_left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        self.tally.files.fetch_add(1, Ordering::Relaxed);
        let root = big.tree.lock().unwrap_or_else(PoisonError::into_inner).root();
        match root {
            Some(found) if found != big.expected => {
                let found = Found::Digest { kind: big.kind, expected: big.expected, found };
                let _ = tell.send((big.line.entry.path.to_vec(), found));
            }
            Some(_) => self.metadata(&big.line, &big.content.file, tell),
            None => {}
        }
    }

    /// Opens a file whose kind and length are those of the receipt.
    fn open(&self, line: &EntryLine) -> Result<Content, Found> {
        let (folder, name, home) = self.find(&line.entry.path);
        let facts = stat(folder, name)?;
        expect_kind(&facts, Kind::File)?;
        if facts.bytes != line.entry.bytes() {
            return Err(Found::Size { expected: line.entry.bytes(), found: facts.bytes });
        }
        let file = folder.open_file(name, false).map_err(Found::Unreadable)?;
        let volumes = match self.place {
            Place::Folder { volumes, .. } => volumes,
            Place::One { folder, .. } => std::slice::from_ref(folder),
        };
        let whole = Whole { bytes: facts.bytes, mtime_s: facts.mtime_s, mtime_ns: facts.mtime_ns };
        let is_striped = facts.bytes > JOURNAL_FILE_BYTES_MIN;
        let joined = if is_striped { Joined::open(volumes, name, whole).map_err(Found::Unreadable)? } else { None };
        Ok(Content { file, home, joined })
    }

    fn locate<'a>(&'a self, path: &'a [u8]) -> (&'a Dir, &'a [u8]) {
        let (folder, name, _) = self.find(path);
        (folder, name)
    }

    /// Folder and name of an entry, and the volume.
    fn find<'a>(&'a self, path: &'a [u8]) -> (&'a Dir, &'a [u8], usize) {
        match self.place {
            Place::Folder { volumes, strip } => {
                let name = path.get(*strip..).unwrap_or_default();
                // A file stands on one of them; what stands on none is missing on each.
                let holder = volumes.iter().position(|volume| volumes.len() > 1 && volume.stat(name).is_ok());
                let home = holder.unwrap_or(0);
                (&volumes[home], name, home)
            }
            Place::One { folder, name, .. } => (folder, name, 0),
        }
    }

    /// Reads a range from the disk. A file that ends early was cut after it was opened: that is an error here.
    fn read(
        &self,
        content: &Content,
        offset: u64,
        len: u64,
        buffer: &mut [u8],
        mut take: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        content.drop_cache(offset, len);
        let mut done = 0;
        while done < len {
            let want = usize::try_from(len - done).unwrap_or(usize::MAX).min(buffer.len());
            let got = content.read_at(&mut buffer[..want], offset + done)?;
            take(&buffer[..got]);
            self.tally.bytes.fetch_add(got as u64, Ordering::Relaxed);
            if got < want {
                return Err(io::Error::other("it became shorter while it was read"));
            }
            done += got as u64;
        }
        // Whoever uses this host keeps the cache that is worth something to them.
        content.drop_cache(offset, len);
        Ok(())
    }

    fn metadata(&self, line: &EntryLine, file: &File, tell: &Tell) {
        let Ok(facts) = sys::fs::stat_file(file) else { return };
        let entry = &line.entry;
        let (expected, found) =
            ((entry.mode, entry.mtime_s, entry.mtime_ns), (facts.mode, facts.mtime_s, facts.mtime_ns));
        if expected != found {
            let text = |(mode, s, ns): (u32, i64, u32)| format!("mode {mode:o}, time {s}.{ns:09}");
            let found = Found::Metadata { expected: text(expected), found: text(found) };
            let _ = tell.send((entry.path.to_vec(), found));
        }
    }
}

fn stat(folder: &Dir, name: &[u8]) -> Result<Stat, Found> {
    folder.stat(name).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => Found::Missing,
        // A link or a file where a folder of the path should be.
        Some(Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
            Found::Kind { expected: "below a folder", found: "below a link or a file" }
        }
        _ => Found::Unreadable(error),
    })
}

fn expect_kind(facts: &Stat, expected: Kind) -> Result<(), Found> {
    let word = |kind: Kind| match kind {
        Kind::File => "a file",
        Kind::Folder => "a folder",
        Kind::Link => "a link",
        Kind::Fifo => "a FIFO",
        Kind::Socket => "a socket",
        Kind::Char | Kind::Block => "a device",
        Kind::Other => "nothing this version knows",
    };
    if facts.kind == expected { Ok(()) } else { Err(Found::Kind { expected: word(expected), found: word(facts.kind) }) }
}

/// The digest of a file or of a part of one.
#[expect(
    clippy::large_enum_variant,
    reason = "one per worker at a time, on its stack; a box would cost a call per file"
)]
pub(crate) enum Hash {
    Blake3(Box<blake3::Hasher>),
    Crc64(crc_fast::Digest),
}

impl Hash {
    pub(crate) fn new(kind: DigestKind, offset: u64) -> Self {
        match kind {
            DigestKind::Blake3 => {
                let mut hasher = Box::new(blake3::Hasher::new());
                if offset > 0 {
                    hasher.set_input_offset(offset);
                }
                Self::Blake3(hasher)
            }
            DigestKind::Crc64 => Self::Crc64(crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme)),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Blake3(hasher) => drop(hasher.update(bytes)),
            Self::Crc64(crc) => crc.update(bytes),
        }
    }

    /// All of a file.
    pub(crate) fn finish_whole(self) -> Digest {
        match self {
            Self::Blake3(hasher) => *hasher.finalize().as_bytes(),
            Self::Crc64(crc) => crc_digest(crc.finalize()),
        }
    }

    /// A segment of a file that has more than one.
    fn finish_part(self) -> Digest {
        match self {
            Self::Blake3(hasher) => hasher.finalize_non_root(),
            Self::Crc64(crc) => crc_digest(crc.finalize()),
        }
    }
}
