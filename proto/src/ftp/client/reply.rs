//! Replies of a server.
//!
//! For: a client's control connection.
//! In and out: bytes as they come → whole replies (RFC 959 section 4.2).
//! Invariants: a line has at most `LINE_BYTES_MAX`, a reply `REPLY_BYTES_MAX`; nothing else grows; after a breach nothing more is read.
//! Absent on purpose: what codes mean for a command (`login`, `pipeline`).

use alloc::vec::Vec;

/// A line of a reply has no more bytes.
pub const LINE_BYTES_MAX: usize = 8 << 10;
/// And a reply of several lines has no more.
pub const REPLY_BYTES_MAX: usize = 1 << 20;

/// What is wrong with what a server says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breach {
    /// A line without an end.
    LongLine,
    /// A reply without an end.
    LongReply,
    /// A line that begins with no code.
    NoCode,
}

impl Breach {
    /// In words that follow "the server ".
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Breach::LongLine => "sends a line of more than 8 KiB",
            Breach::LongReply => "sends a reply of more than 1 MiB",
            Breach::NoCode => "does not speak FTP: a reply begins with no code",
        }
    }
}

/// One reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// 100 to 599.
    pub code: u16,
    /// Its lines, without codes of the first and the last one, joined by LF.
    pub text: Vec<u8>,
}

impl Reply {
    /// More is to come on this command.
    #[must_use]
    pub const fn is_preliminary(&self) -> bool {
        self.code < 200
    }

    /// 200 to 299.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.code >= 200 && self.code < 300
    }

    /// 300 to 399.
    #[must_use]
    pub const fn wants_more(&self) -> bool {
        self.code >= 300 && self.code < 400
    }

    /// 400 to 499: the same may work later.
    #[must_use]
    pub const fn is_for_now(&self) -> bool {
        self.code >= 400 && self.code < 500
    }

    /// Does it say that there are too many of us? Servers say so as 421, or as a login that is refused (530).
    #[must_use]
    pub fn is_crowd(&self) -> bool {
        let has = |word: &[u8]| self.text.windows(word.len()).any(|it| it.eq_ignore_ascii_case(word));
        self.code == 421 || (self.code >= 400 && (has(b"too many") || has(b"maximum number") || has(b"max clients")))
    }
}

/// Bytes of a control connection on their way to be replies.
#[derive(Debug, Default)]
pub struct Replies {
    bytes: Vec<u8>,
    /// Bytes before are lines already.
    at: usize,
    open: Option<Reply>,
}

impl Replies {
    /// More bytes came.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Nothing came that is not part of a reply that was taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len() && self.open.is_none()
    }

    /// What came behind the last reply that was taken, and is none.
    #[must_use]
    pub fn take_rest(&mut self) -> Vec<u8> {
        let rest = self.bytes.split_off(self.at.min(self.bytes.len()));
        self.clear();
        rest
    }

    /// Forgets what came: it was said before TLS, and is not believed after it (RFC 7457 section 2.2).
    pub fn clear(&mut self) {
        *self = Replies::default();
    }

    /// The next reply, if all of it came.
    ///
    /// # Errors
    /// What no server of FTP says.
    pub fn take(&mut self) -> Result<Option<Reply>, Breach> {
        loop {
            let rest = &self.bytes[self.at..];
            let Some(len) = rest.iter().position(|&byte| byte == b'\n') else {
                return if rest.len() > LINE_BYTES_MAX { Err(Breach::LongLine) } else { Ok(None) };
            };
            if len > LINE_BYTES_MAX {
                return Err(Breach::LongLine);
            }
            let line = rest[..len].strip_suffix(b"\r").unwrap_or(&rest[..len]);
            let taken = take_line(&mut self.open, line);
            self.at += len + 1;
            if let Some(reply) = taken? {
                return Ok(Some(reply));
            }
        }
    }
}

fn take_line(open: &mut Option<Reply>, line: &[u8]) -> Result<Option<Reply>, Breach> {
    let code = code_of(line);
    match (open.take(), code) {
        (None, None) => Err(Breach::NoCode),
        (None, Some((code, mark))) => {
            let reply = Reply { code, text: line.get(4..).unwrap_or_default().to_vec() };
            if mark == b'-' {
                *open = Some(reply);
                return Ok(None);
            }
            Ok(Some(reply))
        }
        (Some(mut reply), code) => {
            let is_last = matches!(code, Some((code, mark)) if code == reply.code && mark != b'-');
            // Lines in between may repeat the code (`211-…`), as those of some servers do.
            let repeats = matches!(code, Some((code, b'-')) if code == reply.code);
            let text = if is_last || repeats { line.get(4..).unwrap_or_default() } else { line };
            if reply.text.len() + text.len() >= REPLY_BYTES_MAX {
                return Err(Breach::LongReply);
            }
            reply.text.push(b'\n');
            reply.text.extend_from_slice(text);
            if is_last {
                return Ok(Some(reply));
            }
            *open = Some(reply);
            Ok(None)
        }
    }
}

/// `NNN`, `NNN text` or `NNN-text`: the code and what follows it.
fn code_of(line: &[u8]) -> Option<(u16, u8)> {
    let digits = line.get(..3)?;
    let mark = line.get(3).copied().unwrap_or(b' ');
    let is_code = digits.iter().all(u8::is_ascii_digit) && (b'1'..=b'5').contains(&digits[0]) && b" -".contains(&mark);
    is_code.then(|| (digits.iter().fold(0, |all, digit| all * 10 + u16::from(digit - b'0')), mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], step: usize) -> Result<Vec<(u16, Vec<u8>)>, Breach> {
        let (mut replies, mut out) = (Replies::default(), Vec::new());
        for part in bytes.chunks(step) {
            replies.push(part);
            while let Some(reply) = replies.take()? {
                out.push((reply.code, reply.text));
            }
        }
        Ok(out)
    }

    #[test]
    fn replies_of_one_and_of_many_lines_are_read_however_they_are_cut() {
        let said = b"220 hello\r\n211-Features:\r\n MLST size*;\r\n211-REST STREAM\r\n 211 is no end\r\n212 neither\r\n211 End\r\n226\r\n150 x\n";
        let features = b"Features:\n MLST size*;\nREST STREAM\n 211 is no end\n212 neither\nEnd".to_vec();
        for step in [1, 2, 7, 1000] {
            let wanted = [(220, b"hello".to_vec()), (211, features.clone()), (226, Vec::new()), (150, b"x".to_vec())];
            assert_eq!(all(said, step).unwrap(), wanted);
        }
    }

    #[test]
    fn an_endless_line_and_an_endless_reply_are_refused_within_their_bounds() {
        assert_eq!(all(&[b'2'; LINE_BYTES_MAX + 2], 512), Err(Breach::LongLine));
        let mut endless = b"211-x\r\n".to_vec();
        while endless.len() < REPLY_BYTES_MAX * 5 / 4 {
            endless.extend_from_slice(b" and more of the same\r\n");
        }
        assert_eq!(all(&endless, 4096), Err(Breach::LongReply));
        assert_eq!(all(b"hello\r\n", 100), Err(Breach::NoCode));
        assert_eq!(all(b"999 x\r\n", 100), Err(Breach::NoCode));
    }

    #[test]
    fn a_crowd_is_told_by_its_code_or_its_words() {
        let reply = |code, text: &[u8]| Reply { code, text: text.to_vec() };
        assert!(reply(421, b"bye").is_crowd());
        assert!(reply(530, b"Sorry, too many connections from you").is_crowd());
        assert!(!reply(530, b"Login incorrect.").is_crowd());
    }
}
