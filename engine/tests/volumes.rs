//! Sets of volumes over real folders.
//!
//! For: which volume an entry is given, and where it is found again; of files that are striped by chunk, each of their chunks.
//! In and out: folders of a test each; the calls that workers and committers make.
//! Invariants: every name that stands is looked for on every volume.
//! Absent on purpose: moving bytes (conformance.rs, lab/e2e/12-volumes.sh).

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::platform::{Firm, Found, Owners, Parts, Prune, Publish, SinkTree, VolumeSet};
use engine::tree::Sinks;
use engine::tree::io_mode::Chooser;
use engine::tree::sink::LinuxSink;
use proto::journal::{JournalHeader, encode_header, encode_record};
use proto::manifest::{Entry, EntryKind, Meta};
use proto::storage::{IoMode, IoModes};
use proto::wire::control::{DigestKind, Durability};
use sys::fs::Dir;

struct Set {
    folder: PathBuf,
    sink: Sinks,
}

impl Drop for Set {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn set(name: &str, volumes: usize) -> Set {
    let folder = std::env::temp_dir().join(format!("longhaul-volumes-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let sink = sink(&folder, volumes);
    Set { folder, sink }
}

fn sink(folder: &Path, volumes: usize) -> Sinks {
    let trees = (0..volumes).map(|volume| {
        let path = folder.join(volume.to_string());
        std::fs::create_dir_all(&path).expect("a folder for the test");
        LinuxSink::new(
            Dir::open(path.as_os_str().as_bytes()).expect("just made"),
            Chooser::new(IoModes::both(IoMode::Buffered)),
        )
    });
    Sinks::new(trees.collect()).named((0..volumes).map(|it| it.to_string()), Vec::new())
}

fn entry(id: u64, path: &str, kind: EntryKind) -> Arc<Entry> {
    let path = path.as_bytes().into();
    Arc::new(Entry { id, path, kind, mode: 0o755, mtime_s: 1_700_000_000, mtime_ns: 5, meta: Meta::default() })
}

fn file(id: u64, path: &str) -> Arc<Entry> {
    entry(id, path, EntryKind::File { bytes: 5 })
}

impl Set {
    fn holders(&self, path: &str) -> Vec<usize> {
        let stands = |volume: &usize| self.folder.join(volume.to_string()).join(Path::new(path)).exists();
        (0..self.sink.volumes()).filter(stands).collect()
    }

    fn publish(&self, file: &Arc<Entry>) {
        let mut results = Vec::new();
        self.sink.publish(std::slice::from_ref(file), Durability::Published, &mut results);
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        self.sink.forget(file.id);
    }
}

#[test]
fn what_stands_somewhere_is_replaced_there_and_the_rest_goes_where_least_waits() {
    let set = set("homes", 3);
    set.sink.make(&entry(0, "a", EntryKind::Folder)).expect("a folder");
    assert_eq!(set.holders("a"), [0, 1, 2], "folders stand on all");
    // Volume 0 keeps what it is given; the others are done at once.
    let kept = file(1, "a/kept");
    set.sink.put_small(&kept, b"first", false).expect("written");
    assert_eq!(set.sink.volume_of(1), 0);
    for id in 2..12 {
        let file = file(id, &format!("a/{id}"));
        set.sink.put_small(&file, b"first", false).expect("written");
        assert_ne!(set.sink.volume_of(id), 0, "something waits there");
        set.publish(&file);
        assert_eq!(set.holders(&format!("a/{id}")).len(), 1);
    }
    set.publish(&kept);
    set.sink.make(&entry(12, "a", EntryKind::FolderEnd)).expect("its end");
    // Another job, another id: found where it stands, though nothing is remembered.
    let again = file(99, "a/7");
    let stands = set.holders("a/7");
    assert_eq!(set.sink.inspect(&again, true, false).expect("looked"), Found::Same);
    assert_eq!(set.sink.inspect(&again, false, false).expect("looked"), Found::Nothing);
    set.sink.put_small(&again, b"other", false).expect("written");
    set.publish(&again);
    assert_eq!(set.holders("a/7"), stands, "replaced where it stands");
    let content = std::fs::read(set.folder.join(stands[0].to_string()).join("a/7")).expect("it stands");
    assert_eq!(content, b"other");
}

#[test]
fn further_names_are_made_where_the_first_is_and_removing_removes_everywhere() {
    let set = set("names", 3);
    let first = file(1, "first");
    set.sink.put_small(&first, b"hello", false).expect("written");
    set.publish(&first);
    for id in 2..6 {
        let name = entry(id, &format!("name{id}"), EntryKind::Name { first: (*b"first").into() });
        set.sink.make(&name).expect("a link");
        assert_eq!(set.holders(&format!("name{id}")), set.holders("first"));
    }
    let lost = entry(7, "lost", EntryKind::Name { first: (*b"nowhere").into() });
    assert!(set.sink.make(&lost).is_err());
    set.sink.make(&entry(8, "folder", EntryKind::Folder)).expect("a folder");
    assert_eq!(set.sink.remove(b"folder").expect("removed"), 3);
    assert!(set.holders("folder").is_empty());
}

#[test]
fn a_volume_whose_disk_fails_is_named_once_and_given_nothing_more() {
    const ENOSPC: i32 = 28;
    const EIO: i32 = 5;
    let set = set("dying", 2);
    let first = file(1, "first");
    set.sink.put_small(&first, b"hello", false).expect("written");
    let volume = set.sink.volume_of(1);
    set.sink.failed(1, 0, ENOSPC);
    assert!(set.sink.take_gone().is_empty(), "a full disk is not a dying one");
    set.sink.failed(1, 0, EIO);
    set.sink.failed(1, 0, EIO);
    let gone = set.sink.take_gone();
    assert_eq!(gone.iter().map(|it| it.name.clone()).collect::<Vec<_>>(), [volume.to_string()]);
    assert!(set.sink.take_gone().is_empty(), "told once");
    set.sink.forget(1);
    for id in 2..10 {
        let file = file(id, &format!("file{id}"));
        set.sink.put_small(&file, b"hello", false).expect("written");
        assert_ne!(set.sink.volume_of(id), volume);
    }
    set.sink.make(&entry(20, "folder", EntryKind::Folder)).expect("made where it can be");
    assert_eq!(set.holders("folder"), [1 - volume]);
}

const CHUNK: u32 = 1 << 20;
const CHUNKS: u64 = 18;

fn striped(name: &str) -> (Set, Arc<Entry>) {
    let mut set = set(name, 3);
    set.sink = std::mem::replace(&mut set.sink, Sinks::new(vec![nowhere()])).striping(true);
    let mut entry = (*entry(1, "big", EntryKind::File { bytes: CHUNKS * u64::from(CHUNK) })).clone();
    set.sink.localize(&mut entry);
    assert!(entry.meta.striped, "it is large enough");
    (set, Arc::new(entry))
}

fn nowhere() -> LinuxSink {
    LinuxSink::new(Dir::open(b"/").expect("it is there"), Chooser::new(IoModes::both(IoMode::Buffered)))
}

/// Each chunk to its volume, and a journal for each volume that has some; which has which.
fn bring(set: &Set, entry: &Entry) -> Vec<Vec<u64>> {
    let mut given = vec![Vec::new(); 3];
    for index in 0..CHUNKS {
        let offset = index * u64::from(CHUNK);
        let volume = set.sink.place(entry, offset, CHUNK, None);
        assert_eq!(set.sink.place(entry, offset, CHUNK, None), volume, "it keeps its volume");
        drop(set.sink.open_part(volume, entry).expect("room"));
        assert_eq!(set.sink.landed(entry.id, offset, CHUNK.into()), volume);
        given[volume].push(index);
    }
    let header = JournalHeader::of(entry, CHUNK, DigestKind::Blake3);
    for (volume, chunks) in given.iter().enumerate() {
        let mut records = encode_header(&header).to_vec();
        chunks.iter().for_each(|&index| encode_record(index, &[[7; 32]], &mut records));
        set.sink.flush(volume, entry, &records, Firm::Named).expect("a healthy disk");
        set.sink.flushed(volume, entry.id, chunks.len() as u64 * u64::from(CHUNK));
    }
    given
}

#[test]
fn a_chunk_is_written_on_its_own_node_unless_much_more_waits_there() {
    let (set, entry) = striped("nodes");
    set.sink.lie_on(vec![Some(0), Some(1), Some(1)]);
    assert_eq!(set.sink.inspect(&entry, true, false).expect("looked"), Found::Nothing);
    let place = |index: u64, bytes, node| set.sink.place(&entry, index * u64::from(CHUNK), bytes, node);
    let near: Vec<usize> = (0..6).map(|index| place(index, CHUNK, Some(1))).collect();
    assert_eq!(
        near,
        [1, 2, 1, 2, 0, 0],
        "volume 0 is on another node: it is taken when the others have had their turns"
    );
    assert_eq!(place(6, CHUNK, Some(1)), 1, "none has a turn");
    assert_eq!(place(7, CHUNK, Some(0)), 0, "a worker of the other node");
    assert_eq!(place(8, CHUNK, None), 2, "of a worker that is nowhere only what is to do counts");
    // Writes that end in memory: nothing is on its way, and what is not flushed tells.
    for index in 0..9 {
        set.sink.landed(entry.id, index * u64::from(CHUNK), CHUNK.into());
    }
    let there = (9..18).position(|index| {
        let volume = place(index, 16 * CHUNK, Some(1));
        set.sink.landed(entry.id, index * u64::from(CHUNK), u64::from(16 * CHUNK));
        volume == 0
    });
    assert_eq!(there, Some(6), "after three of 16 MiB on either");
}

#[test]
fn a_striped_file_that_lost_a_piece_loses_its_name_and_keeps_the_others() {
    let (set, entry) = striped("striped");
    assert_eq!(set.sink.inspect(&entry, true, false).expect("looked"), Found::Nothing);
    let given = bring(&set, &entry);
    assert!(given.iter().all(|chunks| chunks.len() == 6), "each has its share: {given:?}");
    assert!(set.holders("big").is_empty(), "no name before the end");
    set.publish(&entry);
    let home = set.holders("big");
    assert_eq!(home.len(), 1, "one name");
    let name = entry_again(2, &entry);
    assert_eq!(set.sink.inspect(&name, true, false).expect("looked"), Found::Same);
    set.sink.forget(2);
    // One more name leads to the same pieces.
    let further = self::entry(3, "further", EntryKind::Name { first: (*b"big").into() });
    set.sink.make(&further).expect("a link");
    let mut other = (*name).clone();
    other.path = (*b"further").into();
    assert_eq!(set.sink.inspect(&other, true, false).expect("looked"), Found::Same);
    assert_eq!(set.sink.remove(b"further").expect("removed"), 1);
    set.sink.forget(2);
    // A disk was replaced by an empty one.
    let lost = (home[0] + 1) % 3;
    let folder = set.folder.join(lost.to_string());
    std::fs::remove_dir_all(&folder).expect("removed");
    std::fs::create_dir(&folder).expect("made");
    let Found::Parts(parts) = set.sink.inspect(&name, true, false).expect("looked") else { panic!("it is not whole") };
    assert_eq!(parts.len(), 2, "the other two have what they had");
    assert!(set.holders("big").is_empty(), "what is not whole has no name");
}

/// The same file, as a later job announces it.
fn entry_again(id: u64, entry: &Entry) -> Arc<Entry> {
    Arc::new(Entry { id, ..entry.clone() })
}

#[test]
fn a_striped_file_gets_no_name_while_a_volume_that_has_a_piece_is_out() {
    const EIO: i32 = 5;
    let (mut set, entry) = striped("striped-out");
    assert_eq!(set.sink.inspect(&entry, true, false).expect("looked"), Found::Nothing);
    let given = bring(&set, &entry);
    let other = entry_again(2, &entry);
    let beside = sink(&set.folder, 3).striping(true);
    assert_eq!(beside.inspect(&other, true, false).expect("looked"), Found::Busy(String::new()), "one job at a time");
    set.sink = beside; // the first job was killed
    assert!(matches!(set.sink.inspect(&other, true, false).expect("looked"), Found::Parts(_)));
    let volume = set.sink.place(&other, 0, CHUNK, None);
    set.sink.failed(2, 0, EIO);
    assert_eq!(set.sink.take_gone().len(), 1);
    assert!(!given[volume].is_empty());
    let mut results = Vec::new();
    set.sink.publish(std::slice::from_ref(&other), Durability::Published, &mut results);
    assert_eq!(results[0].as_ref().expect_err("a piece is gone").raw_os_error(), Some(EIO));
    assert!(set.holders("big").is_empty());
}

#[test]
fn what_a_job_that_was_killed_left_of_small_files_is_on_no_volume_after_the_next() {
    let set = set("left", 3);
    let left = |volume: usize| set.folder.join(volume.to_string()).read_dir().expect("it is there").count();
    let comes = |id: u64| entry(id, "f", EntryKind::File { bytes: 1 << 20 });
    // Each was the one with the least to do, once: a part is on all of them, beside what tells whose it is.
    let killed = || {
        for tree in sink(&set.folder, 3).trees() {
            drop(tree.open_part(0, &comes(7)).expect("a part"));
        }
    };
    let living = sink(&set.folder, 3);
    living.trees().for_each(|tree| drop(tree.open_part(0, &comes(8)).expect("a part")));
    killed();
    killed();
    assert_eq!((0..3).map(left).collect::<Vec<_>>(), [4, 4, 4], "no job writes into another's part");
    assert_eq!(set.sink.inspect(&comes(1), true, true).expect("looked"), Found::Nothing);
    assert_eq!((0..3).map(left).sum::<usize>(), 12, "a dry run changes nothing");
    assert_eq!(set.sink.inspect(&comes(2), true, false).expect("looked"), Found::Nothing);
    set.sink.settle(Durability::Published).expect("a healthy disk");
    assert_eq!((0..3).map(left).collect::<Vec<_>>(), [2, 2, 2], "of the living job nothing went");
    living.trees().for_each(|tree| tree.discard(&comes(8)));
    living.settle(Durability::Published).expect("a healthy disk");
    assert_eq!((0..3).map(left).sum::<usize>(), 0);
}
