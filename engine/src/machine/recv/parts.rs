//! What has come of large files: journalled, and taken up again by a later run.
//!
//! For: parts that outlive a kill; of a file that is striped by chunk, one part for each volume that has chunks of it.
//! In and out: journals found; wants; flushes with the records that follow them.
//! Invariants: what an earlier run wrote is read back, beside the chunks that nobody has, and counts only if it has the digest that its record
//! says, flushed or not: a disk that rots, a program that writes into a part, a power cut or another mount make nothing of it but a chunk that is sent again; a record is handed over together with the flush that must precede it, one flush of a part at a time; a part that cannot be
//! believed is worth nothing, and those on other volumes are worth what they were.
//! Absent on purpose: what a journal's bytes mean (`proto::journal`), when a file is whole (`recv.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use proto::journal::{self, JOURNAL_HEADER_BYTES, JournalHeader, Record, Replay};
use proto::ledger::ChunkState;
use proto::manifest::{Entry, EntryId};
use proto::wire::chunk::PACK_FILE_BYTES_MAX;
use proto::wire::control::{Digest, Durability, Frame, WANT_RANGES_MAX, Want};

use super::coming::{Coming, Fresh, Noting, ReadBack, Taken};
use super::{RecvEnd, show};
use crate::job::fault_kind;
use crate::machine::Outbox;
use crate::machine::compare::Look;
use crate::platform::{Firm, Parts, Platform, Publish, SinkTree, VolumeSet};
use crate::seal::digest::DigestTree;
use crate::tree::commit::{JOURNAL_FILE_BYTES_MIN, Task};

impl<P: Platform> RecvEnd<P> {
    /// Goes on with what an earlier run left: its journals, by volume. What they speak of is read back; meanwhile the rest comes.
    pub(super) fn resume(&mut self, entry: &Arc<Entry>, journals: &[(usize, Vec<u8>)], out: &mut Outbox<P>) -> Want {
        let own = self.journal_header(entry);
        let mut parts = Vec::with_capacity(journals.len());
        for (volume, journal) in journals {
            let volume = if entry.meta.striped { *volume } else { self.sink.volume_of(entry.id) };
            match taken(&own, volume, journal) {
                Some(part) => parts.push(part),
                None if self.record.dry => {}
                None => {
                    out.notes.push(format!("{}: the part is of another source, it is done anew", show(&entry.path)));
                    self.sink.discard_on(volume, entry);
                }
            }
        }
        let union: BTreeMap<u64, Digest> =
            parts.iter().flat_map(Taken::chunks).map(|(_, index, digest)| (index, digest)).collect();
        let all = union.len();
        let kept = first_runs(union);
        // A dry run reads nothing back, and says what would be gone on with if all is as it was.
        if self.record.dry || parts.is_empty() {
            return self.begin(entry, &kept, &[], false);
        }
        let noted: BTreeSet<u64> = parts.iter().flat_map(|part| part.noted.keys().copied()).collect();
        let last = kept.last().map_or(0, |(index, _)| index + 1);
        let is_cut = kept.len() < all;
        for part in &mut parts {
            part.kept.extend(std::mem::take(&mut part.noted));
            part.kept.retain(|index, _| *index < last);
            let own_kept: Vec<(u64, Digest)> = part.kept.iter().map(|(index, digest)| (*index, *digest)).collect();
            let gaps = gaps(&own_kept, own.chunks(), u64::from(own.chunk_bytes));
            let all = if is_cut { self.rewrite(entry, part, &noted) } else { Ok(part.valid_bytes) };
            if let Err(error) = all.and_then(|all| self.sink.resume_part(part.volume, entry, all, &gaps)) {
                out.notes
                    .push(format!("{}: the part cannot be taken up ({error}), it is done anew", show(&entry.path)));
                self.sink.discard(entry);
                return self.begin(entry, &[], &[], false);
            }
        }
        let volumes: Vec<usize> = parts.iter().map(|part| part.volume).collect();
        let promised = parts.iter().any(|part| part.promised);
        let claims = kept.iter().map(|(index, _)| (*index, ChunkState::Claimed));
        let ranges = self.machine.expect(entry.id, claims);
        self.comes(entry, &[], &volumes, promised);
        if kept.is_empty() {
            return Want::Missing { ranges };
        }
        let chunks: Vec<(usize, u64, Digest)> = parts.iter().flat_map(Taken::chunks).collect();
        self.coming.get_mut(&entry.id).expect("it comes").resumed = true;
        self.reading_back.insert(entry.id, ReadBack { claims: kept.len(), stood: 0, noted, volumes });
        out.looks.push(Look::Part { entry: entry.clone(), chunks });
        Want::MissingSoFar { ranges }
    }

    /// These stand there. When that was the last of them: what does not is wanted, too.
    pub(super) fn on_seen_part(&mut self, id: EntryId, good: &[(usize, u64, Digest)], last: bool, out: &mut Outbox<P>) {
        let Some(back) = self.reading_back.get_mut(&id) else { return };
        let Some(entry) = self.machine.entry(id).cloned() else { return };
        let coming = self.coming.get_mut(&id).expect("made before it was read back");
        let chunk_bytes = u64::from(self.record.terms.chunk_bytes);
        for &(volume, index, digest) in good {
            let is_noted = back.noted.contains(&index);
            let state = if is_noted { ChunkState::Landed } else { ChunkState::Durable };
            // Two volumes of a striped file may have the same one.
            if !self.machine.claim_holds(id, index, state) {
                continue;
            }
            back.stood += 1;
            coming.tree.put(index, digest);
            let bytes = chunk_bytes.min(entry.bytes() - index * chunk_bytes);
            let tally = &mut self.record.tally;
            (tally.bytes_resumed, tally.written) = (tally.bytes_resumed + bytes, tally.written + bytes);
            if is_noted {
                self.unjournalled.add(id, bytes);
                coming.fresh.entry(volume).or_default().add_read_back(index, bytes as u32, digest);
            } else {
                tally.durable += bytes;
                coming.durable_bytes += bytes;
            }
        }
        if !last {
            return;
        }
        let Some(ReadBack { claims, stood, volumes, .. }) = self.reading_back.remove(&id) else { return };
        let ranges = self.machine.claims_end(id);
        if !ranges.is_empty() {
            out.notes.push(format!(
                "{}: {} of {claims} chunks that an earlier run wrote are not what they were, they are sent again",
                show(&entry.path),
                claims - stood
            ));
            // What is missing of a part reads as zeros: the sender may say that it is a hole.
            let places: Vec<(u64, u64)> =
                ranges.iter().map(|it| (it.first * chunk_bytes, (it.end - it.first) * chunk_bytes)).collect();
            let failed = |(offset, length): &(u64, u64)| entry.bytes().min(offset + length) - offset;
            self.record.tally.bytes_readback_failed += places.iter().map(failed).sum::<u64>();
            for volume in volumes {
                if let Err(error) = self.sink.empty_part(volume, &entry, &places) {
                    return self.fail(id, fault_kind(&error, false), Some(&error), "empty what does not stand");
                }
            }
        }
        out.frames.push(Frame::Wants(vec![(id, Want::Missing { ranges })]));
    }

    /// Not all that stands there can be asked around, and what cannot is given up: its records go before its bytes do, or a later run would
    /// believe them. What the journal is long then.
    fn rewrite(&self, entry: &Entry, part: &Taken, noted: &BTreeSet<u64>) -> io::Result<usize> {
        let flushed: Vec<(u64, Digest)> =
            part.kept.iter().filter(|(index, _)| !noted.contains(index)).map(|(index, own)| (*index, *own)).collect();
        let mut records = Vec::new();
        journal::encode_runs(&flushed, journal::encode_record, &mut records);
        self.sink.resume_part(part.volume, entry, JOURNAL_HEADER_BYTES, &[])?;
        // What they speak of was flushed; the call that cuts the part's bytes away flushes them.
        self.sink.flush(part.volume, entry, &records, Firm::Written)?;
        Ok(JOURNAL_HEADER_BYTES + records.len())
    }

    /// The file comes. `kept`: chunks that are there and durable, in parts on these volumes, which have their journals' headers.
    pub(super) fn begin(
        &mut self,
        entry: &Arc<Entry>,
        kept: &[(u64, Digest)],
        volumes: &[usize],
        promised: bool,
    ) -> Want {
        let ranges = self.machine.expect(entry.id, kept.iter().map(|(index, _)| (*index, ChunkState::Durable)));
        if entry.bytes() <= PACK_FILE_BYTES_MAX && kept.is_empty() {
            return Want::All;
        }
        self.comes(entry, kept, volumes, promised);
        if kept.is_empty() { Want::All } else { Want::Missing { ranges } }
    }

    fn comes(&mut self, entry: &Arc<Entry>, kept: &[(u64, Digest)], volumes: &[usize], promised: bool) {
        let chunk_bytes = u64::from(self.record.terms.chunk_bytes);
        let mut tree = DigestTree::new(self.record.terms.digest, entry.bytes(), self.record.terms.chunk_bytes);
        let begun = |volume: &usize| (*volume, Fresh { header_written: true, ..Fresh::default() });
        let mut kept_bytes = 0;
        for (index, digest) in kept {
            tree.put(*index, *digest);
            kept_bytes += chunk_bytes.min(entry.bytes() - index * chunk_bytes);
        }
        let tally = &mut self.record.tally;
        tally.bytes_resumed += kept_bytes;
        tally.durable += kept_bytes;
        tally.written += kept_bytes;
        let coming = Coming {
            tree,
            journalled: entry.bytes() > JOURNAL_FILE_BYTES_MIN,
            striped: entry.meta.striped,
            durable: promised || self.record.durability >= Durability::Flushed,
            fresh: volumes.iter().map(begun).collect(),
            closing: false,
            durable_bytes: kept_bytes,
            holes: 0,
            unmapped: Vec::new(),
            resumed: false,
        };
        self.coming.insert(entry.id, coming);
    }

    pub(super) fn journal_header(&self, entry: &Entry) -> JournalHeader {
        let terms = &self.record.terms;
        JournalHeader {
            boot_id_hash: self.boot,
            durability_written_only: self.record.durability < Durability::Flushed,
            ..JournalHeader::of(entry, terms.chunk_bytes, terms.digest)
        }
    }

    pub(super) fn pump_flushes(&mut self, now_ns: u64, out: &mut Outbox<P>) {
        self.pump_notes(now_ns, out);
        let mut due: Vec<(EntryId, usize)> = Vec::new();
        for (&id, coming) in self.coming.iter_mut().filter(|(_, coming)| coming.journalled) {
            // Any map may speak of holes, for they read as zeros in every piece. The last chunk always comes, so there is one.
            if let Some(fresh) = coming.fresh.values_mut().next() {
                fresh.holes.append(&mut coming.unmapped);
            }
            // A note on its way may bring the header.
            let noting = coming.noting();
            let is_free = noting != Noting::Before || !self.noting.contains(&id);
            let fresh = coming.fresh.iter().filter(|(_, it)| is_free && it.is_due(now_ns, coming.closing, noting));
            due.extend(fresh.map(|(&volume, _)| (id, volume)));
        }
        due.sort_unstable(); // the same facts give the same order
        for (id, volume) in due {
            let Some(entry) = self.machine.entry(id).cloned() else { continue };
            let mut records = Vec::new();
            let header = self.journal_header(&entry);
            let coming = self.coming.get_mut(&id).expect("listed above");
            let (noting, durable) = (coming.noting(), coming.durable);
            let fresh = coming.fresh.get_mut(&volume).expect("listed above");
            fresh.flush_heads = !std::mem::replace(&mut fresh.header_written, true);
            if fresh.flush_heads {
                records.extend_from_slice(&journal::encode_header(&header));
            }
            let taken = fresh.take(noting);
            journal::encode_runs(&taken, journal::encode_record, &mut records);
            fresh.holes.drain(..).for_each(|hole| journal::encode_hole(hole, &mut records));
            let indices = taken.into_iter().map(|(index, _)| index).collect();
            let firm = match std::mem::replace(&mut fresh.named, durable) {
                _ if !durable => Firm::Written,
                true => Firm::Flushed,
                false => Firm::Named,
            };
            out.tasks.push(Task::Flush { volume, entry, records, indices, firm });
        }
    }

    /// A part is flushed, and its journal speaks of these chunks.
    pub(super) fn on_flushed(&mut self, volume: usize, id: EntryId, indices: &[u64]) {
        self.machine.on_durable(id, indices.iter().copied());
        let Some(coming) = self.coming.get_mut(&id) else { return };
        if let Some(fresh) = coming.fresh.get_mut(&volume) {
            fresh.flushing = false;
        }
        let bytes = indices.len() as u64 * u64::from(self.record.terms.chunk_bytes);
        self.sink.flushed(volume, id, bytes);
        self.unjournalled.on_journalled(id, bytes);
        if self.record.durability >= Durability::Flushed {
            coming.durable_bytes += bytes;
            self.record.tally.durable += bytes;
        }
        self.is_ready_at_last(id);
    }
}

/// What can be believed of a journal, if it is of this source cut this way.
fn taken(own: &JournalHeader, volume: usize, journal: &[u8]) -> Option<Taken> {
    let replay = Replay::parse(journal);
    let header = replay.header?;
    let of_this_end = |it: &JournalHeader| (it.boot_id_hash, it.durability_written_only, it.sparse);
    let (boot_id_hash, durability_written_only, sparse) = of_this_end(own);
    let fits = JournalHeader { boot_id_hash, durability_written_only, sparse, ..header } == *own
        && (!header.durability_written_only || header.boot_id_hash == own.boot_id_hash);
    if !fits {
        return None;
    }
    let chunks_of = |records: &[Record<'_>]| -> BTreeMap<u64, Digest> {
        records.iter().flat_map(|it| (it.first..own.chunks()).zip(it.digests.iter().copied())).collect()
    };
    let (kept, mut noted) = (chunks_of(&replay.records), chunks_of(&replay.noted));
    noted.retain(|index, _| !kept.contains_key(index));
    Some(Taken { volume, valid_bytes: replay.valid_bytes, promised: !header.durability_written_only, kept, noted })
}

/// Runs of kept chunks, no more than a `Want` can name the gaps of; what is beyond is fetched again.
pub(super) fn first_runs(kept: BTreeMap<u64, Digest>) -> Vec<(u64, Digest)> {
    const RUNS_MAX: usize = WANT_RANGES_MAX - 1; // one more gap than runs
    let mut runs = 0;
    let mut last = None;
    kept.into_iter()
        .take_while(|(index, _)| {
            if last.is_none_or(|last| last + 1 != *index) {
                runs += 1;
            }
            last = Some(*index);
            runs <= RUNS_MAX
        })
        .collect()
}

/// Ranges in bytes that no kept chunk covers.
pub(super) fn gaps(kept: &[(u64, Digest)], chunks: u64, chunk_bytes: u64) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut next = 0;
    for index in kept.iter().map(|(index, _)| *index).chain([chunks]) {
        if index > next {
            gaps.push((next * chunk_bytes, (index - next) * chunk_bytes));
        }
        next = index + 1;
    }
    gaps
}
