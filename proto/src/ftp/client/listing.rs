//! Listings of folders.
//!
//! For: trees on servers of others.
//! In and out: bytes of MLSD (RFC 3659 section 7) or LIST (as `ls -l` and as DOS write it) → entries.
//! Invariants: a line has at most `LINE_BYTES_MAX`; a name that could lead out of its folder is told as refused and nothing more; what cannot be
//! understood is skipped and counted.
//! Absent on purpose: links' targets: what a link stands for is asked of the server by using it.

use alloc::vec::Vec;

use super::name::is_safe;
use crate::ftp::time;

/// A line of a listing has no more bytes: a name and as much again.
pub const LINE_BYTES_MAX: usize = 8 << 10;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// A link.
    Link,
    /// Anything else.
    Other,
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// One component.
    pub name: Vec<u8>,
    /// File, folder or link; what the server named otherwise is `Other`.
    pub kind: Kind,
    /// Its bytes, if they were told.
    pub bytes: Option<u64>,
    /// Seconds since 1970, if they were told to the second and in UTC.
    pub modified_s: Option<i64>,
    /// Permission bits, if they were told.
    pub mode: Option<u32>,
}

/// How a listing is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// MLSD.
    Facts,
    /// LIST.
    Long,
}

/// What a line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// An entry.
    Entry(Entry),
    /// A name that may not be used.
    Refused(Vec<u8>),
    /// The folder itself, a heading, a blank line.
    Nothing,
    /// Nobody knows what.
    Unknown,
}

/// A line without an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongLine;

/// Splits bytes that come in any portions into lines; hands each to `line`.
#[derive(Debug, Default)]
pub struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// More bytes.
    ///
    /// # Errors
    /// A line that is too long.
    pub fn push(&mut self, bytes: &[u8], mut line: impl FnMut(&[u8])) -> Result<(), LongLine> {
        let mut left = bytes;
        while let Some(len) = left.iter().position(|&byte| byte == b'\n') {
            self.rest.extend_from_slice(&left[..len]);
            left = &left[len + 1..];
            if self.rest.len() > LINE_BYTES_MAX {
                return Err(LongLine);
            }
            line(without_end(&self.rest));
            self.rest.clear();
        }
        self.rest.extend_from_slice(left);
        if self.rest.len() > LINE_BYTES_MAX { Err(LongLine) } else { Ok(()) }
    }

    /// That was all: a last line may have no end.
    pub fn end(&mut self, mut line: impl FnMut(&[u8])) {
        let rest = core::mem::take(&mut self.rest);
        if !rest.is_empty() {
            line(without_end(&rest));
        }
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Reads a line.
#[must_use]
pub fn parse(form: Form, line: &[u8]) -> Said {
    if line.trim_ascii().is_empty() {
        return Said::Nothing;
    }
    let said = match form {
        Form::Facts => facts(line),
        Form::Long if line.first().is_some_and(u8::is_ascii_digit) => dos(line),
        Form::Long => unix(line),
    };
    match said {
        Some(Said::Entry(entry)) if matches!(&entry.name[..], b"." | b"..") && form == Form::Long => Said::Nothing,
        Some(Said::Entry(entry)) if !is_safe(&entry.name) => Said::Refused(entry.name),
        Some(said) => said,
        None => Said::Unknown,
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |all, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        all.checked_mul(10)?.checked_add(digit)
    })
}

/// `type=file;size=5;modify=20260101000000; name`.
fn facts(line: &[u8]) -> Option<Said> {
    let blank = line.iter().position(|&byte| byte == b' ')?;
    let mut entry =
        Entry { name: line[blank + 1..].to_vec(), kind: Kind::Other, bytes: None, modified_s: None, mode: None };
    for fact in line[..blank].split(|&byte| byte == b';').filter(|it| !it.is_empty()) {
        let equals = fact.iter().position(|&byte| byte == b'=')?;
        let (name, value) = (&fact[..equals], &fact[equals + 1..]);
        if name.eq_ignore_ascii_case(b"type") {
            let is = |what: &[u8]| value.eq_ignore_ascii_case(what);
            if is(b"cdir") || is(b"pdir") {
                return Some(Said::Nothing);
            }
            let is_link =
                value.len() >= 13 && value[..13].eq_ignore_ascii_case(b"OS.unix=slink") || is(b"OS.unix=symlink");
            entry.kind = if is(b"file") {
                Kind::File
            } else if is(b"dir") {
                Kind::Folder
            } else if is_link {
                Kind::Link
            } else {
                Kind::Other
            };
        } else if name.eq_ignore_ascii_case(b"size") {
            entry.bytes = number(value);
        } else if name.eq_ignore_ascii_case(b"modify") {
            entry.modified_s = time::parse(value);
        } else if name.eq_ignore_ascii_case(b"unix.mode") {
            entry.mode = core::str::from_utf8(value).ok().and_then(|it| u32::from_str_radix(it, 8).ok());
        }
    }
    entry.mode = entry.mode.map(|mode| mode & 0o7777);
    Some(Said::Entry(entry))
}

/// The next word and what follows the one blank behind it.
fn word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let from = line.iter().position(|&byte| byte != b' ')?;
    let line = &line[from..];
    let end = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
    Some((&line[..end], line.get(end + 1..).unwrap_or_default()))
}

/// `-rw-r--r--   1 ftp ftp  5 Nov 26 17:00 name`. The group may be missing, an ACL's `+` may follow the bits.
fn unix(line: &[u8]) -> Option<Said> {
    if line.len() >= 6 && line[..6].eq_ignore_ascii_case(b"total ") {
        return Some(Said::Nothing);
    }
    let (bits, mut rest) = word(line)?;
    let kind = match bits.first()? {
        b'-' => Kind::File,
        b'd' => Kind::Folder,
        b'l' => Kind::Link,
        b'b' | b'c' | b'p' | b's' | b'D' => Kind::Other,
        _ => return None,
    };
    let mode = mode_of(bits.get(1..10)?)?;
    // Up to the month, the word before which is the size.
    let mut size = None;
    for _ in 0..6 {
        let (this, after) = word(rest)?;
        if is_month(this) && size.is_some() {
            // Day, then time or year, then exactly one blank, then the name as it is.
            let (_, after) = word(after)?;
            let (_, name) = word(after)?;
            let name = match kind {
                Kind::Link => &name[..name.windows(4).position(|it| it == b" -> ").unwrap_or(name.len())],
                _ => name,
            };
            let bytes = if kind == Kind::File { size } else { None };
            return Some(Said::Entry(Entry { name: name.to_vec(), kind, bytes, modified_s: None, mode: Some(mode) }));
        }
        size = number(this);
        rest = after;
    }
    None
}

fn is_month(word: &[u8]) -> bool {
    const MONTHS: [&[u8]; 12] =
        [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];
    MONTHS.iter().any(|month| word.eq_ignore_ascii_case(month))
}

/// `rwxr-xr-x`.
fn mode_of(bits: &[u8]) -> Option<u32> {
    let mut mode = 0;
    for (at, &bit) in bits.iter().enumerate() {
        let is_set = match (bit, at % 3) {
            (b'-', _) => false,
            (b'r', 0) | (b'w', 1) | (b'x' | b's' | b't', 2) => true,
            (b'S' | b'T', 2) => false,
            _ => return None,
        };
        mode = mode << 1 | u32::from(is_set);
    }
    Some(mode)
}

/// `11-26-26  05:00PM       <DIR>          name`, or a size.
fn dos(line: &[u8]) -> Option<Said> {
    let (date, rest) = word(line)?;
    let (_, rest) = word(rest)?;
    let (what, name) = word(rest)?;
    if date.iter().filter(|&&byte| byte == b'-').count() != 2 {
        return None;
    }
    let is_folder = what.eq_ignore_ascii_case(b"<DIR>");
    let is_link = what.eq_ignore_ascii_case(b"<JUNCTION>") || what.eq_ignore_ascii_case(b"<SYMLINK>");
    // Behind <DIR> the name is in its column; behind a size it follows one blank.
    let name = if is_folder || is_link { name.trim_ascii_start() } else { name };
    let kind = match (is_folder, is_link) {
        (true, _) => Kind::Folder,
        (_, true) => Kind::Link,
        _ => Kind::File,
    };
    let bytes = if kind == Kind::File { Some(number(what)?) } else { None };
    Some(Said::Entry(Entry { name: name.to_vec(), kind, bytes, modified_s: None, mode: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &[u8], kind: Kind, bytes: Option<u64>, modified_s: Option<i64>, mode: Option<u32>) -> Said {
        Said::Entry(Entry { name: name.to_vec(), kind, bytes, modified_s, mode })
    }

    #[test]
    fn facts_are_read_and_names_keep_their_bytes() {
        let of = |line: &[u8]| parse(Form::Facts, line);
        assert_eq!(
            of(b"Type=file;Size=5;Modify=20000229000000.123;UNIX.mode=0644;  a \"b\" \xff"),
            entry(b" a \"b\" \xff", Kind::File, Some(5), Some(951_782_400), Some(0o644))
        );
        assert_eq!(of(b"type=dir;perm=el; d"), entry(b"d", Kind::Folder, None, None, None));
        assert_eq!(of(b"type=OS.unix=slink:/etc; l"), entry(b"l", Kind::Link, None, None, None));
        assert_eq!(of(b"type=cdir; ."), Said::Nothing);
        for bad in [&b"type=file;size=1; ../x"[..], b"type=file; /etc/passwd", b"type=dir; ..", b"type=file; "] {
            assert!(matches!(of(bad), Said::Refused(_)), "{}", bad.escape_ascii());
        }
        assert_eq!(of(b"nothing"), Said::Unknown);
        assert_eq!(of(b"type=file;size=99999999999999999999; x"), entry(b"x", Kind::File, None, None, None));
    }

    #[test]
    fn long_listings_of_unix_and_dos_are_read() {
        let of = |line: &[u8]| parse(Form::Long, line);
        let file = |name: &[u8]| entry(name, Kind::File, Some(5), None, Some(0o644));
        assert_eq!(of(b"-rw-r--r--    1 1000     1000            5 Nov 26 17:00 a  b"), file(b"a  b"));
        assert_eq!(of(b"-rw-r--r--   1 ftp ftp 5 Nov  6  2025  blank before"), file(b" blank before"));
        assert_eq!(of(b"-rw-r--r--+  1 ftp 5 Nov  6  2025 x"), file(b"x"));
        assert_eq!(
            of(b"drwxr-xr-x   2 ftp ftp 4096 May 6 2025 May"),
            entry(b"May", Kind::Folder, None, None, Some(0o755))
        );
        assert_eq!(of(b"lrwxrwxrwx 1 a b 3 May 6 2025 l -> ../x"), entry(b"l", Kind::Link, None, None, Some(0o777)));
        assert_eq!(of(b"total 12"), Said::Nothing);
        assert_eq!(of(b"drwxr-xr-x   2 ftp ftp 4096 May 6 2025 .."), Said::Nothing);
        assert_eq!(of(b"-rw-r--r-- 1 a b 3 May 6 2025 ../../x"), Said::Refused(b"../../x".to_vec()));
        assert_eq!(of(b"11-26-26  05:00PM       <DIR>          a b"), entry(b"a b", Kind::Folder, None, None, None));
        assert_eq!(
            of(b"11-26-26  05:00PM                 1234 c d"),
            entry(b"c d", Kind::File, Some(1234), None, None)
        );
        for bad in [&b"hello"[..], b"-rw-r--r--", b"-rw 1 a b 3 May 6 2025 x", b"11-26-26 05:00PM x y", b"1 2 3 4"] {
            assert_eq!(of(bad), Said::Unknown, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn lines_are_cut_anywhere_and_never_grow() {
        let mut seen = Vec::new();
        let mut lines = Lines::default();
        for byte in b"a\r\nb\nc" {
            lines.push(&[*byte], |line| seen.push(line.to_vec())).unwrap();
        }
        lines.end(|line| seen.push(line.to_vec()));
        assert_eq!(seen, [b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]);
        assert_eq!(Lines::default().push(&[b'x'; LINE_BYTES_MAX + 1], |_| ()), Err(LongLine));
    }
}
