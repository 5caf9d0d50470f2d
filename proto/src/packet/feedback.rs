//! What the receiver says: coverage, and what the rate is made from.
//!
//! For: the body of a packet of kind 'F'.
//! In and out: [`Feedback`] ↔ bytes.
//! Invariants: one encoding per value; coverage never reaches beyond the newest number; a body cut to fit is a shorter true one.
//! Absent on purpose: when it is said and what follows from it (`crate::flow`).

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use super::varint::{VARINT_BYTES_MAX, put, put_at, take};
use crate::error::Breach;

/// Coverage takes at most so many bytes: with the fields before it and 24 bytes of head and tag it fits the 1200 bytes of UDP
/// payload that every path takes (RFC 9000, section 14).
pub const RUNS_BYTES_MAX: usize = 1064;
/// Numbers stay below this: no arithmetic on them overflows, and no sender gets there (10^9 a second for 100 years).
const NUMBER_MAX: u64 = 1 << 62;

/// Coverage of one contiguous range of numbers, as lengths of runs that take turns: received, lost, received, …
/// Only the first may be 0.
#[derive(Clone, Copy)]
pub struct Runs {
    bytes: [u8; RUNS_BYTES_MAX],
    len: u16,
    total: u64,
    /// The run begun and not written yet, and what it is.
    open: u64,
    open_received: bool,
}

impl Runs {
    /// Covers nothing.
    #[must_use]
    pub const fn new() -> Self {
        Runs { bytes: [0; RUNS_BYTES_MAX], len: 0, total: 0, open: 0, open_received: true }
    }

    /// Numbers covered.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The next `count` numbers were (or were not) received. `false`: no room left within `bytes_max`, nothing was added.
    pub fn push(&mut self, count: u64, received: bool, bytes_max: usize) -> bool {
        if count == 0 {
            return true;
        }
        if received != self.open_received {
            // The run that is open must fit beside the one that begins now.
            let room = bytes_max.min(RUNS_BYTES_MAX);
            if usize::from(self.len) + 2 * VARINT_BYTES_MAX > room {
                return false;
            }
            self.write_open();
            self.open_received = received;
        }
        self.open += count;
        self.total += count;
        true
    }

    fn write_open(&mut self) {
        let mut bytes = [0; VARINT_BYTES_MAX];
        let len = put_at(&mut bytes, self.open);
        let at = usize::from(self.len);
        self.bytes[at..at + len].copy_from_slice(&bytes[..len]);
        self.len += len as u16;
        self.open = 0;
    }

    /// The runs as ranges counted from `from`, each with whether it was received.
    pub fn iter(&self, from: u64) -> impl Iterator<Item = (Range<u64>, bool)> + '_ {
        let mut rest = &self.bytes[..usize::from(self.len)];
        let mut at = from;
        let mut received = true;
        let mut open = (self.open > 0).then_some((self.open, self.open_received));
        core::iter::from_fn(move || {
            loop {
                let (count, this) = match take(&mut rest) {
                    Ok(count) => (count, received),
                    Err(_) => open.take()?,
                };
                received = !this;
                if count > 0 {
                    let run = at..at + count;
                    at = run.end;
                    return Some((run, this));
                }
            }
        })
    }
}

impl Default for Runs {
    fn default() -> Self {
        Runs::new()
    }
}

impl PartialEq for Runs {
    fn eq(&self, other: &Self) -> bool {
        self.iter(0).eq(other.iter(0))
    }
}

impl Eq for Runs {}

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter(0)).finish()
    }
}

/// A word of the receiver: *of the numbers from `from` up to [`Feedback::to`] I have exactly these; all else in it is lost.*
///
/// ```text
/// | number | from | seen - from | newest at, ns | hold ns | bytes | packets | marked bytes | duplicates | granted | cut | runs ...
/// ```
/// All varints; `cut` is 0 or 1; runs fill the rest of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feedback {
    /// Its own number, as in its head.
    pub number: u64,
    /// The first number covered.
    pub from: u64,
    /// The newest number that arrived, plus one; 0 before the first.
    pub seen: u64,
    /// When the newest number arrived, in ns of the receiver's clock.
    pub newest_at_ns: u64,
    /// How long this feedback was held back since then, in ns.
    pub hold_ns: u64,
    /// Wire bytes of data that arrived, since the beginning.
    pub delivered_bytes: u64,
    /// Packets that arrived, since the beginning.
    pub delivered_packets: u64,
    /// Of `delivered_bytes`, those with a CE mark (RFC 3168).
    pub marked_bytes: u64,
    /// Packets that came twice or too late to be told from such.
    pub duplicates: u64,
    /// Units below this number may be sent.
    pub granted: u32,
    /// What lies before `from` and was never covered is not known any more: it counts as lost.
    pub cut: bool,
    /// The coverage.
    pub runs: Runs,
}

impl Feedback {
    /// The number after the last one covered.
    #[must_use]
    pub const fn to(&self) -> u64 {
        self.from + self.runs.total()
    }

    /// What was received and what was lost, in order.
    pub fn coverage(&self) -> impl Iterator<Item = (Range<u64>, bool)> + '_ {
        self.runs.iter(self.from)
    }

    /// Appends the body, at most `max_bytes` long; coverage that does not fit is left off at its end.
    /// The fields before the coverage need up to 92 bytes.
    pub fn encode(&self, out: &mut Vec<u8>, max_bytes: usize) {
        let start = out.len();
        let fields = [
            self.number,
            self.from,
            self.seen - self.from,
            self.newest_at_ns,
            self.hold_ns,
            self.delivered_bytes,
            self.delivered_packets,
            self.marked_bytes,
            self.duplicates,
            u64::from(self.granted),
            u64::from(self.cut),
        ];
        for field in fields {
            put(out, field);
        }
        let mut expect_received = true;
        for (run, received) in self.coverage() {
            let mark = out.len();
            if received != expect_received {
                // Only the first run can be empty.
                put(out, 0);
            }
            put(out, run.end - run.start);
            if out.len() - start > max_bytes {
                out.truncate(mark);
                return;
            }
            expect_received = !received;
        }
    }

    /// Reads a body.
    ///
    /// # Errors
    /// `PacketBody` for a cut or overlong body or one that covers more than it has seen; `FieldOutOfRange` for absurd numbers.
    pub fn decode(mut body: &[u8]) -> Result<Feedback, Breach> {
        let rest = &mut body;
        let mut feedback = Feedback {
            number: take(rest)?,
            from: take(rest)?,
            seen: take(rest)?,
            newest_at_ns: take(rest)?,
            hold_ns: take(rest)?,
            delivered_bytes: take(rest)?,
            delivered_packets: take(rest)?,
            marked_bytes: take(rest)?,
            duplicates: take(rest)?,
            granted: u32::try_from(take(rest)?).map_err(|_| Breach::FieldOutOfRange)?,
            cut: match take(rest)? {
                0 => false,
                1 => true,
                _ => return Err(Breach::FieldOutOfRange),
            },
            runs: Runs::new(),
        };
        let beyond = feedback.seen;
        if feedback.from > NUMBER_MAX || beyond > NUMBER_MAX || feedback.number > NUMBER_MAX {
            return Err(Breach::FieldOutOfRange);
        }
        feedback.seen += feedback.from;
        let mut received = true;
        let mut first = true;
        while !rest.is_empty() {
            let count = take(rest)?;
            // Only the first run may be 0, and only before another.
            let none = count == 0 && (!first || rest.is_empty());
            if none || count > beyond - feedback.runs.total() {
                return Err(Breach::PacketBody);
            }
            if !feedback.runs.push(count, received, RUNS_BYTES_MAX) {
                return Err(Breach::FieldTooLong);
            }
            received = !received;
            first = false;
        }
        Ok(feedback)
    }
}
