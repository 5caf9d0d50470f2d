//! What stands in a datagram: the head every packet has, and the bodies of control and feedback.
//!
//! For: packets of datagram rails to bytes and back; sealing is the engine's, so bodies here are plain.
//! In and out: heads, bodies and numbers ↔ bytes.
//! Invariants: decoding never panics and asks for no memory; each value has exactly one encoding.
//! Absent on purpose: keys, nonces and tags (engine); what a number means (`crate::flow`).
//!
//! ```text
//! every packet: the UDP payload
//!  0      1          4             8
//!  +------+----------+-------------+
//!  | kind | rail tag | number lo32 |   in clear, authenticated (associated data)
//!  +------+----------+-------------+
//!  kind 'D' (0x44) data, sender → receiver
//!  8        12         16         32
//!  +--------+----------+----------+--------------------------+
//!  | unit   | offset   | AEAD tag | bytes of the unit        |
//!  +--------+----------+----------+--------------------------+
//!  kind 'C' (0x43) control, sender → receiver: 8 | tag 16 | body. Same key and numbers as data.
//!  kind 'F' (0x46) feedback, receiver → sender: 8 | tag 16 | body. Own key, own numbers.
//! ```
//! All fixed integers little endian; bodies are runs of varints, drawn on their types.

mod control;
mod feedback;
mod hello;
mod session;
mod varint;

pub use control::Control;
pub use feedback::{Feedback, RUNS_BYTES_MAX, Runs};
pub use hello::{HELLO_DATAGRAM_BYTES, HELLO_KIND, HELLO_PART_BYTES, HELLO_PARTS_MAX, HelloFlight, HelloPart};
pub use session::{RANGES_MAX, SESSION_BYTES_MAX, SESSION_KIND, SessionPart};

use crate::error::Breach;

/// Bytes of the head of every packet.
pub const HEAD_BYTES: usize = 8;
/// Bytes of a data packet beside the unit's bytes: head 8, unit 4, offset 4, tag 16.
pub const PACKET_OVERHEAD: usize = 32;
/// Bytes of a control or feedback packet beside its body: head 8, tag 16.
pub const BODY_OVERHEAD: usize = 24;
/// What the network adds to a UDP payload: IPv4 header 20 (RFC 791) and UDP header 8 (RFC 768). IPv6 adds 20 more, which rates
/// do not count: 1.4 % of an ordinary packet.
pub const WIRE_EXTRA: usize = 28;

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A range of a unit.
    Data,
    /// A word of the sender, see [`Control`].
    Control,
    /// A word of the receiver, see [`Feedback`].
    Feedback,
}

/// The first eight bytes of every packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// What follows.
    pub kind: Kind,
    /// Which rail: 24 bits by which the receiving socket finds it.
    pub tag: u32,
    /// The low half of the packet's number; [`expand`] gives the whole.
    pub low: u32,
}

impl Head {
    /// The eight bytes of the drawing. Bits of `tag` above 24 do not travel.
    #[must_use]
    pub const fn encode(&self) -> [u8; HEAD_BYTES] {
        let kind = match self.kind {
            Kind::Data => b'D',
            Kind::Control => b'C',
            Kind::Feedback => b'F',
        };
        let tag = self.tag.to_le_bytes();
        let low = self.low.to_le_bytes();
        [kind, tag[0], tag[1], tag[2], low[0], low[1], low[2], low[3]]
    }

    /// Reads a head.
    ///
    /// # Errors
    /// `PacketKind` for a first byte that no packet has.
    pub const fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Head, Breach> {
        let [kind, tag0, tag1, tag2, low0, low1, low2, low3] = *bytes;
        let kind = match kind {
            b'D' => Kind::Data,
            b'C' => Kind::Control,
            b'F' => Kind::Feedback,
            _ => return Err(Breach::PacketKind),
        };
        let tag = u32::from_le_bytes([tag0, tag1, tag2, 0]);
        Ok(Head { kind, tag, low: u32::from_le_bytes([low0, low1, low2, low3]) })
    }
}

/// The number nearest to `expected` whose low 32 bits are `low` (RFC 9000, appendix A.3, with a fixed width).
#[must_use]
pub const fn expand(low: u32, expected: u64) -> u64 {
    // The distance around the circle of 2^32, taken as the shorter way: at most 2^31 either way.
    let ahead = low.wrapping_sub(expected as u32).cast_signed();
    match expected.checked_add_signed(ahead as i64) {
        Some(number) => number,
        // Below zero there are no numbers: the next one up has the same low bits.
        None => expected.wrapping_add_signed(ahead as i64).wrapping_add(1 << 32),
    }
}
