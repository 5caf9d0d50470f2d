//! The sending end: which chunk goes next over which rail, and what is owed after it went.
//!
//! For: the order of work of a sending job, from announced entry to resolved entry.
//! In and out: `announce`, `on_*` take facts; `next_chunk` hands out work; `Owed` says what the caller must do at once.
//! Invariants: at most `WINDOW` entries unresolved; a unit is outstanding under one chunk id at a time; a unit goes again only after a
//! `Nack` or after the receiver closed the rail's account (`on_rail_closed`), so nothing is sent twice that has arrived.
//! Absent on purpose: payload, digests, sockets, time.

mod holes; // what of a file is not read
mod lanes; // of a striped file, the next chunk of each volume
mod near; // which volumes are on the node of a rail's worker
mod ranges; // of files that are sent side by side, which chunk is next
mod tail; // what a straggler owes at the end goes over the others

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::error::Breach;
use crate::ledger::chunk_count;
use crate::manifest::{Entry, EntryId, EntryKind};
use crate::wire::chunk::{PACK_FILE_BYTES_MAX, PACK_LINE_BYTES};
use crate::wire::control::{ChunkId, ChunkRange, WANT_RANGES_MAX, Want};
use crate::{WINDOW, WINDOW_NAME_BYTES};

use lanes::Lanes;
use near::{Near, View};
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
    /// What is sent: a range of one file, or a pack.
    pub unit: Unit,
    /// It was handed out before under another id.
    pub again: bool,
}

/// What the caller owes after a fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owed {
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

#[derive(Debug)]
struct RailBook {
    in_hand: usize,
    /// So many it may have in hand: few at first and one more with each that is sent, so that a slow rail does not begin with more than it
    /// brings in seconds.
    reach: usize,
    /// Bytes handed to it and not acknowledged.
    owed: u64,
    /// It takes no more.
    rests: bool,
    /// What it was seen to do; `None`: it takes chunks as it sends them.
    pace: Option<Pace>,
}

/// What a rail was seen to do, where there are several paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Bytes per second; 0: not known yet.
    pub rate: u64,
    /// It may owe so many bytes.
    pub owed_max: u64,
}

/// Chunks that a rail has in hand, at the most.
pub const CHUNKS_IN_HAND_MAX: usize = 64;

impl RailBook {
    const REACH: core::ops::RangeInclusive<usize> = 2..=CHUNKS_IN_HAND_MAX;

    fn new() -> RailBook {
        RailBook { in_hand: 0, reach: *RailBook::REACH.start(), owed: 0, rests: false, pace: None }
    }

    /// Nanoseconds until it has brought what it owes and so many bytes more.
    fn brings_ns(&self, bytes: u64) -> u128 {
        let rate = self.pace.map_or(0, |pace| pace.rate).max(1);
        u128::from(self.owed + bytes) * 1_000_000_000 / u128::from(rate)
    }

    fn has_room(&self, depth: usize) -> bool {
        !self.rests && self.in_hand < depth.min(self.reach) && self.pace.is_none_or(|pace| self.owed < pace.owed_max)
    }
}

/// Corrupt arrivals of chunks of one entry before it is given up.
const RETRIES_MAX: u8 = 8;

/// What rails of known rate bring in this time, one of unknown rate is not asked for: so long it takes to know (`app`'s look at paths).
const UNKNOWN_NS: u128 = 500_000_000;

/// With more entries open than this, what is left is not summed: the end is not near.
const LEFT_ENTRIES_MAX: usize = 256;

/// The sending end's state of all entries and chunks of a job.
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
    rails: BTreeMap<u16, RailBook>,
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
            rails: BTreeMap::new(),
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

    /// How many more entries may be announced now.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.name_bytes >= WINDOW_NAME_BYTES { 0 } else { WINDOW.saturating_sub(self.items.len()) }
    }

    /// Takes the next entry of the scan; its id is set here. The caller sends it in an `Entries` frame.
    pub fn announce(&mut self, mut entry: Entry) -> Arc<Entry> {
        assert!(!self.scan_ended, "entries after the end of the scan");
        entry.id = self.next_entry;
        self.next_entry += 1;
        let entry = Arc::new(entry);
        self.name_bytes += entry.window_bytes();
        self.items.insert(
            entry.id,
            Item { entry: entry.clone(), state: State::Announced, retries: 0, flying: 0, lanes: None },
        );
        entry
    }

    /// No more entries.
    pub fn scan_ended(&mut self) {
        self.scan_ended = true;
    }

    /// Entries announced so far.
    #[must_use]
    pub fn announced(&self) -> u64 {
        self.next_entry
    }

    /// Payload bytes handed out a second time or more.
    #[must_use]
    pub fn resent_bytes(&self) -> u64 {
        self.resent_bytes
    }

    /// The receiver answers to a file. `Owed::CheckSource` when nothing is missing of a part.
    pub fn on_want(&mut self, id: EntryId, want: &Want) -> Result<Owed, Breach> {
        let chunk_bytes = self.chunk_bytes;
        let Some(item) = self.items.get_mut(&id) else {
            return if id < self.next_entry { Ok(Owed::Nothing) } else { Err(Breach::EntryUnknown) };
        };
        let EntryKind::File { bytes } = item.entry.kind else { return Err(Breach::WrongOrder) };
        let chunks = chunk_count(bytes, chunk_bytes);
        match (&item.state, want) {
            (State::Announced, Want::Compare { chunks: there }) => {
                if *there > chunks {
                    return Err(Breach::WantOutOfRange);
                }
                item.state = State::Comparing { chunks: *there, told: 0, looked: 0, differ: Vec::new() };
                return Ok(Owed::Nothing);
            }
            (State::Reading { open: true, .. }, Want::Missing { ranges }) => {
                check_ranges(ranges, chunks)?;
                return Ok(self.want_more(id, ranges));
            }
            (State::Announced, Want::MissingSoFar { .. }) => {}
            (State::Announced | State::Compared { .. }, Want::Keep { .. } | Want::All | Want::Missing { .. }) => {}
            _ => return Err(Breach::WrongOrder),
        }
        let open = matches!(want, Want::MissingSoFar { .. });
        let (ranges, whole) = match want {
            Want::Keep { .. } => {
                self.resolve(id);
                return Ok(Owed::Nothing);
            }
            Want::All if bytes <= PACK_FILE_BYTES_MAX => {
                item.state = State::Reading { ranges: VecDeque::new(), unread: 1, whole: true, open, mapped: u64::MAX };
                self.small.push_back(id);
                return Ok(Owed::Nothing);
            }
            Want::All => (VecDeque::from([ChunkRange { first: 0, end: chunks }]), true),
            Want::Missing { ranges } | Want::MissingSoFar { ranges } => {
                check_ranges(ranges, chunks)?;
                (ranges.iter().copied().collect::<VecDeque<_>>(), false)
            }
            Want::Compare { .. } => unreachable!("answered above"),
        };
        let unread = ranges.iter().map(|range| range.end - range.first).sum();
        let mapped = match item.state {
            // The last chunk travels: of one chunk nothing can be told.
            _ if !item.entry.tells_holes() || chunks == 1 => u64::MAX,
            // What was read and found to differ is read again, whatever the file system says of it.
            State::Compared { read } => read,
            _ => 0,
        };
        item.state = State::Reading { ranges, unread, whole, open, mapped };
        if unread == 0 {
            return Ok(if open { Owed::Nothing } else { Owed::CheckSource(id) });
        }
        self.large.entry(item.entry.meta.volume).or_default().push_back(id);
        Ok(Owed::Nothing)
    }

    /// The receiver has read back what it has of a file: these do not stand.
    fn want_more(&mut self, id: EntryId, more: &[ChunkRange]) -> Owed {
        let Some(Item { entry, state: State::Reading { ranges, unread, open, .. }, .. }) = self.items.get_mut(&id)
        else {
            return Owed::Nothing;
        };
        *open = false;
        *unread += more.iter().map(|range| range.end - range.first).sum::<u64>();
        if *unread == 0 {
            return Owed::CheckSource(id);
        }
        if !more.is_empty() {
            ranges.extend(more);
            // In the order of the file: where it has holes is looked up from its front to its end.
            ranges.make_contiguous().sort_unstable_by_key(|range| range.first);
            self.large.entry(entry.meta.volume).or_default().push_back(id);
        }
        Owed::Nothing
    }

    /// The receiver tells `count` digests from chunk `first` of its version on. The entry, to compare them; `None`: it has failed.
    ///
    /// # Errors
    /// They are not the next of a file that is being compared, or are too many.
    pub fn on_have(&mut self, id: EntryId, first: u64, count: u64) -> Result<Option<Arc<Entry>>, Breach> {
        let Some(item) = self.items.get_mut(&id) else {
            return if id < self.next_entry { Ok(None) } else { Err(Breach::EntryUnknown) };
        };
        let State::Comparing { chunks, told, .. } = &mut item.state else { return Err(Breach::WrongOrder) };
        if first != *told || count == 0 || count > *chunks - *told {
            return Err(Breach::WantOutOfRange);
        }
        *told += count;
        Ok(Some(item.entry.clone()))
    }

    /// The next `same.len()` chunks of a file were compared with what was told of them. When those were the last: what must travel.
    pub fn compared(&mut self, id: EntryId, same: &[bool]) -> Option<Vec<ChunkRange>> {
        let item = self.items.get_mut(&id)?;
        let State::Comparing { chunks, looked, differ, .. } = &mut item.state else { return None };
        for &same in same {
            if !same {
                add_chunk(differ, *looked);
            }
            *looked += 1;
        }
        if looked != chunks {
            return None;
        }
        for index in *chunks..chunk_count(item.entry.bytes(), self.chunk_bytes) {
            add_chunk(differ, index);
        }
        let mut differ = core::mem::take(differ);
        item.state = State::Compared { read: *chunks };
        thin(&mut differ);
        Some(differ)
    }

    /// A rail is there and takes chunks.
    pub fn rail_up(&mut self, rail: u16) {
        self.rails.insert(rail, RailBook::new());
    }

    /// A rail takes no more chunks; what it had in hand is outstanding until `on_rail_closed`.
    pub fn rail_down(&mut self, rail: u16) {
        self.rails.remove(&rail);
    }

    /// A rail takes no more chunks, and brings those it has.
    pub fn rest_rail(&mut self, rail: u16) {
        if let Some(book) = self.rails.get_mut(&rail) {
            book.rests = true;
        }
    }

    /// Chunks handed to a rail and not acknowledged.
    #[must_use]
    pub fn owed_by(&self, rail: u16) -> usize {
        self.out.values().filter(|out| out.rail == rail && !out.acked).count()
    }

    /// Chunks handed to rails that live, of which nobody has said yet that they were sent or dropped.
    #[must_use]
    pub fn in_hand(&self) -> usize {
        self.rails.values().map(|book| book.in_hand).sum()
    }

    /// Rails that take chunks.
    pub fn rails(&self) -> impl Iterator<Item = u16> + '_ {
        self.rails.keys().copied()
    }

    /// Is there anything that could be handed out now?
    #[must_use]
    pub fn has_work(&self) -> bool {
        !(self.again.is_empty() && self.open.is_empty() && self.large.is_empty() && self.small.is_empty())
    }

    /// What a rail was seen to do: from now on it owes no more than that, and near the end takes only what others would not bring sooner.
    pub fn pace_rail(&mut self, rail: u16, pace: Pace) {
        if let Some(book) = self.rails.get_mut(&rail) {
            book.pace = Some(pace);
        }
    }

    /// The rail that the next chunk is for: of those with fewer than `depth` in hand the one with the fewest, but none that would still be
    /// at it when the others had brought all that is left, and near the end none of which nobody knows.
    fn next_rail(&self, depth: usize) -> Option<u16> {
        let left = if self.rails.values().any(|book| book.pace.is_some()) { self.left_bytes() } else { None };
        let chunk = u64::from(self.chunk_bytes);
        let is_last = |own: u16, book: &RailBook| {
            let others = || self.rails.iter().filter(|(rail, it)| **rail != own && !it.rests);
            let known = |it: &RailBook| it.pace.is_some_and(|pace| pace.rate > 0);
            let Some(left) = left.filter(|_| others().any(|(_, it)| known(it))) else { return false };
            // What one of unknown rate owes is counted as if the known ones had to bring it.
            let (owed, rate) = others().fold((0u128, 0u128), |(owed, rate), (_, it)| {
                (owed + u128::from(it.owed), rate + u128::from(it.pace.map_or(0, |pace| pace.rate)))
            });
            let all = (owed + u128::from(left)) * 1_000_000_000 / rate.max(1);
            if !known(book) {
                return all < UNKNOWN_NS;
            }
            // A chunk is not divided: one of the others brings the last whole.
            let of_known = others().filter(|(_, it)| known(it));
            let one = of_known.map(|(_, it)| it.brings_ns(chunk.min(left))).min().unwrap_or(0);
            book.brings_ns(chunk.min(left)) > all.max(one)
        };
        let open = self.rails.iter().filter(|(_, book)| book.has_room(depth));
        open.filter(|(rail, book)| !is_last(**rail, book)).min_by_key(|(_, book)| book.in_hand).map(|(&rail, _)| rail)
    }

    /// Bytes that are not handed out yet; `None`: many, or not known.
    fn left_bytes(&self) -> Option<u64> {
        if !self.scan_ended || self.items.len() > LEFT_ENTRIES_MAX {
            return None;
        }
        let chunk = u64::from(self.chunk_bytes);
        let items = self.items.values().map(|item| match &item.state {
            State::Reading { ranges, .. } => {
                let chunks: u64 = ranges.iter().map(|range| range.end - range.first).sum();
                (chunks + item.lanes.as_ref().map_or(0, Lanes::left)) * chunk
            }
            State::Ended => 0,
            _ => item.entry.bytes(),
        });
        let small = self.small.iter().filter_map(|id| self.items.get(id)).map(|item| item.entry.bytes());
        Some(items.sum::<u64>() + small.sum::<u64>() + self.again.iter().map(Unit::bytes).sum::<u64>())
    }

    /// The next chunk, for the rail with the fewest in hand, if one has fewer than `depth`.
    pub fn next_chunk(&mut self, depth: usize) -> Option<Assignment> {
        if !self.has_work() {
            return None;
        }
        let rail = self.next_rail(depth)?;
        let (unit, again) = self.next_unit(rail)?;
        let book = self.rails.get_mut(&rail).expect("it was found above");
        (book.in_hand, book.owed) = (book.in_hand + 1, book.owed + unit.bytes());
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
            self.settle_debt(out.rail, out.unit.bytes());
        }
        Some(out)
    }

    fn settle_debt(&mut self, rail: u16, bytes: u64) {
        if let Some(book) = self.rails.get_mut(&rail) {
            book.owed = book.owed.saturating_sub(bytes);
        }
    }

    /// The worker has read (and hashed) the chunk.
    pub fn on_read(&mut self, chunk: ChunkId) -> Owed {
        let Some(out) = self.out.get_mut(&chunk) else { return Owed::Nothing };
        let (first_time, volume) = (!core::mem::replace(&mut out.read, true), out.volume);
        let owed = match &out.unit {
            _ if !first_time => Owed::Nothing,
            Unit::Range { entry, .. } => match self.items.get_mut(&entry.id) {
                Some(Item { state: State::Reading { unread, open, .. }, .. }) => {
                    *unread -= 1;
                    if *unread == 0 && !*open { Owed::CheckSource(entry.id) } else { Owed::Nothing }
                }
                _ => Owed::Nothing,
            },
            Unit::Pack { entries } => {
                for entry in entries {
                    if let Some(item) = self.items.get_mut(&entry.id) {
                        item.state = State::Ended;
                    }
                }
                Owed::Nothing
            }
        };
        let acked = out.acked;
        if first_time {
            self.reading_on(volume, -1);
        }
        if acked {
            self.take_out(chunk);
        }
        owed
    }

    /// Is the chunk outstanding under this id? What a worker tells of another is of the past: its unit goes under a new id.
    #[must_use]
    pub fn is_out(&self, chunk: ChunkId) -> bool {
        self.out.contains_key(&chunk)
    }

    /// Was the whole file sent in this run (so that its digest is known here)?
    #[must_use]
    pub fn is_whole(&self, id: EntryId) -> bool {
        matches!(self.items.get(&id), Some(Item { state: State::Reading { whole: true, .. }, .. }))
    }

    /// The caller has looked at the source and sent `FileEnd`.
    pub fn file_ended(&mut self, id: EntryId) {
        if let Some(item) = self.items.get_mut(&id) {
            item.state = State::Ended;
        }
    }

    /// The rail has taken the chunk: it may have another.
    pub fn on_sent(&mut self, rail: u16) {
        if let Some(book) = self.rails.get_mut(&rail) {
            book.in_hand = book.in_hand.saturating_sub(1);
            book.reach = (book.reach + 1).min(*RailBook::REACH.end());
        }
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
                    self.settle_debt(rail, bytes);
                }
                Some(_) => drop(self.take_out(chunk)),
                None => return Err(Breach::ChunkUnknown),
            }
        }
        Ok(())
    }

    /// The receiver had to throw a chunk away: it goes again.
    pub fn on_nack(&mut self, chunk: ChunkId) -> Result<Owed, Breach> {
        let out = self.take_out(chunk).filter(|out| !out.acked).ok_or(Breach::ChunkUnknown)?;
        let first = match &out.unit {
            Unit::Range { entry, .. } => entry.id,
            Unit::Pack { entries } => entries[0].id,
        };
        // The worker's word that it was read may be on its way still; under the old id it will count for nothing.
        if out.read {
            self.again.push_back(out.unit);
        } else {
            self.take_back(&out.unit);
        }
        if let Some(item) = self.items.get_mut(&first) {
            item.retries += 1;
            if item.retries > RETRIES_MAX {
                // The rest of a pack goes again without it.
                return Ok(Owed::Corrupt(first));
            }
        }
        Ok(Owed::Nothing)
    }

    /// The receiver has acknowledged all that came over a rail and will take no more from it: the rest goes again.
    pub fn on_rail_closed(&mut self, rail: u16) {
        self.rails.remove(&rail);
        let lost: Vec<ChunkId> =
            self.out.iter().filter(|(_, out)| out.rail == rail && !out.acked).map(|(&id, _)| id).collect();
        for chunk in lost {
            let out = self.take_out(chunk).expect("listed above");
            if out.read {
                self.again.push_back(out.unit);
            } else {
                self.take_back(&out.unit);
            }
        }
    }

    /// Entries are resolved at the receiver.
    pub fn on_committed(&mut self, id: EntryId) -> Result<Option<Arc<Entry>>, Breach> {
        if id >= self.next_entry {
            return Err(Breach::EntryUnknown);
        }
        Ok(self.resolve(id))
    }

    /// An entry has failed, here or there.
    pub fn on_fault(&mut self, id: EntryId) -> Option<Arc<Entry>> {
        self.resolve(id)
    }

    fn resolve(&mut self, id: EntryId) -> Option<Arc<Entry>> {
        let item = self.items.remove(&id)?;
        self.name_bytes -= item.entry.window_bytes();
        Some(item.entry)
    }

    /// The entry, while it is unresolved.
    #[must_use]
    pub fn entry(&self, id: EntryId) -> Option<&Arc<Entry>> {
        self.items.get(&id).map(|item| &item.entry)
    }

    /// Everything announced is resolved and the scan is over.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.scan_ended && self.items.is_empty()
    }

    /// Entries unresolved and chunks outstanding, for the watchdog's sentence.
    #[must_use]
    pub fn open_counts(&self) -> (usize, usize) {
        (self.items.len(), self.out.len())
    }
}

/// Lengthens the last range or begins another.
fn add_chunk(ranges: &mut Vec<ChunkRange>, index: u64) {
    match ranges.last_mut() {
        Some(range) if range.end == index => range.end += 1,
        _ => ranges.push(ChunkRange { first: index, end: index + 1 }),
    }
}

/// As many ranges as one frame takes: where there are more, the shortest gaps between them travel too.
fn thin(ranges: &mut Vec<ChunkRange>) {
    let mut gap = 1;
    while ranges.len() > WANT_RANGES_MAX {
        let mut kept: Vec<ChunkRange> = Vec::with_capacity(ranges.len() / 2);
        for range in ranges.drain(..) {
            match kept.last_mut() {
                Some(last) if range.first - last.end <= gap => last.end = range.end,
                _ => kept.push(range),
            }
        }
        *ranges = kept;
        gap *= 2;
    }
}

fn check_ranges(ranges: &[ChunkRange], chunks: u64) -> Result<(), Breach> {
    let mut next = 0;
    for range in ranges {
        if range.first < next || range.first >= range.end || range.end > chunks {
            return Err(Breach::WantOutOfRange);
        }
        next = range.end;
    }
    Ok(())
}
