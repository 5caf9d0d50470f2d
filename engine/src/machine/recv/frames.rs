//! The sender's frames, each to whoever deals with it.
//!
//! For: the receiving end's half of the control session.
//! In and out: frames in; see `Outbox`.
//! Invariants: a frame that only a receiver sends is a breach.
//! Absent on purpose: which frame may come when (`proto::session::order`).

use proto::error::Breach;
use proto::wire::control::{FaultKind, Frame, ID_NAMES_MAX};

use super::RecvEnd;
use crate::job::Cmd;
use crate::machine::{Outbox, Stop};
use crate::platform::Platform;

impl<P: Platform> RecvEnd<P> {
    /// A frame came from the sender.
    pub fn on_frame(&mut self, frame: Frame, out: &mut Outbox<P>) -> Result<(), Stop> {
        match frame {
            Frame::Entries(entries) => self.on_entries(entries, out)?,
            Frame::Names(names) => {
                self.id_names += names.len();
                if self.id_names > ID_NAMES_MAX {
                    return Err(Breach::FieldTooLong.into());
                }
                if let Some(owners) = &self.can.owners {
                    owners.learn(&names);
                    self.record.unnamed = owners.unnamed();
                }
            }
            Frame::Unseen(_) if self.record.tally.scan_ended => return Err(Breach::WrongOrder.into()),
            Frame::Unseen(places) => {
                places.into_iter().for_each(|(fault, path)| self.record.failed(fault, &path, true))
            }
            Frame::ScanEnd { entries, files, bytes, faults } => {
                self.machine.on_scan_end(entries)?;
                self.prune.scan_faults = faults;
                let tally = &mut self.record.tally;
                if (files, bytes) != (tally.files_total, tally.bytes_total) {
                    return Err(Breach::TotalsMismatch.into());
                }
                tally.scan_ended = true;
            }
            Frame::FileEnd { entry, digest } => {
                let ready = self.machine.on_file_end(entry, digest)?;
                self.on_ready(ready, out);
            }
            Frame::Faults(faults) => {
                for fault in faults {
                    if let Some(entry) = self.machine.resolve(fault.entry) {
                        // What failed to be read may be read next time: a large part stays for that. What changed or went does not.
                        let passing = matches!(fault.kind, FaultKind::Io | FaultKind::Denied | FaultKind::Other);
                        self.let_go(&entry, passing);
                        self.record.failed(fault, &entry.path, true);
                    }
                }
            }
            Frame::Holes { entry, ranges } => self.on_holes(entry, &ranges)?,
            Frame::Differ { entry, ranges } => self.on_differ(entry, &ranges, out)?,
            Frame::RailDown { rail } => {
                if self.up_rails.contains_key(&rail) {
                    out.cmds.push((usize::from(rail) % self.workers, Cmd::RailDown { job: self.job, rail }));
                } else if self.closed_rails.insert(rail) {
                    self.closing.push(rail);
                }
            }
            _ => return Err(Breach::WrongOrder.into()),
        }
        Ok(())
    }
}
