//! The receiving end: what has come, what may be published, what is resolved.
//!
//! For: the order of facts of a receiving job, from announced entry to `Committed`.
//! In and out: `on_*` take facts; `Ready` says which files may be flushed and published; acks and commits come out in batches.
//! Invariants: a chunk lands once; a file is ready only when all chunks landed and the sender's `FileEnd` agrees; a folder's end is
//! applied only when everything announced before it is resolved; at most `WINDOW` entries unresolved.
//! Absent on purpose: payload, digests (engine merges them), file-system calls, time.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::error::Breach;
use crate::ledger::{ChunkState, Ledger, chunk_count, chunk_len};
use crate::manifest::{Entry, EntryId, EntryKind, check_path};
use crate::wire::chunk::PACK_FILE_BYTES_MAX;
use crate::wire::control::{ChunkId, ChunkRange, Digest, HOLE_REACH_BYTES};
use crate::{WINDOW, WINDOW_NAME_BYTES, WINDOW_NAME_SLACK};

/// How far a file is.
#[derive(Debug)]
enum State {
    /// from: – · to: Coming, (gone). The caller looks what stands at the destination.
    Announced,
    /// from: Announced · to: Ready. Chunks land; `end` is the sender's word on the whole.
    Coming { ledger: Ledger, end: Option<Option<Digest>> },
    /// from: Announced (small, by pack), Coming · to: (gone). Whole in the file system, waits for flush and rename.
    Ready,
    /// from: – · to: (gone). A folder's end waits for all before it.
    FolderEnd,
}

#[derive(Debug)]
struct Item {
    entry: Arc<Entry>,
    state: State,
}

/// What a fact made possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ready {
    /// Nothing yet.
    Nothing,
    /// The file is whole; compare digests (`Some(None)`: the sender cannot know), then commit.
    File { entry: EntryId, sender_digest: Option<Digest> },
}

/// The receiving end's state of all entries and chunks of a job.
#[derive(Debug)]
pub struct Receiver {
    chunk_bytes: u32,
    items: BTreeMap<EntryId, Item>,
    folder_ends: BTreeSet<EntryId>,
    next_entry: EntryId,
    window_bytes: usize,
    scan_ended: bool,
    acks: BTreeSet<ChunkId>,
}

impl Receiver {
    /// A job that receives chunks of `chunk_bytes`.
    #[must_use]
    pub fn new(chunk_bytes: u32) -> Self {
        Receiver {
            chunk_bytes,
            items: BTreeMap::new(),
            folder_ends: BTreeSet::new(),
            next_entry: 0,
            window_bytes: 0,
            scan_ended: false,
            acks: BTreeSet::new(),
        }
    }

    /// The sender announces an entry. Everything but a folder's end must be dealt with by the caller at once.
    pub fn on_entry(&mut self, entry: Entry) -> Result<Arc<Entry>, Breach> {
        if self.scan_ended || entry.id != self.next_entry {
            return Err(Breach::EntryOutOfOrder);
        }
        let window_bytes = self.window_bytes + entry.window_bytes();
        if self.items.len() >= WINDOW || window_bytes > WINDOW_NAME_BYTES + WINDOW_NAME_SLACK {
            return Err(Breach::WindowExceeded);
        }
        check_path(&entry.path)?;
        self.next_entry += 1;
        self.window_bytes = window_bytes;
        let entry = Arc::new(entry);
        let state = match entry.kind {
            EntryKind::FolderEnd => {
                self.folder_ends.insert(entry.id);
                State::FolderEnd
            }
            _ => State::Announced,
        };
        self.items.insert(entry.id, Item { entry: entry.clone(), state });
        Ok(entry)
    }

    /// The scan is over.
    pub fn on_scan_end(&mut self, entries: u64) -> Result<(), Breach> {
        if self.scan_ended || entries != self.next_entry {
            return Err(Breach::EntryOutOfOrder);
        }
        self.scan_ended = true;
        Ok(())
    }

    /// The caller wants chunks of this file; `kept` are there already, as durable as told, or claimed to be. Returns the missing ranges.
    pub fn expect(&mut self, id: EntryId, kept: impl Iterator<Item = (u64, ChunkState)>) -> Vec<ChunkRange> {
        let item = self.items.get_mut(&id).expect("the caller was just told of it");
        let mut ledger = Ledger::new(chunk_count(item.entry.bytes(), self.chunk_bytes));
        for (index, state) in kept {
            if index >= ledger.chunks() || ledger.state(index) != ChunkState::Missing {
                continue;
            }
            match state {
                ChunkState::Missing => {}
                ChunkState::Claimed | ChunkState::Landed => ledger.advance(index, state),
                ChunkState::Durable => {
                    ledger.advance(index, ChunkState::Landed);
                    ledger.advance(index, state);
                }
            }
        }
        let missing = ledger.missing();
        item.state = State::Coming { ledger, end: None };
        missing
    }

    /// A claimed chunk was read back and stands, as durable as told. False: it was none.
    pub fn claim_holds(&mut self, id: EntryId, index: u64, state: ChunkState) -> bool {
        let Some(Item { state: State::Coming { ledger, .. }, .. }) = self.items.get_mut(&id) else { return false };
        let was_claimed = index < ledger.chunks() && ledger.state(index) == ChunkState::Claimed;
        if was_claimed {
            ledger.advance(index, state);
        }
        was_claimed
    }

    /// All was read back: what is claimed still does not stand. Returns these, which are missing now.
    pub fn claims_end(&mut self, id: EntryId) -> Vec<ChunkRange> {
        let Some(Item { state: State::Coming { ledger, .. }, .. }) = self.items.get_mut(&id) else { return Vec::new() };
        let ranges = ledger.claimed();
        for index in ranges.iter().flat_map(|range| range.first..range.end) {
            ledger.advance(index, ChunkState::Missing);
        }
        ranges
    }

    /// A range is in the file system. Returns its chunk index and what is possible now.
    pub fn on_landed(&mut self, id: EntryId, offset: u64, bytes: u32) -> Result<(u64, Ready), Breach> {
        let chunk_bytes = self.chunk_bytes;
        let Some(item) = self.items.get_mut(&id) else { return Err(Breach::EntryUnknown) };
        let State::Coming { ledger, .. } = &mut item.state else { return Err(Breach::ChunkTwice) };
        let index = offset / u64::from(chunk_bytes);
        if !offset.is_multiple_of(u64::from(chunk_bytes))
            || index >= ledger.chunks()
            || bytes != chunk_len(item.entry.bytes(), chunk_bytes, index)
        {
            return Err(Breach::ChunkOutOfRange);
        }
        not_here(ledger, index)?;
        ledger.advance(index, ChunkState::Landed);
        Ok((index, self.ready(id)))
    }

    /// The sender says that these chunks are zeros. Whether the file is still on its way.
    ///
    /// # Errors
    /// They are not all missing of a file that is on its way and may have some, or one is its last chunk, or beyond the reach.
    pub fn on_holes(&mut self, id: EntryId, ranges: &[ChunkRange]) -> Result<bool, Breach> {
        let chunk_bytes = u64::from(self.chunk_bytes);
        let Some(item) = self.items.get_mut(&id) else {
            return if id < self.next_entry { Ok(false) } else { Err(Breach::EntryUnknown) };
        };
        let State::Coming { ledger, end: None } = &mut item.state else { return Err(Breach::WrongOrder) };
        if !item.entry.tells_holes() {
            return Err(Breach::ChunkUnwanted);
        }
        let end_max = (ledger.chunks() - 1).min(HOLE_REACH_BYTES / chunk_bytes);
        for range in ranges {
            if range.end > end_max {
                return Err(Breach::ChunkOutOfRange);
            }
            for index in range.first..range.end {
                not_here(ledger, index)?;
                ledger.advance(index, ChunkState::Landed);
            }
        }
        Ok(true)
    }

    /// Chunks of a file are on stable storage.
    pub fn on_durable(&mut self, id: EntryId, indices: impl Iterator<Item = u64>) {
        if let Some(Item { state: State::Coming { ledger, .. }, .. }) = self.items.get_mut(&id) {
            for index in indices {
                ledger.advance(index, ChunkState::Durable);
            }
        }
    }

    /// A small file came whole in a pack.
    pub fn on_pack_file(&mut self, id: EntryId, bytes: u64) -> Result<(), Breach> {
        let Some(item) = self.items.get_mut(&id) else { return Err(Breach::EntryUnknown) };
        if bytes != item.entry.bytes() {
            return Err(Breach::ChunkOutOfRange);
        }
        match &item.state {
            State::Coming { ledger, .. } if ledger.landed_count() == 0 => {
                item.state = State::Ready;
                Ok(())
            }
            _ => Err(Breach::ChunkTwice),
        }
    }

    /// The sender has read all of a file.
    pub fn on_file_end(&mut self, id: EntryId, digest: Option<Digest>) -> Result<Ready, Breach> {
        let Some(item) = self.items.get_mut(&id) else {
            return if id < self.next_entry { Ok(Ready::Nothing) } else { Err(Breach::EntryUnknown) };
        };
        match &mut item.state {
            // A small file comes in a pack and has no end of its own, unless nothing of it had to come.
            State::Coming { end: end @ None, ledger }
                if ledger.claimed_count() == 0
                    && (item.entry.bytes() > PACK_FILE_BYTES_MAX || (item.entry.bytes() > 0 && ledger.is_landed())) =>
            {
                *end = Some(digest);
            }
            _ => return Err(Breach::WrongOrder),
        }
        Ok(self.ready(id))
    }

    fn ready(&mut self, id: EntryId) -> Ready {
        let item = self.items.get_mut(&id).expect("callers looked it up");
        match &item.state {
            State::Coming { ledger, end: Some(digest) } if ledger.is_landed() => {
                let sender_digest = *digest;
                item.state = State::Ready;
                Ready::File { entry: id, sender_digest }
            }
            _ => Ready::Nothing,
        }
    }

    /// The entry is as durable as the job asks, or has failed, or was kept.
    pub fn resolve(&mut self, id: EntryId) -> Option<Arc<Entry>> {
        self.folder_ends.remove(&id);
        let entry = self.items.remove(&id).map(|item| item.entry)?;
        self.window_bytes -= entry.window_bytes();
        Some(entry)
    }

    /// The entry, while it is unresolved.
    #[must_use]
    pub fn entry(&self, id: EntryId) -> Option<&Arc<Entry>> {
        self.items.get(&id).map(|item| &item.entry)
    }

    /// Was it ever announced?
    #[must_use]
    pub fn knows(&self, id: EntryId) -> bool {
        id < self.next_entry
    }

    /// A folder's end before which nothing is unresolved. Ends resolve in order, inner before outer.
    #[must_use]
    pub fn next_folder_end(&self) -> Option<Arc<Entry>> {
        let (&first, item) = self.items.first_key_value()?;
        (self.folder_ends.first() == Some(&first)).then(|| item.entry.clone())
    }

    /// A chunk arrived (at the durability level the job acknowledges): its ack goes out with the next.
    pub fn ack(&mut self, chunk: ChunkId) -> Result<(), Breach> {
        if chunk == ChunkId::MAX {
            return Err(Breach::ChunkUnknown); // ids count up from 0: nobody gets there
        }
        if self.acks.insert(chunk) { Ok(()) } else { Err(Breach::ChunkTwice) }
    }

    /// Acks that are due, as ranges; none is due then.
    pub fn next_acks(&mut self, ranges: &mut Vec<ChunkRange>) {
        ranges.clear();
        for chunk in core::mem::take(&mut self.acks) {
            match ranges.last_mut() {
                Some(range) if range.end == chunk => range.end = chunk + 1,
                _ => ranges.push(ChunkRange { first: chunk, end: chunk + 1 }),
            }
        }
    }

    /// The entries that are unresolved.
    pub fn open(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.items.values().map(|item| &item.entry)
    }

    /// Everything announced is resolved and the scan is over.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.scan_ended && self.items.is_empty()
    }

    /// Unresolved entries, for the watchdog's sentence.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.items.len()
    }
}

/// Nobody asked for what is here, or is being read back.
fn not_here(ledger: &Ledger, index: u64) -> Result<(), Breach> {
    match ledger.state(index) {
        ChunkState::Missing => Ok(()),
        ChunkState::Claimed => Err(Breach::ChunkUnwanted),
        ChunkState::Landed | ChunkState::Durable => Err(Breach::ChunkTwice),
    }
}
