//! A lab's life: made, used, removed.
//!
//! For: `lab run`, and the process behind `lab up`. In and out: arguments, questions of other commands, a script → a command on
//! host a and its exit code.
//! Invariants: one thread does all of this, so that nothing happens to a lab at the same time; commands and namespaces end with
//! this process, however it ends (guard.rs); signals reach the command.
//! Absent on purpose: how hosts are made (hosts.rs), what is printed (report.rs).

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Context;
use sys::event::{Interest, poll};
use sys::netns;
use sys::signals::{self, SignalFd};

use crate::arguments::{LinkArguments, RunArguments, UpArguments};
use crate::control::{self, Answer, Ask, Caller, Door};
use crate::guard::Guard;
use crate::hosts::{self, Lab, Making, Side};
use crate::report;
use crate::script::{self, Act, Event};
use crate::wire::emulator::Told;
use text::exit::Exit;

/// How long a command may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(3);

/// Where the logs of a lab's background commands are, beside its socket.
#[must_use]
pub fn logs_path(socket: &Path) -> PathBuf {
    socket.with_extension("logs")
}

/// Runs a command between two new hosts; its exit code, or 128 + signal as shells say it.
///
/// # Errors
/// The lab could not be made, or the command not be started.
pub fn run(arguments: &RunArguments) -> anyhow::Result<u8> {
    let mut life = Life::begin(&format!("run-{}", std::process::id()), &arguments.links)?;
    if !arguments.quiet {
        eprintln!("{}", report::opening(&life.lab));
    }
    // This thread goes over to host a for good: the command is its child, and is to end with it.
    netns::enter(&life.lab.hosts[0]).context("host a cannot be entered")?;
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]).envs(life.environment());
    netns::die_with_parent(signals::unblock_in_child(&mut command));
    let spawned = command.spawn().map_err(|error| {
        let words = format!("{} cannot be run: {error}", arguments.command[0].display());
        Exit::Usage.fail("run the lab's command", words)
    });
    let mut child = match spawned {
        Ok(child) => child,
        Err(failure) => {
            life.leave();
            return Err(failure.into());
        }
    };
    let status = life.attend(Some(&mut child))?;
    let closing = life.end(arguments.quiet);
    if !closing.is_empty() {
        eprintln!("{closing}");
    }
    Ok(status.map_or(1, code))
}

/// The process behind `lab up`: as `run`, but without a command, until it is told to end.
///
/// # Errors
/// The lab could not be made.
pub fn hold(arguments: &UpArguments) -> anyhow::Result<u8> {
    control::check_name(&arguments.name)?;
    let mut life = Life::begin(&arguments.name, &arguments.links)?;
    life.attend(None)?;
    let caller = life.caller.take();
    let closing = life.end(false);
    match caller {
        Some(caller) => caller.answer(&Answer { ok: true, text: closing, pairs: Vec::new() }, &[]),
        None => eprintln!("{closing}"),
    }
    Ok(0)
}

struct Life {
    lab: Lab,
    door: Door,
    guard: Guard,
    signals: SignalFd,
    /// The network namespace this process came from.
    home: OwnedFd,
    script: VecDeque<Event>,
    started: Instant,
    /// Who has asked for the end.
    caller: Option<Caller>,
}

impl Life {
    fn begin(name: &str, arguments: &LinkArguments) -> anyhow::Result<Life> {
        // Before this process looks like root without being it.
        let folder = control::folder()?;
        become_root()?;
        // Before any thread is started, so that none of them takes a signal away.
        let signals = signals::watch(&[signals::SIGINT, signals::SIGTERM, signals::SIGHUP, signals::SIGCHLD])?;
        let links = arguments.settings().map_err(|words| Exit::Usage.fail("understand a link", words))?;
        anyhow::ensure!(
            links.len() <= hosts::LINKS_MAX,
            Exit::Usage.fail("make the lab", format!("{} links are more than {}", links.len(), hosts::LINKS_MAX))
        );
        let script = read_script(arguments.script.as_deref(), links.len())?;
        let making = Making {
            seed: arguments.seed,
            memory_bytes: arguments.memory,
            granule_ns: u64::try_from(arguments.granule.as_nanos()).unwrap_or(u64::MAX),
            tcp: arguments.tcp.as_deref(),
        };
        let lab = Lab::make(&links, making)?;
        let door = Door::open(&folder, name)?;
        let guard = Guard::start(&lab, &[door.path.clone(), logs_path(&door.path), door.path.with_extension("log")])?;
        Ok(Life { lab, door, guard, signals, home: netns::net()?, script, started: Instant::now(), caller: None })
    }

    fn environment(&self) -> Vec<(String, String)> {
        let mut pairs = self.lab.environment();
        pairs.push((control::LAB_VARIABLE.to_owned(), self.door.path.display().to_string()));
        pairs
    }

    /// Until the command has ended, or, without one, until a signal or a question asks for the end.
    fn attend(&mut self, mut child: Option<&mut Child>) -> anyhow::Result<Option<ExitStatus>> {
        let mut end_by: Option<Instant> = None;
        loop {
            if let Some(child) = &mut child
                && let Some(status) = child.try_wait()?
            {
                return Ok(Some(status));
            }
            self.play();
            let next = self.script.front().map(|event| self.started + event.at);
            let until = [next, end_by].into_iter().flatten().min();
            let wait = until.map(|at| at.saturating_duration_since(Instant::now()));
            if let Some(child) = &mut child
                && end_by.is_some_and(|at| at <= Instant::now())
            {
                child.kill()?;
                end_by = None;
            }
            poll(&[(self.signals.as_fd(), Interest::Read), (self.door.as_fd(), Interest::Read)], wait)?;
            let mut asked_to_end = false;
            while let Some(signal) = self.signals.take() {
                if signal.number == signals::SIGCHLD {
                    continue;
                }
                asked_to_end = true;
                // From the terminal (no process) the whole group has had it already.
                if let Some(child) = &mut child
                    && (signal.from_process != 0 || signal.number != signals::SIGINT)
                {
                    pass_on(child, signal.number);
                }
            }
            while let Some((ask, caller)) = self.door.next() {
                asked_to_end |= self.answer(&ask, caller, child.as_deref());
            }
            if asked_to_end {
                if child.is_none() {
                    return Ok(None);
                }
                end_by.get_or_insert_with(|| Instant::now() + GRACE);
            }
        }
    }

    /// Does what the script wants done by now.
    fn play(&mut self) {
        while let Some(event) = self.script.front()
            && event.at <= self.started.elapsed()
        {
            let done = match &event.act {
                Act::Link { link, words } => set(&mut self.lab, *link, words).map(drop),
                Act::Address { side, link, address } => self.lab.move_host(*side, *link, *address),
            };
            if let Err(error) = done {
                eprintln!("lab: the script's event at {:?} failed: {error:#}", event.at);
            }
            self.script.pop_front();
        }
    }

    /// Does what was asked; whether that is the end.
    fn answer(&mut self, ask: &Ask, caller: Caller, child: Option<&Child>) -> bool {
        let done = match ask {
            Ask::Hosts => {
                let answer = Answer { ok: true, text: String::new(), pairs: self.environment() };
                match netns::user() {
                    Ok(user) => {
                        let [a, b] = &self.lab.hosts;
                        caller.answer(&answer, &[user.as_fd(), a.as_fd(), b.as_fd()]);
                    }
                    Err(error) => caller.answer(&Answer { text: error.to_string(), ..Answer::default() }, &[]),
                }
                return false;
            }
            Ask::Down => {
                match child {
                    Some(child) => {
                        pass_on(child, signals::SIGTERM);
                        caller.answer(
                            &Answer { ok: true, text: "the lab's command was asked to end".into(), pairs: Vec::new() },
                            &[],
                        );
                    }
                    None => self.caller = Some(caller),
                }
                return true;
            }
            Ask::Set { link, words } => set(&mut self.lab, *link, words),
            Ask::Move { host, link, address } => match Side::parse(host) {
                Some(side) => {
                    self.lab.move_host(side, *link, *address).map(|()| format!("host {host} is {address} now"))
                }
                None => Err(anyhow::anyhow!("'{host}' is no host; there are a and b")),
            },
            Ask::Show => Ok(self.show()),
        };
        let answer = match done {
            Ok(text) => Answer { ok: true, text, pairs: Vec::new() },
            Err(error) => Answer { ok: false, text: format!("{error:#}"), pairs: Vec::new() },
        };
        caller.answer(&answer, &[]);
        false
    }

    fn show(&self) -> String {
        let mut lines = Vec::new();
        for (number, link) in self.lab.links.iter().enumerate() {
            let told = link.directions.each_ref().map(|direction| direction.shared().told());
            lines.extend(report::standing(number, link, &told));
        }
        lines.join("\n")
    }

    /// Lets the guard clean. It ends all that is inside of the hosts, so that this thread has to be out of them first.
    fn leave(self) {
        if netns::enter(&self.home).is_ok() {
            self.guard.finish();
        }
    }

    fn end(mut self, quiet: bool) -> String {
        let dropped = dropped(&self.lab);
        let told: Vec<[Told; 2]> = self.lab.stop();
        self.leave();
        report::closing(&told, &dropped, quiet)
    }
}

fn set(lab: &mut Lab, number: usize, words: &str) -> anyhow::Result<String> {
    let count = lab.links.len();
    let link = lab.links.get(number);
    let mut settings =
        link.with_context(|| format!("there is no link {number}; they are numbered 0 to {}", count - 1))?.settings;
    settings.apply_all(words).map_err(anyhow::Error::msg)?;
    lab.set(number, settings)?;
    Ok(format!("link {number}: {}", settings.words()))
}

fn read_script(path: Option<&Path>, links: usize) -> anyhow::Result<VecDeque<Event>> {
    let Some(path) = path else { return Ok(VecDeque::new()) };
    let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let events = script::parse(&text, links)
        .map_err(|words| Exit::Usage.fail("understand the script", format!("{}: {words}", path.display())))?;
    Ok(events.into())
}

/// Root where it is not: in a user namespace of its own.
pub fn become_root() -> anyhow::Result<()> {
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

fn pass_on(child: &Child, number: i32) {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, rustix::process::Signal::from_named_raw(number)) {
        // It may have ended meanwhile; that is what was wanted.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Packets that each side's device has dropped before the emulator could read them, for each link.
pub fn dropped(lab: &Lab) -> Vec<[u64; 2]> {
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
