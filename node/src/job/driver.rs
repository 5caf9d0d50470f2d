//! The job driver: the one thread that runs a job end.
//!
//! For: carrying frames, events and answers to the end's machine, and what it wants done to peer, workers and committer.
//! In and out: `Job` in, `Outcome` or `Failure` out; the screen is told on the way.
//! Invariants: waits only in `poll`, never longer than `TICK`; no progress for `stall` ends it; nobody else touches the machines.
//! Absent on purpose: payload, order of work.
//!
//! The modules stand in the order in which a job meets them.

mod runtime_changes; // runtime changes: what a user asks of it while it runs
mod reconnect; // the control session goes on over another connection
pub mod transport; // which transport, and whether it was right
mod threads; // the threads for what waits on a disk: scanner, committer
mod end; // the state machine of this end
mod closing; // the last words, good or bad
mod migration; // an end has another address
mod paths; // several: what each brings, dead and slow ones
mod rails; // asked for, taken in, capped, grown
mod black_hole; // path MTU black holes under a running job
mod path_shares; // path-share check: what each path brings, beside what it should
mod replan; // replanning, when an end has other resources
pub mod beside; // what no worker waited for: silence, streams; what the interfaces counted
mod storage; // what is told of disk and memory at this end
mod watchdog; // books, pulse, screen, watchdog

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use engine::fault;
use engine::host::{Team, Workers};
use engine::job::{
    Beside, Cmd, Event as WorkerEvent, EventQueue, InPlace, JobNo, JobPart, OFFERS_MAX, Offered, RailEnd, Role, Terms,
};
use engine::linux::Linux;
use engine::machine::{Outbox, Record};
use engine::meter::{Meter, PathStats};
use engine::platform::Disk;
use engine::tree::commit::Task;
use engine::tree::scan::Batch;
use engine::tree::{Sinks, Sources};
use engine::worker::bound::Bound;
use engine::worker::stages::Look;
use proto::books::Books;
use proto::error::Refusal;
use proto::layout::Layout;
use proto::manifest::Entry;
use proto::negotiate::{Pace, Plan, RdmaKind};
use proto::receipt::{Head, Signer};
use proto::session::blackhole::BlackHole;
use proto::session::closing::{Closing, HOLD};
use proto::session::growth::Growth;
use proto::session::order::Order;
use proto::session::paths::{Paths, Wanted};
use proto::session::policer::Policer;
use proto::session::reconnect::Reconnect;
use proto::session::replan::{Offers, Replan};
use proto::session::settings::{Settings, ShownRate};
use proto::session::share::PathShares;
use proto::session::stall::Stall;
use proto::session::{Moment, PULSE};
use proto::wire::control::{Compare, Durability, Frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::event::Event;

pub use beside::BesideBooks;
use beside::looks::RailLook;
use closing::told;
use end::End;
use paths::PathName;
use rails::Carries;
use reconnect::Candidate;
pub use threads::Ahead;
use threads::{Committer, Comparer, Looker, Panics};
use transport::Auto;

use crate::identity::Identity;
use crate::identity::ticket::Ending;
use crate::job::cancel::Cancel;
use crate::job::endpoint::volumes::FailedDisks;
use crate::job::keys::JobSecret;
use crate::job::rails::Rails;
use crate::job::receipt::ReceiptFile;
use crate::job::receipt::former::Formers;
use crate::job::registry::Registration;
use crate::link::{Link, LinkError, Turn};
use crate::probe::Known;
use crate::report::trace::Trace;
use text::exit::{Exit, Failure};
use text::refused;

/// How a session ends of which no rail was ever there.
pub const NO_RAIL: &str = "no rail could be connected";
/// The longest wait in `poll`.
const TICK: Duration = Duration::from_millis(100);
/// Control bytes queued before the scan is held.
const BACKLOG_MAX: usize = 2 << 20;
/// Entries announced at once where a cap is in force: about 5 kB.
const ENTRIES_CAPPED: usize = 64;
/// What is announced waits while so much is left to pay for.
const SCAN_DEBT_NS: u64 = 1_000_000_000;
/// Control bytes that cost nothing, each second: both ends' pulses, which must go at any cap.
const CONTROL_FREE_BPS: f64 = 2048.0;
/// Events that wait for the job driver: some 90 bytes each, which every job holds from its beginning to its end. What is more waits in the worker.
const EVENTS_HELD: usize = 256;
/// Events taken before the link gets its turn.
const EVENTS_PER_TURN: usize = 1024;
/// Entries of a frame that are looked at before anything else gets a turn: a millisecond or two of calls.
const ENTRIES_AT_ONCE: usize = 32;

/// What this end is.
#[derive(Debug)]
pub enum Way {
    /// Reads here.
    Send(Arc<Sources>),
    /// Writes here.
    Recv { sink: Arc<Sinks>, keep: bool, carried: engine::machine::recv::Carried, sync: Sync },
}

/// Within one process: the end that writes reads the source itself, where that does not wait (`engine::job::InPlace`).
#[derive(Debug, Default)]
pub enum OtherEnd {
    /// The ends are two processes.
    #[default]
    Away,
    /// The end that would read; its mailbox, which the other end's workers write into, too, and what it offers each of them. Of both receipts the
    /// other end's stays.
    Reads { mailbox: Option<Mailbox>, offers: Vec<SyncSender<Offer>> },
    /// The end that writes: what is offered to each of its workers.
    Writes { offers: Vec<Option<Receiver<Offer>>>, told: SyncSender<WorkerEvent>, wake: Event },
}

/// A chunk that is to be read where it is written.
type Offer = Offered<<Linux as Disk>::File>;

impl OtherEnd {
    /// Of both ends of one job: of the one that would read, which `wake` wakes, and of the one that writes by these workers.
    pub fn pair(workers: &Workers, wake: &Event) -> (OtherEnd, OtherEnd) {
        let mailbox = mailbox();
        let told = mailbox.0.clone();
        let (to, from): (Vec<_>, Vec<_>) = (0..workers.count()).map(|_| sync_channel(OFFERS_MAX)).unzip();
        let writes = OtherEnd::Writes { offers: from.into_iter().map(Some).collect(), told, wake: wake.clone() };
        (OtherEnd::Reads { mailbox: Some(mailbox), offers: to }, writes)
    }

    /// Where this end's workers tell it.
    fn take_mailbox(&mut self) -> Mailbox {
        let others = if let OtherEnd::Reads { mailbox, .. } = self { mailbox.take() } else { None };
        others.unwrap_or_else(mailbox)
    }

    /// As this worker of the end is told, once.
    fn part(&mut self, worker: usize) -> InPlace<Linux> {
        match self {
            OtherEnd::Away => InPlace::Never,
            OtherEnd::Reads { offers, .. } => InPlace::Send(offers.clone()),
            OtherEnd::Writes { offers, told, wake } => match offers[worker].take() {
                Some(offers) => {
                    InPlace::Recv(Beside { offers, told: EventQueue::new(told.clone(), Some(wake.clone())) })
                }
                None => InPlace::Never,
            },
        }
    }
}

/// Where workers tell a job driver.
type Mailbox = (SyncSender<WorkerEvent>, Receiver<WorkerEvent>);

fn mailbox() -> Mailbox {
    sync_channel(EVENTS_HELD)
}

/// What is done with what stands at the destination.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sync {
    /// Which files are compared by content.
    pub compare: Compare,
    /// Entries that the source does not have go, if they are no more.
    pub prune: Option<u64>,
}

/// Everything a job driver needs.
pub struct Job<'a> {
    /// Number within this process.
    pub no: JobNo,
    /// Its random name.
    pub id: [u8; 16],
    /// The opened session.
    pub link: Link,
    /// Who we are.
    pub identity: &'a Identity,
    /// Who the other end is.
    pub peer_key: [u8; 32],
    /// What was agreed.
    pub plan: Plan,
    /// The same, for workers.
    pub terms: Terms,
    /// How durable.
    pub durability: Durability,
    /// The volumes of the destination, if it is a set of them.
    pub layout: Option<Layout>,
    /// Which end.
    pub way: Way,
    /// What was said ahead of the plan, and counts.
    pub ahead: Option<Ahead>,
    /// Where the other end is.
    pub other_end: OtherEnd,
    /// Who moves the bytes.
    pub workers: Team,
    /// The NUMA node of each volume; empty: nobody looked, or there is one.
    pub volume_nodes: Vec<Option<u16>>,
    /// Pool of these, bytes.
    pub pool_bytes: u64,
    /// Where rails come from.
    pub rails: Rails,
    /// The share that each path should bring, of 1; empty: nobody said.
    pub weights: Vec<f64>,
    /// What the plan was made from; `None`: both ends are one process, and there is nobody to tell.
    pub offers: Option<Offers>,
    /// Signalled when something arrived.
    pub wake: Event,
    /// No progress for so long is an error.
    pub stall: Duration,
    /// Where the receipt is to stand.
    pub receipt: Option<PathBuf>,
    /// Lines for a next run.
    pub carry: Option<PathBuf>,
    /// Receipts that this job's may refer to; `None`: it names its entries itself, as one does that the user gave a place.
    pub formers: Option<Formers>,
    /// Only say what would be done.
    pub dry: bool,
    /// What is known of the path, where the user leaves the transport to us.
    pub known: Option<Known>,
    /// All rails' together at this end; `above`: this end's over all its jobs.
    pub bound: Arc<Bound>,
    /// A cap that changes while the job runs, asked now and then with the bytes let go so far, and whether datagrams come in: what this job may have
    /// of all jobs', B/s; 0: none.
    pub share: Option<Box<dyn Fn(u64, bool) -> u64 + Send + 'a>>,
    /// The ticket that the job runs on: told before the last words leave.
    pub ending: Option<Ending>,
    /// Where it is shown and asked things while it runs.
    pub registration: Option<Registration>,
    /// Disks that failed in jobs of this node.
    pub failed_disks: FailedDisks,
    /// By which it is ended when whoever it runs for may no longer have it.
    pub cancel: Option<Arc<Cancel>>,
}

/// One path and what it brought.
#[derive(Debug, Clone, PartialEq)]
pub struct PathShare {
    /// Its addresses.
    pub name: String,
    /// As the kernel and the rails counted them.
    pub bytes: u64,
    /// The share of all that it should bring, of 1; `None`: nobody said.
    pub weight: Option<f64>,
    /// It brought another share at some time.
    pub was_off: bool,
}

/// How it goes, for the screen.
#[derive(Debug)]
pub struct Status<'a> {
    /// Counts of this end.
    pub record: &'a Record,
    /// The peer's pulse: received, written, durable.
    pub peer: (u64, u64, u64),
    /// Books of this end.
    pub own: &'a Books,
    /// Rails that carry.
    pub rails: usize,
    /// Each path and the bytes it brought so far.
    pub paths: &'a [PathShare],
    /// Each rail, as it went at the last look.
    pub looks: &'a [RailLook],
    /// Since data could move.
    pub elapsed: Duration,
    /// The largest file that is on its way; `None`: none is.
    pub largest: Option<&'a [u8]>,
    /// The cap in force, bit/s; 0: none.
    pub cap_bps: u64,
    /// What the user is told whether or not they asked for more words.
    pub said: &'a [String],
    /// The peer is not heard for so long now, and is looked for so long in all.
    pub silent: Option<(Duration, Duration)>,
}

/// A job that reached its end.
#[derive(Debug)]
pub struct Outcome {
    /// How datagram rails were paced at the end, and the cap, bit/s.
    pub pace: (Pace, u64),
    /// Counts, faults.
    pub record: Record,
    /// Books of this end.
    pub own: Books,
    /// Books of the peer.
    pub peers: Option<Books>,
    /// What stands beside the books.
    pub beside: BesideBooks,
    /// Bytes of the control session that went the way of the data, TLS and handshake included.
    pub control_bytes: u64,
    /// What the interfaces of both ends counted since the job began.
    pub counted: beside::nics::Counted,
    /// Where the receipt stands.
    pub receipt: Option<PathBuf>,
    /// Why there is none although there should be.
    pub receipt_missing: Option<String>,
    /// Most rails at once.
    pub rails: usize,
    /// Each path and the bytes it brought, as the kernel and the rails counted them.
    pub paths: Vec<PathShare>,
    /// From the plan to the end.
    pub elapsed: Duration,
    /// Streams carried.
    pub streams: bool,
    /// Queue pairs carried, or were to; messages of them that found no receive posted at this end.
    pub rdma: Option<(RdmaKind, u64)>,
    /// What the datagram rails told; `None`: there were none.
    pub packets: Option<PathStats>,
    /// What was expected of the transport, where it was left to us.
    pub auto: Option<transport::TransportReport>,
    /// IoModes chosen at this end, and what was left in the page cache.
    pub storage: Vec<proto::negotiate::Choice>,
    /// Disks of the destination's set that failed in the job: the others hold what they hold, and nobody signed.
    pub out_of_set: Option<String>,
    /// The session, if its connection is lent (`Link::give_back`).
    pub link: Option<Link>,
}

struct JobDriver<'a, 'b> {
    job: Job<'a>,
    end: End,
    events: Receiver<WorkerEvent>,
    post: SyncSender<WorkerEvent>,
    scan: Option<Receiver<Option<Batch>>>,
    held: Option<Batch>,
    tasks: Option<Committer>,
    looks: Option<Looker>,
    compares: Option<Comparer>,
    /// What panicked in a thread of the job.
    panics: Panics,
    /// Workers that panicked: they have nothing of the job any more.
    workers_lost: usize,
    commits_open: usize,
    notes_open: usize,
    note_from: Moment,
    commit_from: Moment,
    commit_ns: u64,
    receipt: Option<ReceiptFile>,
    /// Where it stands at last, or the first reason why there is none.
    receipt_end: Option<Result<PathBuf, String>>,
    /// Whether it refers to a former one.
    former: closing::former::Look,
    /// Which frame of the peer's may come.
    order: Order,
    closing: Closing,
    secret: JobSecret,
    next_rail: u16,
    /// Each path, and which one each rail was asked for.
    paths: Paths,
    path_names: Vec<PathName>,
    asked: BTreeMap<u16, usize>,
    path_shares_check: PathShares,
    beside: beside::Beside<'a>,
    wanted: Wanted,
    carriers: BTreeMap<u16, Carries>,
    /// Which transport, where the user leaves it to us.
    auto: Option<Auto>,
    rails_most: usize,
    peer: (u64, u64, u64),
    peers: Option<Books>,
    nics: beside::nics::Nics,
    /// Each worker's books when the job began.
    books_from: Vec<Look>,
    /// And how long it had been without a core.
    delays_from: Vec<u64>,
    /// What they had spared, and what the memory controllers had counted.
    traffic_from: storage::Traffic,
    /// One more than the highest number of a rail that came up: rails go to workers by their numbers.
    rails_seen: usize,
    cpu_from: u64,
    /// When this iteration began: all that is decided in it is decided at this moment.
    now: Moment,
    started: Moment,
    pulsed: Moment,
    stall: Stall,
    peer_flushes: bool,
    growth: Growth,
    replan: Option<Replan>,
    caps: rails::Caps,
    /// Bytes of the control session that the bound was paid for, and when it was looked at.
    paid: (u64, Moment),
    settings: Settings,
    /// For the registry.
    shown_rate: ShownRate,
    black_hole: BlackHole,
    reconnect: Reconnect,
    /// A connection that may carry the session from now on.
    candidate: Option<Candidate>,
    policer: Policer,
    /// UDP did not get through, and that was said.
    no_datagrams: bool,
    meters: Vec<Arc<Meter>>,
    streams: rails::Streams,
    said: Vec<String>,
    storage: Vec<proto::negotiate::Choice>,
    /// Volumes of the destination whose disks failed in the job, by name.
    out_of_set: Option<String>,
    out: Outbox<Linux>,
    watch: &'b mut dyn FnMut(&Status<'_>, &[String]),
}

/// Runs a job to its end. `watch` is told at every tick, with notes for the user.
pub fn run(job: Job<'_>, watch: &mut dyn FnMut(&Status<'_>, &[String])) -> Result<Outcome, Failure> {
    run_traced(job, None, watch)
}

/// The same, and keeps what congestion control does, over time.
pub fn run_traced(
    job: Job<'_>,
    trace: Option<&Trace>,
    watch: &mut dyn FnMut(&Status<'_>, &[String]),
) -> Result<Outcome, Failure> {
    let mut driver =
        JobDriver::new(job, trace, watch).map_err(|error| Exit::of_io(&error).fail("start the job", error))?;
    // A mistake in this job is this job's end and nobody else's: what the job driver has is not looked at again, but to take leave with.
    let result = catch_unwind(AssertUnwindSafe(|| driver.run_all())).unwrap_or_else(|panic| {
        let why = format!("the job driver panicked: {}", fault::words(&*panic));
        Err(driver.bug(&why))
    });
    if result.as_ref().is_err_and(|failure| failure.exit != Exit::Bug) {
        // How far it came is what the next session goes on from.
        driver.show();
    }
    driver.look_at_rails(true);
    driver.say_not_ready();
    if !driver.out.notes.is_empty() {
        driver.show();
    }
    driver.leave(result.is_ok());
    driver.now = read_clock();
    result?;
    let own = driver.books();
    let storage = driver.storage_told(&own);
    let pace = (driver.job.plan.pace, driver.job.plan.rate_bps);
    let (receipt, receipt_missing) =
        driver.receipt_end.take().map_or((None, None), |end| (end.clone().ok(), end.err()));
    Ok(Outcome {
        own,
        pace,
        storage,
        peers: driver.peers,
        beside: driver.beside.told(),
        control_bytes: driver.control_bytes(),
        counted: driver.nics.counted(driver.job.offers.as_ref()),
        streams: driver.is_over_streams(),
        rdma: driver.pairs_seen(),
        packets: driver.packets(),
        auto: driver.auto.as_ref().and_then(Auto::report),
        receipt,
        receipt_missing,
        out_of_set: driver.out_of_set.take(),
        rails: driver.rails_most,
        paths: driver.path_shares(),
        elapsed: driver.now.since(driver.started),
        record: std::mem::replace(
            driver.end.record(),
            Record {
                terms: driver.job.terms,
                durability: driver.job.durability,
                tally: Default::default(),
                faults: vec![],
                lines: vec![],
                unkept: Default::default(),
                unnamed: Default::default(),
                unnamed_there: Default::default(),
                dry: driver.job.dry,
                extras: vec![],
            },
        ),
        link: Some(driver.job.link).filter(Link::is_lent),
    })
}

impl<'a, 'b> JobDriver<'a, 'b> {
    fn new(
        mut job: Job<'a>,
        trace: Option<&'a Trace>,
        watch: &'b mut dyn FnMut(&Status<'_>, &[String]),
    ) -> io::Result<Self> {
        let ((post, events), panics) = (job.other_end.take_mailbox(), Panics::of(&job));
        let (scan, tasks) = panics.spawn_first(&job)?;
        let (end, (receipt, missing)) = (End::of(&job), begin_receipt(&job));
        let (now, is_sender) = (read_clock(), matches!(job.way, Way::Send(_)));
        let auto = job.known.filter(|_| job.plan.datagrams > 0).map(|known| Auto::new(now, known));
        Ok(JobDriver {
            end,
            events,
            post,
            scan,
            held: None,
            tasks,
            looks: None,
            compares: None,
            panics,
            workers_lost: 0,
            commits_open: 0,
            notes_open: 0,
            note_from: now,
            commit_from: now,
            commit_ns: 0,
            receipt,
            former: closing::former::Look::new(is_sender, job.stall),
            said: missing.iter().cloned().collect(),
            receipt_end: missing.map(Err),
            order: Order::of_job(is_sender),
            closing: Closing::new(is_sender, job.rails.dials()),
            secret: JobSecret::of(&job.link, job.id),
            // A rail that is greeted already has its number.
            next_rail: job.rails.early().map_or(0, |rail| rail + 1),
            paths: Paths::new(now, job.rails.names().len()),
            path_names: job.rails.names().into_iter().map(PathName::new).collect(),
            asked: BTreeMap::new(),
            path_shares_check: PathShares::new(job.weights.clone()),
            beside: beside::Beside::new(now, trace),
            wanted: rails::first(&job.plan, auto.is_some()),
            carriers: BTreeMap::new(),
            auto,
            rails_most: 0,
            peer: (0, 0, 0),
            peers: None,
            nics: beside::nics::Nics::new(&job.link),
            books_from: job.workers.books(),
            delays_from: job.workers.run_delays_ns(),
            traffic_from: storage::Traffic::now(&job.workers),
            rails_seen: 0,
            cpu_from: watchdog::process_cpu_ns(),
            now,
            started: now,
            pulsed: now,
            stall: Stall::new(now, job.stall),
            peer_flushes: false,
            growth: Growth::default(),
            replan: job.offers.clone().map(|it| Replan::new(now, it, &job.plan, replan::cores(), is_sender)),
            caps: rails::Caps { asked: now, peers: 0, said: 0 },
            paid: (0, now),
            settings: Settings::new(now, job.offers.as_ref(), &job.plan),
            shown_rate: ShownRate::new(now),
            black_hole: BlackHole::new(now),
            reconnect: Reconnect::new(now, job.rails.dials(), job.stall),
            candidate: None,
            policer: Policer::new(now),
            no_datagrams: false,
            meters: Vec::new(),
            streams: rails::Streams::of(&job.plan),
            storage: Vec::new(),
            out_of_set: None,
            out: Outbox::default(),
            watch,
            job,
        })
    }

    fn run_all(&mut self) -> Result<(), Failure> {
        for worker in 0..self.job.workers.count() {
            let role = match &self.job.way {
                Way::Send(source) => Role::Send(source.clone()),
                Way::Recv { sink, .. } => Role::Recv(sink.clone()),
            };
            let events = EventQueue::new(self.post.clone(), Some(self.job.wake.clone()));
            let (bound, in_place) = (self.job.bound.clone(), self.job.other_end.part(worker));
            let part = JobPart { role, terms: self.job.terms, events, bound, in_place };
            self.job.workers.send(worker, Cmd::Open { job: self.job.no, part });
        }
        self.job.link.keep();
        if let Some(ahead) = self.job.ahead.take() {
            self.take_ahead(ahead)?;
        }
        self.ask_share();
        self.hold_sender()?;
        self.want_rails();
        while !self.closing.is_over() {
            self.now = read_clock();
            self.take_frames()?;
            self.take_panics()?;
            self.take_events()?;
            self.take_found()?;
            self.take_held_sign(HOLD)?;
            self.take_settled()?;
            self.take_seen()?;
            self.take_scan();
            self.take_rails()?;
            self.pump()?;
            self.put()?;
            self.close()?;
            self.tick()?;
            self.sleep();
        }
        Ok(())
    }

    fn take_frames(&mut self) -> Result<(), Failure> {
        self.go_on()?;
        if self.is_between() {
            return Ok(());
        }
        let mut frames = Vec::new();
        let turn = self.job.link.turn(&mut frames);
        for bytes in frames {
            match Frame::decode(&bytes).map_err(|breach| self.breach(breach))? {
                Frame::Entries(entries) => self.on_entries(entries)?,
                frame => self.on_frame(frame)?,
            }
        }
        if !matches!(turn, Ok(Turn::Open)) {
            self.take_held_sign(Duration::ZERO)?;
            if self.closing.on_connection_over() {
                return Ok(());
            }
        }
        match turn {
            Ok(Turn::Open) => Ok(()),
            Ok(Turn::Closed) => Err(self.lost("the peer ended the session before the job was over")),
            Err(LinkError::Breach(breach)) => Err(self.breach(breach)),
            Err(error) if self.may_go_on(&error) => Ok(()),
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    /// Some at a time: looking at what stands there, making folders and links takes calls, and what lands meanwhile must not wait to be
    /// noted, flushed and acknowledged. The sender hears sooner what is wanted, too.
    fn on_entries(&mut self, entries: Vec<Entry>) -> Result<(), Failure> {
        let mut rest = entries.into_iter();
        loop {
            let some: Vec<Entry> = rest.by_ref().take(ENTRIES_AT_ONCE).collect();
            some.iter().for_each(|entry| fault::panic_if_asked("job driver", &entry.path));
            self.on_frame(Frame::Entries(some))?;
            if rest.len() == 0 {
                return Ok(());
            }
            self.now = read_clock();
            self.take_events()?;
            self.take_settled()?;
            self.pump()?;
            self.put()?;
        }
    }

    fn on_frame(&mut self, frame: Frame) -> Result<(), Failure> {
        self.reconnect.on_frame();
        self.order.on_frame(&frame).map_err(|breach| self.breach(breach))?;
        match frame {
            Frame::Pulse { received, written, durable, books } => {
                self.peer = (received, written, durable);
                self.peer_flushes = self.peers.is_some_and(|old| old.commit_ns < books.commit_ns);
                self.reconnect.on_report(self.now);
                self.peers = Some(*books);
                Ok(())
            }
            Frame::Refuse { code, detail } if code == Refusal::VolumeOut.code() && self.job.layout.is_some() => {
                self.out_of_set = Some(detail);
                self.closing.on_given_up();
                Ok(())
            }
            // It waited for a path that was away; that is back now, and the job with it.
            Frame::Refuse { code, .. } if code == Refusal::Stalled.code() && self.reconnect.was_unheard(self.now) => {
                Err(self.lost("the peer gave the job up while nothing came through"))
            }
            Frame::Refuse { code, detail } => {
                let what = format!("go on with the job (the peer at {} refused)", self.peer_name());
                Err(refused::failure(code, what, if detail.is_empty() { told(code) } else { detail }))
            }
            Frame::Former { job, body } => self.on_former((job, body)),
            Frame::Sign { body, signature } => self.hold_sign(body, signature),
            Frame::Bye => self.closing.on_bye().map_err(|breach| self.breach(breach)),
            Frame::Resources(resources) => {
                self.replan.iter_mut().for_each(|replan| replan.on_peer(resources));
                Ok(())
            }
            Frame::NicCounts(counts) => {
                self.nics.theirs = counts;
                Ok(())
            }
            Frame::Unnamed(unnamed) => {
                self.end.record().unnamed_there = unnamed;
                Ok(())
            }
            Frame::Pace(requested) => {
                self.settings.on_peer(requested);
                Ok(())
            }
            Frame::Rate { bits_per_second } => {
                self.caps.peers = bits_per_second / 8;
                self.ask_share();
                Ok(())
            }
            Frame::RailDown { .. } | Frame::RailClosed { .. } if !self.is_open() => Ok(()),
            frame => {
                if let Frame::RailDown { rail } = frame {
                    self.was_let_go(rail);
                }
                let told = match &mut self.end {
                    End::Send(end) => end.on_frame(frame, &mut self.out),
                    End::Recv(end) => end.on_frame(frame, &mut self.out),
                };
                told.map_err(|stop| self.stopped(stop))
            }
        }
    }

    fn take_events(&mut self) -> Result<(), Failure> {
        let now_ns = self.now.as_ns();
        for _ in 0..EVENTS_PER_TURN {
            let Ok(event) = self.events.try_recv() else { return Ok(()) };
            if let WorkerEvent::Panicked { why } = &event {
                self.workers_lost += 1;
                return Err(self.bug(why));
            }
            if !self.is_open() {
                continue;
            }
            if let WorkerEvent::RailDead { rail, end } = &event {
                // Also one that the peer saw die, and we cut: those that rest are taken out before.
                if self.carriers.remove(rail).is_some_and(|it| it.pair.is_some()) {
                    let why = match end {
                        RailEnd::Fault(error) => error.to_string(),
                        RailEnd::Closed => "closed by the peer".to_owned(),
                        RailEnd::Cut | RailEnd::Breach(_) => "the peer lost it".to_owned(),
                    };
                    self.give_up_pairs(*rail, &why);
                }
                self.paths.on_rail_gone(self.now, *rail);
            }
            let told = match &mut self.end {
                End::Send(end) => end.on_event(event, &mut self.out),
                End::Recv(end) => end.on_event(now_ns, event, &mut self.out),
            };
            told.map_err(|stop| self.stopped(stop))?;
        }
        self.job.wake.signal();
        Ok(())
    }

    fn take_scan(&mut self) {
        let End::Send(end) = &mut self.end else { return };
        let is_capped = self.job.bound.rate() > 0;
        while self.job.link.backlog() < BACKLOG_MAX {
            if is_capped && !self.out.frames.is_empty() {
                // What is announced is handed over, and paid for, bit by bit.
                return self.job.wake.signal();
            }
            if is_capped && self.job.bound.owes_ns(sys::clock::now_ns()) > SCAN_DEBT_NS {
                return;
            }
            let mut batch = match self.held.take() {
                Some(batch) => batch,
                None => match self.scan.as_ref().map(Receiver::try_recv) {
                    Some(Ok(Some(batch))) => batch,
                    Some(Ok(None)) => {
                        self.scan = None;
                        end.scan_ended(&mut self.out);
                        return;
                    }
                    _ => return,
                },
            };
            if is_capped && batch.entries.len() > ENTRIES_CAPPED {
                let entries = batch.entries.split_off(ENTRIES_CAPPED);
                self.held = Some(Batch { entries, ..Batch::default() });
            }
            if end.room() < batch.entries.len() {
                let rest = self.held.take().map_or(Vec::new(), |rest| rest.entries);
                batch.entries.extend(rest);
                self.held = Some(batch);
                return;
            }
            for (path, error) in &batch.faults {
                end.scan_fault(path, error, &mut self.out);
            }
            end.names(batch.names, batch.unnamed, &mut self.out);
            end.scan(batch.entries, &mut self.out);
        }
    }

    fn pump(&mut self) -> Result<(), Failure> {
        if !self.is_open() {
            return Ok(());
        }
        match &mut self.end {
            End::Send(end) => end.pump(&mut self.out),
            End::Recv(end) => end.pump(self.now.as_ns(), &mut self.out),
        }
        Ok(())
    }

    /// Hands over what the machine wants done. Receipt lines first: they are what the frames say.
    fn put(&mut self) -> Result<(), Failure> {
        self.take_lines();
        // Commands before frames: a worker must expect an entry before the peer can send it.
        for (worker, cmd) in self.out.cmds.drain(..) {
            self.job.workers.send(worker, cmd);
        }
        for frame in self.out.frames.drain(..) {
            let link = &mut self.job.link;
            frame.encode_parts(&mut |bytes| link.send(bytes));
        }
        self.pay_for_control();
        self.put_looks().map_err(|error| Exit::of_io(&error).fail("start the comparer", error))?;
        for task in self.out.tasks.drain(..) {
            if matches!(task, Task::Note { .. }) {
                if self.notes_open == 0 {
                    self.note_from = self.now;
                }
                self.notes_open += 1;
            } else {
                if self.commits_open == 0 {
                    self.commit_from = self.now;
                }
                self.commits_open += 1;
            }
            let (to, _) = self.tasks.as_ref().expect("only receiving ends have tasks");
            // The committers live as long as this job driver.
            let _ = to[task.lane(to.len() / 2)].send(task);
        }
        Ok(())
    }

    /// A cap is for all that goes either way, words as well.
    fn pay_for_control(&mut self) {
        let (paid, since) = self.paid;
        let link = &self.job.link;
        let bytes = link.bytes_sent() + link.bytes_received() + link.backlog() as u64 + link.datagram_bytes();
        let (now, waited) = (self.now, self.now.since(since));
        let free = (waited.as_secs_f64() * CONTROL_FREE_BPS) as u64;
        if self.job.bound.rate() > 0 && bytes > paid + free {
            self.job.bound.pay(sys::clock::now_ns(), bytes - paid - free);
        }
        if waited >= PULSE || bytes > paid + free {
            self.paid = (bytes.max(paid), now);
        }
    }

    /// Does data move?
    fn is_open(&self) -> bool {
        self.closing.is_open()
    }

    fn say(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.job.link.send(&bytes);
    }

    fn sleep(&mut self) {
        if self.closing.is_over() {
            return;
        }
        let writes = self.job.link.wants_write();
        let flags = if writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let looks = self.beside.looks.wait(read_clock());
        let due = self.job.link.datagrams_due().filter(|_| !self.is_between());
        let chosen = self.auto.as_ref().and_then(Auto::due).map(|due| due.since(read_clock()));
        let wait = looks.into_iter().chain(due).chain(chosen).fold(TICK, Duration::min);
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        {
            let mut fds = vec![PollFd::from_borrowed_fd(self.job.wake.as_fd(), PollFlags::IN)];
            fds.extend(self.candidate.iter().map(|it| PollFd::from_borrowed_fd(it.stream.as_fd(), PollFlags::IN)));
            if !self.is_between() {
                fds.push(PollFd::from_borrowed_fd(self.job.link.as_fd(), flags));
                fds.extend(self.job.link.datagram_fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            }
            // An interrupted poll is a short one.
            let _ = poll(&mut fds, Some(&timeout));
        }
        self.job.wake.drain();
    }

    /// Control bytes that shared the data's direction of the wire.
    fn control_bytes(&self) -> u64 {
        match self.end {
            End::Send(_) => self.job.link.bytes_sent(),
            End::Recv(_) => self.job.link.bytes_received(),
        }
    }

    fn peer_name(&self) -> String {
        self.job.link.peer_addr().map_or_else(|| "this host".to_owned(), |addr| addr.to_string())
    }
}

/// The one place that asks for the time: once per iteration, and while the workers are waited for at the end.
fn read_clock() -> Moment {
    Moment::from_ns(sys::clock::now_ns())
}

/// A receipt with its head; or why it cannot be written, and the job goes on without. Neither: none is wanted.
fn begin_receipt(job: &Job<'_>) -> (Option<ReceiptFile>, Option<String>) {
    let Some(path) = job.receipt.clone() else { return (None, None) };
    let (own, peer) = (job.identity.public(), job.peer_key);
    let sends = matches!(job.way, Way::Send(_));
    let (by, sender, receiver) = if sends { (Signer::Sender, own, peer) } else { (Signer::Receiver, peer, own) };
    let (digest, bare) = (job.plan.digest, job.plan.bare);
    let head = Head { job: job.id, digest, durability: job.durability, layout: job.layout, bare, sender, receiver };
    match ReceiptFile::begin(path.clone(), by, &head, job.carry.clone()) {
        Ok(receipt) if matches!(job.other_end, OtherEnd::Reads { .. }) => (Some(receipt.passing()), None),
        Ok(receipt) => (Some(receipt), None),
        Err(error) => (None, Some(format!("no receipt can be kept at {}: {error}", path.display()))),
    }
}
