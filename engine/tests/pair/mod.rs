//! Both ends of a job on this host: real files, real sockets, real rings, one thread per worker.
//!
//! For: tests that must see Linux itself, driven as the daemon's job drivers drive it.
//! In and out: two folders and a `Setup` in; both records out.
//! Invariants: the calling thread is both job drivers; frames pass as values (the codec has its own tests).
//! Absent on purpose: TLS, greeting, receipts' signatures.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use engine::job::{Cmd, Cover, Event, EventQueue, InPlace, JobPart, RailKey, Role, Terms};
use engine::linux::Linux;
use engine::machine::recv::{Carried, RecvEnd};
use engine::machine::send::SendEnd;
use engine::machine::{Outbox, Record};
use engine::meter::Meter;
use engine::tree::commit::{self, Settled};
use engine::tree::io_mode::Chooser;
use engine::tree::scan::Scan;
use engine::tree::sink::LinuxSink;
use engine::tree::source::{LinuxSource, Root};
use engine::tree::{Sinks, Sources};
use engine::worker::Worker;
use engine::worker::stages::Counters;
use proto::flow::FlowConfig;
use proto::negotiate::{Cipher, Plan};
use proto::rate::{ControllerKind, Policy, RateConfig};
use proto::storage::IoModes;
use proto::wire::control::{DigestKind, Durability};
use sys::fs::Dir;
use sys::ring::{Kind, Waker};

const JOB: u32 = 1;
/// A job of a few MiB that takes longer stands still.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a rail is made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    /// A socket pair.
    Pair,
    /// TCP over loopback.
    Loopback,
    /// Datagrams over loopback.
    Datagrams,
    /// Queue pairs, emulated over TCP on loopback.
    #[allow(dead_code, reason = "of the tests that share this file one alone uses it")]
    QueuePairs,
}

/// One job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) driver: Kind,
    pub(crate) way: Way,
    pub(crate) rails: u16,
    pub(crate) io_modes: IoModes,
    pub(crate) cover: Cover,
    pub(crate) durability: Durability,
    pub(crate) keep: bool,
    /// Bytes per second of a datagram rail, 0: what it finds.
    pub(crate) pace: u64,
    /// When so much of the file has landed, permille, the receiver's worker stands still until much was sent to it and its rails have moved.
    pub(crate) moves_at: Option<u64>,
}

impl Setup {
    pub(crate) fn new(driver: Kind, way: Way) -> Self {
        Setup {
            driver,
            way,
            rails: 1,
            io_modes: IoModes::default(),
            cover: Cover::Sealed,
            durability: Durability::Published,
            keep: true,
            pace: 0,
            moves_at: None,
        }
    }
}

/// Called on a worker's own thread around each of its turns, with how much of the file has landed, in permille.
pub(crate) type Hook = Arc<dyn Fn(u64, &mut dyn FnMut() -> bool) -> bool + Send + Sync>;

struct Side {
    to: Sender<Cmd<Linux>>,
    waker: Waker,
    events: Receiver<Event>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Side {
    fn start(setup: Setup, terms: Terms, role: Role<Linux>, hook: Hook, landed: Arc<AtomicU64>) -> Side {
        let (to, mailbox) = channel();
        let (tell, told) = sync_channel(1);
        let (post, events) = sync_channel(4096);
        let thread = std::thread::spawn(move || {
            // Enough that no chunk goes to disk before it is whole: that opens its part a second time, once.
            let bufs = if matches!(setup.way, Way::Datagrams) { 80 } else { 16 };
            let (linux, _) = Linux::new(bufs, terms.chunk_bytes as usize, Some(setup.driver)).expect("a ring");
            tell.send(linux.waker()).expect("the test waits");
            let mut worker = Worker::new(linux, mailbox, Arc::new(Counters::default()));
            while hook(landed.load(Ordering::Relaxed), &mut || worker.turn(100_000_000)) {}
        });
        let waker = told.recv().expect("a worker");
        let side = Side { to, waker, events, thread: Some(thread) };
        side.send(Cmd::Open {
            job: JOB,
            part: JobPart {
                role,
                terms,
                events: EventQueue::new(post, None),
                bound: Arc::default(),
                in_place: InPlace::Never,
            },
        });
        side
    }

    fn send(&self, cmd: Cmd<Linux>) {
        self.to.send(cmd).expect("the worker runs");
        self.waker.wake();
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.to.send(Cmd::Stop);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "a worker panicked");
        }
    }
}

pub(crate) fn sockets(way: Way) -> (OwnedFd, OwnedFd) {
    match way {
        Way::Pair => sys::sock::pair().expect("a pair"),
        Way::Loopback | Way::QueuePairs => {
            let listener = sys::sock::listen("127.0.0.1:0".parse().expect("an address")).expect("a port");
            let address = listener.local_addr().expect("bound");
            let one = sys::sock::connect(address, Duration::from_secs(5)).expect("loopback");
            let (other, _) = listener.accept().expect("the one who called");
            (one.into(), other.into())
        }
        Way::Datagrams => {
            let any = "127.0.0.1:0".parse().expect("an address");
            let bound = || sys::udp::bind(any, false).expect("a port");
            let (one, other) = (bound(), bound());
            for (this, that) in [(&one, &other), (&other, &one)] {
                let address = sys::udp::local_addr(that).expect("bound");
                sys::udp::connect(this, address).expect("loopback");
                sys::udp::size_buffers(this, 16 << 20, 4 << 20).expect("a socket");
            }
            (one, other)
        }
    }
}

/// What both ends of a datagram rail are made from.
pub(crate) fn path(pace: u64) -> engine::job::Path {
    let controller = if pace > 0 { ControllerKind::Fixed } else { ControllerKind::Delay };
    let rate = RateConfig { controller, policy: Policy::Fair, target: pace, min: 0, packet_bytes: 1500 };
    let flow = FlowConfig {
        packet_bytes: 1452,
        packet_bytes_max: 8952,
        unit_bytes_max: 0,
        rate,
        units_open: 32,
        units_most: 32,
    };
    engine::job::Path {
        tag: 0xabcdef,
        flow,
        silence_ns: 10_000_000_000,
        meter: Arc::default(),
        seen: None,
        job_bytes: 0,
    }
}

pub(crate) fn source_of(folder: &Path, io_modes: IoModes) -> Arc<Sources> {
    use std::os::unix::ffi::OsStrExt;
    let parent = Dir::open(folder.as_os_str().as_bytes()).expect("the source");
    let roots = HashMap::from([(Box::default(), Root { parent, name: Box::default() })]);
    Arc::new(LinuxSource::new(roots, Chooser::new(io_modes)).into())
}

pub(crate) fn sink_of(folder: &Path, io_modes: IoModes) -> Arc<Sinks> {
    use std::os::unix::ffi::OsStrExt;
    Arc::new(LinuxSink::new(Dir::open(folder.as_os_str().as_bytes()).expect("the sink"), Chooser::new(io_modes)).into())
}

fn plan_of(setup: Setup, terms: Terms) -> Plan {
    Plan {
        streams: setup.rails,
        streams_max: 8,
        chunk_bytes: terms.chunk_bytes,
        cipher: terms.cipher,
        integrity_only: false,
        bare: false,
        digest: terms.digest,
        workers: (1, 1),
        memory: (16 << 20, 16 << 20),
        rate_bps: 0,
        datagrams: 0,
        pace: proto::negotiate::Pace::default(),
        rdma: None,
    }
}

/// Moves a tree; panics when it stands still. Returns the records of sender and receiver.
pub(crate) fn move_tree(source: &Path, sink: &Path, setup: Setup, hook: &Hook) -> (Record, Record) {
    let (sent, received, _) = move_tree_metered(source, sink, setup, hook);
    (sent, received)
}

/// Both ends of the rails get other sockets while the receiver's worker stands still and this much is on its way to it. False: not so much
/// went, since the sender had nothing left to do; another turn may.
const MOVES_WITH_BYTES: u64 = 1 << 20;

fn move_rails(rails: u16, meters: &[Arc<Meter>], one: &Side, two: &Side) -> bool {
    let since = Instant::now();
    while meters.iter().map(|meter| meter.read().in_flight).sum::<u64>() < MOVES_WITH_BYTES {
        if since.elapsed() > Duration::from_millis(300) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    for rail in 0..rails {
        let (here, there) = sockets(Way::Datagrams);
        one.send(Cmd::RailMoved { job: JOB, rail, socket: Arc::new(here) });
        two.send(Cmd::RailMoved { job: JOB, rail, socket: Arc::new(there) });
    }
    true
}

/// A rail between both. Its meter where it sends, if it is one of datagrams.
fn connect(setup: Setup, rail: u16, one: &Side, two: &Side) -> Option<Arc<Meter>> {
    let (here, there) = sockets(setup.way);
    let key = RailKey { secret: [rail as u8 + 1; 32], place: [rail as u8; 18] };
    let up = |socket, key| match setup.way {
        Way::QueuePairs => {
            let (connection, meter) = (sys::rdma::Connection::Emulated(socket), Arc::default());
            (None, Cmd::PairUp { job: JOB, rail, connection, key, meter })
        }
        Way::Datagrams => {
            let path = path(setup.pace);
            (Some(path.meter.clone()), Cmd::PacketsUp { job: JOB, rail, socket: Arc::new(socket), key, path })
        }
        Way::Pair | Way::Loopback => (None, Cmd::RailUp { job: JOB, rail, socket: Arc::new(socket), key }),
    };
    two.send(up(there, key.clone()).1);
    let (meter, up) = up(here, key);
    one.send(up);
    meter
}

fn close(one: &Side, two: &Side) {
    for side in [one, two] {
        side.send(Cmd::Close { job: JOB });
        let closed = side.events.iter().take(10_000).any(|event| matches!(event, Event::Closed { .. }));
        assert!(closed, "the worker lets go of the job");
    }
}

/// The same, and the meters of the rails where they send.
pub(crate) fn move_tree_metered(
    source: &Path,
    sink: &Path,
    setup: Setup,
    hook: &Hook,
) -> (Record, Record, Vec<Arc<Meter>>) {
    let terms = Terms {
        chunk_bytes: 1 << 20,
        digest: DigestKind::Blake3,
        cipher: Cipher::Aes128Gcm,
        cover: setup.cover,
        publish_small: setup.durability < Durability::Flushed,
    };
    let plan = plan_of(setup, terms);
    let (source, sink) = (source_of(source, setup.io_modes), sink_of(sink, setup.io_modes));
    let mut sender = SendEnd::<Linux>::new(JOB, terms, &plan, setup.durability, source.clone(), 1, 4);
    let mut receiver =
        RecvEnd::<Linux>::new(JOB, terms, &plan, setup.durability, sink.clone(), 1, setup.keep, [1; 8], Carried::new());
    let landed = Arc::new(AtomicU64::new(0));
    let one = Side::start(setup, terms, Role::Send(source.clone()), hook.clone(), landed.clone());
    let gate = Arc::new(Mutex::new(()));
    let (held, hook) = (gate.clone(), hook.clone());
    let gated: Hook = Arc::new(move |permille, turn| {
        let _turn = held.lock().expect("no panic");
        hook(permille, turn)
    });
    let two = Side::start(setup, terms, Role::Recv(sink.clone()), gated, landed.clone());
    let mut meters = Vec::new();
    for rail in 0..setup.rails {
        assert!(receiver.rail_up(rail) && sender.rail_up(rail));
        meters.extend(connect(setup, rail, &one, &two));
    }
    let mut moves_at = setup.moves_at;
    let mut scan = Some(Scan::new(&source));
    let (mut out, mut back) = (Outbox::default(), Outbox::default());
    let mut settled: Vec<Settled> = Vec::new();
    let started = Instant::now();
    while !(sender.is_done() && receiver.is_done()) {
        let (open, unsettled) = (sender.open_counts(), receiver.open_count());
        assert!(started.elapsed() < PATIENCE, "it stands still: {open:?} {unsettled}");
        if let Some(walk) = scan.as_mut().filter(|_| sender.room() >= 1024) {
            match walk.next_batch() {
                Some(batch) => sender.scan(batch.entries, &mut out),
                None => {
                    scan = None;
                    sender.scan_ended(&mut out);
                }
            }
        }
        let now_ns = started.elapsed().as_nanos() as u64;
        one.events.try_iter().for_each(|event| sender.on_event(event, &mut out).expect("no breach"));
        two.events.try_iter().for_each(|event| receiver.on_event(now_ns, event, &mut back).expect("no breach"));
        settled.drain(..).for_each(|it| receiver.on_settled(it, &mut back).expect("no fault"));
        let tally = &receiver.record.tally;
        landed.store(tally.written * 1000 / tally.bytes_total.max(1), Ordering::Relaxed);
        if moves_at.is_some_and(|at| landed.load(Ordering::Relaxed) >= at) {
            let _stands = gate.lock().expect("no panic");
            if move_rails(setup.rails, &meters, &one, &two) {
                moves_at = None;
            }
        }
        sender.pump(&mut out);
        receiver.pump(now_ns, &mut back);
        let frames = std::mem::take(&mut out.frames);
        out.cmds.drain(..).for_each(|(_, cmd)| one.send(cmd));
        frames.into_iter().for_each(|frame| receiver.on_frame(frame, &mut back).expect("no breach"));
        back.cmds.drain(..).for_each(|(_, cmd)| two.send(cmd));
        std::mem::take(&mut back.frames)
            .into_iter()
            .for_each(|frame| sender.on_frame(frame, &mut out).expect("no breach"));
        settled.extend(back.tasks.drain(..).map(|task| commit::run(&*sink, task)));
        std::thread::sleep(Duration::from_micros(200));
    }
    close(&one, &two);
    assert_eq!(moves_at, None, "the file landed before the rails were to move");
    (sender.record, receiver.record, meters)
}

/// A folder that goes away with the test.
pub(crate) struct Scratch(pub(crate) std::path::PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("from")).expect("a folder");
        std::fs::create_dir_all(path.join("to")).expect("a folder");
        Scratch(path)
    }
    pub(crate) fn from(&self) -> std::path::PathBuf {
        self.0.join("from")
    }
    pub(crate) fn to(&self) -> std::path::PathBuf {
        self.0.join("to")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Bytes without a pattern.
pub(crate) fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut data = vec![0; bytes];
    for part in data.chunks_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = (state ^ (state >> 29)).to_le_bytes();
        part.copy_from_slice(&word[..part.len()]);
    }
    data
}
