//! The receiving half: packets become units, whole units are checked and land.
//!
//! For: everything between the network and a chunk that is opened, on a datagram rail.
//! In and out: bursts in; feedback, and whole chunks for the same path as a stream rail's, out.
//! Invariants: a packet is authenticated before anything follows from it; a sealed packet is opened straight into its place only where nothing
//! was taken for yet, so that a forged one destroys nothing; a unit gets a buf only after its first packet held.
//! Absent on purpose: what is missing and when to say so (`proto::flow`), chunks on disk that are not whole (`spill`).

use std::io;

use proto::books::Stage;
use proto::error::Breach;
use proto::flow::Placed;
use proto::packet::{Control, Kind, expand};
use proto::wire::chunk::{ChunkKind, HEADER_BYTES, Header, TAG_BYTES};
use sys::mem::Buf;

use super::check;
use super::spill;
use super::units::{Burst, Coming, Home, Receiving};
use super::wire::{BODY_BYTES_MAX, UNIT_AT, Wire, head_of};
use crate::ends::file_sink::FileSink;
use crate::job::RailEnd;
use crate::platform::Platform;
use crate::seal::packet::{BURST_PACKETS_MAX, HEAD_BYTES, Place, SMALL_HEAD_BYTES};
use crate::worker::cx::{Cx, Next};

/// A data packet whose head was read.
#[derive(Debug, Clone, Copy)]
struct Packet {
    number: u64,
    place: Place,
    pad: [u8; TAG_BYTES],
    marked: bool,
    now: u64,
}

/// One go of the receiving half, or the rest of one.
pub(super) fn step<P: Platform>(
    wire: &mut Wire<P>,
    half: &mut Receiving,
    sink: &mut FileSink<P>,
    cx: &mut Cx<'_, P>,
) -> Next {
    let mut go = half.go.take().unwrap_or_else(|| wire.begin_receiving(cx));
    loop {
        if let Some(mut burst) = half.burst.take() {
            let whole = take_burst(wire, half, sink, cx, &mut burst);
            if let Some((header, buf)) = whole {
                (half.go, half.burst) = (Some(go), Some(burst));
                return Next::Received { header, buf };
            }
            if !wire.base.has_ended() {
                let now = cx.platform.now_ns();
                send_feedback(wire, half, cx, now);
            }
        }
        let Some(arrived) = wire.next_burst(cx, &mut go) else { break };
        let now_ns = cx.platform.now_ns().saturating_sub(arrived.waited_ns).max(wire.heard_ns);
        half.burst = Some(Burst { arrived, now_ns, packets: 0, count: 0, at: 0 });
    }
    wire.end_receiving(cx, &go, half.flow.nap_ns());
    if wire.base.has_ended() {
        return Next::Idle;
    }
    check::check_spilled(half, sink, cx);
    spill::spill_units(wire, half, sink, cx);
    set_grant(wire, half, cx);
    let now = cx.platform.now_ns();
    send_feedback(wire, half, cx, now);
    let waiting = !half.units.is_empty();
    let mut wake = half.flow.next_at();
    if wire.is_silent(now, waiting) {
        wire.base.break_off(cx.platform, RailEnd::Fault(io::ErrorKind::TimedOut.into()));
        return Next::Idle;
    }
    if waiting {
        wake = wake.min(wire.heard_ns.saturating_add(wire.silence_ns + 1));
    }
    if wire.readiness.sleep_until_ns > 0 {
        wake = wake.min(wire.readiness.sleep_until_ns);
    }
    wire.wake_ns = if wire.readiness.is_ready { now } else { wake };
    Next::Idle
}

/// Takes the packets of a burst until a unit is whole, which is returned; `None`: all of them were taken, or the rail ended.
fn take_burst<P: Platform>(
    wire: &mut Wire<P>,
    half: &mut Receiving,
    sink: &mut FileSink<P>,
    cx: &mut Cx<'_, P>,
    burst: &mut Burst,
) -> Option<(Header, Buf)> {
    // Away while packets are opened, which need all else of the wire.
    let mut inbox = std::mem::take(&mut wire.inbox);
    let whole = take_packets(wire, half, sink, cx, burst, &mut inbox);
    wire.inbox = inbox;
    whole
}

fn take_packets<P: Platform>(
    wire: &mut Wire<P>,
    half: &mut Receiving,
    sink: &mut FileSink<P>,
    cx: &mut Cx<'_, P>,
    burst: &mut Burst,
    bytes: &mut [u8],
) -> Option<(Header, Buf)> {
    loop {
        while burst.at < burst.count {
            if burst.at > 0 && wire.base.has_ended() {
                return None;
            }
            let at = burst.at;
            burst.at += 1;
            let range = half.ranges[at].clone();
            let packet = Packet {
                number: half.numbers[at],
                place: half.places[at],
                pad: half.pads[at],
                marked: burst.arrived.marked,
                now: burst.now_ns,
            };
            match take_packet(wire, half, sink, cx, packet, &mut bytes[range]) {
                Ok(None) => {}
                Ok(whole) => return whole,
                Err(breach) => {
                    wire.base.break_off(cx.platform, RailEnd::Breach(breach));
                    return None;
                }
            }
        }
        if burst.count > 0 && wire.base.has_ended() {
            return None;
        }
        if burst.packets > 0 && burst.count < BURST_PACKETS_MAX {
            cx.watch.lap(Stage::Recv);
            return None;
        }
        gather(wire, half, cx, burst, bytes);
        if !wire.packer.is_sealed() {
            let count = burst.count;
            wire.packer.pads(&half.numbers[..count], &half.places[..count], &mut half.pads[..count]);
            cx.watch.lap(Stage::Seal);
        }
        if burst.count == 0 {
            cx.watch.lap(Stage::Recv);
            return None;
        }
    }
}

/// Reads the heads of the next data packets; control packets are obeyed at once.
fn gather<P: Platform>(
    wire: &mut Wire<P>,
    half: &mut Receiving,
    cx: &mut Cx<'_, P>,
    burst: &mut Burst,
    bytes: &mut [u8],
) {
    (burst.count, burst.at) = (0, 0);
    let mut rest = burst.arrived.packets().skip(burst.packets);
    while burst.count < BURST_PACKETS_MAX {
        let Some(range) = rest.next() else { break };
        burst.packets += 1;
        let packet = &mut bytes[range.clone()];
        let (head, place) = (head_of(packet, wire.tag), Place::of(packet));
        match (head, place) {
            (Some(head), Some(place)) if head.kind == Kind::Data && packet.len() > HEAD_BYTES => {
                half.numbers[burst.count] = expand(head.low, half.flow.expected());
                half.places[burst.count] = place;
                half.ranges[burst.count] = range;
                burst.count += 1;
            }
            (Some(head), _) if head.kind == Kind::Control => {
                let number = expand(head.low, half.flow.expected());
                on_control(wire, half, cx, number, packet, burst.now_ns);
            }
            _ => wire.counts.foreign += 1,
        }
    }
}

fn on_control<P: Platform>(
    wire: &mut Wire<P>,
    half: &mut Receiving,
    cx: &mut Cx<'_, P>,
    number: u64,
    packet: &mut [u8],
    now: u64,
) {
    if !half.flow.wants(number) {
        return;
    }
    let Some(body) = wire.packer.open_small(Kind::Control, number, packet) else {
        wire.counts.forged += 1;
        return;
    };
    wire.heard_ns = now;
    let heard = Control::decode(body).and_then(|control| half.flow.on_control(now, number, &control).map(|()| control));
    match heard {
        Ok(Control::Close) => wire.base.break_off(cx.platform, RailEnd::Closed),
        Ok(_) => {}
        Err(breach) => wire.base.break_off(cx.platform, RailEnd::Breach(breach)),
    }
}

/// One data packet: held against its tag, then told to the flow, then put into its place.
fn take_packet<P: Platform>(
    wire: &mut Wire<P>,
    half: &mut Receiving,
    sink: &mut FileSink<P>,
    cx: &mut Cx<'_, P>,
    it: Packet,
    packet: &mut [u8],
) -> Result<Option<(Header, Buf)>, Breach> {
    if !half.flow.wants(it.number) {
        return Ok(None);
    }
    let Place { unit, offset, .. } = it.place;
    let len = packet.len() - HEAD_BYTES;
    let mut there = false;
    let holds = if wire.packer.is_sealed() {
        match half.units.get_mut(&unit) {
            Some(Coming { home: Home::Here(buf), fresh_from, .. })
                if offset >= *fresh_from && UNIT_AT + offset as usize + len <= buf.whole().len() =>
            {
                there = true;
                let at = UNIT_AT + offset as usize;
                wire.packer.open_into(it.number, packet, &mut buf.whole_mut()[at..at + len])
            }
            _ => wire.packer.open_here(it.number, packet),
        }
    } else {
        wire.packer.holds(it.number, it.place, it.pad, packet)
    };
    if !holds {
        wire.counts.forged += 1;
        return Ok(None);
    }
    wire.heard_ns = it.now;
    if !wire.base.bound.limit.takes(it.now, packet.len() as u64) {
        // Faster than was told: as if it had been lost.
        return Ok(None);
    }
    put_packet(wire, half, sink, cx, it, &packet[HEAD_BYTES..], there)
}

/// A packet that held. `there`: its bytes stand in their place already.
fn put_packet<P: Platform>(
    wire: &mut Wire<P>,
    half: &mut Receiving,
    sink: &mut FileSink<P>,
    cx: &mut Cx<'_, P>,
    it: Packet,
    bytes: &[u8],
    there: bool,
) -> Result<Option<(Header, Buf)>, Breach> {
    let Place { unit, offset, .. } = it.place;
    let end = offset.saturating_add(bytes.len() as u32);
    let mut fresh_buf = None;
    let has_room = match half.units.get(&unit).map(|coming| &coming.home) {
        Some(Home::Leaving | Home::There) => half.spill.has_room(unit, offset, bytes.len()),
        Some(_) => true,
        None => {
            // One stays for units that are whole on disk: they are nearer to the end.
            let kept = usize::from(!half.checks.is_empty());
            let pool = cx.platform.pool();
            fresh_buf = if pool.free() > kept { pool.take() } else { None };
            fresh_buf.is_some()
        }
    };
    if !has_room {
        // As if it had been lost: it will be sent again.
        wire.counts.no_room += 1;
        return Ok(None);
    }
    let placed = half.flow.on_data(it.now, it.number, unit, offset, bytes.len() as u32, it.marked);
    if !matches!(placed, Ok(Placed::New)) {
        if let Some(buf) = fresh_buf {
            cx.give_buf(buf);
        }
        wire.counts.no_room += u64::from(matches!(placed, Ok(Placed::NoRoom)));
        return placed.map(|_| None);
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
        Home::Leaving | Home::There => spill::put_piece(half, sink, cx, unit, offset, bytes),
        _ => {}
    }
    look_at_unit(half, sink, cx, unit)
}

/// Something new of a unit came: its header may be known now, or all of it may be there. Then it is returned, if it is in memory.
fn look_at_unit<P: Platform>(
    half: &mut Receiving,
    sink: &mut FileSink<P>,
    cx: &mut Cx<'_, P>,
    unit: u32,
) -> Result<Option<(Header, Buf)>, Breach> {
    let Some(coming) = half.units.get_mut(&unit) else { return Ok(None) };
    if coming.header.is_none()
        && half.flow.has(unit, 0..HEADER_BYTES as u32)
        && let Home::Here(buf) = &coming.home
    {
        let plain = buf.whole()[UNIT_AT..].first_chunk().expect("a buf is longer than a header");
        let header = Header::decode(plain)?;
        coming.header = Some(header);
        sink.check(&cx.terms, &header)?;
        half.flow.set_len(unit, HEADER_BYTES as u32 + header.payload_bytes)?;
    }
    if !half.flow.is_whole(unit) {
        return Ok(None);
    }
    let Some(coming) = half.units.get(&unit) else { return Ok(None) };
    match &coming.home {
        Home::Here(_) => {
            let coming = half.units.remove(&unit).expect("seen above");
            half.end(unit);
            let (Some(header), Home::Here(buf)) = (coming.header, coming.home) else {
                unreachable!("a unit is whole only when its header told its length")
            };
            cx.watch.lap(Stage::Recv);
            return Ok(Some((header, buf)));
        }
        Home::There | Home::Leaving => spill::on_whole(half, cx, unit),
        Home::Over { .. } => spill::unit_is_over(half, cx, unit),
        Home::Checking => {}
    }
    Ok(None)
}

/// How many units may be open: those that are, and as many more as there are bufs for, or as have found room till now.
fn set_grant<P: Platform>(wire: &Wire<P>, half: &mut Receiving, cx: &mut Cx<'_, P>) {
    half.window.look(wire.counts.no_room, half.done);
    let available = if wire.base.paused {
        0
    } else {
        // A range can make room by going to disk; a pack cannot.
        let movable = half.units.values().filter(|coming| {
            matches!(coming.home, Home::Leaving)
                || matches!((&coming.home, coming.header), (Home::Here(_), Some(header)) if header.kind == ChunkKind::Range)
        });
        let movable = movable.count();
        let free = cx.platform.pool().free().saturating_sub(1) / cx.share.receivers.max(1);
        (free + movable).max(half.window.units as usize)
    };
    // What was granted stays granted: taking it back would only throw away what is on its way.
    let open = half.flow.stats().units;
    let outstanding = half.granted.saturating_sub(half.done);
    let units = open.saturating_add(available as u32).min(half.window.most).max(outstanding).max(1);
    half.granted = half.granted.max(half.done.saturating_add(units));
    half.flow.grant(units);
}

/// Says what came, if it is time.
fn send_feedback<P: Platform>(wire: &mut Wire<P>, half: &mut Receiving, cx: &mut Cx<'_, P>, now: u64) {
    while let Some((number, feedback)) = half.flow.feedback(now) {
        wire.body.clear();
        wire.body.resize(SMALL_HEAD_BYTES, 0);
        feedback.encode(&mut wire.body, BODY_BYTES_MAX);
        // Lost or refused: the sender asks for it.
        let _ = wire.send_small(cx, Kind::Feedback, number);
    }
}
