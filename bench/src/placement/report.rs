//! What a search says: every preset, the best of the rest, the winner.
//!
//! For: people and programs.
//! In and out: a verdict and what the trials cost → table and JSON.
//! Invariants: the text is made from the record that `--json` prints; a preset that could not be followed here is named as that.
//! Absent on purpose: judgement beyond the intervals.

use std::fmt;

use serde::Serialize;
use topology::placement::presets::PRESETS;
use topology::placement::search::{Found, Verdict};
use topology::placement::{Placement, Rings};

use super::SearchArguments;
use super::rig::Rig;
use text::table::Table;
use text::units::show_seconds;
use topology::machine::Machine;
use tune::irq_affinity;

/// Of those that are no preset, so many are shown.
const SHOWN: usize = 4;

/// One placement, measured.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// Presets that it is.
    names: Vec<&'static str>,
    gbps: f64,
    /// Where the mean lies in 95 of 100.
    low_gbps: f64,
    high_gbps: f64,
    trials: u32,
    send_cpu_s_per_gb: f64,
    recv_cpu_s_per_gb: f64,
    streams: u16,
    sender: String,
    receiver: String,
    wins: bool,
}

impl Line {
    fn new(rig: &Rig, found: &Found, wins: bool) -> Line {
        let [send_cpu_s_per_gb, recv_cpu_s_per_gb] = rig.cpu_s_per_gb(found.number);
        let Placement { send, recv, streams } = &found.placement;
        Line {
            names: found.names.clone(),
            gbps: found.rate / 1e9,
            low_gbps: found.low / 1e9,
            high_gbps: found.high / 1e9,
            trials: found.trials,
            send_cpu_s_per_gb,
            recv_cpu_s_per_gb,
            streams: *streams,
            sender: send.to_string(),
            receiver: recv.to_string(),
            wins,
        }
    }

    fn name(&self) -> String {
        let names = if self.names.is_empty() { "found".to_owned() } else { self.names.join(", ") };
        let mark = if self.wins { '*' } else { ' ' };
        format!("{mark} {names}: {}", self.place())
    }

    fn place(&self) -> String {
        match self.sender == self.receiver {
            true => format!("both: {}", self.sender),
            false => format!("send: {}; receive: {}", self.sender, self.receiver),
        }
    }
}

/// Everything.
#[derive(Debug, Serialize)]
pub struct Report {
    peer: String,
    near: Machine,
    far: Machine,
    sealed: bool,
    budget_s: f64,
    spent_s: f64,
    /// Trials of all.
    pub trials: u32,
    /// There was nothing left to try.
    settled: bool,
    /// Winner : none, measured in turn at the end, and where that lies in 95 of 100.
    over_none: Option<[f64; 3]>,
    /// By rate.
    lines: Vec<Line>,
    /// Presets that mean nothing on these machines.
    not_here: Vec<&'static str>,
    /// Why placements were passed over.
    refused: Vec<String>,
    /// How to hold the winner's interrupts at this end.
    shell: Vec<String>,
    #[serde(skip)]
    winner: (Placement, f64),
}

impl Report {
    /// From a verdict.
    #[must_use]
    pub fn new(rig: &Rig, arguments: &SearchArguments, verdict: &Verdict, refused: Vec<String>) -> Report {
        let won = &verdict.found[verdict.winner];
        let mut lines: Vec<Line> =
            verdict.found.iter().map(|found| Line::new(rig, found, found.number == won.number)).collect();
        lines.sort_by(|one, other| other.gbps.total_cmp(&one.gbps));
        let named = |name: &&str| lines.iter().any(|line| line.names.contains(name));
        let not_here = PRESETS.iter().map(|preset| preset.name).filter(|name| !named(name)).collect();
        let send = &won.placement.send;
        let shell = match send.irqs.is_empty() {
            true => Vec::new(),
            false => irq_affinity::shell(&rig.near.nic, &send.irqs, send.rings == Rings::First, &send.workers),
        };
        Report {
            peer: rig.peer.to_string(),
            near: rig.near.clone(),
            far: rig.far.clone(),
            sealed: !arguments.clear,
            budget_s: arguments.budget.as_secs_f64(),
            spent_s: verdict.spent_ns as f64 / 1e9,
            trials: verdict.trials,
            settled: verdict.settled,
            over_none: verdict.gain,
            lines,
            not_here,
            refused,
            shell,
            winner: (won.placement.clone(), won.rate),
        }
    }

    /// The winner and its rate, bit/s.
    #[must_use]
    pub fn winner(&self) -> (&Placement, f64) {
        (&self.winner.0, self.winner.1)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.sealed { "sealed, BLAKE3" } else { "in clear, CRC-64" };
        let Report { near, far, peer, trials, .. } = self;
        writeln!(f, "{} ({}) -> {} ({}) at {peer}, rail {how}", near.host, near.nic, far.host, far.nic)?;
        let why = if self.settled { "nothing better was left to try" } else { "the time was over" };
        writeln!(f, "{trials} trials of {} in {}; {why}\n", self.lines.len(), show_seconds(self.spent_s))?;
        let mut table =
            Table::new(&["  contestant", "Gb/s", "95 % interval", "CPU s/GB send", "receive", "streams", "trials"]);
        let mut others = 0;
        for line in &self.lines {
            others += usize::from(line.names.is_empty() && !line.wins);
            if line.names.is_empty() && !line.wins && others > SHOWN {
                continue;
            }
            table.line([
                line.name(),
                format!("{:.2}", line.gbps),
                format!("{:.2}-{:.2}", line.low_gbps, line.high_gbps),
                format!("{:.3}", line.send_cpu_s_per_gb),
                format!("{:.3}", line.recv_cpu_s_per_gb),
                line.streams.to_string(),
                line.trials.to_string(),
            ]);
        }
        writeln!(f, "{table}")?;
        if others > SHOWN {
            writeln!(f, "and {} slower ones that are no preset (--json has all)", others - SHOWN)?;
        }
        if !self.not_here.is_empty() {
            writeln!(
                f,
                "no contestants here: {} (no such cores, or interrupts that may not be moved)",
                self.not_here.join(", ")
            )?;
        }
        for why in &self.refused {
            writeln!(f, "passed over: {why}")?;
        }
        let won = self.lines.iter().find(|line| line.wins);
        if let Some(won) = won {
            write!(f, "winner: {}, {} streams", won.place(), won.streams)?;
        }
        match self.over_none {
            Some([gain, low, high]) if low > 1.0 => writeln!(f, ": {gain:.2} x none ({low:.2}-{high:.2})")?,
            Some([gain, low, high]) => {
                writeln!(f, ": not better than none beyond noise ({gain:.2} x, {low:.2}-{high:.2})")?
            }
            None => writeln!(f, "; there was no time to hold it against none in turn")?,
        }
        if !self.shell.is_empty() {
            writeln!(f, "its interrupts were put back; to have them so:\n  {}", self.shell.join("\n  "))?;
        }
        Ok(())
    }
}
