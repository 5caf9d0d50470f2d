//! Holes of the source: looked up when a file's turn comes, and told instead of sent.
//!
//! For: the sending end of files that have some.
//! In and out: a file and its first unmapped chunk in; `Holes` frames and the digest tree's zeros out.
//! Invariants: only whole chunks are told; what cannot be looked up is read.
//! Absent on purpose: which chunks may be told (`proto::send`), the digest of zeros (`seal::digest`).

use proto::manifest::Entry;
use proto::wire::control::{ChunkRange, Frame, WANT_RANGES_MAX};

use super::SendEnd;
use crate::machine::Outbox;
use crate::platform::{Holes, Platform, SourceTree};

impl<P: Platform> SendEnd<P> {
    /// Looks where a file has holes from this chunk on, and tells the receiver of those that it misses.
    pub(super) fn map(&mut self, entry: &Entry, first: u64, out: &mut Outbox<P>) {
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
        let (told, due) = self.machine.on_map(entry.id, &holes, until);
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
        self.follow_up(due, out);
    }
}
