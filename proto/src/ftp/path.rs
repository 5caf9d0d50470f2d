//! Names beneath the root of a server.
//!
//! For: every command that has a path.
//! In and out: the folder a client is in and what it sent → components with `/` between them; patterns of NLST.
//! Invariants: `..` is taken out here, before any name reaches a file system, and never leads above the root; no component has CR, LF or NUL, is longer than
//! a file system's (255 bytes), or is a name that is not to be seen.
//! Absent on purpose: opening anything.

use alloc::vec::Vec;

/// A component has no more bytes (Linux: `NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;
/// A path has no more bytes (Linux: `PATH_MAX`), so a folder that a client is in does not grow by CWD.
const PATH_BYTES_MAX: usize = 4096;

/// A name beneath the root: components with `/` between them; empty for the root. `hidden`: names that no client sees. `None`: no file can have that name here.
#[must_use]
pub fn resolve(cwd: &[u8], asked: &[u8], hidden: fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    if !fits_a_line(asked) || asked.contains(&0) {
        return None;
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    let from = if asked.starts_with(b"/") { &[][..] } else { cwd };
    for part in from.split(|&byte| byte == b'/').chain(asked.split(|&byte| byte == b'/')) {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part if part.len() > NAME_BYTES_MAX || hidden(part) => return None,
            part => parts.push(part),
        }
    }
    Some(parts.join(&b'/')).filter(|it| it.len() <= PATH_BYTES_MAX)
}

/// Can a line carry this name? One that has CR or LF is in no listing.
#[must_use]
pub fn fits_a_line(name: &[u8]) -> bool {
    !name.iter().any(|byte| matches!(byte, b'\r' | b'\n'))
}

/// Has the last component a pattern in it? Then the folder, and the pattern.
#[must_use]
pub fn pattern_of(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let pattern = &path[at..];
    pattern.iter().any(|byte| matches!(byte, b'*' | b'?' | b'[')).then(|| (&path[..at.saturating_sub(1)], pattern))
}

/// Does a name fit a pattern of `*`, `?` and `[a-z]`, `[!a-z]`? A name that begins with a dot fits only where the pattern does, as a shell has it (glob(7)).
/// The time is at most the product of both lengths: only the last `*` is ever tried again.
#[must_use]
pub fn fits(pattern: &[u8], name: &[u8]) -> bool {
    if name.starts_with(b".") && !pattern.starts_with(b".") {
        return false;
    }
    let (mut at, mut from) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                star = Some((at, from));
                continue;
            }
            None if from == name.len() => return true,
            Some(_) if from < name.len() => {
                if let Some(after) = one(pattern, at, name[from]) {
                    (at, from) = (after, from + 1);
                    continue;
                }
            }
            _ => {}
        }
        match star {
            Some((after, tried)) if tried < name.len() => {
                star = Some((after, tried + 1));
                (at, from) = (after, tried + 1);
            }
            _ => return false,
        }
    }
}

/// Does this byte fit the pattern's element at `at`? Then where the next one begins.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match pattern[at] {
        b'?' => Some(at + 1),
        b'[' => {
            let is_not = matches!(pattern.get(at + 1), Some(b'!' | b'^'));
            let from = at + 1 + usize::from(is_not);
            // A bracket that comes first is one of the set.
            let Some(end) = pattern.get(from + 1..).and_then(|rest| rest.iter().position(|&it| it == b']')) else {
                return (byte == b'[').then_some(at + 1);
            };
            let set = &pattern[from..=from + end];
            let mut is_in = false;
            let mut rest = set;
            while let [first, more @ ..] = rest {
                (rest, is_in) = match more {
                    [b'-', last, beyond @ ..] => (beyond, is_in || (*first..=*last).contains(&byte)),
                    _ => (more, is_in || *first == byte),
                };
            }
            (is_in != is_not).then_some(from + end + 2)
        }
        it => (it == byte).then_some(at + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_above_the_root_or_to_a_hidden_name_or_has_an_end_of_line() {
        for (cwd, asked, wanted) in [
            (&b""[..], &b"/"[..], Some(&b""[..])),
            (b"a/b", b"c", Some(b"a/b/c")),
            (b"a/b", b"../../../../etc/passwd", Some(b"etc/passwd")),
            (b"a", b"/x//./y/", Some(b"x/y")),
            (b"", b"a\xff \"b", Some(b"a\xff \"b")),
            (b"", b"a\nb", None),
            (b"", b"a\rb", None),
            (b"", b"a\0", None),
            (b"", b"d/.hidden", None),
            (b"", &[b'x'; 256], None),
        ] {
            assert_eq!(resolve(cwd, asked, |name| name == b".hidden").as_deref(), wanted, "{asked:?}");
        }
        let mut cwd = Vec::new();
        while let Some(deeper) = resolve(&cwd, &[b'x'; 200], |_| false) {
            cwd = deeper;
        }
        assert!(cwd.len() > 3000 && cwd.len() <= PATH_BYTES_MAX, "it does not grow without end");
    }

    #[test]
    fn patterns_fit_as_a_shell_has_it() {
        for (pattern, name) in [
            (&b"*"[..], &b"a"[..]),
            (b"*.txt", b"a.b.txt"),
            (b"a?c", b"abc"),
            (b"[a-c]x", b"bx"),
            (b"[!a-c]x", b"dx"),
            (b"[]]", b"]"),
            (b"a*b*c", b"aXbYbZc"),
            (b".*", b".x"),
            (b"[", b"["),
            (b"a[x", b"a[x"),
            (b"[a-]", b"-"),
        ] {
            assert!(fits(pattern, name), "{} {}", pattern.escape_ascii(), name.escape_ascii());
        }
        for (pattern, name) in [
            (&b"*"[..], &b".x"[..]),
            (b"?x", b".x"),
            (b"*.txt", b"a.txt2"),
            (b"a?c", b"ac"),
            (b"[a-c]x", b"dx"),
            (b"[!a-c]x", b"ax"),
            (b"", b"a"),
            (b"a*b*c", b"aXcYbZ"),
        ] {
            assert!(!fits(pattern, name), "{} {}", pattern.escape_ascii(), name.escape_ascii());
        }
        // 255 stars on 255 letters end.
        assert!(!fits(&b"*a".repeat(127), &[b'a'; 126]));
        assert_eq!(pattern_of(b"d/e/*.c"), Some((&b"d/e"[..], &b"*.c"[..])));
        assert_eq!(pattern_of(b"?"), Some((&b""[..], &b"?"[..])));
        assert_eq!(pattern_of(b"d*/e"), None);
    }
}
