//! The datagram transport: which bytes go into which packet, which packets were lost, what has come.
//!
//! For: one rail of datagrams; [`FlowSender`] and [`FlowReceiver`] are its two ends.
//! In and out: facts come in through `on_*`, work goes out through `step`, `feedback` and `next_fact`; ids and ranges, never bytes.
//! Invariants: a packet number is used once and resolved once; a byte known to be lost is sent again once; what a peer says
//! costs memory only within the units granted.
//! Absent on purpose: sealing, sockets, buffers (engine); how fast (`crate::rate`).
//!
//! A *unit* is one chunk as it stands on the wire: header and payload. Packets carry ranges of it. The receiver reports
//! coverage: *of the numbers [from, to) I have exactly these, all else in it is lost*, and `to` runs behind the newest number
//! by the reordering that was measured. So every packet is resolved exactly once, and no timer ever sends data again.

mod ranges; // byte ranges of a unit
mod flight; // bursts on their way, by packet number
mod units; // the sender's open units
mod mtu; // the packet size: search upward, black holes
mod queue_estimate; // how long a burst the path's shallowest queue holds
mod timers; // keep-alive, probe timeout and silence
mod stats; // what the sending end counted
mod sender; // the sending end
mod control_packets; // the sending end: packets without data
mod acks; // the sending end: feedback comes in
mod reordering; // the reordering that was measured
mod window; // which numbers arrived
mod reassembly; // the receiver's open units
mod receiver; // the receiving end

pub use receiver::{FlowReceiver, ReceiverStats};
pub use sender::FlowSender;
pub use stats::FlowStats;

use crate::packet::Control;
use crate::rate::RateConfig;

/// The UDP payload that every path takes (RFC 9000, section 14): what a flow falls back to.
pub const PACKET_BYTES_BASE: u16 = 1200;
/// Shortest UDP payload a flow may be made with: a 576-byte datagram (RFC 791) without its headers.
pub const PACKET_BYTES_MIN: u16 = 548;

/// What both ends of a flow are made from; both have the same, but for `units_most`.
#[derive(Debug, Clone)]
pub struct FlowConfig {
    /// UDP payload of a data packet at the start.
    pub packet_bytes: u16,
    /// The search for a larger one goes up to this.
    pub packet_bytes_max: u16,
    /// Longest unit.
    pub unit_bytes_max: u32,
    /// How fast.
    pub rate: RateConfig,
    /// Units granted before the receiver's first feedback.
    pub units_open: u32,
    /// Units that this end keeps open at most, once the receiver grants them; not less than `units_open`. Each end has its own.
    pub units_most: u32,
}

/// Packets `first`, `first + 1`, … that carry `bytes` bytes of `unit` from `offset` on, `payload` in each; the last may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// Number of the first packet.
    pub first: u64,
    /// Which unit.
    pub unit: u32,
    /// Offset in the unit, bytes.
    pub offset: u32,
    /// How much of it.
    pub bytes: u32,
    /// Unit bytes per packet.
    pub payload: u16,
}

impl Burst {
    /// How many packets these are.
    #[must_use]
    pub const fn packets(&self) -> u32 {
        self.bytes.div_ceil(self.payload as u32)
    }
}

/// What the sender shall do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Send these.
    Burst(Burst),
    /// Send this control packet under this number.
    Control {
        /// Its packet number.
        number: u64,
        /// Its body.
        body: Control,
    },
    /// Bytes of this unit must go again: read it back, then say [`FlowSender::reloaded`]. Asked once.
    Reload {
        /// Which.
        unit: u32,
    },
    /// Nothing before that time; `u64::MAX`: only feedback or new units help.
    Wait {
        /// When to ask again.
        until_ns: u64,
    },
}

/// What became of a unit, or of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// All of it went out once (again after [`FlowSender::reloaded`]: nothing of it waits to be sent any more).
    Sent {
        /// Which.
        unit: u32,
    },
    /// The receiver has all of it: forget it.
    Whole {
        /// Which.
        unit: u32,
    },
    /// No feedback since then although packets are on their way. Said when it begins to be long, then each time it doubles.
    Quiet {
        /// Time of the last feedback, or of the first packet without one.
        since_ns: u64,
    },
}

/// What the receiver did with a packet's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// Some of its bytes are new: put them into the unit.
    New,
    /// All of them were there: throw them away.
    Already,
    /// Fewer units may be open than were granted: throw it away, it will be sent again.
    NoRoom,
}
