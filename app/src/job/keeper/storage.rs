//! What a job tells of the storage at its own end.
//!
//! For: `--explain` and the report: which engine was chosen, why, and what the job took of the page cache.
//! In and out: news of the end's chooser in; notes and choices out.
//! Invariants: told once; a rate that fell is judged only when this end's disk was what the job waited for.
//! Absent on purpose: choosing (`engine::linux::choice`).

use engine::linux::choice::Chooser;
use proto::books::{Books, Stage};
use proto::negotiate::Choice;
use proto::storage::Way as Moves;

use super::{Keeper, Way};
use crate::units::show_memory;

impl Keeper<'_, '_> {
    /// All volumes of an end share theirs.
    fn chooser(&self) -> (&Chooser, Moves) {
        match &self.job.way {
            Way::Send(source) => (source.trees()[0].chooser(), Moves::Read),
            Way::Recv { sink, .. } => (sink.trees().next().expect("a set has a volume").chooser(), Moves::Write),
        }
    }

    /// Engines chosen since the last turn become notes, and are kept for the end.
    pub(super) fn storage_news(&mut self) {
        for choice in self.chooser().0.take_news() {
            self.out.notes.push(format!("{}: {} ({})", choice.what, choice.value, choice.reason));
            self.storage.push(choice);
        }
    }

    /// The end: everything that is to be told of storage.
    pub(super) fn storage_told(&mut self, own: &Books) -> Vec<Choice> {
        self.storage_news();
        let elapsed_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let moved = self.end.record().tally.moved;
        let (chooser, way) = self.chooser();
        let waited = own.of(if way == Moves::Read { Stage::WaitRead } else { Stage::WaitWrite });
        // More than half of all workers' time went by waiting for this disk.
        let was_limit = waited > elapsed_ns.saturating_mul(self.job.workers.count() as u64) / 2;
        chooser.settle(way, moved, elapsed_ns, was_limit);
        let left = chooser.displaced_bytes();
        let mut told = std::mem::take(&mut self.storage);
        if left > 0 {
            let reason = "pages of its large files that the job brought in and that stayed (cachestat)".to_owned();
            told.push(Choice { what: "page cache", value: show_memory(left), reason });
        }
        told
    }
}
