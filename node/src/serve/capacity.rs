//! How many jobs a daemon takes at once.
//!
//! For: a daemon that stays within its memory grant and its descriptors however many clients come.
//! In and out: the grant, its pool, the limit of descriptors → so many jobs, and what bounds them, in words.
//! Invariants: some jobs always have room, however small the grant; nothing is held for a client that waits (it asks again).
//! Absent on purpose: the user's own bound (`jobs_max`), sharing the pool among those that run.

use std::fmt;

/// What a job holds beside bufs: stacks of its three or four threads 90 KiB, mailboxes 25, TLS, machines and allocator 60 (measured: 100 idle
/// pushes, pulls, over TCP and UDP, each).
const JOB_BYTES: u64 = 192 << 10;
/// Code that was run (14 MiB), and what the allocator keeps for threads that come.
const OWN_BYTES: u64 = 32 << 20;
/// What datagram rails of one worker lend to the network at most, beside bufs (engine/src/rail/datagram/slots.rs: two rails, 8.5 MiB each).
const LENT_BYTES: u64 = 17 << 20;
/// So many take turns at the bufs of the smallest grant; what they hold beside is 6 MiB.
const JOBS_MIN: u64 = 32;
/// A job's session, rails, wakes, and the files that are open at one moment: 5 to 7 measured, one more for the session's datagrams, 4 streams and a
/// burst of small files above.
const JOB_DESCRIPTORS: u64 = 14;
/// The listener's unauthenticated connections have theirs, and so have rings, sockets and files of the daemon itself.
const OWN_DESCRIPTORS: u64 = 384;

/// So many jobs, and why no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// At least one.
    pub jobs: usize,
    bound: Bound,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    Memory,
    Descriptors,
    Setting,
}

impl Capacity {
    /// Of a daemon with this grant, of which `pool_bytes` are bufs, so many workers and descriptors.
    #[must_use]
    pub fn of(memory_bytes: u64, pool_bytes: u64, workers: usize, descriptors: u64) -> Capacity {
        let own_bytes = OWN_BYTES + LENT_BYTES * workers as u64;
        let by_memory = memory_bytes.saturating_sub(pool_bytes + own_bytes) / JOB_BYTES;
        let by_memory = by_memory.max(JOBS_MIN);
        let by_descriptors = descriptors.saturating_sub(OWN_DESCRIPTORS) / JOB_DESCRIPTORS;
        let (jobs, bound) =
            if by_memory <= by_descriptors { (by_memory, Bound::Memory) } else { (by_descriptors, Bound::Descriptors) };
        Capacity { jobs: usize::try_from(jobs).unwrap_or(usize::MAX).max(1), bound }
    }

    /// No more than the user's `jobs_max`.
    #[must_use]
    pub fn at_most(self, jobs_max: usize) -> Capacity {
        if jobs_max < self.jobs { Capacity { jobs: jobs_max, bound: Bound::Setting } } else { self }
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.bound {
            Bound::Memory => "as many as its memory grant holds (serve --memory)",
            Bound::Descriptors => "as many as its limit of open files allows (ulimit -n)",
            Bound::Setting => "as many as its jobs_max",
        };
        write!(out, "{} jobs are running, {why}", self.jobs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_daemon_takes_as_many_jobs_as_memory_and_descriptors_hold_and_always_some() {
        let default = Capacity::of(256 * MIB, 128 * MIB, 2, 20_000);
        assert_eq!((default.jobs, default.bound), (330, Bound::Memory));
        assert!(
            Capacity::of(512 * MIB, 256 * MIB, 2, 20_000).jobs >= 1000,
            "a thousand at once, of 512 MiB and the usual descriptors"
        );
        let few = Capacity::of(1024 * MIB, 512 * MIB, 2, 1024);
        assert_eq!((few.jobs, few.bound), (45, Bound::Descriptors));
        assert_eq!(few.to_string(), "45 jobs are running, as many as its limit of open files allows (ulimit -n)");
        assert_eq!(Capacity::of(16 * MIB, 12 * MIB, 2, 20_000).jobs, 32);
        assert_eq!(Capacity::of(16 * MIB, 12 * MIB, 2, 64).jobs, 1);
        assert_eq!(default.at_most(7).to_string(), "7 jobs are running, as many as its jobs_max");
        assert_eq!(default.at_most(330), default);
    }
}
