//! `JobEvent`: what a job tells while it runs.
//!
//! For: screens, logs, and other programs that follow a job.
//! In and out: the job says something → one call of the watcher; `line` makes the JSON line of it that `--json` and relays have.
//! Invariants: events are plain data and own what they say; a job's last event is `Ended`, `DryRun`, `Failed` or a relayed last line.
//! Absent on purpose: how any of it is shown.

use std::io::Write;
use std::time::Duration;

use crate::report::json::{self, Done, DryRecord, Failed, FaultEvent, FaultRecord, Note, PlanRecord, ProgressRecord};
use crate::report::trace::sample::RailRecord;
use crate::report::{DryRun, EndReport, PathFault, Progress, Reconnecting};
use text::exit::{Exit, Failure};

/// Something that a job tells.
#[derive(Debug, Clone)]
pub enum JobEvent {
    /// A sentence that everybody should read.
    Note(String),
    /// A sentence for those who want to know more.
    Detail(String),
    /// An entry failed; the rest goes on.
    Fault(PathFault),
    /// What was negotiated, with reasons; only if the request asks for it.
    Plan(Box<PlanRecord>),
    /// How far the job is; several times a second.
    Progress(Box<Progress>),
    /// How each rail goes, about once a second.
    Rail(Box<RailRecord>),
    /// The session is lost and is being made again.
    Reconnecting(Reconnecting),
    /// The program is on its way to a host that ssh reaches and that has none: so many bytes of so many; all of them at the end, also where it broke off.
    Bringing {
        /// Bytes that ssh took.
        sent: u64,
        /// Bytes in all, as they travel.
        whole: u64,
    },
    /// What another host says that runs the job in this one's place.
    Relayed(Box<json::Event>),
    /// The job reached its end.
    Ended(Box<EndReport>),
    /// The dry run reached its end.
    DryRun(DryRun),
    /// The job did not reach its end.
    Failed(Failure),
}

impl JobEvent {
    /// The event as one JSON object, without a line end; `None`: it is not for others.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        let text = match self {
            Self::Note(text) => serde_json::to_string(&Note::of(text)),
            Self::Fault(fault) => serde_json::to_string(&FaultEvent::of(FaultRecord::of(fault))),
            Self::Plan(record) => serde_json::to_string(record),
            Self::Progress(progress) => serde_json::to_string(&ProgressRecord::of(progress)),
            Self::Rail(record) => serde_json::to_string(record),
            Self::Ended(report) => serde_json::to_string(&Done::of(report)),
            Self::DryRun(found) => serde_json::to_string(&DryRecord::of(found)),
            Self::Failed(failure) => serde_json::to_string(&Failed::of(failure)),
            Self::Relayed(event) => event.line(),
            Self::Detail(_) | Self::Reconnecting(_) | Self::Bringing { .. } => return None,
        };
        Some(text.expect("records have text keys and finite depth"))
    }
}

/// Whoever follows a job. Closures that take a `JobEvent` are watchers, too.
pub trait Watch {
    /// The job says something. Gives back whether somebody saw it: figures that nobody saw are made for a longer time.
    fn on(&mut self, event: JobEvent) -> bool;
}

impl<F: FnMut(JobEvent)> Watch for F {
    fn on(&mut self, event: JobEvent) -> bool {
        self(event);
        true
    }
}

/// Where a job's code tells what happens.
pub struct Events<'a> {
    watch: &'a mut dyn Watch,
}

impl std::fmt::Debug for Events<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Events").finish_non_exhaustive()
    }
}

impl<'a> Events<'a> {
    /// To this watcher.
    pub fn to(watch: &'a mut dyn Watch) -> Events<'a> {
        Events { watch }
    }

    /// A sentence that everybody should read.
    pub fn note(&mut self, text: &str) {
        self.watch.on(JobEvent::Note(text.to_owned()));
    }

    /// A sentence for those who want to know more.
    pub fn detail(&mut self, text: &str) {
        self.watch.on(JobEvent::Detail(text.to_owned()));
    }

    /// An entry failed.
    pub fn fault(&mut self, fault: PathFault) {
        self.watch.on(JobEvent::Fault(fault));
    }

    /// What was negotiated.
    pub fn plan(&mut self, record: PlanRecord) {
        self.watch.on(JobEvent::Plan(Box::new(record)));
    }

    /// How far the job is. Did somebody see it?
    pub fn progress(&mut self, progress: Progress) -> bool {
        self.watch.on(JobEvent::Progress(Box::new(progress)))
    }

    /// How a rail goes.
    pub fn rail(&mut self, record: RailRecord) {
        self.watch.on(JobEvent::Rail(Box::new(record)));
    }

    /// The session is being made again.
    pub fn reconnecting(&mut self, waiting: Reconnecting) {
        self.watch.on(JobEvent::Reconnecting(waiting));
    }

    /// The program is on its way to another host.
    pub fn bringing(&mut self, sent: u64, whole: u64) {
        self.watch.on(JobEvent::Bringing { sent, whole });
    }

    /// The job reached its end: its exit code.
    pub fn end(&mut self, report: EndReport) -> Exit {
        let exit = report.exit();
        self.watch.on(JobEvent::Ended(Box::new(report)));
        exit
    }

    /// The dry run reached its end: its exit code.
    pub fn end_dry(&mut self, found: DryRun) -> Exit {
        let exit = found.exit();
        self.watch.on(JobEvent::DryRun(found));
        exit
    }

    /// The job did not reach its end: its exit code.
    pub fn fail(&mut self, failure: &Failure) -> Exit {
        self.watch.on(JobEvent::Failed(failure.clone()));
        failure.exit
    }

    /// A line of the host that runs the job in this one's place; the exit code when it was the last.
    pub fn relay(&mut self, line: &str) -> Option<Exit> {
        let event = json::Event::parse(line)?;
        let exit = match &event {
            json::Event::Dry(record) => Some(record.found.exit()),
            json::Event::Done(done) => Some(json::exit_of_code(done.exit)),
            json::Event::Failed(failed) => Some(json::exit_of_code(failed.exit)),
            _ => None,
        };
        self.watch.on(JobEvent::Relayed(Box::new(event)));
        exit
    }
}

/// Figures are written so often.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// A watcher that writes each event as a JSON line, progress about once a second.
#[derive(Debug)]
pub struct JsonLines<W> {
    to: W,
    next: Duration,
    last: Progress,
}

impl<W: Write> JsonLines<W> {
    /// To this writer; what it cannot take is lost, and stops no job.
    pub fn to(to: W) -> JsonLines<W> {
        JsonLines { to, next: Duration::ZERO, last: Progress::default() }
    }

    fn write(&mut self, event: &JobEvent) {
        if let Some(mut line) = event.line() {
            line.push('\n');
            let _ = self.to.write_all(line.as_bytes()).and_then(|()| self.to.flush());
        }
    }
}

impl<W: Write> Watch for JsonLines<W> {
    fn on(&mut self, event: JobEvent) -> bool {
        let event = match event {
            JobEvent::Progress(progress) => {
                self.last.clone_from(&progress);
                // A session that was made again counts from its own beginning.
                self.next = self.next.min(progress.elapsed + PROGRESS_EVERY);
                if progress.elapsed < self.next {
                    return false;
                }
                self.next = progress.elapsed + PROGRESS_EVERY;
                JobEvent::Progress(progress)
            }
            JobEvent::Reconnecting(waiting) => {
                self.next = self.last.elapsed + PROGRESS_EVERY;
                let progress = Progress { reconnecting: Some(waiting), rate_bps: 0.0, ..self.last.clone() };
                JobEvent::Progress(Box::new(progress))
            }
            event => event,
        };
        self.write(&event);
        true
    }
}
