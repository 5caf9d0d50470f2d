//! One run of one contestant: its server, its client, the clock, and the figures.
//!
//! For: every round. In and out: a contestant, the hosts, a ground → the figures of a round and the command; or why there are none.
//! Invariants: a server is started anew for each run, before the clock; what other processes of the machine used meanwhile is recorded.
//! Absent on purpose: rounds (record.rs).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bench::race::contestant::{fill, with_ticket};
use bench::race::reading::{Moved, iperf3, nuttcp};
use bench::race::{Contestant, Reading, Running};
use lab::hosts::Side;
use lab::pair::address;
use serde_json::{Map, Value, json};

use super::field::Field;
use super::ground::{Content, Ground};
use super::hosts::Hosts;

/// What came of a run, by names.
pub(crate) type Round = Map<String, Value>;

/// Where contestants run.
#[derive(Debug)]
pub(crate) struct Track<'a> {
    pub(crate) hosts: &'a Hosts,
    pub(crate) field: &'a Field,
    pub(crate) ground: &'a Ground,
    /// Longhaul.
    pub(crate) exe: &'a Path,
    pub(crate) timeout: Duration,
    /// Of a run from memory to memory.
    pub(crate) seconds: u64,
    /// A core for each host.
    pub(crate) is_pinned: bool,
}

/// What a run took.
struct Took {
    seconds: f64,
    flushed: f64,
    cpu: [f64; 2],
}

impl Track<'_> {
    fn values(&self) -> Vec<(&'static str, String)> {
        let mut values = self.ground.values();
        let race = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("longhaul-race"));
        values.extend([("exe", self.exe.display().to_string()), ("race", race.display().to_string())]);
        values.extend([("a", address(Side::A).to_string()), ("b", address(Side::B).to_string())]);
        values.extend([("seconds", self.seconds.to_string()), ("bytes", self.ground.bytes.to_string())]);
        values
    }

    /// The command as it ran, without the places of this machine.
    pub(crate) fn shown(&self, one: &Contestant) -> String {
        let values = self.values();
        let mut values: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
        values.retain(|(name, _)| *name != "exe" && *name != "race");
        values.extend([("exe", "longhaul"), ("race", "longhaul-race")]);
        one.client.show(&values).replace(&self.ground.folder.display().to_string(), "BENCH")
    }

    /// One run; `is_first`: the destination is compared. `look` is called now and then while the client runs.
    pub(crate) fn run(&self, one: &Contestant, is_first: bool, look: impl FnMut()) -> anyhow::Result<Round> {
        let values = self.values();
        let values: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let [near, far] = if one.pulls { [Side::B, Side::A] } else { [Side::A, Side::B] };
        let core = |side: Side| self.is_pinned.then(|| side.index() % sys::host::cores().map_or(1, |it| it.count));
        let etc = self.ground.etc();
        if let Some(script) = self.field.setup.get(&one.setup) {
            let output = Command::new("sh").args(["-ec", &fill(script, &values)]).current_dir(&etc).output()?;
            if !output.status.success() {
                bail!("setup {}: {}", one.setup, String::from_utf8_lossy(&output.stderr).trim());
            }
        }
        self.ground.clear()?;
        let mut words = one.client.fill(&values);
        let mut server = None;
        if !one.server.0.is_empty() {
            let mut running = self.hosts.start(far, &one.server.fill(&values), &etc.join("server"), core(far))?;
            let line = running.await_ready(one, |port| self.hosts.listens(far, port)).map_err(anyhow::Error::msg)?;
            words = words.into_iter().map(|word| with_ticket(&word, &line)).collect();
            server = Some(running);
        }
        self.ground.level()?;
        let (cpu, all, began) = (self.hosts.cpu(), busy(), Instant::now());
        let mut client = self.hosts.start(near, &words, &etc.join("client"), core(near))?;
        let status = self.hosts.wait(&mut client, self.timeout, look)?;
        if let Some(server) = server.as_mut().filter(|_| one.server_ends && status.success()) {
            self.hosts.wait(server, self.timeout, || ())?;
        }
        let seconds = began.elapsed().as_secs_f64();
        let now = self.hosts.cpu();
        let cpu = [now[0] - cpu[0], now[1] - cpu[1]];
        let others = ((busy() - all - cpu[0] - cpu[1]) / seconds / cores()).max(0.0);
        if !status.success() {
            let server = server.map_or(String::new(), |server| format!("; its server: {}", server.last_words()));
            bail!("{status}: {}{server}", client.last_words());
        }
        if matches!(one.reading, Reading::Clock | Reading::Report) {
            self.ground.check()?;
        }
        let took = Took { seconds, flushed: began.elapsed().as_secs_f64(), cpu };
        let mut round = self.figures(one, &client, &took)?;
        round.insert("others_cpu_share".to_owned(), json!(others));
        drop(server);
        if is_first && matches!(one.reading, Reading::Clock | Reading::Report) {
            self.ground.compare()?;
        }
        Ok(round)
    }

    fn figures(&self, one: &Contestant, client: &Running, took: &Took) -> anyhow::Result<Round> {
        let said = client.said();
        let own = |moved: Result<Moved, String>| moved.map_err(anyhow::Error::msg);
        let bytes = self.ground.bytes as f64;
        let moved = match one.reading {
            Reading::Iperf3 => own(iperf3(&said))?,
            Reading::Nuttcp => own(nuttcp(&said))?,
            Reading::BenchNet => return bench_net(one, &said, took),
            _ => Moved { bytes, seconds: took.seconds, ..Moved::default() },
        };
        let [a, b] = took.cpu;
        let mut round = Round::new();
        let mut put = |key: &str, value: f64| _ = round.insert(key.to_owned(), json!(value));
        put("seconds", took.seconds);
        put("cpu_a", a);
        put("cpu_b", b);
        if moved.bytes > 0.0 {
            put("gbps", moved.bytes * 8.0 / moved.seconds / 1e9);
            put("cpu_s_per_gb", (a + b) / (moved.bytes / 1e9));
        }
        if self.ground.content == Content::File {
            put("copies_per_s", 1.0 / took.seconds);
            put("cpu_ms", (a + b) * 1e3);
            put("seconds_flushed", took.flushed);
            put("gbps_flushed", bytes * 8.0 / took.flushed / 1e9);
        }
        if let Content::Tree { files, .. } = self.ground.content {
            put("files_per_s", files as f64 / took.seconds);
            put("cpu_s_per_million", (a + b) / files as f64 * 1e6);
        }
        if one.reading == Reading::Report {
            let report: Value =
                said.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
            for (key, of) in [("memory_a", "peak_memory_bytes_local"), ("memory_b", "peak_memory_bytes_remote")] {
                report[of].as_f64().into_iter().for_each(|bytes| put(key, bytes));
            }
            round.insert("report".to_owned(), report);
        }
        Ok(round)
    }
}

/// The line that was asked for with `--only`; `--sealed` prints the one in clear beside those that are sealed.
fn bench_net(one: &Contestant, said: &str, took: &Took) -> anyhow::Result<Round> {
    let report: Value = serde_json::from_str(said).context("no report of longhaul bench net")?;
    let only = one.client.0.iter().skip_while(|word| *word != "--only").nth(1).map_or("", String::as_str);
    let lines = report["lines"].as_array().into_iter().flatten();
    let lines = lines.filter(|line| line["what"].as_str().is_some_and(|what| what.contains(only)));
    let of = |line: &Value, key: &str| line[key].as_f64().unwrap_or(0.0);
    let line = lines.max_by(|a, b| of(a, "gbps").total_cmp(&of(b, "gbps")));
    let line = line.with_context(|| format!("no line for {only}"))?;
    let (a, b) = (of(line, "send_cpu_s_per_gb"), of(line, "recv_cpu_s_per_gb"));
    let round = json!({"gbps": of(line, "gbps"), "cpu_a": a, "cpu_b": b, "cpu_s_per_gb": a + b, "seconds": took.seconds, "report": report});
    Ok(round.as_object().cloned().unwrap_or_default())
}

fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64)
}

/// Processor seconds of the whole machine so far: user, nice, system, irq, softirq of /proc/stat (proc(5)), in ticks of a hundredth.
fn busy() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks: Vec<f64> = text.split_whitespace().skip(1).take(7).filter_map(|word| word.parse().ok()).collect();
    [0, 1, 2, 5, 6].iter().filter_map(|&at| ticks.get(at)).sum::<f64>() / 100.0
}
