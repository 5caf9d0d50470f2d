//! One run: a lab, two programs in it, and what came of them.
//!
//! For: `bench wan`, round by round. In and out: a cell, a contestant → a round, a reason why there is none, or the user's wish to stop.
//! Invariants: every run has hosts and a link of its own, so that nothing of the run before (TCP's memory of a path, a full queue) is in
//! it; what runs in them ends with the run, and with this process however that ends (lab/guard.rs); a copy counts only if it is equal.
//! Absent on purpose: medians (record.rs), who competes (contest.rs).

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use sys::clock::now_ns;
use sys::netns;
use sys::signals::SignalFd;

use crate::race::content::{Noise, differ};
use crate::race::contestant::{Reading, with_ticket};
use crate::race::{Running, Waited, reading};
use crate::wan::contest::{self, Entrant};
use crate::wan::grid::{Cell, PACKET_BYTES, Plan};
use crate::wan::meter::Meter;
use crate::wan::record::Round;
use lab::emulator::Told;
use lab::guard::Guard;
use lab::hosts::{Lab, Making, Side, address4};
use lab::settings::AB;
use node::report::json::Event;

/// Beside a multiple of the ideal time: starting, greeting over long paths.
const PATIENCE_LEAST: Duration = Duration::from_secs(10);

/// Where files lie, and what all runs share.
#[derive(Debug)]
pub struct Ground {
    /// This program.
    pub exe: PathBuf,
    /// A folder of our own, removed with this.
    pub folder: PathBuf,
    /// Where traces of ours are kept, if anywhere.
    pub traces: Option<PathBuf>,
    /// A copy is given up after so many times its ideal time.
    pub patience: f64,
    /// Of the first links; each round has its own.
    pub seed: u64,
    /// The user's wish to stop.
    pub signals: SignalFd,
}

impl Drop for Ground {
    fn drop(&mut self) {
        // What cannot be removed is the user's to look at; there is nobody to tell.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Words as a file's name: letters and digits, a dash for what lies between.
fn slug(words: &str) -> String {
    let mut out = String::new();
    for letter in words.chars() {
        match letter.to_ascii_lowercase() {
            letter @ ('a'..='z' | '0'..='9' | '.') => out.push(letter),
            '%' => out.push_str("pc"),
            _ if out.ends_with('-') => {}
            _ => out.push('-'),
        }
    }
    out.trim_matches('-').to_owned()
}

/// What a run gave.
#[derive(Debug)]
pub enum Ended {
    Measured(Round),
    Failed(String),
    Stopped,
}

impl Ground {
    /// The file to send.
    #[must_use]
    pub fn source(&self) -> PathBuf {
        self.folder.join("file")
    }

    /// The trace of one of ours, in a cell.
    #[must_use]
    pub fn trace(&self, cell: &Cell, one: &Entrant) -> Option<PathBuf> {
        let folder = self.traces.as_ref().filter(|_| one.contestant.ours)?;
        Some(folder.join(format!("{}.html", slug(&format!("{} {}", cell.words(), one.contestant.name)))))
    }

    fn destination(&self) -> PathBuf {
        self.folder.join("to")
    }

    /// Writes the file: chance up to `random_bytes`, a hole above. Errors: no room, and what else a file system says.
    pub fn fill(&self, bytes: u64, random_bytes: u64) -> std::io::Result<()> {
        let mut file = File::create(self.source())?;
        Noise::new(self.seed).write(&mut file, random_bytes.min(bytes))?;
        file.set_len(bytes)
    }

    /// One run.
    ///
    /// # Errors
    /// The lab could not be made, or a program not be started: nothing that another round would mend.
    pub fn run(&self, cell: &Cell, plan: Plan, one: &Entrant, round: usize) -> anyhow::Result<(Ended, String)> {
        for folder in ["to", "home-a", "home-b"] {
            let _ = std::fs::remove_dir_all(self.folder.join(folder));
            std::fs::create_dir(self.folder.join(folder))?;
        }
        let making = Making { seed: self.seed + 2 * round as u64, memory_bytes: None, granule_ns: 50_000, tcp: None };
        let mut lab = Lab::make(&[cell.settings], making)?;
        let guard = Guard::start(&lab, &[])?;
        let values = contest::values(cell, plan, &address4(0, Side::B).to_string());
        let trace = self.trace(cell, one).filter(|_| round == 0);
        let ended = self.inside(&mut lab, (cell, plan), one, &values, trace);
        // A lab that was not stopped in there: a program could not be started.
        lab.stop();
        guard.finish();
        let _ = std::fs::remove_dir_all(self.destination());
        Ok((ended?, contest::shown(&one.contestant, &values)))
    }

    fn inside(
        &self,
        lab: &mut Lab,
        (cell, plan): (&Cell, Plan),
        one: &Entrant,
        values: &[(&'static str, String)],
        trace: Option<PathBuf>,
    ) -> anyhow::Result<Ended> {
        let mut server = None;
        let paths = [("exe", self.exe.clone()), ("src", self.source()), ("dst_dir", self.destination())];
        let paths = paths.map(|(name, path)| (name, path.display().to_string()));
        let mut values: Vec<(&str, &str)> =
            values.iter().chain(&paths).map(|(name, value)| (*name, value.as_str())).collect();
        if contest::is_users_own(&one.contestant) {
            values.clear();
        }
        let mut words = one.contestant.client.fill(&values);
        words.extend(trace.map(|path| format!("--trace={}", path.display())));
        if !one.contestant.server.0.is_empty() {
            let filled = one.contestant.server.fill(&values);
            let filled = if one.contestant.ours { self.of_another_kernel(filled)? } else { filled };
            let mut running = self.start(lab, Side::B, &filled, plan)?;
            // The lab's hosts have no servers that are known by a port.
            match running.await_ready(&one.contestant, |_| false) {
                Ok(line) => words = words.into_iter().map(|word| with_ticket(&word, &line)).collect(),
                Err(why) => return Ok(Ended::Failed(why)),
            }
            server = Some(running);
        }
        let began_ns = now_ns();
        let mut meter = Meter::new([netns::number(&lab.hosts[0])?, netns::number(&lab.hosts[1])?]);
        let mut client = self.start(lab, Side::A, &words, plan)?;
        let look = || meter.look(lab.links[0].directions[AB].shared().told().counts.bytes_out);
        let waited = client.wait(&self.signals, self.most(plan, one), look)?;
        let end_ns = now_ns();
        client.end();
        let given_up = match waited {
            Waited::Stopped => return Ok(Ended::Stopped),
            Waited::Late => true,
            Waited::Ended(status) if status.success() || one.contestant.reading == Reading::Iperf3 => false,
            Waited::Ended(status) => {
                return Ok(Ended::Failed(format!("{status}: {}", client.last_words())));
            }
        };
        drop(server);
        let dropped = lab::run::dropped(lab);
        let told = lab.stop();
        let told = told.first().context("the lab has no link")?;
        let mut round = Round { given_up, ..Round::default() };
        let dropped = dropped.first().copied().unwrap_or_default();
        round.emulator = doubts(told, dropped);
        round.emulator_was_limit =
            told.iter().zip(dropped).any(|(told, dropped)| lab::report::was_limit(told, dropped));
        round.peak_memory_bytes_a = meter.peak_bytes()[0];
        round.peak_memory_bytes_b = meter.peak_bytes()[1];
        #[expect(clippy::cast_precision_loss, reason = "seconds with three decimals")]
        let seconds = (end_ns - began_ns) as f64 / 1e9;
        round.seconds = seconds;
        let facts = Facts { cell, plan, one, told: &told[AB], meter: &meter, end_ns, client: &client };
        match self.read(&facts, round) {
            Ok(round) => Ok(Ended::Measured(round)),
            Err(why) => Ok(Ended::Failed(why)),
        }
    }

    /// Runs a command with another boot ID than this kernel's (proc_sys_kernel(5)): where both ends have the same, a client first looks whether the
    /// destination is its own source, a round trip that two machines do not need. Without CAP_SYS_ADMIN the command runs as it is.
    fn of_another_kernel(&self, words: Vec<String>) -> anyhow::Result<Vec<String>> {
        const BOOT: &str = "/proc/sys/kernel/random/boot_id";
        let booted = self.folder.join("booted");
        std::fs::write(&booted, "11111111-2222-3333-4444-555555555555\n")?;
        let line = format!("mount --bind \"$0\" {BOOT} 2>/dev/null; exec \"$@\"");
        let before = ["unshare", "-m", "sh", "-c", &line, &booted.display().to_string()].map(str::to_owned);
        let can =
            Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status().is_ok_and(|it| it.success());
        Ok(if can { before.into_iter().chain(words).collect() } else { words })
    }

    fn start(&self, lab: &Lab, side: Side, words: &[String], plan: Plan) -> anyhow::Result<Running> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command.envs(lab.environment()).env("LONGHAUL_HOME", self.folder.join(format!("home-{}", side.word())));
        command.env("BENCH_FILE", self.source()).env("BENCH_FOLDER", self.destination());
        command.env("BENCH_BYTES", plan.bytes.to_string()).env("BENCH_SECONDS", plan.seconds.to_string());
        let (host, log): (&OwnedFd, _) = (&lab.hosts[side.index()], self.folder.join(side.word()));
        let started = netns::inside(host, || Running::start(&mut command, &log));
        started.with_context(|| format!("{} cannot be run", words[0]))
    }

    /// How long one may take. What has a time of its own ends by itself; what hangs then is ended.
    fn most(&self, plan: Plan, one: &Entrant) -> Duration {
        let ideal = Duration::from_secs_f64(plan.seconds);
        let is_timed = one.contestant.reading == Reading::Iperf3;
        let factor = if is_timed { self.patience.max(2.0) } else { self.patience };
        ideal.mul_f64(factor).max(ideal + PATIENCE_LEAST)
    }
}

/// What a round is made of.
struct Facts<'a> {
    cell: &'a Cell,
    plan: Plan,
    one: &'a Entrant,
    told: &'a Told,
    meter: &'a Meter,
    end_ns: u64,
    client: &'a Running,
}

#[expect(clippy::cast_precision_loss, reason = "figures with a few digits")]
impl Ground {
    fn read(&self, facts: &Facts<'_>, mut round: Round) -> Result<Round, String> {
        let one = &facts.one.contestant;
        let timed = one.reading == Reading::Iperf3;
        round.cpu_s_per_gb = facts.meter.cpu_ns() as f64 / 1e9;
        match one.reading {
            Reading::Report => self.read_copy(&mut round, facts)?,
            Reading::Iperf3 => read_streams(&mut round, facts)?,
            _ => self.read_peer(&mut round, facts)?,
        }
        if round.bytes == 0 {
            return Err("nothing arrived".to_owned());
        }
        round.cpu_s_per_gb /= round.bytes as f64 / 1e9;
        round.goodput_bps = round.bytes as f64 * 8.0 / round.seconds;
        round.share = round.goodput_bps / facts.cell.limit_bps(facts.one.payload_bytes);
        if !timed && !round.given_up {
            let wire = facts.told.counts.bytes_out as f64 * facts.one.payload_bytes / PACKET_BYTES;
            if wire < 0.9 * round.bytes as f64 {
                return Err("fewer bytes crossed the link than were delivered: nothing to compare".to_owned());
            }
            round.redundant_percent = Some((wire / round.bytes as f64 - 1.0).max(0.0) * 100.0);
            let tail_ns = facts.meter.tail_ns(facts.end_ns);
            round.tail_trips =
                tail_ns.filter(|_| facts.cell.rtt_ms > 0.0).map(|ns| ns as f64 / 1e6 / facts.cell.rtt_ms);
        }
        Ok(round)
    }

    fn read_copy(&self, round: &mut Round, facts: &Facts<'_>) -> Result<(), String> {
        let mut last = None;
        for event in facts.client.said().lines().filter_map(Event::parse) {
            match event {
                Event::Progress(record) => round.bytes = record.received.max(record.written),
                Event::Done(done) => last = Some(done),
                Event::Rail(_)
                | Event::Failed(_)
                | Event::Note(_)
                | Event::Fault(_)
                | Event::Plan(_)
                | Event::Dry(_) => {}
            }
        }
        let Some(done) = last else {
            return if round.given_up { Ok(()) } else { Err("it ended without a report".to_owned()) };
        };
        let options = &facts.one.contestant.client.0;
        let wanted = if options.iter().any(|option| option == "--transport=udp") { "udp" } else { "tcp" };
        if done.transport != wanted {
            return Err(format!("it went over {}, not over {wanted}", done.transport));
        }
        self.check_equal()?;
        round.bytes = done.bytes;
        round.cpu_s_per_gb = done.cpu_seconds_local + done.cpu_seconds_remote.unwrap_or(0.0);
        round.peak_memory_bytes_a = done.peak_memory_bytes_local;
        round.peak_memory_bytes_b = done.peak_memory_bytes_remote.unwrap_or(round.peak_memory_bytes_b);
        let again = done.path.and_then(|path| Some(path.repair_bytes? + path.copy_bytes?));
        round.again_percent = again.map(|bytes| bytes as f64 * 100.0 / done.bytes.max(1) as f64);
        Ok(())
    }

    /// A peer that writes the file is judged by the file; one that writes none prints `{"bytes": N, "seconds": S}` as its last line.
    fn read_peer(&self, round: &mut Round, facts: &Facts<'_>) -> Result<(), String> {
        let said = facts.client.said();
        if let Some(line) = said.lines().next_back()
            && let Ok(told) = serde_json::from_str::<serde_json::Value>(line)
            && let (Some(bytes), Some(seconds)) = (told["bytes"].as_u64(), told["seconds"].as_f64())
            && seconds > 0.0
        {
            (round.bytes, round.seconds) = (bytes, seconds);
            return Ok(());
        }
        let entries = std::fs::read_dir(self.destination()).into_iter().flatten().flatten();
        let meta = entries.filter_map(|entry| entry.metadata().ok()).find(std::fs::Metadata::is_file);
        let Some(meta) = meta else { return Err("no file arrived".to_owned()) };
        if round.given_up {
            use std::os::unix::fs::MetadataExt;
            // Some make the file as long as it will be: what has room is what has come.
            round.bytes = meta.len().min(meta.blocks() * 512);
            return Ok(());
        }
        round.bytes = facts.plan.bytes;
        self.check_equal()
    }

    /// The destination holds what the source does. Errors: where it does not.
    fn check_equal(&self) -> Result<(), String> {
        let entries = std::fs::read_dir(self.destination()).into_iter().flatten().flatten();
        let path = entries.map(|entry| entry.path()).find(|path| path.is_file()).ok_or("no file arrived")?;
        match differ(&self.source(), &path) {
            Ok(None) => Ok(()),
            Ok(Some(at)) => Err(format!("what arrived differs from byte {at} on")),
            Err(error) => Err(format!("what arrived cannot be read: {error}")),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures with a few digits")]
fn read_streams(round: &mut Round, facts: &Facts<'_>) -> Result<(), String> {
    let moved = match reading::iperf3(&facts.client.said()) {
        Ok(moved) => moved,
        Err(_) if round.given_up => return Ok(()),
        Err(why) => return Err(format!("{why}; {}", facts.client.last_words())),
    };
    (round.bytes, round.seconds) = (moved.bytes as u64, moved.seconds);
    let lost = facts.told.counts.wire + facts.told.counts.police + facts.told.counts.queue;
    let percent = |segments: u64| segments as f64 * 1448.0 * 100.0 / moved.bytes.max(1.0);
    round.again_percent = Some(percent(moved.retransmits));
    round.redundant_percent = Some(percent(moved.retransmits.saturating_sub(lost)));
    Ok(())
}

fn doubts(told: &[Told; 2], dropped: [u64; 2]) -> Vec<String> {
    let sides = ["a to b", "b to a"].into_iter().zip(told).zip(dropped);
    sides.flat_map(|((name, told), dropped)| lab::report::doubts(0, name, told, dropped)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_named_by_its_cell_and_its_contestant() {
        assert_eq!(slug("155Mbit, 100ms, loss 0.1% longhaul udp fair"), "155mbit-100ms-loss-0.1pc-longhaul-udp-fair");
        assert_eq!(slug("../x: burst:1%/8"), "..-x-burst-1pc-8");
    }
}
