//! `longhaul verify`: does a disk still hold what a receipt says?
//!
//! For: checking a copy days or years later, without the source.
//! In and out: a receipt and a folder (or one file) → a line for each entry that differs, a summary, an exit code.
//! Invariants: nothing of the receipt is believed before its own digest and signatures hold; links below the folder are never
//!   followed; memory does not grow with the number or the size of files.
//! Absent on purpose: mending (`longhaul cp` sends what differs), looking for files that the receipt does not name.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::args::VerifyArguments;
use crate::report::json::hex;
use crate::report::{Mode, Progress, Screen, clean, show_path};
use node::ftp::client::address::FtpAddress;
use node::ftp::client::check::Far;
use node::ftp::client::trust;
use node::identity::Home;
use node::report::history;
use node::verify::Place;
use node::verify::files::{self, Found, Tally};
use node::verify::receipt::Paper;
use text::exit::{Exit, Failure};
use text::units::{show_bytes, show_bytes_per_second, show_count, show_seconds};

/// How often progress is looked at; the screen decides when to show it.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Connections to a server of FTP, when nobody says otherwise.
const STREAMS: u16 = 4;
/// A server that says nothing for so long is gone: what `cp --stall` is by default.
const STALL: Duration = Duration::from_secs(30);

/// Missing entries that are named as text: of a wrong folder all are missing, and nobody reads them. `--json` names all.
const MISSING_SHOWN: u64 = 20;

/// Runs the command.
///
/// # Errors
/// The receipt cannot be read or does not hold; `PATH` cannot be opened. Entries that differ are no error here: they are
/// told one by one, and give the exit code.
pub fn run(arguments: &VerifyArguments) -> Result<Exit, Failure> {
    let mut screen = Screen::new(Mode::choose(arguments.json)).of_a_disk();
    run_on(arguments, &mut screen)
}

fn run_on(arguments: &VerifyArguments, screen: &mut Screen) -> Result<Exit, Failure> {
    let begun = Instant::now();
    let kept = Home::find().ok().map(|home| home.path("receipts"));
    let mut paper = Paper::open(&arguments.receipt, kept.as_deref())?;
    paper.demand_signer(arguments.signer.as_deref())?;
    if let [path] = &arguments.path[..]
        && let Some(address) = FtpAddress::of(path.as_os_str())?
    {
        return at_server(arguments, &address, &mut paper, screen);
    }
    let place = match &arguments.path[..] {
        [path] if !is_set(path) => Place::find(path, &mut paper)?,
        paths => {
            let patterns: Vec<_> = paths.iter().map(|path| path.as_os_str().to_owned()).collect();
            Place::set(&node::client::patterns::expand_all(&patterns)?, &mut paper)?
        }
    };
    let workers = usize::from(arguments.workers.unwrap_or_else(cores));
    let (tally, seen) = (Tally::default(), &mut Seen::default());
    let tick = ticker(arguments, place.totals(&paper), (&tally, seen, begun), screen);
    files::check(&mut paper, &place, workers, &tally, LOOK_EVERY, tick)?;
    Ok(conclude(arguments, &paper, (&tally, seen, begun), screen))
}

/// What is told of the findings, and of how far it is.
fn ticker<'a>(
    arguments: &'a VerifyArguments,
    (files, bytes): (u64, u64),
    (tally, seen, begun): (&'a Tally, &'a mut Seen, Instant),
    screen: &'a mut Screen,
) -> impl FnMut(Option<(Vec<u8>, Found)>) + 'a {
    let mut rate = Rate::new();
    move |found: Option<(Vec<u8>, Found)>| {
        if let Some((path, found)) = found {
            seen.add(&found);
            let is_shown = !matches!(found, Found::Missing) || seen.missing <= MISSING_SHOWN;
            if is_shown || arguments.json {
                screen.finding(&MismatchRecord::of(&path, &found), &format!("{}: {found}", show_path(&path)));
            }
        }
        let (files_done, bytes_done) = tally.so_far();
        screen.progress(&Progress {
            bytes_total: Some(bytes),
            bytes_done,
            files_total: files,
            files_done,
            rate_bps: rate.of(bytes_done),
            entries_failed: seen.count(),
            scan_done: true,
            elapsed: begun.elapsed(),
            ..Progress::default()
        });
    }
}

fn conclude(
    arguments: &VerifyArguments,
    paper: &Paper,
    (tally, seen, begun): (&Tally, &Seen, Instant),
    screen: &mut Screen,
) -> Exit {
    let exit = seen.exit();
    let done = DoneRecord::of(arguments, paper, tally, seen, begun.elapsed(), exit);
    screen.conclude(&done, &done.text());
    exit
}

/// What stands at a server of FTP, read from there.
fn at_server(
    arguments: &VerifyArguments,
    address: &FtpAddress,
    paper: &mut Paper,
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let begun = Instant::now();
    let kept = Home::find().ok().map(|home| home.path(trust::FILE));
    let far = Far::new(kept, (address, &arguments.ftp.terms(), STALL), &mut |text| screen.note(text))?;
    let (tally, seen) = (Tally::default(), &mut Seen::default());
    let totals = (paper.sealed().files, paper.sealed().bytes);
    let streams = usize::from(arguments.workers.unwrap_or(STREAMS));
    let tick = ticker(arguments, totals, (&tally, seen, begun), screen);
    let unseen = far.check(paper, streams, &tally, LOOK_EVERY, tick)?;
    if unseen > 0 {
        let count = show_count(unseen);
        screen.note(&format!(
            "links, devices and second names cannot be seen through FTP: {count} of the receipt's entries"
        ));
    }
    Ok(conclude(arguments, paper, (&tally, seen, begun), screen))
}

/// Does this name several folders?
fn is_set(path: &Path) -> bool {
    !path.exists() && path.as_os_str().as_bytes().iter().any(|byte| b"{*?".contains(byte))
}

fn cores() -> u16 {
    std::thread::available_parallelism().map_or(1, |cores| u16::try_from(cores.get()).unwrap_or(u16::MAX))
}

/// The rate of the last moments, bit/s.
struct Rate {
    at: Instant,
    bytes: u64,
    rate_bps: f64,
}

impl Rate {
    fn new() -> Self {
        Self { at: Instant::now(), bytes: 0, rate_bps: 0.0 }
    }

    fn of(&mut self, bytes: u64) -> f64 {
        let seconds = self.at.elapsed().as_secs_f64();
        if seconds >= 1.0 {
            #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
            let moved = (bytes - self.bytes) as f64;
            (self.at, self.bytes, self.rate_bps) = (Instant::now(), bytes, moved * 8.0 / seconds);
        }
        self.rate_bps
    }
}

/// What was found to differ, counted.
#[derive(Debug, Default)]
struct Seen {
    missing: u64,
    differ: u64,
    unreadable: u64,
    metadata: u64,
    unreadable_exit: Option<Exit>,
}

impl Seen {
    fn add(&mut self, found: &Found) {
        match found {
            Found::Missing => self.missing += 1,
            Found::Metadata { .. } => self.metadata += 1,
            Found::Unreadable(error) => {
                self.unreadable += 1;
                // A disk that fails is more serious than a permission.
                let exit = Exit::of_io(error);
                self.unreadable_exit = self.unreadable_exit.filter(|&known| known == Exit::Io).or(Some(exit));
            }
            Found::Kind { .. } | Found::Size { .. } | Found::Digest { .. } | Found::Target { .. } => self.differ += 1,
        }
    }

    fn count(&self) -> u64 {
        self.missing + self.differ + self.unreadable
    }

    /// What differs decides; else what could not be read; other modes and times do not make a copy bad.
    fn exit(&self) -> Exit {
        if self.missing + self.differ > 0 { Exit::Mismatch } else { self.unreadable_exit.unwrap_or(Exit::Whole) }
    }
}

/// `"event":"mismatch"`.
#[derive(Debug, Serialize)]
struct MismatchRecord {
    event: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    kind: &'static str,
    expected: Option<String>,
    found: Option<String>,
}

impl MismatchRecord {
    fn of(path: &[u8], found: &Found) -> Self {
        let text = show_path(path);
        let exact = text.as_bytes() == path || path.is_empty();
        let (expected, seen) = found.sides();
        Self {
            event: "mismatch",
            path: text,
            path_hex: (!exact).then(|| hex(path)),
            kind: found.word(),
            expected,
            found: seen,
        }
    }
}

/// The last line of `--json`, and what the summary is made from.
#[derive(Debug, Serialize)]
struct DoneRecord {
    event: &'static str,
    command: &'static str,
    exit: u8,
    exit_kind: &'static str,
    receipt: String,
    job: String,
    digest: &'static str,
    durability: &'static str,
    signed_by: Vec<(&'static str, String)>,
    files: u64,
    bytes: u64,
    folders_and_links: u64,
    seconds: f64,
    bytes_per_second: f64,
    missing: u64,
    differ: u64,
    unreadable: u64,
    metadata: u64,
    without_digest: u64,
    /// The job whose receipt names the entries; `null`: this one does.
    unchanged_since: Option<String>,
    /// How they were found to be the same, `times` or `contents`.
    unchanged_by: Option<&'static str>,
    /// The destination, as far as the history of this host knows it.
    went_to: Option<String>,
}

impl DoneRecord {
    fn of(arguments: &VerifyArguments, paper: &Paper, tally: &Tally, seen: &Seen, time: Duration, exit: Exit) -> Self {
        let (files, bytes) = tally.so_far();
        let (seconds, head) = (time.as_secs_f64(), paper.sealed().head);
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        let bytes_per_second = if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 };
        Self {
            event: "done",
            command: "verify",
            exit: exit.code(),
            exit_kind: exit.line().word,
            receipt: arguments.receipt.to_string_lossy().into_owned(),
            job: hex(&head.job),
            digest: head.digest.name(),
            durability: head.durability.name(),
            signed_by: paper.signers(),
            files,
            bytes,
            folders_and_links: tally.others(),
            seconds,
            bytes_per_second,
            missing: seen.missing,
            differ: seen.differ,
            unreadable: seen.unreadable,
            metadata: seen.metadata,
            without_digest: tally.without_digest(),
            unchanged_since: paper.sealed().former.map(|it| hex(&it.job)),
            unchanged_by: paper.sealed().former.map(|it| it.alike.name()),
            went_to: destination_of(&hex(&head.job)),
        }
    }

    /// Not one entry of the receipt stands there.
    fn is_elsewhere(&self) -> bool {
        let anything = self.differ + self.unreadable + self.bytes;
        anything == 0 && self.missing > 0 && self.missing >= self.files
    }

    fn next_step(&self) -> &'static str {
        crate::report::json::exit_of_code(self.exit).line().next_step
    }

    /// What to do where nothing of the receipt was found.
    fn where_it_went(&self) -> String {
        let known = self.went_to.as_ref().map_or_else(String::new, |to| format!(" The copy went to {}.", clean(to)));
        format!("nothing of it is here: is this the destination?{known} Name the folder that the copy went into")
    }

    fn text(&self) -> String {
        let plural = |count: u64, one: &str, many: &str| {
            format!("{} {}", show_count(count), if count == 1 { one } else { many })
        };
        let mut text = format!(
            "verified {}, {} in {} ({}): ",
            plural(self.files, "file", "files"),
            show_bytes(self.bytes),
            show_seconds(self.seconds),
            show_bytes_per_second(self.bytes_per_second),
        );
        let bad: Vec<String> = [(self.differ, "DIFFER"), (self.missing, "MISSING"), (self.unreadable, "UNREADABLE")]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{} {word}", plural(count, "entry", "entries")))
            .collect();
        text += &if bad.is_empty() {
            format!("all as the receipt says ({})\n", self.digest)
        } else {
            bad.join(", ") + "\n"
        };
        if self.missing > MISSING_SHOWN {
            let more = plural(self.missing - MISSING_SHOWN, "more is missing", "more are missing");
            text += &format!("  missing   the first {MISSING_SHOWN} are named above, {more} (--json names all)\n");
        }
        if self.metadata > 0 {
            text += &format!(
                "  note      {} another mode or time; contents are the same\n",
                plural(self.metadata, "entry has", "entries have")
            );
        }
        if self.without_digest > 0 {
            text += &format!(
                "  note      {} no digest in the receipt; only the size was compared\n",
                plural(self.without_digest, "file has", "files have")
            );
        }
        if let Some(job) = &self.unchanged_since {
            let how = match self.unchanged_by {
                Some("contents") => "names, times and contents",
                _ => "names, lengths and times; contents were not read then",
            };
            text += &format!(
                "  note      nothing had changed since the receipt of job {job}, which names the entries: by {how}\n"
            );
        }
        let signers: Vec<String> = self.signed_by.iter().map(|(end, key)| format!("{end} {key}")).collect();
        let signers = if signers.is_empty() {
            "nobody: it proves no more than its own digest".to_owned()
        } else {
            signers.join(", ")
        };
        text += &format!(
            "  receipt   {}, job {}, durability {}\n  signed by {signers}\n",
            clean(&self.receipt),
            self.job,
            self.durability
        );
        if self.exit != 0 {
            let next = if self.is_elsewhere() { self.where_it_went() } else { self.next_step().to_owned() };
            text += &format!("  next      {next}\n");
        }
        text
    }
}

/// Where a job's copy went, by the history of this host.
fn destination_of(job: &str) -> Option<String> {
    let home = Home::find_if_any().ok()??;
    let all = history::read(&home, 1, |it| it.job.as_deref() == Some(job)).ok()?;
    all.into_iter().next().map(|it| it.destination)
}

#[cfg(test)]
mod tests;
