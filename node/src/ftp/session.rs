//! One client, on a thread of its own: what its machine decides, done.
//!
//! For: the door's threads.
//! In and out: a connection that was accepted; files beneath the user's root.
//! Invariants: what is to be done is done in the machine's order, one after another; the thread waits for the control connection, or in a transfer for both.
//! Absent on purpose: what a command means and who may say it (`proto::ftp::session`); data connections (`data`, `transfer`).

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::tree::is_ours;
use engine::worker::bound::Bound;
use proto::ftp::command::{Digest, Part};
use proto::ftp::session::fault::Fault;
use proto::ftp::session::{Action, LogIn, NoPort, Outcome, Secured, Session as Machine, Task, Terms};
use rustls::ServerConfig;
use sys::fs::Dir;

use super::control::ControlLine;
use super::data::{Ports, Way};
use super::files::{self, fault_of};
use super::tls::TlsSessions;
use super::users::{User, beneath};
use super::{Door, data, digests, tls, upgrade};

/// A thread waits no longer for a client that has no deadline: a transfer has its own.
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// So long after EPSV or PASV a port is named, at the soonest. curl (7.88 among others) reads once straight after it sent that command; if the reply is
/// there already, it then waits for a timer of 200 ms to a second before it dials. Whoever is farther away than this never sees that.
const PORT_TIME: Duration = Duration::from_micros(250);

/// The time as the machine has it: from the connection on.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    pub(super) fn now_ns(self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A client that is connected.
pub struct Session<'d> {
    pub(super) door: &'d Door,
    pub(super) line: ControlLine,
    pub(super) machine: Machine,
    pub(super) clock: Clock,
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    /// TLS of data connections.
    pub(super) config: Option<Arc<ServerConfig>>,
    /// And what it remembers.
    sessions: Option<Arc<TlsSessions>>,
    /// The port of the next data connection.
    pub(super) listener: Way,
    /// Data connections of MODE E that are there for the next transfer.
    pub(super) kept: Vec<TcpStream>,
    /// And where more of them are dialled.
    pub(super) dialled: Option<SocketAddr>,
    /// How fast this user may be, within the door's.
    pub(super) bound: Arc<Bound>,
    root: Arc<Dir>,
    /// Who is logged in; `None`: nobody with a name.
    pub(super) user: Option<User>,
    /// The upload that was cut of which SIZE was asked last, and what was answered.
    pub(super) sized: Option<(Vec<u8>, u64)>,
}

impl std::fmt::Debug for Session<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Session").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl<'d> Session<'d> {
    /// A client that was just accepted.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(door: &'d Door, stream: TcpStream, implicit: bool) -> io::Result<Session<'d>> {
        let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
        let clock = Clock(Instant::now());
        let terms = Terms {
            peer: peer.ip(),
            local: local.ip(),
            public: door.settings.public_address,
            may_clear: door.settings.clear.iter().any(|network| network.has(peer.ip())),
            anonymous: door.settings.anonymous,
            implicit,
            hidden: is_ours,
            lhdata: door.upgrade.get().map(|it| it.offered.clone()),
        };
        Ok(Session {
            door,
            line: ControlLine::new(stream)?,
            machine: Machine::new(terms, clock.now_ns()),
            clock,
            peer,
            local,
            config: None,
            sessions: None,
            listener: Way::None,
            kept: Vec::new(),
            dialled: None,
            bound: Arc::clone(&door.bound),
            root: Arc::clone(&door.root),
            user: None,
            sized: None,
        })
    }

    /// Serves until the client goes. `let_in` is called when it has logged in.
    pub fn run(mut self, mut let_in: impl FnMut()) {
        loop {
            while let Some(action) = self.machine.next_action() {
                if !self.act(action) {
                    self.line.end();
                    return;
                }
                if self.machine.is_logged_in() {
                    let_in();
                }
            }
            // What came is taken before anything is waited for: the handshake's last read may have had a command behind it, of which the socket knows no more.
            if !self.line.pull(&mut self.machine, self.clock.now_ns()) {
                self.obey_last();
                return;
            }
            self.machine.on_time(self.clock.now_ns());
            if !self.machine.has_something() {
                let left = self.machine.deadline_ns().saturating_sub(self.clock.now_ns());
                self.line.wait(Duration::from_nanos(left).min(WAIT_MAX));
            }
        }
    }

    /// The client said its last: lines that came before its end are answered, as far as nothing is waited for.
    fn obey_last(&mut self) {
        while let Some(action) = self.machine.next_action() {
            if !self.act(action) {
                break;
            }
        }
        self.line.end();
    }

    /// Does one thing. False: the session is over.
    fn act(&mut self, action: Action) -> bool {
        match action {
            Action::Say(bytes) => return self.line.say(&bytes).is_ok(),
            Action::Secure => {
                let secured = match self.secure() {
                    true if self.line.is_bound() => Secured::Bound,
                    true => Secured::Yes,
                    false => Secured::No,
                };
                self.machine.on_secured(self.clock.now_ns(), secured);
            }
            Action::AskClear(name) => self.machine.on_clear(self.door.users.may_clear(&name)),
            Action::LogIn { name, password } => {
                let login = self.log_in(&name, &password);
                self.machine.on_login(self.clock.now_ns(), login);
            }
            Action::LogInAnonymous => {
                self.root = Arc::clone(&self.door.root);
                self.bound = Arc::clone(&self.door.bound);
                self.user = None;
            }
            Action::Listen => {
                let port = self.listen();
                self.hold_back();
                self.machine.on_listening(self.clock.now_ns(), port);
            }
            Action::Unlisten => {
                self.listener = Way::None;
                self.kept.clear();
            }
            Action::Work(task) => {
                let outcome = self.work(task);
                self.machine.on_done(self.clock.now_ns(), outcome);
            }
            Action::Prepare(transfer) => self.transfer(transfer),
            Action::Upgrade => {
                let rights = self.machine.rights();
                let is_back =
                    upgrade::run((self.door, &mut self.line, self.peer), rights, self.user.as_ref()).is_some();
                self.machine.on_returned(self.clock.now_ns(), is_back);
            }
            Action::Close => return false,
        }
        true
    }

    /// Sends what the machine has to say by now.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while let Some(action) = self.machine.next_action() {
            if !self.act(action) {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
        Ok(())
    }

    fn secure(&mut self) -> bool {
        let left = self.machine.deadline_ns().saturating_sub(self.clock.now_ns());
        let until = Instant::now() + Duration::from_nanos(left);
        let Ok(hello) = self.line.hello(until) else { return false };
        // A ticket of TLS 1.3 is good once for OpenSSL, and who only sends hardly reads new ones; sessions of TLS 1.2 are resumed as often as one wants.
        let is_tls12 = self.door.settings.reuse_required && tls::offers_tls12(&hello);
        let Ok(terms) = tls::terms(&self.door.certificate.key, is_tls12) else { return false };
        self.config = Some(terms.data);
        self.sessions = Some(terms.sessions);
        self.line.secure(&terms.control, &hello, until).is_ok()
    }

    /// The root of who is logged in.
    pub(super) const fn root(&self) -> &Arc<Dir> {
        &self.root
    }

    fn log_in(&mut self, name: &[u8], password: &[u8]) -> LogIn {
        let network = self.peer.ip();
        if let Some(seconds) = self.door.tries.shut_for(network) {
            return LogIn::Shut { seconds };
        }
        let user = std::str::from_utf8(name).ok().and_then(|name| self.door.users.login(name, password));
        match user.filter(|user| user.may_come_from(network)).and_then(|user| self.take_root(user)) {
            Some(rights) => {
                self.door.tries.forget(network);
                LogIn::In(rights)
            }
            None => LogIn::Wrong { pause_ns: self.door.tries.on_wrong(network) },
        }
    }

    /// The user's folder and rate. One whose folder is not there is not let in.
    fn take_root(&mut self, user: User) -> Option<proto::ftp::session::Rights> {
        self.root = match &user.root {
            None => Arc::clone(&self.door.root),
            Some(root) => Arc::new(self.door.root.open_dir(beneath(root, &self.door.settings.root)?).ok()?),
        };
        self.bound = match user.rate_bps {
            None => Arc::clone(&self.door.bound),
            Some(rate) => Arc::new(Bound::new(rate.div_ceil(8), Some(Arc::clone(&self.door.bound)))),
        };
        let rights = user.rights;
        self.user = Some(user);
        Some(rights)
    }

    /// Waits `PORT_TIME` before a data port is named, unless the client has said more: who does not wait for replies is not kept waiting.
    fn hold_back(&self) {
        if !self.machine.has_line() {
            self.line.wait(PORT_TIME);
        }
    }

    fn listen(&mut self) -> Result<u16, NoPort> {
        let other = |error: io::Error| NoPort::Other(error.to_string());
        // A place of before would keep this session from the next.
        self.listener = Way::None;
        self.kept.clear();
        if let Some(one) = &self.door.one_port {
            let place = one.wait(self.peer.ip(), self.sessions.clone()).map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut => NoPort::AllTaken,
                _ => other(error),
            })?;
            self.listener = Way::Shared(place);
            return one.port().map_err(other);
        }
        let range = match self.door.settings.passive_ports {
            Some(Ports::Range(range)) => Some(range),
            _ => None,
        };
        let listener = data::bind(self.local.ip(), range).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => NoPort::AllTaken,
            _ => other(error),
        })?;
        let port = listener.local_addr().map_err(other)?.port();
        // What is accepted has those of the port, and the window that they allow from its first word on.
        data::set_buffers(&listener, self.machine.buffer_bytes());
        self.listener = Way::Passive(listener);
        Ok(port)
    }

    fn work(&mut self, task: Task) -> Result<Outcome, Fault> {
        if let Task::Size { path, parts } = task {
            let (bytes, is_part) = files::size(&self.root, &path, parts)?;
            self.sized = is_part.then_some((path, bytes));
            return Ok(Outcome::Bytes(bytes));
        }
        let Task::Hash(path, digest, part) = task else { return files::work(&self.root, task) };
        let file = self.root.open_file(&path, false).map_err(|error| fault_of(&error))?;
        let is_kept = digest == Digest::Blake3 && part == Part { from: 0, to: None };
        let known = is_kept.then_some(&self.door.known);
        if let Some((digest, bytes)) = known.and_then(|known| known.tell(&file)) {
            return Ok(Outcome::Digest(digest, bytes));
        }
        let begun = known.and_then(|known| known.begin(&file));
        let Session { line, machine, clock, .. } = self;
        let heard = || line.pull(machine, clock.now_ns()) && !machine.is_aborted();
        let outcome = digests::of_file(&file, digest, part, heard)?;
        if let (Some(known), Some(begun), Outcome::Digest(hex, bytes)) = (known, begun, &outcome) {
            known.end(begun, *bytes, hex.clone());
        }
        Ok(outcome)
    }
}
