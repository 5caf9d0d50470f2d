//! The receiving end.
//!
//! For: entries looked at, chunks accounted for, parts flushed and published, the receiver's half of the receipt.
//! In and out: `on_frame`, `on_event`, `on_settled`, `pump`; see `Outbox`.
//! Invariants: nothing is acknowledged above the durability level it reached; `Expect` goes to workers before `Want` goes to the sender; a journal
//! record is handed to the committer together with the flush that must precede it; one publishing batch is on its way at a time, so
//! batches grow by themselves when the disk is slow.
//! Absent on purpose: order of facts (proto::recv), file-system calls beside the tree's.

mod frames; // what the sender says
mod carried; // digests of files published by an earlier run
mod entries; // entries announced: what is wanted of each
mod compare; // another version stands there
mod holes; // what is zeros and does not come
mod over; // published, or failed
mod progress; // what a kill of this process does not cost
mod coming; // files on their way
mod parts; // what has come of large files, journalled and taken up again
mod settled; // what the committers answer
mod prune; // what the source does not have

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use proto::error::{Breach, Refusal};
use proto::manifest::{Aspects, Entry, EntryId};
use proto::negotiate::Plan;
use proto::recv::{Ready, Receiver};
use proto::wire::chunk::{ChunkKind, SEALED_HEADER_BYTES, TAG_BYTES};
use proto::wire::control::{ChunkRange, Compare, Digest, Durability, EntryFault, FaultKind, Frame};

use crate::job::{Cmd, Event, JobNo, Terms, fault_kind};
use crate::machine::names::Names;
use crate::machine::unjournalled::UnjournalledBytes;
use crate::machine::{Outbox, Record, Stop, fault, told};
use crate::platform::{Capabilities, Platform, SinkTree, VolumeSet};
use crate::seal::frame::tag_count;
use crate::tree::commit::Task;

pub use crate::tree::commit::{FLUSH_NS, JOURNAL_FILE_BYTES_MIN, NOTE_NS};
pub use carried::{Carried, carried_key};
use coming::{Coming, ReadBack};
/// Why a file with chunks of an earlier run is not published: together they are not what the source has now.
const OF_ANOTHER_SOURCE: &str = "go on with a part: what an earlier run had brought is of another source";

/// The receiving end of one job: what it knows of each entry, and what it owes the sender.
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
    /// What the sink can beyond what every one can.
    can: Capabilities,
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
    reading_back: HashMap<EntryId, ReadBack>,
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
        durability: Durability,
        sink: Arc<P::Sink>,
        workers: usize,
        keep: bool,
        boot: [u8; 8],
        carried: Carried,
    ) -> Self {
        RecvEnd {
            record: Record::new(terms, durability),
            job,
            workers,
            keep,
            boot,
            machine: Receiver::new(plan.chunk_bytes),
            publishing: vec![false; sink.volumes()],
            can: sink.clone().capabilities(),
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

    /// A rail is greeted and given to its worker. False: this number is spent, do not use the connection.
    pub fn rail_up(&mut self, rail: u16) -> bool {
        if self.closed_rails.contains(&rail) || self.up_rails.contains_key(&rail) {
            return false;
        }
        self.up_rails.insert(rail, true);
        true
    }

    /// Lets less than `HOLD_BYTES` wait for the disk.
    pub fn bound_unjournalled(&mut self, bytes: u64) {
        self.unjournalled.bound(bytes);
    }

    /// Rails that carry.
    #[must_use]
    pub fn rails_up(&self) -> usize {
        self.up_rails.len()
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
                    self.unjournalled.add(entry, u64::from(bytes));
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
                        self.unjournalled.add(id, bytes);
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
                        let owner = self.can.claims.as_ref().map_or_else(String::new, |it| it.owner_of(entry));
                        self.fail_in_use(entry.id, &owner);
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
            self.unjournalled.add(id, entry.bytes() - coming.holes);
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
            out.tasks.push(Task::Settle { durability: self.record.durability });
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

    /// For the watchdog: unresolved entries.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.machine.open_count()
    }

    /// The path of the largest file that is being received.
    #[must_use]
    pub fn largest_open(&self) -> Option<&[u8]> {
        let open = self.coming.keys().filter_map(|&id| self.machine.entry(id));
        open.max_by_key(|entry| entry.bytes()).map(|entry| &*entry.path)
    }
}

fn show(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
