//! Files whose chunks stand on many volumes.
//!
//! For: `--stripe chunk`: which volume is given a chunk, and which has it when the file is read again.
//! In and out: what each volume has to do → the one that is given the next chunk; the maps of a file, as bytes → a place for every chunk.
//! Invariants: a join knows a place for each chunk, or there is no join; all maps speak of the same file, cut and digested the same way;
//! nothing is allocated that is longer than the maps themselves; a map that was torn counts up to where it is whole.
//! Absent on purpose: file calls, names on the disk (engine), redundancy.
//!
//! A **map** is the journal of a volume's piece of the file (see `journal`): which chunks stand in it, each with its digest. It is appended
//! to while the file comes, and stays when the file is whole.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::journal::{JournalHeader, Replay};
use crate::ledger::{CHUNKS_MAX, chunk_count};
use crate::manifest::{Entry, EntryId};
use crate::wire::control::{Digest, DigestKind, HOLE_REACH_BYTES};

/// What a volume still has to do, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// On their way to its file system. A slow disk keeps them for longer, and so is given less; nobody measures a rate.
    pub flying: u64,
    /// In its file system and not flushed: what tells disks apart where writes end in memory.
    pub waiting: u64,
}

/// A chunk that was given a volume and has not landed.
#[derive(Debug, Clone, Copy)]
struct Flight {
    volume: usize,
    bytes: u32,
    /// How many chunks were dealt out before it.
    number: u64,
}

/// Chunks on their way to a volume at most, where others wait to be dealt out: enough that a disk is busy while the worker is not at it.
const AT_ONCE: u64 = 8;
/// And to one on which none has landed yet.
const AT_ONCE_UNTRIED: u64 = 2;

/// When chunks landed on a volume.
#[derive(Debug, Default, Clone, Copy)]
struct Landings {
    /// How many had been dealt out when the last one did, or when the next was given to a volume that had none.
    last: u64,
    /// How many are dealt out from one to the next, smoothed over four; 0: none has landed.
    gap: u64,
}

/// Deals chunks out to volumes. Its clock is the number of chunks dealt out: no time is read.
///
/// A chunk is given a volume as late as can be: when one has a turn, which has fewer chunks on their way than it may. Of N volumes that are alike
/// each lands one while N are dealt out; one that lands its next only after ten times as many may have a tenth of what the others may, but one. So a
/// file does not wait at its end for what a slow disk was given when nobody knew.
///
/// The next chunk goes where the least is on its way. That alone would leave a disk that becomes slow with as many chunks as the others,
/// and the file would wait for these at its end. So what is on its way counts more where it takes longer than on most, by the square: while a
/// chunk is on its way to a disk like the others, about as many are dealt out as are on their way to all.
#[derive(Debug, Default)]
pub struct Dealer {
    dealt: u64,
    flying: BTreeMap<(EntryId, u64), Flight>,
    /// By volume: how many were dealt out while the last chunk that landed there was on its way.
    took: Vec<u64>,
    /// By volume: how many were dealt out since the oldest that is on its way there. Memory to use again.
    since: Vec<u64>,
    /// By volume: how many are on their way.
    counts: Vec<u64>,
    /// By volume.
    landings: Vec<Landings>,
}

/// The place of this volume in a list that grows when it is needed.
fn of<T: Default + Clone>(all: &mut Vec<T>, volume: usize) -> &mut T {
    if all.len() <= volume {
        all.resize(volume + 1, T::default());
    }
    &mut all[volume]
}

impl Dealer {
    /// The volume of a chunk that is on its way.
    #[must_use]
    pub fn volume_of(&self, entry: EntryId, offset: u64) -> Option<usize> {
        self.flying.get(&(entry, offset)).map(|flight| flight.volume)
    }

    /// The volume with the least to do, of these: of those that have a turn, if any has; of equals the one with the least that is not flushed,
    /// then the first.
    /// `alike`: how many there are in all.
    pub fn choose(&mut self, alike: usize, loads: impl Iterator<Item = (usize, Load)>) -> Option<usize> {
        let usual = 2 * self.flying.len() as u64 + 1;
        self.since.clear();
        self.since.extend_from_slice(&self.took);
        for flight in self.flying.values() {
            let since = of(&mut self.since, flight.volume);
            *since = (*since).max(self.dealt - flight.number);
        }
        let weight = |(volume, load): (usize, Load)| {
            let lag = 1 + self.since.get(volume).copied().unwrap_or(0) / usual;
            let flying = load.flying.saturating_mul(lag.saturating_pow(2));
            (!self.wants(volume, alike), flying, load.waiting, volume)
        };
        loads.map(weight).min().map(|(.., volume)| volume)
    }

    /// Has any of these volumes a turn, or is a chunk better kept until one has?
    #[must_use]
    pub fn has_turn(&self, mut volumes: impl Iterator<Item = usize> + Clone) -> bool {
        let alike = volumes.clone().count();
        alike == 0 || volumes.any(|volume| self.wants(volume, alike))
    }

    /// Has this volume a turn, of so many in all?
    #[must_use]
    pub fn wants(&self, volume: usize, alike: usize) -> bool {
        let count = self.counts.get(volume).copied().unwrap_or(0);
        let Landings { last, gap } = self.landings.get(volume).copied().unwrap_or_default();
        let most = if gap == 0 {
            AT_ONCE_UNTRIED
        } else {
            // One that has something to do and does not land it is as slow as it is late.
            let gap = if count > 0 { gap.max(self.dealt - last) } else { gap };
            (AT_ONCE * alike as u64 / gap).clamp(1, AT_ONCE)
        };
        count < most
    }

    /// The chunk is on its way there.
    pub fn deal(&mut self, entry: EntryId, offset: u64, bytes: u32, volume: usize) {
        let count = of(&mut self.counts, volume);
        *count += 1;
        if *count == 1 {
            // It was idle until now: that is no slowness.
            of(&mut self.landings, volume).last = self.dealt;
        }
        self.flying.insert((entry, offset), Flight { volume, bytes, number: self.dealt });
        self.dealt += 1;
    }

    /// The chunk has landed, or never will: its volume and its bytes.
    pub fn landed(&mut self, entry: EntryId, offset: u64) -> Option<(usize, u32)> {
        let flight = self.flying.remove(&(entry, offset))?;
        *of(&mut self.took, flight.volume) = self.dealt - flight.number;
        *of(&mut self.counts, flight.volume) -= 1;
        let dealt = self.dealt;
        let landings = of(&mut self.landings, flight.volume);
        let gap = (dealt - landings.last).max(1);
        let smooth = if landings.gap == 0 { gap } else { (3 * landings.gap + gap) / 4 };
        *landings = Landings { last: dealt, gap: smooth.max(1) };
        Some((flight.volume, flight.bytes))
    }

    /// No chunk of this file is on its way any more: volumes and bytes of those that were.
    pub fn forget(&mut self, entry: EntryId) -> Vec<(usize, u32)> {
        let own: Vec<u64> = self.flying.range((entry, 0)..=(entry, u64::MAX)).map(|((_, offset), _)| *offset).collect();
        let gone: Vec<_> = own.into_iter().filter_map(|offset| self.flying.remove(&(entry, offset))).collect();
        gone.iter().for_each(|it| *of(&mut self.counts, it.volume) -= 1);
        gone.iter().map(|it| (it.volume, it.bytes)).collect()
    }
}

/// Which file is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole {
    /// Its length.
    pub bytes: u64,
    /// Its modification time, seconds since 1970.
    pub mtime_s: i64,
    /// And nanoseconds.
    pub mtime_ns: u32,
}

impl Whole {
    /// That of an entry.
    #[must_use]
    pub fn of(entry: &Entry) -> Whole {
        Whole { bytes: entry.bytes(), mtime_s: entry.mtime_s, mtime_ns: entry.mtime_ns }
    }
}

/// Why there is no join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinFault {
    /// The map of this volume cannot be read, or is of another file.
    Map {
        /// Of those that were given.
        volume: u16,
    },
    /// Two volumes say different things of how the file is cut or digested.
    Cut {
        /// The second of them.
        volume: u16,
    },
    /// So many of the file's chunks are on none of the volumes.
    Missing {
        /// How many, at least.
        chunks: u64,
        /// Of so many.
        of: u64,
    },
}

impl core::fmt::Display for JoinFault {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            JoinFault::Map { volume } => write!(out, "the map on volume {volume} is damaged, or of another file"),
            JoinFault::Cut { volume } => write!(out, "the map on volume {volume} is of another cut than the others"),
            JoinFault::Missing { chunks, of } => {
                write!(out, "{chunks} of its {of} chunks are on no volume that is here")
            }
        }
    }
}

/// Where a chunk stands.
#[derive(Debug, Clone, Copy)]
struct Place {
    volume: u16,
    /// It is zeros, and reads as such on that volume.
    hole: bool,
    /// The first bytes of its digest: enough to find a chunk that rotted, and a quarter of the memory.
    check: u32,
}

/// A chunk of which no map speaks.
const NOWHERE: u16 = u16::MAX;

/// A place for every chunk of a file.
#[derive(Debug)]
pub struct Join {
    chunk_bytes: u32,
    digest: DigestKind,
    places: Vec<Place>,
}

impl Join {
    /// Joins the maps of a file: bytes of each, by volume.
    ///
    /// # Errors
    /// See `JoinFault`; a chunk that is on two volumes is taken from the one that was named last.
    pub fn of(file: Whole, maps: &[(u16, Vec<u8>)]) -> Result<Join, JoinFault> {
        let mut replays = Vec::with_capacity(maps.len());
        let mut first: Option<JournalHeader> = None;
        let (mut told, mut holes) = (0u64, 0u64);
        for (volume, bytes) in maps {
            let replay = Replay::parse(bytes);
            let header = replay.header.ok_or(JoinFault::Map { volume: *volume })?;
            if (Whole { bytes: header.bytes, mtime_s: header.mtime_s, mtime_ns: header.mtime_ns }) != file {
                return Err(JoinFault::Map { volume: *volume });
            }
            let cut = |it: &JournalHeader| (it.chunk_bytes, it.digest);
            if first.is_some_and(|first| cut(&first) != cut(&header)) {
                return Err(JoinFault::Cut { volume: *volume });
            }
            first = Some(header);
            told += replay.records.iter().map(|record| record.digests.len() as u64).sum::<u64>();
            let reach = HOLE_REACH_BYTES / u64::from(header.chunk_bytes);
            if replay.holes.iter().any(|hole| hole.end > reach) {
                return Err(JoinFault::Map { volume: *volume });
            }
            holes = replay.holes.iter().fold(holes, |sum, hole| reach.min(sum + hole.end - hole.first));
            replays.push((*volume, replay));
        }
        let Some(header) = first else { return Err(JoinFault::Missing { chunks: 1, of: 1 }) };
        let chunks = chunk_count(file.bytes, header.chunk_bytes);
        // Before anything is allocated: a length is easily said, a digest for each chunk is not, and holes have their reach.
        let told = told + holes;
        if told < chunks || chunks > CHUNKS_MAX {
            return Err(JoinFault::Missing { chunks: chunks.saturating_sub(told), of: chunks });
        }
        let mut places = vec![Place { volume: NOWHERE, hole: false, check: 0 }; chunks as usize];
        for (volume, replay) in &replays {
            for hole in &replay.holes {
                places[hole.first as usize..hole.end as usize].fill(Place { volume: *volume, hole: true, check: 0 });
            }
        }
        for (volume, replay) in &replays {
            for record in &replay.records {
                for (place, digest) in places[record.first as usize..].iter_mut().zip(record.digests) {
                    *place = Place { volume: *volume, hole: false, check: check(digest) };
                }
            }
        }
        let missing = places.iter().filter(|place| place.volume == NOWHERE).count() as u64;
        if missing > 0 {
            return Err(JoinFault::Missing { chunks: missing, of: chunks });
        }
        Ok(Join { chunk_bytes: header.chunk_bytes, digest: header.digest, places })
    }

    /// Bytes of the chunks that the file is cut into.
    #[must_use]
    pub fn chunk_bytes(&self) -> u32 {
        self.chunk_bytes
    }

    /// Volumes, up to the last that has a chunk.
    #[must_use]
    pub fn volumes(&self) -> u16 {
        self.places.iter().map(|place| place.volume + 1).max().unwrap_or(0)
    }

    /// The volume that has the byte at `offset`.
    #[must_use]
    pub fn volume_at(&self, offset: u64) -> Option<u16> {
        let index = usize::try_from(offset / u64::from(self.chunk_bytes)).ok()?;
        self.places.get(index).map(|place| place.volume)
    }

    /// Is the byte at `offset` in a hole?
    #[must_use]
    pub fn is_hole(&self, offset: u64) -> bool {
        let index = usize::try_from(offset / u64::from(self.chunk_bytes)).unwrap_or(usize::MAX);
        self.places.get(index).is_some_and(|place| place.hole)
    }

    /// Holes from `offset` on, first byte and end, at most so many; and up to where there are no others (`u64::MAX`: the end).
    #[must_use]
    pub fn holes(&self, offset: u64, most: usize) -> (Vec<(u64, u64)>, u64) {
        let step = u64::from(self.chunk_bytes);
        let mut index = usize::try_from(offset / step).unwrap_or(usize::MAX).min(self.places.len());
        let mut holes = Vec::new();
        while holes.len() < most {
            let Some(skip) = self.places[index..].iter().position(|place| place.hole) else { return (holes, u64::MAX) };
            let first = index + skip;
            let run = self.places[first..].iter().position(|place| !place.hole).unwrap_or(self.places.len() - first);
            index = first + run;
            holes.push((first as u64 * step, index as u64 * step));
        }
        (holes, index as u64 * step)
    }

    /// Is what was read at `offset` what stood there when it was written? Yes, where nobody can tell: it was cut or digested in another way.
    /// Of a hole no digest is known: what is read there is to be zeros.
    #[must_use]
    pub fn agrees(&self, offset: u64, chunk_bytes: u32, kind: DigestKind, digest: &Digest) -> bool {
        if (chunk_bytes, kind) != (self.chunk_bytes, self.digest) {
            return true;
        }
        let index = usize::try_from(offset / u64::from(chunk_bytes)).unwrap_or(usize::MAX);
        self.places.get(index).is_some_and(|place| !place.hole && place.check == check(digest))
    }
}

fn check(digest: &Digest) -> u32 {
    u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;

    use crate::wire::control::ChunkRange;

    use crate::journal::{JOURNAL_VERSION, encode_header, encode_hole, encode_record};

    const MIB: u64 = 1 << 20;
    const FILE: Whole = Whole { bytes: 9 * MIB + 5, mtime_s: 7, mtime_ns: 8 };

    fn header(chunk_bytes: u32) -> JournalHeader {
        JournalHeader {
            version: JOURNAL_VERSION,
            bytes: FILE.bytes,
            mtime_s: FILE.mtime_s,
            mtime_ns: FILE.mtime_ns,
            chunk_bytes,
            digest: DigestKind::Blake3,
            boot_id_hash: [0; 8],
            durability_written_only: false,
            sparse: false,
        }
    }

    fn digest(index: u64) -> Digest {
        [index as u8 + 1; 32]
    }

    fn map(chunks: &[u64]) -> Vec<u8> {
        let mut bytes = encode_header(&header(1 << 20)).to_vec();
        for &index in chunks {
            encode_record(index, &[digest(index)], &mut bytes);
        }
        bytes
    }

    #[test]
    fn every_chunk_has_the_place_that_its_map_says() {
        let maps = [(0, map(&[0, 3, 6, 9])), (4, map(&[1, 4, 7])), (2, map(&[2, 5, 8]))];
        let join = Join::of(FILE, &maps).expect("all is there");
        let volumes: Vec<_> = (0..10).map(|index| join.volume_at(index * MIB).expect("inside")).collect();
        assert_eq!(volumes, [0, 4, 2, 0, 4, 2, 0, 4, 2, 0]);
        assert_eq!(join.volume_at(9 * MIB + 4), Some(0));
        assert_eq!(join.volume_at(10 * MIB), None);
        assert!(join.agrees(4 * MIB, 1 << 20, DigestKind::Blake3, &digest(4)));
        assert!(!join.agrees(4 * MIB, 1 << 20, DigestKind::Blake3, &digest(5)));
        assert!(join.agrees(4 * MIB, 2 << 20, DigestKind::Blake3, &digest(5)), "nobody can tell");
    }

    #[test]
    fn holes_have_a_place_that_reads_as_zeros_and_a_chunk_that_came_is_none() {
        let hole = |first, end, out: &mut Vec<u8>| encode_hole(ChunkRange { first, end }, out);
        let mut maps = [(0, map(&[0, 9])), (3, map(&[4]))];
        hole(1, 6, &mut maps[0].1);
        hole(6, 9, &mut maps[1].1);
        let join = Join::of(FILE, &maps).expect("all is there");
        assert_eq!((join.volume_at(4 * MIB), join.is_hole(4 * MIB)), (Some(3), false), "it came after all");
        assert_eq!((join.volume_at(5 * MIB), join.is_hole(5 * MIB)), (Some(0), true));
        assert_eq!(join.holes(0, 9), (vec![(MIB, 4 * MIB), (5 * MIB, 9 * MIB)], u64::MAX));
        assert_eq!(join.holes(2 * MIB, 1), (vec![(2 * MIB, 4 * MIB)], 4 * MIB));
        assert_eq!(join.holes(9 * MIB, 1), (Vec::new(), u64::MAX));
        assert!(!join.agrees(5 * MIB, 1 << 20, DigestKind::Blake3, &digest(5)), "nothing is known of it");
        maps[0].1.truncate(maps[0].1.len() - 1);
        assert_eq!(
            Join::of(FILE, &maps).err(),
            Some(JoinFault::Missing { chunks: 4, of: 10 }),
            "a torn record is none"
        );
        let huge = Whole { bytes: 1 << 50, ..FILE };
        let mut bytes = encode_header(&JournalHeader { bytes: huge.bytes, ..header(1 << 20) }).to_vec();
        (0..1 << 12).for_each(|_| hole(0, 1 << 20, &mut bytes));
        let left = (1 << 30) - (1 << 20);
        assert_eq!(
            Join::of(huge, &[(0, bytes)]).err(),
            Some(JoinFault::Missing { chunks: left, of: 1 << 30 }),
            "told often"
        );
    }

    #[test]
    fn what_is_missing_is_counted_and_what_is_told_twice_is_not() {
        assert_eq!(
            Join::of(FILE, &[(0, map(&[0, 1, 2])), (1, map(&[5]))]).err(),
            Some(JoinFault::Missing { chunks: 6, of: 10 })
        );
        let twice = [(0, map(&[0, 1, 2, 3, 4, 5, 6, 7])), (1, map(&[7, 6, 5]))];
        assert_eq!(Join::of(FILE, &twice).err(), Some(JoinFault::Missing { chunks: 2, of: 10 }));
        assert!(matches!(Join::of(FILE, &[]), Err(JoinFault::Missing { .. })));
        let all: Vec<u64> = (0..10).collect();
        let join = Join::of(FILE, &[(3, map(&all)), (1, map(&[2]))]).expect("all is there");
        assert_eq!((join.volume_at(2 * MIB), join.volume_at(3 * MIB)), (Some(1), Some(3)));
    }

    #[test]
    fn maps_of_another_file_or_cut_or_of_nothing_are_refused_and_torn_ones_count_as_far_as_they_are_whole() {
        let all: Vec<u64> = (0..10).collect();
        let other = Whole { mtime_ns: 9, ..FILE };
        assert_eq!(Join::of(other, &[(5, map(&all))]).err(), Some(JoinFault::Map { volume: 5 }));
        assert_eq!(Join::of(FILE, &[(5, vec![0; 999])]).err(), Some(JoinFault::Map { volume: 5 }));
        let cut = (1, encode_header(&header(2 << 20)).to_vec());
        assert_eq!(Join::of(FILE, &[(0, map(&all)), cut]).err(), Some(JoinFault::Cut { volume: 1 }));
        let mut torn = map(&all);
        torn.truncate(torn.len() - 1);
        assert_eq!(Join::of(FILE, &[(0, torn)]).err(), Some(JoinFault::Missing { chunks: 1, of: 10 }));
    }

    #[test]
    fn any_flipped_bit_of_a_map_is_a_fault_or_leaves_what_was_true() {
        let all: Vec<u64> = (0..10).collect();
        let good = map(&all);
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Join::of(FILE, &[(0, bytes)]).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_length_that_no_map_bears_out_takes_no_memory() {
        let huge = Whole { bytes: 1 << 50, ..FILE };
        let bytes = encode_header(&JournalHeader { bytes: huge.bytes, ..header(1 << 20) }).to_vec();
        assert_eq!(Join::of(huge, &[(0, bytes)]).err(), Some(JoinFault::Missing { chunks: 1 << 30, of: 1 << 30 }));
    }

    /// 16 disks, 62 chunks on their way over all; after a third of the time one falls to a tenth.
    #[test]
    fn a_slow_volume_is_given_less_holds_up_nobody_and_is_left_with_little() {
        const DISKS: usize = 16;
        const TICKS: usize = 15_000;
        let mut dealer = Dealer::default();
        let mut queues: Vec<VecDeque<u64>> = vec![VecDeque::new(); DISKS];
        let mut done = [0u64; DISKS];
        let (mut next, mut worst) = (0, 0);
        for tick in 1..=TICKS {
            for disk in 0..DISKS {
                let takes = if disk == 3 && tick > TICKS / 3 { 100 } else { 10 };
                if tick % takes == 0
                    && let Some(offset) = queues[disk].pop_front()
                {
                    assert_eq!(dealer.landed(1, offset), Some((disk, 1)));
                    done[disk] += 1;
                }
            }
            while queues.iter().map(VecDeque::len).sum::<usize>() < 62 {
                let load = |queue: &VecDeque<u64>| Load { flying: queue.len() as u64, waiting: 0 };
                let disk = dealer.choose(queues.len(), queues.iter().map(load).enumerate()).expect("there are some");
                dealer.deal(1, next, 1, disk);
                queues[disk].push_back(next);
                next += 1;
            }
            if tick > TICKS / 2 {
                worst = worst.max(queues[3].len());
            }
        }
        let ideal = (TICKS * (DISKS - 1) / 10 + TICKS / 30 + TICKS * 2 / 300) as u64;
        assert!(done.iter().sum::<u64>() * 100 >= ideal * 99, "{done:?} of {ideal}");
        assert!(worst <= 2, "{worst} chunks wait for the slow one");
        assert!(queues.iter().all(|queue| queue.len() <= 6), "the others are as before");
        assert_eq!(dealer.forget(1).len(), 62);
    }

    /// Four disks with as many bufs as a receiver has, one of them a tenth as fast from the first chunk on: what it still has when the others are
    /// done is what the job waits for.
    #[test]
    fn chunks_wait_in_bufs_and_not_on_a_slow_volume() {
        const CHUNKS: u64 = 384;
        for (falls_at, most_left) in [(0, 2), (400, 1)] {
            let mut dealer = Dealer::default();
            let mut queues: Vec<VecDeque<u64>> = vec![VecDeque::new(); 4];
            let (mut next, mut ticks, mut left) = (0, 0, None);
            while next < CHUNKS || queues.iter().any(|queue| !queue.is_empty()) {
                ticks += 1;
                for (disk, queue) in queues.iter_mut().enumerate() {
                    let takes = if disk == 3 && ticks > falls_at { 100 } else { 10 };
                    if ticks % takes == 0
                        && let Some(offset) = queue.pop_front()
                    {
                        dealer.landed(1, offset);
                    }
                }
                while next < CHUNKS && dealer.has_turn(0..4) {
                    let load = |queue: &VecDeque<u64>| Load { flying: queue.len() as u64, waiting: 0 };
                    let disk =
                        dealer.choose(queues.len(), queues.iter().map(load).enumerate()).expect("there are some");
                    dealer.deal(1, next, 1, disk);
                    queues[disk].push_back(next);
                    next += 1;
                }
                assert!(next == CHUNKS || queues[..3].iter().all(|queue| !queue.is_empty()), "no disk is idle");
                if next == CHUNKS && queues[..3].iter().all(VecDeque::is_empty) {
                    left.get_or_insert(queues[3].len());
                }
            }
            assert!(left.is_some_and(|left| left <= most_left), "{left:?}, falls at {falls_at}");
        }
    }

    #[test]
    fn a_volume_that_is_fast_again_is_used_again() {
        let mut dealer = Dealer::default();
        let loads = |flying: [u64; 2]| (0..2).map(move |volume| (volume, Load { flying: flying[volume], waiting: 0 }));
        dealer.deal(7, 0, 1, 0);
        for chunk in 1..100 {
            dealer.deal(7, chunk, 1, 1);
            dealer.landed(7, chunk);
        }
        assert_eq!(dealer.choose(2, loads([1, 3])), Some(1), "what is on its way to the first takes long");
        dealer.landed(7, 0);
        assert_eq!(dealer.choose(2, loads([0, 1])), Some(0), "nothing is on its way there");
        dealer.deal(7, 100, 1, 0);
        dealer.landed(7, 100);
        assert_eq!(dealer.choose(2, loads([1, 3])), Some(0), "it is fast again");
        let equal = (0..2).map(|volume| (volume, Load { flying: 0, waiting: [5, 4][volume] }));
        assert_eq!(dealer.choose(2, equal), Some(1), "of equals the one with the least to flush");
    }
}
