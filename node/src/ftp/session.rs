//! One client: commands in, replies out, on a thread of its own.
//!
//! For: everything of RFC 959 and what came after it that clients of today use.
//! In and out: a connection that was accepted; files beneath the root.
//! Invariants: before login nothing is told but how to log in; in clear nothing is let in but from networks that were named; a name is resolved here and
//! looked up beneath the root, through no link; each command has one last reply.
//! Absent on purpose: data connections (`data`, `transfer`), lines (`control`).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::tree::sink::open_ended::{self, From};
use rustls::ServerConfig;
use sys::fs::Kind;

use super::Door;
use super::control::{ControlLine, Line};
use super::data::{self, Way};
use super::files::{self, Form};
use super::tls;
use super::users::{Rights, hex, is_anonymous};

/// So long to say AUTH.
const AUTH_TIME: Duration = Duration::from_secs(10);
/// So long to log in, from the first byte.
const LOGIN_TIME: Duration = Duration::from_secs(60);
/// So long may nothing be said after that.
const IDLE_TIME: Duration = Duration::from_secs(300);
/// Wrong passwords for a connection.
const TRIES_MAX: u32 = 3;
/// After a wrong one it waits so long.
const TRY_PAUSE: Duration = Duration::from_secs(1);
/// What a hash reads at once.
const HASH_BYTES: usize = 1 << 20;

/// The last word to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Three digits.
    pub code: u16,
    /// One line.
    pub text: Vec<u8>,
}

impl Reply {
    /// A code and a line of text.
    pub fn new(code: u16, text: impl Into<String>) -> Reply {
        Reply { code, text: text.into().into_bytes() }
    }
}

/// What an error of the file system is called here.
pub fn of_io(error: &io::Error) -> Reply {
    use io::ErrorKind as K;
    const ELOOP: i32 = 40;
    const EXDEV: i32 = 18;
    let (code, text) = match error.kind() {
        K::NotFound => (550, "There is no such file or folder.".to_owned()),
        K::PermissionDenied => (550, "The server's user may not do that.".to_owned()),
        K::ReadOnlyFilesystem => (550, "The server's file system is read-only.".to_owned()),
        K::StorageFull | K::QuotaExceeded => {
            (452, "The server's disk is full: make room, then send it again.".to_owned())
        }
        K::FileTooLarge => (552, "The server's file system takes no file of that length.".to_owned()),
        K::IsADirectory => (550, "That is a folder.".to_owned()),
        K::NotADirectory => (550, "A part of that path is no folder.".to_owned()),
        K::AlreadyExists => (550, "There is something of that name already.".to_owned()),
        K::DirectoryNotEmpty => (550, "The folder is not empty.".to_owned()),
        K::InvalidFilename => (553, "The server's file system takes no name of that length.".to_owned()),
        _ if matches!(error.raw_os_error(), Some(ELOOP | EXDEV)) => {
            (550, "A link is in the way; none is followed here.".to_owned())
        }
        _ if error.raw_os_error() == Some(22) => (550, "That is no regular file.".to_owned()),
        _ => (451, format!("The server failed: {error}.")),
    };
    Reply::new(code, text)
}

/// A client that is connected, and all that it has said so far.
pub struct Session<'d> {
    pub(super) door: &'d Door,
    pub(super) line: ControlLine,
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    /// TLS of data connections.
    pub(super) config: Option<Arc<ServerConfig>>,
    /// PROT P.
    pub(super) is_private: bool,
    pub(super) way: Way,
    pub(super) rest: u64,
    /// By ALLO.
    pub(super) announced: Option<u64>,
    pub(super) aborted: bool,
    name: Option<String>,
    rights: Option<Rights>,
    tries: u32,
    cwd: Vec<u8>,
    rename_from: Option<Vec<u8>>,
    epsv_only: bool,
    blake3: bool,
    began: Instant,
}

impl std::fmt::Debug for Session<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Session").field("peer", &self.peer).field("name", &self.name).finish_non_exhaustive()
    }
}

type Done = Result<Reply, Reply>;

fn ok(code: u16, text: impl Into<String>) -> Done {
    Ok(Reply::new(code, text))
}

fn no<T>(code: u16, text: impl Into<String>) -> Result<T, Reply> {
    Err(Reply::new(code, text))
}

impl<'d> Session<'d> {
    /// A client that was just accepted.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(door: &'d Door, stream: std::net::TcpStream) -> io::Result<Session<'d>> {
        let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
        Ok(Session {
            door,
            line: ControlLine::new(stream)?,
            peer,
            local,
            config: None,
            is_private: false,
            way: Way::None,
            rest: 0,
            announced: None,
            aborted: false,
            name: None,
            rights: None,
            tries: 0,
            cwd: Vec::new(),
            rename_from: None,
            epsv_only: false,
            blake3: false,
            began: Instant::now(),
        })
    }

    /// Serves until the client goes. `let_in` is called when it has logged in.
    pub fn run(mut self, implicit: bool, mut let_in: impl FnMut()) {
        if implicit && self.secure().is_err() {
            return;
        }
        if self.say(&Reply::new(220, "Longhaul FTP: AUTH TLS, then log in.")).is_err() {
            return;
        }
        loop {
            let is_in = self.rights.is_some();
            let time = match (is_in, self.line.is_secure() || self.may_clear()) {
                (true, _) => IDLE_TIME,
                (false, true) => LOGIN_TIME.saturating_sub(self.began.elapsed()),
                (false, false) => AUTH_TIME.saturating_sub(self.began.elapsed()),
            };
            // Lines that wait already are no reason to stay: who says nothing but NOOP would never have to log in.
            let next = if !is_in && time.is_zero() { Line::Late } else { self.line.next(time) };
            let last = match next {
                Line::Of(line) => self.obey(&line),
                Line::TooLong => self.say(&Reply::new(500, "A line has at most 4096 bytes.")).is_ok(),
                Line::Late => {
                    let _ = self.say(&Reply::new(421, "Nothing was said for too long."));
                    false
                }
                Line::Closed => false,
            };
            if !is_in && self.rights.is_some() {
                let_in();
            }
            if !last {
                break;
            }
        }
        self.line.end();
    }

    /// Says a reply; 0xFF is doubled (RFC 854).
    ///
    /// # Errors
    /// The client is gone.
    pub(super) fn say(&mut self, reply: &Reply) -> io::Result<()> {
        let mut out = format!("{} ", reply.code).into_bytes();
        for &byte in &reply.text {
            match byte {
                b'\r' | b'\n' => out.push(b'?'),
                255 => out.extend_from_slice(&[255, 255]),
                _ => out.push(byte),
            }
        }
        out.extend_from_slice(b"\r\n");
        self.line.say(&out)
    }

    /// Several lines (RFC 959 section 4.2).
    fn say_lines(&mut self, code: u16, first: &str, lines: &[&[u8]], last: &str) -> io::Result<()> {
        let mut out = format!("{code}-{first}\r\n").into_bytes();
        for line in lines {
            out.push(b' ');
            for &byte in *line {
                out.push(byte);
                if byte == 255 {
                    out.push(255);
                }
            }
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(format!("{code} {last}\r\n").as_bytes());
        self.line.say(&out)
    }

    fn may_clear(&self) -> bool {
        self.door.settings.clear.iter().any(|network| network.has(self.peer.ip()))
    }

    fn secure(&mut self) -> Result<(), Reply> {
        let failed = |error: String| Reply::new(431, format!("No TLS: {error}."));
        let (config, data) = tls::terms(&self.door.certificate.key).map_err(|error| failed(error.to_string()))?;
        self.line.secure(&config, AUTH_TIME).map_err(|error| failed(error.to_string()))?;
        self.config = Some(data);
        (self.name, self.rights) = (None, None);
        (self.rename_from, self.announced, self.rest) = (None, None, 0);
        Ok(())
    }

    /// What the one that is logged in may do.
    pub(super) fn rights(&self) -> Rights {
        self.rights.unwrap_or(Rights { read: false, write: false })
    }

    /// Does one command. False: the session is over.
    fn obey(&mut self, line: &[u8]) -> bool {
        let split = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
        let verb = line[..split].to_ascii_uppercase();
        let argument = line.get(split + 1..).unwrap_or_default();
        let said = match &verb[..] {
            b"QUIT" => {
                let _ = self.say(&Reply::new(221, "Good-bye."));
                return false;
            }
            b"AUTH" => self.auth(argument),
            b"FEAT" => self.feat(),
            b"HELP" => self.help(),
            b"MLST" if self.rights().read => self.mlst(argument),
            _ => {
                let reply = self.answer(&verb, argument).unwrap_or_else(|refused| refused);
                let is_over = reply.code == 421;
                if verb != b"RNFR" {
                    // RNTO follows at once (RFC 959 section 4.1.3), and nobody else's login comes between.
                    self.rename_from = None;
                }
                if !matches!(&verb[..], b"REST" | b"PASV" | b"EPSV" | b"PORT" | b"EPRT" | b"TYPE" | b"ALLO") {
                    self.rest = 0;
                }
                let said = self.say(&reply);
                if std::mem::take(&mut self.aborted) {
                    let _ = self.say(&Reply::new(226, "Aborted."));
                }
                if is_over { Err(io::ErrorKind::ConnectionAborted.into()) } else { said }
            }
        };
        said.is_ok()
    }

    fn auth(&mut self, argument: &[u8]) -> io::Result<()> {
        if !matches!(&argument.to_ascii_uppercase()[..], b"TLS" | b"TLS-C" | b"SSL") {
            return self.say(&Reply::new(504, "AUTH TLS is what is spoken here; GSI is not."));
        }
        if self.line.is_secure() {
            return self.say(&Reply::new(503, "TLS is on."));
        }
        self.say(&Reply::new(234, "TLS now."))?;
        self.secure().map_err(|_| io::Error::from(io::ErrorKind::ConnectionAborted))
    }

    fn feat(&mut self) -> io::Result<()> {
        let hash = if self.blake3 { &b"HASH SHA-256;BLAKE3*"[..] } else { b"HASH SHA-256*;BLAKE3" };
        let lines: [&[u8]; 16] = [
            b"AUTH TLS",
            b"PBSZ",
            b"PROT",
            b"EPRT",
            b"EPSV",
            b"UTF8",
            b"SIZE",
            b"MDTM",
            b"MFMT",
            b"REST STREAM",
            b"MLST type*;size*;modify*;perm*;unix.mode*;unique*;",
            b"TVFS",
            hash,
            b"AVBL",
            b"CLNT",
            b"HOST",
        ];
        self.say_lines(211, "Features:", &lines, "End")
    }

    fn help(&mut self) -> io::Result<()> {
        let lines: [&[u8]; 4] = [
            b"USER PASS QUIT AUTH PBSZ PROT CCC HOST CLNT FEAT OPTS LANG SYST STAT NOOP HELP SITE",
            b"TYPE MODE STRU ALLO REST PASV EPSV PORT EPRT ABOR",
            b"RETR STOR APPE STOU LIST NLST MLSD MLST SIZE MDTM MFMT HASH AVBL",
            b"PWD CWD CDUP MKD RMD DELE RNFR RNTO SITE CHMOD",
        ];
        self.say_lines(214, "Commands:", &lines, "That is all.")
    }

    fn answer(&mut self, verb: &[u8], argument: &[u8]) -> Done {
        match verb {
            b"USER" => self.user(argument),
            b"PASS" => self.pass(argument),
            b"NOOP" => ok(200, "Yes."),
            b"CLNT" | b"LANG" => ok(200, "Noted."),
            b"HOST" => ok(220, "There is one host here."),
            b"PBSZ" if self.line.is_secure() => ok(200, "PBSZ=0"),
            b"PROT" if self.line.is_secure() => match argument {
                b"P" | b"p" => {
                    self.is_private = true;
                    ok(200, "Data goes by TLS.")
                }
                b"C" | b"c" => no(534, "Data goes by TLS here: PROT P."),
                _ => no(536, "PROT P is what there is."),
            },
            b"PBSZ" | b"PROT" => no(503, "AUTH TLS first."),
            b"CCC" => no(533, "The control connection stays covered."),
            b"OPTS" => self.opts(argument),
            b"SYST" => ok(215, "UNIX Type: L8"),
            b"ACCT" | b"SMNT" | b"REIN" | b"COMB" | b"XCRC" | b"XMD5" | b"SPAS" | b"SPOR" | b"ERET" | b"ESTO" => {
                no(502, "Not done here.")
            }
            _ if self.rights.is_none() && is_known(verb) => no(530, "Log in first: USER, PASS."),
            b"PWD" | b"XPWD" => {
                Ok(Reply { code: 257, text: [&files::quoted(&self.cwd)[..], b" is where you are."].concat() })
            }
            b"TYPE" => match argument.first().map(u8::to_ascii_uppercase) {
                Some(b'A' | b'I' | b'L') => ok(200, "Bytes go as they are."),
                _ => no(504, "TYPE A and I, and both as they are."),
            },
            b"MODE" => {
                if argument.eq_ignore_ascii_case(b"S") {
                    ok(200, "Yes.")
                } else {
                    no(504, "MODE S alone: deflate is slower than the wire here.")
                }
            }
            b"STRU" => {
                if argument.eq_ignore_ascii_case(b"F") {
                    ok(200, "Yes.")
                } else {
                    no(504, "STRU F alone.")
                }
            }
            b"STAT" => ok(211, "A transfer's rate is told by your client; LIST lists."),
            b"ABOR" => ok(226, "Nothing was moving."),
            b"ALLO" => self.allo(argument),
            b"REST" => {
                self.rest = number(argument).ok_or_else(|| Reply::new(501, "REST wants a number of bytes."))?;
                ok(350, "From there, with the next command.")
            }
            b"PASV" | b"EPSV" | b"PORT" | b"EPRT" => self.on_way(verb, argument),
            _ => self.on_names(verb, argument),
        }
    }

    fn user(&mut self, argument: &[u8]) -> Done {
        if !self.line.is_secure() && !self.may_clear() {
            return no(530, "AUTH TLS first: FTP in clear is refused here (--clear NET lets a network in).");
        }
        let Ok(name) = std::str::from_utf8(argument) else { return no(530, "That is no name of a user here.") };
        self.rights = None;
        self.name = Some(name.to_owned());
        if is_anonymous(name) && self.door.settings.anonymous {
            return ok(331, "Any password lets you read.");
        }
        ok(331, "The password?")
    }

    fn pass(&mut self, argument: &[u8]) -> Done {
        let Some(name) = self.name.take() else { return no(503, "USER first.") };
        if is_anonymous(&name) && self.door.settings.anonymous {
            self.rights = Some(Rights { read: true, write: false });
            return ok(230, "You may read.");
        }
        if let Some(rights) = self.door.users.login(&name, argument) {
            self.rights = Some(rights);
            return ok(230, "You are in.");
        }
        std::thread::sleep(TRY_PAUSE);
        self.tries += 1;
        if self.tries >= TRIES_MAX {
            no(421, "Wrong name or password, three times.")
        } else {
            no(530, "Wrong name or password.")
        }
    }

    fn opts(&mut self, argument: &[u8]) -> Done {
        let upper = argument.to_ascii_uppercase();
        match &upper[..] {
            b"UTF8 ON" | b"UTF8" => ok(200, "Names are bytes; most are UTF-8."),
            b"HASH" => ok(200, if self.blake3 { "BLAKE3" } else { "SHA-256" }),
            b"HASH SHA-256" | b"HASH BLAKE3" => {
                self.blake3 = upper.ends_with(b"BLAKE3");
                ok(200, if self.blake3 { "BLAKE3" } else { "SHA-256" })
            }
            _ if upper.starts_with(b"MLST") => ok(200, "MLST OPTS type;size;modify;perm;unix.mode;unique;"),
            _ => no(501, "No such option."),
        }
    }

    fn allo(&mut self, argument: &[u8]) -> Done {
        let bytes = argument.split(|&byte| byte == b' ').next().and_then(number);
        let bytes = bytes.ok_or_else(|| Reply::new(501, "ALLO wants a number of bytes."))?;
        let space = self.door.root.space().map_err(|error| of_io(&error))?;
        if space.free_bytes < bytes {
            return no(452, format!("The server's disk has {} bytes free.", space.free_bytes));
        }
        self.announced = Some(bytes);
        ok(200, "There is room.")
    }

    fn on_way(&mut self, verb: &[u8], argument: &[u8]) -> Done {
        self.way = Way::None;
        if self.epsv_only && verb != b"EPSV" {
            return no(501, "You said EPSV ALL.");
        }
        let is_4 = self.local.ip().to_canonical().is_ipv4();
        match verb {
            b"EPSV" if argument.eq_ignore_ascii_case(b"ALL") => {
                self.epsv_only = true;
                return ok(200, "EPSV and nothing else.");
            }
            b"EPSV" if matches!((argument, is_4), (b"1", false) | (b"2", true)) => {
                return no(
                    522,
                    if is_4 {
                        "Network protocol not supported, use (1)"
                    } else {
                        "Network protocol not supported, use (2)"
                    },
                );
            }
            b"PASV" if !is_4 => return no(425, "PASV is for IPv4: EPSV."),
            b"PORT" | b"EPRT" => {
                let address = if verb == b"PORT" { data::parse_port(argument) } else { data::parse_eprt(argument) };
                let Some(address) = address else { return no(501, "That is no address.") };
                if !data::may_dial(address, self.peer.ip()) {
                    return no(504, "Only your own address is dialled, and ports from 1024 on.");
                }
                self.way = Way::Active(address);
                return ok(200, "Yes.");
            }
            _ => {}
        }
        let refused = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                Reply::new(425, "No port of --passive-ports is free: try again, or give the server more of them.")
            }
            _ => Reply::new(425, format!("No data port: {error}.")),
        };
        let listener = data::bind(self.local.ip(), self.door.settings.passive_ports).map_err(refused)?;
        let port = listener.local_addr().map_err(refused)?.port();
        self.way = Way::Passive(listener);
        if verb == b"EPSV" {
            return ok(229, format!("Extended passive mode (|||{port}|)"));
        }
        let IpAddr::V4(own) = self.local.ip().to_canonical() else { return no(425, "PASV is for IPv4: EPSV.") };
        let [a, b, c, d] = self.door.settings.public_address.unwrap_or(own).octets();
        ok(227, format!("Passive mode ({a},{b},{c},{d},{},{})", port >> 8, port & 255))
    }

    /// A name for the root.
    fn path(&self, argument: &[u8]) -> Result<Vec<u8>, Reply> {
        files::resolve(&self.cwd, argument).ok_or_else(|| Reply::new(553, "No file can have that name here."))
    }

    fn need(&self, read: bool, write: bool) -> Result<(), Reply> {
        let rights = self.rights();
        match (read && !rights.read, write && !rights.write) {
            (false, false) => Ok(()),
            (_, true) => no(550, "You may read here, and change nothing."),
            (true, _) => no(550, "You may write here, and read nothing."),
        }
    }

    fn on_names(&mut self, verb: &[u8], argument: &[u8]) -> Done {
        let done = |done: io::Result<()>, code, text: &str| match done {
            Ok(()) => ok(code, text),
            Err(error) => Err(of_io(&error)),
        };
        let root = &self.door.root;
        match verb {
            b"RETR" | b"LIST" | b"NLST" | b"MLSD" | b"STOR" | b"APPE" | b"STOU" => self.on_transfer(verb, argument),
            b"CWD" | b"XCWD" | b"CDUP" | b"XCUP" => {
                let path = self.path(if verb.ends_with(b"UP") { b".." } else { argument })?;
                let stat = root.stat(&path).map_err(|error| of_io(&error))?;
                if stat.kind != Kind::Folder {
                    return no(550, "That is no folder.");
                }
                root.open_dir(&path).map_err(|error| of_io(&error))?;
                self.cwd = path;
                ok(250, "You are there.")
            }
            b"MKD" | b"XMKD" => {
                self.need(false, true)?;
                let path = self.path(argument)?;
                root.make_dir(&path, 0o755).map_err(|error| of_io(&error))?;
                Ok(Reply { code: 257, text: [&files::quoted(&path)[..], b" made."].concat() })
            }
            b"RMD" | b"XRMD" | b"DELE" => {
                self.need(true, true)?;
                let path = self.path(argument)?;
                if path.is_empty() {
                    return no(550, "The root stays.");
                }
                done(if verb == b"DELE" { root.remove_file(&path) } else { root.remove_dir(&path) }, 250, "Gone.")
            }
            b"RNFR" => {
                self.need(true, true)?;
                let path = self.path(argument)?;
                root.stat(&path).map_err(|error| of_io(&error))?;
                self.rename_from = Some(path);
                ok(350, "RNTO?")
            }
            b"RNTO" => {
                self.need(true, true)?;
                let Some(from) = self.rename_from.take() else { return no(503, "RNFR first.") };
                let to = self.path(argument)?;
                done(self.door.root.rename(&from, &to), 250, "Renamed.")
            }
            _ => self.on_facts(verb, argument),
        }
    }

    fn on_facts(&mut self, verb: &[u8], argument: &[u8]) -> Done {
        let root = &self.door.root;
        match verb {
            b"SIZE" => {
                let path = self.path(argument)?;
                match root.stat(&path) {
                    Ok(stat) if stat.kind == Kind::File => ok(213, stat.bytes.to_string()),
                    Ok(_) => no(550, "That is no regular file."),
                    Err(error) => match open_ended::standing(root, &path) {
                        Ok(Some(bytes)) if self.rights().write => ok(213, bytes.to_string()),
                        _ => Err(of_io(&error)),
                    },
                }
            }
            b"MDTM" => {
                let stat = root.stat(&self.path(argument)?).map_err(|error| of_io(&error))?;
                ok(213, files::time(stat.mtime_s))
            }
            b"MFMT" => {
                self.need(false, true)?;
                let split = argument.iter().position(|&byte| byte == b' ').unwrap_or(argument.len());
                let time = files::parse_time(&argument[..split]);
                let time = time.ok_or_else(|| Reply::new(501, "MFMT YYYYMMDDHHMMSS name"))?;
                let path = self.path(argument.get(split + 1..).unwrap_or_default())?;
                root.set_meta(&path, None, Some((time, 0)), false).map_err(|error| of_io(&error))?;
                let text = [format!("Modify={}; ", files::time(time)).as_bytes(), b"/", &path].concat();
                Ok(Reply { code: 213, text })
            }
            b"SITE" => self.site(argument),
            b"HASH" => self.hash(argument),
            b"AVBL" => {
                let path = self.path(argument)?;
                let space = root.open_dir(&path).and_then(|folder| folder.space()).map_err(|error| of_io(&error))?;
                ok(213, space.free_bytes.to_string())
            }
            _ => no(500, "No such command."),
        }
    }

    fn site(&mut self, argument: &[u8]) -> Done {
        let words: Vec<&[u8]> = argument.splitn(3, |&byte| byte == b' ').collect();
        match &words[..] {
            [verb, mode, name] if verb.eq_ignore_ascii_case(b"CHMOD") => {
                self.need(true, true)?;
                let mode = std::str::from_utf8(mode).ok().and_then(|mode| u32::from_str_radix(mode, 8).ok());
                let mode = mode.filter(|&mode| mode <= 0o777);
                let mode = mode.ok_or_else(|| Reply::new(501, "SITE CHMOD 644 name; setuid is set by nobody."))?;
                let path = self.path(name)?;
                self.door.root.set_meta(&path, Some(mode), None, false).map_err(|error| of_io(&error))?;
                ok(200, "Set.")
            }
            [verb, ..] if verb.eq_ignore_ascii_case(b"HELP") => ok(214, "SITE CHMOD mode name"),
            _ => no(504, "SITE CHMOD mode name is what there is."),
        }
    }

    fn hash(&mut self, argument: &[u8]) -> Done {
        self.need(true, false)?;
        let path = self.path(argument)?;
        let file = self.door.root.open_file(&path, false).map_err(|error| of_io(&error))?;
        let mut room = vec![0; HASH_BYTES];
        let (mut blake3, mut sha) =
            (blake3::Hasher::new(), aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256));
        let mut at = 0;
        loop {
            let read = sys::fs::read_at_full(&file, &mut room, at).map_err(|error| of_io(&error))?;
            if self.blake3 {
                blake3.update(&room[..read]);
            } else {
                sha.update(&room[..read]);
            }
            at += read as u64;
            if read < room.len() {
                break;
            }
            if !self.line.pull() || self.line.take_abort() {
                return no(426, "Aborted.");
            }
        }
        let (name, digest) = if self.blake3 {
            ("BLAKE3", hex(blake3.finalize().as_bytes()))
        } else {
            ("SHA-256", hex(sha.finish().as_ref()))
        };
        let text = [format!("{name} 0-{at} {digest} ").as_bytes(), argument].concat();
        Ok(Reply { code: 213, text })
    }

    fn mlst(&mut self, argument: &[u8]) -> io::Result<()> {
        let told = self.path(argument).and_then(|path| {
            let stat = self.door.root.stat(&path).map_err(|error| of_io(&error))?;
            let mut line = Vec::new();
            files::facts(&mut line, &stat, None, self.rights().write);
            line.push(b'/');
            line.extend_from_slice(&path);
            Ok(line)
        });
        match told {
            Ok(line) => self.say_lines(250, "Facts:", &[&line], "End"),
            Err(refused) => self.say(&refused),
        }
    }

    fn on_transfer(&mut self, verb: &[u8], argument: &[u8]) -> Done {
        let argument = match verb {
            // Options of `ls`, which clients of old send along.
            b"LIST" | b"NLST" if argument.starts_with(b"-") => {
                let end = argument.iter().position(|&byte| byte == b' ').map_or(argument.len(), |at| at + 1);
                &argument[end..]
            }
            _ => argument,
        };
        let path = self.path(argument)?;
        match verb {
            b"RETR" | b"LIST" | b"NLST" | b"MLSD" => self.need(true, false)?,
            _ => self.need(false, true)?,
        }
        if path.is_empty() && matches!(verb, b"STOR" | b"APPE" | b"RETR") {
            return no(553, "A file has a name.");
        }
        Ok(match verb {
            b"RETR" => self.retrieve(&path),
            b"LIST" => self.list(&path, Form::Long),
            b"NLST" => self.list(&path, Form::Names),
            b"MLSD" => self.list(&path, Form::Facts),
            b"STOR" => self.store(&path, From::Start),
            b"APPE" => self.store(&path, From::End),
            _ => {
                let mut random = [0; 8];
                let _ = aws_lc_rs::rand::fill(&mut random);
                let name = self.path(format!("upload-{}", hex(&random)).as_bytes())?;
                match self.store(&name, From::Start) {
                    Reply { code: 226, text } => {
                        Reply { code: 226, text: [b"FILE: ", &name[..], b": ", &text].concat() }
                    }
                    other => other,
                }
            }
        })
    }
}

/// A command that wants a login.
fn is_known(verb: &[u8]) -> bool {
    const KNOWN: &str = " PWD XPWD TYPE MODE STRU STAT ABOR ALLO REST PASV EPSV PORT EPRT RETR STOR APPE STOU LIST NLST MLSD MLST SIZE MDTM MFMT HASH AVBL \
                         CWD XCWD CDUP XCUP MKD XMKD RMD XRMD DELE RNFR RNTO SITE ";
    std::str::from_utf8(verb).is_ok_and(|verb| KNOWN.contains(&format!(" {verb} ")))
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}
