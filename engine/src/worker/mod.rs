//! The loop: reap completions → tell the rails → ask what is next → do it in batches.
//!
//! For: all movement of payload of all jobs on one core.
//! In and out: `Cmd` in, `Event` out; ops to the platform, completions back.
//! Invariants: this file alone owns control flow; steps in `source`, `seal`, `rail`, `sink` never call each other. The loop waits only in
//! `Platform::wait`. Receivers always find bufs that senders may not take, so two ends in one process cannot starve each other.
//! Absent on purpose: deciding what to send (proto through the keeper), names, fsync, rename (keeper and committer).

pub mod stages; // every moment of the thread booked to one stage
pub mod bound; // --rate: one bound for all rails of a job
pub mod limit; // and what comes of a sender that ignores it

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use proto::books::Stage;
use proto::rate::RateConfig;
use proto::send::{Handout, Unit};

use crate::ends::file_sink::{LOOK_NS, Parts};
use crate::ends::file_source::Sources;
use crate::job::{Cmd, Event, JobNo, JobPart, RailEnd, RailPace, Role};
use crate::platform::{Done, Platform};
use crate::rail::datagram::{BURSTS_PER_TURN, Packets, Pause};
use crate::rail::{KINDS, Kind, Rail, Slot, Slots};
use crate::worker::stages::{Counters, Laps};

/// A job on this worker.
#[derive(Debug)]
pub(crate) struct Seat<P: Platform> {
    pub(crate) part: JobPart<P>,
    pub(crate) sources: Sources<P>,
    pub(crate) parts: Parts<P>,
    pub(crate) closing: bool,
    /// `Event::Closed` is posted; what is late still has to go.
    pub(crate) closed: bool,
}

/// One worker: one thread, one ring, one pool.
#[derive(Debug)]
pub struct Worker<P: Platform> {
    pub(crate) platform: P,
    pub(crate) laps: Laps,
    pub(crate) seats: HashMap<JobNo, Seat<P>>,
    pub(crate) rails: Vec<Option<Rail<P>>>,
    pub(crate) slots: Slots,
    /// Bufs that senders leave to receivers.
    pub(crate) reserve: usize,
    /// Bufs that chunks sent for the first time leave to others in this turn.
    pub(crate) left_by_fill: usize,
    /// In this turn nobody found nothing to unload.
    pub(crate) may_unload: bool,
    /// Bursts of each datagram rail in this turn.
    pub(crate) bursts: usize,
    mailbox: Receiver<Cmd<P>>,
    done: Vec<Done>,
    first: usize,
    late: bool,
}

/// So often a full mailbox is tried again, a millisecond apart, when a worker ends by a panic.
const GIVE_UP_TRIES: u32 = 1000;
/// The longest sleep: books are published and late events moved at least so often.
const SLEEP_NS_MAX: u64 = 100_000_000;

/// Completions told in a turn: each may be a chunk to open and write, a millisecond or two. The others wait for the next, so that with hundreds of
/// rails a newcomer's commands and chunks do not wait for all of them at each of their steps.
const DONE_PER_TURN: usize = 32;
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
            laps: Laps::new(counters),
            seats: HashMap::new(),
            rails: Vec::new(),
            slots: Slots::new(),
            reserve,
            left_by_fill: reserve,
            may_unload: true,
            bursts: BURSTS_PER_TURN,
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

    /// The thread panicked in the middle of a turn: every job that was here is told, and the mailbox goes to whoever follows.
    pub(crate) fn give_up(self, why: &str) -> Receiver<Cmd<P>> {
        for mut seat in self.seats.into_values() {
            seat.part.post.put(Event::Panicked { why: why.to_owned() });
            // A keeper that does not empty its mailbox for so long has its watchdog.
            for _ in 0..GIVE_UP_TRIES {
                if !seat.part.post.ring() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        self.mailbox
    }

    /// One turn. Returns whether there is to be another.
    pub fn turn(&mut self, sleep_ns_max: u64) -> bool {
        self.laps.lap(Stage::Loop);
        let (stage, sleep_ns) = self.why_wait(sleep_ns_max);
        let sleep_ns = if self.done.is_empty() { sleep_ns } else { 0 };
        let mut done = std::mem::take(&mut self.done);
        self.laps.begin_wait(stage);
        let busy_from = self.platform.busy_ns();
        self.platform.wait(sleep_ns, &mut done);
        let busy = self.platform.busy_ns().saturating_sub(busy_from);
        self.laps.lap_wait(stage, work_of(stage), busy);
        // Commands after completions: what a completed receive speaks of was told to us before the peer could send it.
        let go_on = self.take_commands();
        let some = done.len().min(DONE_PER_TURN);
        for completion in done.drain(..some) {
            self.tell(completion);
        }
        self.done = done;
        self.land_kept();
        self.ask();
        self.settle();
        go_on
    }

    /// Where the datagram rails stand, for a test or a watchdog that found everything still.
    #[must_use]
    pub fn describe_paths(&mut self) -> String {
        let free = self.platform.pool().free();
        let rails =
            self.rails.iter().flatten().filter_map(|rail| rail.packets.as_ref().map(|it| (rail.rail, rail.ops, it)));
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
        let (mut held, mut hungry, mut stopped, mut stuck, mut listening) = (false, false, false, false, false);
        for rail in self.rails.iter().flatten() {
            if let Some(wait_ns) = rail.held_ns(now) {
                held = true;
                sleep_ns = sleep_ns.min(wait_ns);
            }
            hungry |= rail.is_hungry();
            stopped |= rail.hold;
            if let Some(packets) = rail.packets.as_ref().filter(|_| !rail.has_ended()) {
                sleep_ns = sleep_ns.min(packets.wake_ns().saturating_sub(now));
                held |= packets.pause() == Pause::Cap;
                stuck |= packets.pause() == Pause::Path;
                listening |= packets.is_receiving();
            }
        }
        let keeps = self.seats.values().any(|seat| seat.parts.keeps());
        if keeps {
            sleep_ns = sleep_ns.min(LOOK_NS);
        }
        let of = |kind: Kind| counts[kind as usize];
        let stage = if held {
            Stage::WaitRate
        } else if stopped || keeps || (hungry && of(Kind::Write) > 0) {
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
            Cmd::Open { job, part } => {
                let parts = Parts::on(self.platform.node());
                let seat = Seat { part, sources: Sources::default(), parts, closing: false, closed: false };
                assert!(self.seats.insert(job, seat).is_none(), "job numbers are never used twice");
            }
            Cmd::Close { job } => {
                if let Some(seat) = self.seats.get_mut(&job) {
                    seat.closing = true;
                }
                self.cut_rails(|rail| rail.job == job);
            }
            Cmd::RailUp { job, rail, socket, key } => {
                let Some(seat) = self.seats.get(&job).filter(|seat| !seat.closing) else { return };
                let sends = matches!(seat.part.role, Role::Send(_));
                let bound = seat.part.bound.clone();
                let mut rail = Rail::new(job, rail, socket, seat.part.terms, key, bound, sends);
                rail.loan.lends = sends && self.platform.lend_ready(&rail.socket);
                self.seat_rail(rail);
            }
            Cmd::PacketsUp { job, rail, socket, key, path } => {
                let Some(seat) = self.seats.get(&job).filter(|seat| !seat.closing) else { return };
                let (terms, sends) = (seat.part.terms, matches!(seat.part.role, Role::Send(_)));
                let packets = Packets::new(self.platform.now_ns(), path, &key, &terms, sends);
                let bound = seat.part.bound.clone();
                self.seat_rail(Rail::datagram(job, rail, socket, terms, packets, bound));
            }
            Cmd::RailMoved { job, rail, socket } => {
                let found = self.find_rail(|it| it.job == job && it.rail == rail);
                if let Some(index) = found {
                    self.move_rail(index, socket);
                }
            }
            Cmd::RailDown { job, rail } => self.cut_rails(|it| it.job == job && it.rail == rail),
            Cmd::Hold { job, on } => {
                for rail in self.rails.iter_mut().flatten().filter(|rail| rail.job == job) {
                    rail.hold = on;
                }
            }
            Cmd::Pace { job, pace: RailPace { target, min, policy } } => {
                self.pace(job, |had| RateConfig { target, min, policy, ..had });
            }
            Cmd::Send { job, handout } => {
                each_path(&handout, |path| crate::fault::panic_if_asked("sending worker", path));
                let rail = self.rails.iter_mut().flatten().find(|rail| rail.job == job && rail.rail == handout.rail);
                // A rail that died meanwhile told so; the receiver's word brings the chunk back to the machine.
                if let Some(rail) = rail {
                    rail.take_handout(handout);
                }
            }
            Cmd::Expect { job, entries } => {
                entries.iter().for_each(|entry| crate::fault::panic_if_asked("receiving worker", &entry.path));
                if let Some(seat) = self.seats.get_mut(&job) {
                    seat.parts.expect(entries);
                }
            }
            Cmd::Forget { job, entries } => {
                if let Some(seat) = self.seats.get_mut(&job) {
                    seat.parts.forget(&entries);
                    seat.sources.forget(&entries);
                }
            }
            Cmd::Stop => unreachable!("taken above"),
        }
    }

    fn seat_rail(&mut self, rail: Rail<P>) {
        match self.rails.iter().position(Option::is_none) {
            Some(index) => self.rails[index] = Some(rail),
            None => self.rails.push(Some(rail)),
        }
    }

    fn find_rail(&self, which: impl Fn(&Rail<P>) -> bool) -> Option<usize> {
        self.rails.iter().position(|rail| rail.as_ref().is_some_and(|rail| which(rail) && !rail.has_ended()))
    }

    fn pace(&mut self, job: JobNo, change: impl Fn(RateConfig) -> RateConfig) {
        let now = self.platform.now_ns();
        for rail in self.rails.iter_mut().flatten().filter(|rail| rail.job == job) {
            if let Some(packets) = &mut rail.packets {
                packets.set_rate(now, &change);
            }
        }
    }

    fn cut_rails(&mut self, which: impl Fn(&Rail<P>) -> bool) {
        while let Some(index) = self.find_rail(&which) {
            self.say_goodbye(index);
            self.break_off(index, RailEnd::Cut);
        }
    }

    /// Reap: one completion back to the rail that asked for it.
    fn tell(&mut self, done: Done) {
        let slot = self.slots.free(done.token);
        match slot.kind {
            Kind::Read => self.on_read(slot, done),
            Kind::Send => self.on_sent(slot, done),
            Kind::Head => self.on_head(slot, done),
            Kind::Payload => self.on_payload(slot, done),
            Kind::Write => self.on_written(slot, done),
            Kind::Readable => self.on_readable(&slot, done),
            Kind::Reload => self.on_reload(slot, done),
            Kind::Spill => self.on_spilled(slot, done),
            Kind::Check => self.on_check(slot, done),
            Kind::Taken => self.on_told(slot, done),
        }
    }

    /// Ask and do: every rail gets one go at each step, beginning with another rail each turn; one batch per step.
    fn ask(&mut self) {
        let count = self.rails.len();
        (self.left_by_fill, self.may_unload) = (self.count_left_by_fill(), true);
        let datagrams = self.rails.iter().flatten().filter(|rail| rail.packets.is_some()).count();
        self.bursts = (BURSTS_PER_TURN / datagrams.max(1)).max(1);
        for (step, stage) in [
            (Self::step_fill as fn(&mut Self, usize), Stage::Read),
            (Self::step_send, Stage::Send),
            (Self::step_recv, Stage::Recv),
        ] {
            for turn in 0..count {
                let index = (self.first + turn) % count;
                if self.rails[index].as_ref().is_some_and(|rail| !rail.has_ended()) {
                    step(self, index);
                }
            }
            self.platform.flush();
            self.laps.lap(stage);
        }
        self.first = self.first.wrapping_add(1);
    }

    /// Takes leave of ended rails and closed jobs, and rings the keepers.
    fn settle(&mut self) {
        for index in 0..self.rails.len() {
            let Some(rail) = &mut self.rails[index] else { continue };
            if !rail.is_over() {
                continue;
            }
            let mut rail = self.rails[index].take().expect("seen above");
            if rail.has_lent() {
                // The bufs will be filled again, and what a dying connection still sends must not come out of them.
                self.platform.abort(&rail.socket);
            }
            for buf in rail.take_bufs() {
                self.platform.pool().give(buf);
            }
            if let Some(seat) = self.seats.get_mut(&rail.job) {
                seat.part.post.put(Event::RailDead { rail: rail.rail, end: rail.take_end() });
            }
        }
        self.late = false;
        self.laps.lap(Stage::Loop);
        self.laps.spared.direct = self.platform.direct_bytes();
        // Before the bell: a keeper that hears "closed" reads what the job's last turn counted.
        self.laps.publish();
        let snapshot = self.laps.snapshot();
        let rails = &self.rails;
        for (&job, seat) in &mut self.seats {
            if seat.closing && !seat.closed && !rails.iter().flatten().any(|rail| rail.job == job) {
                seat.closed = true;
                seat.part.post.put(Event::Closed { books: Box::new(snapshot) });
            }
            self.late |= seat.part.post.ring();
        }
        self.seats.retain(|_, seat| !seat.closed || seat.part.post.ring());
    }

    /// The rail a slot belongs to; there while it has ops in flight.
    pub(crate) fn rail(&mut self, slot: &Slot) -> &mut Rail<P> {
        self.rails[slot.rail].as_mut().expect("a rail stays until its ops are back")
    }
}

fn each_path(handout: &Handout, mut with: impl FnMut(&[u8])) {
    match &handout.unit {
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
