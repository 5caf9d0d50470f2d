//! Files as a sink: chunks by asynchronous writes into parts, packs file by file.
//!
//! For: steps 8 and 9 of a chunk's path: header → (file, range) or a breach; plain buf → the file system.
//! In and out: headers and opened chunks in; `Landed`, `PackLanded`, failures out.
//! Invariants: nothing is written for an entry that was not expected; `Landed` is reported only after the last byte was taken.
//! Absent on purpose: durability and names (the committers).

mod beside; // chunks whose source is at hand: read and written here

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use proto::books::Stage;
use proto::error::Breach;
use proto::ledger::chunk_len;
use proto::manifest::{Entry, EntryId};
use proto::wire::chunk::{ChunkKind, Header, PACK_FILE_BYTES_MAX};
use proto::wire::control::{Corrupt, Digest};
use sys::mem::{Buf, HEADROOM, Mem};

use crate::ends::held::{Held, HeldChunks};
use crate::ends::in_place::InPlace;
use crate::ends::open_files::OpenFiles;
use crate::ends::pack::put_pack;
use crate::ends::pieces::{SECTOR, go_on_from, is_again, write_piece};
use crate::job::{Event, Terms};
use crate::platform::{Done, Op, Parts, Platform, SinkTree, VolumeSet};
use crate::seal::hash::{HashAs, Hashed, hash_as};
use crate::tree::commit::JOURNAL_FILE_BYTES_MIN;
use crate::worker::cx::Cx;
use crate::worker::slots::{Kind, Load, Slot};

/// The sink of one receiving job on one worker: what may come, and the open parts.
#[derive(Debug)]
pub(crate) struct FileSink<P: Platform> {
    tree: Arc<P::Sink>,
    expected: HashMap<EntryId, Arc<Entry>>,
    open: OpenFiles<P::File>,
    /// The same parts opened for bytes that are no whole sectors.
    unaligned: OpenFiles<P::File>,
    /// Chunks that are whole, and that no volume wants yet.
    held: HeldChunks,
    /// Where the bufs are.
    node: Option<u16>,
    /// The source, where it is at hand.
    pub(crate) in_place: Option<Box<InPlace<P>>>,
}

/// A part that is written at once.
#[derive(Debug)]
struct AtOnce<F> {
    file: F,
    /// What is missing in it reads as zeros: zeros need not be written.
    sparse: bool,
}

/// What is to become of a chunk whose payload is here and not opened yet.
#[derive(Debug)]
pub(crate) struct Arrival<F> {
    /// What its payload is hashed as.
    pub(crate) how: HashAs,
    /// Its entry is not expected, or no more: it is taken and thrown away.
    unexpected: bool,
    /// Its pieces are written as they are opened.
    into: Option<AtOnce<F>>,
    written: io::Result<()>,
}

impl<F> Arrival<F> {
    /// A piece at `offset` of the file was opened: it is written, if its file is one that is written at once.
    pub(crate) fn drain<P: Platform<File = F>>(&mut self, platform: &P, offset: u64, piece: &[u8]) {
        if let Some(part) = &self.into
            && self.written.is_ok()
            && !(part.sparse && is_zero(piece))
        {
            self.written = write_piece(platform, &part.file, offset, piece);
        }
    }
}

impl<P: Platform> FileSink<P> {
    /// Of a worker on this memory node, if it is held on one.
    pub(crate) fn new(tree: Arc<P::Sink>, node: Option<u16>, in_place: Option<Box<InPlace<P>>>) -> Self {
        FileSink {
            tree,
            expected: HashMap::new(),
            open: OpenFiles::new(),
            unaligned: OpenFiles::new(),
            held: HeldChunks::default(),
            node,
            in_place,
        }
    }

    /// Chunks of these entries may come.
    pub(crate) fn expect(&mut self, entries: Vec<Arc<Entry>>) {
        self.expected.extend(entries.into_iter().map(|entry| (entry.id, entry)));
    }

    /// These will not come any more.
    pub(crate) fn forget(&mut self, entries: &[EntryId]) {
        for id in entries {
            self.expected.remove(id);
        }
        self.open.close(entries);
        self.unaligned.close(entries);
        if let Some(it) = &mut self.in_place {
            it.forget(entries);
        }
    }

    /// The entry, if chunks of it may come.
    pub(crate) fn entry(&self, id: EntryId) -> Option<&Arc<Entry>> {
        self.expected.get(&id)
    }

    /// A header must fit what was announced, before a byte of memory is spent on it.
    pub(crate) fn check(&self, terms: &Terms, header: &Header) -> Result<(), Breach> {
        let chunk_bytes = terms.chunk_bytes;
        if header.payload_bytes > chunk_bytes || header.payload_bytes == 0 {
            return Err(Breach::PayloadTooLong);
        }
        if header.kind == ChunkKind::Pack {
            return Ok(());
        }
        // An entry that is no longer expected may have failed meanwhile: its chunk is taken and thrown away.
        let Some(entry) = self.entry(header.entry) else { return Ok(()) };
        if entry.bytes() <= PACK_FILE_BYTES_MAX {
            return Err(Breach::ChunkUnwanted);
        }
        let index = header.offset / u64::from(chunk_bytes);
        let fits = header.offset.is_multiple_of(u64::from(chunk_bytes))
            && header.offset < entry.bytes()
            && header.payload_bytes == chunk_len(entry.bytes(), chunk_bytes, index);
        if fits { Ok(()) } else { Err(Breach::ChunkOutOfRange) }
    }

    /// The part that a chunk goes into.
    fn file(&mut self, header: &Header) -> io::Result<P::File> {
        let entry = &self.expected[&header.entry];
        let (volume, striped_over) = place_of(&*self.tree, entry, header, self.node);
        self.open.find_or_open(entry.id, volume, striped_over, || self.tree.open_part(volume, entry))
    }

    /// The part for bytes that are no whole sectors. `None`: the entry is not expected.
    pub(crate) fn unaligned_file(&mut self, header: &Header) -> Option<io::Result<P::File>> {
        let entry = self.expected.get(&header.entry)?;
        let (volume, striped_over) = place_of(&*self.tree, entry, header, self.node);
        let open = || self.tree.open_part_loose(volume, entry);
        Some(self.unaligned.find_or_open(entry.id, volume, striped_over, open))
    }

    /// Does what is missing of an entry read as zeros? (In the part of a file with a journal or with holes, if nobody puts chunks that are
    /// not whole into it: such a chunk may go again by another worker, and then what stands there is anything.)
    fn reads_as_zeros(&self, id: EntryId) -> bool {
        let told = self.entry(id).is_some_and(|it| it.bytes() > JOURNAL_FILE_BYTES_MIN || it.tells_holes());
        told && !self.tree.was_loose()
    }

    /// Are chunks held that no volume wants yet?
    pub(crate) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Must this chunk wait for a volume? Whoever takes a turn goes on at once: behind others that wait for one it would only keep it from them.
    fn must_wait(&self, header: &Header) -> bool {
        let is_striped = self.entry(header.entry).is_some_and(|it| it.meta.striped);
        is_striped && (self.holds() || !self.tree.has_turn(header.entry, header.offset))
    }

    /// The first chunk that is held, if a volume wants it now, or if nobody waits for it any more.
    pub(crate) fn next_held(&mut self, now_ns: u64, closing: bool) -> Option<Held> {
        let (tree, expected) = (&self.tree, &self.expected);
        let is_unexpected = |header: &Header| closing || !expected.contains_key(&header.entry);
        self.held.next(now_ns, is_unexpected, |header| tree.has_turn(header.entry, header.offset))
    }

    /// The part of an entry, if it is one that is written at once. A part that cannot be opened is reported by `land_now`.
    fn at_once(&mut self, platform: &P, header: &Header) -> Option<AtOnce<P::File>> {
        if self.must_wait(header) {
            return None;
        }
        let file = self.file(header).ok()?;
        let sparse = self.reads_as_zeros(header.entry);
        platform.is_at_once(&file).then_some(AtOnce { file, sparse })
    }

    /// A payload is here that was checked: how it is to be opened, and where its pieces go.
    pub(crate) fn prepare(&mut self, platform: &P, terms: &Terms, header: &Header) -> Arrival<P::File> {
        let file_bytes = self.entry(header.entry).map_or(0, |entry| entry.bytes());
        let is_range = header.kind == ChunkKind::Range;
        let unexpected = is_range && self.entry(header.entry).is_none();
        let how = if unexpected {
            HashAs { offset: 0, whole: false, crc_only: true }
        } else {
            hash_as(header, file_bytes, terms.chunk_bytes)
        };
        let into = if is_range && !unexpected { self.at_once(platform, header) } else { None };
        Arrival { how, unexpected, into, written: Ok(()) }
    }

    /// A chunk was opened: it lands, or is asked for again. Errors: the peer broke the protocol.
    pub(crate) fn land(
        &mut self,
        cx: &mut Cx<'_, P>,
        arrival: Arrival<P::File>,
        header: Header,
        opened: Result<Hashed, Corrupt>,
        buf: Buf,
    ) -> Result<(), Breach> {
        if let Some(part) = arrival.into {
            land_at_once(cx, &header, opened, arrival.written, &part.file, buf);
            return Ok(());
        }
        if arrival.unexpected {
            cx.report_unexpected(header.chunk, header.entry);
            cx.give_buf(buf);
            return Ok(());
        }
        match (opened, header.kind) {
            (Err(corrupt), kind) => {
                // A pack's header counts files where a range's names one.
                let entry = if kind == ChunkKind::Pack { EntryId::MAX } else { header.entry };
                cx.events.push(Event::Corrupt { chunk: header.chunk, entry, corrupt });
                cx.give_buf(buf);
                Ok(())
            }
            (Ok(hashed), ChunkKind::Range) => {
                if self.must_wait(&header) {
                    cx.slots.hold(cx.index);
                    let held = Held { rail: cx.index, header, digest: hashed.digest, buf, unexpected: false };
                    self.held.push(cx.platform.now_ns(), held);
                } else {
                    self.land_now(cx, header, hashed.digest, buf);
                }
                Ok(())
            }
            (Ok(_), ChunkKind::Pack) => self.land_pack(cx, &header, buf),
        }
    }

    /// A range goes into its part.
    pub(crate) fn land_now(&mut self, cx: &mut Cx<'_, P>, header: Header, digest: Digest, mut buf: Buf) {
        let bytes = header.payload_bytes as usize;
        match self.file(&header) {
            // What is missing in the part of a large file reads as zeros already: a hole stays a hole.
            Ok(_) if self.reads_as_zeros(header.entry) && is_zero(&buf.payload()[..bytes]) => {
                report_landed(cx, &header, digest);
                cx.give_buf(buf);
            }
            Ok(file) => {
                // O_DIRECT writes whole sectors; the tail beyond the file's end is cut off when the part is published.
                let len = bytes.next_multiple_of(SECTOR);
                let (rail, load) = (cx.index, Load::Landing { header, digest });
                let slot = Slot { kind: Kind::Write, rail, at: HEADROOM, done: 0, len, load };
                let offset = header.offset;
                buf.payload_mut()[bytes..len].fill(0);
                cx.submit(slot, Op::Write { file, offset, mem: Mem::Buf(buf), at: HEADROOM, len });
                cx.platform.flush();
                cx.watch.lap(Stage::Write);
            }
            Err(error) => {
                cx.give_buf(buf);
                cx.report_write_failed(&header, &error, "open the part");
            }
        }
    }

    /// A write came back: go on with the rest, or the chunk has landed.
    pub(crate) fn on_written(&mut self, cx: &mut Cx<'_, P>, mut slot: Slot, done: Done) {
        let Load::Landing { header, digest } = slot.load else { unreachable!("writes carry landings") };
        let moved = match done.result {
            Err(error) if is_again(&error) => 0,
            Ok(moved) if moved > 0 => moved,
            short => {
                cx.give(done.mem);
                let error = short.err().unwrap_or_else(|| io::ErrorKind::WriteZero.into());
                return cx.report_write_failed(&header, &error, "write the part");
            }
        };
        slot.done = go_on_from(slot.done, slot.done + moved, slot.len);
        let expected = self.entry(header.entry).is_some();
        if slot.done < slot.len && expected {
            match self.file(&header) {
                Ok(file) => {
                    let (at, offset) = (slot.at + slot.done, header.offset + slot.done as u64);
                    let len = slot.len - slot.done;
                    let slot = Slot { load: Load::Landing { header, digest }, ..slot };
                    cx.submit(slot, Op::Write { file, offset, mem: done.mem, at, len });
                }
                Err(error) => {
                    cx.give(done.mem);
                    cx.report_write_failed(&header, &error, "open the part again");
                }
            }
            return;
        }
        if expected {
            report_landed(cx, &header, digest);
        } else {
            cx.report_unexpected(header.chunk, header.entry);
        }
        cx.give(done.mem);
    }

    /// The files of a pack go into their parts, each checked against its own digest.
    fn land_pack(&self, cx: &mut Cx<'_, P>, header: &Header, buf: Buf) -> Result<(), Breach> {
        let payload = &buf.payload()[..header.payload_bytes as usize];
        let outcome = put_pack(&*self.tree, |id| self.expected.get(&id), cx, header, payload);
        cx.give_buf(buf);
        outcome
    }
}

/// The volume that a chunk goes to, and over how many its file is striped, if it is.
fn place_of<S: SinkTree>(tree: &S, entry: &Entry, header: &Header, node: Option<u16>) -> (usize, Option<usize>) {
    if !entry.meta.striped {
        return (0, None);
    }
    (tree.place(entry, header.offset, header.payload_bytes, node), Some(tree.volumes()))
}

fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<64>();
    words.iter().all(|word| word == &[0; 64]) && rest.iter().all(|&byte| byte == 0)
}

/// Reports that all of a range is in its part.
pub(crate) fn report_landed<P: Platform>(cx: &mut Cx<'_, P>, header: &Header, digest: Digest) {
    let &Header { chunk, entry, offset, payload_bytes, .. } = header;
    cx.events.push(Event::Landed { chunk, entry, offset, bytes: payload_bytes, digest });
}

/// A range was opened and written piece by piece: it has landed, or is taken back.
fn land_at_once<P: Platform>(
    cx: &mut Cx<'_, P>,
    header: &Header,
    opened: Result<Hashed, Corrupt>,
    written: io::Result<()>,
    file: &P::File,
    mut buf: Buf,
) {
    let written = match opened {
        Ok(_) => written,
        // What was written of a corrupt chunk must read as missing again.
        Err(_) => {
            let room = &mut buf.payload_mut()[..header.payload_bytes as usize];
            room.fill(0);
            write_piece(cx.platform, file, header.offset, room)
        }
    };
    cx.give_buf(buf);
    if let Err(error) = written {
        return cx.report_write_failed(header, &error, "write the part");
    }
    match opened {
        Ok(hashed) => report_landed(cx, header, hashed.digest),
        Err(corrupt) => cx.events.push(Event::Corrupt { chunk: header.chunk, entry: header.entry, corrupt }),
    }
}
