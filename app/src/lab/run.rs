//! A lab's life: made, used, removed.
//!
//! For: `lab run`. In and out: arguments → a command on host a, and its exit code.
//! Invariants: the command and the namespaces end with this process, however it ends; signals reach the command.
//! Absent on purpose: how hosts are made (hosts.rs), what is printed (report.rs).

use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Context;
use sys::event::{Interest, poll};
use sys::netns;
use sys::signals::{self, SignalFd};

use crate::exit::Exit;
use crate::lab::hosts::{self, Lab, Making};
use crate::lab::{LinkArguments, RunArguments, report};

/// How long a command may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(3);

/// Runs a command between two new hosts; its exit code, or 128 + signal as shells say it.
///
/// # Errors
/// The lab could not be made, or the command not be started.
pub fn run(arguments: &RunArguments) -> anyhow::Result<u8> {
    become_root()?;
    // Before any thread is started, so that none of them takes a signal away.
    let signals = signals::watch(&[signals::SIGINT, signals::SIGTERM, signals::SIGHUP, signals::SIGCHLD])?;
    let mut lab = make(&arguments.links)?;
    if !arguments.quiet {
        eprintln!("{}", report::opening(&lab));
    }
    // This thread goes over to host a for good: the command is its child, and is to end with it.
    netns::enter(&lab.hosts[0]).context("host a cannot be entered")?;
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]).envs(lab.environment());
    netns::die_with_parent(signals::unblock_in_child(&mut command));
    let mut child = command.spawn().map_err(|error| {
        let words = format!("{} cannot be run: {error}", arguments.command[0].display());
        Exit::Usage.fail("run the lab's command", words)
    })?;
    let status = attend(&mut child, &signals)?;
    let dropped = dropped(&lab);
    let told = lab.stop();
    let closing = report::closing(&told, &dropped, arguments.quiet);
    if !closing.is_empty() {
        eprintln!("{closing}");
    }
    Ok(code(status))
}

/// Root where it is not: in a user namespace of its own.
fn become_root() -> anyhow::Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    netns::new_user().map_err(|error| {
        Exit::Denied
            .fail("make the lab", format!("this user may not have a namespace of its own: {error}"))
            .next("run it as root, or let root allow it: sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000")
            .into()
    })
}

fn make(arguments: &LinkArguments) -> anyhow::Result<Lab> {
    let links = arguments.settings().map_err(|words| Exit::Usage.fail("understand a link", words))?;
    anyhow::ensure!(
        links.len() <= hosts::LINKS_MAX,
        Exit::Usage.fail("make the lab", format!("{} links are more than {}", links.len(), hosts::LINKS_MAX))
    );
    let making = Making {
        seed: arguments.seed,
        memory_bytes: arguments.memory,
        granule_ns: u64::try_from(arguments.granule.as_nanos()).unwrap_or(u64::MAX),
    };
    Lab::make(&links, making)
}

/// Waits for the command, and hands signals on to it.
fn attend(child: &mut Child, signals: &SignalFd) -> anyhow::Result<ExitStatus> {
    let mut killed_at: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let left = killed_at.map(|at| at.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            child.kill()?;
        }
        poll(&[(signals.as_fd(), Interest::Read)], left.filter(|left| *left > Duration::ZERO))?;
        while let Some(signal) = signals.take() {
            if signal.number == signals::SIGCHLD {
                continue;
            }
            // From the terminal (no process) the whole group has had it already.
            if signal.from_process != 0 || signal.number != signals::SIGINT {
                pass_on(child, signal.number);
            }
            killed_at.get_or_insert_with(|| Instant::now() + GRACE);
        }
    }
}

fn pass_on(child: &Child, number: i32) {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, rustix::process::Signal::from_named_raw(number)) {
        // It may have ended meanwhile; that is what was wanted.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Packets that each side's device has dropped before the emulator could read them, for each link.
fn dropped(lab: &Lab) -> Vec<[u64; 2]> {
    let tables = [0, 1].map(|side| {
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev");
        netns::inside(&lab.hosts[side], read).unwrap_or_default()
    });
    let of = |table: &str, device: &str| {
        let line = table.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'));
        // linux/Documentation/networking/statistics: 8 columns of receiving, then bytes, packets, errors, drops of sending.
        line.and_then(|rest| rest.split_whitespace().nth(11)).and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    (0..lab.links.len()).map(|number| [0, 1].map(|side| of(&tables[side], &hosts::device(number)))).collect()
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
