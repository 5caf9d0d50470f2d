//! Reports: what the user is told while a job runs and when it ends.
//!
//! For: one place that turns plain figures into lines for people or JSON for programs, so that both always agree.
//! In and out: `Progress`, `Explained`, `EndReport`, `Failure` → standard error (while it runs) and standard output (the result).
//! Invariants: the text report is made from the same record as the JSON line; nothing shown is above 100 %; a name or a text
//!   that came from outside never reaches the terminal with its control characters.
//! Absent on purpose: measuring and deciding (the command hands in finished figures), colours.
//!
//! The modules stand in the order in which a user meets them.

pub mod end; // the end report as text
pub mod progress; // while it runs: bars, lines

use std::io::{IsTerminal, Write};

use crate::args::ProgressChoice;
use node::event::{JobEvent, Watch};
pub use node::report::*;
use text::exit::{Exit, Failure};

/// How to talk to the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A terminal: bars that are drawn anew.
    Live,
    /// A file or a pipe: a line now and then.
    Lines,
    /// One JSON object per line on standard output, nothing else anywhere.
    Json,
    /// Only what failed, on standard error.
    Quiet,
}

impl Mode {
    /// JSON if asked for, else by what standard error is.
    #[must_use]
    pub fn choose(json: bool) -> Self {
        if json {
            Self::Json
        } else if std::io::stderr().is_terminal() {
            Self::Live
        } else {
            Self::Lines
        }
    }
}

/// The user's screen, or the file or program in its place.
pub struct Screen {
    mode: Mode,
    /// Results and JSON.
    out: Box<dyn Write + Send>,
    /// Progress lines and notes.
    err: Box<dyn Write + Send>,
    bars: Option<progress::Bars>,
    pace: progress::Pace,
    rates: progress::Rates,
    last: Progress,
    /// Of the outage that was said last.
    outage_since: Option<u64>,
    /// 0: what matters; more: also details.
    verbose: u8,
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Screen").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Screen {
    /// On standard output and standard error.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        let mut screen = Self::onto(mode, Box::new(std::io::stdout()), Box::new(std::io::stderr()));
        screen.bars = (mode == Mode::Live).then(progress::Bars::new);
        screen
    }

    /// Onto other writers: tests, and jobs run for a client far away (`Mode::Json`, `out` makes frames of lines).
    #[must_use]
    pub fn onto(mode: Mode, out: Box<dyn Write + Send>, err: Box<dyn Write + Send>) -> Self {
        Self {
            mode,
            out,
            err,
            bars: None,
            pace: progress::Pace::new(mode),
            rates: progress::Rates::Link,
            last: Progress::default(),
            outage_since: None,
            verbose: 0,
        }
    }

    /// As talkative as this from now on.
    #[must_use]
    pub fn saying(mut self, verbose: u8) -> Self {
        self.verbose = verbose;
        self
    }

    /// Progress is shown so often from now on.
    #[must_use]
    pub fn every(mut self, progress: ProgressChoice) -> Self {
        self.pace = progress::Pace::every(self.mode, progress);
        self
    }

    /// From now on rates are a disk's, and are shown in B/s.
    #[must_use]
    pub fn of_a_disk(mut self) -> Self {
        self.rates = progress::Rates::Disk;
        self
    }

    /// How it goes; call as often as you like, it is shown when it is time to. Was it?
    pub fn progress(&mut self, progress: &Progress) -> bool {
        self.last.clone_from(progress);
        if let Some(bars) = &mut self.bars {
            bars.draw(progress, self.rates, self.verbose);
            return true;
        }
        let is_due = self.pace.is_due(progress.elapsed);
        if is_due {
            match self.mode {
                Mode::Json => self.json(&json::ProgressRecord::of(progress)),
                Mode::Live | Mode::Lines => self.line(&progress::line(progress, self.rates, self.verbose)),
                Mode::Quiet => {}
            }
        }
        is_due
    }

    /// How a rail goes: for programs alone.
    fn rail(&mut self, record: &json::RailRecord) {
        if self.mode == Mode::Json {
            self.json(record);
        }
    }

    /// The session is being made again: the last figures, and since and until when. Shown now.
    pub fn reconnecting(&mut self, waiting: Reconnecting) {
        let progress = Progress { reconnecting: Some(waiting), rate_bps: 0.0, ..self.last.clone() };
        // Each outage is said once, however often it is tried to end it.
        if self.outage_since.replace(waiting.since_s) != Some(waiting.since_s) {
            self.pace.now();
        }
        self.progress(&progress);
    }

    /// The program is on its way to another host: one line of a terminal, which goes when all of it is there. Elsewhere the notes before and after are enough.
    fn bringing(&mut self, sent: u64, whole: u64) {
        if self.mode == Mode::Live {
            let show = text::units::show_bytes;
            let text = format!("{} of {} sent, {} %", show(sent), show(whole), sent * 100 / whole.max(1));
            let text = if sent < whole { text } else { String::new() };
            let _ = write!(self.err, "\r\x1b[K{text}").and_then(|()| self.err.flush());
        }
    }

    /// A sentence for the user, now.
    pub fn note(&mut self, text: &str) {
        match self.mode {
            Mode::Json => self.json(&json::Note::of(text)),
            Mode::Live | Mode::Lines => self.line(&clean(text)),
            Mode::Quiet => {}
        }
    }

    /// A sentence for a user who wants to know more.
    pub fn detail(&mut self, text: &str) {
        if self.verbose > 0 {
            self.note(text);
        }
    }

    /// An entry failed, now.
    pub fn fault(&mut self, fault: &PathFault) {
        let record = json::FaultRecord::of(fault);
        match self.mode {
            Mode::Json => self.json(&json::FaultEvent::of(record)),
            Mode::Live | Mode::Lines | Mode::Quiet => self.line(&end::fault_line(&record)),
        }
    }

    /// What was negotiated and why (`--explain`).
    pub fn plan(&mut self, record: &json::PlanRecord) {
        match self.mode {
            Mode::Json => self.json(record),
            Mode::Live | Mode::Lines => self.line(explain::text(record).trim_end()),
            Mode::Quiet => {}
        }
    }

    /// The job reached its end. Gives the process's exit code.
    pub fn end(&mut self, report: &EndReport) -> Exit {
        self.end_record(&json::Done::of(report));
        report.exit()
    }

    /// A dry run reached its end.
    pub fn end_dry(&mut self, dry: &DryRun) -> Exit {
        self.conclude(&json::DryRecord::of(dry), &end::dry_text(dry));
        dry.exit()
    }

    /// The job did not reach its end. Gives the process's exit code.
    pub fn fail(&mut self, failure: &Failure) -> Exit {
        self.clear();
        match self.mode {
            Mode::Json => self.json(&json::Failed::of(failure)),
            Mode::Live | Mode::Lines | Mode::Quiet => self.line(&clean(&failure.to_string())),
        }
        failure.exit
    }

    /// A line that another host wrote while it ran our job: shown as if the job ran here.
    fn relayed(&mut self, event: json::Event) {
        match event {
            json::Event::Progress(record) => {
                self.progress(&record.into_progress());
            }
            json::Event::Rail(record) => self.rail(&record),
            json::Event::Note(note) => self.note(&note.text),
            json::Event::Fault(event) => match self.mode {
                Mode::Json => self.json(&event),
                Mode::Live | Mode::Lines | Mode::Quiet => self.line(&end::fault_line(&event.fault)),
            },
            json::Event::Plan(record) => self.plan(&record),
            json::Event::Dry(record) => {
                self.end_dry(&record.found);
            }
            json::Event::Done(done) => self.end_record(&done),
            json::Event::Failed(failed) => {
                self.fail(&failed.into_failure());
            }
        }
    }

    /// Something that was found, now, and is part of the result.
    pub fn finding(&mut self, record: &impl serde::Serialize, text: &str) {
        let Self { mode, out, bars, .. } = self;
        if *mode == Mode::Json {
            return self.json(record);
        }
        let mut write = || drop(writeln!(out, "{text}").and_then(|()| out.flush()));
        match bars {
            Some(bars) => bars.suspend(write),
            None => write(),
        }
    }

    /// The end of a command that is no copy: its record, or its text.
    pub fn conclude(&mut self, record: &impl serde::Serialize, text: &str) {
        self.clear();
        match self.mode {
            Mode::Json => self.json(record),
            Mode::Live | Mode::Lines => self.result(text),
            Mode::Quiet => {}
        }
    }

    fn end_record(&mut self, done: &json::Done) {
        let text = if self.verbose > 0 { end::text(done) } else { end::brief(done) };
        self.conclude(done, &text);
        if self.mode == Mode::Quiet {
            // Each entry was named when it failed.
            end::failed(done).lines().for_each(|line| self.line(line));
        }
    }

    /// Takes the bars away; what follows stands on clean ground.
    fn clear(&mut self) {
        if let Some(bars) = self.bars.take() {
            bars.clear();
        }
    }

    /// One JSON object, one line, at once (a reader follows the job). A reader who went away does not stop a copy.
    fn json(&mut self, record: &impl serde::Serialize) {
        let mut line = serde_json::to_string(record).expect("records have text keys and finite depth");
        line.push('\n');
        let _ = self.out.write_all(line.as_bytes()).and_then(|()| self.out.flush());
    }

    fn line(&mut self, text: &str) {
        match &self.bars {
            Some(bars) => bars.suspend(|| eprintln!("{text}")),
            None => {
                let _ = writeln!(self.err, "{text}").and_then(|()| self.err.flush());
            }
        }
    }

    fn result(&mut self, text: &str) {
        let _ = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }
}

impl Watch for Screen {
    fn on(&mut self, event: JobEvent) -> bool {
        match event {
            JobEvent::Note(text) => self.note(&text),
            JobEvent::Detail(text) => self.detail(&text),
            JobEvent::Fault(fault) => self.fault(&fault),
            JobEvent::Plan(record) => self.plan(&record),
            JobEvent::Progress(progress) => return self.progress(&progress),
            JobEvent::Rail(record) => self.rail(&record),
            JobEvent::Reconnecting(waiting) => self.reconnecting(waiting),
            JobEvent::Bringing { sent, whole } => self.bringing(sent, whole),
            JobEvent::Relayed(event) => self.relayed(*event),
            JobEvent::Ended(report) => _ = self.end(&report),
            JobEvent::DryRun(found) => _ = self.end_dry(&found),
            JobEvent::Failed(failure) => _ = self.fail(&failure),
        }
        true
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests;
