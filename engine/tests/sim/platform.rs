//! The simulated world behind `engine::platform::Platform`.
//!
//! For: workers whose disk, network and clock are the scenario's.
//! In and out: ops wait for their virtual time, then are done on the simulated disk or wire.
//! Invariants: `wait` never sleeps and never advances time (the driver of the run does); an op is completed once, in any order.
//! Absent on purpose: threads.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use engine::platform::{
    Arrived, Completion, Disk, Done, Harm, MESSAGE_HEAD_BYTES, Op, PacketIo, PairCounts, PairIo, Platform, Receives,
    StreamIo, Word,
};
use engine::seal::packet::HEAD_BYTES;
use proto::PIECE_BYTES;
use sys::mem::{Buf, HEADROOM, Mem, Pool};

use crate::disk::Clock;
use crate::net::Net;
use crate::rng::Rng;
use crate::trace;
use crate::trees::{SimFile, SimSink, SimSource};

/// What all parts of one run share.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) net: Net,
    /// Goes up with everything that happens.
    pub(crate) activity: u64,
    /// Flip a bit at the n-th piece that passes here.
    pub(crate) harm: Option<(Harm, u64)>,
    pub(crate) harmed: Option<Harm>,
    pub(crate) disk_ns: u64,
    /// Files are read and written at once, as those in memory are.
    pub(crate) at_once: bool,
    /// Its sockets for datagrams have no descriptor.
    pub(crate) polled: bool,
}

pub(crate) type Shared = Arc<Mutex<World>>;

pub(crate) fn lock(world: &Shared) -> MutexGuard<'_, World> {
    world.lock().expect("one thread")
}

/// One side of one wire.
#[derive(Debug, Clone)]
pub(crate) struct SimSocket {
    pub(crate) wire: usize,
    pub(crate) side: usize,
}

#[derive(Debug)]
struct Pending {
    token: u64,
    at_ns: u64,
    /// The file was moved by an engine of its own when this was submitted.
    special: bool,
    op: Op<SimFile, SimSocket>,
}

/// One worker's world.
#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) world: Shared,
    clock: Clock,
    rng: Rng,
    pub(crate) pool: Pool,
    pub(crate) pairs: Pairs,
    pending: Vec<Pending>,
    /// Bufs at home, for the checker.
    free: Arc<AtomicUsize>,
    /// Told to the worker while it reads packets: after it took its commands, and before it opens what came.
    pub(crate) late: Late,
}

/// What is done when a worker's next packets come.
#[derive(Clone, Default)]
pub(crate) struct Late(Arc<Mutex<Vec<Tell>>>);

type Tell = Box<dyn FnOnce() + std::marker::Send>;

impl std::fmt::Debug for Late {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Late")
    }
}

impl Late {
    pub(crate) fn push(&self, tell: impl FnOnce() + std::marker::Send + 'static) {
        self.0.lock().expect("one thread").push(Box::new(tell));
    }

    /// Now is late enough.
    pub(crate) fn tell(&self) {
        let all = std::mem::take(&mut *self.0.lock().expect("one thread"));
        all.into_iter().for_each(|tell| tell());
    }
}

impl Sim {
    pub(crate) fn new(world: Shared, rng: Rng, bufs: usize, chunk_bytes: usize) -> (Self, Arc<AtomicUsize>) {
        let clock = lock(&world).clock.clone();
        let free = Arc::new(AtomicUsize::new(bufs));
        let pool = Pool::new(bufs, chunk_bytes).expect("memory");
        let (pairs, pending, late) = (Pairs::default(), Vec::new(), Late::default());
        (Sim { world, clock, rng, pool, pairs, pending, free: free.clone(), late }, free)
    }

    fn try_op(&mut self, index: usize) -> Option<Done> {
        let world = self.world.clone();
        let mut world = lock(&world);
        let pending = &mut self.pending[index];
        let result = match &mut pending.op {
            Op::Read { file, offset, mem, at, len } => {
                let mut disk = file.disk.lock().expect("one thread");
                match if pending.special { disk.refusal() } else { None } {
                    Some(error) => {
                        disk.refused = true;
                        Err(give_way(file, &error))
                    }
                    None => disk.read(file.ino, *offset, &mut mem.bytes_mut()[*at..*at + *len]),
                }
            }
            Op::Write { file, offset, mem, at, len } => {
                let mut disk = file.disk.lock().expect("one thread");
                match if pending.special { disk.refusal() } else { None } {
                    Some(error) => {
                        disk.refused = true;
                        Err(give_way(file, &error))
                    }
                    None => disk.write(file.ino, *offset, &mem.bytes()[*at..*at + *len]),
                }
            }
            Op::Send { socket, mem, at, len, .. } => {
                world.net.send(socket.wire, socket.side, &mem.bytes()[*at..*at + *len])?
            }
            // This world cannot: the way back to reading is what is tried.
            Op::SendFile { .. } => Err(io::ErrorKind::Unsupported.into()),
            Op::Recv { socket, mem, at, len } => {
                world.net.recv(socket.wire, socket.side, &mut mem.bytes_mut()[*at..*at + *len])?
            }
            Op::Readable { socket } => {
                let is_readable = match self.pairs.is_readable(&world.net, socket) {
                    Some(of_pair) => of_pair,
                    None => world.net.is_readable(socket.wire, socket.side),
                };
                if !is_readable {
                    return None;
                }
                Ok(0)
            }
        };
        let pending = self.pending.swap_remove(index);
        world.activity += 1;
        trace::note("done", &[world.clock.now(), result.as_ref().map_or(u64::MAX, |moved| *moved as u64)]);
        let mem = match pending.op {
            Op::Read { mem, .. }
            | Op::Write { mem, .. }
            | Op::Send { mem, .. }
            | Op::SendFile { mem, .. }
            | Op::Recv { mem, .. } => mem,
            Op::Readable { .. } => Mem::Small(Box::default()),
        };
        Some(Done { token: pending.token, result, mem })
    }
}

/// How often, in all stories of this process.
pub(crate) static GAVE_WAY: AtomicUsize = AtomicUsize::new(0);

/// As `tree::handle` does: the file goes on in the plain way, and the worker makes the op again.
fn give_way(file: &SimFile, refused: &io::Error) -> io::Error {
    assert!(matches!(refused.raw_os_error(), Some(22 | 95)), "nothing else is a refusal");
    file.special.store(false, Ordering::Relaxed);
    GAVE_WAY.fetch_add(1, Ordering::Relaxed);
    io::ErrorKind::WouldBlock.into()
}

/// An op for the trace: its kind, where it goes, and how much of what memory it moves.
fn note_op(now: u64, op: &Op<SimFile, SimSocket>) {
    let kind_of_mem = |mem: &Mem| u64::from(matches!(mem, Mem::Buf(_)));
    match op {
        Op::Read { file, offset, mem, at, len } => {
            trace::note("read", &[now, file.ino as u64, *offset, kind_of_mem(mem), *at as u64, *len as u64]);
        }
        Op::Write { file, offset, mem, at, len } => {
            trace::note("write", &[now, file.ino as u64, *offset, kind_of_mem(mem), *at as u64, *len as u64]);
        }
        Op::Send { socket, mem, at, len, lend } => {
            let to = [now, socket.wire as u64, kind_of_mem(mem), *at as u64, *len as u64, u64::from(*lend)];
            trace::note("send", &to);
        }
        Op::SendFile { socket, at, len, file, offset, bytes, .. } => {
            let to = [now, socket.wire as u64, *at as u64, *len as u64, file.ino as u64, *offset, *bytes as u64];
            trace::note("send file", &to);
        }
        Op::Recv { socket, mem, at, len } => {
            trace::note("recv", &[now, socket.wire as u64, kind_of_mem(mem), *at as u64, *len as u64]);
        }
        Op::Readable { socket } => trace::note("readable", &[now, socket.wire as u64]),
    }
}

/// As the kernel does: what was taken counts, an error is told only when nothing was.
fn send_all<'a>(world: &Shared, socket: &SimSocket, packets: impl Iterator<Item = [&'a [u8]; 2]>) -> io::Result<usize> {
    let mut world = lock(world);
    world.activity += 1;
    let mut taken = 0;
    for packet in packets {
        let heads = packet[0].iter().fold(0, |digest, &byte| trace::mix(digest, byte.into()));
        trace::note("datagram", &[socket.wire as u64, heads, packet[1].len() as u64]);
        match world.net.send_datagram(socket.wire, socket.side, packet) {
            Ok(()) => taken += 1,
            Err(_) if taken > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}

impl engine::platform::Clock for Sim {
    fn now_ns(&self) -> u64 {
        self.clock.now()
    }

    fn busy_ns(&self) -> u64 {
        0
    }
}

impl Disk for Sim {
    type File = SimFile;

    fn is_at_once(&self, _file: &SimFile) -> bool {
        lock(&self.world).at_once
    }

    fn read_at_once(&self, file: &SimFile, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        file.disk.lock().expect("one thread").read(file.ino, offset, into)
    }

    fn write_at_once(&self, file: &SimFile, offset: u64, from: &[u8]) -> io::Result<usize> {
        file.disk.lock().expect("one thread").write(file.ino, offset, from)
    }

    /// Of two steps of a chunk the first finds another worker at the file.
    fn try_write_at_once(&self, file: &SimFile, offset: u64, from: &[u8]) -> Option<io::Result<usize>> {
        let is_first = offset.is_multiple_of(4 * PIECE_BYTES as u64) && from.len() == 2 * PIECE_BYTES;
        (!is_first).then(|| self.write_at_once(file, offset, from))
    }
}

impl StreamIo for Sim {
    type Socket = SimSocket;

    fn lend_ready(&mut self, _socket: &SimSocket) -> bool {
        // The network copies at once, so nothing is risked; that bufs come back by the peer's word alone is what is tried.
        true
    }

    fn cut(&mut self, socket: &SimSocket) {
        self.pairs.cut(socket);
        let mut world = lock(&self.world);
        world.net.shut(socket.wire, socket.side);
        world.activity += 1;
        trace::note("cut", &[world.clock.now(), socket.wire as u64, socket.side as u64]);
    }
}

impl PacketIo for Sim {
    fn is_polled(&self, _socket: &SimSocket) -> bool {
        lock(&self.world).polled
    }

    fn send_burst(
        &mut self,
        socket: &SimSocket,
        heads: &[[u8; HEAD_BYTES]],
        payload: &[u8],
        segment: usize,
    ) -> io::Result<usize> {
        assert_eq!(heads.len(), payload.len().div_ceil(segment), "one head per packet");
        let packets = heads.iter().zip(payload.chunks(segment)).map(|(head, part)| [&head[..], part]);
        send_all(&self.world, socket, packets)
    }

    fn send_sealed(&mut self, socket: &SimSocket, bytes: &[u8], segment: usize) -> io::Result<usize> {
        send_all(&self.world, socket, bytes.chunks(segment).map(|packet| [packet, &[]]))
    }

    fn recv_burst(&mut self, socket: &SimSocket, into: &mut [u8]) -> io::Result<Arrived> {
        let mut world = lock(&self.world);
        let came = world.net.recv_datagrams(socket.wire, socket.side, into);
        let (bytes, segment, marked) = came.ok_or(io::ErrorKind::WouldBlock)?;
        self.late.tell();
        world.activity += 1;
        trace::note("came", &[world.clock.now(), socket.wire as u64, bytes as u64, segment as u64]);
        Ok(Arrived { bytes, segment, marked, waited_ns: 0, from: None, to: None })
    }
}

impl Platform for Sim {
    type Source = SimSource;

    type Sink = SimSink;

    fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    fn submit(&mut self, token: u64, op: Op<SimFile, SimSocket>) {
        let mut world = lock(&self.world);
        world.activity += 1;
        let now = self.clock.now();
        note_op(now, &op);
        let is_pair = |socket: &SimSocket| self.pairs.has(socket);
        let is_ring = matches!(&op, Op::Readable { socket } if world.polled && !is_pair(socket));
        assert!(!is_ring, "a ring in memory has no descriptor to wait for");
        let special = match &op {
            Op::Read { file, .. } | Op::Write { file, .. } => file.special.load(Ordering::Relaxed),
            _ => false,
        };
        let at_ns = match op {
            Op::Read { .. } | Op::Write { .. } => now + self.rng.below(world.disk_ns + 1),
            _ => now,
        };
        world.net.wakes.insert(at_ns);
        self.pending.push(Pending { token, at_ns, special, op });
    }

    fn flush(&mut self) {
        self.free.store(self.pool.free() + self.pool.small_free(), Ordering::Relaxed);
    }

    fn wait(&mut self, timeout_ns: u64, done: &mut Vec<Done>) {
        let now = self.clock.now();
        if timeout_ns < 100_000_000 {
            lock(&self.world).net.wakes.insert(now.saturating_add(timeout_ns));
        }
        let mut index = 0;
        let some_only = self.rng.permille(200);
        while index < self.pending.len() {
            let skip = self.pending[index].at_ns > now || (some_only && self.rng.permille(500));
            match if skip { None } else { self.try_op(index) } {
                Some(it) => done.push(it),
                None => index += 1,
            }
        }
        self.rng.shuffle(done);
    }

    fn harm(&mut self, at: Harm, bytes: &mut [u8]) {
        let mut world = lock(&self.world);
        match &mut world.harm {
            Some((kind, left)) if *kind == at && *left > 0 => *left -= 1,
            Some((kind, _)) if *kind == at => {
                let bit = self.rng.below(bytes.len() as u64 * 8);
                bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
                (world.harm, world.harmed) = (None, Some(at));
            }
            _ => {}
        }
    }
}

// Queue pairs: messages over the streams of `net`, cut and reset at any byte, with the queue and the completions of a device.

/// A length, twice: a bit that flips in it is seen.
const PREFIX: usize = 8;
const CHUNK_BYTES: u32 = 1 << 20;
const AT: usize = HEADROOM - MESSAGE_HEAD_BYTES;

/// Bytes, how many of them left, and the buf that they are of.
type Send = (Vec<u8>, usize, Option<(u64, Buf)>);

#[derive(Debug)]
struct Pair {
    wire: usize,
    side: usize,
    receives: Receives,
    /// What of a send is left to leave, and whose buf it is.
    sends: VecDeque<Send>,
    /// The message that comes in, its length first.
    incoming: Vec<u8>,
    waits: bool,
    done: VecDeque<Completion>,
    dead: bool,
}

/// The pairs of one worker.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    pairs: Vec<Pair>,
    queue: VecDeque<Buf>,
    spare: usize,
    counts: PairCounts,
}

impl Pair {
    fn die(&mut self, why: Option<io::Error>) {
        if std::mem::replace(&mut self.dead, true) {
            return;
        }
        for (_, _, buf) in self.sends.drain(..) {
            let sent = |(token, buf)| Completion::Sent { token, buf, result: Err(io::ErrorKind::Interrupted.into()) };
            self.done.extend(buf.map(sent));
        }
        self.done.push_back(Completion::Down(why));
    }

    /// Bytes that are missing of the prefix, or of the message behind it. Errors: the prefix is none, or no receive holds so much.
    fn wanted(&self) -> io::Result<usize> {
        let Some(&[len, check]) = self.incoming.as_chunks::<4>().0.first_chunk::<2>() else {
            return Ok(PREFIX - self.incoming.len());
        };
        let (len, check) = (u32::from_le_bytes(len), u32::from_le_bytes(check));
        let most = if self.receives == Receives::Words { 8 } else { MESSAGE_HEAD_BYTES + CHUNK_BYTES as usize };
        if check != !len || len as usize > most {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(PREFIX + len as usize - self.incoming.len())
    }

    fn step(
        &mut self,
        net: &mut Net,
        queue: &mut VecDeque<Buf>,
        counts: &mut PairCounts,
    ) -> Result<(), Option<io::Error>> {
        while let Some((bytes, moved, _)) = self.sends.front_mut() {
            let Some(sent) = net.send(self.wire, self.side, &bytes[*moved..]) else { break };
            *moved += sent.map_err(Some)?;
            if *moved == bytes.len() {
                let buf = self.sends.pop_front().and_then(|(_, _, buf)| buf);
                self.done.extend(buf.map(|(token, buf)| Completion::Sent { token, buf, result: Ok(()) }));
            }
        }
        loop {
            let is_begun = self.incoming.len() == PREFIX;
            if is_begun && self.receives == Receives::Frames && queue.is_empty() {
                counts.not_ready += u64::from(!std::mem::replace(&mut self.waits, true));
                return Ok(());
            }
            self.waits = false;
            let mut part = vec![0; self.wanted().map_err(Some)?];
            let Some(came) = net.recv(self.wire, self.side, &mut part) else { return Ok(()) };
            match came.map_err(Some)? {
                0 => return Err((!self.incoming.is_empty()).then(|| io::ErrorKind::UnexpectedEof.into())),
                came => self.incoming.extend_from_slice(&part[..came]),
            }
            if self.incoming.len() > PREFIX && self.wanted().map_err(Some)? == 0 {
                let message = std::mem::take(&mut self.incoming);
                self.done.push_back(match self.receives {
                    Receives::Words => Completion::Word(message[PREFIX..].try_into().expect("a word")),
                    Receives::Frames => {
                        // Another pair may have taken the receive that was there when this message began.
                        let Some(mut buf) = queue.pop_front() else {
                            self.incoming = message;
                            return Ok(());
                        };
                        let bytes = message.len() - PREFIX;
                        buf.whole_mut()[AT..AT + bytes].copy_from_slice(&message[PREFIX..]);
                        Completion::Frame { buf, bytes }
                    }
                });
            }
        }
    }
}

impl Pairs {
    fn at(&self, socket: &SimSocket) -> Option<usize> {
        self.pairs.iter().position(|it| (it.wire, it.side) == (socket.wire, socket.side))
    }

    pub(crate) fn has(&self, socket: &SimSocket) -> bool {
        self.pairs.iter().any(|it| (it.wire, it.side) == (socket.wire, socket.side))
    }

    /// `None`: it is no pair.
    pub(crate) fn is_readable(&self, net: &Net, socket: &SimSocket) -> Option<bool> {
        let pair = &self.pairs[self.at(socket)?];
        let comes = net.has_bytes(pair.wire, pair.side) && !(pair.waits && self.queue.is_empty());
        let goes = !pair.sends.is_empty() && net.has_room(pair.wire, pair.side);
        Some(!pair.done.is_empty() || pair.dead || comes || goes)
    }

    pub(crate) fn cut(&mut self, socket: &SimSocket) {
        if let Some(index) = self.at(socket) {
            self.pairs[index].die(Some(io::ErrorKind::ConnectionAborted.into()));
        }
    }

    fn post(&mut self, socket: &SimSocket, message: &[u8], buf: Option<(u64, Buf)>) {
        let index = self.at(socket).expect("a pair");
        let pair = &mut self.pairs[index];
        if pair.dead {
            let down = pair.done.pop_back();
            let sent = |(token, buf)| Completion::Sent { token, buf, result: Err(io::ErrorKind::Interrupted.into()) };
            pair.done.extend(buf.map(sent));
            pair.done.extend(down);
            return;
        }
        let len = message.len() as u32;
        let bytes = [&len.to_le_bytes()[..], &(!len).to_le_bytes(), message].concat();
        pair.sends.push_back((bytes, 0, buf));
    }
}

impl PairIo for Sim {
    type Connection = SimSocket;

    fn pair_up(&mut self, connection: SimSocket, receives: Receives) -> io::Result<SimSocket> {
        let SimSocket { wire, side } = connection;
        let (sends, incoming, done) = (VecDeque::new(), Vec::new(), VecDeque::new());
        self.pairs.pairs.push(Pair { wire, side, receives, sends, incoming, waits: false, done, dead: false });
        Ok(connection)
    }

    fn post_send(&mut self, pair: &SimSocket, token: u64, buf: Buf, at: usize, len: usize) {
        let message = buf.whole()[at..at + len].to_vec();
        self.pairs.post(pair, &message, Some((token, buf)));
    }

    fn post_word(&mut self, pair: &SimSocket, word: Word) {
        self.pairs.post(pair, &word, None);
    }

    fn add_receive(&mut self, _: &SimSocket, least: usize) -> bool {
        if self.pairs.spare > 0 {
            self.pairs.spare -= 1;
            return true;
        }
        let Some(buf) = Some(&mut self.pool).filter(|pool| pool.free() > least).and_then(|pool| pool.take()) else {
            return false;
        };
        self.pairs.queue.push_back(buf);
        true
    }

    fn poll_pair(&mut self, pair: &SimSocket) -> Option<Completion> {
        let index = self.pairs.at(pair).expect("a pair");
        let Pairs { pairs, queue, counts, .. } = &mut self.pairs;
        let pair = &mut pairs[index];
        if pair.done.is_empty() && !pair.dead {
            let mut world = lock(&self.world);
            if let Err(why) = pair.step(&mut world.net, queue, counts) {
                pair.die(why);
            }
            world.activity += u64::from(!pair.done.is_empty());
        }
        pair.done.pop_front()
    }

    fn pair_over(&mut self, pair: &SimSocket, receives: usize) {
        self.pairs.cut(pair);
        let index = self.pairs.at(pair).expect("a pair");
        for completion in self.pairs.pairs.swap_remove(index).done {
            if let Completion::Sent { buf, .. } | Completion::Frame { buf, .. } = completion {
                self.pool.give(buf);
            }
        }
        self.pairs.spare += receives;
        if !self.pairs.pairs.iter().any(|it| it.receives == Receives::Frames && !it.dead) {
            self.pairs.queue.drain(..).for_each(|buf| self.pool.give(buf));
            self.pairs.spare = 0;
        }
    }

    fn pair_counts(&self, _: &SimSocket) -> PairCounts {
        self.pairs.counts
    }
}
