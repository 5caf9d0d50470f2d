//! What every source, sink and rail must do, asked of Linux and of the simulator alike.
//!
//! For: one list of promises; the simulator is worth as much as it keeps them as Linux does.
//! In and out: a `World` in; panics with the promise that was broken out.
//! Invariants: a promise is asked of all worlds or of none.
//! Absent on purpose: whole jobs in the simulator (tests/sim), faults.

#[path = "conformance/datagrams.rs"]
mod datagrams;
#[path = "conformance/engines.rs"]
mod engines;
#[path = "conformance/pairs.rs"]
mod queue_pairs;
#[allow(dead_code)]
#[path = "sim/disk.rs"]
mod disk;
#[allow(dead_code)]
#[path = "sim/net.rs"]
mod net;
mod pair;
#[allow(dead_code)]
#[path = "sim/platform.rs"]
mod platform;
#[allow(dead_code)]
#[path = "sim/rng.rs"]
mod rng;
#[allow(dead_code)]
#[path = "sim/trace.rs"]
mod trace;
#[allow(dead_code)]
#[path = "sim/trees.rs"]
mod trees;

use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use engine::job::{Cover, Terms};
use engine::linux::Linux;
use engine::machine::compare::{self, Look, Seen};
use engine::platform::{Disk, Done, Firm, Found, Op, PairIo, Parts, Platform, Publish, SinkTree, SourceTree, StreamIo};
use engine::seal::hash::chunk_digest;
use engine::tree::beside;
use proto::manifest::{Entry, EntryKind, Meta};
use proto::negotiate::Cipher;
use proto::storage::{IoMode, IoModes};
use proto::wire::control::{DigestKind, Durability};
use sys::mem::{HEADROOM, Mem};
use sys::rdma::Connection;
use sys::ring::Kind;

use pair::{Hook, Scratch, Setup, Way, move_tree, noise, sink_of, sockets, source_of};

const CHUNK: usize = 1 << 20;
const TERMS: Terms = Terms {
    chunk_bytes: CHUNK as u32,
    digest: DigestKind::Blake3,
    cipher: Cipher::Aes128Gcm,
    cover: Cover::Sealed,
    publish_small: false,
};
const MTIME: (i64, u32) = (1_650_000_000, 123_456_789);

/// Content, mode and time of what stands somewhere.
type There = (Vec<u8>, u32, (i64, u32));

/// A world with an empty source and an empty sink.
trait World {
    type P: Platform;
    fn source(&self) -> Arc<<Self::P as Platform>::Source>;
    fn sink(&self) -> Arc<<Self::P as Platform>::Sink>;
    fn platform(&self) -> Self::P;
    fn rail(&self) -> (<Self::P as StreamIo>::Socket, <Self::P as StreamIo>::Socket);
    /// Two sockets for datagrams, each reaching the other and no one else.
    fn path(&self) -> (<Self::P as StreamIo>::Socket, <Self::P as StreamIo>::Socket);
    /// Both ends of what a queue pair is made over.
    fn connection(&self) -> (<Self::P as PairIo>::Connection, <Self::P as PairIo>::Connection);
    /// Puts a file into the source.
    fn plant(&self, path: &str, content: &[u8]);
    fn plant_link(&self, path: &str, target: &str);
    /// What stands at the sink; a link's content is its target, a folder's is empty.
    fn seen(&self, path: &str) -> Option<There>;
}

struct Real {
    scratch: Scratch,
    driver: Kind,
    way: Way,
    io_modes: IoModes,
}

impl Real {
    fn at(&self, side: &str, path: &str) -> PathBuf {
        self.scratch.0.join(side).join(path)
    }
}

impl World for Real {
    type P = Linux;
    fn source(&self) -> Arc<engine::tree::Sources> {
        source_of(&self.scratch.from(), self.io_modes)
    }
    fn sink(&self) -> Arc<engine::tree::Sinks> {
        sink_of(&self.scratch.to(), self.io_modes)
    }
    fn platform(&self) -> Linux {
        Linux::new(4, CHUNK, Some(self.driver)).expect("a ring").0
    }
    fn rail(&self) -> (<Linux as StreamIo>::Socket, <Linux as StreamIo>::Socket) {
        let (one, other) = sockets(self.way);
        (Arc::new(one), Arc::new(other))
    }
    fn path(&self) -> (<Linux as StreamIo>::Socket, <Linux as StreamIo>::Socket) {
        let (one, other) = sockets(Way::Datagrams);
        (Arc::new(one), Arc::new(other))
    }
    fn connection(&self) -> (Connection, Connection) {
        let (one, other) = sockets(self.way);
        (Connection::Emulated(one), Connection::Emulated(other))
    }
    fn plant(&self, path: &str, content: &[u8]) {
        let path = self.at("from", path);
        std::fs::write(&path, content).expect("room");
        let file = std::fs::File::open(&path).expect("just made");
        file.set_permissions(std::fs::Permissions::from_mode(0o644)).expect("ours");
        sys::fs::set_file_meta(&file, Some(0o644), Some(MTIME)).expect("ours");
    }
    fn plant_link(&self, path: &str, target: &str) {
        std::os::unix::fs::symlink(target, self.at("from", path)).expect("room");
    }
    fn seen(&self, path: &str) -> Option<There> {
        use std::os::unix::ffi::OsStrExt;
        let path = self.at("to", path);
        let stat = std::fs::symlink_metadata(&path).ok()?;
        let content = if stat.is_symlink() {
            std::fs::read_link(&path).expect("a link").as_os_str().as_bytes().to_vec()
        } else if stat.is_dir() {
            Vec::new()
        } else {
            std::fs::read(&path).expect("readable")
        };
        Some((content, stat.mode() & 0o7777, (stat.mtime(), stat.mtime_nsec() as u32)))
    }
}

struct Simulated {
    world: platform::Shared,
    source: trees::SharedDisk,
    sink: trees::SharedDisk,
}

impl Simulated {
    fn new() -> Self {
        let clock = disk::Clock::default();
        clock.advance(1_000_000_000);
        let disk = |seed| Arc::new(Mutex::new(disk::Disk::new(clock.clone(), rng::Rng::new(seed))));
        let mut net = net::Net::new(clock.clone(), rng::Rng::new(3));
        (net.latency_ns, net.ns_per_kib) = (0, 0);
        let world = platform::World {
            clock: clock.clone(),
            net,
            activity: 0,
            harm: None,
            harmed: None,
            disk_ns: 0,
            at_once: false,
            polled: false,
        };
        Simulated { world: Arc::new(Mutex::new(world)), source: disk(1), sink: disk(2) }
    }
}

impl World for Simulated {
    type P = platform::Sim;
    fn source(&self) -> Arc<trees::SimSource> {
        Arc::new(trees::SimSource(self.source.clone(), 0))
    }
    fn sink(&self) -> Arc<trees::SimSink> {
        Arc::new(trees::SimSink(self.sink.clone(), 1))
    }
    fn platform(&self) -> platform::Sim {
        platform::Sim::new(self.world.clone(), rng::Rng::new(4), 4, CHUNK).0
    }
    fn rail(&self) -> (platform::SimSocket, platform::SimSocket) {
        let wire = platform::lock(&self.world).net.open();
        (platform::SimSocket { wire, side: 0 }, platform::SimSocket { wire, side: 1 })
    }
    fn path(&self) -> (platform::SimSocket, platform::SimSocket) {
        self.rail()
    }
    fn connection(&self) -> (platform::SimSocket, platform::SimSocket) {
        self.rail()
    }
    fn plant(&self, path: &str, content: &[u8]) {
        let kind = disk::Kind::File(disk::Content::of(content.to_vec()));
        self.source.lock().expect("one thread").plant(path.as_bytes(), kind, 0o644, MTIME);
    }
    fn plant_link(&self, path: &str, target: &str) {
        let kind = disk::Kind::Link(target.as_bytes().into());
        self.source.lock().expect("one thread").plant(path.as_bytes(), kind, 0o777, MTIME);
    }
    fn seen(&self, path: &str) -> Option<There> {
        let disk = self.sink.lock().expect("one thread");
        let node = disk.get(path.as_bytes())?;
        let content = match &node.kind {
            disk::Kind::File(content) => content.data.clone(),
            disk::Kind::Link(target) => target.to_vec(),
            disk::Kind::Folder | disk::Kind::Node(..) => Vec::new(),
        };
        Some((content, node.mode, node.mtime))
    }
}

fn entry(path: &str, kind: EntryKind) -> Entry {
    Entry {
        id: 0,
        path: path.as_bytes().into(),
        kind,
        mode: 0o640,
        mtime_s: MTIME.0,
        mtime_ns: MTIME.1,
        meta: Meta::default(),
    }
}

fn file(path: &str, bytes: usize) -> Entry {
    entry(path, EntryKind::File { bytes: bytes as u64 })
}

fn part(path: &str, ending: &str) -> String {
    String::from_utf8(beside(path.as_bytes(), ending)).expect("ascii")
}

type OpOf<P> = Op<<P as Disk>::File, <P as StreamIo>::Socket>;

fn done_of<P: Platform>(platform: &mut P, wanted: u64) -> Done {
    let mut done = Vec::new();
    let started = Instant::now();
    loop {
        platform.wait(10_000_000, &mut done);
        if let Some(index) = done.iter().position(|it| it.token == wanted) {
            return done.swap_remove(index);
        }
        assert!(started.elapsed() < Duration::from_secs(10), "an op comes back");
    }
}

fn run<P: Platform>(platform: &mut P, op: OpOf<P>) -> Done {
    platform.submit(77, op);
    platform.flush();
    done_of(platform, 77)
}

/// As workers do: what moved nothing for a passing reason is made again.
fn again(result: std::io::Result<usize>) -> std::io::Result<usize> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}

/// Writes all of `content` at `offset`, as short as the platform likes.
fn write_all<P: Platform>(platform: &mut P, file: &P::File, offset: usize, content: &[u8]) {
    let mut buf = platform.pool().take().expect("a buf");
    let len = content.len().next_multiple_of(4096);
    buf.payload_mut()[..content.len()].copy_from_slice(content);
    buf.payload_mut()[content.len()..len].fill(0);
    let (mut mem, mut moved) = (Mem::Buf(buf), 0);
    while moved < len {
        let (at, offset) = (HEADROOM + moved, (offset + moved) as u64);
        let done = run(platform, Op::Write { file: file.clone(), offset, mem, at, len: len - moved });
        moved += again(done.result).expect("room");
        mem = done.mem;
    }
    if let Mem::Buf(buf) = mem {
        platform.pool().give(buf);
    }
}

fn read_all<P: Platform>(platform: &mut P, file: &P::File, offset: usize, len: usize) -> Vec<u8> {
    let mut mem = Mem::Buf(platform.pool().take().expect("a buf"));
    let mut content = Vec::new();
    loop {
        let offset = (offset + content.len()) as u64;
        let op = Op::Read {
            file: file.clone(),
            offset,
            mem,
            at: HEADROOM,
            len: (len - content.len()).next_multiple_of(4096),
        };
        let done = run(platform, op);
        let refused = done.result.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        let moved = again(done.result).expect("readable");
        content.extend_from_slice(&done.mem.bytes()[HEADROOM..HEADROOM + moved]);
        mem = done.mem;
        if (moved == 0 && !refused) || content.len() >= len {
            break;
        }
    }
    if let Mem::Buf(buf) = mem {
        platform.pool().give(buf);
    }
    content.truncate(len);
    content
}

fn sources(world: &impl World) {
    let tree = world.source();
    let content = noise(3 * 4096 + 17, 5);
    world.plant("a", &content);
    world.plant("empty", b"");
    world.plant_link("link", "a");
    let a = file("a", content.len());

    // A hint, of whatever it is: nothing is changed by it, and nothing is told.
    [&a, &file("gone", 1), &file("link", content.len())].into_iter().for_each(|it| tree.expect_small(it));
    let mut into = vec![0; content.len()];
    assert!(matches!(tree.read_small(&a, &mut into), Ok(Some(()))), "a small file is read whole");
    assert_eq!(into, content);
    assert!(matches!(tree.read_small(&file("empty", 0), &mut []), Ok(Some(()))), "also an empty one");
    assert!(tree.is_unchanged(&a).expect("it is there"), "what did not change is unchanged");

    let (longer, older) = (file("a", content.len() + 1), Entry { mtime_ns: 0, ..a.clone() });
    for torn in [&longer, &older] {
        let mut into = vec![0; torn.bytes() as usize];
        assert!(matches!(tree.read_small(torn, &mut into), Ok(None)), "another length or time is torn");
        assert!(!tree.is_unchanged(torn).expect("it is there"));
    }
    let gone = file("gone", 1);
    assert_eq!(tree.open(&gone, 0).map(drop).expect_err("nothing there").kind(), ErrorKind::NotFound);
    assert_eq!(tree.read_small(&gone, &mut [0]).expect_err("nothing there").kind(), ErrorKind::NotFound);
    assert_eq!(tree.is_unchanged(&gone).expect_err("nothing there").kind(), ErrorKind::NotFound);
    assert!(tree.open(&file("link", content.len()), 0).is_err(), "a link is not followed");

    let mut platform = world.platform();
    let open = tree.open(&a, 0).expect("it is there");
    assert_eq!(
        read_all(&mut platform, &open, 4096, content.len() - 4096),
        content[4096..],
        "from the middle to the end"
    );
    assert_eq!(read_all(&mut platform, &open, 4 * 4096, 4096), b"", "beyond the end there is nothing");
    assert_eq!(platform.pool().free(), 4, "every op gave its memory back");
}

fn small_files(world: &impl World) {
    let sink = world.sink();
    let (a, b) = (file("a", 5), file("b", 0));
    assert_eq!(sink.inspect(&a, true, false).expect("a folder"), Found::Nothing);
    sink.put_small(&a, b"hello", true).expect("room");
    assert_eq!(world.seen("a"), Some((b"hello".to_vec(), 0o640, MTIME)), "published at once, with mode and time");
    assert_eq!(world.seen(&part("a", "part")), None);
    assert_eq!(sink.inspect(&a, true, false).expect("it is there"), Found::Same);
    assert_eq!(
        sink.inspect(&a, false, false).expect("it is there"),
        Found::Nothing,
        "nothing is kept when nothing may be"
    );
    assert_eq!(sink.inspect(&file("a", 6), true, false).expect("it is there"), Found::Nothing);
    let strict = Entry { mode: 0o400, ..a.clone() };
    assert_eq!(sink.inspect(&strict, true, false).expect("it is there"), Found::Same);
    assert_eq!(world.seen("a").expect("kept").1, 0o400, "a kept file gets the mode");

    let again = file("a", 3);
    for (entry, content) in [(&again, &b"new"[..]), (&b, b"")] {
        sink.put_small(entry, content, false).expect("room");
    }
    assert_eq!(
        world.seen("a").expect("still the old").0,
        b"hello",
        "the old file stands until the new one is published"
    );
    assert_eq!(world.seen("b"), None, "nothing is seen before it is published");
    let gone = file("gone", 4);
    let batch: Vec<Arc<Entry>> = [&again, &gone, &b].map(|it| Arc::new(it.clone())).into();
    let mut results = Vec::new();
    sink.publish(&batch, Durability::Published, &mut results);
    let fine: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(fine, [true, false, true], "one result per entry, and one failure is nobody else's");
    assert_eq!(world.seen("a"), Some((b"new".to_vec(), 0o640, MTIME)));
    assert_eq!(world.seen("b"), Some((Vec::new(), 0o640, MTIME)));
    assert_eq!(world.seen("gone"), None, "a part that is not there is not published");
    assert!(sink.put_small(&file("no/a", 1), b"x", true).is_err(), "a folder that is not there is not made by the way");
    sink.settle(Durability::Published).expect("a healthy disk");
}

/// Opens the part of a file and writes these chunks of it.
fn put_chunks<P: Platform>(sink: &P::Sink, platform: &mut P, entry: &Entry, content: &[u8], indices: &[usize]) {
    let open = sink.open_part(0, entry).expect("room");
    for index in indices {
        let end = content.len().min((index + 1) * CHUNK);
        write_all(platform, &open, index * CHUNK, &content[index * CHUNK..end]);
    }
}

fn parts(world: &impl World) {
    let (sink, mut platform) = (world.sink(), world.platform());
    let bytes = 17 * CHUNK + 100;
    let content = noise(bytes, 9);
    let large = file("large", bytes);
    put_chunks(&*sink, &mut platform, &large, &content, &[17, 0, 1]);
    assert_eq!(world.seen("large"), None, "a part is not seen under the final name");
    sink.flush(0, &large, b"first.", Firm::Named).expect("a healthy disk");
    sink.flush(0, &large, b"second", Firm::Written).expect("a healthy disk");
    assert_eq!(sink.inspect(&large, true, false).expect("a part"), Found::Parts(vec![(0, b"first.second".to_vec())]));

    let open = sink.open_part(0, &large).expect("there");
    write_all(&mut platform, &open, 3 * CHUNK, &noise(CHUNK, 1));
    drop(open);
    sink.resume_part(0, &large, 6, &[(2 * CHUNK as u64, 15 * CHUNK as u64)]).expect("a part");
    assert_eq!(
        sink.inspect(&large, true, false).expect("a part"),
        Found::Parts(vec![(0, b"first.".to_vec())]),
        "the journal is cut"
    );
    let there = world.seen(&part("large", "part")).expect("a part").0;
    assert!(there[..2 * CHUNK] == content[..2 * CHUNK], "what the journal speaks of stays");
    assert!(there[2 * CHUNK..17 * CHUNK].iter().all(|&byte| byte == 0), "what it does not speak of reads as zeros");
    assert!(there[17 * CHUNK..bytes] == content[17 * CHUNK..]);

    put_chunks(&*sink, &mut platform, &large, &content, &(2..17).collect::<Vec<_>>());
    let mut results = Vec::new();
    sink.publish(&[Arc::new(large.clone())], Durability::Published, &mut results);
    assert!(results[0].is_ok(), "{results:?}");
    let (seen, mode, mtime) = world.seen("large").expect("published");
    assert!(seen == content, "exactly as long as it is, whatever sectors were written");
    assert_eq!((mode, mtime), (0o640, MTIME));
    assert_eq!((world.seen(&part("large", "part")), world.seen(&part("large", "journal"))), (None, None));
    assert_eq!(platform.pool().free(), 4, "every op gave its memory back");
}

/// Of what an earlier run wrote counts what still stands there, and two that append to a journal lose nothing of each other.
fn notes(world: &impl World) {
    let (sink, mut platform) = (world.sink(), world.platform());
    let bytes = 17 * CHUNK + 100;
    let content = noise(bytes, 9);
    let large = file("large", bytes);
    put_chunks(&*sink, &mut platform, &large, &content, &[0, 3, 17]);
    let open = sink.open_part(0, &large).expect("there");
    write_all(&mut platform, &open, 5 * CHUNK, &noise(CHUNK, 1));
    drop(open);
    let digest = |index: usize| {
        let piece = &content[index * CHUNK..bytes.min((index + 1) * CHUNK)];
        (0, index as u64, chunk_digest(&TERMS, bytes as u64, (index * CHUNK) as u64, piece))
    };
    let chunks = [0, 1, 3, 5, 17].map(digest).to_vec();
    let mut told = Vec::new();
    compare::look(
        &*sink,
        &sink.clone().capabilities(),
        &TERMS,
        Look::Part { entry: Arc::new(large.clone()), chunks },
        &mut |seen| {
            let Seen::Part { good, last, .. } = seen else { panic!("an answer to another look: {seen:?}") };
            told.push((good, last));
            true
        },
    );
    assert_eq!(told, [([0, 3, 17].map(digest).to_vec(), true)], "one never came, one is another");

    let record = |of: u8, at: u8| [[of; 16], [at; 16]].concat();
    std::thread::scope(|scope| {
        for of in 1..3 {
            let (sink, large) = (&sink, &large);
            let append = move |at| sink.flush(0, large, &record(of, at), Firm::Written).expect("a healthy disk");
            scope.spawn(move || (0..100).for_each(append));
        }
    });
    let Found::Parts(journals) = sink.inspect(&large, true, false).expect("a part") else { panic!("a part") };
    let (there, rest) = journals[0].1.as_chunks::<32>();
    let mut there: Vec<Vec<u8>> = there.iter().map(|it| it.to_vec()).collect();
    there.sort_unstable();
    let all: Vec<Vec<u8>> = (1..3).flat_map(|of| (0..100).map(move |at| record(of, at))).collect();
    assert!(rest.is_empty() && there == all, "{} whole records", there.len());
}

fn discards(world: &impl World) {
    let (sink, mut platform) = (world.sink(), world.platform());
    let large = file("large", 17 * CHUNK);
    let open = sink.open_part(0, &large).expect("room");
    write_all(&mut platform, &open, 0, &noise(CHUNK, 1));
    sink.flush(0, &large, b"record", Firm::Named).expect("a healthy disk");
    sink.discard(&large);
    assert!(sink.flush(0, &large, b"record", Firm::Named).is_err(), "a part that is gone is not flushed");
    let mut results = Vec::new();
    sink.publish(&[Arc::new(large.clone())], Durability::Published, &mut results);
    assert!(results[0].is_err(), "nor published");
    assert!(sink.resume_part(0, &large, 0, &[]).is_err(), "nor taken up");
    for path in ["large".into(), part("large", "part"), part("large", "journal")] {
        assert_eq!(world.seen(&path), None, "{path} did not come back");
    }
    assert_eq!(sink.inspect(&large, true, false).expect("a folder"), Found::Nothing);
    sink.discard(&large); // what is not there need not be removed
    // A part without a journal says nothing, and goes.
    drop(sink.open_part(0, &large).expect("room"));
    assert_eq!(sink.inspect(&large, true, false).expect("a folder"), Found::Nothing);
    assert_eq!(world.seen(&part("large", "part")), None);
}

fn names(world: &impl World) {
    let sink = world.sink();
    let folder = Entry { mode: 0o555, ..entry("d", EntryKind::Folder) };
    sink.make(&folder).expect("room");
    sink.make(&folder).expect("a folder that is there is fine");
    sink.put_small(&file("d/a", 1), b"x", true).expect("a folder is ours to write until its end");
    let link = entry("d/l", EntryKind::Link { target: b"../nowhere"[..].into() });
    for _ in 0..2 {
        sink.make(&link).expect("room");
    }
    let other = entry("d/l", EntryKind::Link { target: b"a"[..].into() });
    sink.make(&other).expect("a link is replaced");
    sink.make(&Entry { kind: EntryKind::FolderEnd, ..folder.clone() }).expect("there");
    assert_eq!(world.seen("d"), Some((Vec::new(), 0o555, MTIME)), "the end sets mode and time");
    let (target, _, mtime) = world.seen("d/l").expect("a link");
    assert_eq!((&target[..], mtime), (&b"a"[..], MTIME));
    assert!(sink.inspect(&file("d", 3), true, false).is_err(), "a file does not replace a folder");
    assert!(sink.make(&entry("d/a", EntryKind::Folder)).is_err(), "nor a folder a file");
    sink.settle(Durability::Published).expect("a healthy disk");
}

fn rails(world: &impl World) {
    let (mut one, mut other) = (world.platform(), world.platform());
    let (here, there) = world.rail();
    let content = noise(CHUNK, 3);
    let mut buf = one.pool().take().expect("a buf");
    buf.payload_mut().copy_from_slice(&content);
    let (mut got, mut sent) = (Vec::new(), 0);
    one.submit(1, Op::Send { socket: here.clone(), mem: Mem::Buf(buf), at: HEADROOM, len: CHUNK, lend: false });
    one.flush();
    let mut mem = Mem::Buf(other.pool().take().expect("a buf"));
    let mut done = Vec::new();
    let started = Instant::now();
    while got.len() < CHUNK {
        assert!(started.elapsed() < Duration::from_secs(10), "{sent} sent, {} came", got.len());
        other.submit(2, Op::Recv { socket: there.clone(), mem, at: HEADROOM, len: (CHUNK - got.len()).min(100_000) });
        other.flush();
        mem = loop {
            one.wait(1_000_000, &mut done);
            for it in done.drain(..) {
                sent += it.result.expect("the path is open");
                if sent < CHUNK {
                    let (at, len) = (HEADROOM + sent, CHUNK - sent);
                    one.submit(1, Op::Send { socket: here.clone(), mem: it.mem, at, len, lend: false });
                    one.flush();
                } else if let Mem::Buf(buf) = it.mem {
                    one.pool().give(buf);
                }
            }
            other.wait(1_000_000, &mut done);
            if let Some(it) = done.pop() {
                let moved = it.result.expect("the path is open");
                assert!(moved > 0, "the path is open");
                got.extend_from_slice(&it.mem.bytes()[HEADROOM..HEADROOM + moved]);
                break it.mem;
            }
        };
    }
    assert!(got == content, "in order, nothing lost, nothing twice");

    // A cut ends the own pending receive, and the other side's.
    other.submit(3, Op::Recv { socket: there.clone(), mem, at: HEADROOM, len: 10 });
    other.flush();
    one.submit(4, Op::Recv { socket: here.clone(), mem: Mem::Small(vec![0; 10].into()), at: 0, len: 10 });
    one.flush();
    one.cut(&here);
    let own = done_of(&mut one, 4).result;
    assert!(!matches!(own, Ok(moved) if moved > 0), "{own:?}");
    let done = done_of(&mut other, 3);
    assert!(!matches!(done.result, Ok(moved) if moved > 0), "the other side learns of the cut: {:?}", done.result);
    let sent =
        run(&mut one, Op::Send { socket: here, mem: Mem::Small(vec![0; 10].into()), at: 0, len: 10, lend: false });
    assert!(sent.result.is_err(), "nothing goes on a path that was cut");
}

fn all<W: World>(make: impl Fn(&str) -> W) {
    sources(&make("sources"));
    small_files(&make("small"));
    parts(&make("parts"));
    notes(&make("notes"));
    discards(&make("discards"));
    names(&make("names"));
    rails(&make("rails"));
    datagrams::datagrams(&make("datagrams"));
    queue_pairs::pairs(&make("pairs"));
}

#[test]
fn the_simulator_keeps_every_promise() {
    all(|_| Simulated::new());
}

fn real(driver: Kind, way: Way, io_modes: IoModes) -> impl Fn(&str) -> Real {
    move |name| Real { scratch: Scratch::new(&format!("{name}-{driver:?}-{way:?}-{io_modes}")), driver, way, io_modes }
}

#[test]
fn linux_keeps_every_promise_with_io_uring() {
    all(real(Kind::Uring, Way::Pair, IoModes::default()));
    all(real(Kind::Uring, Way::Loopback, IoModes::both(IoMode::Buffered)));
}

#[test]
fn linux_keeps_every_promise_with_plain_calls() {
    all(real(Kind::Plain, Way::Loopback, IoModes::default()));
    all(real(Kind::Plain, Way::Pair, IoModes::both(IoMode::Buffered)));
}

/// A small tree through both ends, for every driver, path, cover and durability level.
#[test]
fn whole_jobs_arrive_on_linux() {
    let hook: Hook = Arc::new(|_, turn| turn());
    let scratch = Scratch::new("whole");
    std::fs::create_dir_all(scratch.from().join("d/e")).expect("room");
    for (name, bytes) in
        [("a", 0), ("b", 1), ("d/c", 128 << 10), ("d/x", (128 << 10) + 1), ("d/e/y", 3 * CHUNK + 5), ("z", 17 * CHUNK)]
    {
        std::fs::write(scratch.from().join(name), noise(bytes, bytes as u64)).expect("room");
    }
    std::os::unix::fs::symlink("../a", scratch.from().join("d/link")).expect("room");
    for driver in [Kind::Uring, Kind::Plain] {
        for (way, io_modes) in [
            (Way::Pair, IoModes::both(IoMode::Buffered)),
            (Way::Loopback, IoModes::both(IoMode::Direct)),
            (Way::Datagrams, IoModes::default()),
            (Way::QueuePairs, IoModes::default()),
        ] {
            for (cover, durability) in [
                (Cover::Sealed, Durability::Published),
                (Cover::Tagged, Durability::Flushed),
                (Cover::Hashed, Durability::Written),
            ] {
                let setup = Setup { rails: 2, io_modes, cover, durability, keep: false, ..Setup::new(driver, way) };
                let (sent, came) = move_tree(&scratch.from(), &scratch.to(), setup, &hook);
                assert_eq!((sent.tally.files_done, sent.tally.failed), (6, 0), "{setup:?} {:?}", sent.faults);
                assert_eq!(sent.lines, came.lines, "both hold the same receipt");
                same(&scratch.from(), &scratch.to());
                std::fs::remove_dir_all(scratch.to()).expect("ours");
                std::fs::create_dir(scratch.to()).expect("room");
            }
        }
    }
}

fn same(from: &std::path::Path, to: &std::path::Path) {
    let list = |path: &std::path::Path| {
        let mut names: Vec<_> =
            std::fs::read_dir(path).expect("a folder").map(|it| it.expect("an entry").file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(list(from), list(to), "the same names, no more");
    for name in list(from) {
        let (a, b) = (from.join(&name), to.join(&name));
        let (x, y) = (std::fs::symlink_metadata(&a).expect("listed"), std::fs::symlink_metadata(&b).expect("listed"));
        assert_eq!((x.mode(), x.mtime(), x.mtime_nsec()), (y.mode(), y.mtime(), y.mtime_nsec()), "{a:?}");
        if x.is_dir() {
            same(&a, &b);
        } else if x.is_symlink() {
            assert_eq!(std::fs::read_link(&a).expect("a link"), std::fs::read_link(&b).expect("a link"));
        } else {
            assert!(std::fs::read(&a).expect("readable") == std::fs::read(&b).expect("readable"), "{a:?}");
        }
    }
}
