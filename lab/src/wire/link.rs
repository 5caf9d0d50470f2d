//! One direction of a link: what happens to each packet on the wire.
//!
//! For: the emulator, which asks for every packet; tests, which ask in virtual time.
//! In and out: the time, the bytes of one packet on the wire → lost (and why), or when it leaves the queue and when it arrives.
//! Invariants: sans I/O, no clock, no memory but a few numbers; time handed in does not go back; the sum of what is sent never
//! exceeds the rate, exact to the nanosecond over any time (remainders are carried).
//! Absent on purpose: the bytes themselves (line.rs), headers (packet.rs), words of the user (settings.rs).
//!
//! A packet meets, in this order: the link being down, a size the path does not carry, the policer, the drop-tail queue, the serialisation at
//! the rate, and then the wire, which loses, harms, doubles, delays and reorders. What the wire loses has used the rate.

use crate::wire::dice::{Dice, Share};

const NS_PER_S: u64 = 1_000_000_000;

/// How a wire loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Each packet by itself.
    Random(Share),
    /// Gilbert-Elliott: two states, each with its own loss (Gilbert 1960; Elliott 1963).
    Bursts {
        /// Good → bad, per packet.
        worse: Share,
        /// Bad → good, per packet.
        better: Share,
        /// Loss while good.
        good: Share,
        /// Loss while bad.
        bad: Share,
    },
}

impl Loss {
    /// The share of packets lost in the long run.
    #[must_use]
    pub fn mean(self) -> f64 {
        match self {
            Loss::Random(share) => share.value(),
            Loss::Bursts { worse, better, good, bad } => {
                let moves = worse.value() + better.value();
                let in_bad = if moves > 0.0 { worse.value() / moves } else { 0.0 };
                good.value() * (1.0 - in_bad) + bad.value() * in_bad
            }
        }
    }
}

/// How delay varies about its mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Jitter {
    /// Half the width (even), or the standard deviation (bell); ns.
    pub ns: u64,
    /// Bell-shaped rather than even.
    pub bell: bool,
    /// A packet may overtake one before it.
    pub overtakes: bool,
}

/// How deep the drop-tail queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Bytes.
    Bytes(u64),
    /// So much time at the rate, ns.
    Time(u64),
    /// Thousandths of rate × round trip.
    BdpMilli(u64),
}

/// What one direction of a link is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wire {
    /// Nothing passes while it is not.
    pub up: bool,
    /// bit/s; 0: no limit.
    pub rate_bps: u64,
    /// One way, ns.
    pub delay_ns: u64,
    /// How it varies.
    pub jitter: Jitter,
    /// How it loses.
    pub loss: Loss,
    /// Packets that come late, so that later ones overtake them.
    pub reorder: Share,
    /// By so much, ns.
    pub reorder_ns: u64,
    /// Packets that come twice.
    pub duplicate: Share,
    /// Packets in which one bit is turned.
    pub corrupt: Share,
    /// The queue; with no rate there is none.
    pub queue: Depth,
    /// A policer in front of the queue passes so many bit/s and drops the rest, without a wait; 0: there is none.
    pub police_bps: u64,
    /// What its token bucket holds, bytes: so much passes at once after a rest. A packet always fits a full bucket.
    pub police_bytes: u64,
    /// Packets that would wait longer than this get a mark (ECN), where they can take one; ns, 0: none.
    pub mark_ns: u64,
    /// Bytes that each packet takes on the wire beside its own (Ethernet would be 38).
    pub framing_bytes: u32,
    /// Bytes of a packet above which the path drops it and sends no ICMP message; 0: none.
    pub black_hole_above: u32,
}

/// One full packet of every common size fits more than forty times: a burst of a segmentation offload is 64 KiB.
pub const QUEUE_BYTES_MIN: u64 = 100_000;

impl Default for Wire {
    fn default() -> Wire {
        Wire {
            up: true,
            rate_bps: 0,
            delay_ns: 0,
            jitter: Jitter::default(),
            loss: Loss::Random(Share::NEVER),
            reorder: Share::NEVER,
            reorder_ns: 0,
            duplicate: Share::NEVER,
            corrupt: Share::NEVER,
            queue: Depth::BdpMilli(1000),
            police_bps: 0,
            police_bytes: 0,
            mark_ns: 0,
            framing_bytes: 0,
            black_hole_above: 0,
        }
    }
}

impl Wire {
    /// The queue in bytes; `rtt_ns`: both directions' delay. A depth in time or BDP is at least `QUEUE_BYTES_MIN`, one in bytes is
    /// what was asked for.
    #[must_use]
    pub fn queue_bytes(&self, rtt_ns: u64) -> u64 {
        let in_time = |ns: u64| bytes_in(self.rate_bps, ns).max(QUEUE_BYTES_MIN);
        match self.queue {
            Depth::Bytes(bytes) => bytes,
            Depth::Time(ns) => in_time(ns),
            Depth::BdpMilli(milli) => {
                let bdp = u128::from(bytes_in(self.rate_bps, rtt_ns)) * u128::from(milli) / 1000;
                u64::try_from(bdp).unwrap_or(u64::MAX).max(QUEUE_BYTES_MIN)
            }
        }
    }

    /// Bytes that may be on the wire at once: rate × the longest delay.
    #[must_use]
    pub fn flight_bytes(&self) -> u64 {
        let jitter_ns = if self.jitter.bell { self.jitter.ns.saturating_mul(4) } else { self.jitter.ns };
        let late_ns = if self.reorder.is_never() { 0 } else { self.reorder_ns };
        bytes_in(self.rate_bps, self.delay_ns.saturating_add(jitter_ns).saturating_add(late_ns))
    }
}

/// Bytes that a rate brings in so much time.
#[must_use]
pub fn bytes_in(rate_bps: u64, ns: u64) -> u64 {
    let bytes = u128::from(rate_bps) * u128::from(ns) / u128::from(8 * NS_PER_S);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Why a packet did not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The link was down.
    Down,
    /// Larger than what the path carries.
    BlackHole,
    /// The policer's bucket was empty.
    Police,
    /// The queue was full.
    Queue,
    /// The wire lost it.
    Wire,
}

/// A packet that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When its last bit leaves the queue, ns.
    pub leaves_ns: u64,
    /// How long the wire holds it after that, ns.
    pub hold_ns: u64,
    /// One bit is turned.
    pub corrupt: bool,
    /// It comes twice.
    pub twice: bool,
    /// It met a queue above the mark.
    pub marked: bool,
    /// It is one that later ones overtake.
    pub late: bool,
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It will not arrive.
    Lost(Cause),
    /// It will.
    Arrives(Arrival),
}

/// How the departures of packets that still queue move when the wire changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shift {
    /// When it changed, ns: what has left before is on its way already and stays as it was.
    pub at_ns: u64,
    old_bps: u64,
    new_bps: u64,
    old_delay_ns: u64,
    new_delay_ns: u64,
    /// The queue is emptied instead: the link went down.
    pub cleared: bool,
}

impl Shift {
    /// A packet's new departure and hold; the same for one that has left the queue.
    #[must_use]
    pub fn apply(&self, leaves_ns: u64, hold_ns: u64) -> (u64, u64) {
        if leaves_ns <= self.at_ns {
            return (leaves_ns, hold_ns);
        }
        let hold_ns = (hold_ns + self.new_delay_ns).saturating_sub(self.old_delay_ns);
        (self.departure(leaves_ns), hold_ns)
    }

    fn departure(&self, leaves_ns: u64) -> u64 {
        if leaves_ns <= self.at_ns || self.old_bps == self.new_bps {
            return leaves_ns;
        }
        if self.new_bps == 0 {
            return self.at_ns;
        }
        let wait = u128::from(leaves_ns - self.at_ns) * u128::from(self.old_bps) / u128::from(self.new_bps);
        self.at_ns.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX))
    }
}

/// One direction of a link at work.
#[derive(Debug)]
pub struct Link {
    wire: Wire,
    dice: Dice,
    /// Gilbert-Elliott: in the bad state.
    bad: bool,
    /// When the queue will be empty.
    busy_until_ns: u64,
    /// What division left over from the last packet: parts of a nanosecond × rate.
    rest: u64,
    /// When the policer's bucket will be full, ns, and what division left over: a virtual queue as long as what is missing in the bucket (GCRA,
    /// ITU-T I.371, annex A).
    police_full_ns: u64,
    police_rest: u64,
    /// Longest wait that the queue's depth allows, ns.
    wait_ns_max: u64,
    /// The latest arrival so far, of packets that nothing reorders.
    last_due_ns: u64,
}

impl Link {
    /// A link at rest; `rtt_ns`: both directions' delay, for a queue told in BDP.
    #[must_use]
    pub fn new(wire: Wire, rtt_ns: u64, seed: u64) -> Link {
        let mut link = Link {
            wire,
            dice: Dice::new(seed),
            bad: false,
            busy_until_ns: 0,
            rest: 0,
            police_full_ns: 0,
            police_rest: 0,
            wait_ns_max: 0,
            last_due_ns: 0,
        };
        link.size_queue(rtt_ns);
        link
    }

    fn size_queue(&mut self, rtt_ns: u64) {
        let bits = u128::from(self.wire.queue_bytes(rtt_ns)) * u128::from(8 * NS_PER_S);
        let wait = bits.checked_div(u128::from(self.wire.rate_bps)).unwrap_or(0);
        self.wait_ns_max = u64::try_from(wait).unwrap_or(u64::MAX);
    }

    /// What it is like now.
    #[must_use]
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Changes it while it runs; the answer says what that does to packets that still queue.
    pub fn set(&mut self, now_ns: u64, wire: Wire, rtt_ns: u64) -> Shift {
        let shift = Shift {
            at_ns: now_ns,
            old_bps: self.wire.rate_bps,
            new_bps: wire.rate_bps,
            old_delay_ns: self.wire.delay_ns,
            new_delay_ns: wire.delay_ns,
            cleared: self.wire.up && !wire.up,
        };
        self.busy_until_ns = if shift.cleared { now_ns } else { shift.departure(self.busy_until_ns) };
        if wire.rate_bps != self.wire.rate_bps {
            self.rest = 0;
        }
        if (wire.police_bps, wire.police_bytes) != (self.wire.police_bps, self.wire.police_bytes) {
            // Another policer begins with a full bucket.
            (self.police_full_ns, self.police_rest) = (now_ns, 0);
        }
        // A path that has become shorter delivers early what leaves from now on; what it kept in order before no longer binds.
        if wire.delay_ns < self.wire.delay_ns {
            self.last_due_ns = 0;
        }
        self.wire = wire;
        self.size_queue(rtt_ns);
        shift
    }

    /// What waits in the queue, bytes.
    #[must_use]
    pub fn queued_bytes(&self, now_ns: u64) -> u64 {
        bytes_in(self.wire.rate_bps, self.busy_until_ns.saturating_sub(now_ns))
    }

    /// A packet of `bytes` (its IP length) comes to the queue.
    pub fn on_packet(&mut self, now_ns: u64, bytes: u32) -> Fate {
        if !self.wire.up {
            return Fate::Lost(Cause::Down);
        }
        if self.wire.black_hole_above != 0 && bytes > self.wire.black_hole_above {
            return Fate::Lost(Cause::BlackHole);
        }
        if self.wire.police_bps != 0 && !self.conforms(now_ns, bytes) {
            return Fate::Lost(Cause::Police);
        }
        let mut marked = false;
        let mut leaves_ns = now_ns;
        if self.wire.rate_bps != 0 {
            let (takes_ns, rest) = self.takes(bytes, self.wire.rate_bps, self.rest);
            let starts_ns = self.busy_until_ns.max(now_ns);
            let wait_ns = starts_ns - now_ns;
            if wait_ns.saturating_add(takes_ns) > self.wait_ns_max.max(takes_ns) {
                return Fate::Lost(Cause::Queue);
            }
            marked = self.wire.mark_ns != 0 && wait_ns > self.wire.mark_ns;
            leaves_ns = starts_ns.saturating_add(takes_ns);
            self.rest = rest;
            self.busy_until_ns = leaves_ns;
        }
        if self.loses() {
            return Fate::Lost(Cause::Wire);
        }
        let (hold_ns, late) = self.hold(leaves_ns);
        Fate::Arrives(Arrival {
            leaves_ns,
            hold_ns,
            corrupt: self.dice.says(self.wire.corrupt),
            twice: self.dice.says(self.wire.duplicate),
            marked,
            late,
        })
    }

    /// How long a packet takes at a rate, ns, and what division leaves over, beside what the last one left.
    fn takes(&self, bytes: u32, rate_bps: u64, rest: u64) -> (u64, u64) {
        let bits = u64::from(bytes.saturating_add(self.wire.framing_bytes)) * 8;
        // At most 2^32 x 8 x 10^9 + rate: far below 2^128, and below 2^64 for every packet of IP.
        divide(u128::from(bits) * u128::from(NS_PER_S) + u128::from(rest), rate_bps)
    }

    /// Does the policer's bucket hold enough for this packet? Then it is taken out.
    fn conforms(&mut self, now_ns: u64, bytes: u32) -> bool {
        let (takes_ns, rest) = self.takes(bytes, self.wire.police_bps, self.police_rest);
        let bits = u128::from(self.wire.police_bytes) * u128::from(8 * NS_PER_S);
        let bucket_ns = u64::try_from(bits / u128::from(self.wire.police_bps)).unwrap_or(u64::MAX);
        let full_ns = self.police_full_ns.max(now_ns).saturating_add(takes_ns);
        let conforms = full_ns - now_ns <= bucket_ns.max(takes_ns);
        if conforms {
            (self.police_full_ns, self.police_rest) = (full_ns, rest);
        }
        conforms
    }

    fn loses(&mut self) -> bool {
        match self.wire.loss {
            Loss::Random(share) => self.dice.says(share),
            Loss::Bursts { worse, better, good, bad } => {
                let changes = self.dice.says(if self.bad { better } else { worse });
                self.bad ^= changes;
                self.dice.says(if self.bad { bad } else { good })
            }
        }
    }

    /// Time on the wire, and whether the packet is one that is made late.
    fn hold(&mut self, leaves_ns: u64) -> (u64, bool) {
        let mut hold_ns = self.wire.delay_ns;
        let jitter = self.wire.jitter;
        if jitter.ns != 0 {
            let width = i64::try_from(jitter.ns).unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
            let off = if jitter.bell {
                i64::try_from(i128::from(width) * i128::from(self.dice.bell()) / 1000).unwrap_or(0)
            } else {
                i64::try_from(self.dice.below(2 * jitter.ns + 1)).unwrap_or(0) - width
            };
            hold_ns = hold_ns.saturating_add_signed(off);
        }
        if self.dice.says(self.wire.reorder) {
            return (hold_ns.saturating_add(self.wire.reorder_ns), true);
        }
        if !jitter.overtakes {
            let due_ns = leaves_ns.saturating_add(hold_ns).max(self.last_due_ns);
            self.last_due_ns = due_ns;
            hold_ns = due_ns - leaves_ns;
        }
        (hold_ns, false)
    }
}

/// Quotient and remainder, in 64 bits where they suffice (they do for every packet of IP).
fn divide(total: u128, by: u64) -> (u64, u64) {
    if let Ok(total) = u64::try_from(total) {
        return (total / by, total % by);
    }
    let rest = u64::try_from(total % u128::from(by)).unwrap_or(0);
    (u64::try_from(total / u128::from(by)).unwrap_or(u64::MAX), rest)
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
