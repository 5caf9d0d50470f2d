//! A job's events on their way to whoever watches, and into the history.
//!
//! For: jobs that this process begins, for its user (`client`) or for another host's client (`serve::relay`).
//! In and out: events in; the same out, and what the history wants to know of them.
//! Invariants: the line of the history is written before the last event goes out: nothing is said after that; a job that panics has its line, too.
//! Absent on purpose: the line and its file (`report::history`).

use crate::event::{JobEvent, Watch};
use crate::report::history::JobRecord;
use crate::report::json::{self, exit_of_code};
use crate::report::{EndReport, show_path};
use text::exit::{Exit, Failure};

/// A watcher that hands each event on, and keeps the job's line of the history.
pub struct Recorded<'a> {
    watch: &'a mut dyn Watch,
    record: JobRecord,
    /// The watcher is told of a history that cannot be written.
    is_told: bool,
}

impl std::fmt::Debug for Recorded<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Recorded").field("record", &self.record).finish_non_exhaustive()
    }
}

impl<'a> Recorded<'a> {
    /// Events go on to `watch`, which is told as well if the history cannot be written: only where its user is the history's.
    pub fn new(watch: &'a mut dyn Watch, record: JobRecord, is_told: bool) -> Recorded<'a> {
        Recorded { watch, record, is_told }
    }

    /// The job did not reach its end, and whoever began it says so.
    pub fn failed(&mut self, failure: &Failure) {
        self.ends(failure.exit, Some(failure));
    }

    fn ends(&mut self, exit: Exit, failure: Option<&Failure>) {
        self.record.end(exit, failure);
        if let Some(warning) = self.record.warning().filter(|_| self.is_told) {
            self.watch.on(JobEvent::Note(warning));
        }
    }

    fn on_end(&mut self, report: &EndReport) {
        let receipt = report.receipt.as_ref().map(|path| {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            path.to_string_lossy().into_owned()
        });
        let first = report.faults.first().first();
        let error = first.map(|it| format!("{}: {}", show_path(&it.path), json::FaultRecord::of(it).kind));
        self.record.set(|job| {
            job.job = Some(report.job.iter().map(|byte| format!("{byte:02x}")).collect());
            (job.bytes, job.files) = (report.bytes + report.earlier_bytes, report.files + report.earlier_files);
            (job.receipt, job.error) = (receipt, error.or_else(|| report.receipt_missing.clone()));
        });
        self.ends(report.exit(), None);
    }

    /// What another host says that runs the job.
    fn on_relayed(&mut self, event: &json::Event) {
        match event {
            json::Event::Progress(now) => self.record.set(|job| {
                (job.bytes, job.files) = (now.received, now.files_done);
            }),
            json::Event::Done(done) => {
                self.record.set(|job| {
                    job.job = Some(done.job.clone());
                    (job.bytes, job.files) = (done.bytes + done.earlier_bytes, done.files + done.earlier_files);
                });
                self.ends(exit_of_code(done.exit), None);
            }
            json::Event::Failed(failed) => {
                let failure = failed.clone().into_failure();
                self.ends(failure.exit, Some(&failure));
            }
            _ => {}
        }
    }
}

impl Watch for Recorded<'_> {
    fn on(&mut self, event: JobEvent) -> bool {
        match &event {
            JobEvent::Progress(now) => self.record.set(|job| {
                (job.bytes, job.files) = (now.received, now.files_done);
            }),
            JobEvent::Ended(report) => self.on_end(report),
            JobEvent::Failed(failure) => self.ends(failure.exit, Some(failure)),
            JobEvent::Relayed(event) => self.on_relayed(event),
            _ => {}
        }
        self.watch.on(event)
    }
}

impl Drop for Recorded<'_> {
    fn drop(&mut self) {
        // Whoever had an end has its line already.
        self.record.end(Exit::Bug, None);
    }
}
