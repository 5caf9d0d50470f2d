//! What the sender says beside data.
//!
//! For: the body of a packet of kind 'C'.
//! In and out: [`Control`] ↔ bytes.
//! Invariants: one encoding per value; a probe's padding is zeros.
//! Absent on purpose: when each is said (`crate::flow`).

use alloc::vec::Vec;

use super::varint::{put, take};
use super::{BODY_OVERHEAD, PACKET_OVERHEAD};
use crate::error::Breach;

/// A word of the sender.
///
/// ```text
/// | 1 | newest | round trip µs |          Tell
/// | 2 | from |                            Ask
/// | 3 | bytes | token | zeros ...         Probe: as many zeros as make the whole packet `bytes` long
/// | 4 |                                   Close
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// So far it has numbered: so a lost tail is seen at once, and so long is its round trip.
    Tell {
        /// The newest number sent before this packet (its own number is higher).
        newest: u64,
        /// Smoothed round trip in µs, 0 while unknown: what the receiver spaces its feedback by.
        rtt_us: u64,
    },
    /// A feedback was lost: the next one shall begin here.
    Ask {
        /// The first number without an answer.
        from: u64,
    },
    /// A packet as long as `bytes`, only to see whether the path takes it (RFC 8899).
    Probe {
        /// Length of the whole UDP payload, padded.
        bytes: u16,
        /// The sender's count of probes.
        token: u32,
    },
    /// The rail ends; nothing follows.
    Close,
}

impl Control {
    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        match *self {
            Control::Tell { newest, rtt_us } => {
                put(out, 1);
                put(out, newest);
                put(out, rtt_us);
            }
            Control::Ask { from } => {
                put(out, 2);
                put(out, from);
            }
            Control::Probe { bytes, token } => {
                put(out, 3);
                put(out, u64::from(bytes));
                put(out, u64::from(token));
                let end = (start + usize::from(bytes).saturating_sub(BODY_OVERHEAD)).max(out.len());
                out.resize(end, 0);
            }
            Control::Close => put(out, 4),
        }
    }

    /// Reads a body.
    ///
    /// # Errors
    /// `PacketBody` for an unknown word, a cut one, one with bytes behind it, or a probe that is not as long as it says.
    pub fn decode(mut body: &[u8]) -> Result<Control, Breach> {
        let whole = body.len();
        let control = match take(&mut body)? {
            1 => Control::Tell { newest: take(&mut body)?, rtt_us: take(&mut body)? },
            2 => Control::Ask { from: take(&mut body)? },
            3 => {
                let bytes = u16::try_from(take(&mut body)?).map_err(|_| Breach::PacketBody)?;
                let token = u32::try_from(take(&mut body)?).map_err(|_| Breach::PacketBody)?;
                let len_wrong = whole + BODY_OVERHEAD != usize::from(bytes).max(whole - body.len() + BODY_OVERHEAD);
                if len_wrong || body.iter().any(|&byte| byte != 0) {
                    return Err(Breach::PacketBody);
                }
                body = &[];
                Control::Probe { bytes, token }
            }
            4 => Control::Close,
            _ => return Err(Breach::PacketBody),
        };
        if body.is_empty() { Ok(control) } else { Err(Breach::PacketBody) }
    }

    /// Length of the whole packet, as UDP payload.
    #[must_use]
    pub fn packet_bytes(&self) -> usize {
        match self {
            Control::Probe { bytes, .. } => usize::from(*bytes).max(PACKET_OVERHEAD),
            // A word is at most 21 bytes; what it is exactly matters to nobody's rate.
            _ => PACKET_OVERHEAD,
        }
    }
}
