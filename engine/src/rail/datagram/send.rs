//! The sending half: chunks become units, units go out as bursts.
//!
//! For: everything between a filled buf and the network on a datagram rail.
//! In and out: filled chunks, feedback and reloads in; bursts, `Read`, `Sent` out.
//! Invariants: a unit's buf stays until the receiver has all of it or until memory is short, then the one sent longest ago goes first and is read
//! again if need be; two units at most wait for their first packet, so that hashing stays ahead of sending by little.
//! Absent on purpose: rates and repairs (`proto::flow`), bufs for units that are read again (the loop).

use std::collections::{BTreeMap, VecDeque};
use std::io;

use proto::books::Stage;
use proto::flow::{Burst, Fact, FlowConfig, FlowSender, Step};
use proto::packet::{Control, Kind, PACKET_OVERHEAD, WIRE_EXTRA};
use proto::rate::RateConfig;
use proto::send::Assignment;
use proto::wire::chunk::{ChunkKind, HEADER_BYTES, Header};
use sys::mem::{Buf, HEADROOM};

use super::slots::{LENDERS_MAX, SLOTS_BYTES, Slots};
use super::wire::{BURST_BYTES_MAX, Pause, UNIT_AT, UnitMap, Wire};
use crate::ends::feed::{Feed, Filled};
use crate::ends::pieces::{filling, is_again};
use crate::job::{Cover, Event, RailEnd};
use crate::meter::PathStats;
use crate::platform::Platform;
use crate::seal::hash::{hash_as, hash_filling};
use crate::seal::packet::{BURST_PACKETS_MAX, HEAD_BYTES, Run, SMALL_HEAD_BYTES};
use crate::worker::cx::{Cx, Next};

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
pub(super) struct Going {
    /// What was assigned.
    pub(super) chunk: Assignment,
    pub(super) head: [u8; HEADER_BYTES],
    pub(super) bytes: u32,
    files_bytes: u64,
    /// From this byte on the digest vouches for the bytes (in clear).
    vouched: u32,
    pub(super) buf: Option<Buf>,
    /// When all of it had gone out; None: something of it waits to.
    sent_ns: Option<u64>,
    told: bool,
    wire_bytes: u64,
}

/// A go at sending, as far as it has got.
#[derive(Debug)]
struct Go {
    /// Bursts that may still be sent in this iteration.
    bursts: usize,
    began_ns: u64,
    /// When there is something to do again.
    wake_ns: u64,
    /// What the flow found out in the step of that time is to be reported first.
    facts_of_ns: Option<u64>,
}

/// What became of a step of the flow.
enum Sent {
    /// Something went, or was settled.
    Gone,
    /// Nothing is to be done before that time.
    Nothing { until_ns: u64 },
    /// A unit is to be read again.
    Reload,
}

/// See the module.
pub(super) struct Sending<P: Platform> {
    pub(super) feed: Feed<P::File>,
    /// A go that waits for what is next to be done.
    go: Option<Go>,
    pub(super) flow: FlowSender,
    pub(super) units: UnitMap<Going>,
    heads: Box<[[u8; HEAD_BYTES]]>,
    pub(super) slots: Slots,
    /// Units to be read again for which there is no buf yet.
    pub(super) wanted: VecDeque<u32>,
    /// Units of which something never went out.
    pub(super) unsent: usize,
    pub(super) next_feedback: u64,
    retry_ns: u64,
    fed_ns: u64,
    rate: RateConfig,
    /// The bound of all rails lets nothing go now.
    is_held: bool,
    pub(super) pause: Pause,
}

impl<P: Platform> std::fmt::Debug for Sending<P> {
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

impl<P: Platform> Sending<P> {
    pub(super) fn new(flow: FlowSender, config: &FlowConfig) -> Self {
        let units = UnitMap::with_capacity_and_hasher(2 * config.units_most as usize, Default::default());
        Sending {
            feed: Feed::new(),
            go: None,
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
            delivered_bytes: flow.delivered_bytes,
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
            ..to.with(&self.flow.controller().snapshot())
        };
    }

    pub(super) fn give_bufs(self, give: &mut impl FnMut(Buf)) {
        self.feed.filled.into_iter().for_each(|filled| give(filled.buf));
        self.units.into_values().filter_map(|going| going.buf).for_each(give);
    }

    pub(super) fn set_rate(&mut self, now_ns: u64, change: impl FnOnce(RateConfig) -> RateConfig) {
        self.rate = change(self.rate);
        self.flow.set_rate(now_ns, self.rate);
    }

    /// The unit with a buf of which nothing waits to be sent, sent longest ago.
    pub(super) fn oldest_sent(&self) -> Option<(u64, u32)> {
        let resting = self.units.iter().filter(|(_, going)| going.buf.is_some());
        resting.filter_map(|(&unit, going)| going.sent_ns.map(|sent_ns| (sent_ns, unit))).min()
    }

    /// Lets go of a unit's buf.
    pub(super) fn unload(&mut self, unit: u32) -> Option<Buf> {
        let going = self.units.get_mut(&unit)?;
        let buf = going.buf.take()?;
        self.flow.unloaded(unit);
        Some(buf)
    }

    /// Lets go of the buf of the newest unit of which nothing has arrived, although it waits to be sent: the unit is read again when its turn comes.
    pub(super) fn unload_unarrived(&mut self) -> Option<Buf> {
        let Sending { units, flow, .. } = self;
        let loaded = units.iter().filter(|(_, going)| going.buf.is_some()).map(|(&unit, _)| unit);
        let mut idle: Vec<u32> = loaded.filter(|&unit| flow.is_unarrived(unit)).collect();
        idle.sort_unstable();
        let unit = idle.into_iter().rev().find(|&unit| flow.unload_unsent(unit))?;
        let going = units.get_mut(&unit)?;
        going.sent_ns = None;
        going.buf.take()
    }

    /// The next unit that is to be read again, and whether a part of it is at the receiver: such a unit goes first, since it holds a buf there.
    pub(super) fn next_wanted(&mut self) -> Option<(u32, bool)> {
        let Sending { units, flow, wanted, .. } = self;
        wanted.retain(|unit| units.contains_key(unit));
        let begun = wanted.iter().position(|&unit| !flow.is_unarrived(unit));
        let unit = wanted.remove(begun.unwrap_or(0))?;
        Some((unit, begun.is_some()))
    }

    /// There is no buf for this unit: it is the next again.
    pub(super) fn want_later(&mut self, unit: u32) {
        self.wanted.push_front(unit);
    }

    /// Does a go begin, with nothing of the last one left to be done?
    pub(super) fn begins_go(&self) -> bool {
        self.go.is_none()
    }

    fn could_make_unit(&self) -> bool {
        self.unsent < UNSENT_MAX && self.flow.room() > 0 && !self.feed.filled.is_empty()
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

/// One go of the sending half, or the rest of one.
pub(super) fn step<P: Platform>(wire: &mut Wire<P>, half: &mut Sending<P>, cx: &mut Cx<'_, P>) -> Next {
    let mut go = match half.go.take() {
        Some(go) => go,
        None => {
            if wire.base.has_ended() {
                return Next::Idle;
            }
            let now = cx.platform.now_ns();
            let go = Go { bursts: cx.share.bursts, began_ns: now, wake_ns: now, facts_of_ns: None };
            if !half.wanted.is_empty() {
                half.go = Some(go);
                return Next::WantsBuf;
            }
            go
        }
    };
    if let Some(now) = go.facts_of_ns.take() {
        go.wake_ns = now;
        report_facts(wire, half, cx, now);
    }
    while go.bursts > 0 {
        go.bursts -= 1;
        make_units(half, cx);
        let now = cx.platform.now_ns();
        match send_one(wire, half, cx, now) {
            Sent::Nothing { until_ns } => {
                go.wake_ns = until_ns;
                if !half.could_make_unit() {
                    break;
                }
            }
            Sent::Gone => {
                go.wake_ns = now;
                report_facts(wire, half, cx, now);
            }
            Sent::Reload => {
                half.go = Some(Go { facts_of_ns: Some(now), ..go });
                return Next::WantsBuf;
            }
        }
    }
    end_go(wire, half, cx, &go)
}

fn end_go<P: Platform>(wire: &mut Wire<P>, half: &mut Sending<P>, cx: &mut Cx<'_, P>, go: &Go) -> Next {
    let (now, mut wake) = (go.began_ns, go.wake_ns);
    report_facts(wire, half, cx, now);
    half.pause = half.why();
    // Whoever asks for room and hears nothing waits as well.
    let waiting = !half.units.is_empty() || (half.flow.room() == 0 && half.feed.has_more());
    if !half.wanted.is_empty() {
        wake = wake.min(now + 1_000_000);
    }
    if wire.is_silent(now, waiting) {
        wire.base.break_off(cx.platform, RailEnd::Fault(io::ErrorKind::TimedOut.into()));
        return Next::Idle;
    }
    wire.wake_ns = if waiting { wake.min(wire.heard_ns.saturating_add(wire.silence_ns + 1)) } else { wake };
    Next::Idle
}

/// Filled chunks are hashed and become units, a few ahead of the sending.
fn make_units<P: Platform>(half: &mut Sending<P>, cx: &mut Cx<'_, P>) {
    while half.could_make_unit() {
        let filled = half.feed.filled.pop_front().expect("seen there");
        make_unit(half, cx, filled);
    }
    let now = cx.platform.now_ns();
    if half.feed.has_more() {
        half.fed_ns = now;
        // What waits here may wait for a grant whose packet was lost (seed 42 of the simulator stood still so).
        half.flow.go_on();
    } else if now.saturating_sub(half.fed_ns) > STARVED_NS {
        half.flow.end();
    }
}

fn make_unit<P: Platform>(half: &mut Sending<P>, cx: &mut Cx<'_, P>, filled: Filled<P::File>) {
    let files_bytes = filled.files_bytes();
    let (mut header, file_bytes) = filled.header();
    let mut buf = filled.buf;
    let Header { kind, chunk, entry, offset, payload_bytes, .. } = header;
    let how = hash_as(&header, file_bytes, cx.terms.chunk_bytes);
    cx.watch.lap(Stage::Loop);
    let touch = filling(cx.platform, filled.from.as_ref(), offset);
    if let Err(error) = hash_filling(cx.terms.digest, &mut header, how, &mut buf, cx.watch, touch) {
        cx.give_buf(buf);
        return cx.report_unreadable(&filled.chunk, &error);
    }
    if kind == ChunkKind::Range {
        cx.events.push(Event::Read { chunk, entry, offset, digest: header.digest });
    }
    let head = header.encode();
    buf.whole_mut()[UNIT_AT..HEADROOM].copy_from_slice(&head);
    let digest_vouches = matches!(cx.terms.cover.of(kind), Cover::Hashed | Cover::Bare);
    let vouched = if digest_vouches { HEADER_BYTES as u32 } else { u32::MAX };
    let unit = half.flow.add(HEADER_BYTES as u32 + payload_bytes);
    half.unsent += 1;
    let going = Going {
        chunk: filled.chunk,
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

/// Takes the flow's next step.
fn send_one<P: Platform>(wire: &mut Wire<P>, half: &mut Sending<P>, cx: &mut Cx<'_, P>, now: u64) -> Sent {
    if now < half.retry_ns {
        return Sent::Nothing { until_ns: half.retry_ns };
    }
    let owes_ns = wire.base.bound.owes_ns(now);
    half.is_held = owes_ns > 0;
    if half.is_held {
        // Others of the job, or of other jobs, had their turn: no fault of the path, and nothing to be caught up.
        half.flow.hold_back();
        return Sent::Nothing { until_ns: now.saturating_add(owes_ns) };
    }
    let most = wire.base.bound.slice(BURST_BYTES_MAX as u64) as u32;
    match half.flow.step(now, most) {
        Step::Burst(burst) => send_burst(wire, half, cx, now, burst),
        Step::Control { number, body } => {
            wire.base.bound.pay(now, (PACKET_OVERHEAD + WIRE_EXTRA) as u64);
            wire.body.clear();
            wire.body.resize(SMALL_HEAD_BYTES, 0);
            body.encode(&mut wire.body);
            if let Err(error) = wire.send_small(cx, Kind::Control, number)
                && is_too_big(&error)
            {
                half.flow.too_big(now);
            }
            Sent::Gone
        }
        Step::Reload { unit } => {
            if let Some(going) = half.units.get_mut(&unit) {
                going.sent_ns = None;
                half.wanted.push_back(unit);
            }
            Sent::Reload
        }
        Step::Wait { until_ns } => Sent::Nothing { until_ns },
    }
}

fn send_burst<P: Platform>(
    wire: &mut Wire<P>,
    half: &mut Sending<P>,
    cx: &mut Cx<'_, P>,
    now: u64,
    burst: Burst,
) -> Sent {
    if half.slots.asks(burst.bytes) && cx.share.lenders >= LENDERS_MAX {
        half.slots.none_free();
    }
    let (sent, lent) = put_burst(wire, half, cx, burst);
    cx.watch.lap(Stage::Send);
    if let Ok(taken) = sent {
        if lent {
            half.slots.on_lent(burst.first + taken as u64);
            // In clear it was copied there.
            cx.watch.spared.lent += if wire.packer.is_sealed() { u64::from(burst.bytes) } else { 0 };
        }
        half.slots.on_sent(lent, cx.platform.now_ns().saturating_sub(now), burst.bytes);
    }
    let count = burst.packets();
    let (taken, pause_ns) = match sent {
        Ok(taken) => (taken as u32, FULL_NS),
        Err(error) if is_too_big(&error) => {
            half.flow.refused(now, &burst, 0);
            half.flow.too_big(now);
            return Sent::Gone;
        }
        Err(error) if is_again(&error) || error.raw_os_error() == Some(ENOBUFS) => (0, FULL_NS),
        Err(_) => {
            wire.counts.icmp_errors += 1;
            (0, UNREACHABLE_NS)
        }
    };
    let going = half.units.get_mut(&burst.unit).expect("the flow speaks of open units");
    going.sent_ns = going.sent_ns.map(|_| now);
    let unit_bytes = u64::from(burst.bytes.min(taken * u32::from(burst.payload)));
    going.wire_bytes += unit_bytes + u64::from(taken) * HEAD_BYTES as u64;
    wire.base.bound.pay(now, unit_bytes + u64::from(taken) * (PACKET_OVERHEAD + WIRE_EXTRA) as u64);
    if taken == count {
        return Sent::Gone;
    }
    half.flow.refused(now, &burst, taken);
    half.retry_ns = now + pause_ns;
    Sent::Nothing { until_ns: half.retry_ns }
}

/// Seals a burst and hands it to the network: how many packets went, and whether out of memory that the network reads itself.
fn put_burst<P: Platform>(
    wire: &mut Wire<P>,
    half: &mut Sending<P>,
    cx: &mut Cx<'_, P>,
    burst: Burst,
) -> (io::Result<usize>, bool) {
    let going = half.units.get(&burst.unit).expect("the flow speaks of open units");
    let buf = going.buf.as_ref().expect("the flow sends of loaded units only");
    let at = UNIT_AT + burst.offset as usize;
    let bytes = &buf.whole()[at..at + burst.bytes as usize];
    let payload = usize::from(burst.payload);
    let run = Run { first: burst.first, unit: burst.unit, offset: burst.offset, payload };
    let socket = &wire.base.socket;
    let (in_flight, covered) = (half.flow.in_flight(), half.flow.covered());
    let platform = &mut *cx.platform;
    let lent = half.slots.wants(burst.bytes, in_flight, covered, || platform.burst_slots(socket, SLOTS_BYTES));
    let segment = HEAD_BYTES + payload;
    let sent = match (wire.packer.is_sealed(), lent) {
        (true, true) => {
            let end = wire.packer.seal(run, bytes, half.slots.splicer().slot());
            cx.watch.lap(Stage::Seal);
            half.slots.splicer().send(end, segment)
        }
        (true, false) => {
            let end = wire.packer.seal(run, bytes, &mut wire.outbox);
            cx.watch.lap(Stage::Seal);
            cx.platform.send_sealed(socket, &wire.outbox[..end], segment)
        }
        (false, _) => {
            let count = wire.packer.stamp(run, bytes, going.vouched, &mut half.heads);
            cx.watch.lap(Stage::Seal);
            let heads = &half.heads[..count];
            match lent {
                true => half.slots.splicer().send_burst(heads, bytes, payload),
                false => cx.platform.send_burst(socket, heads, bytes, payload),
            }
        }
    };
    (sent, lent)
}

/// Reports what the flow found out.
fn report_facts<P: Platform>(wire: &mut Wire<P>, half: &mut Sending<P>, cx: &mut Cx<'_, P>, now: u64) {
    let mut metered = false;
    while let Some(fact) = half.flow.next_fact() {
        match fact {
            Fact::Sent { unit } => {
                let Some(going) = half.units.get_mut(&unit) else { continue };
                going.sent_ns = Some(now);
                if std::mem::replace(&mut going.told, true) {
                    continue;
                }
                half.unsent -= 1;
                let (chunk, bytes, payload) = (going.chunk.chunk, going.wire_bytes, going.files_bytes);
                // Who hears that the last chunk went reads what the rail has carried.
                if !std::mem::replace(&mut metered, true) {
                    wire.write_meter(|stats| half.tell(stats));
                }
                cx.events.push(Event::Sent { rail: cx.rail, chunk, bytes, payload });
            }
            Fact::Whole { unit } => {
                if let Some(buf) = half.units.remove(&unit).and_then(|going| going.buf) {
                    cx.give_buf(buf);
                }
            }
            // Reported to nobody: silence is measured by what was heard, see `is_silent`.
            Fact::Quiet { .. } => {}
        }
    }
}

/// Says `Close` if the flow lets it.
pub(super) fn close<P: Platform>(wire: &mut Wire<P>, half: &mut Sending<P>, cx: &mut Cx<'_, P>) {
    half.flow.close();
    let now = cx.platform.now_ns();
    if let Step::Control { number, body: Control::Close } = half.flow.step(now, BURST_BYTES_MAX as u32) {
        wire.body.clear();
        wire.body.resize(SMALL_HEAD_BYTES, 0);
        Control::Close.encode(&mut wire.body);
        let _ = wire.send_small(cx, Kind::Control, number);
    }
}

/// Linux: no room in the interface's queue. As a full socket.
const ENOBUFS: i32 = 105;
/// Linux: the packet is larger than the interface takes.
const EMSGSIZE: i32 = 90;

fn is_too_big(error: &io::Error) -> bool {
    error.raw_os_error() == Some(EMSGSIZE)
}
