//! The trace of a job: what congestion control did on each rail, over time, in a file for others to look at.
//!
//! For: the question why a copy was not faster, answered without this program.
//! In and out: looks at rails from the job driver; one file when the job is over, well or not, also where a signal ends the process: a page with
//! plots, qlog, or lines of JSON, by the ending of its name.
//! Invariants: memory is bounded however long the job is (`series`); a place that cannot be written is said before anything is moved; a file is
//! replaced whole, and that it was there is said; a trace that cannot be written in the end is said, and costs the job nothing.
//! Absent on purpose: looking (job driver), figures of the whole job (`json::Done`).

pub mod page; // plots
pub mod qlog; // for others' viewers
pub mod sample; // one look at one rail
pub mod series; // what is remembered

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use self::sample::{RailFacts, RailId, RailRecord, Sample};
use self::series::Looks;
use text::exit::{Exit, Failure};

/// The one rule: what a trace is, the ending of its file's name says.
pub const ENDINGS: &str =
    "FILE.html is a page with plots, FILE.qlog or FILE.sqlog is qlog, FILE.json has one JSON object to a line";

/// What kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A page with plots.
    Page,
    /// qlog 0.3, a JSON text sequence.
    Qlog,
    /// A `RailRecord` to a line.
    Lines,
}

impl Format {
    /// By the ending of the name.
    ///
    /// # Errors
    /// An ending that means nothing.
    pub fn of(path: &Path) -> Result<Format, Failure> {
        let ending = path.extension().map(|it| it.to_string_lossy().to_ascii_lowercase());
        match ending.as_deref() {
            Some("html" | "htm") => Ok(Format::Page),
            Some("qlog" | "sqlog") => Ok(Format::Qlog),
            Some("json" | "jsonl") => Ok(Format::Lines),
            _ => Err(Exit::Usage
                .fail(format!("write the trace '{}'", path.display()), "the ending of its name says no format")
                .next(format!("name it by what it is to be: {ENDINGS}"))),
        }
    }
}

/// What a trace says beside its looks.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// Sources and destination, without secrets.
    pub what: String,
    /// Seconds since 1970.
    pub began_unix_s: u64,
    /// What limited the job, once it is over.
    pub limiter: Option<String>,
}

impl About {
    fn title(&self) -> String {
        format!("longhaul: {}", self.what)
    }

    /// How close the looks are.
    #[expect(clippy::cast_precision_loss, reason = "ms for people")]
    fn spacing_words(&self, looks: &Looks) -> String {
        let (count, rails) = (looks.count(), looks.rails().count());
        let spacing = match looks.spacing_ns() {
            0 => "one each round trip, within 10 to 100 ms".to_owned(),
            ns => format!("one each {:.0} ms: the job was too long for more", ns as f64 / 1e6),
        };
        let more = match looks.left_out() {
            0 => "",
            _ => "; further rails are left out",
        };
        let rails = if rails == 1 { "1 rail".to_owned() } else { format!("{rails} rails") };
        format!("{count} looks at {rails}, {spacing}{more}")
    }
}

/// Where it goes.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    format: Format,
    began_ns: u64,
}

#[derive(Debug, Default)]
struct Inside {
    place: Option<Place>,
    about: About,
    looks: Looks,
    sessions: u32,
    written: bool,
}

/// A trace, or none: until `begin` nothing is kept. Whoever runs a job and may have to end the process holds it too, and writes it then.
#[derive(Debug, Default)]
pub struct Trace {
    inside: Mutex<Inside>,
}

impl Trace {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on looks are kept for this file. Nothing of the file is touched yet, but that it can be written is tried.
    ///
    /// # Errors
    /// An ending that means nothing, a place that cannot be written.
    pub fn begin(&self, path: &Path, what: String) -> Result<(), Failure> {
        let format = Format::of(path)?;
        try_place(path).map_err(|error| failed(path, &error))?;
        let began_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs());
        let place = Place { path: path.to_owned(), format, began_ns: sys::clock::now_ns() };
        let about = About { what, began_unix_s, limiter: None };
        *self.inside() = Inside { place: Some(place), about, ..Inside::default() };
        Ok(())
    }

    /// Is anything kept?
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.inside().place.is_some()
    }

    /// A session begins: its number.
    pub fn next_session(&self) -> u32 {
        let mut inside = self.inside();
        inside.sessions += 1;
        inside.sessions - 1
    }

    /// When it began, and how far apart looks are at least, ns; `None`: it is off.
    #[must_use]
    pub fn clock(&self) -> Option<(u64, u64)> {
        let inside = self.inside();
        inside.place.as_ref().map(|place| (place.began_ns, inside.looks.spacing_ns()))
    }

    /// One look at one rail.
    pub fn add(&self, id: RailId, facts: impl FnOnce() -> RailFacts, sample: Sample) {
        let mut inside = self.inside();
        if inside.place.is_some() {
            inside.looks.add(id, facts, sample);
        }
    }

    /// Writes the file, once; a sentence for the user of what became of it. `limiter`: what limited the job, where that is known.
    pub fn write(&self, limiter: Option<&str>) -> Option<String> {
        let mut inside = self.inside();
        if std::mem::replace(&mut inside.written, true) {
            return None;
        }
        inside.about.limiter = limiter.map(str::to_owned);
        let Inside { place: Some(place), about, looks, .. } = &*inside else { return None };
        let text = match place.format {
            Format::Page => page::page(about, looks),
            Format::Qlog => qlog::file(about, looks),
            Format::Lines => lines(about, looks),
        };
        let path = place.path.display();
        Some(match replace(&place.path, text.as_bytes()) {
            Ok(false) => format!("trace: {path}, {}", about.spacing_words(looks)),
            Ok(true) => {
                format!("trace: {path}, in the place of the file that stood there, {}", about.spacing_words(looks))
            }
            Err(error) => format!("no trace is kept: {}", failed(&place.path, &error)),
        })
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    let is_mistake = matches!(error.kind(), IsADirectory | NotADirectory | NotFound);
    let exit = if is_mistake { Exit::Usage } else { Exit::of_io(error) };
    exit.fail(format!("write the trace '{}'", path.display()), error)
        .next("name a file in a folder that can be written to: --trace FILE")
}

/// A file of this process beside the one that is meant.
fn beside(path: &Path) -> PathBuf {
    let mut name: OsString = path.into();
    name.push(format!(".{}.part", std::process::id()));
    name.into()
}

fn try_place(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let part = beside(path);
    fs::File::create(&part).and(Ok(()))?;
    fs::remove_file(part)
}

/// Puts the file there whole. Did one stand there?
fn replace(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let (part, was_there) = (beside(path), path.exists());
    let written =
        fs::File::create(&part).and_then(|mut file| file.write_all(bytes)).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // What is left of it is of no use; the first error is the one to tell.
        let _ = fs::remove_file(&part);
    }
    written.map(|()| was_there)
}

/// Every look of every rail with the one before it, in the order of time.
fn in_order(looks: &Looks) -> Vec<(RailId, &RailFacts, Option<&Sample>, &Sample)> {
    let mut all = Vec::with_capacity(looks.count());
    for (id, series) in looks.rails() {
        let mut before = None;
        for now in series.looks() {
            all.push((id, &series.facts, before, now));
            before = Some(now);
        }
    }
    all.sort_by_key(|(_, _, _, now)| now.at_ns);
    all
}

/// A head, then what `--json` has of rails, at the pace of the trace.
fn lines(about: &About, looks: &Looks) -> String {
    let head = json!({ "event": "trace", "what": about.what, "began_unix_s": about.began_unix_s,
        "spacing_ms": looks.spacing_ns() / 1_000_000, "rails_left_out": looks.left_out(), "limiter": about.limiter,
        "longhaul": env!("CARGO_PKG_VERSION") });
    let mut out = format!("{head}\n");
    for (id, facts, before, now) in in_order(looks) {
        let record = RailRecord::of(id, facts, before.unwrap_or(&Sample::default()), now);
        out += &serde_json::to_string(&record).expect("records have text keys and finite depth");
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests;
