//! Lines of text that carry a check of themselves.
//!
//! For: what was measured once and is kept in a file that anything may cut or alter.
//! In and out: words in, a line with its check out; a line in, its words out if they are those that were written; a file's text in, its lines out.
//! Invariants: a line that was cut or altered is as if it were not there, and so is a file of another version: the worst that a broken file can do is
//! another measurement. A file does not grow for ever.
//! Absent on purpose: files, meaning, and secrecy: whoever may write the file may write a line.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

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

/// Lines kept; the oldest go first. A host has tens of file systems and of peers.
pub const LINES_MAX: usize = 256;

/// Something measured that is worth a line of a file.
pub trait CachedLine: Clone {
    /// The file's first line. Another number is another file, and is not read.
    const HEAD: &'static str;
    /// As text, with its check, without the line's end.
    fn encode(&self) -> String;
    /// A line that can be believed.
    fn decode(text: &str) -> Option<Self>;
    /// Says something of the same thing, so that the newer counts.
    fn is_same(&self, other: &Self) -> bool;
}

/// The lines of a file, the oldest first.
#[must_use]
pub fn decode<Line: CachedLine>(text: &str) -> Vec<Line> {
    let mut lines = text.lines();
    if lines.next() != Some(Line::HEAD) {
        return Vec::new();
    }
    lines.take(4 * LINES_MAX).filter_map(Line::decode).collect()
}

/// The file with this line in it, in place of an older one of the same.
#[must_use]
pub fn with<Line: CachedLine>(text: &str, line: &Line) -> String {
    let mut lines = decode::<Line>(text);
    lines.retain(|it| !it.is_same(line));
    lines.push(line.clone());
    encode(&lines)
}

/// The file of these lines, the last `LINES_MAX` of them.
#[must_use]
pub fn encode<Line: CachedLine>(lines: &[Line]) -> String {
    let from = lines.len().saturating_sub(LINES_MAX);
    lines[from..].iter().fold(format!("{}\n", Line::HEAD), |text, line| text + &line.encode() + "\n")
}
