//! The real world: sys behind `Platform`.
//!
//! For: workers on Linux.
//! In and out: ops to the ring (io_uring or plain calls), completions back.
//! Invariants: made on the thread that uses it.
//! Absent on purpose: decisions (the reason for the driver comes from sys as text), names on disk (tree).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use proto::storage::IoMode;
use sys::mem::{Buf, Mem, Pool};
use sys::rdma::{Adapter, Connection};
use sys::ring::{self, Driver, Tail};

use crate::platform::{
    Arrived, Clock, Completion, Disk, Done, MESSAGE_HEAD_BYTES, Op, PacketIo, PairCounts, PairIo, Platform, Receives,
    Splicer, StreamIo, Word,
};
use crate::seal::packet::HEAD_BYTES;
use crate::tree::handle::Handle;
use crate::tree::{Sinks, Sources};

/// One worker's world.
#[derive(Debug)]
pub struct Linux {
    driver: Driver,
    pool: Pool,
    done: Vec<ring::Done>,
    /// Files of the ops in flight, by token.
    files: Vec<Option<Moving>>,
    direct_bytes: u64,
    node: Option<u16>,
    /// Queue pairs by what carries them, once there was one: the pool stays registered from then on.
    devices: Vec<Device>,
}

/// What carries queue pairs.
#[derive(Debug)]
struct Device {
    adapter: Adapter,
    /// Receives of its shared queue that were added for pairs which are over.
    spare: usize,
}

/// An op on a file, in flight.
#[derive(Debug)]
struct Moving {
    file: Handle,
    mode: IoMode,
    offset: u64,
    reads: bool,
}

impl Linux {
    /// A world with `bufs` bufs. Returns the reason for the driver chosen, as the user reads it.
    pub fn new(bufs: usize, chunk_bytes: usize, want: Option<ring::Kind>) -> io::Result<(Linux, String)> {
        Linux::over(Pool::new(bufs, chunk_bytes)?, want)
    }

    /// The same with bufs that are there already.
    pub fn over(pool: Pool, want: Option<ring::Kind>) -> io::Result<(Linux, String)> {
        let (driver, reason) = Driver::choose(&pool, want)?;
        Ok((
            Linux {
                driver,
                pool,
                done: Vec::with_capacity(256),
                files: Vec::with_capacity(256),
                direct_bytes: 0,
                node: None,
                devices: Vec::new(),
            },
            reason,
        ))
    }

    /// The same on a thread whose cores and memory are of this node.
    #[must_use]
    pub fn held_on(self, node: Option<u16>) -> Linux {
        Linux { node, ..self }
    }

    fn moves(&mut self, token: u64, moving: Moving) {
        let index = token as usize;
        if self.files.len() <= index {
            // Tokens are numbers of slots, which are used again: this grows with the most ops ever in flight.
            self.files.resize_with(index + 1, || None);
        }
        self.files[index] = Some(moving);
    }

    /// Past the page cache the device reads and writes the buf itself: the kernel looks its pages up once, not for each op. Measured on
    /// ext4, docs/design/006; through the cache it makes no difference, and pages of small jobs are not locked.
    fn fix(&mut self, file: &Handle, mode: IoMode, mem: &Mem) {
        if mode == IoMode::Direct
            && let Mem::Buf(buf) = mem
            && let Err(error) = self.driver.fix(buf)
        {
            file.by.refused.put_fixed(&error);
        }
    }

    /// A completion as the worker sees it: what a mode was refused is made again.
    fn told(&mut self, done: ring::Done) -> Done {
        let mut result = done.result;
        if let Some(it) = self.files.get_mut(done.token as usize).and_then(Option::take) {
            if let (IoMode::Direct, Ok(bytes)) = (it.mode, &result) {
                self.direct_bytes += *bytes as u64;
            }
            match &result {
                Ok(_) if it.reads => it.file.on_read(it.offset),
                Err(error) if it.file.gives_way(it.mode, error) => result = Err(io::ErrorKind::WouldBlock.into()),
                _ => {}
            }
        }
        Done { token: done.token, result, mem: done.mem }
    }

    /// Wakes this world's `wait` from another thread.
    #[must_use]
    pub fn waker(&self) -> ring::Waker {
        self.driver.waker()
    }
}

impl Clock for Linux {
    fn now_ns(&self) -> u64 {
        sys::clock::now_ns()
    }

    fn busy_ns(&self) -> u64 {
        sys::clock::thread_cpu_ns()
    }

    fn shared_ahead_ns(&self) -> u64 {
        let (seconds, nanos) = sys::clock::unix_time();
        let utc = u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(u64::from(nanos));
        utc.saturating_sub(self.now_ns())
    }
}

impl Disk for Linux {
    type File = Handle;

    fn is_at_once(&self, file: &Handle) -> bool {
        file.is_at_once()
    }

    fn reads_ahead(&self, file: &Handle) -> usize {
        file.depth
    }

    fn read_at_once(&self, file: &Handle, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        file.read_at_once(into, offset)
    }

    fn write_at_once(&self, file: &Handle, offset: u64, from: &[u8]) -> io::Result<usize> {
        file.write_at_once(from, offset)
    }

    fn try_write_at_once(&self, file: &Handle, offset: u64, from: &[u8]) -> Option<io::Result<usize>> {
        file.try_write_at_once(from, offset)
    }

    fn direct_bytes(&self) -> u64 {
        self.direct_bytes
    }
}

impl StreamIo for Linux {
    type Socket = Arc<OwnedFd>;

    fn lend_ready(&mut self, socket: &Self::Socket) -> bool {
        sys::sock::lend_ready(socket).unwrap_or(false)
    }

    fn unacknowledged(&self, socket: &Self::Socket) -> u64 {
        // Whoever cannot say has everything outstanding.
        sys::sock::unacknowledged(socket).unwrap_or(u64::MAX)
    }

    fn abort(&mut self, socket: &Self::Socket) {
        // One that is closed already holds nothing.
        let _ = sys::sock::abort(socket);
    }

    fn cut(&mut self, socket: &Self::Socket) {
        if let Some(device) = self.devices.iter_mut().find(|it| it.adapter.has(socket)) {
            return device.adapter.cut(socket);
        }
        // A socket that is not connected any more needs no cutting.
        let _ = sys::sock::shutdown(socket);
    }
}

impl PacketIo for Linux {
    fn send_burst(
        &mut self,
        socket: &Self::Socket,
        heads: &[[u8; HEAD_BYTES]],
        payload: &[u8],
        segment: usize,
    ) -> io::Result<usize> {
        sys::udp::send_burst(socket, heads, payload, segment)
    }

    fn send_sealed(&mut self, socket: &Self::Socket, bytes: &[u8], segment: usize) -> io::Result<usize> {
        sys::udp::send_sealed(socket, bytes, segment)
    }

    fn burst_slots(&mut self, socket: &Self::Socket, bytes: usize) -> Option<Splicer> {
        // Before Linux 6.5, or without pipes: the kernel copies, as ever.
        Splicer::for_answered(Arc::clone(socket), bytes).ok()
    }

    fn recv_burst(&mut self, socket: &Self::Socket, into: &mut [u8]) -> io::Result<Arrived> {
        sys::udp::recv_burst(socket, into)
    }
}

impl Linux {
    fn device(&mut self, pair: &OwnedFd) -> &mut Device {
        self.devices.iter_mut().find(|it| it.adapter.has(pair)).expect("a pair that came up here")
    }
}

impl PairIo for Linux {
    type Connection = Connection;

    fn pair_up(&mut self, connection: Connection, receives: Receives) -> io::Result<Self::Socket> {
        if let Some(device) = self.devices.iter_mut().find(|it| it.adapter.takes(&connection)) {
            return device.adapter.attach(connection, receives);
        }
        let mut adapter = Adapter::new(&connection, &self.pool, MESSAGE_HEAD_BYTES)?;
        let pair = adapter.attach(connection, receives);
        self.devices.push(Device { adapter, spare: 0 });
        pair
    }

    fn post_send(&mut self, pair: &Self::Socket, token: u64, buf: Buf, at: usize, len: usize) {
        self.device(pair).adapter.post_send(pair, token, buf, at, len);
    }

    fn post_word(&mut self, pair: &Self::Socket, word: Word) {
        self.device(pair).adapter.post_word(pair, word);
    }

    fn add_receive(&mut self, pair: &Self::Socket, least: usize) -> bool {
        let Some(device) = self.devices.iter_mut().find(|it| it.adapter.has(pair)) else { return false };
        if device.spare > 0 {
            device.spare -= 1;
            return true;
        }
        let Some(buf) = Some(&mut self.pool).filter(|pool| pool.free() > least).and_then(Pool::take) else {
            return false;
        };
        device.adapter.post_receive(buf);
        true
    }

    fn poll_pair(&mut self, pair: &Self::Socket) -> Option<Completion> {
        self.device(pair).adapter.poll(pair)
    }

    fn pair_over(&mut self, pair: &Self::Socket, receives: usize) {
        let Some(Device { adapter, spare }) = self.devices.iter_mut().find(|it| it.adapter.has(pair)) else { return };
        let pool = &mut self.pool;
        let taken = adapter.detach(pair, |buf| pool.give(buf));
        *spare += receives.saturating_sub(taken);
        while let Some(buf) = adapter.take_receive() {
            pool.give(buf);
            *spare = 0;
        }
    }

    fn pair_counts(&self, pair: &Self::Socket) -> PairCounts {
        let device = self.devices.iter().find(|it| it.adapter.has(pair));
        device.map_or(PairCounts::default(), |it| it.adapter.counts())
    }
}

impl Platform for Linux {
    type Source = Sources;

    type Sink = Sinks;

    fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    fn submit(&mut self, token: u64, op: Op<Self::File, Self::Socket>) {
        let op = match op {
            Op::Read { file, offset, mem, at, len } => {
                let mode = file.mode();
                let (uncached, open, limit) = (mode == IoMode::Dontcache, Arc::clone(&file.file), file.io_bytes);
                self.fix(&file, mode, &mem);
                self.moves(token, Moving { file, mode, offset, reads: true });
                let len = limit.min(len);
                ring::Op::Read { file: open, offset, mem, at, len, uncached }
            }
            Op::Write { file, offset, mem, at, len } => {
                let mode = file.mode();
                let (uncached, open, limit) = (mode == IoMode::Dontcache, Arc::clone(&file.file), file.io_bytes);
                file.on_write(mode, len);
                self.fix(&file, mode, &mem);
                self.moves(token, Moving { file, mode, offset, reads: false });
                let len = limit.min(len);
                ring::Op::Write { file: open, offset, mem, at, len, uncached }
            }
            Op::Send { socket, mem, at, len, lend: true } => ring::Op::Lend { socket, mem, at, len, tail: None },
            Op::SendFile { socket, mem, at, len, file, offset, bytes } => {
                let tail = Some(Tail { file: Arc::clone(&file.file), offset, bytes });
                ring::Op::Lend { socket, mem, at, len, tail }
            }
            Op::Send { socket, mem, at, len, lend: false } => ring::Op::Send { socket, mem, at, len },
            Op::Recv { socket, mem, at, len } => ring::Op::Recv { socket, mem, at, len, all: true },
            Op::Readable { socket } => ring::Op::Readable { socket },
        };
        self.driver.submit(token, op);
    }

    fn flush(&mut self) {
        self.driver.flush().expect("a ring that was set up takes submissions");
    }

    fn wait(&mut self, timeout_ns: u64, done: &mut Vec<Done>) {
        let timeout = Some(Duration::from_nanos(timeout_ns));
        self.driver.wait(timeout, &mut self.done).expect("a ring that was set up can be waited for");
        let mut own = std::mem::take(&mut self.done);
        done.extend(own.drain(..).map(|it| self.told(it)));
        self.done = own;
    }

    fn node(&self) -> Option<u16> {
        self.node
    }
}
