//! What a destination says is durable was asked of the kernel, in the order that a power cut needs.
//!
//! For: flushes, which leave no trace that a test could read while the power is on.
//! In and out: a kernel that refuses one kind of flush in; what may stand on the disk then, and what may not, out.
//! Invariants: whoever says that bytes or names are durable has heard the kernel say so; what was refused is told, and nothing that
//! relies on it was done: no record in a journal, no name.
//! Absent on purpose: the disk itself (tests/sim has one that loses power; lab/e2e cuts real ones).

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::platform::{Firm, Parts, Publish, SinkTree};
use engine::tree::io_mode::Chooser;
use engine::tree::sink::LinuxSink;
use proto::manifest::{Entry, EntryKind, Meta};
use proto::storage::{IoMode, IoModes};
use proto::wire::control::Durability;
use sys::forbid::{FDATASYNC, FSYNC, SYNCFS, forbid};
use sys::fs::Dir;

/// Larger than what goes in packs, and than what gets no journal.
const LARGE: u64 = 4 << 20;
/// What the filter answers: an error that nothing here makes by itself.
const REFUSED: i32 = 5;

fn file(id: u64, path: &str, bytes: u64) -> Arc<Entry> {
    let (path, kind) = (path.as_bytes().into(), EntryKind::File { bytes });
    Arc::new(Entry { id, path, kind, mode: 0o644, mtime_s: 1_700_000_000, mtime_ns: 5, meta: Meta::default() })
}

/// Does it in a thread whose kernel refuses these calls, in a folder of its own. Returns what it returned.
fn without<R: Send + 'static>(calls: &'static [i64], act: impl FnOnce(&LinuxSink, &Path) -> R + Send + 'static) -> R {
    let thread = std::thread::spawn(move || {
        let number = std::thread::current().id();
        let name = format!("durable-{}-{number:?}", std::process::id());
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let base = Dir::open(folder.as_os_str().as_bytes()).expect("just made");
        let sink = LinuxSink::new(base, Chooser::new(IoModes::both(IoMode::Buffered)));
        forbid(calls, REFUSED);
        let result = act(&sink, &folder);
        std::fs::remove_dir_all(&folder).expect("it is there");
        result
    });
    thread.join().expect("no panic inside")
}

fn part(sink: &LinuxSink, entry: &Entry) {
    sink.open_part(0, entry).map(drop).expect("a part");
}

/// All that stands in a folder, and the bytes of the journals in it.
fn stands(folder: &Path) -> (usize, u64) {
    let all = std::fs::read_dir(folder).expect("it is there").map(|it| it.expect("a name"));
    all.fold((0, 0), |(named, journalled), it| {
        let name = it.file_name().into_encoded_bytes();
        let is_ours = name.starts_with(b".longhaul-");
        let bytes = if is_ours && name.ends_with(b".journal") { it.metadata().expect("there").len() } else { 0 };
        (named + usize::from(!is_ours), journalled + bytes)
    })
}

fn publish(sink: &LinuxSink, entries: &[Arc<Entry>], durability: Durability) -> Vec<Option<i32>> {
    let mut results = Vec::new();
    sink.publish(entries, durability, &mut results);
    results.into_iter().map(|it| it.err().map(|error| error.raw_os_error().unwrap_or(0))).collect()
}

/// A flush of a part, and what its journal holds after it.
fn flush(calls: &'static [i64], firm: Firm) -> (Option<i32>, u64) {
    without(calls, move |sink, folder| {
        let large = file(1, "large", LARGE);
        part(sink, &large);
        let result = sink.flush(0, &large, b"a record", firm);
        (result.err().and_then(|error| error.raw_os_error()), stands(folder).1)
    })
}

#[test]
fn a_record_follows_the_flush_that_it_speaks_of_and_is_flushed_itself() {
    assert_eq!(flush(&[], Firm::Flushed), (None, 8));
    assert_eq!(flush(&[FDATASYNC], Firm::Flushed), (Some(REFUSED), 0), "no record of what the disk did not take");
    assert_eq!(flush(&[FDATASYNC, FSYNC, SYNCFS], Firm::Written), (None, 8), "a note asks nothing of the disk");
    assert_eq!(flush(&[FSYNC], Firm::Flushed), (None, 8), "a name that was flushed stays flushed");
    assert_eq!(flush(&[FSYNC], Firm::Named).0, Some(REFUSED), "a new journal's name is flushed, too");
}

#[test]
fn a_large_file_has_its_name_after_its_flush_and_its_folder_is_flushed_then() {
    let one = |calls, durability| {
        without(calls, move |sink, folder| {
            let large = file(1, "large", LARGE);
            part(sink, &large);
            (publish(sink, &[large], durability)[0], stands(folder).0)
        })
    };
    assert_eq!(one(&[], Durability::Published), (None, 1));
    assert_eq!(one(&[FDATASYNC], Durability::Published), (Some(REFUSED), 0), "no name for what the disk did not take");
    assert_eq!(one(&[FDATASYNC], Durability::Flushed), (Some(REFUSED), 0));
    assert_eq!(one(&[FSYNC], Durability::Published).0, Some(REFUSED), "the folder is flushed after the rename");
    assert_eq!(one(&[FSYNC], Durability::Flushed), (None, 1));
    assert_eq!(one(&[FDATASYNC, FSYNC, SYNCFS], Durability::Written), (None, 1), "who asks for less waits for nothing");
}

#[test]
fn small_files_have_their_names_after_their_flush_one_by_one_and_all_at_once() {
    let some = |calls, durability, count: u64| {
        without(calls, move |sink, folder| {
            let entries: Vec<_> = (0..count).map(|id| file(id, &format!("small-{id}"), 5)).collect();
            for entry in &entries {
                sink.put_small(entry, b"small", durability < Durability::Flushed).expect("written");
            }
            let refused = publish(sink, &entries, durability).into_iter().filter(|it| *it == Some(REFUSED)).count();
            (refused, stands(folder).0)
        })
    };
    assert_eq!(some(&[], Durability::Published, 3), (0, 3));
    assert_eq!(some(&[FDATASYNC], Durability::Flushed, 3), (3, 0), "few: each by itself");
    assert_eq!(some(&[FSYNC], Durability::Published, 3).0, 3, "and their folder");
    assert_eq!(some(&[SYNCFS], Durability::Flushed, 100), (100, 0), "many: by one flush of the file system");
    assert_eq!(some(&[FDATASYNC], Durability::Flushed, 100), (0, 100), "which spares them their own");
    assert_eq!(some(&[FDATASYNC, FSYNC, SYNCFS], Durability::Written, 100), (0, 100));
}

#[test]
fn names_in_many_folders_are_flushed_by_one_call() {
    let refused = without(&[SYNCFS], |sink, folder| {
        let entries: Vec<_> = (0..9).map(|id| file(id, &format!("{id}/small"), 5)).collect();
        for entry in &entries {
            std::fs::create_dir(folder.join(entry.id.to_string())).expect("a folder");
            sink.put_small(entry, b"small", false).expect("written");
        }
        publish(sink, &entries, Durability::Published)
    });
    assert_eq!(refused, [Some(REFUSED); 9]);
}

#[test]
fn a_job_that_made_names_ends_with_a_flush_of_them() {
    let settle = |calls, durability| {
        without(calls, move |sink, _| {
            let folder = Entry { kind: EntryKind::Folder, ..Entry::clone(&file(1, "folder", 0)) };
            sink.settle(Durability::Published).expect("nothing was made: nothing is flushed");
            sink.make(&folder).expect("a folder");
            sink.settle(durability).err().and_then(|error| error.raw_os_error())
        })
    };
    assert_eq!(settle(&[], Durability::Published), None);
    assert_eq!(settle(&[SYNCFS], Durability::Published), Some(REFUSED));
    assert_eq!(settle(&[SYNCFS], Durability::Flushed), None, "names are not asked for");
}
