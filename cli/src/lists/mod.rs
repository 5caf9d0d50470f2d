//! Lists of who is trusted, and of what was done here.
//!
//! For: `longhaul key list`.
//! In and out: what `node` reads of LONGHAUL_HOME → a table for people, or one JSON array for programs.
//! Invariants: a list changes nothing; what came from outside is printed without control characters; no secret is on any list.
//! Absent on purpose: reading and writing the files (`node`).

pub mod keys; // keys, and what their owners may do

use std::io::Write;

use serde::Serialize;
use text::table::Table;

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
