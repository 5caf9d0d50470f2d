//! The sending end.
//!
//! For: scan batches in, chunks handed to workers, the sender's half of the receipt.
//! In and out: `scan`, `on_frame`, `on_event`, `pump`; see `Outbox`.
//! Invariants: a `FileEnd` goes out only after a look at the source that found it unchanged; the receiver's digest of a file must be ours.
//! Absent on purpose: order of work (proto::send).

mod rails; // rails that come and go
mod scan; // entries announced
mod wants; // what the receiver wants of them
mod striped; // sources on several volumes
mod holes; // what of a source is zeros
mod over; // committed, or failed
mod resumed; // what the receiver has from an earlier run is read again
mod resumed_chunks; // which chunks those are

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use proto::error::{Breach, Refusal};
use proto::manifest::EntryId;
use proto::negotiate::Plan;
use proto::send::{FollowUp, Sender};
use proto::wire::control::{Digest, Durability, FaultKind, Frame};

use crate::job::{Cmd, Event, JobNo, Terms};
use crate::machine::compare::Compare;
use crate::machine::{Outbox, Record, Stop, fault, told};
use crate::platform::Platform;
use crate::seal::digest::DigestTree;

use resumed_chunks::Resumed;

/// A rail as the sending end knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RailState {
    /// Takes chunks.
    Up,
    /// Cut or dead; the receiver's account is awaited.
    Down,
}

/// The sending end of one job: what was scanned, what was asked for, and the sender's digests.
#[derive(Debug)]
pub struct SendEnd<P: Platform> {
    /// For report and receipt.
    pub record: Record,
    job: JobNo,
    workers: usize,
    depth: usize,
    machine: Sender,
    source: Arc<P::Source>,
    trees: HashMap<EntryId, DigestTree>,
    /// Bytes of holes told.
    holes: HashMap<EntryId, u64>,
    digests: HashMap<EntryId, Digest>,
    /// The receiver asked for these to be compared: what it keeps then is known to be the same.
    compared: HashSet<EntryId>,
    /// The receiver reads back what it has of these; bytes that it does not have in any case.
    resuming: HashMap<EntryId, u64>,
    /// Of these what an earlier run had sent is read again.
    resumed: HashMap<EntryId, Resumed>,
    rails: BTreeMap<u16, RailState>,
    closed_rails: HashSet<u16>,
    scan_faults: u64,
    announced_end: bool,
}

impl<P: Platform> SendEnd<P> {
    /// A job that sends from `source` through `workers` workers, `depth` chunks in flight per rail.
    #[must_use]
    pub fn new(
        job: JobNo,
        terms: Terms,
        plan: &Plan,
        durability: Durability,
        source: Arc<P::Source>,
        workers: usize,
        depth: usize,
    ) -> Self {
        SendEnd {
            record: Record::new(terms, durability),
            job,
            workers,
            depth,
            machine: Sender::new(plan.chunk_bytes),
            source,
            trees: HashMap::new(),
            holes: HashMap::new(),
            digests: HashMap::new(),
            compared: HashSet::new(),
            resuming: HashMap::new(),
            resumed: HashMap::new(),
            rails: BTreeMap::new(),
            closed_rails: HashSet::new(),
            scan_faults: 0,
            announced_end: false,
        }
    }

    /// A frame came from the receiver.
    pub fn on_frame(&mut self, frame: Frame, out: &mut Outbox<P>) -> Result<(), Stop> {
        match frame {
            Frame::Wants(wants) => {
                for (id, want) in wants {
                    self.on_want(id, &want, out)?;
                }
            }
            Frame::Have { entry: id, first, digests } => {
                if let Some(entry) = self.machine.on_have(id, first, digests.len() as u64)? {
                    out.compares.push(Compare::Told { entry, first, digests });
                }
            }
            Frame::Pruned { removed, left, paths } => {
                (self.record.tally.removed, self.record.tally.left) = (removed, left);
                self.record.extras = paths;
            }
            Frame::Acks(ranges) => {
                for range in ranges {
                    self.machine.on_acks(range)?;
                }
            }
            Frame::Nack { chunk, corrupt } => {
                self.record.tally.corrupt += 1;
                out.notes.push(format!("chunk {chunk} came corrupt ({corrupt:?}), it goes again"));
                if let FollowUp::Corrupt(id) = self.machine.on_nack(chunk)? {
                    self.give_up(fault(id, FaultKind::Corrupt, None, "send it again and again"), out);
                }
            }
            Frame::Committed(list) => {
                for (id, digest) in list {
                    self.on_committed(id, &digest)?;
                }
            }
            Frame::Faults(faults) => {
                for fault in faults {
                    self.on_peer_fault(fault, out)?;
                }
            }
            Frame::Unkept(list) => {
                for (id, what) in list {
                    // Told before the entry is resolved; it may have failed here meanwhile.
                    match self.machine.entry(id) {
                        Some(entry) => self.record.unkept.add(what, &entry.path),
                        None if id < self.machine.announced() => {}
                        None => return Err(Breach::EntryUnknown.into()),
                    }
                }
            }
            Frame::RailClosed { rail } => {
                self.closed_rails.insert(rail);
                self.rails.remove(&rail);
                self.machine.on_rail_closed(rail);
                out.cmds.push((usize::from(rail) % self.workers, Cmd::RailDown { job: self.job, rail }));
            }
            _ => return Err(Breach::WrongOrder.into()),
        }
        Ok(())
    }

    /// A worker tells.
    pub fn on_event(&mut self, event: Event, out: &mut Outbox<P>) -> Result<(), Stop> {
        match event {
            // A chunk that was taken back meanwhile (its rail was closed) tells its fate under its new id.
            Event::Read { chunk, .. } | Event::PackRead { chunk, .. } if !self.machine.is_out(chunk) => {}
            Event::Dropped { rail, chunk, .. } if !self.machine.is_out(chunk) => self.machine.on_sent(rail),
            Event::Read { chunk, entry, offset, digest } => {
                self.check_piece(entry, offset, &digest, out);
                let index = offset / u64::from(self.record.terms.chunk_bytes);
                let is_resumed = self.resumed.get(&entry).is_some_and(|it| it.has(index));
                if let Some(tree) = self.trees.get_mut(&entry) {
                    // A chunk read again gives the same digest or the file is torn; the second look finds that.
                    if tree.root().is_none() && !is_resumed {
                        tree.put(index, digest);
                    }
                }
                let due = self.machine.on_read(chunk);
                self.follow_up(due, out);
            }
            Event::SourceChanged { error, .. } => self.give_up(told(&error), out),
            Event::PackRead { chunk, digests, failed } => {
                self.digests.extend(digests);
                let due = self.machine.on_read(chunk);
                self.follow_up(due, out);
                for error in &failed {
                    self.give_up(told(error), out);
                }
            }
            Event::Sent { rail, bytes, payload, .. } => {
                self.record.tally.moved += payload;
                self.record.tally.rail_bytes += bytes;
                self.machine.on_sent(rail);
            }
            Event::Dropped { rail, chunk, error } => {
                self.machine.on_dropped(rail, chunk);
                self.give_up(told(&error), out);
            }
            Event::RailDead { rail, end } => {
                if self.rails.get(&rail) == Some(&RailState::Up) {
                    self.rails.insert(rail, RailState::Down);
                    self.machine.rail_down(rail);
                    out.notes.push(format!("rail {rail} is gone: {end:?}"));
                    out.frames.push(Frame::RailDown { rail });
                }
            }
            Event::Closed { .. } => {}
            Event::Panicked { why } => return Err(Stop::Refused { code: Refusal::Internal.code(), detail: why }),
            _ => unreachable!("receivers' events do not reach a sending end"),
        }
        Ok(())
    }

    /// Hands out as much as the rails take.
    pub fn pump(&mut self, out: &mut Outbox<P>) {
        loop {
            while let Some(assignment) = self.machine.next_chunk(self.depth) {
                let worker = usize::from(assignment.rail) % self.workers;
                out.cmds.push((worker, Cmd::Send { job: self.job, assignment }));
            }
            let Some((entry, first)) = self.machine.next_unmapped() else { break };
            if entry.meta.striped && !self.machine.has_places(entry.id) {
                if let Some(join) = self.join(&entry, out) {
                    self.machine.on_places(entry.id, join);
                }
            } else {
                self.map(&entry, first, out);
            }
        }
        self.record.tally.resent = self.machine.resent_bytes();
    }

    /// Everything announced is resolved.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.announced_end && self.machine.is_done()
    }

    /// For the watchdog: unresolved entries and chunks not acknowledged.
    #[must_use]
    pub fn open_counts(&self) -> (usize, usize) {
        self.machine.open_counts()
    }

    /// The path of the largest file that is being sent.
    #[must_use]
    pub fn largest_open(&self) -> Option<&[u8]> {
        self.machine.largest_open().map(|entry| &*entry.path)
    }
}
