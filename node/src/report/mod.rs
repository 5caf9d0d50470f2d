//! Reports: what is known of a job while it runs and when it ends, as plain data.
//!
//! For: whoever shows a job, and the JSON lines that programs and other hosts read.
//! In and out: figures of the job driver → `Progress`, `EndReport`, records of JSON; lines of another host → the same again.
//! Invariants: nothing shown is above 100 %; a name or a text that came from outside is made harmless before it is shown.
//! Absent on purpose: screens, measuring, deciding.

pub mod books; // where the time of one end went, as `--json` tells it
pub mod check; // figures that cannot be
pub mod explain; // both offers, each choice with its reason, the sum of memory
pub mod history; // jobs that ended: a line each, in a file of the home
pub mod figures; // how much is done, and how long it still takes
pub mod json; // the records of `--json`, which the text is made from as well
pub mod nics; // rates as interfaces counted them, and with the headers of packets
pub mod path; // what datagram rails saw of the path
pub mod trace; // what congestion control did, over time

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use engine::machine::unpreserved::Unpreserved;
use proto::books::{Books, Verdict};
use proto::negotiate::Choice;
use proto::wire::control::{Compare, DigestKind, Direction, Durability, EntryFault, FaultKind, Unnamed};

pub use explain::Explained;
use text::exit::{Exit, SERIOUSNESS};

/// What one rail carried.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct RailShare {
    /// Its number, or its number and addresses.
    pub name: String,
    /// Bytes on the rail so far, headers and tags included.
    pub bytes: u64,
    /// bit/s: now while the job runs, the mean in the end report.
    pub rate_bps: f64,
    /// Of several paths: its share of the bytes of all so far, of 1.
    #[serde(default)]
    pub share: Option<f64>,
    /// The share that it should have: by the user's word, or by the NICs' speeds; `null`: nobody said.
    #[serde(default)]
    pub weight: Option<f64>,
    /// Its share was more than a tenth off its weight for seconds at some time, while the network was what the job waited for.
    #[serde(default)]
    pub off_weight: bool,
}

/// How a job goes, at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Progress {
    /// Bytes of all files found so far; final once `scan_done`. `None`: nothing known yet.
    pub bytes_total: Option<u64>,
    /// Bytes that need nothing more: moved at the durability level asked for, or kept.
    pub bytes_done: u64,
    /// Files found so far.
    pub files_total: u64,
    /// Files that need nothing more.
    pub files_done: u64,
    /// Payload rate of the last second or so, bit/s.
    pub rate_bps: f64,
    /// What was handed to the destination in the last 5 s, bit/s, never above the cap; `None`: nobody measured it.
    pub written_bps: Option<f64>,
    /// The largest file that is on its way, as it may be shown.
    pub open_file: Option<String>,
    /// Payload bytes opened and checked by the receiver in this run.
    pub received: u64,
    /// Payload bytes handed to the destination's file system in this run.
    pub written: u64,
    /// Payload bytes on stable storage in this run.
    pub durable: u64,
    /// Entries that failed so far.
    pub entries_failed: u64,
    /// The totals do not grow any more.
    pub scan_done: bool,
    /// Each rail.
    pub rails: Vec<RailShare>,
    /// The stage that limits now, as the books name it.
    pub stage_limit: Option<String>,
    /// Since the job began.
    pub elapsed: Duration,
    /// The other end is not heard; `None`: it is.
    pub reconnecting: Option<Reconnecting>,
}

/// The session is away, and is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Reconnecting {
    /// Since when, seconds since 1970.
    pub since_s: u64,
    /// When it is given up.
    pub until_s: u64,
}

impl Progress {
    /// The one rate that is shown, and that the time to go is of.
    #[must_use]
    pub fn shown_bps(&self) -> f64 {
        self.written_bps.unwrap_or(self.rate_bps)
    }
}

impl Reconnecting {
    /// Since `since`, for so long at most.
    #[must_use]
    pub fn of(since: SystemTime, stall: Duration) -> Reconnecting {
        let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |it| it.as_secs());
        Reconnecting { since_s: seconds(since), until_s: since.checked_add(stall).map_or(u64::MAX, seconds) }
    }

    /// Not heard for so long now; looked for so long in all.
    #[must_use]
    pub fn within(silence: Duration, at_most: Duration) -> Reconnecting {
        let began = SystemTime::now().checked_sub(silence).unwrap_or(SystemTime::UNIX_EPOCH);
        Reconnecting::of(began, at_most)
    }

    /// In words: clock times stay true while nobody draws anew.
    #[must_use]
    pub fn sentence(self) -> String {
        let clock = |at: u64| format!("{:02}:{:02}:{:02}", at / 3600 % 24, at / 60 % 60, at % 60);
        format!("RECONNECTING since {}, until {} UTC at most", clock(self.since_s), clock(self.until_s))
    }
}

/// One entry that failed, with its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathFault {
    /// Relative to the root of the copy; bytes.
    pub path: Vec<u8>,
    /// What happened.
    pub fault: EntryFault,
    /// It happened at the other end.
    pub is_peers: bool,
}

/// What was compared with what stands at the destination.
#[derive(Debug, Clone, Default)]
pub struct Compared {
    /// Bytes that this end read for it.
    pub bytes: u64,
    /// Which files.
    pub files: Compare,
    /// More was asked for, and the other end may only be written to.
    pub is_less: bool,
}

/// A copy that moved less, or was shorter, says nothing of what limits the next: its first moments are connecting and opening files.
const TELLING_SECONDS: f64 = 1.0;
const TELLING_BYTES: u64 = 64_000_000;

/// Was a copy long enough to tell what limited it?
#[must_use]
pub fn is_telling(seconds: f64, bytes: u64) -> bool {
    seconds >= TELLING_SECONDS && bytes >= TELLING_BYTES
}

/// So many failed entries are kept for the end report; all are counted, and all are told as they happen.
pub const FAULTS_KEPT: usize = 100;
/// Their paths are no longer than this together: a report escapes each byte into 7 at most, and must fit into one control
/// frame of 256 KiB when another host runs the job.
const FAULT_PATH_BYTES_KEPT: usize = 16 << 10;

/// Failed entries of a job: all counted by kind, the first ones kept. Does not grow with their number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    counts: [u64; SERIOUSNESS.len()],
    first: Vec<PathFault>,
    path_bytes_left: usize,
}

impl Default for Faults {
    fn default() -> Self {
        Self { counts: [0; SERIOUSNESS.len()], first: Vec::new(), path_bytes_left: FAULT_PATH_BYTES_KEPT }
    }
}

impl Faults {
    /// Takes one more.
    pub fn add(&mut self, fault: PathFault) {
        if let Some(index) = SERIOUSNESS.iter().position(|&kind| kind == fault.fault.kind) {
            self.counts[index] += 1;
        }
        let left = self.path_bytes_left.checked_sub(fault.path.len());
        if let Some(left) = left.filter(|_| self.first.len() < FAULTS_KEPT) {
            self.path_bytes_left = left;
            self.first.push(fault);
        }
    }

    /// How many, all kinds.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many of each kind, most serious first, kinds that did not occur left out.
    pub fn by_kind(&self) -> impl Iterator<Item = (FaultKind, u64)> + '_ {
        SERIOUSNESS.iter().copied().zip(self.counts).filter(|&(_, count)| count > 0)
    }

    /// The first ones, at most `FAULTS_KEPT`.
    #[must_use]
    pub fn first(&self) -> &[PathFault] {
        &self.first
    }

    /// The exit code of a job with these.
    #[must_use]
    pub fn exit(&self) -> Exit {
        Exit::of_faults(self.by_kind().map(|(kind, _)| kind))
    }
}

/// Everything that is known when a job has ended.
#[derive(Debug, Clone)]
pub struct EndReport {
    /// The job's random name.
    pub job: [u8; 16],
    /// Which way, seen from this end; `None`: both ends are this process.
    pub direction: Option<Direction>,
    /// Payload bytes moved by this run; what was sent again, kept or resumed is not in here.
    pub bytes: u64,
    /// Files moved by this run, since its session was last made.
    pub files: u64,
    /// Sessions of this run that were lost and made again.
    pub lost_sessions: u64,
    /// Files moved in these.
    pub earlier_files: u64,
    /// Payload moved of these files.
    pub earlier_bytes: u64,
    /// Folders made or set.
    pub folders: u64,
    /// Symbolic links made.
    pub links: u64,
    /// FIFOs, sockets and devices made.
    pub nodes: u64,
    /// Further names of files made.
    pub hard_links: u64,
    /// What of entries could not be kept.
    pub unkept: Unpreserved,
    /// Owners that went by number: names that the destination does not know, numbers that have no name at the source.
    pub unnamed: OwnersByNumber,
    /// Files left alone because the same is there.
    pub kept_files: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// Those of the files left alone whose content was compared; the others were believed by size and time.
    pub equal_files: u64,
    /// Their bytes.
    pub equal_bytes: u64,
    /// Bytes of moved files that an earlier run had already brought.
    pub resumed_bytes: u64,
    /// Bytes that an earlier run had brought and that were something else when they were read back: sent again.
    pub readback_failed_bytes: u64,
    /// Bytes of moved files that are holes at the source: told, not sent.
    pub hole_bytes: u64,
    /// What was compared with what stands at the destination.
    pub compared: Compared,
    /// What the destination had and the source has not.
    pub extras: Extras,
    /// From the start of the command to the last rename, seconds.
    pub seconds: f64,
    /// Payload bytes per second × 8, bit/s.
    pub goodput_bps: f64,
    /// All bytes that went the way of the data, bit/s: on rails and in the control session, with the headers of IP and Ethernet; `None`: no network in
    /// between.
    pub wire_bps: Option<f64>,
    /// What the kernel's counters of the path's interfaces say, at both ends.
    pub nics: nics::NicRates,
    /// User and system, this end, seconds.
    pub cpu_seconds_local: f64,
    /// The other end; `None`: both ends are this process, or it said nothing.
    pub cpu_seconds_remote: Option<f64>,
    /// Peak resident memory of this end.
    pub peak_memory_bytes_local: u64,
    /// The other end's.
    pub peak_memory_bytes_remote: Option<u64>,
    /// `tcp`, `udp`, `tcp+udp`, `local`.
    pub transport: String,
    /// Each rail's share, whole job.
    pub rails: Vec<RailShare>,
    /// Payload bytes sent more than once.
    pub resent_bytes: u64,
    /// The path as datagram rails saw it.
    pub path: Option<path::PathRecord>,
    /// What was expected of the transport, where it was left to us.
    pub forecast: Option<path::ForecastRecord>,
    /// What limited it (`proto::books::limiter` over both books).
    pub limiter: Verdict,
    /// This end's books.
    pub stages_local: Books,
    /// The other end's books.
    pub stages_remote: Option<Books>,
    /// Where the receipt stands.
    pub receipt: Option<PathBuf>,
    /// Why there is none although there should be.
    pub receipt_missing: Option<String>,
    /// The destination's path on the receiving host, for the hint how to verify.
    pub destination: String,
    /// Which digest stands for each file.
    pub digest: DigestKind,
    /// How payload was sealed, as negotiated; `None`: it did not leave the process.
    pub cipher: Option<String>,
    /// Payload authenticated but in clear.
    pub integrity_only: bool,
    /// Payload that nothing vouched for: digests are of what arrived.
    pub bare: bool,
    /// The other end is a server of FTP that told no digest of what it has.
    pub far_unread: bool,
    /// The durability level that all moved files reached.
    pub durability: Durability,
    /// Entries that failed.
    pub faults: Faults,
    /// What was negotiated, each choice with its reason.
    pub choices: Vec<Choice>,
}

impl EndReport {
    /// The process's exit code: that of the faults; what had to stay is a part not done; then that of a receipt which is not there.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self.faults.exit() {
            Exit::Whole if self.extras.left > 0 => Exit::Partial,
            Exit::Whole if self.receipt_missing.is_some() => Exit::NoReceipt,
            exit => exit,
        }
    }
}

/// Entries that stand at the destination and not at the source.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Extras {
    /// Removed; by a dry run: would be.
    pub removed: u64,
    /// Left, for they are more than `--max-delete` allows, or something failed.
    pub left: u64,
    /// Some of their paths.
    pub paths: Vec<String>,
}

/// What `cp --dry-run` found.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct DryRun {
    /// Files that would be sent, whole or in part.
    pub files: u64,
    /// Bytes that would be sent.
    pub bytes: u64,
    /// Folders that would be made or set.
    pub folders: u64,
    /// Links that would be made.
    pub links: u64,
    /// Files that would be left alone.
    pub kept_files: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// Those of them whose content was compared.
    #[serde(default)]
    pub equal_files: u64,
    /// Their bytes.
    #[serde(default)]
    pub equal_bytes: u64,
    /// Bytes that an earlier run has already brought.
    pub resumed_bytes: u64,
    /// Bytes that were read to compare them.
    pub compared_bytes: u64,
    /// What would be removed.
    pub extras: Extras,
    /// Entries that could not be looked at.
    pub faults: u64,
    /// How long it would take, where the transport is left to the program.
    #[serde(default)]
    pub forecast: Option<path::Expectation>,
}

impl DryRun {
    /// The exit code of the dry run.
    #[must_use]
    pub fn exit(&self) -> Exit {
        if self.faults > 0 || self.extras.left > 0 { Exit::Partial } else { Exit::Whole }
    }
}

/// Users and groups that went by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct OwnersByNumber {
    /// Named at the source, and unknown at the destination.
    #[serde(rename = "owners_unknown", default)]
    pub unknown: u32,
    /// Without a name at the source.
    #[serde(rename = "owners_nameless", default)]
    pub nameless: u32,
    /// For some of them a name service did not answer in time, at either end.
    #[serde(rename = "name_service_silent", default)]
    pub is_silent: bool,
}

impl OwnersByNumber {
    /// As the receiver and the sender of a job have counted them.
    #[must_use]
    pub fn of(receiver: Unnamed, sender: Unnamed) -> OwnersByNumber {
        let is_silent = receiver.is_silent || sender.is_silent;
        OwnersByNumber { unknown: receiver.count, nameless: sender.count, is_silent }
    }
}

/// Bytes and files that are done, if this line of `Mode::Json` tells them.
#[must_use]
pub fn moved(line: &str) -> Option<(u64, u64)> {
    match json::Event::parse(line)? {
        json::Event::Progress(record) => Some((record.bytes_done, record.files_done)),
        _ => None,
    }
}

/// Files and bytes that a job moved, if this is its last line and it came to its end.
#[must_use]
pub fn moved_at_end(line: &str) -> Option<(u64, u64)> {
    match json::Event::parse(line)? {
        json::Event::Done(done) => {
            Some((done.files.saturating_add(done.earlier_files), done.bytes.saturating_add(done.earlier_bytes)))
        }
        _ => None,
    }
}

/// Is this line of `Mode::Json` the last of its job?
#[must_use]
pub fn ends_job(line: &str) -> bool {
    matches!(json::Event::parse(line), Some(json::Event::Done(_) | json::Event::Dry(_) | json::Event::Failed(_)))
}

/// A name's bytes as text that a terminal can be shown: what is not UTF-8 or would steer the terminal becomes `\xNN`.
#[must_use]
pub fn show_path(path: &[u8]) -> String {
    if path.is_empty() {
        return ".".to_owned();
    }
    let mut text = String::with_capacity(path.len());
    for piece in path.utf8_chunks() {
        for letter in piece.valid().chars() {
            push_clean(&mut text, letter, false);
        }
        for byte in piece.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// A text from outside, with its control characters made visible; line ends stay.
#[must_use]
pub fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for letter in text.chars() {
        push_clean(&mut cleaned, letter, true);
    }
    cleaned
}

fn push_clean(text: &mut String, letter: char, keep_newline: bool) {
    // Direction marks can make a name read as another one (Unicode TR 36, 2.10).
    let steers = letter.is_control()
        || matches!(letter, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !steers || (keep_newline && letter == '\n') {
        text.push(letter);
    } else {
        for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
}
