//! Books: each moment of a worker booked to a stage, and the one sentence that names the limiter.
//!
//! For: the truth about where time goes, on both ends, side by side.
//! In and out: nanoseconds per stage in; a verdict and a sentence out.
//! Invariants: stages of one end sum to workers × wall time (± 2 %); a sentence never claims more than the books show.
//! Absent on purpose: the clock (engine laps it).

use alloc::vec::Vec;

use crate::error::Breach;
use crate::wire::codec::{Reader, put};

mod limiter; // both ends' books side by side: what limited the run
pub mod memory; // how often a byte crosses an end's memory

pub use limiter::{End, Run, Verdict, What, about, goodput, limiter};

/// Where a worker's moment went. The order is the order of the data path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Stage {
    /// Reading the source (system call or ring submission that copies).
    Read = 0,
    /// Digest and CRC.
    Hash = 1,
    /// Seal (sender) or open (receiver).
    Seal = 2,
    /// Handing frames to the network.
    Send = 3,
    /// Taking frames from the network.
    Recv = 4,
    /// Writing the destination, small files and their names included.
    Write = 5,
    /// The loop itself: mailbox, bookkeeping.
    Loop = 6,
    /// Waiting for source reads with nothing else to do.
    WaitRead = 7,
    /// Sends are stuck: the peer or the network does not take more.
    WaitSend = 8,
    /// Waiting for data from the network.
    WaitRecv = 9,
    /// All bufs wait for the destination disk.
    WaitWrite = 10,
    /// Held back by `--rate` or a key's cap.
    WaitRate = 11,
    /// Nothing to do for any job: no work was handed out (scan, control, commit or the other end decides).
    Idle = 12,
}

/// How many stages there are.
pub const STAGES: usize = 13;

/// Nanoseconds per stage, summed over the workers of one end, since the job began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Books {
    /// Indexed by `Stage`.
    pub ns: [u64; STAGES],
    /// Wall nanoseconds × workers that the above must sum to.
    pub wall_ns: u64,
    /// Workers.
    pub workers: u16,
    /// CPU nanoseconds of the whole process, user and system.
    pub cpu_ns: u64,
    /// Peak resident memory of the process, bytes.
    pub peak_memory_bytes: u64,
    /// Payload bytes moved (plain).
    pub payload_bytes: u64,
    /// Bytes handed to or taken from rails, headers and tags included.
    pub rail_bytes: u64,
    /// Payload bytes sent more than once.
    pub resent_bytes: u64,
    /// Nanoseconds the committer spent flushing and renaming (own thread, not part of the sum).
    pub commit_ns: u64,
    /// Nanoseconds in which workers were ready to run and had no core: others ran there, or a quota was used up. They are in the
    /// stages above, wherever they fell.
    pub run_delay_ns: u64,
}

impl Stage {
    /// All stages, in the order of the data path.
    pub const ALL: [Stage; STAGES] = [
        Stage::Read,
        Stage::Hash,
        Stage::Seal,
        Stage::Send,
        Stage::Recv,
        Stage::Write,
        Stage::Loop,
        Stage::WaitRead,
        Stage::WaitSend,
        Stage::WaitRecv,
        Stage::WaitWrite,
        Stage::WaitRate,
        Stage::Idle,
    ];

    /// As reports write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Read => "source read",
            Stage::Hash => "hash",
            Stage::Seal => "seal",
            Stage::Send => "send",
            Stage::Recv => "receive",
            Stage::Write => "destination write",
            Stage::Loop => "loop",
            Stage::WaitRead => "wait for source",
            Stage::WaitSend => "wait to send",
            Stage::WaitRecv => "wait to receive",
            Stage::WaitWrite => "wait for destination",
            Stage::WaitRate => "held by rate cap",
            Stage::Idle => "idle",
        }
    }

    /// Does the worker do nothing for the job in this stage?
    #[must_use]
    pub const fn is_wait(self) -> bool {
        self as usize >= Stage::WaitRead as usize
    }
}

impl Books {
    /// Takes another set of books of the same end into these: times and bytes add up, peaks do not.
    pub fn add(&mut self, other: &Books) {
        for (sum, ns) in self.ns.iter_mut().zip(other.ns) {
            *sum = sum.saturating_add(ns);
        }
        self.wall_ns = self.wall_ns.saturating_add(other.wall_ns);
        self.workers = self.workers.saturating_add(other.workers);
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.peak_memory_bytes = self.peak_memory_bytes.max(other.peak_memory_bytes);
        self.payload_bytes = self.payload_bytes.saturating_add(other.payload_bytes);
        self.rail_bytes = self.rail_bytes.saturating_add(other.rail_bytes);
        self.resent_bytes = self.resent_bytes.saturating_add(other.resent_bytes);
        self.commit_ns = self.commit_ns.saturating_add(other.commit_ns);
        self.run_delay_ns = self.run_delay_ns.saturating_add(other.run_delay_ns);
    }

    /// Nanoseconds of one stage.
    #[must_use]
    pub const fn of(&self, stage: Stage) -> u64 {
        self.ns[stage as usize]
    }

    /// Nanoseconds in which workers did something for the job.
    #[must_use]
    pub fn busy_ns(&self) -> u64 {
        Stage::ALL.iter().filter(|stage| !stage.is_wait()).fold(0, |sum, &stage| sum.saturating_add(self.of(stage)))
    }

    /// Nanoseconds booked to any stage.
    #[must_use]
    pub fn booked_ns(&self) -> u64 {
        self.ns.iter().fold(0, |sum, &ns| sum.saturating_add(ns))
    }

    /// How far the stages are from workers × wall time, in thousandths; 20 is the promise.
    #[must_use]
    pub fn unbooked_permille(&self) -> u32 {
        if self.wall_ns == 0 {
            return 0;
        }
        let gap = u128::from(self.booked_ns().abs_diff(self.wall_ns));
        u32::try_from(gap * 1000 / u128::from(self.wall_ns)).unwrap_or(u32::MAX)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for ns in self.ns {
            put!(out, ns);
        }
        put!(out, self.wall_ns, self.workers, self.cpu_ns, self.peak_memory_bytes, self.payload_bytes);
        put!(out, self.rail_bytes, self.resent_bytes, self.commit_ns, self.run_delay_ns);
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Books, Breach> {
        let mut ns = [0; STAGES];
        for ns in &mut ns {
            *ns = from.u64()?;
        }
        Ok(Books {
            ns,
            wall_ns: from.u64()?,
            workers: from.u16()?,
            cpu_ns: from.u64()?,
            peak_memory_bytes: from.u64()?,
            payload_bytes: from.u64()?,
            rail_bytes: from.u64()?,
            resent_bytes: from.u64()?,
            commit_ns: from.u64()?,
            run_delay_ns: from.u64()?,
        })
    }
}
