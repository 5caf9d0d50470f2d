//! What goes over a host's interface while something happens.
//!
//! For: rules about a wire, which no report can be asked about. In: a network namespace. Out: the kernel's counters, every 50 ms.
//! Invariants: bytes sent and received are counted together, headers and all.
//! Absent on purpose: whose bytes they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab::hosts::Side;
use lab::pair::DEVICE;

use crate::world::World;

const EVERY: Duration = Duration::from_millis(50);

/// A thread that looks until it is asked.
pub(crate) struct Watch {
    began: Instant,
    is_done: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Look>>,
}

/// The counters at some moment between `before` and `after`: a busy machine lets a thread wait between two lines.
pub(crate) struct Look {
    pub(crate) before: Duration,
    pub(crate) after: Duration,
    pub(crate) sent_bytes: u64,
    received_bytes: u64,
}

impl Watch {
    /// Begins to look at host a's interface.
    pub(crate) fn begin(world: &World) -> Watch {
        Watch::of(world, DEVICE)
    }

    /// The same of another interface there.
    pub(crate) fn of(world: &World, device: &str) -> Watch {
        let (holder, device) = (world.pair().holder(Side::A), device.to_owned());
        let (is_done, began) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let ends = Arc::clone(&is_done);
        let thread = std::thread::spawn(move || {
            let mut seen = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                seen.extend(look(began, holder, &device));
                std::thread::sleep(EVERY);
            }
            seen
        });
        Watch { began, is_done, thread }
    }

    /// How long it has been looking.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// All that it saw.
    pub(crate) fn end(self) -> Vec<Look> {
        self.is_done.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }

    /// The most bytes of any two seconds.
    pub(crate) fn most_of_two_seconds(self) -> u64 {
        let seen = self.end();
        let (mut most, mut from) = (0, 0);
        for (index, to) in seen.iter().enumerate() {
            // At most so long, whenever within its look each counter was read.
            while from < index && seen[from].before + Duration::from_secs(2) < to.after {
                from += 1;
            }
            most = most.max(to.bytes().saturating_sub(seen[from].bytes()));
        }
        most
    }
}

impl Look {
    fn bytes(&self) -> u64 {
        self.sent_bytes + self.received_bytes
    }
}

fn look(began: Instant, holder: u32, device: &str) -> Option<Look> {
    let before = began.elapsed();
    let (received_bytes, sent_bytes) = counters(holder, device)?;
    Some(Look { before, after: began.elapsed(), sent_bytes, received_bytes })
}

/// Bytes received and sent by an interface of the host that this process holds.
pub(crate) fn counters(holder: u32, device: &str) -> Option<(u64, u64)> {
    let table = std::fs::read_to_string(format!("/proc/{holder}/net/dev")).ok()?;
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'))?;
    // Documentation/networking/statistics: eight columns of receiving, then those of sending; bytes first.
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    Some((*numbers.first()?, *numbers.get(8)?))
}
