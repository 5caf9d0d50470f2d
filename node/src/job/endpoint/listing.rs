//! What stands at one path: found here, and told over a session.
//!
//! For: `longhaul ls`: of this host in its own process, of a daemon's host by the daemon.
//! In and out: a path → a listing; a listing → the frames that answer `List`.
//! Invariants: a path means here what it means as a source; below a root nothing is resolved through a link or out of it; what waits to be sent is one
//! batch: whoever does not read is waited for, and the listing with them.
//! Absent on purpose: who may list (`serve::session`), hearing the answer (`client::list`).

use std::io;
use std::time::Duration;

use engine::job::fault_kind;
use engine::tree::ids::Told;
use engine::tree::list::Listing;
use engine::tree::scan::Batch;
use proto::manifest::{ENTRY_PATH_BYTES_MAX, EntryId};
use proto::wire::control::{EntryFault, Frame, STEP_BYTES_MAX};
use sys::fs::Kind;
use text::attempt::Attempt;
use text::exit::{Exit, Failure};

use super::path_base::{PathBase, show, split, through_links};
use crate::job::cancel::Cancel;
use crate::link::{Link, LinkError};

/// Whether the client, or the rights of it, are gone is looked at so often.
const LOOK: Duration = Duration::from_millis(500);

/// What stands at this path.
///
/// # Errors
/// It is not there, or cannot be looked at.
pub fn listing(path_base: &PathBase, path: &[u8], recursive: bool) -> Result<Listing, Failure> {
    let failed = |error: io::Error| {
        let what = format!("list '{}'", if path.is_empty() { ".".to_owned() } else { show(path) });
        through_links(path_base, &what, &error).unwrap_or_else(|| match Attempt::Source.fail(what, &error) {
            failure if failure.exit == Exit::Vanished => {
                failure.next("check the path; the folder above it, listed, shows what is there")
            }
            failure => failure,
        })
    };
    let (folder, mut name) = split(path);
    let mut parent = path_base.open(folder).map_err(failed)?;
    // `link/` is where it leads, as everywhere; below a root no link is followed, and it is listed as what it is.
    let follows = path.ends_with(b"/") && matches!(path_base, PathBase::Free(_));
    if follows && parent.stat(name).is_ok_and(|it| it.kind == Kind::Link) {
        (parent, name) = (path_base.open(path).map_err(failed)?, b"");
    }
    Listing::new(parent, name, recursive, Told::of_this_host()).map_err(failed)
}

/// A place that could not be looked at, as frames and reports have it.
#[must_use]
pub fn unseen(path: &[u8], error: &io::Error) -> (EntryFault, Box<[u8]>) {
    // What is no system call's error says itself what it is.
    let own = error.get_ref().map(|it| it.to_string()).filter(|it| it.len() <= STEP_BYTES_MAX);
    let step = own.unwrap_or_else(|| "scan".to_owned());
    let errno = error.raw_os_error().unwrap_or(0);
    let fault = EntryFault { entry: EntryId::MAX, kind: fault_kind(error, true), errno, step };
    (fault, path[..path.len().min(ENTRY_PATH_BYTES_MAX)].into())
}

/// Why a listing was not told to its end.
#[derive(Debug)]
pub enum Untold {
    /// The client is gone, or does not read.
    Link(LinkError),
    /// It was ended from outside.
    Cancelled,
}

/// Tells all of it. Whoever takes nothing for `patience` is given up.
///
/// # Errors
/// See `Untold`.
pub fn tell(link: &mut Link, mut listing: Listing, cancel: &Cancel, patience: Duration) -> Result<(), Untold> {
    while let Some(Batch { entries, names, faults, .. }) = listing.next_batch() {
        let faults = faults.iter().map(|(path, error)| unseen(path, error)).collect::<Vec<_>>();
        let frames = [Frame::Names(names), Frame::Entries(entries), Frame::Unseen(faults)];
        for frame in frames.into_iter().filter(|it| !is_empty(it)) {
            frame.encode_parts(&mut |bytes| link.send(bytes));
        }
        flush(link, cancel, patience)?;
    }
    let of = listing.totals();
    let end = Frame::ScanEnd { entries: of.entries, files: of.files, bytes: of.bytes, faults: of.faults };
    end.encode_parts(&mut |bytes| link.send(bytes));
    flush(link, cancel, patience)
}

fn is_empty(frame: &Frame) -> bool {
    match frame {
        Frame::Names(all) => all.is_empty(),
        Frame::Entries(all) => all.is_empty(),
        Frame::Unseen(all) => all.is_empty(),
        _ => false,
    }
}

fn flush(link: &mut Link, cancel: &Cancel, patience: Duration) -> Result<(), Untold> {
    let (mut waited, mut taken, slice) = (Duration::ZERO, link.bytes_sent(), LOOK.min(patience));
    loop {
        if cancel.requested().is_some() {
            return Err(Untold::Cancelled);
        }
        match link.flush_blocking(slice) {
            Err(LinkError::Timeout { .. }) if link.bytes_sent() != taken => {
                (waited, taken) = (Duration::ZERO, link.bytes_sent());
            }
            Err(LinkError::Timeout { .. }) if waited < patience => waited += slice,
            done => return done.map_err(Untold::Link),
        }
    }
}
