//! Sets of volumes over real folders.
//!
//! For: which volume an entry is given, and where it is found again.
//! In and out: folders of a test each; the calls that workers and committers make.
//! Invariants: every name that stands is looked for on every volume.
//! Absent on purpose: moving bytes (conformance.rs, lab/e2e/12-volumes.sh).

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::linux::Sinks;
use engine::linux::choice::Chooser;
use engine::linux::sink::LinuxSink;
use engine::platform::{Found, SinkTree};
use proto::manifest::{Entry, EntryKind, Meta};
use proto::storage::{Engine, Engines};
use proto::wire::control::Rung;
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
    let trees = (0..volumes).map(|volume| {
        let path = folder.join(volume.to_string());
        std::fs::create_dir_all(&path).expect("a folder for the test");
        LinuxSink::new(
            Dir::open(path.as_os_str().as_bytes()).expect("just made"),
            Chooser::new(Engines::both(Engine::Buffered)),
        )
    });
    let sink = Sinks::new(trees.collect()).named((0..volumes).map(|it| it.to_string()), Vec::new());
    Set { folder, sink }
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
        self.sink.publish(std::slice::from_ref(file), Rung::Published, &mut results);
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
    set.sink.failed(1, ENOSPC);
    assert!(set.sink.take_gone().is_empty(), "a full disk is not a dying one");
    set.sink.failed(1, EIO);
    set.sink.failed(1, EIO);
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
