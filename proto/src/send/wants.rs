//! What the receiver wants of a file, and the comparison that may come before.
//!
//! For: entries from their announcement until chunks of them may go out.
//! In and out: answers (`Want`), digests of the receiver's version and what comparing found in; files queued, ranges that must travel out.
//! Invariants: an answer out of order or beyond the file is a breach; ranges ascend and never overlap.
//! Absent on purpose: which chunk is next (`ranges`, `lanes`), reading and comparing bytes (engine).

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{FollowUp, Item, Sender, State};
use crate::error::Breach;
use crate::ledger::chunk_count;
use crate::manifest::{Entry, EntryId, EntryKind};
use crate::wire::chunk::PACK_FILE_BYTES_MAX;
use crate::wire::control::{ChunkRange, WANT_RANGES_MAX, Want};

impl Sender {
    /// The receiver answers to a file. `FollowUp::CheckSource` when nothing is missing of a part.
    pub fn on_want(&mut self, id: EntryId, want: &Want) -> Result<FollowUp, Breach> {
        let chunk_bytes = self.chunk_bytes;
        let Some(item) = self.items.get_mut(&id) else {
            return if id < self.next_entry { Ok(FollowUp::Nothing) } else { Err(Breach::EntryUnknown) };
        };
        let EntryKind::File { bytes } = item.entry.kind else { return Err(Breach::WrongOrder) };
        let chunks = chunk_count(bytes, chunk_bytes);
        match (&item.state, want) {
            (State::Announced, Want::Compare { chunks: there }) => {
                if *there > chunks {
                    return Err(Breach::WantOutOfRange);
                }
                item.state = State::Comparing { chunks: *there, told: 0, looked: 0, differ: Vec::new() };
                return Ok(FollowUp::Nothing);
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
                return Ok(FollowUp::Nothing);
            }
            Want::All if bytes <= PACK_FILE_BYTES_MAX => {
                item.state = State::Reading { ranges: VecDeque::new(), unread: 1, whole: true, open, mapped: u64::MAX };
                self.small.push_back(id);
                return Ok(FollowUp::Nothing);
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
            return Ok(if open { FollowUp::Nothing } else { FollowUp::CheckSource(id) });
        }
        self.large.entry(item.entry.meta.volume).or_default().push_back(id);
        Ok(FollowUp::Nothing)
    }

    /// The receiver has read back what it has of a file: these do not stand.
    fn want_more(&mut self, id: EntryId, more: &[ChunkRange]) -> FollowUp {
        let Some(Item { entry, state: State::Reading { ranges, unread, open, .. }, .. }) = self.items.get_mut(&id)
        else {
            return FollowUp::Nothing;
        };
        *open = false;
        *unread += more.iter().map(|range| range.end - range.first).sum::<u64>();
        if *unread == 0 {
            return FollowUp::CheckSource(id);
        }
        if !more.is_empty() {
            ranges.extend(more);
            // In the order of the file: where it has holes is looked up from its front to its end.
            ranges.make_contiguous().sort_unstable_by_key(|range| range.first);
            self.large.entry(entry.meta.volume).or_default().push_back(id);
        }
        FollowUp::Nothing
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
