//! Bytes of a control connection, cut into lines.
//!
//! For: `session`, which takes a line when the one before it has its reply.
//! In and out: bytes as they come; lines without their end and without Telnet's words (RFC 959 section 5.3, RFC 854).
//! Invariants: a line has at most `LINE_BYTES_MAX` bytes, what waits at most `WAITING_BYTES_MAX` and one read more; a line that ends otherwise than by CR LF is
//! no command, nor is what follows it up to the next CR LF: a name that carries an LF cannot smuggle one in.
//! Absent on purpose: what lines mean (`command`).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A line has no more bytes, its end not counted. RFC 959 names no limit; a path of Linux has 4096 (`PATH_MAX`).
pub const LINE_BYTES_MAX: usize = 4096;
/// Commands ahead of their turn.
pub const LINES_MAX: usize = 64;
/// And their bytes: 64 of usual length.
pub const WAITING_BYTES_MAX: usize = 16 << 10;
/// Telnet's "interpret as command", the first of its words, and the first of those that have an operand (RFC 854).
const IAC: u8 = 255;
const WORD_MIN: u8 = 240;
const WILL: u8 = 251;
const OPTION_WORD_MAX: u8 = 254;

/// What came up to an end of line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A line.
    Text(Vec<u8>),
    /// A line of more than `LINE_BYTES_MAX` bytes, which was thrown away.
    TooLong,
    /// An LF without CR before it; what stood before it, and follows it up to CR LF, was thrown away.
    BareLf,
}

/// What of the connection's bytes waits: whole lines in order, and the beginning of one.
#[derive(Debug, Default)]
pub struct Lines {
    whole: VecDeque<Line>,
    whole_bytes: usize,
    begun: Vec<u8>,
    /// What comes up to CR LF was answered already.
    skips: bool,
    after_cr: bool,
    aborts: usize,
}

impl Lines {
    /// Takes what came. Ask `has_room` before.
    pub fn on_bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let after_cr = core::mem::replace(&mut self.after_cr, byte == b'\r');
            if byte != b'\n' {
                if !self.skips {
                    self.begun.push(byte);
                    // One byte more: the CR of a line that is as long as it may be.
                    if self.begun.len() > LINE_BYTES_MAX + 1 {
                        self.cut(Line::TooLong);
                    }
                }
                continue;
            }
            match (core::mem::take(&mut self.skips), after_cr) {
                (true, false) => self.skips = true,
                (true, true) => {}
                (false, false) => self.cut(Line::BareLf),
                (false, true) => {
                    self.begun.pop();
                    let line = plain(&self.begun);
                    self.begun.clear();
                    self.aborts += usize::from(is_abort(&line));
                    self.whole_bytes += line.len();
                    self.whole.push_back(Line::Text(line));
                }
            }
        }
    }

    /// The line that has begun is refused; the rest of it is thrown away.
    fn cut(&mut self, why: Line) {
        self.begun.clear();
        self.skips = true;
        self.whole.push_back(why);
    }

    /// Is there room for another read?
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.whole.len() < LINES_MAX && self.held_bytes() < WAITING_BYTES_MAX
    }

    /// Bytes of lines that wait.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.whole_bytes + self.begun.len()
    }

    /// Is one of the lines that wait ABOR?
    #[must_use]
    pub const fn has_abort(&self) -> bool {
        self.aborts > 0
    }

    /// Is a line there?
    #[must_use]
    pub fn has_line(&self) -> bool {
        !self.whole.is_empty()
    }

    /// The line whose turn it is.
    pub fn next_line(&mut self) -> Option<Line> {
        let line = self.whole.pop_front()?;
        if let Line::Text(text) = &line {
            self.whole_bytes -= text.len();
            self.aborts -= usize::from(is_abort(text));
        }
        Some(line)
    }

    /// Throws everything away: what was said in clear is not believed after TLS is on (RFC 7457 section 2.2).
    pub fn clear(&mut self) {
        *self = Lines::default();
    }
}

/// ABOR, whatever stands behind it.
fn is_abort(line: &[u8]) -> bool {
    line.get(..4).is_some_and(|it| it.eq_ignore_ascii_case(b"ABOR")) && matches!(line.get(4), None | Some(b' '))
}

/// A line without the words of Telnet before it. A doubled IAC is one byte 0xFF; alone it is itself, in the name of a client that does not double it.
fn plain(mut line: &[u8]) -> Vec<u8> {
    while let [IAC, word, rest @ ..] = line {
        line = match *word {
            // An option: what it is of follows.
            WILL..=OPTION_WORD_MAX => rest.get(1..).unwrap_or_default(),
            WORD_MIN..WILL => rest,
            // Its urgent byte went another way.
            _ => &line[1..],
        };
    }
    let mut out = Vec::with_capacity(line.len());
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte == IAC {
            bytes.next_if_eq(&IAC);
        }
        out.push(byte);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<Line> {
        let mut lines = Lines::default();
        lines.on_bytes(bytes);
        core::iter::from_fn(|| lines.next_line()).collect()
    }

    fn text(bytes: &[u8]) -> Line {
        Line::Text(bytes.to_vec())
    }

    #[test]
    fn telnet_is_taken_out_of_lines_and_names_keep_their_bytes() {
        for (line, wanted) in [
            (&b"RETR a"[..], &b"RETR a"[..]),
            (b"\xff\xf4\xff\xf2ABOR", b"ABOR"),
            (b"STOR \xff\xff", b"STOR \xff"),
            (b"STOR a\xff", b"STOR a\xff"),
            (b"STOR \xffb", b"STOR \xffb"),
            (b"STOR \xff\xfe", b"STOR \xff\xfe"),
            (b"\xff\xf4\xffABOR", b"ABOR"),
            (b"\xff", b"\xff"),
            (b"\xff\xfb\x01NOOP", b"NOOP"),
        ] {
            assert_eq!(plain(line), wanted);
        }
    }

    #[test]
    fn a_line_ends_by_cr_lf_and_nothing_behind_a_bare_lf_is_a_command() {
        assert_eq!(lines(b"NOOP\r\nPWD\r\nHAL"), [text(b"NOOP"), text(b"PWD")]);
        assert_eq!(lines(b"STOR a\nDELE b\r\nPWD\r\n"), [Line::BareLf, text(b"PWD")]);
        assert_eq!(lines(b"STOR a\nDELE b\nDELE c\n"), [Line::BareLf]);
        assert_eq!(lines(b"a\rb\r\n"), [text(b"a\rb")], "that is the command's to refuse");
        assert_eq!(lines(b"\r\n\r\r\n"), [text(b""), text(b"\r")]);
    }

    #[test]
    fn lines_are_the_same_however_they_were_cut_on_the_way() {
        let whole = b"USER a\r\n\xff\xf4\xff\xf2ABOR\r\nSTOR x\ny\r\nNOOP\r\n";
        let wanted = lines(whole);
        for at in 0..whole.len() {
            let mut lines = Lines::default();
            lines.on_bytes(&whole[..at]);
            lines.on_bytes(&whole[at..]);
            assert_eq!(core::iter::from_fn(|| lines.next_line()).collect::<Vec<_>>(), wanted);
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_refused_once_and_costs_no_more_than_its_limit() {
        let longest = [&[b'x'; LINE_BYTES_MAX][..], b"\r\n"].concat();
        assert_eq!(lines(&longest), [text(&longest[..LINE_BYTES_MAX])]);
        let mut it = Lines::default();
        for _ in 0..100 {
            it.on_bytes(&[b'x'; 1000]);
            assert!(it.held_bytes() <= LINE_BYTES_MAX + 1);
        }
        it.on_bytes(b"\r\nNOOP\r\n");
        assert_eq!(core::iter::from_fn(|| it.next_line()).collect::<Vec<_>>(), [Line::TooLong, text(b"NOOP")]);
    }

    #[test]
    fn sixty_four_commands_wait_and_an_abort_among_them_is_seen() {
        let mut it = Lines::default();
        for _ in 0..LINES_MAX - 1 {
            it.on_bytes(b"NOOP\r\n");
        }
        assert!(it.has_room() && !it.has_abort());
        it.on_bytes(b"abor\r\n");
        assert!(!it.has_room() && it.has_abort());
        for _ in 0..LINES_MAX {
            assert!(it.next_line().is_some());
        }
        assert!(!it.has_abort() && it.next_line().is_none() && it.held_bytes() == 0);
    }
}
