//! The receiving half: packets become units, whole units are checked and land.
//!
//! For: everything between the network and a chunk that is opened, on a datagram rail.
//! In and out: bursts in; feedback, and whole chunks into the same path as a stream rail's, out.
//! Invariants: a packet is authenticated before anything follows from it; a sealed packet is opened straight into its place only where nothing
//! was taken for yet, so that a forged one destroys nothing; a unit gets a buf only after its first packet held.
//! Absent on purpose: what is missing and when to say so (`proto::flow`), chunks on disk that are not whole (`spill`).

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;

use proto::books::Stage;
use proto::error::Breach;
use proto::flow::{FlowConfig, FlowReceiver, Placed};
use proto::packet::{Control, Kind, expand};
use proto::wire::chunk::{ChunkKind, HEADER_BYTES, Header, TAG_BYTES};
use sys::mem::Buf;

use super::spill::Spill;
use super::{BODY_BYTES_MAX, Half, Packets, UNIT_AT, UnitMap, head_of};
use crate::job::RailEnd;
use crate::meter::PathStats;
use crate::platform::{Arrived, Platform};
use crate::seal::packet::{BURST_PACKETS_MAX, HEAD_BYTES, Place, SMALL_HEAD_BYTES};
use crate::worker::Worker;

/// Where a unit's bytes are.
#[derive(Debug)]
pub(super) enum Home {
    /// from: – · to: Leaving, (gone). In memory.
    Here(Buf),
    /// from: Here · to: There. Its buf is being written into its place.
    Leaving,
    /// from: Leaving · to: Checking, Over. In its place on disk; what comes is written there.
    There,
    /// from: There · to: (gone). Whole, and being read back.
    Checking,
    /// from: Leaving, There · to: (gone). It cannot be kept; what comes is thrown away. `told`: its failure was.
    Over { told: bool },
}

/// A unit of which something came.
#[derive(Debug)]
pub(super) struct Coming {
    pub(super) header: Option<Header>,
    pub(super) home: Home,
    /// Nothing was taken for bytes from here on.
    pub(super) fresh_from: u32,
    /// Writes of pieces in flight or held.
    pub(super) writes: u32,
}

/// How many units may be promised that have not begun to come. Bufs do not bound it: a range that waits for repairs leaves its buf within
/// milliseconds, so what a long path holds passes through few. What finds no room does: a pack has no other place than a buf, and a disk may lag.
#[derive(Debug)]
struct Reach {
    units: u32,
    most: u32,
    /// It grows by one unit for so many that are done: for each at first, so that it doubles in a round trip.
    slowness: u32,
    since: u32,
    /// Packets without room, those looked at, and the units done when the last of these made it less.
    seen: u64,
    cut_at: u32,
}

impl Reach {
    /// After a shortage it grows by a sixteenth of itself in the time that it takes to use it: what finds no room then is sent twice.
    const SLOWNESS: u32 = 16;

    fn new(config: &FlowConfig) -> Self {
        let most = config.units_most.max(config.units_open);
        Reach { units: config.units_open, most, slowness: 1, since: 0, seen: 0, cut_at: 0 }
    }

    fn on_done(&mut self) {
        self.since += 1;
        if self.since >= self.slowness {
            self.since = 0;
            self.units = (self.units + 1).min(self.most);
        }
    }

    /// Half of it where packets found no room; again only when what had been promised then is over.
    fn look(&mut self, no_room: u64, done: u32) {
        if no_room > std::mem::replace(&mut self.seen, no_room) && done >= self.cut_at {
            self.units /= 2;
            self.slowness = Self::SLOWNESS;
            self.cut_at = done + self.units;
        }
    }
}

/// See the module.
pub(super) struct Receiving {
    pub(super) flow: FlowReceiver,
    pub(super) units: UnitMap<Coming>,
    /// Units in their place that are whole and wait for a buf to be checked.
    pub(super) checks: VecDeque<u32>,
    pub(super) spill: Spill,
    reach: Reach,
    /// Units below were granted.
    granted: u32,
    /// Units done with.
    done: u32,
    numbers: Box<[u64]>,
    places: Box<[Place]>,
    pads: Box<[[u8; TAG_BYTES]]>,
    ranges: Box<[Range<usize>]>,
}

impl std::fmt::Debug for Receiving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units: BTreeMap<_, _> = self.units.iter().collect();
        let Receiving { flow, checks, spill, granted, done, .. } = self;
        f.debug_struct("Receiving")
            .field("flow", &(flow.stats(), flow.next_at()))
            .field("units", &units)
            .field("checks", checks)
            .field("spill", spill)
            .field("granted_done", &(granted, done))
            .finish_non_exhaustive()
    }
}

impl Receiving {
    pub(super) fn new(flow: FlowReceiver, config: &FlowConfig) -> Self {
        let place = Place { unit: 0, offset: 0, tagged: false };
        Receiving {
            flow,
            units: UnitMap::with_capacity_and_hasher(2 * config.units_most as usize, Default::default()),
            checks: VecDeque::with_capacity(16),
            spill: Spill::new(usize::from(config.packet_bytes_max)),
            reach: Reach::new(config),
            granted: config.units_open,
            done: 0,
            numbers: vec![0; BURST_PACKETS_MAX].into(),
            places: vec![place; BURST_PACKETS_MAX].into(),
            pads: vec![[0; TAG_BYTES]; BURST_PACKETS_MAX].into(),
            ranges: vec![0..0; BURST_PACKETS_MAX].into(),
        }
    }

    /// A unit landed or was thrown away.
    pub(super) fn end(&mut self, unit: u32) {
        self.flow.done(unit);
        self.done += 1;
        self.reach.on_done();
    }

    pub(super) fn tell(&self, to: &mut PathStats) {
        let flow = self.flow.stats();
        *to = PathStats {
            packets: flow.packets,
            units: flow.units.into(),
            wire_bytes: flow.wire_bytes,
            marked_bytes: flow.marked_bytes,
            already_bytes: flow.already_bytes,
            late: flow.late,
            feedbacks: flow.feedbacks,
            again: flow.duplicates,
            ..*to
        };
    }

    pub(super) fn take_bufs(&mut self) -> Vec<Buf> {
        let bufs = self.units.drain().filter_map(|(_, coming)| match coming.home {
            Home::Here(buf) => Some(buf),
            _ => None,
        });
        bufs.collect()
    }
}

/// A data packet whose head was read.
#[derive(Debug, Clone, Copy)]
struct Parcel {
    number: u64,
    place: Place,
    pad: [u8; TAG_BYTES],
    marked: bool,
    now: u64,
}

impl<P: Platform> Worker<P> {
    /// One go of the receiving half.
    pub(super) fn recv_packets(&mut self, index: usize, it: &mut Packets) {
        self.receive(index, it, |worker, it, bytes, arrived| {
            worker.take_burst(index, it, bytes, &arrived);
            if !worker.rails[index].as_ref().is_some_and(|rail| rail.has_ended()) {
                let now = worker.platform.now_ns();
                worker.send_feedback(index, it, now);
            }
        });
        if self.rails[index].as_ref().is_some_and(|rail| rail.has_ended()) {
            return;
        }
        self.check_spilled(index, it);
        self.spill_units(index, it);
        self.set_grant(index, it);
        let now = self.platform.now_ns();
        self.send_feedback(index, it, now);
        let Half::Recv(half) = &it.half else { unreachable!("the caller looked") };
        let waiting = !half.units.is_empty();
        let mut wake = half.flow.next_at();
        if it.is_silent(now, waiting) {
            return self.break_off(index, RailEnd::Fault(io::ErrorKind::TimedOut.into()));
        }
        if waiting {
            wake = wake.min(it.heard_ns.saturating_add(it.silence_ns + 1));
        }
        if it.nap_until_ns > 0 {
            wake = wake.min(it.nap_until_ns);
        }
        it.wake_ns = if it.ready { now } else { wake };
    }

    fn take_burst(&mut self, index: usize, it: &mut Packets, bytes: &mut [u8], arrived: &Arrived) {
        // When it came, not when it was looked at; and never before what was looked at earlier.
        let now = self.platform.now_ns().saturating_sub(arrived.waited_ns).max(it.heard_ns);
        let mut rest = arrived.packets();
        loop {
            let count = self.gather(index, it, bytes, &mut rest, now);
            let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
            if !it.packer.is_sealed() {
                it.packer.pads(&half.numbers[..count], &half.places[..count], &mut half.pads[..count]);
                self.laps.lap(Stage::Seal);
            }
            for at in 0..count {
                let Half::Recv(half) = &mut it.half else { unreachable!("seen above") };
                let range = half.ranges[at].clone();
                let parcel = Parcel {
                    number: half.numbers[at],
                    place: half.places[at],
                    pad: half.pads[at],
                    marked: arrived.marked,
                    now,
                };
                if let Err(breach) = self.take_parcel(index, it, parcel, &mut bytes[range]) {
                    return self.break_off(index, RailEnd::Breach(breach));
                }
                if self.rails[index].as_ref().is_some_and(|rail| rail.has_ended()) {
                    return;
                }
            }
            if count < BURST_PACKETS_MAX {
                self.laps.lap(Stage::Recv);
                return;
            }
        }
    }

    /// Reads the heads of the next data packets; words are heard at once. Returns how many data packets there are.
    fn gather(
        &mut self,
        index: usize,
        it: &mut Packets,
        bytes: &mut [u8],
        rest: &mut impl Iterator<Item = Range<usize>>,
        now: u64,
    ) -> usize {
        let mut count = 0;
        while count < BURST_PACKETS_MAX {
            let Some(range) = rest.next() else { break };
            let packet = &mut bytes[range.clone()];
            let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
            let (head, place) = (head_of(packet, it.tag), Place::of(packet));
            match (head, place) {
                (Some(head), Some(place)) if head.kind == Kind::Data && packet.len() > HEAD_BYTES => {
                    half.numbers[count] = expand(head.low, half.flow.expected());
                    half.places[count] = place;
                    half.ranges[count] = range;
                    count += 1;
                }
                (Some(head), _) if head.kind == Kind::Control => {
                    let number = expand(head.low, half.flow.expected());
                    self.hear_word(index, it, number, packet, now);
                }
                _ => it.counts.foreign += 1,
            }
        }
        count
    }

    fn hear_word(&mut self, index: usize, it: &mut Packets, number: u64, packet: &mut [u8], now: u64) {
        let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
        if !half.flow.wants(number) {
            return;
        }
        let Some(body) = it.packer.open_small(Kind::Control, number, packet) else {
            it.counts.forged += 1;
            return;
        };
        it.heard_ns = now;
        let heard = Control::decode(body).and_then(|word| half.flow.on_control(now, number, &word).map(|()| word));
        match heard {
            Ok(Control::Close) => self.break_off(index, RailEnd::Closed),
            Ok(_) => {}
            Err(breach) => self.break_off(index, RailEnd::Breach(breach)),
        }
    }

    /// One data packet: held against its tag, then told to the flow, then put into its place.
    fn take_parcel(&mut self, index: usize, it: &mut Packets, parcel: Parcel, packet: &mut [u8]) -> Result<(), Breach> {
        let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
        if !half.flow.wants(parcel.number) {
            return Ok(());
        }
        let Place { unit, offset, .. } = parcel.place;
        let len = packet.len() - HEAD_BYTES;
        let mut there = false;
        let holds = if it.packer.is_sealed() {
            match half.units.get_mut(&unit) {
                Some(Coming { home: Home::Here(buf), fresh_from, .. })
                    if offset >= *fresh_from && UNIT_AT + offset as usize + len <= buf.whole().len() =>
                {
                    there = true;
                    let at = UNIT_AT + offset as usize;
                    it.packer.open_into(parcel.number, packet, &mut buf.whole_mut()[at..at + len])
                }
                _ => it.packer.open_here(parcel.number, packet),
            }
        } else {
            it.packer.holds(parcel.number, parcel.place, parcel.pad, packet)
        };
        if !holds {
            it.counts.forged += 1;
            return Ok(());
        }
        it.heard_ns = parcel.now;
        let limit = &self.rails[index].as_ref().expect("the caller has it").bound.limit;
        if !limit.takes(parcel.now, packet.len() as u64) {
            // Faster than was told: as if it had been lost.
            return Ok(());
        }
        self.put_parcel(index, it, parcel, &packet[HEAD_BYTES..], there)
    }

    /// A packet that held. `there`: its bytes stand in their place already.
    fn put_parcel(
        &mut self,
        index: usize,
        it: &mut Packets,
        parcel: Parcel,
        bytes: &[u8],
        there: bool,
    ) -> Result<(), Breach> {
        let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
        let Place { unit, offset, .. } = parcel.place;
        let end = offset.saturating_add(bytes.len() as u32);
        let mut fresh_buf = None;
        let has_room = match half.units.get(&unit).map(|coming| &coming.home) {
            Some(Home::Leaving | Home::There) => half.spill.has_room(unit, offset, bytes.len()),
            Some(_) => true,
            None => {
                // One stays for units that are whole on disk: they are nearer to the end.
                let kept = usize::from(!half.checks.is_empty());
                let pool = self.platform.pool();
                fresh_buf = if pool.free() > kept { pool.take() } else { None };
                fresh_buf.is_some()
            }
        };
        if !has_room {
            // As if it had been lost: it will be sent again.
            it.counts.no_room += 1;
            return Ok(());
        }
        let Parcel { now, number, marked, .. } = parcel;
        let placed = half.flow.on_data(now, number, unit, offset, bytes.len() as u32, marked);
        if !matches!(placed, Ok(Placed::New)) {
            if let Some(buf) = fresh_buf {
                self.platform.pool().give(buf);
            }
            it.counts.no_room += u64::from(matches!(placed, Ok(Placed::NoRoom)));
            return placed.map(|_| ());
        }
        if let Some(buf) = fresh_buf {
            let coming = Coming { header: None, home: Home::Here(buf), fresh_from: 0, writes: 0 };
            half.units.insert(unit, coming);
        }
        let coming = half.units.get_mut(&unit).expect("it was there or was just made");
        coming.fresh_from = coming.fresh_from.max(end);
        match &mut coming.home {
            Home::Here(buf) if !there => {
                let at = UNIT_AT + offset as usize;
                buf.whole_mut()[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Home::Leaving | Home::There => self.put_piece(index, it, unit, offset, bytes),
            _ => {}
        }
        self.look_at_unit(index, it, unit)
    }

    /// Something new of a unit came: its header may be known now, or all of it may be there.
    fn look_at_unit(&mut self, index: usize, it: &mut Packets, unit: u32) -> Result<(), Breach> {
        let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
        let Some(coming) = half.units.get_mut(&unit) else { return Ok(()) };
        if coming.header.is_none()
            && half.flow.has(unit, 0..HEADER_BYTES as u32)
            && let Home::Here(buf) = &coming.home
        {
            let plain = buf.whole()[UNIT_AT..].first_chunk().expect("a buf is longer than a header");
            let header = Header::decode(plain)?;
            coming.header = Some(header);
            self.check(index, &header)?;
            half.flow.set_len(unit, HEADER_BYTES as u32 + header.payload_bytes)?;
        }
        if half.flow.is_whole(unit) {
            self.unit_is_whole(index, it, unit);
        }
        Ok(())
    }

    fn unit_is_whole(&mut self, index: usize, it: &mut Packets, unit: u32) {
        let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
        let Some(coming) = half.units.get(&unit) else { return };
        match &coming.home {
            Home::Here(_) => {
                let coming = half.units.remove(&unit).expect("seen above");
                half.end(unit);
                let (Some(header), Home::Here(buf)) = (coming.header, coming.home) else {
                    unreachable!("a unit is whole only when its header told its length")
                };
                self.laps.lap(Stage::Recv);
                self.open(index, header, buf);
            }
            Home::There | Home::Leaving => self.spilled_is_whole(index, it, unit),
            Home::Over { .. } => self.unit_is_over(index, it, unit),
            Home::Checking => {}
        }
    }

    /// How many units may be open: those that are, and as many more as there are bufs for, or as have found room till now.
    fn set_grant(&mut self, index: usize, it: &mut Packets) {
        let receiving = self.rails.iter().flatten().filter(|rail| rail.is_receiving()).count() + 1; // this one is in hand
        let rail = self.rails[index].as_ref().expect("the caller has it");
        let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
        half.reach.look(it.counts.no_room, half.done);
        let available = if rail.hold {
            0
        } else {
            // A range can make room by going to disk; a pack cannot.
            let movable = half.units.values().filter(|coming| {
                matches!(coming.home, Home::Leaving)
                    || matches!((&coming.home, coming.header), (Home::Here(_), Some(header)) if header.kind == ChunkKind::Range)
            });
            let movable = movable.count();
            let free = self.platform.pool().free().saturating_sub(1) / receiving;
            (free + movable).max(half.reach.units as usize)
        };
        // What was granted stays granted: taking it back would only throw away what is on its way.
        let open = half.flow.stats().units;
        let owed = half.granted.saturating_sub(half.done);
        let units = open.saturating_add(available as u32).min(half.reach.most).max(owed).max(1);
        half.granted = half.granted.max(half.done.saturating_add(units));
        half.flow.grant(units);
    }

    /// Says what came, if it is time.
    fn send_feedback(&mut self, index: usize, it: &mut Packets, now: u64) {
        loop {
            let Half::Recv(half) = &mut it.half else { unreachable!("the caller looked") };
            let Some((number, feedback)) = half.flow.feedback(now) else { return };
            it.body.clear();
            it.body.resize(SMALL_HEAD_BYTES, 0);
            feedback.encode(&mut it.body, BODY_BYTES_MAX);
            // Lost or refused: the sender asks for it.
            let _ = self.say(index, it, Kind::Feedback, number);
        }
    }
}
