//! What the kernel says of a file: whether it is the one that is meant, and where it has bytes.
//!
//! For: names at both ends.
//! In and out: a file or what was looked up of it in; verdicts out.
//! Invariants: looks only, and asks twice where the kernel has been wrong.
//! Absent on purpose: names (`source`, `sink`), watching a file over time (`source::watched`).

use std::fs::File;
use std::io;

use proto::manifest::Entry;
use proto::wire::chunk::CHUNK_BYTES_MIN;
use sys::fs::{Kind, Stat};

use crate::tree::sink_tree::Sign;
use crate::tree::source_tree::{HOLES_AT_ONCE, Holes};

/// "Stale file handle": a version is not what it was when it was looked at.
pub(super) const ESTALE: i32 = 116;

/// Is it the file that the manifest speaks of, by length and time?
pub(super) fn is_same(stat: &Stat, entry: &Entry) -> bool {
    stat.kind == Kind::File
        && stat.bytes == entry.bytes()
        && (stat.mtime_s, stat.mtime_ns) == (entry.mtime_s, entry.mtime_ns)
}

/// See `Sign`: the time of change of the inode moves with every write and every rename.
pub(super) fn sign_of(stat: &Stat) -> Sign {
    let time = |s: i64, ns: u32| s.cast_unsigned() << 30 ^ u64::from(ns);
    let (ctime, mtime) = (time(stat.ctime_s, stat.ctime_ns), time(stat.mtime_s, stat.mtime_ns));
    Sign([stat.dev, stat.ino, stat.bytes, ctime, mtime, u64::from(stat.mode)])
}

/// Is it the same inode, and was nothing of it changed? Its owner can set every time but this one.
pub(super) fn is_untouched(before: &Stat, now: &Stat) -> bool {
    let of = |stat: &Stat| (stat.dev, stat.ino, stat.ctime_s, stat.ctime_ns);
    of(before) == of(now)
}

/// The folder that a path stands in; empty: the base.
pub(super) fn folder_of(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&byte| byte == b'/').map_or(&[], |slash| &path[..slash])
}

/// Does the page cache hold (nearly) all of the file, or, where the kernel does not count, its beginning, middle and end? Then reading
/// it past the cache would be the slower way. What lives in memory is there: its pages, all of which the kernel would walk, are not counted.
pub(super) fn is_cached(file: &File, bytes: u64) -> bool {
    if sys::fs::is_memory_file_system(file) {
        return true;
    }
    if let Ok(cached) = sys::fs::cached(file, 0, 0) {
        return cached.bytes / 10 * 10 >= bytes / 10 * 9;
    }
    [0, bytes / 2, bytes.saturating_sub(1)].iter().all(|&offset| sys::fs::is_cached_at(file, offset))
}

/// The next holes of a file from `offset` on, where the kernel itself tells them. Errors: what is said to be one holds data.
pub(super) fn holes_of(file: &File, offset: u64) -> io::Result<Holes> {
    if !sys::fs::tells_holes(file) {
        return Ok(Holes { ranges: Vec::new(), until: u64::MAX });
    }
    let (mut ranges, mut until) = (Vec::with_capacity(HOLES_AT_ONCE), offset);
    for _ in 0..LOOKS_AT_ONCE {
        let Some((start, end)) = sys::fs::next_hole(file, until)? else {
            return Ok(Holes { ranges, until: u64::MAX });
        };
        until = end;
        if end - start < u64::from(CHUNK_BYTES_MIN) {
            continue; // no chunk fits into it
        }
        if !is_hole(file, start, end)? {
            return Err(io::Error::other("its file system takes data for a hole"));
        }
        ranges.push((start, end));
        if ranges.len() == HOLES_AT_ONCE {
            break;
        }
    }
    Ok(Holes { ranges, until })
}

/// Holes too short for a chunk that are passed over at once, at most: some µs each, on a thread that others wait for.
const LOOKS_AT_ONCE: usize = 256;

/// Does what is said to be a hole read as zeros, where it begins, in its middle and at its end? Who says so has been wrong before.
fn is_hole(file: &File, start: u64, end: u64) -> io::Result<bool> {
    let mut bytes = [0; sys::fs::HOLE_BYTES];
    for at in [start, start + (end - start) / 2, end.saturating_sub(bytes.len() as u64).max(start)] {
        let read = sys::fs::read_at_full(file, &mut bytes, at)?;
        let inside = read.min(usize::try_from(end - at).unwrap_or(usize::MAX));
        if bytes[..inside].iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_hole_that_holds_data_is_none() {
        let path = std::env::temp_dir().join(format!("longhaul-hole-{}", std::process::id()));
        let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mib = 1 << 20;
        file.set_len(8 * mib).unwrap();
        file.write_all_at(b"x", 4 * mib).unwrap();
        assert!(is_hole(&file, 0, 4 * mib).unwrap(), "nothing before the byte");
        for (start, end) in [(0, 8 * mib), (4 * mib, 6 * mib), (3 * mib, 4 * mib + 1)] {
            assert!(!is_hole(&file, start, end).unwrap(), "{start}..{end} has a byte where it is looked at");
        }
        assert!(is_hole(&file, 5 * mib, 8 * mib).unwrap(), "up to the end of the file");
    }
}
