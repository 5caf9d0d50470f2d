//! Packs: many small whole files in one chunk, behind an index.
//!
//! For: small files at both ends, which are read and written at once.
//! In and out: entries and a payload to fill; a payload with its index, and the parts its files go into.
//! Invariants: a file that failed or changed is left out, and the others go; a file lands only if its own digest held.
//! Absent on purpose: which files go together (`proto::send`).

use std::sync::Arc;

use proto::books::Stage;
use proto::error::Breach;
use proto::manifest::{Entry, EntryId};
use proto::wire::chunk::{Header, PACK_LINE_BYTES, PackLine, pack_lines};
use proto::wire::control::{Corrupt, Digest, DigestKind, FaultKind};

use crate::job::{EntryError, Event, fault_kind};
use crate::platform::{Parts, Platform, SourceTree};
use crate::seal::digest::digest_of;
use crate::worker::cx::Cx;
use crate::worker::stages::Stopwatch;

/// A file that took so long to be opened and read was not in memory: one that is takes 5 µs here, a read of flash 60 µs and more.
const WAITED_NS: u64 = 50_000;

/// What became of a pack's files.
#[derive(Debug)]
pub(crate) struct PackRead {
    /// Payload, index included.
    pub(crate) bytes: usize,
    /// Those that were read.
    pub(crate) digests: Vec<(EntryId, Digest)>,
    /// Those that were left out.
    pub(crate) failed: Vec<EntryError>,
}

/// Reads the files of a pack one after another, straight behind the index. A file that failed is left out.
pub(crate) fn read_pack<S: SourceTree>(
    tree: &S,
    kind: DigestKind,
    entries: &[Arc<Entry>],
    payload: &mut [u8],
    watch: &mut Stopwatch,
) -> PackRead {
    let mut digests = Vec::with_capacity(entries.len());
    let mut lines = Vec::with_capacity(entries.len());
    let mut failed = Vec::new();
    let index_bytes = entries.len() * PACK_LINE_BYTES;
    let mut end = index_bytes;
    let mut left = entries.iter();
    let mut waited = false;
    while let Some(entry) = left.next() {
        let into = &mut payload[end..end + entry.bytes() as usize];
        let (fault, errno) = match tree.read_small(entry, into) {
            Ok(Some(())) => {
                let ns = watch.lap(Stage::Read);
                if ns > WAITED_NS && !waited {
                    // The disk is given all the others at once, and can take them in its own order. What is in memory costs nothing: one
                    // clock is read as before.
                    waited = true;
                    left.as_slice().iter().for_each(|entry| tree.expect_small(entry));
                    watch.lap(Stage::Read);
                }
                let digest = digest_of(kind, into);
                watch.lap(Stage::Hash);
                digests.push((entry.id, digest));
                lines.push(PackLine { entry: entry.id, bytes: entry.bytes() as u32, digest });
                end += into.len();
                continue;
            }
            Ok(None) => (FaultKind::Torn, 0),
            Err(error) => (fault_kind(&error, true), error.raw_os_error().unwrap_or(0)),
        };
        failed.push(EntryError { entry: entry.id, kind: fault, errno, step: "read the source" });
    }
    // Files that failed left room in the index: close the gap.
    let used = lines.len() * PACK_LINE_BYTES;
    if used < index_bytes {
        payload.copy_within(index_bytes..end, used);
        end -= index_bytes - used;
    }
    for (line, room) in lines.iter().zip(payload.chunks_exact_mut(PACK_LINE_BYTES)) {
        room.copy_from_slice(&line.encode());
    }
    PackRead { bytes: end, digests, failed }
}

/// Puts the files of a pack into their parts, each checked against its own digest. `entry`: what is expected. Errors: the peer broke the protocol.
pub(crate) fn put_pack<'a, P: Platform>(
    tree: &P::Sink,
    entry: impl Fn(EntryId) -> Option<&'a Arc<Entry>>,
    cx: &mut Cx<'_, P>,
    header: &Header,
    payload: &[u8],
) -> Result<(), Breach> {
    // The index has no digest of its own: the CRC once more, so that a bit that flipped here since it was opened is not obeyed.
    let sound = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, payload) == header.crc;
    cx.watch.lap(Stage::Hash);
    if !sound {
        let corrupt = Corrupt::SinkMemory;
        cx.events.push(Event::Corrupt { chunk: header.chunk, entry: EntryId::MAX, corrupt });
        return Ok(());
    }
    let mut files = Vec::with_capacity(usize::try_from(header.entry).unwrap_or(0));
    let mut failed = Vec::new();
    let mut outcome = Ok(());
    for (line, range) in pack_lines(payload, header.entry, cx.terms.chunk_bytes)? {
        let Some(entry) = entry(line.entry) else { continue };
        let content = &payload[range];
        let digest = digest_of(cx.terms.digest, content);
        cx.watch.lap(Stage::Hash);
        if entry.bytes() != u64::from(line.bytes) {
            outcome = Err(Breach::PackIndex);
            break;
        }
        if digest != line.digest {
            // The CRC was taken over this content, the digest before it: it changed in the sender's memory between the two.
            // What stands written of this pack is written again when it comes again.
            let corrupt = Corrupt::SourceMemory;
            cx.events.push(Event::Corrupt { chunk: header.chunk, entry: line.entry, corrupt });
            return Ok(());
        }
        match tree.put_small(entry, content, cx.terms.publish_small) {
            Ok(()) => files.push((entry.id, entry.bytes(), digest)),
            Err(error) => failed.push(EntryError {
                entry: entry.id,
                kind: fault_kind(&error, false),
                errno: error.raw_os_error().unwrap_or(0),
                step: "write a small file",
            }),
        }
        cx.watch.lap(Stage::Write);
    }
    cx.events.push(Event::PackLanded { chunk: header.chunk, payload: header.payload_bytes, files, failed });
    outcome
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io;
    use std::time::{Duration, Instant};

    use proto::manifest::{EntryKind, Meta};

    use super::*;
    use crate::worker::stages::Counters;

    thread_local! { static EXPECTED: RefCell<Vec<EntryId>> = const { RefCell::new(Vec::new()) }; }

    /// A disk on which each first read takes long, unless it was told before.
    #[derive(Debug)]
    struct Slow;

    impl SourceTree for Slow {
        type File = ();
        fn open(&self, _: &Entry, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn read_small(&self, entry: &Entry, into: &mut [u8]) -> io::Result<Option<()>> {
            let begun = Instant::now();
            let waits = EXPECTED.with_borrow(|it| !it.contains(&entry.id));
            while waits && begun.elapsed() < Duration::from_nanos(4 * WAITED_NS) {
                std::hint::spin_loop();
            }
            into.fill(entry.id as u8);
            Ok(Some(()))
        }
        fn expect_small(&self, entry: &Entry) {
            EXPECTED.with_borrow_mut(|it| it.push(entry.id));
        }
        fn is_unchanged(&self, _: &Entry) -> io::Result<bool> {
            Ok(true)
        }
    }

    #[test]
    fn where_one_file_of_a_pack_was_waited_for_the_disk_is_told_of_all_others_once() {
        let entry = |id| {
            let (path, kind) = (Box::from(&b"a"[..]), EntryKind::File { bytes: 8 });
            Arc::new(Entry { id, path, kind, mode: 0, mtime_s: 0, mtime_ns: 0, meta: Meta::default() })
        };
        let entries: Vec<Arc<Entry>> = (1..=5).map(entry).collect();
        let mut payload = vec![0; entries.len() * (PACK_LINE_BYTES + 8)];
        let mut watch = Stopwatch::new(Arc::new(Counters::default()));
        let read = read_pack(&Slow, DigestKind::Blake3, &entries, &mut payload, &mut watch);
        assert_eq!(EXPECTED.take(), [2, 3, 4, 5]);
        assert_eq!((read.digests.len(), read.bytes), (5, payload.len()));
        assert_eq!(payload[5 * PACK_LINE_BYTES..].chunks(8).map(|it| it[7]).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    }
}
