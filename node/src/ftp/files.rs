//! Names and facts, as FTP writes them.
//!
//! For: a session's paths, and its listings (RFC 959, RFC 3659).
//! In and out: bytes that a client sent → names beneath the root; facts of entries → lines.
//! Invariants: `..` is taken out before any name reaches the file system, and never leads above the root; names of our own parts do not exist; a name that
//! a line cannot carry is in no listing.
//! Absent on purpose: opening anything (`sys::fs::Dir` follows no link at any component).

use std::fmt::Write as _;

use engine::tree::is_ours;
use sys::fs::{Kind, Stat};

/// What is listed, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `ls -l`.
    Long,
    /// Names.
    Names,
    /// Facts.
    Facts,
}

/// A name for `Dir`: components with `/` between them; empty for the root. `None`: no file can have that name.
#[must_use]
pub fn resolve(cwd: &[u8], asked: &[u8]) -> Option<Vec<u8>> {
    if asked.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
        return None;
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    let from = if asked.starts_with(b"/") { &[][..] } else { cwd };
    for part in from.split(|&byte| byte == b'/').chain(asked.split(|&byte| byte == b'/')) {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part if is_ours(part) || part.len() > 255 => return None,
            part => parts.push(part),
        }
    }
    Some(parts.join(&b'/'))
}

/// The path in a 257: quotes doubled (RFC 959 appendix II).
#[must_use]
pub fn quoted(path: &[u8]) -> Vec<u8> {
    let mut out = b"\"/".to_vec();
    for &byte in path {
        out.push(byte);
        if byte == b'"' {
            out.push(byte);
        }
    }
    out.push(b'"');
    out
}

/// Can a line carry this name?
#[must_use]
pub fn fits_a_line(name: &[u8]) -> bool {
    !name.iter().any(|byte| matches!(byte, b'\r' | b'\n'))
}

/// Days since 1970 to year, month, day: H. Hinnant, "chrono-compatible low-level date algorithms".
fn date(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * shifted + 2) / 5 + 1) as u32;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 } as u32;
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// A time as MDTM and MLSD write it: UTC, `YYYYMMDDHHMMSS` (RFC 3659 section 2.3).
#[must_use]
pub fn time(seconds: i64) -> String {
    let (year, month, day) = date(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    format!("{year:04}{month:02}{day:02}{:02}{:02}{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// Reads such a time; a fraction of a second is let go.
#[must_use]
pub fn parse_time(text: &[u8]) -> Option<i64> {
    let text = text.split(|&byte| byte == b'.').next()?;
    if text.len() != 14 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number =
        |from: usize, to: usize| text[from..to].iter().fold(0i64, |all, digit| all * 10 + i64::from(digit - b'0'));
    let (year, month, day) = (number(0, 4), number(4, 6), number(6, 8));
    let (hour, minute, second) = (number(8, 10), number(10, 12), number(12, 14));
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (shifted, year) = ((month + 9) % 12, year - i64::from(month <= 2));
    let of_era = year.rem_euclid(400);
    let of_year = (153 * shifted + 2) / 5 + day - 1;
    let days = year.div_euclid(400) * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

/// A line of LIST, as `ls -l` writes it, without its end.
pub fn list_line(out: &mut Vec<u8>, name: &[u8], stat: &Stat, now_s: i64) {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    /// `ls` writes the hour of what changed within half a year (gnu coreutils).
    const HALF_YEAR_S: i64 = 31_556_952 / 2;
    let kind = match stat.kind {
        Kind::Folder => 'd',
        Kind::Link => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::Char => 'c',
        Kind::Block => 'b',
        Kind::File | Kind::Other => '-',
    };
    let mut line = String::from(kind);
    for (at, letter) in "rwxrwxrwx".chars().enumerate() {
        line.push(if stat.mode >> (8 - at) & 1 == 1 { letter } else { '-' });
    }
    let (year, month, day) = date(stat.mtime_s.div_euclid(86_400));
    let of_day = stat.mtime_s.rem_euclid(86_400);
    let _ = write!(line, " {} ftp ftp {:>12} {} {day:>2} ", stat.nlink, stat.bytes, MONTHS[month as usize - 1]);
    let is_recent = (now_s - HALF_YEAR_S..=now_s + 86_400).contains(&stat.mtime_s);
    let _ = if is_recent {
        write!(line, "{:02}:{:02} ", of_day / 3600, of_day / 60 % 60)
    } else {
        write!(line, " {year:04} ")
    };
    out.extend_from_slice(line.as_bytes());
    out.extend_from_slice(name);
}

/// The facts of MLSD and MLST, up to the blank before the name (RFC 3659 section 7). `kind`: `cdir` for the folder itself.
pub fn facts(out: &mut Vec<u8>, stat: &Stat, kind: Option<&str>, may_write: bool) {
    let is_folder = stat.kind == Kind::Folder;
    let kind = kind.unwrap_or(match stat.kind {
        Kind::File => "file",
        Kind::Folder => "dir",
        Kind::Link => "OS.unix=symlink",
        _ => "OS.unix=special",
    });
    let mut line = format!("type={kind};");
    if stat.kind == Kind::File {
        let _ = write!(line, "size={};", stat.bytes);
    }
    let perm = match (is_folder, may_write) {
        (true, true) => "flcdmpe",
        (true, false) => "el",
        (false, true) => "rwadf",
        (false, false) => "r",
    };
    let _ = write!(line, "modify={};perm={perm};unix.mode={:04o};", time(stat.mtime_s), stat.mode & 0o7777);
    let _ = write!(line, "unique={:x}g{:x}; ", stat.dev, stat.ino);
    out.extend_from_slice(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_above_the_root_or_to_a_part_or_has_an_end_of_line() {
        for (cwd, asked, wanted) in [
            (&b""[..], &b"/"[..], Some(&b""[..])),
            (b"a/b", b"c", Some(b"a/b/c")),
            (b"a/b", b"../../../../etc/passwd", Some(b"etc/passwd")),
            (b"a", b"/x//./y/", Some(b"x/y")),
            (b"", b"a\xff \"b", Some(b"a\xff \"b")),
            (b"", b"a\nb", None),
            (b"", b"a\0", None),
            (b"", b"d/.longhaul-0123456789abcdef.part", None),
        ] {
            assert_eq!(resolve(cwd, asked).as_deref(), wanted, "{asked:?}");
        }
        assert_eq!(quoted(b"a \"b\""), b"\"/a \"\"b\"\"\"");
    }

    #[test]
    fn times_go_there_and_back() {
        for (seconds, text) in
            [(0, "19700101000000"), (951_782_400, "20000229000000"), (1_795_736_096, "20261126233456")]
        {
            assert_eq!(time(seconds), text);
            assert_eq!(parse_time(text.as_bytes()), Some(seconds));
        }
        for at in (-100_000_000_000..200_000_000_000).step_by(86_399 * 997) {
            if (0..253_402_300_799).contains(&at) {
                assert_eq!(parse_time(time(at).as_bytes()), Some(at));
            }
        }
        for bad in ["", "2026112623345", "20261326000000", "2026112a000000", "20261126240000"] {
            assert_eq!(parse_time(bad.as_bytes()), None, "{bad}");
        }
    }
}
