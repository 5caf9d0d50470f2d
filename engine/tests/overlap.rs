//! Two jobs with one destination, step by step, in every order.
//!
//! For: one writer for each part, whatever the processes, hosts and daemons that have the same destination.
//! In and out: the calls that two jobs' drivers, workers and committers make on real trees over one folder; what stands under the name.
//! Invariants: a job that was told that its file is published finds its own bytes, all of them, under the name at that moment; no order of
//! steps, and no kill of either job between two of them, leaves a mixture there or a left-over for good.
//! Absent on purpose: bytes on rails (conformance.rs), whole jobs (sim), processes (lab/e2e/26-overlap.sh).

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::platform::{Firm, Found, Parts, Publish, SinkTree, Volume};
use engine::tree::beside;
use engine::tree::io_mode::Chooser;
use engine::tree::sink::LinuxSink;
use proto::journal::{JOURNAL_HEADER_BYTES, JournalHeader, encode_header, encode_record};
use proto::manifest::{Entry, EntryKind, Meta};
use proto::storage::{IoMode, IoModes};
use proto::wire::control::{DigestKind, Durability};
use sys::fs::Dir;

const CHUNK: u32 = 16 << 20;
/// Two chunks, the second a short one.
const LARGE: u64 = (16 << 20) + 4096;
const SMALL: u64 = 5000;
const NAME: &str = "the name";
/// What a job does for a file, from the first look to the last.
const STEPS: usize = 5;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let memory = PathBuf::from("/dev/shm");
        let place = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let path = place.join(format!("longhaul-overlap-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder for the test");
        Folder(path)
    }

    fn names(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.0).expect("it is there");
        let mut names: Vec<String> =
            names.map(|it| it.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One job: its tree, its file, and its own letter as content.
struct Job {
    sink: Option<LinuxSink>,
    folder: PathBuf,
    entry: Arc<Entry>,
    letter: u8,
    part: Option<File>,
    /// It was told that another job is at the file, or that its part is gone: it says so and does no more.
    refused: bool,
    published: bool,
    at: usize,
}

impl Job {
    /// `version`: of the source; two jobs with the same one have the same source.
    fn new(folder: &Folder, bytes: u64, letter: u8, version: i64) -> Job {
        let kind = EntryKind::File { bytes };
        let path = NAME.as_bytes().into();
        let entry = Entry { id: 0, path, kind, mode: 0o644, mtime_s: version, mtime_ns: 5, meta: Meta::default() };
        let base = Dir::open(folder.0.as_os_str().as_bytes()).expect("just made");
        Job {
            sink: Some(LinuxSink::new(base, Chooser::new(IoModes::both(IoMode::Buffered)))),
            folder: folder.0.clone(),
            entry: Arc::new(entry),
            letter,
            part: None,
            refused: false,
            published: false,
            at: 0,
        }
    }

    fn is_over(&self) -> bool {
        self.sink.is_none() || self.refused || self.at == STEPS
    }

    /// kill -9: descriptors close, nothing is tidied up.
    fn kill(&mut self) {
        (self.sink, self.part) = (None, None);
    }

    /// The next step.
    fn step(&mut self) {
        let Some(sink) = self.sink.take() else { return };
        if !self.is_over_but_for(&sink) {
            if self.entry.bytes() == SMALL {
                self.step_small(&sink)
            } else {
                self.step_large(&sink)
            }
            self.at += 1;
        }
        self.sink = Some(sink);
    }

    fn is_over_but_for(&self, _sink: &LinuxSink) -> bool {
        self.refused || self.at == STEPS
    }

    fn step_small(&mut self, sink: &LinuxSink) {
        match self.at {
            0 => drop(sink.inspect(&self.entry, false, false).expect("looked")),
            1 => sink.put_small(&self.entry, &vec![self.letter; SMALL as usize], false).expect("room"),
            2 => self.publish(sink),
            3 => sink.settle(Durability::Published).expect("a healthy disk"),
            _ => {}
        }
    }

    fn step_large(&mut self, sink: &LinuxSink) {
        let header = JournalHeader::of(&self.entry, CHUNK, DigestKind::Blake3);
        match self.at {
            0 => match sink.inspect(&self.entry, false, false).expect("looked") {
                Found::Busy(owner) => {
                    let me = format!("process {} on ", std::process::id());
                    assert!(owner.starts_with(&me), "who it is: {owner}");
                    self.refused = true;
                }
                Found::Parts(parts) => {
                    // What the journal speaks of is of one source, ours or another: if of another, it is done anew.
                    let journal = &parts[0].1;
                    if journal.starts_with(&encode_header(&header)) {
                        let end = JOURNAL_HEADER_BYTES.max(journal.len());
                        let gaps = [(u64::from(CHUNK), LARGE - u64::from(CHUNK))];
                        sink.resume_part(0, &self.entry, end, &gaps).expect("it is ours");
                    } else {
                        sink.discard(&self.entry);
                    }
                }
                Found::Nothing | Found::Same => {}
            },
            1 => match sink.open_part(0, &self.entry) {
                Ok(_) => {
                    let path =
                        self.folder.join(Path::new(&String::from_utf8(beside(NAME.as_bytes(), "part")).unwrap()));
                    let part = File::options().read(true).write(true).open(path).expect("just opened");
                    // Two pages tell as much as all of them.
                    part.write_all_at(&[self.letter; 4096], 0).expect("room");
                    part.write_all_at(&[self.letter; 4096], u64::from(CHUNK) - 4096).expect("room");
                    self.part = Some(part);
                }
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy, "{error}");
                    self.refused = true;
                }
            },
            2 => {
                let mut records = encode_header(&header).to_vec();
                encode_record(0, &[[self.letter; 32]], &mut records);
                sink.flush(0, &self.entry, &records, Firm::Named).expect("it is ours");
            }
            3 => {
                let part = self.part.as_ref().expect("opened");
                part.write_all_at(&[self.letter; 4096], u64::from(CHUNK)).expect("room");
            }
            _ => {
                self.publish(sink);
                sink.settle(Durability::Published).expect("a healthy disk");
            }
        }
    }

    fn publish(&mut self, sink: &LinuxSink) {
        let mut results = Vec::new();
        sink.publish(std::slice::from_ref(&self.entry), Durability::Published, &mut results);
        results.pop().expect("one result").expect("it is ours");
        self.published = true;
        assert_eq!(self.stands(), Some(self.letter), "what is published is what was written");
    }

    /// Whose bytes stand under the name, all of them.
    fn stands(&self) -> Option<u8> {
        let file = File::open(self.folder.join(NAME)).ok()?;
        let len = file.metadata().expect("it is there").len();
        let mut seen = Vec::new();
        let places: &[u64] = if len == LARGE { &[0, (16 << 20) - 4096, 16 << 20] } else { &[0, 904] };
        for &place in places {
            let mut page = [0; 4096];
            file.read_exact_at(&mut page, place).expect("as long as it says");
            seen.extend_from_slice(&page);
        }
        assert!(len == LARGE || len == SMALL, "{len} bytes");
        assert!(seen.iter().all(|&byte| byte == seen[0]), "a mixture");
        Some(seen[0])
    }
}

/// Both jobs in the order that the bits of `order` say; `kills`: before which of its steps a job is killed.
fn story(name: &str, bytes: (u64, u64), versions: (i64, i64), order: u32, kills: (usize, usize)) {
    let folder = Folder::new(name);
    let mut jobs = [Job::new(&folder, bytes.0, b'a', versions.0), Job::new(&folder, bytes.1, b'b', versions.1)];
    for turn in 0.. {
        if jobs.iter().all(Job::is_over) {
            break;
        }
        let first = usize::from(order >> (turn % 32) & 1 == 1);
        let who = if jobs[first].is_over() { 1 - first } else { first };
        if jobs[who].at == [kills.0, kills.1][who] {
            jobs[who].kill();
        } else {
            jobs[who].step();
        }
        // Where anything stands it is one job's.
        jobs[0].stands();
    }
    let [a, b] = &jobs;
    let stands = a.stands();
    assert!(a.published == (stands == Some(b'a')) || b.published, "{stands:?}");
    assert!(kills.0 < STEPS || kills.1 < STEPS || a.published || b.published, "one of both has come through");
    for job in &mut jobs {
        job.kill();
    }
    // The same command again: it comes through, and nothing is left of anybody.
    let mut again = Job::new(&folder, bytes.1, b'b', versions.1);
    again.letter = if versions.0 == versions.1 && bytes.0 == bytes.1 { b'a' } else { b'b' };
    if versions.0 == versions.1 {
        return; // both letters are of one source: nothing more can be told by letters
    }
    while !again.is_over() {
        again.step();
        again.stands();
    }
    assert!(again.published);
    assert_eq!(folder.names(), [NAME], "nothing is left behind");
}

/// Every order of the steps of two jobs, without kills and with one at every step of either.
fn all(name: &str, bytes: (u64, u64), versions: (i64, i64)) {
    for order in 0..1_u32 << (2 * STEPS) {
        if order.count_ones() as usize == STEPS {
            story(name, bytes, versions, order, (STEPS, STEPS));
        }
    }
    for kill in 0..STEPS {
        for order in (0..1_u32 << (2 * STEPS)).filter(|it| it.count_ones() as usize == STEPS).step_by(7) {
            story(name, bytes, versions, order, (kill, STEPS));
            story(name, bytes, versions, order, (STEPS, kill));
        }
    }
}

#[test]
fn two_jobs_never_mix_a_large_file_in_any_order_of_their_steps() {
    all("large", (LARGE, LARGE), (1_700_000_000, 1_700_000_001));
}

#[test]
fn two_jobs_never_mix_a_small_file_in_any_order_of_their_steps() {
    all("small", (SMALL, SMALL), (1_700_000_000, 1_700_000_001));
}

#[test]
fn a_small_and_a_large_version_of_one_name_do_not_mix() {
    all("both", (LARGE, SMALL), (1_700_000_000, 1_700_000_001));
}

#[test]
fn the_same_source_twice_does_not_mix() {
    all("same", (LARGE, LARGE), (1_700_000_000, 1_700_000_000));
}

/// Between two jobs' opening and locking of one lock file, its holder removes it: the lock on a file without a name is none.
#[test]
fn threads_that_ask_at_once_get_the_part_one_after_another() {
    let folder = Folder::new("threads");
    let published = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (folder, published) = (&folder, &published);
            scope.spawn(move || {
                for round in 0..40 {
                    let mut job =
                        Job::new(folder, LARGE, b'a' + thread, 1_700_000_000 + i64::from(thread) * 100 + round);
                    // Another publishes between our last step and our look: what stands is somebody's, whole.
                    for _ in 0..4 {
                        job.step();
                    }
                    if let Some(sink) = job.sink.take().filter(|_| !job.refused) {
                        let mut results = Vec::new();
                        sink.publish(std::slice::from_ref(&job.entry), Durability::Published, &mut results);
                        results.pop().expect("one").expect("it is ours");
                        published.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                    job.stands();
                }
            });
        }
    });
    assert!(published.into_inner() > 0, "some came through");
    Job::new(&folder, LARGE, b'z', 1).stands().expect("something stands");
}

/// A job that could not read all of a large file leaves what came of it; the file is a small one when the next job comes, which would look for no part.
#[test]
fn a_large_part_that_was_left_goes_when_the_file_has_become_a_small_one() {
    for let_go in [false, true] {
        let folder = Folder::new(&format!("left-{let_go}"));
        let mut failed = Job::new(&folder, LARGE, b'a', 1_700_000_000);
        for _ in 0..3 {
            failed.step();
        }
        let sink = failed.sink.take().expect("it lives");
        if let_go {
            sink.claims().expect("a Linux tree has some").let_go();
        } else {
            sink.settle(Durability::Published).expect("a healthy disk");
        }
        drop(sink);
        assert!(folder.names().iter().any(|name| name.ends_with(".part")), "it is left: {:?}", folder.names());
        let mut next = Job::new(&folder, SMALL, b'b', 1_700_000_001);
        while !next.is_over() {
            next.step();
        }
        assert_eq!(folder.names(), [NAME], "nothing is left behind");
    }
}
