//! The sending end: which chunk goes next over which rail, and what follows after it went.
//!
//! For: the order of work of a sending job, from announced entry to resolved entry.
//! In and out: `announce`, `on_*` take facts; `next_chunk` assigns work; `FollowUp` says what the caller must do at once.
//! Invariants: a unit is outstanding under one chunk id at a time; a unit goes again only after a
//! `Nack` or after the receiver closed the rail's account (`on_rail_closed`), so nothing is sent twice that has arrived.
//! Absent on purpose: payload, digests, sockets, time.

mod entries; // from announced to resolved
mod wants; // what the receiver wants of a file
mod rails; // which rail is next
mod holes; // what of a file is not read
mod lanes; // of a striped file, the next chunk of each volume
mod near; // which volumes are on the node of a rail's worker
mod ranges; // of files that are sent side by side, which chunk is next
mod tail; // what a straggler has outstanding at the end goes over the others

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::error::Breach;
use crate::manifest::{Entry, EntryId};
use crate::wire::chunk::PACK_LINE_BYTES;
use crate::wire::control::{ChunkId, ChunkRange};

use lanes::Lanes;
use near::{Near, View};
use rails::Rails;
pub use rails::{CHUNKS_IN_FLIGHT_MAX, Pace};
pub use tail::Brings;

/// A chunk's content, before it has an id.
#[derive(Debug, Clone)]
pub enum Unit {
    /// `bytes` at `index × chunk_bytes` of one file.
    Range { entry: Arc<Entry>, index: u64, offset: u64, bytes: u32 },
    /// Whole small files.
    Pack { entries: Box<[Arc<Entry>]> },
}

impl Unit {
    /// Payload length as announced (a pack's index included).
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Unit::Range { bytes, .. } => u64::from(*bytes),
            Unit::Pack { entries } => entries.iter().map(|entry| entry.bytes() + PACK_LINE_BYTES as u64).sum(),
        }
    }
}

/// One chunk handed to one rail.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// Its id, new each time it is handed out.
    pub chunk: ChunkId,
    /// Where it goes.
    pub rail: u16,
    /// What it is.
    pub unit: Unit,
    /// It was handed out before under another id.
    pub again: bool,
}

/// What the caller must do at once after a fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FollowUp {
    /// Nothing.
    Nothing,
    /// All wanted chunks of the file were read: look whether the source changed, then call `file_ended` or `on_fault`.
    CheckSource(EntryId),
    /// The same piece came corrupt too often: the entry has failed.
    Corrupt(EntryId),
}

#[derive(Debug)]
struct Item {
    entry: Arc<Entry>,
    state: State,
    retries: u8,
    /// Ranges of it that are handed out and not acknowledged.
    flying: usize,
    /// Of a striped file whose turn has come.
    lanes: Option<Lanes>,
}

#[derive(Debug)]
enum State {
    /// from: – · to: Comparing, Reading, (gone). Announced, the receiver has not answered.
    Announced,
    /// from: Announced · to: Compared, (gone). The receiver tells digests of its version; `told` of `chunks` came, `looked` are compared.
    Comparing { chunks: u64, told: u64, looked: u64, differ: Vec<ChunkRange> },
    /// from: Comparing · to: Reading, (gone). It knows what differs and has not answered. `read`: the first so many chunks were.
    Compared { read: u64 },
    /// from: Announced · to: Ended, (gone). Chunks go out; `unread` were not read yet. `open`: the receiver reads back what it has, and may
    /// want more. From chunk `mapped` on nobody knows yet where the source has holes: nothing of it is handed out before.
    Reading { ranges: VecDeque<ChunkRange>, unread: u64, whole: bool, open: bool, mapped: u64 },
    /// from: Reading · to: (gone). All read, `FileEnd` sent or, in a pack, not needed.
    Ended,
}

#[derive(Debug)]
struct Out {
    rail: u16,
    unit: Unit,
    /// The volume that it is read from.
    volume: u16,
    read: bool,
    /// Acknowledged before the worker's word that it was read came through: kept until that word is here.
    acked: bool,
}

/// Corrupt arrivals of chunks of one entry before it is given up.
const RETRIES_MAX: u8 = 8;

/// See the module.
#[derive(Debug)]
pub struct Sender {
    chunk_bytes: u32,
    items: BTreeMap<EntryId, Item>,
    next_entry: EntryId,
    name_bytes: usize,
    /// Files that wait for their turn, by the volume of the source they stand on.
    large: BTreeMap<u16, VecDeque<EntryId>>,
    /// Files whose ranges are handed out now, at most `spread`.
    open: Vec<EntryId>,
    /// The next range would be of this one, and is not mapped.
    unmapped: Option<EntryId>,
    spread: usize,
    /// Each file goes to one disk of several, which may be slow.
    spreads_out: bool,
    /// By volume: chunks handed out and not read.
    reading: Vec<usize>,
    small: VecDeque<EntryId>,
    again: VecDeque<Unit>,
    out: BTreeMap<ChunkId, Out>,
    next_chunk: ChunkId,
    rails: Rails,
    near: Near,
    scan_ended: bool,
    resent_bytes: u64,
}

impl Sender {
    /// A job that sends in chunks of `chunk_bytes`.
    #[must_use]
    pub fn new(chunk_bytes: u32) -> Self {
        Sender {
            chunk_bytes,
            items: BTreeMap::new(),
            next_entry: 0,
            name_bytes: 0,
            large: BTreeMap::new(),
            open: Vec::new(),
            unmapped: None,
            spread: 1,
            spreads_out: false,
            reading: Vec::new(),
            small: VecDeque::new(),
            again: VecDeque::new(),
            out: BTreeMap::new(),
            next_chunk: 0,
            rails: Rails::default(),
            near: Near::default(),
            scan_ended: false,
            resent_bytes: 0,
        }
    }

    /// Files are sent side by side, because they come from so many volumes or go to so many. Of these the one with the fewest chunks on
    /// their way is next: a slow volume holds its share of what is on its way, and no more.
    pub fn spread_over(&mut self, from: u16, to: u16) {
        (self.spread, self.spreads_out) = (usize::from(from.max(to)).max(1), to > 1);
    }

    /// On which memory nodes volumes are, and the workers that rails take in turn: a chunk goes rather over a rail whose worker is on the node of the
    /// volume that has it. Unknown, or empty: all the same.
    pub fn lie_on(&mut self, volumes: Vec<Option<u16>>, workers: Vec<u16>) {
        self.near = Near { volumes, workers };
    }

    /// Payload bytes handed out a second time or more.
    #[must_use]
    pub fn resent_bytes(&self) -> u64 {
        self.resent_bytes
    }

    /// Is there anything that could be handed out now?
    #[must_use]
    pub fn has_work(&self) -> bool {
        !(self.again.is_empty() && self.open.is_empty() && self.large.is_empty() && self.small.is_empty())
    }

    /// The next chunk, for the rail with the fewest in flight, if one has fewer than `depth`.
    pub fn next_chunk(&mut self, depth: usize) -> Option<Assignment> {
        if !self.has_work() {
            return None;
        }
        let left = if self.rails.are_paced() { self.left_bytes() } else { None };
        let rail = self.rails.next(depth, self.chunk_bytes.into(), left)?;
        let (unit, again) = self.next_unit(rail)?;
        self.rails.on_assigned(rail, unit.bytes());
        let chunk = self.next_chunk;
        self.next_chunk += 1;
        if again {
            self.resent_bytes += unit.bytes();
        }
        self.fly(&unit, 1);
        let volume = self.volume_of(&unit);
        if !again {
            self.reading_on(volume, 1);
        }
        self.out.insert(chunk, Out { rail, unit: unit.clone(), volume, read: again, acked: false });
        Some(Assignment { chunk, rail, unit, again })
    }

    fn next_unit(&mut self, rail: u16) -> Option<(Unit, bool)> {
        while let Some(unit) = self.again.pop_front() {
            if let Some(unit) = self.still_wanted(unit) {
                return Some((unit, true));
            }
        }
        if let Some(unit) = self.next_pack() {
            return Some((unit, false));
        }
        self.next_range(rail).map(|unit| (unit, false))
    }

    fn still_wanted(&self, unit: Unit) -> Option<Unit> {
        match unit {
            Unit::Range { ref entry, .. } => self.items.contains_key(&entry.id).then_some(unit),
            Unit::Pack { entries } => {
                let left: Box<[_]> =
                    entries.iter().filter(|entry| self.items.contains_key(&entry.id)).cloned().collect();
                (!left.is_empty()).then_some(Unit::Pack { entries: left })
            }
        }
    }

    /// Small files first: they resolve entries and so keep the scan going.
    fn next_pack(&mut self) -> Option<Unit> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        while let Some(&id) = self.small.front() {
            let Some(item) = self.items.get(&id) else {
                self.small.pop_front();
                continue;
            };
            let more = item.entry.bytes() + PACK_LINE_BYTES as u64;
            if bytes + more > u64::from(self.chunk_bytes) {
                break;
            }
            bytes += more;
            entries.push(item.entry.clone());
            self.small.pop_front();
        }
        (!entries.is_empty()).then(|| Unit::Pack { entries: entries.into_boxed_slice() })
    }

    /// A unit is handed out, or is on its way no more.
    fn fly(&mut self, unit: &Unit, more: isize) {
        if let Unit::Range { entry, .. } = unit
            && let Some(item) = self.items.get_mut(&entry.id)
        {
            item.flying = item.flying.saturating_add_signed(more);
        }
    }

    /// A chunk is outstanding no more.
    fn take_out(&mut self, chunk: ChunkId) -> Option<Out> {
        let out = self.out.remove(&chunk)?;
        self.fly(&out.unit, -1);
        if !out.read {
            self.reading_on(out.volume, -1);
        }
        if !out.acked {
            self.rails.on_settled(out.rail, out.unit.bytes());
        }
        Some(out)
    }

    /// The worker has read (and hashed) the chunk.
    pub fn on_read(&mut self, chunk: ChunkId) -> FollowUp {
        let Some(out) = self.out.get_mut(&chunk) else { return FollowUp::Nothing };
        let (first_time, volume) = (!core::mem::replace(&mut out.read, true), out.volume);
        let due = match &out.unit {
            _ if !first_time => FollowUp::Nothing,
            Unit::Range { entry, .. } => match self.items.get_mut(&entry.id) {
                Some(Item { state: State::Reading { unread, open, .. }, .. }) => {
                    *unread -= 1;
                    if *unread == 0 && !*open { FollowUp::CheckSource(entry.id) } else { FollowUp::Nothing }
                }
                _ => FollowUp::Nothing,
            },
            Unit::Pack { entries } => {
                for entry in entries {
                    if let Some(item) = self.items.get_mut(&entry.id) {
                        item.state = State::Ended;
                    }
                }
                FollowUp::Nothing
            }
        };
        let acked = out.acked;
        if first_time {
            self.reading_on(volume, -1);
        }
        if acked {
            self.take_out(chunk);
        }
        due
    }

    /// Is the chunk outstanding under this id? What a worker tells of another is of the past: its unit goes under a new id.
    #[must_use]
    pub fn is_out(&self, chunk: ChunkId) -> bool {
        self.out.contains_key(&chunk)
    }

    /// A worker could not send a chunk it was given (its entry failed): it is no longer outstanding.
    pub fn on_dropped(&mut self, rail: u16, chunk: ChunkId) {
        self.take_out(chunk);
        self.on_sent(rail);
    }

    /// The receiver has these chunks.
    pub fn on_acks(&mut self, range: ChunkRange) -> Result<(), Breach> {
        if range.first >= range.end || range.end > self.next_chunk || range.end - range.first > self.out.len() as u64 {
            return Err(Breach::ChunkUnknown);
        }
        for chunk in range.first..range.end {
            match self.out.get_mut(&chunk) {
                Some(out) if out.acked => return Err(Breach::ChunkUnknown),
                Some(out) if !out.read => {
                    out.acked = true;
                    let (rail, bytes) = (out.rail, out.unit.bytes());
                    self.rails.on_settled(rail, bytes);
                }
                Some(_) => drop(self.take_out(chunk)),
                None => return Err(Breach::ChunkUnknown),
            }
        }
        Ok(())
    }

    /// The receiver had to throw a chunk away: it goes again.
    pub fn on_nack(&mut self, chunk: ChunkId) -> Result<FollowUp, Breach> {
        let out = self.take_out(chunk).filter(|out| !out.acked).ok_or(Breach::ChunkUnknown)?;
        let first = match &out.unit {
            Unit::Range { entry, .. } => entry.id,
            Unit::Pack { entries } => entries[0].id,
        };
        self.send_again(out);
        if let Some(item) = self.items.get_mut(&first) {
            item.retries += 1;
            if item.retries > RETRIES_MAX {
                // The rest of a pack goes again without it.
                return Ok(FollowUp::Corrupt(first));
            }
        }
        Ok(FollowUp::Nothing)
    }

    /// The receiver has acknowledged all that came over a rail and will take no more from it: the rest goes again.
    pub fn on_rail_closed(&mut self, rail: u16) {
        self.rails.remove(rail);
        let lost: Vec<ChunkId> =
            self.out.iter().filter(|(_, out)| out.rail == rail && !out.acked).map(|(&id, _)| id).collect();
        for chunk in lost {
            let out = self.take_out(chunk).expect("listed above");
            self.send_again(out);
        }
    }

    /// The worker's word that it was read may be on its way still; under the old id it will count for nothing.
    fn send_again(&mut self, out: Out) {
        if out.read {
            self.again.push_back(out.unit);
        } else {
            self.take_back(&out.unit);
        }
    }
}
