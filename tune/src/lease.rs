//! `host apply`: sets values, holds them, looks after them, puts them back.
//!
//! For: the operator's one command. In and out: a plan → values set; a command's end, a signal → values back.
//! Invariants: the watchdog runs before the first value is set; a watchdog that dies is replaced within a second; what moved by itself is told within
//! ten seconds and not fought over.
//! Absent on purpose: which values (`rules`), the test (`ab_check`).

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sys::signals;

use crate::ab_check::{Coin, judge};
use crate::arguments::ApplyArguments;
use crate::drift::Drift;
use crate::journal::{Head, Journal};
use crate::place::Place;
use crate::plan::changes;
use crate::rules::Change;
use crate::undo::{open, say, undo_all};
use crate::watchdog;
use text::exit::{Exit, Failure};

/// Between two looks at the watchdog, the command and the signals.
const TICK: Duration = Duration::from_millis(100);
/// Between two looks at the values.
const LOOK: Duration = Duration::from_secs(3);

/// The values, and who watches over them.
#[derive(Debug)]
pub struct Lease {
    journal: Journal,
    watchdog: Child,
    state: PathBuf,
    looked: Instant,
    /// Values whose drift was told.
    told: Vec<String>,
    /// What nobody set, and what moves under it.
    watch: Option<Drift>,
}

/// Applies, holds, undoes.
///
/// # Errors
/// Not root, values of an earlier apply, a command that cannot be run, values that could not be put back.
pub fn run(arguments: &ApplyArguments) -> anyhow::Result<()> {
    if arguments.ab_check && arguments.measure.is_none() && arguments.peer.is_none() {
        return Err(Exit::Usage
            .fail("check the rules", "nothing says how to measure")
            .next("name --peer HOST:PORT (a `longhaul bench net --listen` there) or --measure COMMAND")
            .into());
    }
    let planned = changes(&arguments.chosen)?;
    let mut lease = Lease::take(&arguments.state)?;
    let signals = signals::watch(&[signals::SIGINT, signals::SIGTERM, signals::SIGHUP])?;
    let done = lease.work(arguments, &planned, &signals);
    if done.is_ok() && arguments.keep {
        lease.journal.head.kept = true;
        lease.journal.save()?;
        println!("{} values stay until `longhaul host undo`", lease.journal.entries.len());
        dismiss(lease.watchdog);
        return Ok(());
    }
    lease.release()?;
    done
}

impl Lease {
    /// The right to set values of this host, with a watchdog that undoes them when this process is gone.
    ///
    /// # Errors
    /// Somebody else has it, values of an earlier one are still set, no permission.
    pub fn take(state: &Path) -> anyhow::Result<Lease> {
        let busy = |cause: String, next: &str| Exit::Partial.fail("apply the rules", cause).next(next);
        let Some(mut journal) = open(state)? else {
            let who = Journal::holder(state).map_or("a process".to_owned(), |pid| format!("process {pid}"));
            return Err(busy(format!("{who} holds this host's settings"), "end it, or wait for its end").into());
        };
        if !journal.entries.is_empty() {
            let cause = format!("{} values of an earlier apply are in the journal", journal.entries.len());
            return Err(busy(cause, "longhaul host undo").into());
        }
        // An empty journal may have an old head.
        journal.head = Head::ours();
        journal.save()?;
        let watchdog = watchdog::start(state).context("failed to start the watchdog")?;
        Ok(Lease { journal, watchdog, state: state.to_owned(), looked: Instant::now(), told: Vec::new(), watch: None })
    }

    /// Puts everything back and lets the host go.
    ///
    /// # Errors
    /// Values that could not be put back.
    pub fn release(self) -> anyhow::Result<()> {
        let failed = undo_all(self.journal)?;
        dismiss(self.watchdog);
        if failed > 0 {
            let cause = format!("{failed} values could not be put back");
            return Err(Exit::Denied.fail("undo the host's settings", cause).next("longhaul host undo").into());
        }
        Ok(())
    }

    /// These changes in place of those that this rule has made before; all of them, or none.
    ///
    /// # Errors
    /// One that the kernel or the NIC does not take, by its place.
    pub fn replace(&mut self, rule: &str, changes: &[Change]) -> anyhow::Result<()> {
        self.take_back(rule, false)?;
        for change in changes {
            if let Err(error) = self.journal.make(change) {
                self.take_back(rule, false)?;
                return Err(Exit::of_io(&error).fail(format!("set {} to {}", change.place, change.new), error).into());
            }
        }
        Ok(())
    }

    fn work(
        &mut self,
        arguments: &ApplyArguments,
        planned: &[Change],
        signals: &signals::SignalFd,
    ) -> anyhow::Result<()> {
        if planned.is_empty() {
            println!("nothing to change");
        }
        match arguments.ab_check {
            true => self.check(arguments, planned, signals)?,
            false => planned.iter().for_each(|change| self.set(change)),
        }
        if arguments.keep {
            return Ok(());
        }
        let mut child = match &arguments.command[..] {
            [] if self.journal.entries.is_empty() => return Ok(()),
            [] => {
                println!("holding {} values: Ctrl-C undoes them", self.journal.entries.len());
                None
            }
            [program, words @ ..] => {
                let mut command = Command::new(program);
                let started = signals::unblock_in_child(command.args(words)).spawn();
                Some(started.map_err(|error| Exit::of_io(&error).fail(format!("run {program}"), &error))?)
            }
        };
        loop {
            if let Some(status) = child.as_mut().map(Child::try_wait).transpose()?.flatten() {
                let failed = || Exit::Partial.fail("run the command", status).next("the host's settings were undone");
                return if status.success() { Ok(()) } else { Err(failed().into()) };
            }
            if let Some(signal) = self.tick(signals)? {
                // A terminal tells the command itself; another sender may not have.
                if let Some(child) = &mut child {
                    if signal.number == signals::SIGTERM {
                        let _ = child.kill();
                    }
                    child.wait()?;
                }
                return Ok(());
            }
        }
    }

    /// One look around.
    fn tick(&mut self, signals: &signals::SignalFd) -> anyhow::Result<Option<signals::Signal>> {
        std::thread::sleep(TICK);
        if self.watchdog.try_wait()?.is_some() {
            self.watchdog = watchdog::start(&self.state).context("failed to start another watchdog")?;
            eprintln!("the watchdog was ended by somebody: another one watches");
        }
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            let ours: Vec<Place> = self.journal.entries.iter().map(|entry| entry.place.clone()).collect();
            for (entry, now) in self.journal.drift() {
                let place = entry.place.to_string();
                if !self.told.contains(&place) {
                    eprintln!(
                        "moved: {place} = {now}, set to {}: another program arranges this host too (irqbalance, tuned?)",
                        entry.new
                    );
                    self.told.push(place);
                }
            }
            // Our own values make links go and come: the first look after them is where it begins.
            match &mut self.watch {
                Some(watch) => watch.look(&ours).iter().for_each(|moved| eprintln!("moved: {moved}")),
                none => *none = Some(Drift::begin()),
            }
        }
        Ok(signals.take())
    }

    /// Sets one value; one that the kernel or the NIC does not take is told and passed over.
    fn set(&mut self, change: &Change) {
        let Change { rule, place, old, new } = change;
        self.watch = None;
        match self.journal.make(change) {
            Ok(()) => println!("set: {place} = {new} (was {old}; {rule})"),
            Err(error) => println!("not set: {place} stays {old}: {error} ({rule})"),
        }
    }

    /// Rule by rule: with and without, and what does not help goes.
    fn check(
        &mut self,
        arguments: &ApplyArguments,
        planned: &[Change],
        signals: &signals::SignalFd,
    ) -> anyhow::Result<()> {
        let mut coin = Coin::new(RandomState::new().build_hasher().finish());
        let mut rules: Vec<&str> = planned.iter().map(|change| change.rule).collect();
        rules.dedup();
        for rule in rules {
            let mine: Vec<&Change> = planned.iter().filter(|change| change.rule == rule).collect();
            let mut pairs = Vec::new();
            for _ in 0..arguments.pairs {
                let mut figures = [0.0; 2];
                let first = (coin.bits() & 1) as usize;
                for with in [first, 1 - first] {
                    let is_set = self.journal.entries.iter().any(|entry| entry.rule == rule);
                    if with == 1 && !is_set {
                        self.watch = None;
                        mine.iter().for_each(|change| drop(self.journal.make(change)));
                    } else if with == 0 && is_set {
                        self.take_back(rule, false)?;
                    }
                    figures[with] = measure(arguments)?;
                    if self.tick(signals)?.is_some() {
                        bail!(
                            Exit::Interrupted
                                .fail("check the rules", "a signal came")
                                .next("the host's settings were undone")
                        );
                    }
                }
                pairs.push((figures[1], figures[0]));
            }
            let verdict = judge(&pairs);
            println!(
                "{rule}: {} ({:+.1} %, chance {:.3} in {} pairs): {}",
                verdict.words(),
                (verdict.factor - 1.0) * 100.0,
                verdict.chance,
                pairs.len(),
                if verdict.helps() { "set" } else { "taken back" }
            );
            if !verdict.helps() {
                self.take_back(rule, true)?;
            } else if !self.journal.entries.iter().any(|entry| entry.rule == rule) {
                mine.iter().for_each(|change| self.set(change));
            }
        }
        Ok(())
    }

    fn take_back(&mut self, rule: &str, aloud: bool) -> anyhow::Result<()> {
        self.watch = None;
        let told = |entry: &_, undone: &_| {
            if aloud {
                say(entry, undone);
            }
        };
        Ok(self.journal.undo(|entry| entry.rule == rule, told)?)
    }
}

/// The watchdog is not needed any more.
fn dismiss(mut watchdog: Child) {
    if let Some(mut pipe) = watchdog.stdin.take() {
        let _ = pipe.write_all(&[watchdog::DISMISSED]);
    }
    let _ = watchdog.wait();
}

/// One figure.
fn measure(arguments: &ApplyArguments) -> Result<f64, Failure> {
    let mut command = match (&arguments.measure, &arguments.peer) {
        (Some(line), _) => {
            let mut command = Command::new("sh");
            command.args(["-c", line]);
            command
        }
        (None, peer) => {
            let mut command = Command::new("/proc/self/exe");
            command.args([
                "bench",
                "net",
                "--json",
                "--clear",
                "--tcp",
                "--only",
                "CRC",
                "--rounds",
                "1",
                "--seconds",
                "500ms",
                "--server",
            ]);
            command.args(peer);
            command
        }
    };
    let failed = |cause: String| {
        Exit::Partial.fail("measure", cause).next("try that command alone; the host's settings were undone")
    };
    let output = signals::unblock_in_child(&mut command)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(failed(format!("the command ended with {}", output.status)));
    }
    let figure = match arguments.measure {
        Some(_) => text.split_whitespace().last().and_then(|word| word.parse().ok()),
        None => serde_json::from_str::<serde_json::Value>(text.trim()).ok().and_then(|report| {
            report["lines"].as_array()?.iter().filter_map(|line| line["gbps"].as_f64()).reduce(f64::max)
        }),
    };
    figure.filter(|figure: &f64| figure.is_finite() && *figure > 0.0).ok_or_else(|| {
        failed(format!("its last word is no figure above zero: '{}'", text.trim().lines().last().unwrap_or_default()))
    })
}
