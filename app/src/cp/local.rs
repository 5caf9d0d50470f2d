//! Both ends in this process: local to local.
//!
//! For: a copy on one host with the same resume, digests, receipt and report as over a network.
//! In and out: paths in; an exit code out.
//! Invariants: the same two job ends, over a socket pair instead of TCP; payload does not leave the process, so it is not encrypted, but
//! every chunk is checked as ever.
//! Absent on purpose: reflinks and `copy_file_range` (storage work).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;

use proto::negotiate::{Choice, Offer, Plan, negotiate};
use proto::wire::control::Rung;
use sys::event::Event;

use crate::cp::{Copy, report, session};
use crate::exit::{Exit, Failure};
use crate::job::keeper::{self, Job, Outcome, Way};
use crate::job::offer;
use crate::job::place::{self, Ground};
use crate::job::rails::Rails;
use crate::job::receipt;
use crate::link::Link;
use crate::report::Screen;

/// Copies within this host.
pub fn run(copy: &Copy<'_>, paths: &[Box<[u8]>], to: &[Box<[u8]>], screen: &mut Screen) -> Result<Exit, Failure> {
    let ground = Ground::here();
    let dry = copy.arguments.dry_run;
    let into_folder = session::is_into_folder(copy, paths, &to[0]);
    let target = place::target(&ground, to, copy.layout, into_folder, dry)?;
    let kept = copy.arguments.keep.aspects();
    let source = place::source(&ground, paths, &target.top, session::storage(copy), copy.joined)?;
    // Both ends are this host: its numbers mean the same.
    let source = Arc::new(source.map(|it| it.keeping(kept, true)));
    let (own, plan, choices) = agree(copy)?;
    let carry = receipt::carry_path(&copy.home, &target.name);
    let carried = receipt::carried(&carry);
    let (sink, sync) = session::sink(target, &session::storage(copy), session::sync(copy), kept);
    let id = session::job_id()?;
    let rung: Rung = copy.arguments.rung.into();
    let start = |error: std::io::Error| Exit::of_io(&error).fail("start the job", error);
    let (near, far) = Link::pair().map_err(start)?;
    let (bell, far_bell) = (Event::new().map_err(start)?, Event::new().map_err(start)?);
    let (to_far, from_near) = channel();
    let (workers, pool_bytes) = session::start_workers(copy, plan.workers.0, plan.chunk_bytes)?;
    let (far_workers, _) = session::start_workers(copy, plan.workers.1, plan.chunk_bytes)?;
    if copy.arguments.explain {
        let explained = report::Explaining {
            own: &own,
            theirs: None,
            choices: &choices,
            workers: &workers,
            granted: copy.arguments.memory,
        };
        explained.show(screen);
    }
    let wanted = copy.arguments.receipt.clone().unwrap_or_else(|| receipt::default_path(&copy.home, &id));
    let senders = (!dry).then(|| sender_receipt(&wanted));
    let make = |link, way, workers: Arc<engine::host::Workers>, rails, bell, receipt, carry| Job {
        no: session::next_job(),
        id,
        link,
        identity: &copy.identity,
        peer_key: copy.identity.public(),
        plan: plan.clone(),
        terms: offer::terms(&plan, rung),
        rung,
        layout: copy.layout,
        dry,
        known: None,
        way,
        workers: engine::host::Team::new(workers, 0, u16::MAX),
        pool_bytes,
        rails,
        bell,
        stall: copy.arguments.stall,
        receipt,
        carry,
        rate: plan.rate_bps / 8,
        share: None,
    };
    let rails = Rails::dial_pair(to_far, far_bell.clone(), bell.clone());
    let sender = make(near, Way::Send(source), workers, rails, bell, Option::clone(&senders), None);
    let way = Way::Recv { sink, keep: !copy.arguments.no_keep, carried, sync };
    let wait = Rails::Wait { from: from_near };
    let receiver = make(far, way, far_workers, wait, far_bell, (!dry).then_some(wanted), (!dry).then_some(carry));
    let facts = report::Facts { copy, job: id, direction: None, plan: &plan, choices: &choices, shared: true, rung };
    let ended = turn_both(sender, receiver, screen, copy.arguments.verbose);
    if let Some(path) = senders {
        // The receiver's copy is the one that stays; both are the same byte for byte.
        let _ = std::fs::remove_file(path);
    }
    report::end(&facts, ended?, screen)
}

/// Where the sending half writes its receipt while both run.
fn sender_receipt(wanted: &Path) -> PathBuf {
    let mut path = wanted.as_os_str().to_owned();
    path.push(".sender");
    path.into()
}

/// The same offer twice; payload stays in the process and is not encrypted.
fn agree(copy: &Copy<'_>) -> Result<(Offer, Plan, Vec<Choice>), Failure> {
    let mut wishes = session::wishes(copy);
    wishes.integrity_only = true;
    wishes.datagrams = 0;
    let own = offer::offer(&wishes);
    let (plan, choices) = negotiate(&own, &own, true)
        .map_err(|refusal| Exit::of_refusal(refusal).fail("agree on a plan", refusal.what()))?;
    Ok((own, plan, choices))
}

/// Turns both ends; the sender's outcome, with what only the receiver knows.
fn turn_both(sender: Job<'_>, receiver: Job<'_>, screen: &mut Screen, verbose: u8) -> Result<Outcome, Failure> {
    let mut pace = report::Pace::default();
    let (sent, received) = std::thread::scope(|scope| {
        let there = scope.spawn(|| keeper::run(receiver, &mut |_, _| {}));
        let here =
            keeper::run(sender, &mut |status, notes| report::tell(screen, &mut pace, status, notes, true, verbose));
        (here, there.join())
    });
    let received = received.map_err(|_| Exit::Bug.fail("receive", "the receiving end panicked"))?;
    let (mut sent, received) = match (sent, received) {
        (Ok(sent), Ok(received)) => (sent, received),
        // The receiver's reason is the nearer one when both ended: the sender only saw it go.
        (_, Err(failure)) if failure.exit != Exit::Lost => return Err(failure),
        (Err(failure), _) | (_, Err(failure)) => return Err(failure),
    };
    sent.receipt = received.receipt;
    sent.storage.extend(received.storage);
    sent.peers = Some(received.own);
    Ok(sent)
}
