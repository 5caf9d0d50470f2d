//! A server of FTP that is a Longhaul: a session of ours over its control connection.
//!
//! For: copies whose server says LHDATA, which go as those of `longhaul://` do from there on.
//! In and out: a control connection that was given to it, or a new one → a `Link`.
//! Invariants: the certificate was checked before, as for files; a key that is revoked here is not gone on with; each session has a login of its own.
//! Absent on purpose: the job (`client::session`); when the server may be asked (`proto::ftp::client::login`).

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use proto::ftp::lhdata::{Spoken, Transport as Word};
use proto::wire::request::Transport;

use super::address::FtpAddress;
use super::control::{Control, Server};
use super::first_failure;
use crate::identity::{Home, Identity, authorized, keys};
use crate::link::{Connected, Lent, Link, Sessions, failure_of};
use crate::request::JobRequest;
use text::exit::{Exit, Failure};

/// A server that is done with a job has so long to take leave of its session.
const LEAVE_TIME: Duration = Duration::from_secs(2);

/// May a Longhaul at the other end be asked for more than FTP?
#[must_use]
pub fn is_wanted(request: &JobRequest) -> bool {
    !request.ftp.plain && !request.ftp.allow_clear
}

/// What is asked for.
#[must_use]
pub fn asked(request: &JobRequest) -> Spoken {
    let transports = match request.transport {
        // Queue pairs are agreed on in the session itself; what they are beside is TCP.
        Transport::Tcp | Transport::Rdma => vec![Word::Tcp],
        // It is what carries where datagrams do not get through.
        Transport::Udp => vec![Word::Udp, Word::Tcp],
        Transport::Auto => vec![Word::Tcp, Word::Udp],
    };
    Spoken { version: proto::VERSION, transports }
}

/// Addresses of servers that were Longhauls when they were asked last, a line each, the newest last.
const FILE: &str = "ftp-longhauls";
/// Older ones are asked as any server is.
const KNOWN_MOST: usize = 256;

/// What this home knows of a server.
#[derive(Debug)]
pub struct Known {
    file: PathBuf,
    address: String,
    others: Vec<String>,
    is_there: bool,
}

impl Known {
    /// A file that cannot be read knows nobody.
    #[must_use]
    pub fn of(home: &Home, address: &FtpAddress) -> Known {
        let (file, address) = (home.path(FILE), address.host_port());
        let all = std::fs::read_to_string(&file).unwrap_or_default();
        let others: Vec<String> = all.lines().filter(|line| *line != address).map(str::to_owned).collect();
        let is_there = all.lines().any(|line| line == address);
        Known { file, address, others, is_there }
    }

    /// It was a Longhaul.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.is_there
    }

    /// It is one, or it is not.
    ///
    /// # Errors
    /// The file system's.
    pub fn keep(self, is: bool) -> std::io::Result<()> {
        if is == self.is_there {
            return Ok(());
        }
        let from = (self.others.len() + 1).saturating_sub(KNOWN_MOST);
        let all = self.others.iter().skip(from).chain(is.then_some(&self.address));
        let text: String = all.flat_map(|line| [line, "\n"]).collect();
        // Two at once: one of them is asked as any server is, next time.
        let new = self.file.with_extension(format!("new-{}", std::process::id()));
        std::fs::write(&new, text)?;
        std::fs::rename(new, self.file)
    }
}

/// A server that was asked, and said yes.
#[derive(Debug)]
pub struct Upgraded<'a> {
    server: &'a Server,
    asked: Spoken,
    /// A connection whose server waits for the session.
    first: RefCell<Option<(Lent, SocketAddr)>>,
    /// A session that ended well, whose connection is FTP's again once the server has taken leave, too: nobody waits for that who needs no other.
    over: RefCell<Option<Link>>,
}

impl<'a> Upgraded<'a> {
    /// `first` is upgraded.
    #[must_use]
    pub fn new(server: &'a Server, asked: Spoken, first: Control<'_>) -> Upgraded<'a> {
        Upgraded { server, asked, first: RefCell::new(first.lend()), over: RefCell::default() }
    }

    /// Sessions that the connection of the last one has carried; 0: none ended well.
    #[cfg(test)]
    pub(crate) fn sessions(&self) -> u32 {
        self.over.borrow().as_ref().map_or(0, Link::sessions)
    }
}

impl Sessions for Upgraded<'_> {
    /// Its connection is FTP's again.
    fn take_back(&self, link: Link) {
        *self.over.borrow_mut() = Some(link);
    }

    /// Over the first connection, or over one that is made now.
    fn session(&self, id: &Identity, beside: &mut dyn FnMut(Connected)) -> Result<Link, Failure> {
        let what = || format!("begin a session over FTP with {}", self.server.address.host_port());
        let again = || {
            let control = Control::open_asking(self.server, Some(&self.asked));
            let control = control.map_err(|trouble| first_failure(self.server, trouble))?;
            control.lend().ok_or_else(|| Exit::Lost.fail(what(), "the server does not speak LHDATA any more"))
        };
        let first = self.first.take().or_else(|| {
            let mut control = Control::returned(self.server, self.over.take()?.give_back(LEAVE_TIME)?)?;
            control.upgrade(&self.asked).ok()?;
            control.lend()
        });
        let (lent, rails) = first.map_or_else(again, Ok)?;
        let rtt = sys::sock::tcp_info(&lent.stream).map_or(Duration::ZERO, |info| crate::probe::rtt_of(&info));
        beside(Connected { to: rails, is_small: false, took: rtt });
        let link = Link::over(lent, rails, id).map_err(|error| failure_of(&what(), &anyhow::Error::new(error)))?;
        let revoked = match id.home() {
            Some(home) => authorized::revoked(home).map_err(|error| failure_of(&what(), &error.into()))?,
            None => Vec::new(),
        };
        if revoked.contains(&link.peer_key()) {
            let key = keys::fingerprint(&link.peer_key());
            return Err(Exit::Identity.fail(what(), format!("the key {key} that it shows is revoked here")));
        }
        Ok(link)
    }
}
