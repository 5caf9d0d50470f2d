//! The loop: reap completions → dispatch them → step all rails → report, in batches.
//!
//! For: all movement of payload of all jobs on one core.
//! In and out: `Cmd` in, `Event` out; ops to the platform, completions back.
//! Invariants: this folder alone owns control flow: steps of `ends`, `seal` and `rail` are called in `steps.rs` and nowhere else, and never call
//! each other. The loop waits only in `Platform::wait`.
//! Absent on purpose: deciding what to send (`proto`, by the job's end), names, fsync, rename (job ends and committers).

mod commands; // what workers are told
mod steps; // the calls of steps
mod bufs; // who gets a buf
mod waiting; // why an iteration waits
pub(crate) mod cx; // what a step works with
pub(crate) mod slots; // ops in flight
pub mod stages; // every moment of the thread booked to one stage
pub mod bound; // --rate: one bound for all rails of a job
pub mod limit; // and what comes of a sender that ignores it

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use proto::books::Stage;

use crate::ends::End;
use crate::job::{Cmd, Event, EventQueue, JobNo, Offered, Terms};
use crate::platform::{Done, Platform};
use crate::rail::Rail;
use crate::rail::datagram::BURSTS_PER_ITERATION;
use crate::worker::bound::Bound;
use crate::worker::cx::Share;
use crate::worker::slots::Slots;
use crate::worker::stages::{Counters, Stopwatch};

/// A job on this worker.
#[derive(Debug)]
struct JobState<P: Platform> {
    end: End<P>,
    terms: Terms,
    events: EventQueue,
    bound: Arc<Bound>,
    /// It sends, and chunks are read where they are written: by these workers of the other end.
    offers: Vec<SyncSender<Offered<P::File>>>,
    closing: bool,
    /// `Event::Closed` is in the queue; what is late still has to go.
    closed: bool,
}

impl<P: Platform> JobState<P> {
    /// Where this rail's chunks are offered, if they are.
    fn offers_of(&self, rail: u16) -> Option<SyncSender<Offered<P::File>>> {
        let at = usize::from(rail).checked_rem(self.offers.len())?;
        Some(self.offers[at].clone())
    }
}

/// One worker: one thread, one ring, one pool.
#[derive(Debug)]
pub struct Worker<P: Platform> {
    platform: P,
    watch: Stopwatch,
    /// By number, so that every walk over them is in one order.
    jobs: BTreeMap<JobNo, JobState<P>>,
    rails: Vec<Option<Rail<P>>>,
    slots: Slots,
    /// Bufs that senders leave to receivers.
    reserve: usize,
    /// Bufs that chunks sent for the first time leave to others in this iteration.
    left_by_fill: usize,
    /// In this iteration nobody found nothing to unload.
    may_unload: bool,
    /// What each rail may take of this iteration, and who else is there.
    share: Share,
    mailbox: Receiver<Cmd<P>>,
    done: Vec<Done>,
    first: usize,
    late: bool,
    stops: bool,
}

/// So often a full mailbox is tried again, a millisecond apart, when a worker ends by a panic.
const GIVE_UP_TRIES: u32 = 1000;
/// The longest sleep: accounts are published and late events moved at least so often.
const SLEEP_NS_MAX: u64 = 100_000_000;

/// Completions dispatched in an iteration: each may be a chunk to open and write, a millisecond or two. The others wait for the next, so that with hundreds of
/// rails a newcomer's commands and chunks do not wait for all of them at each of their steps.
const DONE_PER_ITERATION: usize = 32;
/// One of so many bufs is for small chunks alone. Where hundreds of large ones come and go, whoever takes a buf at once takes each that comes
/// back, and a newcomer's 13 bytes, which must find more than one, waited for up to 16 s beside a thousand jobs.
const SMALL_PART: usize = 8;

impl<P: Platform> Worker<P> {
    /// A worker that takes its commands from `mailbox`.
    pub fn new(mut platform: P, mailbox: Receiver<Cmd<P>>, counters: Arc<Counters>) -> Self {
        let pool = platform.pool();
        let apart = pool.count() / SMALL_PART;
        pool.keep_apart(apart);
        let reserve = (pool.count() / 4 - apart).max(1);
        Worker {
            platform,
            watch: Stopwatch::new(counters),
            jobs: BTreeMap::new(),
            rails: Vec::new(),
            slots: Slots::new(),
            reserve,
            left_by_fill: reserve,
            may_unload: true,
            share: Share { bursts: BURSTS_PER_ITERATION, receivers: 0, pairs: 0, lenders: 0 },
            mailbox,
            done: Vec::with_capacity(256),
            first: 0,
            late: false,
            stops: false,
        }
    }

    /// Runs until `Cmd::Stop` or until every sender of the mailbox is gone.
    pub fn run(&mut self) {
        while self.turn(SLEEP_NS_MAX) {}
    }

    /// The thread panicked in the middle of an iteration: every job that was here is told, and the mailbox goes to whoever follows.
    pub(crate) fn give_up(self, why: &str) -> Receiver<Cmd<P>> {
        for mut job in self.jobs.into_values() {
            job.events.push(Event::Panicked { why: why.to_owned() });
            // A job's end that does not empty its mailbox for so long has its watchdog.
            for _ in 0..GIVE_UP_TRIES {
                if !job.events.flush() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        self.mailbox
    }

    /// One iteration. Returns whether there is to be another.
    pub fn turn(&mut self, sleep_ns_max: u64) -> bool {
        self.watch.lap(Stage::Loop);
        let (stage, sleep_ns) = self.why_wait(sleep_ns_max);
        let sleep_ns = if self.done.is_empty() { sleep_ns } else { 0 };
        let mut done = std::mem::take(&mut self.done);
        self.watch.begin_wait(stage);
        let busy_from = self.platform.busy_ns();
        self.platform.wait(sleep_ns, &mut done);
        let busy = self.platform.busy_ns().saturating_sub(busy_from);
        self.watch.lap_wait(stage, waiting::work_of(stage), busy);
        // Commands after completions: what a completed receive speaks of was told to us before the peer could send it.
        self.take_commands();
        self.ripen_pairs();
        for completion in done.drain(..done.len().min(DONE_PER_ITERATION)) {
            self.dispatch(completion);
        }
        self.done = done;
        self.land_held();
        self.step_rails();
        self.settle();
        !self.stops
    }

    /// Where the datagram rails stand, for a test or a watchdog that found everything still.
    #[must_use]
    pub fn describe_paths(&mut self) -> String {
        let free = self.platform.pool().free();
        let rails = self.rails.iter().enumerate().filter_map(|(index, rail)| match rail {
            Some(Rail::Datagram(rail)) => Some((self.slots.in_flight(index), rail)),
            _ => None,
        });
        let rails = format!("{:#?}", rails.collect::<Vec<_>>());
        let count = self.platform.pool().count();
        let feeds: Vec<_> =
            self.rails.iter_mut().flatten().filter_map(|rail| rail.feed().map(|feed| feed.counts())).collect();
        format!(
            "{free} bufs of {count} free, reserve {}, feeds (waiting, filled, reads, ahead) {feeds:?}, rails {rails}",
            self.reserve
        )
    }

    fn find_rail(&self, which: impl Fn(&Rail<P>) -> bool) -> Option<usize> {
        self.rails.iter().position(|rail| rail.as_ref().is_some_and(|rail| which(rail) && !rail.base().has_ended()))
    }

    /// Takes leave of ended rails and closed jobs, and wakes the jobs' ends.
    fn settle(&mut self) {
        for index in 0..self.rails.len() {
            let is_over = |rail: &mut Rail<P>| rail.base().has_ended() && self.slots.in_flight(index) == 0;
            let Some(mut rail) = self.rails[index].take_if(is_over) else { continue };
            if rail.is_read_by_network() {
                // The bufs will be filled again, and what a dying connection still sends must not come out of them.
                self.platform.abort(&rail.base().socket);
            }
            if let Rail::Rdma(rail) = &rail {
                self.platform.pair_over(&rail.base.socket, rail.receives_open());
            }
            let (job, number, end) = (rail.base().job, rail.base().number, rail.base_mut().take_end());
            rail.give_bufs(|buf| self.platform.pool().give(buf));
            if let Some(job) = self.jobs.get_mut(&job) {
                job.events.push(Event::RailDead { rail: number, end });
            }
        }
        self.late = false;
        self.watch.lap(Stage::Loop);
        self.watch.spared.direct = self.platform.direct_bytes();
        // Before the wake-up: a job's end that hears "closed" reads what the job's last iteration counted.
        self.watch.publish();
        let snapshot = self.watch.snapshot();
        let rails = &self.rails;
        for (&number, job) in &mut self.jobs {
            if job.closing && !job.closed && !rails.iter().flatten().any(|rail| rail.base().job == number) {
                job.closed = true;
                job.events.push(Event::Closed { books: Box::new(snapshot) });
            }
            self.late |= job.end.flush_told();
            self.late |= job.events.flush();
        }
        self.jobs.retain(|_, job| !job.closed || job.end.flush_told() | job.events.flush());
    }
}
