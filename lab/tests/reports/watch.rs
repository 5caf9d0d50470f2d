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
    is_done: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Look>>,
}

/// The counters at some moment between `before` and `after`: a busy machine lets a thread wait between two lines.
struct Look {
    before: Duration,
    after: Duration,
    bytes: u64,
}

impl Watch {
    /// Begins to look at host a's interface.
    pub(crate) fn begin(world: &World) -> Watch {
        let holder = world.pair().holder(Side::A);
        let is_done = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_done);
        let thread = std::thread::spawn(move || {
            let (began, mut seen) = (Instant::now(), Vec::new());
            while !ends.load(Ordering::Relaxed) {
                let before = began.elapsed();
                seen.extend(bytes(holder).map(|bytes| Look { before, after: began.elapsed(), bytes }));
                std::thread::sleep(EVERY);
            }
            seen
        });
        Watch { is_done, thread }
    }

    /// The most bytes of any two seconds.
    pub(crate) fn most_of_two_seconds(self) -> u64 {
        self.is_done.store(true, Ordering::Relaxed);
        let seen = self.thread.join().unwrap_or_default();
        let (mut most, mut from) = (0, 0);
        for (index, to) in seen.iter().enumerate() {
            // At most so long, whenever within its look each counter was read.
            while from < index && seen[from].before + Duration::from_secs(2) < to.after {
                from += 1;
            }
            most = most.max(to.bytes.saturating_sub(seen[from].bytes));
        }
        most
    }
}

/// Received and sent by the interface of the host that this process holds.
fn bytes(holder: u32) -> Option<u64> {
    let table = std::fs::read_to_string(format!("/proc/{holder}/net/dev")).ok()?;
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(DEVICE)?.strip_prefix(':'))?;
    // Documentation/networking/statistics: eight columns of receiving, then those of sending; bytes first.
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    Some(numbers.first()? + numbers.get(8)?)
}
