//! A program of a contestant while it runs.
//!
//! For: servers and clients of every race. In and out: a command → what it printed, and how it ended.
//! Invariants: it ends with this value, and what it started with it, as far as that is of its process group; the terminal's Ctrl-C is not for it.
//! Absent on purpose: the host on which it begins.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use sys::event::{Interest, poll};
use sys::netns;
use sys::signals::{self, SignalFd};

use crate::race::Contestant;

/// Between two looks at a run: a third of the shortest tail that matters, 3 round trips of 10 ms.
const LOOK: Duration = Duration::from_millis(10);
/// A server that is not ready after so long will not be.
const READY: Duration = Duration::from_secs(15);
/// A server that says nothing and is not known to listen is given so long.
const MOMENT: Duration = Duration::from_millis(500);

/// How a wait ended.
#[derive(Debug, Clone, Copy)]
pub enum Waited {
    Ended(ExitStatus),
    /// It still runs, and should not.
    Late,
    /// The user wants no more of it.
    Stopped,
}

/// A server or a client, with the files that its output goes to.
#[derive(Debug)]
pub struct Running {
    child: Child,
    out: PathBuf,
    errors: PathBuf,
}

impl Running {
    /// Starts it; `log`, without an ending: where what it prints goes.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn start(command: &mut Command, log: &Path) -> io::Result<Running> {
        let [out, errors] = ["out", "err"].map(|ending| log.with_extension(ending));
        command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&errors)?);
        let child = netns::detach(signals::unblock_in_child(command)).spawn()?;
        Ok(Running { child, out, errors })
    }

    /// Its process's number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// On its standard output, so far.
    #[must_use]
    pub fn said(&self) -> String {
        std::fs::read(&self.out).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The end of what it said of errors, or else of all.
    #[must_use]
    pub fn last_words(&self) -> String {
        let errors = String::from_utf8_lossy(&std::fs::read(&self.errors).unwrap_or_default()).into_owned();
        let text = if errors.trim().is_empty() { self.said() } else { errors };
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let said = lines[lines.len().saturating_sub(3)..].join(" / ");
        if said.is_empty() {
            return "it said nothing".to_owned();
        }
        said.chars().filter(|letter| !letter.is_control()).take(300).collect()
    }

    /// Waits until it, a server, is ready, and gives the line in which it says so. `listens`: does anybody, on that port? Errors: it ended, or
    /// says nothing.
    pub fn await_ready(&mut self, one: &Contestant, listens: impl Fn(u16) -> bool) -> Result<String, String> {
        let began = Instant::now();
        while began.elapsed() < READY {
            // A line that is being written has no end yet.
            let said = self.said();
            let whole = &said[..said.rfind('\n').map_or(0, |at| at + 1)];
            if let Some(line) = whole.lines().find(|line| !one.ready.is_empty() && line.contains(&one.ready)) {
                return Ok(line.to_owned());
            }
            let is_mute = one.ready.is_empty() && one.port == 0;
            if one.port != 0 && listens(one.port) || is_mute && began.elapsed() > MOMENT {
                return Ok(String::new());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("the server ended at once ({status}): {}", self.last_words()));
            }
            std::thread::sleep(LOOK);
        }
        Err(format!("the server was not ready after {READY:?}: {}", self.last_words()))
    }

    /// Waits for its end, with a look now and then.
    ///
    /// # Errors
    /// Those of waiting itself.
    pub fn wait(&mut self, signals: &SignalFd, most: Duration, look: impl FnMut()) -> io::Result<Waited> {
        self.wait_every(LOOK, signals, most, look)
    }

    /// The same with a look every so often, and a last one after its end, before its number is free for another.
    ///
    /// # Errors
    /// Those of waiting itself.
    pub fn wait_every(
        &mut self,
        every: Duration,
        signals: &SignalFd,
        most: Duration,
        mut look: impl FnMut(),
    ) -> io::Result<Waited> {
        let began = Instant::now();
        let ended = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        loop {
            look();
            if began.elapsed() > most {
                return Ok(Waited::Late);
            }
            let ready = poll(&[(signals.as_fd(), Interest::Read), (ended.as_fd(), Interest::Read)], Some(every))?;
            if ready[1].read {
                look();
                return Ok(Waited::Ended(self.child.wait()?));
            }
            if signals.take().is_some() {
                return Ok(Waited::Stopped);
            }
        }
    }

    /// Ends it, if it has not ended.
    pub fn end(&mut self) {
        // What has ended has no group of ours any more: its number may be another's.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}
