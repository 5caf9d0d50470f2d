//! What selections found, as lines of a file.
//!
//! For: a file system that was measured once need not be measured by every job.
//! In and out: the file's text in, the lines that can be believed out; a line in, text out.
//! Invariants: another version, a line that was cut or altered, or one that does not fit a mode is as if it were not there: the worst that a
//! broken file can do is another selection.
//! Absent on purpose: the file (`engine::tree::io_mode`), what a key is made of.
//!
//! ```text
//! longhaul-engines 2
//! KEY WAY ENGINE IO_BYTES DEPTH BYTES_PER_SECOND SECOND SECOND_BYTES_PER_SECOND MEASURED CHECK
//! ```
//! KEY is 16 hexadecimal digits, SECOND is `-` where no other mode worked, MEASURED counts seconds since 1970, CHECK is that of `crate::checked`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::selection::{Candidate, Verdict};
use super::{IoMode, Way};
use crate::checked::{self, CachedLine};

/// Chunks are at most so long (docs/protocol.md).
const IO_BYTES_MAX: u32 = 16 << 20;

/// A selection's outcome for one file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The file system, its mount and the kernel.
    pub key: u64,
    /// What was found.
    pub verdict: Verdict,
    /// When, in seconds since 1970.
    pub measured_s: u64,
}

impl CachedLine for Line {
    const HEAD: &'static str = "longhaul-engines 2";

    fn encode(&self) -> String {
        let Verdict { way, candidate, bps, second, .. } = &self.verdict;
        let (second, second_bps) = second.map_or(("-", 0), |(mode, bps)| (mode.name(), bps));
        let (way, mode) = (way.name(), candidate.mode.name());
        let (key, measured_s, Candidate { io_bytes, depth, .. }) = (self.key, self.measured_s, candidate);
        checked::close(&format!("{key:016x} {way} {mode} {io_bytes} {depth} {bps} {second} {second_bps} {measured_s}"))
    }

    fn decode(text: &str) -> Option<Line> {
        let mut words = checked::open(text)?.split(' ');
        let key = u64::from_str_radix(words.next()?, 16).ok()?;
        let way = match words.next()? {
            "read" => Way::Read,
            "write" => Way::Write,
            _ => return None,
        };
        let mode = IoMode::by_name(words.next()?).filter(|it| it.can(way))?;
        let io_bytes = words.next()?.parse().ok().filter(|it: &u32| *it <= IO_BYTES_MAX && it.is_multiple_of(4096))?;
        let depth = words.next()?.parse().ok().filter(|it| (1..=1024).contains(it))?;
        let bps = words.next()?.parse().ok().filter(|it| *it > 0)?;
        let second = words.next()?;
        let second_bps: u64 = words.next()?.parse().ok()?;
        let second = IoMode::by_name(second).map(|mode| (mode, second_bps));
        let measured_s = words.next()?.parse().ok()?;
        if words.next().is_some() {
            return None;
        }
        let candidate = Candidate { mode, io_bytes, depth };
        Some(Line { key, verdict: Verdict { way, candidate, bps, second, spent_ns: 0, trials: 0 }, measured_s })
    }

    /// Of the same file system and way.
    fn is_same(&self, other: &Line) -> bool {
        (self.key, self.verdict.way) == (other.key, other.verdict.way)
    }
}

/// The lines but for those of this file system and way.
#[must_use]
pub fn without(text: &str, key: u64, way: Way) -> Vec<Line> {
    let mut lines: Vec<Line> = checked::decode(text);
    lines.retain(|it| (it.key, it.verdict.way) != (key, way));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checked::{LINES_MAX, decode, with};

    fn line(key: u64, way: Way, mode: IoMode) -> Line {
        let candidate = Candidate { mode, io_bytes: 1 << 20, depth: 8 };
        let second = Some((IoMode::Buffered, 5));
        Line {
            key,
            verdict: Verdict { way, candidate, bps: 7, second, spent_ns: 0, trials: 0 },
            measured_s: 1_800_000_000,
        }
    }

    #[test]
    fn what_was_found_is_read_back_and_the_newest_counts() {
        let one = line(1, Way::Read, IoMode::Direct);
        let text = with(&with(&with("", &one), &line(1, Way::Write, IoMode::Early)), &line(2, Way::Read, IoMode::Mmap));
        let newer = line(1, Way::Read, IoMode::Dontcache);
        let lines: Vec<Line> = decode(&with(&text, &newer));
        assert_eq!(lines.len(), 3);
        assert!(lines.contains(&newer) && !lines.contains(&one));
        assert_eq!(without(&text, 1, Way::Read).len(), 2);
    }

    #[test]
    fn a_cut_or_an_altered_byte_costs_its_line_and_no_more() {
        let text = with(&with("", &line(1, Way::Read, IoMode::Direct)), &line(2, Way::Write, IoMode::Direct));
        for at in 0..text.len() {
            assert!(decode(&text[..at]).iter().all(|it| decode::<Line>(&text).contains(it)), "cut at {at}");
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            if let Ok(altered) = String::from_utf8(bytes) {
                let lines = decode::<Line>(&altered);
                assert!(lines.iter().all(|it| decode::<Line>(&text).contains(it)), "altered at {at}: {lines:?}");
            }
        }
        assert_eq!(decode::<Line>("longhaul-engines 1\n"), []);
        assert_eq!(decode::<Line>("\u{0}garbage\n\n"), []);
    }

    #[test]
    fn the_file_does_not_grow_for_ever() {
        let text = (0..LINES_MAX as u64 + 9)
            .fold(String::new(), |text, key| with(&text, &line(key, Way::Read, IoMode::Direct)));
        assert_eq!(decode::<Line>(&text).len(), LINES_MAX);
        assert_eq!(decode::<Line>(&text)[0].key, 9, "the oldest went");
        assert!(Line::decode("x ").is_none());
    }
}
