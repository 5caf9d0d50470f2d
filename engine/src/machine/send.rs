//! The sending end.
//!
//! For: scan batches in, chunks handed to workers, the sender's half of the receipt.
//! In and out: `scan`, `on_frame`, `on_event`, `pump`; see `Outbox`.
//! Invariants: a `FileEnd` goes out only after a look at the source that found it unchanged; the receiver's digest of a file must be ours.
//! Absent on purpose: order of work (proto::send).

mod resumed; // chunks that the receiver has from an earlier run

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use proto::error::{Breach, Refusal};
use proto::ledger::chunk_len;
use proto::manifest::{ENTRY_PATH_BYTES_MAX, Entry, EntryId};
use proto::negotiate::Plan;
use proto::send::{Brings, Owed, Pace, Sender};
use proto::striped::Join;
use proto::wire::control::{
    ChunkRange, Digest, EntryFault, FaultKind, Frame, IdName, Rung, STEP_BYTES_MAX, WANT_RANGES_MAX, Want,
};

use crate::job::{Cmd, Cover, Event, JobNo, Terms, fault_kind};
use crate::machine::compare::{Compare, Compared, show_differ};
use crate::machine::{Outbox, Record, Stop, fault, told};
use crate::platform::{Holes, Platform, SourceTree};
use crate::seal::digest::DigestTree;
use crate::seal::frame::chunk_digest;

use resumed::Resumed;

/// A rail as the sending end knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RailState {
    /// Takes chunks.
    Up,
    /// Cut or dead; the receiver's account is awaited.
    Down,
}

/// See the module.
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
    /// A job that sends from `source` through `workers` workers, `depth` chunks in hand per rail.
    #[must_use]
    pub fn new(
        job: JobNo,
        terms: Terms,
        plan: &Plan,
        rung: Rung,
        source: Arc<P::Source>,
        workers: usize,
        depth: usize,
    ) -> Self {
        SendEnd {
            record: Record::new(terms, rung),
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

    /// See `proto::send::Sender::spread_over`.
    pub fn spread_over(&mut self, from: u16, to: u16) {
        self.machine.spread_over(from, to);
    }

    /// See `proto::send::Sender::lie_on`.
    pub fn lie_on(&mut self, volumes: Vec<Option<u16>>, workers: Vec<u16>) {
        self.machine.lie_on(volumes, workers);
    }

    /// Entries that may be announced now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.machine.room()
    }

    /// The scan met these users and groups, before the entries that have them.
    pub fn names(&mut self, names: Vec<IdName>, out: &mut Outbox<P>) {
        if !names.is_empty() {
            out.frames.push(Frame::Names(names));
        }
    }

    /// The scan found these.
    pub fn scan(&mut self, batch: Vec<Entry>, out: &mut Outbox<P>) {
        let entries: Vec<Entry> = batch
            .into_iter()
            .map(|entry| {
                self.record.announced(&entry);
                (*self.machine.announce(entry)).clone()
            })
            .collect();
        if !entries.is_empty() {
            out.frames.push(Frame::Entries(entries));
        }
    }

    /// The scan could not look at this place.
    pub fn scan_fault(&mut self, path: &[u8], error: &std::io::Error, out: &mut Outbox<P>) {
        self.scan_faults += 1;
        // What is no system call's error says itself what it is.
        let own = error.get_ref().map(|it| it.to_string()).filter(|it| it.len() <= STEP_BYTES_MAX);
        let fault = fault(u64::MAX, fault_kind(error, true), Some(error), own.as_deref().unwrap_or("scan"));
        let shown = &path[..path.len().min(ENTRY_PATH_BYTES_MAX)];
        out.frames.push(Frame::Unseen(vec![(fault.clone(), shown.into())]));
        self.record.failed(fault, path);
    }

    /// The scan is over.
    pub fn scan_ended(&mut self, out: &mut Outbox<P>) {
        self.machine.scan_ended();
        self.record.tally.scan_ended = true;
        self.announced_end = true;
        let tally = &self.record.tally;
        out.frames.push(Frame::ScanEnd {
            entries: self.machine.announced(),
            files: tally.files_total,
            bytes: tally.bytes_total,
            faults: self.scan_faults,
        });
    }

    /// A rail is connected and greeted. False: the receiver has closed its account already, do not use the connection.
    pub fn rail_up(&mut self, rail: u16) -> bool {
        if self.closed_rails.contains(&rail) {
            return false;
        }
        self.rails.insert(rail, RailState::Up);
        self.machine.rail_up(rail);
        true
    }

    /// A rail is to bring what it has and takes no more.
    pub fn rest_rail(&mut self, rail: u16) {
        self.machine.rest_rail(rail);
    }

    /// What a rail was seen to do, where there are several paths.
    pub fn pace_rail(&mut self, rail: u16, pace: Pace) {
        self.machine.pace_rail(rail, pace);
    }

    /// The paths whose rails are to be cut, because the others bring sooner what these owe at the end.
    #[must_use]
    pub fn stragglers(&self, lead_ns: u64, brings: &[Brings]) -> Vec<usize> {
        self.machine.stragglers(lead_ns, brings)
    }

    /// Chunks that this rail still has to bring.
    #[must_use]
    pub fn owed_by(&self, rail: u16) -> usize {
        self.machine.owed_by(rail)
    }

    /// Do workers still owe a word on chunks that they were given?
    #[must_use]
    pub fn has_untold(&self) -> bool {
        self.machine.in_hand() > 0
    }

    /// Rails that carry.
    #[must_use]
    pub fn rails_up(&self) -> usize {
        self.rails.values().filter(|state| **state == RailState::Up).count()
    }

    /// Changes how many chunks a rail may have in hand.
    pub fn set_depth(&mut self, depth: usize) {
        self.depth = depth;
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
                if let Owed::Corrupt(id) = self.machine.on_nack(chunk)? {
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

    fn on_want(&mut self, id: EntryId, want: &Want, out: &mut Outbox<P>) -> Result<(), Stop> {
        let entry = self.machine.entry(id).cloned();
        let is_last = !matches!(want, Want::Compare { .. } | Want::MissingSoFar { .. });
        if let (true, true, Some(entry)) = (is_last, self.record.dry, &entry) {
            self.count_want(entry, want);
            self.source.done(entry);
            self.compared.remove(&id);
            self.machine.on_committed(id)?;
            return Ok(());
        }
        let owed = self.machine.on_want(id, want)?;
        let compared = is_last && self.compared.remove(&id);
        let Some(entry) = entry else { return Ok(()) };
        let chunk_bytes = self.record.terms.chunk_bytes;
        let is_striped = entry.meta.striped && !matches!(want, Want::Keep { .. });
        if is_striped && self.join(&entry, out).is_none() {
            return Ok(());
        }
        match want {
            Want::Keep { digest } => {
                self.source.done(&entry);
                self.record.kept(&entry, digest.as_ref(), compared);
            }
            Want::All => {
                if entry.bytes() > proto::wire::chunk::PACK_FILE_BYTES_MAX && self.record.terms.cover != Cover::Bare {
                    let tree = DigestTree::new(self.record.terms.digest, entry.bytes(), chunk_bytes);
                    self.trees.insert(id, tree);
                }
            }
            Want::Missing { ranges } => {
                self.source.resumes(&entry);
                let asked_for = bytes_in(ranges, &entry, chunk_bytes);
                let asked_before = self.resuming.remove(&id);
                let missing = asked_for + asked_before.unwrap_or(0);
                let tally = &mut self.record.tally;
                tally.bytes_resumed += entry.bytes().saturating_sub(missing);
                // After `MissingSoFar` the receiver asks for what it read back and found to be something else.
                tally.bytes_readback_failed += asked_before.map_or(0, |_| asked_for);
            }
            // What the receiver does have is known when it has read it back.
            Want::MissingSoFar { ranges } => {
                self.source.resumes(&entry);
                self.resuming.insert(id, bytes_in(ranges, &entry, chunk_bytes));
                self.read_resumed(&entry, ranges, out);
            }
            Want::Compare { .. } => _ = self.compared.insert(id),
        }
        self.owed(owed, out);
        Ok(())
    }

    /// Where the chunks of a striped file stand. `None`: not all of them do, and it has failed.
    fn join(&mut self, entry: &Entry, out: &mut Outbox<P>) -> Option<Arc<Join>> {
        let join = self.source.join(entry).and_then(|join| match join.chunk_bytes() {
            least if self.record.terms.chunk_bytes > least => {
                let cause = format!("it is cut into chunks of {least} bytes: read it with --chunk of no more");
                Err(std::io::Error::new(std::io::ErrorKind::Unsupported, cause))
            }
            _ => Ok(join),
        });
        let error = match join {
            Ok(join) => return Some(join),
            Err(error) => error,
        };
        let damaged = error.kind() == std::io::ErrorKind::InvalidData;
        let kind = if damaged { FaultKind::Corrupt } else { fault_kind(&error, true) };
        self.give_up(fault(entry.id, kind, Some(&error), &format!("join its chunks: {error}")), out);
        None
    }

    /// The comparer tells.
    pub fn on_compared(&mut self, compared: Compared, out: &mut Outbox<P>) {
        let (id, same) = match compared {
            Compared::Told { entry, same } => (entry, same),
            Compared::Own { entry, first, digests } => return self.on_own(entry, first, digests, out),
        };
        match same {
            Ok(same) => {
                self.record.tally.compared += same.len() as u64 * u64::from(self.record.terms.chunk_bytes);
                if let Some(ranges) = self.machine.compared(id, &same) {
                    if let Some(entry) = self.machine.entry(id).filter(|_| !ranges.is_empty()) {
                        out.notes.push(show_differ(entry, &ranges, self.record.terms.chunk_bytes));
                    }
                    out.frames.push(Frame::Differ { entry: id, ranges });
                }
            }
            Err(error) => self.give_up(fault(id, fault_kind(&error, true), Some(&error), "read it to compare"), out),
        }
    }

    /// A dry run: what would be done is done with being counted.
    fn count_want(&mut self, entry: &Entry, want: &Want) {
        let tally = &mut self.record.tally;
        tally.files_done += 1;
        tally.bytes_done += entry.bytes();
        match want {
            Want::Keep { .. } => tally.kept(entry.bytes(), self.compared.contains(&entry.id)),
            Want::All | Want::Compare { .. } => {}
            Want::Missing { ranges } | Want::MissingSoFar { ranges } => {
                let missing = bytes_in(ranges, entry, self.record.terms.chunk_bytes);
                tally.bytes_resumed += entry.bytes().saturating_sub(missing);
            }
        }
    }

    fn on_committed(&mut self, id: EntryId, digest: &Digest) -> Result<(), Stop> {
        // It may have failed here while the word was on its way: then our `Faults` decides.
        let Some(entry) = self.machine.on_committed(id)? else { return Ok(()) };
        let own = self.digests.remove(&id);
        self.trees.remove(&id);
        self.resumed.remove(&id);
        self.holes.remove(&id);
        if entry.is_file() && own.is_some_and(|own| own != *digest) {
            return Err(Breach::DigestMismatch.into());
        }
        self.source.done(&entry);
        self.record.resolved(&entry, entry.is_file().then_some(digest));
        Ok(())
    }

    fn on_peer_fault(&mut self, fault: EntryFault, out: &mut Outbox<P>) -> Result<(), Stop> {
        let id = fault.entry;
        let Some(entry) = self.machine.on_fault(id) else { return Ok(()) };
        self.source.done(&entry);
        self.forget(id, out);
        self.record.failed(fault, &entry.path);
        Ok(())
    }

    fn forget(&mut self, id: EntryId, out: &mut Outbox<P>) {
        self.trees.remove(&id);
        self.compared.remove(&id);
        self.resuming.remove(&id);
        self.resumed.remove(&id);
        self.record.tally.holes -= self.holes.remove(&id).unwrap_or(0);
        self.digests.remove(&id);
        for worker in 0..self.workers {
            out.cmds.push((worker, Cmd::Forget { job: self.job, entries: vec![id] }));
        }
    }

    /// An entry fails at this end.
    fn give_up(&mut self, fault: EntryFault, out: &mut Outbox<P>) {
        let id = fault.entry;
        let Some(entry) = self.machine.on_fault(id) else { return };
        self.source.done(&entry);
        self.forget(id, out);
        out.frames.push(Frame::Faults(vec![fault.clone()]));
        self.record.failed(fault, &entry.path);
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
                let owed = self.machine.on_read(chunk);
                self.owed(owed, out);
            }
            Event::SourceChanged { error, .. } => self.give_up(told(&error), out),
            Event::PackRead { chunk, digests, failed } => {
                self.digests.extend(digests);
                let owed = self.machine.on_read(chunk);
                self.owed(owed, out);
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

    /// A chunk of a striped file is to be what its map says.
    fn check_piece(&mut self, id: EntryId, offset: u64, digest: &Digest, out: &mut Outbox<P>) {
        let Some(entry) = self.machine.entry(id).filter(|entry| entry.meta.striped).cloned() else { return };
        let terms = self.record.terms;
        if terms.cover == Cover::Bare {
            return; // nobody looked at it
        }
        let join = self.source.join(&entry).ok();
        let is_right = |join: &Arc<Join>| match join.is_hole(offset) {
            true => is_of_zeros(&terms, &entry, offset, digest),
            false => join.agrees(offset, terms.chunk_bytes, terms.digest, digest),
        };
        if !join.as_ref().is_some_and(is_right) {
            let index = offset / u64::from(terms.chunk_bytes);
            let volume = join.and_then(|it| it.volume_at(offset)).unwrap_or(0);
            let step = format!("read chunk {index} on volume {volume}: it is not what its map says");
            self.give_up(fault(id, FaultKind::Corrupt, None, &step), out);
        }
    }

    fn owed(&mut self, owed: Owed, out: &mut Outbox<P>) {
        match owed {
            Owed::Nothing => {}
            Owed::Corrupt(id) => self.give_up(fault(id, FaultKind::Corrupt, None, "send it again and again"), out),
            Owed::CheckSource(id) if self.holds_end(id) => {}
            Owed::CheckSource(id) => {
                let Some(entry) = self.machine.entry(id).cloned() else { return };
                match self.source.is_unchanged(&entry) {
                    Ok(true) => {
                        let is_known = self.machine.is_whole(id) || self.resumed.contains_key(&id);
                        let digest = self.trees.get(&id).and_then(DigestTree::root).filter(|_| is_known);
                        if let Some(digest) = digest {
                            self.digests.insert(id, digest);
                        }
                        self.machine.file_ended(id);
                        out.frames.push(Frame::FileEnd { entry: id, digest });
                    }
                    Ok(false) => self.give_up(fault(id, FaultKind::Torn, None, "look at the source again"), out),
                    Err(error) => {
                        let kind = fault_kind(&error, true);
                        self.give_up(fault(id, kind, Some(&error), "look at the source again"), out);
                    }
                }
            }
        }
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

    /// Looks where a file has holes from this chunk on, and tells the receiver of those that it misses.
    fn map(&mut self, entry: &Entry, first: u64, out: &mut Outbox<P>) {
        let chunk_bytes = u64::from(self.record.terms.chunk_bytes);
        let map = self.source.holes(entry, first * chunk_bytes);
        let map = map.unwrap_or_else(|error| {
            let path = String::from_utf8_lossy(&entry.path);
            out.notes.push(format!("{path}: its holes are read from byte {} on ({error})", first * chunk_bytes));
            Holes { ranges: Vec::new(), until: u64::MAX }
        });
        let whole =
            |&(start, end): &(u64, u64)| ChunkRange { first: start.div_ceil(chunk_bytes), end: end / chunk_bytes };
        let holes: Vec<ChunkRange> = map.ranges.iter().map(whole).filter(|hole| hole.first < hole.end).collect();
        let until = if map.until == u64::MAX { u64::MAX } else { map.until / chunk_bytes };
        let (told, owed) = self.machine.on_map(entry.id, &holes, until);
        for range in &told {
            if let Some(tree) = self.trees.get_mut(&entry.id) {
                let own = self.resumed.get(&entry.id).map_or_else(|| vec![*range], |it| it.others(*range));
                own.iter().for_each(|it| tree.put_zeros(it.first, it.end));
            }
            let bytes = (range.end - range.first) * chunk_bytes;
            *self.holes.entry(entry.id).or_default() += bytes;
            self.record.tally.holes += bytes;
        }
        let frame = |ranges: &[ChunkRange]| Frame::Holes { entry: entry.id, ranges: ranges.to_vec() };
        out.frames.extend(told.chunks(WANT_RANGES_MAX).map(frame));
        self.owed(owed, out);
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
}

/// Is this the digest of a chunk of zeros there? Seldom asked: holes are told, not read.
fn is_of_zeros(terms: &Terms, entry: &Entry, offset: u64, digest: &Digest) -> bool {
    let bytes = chunk_len(entry.bytes(), terms.chunk_bytes, offset / u64::from(terms.chunk_bytes));
    chunk_digest(terms, entry.bytes(), offset, &vec![0; bytes as usize]) == *digest
}

/// Bytes of these chunks of a file; the last may be short.
fn bytes_in(ranges: &[ChunkRange], entry: &Entry, chunk_bytes: u32) -> u64 {
    let chunk_bytes = u64::from(chunk_bytes);
    let end = |index: u64| index.saturating_mul(chunk_bytes).min(entry.bytes());
    ranges.iter().map(|range| end(range.end) - end(range.first)).sum()
}
