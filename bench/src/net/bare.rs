//! The ceiling and the ring: bytes that nobody looks at.
//!
//! For: what the kernel's TCP gives on these cores, and what going through `sys::ring` by frames costs of it.
//! In and out: a connected socket and a time → what this end moved and spent.
//! Invariants: the same socket, memory and bytes per chunk as on a rail; the receiver's clock starts with the first bytes.
//! Absent on purpose: digests and seals (rail.rs).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::wire::chunk::{CHUNK_BYTES_MIN, SEALED_HEADER_BYTES};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use sys::clock;
use sys::mem::{Buf, HEADROOM, Mem, Pool};
use sys::ring::{self, Done, Op};

use super::way::{Driver, Side};

/// No bytes for so long is an error: bench ends, it does not hang.
pub const STALL: Duration = Duration::from_secs(10);
/// Bufs of an end that only moves: one in the kernel, one in hand.
const BUFS: usize = 2;

/// The clocks of one end.
#[derive(Debug)]
pub struct Watch {
    start_ns: u64,
    cpu_ns: u64,
}

impl Watch {
    /// Starts now, on this thread.
    #[must_use]
    pub fn start() -> Self {
        Watch { start_ns: clock::now_ns(), cpu_ns: clock::thread_cpu_ns() }
    }

    /// What was spent since, on this thread.
    #[must_use]
    pub fn side(&self, bytes: u64) -> Side {
        let (ns, cpu_ns) = (clock::now_ns() - self.start_ns, clock::thread_cpu_ns() - self.cpu_ns);
        Side { bytes, ns, cpu_ns, ..Side::default() }
    }

    /// The same, for bytes of which the last came at `last_ns`: what this end waited afterwards is nobody's rate.
    #[must_use]
    pub fn side_until(&self, bytes: u64, last_ns: u64) -> Side {
        Side { ns: last_ns.saturating_sub(self.start_ns), ..self.side(bytes) }
    }
}

/// A touched buf: the first page fault is nobody's rate.
fn touched(pool: &mut Pool) -> Buf {
    let mut buf = pool.take().expect("the pool was made with enough bufs");
    buf.whole_mut().fill(0x5a);
    buf
}

/// One send(2) after another until `end`, then the end of the stream.
///
/// # Errors
/// No memory, or the connection broke.
pub fn send_bare(socket: &OwnedFd, block_bytes: usize, ready: impl FnOnce(), time: Duration) -> io::Result<Side> {
    let mut pool = Pool::new(1, block_bytes)?;
    let buf = touched(&mut pool);
    ready();
    let (watch, end) = (Watch::start(), Instant::now() + time);
    let mut bytes = 0;
    while Instant::now() < end {
        let mut at = 0;
        while at < block_bytes {
            at += retried(|| send(socket, &buf.payload()[at..block_bytes], SendFlags::NOSIGNAL))?;
        }
        bytes += block_bytes as u64;
    }
    Ok(watch.side(bytes))
}

/// One recv(2) after another until the end of the stream.
///
/// # Errors
/// No memory, or the connection broke.
pub fn recv_bare(socket: &OwnedFd, block_bytes: usize, ready: impl FnOnce()) -> io::Result<Side> {
    let mut pool = Pool::new(1, block_bytes)?;
    let mut buf = touched(&mut pool);
    ready();
    let mut watch = None;
    let mut bytes = 0;
    loop {
        let into = &mut buf.payload_mut()[..block_bytes];
        let moved = retried(|| recv(socket, &mut *into, RecvFlags::empty()).map(|(moved, _)| moved))?;
        if moved == 0 {
            return Ok(watch.map_or_else(Side::default, |watch: Watch| watch.side(bytes)));
        }
        watch.get_or_insert_with(Watch::start);
        bytes += moved as u64;
    }
}

fn retried(mut call: impl FnMut() -> Result<usize, rustix::io::Errno>) -> io::Result<usize> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// A ring with its pool.
struct Ring {
    driver: ring::Driver,
    pool: Pool,
    done: Vec<Done>,
}

impl Ring {
    fn new(driver: Driver) -> io::Result<Ring> {
        let mut pool = Pool::new(BUFS, CHUNK_BYTES_MIN as usize)?;
        let bufs = [touched(&mut pool), touched(&mut pool)];
        bufs.into_iter().for_each(|buf| pool.give(buf));
        let (driver, _) = ring::Driver::choose(&pool, Some(driver.kind()))?;
        Ok(Ring { driver, pool, done: Vec::with_capacity(4) })
    }

    /// Submits and waits for the one completion, going on where it was short; says how many bytes were moved.
    fn run(&mut self, mut op: Op) -> io::Result<(usize, Mem)> {
        let (mut sum, whole) = (0, len_of(&op));
        loop {
            let again = remade(&op);
            self.driver.submit(0, op);
            while self.done.is_empty() {
                let from = Instant::now();
                self.driver.wait(Some(STALL), &mut self.done)?;
                if self.done.is_empty() && from.elapsed() >= STALL {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            let done = self.done.pop().expect("seen above");
            let moved = done.result?;
            sum += moved;
            if sum == whole || moved == 0 {
                return Ok((sum, done.mem));
            }
            op = again(done.mem, moved);
        }
    }
}

fn len_of(op: &Op) -> usize {
    match op {
        Op::Read { len, .. }
        | Op::Write { len, .. }
        | Op::Send { len, .. }
        | Op::Lend { len, .. }
        | Op::Recv { len, .. } => *len,
        Op::Readable { .. } => 0,
    }
}

/// How to ask for the rest of a socket operation.
fn remade(op: &Op) -> impl FnOnce(Mem, usize) -> Op + use<> {
    let (socket, at, len, sends) = match op {
        Op::Send { socket, at, len, .. } => (Arc::clone(socket), *at, *len, true),
        Op::Recv { socket, at, len, .. } => (Arc::clone(socket), *at, *len, false),
        Op::Read { .. } | Op::Write { .. } | Op::Lend { .. } | Op::Readable { .. } => unreachable!("only streams here"),
    };
    move |mem, moved| match sends {
        true => Op::Send { socket, mem, at: at + moved, len: len - moved },
        false => Op::Recv { socket, mem, at: at + moved, len: len - moved, all: true },
    }
}

/// Frames through the ring until `end`.
///
/// # Errors
/// No memory, no such engine, or the connection broke.
pub fn send_ring(socket: &Arc<OwnedFd>, driver: Driver, ready: impl FnOnce(), time: Duration) -> io::Result<Side> {
    let mut ring = Ring::new(driver)?;
    ready();
    let (watch, end) = (Watch::start(), Instant::now() + time);
    let (at, len) = (HEADROOM - SEALED_HEADER_BYTES, SEALED_HEADER_BYTES + CHUNK_BYTES_MIN as usize);
    let mut bytes = 0;
    while Instant::now() < end {
        let mem = Mem::Buf(ring.pool.take().expect("one is in use at a time"));
        let (_, mem) = ring.run(Op::Send { socket: Arc::clone(socket), mem, at, len })?;
        give(&mut ring.pool, mem);
        bytes += u64::from(CHUNK_BYTES_MIN);
    }
    Ok(watch.side(bytes))
}

/// Frames through the ring until the end of the stream: a header, then a chunk.
///
/// # Errors
/// No memory, no such engine, or the connection broke.
pub fn recv_ring(socket: &Arc<OwnedFd>, driver: Driver, ready: impl FnOnce()) -> io::Result<Side> {
    let mut ring = Ring::new(driver)?;
    let mut head = Some(vec![0; SEALED_HEADER_BYTES].into_boxed_slice());
    ready();
    let (mut watch, mut bytes) = (None, 0);
    loop {
        let mem = Mem::Small(head.take().expect("given back below"));
        let op = Op::Recv { socket: Arc::clone(socket), mem, at: 0, len: SEALED_HEADER_BYTES, all: true };
        let (moved, mem) = ring.run(op)?;
        if moved == 0 {
            return Ok(watch.map_or_else(Side::default, |watch: Watch| watch.side(bytes)));
        }
        watch.get_or_insert_with(Watch::start);
        if let Mem::Small(bytes) = mem {
            head = Some(bytes);
        }
        let mem = Mem::Buf(ring.pool.take().expect("one is in use at a time"));
        let len = CHUNK_BYTES_MIN as usize;
        let (moved, mem) = ring.run(Op::Recv { socket: Arc::clone(socket), mem, at: HEADROOM, len, all: true })?;
        give(&mut ring.pool, mem);
        bytes += moved as u64;
    }
}

fn give(pool: &mut Pool, mem: Mem) {
    if let Mem::Buf(buf) = mem {
        pool.give(buf);
    }
}
