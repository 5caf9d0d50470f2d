//! `longhaul job history`: the jobs that ended on this host.
//!
//! For: whoever asks the next morning what went where, and what did not.
//! In and out: the history of LONGHAUL_HOME → one line or object for each job, newest first.
//! Invariants: times are UTC; what is not known is a dash, not a guess.
//! Absent on purpose: writing the history (`node::report::history`), running jobs (job_command.rs).

use clap::Args;
use node::identity::Home;
use node::report::history::{self, EndedJob};
use text::exit::Exit;
use text::time::show_utc;
use text::units::{show_bytes, show_count, show_seconds};

use super::{UNKNOWN, short};
use crate::report::clean;

/// Lines when nobody says otherwise: a screen and a bit.
pub const LIMIT_DEFAULT: usize = 50;

/// `longhaul job history`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct HistoryArguments {
    /// Print one JSON array
    #[arg(long)]
    pub json: bool,
    /// So many at most, the newest
    #[arg(long, value_name = "N", default_value_t = LIMIT_DEFAULT)]
    pub limit: usize,
    /// Only jobs with another exit code than 0
    #[arg(long)]
    pub failed: bool,
}

/// Prints them.
///
/// # Errors
/// A history that is there and cannot be read.
pub fn run(home: &Home, arguments: &HistoryArguments) -> anyhow::Result<()> {
    let is_wanted = |job: &EndedJob| !arguments.failed || job.exit != Exit::Whole.code();
    let jobs = history::read(home, arguments.limit, is_wanted).map_err(|error| {
        let next = format!(
            "move {} away, or make it readable: the next job begins a new one",
            home.path("history.jsonl").display()
        );
        Exit::of_io(&error).fail("read the history", error).next(next)
    })?;
    let none = format!(
        "no job {} here (of LONGHAUL_HOME {})",
        if arguments.failed { "failed" } else { "ended" },
        home.path("").display()
    );
    let mut heads = vec!["ended (UTC)", "job", "by", "took", "bytes", "files", "exit", "peer", "receipt", "what"];
    heads.extend(arguments.failed.then_some("why"));
    super::print(&jobs, (arguments.json, &none), &heads, |job| {
        let mut cells = line(job);
        cells.extend(arguments.failed.then(|| job.error.as_deref().map_or_else(|| UNKNOWN.to_owned(), clean)));
        cells
    })
}

fn line(job: &EndedJob) -> Vec<String> {
    let name = job.job.as_deref();
    let exit = format!("{} {}", job.exit, clean(&job.exit_kind));
    vec![
        show_utc(job.ended_unix_s),
        name.map_or_else(|| UNKNOWN.to_owned(), short),
        clean(&job.command),
        show_seconds(job.seconds),
        show_bytes(job.bytes),
        show_count(job.files),
        exit,
        job.peer.as_deref().map_or_else(|| UNKNOWN.to_owned(), short_key),
        // The receipt has the job's name.
        name.filter(|_| job.receipt.is_some()).map_or_else(|| UNKNOWN.to_owned(), short),
        what(job),
    ]
}

/// From where to where.
pub(super) fn what(job: &EndedJob) -> String {
    format!("{} -> {}", clean(&job.source), clean(&job.destination))
}

/// A fingerprint's begin; `key list` has the whole.
fn short_key(fingerprint: &str) -> String {
    clean(fingerprint.get(..11).unwrap_or(fingerprint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_went_where_and_how_it_ended_without_letters_that_move_the_cursor() {
        let job = EndedJob {
            ended_unix_s: 1_700_000_000,
            job: Some("ab".repeat(16)),
            command: "sync".to_owned(),
            source: "/a\u{1b}[31m".to_owned(),
            destination: "h:/b".to_owned(),
            peer: Some("lh:abcdefghijklmnop".to_owned()),
            exit: 31,
            exit_kind: "lost".to_owned(),
            ..EndedJob::default()
        };
        let cells = line(&job);
        assert_eq!(cells[..3], ["2023-11-14 22:13:20", "abababab", "sync"]);
        assert_eq!(cells[6..9], ["31 lost", "lh:abcdefgh", "-"], "no receipt was kept");
        assert!(cells[9].ends_with(" -> h:/b") && !cells[9].contains('\u{1b}'), "{}", cells[9]);
    }
}
