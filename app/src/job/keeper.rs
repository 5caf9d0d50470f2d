//! The keeper: the one thread that turns a job end.
//!
//! For: carrying frames, events and answers to the end's machine, and what it wants done to peer, workers and committer.
//! In and out: `Job` in, `Outcome` or `Failure` out; the screen is told on the way.
//! Invariants: waits only in `poll`, never longer than `TICK`; no progress for `stall` ends it; nobody else touches the machines.
//! Absent on purpose: payload, order of work.

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use engine::end::recv::RecvEnd;
use engine::end::send::SendEnd;
use engine::end::{Outbox, Record, Stop};
use engine::host::Team;
use engine::job::{Cmd, Event as Told, JobNo, JobPart, Post, Role, Terms};
use engine::linux::Linux;
use engine::linux::scan::{Batch, Scan};
use engine::linux::sink::LinuxSink;
use engine::linux::source::LinuxSource;
use engine::sink::commit::{self, Settled, Task};
use proto::books::{Books, STAGES, Stage};
use proto::error::{Breach, Refusal};
use proto::negotiate::Plan;
use proto::receipt::{Head, Signer, signed_message};
use proto::wire::control::{Frame, Rung};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::event::Event;

use crate::exit::{Exit, Failure};
use crate::identity::{Identity, keys};
use crate::job::keys::JobSecret;
use crate::job::rails::Rails;
use crate::job::receipt::ReceiptFile;
use crate::link::{Link, LinkError, Turn};

/// The longest wait in `poll`.
const TICK: Duration = Duration::from_millis(100);
/// Each end tells the other how it goes so often.
const PULSE: Duration = Duration::from_millis(500);
/// Control bytes queued before the scan is held.
const BACKLOG_MAX: usize = 2 << 20;
/// Events taken before the link gets its turn.
const EVENTS_PER_TURN: usize = 1024;
/// Dials that may fail one after another before the job is lost.
const DIALS_MAX: u32 = 5;

/// What this end is.
#[derive(Debug)]
pub enum Way {
    /// Reads here.
    Send(Arc<LinuxSource>),
    /// Writes here.
    Recv { sink: Arc<LinuxSink>, keep: bool, carried: engine::end::recv::Carried },
}

/// Everything a keeper needs.
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
    pub rung: Rung,
    /// Which end.
    pub way: Way,
    /// Who moves the bytes.
    pub workers: Team,
    /// Pool of these, bytes.
    pub pool_bytes: u64,
    /// Where rails come from.
    pub rails: Rails,
    /// Rings when something arrived.
    pub bell: Event,
    /// No progress for so long is an error.
    pub stall: Duration,
    /// Where the receipt is to stand.
    pub receipt: Option<PathBuf>,
    /// Lines for a next run.
    pub carry: Option<PathBuf>,
    /// Only say what would be done.
    pub dry: bool,
    /// Cap at this end, B/s over all rails; 0: none.
    pub rate: u64,
    /// A cap that changes while the job runs, asked now and then: this job's share of what all jobs may have, B/s; 0: none.
    pub share: Option<Box<dyn Fn() -> u64 + Send + 'a>>,
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
    /// Books of the peer.
    pub peers: Option<&'a Books>,
    /// Rails that carry.
    pub rails: usize,
    /// Since data could move.
    pub elapsed: Duration,
}

/// A job that reached its end.
#[derive(Debug)]
pub struct Outcome {
    /// Counts, faults.
    pub record: Record,
    /// Books of this end.
    pub own: Books,
    /// Books of the peer.
    pub peers: Option<Books>,
    /// The peer's last pulse.
    pub peer: (u64, u64, u64),
    /// Where the receipt stands.
    pub receipt: Option<PathBuf>,
    /// Most rails at once.
    pub rails: usize,
    /// From the plan to the end.
    pub elapsed: Duration,
}

enum End {
    Send(Box<SendEnd<Linux>>),
    Recv(Box<RecvEnd<Linux>>),
}

impl End {
    fn record(&mut self) -> &mut Record {
        match self {
            End::Send(end) => &mut end.record,
            End::Recv(end) => &mut end.record,
        }
    }
    fn is_done(&self) -> bool {
        match self {
            End::Send(end) => end.is_done(),
            End::Recv(end) => end.is_done(),
        }
    }
    fn rails_up(&self) -> usize {
        match self {
            End::Send(end) => end.rails_up(),
            End::Recv(end) => end.rails_up(),
        }
    }
    fn open_text(&self) -> String {
        match self {
            End::Send(end) => {
                let (entries, chunks) = end.open_counts();
                format!("{entries} entries open, {chunks} chunks not acknowledged")
            }
            End::Recv(end) => format!("{} entries open", end.open_count()),
        }
    }
}

/// The last words of a job.
#[derive(Debug, PartialEq, Eq)]
enum Closing {
    /// Data moves.
    Open,
    /// Our body digest is made, the peer's signature is awaited.
    Signed([u8; 32], [u8; 64]),
    /// `Bye` sent; the peer's is awaited.
    Bye,
    /// Both said it.
    Over,
}

struct Keeper<'a, 'b> {
    job: Job<'a>,
    end: End,
    events: Receiver<Told>,
    post: SyncSender<Told>,
    scan: Option<Receiver<Option<Batch>>>,
    held: Option<Batch>,
    tasks: Option<(Sender<Task>, Receiver<Settled>)>,
    commits_open: usize,
    commit_from: Instant,
    commit_ns: u64,
    receipt: Option<ReceiptFile>,
    receipt_path: Option<PathBuf>,
    closing: Closing,
    secret: JobSecret,
    next_rail: u16,
    dialling: usize,
    dials_failed: u32,
    rails_want: usize,
    rails_most: usize,
    peer: (u64, u64, u64),
    peers: Option<Books>,
    books_from: [u64; STAGES],
    cpu_from: u64,
    started: Instant,
    pulsed: Instant,
    moved: Instant,
    moved_sign: (u64, u64, u64, u64),
    peer_flushes: bool,
    peer_told: Instant,
    growth: Growth,
    out: Outbox<Linux>,
    watch: &'b mut dyn FnMut(&Status<'_>, &[String]),
}

/// Learning how many rails pay.
#[derive(Debug, Default)]
struct Growth {
    since: Option<Instant>,
    moved: u64,
    rate: f64,
    settled: bool,
}

/// Runs a job to its end. `watch` is told at every tick, with notes for the user.
pub fn run(job: Job<'_>, watch: &mut dyn FnMut(&Status<'_>, &[String])) -> Result<Outcome, Failure> {
    let mut keeper = Keeper::new(job, watch).map_err(|error| Exit::of_io(&error).fail("start the job", error))?;
    let result = keeper.turn_all();
    keeper.leave(result.is_ok());
    result?;
    let own = keeper.books();
    Ok(Outcome {
        own,
        peers: keeper.peers,
        peer: keeper.peer,
        receipt: keeper.receipt_path.take(),
        rails: keeper.rails_most,
        elapsed: keeper.started.elapsed(),
        record: std::mem::replace(
            keeper.end.record(),
            Record {
                terms: keeper.job.terms,
                rung: keeper.job.rung,
                tally: Default::default(),
                faults: vec![],
                lines: vec![],
                dry: keeper.job.dry,
            },
        ),
    })
}

impl<'a, 'b> Keeper<'a, 'b> {
    fn new(job: Job<'a>, watch: &'b mut dyn FnMut(&Status<'_>, &[String])) -> io::Result<Self> {
        let (post, events) = sync_channel(1024);
        let count = job.workers.count();
        let depth = crate::job::offer::depth(job.pool_bytes, job.plan.chunk_bytes, usize::from(job.plan.streams));
        let (mut scan, mut tasks) = (None, None);
        let end = match &job.way {
            Way::Send(source) => {
                scan = Some(spawn_scan(source, &job.bell)?);
                let end = SendEnd::new(job.no, job.terms, &job.plan, job.rung, source.clone(), count, depth);
                End::Send(Box::new(end))
            }
            Way::Recv { sink, keep, carried } => {
                tasks = Some(spawn_committer(sink, &job.bell)?);
                let boot = boot_hash();
                let end = RecvEnd::new(
                    job.no,
                    job.terms,
                    &job.plan,
                    job.rung,
                    sink.clone(),
                    count,
                    *keep,
                    boot,
                    carried.clone(),
                );
                End::Recv(Box::new(end))
            }
        };
        let mut end = end;
        end.record().dry = job.dry;
        let secret = JobSecret::of(&job.link, job.id);
        let receipt = job.receipt.clone().and_then(|path| {
            let (own, peer) = (job.identity.public(), job.peer_key);
            let (sender, receiver) = if matches!(job.way, Way::Send(_)) { (own, peer) } else { (peer, own) };
            let head = Head { job: job.id, digest: job.plan.digest, rung: job.rung, sender, receiver };
            ReceiptFile::begin(path, &head, job.carry.clone()).ok()
        });
        let now = Instant::now();
        let books_from = job.workers.books();
        let rails_want = usize::from(job.plan.streams);
        Ok(Keeper {
            end,
            events,
            post,
            scan,
            held: None,
            tasks,
            commits_open: 0,
            commit_from: now,
            commit_ns: 0,
            receipt,
            receipt_path: None,
            closing: Closing::Open,
            secret,
            next_rail: 0,
            dialling: 0,
            dials_failed: 0,
            rails_want,
            rails_most: 0,
            peer: (0, 0, 0),
            peers: None,
            books_from,
            cpu_from: sys::clock::process_cpu_ns(),
            started: now,
            pulsed: now,
            moved: now,
            moved_sign: (0, 0, 0, 0),
            peer_flushes: false,
            peer_told: now,
            growth: Growth::default(),
            out: Outbox::default(),
            watch,
            job,
        })
    }

    fn turn_all(&mut self) -> Result<(), Failure> {
        for worker in 0..self.job.workers.count() {
            let role = match &self.job.way {
                Way::Send(source) => Role::Send(source.clone()),
                Way::Recv { sink, .. } => Role::Recv(sink.clone()),
            };
            let post = Post::new(self.post.clone(), Some(self.job.bell.clone()));
            let part = JobPart { role, terms: self.job.terms, post };
            self.job.workers.send(worker, Cmd::Open { job: self.job.no, part });
        }
        self.ask_share();
        self.want_rails();
        while self.closing != Closing::Over {
            self.take_frames()?;
            self.take_events()?;
            self.take_settled()?;
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
        let mut frames = Vec::new();
        let turn = self.job.link.turn(&mut frames);
        for bytes in frames {
            let frame = Frame::decode(&bytes).map_err(|breach| self.breach(breach))?;
            self.on_frame(frame)?;
        }
        match turn {
            Ok(Turn::Open) => Ok(()),
            Ok(Turn::Closed) if matches!(self.closing, Closing::Bye | Closing::Over) => {
                self.closing = Closing::Over;
                Ok(())
            }
            Ok(Turn::Closed) => Err(self.lost("the peer ended the session before the job was over")),
            Err(_) if self.closing == Closing::Bye => {
                self.closing = Closing::Over;
                Ok(())
            }
            Err(LinkError::Breach(breach)) => Err(self.breach(breach)),
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    fn on_frame(&mut self, frame: Frame) -> Result<(), Failure> {
        match frame {
            Frame::Pulse { received, written, durable, books } => {
                self.peer = (received, written, durable);
                self.peer_flushes = self.peers.is_some_and(|old| old.commit_ns < books.commit_ns);
                self.peer_told = Instant::now();
                self.peers = Some(*books);
                Ok(())
            }
            Frame::Refuse { code, detail } => {
                let what = format!("go on with the job (the peer at {} refused)", self.peer_name());
                Err(Exit::of_wire_code(code).fail(what, if detail.is_empty() { told(code) } else { detail }))
            }
            Frame::Sign { body, signature } => self.on_sign(body, &signature),
            Frame::Bye => {
                if self.closing == Closing::Open || matches!(self.closing, Closing::Signed(..)) {
                    return Err(self.breach(Breach::WrongOrder));
                }
                self.closing = Closing::Over;
                Ok(())
            }
            Frame::Rate { bits_per_second } => {
                self.set_rate(bits_per_second / 8);
                Ok(())
            }
            Frame::RailDown { .. } | Frame::RailClosed { .. } if self.closing != Closing::Open => Ok(()),
            frame => {
                let told = match &mut self.end {
                    End::Send(end) => end.on_frame(frame, &mut self.out),
                    End::Recv(end) => end.on_frame(frame, &mut self.out),
                };
                told.map_err(|stop| self.stopped(stop))
            }
        }
    }

    fn take_events(&mut self) -> Result<(), Failure> {
        let now_ns = sys::clock::now_ns();
        for _ in 0..EVENTS_PER_TURN {
            let Ok(event) = self.events.try_recv() else { return Ok(()) };
            if self.closing != Closing::Open {
                continue;
            }
            if matches!(event, Told::RailDead { .. }) {
                self.dials_failed += 1;
            }
            let told = match &mut self.end {
                End::Send(end) => end.on_event(event, &mut self.out),
                End::Recv(end) => end.on_event(now_ns, event, &mut self.out),
            };
            told.map_err(|stop| self.stopped(stop))?;
        }
        self.job.bell.signal();
        Ok(())
    }

    fn take_settled(&mut self) -> Result<(), Failure> {
        loop {
            let Some(Ok(settled)) = self.tasks.as_ref().map(|(_, from)| from.try_recv()) else { return Ok(()) };
            self.commits_open -= 1;
            self.commit_ns += u64::try_from(self.commit_from.elapsed().as_nanos()).unwrap_or(0);
            self.commit_from = Instant::now();
            if let End::Recv(end) = &mut self.end {
                end.on_settled(settled, &mut self.out).map_err(|stop| self.stopped(stop))?;
            }
        }
    }

    fn take_scan(&mut self) {
        let End::Send(end) = &mut self.end else { return };
        while self.job.link.backlog() < BACKLOG_MAX {
            let batch = match self.held.take() {
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
            if end.room() < batch.entries.len() {
                self.held = Some(batch);
                return;
            }
            for (path, error) in &batch.faults {
                end.scan_fault(path, error);
            }
            end.scan(batch.entries, &mut self.out);
        }
    }

    fn want_rails(&mut self) {
        if !self.job.rails.dials() || self.job.dry || self.closing != Closing::Open {
            return;
        }
        while self.end.rails_up() + self.dialling < self.rails_want && self.next_rail < u16::MAX {
            self.job.rails.ask(self.next_rail);
            self.next_rail += 1;
            self.dialling += 1;
        }
    }

    fn take_rails(&mut self) -> Result<(), Failure> {
        while let Some(arrival) = self.job.rails.next() {
            let dials = self.job.rails.dials();
            self.dialling = self.dialling.saturating_sub(usize::from(dials));
            let socket = match arrival.socket {
                Ok(socket) => socket,
                Err(error) => {
                    self.dials_failed += 1;
                    if self.dials_failed >= DIALS_MAX && self.end.rails_up() == 0 {
                        return Err(self.lost(&format!("no rail could be connected: {error}")));
                    }
                    self.out.notes.push(format!("rail {} could not be connected: {error}", arrival.rail));
                    continue;
                }
            };
            if self.closing != Closing::Open {
                continue;
            }
            let up = match &mut self.end {
                End::Send(end) => end.rail_up(arrival.rail),
                End::Recv(end) => end.rail_up(arrival.rail),
            };
            if up {
                let worker = usize::from(arrival.rail) % self.job.workers.count();
                let (rail, key) = (arrival.rail, self.secret.rail(arrival.rail));
                let rate = self.rail_rate();
                let cmd = Cmd::RailUp { job: self.job.no, rail, socket: Arc::new(socket), key, rate };
                self.job.workers.send(worker, cmd);
                self.rails_most = self.rails_most.max(self.end.rails_up());
                let rate = self.job.rate;
                self.set_rate(rate);
            }
        }
        self.want_rails();
        Ok(())
    }

    fn rail_rate(&self) -> u64 {
        if self.job.rate == 0 { 0 } else { (self.job.rate / self.end.rails_up().max(1) as u64).max(1) }
    }

    fn set_rate(&mut self, bytes_per_second: u64) {
        self.job.rate = bytes_per_second;
        let rate = self.rail_rate();
        for worker in 0..self.job.workers.count() {
            self.job.workers.send(worker, Cmd::Rate { job: self.job.no, rate });
        }
    }

    /// The smaller of what was agreed and this job's share.
    fn ask_share(&mut self) {
        let Some(share) = &self.job.share else { return };
        let caps = [self.job.plan.rate_bps / 8, share()];
        let rate = caps.into_iter().filter(|cap| *cap > 0).min().unwrap_or(0);
        if rate != self.job.rate {
            self.set_rate(rate);
        }
    }

    fn pump(&mut self) -> Result<(), Failure> {
        if self.closing != Closing::Open {
            return Ok(());
        }
        match &mut self.end {
            End::Send(end) => end.pump(&mut self.out),
            End::Recv(end) => end.pump(sys::clock::now_ns(), &mut self.out),
        }
        Ok(())
    }

    /// Hands over what the machine wants done. Receipt lines first: they are what the frames say.
    fn put(&mut self) -> Result<(), Failure> {
        let lines = std::mem::take(&mut self.end.record().lines);
        if !lines.is_empty() && self.receipt.as_mut().is_some_and(|receipt| receipt.lines(&lines).is_err()) {
            self.receipt = None;
            self.out.notes.push("the receipt could not be written: the job goes on without one".into());
        }
        // Commands before frames: a worker must expect an entry before the peer can send it.
        for (worker, cmd) in self.out.cmds.drain(..) {
            self.job.workers.send(worker, cmd);
        }
        for frame in self.out.frames.drain(..) {
            let link = &mut self.job.link;
            frame.encode_parts(&mut |bytes| link.send(bytes));
        }
        for task in self.out.tasks.drain(..) {
            if self.commits_open == 0 {
                self.commit_from = Instant::now();
            }
            self.commits_open += 1;
            let (to, _) = self.tasks.as_ref().expect("only receiving ends have tasks");
            // The committer lives as long as this keeper.
            let _ = to.send(task);
        }
        Ok(())
    }

    /// The end of a job: the receiver signs first, the sender answers, both say farewell.
    fn close(&mut self) -> Result<(), Failure> {
        if self.closing != Closing::Open || !self.end.is_done() || matches!(self.end, End::Send(_)) {
            return Ok(());
        }
        let (body, signature) = self.sign()?;
        self.pulse();
        self.say(&Frame::Sign { body, signature: Box::new(signature) });
        self.closing = Closing::Signed(body, signature);
        Ok(())
    }

    fn sign(&mut self) -> Result<([u8; 32], [u8; 64]), Failure> {
        let tally = self.end.record().tally;
        let body = match &mut self.receipt {
            Some(receipt) => receipt
                .end(tally.files_done, tally.bytes_done)
                .map_err(|error| Exit::of_io(&error).fail("write the receipt", error))?,
            None => [0; 32],
        };
        Ok((body, self.job.identity.sign(&signed_message(&body))))
    }

    fn on_sign(&mut self, body: [u8; 32], signature: &[u8]) -> Result<(), Failure> {
        let sends = matches!(self.end, End::Send(_));
        let lines = std::mem::take(&mut self.end.record().lines);
        if let Some(receipt) = self.receipt.as_mut().filter(|_| !lines.is_empty()) {
            let _ = receipt.lines(&lines);
        }
        let (own_body, own_signature) = match (&self.closing, sends) {
            (Closing::Signed(body, signature), false) => (*body, *signature),
            (Closing::Open, true) if self.end.is_done() => self.sign()?,
            _ => return Err(self.breach(Breach::WrongOrder)),
        };
        let peer_key = self.job.peer_key;
        if !keys::verify(&peer_key, &signed_message(&body), signature) {
            return Err(self.breach(Breach::SignatureInvalid));
        }
        if body != own_body && body != [0; 32] && own_body != [0; 32] {
            return Err(self.breach(Breach::DigestMismatch));
        }
        if sends {
            self.pulse();
            self.say(&Frame::Sign { body: own_body, signature: Box::new(own_signature) });
        }
        self.say(&Frame::Bye);
        self.closing = Closing::Bye;
        if let Some(receipt) = self.receipt.take().filter(|_| body == own_body) {
            let mut peers = [0; 64];
            peers.copy_from_slice(signature);
            let own =
                (if sends { Signer::Sender } else { Signer::Receiver }, self.job.identity.public(), own_signature);
            let other = (if sends { Signer::Receiver } else { Signer::Sender }, peer_key, peers);
            let signed = if sends { [own, other] } else { [other, own] };
            match receipt.sign(&own_body, &signed) {
                Ok(path) => self.receipt_path = Some(path),
                Err(error) => self.out.notes.push(format!("the receipt could not be written: {error}")),
            }
        }
        Ok(())
    }

    fn say(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.job.link.send(&bytes);
    }

    fn pulse(&mut self) {
        self.pulsed = Instant::now();
        let books = Box::new(self.books());
        let tally = self.end.record().tally;
        let frame = Frame::Pulse { received: tally.moved, written: tally.written, durable: tally.durable, books };
        self.say(&frame);
    }

    fn books(&mut self) -> Books {
        let now = self.job.workers.books();
        let count = self.job.workers.count() as u64;
        let mut commit_ns = self.commit_ns;
        if self.commits_open > 0 {
            commit_ns += u64::try_from(self.commit_from.elapsed().as_nanos()).unwrap_or(0);
        }
        let tally = self.end.record().tally;
        Books {
            ns: std::array::from_fn(|stage| now[stage].saturating_sub(self.books_from[stage])),
            wall_ns: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(0) * count,
            workers: u16::try_from(count).unwrap_or(u16::MAX),
            cpu_ns: sys::clock::process_cpu_ns() - self.cpu_from,
            peak_memory_bytes: sys::clock::peak_memory_bytes(),
            payload_bytes: tally.moved,
            rail_bytes: tally.rail_bytes,
            resent_bytes: tally.resent,
            commit_ns,
        }
    }

    /// Once per turn: pulse, screen, watchdog, growth.
    fn tick(&mut self) -> Result<(), Failure> {
        let due = self.pulsed.elapsed() >= PULSE;
        if due && self.closing == Closing::Open {
            self.pulse();
            self.grow();
            self.ask_share();
        }
        if due || !self.out.notes.is_empty() {
            self.pulsed = if due { Instant::now() } else { self.pulsed };
            let own = self.books();
            let notes = std::mem::take(&mut self.out.notes);
            let rails = self.end.rails_up();
            let status = Status {
                record: self.end.record(),
                peer: self.peer,
                own: &own,
                peers: self.peers.as_ref(),
                rails,
                elapsed: self.started.elapsed(),
            };
            (self.watch)(&status, &notes);
        }
        self.watchdog()
    }

    fn watchdog(&mut self) -> Result<(), Failure> {
        let tally = self.end.record().tally;
        let closing = u64::from(self.closing != Closing::Open);
        let sign = (
            tally.moved + self.peer.0 + tally.written + closing,
            tally.files_done + tally.failed + tally.folders_done + tally.links_done,
            tally.files_total + u64::from(tally.scan_ended),
            tally.durable + self.peer.1 + self.peer.2,
        );
        if sign != self.moved_sign {
            self.moved_sign = sign;
            self.moved = Instant::now();
        }
        // A disk that flushes is given more time, here or there; not without end.
        let flushing = self.commits_open > 0 || (self.peer_flushes && self.peer_told.elapsed() < PULSE * 10);
        let patience = if flushing { self.job.stall * 4 } else { self.job.stall };
        if self.moved.elapsed() < patience {
            return Ok(());
        }
        let own = self.books();
        let stage = largest(&own).map_or("nothing", Stage::name);
        let peers = self.peers.as_ref().and_then(largest).map_or("unknown", Stage::name);
        let rails = self.end.rails_up();
        let cause = format!(
            "no progress for {} s: {rails} rails up, this end mostly in '{stage}', the peer at {} mostly in '{peers}', {}",
            patience.as_secs(),
            self.peer_name(),
            self.end.open_text(),
        );
        self.refuse(Refusal::Stalled.code(), &cause);
        Err(Exit::Stalled.fail("go on", cause))
    }

    /// More rails while they pay: both ends have time left, the network is what is waited for, and the last one brought something.
    fn grow(&mut self) {
        let most = usize::from(self.job.plan.streams_max);
        if !self.job.rails.dials() || self.growth.settled || self.rails_want >= most || self.job.rate > 0 {
            return;
        }
        let Some(since) = self.growth.since else {
            self.growth.since = Some(Instant::now());
            return;
        };
        if since.elapsed() < Duration::from_secs(1) {
            return;
        }
        let own = self.books();
        let Some(peers) = self.peers else { return };
        let sends = matches!(self.end, End::Send(_));
        let (sender, receiver) = if sends { (own, peers) } else { (peers, own) };
        let moved = own.payload_bytes.max(peers.payload_bytes);
        let rate = (moved - self.growth.moved) as f64 / since.elapsed().as_secs_f64();
        let first = self.growth.rate == 0.0;
        let waits = |books: &Books, stage: Stage| books.ns[stage as usize] as f64 / books.wall_ns.max(1) as f64;
        let network = waits(&sender, Stage::WaitSend) > 0.4 && waits(&receiver, Stage::WaitRecv) > 0.4;
        if !network || (!first && rate < self.growth.rate * 1.1) {
            self.growth.settled = !first || moved > 0;
            return;
        }
        self.growth = Growth { since: Some(Instant::now()), moved, rate, settled: false };
        self.rails_want += 1;
        self.out.notes.push(format!("one more rail, {} in all: both ends wait for the network", self.rails_want));
    }

    fn sleep(&mut self) {
        if self.closing == Closing::Over {
            return;
        }
        let writes = self.job.link.wants_write();
        let flags = if writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let timeout = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
        {
            let mut fds = [
                PollFd::from_borrowed_fd(self.job.link.as_fd(), flags),
                PollFd::from_borrowed_fd(self.job.bell.as_fd(), PollFlags::IN),
            ];
            // An interrupted poll is a short one.
            let _ = poll(&mut fds, Some(&timeout));
        }
        self.job.bell.drain();
    }

    /// Lets the workers go, and waits for it: after this no op of the job is in flight.
    fn leave(&mut self, whole: bool) {
        if whole {
            let _ = self.job.link.flush_blocking(Duration::from_secs(2));
            self.job.link.close();
            let _ = self.job.link.flush_blocking(Duration::from_secs(1));
        }
        let count = self.job.workers.count();
        for worker in 0..count {
            self.job.workers.send(worker, Cmd::Close { job: self.job.no });
        }
        let mut closed = 0;
        let until = Instant::now() + Duration::from_secs(5);
        while closed < count && Instant::now() < until {
            match self.events.recv_timeout(Duration::from_millis(100)) {
                Ok(Told::Closed { .. }) => closed += 1,
                Ok(_) | Err(_) => {}
            }
        }
    }

    fn peer_name(&self) -> String {
        self.job.link.peer_addr().map_or_else(|| "this host".to_owned(), |addr| addr.to_string())
    }

    fn lost(&mut self, cause: &str) -> Failure {
        Exit::Lost.fail(format!("keep the session with {}", self.peer_name()), cause)
    }

    fn breach(&mut self, breach: Breach) -> Failure {
        self.refuse(breach.code(), breach.what());
        Exit::Breach.fail(format!("go on with the peer at {}", self.peer_name()), breach.what())
    }

    fn stopped(&mut self, stop: Stop) -> Failure {
        match stop {
            Stop::Breach(breach) => self.breach(breach),
            Stop::Refused { code, detail } => Exit::of_wire_code(code).fail("go on with the job", detail),
            Stop::Fault { step, errno } => {
                let error = io::Error::from_raw_os_error(errno);
                self.refuse(Refusal::Internal.code(), step);
                Exit::of_io(&error).fail(step, error)
            }
        }
    }

    /// The peer is told why, if it still listens.
    fn refuse(&mut self, code: u16, detail: &str) {
        self.say(&Frame::Refuse { code, detail: detail.to_owned() });
        let _ = self.job.link.flush_blocking(Duration::from_millis(500));
    }
}

fn told(code: u16) -> String {
    match (Breach::from_code(code), Refusal::from_code(code)) {
        (Some(breach), _) => breach.what().to_owned(),
        (_, Some(refusal)) => refusal.what().to_owned(),
        _ => format!("code {code}"),
    }
}

fn largest(books: &Books) -> Option<Stage> {
    Stage::ALL.into_iter().max_by_key(|stage| books.ns[*stage as usize]).filter(|stage| books.ns[*stage as usize] > 0)
}

fn boot_hash() -> [u8; 8] {
    let hash = blake3::hash(sys::host::boot_id().unwrap_or_default().as_bytes());
    let mut boot = [0; 8];
    boot.copy_from_slice(&hash.as_bytes()[..8]);
    boot
}

fn spawn_scan(source: &Arc<LinuxSource>, bell: &Event) -> io::Result<Receiver<Option<Batch>>> {
    let (to, from) = sync_channel(4);
    let (source, bell) = (source.clone(), bell.clone());
    std::thread::Builder::new().name("scanner".into()).spawn(move || {
        let mut scan = Scan::new(&source);
        loop {
            let batch = scan.next_batch();
            let over = batch.is_none();
            if to.send(batch).is_err() {
                return;
            }
            bell.signal();
            if over {
                return;
            }
        }
    })?;
    Ok(from)
}

type Committer = (Sender<Task>, Receiver<Settled>);

fn spawn_committer(sink: &Arc<LinuxSink>, bell: &Event) -> io::Result<Committer> {
    let (ask, asked) = channel::<Task>();
    let (to, from) = channel();
    let (sink, bell) = (sink.clone(), bell.clone());
    std::thread::Builder::new().name("committer".into()).spawn(move || {
        for task in asked {
            if to.send(commit::run(&*sink, task)).is_err() {
                return;
            }
            bell.signal();
        }
    })?;
    Ok((ask, from))
}
