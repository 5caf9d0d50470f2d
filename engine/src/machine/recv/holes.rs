//! What of a file is zeros at the source: it is here without having come.
//!
//! For: the receiving half of holes; see `docs/design/013-holes.md`.
//! In and out: `Holes` frames in; chunks that have landed, and the file's digest, which is that of all its bytes.
//! Invariants: a chunk told as a hole reads as zeros in the part; a later run hears of it again, and only the maps of striped files speak of
//! it; what waits to be merged is bounded over all files, for a peer makes it without sending a byte of payload.
//! Absent on purpose: where the source has holes (`SourceTree::holes`), giving zeros back that came as bytes (`tree::sink`).

use std::io;

use proto::error::Breach;
use proto::manifest::EntryId;
use proto::wire::control::ChunkRange;

use super::RecvEnd;
use crate::job::fault_kind;
use crate::machine::Stop;
use crate::platform::{Parts, Platform, VolumeSet};

/// Spans of zeros of one file that are not worth counting all files' for: 8,192 files of so many are 0.5 million.
const SPANS_FEW: usize = 64;
/// Spans of all files that wait for what lies between them, at most: 80 bytes each. A sender looks up `HOLES_AT_ONCE` holes, of some ten
/// spans each, for each of at most 256 files that it reads side by side.
const SPANS_MAX: usize = 1 << 18;

impl<P: Platform> RecvEnd<P> {
    pub(super) fn on_holes(&mut self, id: EntryId, ranges: &[ChunkRange]) -> Result<(), Stop> {
        if !self.machine.on_holes(id, ranges)? {
            return Ok(());
        }
        let chunk_bytes = u64::from(self.record.terms.chunk_bytes);
        let coming = self.coming.get_mut(&id).expect("made with the ledger");
        for range in ranges {
            coming.tree.put_zeros(range.first, range.end);
        }
        let chunks: u64 = ranges.iter().map(|range| range.end - range.first).sum();
        coming.holes += chunks * chunk_bytes;
        self.record.tally.holes += chunks * chunk_bytes;
        if self.machine.entry(id).is_some_and(|entry| entry.meta.striped) {
            coming.unmapped.extend_from_slice(ranges);
        } else {
            // What weighs on a volume until it is written is written.
            self.sink.landed(id, 0, chunks * chunk_bytes);
        }
        if coming.tree.zero_spans() > SPANS_FEW
            && self.coming.values().map(|it| it.tree.zero_spans()).sum::<usize>() > SPANS_MAX
        {
            return Err(Breach::WindowExceeded.into());
        }
        // A chunk of which a datagram rail brought only some may have come to nothing.
        if self.sink.was_loose() {
            let entry = self.machine.entry(id).cloned().expect("it is on its way");
            let places: Vec<_> =
                ranges.iter().map(|it| (it.first * chunk_bytes, (it.end - it.first) * chunk_bytes)).collect();
            match self.sink.empty_part(self.sink.volume_of(id), &entry, &places) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    self.fail(id, fault_kind(&error, false), Some(&error), "empty the part");
                }
                _ => {}
            }
        }
        Ok(())
    }
}
