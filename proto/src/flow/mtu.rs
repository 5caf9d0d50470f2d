//! The packet size: which the path takes.
//!
//! For: packets as long as the path allows, found while data flows, and the way back when a path begins to drop long ones (a path MTU black hole).
//! In and out: fates of probes and of packets in; sizes to probe and the size in force out.
//! Invariants: a size is used only after a packet of that size arrived (or the user said so at the start); a lost probe is no
//! congestion.
//! Absent on purpose: ICMP, which may be forged and is often filtered: probes alone decide (RFC 8899, DPLPMTUD).

use super::PACKET_BYTES_BASE;

/// UDP payloads worth trying, over IPv4 (28 bytes less than the MTU): IPv6's least MTU 1280, tunnels and PPPoE below 1500, Ethernet
/// over IPv6 and IPv4, jumbo frames over IPv6 and IPv4, 16 and 32 KiB interconnects, loopback; the last is what IPv4 can say at all.
const LADDER: [u16; 13] = [1252, 1332, 1372, 1392, 1412, 1432, 1452, 1464, 1472, 8952, 8972, 32_740, 65_507];
/// Lost probes after which a size is given up (RFC 8899, MAX_PROBES) ...
const PROBES_MAX: u32 = 3;
/// ... and one more for each this much loss, parts per million, so that chance hardly ever gives one up: 0.3^9 is 2 of 100,000.
const PROBE_LOSS_PPM: u32 = 50_000;
/// Probes in flight at once.
const PROBES_AT_ONCE: usize = 4;
/// The search begins anew after this, ns: paths change (RFC 8899, PMTU_RAISE_TIMER).
const RAISE_NS: u64 = 600_000_000_000;
/// ... and after a black hole, ns.
const HOLE_RAISE_NS: u64 = 30_000_000_000;
/// Long packets lost, none arrived, that show a black hole ...
const HOLE_PACKETS: u64 = 8;
/// ... with so many short ones arrived in between, each after another long one was lost.
const HOLE_SHORTS: u8 = 3;

/// The search for the packet size, and the watch over it.
#[derive(Debug)]
pub(super) struct Search {
    /// UDP payload in force.
    bytes: u16,
    /// What to fall back to.
    base: u16,
    max: u16,
    /// The smallest size known not to pass; above `max`: none is known.
    bad: u32,
    fails: [u8; LADDER.len() + 1],
    /// Sizes of this round not yet sent, by index; filled from the front.
    round: [usize; PROBES_AT_ONCE],
    round_left: usize,
    outstanding: u32,
    token: u32,
    raise_at_ns: u64,
    /// Long packets lost since one arrived.
    hole_packets: u64,
    hole_turns: u8,
    hole_lost: bool,
    holes: u32,
}

impl Search {
    pub(super) fn new(bytes: u16, max: u16) -> Self {
        Search {
            bytes,
            base: bytes.min(PACKET_BYTES_BASE),
            max: max.max(bytes),
            bad: u32::MAX,
            fails: [0; LADDER.len() + 1],
            round: [0; PROBES_AT_ONCE],
            round_left: 0,
            outstanding: 0,
            token: 0,
            raise_at_ns: 0,
            hole_packets: 0,
            hole_turns: 0,
            hole_lost: false,
            holes: 0,
        }
    }

    /// UDP payload of a data packet now.
    pub(super) const fn bytes(&self) -> u16 {
        self.bytes
    }

    pub(super) const fn holes(&self) -> u32 {
        self.holes
    }

    /// Is a packet of this UDP payload one that a black hole would swallow?
    pub(super) const fn is_long(&self, bytes: u16) -> bool {
        bytes > self.base
    }

    /// The ladder with the user's own limit as its last step.
    const fn size(&self, index: usize) -> u16 {
        if index < LADDER.len() { LADDER[index] } else { self.max }
    }

    /// The next probe's length and token, if one is due. `bytes_max`: longer ones would hold up the path for too long.
    pub(super) fn next_probe(&mut self, now_ns: u64, bytes_max: u64) -> Option<(u16, u32)> {
        if self.round_left == 0 && self.outstanding == 0 && now_ns >= self.raise_at_ns {
            self.begin_round(now_ns, bytes_max);
        }
        if self.round_left == 0 {
            return None;
        }
        self.round_left -= 1;
        self.outstanding += 1;
        self.token = self.token.wrapping_add(1);
        Some((self.size(self.round[self.round_left]), self.token))
    }

    fn begin_round(&mut self, now_ns: u64, bytes_max: u64) {
        let mut open = [0; LADDER.len() + 1];
        let mut count = 0;
        for index in 0..=LADDER.len() {
            let size = self.size(index);
            let twin = index == LADDER.len() && LADDER.contains(&self.max);
            if size > self.bytes
                && size <= self.max
                && u32::from(size) < self.bad
                && u64::from(size) <= bytes_max
                && !twin
            {
                open[count] = index;
                count += 1;
            }
        }
        open[..count].sort_unstable_by_key(|&index| self.size(index));
        if count == 0 {
            // All is known. What failed is tried again after a while.
            self.raise_at_ns = now_ns + if self.holes > 0 { HOLE_RAISE_NS } else { RAISE_NS };
            self.bad = u32::MAX;
            self.fails = [0; LADDER.len() + 1];
            return;
        }
        // The largest, and others evenly between it and what is known to pass.
        self.round_left = count.min(PROBES_AT_ONCE);
        for place in 0..self.round_left {
            self.round[place] = open[(place + 1) * count / self.round_left - 1];
        }
    }

    /// A probe of `bytes` was resolved; other packets get lost at this rate.
    pub(super) fn on_probe(&mut self, bytes: u16, arrived: bool, loss_ppm: u32) {
        self.outstanding = self.outstanding.saturating_sub(1);
        if arrived {
            if u32::from(bytes) < self.bad {
                self.bytes = self.bytes.max(bytes);
            }
            return;
        }
        for index in 0..=LADDER.len() {
            if self.size(index) == bytes {
                self.fails[index] = self.fails[index].saturating_add(1);
                if u32::from(self.fails[index]) >= PROBES_MAX + loss_ppm / PROBE_LOSS_PPM {
                    self.bad = self.bad.min(u32::from(bytes));
                }
            }
        }
    }

    /// The system refused a probe: it never left.
    pub(super) fn on_probe_too_big(&mut self, bytes: u16) {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.bad = self.bad.min(u32::from(bytes));
    }

    /// The system refused data packets of the size in force: back to the base.
    pub(super) fn on_data_too_big(&mut self, now_ns: u64) {
        self.bad = self.bad.min(u32::from(self.bytes));
        // Sizes between the base and what failed are guesses: the search finds the best of them within a round trip or two.
        self.bytes = self.base.min(self.bytes);
        self.raise_at_ns = now_ns;
        self.forget_hole();
    }

    fn forget_hole(&mut self) {
        self.hole_packets = 0;
        self.hole_turns = 0;
        self.hole_lost = false;
    }

    /// Long data packets were resolved.
    pub(super) fn on_long(&mut self, packets: u64, arrived: bool) {
        if arrived {
            self.forget_hole();
        } else {
            self.hole_packets += packets;
            self.hole_lost = true;
        }
    }

    /// A short packet arrived: where long ones are lost beside it time and again, the path swallows them.
    pub(super) fn on_short(&mut self, now_ns: u64) {
        if !self.hole_lost {
            return;
        }
        self.hole_lost = false;
        self.hole_turns += 1;
        if self.hole_packets >= HOLE_PACKETS && self.hole_turns >= HOLE_SHORTS && self.bytes > self.base {
            self.bad = u32::from(self.bytes);
            self.bytes = self.base;
            self.fails = [0; LADDER.len() + 1];
            self.holes += 1;
            // Smaller sizes are searched at once; after that the larger ones get another chance.
            self.raise_at_ns = now_ns;
            self.forget_hole();
        }
    }
}
