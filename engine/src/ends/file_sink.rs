//! Files as a sink: chunks by asynchronous writes into parts, packs file by file.
//!
//! For: step 9 of a chunk's path: plain buf → the file system.
//! In and out: opened chunks in; `Landed`, `PackLanded`, failures out.
//! Invariants: nothing is written for an entry that was not expected; `Landed` is told only after the last byte was taken.
//! Absent on purpose: durability and names (commit.rs).

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use proto::books::Stage;
use proto::error::Breach;
use proto::manifest::{Entry, EntryId};
use proto::wire::chunk::{Header, pack_lines};
use proto::wire::control::{Corrupt, Digest, FaultKind};
use sys::mem::{Buf, HEADROOM, Mem};

use crate::ends::file_source::{SECTOR, go_on_from};
use crate::job::{EntryError, Event, JobNo, RailEnd, Role, fault_kind};
use crate::machine::recv::JOURNAL_FILE_BYTES_MIN;
use crate::platform::{Done, Op, Parts as _, Platform, SinkTree, VolumeSet};
use crate::rail::stream::{is_again, write_piece};
use crate::rail::{Kind, Load, Slot};
use crate::seal::digest::digest_of;
use crate::seal::frame::Hashed;
use crate::worker::{Seat, Worker};

/// Parts kept open per job and worker.
const OPEN_MAX: usize = 16;

/// What may come, and the open parts of one receiving job.
#[derive(Debug)]
pub(crate) struct Parts<P: Platform> {
    expected: HashMap<EntryId, Arc<Entry>>,
    open: Opened<P::File>,
    /// The same parts opened for bytes that are no whole sectors.
    loose: Opened<P::File>,
    /// Chunks that are whole, and that no volume wants yet; the first came first.
    kept: VecDeque<Kept>,
    /// Since when none of them had a turn.
    kept_ns: u64,
    /// Where the bufs are.
    node: Option<u16>,
}

/// A chunk in its buf.
#[derive(Debug)]
struct Kept {
    index: usize,
    header: Header,
    digest: Digest,
    buf: Buf,
}

/// So soon a worker looks again whether a volume wants what it keeps: chunks also land by other workers.
pub(crate) const LOOK_NS: u64 = 2_000_000;
/// If no volume wants any for so long, one goes all the same, whatever was counted wrong.
const KEEP_NS: u64 = 1_000_000_000;

/// Open parts: of a file that is striped by chunk, one for each volume.
type Opened<F> = VecDeque<(EntryId, usize, F)>;

impl<P: Platform> Parts<P> {
    /// Of a worker on this memory node, if it is held on one.
    pub(crate) fn on(node: Option<u16>) -> Self {
        Parts {
            expected: HashMap::new(),
            open: VecDeque::with_capacity(OPEN_MAX),
            loose: VecDeque::with_capacity(OPEN_MAX),
            kept: VecDeque::new(),
            kept_ns: 0,
            node,
        }
    }

    pub(crate) fn expect(&mut self, entries: Vec<Arc<Entry>>) {
        self.expected.extend(entries.into_iter().map(|entry| (entry.id, entry)));
    }

    pub(crate) fn forget(&mut self, entries: &[EntryId]) {
        for id in entries {
            self.expected.remove(id);
        }
        self.open.retain(|(id, ..)| !entries.contains(id));
        self.loose.retain(|(id, ..)| !entries.contains(id));
    }

    /// Are chunks kept that no volume wants yet?
    pub(crate) fn keeps(&self) -> bool {
        !self.kept.is_empty()
    }

    pub(crate) fn entry(&self, id: EntryId) -> Option<&Arc<Entry>> {
        self.expected.get(&id)
    }

    /// The part that a chunk goes into.
    fn file(&mut self, tree: &P::Sink, header: &Header) -> io::Result<P::File> {
        let entry = &self.expected[&header.entry];
        find_or_open(&mut self.open, tree, entry, (header, self.node), P::Sink::open_part)
    }

    /// The part for bytes that are no whole sectors. The entry must be expected.
    pub(crate) fn loose_file(&mut self, tree: &P::Sink, header: &Header) -> io::Result<P::File> {
        let entry = &self.expected[&header.entry];
        find_or_open(&mut self.loose, tree, entry, (header, self.node), P::Sink::open_part_loose)
    }

    /// Does what is missing of an entry read as zeros? (In the part of a file with a journal or with holes, if nobody puts chunks that are
    /// not whole into it: such a chunk may go again by another worker, and then what stands there is anything.)
    fn reads_as_zeros(&self, tree: &P::Sink, id: EntryId) -> bool {
        self.entry(id).is_some_and(|it| it.bytes() > JOURNAL_FILE_BYTES_MIN || it.tells_holes()) && !tree.was_loose()
    }
}

fn find_or_open<S: SinkTree>(
    opened: &mut Opened<S::File>,
    tree: &S,
    entry: &Entry,
    (header, node): (&Header, Option<u16>),
    open: fn(&S, usize, &Entry) -> io::Result<S::File>,
) -> io::Result<S::File>
where
    S::File: Clone,
{
    let (volume, most) = if entry.meta.striped {
        // A file has a part on each volume: as many stay open as two files have.
        (tree.place(entry, header.offset, header.payload_bytes, node), OPEN_MAX.max(2 * tree.volumes()))
    } else {
        (0, OPEN_MAX)
    };
    if let Some((.., file)) = opened.iter().find(|(id, on, _)| (*id, *on) == (entry.id, volume)) {
        return Ok(file.clone());
    }
    let file = open(tree, volume, entry)?;
    if opened.len() >= most {
        opened.pop_front();
    }
    opened.push_back((entry.id, volume, file.clone()));
    Ok(file)
}

pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<64>();
    words.iter().all(|word| word == &[0; 64]) && rest.iter().all(|&byte| byte == 0)
}

/// A part that is written at once.
#[derive(Debug)]
pub(crate) struct AtOnce<F> {
    pub(crate) file: F,
    /// What is missing in it reads as zeros: zeros need not be written.
    pub(crate) sparse: bool,
}

impl<P: Platform> Seat<P> {
    /// The part of an entry, if it is one that is written at once. A part that cannot be opened is told of by `land_range`.
    pub(crate) fn at_once(&mut self, platform: &P, header: &Header) -> Option<AtOnce<P::File>> {
        let Role::Recv(tree) = &self.part.role else { return None };
        let is_striped = self.parts.entry(header.entry).is_some_and(|it| it.meta.striped);
        // Whoever takes a turn goes on at once: behind others that wait for one it would only keep it from them.
        if is_striped && (self.parts.keeps() || !tree.has_turn(header.entry, header.offset)) {
            return None;
        }
        let file = self.parts.file(tree, header).ok()?;
        let sparse = self.parts.reads_as_zeros(tree, header.entry);
        platform.is_at_once(&file).then_some(AtOnce { file, sparse })
    }
}

impl<P: Platform> Worker<P> {
    /// A range was opened and written piece by piece: it has landed, or is taken back.
    pub(crate) fn land_at_once(
        &mut self,
        index: usize,
        header: Header,
        opened: Result<Hashed, Corrupt>,
        written: io::Result<()>,
        file: &P::File,
        mut buf: Buf,
    ) {
        let (chunk, entry, bytes) = (header.chunk, header.entry, header.payload_bytes);
        let written = match opened {
            Ok(_) => written,
            // What was written of a corrupt chunk must read as missing again.
            Err(_) => {
                let room = &mut buf.payload_mut()[..bytes as usize];
                room.fill(0);
                write_piece(&self.platform, file, header.offset, room)
            }
        };
        self.platform.pool().give(buf);
        if let Err(error) = written {
            return self.write_failed(index, &header, &error, "write the part");
        }
        let rail = self.rails[index].as_ref().expect("the caller has it");
        let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
        seat.part.post.put(match opened {
            Ok(hashed) => Event::Landed { chunk, entry, offset: header.offset, bytes, digest: hashed.digest },
            Err(corrupt) => Event::Corrupt { chunk, entry, corrupt },
        });
    }

    /// Chunks that were kept go to volumes that want them now; of a job that ends nobody waits for them.
    pub(crate) fn land_kept(&mut self) {
        let jobs: Vec<JobNo> = self.seats.iter().filter(|(_, seat)| seat.parts.keeps()).map(|(&job, _)| job).collect();
        let now = self.platform.now_ns();
        for job in jobs {
            while let Some(seat) = self.seats.get_mut(&job)
                && let Some(first) = seat.parts.kept.front()
            {
                let Role::Recv(tree) = &seat.part.role else { unreachable!("only receivers keep chunks") };
                let (entry, chunk) = (first.header.entry, first.header.chunk);
                let is_stray = seat.closing || seat.parts.entry(entry).is_none();
                let is_long = now.saturating_sub(seat.parts.kept_ns) > KEEP_NS;
                if !is_stray && !is_long && !tree.has_turn(entry, first.header.offset) {
                    break;
                }
                let Kept { index, header, digest, buf } = seat.parts.kept.pop_front().expect("seen above");
                seat.parts.kept_ns = now;
                let rail = self.rails[index].as_mut().expect("a rail stays until its ops are back");
                rail.ops -= 1;
                if is_stray {
                    seat.part.post.put(Event::Stray { chunk, entry });
                    self.platform.pool().give(buf);
                } else {
                    self.land_now(index, header, digest, buf);
                }
            }
        }
    }

    /// A range is whole: it goes into its part, when the volume is known to which that goes.
    pub(crate) fn land_range(&mut self, index: usize, header: Header, digest: Digest, buf: Buf) {
        let rail = self.rails[index].as_mut().expect("the caller has it");
        let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
        let Role::Recv(tree) = &seat.part.role else { unreachable!("checked when the header came") };
        let is_striped = seat.parts.entry(header.entry).is_some_and(|it| it.meta.striped);
        if is_striped && (seat.parts.keeps() || !tree.has_turn(header.entry, header.offset)) {
            rail.ops += 1;
            if !seat.parts.keeps() {
                seat.parts.kept_ns = self.platform.now_ns();
            }
            seat.parts.kept.push_back(Kept { index, header, digest, buf });
            return;
        }
        self.land_now(index, header, digest, buf);
    }

    /// A range goes into its part.
    fn land_now(&mut self, index: usize, header: Header, digest: Digest, buf: Buf) {
        let rail = self.rails[index].as_mut().expect("the caller has it");
        let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
        let Role::Recv(tree) = &seat.part.role else { unreachable!("checked when the header came") };
        let bytes = header.payload_bytes as usize;
        match seat.parts.file(tree, &header) {
            // What is missing in the part of a large file reads as zeros already: a hole stays a hole.
            Ok(_) if seat.parts.reads_as_zeros(tree, header.entry) && is_zero(&buf.payload()[..bytes]) => {
                let (chunk, entry) = (header.chunk, header.entry);
                seat.part.post.put(Event::Landed {
                    chunk,
                    entry,
                    offset: header.offset,
                    bytes: header.payload_bytes,
                    digest,
                });
                self.platform.pool().give(buf);
            }
            Ok(file) => {
                rail.ops += 1;
                // O_DIRECT writes whole sectors; the tail beyond the file's end is cut off when the part is published.
                let len = bytes.next_multiple_of(SECTOR);
                let slot = Slot {
                    kind: Kind::Write,
                    rail: index,
                    at: HEADROOM,
                    done: 0,
                    len,
                    load: Load::Landing { header, digest },
                };
                let token = self.slots.put(slot);
                let offset = header.offset;
                let mut buf = buf;
                buf.payload_mut()[bytes..len].fill(0);
                self.platform.submit(token, Op::Write { file, offset, mem: Mem::Buf(buf), at: HEADROOM, len });
                self.platform.flush();
                self.laps.lap(Stage::Write);
            }
            Err(error) => {
                self.platform.pool().give(buf);
                self.write_failed(index, &header, &error, "open the part");
            }
        }
    }

    /// A write came back: go on with the rest, or the chunk has landed.
    pub(crate) fn on_written(&mut self, mut slot: Slot, done: Done) {
        let Load::Landing { header, digest } = slot.load else { unreachable!("writes carry landings") };
        let index = slot.rail;
        let moved = match done.result {
            Err(error) if is_again(&error) => 0,
            Ok(moved) if moved > 0 => moved,
            short => {
                self.rail(&Slot { load: Load::None, ..slot }).ops -= 1;
                self.give(done.mem);
                let error = short.err().unwrap_or_else(|| io::ErrorKind::WriteZero.into());
                self.write_failed(index, &header, &error, "write the part");
                return;
            }
        };
        slot.done = go_on_from(slot.done, slot.done + moved, slot.len);
        let rail = self.rails[index].as_mut().expect("a rail stays until its ops are back");
        let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
        if slot.done < slot.len && seat.parts.entry(header.entry).is_some() {
            let Role::Recv(tree) = &seat.part.role else { unreachable!("checked when the header came") };
            match seat.parts.file(tree, &header) {
                Ok(file) => {
                    let (at, offset, len) =
                        (slot.at + slot.done, header.offset + slot.done as u64, slot.len - slot.done);
                    let token = self.slots.put(Slot { load: Load::Landing { header, digest }, ..slot });
                    self.platform.submit(token, Op::Write { file, offset, mem: done.mem, at, len });
                }
                Err(error) => {
                    rail.ops -= 1;
                    self.give(done.mem);
                    self.write_failed(index, &header, &error, "open the part again");
                }
            }
            return;
        }
        rail.ops -= 1;
        let (entry, chunk) = (header.entry, header.chunk);
        seat.part.post.put(if seat.parts.entry(entry).is_some() {
            Event::Landed { chunk, entry, offset: header.offset, bytes: header.payload_bytes, digest }
        } else {
            Event::Stray { chunk, entry }
        });
        self.give(done.mem);
    }

    /// The files of a pack go into their parts, each checked against its own digest.
    pub(crate) fn land_pack(&mut self, index: usize, header: Header, buf: Buf) {
        let rail = self.rails[index].as_mut().expect("the caller has it");
        let terms = rail.terms;
        let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
        let Role::Recv(tree) = &seat.part.role else { unreachable!("checked when the header came") };
        let payload = &buf.payload()[..header.payload_bytes as usize];
        // The index has no digest of its own: the CRC once more, so that a bit that flipped here since it was opened is not obeyed.
        let sound = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, payload) == header.crc;
        self.laps.lap(Stage::Hash);
        if !sound {
            let corrupt = Corrupt::SinkMemory;
            seat.part.post.put(Event::Corrupt { chunk: header.chunk, entry: EntryId::MAX, corrupt });
            self.platform.pool().give(buf);
            return;
        }
        let lines = match pack_lines(payload, header.entry, terms.chunk_bytes) {
            Ok(lines) => lines,
            Err(breach) => {
                self.platform.pool().give(buf);
                self.break_off(index, RailEnd::Breach(breach));
                return;
            }
        };
        let mut files = Vec::with_capacity(usize::try_from(header.entry).unwrap_or(0));
        let mut failed = Vec::new();
        let mut breach = None;
        for (line, range) in lines {
            let Some(entry) = seat.parts.entry(line.entry) else { continue };
            let content = &payload[range];
            let digest = digest_of(terms.digest, content);
            self.laps.lap(Stage::Hash);
            if entry.bytes() != u64::from(line.bytes) {
                breach = Some(Breach::PackIndex);
                break;
            }
            if digest != line.digest {
                // The CRC was taken over this content, the digest before it: it changed in the sender's memory between the two.
                // What stands written of this pack is written again when it comes again.
                let corrupt = Corrupt::SourceMemory;
                seat.part.post.put(Event::Corrupt { chunk: header.chunk, entry: line.entry, corrupt });
                self.platform.pool().give(buf);
                return;
            }
            match tree.put_small(entry, content, terms.publish_small) {
                Ok(()) => files.push((entry.id, entry.bytes(), digest)),
                Err(error) => failed.push(EntryError {
                    entry: entry.id,
                    kind: fault_kind(&error, false),
                    errno: error.raw_os_error().unwrap_or(0),
                    step: "write a small file",
                }),
            }
            self.laps.lap(Stage::Write);
        }
        seat.part.post.put(Event::PackLanded { chunk: header.chunk, payload: header.payload_bytes, files, failed });
        self.platform.pool().give(buf);
        if let Some(breach) = breach {
            self.break_off(index, RailEnd::Breach(breach));
        }
    }

    pub(crate) fn write_failed(&mut self, index: usize, header: &Header, error: &io::Error, step: &'static str) {
        let kind = if error.raw_os_error().is_none() { FaultKind::Io } else { fault_kind(error, false) };
        let error = EntryError { entry: header.entry, kind, errno: error.raw_os_error().unwrap_or(0), step };
        let rail = self.rails[index].as_ref().expect("the caller has it");
        let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
        seat.part.post.put(Event::WriteFailed { chunk: header.chunk, offset: header.offset, error });
    }
}
