//! Blocks that are played from bytes: anything a sender may say, beside a plain account of every byte.
//!
//! For: the test of mutated transfers and the fuzz target `ftp_blocks`.
//! In and out: heads, 17 bytes each → whether it was a transfer; a rule that did not hold is a panic.
//! Invariants checked: no byte is taken twice or behind the limit; over is when EODs are as many as EOF said, and whole when no byte is missing.
//! Absent on purpose: the bytes themselves.

use alloc::vec;

use super::{EOD, EOF, HEAD_BYTES, Head, Incoming};

/// Bytes of the file that is played: each has its mark.
const LIMIT: u64 = 4096;

/// Plays one. True: all of it was taken.
///
/// # Panics
/// When a rule does not hold.
#[must_use]
pub fn play(input: &[u8]) -> bool {
    let mut incoming = Incoming::new(0, LIMIT);
    let mut taken = vec![false; LIMIT as usize];
    let (mut ends, mut expected) = (0, None);
    let (heads, _) = input.as_chunks::<HEAD_BYTES>();
    for bytes in heads {
        let head = Head::decode(bytes);
        assert_eq!(head.encode(), *bytes, "a head is read as it was written");
        let Ok(told) = incoming.on_head(&head) else { return false };
        assert_eq!(told.bytes.end - told.bytes.start, head.count);
        assert!(told.bytes.end <= LIMIT);
        for byte in &mut taken[told.bytes.start as usize..told.bytes.end as usize] {
            assert!(!core::mem::replace(byte, true), "no byte is taken twice");
        }
        if head.flags & EOF != 0 {
            assert!(expected.replace(head.offset).is_none());
        }
        ends += u64::from(head.flags & EOD != 0);
        assert_eq!(incoming.is_over(), expected == Some(ends));
        let end = taken.iter().rposition(|&it| it).map_or(0, |at| at + 1);
        assert_eq!(incoming.end(), end as u64);
        assert_eq!(incoming.is_whole(), taken[..end].iter().all(|&it| it));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn mutated_transfers_take_no_byte_twice_and_end_when_they_should() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % below
        };
        let mut whole = 0;
        for _ in 0..20_000 {
            let mut said = Vec::new();
            for at in 0..1 + random(12) {
                let flags = [0, 0, 0, 0, EOD, EOF, EOD | EOF, 4, 0x20][random(9) as usize];
                let count = if flags & EOF == 0 { random(64) } else { random(16) / 15 };
                let offset = if flags & EOF == 0 { at * 64 } else { random(4) };
                said.extend_from_slice(&Head { flags, count, offset }.encode());
            }
            if random(3) == 0 {
                let at = random(said.len() as u64) as usize;
                said[at] = random(256) as u8;
            }
            whole += u32::from(play(&said));
        }
        assert!(whole > 1000, "{whole} were transfers");
    }
}
