//! The workers of this process: one thread and one pool each.
//!
//! For: jobs to share, whatever their number.
//! In and out: commands by worker index; counters to read.
//! Invariants: workers live as long as this value; dropping it stops and joins them.
//! Absent on purpose: which job goes where (a rail's number modulo the workers).

use std::io;
use std::ops::Add;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use sys::ring::{Kind, Waker};

use crate::books::{Counters, Look, Spared};
use crate::job::Cmd;
use crate::linux::Linux;
use crate::worker::Worker;

/// One worker from outside.
#[derive(Debug)]
struct Handle {
    to: Sender<Cmd<Linux>>,
    waker: Waker,
    counters: Arc<Counters>,
    thread_id: u32,
    thread: Option<JoinHandle<()>>,
}

/// What a worker said when it started.
#[derive(Debug, Clone)]
pub struct Started {
    /// Which driver and why.
    pub driver: String,
    /// Bytes of its pool.
    pub pool_bytes: usize,
    /// Size of the pool's pages, as text.
    pub pages: &'static str,
}

/// See the module.
#[derive(Debug)]
pub struct Workers {
    handles: Vec<Handle>,
    /// How they started.
    pub started: Vec<Started>,
}

/// Where threads run and where their memory lies. By default: wherever the kernel puts them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hold {
    /// Cores, in the order in which threads take them; empty: any.
    pub cores: Vec<usize>,
    /// Each thread on one of them, in turn; else each on any of them.
    pub exact: bool,
    /// Node of their memory; `None`: that of the core that touches it first.
    pub memory: Option<u16>,
}

impl Hold {
    /// Puts the calling thread, the `index`th of its kind, there. Errors: the cores were not granted, there is no such node, a container forbids it.
    pub fn take(&self, index: usize) -> io::Result<()> {
        match &self.cores[..] {
            [] => {}
            cores if self.exact => sys::host::pin_thread(cores[index % cores.len()])?,
            cores => sys::host::hold_thread(cores)?,
        }
        self.memory.map_or(Ok(()), |node| sys::mem::prefer_node(Some(node)))
    }

    /// Can a thread be put there? Tried on one that ends. Errors: as `take`.
    pub fn check(&self) -> io::Result<()> {
        let each = if self.exact { self.cores.len() } else { 1 };
        let one = |index| std::thread::scope(|scope| scope.spawn(move || self.take(index)).join());
        (0..each.max(1)).try_for_each(|index| one(index).expect("taking a place does not panic"))
    }
}

/// How workers are to be made.
#[derive(Debug, Clone)]
pub struct Make {
    /// Threads.
    pub count: usize,
    /// Bytes of pool, all workers together.
    pub memory_bytes: u64,
    /// Bytes per chunk.
    pub chunk_bytes: u32,
    /// A driver the user insists on.
    pub driver: Option<Kind>,
    /// Where they run.
    pub hold: Hold,
}

impl Workers {
    /// Starts them and waits until each has its ring and pool.
    pub fn start(make: Make) -> io::Result<Workers> {
        let slot = sys::mem::HEADROOM as u64 + u64::from(make.chunk_bytes);
        let bufs = usize::try_from(make.memory_bytes / make.count as u64 / slot).unwrap_or(usize::MAX).max(4);
        let mut workers = Workers { handles: Vec::new(), started: Vec::new() };
        for index in 0..make.count {
            let (to, mailbox) = mpsc::channel();
            let (tell, told) = mpsc::sync_channel(1);
            let counters = Arc::new(Counters::default());
            let shared = counters.clone();
            let Make { chunk_bytes, driver, hold, .. } = make.clone();
            let thread = std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
                // A container may forbid it; the kernel places the thread then.
                let _ = hold.take(index);
                // Bursts and caps are timed; with the default slack each is 50 µs late.
                let _ = sys::udp::fine_timers();
                match Linux::new(bufs, chunk_bytes as usize, driver) {
                    Ok((mut linux, driver)) => {
                        use crate::platform::Platform;
                        let pool = linux.pool();
                        let started = Started { driver, pool_bytes: pool.bytes(), pages: pool.pages().name() };
                        let waker = linux.waker();
                        // Its books begin before anybody knows of it.
                        let mut worker = Worker::new(linux, mailbox, shared);
                        let _ = tell.send(Ok((started, waker, sys::clock::thread_id())));
                        worker.run();
                    }
                    Err(error) => {
                        let _ = tell.send(Err(error));
                    }
                }
            })?;
            let (started, waker, thread_id) =
                told.recv().map_err(|_| io::Error::other("a worker died at its start"))??;
            workers.started.push(started);
            workers.handles.push(Handle { to, waker, counters, thread_id, thread: Some(thread) });
        }
        Ok(workers)
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.handles.len()
    }

    /// Sends a command and wakes the worker.
    pub fn send(&self, index: usize, cmd: Cmd<Linux>) {
        let handle = &self.handles[index];
        // A worker that is gone has ended with the process's jobs; there is nobody to tell.
        if handle.to.send(cmd).is_ok() {
            handle.waker.wake();
        }
    }
}

/// Some of the workers: those that one job uses. A small job of a daemon does not wake them all, and its books are of these alone.
#[derive(Debug, Clone)]
pub struct Team {
    workers: Arc<Workers>,
    first: usize,
    count: usize,
}

impl Team {
    /// `count` workers (at most all), beginning at another one for each `turn`.
    #[must_use]
    pub fn new(workers: Arc<Workers>, turn: u32, count: u16) -> Team {
        let count = usize::from(count).clamp(1, workers.count());
        let first = turn as usize % workers.count();
        Team { workers, first, count }
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    fn index(&self, member: usize) -> usize {
        (self.first + member) % self.workers.count()
    }

    /// Sends a command to a member and wakes it.
    pub fn send(&self, member: usize, cmd: Cmd<Linux>) {
        self.workers.send(self.index(member), cmd);
    }

    /// How long each member was ready to run and had no core, nanoseconds since it began.
    #[must_use]
    pub fn run_delays_ns(&self) -> Vec<u64> {
        let of = |member| sys::clock::run_delay_ns(self.workers.handles[self.index(member)].thread_id);
        (0..self.count).map(of).collect()
    }

    /// The books of each member so far. With several jobs at once these are the books of all of them.
    #[must_use]
    pub fn books(&self) -> Vec<Look> {
        (0..self.count).map(|member| self.workers.handles[self.index(member)].counters.look()).collect()
    }

    /// What all members spared so far, of all jobs.
    #[must_use]
    pub fn spared(&self) -> Spared {
        let each = (0..self.count).map(|member| self.workers.handles[self.index(member)].counters.spared());
        each.fold(Spared::default(), Spared::add)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for index in 0..self.handles.len() {
            self.send(index, Cmd::Stop);
        }
        for handle in &mut self.handles {
            if let Some(thread) = handle.thread.take() {
                let _ = thread.join();
            }
        }
    }
}
