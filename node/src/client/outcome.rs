//! Outcome → end report; status → progress.
//!
//! For: the events's plain figures.
//! In and out: what the job driver knows in; what `crate::report` shows out.
//! Invariants: figures are taken as they are; what cannot be is flagged there, not mended here.
//! Absent on purpose: drawing (crate::report).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::host::Workers;
use engine::machine::{FailedEntry, Tally};
use engine::tree::Sources;
use engine::tree::source::LinuxSource;
use proto::books::{Books, End, Run, STAGES, Stage, limiter};
use proto::layout::Layout;
use proto::negotiate::{Choice, Cipher, Offer, Plan, RdmaKind};
use proto::wire::control::{Compare, Direction, Durability};

use crate::client::{Copy, STREAM, session};
use crate::event::Events;
use crate::ftp::client::address::FtpAddress;
use crate::job::driver::beside::looks::RailLook;
use crate::job::driver::{Outcome, PathShare, Status};
use crate::report::explain::MemorySum;
use crate::report::nics::{self, NicRates};
use crate::report::path::{Expectation, ForecastRecord, PathRecord};
use crate::report::trace::sample::{RailId, RailRecord, Sample};
use crate::report::{
    Compared, DryRun, EndReport, Explained, Extras, Faults, OwnersByNumber, PathFault, Progress, RailShare,
    Reconnecting, is_telling, json,
};
use text::exit::{Exit, Failure};

/// What `--explain` shows.
#[derive(Debug)]
pub struct Explaining<'a> {
    /// This end's offer.
    pub own: &'a Offer,
    /// The offer of the other end; `None`: both ends are in this process.
    pub theirs: Option<&'a Offer>,
    /// What was chosen.
    pub choices: &'a [Choice],
    /// Started.
    pub workers: &'a Arc<Workers>,
    /// Bytes granted.
    pub granted: u64,
}

impl Explaining<'_> {
    /// Shows it.
    pub fn show(&self, events: &mut Events<'_>) {
        let mut parts: Vec<(String, u64)> = Vec::new();
        for (index, started) in self.workers.started.iter().enumerate() {
            parts.push((format!("pool of worker {index} ({} pages)", started.pages), started.pool_bytes as u64));
        }
        let window = (proto::WINDOW * 512 + proto::WINDOW_NAME_BYTES * 2) as u64;
        parts.push(("window of entries and their names".to_owned(), window));
        if self.own.datagrams > 0 {
            let bytes = usize::from(self.own.datagrams) * engine::rail::datagram::RAIL_BYTES;
            parts.push(("bursts of datagram rails".to_owned(), bytes as u64));
        }
        parts.push(("threads, TLS, mailboxes".to_owned(), 16 << 20));
        let memory = MemorySum { parts, granted_bytes: self.granted };
        let started = &self.workers.started[0].driver;
        let (driver, reason) = started.split_once(": ").unwrap_or((started, ""));
        events.plan(json::PlanRecord::of(&Explained {
            local: self.own,
            remote: self.theirs,
            choices: self.choices,
            memory: &memory,
            driver,
            driver_reason: reason,
        }));
    }
}

/// What a report needs besides the outcome.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The command.
    pub copy: &'a Copy<'a>,
    /// Its random name.
    pub job: [u8; 16],
    /// None: both ends are here.
    pub direction: Option<Direction>,
    /// What was agreed.
    pub plan: &'a Plan,
    /// What was chosen, and the reason of each choice.
    pub choices: &'a [Choice],
    /// Both ends use the same cores.
    pub shared: bool,
    /// How durable.
    pub durability: Durability,
    /// What was compared of what stands at the destination.
    pub compare: Compare,
}

impl Facts<'_> {
    fn compared(&self, bytes: u64) -> Compared {
        Compared { bytes, files: self.compare, is_less: self.compare != session::sync(self.copy).compare }
    }
}

/// Shorter moments than this show chance, not a rate.
const MOMENT: Duration = Duration::from_millis(400);

/// What the live figures remember.
#[derive(Debug, Default)]
pub struct Pace {
    payload: Rate,
    written: Window,
    rails: Rate,
    paths: Vec<Rate>,
    limit: Limit,
    told: usize,
    looks: BTreeMap<RailId, Sample>,
    is_one_host: bool,
}

impl Pace {
    /// Of a copy within one host.
    #[must_use]
    pub fn of_one_host() -> Pace {
        Pace { is_one_host: true, ..Pace::default() }
    }

    /// Each rail since it was told last, where it was looked at since.
    fn tell_rails(&mut self, status: &Status<'_>, events: &mut Events<'_>) {
        for RailLook { id, facts, sample } in status.looks {
            let before = self.looks.insert(*id, *sample).unwrap_or_default();
            if before.at_ns < sample.at_ns {
                events.rail(RailRecord::of(*id, facts, &before, sample));
            }
        }
    }

    /// The rails as one share, or each path as it is now.
    fn rails_now(&mut self, status: &Status<'_>, bytes: u64, rate_bps: f64) -> Vec<RailShare> {
        let mut shares = rails(status.rails, status.paths, bytes, rate_bps);
        if status.paths.len() == shares.len() && shares.len() > 1 {
            self.paths.resize_with(shares.len(), Rate::default);
            for ((share, rate), path) in shares.iter_mut().zip(&mut self.paths).zip(status.paths) {
                share.rate_bps = rate.at(path.bytes);
            }
        }
        shares
    }
}

/// Rate over the last moments.
#[derive(Debug, Default)]
struct Rate {
    last: Option<(Instant, u64)>,
    rate_bps: f64,
}

impl Rate {
    fn at(&mut self, moved: u64) -> f64 {
        let now = Instant::now();
        match self.last {
            Some((then, before)) if now - then >= MOMENT => {
                let rate = moved.saturating_sub(before) as f64 * 8.0 / (now - then).as_secs_f64();
                self.rate_bps = if self.rate_bps == 0.0 { rate } else { self.rate_bps * 0.5 + rate * 0.5 };
                self.last = Some((now, moved));
            }
            None => self.last = Some((now, moved)),
            Some(_) => {}
        }
        self.rate_bps
    }
}

/// The rate shown is of so long: long enough that a disk's flushes do not make it jump, short enough to follow a change.
const WINDOW: Duration = Duration::from_secs(5);

/// Bytes over the last moments, of a job's own time.
#[derive(Debug, Default)]
struct Window {
    marks: VecDeque<(Duration, u64)>,
}

impl Window {
    /// bit/s at `now`, when so many bytes are there; never above the cap (0: there is none).
    fn at(&mut self, now: Duration, bytes: u64, cap_bps: u64) -> f64 {
        // A session that was made again counts from its own beginning.
        if self.marks.back().is_some_and(|&(at, had)| now < at || bytes < had) {
            self.marks.clear();
        }
        if self.marks.back().is_none_or(|&(at, _)| now - at >= MOMENT) {
            self.marks.push_back((now, bytes));
        }
        while self.marks.get(1).is_some_and(|&(at, _)| now - at >= WINDOW) {
            self.marks.pop_front();
        }
        let (since, had) = self.marks[0];
        let over = now - since;
        if over < MOMENT {
            return 0.0;
        }
        let rate_bps = (bytes - had) as f64 * 8.0 / over.as_secs_f64();
        if cap_bps > 0 { rate_bps.min(cap_bps as f64) } else { rate_bps }
    }
}

/// The stage that took most since figures were last shown: what limited the first minute says nothing about the tenth.
#[derive(Debug, Default)]
struct Limit {
    shown: Option<Instant>,
    ns: [u64; STAGES],
    stage: Option<Stage>,
}

impl Limit {
    fn is_moment(&self) -> bool {
        self.shown.is_none_or(|shown| shown.elapsed() >= MOMENT)
    }

    fn at(&mut self, own: &Books) -> Option<Stage> {
        if self.is_moment() {
            let since = |stage: Stage| own.of(stage).saturating_sub(self.ns[stage as usize]);
            let largest =
                Stage::ALL.into_iter().filter(|&stage| stage != Stage::Idle).max_by_key(|&stage| since(stage));
            self.stage = largest.filter(|&stage| since(stage) > 0);
        }
        self.stage
    }

    fn shown(&mut self, own: &Books) {
        if self.is_moment() {
            self.shown = Some(Instant::now());
            self.ns = own.ns;
        }
    }
}

/// All rails as one share: their single counts stay with the workers. Of several paths each has its own, by the counts of what it brought.
fn rails(count: usize, paths: &[PathShare], bytes: u64, rate_bps: f64) -> Vec<RailShare> {
    let sum: u64 = paths.iter().map(|it| it.bytes).sum();
    if paths.len() < 2 || sum == 0 {
        let name = if count == 1 { "1 rail".to_owned() } else { format!("{count} rails") };
        return vec![RailShare { name, bytes, rate_bps, share: None, weight: None, off_weight: false }];
    }
    let each = paths.iter().map(|it| {
        let share = it.bytes as f64 / sum as f64;
        RailShare {
            name: it.name.clone(),
            bytes: (bytes as f64 * share).ceil() as u64,
            rate_bps: rate_bps * share,
            share: Some(share),
            weight: it.weight,
            off_weight: it.was_off,
        }
    });
    each.collect()
}

/// What is to be said of source files that somebody had open for writing.
#[must_use]
pub fn written_meanwhile(source: &Sources) -> Vec<String> {
    let counts = source.trees().iter().map(LinuxSource::written_meanwhile);
    let (clones, unseen) = counts.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    let cloned = format!("{clones} files were read from private clones: each is as it was at one moment");
    let blind = format!(
        "{unseen} files were open for writing while they were read, on a file system that does not tell of writes through a mapping: such \
         a write would not have been seen"
    );
    [(clones, cloned), (unseen, blind)].into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect()
}

/// The counts of this end, with what is durable at the destination as far as this end knows.
pub fn durable(status: &Status<'_>, sends: bool) -> Tally {
    let tally = status.record.tally;
    Tally { durable: if sends { status.peer.2 } else { tally.durable }, ..tally }
}

/// A failed entry as the user is told it: within one host there is no other end.
fn path_fault(failed: FailedEntry, is_one_host: bool) -> PathFault {
    let FailedEntry { path, fault, is_peers } = failed;
    PathFault { path: path.into_vec(), fault, is_peers: is_peers && !is_one_host }
}

/// Tells the events how it goes.
pub fn tell(events: &mut Events<'_>, pace: &mut Pace, status: &Status<'_>, notes: &[String], sends: bool) {
    for word in status.said {
        events.note(word);
    }
    for note in notes {
        events.detail(note);
    }
    let tally = &status.record.tally;
    for failed in status.record.faults.iter().skip(pace.told) {
        events.fault(path_fault(failed.clone(), pace.is_one_host));
    }
    pace.told = status.record.faults.len();
    let (received, written, durable) = if sends { status.peer } else { (tally.moved, tally.written, tally.durable) };
    let in_flight = received.saturating_sub(tally.resent);
    let done =
        (tally.bytes_kept + tally.bytes_resumed + tally.holes + in_flight).max(tally.bytes_done).min(tally.bytes_total);
    let rails_bps = pace.rails.at(tally.rail_bytes);
    let is_shown = events.progress(Progress {
        bytes_total: (tally.files_total > 0 || tally.scan_ended).then_some(tally.bytes_total),
        bytes_done: done,
        files_total: tally.files_total,
        files_done: tally.files_done,
        rate_bps: pace.payload.at(received),
        written_bps: Some(pace.written.at(status.elapsed, written, status.cap_bps)),
        open_file: status.largest.map(crate::report::show_path),
        received,
        written,
        durable,
        entries_failed: tally.failed,
        scan_done: tally.scan_ended,
        rails: if status.rails > 0 { pace.rails_now(status, tally.rail_bytes, rails_bps) } else { Vec::new() },
        stage_limit: pace.limit.at(status.own).map(|stage| stage.name().to_owned()),
        elapsed: status.elapsed,
        reconnecting: status.silent.map(|(silence, at_most)| Reconnecting::within(silence, at_most)),
    });
    if is_shown {
        pace.limit.shown(status.own);
        pace.tell_rails(status, events);
    }
}

fn cipher_name(plan: &Plan) -> String {
    let name = match plan.cipher {
        Cipher::Aes128Gcm => "AES-128-GCM",
        Cipher::Aes256Gcm => "AES-256-GCM",
        Cipher::ChaCha20Poly1305 => "ChaCha20-Poly1305",
    };
    if plan.bare {
        return format!("{name} (of headers only)");
    }
    if plan.integrity_only { format!("{name} (authentication only)") } else { name.to_owned() }
}

fn extras(record: &engine::machine::Record) -> Extras {
    let paths = record.extras.iter().map(|path| crate::report::show_path(path)).collect();
    Extras { removed: record.tally.removed, left: record.tally.left, paths }
}

/// What a dry run found.
fn dry_run(outcome: &Outcome) -> DryRun {
    let (record, tally) = (&outcome.record, outcome.record.tally);
    let files = tally.files_done - tally.files_kept;
    let bytes = tally.bytes_done - tally.bytes_kept - tally.bytes_resumed;
    DryRun {
        files,
        bytes,
        folders: tally.folders_done,
        links: tally.links_done,
        kept_files: tally.files_kept,
        kept_bytes: tally.bytes_kept,
        equal_files: tally.files_equal,
        equal_bytes: tally.bytes_equal,
        resumed_bytes: tally.bytes_resumed,
        compared_bytes: tally.compared,
        extras: extras(record),
        faults: tally.failed,
        forecast: outcome.auto.as_ref().map(|told| Expectation::of(told, (bytes, files))),
    }
}

/// I/O modes are chosen while data moves already: `--explain` has them at the end.
fn explain_storage(facts: &Facts<'_>, outcome: &Outcome, events: &mut Events<'_>) {
    for choice in outcome.storage.iter().filter(|_| facts.copy.request.explain) {
        events.note(&format!("{}: {} ({})", choice.what, choice.value, choice.reason));
    }
}

/// Payload bytes of the files that are done which this session moved: neither kept, nor resumed, nor holes.
#[must_use]
pub fn payload_moved(tally: &Tally) -> u64 {
    [tally.bytes_kept, tally.bytes_resumed, tally.holes].into_iter().fold(tally.bytes_done, u64::saturating_sub)
}

/// The exit code of a job end that nobody reports of: as that of an end report.
#[must_use]
pub fn exit_of(outcome: &Outcome) -> Exit {
    let exit = Exit::of_faults(outcome.record.faults.iter().map(|it| it.fault.kind));
    match exit {
        Exit::Whole if outcome.record.tally.left > 0 => Exit::Partial,
        Exit::Whole if outcome.receipt_missing.is_some() => Exit::NoReceipt,
        exit => exit,
    }
}

/// The run beside its books. `moved`: payload bytes, in so many ns.
fn beside(facts: &Facts<'_>, outcome: &Outcome, sends: bool, payload_bytes: u64) -> Run {
    let ns = |it: Duration| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX);
    let (beside, before) = (&outcome.beside, &facts.copy.before);
    // Of packets a sender counts what was lost, of streams what was sent again.
    let (all, lost) = match outcome.packets {
        Some(stats) if sends && stats.packets > 0 => (stats.packets, stats.lost_packets),
        _ => beside.sent,
    };
    let loss_ppm = u128::from(lost) * 1_000_000 / u128::from(all.max(1));
    Run {
        payload_bytes,
        wall_ns: ns(outcome.elapsed),
        shared_cores: facts.shared,
        rate_cap_bps: outcome.pace.1,
        pipe_ns: ns(before.pipe),
        lookup_ns: before.lookup_ns(),
        silent_ns: ns(beside.silent),
        peer: facts.direction.map(|_| if sends { End::Receiver } else { End::Sender }),
        in_flight_ns: ns(beside.in_flight),
        loss_ppm: u32::try_from(loss_ppm).unwrap_or(u32::MAX),
        policer_bps: outcome.packets.map_or(0, |stats| stats.policer.saturating_mul(8)),
    }
}

/// Shows the end of a job.
pub fn end(facts: &Facts<'_>, outcome: Outcome, events: &mut Events<'_>) -> Result<Exit, Failure> {
    let tally = outcome.record.tally;
    if outcome.record.dry {
        return Ok(events.end_dry(dry_run(&outcome)));
    }
    if let Some(names) = &outcome.out_of_set {
        return without(names, facts.copy, events);
    }
    let (gone, plan) = (extras(&outcome.record), facts.plan);
    explain_storage(facts, &outcome, events);
    let (seconds, earlier) = (facts.copy.began.elapsed().as_secs_f64(), facts.copy.again.earlier());
    let (bytes, files) = (payload_moved(&tally), tally.files_done - tally.files_kept);
    let (sends, peers) = (facts.direction != Some(Direction::Pull), outcome.peers.unwrap_or_default());
    let (sender, receiver) = if sends { (&outcome.own, &peers) } else { (&peers, &outcome.own) };
    let verdict = limiter(sender, receiver, &beside(facts, &outcome, sends, bytes));
    let (tcp, transport) = (facts.direction.is_some(), transport(facts, &outcome));
    let rail_bytes = sender.rail_bytes.max(tally.rail_bytes);
    let network = network(facts, &outcome, rail_bytes, sends, seconds);
    let (own, theirs) = (outcome.record.unnamed, outcome.record.unnamed_there);
    let report = EndReport {
        job: facts.job,
        direction: facts.direction,
        bytes,
        files,
        lost_sessions: earlier.lost,
        earlier_files: earlier.files,
        earlier_bytes: earlier.bytes,
        folders: tally.folders_done,
        links: tally.links_done,
        nodes: tally.nodes_done,
        hard_links: tally.names_done,
        unkept: outcome.record.unkept,
        unnamed: if sends { OwnersByNumber::of(theirs, own) } else { OwnersByNumber::of(own, theirs) },
        // What an earlier session of this run brought was not there before it.
        kept_files: tally.files_kept.saturating_sub(earlier.files),
        kept_bytes: tally.bytes_kept.saturating_sub(earlier.whole_bytes),
        equal_files: tally.files_equal,
        equal_bytes: tally.bytes_equal,
        resumed_bytes: tally.bytes_resumed,
        readback_failed_bytes: tally.bytes_readback_failed,
        hole_bytes: tally.holes,
        compared: facts.compared(tally.compared),
        extras: gone,
        seconds,
        goodput_bps: (bytes + earlier.bytes) as f64 * 8.0 / seconds,
        wire_bps: network.0,
        nics: network.1,
        cpu_seconds_local: outcome.own.cpu_ns as f64 / 1e9,
        cpu_seconds_remote: tcp.then_some(peers.cpu_ns as f64 / 1e9),
        peak_memory_bytes_local: outcome.own.peak_memory_bytes,
        peak_memory_bytes_remote: tcp.then_some(peers.peak_memory_bytes),
        transport,
        rails: rails(outcome.rails, &outcome.paths, rail_bytes, rail_bytes as f64 * 8.0 / seconds),
        resent_bytes: sender.resent_bytes.max(tally.resent),
        path: outcome.packets.map(|stats| PathRecord::of(outcome.pace.0, &stats, sends)),
        forecast: outcome.auto.as_ref().map(|told| ForecastRecord::of(told, (bytes, files), outcome.elapsed)),
        limiter: verdict,
        stages_local: outcome.own,
        stages_remote: outcome.peers,
        receipt: outcome.receipt.filter(|_| !facts.copy.without_receipt),
        receipt_missing: outcome.receipt_missing,
        destination: destination(facts.copy),
        digest: facts.plan.digest,
        cipher: tcp.then(|| cipher_name(facts.plan)),
        integrity_only: plan.integrity_only && tcp && !plan.bare,
        bare: plan.bare,
        far_unread: false,
        durability: facts.durability,
        faults: faults_of(outcome.record.faults, !tcp),
        choices: facts.choices.iter().cloned().chain(outcome.storage).collect(),
    };
    Ok(end_traced(facts, report, events))
}

fn faults_of(all: impl IntoIterator<Item = FailedEntry>, is_local: bool) -> Faults {
    let mut faults = Faults::default();
    all.into_iter().for_each(|it| faults.add(path_fault(it, is_local)));
    faults
}

/// The job's end, and before it the trace, which has the limiter where the report has it.
fn end_traced(facts: &Facts<'_>, report: EndReport, events: &mut Events<'_>) -> Exit {
    let is_telling = is_telling(report.seconds, report.bytes + report.earlier_bytes) && report.faults.count() == 0;
    let limiter = Some(report.limiter.sentence.as_str()).filter(|_| is_telling);
    facts.copy.trace.write(limiter).iter().for_each(|told| events.note(told));
    events.end(report)
}

/// The rate on the wire, with all headers, and what NICs counted.
fn network(
    facts: &Facts<'_>,
    outcome: &Outcome,
    rail_bytes: u64,
    sends: bool,
    seconds: f64,
) -> (Option<f64>, NicRates) {
    let (earlier, counted) = (facts.copy.again.earlier(), &outcome.counted);
    // What the job says beside its payload is on the wire as well.
    let carried = (rail_bytes + earlier.rail_bytes).saturating_add(outcome.control_bytes);
    let wire_bytes = nics::wire_bytes(counted.headers, carried, outcome.packets.map_or(0, |stats| stats.packets));
    // The counters are of this session; of one that was lost nobody knows.
    let is_all = facts.direction.is_some() && earlier.lost == 0;
    let nics = if is_all { NicRates::of(counted, sends, &outcome.paths, seconds) } else { NicRates::default() };
    (facts.direction.map(|_| wire_bytes as f64 * 8.0 / seconds), nics)
}

/// What carried it, in a word; over whose connection, if that is another's.
fn transport(facts: &Facts<'_>, outcome: &Outcome) -> String {
    let word = match (facts.direction.is_some(), outcome.streams, outcome.packets.is_some()) {
        (false, ..) => "local",
        (_, streams, _) if let Some((kind, _)) = outcome.rdma => match (kind, streams) {
            (RdmaKind::Device, false) => "rdma",
            (RdmaKind::Device, true) => "rdma+tcp",
            (RdmaKind::Emulated, false) => "rdma (emulated)",
            (RdmaKind::Emulated, true) => "rdma (emulated)+tcp",
        },
        (_, true, true) => "tcp+udp",
        (_, false, true) => "udp",
        _ => "tcp",
    };
    if facts.copy.ftp.is_some() { format!("over ftp, LHDATA, {word}") } else { word.to_owned() }
}

/// Disks of the destination went out: is there to be another pass without them?
fn without(names: &str, copy: &Copy<'_>, events: &mut Events<'_>) -> Result<Exit, Failure> {
    if !copy.again.want(copy.layout) {
        return Err(Exit::Io.fail("write to the set", format!("disks failed one after another, last {names}")));
    }
    events.note(&format!("{names}: out of the set; what it held or was to hold is sent to the others now"));
    Ok(Exit::Partial)
}

/// Where it went, as the user named it.
fn destination(copy: &Copy<'_>) -> String {
    if copy.to_stream {
        return STREAM.to_owned();
    }
    let last = copy.request.destinations.last().map_or_else(Default::default, |last| {
        // Without its password.
        let ftp = FtpAddress::of(last).ok().flatten();
        ftp.map_or_else(|| last.to_string_lossy(), |address| address.to_string().into())
    });
    match copy.layout {
        Some(Layout { stripe, volumes }) => format!("{volumes} volumes, by {}, the last {last}", stripe.name()),
        None => last.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_that_is_shown_is_of_five_seconds_and_never_above_the_cap() {
        let mut window = Window::default();
        let second = Duration::from_secs(1);
        assert!(window.at(Duration::ZERO, 0, 0).abs() < 1.0);
        // A burst of a gigabyte, then 100 MB each second.
        for now in 1..=20_u32 {
            let bytes = 1_000_000_000 + 100_000_000 * u64::from(now);
            let free = window.at(second * now, bytes, 0);
            let capped = Window { marks: window.marks.clone() }.at(second * now, bytes, 500_000_000);
            assert!(capped <= 500_000_000.0, "{capped}");
            assert!(now < 6 || (free - 800_000_000.0).abs() < 1.0, "{now} s: {free}");
        }
        assert!(window.at(second * 30, 3_000_000_000, 0).abs() < 1.0, "nothing came for longer than the window");
        assert!(window.at(second, 5, 0).abs() < 1.0, "another session begins anew");
    }
}
