//! What is said of a file: the facts of MLSD and MLST, and the line of LIST.
//!
//! For: listings, on either side of a session.
//! In and out: facts ↔ `type=file;size=5;… name` (RFC 3659 section 7); facts → a line as `ls -l` writes it.
//! Invariants: what is written is read as the same facts and the same name; what is read of a peer is bounded by the line it came in.
//! Absent on purpose: reading lines of LIST, which have no agreed form.

use alloc::format;
use alloc::vec::Vec;

use super::time;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// The folder that is listed, or the one above it.
    ThisFolder,
    /// A symbolic link.
    Link,
    /// Anything else.
    Special,
}

/// What is said of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// What the name stands for.
    pub kind: Kind,
    /// Bytes of a file.
    pub bytes: u64,
    /// When its bytes changed, seconds since 1970.
    pub mtime_s: i64,
    /// Permission bits of Unix, 07777.
    pub mode: u32,
    /// Names of it.
    pub links: u64,
    /// Device and inode: two names that have the same are one file.
    pub unique: (u64, u64),
}

/// The facts that are written, in their order, as FEAT and OPTS MLST name them.
pub const NAMES: [&str; 6] = ["type", "size", "modify", "perm", "unix.mode", "unique"];

/// Which facts a client wants (OPTS MLST): one bit for each of `NAMES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted(u8);

impl Wanted {
    /// Every fact of `NAMES`.
    pub const ALL: Wanted = Wanted(63);

    /// `type;size;`: those that are known; others are let go (RFC 3659 section 7.9).
    #[must_use]
    pub fn parse(text: &[u8]) -> Wanted {
        let mut bits = 0;
        for word in text.split(|&byte| byte == b';') {
            bits |= NAMES.iter().position(|name| word.eq_ignore_ascii_case(name.as_bytes())).map_or(0, |at| 1 << at);
        }
        Wanted(bits)
    }

    /// Is the one at this place of `NAMES` wanted?
    #[must_use]
    pub const fn has(self, at: usize) -> bool {
        self.0 >> at & 1 == 1
    }
}

/// Writes the facts up to the blank before the name (RFC 3659 section 7).
pub fn write(out: &mut Vec<u8>, facts: &Facts, wanted: Wanted, may_write: bool) {
    let is_folder = matches!(facts.kind, Kind::Folder | Kind::ThisFolder);
    if wanted.has(0) {
        let kind = match facts.kind {
            Kind::File => "file",
            Kind::Folder => "dir",
            Kind::ThisFolder => "cdir",
            Kind::Link => "OS.unix=symlink",
            Kind::Special => "OS.unix=special",
        };
        out.extend_from_slice(format!("type={kind};").as_bytes());
    }
    if wanted.has(1) && facts.kind == Kind::File {
        out.extend_from_slice(format!("size={};", facts.bytes).as_bytes());
    }
    if wanted.has(2) {
        out.extend_from_slice(format!("modify={};", time::written(facts.mtime_s)).as_bytes());
    }
    if wanted.has(3) {
        let perm = match (is_folder, may_write) {
            (true, true) => "flcdmpe",
            (true, false) => "el",
            (false, true) => "rwadf",
            (false, false) => "r",
        };
        out.extend_from_slice(format!("perm={perm};").as_bytes());
    }
    if wanted.has(4) {
        out.extend_from_slice(format!("unix.mode={:04o};", facts.mode & 0o7777).as_bytes());
    }
    if wanted.has(5) {
        out.extend_from_slice(format!("unique={:x}g{:x};", facts.unique.0, facts.unique.1).as_bytes());
    }
    out.push(b' ');
}

/// Reads a line of MLSD or MLST, without its end: the facts that are known, and the name. What a server leaves out is 0, a special file, or 1970.
/// `None`: it is no such line, or says two things of one.
#[must_use]
pub fn parse(line: &[u8]) -> Option<(Facts, &[u8])> {
    let blank = line.iter().position(|&byte| byte == b' ')?;
    let mut facts = Facts { kind: Kind::Special, bytes: 0, mtime_s: 0, mode: 0, links: 1, unique: (0, 0) };
    let mut seen = 0u8;
    for fact in line[..blank].strip_suffix(b";").unwrap_or(&line[..blank]).split(|&byte| byte == b';') {
        if fact.is_empty() && blank == 0 {
            break;
        }
        let equals = fact.iter().position(|&byte| byte == b'=')?;
        let (name, value) = (&fact[..equals], &fact[equals + 1..]);
        let Some(at) = NAMES.iter().position(|it| name.eq_ignore_ascii_case(it.as_bytes())) else { continue };
        if seen >> at & 1 == 1 {
            return None;
        }
        seen |= 1 << at;
        match at {
            0 => facts.kind = kind_of(value),
            1 => facts.bytes = digits(value, 10)?,
            2 => facts.mtime_s = time::parse(value)?,
            4 => facts.mode = u32::try_from(digits(value, 8)?).ok().filter(|&mode| mode <= 0o7777)?,
            // What it is made of is the server's own.
            _ => {}
        }
    }
    let name = &line[blank + 1..];
    (!name.is_empty()).then_some((facts, name))
}

fn kind_of(value: &[u8]) -> Kind {
    let is = |it: &[u8]| value.eq_ignore_ascii_case(it);
    match () {
        () if is(b"file") => Kind::File,
        () if is(b"dir") => Kind::Folder,
        () if is(b"cdir") || is(b"pdir") => Kind::ThisFolder,
        () if value.to_ascii_lowercase().starts_with(b"os.unix=s") && !is(b"OS.unix=special") => Kind::Link,
        () => Kind::Special,
    }
}

fn digits(text: &[u8], radix: u32) -> Option<u64> {
    let text = core::str::from_utf8(text).ok().filter(|it| it.bytes().all(|byte| byte.is_ascii_digit()))?;
    u64::from_str_radix(text, radix).ok()
}

/// Writes a line of LIST, as `ls -l` writes it, without its end. `now_s`: seconds since 1970.
pub fn write_long(out: &mut Vec<u8>, name: &[u8], facts: &Facts, now_s: i64) {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    /// `ls` writes the hour of what changed within half a year (gnu coreutils).
    const HALF_YEAR_S: i64 = 31_556_952 / 2;
    out.push(match facts.kind {
        Kind::Folder | Kind::ThisFolder => b'd',
        Kind::Link => b'l',
        Kind::Special => b's',
        Kind::File => b'-',
    });
    for (at, &letter) in b"rwxrwxrwx".iter().enumerate() {
        out.push(if facts.mode >> (8 - at) & 1 == 1 { letter } else { b'-' });
    }
    let (year, month, day) = time::date(facts.mtime_s.div_euclid(86_400));
    let (hour, minute, _) = time::clock(facts.mtime_s);
    let month = usize::try_from(month - 1).ok().and_then(|at| MONTHS.get(at)).unwrap_or(&MONTHS[0]);
    let line = format!(" {} ftp ftp {:>12} {month} {day:>2} ", facts.links, facts.bytes);
    out.extend_from_slice(line.as_bytes());
    let is_recent = (now_s.saturating_sub(HALF_YEAR_S)..=now_s.saturating_add(86_400)).contains(&facts.mtime_s);
    let when = if is_recent { format!("{hour:02}:{minute:02} ") } else { format!(" {year:04} ") };
    out.extend_from_slice(when.as_bytes());
    out.extend_from_slice(name);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    const FILE: Facts =
        Facts { kind: Kind::File, bytes: 5, mtime_s: 951_782_400, mode: 0o644, links: 1, unique: (0x10, 0xab) };

    #[test]
    fn facts_are_read_as_they_were_written_with_any_name() {
        for kind in [Kind::File, Kind::Folder, Kind::ThisFolder, Kind::Link, Kind::Special] {
            let bytes = if kind == Kind::File { u64::MAX } else { 0 };
            let facts = Facts { kind, bytes, ..FILE };
            for name in [&b"a"[..], b" a  b", b"\xff;=", b"type=dir; x"] {
                let mut line = Vec::new();
                write(&mut line, &facts, Wanted::ALL, true);
                line.extend_from_slice(name);
                let (read, its) = parse(&line).unwrap();
                assert_eq!((read, its), (Facts { unique: (0, 0), ..facts }, name));
            }
        }
    }

    #[test]
    fn a_client_hears_the_facts_that_it_wants_and_no_others() {
        let mut line = Vec::new();
        write(&mut line, &FILE, Wanted::parse(b"SIZE;nonsense;Modify;"), false);
        assert_eq!(line, b"size=5;modify=20000229000000; ");
        line.clear();
        write(&mut line, &FILE, Wanted::parse(b""), false);
        assert_eq!(line, b" ");
        assert_eq!(parse(b" name").unwrap().1, b"name");
        line.clear();
        write(&mut line, &FILE, Wanted::ALL, false);
        assert_eq!(line, b"type=file;size=5;modify=20000229000000;perm=r;unix.mode=0644;unique=10gab; ");
    }

    #[test]
    fn lines_that_are_no_facts_are_read_as_none() {
        for bad in [
            &b""[..],
            b"type=file;",
            b"type=file; ",
            b"type=file;size=x; a",
            b"size=18446744073709551616; a",
            b"size=+5; a",
            b"size=1;size=2; a",
            b"modify=20000230000000; a",
            b"unix.mode=9; a",
            b"unix.mode=10000; a",
            b"type; a",
            b"-rw-r--r-- 1 ftp ftp 5 Feb 29 2000 a",
        ] {
            assert_eq!(parse(bad), None, "{}", bad.escape_ascii());
        }
        assert_eq!(parse(b"Type=OS.unix=slink:/x;X.y=; a").unwrap().0.kind, Kind::Link);
    }

    #[test]
    fn a_line_of_list_is_as_ls_writes_it() {
        let mut line = Vec::new();
        write_long(&mut line, b"a b", &FILE, FILE.mtime_s + 100 * 86_400);
        line.push(b'|');
        write_long(&mut line, b"d", &Facts { kind: Kind::Folder, mode: 0o755, ..FILE }, i64::MAX);
        assert_eq!(
            String::from_utf8(line).unwrap(),
            "-rw-r--r-- 1 ftp ftp            5 Feb 29 00:00 a b|drwxr-xr-x 1 ftp ftp            5 Feb 29  2000 d"
        );
    }
}
