//! A direction at work: one thread that reads what one host sends and writes it to the other when it is due.
//!
//! For: the lab, which starts two for each link. In and out: two TUN files; settings that change meanwhile; counts.
//! Invariants: the thread never waits but in one `poll`, for a packet, a change, or the next packet's time; no packet is written
//! before it is due; after the start it allocates only when the link changes.
//! Absent on purpose: what the wire does (link.rs), namespaces (hosts.rs), and reports (report.rs).

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec};
use sys::event::Event;
use sys::tun::{PACKET_BYTES_MAX, VNET_HEADER_BYTES};

use crate::wire::line::{Counts, Line};
use crate::wire::link::Wire;
use crate::wire::packet::HEAD_BYTES_MAX;

/// A packet so much later than it was due counts as late: a third of the error that a round trip may have (0.3 ms).
pub const LATE_NS: u64 = 100_000;
/// Reads between two looks at what is due: 64 super-packets are 4 MiB, a millisecond of copying.
const READS_MAX: usize = 64;
/// The counts are told to others so often.
const TELL_NS: u64 = 50_000_000;
/// A host's packets have waited so long without a pause: the emulator is what limits. As long as 10 bursts at full speed.
const BEHIND_NS: u64 = 2_000_000;

/// A timer wakes a thread of a virtual machine 40 to 120 us after its time (measured 2026-11-22, SCHED_RR, median 70): so much earlier
/// it is asked to, and the rest is spent looking.
const LEAD_NS: u64 = 100_000;
/// What a packet has waited, at most, for a thread that slept when it came: it came so much earlier than it is read. Measured 2026-11-22: at
/// 40 us the fastest of 1000 packets there and back was 15 us early, the median 100 us late; at 15 us the median was 210 to 300 us late.
const WAKE_NS: u64 = 25_000;
/// So many of the thread's own timed sleeps say how soon it wakes here and now: beside a busy program, where no core is ever idle, in less
/// than that (2026-11-23: 19 us each way, so that round trips were 12 us short). Half of the soonest is what a packet is credited with.
const WAKES: usize = 16;
/// Only for packets that come alone: after a pause so long, so that looking takes at most a tenth of a core. In a stream of packets
/// one that is some tens of us late delays none of the others.
const ALONE_NS: u64 = 1_000_000;

/// What a direction has done.
#[derive(Debug, Clone, Copy, Default)]
pub struct Told {
    /// Packets and bytes.
    pub counts: Counts,
    /// Packets written more than `LATE_NS` after they were due.
    pub late_packets: u64,
    /// The worst of them, ns.
    pub late_ns_max: u64,
    /// Time in which packets waited to be read without a pause longer than `BEHIND_NS`, ns.
    pub behind_ns: u64,
    /// Packets that the other host's device refused.
    pub refused: u64,
    /// Processor time of the thread, ns.
    pub cpu_ns: u64,
    /// How long it has run, ns.
    pub ran_ns: u64,
    /// Bytes in the queue now.
    pub queued_bytes: u64,
    /// The thread runs before all ordinary ones.
    pub prompt: bool,
}

/// What a direction and its owner share.
#[derive(Debug)]
pub struct Shared {
    wire: Mutex<(Wire, u64)>,
    changed: AtomicU64,
    stop: AtomicBool,
    event: Event,
    told: Mutex<Told>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Changes the wire; `rtt_ns`: both directions' delay.
    pub fn set(&self, wire: Wire, rtt_ns: u64) {
        *locked(&self.wire) = (wire, rtt_ns);
        self.changed.fetch_add(1, Ordering::Release);
        self.event.signal();
    }

    /// What it has done, at most `TELL_NS` old while packets come.
    #[must_use]
    pub fn told(&self) -> Told {
        *locked(&self.told)
    }
}

/// A running direction. Ends with `stop`, or with the process.
#[derive(Debug)]
pub struct Direction {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Direction {
    /// Starts the thread. Errors: EAGAIN (no more threads), EMFILE.
    pub fn start(name: String, line: Line, from: Arc<File>, to: Arc<File>) -> io::Result<Direction> {
        let shared = Arc::new(Shared {
            wire: Mutex::new((*line.link().wire(), 0)),
            changed: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            event: Event::new()?,
            told: Mutex::new(Told::default()),
        });
        let mut work = Work {
            line,
            from,
            to,
            shared: Arc::clone(&shared),
            seen: 0,
            told: Told::default(),
            told_ns: 0,
            dry_ns: sys::clock::now_ns(),
            is_alert: false,
            slept_ns: None,
            wakes_ns: [WAKE_NS; WAKES],
            wakes: 0,
            aside: vec![0; PACKET_BYTES_MAX + VNET_HEADER_BYTES],
        };
        let thread = std::thread::Builder::new().name(name).spawn(move || work.run())?;
        Ok(Direction { shared, thread: Some(thread) })
    }

    /// What is shared with the thread.
    #[must_use]
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Ends the thread; the last counts.
    pub fn stop(&mut self) -> Told {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.event.signal();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed by the thread itself; the counts are those of before.
            let _ = thread.join();
        }
        self.shared.told()
    }
}

struct Work {
    line: Line,
    from: Arc<File>,
    to: Arc<File>,
    shared: Arc<Shared>,
    seen: u64,
    told: Told,
    told_ns: u64,
    dry_ns: u64,
    /// Woken before the time of a packet that comes alone: look, do not sleep.
    is_alert: bool,
    /// When the sleep began from which a packet has woken the thread.
    slept_ns: Option<u64>,
    /// By how much the last timed sleeps were too long.
    wakes_ns: [u64; WAKES],
    wakes: usize,
    aside: Vec<u8>,
}

impl Work {
    fn run(&mut self) {
        sys::netns::exact_timers();
        self.told.prompt = sys::netns::be_prompt().is_ok();
        let start_ns = sys::clock::now_ns();
        self.dry_ns = start_ns;
        loop {
            let now_ns = sys::clock::now_ns();
            self.take_changes(now_ns);
            self.write_due(now_ns);
            let is_dry = self.read_some();
            let now_ns = sys::clock::now_ns();
            if now_ns - self.told_ns > TELL_NS {
                self.tell(now_ns, start_ns);
            }
            if is_dry {
                self.wait(now_ns);
            }
            if self.shared.stop.load(Ordering::Acquire) {
                self.tell(sys::clock::now_ns(), start_ns);
                return;
            }
        }
    }

    fn take_changes(&mut self, now_ns: u64) {
        let changed = self.shared.changed.load(Ordering::Acquire);
        if changed != self.seen {
            self.seen = changed;
            let (wire, rtt_ns) = *locked(&self.shared.wire);
            self.line.set(now_ns, wire, rtt_ns);
        }
    }

    fn write_due(&mut self, now_ns: u64) {
        let mut space = [0; HEAD_BYTES_MAX];
        while let Some(run) = self.line.take_due(now_ns) {
            self.is_alert = false;
            let (head, rest) = self.line.bytes(&run, &mut space);
            let mut to = &*self.to;
            let written = if head.is_empty() {
                to.write(rest)
            } else {
                to.write_vectored(&[IoSlice::new(head), IoSlice::new(rest)])
            };
            match written {
                Ok(bytes) => self.line.done(&run, bytes.saturating_sub(VNET_HEADER_BYTES)),
                Err(_) => {
                    self.told.refused += run.count();
                    self.line.done(&run, 0);
                }
            }
            let late_ns = sys::clock::now_ns().saturating_sub(run.due_ns());
            if late_ns > LATE_NS {
                self.told.late_packets += run.count();
                self.told.late_ns_max = self.told.late_ns_max.max(late_ns);
            }
        }
    }

    /// Reads until the host has nothing more, something is due, or it is time to look; says whether there was nothing more.
    fn read_some(&mut self) -> bool {
        let mut from = &*self.from;
        for _ in 0..READS_MAX {
            let (result, has_room) = match self.line.room() {
                Some(room) => (from.read(room), true),
                None => (from.read(&mut self.aside), false),
            };
            let now_ns = sys::clock::now_ns();
            match result {
                Ok(bytes) if has_room => {
                    let slept_ns = self.slept_ns.take();
                    let came_ns = slept_ns.map_or(now_ns, |slept_ns| slept_ns.max(now_ns - self.wake_ns()));
                    self.line.admit(came_ns, bytes);
                }
                Ok(bytes) => self.line.refuse(&self.aside[..bytes]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Dry, or the device is down: either way there is nothing to read now.
                Err(_) => {
                    let busy_ns = now_ns - self.dry_ns;
                    if busy_ns > BEHIND_NS {
                        self.told.behind_ns += busy_ns;
                    }
                    self.dry_ns = now_ns;
                    return true;
                }
            }
            if self.line.next_due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                return false;
            }
        }
        false
    }

    fn wait(&mut self, now_ns: u64) {
        let next_ns = self.line.next_due_ns();
        // Nothing to do, but perhaps something to tell.
        let limit = match next_ns {
            Some(due_ns) => {
                let left_ns = due_ns.saturating_sub(now_ns);
                if self.is_alert && left_ns <= LEAD_NS {
                    self.dry_ns = now_ns;
                    return;
                }
                self.is_alert = left_ns >= ALONE_NS;
                timespec(if self.is_alert { left_ns - LEAD_NS } else { left_ns })
            }
            None if self.told.counts == self.line.counts => None,
            None => timespec(TELL_NS),
        };
        let mut fds = [
            PollFd::from_borrowed_fd(self.from.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.shared.event.as_fd(), PollFlags::IN),
        ];
        // An interruption is a wake like any other: the loop looks again.
        let woken = rustix::event::poll(&mut fds, limit.as_ref());
        if fds[1].revents().contains(PollFlags::IN) {
            self.shared.event.drain();
        }
        self.dry_ns = sys::clock::now_ns();
        if let (Ok(0), Some(limit)) = (woken, limit) {
            let asked_ns = limit.tv_sec.cast_unsigned() * 1_000_000_000 + limit.tv_nsec.cast_unsigned();
            self.wakes_ns[self.wakes % WAKES] = (self.dry_ns - now_ns).saturating_sub(asked_ns);
            self.wakes += 1;
        }
        self.slept_ns = fds[0].revents().contains(PollFlags::IN).then_some(now_ns);
    }

    /// What a packet has waited for this thread to wake, at least.
    fn wake_ns(&self) -> u64 {
        let soonest = self.wakes_ns.iter().copied().min().unwrap_or(0);
        (soonest / 2).min(WAKE_NS)
    }

    fn tell(&mut self, now_ns: u64, start_ns: u64) {
        self.told_ns = now_ns;
        self.told.counts = self.line.counts;
        self.told.cpu_ns = sys::clock::thread_cpu_ns();
        self.told.ran_ns = now_ns - start_ns;
        self.told.queued_bytes = self.line.link().queued_bytes(now_ns);
        *locked(&self.shared.told) = self.told;
    }
}

fn timespec(ns: u64) -> Option<Timespec> {
    Timespec::try_from(std::time::Duration::from_nanos(ns)).ok()
}
