//! What the history has of the jobs of a daemon.
//!
//! For: its own user, who asks later what clients did here.
//! In and out: a client's job that begins, and its outcome in; a line of the history out.
//! Invariants: paths are those of this host, not of the client's view below its root; a history that cannot be written is in the log, once, and
//! no client hears of it; a job that panics has its line.
//! Absent on purpose: the line and its file (report::history); dry runs, which moved nothing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use proto::wire::control::{Direction, Open};

use super::Daemon;
use super::guest::Guest;
use crate::address::Address;
use crate::client::outcome::{exit_of, payload_moved};
use crate::client::session::end_of;
use crate::identity::keys::fingerprint;
use crate::identity::{PublicKey, Rights};
use crate::job::driver::Outcome;
use crate::job::endpoint::PathBase;
use crate::report::history::{EndedJob, JobRecord};
use crate::report::show_path;
use text::exit::{Exit, Failure};

/// A job's place in the history, until its session is over.
pub(super) struct Record(JobRecord);

impl Record {
    /// More is known of the job.
    pub(super) fn set(&self, change: impl FnOnce(&mut EndedJob)) {
        self.0.set(change);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // Whoever had an end has its line already.
        self.0.end(Exit::Bug, None);
    }
}

/// A client's job begins.
pub(super) fn begin(daemon: &Daemon, guest: &Guest, open: &Open, (key, peer): (PublicKey, &str)) -> Record {
    if open.dry {
        return Record(JobRecord::default());
    }
    let sends = open.direction == Direction::Pull;
    let (here, there) = (here(daemon, &guest.rights, &open.paths), peer.to_owned());
    let (source, destination) = if sends { (here, there) } else { (there, here) };
    Record(daemon.history.begin(EndedJob {
        job: Some(open.job.iter().map(|byte| format!("{byte:02x}")).collect()),
        side: "daemon".to_owned(),
        command: "serve".to_owned(),
        end: end_of(sends).to_owned(),
        source,
        destination,
        peer: Some(fingerprint(&key)),
        ..EndedJob::default()
    }))
}

/// A job begins that this daemon makes for a client.
pub(super) fn begin_relay(
    daemon: &Daemon,
    guest: &Guest,
    (sources, to): (&[Box<[u8]>], &Address),
    is_dry: bool,
) -> JobRecord {
    if is_dry {
        return JobRecord::default();
    }
    daemon.history.begin(EndedJob {
        side: "daemon".to_owned(),
        command: "relay".to_owned(),
        end: end_of(true).to_owned(),
        source: here(daemon, &guest.rights, sources),
        destination: to.to_string(),
        ..EndedJob::default()
    })
}

/// And ends.
pub(super) fn end(Record(record): &Record, outcome: &Result<Outcome, Failure>) {
    match outcome {
        Ok(outcome) => {
            let tally = &outcome.record.tally;
            record.set(|job| {
                (job.bytes, job.files) = (payload_moved(tally), tally.files_done - tally.files_kept);
                job.receipt = outcome.receipt.as_ref().map(|path| path.to_string_lossy().into_owned());
                job.error = outcome.receipt_missing.clone();
            });
            // The client comes again at once for what the others of the set are to take.
            let exit = if outcome.out_of_set.is_some() { Exit::Partial } else { exit_of(outcome) };
            record.end(exit, None);
        }
        Err(failure) => record.end(failure.exit, Some(failure)),
    }
}

/// Paths of a client as this host's own user knows them.
fn here(daemon: &Daemon, rights: &Rights, paths: &[Box<[u8]>]) -> String {
    let settings = daemon.settings.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    let base = match (&rights.root, &daemon.path_base) {
        (Some(root), _) => settings.root.join(root),
        (None, PathBase::Free(home)) => home.clone(),
        (None, PathBase::Root(_)) => settings.root.clone(),
    };
    let is_free = matches!((&rights.root, &daemon.path_base), (None, PathBase::Free(_)));
    let whole = |path: &[u8]| {
        // Below a root slashes in front mean nothing.
        let slashes = path.iter().take_while(|&&byte| byte == b'/' && !is_free).count();
        let path = &path[slashes..];
        let path = std::path::absolute(base.join(OsStr::from_bytes(path))).unwrap_or_default();
        show_path(path.as_os_str().as_bytes())
    };
    let more = if paths.len() > 1 { format!(" and {} more", paths.len() - 1) } else { String::new() };
    paths.first().map_or_else(String::new, |first| whole(first) + &more)
}
