//! Datagram rails: the loop's steps for packets.
//!
//! For: hash → unit → packets on one side, packets → unit → check → write on the other; both halves join the loop as stream rails do.
//! In and out: filled chunks and sockets with something to receive in; bursts, ops, events and what is next out.
//! Invariants: sends and receives are calls that do not wait, whole bursts each; a forged, foreign or repeated packet changes a counter and
//! nothing else; one `Readable` op at most is in flight per rail.
//! Absent on purpose: what is lost, what goes next and how fast (`proto::flow`), keys (`seal::packet`), how sockets come about (node).

mod wire; // what both halves have: socket, keys, readiness
mod left; // sockets that were left for another, still read
mod units; // units that come in, and where their bytes are
mod recv; // the receiving half
mod shelves; // memory of what is written in pieces
mod spill; // chunks that wait for repairs on disk instead of in memory
mod check; // and are read back when they are whole
mod send; // the sending half
mod feedback; // what it hears of the receiver
mod reload; // units read again, of which something was lost
mod slots; // bursts out of memory that the network reads itself

use proto::flow::{FlowConfig, FlowReceiver, FlowSender};
use proto::rate::RateConfig;
use proto::wire::chunk::HEADER_BYTES;
use sys::mem::Buf;

use self::send::Sending;
use self::units::Receiving;
pub(crate) use self::wire::Pause;
use self::wire::Wire;
use crate::ends::End;
use crate::ends::feed::Feed;
use crate::job::{Path, RailKey, Terms};
use crate::platform::{Done, Platform};
use crate::rail::base::Base;
use crate::worker::cx::{Cx, Next};
use crate::worker::slots::Slot;

/// Memory of a datagram rail beside its bufs: what comes in and goes out by the burst; a sender's slots with a page of headroom each, which are
/// more than a receiver's pieces.
pub const RAIL_BYTES: usize = slots::SLOTS_BYTES / 16 * 17 + (2 << 16);
const _: () = assert!(shelves::PIECES_BYTES < slots::SLOTS_BYTES);
/// Bursts in or out per iteration of the loop, of all datagram rails: 2 MiB, some hundred µs, so that neither half starves the other nor another rail.
pub(crate) const BURSTS_PER_ITERATION: usize = 32;
/// The meter is written so often at the most.
const METER_NS: u64 = 10_000_000;

/// A datagram rail.
pub(crate) struct Datagram<P: Platform> {
    /// What both halves have.
    pub(crate) wire: Wire<P>,
    half: Half<P>,
}

impl<P: Platform> std::fmt::Debug for Datagram<P> {
    /// Where it stands; neither packets nor tables.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Wire { base, readiness, heard_ns, wake_ns, counts, .. } = &self.wire;
        let half: &dyn std::fmt::Debug = match &self.half {
            Half::Send(half) => half,
            Half::Recv(half) => half,
        };
        f.debug_struct("Datagram")
            .field("rail", &base.number)
            .field("half", half)
            .field("readiness", readiness)
            .field("heard_ns", heard_ns)
            .field("wake_ns", wake_ns)
            .field("counts", counts)
            .finish_non_exhaustive()
    }
}

/// One of these per rail, in the rail's box.
#[allow(clippy::large_enum_variant, reason = "a rail is one or the other for good")]
enum Half<P: Platform> {
    Send(Sending<P>),
    Recv(Receiving),
}

impl<P: Platform> Datagram<P> {
    /// A rail that sends, or that receives, over this path.
    pub(crate) fn new(platform: &P, base: Base<P>, path: Path, key: &RailKey, terms: &Terms, sends: bool) -> Self {
        let now_ns = platform.now_ns();
        let is_polled = platform.is_polled(&base.socket);
        let wire = Wire::new(now_ns, base, &path, key, terms, is_polled);
        let flow = FlowConfig { unit_bytes_max: HEADER_BYTES as u32 + terms.chunk_bytes, ..path.flow };
        let half = if sends {
            let mut sender = FlowSender::new(now_ns, flow.clone());
            sender.set_clock(platform.shared_ahead_ns());
            sender.set_job(path.job_bytes);
            if let Some(seen) = path.seen {
                sender.start_from(seen);
            }
            Half::Send(Sending::new(sender, &flow))
        } else {
            Half::Recv(Receiving::new(FlowReceiver::new(now_ns, flow.clone()), &flow))
        };
        Datagram { wire, half }
    }

    /// The chunks that wait for it, if it sends.
    pub(crate) fn feed(&mut self) -> Option<&mut Feed<P::File>> {
        self.sending().map(|half| &mut half.feed)
    }

    fn sending(&mut self) -> Option<&mut Sending<P>> {
        match &mut self.half {
            Half::Send(half) => Some(half),
            Half::Recv(_) => None,
        }
    }

    /// The next unit that is to be read again, and whether a part of it is at the receiver.
    pub(crate) fn next_wanted(&mut self) -> Option<(u32, bool)> {
        self.sending()?.next_wanted()
    }

    /// There is no buf for this unit: it is the next again.
    pub(crate) fn want_later(&mut self, unit: u32) {
        if let Some(half) = self.sending() {
            half.want_later(unit);
        }
    }

    /// Lets go of a unit's buf.
    pub(crate) fn unload(&mut self, unit: u32) -> Option<Buf> {
        self.wire.counts.unloaded += 1;
        self.sending()?.unload(unit)
    }

    /// Lets go of the buf of a unit of which nothing has arrived.
    pub(crate) fn unload_unarrived(&mut self) -> Option<Buf> {
        let buf = self.sending()?.unload_unarrived()?;
        self.wire.counts.unloaded += 1;
        Some(buf)
    }

    /// The rail is over.
    pub(crate) fn give_bufs(self, mut give: impl FnMut(Buf)) {
        self.write_meter();
        match self.half {
            Half::Send(half) => half.give_bufs(&mut give),
            Half::Recv(half) => half.give_bufs(&mut give),
        }
    }

    /// When the rail wants another go; one that is polled wants it at once.
    pub(crate) fn wake_ns(&self) -> u64 {
        if self.wire.readiness.is_polled { 0 } else { self.wire.wake_ns }
    }

    /// Why it sends nothing now.
    pub(crate) fn pause(&self) -> Pause {
        match &self.half {
            Half::Send(half) => half.pause,
            Half::Recv(_) => Pause::Nothing,
        }
    }

    /// Do chunks come in here?
    pub(crate) fn is_receiving(&self) -> bool {
        matches!(self.half, Half::Recv(_))
    }

    /// Has it memory from which the network reads bursts itself?
    pub(crate) fn lends_bursts(&self) -> bool {
        matches!(&self.half, Half::Send(half) if half.slots.are_made())
    }

    /// The unit with a buf of which nothing waits to be sent, sent longest ago: when, and which.
    pub(crate) fn oldest_sent(&self) -> Option<(u64, u32)> {
        match &self.half {
            Half::Send(half) => half.oldest_sent(),
            Half::Recv(_) => None,
        }
    }

    /// Another rate from now on.
    pub(crate) fn set_rate(&mut self, now_ns: u64, change: impl FnOnce(RateConfig) -> RateConfig) {
        if let Half::Send(half) = &mut self.half {
            half.set_rate(now_ns, change);
        }
        self.wire.nudge();
    }

    /// Does it wait for its source?
    pub(crate) fn is_starved(&self) -> bool {
        match &self.half {
            Half::Send(half) => half.feed.filled.is_empty() && half.unsent == 0,
            Half::Recv(_) => false,
        }
    }

    /// The rail goes on over another socket.
    pub(crate) fn move_to(&mut self, platform: &mut P, socket: P::Socket) {
        if let Half::Send(half) = &mut self.half {
            half.slots.moved();
        }
        let wire = &mut self.wire;
        wire.readiness.is_polled = platform.is_polled(&socket);
        wire.readiness.is_ready = true;
        wire.nudge();
        let old = std::mem::replace(&mut wire.base.socket, socket);
        // What was asked of it comes back.
        platform.cut(&old);
        wire.left.leave(platform.now_ns(), old);
    }

    fn write_meter(&self) {
        match &self.half {
            Half::Send(half) => self.wire.write_meter(|stats| half.tell(stats)),
            Half::Recv(half) => self.wire.write_meter(|stats| half.tell(stats)),
        }
    }
}

/// One go of a datagram rail, both ways: what came first, since it says what goes. What is next is done, then the go goes on, until `Idle`.
pub(crate) fn step<P: Platform>(rail: &mut Datagram<P>, end: &mut End<P>, cx: &mut Cx<'_, P>) -> Next {
    let next = match &mut rail.half {
        Half::Recv(half) => recv::step(&mut rail.wire, half, end.sink(), cx),
        Half::Send(half) => {
            if half.begins_go() {
                feedback::receive_feedback(&mut rail.wire, half, cx);
            }
            send::step(&mut rail.wire, half, cx)
        }
    };
    if matches!(next, Next::Idle) {
        // Lets others see how it goes, now and then.
        let now = cx.platform.now_ns();
        if now.saturating_sub(rail.wire.metered_ns) >= METER_NS {
            rail.wire.metered_ns = now;
            rail.write_meter();
        }
    }
    next
}

/// The socket has something, or was cut.
pub(crate) fn on_readable<P: Platform>(rail: &mut Datagram<P>) {
    (rail.wire.readiness.is_watched, rail.wire.readiness.is_ready) = (false, true);
    rail.wire.nudge();
}

/// A read for a unit that is to be sent again came back.
pub(crate) fn on_reload<P: Platform>(
    rail: &mut Datagram<P>,
    end: &mut End<P>,
    cx: &mut Cx<'_, P>,
    slot: Slot,
    done: Done,
) {
    let Half::Send(half) = &mut rail.half else { unreachable!("reloads are the sender's") };
    reload::on_reload(&mut rail.wire, half, end.source(), cx, slot, done);
}

/// A write of a unit that waits on disk came back.
pub(crate) fn on_spilled<P: Platform>(
    rail: &mut Datagram<P>,
    end: &mut End<P>,
    cx: &mut Cx<'_, P>,
    slot: Slot,
    done: Done,
) {
    let Half::Recv(half) = &mut rail.half else { unreachable!("spills are the receiver's") };
    spill::on_spilled(&mut rail.wire, half, end.sink(), cx, slot, done);
}

/// A unit that became whole on disk was read back.
pub(crate) fn on_check<P: Platform>(
    rail: &mut Datagram<P>,
    end: &mut End<P>,
    cx: &mut Cx<'_, P>,
    slot: Slot,
    done: Done,
) -> Next {
    let Half::Recv(half) = &mut rail.half else { unreachable!("checks are the receiver's") };
    check::on_check(&mut rail.wire, half, end.sink(), cx, slot, done)
}

/// A unit of which something was lost gets this buf, to be read again into.
pub(crate) fn reload<P: Platform>(rail: &mut Datagram<P>, end: &mut End<P>, cx: &mut Cx<'_, P>, unit: u32, buf: Buf) {
    let Half::Send(half) = &mut rail.half else { unreachable!("only senders want units again") };
    self::reload::reload(&mut rail.wire, half, end.source(), cx, unit, buf);
}

/// The rail ends: it says so if it can, nothing depends on it.
pub(crate) fn say_goodbye<P: Platform>(rail: &mut Datagram<P>, cx: &mut Cx<'_, P>) {
    if let Half::Send(half) = &mut rail.half {
        send::close(&mut rail.wire, half, cx);
    }
}
