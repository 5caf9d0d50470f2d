//! One client of a server: what it says, in the order in which it is answered, and what is done for it.
//!
//! For: the thread that has the client's control connection (`node::ftp`).
//! In and out: bytes of the connection, the time, and what came of each action, by `on_*`; actions by `next_action`, one after another.
//! Invariants: each line has one last reply, in the order of the lines, whatever ABOR stops; before login nothing is done but to log in; in clear nobody logs in
//! who may not; a data connection goes to the client alone, and by TLS where the control connection does; no path has `..` or a hidden name; what waits is
//! bounded (`line`), and so is what is answered: a line's reply before the next line.
//! Absent on purpose: sockets, TLS, passwords, files, a clock: facts of all of them come in.
//!
//! ```text
//! Idle ──line──► Idle (replied) │ Securing │ AskingClear │ LoggingIn ─► Pausing │ Listening │ Working │ Preparing ─► Connecting ─► Moving ──► Idle
//!                                                                              QUIT, 421, the connection's end, from anywhere ──► Closed
//! Idle ──LHDATA──► Upgraded ──the session inside is over──► Idle │ Closed
//! ```
//!
//! *ABOR.* It stops what moves as soon as it is heard, and every transfer said before it that has not begun: each of them has its 426, the commands between
//! have their replies, and ABOR has its 226 when its turn comes (RFC 959 section 4.1.3: replies are in the order of commands).

pub mod fault; // what can go wrong
mod login; // who it is, and TLS
mod upgrade; // another session inside the same TLS
mod names; // what is done with names
mod settings; // what is kept for the next command
mod transfer; // files and listings over data connections

#[cfg(any(test, fuzzing))]
pub mod played; // sessions of anything at all, and what must hold in them
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::command::{Command, Digest, NewFacts, Part, Verb};
use super::facts::Wanted;
use super::lhdata::{GREETING, Offered};
use super::line::{Line, Lines};
use super::reply::Reply;
use transfer::Moving;
pub use transfer::{Blocks, Connect, Over, Prepared, TELL_TIME_NS};

const SECOND_NS: u64 = 1_000_000_000;
/// So long to say AUTH, where TLS is demanded, and so long for each handshake.
pub const AUTH_TIME_NS: u64 = 10 * SECOND_NS;
/// So long to log in, from the connection on.
pub const LOGIN_TIME_NS: u64 = 60 * SECOND_NS;
/// So long may nothing be said after that.
pub const IDLE_TIME_NS: u64 = 300 * SECOND_NS;
/// Wrong passwords for a connection.
pub const TRIES_MAX: u32 = 3;

/// What a client meets.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Where the client is.
    pub peer: IpAddr,
    /// And what it reached.
    pub local: IpAddr,
    /// What PASV says instead.
    pub public: Option<Ipv4Addr>,
    /// Its network may speak in clear.
    pub may_clear: bool,
    /// Anybody may read.
    pub anonymous: bool,
    /// TLS comes before the greeting.
    pub implicit: bool,
    /// Names that no client sees.
    pub hidden: fn(&[u8]) -> bool,
    /// The session of docs/protocol.md can be gone on with; `None`: not here.
    pub lhdata: Option<Offered>,
}

/// What came of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secured {
    /// No TLS.
    No,
    /// TLS.
    Yes,
    /// TLS whose exporter names this handshake and no other (RFC 8446 section 7.5).
    Bound,
}

/// What a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rights {
    /// Read files and list folders.
    pub read: bool,
    /// Change anything.
    pub write: bool,
}

/// What is to be done, in this order; what came of it comes in by the `on_*` that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send this.
    Say(Vec<u8>),
    /// Make the server's half of a TLS handshake, within `deadline_ns`: `on_secured`.
    Secure,
    /// May this user speak in clear, although its network may not? `on_clear`.
    AskClear(Vec<u8>),
    /// Who has this name and password? `on_login`.
    LogIn {
        /// The name.
        name: Vec<u8>,
        /// The password.
        password: Vec<u8>,
    },
    /// An anonymous one is in: forget who was.
    LogInAnonymous,
    /// Bind a port for one data connection of the client, instead of any before: `on_listening`.
    Listen,
    /// Close that port.
    Unlisten,
    /// Do this with files: `on_done`.
    Work(Task),
    /// Open what is to be moved: `on_prepared`, which says what next.
    Prepare(Transfer),
    /// Give the connection to the session of docs/protocol.md, which begins with the next byte: `on_returned`.
    Upgrade,
    /// End the connection. Nothing comes after it.
    Close,
}

/// Something with files, which is done at once; `is_aborted` is to be asked where it is long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Is this a folder that can be opened?
    Enter(Vec<u8>),
    /// Its facts.
    Facts(Vec<u8>),
    /// The bytes of a file; `parts`: or of what stands of an upload that was cut.
    Size {
        /// The name.
        path: Vec<u8>,
        /// See above.
        parts: bool,
    },
    /// Bytes that are free in this folder.
    Space(Vec<u8>),
    /// Make a folder.
    MakeFolder(Vec<u8>),
    /// Remove an empty one.
    RemoveFolder(Vec<u8>),
    /// Remove a file.
    RemoveFile(Vec<u8>),
    /// Give another name.
    Rename {
        /// The old one.
        from: Vec<u8>,
        /// The new one.
        to: Vec<u8>,
    },
    /// Set facts.
    Set(Vec<u8>, NewFacts),
    /// The digest of a part of a file.
    Hash(Vec<u8>, Digest, Part),
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// Facts of a name.
    Facts(super::facts::Facts),
    /// Bytes of a file, or free ones.
    Bytes(u64),
    /// A digest, in hexadecimal, and the end of what it is of.
    Digest(alloc::string::String, u64),
}

/// What goes over a data connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// In which direction, and what.
    pub kind: TransferKind,
    /// The name; of STOU the folder, in which the server chooses one.
    pub path: Vec<u8>,
    /// Which bytes of a file: REST, RANG. Of an upload `from` alone; 0: from the start.
    pub part: Part,
    /// How long the upload is, by ALLO.
    pub announced: Option<u64>,
    /// ESTO: where in the file that stands the upload's first byte goes.
    pub into: Option<u64>,
    /// It goes by MODE E.
    pub is_blocks: bool,
}

/// What is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferKind {
    /// A file, to the client.
    Retrieve,
    /// A file, from it.
    Store,
    /// The same behind what stands there.
    Append,
    /// The same under a name that nothing has.
    StoreUnique,
    /// A folder, or one name. The last component may be a pattern, if nothing has it for a name.
    List(Form),
}

/// How a listing is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As `ls -l`.
    Long,
    /// Names.
    Names,
    /// Facts: those that the client wants.
    Facts(Wanted),
}

/// Where the next data connection comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Way {
    /// Nothing was said of it.
    #[default]
    None,
    /// The client connects to the port that was bound.
    Passive,
    /// We connect, to the client's own address.
    Active(SocketAddr),
    /// Connections of an earlier transfer by MODE E, in the same direction; false: to the client.
    Kept(bool),
}

/// What came of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogIn {
    /// It is that user, who may do this.
    In(Rights),
    /// It is not, and is to hear so after this pause.
    Wrong {
        /// Nanoseconds.
        pause_ns: u64,
    },
    /// Its network tried too often, and is not heard for so long.
    Shut {
        /// Seconds.
        seconds: u64,
    },
}

/// Why no port was bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPort {
    /// All of the range are taken.
    AllTaken,
    /// In the system's words.
    Other(alloc::string::String),
}

/// What is being done, and is to be told of.
#[derive(Debug, PartialEq, Eq)]
enum Doing {
    /// From: all. To: all.
    Idle,
    /// From: Idle. To: Idle, Closed.
    Securing,
    /// From: Idle. To: Idle.
    AskingClear(Vec<u8>),
    /// From: Idle. To: Idle, Pausing, Closed.
    LoggingIn,
    /// From: LoggingIn. To: Idle, Closed.
    Pausing(u64),
    /// From: Idle. To: Idle.
    Listening(Verb),
    /// From: Idle. To: Idle.
    Working(names::Asked),
    /// From: Idle. To: Idle, Connecting.
    Preparing(Transfer),
    /// From: Preparing. To: Idle, Moving.
    Connecting(Moving),
    /// From: Connecting. To: Idle.
    Moving(Moving),
    /// From: Idle. To: Idle, Closed.
    Upgraded,
    /// From: all. To: none.
    Closed,
}

/// A client's session.
#[derive(Debug)]
pub struct Session {
    terms: Terms,
    lines: Lines,
    out: VecDeque<Action>,
    doing: Doing,
    now_ns: u64,
    began_ns: u64,
    /// When a line came last, or something ended.
    heard_ns: u64,
    is_secure: bool,
    /// What both ends export of TLS names this handshake and no other.
    is_bound: bool,
    is_private: bool,
    name: Option<Vec<u8>>,
    rights: Option<Rights>,
    tries: u32,
    cwd: Vec<u8>,
    rename_from: Option<Vec<u8>>,
    way: Way,
    epsv_only: bool,
    part: Part,
    announced: Option<u64>,
    digest: Digest,
    wanted: Wanted,
    /// A transfer was stopped by an ABOR whose turn has not come.
    has_stopped: bool,
    /// MODE E.
    is_blocks: bool,
    /// Connections that it sends over.
    parallel: u16,
    /// SBUF.
    buffer_bytes: u64,
    /// What the other end has, by REST in MODE E.
    have: Vec<(u64, u64)>,
    /// The transfer goes over connections of an earlier one.
    is_reused: bool,
    /// When the client heard of the upload's progress.
    told_ns: u64,
}

impl Session {
    /// A client that was just accepted. `now_ns`: of a clock that only goes forward.
    #[must_use]
    pub fn new(terms: Terms, now_ns: u64) -> Session {
        let mut session = Session {
            lines: Lines::default(),
            out: VecDeque::new(),
            doing: Doing::Idle,
            now_ns,
            began_ns: now_ns,
            heard_ns: now_ns,
            is_secure: false,
            is_bound: false,
            is_private: false,
            name: None,
            rights: None,
            tries: 0,
            cwd: Vec::new(),
            rename_from: None,
            way: Way::None,
            epsv_only: false,
            part: Part::default(),
            announced: None,
            digest: Digest::Sha256,
            wanted: Wanted::ALL,
            has_stopped: false,
            is_blocks: false,
            parallel: 1,
            buffer_bytes: 0,
            have: Vec::new(),
            is_reused: false,
            told_ns: now_ns,
            terms,
        };
        if session.terms.implicit {
            session.act(Action::Secure);
            session.doing = Doing::Securing;
        } else {
            session.greet();
        }
        session
    }

    fn greet(&mut self) {
        self.say(&Reply::new(220, format!("{GREETING}: AUTH TLS, then log in.")));
    }

    /// Is there room for what the client says? If not, nothing more is read of it until lines had their turn.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.lines.has_room()
    }

    /// Bytes came, 4096 at most: `has_room` was asked before.
    pub fn on_bytes(&mut self, now_ns: u64, bytes: &[u8]) {
        self.now_ns = now_ns;
        if !matches!(self.doing, Doing::Closed | Doing::Securing | Doing::Upgraded) {
            self.lines.on_bytes(bytes);
        }
    }

    /// The connection ended. What was said before it ended is not done any more, but a transfer ends as it does.
    pub fn on_closed(&mut self) {
        self.lines.clear();
        self.out.clear();
        self.doing = Doing::Closed;
        self.act(Action::Close);
    }

    /// The time, now that `deadline_ns` is over, or at any other.
    pub fn on_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        match self.doing {
            Doing::Pausing(until) if now_ns >= until => self.refuse_login(),
            Doing::Securing if now_ns >= self.deadline_ns() => self.on_closed(),
            _ => {}
        }
    }

    /// What the client wants of the buffers of data connections, each way, bytes; 0: what the kernel thinks right.
    #[must_use]
    pub const fn buffer_bytes(&self) -> u64 {
        self.buffer_bytes
    }

    /// When `on_time` has something to do, if nothing else comes.
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        match self.doing {
            Doing::Idle if self.rights.is_some() => self.heard_ns.saturating_add(IDLE_TIME_NS),
            Doing::Idle if self.is_secure || self.terms.may_clear => self.began_ns.saturating_add(LOGIN_TIME_NS),
            Doing::Idle => self.began_ns.saturating_add(AUTH_TIME_NS),
            Doing::Securing => self.heard_ns.saturating_add(AUTH_TIME_NS),
            Doing::Pausing(until) => until,
            _ => u64::MAX,
        }
    }

    /// Is the client logged in?
    #[must_use]
    pub const fn is_logged_in(&self) -> bool {
        self.rights.is_some()
    }

    /// What who is logged in may do.
    #[must_use]
    pub fn rights(&self) -> Rights {
        self.rights.unwrap_or_default()
    }

    /// Has an ABOR come for what is being done?
    #[must_use]
    pub const fn is_aborted(&self) -> bool {
        self.lines.has_abort()
    }

    /// Bytes held of what the client said, and of what it is answered.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let out = self.out.iter().map(|action| if let Action::Say(bytes) = action { bytes.len() } else { 0 });
        let names = self.name.iter().chain(&self.rename_from).map(Vec::len).sum::<usize>();
        let have = self.have.len() * size_of::<(u64, u64)>();
        self.lines.held_bytes() + out.sum::<usize>() + names + self.cwd.len() + have
    }

    /// Does `next_action` have something?
    #[must_use]
    pub fn has_something(&self) -> bool {
        !self.out.is_empty()
            || self.doing == Doing::Idle && (self.lines.has_line() || self.now_ns >= self.deadline_ns())
    }

    /// Has the client said more than is being done? Who sends commands ahead does not wait for replies.
    #[must_use]
    pub fn has_line(&self) -> bool {
        self.lines.has_line()
    }

    /// What is to be done next. `None`: a fact is waited for.
    pub fn next_action(&mut self) -> Option<Action> {
        loop {
            if let Some(action) = self.out.pop_front() {
                return Some(action);
            }
            if self.doing != Doing::Idle {
                return None;
            }
            // Lines that wait already are no reason to stay: who says nothing but NOOP would never have to log in.
            if self.now_ns >= self.deadline_ns() {
                self.close(&Reply::new(421, "Nothing was said for too long."));
                continue;
            }
            match self.lines.next_line()? {
                Line::Text(line) => self.obey(&line),
                Line::TooLong => self.say(&Reply::new(500, "A line has at most 4096 bytes.")),
                Line::BareLf => self.say(&Reply::new(500, "A line ends with CR LF here.")),
            }
            self.heard_ns = self.now_ns;
        }
    }

    fn act(&mut self, action: Action) {
        self.out.push_back(action);
    }

    fn say(&mut self, reply: &Reply) {
        self.act(Action::Say(reply.encode()));
    }

    /// The last reply to what was being done.
    fn end(&mut self, reply: &Reply) {
        self.say(reply);
        self.doing = Doing::Idle;
        self.heard_ns = self.now_ns;
    }

    /// The last reply of all.
    fn close(&mut self, reply: &Reply) {
        self.say(reply);
        self.act(Action::Close);
        self.lines.clear();
        self.doing = Doing::Closed;
    }

    fn forget_way(&mut self) {
        if matches!(core::mem::take(&mut self.way), Way::Passive | Way::Kept(_)) {
            self.act(Action::Unlisten);
        }
    }

    /// Answers a line, or begins to.
    fn obey(&mut self, line: &[u8]) {
        let (verb, argument) = Verb::split(line);
        let refused = match verb {
            None => Err(Reply::new(500, "No such command.")),
            Some(verb) => self.obey_verb(verb, argument),
        };
        if let Err(refused) = refused {
            self.say(&refused);
        }
    }

    fn obey_verb(&mut self, verb: Verb, argument: &[u8]) -> Result<(), Reply> {
        use Verb as V;
        if verb.needs_login() && self.rights.is_none() {
            return Err(Reply::new(530, "Log in first: USER, PASS."));
        }
        // RNTO follows at once (RFC 959 section 4.1.3), and nobody else's login comes between; REST holds for one transfer (RFC 3659 section 5.3).
        let rename_from = self.rename_from.take();
        let (part, have) = (self.part, core::mem::take(&mut self.have));
        if keeps_part(verb) {
            self.have = have.clone();
        } else {
            self.part = Part::default();
        }
        match Command::parse(verb, argument)? {
            Command::Named(V::RenameTo, to) => self.rename(rename_from, &to),
            Command::Named(verb @ (V::Retrieve | V::Store | V::Append | V::List | V::Names | V::ListFacts), name) => {
                self.transfer(verb, &name, (part, None), have)
            }
            Command::PartOf(part, name) => self.transfer(V::Retrieve, &name, (part, None), have),
            Command::Into(at, name) => self.transfer(V::Store, &name, (part, Some(at)), have),
            Command::Plain(V::StoreUnique) => self.transfer(V::StoreUnique, b"", (part, None), have),
            Command::Named(verb, name) => self.on_name(verb, &name),
            Command::Set(verb, facts, name) => self.set(verb, facts, &name),
            // HASH is of what RANG or REST chose (draft-ietf-ftpext2-hash section 3.1); those of old say it themselves.
            Command::Hash(None, _, name) => self.hash(None, part, &name),
            Command::Hash(digest, part, name) => self.hash(digest, part, &name),
            Command::User(name) => self.user(name),
            Command::Pass(password) => self.pass(password),
            Command::Plain(V::Auth | V::ProtectionSize | V::ClearControl) | Command::ProtectPrivate => {
                self.protect(verb)
            }
            Command::Upgrade(spoken) => self.upgrade(&spoken),
            command => self.settle(verb, command),
        }
    }
}

/// Is this said between REST and the transfer that it is for?
const fn keeps_part(verb: Verb) -> bool {
    use Verb as V;
    matches!(
        verb,
        V::Restart
            | V::Range
            | V::Passive
            | V::Extended
            | V::StripedPassive
            | V::Port
            | V::ExtendedPort
            | V::StripedPort
            | V::Type
            | V::Allocate
            | V::Options
    )
}
