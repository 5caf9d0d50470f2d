//! The daemon: sessions accepted, and what their clients ask for done.
//!
//! For: hundreds of clients at once, on one set of workers and one pool, below one root.
//! In and out: settings in; jobs served until it is drained or stopped.
//! Invariants: a rail is looked at only under a job's own key; what a client may do is asked anew for each session.
//! Absent on purpose: the demultiplexer itself (listener.rs), turning a job (job::driver), signals, giving up rights of the process.

pub mod session; // one client
mod guest; // what it may do and have
mod guarded; // what no root may hold
mod history; // what of its jobs the history has
mod live; // who is served, and on whose word
pub mod log; // what it says of that
pub mod relay; // a client's job, made here
pub mod relay_to; // whom that may reach
pub mod settings; // what it runs with
pub mod handed; // a port that somebody else has bound
mod capacity; // how many jobs at once
mod shares; // what each may have of the daemon's rate
mod tickets; // those given out, seen and revoked

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use engine::fault::{panic_once_if_asked, words};
use engine::host::{Make, Workers};
use engine::job::JobNo;
use engine::numa::deal;
use proto::ftp::lhdata::{Offered, Transport};
use proto::wire::chunk::Greeting;
use sys::event::Event;
use sys::fs::Dir;
use sys::rdma::{PairListener, Request};

use crate::demultiplexer::{self, Demultiplexer, Standing};
use crate::identity::ticket::{Ticket, Tickets, Uses};
use crate::identity::{Access, Home, Identity, Rights};
use crate::job::endpoint::PathBase;
use crate::job::endpoint::volumes::FailedDisks;
use crate::job::keys::JobSecret;
use crate::job::numa::hold;
use crate::job::offer;
use crate::job::rails::{self, Arrival, Carrier, Socket};
use crate::job::receipt::retention::{Keep, Turns};
use crate::job::registry::Registry;
use crate::job::sweep;
use crate::link::{Hellos, failure_of, reachable};
use crate::listener::{Listener, Next, Proving, Rail};
use crate::report::history::History;
use crate::request::pair_greeting;
use crate::request::{Ports, RdmaDevice};
use capacity::Capacity;
use guarded::Guards;
use handed::Handed;
use live::Live;
use log::EndedJob;
pub use log::{Log, LogFormat};
use settings::{Settings, TicketAccess};
use shares::{Account, Accounts, Shares};
use text::attempt::Attempt;
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
    wake: Event,
    seen: HashSet<u16>,
    /// Datagram rails that were greeted, and how often each was confirmed: they may come from another address.
    packets: HashMap<u16, u32>,
    /// Who is let in with a datagram rail; `None`: none were agreed.
    datagrams: Option<demultiplexer::Guest>,
}

impl Waiting {
    /// A connection for a control session that goes on has answered to its nonce.
    fn on_control(&self, Proving { stream, nonce, word, .. }: Proving) {
        let Some(theirs) = self.secret.count_of(&word, b'i', &nonce, 0) else { return };
        let carrier = Carrier::Control(nonce, Some(theirs));
        let arrival = Arrival { rail: rails::CONTROL, carrier, socket: Ok(Socket::Fd(stream.into())) };
        if self.to.send(arrival).is_ok() {
            self.wake.signal();
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
    pub path_base: PathBase,
    /// What neither root nor a key's own may hold.
    pub guards: Guards,
    /// Who moves the bytes.
    pub workers: Arc<Workers>,
    /// The machine's NUMA nodes, if there are several.
    pub nodes: Option<Nodes>,
    /// Their pools together.
    pub pool_bytes: u64,
    /// Jobs at once, by memory and descriptors.
    pub capacity: Capacity,
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
    /// There is a door for queue pairs of RDMA devices.
    pub takes_devices: bool,
    /// Sessions that begin in datagrams to it.
    hellos: Arc<Hellos>,
    /// Where running jobs are shown.
    pub registry: Arc<Registry>,
    /// Where they have their lines once they ended.
    pub history: Arc<History>,
    /// When receipts were looked at that are not to be kept.
    pub receipts: Turns,
    /// Disks of destinations that failed in its jobs.
    pub failed_disks: FailedDisks,
    /// Where its log goes.
    log: Log,
    /// Who is served.
    live: Live,
    /// `--rate`: all jobs together.
    shares: Shares,
    /// The rates of keys and tickets.
    accounts: Accounts,
    waiting: Mutex<HashMap<[u8; 16], Waiting>>,
    /// Signalled with each job that is added to `waiting`: for greetings over TCP.
    awaited: Event,
    /// And for those in datagrams.
    awaited_packets: Event,
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
        datagrams: Option<demultiplexer::Guest>,
        to: Sender<Arrival>,
        wake: Event,
    ) -> bool {
        let waiting = Waiting { secret, to, wake, seen: HashSet::new(), packets: HashMap::new(), datagrams };
        let mut all = self.waiting();
        if all.contains_key(&job) {
            return false;
        }
        all.insert(job, waiting);
        // A rail that was connected ahead may have greeted already.
        self.awaited.signal();
        self.awaited_packets.signal();
        true
    }

    /// And no more; nor has the job a share any more.
    pub fn forget_job(&self, job: &[u8; 16], no: JobNo) {
        self.waiting().remove(job);
        self.shares.forget(no);
        self.accounts.forget(no);
    }

    /// A rail is at the demultiplexer. Anything wrong: it is closed without a word. Given back: what has to answer to a nonce first, and a job's
    /// first rail if there is no such job: its greeting may have overtaken `Open`.
    fn on_rail(&self, rail: Rail) -> Next {
        panic_once_if_asked("listener");
        match rail {
            Rail::Greeted(stream, greeting)
                if matches!(greeting.rail, rails::AHEAD | rails::AHEAD_BESIDE)
                    && greeting.version == proto::VERSION
                    && !self.waiting().contains_key(&greeting.job) =>
            {
                Next::Early(stream, greeting)
            }
            rail => self.on_rail_of_job(rail).map_or(Next::Over, Next::Prove),
        }
    }

    fn on_rail_of_job(&self, rail: Rail) -> Option<Proving> {
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
        let carrier = if greeting.is_pair { Carrier::Pair } else { Carrier::Stream };
        let arrival = Arrival { rail: greeting.rail, carrier, socket: Ok(Socket::Fd(socket)) };
        if job.to.send(arrival).is_ok() {
            job.wake.signal();
        }
        None
    }

    /// Somebody dials by an RDMA device. Anything wrong: refused without a word.
    fn on_device(&self, request: Request) {
        let greeting = pair_greeting::greeting_of(&request.hello);
        let mut all = self.waiting();
        let job =
            all.get_mut(&greeting.job).filter(|job| greeting.version == proto::VERSION && job.secret.holds(&greeting));
        let Some(job) = job.filter(|_| greeting.rail != rails::CONTROL) else { return request.refuse() };
        let is_new = job.seen.insert(greeting.rail);
        if !is_new {
            return request.refuse();
        }
        let socket = Ok(Socket::Link(Box::new(request.accept())));
        if job.to.send(Arrival { rail: greeting.rail, carrier: Carrier::Device, socket }).is_ok() {
            job.wake.signal();
        }
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
        let (verbose, format) = self.saying();
        if verbose >= level {
            self.log.sentence(format, level, text);
        }
    }

    /// A job ended. Through ssh the client's own report says so.
    fn log_job(&self, job: &EndedJob) {
        let (verbose, format) = self.saying();
        let is_stdio = self.settings.read().is_ok_and(|settings| settings.stdio);
        if verbose > 0 || !is_stdio {
            self.log.job(format, job);
        }
    }

    fn saying(&self) -> (u8, LogFormat) {
        self.settings.read().map_or((0, LogFormat::Text), |settings| (settings.verbose, settings.log))
    }
}

impl demultiplexer::Jobs for Daemon {
    fn judge(&self, greeting: &Greeting) -> Option<(demultiplexer::Guest, Standing)> {
        let mut all = self.waiting();
        let job = all.get_mut(&greeting.job)?;
        let guest = job.datagrams.clone()?;
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

    fn new_jobs(&self) -> &Event {
        &self.awaited_packets
    }

    fn hello(&self, datagram: &[u8], from: std::net::SocketAddr) -> Option<Vec<Vec<u8>>> {
        self.hellos.on_datagram(datagram, from)
    }

    fn find(&self, begins: [u8; 4], rail: u16) -> Vec<([u8; 16], demultiplexer::Guest, u32)> {
        let all = self.waiting();
        let named = all.iter().filter(|(name, _)| name.starts_with(&begins));
        named.filter_map(|(name, job)| Some((*name, job.datagrams.clone()?, *job.packets.get(&rail)?))).collect()
    }

    fn deliver(&self, job: &[u8; 16], arrival: Arrival) -> bool {
        let mut all = self.waiting();
        let Some(job) = all.get_mut(job) else { return false };
        *job.packets.entry(arrival.rail).or_default() += 1;
        let is_there = job.to.send(arrival).is_ok();
        job.wake.signal();
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

/// A bound port that serves nobody yet: what needs rights of the process is done, and these may be given up now.
#[derive(Debug)]
pub struct Bound {
    settings: Settings,
    home: Home,
    identity: Arc<Identity>,
    guards: Guards,
    path_base: PathBase,
    listener: Listener,
    demultiplexer: std::io::Result<Demultiplexer>,
    nodes: Option<Nodes>,
}

/// A daemon: an identity that accepts sessions and does what their clients ask for, below one folder.
///
/// ```no_run
/// use node::identity::{Home, ticket::Uses};
/// use node::serve::{Bound, Log, settings::Settings};
///
/// let bound = Bound::bind(Settings::of("/srv/data"), &Home::find()?, &[])?;
/// let server = bound.start(Log::to(|line| eprintln!("{line}")))?;
/// println!("longhaul://{}@{}/", server.ticket(Uses::Many)?, server.address()?);
/// server.run()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Server {
    /// For queue pairs, and of which device.
    door: Option<(PairListener, RdmaDevice)>,
    daemon: Arc<Daemon>,
    listener: Listener,
    demultiplexer: std::io::Result<Demultiplexer>,
}

/// What an FTP server needs to go on with LHDATA: the daemon whose sessions these are.
#[derive(Debug, Clone)]
pub struct Upgrade {
    /// It serves the root of the FTP server.
    pub(crate) daemon: Arc<Daemon>,
    /// Where its rails are.
    pub(crate) offered: Offered,
}

impl Upgrade {
    /// A daemon that listens at this port.
    pub(crate) fn new(daemon: Arc<Daemon>, port: u16) -> Upgrade {
        let mut transports = vec![Transport::Tcp];
        if daemon.takes_datagrams {
            transports.push(Transport::Udp);
        }
        Upgrade { daemon, offered: Offered { port, transports } }
    }
}

/// Where queue pairs are let in, if that is wanted. Errors: a device was named that cannot be used, or the door cannot be opened.
fn open_door(settings: &Settings, at: std::net::SocketAddr) -> Result<Option<(PairListener, RdmaDevice)>, Failure> {
    let Some(device) = settings.rdma_device.clone().filter(RdmaDevice::is_device) else { return Ok(None) };
    let refused = |why: String| {
        let failure = Exit::Negotiation.fail("let queue pairs of RDMA devices in", why);
        failure.next(
            "leave --rdma-device out, and clients use TCP or UDP; `longhaul host show` tells what each device lacks",
        )
    };
    device.can_be_used(&sys::rdma::devices()).map_err(refused)?;
    let door = PairListener::open(pair_greeting::door_at(at)).map_err(|error| refused(error.to_string()))?;
    Ok(Some((door, device)))
}

fn io(what: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |error| Exit::of_io(&error).fail(what, error)
}

impl Bound {
    /// Opens the folder and the port. `own`: files that no root may hold, beside the home and the list of keys.
    ///
    /// # Errors
    /// The home, the folder or the port; a folder that holds what a daemon keeps to itself.
    pub fn bind(settings: Settings, home: &Home, own: &[&std::path::Path]) -> Result<Bound, Failure> {
        Bound::bind_or_take(settings, home, own, None)
    }

    /// As `bind`; with a port that is bound already, it is that one, whatever the settings say.
    ///
    /// # Errors
    /// Those of `bind`.
    pub fn bind_or_take(
        settings: Settings,
        home: &Home,
        own: &[&std::path::Path],
        handed: Option<Handed>,
    ) -> Result<Bound, Failure> {
        let identity = Identity::load(home).map_err(|error| failure_of("load this host's key", &error.into()))?;
        let identity = Arc::new(identity);
        let (guards, path_base) = (guards(&settings, home, own)?, path_base(&settings)?);
        let is_ours = handed.as_ref().is_none_or(|handed| handed.is_ours);
        let (tcp, udp) = handed.map_or((None, None), |Handed { tcp, udp, .. }| (Some(tcp), udp));
        let listener = match tcp {
            Some(tcp) => Listener::over(tcp, identity.clone()),
            None => listen(&settings, &identity),
        };
        let listener = listener.map_err(|error| {
            let of_these = settings.ports.map_or_else(String::new, |ports| format!(", ports {ports}"));
            Attempt::Listen.fail(format!("listen on {}{of_these}", settings.listen), &error)
        })?;
        let address = listener.local_addr().map_err(io("listen"))?;
        // Without it data goes over TCP, and clients are told so.
        let demultiplexer = match udp {
            Some(udp) if is_ours => Demultiplexer::bound(udp),
            Some(udp) => Demultiplexer::handed(udp),
            None => Demultiplexer::bind(address),
        };
        let nodes = Nodes::here();
        Ok(Bound { settings, home: home.clone(), identity, guards, path_base, listener, demultiplexer, nodes })
    }

    /// See `Listener::on_mistake`.
    #[must_use]
    pub fn on_mistake(mut self, call: impl Fn(&str, bool) + Send + Sync + 'static) -> Bound {
        self.listener = self.listener.on_mistake(call);
        self
    }

    /// See `Listener::on_turn`.
    #[must_use]
    pub fn on_turn(mut self, every: std::time::Duration, call: impl Fn() + Send + Sync + 'static) -> Bound {
        self.listener = self.listener.on_turn(every, call);
        self
    }

    /// Starts the workers.
    ///
    /// # Errors
    /// Memory or threads.
    pub fn start(self, log: Log) -> Result<Server, Failure> {
        let Bound { settings, home, identity, guards, path_base, listener, demultiplexer, nodes } = self;
        // After the walls and the change of user: the kernel takes calls on what it opened by these rights alone (ib_safe_file_access).
        let door = open_door(&settings, listener.local_addr().map_err(io("listen"))?)?;
        let make = make(&settings, nodes.as_ref());
        let (pool_bytes, capacity) = (make.memory_bytes, room_of(&settings, &make));
        let registry = open_registry(&settings, &home, &log);
        let workers = Arc::new(Workers::start(make).map_err(io("start the workers"))?);
        let stop = Event::new().map_err(io("start the daemon"))?;
        let daemon = Daemon {
            identity,
            history: History::of(&home),
            receipts: Turns::default(),
            home,
            settings: RwLock::new(settings),
            path_base,
            guards,
            workers,
            nodes,
            pool_bytes,
            capacity,
            tickets: Tickets::new(),
            stop,
            takes_datagrams: demultiplexer.is_ok(),
            takes_devices: door.is_some(),
            hellos: listener.hellos(),
            running: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            picked_bytes: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            registry,
            failed_disks: FailedDisks::default(),
            log,
            live: Live::default(),
            shares: Shares::default(),
            accounts: Accounts::default(),
            waiting: Mutex::new(HashMap::new()),
            awaited: Event::new().map_err(io("start the daemon"))?,
            awaited_packets: Event::new().map_err(io("start the daemon"))?,
        };
        let daemon = Arc::new(daemon);
        let asked = Arc::downgrade(&daemon);
        daemon.registry.answer_for_tickets(move |request| tickets::answer_of(&asked, request));
        Ok(Server { door, daemon, listener, demultiplexer })
    }
}

impl Server {
    /// Where it listens; the port that was found, where 0 was asked for.
    ///
    /// # Errors
    /// The kernel's.
    pub fn address(&self) -> Result<std::net::SocketAddr, Failure> {
        self.listener.local_addr().map_err(io("listen"))
    }

    /// Where others reach it, as `longhaul://` wants it behind a ticket: `HOST:PORT`, or several with commas.
    ///
    /// # Errors
    /// The kernel's.
    pub fn public_address(&self) -> Result<String, Failure> {
        let settings = self.daemon.settings.read().unwrap_or_else(PoisonError::into_inner);
        Ok(reachable::hosts(self.address()?, &settings.public).join(","))
    }

    /// Where its running jobs are shown, and asked things.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.daemon.registry
    }

    /// Where its jobs have their lines once they ended.
    #[must_use]
    pub fn history(&self) -> &Arc<History> {
        &self.daemon.history
    }

    /// For a door of FTP at the same root: what LHDATA goes on with.
    ///
    /// # Errors
    /// The kernel's.
    pub fn upgrade(&self) -> Result<Upgrade, Failure> {
        Ok(Upgrade::new(Arc::clone(&self.daemon), self.address()?.port()))
    }

    /// A ticket that lets in without a key, with the rights that the settings give to tickets.
    ///
    /// # Errors
    /// No randomness.
    pub fn ticket(&self, uses: Uses) -> Result<Ticket, Failure> {
        let settings = self.daemon.settings.read().unwrap_or_else(PoisonError::into_inner);
        let access = match settings.ticket_access {
            TicketAccess::Both => Access::ReadWrite,
            TicketAccess::ReadOnly => Access::ReadOnly,
            TicketAccess::WriteOnly => Access::WriteOnly,
        };
        let rights = Rights { root: None, access, rate_bps: 0, privileged: settings.privileged };
        let issued = self.daemon.tickets.issue(self.daemon.identity.public(), uses, rights, None);
        issued.map_err(|error| failure_of("make a ticket", &error.into()))
    }

    /// Serves until it is drained or stopped.
    ///
    /// # Errors
    /// The port's.
    pub fn run(self) -> Result<(), Failure> {
        let Server { door, daemon, listener, demultiplexer } = self;
        let listener = listener.on_awaited(daemon.awaited.clone());
        let (daemon, demultiplexer) = (&*daemon, &demultiplexer);
        let (over, packets) = (Event::new().map_err(io("start the daemon"))?, demultiplexer::Counts::default());
        std::thread::scope(|scope| {
            scope.spawn(|| keep_house(daemon, &over));
            let counts = listener.counts();
            match demultiplexer {
                Ok(demultiplexer) => {
                    let (packets, over) = (&packets, &over);
                    scope.spawn(move || serve_packets(daemon, demultiplexer, packets, over));
                }
                Err(error) => daemon.log(1, &format!("no UDP port, data goes over TCP alone: {error}")),
            }
            if let Some((door, device)) = door {
                let over = &over;
                scope.spawn(move || {
                    daemon.log(1, &format!("queue pairs of RDMA devices are let in: {device}"));
                    if let Some(error) = pair_greeting::serve(&door, &device, over, |request| daemon.on_device(request))
                    {
                        daemon.log(0, &format!("no more queue pairs are let in: {error}"));
                    }
                });
            }
            let served = listener.run(
                |link| session::run(daemon, link),
                |key| session::is_known(daemon, key),
                |rail| daemon.on_rail(rail),
                &daemon.stop,
            );
            daemon.log(1, &counts.to_string());
            daemon.log(1, &packets.to_string());
            over.signal();
            served.map_err(io("serve the port"))
        })
    }

    /// By which it is drained, stopped and given other settings while it runs.
    #[must_use]
    pub fn control(&self) -> Control {
        Control { daemon: Arc::clone(&self.daemon) }
    }
}

/// Steers a `Server` while it runs.
#[derive(Debug, Clone)]
pub struct Control {
    daemon: Arc<Daemon>,
}

impl Control {
    /// No new jobs; the last of those that run ends the daemon. Returns how many run, and whether it was told so before.
    pub fn drain(&self) -> (usize, bool) {
        let was_told = self.daemon.draining.swap(true, Ordering::SeqCst);
        let running = self.daemon.running.load(Ordering::SeqCst);
        if running == 0 {
            self.daemon.stop.signal();
        }
        (running, was_told)
    }

    /// Lets nobody in any more; `run` returns once those who are served are done.
    pub fn stop(&self) {
        self.daemon.stop.signal();
    }

    /// A line of whoever runs the daemon, in its log; `level` as `Daemon::log` has it.
    pub fn say(&self, level: u8, text: &str) {
        self.daemon.log(level, text);
    }

    /// Takes over what can change while jobs run; sentences of what did and what needs a restart.
    pub fn reload(&self, new: Settings) -> Vec<String> {
        self.daemon.settings.write().map(|mut settings| settings.reload(new)).unwrap_or_default()
    }
}

/// Looks after revoked keys, the history, and memory that jobs left, until `over`.
fn keep_house(daemon: &Daemon, over: &Event) {
    use std::os::fd::AsFd;
    loop {
        let waited = sys::event::poll(&[(over.as_fd(), sys::event::Interest::Read)], Some(live::LOOK));
        daemon.live.look(&daemon.home, |why| daemon.log(0, why));
        // Once in its life: why jobs are not in the history.
        daemon.history.warning().iter().for_each(|why| daemon.log(0, why));
        if daemon.heap_is_worth_trimming() {
            sys::mem::trim_heap();
        }
        if waited.map_or(true, |ready| ready[0].any()) {
            return;
        }
    }
}

/// The UDP port, until `over`. Rails that were greeted and not confirmed when it panicked are greeted again.
fn serve_packets(daemon: &Daemon, demultiplexer: &Demultiplexer, packets: &demultiplexer::Counts, over: &Event) {
    while let Err(panic) = catch_unwind(AssertUnwindSafe(|| demultiplexer.run(daemon, packets, over))) {
        daemon.log(0, &format!("the UDP port goes on after a mistake in Longhaul: {}", words(&*panic)));
    }
}

fn open_registry(settings: &Settings, home: &Home, log: &Log) -> Arc<Registry> {
    if let (None, Err(why)) = (settings.receipts_keep, Keep::of(home)) {
        log.sentence(settings.log, 0, &format!("all receipts are kept: {why}"));
    }
    sweep::begin(home, settings.receipts_keep, !settings.stdio);
    if settings.stdio {
        sweep::builds(crate::client::bootstrap::FAR_PLACE);
    }
    Registry::open(home, |why| {
        if settings.verbose > 0 {
            log.sentence(settings.log, 1, why);
        }
    })
}

/// As many descriptors as this process may have.
fn descriptors() -> u64 {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn room_of(settings: &Settings, make: &Make) -> Capacity {
    Capacity::of(settings.memory_bytes, make.memory_bytes, make.count, descriptors())
}

/// The workers that are wanted.
fn make(settings: &Settings, nodes: Option<&Nodes>) -> Make {
    let cores = || sys::host::cores().map_or(1, |cores| cores.count);
    let count = settings.workers.map_or_else(cores, usize::from).max(1);
    let least = offer::pool_bytes(settings.memory_bytes, count, CHUNK_BYTES);
    let memory_bytes = if settings.stdio { least } else { least.max(settings.memory_bytes / POOL_PART) };
    let driver = crate::client::session::ring_kind(settings.driver);
    let room = nodes.map(Nodes::room).unwrap_or_default();
    // With fewer workers than nodes none is held: which node the next job wants nobody knows.
    let homes = if count < room.len() { Vec::new() } else { deal(&room, &room, count) };
    let holds = nodes.into_iter().flat_map(|nodes| homes.iter().map(|home| hold(nodes, *home))).collect();
    Make { count, memory_bytes, chunk_bytes: CHUNK_BYTES, driver, holds }
}

/// Opens the port, or the first free one of those that may be taken. Where a far side that ssh started finds a kernel without IPv6, "all addresses" are those of IPv4.
fn listen(settings: &Settings, identity: &Arc<Identity>) -> std::io::Result<Listener> {
    let own = settings.listen.port();
    let mut taken = None;
    for port in settings.ports.map_or(own..=own, Ports::all) {
        let mut at = settings.listen;
        at.set_port(port);
        let mut opened = Listener::bind(at, identity.clone());
        if settings.stdio && at.is_ipv6() && at.ip().is_unspecified() && opened.as_ref().is_err_and(has_no_ipv6) {
            opened = Listener::bind((std::net::Ipv4Addr::UNSPECIFIED, port).into(), identity.clone());
        }
        match opened {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => taken = Some(error),
            other => return other,
        }
    }
    Err(taken.expect("a range has a port"))
}

fn has_no_ipv6(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let missing = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|number| missing.contains(&number))
}

/// What this daemon trusts. Through ssh the far side serves its user, who has the keys anyway.
fn guards(settings: &Settings, home: &Home, more: &[&std::path::Path]) -> Result<Guards, Failure> {
    if settings.stdio {
        return Ok(Guards::default());
    }
    let own = home.path("");
    let all = [Some(own.as_path()), settings.authorized_keys.as_deref()];
    let guards = Guards::of(all.into_iter().flatten().chain(more.iter().copied()))
        .map_err(|error| Exit::of_io(&error).fail("look at this daemon's own files", error))?;
    guards.refuse(&settings.root)?;
    Ok(guards)
}

fn path_base(settings: &Settings) -> Result<PathBase, Failure> {
    if settings.stdio && settings.root == std::path::Path::new("/") {
        let home = std::env::var_os("HOME").unwrap_or_else(|| "/".into());
        return Ok(PathBase::Free(home.into()));
    }
    let root = Dir::open(settings.root.as_os_str().as_encoded_bytes())
        .map_err(|error| Attempt::Root.fail(format!("open the root '{}'", settings.root.display()), &error))?;
    Ok(PathBase::Root(root))
}

#[cfg(test)]
mod tests;
