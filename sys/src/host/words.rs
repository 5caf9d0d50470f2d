//! The words of this process's own command line, as other users of the host see them.
//!
//! For: secrets that a user typed there.
//! In and out: which bytes of a word are to go → the same bytes overwritten, in the memory that `/proc/PID/cmdline` shows.
//! Invariants: only bytes within the block of words that the kernel made are written, and each word keeps its length.
//! Absent on purpose: which words are secret; the environment, which only the same user and root can read.

use std::io;
use std::ops::Range;

/// `/proc/PID/stat`, proc(5): fields 48 and 49, counted from 1; field 3 is the first behind the name.
const ARG_START: usize = 48 - 3;

/// Overwrites with `with` what `secret` names of each word. Returns how many bytes. To be called from the first thread before there is another.
///
/// # Errors
/// `/proc` does not say where the words are.
pub fn overwrite(mut secret: impl FnMut(&[u8]) -> Option<Range<usize>>, with: u8) -> io::Result<usize> {
    let unknown = || io::Error::from(io::ErrorKind::InvalidData);
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, behind_name) = stat.rsplit_once(')').ok_or_else(unknown)?;
    let mut fields = behind_name.split_whitespace().skip(ARG_START).map(str::parse::<usize>);
    let (Some(Ok(start)), Some(Ok(end))) = (fields.next(), fields.next()) else { return Err(unknown()) };
    let words = std::fs::read("/proc/self/cmdline")?;
    let bytes = end.saturating_sub(start).min(words.len());
    let (mut at, mut overwritten) = (0, 0);
    for word in words[..bytes].split(|byte| *byte == 0) {
        if let Some(range) = secret(word).filter(|it| it.start <= it.end && it.end <= word.len()) {
            let place = std::ptr::with_exposed_provenance_mut::<u8>(start + at + range.start);
            // SAFETY: [start, end) is the block of words which the kernel put on this process's stack, writable for as long as the process lives;
            // `/proc/self/cmdline` showed `bytes` bytes of it, and at + range.end is at most that (the filter above). No reference of Rust's
            // points there: std copies words out through C pointers, and no other thread runs yet.
            unsafe { std::ptr::write_bytes(place, with, range.len()) };
            overwritten += range.len();
        }
        at += word.len() + 1;
    }
    Ok(overwritten)
}
