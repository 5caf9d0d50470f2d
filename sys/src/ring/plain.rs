//! The ring without io_uring.
//!
//! What it is for: the same door on kernels and in containers that forbid io_uring.
//! In and out: see `ring`. Sockets are tried at once and then by `ppoll(2)`; disk operations are tried at once where
//! they cannot block (page cache by RWF_NOWAIT, tmpfs), and go to two helper threads otherwise.
//! Invariants: an operation owns its memory wherever it is: in the list of waiting sockets, in the disk queue, in a helper's
//! hands, or in the list of results. So nothing here is unsafe but the call of `ppoll`.
//! Absent on purpose: epoll (a worker has tens of rails, and the list changes with each operation).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::op::{Done, Op, RWF_DONTCACHE, check_range, pipe_slack};
use crate::host::event::Waker;
use crate::mem::{Mem, Pool};
use crate::net::pipe::{Lending, Pipe};
use crate::net::sock::wake_for;

/// Disk helper threads per driver. Two keep a disk busy while one of them hands over; more would only queue in the kernel.
const DISK_THREADS: usize = 2;

const UNCACHED: ReadWriteFlags = ReadWriteFlags::from_bits_retain(RWF_DONTCACHE);

/// An operation on a socket that could not be finished at once.
#[derive(Debug)]
struct Waiting {
    token: u64,
    socket: Arc<OwnedFd>,
    mem: Mem,
    at: usize,
    len: usize,
    moved: usize,
    way: Way,
    /// Of a `Lend`.
    lending: Option<Lending>,
    /// Set once, by the attempt that ended it.
    result: Option<io::Result<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Send,
    Lend,
    RecvSome,
    RecvAll,
    /// Moves nothing: done when `poll` says so.
    Readable,
}

/// An operation on a file, on its way to or from a helper thread.
#[derive(Debug)]
struct DiskJob {
    token: u64,
    file: Arc<File>,
    offset: u64,
    mem: Mem,
    at: usize,
    len: usize,
    moved: usize,
    write: bool,
    uncached: bool,
}

impl Waiting {
    /// Moves what can be moved without blocking, whatever mode the socket is in.
    fn attempt(&mut self) {
        if let Some(lending) = &mut self.lending {
            self.result = lending.step(self.socket.as_fd(), &self.mem.bytes()[self.at..self.at + self.len]);
            return;
        }
        self.result = loop {
            let range = self.at + self.moved..self.at + self.len;
            let step = if self.way == Way::Send {
                send(&*self.socket, &self.mem.bytes()[range], SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
            } else {
                recv(&*self.socket, &mut self.mem.bytes_mut()[range], RecvFlags::DONTWAIT).map(|(bytes, _)| bytes)
            };
            match step {
                Ok(0) => break Some(Ok(self.moved)),
                Ok(bytes) => {
                    self.moved += bytes;
                    if self.moved == self.len || self.way == Way::RecvSome {
                        break Some(Ok(self.moved));
                    }
                }
                Err(Errno::AGAIN) => {
                    match self.way {
                        Way::Send | Way::Lend | Way::Readable => {}
                        Way::RecvSome => wake_for(&*self.socket, 1),
                        Way::RecvAll => wake_for(&*self.socket, self.len - self.moved),
                    }
                    break None;
                }
                Err(Errno::INTR) => {}
                // As io_uring does: what was moved counts, the next operation meets the error.
                Err(_) if self.moved > 0 => break Some(Ok(self.moved)),
                Err(error) => break Some(Err(error.into())),
            }
        };
    }
}

/// What worker and helper threads share.
#[derive(Debug)]
struct Disk {
    state: Mutex<DiskState>,
    work: Condvar,
    waker: Waker,
}

#[derive(Debug)]
struct DiskState {
    todo: VecDeque<DiskJob>,
    done: VecDeque<Done>,
    stop: bool,
}

impl Disk {
    fn state(&self) -> MutexGuard<'_, DiskState> {
        // A helper cannot panic while it holds the lock; if one ever did, the queue is still a queue.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A helper thread's life.
    fn serve(&self) {
        let mut state = self.state();
        loop {
            if state.stop {
                return;
            }
            let Some(job) = state.todo.pop_front() else {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let done = job.run();
            state = self.state();
            state.done.push_back(done);
            self.waker.wake();
        }
    }
}

impl DiskJob {
    /// Runs to the end, however long the disk takes.
    fn run(mut self) -> Done {
        let result = loop {
            let (at, end) = (self.at + self.moved, self.at + self.len);
            let offset = self.offset + self.moved as u64;
            let step = match (self.write, self.uncached) {
                (true, false) => self.file.write_at(&self.mem.bytes()[at..end], offset),
                (false, false) => self.file.read_at(&mut self.mem.bytes_mut()[at..end], offset),
                (true, true) => {
                    let slices = [IoSlice::new(&self.mem.bytes()[at..end])];
                    pwritev2(&*self.file, &slices, offset, UNCACHED).map_err(io::Error::from)
                }
                (false, true) => {
                    let mut slices = [IoSliceMut::new(&mut self.mem.bytes_mut()[at..end])];
                    preadv2(&*self.file, &mut slices, offset, UNCACHED).map_err(io::Error::from)
                }
            };
            match step {
                Ok(0) => break Ok(self.moved),
                Ok(bytes) => {
                    self.moved += bytes;
                    if self.moved == self.len {
                        break Ok(self.moved);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // As io_uring does: what was moved counts, the next operation meets the error.
                Err(_) if self.moved > 0 => break Ok(self.moved),
                Err(error) => break Err(error),
            }
        };
        Done { token: self.token, result, mem: self.mem }
    }

    /// Reads what the page cache has; says whether that was all.
    fn read_cached(&mut self) -> Result<bool, Errno> {
        let range = self.at + self.moved..self.at + self.len;
        let mut slices = [IoSliceMut::new(&mut self.mem.bytes_mut()[range])];
        let bytes = preadv2(&*self.file, &mut slices, self.offset + self.moved as u64, ReadWriteFlags::NOWAIT)?;
        self.moved += bytes;
        Ok(self.moved == self.len || bytes == 0)
    }
}

/// A ring of plain system calls.
pub struct Plain {
    waiting: Vec<Waiting>,
    ready: VecDeque<Done>,
    polled: Vec<libc::pollfd>,
    /// Empty ones, for the next `Lend`.
    pipes: Vec<Pipe>,
    disk: Arc<Disk>,
    on_disk: usize,
    /// As with io_uring: a driver stays where it was made.
    _not_send: PhantomData<*const ()>,
}

impl Plain {
    pub(crate) fn new(pool: &Pool) -> io::Result<Plain> {
        let depth = (pool.count() * 2).max(64);
        let disk = Arc::new(Disk {
            state: Mutex::new(DiskState {
                todo: VecDeque::with_capacity(depth),
                done: VecDeque::with_capacity(depth),
                stop: false,
            }),
            work: Condvar::new(),
            waker: Waker::new(false)?,
        });
        // Made first, so that its drop stops the first thread when the second cannot be started.
        let plain = Plain {
            waiting: Vec::with_capacity(depth),
            ready: VecDeque::with_capacity(depth),
            polled: Vec::with_capacity(depth + 1),
            pipes: Vec::new(),
            disk: Arc::clone(&disk),
            on_disk: 0,
            _not_send: PhantomData,
        };
        for number in 0..DISK_THREADS {
            let disk = Arc::clone(&disk);
            std::thread::Builder::new().name(format!("disk-{number}")).spawn(move || disk.serve())?;
        }
        Ok(plain)
    }

    pub(crate) fn waker(&self) -> Waker {
        self.disk.waker.clone()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.waiting.len() + self.ready.len() + self.on_disk
    }

    pub(crate) fn submit(&mut self, token: u64, op: Op) {
        match op {
            Op::Read { file, offset, mem, at, len, uncached } => {
                check_range(mem.bytes().len(), at, len);
                self.disk(DiskJob { token, file, offset, mem, at, len, moved: 0, write: false, uncached });
            }
            Op::Write { file, offset, mem, at, len, uncached } => {
                check_range(mem.bytes().len(), at, len);
                self.disk(DiskJob { token, file, offset, mem, at, len, moved: 0, write: true, uncached });
            }
            Op::Send { socket, mem, at, len } => {
                check_range(mem.bytes().len(), at, len);
                self.socket(Waiting {
                    token,
                    socket,
                    mem,
                    at,
                    len,
                    moved: 0,
                    way: Way::Send,
                    lending: None,
                    result: None,
                });
            }
            Op::Lend { socket, mem, at, len, tail } => {
                check_range(mem.bytes().len(), at, len);
                let room = len.max(tail.as_ref().map_or(0, |tail| tail.bytes)) + pipe_slack();
                let pipe = self.pipes.pop().map_or_else(|| Pipe::with_room(room), Ok);
                // Without a pipe it is a plain send: slower, and right.
                let (way, lending) = match (pipe, tail) {
                    (Ok(pipe), Some(tail)) => (Way::Lend, Some(Lending::with_tail(pipe, tail))),
                    (Ok(pipe), None) => (Way::Lend, Some(Lending::new(pipe))),
                    (Err(_), None) => (Way::Send, None),
                    (Err(_), Some(_)) => {
                        let result = Err(io::ErrorKind::Unsupported.into());
                        return self.ready.push_back(Done { token, result, mem });
                    }
                };
                self.socket(Waiting { token, socket, mem, at, len, moved: 0, way, lending, result: None });
            }
            Op::Recv { socket, mem, at, len, all } => {
                check_range(mem.bytes().len(), at, len);
                let way = if all { Way::RecvAll } else { Way::RecvSome };
                self.socket(Waiting { token, socket, mem, at, len, moved: 0, way, lending: None, result: None });
            }
            // Not tried: whoever asks has just found the socket empty.
            Op::Readable { socket } => {
                let mem = Mem::Small(Box::default());
                self.waiting.push(Waiting {
                    token,
                    socket,
                    mem,
                    at: 0,
                    len: 0,
                    moved: 0,
                    way: Way::Readable,
                    lending: None,
                    result: None,
                });
            }
        }
    }

    fn socket(&mut self, mut op: Waiting) {
        op.attempt();
        match op.result {
            Some(result) => {
                self.pipes.extend(op.lending.and_then(Lending::pipe));
                self.ready.push_back(Done { token: op.token, result, mem: op.mem });
            }
            None => self.waiting.push(op),
        }
    }

    fn disk(&mut self, mut job: DiskJob) {
        // tmpfs has no disk to wait for, and knows no RWF_NOWAIT on most kernels.
        let inline = if job.write {
            is_tmpfs(&job.file)
        } else {
            match job.read_cached() {
                Ok(true) => {
                    self.ready.push_back(Done { token: job.token, result: Ok(job.moved), mem: job.mem });
                    return;
                }
                Ok(false) | Err(Errno::AGAIN) => false,
                Err(_) => is_tmpfs(&job.file),
            }
        };
        if inline {
            self.ready.push_back(job.run());
            return;
        }
        self.on_disk += 1;
        self.disk.state().todo.push_back(job);
        self.disk.work.notify_one();
    }

    /// Takes what the helper threads have finished.
    fn collect(&mut self) {
        if self.on_disk > 0 {
            let mut state = self.disk.state();
            self.on_disk -= state.done.len();
            self.ready.append(&mut state.done);
        }
    }

    pub(crate) fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.collect();
        if !self.ready.is_empty() && self.waiting.is_empty() {
            // Nothing to ask the kernel; a wake that is pending stays so, and ends the next wait.
            done.extend(self.ready.drain(..));
            return Ok(());
        }
        loop {
            // Sockets are looked at even when there are results: cached reads must not starve them.
            let left = match (self.ready.is_empty(), timeout, end) {
                (false, _, _) => Some(Duration::ZERO),
                (true, Some(_), Some(end)) => Some(end.saturating_duration_since(Instant::now())),
                (true, _, _) => None,
            };
            let woken = self.poll_once(left)?;
            self.collect();
            let over = end.is_some_and(|end| Instant::now() >= end);
            if woken || over || !self.ready.is_empty() {
                done.extend(self.ready.drain(..));
                return Ok(());
            }
        }
    }

    /// Sleeps in `ppoll(2)` and moves what has become possible. True: woken, or interrupted by a signal.
    fn poll_once(&mut self, left: Option<Duration>) -> io::Result<bool> {
        self.polled.clear();
        self.polled.push(interest(self.disk.waker.as_fd().as_raw_fd(), libc::POLLIN));
        for op in &self.waiting {
            let events = if matches!(op.way, Way::Send | Way::Lend) { libc::POLLOUT } else { libc::POLLIN };
            self.polled.push(interest(op.socket.as_raw_fd(), events));
        }
        // ppoll and not poll: the bursts of a paced rail are due by the microsecond.
        let limit = left.map(|left| libc::timespec {
            tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: left.subsec_nanos() as libc::c_long,
        });
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (entries, count) = (self.polled.as_mut_ptr(), self.polled.len() as libc::nfds_t);
        // SAFETY: `polled` holds `count` initialised entries, and nobody else has it during the call; `limit` is null or points into
        // the local above; the descriptors are kept open by `disk` and `waiting`.
        let count = unsafe { libc::ppoll(entries, count, limit, std::ptr::null()) };
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(true) } else { Err(error) };
        }
        if count == 0 {
            return Ok(false);
        }
        let woken = self.polled[0].revents != 0;
        if woken {
            self.disk.waker.drain();
        }
        // Runs from the front and keeps the order of what stays: operations of one direction must not overtake.
        let (polled, ready, pipes) = (&self.polled, &mut self.ready, &mut self.pipes);
        let mut number = 0;
        let finished = self.waiting.extract_if(.., |op| {
            number += 1;
            if polled[number].revents != 0 {
                match op.way {
                    Way::Readable => op.result = Some(Ok(0)),
                    Way::Send | Way::Lend | Way::RecvSome | Way::RecvAll => op.attempt(),
                }
            }
            op.result.is_some()
        });
        for op in finished {
            let result = op.result.expect("extracted because it has one");
            pipes.extend(op.lending.and_then(Lending::pipe));
            ready.push_back(Done { token: op.token, result, mem: op.mem });
        }
        Ok(woken)
    }
}

impl Drop for Plain {
    /// Gives up what has not begun and leaves the helper threads to end by themselves: each owns the memory and the file of
    /// the one operation it is in, and a dead disk must not hold up the exit of the process.
    fn drop(&mut self) {
        let mut state = self.disk.state();
        state.stop = true;
        state.todo.clear();
        self.disk.work.notify_all();
    }
}

impl std::fmt::Debug for Plain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plain").field("in_flight", &self.in_flight()).finish()
    }
}

fn interest(fd: std::os::fd::RawFd, events: i16) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

fn is_tmpfs(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|facts| facts.f_type == libc::TMPFS_MAGIC)
}
