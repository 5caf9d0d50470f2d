//! The records of `--json`: what programs read, and what the text reports are made from.
//!
//! For: one truth for both kinds of readers, and for a job that another host runs in our place.
//! In and out: the command's figures → records → one JSON object per line, and back.
//! Invariants: field names are a public contract; a field is never taken away or given another meaning, only added;
//!   every number of bytes is bytes, every `_bps` is bit/s, every `_ms` milliseconds.
//! Absent on purpose: what the text looks like (end.rs, progress.rs, explain.rs).

use serde::{Deserialize, Serialize};

use proto::books::End;
use proto::manifest::Aspects;
use proto::wire::control::{Compare, Direction, FaultKind};

use super::books::StagesRecord;
use super::nics::NicRecord;
use super::path::{ForecastRecord, PathRecord};
pub use super::trace::sample::RailRecord;
use super::{
    DryRun, EndReport, Explained, Extras, OwnersByNumber, PathFault, Progress, RailShare, Reconnecting, check, clean,
    figures, show_path,
};
use text::exit::{Exit, Failure, TABLE};

/// Any line of `--json`.
#[derive(Debug, Clone)]
pub enum Event {
    /// `"event":"progress"`, about once a second.
    Progress(ProgressRecord),
    /// `"event":"rail"`, about once a second for each.
    Rail(Box<RailRecord>),
    /// `"event":"note"`.
    Note(Note),
    /// `"event":"fault"`: an entry failed, the rest goes on.
    Fault(FaultEvent),
    /// `"event":"plan"` with `--explain`.
    Plan(PlanRecord),
    /// `"event":"done"` with `"dry_run":true`.
    Dry(DryRecord),
    /// `"event":"done"`: the last line of a job that reached its end.
    Done(Box<Done>),
    /// `"event":"failed"`: the last line of a job that did not.
    Failed(Failed),
}

impl Event {
    /// Reads a line; `None` for a line that this version does not know, which a newer host may well send.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Kind {
            event: String,
            #[serde(default)]
            dry_run: bool,
        }
        let kind: Kind = serde_json::from_str(line).ok()?;
        match kind.event.as_str() {
            "progress" => serde_json::from_str(line).ok().map(Self::Progress),
            "rail" => serde_json::from_str(line).ok().map(|record| Self::Rail(Box::new(record))),
            "note" => serde_json::from_str(line).ok().map(Self::Note),
            "fault" => serde_json::from_str(line).ok().map(Self::Fault),
            "plan" => serde_json::from_str(line).ok().map(Self::Plan),
            "done" if kind.dry_run => Some(serde_json::from_str(line).map_or_else(Self::unreadable, Self::Dry)),
            "done" => Some(serde_json::from_str(line).map_or_else(Self::unreadable, Self::Done)),
            "failed" => Some(serde_json::from_str(line).map_or_else(Self::unreadable, Self::Failed)),
            _ => None,
        }
    }
}

impl Event {
    /// The event as a line again.
    ///
    /// # Errors
    /// None for these records: their keys are text and their depth is finite.
    pub fn line(&self) -> serde_json::Result<String> {
        match self {
            Self::Progress(record) => serde_json::to_string(record),
            Self::Rail(record) => serde_json::to_string(record),
            Self::Note(record) => serde_json::to_string(record),
            Self::Fault(record) => serde_json::to_string(record),
            Self::Plan(record) => serde_json::to_string(record),
            Self::Dry(record) => serde_json::to_string(record),
            Self::Done(record) => serde_json::to_string(record),
            Self::Failed(record) => serde_json::to_string(record),
        }
    }

    /// A last line stays a last line, even if what it says cannot be read.
    fn unreadable(error: serde_json::Error) -> Self {
        Self::Failed(Failed::of(&Exit::Negotiation.fail("read the report of the host that ran the job", error)))
    }
}

/// How it goes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProgressRecord {
    event: String,
    /// Since the job began.
    pub elapsed_s: f64,
    /// `null`: nothing known yet.
    pub bytes_total: Option<u64>,
    /// Moved at the durability level asked for, or kept.
    pub bytes_done: u64,
    /// Found so far.
    pub files_total: u64,
    /// Needing nothing more.
    pub files_done: u64,
    /// The totals are final.
    pub scan_done: bool,
    /// Payload, last second.
    pub rate_bps: f64,
    /// `null` where it would be a guess.
    pub eta_s: Option<f64>,
    /// Bytes at each durability level, this run.
    pub received: u64,
    /// Handed to the file system.
    pub written: u64,
    /// On stable storage.
    pub durable: u64,
    /// Failed so far.
    pub entries_failed: u64,
    /// Each rail.
    pub rails: Vec<RailShare>,
    /// The stage that limits now.
    pub stage_limit: Option<String>,
    /// The other end is not heard: since when, until when it is looked for; `null`: it is heard.
    #[serde(default)]
    pub reconnecting: Option<Reconnecting>,
    /// Handed to the destination in the last 5 s; `null`: not measured.
    #[serde(default)]
    pub written_bps: Option<f64>,
    /// The largest file that is on its way.
    #[serde(default)]
    pub open_file: Option<String>,
}

impl ProgressRecord {
    /// From the command's figures.
    #[must_use]
    pub fn of(of: &Progress) -> Self {
        Self {
            event: "progress".to_owned(),
            elapsed_s: of.elapsed.as_secs_f64(),
            bytes_total: of.bytes_total,
            bytes_done: of.bytes_done,
            files_total: of.files_total,
            files_done: of.files_done,
            scan_done: of.scan_done,
            rate_bps: of.rate_bps,
            eta_s: figures::eta_seconds(of),
            received: of.received,
            written: of.written,
            durable: of.durable,
            entries_failed: of.entries_failed,
            rails: of.rails.clone(),
            stage_limit: of.stage_limit.clone(),
            reconnecting: of.reconnecting,
            written_bps: of.written_bps,
            open_file: of.open_file.clone(),
        }
    }

    /// Back to figures, as if the job ran here. Nonsense from another host becomes zero.
    #[must_use]
    pub fn into_progress(self) -> Progress {
        let elapsed = std::time::Duration::try_from_secs_f64(self.elapsed_s).unwrap_or_default();
        Progress {
            bytes_total: self.bytes_total,
            bytes_done: self.bytes_done,
            files_total: self.files_total,
            files_done: self.files_done,
            rate_bps: self.rate_bps,
            written_bps: self.written_bps,
            open_file: self.open_file.as_deref().map(|path| clean(path).replace('\n', " ")),
            received: self.received,
            written: self.written,
            durable: self.durable,
            entries_failed: self.entries_failed,
            scan_done: self.scan_done,
            rails: self.rails,
            stage_limit: self.stage_limit.as_deref().map(clean),
            elapsed,
            reconnecting: self.reconnecting,
        }
    }
}

/// A sentence.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Note {
    event: String,
    /// The sentence.
    pub text: String,
}

impl Note {
    /// Around a sentence.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self { event: "note".to_owned(), text: text.to_owned() }
    }
}

/// One failed entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FaultRecord {
    /// As text, control characters and what is not UTF-8 as `\xNN`.
    pub path: String,
    /// The exact bytes as hex digits, only where `path` could not hold them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path_hex: Option<String>,
    /// `torn`, `denied`, …
    pub kind: String,
    /// The system's number, 0 if none.
    pub errno: i32,
    /// Which call or step failed.
    pub step: String,
    /// It failed at the other end; of a fault of this end the field is left out.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub other_end: bool,
}

impl FaultRecord {
    /// From a fault and its path.
    #[must_use]
    pub fn of(fault: &PathFault) -> Self {
        let path = show_path(&fault.path);
        let exact = path.as_bytes() == fault.path || fault.path.is_empty();
        Self {
            path,
            path_hex: (!exact).then(|| hex(&fault.path)),
            kind: fault_word(fault.fault.kind).to_owned(),
            errno: fault.fault.errno,
            step: fault.fault.step.clone(),
            other_end: fault.is_peers,
        }
    }
}

/// An entry of which something could not be kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UnkeptRecord {
    /// As text, as in a fault.
    pub path: String,
    /// `owner`, `acls`, …
    pub what: Vec<String>,
}

impl UnkeptRecord {
    fn of(what: Aspects, path: &[u8]) -> Self {
        let names = Aspects::NAMED.iter().filter(|(aspect, _)| what.has(*aspect));
        Self { path: show_path(path), what: names.map(|(_, name)| (*name).to_owned()).collect() }
    }
}

/// An entry failed, now.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FaultEvent {
    event: String,
    /// The entry that failed, and the reason.
    #[serde(flatten)]
    pub fault: FaultRecord,
}

impl FaultEvent {
    /// Around a record.
    #[must_use]
    pub fn of(fault: FaultRecord) -> Self {
        Self { event: "fault".to_owned(), fault }
    }
}

/// One choice of the negotiation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChoiceRecord {
    /// What was chosen.
    pub what: String,
    /// The value.
    pub value: String,
    /// The reason of the choice, in words.
    pub reason: String,
}

impl ChoiceRecord {
    /// From the negotiation's line.
    #[must_use]
    pub fn of(choice: &proto::negotiate::Choice) -> Self {
        Self { what: choice.what.to_owned(), value: choice.value.clone(), reason: choice.reason.clone() }
    }
}

/// What both ends have, and what came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlanRecord {
    event: String,
    /// Lines of the offers: what, here, there.
    pub offers: Vec<OfferLine>,
    /// Each choice with its reason.
    pub choices: Vec<ChoiceRecord>,
    /// Parts of this end's memory, bytes.
    pub memory_parts: Vec<(String, u64)>,
    /// Their sum.
    pub memory_bytes: u64,
    /// What was granted.
    pub memory_granted_bytes: u64,
    /// Way to the kernel at this end.
    pub driver: String,
    /// Why this way to the kernel was chosen.
    pub driver_reason: String,
}

/// One line of both offers, side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfferLine {
    /// The property that both ends offer, in words.
    pub what: String,
    /// At this end.
    pub local: String,
    /// At the other; `null` when there is none.
    pub remote: Option<String>,
}

impl PlanRecord {
    /// From the negotiation.
    #[must_use]
    pub fn of(explained: &Explained<'_>) -> Self {
        Self {
            event: "plan".to_owned(),
            offers: super::explain::offer_lines(explained.local, explained.remote),
            choices: explained.choices.iter().map(ChoiceRecord::of).collect(),
            memory_parts: explained.memory.parts.clone(),
            memory_bytes: explained.memory.sum(),
            memory_granted_bytes: explained.memory.granted_bytes,
            driver: explained.driver.to_owned(),
            driver_reason: explained.driver_reason.to_owned(),
        }
    }
}

/// The last line of a job that reached its end. The names up to `receipt` are those of the command line's contract.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Done {
    event: String,
    /// Hex digits.
    pub job: String,
    /// The process's exit code.
    pub exit: u8,
    /// Its word.
    pub exit_kind: String,
    /// `push`, `pull`, `local`.
    pub direction: String,
    /// Payload moved by this run.
    pub bytes: u64,
    /// Files moved by this run, since its session was last made.
    pub files: u64,
    /// Sessions of this run that were lost and made again.
    #[serde(default)]
    pub lost_sessions: u64,
    /// Files that these moved.
    #[serde(default)]
    pub earlier_files: u64,
    /// Payload moved of these files.
    #[serde(default)]
    pub earlier_bytes: u64,
    /// Folders made or set.
    pub folders: u64,
    /// Symbolic links made.
    pub links: u64,
    /// FIFOs, sockets and devices made.
    #[serde(default)]
    pub nodes: u64,
    /// Further names of files made.
    #[serde(default)]
    pub hard_links: u64,
    /// Left alone because the same is there.
    pub kept_files: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// Of `kept_files`, those whose content was compared; the rest was believed by size and time, unread.
    #[serde(default)]
    pub equal_files: u64,
    /// Their bytes.
    #[serde(default)]
    pub equal_bytes: u64,
    /// There already: brought by an earlier run, or found equal chunk by chunk.
    pub resumed_bytes: u64,
    /// Brought by an earlier run, something else when it was read back, and sent again.
    #[serde(default)]
    pub readback_failed_bytes: u64,
    /// Holes at the source: told, not sent.
    #[serde(default)]
    pub hole_bytes: u64,
    /// Read at this end to be compared.
    #[serde(default)]
    pub compared_bytes: u64,
    /// Which files that stand there were compared with the source: `never`, `changed` (another size or time), `always`.
    #[serde(default)]
    pub compare: String,
    /// More was asked for, and the other end may only be written to.
    #[serde(default)]
    pub uncompared: bool,
    /// What the destination had and the source has not.
    #[serde(default)]
    pub extras: Extras,
    /// Wall time.
    pub seconds: f64,
    /// Payload.
    pub goodput_bps: f64,
    /// All bytes that went the way of the data, on rails and in the control session, with the headers of IP and Ethernet; `null` without a network.
    pub wire_bps: Option<f64>,
    /// What the interfaces that carried the job counted, of all their traffic; empty: not known.
    #[serde(default)]
    pub nics: Vec<NicRecord>,
    /// User and system.
    pub cpu_seconds_local: f64,
    /// `null`: both ends were one process, or the other said nothing.
    pub cpu_seconds_remote: Option<f64>,
    /// Per 10^9 payload bytes; `null` when nothing was moved.
    pub cpu_seconds_per_gb_local: Option<f64>,
    /// The other end's.
    pub cpu_seconds_per_gb_remote: Option<f64>,
    /// Peak resident memory.
    pub peak_memory_bytes_local: u64,
    /// The other end's.
    pub peak_memory_bytes_remote: Option<u64>,
    /// `tcp`, `udp`, `tcp+udp`, `local`.
    pub transport: String,
    /// Each rail's share.
    pub rails: Vec<RailShare>,
    /// Payload sent more than once.
    pub resent_bytes: u64,
    /// The path as the datagram rails saw it; `null`: there were none.
    #[serde(default)]
    pub path: Option<PathRecord>,
    /// What was expected of the transport, and how it came out; `null` where the user named one.
    #[serde(default)]
    pub forecast: Option<ForecastRecord>,
    /// The sentence.
    pub limiter: String,
    /// `sender`, `receiver`, `network`, `both`, `cap`.
    pub limiter_end: String,
    /// The stage in it; `null` if the books are empty.
    pub limiter_stage: Option<String>,
    /// That stage's share of its end's time.
    pub limiter_percent: u8,
    /// Goodput if that stage were free, bit/s; `null` if unknown.
    pub ceiling_bps: Option<u64>,
    /// This end's books.
    pub stages_local: StagesRecord,
    /// The other end's.
    pub stages_remote: Option<StagesRecord>,
    /// Its path.
    pub receipt: Option<String>,
    /// Why there is none; `null`: there is one.
    #[serde(default)]
    pub receipt_missing: Option<String>,
    /// Its path on the receiving host.
    pub destination: String,
    /// `blake3`, `crc64`.
    pub digest: String,
    /// As negotiated; `null`: payload did not leave the process.
    pub cipher: Option<String>,
    /// Payload in clear, authenticated.
    pub integrity_only: bool,
    /// The sender did not read what it sent: digests are of what arrived.
    pub bare: bool,
    /// A server of FTP told no digest of what it has: lengths were compared.
    #[serde(default)]
    pub far_unread: bool,
    /// Durability level that all moved files reached: `received` … `published`.
    #[serde(default)]
    pub durability: String,
    /// The same, under its former name.
    #[serde(rename = "rung")]
    pub former_durability: String,
    /// All failed entries.
    pub faults_count: u64,
    /// How many of which kind, most serious first.
    pub faults_by_kind: Vec<(String, u64)>,
    /// The first failed entries, at most 100.
    pub faults: Vec<FaultRecord>,
    /// What of entries that are there could not be kept: in how many of them, by what it is. Does not change `exit`.
    #[serde(default)]
    pub unkept: Vec<(String, u64)>,
    /// The first of these entries, at most 100.
    #[serde(default)]
    pub unkept_entries: Vec<UnkeptRecord>,
    /// Users and groups that went by number.
    #[serde(flatten)]
    pub unnamed: OwnersByNumber,
    /// What was negotiated.
    pub choices: Vec<ChoiceRecord>,
    /// Figures that cannot be, as sentences; any one makes all figures of the report doubtful.
    pub impossible: Vec<String>,
}

impl Done {
    /// From the command's figures.
    #[must_use]
    pub fn of(report: &EndReport) -> Self {
        let exit = report.exit();
        #[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
        let per_gb = |seconds: f64| (report.bytes > 0).then(|| seconds * 1e9 / report.bytes as f64);
        Self {
            event: "done".to_owned(),
            job: hex(&report.job),
            exit: exit.code(),
            exit_kind: exit.line().word.to_owned(),
            direction: direction_word(report.direction).to_owned(),
            bytes: report.bytes,
            files: report.files,
            lost_sessions: report.lost_sessions,
            earlier_files: report.earlier_files,
            earlier_bytes: report.earlier_bytes,
            folders: report.folders,
            links: report.links,
            nodes: report.nodes,
            hard_links: report.hard_links,
            kept_files: report.kept_files,
            kept_bytes: report.kept_bytes,
            equal_files: report.equal_files,
            equal_bytes: report.equal_bytes,
            resumed_bytes: report.resumed_bytes,
            readback_failed_bytes: report.readback_failed_bytes,
            hole_bytes: report.hole_bytes,
            compared_bytes: report.compared.bytes,
            compare: compare_word(report.compared.files).to_owned(),
            uncompared: report.compared.is_less,
            extras: report.extras.clone(),
            seconds: report.seconds,
            goodput_bps: report.goodput_bps,
            wire_bps: report.wire_bps,
            nics: report.nics.records.clone(),
            cpu_seconds_local: report.cpu_seconds_local,
            cpu_seconds_remote: report.cpu_seconds_remote,
            cpu_seconds_per_gb_local: per_gb(report.cpu_seconds_local),
            cpu_seconds_per_gb_remote: report.cpu_seconds_remote.and_then(per_gb),
            peak_memory_bytes_local: report.peak_memory_bytes_local,
            peak_memory_bytes_remote: report.peak_memory_bytes_remote,
            transport: report.transport.clone(),
            rails: report.rails.clone(),
            resent_bytes: report.resent_bytes,
            path: report.path.clone(),
            forecast: report.forecast.clone(),
            limiter: report.limiter.sentence.clone(),
            limiter_end: end_word(report.limiter.end).to_owned(),
            limiter_stage: report.limiter.what.map(|what| what.name().to_owned()),
            limiter_percent: report.limiter.share_percent,
            ceiling_bps: (report.limiter.ceiling_bps > 0).then_some(report.limiter.ceiling_bps),
            stages_local: StagesRecord::of(&report.stages_local),
            stages_remote: report.stages_remote.as_ref().map(StagesRecord::of),
            receipt: report.receipt.as_ref().map(|path| path.to_string_lossy().into_owned()),
            receipt_missing: report.receipt_missing.clone(),
            destination: path_at_receiver(&report.destination),
            digest: report.digest.name().to_owned(),
            cipher: report.cipher.clone(),
            integrity_only: report.integrity_only,
            bare: report.bare,
            far_unread: report.far_unread,
            durability: report.durability.name().to_owned(),
            former_durability: report.durability.name().to_owned(),
            faults_count: report.faults.count(),
            faults_by_kind: report.faults.by_kind().map(|(kind, count)| (fault_word(kind).to_owned(), count)).collect(),
            faults: report.faults.first().iter().map(FaultRecord::of).collect(),
            unkept: report.unkept.counts().map(|(what, count)| (what.to_owned(), count)).collect(),
            unkept_entries: report.unkept.first().iter().map(|(what, path)| UnkeptRecord::of(*what, path)).collect(),
            unnamed: report.unnamed,
            choices: report.choices.iter().map(ChoiceRecord::of).collect(),
            impossible: check::impossible(report),
        }
    }
}

/// The job's direction, seen from this end.
fn direction_word(direction: Option<Direction>) -> &'static str {
    match direction {
        Some(Direction::Push) => "push",
        Some(Direction::Pull) => "pull",
        None => "local",
    }
}

/// The last line of a dry run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DryRecord {
    event: String,
    dry_run: bool,
    /// What it found.
    #[serde(flatten)]
    pub found: DryRun,
}

impl DryRecord {
    /// Around what was found.
    #[must_use]
    pub fn of(found: &DryRun) -> Self {
        Self { event: "done".to_owned(), dry_run: true, found: found.clone() }
    }
}

/// The last line of a job that did not reach its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failed {
    event: String,
    /// The process's exit code.
    pub exit: u8,
    /// Its word.
    pub exit_kind: String,
    /// What was being done.
    pub what: String,
    /// Why it did not work.
    pub cause: String,
    /// What to do now.
    pub next: String,
}

impl Failed {
    /// From a failure.
    #[must_use]
    pub fn of(failure: &Failure) -> Self {
        Self {
            event: "failed".to_owned(),
            exit: failure.exit.code(),
            exit_kind: failure.exit.line().word.to_owned(),
            what: failure.what.clone(),
            cause: failure.cause.clone(),
            next: failure.next_step.clone(),
        }
    }

    /// Back to a failure, as if it had happened here.
    #[must_use]
    pub fn into_failure(self) -> Failure {
        Failure { exit: exit_of_code(self.exit), what: self.what, cause: self.cause, next_step: self.next }
    }
}

/// The exit with this number; a number of a later version counts as a partial result.
#[must_use]
pub fn exit_of_code(code: u8) -> Exit {
    TABLE.iter().map(|line| line.exit).find(|exit| exit.code() == code).unwrap_or(Exit::Partial)
}

fn compare_word(compare: Compare) -> &'static str {
    match compare {
        Compare::Never => "never",
        Compare::Changed => "changed",
        Compare::Always => "always",
    }
}

/// A kind of fault in one word, as JSON and the report have it.
#[must_use]
pub fn fault_word(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Vanished => "vanished",
        FaultKind::Torn => "torn",
        FaultKind::Denied => "denied",
        FaultKind::Full => "full",
        FaultKind::Io => "io",
        FaultKind::Corrupt => "corrupt",
        FaultKind::Unsupported => "unsupported",
        FaultKind::Other => "other",
        FaultKind::InUse => "in_use",
    }
}

/// The path in an address, for a command on the receiving host. The rest of an address does not belong into a report: it
/// may hold a ticket's secret. Below a daemon's root the path begins with `ROOT`, whatever that is there.
fn path_at_receiver(address: &str) -> String {
    let schemes = ["longhaul://", "ftp://", "ftps://"];
    if let Some(rest) = schemes.iter().find_map(|scheme| address.strip_prefix(scheme)) {
        return format!("ROOT/{}", rest.split_once('/').map_or("", |(_, path)| path));
    }
    match address.split_once(':') {
        Some((host, path)) if !host.contains('/') => if path.is_empty() { "." } else { path }.to_owned(),
        _ => address.to_owned(),
    }
}

/// Where the limiter sits, in one word.
fn end_word(end: End) -> &'static str {
    match end {
        End::Sender => "sender",
        End::Receiver => "receiver",
        End::Network => "network",
        End::Both => "both",
        End::Cap => "cap",
    }
}

/// Bytes as lower-case hex digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
