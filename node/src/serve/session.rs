//! One client of the daemon.
//!
//! For: greeting, rights, and then one job, one ticket or one relay.
//! In and out: a proven `Link` in; a job served or a refusal said.
//! Invariants: nothing that the client asks for is looked at before its rights are known; every refusal has a code.
//! Absent on purpose: the listener's limits (listener), driving the job (job::driver).

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use engine::fault::words;
use engine::host::Team;
use engine::tree::io_mode::{Chooser, Demands};
use engine::tree::scan::filter::Filter;
use engine::tree::scan::include::{IncludeList, NotIncluded};
use engine::tree::scan::overlap::Own;
use engine::tree::{look_read, look_write, read_bps, write_bps};
use engine::worker::bound::Bound;
use proto::error::{Breach, Refusal};
use proto::manifest::Aspects;
use proto::negotiate::{Offer, RdmaOffer, StorageLook, negotiate};
use proto::session::order::Order;
use proto::session::replan::Offers;
use proto::wire::control::{Compare, Direction, Frame, Open, PICK_BYTES_MAX, Place};
use sys::event::Event;

use crate::client::session::{end_of, next_job, volumes_of};
use crate::demultiplexer;
use crate::identity::authorized::{self, Verdict};
use crate::identity::keys::fingerprint;
use crate::identity::ticket::{Grant, PROOF_LABEL};
use crate::identity::{PublicKey, Rights};
use crate::job::driver::{self, Job, OtherEnd, Sync, Way};
use crate::job::endpoint::listing::Untold;
use crate::job::endpoint::{self, Called};
use crate::job::greeting::{agent, hear, say};
use crate::job::keys::{JobSecret, job_of};
use crate::job::numa::NumaPlacement;
use crate::job::offer::{self, Requested};
use crate::job::rails::{CONTROL, Rails};
use crate::job::receipt;
use crate::job::receipt::retention::{Keep, Pruned};
use crate::job::registry::Title;
use crate::job::udp::packet_bytes_of;
use crate::link::{Link, failure_of};
use crate::request::RdmaDevice;
use crate::serve::guest::{Guest, No, PATIENCE, no, path_base, permitted, share, shares, told};
use crate::serve::history;
use crate::serve::log::{EndedJob, JobFacts};
use crate::serve::relay::{self, Task, Wanted};
use crate::serve::{Daemon, Forget};
use text::exit::{Exit, Failure};
use text::units::show_bytes;

/// A refused client gets this long to read why, and to go.
const LINGER: Duration = Duration::from_secs(1);

/// Is this key on the list of those that may come in?
pub fn is_known(daemon: &Daemon, key: &PublicKey) -> bool {
    let list = daemon.settings.read().ok().and_then(|settings| settings.authorized_keys.clone());
    matches!(authorized::judge(&daemon.home, list.as_deref(), key), Ok(Verdict::Authorized(_)))
}

/// Serves one client. A mistake in doing so is that client's end: the daemon goes on.
pub fn run(daemon: &Daemon, link: Link) {
    let peer = link.peer_addr();
    // What sessions share is under locks that outlive a panic, and in guards that give back what a session had.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| serve_client(daemon, link))) {
        let peer = peer.map_or_else(|| "a client".to_owned(), |addr| addr.to_string());
        daemon.log(0, &format!("{peer}: a mistake in Longhaul ended its session: {}", words(&*panic)));
    }
}

fn serve_client(daemon: &Daemon, mut link: Link) {
    let peer = link.peer_addr().map_or_else(|| "a client".to_owned(), |addr| addr.to_string());
    let mut order = Order::of_acceptor();
    match greet(daemon, &mut link, &mut order) {
        Ok((guest, frame)) => {
            link.admitted();
            let keys = vec![link.peer_key(), guest.owner];
            let one_job = guest.grant.as_ref().and_then(|grant| grant.one_job);
            let Some(place) = daemon.live.enter(keys, one_job, &guest.cancel) else {
                return turn_away(daemon, &mut link, &peer, &no(Refusal::Busy, "another job runs on this ticket"));
            };
            place.is_on(guest.grant.iter().flat_map(Grant::family).collect());
            if let Err(refused) = serve(daemon, link, &guest, (frame, &place, order), &peer) {
                daemon.log(0, &format!("{peer}: {refused}"));
            }
        }
        Err(no) => turn_away(daemon, &mut link, &peer, &no),
    }
}

fn refuse(link: &mut Link, no: &No) {
    say(link, &Frame::Refuse { code: no.code, detail: no.detail.clone() });
    link.close();
    let _ = link.flush_blocking(LINGER);
    // A socket closed with something unread makes the kernel send RST, which takes the refusal from the client's hands.
    link.linger(LINGER);
}

fn next(link: &mut Link, order: &mut Order) -> Result<Frame, No> {
    let frame =
        hear(link, PATIENCE).map_err(|failure| No { code: Breach::WrongOrder.code(), detail: failure.cause })?;
    order.on_frame(&frame)?;
    Ok(frame)
}

/// Serves one job or one listing of a client that logged in by FTP. Given back: the session, if it ended well and its connection is to be FTP's again.
pub fn run_login(daemon: &Daemon, link: Link, rights: Rights, login: [u8; 32]) -> Option<Link> {
    let peer = link.peer_addr().map_or_else(|| "a client".to_owned(), |addr| addr.to_string());
    catch_unwind(AssertUnwindSafe(|| serve_login(daemon, link, rights, login, &peer))).unwrap_or_else(|panic| {
        daemon.log(0, &format!("{peer}: a mistake in Longhaul ended its session: {}", words(&*panic)));
        None
    })
}

fn serve_login(daemon: &Daemon, mut link: Link, rights: Rights, login: [u8; 32], peer: &str) -> Option<Link> {
    let mut order = Order::of_acceptor();
    let (guest, frame) = match greet_login(daemon, &mut link, &mut order, rights) {
        Ok((guest, frame)) => (Guest { login: Some(login), ..guest }, frame),
        Err(no) => {
            turn_away(daemon, &mut link, peer, &no);
            return None;
        }
    };
    let place = daemon.live.enter(vec![link.peer_key()], None, &guest.cancel)?;
    serve(daemon, link, &guest, (frame, &place, order), peer).unwrap_or_else(|refused| {
        daemon.log(0, &format!("{peer}: {refused}"));
        None
    })
}

/// Versions; the rights are those of the login, and a key that is revoked here has none.
fn greet_login(daemon: &Daemon, link: &mut Link, order: &mut Order, rights: Rights) -> Result<(Guest, Frame), No> {
    agree_on_version(link, order)?;
    let key = link.peer_key();
    if matches!(authorized::revoked(&daemon.home), Ok(keys) if !keys.contains(&key)) {
        let frame = next(link, order)?;
        if daemon.draining.load(Ordering::SeqCst) {
            return Err(Refusal::Draining.into());
        }
        return Ok((Guest::new(key, rights, None), frame));
    }
    Err(no(Refusal::NotAuthorized, "this key is revoked here"))
}

/// Versions, then rights: by ticket, or by key.
fn greet(daemon: &Daemon, link: &mut Link, order: &mut Order) -> Result<(Guest, Frame), No> {
    agree_on_version(link, order)?;
    if daemon.settings.read().is_ok_and(|settings| settings.logins_only) {
        return Err(no(Refusal::NotAuthorized, "this port is for those who log in by FTP: name ftp://"));
    }
    let key = link.peer_key();
    let list = daemon.settings.read().ok().and_then(|settings| settings.authorized_keys.clone());
    let verdict = authorized::judge(&daemon.home, list.as_deref(), &key).map_err(|error| {
        // The reason names files of this host: it goes to the log, not to a stranger.
        daemon.log(0, &format!("nobody is let in: {error}"));
        no(Refusal::Internal, "this daemon cannot read its list of keys; its log says why")
    })?;
    if verdict == Verdict::Revoked {
        return Err(no(Refusal::NotAuthorized, "this key is revoked here"));
    }
    let frame = next(link, order)?;
    let (guest, frame) = match (frame, verdict) {
        (Frame::Ticket { proof }, verdict) => {
            let exported = link.export(PROOF_LABEL, &[]);
            match (daemon.tickets.redeem(&proof, &exported, &key, Instant::now()), verdict) {
                (Some(grant), _) => {
                    still_stands(daemon, list.as_deref(), &grant)?;
                    (Guest::new(key, grant.rights.clone(), Some(grant)), next(link, order)?)
                }
                (None, _) => {
                    return Err(no(
                        Refusal::TicketSpent,
                        "the ticket is not one of this daemon's, is spent, or has expired",
                    ));
                }
            }
        }
        (frame, Verdict::Authorized(rights)) => (Guest::new(key, rights, None), frame),
        (_, _) => {
            let detail =
                format!("authorize it there with: longhaul key authorize '{}'", crate::identity::keys::key_text(&key));
            return Err(no(Refusal::NotAuthorized, detail));
        }
    };
    if daemon.draining.load(Ordering::SeqCst) {
        return Err(Refusal::Draining.into());
    }
    Ok((guest, frame))
}

fn agree_on_version(link: &mut Link, order: &mut Order) -> Result<(), No> {
    let Frame::Hello { version_min, version, .. } = next(link, order)? else { return Err(Breach::WrongOrder.into()) };
    say(link, &Frame::Hello { version_min: proto::VERSION_MIN, version: proto::VERSION, agent: agent() });
    if version_min > proto::VERSION || version < proto::VERSION_MIN {
        let detail = format!("this daemon speaks {} to {}", proto::VERSION_MIN, proto::VERSION);
        return Err(no(Refusal::VersionTooOld, detail));
    }
    Ok(())
}

/// A delegated ticket is worth no more than the rights of whoever asked for it.
fn still_stands(daemon: &Daemon, list: Option<&std::path::Path>, grant: &Grant) -> Result<(), No> {
    let Some(delegation) = &grant.delegation else { return Ok(()) };
    match authorized::judge(&daemon.home, list, &delegation.issuer) {
        Ok(Verdict::Authorized(_)) => Ok(()),
        // A ticket let the issuer in, and still stands, or this one would not.
        Ok(Verdict::Unknown) if delegation.parent.is_some() => Ok(()),
        Ok(_) => Err(no(Refusal::NotAuthorized, "the key of the client that asked for this ticket is revoked here")),
        Err(_) => Err(no(Refusal::Internal, "this daemon cannot read its list of keys; its log says why")),
    }
}

/// Counts a job while it lives.
pub(super) struct Count<'a>(&'a Daemon);

impl<'a> Count<'a> {
    pub(super) fn one(daemon: &'a Daemon) -> Result<Count<'a>, No> {
        let jobs_max = daemon.settings.read().map_or(1, |settings| settings.jobs_max as usize);
        let room = daemon.capacity.at_most(jobs_max);
        let before = daemon.running.fetch_add(1, Ordering::SeqCst);
        let count = Count(daemon);
        if before >= room.jobs {
            return Err(no(Refusal::Busy, room.to_string()));
        }
        Ok(count)
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
        let left = self.0.running.fetch_sub(1, Ordering::SeqCst) - 1;
        if left == 0 && self.0.draining.load(Ordering::SeqCst) {
            self.0.stop.signal();
        }
    }
}

fn serve(
    daemon: &Daemon,
    mut link: Link,
    guest: &Guest,
    (frame, place, mut order): (Frame, &super::live::Place<'_>, Order),
    peer: &str,
) -> Result<Option<Link>, Failure> {
    let count = match Count::one(daemon) {
        Ok(count) => count,
        Err(no) => {
            refuse(&mut link, &no);
            return Ok(None);
        }
    };
    let mut held = Held(daemon, 0);
    let (picks, frame) = match picked(&mut link, guest, frame, (&mut order, &mut held)) {
        Ok(it) => it,
        Err(no) => {
            turn_away(daemon, &mut link, peer, &no);
            return Ok(None);
        }
    };
    let result = match frame {
        Frame::Open(open) if open.job != job_of(&link) => Err(Breach::JobName.into()),
        frame if !is_of_its_ticket(guest, &frame) => Err(no(
            Refusal::NotAuthorized,
            "this ticket is for one job, and this is another one than was asked for with it",
        )),
        Frame::Open(open) if !place.takes_place(open.job, open.after) => {
            Err(no(Refusal::Busy, "the job before this one is still ending"))
        }
        Frame::Open(open) => return serve_job(daemon, link, guest, &open, picks, peer, count),
        Frame::AskTicket { .. } | Frame::Relay { .. } if guest.login.is_some() => {
            Err(no(Refusal::NotAuthorized, "who logged in by FTP has one job here, and none elsewhere"))
        }
        Frame::AskTicket { key, targets, compare, prune } => {
            relay::give_ticket(daemon, &mut link, guest, Wanted { key, targets, compare, prune })
        }
        Frame::List { path, recursive } => list(daemon, &mut link, guest, (&path, recursive), peer),
        Frame::Relay { sources, target, volumes, request } => {
            let task = Task { sources, target, volumes, request };
            relay::relay(daemon, &mut link, guest, &task, picks)
        }
        _ => Err(Breach::WrongOrder.into()),
    };
    if let Err(no) = result {
        turn_away(daemon, &mut link, peer, &no);
    }
    Ok(None)
}

/// What stands at a path, for who may read here. It is no job: a ticket for one job still is good for that, and no rate holds it back.
fn list(
    daemon: &Daemon,
    link: &mut Link,
    guest: &Guest,
    (path, recursive): (&[u8], bool),
    peer: &str,
) -> Result<(), No> {
    if !guest.rights.access.may_read() {
        return Err(no(Refusal::WriteOnly, "this key or ticket may only write here: listing needs the right to read"));
    }
    let path_base = path_base(daemon, &guest.rights)?;
    let listing = endpoint::listing::listing(&path_base, path, recursive).map_err(|failure| told(&failure))?;
    daemon.log(1, &format!("{peer}: lists {}", crate::report::show_path(path)));
    let (patience, is_stdio) =
        daemon.settings.read().map_or((PATIENCE, false), |settings| (settings.idle_timeout, settings.stdio));
    match endpoint::listing::tell(link, listing, &guest.cancel, patience) {
        Ok(()) => {
            link.close();
            let _ = link.flush_blocking(PATIENCE);
        }
        Err(Untold::Link(error)) => daemon.log(1, &format!("{peer}: the listing was not taken: {error}")),
        Err(Untold::Cancelled) => {
            let (refusal, why) = guest.cancel.requested().unwrap_or((Refusal::Cancelled, ""));
            return Err(no(refusal, why));
        }
    }
    if is_stdio {
        daemon.stop.signal();
    }
    Ok(())
}

/// A delegated ticket is good for the job that it was given for, and for nothing else.
fn is_of_its_ticket(guest: &Guest, frame: &Frame) -> bool {
    match (guest.grant.as_ref().and_then(|grant| grant.delegation.as_ref()), frame) {
        (None, _) => true,
        (Some(delegation), Frame::Open(open)) => delegation.permits(open),
        (Some(_), _) => false,
    }
}

fn turn_away(daemon: &Daemon, link: &mut Link, peer: &str, no: &No) {
    daemon.log(1, &format!("{peer} was refused: {}", no.detail));
    refuse(link, no);
}

/// What a job's picked names take of what all jobs may have; given back when it ends.
struct Held<'a>(&'a Daemon, usize);

impl Held<'_> {
    fn grow(&mut self, bytes: usize) -> Result<(), No> {
        let more = bytes - self.1;
        self.1 = bytes;
        if self.0.picked_bytes.fetch_add(more, Ordering::SeqCst) + more > PICK_BYTES_MAX {
            return Err(no(Refusal::Busy, "other jobs' lists of names fill the memory for them; try again later"));
        }
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.picked_bytes.fetch_sub(self.1, Ordering::SeqCst);
    }
}

/// Names that may stand before the frame which opens the job; that frame.
fn picked(
    link: &mut Link,
    guest: &Guest,
    mut frame: Frame,
    (order, held): (&mut Order, &mut Held<'_>),
) -> Result<(Option<Arc<IncludeList>>, Frame), No> {
    if !matches!(frame, Frame::Pick(_)) {
        return Ok((None, frame));
    }
    if !guest.rights.access.may_read() {
        return Err(no(Refusal::WriteOnly, "this key or ticket may only write here"));
    }
    let mut picks = IncludeList::default();
    while let Frame::Pick(names) = frame {
        for name in names {
            picks.add(&name).map_err(|why| match why {
                NotIncluded::Name(breach) => breach.into(),
                NotIncluded::Full => No::from(Breach::FieldTooLong),
            })?;
        }
        held.grow(picks.bytes())?;
        frame = next(link, order)?;
    }
    let sources = match &frame {
        Frame::Open(open) => open.paths.len(),
        Frame::Relay { sources, .. } => sources.len(),
        _ => return Err(Breach::WrongOrder.into()),
    };
    if sources != 1 {
        return Err(Breach::FieldOutOfRange.into());
    }
    Ok((Some(Arc::new(picks.sorted())), frame))
}

/// This daemon's half of the negotiation.
fn requested(daemon: &Daemon, rights: &Rights, way: &Way, look: bool) -> Requested {
    let settings = daemon.settings.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    Requested {
        memory_bytes: settings.memory_bytes,
        workers: u16::try_from(daemon.workers.count()).unwrap_or(u16::MAX),
        integrity_only: settings.integrity_only,
        bare: settings.bare,
        chunk_bytes: super::CHUNK_BYTES,
        rate_bps: rights.rate_bps,
        disk_bps: match way {
            Way::Send(source) => read_bps(source),
            Way::Recv { sink, .. } => write_bps(sink),
        },
        storage: match way {
            _ if !look => StorageLook::default(),
            Way::Send(source) => look_read(source).unwrap_or_default(),
            Way::Recv { sink, .. } => look_write(sink),
        },
        // The workers' bufs are all jobs': an even part of them is what this one may count on.
        bufs_bytes: daemon.pool_bytes / (daemon.running.load(Ordering::SeqCst) as u64).max(1),
        datagrams: if daemon.takes_datagrams { offer::STREAMS_MAX } else { 0 },
        rdma: RdmaOffer { device: daemon.takes_devices, emulated: settings.rdma_device == Some(RdmaDevice::Emulated) },
        ..Requested::default()
    }
}

/// What a job needs of this host, and what the client is told of it.
struct Prepared {
    way: Way,
    /// The name a single source gets; pull: none.
    top: Box<[u8]>,
    /// Where its lines are kept for a next run.
    carry: Option<std::path::PathBuf>,
    /// What of the comparing that was asked for is done.
    compare: Compare,
    /// Marks of the folders that entries are named below; pull: none.
    places: Vec<Place>,
}

/// How files are moved: nobody at a daemon insists on anything.
fn storage(daemon: &Daemon) -> Arc<Chooser> {
    let memory = Some(daemon.home.path("engines"));
    Chooser::new(Demands { memory, chunk_bytes: super::CHUNK_BYTES, ..Default::default() })
}

/// Source or sink of a job, as far as rights allow.
fn way(daemon: &Daemon, guest: &Guest, open: &Open, picks: Option<Arc<IncludeList>>) -> Result<Prepared, No> {
    let path_base = path_base(daemon, &guest.rights)?;
    let filter = if open.rules.is_empty() { None } else { Some(Arc::new(Filter::new(&open.rules)?)) };
    match open.direction {
        Direction::Push => {
            if !guest.rights.access.may_write() {
                return Err(no(Refusal::ReadOnly, "this key or ticket may only read here"));
            }
            let target = endpoint::target(
                &path_base,
                &open.paths,
                open.layout,
                open.into_folder,
                open.dry,
                &daemon.failed_disks,
            )
            .map_err(|failure| match failure.exit {
                Exit::Usage if !is_too_long(&failure) => {
                    no(Refusal::NotAFolder, format!("{}: {}", failure.what, failure.cause))
                }
                _ => told(&failure),
            })?;
            let (carry, carried) = receipt::carry(&daemon.home, &target, open.dry);
            // Who may not read learns nothing of what stands here, neither its names nor, by comparing, its bytes.
            let may_read = guest.rights.access.may_read();
            if open.prune.is_some() && !may_read {
                return Err(no(Refusal::WriteOnly, "removing what is too much needs the right to read here"));
            }
            if open.compare == Compare::Always && !may_read {
                return Err(no(
                    Refusal::WriteOnly,
                    "--checksum compares what stands here, which needs the right to read; ask for a key or ticket with it, or leave out --checksum",
                ));
            }
            let compare = if may_read { open.compare } else { Compare::Never };
            let places = crate::client::session::places(&target, &open.job);
            let top = target.top.clone();
            let permitted = permitted(daemon, &guest.rights, open.aspects);
            let sync = Sync { compare, prune: open.prune };
            let (sink, sync) = crate::client::session::sink(target, &storage(daemon), sync, permitted, filter, None);
            let way = Way::Recv { sink, keep: open.keep, carried, sync };
            Ok(Prepared { way, top, carry: Some(carry), compare, places })
        }
        Direction::Pull => {
            if !guest.rights.access.may_read() {
                return Err(no(Refusal::WriteOnly, "this key or ticket may only write here"));
            }
            let called = Called::of(&open.top, open.into_folder);
            let source = endpoint::source(&path_base, &open.paths, called, storage(daemon), open.joined)
                .map_err(|failure| told(&failure))?;
            let own = Own::new(&open.job, &open.places, volumes_of(open.layout)).map(Arc::new);
            // Owners and modes are seen by whoever may read; what needs rights to be seen is not shown to others.
            let hidden = Aspects::SECURITY.without(permitted(daemon, &guest.rights, Aspects::SECURITY));
            let source = source.map(|it| {
                let it = it.keeping(open.aspects.without(hidden), open.numeric).avoiding(own.clone());
                it.choosing(filter.clone(), picks.clone())
            });
            crate::client::session::refuse_overlap(own.as_deref(), &source, open.prune.is_some())
                .map_err(|failure| no(Refusal::Overlap, failure.cause))?;
            let (top, compare, places) = (Box::default(), open.compare, Vec::new());
            Ok(Prepared { way: Way::Send(Arc::new(source)), top, carry: None, compare, places })
        }
    }
}

/// A name that no file system has room for is no file in the way.
fn is_too_long(failure: &Failure) -> bool {
    let said = text::attempt::said(&rustix::io::Errno::NAMETOOLONG.into());
    failure.cause.starts_with(&said)
}

fn serve_job(
    daemon: &Daemon,
    mut link: Link,
    guest: &Guest,
    open: &Open,
    picks: Option<Arc<IncludeList>>,
    peer: &str,
    count: Count<'_>,
) -> Result<Option<Link>, Failure> {
    let prepared = prepare(daemon, guest, open, picks);
    let (job, forget) = match prepared {
        Ok(prepared) => match job(daemon, link, open, guest, prepared, peer)? {
            Some(job) => {
                let no = job.no;
                (job, Forget(daemon, open.job, no))
            }
            None => return Ok(None),
        },
        Err(no) => {
            turn_away(daemon, &mut link, peer, &no);
            return Ok(None);
        }
    };
    daemon.log(1, &format!("{peer}: a job begins: {}", in_words(open, peer)));
    let verbose = daemon.settings.read().map_or(0, |settings| settings.verbose);
    let source = if let Way::Send(source) = &job.way { Some(source.clone()) } else { None };
    let record = history::begin(daemon, guest, open, (job.peer_key, peer));
    let (facts, began, mut moved) = (facts(open, guest, peer), Instant::now(), (0, 0));
    let outcome = driver::run(job, &mut |status, notes| {
        let tally = &status.record.tally;
        moved = (tally.files_done, tally.bytes_done);
        let of_wire = if source.is_some() { status.peer.0 } else { tally.moved };
        record.set(|it| (it.bytes, it.files) = (of_wire, tally.files_done));
        status.said.iter().for_each(|it| daemon.log(0, &format!("{peer}: {it}")));
        if verbose > 1 {
            for note in notes {
                daemon.log(2, &format!("{peer}: {note}"));
            }
        }
    });
    drop(forget);
    history::end(&record, &outcome);
    let written = source.map(|it| crate::client::outcome::written_meanwhile(&it)).unwrap_or_default();
    written.iter().for_each(|it| daemon.log(1, &format!("{peer}: {it}")));
    if let Some(grant) = &guest.grant {
        // The client comes again at once for what the others of the set are to take.
        if outcome.as_ref().is_ok_and(|outcome| outcome.out_of_set.is_none()) {
            daemon.tickets.spend(grant);
        } else {
            if outcome.is_ok() {
                daemon.tickets.extend(grant, relay::until_next_pass());
            }
            grant.ending.take_back();
        }
    }
    let is_stdio = daemon.settings.read().is_ok_and(|settings| settings.stdio);
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(failure) => {
            daemon.log_job(&EndedJob::of(facts, moved, began.elapsed(), failure.exit, Some(&failure.cause)));
            return if is_stdio { Err(failure) } else { Ok(None) };
        }
    };
    let tally = outcome.record.tally;
    let kinds = outcome.record.faults.iter().map(|it| it.fault.kind);
    let exit = match Exit::of_faults(kinds) {
        Exit::Whole if outcome.receipt_missing.is_some() => Exit::NoReceipt,
        exit => exit,
    };
    daemon.log_job(&EndedJob::of(facts, (tally.files_done, tally.bytes_done), began.elapsed(), exit, None));
    drop(count);
    keep_receipts(daemon, outcome.receipt.as_deref());
    if is_stdio {
        daemon.stop.signal();
    }
    Ok(outcome.link)
}

/// After a job: receipts that are not to be kept go.
fn keep_receipts(daemon: &Daemon, receipt: Option<&Path>) {
    let set = daemon.settings.read().map_or(None, |settings| settings.receipts_keep);
    let keep = set.unwrap_or_else(|| Keep::of(&daemon.home).unwrap_or_default());
    if let Some(pruned) = daemon.receipts.after_job(&daemon.home, keep, receipt).filter(|it| it.removed > 0) {
        let Pruned { kept, kept_bytes, removed, removed_bytes } = pruned;
        let (gone, stay) = (show_bytes(removed_bytes), show_bytes(kept_bytes));
        daemon.log(0, &format!("receipts_keep {keep}: removed {removed} receipts, {gone}; {kept} stay, {stay}"));
    }
}

/// Whose job this is, for the log.
fn facts(open: &Open, guest: &Guest, peer: &str) -> JobFacts {
    let sends = open.direction == Direction::Pull;
    JobFacts {
        job: open.job,
        key: fingerprint(&guest.owner),
        peer: peer.to_owned(),
        direction: end_of(sends),
        path: first_path(open),
    }
}

fn prepare(daemon: &Daemon, guest: &Guest, open: &Open, picks: Option<Arc<IncludeList>>) -> Result<Prepared, No> {
    let destinations = open.layout.map_or(1, |it| usize::from(it.volumes));
    if open.paths.is_empty() || (open.direction == Direction::Push && open.paths.len() != destinations) {
        return Err(Breach::FieldOutOfRange.into());
    }
    way(daemon, guest, open, picks)
}

/// The workers of a job: of those that are held on nodes the ones beside what it serves. With the node of each volume.
fn team(daemon: &Daemon, link: &Link, way: &Way, (no, count): (u32, u16)) -> (Team, Vec<Option<u16>>) {
    let locals: Vec<IpAddr> = link.local_addr().map(|it| it.ip()).into_iter().collect();
    let placement = daemon.nodes.as_ref().and_then(|nodes| NumaPlacement::of(nodes, &locals, way));
    let Some(placement) = placement else { return (Team::new(daemon.workers.clone(), no, count), Vec::new()) };
    let team = Team::near(daemon.workers.clone(), no, count, &placement.weights);
    let choice = placement.choice(&team.homes(), "placement here");
    daemon.log(1, &format!("{}: {} ({})", choice.what, choice.value, choice.reason));
    (team, placement.volumes)
}

fn job<'a>(
    daemon: &'a Daemon,
    mut link: Link,
    open: &Open,
    guest: &Guest,
    Prepared { way, top, carry, compare, places }: Prepared,
    peer: &str,
) -> Result<Option<Job<'a>>, Failure> {
    let own = offer::offer(&requested(daemon, &guest.rights, &way, open.offer.look));
    let plan = match negotiate(&open.offer, &own, open.direction == Direction::Push) {
        Ok((plan, _)) => plan,
        Err(refusal) => {
            refuse(&mut link, &refusal.into());
            return Ok(None);
        }
    };
    let ahead = takes_ahead(open, &top, &own);
    if !ahead {
        skip_ahead(&mut link, open.ahead)?;
    }
    let start = |error: std::io::Error| Exit::of_io(&error).fail("start the job", error);
    let wake = Event::new().map_err(start)?;
    let (to, from) = channel();
    // Rails are expected before the plan is said: the client may dial at once.
    let sends = open.direction == Direction::Pull;
    let secret = JobSecret::of(&link, open.job);
    let datagrams = datagram_guest(&link, &secret, sends).filter(|_| plan.datagrams > 0);
    if datagrams.is_some() {
        link.duplicate(secret.session_datagrams(CONTROL), false);
    }
    if !daemon.expect_rails(open.job, secret, datagrams, to, wake.clone()) {
        refuse(&mut link, &no(Refusal::Busy, "a job of this name is running"));
        return Ok(None);
    }
    let (offer, told) = (Box::new(own.clone()), Box::new(plan.clone()));
    say(&mut link, &Frame::Accept { offer, plan: told, top, compare, places, ahead });
    let stall = daemon.settings.read().map_or(Duration::from_secs(60), |settings| settings.idle_timeout);
    let no = next_job();
    let shares = shares(daemon, guest);
    let (workers, volume_nodes) = team(daemon, &link, &way, (no, plan.workers.1));
    let title = Title { job: open.job, end: end_of(sends), initiates: false, what: in_words(open, peer) };
    let registration = daemon.registry.post(title, wake.clone());
    let peer_key = link.peer_key();
    Ok(Some(Job {
        no,
        id: open.job,
        peer_key,
        link,
        identity: &daemon.identity,
        terms: offer::terms(&plan, open.durability),
        durability: open.durability,
        layout: open.layout,
        dry: open.dry,
        known: None,
        way,
        ahead: None,
        other_end: OtherEnd::Away,
        workers,
        volume_nodes,
        pool_bytes: daemon.pool_bytes,
        rails: Rails::Wait { from },
        weights: Vec::new(),
        offers: Some(Offers { initiator: open.offer.clone(), acceptor: own.clone(), is_initiator: false }),
        wake,
        stall,
        receipt: (!open.dry).then(|| receipt::default_path(&daemon.home, &open.job)),
        formers: receipt::formers(&daemon.home, carry.as_deref(), &peer_key, false),
        carry: carry.filter(|_| !open.dry),
        bound: Arc::new(Bound::new(plan.rate_bps / 8, Some(shares.bound.clone()))),
        share: Some(share(daemon, shares, no)),
        ending: guest.grant.as_ref().map(|grant| grant.ending.clone()),
        registration: Some(registration),
        failed_disks: daemon.failed_disks.clone(),
        cancel: Some(Arc::clone(&guest.cancel)),
        plan,
    }))
}

/// Who is let in over datagrams with this session's secret.
fn datagram_guest(link: &Link, secret: &JobSecret, sends: bool) -> Option<demultiplexer::Guest> {
    let (local, peer) = (link.local_addr()?, link.peer_addr()?.ip());
    let packet_bytes = packet_bytes_of(link.as_fd(), local.ip());
    Some(demultiplexer::Guest { secret: secret.clone(), local, peer, packet_bytes, sends })
}

/// Does what the client said ahead of the plan count? Its entries must have the names that they have here; and where both ends share a kernel the
/// client looks first whether the destination is its own source (`places`), before anything is made of an entry.
fn takes_ahead(open: &Open, top: &[u8], own: &Offer) -> bool {
    let is_known = !open.offer.boot_id.is_empty() && !own.boot_id.is_empty();
    open.ahead > 0 && open.top[..] == *top && is_known && open.offer.boot_id != own.boot_id
}

/// Throws away what was said ahead: it comes again, after the plan.
fn skip_ahead(link: &mut Link, frames: u8) -> Result<(), Failure> {
    let until = Instant::now() + PATIENCE;
    for _ in 0..frames {
        link.call(until.saturating_duration_since(Instant::now()))
            .map_err(|error| failure_of("hear what was said ahead", &anyhow::Error::new(error)))?;
    }
    Ok(())
}

/// What a client does here, short enough for a line.
fn in_words(open: &Open, peer: &str) -> String {
    match open.direction {
        Direction::Push => format!("{peer} -> {}", first_path(open)),
        Direction::Pull => format!("{} -> {peer}", first_path(open)),
    }
}

/// The first of a job's paths, and how many more there are.
fn first_path(open: &Open) -> String {
    let first = open.paths.first().map(|path| crate::report::show_path(path)).unwrap_or_default();
    let more = if open.paths.len() > 1 { format!(" and {} more", open.paths.len() - 1) } else { String::new() };
    format!("{first}{more}")
}
