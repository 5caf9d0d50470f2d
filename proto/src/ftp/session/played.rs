//! A session that is played from bytes: anything a client may say, answered by anything that may come of it.
//!
//! For: the test of mutated sessions and the fuzz target `ftp`.
//! In and out: one byte of terms, eight that choose what comes of actions, then what the client says → what was played; a rule that did not hold is a panic.
//! Invariants checked: each line has one last reply with a code of FTP, in the order of lines; nothing with files or ports before login; nobody logs in in clear
//! who may not; no path leads out of the root or to a hidden name; no data connection to a third host or a service, none in clear beside TLS; memory is bounded;
//! nothing comes after the end; a session that says nothing ends.
//! Absent on purpose: real files; their names are anything.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use super::fault::{End, Fault};
use super::{Action, LogIn, NoPort, Outcome, Over, Prepared, Rights, Secured, Session, Task, Terms, TransferKind, Way};
use crate::ftp::blocks::CONNECTIONS_MAX;
use crate::ftp::command::Verb;
use crate::ftp::facts::{Facts, Kind};
use crate::ftp::lhdata::{Offered, Transport};
use crate::ftp::line::{LINE_BYTES_MAX, Line, Lines, WAITING_BYTES_MAX};
use crate::ftp::reply::code_of;

/// What a session holds at most: lines that wait and a read more, a line being answered, its reply with each byte doubled, and three names.
pub const HELD_BYTES_MAX: usize = WAITING_BYTES_MAX + 4096 + 3 * LINE_BYTES_MAX + 4 * LINE_BYTES_MAX + 1024;
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
const CODES: [u16; 40] = [
    111, 112, 125, 150, 200, 211, 212, 213, 214, 215, 220, 221, 226, 227, 229, 230, 234, 250, 257, 331, 350, 421, 425,
    426, 450, 451, 452, 500, 501, 502, 503, 504, 521, 522, 530, 533, 534, 536, 550, 554,
];
const CODES_OF_NAMES: [u16; 2] = [552, 553];

/// What was seen.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Played {
    /// Last replies.
    pub replies: u64,
    /// Of them 4yz and 5yz.
    pub refused: u64,
    /// Logins that held.
    pub logins: u64,
    /// Connections given to the session of docs/protocol.md.
    pub upgrades: u64,
    /// Transfers that began.
    pub transfers: u64,
    /// And of them those that ABOR ended.
    pub aborted: u64,
    /// Most bytes held.
    pub held_bytes_max: usize,
}

/// What is waited for.
#[derive(Debug)]
enum Waiting {
    Nothing,
    Secured,
    Clear,
    LogIn,
    Port,
    Task(Task),
    Prepared(TransferKind),
    Connected,
    Over(TransferKind),
    Upgraded,
}

struct Player {
    session: Session,
    seed: u64,
    now_ns: u64,
    /// The lines that were said and have no reply yet.
    unanswered: Lines,
    waiting: Waiting,
    kind: TransferKind,
    /// The transfer goes by MODE E.
    is_blocks: bool,
    may_clear: bool,
    /// Of the user that was named last.
    let_clear: bool,
    is_secure: bool,
    is_bound: bool,
    is_closed: bool,
    is_greeted: bool,
    rights: Rights,
    seen: Played,
}

fn hidden(name: &[u8]) -> bool {
    name == b".hidden"
}

/// Plays one.
#[must_use]
pub fn play(input: &[u8]) -> Played {
    let Some((&[flags, ref seed @ ..], said)) = input.split_first_chunk::<9>() else { return Played::default() };
    let bit = |at: u8| flags >> at & 1 == 1;
    let terms = Terms {
        peer: PEER,
        local: if bit(0) { IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped()) } else { Ipv4Addr::LOCALHOST.into() },
        public: bit(1).then_some(Ipv4Addr::new(192, 0, 2, 1)),
        may_clear: !bit(2),
        anonymous: bit(3),
        implicit: bit(4),
        hidden,
        lhdata: (!bit(5)).then(|| Offered { port: 5740, transports: [Transport::Tcp, Transport::Udp].into() }),
    };
    let seed = seed.iter().fold(0, |all: u64, &byte| all << 8 | u64::from(byte));
    let mut player = Player {
        may_clear: terms.may_clear,
        session: Session::new(terms, 0),
        seed,
        now_ns: 0,
        unanswered: Lines::default(),
        waiting: Waiting::Nothing,
        kind: TransferKind::Store,
        is_blocks: false,
        let_clear: false,
        is_secure: false,
        is_bound: false,
        is_closed: false,
        is_greeted: false,
        rights: Rights::default(),
        seen: Played::default(),
    };
    player.run(said);
    player.seen
}

impl Player {
    /// A number below `below`, by Marsaglia's xorshift.
    fn random(&mut self, below: u64) -> u64 {
        self.seed |= 1;
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 11) % below
    }

    fn run(&mut self, mut said: &[u8]) {
        let (mut quiet, mut replies) = (0, 0);
        while !self.is_closed {
            self.act();
            if core::mem::replace(&mut replies, self.seen.replies) != self.seen.replies {
                quiet = 0;
            }
            assert!(self.session.held_bytes() <= HELD_BYTES_MAX, "memory is bounded");
            self.seen.held_bytes_max = self.seen.held_bytes_max.max(self.session.held_bytes());
            // What comes of an action comes before or behind more bytes.
            let is_idle = matches!(self.waiting, Waiting::Nothing);
            if !is_idle && (said.is_empty() || !self.session.has_room() || self.random(3) == 0) {
                self.answer();
            } else if !said.is_empty() && self.session.has_room() {
                let count = (1 + self.random(48) as usize).min(said.len());
                let (now, later) = said.split_at(count);
                said = later;
                self.now_ns += 1000;
                if !matches!(self.waiting, Waiting::Secured | Waiting::Upgraded) {
                    self.unanswered.on_bytes(now);
                }
                self.session.on_bytes(self.now_ns, now);
            } else {
                // Nothing is said any more: in the end it closes.
                quiet += 1;
                assert!(quiet < 8, "a session that says nothing ends");
                self.now_ns = self.now_ns.max(self.session.deadline_ns());
                self.session.on_time(self.now_ns);
            }
        }
        self.session.on_bytes(self.now_ns, b"NOOP\r\n");
        self.session.on_time(u64::MAX);
        assert!(self.session.next_action().is_none(), "nothing comes after the end");
    }

    /// Takes actions as long as there are any.
    fn act(&mut self) {
        loop {
            let has = self.session.has_something();
            let next = self.session.next_action();
            assert_eq!(next.is_some(), has, "who waits knows for what");
            let Some(action) = next else { return };
            assert!(!self.is_closed);
            let is_in = self.session.is_logged_in();
            match action {
                Action::Say(bytes) => self.on_reply(&bytes),
                Action::Secure => {
                    self.unanswered.clear();
                    self.wait(Waiting::Secured);
                }
                Action::AskClear(name) => {
                    assert!(!self.is_secure && !self.may_clear && !name.is_empty());
                    self.wait(Waiting::Clear);
                }
                Action::LogIn { name, .. } => {
                    let may = self.is_secure || self.may_clear || self.let_clear;
                    assert!(may && !name.is_empty(), "nobody logs in in clear who may not");
                    self.wait(Waiting::LogIn);
                }
                Action::LogInAnonymous => {
                    assert!(self.is_secure || self.may_clear);
                    self.rights = Rights { read: true, write: false };
                }
                Action::Listen => {
                    assert!(is_in, "no port before login");
                    self.wait(Waiting::Port);
                }
                Action::Unlisten => {}
                Action::Work(task) => {
                    assert!(is_in, "no file before login");
                    self.check_task(&task);
                    self.wait(Waiting::Task(task));
                }
                Action::Prepare(transfer) => {
                    assert!(is_in, "no transfer before login");
                    check_path(&transfer.path);
                    let is_read = matches!(transfer.kind, TransferKind::Retrieve | TransferKind::List(_));
                    assert!(if is_read { self.rights.read } else { self.rights.write });
                    self.wait(Waiting::Prepared(transfer.kind));
                }
                Action::Upgrade => {
                    assert!(is_in && self.is_bound, "no other session before login, and none that TLS does not name");
                    assert_eq!(self.unanswered.held_bytes(), 0, "nothing was said behind it");
                    self.seen.upgrades += 1;
                    self.wait(Waiting::Upgraded);
                }
                Action::Close => self.is_closed = true,
            }
        }
    }

    fn wait(&mut self, waiting: Waiting) {
        assert!(matches!(self.waiting, Waiting::Nothing), "one action at a time is waited for");
        self.waiting = waiting;
    }

    fn check_task(&self, task: &Task) {
        let (paths, read, write): (&[&Vec<u8>], bool, bool) = match task {
            Task::Enter(path) | Task::Facts(path) | Task::Size { path, .. } | Task::Space(path) => {
                (&[path], false, false)
            }
            Task::MakeFolder(path) => (&[path], false, true),
            Task::RemoveFolder(path) | Task::RemoveFile(path) => (&[path], true, true),
            Task::Rename { from, to } => (&[from, to], true, true),
            Task::Set(path, facts) => (&[path], facts.mode.is_some(), true),
            Task::Hash(path, ..) => (&[path], true, false),
        };
        paths.iter().for_each(|path| check_path(path));
        assert!((!read || self.rights.read) && (!write || self.rights.write), "{task:?}");
    }

    /// One reply; its last line answers the line whose turn it is.
    fn on_reply(&mut self, bytes: &[u8]) {
        let lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
        assert!(lines.iter().all(|line| line.ends_with(b"\r\n")));
        let (code, more) = code_of(lines[0]).expect("a reply has a code");
        assert_eq!(more, lines.len() > 1);
        assert_eq!(lines.iter().filter(|line| code_of(line) == Some((code, false))).count(), 1);
        assert!(CODES.contains(&code) || CODES_OF_NAMES.contains(&code), "{code} is a code of FTP");
        if code < 200 {
            assert!(matches!(self.waiting, Waiting::Over(_)), "150 is of a transfer that begins");
            return;
        }
        assert!(matches!(self.waiting, Waiting::Nothing), "the last reply comes when it is done");
        self.seen.replies += 1;
        self.seen.refused += u64::from(code >= 400);
        if !core::mem::replace(&mut self.is_greeted, true) {
            return assert_eq!(code, 220);
        }
        let Some(line) = self.unanswered.next_line() else { return assert_eq!(code, 421, "nothing was asked") };
        let Line::Text(line) = line else { return assert!(code == 500 || code == 421) };
        let wanted: &[u16] = match Verb::split(&line).0 {
            None => &[500],
            Some(Verb::Noop) => &[200],
            Some(Verb::Quit) => &[221],
            Some(Verb::Abort) => &[226, 530],
            Some(Verb::Where) => &[257, 530],
            Some(Verb::NotDone) => &[502],
            Some(Verb::Auth) => &[234, 503, 504],
            Some(Verb::Passive) => &[227, 425, 501, 530],
            Some(Verb::Pass) => &[230, 503, 530],
            Some(Verb::Upgrade) => &[250, 501, 502, 503, 504, 530, 534],
            _ => return,
        };
        assert!(wanted.contains(&code) || code == 421, "{code} to {}", line.escape_ascii());
    }

    /// Something comes of what is waited for.
    fn answer(&mut self) {
        self.now_ns += 1 + self.random(1 << 20);
        let now = self.now_ns;
        let die = self.random(16);
        match core::mem::replace(&mut self.waiting, Waiting::Nothing) {
            Waiting::Nothing => {}
            Waiting::Secured => {
                self.is_secure = die > 0;
                self.is_bound = die > 2;
                let secured = [Secured::No, Secured::Yes, Secured::Yes][(die as usize).min(2)];
                self.session.on_secured(now, if self.is_bound { Secured::Bound } else { secured });
            }
            Waiting::Clear => {
                self.let_clear = die > 12;
                self.session.on_clear(die > 12);
            }
            Waiting::LogIn => self.answer_login(die),
            Waiting::Port => self.session.on_listening(
                now,
                match die {
                    0 => Err(NoPort::AllTaken),
                    1 => Err(NoPort::Other("no".into())),
                    _ => Ok(50_000),
                },
            ),
            Waiting::Task(task) => {
                let outcome = if die < 4 { Err(self.fault()) } else { Ok(outcome(&task)) };
                self.session.on_done(now, outcome);
            }
            Waiting::Prepared(kind) => {
                let bytes = self.random(1 << 40);
                let prepared = match kind {
                    _ if die < 3 => Err(self.fault()),
                    TransferKind::Retrieve => Ok(Prepared::File { bytes }),
                    TransferKind::List(_) => Ok(Prepared::Listing),
                    _ => Ok(Prepared::Upload { bytes }),
                };
                self.kind = kind;
                if let Some(connect) = self.session.on_prepared(now, prepared) {
                    assert!(self.session.is_logged_in(), "no transfer before login");
                    assert_eq!(connect.private, self.is_secure, "none in clear beside TLS");
                    if let Some(blocks) = &connect.blocks {
                        assert!(!self.is_secure && (1..=CONNECTIONS_MAX).contains(&blocks.connections));
                        let within =
                            |it: &core::ops::Range<u64>| connect.range.start <= it.start && it.end <= connect.range.end;
                        assert!(blocks.ranges.iter().all(within) || connect.range.is_empty());
                        // Who sends connects (GFD.20).
                        let is_upload = !matches!(kind, TransferKind::Retrieve | TransferKind::List(_));
                        assert_eq!(is_upload, matches!(connect.way, Way::Passive | Way::Kept(true)));
                    }
                    assert!(connect.range.start <= connect.range.end || connect.range.end == 0);
                    match connect.way {
                        Way::None => panic!("there is a way"),
                        Way::Passive => {}
                        Way::Kept(_) => assert!(connect.blocks.is_some(), "a stream has its own connection"),
                        Way::Active(to) => assert!(to.ip() == PEER && to.port() >= 1024, "no third host, no service"),
                    }
                    self.is_blocks = connect.blocks.is_some();
                    self.waiting = Waiting::Connected;
                }
            }
            Waiting::Connected if die == 0 => self.session.on_over(now, Err(End::NobodyCame)),
            Waiting::Connected => {
                self.session.on_connected(now);
                self.seen.transfers += 1;
                self.waiting = Waiting::Over(self.kind);
            }
            Waiting::Over(kind) => self.answer_over(kind, die),
            Waiting::Upgraded => self.session.on_returned(now, die > 3),
        }
    }

    fn answer_login(&mut self, die: u64) {
        let now = self.now_ns;
        let rights = Rights { read: die % 4 != 1, write: die % 4 != 2 };
        let login = match die {
            0..12 => LogIn::In(rights),
            12..15 => LogIn::Wrong { pause_ns: self.random(2) * 1_000_000_000 },
            _ => LogIn::Shut { seconds: 60 },
        };
        if matches!(login, LogIn::In(_)) {
            self.rights = rights;
            self.seen.logins += 1;
        }
        self.session.on_login(now, login);
    }

    fn answer_over(&mut self, kind: TransferKind, die: u64) {
        if self.random(4) == 0 {
            self.now_ns += self.random(10_000_000_000);
            self.session.on_progress(self.now_ns, 0, (die, die / 2), die == 0);
            self.waiting = Waiting::Over(kind);
            return;
        }
        let over = match kind {
            _ if self.session.is_aborted() => Err(End::Aborted),
            _ if die < 4 => Err(match die {
                0 => End::Truncated,
                1 => End::Network("x\r\n226 y".into()),
                2 => End::NotResumed,
                _ => End::File(self.fault()),
            }),
            TransferKind::Retrieve | TransferKind::List(_) => Ok(Over::Sent),
            TransferKind::StoreUnique => {
                Ok(Over::Stored { bytes: die, digest: "BLAKE3 0".into(), name: Some(b"a\r\n".to_vec()) })
            }
            _ => Ok(Over::Stored { bytes: die, digest: "BLAKE3 0".into(), name: None }),
        };
        if over.is_ok() && self.is_blocks && die.is_multiple_of(2) {
            self.session.on_kept();
        }
        self.seen.aborted += u64::from(over == Err(End::Aborted));
        self.session.on_over(self.now_ns, over);
    }

    fn fault(&mut self) -> Fault {
        match self.random(6) {
            0 => Fault::NotFound,
            1 => Fault::Full,
            2 => Fault::TooLarge,
            3 => Fault::BadName,
            4 => Fault::Busy,
            _ => Fault::Other("x\r\n200 y".into()),
        }
    }
}

fn outcome(task: &Task) -> Outcome {
    match task {
        Task::Facts(_) => Outcome::Facts(Facts {
            kind: Kind::File,
            bytes: 1,
            mtime_s: i64::MIN,
            mode: 0o644,
            links: 1,
            unique: (1, 2),
        }),
        Task::Size { .. } | Task::Space(_) => Outcome::Bytes(1 << 40),
        Task::Hash(..) => Outcome::Digest("00".into(), 1),
        _ => Outcome::Done,
    }
}

fn check_path(path: &[u8]) {
    let is_right = |part: &[u8]| {
        !part.is_empty()
            && part != b"."
            && part != b".."
            && !hidden(part)
            && !part.iter().any(|it| b"\r\n\0".contains(it))
    };
    assert!(path.is_empty() || path.split(|&byte| byte == b'/').all(is_right), "{}", path.escape_ascii());
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use std::println;

    /// What clients say, right and wrong.
    const SAID: [&str; 55] = [
        "USER ada\r\nPASS x\r\n",
        "USER anonymous\r\nPASS me@\r\n",
        "USER ada\r\n",
        "PASS x\r\n",
        "AUTH TLS\r\n",
        "LHDATA 14 udp,tcp\r\n",
        "LHDATA 12 quic\r\n",
        "AUTH SSL\r\n",
        "PBSZ 0\r\nPROT P\r\n",
        "PROT C\r\n",
        "EPSV\r\nRETR a\r\n",
        "PASV\r\nSTOR b\r\n",
        "PORT 10,0,0,9,8,0\r\nLIST\r\n",
        "EPRT |1|10.0.0.9|2048|\r\nMLSD d\r\n",
        "EPRT |1|10.0.0.8|2048|\r\n",
        "EPSV ALL\r\n",
        "EPSV\r\nNLST *.c\r\n",
        "EPSV\r\nSTOU\r\n",
        "EPSV\r\nAPPE a\r\nABOR\r\n",
        "EPSV\r\nRETR a\r\n\u{7f}ABOR\r\n",
        "ABOR\r\n",
        "REST 5\r\n",
        "RANG 5 9\r\n",
        "ALLO 100\r\n",
        "RNFR a\r\nRNTO b\r\n",
        "RNFR ../../a\r\n",
        "CWD ../..//d\r\n",
        "CDUP\r\nPWD\r\n",
        "MKD a/../../b \"q\"\r\nRMD b\r\n",
        "DELE .hidden\r\n",
        "SIZE a\r\nMDTM a\r\nMLST a\r\n",
        "MFMT 20200101000000 a\r\n",
        "MFF modify=20200101000000;UNIX.mode=644; a\r\n",
        "SITE CHMOD 644 a\r\n",
        "SITE UTIME 202001010000 a\r\n",
        "HASH a\r\n",
        "XCRC \"a\" 1 5\r\n",
        "OPTS MLST type;size;\r\n",
        "OPTS HASH BLAKE3\r\n",
        "FEAT\r\nHELP\r\nSTAT\r\nSYST\r\nNOOP\r\n",
        "AVBL\r\n",
        "MODE Z\r\nSTRU F\r\nTYPE I\r\n",
        "STOR a\nDELE b\r\n",
        "QUIT\r\n",
        "STAT d\r\n",
        "NONSENSE\r\n",
        "MODE E\r\n",
        "MODE E\r\nEPRT |1|10.0.0.9|2048|\r\nRETR a\r\nRETR b\r\nMLSD\r\n",
        "MODE E\r\nPASV\r\nSTOR a\r\nSTOR b\r\n",
        "MODE S\r\n",
        "OPTS RETR Parallelism=4,4,4;\r\nSBUF 100000\r\nDCAU N\r\nDCAU A\r\n",
        "REST 0-100,200-300\r\n",
        "SPAS\r\nESTO A 5 a\r\n",
        "SPOR 10,0,0,9,8,0\r\nERET P 5 9 a\r\n",
        "SPOR 10,0,0,8,8,0\r\n",
    ];

    struct Random(u64);

    impl Random {
        /// Steele and others, SplitMix64.
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut it = self.0;
            it = (it ^ it >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            it = (it ^ it >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            it ^ it >> 31
        }

        fn below(&mut self, below: usize) -> usize {
            (self.next() % below as u64) as usize
        }
    }

    /// One session of words that clients say, some of whose bytes are others.
    fn mutated(random: &mut Random) -> Vec<u8> {
        // Three of four may speak in clear (`played`).
        let clear = if random.below(4) > 0 { !4 } else { !0 };
        let mut said = vec![random.next() as u8 & clear];
        said.extend_from_slice(&random.next().to_le_bytes());
        if random.below(4) > 0 {
            said.extend_from_slice(SAID[0].as_bytes());
        }
        for _ in 0..1 + random.below(16) {
            let from = said.len();
            // One of three moves something.
            let word = if random.below(3) == 0 { 8 + random.below(11) } else { random.below(SAID.len()) };
            said.extend_from_slice(SAID[word].as_bytes());
            match random.below(12) {
                0 => {
                    let at = from + random.below(said.len() - from);
                    said[at] = random.next() as u8;
                }
                1 => said.truncate(from + random.below(said.len() - from)),
                2 => {
                    let at = from + random.below(said.len() - from);
                    let what = [&b"\xff\xf4\xff\xf2"[..], b"\xff", b"\n", b"\0", b"\r\n", b"/../", b"%s", b" "]
                        [random.below(8)];
                    said.splice(at..at, what.iter().copied());
                }
                3 => {
                    let at = from + random.below(said.len() - from);
                    let count = random.below(6000);
                    said.splice(at..at, core::iter::repeat_n(b'x', count));
                }
                4 => {
                    for _ in 0..random.below(100) {
                        said.extend_from_slice(b"NOOP\r\n");
                    }
                }
                _ => {}
            }
        }
        said
    }

    /// `FTP_SESSIONS`: how many, and `FTP_SEED`: from which seed; a session that breaks a rule is named by its seed.
    #[test]
    fn mutated_sessions_break_no_rule() {
        let asked = |name: &str| std::env::var(name).ok().and_then(|it| it.parse::<u64>().ok());
        let (sessions, first) = (asked("FTP_SESSIONS").unwrap_or(100_000), asked("FTP_SEED").unwrap_or(1));
        let mut all = Played::default();
        for seed in first..first + sessions {
            let said = mutated(&mut Random(seed));
            let played = std::panic::catch_unwind(|| play(&said))
                .unwrap_or_else(|_| panic!("seed {seed}: {}", said.escape_ascii()));
            all.replies += played.replies;
            all.refused += played.refused;
            all.logins += played.logins;
            all.upgrades += played.upgrades;
            all.transfers += played.transfers;
            all.aborted += played.aborted;
            all.held_bytes_max = all.held_bytes_max.max(played.held_bytes_max);
        }
        println!("{sessions} sessions: {all:?}");
        assert!(all.held_bytes_max <= HELD_BYTES_MAX);
        // They get everywhere.
        let all_parts = [all.logins / 4, all.transfers / 10, all.aborted, all.refused / 100, all.upgrades * 8];
        assert!(all_parts.iter().all(|&part| part > sessions / 1000), "{all:?}");
    }
}
