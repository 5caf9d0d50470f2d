//! Files as a source: chunks by asynchronous reads, small files by the pack.
//!
//! For: step 3 of a chunk's path: (chunk, empty buf) → filled buf.
//! In and out: assigned chunks and empty bufs in; filled bufs to the rail's feed, failures to the job's end.
//! Invariants: a file that ends early has changed, and is not padded; a file in memory is not read here but piece by piece when it is sealed.
//! Absent on purpose: which chunk gets a buf (the loop), the second look at a file after its last chunk (the job's end asks
//! `SourceTree::is_unchanged`).

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use proto::books::Stage;
use proto::manifest::{Entry, EntryId};
use proto::send::{Handout, Unit};
use proto::wire::chunk::{PACK_LINE_BYTES, PackLine};
use proto::wire::control::{Digest, DigestKind, FaultKind};
use sys::mem::{Buf, HEADROOM, Mem};

use crate::ends::feed::{Feed, Filled};
use crate::ends::pieces::{SECTOR, go_on_from, is_again};
use crate::job::{EntryError, Event, fault_kind};
use crate::platform::{Done, Op, Platform, SourceTree};
use crate::seal::digest::digest_of;
use crate::worker::cx::Cx;
use crate::worker::slots::{Kind, Load, Slot};
use crate::worker::stages::Stopwatch;

/// Files kept open per job and worker.
const OPEN_MAX: usize = 16;

/// A file that took so long to be opened and read was not in memory: one that is takes 5 µs here, a read of flash 60 µs and more.
const WAITED_NS: u64 = 50_000;

/// The source of one sending job on one worker.
#[derive(Debug)]
pub(crate) struct FileSource<P: Platform> {
    /// Names and small files.
    pub(crate) tree: Arc<P::Source>,
    /// Open files; of one that is striped by chunk, one for each volume.
    open: VecDeque<(EntryId, usize, P::File)>,
}

impl<P: Platform> FileSource<P> {
    pub(crate) fn new(tree: Arc<P::Source>) -> Self {
        FileSource { tree, open: VecDeque::with_capacity(OPEN_MAX) }
    }

    /// These entries are resolved: their files are closed.
    pub(crate) fn forget(&mut self, entries: &[EntryId]) {
        self.open.retain(|(id, ..)| !entries.contains(id));
    }

    /// The file of the range that begins at `offset`, opened or open still.
    pub(crate) fn file(&mut self, entry: &Entry, offset: u64) -> io::Result<P::File> {
        let (volume, most) = if entry.meta.striped {
            let volume = self.tree.join(entry)?.volume_at(offset).ok_or(io::ErrorKind::UnexpectedEof)?;
            (usize::from(volume), OPEN_MAX.max(2 * self.tree.volumes()))
        } else {
            (usize::from(entry.meta.volume), OPEN_MAX)
        };
        if let Some((.., file)) = self.open.iter().find(|(id, on, _)| (*id, *on) == (entry.id, volume)) {
            return Ok(file.clone());
        }
        let file = self.tree.open(entry, volume)?;
        if self.open.len() >= most {
            self.open.pop_front();
        }
        self.open.push_back((entry.id, volume, file.clone()));
        Ok(file)
    }

    /// Fill: the chunk that waits first gets this buf, and a read.
    pub(crate) fn fill(&mut self, feed: &mut Feed<P::File>, cx: &mut Cx<'_, P>, buf: Buf) {
        let chunk = feed.waiting.pop_front().expect("a buf is handed out only to a feed that wants one");
        match chunk.unit {
            Unit::Range { .. } => self.fill_range(feed, cx, chunk, buf),
            Unit::Pack { .. } => self.fill_pack(feed, cx, chunk, buf),
        }
    }

    fn fill_range(&mut self, feed: &mut Feed<P::File>, cx: &mut Cx<'_, P>, chunk: Handout, buf: Buf) {
        let Unit::Range { ref entry, offset, bytes, .. } = chunk.unit else { unreachable!("the caller matched") };
        let file = match self.file(entry, offset) {
            Ok(file) => file,
            Err(error) => {
                cx.give_buf(buf);
                return cx.report_dropped(&chunk, fault_kind(&error, true), &error, "open the source");
            }
        };
        if cx.platform.is_at_once(&file) {
            feed.filled.push_back(Filled { chunk, buf, bytes, files: 1, from: Some(file) });
            return;
        }
        feed.on_read_begins(cx.platform.reads_ahead(&file));
        let len = (bytes as usize).next_multiple_of(SECTOR);
        let (rail, load) = (cx.index, Load::Fill(chunk));
        let slot = Slot { kind: Kind::Read, rail, at: HEADROOM, done: 0, len: bytes as usize, load };
        cx.submit(slot, Op::Read { file, offset, mem: Mem::Buf(buf), at: HEADROOM, len });
    }

    /// A read came back: go on with the rest, or the chunk is filled. `starved`: the rail had nothing to send meanwhile.
    pub(crate) fn on_read(
        &mut self,
        feed: &mut Feed<P::File>,
        cx: &mut Cx<'_, P>,
        mut slot: Slot,
        done: Done,
        starved: bool,
    ) {
        let Load::Fill(chunk) = slot.load else { unreachable!("reads carry chunks") };
        let moved = match done.result {
            Err(error) if is_again(&error) => 0,
            Ok(moved) if moved > 0 => moved,
            short => {
                feed.on_read_over(starved);
                cx.give(done.mem);
                return match short {
                    Ok(_) => cx.report_unreadable(&chunk, &io::ErrorKind::UnexpectedEof.into()),
                    Err(error) => {
                        cx.report_dropped(&chunk, fault_kind(&error, true), &error, "read the source");
                    }
                };
            }
        };
        slot.done = go_on_from(slot.done, slot.done + moved, slot.len);
        let Unit::Range { ref entry, offset, bytes, .. } = chunk.unit else { unreachable!("reads are of ranges") };
        if slot.done < slot.len {
            let Ok(file) = self.file(entry, offset) else {
                feed.on_read_over(starved);
                cx.give(done.mem);
                let error = io::Error::from(io::ErrorKind::NotFound);
                return cx.report_dropped(&chunk, FaultKind::Vanished, &error, "open the source again");
            };
            let (at, offset) = (slot.at + slot.done, offset + slot.done as u64);
            let len = slot.len.next_multiple_of(SECTOR) - slot.done;
            return cx
                .submit(Slot { load: Load::Fill(chunk), ..slot }, Op::Read { file, offset, mem: done.mem, at, len });
        }
        let Mem::Buf(buf) = done.mem else { unreachable!("chunks are read into bufs") };
        feed.on_read_over(starved);
        feed.filled.push_back(Filled { chunk, buf, bytes, files: 1, from: None });
    }

    /// A pack is read at once; files that failed are reported.
    fn fill_pack(&mut self, feed: &mut Feed<P::File>, cx: &mut Cx<'_, P>, chunk: Handout, mut buf: Buf) {
        let Unit::Pack { ref entries } = chunk.unit else { unreachable!("the caller matched") };
        let PackRead { bytes, digests, mut failed } =
            read_pack(&*self.tree, cx.terms.digest, entries, buf.payload_mut(), cx.watch);
        let files = digests.len() as u64;
        let number = chunk.chunk;
        if files == 0 {
            let error = failed.remove(0);
            cx.give_buf(buf);
            cx.events.push(Event::PackRead { chunk: number, digests, failed });
            cx.events.push(Event::Dropped { rail: cx.rail, chunk: number, error });
            return;
        }
        cx.events.push(Event::PackRead { chunk: number, digests, failed });
        feed.filled.push_back(Filled { chunk, buf, bytes: bytes as u32, files, from: None });
    }
}

/// What became of a pack's files.
#[derive(Debug)]
pub(crate) struct PackRead {
    /// Payload, index included.
    pub(crate) bytes: usize,
    digests: Vec<(EntryId, Digest)>,
    failed: Vec<EntryError>,
}

/// Reads the files of a pack one after another, straight behind the index. A file that failed is left out.
pub(crate) fn read_pack<S: SourceTree>(
    tree: &S,
    kind: DigestKind,
    entries: &[Arc<Entry>],
    payload: &mut [u8],
    watch: &mut Stopwatch,
) -> PackRead {
    let mut digests = Vec::with_capacity(entries.len());
    let mut lines = Vec::with_capacity(entries.len());
    let mut failed = Vec::new();
    let index_bytes = entries.len() * PACK_LINE_BYTES;
    let mut end = index_bytes;
    let mut left = entries.iter();
    let mut waited = false;
    while let Some(entry) = left.next() {
        let into = &mut payload[end..end + entry.bytes() as usize];
        let (fault, errno) = match tree.read_small(entry, into) {
            Ok(Some(())) => {
                let ns = watch.lap(Stage::Read);
                if ns > WAITED_NS && !waited {
                    // The disk is given all the others at once, and can take them in its own order. What is in memory costs nothing: one
                    // clock is read as before.
                    waited = true;
                    left.as_slice().iter().for_each(|entry| tree.expect_small(entry));
                    watch.lap(Stage::Read);
                }
                let digest = digest_of(kind, into);
                watch.lap(Stage::Hash);
                digests.push((entry.id, digest));
                lines.push(PackLine { entry: entry.id, bytes: entry.bytes() as u32, digest });
                end += into.len();
                continue;
            }
            Ok(None) => (FaultKind::Torn, 0),
            Err(error) => (fault_kind(&error, true), error.raw_os_error().unwrap_or(0)),
        };
        failed.push(EntryError { entry: entry.id, kind: fault, errno, step: "read the source" });
    }
    // Files that failed left room in the index: close the gap.
    let used = lines.len() * PACK_LINE_BYTES;
    if used < index_bytes {
        payload.copy_within(index_bytes..end, used);
        end -= index_bytes - used;
    }
    for (line, room) in lines.iter().zip(payload.chunks_exact_mut(PACK_LINE_BYTES)) {
        room.copy_from_slice(&line.encode());
    }
    PackRead { bytes: end, digests, failed }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::{Duration, Instant};

    use proto::manifest::{EntryKind, Meta};

    use super::*;
    use crate::worker::stages::Counters;

    thread_local! { static EXPECTED: RefCell<Vec<EntryId>> = const { RefCell::new(Vec::new()) }; }

    /// A disk on which each first read takes long, unless it was told before.
    #[derive(Debug)]
    struct Slow;

    impl SourceTree for Slow {
        type File = ();
        fn open(&self, _: &Entry, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn read_small(&self, entry: &Entry, into: &mut [u8]) -> io::Result<Option<()>> {
            let begun = Instant::now();
            let waits = EXPECTED.with_borrow(|it| !it.contains(&entry.id));
            while waits && begun.elapsed() < Duration::from_nanos(4 * WAITED_NS) {
                std::hint::spin_loop();
            }
            into.fill(entry.id as u8);
            Ok(Some(()))
        }
        fn expect_small(&self, entry: &Entry) {
            EXPECTED.with_borrow_mut(|it| it.push(entry.id));
        }
        fn is_unchanged(&self, _: &Entry) -> io::Result<bool> {
            Ok(true)
        }
    }

    #[test]
    fn where_one_file_of_a_pack_was_waited_for_the_disk_is_told_of_all_others_once() {
        let entry = |id| {
            let (path, kind) = (Box::from(&b"a"[..]), EntryKind::File { bytes: 8 });
            Arc::new(Entry { id, path, kind, mode: 0, mtime_s: 0, mtime_ns: 0, meta: Meta::default() })
        };
        let entries: Vec<Arc<Entry>> = (1..=5).map(entry).collect();
        let mut payload = vec![0; entries.len() * (PACK_LINE_BYTES + 8)];
        let mut watch = Stopwatch::new(Arc::new(Counters::default()));
        let read = read_pack(&Slow, DigestKind::Blake3, &entries, &mut payload, &mut watch);
        assert_eq!(EXPECTED.take(), [2, 3, 4, 5]);
        assert_eq!((read.digests.len(), read.bytes), (5, payload.len()));
        assert_eq!(payload[5 * PACK_LINE_BYTES..].chunks(8).map(|it| it[7]).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    }
}
