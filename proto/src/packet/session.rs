//! A part of the control session in a datagram: bytes that go over its connection, too.
//!
//! For: a session whose words need not wait for TCP's timers.
//! In and out: counts, ranges and sealed bytes of the session ↔ bytes of a datagram, but for its MAC.
//! Invariants: decoding never panics and asks for memory for at most `RANGES_MAX` ranges; each value has exactly one encoding.
//! Absent on purpose: the MAC (node), what is sent when (`crate::session::transport::duplicate`), what the bytes mean: they are records of TLS.
//!
//! ```text
//!  0      1          4     5        6        8          16       24           24 + 8n           + 16
//!  +------+----------+-----+--------+--------+----------+--------+------------+-------+----------+
//!  | 'S'  | rail tag | who | ranges | length | received | offset | ranges     | bytes | MAC (16) |
//!  +------+----------+-----+--------+--------+----------+--------+------------+-------+----------+
//!  who: 'i' or 'a'. received: bytes of the session that its sender has in order, from the other. offset: of `bytes` in what it sends itself.
//!  range: u32 from, u32 to, both counted from `received`: bytes that it has beyond, ascending, not touching
//! ```

use alloc::vec::Vec;

use crate::error::Breach;

/// First byte of such a datagram.
pub const SESSION_KIND: u8 = b'S';
/// Most bytes of the session in one: with the head, four ranges and the MAC below what every path takes (1,200 bytes).
pub const SESSION_BYTES_MAX: usize = 1100;
/// Most ranges.
pub const RANGES_MAX: usize = 4;
/// Bytes before the ranges.
const FIXED_BYTES: usize = 24;

/// Bytes of the session, and what its sender has of the other's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPart<'a> {
    /// 24 bits.
    pub tag: u32,
    /// Said by the end that opened the session.
    pub is_initiators: bool,
    /// What its sender has of the other's bytes, in order.
    pub received: u64,
    /// What it has beyond: from, to, of the whole session.
    pub beyond: Vec<(u64, u64)>,
    /// Where `bytes` stand in what it sends itself.
    pub offset: u64,
    /// May be empty.
    pub bytes: &'a [u8],
}

impl SessionPart<'_> {
    /// Appends it, without the MAC.
    ///
    /// # Panics
    /// On more bytes or ranges than fit, which is the caller's bug.
    pub fn encode(&self, out: &mut Vec<u8>) {
        assert!(self.bytes.len() <= SESSION_BYTES_MAX && self.beyond.len() <= RANGES_MAX, "more than fits");
        out.push(SESSION_KIND);
        out.extend(&self.tag.to_le_bytes()[..3]);
        out.push(if self.is_initiators { b'i' } else { b'a' });
        out.push(self.beyond.len() as u8);
        out.extend((self.bytes.len() as u16).to_le_bytes());
        out.extend(self.received.to_le_bytes());
        out.extend(self.offset.to_le_bytes());
        for &(from, to) in &self.beyond {
            for at in [from, to] {
                out.extend(u32::try_from(at - self.received).unwrap_or(u32::MAX).to_le_bytes());
            }
        }
        out.extend(self.bytes);
    }

    /// Reads one whose MAC held.
    ///
    /// # Errors
    /// `PacketKind`, `PacketBody`.
    pub fn decode(bytes: &[u8]) -> Result<SessionPart<'_>, Breach> {
        let (fixed, rest) = bytes.split_first_chunk::<FIXED_BYTES>().ok_or(Breach::PacketBody)?;
        let [kind, a, b, c, who, ranges, low, high, counts @ ..] = *fixed;
        if kind != SESSION_KIND {
            return Err(Breach::PacketKind);
        }
        let is_initiators = match who {
            b'i' => true,
            b'a' => false,
            _ => return Err(Breach::PacketBody),
        };
        let (ranges, length) = (usize::from(ranges), usize::from(u16::from_le_bytes([low, high])));
        if ranges > RANGES_MAX || length > SESSION_BYTES_MAX || rest.len() != ranges * 8 + length {
            return Err(Breach::PacketBody);
        }
        let count = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&counts[at..at + 8]);
            u64::from_le_bytes(eight)
        };
        let (received, offset) = (count(0), count(8));
        let (ranges, bytes) = rest.split_at(ranges * 8);
        let (mut beyond, mut last) = (Vec::with_capacity(ranges.len() / 8), 0);
        for range in ranges.chunks_exact(8) {
            let at = |from: usize| {
                u64::from(u32::from_le_bytes([range[from], range[from + 1], range[from + 2], range[from + 3]]))
            };
            let (from, to) = (at(0), at(4));
            // What touches the bytes before would be said as one.
            if from <= last || to <= from {
                return Err(Breach::PacketBody);
            }
            last = to;
            let absolute = |it: u64| received.checked_add(it).ok_or(Breach::PacketBody);
            beyond.push((absolute(from)?, absolute(to)?));
        }
        if offset.checked_add(length as u64).is_none() {
            return Err(Breach::PacketBody);
        }
        let tag = u32::from_le_bytes([a, b, c, 0]);
        Ok(SessionPart { tag, is_initiators, received, beyond, offset, bytes })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn part() -> SessionPart<'static> {
        let beyond = vec![(1010, 1020), (1030, 2000)];
        SessionPart { tag: 0x12_3456, is_initiators: true, received: 1000, beyond, offset: 77, bytes: b"sealed" }
    }

    #[test]
    fn a_part_is_read_as_it_was_written() {
        let mut bytes = Vec::new();
        part().encode(&mut bytes);
        assert_eq!(SessionPart::decode(&bytes), Ok(part()));
        assert_eq!(bytes.len(), 24 + 16 + 6);
    }

    #[test]
    fn what_is_no_part_is_refused() {
        let mut good = Vec::new();
        part().encode(&mut good);
        for cut in 0..good.len() {
            assert!(SessionPart::decode(&good[..cut]).is_err(), "{cut}");
        }
        let changed = |at: usize, to: u8| {
            let mut bytes = good.clone();
            bytes[at] = to;
            SessionPart::decode(&bytes).map(|part| part.offset)
        };
        assert_eq!(changed(0, b'D'), Err(Breach::PacketKind));
        for (at, to, what) in [
            (4, b'x', "neither end"),
            (5, 5, "more ranges than there may be"),
            (6, 7, "longer than it is"),
            (24, 0, "a range that touches what was received"),
            (28, 10, "a range of nothing"),
            (32, 20, "ranges that touch"),
        ] {
            assert_eq!(changed(at, to), Err(Breach::PacketBody), "{what}");
        }
        let mut far = good.clone();
        far[8..16].fill(0xFF);
        assert_eq!(SessionPart::decode(&far), Err(Breach::PacketBody), "beyond what can be counted");
        far = good;
        far[16..24].fill(0xFF);
        assert_eq!(SessionPart::decode(&far), Err(Breach::PacketBody));
    }
}
