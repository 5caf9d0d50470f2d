//! The engine's own rail, from an empty source to an empty sink.
//!
//! For: what the product itself reaches on a connection, layer by layer, with no disk at either end.
//! In and out: a connected socket, terms and a time → what this end moved and spent, by the engine's own books.
//! Invariants: worker, rail and sealer are the ones of every job; only reads and writes of files are answered at once, untouched.
//! Absent on purpose: job drivers and the control session: assignments are made and events taken between two turns of the loop.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::bail;
use engine::job::{Cmd, Event, EventQueue, InPlace, JobPart, RailEnd, RailKey, Role, Terms};
use engine::platform::{
    Clock, Disk, Done, Firm, Found, Op, PacketIo, PairIo, Parts, Platform, Publish, SinkTree, SourceTree, Splicer,
    StreamIo, VolumeSet,
};
use engine::worker::Worker;
use engine::worker::stages::{Counters, Look};
use proto::manifest::{Entry, EntryKind};
use proto::send::{Assignment, Unit};
use proto::wire::chunk::CHUNK_BYTES_MIN;
use proto::wire::control::Durability;
use sys::mem::Pool;
use sys::ring::{self, Driver};
use sys::udp::{self, Arrived, HEAD_BYTES};

use super::bare::{STALL, Watch};
use super::way::{self, Layer, Seal, Side};

/// Bufs of the sending end of a stream rail. A rail lends bufs to the network while half of the pool is free, as it mostly is in a job; with 8 it
/// would copy most of the time, at 1.4 times the CPU.
const BUFS_SEND: usize = 32;
/// Bufs of the receiving end: those that move, and the quarter that the engine leaves to receivers.
const BUFS_RECV: usize = 8;
/// Chunks handed to the rail and not yet sent. One in the kernel, two sealed, one being filled.
const AHEAD: usize = 4;
/// The job and the rail; there is but one.
pub(super) const JOB: u32 = 1;
/// Bytes of the file that is never there: enough to send for weeks.
const FILE_BYTES: u64 = 1 << 60;
/// Longest sleep of the loop.
pub(super) const TURN_NS_MAX: u64 = 100_000_000;

/// A world whose files are all air.
#[derive(Debug)]
pub(super) struct Air {
    driver: Driver,
    pool: Pool,
    done: Vec<ring::Done>,
    /// Reads and writes that are done already.
    ready: Vec<Done>,
}

impl Air {
    fn new(driver: way::Driver, bufs: usize) -> io::Result<Air> {
        let mut pool = Pool::new(bufs, CHUNK_BYTES_MIN as usize)?;
        let mut bufs: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        bufs.iter_mut().for_each(|buf| buf.whole_mut().fill(0x5a));
        bufs.into_iter().rev().for_each(|buf| pool.give(buf));
        let (driver, _) = Driver::choose(&pool, Some(driver.kind()))?;
        Ok(Air { driver, pool, done: Vec::with_capacity(16), ready: Vec::with_capacity(16) })
    }
}

impl Clock for Air {
    fn now_ns(&self) -> u64 {
        sys::clock::now_ns()
    }

    fn busy_ns(&self) -> u64 {
        sys::clock::thread_cpu_ns()
    }
}

impl Disk for Air {
    type File = ();
}

impl StreamIo for Air {
    type Socket = Arc<OwnedFd>;

    fn lend_ready(&mut self, socket: &Arc<OwnedFd>) -> bool {
        sys::sock::lend_ready(socket).unwrap_or(false)
    }

    fn unacknowledged(&self, socket: &Arc<OwnedFd>) -> u64 {
        sys::sock::unacknowledged(socket).unwrap_or(u64::MAX)
    }

    fn abort(&mut self, socket: &Arc<OwnedFd>) {
        let _ = sys::sock::abort(socket);
    }

    fn cut(&mut self, socket: &Arc<OwnedFd>) {
        // A socket that is not connected any more needs no cutting.
        let _ = sys::sock::shutdown(socket);
    }
}

impl PacketIo for Air {
    fn send_burst(
        &mut self,
        socket: &Arc<OwnedFd>,
        heads: &[[u8; HEAD_BYTES]],
        payload: &[u8],
        segment: usize,
    ) -> io::Result<usize> {
        udp::send_burst(socket, heads, payload, segment)
    }

    fn send_sealed(&mut self, socket: &Arc<OwnedFd>, bytes: &[u8], segment: usize) -> io::Result<usize> {
        udp::send_sealed(socket, bytes, segment)
    }

    fn burst_slots(&mut self, socket: &Arc<OwnedFd>, bytes: usize) -> Option<Splicer> {
        // Before Linux 6.5, or without pipes: the kernel copies, as ever.
        Splicer::for_answered(Arc::clone(socket), bytes).ok()
    }

    fn recv_burst(&mut self, socket: &Arc<OwnedFd>, into: &mut [u8]) -> io::Result<Arrived> {
        udp::recv_burst(socket, into)
    }
}

impl PairIo for Air {
    type Connection = std::convert::Infallible;
}

impl Platform for Air {
    type Source = Nothing;

    type Sink = Nothing;

    fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    fn submit(&mut self, token: u64, op: Op<(), Arc<OwnedFd>>) {
        match op {
            Op::Read { mem, len, .. } | Op::Write { mem, len, .. } => {
                self.ready.push(Done { token, result: Ok(len), mem });
            }
            Op::Send { socket, mem, at, len, lend: true } => {
                self.driver.submit(token, ring::Op::Lend { socket, mem, at, len, tail: None })
            }
            Op::Send { socket, mem, at, len, lend: false } => {
                self.driver.submit(token, ring::Op::Send { socket, mem, at, len })
            }
            // No file is behind this bench: a bare rail reads, as where a file system refuses.
            Op::SendFile { mem, .. } => {
                let result = Err(std::io::ErrorKind::Unsupported.into());
                self.ready.push(Done { token, result, mem });
            }
            Op::Recv { socket, mem, at, len } => {
                self.driver.submit(token, ring::Op::Recv { socket, mem, at, len, all: true });
            }
            Op::Readable { socket } => self.driver.submit(token, ring::Op::Readable { socket }),
        }
    }

    fn flush(&mut self) {
        self.driver.flush().expect("a ring that was set up takes submissions");
    }

    fn wait(&mut self, timeout_ns: u64, done: &mut Vec<Done>) {
        let result = match self.ready.is_empty() {
            true => self.driver.wait(Some(Duration::from_nanos(timeout_ns)), &mut self.done),
            false => self.driver.poll(&mut self.done),
        };
        result.expect("a ring that was set up can be waited for");
        done.append(&mut self.ready);
        done.extend(self.done.drain(..).map(|it| Done { token: it.token, result: it.result, mem: it.mem }));
    }
}

/// A tree without names.
#[derive(Debug)]
pub(super) struct Nothing;

impl SourceTree for Nothing {
    type File = ();
    fn open(&self, _: &Entry, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn read_small(&self, _: &Entry, _: &mut [u8]) -> io::Result<Option<()>> {
        Ok(None)
    }
    fn is_unchanged(&self, _: &Entry) -> io::Result<bool> {
        Ok(true)
    }
}

impl VolumeSet for Nothing {}

impl SinkTree for Nothing {
    fn inspect(&self, _: &Entry, _: bool, _: bool) -> io::Result<Found> {
        Ok(Found::Nothing)
    }
    fn make(&self, _: &Entry) -> io::Result<()> {
        Ok(())
    }
    fn discard(&self, _: &Entry) {}
}

impl Publish for Nothing {
    fn flush(&self, _: usize, _: &Entry, _: &[u8], _: Firm) -> io::Result<()> {
        Ok(())
    }
    fn settle(&self, _: Durability) -> io::Result<()> {
        Ok(())
    }
    fn publish(&self, entries: &[Arc<Entry>], _: Durability, results: &mut Vec<io::Result<()>>) {
        results.extend(entries.iter().map(|_| Ok(())));
    }
}

impl Parts for Nothing {
    type File = ();
    fn resume_part(&self, _: usize, _: &Entry, _: usize, _: &[(u64, u64)]) -> io::Result<()> {
        Ok(())
    }
    fn empty_part(&self, _: usize, _: &Entry, _: &[(u64, u64)]) -> io::Result<()> {
        Ok(())
    }
    fn open_part(&self, _: usize, _: &Entry) -> io::Result<()> {
        Ok(())
    }
    fn put_small(&self, _: &Entry, _: &[u8], _: bool) -> io::Result<()> {
        Ok(())
    }
}

/// A worker with one rail of one job, driven by hand.
pub(super) struct Lone {
    pub(super) worker: Worker<Air>,
    to: Sender<Cmd<Air>>,
    pub(super) events: Receiver<Event>,
    counters: Arc<Counters>,
    first: Look,
}

impl Lone {
    /// A job without a rail.
    pub(super) fn new(driver: way::Driver, bufs: usize, layer: Layer, seal: Seal, role: Role<Air>) -> io::Result<Lone> {
        let (to, mailbox) = mpsc::channel();
        let (post, events) = mpsc::sync_channel(64);
        let counters = Arc::new(Counters::default());
        let (cover, digest) = layer.terms();
        let terms = Terms { chunk_bytes: CHUNK_BYTES_MIN, digest, cipher: seal.cipher(), cover, publish_small: false };
        let part = JobPart {
            role,
            terms,
            events: EventQueue::new(post, None),
            bound: Arc::default(),
            in_place: InPlace::Never,
        };
        let worker = Worker::new(Air::new(driver, bufs)?, mailbox, Arc::clone(&counters));
        let first = counters.look();
        let mut lone = Lone { worker, to, events, counters, first };
        lone.tell(Cmd::Open { job: JOB, part });
        Ok(lone)
    }

    pub(super) fn tell(&mut self, cmd: Cmd<Air>) {
        self.to.send(cmd).expect("the worker is in the same hands");
    }

    /// The stream rail.
    fn rail_up(&mut self, socket: &Arc<OwnedFd>) {
        self.tell(Cmd::RailUp { job: JOB, rail: 0, socket: Arc::clone(socket), key: key() });
    }

    /// Hands chunk `chunk` of the file of air to the rail.
    pub(super) fn hand_out(&mut self, chunk: u64, entry: &Arc<Entry>) {
        let offset = chunk * u64::from(CHUNK_BYTES_MIN) % FILE_BYTES;
        let index = offset / u64::from(CHUNK_BYTES_MIN);
        let unit = Unit::Range { entry: Arc::clone(entry), index, offset, bytes: CHUNK_BYTES_MIN };
        self.tell(Cmd::Send { job: JOB, assignment: Assignment { chunk, rail: 0, unit, again: false } });
    }

    /// Starts the clocks: what was booked before is not counted.
    pub(super) fn watch(&mut self) -> Watch {
        self.first = self.counters.look();
        Watch::start()
    }

    /// What was moved and spent since.
    pub(super) fn side(&self, watch: &Watch, bytes: u64) -> Side {
        let mut side = watch.side(bytes);
        side.book(&self.counters.look().since(&self.first).0);
        side
    }
}

/// Everybody knows this key: nothing is sent that anybody could want to read.
pub(super) fn key() -> RailKey {
    RailKey { secret: [7; 32], place: [7; 18] }
}

/// The file of air.
pub(super) fn entry() -> Arc<Entry> {
    let kind = EntryKind::File { bytes: FILE_BYTES };
    Arc::new(Entry {
        id: 0,
        path: Box::from(&b"air"[..]),
        kind,
        mode: 0,
        mtime_s: 0,
        mtime_ns: 0,
        meta: proto::manifest::Meta::default(),
    })
}

/// Frames of the engine until the time is over.
///
/// # Errors
/// No memory, no such engine, or the rail died.
pub fn send(
    socket: &Arc<OwnedFd>,
    (driver, layer, seal): (way::Driver, Layer, Seal),
    ready: impl FnOnce(),
    time: Duration,
) -> anyhow::Result<Side> {
    let mut lone = Lone::new(driver, BUFS_SEND, layer, seal, Role::Send(Arc::new(Nothing)))?;
    lone.rail_up(socket);
    let entry = entry();
    lone.worker.turn(0);
    ready();
    let (watch, end) = (lone.watch(), Instant::now() + time);
    let (mut bytes, mut chunk, mut ahead, mut last) = (0, 0, 0, Instant::now());
    loop {
        while ahead < AHEAD && Instant::now() < end {
            lone.hand_out(chunk, &entry);
            (chunk, ahead) = (chunk + 1, ahead + 1);
        }
        if ahead == 0 {
            return Ok(lone.side(&watch, bytes));
        }
        // Commands are taken after the wait, which must not be long when nothing is in flight yet.
        lone.worker.turn(if bytes == 0 { 0 } else { TURN_NS_MAX });
        for event in lone.events.try_iter() {
            match event {
                Event::Sent { payload, .. } => {
                    (bytes, ahead, last) = (bytes + payload, ahead - 1, Instant::now());
                }
                Event::Read { .. } => {}
                other => bail!("the rail failed: {other:?}"),
            }
        }
        anyhow::ensure!(last.elapsed() < STALL, "nothing was sent for {} s", STALL.as_secs());
    }
}

/// Frames of the engine until the other end closes.
///
/// # Errors
/// No memory, no such engine, the rail died, or a chunk came corrupt.
pub fn recv(
    socket: &Arc<OwnedFd>,
    (driver, layer, seal): (way::Driver, Layer, Seal),
    ready: impl FnOnce(),
) -> anyhow::Result<Side> {
    let mut lone = Lone::new(driver, BUFS_RECV, layer, seal, Role::Recv(Arc::new(Nothing)))?;
    lone.rail_up(socket);
    lone.tell(Cmd::Expect { job: JOB, entries: vec![entry()] });
    lone.worker.turn(0);
    ready();
    let (mut watch, mut sum, mut last) = (None, 0, Instant::now());
    loop {
        lone.worker.turn(TURN_NS_MAX);
        let mut over = false;
        let mut landed = 0;
        for event in lone.events.try_iter() {
            match event {
                Event::Landed { bytes, .. } => (landed, last) = (landed + u64::from(bytes), Instant::now()),
                Event::RailDead { end: RailEnd::Closed, .. } => over = true,
                other => bail!("the rail failed: {other:?}"),
            }
        }
        match &watch {
            Some(_) => sum += landed,
            // The first chunk starts the clocks and is not counted.
            None if landed > 0 => watch = Some(lone.watch()),
            None => {}
        }
        if over {
            return Ok(watch.map_or_else(Side::default, |watch| lone.side(&watch, sum)));
        }
        anyhow::ensure!(last.elapsed() < STALL, "nothing came for {} s", STALL.as_secs());
    }
}
