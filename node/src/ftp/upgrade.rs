//! LHDATA: the connection of an FTP client that is a Longhaul goes to a session of the daemon's, and comes back.
//!
//! For: a session's thread, which serves that session, too.
//! In and out: a client that is logged in; a job, as far as its login goes; the connection as FTP's again.
//! Invariants: the root, the right to read or to write and the rate are those of the login, whatever key the client shows; no ticket and no relay is to be had.
//! Absent on purpose: when it may begin (`proto::ftp::session`), the session (`serve::session`, `link`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use proto::ftp::lhdata::{Offered, Transport};

use super::session::{Session, beneath};
use crate::identity::{Access, Rights};
use crate::link::Link;
use crate::serve::{Daemon, session as sessions};

/// A client that is done with the job has so long to take leave of its session.
const LEAVE_TIME: Duration = Duration::from_secs(10);

/// The daemon whose sessions these are.
#[derive(Debug, Clone)]
pub struct Upgrade {
    /// It serves the door's root.
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

/// Serves one session. `None`: the connection is over.
pub(super) fn run(session: &mut Session<'_>) -> Option<()> {
    let upgrade = session.door.upgrade.get()?;
    let lent = session.line.lend()?;
    let (rights, account) = login(session)?;
    let link = match Link::over(lent, session.peer, &upgrade.daemon.identity) {
        Ok(link) => link,
        Err(error) => {
            upgrade.daemon.log(1, &format!("{}: no session over FTP: {error}", session.peer));
            return None;
        }
    };
    let link = sessions::run_login(&upgrade.daemon, link, rights, account)?;
    session.line.take_back(link.give_back(LEAVE_TIME)?);
    Some(())
}

/// What the login may do, as a daemon has it, and whose its bytes are.
fn login(session: &Session<'_>) -> Option<(Rights, [u8; 32])> {
    let rights = session.machine.rights();
    let access = match (rights.read, rights.write) {
        (true, true) => Access::ReadWrite,
        (true, false) => Access::ReadOnly,
        (false, true) => Access::WriteOnly,
        (false, false) => return None,
    };
    let settings = &session.door.settings;
    let mut root = None;
    if let Some(path) = session.user.as_ref().and_then(|user| user.root.as_deref()) {
        use std::os::unix::ffi::OsStrExt;
        let below = beneath(path, &settings.root)?;
        root = Some(PathBuf::from(std::ffi::OsStr::from_bytes(below))).filter(|it| !it.as_os_str().is_empty());
    }
    let rates = [settings.rate_bps, session.user.as_ref().and_then(|user| user.rate_bps)];
    let rate_bps = rates.into_iter().flatten().min().unwrap_or(0);
    let name = session.user.as_ref().map_or("", |user| &user.name);
    let account = blake3::derive_key("longhaul 1 account of a user of ftp", name.as_bytes());
    Some((Rights { root, access, rate_bps, privileged: false }, account))
}
