//! What is asked of a cell, and what all of them show together and along each axis.
//!
//! For: the verdict and the page. In and out: cells as flow_grid.rs wrote them → figures, the worst of them, yes or no.
//! Invariants: every bound is a constant here with its reason; a cell that did not end has nothing of the model.
//! Absent on purpose: why a cell is what it is (docs/design/040).

use serde::{Deserialize, Serialize};

/// Of the cells so many keep all bounds (issue 17).
const HOLDING: f64 = 0.95;
/// No cell has less of the model (issue 17).
const MODEL_LEAST: f64 = 0.7;
/// Share of the model's speed.
const MODEL: f64 = 0.9;
/// Bytes of the file sent, less what the path lost by itself, of the file: issue 17 asks it of policers.
const SENT: f64 = 1.1;
/// Median wait in the queue, milliseconds (issue 3). Beside it: four packets, which cannot wait less, and jitter of both ways, below which no
/// controller that looks at delay can see a queue (Arun, Alizadeh, Balakrishnan 2022).
const QUEUE_MS: f64 = 10.0;
const QUEUE_PACKETS: f64 = 4.0;
/// So many of the worst are kept.
const WORST: usize = 20;
const WORST_ALIKE: usize = 8;

/// A line of flow_grid.rs.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Cell {
    pub(super) cell: usize,
    pub(super) mbit: f64,
    pub(super) rtt_ms: f64,
    pub(super) packet: u64,
    pub(super) loss: f64,
    pub(super) burst: u64,
    pub(super) jitter_ms: f64,
    pub(super) in_order: bool,
    pub(super) queue: f64,
    pub(super) limiter: String,
    pub(super) bucket: u64,
    pub(super) trips: f64,
    pub(super) change: String,
    pub(super) by: f64,
    pub(super) limit: f64,
    pub(super) model: f64,
    pub(super) least: f64,
    pub(super) sent: f64,
    pub(super) queue_ms: f64,
    pub(super) queue_p95_ms: f64,
    pub(super) fall_back: String,
    pub(super) failed: String,
}

impl Cell {
    /// What its path and job are, in words.
    pub(super) fn said(&self) -> String {
        let Cell { cell, mbit, rtt_ms, loss, queue, trips, .. } = self;
        let rate = if *mbit < 10.0 { format!("{mbit:.1}") } else { format!("{mbit:.0}") };
        let mut text = format!("{cell}: {rate} Mbit/s, {rtt_ms:.1} ms, {trips:.3} round trips");
        if *loss > 0.0 {
            text += &format!(", loss {:.2} %", loss * 100.0);
        }
        if self.burst > 0 {
            text += &format!(" in bursts of {}", self.burst);
        }
        if self.jitter_ms > 0.0 {
            text +=
                &format!(", jitter {:.1} ms {}", self.jitter_ms, if self.in_order { "in order" } else { "overtaking" });
        }
        match self.limiter.as_str() {
            "queue" => text += &format!(", queue {queue:.2} products"),
            other => text += &format!(", {other} of {} B", self.bucket),
        }
        match self.change.as_str() {
            "rate" => text += &format!(", then {:.2} times the rate", self.by),
            "cross" => text += &format!(", {:.2} of it others'", self.by),
            _ => {}
        }
        text
    }

    /// Milliseconds that the median packet may wait.
    fn queue_ms_most(&self) -> f64 {
        let slowest = self.mbit * if self.change == "rate" { self.by.min(1.0) } else { 1.0 };
        QUEUE_MS + 2.0 * self.jitter_ms + QUEUE_PACKETS * self.packet as f64 * 8.0 / slowest / 1000.0
    }

    /// Packets of a round trip.
    pub(super) fn product(&self) -> f64 {
        self.mbit * 125.0 * self.rtt_ms / self.packet as f64
    }

    /// Which bounds it does not keep.
    pub(super) fn misses(&self) -> Vec<String> {
        let mut missed = Vec::new();
        if !self.failed.is_empty() {
            return vec![format!("did not end: {}", self.failed)];
        }
        if self.model < MODEL {
            missed.push(format!("{:.2} of the model", self.model));
        }
        if self.sent > SENT {
            missed.push(format!("sent {:.2} times the file", self.sent));
        }
        if self.queue_ms > self.queue_ms_most() {
            missed.push(format!("{:.1} ms of queue", self.queue_ms));
        }
        if !self.fall_back.is_empty() {
            missed.push(format!("fell back: {}", self.fall_back));
        }
        missed
    }
}

/// A line of the engine's simulator: a cell as a whole job, both ends with their disks, workers and session.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Job {
    pub(super) cell: usize,
    /// Datagram rails that it took: more than one means that one was given up, none that the job stood still.
    pub(super) rails: usize,
}

/// So large a share of the values is no more than this.
pub(super) fn quantile(values: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// What some cells show together.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Figures {
    pub(super) name: String,
    /// Where on its axis, for a plot.
    #[serde(skip)]
    pub(super) at: f64,
    /// What stands there: where the bin begins.
    #[serde(skip)]
    pub(super) tick: String,
    pub(super) cells: usize,
    /// Share of them that keep all bounds, and share below the least of the model.
    pub(super) holding: f64,
    pub(super) below: f64,
    /// Share of the limit, median; share of the model: median, 5th percentile, least; of a sender that knows after a round trip, median.
    pub(super) limit: f64,
    pub(super) model: [f64; 3],
    pub(super) least: f64,
    /// Sent, of the file: median, 95th percentile.
    pub(super) sent: [f64; 2],
    /// Median of the cells' medians, and of their 95th percentiles, ms; 95th percentile of the latter.
    pub(super) queue_ms: [f64; 3],
    pub(super) fall_backs: usize,
}

impl Figures {
    fn of(name: String, at: f64, cells: &[&Cell]) -> Figures {
        let of = |value: fn(&Cell) -> f64, share| quantile(cells.iter().map(|cell| value(cell)), share);
        let share =
            |is: fn(&Cell) -> bool| cells.iter().filter(|cell| is(cell)).count() as f64 / cells.len().max(1) as f64;
        Figures {
            name,
            at,
            tick: String::new(),
            cells: cells.len(),
            holding: share(|cell| cell.misses().is_empty()),
            below: share(|cell| cell.model < MODEL_LEAST),
            limit: of(|cell| cell.limit, 0.5),
            model: [0.5, 0.05, 0.0].map(|share| of(|cell| cell.model, share)),
            least: of(|cell| cell.least, 0.5),
            sent: [0.5, 0.95].map(|share| of(|cell| cell.sent, share)),
            queue_ms: [
                of(|cell| cell.queue_ms, 0.5),
                of(|cell| cell.queue_p95_ms, 0.5),
                of(|cell| cell.queue_p95_ms, 0.95),
            ],
            fall_backs: cells.iter().filter(|cell| !cell.fall_back.is_empty()).count(),
        }
    }
}

/// Figures along an axis.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Axis {
    pub(super) name: &'static str,
    pub(super) bins: Vec<Figures>,
}

/// An axis of numbers: its name, its value, the ends of its bins.
type Numbers = (&'static str, fn(&Cell) -> f64, &'static [f64]);
const NUMBERS: [Numbers; 9] = [
    ("rate, Mbit/s", |cell| cell.mbit, &[1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0]),
    ("round trip, ms", |cell| cell.rtt_ms, &[1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0]),
    ("packets of a round trip", Cell::product, &[0.05, 1.0, 10.0, 100.0, 1000.0, 10_000.0, 1e6]),
    ("loss, %", |cell| cell.loss * 100.0, &[0.0, 0.005, 0.1, 0.3, 1.0, 3.0, 10.0]),
    ("jitter, ms", |cell| cell.jitter_ms, &[0.0, 0.04, 0.3, 1.0, 3.0, 10.0, 20.0]),
    ("queue, products", queue, &[0.2, 0.5, 1.0, 2.0, 4.0, 1e9]),
    ("job, round trips of data", |cell| cell.trips, &[1.9, 5.0, 15.0, 50.0, 150.0, 500.0, 1e9]),
    ("policer's bucket, kB", |cell| if cell.limiter == "policer" { cell.bucket as f64 / 1e3 } else { -1.0 }, BUCKETS),
    ("shaper's bucket, kB", |cell| if cell.limiter == "shaper" { cell.bucket as f64 / 1e3 } else { -1.0 }, BUCKETS),
];
const BUCKETS: &[f64] = &[0.0, 5.0, 15.0, 50.0, 150.0, 1001.0];

fn queue(cell: &Cell) -> f64 {
    if cell.limiter == "policer" { -1.0 } else { cell.queue }
}

/// An axis of kinds: its name, its kinds, which of them a cell is.
type Kinds = (&'static str, &'static [&'static str], fn(&Cell) -> usize);
const KINDS: [Kinds; 4] = [
    ("what limits", &["link with a queue", "policer", "shaper with a bucket"], |cell| {
        ["queue", "policer", "shaper"].iter().position(|it| *it == cell.limiter).unwrap_or(0)
    }),
    ("in mid-job", &["nothing", "another rate", "cross traffic"], |cell| {
        ["none", "rate", "cross"].iter().position(|it| *it == cell.change).unwrap_or(0)
    }),
    ("form of the loss", &["none", "each by itself", "bursts"], |cell| match (cell.loss > 0.0, cell.burst > 0) {
        (false, _) => 0,
        (true, false) => 1,
        (true, true) => 2,
    }),
    ("jitter", &["none", "in order", "overtaking"], |cell| match (cell.jitter_ms > 0.0, cell.in_order) {
        (false, _) => 0,
        (true, true) => 1,
        (true, false) => 2,
    }),
];

fn number(value: f64) -> String {
    if value >= 1e9 { "more".to_owned() } else { format!("{value}") }
}

fn axes(cells: &[Cell]) -> Vec<Axis> {
    let mut axes = Vec::new();
    for (name, of, ends) in NUMBERS {
        let bins = ends.windows(2).filter_map(|pair| {
            let is_last = ends.last() == pair.last();
            let within = |cell: &&Cell| of(cell) >= pair[0] && (of(cell) < pair[1] || is_last && of(cell) <= pair[1]);
            let those: Vec<&Cell> = cells.iter().filter(within).collect();
            let is_none = pair[0] == 0.0 && pair[1] < 0.05;
            let said = if is_none { "none".to_owned() } else { format!("{}–{}", number(pair[0]), number(pair[1])) };
            let at = if pair[1] >= 1e9 { pair[0] * 2.0 } else { (pair[0].max(pair[1] / 4.0) * pair[1]).sqrt() };
            let tick = if pair[0] >= 1000.0 { format!("{}k", pair[0] / 1e3) } else { number(pair[0]) };
            (!those.is_empty()).then(|| Figures { tick, ..Figures::of(said, at, &those) })
        });
        axes.push(Axis { name, bins: bins.collect() });
    }
    for (name, kinds, of) in KINDS {
        let bins = kinds.iter().enumerate().filter_map(|(kind, said)| {
            let those: Vec<&Cell> = cells.iter().filter(|cell| of(cell) == kind).collect();
            (!those.is_empty()).then(|| Figures::of((*said).to_owned(), -1.0, &those))
        });
        axes.push(Axis { name, bins: bins.collect() });
    }
    axes
}

/// Cells that are alike in what makes them slow.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Cause {
    pub(super) name: String,
    pub(super) cells: usize,
    /// Of these so many have less than the least of the model.
    pub(super) below: usize,
    pub(super) worst: Vec<usize>,
}

/// What sets those apart that fall below the least (docs/design/040): a cell is of the first that fits.
type Alike = (&'static str, fn(&Cell) -> bool);
const ALIKE: [Alike; 10] = [
    ("policer with a bucket of less than five packets", |it| it.limiter == "policer" && it.bucket < 5 * it.packet),
    // What a controller lets leave at once, `Controller::burst`: 125 µs of the rate.
    ("policer whose bucket is less than a burst of 125 µs", |it| {
        it.limiter == "policer" && (it.bucket as f64) < it.mbit * 125_000.0 / 8000.0
    }),
    ("other policers", |it| it.limiter == "policer"),
    ("shaper whose bucket is a tenth of the job or more", |it| {
        it.limiter == "shaper" && it.bucket as f64 >= it.trips * it.product() * it.packet as f64 / 10.0
    }),
    ("jitter of a millisecond or more", |it| it.jitter_ms >= 1.0),
    ("less jitter", |it| it.jitter_ms > 0.0),
    ("loss in bursts of eight packets or more", |it| it.burst >= 8),
    ("another rate or cross traffic in mid-job", |it| it.change != "none"),
    ("less than 15 round trips of data", |it| it.trips < 15.0),
    ("all others", |_| true),
];

fn causes(cells: &[Cell]) -> Vec<Cause> {
    let mut left: Vec<&Cell> = cells.iter().collect();
    let mut causes = Vec::new();
    for (name, is) in ALIKE {
        let (own, others) = left.into_iter().partition::<Vec<&Cell>, _>(|cell| is(cell));
        let mut below: Vec<&Cell> = own.iter().copied().filter(|cell| cell.model < MODEL_LEAST).collect();
        below.sort_by(|a, b| a.model.total_cmp(&b.model).then(a.cell.cmp(&b.cell)));
        let worst = below.iter().take(WORST_ALIKE).map(|cell| cell.cell).collect();
        causes.push(Cause { name: name.to_owned(), cells: own.len(), below: below.len(), worst });
        left = others;
    }
    causes
}

/// One of the worst.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Worst {
    pub(super) cell: usize,
    pub(super) said: String,
    pub(super) model: f64,
    pub(super) misses: String,
}

/// All of it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seconds: Option<u64>,
    pub(super) holds: bool,
    pub(super) asked: String,
    pub(super) all: Figures,
    /// Of all cells: shares of the model below 0.95, 0.9, 0.8, 0.7, 0.5.
    pub(super) under: [f64; 5],
    /// Of all cells, by bound: those that do not keep it: model, sent, queue, fall-backs, not ended.
    pub(super) missing: [f64; 5],
    /// Whole jobs, and those of them that gave a datagram rail up: numbers of their cells.
    pub(super) jobs: usize,
    pub(super) jobs_fallen_back: Vec<usize>,
    pub(super) jobs_stuck: Vec<usize>,
    pub(super) axes: Vec<Axis>,
    pub(super) causes: Vec<Cause>,
    pub(super) worst: Vec<Worst>,
}

impl Report {
    pub(super) fn of(cells: &[Cell], jobs: &[Job], seconds: Option<u64>) -> Report {
        let every: Vec<&Cell> = cells.iter().collect();
        let all = Figures::of("all".to_owned(), 0.0, &every);
        let share = |is: &dyn Fn(&Cell) -> bool| {
            cells.iter().filter(|cell| is(cell)).count() as f64 / cells.len().max(1) as f64
        };
        let mut by_model = every.clone();
        by_model.sort_by(|a, b| a.model.total_cmp(&b.model).then(a.cell.cmp(&b.cell)));
        let worst = by_model.into_iter().take(WORST).map(|it| Worst {
            cell: it.cell,
            said: it.said(),
            model: it.model,
            misses: it.misses().join(", "),
        });
        Report {
            seconds,
            holds: all.holding >= HOLDING && all.below == 0.0 && jobs.iter().all(|job| job.rails == 1),
            asked: format!(
                "{MODEL} of the model, at most {SENT} times the file sent, a median wait of at most {QUEUE_MS} ms (and {QUEUE_PACKETS} packets, and \
                 the jitter of both ways) and no fall-back in {} % of the cells; {MODEL_LEAST} of the model in each",
                HOLDING * 100.0
            ),
            under: [0.95, 0.9, 0.8, 0.7, 0.5].map(|bound| share(&|cell| cell.model < bound)),
            missing: [
                share(&|cell| cell.failed.is_empty() && cell.model < MODEL),
                share(&|cell| cell.sent > SENT),
                share(&|cell| cell.queue_ms > cell.queue_ms_most()),
                share(&|cell| !cell.fall_back.is_empty()),
                share(&|cell| !cell.failed.is_empty()),
            ],
            jobs: jobs.len(),
            jobs_fallen_back: jobs.iter().filter(|job| job.rails > 1).map(|job| job.cell).collect(),
            jobs_stuck: jobs.iter().filter(|job| job.rails == 0).map(|job| job.cell).collect(),
            axes: axes(cells),
            causes: causes(cells),
            worst: worst.collect(),
            all,
        }
    }

    pub(super) fn verdict(&self) -> String {
        let Figures { cells, holding, below, .. } = self.all;
        format!(
            "{}: {:.1} % of {cells} cells keep all bounds; {:.2} % have less than {MODEL_LEAST} of the model",
            if self.holds { "holds" } else { "does not hold" },
            holding * 100.0,
            below * 100.0
        )
    }

    /// For a terminal.
    pub(super) fn text(&self) -> String {
        let line = |it: &Figures| {
            let [model, twentieth, least] = it.model;
            let ([sent, sent_most], [wait, wait_p95, wait_most]) = (it.sent, it.queue_ms);
            format!(
                "  {:22} {:6} {:8.3} {model:8.3} {twentieth:6.3} {least:6.3} {sent:8.3} {sent_most:6.3} {wait:8.2} {wait_p95:7.2} {wait_most:8.2} {:5} {:6.1} %\n",
                it.name,
                it.cells,
                it.limit,
                it.fall_backs,
                it.holding * 100.0
            )
        };
        let mut text = format!(
            "  {:22} {:>6} {:>8} {:>8} {:>6} {:>6} {:>8} {:>6} {:>8} {:>7} {:>8} {:>5} {:>8}\n",
            "",
            "cells",
            "limit",
            "model",
            "5 %",
            "least",
            "sent",
            "95 %",
            "queue ms",
            "p95",
            "its 95 %",
            "fell",
            "holding"
        ) + &line(&self.all);
        for axis in &self.axes {
            text += &format!("{}\n", axis.name);
            axis.bins.iter().for_each(|bin| text += &line(bin));
        }
        text += "below the least of the model, by what the cell is: cells, those below, the worst of them\n";
        for it in &self.causes {
            text += &format!("  {:52} {:5} {:5} {:?}\n", it.name, it.cells, it.below, it.worst);
        }
        text += "the worst, each again by CELL=number make grid\n";
        for it in &self.worst {
            text += &format!("  {}: {}\n", it.said, it.misses);
        }
        let [model, sent, queue, fell, open] = self.missing.map(|it| it * 100.0);
        text += &format!(
            "asked: {}\nmissed by bound: model {model:.1} %, sent {sent:.1} %, queue {queue:.1} %, fall-backs {fell:.2} %, not ended {open:.2} %\n",
            self.asked
        );
        text += &format!(
            "as whole jobs: {} cells; gave their datagram rail up: {:?}; stood still: {:?}\n",
            self.jobs, self.jobs_fallen_back, self.jobs_stuck
        );
        text + &self.verdict()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Cells of all kinds, all of which keep their bounds.
    pub(in crate::grid) fn cells(count: usize) -> Vec<Cell> {
        let of = |cell: usize| {
            let part = |of: usize| ((cell * of) % 97) as f64 / 97.0;
            Cell {
                cell,
                mbit: 10_f64.powf(4.0 * part(7)),
                rtt_ms: 10_f64.powf(3.0 * part(11)),
                packet: 1500,
                loss: if cell.is_multiple_of(4) { 0.0 } else { 1e-4 * 1000_f64.powf(part(13)) },
                burst: if cell % 4 == 1 { 9 } else { 0 },
                jitter_ms: if cell.is_multiple_of(3) { 20.0 * part(17) } else { 0.0 },
                in_order: cell.is_multiple_of(2),
                queue: 0.25 * 16_f64.powf(part(19)),
                limiter: ["queue", "queue", "policer", "shaper"][cell % 4].to_owned(),
                bucket: 1500 + 9000 * (cell as u64 % 100),
                trips: 2.0 * 500_f64.powf(part(23)),
                change: ["none", "none", "rate", "cross"][cell / 4 % 4].to_owned(),
                by: 0.25 + part(29),
                limit: 0.9 + 0.1 * part(31),
                model: 0.91 + 0.1 * part(37),
                least: 0.85,
                sent: 1.0 + 0.09 * part(41),
                queue_ms: 1.0 + 3.0 * part(43),
                queue_p95_ms: 2.0 + 9.0 * part(47),
                fall_back: String::new(),
                failed: String::new(),
            }
        };
        (0..count).map(of).collect()
    }

    pub(in crate::grid) fn jobs() -> Vec<Job> {
        (0..20).map(|cell| Job { cell, rails: 1 }).collect()
    }

    #[test]
    fn a_grid_holds_where_nineteen_of_twenty_cells_do_and_none_is_far_below_the_model() {
        let good = cells(400);
        assert!(Report::of(&good, &jobs(), Some(1)).holds, "{}", Report::of(&good, &jobs(), Some(1)).text());
        let spoil = |count: usize, how: fn(&mut Cell)| {
            let mut all = good.clone();
            all.iter_mut().take(count).for_each(how);
            Report::of(&all, &jobs(), Some(1))
        };
        let ways: [fn(&mut Cell); 4] = [
            |cell| cell.model = 0.8,
            |cell| cell.sent = 1.2,
            |cell| cell.queue_ms = 500.0,
            |cell| cell.fall_back = "silence".to_owned(),
        ];
        for (way, how) in ways.into_iter().enumerate() {
            assert!(spoil(20, how).holds, "one of twenty may miss: {way}");
            assert!(!spoil(21, how).holds, "and no more: {way}");
        }
        let report = spoil(1, |cell| (cell.cell, cell.model) = (77, 0.69));
        assert!(!report.holds && report.worst[0].cell == 77, "one far below: {}", report.text());
        assert!(!spoil(1, |cell| (cell.model, cell.failed) = (0.0, "stall".to_owned())).holds, "or without an end");
        let fell = [jobs(), vec![Job { cell: 99, rails: 2 }]].concat();
        assert!(!Report::of(&good, &fell, Some(1)).holds, "a whole job fell back");
        // A packet of 1 Mbit/s takes 12 ms: four of them are no queue of ours.
        let slow = Cell { mbit: 1.0, jitter_ms: 0.0, change: "none".to_owned(), queue_ms: 50.0, ..good[1].clone() };
        assert_eq!(slow.misses(), Vec::<String>::new());
        assert_eq!(Cell { mbit: 100.0, ..slow }.misses(), ["50.0 ms of queue"]);
    }

    #[test]
    fn every_cell_is_of_one_cause() {
        let mut all = cells(400);
        let few = all.iter_mut().step_by(7).map(|cell| cell.model = 0.5).count();
        let causes = causes(&all);
        assert_eq!(causes.iter().map(|it| it.cells).sum::<usize>(), 400);
        assert_eq!(causes.iter().map(|it| it.below).sum::<usize>(), few);
        assert!(causes.iter().all(|it| it.worst.len() == it.below.min(WORST_ALIKE)));
    }

    #[test]
    fn every_cell_is_in_one_bin_of_each_axis_that_it_has() {
        let all = cells(400);
        for axis in axes(&all) {
            let count: usize = axis.bins.iter().map(|bin| bin.cells).sum();
            let kind = |kind: &str| all.iter().filter(|cell| cell.limiter == kind).count();
            let wanted = match axis.name {
                "queue, products" => all.len() - kind("policer"),
                "policer's bucket, kB" => kind("policer"),
                "shaper's bucket, kB" => kind("shaper"),
                _ => all.len(),
            };
            assert_eq!(count, wanted, "{}", axis.name);
        }
    }
}
