//! The ring on io_uring.
//!
//! What it is for: the engine of choice where the kernel allows it: one system call hands in and reaps a whole batch.
//! In and out: see `ring`. User data of an entry is the number of its slot.
//! Invariants: **memory in flight is owned by its slot** from `submit` until the kernel's completion entry for that slot
//! has been read, and is leaked rather than freed where that entry never comes. Heap memory is held as a raw pointer
//! meanwhile, so that moving the slot does not claim unique access to what the kernel writes. The file or socket is kept
//! open by the slot too, because the kernel looks the number up only when it takes the entry.
//! Absent on purpose: linked operations, multishot, registered files, zero-copy sends (measured slower, see LIMITS).

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};

use super::op::{Done, Op, RWF_DONTCACHE, check_range, pipe_slack};
use crate::host::event::Waker;
use crate::mem::{Buf, Mapping, Mem, Pool};
use crate::net::pipe::{Lending, Pipe, Tail};
use crate::net::sock::wake_for;

/// User data of the entry that reads the waker's eventfd; no slot has this number.
const WAKE: u64 = u64::MAX;

/// So many registered buffers a ring may have (IORING_MAX_REG_BUFFERS, io_uring/rsrc.h), each of 1 GiB at most.
const FIXED_MAX: usize = 1 << 14;

/// How long a dropped ring waits for the kernel to let go of memory before it leaks it. A healthy disk answers in
/// milliseconds; a dead one must not hold up the exit of the process.
const DROP_WAIT: Duration = Duration::from_secs(2);

/// Memory while the kernel has it.
#[derive(Debug)]
enum Held {
    Buf(Buf),
    Small(NonNull<[u8]>),
}

impl Held {
    fn lend(mem: Mem) -> Held {
        match mem {
            Mem::Buf(buf) => Held::Buf(buf),
            Mem::Small(bytes) => Held::Small(NonNull::from(Box::leak(bytes))),
        }
    }

    fn give_back(self) -> Mem {
        match self {
            Held::Buf(buf) => Mem::Buf(buf),
            // SAFETY: the pointer came from `Box::leak` in `lend`, and `self` is consumed, so that the box is made once.
            Held::Small(bytes) => Mem::Small(unsafe { Box::from_raw(bytes.as_ptr()) }),
        }
    }

    fn start(&self) -> *mut u8 {
        match self {
            Held::Buf(buf) => buf.start(),
            Held::Small(bytes) => bytes.as_ptr().cast(),
        }
    }
}

/// Keeps the descriptor open while an entry may name it.
#[derive(Debug)]
enum Handle {
    File(Arc<File>),
    Socket(Arc<OwnedFd>),
}

impl Handle {
    fn number(&self) -> RawFd {
        match self {
            Handle::File(file) => file.as_raw_fd(),
            Handle::Socket(socket) => socket.as_raw_fd(),
        }
    }
}

#[derive(Debug)]
struct Slot {
    token: u64,
    held: Held,
    handle: Handle,
    /// A receive that is to be filled: what is missing.
    missing: Option<Missing>,
    /// The kernel's answer is a set of poll events, not a count of bytes.
    polls: bool,
    /// What to do when a socket that is non-blocking has to be waited for.
    again: Again,
    /// The entry in flight only waits for the socket.
    waiting: bool,
}

/// How an operation goes on when its socket is ready.
#[derive(Debug)]
enum Again {
    /// It is over with any answer.
    Never,
    /// The same entry once more; polled for these events first.
    Entry(squeue::Entry, u32),
    /// The next step of a lent send, made here: the ring's own splice would go through a thread of the kernel's.
    Lend { lending: Lending, at: usize, len: usize },
}

/// The part of a receive that has not come yet.
#[derive(Debug)]
struct Missing {
    /// Where the next byte goes.
    start: *mut u8,
    bytes: usize,
    /// Bytes that have come.
    moved: usize,
}

impl Slot {
    /// The entry that waits for the socket of an operation that may go on then.
    fn poll_entry(&self) -> squeue::Entry {
        let events = if let Again::Entry(_, events) = self.again { events } else { libc::POLLOUT as u32 };
        opcode::PollAdd::new(Fd(self.handle.number()), events).build()
    }

    /// Goes on with a lent send; see `Lending::step`.
    fn lend_step(&mut self) -> Option<io::Result<usize>> {
        let (Again::Lend { lending, at, len }, Held::Buf(buf), Handle::Socket(socket)) =
            (&mut self.again, &self.held, &self.handle)
        else {
            unreachable!("only bufs are lent, and only to sockets")
        };
        lending.step(socket.as_fd(), &buf.whole()[*at..*at + *len])
    }

    /// A lent send is over.
    fn lent(self, result: io::Result<usize>, pipes: &mut Vec<Pipe>) -> Done {
        if let Again::Lend { lending, .. } = self.again {
            pipes.extend(lending.pipe());
        }
        Done { token: self.token, result, mem: self.held.give_back() }
    }

    /// After `bytes` more bytes: the entry that asks for the rest, if some are missing.
    fn rest(&mut self, bytes: usize) -> Option<squeue::Entry> {
        let missing = self.missing.as_mut()?;
        missing.moved += bytes;
        missing.bytes -= bytes;
        missing.start = missing.start.wrapping_add(bytes);
        (bytes > 0 && missing.bytes > 0).then(|| recv_entry(&self.handle, missing))
    }
}

/// Asks for what is missing. The kernel would do so itself under MSG_WAITALL, but at every packet: it cannot be told to sleep
/// until much has come without sleeping for ever when only little is missing.
fn recv_entry(handle: &Handle, missing: &Missing) -> squeue::Entry {
    if let Handle::Socket(socket) = handle {
        wake_for(&**socket, missing.bytes);
    }
    opcode::Recv::new(Fd(handle.number()), missing.start, missing.bytes as u32).build()
}

/// Bufs that the kernel was told of for good, so that it need not look their pages up for each operation.
#[derive(Debug, Default)]
struct Fixed {
    /// By number: is it told? Empty: nobody asked yet.
    told: Vec<bool>,
    /// The kernel refused one: it is not asked again.
    closed: bool,
}

/// An io_uring with the memory that is in it.
pub struct Uring {
    ring: IoUring,
    pool: Arc<Mapping>,
    fixed: Fixed,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Entries the kernel's queue had no room for.
    backlog: VecDeque<squeue::Entry>,
    /// Done without the kernel's queue.
    ready: Vec<Done>,
    /// Empty ones, for the next `Lend`.
    pipes: Vec<Pipe>,
    waker: Waker,
    /// Where the kernel puts the eventfd's count; leaked with the ring if the read never ends.
    wake_count: NonNull<u64>,
    wake_armed: bool,
    /// A ring is driven by the thread that made it.
    _not_send: PhantomData<*const ()>,
}

impl Uring {
    /// Opens a ring for so many operations as the pool has bufs, and more. The text names its mode.
    pub(crate) fn new(pool: &Pool) -> io::Result<(Uring, String)> {
        // A buf is in one operation at a time; the rest of the room is for heap memory.
        let depth = (pool.count() * 2).next_power_of_two().clamp(64, 4096);
        let (ring, mode) = open(depth as u32)?;
        check_features(&ring)?;
        keep_to_granted_cores(&ring);
        // Saves looking the ring's descriptor up at each call; kernels before 5.18 do without.
        let _ = ring.submitter().register_ring_fd();
        let uring = Uring {
            ring,
            pool: Arc::clone(pool.mapping()),
            fixed: Fixed::default(),
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth as u32).rev().collect(),
            backlog: VecDeque::with_capacity(depth),
            ready: Vec::with_capacity(depth),
            pipes: Vec::new(),
            waker: Waker::new(true)?,
            wake_count: NonNull::from(Box::leak(Box::new(0u64))),
            wake_armed: false,
            _not_send: PhantomData,
        };
        Ok((uring, mode))
    }

    /// Tells the kernel of a buf of the pool for good, once: its pages stay where they are until the ring is closed.
    pub(crate) fn fix(&mut self, buf: &Buf) -> io::Result<bool> {
        if !Arc::ptr_eq(buf.mapping(), &self.pool) {
            return Ok(false);
        }
        if self.fixed.closed || self.fixed.told.get(buf.index()) == Some(&true) {
            return Ok(!self.fixed.closed);
        }
        let fixed = self.try_fix(buf);
        self.fixed.closed = fixed.is_err();
        fixed.map(|()| true)
    }

    fn try_fix(&mut self, buf: &Buf) -> io::Result<()> {
        if self.fixed.told.is_empty() {
            let count = self.pool.bytes() / self.pool.stride();
            if count > FIXED_MAX {
                return Err(io::Error::from_raw_os_error(libc::EMFILE));
            }
            // An empty table: no page is taken before it is used. Linux 5.19.
            self.ring.submitter().register_buffers_sparse(count as u32)?;
            self.fixed.told.resize(count, false);
        }
        let range = [libc::iovec { iov_base: buf.start().cast(), iov_len: buf.bytes() }];
        // SAFETY: the range is a slot of the mapping, which `Uring::pool` keeps mapped longer than the ring: fields are dropped in
        // order, the ring first.
        unsafe { self.ring.submitter().register_buffers_update(buf.index() as u32, &range, None) }?;
        self.fixed.told[buf.index()] = true;
        Ok(())
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() + self.ready.len()
    }

    pub(crate) fn submit(&mut self, token: u64, op: Op) {
        match op {
            Op::Lend { socket, mem: Mem::Buf(buf), at, len, tail } => self.lend(token, socket, buf, at..at + len, tail),
            // Heap memory is too small for it to pay.
            Op::Lend { mem, tail: Some(_), .. } => {
                self.ready.push(Done { token, result: Err(io::ErrorKind::Unsupported.into()), mem });
            }
            Op::Lend { socket, mem, at, len, tail: None } => self.submit(token, Op::Send { socket, mem, at, len }),
            op => {
                let (slot, entry) = self.prepare(token, op);
                self.put(slot, entry);
            }
        }
    }

    /// Begins a send whose pages the network reads itself: often the socket takes all of it at once.
    fn lend(&mut self, token: u64, socket: Arc<OwnedFd>, buf: Buf, range: Range<usize>, tail: Option<Tail>) {
        let (at, len) = (range.start, range.len());
        check_range(buf.whole().len(), at, len);
        let room = len.max(tail.as_ref().map_or(0, |tail| tail.bytes)) + pipe_slack();
        let pipe = self.pipes.pop().map_or_else(|| Pipe::with_room(room), Ok);
        let Ok(pipe) = pipe else {
            if tail.is_some() {
                let mem = Mem::Buf(buf);
                return self.ready.push(Done { token, result: Err(io::ErrorKind::Unsupported.into()), mem });
            }
            // Without a pipe it is a plain send: slower, and right.
            return self.submit(token, Op::Send { socket, mem: Mem::Buf(buf), at, len });
        };
        let lending = match tail {
            Some(tail) => Lending::with_tail(pipe, tail),
            None => Lending::new(pipe),
        };
        let again = Again::Lend { lending, at, len };
        let (held, handle) = (Held::Buf(buf), Handle::Socket(socket));
        let mut slot = Slot { token, held, handle, missing: None, polls: false, again, waiting: true };
        match slot.lend_step() {
            Some(result) => self.ready.push(slot.lent(result, &mut self.pipes)),
            None => {
                let entry = slot.poll_entry();
                self.put(slot, entry);
            }
        }
    }

    fn put(&mut self, slot: Slot, entry: squeue::Entry) {
        let number = self.free.pop().unwrap_or_else(|| {
            // More at once than ever before: the only place that grows.
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[number as usize] = Some(slot);
        self.push(entry.user_data(u64::from(number)));
    }

    /// Makes the entry and the slot that owns what the entry points to.
    fn prepare(&self, token: u64, op: Op) -> (Slot, squeue::Entry) {
        match op {
            Op::Read { file, offset, mem, at, len, uncached } => {
                let handle = Handle::File(file);
                let (held, start) = lend_range(mem, at, len);
                let (fd, bytes, flags) = (Fd(handle.number()), len as u32, rw_flags(uncached));
                let entry = match self.fixed_of(&held) {
                    Some(number) => {
                        opcode::ReadFixed::new(fd, start, bytes, number).offset(offset).rw_flags(flags).build()
                    }
                    None => opcode::Read::new(fd, start, bytes).offset(offset).rw_flags(flags).build(),
                };
                (Slot { token, held, handle, missing: None, polls: false, again: Again::Never, waiting: false }, entry)
            }
            Op::Write { file, offset, mem, at, len, uncached } => {
                let handle = Handle::File(file);
                let (held, start) = lend_range(mem, at, len);
                let (fd, bytes, flags) = (Fd(handle.number()), len as u32, rw_flags(uncached));
                let entry = match self.fixed_of(&held) {
                    Some(number) => {
                        opcode::WriteFixed::new(fd, start, bytes, number).offset(offset).rw_flags(flags).build()
                    }
                    None => opcode::Write::new(fd, start, bytes).offset(offset).rw_flags(flags).build(),
                };
                (Slot { token, held, handle, missing: None, polls: false, again: Again::Never, waiting: false }, entry)
            }
            Op::Send { socket, mem, at, len } => {
                let handle = Handle::Socket(socket);
                let (held, start) = lend_range(mem, at, len);
                // MSG_WAITALL: the kernel sends the rest by itself when there is room, instead of handing half a frame up.
                let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
                let entry = opcode::Send::new(Fd(handle.number()), start, len as u32).flags(flags).build();
                let again = Again::Entry(entry.clone(), libc::POLLOUT as u32);
                (Slot { token, held, handle, missing: None, polls: false, again, waiting: false }, entry)
            }
            Op::Recv { socket, mem, at, len, all } => {
                let handle = Handle::Socket(socket);
                let (held, start) = lend_range(mem, at, len);
                let missing = Missing { start, bytes: if all { len } else { 1 }, moved: 0 };
                let mut entry = recv_entry(&handle, &missing);
                if !all {
                    entry = opcode::Recv::new(Fd(handle.number()), start, len as u32).build();
                }
                let again = Again::Entry(entry.clone(), libc::POLLIN as u32);
                (
                    Slot { token, held, handle, missing: all.then_some(missing), polls: false, again, waiting: false },
                    entry,
                )
            }
            Op::Lend { .. } => unreachable!("`submit` has made its first step"),
            Op::Readable { socket } => {
                let handle = Handle::Socket(socket);
                let held = Held::lend(Mem::Small(Box::default()));
                // One shot; errors and hang-ups are told whether asked for or not.
                let entry = opcode::PollAdd::new(Fd(handle.number()), libc::POLLIN as u32).build();
                (Slot { token, held, handle, missing: None, polls: true, again: Again::Never, waiting: false }, entry)
            }
        }
    }

    /// The number under which the kernel knows this memory.
    fn fixed_of(&self, held: &Held) -> Option<u16> {
        match held {
            Held::Buf(buf) if Arc::ptr_eq(buf.mapping(), &self.pool) => {
                self.fixed.told.get(buf.index()).filter(|told| **told).map(|_| buf.index() as u16)
            }
            _ => None,
        }
    }

    fn push(&mut self, entry: squeue::Entry) {
        self.backlog.push_back(entry);
        self.fill_queue();
        if !self.backlog.is_empty() && self.ring.submit().is_ok() {
            // The queue was full: the kernel has taken it now. An error shows itself again at the next flush.
            self.fill_queue();
        }
    }

    fn fill_queue(&mut self) {
        let mut queue = self.ring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: each entry of the backlog was made by `prepare` or `arm_waker`; what it points to is owned by a slot
            // (or is `wake_count`) until the kernel's completion was read in `drain`, or is leaked by `drop`.
            if unsafe { queue.push(entry) }.is_err() {
                break;
            }
            self.backlog.pop_front();
        }
    }

    fn arm_waker(&mut self) {
        if !self.wake_armed {
            self.wake_armed = true;
            let fd = Fd(self.waker.as_fd().as_raw_fd());
            let entry = opcode::Read::new(fd, self.wake_count.as_ptr().cast(), 8).build().user_data(WAKE);
            self.push(entry);
        }
    }

    fn unsubmitted(&mut self) -> usize {
        self.ring.submission().len() + self.backlog.len()
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        loop {
            self.fill_queue();
            if self.ring.submission().is_empty() {
                return Ok(());
            }
            match self.ring.submit() {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                // The kernel is short of memory, or wants its completions read first: `wait` does, and submits again.
                Err(error) if is_busy(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn poll(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        self.arm_waker();
        self.flush()?;
        if self.ring.submission().taskrun() || self.ring.submission().cq_overflow() {
            match self.ring.submit() {
                Err(error) if !is_busy(&error) && error.raw_os_error() != Some(libc::EINTR) => {
                    return Err(error);
                }
                _ => {}
            }
        }
        self.drain(Some(done));
        Ok(())
    }

    pub(crate) fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        self.arm_waker();
        let start = Instant::now();
        let mut left = if self.ready.is_empty() { timeout } else { Some(Duration::ZERO) };
        loop {
            self.fill_queue();
            // With completions at hand this call only submits; it sleeps when there is none.
            self.enter(left.map(Timespec::from).as_ref())?;
            let (count, woken) = self.drain(Some(done));
            left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            if count > 0 || woken || self.backlog.is_empty() || left == Some(Duration::ZERO) {
                return Ok(());
            }
        }
    }

    /// One system call: submits, and sleeps until there is a completion, a signal or the limit.
    fn enter(&mut self, limit: Option<&Timespec>) -> io::Result<()> {
        let result = match limit {
            Some(limit) => self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(limit)),
            None => self.ring.submitter().submit_and_wait(1),
        };
        match result {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR)) => Ok(()),
            Err(error) if is_busy(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads all completions; without a `done` (the ring is being dropped) what comes back is dropped.
    fn drain(&mut self, mut done: Option<&mut Vec<Done>>) -> (usize, bool) {
        let (mut count, mut woken) = (self.ready.len(), false);
        match done.as_deref_mut() {
            Some(done) => done.append(&mut self.ready),
            None => self.ready.clear(),
        }
        for completion in self.ring.completion() {
            if completion.user_data() == WAKE {
                // Armed again by the next `wait`: what is signalled meanwhile stays in the eventfd.
                self.wake_armed = false;
                self.waker.seen();
                woken = true;
                continue;
            }
            let number = completion.user_data() as usize;
            let slot = self.slots[number].as_mut().expect("the kernel completes each entry once");
            let code = completion.result();
            if let Some(done) = done.as_deref_mut().filter(|_| slot.waiting && code >= 0) {
                if let Again::Entry(entry, _) = &slot.again {
                    slot.waiting = false;
                    let entry = slot.missing.as_ref().map_or_else(|| entry.clone(), |it| recv_entry(&slot.handle, it));
                    self.backlog.push_back(entry.user_data(completion.user_data()));
                    continue;
                }
                match slot.lend_step() {
                    None => self.backlog.push_back(slot.poll_entry().user_data(completion.user_data())),
                    Some(result) => {
                        let slot = self.slots[number].take().expect("seen above");
                        self.free.push(number as u32);
                        count += 1;
                        done.push(slot.lent(result, &mut self.pipes));
                    }
                }
                continue;
            }
            if code == -libc::EAGAIN && done.is_some() && matches!(slot.again, Again::Entry(..)) {
                slot.waiting = true;
                self.backlog.push_back(slot.poll_entry().user_data(completion.user_data()));
                continue;
            }
            let bytes = if slot.polls { 0 } else { usize::try_from(code).unwrap_or(0) };
            if let (Some(entry), true) = (slot.rest(bytes), done.is_some()) {
                self.backlog.push_back(entry.user_data(completion.user_data()));
                continue;
            }
            let slot = self.slots[number].take().expect("seen above");
            self.free.push(number as u32);
            count += 1;
            let moved = slot.missing.map_or(bytes, |missing| missing.moved);
            let mem = slot.held.give_back();
            if let Some(done) = done.as_deref_mut() {
                let result = match completion.result() {
                    // What was moved counts, the next operation meets the error.
                    error if error < 0 && moved == 0 => Err(io::Error::from_raw_os_error(-error)),
                    _ => Ok(moved),
                };
                done.push(Done { token: slot.token, result, mem });
            }
        }
        (count, woken)
    }
}

impl Drop for Uring {
    /// Cancels what is in flight and waits for the kernel to let go of it; what it does not let go of is leaked.
    fn drop(&mut self) {
        // Ends the read of the eventfd on kernels that cannot cancel, too.
        self.waker.wake();
        let _ = self.flush();
        let end = Instant::now() + DROP_WAIT;
        // Since Linux 6.0. Without it, sockets with nothing to say keep their memory until the process ends.
        let _ = self.ring.submitter().register_sync_cancel(Some(Timespec::from(DROP_WAIT)), CancelBuilder::any());
        self.drain(None);
        while (self.in_flight() > 0 || self.wake_armed) && self.unsubmitted() == 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.enter(Some(&Timespec::from(left))).is_err() {
                break;
            }
            self.drain(None);
        }
        for slot in self.slots.iter_mut().filter_map(Option::take) {
            // The kernel may still write into it, after the ring is closed and even after this thread is gone. Leaking a
            // buf keeps its pool mapped, because the buf holds a count of the mapping.
            std::mem::forget(slot.held);
        }
        if !self.wake_armed {
            // SAFETY: the pointer came from `Box::leak` in `new`, the kernel has completed its last read into it
            // (`wake_armed` is false), and this is the drop.
            drop(unsafe { Box::from_raw(self.wake_count.as_ptr()) });
        }
    }
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring").field("in_flight", &self.in_flight()).field("fixed", &self.fixed).finish()
    }
}

/// Checks the range, and gives the owner of the memory and the address the kernel is told.
fn lend_range(mem: Mem, at: usize, len: usize) -> (Held, *mut u8) {
    check_range(mem.bytes().len(), at, len);
    assert!(u32::try_from(len).is_ok(), "an operation moves less than 4 GiB");
    let held = Held::lend(mem);
    // SAFETY: `check_range` has proved `at` <= the size of the memory that `held` owns.
    let start = unsafe { held.start().add(at) };
    (held, start)
}

fn rw_flags(uncached: bool) -> i32 {
    if uncached { RWF_DONTCACHE.cast_signed() } else { 0 }
}

/// Opens a ring with the best mode the kernel has; the text names the mode.
fn open(depth: u32) -> io::Result<(IoUring, String)> {
    // Completions may pile up while a worker is busy; the kernel keeps what does not fit, but slower.
    let completions = depth * 2;
    let best = IoUring::builder()
        .setup_clamp()
        .setup_cqsize(completions)
        .setup_submit_all()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(depth);
    if let Ok(ring) = best {
        return Ok((ring, String::from("completions deferred to the worker")));
    }
    match IoUring::builder().setup_clamp().setup_cqsize(completions).build(depth) {
        Ok(ring) => Ok((ring, String::from("kernel older than 6.1, completions interrupt the worker"))),
        Err(error) => Err(explain(error)),
    }
}

fn explain(error: io::Error) -> io::Error {
    let why = match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has no io_uring",
        Some(libc::EPERM) => "io_uring is forbidden here (kernel.io_uring_disabled or a container's filter)",
        Some(libc::ENOMEM) => "not enough lockable memory for a ring (ulimit -l)",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{why}: {error}"))
}

/// Timed waits and kept completions are relied upon; both are there since 5.11.
fn check_features(ring: &IoUring) -> io::Result<()> {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let codes = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::ReadFixed::CODE,
        opcode::WriteFixed::CODE,
        opcode::Send::CODE,
        opcode::Recv::CODE,
        opcode::PollAdd::CODE,
    ];
    let whole = codes.iter().all(|code| probe.is_supported(*code))
        && ring.params().is_feature_ext_arg()
        && ring.params().is_feature_nodrop();
    if whole {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, "the io_uring of this kernel is older than 5.11"))
}

/// The kernel's own helper threads run on all cores unless told otherwise; a process that was given fewer (taskset) must
/// not take more. Kernels before 5.14 do not know the call.
fn keep_to_granted_cores(ring: &IoUring) {
    // SAFETY: a `cpu_set_t` is an array of integers, for which zero is a value.
    let mut cores: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let process = rustix::process::getpid().as_raw_pid();
    // SAFETY: `cores` is writable for the size that is given. The process's main thread stands for what was granted;
    // the calling worker may be pinned already.
    let result = unsafe { libc::sched_getaffinity(process, size_of_val(&cores), &mut cores) };
    if result == 0 {
        let _ = ring.submitter().register_iowq_aff(&cores);
    }
}

fn is_busy(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN))
}

/// Whether a ring can be had here, without keeping one; the text names the mode.
pub(crate) fn probe() -> io::Result<String> {
    let (ring, mode) = open(8)?;
    check_features(&ring)?;
    Ok(mode)
}
