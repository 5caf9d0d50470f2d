//! The loop: reap completions → dispatch them → step all rails → report, in batches.
//!
//! For: all movement of payload of all jobs on one core.
//! In and out: `Cmd` in, `Event` out; ops to the platform, completions back.
//! Invariants: this folder alone owns control flow: steps of `ends`, `seal` and `rail` are called in `steps.rs` and nowhere else, and never call
//! each other. The loop waits only in `Platform::wait`.
//! Absent on purpose: deciding what to send (`proto`, by the job's end), names, fsync, rename (job ends and committers).

mod steps; // the calls of steps
pub(crate) mod cx; // what a step works with
pub(crate) mod slots; // ops in flight
pub mod stages; // every moment of the thread booked to one stage
pub mod bound; // --rate: one bound for all rails of a job
pub mod limit; // and what comes of a sender that ignores it

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use proto::books::Stage;
use proto::rate::RateConfig;
use proto::send::{Assignment, Unit};

use crate::ends::End;
use crate::ends::file_sink::LOOK_NS;
use crate::job::{Cmd, Event, EventQueue, JobNo, JobPart, RailPace, Terms};
use crate::platform::{Done, Platform};
use crate::rail::Rail;
use crate::rail::base::Base;
use crate::rail::datagram::{BURSTS_PER_ITERATION, Datagram, Pause};
use crate::rail::stream::Stream;
use crate::worker::bound::Bound;
use crate::worker::cx::Share;
use crate::worker::slots::{KINDS, Kind, Slots};
use crate::worker::stages::{Counters, Stopwatch};

/// A job on this worker.
#[derive(Debug)]
struct JobState<P: Platform> {
    end: End<P>,
    terms: Terms,
    events: EventQueue,
    bound: Arc<Bound>,
    closing: bool,
    /// `Event::Closed` is in the queue; what is late still has to go.
    closed: bool,
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
            share: Share { bursts: BURSTS_PER_ITERATION, receivers: 0, lenders: 0 },
            mailbox,
            done: Vec::with_capacity(256),
            first: 0,
            late: false,
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
        self.watch.lap_wait(stage, work_of(stage), busy);
        // Commands after completions: what a completed receive speaks of was told to us before the peer could send it.
        let go_on = self.take_commands();
        let some = done.len().min(DONE_PER_ITERATION);
        for completion in done.drain(..some) {
            self.dispatch(completion);
        }
        self.done = done;
        self.land_held();
        self.step_rails();
        self.settle();
        go_on
    }

    /// Where the datagram rails stand, for a test or a watchdog that found everything still.
    #[must_use]
    pub fn describe_paths(&mut self) -> String {
        let free = self.platform.pool().free();
        let rails = self.rails.iter().enumerate().filter_map(|(index, rail)| match rail {
            Some(Rail::Datagram(rail)) => Some((self.slots.in_flight(index), rail)),
            _ => None,
        });
        format!("{free} bufs free, reserve {}, rails {:#?}", self.reserve, rails.collect::<Vec<_>>())
    }

    fn why_wait(&self, sleep_ns_max: u64) -> (Stage, u64) {
        if self.late {
            return (Stage::Idle, 1_000_000);
        }
        let now = self.platform.now_ns();
        let mut counts = [0_usize; KINDS];
        let mut sleep_ns = sleep_ns_max;
        for slot in self.slots.iter() {
            counts[slot.kind as usize] += 1;
        }
        let (mut held, mut hungry, mut paused, mut stuck, mut listening) = (false, false, false, false, false);
        for rail in self.rails.iter().flatten() {
            paused |= rail.base().paused;
            match rail {
                Rail::Stream(rail) => {
                    if let Some(wait_ns) = rail.held_ns(now) {
                        held = true;
                        sleep_ns = sleep_ns.min(wait_ns);
                    }
                    hungry |= rail.is_hungry();
                }
                Rail::Datagram(rail) if !rail.wire.base.has_ended() => {
                    sleep_ns = sleep_ns.min(rail.wake_ns().saturating_sub(now));
                    held |= rail.pause() == Pause::Cap;
                    stuck |= rail.pause() == Pause::Path;
                    listening |= rail.is_receiving();
                }
                Rail::Datagram(_) => {}
            }
        }
        let holds = self.jobs.values().any(|job| job.end.holds());
        if holds {
            sleep_ns = sleep_ns.min(LOOK_NS);
        }
        let of = |kind: Kind| counts[kind as usize];
        let stage = if held {
            Stage::WaitRate
        } else if paused || holds || (hungry && of(Kind::Write) > 0) {
            Stage::WaitWrite
        } else if stuck || of(Kind::Send) > 0 {
            Stage::WaitSend
        } else if of(Kind::Read) + of(Kind::Reload) > 0 {
            Stage::WaitRead
        } else if listening || of(Kind::Head) + of(Kind::Payload) > 0 {
            Stage::WaitRecv
        } else if of(Kind::Write) + of(Kind::Spill) + of(Kind::Check) > 0 {
            Stage::WaitWrite
        } else {
            Stage::Idle
        };
        (stage, sleep_ns)
    }

    fn take_commands(&mut self) -> bool {
        loop {
            match self.mailbox.try_recv() {
                Ok(Cmd::Stop) | Err(TryRecvError::Disconnected) => return false,
                Ok(cmd) => self.obey(cmd),
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn obey(&mut self, cmd: Cmd<P>) {
        match cmd {
            Cmd::Open { job, part } => self.open_job(job, part),
            Cmd::Close { job } => {
                if let Some(job) = self.jobs.get_mut(&job) {
                    job.closing = true;
                }
                self.cut_rails(|rail| rail.base().job == job);
            }
            Cmd::RailUp { job, rail, socket, key } => {
                let Some(state) = self.jobs.get(&job).filter(|state| !state.closing) else { return };
                let (terms, sends) = (state.terms, state.end.sends());
                let base = Base::new(job, rail, socket, state.bound.clone());
                let rail = if sends {
                    let zero_copy = self.platform.lend_ready(&base.socket);
                    Stream::sending(base, terms, key, zero_copy)
                } else {
                    Stream::receiving(base, terms, key)
                };
                self.add_rail(Rail::Stream(Box::new(rail)));
            }
            Cmd::PacketsUp { job, rail, socket, key, path } => {
                let Some(state) = self.jobs.get(&job).filter(|state| !state.closing) else { return };
                let base = Base::new(job, rail, socket, state.bound.clone());
                let now = self.platform.now_ns();
                let rail = Datagram::new(now, base, path, &key, &state.terms, state.end.sends());
                self.add_rail(Rail::Datagram(Box::new(rail)));
            }
            Cmd::RailMoved { job, rail, socket } => {
                let found = self.find_rail(|it| it.base().job == job && it.base().number == rail);
                if let Some(Rail::Datagram(rail)) = found.and_then(|index| self.rails[index].as_mut()) {
                    let old = rail.move_to(socket);
                    self.platform.cut(&old);
                }
            }
            Cmd::RailDown { job, rail } => self.cut_rails(|it| it.base().job == job && it.base().number == rail),
            Cmd::Backpressure { job, on } => {
                for rail in self.rails.iter_mut().flatten().filter(|rail| rail.base().job == job) {
                    rail.base_mut().paused = on;
                }
            }
            Cmd::Pace { job, pace: RailPace { target, min, policy } } => {
                let now = self.platform.now_ns();
                for rail in self.rails.iter_mut().flatten().filter(|rail| rail.base().job == job) {
                    rail.set_rate(now, |had| RateConfig { target, min, policy, ..had });
                }
            }
            Cmd::Send { job, assignment } => {
                each_path(&assignment, |path| crate::fault::panic_if_asked("sending worker", path));
                let mut rails = self.rails.iter_mut().flatten();
                let rail = rails.find(|rail| rail.base().job == job && rail.base().number == assignment.rail);
                // A rail that died meanwhile said so; the receiver's report brings the chunk back to the machine.
                if let Some(feed) = rail.and_then(Rail::feed) {
                    feed.waiting.push_back(assignment);
                }
            }
            Cmd::Expect { job, entries } => {
                entries.iter().for_each(|entry| crate::fault::panic_if_asked("receiving worker", &entry.path));
                if let Some(End::Sink(sink)) = self.jobs.get_mut(&job).map(|job| &mut job.end) {
                    sink.expect(entries);
                }
            }
            Cmd::Forget { job, entries } => match self.jobs.get_mut(&job).map(|job| &mut job.end) {
                Some(End::Source(source)) => source.forget(&entries),
                Some(End::Sink(sink)) => sink.forget(&entries),
                None => {}
            },
            Cmd::Stop => unreachable!("taken above"),
        }
    }

    fn open_job(&mut self, job: JobNo, part: JobPart<P>) {
        let JobPart { role, terms, events, bound } = part;
        let end = End::new(role, self.platform.node());
        let state = JobState { end, terms, events, bound, closing: false, closed: false };
        assert!(self.jobs.insert(job, state).is_none(), "job numbers are never used twice");
    }

    fn add_rail(&mut self, rail: Rail<P>) {
        match self.rails.iter().position(Option::is_none) {
            Some(index) => self.rails[index] = Some(rail),
            None => self.rails.push(Some(rail)),
        }
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
            self.late |= job.events.flush();
        }
        self.jobs.retain(|_, job| !job.closed || job.events.flush());
    }
}

fn each_path(assignment: &Assignment, mut with: impl FnMut(&[u8])) {
    match &assignment.unit {
        Unit::Range { entry, .. } => with(&entry.path),
        Unit::Pack { entries } => entries.iter().for_each(|entry| with(&entry.path)),
    }
}

/// What the thread did while it was booked as waiting.
fn work_of(wait: Stage) -> Stage {
    match wait {
        Stage::WaitRead => Stage::Read,
        Stage::WaitSend => Stage::Send,
        Stage::WaitRecv => Stage::Recv,
        Stage::WaitWrite => Stage::Write,
        _ => Stage::Loop,
    }
}
