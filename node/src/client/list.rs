//! What stands at an address: at this host, at a daemon, at a host that ssh reaches.
//!
//! For: seeing before copying: `longhaul ls`.
//! In and out: an address in; entries and places that could not be looked at, one at a time as they are found, out.
//! Invariants: nothing is written anywhere, and it is no job: no history, no receipt; what comes from another host is checked by `proto` before
//! anybody sees it; memory is one frame and the names of owners, however many entries come.
//! Absent on purpose: order of entries and what they look like (the command), finding them (`engine::tree::list`).

use std::collections::HashMap;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use proto::manifest::Entry;
use proto::session::order::{Order, Wish};
use proto::wire::control::{EntryFault, FaultKind, Frame, IdName};
use proto::wire::listing::Listing;

use super::choice::Choice;
use super::ssh::SshHosts;
use super::{Before, Copy, Node, Retries, session};
use crate::address::Address;
use crate::event::{Events, Watch};
use crate::job::endpoint::PathBase;
use crate::job::endpoint::listing::{listing, unseen};
use crate::job::endpoint::names::Names as Service;
use crate::job::greeting::{self, GREET};
use crate::report::history::JobRecord;
use crate::request::JobRequest;
use text::exit::{Exit, Failure};

/// What `Node::list` is asked.
#[derive(Debug, Clone, Default)]
pub struct ListRequest {
    /// The path, host or daemon to look at, as the user wrote it.
    pub address: OsString,
    /// What stands in the folders below it, too.
    pub recursive: bool,
    /// The command that reaches another host, split at blanks; `None`: `ssh`.
    pub ssh: Option<String>,
    /// The program on a host that ssh reaches; `None`: found there, or brought.
    pub remote_binary: Option<String>,
    /// The ports that the far side may listen on.
    pub far_ports: Option<crate::request::Ports>,
}

/// Something that was found.
#[derive(Debug)]
pub enum Found<'a> {
    /// An entry; what was named comes first, under the empty path.
    Entry {
        /// The entry.
        entry: &'a Entry,
        /// The name of its owner's number there, if that has one.
        owner: Option<&'a [u8]>,
        /// And of its group's.
        group: Option<&'a [u8]>,
    },
    /// A place that could not be looked at.
    Unseen {
        /// Why.
        fault: &'a EntryFault,
        /// Below what was named.
        path: &'a [u8],
    },
}

/// Whoever is handed what is found; `Break`: no more is wanted.
pub type Take<'a> = &'a mut dyn FnMut(Found<'_>) -> ControlFlow<()>;

/// Names of owners, and how it went.
#[derive(Default)]
struct Names {
    known: HashMap<(bool, u32), Box<[u8]>>,
    kinds: Vec<FaultKind>,
}

impl Names {
    fn learn(&mut self, names: Vec<IdName>) {
        self.known.extend(names.into_iter().map(|it| ((it.is_group, it.id), it.name)));
    }

    fn of(&self, is_group: bool, id: Option<u32>) -> Option<&[u8]> {
        // 0 is told by nobody: it is the same everywhere.
        let root = id.filter(|&id| id == 0).map(|_| &b"root"[..]);
        root.or_else(|| self.known.get(&(is_group, id?)).map(|name| &**name))
    }

    fn entries(&self, entries: &[Entry], take: Take<'_>) -> ControlFlow<()> {
        entries.iter().try_for_each(|entry| {
            let (owner, group) = (self.of(false, entry.meta.uid), self.of(true, entry.meta.gid));
            take(Found::Entry { entry, owner, group })
        })
    }

    fn unseen(&mut self, places: &[(EntryFault, Box<[u8]>)], take: Take<'_>) -> ControlFlow<()> {
        places.iter().try_for_each(|(fault, path)| {
            if !self.kinds.contains(&fault.kind) {
                self.kinds.push(fault.kind);
            }
            take(Found::Unseen { fault, path })
        })
    }
}

impl Node {
    /// Hands out what stands at an address, in the order in which it is found. The exit code is that of the most serious fault.
    ///
    /// # Errors
    /// Nothing is there, it may not be seen, or the other end is not reached.
    pub fn list(&self, request: &ListRequest, watch: &mut dyn Watch, take: Take<'_>) -> Result<Exit, Failure> {
        let address = Address::of(&request.address)?;
        if let Address::Local(path) = &address {
            return of_this_host(path, request.recursive, take);
        }
        let asked = JobRequest {
            ssh: request.ssh.clone(),
            remote_binary: request.remote_binary.clone(),
            far_ports: request.far_ports,
            ..JobRequest::copy([&request.address], ".").build()
        };
        let copy = self.steering(&asked)?;
        let (mut far, events, mut names) = (SshHosts::default(), &mut Events::to(watch), Names::default());
        let to = far.reach(&copy, &address, events)?;
        there(&copy, &to, request.recursive, &mut names, (events, take)).map_err(|it| far.named_by_user(it))?;
        Ok(Exit::of_faults(names.kinds))
    }

    /// What a session needs that opens no job of its own.
    fn steering<'a>(&self, request: &'a JobRequest) -> Result<Copy<'a>, Failure> {
        Ok(Copy {
            request,
            identity: Arc::clone(&self.identity),
            home: self.home.clone(),
            began: Instant::now(),
            layout: None,
            choice: Choice::of(request)?,
            piped: false,
            to_stream: false,
            before: Before::default(),
            without_receipt: true,
            again: Retries::default(),
            registry: Arc::clone(&self.registry),
            failed_disks: self.failed_disks.clone(),
            on_ssh_line: self.on_ssh_line.clone(),
            what: String::new(),
            ftp: None,
            lent: None,
            cancel: Arc::default(),
            trace: Arc::default(),
            program: self.program.clone(),
            record: JobRecord::default(),
        })
    }
}

/// The same of a path of this host, which needs neither key nor home.
///
/// # Errors
/// Nothing is there, or it may not be seen.
pub fn of_this_host(path: &[u8], recursive: bool, take: Take<'_>) -> Result<Exit, Failure> {
    Service::of_this_host().install();
    let (mut listing, mut names) = (listing(&PathBase::here(), path, recursive)?, Names::default());
    while let Some(batch) = listing.next_batch() {
        names.learn(batch.names);
        let faults: Vec<_> = batch.faults.iter().map(|(path, error)| unseen(path, error)).collect();
        if names.entries(&batch.entries, take).is_break() || names.unseen(&faults, take).is_break() {
            break;
        }
    }
    Ok(Exit::of_faults(names.kinds))
}

/// Of a daemon's host.
fn there(
    copy: &Copy<'_>,
    to: &Address,
    recursive: bool,
    names: &mut Names,
    (events, take): (&mut Events<'_>, Take<'_>),
) -> Result<(), Failure> {
    const WHAT: &str = "list what is there";
    let path: Box<[u8]> = to.path().into();
    if path.len() > proto::manifest::PATH_BYTES_MAX {
        let next = format!("name a shorter one: {} bytes are the most", proto::manifest::PATH_BYTES_MAX);
        return Err(Exit::Usage.fail("name a path to the peer", format!("it is {} bytes long", path.len())).next(next));
    }
    let (mut link, ticket) = session::connect(copy, to, events)?;
    greeting::begin(&mut link, ticket.as_ref());
    greeting::say(&mut link, &Frame::List { path, recursive });
    greeting::hello(&mut link, GREET)?;
    let (mut order, mut coming) = (Order::of_greeted(Wish::List), Listing::new(recursive));
    loop {
        let frame = greeting::hear_in_order(&mut link, copy.request.stall, &mut order, WHAT)?;
        let is_over = coming.on_frame(&frame).map_err(|breach| Exit::Breach.fail(WHAT, breach.what()))?;
        let wanted = match frame {
            Frame::Names(more) => {
                names.learn(more);
                ControlFlow::Continue(())
            }
            Frame::Entries(entries) => names.entries(&entries, take),
            Frame::Unseen(places) => names.unseen(&places, take),
            _ => ControlFlow::Continue(()),
        };
        if is_over || wanted.is_break() {
            return Ok(());
        }
    }
}
