//! What a job tells of the storage and the memory at its own end.
//!
//! For: `--explain` and the report: which I/O mode was chosen, why, what the job took of the page cache, and how often its bytes crossed memory.
//! In and out: news of the end's chooser, counts of the workers, in; notes and choices out.
//! Invariants: told once; a rate that fell is judged only when this end's disk was what the job waited for.
//! Absent on purpose: choosing (`engine::tree::io_mode`).

use engine::host::Team;
use engine::job::Cover;
use engine::tree::io_mode::Chooser;
use engine::worker::stages::Spared;
use proto::books::memory::{Crossing, LEAST};
use proto::books::{Books, Stage};
use proto::negotiate::Choice;
use proto::storage::Way as Moves;

use super::{JobDriver, Way};
use text::units::show_memory;

/// What was copied and what was not, at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Traffic {
    spared: Spared,
    /// By the memory controllers.
    counted: Option<u64>,
}

impl Traffic {
    pub(super) fn now(workers: &Team) -> Traffic {
        Traffic { spared: workers.spared(), counted: sys::host::memory_traffic_bytes() }
    }
}

impl JobDriver<'_, '_> {
    /// All volumes of an end share theirs.
    fn chooser(&self) -> (&Chooser, Moves) {
        match &self.job.way {
            Way::Send(source) => (source.trees()[0].chooser(), Moves::Read),
            Way::Recv { sink, .. } => (sink.trees().next().expect("a set has a volume").chooser(), Moves::Write),
        }
    }

    /// IoModes chosen since the last turn become notes, and are kept for the end.
    pub(super) fn storage_news(&mut self) {
        for choice in self.chooser().0.take_news() {
            self.out.notes.push(format!("{}: {} ({})", choice.what, choice.value, choice.reason));
            self.storage.push(choice);
        }
    }

    /// The end: everything that is to be told of storage.
    pub(super) fn storage_told(&mut self, own: &Books) -> Vec<Choice> {
        self.storage_news();
        let elapsed_ns = self.now.as_ns() - self.started.as_ns();
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
        told.extend(self.memory_told(way == Moves::Read));
        told
    }

    /// How often the payload crossed this end's memory. Between two ends in one process nobody asks.
    fn memory_told(&mut self, sends: bool) -> Option<Choice> {
        let (moved, cover) = (self.end.record().tally.moved, self.job.terms.cover);
        self.job.link.peer_addr().filter(|_| moved > 0)?;
        let (from, now) = (self.traffic_from, Traffic::now(&self.job.workers));
        let spared = now.spared - from.spared;
        let crossing = Crossing {
            sends,
            moved,
            direct: spared.direct,
            lent: spared.lent,
            unread: spared.unread,
            packets: if self.is_over_streams() { 0 } else { self.packets().map_or(0, |_| moved) },
            sealed: cover == Cover::Sealed,
            bare: cover == Cover::Bare,
        };
        let steps: Vec<String> = crossing.steps().iter().map(|(step, times)| format!("{step} {times:.1}")).collect();
        let counted = now.counted.zip(from.counted).map(|(now, from)| now.saturating_sub(from));
        let counted = counted.map_or_else(String::new, |bytes| {
            format!("; the memory controllers counted {:.1}, of all that ran here", bytes as f64 / moved as f64)
        });
        Some(Choice {
            what: "memory traffic",
            value: format!("{:.1} crossings a byte at this end", crossing.sum()),
            reason: format!("{}; a disk's and a listing's own are {LEAST:.1}{counted}", steps.join(", ")),
        })
    }
}
