//! Files as a source: chunks by asynchronous reads, small files by the pack.
//!
//! For: step 3 of a chunk's path: (chunk, empty buf) → filled buf.
//! In and out: assigned chunks and empty bufs in; filled bufs to the rail's feed, failures to the job's end.
//! Invariants: a file that ends early has changed, and is not padded; a file in memory is not read here but piece by piece when it is sealed.
//! Absent on purpose: which chunk gets a buf (the loop), the second look at a file after its last chunk (the job's end asks
//! `SourceTree::is_unchanged`).

use std::io;
use std::sync::Arc;

use proto::manifest::{Entry, EntryId};
use proto::send::{Assignment, Unit};
use proto::wire::control::FaultKind;
use sys::mem::{Buf, HEADROOM, Mem};

use crate::ends::feed::{Feed, Filled};
use crate::ends::open_files::OpenFiles;
use crate::ends::pack::{PackRead, read_pack};
use crate::ends::pieces::{SECTOR, go_on_from, is_again};
use crate::job::{Event, fault_kind};
use crate::platform::{Done, Op, Platform, SourceTree};
use crate::worker::cx::Cx;
use crate::worker::slots::{Kind, Load, Slot};

/// The source of one sending job on one worker.
#[derive(Debug)]
pub(crate) struct FileSource<P: Platform> {
    /// Names and small files.
    pub(crate) tree: Arc<P::Source>,
    open: OpenFiles<P::File>,
}

impl<P: Platform> FileSource<P> {
    pub(crate) fn new(tree: Arc<P::Source>) -> Self {
        FileSource { tree, open: OpenFiles::new() }
    }

    /// These entries are resolved: their files are closed.
    pub(crate) fn forget(&mut self, entries: &[EntryId]) {
        self.open.close(entries);
    }

    /// The file of the range that begins at `offset`, opened or open still.
    pub(crate) fn file(&mut self, entry: &Entry, offset: u64) -> io::Result<P::File> {
        let (volume, striped_over) = if entry.meta.striped {
            let volume = self.tree.join(entry)?.volume_at(offset).ok_or(io::ErrorKind::UnexpectedEof)?;
            (usize::from(volume), Some(self.tree.volumes()))
        } else {
            (usize::from(entry.meta.volume), None)
        };
        self.open.find_or_open(entry.id, volume, striped_over, || self.tree.open(entry, volume))
    }

    /// Fill: the chunk that waits first gets this buf, and a read.
    pub(crate) fn fill(&mut self, feed: &mut Feed<P::File>, cx: &mut Cx<'_, P>, buf: Buf) {
        let chunk = feed.waiting.pop_front().expect("a buf is handed out only to a feed that wants one");
        match chunk.unit {
            Unit::Range { .. } => self.fill_range(feed, cx, chunk, buf),
            Unit::Pack { .. } => self.fill_pack(feed, cx, chunk, buf),
        }
    }

    fn fill_range(&mut self, feed: &mut Feed<P::File>, cx: &mut Cx<'_, P>, chunk: Assignment, buf: Buf) {
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
    fn fill_pack(&mut self, feed: &mut Feed<P::File>, cx: &mut Cx<'_, P>, chunk: Assignment, mut buf: Buf) {
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
