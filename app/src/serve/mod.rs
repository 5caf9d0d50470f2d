//! `longhaul serve`: the daemon.
//!
//! For: hundreds of clients at once, on one set of workers and one pool, below one root.
//! In and out: settings in; jobs served until a signal ends it.
//! Invariants: a rail is looked at only under a job's own key; what a client may do is asked anew for each session; SIGTERM drains,
//! a second one ends at once; SIGHUP reloads.
//! Absent on purpose: the door itself (listener.rs), turning a job (job::keeper).

pub mod session; // one client
mod guarded; // what no root may hold
mod live; // who is served, and on whose word
pub mod relay; // a client's job, made here
pub mod relay_to; // whom that may reach
mod room; // how many jobs at once
mod shares; // what each may have of the daemon's rate

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use engine::fault::{panic_once_if_asked, words};
use engine::host::{Make, Workers};
use engine::job::JobNo;
use engine::numa::deal;
use proto::wire::chunk::Greeting;
use sys::event::Event;
use sys::fs::Dir;

use crate::args::{ServeArguments, TicketChoice};
use crate::config::{Settings, TicketAccess};
use guarded::Guards;
use live::Live;
use node::door::{self, Door, Standing};
use node::identity::ticket::{Tickets, Uses};
use node::identity::{Access, Home, Identity, Rights};
use node::job::board::{self, Board};
use node::job::homes::hold;
use node::job::keys::JobSecret;
use node::job::offer;
use node::job::place::Ground;
use node::job::rails::{self, Arrival, Carrier};
use node::job::sweep;
use node::link::failure_of;
use node::listener::{Listener, Proving, Rail};
use room::Room;
use shares::{Account, Accounts, Shares};
use text::exit::{Exit, Failure};
use topology::nodes::Nodes;

/// Bytes per buf of a daemon: chunks of jobs are no larger.
const CHUNK_BYTES: u32 = 1 << 20;
/// A daemon serves many jobs from one pool, so half of the grant is pool.
const POOL_PART: u64 = 2;

/// A daemon that always has a job gives back what those that ended had of the heap after so many of them.
const TRIM_AFTER: usize = 100;

/// A job that waits for rails.
#[derive(Debug)]
struct Waiting {
    secret: JobSecret,
    to: Sender<Arrival>,
    bell: Event,
    seen: HashSet<u16>,
    /// Datagram rails that were greeted, and how often each was confirmed: they may come from another address.
    packets: HashMap<u16, u32>,
    /// Who is let in with a datagram rail; `None`: none were agreed.
    datagrams: Option<door::Guest>,
}

impl Waiting {
    /// A connection for a control session that goes on has answered to its nonce.
    fn on_control(&self, Proving { stream, nonce, word, .. }: Proving) {
        let Some(theirs) = self.secret.count_of(&word, b'i', &nonce, 0) else { return };
        let carrier = Carrier::Control(nonce, Some(theirs));
        let arrival = Arrival { rail: rails::CONTROL, carrier, socket: Ok(stream.into()) };
        if self.to.send(arrival).is_ok() {
            self.bell.signal();
        }
    }
}

/// Everything sessions share.
#[derive(Debug)]
pub struct Daemon {
    /// Who we are.
    pub identity: Arc<Identity>,
    /// Keys, trust, receipts.
    pub home: Home,
    /// What the config and flags say now.
    pub settings: RwLock<Settings>,
    /// Where paths begin.
    pub ground: Ground,
    /// What neither root nor a key's own may hold.
    pub guards: Guards,
    /// Who moves the bytes.
    pub workers: Arc<Workers>,
    /// The machine's memory nodes, if there are several.
    pub nodes: Option<Nodes>,
    /// Their pools together.
    pub pool_bytes: u64,
    /// Jobs at once, by memory and descriptors.
    pub room: Room,
    /// Given out.
    pub tickets: Tickets,
    /// Jobs running.
    pub running: AtomicUsize,
    /// Jobs that ended since the heap was last trimmed.
    pub ended: AtomicUsize,
    /// Bytes of names that jobs take instead of whole folders, of all jobs.
    pub picked_bytes: AtomicUsize,
    /// No new jobs.
    pub draining: AtomicBool,
    /// Ends the listener.
    pub stop: Event,
    /// There is a UDP port for datagram rails.
    pub takes_datagrams: bool,
    /// Where running jobs are shown.
    pub board: Arc<Board>,
    /// Who is served.
    live: Live,
    /// `--rate`: all jobs together.
    shares: Shares,
    /// The rates of keys and tickets.
    accounts: Accounts,
    waiting: Mutex<HashMap<[u8; 16], Waiting>>,
}

impl Daemon {
    fn waiting(&self) -> MutexGuard<'_, HashMap<[u8; 16], Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rails of this job are let in from now on.
    pub fn expect_rails(
        &self,
        job: [u8; 16],
        secret: JobSecret,
        datagrams: Option<door::Guest>,
        to: Sender<Arrival>,
        bell: Event,
    ) -> bool {
        let waiting = Waiting { secret, to, bell, seen: HashSet::new(), packets: HashMap::new(), datagrams };
        let mut all = self.waiting();
        if all.contains_key(&job) {
            return false;
        }
        all.insert(job, waiting);
        true
    }

    /// And no more; nor has the job a share any more.
    pub fn forget_job(&self, job: &[u8; 16], no: JobNo) {
        self.waiting().remove(job);
        self.shares.forget(no);
        self.accounts.forget(no);
    }

    /// A rail is at the door. Anything wrong: it is closed without a word. Given back: what has to answer to a nonce first.
    fn on_rail(&self, rail: Rail) -> Option<Proving> {
        panic_once_if_asked("listener");
        let mut all = self.waiting();
        let (mut stream, greeting) = match rail {
            Rail::Greeted(stream, greeting) => (stream, greeting),
            Rail::Proved(proving) => {
                all.get(&proving.greeting.job)?.on_control(proving);
                return None;
            }
        };
        let job = all.get_mut(&greeting.job)?;
        if greeting.version != proto::VERSION || !job.secret.holds(&greeting) {
            return None;
        }
        if greeting.rail == rails::CONTROL {
            // Whoever said this greeting may have heard it elsewhere: the job hears of who answers to a nonce.
            let mut nonce = [0; 32];
            aws_lc_rs::rand::fill(&mut nonce).ok()?;
            // 32 bytes into an empty send buffer do not block.
            stream.write_all(&nonce).ok()?;
            return Some(Proving::new(stream, greeting, nonce));
        }
        if !job.seen.insert(greeting.rail) {
            return None;
        }
        // One byte into an empty send buffer does not block.
        stream.write_all(&[rails::WELCOME]).ok()?;
        let socket = OwnedFd::from(stream);
        rails::prepare(&socket);
        let arrival = Arrival { rail: greeting.rail, carrier: Carrier::Stream, socket: Ok(socket) };
        if job.to.send(arrival).is_ok() {
            job.bell.signal();
        }
        None
    }

    /// What this job, which let `taken` bytes go, may have of the daemon's cap, B/s; 0: there is none. See `shares`.
    pub fn rate_share(&self, job: JobNo, taken: u64, is_even: bool) -> u64 {
        let cap = self.settings.read().ok().and_then(|settings| settings.rate_bps).unwrap_or(0).div_ceil(8);
        self.shares.of(job, taken, is_even, sys::clock::now_ns(), cap)
    }

    /// What all jobs of this key or ticket have together, below the daemon's own bound.
    fn account(&self, account: Account, rate_bps: u64) -> Arc<Shares> {
        self.accounts.of(account, &self.shares.bound, rate_bps.div_ceil(8), sys::clock::now_ns())
    }

    /// Is there something to give back, of jobs that are gone? Once none runs, or after every so many.
    fn heap_is_worth_trimming(&self) -> bool {
        let ended = self.ended.load(Ordering::Relaxed);
        let is_worth = ended >= TRIM_AFTER || (ended > 0 && self.running.load(Ordering::SeqCst) == 0);
        if is_worth {
            self.ended.store(0, Ordering::Relaxed);
        }
        is_worth
    }

    /// A line in the log, if the daemon is as talkative as that.
    pub fn log(&self, level: u8, text: &str) {
        let verbose = self.settings.read().map_or(0, |settings| settings.verbose);
        if verbose >= level {
            let clean: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
            eprintln!("longhaul: {clean}");
        }
    }
}

impl door::Jobs for Daemon {
    fn judge(&self, greeting: &Greeting) -> Option<(door::Guest, Standing)> {
        let mut all = self.waiting();
        let job = all.get_mut(&greeting.job)?;
        let guest = job.datagrams.clone().filter(|_| greeting.rail != rails::CONTROL)?;
        if greeting.version != proto::VERSION || !job.secret.holds(greeting) {
            return None;
        }
        if job.seen.insert(greeting.rail) {
            job.packets.insert(greeting.rail, 0);
            return Some((guest, Standing::New));
        }
        // One that is greeted again: its initiator has another address, or somebody recorded it.
        job.packets.get(&greeting.rail).map(|&confirmed| (guest, Standing::Known(confirmed)))
    }

    fn find(&self, begins: [u8; 4], rail: u16) -> Vec<([u8; 16], door::Guest, u32)> {
        let all = self.waiting();
        let named = all.iter().filter(|(name, _)| name.starts_with(&begins));
        named.filter_map(|(name, job)| Some((*name, job.datagrams.clone()?, *job.packets.get(&rail)?))).collect()
    }

    fn deliver(&self, job: &[u8; 16], arrival: Arrival) -> bool {
        let mut all = self.waiting();
        let Some(job) = all.get_mut(job) else { return false };
        *job.packets.entry(arrival.rail).or_default() += 1;
        let is_there = job.to.send(arrival).is_ok();
        job.bell.signal();
        is_there
    }
}

/// Rails of a job are refused again when this goes.
#[derive(Debug)]
pub struct Forget<'a>(&'a Daemon, [u8; 16], JobNo);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.forget_job(&self.1, self.2);
    }
}

/// Runs `longhaul serve`.
#[must_use]
pub fn run(arguments: &ServeArguments) -> Exit {
    more_descriptors();
    match serve(arguments) {
        Ok(exit) => exit,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit
        }
    }
}

fn serve(arguments: &ServeArguments) -> Result<Exit, Failure> {
    let settings = Settings::load(arguments)?;
    let io = |what: &'static str| move |error: std::io::Error| Exit::of_io(&error).fail(what, error);
    let signals = sys::signals::watch(&[sys::signals::SIGTERM, sys::signals::SIGINT, sys::signals::SIGHUP])
        .map_err(io("watch for signals"))?;
    let home = Home::find().map_err(|error| failure_of("find LONGHAUL_HOME", &error.into()))?;
    let identity = Arc::new(Identity::load(&home).map_err(|error| failure_of("load this host's key", &error.into()))?);
    let (guards, ground) = (guards(&settings, &home, arguments)?, ground(&settings)?);
    let listener = Listener::bind(settings.listen, identity.clone())
        .map_err(|error| Exit::of_io(&error).fail(format!("listen on {}", settings.listen), error))?;
    let address = listener.local_addr().map_err(io("listen"))?;
    // Without it data goes over TCP, and clients are told so.
    let door = Door::bind(address);
    let nodes = Nodes::here();
    let make = make(&settings, nodes.as_ref());
    let (pool_bytes, room) = (make.memory_bytes, room_of(&settings, &make));
    confine(&settings, &home)?;
    let board = open_board(&settings, &home);
    let workers = Arc::new(Workers::start(make).map_err(io("start the workers"))?);
    let event = || Event::new().map_err(io("start the daemon"));
    let (stop, tickets, stdio) = (event()?, Tickets::new(), settings.stdio);
    print_address(&settings, &tickets, &identity, address)?;
    let settings = RwLock::new(settings);
    let daemon = Daemon {
        identity,
        home,
        settings,
        ground,
        guards,
        workers,
        nodes,
        pool_bytes,
        room,
        tickets,
        stop,
        takes_datagrams: door.is_ok(),
        running: AtomicUsize::new(0),
        ended: AtomicUsize::new(0),
        picked_bytes: AtomicUsize::new(0),
        draining: AtomicBool::new(false),
        board,
        live: Live::default(),
        shares: Shares::default(),
        accounts: Accounts::default(),
        waiting: Mutex::new(HashMap::new()),
    };
    let (watcher, gone, packets) = (event()?, event()?, door::Counts::default());
    std::thread::scope(|scope| {
        scope.spawn(|| watch(&daemon, &signals, [&watcher, &gone], arguments));
        if stdio {
            end_with_stdin(gone.clone());
        }
        let counts = listener.counts();
        match &door {
            Ok(door) => {
                let (daemon, packets, over) = (&daemon, &packets, &watcher);
                scope.spawn(move || serve_packets(daemon, door, packets, over));
            }
            Err(error) => daemon.log(1, &format!("no UDP port at {address}, data goes over TCP alone: {error}")),
        }
        let served = listener.run(
            |link| session::run(&daemon, link),
            |key| session::is_known(&daemon, key),
            |rail| daemon.on_rail(rail),
            &daemon.stop,
        );
        daemon.log(1, &counts.to_string());
        daemon.log(1, &packets.to_string());
        watcher.signal();
        served.map_err(io("serve the port"))
    })?;
    Ok(Exit::Whole)
}

/// The UDP port, until `over`. Rails that were greeted and not confirmed when it panicked are greeted again.
fn serve_packets(daemon: &Daemon, door: &Door, packets: &door::Counts, over: &Event) {
    while let Err(panic) = catch_unwind(AssertUnwindSafe(|| door.run(daemon, packets, over))) {
        daemon.log(0, &format!("the UDP port goes on after a mistake in Longhaul: {}", words(&*panic)));
    }
}

/// Each stranger at the door, rail and open file has a descriptor: as many as the system lets us have.
fn more_descriptors() {
    let mut files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    files.current = files.maximum;
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, files);
}

/// A far side whose ssh session is over has so long to end what runs: a client goes as soon as it has its own last word, and this side's
/// receipt is being flushed then.
const LEFT_ALONE: Duration = Duration::from_secs(10);

/// The ssh session is what keeps the far side alive.
fn end_with_stdin(gone: Event) {
    std::thread::spawn(move || {
        let mut byte = [0; 64];
        while std::io::stdin().read(&mut byte).is_ok_and(|count| count > 0) {}
        gone.signal();
        std::thread::sleep(LEFT_ALONE);
        board::shut();
        std::process::exit(0);
    });
}

/// Where clients find this daemon, on standard output; with the first ticket, if one is wanted.
fn print_address(
    settings: &Settings,
    tickets: &Tickets,
    identity: &Identity,
    address: std::net::SocketAddr,
) -> Result<(), Failure> {
    let choice = settings.ticket.or(settings.stdio.then_some(TicketChoice::Once));
    if let Some(choice) = choice {
        let uses = if matches!(choice, TicketChoice::Once) { Uses::Once } else { Uses::Many };
        let access = match settings.ticket_access {
            TicketAccess::Both => Access::ReadWrite,
            TicketAccess::ReadOnly => Access::ReadOnly,
            TicketAccess::WriteOnly => Access::WriteOnly,
        };
        let rights = Rights { root: None, access, rate_bps: 0, privileged: settings.privileged };
        let ticket = tickets
            .issue(identity.public(), uses, rights, None)
            .map_err(|error| failure_of("make a ticket", &error.into()))?;
        println!("longhaul://{ticket}@{address}/");
    } else {
        println!("longhaul://{address}/");
    }
    let _ = std::io::stdout().flush();
    Ok(())
}

fn open_board(settings: &Settings, home: &Home) -> Arc<Board> {
    sweep::begin(home, !settings.stdio);
    if settings.stdio {
        sweep::builds(node::client::far::FAR_PLACE);
    }
    Board::open(home, |why| {
        if settings.verbose > 0 {
            eprintln!("longhaul: {why}");
        }
    })
}

/// As many descriptors as this process may have; a login gives it 1024, which some 50 jobs use up.
fn raise_descriptors() -> u64 {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Refused: what is so stays so.
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn room_of(settings: &Settings, make: &Make) -> Room {
    Room::of(settings.memory_bytes, make.memory_bytes, make.count, raise_descriptors())
}

/// The workers that are wanted.
fn make(settings: &Settings, nodes: Option<&Nodes>) -> Make {
    let cores = || sys::host::cores().map_or(1, |cores| cores.count);
    let count = settings.workers.map_or_else(cores, usize::from).max(1);
    let least = offer::pool_bytes(settings.memory_bytes, count, CHUNK_BYTES);
    let memory_bytes = if settings.stdio { least } else { least.max(settings.memory_bytes / POOL_PART) };
    let driver = node::client::session::ring_kind(settings.driver);
    let room = nodes.map(Nodes::room).unwrap_or_default();
    // With fewer workers than nodes none is held: which node the next job wants nobody knows.
    let homes = if count < room.len() { Vec::new() } else { deal(&room, &room, count) };
    let holds = nodes.into_iter().flat_map(|nodes| homes.iter().map(|home| hold(nodes, *home))).collect();
    Make { count, memory_bytes, chunk_bytes: CHUNK_BYTES, driver, holds }
}

/// What this daemon trusts. Through ssh the far side serves its user, who has the keys anyway.
fn guards(settings: &Settings, home: &Home, arguments: &ServeArguments) -> Result<Guards, Failure> {
    if settings.stdio {
        return Ok(Guards::default());
    }
    let own = home.path("");
    let all = [Some(own.as_path()), settings.authorized_keys.as_deref(), arguments.config.as_deref()];
    let guards = Guards::of(all.into_iter().flatten())
        .map_err(|error| Exit::of_io(&error).fail("look at this daemon's own files", error))?;
    guards.refuse(&settings.root)?;
    Ok(guards)
}

fn ground(settings: &Settings) -> Result<Ground, Failure> {
    if settings.stdio && settings.root == std::path::Path::new("/") {
        let home = std::env::var_os("HOME").unwrap_or_else(|| "/".into());
        return Ok(Ground::Free(home.into()));
    }
    let root = Dir::open(settings.root.as_os_str().as_encoded_bytes())
        .map_err(|error| Exit::of_io(&error).fail(format!("open the root '{}'", settings.root.display()), error))?;
    Ok(Ground::Root(root))
}

/// Gives up what the daemon does not need. What this kernel cannot do is said once; it is the second wall, `openat2` is the first.
fn confine(settings: &Settings, home: &Home) -> Result<(), Failure> {
    if settings.stdio {
        return Ok(());
    }
    if let Some(user) = &settings.user {
        let (uid, gid) = account(user)?;
        sys::confine::drop_to(uid, gid)
            .map_err(|error| Exit::of_io(&error).fail(format!("become the user '{user}'"), error))?;
    }
    let _ = sys::confine::no_new_privs();
    let root = settings.root.as_os_str().as_encoded_bytes();
    let own = home.path("");
    let mut walls: Vec<(&[u8], bool)> = vec![(root, true), (own.as_os_str().as_encoded_bytes(), true)];
    let nodes = settings.privileged;
    for needed in [&b"/proc"[..], b"/sys", b"/etc"] {
        walls.push((needed, false));
    }
    let config = settings.authorized_keys.clone();
    if let Some(path) = config.as_ref().and_then(|path| path.parent()) {
        walls.push((path.as_os_str().as_encoded_bytes(), false));
    }
    if settings.verbose > 0 {
        match sys::confine::landlock(&walls, nodes) {
            Ok(wall) => eprintln!("longhaul: confined: {wall:?}"),
            Err(error) => eprintln!("longhaul: not confined by Landlock: {error}"),
        }
    } else {
        let _ = sys::confine::landlock(&walls, nodes);
    }
    Ok(())
}

/// User and group number of a name, from `/etc/passwd`: a static binary has no name service.
fn account(user: &str) -> Result<(u32, u32), Failure> {
    let failed = |cause: &str| Exit::Usage.fail(format!("become the user '{user}'"), cause);
    let text = std::fs::read_to_string("/etc/passwd").map_err(|error| failed(&error.to_string()))?;
    let line = text
        .lines()
        .find(|line| line.split(':').next() == Some(user))
        .ok_or_else(|| failed("it is not in /etc/passwd"))?;
    let mut fields = line.split(':').skip(2).map(str::parse::<u32>);
    match (fields.next(), fields.next()) {
        (Some(Ok(uid)), Some(Ok(gid))) => Ok((uid, gid)),
        _ => Err(failed("its line in /etc/passwd has no numbers")),
    }
}

/// Signals: SIGHUP reloads, the first SIGTERM or SIGINT drains, the second ends at once. `gone`: the ssh session is over, which drains, too.
fn watch(daemon: &Daemon, signals: &sys::signals::SignalFd, [over, gone]: [&Event; 2], arguments: &ServeArguments) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::os::fd::AsFd;
    loop {
        {
            let mut fds = [
                PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(over.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(gone.as_fd(), PollFlags::IN),
            ];
            let look = Timespec { tv_sec: live::LOOK.as_secs().cast_signed(), tv_nsec: 0 };
            let _ = poll(&mut fds, Some(&look));
            daemon.live.look(&daemon.home, |why| daemon.log(0, why));
            if daemon.heap_is_worth_trimming() {
                sys::mem::trim_heap();
            }
            if fds[1].revents().contains(PollFlags::IN) {
                return;
            }
            if fds[2].revents().contains(PollFlags::IN) {
                gone.drain();
                drain(daemon);
            }
        }
        while let Some(signal) = signals.take() {
            if signal.number == sys::signals::SIGHUP {
                match Settings::load(arguments) {
                    Ok(new) => {
                        let said = daemon.settings.write().map(|mut settings| settings.reload(new)).unwrap_or_default();
                        for line in said {
                            eprintln!("longhaul: reload: {line}");
                        }
                    }
                    Err(failure) => eprintln!("longhaul: reload refused, the old settings stay: {failure}"),
                }
            } else if daemon.draining.swap(true, Ordering::SeqCst) {
                eprintln!("longhaul: second signal, ending at once");
                board::shut();
                std::process::exit(i32::from(Exit::Interrupted.code()));
            } else {
                let running = drain(daemon);
                eprintln!(
                    "longhaul: draining: no new jobs, waiting for {running} running (signal again to end at once)"
                );
            }
        }
    }
}

/// No new jobs; the last of those that run ends the daemon. Returns how many do.
fn drain(daemon: &Daemon) -> usize {
    daemon.draining.store(true, Ordering::SeqCst);
    let running = daemon.running.load(Ordering::SeqCst);
    if running == 0 {
        daemon.stop.signal();
    }
    running
}

#[cfg(test)]
mod tests;
