//! The books of one end, as `--json` tells them.
//!
//! For: programs that read where the time went, and the table of the end report.
//! In and out: `proto::books::Books` → records.
//! Invariants: those of json.rs; stages stand in the order of the data path.
//! Absent on purpose: the verdict (proto::books), the table (end.rs).

use serde::{Deserialize, Serialize};

use proto::books::{Books, Stage};

/// One stage of one end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageRecord {
    /// As the text report names it.
    pub stage: String,
    /// Workers' time in it.
    pub ms: f64,
    /// Of workers × wall time.
    pub percent: f64,
    /// ms per payload: seconds per GB, which is nanoseconds per byte; `null` when nothing was moved.
    pub s_per_gb: Option<f64>,
}

/// The books of one end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StagesRecord {
    /// Worker threads.
    pub workers: u16,
    /// Workers × wall time, which the stages must sum to.
    pub wall_ms: f64,
    /// What they sum to, in percent of it.
    pub booked_percent: f64,
    /// Payload moved.
    pub payload_bytes: u64,
    /// On rails, headers and tags included.
    pub rail_bytes: u64,
    /// The committer's own thread: flush and rename, beside the sum.
    pub commit_ms: f64,
    /// Workers were ready to run and had no core: of the stages, wherever it fell.
    pub run_delay_ms: f64,
    /// Every stage, in the order of the data path.
    pub stages: Vec<StageRecord>,
}

#[expect(clippy::cast_precision_loss, reason = "2^53 ns are 104 days; reports show four digits")]
impl StagesRecord {
    /// From an end's books.
    #[must_use]
    pub fn of(books: &Books) -> Self {
        let percent = |ns: u64| {
            if books.wall_ns == 0 { 0.0 } else { ns as f64 * 100.0 / books.wall_ns as f64 }
        };
        let per_gb = |ns: u64| (books.payload_bytes > 0).then(|| ns as f64 / books.payload_bytes as f64);
        let stages = Stage::ALL.iter().map(|&stage| {
            let ns = books.of(stage);
            StageRecord {
                stage: stage.name().to_owned(),
                ms: ns as f64 / 1e6,
                percent: percent(ns),
                s_per_gb: per_gb(ns),
            }
        });
        Self {
            workers: books.workers,
            wall_ms: books.wall_ns as f64 / 1e6,
            booked_percent: percent(books.booked_ns()),
            payload_bytes: books.payload_bytes,
            rail_bytes: books.rail_bytes,
            commit_ms: books.commit_ns as f64 / 1e6,
            run_delay_ms: books.run_delay_ns as f64 / 1e6,
            stages: stages.collect(),
        }
    }
}
