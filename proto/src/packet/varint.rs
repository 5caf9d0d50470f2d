//! LEB128 varints: seven bits a byte, low first, the top bit says that more follow.
//!
//! For: bodies of control and feedback, whose numbers are mostly small.
//! In and out: `u64` ↔ 1 to 10 bytes.
//! Invariants: only the shortest form is read, so that each value has one encoding.
//! Absent on purpose: signed numbers.

use alloc::vec::Vec;

use crate::error::Breach;

/// Longest encoding of a `u64`: ⌈64 / 7⌉.
pub(super) const VARINT_BYTES_MAX: usize = 10;

/// Writes `value` at the front of `out`; how many bytes it took.
pub(super) fn put_at(out: &mut [u8; VARINT_BYTES_MAX], mut value: u64) -> usize {
    let mut at = 0;
    while value >= 0x80 {
        out[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    out[at] = value as u8;
    at + 1
}

/// Appends `value`.
pub(super) fn put(out: &mut Vec<u8>, value: u64) {
    let mut bytes = [0; VARINT_BYTES_MAX];
    let len = put_at(&mut bytes, value);
    out.extend_from_slice(&bytes[..len]);
}

/// Takes one value off the front of `bytes`.
///
/// # Errors
/// `PacketBody` where it is cut off, above 64 bits, or longer than it need be.
pub(super) fn take(bytes: &mut &[u8]) -> Result<u64, Breach> {
    let mut value = 0_u64;
    for (at, &byte) in bytes.iter().enumerate().take(VARINT_BYTES_MAX) {
        let bits = u64::from(byte & 0x7F);
        if at == VARINT_BYTES_MAX - 1 && byte > 1 {
            return Err(Breach::PacketBody);
        }
        value |= bits << (7 * at);
        if byte & 0x80 == 0 {
            if byte == 0 && at > 0 {
                return Err(Breach::PacketBody);
            }
            *bytes = &bytes[at + 1..];
            return Ok(value);
        }
    }
    Err(Breach::PacketBody)
}
