//! What came of it: rounds, medians, verdicts.
//!
//! For: the table, the JSON and the page, which show the same records. In and out: rounds → spreads; cells → sentences.
//! Invariants: a run that failed or was given up is in the record with its reason, never left out; medians are of runs that reached their end
//! or, where none did, of what had arrived when they were given up.
//! Absent on purpose: measuring (race.rs), drawing (page.rs).

use serde::Serialize;

use crate::race::Spread;
use crate::table::Host;
use crate::wan::grid::Cell;
use text::table::Table;
use text::units;

/// One run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Round {
    /// Payload that arrived, bytes.
    pub bytes: u64,
    /// From the client's start to its end (bare TCP: of its own clock, without its greeting).
    pub seconds: f64,
    /// Bit/s.
    pub goodput_bps: f64,
    /// Of the limit, 0 to 1.
    pub share: f64,
    /// What was sent beside the first time, of the payload, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again_percent: Option<f64>,
    /// What was sent or arrived though nothing was missing, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redundant_percent: Option<f64>,
    /// From 99 % of the bytes to the client's end, in round trips of the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail_trips: Option<f64>,
    /// Both ends, user and system.
    pub cpu_s_per_gb: f64,
    /// The sender's process.
    pub peak_memory_bytes_a: u64,
    /// The receiver's.
    pub peak_memory_bytes_b: u64,
    /// It was ended before it was done.
    pub given_up: bool,
    /// Every reason to mistrust the emulator, late packets among them; empty: it kept its word.
    pub emulator: Vec<String>,
    /// It took away from what the link carries.
    pub emulator_was_limit: bool,
}

/// A contestant in a cell.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub name: String,
    /// As it ran, without paths.
    pub command: String,
    /// The page of what congestion control did in the first round, from where the grid's page stands.
    pub trace: Option<String>,
    /// What it could deliver at most, bit/s.
    pub limit_bps: f64,
    pub rounds: Vec<Round>,
    /// Why runs failed.
    pub failed: Vec<String>,
    pub goodput_bps: Option<Spread>,
    pub share: Option<Spread>,
    pub again_percent: Option<Spread>,
    pub redundant_percent: Option<Spread>,
    pub tail_trips: Option<Spread>,
    pub cpu_s_per_gb: Option<Spread>,
    /// The most that an end had.
    pub peak_memory_bytes: u64,
    /// Rounds in which the emulator was the limit.
    pub emulator_rounds: usize,
}

impl Row {
    /// Nothing yet.
    #[must_use]
    pub fn new(name: &str, limit_bps: f64) -> Row {
        Row {
            name: name.to_owned(),
            command: String::new(),
            trace: None,
            limit_bps,
            rounds: Vec::new(),
            failed: Vec::new(),
            goodput_bps: None,
            share: None,
            again_percent: None,
            redundant_percent: None,
            tail_trips: None,
            cpu_s_per_gb: None,
            peak_memory_bytes: 0,
            emulator_rounds: 0,
        }
    }

    /// One more round; the medians follow.
    pub fn add(&mut self, round: Round) {
        self.rounds.push(round);
        let done = self.rounds.iter().any(|round| !round.given_up);
        let rounds: Vec<&Round> = self.rounds.iter().filter(|round| !done || !round.given_up).collect();
        let spread = |of: &dyn Fn(&Round) -> Option<f64>| {
            Spread::of(&rounds.iter().filter_map(|round| of(round)).collect::<Vec<f64>>())
        };
        self.goodput_bps = spread(&|round| Some(round.goodput_bps));
        self.share = spread(&|round| Some(round.share));
        self.again_percent = spread(&|round| round.again_percent);
        self.redundant_percent = spread(&|round| round.redundant_percent);
        self.tail_trips = spread(&|round| round.tail_trips);
        self.cpu_s_per_gb = spread(&|round| Some(round.cpu_s_per_gb));
        let peaks = self.rounds.iter().map(|round| round.peak_memory_bytes_a.max(round.peak_memory_bytes_b));
        self.peak_memory_bytes = peaks.max().unwrap_or(0);
        self.emulator_rounds = self.rounds.iter().filter(|round| round.emulator_was_limit).count();
    }

    fn given_up(&self) -> usize {
        self.rounds.iter().filter(|round| round.given_up).count()
    }

    /// What is to be said beside the figures.
    #[must_use]
    pub fn remarks(&self) -> String {
        let mut words = Vec::new();
        if self.given_up() > 0 {
            words.push(format!("{} of {} given up", self.given_up(), self.rounds.len()));
        }
        if self.emulator_rounds > 0 {
            words.push(format!("the emulator limited {}", self.emulator_rounds));
        }
        let late = self.rounds.iter().filter(|round| !round.emulator.is_empty() && !round.emulator_was_limit).count();
        if late > 0 {
            words.push(format!("the emulator was late in {late}"));
        }
        if let Some(why) = self.failed.first() {
            words.push(format!("{} failed: {why}", self.failed.len()));
        }
        words.join("; ")
    }
}

/// A cell with all that was measured in it.
#[derive(Debug, Clone, Serialize)]
pub struct CellRecord {
    #[serde(flatten)]
    pub cell: Cell,
    /// Bytes of a copy.
    pub bytes: u64,
    /// Of a run at the limit.
    pub seconds: f64,
    /// The machine's, before the cell.
    pub load: Option<f32>,
    pub rows: Vec<Row>,
}

impl CellRecord {
    /// The goodput of a contestant.
    #[must_use]
    pub fn goodput(&self, name: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.name == name)?.goodput_bps.map(|spread| spread.median)
    }

    /// The table of the cell.
    #[must_use]
    pub fn table(&self) -> Table {
        let heads =
            ["", "Mbit/s", "of limit", "spread", "again %", "redundant %", "tail, RTT", "CPU s/GB", "peak MiB", ""];
        let mut table = Table::new(&heads);
        for row in &self.rows {
            let number = |spread: Option<Spread>, decimals: usize| {
                spread.map_or("–".to_owned(), |spread| format!("{:.decimals$}", spread.median))
            };
            table.line([
                row.name.clone(),
                row.goodput_bps.map_or("–".to_owned(), |spread| format!("{:.2}", spread.median / 1e6)),
                row.share.map_or("–".to_owned(), |spread| format!("{:.1} %", spread.median * 100.0)),
                row.share
                    .map_or("–".to_owned(), |spread| format!("{:.1}–{:.1}", spread.min * 100.0, spread.max * 100.0)),
                number(row.again_percent, 2),
                number(row.redundant_percent, 2),
                number(row.tail_trips, 1),
                number(row.cpu_s_per_gb, 2),
                (row.peak_memory_bytes >> 20).to_string(),
                row.remarks(),
            ]);
        }
        table
    }
}

/// Everything.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    event: &'static str,
    bench: &'static str,
    version: &'static str,
    pub host: Host,
    /// Seconds since 1970 at the start.
    pub began_unix_s: i64,
    pub rounds: usize,
    /// Round trips of a run, at least.
    pub trips: f64,
    /// Cells that were asked for.
    pub cells_wanted: usize,
    pub seed: u64,
    /// Congestion control of TCP in the hosts, where nobody asks for another.
    pub tcp_default: String,
    /// Versions of what is not ours.
    pub programs: Vec<String>,
    /// What could not be had, and how to read the rest.
    pub notes: Vec<String>,
    pub names: Vec<String>,
    pub cells: Vec<CellRecord>,
}

impl Report {
    /// With no cell yet.
    #[must_use]
    pub fn new(host: Host, names: Vec<String>, notes: Vec<String>) -> Report {
        Report {
            event: "bench",
            bench: "wan",
            version: env!("CARGO_PKG_VERSION"),
            host,
            began_unix_s: sys::clock::unix_time().0,
            rounds: 0,
            trips: 0.0,
            cells_wanted: 0,
            seed: 0,
            tcp_default: String::new(),
            programs: Vec::new(),
            notes,
            names,
            cells: Vec::new(),
        }
    }

    /// What can be said of all cells together.
    #[must_use]
    pub fn verdicts(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for name in self.names.iter().filter(|name| name.starts_with("longhaul")) {
            let shares = self.cells.iter().flat_map(|cell| &cell.rows).filter(|row| row.name == *name);
            let shares: Vec<f64> = shares.filter_map(|row| Some(row.share?.median)).collect();
            if let Some(spread) = Spread::of(&shares) {
                let (low, mid, high) = (spread.min * 100.0, spread.median * 100.0, spread.max * 100.0);
                lines.push(format!(
                    "{name}: {low:.1} to {high:.1} % of the limit, median of {} cells {mid:.1} %",
                    shares.len()
                ));
            }
            lines.extend(self.neutrality(name));
            lines.extend(self.against(name, "TCP CUBIC × 1"));
            lines.extend(self.against_best(name));
        }
        lines
    }

    /// How much distance changes the share, at equal rate and loss: the widest.
    fn neutrality(&self, name: &str) -> Option<String> {
        let mut widest: Option<(f64, &Cell)> = None;
        for cell in &self.cells {
            let alike = self
                .cells
                .iter()
                .filter(|other| (&other.cell.rate, &other.cell.loss) == (&cell.cell.rate, &cell.cell.loss));
            let shares = alike.flat_map(|cell| &cell.rows).filter(|row| row.name == name);
            let shares: Vec<f64> = shares.filter_map(|row| Some(row.share?.median)).collect();
            if let (2.., Some(spread)) = (shares.len(), Spread::of(&shares))
                && widest.is_none_or(|(width, _)| spread.max - spread.min > width)
            {
                widest = Some((spread.max - spread.min, &cell.cell));
            }
        }
        let (width, cell) = widest?;
        Some(format!(
            "{name}: over all distances at equal loss the share changes by at most {:.1} points ({}, loss {})",
            width * 100.0,
            units::exact_rate(cell.rate_bps),
            cell.loss
        ))
    }

    fn against(&self, name: &str, other: &str) -> Option<String> {
        let ratio = |cell: &CellRecord| Some((cell.goodput(name)? / cell.goodput(other)?.max(1.0), cell.cell.words()));
        let mut ratios: Vec<(f64, String)> = self.cells.iter().filter_map(ratio).collect();
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ((low, low_at), (high, high_at)) = (ratios.first()?, ratios.last()?);
        Some(format!("{name} against {other}: {low:.2} × ({low_at}) to {high:.1} × ({high_at})"))
    }

    /// Cells in which somebody else is ahead by more than 3 %.
    fn against_best(&self, name: &str) -> Option<String> {
        let mut behind = Vec::new();
        let mut compared = 0;
        for cell in &self.cells {
            let Some(own) = cell.goodput(name) else { continue };
            let others = cell.rows.iter().filter(|row| !row.name.starts_with("longhaul"));
            let best = others.filter_map(|row| Some((row.goodput_bps?.median, &row.name)));
            let Some((best, by)) = best.max_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
            compared += 1;
            if own < best * 0.97 {
                behind.push(format!("{} ({:.2} × {by})", cell.cell.words(), own / best));
            }
        }
        match (compared, behind.len()) {
            (0, _) => None,
            (_, 0) => Some(format!("{name}: in none of {compared} cells more than 3 % behind the best of the others")),
            (_, count) => Some(format!(
                "{name}: behind the best of the others in {count} of {compared} cells: {}",
                behind.join(", ")
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(goodput_bps: f64, given_up: bool) -> Round {
        Round { goodput_bps, share: goodput_bps / 1e9, given_up, ..Round::default() }
    }

    fn record(rtt: &str, ours: f64, theirs: f64) -> CellRecord {
        let cell = Cell::parse("1Gbit", rtt, "1%").unwrap();
        let mut rows = vec![Row::new("longhaul udp fair", 1e9), Row::new("TCP CUBIC × 1", 1e9)];
        rows[0].add(round(ours, false));
        rows[1].add(round(theirs, false));
        CellRecord { cell, bytes: 1, seconds: 1.0, load: None, rows }
    }

    #[test]
    fn medians_are_of_runs_that_ended_if_any_did() {
        let mut row = Row::new("x", 1e9);
        row.add(round(1e6, true));
        assert_eq!(row.goodput_bps.unwrap().median, 1e6);
        row.add(round(9e8, false));
        row.add(round(8e8, false));
        row.add(round(7e8, false));
        let spread = row.goodput_bps.unwrap();
        assert_eq!((spread.min, spread.median, spread.max), (7e8, 8e8, 9e8));
        assert_eq!(row.remarks(), "1 of 4 given up");
    }

    #[test]
    fn verdicts_name_the_cells_in_which_somebody_else_is_ahead() {
        let names = vec!["longhaul udp fair".to_owned(), "TCP CUBIC × 1".to_owned()];
        let host = Host { cpu: String::new(), cores: 2, kernel: String::new(), load: None };
        let mut report = Report::new(host, names, Vec::new());
        report.cells = vec![record("10ms", 9e8, 9.5e8), record("100ms", 9.2e8, 9.2e6)];
        let text = report.verdicts().join("\n");
        assert!(text.contains("90.0 to 92.0 % of the limit"), "{text}");
        assert!(text.contains("changes by at most 2.0 points (1Gbit/s, loss 1%)"), "{text}");
        assert!(text.contains("0.95 × (1Gbit/s, 10ms, loss 1%) to 100.0 × (1Gbit/s, 100ms, loss 1%)"), "{text}");
        assert!(text.contains("behind the best of the others in 1 of 2 cells: 1Gbit/s, 10ms"), "{text}");
    }
}
