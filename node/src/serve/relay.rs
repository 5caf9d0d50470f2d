//! A job that this daemon makes for a client: its files, to another daemon.
//!
//! For: remote to remote; the ticket for it at one daemon, the job at the other.
//! In and out: `AskTicket` → a ticket for one job; `Relay` → a push from here, told to the client line by line.
//! Invariants: the job has what a job of that client's own would have here, and no more: consent to payload in clear, rates, memory, workers,
//! rails; nobody is dialled who does not prove the key that the ticket names, and whatever fails on the way there has one answer; it ends when the
//! client is gone, unless that was wanted otherwise.
//! Absent on purpose: the push itself (cp::session), what a ticket is good for (identity::ticket).

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use engine::job::JobNo;
use engine::tree::scan::include::IncludeList;
use engine::worker::bound::Bound;
use proto::error::Refusal;
use proto::layout::Layout;
use proto::manifest::Aspects;
use proto::wire::control::{Compare, Frame};
use proto::wire::request::RelayRequest;

use super::guest::{self, Guest, No, PATIENCE, no, path_base, permitted};
use super::live::Relayed;
use super::log::{EndedJob, JobFacts};
use super::shares::Shares;
use super::{CHUNK_BYTES, Daemon, history, relay_to};
use crate::address::Address;
use crate::client::choice::Choice;
use crate::client::recorded::Recorded;
use crate::client::relay_limits::RelayLimits;
use crate::client::ssh::LineSink;
use crate::client::{self, Copy};
use crate::event::{Events, JsonLines};
use crate::identity::keys::fingerprint;
use crate::identity::ticket::Delegation;
use crate::identity::{Access, PublicKey, Rights};
use crate::job::cancel::Cancel;
use crate::job::greeting::say;
use crate::job::offer::{Requested, STREAMS_MAX};
use crate::link::{Expect, Link, LinkError, Turn, connect_retry};
use crate::report;
use crate::request::JobRequest;
use text::exit::{Exit, Failure};

/// A ticket for a relayed job is good for so long: its job begins at once.
const TICKET: Duration = Duration::from_secs(120);
/// Whoever is dialled for a client answers and proves its key in this time; what fails is told when it is over, and not before.
pub(super) const DIAL: Duration = if cfg!(test) { Duration::from_secs(2) } else { Duration::from_secs(10) };
/// The client is looked after so often.
const LOOK: Duration = Duration::from_millis(200);
/// A client whose host is gone without a word is given up after the job's `--stall`, and not before this.
const SILENT: Duration = Duration::from_secs(30);

/// What a client asks a ticket for.
pub(super) struct Wanted {
    pub(super) key: PublicKey,
    pub(super) targets: Vec<Box<[u8]>>,
    pub(super) compare: Compare,
    pub(super) prune: Option<u64>,
}

/// A ticket for one job that writes there, with no more than the client's own rights.
pub(super) fn give_ticket(daemon: &Daemon, link: &mut Link, guest: &Guest, wanted: Wanted) -> Result<(), No> {
    if !guest.rights.access.may_write() {
        return Err(no(Refusal::ReadOnly, "this key or ticket may only read here"));
    }
    let Wanted { key: to, targets, compare, prune } = wanted;
    let looks = compare != Compare::Never || prune.is_some();
    let access = if looks { guest.rights.access } else { Access::WriteOnly };
    let rights = Rights { access, ..guest.rights.clone() };
    let key = daemon.identity.public();
    let parent = guest.grant.as_ref().map(|grant| grant.number);
    let delegation = Delegation { issuer: guest.owner, parent, targets, compare, prune };
    let ticket = daemon
        .tickets
        .delegate(key, to, rights, Instant::now() + TICKET, delegation)
        .map_err(|error| no(Refusal::Internal, error.to_string()))?;
    let addresses = link.local_addr().map(|addr| addr.to_string()).into_iter().collect();
    say(link, &Frame::GiveTicket { secret: ticket.secret, key, addresses });
    let _ = link.flush_blocking(PATIENCE);
    // The client's farewell; if it goes without one, the ticket expires by itself.
    let _ = link.call(PATIENCE);
    Ok(())
}

/// A pass of a relayed job over a set of volumes is over and another follows.
pub(super) fn until_next_pass() -> Instant {
    Instant::now() + TICKET
}

/// What a daemon lends a job that it makes for a client, instead of what `cp` would take of the whole host.
pub struct Lent<'a> {
    daemon: &'a Daemon,
    rights: &'a Rights,
    shares: Arc<Shares>,
    cancel: Arc<Cancel>,
}

impl std::fmt::Debug for Lent<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Lent").field("rights", self.rights).finish_non_exhaustive()
    }
}

impl RelayLimits for Lent<'_> {
    fn narrow(&self, requested: Requested) -> Requested {
        let settings = self.daemon.settings.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let least = |one: u64, other: u64| [one, other].into_iter().filter(|it| *it > 0).min().unwrap_or(0);
        let workers = u16::try_from(self.daemon.workers.count()).unwrap_or(u16::MAX);
        Requested {
            memory_bytes: least(requested.memory_bytes, settings.memory_bytes),
            workers: if requested.workers > 0 { requested.workers.min(workers) } else { workers },
            driver: settings.driver,
            integrity_only: requested.integrity_only && settings.integrity_only,
            bare: requested.bare && settings.bare,
            streams: requested.streams.min(STREAMS_MAX),
            datagrams: requested.datagrams.min(STREAMS_MAX),
            chunk_bytes: requested.chunk_bytes.min(CHUNK_BYTES),
            rate_bps: least(requested.rate_bps, self.rights.rate_bps),
            bufs_bytes: self.daemon.pool_bytes / (self.daemon.running.load(Ordering::SeqCst) as u64).max(1),
            ..requested
        }
    }

    fn workers(&self) -> (Arc<engine::host::Workers>, u64) {
        (Arc::clone(&self.daemon.workers), self.daemon.pool_bytes)
    }

    /// Below all of this daemon.
    fn bound(&self) -> Arc<Bound> {
        self.shares.bound.clone()
    }

    fn share(&self, no: JobNo) -> Box<dyn Fn(u64, bool) -> u64 + Send + '_> {
        let share = guest::share(self.daemon, self.shares.clone(), no);
        Box::new(move |taken, _| share(taken, false))
    }

    fn forget(&self, job: [u8; 16], no: JobNo) {
        self.daemon.forget_job(&job, no);
    }

    fn stall(&self, asked: Duration) -> Duration {
        self.daemon.settings.read().map_or(asked, |settings| asked.min(settings.idle_timeout))
    }

    /// A session with whoever proves `key` at one of the daemon's addresses that may be dialled. Everything that fails, and what is not permitted, has one answer, and all that
    /// touches the network takes the same time: what stands in this daemon's network is not for its clients to find out.
    fn dial(&self, daemon: &Address, key: PublicKey) -> Result<Link, Failure> {
        let begun = Instant::now();
        let settings = self.daemon.settings.read().ok();
        let words = settings.as_ref().and_then(|settings| settings.relay_to.as_deref());
        let (may, may_not): (Vec<_>, Vec<_>) =
            daemon.hosts().partition(|&(host, port)| relay_to::permits(words, host, port));
        drop(settings);
        let all = |hosts: Vec<(&str, u16)>| {
            let spelt: Vec<String> = hosts.into_iter().map(|(host, port)| crate::address::spell(host, port)).collect();
            spelt.join(",")
        };
        if !may_not.is_empty() {
            let at = all(may_not);
            self.daemon.log(1, &format!("a relay to {at} was refused: serve --relay-to does not name it"));
        }
        if may.is_empty() {
            return Err(not_reached());
        }
        let at = all(may);
        let (to, from) = channel();
        let identity = Arc::clone(&self.daemon.identity);
        let host_port = at.clone();
        // On a thread of its own: a name may be looked up for longer than this waits.
        let dialled = std::thread::Builder::new().name("dial".to_owned()).spawn(move || {
            let left = || DIAL.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
            let connect = || Link::connect(&host_port, &identity, Expect::Key(key), left());
            let _ = to.send(connect_retry::until_let_in(connect, |_| ()));
        });
        let why = match dialled.map(|_| from.recv_timeout(DIAL)) {
            Ok(Ok(Ok(link))) => return Ok(link),
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(_)) => "no answer in time".to_owned(),
            Err(error) => error.to_string(),
        };
        self.daemon.log(1, &format!("a relay to {at} was not made: {why}"));
        while begun.elapsed() < DIAL && self.cancel.requested().is_none() {
            std::thread::sleep(LOOK.min(DIAL.saturating_sub(begun.elapsed())));
        }
        Err(not_reached())
    }
}

/// The one answer of `RelayLimits::dial`.
fn not_reached() -> Failure {
    let cause = "this host does not reach it, may not relay to it (serve --relay-to; ports below 1024 only where they are named), or it does not prove \
                 the ticket's key";
    Exit::of_refusal(Refusal::RelayRefused)
        .fail("relay to the destination", cause)
        .next("check the destination's address as the source's host sees it, and `serve --relay-to` there; its log (-v) says more")
}

/// What is to be relayed, see `Frame::Relay`.
pub(super) struct Task {
    pub(super) sources: Vec<Box<[u8]>>,
    pub(super) target: String,
    pub(super) volumes: Vec<Box<[u8]>>,
    pub(super) request: Box<RelayRequest>,
}

/// Payload in clear needs the consent of this end, too.
fn consents(daemon: &Daemon, request: &JobRequest) -> Result<(), No> {
    let (clear, bare) = daemon.settings.read().map_or((false, false), |it| (it.integrity_only || it.bare, it.bare));
    if (request.bare && !bare) || (request.integrity_only && !clear) {
        let option = if request.bare { "--bare" } else { "--integrity-only" };
        let detail = format!("the source's daemon was not started with {option}");
        return Err(no(Refusal::IntegrityOnlyRefused, detail));
    }
    Ok(())
}

/// What is the same when a client begins a relay again; the ticket is another each time.
fn named(guest: &Guest, task: &Task, to: &Address) -> Relayed {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&guest.owner);
    let places = [to.host_port().unwrap_or_default().into_bytes(), to.path().to_vec()];
    for word in task.sources.iter().map(|it| &**it).chain(places.iter().map(Vec::as_slice)) {
        hasher.update(&(word.len() as u64).to_le_bytes()).update(word);
    }
    *hasher.finalize().as_bytes()
}

/// Where it is to go, and what the client wants of it.
fn understood(task: &Task) -> Result<(Address, JobRequest), No> {
    let Task { sources, target, volumes, request } = task;
    let to = Address::parse(target.as_bytes()).map_err(|fault| no(Refusal::RelayRefused, fault.to_string()))?;
    // Only a ticket says that the client may write there; this daemon's own keys are not lent.
    if !matches!(&to, Address::Daemon { ticket: Some(_), .. }) {
        return Err(no(Refusal::RelayRefused, "the target must be a daemon's address with a ticket"));
    }
    let names: Vec<OsString> = sources.iter().map(|path| OsString::from_vec(path.to_vec())).collect();
    // Of several destinations each is a path at the target's daemon; the first is the target's own.
    let volumes = volumes.iter().map(|path| OsString::from_vec(path.to_vec()));
    let destinations = std::iter::once(OsString::from(target)).chain(volumes).collect();
    Ok((to, JobRequest::from_relay(request, names, destinations)))
}

/// An outage that the job outlives its client outlives, too.
fn outlive(link: &Link, stall: Duration) {
    let silent = stall.max(SILENT);
    let _ = sys::sock::set_user_timeout(link.as_fd(), silent);
    let _ = sys::sock::set_keepalive(link.as_fd(), silent / 3, silent / 6, 3);
}

/// How the volumes of the destination are used, if there are more than the one that the target names.
fn layout_of(request: &JobRequest, more: usize) -> Result<Option<Layout>, No> {
    let layout = client::layout::layout(request, more + 1);
    let layout = layout.map_err(|failure| no(Refusal::RelayRefused, failure.cause))?;
    if layout.is_none() && more > 0 {
        return Err(no(Refusal::RelayRefused, "several targets are volumes of a set: --stripe says how it is used"));
    }
    Ok(layout)
}

/// Runs a client's job against another daemon, and tells how it goes.
pub(super) fn relay(
    daemon: &Daemon,
    link: &mut Link,
    guest: &Guest,
    task: &Task,
    picks: Option<Arc<IncludeList>>,
) -> Result<(), No> {
    let (sources, volumes) = (&task.sources, &task.volumes);
    if !guest.rights.access.may_read() {
        return Err(no(Refusal::WriteOnly, "this key or ticket may only write here"));
    }
    let (path_base, (to, mut request)) = (path_base(daemon, &guest.rights)?, understood(task)?);
    consents(daemon, &request)?;
    let refused = |failure: Failure| no(Refusal::RelayRefused, failure.cause);
    let targets: Vec<Box<[u8]>> = std::iter::once(to.path().into()).chain(volumes.iter().cloned()).collect();
    let (layout, choice) = (layout_of(&request, volumes.len())?, Choice::of(&request).map_err(refused)?);
    if permitted(daemon, &guest.rights, Aspects::SECURITY).is_empty() {
        request.aspects = request.aspects.without(Aspects::SECURITY);
    }
    if !daemon.live.relays(&guest.cancel, named(guest, task, &to), task.request.again) {
        return Err(no(Refusal::Busy, "the earlier one of this relay has not ended yet"));
    }
    let (to_client, lines) = channel::<Vec<u8>>();
    let (shares, cancel) = (guest::shares(daemon, guest), Arc::clone(&guest.cancel));
    let lent = Lent { daemon, rights: &guest.rights, shares, cancel };
    let (stall, began, path) = (lent.stall(request.stall), Instant::now(), in_words(sources, &to));
    outlive(link, stall);
    let peer = link.peer_addr().map_or_else(|| "a client".to_owned(), |addr| addr.to_string());
    std::thread::scope(|scope| {
        let pushed = scope.spawn(|| {
            let mut lines = JsonLines::to(Lines::new(to_client));
            let record = history::begin_relay(daemon, guest, (sources, &to), request.dry_run);
            // Of this host's history its client hears nothing.
            let mut recorded = Recorded::new(&mut lines, record.clone(), false);
            let mut events = Events::to(&mut recorded);
            let copy = Copy {
                request: &request,
                identity: daemon.identity.clone(),
                home: daemon.home.clone(),
                began: Instant::now(),
                layout,
                choice: Choice { picks, ..choice },
                piped: false,
                to_stream: false,
                before: Default::default(),
                without_receipt: false,
                again: client::retry::Retries::default(),
                registry: Arc::clone(&daemon.registry),
                failed_disks: daemon.failed_disks.clone(),
                on_ssh_line: LineSink::default(),
                what: path.clone(),
                ftp: None,
                lent: Some(&lent),
                cancel: Arc::clone(&guest.cancel),
                trace: Arc::default(),
                program: None,
                record,
            };
            let push = |events: &mut Events<'_>| match guest.cancel.requested() {
                Some((_, why)) => Err(Exit::Interrupted.fail("make the session again", why)),
                None => client::session::push_from(&copy, &path_base, sources, &to, &targets, events),
            };
            let done = copy.again.until_done(stall, &mut events, push);
            (done.inspect_err(|failure| _ = events.fail(failure)), copy.again.job())
        });
        // The client goes with the last line: what that says must be so by then.
        let (last, moved) = follow(link, &lines, &guest.cancel, request.unattended);
        if let Ok((done, job)) = pushed.join() {
            let facts = JobFacts { job, key: fingerprint(&guest.owner), peer, direction: "relays", path: path.clone() };
            on_end(daemon, guest, &done, (facts, moved, began.elapsed()));
        }
        last.into_iter().for_each(|line| _ = tell(link, line));
    });
    link.close();
    let _ = link.flush_blocking(PATIENCE);
    if daemon.settings.read().is_ok_and(|settings| settings.stdio) {
        daemon.stop.signal();
    }
    Ok(())
}

/// What is relayed where, short enough for a line.
fn in_words(sources: &[Box<[u8]>], to: &Address) -> String {
    format!("{} -> {to}", sources.first().map(|path| report::show_path(path)).unwrap_or_default())
}

/// It is over: the log says how, and a job that came to its end has spent its ticket.
fn on_end(
    daemon: &Daemon,
    guest: &Guest,
    done: &Result<Exit, Failure>,
    (facts, moved, took): (JobFacts, (u64, u64), Duration),
) {
    let (exit, cause) = match done {
        Ok(exit) => (*exit, None),
        Err(failure) => (failure.exit, Some(failure.cause.as_str())),
    };
    daemon.log_job(&EndedJob::of(facts, moved, took, exit, cause));
    if let (Ok(_), Some(grant)) = (done, &guest.grant) {
        daemon.tickets.spend(grant);
    }
}

fn tell(link: &mut Link, line: String) -> Result<(), LinkError> {
    say(link, &Frame::Event { line });
    link.flush_blocking(PATIENCE)
}

/// Tells the client each line but the last, which is given back with the files and bytes that were moved. A client that is gone ends the job, unless that was wanted otherwise; its report
/// stays here with the receipt.
fn follow(
    link: &mut Link,
    lines: &std::sync::mpsc::Receiver<Vec<u8>>,
    cancel: &Cancel,
    unattended: bool,
) -> (Option<String>, (u64, u64)) {
    let (mut last, mut is_gone, mut moved) = (None, false, (0, 0));
    loop {
        let line = lines.recv_timeout(LOOK);
        if !is_gone {
            let mut said = Vec::new();
            // A client that is being told has nothing to say.
            is_gone = !matches!(link.turn(&mut said), Ok(Turn::Open)) || !said.is_empty();
        }
        match line {
            Ok(line) => {
                let line = String::from_utf8_lossy(&line).into_owned();
                if report::ends_job(&line) {
                    moved = report::moved_at_end(&line).unwrap_or(moved);
                    last = Some(line);
                } else if !is_gone {
                    is_gone = tell(link, line).is_err();
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return (last.filter(|_| !is_gone), moved),
        }
        if is_gone && !unattended {
            cancel.request(
                Refusal::Cancelled,
                "the client that asked for this relayed job is gone (cp --unattended lets it go on)",
            );
        }
    }
}

/// Cuts what a screen writes into lines.
struct Lines {
    to: Sender<Vec<u8>>,
    line: Vec<u8>,
}

impl Lines {
    fn new(to: Sender<Vec<u8>>) -> Lines {
        Lines { to, line: Vec::new() }
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for &byte in bytes {
            if byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                self.to.send(line).map_err(|_| std::io::ErrorKind::BrokenPipe)?;
            } else {
                self.line.push(byte);
            }
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
