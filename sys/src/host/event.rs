//! Waking a thread that waits in the kernel.
//!
//! What it is for: keepers (`poll` on an [`Event`]) and workers (a [`Waker`] of their ring) sleep in the kernel; other
//! threads wake them. In: nothing but the call. Out: a readable descriptor.
//! Invariants: a wake is never lost: whoever calls `wake` after putting something into a mailbox may rely on the
//! sleeper looking into the mailbox afterwards. Wakes that nobody has seen yet are one wake.
//! Absent on purpose: a payload. What happened is told by mailboxes, not by the wake.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};

/// An eventfd that several threads may signal and one drains. Clones are the same event.
#[derive(Debug, Clone)]
pub struct Event(Arc<OwnedFd>);

impl Event {
    /// A new event, not signalled. Errors: EMFILE, ENFILE, ENOMEM.
    pub fn new() -> io::Result<Event> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Event(Arc::new(fd)))
    }

    /// Makes the event readable until it is drained.
    pub fn signal(&self) {
        // The only error of an eventfd write is EAGAIN at a count of 2^64-2, and then it is readable anyway.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    /// Takes all signals; says whether there was one. Never blocks.
    pub fn drain(&self) -> bool {
        let mut count = [0u8; 8];
        matches!(rustix::io::read(&*self.0, &mut count[..]), Ok(8))
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Wakes the thread that waits in a [`crate::ring::Driver`]. Clones wake the same driver.
///
/// Wakes that the driver has not seen yet cost one atomic operation, not a system call.
#[derive(Debug, Clone)]
pub struct Waker(Arc<Bell>);

#[derive(Debug)]
struct Bell {
    fd: OwnedFd,
    durability: AtomicBool,
}

impl Waker {
    /// `blocking`: io_uring parks a read on a blocking eventfd, but answers EAGAIN on a non-blocking one.
    pub(crate) fn new(blocking: bool) -> io::Result<Waker> {
        let mut flags = EventfdFlags::CLOEXEC;
        flags.set(EventfdFlags::NONBLOCK, !blocking);
        let fd = eventfd(0, flags)?;
        Ok(Waker(Arc::new(Bell { fd, durability: AtomicBool::new(false) })))
    }

    /// Makes the driver's `wait` return soon, now or at its next call.
    pub fn wake(&self) {
        // The swap pairs with the one in `seen`: a wake that is swallowed here happens before the driver's return
        // to its caller, who looks into the mailboxes after it.
        if !self.0.durability.swap(true, Ordering::AcqRel) {
            // Cannot block nor fail: the count is at most 1 per `seen`, far below the 2^64-2 at which a write waits.
            let _ = rustix::io::write(&self.0.fd, &1u64.to_ne_bytes());
        }
    }

    /// Called by a driver that has read the eventfd, before it returns to its caller.
    pub(crate) fn seen(&self) {
        self.0.durability.swap(false, Ordering::AcqRel);
    }

    /// Reads a non-blocking eventfd empty and notes that the wake was seen.
    pub(crate) fn drain(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.0.fd, &mut count[..]);
        self.seen();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

/// What a keeper waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Bytes to read, a connection to accept, or the end of the stream.
    Read,
    /// Room to write.
    Write,
    /// Either.
    Both,
}

/// What has come true for one descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ready {
    /// A read will not block; it may well say that the stream has ended.
    pub read: bool,
    /// A write will not block; it may well fail.
    pub write: bool,
    /// The connection is gone in both directions, or in error.
    pub closed: bool,
}

impl Ready {
    /// Anything at all.
    pub fn any(self) -> bool {
        self.read || self.write || self.closed
    }
}

/// Sleeps until one of `fds` is ready, a signal comes, or the timeout (`None`: for ever), and says for each of them, in
/// the same order, what it is ready for. For keepers: it allocates. Errors: ENOMEM, EINVAL (too many).
pub fn poll(fds: &[(BorrowedFd<'_>, Interest)], timeout: Option<Duration>) -> io::Result<Vec<Ready>> {
    let wanted = |interest| match interest {
        Interest::Read => PollFlags::IN,
        Interest::Write => PollFlags::OUT,
        Interest::Both => PollFlags::IN | PollFlags::OUT,
    };
    let mut polled: Vec<_> =
        fds.iter().map(|(fd, interest)| PollFd::from_borrowed_fd(*fd, wanted(*interest))).collect();
    // A time too long to be said is for ever.
    let limit = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match rustix::event::poll(&mut polled, limit.as_ref()) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => return Ok(vec![Ready::default(); fds.len()]),
        Err(error) => return Err(error.into()),
    }
    let ready = polled.iter().map(|fd| {
        let seen = fd.revents();
        let closed = seen.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
        Ready { read: seen.contains(PollFlags::IN), write: seen.contains(PollFlags::OUT), closed }
    });
    Ok(ready.collect())
}
