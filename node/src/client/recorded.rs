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
    /// What sessions brought that were lost, and what the last one brought so far.
    moved: Moved,
}

/// Payload of a job whose session may be lost and made again.
#[derive(Debug, Default, Clone, Copy)]
struct Moved {
    lost_bytes: u64,
    lost_sessions: u64,
    bytes: u64,
    /// The most that were done in any session: a later one finds there what the one before it brought.
    files: u64,
    is_away: bool,
}

impl Moved {
    fn on_progress(&mut self, bytes: u64, files: u64) {
        (self.bytes, self.files, self.is_away) = (bytes, files.max(self.files), false);
    }

    /// Told at each attempt to make the session again.
    fn on_lost(&mut self) {
        self.lost_sessions += u64::from(!std::mem::replace(&mut self.is_away, true));
        self.lost_bytes += std::mem::take(&mut self.bytes);
    }

    fn write(&self, record: &JobRecord) {
        record.set(|job| {
            (job.bytes, job.files, job.reconnected) = (self.lost_bytes + self.bytes, self.files, self.lost_sessions);
        });
    }
}

impl std::fmt::Debug for Recorded<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Recorded").field("record", &self.record).finish_non_exhaustive()
    }
}

impl<'a> Recorded<'a> {
    /// Events go on to `watch`, which is told as well if the history cannot be written: only where its user is the history's.
    pub fn new(watch: &'a mut dyn Watch, record: JobRecord, is_told: bool) -> Recorded<'a> {
        Recorded { watch, record, is_told, moved: Moved::default() }
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
            job.reconnected = report.lost_sessions;
            (job.receipt, job.error) = (receipt, error.or_else(|| report.receipt_missing.clone()));
        });
        self.ends(report.exit(), None);
    }

    /// What another host says that runs the job.
    fn on_relayed(&mut self, event: &json::Event) {
        match event {
            json::Event::Progress(now) => {
                if now.reconnecting.is_some() {
                    self.moved.on_lost();
                } else {
                    self.moved.on_progress(now.received, now.files_done);
                }
                self.moved.write(&self.record);
            }
            json::Event::Done(done) => {
                self.record.set(|job| {
                    job.job = Some(done.job.clone());
                    (job.bytes, job.files) = (done.bytes + done.earlier_bytes, done.files + done.earlier_files);
                    job.reconnected = done.lost_sessions;
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
            JobEvent::Progress(now) => {
                self.moved.on_progress(now.received, now.files_done);
                self.moved.write(&self.record);
            }
            JobEvent::Reconnecting(_) => {
                self.moved.on_lost();
                self.moved.write(&self.record);
            }
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::identity::Home;
    use crate::report::history::{self, EndedJob, History};
    use crate::report::{Progress, Reconnecting};

    #[test]
    fn a_job_whose_session_was_lost_has_the_bytes_of_all_its_sessions_also_where_it_failed() {
        let folder = std::env::temp_dir().join(format!("longhaul-recorded-{}", std::process::id()));
        let home = Home::at(&folder).unwrap();
        let record = History::of(&home).begin(EndedJob::default());
        let mut nobody = |_: JobEvent| ();
        let mut recorded = Recorded::new(&mut nobody, record, false);
        let progress = |received, files_done| {
            JobEvent::Progress(Box::new(Progress { received, files_done, ..Progress::default() }))
        };
        let away = || JobEvent::Reconnecting(Reconnecting::of(SystemTime::now(), Duration::from_secs(9)));
        for event in [progress(100, 1), progress(700, 3), away(), away(), progress(50, 2), progress(200, 4), away()] {
            recorded.on(event);
        }
        recorded.on(JobEvent::Failed(Exit::Lost.fail("make the session again", "nobody answers")));
        let all = history::read(&home, 9, |_| true).unwrap();
        assert_eq!((all[0].bytes, all[0].files, all[0].reconnected, all[0].exit), (900, 4, 2, 31), "{all:?}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
