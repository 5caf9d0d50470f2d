//! The sending half: chunks become units, units go out as bursts.
//!
//! For: everything between a filled buf and the network on a datagram rail.
//! In and out: filled chunks, feedback and reloads in; bursts, `Read`, `Sent` out.
//! Invariants: a unit's buf stays until the receiver has all of it or until memory is short, then the one sent longest ago goes first and is read
//! again if need be; two units at most wait for their first packet, so that hashing stays ahead of sending by little.
//! Absent on purpose: rates and repairs (`proto::flow`).

use std::collections::{BTreeMap, VecDeque};
use std::io;

use proto::books::Stage;
use proto::flow::{Burst, Fact, FlowConfig, FlowSender, Step};
use proto::packet::{Control, Feedback, Kind, PACKET_OVERHEAD, WIRE_EXTRA, expand};
use proto::rate::RateConfig;
use proto::send::{Handout, Unit};
use proto::wire::chunk::{ChunkKind, HEADER_BYTES, Header};
use sys::mem::{Buf, HEADROOM, Mem};

use super::slots::{LENDERS_MAX, SLOTS_BYTES, Slots};
use super::{BURST_BYTES_MAX, Half, Packets, Pause, UNIT_AT, UnitMap, head_of};
use crate::ends::file_source::{SECTOR, go_on_from, read_pack};
use crate::job::{Cover, Event, RailEnd, Role};
use crate::meter::PathStats;
use crate::platform::{Done, Harm, Op, Platform};
use crate::rail::stream::{is_again, read_piece};
use crate::rail::{Kind as OpKind, Load, Slot};
use crate::seal::frame::{Touch, hash_as, hash_filling};
use crate::seal::packet::{BURST_PACKETS_MAX, HEAD_BYTES, Run, SMALL_HEAD_BYTES};
use crate::worker::Worker;

/// Units hashed and not gone out once, at most.
const UNSENT_MAX: usize = 2;
/// A full socket is tried again after so long: it drains 64 KiB in 50 µs at 10 Gbit/s.
const FULL_NS: u64 = 50_000;
/// An unreachable network is tried again after so long.
const UNREACHABLE_NS: u64 = 20_000_000;
/// Without work for so long the tail's rules begin.
const STARVED_NS: u64 = 5_000_000;

/// A chunk on its way.
#[derive(Debug)]
struct Going {
    handout: Handout,
    head: [u8; HEADER_BYTES],
    bytes: u32,
    files_bytes: u64,
    /// From this byte on the digest vouches for the bytes (in clear).
    vouched: u32,
    buf: Option<Buf>,
    /// When all of it had gone out; None: something of it waits to.
    sent_ns: Option<u64>,
    told: bool,
    wire_bytes: u64,
}

/// See the module.
pub(super) struct Sending {
    pub(super) flow: FlowSender,
    units: UnitMap<Going>,
    heads: Box<[[u8; HEAD_BYTES]]>,
    pub(super) slots: Slots,
    /// Units to be read again for which there is no buf yet.
    wanted: VecDeque<u32>,
    /// Units of which something never went out.
    pub(super) unsent: usize,
    next_feedback: u64,
    retry_ns: u64,
    fed_ns: u64,
    rate: RateConfig,
    /// The bound of all rails lets nothing go now.
    is_held: bool,
    pub(super) pause: Pause,
}

impl std::fmt::Debug for Sending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units: BTreeMap<_, _> =
            self.units.iter().map(|(unit, it)| (unit, (it.buf.is_some(), it.sent_ns))).collect();
        let Sending { flow, wanted, unsent, retry_ns, pause, .. } = self;
        f.debug_struct("Sending")
            .field("flow", &(flow.stats(), flow.room()))
            .field("units_loaded_sent", &units)
            .field("wanted", wanted)
            .field("unsent", unsent)
            .field("retry_ns", retry_ns)
            .field("pause", pause)
            .finish_non_exhaustive()
    }
}

impl Sending {
    pub(super) fn new(flow: FlowSender, config: &FlowConfig) -> Self {
        let units = UnitMap::with_capacity_and_hasher(2 * config.units_most as usize, Default::default());
        Sending {
            flow,
            units,
            heads: vec![[0; HEAD_BYTES]; BURST_PACKETS_MAX].into(),
            slots: Slots::new(),
            wanted: VecDeque::with_capacity(16),
            unsent: 0,
            next_feedback: 0,
            retry_ns: 0,
            fed_ns: 0,
            rate: config.rate,
            is_held: false,
            pause: Pause::Nothing,
        }
    }

    pub(super) fn tell(&self, to: &mut PathStats) {
        let flow = self.flow.stats();
        *to = PathStats {
            rate: flow.rate,
            rtt_ns: flow.rtt_ns,
            loss_ppm: flow.loss_ppm.into(),
            in_flight: flow.in_flight,
            packet_bytes: flow.packet_bytes.into(),
            packets: flow.packets,
            fresh_bytes: flow.fresh_bytes,
            repair_bytes: flow.repair_bytes,
            copy_bytes: flow.copy_bytes,
            lost_packets: flow.lost_packets,
            quiets: flow.quiets.into(),
            holes: flow.holes.into(),
            units: flow.units.into(),
            feedbacks: flow.feedbacks,
            bursts: flow.bursts,
            lent_bursts: self.slots.bursts,
            ..*to
        };
    }

    pub(super) fn take_bufs(&mut self) -> Vec<Buf> {
        self.units.drain().filter_map(|(_, going)| going.buf).collect()
    }

    pub(super) fn set_rate(&mut self, now_ns: u64, change: impl FnOnce(RateConfig) -> RateConfig) {
        self.rate = change(self.rate);
        self.flow.set_rate(now_ns, self.rate);
    }

    /// The unit with a buf of which nothing waits to be sent, sent longest ago.
    fn oldest_sent(&self) -> Option<(u64, u32)> {
        let resting = self.units.iter().filter(|(_, going)| going.buf.is_some());
        resting.filter_map(|(&unit, going)| going.sent_ns.map(|sent_ns| (sent_ns, unit))).min()
    }

    /// Lets go of a unit's buf.
    fn unload(&mut self, unit: u32) -> Option<Buf> {
        let going = self.units.get_mut(&unit)?;
        let buf = going.buf.take()?;
        self.flow.unloaded(unit);
        Some(buf)
    }

    fn why(&self) -> Pause {
        if self.units.is_empty() {
            return Pause::Nothing;
        }
        let stats = self.flow.stats();
        let capped = self.is_held || self.rate.target > 0 && stats.rate >= self.rate.target;
        match self.unsent {
            0 => Pause::Nothing,
            _ if capped => Pause::Cap,
            _ => Pause::Path,
        }
    }
}

impl<P: Platform> Worker<P> {
    /// One go of the sending half.
    pub(super) fn send_packets(&mut self, index: usize, it: &mut Packets) {
        let now = self.platform.now_ns();
        self.reload_wanted(index, it);
        let mut wake = now;
        for _ in 0..self.bursts {
            self.make_units(index, it);
            let now = self.platform.now_ns();
            match self.send_one(index, it, now) {
                Some(until_ns) => {
                    wake = until_ns;
                    if !self.could_make_unit(index, it) {
                        break;
                    }
                }
                None => {
                    wake = now;
                    self.tell_facts(index, it, now);
                }
            }
        }
        self.tell_facts(index, it, now);
        let Half::Send(half) = &mut it.half else { unreachable!("the caller looked") };
        half.pause = half.why();
        let rail = self.rails[index].as_ref().expect("the caller has it");
        // Whoever asks for room and hears nothing waits as well.
        let waiting = !half.units.is_empty() || (half.flow.room() == 0 && rail.has_more());
        if !half.wanted.is_empty() {
            wake = wake.min(now + 1_000_000);
        }
        if it.is_silent(now, waiting) {
            return self.break_off(index, RailEnd::Fault(io::ErrorKind::TimedOut.into()));
        }
        it.wake_ns = if waiting { wake.min(it.heard_ns.saturating_add(it.silence_ns + 1)) } else { wake };
    }

    fn could_make_unit(&self, index: usize, it: &Packets) -> bool {
        let Half::Send(half) = &it.half else { unreachable!("the caller looked") };
        let rail = self.rails[index].as_ref().expect("the caller has it");
        half.unsent < UNSENT_MAX && half.flow.room() > 0 && !rail.filled.is_empty()
    }

    /// Filled chunks are hashed and become units, a few ahead of the sending.
    fn make_units(&mut self, index: usize, it: &mut Packets) {
        while self.could_make_unit(index, it) {
            self.make_unit(index, it);
        }
        let Half::Send(half) = &mut it.half else { unreachable!("the caller looked") };
        let rail = self.rails[index].as_ref().expect("the caller has it");
        let now = self.platform.now_ns();
        if rail.has_more() {
            half.fed_ns = now;
            // What waits here may wait for a grant whose word was lost (seed 42 of the simulator stood still so).
            half.flow.go_on();
        } else if now.saturating_sub(half.fed_ns) > STARVED_NS {
            half.flow.end();
        }
    }

    fn make_unit(&mut self, index: usize, it: &mut Packets) {
        let Half::Send(half) = &mut it.half else { unreachable!("the caller looked") };
        let rail = self.rails[index].as_mut().expect("the caller has it");
        let filled = rail.filled.pop_front().expect("the caller looked");
        let files_bytes = filled.files_bytes();
        let (mut header, file_bytes) = filled.header();
        let mut buf = filled.buf;
        let Header { kind, chunk, entry, offset, payload_bytes, .. } = header;
        let how = hash_as(&header, file_bytes, rail.terms.chunk_bytes);
        self.laps.lap(Stage::Loop);
        let platform = &mut self.platform;
        let touch = |touch, at: usize, piece: &mut [u8]| {
            match (touch, &filled.from) {
                (Touch::Fill, Some(file)) => return read_piece(platform, file, offset + at as u64, piece),
                (Touch::Harm, _) => platform.harm(Harm::SourceBuf, piece),
                _ => {}
            }
            Ok(())
        };
        let hashed = hash_filling(rail.terms.digest, &mut header, how, &mut buf, &mut self.laps, touch);
        if let Err(error) = hashed {
            return self.drop_filled(index, &filled.handout, buf, &error);
        }
        if kind == ChunkKind::Range {
            let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
            seat.part.post.put(Event::Read { chunk, entry, offset, digest: header.digest });
        }
        let head = header.encode();
        buf.whole_mut()[UNIT_AT..HEADROOM].copy_from_slice(&head);
        let digest_vouches = matches!(rail.terms.cover.of(kind), Cover::Hashed | Cover::Bare);
        let vouched = if digest_vouches { HEADER_BYTES as u32 } else { u32::MAX };
        let unit = half.flow.add(HEADER_BYTES as u32 + payload_bytes);
        half.unsent += 1;
        let going = Going {
            handout: filled.handout,
            head,
            bytes: payload_bytes,
            files_bytes,
            vouched,
            buf: Some(buf),
            sent_ns: None,
            told: false,
            wire_bytes: 0,
        };
        half.units.insert(unit, going);
    }

    /// Takes the flow's next step. `Some`: nothing to do before that time.
    fn send_one(&mut self, index: usize, it: &mut Packets, now: u64) -> Option<u64> {
        let Half::Send(half) = &mut it.half else { unreachable!("the caller looked") };
        if now < half.retry_ns {
            return Some(half.retry_ns);
        }
        let bound = &self.rails[index].as_ref().expect("the caller has it").bound;
        let owes_ns = bound.owes_ns(now);
        half.is_held = owes_ns > 0;
        if half.is_held {
            // Others of the job, or of other jobs, had their turn: no fault of the path, and nothing to be caught up.
            half.flow.hold_back();
            return Some(now.saturating_add(owes_ns));
        }
        let most = bound.slice(BURST_BYTES_MAX as u64) as u32;
        match half.flow.step(now, most) {
            Step::Burst(burst) => self.send_burst(index, it, now, burst),
            Step::Control { number, body } => {
                let bound = &self.rails[index].as_ref().expect("the caller has it").bound;
                bound.pay(now, (PACKET_OVERHEAD + WIRE_EXTRA) as u64);
                it.body.clear();
                it.body.resize(SMALL_HEAD_BYTES, 0);
                body.encode(&mut it.body);
                if let Err(error) = self.say(index, it, Kind::Control, number)
                    && is_too_big(&error)
                {
                    let Half::Send(half) = &mut it.half else { unreachable!("seen above") };
                    half.flow.too_big(now);
                }
                None
            }
            Step::Reload { unit } => {
                if let Some(going) = half.units.get_mut(&unit) {
                    going.sent_ns = None;
                    half.wanted.push_back(unit);
                }
                self.reload_wanted(index, it);
                None
            }
            Step::Wait { until_ns } => Some(until_ns),
        }
    }

    /// Rails that have slots, but for the one in hand.
    fn lenders(&self) -> usize {
        let has = |rail: &crate::rail::Rail<P>| matches!(rail.packets.as_ref().map(|it| &it.half), Some(Half::Send(half)) if half.slots.are_made());
        self.rails.iter().flatten().filter(|rail| has(rail)).count()
    }

    fn send_burst(&mut self, index: usize, it: &mut Packets, now: u64, burst: Burst) -> Option<u64> {
        let Half::Send(half) = &mut it.half else { unreachable!("the caller looked") };
        if half.slots.asks(burst.bytes) && self.lenders() >= LENDERS_MAX {
            half.slots.none_free();
        }
        let going = half.units.get_mut(&burst.unit).expect("the flow speaks of open units");
        let buf = going.buf.as_ref().expect("the flow sends of loaded units only");
        let at = UNIT_AT + burst.offset as usize;
        let bytes = &buf.whole()[at..at + burst.bytes as usize];
        let payload = usize::from(burst.payload);
        let run = Run { first: burst.first, unit: burst.unit, offset: burst.offset, payload };
        let rail = self.rails[index].as_ref().expect("the caller has it");
        let (in_flight, covered) = (half.flow.in_flight(), half.flow.covered());
        let platform = &mut self.platform;
        let lent =
            half.slots.wants(burst.bytes, in_flight, covered, || platform.burst_slots(&rail.socket, SLOTS_BYTES));
        let segment = HEAD_BYTES + payload;
        let sent = match (it.packer.is_sealed(), lent) {
            (true, true) => {
                let end = it.packer.seal(run, bytes, half.slots.splicer().slot());
                self.laps.lap(Stage::Seal);
                half.slots.splicer().send(end, segment)
            }
            (true, false) => {
                let end = it.packer.seal(run, bytes, &mut it.outbox);
                self.laps.lap(Stage::Seal);
                self.platform.send_sealed(&rail.socket, &it.outbox[..end], segment)
            }
            (false, _) => {
                let count = it.packer.stamp(run, bytes, going.vouched, &mut half.heads);
                self.laps.lap(Stage::Seal);
                let heads = &half.heads[..count];
                match lent {
                    true => half.slots.splicer().send_burst(heads, bytes, payload),
                    false => self.platform.send_burst(&rail.socket, heads, bytes, payload),
                }
            }
        };
        self.laps.lap(Stage::Send);
        if let Ok(taken) = sent {
            if lent {
                half.slots.on_lent(burst.first + taken as u64);
                // In clear it was copied there.
                self.laps.spared.lent += if it.packer.is_sealed() { u64::from(burst.bytes) } else { 0 };
            }
            half.slots.on_sent(lent, self.platform.now_ns().saturating_sub(now), burst.bytes);
        }
        let count = burst.packets();
        let (taken, pause_ns) = match sent {
            Ok(taken) => (taken as u32, FULL_NS),
            Err(error) if is_too_big(&error) => {
                half.flow.refused(now, &burst, 0);
                half.flow.too_big(now);
                return None;
            }
            Err(error) if is_again(&error) || error.raw_os_error() == Some(ENOBUFS) => (0, FULL_NS),
            Err(_) => {
                it.counts.hearsay += 1;
                (0, UNREACHABLE_NS)
            }
        };
        going.sent_ns = going.sent_ns.map(|_| now);
        going.wire_bytes +=
            u64::from(burst.bytes.min(taken * u32::from(burst.payload))) + u64::from(taken) * HEAD_BYTES as u64;
        let wire_bytes = u64::from(burst.bytes.min(taken * u32::from(burst.payload)));
        rail.bound.pay(now, wire_bytes + u64::from(taken) * (PACKET_OVERHEAD + WIRE_EXTRA) as u64);
        if taken == count {
            return None;
        }
        half.flow.refused(now, &burst, taken);
        half.retry_ns = now + pause_ns;
        Some(half.retry_ns)
    }

    /// What the flow found out.
    fn tell_facts(&mut self, index: usize, it: &mut Packets, now: u64) {
        let mut metered = false;
        loop {
            let Half::Send(half) = &mut it.half else { unreachable!("the caller looked") };
            let Some(fact) = half.flow.next_fact() else { return };
            match fact {
                Fact::Sent { unit } => {
                    let Some(going) = half.units.get_mut(&unit) else { continue };
                    going.sent_ns = Some(now);
                    if std::mem::replace(&mut going.told, true) {
                        continue;
                    }
                    half.unsent -= 1;
                    let (chunk, bytes, payload) = (going.handout.chunk, going.wire_bytes, going.files_bytes);
                    // Who hears that the last chunk went reads what the rail has carried.
                    if !std::mem::replace(&mut metered, true) {
                        it.write_meter();
                    }
                    let rail = self.rails[index].as_ref().expect("the caller has it");
                    let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
                    seat.part.post.put(Event::Sent { rail: rail.rail, chunk, bytes, payload });
                }
                Fact::Whole { unit } => {
                    if let Some(buf) = half.units.remove(&unit).and_then(|going| going.buf) {
                        self.platform.pool().give(buf);
                    }
                }
                // Told to nobody: silence is measured by what was heard, see `is_silent`.
                Fact::Quiet { .. } => {}
            }
        }
    }

    /// Feedback came.
    pub(super) fn take_feedback(&mut self, index: usize, it: &mut Packets, packet: &mut [u8]) {
        let Half::Send(half) = &mut it.half else { unreachable!("the caller looked") };
        let Some(head) = head_of(packet, it.tag).filter(|head| head.kind == Kind::Feedback) else {
            it.counts.foreign += 1;
            return;
        };
        let number = expand(head.low, half.next_feedback);
        let Some(body) = it.packer.open_small(Kind::Feedback, number, packet) else {
            it.counts.forged += 1;
            return;
        };
        self.laps.lap(Stage::Seal);
        let now = self.platform.now_ns();
        half.next_feedback = half.next_feedback.max(number + 1);
        it.heard_ns = now;
        let told = Feedback::decode(body).and_then(|feedback| half.flow.on_feedback(now, &feedback));
        if let Err(breach) = told {
            self.break_off(index, RailEnd::Breach(breach));
        }
    }

    /// Memory is short: the buf of the unit that was sent longest ago, on whatever rail, goes back to the pool. `it` is the rail in hand.
    pub(crate) fn unload_oldest(&mut self, it: Option<&mut Packets>) -> bool {
        let mut oldest: Option<(u64, u32, Option<usize>)> = None;
        if let Some(Packets { half: Half::Send(half), .. }) = &it {
            oldest = half.oldest_sent().map(|(sent_ns, unit)| (sent_ns, unit, None));
        }
        for (index, rail) in self.rails.iter().enumerate() {
            let Some(Half::Send(half)) = rail.as_ref().and_then(|rail| rail.packets.as_ref()).map(|it| &it.half) else {
                continue;
            };
            let other = half.oldest_sent().map(|(sent_ns, unit)| (sent_ns, unit, Some(index)));
            oldest = [oldest, other].into_iter().flatten().min();
        }
        let Some((_, unit, rail)) = oldest else { return false };
        let packets = match rail {
            Some(index) => self.rails[index].as_mut().and_then(|rail| rail.packets.as_deref_mut()),
            None => it,
        };
        let Some(Packets { half: Half::Send(half), counts, .. }) = packets else { return false };
        counts.unloaded += 1;
        if let Some(buf) = half.unload(unit) {
            self.platform.pool().give(buf);
        }
        true
    }

    fn has_receivers(&self) -> bool {
        self.rails.iter().flatten().any(|rail| rail.is_receiving())
    }

    /// Bufs that chunks sent for the first time leave to others: to receivers, and one to repairs, which receivers may wait for.
    pub(crate) fn count_left_by_fill(&self) -> usize {
        let repairs = self.has_receivers() && self.rails.iter().flatten().any(|rail| rail.packets.is_some());
        self.reserve + usize::from(repairs)
    }

    /// A buf to read a unit again into. Chunks that wait for their turn make room if nothing else does: repairs go before them.
    fn buf_to_reload(&mut self, index: usize, it: &mut Packets) -> Option<Buf> {
        let reserve = if self.has_receivers() { self.reserve } else { 0 };
        if self.platform.pool().free() <= reserve && !self.unload_oldest(Some(it)) {
            let rail = self.rails[index].as_mut().expect("the caller has it");
            let filled = rail.filled.pop_back()?;
            // A pack has told its digests; told again they are the same, or the pack goes again anyway.
            rail.waiting.push_front(filled.handout);
            return Some(filled.buf);
        }
        self.platform.pool().take()
    }

    /// Reads units again of which something was lost, as far as there are bufs.
    fn reload_wanted(&mut self, index: usize, it: &mut Packets) {
        loop {
            let Half::Send(half) = &mut it.half else { unreachable!("the caller looked") };
            let Some(unit) = half.wanted.pop_front() else { return };
            if !half.units.contains_key(&unit) {
                continue;
            }
            let Some(buf) = self.buf_to_reload(index, it) else {
                let Half::Send(half) = &mut it.half else { unreachable!("seen above") };
                half.wanted.push_front(unit);
                return;
            };
            it.counts.reloaded += 1;
            self.reload(index, it, unit, buf);
        }
    }

    fn reload(&mut self, index: usize, it: &mut Packets, unit: u32, mut buf: Buf) {
        let Half::Send(half) = &mut it.half else { unreachable!("the caller looked") };
        let going = half.units.get(&unit).expect("the caller looked");
        let rail = self.rails[index].as_mut().expect("the caller has it");
        let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
        let bytes = going.bytes as usize;
        self.laps.lap(Stage::Loop);
        match &going.handout.unit {
            Unit::Pack { entries } => {
                let Role::Send(tree) = &seat.part.role else { unreachable!("handouts go to sending jobs") };
                // What changed since does not fit the header any more: the receiver throws the chunk away and asks anew.
                read_pack(&**tree, rail.terms.digest, entries, buf.payload_mut(), &mut self.laps);
            }
            Unit::Range { entry, offset, .. } => match seat.source_file(entry, *offset) {
                Ok(file) if self.platform.is_at_once(&file) => {
                    let _ = read_piece(&self.platform, &file, *offset, &mut buf.payload_mut()[..bytes]);
                    self.laps.lap(Stage::Read);
                }
                Ok(file) => {
                    rail.ops += 1;
                    let load = Load::Unit(unit);
                    let slot = Slot { kind: OpKind::Reload, rail: index, at: HEADROOM, done: 0, len: bytes, load };
                    let token = self.slots.put(slot);
                    let (offset, len) = (*offset, bytes.next_multiple_of(SECTOR));
                    self.platform.submit(token, Op::Read { file, offset, mem: Mem::Buf(buf), at: HEADROOM, len });
                    return;
                }
                Err(_) => {}
            },
        }
        self.reloaded(it, unit, buf);
    }

    /// A unit was read again, as far as it could be: what could not be does not fit its header, and the chunk goes again anew.
    fn reloaded(&mut self, it: &mut Packets, unit: u32, mut buf: Buf) {
        let Half::Send(half) = &mut it.half else { unreachable!("the caller looked") };
        let Some(going) = half.units.get_mut(&unit) else {
            self.platform.pool().give(buf);
            return;
        };
        buf.whole_mut()[UNIT_AT..HEADROOM].copy_from_slice(&going.head);
        going.buf = Some(buf);
        half.flow.reloaded(unit);
        it.wake_ns = 0;
    }

    /// A read for a reload came back: go on with the rest, or the unit is there.
    pub(crate) fn on_reload(&mut self, mut slot: Slot, done: Done) {
        let Load::Unit(unit) = slot.load else { unreachable!("reloads are of units") };
        let index = slot.rail;
        let rail = self.rails[index].as_mut().expect("a rail stays until its ops are back");
        let Some(mut it) = rail.packets.take() else { unreachable!("only datagram rails reload") };
        let over = match &done.result {
            _ if rail.has_ended() => true,
            Err(error) => !is_again(error),
            Ok(moved) => *moved == 0,
        };
        slot.done = go_on_from(slot.done, slot.done + done.result.unwrap_or(0), slot.len);
        let Half::Send(half) = &mut it.half else { unreachable!("reloads are the sender's") };
        let range = half.units.get(&unit).map(|going| going.handout.unit.clone());
        let seat = self.seats.get_mut(&rail.job).expect("rails go before their job");
        let file = match range {
            Some(Unit::Range { entry, offset, .. }) if !over && slot.done < slot.len => {
                seat.source_file(&entry, offset).ok().map(|file| (file, offset))
            }
            _ => None,
        };
        match (file, done.mem) {
            (Some((file, offset)), mem) => {
                let (at, offset) = (slot.at + slot.done, offset + slot.done as u64);
                let len = slot.len.next_multiple_of(SECTOR) - slot.done;
                let token = self.slots.put(slot);
                self.platform.submit(token, Op::Read { file, offset, mem, at, len });
            }
            (None, Mem::Buf(buf)) => {
                rail.ops -= 1;
                self.reloaded(&mut it, unit, buf);
            }
            (None, mem) => self.drop_mem(index, mem),
        }
        self.rails[index].as_mut().expect("seen above").packets = Some(it);
    }

    /// Says `Close` if the flow lets it.
    pub(super) fn last_word(&mut self, index: usize, it: &mut Packets) {
        let Half::Send(half) = &mut it.half else { return };
        half.flow.close();
        let now = self.platform.now_ns();
        if let Step::Control { number, body: Control::Close } = half.flow.step(now, BURST_BYTES_MAX as u32) {
            it.body.clear();
            it.body.resize(SMALL_HEAD_BYTES, 0);
            Control::Close.encode(&mut it.body);
            let _ = self.say(index, it, Kind::Control, number);
        }
    }
}

/// Linux: no room in the interface's queue. As a full socket.
const ENOBUFS: i32 = 105;
/// Linux: the packet is larger than the interface takes.
const EMSGSIZE: i32 = 90;

fn is_too_big(error: &io::Error) -> bool {
    error.raw_os_error() == Some(EMSGSIZE)
}
