//! Two hosts, what is started on them, and the processor time that they use.
//!
//! For: every race. In and out: words → a program that runs on a host; programs → what they printed and cost.
//! Invariants: whatever was started on a host ends with it; the meters are control groups of their own, gone at the end; nothing of the machine
//! outside of them is changed.
//! Absent on purpose: who is raced; links with distance or loss (`bench wan`).

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bench::race::Contestant;
use lab::hosts::Side;
use lab::pair::{self, Pair};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use sys::event::{Interest, poll};
use sys::signals::{self, SignalFd};

/// Between two looks at a program that runs.
const LOOK: Duration = Duration::from_millis(20);
/// A server that is not ready after so long will not be.
const READY: Duration = Duration::from_secs(15);
/// What was asked to end is given so long.
const GRACE: Duration = Duration::from_secs(3);

/// The user wants no more of it.
#[derive(Debug, thiserror::Error)]
#[error("stopped")]
pub(crate) struct Stopped;

/// Both, joined by a wire of the kernel's.
#[derive(Debug)]
pub(crate) struct Hosts {
    pair: Pair,
    meters: Option<Meters>,
    signals: SignalFd,
}

impl Hosts {
    /// Makes them; while this process has but one thread.
    pub(crate) fn make() -> anyhow::Result<Hosts> {
        lab::run::become_root()?;
        let signals = signals::watch(&[signals::SIGINT, signals::SIGTERM, signals::SIGHUP])?;
        let hosts = Hosts { pair: Pair::make()?, meters: Meters::make(), signals };
        for side in Side::BOTH {
            // Names and folders that servers want, seen on that host only.
            let [a, b] = Side::BOTH.map(pair::address);
            let here = pair::address(side);
            let lines = format!("127.0.0.1 localhost\n{here} {}\n{a} a\n{b} b\n", sys::host::hostname());
            hosts.run(
                side,
                &format!("mkdir /run/sshd && printf '{lines}' >/run/hosts && mount --bind /run/hosts /etc/hosts"),
            )?;
        }
        Ok(hosts)
    }

    /// For paths of /proc that show a host.
    pub(crate) fn holder(&self, side: Side) -> u32 {
        self.pair.holder(side)
    }

    pub(crate) fn congestion(&self) -> String {
        self.run(Side::A, "cat /proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default()
    }

    pub(crate) fn meter(&self) -> &'static str {
        self.meters.as_ref().map_or("none (no control group can be made here)", |meters| meters.usage)
    }

    /// Processor seconds of each host so far; NaN: there is no meter.
    pub(crate) fn cpu(&self) -> [f64; 2] {
        Side::BOTH.map(|side| self.meters.as_ref().and_then(|meters| meters.seconds(side)).unwrap_or(f64::NAN))
    }

    /// A line for a shell on a host, to its end; what it printed.
    pub(crate) fn run(&self, side: Side, line: &str) -> anyhow::Result<String> {
        let output = self.pair.command(side, "sh")?.args(["-ec", line]).stdin(Stdio::null()).output()?;
        if !output.status.success() {
            bail!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Starts a program. `log`: without an ending, where what it prints goes; its home is beside that.
    pub(crate) fn start(
        &self,
        side: Side,
        words: &[String],
        log: &Path,
        core: Option<usize>,
    ) -> anyhow::Result<Running> {
        let mut command = self.pair.command(side, "sh")?;
        let enter = self.meters.as_ref().map_or("", |_| r#"echo $$ >"$METER/cgroup.procs"; "#);
        command.args(["-c", &format!("{enter}exec \"$@\""), "sh"]);
        if let Some(core) = core {
            command.args(["taskset", "-c", &core.to_string()]);
        }
        let [out, errors] = ["out", "err"].map(|ending| log.with_extension(ending));
        command.args(words).stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&errors)?);
        command.env("LONGHAUL_HOME", log.with_file_name(format!("home-{}", side.word())));
        if let Some(meters) = &self.meters {
            command.env("METER", &meters.groups[side.index()]);
        }
        sys::netns::detach(signals::unblock_in_child(&mut command));
        Ok(Running { child: command.spawn().with_context(|| words.join(" "))?, out, errors })
    }

    /// Waits until a server is ready; the line in which it says so.
    pub(crate) fn await_ready(&self, side: Side, server: &mut Running, one: &Contestant) -> anyhow::Result<String> {
        let began = Instant::now();
        while began.elapsed() < READY {
            let said = server.said();
            let whole = &said[..said.rfind('\n').map_or(0, |at| at + 1)];
            if let Some(line) = whole.lines().find(|line| !one.ready.is_empty() && line.contains(&one.ready)) {
                return Ok(line.to_owned());
            }
            if one.port != 0 && self.listens(side, one.port) {
                return Ok(String::new());
            }
            // Some go to the background; what failed says so.
            if server.child.try_wait()?.is_some_and(|status| !status.success()) {
                bail!("server ended: {}", server.last_words());
            }
            std::thread::sleep(LOOK);
        }
        bail!("server not ready after {READY:?}: {}", server.last_words())
    }

    /// By the kernel's table, so that nobody is disturbed.
    fn listens(&self, side: Side, port: u16) -> bool {
        let want = format!(":{port:04X}");
        ["tcp", "tcp6"].iter().any(|table| {
            let text = std::fs::read_to_string(format!("/proc/{}/net/{table}", self.holder(side))).unwrap_or_default();
            let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            // 0A: LISTEN (include/net/tcp_states.h).
            lines.any(|words| words.len() > 3 && words[1].ends_with(&want) && words[3] == "0A")
        })
    }

    /// Waits for its end, with a look now and then.
    pub(crate) fn wait(
        &self,
        running: &mut Running,
        most: Duration,
        mut look: impl FnMut(),
    ) -> anyhow::Result<ExitStatus> {
        let began = Instant::now();
        let ended = pidfd_open(running.pid(), PidfdFlags::empty())?;
        loop {
            look();
            if let Some(status) = running.child.try_wait()? {
                return Ok(status);
            }
            if began.elapsed() > most {
                bail!("not done after {} s", most.as_secs());
            }
            poll(&[(self.signals.as_fd(), Interest::Read), (ended.as_fd(), Interest::Read)], Some(LOOK))?;
            if self.signals.take().is_some() {
                bail!(Stopped);
            }
        }
    }
}

/// A program on a host; ends with this value.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    out: PathBuf,
    errors: PathBuf,
}

impl Running {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn said(&self) -> String {
        std::fs::read(&self.out).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    pub(crate) fn last_words(&self) -> String {
        let text = std::fs::read(&self.errors).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).trim().to_owned();
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        let said = lines.into_iter().rev().collect::<Vec<_>>().join(" / ");
        if said.is_empty() { "it said nothing".to_owned() } else { said.chars().take(300).collect() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for signal in [Signal::TERM, Signal::KILL] {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            let _ = kill_process_group(self.pid(), signal);
            let began = Instant::now();
            while began.elapsed() < GRACE && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// A control group for each host.
#[derive(Debug)]
struct Meters {
    groups: [PathBuf; 2],
    usage: &'static str,
}

impl Meters {
    fn make() -> Option<Meters> {
        [("/sys/fs/cgroup/cpuacct", "cpuacct.usage"), ("/sys/fs/cgroup", "cpu.stat")].into_iter().find_map(
            |(root, usage)| {
                let group = |side: Side| format!("{root}/longhaul-race-{}-{}", std::process::id(), side.word()).into();
                let meters = Meters { groups: Side::BOTH.map(group), usage };
                let made = meters.groups.iter().all(|group| std::fs::create_dir(group).is_ok());
                // What is dropped here is removed with it.
                (made && meters.seconds(Side::A).is_some()).then_some(meters)
            },
        )
    }

    fn seconds(&self, side: Side) -> Option<f64> {
        let text = std::fs::read_to_string(self.groups[side.index()].join(self.usage)).ok()?;
        let (number, unit) = match text.split_once("usage_usec ") {
            Some((_, rest)) => (rest.lines().next()?, 1e6),
            None => (text.trim(), 1e9),
        };
        Some(number.parse::<f64>().ok()? / unit)
    }
}

impl Drop for Meters {
    fn drop(&mut self) {
        // The kernel lets go of a group some moments after its last process has ended.
        for group in &self.groups {
            for _ in 0..50 {
                if std::fs::remove_dir(group).is_ok() || !group.exists() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}
