//! Two versions of a file compared chunk by chunk, so that only what differs travels.
//!
//! For: `sync`, `cp --checksum`: the thread beside the job driver that reads and digests what stands at each end.
//! In and out: looks from the job driver, in order; what was seen, file by file, in batches.
//! Invariants: a version that changed while it was looked at is worth nothing, and nothing is carried over from it; at most one chunk is
//! in memory, of a version that is striped by chunk one for each volume.
//! Absent on purpose: which files are compared, and what follows from it (recv/compare.rs, send.rs).
//! Source: the idea is rsync's (Tridgell, "Efficient Algorithms for Sorting and Synchronization", 1999) without its rolling sum: chunks
//! stand at fixed offsets, for what changes in files too large to send again (images, databases, logs) changes in place or at the end.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;

use proto::journal::{JournalHeader, encode_header, encode_record};
use proto::ledger::{chunk_count, chunk_len};
use proto::manifest::{Entry, EntryId};
use proto::wire::chunk::PACK_FILE_BYTES_MAX;
use proto::wire::control::{ChunkRange, Digest, NO_DIGEST};

use crate::job::Terms;
use crate::platform::{Firm, Holes, PreviousVersions, ReadBack, Sign, SinkTree, SourceTree};
use crate::seal::hash::chunk_digest;
use crate::tree::sink_tree::unsupported;
use crate::tree::volumes::each::on_each;

/// Digests told at once: 256 MiB of chunks, so that the peer can begin and the watchdog sees that it goes on.
const BATCH: u64 = 256;

/// Work of the receiver's comparer.
#[derive(Debug)]
pub enum Look {
    /// Digest the first `chunks` chunks of what stands there.
    Old { entry: Arc<Entry>, chunks: u64, sign: Sign },
    /// Make a part of these chunks of it, with a journal, if it has this header, that speaks of them.
    Carry { entry: Arc<Entry>, sign: Sign, kept: Vec<(u64, Digest)>, header: Option<Box<JournalHeader>>, durable: bool },
    /// Which of these chunks stand in its part? Each with the volume that its journal is on.
    Part { entry: Arc<Entry>, chunks: Vec<(usize, u64, Digest)> },
    /// Make its part a clone of the source's file, and digest what stands there then.
    Clone { entry: Arc<Entry> },
    /// It is the file already: give it mode and times.
    Adopt { entry: Arc<Entry>, sign: Sign },
    /// What stands in this folder and is none of these names (as `name_sign` has them)?
    Sweep { folder: Arc<Entry>, names: HashSet<u64> },
    /// Remove these, with all that is below them.
    Prune { paths: Vec<Box<[u8]>> },
}

/// What it saw.
#[derive(Debug)]
pub enum Seen {
    /// Digests of the next chunks. Where the version cannot be read or changed, `NO_DIGEST`.
    Old { entry: EntryId, first: u64, digests: Vec<Digest> },
    /// The part stands, on these volumes, or does not.
    Carried { entry: EntryId, result: io::Result<Vec<usize>> },
    /// Of the next of them, those that do. `last`: that was all.
    Part { entry: EntryId, good: Vec<(usize, u64, Digest)>, last: bool },
    /// Digests of the next chunks of a clone, by index; those that are holes are left out.
    Clone { entry: EntryId, digests: Vec<(u64, Digest)> },
    /// All of its digests were told, or it could not be made.
    Cloned { entry: Arc<Entry>, result: io::Result<()> },
    /// Mode and times are set, or it is not what it was.
    Adopted { entry: EntryId, result: io::Result<()> },
    /// Paths that the source does not have, each with the number of entries from there on.
    Swept { result: io::Result<Vec<(Box<[u8]>, u64)>> },
    /// How many entries were removed, and what was not.
    Pruned { removed: u64, failed: Vec<(Box<[u8]>, io::Error)> },
}

fn previous_of<S: SinkTree>(sink: &S) -> io::Result<&dyn PreviousVersions> {
    sink.previous().ok_or_else(unsupported)
}

/// Does one look; `each` is told as it goes and answers whether to go on.
pub fn look<S: SinkTree>(sink: &S, terms: &Terms, look: Look, each: &mut dyn FnMut(Seen) -> bool) -> bool {
    match look {
        Look::Old { entry, chunks, sign } => match sink.previous() {
            Some(previous) => old(previous, terms, &entry, chunks, sign, each),
            // Nobody asks: what cannot be compared has no version that was found.
            None => true,
        },
        Look::Carry { entry, sign, .. } if entry.bytes() <= PACK_FILE_BYTES_MAX => {
            let result = previous_of(sink)
                .and_then(|it| carry_small(sink, it, terms, &entry, sign))
                .map(|()| vec![sink.volume_of(entry.id)]);
            each(Seen::Carried { entry: entry.id, result })
        }
        Look::Carry { entry, sign, kept, header, durable } => {
            let result = carry(sink, terms, &entry, sign, &kept, header.as_deref(), durable);
            each(Seen::Carried { entry: entry.id, result })
        }
        Look::Part { entry, chunks } => part(sink, terms, &entry, &chunks, each),
        Look::Clone { entry } => {
            let result = clone(sink, terms, &entry, each);
            each(Seen::Cloned { entry, result })
        }
        Look::Adopt { entry, sign } => {
            each(Seen::Adopted { entry: entry.id, result: previous_of(sink).and_then(|it| it.adopt(&entry, sign)) })
        }
        Look::Sweep { folder, names } => {
            each(Seen::Swept { result: sink.prune().ok_or_else(unsupported).and_then(|it| it.extras(&folder, &names)) })
        }
        Look::Prune { paths } => {
            let (mut removed, mut failed) = (0, Vec::new());
            for path in paths {
                match sink.prune().ok_or_else(unsupported).and_then(|it| it.remove(&path)) {
                    Ok(count) => removed += count,
                    Err(error) => failed.push((path, error)),
                }
            }
            each(Seen::Pruned { removed, failed })
        }
    }
}

/// Copies what is kept, and has the journals speak of it: of a striped file, that of each volume of what it has.
fn carry<S: SinkTree>(
    sink: &S,
    terms: &Terms,
    entry: &Entry,
    sign: Sign,
    kept: &[(u64, Digest)],
    header: Option<&JournalHeader>,
    durable: bool,
) -> io::Result<Vec<usize>> {
    let chunk_bytes = u64::from(terms.chunk_bytes);
    let range = |run: &[(u64, Digest)]| {
        let offset = run[0].0 * chunk_bytes;
        (offset, entry.bytes().min(offset + run.len() as u64 * chunk_bytes) - offset)
    };
    let ranges: Vec<_> = kept.chunk_by(|a, b| a.0 + 1 == b.0).map(range).collect();
    let previous = previous_of(sink)?;
    previous.carry(entry, sign, &ranges)?;
    let Some(header) = header else { return Ok(vec![sink.volume_of(entry.id)]) };
    let volume_of = |index: u64| previous.volume_of_previous(entry, index * chunk_bytes);
    let mut journals: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
    for run in kept.chunk_by(|a, b| a.0 + 1 == b.0 && volume_of(a.0) == volume_of(b.0)) {
        let digests: Vec<Digest> = run.iter().map(|(_, digest)| *digest).collect();
        let records = journals.entry(volume_of(run[0].0)).or_insert_with(|| encode_header(header).to_vec());
        encode_record(run[0].0, &digests, records);
    }
    let volumes = journals.keys().copied().collect();
    let firm = if durable { Firm::Named } else { Firm::Written };
    let flushed = on_each(journals, |volume, records| sink.flush(volume, entry, &records, firm));
    flushed.into_iter().collect::<io::Result<()>>()?;
    Ok(volumes)
}

/// A small file goes the way of one that came in a pack: read whole, and put beside its name.
fn carry_small<S: SinkTree>(
    sink: &S,
    previous: &dyn PreviousVersions,
    terms: &Terms,
    entry: &Entry,
    sign: Sign,
) -> io::Result<()> {
    let mut content = vec![0; entry.bytes() as usize];
    let whole = previous.read_previous(entry, 0, &mut content)? == content.len();
    // Looked at after it was read: it is what was compared.
    if !whole || !previous.previous_version(entry)?.is_some_and(|old| old.sign == sign) {
        return Err(io::ErrorKind::StaleNetworkFileHandle.into());
    }
    sink.put_small(entry, &content, terms.publish_small)
}

/// An earlier run wrote these chunks, and flushed them or not: each counts if it is what it was. The volumes of a striped file are read side by side.
fn part<S: SinkTree>(
    sink: &S,
    terms: &Terms,
    entry: &Entry,
    chunks: &[(usize, u64, Digest)],
    each: &mut dyn FnMut(Seen) -> bool,
) -> bool {
    let back = sink.read_back();
    let good_of = |volume: usize, mut chunks: Vec<(u64, Digest)>| {
        let mut buf = vec![0; terms.chunk_bytes as usize];
        chunks.retain(|(index, digest)| {
            let bytes = &mut buf[..chunk_len(entry.bytes(), terms.chunk_bytes, *index) as usize];
            let offset = index * u64::from(terms.chunk_bytes);
            let read = back.ok_or_else(unsupported).and_then(|it| it.read_part(volume, entry, offset, bytes));
            let is_whole = read.is_ok_and(|read| read == bytes.len());
            is_whole && chunk_digest(terms, entry.bytes(), offset, bytes) == *digest
        });
        (volume, chunks)
    };
    let mut rest = chunks.chunks(BATCH as usize).peekable();
    while let Some(batch) = rest.next() {
        let mut lanes: BTreeMap<usize, Vec<(u64, Digest)>> = BTreeMap::new();
        batch.iter().for_each(|(volume, index, digest)| lanes.entry(*volume).or_default().push((*index, *digest)));
        let of_volume =
            |(volume, good): (usize, Vec<(u64, Digest)>)| good.into_iter().map(move |it| (volume, it.0, it.1));
        let good = on_each(lanes, good_of).into_iter().flat_map(of_volume).collect();
        if !each(Seen::Part { entry: entry.id, good, last: rest.peek().is_none() }) {
            return false;
        }
    }
    true
}

/// What is digested is what stands at the destination, read back: a clone that is not what it should be is not published.
fn clone<S: SinkTree>(sink: &S, terms: &Terms, entry: &Entry, each: &mut dyn FnMut(Seen) -> bool) -> io::Result<()> {
    sink.cloning().ok_or_else(unsupported)?.clone_part(entry)?;
    let back = sink.read_back().ok_or_else(unsupported)?;
    let mut buf = vec![0; terms.chunk_bytes as usize];
    let mut digests = Vec::new();
    let chunks = chunk_count(entry.bytes(), terms.chunk_bytes);
    let mut data = Islands::of(entry);
    for index in 0..chunks {
        if index + 1 < chunks && data.is_hole(back, entry, index, terms.chunk_bytes) {
            continue; // the sender tells it
        }
        let bytes = &mut buf[..chunk_len(entry.bytes(), terms.chunk_bytes, index) as usize];
        let offset = index * u64::from(terms.chunk_bytes);
        if back.read_part(sink.volume_of(entry.id), entry, offset, bytes)? < bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        digests.push((index, chunk_digest(terms, entry.bytes(), offset, bytes)));
        if digests.len() as u64 == BATCH || index + 1 == chunks {
            let goes_on = each(Seen::Clone { entry: entry.id, digests: std::mem::take(&mut digests) });
            if !goes_on {
                return Err(io::ErrorKind::Interrupted.into()); // nobody hears it: the job is over
            }
        }
    }
    Ok(())
}

/// Where a part has holes, as far as it was looked.
struct Islands(Holes);

impl Islands {
    fn of(entry: &Entry) -> Islands {
        Islands(Holes { ranges: Vec::new(), until: if entry.tells_holes() { 0 } else { u64::MAX } })
    }

    /// Is a chunk a hole? They are asked for in order.
    fn is_hole(&mut self, back: &dyn ReadBack, entry: &Entry, index: u64, chunk_bytes: u32) -> bool {
        let start = index * u64::from(chunk_bytes);
        let end = start + u64::from(chunk_bytes);
        if end > self.0.until {
            // What cannot be known is read.
            self.0 = back.part_holes(entry, start).unwrap_or(Holes { ranges: Vec::new(), until: u64::MAX });
        }
        self.0.ranges.iter().any(|&(first, last)| first <= start && end <= last)
    }
}

fn old(
    previous: &dyn PreviousVersions,
    terms: &Terms,
    entry: &Entry,
    chunks: u64,
    sign: Sign,
    each: &mut dyn FnMut(Seen) -> bool,
) -> bool {
    let chunk_bytes = u64::from(terms.chunk_bytes);
    let digest_of = |index: u64, buf: &mut [u8]| {
        let bytes = &mut buf[..chunk_len(entry.bytes(), terms.chunk_bytes, index) as usize];
        let offset = index * chunk_bytes;
        match previous.read_previous(entry, offset, bytes) {
            Ok(read) if read == bytes.len() => chunk_digest(terms, entry.bytes(), offset, bytes),
            _ => NO_DIGEST,
        }
    };
    let mut first = 0;
    while first < chunks {
        let end = chunks.min(first + BATCH);
        let mut lanes: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        (first..end)
            .for_each(|it| lanes.entry(previous.volume_of_previous(entry, it * chunk_bytes)).or_default().push(it));
        let read = on_each(lanes, |_, indices| {
            let mut buf = vec![0; terms.chunk_bytes as usize];
            indices.into_iter().map(|index| (index, digest_of(index, &mut buf))).collect::<Vec<_>>()
        });
        let read: BTreeMap<u64, Digest> = read.into_iter().flatten().collect();
        let mut digests: Vec<Digest> = read.into_values().collect();
        // What was read before it changed is found out when it is carried over.
        if !previous.previous_version(entry).is_ok_and(|old| old.is_some_and(|old| old.sign == sign)) {
            digests.fill(NO_DIGEST);
        }
        if !each(Seen::Old { entry: entry.id, first, digests }) {
            return false;
        }
        first = end;
    }
    true
}

/// Work of the sender's comparer.
#[derive(Debug)]
pub enum Compare {
    /// Chunks of a file from `first` on, with the digests that were told of the peer's version.
    Told { entry: Arc<Entry>, first: u64, digests: Vec<Digest> },
    /// Digest these: the receiver has them from an earlier run.
    Own { entry: Arc<Entry>, chunks: ChunkRange },
}

/// What came of it, or why the source cannot be read.
#[derive(Debug)]
pub enum Compared {
    /// For each chunk, is it the same?
    Told { entry: EntryId, same: io::Result<Vec<bool>> },
    /// The source's digests from chunk `first` on. Of a file that became shorter `UnexpectedEof`.
    Own { entry: EntryId, first: u64, digests: io::Result<Vec<Digest>> },
}

/// Reads the source's chunks and compares.
pub fn compare<S: SourceTree>(source: &S, terms: &Terms, work: &Compare) -> Compared {
    let mut buf = vec![0; terms.chunk_bytes as usize];
    let mut digest_of = |entry: &Entry, index: u64| {
        let bytes = &mut buf[..chunk_len(entry.bytes(), terms.chunk_bytes, index) as usize];
        let offset = index * u64::from(terms.chunk_bytes);
        let read = source.read_at(entry, offset, bytes)?;
        io::Result::Ok((read == bytes.len()).then(|| chunk_digest(terms, entry.bytes(), offset, bytes)))
    };
    match work {
        Compare::Told { entry, first, digests } => {
            // A file that became shorter is torn: the sender sees that when it has read what is missing.
            let is_same = |(index, digest): (u64, &Digest)| {
                Ok(*digest != NO_DIGEST && digest_of(entry, index)?.is_some_and(|own| own == *digest))
            };
            Compared::Told { entry: entry.id, same: (*first..).zip(digests).map(is_same).collect() }
        }
        Compare::Own { entry, chunks } => {
            let own = |index| digest_of(entry, index)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into());
            let digests = (chunks.first..chunks.end).map(own).collect();
            Compared::Own { entry: entry.id, first: chunks.first, digests }
        }
    }
}

/// Which chunks of a file differ, for the user.
pub(super) fn show_differ(entry: &Entry, ranges: &[ChunkRange], chunk_bytes: u32) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = ranges
        .iter()
        .take(SHOWN)
        .map(|it| if it.end == it.first + 1 { it.first.to_string() } else { format!("{}-{}", it.first, it.end - 1) })
        .collect();
    let count: u64 = ranges.iter().map(|range| range.end - range.first).sum();
    let more = if ranges.len() > SHOWN { ", …" } else { "" };
    let path = String::from_utf8_lossy(&entry.path);
    let all = chunk_count(entry.bytes(), chunk_bytes);
    format!("{path}: {count} of {all} chunks of {chunk_bytes} bytes differ: {}{more}", shown.join(", "))
}
