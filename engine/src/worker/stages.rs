//! Stopwatch: every moment of a worker thread goes to exactly one stage.
//!
//! For: the books of `proto::books`, kept with one clock read per change of stage; and the bytes that were spared a copy.
//! In and out: `lap(stage)` books the time since the last lap, whoever moves bytes counts what was spared; readers take snapshots from
//! shared counters.
//! Invariants: the sum of all stages is the thread's wall time since `new`, by construction.
//! Absent on purpose: judging (proto::books::limiter).

use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use proto::books::{STAGES, Stage};

/// What is booked up to a moment.
#[derive(Debug, Default)]
struct Booked {
    ns: [AtomicU64; STAGES],
    /// The stage that what has passed since `since_ns` (of `sys::clock::now_ns`) counts as; 0: the thread has not begun.
    stage: AtomicUsize,
    since_ns: AtomicU64,
}

impl Booked {
    fn read(&self) -> (Snapshot, usize, u64) {
        let ns = std::array::from_fn(|index| self.ns[index].load(Ordering::Relaxed));
        (ns, self.stage.load(Ordering::Relaxed), self.since_ns.load(Ordering::Relaxed))
    }

    fn write(&self, ns: &Snapshot, stage: Stage, since_ns: u64) {
        for (shared, own) in self.ns.iter().zip(ns) {
            shared.store(*own, Ordering::Relaxed);
        }
        self.stage.store(stage as usize, Ordering::Relaxed);
        self.since_ns.store(since_ns, Ordering::Relaxed);
    }
}

/// One writer (the worker), many readers.
#[derive(Debug, Default)]
pub struct Counters {
    /// How often the writer turned from one copy to the other: readers take the one that it does not change, also while it has lost its core
    /// in the middle (a latch, Documentation/locking/seqlock.rst).
    turn: AtomicU64,
    /// Even turns: the first.
    copies: [Booked; 2],
    direct: AtomicU64,
    lent: AtomicU64,
    unread: AtomicU64,
}

/// Bytes that were not copied where they usually are, since the thread began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spared {
    /// Between a disk and a buf, past the page cache.
    pub direct: u64,
    /// Between a buf, or the page cache, and the network.
    pub lent: u64,
    /// From the page cache to the network, through no buf.
    pub unread: u64,
}

impl Add for Spared {
    type Output = Spared;

    fn add(self, other: Spared) -> Spared {
        let (direct, lent) = (self.direct + other.direct, self.lent + other.lent);
        Spared { direct, lent, unread: self.unread + other.unread }
    }
}

impl Sub for Spared {
    type Output = Spared;

    fn sub(self, then: Spared) -> Spared {
        let (direct, lent) = (self.direct - then.direct, self.lent - then.lent);
        Spared { direct, lent, unread: self.unread - then.unread }
    }
}

/// Nanoseconds per stage at one moment.
pub type Snapshot = [u64; STAGES];

/// What a reader saw of a thread's counters, and when: between two looks the stages sum to the time between their moments, however
/// long the reader itself was kept from its core in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Booked up to `at_ns`.
    pub ns: Snapshot,
    /// Of `sys::clock::now_ns`.
    pub at_ns: u64,
}

impl Look {
    /// What passed since an earlier look at the same thread, stage by stage, and by the clock.
    #[must_use]
    pub fn since(&self, then: &Look) -> (Snapshot, u64) {
        let mut ns: Snapshot = std::array::from_fn(|stage| self.ns[stage].saturating_sub(then.ns[stage]));
        // What the earlier look took to be one stage's, because more was not known yet, and turned out to be another's: that has it now.
        let mut over: u64 = then.ns.iter().zip(self.ns).map(|(then, now)| then.saturating_sub(now)).sum();
        while over > 0
            && let Some(most) = ns.iter_mut().max().filter(|most| **most > 0)
        {
            let taken = over.min(*most);
            *most -= taken;
            over -= taken;
        }
        (ns, self.at_ns.saturating_sub(then.at_ns))
    }
}

impl Counters {
    /// What is booked so far, up to now: a thread that waits is counted as waiting, one that runs as in its loop.
    #[must_use]
    pub fn look(&self) -> Look {
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            let (mut ns, stage, since) = self.copies[(turn & 1) as usize].read();
            fence(Ordering::Acquire);
            // Else the writer has turned to this copy meanwhile: it has its core, and is elsewhere before long.
            if self.turn.load(Ordering::Relaxed) == turn {
                let at_ns = sys::clock::now_ns().max(since);
                if since > 0 {
                    ns[stage] += at_ns - since;
                }
                return Look { ns, at_ns };
            }
            std::thread::yield_now();
        }
    }

    fn write(&self, ns: &Snapshot, stage: Stage, since_ns: u64) {
        let turn = self.turn.load(Ordering::Relaxed);
        for (copy, turn) in self.copies.iter().zip([turn + 1, turn + 2]) {
            // Nobody reads this copy from here on who does not see that it was turned from; what was written of the other is seen by all who read it.
            self.turn.store(turn, Ordering::Release);
            fence(Ordering::Release);
            copy.write(ns, stage, since_ns);
        }
    }

    /// What was spared so far.
    #[must_use]
    pub fn spared(&self) -> Spared {
        let [direct, lent, unread] = [&self.direct, &self.lent, &self.unread].map(|it| it.load(Ordering::Relaxed));
        Spared { direct, lent, unread }
    }
}

/// The worker's own side.
#[derive(Debug)]
pub struct Stopwatch {
    last_ns: u64,
    ns: Snapshot,
    /// Counted by the steps that move bytes.
    pub(crate) spared: Spared,
    shared: Arc<Counters>,
}

impl Stopwatch {
    /// Starts now.
    #[must_use]
    pub fn new(shared: Arc<Counters>) -> Self {
        let watch = Stopwatch { last_ns: sys::clock::now_ns(), ns: [0; STAGES], spared: Spared::default(), shared };
        watch.publish();
        watch
    }

    fn passed(&mut self) -> u64 {
        let now = sys::clock::now_ns();
        let passed = now.saturating_sub(self.last_ns);
        self.last_ns = now;
        passed
    }

    /// Everything since the last lap was `stage`: so many nanoseconds.
    pub fn lap(&mut self, stage: Stage) -> u64 {
        let ns = self.passed();
        self.ns[stage as usize] += ns;
        ns
    }

    /// Everything since the last lap was waiting in the platform; `busy_ns` of it the thread was running after all (a ring copies
    /// while it waits), which is `work`, the rest is `wait`.
    pub fn lap_wait(&mut self, wait: Stage, work: Stage, busy_ns: u64) {
        let all = self.passed();
        let busy = busy_ns.min(all);
        self.ns[work as usize] += busy;
        self.ns[wait as usize] += all - busy;
    }

    /// The thread goes to wait in `stage`: readers count what passes since the last lap as that until `publish`.
    pub fn begin_wait(&self, stage: Stage) {
        self.shared.write(&self.ns, stage, self.last_ns);
    }

    /// Lets readers see it; once per turn of the loop. What passes from here on is the loop's until more is known.
    pub fn publish(&self) {
        self.shared.direct.store(self.spared.direct, Ordering::Relaxed);
        self.shared.lent.store(self.spared.lent, Ordering::Relaxed);
        self.shared.unread.store(self.spared.unread, Ordering::Relaxed);
        self.shared.write(&self.ns, Stage::Loop, self.last_ns);
    }

    /// What is booked so far.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.ns
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    struct Ended<'a>(&'a std::sync::atomic::AtomicBool);

    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_stages_sum_to_the_wall_time() {
        let counters = Arc::new(Counters::default());
        let started = Instant::now();
        let mut watch = Stopwatch::new(counters.clone());
        for round in 0..50_u64 {
            watch.lap(Stage::ALL[round as usize % STAGES]);
            if round % 10 == 0 {
                std::thread::sleep(std::time::Duration::from_micros(300));
                watch.lap_wait(Stage::WaitRead, Stage::Read, round * 10_000);
            }
        }
        watch.lap(Stage::Loop);
        let wall = started.elapsed().as_nanos() as u64;
        let sum: u64 = watch.snapshot().iter().sum();
        assert!(sum <= wall && wall - sum < 5_000_000, "{sum} of {wall} ns");
        watch.publish();
        let (seen, own) = (counters.look().ns, watch.snapshot());
        let ahead: u64 = seen.iter().zip(own).map(|(seen, own)| seen - own).sum();
        assert!(ahead < 5_000_000 && seen.iter().zip(own).skip(1).all(|(seen, own)| *seen >= own));
    }

    #[test]
    fn a_reader_sees_all_time_up_to_its_look_whatever_the_thread_is_at() {
        let counters = Arc::new(Counters::default());
        let over = std::sync::atomic::AtomicBool::new(false);
        let begun = sys::clock::now_ns();
        std::thread::scope(|scope| {
            // Also when an assertion fails: the thread is waited for.
            let _end = Ended(&over);
            scope.spawn(|| {
                let mut watch = Stopwatch::new(counters.clone());
                while !over.load(Ordering::Relaxed) {
                    watch.lap(Stage::Hash);
                    watch.begin_wait(Stage::WaitRead);
                    watch.lap_wait(Stage::WaitRead, Stage::Read, 0);
                    watch.publish();
                }
            });
            let sum = || counters.look().ns.iter().sum::<u64>();
            while sum() == 0 {}
            let (mut last, late) = (0, sys::clock::now_ns() - begun);
            for _ in 0..200_000 {
                let (from, seen, to) = (sys::clock::now_ns(), sum(), sys::clock::now_ns());
                // The thread began between `begun` and the first look.
                assert!(
                    seen + late + begun >= from && seen + begun <= to,
                    "{seen} at {} to {}",
                    from - begun,
                    to - begun
                );
                assert!(seen >= last, "time does not run back");
                last = seen;
            }
            // Whenever a reader looks, and whatever happens to it between its look and the next thing it does.
            let first = counters.look();
            for turn in 0..200 {
                let look = counters.look();
                let (ns, wall) = look.since(&first);
                assert_eq!(ns.iter().sum::<u64>(), wall);
                assert!(look.at_ns <= sys::clock::now_ns());
                if turn % 50 == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            }
        });
    }

    #[test]
    fn more_work_than_time_is_not_booked() {
        let mut watch = Stopwatch::new(Arc::new(Counters::default()));
        watch.lap_wait(Stage::WaitSend, Stage::Send, u64::MAX);
        let ns = watch.snapshot();
        assert_eq!(ns[Stage::WaitSend as usize], 0);
        assert!(ns[Stage::Send as usize] < 1_000_000_000);
    }
}
