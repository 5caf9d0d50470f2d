//! Laps: every moment of a worker thread goes to exactly one stage.
//!
//! For: the books of `proto::books`, kept with one clock read per change of stage; and the bytes that were spared a copy.
//! In and out: `lap(stage)` books the time since the last lap, whoever moves bytes counts what was spared; readers take snapshots from
//! shared counters.
//! Invariants: the sum of all stages is the thread's wall time since `new`, by construction.
//! Absent on purpose: judging (proto::books::limiter).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use proto::books::{STAGES, Stage};

/// One writer (the worker), many readers.
#[derive(Debug, Default)]
pub struct Counters {
    ns: [AtomicU64; STAGES],
    /// The stage a thread waits in since `since_ns` (of `sys::clock::now_ns`); 0: it runs.
    waits: AtomicUsize,
    since_ns: AtomicU64,
    direct: AtomicU64,
    lent: AtomicU64,
}

/// Bytes that were not copied where they usually are, since the thread began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spared {
    /// Between a disk and a buf, past the page cache.
    pub direct: u64,
    /// Between a buf, or the page cache, and the network.
    pub lent: u64,
}

/// Nanoseconds per stage at one moment.
pub type Snapshot = [u64; STAGES];

impl Counters {
    /// What is booked so far, the wait that is going on included.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut ns: Snapshot = std::array::from_fn(|index| self.ns[index].load(Ordering::Relaxed));
        let since = self.since_ns.load(Ordering::Acquire);
        if since > 0 {
            ns[self.waits.load(Ordering::Relaxed)] += sys::clock::now_ns().saturating_sub(since);
        }
        ns
    }

    /// What was spared so far.
    #[must_use]
    pub fn spared(&self) -> Spared {
        Spared { direct: self.direct.load(Ordering::Relaxed), lent: self.lent.load(Ordering::Relaxed) }
    }
}

/// The worker's own side.
#[derive(Debug)]
pub struct Laps {
    last: Instant,
    ns: Snapshot,
    /// Counted by the steps that move bytes.
    pub(crate) spared: Spared,
    shared: Arc<Counters>,
}

impl Laps {
    /// Starts now.
    #[must_use]
    pub fn new(shared: Arc<Counters>) -> Self {
        Laps { last: Instant::now(), ns: [0; STAGES], spared: Spared::default(), shared }
    }

    /// Everything since the last lap was `stage`.
    pub fn lap(&mut self, stage: Stage) {
        let now = Instant::now();
        self.ns[stage as usize] += u64::try_from(now.duration_since(self.last).as_nanos()).unwrap_or(u64::MAX);
        self.last = now;
    }

    /// Everything since the last lap was waiting in the platform; `busy_ns` of it the thread was running after all (a ring copies
    /// while it waits), which is `work`, the rest is `wait`.
    pub fn lap_wait(&mut self, wait: Stage, work: Stage, busy_ns: u64) {
        let now = Instant::now();
        let all = u64::try_from(now.duration_since(self.last).as_nanos()).unwrap_or(u64::MAX);
        let busy = busy_ns.min(all);
        self.ns[work as usize] += busy;
        self.ns[wait as usize] += all - busy;
        self.last = now;
    }

    /// The thread goes to wait in `stage`: readers count it as that until `publish`.
    pub fn begin_wait(&self, stage: Stage) {
        self.publish();
        self.shared.waits.store(stage as usize, Ordering::Relaxed);
        self.shared.since_ns.store(sys::clock::now_ns(), Ordering::Release);
    }

    /// Lets readers see it; once per turn of the loop.
    pub fn publish(&self) {
        self.shared.since_ns.store(0, Ordering::Release);
        for (shared, own) in self.shared.ns.iter().zip(self.ns) {
            shared.store(own, Ordering::Relaxed);
        }
        self.shared.direct.store(self.spared.direct, Ordering::Relaxed);
        self.shared.lent.store(self.spared.lent, Ordering::Relaxed);
    }

    /// What is booked so far.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stages_sum_to_the_wall_time() {
        let counters = Arc::new(Counters::default());
        let started = Instant::now();
        let mut laps = Laps::new(counters.clone());
        for round in 0..50_u64 {
            laps.lap(Stage::ALL[round as usize % STAGES]);
            if round % 10 == 0 {
                std::thread::sleep(std::time::Duration::from_micros(300));
                laps.lap_wait(Stage::WaitRead, Stage::Read, round * 10_000);
            }
        }
        laps.lap(Stage::Loop);
        let wall = started.elapsed().as_nanos() as u64;
        let sum: u64 = laps.snapshot().iter().sum();
        assert!(sum <= wall && wall - sum < 5_000_000, "{sum} of {wall} ns");
        laps.publish();
        assert_eq!(counters.snapshot(), laps.snapshot());
    }

    #[test]
    fn more_work_than_time_is_not_booked() {
        let mut laps = Laps::new(Arc::new(Counters::default()));
        laps.lap_wait(Stage::WaitSend, Stage::Send, u64::MAX);
        let ns = laps.snapshot();
        assert_eq!(ns[Stage::WaitSend as usize], 0);
        assert!(ns[Stage::Send as usize] < 1_000_000_000);
    }
}
