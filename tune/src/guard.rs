//! The guard: a process that undoes what its owner has set when the owner cannot any more.
//!
//! For: SIGKILL, a crash, the out-of-memory killer. In and out: a pipe from the owner: a byte says that the values stay, its end that the owner is
//! gone → every value back.
//! Invariants: it sets nothing but old values; signals to the owner's terminal do not reach it.
//! Absent on purpose: what to do when both are killed at the same moment: `host undo` reads the same journal.

use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sys::signals;

use crate::arguments::UndoArguments;
use crate::journal::Journal;
use crate::undo::undo_all;

/// What the owner writes when the guard is not needed any more.
pub const DISMISSED: u8 = b'k';
/// A dying owner's lock is free when the kernel has closed its files.
const LOCK_WAIT: Duration = Duration::from_secs(4);

/// Starts one. The pipe is its standard input.
///
/// # Errors
/// Those of starting a process.
pub fn start(state: &std::path::Path) -> io::Result<Child> {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new("/proc/self/exe");
    command.args(["host", "guard", "--state"]).arg(state).stdin(Stdio::piped()).process_group(0);
    signals::unblock_in_child(&mut command).spawn()
}

/// Is one: waits for the owner's end.
///
/// # Errors
/// Values that could not be put back.
pub fn run(arguments: &UndoArguments) -> anyhow::Result<()> {
    // What ends a terminal's programs must not end this one before it has done its work.
    let _deaf = signals::watch(&[signals::SIGHUP, signals::SIGINT, signals::SIGTERM, signals::SIGPIPE])?;
    let mut word = [0];
    if let Ok(1) = io::stdin().read(&mut word)
        && word[0] == DISMISSED
    {
        return Ok(());
    }
    let end = Instant::now() + LOCK_WAIT;
    loop {
        if let Some(journal) = Journal::open(&arguments.state)? {
            if !journal.head.kept && !journal.entries.is_empty() {
                eprintln!("the process that held this host's settings ({}) is gone: undoing them", journal.head.owner);
                undo_all(journal)?;
            }
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < end, "the journal is held by somebody else");
        std::thread::sleep(Duration::from_millis(20));
    }
}
