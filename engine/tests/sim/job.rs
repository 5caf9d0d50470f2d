//! One run of one job: both ends, their workers, the control session between them, the committer.
//!
//! For: turning everything in an order that the seed decides until the job is over, dies, or stands still.
//! In and out: disks and a `RunPlan` in; an `Ended` and what was seen on the way out.
//! Invariants: control frames cross as bytes; nothing sleeps; time moves only when everybody had a turn and nothing happened.
//! Absent on purpose: greeting, TLS, receipts' signatures (node).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};

use engine::job::{Beside, Cmd, Event, EventQueue, InPlace, JobPart, OFFERS_MAX, RailKey, Role, Terms};
use engine::machine::compare::{Compare, Compared, Look, Seen, compare, look};
use engine::machine::recv::{Carried, RecvEnd};
use engine::machine::send::SendEnd;
use engine::machine::{Outbox, Record, Stop};
use engine::meter::Meter;
use engine::platform::SinkTree;
use engine::tree::commit::{self, Settled, Task};
use engine::worker::Worker;
use engine::worker::bound::Bound;
use engine::worker::stages::Counters;
use proto::manifest::Entry;
use proto::negotiate::Plan;
use proto::session::order::Order;
use proto::wire::control::Frame;

use crate::check::Watch;
use crate::disk::{Clock, Faults};
use crate::net::Net;
use crate::platform::{Late, Shared, Sim, SimSocket, World, lock};
use crate::rng::Rng;
use crate::scenario::{RunPlan, Scenario, Versions, Victim, change};
use crate::session::Session;
use crate::trees::{SharedDisk, SimSink, SimSource, VOLUME, scan};

/// The ends are two jobs, for they may share workers.
const JOBS: [u32; 2] = [7, 8];
const SENDER: usize = 0;
const RECEIVER: usize = 1;
/// Virtual time without anything happening after which a run is called stuck.
const STUCK_NS: u64 = 30_000_000_000;

/// Longest sleep of a worker: as in life.
const TURN_NS: u64 = 100_000_000;
/// No story takes longer.
const RUN_NS_MAX: u64 = 600_000_000_000;

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Everything announced is resolved at both ends.
    Done,
    /// The scenario killed an end.
    Died(Victim),
    /// An end could not go on.
    Stopped(Stop),
}

/// Workers of one end.
struct Crew {
    job: u32,
    workers: Vec<Worker<Sim>>,
    mail: Vec<Sender<Cmd<Sim>>>,
    free: Vec<Arc<AtomicUsize>>,
    /// Of each worker: what it is told while it reads packets.
    late: Vec<Late>,
    post: SyncSender<Event>,
    events: Receiver<Event>,
}

/// What the worker of this number is given of its end.
type Part<'a> = &'a mut dyn FnMut(usize) -> (Role<Sim>, InPlace<Sim>);

impl Crew {
    fn new(world: &Shared, rng: &mut Rng, count: usize, plan: &RunPlan, terms: Terms, role: Part<'_>) -> Crew {
        let (post, events) = sync_channel(plan.mail);
        let (workers, mail, free, late) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut crew = Crew { job: JOBS[0], workers, mail, free, late, post, events };
        for _ in 0..count {
            let (platform, free) = Sim::new(world.clone(), rng.fork(), plan.bufs, terms.chunk_bytes as usize);
            let (to, mailbox) = channel();
            crew.late.push(platform.late.clone());
            crew.workers.push(Worker::new(platform, mailbox, Arc::new(Counters::default())));
            crew.mail.push(to);
            crew.free.push(free);
        }
        crew.begin(plan, terms, role);
        crew
    }

    /// The other end's job on the same workers, as within one process.
    fn beside(other: &Crew, plan: &RunPlan, terms: Terms, role: Part<'_>) -> Crew {
        let (post, events) = sync_channel(plan.mail);
        let (workers, free) = (Vec::new(), Vec::new());
        let (mail, late) = (other.mail.clone(), other.late.clone());
        let crew = Crew { job: JOBS[1], workers, mail, free, late, post, events };
        crew.begin(plan, terms, role);
        crew
    }

    fn begin(&self, plan: &RunPlan, terms: Terms, role: Part<'_>) {
        let bound = Arc::new(Bound::new(plan.rate, None));
        for (worker, to) in self.mail.iter().enumerate() {
            let (bound, events) = (bound.clone(), EventQueue::new(self.post.clone(), None));
            let (role, in_place) = role(worker);
            let part = JobPart { role, terms, events, bound, in_place };
            to.send(Cmd::Open { job: self.job, part }).expect("just made");
        }
    }

    fn send(&self, worker: usize, cmd: Cmd<Sim>) {
        // Commands keep their order.
        self.late[worker].tell();
        self.mail[worker].send(cmd).expect("workers live as long as their end");
    }

    /// When the worker reads packets the next time, as it is where both are at work at once.
    fn send_late(&self, worker: usize, cmd: Cmd<Sim>) {
        let to = self.mail[worker].clone();
        let tell = move || to.send(cmd).expect("workers live as long as their end");
        self.late[worker].push(tell);
    }
}

#[derive(Clone, Copy)]
struct Rail {
    number: u16,
    wire: usize,
    datagrams: bool,
    second_at_ns: Option<u64>,
}

/// See the module.
pub(crate) struct Run<'a> {
    pub(crate) world: Shared,
    clock: Clock,
    rng: Rng,
    plan: RunPlan,
    scenario: &'a Scenario,
    source: SharedDisk,
    sink: SharedDisk,
    tree: Arc<SimSink>,
    versions: &'a mut Versions,
    pub(crate) watch: &'a mut Watch,
    sender: SendEnd<Sim>,
    receiver: RecvEnd<Sim>,
    crews: [Crew; 2],
    out: [Outbox<Sim>; 2],
    /// Control frames on their way, by the side that sends.
    control: [VecDeque<(u64, Vec<u8>)>; 2],
    /// Where they cross over connections that die.
    session: Option<Session>,
    /// Which frame may come to each side.
    order: [Order; 2],
    scan: VecDeque<Entry>,
    scan_ended: bool,
    tasks: VecDeque<(u64, Task)>,
    /// Those of the thread beside the committers, which waits for no flush.
    notes: VecDeque<(u64, Task)>,
    settled: VecDeque<Settled>,
    looks: VecDeque<(u64, Look)>,
    seen: VecDeque<Seen>,
    compares: VecDeque<(u64, Compare)>,
    compared: VecDeque<Compared>,
    rails: Vec<Rail>,
    next_rail: u16,
    next_open_ns: u64,
    started_ns: u64,
    ended: Option<Ended>,
    meters: Vec<Arc<Meter>>,
}

/// The first, if its time has come.
fn due<T>(queue: &mut VecDeque<(u64, T)>, now: u64) -> Option<(u64, T)> {
    queue.front().is_some_and(|(at, _)| *at <= now).then(|| queue.pop_front()).flatten()
}

/// Faults begin with the run.
fn arm(disk: &SharedDisk, faults: Option<Faults>, refuses: Option<(u64, i32)>, dies_at_call: Option<u64>) {
    let mut disk = disk.lock().expect("one thread");
    (disk.faults, disk.loose) = (faults.unwrap_or_default(), false);
    disk.faults.from_ns += disk.clock.now();
    disk.faults.until_ns += disk.clock.now();
    disk.refused = false;
    disk.refuses = refuses.map(|(after_ns, errno)| (disk.clock.now() + after_ns, errno));
    disk.die_at = dies_at_call.map(|calls| disk.ops() + calls);
}

/// What both ends agreed, as far as the ends look at it.
pub(crate) fn plan_of(terms: &Terms, streams: u16, workers: (u16, u16)) -> Plan {
    Plan {
        streams,
        streams_max: 64,
        chunk_bytes: terms.chunk_bytes,
        cipher: terms.cipher,
        integrity_only: false,
        bare: false,
        digest: terms.digest,
        workers,
        memory: (64 << 20, 64 << 20),
        rate_bps: 0,
        datagrams: 0,
        pace: proto::negotiate::Pace::default(),
        rdma: None,
    }
}

/// What both ends of a run stand in.
fn world(clock: &Clock, net: Net, plan: &RunPlan) -> World {
    World {
        clock: clock.clone(),
        net,
        activity: 0,
        harm: plan.trouble.harm,
        harmed: None,
        disk_ns: plan.disk_ns,
        at_once: plan.at_once,
        polled: plan.polled,
    }
}

/// The network of a run, as its plan says.
fn net(clock: &Clock, rng: &mut Rng, plan: &RunPlan) -> Net {
    let mut net = Net::new(clock.clone(), rng.fork());
    (net.latency_ns, net.ns_per_kib, net.room) = (plan.latency_ns, plan.ns_per_kib, plan.room);
    (net.short, net.flip_at, net.weather) = (plan.short, plan.trouble.flip_at, plan.weather);
    net
}

/// The workers of both ends.
fn crews(
    world: &Shared,
    rng: &mut Rng,
    plan: &RunPlan,
    terms: Terms,
    source_tree: &Arc<SimSource>,
    sink_tree: &Arc<SimSink>,
) -> [Crew; 2] {
    let or_never = |it| if plan.in_place { it } else { InPlace::Never };
    let writers = if plan.shared { plan.sender_workers } else { plan.receiver_workers };
    let (offers, mut offered): (Vec<_>, Vec<_>) = (0..writers).map(|_| sync_channel(OFFERS_MAX)).unzip();
    let mut send = |_: usize| (Role::Send(source_tree.clone()), or_never(InPlace::Send(offers.clone())));
    let first = Crew::new(world, rng, plan.sender_workers, plan, terms, &mut send);
    let mut recv = |_: usize| {
        let beside = Beside { offers: offered.remove(0), told: EventQueue::new(first.post.clone(), None) };
        (Role::Recv(sink_tree.clone()), or_never(InPlace::Recv(beside)))
    };
    let second = if plan.shared {
        Crew::beside(&first, plan, terms, &mut recv)
    } else {
        Crew::new(world, rng, plan.receiver_workers, plan, terms, &mut recv)
    };
    [first, second]
}

impl<'a> Run<'a> {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        clock: Clock,
        mut rng: Rng,
        plan: RunPlan,
        scenario: &'a Scenario,
        source: SharedDisk,
        sink: SharedDisk,
        versions: &'a mut Versions,
        watch: &'a mut Watch,
    ) -> Run<'a> {
        let world = Arc::new(Mutex::new(world(&clock, net(&clock, &mut rng, &plan), &plan)));
        let (terms, durability) = (scenario.terms, scenario.durability);
        let source_tree = Arc::new(SimSource(source.clone(), VOLUME));
        let sink_tree = Arc::new(SimSink::begin(&sink));
        let crews = crews(&world, &mut rng, &plan, terms, &source_tree, &sink_tree);
        let agreed = plan_of(&terms, plan.rails as u16, (1, 1));
        let mut sender =
            SendEnd::new(JOBS[0], terms, &agreed, durability, source_tree.clone(), plan.sender_workers, plan.depth);
        let boot = sink.lock().expect("one thread").boot.to_le_bytes();
        let mut receiver = RecvEnd::new(
            crews[1].job,
            terms,
            &agreed,
            durability,
            sink_tree.clone(),
            crews[1].mail.len(),
            true,
            boot,
            Carried::new(),
        );
        receiver.bound_unjournalled(plan.debt);
        receiver.compare_by(scenario.compare);
        receiver.prune(scenario.prune.then_some(1000));
        (sender.record.dry, receiver.record.dry) = (plan.dry, plan.dry);
        arm(&source, plan.trouble.source_faults.clone(), plan.trouble.refuses, None);
        arm(&sink, plan.trouble.sink_faults.clone(), plan.trouble.refuses, plan.trouble.sink_dies_at_call);
        let scan = scan(&source).into();
        Run {
            started_ns: clock.now(),
            world,
            clock,
            rng,
            plan,
            scenario,
            source,
            sink,
            tree: sink_tree,
            versions,
            watch,
            sender,
            receiver,
            crews,
            out: [Outbox::default(), Outbox::default()],
            control: [VecDeque::new(), VecDeque::new()],
            session: None,
            order: [Order::of_job(true), Order::of_job(false)],
            scan,
            scan_ended: false,
            tasks: VecDeque::new(),
            notes: VecDeque::new(),
            settled: VecDeque::new(),
            looks: VecDeque::new(),
            seen: VecDeque::new(),
            compares: VecDeque::new(),
            compared: VecDeque::new(),
            rails: Vec::new(),
            next_rail: 0,
            next_open_ns: 0,
            ended: None,
            meters: Vec::new(),
        }
    }

    /// The control session is over connections that die.
    pub(crate) fn over_connections(mut self, rng: Rng) -> Self {
        let initiator = if self.plan.pull { RECEIVER } else { SENDER };
        self.session = Some(Session::new(rng, self.clock.now(), self.plan.latency_ns, initiator));
        self
    }

    /// Turns everything until the end. Returns it with both records.
    pub(crate) fn go(mut self) -> (Ended, Record, Record, Shared) {
        self.watch.begin(&self.plan, self.clock.now());
        let mut quiet_since = self.clock.now();
        while self.ended.is_none() {
            self.turn(&mut quiet_since);
        }
        self.over()
    }

    /// Everybody gets a turn; time passes where nothing happens. Is it over?
    pub(crate) fn turn(&mut self, quiet_since: &mut u64) -> bool {
        assert!(self.clock.now() - self.started_ns < RUN_NS_MAX, "no end: {}", self.where_it_stands());
        let before = self.activity();
        let all = self.round();
        self.trouble();
        self.watch.look(&mut self.sink.lock().expect("one thread"), self.versions);
        let now = self.clock.now();
        if self.activity() != before {
            *quiet_since = now;
            self.clock.advance(self.rng.below(20_000));
        } else if all {
            assert!(now - *quiet_since < STUCK_NS, "stuck: {}", self.where_it_stands());
            self.pass_time();
        }
        // In life each end's last words come before the other's signature.
        let is_said = self.control.iter().all(VecDeque::is_empty) && self.session.as_ref().is_none_or(Session::is_said);
        if self.ended.is_none() && self.sender.is_done() && self.receiver.is_done() && is_said {
            self.ended = Some(Ended::Done);
        }
        self.ended.is_some()
    }

    /// What came of it, once it is over.
    pub(crate) fn over(mut self) -> (Ended, Record, Record, Shared) {
        if self.ended == Some(Ended::Done) || self.rng.permille(300) && !matches!(self.ended, Some(Ended::Died(_))) {
            self.close();
        }
        self.watch.look(&mut self.sink.lock().expect("one thread"), self.versions);
        self.watch.metered(self.meters.iter().map(|meter| meter.read()));
        self.sink.lock().expect("one thread").end_run(self.tree.1, self.ended != Some(Ended::Done));
        if self.ended == Some(Ended::Done) {
            let open = [&self.sender.record, &self.receiver.record].map(Record::files_open);
            assert_eq!(open, [0, 0], "a file that is neither there nor failed");
        }
        (self.ended.take().expect("the loop ended"), self.sender.record, self.receiver.record, self.world)
    }

    /// kill -9 of both ends: nobody lets go of anything.
    pub(crate) fn killed(self) {
        self.sink.lock().expect("one thread").end_run(self.tree.1, true);
    }

    fn activity(&self) -> u64 {
        lock(&self.world).activity
    }

    fn act(&self) {
        lock(&self.world).activity += 1;
    }

    fn where_it_stands(&mut self) -> String {
        let now = self.clock.now();
        for worker in self.crews.iter_mut().flat_map(|crew| &mut crew.workers) {
            self.watch.say(now, || worker.describe_paths());
        }
        format!(
            "sender {:?} open, {} rails, has {} scanned left; receiver {} open, {} rails, done {}; {} tasks, {:?}",
            self.sender.open_counts(),
            self.sender.rails_up(),
            self.scan.len(),
            self.receiver.open_count(),
            self.receiver.rails_up(),
            self.receiver.is_done(),
            self.tasks.len() + self.notes.len(),
            self.sender
        )
    }

    /// Everybody gets a turn or, by chance, none. Returns whether all had theirs.
    fn round(&mut self) -> bool {
        let mut turns: Vec<(usize, usize)> =
            vec![(SENDER, 99), (RECEIVER, 99), (RECEIVER, 98), (RECEIVER, 97), (SENDER, 96)];
        for side in [SENDER, RECEIVER] {
            turns.extend((0..self.crews[side].workers.len()).map(|worker| (side, worker)));
        }
        self.rng.shuffle(&mut turns);
        let skip = *self.rng.pick(&[0, 0, 300, 800]);
        let mut all = true;
        for (side, who) in turns {
            if self.ended.is_some() {
                return false;
            }
            if self.rng.permille(skip) {
                all = false;
                continue;
            }
            match who {
                99 => self.keep(side),
                98 => self.commit(),
                97 => self.look(),
                96 => self.compare(),
                worker => drop(self.crews[side].workers[worker].turn(TURN_NS)),
            }
        }
        all
    }

    fn pass_time(&mut self) {
        let now = self.clock.now();
        let mut world = lock(&self.world);
        let wakes = &mut world.net.wakes;
        let later = wakes.split_off(&(now + 1));
        *wakes = later;
        let mut next = wakes.first().copied().unwrap_or(u64::MAX);
        for queue in &self.control {
            next = next.min(queue.front().map_or(u64::MAX, |(at, _)| *at).max(now + 1));
        }
        next = next.min(self.session.as_ref().map_or(u64::MAX, |session| session.next_ns(now)));
        next = next.min(self.looks.front().map_or(u64::MAX, |(at, _)| *at).max(now + 1));
        next = next.min(self.compares.front().map_or(u64::MAX, |(at, _)| *at).max(now + 1));
        for lane in [&self.tasks, &self.notes] {
            next = next.min(lane.front().map_or(u64::MAX, |(at, _)| *at).max(now + 1));
        }
        self.clock.advance((next - now).min(10_000_000));
    }

    /// One turn of a job driver: what came is told, what is due goes out.
    fn keep(&mut self, side: usize) {
        self.rails();
        let now = self.clock.now();
        if let Some(text) = self.session.as_mut().and_then(|session| session.iterate(side, now)) {
            self.act();
            self.watch.say(now, || text);
        }
        let events_first = self.rng.permille(500);
        if events_first {
            self.take_events(side);
        }
        self.take_frames(side);
        if side == RECEIVER {
            self.take_settled();
        } else {
            self.take_scan();
            while let Some(compared) = self.compared.pop_front() {
                self.act();
                self.sender.on_compared(compared, &mut self.out[SENDER]);
            }
        }
        if !events_first {
            self.take_events(side);
        }
        if self.ended.is_some() {
            return;
        }
        let now = self.clock.now();
        if side == SENDER {
            self.sender.pump(&mut self.out[SENDER])
        } else {
            self.receiver.pump(now, &mut self.out[RECEIVER])
        }
        self.put(side);
    }

    fn stop(&mut self, told: Result<(), Stop>) {
        if let Err(stop) = told {
            self.ended.get_or_insert(Ended::Stopped(stop));
        }
    }

    fn take_events(&mut self, side: usize) {
        let most = self.rng.between(1, 64);
        for _ in 0..most {
            let Ok(event) = self.crews[side].events.try_recv() else { return };
            self.act();
            let now = self.clock.now();
            self.watch.event(now, side, &event);
            let told = if side == SENDER {
                self.sender.on_event(event, &mut self.out[SENDER])
            } else {
                self.receiver.on_event(now, event, &mut self.out[RECEIVER])
            };
            self.stop(told);
        }
    }

    fn take_frames(&mut self, side: usize) {
        let most = self.rng.between(1, 16);
        for _ in 0..most {
            let now = self.clock.now();
            let bytes = match &mut self.session {
                Some(session) => session.next(side, now),
                None => due(&mut self.control[1 - side], now).map(|(_, bytes)| bytes),
            };
            let Some(bytes) = bytes else { return };
            self.act();
            let frame = Frame::decode(&bytes).expect("our own frames are sound");
            self.watch.frame(now, side, &frame);
            self.order[side].on_frame(&frame).unwrap_or_else(|breach| panic!("{}: {breach:?}", frame.name()));
            let told = if side == SENDER {
                self.sender.on_frame(frame, &mut self.out[SENDER])
            } else {
                self.receiver.on_frame(frame, &mut self.out[RECEIVER])
            };
            self.stop(told);
        }
    }

    fn take_settled(&mut self) {
        while let Some(seen) = self.seen.pop_front() {
            self.act();
            let told = self.receiver.on_seen(seen, &mut self.out[RECEIVER]);
            self.stop(told);
        }
        while let Some(settled) = self.settled.pop_front() {
            self.act();
            let told = self.receiver.on_settled(settled, &mut self.out[RECEIVER]);
            self.stop(told);
        }
    }

    fn take_scan(&mut self) {
        if self.scan_ended {
            return;
        }
        let most = self.rng.between(1, 50).min(self.sender.room() as u64) as usize;
        let batch: Vec<Entry> = self.scan.drain(..most.min(self.scan.len())).collect();
        self.act();
        self.sender.scan(batch, &mut self.out[SENDER]);
        if self.scan.is_empty() {
            self.scan_ended = true;
            self.sender.scan_ended(&mut self.out[SENDER]);
        }
    }

    /// The outbox of an end goes where it belongs.
    fn put(&mut self, side: usize) {
        let out = std::mem::take(&mut self.out[side]);
        let now = self.clock.now();
        for note in out.notes {
            self.watch.say(now, || format!("{side} {note}"));
        }
        for (worker, cmd) in out.cmds {
            self.act();
            match cmd {
                Cmd::Expect { .. } if self.plan.late => self.crews[side].send_late(worker, cmd),
                cmd => self.crews[side].send(worker, cmd),
            }
        }
        for task in out.tasks {
            self.act();
            let at = now + self.rng.below(self.plan.commit_ns + 1);
            self.watch.task(now, &task);
            let lane = if matches!(task, Task::Note { .. }) { &mut self.notes } else { &mut self.tasks };
            lane.push_back((at, task));
        }
        for look in out.looks {
            self.act();
            self.watch.say(now, || format!("  comparer gets {look:?}"));
            self.looks.push_back((now + self.rng.below(self.plan.commit_ns + 1), look));
        }
        for work in out.compares {
            self.act();
            self.compares.push_back((now + self.rng.below(self.plan.commit_ns + 1), work));
        }
        for frame in out.frames {
            self.act();
            self.watch.sent_frame(now, side, &frame, &self.sink, self.scenario);
            let at = self.control[side].back().map_or(0, |(at, _)| *at).max(now + self.plan.latency_ns);
            let (queue, session) = (&mut self.control[side], &mut self.session);
            frame.encode_parts(&mut |bytes| match session {
                Some(session) => session.say(side, now, bytes.to_vec()),
                None => queue.push_back((at, bytes.to_vec())),
            });
        }
    }

    fn commit(&mut self) {
        let now = self.clock.now();
        let lanes = if self.rng.permille(500) {
            [&mut self.tasks, &mut self.notes]
        } else {
            [&mut self.notes, &mut self.tasks]
        };
        let Some((_, task)) = lanes.into_iter().find_map(|lane| due(lane, now)) else { return };
        self.act();
        let settled = commit::run(&*self.tree, task);
        if !self.sink.lock().expect("one thread").dead {
            self.watch.settled(now, &settled);
            self.settled.push_back(settled);
        }
    }

    fn look(&mut self) {
        let now = self.clock.now();
        let Some((_, work)) = due(&mut self.looks, now) else { return };
        self.act();
        let (tree, terms) = (self.tree.clone(), self.scenario.terms);
        look(&*tree, &tree.clone().capabilities(), &terms, work, &mut |seen| {
            if !self.sink.lock().expect("one thread").dead {
                self.watch.say(now, || format!("  comparer says {seen:?}"));
                self.seen.push_back(seen);
            }
            true
        });
    }

    fn compare(&mut self) {
        let now = self.clock.now();
        let Some((_, work)) = due(&mut self.compares, now) else { return };
        self.act();
        self.compared.push_back(compare(&SimSource(self.source.clone(), VOLUME), &self.scenario.terms, &work));
    }

    /// New rails while fewer carry than wanted; the acceptor has a rail before the initiator has.
    fn rails(&mut self) {
        let now = self.clock.now();
        let (first, second) = if self.plan.pull { (SENDER, RECEIVER) } else { (RECEIVER, SENDER) };
        for index in 0..self.rails.len() {
            if self.rails[index].second_at_ns.is_some_and(|at| at <= now) {
                self.rails[index].second_at_ns = None;
                self.rail_up(second, self.rails[index]);
            }
        }
        let opening = self.rails.iter().filter(|rail| rail.second_at_ns.is_some()).count();
        if self.sender.rails_up().max(self.receiver.rails_up()) + opening < self.plan.rails && now >= self.next_open_ns
        {
            self.next_open_ns = now + self.rng.below(50_000_000);
            let wire = lock(&self.world).net.open();
            let number = self.next_rail;
            self.next_rail += 1;
            let second_at_ns = Some(now + self.rng.below(2 * self.plan.latency_ns));
            let rail = Rail { number, wire, datagrams: self.rng.permille(self.plan.datagrams), second_at_ns };
            self.rail_up(first, rail);
            self.rails.push(rail);
        }
    }

    fn rail_up(&mut self, side: usize, rail: Rail) {
        let Rail { number, wire, datagrams, .. } = rail;
        self.act();
        let now = self.clock.now();
        self.watch.say(now, || format!("{side} rail {number} is up, datagrams: {datagrams}"));
        let usable = if side == SENDER { self.sender.rail_up(number) } else { self.receiver.rail_up(number) };
        if !usable {
            lock(&self.world).net.shut(wire, side);
            return;
        }
        let mut secret = [9; 32];
        secret[..2].copy_from_slice(&number.to_le_bytes());
        secret[2..10].copy_from_slice(&self.started_ns.to_le_bytes());
        let mut place = [3; 18];
        place[16..].copy_from_slice(&number.to_le_bytes());
        let crew = &self.crews[side];
        let (job, rail, socket, key) = (crew.job, number, SimSocket { wire, side }, RailKey { secret, place });
        let cmd = if datagrams {
            let path = self.plan.path(number);
            self.meters.push(path.meter.clone());
            Cmd::PacketsUp { job, rail, socket, key, path }
        } else if self.plan.pairs {
            Cmd::PairUp { job, rail, connection: socket, key, meter: Arc::default() }
        } else {
            Cmd::RailUp { job, rail, socket, key }
        };
        crew.send(usize::from(number) % crew.mail.len(), cmd);
    }

    /// What the scenario has in store for this moment.
    fn trouble(&mut self) {
        let now = self.clock.now();
        let since = now - self.started_ns;
        let due = self.plan.trouble.cuts.iter().position(|(at, _)| *at <= since);
        if let Some(index) = due {
            let (_, loss) = self.plan.trouble.cuts.remove(index);
            let mut world = lock(&self.world);
            let open: Vec<Rail> = self.rails.iter().filter(|rail| world.net.is_open(rail.wire)).copied().collect();
            if !open.is_empty() {
                let Rail { wire, datagrams, .. } = *self.rng.pick(&open);
                self.watch.say(now, || format!("wire {wire} is cut, with loss: {loss}"));
                // Nobody is told that a path for datagrams is gone.
                if loss || datagrams {
                    world.net.reset(wire)
                } else {
                    world.net.shut(wire, self.rng.below(2) as usize)
                }
                world.activity += 1;
                self.watch.cuts += 1;
            }
        }
        if let Some(index) = self.plan.trouble.changes.iter().position(|at| *at <= since) {
            self.plan.trouble.changes.remove(index);
            for path in change(&mut self.rng, &mut self.source.lock().expect("one thread"), self.versions) {
                self.watch.changed(now, path);
            }
        }
        if let Some((victim, _)) = self.plan.trouble.crash.filter(|(_, at)| *at <= since) {
            self.ended = Some(Ended::Died(victim));
        }
        if self.sink.lock().expect("one thread").dead {
            self.ended = Some(Ended::Died(Victim::Receiver));
        }
    }

    /// The workers let go of the job: everything must come home.
    fn close(&mut self) {
        for side in [SENDER, RECEIVER] {
            let crew = &self.crews[side];
            for worker in 0..crew.mail.len() {
                crew.send(worker, Cmd::Close { job: crew.job });
            }
        }
        let mut closed = 0;
        let all = self.crews.iter().map(|crew| crew.mail.len()).sum::<usize>();
        for _ in 0..10_000 {
            for crew in &mut self.crews {
                for worker in &mut crew.workers {
                    worker.turn(0);
                }
                closed += crew.events.try_iter().filter(|event| matches!(event, Event::Closed { .. })).count();
            }
            self.clock.advance(1_000_000);
            if closed >= all {
                break;
            }
        }
        assert_eq!(closed, all, "every worker lets go of the job, once");
        for crew in &mut self.crews {
            for (worker, free) in crew.workers.iter_mut().zip(&crew.free) {
                worker.turn(0);
                assert_eq!(free.load(Ordering::Relaxed), self.plan.bufs, "every buf is home again");
            }
        }
    }
}
