//! One run: a lab, two programs in it, and what came of them.
//!
//! For: `bench wan`, round by round. In and out: a cell, a contestant → a round, a reason why there is none, or the user's wish to stop.
//! Invariants: every run has hosts and a link of its own, so that nothing of the run before (TCP's memory of a path, a full queue) is in
//! it; what runs in them ends with the run, and with this process however that ends (lab/guard.rs); a copy counts only if it is equal.
//! Absent on purpose: medians (record.rs), who competes (contest.rs).

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use sys::clock::now_ns;
use sys::event::{Interest, poll};
use sys::netns;
use sys::signals::{self, SignalFd};

use crate::race::content::{Noise, differ};
use crate::race::contestant::{Reading, with_ticket};
use crate::race::reading;
use crate::wan::contest::{self, Entrant};
use crate::wan::grid::{Cell, PACKET_BYTES, Plan};
use crate::wan::meter::Meter;
use crate::wan::record::Round;
use lab::emulator::Told;
use lab::guard::Guard;
use lab::hosts::{Lab, Making, Side, address4};
use lab::settings::AB;
use node::report::json::Event;

/// Between two looks at a run: a third of the shortest tail that matters, 3 round trips of 10 ms.
const LOOK: Duration = Duration::from_millis(10);
/// A server that has not said it is ready after so long will not.
const READY: Duration = Duration::from_secs(5);
/// A server that says nothing is given so long.
const MOMENT: Duration = Duration::from_millis(500);
/// Beside a multiple of the ideal time: starting, greeting over long paths.
const PATIENCE_LEAST: Duration = Duration::from_secs(10);

/// Where files lie, and what all runs share.
#[derive(Debug)]
pub struct Ground {
    /// This program.
    pub exe: PathBuf,
    /// A folder of our own, removed with this.
    pub folder: PathBuf,
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
        let ended = self.inside(&mut lab, cell, plan, one, &values);
        // A lab that was not stopped in there: a program could not be started.
        lab.stop();
        guard.finish();
        let _ = std::fs::remove_dir_all(self.destination());
        Ok((ended?, contest::shown(&one.contestant, &values)))
    }

    fn inside(
        &self,
        lab: &mut Lab,
        cell: &Cell,
        plan: Plan,
        one: &Entrant,
        values: &[(&'static str, String)],
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
        if !one.contestant.server.0.is_empty() {
            let mut child = self.start(lab, Side::B, &one.contestant.server.fill(&values), plan)?;
            match self.await_ready(&mut child, &one.contestant.ready) {
                Ok(line) => words = words.into_iter().map(|word| with_ticket(&word, &line)).collect(),
                Err(why) => {
                    end(&mut child);
                    return Ok(Ended::Failed(why));
                }
            }
            server = Some(child);
        }
        let began_ns = now_ns();
        let mut meter = Meter::new([netns::number(&lab.hosts[0])?, netns::number(&lab.hosts[1])?]);
        let mut client = self.start(lab, Side::A, &words, plan)?;
        let waited = self.await_end(lab, &mut client, &mut meter, plan, one);
        let end_ns = now_ns();
        end(&mut client);
        if let Some(server) = &mut server {
            end(server);
        }
        let waited = waited?;
        if matches!(waited, Waited::Stopped) {
            return Ok(Ended::Stopped);
        }
        let dropped = lab::run::dropped(lab);
        let told = lab.stop();
        let told = told.first().context("the lab has no link")?;
        let mut round = Round { given_up: matches!(waited, Waited::GivenUp), ..Round::default() };
        let dropped = dropped.first().copied().unwrap_or_default();
        round.emulator = doubts(told, dropped);
        round.emulator_was_limit =
            told.iter().zip(dropped).any(|(told, dropped)| lab::report::was_limit(told, dropped));
        round.peak_memory_bytes_a = meter.peak_bytes()[0];
        round.peak_memory_bytes_b = meter.peak_bytes()[1];
        #[expect(clippy::cast_precision_loss, reason = "seconds with three decimals")]
        let seconds = (end_ns - began_ns) as f64 / 1e9;
        round.seconds = seconds;
        let facts = Facts { cell, plan, one, told: &told[AB], meter: &meter, end_ns };
        match self.read(&facts, round, waited) {
            Ok(round) => Ok(Ended::Measured(round)),
            Err(why) => Ok(Ended::Failed(why)),
        }
    }

    fn start(&self, lab: &Lab, side: Side, words: &[String], plan: Plan) -> anyhow::Result<Child> {
        let out = File::create(self.folder.join(format!("out-{}", side.word())))?;
        let errors = File::create(self.folder.join(format!("err-{}", side.word())))?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(out).stderr(errors);
        command.envs(lab.environment()).env("LONGHAUL_HOME", self.folder.join(format!("home-{}", side.word())));
        command.env("BENCH_FILE", self.source()).env("BENCH_FOLDER", self.destination());
        command.env("BENCH_BYTES", plan.bytes.to_string()).env("BENCH_SECONDS", plan.seconds.to_string());
        // Not the terminal's: a Ctrl-C is this process's, which then ends them.
        netns::detach(signals::unblock_in_child(&mut command));
        let host: &OwnedFd = &lab.hosts[side.index()];
        netns::inside(host, || command.spawn()).with_context(|| format!("{} cannot be run", words[0]))
    }

    fn said(&self, name: &str) -> String {
        let mut bytes = Vec::new();
        let read = File::open(self.folder.join(name)).and_then(|mut file| file.read_to_end(&mut bytes));
        read.map(|_| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Waits for a server; the line that says it is ready.
    fn await_ready(&self, child: &mut Child, ready: &str) -> Result<String, String> {
        let began = Instant::now();
        loop {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!("the server ended at once ({status}): {}", last_line(&self.said("err-b"))));
            }
            if ready.is_empty() && began.elapsed() > MOMENT {
                return Ok(String::new());
            }
            // A line that is being written has no end yet.
            let said = self.said("out-b");
            let whole = &said[..said.rfind('\n').map_or(0, |at| at + 1)];
            if !ready.is_empty()
                && let Some(line) = whole.lines().find(|line| line.contains(ready))
            {
                return Ok(line.to_owned());
            }
            if began.elapsed() > READY {
                return Err(format!("the server was not ready after {READY:?}: {}", last_line(&self.said("err-b"))));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn await_end(
        &self,
        lab: &Lab,
        child: &mut Child,
        meter: &mut Meter,
        plan: Plan,
        one: &Entrant,
    ) -> anyhow::Result<Waited> {
        let ideal = Duration::from_secs_f64(plan.seconds);
        // What has a time of its own ends by itself; what hangs then is ended.
        let factor = if one.contestant.reading == Reading::Iperf3 { self.patience.max(2.0) } else { self.patience };
        let most = ideal.mul_f64(factor).max(ideal + PATIENCE_LEAST);
        let began = Instant::now();
        loop {
            meter.look(lab.links[0].directions[AB].shared().told().counts.bytes_out);
            if let Some(status) = child.try_wait()? {
                return Ok(Waited::Ended(status.code().unwrap_or(-1)));
            }
            if began.elapsed() > most {
                return Ok(Waited::GivenUp);
            }
            poll(&[(self.signals.as_fd(), Interest::Read)], Some(LOOK))?;
            if self.signals.take().is_some() {
                return Ok(Waited::Stopped);
            }
        }
    }
}

/// How a client ended.
#[derive(Debug, Clone, Copy)]
enum Waited {
    Ended(i32),
    GivenUp,
    Stopped,
}

/// What a round is made of.
struct Facts<'a> {
    cell: &'a Cell,
    plan: Plan,
    one: &'a Entrant,
    told: &'a Told,
    meter: &'a Meter,
    end_ns: u64,
}

#[expect(clippy::cast_precision_loss, reason = "figures with a few digits")]
impl Ground {
    fn read(&self, facts: &Facts<'_>, mut round: Round, waited: Waited) -> Result<Round, String> {
        let one = &facts.one.contestant;
        let timed = one.reading == Reading::Iperf3;
        if let Waited::Ended(code) = waited
            && code != 0
            && !timed
        {
            return Err(format!("exit code {code}: {}", last_line(&(self.said("err-a") + &self.said("out-a")))));
        }
        round.cpu_s_per_gb = facts.meter.cpu_ns() as f64 / 1e9;
        match one.reading {
            Reading::Report => self.read_copy(&mut round, &one.client.0)?,
            Reading::Iperf3 => self.read_streams(&mut round, facts.told)?,
            _ => self.read_peer(&mut round, facts.plan)?,
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

    fn read_copy(&self, round: &mut Round, options: &[String]) -> Result<(), String> {
        let mut last = None;
        for event in self.said("out-a").lines().filter_map(Event::parse) {
            match event {
                Event::Progress(record) => round.bytes = record.received.max(record.written),
                Event::Done(done) => last = Some(done),
                Event::Failed(_) | Event::Note(_) | Event::Fault(_) | Event::Plan(_) | Event::Dry(_) => {}
            }
        }
        let Some(done) = last else {
            return if round.given_up { Ok(()) } else { Err("it ended without a report".to_owned()) };
        };
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

    fn read_streams(&self, round: &mut Round, told: &Told) -> Result<(), String> {
        let moved = match reading::iperf3(&self.said("out-a")) {
            Ok(moved) => moved,
            Err(_) if round.given_up => return Ok(()),
            Err(why) => return Err(format!("{why}; {}", last_line(&self.said("err-a")))),
        };
        (round.bytes, round.seconds) = (moved.bytes as u64, moved.seconds);
        let lost = told.counts.wire + told.counts.queue;
        let percent = |segments: u64| segments as f64 * 1448.0 * 100.0 / moved.bytes.max(1.0);
        round.again_percent = Some(percent(moved.retransmits));
        round.redundant_percent = Some(percent(moved.retransmits.saturating_sub(lost)));
        Ok(())
    }

    /// A peer that writes the file is judged by the file; one that writes none prints `{"bytes": N, "seconds": S}` as its last line.
    fn read_peer(&self, round: &mut Round, plan: Plan) -> Result<(), String> {
        let said = self.said("out-a");
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
        round.bytes = plan.bytes;
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

fn doubts(told: &[Told; 2], dropped: [u64; 2]) -> Vec<String> {
    let sides = ["a to b", "b to a"].into_iter().zip(told).zip(dropped);
    sides.flat_map(|((name, told), dropped)| lab::report::doubts(0, name, told, dropped)).collect()
}

fn last_line(text: &str) -> String {
    let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    line.trim().chars().filter(|letter| !letter.is_control()).take(200).collect()
}

/// Ends a program that may have ended; what it started goes with the host.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
