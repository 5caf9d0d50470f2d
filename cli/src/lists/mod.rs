//! Lists of what is at a path, what was done here, who is trusted, and what has been given out.
//!
//! For: `longhaul ls`, `key list`, `ticket list`, `receipt list` and `job history`.
//! In and out: what `node` finds, reads of LONGHAUL_HOME, or what running daemons answer → a table for people, or one JSON array for programs
//! (`ls`, which has no bound: one object to a line).
//! Invariants: a list changes nothing; what came from outside is printed without control characters; no secret is on any list.
//! Absent on purpose: reading and writing the files (`node`).

pub mod entries; // what is at a path
pub mod history; // jobs that ended
pub mod keys; // keys, and what their owners may do
pub mod receipts; // receipts that are kept
pub mod tickets; // tickets of running daemons

use std::io::Write;

use serde::Serialize;
use text::table::Table;

/// Digits of a job's or ticket's name that are shown: enough for a million at once.
const SHOWN_DIGITS: usize = 8;
/// Stands where nothing is known.
const UNKNOWN: &str = "-";

/// Prints one JSON array, or the table; `none` is said where there is nothing.
fn print<T: Serialize>(
    all: &[T],
    (json, none): (bool, &str),
    heads: &[&str],
    line: impl Fn(&T) -> Vec<String>,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(all)?)?;
    } else if all.is_empty() {
        writeln!(out, "{none}")?;
    } else {
        let mut table = Table::new(heads);
        all.iter().for_each(|one| table.line(line(one)));
        write!(out, "{table}")?;
    }
    Ok(())
}

/// The first digits of a name.
fn short(name: &str) -> String {
    crate::report::clean(name.get(..SHOWN_DIGITS).unwrap_or(name))
}
