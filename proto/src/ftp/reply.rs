//! What a server answers.
//!
//! For: `session`; and who reads replies, for `quoted` and `code_of`.
//! In and out: a code and lines of text → bytes (RFC 959 section 4.2); a path → its quotes in a 257, and back.
//! Invariants: a reply ends where it says; no text, a name of a file in it included, makes a line of its own; 0xFF is doubled (RFC 854).
//! Absent on purpose: which reply a command has (`session`).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The answer to a command: a code, lines between the first and the last, and the last line's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Three digits.
    pub code: u16,
    /// The first line and those that follow it, if there are several.
    pub before: Vec<Vec<u8>>,
    /// The last line.
    pub text: Vec<u8>,
}

impl Reply {
    /// A code and a line of text.
    pub fn new(code: u16, text: impl Into<String>) -> Reply {
        Reply::of_bytes(code, text.into().into_bytes())
    }

    /// The same with a name in it, which may have any bytes.
    #[must_use]
    pub fn of_bytes(code: u16, text: Vec<u8>) -> Reply {
        Reply { code, before: Vec::new(), text }
    }

    /// Several lines; the first says what follows, the last that it is over.
    #[must_use]
    pub fn of_lines(code: u16, first: &str, lines: impl IntoIterator<Item = Vec<u8>>, last: &str) -> Reply {
        let mut before = alloc::vec![first.as_bytes().to_vec()];
        before.extend(lines);
        Reply { code, before, text: last.as_bytes().to_vec() }
    }

    /// As it goes to the client.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (at, line) in self.before.iter().enumerate() {
            // A line between begins with a blank, so that no text looks like the reply's end.
            out.extend_from_slice(&if at == 0 { format!("{}-", self.code).into_bytes() } else { b" ".to_vec() });
            push(&mut out, line);
        }
        out.extend_from_slice(format!("{} ", self.code).as_bytes());
        push(&mut out, &self.text);
        out
    }
}

fn push(out: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        match byte {
            b'\r' | b'\n' => out.push(b'?'),
            255 => out.extend_from_slice(&[255, 255]),
            _ => out.push(byte),
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// The code of a reply's line and whether more lines follow. `None`: the line begins with no code (RFC 959 section 4.2: 1yz to 5yz; 6yz is of RFC 2228).
#[must_use]
pub fn code_of(line: &[u8]) -> Option<(u16, bool)> {
    let [first @ b'1'..=b'6', second @ b'0'..=b'9', third @ b'0'..=b'9', rest @ ..] = line else { return None };
    let code = [first, second, third].iter().fold(0, |all, &&digit| all * 10 + u16::from(digit - b'0'));
    match rest.first() {
        None | Some(b' ') => Some((code, false)),
        Some(b'-') => Some((code, true)),
        _ => None,
    }
}

/// A path from the root as a 257 has it: in quotes, those in it doubled (RFC 959 appendix II).
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

/// The path in the text of a 257. `None`: there is none.
#[must_use]
pub fn unquoted(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = text.strip_prefix(b"\"")?.iter().copied();
    let mut out = Vec::new();
    loop {
        match bytes.next()? {
            b'"' if bytes.next() == Some(b'"') => out.push(b'"'),
            b'"' => return Some(out),
            byte => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_has_its_code_first_and_last_and_no_text_makes_lines() {
        assert_eq!(Reply::new(200, "Yes.").encode(), b"200 Yes.\r\n");
        let lines = [b"a\r\n211 End".to_vec(), b"211 End".to_vec(), b"\xff".to_vec()];
        let said = Reply::of_lines(211, "Features:", lines, "End").encode();
        assert_eq!(said, b"211-Features:\r\n a??211 End\r\n 211 End\r\n \xff\xff\r\n211 End\r\n");
        let ends = said.split(|&byte| byte == b'\n').filter(|line| code_of(line).is_some_and(|(_, more)| !more));
        assert_eq!(ends.count(), 1);
    }

    #[test]
    fn codes_are_three_digits_and_a_blank_or_a_dash() {
        assert_eq!(code_of(b"220 x"), Some((220, false)));
        assert_eq!(code_of(b"220-x"), Some((220, true)));
        assert_eq!(code_of(b"220"), Some((220, false)));
        for bad in [&b""[..], b"22", b"720 x", b"2200", b" 220 x", b"22x y", b"020 x"] {
            assert_eq!(code_of(bad), None);
        }
    }

    #[test]
    fn a_path_is_read_from_its_quotes_as_it_was_put_into_them() {
        for path in [&b""[..], b"a", b"a \"b\"", b"\"", b"\"\"", b"\xff"] {
            let said = [&quoted(path)[..], b" is where you are."].concat();
            assert_eq!(unquoted(&said), Some([b"/", path].concat()));
        }
        for bad in [&b""[..], b"a", b"\"a", b"\"a\"\""] {
            assert_eq!(unquoted(bad), None);
        }
    }
}
