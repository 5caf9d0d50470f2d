//! What both halves of a datagram rail have: socket, keys, and what was heard when.
//!
//! For: bursts off the network and control packets onto it.
//! In and out: a socket with something to receive in, bursts in the inbox out; bodies of control packets in.
//! Invariants: sends and receives are calls that do not wait; one `Readable` op at most is in flight per rail.
//! Absent on purpose: what packets mean (the halves).
//!
//! Only `Readiness` knows whether a socket has a descriptor that says when there is something to receive. One without is polled: it is looked at
//! in each iteration of the loop, which does not sleep meanwhile, and no `Readable` is asked for.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::sync::Arc;

use proto::books::Stage;
use proto::packet::{Head, Kind};
use proto::wire::chunk::HEADER_BYTES;
use sys::mem::HEADROOM;

use super::left::LeftSockets;
use crate::ends::pieces::is_again;
use crate::job::{Path, RailKey, Terms};
use crate::meter::{Meter, PathStats};
use crate::platform::{Arrived, Op, Platform};
use crate::rail::base::Base;
use crate::seal::packet::Packer;
use crate::worker::cx::Cx;
use crate::worker::slots::{Kind as OpKind, Load, Slot};

/// Where a unit begins in its buf: the header stands right before the payload.
pub(super) const UNIT_AT: usize = HEADROOM - HEADER_BYTES;
/// UDP payload of one burst: what one call takes, less what 44 packets of an ordinary path leave of it.
pub(super) const BURST_BYTES_MAX: usize = sys::udp::BURST_BYTES_MAX;
/// Bodies of control packets and feedbacks: 1200 bytes pass everywhere (RFC 9000, section 14), less head and tag.
pub(super) const BODY_BYTES_MAX: usize = 1200 - crate::seal::packet::SMALL_HEAD_BYTES;

/// Unit numbers are their own hash: they count up.
#[derive(Debug, Default)]
pub(super) struct UnitHasher(u64);

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
pub(super) type UnitMap<T> = HashMap<u32, T, BuildHasherDefault<UnitHasher>>;

/// Whether there may be something to receive, and when it is worth looking.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    /// Nothing says when there is something to receive: it is looked for in each iteration.
    pub(super) is_polled: bool,
    /// A `Readable` op is in flight.
    pub(super) is_watched: bool,
    /// There may be something to receive.
    pub(super) is_ready: bool,
    /// Interrupt moderation: what comes before then is left where it is, one wake-up for all of it. 0: no sleep.
    pub(super) sleep_until_ns: u64,
    /// When something was received last.
    pub(super) received_ns: u64,
}

impl Readiness {
    /// Something came and all of it was received. Where more is to be expected within `sleep_ns`, none of it is worth a wake-up of its own.
    fn begin_sleep(&mut self, now_ns: u64, sleep_ns: u64) {
        let expected = now_ns.saturating_sub(self.received_ns) <= 2 * sleep_ns;
        self.received_ns = now_ns;
        if sleep_ns > 0 && expected && !self.is_ready && !self.is_watched && !self.is_polled {
            self.sleep_until_ns = now_ns + sleep_ns;
        }
    }

    /// A sleep that is over ends; a socket that is polled is looked at anyway.
    fn end_sleep(&mut self, now_ns: u64) {
        self.is_ready |= self.is_polled;
        if self.sleep_until_ns > 0 && self.sleep_until_ns <= now_ns {
            (self.sleep_until_ns, self.is_ready) = (0, true);
        }
    }

    /// Is the platform to say when there is something?
    fn wants_watch(&self) -> bool {
        !self.is_polled && !self.is_watched && !self.is_ready && self.sleep_until_ns == 0
    }
}

/// A go at receiving, as far as it has got.
#[derive(Debug)]
pub(super) struct Go {
    /// Sockets that were left and had nothing more in this go.
    left: usize,
    /// Bursts that may still be received in this iteration.
    pub(super) bursts: usize,
    pub(super) began_ns: u64,
    pub(super) received: bool,
}

/// What both halves of a datagram rail have: socket, keys, and what was heard when.
pub(crate) struct Wire<P: Platform> {
    /// What every rail has.
    pub(crate) base: Base<P>,
    /// Sockets that were left for another, oldest first: what has come or still comes on them is read before anything else.
    pub(super) left: LeftSockets<P::Socket>,
    pub(super) packer: Packer,
    pub(super) tag: u32,
    pub(super) inbox: Box<[u8]>,
    pub(super) outbox: Box<[u8]>,
    pub(super) body: Vec<u8>,
    pub(super) readiness: Readiness,
    /// When something authentic came last, or when the wait for it began.
    pub(super) heard_ns: u64,
    pub(super) silence_ns: u64,
    /// When the rail wants another go at the latest.
    pub(super) wake_ns: u64,
    pub(super) counts: PathStats,
    pub(super) meter: Arc<Meter>,
    pub(super) metered_ns: u64,
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

impl<P: Platform> Wire<P> {
    /// Of a new rail over this path, whose socket is polled or not.
    pub(super) fn new(now_ns: u64, base: Base<P>, path: &Path, key: &RailKey, terms: &Terms, is_polled: bool) -> Self {
        let packet_bytes = usize::from(path.flow.packet_bytes_max);
        Wire {
            base,
            left: LeftSockets::new(),
            packer: Packer::new(key.secret, path.tag & 0xff_ffff, terms.cover, terms.cipher),
            tag: path.tag & 0xff_ffff,
            inbox: vec![0; 1 << 16].into(),
            outbox: vec![0; (1 << 16) + packet_bytes].into(),
            body: Vec::with_capacity(packet_bytes.max(2048)),
            readiness: Readiness { is_polled, is_ready: true, ..Readiness::default() },
            heard_ns: now_ns,
            silence_ns: path.silence_ns,
            wake_ns: now_ns,
            counts: PathStats::default(),
            meter: path.meter.clone(),
            metered_ns: 0,
        }
    }

    /// Another go soon: something changed from outside.
    pub(super) fn nudge(&mut self) {
        self.wake_ns = 0;
    }

    pub(super) fn write_meter(&self, tell: impl FnOnce(&mut PathStats)) {
        let mut stats = self.counts;
        tell(&mut stats);
        self.meter.write(&stats);
    }

    /// Was nothing heard for too long although something is on its way?
    pub(super) fn is_silent(&mut self, now_ns: u64, waiting: bool) -> bool {
        if !waiting {
            self.heard_ns = now_ns;
        }
        now_ns.saturating_sub(self.heard_ns) > self.silence_ns
    }

    /// A go at receiving begins.
    pub(super) fn begin_receiving(&mut self, cx: &Cx<'_, P>) -> Go {
        let now = cx.platform.now_ns();
        self.readiness.end_sleep(now);
        Go { left: 0, bursts: cx.share.bursts, began_ns: now, received: false }
    }

    /// The next burst, in the inbox.
    pub(super) fn next_burst(&mut self, cx: &mut Cx<'_, P>, go: &mut Go) -> Option<Arrived> {
        while go.bursts > 0 && self.readiness.is_ready && !self.base.has_ended() {
            go.bursts -= 1;
            let socket = self.left.at(go.left).unwrap_or(&self.base.socket);
            match cx.platform.recv_burst(socket, &mut self.inbox) {
                Ok(arrived) => {
                    go.received = true;
                    cx.watch.lap(Stage::Recv);
                    return Some(arrived);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if self.left.is_read(go.began_ns, &mut go.left) => {}
                Err(error) => {
                    // What an ICMP error said of an earlier packet is reported once; silence decides, not such an error.
                    self.readiness.is_ready = false;
                    self.counts.icmp_errors += u64::from(!is_again(&error));
                }
            }
        }
        None
    }

    /// A go at receiving is over: the platform is asked to say when there is something, but for a sleep.
    pub(super) fn end_receiving(&mut self, cx: &mut Cx<'_, P>, go: &Go, sleep_ns: u64) {
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
    pub(super) fn send_small(&mut self, cx: &mut Cx<'_, P>, kind: Kind, number: u64) -> io::Result<usize> {
        self.packer.seal_small(kind, number, &mut self.body);
        cx.watch.lap(Stage::Seal);
        let sent = cx.platform.send_sealed(&self.base.socket, &self.body, self.body.len());
        cx.watch.lap(Stage::Send);
        sent
    }
}

/// What a packet says of itself, before anybody believes it.
pub(super) fn head_of(packet: &[u8], tag: u32) -> Option<Head> {
    let head = Head::decode(packet.first_chunk()?).ok()?;
    (head.tag == tag).then_some(head)
}
