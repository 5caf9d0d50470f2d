//! Datagram rails: the loop's steps for packets.
//!
//! For: hash → unit → packets on one side, packets → unit → check → write on the other; both halves join the loop as stream rails do.
//! In and out: handouts and readable sockets in; bursts, ops and events out.
//! Invariants: sends and receives are calls that do not wait, whole bursts each; a forged, foreign or repeated packet changes a counter and
//! nothing else; one `Readable` op at most is in flight per rail.
//! Absent on purpose: what is lost, what goes next and how fast (`proto::flow`), keys (`packets`), how sockets come about (app).

mod recv; // the receiving half
mod send; // the sending half
mod slots; // bursts out of memory that the network reads itself
mod spill; // chunks that wait for repairs on disk instead of in memory

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::sync::Arc;

use proto::flow::{FlowConfig, FlowReceiver, FlowSender};
use proto::packet::{Head, Kind};
use proto::rate::RateConfig;
use proto::wire::chunk::HEADER_BYTES;
use sys::mem::{Buf, HEADROOM, Mem};

use self::recv::Receiving;
use self::send::Sending;
use crate::job::{Path, RailKey, Terms};
use crate::meter::{Meter, PathStats};
use crate::platform::{Done, Op, Platform};
use crate::rail::stream::is_again;
use crate::rail::{Kind as OpKind, Load, Slot};
use crate::seal::packet::Packer;
use crate::worker::Worker;

/// Memory of a datagram rail beside its bufs: what comes in and goes out by the burst; a sender's slots with a page of headroom each, which are
/// more than a receiver's pieces.
pub const RAIL_BYTES: usize = slots::SLOTS_BYTES / 16 * 17 + (2 << 16);
const _: () = assert!(spill::PIECES_BYTES < slots::SLOTS_BYTES);
/// Where a unit begins in its buf: the header stands right before the payload.
const UNIT_AT: usize = HEADROOM - HEADER_BYTES;
/// UDP payload of one burst: what one call takes, less what 44 packets of an ordinary path leave of it.
const BURST_BYTES_MAX: usize = sys::udp::BURST_BYTES_MAX;
/// Bursts in or out per turn of the loop, of all datagram rails: 2 MiB, some hundred µs, so that neither half starves the other nor another rail.
pub(crate) const BURSTS_PER_TURN: usize = 32;
/// The meter is written so often at the most.
const METER_NS: u64 = 10_000_000;
/// Bodies of words and feedbacks: 1200 bytes pass everywhere (RFC 9000, section 14), less head and tag.
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

/// What a datagram rail has beside a rail.
pub(crate) struct Packets {
    packer: Packer,
    tag: u32,
    half: Half,
    inbox: Box<[u8]>,
    outbox: Box<[u8]>,
    body: Vec<u8>,
    /// A `Readable` op is in flight.
    watching: bool,
    /// There may be something to receive.
    ready: bool,
    /// What comes before then is left where it is: one wake-up for all of it. 0: no nap.
    nap_until_ns: u64,
    /// When something was received last.
    took_ns: u64,
    /// When something that held came last, or when the wait for it began.
    heard_ns: u64,
    silence_ns: u64,
    /// When the rail wants another turn at the latest.
    wake_ns: u64,
    counts: PathStats,
    meter: Arc<Meter>,
    metered_ns: u64,
}

impl std::fmt::Debug for Packets {
    /// Where it stands; neither packets nor tables.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Packets { half, watching, ready, heard_ns, wake_ns, counts, .. } = self;
        let fields = [("watching", *watching), ("ready", *ready)];
        f.debug_struct("Packets")
            .field("half", half)
            .field("flags", &fields)
            .field("heard_ns", heard_ns)
            .field("wake_ns", wake_ns)
            .field("counts", counts)
            .finish_non_exhaustive()
    }
}

/// One of these per rail, in the rail's box.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
enum Half {
    Send(Sending),
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

impl Packets {
    pub(crate) fn new(now_ns: u64, path: Path, key: &RailKey, terms: &Terms, sends: bool) -> Self {
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
        Packets {
            packer: Packer::new(key.secret, path.tag & 0xff_ffff, terms.cover, terms.cipher),
            tag: path.tag & 0xff_ffff,
            half,
            inbox: vec![0; 1 << 16].into(),
            outbox: vec![0; (1 << 16) + packet_bytes].into(),
            body: Vec::with_capacity(packet_bytes.max(2048)),
            watching: false,
            ready: true,
            nap_until_ns: 0,
            took_ns: 0,
            heard_ns: now_ns,
            silence_ns: path.silence_ns,
            wake_ns: now_ns,
            counts: PathStats::default(),
            meter: path.meter,
            metered_ns: 0,
        }
    }

    /// The rail is over.
    pub(crate) fn take_bufs(&mut self) -> Vec<Buf> {
        self.write_meter();
        match &mut self.half {
            Half::Send(half) => half.take_bufs(),
            Half::Recv(half) => half.take_bufs(),
        }
    }

    /// When the rail wants another turn.
    pub(crate) fn wake_ns(&self) -> u64 {
        self.wake_ns
    }

    pub(crate) fn pause(&self) -> Pause {
        match &self.half {
            Half::Send(half) => half.pause,
            Half::Recv(_) => Pause::Nothing,
        }
    }

    pub(crate) fn is_receiving(&self) -> bool {
        matches!(self.half, Half::Recv(_))
    }

    /// Another turn soon: something changed from outside.
    pub(crate) fn nudge(&mut self) {
        self.wake_ns = 0;
    }

    pub(crate) fn set_rate(&mut self, now_ns: u64, change: impl FnOnce(RateConfig) -> RateConfig) {
        if let Half::Send(half) = &mut self.half {
            half.set_rate(now_ns, change);
        }
        self.nudge();
    }

    /// Does it wait for its source?
    pub(crate) fn is_starved(&self) -> bool {
        match &self.half {
            Half::Send(half) => half.unsent == 0,
            Half::Recv(_) => false,
        }
    }

    /// Lets others see how it goes, now and then.
    fn tell_meter(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.metered_ns) < METER_NS {
            return;
        }
        self.metered_ns = now_ns;
        self.write_meter();
    }

    fn write_meter(&mut self) {
        let mut stats = self.counts;
        match &self.half {
            Half::Send(half) => half.tell(&mut stats),
            Half::Recv(half) => half.tell(&mut stats),
        }
        self.meter.write(&stats);
    }

    /// Something came and all of it was taken. Where more is to be expected within a nap, none of it is worth a wake-up of its own.
    fn begin_nap(&mut self, now_ns: u64) {
        let nap_ns = match &self.half {
            Half::Recv(half) => half.flow.nap_ns(),
            Half::Send(_) => 0,
        };
        let expected = now_ns.saturating_sub(self.took_ns) <= 2 * nap_ns;
        self.took_ns = now_ns;
        if nap_ns > 0 && expected && !self.ready && !self.watching {
            self.nap_until_ns = now_ns + nap_ns;
        }
    }

    /// Was nothing heard for too long although something is on its way?
    fn is_silent(&mut self, now_ns: u64, waiting: bool) -> bool {
        if !waiting {
            self.heard_ns = now_ns;
        }
        now_ns.saturating_sub(self.heard_ns) > self.silence_ns
    }
}

/// What a packet says of itself, before anybody believes it.
fn head_of(packet: &[u8], tag: u32) -> Option<Head> {
    let head = Head::decode(packet.first_chunk()?).ok()?;
    (head.tag == tag).then_some(head)
}

impl<P: Platform> Worker<P> {
    /// One go of a datagram rail, both ways: what came first, since it says what goes.
    pub(crate) fn step_packets(&mut self, index: usize) {
        let rail = self.rails[index].as_mut().expect("the loop looked");
        let mut it = rail.packets.take().expect("the caller looked");
        if it.is_receiving() {
            self.recv_packets(index, &mut it);
        } else {
            self.receive(index, &mut it, |worker, it, bytes, arrived| {
                for range in arrived.packets() {
                    worker.take_feedback(index, it, &mut bytes[range]);
                }
            });
            if !self.rails[index].as_ref().is_some_and(|rail| rail.has_ended()) {
                self.send_packets(index, &mut it);
            }
        }
        it.tell_meter(self.platform.now_ns());
        self.rails[index].as_mut().expect("a rail goes in `settle` only").packets = Some(it);
    }

    /// Receives what there is, burst by burst, and hands it to the half that `take` is.
    fn receive(
        &mut self,
        index: usize,
        it: &mut Packets,
        mut take: impl FnMut(&mut Self, &mut Packets, &mut [u8], crate::platform::Arrived),
    ) {
        let began = self.platform.now_ns();
        if it.nap_until_ns > 0 && it.nap_until_ns <= began {
            (it.nap_until_ns, it.ready) = (0, true);
        }
        let mut inbox = std::mem::take(&mut it.inbox);
        let mut took = false;
        for _ in 0..self.bursts {
            let rail = self.rails[index].as_ref().expect("the caller has it");
            if !it.ready || rail.has_ended() {
                break;
            }
            match self.platform.recv_burst(&rail.socket, &mut inbox) {
                Ok(arrived) => {
                    took = true;
                    self.laps.lap(proto::books::Stage::Recv);
                    take(self, it, &mut inbox[..arrived.bytes], arrived);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // What an ICMP message said of an earlier packet is told once; silence decides, not hearsay.
                    it.ready = false;
                    it.counts.hearsay += u64::from(!is_again(&error));
                }
            }
        }
        it.inbox = inbox;
        if took {
            it.begin_nap(began);
        }
        self.watch(index, it);
    }

    /// Asks to be told when the socket has something, but for a nap.
    fn watch(&mut self, index: usize, it: &mut Packets) {
        let rail = self.rails[index].as_mut().expect("the caller has it");
        if it.watching || it.ready || it.nap_until_ns > 0 || rail.has_ended() {
            return;
        }
        it.watching = true;
        rail.ops += 1;
        let socket = rail.socket.clone();
        let slot = Slot { kind: OpKind::Readable, rail: index, at: 0, done: 0, len: 0, load: Load::None };
        let token = self.slots.put(slot);
        self.platform.submit(token, Op::Readable { socket });
    }

    /// The socket has something, or was cut.
    pub(crate) fn on_readable(&mut self, slot: &Slot, done: Done) {
        drop(done);
        let rail = self.rail(slot);
        rail.ops -= 1;
        let packets = rail.packets.as_mut().expect("only datagram rails ask for this");
        (packets.watching, packets.ready, packets.wake_ns) = (false, true, 0);
    }

    /// Seals a word whose body stands in `it.body` behind its room and sends it. A word that finds the socket full is lost like any packet.
    fn say(&mut self, index: usize, it: &mut Packets, kind: Kind, number: u64) -> io::Result<usize> {
        it.packer.seal_small(kind, number, &mut it.body);
        self.laps.lap(proto::books::Stage::Seal);
        let rail = self.rails[index].as_ref().expect("the caller has it");
        let sent = self.platform.send_sealed(&rail.socket, &it.body, it.body.len());
        self.laps.lap(proto::books::Stage::Send);
        sent
    }

    /// A datagram rail ends: it says so if it can, nothing depends on it.
    pub(crate) fn say_goodbye(&mut self, index: usize) {
        let rail = self.rails[index].as_mut().expect("the caller has it");
        let Some(mut it) = rail.packets.take() else { return };
        self.last_word(index, &mut it);
        self.rails[index].as_mut().expect("seen above").packets = Some(it);
    }

    /// The rail goes on over another socket.
    pub(crate) fn move_rail(&mut self, index: usize, socket: P::Socket) {
        let rail = self.rails[index].as_mut().expect("the caller has it");
        let old = std::mem::replace(&mut rail.socket, socket);
        if let Some(packets) = &mut rail.packets {
            packets.ready = true;
            packets.nudge();
            if let Half::Send(half) = &mut packets.half {
                half.slots.moved();
            }
        }
        // The old one's `Readable` comes back, and the next one is for the new one.
        self.platform.cut(&old);
    }

    /// Gives back what an op of an ended rail had.
    fn drop_mem(&mut self, index: usize, mem: Mem) {
        self.rails[index].as_mut().expect("a rail stays until its ops are back").ops -= 1;
        self.give(mem);
    }
}
