//! Lines of text that carry a check of themselves.
//!
//! For: what was measured once and is kept in a file that anything may cut or alter.
//! In and out: words in, a line with its check out; a line in, its words out if they are those that were written.
//! Invariants: a line that was cut or altered is as if it were not there.
//! Absent on purpose: files, meaning, and secrecy: whoever may write the file may write a line.

use alloc::format;
use alloc::string::String;

/// FNV-1a of 64 bits (Fowler, Noll, Vo; IETF draft-eastlake-fnv).
#[must_use]
pub fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// The words with their check, without the line's end.
#[must_use]
pub fn close(words: &str) -> String {
    format!("{words} {:016x}", fnv(words))
}

/// The words of a line that can be believed.
#[must_use]
pub fn open(line: &str) -> Option<&str> {
    let (words, sum) = line.rsplit_once(' ')?;
    (u64::from_str_radix(sum, 16) == Ok(fnv(words))).then_some(words)
}
