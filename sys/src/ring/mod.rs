//! The asynchronous door to disk and network.
//!
//! What it is for: a worker hands in operations with the memory they need and gets the memory back with the result.
//! In: [`Op`] with a token. Out: [`Done`] with the same token, in any order.
//! Invariants: memory in flight belongs to the driver until its `Done` is handed out, so that neither the kernel nor a
//! helper thread ever touches memory somebody else owns. In steady state no call here allocates. At most one `Send` and
//! one `Recv` per socket may be in flight (the kernel gives no order among several); disk operations are unordered.
//! Absent on purpose: retries. A short result is handed up; the caller knows what is missing.
//!
//! Both engines give the same answers: a `Send`, and a `Recv` with `all`, ends short only at the end of the stream or at
//! an error after the first byte (the next operation then meets the error itself). Sockets may be blocking (those for `Send` and
//! `Recv` should: io_uring answers EAGAIN at once for non-blocking ones).

mod op; // what is asked of a ring, and its answer
mod plain; // its engine on plain system calls
mod uring; // its engine on io_uring

use std::io;
use std::time::Duration;

pub(crate) use self::op::check_range;
pub use self::op::{Done, Op};
use self::plain::Plain;
use self::uring::Uring;
pub use crate::host::event::Waker;
use crate::mem::{Buf, Pool};
pub use crate::net::pipe::Tail;

/// The two engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// io_uring.
    Uring,
    /// `poll` for sockets and two helper threads for disks.
    Plain,
}

/// A ring of either engine. Belongs to the thread that made it (io_uring's single-issuer mode insists).
#[derive(Debug)]
pub enum Driver {
    /// io_uring.
    Uring(Box<Uring>),
    /// Plain system calls.
    Plain(Box<Plain>),
}

impl Driver {
    /// Opens the wanted engine, or io_uring where it works and plain calls where it does not. The text says what was
    /// chosen and why. Call it on the thread that will use it. Errors: those of the wanted engine, or of both.
    pub fn choose(pool: &Pool, want: Option<Kind>) -> io::Result<(Driver, String)> {
        match want {
            Some(Kind::Uring) => {
                let (uring, reason) = Uring::new(pool)?;
                Ok((Driver::Uring(Box::new(uring)), format!("io_uring, as asked: {reason}")))
            }
            Some(Kind::Plain) => {
                let plain = Plain::new(pool)?;
                Ok((Driver::Plain(Box::new(plain)), String::from("plain system calls, as asked")))
            }
            None => match Uring::new(pool) {
                Ok((uring, reason)) => Ok((Driver::Uring(Box::new(uring)), format!("io_uring: {reason}"))),
                Err(error) => {
                    let plain = Plain::new(pool)?;
                    Ok((
                        Driver::Plain(Box::new(plain)),
                        format!("plain system calls, because io_uring failed: {error}"),
                    ))
                }
            },
        }
    }

    /// Which engine it is.
    pub fn kind(&self) -> Kind {
        match self {
            Driver::Uring(_) => Kind::Uring,
            Driver::Plain(_) => Kind::Plain,
        }
    }

    /// Tells the kernel of a buf of the driver's pool for good, so that it need not look its pages up for each operation. True: it is
    /// told; false: this engine has no such thing, the buf is another pool's, or the kernel has refused one before. It pays for O_DIRECT alone,
    /// and the more so the more the memory is in pieces (docs/design/006). The buf's pages are locked until the driver is dropped.
    /// Errors: ENOMEM under `ulimit -l`, EINVAL before Linux 5.19; the driver works all the same.
    pub fn fix(&mut self, buf: &Buf) -> io::Result<bool> {
        match self {
            Driver::Uring(uring) => uring.fix(buf),
            Driver::Plain(_) => Ok(false),
        }
    }

    /// Takes an operation. It may run at once, at the next `flush`, or at the next `wait`.
    pub fn submit(&mut self, token: u64, op: Op) {
        match self {
            Driver::Uring(uring) => uring.submit(token, op),
            Driver::Plain(plain) => plain.submit(token, op),
        }
    }

    /// Hands all operations to the kernel, without waiting. Errors: the ring itself is broken.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Driver::Uring(uring) => uring.flush(),
            Driver::Plain(_) => Ok(()),
        }
    }

    /// Flushes, sleeps until there is a completion, a wake, a signal, or the timeout (`None`: for ever), then appends
    /// all completions there are to `done`. Errors: the ring itself is broken.
    pub fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        match self {
            Driver::Uring(uring) => uring.wait(timeout, done),
            Driver::Plain(plain) => plain.wait(timeout, done),
        }
    }

    /// Flushes and appends all completions there are to `done`, without waiting. Errors: the ring itself is broken.
    pub fn poll(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        match self {
            Driver::Uring(uring) => uring.poll(done),
            Driver::Plain(plain) => plain.wait(Some(Duration::ZERO), done),
        }
    }

    /// Wakes this driver from any thread.
    pub fn waker(&self) -> Waker {
        match self {
            Driver::Uring(uring) => uring.waker(),
            Driver::Plain(plain) => plain.waker(),
        }
    }

    /// Operations submitted whose `Done` has not been handed out.
    pub fn in_flight(&self) -> usize {
        match self {
            Driver::Uring(uring) => uring.in_flight(),
            Driver::Plain(plain) => plain.in_flight(),
        }
    }
}

/// Whether io_uring works here: `Ok` with its mode, or the reason why not.
pub fn io_uring() -> Result<String, String> {
    uring::probe().map_err(|error| error.to_string())
}
