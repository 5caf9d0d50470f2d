//! Copies from and to servers of FTP.
//!
//! For: `ftp://` and `ftps://` as an end of `cp` and `sync`, and what `verify` looks at.
//! In and out: a `JobRequest` with such an end; `JobEvent`s on the way, an exit code out.
//! Invariants: the other end of such a copy is this host; the bytes move by the engine (`rail::plain`, `tree::sink`), and have their name when all of them
//! came; what the server does not say is not claimed: the report says whether the far side was asked.
//! Absent on purpose: two servers at once, receipts (nobody signs at the other end).
//!
//! The modules stand in the order in which a copy meets them.

pub mod address; // where
pub mod credentials; // as whom
pub mod trust; // whose certificate is believed
pub mod tls; // terms of TLS, handshakes of data connections
pub mod control; // a session
pub mod lhdata; // a session of ours, where a Longhaul is the server
pub mod remote; // what is there
pub mod queue; // what is to be done
pub mod get; // from there
pub mod put; // and to there
pub mod near; // folders of this host
pub mod check; // what a receipt says, against what is there

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::rail::plain::bufs::Bufs;
use engine::tree::sink::open_ended::How;
use engine::worker::bound::Bound;
use proto::books::{Books, End, Verdict};
use proto::wire::control::Direction;
use rustls::crypto::aws_lc_rs;
use text::exit::{Exit, Failure};

use self::address::FtpAddress;
use self::control::{Control, Server, Trouble};
use self::credentials::Login;
use self::get::Get;
use self::put::Put;
use self::queue::{Queue, Tally, Task};
use self::trust::Verifier;
use crate::client::recorded::Recorded;
use crate::client::{Manner, Node};
use crate::event::{Events, Watch};
use crate::report::history::{EndedJob, JobRecord};
use crate::report::{EndReport, Progress};
use crate::request::{FtpTerms, JobRequest};

/// Connections of a copy, when nobody says otherwise.
const STREAMS: usize = 4;
/// So often progress is told.
const TICK: Duration = Duration::from_millis(200);
/// A session that is lost is made again after this, so many times in a row.
const AGAIN_AFTER: Duration = Duration::from_millis(300);
const AGAIN_MAX: u32 = 6;

/// Runs a copy of which an end is a server of FTP.
///
/// # Errors
/// What ended it.
pub fn run(node: &Node, request: &JobRequest, manner: &Manner, watch: &mut dyn Watch) -> Result<Exit, Failure> {
    // Where no home can be written to, the command line has named one in a folder that goes with it.
    let has_receipt = request.receipt.is_some() && !manner.without_receipt;
    let (began, is_asked) = (Instant::now(), lhdata::is_wanted(request));
    if !is_asked {
        check(request, has_receipt)?;
    }
    let far = |all: &[std::ffi::OsString]| all.iter().map(|it| FtpAddress::of(it)).collect::<Result<Vec<_>, _>>();
    let (sources, destinations) = (far(&request.sources)?, far(&request.destinations)?);
    let [destination] = &destinations[..] else {
        return Err(Exit::Usage.fail("find the destination", "a copy from or to a server of FTP has one"));
    };
    let is_get = destination.is_none();
    let address = match (destination, &sources[..]) {
        (None, [Some(first), rest @ ..]) if rest.iter().flatten().count() == rest.len() => {
            if let Some(other) = rest.iter().flatten().find(|it| !it.is_same_server(first)) {
                let cause = format!("'{first}' and '{other}' are on different hosts");
                return Err(Exit::Usage
                    .fail("use two hosts at once", cause)
                    .next("give each host a command of its own"));
            }
            first
        }
        (Some(to), all) if all.iter().all(Option::is_none) => to,
        _ => {
            let cause = "one end is a server of FTP, and the other is not this host";
            return Err(Exit::Usage.fail("copy between two other hosts", cause).next("copy to this host first"));
        }
    };
    let record =
        if request.dry_run { JobRecord::default() } else { node.history().begin(ended(request, manner, is_get)) };
    let mut recorded = Recorded::new(watch, record.clone(), true);
    let mut events = Events::to(&mut recorded);
    let kept = node.home().path(trust::FILE);
    let terms = (address, &request.ftp, request.stall);
    let done = server(Some(&kept), terms, &mut |text| events.note(text)).and_then(|server| {
        let asked = lhdata::asked(request);
        let known = lhdata::Known::of(node.home(), address);
        // Where TLS comes before the greeting, it may be one; what is none is asked again.
        server.is_longhaul.store(known.is_there() || address.is_implicit, Ordering::Relaxed);
        let first = Control::open_asking(&server, is_asked.then_some(&asked))
            .map_err(|trouble| first_failure(&server, trouble))?;
        keep_fingerprint(node, request, address, &mut events);
        if is_asked && let Err(error) = known.keep(first.is_upgraded()) {
            events.detail(&format!("that the server is a Longhaul is not kept: {error}"));
        }
        if first.is_upgraded() {
            let session = lhdata::Upgraded::new(&server, asked, first);
            return crate::client::run_over(node, request, manner, (&session, record.clone(), began), &mut events);
        }
        check(request, has_receipt)?;
        copy(&server, first, request, (&sources, is_get, began), &mut events)
    });
    match &done {
        Ok(exit) => record.end(*exit, None),
        Err(failure) => recorded.failed(failure),
    }
    done
}

fn ended(request: &JobRequest, manner: &Manner, is_get: bool) -> EndedJob {
    let of = |text: Option<&std::ffi::OsString>| {
        let Some(text) = text else { return String::new() };
        match FtpAddress::of(text) {
            Ok(Some(address)) => address.to_string(),
            _ => crate::report::show_path(std::path::absolute(text).unwrap_or_default().as_os_str().as_bytes()),
        }
    };
    EndedJob {
        side: "client".to_owned(),
        command: if manner.command.is_empty() { "cp" } else { manner.command }.to_owned(),
        end: if is_get { "receives" } else { "sends" }.to_owned(),
        source: of(request.sources.first()),
        destination: of(request.destinations.first()),
        ..EndedJob::default()
    }
}

/// What a server of FTP has no word for.
fn check(request: &JobRequest, has_receipt: bool) -> Result<(), Failure> {
    let refused = [
        (
            request.stripe.is_some() || request.joined,
            "--stripe and --join are for folders of this host and of Longhaul",
        ),
        (
            request.names.is_some() || !request.rules.is_empty(),
            "entries cannot be chosen here: --files-from, --include, --exclude",
        ),
        (!request.paths.is_empty(), "--path is for copies between two Longhauls"),
        (request.trace.is_some(), "no congestion control of ours is at work: --trace"),
        (has_receipt, "nobody signs at the other end: --receipt"),
    ];
    match refused.iter().find(|(is, _)| *is) {
        Some((_, cause)) => {
            Err(Exit::Usage.fail("copy from or to a server of FTP", *cause).next("leave the option out"))
        }
        None => Ok(()),
    }
}

/// The server as every connection meets it.
fn server(
    kept: Option<&Path>,
    (address, terms, stall): (&FtpAddress, &FtpTerms, Duration),
    note: &mut dyn FnMut(&str),
) -> Result<Server, Failure> {
    let terms = terms.clone();
    if address.password.is_some() {
        note(
            "a password in an address is seen by all who see this host's processes: --password-file or ~/.netrc keeps it",
        );
    }
    let login = Login::of(address, &terms)?;
    let pinned = match &terms.fingerprint {
        None => kept.and_then(|file| trust::kept(file, &address.host_port())),
        Some(text) => {
            let bad = "it is no SHA-256: 64 hexadecimal digits, with or without colons";
            Some(trust::parse(text).ok_or_else(|| Exit::Usage.fail("read --ftp-fingerprint", bad))?)
        }
    };
    if terms.allow_clear && !address.is_implicit {
        note("FTP without TLS: name, password and files go in clear, and nothing vouches for the server");
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(Verifier::new(pinned, Arc::clone(&provider)));
    Ok(Server {
        address: address.clone(),
        login,
        terms,
        verifier,
        provider,
        stall,
        is_one_by_one: Default::default(),
        is_longhaul: Default::default(),
        is_tls12: Default::default(),
        is_done: Default::default(),
    })
}

/// What ended a session ends the copy, where it was the first one.
fn first_failure(server: &Server, trouble: Trouble) -> Failure {
    let host_port = server.address.host_port();
    match trouble {
        Trouble::Failure(failure) => failure,
        Trouble::Lost(why) => Exit::Lost.fail(format!("talk to {host_port}"), why),
        Trouble::Crowd(said) => Exit::Refused
            .fail(format!("log in at {host_port}"), format!("the server takes no more clients: {said}"))
            .next("run the same command again later"),
    }
}

/// What the user vouched for counts from now on.
fn keep_fingerprint(node: &Node, request: &JobRequest, address: &FtpAddress, events: &mut Events<'_>) {
    if let Some(pinned) = request.ftp.fingerprint.as_deref().and_then(trust::parse)
        && trust::kept(&node.home().path(trust::FILE), &address.host_port()) != Some(pinned)
        && let Err(error) = trust::keep(&node.home().path(trust::FILE), &address.host_port(), &pinned)
    {
        events.detail(&format!("the fingerprint is not kept: {error}"));
    }
}

fn copy<'s>(
    server: &'s Server,
    mut first: Control<'s>,
    request: &JobRequest,
    (sources, is_get, began): (&[Option<FtpAddress>], bool, Instant),
    events: &mut Events<'_>,
) -> Result<Exit, Failure> {
    let address = &server.address;
    let streams = request.streams.map_or(STREAMS, usize::from);
    let (can_verify, cipher) = (first.digest_word(), first.cipher());
    let failed = |error: std::io::Error| Exit::of_io(&error).fail("prepare the copy", error);
    let bufs = Bufs::new(request.memory_bytes.min(64 << 20)).map_err(failed)?;
    let bound = Bound::new(request.rate_bps.unwrap_or(0).div_ceil(8), None);
    let how = How { durability: request.durability, digest: request.digest };
    let done = if is_get {
        let far: Vec<&FtpAddress> = sources.iter().flatten().collect();
        let plan = near::destination(request, &mut first, &far).map_err(|trouble| first_failure(server, trouble))?;
        let get = Get {
            queue: Queue::new(streams),
            base: plan.base,
            base_is_new: plan.is_new,
            small: Arc::default(),
            how,
            keep: request.keep,
            dry_run: request.dry_run,
            streams,
            bufs,
            bound,
            seen: request.prune.map(|_| Mutex::new(HashSet::new())),
            open: Mutex::default(),
            whole: AtomicU64::new(0),
        };
        // Of what the user named; the rest is counted where it is listed.
        let named = plan.tasks.iter().filter_map(|task| if let Task::File(it) = task { Some(it.bytes) } else { None });
        get.queue.tally().found = named.fold((0, 0), |(files, all), it| (files + 1, all + it.unwrap_or(0)));
        get.queue.add(plan.tasks);
        let done = || {
            let open = get.open.lock().unwrap_or_else(PoisonError::into_inner);
            let there = |file: &engine::tree::sink::ranged::Ranged, bytes: u64| {
                bytes - file.missing().iter().map(|it| it.end - it.start).sum::<u64>()
            };
            let some: u64 = open.iter().filter_map(|(file, bytes)| Some(there(&*file.upgrade()?, *bytes))).sum();
            get.whole.load(Ordering::Relaxed) + some
        };
        crew(server, first, &get.queue, streams, began, &done, &|control| get.work(control), events);
        end_get(&get, request, events)?
    } else {
        let plan = near::sources(request, &mut first, address).map_err(|trouble| first_failure(server, trouble))?;
        let put = Put::new(request, plan, bufs, bound, streams);
        let done = || put.moved.load(Ordering::Relaxed);
        crew(server, first, &put.queue, streams, began, &done, &|control| put.work(control), events);
        put.end(server, events)?
    };
    if done.files > 0 && !request.dry_run {
        say_read(&done, can_verify, server, events);
    }
    if request.dry_run {
        return Ok(events.end_dry(dry(done)));
    }
    Ok(events.end(report(request, done, (cipher, is_get), began.elapsed())))
}

/// Was the far side read?
fn say_read(done: &Tally, word: Option<&str>, server: &Server, events: &mut Events<'_>) {
    let host = server.address.host_port();
    match word {
        Some(word) if done.verified == done.files => {
            events.note(&format!(
                "the far side was asked: {host} told the digest of every file ({word}), and it is the same"
            ));
        }
        Some(word) => events.note(&format!(
            "the far side was asked in part: {host} told the digest of {} of {} files ({word})",
            done.verified, done.files
        )),
        None => events
            .note(&format!("far side unread: {host} has no command that tells a file's digest; lengths were compared")),
    }
}

/// The connections of a copy, and what is told meanwhile.
#[expect(clippy::too_many_arguments, reason = "what two kinds of copies share")]
fn crew<'s, R: Send>(
    server: &'s Server,
    first: Control<'s>,
    queue: &Queue<R>,
    streams: usize,
    began: Instant,
    done: &dyn Fn() -> u64,
    work: &(dyn Fn(&mut Control<'_>) -> Result<(), Trouble> + Sync),
    events: &mut Events<'_>,
) {
    std::thread::scope(|scope| {
        let mut first = Some(first);
        for nth in 0..streams {
            let control = first.take();
            let name = std::thread::Builder::new().name("ftp-client".to_owned());
            let spawned = name.spawn_scoped(scope, move || member(server, control, queue, nth, work));
            if spawned.is_err() && nth == 0 {
                queue.end(Exit::Io.fail("begin the copy", "no thread can be made"));
            }
        }
        let (mut last, mut last_done) = (began, 0);
        while !queue.is_idle() {
            std::thread::sleep(if began.elapsed() < TICK { Duration::from_millis(2) } else { TICK / 10 });
            if last.elapsed() < TICK {
                continue;
            }
            let (bytes_done, seconds) = (done(), last.elapsed().as_secs_f64());
            let rate_bps = bytes_done.saturating_sub(last_done) as f64 * 8.0 / seconds;
            (last, last_done) = (Instant::now(), bytes_done);
            let mut tally = queue.tally();
            let untold = std::mem::take(&mut tally.untold);
            let progress = Progress {
                bytes_total: Some(tally.found.1.max(bytes_done)),
                bytes_done,
                files_total: tally.found.0,
                files_done: tally.files + tally.kept_files,
                rate_bps,
                received: bytes_done,
                written: bytes_done,
                entries_failed: tally.faults.count(),
                elapsed: began.elapsed(),
                ..Progress::default()
            };
            drop(tally);
            untold.into_iter().for_each(|fault| events.fault(fault));
            let _ = events.progress(progress);
        }
        server.is_done.store(true, Ordering::Relaxed);
    });
    server.is_done.store(false, Ordering::Relaxed);
    let mut tally = queue.tally();
    let (untold, notes) = (std::mem::take(&mut tally.untold), std::mem::take(&mut tally.notes));
    drop(tally);
    untold.into_iter().for_each(|fault| events.fault(fault));
    notes.iter().for_each(|note| events.note(note));
}

/// One connection: made when there is work for it, made again when it is lost.
fn member<'s, R>(
    server: &'s Server,
    mut control: Option<Control<'s>>,
    queue: &Queue<R>,
    nth: usize,
    work: &(dyn Fn(&mut Control<'_>) -> Result<(), Trouble> + Sync),
) {
    let (mut lost, mut is_careful) = (0, false);
    loop {
        if control.is_none() && !queue.wait(nth) {
            break;
        }
        let worked = match control.take().map_or_else(|| Control::open(server), Ok) {
            Ok(mut control) => {
                if is_careful {
                    control.pipeline.one_by_one();
                }
                let worked = work(&mut control);
                if worked.is_ok() {
                    control.quit();
                    break;
                }
                lost = if control.proved { 0 } else { lost };
                worked
            }
            Err(trouble) => Err(trouble),
        };
        match worked {
            Ok(()) => break,
            Err(_) if server.is_done.load(Ordering::Relaxed) => break,
            Err(Trouble::Failure(failure)) => {
                queue.end(failure);
                break;
            }
            Err(Trouble::Crowd(said)) if nth > 0 => {
                queue.tally().note(&format!("fewer connections: the server said {said}"));
                break;
            }
            Err(trouble) => {
                is_careful = true;
                lost += 1;
                if lost > AGAIN_MAX {
                    queue.end(first_failure(server, trouble));
                    break;
                }
                std::thread::sleep(AGAIN_AFTER * lost);
            }
        }
    }
    let _ = queue.leave();
}

/// Times of folders, then what the source does not have.
fn end_get(get: &Get, request: &JobRequest, events: &mut Events<'_>) -> Result<Tally, Failure> {
    let mut tally = std::mem::take(&mut *get.queue.tally());
    let is_whole = get.queue.ended().is_none() && tally.faults.count() == 0;
    if let (Some(most), Some(seen), true) = (request.prune, &get.seen, is_whole) {
        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        tally.removed = near::prune(&get.base, &seen, most, request.dry_run)?;
    }
    for (near, seconds) in tally.times.drain(..).rev() {
        let set = if near.is_empty() {
            get.base.stat_self().and_then(|stat| get.base.set_meta_self(stat.mode, (seconds, 0)))
        } else {
            get.base.set_meta(&near, None, Some((seconds, 0)), false)
        };
        if let Err(error) = set {
            events.detail(&format!("the time of a folder is not kept: {error}"));
        }
    }
    if let Err(error) = get.small.end(&get.base, is_whole) {
        return Err(Exit::of_io(&error).fail("bring names of files to stable storage", error));
    }
    match get.queue.ended() {
        Some(failure) => Err(failure),
        None => Ok(tally),
    }
}

fn dry(done: Tally) -> crate::report::DryRun {
    crate::report::DryRun {
        files: done.files,
        bytes: done.bytes,
        folders: done.folders,
        kept_files: done.kept_files,
        kept_bytes: done.kept_bytes,
        extras: crate::report::Extras { removed: done.removed, ..Default::default() },
        faults: done.faults.count(),
        ..Default::default()
    }
}

fn report(request: &JobRequest, done: Tally, (cipher, is_get): (Option<String>, bool), took: Duration) -> EndReport {
    let seconds = took.as_secs_f64();
    let limiter = Verdict { end: End::Receiver, what: None, share_percent: 0, ceiling_bps: 0, sentence: String::new() };
    let mut job = [0; 16];
    let _ = ::aws_lc_rs::rand::fill(&mut job);
    EndReport {
        job,
        direction: Some(if is_get { Direction::Pull } else { Direction::Push }),
        bytes: done.bytes,
        files: done.files,
        lost_sessions: 0,
        earlier_files: 0,
        earlier_bytes: 0,
        folders: done.folders,
        links: 0,
        nodes: 0,
        hard_links: 0,
        unkept: Default::default(),
        unnamed: Default::default(),
        kept_files: done.kept_files,
        kept_bytes: done.kept_bytes,
        equal_files: 0,
        equal_bytes: 0,
        resumed_bytes: done.resumed,
        readback_failed_bytes: 0,
        hole_bytes: 0,
        compared: Default::default(),
        extras: crate::report::Extras { removed: done.removed, ..Default::default() },
        seconds,
        goodput_bps: done.bytes as f64 * 8.0 / seconds,
        wire_bps: None,
        nics: Default::default(),
        cpu_seconds_local: sys::clock::process_cpu_ns() as f64 / 1e9,
        cpu_seconds_remote: None,
        peak_memory_bytes_local: sys::clock::peak_memory_bytes(),
        peak_memory_bytes_remote: None,
        transport: if cipher.is_some() { "ftps" } else { "ftp" }.to_owned(),
        rails: Vec::new(),
        resent_bytes: 0,
        path: None,
        forecast: None,
        limiter,
        stages_local: Books::default(),
        stages_remote: None,
        receipt: None,
        receipt_missing: None,
        destination: request.destinations.first().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default(),
        digest: request.digest,
        cipher: Some(cipher.clone().unwrap_or_default()),
        integrity_only: false,
        bare: cipher.is_none(),
        far_unread: done.verified < done.files,
        durability: request.durability,
        faults: done.faults,
        choices: Vec::new(),
    }
}

#[cfg(test)]
mod tests; // servers that mean harm
