//! The receiving end.
//!
//! For: entries looked at, chunks accounted for, parts flushed and published, the receiver's half of the receipt.
//! In and out: `on_frame`, `on_event`, `on_settled`, `pump`; see `Outbox`.
//! Invariants: nothing is acknowledged above the rung it reached; `Expect` goes to workers before `Want` goes to the sender; a journal
//! record is handed to the committer together with the flush that must precede it; one publishing batch is on its way at a time, so
//! batches grow by themselves when the disk is slow.
//! Absent on purpose: order of facts (proto::recv), file-system calls beside the tree's.

mod compare; // another version stands there
mod holes; // what is zeros and does not come
mod over; // published, or failed
mod progress; // what a kill of this process does not cost
mod parts; // what has come of large files, journalled and taken up again
mod prune; // what the source does not have

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use proto::error::{Breach, Refusal};
use proto::ledger::{CHUNKS_MAX, chunk_count};
use proto::manifest::{Aspects, Entry, EntryId, EntryKind};
use proto::negotiate::Plan;
use proto::recv::{Ready, Receiver};
use proto::wire::chunk::{ChunkKind, SEALED_HEADER_BYTES, TAG_BYTES};
use proto::wire::control::{ChunkRange, Compare, Digest, EntryFault, FaultKind, Frame, ID_NAMES_MAX, Rung, Want};

use crate::job::{Cmd, Event, JobNo, Terms, fault_kind};
use crate::machine::names::{Further, Names};
use crate::machine::unjournalled::UnjournalledBytes;
use crate::machine::{Outbox, Record, Stop, fault, told};
use crate::platform::{Found, Platform, SinkTree, VolumeSet};
use crate::seal::frame::tag_count;
use crate::tree::commit::{Settled, Task};

use parts::Coming;

/// Files above this length have a journal.
pub const JOURNAL_FILE_BYTES_MIN: u64 = 16 << 20;
/// A part is flushed and its journal appended after so many fresh bytes …
pub const FLUSH_BYTES: u64 = 32 << 20;
/// … or when the oldest of them is so old.
pub const FLUSH_NS: u64 = 1_000_000_000;
/// Before that, its journal notes what was written after so many bytes …
pub const NOTE_BYTES: u64 = 8 << 20;
/// … or when the oldest of them is so old.
pub const NOTE_NS: u64 = 50_000_000;
/// Bytes of whole parts that wait to be published, at most, before data is left unacknowledged: bounds what a crash can cost.
const ENTRIES_PER_BATCH_MAX: usize = 2048;

/// Why a further name of a file cannot be.
const FIRST_FAILED: &str = "name a file whose first name failed";

/// Why a file with chunks of an earlier run is not published: together they are not what the source has now.
const OF_ANOTHER_SOURCE: &str = "go on with a part: what an earlier run had brought is of another source";

/// Digests of files published by an earlier run, by the first 16 bytes of the path's BLAKE3.
pub type Carried = HashMap<[u8; 16], (u64, i64, u32, Digest)>;

/// The key of `Carried`.
#[must_use]
pub fn carried_key(path: &[u8]) -> [u8; 16] {
    let hash = blake3::hash(path);
    let mut key = [0; 16];
    key.copy_from_slice(&hash.as_bytes()[..16]);
    key
}

/// See the module.
#[derive(Debug)]
pub struct RecvEnd<P: Platform> {
    /// For report and receipt.
    pub record: Record,
    job: JobNo,
    workers: usize,
    keep: bool,
    boot: [u8; 8],
    machine: Receiver,
    sink: Arc<P::Sink>,
    coming: HashMap<EntryId, Coming>,
    digests: HashMap<EntryId, Digest>,
    carried: Carried,
    unjournalled: UnjournalledBytes,
    names: Names,
    id_names: usize,
    unkept: Vec<(EntryId, Aspects)>,
    ready: Vec<Arc<Entry>>,
    /// With the volume whose committer had it in hand.
    discards: Vec<(usize, Arc<Entry>)>,
    discarding: usize,
    /// Has this volume a batch on its way?
    publishing: Vec<bool>,
    committed: Vec<(EntryId, Digest)>,
    faults: Vec<EntryFault>,
    forget: Vec<EntryId>,
    nacks: Vec<Frame>,
    closed_rails: HashSet<u16>,
    up_rails: BTreeMap<u16, bool>,
    closing: Vec<u16>,
    settled: Option<bool>,
    compare: Compare,
    comparing: HashMap<EntryId, compare::Comparing>,
    /// Clones being made, with the digests of their chunks.
    cloning: HashMap<EntryId, BTreeMap<u64, Digest>>,
    /// Parts that are being read back.
    reading_back: HashMap<EntryId, parts::ReadBack>,
    /// Of these a note is on its way: their journals must not go before it has come.
    noting: HashSet<EntryId>,
    prune: prune::Prune,
}

impl<P: Platform> RecvEnd<P> {
    /// A job that receives into `sink` through `workers` workers. `boot` tells one boot of this machine from another.
    #[must_use]
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        job: JobNo,
        terms: Terms,
        plan: &Plan,
        rung: Rung,
        sink: Arc<P::Sink>,
        workers: usize,
        keep: bool,
        boot: [u8; 8],
        carried: Carried,
    ) -> Self {
        RecvEnd {
            record: Record::new(terms, rung),
            job,
            workers,
            keep,
            boot,
            machine: Receiver::new(plan.chunk_bytes),
            publishing: vec![false; sink.volumes()],
            sink,
            coming: HashMap::new(),
            digests: HashMap::new(),
            carried,
            unjournalled: UnjournalledBytes::default(),
            names: Names::default(),
            id_names: 0,
            unkept: Vec::new(),
            ready: Vec::new(),
            discards: Vec::new(),
            discarding: 0,
            committed: Vec::new(),
            faults: Vec::new(),
            forget: Vec::new(),
            nacks: Vec::new(),
            closed_rails: HashSet::new(),
            up_rails: BTreeMap::new(),
            closing: Vec::new(),
            settled: None,
            compare: Compare::Never,
            comparing: HashMap::new(),
            cloning: HashMap::new(),
            reading_back: HashMap::new(),
            noting: HashSet::new(),
            prune: prune::Prune::default(),
        }
    }

    /// Which files that stand there are compared by content from now on.
    pub fn compare_by(&mut self, compare: Compare) {
        self.compare = compare;
    }

    /// A rail is greeted and given to its worker. False: this number is spent, do not use the connection.
    pub fn rail_up(&mut self, rail: u16) -> bool {
        if self.closed_rails.contains(&rail) || self.up_rails.contains_key(&rail) {
            return false;
        }
        self.up_rails.insert(rail, true);
        true
    }

    /// Lets less than `HOLD_BYTES` wait for the disk.
    pub fn bound_debt(&mut self, bytes: u64) {
        self.unjournalled.bound(bytes);
    }

    /// Rails that carry.
    #[must_use]
    pub fn rails_up(&self) -> usize {
        self.up_rails.len()
    }

    /// A frame came from the sender.
    pub fn on_frame(&mut self, frame: Frame, out: &mut Outbox<P>) -> Result<(), Stop> {
        match frame {
            Frame::Entries(entries) => self.on_entries(entries, out)?,
            Frame::Names(names) => {
                self.id_names += names.len();
                if self.id_names > ID_NAMES_MAX {
                    return Err(Breach::FieldTooLong.into());
                }
                if let Some(owners) = self.sink.owners() {
                    owners.learn(&names);
                }
            }
            Frame::Unseen(_) if self.record.tally.scan_ended => return Err(Breach::WrongOrder.into()),
            Frame::Unseen(places) => places.into_iter().for_each(|(fault, path)| self.record.failed(fault, &path)),
            Frame::ScanEnd { entries, files, bytes, faults } => {
                self.machine.on_scan_end(entries)?;
                self.prune.scan_faults = faults;
                let tally = &mut self.record.tally;
                if (files, bytes) != (tally.files_total, tally.bytes_total) {
                    return Err(Breach::TotalsMismatch.into());
                }
                tally.scan_ended = true;
            }
            Frame::FileEnd { entry, digest } => {
                let ready = self.machine.on_file_end(entry, digest)?;
                self.on_ready(ready, out);
            }
            Frame::Faults(faults) => {
                for fault in faults {
                    if let Some(entry) = self.machine.resolve(fault.entry) {
                        // What failed to be read may be read next time: a large part stays for that. What changed or went does not.
                        let passing = matches!(fault.kind, FaultKind::Io | FaultKind::Denied | FaultKind::Other);
                        self.let_go(&entry, passing);
                        self.record.failed(fault, &entry.path);
                    }
                }
            }
            Frame::Holes { entry, ranges } => self.on_holes(entry, &ranges)?,
            Frame::Differ { entry, ranges } => self.on_differ(entry, &ranges, out)?,
            Frame::RailDown { rail } => {
                if self.up_rails.contains_key(&rail) {
                    out.cmds.push((usize::from(rail) % self.workers, Cmd::RailDown { job: self.job, rail }));
                } else if self.closed_rails.insert(rail) {
                    self.closing.push(rail);
                }
            }
            _ => return Err(Breach::WrongOrder.into()),
        }
        Ok(())
    }

    fn on_entries(&mut self, entries: Vec<Entry>, out: &mut Outbox<P>) -> Result<(), Stop> {
        let mut wants = Vec::new();
        let mut expect = Vec::new();
        for mut entry in entries {
            if let Some(owners) = self.sink.owners() {
                owners.localize(&mut entry);
            }
            let entry = self.machine.on_entry(entry)?;
            self.record.announced(&entry);
            self.prune.announced(&entry);
            self.names.announced(&entry)?;
            match entry.kind {
                EntryKind::FolderEnd => {}
                EntryKind::Folder | EntryKind::Link { .. } | EntryKind::Node { .. } => self.make(&entry),
                EntryKind::Name { .. } => match self.names.further(&entry)? {
                    Further::Make => self.make(&entry),
                    Further::Wait => {}
                    Further::Fail => self.fail(entry.id, FaultKind::Other, None, FIRST_FAILED),
                },
                EntryKind::File { .. } => {
                    if let Some(want) = self.look(&entry, out) {
                        if matches!(want, Want::Compare { .. }) {
                            // The workers are told with the last word on it.
                        } else if self.record.dry {
                            self.coming.remove(&entry.id);
                            if self.resolve(entry.id).is_some() {
                                self.record.tally.files_done += 1;
                                self.first_stands(&entry, true);
                            }
                        } else if !matches!(want, Want::Keep { .. }) {
                            expect.push(entry.clone());
                        }
                        wants.push((entry.id, want));
                    }
                }
            }
        }
        if !expect.is_empty() {
            for worker in 0..self.workers {
                out.cmds.push((worker, Cmd::Expect { job: self.job, entries: expect.clone() }));
            }
        }
        // Before the answer that resolves the entry.
        self.tell_unkept(out);
        if !wants.is_empty() {
            out.frames.push(Frame::Wants(wants));
        }
        Ok(())
    }

    /// What the sink could not keep since it was last asked, while its entries are not resolved.
    fn take_unpreserved(&mut self) {
        let from = self.unkept.len();
        if let Some(owners) = self.sink.owners() {
            owners.take_unpreserved(&mut self.unkept);
        }
        for (id, what) in &self.unkept[from..] {
            if let Some(entry) = self.machine.entry(*id) {
                self.record.unkept.add(*what, &entry.path);
            }
        }
    }

    fn tell_unkept(&mut self, out: &mut Outbox<P>) {
        self.take_unpreserved();
        if !self.unkept.is_empty() {
            out.frames.push(Frame::Unkept(std::mem::take(&mut self.unkept)));
        }
    }

    /// The entry is resolved, and the sink need not remember it.
    fn resolve(&mut self, id: EntryId) -> Option<Arc<Entry>> {
        self.sink.forget(id);
        self.machine.resolve(id)
    }

    /// A first name of several is resolved: the names that waited for it can be made, or not.
    fn first_stands(&mut self, entry: &Entry, stands: bool) {
        for further in self.names.resolved(entry, stands) {
            if stands {
                self.make(&further);
            } else {
                self.fail(further.id, FaultKind::Other, None, FIRST_FAILED);
            }
        }
    }

    fn make(&mut self, entry: &Arc<Entry>) {
        if self.record.dry {
            self.committed.push((entry.id, [0; 32]));
            self.first_stands(entry, true);
            return;
        }
        match self.sink.make(entry) {
            Ok(()) => {
                self.committed.push((entry.id, [0; 32]));
                self.first_stands(entry, true);
            }
            Err(error) => {
                let step = match entry.kind {
                    EntryKind::Node { .. } => "make the node",
                    EntryKind::Name { .. } => "give the file one more name",
                    _ => "make the folder or link",
                };
                self.fail(entry.id, fault_kind(&error, false), Some(&error), step);
            }
        }
    }

    /// What stands at a file's place, and so what we want of it. None: it cannot be had, or that takes a look.
    fn look(&mut self, entry: &Arc<Entry>, out: &mut Outbox<P>) -> Option<Want> {
        if chunk_count(entry.bytes(), self.record.terms.chunk_bytes) > CHUNKS_MAX {
            self.fail_keeping(fault(entry.id, FaultKind::Unsupported, None, "take a file of so many chunks"), true);
            return None;
        }
        let keep = self.keep && self.compare != Compare::Always;
        match self.sink.inspect(entry, keep, self.record.dry) {
            Err(error) => {
                // Nothing was touched: a part that may be there stays.
                let kind = fault_kind(&error, false);
                self.fail_keeping(fault(entry.id, kind, Some(&error), "look at the destination"), true);
                None
            }
            Ok(Found::Same) => {
                let digest = self
                    .carried
                    .remove(&carried_key(&entry.path))
                    .filter(|known| (known.0, known.1, known.2) == (entry.bytes(), entry.mtime_s, entry.mtime_ns))
                    .map(|known| known.3);
                self.take_unpreserved();
                self.record.kept(entry, digest.as_ref(), false);
                self.resolve(entry.id);
                self.first_stands(entry, true);
                Some(Want::Keep { digest })
            }
            Ok(Found::Nothing) => match self.compare(entry, out) {
                Some(want) => Some(want),
                None if self.begins_clone(entry, out) => None,
                None => Some(self.begin(entry, &[], &[], false)),
            },
            Ok(Found::Parts(journals)) => Some(self.resume(entry, &journals, out)),
            Ok(Found::Busy(owner)) => {
                self.fail_keeping(in_use(entry.id, &owner), true);
                None
            }
        }
    }

    fn on_rail_dead(&mut self, rail: u16, end: crate::job::RailEnd) -> Result<(), Stop> {
        self.up_rails.remove(&rail);
        if self.closed_rails.insert(rail) {
            self.closing.push(rail);
        }
        match end {
            // Someone in between may have harmed a stream: the rail is lost, the job goes on. Misdeeds that only the peer itself
            // can commit (they passed its seal) end the job.
            crate::job::RailEnd::Breach(breach) if !matches!(breach, Breach::HeaderSeal | Breach::FrameTruncated) => {
                Err(breach.into())
            }
            _ => Ok(()),
        }
    }

    /// A worker tells.
    pub fn on_event(&mut self, now_ns: u64, event: Event, out: &mut Outbox<P>) -> Result<(), Stop> {
        match event {
            Event::Landed { chunk, entry, offset, bytes, digest } => {
                self.record.tally.moved += u64::from(bytes);
                self.on_rails(ChunkKind::Range, bytes);
                self.machine.ack(chunk)?;
                if self.machine.entry(entry).is_none() {
                    return Ok(());
                }
                let (index, ready) = self.machine.on_landed(entry, offset, bytes)?;
                let volume = self.sink.landed(entry, offset, u64::from(bytes));
                self.record.tally.written += u64::from(bytes);
                let coming = self.coming.get_mut(&entry).expect("made with the ledger");
                coming.tree.put(index, digest);
                if coming.journalled {
                    self.unjournalled.owe(entry, u64::from(bytes));
                    coming.fresh.entry(volume).or_default().add(now_ns, index, bytes, digest);
                }
                self.on_ready(ready, out);
            }
            Event::PackLanded { chunk, payload, files, failed } => {
                self.on_rails(ChunkKind::Pack, payload);
                self.machine.ack(chunk)?;
                for (id, bytes, digest) in files {
                    self.record.tally.moved += bytes;
                    self.record.tally.written += bytes;
                    if let Some(entry) = self.machine.entry(id).cloned() {
                        self.machine.on_pack_file(id, bytes)?;
                        self.digests.insert(id, digest);
                        self.unjournalled.owe(id, bytes);
                        self.ready.push(entry);
                    }
                }
                for error in &failed {
                    self.fail_with(told(error));
                }
            }
            Event::Unexpected { chunk, entry } => {
                if !self.machine.knows(entry) {
                    return Err(Breach::EntryUnknown.into());
                }
                self.machine.ack(chunk)?;
            }
            Event::Corrupt { chunk, entry, corrupt } => {
                self.record.tally.corrupt += 1;
                let name = self.machine.entry(entry).map_or_else(String::new, |it| show(&it.path));
                out.notes.push(format!("chunk {chunk} {name} came corrupt ({corrupt:?}), it is asked for again"));
                self.nacks.push(Frame::Nack { chunk, corrupt });
            }
            Event::WriteFailed { chunk, offset, error } => {
                self.machine.ack(chunk)?;
                self.sink.failed(error.entry, offset, error.errno);
                match self.machine.entry(error.entry) {
                    Some(entry) if error.kind == FaultKind::InUse => {
                        let fault =
                            in_use(entry.id, &self.sink.claims().map_or_else(String::new, |it| it.owner_of(entry)));
                        self.fail_keeping(fault, true);
                    }
                    _ => self.fail_with(told(&error)),
                }
            }
            Event::RailDead { rail, end } => {
                out.notes.push(format!("rail {rail} is over: {end:?}"));
                self.on_rail_dead(rail, end)?;
            }
            Event::Closed { .. } => {}
            Event::Panicked { why } => return Err(Stop::Refused { code: Refusal::Internal.code(), detail: why }),
            _ => unreachable!("senders' events do not reach a receiving end"),
        }
        Ok(())
    }

    /// A frame with this payload came over a rail.
    fn on_rails(&mut self, kind: ChunkKind, payload: u32) {
        let tags = tag_count(self.record.terms.cover.of(kind), payload as usize) * TAG_BYTES;
        self.record.tally.rail_bytes += u64::from(payload) + (SEALED_HEADER_BYTES + tags) as u64;
    }

    fn on_ready(&mut self, ready: Ready, _out: &mut Outbox<P>) {
        let Ready::File { entry: id, sender_digest } = ready else { return };
        let entry = self.machine.entry(id).cloned().expect("it just became ready");
        let coming = self.coming.get_mut(&id).expect("made with the ledger");
        // Publishing flushes the whole; a journal record after it would speak of a part that is gone. The journals of a striped file stay,
        // and know all of it before it has its name.
        if !entry.meta.striped && !std::mem::replace(&mut coming.journalled, false) {
            // Without a journal nothing could be paid before: holding rails for it would hold for ever.
            self.unjournalled.owe(id, entry.bytes() - coming.holes);
        }
        let own = coming.tree.root().expect("all chunks are in");
        if sender_digest.is_some_and(|digest| digest != own) {
            if coming.resumed {
                // Nothing of it is worth keeping: the next run sends all.
                self.fail_keeping(fault(id, FaultKind::Torn, None, OF_ANOTHER_SOURCE), false);
            } else {
                self.fail(id, FaultKind::Corrupt, None, "compare the file's digest");
            }
            return;
        }
        self.digests.insert(id, own);
        let coming = self.coming.get_mut(&id).expect("it is on its way");
        coming.closing = true;
        if self.is_free(id) {
            self.ready.push(entry);
        }
    }

    /// The committer answers.
    pub fn on_settled(&mut self, settled: Settled, _out: &mut Outbox<P>) -> Result<(), Stop> {
        match settled {
            Settled::Flushed { volume, entry, indices, result } => match result {
                Ok(()) => self.on_flushed(volume, entry, &indices),
                Err(error) => self.fail(entry, fault_kind(&error, false), Some(&error), "flush the part"),
            },
            Settled::Noted { volume, entry, header, result } => self.on_noted(volume, entry, header, result.is_ok()),
            Settled::Published { volume, entries, results } => {
                self.publishing[volume] = false;
                for (entry, result) in entries.iter().zip(results) {
                    match result {
                        Ok(()) => self.published(entry),
                        Err(error) => self.fail(entry.id, fault_kind(&error, false), Some(&error), "publish the file"),
                    }
                }
            }
            Settled::Discarded => self.discarding -= 1,
            Settled::Settled { result } => {
                if let Err(error) = result {
                    return Err(Stop::Fault {
                        step: "flush the destination",
                        errno: error.raw_os_error().unwrap_or(0),
                    });
                }
                self.settled = Some(true);
            }
        }
        Ok(())
    }

    /// Everything that is due: acks, commits, folder ends, flushes, the end.
    pub fn pump(&mut self, now_ns: u64, out: &mut Outbox<P>) {
        self.pump_acks(out);
        self.pump_flushes(now_ns, out);
        if let Some(on) = self.unjournalled.hold() {
            out.cmds.extend((0..self.workers).map(|worker| (worker, Cmd::Backpressure { job: self.job, on })));
        }
        // In the committer's order: a flush that is on its way must not bring a discarded journal back.
        if self.record.dry {
            self.discards.clear();
        }
        let noting = &self.noting;
        let free = self.discards.extract_if(.., |(_, entry)| !noting.contains(&entry.id));
        let discards = free.map(|(volume, entry)| Task::Discard { volume, entry });
        let before = out.tasks.len();
        out.tasks.extend(discards);
        self.discarding += out.tasks.len() - before;
        self.pump_published(out);
        self.pump_committed(out);
        // Removing a part changes its folder's time, making its journal, too: a folder's end waits for that.
        while let Some(end) = self.machine.next_folder_end().filter(|_| self.is_calm()) {
            self.sweep(&end, out);
            let made = if self.record.dry { Ok(()) } else { self.sink.make(&end) };
            match made {
                Ok(()) => self.committed.push((end.id, [0; 32])),
                Err(error) => self.fail(end.id, fault_kind(&error, false), Some(&error), "set the folder's times"),
            }
            self.pump_committed(out);
        }
        if !self.faults.is_empty() {
            out.frames.push(Frame::Faults(std::mem::take(&mut self.faults)));
        }
        if !self.forget.is_empty() {
            for worker in 0..self.workers {
                out.cmds.push((worker, Cmd::Forget { job: self.job, entries: self.forget.clone() }));
            }
            self.forget.clear();
        }
        // Another volume's committer may still be removing what failed there.
        if self.machine.is_done() && self.settled.is_none() && self.is_calm() && self.is_pruned(out) {
            self.settled = Some(self.record.dry);
            if self.record.dry {
                return;
            }
            out.tasks.push(Task::Settle { rung: self.record.rung });
        }
    }

    fn pump_acks(&mut self, out: &mut Outbox<P>) {
        let mut ranges: Vec<ChunkRange> = Vec::new();
        self.machine.next_acks(&mut ranges);
        if !ranges.is_empty() {
            out.frames.push(Frame::Acks(ranges));
        }
        out.frames.append(&mut self.nacks);
        out.frames.extend(self.closing.drain(..).map(|rail| Frame::RailClosed { rail }));
    }

    /// Everything announced is resolved and durable as asked.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.settled == Some(true)
    }

    /// The job is over, well or not, and nothing of it is in flight any more: what no later run can go on with is taken away, and what it held
    /// is nobody's.
    pub fn leave(&mut self) {
        if !self.record.dry {
            // Large parts stay for a later run.
            let is_small = |entry: &&Arc<Entry>| entry.is_file() && entry.bytes() <= JOURNAL_FILE_BYTES_MIN;
            self.machine.open().filter(is_small).for_each(|entry| self.sink.discard(entry));
            self.discards.drain(..).for_each(|(volume, entry)| self.sink.discard_on(volume, &entry));
        }
        if let Some(claims) = self.sink.claims() {
            claims.let_go();
        }
    }

    /// For the watchdog: unresolved entries.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.machine.open_count()
    }
}

/// Another job writes this file.
fn in_use(entry: EntryId, owner: &str) -> EntryFault {
    let owner = if owner.is_empty() { "another job".to_owned() } else { format!("another job ({owner})") };
    EntryFault { entry, kind: FaultKind::InUse, errno: 0, step: format!("{owner} writes it now") }
}

fn show(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
