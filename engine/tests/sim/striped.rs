//! One file over several disks that lose power: what is whole at each step of the new order.
//!
//! For: the crash order of files that are striped by chunk: data, then maps, then the name.
//! In and out: a seed and the call before which the machine dies in; silence or a panic that names both out.
//! Invariants: a name of a version leads to all chunks of that version; what is asked for again was not journalled as flushed.
//! Absent on purpose: who decides the order in a job (`machine::recv`; whole jobs in lab/e2e/12-volumes.sh), the network.

use std::io;
use std::sync::{Arc, Mutex};

use engine::job::{Cover, Terms};
use engine::machine::compare::{Look, Seen, look};
use engine::platform::{Firm, Found, Parts, PreviousVersions, SinkTree, Striped, VolumeSet};
use engine::seal::hash::chunk_digest;
use engine::tree::commit::{self, Settled, Task};
use engine::tree::volumes::Volumes;
use proto::journal::{JournalHeader, Replay, encode_header, encode_record};
use proto::ledger::chunk_len;
use proto::manifest::{Entry, EntryKind, Meta};
use proto::negotiate::Cipher;
use proto::striped::{Join, Whole};
use proto::wire::control::{DigestKind, Durability, NO_DIGEST};

use crate::disk::{Clock, Disk, Kind};
use crate::rng::Rng;
use crate::trees::{SharedDisk, SimSink, part_of};

const DISKS: usize = 3;
const CHUNK: u32 = 1 << 20;
const CHUNKS: u64 = 18;

/// Is this chunk the same in all versions?
fn is_same(index: u64) -> bool {
    index.is_multiple_of(3)
}

/// A version of the file: every byte of a chunk is its mark.
fn version(mtime: i64) -> Arc<Entry> {
    let bytes = CHUNKS * u64::from(CHUNK) - 77;
    let meta = Meta { striped: true, ..Meta::default() };
    let (path, kind) = ((*b"big").into(), EntryKind::File { bytes });
    Arc::new(Entry { id: 1, path, kind, mode: 0o644, mtime_s: mtime, mtime_ns: 5, meta })
}

fn mark(entry: &Entry, index: u64) -> u8 {
    let version = if is_same(index) { 0 } else { entry.mtime_s as u8 };
    version.wrapping_mul(31).wrapping_add(index as u8) | 1
}

fn lock(disk: &SharedDisk) -> std::sync::MutexGuard<'_, Disk> {
    disk.lock().expect("one thread")
}

/// Goes on with a piece, as a receiver does; which chunks are in it, if it is of this version.
fn take_up(set: &Volumes<SimSink>, entry: &Entry, volume: usize, map: &[u8]) -> io::Result<Option<Vec<bool>>> {
    let replay = Replay::parse(map);
    if replay.header.map(|it| it.mtime_s) != Some(entry.mtime_s) {
        set.discard_on(volume, entry);
        return Ok(None);
    }
    let mut own = vec![false; CHUNKS as usize];
    for record in &replay.records {
        own[record.first as usize..][..record.digests.len()].fill(true);
    }
    let at = |index: u64| (index * u64::from(CHUNK), u64::from(CHUNK));
    let gaps: Vec<_> = (0..CHUNKS).filter(|&index| !own[index as usize]).map(at).collect();
    set.resume_part(volume, entry, replay.valid_bytes, &gaps)?;
    Ok(Some(own))
}

/// As the receiver's comparer: what both versions have is carried over. Volumes that have a piece then, if the earlier one stands.
fn carry_over(set: &Arc<Volumes<SimSink>>, entry: &Arc<Entry>) -> io::Result<Option<Vec<usize>>> {
    let terms = Terms {
        chunk_bytes: CHUNK,
        digest: DigestKind::Blake3,
        cipher: Cipher::Aes128Gcm,
        cover: Cover::Sealed,
        publish_small: true,
    };
    let Some(old) = set.previous_version(entry)? else { return Ok(None) };
    let (mut digests, mut result) = (Vec::new(), None);
    let mut see = |seen| {
        match seen {
            Seen::Old { digests: more, .. } => digests.extend(more),
            Seen::Carried { result: it, .. } => result = Some(it),
            _ => panic!("nothing else was asked"),
        }
        true
    };
    let can = set.clone().capabilities();
    look(&**set, &can, &terms, Look::Old { entry: entry.clone(), chunks: CHUNKS, sign: old.sign }, &mut see);
    let same = (0..CHUNKS).filter(|&index| is_same(index));
    let header = Some(JournalHeader::of(entry, CHUNK, DigestKind::Blake3).into());
    let kept = same.clone().map(|index| (index, [mark(entry, index); 32])).collect();
    look(
        &**set,
        &can,
        &terms,
        Look::Carry { entry: entry.clone(), sign: old.sign, kept, header, durable: true },
        &mut see,
    );
    for index in same.filter(|&index| digests[index as usize] != NO_DIGEST) {
        let content = vec![mark(entry, index); chunk_len(entry.bytes(), CHUNK, index) as usize];
        let own = chunk_digest(&terms, entry.bytes(), index * u64::from(CHUNK), &content);
        assert_eq!(digests[index as usize], own, "chunk {index} is read where it stands");
    }
    result.expect("it is told").map(Some)
}

/// One run that brings this version, as far as the machine lives; true: it is published. `told`: chunks that were flushed, told as it goes.
fn run(disks: &[SharedDisk], entry: &Arc<Entry>, rng: &mut Rng, told: &mut Vec<u64>) -> bool {
    let set = Arc::new(Volumes::new(disks.iter().map(|disk| SimSink(disk.clone(), 1)).collect()).striping(true));
    let mut begun = [false; DISKS];
    let mut here = vec![false; CHUNKS as usize];
    // One power for all: who goes on when one of them is dead is a set that lost a disk, not a machine that died.
    let is_dead = || disks.iter().any(|disk| lock(disk).dead);
    let found = set.inspect(entry, true, false);
    if is_dead() {
        return false;
    }
    match found {
        Ok(Found::Same) => return true,
        Ok(Found::Nothing) => match carry_over(&set, entry) {
            Ok(Some(volumes)) => {
                volumes.into_iter().for_each(|volume| begun[volume] = true);
                let same = (0..CHUNKS).filter(|&index| is_same(index));
                same.clone().for_each(|index| here[index as usize] = true);
                told.extend(same);
            }
            Err(_) | Ok(None) if is_dead() => return false,
            Ok(None) => assert!(!disks.iter().any(|it| lock(it).get(b"big").is_some()), "what stands is compared"),
            Err(error) => panic!("{error}"),
        },
        Ok(Found::Busy(_)) | Err(_) => return false,
        Ok(Found::Parts(maps)) => {
            for (volume, map) in maps {
                let Ok(own) = take_up(&set, entry, volume, &map) else { return false };
                begun[volume] = own.is_some();
                here.iter_mut().zip(own.unwrap_or_default()).for_each(|(here, own)| *here |= own);
            }
        }
    }
    assert!(
        told.iter().all(|&index| here[index as usize]),
        "flushed, journalled, and not found again: {told:?} {here:?}"
    );
    let mut missing: Vec<u64> = (0..CHUNKS).filter(|&index| !here[index as usize]).collect();
    while !missing.is_empty() {
        // Some chunks, in any order, then a flush of each disk that has some.
        let mut fresh = vec![Vec::new(); DISKS];
        for _ in 0..rng.between(1, 6).min(missing.len() as u64) {
            let index = missing.swap_remove(rng.below(missing.len() as u64) as usize);
            let (offset, bytes) = (index * u64::from(CHUNK), chunk_len(entry.bytes(), CHUNK, index));
            let volume = set.place(entry, offset, bytes, None);
            let Ok(file) = set.open_part(volume, entry) else { return false };
            let content = vec![mark(entry, index); bytes as usize];
            if lock(&file.disk).write_all(file.ino, offset, &content).is_err() {
                return false;
            }
            assert_eq!(set.landed(entry.id, offset, bytes.into()), volume);
            fresh[volume].push(index);
        }
        for (volume, indices) in fresh.into_iter().enumerate().filter(|(_, fresh)| !fresh.is_empty()) {
            let mut records = Vec::new();
            if !std::mem::replace(&mut begun[volume], true) {
                records.extend_from_slice(&encode_header(&JournalHeader::of(entry, CHUNK, DigestKind::Blake3)));
            }
            indices.iter().for_each(|&index| encode_record(index, &[[mark(entry, index); 32]], &mut records));
            let task = Task::Flush { volume, entry: entry.clone(), records, indices, firm: Firm::Named };
            let Settled::Flushed { indices, result, .. } = commit::run(&*set, task) else { panic!("a flush") };
            if result.is_err() || is_dead() {
                return false;
            }
            told.extend(indices);
        }
    }
    if is_dead() {
        return false;
    }
    let volume = set.volume_of(entry.id);
    let task = Task::Publish { volume, entries: vec![entry.clone()], durability: Durability::Published };
    let Settled::Published { results, .. } = commit::run(&*set, task) else { panic!("a publication") };
    results.iter().all(Result::is_ok) && !is_dead()
}

/// Which version has the name, if any has; it must be all there.
fn standing(disks: &[SharedDisk], versions: &[Arc<Entry>]) -> Option<i64> {
    let named = |disk: &SharedDisk| {
        let disk = lock(disk);
        disk.get(b"big").map(|node| {
            (node.mtime, matches!(&node.kind, Kind::File(it) if it.data.len() as u64 == versions[0].bytes()))
        })
    };
    let names: Vec<_> = disks.iter().filter_map(named).collect();
    assert!(names.len() <= 1, "one name, on one disk: {names:?}");
    let ((mtime, _), is_long) = *names.first()?;
    let entry = versions.iter().find(|it| it.mtime_s == mtime).expect("one of ours");
    assert!(is_long, "it is as long as it should be");
    let maps: Vec<(u16, Vec<u8>)> = (0..)
        .zip(disks)
        .filter_map(|(volume, disk)| SimSink(disk.clone(), 1).map_of(entry).ok().map(|map| (volume, map)))
        .collect();
    let join = Join::of(Whole::of(entry), &maps).expect("what has its name has all chunks");
    for index in 0..CHUNKS {
        let offset = index * u64::from(CHUNK);
        let disk = lock(&disks[usize::from(join.volume_at(offset).expect("inside"))]);
        let piece = disk.get(&part_of(entry)).or_else(|| disk.get(b"big")).expect("a map speaks of a piece");
        let Kind::File(content) = &piece.kind else { panic!("a piece is a file") };
        let bytes = &content.data[offset as usize..][..chunk_len(entry.bytes(), CHUNK, index) as usize];
        assert!(bytes.iter().all(|&byte| byte == mark(entry, index)), "chunk {index} is what its map says");
    }
    Some(mtime)
}

/// The machine dies before its `dies`-th call while the second version comes; false: it never did.
fn story(seed: u64, dies: u64) -> bool {
    let mut rng = Rng::new(seed);
    let clock = Clock::default();
    let disks: Vec<SharedDisk> =
        (0..DISKS).map(|_| Arc::new(Mutex::new(Disk::new(clock.clone(), rng.fork())))).collect();
    let versions = [version(1_600_000_000), version(1_600_000_001)];
    assert!(run(&disks, &versions[0], &mut rng, &mut Vec::new()), "nothing is in the way");
    assert_eq!(standing(&disks, &versions), Some(1_600_000_000));
    let victim = rng.below(DISKS as u64) as usize;
    {
        let mut disk = lock(&disks[victim]);
        disk.die_at = Some(disk.ops() + dies);
    }
    let mut told = Vec::new();
    let done = run(&disks, &versions[1], &mut rng, &mut told);
    let died = lock(&disks[victim]).dead;
    disks.iter().for_each(|disk| lock(disk).power_cut());
    let stands = standing(&disks, &versions);
    assert!(stands.is_some(), "the old version stands until the new one does");
    assert!(!done || stands == Some(1_600_000_001), "what was published stands");
    let mut told = if stands == Some(1_600_000_001) { Vec::new() } else { told };
    assert!(run(&disks, &versions[1], &mut rng, &mut told), "the next run ends it");
    assert_eq!(standing(&disks, &versions), Some(1_600_000_001));
    assert!(run(&disks, &versions[1], &mut rng, &mut Vec::new()), "and one more finds it as it is");
    let left = |disk: &SharedDisk| SimSink(disk.clone(), 1).map_of(&versions[0]).is_ok();
    assert!(!disks.iter().any(left), "the old pieces are gone");
    died
}

#[test]
fn a_striped_file_is_whole_or_has_no_name_at_every_step() {
    // Every step of one story, and some of others.
    for (seed, step) in [(0, 1), (1, 5), (2, 7)] {
        let mut dies = 0;
        while story(seed, dies) {
            dies += step;
        }
        assert!(dies > 20, "there are steps to die at: {dies}");
    }
}
