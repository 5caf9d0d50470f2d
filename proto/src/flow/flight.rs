//! What is on its way, by packet number.
//!
//! For: the sender's answer to "which bytes did number n carry, and when did it leave?"
//! In and out: bursts are pushed in order of their numbers; coverage resolves them from the front, each number once.
//! Invariants: numbers have no gaps between `covered` and `next`; a burst is one record however many packets it has.
//! Absent on purpose: what loss or arrival mean for a unit (`units`).

use alloc::collections::VecDeque;
use core::ops::Range;

/// What the packets of a run carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cargo {
    /// Bytes of a unit.
    Data,
    /// A control packet: not sent again when lost.
    Control,
    /// A probe of so many bytes (`Run::bytes`).
    Probe,
    /// Numbers that never left: the socket did not take them.
    Void,
}

/// Packets with consecutive numbers that left together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) first: u64,
    pub(super) sent_ns: u64,
    pub(super) packets: u32,
    pub(super) unit: u32,
    pub(super) offset: u32,
    pub(super) bytes: u32,
    pub(super) payload: u16,
    pub(super) cargo: Cargo,
    /// These bytes were lost before.
    pub(super) repair: bool,
    /// The bytes of numbers below this went out again under later numbers, which answer for them.
    pub(super) superseded_below: u64,
    /// How many times the bytes had been copied before this.
    pub(super) copies: u8,
    /// Wire bytes of data that left before this run; given by `push`.
    pub(super) before: u64,
}

impl Run {
    pub(super) const fn end(&self) -> u64 {
        self.first + self.packets as u64
    }

    /// Bytes of the unit in the packets `from..to` of this run.
    pub(super) fn range(&self, numbers: &Range<u64>) -> Range<u32> {
        let at = |number: u64| {
            let bytes = (number - self.first).saturating_mul(u64::from(self.payload));
            self.offset + bytes.min(u64::from(self.bytes)) as u32
        };
        at(numbers.start)..at(numbers.end)
    }

    /// What these packets weigh on the wire.
    pub(super) fn wire_bytes(&self, numbers: &Range<u64>) -> u64 {
        match self.cargo {
            Cargo::Data => {
                let range = self.range(numbers);
                u64::from(range.end - range.start) + (numbers.end - numbers.start) * super::sender::WIRE_OVERHEAD
            }
            _ => 0,
        }
    }
}

/// Runs there is room for from the start: 64 MiB on their way in whole bursts. A longer path allocates while it fills, not after.
const RUNS_ROOM: usize = 1024;

/// All runs that are not resolved.
#[derive(Debug)]
pub(super) struct Flight {
    runs: VecDeque<Run>,
    /// Every number below is resolved.
    covered: u64,
    next: u64,
    /// Wire bytes of data not resolved.
    bytes: u64,
    /// Wire bytes of data that ever left.
    sent: u64,
    /// Data packets not resolved.
    data_packets: u64,
    /// Of these, repairs.
    repair_packets: u64,
    probes: u32,
}

impl Default for Flight {
    fn default() -> Self {
        let runs = VecDeque::with_capacity(RUNS_ROOM);
        Flight { runs, covered: 0, next: 0, bytes: 0, sent: 0, data_packets: 0, repair_packets: 0, probes: 0 }
    }
}

impl Flight {
    /// The first number not resolved.
    pub(super) const fn covered(&self) -> u64 {
        self.covered
    }

    /// The number of the next packet.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) const fn repair_packets(&self) -> u64 {
        self.repair_packets
    }

    /// Does anything wait for an answer?
    pub(super) const fn is_waiting(&self) -> bool {
        self.data_packets > 0 || self.probes > 0
    }

    pub(super) const fn has_data(&self) -> bool {
        self.data_packets > 0
    }

    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Adds a run; its number is given here.
    pub(super) fn push(&mut self, mut run: Run) -> u64 {
        run.first = self.next;
        run.before = self.sent;
        self.next = run.end();
        self.sent += run.wire_bytes(&(run.first..run.end()));
        self.tally(&run, &(run.first..run.end()), true);
        self.runs.push_back(run);
        run.first
    }

    fn tally(&mut self, run: &Run, numbers: &Range<u64>, add: bool) {
        let signed = |have: u64, change: u64| if add { have + change } else { have - change };
        let packets = numbers.end - numbers.start;
        match run.cargo {
            Cargo::Data => {
                self.bytes = signed(self.bytes, run.wire_bytes(numbers));
                self.data_packets = signed(self.data_packets, packets);
                if run.repair {
                    self.repair_packets = signed(self.repair_packets, packets);
                }
            }
            Cargo::Probe => self.probes = if add { self.probes + 1 } else { self.probes - 1 },
            Cargo::Control | Cargo::Void => {}
        }
    }

    /// The newest run: only `from` on never left. What is left of it stays; the rest becomes numbers without packets.
    /// The run as it was, and the numbers that are void now.
    pub(super) fn void_newest(&mut self, from: u64) -> Option<(Run, Range<u64>)> {
        let run = *self.runs.back()?;
        let from = from.max(run.first).max(self.covered);
        if from >= run.end() {
            return None;
        }
        let void = from..run.end();
        self.tally(&run, &void, false);
        self.sent -= run.wire_bytes(&void);
        let range = run.range(&void);
        let packets = (void.end - void.start) as u32;
        let last = self.runs.back_mut().expect("it was there a line above");
        last.packets -= packets;
        last.bytes -= range.end - range.start;
        if last.packets == 0 {
            self.runs.pop_back();
        }
        self.runs.push_back(Run { first: from, packets, cargo: Cargo::Void, bytes: 0, before: self.sent, ..run });
        Some((run, void))
    }

    /// The run that `number` belongs to, if it is not resolved.
    pub(super) fn find(&self, number: u64) -> Option<&Run> {
        let at = self.runs.partition_point(|run| run.end() <= number);
        self.runs.get(at).filter(|run| run.first <= number && number >= self.covered)
    }

    /// The first run with numbers from `number` on, to be changed.
    pub(super) fn find_mut(&mut self, number: u64) -> Option<&mut Run> {
        let at = self.runs.partition_point(|run| run.end() <= number);
        self.runs.get_mut(at)
    }

    /// Resolves the next numbers below `end` that belong to one run: the run, and which of its numbers. `None`: all below `end` are.
    pub(super) fn resolve(&mut self, end: u64) -> Option<(Run, Range<u64>)> {
        if self.covered >= end {
            return None;
        }
        let run = *self.runs.front()?;
        let numbers = self.covered..end.min(run.end());
        self.covered = numbers.end;
        self.tally(&run, &numbers, false);
        if numbers.end == run.end() {
            self.runs.pop_front();
        }
        Some((run, numbers))
    }

    /// Drops runs at the front whose fate matters to nobody.
    pub(super) fn skip_control(&mut self) {
        while let Some(run) = self.runs.front()
            && matches!(run.cargo, Cargo::Control | Cargo::Void)
        {
            self.covered = run.end();
            self.runs.pop_front();
        }
    }
}
