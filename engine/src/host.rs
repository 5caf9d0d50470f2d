//! The workers of this process: one thread and one pool each.
//!
//! For: jobs to share, whatever their number.
//! In and out: commands by worker index; counters to read.
//! Invariants: workers live as long as this value; dropping it stops and joins them.
//! Absent on purpose: which job goes where (a rail's number modulo the workers).

use std::io;
use std::ops::Add;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use sys::ring::{Kind, Waker};

use crate::fault;
use crate::job::Cmd;
use crate::linux::Linux;
use crate::numa;
use crate::platform::Platform;
use crate::seldom::Seldom;
use crate::worker::Worker;
use crate::worker::stages::{Counters, Look, Spared};

/// One worker from outside.
#[derive(Debug)]
struct Handle {
    to: Sender<Cmd<Linux>>,
    /// Another one when the worker was made anew.
    waker: Arc<Mutex<Waker>>,
    counters: Arc<Counters>,
    thread_id: u32,
    run_delay_ns: Seldom,
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
    /// The memory node that it and its bufs are held on, if it is.
    pub node: Option<u16>,
}

/// The process's worker threads, each with its buffer pool; dropping it stops and joins them.
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
    /// Node of the cores, where they were chosen for it.
    pub node: Option<u16>,
}

impl Hold {
    /// Puts the calling thread, the `index`th of its kind, there. Errors: the cores were not granted, there is no such node, a container forbids it.
    pub fn take(&self, index: usize) -> io::Result<()> {
        self.take_cores(index)?;
        self.take_memory()
    }

    fn take_cores(&self, index: usize) -> io::Result<()> {
        match &self.cores[..] {
            [] => Ok(()),
            cores if self.exact => sys::host::pin_thread(cores[index % cores.len()]),
            cores => sys::host::hold_thread(cores),
        }
    }

    fn take_memory(&self) -> io::Result<()> {
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
    /// Where they run, in turn; empty: wherever the kernel puts them.
    pub holds: Vec<Hold>,
}

/// What a worker's thread says when it is up.
type Up = (Started, Arc<Mutex<Waker>>, u32);

/// A worker's thread. A panic in it costs the jobs that were on this worker: they are told, ring and pool are made anew, and the thread goes on.
fn live(
    make: impl Fn() -> io::Result<(Linux, String)>,
    mut mailbox: Receiver<Cmd<Linux>>,
    shared: &Arc<Counters>,
    tell: &SyncSender<io::Result<Up>>,
) {
    let mut woken_by: Option<Arc<Mutex<Waker>>> = None;
    loop {
        let (mut linux, driver) = match (make(), &woken_by) {
            (Ok(made), _) => made,
            (Err(error), None) => return drop(tell.send(Err(error))),
            (Err(error), Some(_)) => {
                // Without this worker jobs would stand still for ever; without the process they are taken up again by whoever started it.
                eprintln!("longhaul: a worker that panicked cannot be made anew: {error}");
                std::process::abort();
            }
        };
        let waker = linux.waker();
        let pool = linux.pool();
        let (pool_bytes, pages) = (pool.bytes(), pool.pages().name());
        let started = Started { driver, pool_bytes, pages, node: linux.node() };
        // Its books begin before anybody knows of it.
        let mut worker = Worker::new(linux, mailbox, shared.clone());
        match &woken_by {
            Some(shared) => *shared.lock().unwrap_or_else(PoisonError::into_inner) = waker,
            None => {
                let shared = Arc::new(Mutex::new(waker));
                woken_by = Some(shared.clone());
                let _ = tell.send(Ok((started, shared, sys::clock::thread_id())));
            }
        }
        // Nothing of the worker is used after a panic but its mailbox and the jobs' posts, which no step leaves half changed.
        match catch_unwind(AssertUnwindSafe(|| worker.run())) {
            Ok(()) => return,
            Err(panic) => mailbox = worker.give_up(&format!("a worker panicked: {}", fault::words(&*panic))),
        }
    }
}

impl Workers {
    /// Starts them and waits until each has its ring and pool.
    pub fn start(make: Make) -> io::Result<Workers> {
        let slot = sys::mem::HEADROOM as u64 + u64::from(make.chunk_bytes);
        let bufs = usize::try_from(make.memory_bytes / make.count as u64 / slot).unwrap_or(usize::MAX).max(4);
        let mut workers = Workers { handles: Vec::new(), started: Vec::new() };
        // Each makes its ring and its pool, side by side.
        let mut begun = Vec::new();
        for index in 0..make.count {
            let (to, mailbox) = mpsc::channel();
            let (tell, told) = mpsc::sync_channel(1);
            let counters = Arc::new(Counters::default());
            let shared = counters.clone();
            let Make { chunk_bytes, driver, .. } = make;
            let hold = make.holds.get(index % make.holds.len().max(1)).cloned().unwrap_or_default();
            let thread = std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
                // A container may forbid either. Without cores the kernel places the thread; without a policy memory is where it is touched first.
                let (cores, memory) = (hold.take_cores(index), hold.take_memory());
                let node = cores.and(memory).ok().and(hold.node);
                // Bursts and caps are timed; with the default slack each is 50 µs late.
                let _ = sys::udp::fine_timers();
                let make = || {
                    let (linux, driver) = Linux::new(bufs, chunk_bytes as usize, driver)?;
                    Ok((linux.held_on(node), driver))
                };
                live(make, mailbox, &shared, &tell);
            })?;
            begun.push((thread, to, told, counters));
        }
        for (thread, to, told, counters) in begun {
            let (started, waker, thread_id) =
                told.recv().map_err(|_| io::Error::other("a worker died at its start"))??;
            workers.started.push(started);
            workers.handles.push(Handle {
                to,
                waker,
                counters,
                thread_id,
                run_delay_ns: Seldom::new(),
                thread: Some(thread),
            });
        }
        Ok(workers)
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.handles.len()
    }

    /// The memory node of each; `None`: not all are held on one.
    fn homes(&self) -> Option<Vec<u16>> {
        self.started.iter().map(|it| it.node).collect()
    }

    /// Sends a command and wakes the worker.
    pub fn send(&self, index: usize, cmd: Cmd<Linux>) {
        let handle = &self.handles[index];
        // A worker that is gone has ended with the process's jobs; there is nobody to tell.
        if handle.to.send(cmd).is_ok() {
            handle.waker.lock().unwrap_or_else(PoisonError::into_inner).wake();
        }
    }
}

/// Some of the workers: those that one job uses. A small job of a daemon does not wake them all, and its books are of these alone.
#[derive(Debug, Clone)]
pub struct Team {
    workers: Arc<Workers>,
    members: Vec<usize>,
}

impl Team {
    /// `count` workers (at most all), beginning at another one for each `turn`.
    #[must_use]
    pub fn new(workers: Arc<Workers>, turn: u32, count: u16) -> Team {
        let all = workers.count();
        let members = (0..usize::from(count).clamp(1, all)).map(|member| (turn as usize + member) % all).collect();
        Team { workers, members }
    }

    /// The same of those whose memory is on these nodes first (by weight), as far as workers are held on nodes.
    #[must_use]
    pub fn near(workers: Arc<Workers>, turn: u32, count: u16, wish: &[(u16, u32)]) -> Team {
        match workers.homes() {
            Some(homes) if !wish.is_empty() => {
                let members = numa::team(&homes, wish, turn as usize, usize::from(count).max(1));
                Team { workers, members }
            }
            _ => Team::new(workers, turn, count),
        }
    }

    /// The memory node of each member; empty: not all are held on one.
    #[must_use]
    pub fn homes(&self) -> Vec<u16> {
        let homes = self.workers.homes().unwrap_or_default();
        self.members.iter().filter_map(|&index| homes.get(index).copied()).collect()
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.members.len()
    }

    fn handles(&self) -> impl Iterator<Item = &Handle> {
        self.members.iter().map(|&index| &self.workers.handles[index])
    }

    /// Sends a command to a member and wakes it.
    pub fn send(&self, member: usize, cmd: Cmd<Linux>) {
        self.workers.send(self.members[member], cmd);
    }

    /// How long each member was ready to run and had no core, nanoseconds since it began.
    #[must_use]
    pub fn run_delays_ns(&self) -> Vec<u64> {
        let delay = |it: &Handle| it.run_delay_ns.get(sys::clock::now_ns, || sys::clock::run_delay_ns(it.thread_id));
        self.handles().map(delay).collect()
    }

    /// The books of each member so far. With several jobs at once these are the books of all of them.
    #[must_use]
    pub fn books(&self) -> Vec<Look> {
        self.handles().map(|handle| handle.counters.look()).collect()
    }

    /// What all members spared so far, of all jobs.
    #[must_use]
    pub fn spared(&self) -> Spared {
        self.handles().map(|handle| handle.counters.spared()).fold(Spared::default(), Spared::add)
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
