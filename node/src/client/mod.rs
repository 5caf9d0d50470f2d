//! The initiator's side: a job is opened, followed and reported.
//!
//! For: copying between any two of: this host, a daemon, a host that ssh reaches.
//! In and out: a `JobRequest` in; `JobEvent`s on the way, an exit code out.
//! Invariants: remote to remote goes directly between the two; nothing is sent before both ends computed the same plan.
//! Absent on purpose: moving bytes (engine), running a job end (job::driver), accepting jobs.

pub mod bootstrap; // what one login does at a host that ssh reaches: the program found or brought, and started
pub mod choice; // which entries are taken, compiled
pub mod ssh; // hosts that ssh reaches: the far side started, brought there if missing
pub mod layout; // how the volumes of a destination are used
pub mod relay_limits; // what a daemon gives a job that it makes for a client
pub mod list; // what stands at an address
pub mod local; // both ends in this process
pub mod outcome; // outcome → end report
pub mod patterns; // which paths a pattern stands for
pub mod recorded; // events on their way into the history
pub mod relay; // remote to remote
pub mod retry; // again, when the session was lost
pub mod session; // push and pull over a session

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::platform::Clones;
use proto::error::Refusal;
use proto::layout::Layout;
use proto::rate::{ControllerKind, Policy};
use sys::event::Event;

use self::choice::Choice;
use self::recorded::Recorded;
use self::relay_limits::RelayLimits;
use self::retry::Retries;
use self::ssh::LineSink;
use crate::address::{Address, folder_path};
use crate::event::{Events, JobEvent, Watch};
use crate::ftp::client::address::FtpAddress;
use crate::identity::{Home, Identity};
use crate::job;
use crate::job::cancel::Cancel;
use crate::job::endpoint::names::Names;
use crate::job::endpoint::volumes::FailedDisks;
use crate::job::receipt::retention::{Keep, Turns};
use crate::job::registry::{Registration, Registry, Title};
use crate::link::{Link, Ready, Sessions, Start, failure_of};
use crate::report::history::{EndedJob, History, JobRecord};
use crate::report::trace::{Format, Trace};
use crate::request::JobRequest;
use text::attempt::Attempt;
use text::exit::{Exit, Failure};

/// An identity that opens jobs.
///
/// ```no_run
/// use node::client::Node;
/// use node::event::JobEvent;
/// use node::identity::Home;
/// use node::request::JobRequest;
///
/// let node = Node::open(&Home::find()?)?;
/// let request = JobRequest::copy(["/data/run7"], "longhaul://TICKET@192.0.2.7:5740/").build();
/// let job = node.start(request);
/// for event in job.events() {
///     if let JobEvent::Progress(now) = event {
///         println!("{} bytes", now.bytes_done);
///     }
/// }
/// let exit = job.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Node {
    /// Keys, trust, receipts.
    home: Home,
    identity: Arc<Identity>,
    registry: Arc<Registry>,
    history: Arc<History>,
    /// Disks of destinations that failed in its jobs.
    failed_disks: FailedDisks,
    on_ssh_line: LineSink,
    /// Copied to a host that ssh reaches and that has none; `None`: nothing is copied there.
    program: Option<PathBuf>,
    receipts: Arc<Turns>,
}

/// What passed before there was a job.
#[derive(Debug, Default)]
pub struct Before {
    /// A pipe was read to its end.
    pub pipe: Duration,
    lookup_ns: AtomicU64,
    /// Where the near end of a tunnel through ssh is; 0: there is none.
    tunnel: AtomicU16,
    /// A connection to the far side that ssh started, which nothing was said over yet.
    connected: Mutex<Option<(String, Ready)>>,
    /// How sessions are begun, once a beginning came to nothing.
    start: Mutex<Option<Start>>,
}

impl Before {
    /// How the next session is begun.
    #[must_use]
    pub fn start(&self) -> Start {
        self.start.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(Start::Ahead)
    }

    /// The job did not come to a plan over this session. If it was not borne out by its connection, the next one begins otherwise.
    pub fn on_no_plan(&self, link: &Link, failure: &Failure) {
        if !link.is_confirmed() {
            // Datagrams came through, and of what is as long as a packet may be not a word.
            let next = if failure.exit == Exit::Stalled { Start::Small } else { Start::Plain };
            *self.start.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
        }
    }

    /// Data goes through ssh, which listens at this port of this host.
    pub fn goes_through_ssh(&self, near: u16) {
        self.tunnel.store(near, Ordering::Relaxed);
    }

    /// The session with this address may go over this connection.
    pub fn has_connected(&self, host_port: &str, ready: Option<Ready>) {
        *self.connected.lock().unwrap_or_else(PoisonError::into_inner) = ready.map(|it| (host_port.to_owned(), it));
    }

    /// The connection that is there for the first session with this address.
    #[must_use]
    pub fn take_connected(&self, host_port: &str) -> Option<Ready> {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        connected.take_if(|(to, _)| to == host_port).map(|(_, ready)| ready)
    }

    /// Does this address lead through ssh?
    #[must_use]
    pub fn is_tunnel(&self, host_port: &str) -> bool {
        let near = self.tunnel.load(Ordering::Relaxed);
        near != 0 && host_port == format!("127.0.0.1:{near}")
    }

    /// The other host's name was looked up for so long.
    pub fn add_lookup(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.lookup_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// How long names were looked up, ns.
    #[must_use]
    pub fn lookup_ns(&self) -> u64 {
        self.lookup_ns.load(Ordering::Relaxed)
    }
}

/// What a job is beside its request.
#[derive(Debug, Clone, Default)]
pub struct Manner {
    /// One end is a file that stands for a stream: the other end must name it, and nothing of it is there in a next run.
    pub piped: bool,
    /// The destination stands for a stream, and is gone when the job is over.
    pub to_stream: bool,
    /// A pipe was read for so long before: of the time that the command took.
    pub piped_for: Duration,
    /// The command's word in the history; empty: `cp`.
    pub command: &'static str,
    /// No receipt is kept: between hosts it is written where the request says, for the other end's sake, and not shown.
    pub without_receipt: bool,
    /// Ends the job from outside.
    pub cancel: Arc<Cancel>,
    /// Keeps the trace that the request asks for; whoever ends the process writes it before.
    pub trace: Arc<Trace>,
}

impl Node {
    /// The identity of this home, made now if there is none.
    ///
    /// # Errors
    /// A home that cannot be read or written, or that others may read.
    pub fn open(home: &Home) -> Result<Node, Failure> {
        Node::open_and_tell(home, |_| ())
    }

    /// The same; `tell` hears why jobs are not shown to `longhaul job` of this user, where they are not.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_and_tell(home: &Home, tell: impl FnMut(&str)) -> Result<Node, Failure> {
        let identity = Identity::load(home).map_err(|error| failure_of("load this host's key", &error.into()))?;
        // Names are the host's: a daemon in this process may have named another way to them, which then stays.
        Names::of_this_host().install();
        let registry = Registry::open(home, tell);
        job::sweep::begin(home, None, false);
        let (failed_disks, on_ssh_line) = Default::default();
        Ok(Node {
            home: home.clone(),
            identity: Arc::new(identity),
            registry,
            history: History::of(home),
            failed_disks,
            on_ssh_line,
            program: None,
            receipts: Arc::default(),
        })
    }

    /// Hosts that ssh reaches and that have no longhaul are given this program.
    #[must_use]
    pub fn bringing(mut self, program: impl Into<PathBuf>) -> Node {
        self.program = Some(program.into());
        self
    }

    /// Each line that longhaul on a host that ssh reaches writes on its standard error while a job runs goes to `sink`, from a thread of its own;
    /// without this the lines are dropped.
    #[must_use]
    pub fn on_ssh_line(mut self, sink: impl Fn(&str) + Send + Sync + 'static) -> Node {
        self.on_ssh_line = LineSink::new(sink);
        self
    }

    /// Where its key and its lists are.
    #[must_use]
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Where its running jobs are shown, and asked things.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Where its jobs have their lines once they ended.
    #[must_use]
    pub fn history(&self) -> &Arc<History> {
        &self.history
    }

    /// Runs a job to its end on this thread; `watch` is told how it goes. A job that did not reach its end is an error, and `watch` was not told of
    /// it. Files that failed alone are in the exit code (3 to 5).
    ///
    /// # Errors
    /// What ended the job; `Failure::exit` has the kind of it.
    pub fn run(&self, request: &JobRequest, manner: Manner, watch: &mut dyn Watch) -> Result<Exit, Failure> {
        run(self, request, manner, watch)
    }

    /// Starts a job on a thread of its own.
    #[must_use]
    pub fn start(&self, request: JobRequest) -> Job {
        let (to, events) = channel();
        let (node, manner) = (self.clone(), Manner::default());
        let cancel = Arc::clone(&manner.cancel);
        let done = std::thread::spawn(move || {
            // Whoever does not listen any more still has the job done.
            node.run(&request, manner, &mut |event| drop(to.send(event)))
        });
        Job { events, cancel, done }
    }
}

/// A job that runs. When this is dropped the job goes on.
#[derive(Debug)]
pub struct Job {
    events: Receiver<JobEvent>,
    cancel: Arc<Cancel>,
    done: JoinHandle<Result<Exit, Failure>>,
}

impl Job {
    /// What the job tells, as it happens; ends with the job.
    pub fn events(&self) -> impl Iterator<Item = JobEvent> {
        self.events.iter()
    }

    /// Ends the job early; what is complete stays, and the same request resumes.
    pub fn cancel(&self) {
        self.cancel.request(Refusal::Cancelled, "the program that runs the job ended it");
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// What ended the job.
    pub fn wait(self) -> Result<Exit, Failure> {
        self.done.join().unwrap_or_else(|_| Err(Exit::Bug.fail("run the job", "its thread panicked")))
    }
}

/// What every kind of copy needs.
#[derive(Debug)]
pub struct Copy<'a> {
    /// What is asked for.
    pub request: &'a JobRequest,
    /// Who we are.
    pub identity: Arc<Identity>,
    /// Keys, trust, receipts.
    pub home: Home,
    /// When the command began.
    pub began: Instant,
    /// The volumes of the destination, if it is a set of them.
    pub layout: Option<Layout>,
    /// Which entries are taken.
    pub choice: Choice,
    /// One end is a spool of ours: the other must name the stream.
    pub piped: bool,
    /// See `Manner::to_stream`.
    pub to_stream: bool,
    /// What passed before there was a job.
    pub before: Before,
    /// See `Manner::without_receipt`.
    pub without_receipt: bool,
    /// Passes over the source: a disk of the destination went out, or the session was lost.
    pub again: Retries,
    /// Where the job is shown while it runs.
    pub registry: Arc<Registry>,
    /// Disks of destinations that failed in jobs of this node.
    pub failed_disks: FailedDisks,
    /// Lines of the far side's standard error.
    pub on_ssh_line: LineSink,
    /// Sources and destination in words, without secrets.
    pub what: String,
    /// The other end is a server of FTP that goes on with sessions of ours.
    pub ftp: Option<&'a dyn Sessions>,
    /// A daemon makes this copy for a client: what it lends.
    pub lent: Option<&'a dyn RelayLimits>,
    /// By what the job is ended from outside.
    pub cancel: Arc<Cancel>,
    /// What congestion control does, over time, if anybody wants to know.
    pub trace: Arc<Trace>,
    /// See `Node::bringing`.
    pub program: Option<PathBuf>,
    /// Its place in the history.
    pub record: JobRecord,
}

impl Copy<'_> {
    /// The job goes on the registry, and the history knows its name.
    #[must_use]
    pub fn post(&self, job: [u8; 16], end: &'static str, wake: &Event) -> Registration {
        self.record.set(|it| it.job = Some(job.iter().map(|byte| format!("{byte:02x}")).collect()));
        self.registry.post(Title { job, end, initiates: true, what: self.what.clone() }, wake.clone())
    }
}

/// Does a job need this host's own key, or its list of trusted ones? Within one host it needs none; a ticket brings the other end's key, and ssh
/// brings a ticket.
#[must_use]
pub fn needs_keys(request: &JobRequest) -> bool {
    let is_trusted =
        |text: &OsString| matches!(Address::parse(text.as_bytes()), Ok(Address::Daemon { ticket: None, .. }));
    request.addresses().any(is_trusted)
}

/// Are both ends this host?
#[must_use]
pub fn is_local(request: &JobRequest) -> bool {
    request.addresses().all(|text| Address::parse(text.as_bytes()).is_ok_and(|it| matches!(it, Address::Local(_))))
}

/// What does not go together is refused before anything is looked at.
///
/// # Errors
/// What does not go together.
pub fn check(request: &JobRequest) -> Result<(), Failure> {
    if request.reflink == Clones::Only && !is_local(request) {
        return Err(Exit::Usage
            .fail("share blocks with the source", "source and destination are on different hosts")
            .next("leave out --reflink always"));
    }
    if !request.paths.is_empty() && is_local(request) {
        return Err(Exit::Usage
            .fail("use the network paths", "both ends are this host: --path is for copies between hosts")
            .next("leave out --path; another host's files are named host:path or longhaul://host/path"));
    }
    if let Some(path) = &request.trace {
        trace_is_possible(request, path)?;
    }
    let is_fixed = request.policy == Policy::Fixed || request.controller == ControllerKind::Fixed;
    let weighed = request.paths.iter().filter(|path| path.weight.is_some()).count();
    if weighed > 0 && weighed < request.paths.len() {
        return Err(Exit::Usage
            .fail("weigh the paths", "some have a weight and some have none")
            .next("give one to each, or to none"));
    }
    if is_fixed && request.rate_bps.is_none() {
        return Err(Exit::Usage
            .fail("send at a fixed rate", "--policy fixed and --congestion-controller fixed need --rate")
            .next("give the rate: --rate 1Gbit"));
    }
    if request.prune.is_some() && request.names.is_some() {
        let cause = "of what --files-from does not name, nobody knows whether the source has it";
        return Err(Exit::Usage
            .fail("remove what the source does not have", cause)
            .next("leave out --delete or --files-from"));
    }
    Ok(())
}

fn run(node: &Node, request: &JobRequest, manner: Manner, watch: &mut dyn Watch) -> Result<Exit, Failure> {
    let now = Instant::now();
    let began = now.checked_sub(manner.piped_for).unwrap_or(now);
    check(request)?;
    if crate::ftp::client::address::is_ftp(request) {
        return crate::ftp::client::run(node, request, &manner, watch);
    }
    let listed = if request.names.is_some() { Some(below_folder(request)?) } else { None };
    let request = listed.as_ref().unwrap_or(request);
    let plan = Plan::of(request, &manner)?;
    let record = record(node, request, &manner, (&plan.sources, &plan.destinations));
    let mut recorded = Recorded::new(watch, record.clone(), true);
    let done = passes(node, request, manner, plan, (began, None, record.clone()), &mut Events::to(&mut recorded));
    match &done {
        Ok(exit) => record.end(*exit, None),
        Err(failure) => recorded.failed(failure),
    }
    done
}

/// Runs a job whose other end is a server of FTP, over sessions of ours that it goes on with.
pub(crate) fn run_over(
    node: &Node,
    request: &JobRequest,
    manner: &Manner,
    (ftp, record, began): (&dyn Sessions, JobRecord, Instant),
    events: &mut Events<'_>,
) -> Result<Exit, Failure> {
    let listed = if request.names.is_some() { Some(below_folder(request)?) } else { None };
    let request = listed.as_ref().unwrap_or(request);
    let plan = Plan::of(request, manner)?;
    passes(node, request, manner.clone(), plan, (began, Some(ftp), record), events)
}

/// A job's ends, and what of them could not be done.
struct Plan {
    sources: Vec<Address>,
    destinations: Vec<Address>,
    layout: Option<Layout>,
    choice: Choice,
}

impl Plan {
    fn of(request: &JobRequest, manner: &Manner) -> Result<Plan, Failure> {
        let parsed = |all: &[OsString]| all.iter().map(|text| any_address(text)).collect::<Result<Vec<_>, _>>();
        let (sources, destinations) = (parsed(&request.sources)?, parsed(&request.destinations)?);
        let layout = layout::layout(request, destinations.len())?;
        layout::count(if request.joined { sources.len() } else { 1 })?;
        let choice = Choice::of(request)?;
        receipt_is_possible(request)?;
        if let Some(path) = &request.trace {
            manner.trace.begin(path, in_words(&sources, &destinations))?;
        }
        one_place(&sources)?;
        one_place(&destinations)?;
        Ok(Plan { sources, destinations, layout, choice })
    }
}

/// An address; one of FTP stands for the daemon behind its server.
fn any_address(text: &OsStr) -> Result<Address, Failure> {
    let Some(FtpAddress { host, port, path, .. }) = FtpAddress::of(text)? else { return Address::of(text) };
    Ok(Address::Daemon { ticket: None, host, port, others: Vec::new(), path })
}

fn passes(
    node: &Node,
    request: &JobRequest,
    manner: Manner,
    Plan { sources, destinations, layout, choice }: Plan,
    (began, ftp, record): (Instant, Option<&dyn Sessions>, JobRecord),
    events: &mut Events<'_>,
) -> Result<Exit, Failure> {
    let (from, paths) = one_place(&sources)?;
    let (_, targets) = one_place(&destinations)?;
    let copy = Copy {
        request,
        identity: Arc::clone(&node.identity),
        home: node.home.clone(),
        began,
        layout,
        choice,
        piped: manner.piped,
        to_stream: manner.to_stream,
        before: Before { pipe: manner.piped_for, ..Before::default() },
        without_receipt: manner.without_receipt,
        again: Retries::default(),
        registry: Arc::clone(&node.registry),
        failed_disks: node.failed_disks.clone(),
        on_ssh_line: node.on_ssh_line.clone(),
        what: in_words(&sources, &destinations),
        ftp,
        lent: None,
        cancel: manner.cancel,
        trace: manner.trace,
        program: node.program.clone(),
        record,
    };
    let once = |events: &mut Events<'_>| match copy.cancel.requested() {
        Some((_, why)) => Err(Exit::Interrupted.fail("begin the session", why)),
        None => pass(&copy, from, &paths, &destinations[0], &targets, events),
    };
    let done = copy.again.until_done(request.stall, events, once);
    // Of a job that reached its end it is written by now.
    copy.trace.write(None).iter().for_each(|told| events.note(told));
    if !request.dry_run {
        keep_receipts(node);
    }
    done
}

/// After a job: receipts that this home does not keep go. What its file says and cannot be understood, `receipt list` tells.
fn keep_receipts(node: &Node) {
    let keep = Keep::of(&node.home).unwrap_or_default();
    let _ = node.receipts.after_job(&node.home, keep, None);
}

/// A stream as an end of a job, in reports.
pub const STREAM: &str = "-";

/// The job's place in the history. A dry run has none.
fn record(node: &Node, request: &JobRequest, manner: &Manner, ends: (&[Address], &[Address])) -> JobRecord {
    if request.dry_run {
        return JobRecord::default();
    }
    let is_here = |all: &[Address]| matches!(all.first(), Some(Address::Local(_)));
    let end = match (is_here(ends.0), is_here(ends.1)) {
        (true, true) => "copies",
        (true, false) => "sends",
        (false, true) => "receives",
        (false, false) => "steers",
    };
    node.history.begin(EndedJob {
        side: "client".to_owned(),
        command: if manner.command.is_empty() { "cp" } else { manner.command }.to_owned(),
        end: end.to_owned(),
        // The file that stands for a stream is gone by the time that anybody reads this.
        source: if manner.piped && !manner.to_stream { STREAM.to_owned() } else { whole_words(ends.0) },
        destination: if manner.to_stream { STREAM.to_owned() } else { whole_words(ends.1) },
        ..EndedJob::default()
    })
}

/// Addresses as they are found again later: where a command was run nobody knows then.
fn whole_words(all: &[Address]) -> String {
    let of = |address: &Address| match address {
        Address::Local(path) => {
            let path = std::path::absolute(OsStr::from_bytes(path)).unwrap_or_default();
            crate::report::show_path(path.as_os_str().as_bytes())
        }
        far => far.to_string(),
    };
    let more = if all.len() > 1 { format!(" and {} more", all.len() - 1) } else { String::new() };
    all.first().map_or_else(String::new, |first| of(first) + &more)
}

/// A stream whose destination is a folder.
#[must_use]
pub fn unnamed() -> Failure {
    Exit::Usage
        .fail("name the stream", "the destination is a folder")
        .next("name the file in it: longhaul cp - HOST:FOLDER/NAME")
}

/// A receipt that was asked for by name: that it cannot be written is said before anything is moved, not after hours.
fn receipt_is_possible(request: &JobRequest) -> Result<(), Failure> {
    let Some(path) = request.receipt.as_ref().filter(|_| !request.dry_run) else { return Ok(()) };
    let is_far = |text: &OsString| !matches!(Address::parse(text.as_bytes()), Ok(Address::Local(_)));
    if request.addresses().all(is_far) {
        let cause = "both ends are other hosts: the receipt stands with them, below their LONGHAUL_HOME";
        return Err(Exit::Usage
            .fail(format!("write the receipt '{}' here", path.display()), cause)
            .next("leave out --receipt; it stands below receipts/ there"));
    }
    job::receipt::try_place(path)
        .map_err(|error| Attempt::KeepReceipt.fail(format!("write the receipt '{}'", path.display()), &error))
}

/// A trace is of rails between this host and another.
fn trace_is_possible(request: &JobRequest, path: &Path) -> Result<(), Failure> {
    Format::of(path)?;
    let is_here = |text: &OsString| matches!(Address::parse(text.as_bytes()), Ok(Address::Local(_)));
    let what = || format!("trace the copy to '{}'", path.display());
    if request.dry_run {
        return Err(Exit::Usage.fail(what(), "a dry run moves nothing").next("leave out --dry-run or --trace"));
    }
    if is_local(request) {
        let cause = "both ends are this host: no congestion control is at work";
        return Err(Exit::Usage.fail(what(), cause).next("leave out --trace"));
    }
    if !request.addresses().any(is_here) {
        let cause = "both ends are other hosts: the bytes do not pass here";
        let next = "run the copy on the host that sends, or take the lines \"event\":\"rail\" of --json, one a second";
        return Err(Exit::Usage.fail(what(), cause).next(next));
    }
    Ok(())
}

/// What is copied where, short enough for a line.
fn in_words(sources: &[Address], destinations: &[Address]) -> String {
    let of = |all: &[Address]| match all {
        [one] => one.to_string(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
        [] => String::new(),
    };
    format!("{} -> {}", of(sources), of(destinations))
}

/// One job from the source to the destination.
fn pass(
    copy: &Copy<'_>,
    from: Option<&Address>,
    paths: &[Box<[u8]>],
    to: &Address,
    targets: &[Box<[u8]>],
    events: &mut Events<'_>,
) -> Result<Exit, Failure> {
    let mut far = ssh::SshHosts::default();
    let done = match (from, to) {
        (None, Address::Local(_)) => local::run(copy, paths, targets, events),
        (None, to) => {
            let to = far.reach(copy, to, events)?;
            session::push(copy, paths, &to, targets, events)
        }
        (Some(from), Address::Local(_)) => {
            let from = far.reach(copy, from, events)?;
            session::pull(copy, &from, paths, targets, events)
        }
        (Some(from), to) => {
            let from = far.reach(copy, from, events)?;
            let to = far.reach(copy, to, events)?;
            relay::run(copy, &from, paths, &to, targets, events)
        }
    };
    done.map_err(|failure| far.named_by_user(failure))
}

/// The paths of a copy of listed names: they stand below DST as they do below SRC.
fn below_folder(request: &JobRequest) -> Result<JobRequest, Failure> {
    let refuse = |cause: String| {
        let failure = Exit::Usage.fail("take the names of --files-from", cause);
        Err(failure.next("name one source: the folder below which they stand"))
    };
    if request.joined || request.stripe.is_some() {
        return refuse("a list names what is below one folder, not on a set of volumes".to_owned());
    }
    let ([source], [destination]) = (&request.sources[..], &request.destinations[..]) else {
        return refuse(format!("{} sources were named", request.sources.len()));
    };
    let (sources, destinations) = (vec![folder_path(source, b".")], vec![folder_path(destination, b"")]);
    Ok(JobRequest { sources, destinations, ..request.clone() })
}

/// The sources' host (none: this one) and their paths there.
type Place<'a> = (Option<&'a Address>, Vec<Box<[u8]>>);

/// All sources must be on one host: one session, one receipt.
fn one_place(sources: &[Address]) -> Result<Place<'_>, Failure> {
    let same = |a: &Address, b: &Address| match (a, b) {
        (Address::Local(_), Address::Local(_)) => true,
        (Address::Ssh { user: u, host: h, .. }, Address::Ssh { user: v, host: i, .. }) => u == v && h == i,
        (Address::Daemon { .. }, Address::Daemon { .. }) => a.host_port() == b.host_port(),
        _ => false,
    };
    let first = sources.first().ok_or_else(|| Exit::Usage.fail("find the sources", "none was named"))?;
    if let Some(other) = sources.iter().find(|other| !same(first, other)) {
        let cause = format!("'{first}' and '{other}' are on different hosts");
        return Err(Exit::Usage.fail("use two hosts at once", cause).next("give each host a command of its own"));
    }
    let paths = sources.iter().map(|source| source.path().into()).collect();
    Ok((if matches!(first, Address::Local(_)) { None } else { Some(first) }, paths))
}
