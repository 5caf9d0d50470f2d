//! Both ends in this process: local to local.
//!
//! For: a copy on one host with the same resume, digests, receipt and report as over a network.
//! In and out: paths in; an exit code out.
//! Invariants: the same two job ends, over a socket pair instead of TCP; payload does not leave the process, so it is not encrypted. A chunk of a
//! file that is read without waiting is read, hashed and written by one worker (docs/design/038); others travel, and are checked as ever.
//! Absent on purpose: what may be shared instead of copied (engine::linux).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;

use engine::host::{Team, Workers};
use engine::tree::scan::overlap::{Marks, Own};
use engine::tree::sink::LinuxSink;
use engine::tree::source::Root;
use engine::tree::{Sinks, Sources};
use engine::worker::bound::Bound;
use proto::negotiate::{Choice, Offer, Plan, negotiate};
use sys::event::Event;
use sys::fs::{Dir, Kind};

use crate::client::session::Placed;
use crate::client::{Copy, outcome as report, session, unnamed};
use crate::event::Events;
use crate::job::driver::{self, Job, OtherEnd, Outcome, Way};
use crate::job::endpoint::{self, Called, PathBase};
use crate::job::numa;
use crate::job::offer;
use crate::job::rails::Rails;
use crate::job::receipt;
use crate::link::Link;
use text::exit::{Exit, Failure};

/// Copies within this host.
pub fn run(copy: &Copy<'_>, paths: &[Box<[u8]>], to: &[Box<[u8]>], events: &mut Events<'_>) -> Result<Exit, Failure> {
    let (path_base, dry, durability) = (PathBase::here(), copy.request.dry_run, copy.request.durability);
    let id = session::job_id()?;
    let target = target(copy, &path_base, paths, to, &id)?;
    let source = source(copy, &path_base, paths, to, &target, &id)?;
    let (own, plan, mut choices) = agree(copy)?;
    let (carry, carried) = receipt::carry(&copy.home, &target, dry);
    let (read, (sink, sync)) = (source.clone(), sink(copy, target, source.clone()));
    let start = |error: std::io::Error| Exit::of_io(&error).fail("start the job", error);
    let (near, far) = Link::pair().map_err(start)?;
    let (wake, far_bell) = (Event::new().map_err(start)?, Event::new().map_err(start)?);
    let ((to_far, from_near), from) = (channel(), Way::Send(source));
    let to = Way::Recv { sink: sink.clone(), keep: copy.request.keep, carried, sync };
    let here = placed(copy, (plan.workers.0, plan.chunk_bytes), &from, "placement, reading", &mut choices)?;
    let there = placed(copy, (plan.workers.1, plan.chunk_bytes), &to, "placement, writing", &mut choices)?;
    explain(copy, &own, &choices, &here.workers, events);
    let (wanted, own_key) = (wanted_receipt(copy, &id), copy.identity.public());
    let (senders, (reads, writes)) = (wanted.as_deref().map(sender_receipt), OtherEnd::pair(&there.workers, &wake));
    let make = |link, (way, other_end), placed: Placed, rails, wake, receipt, carry: Option<PathBuf>| Job {
        no: session::next_job(),
        id,
        link,
        identity: &copy.identity,
        peer_key: own_key,
        plan: plan.clone(),
        terms: offer::terms(&plan, durability),
        durability,
        layout: copy.layout,
        dry,
        known: None,
        way,
        ahead: None,
        other_end,
        workers: Team::new(placed.workers, 0, u16::MAX),
        volume_nodes: placed.volume_nodes,
        pool_bytes: placed.pool_bytes,
        rails,
        weights: Vec::new(),
        offers: None,
        wake,
        stall: copy.request.stall,
        receipt,
        formers: receipt::formers(&copy.home, carry.as_deref(), &own_key, copy.request.receipt.is_some()),
        carry,
        bound: Arc::new(Bound::new(plan.rate_bps / 8, None)),
        share: None,
        ending: None,
        registration: None,
        failed_disks: copy.failed_disks.clone(),
        cancel: None,
    };
    let (rails, wait) = (Rails::dial_pair(to_far, far_bell.clone(), wake.clone()), Rails::Wait { from: from_near });
    let mut sender = make(near, (from, reads), here, rails, wake, Option::clone(&senders), None);
    sender.cancel = Some(Arc::clone(&copy.cancel));
    sender.registration = Some(copy.post(id, "copies", &sender.wake));
    let receiver = make(far, (to, writes), there, wait, far_bell, wanted, (!dry && !copy.piped).then_some(carry));
    let facts = report::Facts {
        copy,
        job: id,
        direction: None,
        plan: &plan,
        choices: &choices,
        shared: true,
        durability,
        compare: sync.compare,
    };
    let ended = turn_both(sender, receiver, events);
    // The receiver's copy is the one that stays; both are the same byte for byte.
    senders.iter().for_each(|path| _ = std::fs::remove_file(path));
    let ended = ended?;
    tell_clones(&sink, &read, events);
    report::end(&facts, ended, events)
}

/// Where the receipt is to stand; a dry run has none.
fn wanted_receipt(copy: &Copy<'_>, id: &[u8; 16]) -> Option<PathBuf> {
    let default = || (!copy.without_receipt).then(|| receipt::default_path(&copy.home, id));
    copy.request.receipt.clone().or_else(default).filter(|_| !copy.request.dry_run)
}

/// An end's workers beside its disks.
fn placed(
    copy: &Copy<'_>,
    (count, chunk_bytes): (u16, u32),
    way: &Way,
    what: &'static str,
    choices: &mut Vec<Choice>,
) -> Result<Placed, Failure> {
    let (holds, volume_nodes) = numa::place(&[], way, count.into(), what, choices);
    let (workers, pool_bytes) = session::start_workers(copy, count, chunk_bytes, holds)?;
    Ok(Placed { workers, pool_bytes, volume_nodes })
}

fn explain(copy: &Copy<'_>, own: &Offer, choices: &[Choice], workers: &Arc<Workers>, events: &mut Events<'_>) {
    if copy.request.explain {
        report::Explaining { own, theirs: None, choices, workers, granted: copy.request.memory_bytes }.show(events);
    }
}

fn target(
    copy: &Copy<'_>,
    path_base: &PathBase,
    paths: &[Box<[u8]>],
    to: &[Box<[u8]>],
    id: &[u8; 16],
) -> Result<endpoint::Target, Failure> {
    refuse_inside(copy, path_base, paths, to, id)?;
    let into_folder = session::is_into_folder(copy, paths, &to[0]);
    let target = endpoint::target(path_base, to, copy.layout, into_folder, copy.request.dry_run, &copy.failed_disks)?;
    if copy.piped && target.top.is_empty() { Err(unnamed()) } else { Ok(target) }
}

fn source(
    copy: &Copy<'_>,
    path_base: &PathBase,
    paths: &[Box<[u8]>],
    to: &[Box<[u8]>],
    target: &endpoint::Target,
    id: &[u8; 16],
) -> Result<Arc<Sources>, Failure> {
    let called = Called::of(&target.top, session::is_into_folder(copy, paths, &to[0]));
    let source = endpoint::source(path_base, paths, called, session::storage(copy), copy.request.joined)?;
    let own = Own::new(id, &session::places(target, id), session::volumes_of(copy.layout)).map(Arc::new);
    // Both ends are this host: its numbers mean the same.
    let (filter, picks, kept) = (&copy.choice.filter, &copy.choice.picks, copy.request.aspects);
    let snapshot = copy.request.snapshot;
    let source = source.map(|it| {
        let it = it.keeping(kept, true).from_snapshots(snapshot).avoiding(own.clone());
        it.choosing(filter.clone(), picks.clone())
    });
    session::refuse_overlap(own.as_deref(), &source, copy.request.prune.is_some())?;
    refuse_folder_onto_file(target, &source, &to[0])?;
    Ok(Arc::new(source))
}

/// A destination whose folders are still to be made, in a source: said before they are made, for afterwards they would stand there.
fn refuse_inside(
    copy: &Copy<'_>,
    path_base: &PathBase,
    paths: &[Box<[u8]>],
    to: &[Box<[u8]>],
    id: &[u8; 16],
) -> Result<(), Failure> {
    let near = endpoint::nearest(path_base, &to[0]).filter(|_| copy.layout.is_none());
    let Some((near, rest)) = near else { return Ok(()) };
    let source = endpoint::source(path_base, paths, Called::Own, session::storage(copy), copy.request.joined)?;
    let source = source.map(|it| it.choosing(copy.choice.filter.clone(), copy.choice.picks.clone()));
    let places = Marks::of(id).map(|marks| marks.places(&[near])).unwrap_or_default();
    let inside = Own::new(id, &places, 1).and_then(|own| own.inside(&source, Some(&rest)));
    inside.map_or(Ok(()), |inside| Err(session::inside(&inside)))
}

/// A folder never replaces a file: said before anything is tried, where both are seen.
fn refuse_folder_onto_file(target: &endpoint::Target, source: &Sources, to: &[u8]) -> Result<(), Failure> {
    let is_file = |volume: &Dir| volume.stat(&target.top).is_ok_and(|it| it.kind == Kind::File);
    if target.top.is_empty() || target.is_absent || !target.volumes.iter().any(is_file) {
        return Ok(());
    }
    let is_folder =
        |root: &Root| root.name.is_empty() || root.parent.stat(&root.name).is_ok_and(|it| it.kind == Kind::Folder);
    if !source.trees().iter().any(|tree| tree.roots().any(|(_, root)| is_folder(root))) {
        return Ok(());
    }
    let what = format!("open the destination '{}'", crate::report::show_path(to));
    Err(Exit::Usage.fail(what, "it is a file, and the source is a folder").next(
        "remove the file, or name another destination: a `/` at its end puts the folder into a folder of that name",
    ))
}

/// The destination, which may share blocks with the source.
fn sink(copy: &Copy<'_>, target: endpoint::Target, source: Arc<Sources>) -> (Arc<Sinks>, driver::Sync) {
    let (chooser, sync) = (session::storage(copy), session::sync(copy));
    let kept = copy.request.aspects;
    // Of a set of volumes only the scan knows which has a file.
    let is_one = source.trees().len() == 1 && !source.is_striped();
    let clones = is_one.then_some((source, copy.request.reflink));
    session::sink(target, &chooser, sync, kept, copy.choice.filter.clone(), clones)
}

fn tell_clones(sinks: &Sinks, source: &Sources, events: &mut Events<'_>) {
    report::written_meanwhile(source).into_iter().for_each(|it| events.note(&it));
    let sum = sinks.trees().map(LinuxSink::cloned).fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    if let (files @ 1.., bytes) = sum {
        let what = "share their blocks with the source; their digests are of what stands at the destination";
        events.note(&format!("{files} files of together {bytes} bytes {what}"));
    }
}

/// Where the sending half writes its receipt while both run.
fn sender_receipt(wanted: &Path) -> PathBuf {
    let mut path = wanted.as_os_str().to_owned();
    path.push(".sender");
    path.into()
}

/// The same offer twice; payload stays in the process and is not encrypted.
fn agree(copy: &Copy<'_>) -> Result<(Offer, Plan, Vec<Choice>), Failure> {
    let mut requested = session::requested(copy);
    requested.integrity_only = true;
    requested.datagrams = 0;
    let own = offer::offer(&requested);
    let (plan, choices) = negotiate(&own, &own, true)
        .map_err(|refusal| Exit::of_refusal(refusal).fail("agree on a plan", refusal.what()))?;
    Ok((own, plan, choices))
}

/// Turns both ends; the sender's outcome, with what only the receiver knows.
fn turn_both(sender: Job<'_>, mut receiver: Job<'_>, events: &mut Events<'_>) -> Result<Outcome, Failure> {
    // One cap, and one end that holds it: `job set` asks the sender.
    (receiver.plan.rate_bps, receiver.bound) = (0, Arc::default());
    let mut pace = report::Pace::of_one_host();
    let (say, said) = channel::<String>();
    let (sent, received) = std::thread::scope(|scope| {
        // The sender's end may be gone, and its events with it.
        let there = scope.spawn(move || {
            driver::run(receiver, &mut |status, _| status.said.iter().for_each(|it| drop(say.send(it.clone()))))
        });
        let here = driver::run(sender, &mut |status, notes| {
            said.try_iter().for_each(|it| events.note(&it));
            report::tell(events, &mut pace, status, notes, true);
        });
        (here, there.join())
    });
    said.try_iter().for_each(|it| events.note(&it));
    let received = received.map_err(|_| Exit::Bug.fail("receive", "the receiving end panicked"))?;
    let (mut sent, received) = match (sent, received) {
        (Ok(sent), Ok(received)) => (sent, received),
        // The receiver's reason is the nearer one when both ended: the sender only saw it go.
        (_, Err(failure)) if failure.exit != Exit::Lost => return Err(failure),
        (Err(failure), _) | (_, Err(failure)) => return Err(failure),
    };
    sent.receipt = received.receipt;
    sent.receipt_missing = received.receipt_missing.or(sent.receipt_missing);
    sent.storage.extend(received.storage);
    sent.peers = Some(received.own);
    Ok(sent)
}
