//! What must hold, looked at while a run goes on and after it.
//!
//! For: finding out that the engine lied, lost, or went too far.
//! In and out: everything that passes between the parts in; a panic with a reason out.
//! Invariants: only looks.
//! Absent on purpose: knowing how the engine works inside.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use engine::job::Event;
use engine::machine::recv::{FLUSH_NS, JOURNAL_FILE_BYTES_MIN, NOTE_NS};
use engine::machine::{FailedEntry, Record};
use engine::meter::PathStats;
use engine::platform::Harm;
use engine::seal::digest::digest_of;
use engine::tree::commit::{Settled, Task};
use engine::tree::is_ours;
use proto::journal::{JournalHeader, Replay, encode_header};
use proto::manifest::{Entry, EntryId};
use proto::wire::control::{Corrupt, DigestKind, Durability, FaultKind, Frame, Want};

use crate::disk::{Disk, Kind};
use crate::scenario::{CHUNK_BYTES, RunPlan, Scenario, Versions};
use crate::trees::{SharedDisk, name};

type Path = Box<[u8]>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) loud: bool,
    /// Entries by id, as the receiver was told them.
    names: BTreeMap<EntryId, Entry>,
    /// What the receiver said is committed, with the content's BLAKE3.
    pub(crate) committed: BTreeMap<Path, [u8; 32]>,
    /// Chunks a journal speaks of, by path and source time.
    flushed: BTreeMap<(Path, (i64, u32)), BTreeSet<u64>>,
    /// Chunks it notes besides, which a kill does not cost.
    noted: BTreeMap<(Path, (i64, u32)), BTreeSet<u64>>,
    noting: VecDeque<Vec<u64>>,
    dry: bool,
    /// Another job writes the same names.
    pub(crate) overlapped: bool,
    /// In a run before this one.
    disk_has_failed: bool,
    discarding: VecDeque<Path>,
    /// When chunks landed that it does not even note.
    unnoted: BTreeMap<(EntryId, u64), u64>,
    /// When chunks landed that no journal speaks of yet, by entry and index.
    fresh: BTreeMap<(EntryId, u64), u64>,
    /// Published or failed: what still lands of these waits for no flush.
    over: BTreeSet<EntryId>,
    commit_ns: u64,
    disk_may_fail: bool,
    pub(crate) nacks: Vec<Corrupt>,
    pub(crate) cuts: usize,
    pub(crate) changed: BTreeSet<Path>,
    pub(crate) dead_rails: usize,
    /// Sums of the datagram rails' figures, run by run.
    pub(crate) metered: PathStats,
    /// Bytes the receiver compared, entries it removed, and bytes that were told as holes, over all runs.
    pub(crate) compared: u64,
    pub(crate) removed: u64,
    pub(crate) holes: u64,
    started_ns: u64,
}

impl Watch {
    pub(crate) fn new(loud: bool) -> Self {
        Watch { loud, ..Watch::default() }
    }

    pub(crate) fn begin(&mut self, plan: &RunPlan, now: u64) {
        self.names.clear();
        self.nacks.clear();
        self.discarding.clear();
        self.fresh.clear();
        self.unnoted.clear();
        self.noting.clear();
        self.disk_has_failed |= self.disk_may_fail;
        self.over.clear();
        self.commit_ns = plan.commit_ns;
        self.dry = plan.dry;
        self.disk_may_fail = plan.trouble.sink_faults.is_some();
        self.changed.clear();
        (self.cuts, self.dead_rails, self.started_ns) = (0, 0, now);
        self.say(now, || format!("a run begins: {plan:?}"));
    }

    pub(crate) fn say(&self, now: u64, what: impl FnOnce() -> String) {
        if self.loud {
            println!("{:>10.3} ms  {}", (now - self.started_ns) as f64 / 1e6, what());
        }
    }

    pub(crate) fn event(&mut self, now: u64, side: usize, event: &Event) {
        self.say(now, || format!("{side} event {}", brief(event)));
        if matches!(event, Event::RailDead { .. }) {
            self.dead_rails += 1;
        }
        if let Event::Landed { entry, offset, .. } = event
            && self.names.get(entry).is_some_and(|it| it.bytes() > JOURNAL_FILE_BYTES_MIN)
            && !self.over.contains(entry)
        {
            self.fresh.insert((*entry, offset / u64::from(CHUNK_BYTES)), now);
            self.unnoted.insert((*entry, offset / u64::from(CHUNK_BYTES)), now);
        }
    }

    /// A run is over; these are its datagram rails' figures.
    pub(crate) fn metered(&mut self, all: impl Iterator<Item = PathStats>) {
        let mut run = PathStats::default();
        for one in all {
            run.fresh_bytes += one.fresh_bytes;
            run.repair_bytes += one.repair_bytes;
            run.copy_bytes += one.copy_bytes;
            run.already_bytes += one.already_bytes;
            run.forged += one.forged;
            run.foreign += one.foreign;
            run.no_room += one.no_room;
            run.unloaded += one.unloaded;
            run.reloaded += one.reloaded;
            run.spilled += one.spilled;
            run.again += one.again;
        }
        let sum = &mut self.metered;
        sum.fresh_bytes += run.fresh_bytes;
        sum.repair_bytes += run.repair_bytes;
        sum.forged += run.forged;
        sum.again += run.again;
        sum.no_room += run.no_room;
        sum.unloaded += run.unloaded;
        sum.reloaded += run.reloaded;
        sum.spilled += run.spilled;
        self.say(self.started_ns, || format!("the run's datagram rails: {run:?}"));
    }

    /// A frame arrived.
    pub(crate) fn frame(&mut self, now: u64, side: usize, frame: &Frame) {
        self.say(now, || format!("{side} gets {}", brief(frame)));
        if let Frame::Nack { corrupt, .. } = frame {
            self.nacks.push(*corrupt);
        }
        if let Frame::Entries(entries) = frame {
            self.names.extend(entries.iter().map(|entry| (entry.id, entry.clone())));
        }
    }

    pub(crate) fn changed(&mut self, now: u64, path: Path) {
        self.say(now, || format!("another program changes {}", String::from_utf8_lossy(&path)));
        self.changed.insert(path);
    }

    pub(crate) fn task(&mut self, now: u64, task: &Task) {
        self.say(now, || format!("  committer gets {}", brief(task)));
        if let Task::Discard { entry, .. } = task {
            self.discarding.push_back(entry.path.clone());
        }
        if let Task::Note { entry, records, header, .. } = task {
            let mut journal = encode_header(&JournalHeader::of(entry, CHUNK_BYTES, DigestKind::Blake3)).to_vec();
            journal.extend_from_slice(&records[if *header { journal.len() } else { 0 }..]);
            let chunks = |it: &proto::journal::Record<'_>| it.first..it.first + it.digests.len() as u64;
            self.noting.push_back(Replay::parse(&journal).noted.iter().flat_map(chunks).collect());
        }
        if let Task::Publish { entries, .. } = task {
            entries.iter().for_each(|entry| self.settle(entry.id));
        }
    }

    pub(crate) fn settled(&mut self, now: u64, settled: &Settled) {
        self.say(now, || format!("  committer says {}", brief(settled)));
        if matches!(settled, Settled::Discarded) {
            let gone = self.discarding.pop_front().expect("it was told to discard");
            self.flushed.retain(|(path, _), _| *path != gone);
            self.noted.retain(|(path, _), _| *path != gone);
        }
        if let Settled::Noted { entry: id, result, .. } = settled {
            let indices = self.noting.pop_front().expect("it was told to note");
            let entry = &self.names[id];
            if result.is_ok() {
                self.unnoted.retain(|(it, index), _| it != id || !indices.contains(index));
                self.noted.entry((entry.path.clone(), (entry.mtime_s, entry.mtime_ns))).or_default().extend(indices);
            }
        }
        if let Settled::Flushed { entry, indices, result: Ok(()), .. } = settled {
            let entry = &self.names[entry];
            let key = (entry.path.clone(), (entry.mtime_s, entry.mtime_ns));
            self.flushed.entry(key).or_default().extend(indices);
            let is_open = |(id, index): &(EntryId, u64), _: &mut u64| id != &entry.id || !indices.contains(index);
            self.fresh.retain(is_open);
            self.unnoted.retain(is_open);
        }
    }

    /// An end says something: it must be true at this moment.
    pub(crate) fn sent_frame(&mut self, now: u64, side: usize, frame: &Frame, sink: &SharedDisk, scenario: &Scenario) {
        self.say(now, || format!("{side} says {}", brief(frame)));
        let sink = sink.lock().expect("one thread");
        if sink.dead {
            return;
        }
        match frame {
            Frame::Faults(faults) => faults.iter().for_each(|fault| self.settle(fault.entry)),
            Frame::Committed(list) => {
                for (id, digest) in list {
                    let entry = self.names.get(id).expect("announced");
                    if entry.is_file() {
                        let content = file(&sink, &entry.path).expect("committed files stand under their names");
                        let is = digest_of(scenario.terms.digest, content);
                        // Another job's whole file may be there by now.
                        assert!(self.overlapped || is == *digest, "the committed digest is the content's: {entry:?}");
                        self.committed.insert(entry.path.clone(), *blake3::hash(content).as_bytes());
                        // It has its name. Should its source become another without another time, a comparison finds what differs.
                        let key = (entry.path.clone(), (entry.mtime_s, entry.mtime_ns));
                        self.flushed.remove(&key);
                        self.noted.remove(&key);
                    }
                }
            }
            // The source has them no more, nor has the destination.
            Frame::Pruned { paths, .. } => {
                let is_below = |path: &Path, root: &Path| {
                    path.strip_prefix(&**root).is_some_and(|it| it.first().is_none_or(|it| *it == b'/'))
                };
                self.committed.retain(|path, _| !paths.iter().any(|root| is_below(path, root)));
            }
            Frame::Wants(wants) => {
                for (id, want) in wants {
                    let entry = &self.names[id];
                    let key = (entry.path.clone(), (entry.mtime_s, entry.mtime_ns));
                    let none = BTreeSet::new();
                    let flushed = self.flushed.get(&key).unwrap_or(&none);
                    // A dry run reads nothing back.
                    let noted = self.noted.get(&key).filter(|_| !self.dry).unwrap_or(&none);
                    let again = |index: u64| match want {
                        Want::Keep { .. } => false,
                        Want::All => true,
                        Want::Compare { .. } => false,
                        Want::Missing { ranges } | Want::MissingSoFar { ranges } => {
                            ranges.iter().any(|it| (it.first..it.end).contains(&index))
                        }
                    };
                    if self.disk_may_fail {
                        if matches!(want, Want::All) {
                            self.flushed.remove(&key);
                        }
                        self.noted.remove(&key);
                        continue;
                    }
                    if let Some(index) = flushed.union(noted).find(|&&index| again(index)) {
                        panic!("chunk {index} of {entry:?} was journalled and is asked for again: {want:?}");
                    }
                }
            }
            _ => {}
        }
    }

    /// Parts are not what they were: nobody can say which of their chunks are asked for again.
    pub(crate) fn tampered(&mut self) {
        self.flushed.clear();
        self.noted.clear();
    }

    /// Nothing of this entry waits for a flush any more.
    fn settle(&mut self, id: EntryId) {
        self.fresh.retain(|(it, _), _| *it != id);
        self.unnoted.retain(|(it, _), _| *it != id);
        self.over.insert(id);
    }

    /// At the moment of a crash: what it costs is what landed within one flush interval, and what the committer had in hand; without a
    /// power cut, what landed within that of notes.
    pub(crate) fn loss_is_bounded(&self, now: u64, cut: bool) {
        let (open, interval_ns) = if cut { (&self.fresh, FLUSH_NS) } else { (&self.unnoted, NOTE_NS) };
        for (place, landed) in open {
            let age = now - landed;
            let most = interval_ns + 3 * self.commit_ns + if cut { 500_000_000 } else { 50_000_000 };
            assert!(age <= most, "chunk {place:?} landed {age} ns ago and no journal speaks of it");
        }
    }

    /// After every round: nothing but whole versions ever stands under a final name.
    pub(crate) fn look(&mut self, sink: &mut Disk, versions: &Versions) {
        for path in std::mem::take(&mut sink.renamed) {
            if let Some(content) = file(sink, &path) {
                let hash = blake3::hash(content);
                let whole = versions.get(&path).is_some_and(|all| all.contains(hash.as_bytes()));
                assert!(whole, "{} stands there with a content its source never had", String::from_utf8_lossy(&path));
            }
        }
    }

    /// After a crash. `cut`: the power was lost, too.
    pub(crate) fn after_crash(&mut self, sink: &mut Disk, scenario: &Scenario, versions: &Versions, cut: bool) {
        let durability = scenario.durability;
        if cut {
            self.noted.clear();
        }
        if cut && durability < Durability::Flushed {
            // Below `flushed` nothing is promised for a power cut, and a torn file may keep length and time: its user removes it.
            self.flushed.clear();
            self.committed.clear();
            let torn: Vec<Path> = sink
                .tree()
                .filter(|(path, node)| !is_ours(name(path)) && !is_whole(path, node, versions))
                .map(|(path, _)| path.clone())
                .collect();
            torn.iter().for_each(|path| sink.uproot(path));
            return;
        }
        for (path, node) in sink.tree() {
            assert!(
                is_ours(name(path)) || is_whole(path, node, versions),
                "after a crash {} has a content of its own",
                String::from_utf8_lossy(path)
            );
        }
        if cut && durability < Durability::Published {
            self.committed.clear(); // contents are durable, names need not be
            return;
        }
        for path in self.committed.keys() {
            let content = file(sink, path).unwrap_or_else(|| panic!("{} was committed", String::from_utf8_lossy(path)));
            let hash = *blake3::hash(content).as_bytes();
            assert!(versions[path].contains(&hash), "{} was committed whole", String::from_utf8_lossy(path));
        }
    }

    /// After a run that both ends call done.
    pub(crate) fn after_done(
        &mut self,
        plan: &RunPlan,
        send: &Record,
        recv: &Record,
        harmed: Option<Harm>,
        flipped: usize,
    ) {
        self.compared += recv.tally.compared;
        self.removed += if plan.dry { 0 } else { recv.tally.removed };
        self.holes += recv.tally.holes;
        assert_eq!((send.tally.removed, send.tally.left), (recv.tally.removed, recv.tally.left), "both know what went");
        // A dry run says what would go, of a tree that it did not look at in all its depth.
        let is_whole = recv.tally.failed == 0 && recv.faults.is_empty();
        assert!(recv.tally.removed == 0 || is_whole, "nothing is removed unless all else was done: {:?}", recv.faults);
        if !plan.dry {
            let text = |record: &Record| String::from_utf8_lossy(&record.lines).into_owned();
            assert_eq!(text(send), text(recv), "both ends hold the same receipt");
        }
        let paths = |record: &Record| record.faults.iter().map(|it| it.path.clone()).collect::<BTreeSet<_>>();
        assert_eq!(paths(send), paths(recv), "both ends know the same failures");
        let trouble = &plan.trouble;
        let disks = trouble.source_faults.is_some() || trouble.sink_faults.is_some();
        for FailedEntry { fault, path, .. } in &recv.faults {
            let named = match fault.kind {
                FaultKind::Torn | FaultKind::Vanished => self.changed.contains(path) || disks,
                // A chunk that is read again for a repair may be unreadable, or another, by then.
                FaultKind::Corrupt => self.changed.contains(path) || (disks && plan.datagrams > 0),
                // Other: below a folder that could not be made nothing can be.
                FaultKind::Denied | FaultKind::Io | FaultKind::Full => disks,
                // Or it is one more name of a file that failed.
                FaultKind::Other => disks || self.changed.contains(path),
                FaultKind::InUse => self.overlapped,
                FaultKind::Unsupported => false,
            };
            assert!(named, "nothing in this story explains {fault:?} of {}", String::from_utf8_lossy(path));
        }
        let flips = usize::from(harmed.is_some()) + flipped;
        // What is read again for a repair may have changed, or be unreadable by then.
        let mixed = plan.datagrams > 0 && (disks || !self.changed.is_empty());
        assert!(mixed || self.nacks.len() <= flips, "more corrupt chunks than flipped bits: {:?}", self.nacks);
        for nack in &self.nacks {
            let fits = match nack {
                Corrupt::Wire => flipped > 0 || harmed == Some(Harm::SourceBuf) || mixed,
                Corrupt::SourceMemory => harmed == Some(Harm::SourceBuf) || mixed,
                Corrupt::SinkMemory => harmed == Some(Harm::SinkBuf),
            };
            assert!(fits, "{nack:?} after {harmed:?}, flips in flight: {flipped}");
        }
        if self.cuts == 0 && flipped == 0 && self.dead_rails == 0 {
            let most = self.nacks.len() as u64 * (u64::from(send.terms.chunk_bytes));
            assert!(send.tally.resent <= most, "only the corrupt chunk goes again: {} bytes", send.tally.resent);
            // On a datagram rail the harmed bytes may be read again before they go.
            if harmed.is_some() && !disks && self.changed.is_empty() && plan.datagrams == 0 {
                assert_eq!(self.nacks.len(), 1, "a bit flipped in memory and nobody saw it");
            }
        }
    }

    /// After the last run: the trees are the same.
    pub(crate) fn same(&self, source: &Disk, sink: &Disk, failed: &BTreeSet<Path>) {
        for (path, node) in source.tree() {
            let show = String::from_utf8_lossy(path);
            if failed.contains(path) {
                continue;
            }
            let there = sink.get(path).unwrap_or_else(|| panic!("{show} is not at the sink"));
            match (&node.kind, &there.kind) {
                (Kind::File(a), Kind::File(b)) => assert!(a.data == b.data, "{show} has another content"),
                (Kind::Folder, Kind::Folder) => {}
                (Kind::Link(a), Kind::Link(b)) => assert_eq!(a, b, "{show} leads elsewhere"),
                (Kind::Node(a, b, c), Kind::Node(d, e, f)) => {
                    assert_eq!((a, b, c), (d, e, f), "{show} is another node")
                }
                _ => panic!("{show} is of another kind"),
            }
            if !path.is_empty() || failed.is_empty() {
                assert_eq!(node.mtime, there.mtime, "{show} has another time");
            }
            if !matches!(node.kind, Kind::Link(_)) {
                assert_eq!(node.mode, there.mode, "{show} has another mode");
            }
            if !path.is_empty() || failed.is_empty() {
                assert_eq!(node.carried, there.carried, "{show} carries something else");
            }
            for other in source.names_of(path).iter().filter(|it| !failed.contains(*it)) {
                assert_eq!(
                    sink.ino(path),
                    sink.ino(other),
                    "{show} is the same file as {}",
                    String::from_utf8_lossy(other)
                );
            }
        }
        // What a failing disk would not remove may stay for good.
        for (path, _) in sink.tree().filter(|(path, _)| is_ours(name(path)) && !self.disk_has_failed) {
            let left = source.tree().find(|(it, kind)| {
                matches!(kind.kind, Kind::File(_))
                    && !failed.contains(*it)
                    && path.starts_with(&engine::tree::beside(it, ""))
            });
            let of = left.map(|(it, _)| String::from_utf8_lossy(it));
            assert!(of.is_none(), "{} was left behind of {of:?}", String::from_utf8_lossy(path));
        }
    }
}

/// Is it a content that the source had, or one that stood at the sink before (by its mode)?
fn is_whole(path: &Path, node: &crate::disk::Node, versions: &Versions) -> bool {
    let Kind::File(content) = &node.kind else { return true };
    let hash = *blake3::hash(&content.data).as_bytes();
    versions.get(path).is_some_and(|all| all.contains(&hash)) || node.mode == 0o640
}

pub(crate) fn file<'a>(disk: &'a Disk, path: &[u8]) -> Option<&'a [u8]> {
    match &disk.get(path)?.kind {
        Kind::File(content) => Some(&content.data),
        _ => None,
    }
}

fn brief(it: &impl std::fmt::Debug) -> String {
    let mut text = format!("{it:?}");
    if text.len() > 300 {
        let end = (0..=300).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}
