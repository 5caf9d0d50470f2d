//! `longhaul host undo`: every value back that an `apply` has left.
//!
//! For: operators after `apply --keep`, the guard of an `apply` that was killed, and the end of each `apply`.
//! In and out: the journal → old values set, and a line for each.
//! Invariants: a value that somebody else has set since is left and told.
//! Absent on purpose: the form of the journal (`journal`).

use std::path::Path;

use text::exit::Exit;

use crate::arguments::UndoArguments;
use crate::journal::{Entry, Journal, Undone};

/// Puts every value back that an `apply` has left.
///
/// # Errors
/// Somebody holds them; a value cannot be put back.
pub fn undo(arguments: &UndoArguments) -> anyhow::Result<()> {
    let Some(journal) = open(&arguments.state)? else {
        let who = Journal::holder(&arguments.state).map_or("a process".to_owned(), |pid| format!("process {pid}"));
        return Err(Exit::Partial
            .fail("undo the host's settings", format!("{who} holds them"))
            .next("end that process: it undoes them itself")
            .into());
    };
    if journal.entries.is_empty() {
        println!("nothing to undo");
        return Ok(journal.close()?);
    }
    if journal.is_of_another_boot() {
        println!("this machine has started anew since: most values are back already");
    }
    let failed = undo_all(journal)?;
    if failed > 0 {
        let cause = format!("{failed} values could not be put back; they stay in the journal");
        return Err(Exit::Denied
            .fail("undo the host's settings", cause)
            .next("see the lines above; run it again as root")
            .into());
    }
    Ok(())
}

/// The journal in this folder; `None`: another process holds it.
///
/// # Errors
/// The folder cannot be made or read.
pub fn open(state: &Path) -> anyhow::Result<Option<Journal>> {
    Journal::open(state).map_err(|error| {
        Exit::of_io(&error)
            .fail(format!("open the journal in {}", state.display()), &error)
            .next("run it as root, or name another folder with --state")
            .into()
    })
}

/// Undoes all and prints a line for each; how many failed.
///
/// # Errors
/// The journal cannot be written.
pub fn undo_all(mut journal: Journal) -> anyhow::Result<usize> {
    let mut failed = 0;
    journal.undo(
        |_| true,
        |entry, undone| {
            failed += usize::from(matches!(undone, Undone::Failed(_)));
            say(entry, undone);
        },
    )?;
    journal.close()?;
    Ok(failed)
}

/// Prints what became of a value.
pub fn say(entry: &Entry, undone: &Undone) {
    let Entry { place, old, new, .. } = entry;
    match undone {
        Undone::Back => println!("undone: {place} = {old} (was set to {new})"),
        Undone::Already => println!("undone: {place}: nothing left of {new}"),
        Undone::Foreign(now) => {
            println!("left: {place} = {now}: somebody else has set it since ({new} was ours, {old} was before)")
        }
        Undone::Failed(error) => println!("not undone: {place} = {new}, was {old}: {error}"),
    }
}
