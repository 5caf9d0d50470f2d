//! A control connection to a server: lines out, replies in, in clear or by TLS.
//!
//! For: each connection of a copy.
//! In and out: an address and a login → a session in which files can be asked for; commands; replies; data connections.
//! Invariants: no name and no password goes in clear unless that was allowed; data connections go to the control connection's peer and nowhere else,
//! unless the user trusts what PASV says; where the control connection has TLS, data connections have it.
//! Absent on purpose: what is asked for (`get`, `put`).

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::rail::plain::{prepare, prepare_to_receive};
use proto::ftp::address::{parse_epsv_reply, parse_pasv_reply};
use proto::ftp::client::features::Features;
use proto::ftp::client::login::{Cover, Login as LoginSteps, Refused, Step};
use proto::ftp::client::pipeline::Pipeline;
use proto::ftp::client::reply::{Replies, Reply};
use proto::ftp::lhdata::{Agreed, Spoken};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, Connection};
use sys::event::Interest;
use text::exit::{Exit, Failure};

use super::address::FtpAddress;
use super::credentials::Login;
use super::tls::{self, DataTls};
use super::trust::Verifier;
use crate::link::Lent;
use crate::request::FtpTerms;

/// A server has so long to take a connection, and to answer what needs no work.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// So often who waits for the server looks whether there is anything left to do.
const LOOK_TIME: Duration = Duration::from_millis(100);

/// What ended a session, or an attempt at one.
#[derive(Debug)]
pub enum Trouble {
    /// The connection is gone: in words.
    Lost(String),
    /// The server takes no more of us now, by its own words.
    Crowd(String),
    /// It cannot go on.
    Failure(Failure),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Lost(error.to_string())
    }
}

/// What every connection to a server is made with.
#[derive(Debug)]
pub struct Server {
    /// Host, port and path, as the user named them.
    pub address: FtpAddress,
    /// As whom.
    pub login: Login,
    /// What is allowed.
    pub terms: FtpTerms,
    /// Whose certificate is believed.
    pub verifier: Arc<Verifier>,
    /// Of rustls.
    pub provider: Arc<rustls::crypto::CryptoProvider>,
    /// No answer within this: the connection is lost.
    pub stall: Duration,
    /// A session answered commands out of their turn: no other one of this copy says any ahead of it.
    pub is_one_by_one: AtomicBool,
    /// It was a Longhaul when it was asked last.
    pub is_longhaul: AtomicBool,
    /// Sessions that are made from now on have TLS 1.2.
    pub is_tls12: AtomicBool,
    /// Nothing is left to do: who is still logging in need not (Pure-FTPd takes seconds to look at a password).
    pub is_done: AtomicBool,
}

/// How a data connection is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passive {
    /// EPSV.
    Extended,
    /// PASV.
    Old,
    /// The server connects: EPRT.
    Active,
}

/// A session.
#[derive(Debug)]
pub struct Control<'a> {
    server: &'a Server,
    /// Blocks, for `LOOK_TIME` at a time.
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<Box<ClientConnection>>,
    config: Option<Arc<ClientConfig>>,
    replies: Replies,
    /// Bytes of TLS that went out and came in.
    moved: (u64, u64),
    /// Bytes that went out before TLS.
    clear_sent: u64,
    /// The connection is for the session of ours.
    agreed: Option<Agreed>,
    /// Sessions that had it.
    sessions: u32,
    /// What waits for a reply.
    pub pipeline: Pipeline,
    /// What the server can do.
    pub features: Features,
    /// How data connections are made.
    pub passive: Passive,
    /// A transfer went well: commands may go ahead.
    pub proved: bool,
    listener: Option<TcpListener>,
}

/// The server's words, made harmless.
#[must_use]
pub fn words(reply: &Reply) -> String {
    let text = String::from_utf8_lossy(&reply.text);
    let first: String = text.lines().take(3).collect::<Vec<_>>().join(" ").chars().take(300).collect();
    format!("{} {}", reply.code, crate::report::clean(&first))
}

impl AsFd for Control<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn name_of(host: &str) -> Result<ServerName<'static>, Trouble> {
    ServerName::try_from(host.to_owned()).map_err(|_| {
        Trouble::Failure(Exit::Usage.fail(format!("make TLS with '{host}'"), "that is no name and no address"))
    })
}

impl<'a> Control<'a> {
    /// Connects and logs in.
    ///
    /// # Errors
    /// What ended it.
    pub fn open(server: &'a Server) -> Result<Control<'a>, Trouble> {
        Control::open_asking(server, None)
    }

    /// The same; where the server has LHDATA, the connection is for a session of ours (`lend`) and no more for files.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_asking(server: &'a Server, asked: Option<&Spoken>) -> Result<Control<'a>, Trouble> {
        let opened = Control::connect(server, asked);
        // Whatever stands there now is asked as any server is; a wrong password or certificate is no better the second time.
        let is_other = match &opened {
            Ok(it) => asked.is_some() && !it.is_upgraded(),
            Err(Trouble::Failure(failure)) => !matches!(failure.exit, Exit::Refused | Exit::Identity | Exit::Connect),
            Err(Trouble::Lost(_)) => true,
            Err(Trouble::Crowd(_)) => false,
        };
        let was_longhaul = is_other && server.is_longhaul.swap(false, Ordering::Relaxed);
        if was_longhaul && opened.is_err() { Control::connect(server, asked) } else { opened }
    }

    fn connect(server: &'a Server, asked: Option<&Spoken>) -> Result<Control<'a>, Trouble> {
        let host_port = server.address.host_port();
        let what = || format!("connect to {host_port}");
        let addresses = (&*server.address.host, server.address.port)
            .to_socket_addrs()
            .map_err(|error| Trouble::Failure(Exit::Connect.fail(what(), error)))?;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let mut stream = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT_TIME) {
                Ok(connected) => {
                    stream = Some(connected);
                    break;
                }
                Err(error) => last = error,
            }
        }
        let stream = stream.ok_or_else(|| {
            Trouble::Failure(
                Exit::Connect
                    .fail(what(), last)
                    .next("check the address, that a server of FTP runs there, and the firewall between"),
            )
        })?;
        stream.set_nodelay(true)?;
        wait_in_calls(&stream)?;
        let mut it = Control {
            server,
            peer: stream.peer_addr()?,
            stream,
            tls: None,
            config: None,
            replies: Replies::default(),
            moved: (0, 0),
            clear_sent: 0,
            agreed: None,
            sessions: 0,
            pipeline: Pipeline::default(),
            features: Features::default(),
            passive: if server.terms.active { Passive::Active } else { Passive::Extended },
            proved: false,
            listener: None,
        };
        it.log_in(asked)?;
        Ok(it)
    }

    fn log_in(&mut self, asked: Option<&Spoken>) -> Result<(), Trouble> {
        let (server, host_port) = (self.server, self.server.address.host_port());
        let cover = server.address.cover(server.terms.allow_clear);
        let mut steps = LoginSteps::new(cover, &server.login.user, &server.login.password);
        if let Some(asked) = asked {
            steps = steps.asking(asked.clone());
        }
        let opening = if server.is_longhaul.load(Ordering::Relaxed) { steps.opening() } else { None };
        if let Some(line) = opening {
            self.say(&[line, b"\r\n"].concat())?;
        }
        let may_upgrade = asked.is_some() && server.is_longhaul.load(Ordering::Relaxed);
        if cover == Cover::Implicit {
            self.secure(may_upgrade)?;
        }
        loop {
            let reply = self.reply()?;
            let mut step = steps.on_reply(&reply);
            if step == Step::Secure {
                self.secure(steps.greeted_as_longhaul())?;
                step = steps.on_secure();
            }
            match step {
                Step::Say(line) if line.is_empty() => {}
                Step::Say(line) => self.say(&[&line[..], b"\r\n"].concat())?,
                Step::Ready => {
                    self.features = steps.features;
                    return Ok(());
                }
                Step::Upgraded(agreed) => {
                    self.agreed = Some(agreed);
                    return Ok(());
                }
                Step::Secure => return Err(Trouble::Lost("the server began TLS twice".to_owned())),
                Step::Refused(Refused::Crowd) => return Err(Trouble::Crowd(words(&reply))),
                Step::Refused(why) => {
                    let said = words(&reply);
                    return Err(Trouble::Failure(match why {
                        Refused::Tls => Exit::Negotiation
                            .fail(format!("make TLS with {host_port}"), format!("the server refused it: {said}"))
                            .next("if the network between is trusted, --allow-clear speaks FTP without TLS: password and files go in clear"),
                        Refused::Login => Exit::Refused
                            .fail(format!("log in at {host_port}"), format!("the server refused it: {said}"))
                            .next("check the name in the address and the password in --password-file or ~/.netrc"),
                        _ => Exit::Breach
                            .fail(format!("begin a session with {host_port}"), format!("the server said: {said}"))
                            .next("check that it is a server of FTP"),
                    }));
                }
            }
        }
    }

    /// `may_upgrade`: to a session of ours, which TLS 1.3 alone can cover, and a Longhaul takes TLS 1.2 from who offers both.
    fn secure(&mut self, may_upgrade: bool) -> Result<(), Trouble> {
        if !self.replies.is_empty() {
            let what = format!("make TLS with {}", self.server.address.host_port());
            return Err(Trouble::Failure(Exit::Breach.fail(what, "bytes came in clear behind the answer to AUTH TLS")));
        }
        self.replies.clear();
        let server = self.server;
        let failed = |error: io::Error| {
            if error.kind() == io::ErrorKind::TimedOut || error.kind() == io::ErrorKind::UnexpectedEof {
                return Trouble::Failure(Exit::Negotiation.fail(
                    format!("make TLS with {}", server.address.host_port()),
                    format!("the handshake was cut: {error}"),
                ));
            }
            Trouble::Failure(server.verifier.failure(&server.address.host_port(), &error))
        };
        let versions: &[_] = match server.is_tls12.load(Ordering::Relaxed) {
            true => &[&TLS12],
            false if may_upgrade => &[&TLS13],
            false => &[&TLS13, &TLS12],
        };
        let config = tls::terms(&server.verifier, &server.provider, versions)
            .map_err(|error| failed(io::Error::other(error)))?;
        let name = name_of(&server.address.host)?;
        let tls = ClientConnection::new(Arc::clone(&config), name).map_err(|error| failed(io::Error::other(error)))?;
        self.tls = Some(Box::new(tls));
        self.config = Some(config);
        let until = Instant::now() + CONNECT_TIME;
        while self.tls.as_ref().is_some_and(|tls| tls.is_handshaking() || tls.wants_write()) {
            self.turn_tls(until).map_err(failed)?;
        }
        Ok(())
    }

    fn turn_tls(&mut self, until: Instant) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        let moved = if tls.wants_write() {
            tls.write_tls(&mut self.stream).map(|bytes| self.moved.0 += bytes as u64)
        } else {
            match tls.read_tls(&mut self.stream) {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    self.moved.1 += bytes as u64;
                    tls.process_new_packets().map(|_| ()).map_err(|error| {
                        // The alert says why.
                        let _ = tls.write_tls(&mut self.stream);
                        io::Error::other(error)
                    })
                }
                Err(error) => Err(error),
            }
        };
        match moved {
            Err(error) if is_not_now(&error) => is_time_left(until, &self.server.is_done),
            other => other,
        }
    }

    /// May commands go ahead of their replies, as far as every session of this copy found?
    pub fn look_at_others(&mut self) {
        if self.server.is_one_by_one.load(Ordering::Relaxed) {
            self.pipeline.one_by_one();
        }
    }

    /// This server answers out of turn what comes ahead of it: no session of this copy does that any more.
    pub fn all_one_by_one(&mut self) {
        self.server.is_one_by_one.store(true, Ordering::Relaxed);
        self.pipeline.one_by_one();
    }

    /// The end of a session whose replies are no longer those of its commands in their order.
    pub fn out_of_turn(&mut self) -> Trouble {
        self.all_one_by_one();
        Trouble::Lost("the server does not take commands ahead of their turn".to_owned())
    }

    /// Did the server refuse a data connection because it resumed no session? ProFTPD wants that it does, and gives no ticket of TLS 1.3 to who uploads, so
    /// that after a few there is none left (a ticket is used once: RFC 8446 appendix C.4). Sessions of TLS 1.2 are resumed as often as one wants.
    pub fn unresumed(&self, reply: &Reply) -> Option<Trouble> {
        let version = self.tls.as_ref()?.protocol_version()?;
        if reply.code != 425 || version != rustls::ProtocolVersion::TLSv1_3 {
            return None;
        }
        self.server.is_tls12.store(true, Ordering::Relaxed);
        Some(Trouble::Lost(format!("the server said: {}", words(reply))))
    }

    /// Says lines, with their ends.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn say(&mut self, lines: &[u8]) -> Result<(), Trouble> {
        let until = Instant::now() + self.server.stall;
        let mut left = lines;
        if let Some(tls) = &mut self.tls {
            tls.writer().write_all(left)?;
            while self.tls.as_ref().is_some_and(|tls| tls.wants_write()) {
                self.turn_tls(until)?;
            }
            return Ok(());
        }
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(bytes) => {
                    self.clear_sent += bytes as u64;
                    left = &left[bytes..];
                }
                Err(error) if is_not_now(&error) => is_time_left(until, &self.server.is_done)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The next reply.
    ///
    /// # Errors
    /// The connection is lost; the server breaks the protocol.
    pub fn reply(&mut self) -> Result<Reply, Trouble> {
        let until = Instant::now() + self.server.stall;
        loop {
            match self.replies.take() {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) => self.receive(until)?,
                Err(breach) => {
                    let what = format!("understand {}", self.server.address.host_port());
                    return Err(Trouble::Failure(Exit::Breach.fail(what, format!("the server {}", breach.words()))));
                }
            }
        }
    }

    fn receive(&mut self, until: Instant) -> Result<(), Trouble> {
        let mut room = [0; 4096];
        let gone = || Trouble::Lost("the server ended the connection".to_owned());
        let read = match &mut self.tls {
            None => self.stream.read(&mut room),
            Some(tls) => match tls.reader().read(&mut room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match self.turn_tls(until) {
                        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(gone()),
                        other => other?,
                    }
                    return Ok(());
                }
                read => read,
            },
        };
        match read {
            Ok(0) => Err(gone()),
            Ok(bytes) => {
                self.replies.push(&room[..bytes]);
                Ok(())
            }
            Err(error) if is_not_now(&error) => Ok(is_time_left(until, &self.server.is_done)?),
            Err(error) => Err(error.into()),
        }
    }

    /// One command, and its reply.
    ///
    /// # Errors
    /// As `say` and `reply`.
    pub fn ask(&mut self, word: &str, operand: &[u8]) -> Result<Reply, Trouble> {
        self.say(&command(word, operand))?;
        self.reply()
    }

    /// The command that makes a data connection.
    ///
    /// # Errors
    /// No port of ours is free.
    pub fn passive_command(&mut self) -> Result<Vec<u8>, Trouble> {
        match self.passive {
            Passive::Extended => Ok(command("EPSV", b"")),
            Passive::Old => Ok(command("PASV", b"")),
            Passive::Active => {
                let own = self.stream.local_addr()?.ip();
                let listener = sys::sock::listen(SocketAddr::new(own, 0))?;
                let port = listener.local_addr()?.port();
                listener.set_nonblocking(true)?;
                self.listener = Some(listener);
                let family = if own.is_ipv4() { 1 } else { 2 };
                Ok(command("EPRT", format!("|{family}|{own}|{port}|").as_bytes()))
            }
        }
    }

    /// Connects where a reply says; an active connection comes later. `None`: the reply says nothing of the kind.
    ///
    /// # Errors
    /// The data connection cannot be made.
    pub fn dial(&self, reply: &Reply) -> Result<Option<TcpStream>, Trouble> {
        let peer = self.peer;
        let to = match (self.passive, reply.code) {
            (Passive::Active, 200..300) => return Ok(None),
            (Passive::Extended, 229) => parse_epsv_reply(&reply.text).map(|port| SocketAddr::new(peer.ip(), port)),
            (Passive::Old, 227) => parse_pasv_reply(&reply.text).map(|said| match self.server.terms.trust_pasv {
                true => said,
                // Behind NAT it is another one of the server's; anywhere else it is a third host, whose ports are no business of ours.
                false => SocketAddr::new(peer.ip(), said.port()),
            }),
            _ => None,
        };
        let Some(to) = to else {
            let what = format!("open a data connection to {}", self.server.address.host_port());
            return Err(Trouble::Failure(Exit::Breach.fail(what, format!("the server said: {}", words(reply)))));
        };
        let stream = sys::sock::connect_blocking(to, CONNECT_TIME)
            .map_err(|error| Trouble::Lost(format!("the data connection to port {} failed: {error}", to.port())))?;
        Ok(Some(stream))
    }

    /// The data connection that a server makes to us.
    ///
    /// # Errors
    /// It does not come.
    pub fn accept(&mut self) -> Result<TcpStream, Trouble> {
        let peer = self.peer.ip().to_canonical();
        let Some(listener) = self.listener.take() else {
            return Err(Trouble::Lost("no port waits for the server".to_owned()));
        };
        let until = Instant::now() + CONNECT_TIME;
        loop {
            match listener.accept() {
                Ok((stream, from)) if from.ip().to_canonical() == peer => return Ok(stream),
                Ok(_) => {}
                Err(error) if is_not_now(&error) => {
                    sys::event::poll(
                        &[(listener.as_fd(), Interest::Read)],
                        Some(until.saturating_duration_since(Instant::now())),
                    )?;
                    if Instant::now() >= until {
                        return Err(Trouble::Lost(
                            "the server did not connect to us within 10 s: leave out --active".to_owned(),
                        ));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// TLS on a data connection, where the control connection has it. `waits`: the server sends.
    ///
    /// # Errors
    /// The handshake's.
    pub fn cover(&self, stream: &mut TcpStream, waits: bool) -> Result<Option<DataTls>, Trouble> {
        let ready = |stream: &TcpStream| if waits { prepare_to_receive(stream) } else { prepare(stream) };
        let Some(config) = &self.config else {
            ready(stream)?;
            return Ok(None);
        };
        stream.set_read_timeout(Some(CONNECT_TIME))?;
        stream.set_write_timeout(Some(CONNECT_TIME))?;
        stream.set_nodelay(true)?;
        let name = name_of(&self.server.address.host)?;
        let tls = tls::connect(config, &name, stream, waits)
            .map_err(|error| Trouble::Lost(format!("no TLS on the data connection: {error}")))?;
        ready(stream)?;
        Ok(Some(tls))
    }

    /// What seals this session, in the words of the registry of TLS. `None`: nothing does.
    #[must_use]
    pub fn cipher(&self) -> Option<String> {
        let suite = self.tls.as_ref()?.negotiated_cipher_suite();
        Some(suite.map_or_else(|| "TLS".to_owned(), |it| format!("{:?}", it.suite())))
    }

    /// Is the connection for a session of ours?
    #[must_use]
    pub fn is_upgraded(&self) -> bool {
        self.agreed.is_some()
    }

    /// The connection for that session, and where its rails are.
    #[must_use]
    pub fn lend(mut self) -> Option<(Lent, SocketAddr)> {
        let (agreed, tls) = (self.agreed?, self.tls?);
        let rails = SocketAddr::new(self.peer.ip(), agreed.port);
        self.stream.set_nonblocking(true).ok()?;
        let lent = Lent {
            connection: Connection::Client(*tls),
            stream: self.stream,
            moved: self.moved,
            clear_sent: self.clear_sent,
            early: self.replies.take_rest(),
            sessions: self.sessions,
        };
        Some((lent, rails))
    }

    /// A connection that a session of ours has given back. `None`: it is none of a client's.
    #[must_use]
    pub fn returned(server: &'a Server, lent: Lent) -> Option<Control<'a>> {
        let Connection::Client(tls) = lent.connection else { return None };
        let mut replies = Replies::default();
        replies.push(&lent.early);
        lent.stream.set_nonblocking(false).and_then(|()| wait_in_calls(&lent.stream)).ok()?;
        Some(Control {
            server,
            peer: lent.stream.peer_addr().ok()?,
            stream: lent.stream,
            tls: Some(Box::new(tls)),
            config: None,
            replies,
            moved: lent.moved,
            clear_sent: lent.clear_sent,
            agreed: None,
            sessions: lent.sessions,
            pipeline: Pipeline::default(),
            features: Features::default(),
            passive: Passive::Extended,
            proved: false,
            listener: None,
        })
    }

    /// Asks for a session of ours over a connection that is logged in.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn upgrade(&mut self, asked: &Spoken) -> Result<(), Trouble> {
        self.say(&command(&asked.line(), b""))?;
        let reply = self.reply()?;
        self.agreed = Agreed::parse(&reply.text).filter(|it| reply.code == 250 && it.version == asked.version);
        Ok(())
    }

    /// For so long nothing may happen.
    #[must_use]
    pub fn stall(&self) -> Duration {
        self.server.stall
    }

    /// Takes leave.
    pub fn quit(mut self) {
        let _ = self.say(b"QUIT\r\n");
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = tls.write_tls(&mut self.stream);
        }
    }
}

/// A command as it goes. A byte 0xFF of a name goes once, as curl sends it: vsftpd knows nothing of Telnet (RFC 854), where it would go twice.
#[must_use]
pub fn command(word: &str, operand: &[u8]) -> Vec<u8> {
    let blank: &[u8] = if operand.is_empty() { b"" } else { b" " };
    [word.as_bytes(), blank, operand, b"\r\n"].concat()
}

fn is_not_now(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Who talks over this socket looks `LOOK_TIME` after the last byte whether it is still to wait: a call that waits in the kernel costs a third of one that
/// comes back empty, one that waits, and one that fetches.
fn wait_in_calls(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(LOOK_TIME))?;
    stream.set_write_timeout(Some(LOOK_TIME))
}

fn is_time_left(until: Instant, is_done: &AtomicBool) -> io::Result<()> {
    if Instant::now() >= until || is_done.load(Ordering::Relaxed) {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "the server does not answer"));
    }
    Ok(())
}
