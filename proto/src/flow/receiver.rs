//! The receiving end of a flow.
//!
//! For: which packets are new, where their bytes go, what the sender is told and when.
//! In and out: packets whose seal held in; feedback out.
//! Invariants: a number is taken once; coverage goes up without gaps; what a sender says costs memory only within the grant.
//! Absent on purpose: the rate (the sender's), bytes and keys (engine).

use core::ops::Range;

use super::reassembly::Reassembly;
use super::reordering::Reordering;
use super::window::Window;
use super::{FlowConfig, PACKET_BYTES_MIN, Placed};
use crate::error::Breach;
use crate::packet::{BODY_OVERHEAD, Control, Feedback, RUNS_BYTES_MAX, Runs};

/// Nanoseconds.
const MS: u64 = 1_000_000;
/// Feedback is sent every quarter of the round trip within these bounds, ns: often enough for a rate, rare enough for a narrow return path.
const INTERVAL_NS: (u64, u64) = (5 * MS, 50 * MS);
/// Interrupt moderation: unread packets wait a 32nd of the round trip within these bounds, ns. The least is what a wake-up costs (docs/design/002,
/// *Socket cost*); the most is what a socket buffer of 212,992 bytes (Linux's default) holds at 155 Mbit/s.
const MODERATION_NS: (u64, u64) = (50_000, 4 * MS);
/// Feedback is this many times as frequent while losses are to be reported.
const LOSS_SHARE: u64 = 4;
/// Shortest distance of feedbacks at a start or after a question, ns.
const URGENT_NS: u64 = 250_000;
/// So many first packets, also after silence, are reported at once: the sender measures the path with them.
const QUICK_PACKETS: u32 = 128;
/// Silence after which the first packets are reported at once again, ns.
const SILENCE_NS: u64 = 200 * MS;
/// After so many packets feedback is due whatever the time: at 50 Gbit/s two thousand are half a millisecond.
const PACKETS_MAX: u32 = 2048;
/// After so many bytes, too: memory that the sender lent to its NIC is free again after the acknowledgement.
const BYTES_MAX: u64 = 2 << 20;
/// After so many losses, too: they still fit one feedback.
const GAPS_MAX: u32 = 250;
/// Ranges of coverage that a feedback repeats at most, so that a lost feedback is rarely asked for.
const REPEATS: usize = 16;
/// ... and in how many bytes.
const REPEAT_BYTES: usize = RUNS_BYTES_MAX / 2;
/// The fields before the coverage, at most.
const FIELDS_BYTES: usize = 92;
/// A packet number this far above the newest is a breach: more than four seconds of 45 Gbit/s in 1440-byte packets.
const NUMBER_JUMP_MAX: u64 = 1 << 25;

/// What the receiver counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Packets taken, data and control.
    pub packets: u64,
    /// Wire bytes of data taken.
    pub wire_bytes: u64,
    /// Of these, with a CE mark.
    pub marked_bytes: u64,
    /// Packets that came twice, or so late that nobody can tell.
    pub duplicates: u64,
    /// Unit bytes that came under a new number and were there: what was sent needlessly.
    pub already_bytes: u64,
    /// Packets that came after a higher number.
    pub late: u64,
    /// Of these, after they had been called lost.
    pub late_lost: u64,
    /// Packets without room.
    pub no_room: u64,
    /// Feedbacks made.
    pub feedbacks: u64,
    /// How long a missing packet is waited for.
    pub hold_ns: u64,
    /// Units begun and not done.
    pub units: u32,
}

/// A section of coverage once told: where it began, and how much room its runs took.
type Section = (u64, usize);

/// The receiving end.
#[derive(Debug)]
pub struct FlowReceiver {
    window: Window,
    reordering: Reordering,
    parts: Reassembly,
    /// Times are told from here on.
    start_ns: u64,
    newest_at_ns: u64,
    /// Everything below was told.
    told: u64,
    sections: [Section; REPEATS],
    section_count: usize,
    feedback_number: u64,
    fed_ns: u64,
    interval_ns: u64,
    /// See the method.
    nap_ns: u64,
    /// Packets, wire bytes, gaps since the last feedback.
    fresh: u32,
    fresh_bytes: u64,
    gaps: u32,
    quick: u32,
    asked: bool,
    /// When a gap counts as lost and is worth a feedback; `u64::MAX`: there is none.
    settles_ns: u64,
    granted_told: u32,
    runs_bytes: usize,
    stats: ReceiverStats,
}

impl FlowReceiver {
    /// A flow that begins now. Both ends have the same `config`.
    #[must_use]
    pub fn new(now_ns: u64, config: FlowConfig) -> Self {
        let packet = usize::from(config.packet_bytes.max(PACKET_BYTES_MIN));
        FlowReceiver {
            window: Window::new(now_ns),
            reordering: Reordering::new(now_ns),
            parts: Reassembly::new(config.units_open, config.units_most, config.unit_bytes_max),
            start_ns: now_ns,
            newest_at_ns: now_ns,
            told: 0,
            sections: [(0, 0); REPEATS],
            section_count: 0,
            feedback_number: 0,
            fed_ns: now_ns.saturating_sub(INTERVAL_NS.1),
            interval_ns: INTERVAL_NS.0,
            nap_ns: 0,
            fresh: 0,
            fresh_bytes: 0,
            gaps: 0,
            quick: QUICK_PACKETS,
            asked: false,
            settles_ns: u64::MAX,
            granted_told: config.units_open,
            runs_bytes: (packet - BODY_OVERHEAD - FIELDS_BYTES).min(RUNS_BYTES_MAX),
            stats: ReceiverStats::default(),
        }
    }

    /// The number to expand a packet's low half with.
    #[must_use]
    pub const fn expected(&self) -> u64 {
        self.window.end()
    }

    /// Is a packet with this number worth opening? `false`: it was here before, or is too old to tell; counted.
    pub fn wants(&mut self, number: u64) -> bool {
        let had = self.window.has(number);
        self.stats.duplicates += u64::from(had);
        !had
    }

    /// A data packet whose seal held.
    ///
    /// # Errors
    /// `PacketEmpty`, `NumberAbsurd`, `UnitBeyondGrant`, `UnitTooLong`, `UnitPieces`.
    pub fn on_data(
        &mut self,
        now_ns: u64,
        number: u64,
        unit: u32,
        offset: u32,
        bytes: u32,
        marked: bool,
    ) -> Result<Placed, Breach> {
        if bytes == 0 {
            return Err(Breach::PacketEmpty);
        }
        if !self.may_take(number)? {
            return Ok(Placed::Already);
        }
        let placed = self.parts.put(unit, offset, bytes)?;
        if placed == Placed::NoRoom {
            // Its number counts as lost, so it comes again.
            self.stats.no_room += 1;
            return Ok(placed);
        }
        self.take(now_ns, number);
        let wire = u64::from(bytes) + super::sender::WIRE_OVERHEAD;
        self.stats.wire_bytes += wire;
        self.fresh_bytes += wire;
        if marked {
            self.stats.marked_bytes += wire;
        }
        if placed == Placed::Already {
            self.stats.already_bytes += u64::from(bytes);
        }
        Ok(placed)
    }

    /// A control packet of the sender whose seal held.
    ///
    /// # Errors
    /// `NumberAbsurd`; `CoverageUnsent` for a report of numbers that are not sent yet.
    pub fn on_control(&mut self, now_ns: u64, number: u64, control: &Control) -> Result<(), Breach> {
        if !self.may_take(number)? {
            return Ok(());
        }
        match *control {
            Control::Tell { newest, rtt_us } => {
                if newest > number {
                    return Err(Breach::CoverageUnsent);
                }
                if rtt_us > 0 {
                    let quarter = rtt_us.saturating_mul(1000) / 4;
                    self.nap_ns = (quarter / 8).clamp(MODERATION_NS.0, MODERATION_NS.1);
                    self.interval_ns = quarter.clamp(INTERVAL_NS.0, INTERVAL_NS.1);
                }
                self.asked = true;
            }
            Control::Ask { from } => {
                if from > number {
                    return Err(Breach::CoverageUnsent);
                }
                self.told = self.told.min(from);
                self.section_count = 0;
                self.asked = true;
            }
            Control::Probe { .. } | Control::Close => self.asked = true,
        }
        self.take(now_ns, number);
        Ok(())
    }

    fn may_take(&mut self, number: u64) -> Result<bool, Breach> {
        if number > self.window.end() + NUMBER_JUMP_MAX {
            return Err(Breach::NumberAbsurd);
        }
        Ok(self.wants(number))
    }

    /// The number arrived.
    fn take(&mut self, now_ns: u64, number: u64) {
        let end = self.window.end();
        if number >= end {
            if now_ns > self.newest_at_ns.saturating_add(SILENCE_NS) {
                self.quick = QUICK_PACKETS;
            }
            self.newest_at_ns = now_ns;
            self.reordering.on_newest(now_ns, number + 1);
            if number > end {
                self.gaps += 1;
                self.settles_ns = self.settles_ns.min(now_ns + self.reordering.hold_ns());
            }
        } else {
            self.reordering.on_late(now_ns, number, end);
            self.stats.late += 1;
            self.stats.late_lost += u64::from(number < self.told);
        }
        self.window.set(now_ns, number, self.told);
        self.stats.packets += 1;
        self.fresh += 1;
        self.quick = self.quick.saturating_sub(1);
    }

    /// The unit's header came: it is so long.
    ///
    /// # Errors
    /// `UnitLength`, `UnitTooLong`, `UnitBeyondGrant`.
    pub fn set_len(&mut self, unit: u32, bytes: u32) -> Result<(), Breach> {
        self.parts.set_len(unit, bytes)
    }

    /// What of the unit has not come; up to its highest byte that has, if its length is not known.
    pub fn missing(&self, unit: u32) -> impl Iterator<Item = Range<u32>> + '_ {
        self.parts.missing(unit)
    }

    /// Are these bytes of an open unit there?
    #[must_use]
    pub fn has(&self, unit: u32, range: Range<u32>) -> bool {
        self.parts.has(unit, range)
    }

    /// Is all of an open unit there? Not before its length is known.
    #[must_use]
    pub fn is_whole(&self, unit: u32) -> bool {
        self.parts.is_whole(unit)
    }

    /// The unit landed or was thrown away; another may come for it.
    pub fn done(&mut self, unit: u32) {
        self.parts.done(unit);
    }

    /// How many units may be open. Fewer than before take nothing back, but bytes of units not begun find no room then.
    pub fn grant(&mut self, units: u32) {
        self.parts.grant(units);
    }

    fn is_grant_news(&self) -> bool {
        let more = self.parts.granted() - self.granted_told;
        more > self.parts.units() / 8
    }

    /// When [`FlowReceiver::feedback`] has something to say next; `u64::MAX`: only a packet helps.
    #[must_use]
    pub fn next_at(&self) -> u64 {
        let news = self.fresh > 0 || self.asked || self.is_grant_news();
        if !news && self.settles_ns == u64::MAX {
            return u64::MAX;
        }
        if self.fresh >= PACKETS_MAX || self.fresh_bytes >= BYTES_MAX || self.gaps >= GAPS_MAX {
            return self.fed_ns;
        }
        if self.quick > 0 && self.fresh > 0 {
            // Each burst of a train by itself: how far apart they came is the path's rate.
            return self.fed_ns;
        }
        let urgent = self.asked;
        let sooner = self.fed_ns + self.interval_ns / LOSS_SHARE;
        let by_news = match (news, urgent) {
            (_, true) => self.fed_ns + URGENT_NS,
            (true, false) if self.is_grant_news() => sooner,
            (true, false) => self.fed_ns + self.interval_ns,
            (false, false) => u64::MAX,
        };
        let by_losses = if self.settles_ns == u64::MAX { u64::MAX } else { sooner.max(self.settles_ns) };
        by_news.min(by_losses)
    }

    /// So long packets may stay unread where they came: what a burst of this path takes twice, and nothing while each packet is a measurement
    /// or its sender waits. Arrivals have stamps, and a feedback says how long it was held, so nothing is measured wrongly meanwhile.
    #[must_use]
    pub const fn nap_ns(&self) -> u64 {
        if self.quick > 0 || self.asked { 0 } else { self.nap_ns }
    }

    /// What to tell the sender, with its packet number, if it is due.
    pub fn feedback(&mut self, now_ns: u64) -> Option<(u64, Feedback)> {
        if now_ns < self.next_at() {
            return None;
        }
        let settled = self.reordering.settled(now_ns, self.window.end());
        let cut = self.told < self.window.low();
        self.told = self.told.max(self.window.low());
        let mut from = self.repeat_from();
        let mut runs = self.runs(from, settled);
        if from + runs.total() <= self.told && self.told < settled {
            // The repeated sections left no room for anything new.
            from = self.told;
            runs = self.runs(from, settled);
        }
        let to = from + runs.total();
        self.remember(from, to);
        let end = self.window.end();
        self.settles_ns = match to {
            to if to < settled => now_ns,
            to if to < end => self.reordering.settles_ns(now_ns, to),
            _ => u64::MAX,
        };
        let number = self.feedback_number;
        self.feedback_number += 1;
        self.stats.feedbacks += 1;
        self.fed_ns = now_ns;
        (self.fresh, self.fresh_bytes) = (0, 0);
        self.gaps = 0;
        self.asked = false;
        self.granted_told = self.parts.granted();
        let feedback = Feedback {
            number,
            from,
            seen: end,
            newest_at_ns: self.newest_at_ns - self.start_ns.min(self.newest_at_ns),
            hold_ns: now_ns.saturating_sub(self.newest_at_ns),
            delivered_bytes: self.stats.wire_bytes,
            delivered_packets: self.stats.packets,
            marked_bytes: self.stats.marked_bytes,
            duplicates: self.stats.duplicates,
            granted: self.granted_told,
            cut,
            runs,
        };
        Some((number, feedback))
    }

    /// Where coverage begins that repeats what may have been lost on its way.
    fn repeat_from(&self) -> u64 {
        let mut from = self.told;
        let mut bytes = 0;
        for &(began, took) in &self.sections[..self.section_count] {
            bytes += took;
            if bytes > REPEAT_BYTES || began < self.window.low() {
                break;
            }
            from = began;
        }
        from
    }

    /// Coverage of `from..to` was told; the part of it that is new becomes a section.
    fn remember(&mut self, from: u64, to: u64) {
        if to <= self.told {
            return;
        }
        let mut at = self.told.max(from);
        let began = at;
        let mut took = 0;
        while at < to {
            let (count, _) = self.window.run(at, to);
            // A length below 128 takes one byte, one below 16384 two, a longer one hardly ever more than three.
            took += 1 + usize::from(count > 127) + usize::from(count > 16_383);
            at += count;
        }
        self.sections.rotate_right(1);
        self.sections[0] = (began, took);
        self.section_count = (self.section_count + 1).min(REPEATS);
        self.told = to;
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        ReceiverStats { hold_ns: self.reordering.hold_ns(), units: self.parts.open(), ..self.stats }
    }

    /// Coverage from `from` on: everything settled, and beyond that what arrived without a gap.
    fn runs(&self, from: u64, settled: u64) -> Runs {
        let mut runs = Runs::new();
        let (mut at, end) = (from, self.window.end());
        while at < end {
            let (mut count, received) = self.window.run(at, end);
            if !received {
                count = count.min(settled.saturating_sub(at));
            }
            if count == 0 || !runs.push(count, received, self.runs_bytes) {
                break;
            }
            at += count;
        }
        runs
    }
}
