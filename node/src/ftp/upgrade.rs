//! LHDATA: the connection of an FTP client that is a Longhaul goes to a session of the daemon's, and comes back.
//!
//! For: a session's thread, which serves that session, too.
//! In and out: a client that is logged in; a job, as far as its login goes; the connection as FTP's again.
//! Invariants: the root, the right to read or to write and the rate are those of the login, whatever key the client shows; no ticket and no relay is to be had.
//! Absent on purpose: when it may begin (`proto::ftp::session`), the session (`serve::session`, `link`).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::Door;
use super::control::ControlLine;
use super::users::{User, beneath};
use crate::identity::{Access, Rights};
use crate::link::Link;
use crate::serve::session as sessions;

/// A client that is done with the job has so long to take leave of its session.
const LEAVE_TIME: Duration = Duration::from_secs(10);

/// Serves one session. `None`: the connection is over.
pub(super) fn run(
    (door, line, peer): (&Door, &mut ControlLine, SocketAddr),
    rights: proto::ftp::session::Rights,
    user: Option<&User>,
) -> Option<()> {
    let upgrade = door.upgrade.get()?;
    let lent = line.lend()?;
    let (rights, account) = login(door, rights, user)?;
    let link = match Link::over(lent, peer, &upgrade.daemon.identity) {
        Ok(link) => link,
        Err(error) => {
            upgrade.daemon.log(1, &format!("{peer}: no session over FTP: {error}"));
            return None;
        }
    };
    let link = sessions::run_login(&upgrade.daemon, link, rights, account)?;
    line.take_back(link.give_back(LEAVE_TIME)?);
    Some(())
}

/// What the login may do, as a daemon has it, and whose its bytes are.
fn login(door: &Door, rights: proto::ftp::session::Rights, user: Option<&User>) -> Option<(Rights, [u8; 32])> {
    let access = match (rights.read, rights.write) {
        (true, true) => Access::ReadWrite,
        (true, false) => Access::ReadOnly,
        (false, true) => Access::WriteOnly,
        (false, false) => return None,
    };
    let settings = &door.settings;
    let mut root = None;
    if let Some(path) = user.and_then(|user| user.root.as_deref()) {
        use std::os::unix::ffi::OsStrExt;
        let below = beneath(path, &settings.root)?;
        root = Some(PathBuf::from(std::ffi::OsStr::from_bytes(below))).filter(|it| !it.as_os_str().is_empty());
    }
    let rates = [settings.rate_bps, user.and_then(|user| user.rate_bps)];
    let rate_bps = rates.into_iter().flatten().min().unwrap_or(0);
    let name = user.map_or("", |user| &user.name);
    let account = blake3::derive_key("longhaul 1 account of a user of ftp", name.as_bytes());
    Some((Rights { root, access, rate_bps, privileged: false }, account))
}
