//! Push and pull over a session with a daemon.
//!
//! For: the main job.
//! In and out: sources and an address, or an address and a destination, in; an exit code out.
//! Invariants: the source or the destination at this end is looked at before the peer is asked for anything.
//! Absent on purpose: accepting (serve::session).

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use engine::host::{Hold, Make, Team, Workers};
use engine::machine::Tally;
use engine::platform::Clones;
use engine::tree::io_mode::{Chooser, Demands};
use engine::tree::scan::filter::Filter;
use engine::tree::scan::overlap::{Marks, Overlap, Own};
use engine::tree::sink::LinuxSink;
use engine::tree::source::watched::Snapshot;
use engine::tree::{Sinks, Sources, look_read, look_write, read_bps, write_bps};
use engine::worker::bound::Bound;
use proto::error::Refusal;
use proto::layout::Layout;
use proto::manifest::Aspects;
use proto::negotiate::{Choice, Driver, Pace, Plan, RdmaOffer, StorageLook};
use proto::session::nic_speeds;
use proto::session::replan::Offers;
use proto::session::transport::forecast::Storage;
use proto::wire::chunk::CHUNK_BYTES_MIN;
use proto::wire::control::{Compare, Direction, Frame, Open, Place};
use proto::wire::request::Transport;
use sys::event::Event;

use crate::address::Address;
use crate::client::relay_limits::Forget;
use crate::client::{Copy, outcome as report, unnamed};
use crate::event::Events;
use crate::identity::keys::fingerprint;
use crate::identity::ticket::Ticket;
use crate::job::driver::{self, Ahead, Job, NO_RAIL, OtherEnd, Outcome, Sync, Way};
use crate::job::endpoint::{self, Called, PathBase};
use crate::job::greeting::{self, Agreed};
use crate::job::keys::{JobSecret, job_of};
use crate::job::measured;
use crate::job::numa;
use crate::job::offer::{self, Requested};
use crate::job::rails::{self, AheadStream, Begun, Early, Rails};
use crate::job::receipt;
use crate::job::udp::packet_train::{START_PACKETS, TRAIN_PACKETS};
use crate::job::udp::{self, Peer};
use crate::link::{Beside, Connected, Expect, Link, LinkError, Start, connect_retry};
use crate::probe::{self, Known};
use crate::request::{JobRequest, RdmaDevice};
use text::exit::{Exit, Failure};

/// A connection and its handshake may take so long.
const CONNECT: Duration = Duration::from_secs(15);
/// All that a job of so many bytes sends fits into the first flight of a datagram rail: `START_PACKETS` of the shortest packets, headers aside.
const TINY_BYTES: u64 = START_PACKETS as u64 * 1024;
/// What is no more than a chunk is read, sealed and sent by one worker over one rail: another of each would be made and ended for nothing.
const ONE_WORKER_BYTES: u64 = CHUNK_BYTES_MIN as u64;
const ONE_WORKER: &str = "all of the job is one chunk";
/// Said where the other end does less than was asked.
const UNCOMPARED: &str =
    "nothing is compared: the other end may only be written to, so files of another size or time are sent whole";

/// The first pause of one that waits for a place among a daemon's jobs; each is twice the one before: a handshake costs either end some milliseconds.
const BUSY_PAUSE_MIN: Duration = Duration::from_millis(200);
/// And the longest: who waits has a place within two seconds of its being free.
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(1200);

static NEXT_JOB: AtomicU32 = AtomicU32::new(1);

/// A number no job of this process has had.
#[must_use]
pub fn next_job() -> u32 {
    NEXT_JOB.fetch_add(1, Ordering::Relaxed)
}

/// Did nobody say how many workers or rails there are to be?
fn is_unasked(request: &JobRequest) -> bool {
    request.workers.is_none() && request.streams.is_none() && request.chunk_bytes.is_none()
}

/// A daemon's address, resolved into what a connection needs.
pub fn connect(copy: &Copy<'_>, to: &Address, events: &mut Events<'_>) -> Result<(Link, Option<Ticket>), Failure> {
    connect_beside(copy, to, (Start::Plain, &mut |_| ()), events)
}

/// The same, begun so; `beside` hears of each connection before its handshake.
fn connect_beside(
    copy: &Copy<'_>,
    to: &Address,
    (start, beside): (Start, &mut dyn FnMut(Connected)),
    events: &mut Events<'_>,
) -> Result<(Link, Option<Ticket>), Failure> {
    let Address::Daemon { ticket, .. } = to else { unreachable!("ssh hosts were made daemons before") };
    let met = |link: &Link| {
        copy.before.add_lookup(link.lookup());
        copy.record.set(|job| job.peer = Some(fingerprint(&link.peer_key())));
    };
    if let Some(ftp) = copy.ftp {
        let link = ftp.session(&copy.identity, beside)?;
        met(&link);
        return Ok((link, None));
    }
    if let (Some(lent), Some(it)) = (&copy.lent, ticket) {
        let link = lent.dial(to, it.server_key)?;
        met(&link);
        return Ok((link, ticket.clone()));
    }
    let host_port = to.host_port().expect("a daemon's address has one");
    let expect = ticket.as_ref().map_or(Expect::Trusted, |ticket| Expect::Key(ticket.server_key));
    let is_tunnel = copy.before.is_tunnel(&host_port);
    // A tunnel's near end is no port of the peer's.
    let start = if is_tunnel { Start::Plain } else { start };
    let mut connect = || {
        let beside = Beside { ready: copy.before.take_connected(&host_port), met: &mut *beside, start };
        Link::connect_beside(&host_port, &copy.identity, expect, CONNECT, beside)
    };
    let link = if is_tunnel {
        // Nobody else comes to a far side through our own tunnel: what closes it is ssh there, and asking again makes no difference.
        connect().map_err(|error| tunnel_closed(&host_port, error))?
    } else {
        connect_retry::until_let_in(connect, |note| events.detail(note)).map_err(|error| of_place(&host_port, error))?
    };
    met(&link);
    if link.is_small() {
        events.note(&format!(
            "path MTU black hole to {host_port}: packets of the usual size do not get through, and no ICMP message says so; segments of 1180 bytes are \
             used; `longhaul host apply --rule mtu-probing` at both ends, or the right MTU, mends it"
        ));
    }
    Ok((link, ticket.clone()))
}

/// Whoever answers there and speaks something else is named by the address.
fn of_place(host_port: &str, error: LinkError) -> Failure {
    let is_other = matches!(error, LinkError::Tls(_) | LinkError::NotLonghaul);
    let failure = Failure::from(error);
    if is_other {
        Failure { what: format!("connect to {host_port}: something answers there, but not longhaul"), ..failure }
    } else {
        failure
    }
}

/// A tunnel through ssh that takes a connection and carries none.
fn tunnel_closed(near: &str, error: LinkError) -> Failure {
    let is_closed = match &error {
        LinkError::Cut => true,
        LinkError::Io { source, .. } => {
            matches!(source.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof)
        }
        _ => false,
    };
    if !is_closed {
        return Failure::from(error);
    }
    Exit::Connect.fail(format!("connect to {near}"), "ssh is permitted no tunnel there, and the port does not answer directly").next(
        "permit AllowTcpForwarding in sshd_config there, or let a port through the firewall and name it with --far-port",
    )
}

/// What the user asked for, as an offer.
#[must_use]
pub fn requested(copy: &Copy<'_>) -> Requested {
    let request = copy.request;
    let requested = Requested {
        memory_bytes: request.memory_bytes,
        workers: request.workers.unwrap_or(0),
        driver: request.driver,
        cipher: request.cipher,
        digest: Some(request.digest),
        integrity_only: request.integrity_only,
        bare: request.bare,
        streams: request.streams.unwrap_or(0),
        chunk_bytes: request.chunk_bytes.unwrap_or(0),
        rate_bps: request.rate_bps.unwrap_or(0),
        disk_bps: 0,
        bufs_bytes: 0,
        look: request.transport == Transport::Auto && request.forecast,
        storage: StorageLook::default(),
        datagrams: match request.transport {
            Transport::Tcp | Transport::Rdma => 0,
            _ if request.bare => 0,
            Transport::Udp | Transport::Auto => request.streams.unwrap_or(1),
        },
        // Whoever did not name it has it where both ends have a device, and an emulation never.
        rdma: wanted_pairs(request),
        pace: Pace {
            controller: request.controller,
            policy: request.policy,
            min_bps: request.min_rate_bps.unwrap_or(0),
        },
    };
    match &copy.lent {
        Some(lent) => lent.narrow(requested),
        None => requested,
    }
}

/// How files are moved at this end, and where measurements are kept.
#[must_use]
pub fn storage(copy: &Copy<'_>) -> Arc<Chooser> {
    Chooser::new(Demands {
        modes: copy.request.io_modes,
        memory: (!copy.request.dry_run).then(|| copy.home.path("engines")),
        driver: ring_kind(copy.request.driver),
        chunk_bytes: copy.request.chunk_bytes.unwrap_or(0),
    })
}

/// The driver the user insists on.
#[must_use]
pub fn ring_kind(driver: Option<Driver>) -> Option<sys::ring::Kind> {
    driver.map(|driver| match driver {
        Driver::Uring => sys::ring::Kind::Uring,
        Driver::Plain => sys::ring::Kind::Plain,
    })
}

/// Workers of an end, and what they are beside.
#[derive(Debug)]
pub struct Placed {
    /// Started.
    pub workers: Arc<Workers>,
    /// Their pools together.
    pub pool_bytes: u64,
    /// The NUMA node of each volume, where workers are put by it.
    pub volume_nodes: Vec<Option<u16>>,
}

/// Workers for one job of this process.
pub fn start_workers(
    copy: &Copy<'_>,
    count: u16,
    chunk_bytes: u32,
    holds: Vec<Hold>,
) -> Result<(Arc<Workers>, u64), Failure> {
    let count = usize::from(count);
    let pool_bytes = offer::pool_bytes(copy.request.memory_bytes, count, chunk_bytes);
    let driver = ring_kind(copy.request.driver);
    let workers = Workers::start(Make { count, memory_bytes: pool_bytes, chunk_bytes, driver, holds })
        .map_err(|error| Exit::of_io(&error).fail("start the workers", error))?;
    Ok((Arc::new(workers), pool_bytes))
}

/// A random name for a job.
pub fn job_id() -> Result<[u8; 16], Failure> {
    let mut id = [0; 16];
    aws_lc_rs::rand::fill(&mut id)
        .map_err(|_| Exit::Bug.fail("make a name for the job", "the system has no randomness"))?;
    Ok(id)
}

/// What is done with what stands at the destination.
#[must_use]
pub fn sync(copy: &Copy<'_>) -> Sync {
    Sync { compare: copy.request.compare, prune: copy.request.prune }
}

/// A destination, and what is done with what stands there.
#[must_use]
pub fn sink(
    target: endpoint::Target,
    chooser: &Arc<Chooser>,
    sync: Sync,
    permitted: Aspects,
    filter: Option<Arc<Filter>>,
    clones: Option<(Arc<Sources>, Clones)>,
) -> (Arc<Sinks>, Sync) {
    let sinks = target.volumes.into_iter().map(|base| {
        let sink = LinuxSink::new(base, Arc::clone(chooser)).permitting(permitted).filtering(filter.clone());
        let sink = match &clones {
            Some((source, clones)) => sink.cloning(source.clone(), *clones),
            None => sink,
        };
        // Renamed files are looked for where changed ones are compared.
        if sync.compare == Compare::Never { sink } else { sink.finding_moved() }
    });
    let sink = Sinks::new(sinks.collect()).named(target.shown, target.gone).striping(target.by_chunk);
    // What stands in the folder that serves for looking is nobody's.
    let prune = sync.prune.filter(|_| !target.is_absent);
    (Arc::new(sink), Sync { prune, ..sync })
}

/// What is known of this end's storage before a job.
struct Disk {
    /// From an earlier race, bit/s; 0: unknown.
    raced_bps: u64,
    /// Both ends look at their storage for this job.
    is_looked: bool,
    /// What this end saw.
    look: StorageLook,
}

fn open_frame(
    copy: &Copy<'_>,
    direction: Direction,
    paths: Vec<Box<[u8]>>,
    into_folder: bool,
    top: Box<[u8]>,
    disk: Disk,
) -> Result<Open, Failure> {
    if let Some(path) = paths.iter().find(|path| path.len() > proto::manifest::PATH_BYTES_MAX) {
        return Err(Exit::Usage
            .fail("name a path to the peer", format!("it is {} bytes long", path.len()))
            .next(format!("name a shorter one: {} bytes are the most", proto::manifest::PATH_BYTES_MAX)));
    }
    Ok(Open {
        // Its session names it.
        job: [0; 16],
        after: copy.again.before(),
        direction,
        paths,
        layout: copy.layout,
        joined: copy.request.joined,
        into_folder,
        top,
        keep: copy.request.keep,
        dry: copy.request.dry_run,
        compare: sync(copy).compare,
        prune: sync(copy).prune,
        durability: copy.request.durability,
        aspects: copy.request.aspects,
        numeric: copy.request.numeric_ids,
        rules: copy.choice.rules.clone(),
        places: Vec::new(),
        ahead: 0,
        offer: offer::offer(&Requested {
            disk_bps: disk.raced_bps,
            look: disk.is_looked,
            storage: disk.look,
            ..requested(copy)
        }),
    })
}

/// This host's files to a daemon.
pub fn push(
    copy: &Copy<'_>,
    paths: &[Box<[u8]>],
    to: &Address,
    targets: &[Box<[u8]>],
    events: &mut Events<'_>,
) -> Result<Exit, Failure> {
    push_from(copy, &PathBase::here(), paths, to, targets, events)
}

/// Must the destination be a folder, which takes sources under their own names?
#[must_use]
pub fn is_into_folder(copy: &Copy<'_>, paths: &[Box<[u8]>], to: &[u8]) -> bool {
    copy.layout.is_some() || (paths.len() > 1 && !copy.request.joined) || endpoint::means_folder(to)
}

/// Files below `path_base` to a daemon: to the place of its address, or to these of its volumes.
pub fn push_from(
    copy: &Copy<'_>,
    path_base: &PathBase,
    paths: &[Box<[u8]>],
    to: &Address,
    targets: &[Box<[u8]>],
    events: &mut Events<'_>,
) -> Result<Exit, Failure> {
    let source = endpoint::source(path_base, paths, Called::Own, storage(copy), copy.request.joined)?;
    let look = if requested(copy).look { look_read(&source) } else { None };
    // A few small files are there before both ends have looked.
    let disk = Disk { raced_bps: read_bps(&source), is_looked: look.is_some(), look: look.unwrap_or_default() };
    let into_folder = is_into_folder(copy, paths, to.path());
    let from = |top: &[u8], own: Option<Arc<Own>>| {
        let called = Called::of(top, into_folder);
        let source = endpoint::source(path_base, paths, called, storage(copy), copy.request.joined)?;
        Ok::<_, Failure>(source.map(|it| {
            let it = it.keeping(copy.request.aspects, copy.request.numeric_ids).avoiding(own.clone());
            let it = it.from_snapshots(copy.request.snapshot);
            it.choosing(copy.choice.filter.clone(), copy.choice.picks.clone())
        }))
    };
    let top = expected_top(copy, to.path(), into_folder);
    let mut ahead = match &top {
        Some(top) => Ahead::begin(Arc::new(from(top, None)?)).ok(),
        None => None,
    };
    let open = open_frame(copy, Direction::Push, targets.to_vec(), into_folder, top.unwrap_or_default(), disk)?;
    let mut session = begin(copy, to, open, |_| Vec::new(), ahead.as_mut(), events)?;
    if copy.piped && session.agreed.top.is_empty() {
        return Err(unnamed());
    }
    if let Some(ahead) = ahead.filter(|_| session.agreed.ahead) {
        // What shares no kernel with this host holds none of its folders.
        let way = Way::Send(ahead.source.clone());
        session.ahead = Some(ahead);
        return session.run(copy, way, None, events);
    }
    let own = Own::new(&session.open.job, &session.agreed.places, volumes_of(copy.layout)).map(Arc::new);
    let source = from(&session.agreed.top, own.clone())?;
    if let Err(failure) = refuse_overlap(own.as_deref(), &source, copy.request.prune.is_some()) {
        session.give_up(Refusal::Overlap, &failure);
        return Err(failure);
    }
    session.run(copy, Way::Send(Arc::new(source)), None, events)
}

/// What the one source will be called at the destination if no folder of that name stands there; empty: each by its own name. `None`: nobody
/// can know.
fn expected_top(copy: &Copy<'_>, to: &[u8], into_folder: bool) -> Option<Box<[u8]>> {
    if copy.layout.is_some() || copy.request.joined {
        return None;
    }
    if into_folder {
        return Some(Box::default());
    }
    // What no file system has room for is refused by the other end, in its own words.
    endpoint::last_name(to).filter(|name| proto::manifest::check_path(name).is_ok()).map(Box::from)
}

/// Marks of the folders that a job's entries are named below.
#[must_use]
pub fn places(target: &endpoint::Target, job: &[u8; 16]) -> Vec<Place> {
    let marks = Marks::of(job).filter(|_| !target.is_absent);
    marks.map_or_else(Vec::new, |marks| marks.places(&target.volumes))
}

/// A copy into itself.
#[must_use]
pub fn inside(overlap: &Overlap) -> Failure {
    let next = "name a destination outside of the source, or leave it out of the copy: --exclude";
    Exit::Usage.fail("copy to another place", overlap).next(next)
}

/// How many folders a destination is.
#[must_use]
pub fn volumes_of(layout: Option<Layout>) -> u16 {
    layout.map_or(1, |it| it.volumes)
}

/// What would harm the source is not begun.
pub fn refuse_overlap(own: Option<&Own>, source: &Sources, prunes: bool) -> Result<(), Failure> {
    match own.and_then(|own| own.overlap(source, prunes)) {
        None => Ok(()),
        Some(overlap @ Overlap::Inside(_)) => Err(inside(&overlap)),
        Some(overlap) => Err(Exit::Usage
            .fail("copy to another place", overlap)
            .next("name a destination that is not the source, nor a folder that holds it")),
    }
}

/// A daemon's files to this host.
pub fn pull(
    copy: &Copy<'_>,
    from: &Address,
    paths: &[Box<[u8]>],
    to: &[Box<[u8]>],
    events: &mut Events<'_>,
) -> Result<Exit, Failure> {
    if copy.request.snapshot == Snapshot::Always {
        let cause = "the source is another host's, which decides itself what it clones";
        return Err(Exit::Usage.fail("read from clones", cause).next("copy from there, or leave --snapshot out"));
    }
    let path_base = PathBase::here();
    let into_folder = is_into_folder(copy, paths, &to[0]);
    let target = endpoint::target(&path_base, to, copy.layout, into_folder, copy.request.dry_run, &copy.failed_disks)?;
    let top = target.top.clone();
    let (carry, carried) = receipt::carry(&copy.home, &target, copy.request.dry_run);
    let kept = copy.request.aspects;
    let marked = target.clone();
    let (sink, sync) = sink(target, &storage(copy), sync(copy), kept, copy.choice.filter.clone(), None);
    let is_looked = requested(copy).look;
    let look = if is_looked { look_write(&sink) } else { StorageLook::default() };
    let disk = Disk { raced_bps: write_bps(&sink), is_looked, look };
    let open = open_frame(copy, Direction::Pull, paths.to_vec(), into_folder, top, disk)?;
    let session = begin(copy, from, open, |job| places(&marked, job), None, events)?;
    let way = Way::Recv { sink, keep: copy.request.keep, carried, sync };
    // What is in a spool is not there in a next run.
    session.run(copy, way, Some(carry).filter(|_| !copy.piped), events)
}

/// A session with a plan.
struct Session {
    link: Link,
    open: Open,
    agreed: Agreed,
    addr: SocketAddr,
    /// Of the path, where the transport is left to us.
    known: Option<Known>,
    /// Rails that are greeted meanwhile.
    begun: Begun,
    /// What was said ahead of the plan, and counts.
    ahead: Option<Ahead>,
    /// All of the job is one chunk: no other path is looked for.
    is_one_chunk: bool,
}

/// Is a stream connected beside the session's own connection? Where rails are streams it is the first, and where the transport is not chosen yet the one
/// that carries if UDP turns out to be blocked. Over a short path there is no round trip to save, but the turns of the threads that make and take a
/// connection go beside those of the handshake.
fn wants_stream_ahead(copy: &Copy<'_>, open: &Open) -> bool {
    let request = copy.request;
    // A peer that sends would begin at once over a stream that may not be wanted.
    let is_open = request.transport == Transport::Auto && open.direction == Direction::Push;
    (open.offer.datagrams == 0 || is_open)
        && open.offer.rdma == RdmaOffer::default()
        && request.paths.is_empty()
        && !request.dry_run
}

/// Greets for a datagram rail over the session's own path while the acceptor thinks. A short path has nothing to gain; of several, each is
/// greeted when it is used.
fn greet_early(copy: &Copy<'_>, link: &mut Link, open: &Open, (is_tiny, is_one_chunk): (bool, bool)) -> Option<Early> {
    let request = copy.request;
    let is_auto = request.transport == Transport::Auto;
    if open.offer.datagrams == 0 || !request.paths.is_empty() || request.dry_run {
        return None;
    }
    let rtt = probe::rtt_of(&sys::sock::tcp_info(link.as_fd()).ok()?);
    let addr = link.peer_addr().filter(|_| rtt >= probe::SHORT)?;
    let packet_bytes = udp::packet_bytes_of(link.as_fd(), addr.ip());
    let peer = Peer { addr, from: None, packet_bytes, train: 0, rtt };
    let sends = open.direction == Direction::Push;
    // A train is faster than a bound that the user set.
    let train = match (is_auto, sends && open.offer.rate_bps == 0) {
        _ if is_tiny => None,
        // A longer one, which shows loss and the buffer, keeps a slow link for as long as a tenth of such a job (20 Mbit/s: 38 ms).
        (true, _) if is_one_chunk => Some(START_PACKETS),
        (true, _) => Some(TRAIN_PACKETS),
        (false, true) => Some(START_PACKETS),
        (false, false) => None,
    };
    if is_auto && train.is_some() {
        // What a core carries is part of the choice, and this time is nobody's. Whoever wants it before it is there waits for it.
        std::thread::spawn(probe::host_rates::host_rates);
    }
    let secret = JobSecret::of(link, open.job);
    link.duplicate(secret.session_datagrams(rails::CONTROL), true);
    link.greet_datagrams(rails::session_greeting(addr, &secret));
    Early::begin(peer, secret, sends, train).ok()
}

/// A session with a plan. Where the daemon has as many jobs as it takes, one that ends is waited for, as long as `--stall` allows.
/// `places`: those of a job of that id.
fn begin(
    copy: &Copy<'_>,
    to: &Address,
    open: Open,
    places: impl Fn(&[u8; 16]) -> Vec<Place>,
    mut ahead: Option<&mut Ahead>,
    events: &mut Events<'_>,
) -> Result<Session, Failure> {
    let until = Instant::now() + copy.request.stall;
    let mut pause = BUSY_PAUSE_MIN;
    loop {
        let start = copy.before.start();
        let failure = match ask(copy, to, open.clone(), &places, ahead.as_deref_mut(), events) {
            // What began in datagrams came to nothing over the connection: at once without them.
            Err(_) if copy.before.start() != start => continue,
            Err(failure) if greeting::is_busy(&failure) && Instant::now() + pause < until => failure,
            other => return other,
        };
        if pause == BUSY_PAUSE_MIN {
            events.note(&format!(
                "waiting for a place, for {} s at most: {}",
                copy.request.stall.as_secs(),
                failure.cause
            ));
        }
        // Of many that wait no two come at the same moments.
        let mut random = [0];
        let _ = aws_lc_rs::rand::fill(&mut random);
        std::thread::sleep(pause.mul_f64(0.5 + f64::from(random[0]) / 256.0));
        pause = (pause * 2).min(BUSY_PAUSE_MAX);
    }
}

/// Queue pairs were asked for: is there anything here to make them of?
fn can_have_pairs(copy: &Copy<'_>) -> Result<(), Failure> {
    if copy.request.transport != Transport::Rdma {
        return Ok(());
    }
    let device = copy.request.rdma_device.clone().unwrap_or(RdmaDevice::Auto);
    device.can_be_used(&sys::rdma::devices()).map_err(|why| {
        Exit::Negotiation.fail("use RDMA", why).next(
            "leave --transport out, which takes what there is, or try the rail over TCP with `--rdma-device emulated` here and at the daemon",
        )
    })
}

/// What is offered: queue pairs of a device where nothing else was said, and an emulation where that was.
fn wanted_pairs(request: &JobRequest) -> RdmaOffer {
    if request.transport != Transport::Rdma {
        return RdmaOffer::default();
    }
    let device = request.rdma_device.as_ref().is_none_or(RdmaDevice::is_device);
    RdmaOffer { device, emulated: !device }
}

/// And the plan: has it what was asked for?
fn has_pairs(copy: &Copy<'_>, link: &mut Link, plan: &Plan) -> Result<(), Failure> {
    if copy.request.transport != Transport::Rdma || plan.rdma.is_some() {
        return Ok(());
    }
    let cause = "the daemon offers no RDMA of the same kind".to_owned();
    greeting::say(link, &Frame::Refuse { code: Refusal::Cancelled.code(), detail: cause.clone() });
    link.close();
    Err(Exit::Negotiation.fail("use RDMA", cause).next(
        "leave --transport out, which takes what there is, or start the daemon with `longhaul serve --rdma-device auto`, or with `longhaul serve --rdma-device emulated` to try the rail over TCP",
    ))
}

fn ask(
    copy: &Copy<'_>,
    to: &Address,
    mut open: Open,
    places: &impl Fn(&[u8; 16]) -> Vec<Place>,
    mut ahead: Option<&mut Ahead>,
    events: &mut Events<'_>,
) -> Result<Session, Failure> {
    can_have_pairs(copy)?;
    let mut first = None;
    let is_wanted = wants_stream_ahead(copy, &open);
    let mut begin_first = |met: Connected| {
        if is_wanted {
            first = Some(AheadStream::connect(met.to, met.is_small));
        }
    };
    let (mut link, ticket) = connect_beside(copy, to, (copy.before.start(), &mut begin_first), events)?;
    open.job = job_of(&link);
    open.places = places(&open.job);
    greeting::begin(&mut link, ticket.as_ref());
    if open.direction == Direction::Pull {
        greeting::pick(&mut link, copy.choice.picks.as_deref())?;
    }
    let frames = ahead.as_mut().map_or(Vec::new(), |ahead| ahead.frames().to_vec());
    let bytes = ahead.and_then(|ahead| ahead.bytes());
    // The first flight of a rail holds it: there is no rate to be found out.
    let is_tiny = bytes.is_some_and(|bytes| bytes <= TINY_BYTES);
    let is_one_chunk = bytes.is_some_and(|bytes| bytes <= ONE_WORKER_BYTES) && is_unasked(copy.request);
    if is_one_chunk {
        open.offer.cores = 1;
    }
    open.ahead = u8::try_from(frames.len()).unwrap_or(u8::MAX);
    greeting::open(&mut link, open.clone(), &frames)?;
    let early = greet_early(copy, &mut link, &open, (is_tiny, is_one_chunk));
    // Over a short path a larger job may find a faster way round, and its rails stay where they were greeted.
    let is_short = sys::sock::tcp_info(link.as_fd()).is_ok_and(|info| probe::rtt_of(&info) < probe::SHORT);
    // A tunnel's near end answers at once, however long the way is.
    let is_tunnel = to.host_port().is_some_and(|place| copy.before.is_tunnel(&place));
    let is_worth = is_one_chunk || is_tunnel || !is_short;
    let stays = |it: &AheadStream| is_worth && Some(it.to()) == link.peer_addr();
    let mut first = first.filter(stays);
    // Numbers are given in turn, and datagrams come first.
    let rail = if early.is_some() { rails::AHEAD_BESIDE } else { rails::AHEAD };
    first.iter_mut().for_each(|it| it.greet(JobSecret::of(&link, open.job), rail));
    let agreed = greeting::agree(&mut link, &open);
    let mut agreed = agreed.inspect_err(|failure| copy.before.on_no_plan(&link, failure))?;
    has_pairs(copy, &mut link, &agreed.plan)?;
    if is_one_chunk {
        agreed.choices.push(Choice { what: "workers here", value: "1".to_owned(), reason: ONE_WORKER.to_owned() });
    }
    early.iter().for_each(Early::on_agreed);
    link.on_job_known();
    copy.again.is_on(open.job);
    if agreed.compare != open.compare && open.direction == Direction::Push {
        events.note(UNCOMPARED);
    }
    let known = (copy.request.transport == Transport::Auto && !agreed.plan.bare).then(|| {
        let info = sys::sock::tcp_info(link.as_fd()).ok();
        let plan = &agreed.plan;
        let rails = (plan.streams, plan.streams_max);
        let mut known = probe::known(info.as_ref(), rails, plan.rate_bps, copy.request.forecast);
        let ends = (&open.offer, &agreed.theirs);
        let (source, target) = if open.direction == Direction::Push { ends } else { (ends.1, ends.0) };
        known.host.storage = Storage::of(source, target);
        known.host.is_one_host = proto::negotiate::share_cores(source, target);
        agreed.choices.push(known.choice(plan.datagrams > 0));
        known
    });
    let addr = link.peer_addr().expect("a pair is not dialled");
    Ok(Session {
        link,
        open,
        agreed,
        addr,
        known,
        begun: Begun { packets: early, stream: first },
        ahead: None,
        is_one_chunk,
    })
}

impl Session {
    /// Ends it before the job has begun.
    fn give_up(&mut self, why: Refusal, failure: &Failure) {
        greeting::say(&mut self.link, &Frame::Refuse { code: why.code(), detail: failure.cause.clone() });
        self.link.close();
        let _ = self.link.flush_blocking(Duration::from_secs(1));
    }

    /// Where rails lead: by the paths that were named, else to the session's own peer, and not over a slow NIC if a faster network joins both.
    fn peers(&mut self, copy: &Copy<'_>, secret: &JobSecret, events: &mut Events<'_>) -> Result<Vec<Peer>, Failure> {
        if copy.request.paths.is_empty() {
            let packet_bytes = udp::packet_bytes_of(self.link.as_fd(), self.addr.ip());
            let named = Peer { addr: self.addr, from: None, packet_bytes, train: 0, rtt: self.known_of_path().0 };
            let other = if self.is_one_chunk { None } else { self.way_round(copy, secret, events) };
            return Ok(vec![other.unwrap_or(named)]);
        }
        for path in &copy.request.paths {
            self.prove(copy, path.remote)?;
        }
        Ok(copy.request.paths.iter().map(|path| self.peer_at(path.remote, path.local)).collect())
    }

    /// Where another host's client says which addresses are dialled, the session's peer must be there.
    fn prove(&self, copy: &Copy<'_>, remote: IpAddr) -> Result<(), Failure> {
        match &copy.lent {
            Some(lent) if remote != self.addr.ip() => {
                lent.dial(&Address::daemon(&remote.to_string(), self.addr.port()), self.link.peer_key()).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn peer_at(&self, remote: IpAddr, from: Option<IpAddr>) -> Peer {
        // Of another link than the session's nothing is known; the greeting finds what passes.
        let addr = SocketAddr::new(remote, self.addr.port());
        Peer { addr, from, packet_bytes: udp::PACKET_BYTES_MAX, train: 0, rtt: Duration::ZERO }
    }

    /// A faster path than the one that nobody chose, if the peer answers there. A rail that was greeted early stays where it was greeted.
    fn way_round(&mut self, copy: &Copy<'_>, secret: &JobSecret, events: &mut Events<'_>) -> Option<Peer> {
        let (own, theirs) = (&self.open.offer.interfaces, &self.agreed.theirs.interfaces);
        let nets = sys::host::interfaces().unwrap_or_default();
        let nets: Vec<nic_speeds::Own> = nets.iter().flat_map(|it| it.networks()).collect();
        let local = sys::sock::local_addr(self.link.as_fd()).ok()?;
        let better = nic_speeds::better(local.ip(), self.addr.ip(), &nets, own, theirs)?;
        let peer = self.peer_at(better.there, Some(better.here));
        if self.begun.packets.is_some()
            || self.begun.stream.is_some()
            || copy.request.dry_run
            || self.prove(copy, better.there).is_err()
        {
            events.note(&better.left());
            return None;
        }
        if let Err(error) = rails::answers(peer, secret) {
            events.note(&better.silent(&error));
            return None;
        }
        events.note(&better.used(self.addr.ip()));
        let value = format!("{}={}", better.here, better.there);
        self.agreed.choices.push(Choice {
            what: "path",
            value,
            reason: format!("{}, instead of {}", better.it, better.worse),
        });
        Some(peer)
    }

    /// Its round trip, and whether only small segments pass.
    fn known_of_path(&self) -> (Duration, bool) {
        let info = sys::sock::tcp_info(self.link.as_fd());
        let rtt = info.map_or(Duration::ZERO, |info| Duration::from_micros(info.rtt_us.into()));
        (rtt, self.link.is_small())
    }

    /// The share that each path should bring.
    fn weigh(&self, copy: &Copy<'_>, peers: &[Peer]) -> Vec<f64> {
        let (own, theirs) = (&self.open.offer.interfaces, &self.agreed.theirs.interfaces);
        let said: Vec<Option<u32>> = copy.request.paths.iter().map(|path| path.weight).collect();
        let ends: Vec<nic_speeds::Ends> =
            peers.iter().map(|it| (it.from.or_else(|| leaves_from(it.addr)), it.addr.ip())).collect();
        nic_speeds::weights(&said, &ends, own, theirs)
    }

    /// Starts the workers: where `host probe` has found out for this peer (it measures sending), else beside what they serve.
    fn placed(&mut self, copy: &Copy<'_>, peers: &[Peer], way: &Way) -> Result<Placed, Failure> {
        let own = sys::sock::local_addr(self.link.as_fd()).ok().map(|it| it.ip());
        if let Some(lent) = &copy.lent {
            let (workers, pool_bytes) = lent.workers();
            return Ok(Placed { workers, pool_bytes, volume_nodes: Vec::new() });
        }
        let locals: Vec<IpAddr> = peers.iter().filter_map(|it| it.from.or(own)).collect();
        let (count, chunk_bytes) = (self.agreed.plan.workers.0, self.agreed.plan.chunk_bytes);
        let choices = &mut self.agreed.choices;
        let measured = locals.first().filter(|_| self.open.direction == Direction::Push).and_then(|local| {
            let (hold, choice) = measured::for_job(&copy.home, *local, peers[0].addr.ip(), count);
            choices.extend(choice);
            hold
        });
        let (holds, volume_nodes) = match measured {
            Some(hold) => (vec![hold], Vec::new()),
            None => numa::place(&locals, way, count.into(), "placement here", choices),
        };
        let (workers, pool_bytes) = start_workers(copy, count, chunk_bytes, holds)?;
        Ok(Placed { workers, pool_bytes, volume_nodes })
    }

    /// What the plan was made from, if the user wants to know.
    fn explain(&self, copy: &Copy<'_>, workers: &Arc<Workers>, events: &mut Events<'_>) {
        let explained = report::Explaining {
            own: &self.open.offer,
            theirs: Some(&self.agreed.theirs),
            choices: &self.agreed.choices,
            workers,
            granted: copy.request.memory_bytes,
        };
        if copy.request.explain {
            explained.show(events);
        }
    }

    /// What wakes the job driver: a scan that has begun rings it already.
    fn wake(&self) -> Result<Event, Failure> {
        let wake = self.ahead.as_ref().map_or_else(Event::new, |ahead| Ok(ahead.wake.clone()));
        wake.map_err(|error| Exit::of_io(&error).fail("start the job", error))
    }

    fn run(
        mut self,
        copy: &Copy<'_>,
        way: Way,
        carry: Option<std::path::PathBuf>,
        events: &mut Events<'_>,
    ) -> Result<Exit, Failure> {
        let (plan, direction) = (self.agreed.plan.clone(), self.open.direction);
        let secret = JobSecret::of(&self.link, self.open.job);
        let peers = self.peers(copy, &secret, events)?;
        let Placed { workers, pool_bytes, volume_nodes } = self.placed(copy, &peers, &way)?;
        self.explain(copy, &workers, events);
        let shared = proto::negotiate::share_cores(&self.open.offer, &self.agreed.theirs);
        let wake = self.wake()?;
        let (path, weights) = (self.known_of_path(), self.weigh(copy, &peers));
        let begun = std::mem::take(&mut self.begun);
        let device = copy.request.rdma_device.as_ref().and_then(RdmaDevice::name);
        let rails = Rails::dial_net(&peers, &secret, direction == Direction::Push, path, (begun, device), &wake);
        let (durability, dry) = (self.open.durability, copy.request.dry_run);
        let default = receipt::default_path(&copy.home, &self.open.job);
        let (no, lent) = (next_job(), copy.lent);
        let peer_key = self.link.peer_key();
        let _forget = lent.map(|lent| Forget(lent, self.open.job, no));
        let job = Job {
            no,
            id: self.open.job,
            peer_key,
            link: self.link,
            identity: &copy.identity,
            terms: offer::terms(&plan, durability),
            durability,
            layout: copy.layout,
            dry,
            known: self.known,
            way,
            ahead: self.ahead,
            other_end: OtherEnd::Away,
            // Its own begin with the first; of those of all jobs each job begins with another.
            workers: Team::new(workers, if lent.is_some() { no } else { 0 }, plan.workers.0),
            volume_nodes,
            pool_bytes,
            rails,
            weights,
            offers: Some(Offers {
                initiator: self.open.offer.clone(),
                acceptor: self.agreed.theirs.clone(),
                is_initiator: true,
            }),
            registration: Some(copy.post(self.open.job, end_of(direction == Direction::Push), &wake)),
            wake,
            stall: lent.map_or(copy.request.stall, |lent| lent.stall(copy.request.stall)),
            receipt: (!dry).then(|| copy.request.receipt.clone().unwrap_or(default)),
            formers: receipt::formers(&copy.home, carry.as_deref(), &peer_key, copy.request.receipt.is_some()),
            carry: carry.filter(|_| !dry),
            bound: Arc::new(Bound::new(plan.rate_bps / 8, lent.map(|lent| lent.bound()))),
            share: lent.map(|lent| lent.share(no)),
            failed_disks: copy.failed_disks.clone(),
            cancel: Some(Arc::clone(&copy.cancel)),
            ending: None,
            plan,
        };
        let facts = report::Facts {
            copy,
            job: self.open.job,
            direction: Some(direction),
            plan: &self.agreed.plan,
            choices: &self.agreed.choices,
            shared,
            durability,
            compare: if self.open.direction == Direction::Pull { self.open.compare } else { self.agreed.compare },
        };
        let mut outcome = turn(job, copy, events)?;
        let link = outcome.link.take();
        let done = report::end(&facts, outcome, events);
        if let (Some(ftp), Some(link)) = (copy.ftp, link) {
            ftp.take_back(link);
        }
        done
    }
}

/// Turns this end, the events told. How far it came is kept for the next session, should this one be lost.
fn turn(job: Job<'_>, copy: &Copy<'_>, events: &mut Events<'_>) -> Result<Outcome, Failure> {
    let source = if let Way::Send(source) = &job.way { Some(source.clone()) } else { None };
    let sends = source.is_some();
    let (mut pace, mut tally) = (report::Pace::default(), Tally::default());
    let outcome = driver::run_traced(job, Some(&copy.trace), &mut |status, notes| {
        tally = report::durable(status, sends);
        report::tell(events, &mut pace, status, notes, sends);
    });
    let outcome = outcome.map_err(|failure| match never_had_rails(copy, &failure, &tally) {
        // Another session would not have them either.
        Some(failure) => failure,
        None => {
            copy.again.broke(tally);
            failure
        }
    })?;
    source.iter().flat_map(|it| report::written_meanwhile(it)).for_each(|it| events.note(&it));
    Ok(outcome)
}

/// No rail of the first session was ever there: the network lets none through, or the paths that the user named lead nowhere.
fn never_had_rails(copy: &Copy<'_>, failure: &Failure, tally: &Tally) -> Option<Failure> {
    let is_first = !copy.again.was_lost() && tally.rail_bytes == 0;
    if !is_first || !failure.cause.starts_with(NO_RAIL) {
        return None;
    }
    if copy.request.paths.is_empty() {
        let failure = (failure.exit == Exit::Connect).then(|| failure.clone())?;
        let next = "let the port of the server's rails through the firewall (`longhaul ftp serve --lhdata PORT` there), or copy by FTP alone: --plain-ftp";
        return Some(if copy.ftp.is_some() { failure.next(next) } else { failure });
    }
    let named: Vec<String> = copy.request.paths.iter().map(|path| path.remote.to_string()).collect();
    let failure = Exit::Connect.fail(format!("connect over --path {}", named.join(", ")), &failure.cause);
    Some(failure.next(
        "check that each --path names an address of the other host at which its daemon listens, or leave --path out",
    ))
}

/// An end of a job between two processes, in a word.
#[must_use]
pub fn end_of(sends: bool) -> &'static str {
    if sends { "sends" } else { "receives" }
}

/// The address of this host from which the system would go there; no packet is sent.
fn leaves_from(to: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = std::net::UdpSocket::bind(any).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok().map(|local| local.ip())
}
