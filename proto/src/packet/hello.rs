//! A part of a TLS handshake's flight in a datagram: the same bytes go over the connection, which is not there yet or may lose them.
//!
//! For: a handshake that does not wait for the connection's own round trip, nor for its timers.
//! In and out: a piece of the initiator's greeting, of the acceptor's answer, or of what the initiator says to that ↔ bytes of a datagram, but for its MAC.
//! Invariants: decoding never panics and asks for no memory; each value has exactly one encoding; every datagram has the same length, so an answer
//! of no more parts is no longer than what it answers.
//! Absent on purpose: the MAC and the name's meaning (node), what the bytes are: they are records of TLS.
//!
//! ```text
//!  0      1     2      3       4        6         22              1184       1200
//!  +------+-----+------+-------+--------+---------+----- - - -----+----------+
//!  | 'H'  | who | part | parts | length | name    | bytes, zeros  | MAC (16) |
//!  +------+-----+------+-------+--------+---------+----- - - -----+----------+
//!  who: 'i', 'a' or 'r'. part: from 0, below parts. length: u16, of the bytes. name: the first 16 bytes of BLAKE3 of all parts' bytes together; of 'r' the greeting's
//! ```

use alloc::vec::Vec;

use crate::error::Breach;

/// First byte of such a datagram.
pub const HELLO_KIND: u8 = b'H';
/// Its length without the MAC; with it 1,200 bytes, which every path takes.
pub const HELLO_DATAGRAM_BYTES: usize = 1184;
/// Most parts of a flight: a greeting has 1.4 kB, an answer 1.6.
pub const HELLO_PARTS_MAX: usize = 3;
/// Bytes before the flight's.
const FIXED_BYTES: usize = 22;
/// Most bytes of the flight in one.
pub const HELLO_PART_BYTES: usize = HELLO_DATAGRAM_BYTES - FIXED_BYTES;

/// Which flight it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelloFlight {
    /// The greeting of the end that opens the session.
    Greeting,
    /// What the acceptor answers.
    Answer,
    /// What the initiator says to that: its proof, and the first words of the session.
    Rest,
}

impl HelloFlight {
    const fn letter(self) -> u8 {
        match self {
            HelloFlight::Greeting => b'i',
            HelloFlight::Answer => b'a',
            HelloFlight::Rest => b'r',
        }
    }
}

/// A piece of a flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HelloPart<'a> {
    /// Of which flight.
    pub flight: HelloFlight,
    /// Its place in the flight, from 0.
    pub part: u8,
    /// How many parts the flight has.
    pub parts: u8,
    /// Names the flight that it is of; of the rest: the greeting before it.
    pub name: [u8; 16],
    /// Not empty.
    pub bytes: &'a [u8],
}

impl HelloPart<'_> {
    /// Appends it, without the MAC.
    ///
    /// # Panics
    /// On a part that cannot be, which is the caller's bug.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let end = out.len() + HELLO_DATAGRAM_BYTES;
        assert!((1..=HELLO_PART_BYTES).contains(&self.bytes.len()), "a part of {} bytes", self.bytes.len());
        assert!(self.part < self.parts && usize::from(self.parts) <= HELLO_PARTS_MAX, "a part beyond the last");
        out.extend([HELLO_KIND, self.flight.letter(), self.part, self.parts]);
        out.extend((self.bytes.len() as u16).to_le_bytes());
        out.extend(self.name);
        out.extend(self.bytes);
        out.resize(end, 0);
    }

    /// Reads one whose MAC held.
    ///
    /// # Errors
    /// `PacketKind`, `PacketBody`.
    pub fn decode(bytes: &[u8]) -> Result<HelloPart<'_>, Breach> {
        let (fixed, rest) = bytes.split_first_chunk::<FIXED_BYTES>().ok_or(Breach::PacketBody)?;
        let [kind, who, part, parts, low, high, name @ ..] = *fixed;
        if kind != HELLO_KIND {
            return Err(Breach::PacketKind);
        }
        let flights = [HelloFlight::Greeting, HelloFlight::Answer, HelloFlight::Rest];
        let flight = flights.into_iter().find(|it| it.letter() == who).ok_or(Breach::PacketBody)?;
        let length = usize::from(u16::from_le_bytes([low, high]));
        let is_one = part < parts && usize::from(parts) <= HELLO_PARTS_MAX;
        if !is_one || length == 0 || length > HELLO_PART_BYTES || rest.len() != HELLO_PART_BYTES {
            return Err(Breach::PacketBody);
        }
        let (bytes, padding) = rest.split_at(length);
        if padding.iter().any(|byte| *byte != 0) {
            return Err(Breach::PacketBody);
        }
        Ok(HelloPart { flight, part, parts, name, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(bytes: &[u8]) -> HelloPart<'_> {
        HelloPart { flight: HelloFlight::Greeting, part: 1, parts: 2, name: [7; 16], bytes }
    }

    #[test]
    fn a_part_of_a_greeting_is_read_as_it_was_written_and_is_as_long_as_any() {
        for bytes in [&[1][..], &[9; HELLO_PART_BYTES]] {
            let mut out = Vec::new();
            part(bytes).encode(&mut out);
            assert_eq!(HelloPart::decode(&out), Ok(part(bytes)));
            assert_eq!(out.len(), HELLO_DATAGRAM_BYTES);
        }
        for flight in [HelloFlight::Greeting, HelloFlight::Answer, HelloFlight::Rest] {
            let mut out = Vec::new();
            HelloPart { flight, ..part(b"sealed") }.encode(&mut out);
            assert_eq!(HelloPart::decode(&out).map(|it| it.flight), Ok(flight));
        }
    }

    #[test]
    fn what_is_no_part_of_a_greeting_is_refused() {
        let mut good = Vec::new();
        part(b"sealed").encode(&mut good);
        for cut in 0..good.len() {
            assert!(HelloPart::decode(&good[..cut]).is_err(), "{cut}");
        }
        let changed = |at: usize, to: u8| {
            let mut bytes = good.clone();
            bytes[at] = to;
            HelloPart::decode(&bytes).map(|part| part.part)
        };
        assert_eq!(changed(0, b'S'), Err(Breach::PacketKind));
        for (at, to, what) in [
            (1, b'x', "no flight"),
            (2, 2, "beyond the last"),
            (3, 4, "more than there may be"),
            (4, 0, "of nothing"),
            (4, 5, "bytes where zeros are"),
            (5, 200, "longer than there is room"),
            (HELLO_DATAGRAM_BYTES - 1, 1, "something in the padding"),
        ] {
            assert_eq!(changed(at, to), Err(Breach::PacketBody), "{what}");
        }
        good.push(0);
        assert_eq!(HelloPart::decode(&good), Err(Breach::PacketBody), "longer than any");
    }
}
