//! Datagram rails: the loop's steps for packets.
//!
//! For: hash → unit → packets on one side, packets → unit → check → write on the other; both halves join the loop as stream rails do.
//! In and out: filled chunks and sockets with something to receive in; bursts, ops, events and what is next out.
//! Invariants: sends and receives are calls that do not wait, whole bursts each; a forged, foreign or repeated packet changes a counter and
//! nothing else; one `Readable` op at most is in flight per rail.
//! Absent on purpose: what is lost, what goes next and how fast (`proto::flow`), keys (`seal::packet`), how sockets come about (app).
//!
//! Only `Readiness` knows that a socket has a descriptor that says when there is something to receive. Packet I/O without one is ready in each
//! iteration of the loop: it is polled there, and asks for no `Readable`.

mod recv; // the receiving half
mod send; // the sending half
mod slots; // bursts out of memory that the network reads itself
mod spill; // chunks that wait for repairs on disk instead of in memory

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::sync::Arc;

use proto::books::Stage;
use proto::flow::{FlowConfig, FlowReceiver, FlowSender};
use proto::packet::{Head, Kind};
use proto::rate::RateConfig;
use proto::wire::chunk::HEADER_BYTES;
use sys::mem::{Buf, HEADROOM};

use self::recv::Receiving;
use self::send::Sending;
use crate::ends::End;
use crate::ends::feed::Feed;
use crate::ends::pieces::is_again;
use crate::job::{Path, RailKey, Terms};
use crate::meter::{Meter, PathStats};
use crate::platform::{Arrived, Done, Op, Platform};
use crate::rail::{Base, Next};
use crate::seal::packet::Packer;
use crate::worker::cx::Cx;
use crate::worker::slots::{Kind as OpKind, Load, Slot};

/// Memory of a datagram rail beside its bufs: what comes in and goes out by the burst; a sender's slots with a page of headroom each, which are
/// more than a receiver's pieces.
pub const RAIL_BYTES: usize = slots::SLOTS_BYTES / 16 * 17 + (2 << 16);
const _: () = assert!(spill::PIECES_BYTES < slots::SLOTS_BYTES);
/// Where a unit begins in its buf: the header stands right before the payload.
const UNIT_AT: usize = HEADROOM - HEADER_BYTES;
/// UDP payload of one burst: what one call takes, less what 44 packets of an ordinary path leave of it.
const BURST_BYTES_MAX: usize = sys::udp::BURST_BYTES_MAX;
/// Bursts in or out per iteration of the loop, of all datagram rails: 2 MiB, some hundred µs, so that neither half starves the other nor another rail.
pub(crate) const BURSTS_PER_ITERATION: usize = 32;
/// The meter is written so often at the most.
const METER_NS: u64 = 10_000_000;
/// Bodies of control packets and feedbacks: 1200 bytes pass everywhere (RFC 9000, section 14), less head and tag.
const BODY_BYTES_MAX: usize = 1200 - crate::seal::packet::SMALL_HEAD_BYTES;

/// Unit numbers are their own hash: they count up.
#[derive(Debug, Default)]
struct UnitHasher(u64);

impl Hasher for UnitHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("units are hashed as u32")
    }
    fn write_u32(&mut self, unit: u32) {
        // Fibonacci hashing (Knuth, volume 3, section 6.4): the table looks at the high bits as well.
        self.0 = u64::from(unit).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Open units by number.
type UnitMap<T> = HashMap<u32, T, BuildHasherDefault<UnitHasher>>;

/// Whether there may be something to receive, and when it is worth looking.
#[derive(Debug, Default)]
struct Readiness {
    /// A `Readable` op is in flight.
    is_watched: bool,
    /// There may be something to receive.
    is_ready: bool,
    /// Interrupt moderation: what comes before then is left where it is, one wake-up for all of it. 0: no sleep.
    sleep_until_ns: u64,
    /// When something was received last.
    received_ns: u64,
}

impl Readiness {
    /// Something came and all of it was received. Where more is to be expected within `sleep_ns`, none of it is worth a wake-up of its own.
    fn begin_sleep(&mut self, now_ns: u64, sleep_ns: u64) {
        let expected = now_ns.saturating_sub(self.received_ns) <= 2 * sleep_ns;
        self.received_ns = now_ns;
        if sleep_ns > 0 && expected && !self.is_ready && !self.is_watched {
            self.sleep_until_ns = now_ns + sleep_ns;
        }
    }

    /// A sleep that is over ends.
    fn end_sleep(&mut self, now_ns: u64) {
        if self.sleep_until_ns > 0 && self.sleep_until_ns <= now_ns {
            (self.sleep_until_ns, self.is_ready) = (0, true);
        }
    }

    /// Is the platform to say when there is something?
    fn wants_watch(&self) -> bool {
        !self.is_watched && !self.is_ready && self.sleep_until_ns == 0
    }
}

/// A go at receiving, as far as it has got.
#[derive(Debug)]
struct Go {
    /// Bursts that may still be received in this iteration.
    bursts: usize,
    began_ns: u64,
    received: bool,
}

/// What both halves of a datagram rail have: socket, keys, and what was heard when.
pub(crate) struct Wire<P: Platform> {
    /// What every rail has.
    pub(crate) base: Base<P>,
    packer: Packer,
    tag: u32,
    inbox: Box<[u8]>,
    outbox: Box<[u8]>,
    body: Vec<u8>,
    readiness: Readiness,
    /// When something authentic came last, or when the wait for it began.
    heard_ns: u64,
    silence_ns: u64,
    /// When the rail wants another go at the latest.
    wake_ns: u64,
    counts: PathStats,
    meter: Arc<Meter>,
    metered_ns: u64,
}

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

/// Why a sending rail does nothing now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// It has nothing to send.
    Nothing,
    /// The path takes no more: pacing, the window, or a full socket.
    Path,
    /// The user's bound.
    Cap,
}

impl<P: Platform> Datagram<P> {
    /// A rail that sends, or that receives, over this path.
    pub(crate) fn new(now_ns: u64, base: Base<P>, path: Path, key: &RailKey, terms: &Terms, sends: bool) -> Self {
        let flow = FlowConfig { unit_bytes_max: HEADER_BYTES as u32 + terms.chunk_bytes, ..path.flow };
        let packet_bytes = usize::from(flow.packet_bytes_max);
        let half = if sends {
            let mut sender = FlowSender::new(now_ns, flow.clone());
            if let Some(seen) = path.seen {
                sender.start_from(seen);
            }
            Half::Send(Sending::new(sender, &flow))
        } else {
            Half::Recv(Receiving::new(FlowReceiver::new(now_ns, flow.clone()), &flow))
        };
        let wire = Wire {
            base,
            packer: Packer::new(key.secret, path.tag & 0xff_ffff, terms.cover, terms.cipher),
            tag: path.tag & 0xff_ffff,
            inbox: vec![0; 1 << 16].into(),
            outbox: vec![0; (1 << 16) + packet_bytes].into(),
            body: Vec::with_capacity(packet_bytes.max(2048)),
            readiness: Readiness { is_ready: true, ..Readiness::default() },
            heard_ns: now_ns,
            silence_ns: path.silence_ns,
            wake_ns: now_ns,
            counts: PathStats::default(),
            meter: path.meter,
            metered_ns: 0,
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

    /// The next unit that is to be read again.
    pub(crate) fn next_wanted(&mut self) -> Option<u32> {
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

    /// The rail is over.
    pub(crate) fn give_bufs(self, mut give: impl FnMut(Buf)) {
        self.write_meter();
        match self.half {
            Half::Send(half) => half.give_bufs(&mut give),
            Half::Recv(half) => half.give_bufs(&mut give),
        }
    }

    /// When the rail wants another go.
    pub(crate) fn wake_ns(&self) -> u64 {
        self.wire.wake_ns
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

    /// The rail goes on over another socket. Returns the old one: what is asked of it is to come back.
    pub(crate) fn move_to(&mut self, socket: P::Socket) -> P::Socket {
        self.wire.readiness.is_ready = true;
        self.wire.nudge();
        if let Half::Send(half) = &mut self.half {
            half.slots.moved();
        }
        std::mem::replace(&mut self.wire.base.socket, socket)
    }

    fn write_meter(&self) {
        match &self.half {
            Half::Send(half) => self.wire.write_meter(|stats| half.tell(stats)),
            Half::Recv(half) => self.wire.write_meter(|stats| half.tell(stats)),
        }
    }
}

impl<P: Platform> Wire<P> {
    /// Another go soon: something changed from outside.
    fn nudge(&mut self) {
        self.wake_ns = 0;
    }

    fn write_meter(&self, tell: impl FnOnce(&mut PathStats)) {
        let mut stats = self.counts;
        tell(&mut stats);
        self.meter.write(&stats);
    }

    /// Was nothing heard for too long although something is on its way?
    fn is_silent(&mut self, now_ns: u64, waiting: bool) -> bool {
        if !waiting {
            self.heard_ns = now_ns;
        }
        now_ns.saturating_sub(self.heard_ns) > self.silence_ns
    }

    /// A go at receiving begins.
    fn begin_receiving(&mut self, cx: &Cx<'_, P>) -> Go {
        let now = cx.platform.now_ns();
        self.readiness.end_sleep(now);
        Go { bursts: cx.share.bursts, began_ns: now, received: false }
    }

    /// The next burst, in the inbox.
    fn next_burst(&mut self, cx: &mut Cx<'_, P>, go: &mut Go) -> Option<Arrived> {
        while go.bursts > 0 && self.readiness.is_ready && !self.base.has_ended() {
            go.bursts -= 1;
            match cx.platform.recv_burst(&self.base.socket, &mut self.inbox) {
                Ok(arrived) => {
                    go.received = true;
                    cx.watch.lap(Stage::Recv);
                    return Some(arrived);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // What an ICMP error said of an earlier packet is reported once; silence decides, not such an error.
                    self.readiness.is_ready = false;
                    self.counts.hearsay += u64::from(!is_again(&error));
                }
            }
        }
        None
    }

    /// A go at receiving is over: the platform is asked to say when there is something, but for a sleep.
    fn end_receiving(&mut self, cx: &mut Cx<'_, P>, go: &Go, sleep_ns: u64) {
        if go.received {
            self.readiness.begin_sleep(go.began_ns, sleep_ns);
        }
        if self.readiness.wants_watch() && !self.base.has_ended() {
            self.readiness.is_watched = true;
            let socket = self.base.socket.clone();
            let slot = Slot { kind: OpKind::Readable, rail: cx.index, at: 0, done: 0, len: 0, load: Load::None };
            cx.submit(slot, Op::Readable { socket });
        }
    }

    /// Seals a control packet whose body stands in `body` behind its room and sends it. One that finds the socket full is lost like any packet.
    fn send_small(&mut self, cx: &mut Cx<'_, P>, kind: Kind, number: u64) -> io::Result<usize> {
        self.packer.seal_small(kind, number, &mut self.body);
        cx.watch.lap(Stage::Seal);
        let sent = cx.platform.send_sealed(&self.base.socket, &self.body, self.body.len());
        cx.watch.lap(Stage::Send);
        sent
    }
}

/// What a packet says of itself, before anybody believes it.
fn head_of(packet: &[u8], tag: u32) -> Option<Head> {
    let head = Head::decode(packet.first_chunk()?).ok()?;
    (head.tag == tag).then_some(head)
}

/// One go of a datagram rail, both ways: what came first, since it says what goes. What is next is done, then the go goes on, until `Idle`.
pub(crate) fn step<P: Platform>(rail: &mut Datagram<P>, end: &mut End<P>, cx: &mut Cx<'_, P>) -> Next {
    let next = match &mut rail.half {
        Half::Recv(half) => recv::step(&mut rail.wire, half, end.sink(), cx),
        Half::Send(half) => send::step(&mut rail.wire, half, cx),
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
    send::on_reload(&mut rail.wire, half, end.source(), cx, slot, done);
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
    spill::on_check(&mut rail.wire, half, end.sink(), cx, slot, done)
}

/// A unit of which something was lost gets this buf, to be read again into.
pub(crate) fn reload<P: Platform>(rail: &mut Datagram<P>, end: &mut End<P>, cx: &mut Cx<'_, P>, unit: u32, buf: Buf) {
    let Half::Send(half) = &mut rail.half else { unreachable!("only senders want units again") };
    send::reload(&mut rail.wire, half, end.source(), cx, unit, buf);
}

/// The rail ends: it says so if it can, nothing depends on it.
pub(crate) fn say_goodbye<P: Platform>(rail: &mut Datagram<P>, cx: &mut Cx<'_, P>) {
    if let Half::Send(half) = &mut rail.half {
        send::close(&mut rail.wire, half, cx);
    }
}
