//! The real world: sys behind `Platform`.
//!
//! For: workers on Linux.
//! In and out: ops to the ring (io_uring or plain calls), completions back.
//! Invariants: made on the thread that uses it.
//! Absent on purpose: decisions (the reason for the driver comes from sys as text).

pub mod ids; // users and groups by name
mod meta; // owner, attributes, mode, time: read and set
mod old; // what stands at the destination from before
pub mod scan; // walking a source
pub mod sink; // names at the destination
pub mod source; // names at the source

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sys::mem::Pool;
use sys::ring::{self, Driver};

use crate::packets::HEAD_BYTES;
use crate::platform::{Arrived, Done, Op, Platform, Splicer};
use crate::sink::volumes::Volumes;

/// How files are opened for data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direct {
    /// O_DIRECT for large files on block file systems; at the source only when the page cache does not hold the file.
    Auto,
    /// Always, where the file system lets it.
    On,
    /// Never.
    Off,
}

/// Files from this length on are worth O_DIRECT: below, the page cache absorbs them anyway.
pub const DIRECT_FILE_BYTES_MIN: u64 = 16 << 20;

/// An open file, and whether its calls are made at once.
#[derive(Debug, Clone)]
pub struct Handle {
    file: Arc<File>,
    at_once: bool,
    turns: Option<Turns>,
}

/// Whose turn it is to write a file that lives in memory. The kernel lets one thread at a time write such a file and has the others
/// spin on a core that the writer's peer needs: they sleep here instead. tmpfs to tmpfs, two workers, one file, in clear: 1.37 instead of
/// 1.71 CPU s/GB and 10.6 instead of 8.8 Gb/s (medians of 6 alternating rounds, 2 cores, Linux 6.18, 2026-11).
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns {
    locks: Arc<[Mutex<()>; TURNS]>,
    at: usize,
}

/// Files that can be written at the same time without ever sharing a lock; more of them share by chance.
const TURNS: usize = 16;

impl Turns {
    /// The turns of one file among a job's.
    fn of(&self, entry: u64) -> Turns {
        Turns { locks: self.locks.clone(), at: (entry % TURNS as u64) as usize }
    }
}

impl Handle {
    /// Calls of files that live in memory never wait: they are made at once, on the worker's thread.
    #[must_use]
    pub fn new(file: File) -> Handle {
        let at_once = sys::fs::is_memory_file_system(&file);
        Handle { file: Arc::new(file), at_once, turns: None }
    }

    /// The same, for a file that several workers of this process write.
    fn taking_turns(file: File, turns: Turns) -> Handle {
        Handle { turns: Some(turns), ..Handle::new(file) }
    }
}

/// The volumes that a job reads.
pub type Sources = crate::source::volumes::Volumes<source::LinuxSource>;
/// The volumes that a job writes.
pub type Sinks = Volumes<sink::LinuxSink>;

/// One worker's world.
#[derive(Debug)]
pub struct Linux {
    driver: Driver,
    pool: Pool,
    done: Vec<ring::Done>,
}

impl Linux {
    /// A world with `bufs` bufs. Returns the reason for the driver chosen, as the user reads it.
    pub fn new(bufs: usize, chunk_bytes: usize, want: Option<ring::Kind>) -> io::Result<(Linux, String)> {
        let pool = Pool::new(bufs, chunk_bytes)?;
        let (driver, reason) = Driver::choose(&pool, want)?;
        Ok((Linux { driver, pool, done: Vec::with_capacity(256) }, reason))
    }

    /// Wakes this world's `wait` from another thread.
    #[must_use]
    pub fn waker(&self) -> ring::Waker {
        self.driver.waker()
    }
}

impl Platform for Linux {
    type File = Handle;
    type Socket = Arc<OwnedFd>;
    type Source = Sources;
    type Sink = Sinks;

    fn now_ns(&self) -> u64 {
        sys::clock::now_ns()
    }

    fn busy_ns(&self) -> u64 {
        sys::clock::thread_cpu_ns()
    }

    fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    fn submit(&mut self, token: u64, op: Op<Self::File, Self::Socket>) {
        self.driver.submit(
            token,
            match op {
                Op::Read { file, offset, mem, at, len } => ring::Op::Read { file: file.file, offset, mem, at, len },
                Op::Write { file, offset, mem, at, len } => ring::Op::Write { file: file.file, offset, mem, at, len },
                Op::Send { socket, mem, at, len, lend: true } => ring::Op::Lend { socket, mem, at, len },
                Op::Send { socket, mem, at, len, lend: false } => ring::Op::Send { socket, mem, at, len },
                Op::Recv { socket, mem, at, len } => ring::Op::Recv { socket, mem, at, len, all: true },
                Op::Readable { socket } => ring::Op::Readable { socket },
            },
        );
    }

    fn flush(&mut self) {
        self.driver.flush().expect("a ring that was set up takes submissions");
    }

    fn wait(&mut self, timeout_ns: u64, done: &mut Vec<Done>) {
        let timeout = Some(Duration::from_nanos(timeout_ns));
        self.driver.wait(timeout, &mut self.done).expect("a ring that was set up can be waited for");
        done.extend(self.done.drain(..).map(|it| Done { token: it.token, result: it.result, mem: it.mem }));
    }

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

    fn is_at_once(&self, file: &Handle) -> bool {
        file.at_once
    }

    fn read_at_once(&self, file: &Handle, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        file.file.read_at(into, offset)
    }

    fn write_at_once(&self, file: &Handle, offset: u64, from: &[u8]) -> io::Result<usize> {
        // Nothing is guarded but time, so a poisoned lock is as good as any.
        let _turn = file.turns.as_ref().map(|turns| turns.locks[turns.at].lock());
        file.file.write_at(from, offset)
    }

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
        // A socket that is not connected any more needs no cutting.
        let _ = sys::sock::shutdown(socket);
    }
}

/// Name of a file's part, or of its journal, beside the final name: `.longhaul-<16 hex of BLAKE3(name)>.part`.
#[must_use]
pub fn beside(path: &[u8], ending: &str) -> Vec<u8> {
    let split = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let hash = blake3::hash(&path[split..]).to_hex();
    let mut beside = path[..split].to_vec();
    beside.extend_from_slice(format!("{PREFIX}{}.{ending}", &hash.as_str()[..16]).as_bytes());
    beside
}

/// What tells a volume of a set from an empty folder; see `app/src/job/volumes.rs`.
pub const VOLUME_MARK: &[u8] = b".longhaul-volume";

/// How our own files in a destination begin.
pub const PREFIX: &str = ".longhaul-";

/// Is this one of ours?
#[must_use]
pub fn is_ours(name: &[u8]) -> bool {
    name == VOLUME_MARK
        || name.starts_with(PREFIX.as_bytes()) && (name.ends_with(b".part") || name.ends_with(b".journal"))
}
