//! What the committers answer, and how a job takes leave of its destination.
//!
//! For: flushes, notes and names that stand, or do not.
//! In and out: `Settled` in; acknowledged durability or an entry's failure out.
//! Invariants: the job is done only when the last flush of the whole stands; of a job that ends only large parts stay.
//! Absent on purpose: the calls (`tree::commit`), when to flush (`parts`).

use std::sync::Arc;

use proto::manifest::Entry;

use super::RecvEnd;
use crate::job::fault_kind;
use crate::machine::{Outbox, Stop};
use crate::platform::{PartClaims, Platform, SinkTree};
use crate::tree::commit::{JOURNAL_FILE_BYTES_MIN, Settled};

impl<P: Platform> RecvEnd<P> {
    /// The committer answers.
    pub fn on_settled(&mut self, settled: Settled, _out: &mut Outbox<P>) -> Result<(), Stop> {
        match settled {
            Settled::Flushed { volume, entry, indices, result } => match result {
                Ok(()) => self.on_flushed(volume, entry, &indices),
                Err(error) => self.fail(entry, fault_kind(&error, false), Some(&error), "flush the part"),
            },
            Settled::Noted { volume, entry, header, result } => self.on_noted(volume, entry, header, result.is_ok()),
            Settled::Published { volume, entries, results } => {
                self.publishing[volume] = false;
                for (entry, result) in entries.iter().zip(results) {
                    match result {
                        Ok(()) => self.published(entry),
                        Err(error) => self.fail(entry.id, fault_kind(&error, false), Some(&error), "publish the file"),
                    }
                }
            }
            Settled::Discarded => self.discarding -= 1,
            Settled::Settled { result } => {
                if let Err(error) = result {
                    return Err(Stop::Fault {
                        step: "flush the destination",
                        errno: error.raw_os_error().unwrap_or(0),
                    });
                }
                self.settled = Some(true);
            }
        }
        Ok(())
    }

    /// The job is over, well or not, and nothing of it is in flight any more: what no later run can go on with is taken away, and what it held
    /// is nobody's.
    pub fn leave(&mut self) {
        if !self.record.dry {
            // Large parts stay for a later run.
            let is_small = |entry: &&Arc<Entry>| entry.is_file() && entry.bytes() <= JOURNAL_FILE_BYTES_MIN;
            self.machine.open().filter(is_small).for_each(|entry| self.sink.discard(entry));
            self.discards.drain(..).for_each(|(volume, entry)| self.sink.discard_on(volume, &entry));
        }
        if let Some(claims) = self.sink.claims() {
            claims.let_go();
        }
    }
}
