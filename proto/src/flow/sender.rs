//! The sending end of a flow.
//!
//! For: what goes into the next packets, and when; what became of each unit.
//! In and out: units, feedback and refusals in; steps and facts out.
//! Invariants: repairs go before new bytes, the oldest unit's first; data goes again only where coverage says it was lost, but for
//! copies at the very end, which have a budget; a number once given is never given again.
//! Absent on purpose: how fast (`crate::rate`), what feedback means (`cover`), bytes and sockets (engine).

use alloc::collections::VecDeque;
use core::ops::Range;

use super::flight::{Cargo, Flight, Run};
use super::mtu::Search;
use super::queue_estimate::QueueEstimate;
use super::reassembly::SPAN;
use super::stats::FlowStats;
use super::timers::Timers;
use super::units::{Home, Units};
use super::{Burst, Fact, FlowConfig, PACKET_BYTES_MIN, Step};
use crate::packet::{PACKET_OVERHEAD, WIRE_EXTRA};
use crate::rate::{Controller, RateConfig, TrainSeen};

/// Bytes of a data packet on the wire beside its bytes of the unit.
pub(super) const WIRE_OVERHEAD: u64 = (PACKET_OVERHEAD + WIRE_EXTRA) as u64;
/// A late loop iteration may send this much time's worth of the rate at once, ns; more would be a burst that shallow buffers drop.
const LATE_CREDIT_NS: u64 = 2_000_000;
/// What it missed beyond that is caught up at twice the rate at most, up to half a round trip within these bounds, ns: the queue on the path has
/// drained by as much as was missed.
const CATCH_UP_NS: (u64, u64) = (10_000_000, 100_000_000);
/// Units that are read back from the source at once, at most: more only fills memory.
const RELOADS_MAX: u32 = 16;
/// Units of which nothing has arrived that are passed over for one of which something has, at most.
const REPAIRS_LOOKED_AT: u32 = 16;
/// Divisor: one byte in so many of a job may be sent twice at its end, below 1 %.
const COPY_SHARE: u64 = 110;
/// Copies of one range at the end, at most.
const COPIES_MAX: u8 = 8;

/// What was stepped last: what `refused` and `too_big` speak of.
#[derive(Debug, Clone, Copy)]
pub(super) enum Last {
    Other,
    Probe {
        number: u64,
        bytes: u16,
    },
    /// A copy of the packets from this number on.
    Copy {
        number: u64,
    },
}

/// What is known of the newest packet that arrived.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) feedback: Option<u64>,
    pub(super) granted: u32,
    /// Newest number that arrived plus one.
    pub(super) seen: u64,
    pub(super) newest_at_ns: u64,
    pub(super) sent_ns: u64,
    pub(super) delivered: u64,
    pub(super) marked: u64,
    /// Lost and not yet told to the controller, wire bytes.
    pub(super) lost: u64,
}

/// The sending end.
#[derive(Debug)]
pub struct FlowSender {
    pub(super) config: FlowConfig,
    pub(super) flight: Flight,
    pub(super) units: Units,
    pub(super) controller: Controller,
    pub(super) search: Search,
    pub(super) queue_estimate: QueueEstimate,
    pub(super) timers: Timers,
    pub(super) facts: VecDeque<Fact>,
    pub(super) stats: FlowStats,
    pub(super) seen: Seen,
    pub(super) granted: u32,
    pub(super) ended: bool,
    pub(super) closing: bool,
    reloads: u32,
    /// The next burst leaves then.
    pub(super) next_send_ns: u64,
    train_left: u32,
    /// Time that the loop came late by, to be caught up.
    owed_ns: u64,
    /// What the newest burst was paid with.
    charged_ns: u64,
    /// By then a train is paid for at the user's bound: another rate of the controller brings that no nearer.
    train_paid_ns: u64,
    /// There was nothing to send: no credit for the time until there is.
    dry: bool,
    /// The window that the controller steers by was full: what passed until it opened is the controller's own doing, and neither owed nor a limit of ours.
    full: bool,
    /// Numbers below this were followed by a time in which nothing could be sent.
    pub(super) limited_below: u64,
    /// Runs below this number were looked at for copies.
    copy_at: u64,
    /// New bytes ended before this number. What was repaired before then is known to be lost (if it is) and repaired again before
    /// the last losses are known, so it needs no copies.
    tail_at: Option<u64>,
    /// Packets lost and resolved lately, halved now and then.
    pub(super) lately: (u64, u64),
    pub(super) last: Last,
}

/// Where the next bytes come from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pick {
    Repair(u32),
    Fresh(u32),
    Copy { number: u64 },
}

impl FlowSender {
    /// A flow that begins now. Both ends have the same `config`.
    #[must_use]
    pub fn new(now_ns: u64, mut config: FlowConfig) -> Self {
        config.packet_bytes = config.packet_bytes.max(PACKET_BYTES_MIN);
        config.rate.packet_bytes = u32::from(config.packet_bytes) + WIRE_EXTRA as u32;
        FlowSender {
            flight: Flight::default(),
            units: Units::new(),
            controller: Controller::new(now_ns, config.rate),
            search: Search::new(config.packet_bytes, config.packet_bytes_max.min(65_507)),
            queue_estimate: QueueEstimate::new(),
            timers: Timers::new(now_ns),
            facts: VecDeque::new(),
            stats: FlowStats::default(),
            seen: Seen::default(),
            granted: config.units_open,
            ended: false,
            closing: false,
            reloads: 0,
            next_send_ns: now_ns,
            train_left: 0,
            owed_ns: 0,
            charged_ns: 0,
            train_paid_ns: 0,
            dry: true,
            full: false,
            limited_below: 0,
            copy_at: 0,
            tail_at: None,
            lately: (0, 0),
            last: Last::Other,
            config,
        }
    }

    /// Before the first step: what a train that left before the flow showed of the path.
    pub fn start_from(&mut self, seen: TrainSeen) {
        self.controller.start_from(seen);
    }

    /// Before the first step: bytes of the whole job that this flow carries, or a part of; 0: not known.
    pub fn set_job(&mut self, bytes: u64) {
        let payload = u64::from(self.config.packet_bytes).max(1);
        self.controller.set_job(bytes / payload * self.wire_packet() + u64::from(bytes > 0));
    }

    /// How many units may be added now.
    #[must_use]
    pub fn room(&self) -> usize {
        let granted = self.granted.saturating_sub(self.units.next());
        let most = self.config.units_most.max(self.config.units_open);
        let open = most.saturating_sub(self.units.open());
        // A receiver that leaves one unit open for ever cannot make the table of units grow.
        let span = most.saturating_mul(SPAN).saturating_sub(self.units.span());
        granted.min(open).min(span) as usize
    }

    /// Adds a unit; its number.
    ///
    /// # Panics
    /// Without room, or for a unit that is empty or longer than agreed: a bug of the caller.
    pub fn add(&mut self, unit_bytes: u32) -> u32 {
        assert!(self.room() > 0, "units are added only where there is room");
        assert!((1..=self.config.unit_bytes_max).contains(&unit_bytes), "a unit has a length within what was agreed");
        self.ended = false;
        self.tail_at = None;
        self.units.add(unit_bytes)
    }

    /// A unit is whole whose bytes were (`asked`) being read back.
    pub(super) fn reload_over(&mut self, asked: bool) {
        self.reloads -= u32::from(asked);
    }

    /// Nothing of this unit is known to have arrived: the receiver may have no room for it.
    pub fn is_unarrived(&mut self, unit: u32) -> bool {
        self.units.is_unarrived(unit)
    }

    /// The caller lets go of the bytes of a unit that was not sent whole: they will be asked for by `Step::Reload`. False, and nothing changes: an older
    /// unit has to be sent first.
    pub fn unload_unsent(&mut self, unit: u32) -> bool {
        let fits = self.units.forget_fresh(unit);
        if fits {
            self.unloaded(unit);
        }
        fits
    }

    /// The caller let go of the unit's bytes; should they be needed again, `Step::Reload` says so.
    pub fn unloaded(&mut self, unit: u32) {
        if let Some(unit) = self.units.get(unit) {
            if unit.home == Home::Asked {
                self.reloads -= 1;
            }
            unit.home = Home::Away;
            unit.owes_sent = false;
        }
    }

    /// The unit's bytes are there again. `Fact::Sent` follows when nothing of it waits any more.
    pub fn reloaded(&mut self, unit: u32) {
        if let Some(unit) = self.units.get(unit) {
            if unit.home == Home::Asked {
                self.reloads -= 1;
            }
            unit.home = Home::Here;
            unit.owes_sent = true;
        }
        if self.units.take_sent(unit) {
            // What was lost has been confirmed meanwhile: a late packet.
            self.facts.push_back(Fact::Sent { unit });
        }
    }

    /// No more units will come: the rules of the tail hold.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// More units will come after all: without room for them the receiver is asked for more.
    pub fn go_on(&mut self) {
        self.ended = false;
    }

    /// One `Control::Close` goes out: the rail ends.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// The clock that all hosts share (UTC) is ahead of this flow's by so many nanoseconds.
    pub fn set_clock(&mut self, ahead_ns: u64) {
        self.controller.set_clock(ahead_ns);
    }

    /// Another wish of the user.
    pub fn set_rate(&mut self, now_ns: u64, rate: RateConfig) {
        if self.config.rate.target != rate.target {
            self.train_paid_ns = 0;
        }
        self.config.rate = RateConfig { packet_bytes: self.config.rate.packet_bytes, ..rate };
        self.repace(now_ns, |controller, config| controller.set(now_ns, config));
    }

    /// The controller's rate may change within `change`: what is left of the wait changes with it.
    pub(super) fn repace(&mut self, now_ns: u64, change: impl FnOnce(&mut Controller, RateConfig)) {
        let before = self.controller.rate().max(1);
        change(&mut self.controller, self.config.rate);
        let after = self.controller.rate().max(1);
        // What a train is paid with has nothing to do with the rate, and must not grow as the rate falls.
        if self.next_send_ns > now_ns && self.next_send_ns != self.train_paid_ns && before != after {
            let left = u128::from(self.next_send_ns - now_ns) * u128::from(before) / u128::from(after);
            let at = now_ns.saturating_add(u64::try_from(left).unwrap_or(u64::MAX));
            self.next_send_ns = at.max(self.train_paid_ns);
        }
    }

    /// What to do now. `burst_bytes_max`: UDP payload that one burst may have in all its packets.
    pub fn step(&mut self, now_ns: u64, burst_bytes_max: u32) -> Step {
        self.last = Last::Other;
        if self.flight.is_waiting()
            && let Some(since_ns) = self.timers.take_quiet(now_ns, self.packet_ns())
        {
            self.facts.push_back(Fact::Quiet { since_ns });
            self.stats.quiets = self.timers.quiets();
            self.repace(now_ns, |controller, _| controller.on_quiet(now_ns));
        }
        if let Some(body) = self.next_control(now_ns) {
            return self.send_control(now_ns, body);
        }
        if let Some(unit) = self.next_reload() {
            return Step::Reload { unit };
        }
        let pick = if self.timers.is_quiet() { None } else { self.pick() };
        let Some(pick) = pick else {
            self.dry = true;
            self.limited_below = self.flight.next();
            return self.wait(now_ns, u64::MAX);
        };
        if self.train_left == 0 {
            self.train_left = self.controller.train(now_ns).unwrap_or(0);
        }
        if self.train_left == 0 {
            if now_ns < self.next_send_ns {
                return self.wait(now_ns, self.next_send_ns);
            }
            if self.flight.bytes() + self.wire_packet() > self.controller.window() {
                self.full = self.controller.steers_by_window();
                return self.wait(now_ns, u64::MAX);
            }
        }
        self.send_burst(now_ns, pick, burst_bytes_max)
    }

    pub(super) fn wire_packet(&self) -> u64 {
        u64::from(self.search.bytes()) + WIRE_EXTRA as u64
    }

    /// How long a packet takes at the rate in force.
    pub(super) fn packet_ns(&self) -> u64 {
        nanos(self.wire_packet(), self.controller.rate())
    }

    /// The oldest unit whose lost bytes are not in memory and were not asked for.
    fn next_reload(&mut self) -> Option<u32> {
        let mut after = None;
        while self.reloads < RELOADS_MAX {
            let number = self.units.oldest_repair(after)?;
            let unit = self.units.get(number).filter(|unit| unit.home == Home::Away);
            if let Some(unit) = unit {
                unit.home = Home::Asked;
                self.reloads += 1;
                return Some(number);
            }
            after = Some(number);
        }
        None
    }

    /// Repairs first, the oldest unit's first of those that the receiver has begun; then new bytes; then copies.
    pub(super) fn pick(&mut self) -> Option<Pick> {
        let (mut after, mut unarrived, mut looked) = (None, None, 0);
        while let Some(number) = self.units.oldest_repair(after) {
            if let Some(unit) = self.units.get(number).filter(|unit| unit.home == Home::Here) {
                // A receiver out of bufs takes nothing of a unit that it has not begun, and gets none back but by those that it has.
                if !unit.confirmed.is_empty() {
                    return Some(Pick::Repair(number));
                }
                unarrived = unarrived.or(Some(number));
                looked += 1;
                if looked == REPAIRS_LOOKED_AT {
                    break;
                }
            }
            after = Some(number);
        }
        if let Some(number) = unarrived {
            return Some(Pick::Repair(number));
        }
        if let Some(number) = self.units.oldest_fresh() {
            return Some(Pick::Fresh(number));
        }
        if self.ended && self.units.repairing() == 0 { self.pick_copy() } else { None }
    }

    /// The next repair on its way that is worth another copy: so many that all of them arrive together with probability 0.98.
    fn pick_copy(&mut self) -> Option<Pick> {
        let tail_at = *self.tail_at.get_or_insert(self.flight.next());
        let left = self.copies_left();
        let packets = self.flight.repair_packets();
        if packets == 0 || left == 0 {
            return None;
        }
        let copies = copies_for(self.loss_ppm(), packets);
        self.copy_at = self.copy_at.max(self.flight.covered()).max(tail_at);
        while let Some(run) = self.flight.find_mut(self.copy_at) {
            let run = *run;
            let numbers = self.copy_at.max(run.first)..run.end();
            let fit = run.cargo == Cargo::Data
                && run.repair
                && run.superseded_below < run.end()
                && run.copies < copies
                && left >= u64::from(run.payload);
            if fit {
                let home = self.units.get(run.unit).map(|unit| unit.home);
                if home == Some(Home::Here) && !self.units.is_confirmed(run.unit, run.range(&numbers)) {
                    return Some(Pick::Copy { number: numbers.start });
                }
            }
            self.copy_at = run.end();
        }
        None
    }

    /// Bytes that may still be copied.
    fn copies_left(&self) -> u64 {
        (self.stats.fresh_bytes / COPY_SHARE).saturating_sub(self.stats.copy_bytes)
    }

    /// Recent loss; a round number before there is any experience.
    pub(super) fn loss_ppm(&self) -> u32 {
        let (lost, of) = self.lately;
        (lost * 1_000_000 / of.max(1)).min(1_000_000) as u32
    }

    fn send_burst(&mut self, now_ns: u64, pick: Pick, burst_bytes_max: u32) -> Step {
        let most = u64::from(burst_bytes_max).max(u64::from(PACKET_BYTES_MIN));
        let packet = u64::from(self.search.bytes()).min(most);
        let payload = (packet as usize - PACKET_OVERHEAD) as u16;
        let mut packets = (most / packet).max(1);
        if self.train_left > 0 {
            packets = packets.min(u64::from(self.train_left));
        } else {
            let wire = packet + WIRE_EXTRA as u64;
            let window = self.controller.window().saturating_sub(self.flight.bytes());
            let burst = self.queue_estimate.burst(&self.controller, wire).min(window);
            packets = packets.min((burst / wire).max(1));
        }
        let max = u32::try_from(packets * u64::from(payload)).unwrap_or(u32::MAX);
        let mut run = Run {
            first: 0,
            sent_ns: now_ns,
            packets: 0,
            unit: 0,
            offset: 0,
            bytes: 0,
            payload,
            cargo: Cargo::Data,
            repair: false,
            superseded_below: 0,
            copies: 0,
            before: 0,
        };
        let range = self.take(pick, max, &mut run);
        run.offset = range.start;
        run.bytes = range.end - range.start;
        run.packets = run.bytes.div_ceil(u32::from(payload));
        let waiting = self.flight.is_waiting();
        let first = self.flight.push(run);
        self.timers.on_sent(now_ns, true, waiting);
        self.stats.packets += u64::from(run.packets);
        self.stats.bursts += 1;
        self.charge(now_ns, u64::from(run.bytes) + u64::from(run.packets) * WIRE_OVERHEAD, run.packets);
        if self.units.take_sent(run.unit) {
            self.facts.push_back(Fact::Sent { unit: run.unit });
        }
        Step::Burst(Burst { first, unit: run.unit, offset: run.offset, bytes: run.bytes, payload })
    }

    /// Takes the bytes of a pick, at most `max`.
    fn take(&mut self, pick: Pick, max: u32, run: &mut Run) -> Range<u32> {
        match pick {
            Pick::Fresh(unit) => {
                run.unit = unit;
                let (range, _) = self.units.take_fresh(max);
                self.stats.fresh_bytes += u64::from(range.end - range.start);
                range
            }
            Pick::Repair(unit) => {
                run.unit = unit;
                run.repair = true;
                let range = self.units.take_lost(unit, max).expect("picked since it has lost bytes");
                self.stats.repair_bytes += u64::from(range.end - range.start);
                range
            }
            Pick::Copy { number } => {
                let left = self.copies_left();
                let old = self.flight.find_mut(number).expect("picked from the flight");
                let packets = (u64::from(max).min(left) / u64::from(old.payload.max(1))).max(1);
                let numbers = number..old.end().min(number + packets);
                old.superseded_below = numbers.end;
                self.last = Last::Copy { number };
                run.unit = old.unit;
                run.repair = true;
                run.copies = old.copies + 1;
                self.copy_at = numbers.end;
                let range = old.range(&numbers);
                self.stats.copy_bytes += u64::from(range.end - range.start);
                range
            }
        }
    }

    /// Moves the time of the next burst on.
    fn charge(&mut self, now_ns: u64, wire_bytes: u64, packets: u32) {
        let mut takes = nanos(wire_bytes, self.controller.rate());
        if self.train_left > 0 {
            self.train_left = self.train_left.saturating_sub(packets);
            self.dry = false;
            // The controller asked for these beside its rate: only the last packet is paid for. Beside the user's bound nothing is.
            self.charged_ns = match self.config.rate.target {
                0 => takes / u64::from(packets.max(1)),
                target => nanos(wire_bytes, target),
            };
            let from = if self.config.rate.target == 0 { now_ns } else { self.next_send_ns.max(now_ns) };
            self.next_send_ns = from.saturating_add(self.charged_ns);
            if self.config.rate.target > 0 {
                self.train_paid_ns = self.next_send_ns;
            }
            return;
        }
        let earliest = if self.dry { now_ns } else { now_ns.saturating_sub(LATE_CREDIT_NS) };
        let full = core::mem::take(&mut self.full);
        if self.next_send_ns < earliest {
            self.owed_ns += if full { 0 } else { earliest - self.next_send_ns };
            self.next_send_ns = earliest;
        }
        if self.dry {
            self.owed_ns = 0;
        }
        let most = (self.timers.rtt_ns() / 2).clamp(CATCH_UP_NS.0, CATCH_UP_NS.1);
        if self.owed_ns > most {
            // The loop came so late that it could not send what the rate allowed.
            self.limited_below = self.flight.next();
            self.owed_ns = most;
        }
        let caught_up = self.owed_ns.min(takes / 2);
        self.owed_ns -= caught_up;
        takes -= caught_up;
        self.dry = false;
        self.charged_ns = takes;
        self.next_send_ns = self.next_send_ns.saturating_add(takes);
    }

    /// Nothing may leave now by a bound that is not this flow's alone: what is seen until the next burst says nothing of the path, and the time
    /// is not caught up.
    pub fn hold_back(&mut self) {
        self.dry = true;
        self.limited_below = self.flight.next();
    }

    /// The socket took only the first `sent_packets` of the newest burst: the rest waits again, under new numbers.
    /// Say it before the facts of that step are asked for.
    pub fn refused(&mut self, now_ns: u64, burst: &Burst, sent_packets: u32) {
        let from = burst.first + u64::from(sent_packets);
        let Some((run, void)) = self.flight.void_newest(from) else { return };
        let range = run.range(&void);
        let bytes = u64::from(range.end - range.start);
        self.stats.packets -= void.end - void.start;
        if run.copies > 0 {
            self.stats.copy_bytes -= bytes;
        } else if run.repair {
            self.stats.repair_bytes -= bytes;
        } else {
            self.stats.fresh_bytes -= bytes;
        }
        // Not sent after all, if that was about to be said.
        if self.facts.back() == Some(&Fact::Sent { unit: run.unit }) {
            self.facts.pop_back();
        }
        match self.last {
            // The packets that it would have been a copy of answer for themselves again.
            Last::Copy { number } => {
                let from = number + u64::from(sent_packets);
                if let Some(old) = self.flight.find_mut(from) {
                    old.superseded_below = from;
                    self.copy_at = from;
                }
            }
            _ => self.units.give_back(run.unit, range, run.repair),
        }
        // What was paid for them, no more: it may have been less than the rate's price.
        let back = self.charged_ns / u64::from(burst.packets().max(1)) * (void.end - void.start);
        self.charged_ns = self.charged_ns.saturating_sub(back);
        self.next_send_ns = self.next_send_ns.saturating_sub(back).max(now_ns.saturating_sub(LATE_CREDIT_NS));
        self.train_paid_ns = self.train_paid_ns.min(self.next_send_ns);
        self.limited_below = self.flight.next();
    }

    /// The system says that the packets of the last step are too long for the path. For a burst, `refused` is said first.
    pub fn too_big(&mut self, now_ns: u64) {
        match self.last {
            Last::Probe { number, bytes } => {
                if self.flight.void_newest(number).is_some() {
                    self.search.on_probe_too_big(bytes);
                }
            }
            Last::Other | Last::Copy { .. } => {
                self.search.on_data_too_big(now_ns);
                self.resize(now_ns);
            }
        }
        self.last = Last::Other;
    }

    /// The packet size may have changed: the controller counts in packets.
    pub(super) fn resize(&mut self, now_ns: u64) {
        let packet_bytes = u32::from(self.search.bytes()) + WIRE_EXTRA as u32;
        if packet_bytes != self.config.rate.packet_bytes {
            self.config.rate.packet_bytes = packet_bytes;
            self.repace(now_ns, |controller, config| controller.set(now_ns, config));
        }
    }

    /// What became of units and of the path, in order.
    pub fn next_fact(&mut self) -> Option<Fact> {
        self.facts.pop_front()
    }

    /// The number to expand a feedback's low half with.
    #[must_use]
    pub fn expected_feedback(&self) -> u64 {
        self.seen.feedback.map_or(0, |number| number + 1)
    }

    /// Units of it are neither whole nor on their way: for the caller's watch over its end.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.units.open() == 0
    }

    /// The controller, for what it tells people.
    #[must_use]
    pub const fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> FlowStats {
        FlowStats {
            quiets: self.timers.quiets(),
            holes: self.search.holes(),
            packet_bytes: self.search.bytes(),
            rtt_ns: self.timers.rtt_ns(),
            rate: self.controller.rate(),
            in_flight: self.in_flight(),
            runs: self.flight.runs(),
            units: self.units.open(),
            loss_ppm: self.loss_ppm(),
            delivered_bytes: self.seen.delivered,
            ..self.stats
        }
    }
}

/// How long so many bytes take at this rate.
fn nanos(bytes: u64, rate: u64) -> u64 {
    match bytes.checked_mul(1_000_000_000) {
        Some(scaled) => scaled / rate.max(1),
        None => u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))).unwrap_or(u64::MAX),
    }
}

/// How many copies beside the first so that `packets` ranges all arrive with probability 0.98: packets × loss^(1 + copies) ≤ 0.02.
fn copies_for(loss_ppm: u32, packets: u64) -> u8 {
    // In units of 10^-12, so that a loss of 0.1 % keeps three digits over three powers.
    let mut failing = u128::from(packets) * u128::from(loss_ppm) * 1_000_000;
    let mut copies = 0;
    while failing > 20_000_000_000 && copies + 1 < COPIES_MAX {
        failing = failing * u128::from(loss_ppm) / 1_000_000;
        copies += 1;
    }
    copies
}
