//! One turn of one row: a client, its time, both ends' processor time, and whether what came is what was there.
//!
//! For: `bench ftp`, round by round. In and out: a row, what to do → a `Turn`, a reason why there is none, or the user's wish to stop.
//! Invariants: the clock runs from the client's start to its end, whatever it does before and after its bytes; only what arrived whole counts.
//! Absent on purpose: medians (record.rs), which turns there are (mod.rs).

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use lab::hosts::Side;
use node::report::json::Event;
use sys::signals::SignalFd;
use text::units;

use crate::ftp::hosts::{Folders, Hosts, Kind, Server, ticks_s};
use crate::ftp::record::{Lane, Parts, Turn};
use crate::ftp::rows::{Cover, Row, Way};
use crate::race::content::differ;
use crate::race::{Running, Waited};

/// A client that takes longer hangs.
const MOST: Duration = Duration::from_secs(60);
/// The beginning of why such a one has no figure; it is not tried again.
pub const GIVEN_UP: &str = "given up";
/// Between two looks at the wire's counters.
const LOOK: Duration = Duration::from_millis(1);
const SELDOM: Duration = Duration::from_millis(50);
/// A server's process for a client ends after it; then its time has been counted.
const SETTLE: Duration = Duration::from_millis(60);

/// What is moved: a file of `root/data/dir`, or the whole folder.
#[derive(Debug, Clone, Copy)]
pub struct What<'a> {
    pub way: Way,
    pub dir: &'a str,
    pub file: &'a str,
    pub files: usize,
    /// The wire is looked at.
    pub parts: bool,
}

/// What a turn gave.
#[derive(Debug)]
pub enum Ended {
    Measured(Turn),
    Failed(String),
    Stopped,
}

/// Where turns happen.
#[derive(Debug)]
pub struct Ground<'a> {
    pub hosts: &'a Hosts,
    pub folders: &'a Folders,
    pub servers: &'a [Server],
    pub signals: &'a SignalFd,
}

impl Ground<'_> {
    /// The command of a row here.
    pub fn command(&self, row: &Row, what: What<'_>) -> Option<Vec<String>> {
        let text = |path: &Path| path.display().to_string();
        let source = self.folders.at("root/data").join(what.dir).join(what.file);
        let mut values = vec![
            ("exe", text(&self.folders.exe)),
            ("h", self.hosts.address().to_string()),
            ("dst", text(&self.folders.at("dst"))),
            ("root", text(&self.folders.at("root"))),
            ("src", text(&source)),
            ("pw", text(&self.folders.at("password"))),
            ("dir", what.dir.to_owned()),
            ("last", what.files.saturating_sub(1).to_string()),
        ];
        values.push(("file", what.file.to_owned()));
        values.extend(self.servers.iter().flat_map(|server| server.said.clone()));
        let values: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
        row.command(what.way, &values)
    }

    /// One turn. Errors: what no other round would mend.
    pub fn turn(&self, row: &Row, what: What<'_>) -> anyhow::Result<Ended> {
        let Some(words) = self.command(row, what) else { return Ok(Ended::Failed("it has no such way".to_owned())) };
        let (arrives, source) = (self.empty(what.way)?, self.folders.at("root/data").join(what.dir));
        let server = self.servers.iter().find(|server| server.kind == row.kind).context("a row without its server")?;
        let mut command = self.hosts.command(Side::A, &words[0])?;
        command
            .args(&words[1..])
            .env("LONGHAUL_HOME", self.folders.at("client"))
            .env("HOME", self.folders.at("client"));
        let mut wire = if what.parts { Some(Wire::open(self.hosts)?) } else { None };
        let before_s = server.cpu_s();
        let began = Instant::now();
        let mut client = Running::start(&mut command, &self.folders.at("client-said"))?;
        let (id, mut cpu_s) = (client.id(), 0.0);
        let every = if what.parts { LOOK } else { SELDOM };
        let waited = client.wait_every(every, self.signals, MOST, || {
            wire.iter_mut().for_each(|wire| wire.look(began));
            if !what.parts || began.elapsed() > SELDOM {
                cpu_s = ticks_s(id).max(cpu_s);
            }
        })?;
        let seconds = began.elapsed().as_secs_f64();
        std::thread::sleep(SETTLE);
        let server_s = server.cpu_s() - before_s;
        match waited {
            Waited::Stopped => return Ok(Ended::Stopped),
            Waited::Late => return Ok(Ended::Failed(format!("{GIVEN_UP} after {MOST:?}"))),
            Waited::Ended(status) if status.success() => {}
            Waited::Ended(status) => return Ok(Ended::Failed(format!("{status}: {}", client.last_words()))),
        }
        if let Err(why) = went_by(row, &client.said()).and_then(|()| same(&source, &arrives, what)) {
            return Ok(Ended::Failed(why));
        }
        let parts = wire.map(|wire| Parts::of(&wire.seen, seconds));
        Ok(Ended::Measured(Turn { seconds, client_s: cpu_s, server_s, parts }))
    }

    /// Empties where it comes to.
    fn empty(&self, way: Way) -> anyhow::Result<std::path::PathBuf> {
        let place = self.folders.at(if way == Way::Put { "root/in" } else { "dst" });
        for entry in fs::read_dir(&place)?.flatten() {
            let _ = fs::remove_file(entry.path()).or_else(|_| fs::remove_dir_all(entry.path()));
        }
        Ok(place)
    }
}

/// Ours say by which transport they went.
fn went_by(row: &Row, said: &str) -> Result<(), String> {
    if row.cover != Cover::Sealed {
        return Ok(());
    }
    let done = said.lines().filter_map(Event::parse).find_map(|event| match event {
        Event::Done(done) => Some(done.transport),
        _ => None,
    });
    match done {
        Some(by) if by.contains(row.transport) => Ok(()),
        Some(by) => Err(format!("it went over {by}, not over {}", row.transport)),
        None => Err("it ended without a report".to_owned()),
    }
}

/// Every byte that was to come is there.
fn same(source: &Path, arrives: &Path, what: What<'_>) -> Result<(), String> {
    let names: Vec<String> = match what.way {
        Way::Get | Way::Put => vec![what.file.to_owned()],
        _ => (0..what.files).map(|number| format!("f{number}")).collect(),
    };
    for name in names {
        match differ(&source.join(&name), &arrives.join(&name)) {
            Ok(None) => {}
            Ok(Some(at)) => return Err(format!("{name} differs from byte {at} on")),
            Err(error) => return Err(format!("{name}: {error}")),
        }
    }
    Ok(())
}

/// Counters of what host a receives.
#[derive(Debug)]
struct Wire {
    counters: File,
    first: u64,
    seen: Vec<(f64, u64)>,
}

impl Wire {
    fn open(hosts: &Hosts) -> anyhow::Result<Wire> {
        // The file stays that of the namespace in which it was opened.
        let counters = hosts.inside(Side::A, || File::open("/proc/thread-self/net/dev"))?;
        let mut wire = Wire { counters, first: 0, seen: Vec::new() };
        wire.first = wire.received();
        Ok(wire)
    }

    fn received(&mut self) -> u64 {
        let mut text = String::new();
        if self.counters.rewind().and_then(|()| self.counters.read_to_string(&mut text)).is_err() {
            return 0;
        }
        let lines = text.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| name.trim() != "lo");
        lines.filter_map(|(_, rest)| rest.split_whitespace().next()?.parse::<u64>().ok()).sum()
    }

    fn look(&mut self, began: Instant) {
        let received = self.received().saturating_sub(self.first);
        self.seen.push((began.elapsed().as_secs_f64(), received));
    }
}

/// From memory to memory by `bench net`, in messages of `block` bytes: rates of the lines over `network` whose name holds `only`, Gbit/s.
pub fn memory(
    ground: &Ground<'_>,
    (network, only): (&str, &str),
    block: u64,
    seconds: f64,
) -> anyhow::Result<Result<Vec<(String, f64)>, String>> {
    let at = format!("{}:{}", ground.hosts.address(), Kind::Memory.of().1);
    let mut command = ground.hosts.command(Side::A, &ground.folders.exe.display().to_string())?;
    let seconds = format!("{}ms", (seconds * 1e3) as u64);
    command.args(["bench", "net", "--json", "--rounds", "1", "--seconds", &seconds, "--server", &at]);
    command.args([format!("--{network}"), "--block".to_owned(), units::exact_size(block)]);
    command.args(["--only", only]);
    let mut client = Running::start(&mut command, &ground.folders.at("client-said"))?;
    let waited = client.wait_every(SELDOM, ground.signals, MOST, || ())?;
    let found = rates(&client.said());
    if found.is_empty() { Ok(Err(format!("{waited:?}: {}", client.last_words()))) } else { Ok(Ok(found)) }
}

/// The lines of a report of `bench net --json`: what each is, Gbit/s.
fn rates(said: &str) -> Vec<(String, f64)> {
    let report: serde_json::Value = serde_json::from_str(said.trim()).unwrap_or_default();
    let lines = report["lines"].as_array().into_iter().flatten();
    lines.filter_map(|line| Some((line["what"].as_str()?.to_owned(), line["gbps"].as_f64()?))).collect()
}

/// Such a rate as a lane: the time for one message.
pub fn memory_lane(name: &str, block: u64, gbps: f64) -> Lane {
    let seconds = block as f64 * 8.0 / 1e9 / gbps;
    let turns = if gbps > 0.0 { vec![Turn { seconds, client_s: 0.0, server_s: 0.0, parts: None }] } else { Vec::new() };
    let command = "longhaul bench net --server B:7440 --block SIZE --only NAME".to_owned();
    let lacks = "from memory to memory: no file";
    Lane { name: name.to_owned(), ours: true, cover: None, lacks, command, turns, failed: Vec::new(), seconds: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::report::Line;
    use crate::net::way::{Driver, Layer, Way};

    #[test]
    fn the_figure_depth_finds_the_lines_that_bench_net_has() {
        let ways = [Way::Bare { block_bytes: 4096 }, Way::Rail { driver: Driver::Uring, layer: Layer::Sealed }];
        let lines = ways.map(|way| Line::new(way, &[]));
        let said = serde_json::json!({ "lines": lines }).to_string();
        let found: Vec<String> = rates(&said).into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, ways.map(|way| way.name()));
        for (name, lines) in found.iter().zip(super::super::LINES) {
            assert!(name.contains(lines.1), "{name}, {lines:?}");
        }
        assert!(rates("no report").is_empty());
    }
}
