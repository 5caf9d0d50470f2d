//! Two hosts, what is started on them, and the processor time that they use.
//!
//! For: every race. In and out: words → a program that runs on a host; programs → what they printed and cost.
//! Invariants: whatever was started on a host ends with it; the meters are control groups of their own, gone at the end; nothing of the machine
//! outside of them is changed.
//! Absent on purpose: who is raced; links with distance or loss (`bench wan`).

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use bench::race::{Running, Waited};
use lab::hosts::Side;
use lab::pair::{self, Pair};
use sys::signals::{self, SignalFd};

/// Of the wire between the hosts as it is made (veth's default).
pub(crate) const MTU: u32 = 1500;

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

    /// The MTU of the wire, at both ends.
    pub(crate) fn set_mtu(&self, mtu: u32) -> anyhow::Result<()> {
        let line = format!("ip link set dev {} mtu {mtu}", pair::DEVICE);
        Side::BOTH.into_iter().try_for_each(|side| self.run(side, &line).map(drop))
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
        command.args(words).env("LONGHAUL_HOME", log.with_file_name(format!("home-{}", side.word())));
        if let Some(meters) = &self.meters {
            command.env("METER", &meters.groups[side.index()]);
        }
        Running::start(&mut command, log).with_context(|| words.join(" "))
    }

    /// Waits for its end, with a look now and then.
    pub(crate) fn wait(&self, running: &mut Running, most: Duration, look: impl FnMut()) -> anyhow::Result<ExitStatus> {
        match running.wait(&self.signals, most, look)? {
            Waited::Ended(status) => Ok(status),
            Waited::Late => bail!("not done after {} s", most.as_secs()),
            Waited::Stopped => bail!(Stopped),
        }
    }

    /// By the kernel's table, so that nobody is disturbed.
    pub(crate) fn listens(&self, side: Side, port: u16) -> bool {
        let want = format!(":{port:04X}");
        ["tcp", "tcp6"].iter().any(|table| {
            let text = std::fs::read_to_string(format!("/proc/{}/net/{table}", self.holder(side))).unwrap_or_default();
            let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            // 0A: LISTEN (include/net/tcp_states.h).
            lines.any(|words| words.len() > 3 && words[1].ends_with(&want) && words[3] == "0A")
        })
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
