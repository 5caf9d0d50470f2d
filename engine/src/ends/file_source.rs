//! Files as a source: chunks by asynchronous reads, small files by the pack.
//!
//! For: step 2 of a chunk's path: (chunk, empty buf) → filled buf.
//! In and out: handouts in; filled bufs to the rail's queue, failures to the job end.
//! Invariants: a sender never takes the last `reserve` bufs; a small chunk has bufs of its own beside them; a file that ends early is torn, not padded.
//! Absent on purpose: the second look at a file after its last chunk (the keeper asks `SourceTree::is_unchanged`).

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use proto::books::Stage;
use proto::manifest::{Entry, EntryId};
use proto::send::{Handout, Unit};
use proto::wire::chunk::{PACK_LINE_BYTES, PackLine};
use proto::wire::control::{Digest, DigestKind, FaultKind};
use sys::mem::{Buf, HEADROOM, Mem};

use crate::job::{EntryError, Event, Role, fault_kind, first_entry};
use crate::platform::{Done, Op, Platform, SourceTree};
use crate::rail::stream::is_again;
use crate::rail::{AHEAD_MAX, Filled, Kind, Load, Slot};
use crate::seal::digest::digest_of;
use crate::worker::stages::Laps;
use crate::worker::{Seat, Worker};

/// Files kept open per job and worker.
const OPEN_MAX: usize = 16;

/// A file that took so long to be opened and read was not in memory: one that is takes 5 µs here, a read of flash 60 µs and more.
const WAITED_NS: u64 = 50_000;

/// O_DIRECT reads whole sectors: 4096 covers every device we know of (`logical_block_size` is 512 or 4096).
pub(crate) const SECTOR: usize = 4096;

/// Where a short read or write goes on: at a sector's border, as O_DIRECT wants it, if it came past one; what is moved twice is the same.
pub(crate) fn go_on_from(before: usize, after: usize, end: usize) -> usize {
    let aligned = after / SECTOR * SECTOR;
    if after >= end || aligned <= before { after } else { aligned }
}

/// The open files of one sending job.
#[derive(Debug)]
pub(crate) struct Sources<P: Platform> {
    /// Of a file that is striped by chunk, one for each volume.
    open: VecDeque<(EntryId, usize, P::File)>,
}

impl<P: Platform> Default for Sources<P> {
    fn default() -> Self {
        Sources { open: VecDeque::with_capacity(OPEN_MAX) }
    }
}

impl<P: Platform> Sources<P> {
    pub(crate) fn forget(&mut self, entries: &[EntryId]) {
        self.open.retain(|(id, ..)| !entries.contains(id));
    }
}

impl<P: Platform> Seat<P> {
    /// The source of the range that begins at `offset`, opened or open still.
    pub(crate) fn source_file(&mut self, entry: &Entry, offset: u64) -> io::Result<P::File> {
        let Role::Send(tree) = &self.part.role else { unreachable!("handouts go to sending jobs") };
        let (volume, most) = if entry.meta.striped {
            let volume = tree.join(entry)?.volume_at(offset).ok_or(io::ErrorKind::UnexpectedEof)?;
            (usize::from(volume), OPEN_MAX.max(2 * tree.volumes()))
        } else {
            (usize::from(entry.meta.volume), OPEN_MAX)
        };
        let open = &mut self.sources.open;
        if let Some((.., file)) = open.iter().find(|(id, on, _)| (*id, *on) == (entry.id, volume)) {
            return Ok(file.clone());
        }
        let file = tree.open(entry, volume)?;
        if open.len() >= most {
            open.pop_front();
        }
        open.push_back((entry.id, volume, file.clone()));
        Ok(file)
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
    laps: &mut Laps,
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
                let ns = laps.lap(Stage::Read);
                if ns > WAITED_NS && !waited {
                    // The disk is given all the others at once, and can take them in its own order. What is in memory costs nothing: one
                    // clock is read as before.
                    waited = true;
                    left.as_slice().iter().for_each(|entry| tree.expect_small(entry));
                    laps.lap(Stage::Read);
                }
                let digest = digest_of(kind, into);
                laps.lap(Stage::Hash);
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

/// What a new connection's send buffer takes at once, as good as: a buf with no more in it is back in a moment, however slow the peer.
pub(crate) const SMALL_BYTES: u64 = 64 << 10;

fn bytes_of(unit: &Unit) -> u64 {
    match unit {
        Unit::Range { bytes, .. } => u64::from(*bytes),
        Unit::Pack { entries } => entries.iter().map(|entry| entry.bytes()).sum(),
    }
}

impl<P: Platform> Worker<P> {
    /// Fill: waiting handouts get bufs and reads, as far as bufs go.
    pub(crate) fn step_fill(&mut self, index: usize) {
        loop {
            let rail = self.rails[index].as_mut().expect("the loop looked");
            // Few for a source that is fast (its chunks stay in cache), more for one that makes the rail wait.
            let enough = rail.reads + rail.filled.len() >= rail.ahead;
            if enough || rail.waiting.is_empty() {
                return;
            }
            // Hundreds of jobs have all bufs away, for seconds where their peers are slow: a newcomer's small file does not wait for them.
            let is_small = rail.waiting.front().is_some_and(|it| bytes_of(&it.unit) <= SMALL_BYTES);
            let left = self.left_by_fill;
            let pool = self.platform.pool();
            let buf = if pool.free() > left { pool.take() } else { None };
            let buf = buf.or_else(|| if is_small { self.platform.pool().take_small() } else { None });
            // All rails are asked for something to unload once in a turn, not by each of hundreds that wait.
            let unloaded = buf.is_none() && self.may_unload && self.unload_oldest(None);
            self.may_unload &= buf.is_some() || unloaded;
            let Some(buf) = buf.or_else(|| if unloaded { self.platform.pool().take() } else { None }) else { return };
            let rail = self.rails[index].as_mut().expect("the loop looked");
            let handout = rail.waiting.pop_front().expect("seen above");
            match handout.unit {
                Unit::Range { .. } => self.fill_range(index, handout, buf),
                Unit::Pack { .. } => self.fill_pack(index, handout, buf),
            }
        }
    }

    fn fill_range(&mut self, index: usize, handout: Handout, buf: Buf) {
        let Unit::Range { ref entry, offset, bytes, .. } = handout.unit else { unreachable!("the caller matched") };
        let job = self.rails[index].as_ref().expect("the loop looked").job;
        let seat = self.seats.get_mut(&job).expect("rails go before their job");
        let file = match seat.source_file(entry, offset) {
            Ok(file) => file,
            Err(error) => {
                self.platform.pool().give(buf);
                self.drop_handout(index, &handout, fault_kind(&error, true), &error, "open the source");
                return;
            }
        };
        if self.platform.is_at_once(&file) {
            let rail = self.rails[index].as_mut().expect("the loop looked");
            rail.filled.push_back(Filled { handout, buf, bytes, files: 1, from: Some(file) });
            return;
        }
        let ahead = self.platform.reads_ahead(&file).min(AHEAD_MAX);
        let len = (bytes as usize).next_multiple_of(SECTOR);
        let slot = Slot {
            kind: Kind::Read,
            rail: index,
            at: HEADROOM,
            done: 0,
            len: bytes as usize,
            load: Load::Fill(handout),
        };
        let rail = self.rails[index].as_mut().expect("the loop looked");
        rail.ops += 1;
        rail.reads += 1;
        rail.ahead = rail.ahead.max(ahead);
        let token = self.slots.put(slot);
        self.platform.submit(token, Op::Read { file, offset, mem: Mem::Buf(buf), at: HEADROOM, len });
    }

    /// A read came back: go on with the rest, or the chunk is filled.
    pub(crate) fn on_read(&mut self, mut slot: Slot, done: Done) {
        let Load::Fill(handout) = slot.load else { unreachable!("reads carry handouts") };
        let index = slot.rail;
        let moved = match done.result {
            Err(error) if is_again(&error) => 0,
            Ok(moved) if moved > 0 => moved,
            short => {
                self.read_is_over(index);
                self.give(done.mem);
                let (kind, error) = match short {
                    Ok(_) => (FaultKind::Torn, io::Error::from(io::ErrorKind::UnexpectedEof)),
                    Err(error) => (fault_kind(&error, true), error),
                };
                self.drop_handout(index, &handout, kind, &error, "read the source");
                return;
            }
        };
        slot.done = go_on_from(slot.done, slot.done + moved, slot.len);
        let Unit::Range { ref entry, offset, bytes, .. } = handout.unit else { unreachable!("reads are of ranges") };
        if slot.done < slot.len {
            let rail = self.rails[index].as_ref().expect("a rail stays until its ops are back");
            let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
            let Ok(file) = seat.source_file(entry, offset) else {
                self.read_is_over(index);
                self.give(done.mem);
                let error = io::Error::from(io::ErrorKind::NotFound);
                self.drop_handout(index, &handout, FaultKind::Vanished, &error, "open the source again");
                return;
            };
            let (at, offset) = (slot.at + slot.done, offset + slot.done as u64);
            let len = slot.len.next_multiple_of(SECTOR) - slot.done;
            let token = self.slots.put(Slot { load: Load::Fill(handout), ..slot });
            self.platform.submit(token, Op::Read { file, offset, mem: done.mem, at, len });
            return;
        }
        let Mem::Buf(buf) = done.mem else { unreachable!("chunks are read into bufs") };
        self.read_is_over(index);
        let rail = self.rails[index].as_mut().expect("a rail stays until its ops are back");
        rail.filled.push_back(Filled { handout, buf, bytes, files: 1, from: None });
    }

    fn read_is_over(&mut self, index: usize) {
        let rail = self.rails[index].as_mut().expect("a rail stays until its ops are back");
        rail.ops -= 1;
        rail.reads -= 1;
        if rail.is_starved() {
            rail.ahead = (rail.ahead + 1).min(AHEAD_MAX);
        }
    }

    /// A pack is read at once; files that failed are told.
    fn fill_pack(&mut self, index: usize, handout: Handout, mut buf: Buf) {
        let Unit::Pack { ref entries } = handout.unit else { unreachable!("the caller matched") };
        let rail = self.rails[index].as_ref().expect("the loop looked");
        let (job, kind) = (rail.job, rail.terms.digest);
        let seat = self.seats.get_mut(&job).expect("rails go before their job");
        let Role::Send(tree) = &seat.part.role else { unreachable!("handouts go to sending jobs") };
        let PackRead { bytes, digests, mut failed } =
            read_pack(&**tree, kind, entries, buf.payload_mut(), &mut self.laps);
        let files = digests.len() as u64;
        let (chunk, number) = (handout.chunk, rail.rail);
        if files == 0 {
            let first = failed.remove(0);
            self.platform.pool().give(buf);
            seat.part.post.put(Event::PackRead { chunk, digests, failed });
            seat.part.post.put(Event::Dropped { rail: number, chunk, error: first });
            return;
        }
        seat.part.post.put(Event::PackRead { chunk, digests, failed });
        let rail = self.rails[index].as_mut().expect("the loop looked");
        rail.filled.push_back(Filled { handout, buf, bytes: bytes as u32, files, from: None });
    }

    /// The source could not be read when the chunk's turn came. That it ends too early means that it changed.
    pub(crate) fn drop_filled(&mut self, index: usize, handout: &Handout, buf: Buf, error: &io::Error) {
        self.platform.pool().give(buf);
        let torn = error.kind() == io::ErrorKind::UnexpectedEof;
        let fault = if torn { FaultKind::Torn } else { fault_kind(error, true) };
        self.drop_handout(index, handout, fault, error, "read the source");
    }

    pub(crate) fn drop_handout(
        &mut self,
        index: usize,
        handout: &Handout,
        kind: FaultKind,
        error: &io::Error,
        step: &'static str,
    ) {
        let rail = self.rails[index].as_ref().expect("the loop looked");
        let error =
            EntryError { entry: first_entry(&handout.unit), kind, errno: error.raw_os_error().unwrap_or(0), step };
        let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
        seat.part.post.put(Event::Dropped { rail: rail.rail, chunk: handout.chunk, error });
    }
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
        let mut laps = Laps::new(Arc::new(Counters::default()));
        let read = read_pack(&Slow, DigestKind::Blake3, &entries, &mut payload, &mut laps);
        assert_eq!(EXPECTED.take(), [2, 3, 4, 5]);
        assert_eq!((read.digests.len(), read.bytes), (5, payload.len()));
        assert_eq!(payload[5 * PACK_LINE_BYTES..].chunks(8).map(|it| it[7]).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    }
}
