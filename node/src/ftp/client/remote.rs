//! What is at a server: folders read, facts asked for, digests compared.
//!
//! For: `get`, `put` and `verify`.
//! In and out: a session and a path → entries, a length, a time, a digest.
//! Invariants: a listing is bounded, and none of its names leads out of its folder; what a server does not tell is unknown, and never guessed.
//! Absent on purpose: files' bytes.

use std::fs::File;
use std::io::Read;
use std::ops::Range;

use engine::seal::record::{Content, record_bytes};
use proto::ftp::client::listing::{Entry, Form, Lines, Said, parse};
use proto::ftp::client::reply::Reply;
use proto::ftp::command::Digest;
use proto::ftp::time;
use text::exit::Exit;

use super::control::{Control, Passive, Trouble, command, words};
use crate::ftp::digests::Running;

/// A listing has no more bytes: a million names, a hundred bytes each.
const LISTING_BYTES_MAX: u64 = 128 << 20;
const ROOM_BYTES: usize = 64 << 10;
/// Read at once of a file that is hashed: it stays in a core's second-level cache meanwhile.
const READ_BYTES: usize = 256 << 10;

/// A folder as a server tells it.
#[derive(Debug, Default)]
pub struct Listing {
    /// What is in it.
    pub entries: Vec<Entry>,
    /// Names that may not be used.
    pub refused: Vec<Vec<u8>>,
    /// Lines that nobody understands.
    pub unknown: u64,
}

impl Listing {
    fn take(&mut self, form: Form, line: &[u8]) {
        match parse(form, line) {
            Said::Entry(entry) => self.entries.push(entry),
            Said::Refused(name) => self.refused.push(name),
            Said::Unknown => self.unknown += 1,
            Said::Nothing => {}
        }
    }
}

impl Control<'_> {
    /// A data connection for a transfer, which is asked for with this command. `Err(reply)`: the server refused the command.
    ///
    /// # Errors
    /// The session is lost.
    pub fn transfer(&mut self, before: &[Vec<u8>], line: &[u8]) -> Result<Result<std::net::TcpStream, Reply>, Trouble> {
        let reply = loop {
            let passive = self.passive_command()?;
            self.say(&passive)?;
            let reply = self.reply()?;
            if reply.code >= 400 && self.passive == Passive::Extended {
                self.passive = Passive::Old;
                continue;
            }
            break reply;
        };
        let dialled = self.dial(&reply)?;
        for line in before {
            self.say(line)?;
            let reply = self.reply()?;
            if reply.code >= 400 {
                return Ok(Err(reply));
            }
        }
        self.say(line)?;
        let began = self.reply()?;
        if !began.is_preliminary() {
            return Ok(Err(began));
        }
        match dialled {
            Some(stream) => Ok(Ok(stream)),
            None => self.accept().map(Ok),
        }
    }

    /// What is in a folder.
    ///
    /// # Errors
    /// The session is lost, or the server says what no folder is. `Ok(Err)`: it refused.
    pub fn list(&mut self, path: &[u8]) -> Result<Result<Listing, Reply>, Trouble> {
        let form = if self.features.mlsd { Form::Facts } else { Form::Long };
        let line = match form {
            Form::Facts => command("MLSD", path),
            Form::Long => command("LIST -a", path),
        };
        let mut stream = match self.transfer(&[], &line)? {
            Ok(stream) => stream,
            Err(reply) => return Ok(Err(reply)),
        };
        let mut listing = Listing::default();
        self.read_lines(&mut stream, |line| listing.take(form, line))?;
        drop(stream);
        let end = self.reply()?;
        if !end.is_done() {
            return Ok(Err(end));
        }
        Ok(Ok(listing))
    }

    fn read_lines(&mut self, stream: &mut std::net::TcpStream, mut line: impl FnMut(&[u8])) -> Result<(), Trouble> {
        let mut tls = self.cover(stream, true)?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(self.stall()))?;
        let too_long =
            |_| Trouble::Failure(Exit::Breach.fail("read a folder", "the server sends a line of more than 8 KiB"));
        let (mut lines, mut room, mut ahead, mut total) = (Lines::default(), vec![0; ROOM_BYTES], Vec::new(), 0u64);
        if let Some(tls) = &mut tls {
            lines.push(&tls.first.bytes, &mut line).map_err(too_long)?;
            ahead = std::mem::take(&mut tls.keys.early);
            if tls.first.is_end {
                lines.end(line);
                return Ok(());
            }
        }
        loop {
            if let Some(tls) = &mut tls {
                while let Some(bytes) = record_bytes(&ahead).map_err(|_| cut())?.filter(|&it| it <= ahead.len()) {
                    let mut record: Vec<u8> = ahead.drain(..bytes).collect();
                    let (content, range) = tls.keys.opening.open(&mut record).map_err(|_| cut())?;
                    match content {
                        Content::Data => lines.push(&record[range], &mut line).map_err(too_long)?,
                        Content::Handshake => tls.keep(&record[range]),
                        // close_notify: a warning, 0.
                        Content::Alert if record[range.clone()].ends_with(&[0]) => {
                            lines.end(line);
                            return Ok(());
                        }
                        Content::Alert => return Err(cut()),
                    }
                }
            }
            let read = stream.read(&mut room)?;
            total += read as u64;
            if total > LISTING_BYTES_MAX {
                return Err(Trouble::Failure(
                    Exit::Breach
                        .fail("read a folder", "its listing has more than 128 MiB")
                        .next("name a folder below it"),
                ));
            }
            match (read, &tls) {
                (0, None) => {
                    lines.end(line);
                    return Ok(());
                }
                (0, Some(_)) => return Err(cut()),
                (read, None) => lines.push(&room[..read], &mut line).map_err(too_long)?,
                (read, Some(_)) => ahead.extend_from_slice(&room[..read]),
            }
        }
    }

    /// The length of a file. `None`: the server does not say, or it is none.
    ///
    /// # Errors
    /// The session is lost.
    pub fn size(&mut self, path: &[u8]) -> Result<Option<u64>, Trouble> {
        let reply = self.ask("SIZE", path)?;
        Ok(size_of(&reply))
    }

    /// When a file changed.
    ///
    /// # Errors
    /// The session is lost.
    pub fn modified(&mut self, path: &[u8]) -> Result<Option<i64>, Trouble> {
        let reply = self.ask("MDTM", path)?;
        Ok(time_of(&reply))
    }

    /// The folder of the login, with a `/` at its end, or nothing.
    ///
    /// # Errors
    /// The session is lost.
    pub fn home(&mut self) -> Result<Vec<u8>, Trouble> {
        let reply = self.ask("PWD", b"")?;
        if reply.code != 257 {
            return Ok(Vec::new());
        }
        let mut home = Vec::new();
        let mut bytes = reply.text.iter().copied().skip_while(|&byte| byte != b'"').skip(1).peekable();
        while let Some(byte) = bytes.next() {
            // A quote is doubled (RFC 959 appendix II).
            if byte == b'"' && bytes.next_if_eq(&b'"').is_none() {
                break;
            }
            home.push(byte);
        }
        if !home.starts_with(b"/") || !proto::ftp::client::name::fits_a_command(&home) {
            return Ok(Vec::new());
        }
        if !home.ends_with(b"/") {
            home.push(b'/');
        }
        Ok(home)
    }

    /// The command that asks for a file's digest, if there is one whose digest is made here too.
    #[must_use]
    pub fn digest_word(&self) -> Option<&'static str> {
        self.features.digest().filter(|(_, kind)| *kind != Digest::Md5).map(|it| it.0)
    }

    /// Does the server have the same bytes, by its reply to that command? `own` has the digest of those here. `None`: the server does not say.
    ///
    /// # Errors
    /// Those of `own`.
    pub fn compare(
        &self,
        reply: &Reply,
        own: impl FnOnce(Digest) -> std::io::Result<String>,
    ) -> std::io::Result<Option<bool>> {
        let Some((_, kind)) = self.features.digest() else { return Ok(None) };
        let Some(theirs) = Some(reply).filter(|it| it.is_done()).and_then(|it| kind.find(&it.text)) else {
            return Ok(None);
        };
        let own = own(kind)?;
        let theirs = String::from_utf8_lossy(theirs).to_ascii_lowercase();
        Ok(Some(own.trim_start_matches('0') == theirs.trim_start_matches('0')))
    }

    /// Hashes an upload by the algorithm whose digest this server reports; `None`: it reports none.
    #[must_use]
    pub fn upload_digest(&self) -> Option<Running> {
        self.digest_word()?;
        self.features.digest().map(|(_, kind)| Running::new(kind))
    }
}

/// The digest of a file that is here, read once more.
///
/// # Errors
/// It cannot be read.
pub fn digest_of(digest: Digest, file: &File) -> std::io::Result<String> {
    let mut running = Running::new(digest);
    read_range(file, 0..u64::MAX, |bytes| running.update(bytes))?;
    Ok(running.finish())
}

/// Reads a range of a file, or as much of it as there is: how many bytes.
///
/// # Errors
/// It cannot be read.
pub fn read_range(file: &File, range: Range<u64>, mut each: impl FnMut(&[u8])) -> std::io::Result<u64> {
    let mut room = vec![0; READ_BYTES.min(usize::try_from(range.end - range.start).unwrap_or(READ_BYTES))];
    let mut at = range.start;
    while at < range.end {
        let most = room.len().min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
        let read = sys::fs::read_at_full(file, &mut room[..most], at)?;
        each(&room[..read]);
        at += read as u64;
        if read < most {
            break;
        }
    }
    Ok(at - range.start)
}

fn cut() -> Trouble {
    Trouble::Lost("a listing was cut".to_owned())
}

/// What 213 says of a length.
#[must_use]
pub fn size_of(reply: &Reply) -> Option<u64> {
    let text = std::str::from_utf8(&reply.text).ok().filter(|_| reply.code == 213)?;
    text.split_ascii_whitespace().next_back()?.parse().ok()
}

/// What 213 says of a time.
#[must_use]
pub fn time_of(reply: &Reply) -> Option<i64> {
    (reply.code == 213).then(|| time::parse(reply.text.trim_ascii()))?
}

/// The server refused something of an entry: what kind of fault that is, and its words.
#[must_use]
pub fn fault_of(reply: &Reply) -> (proto::wire::control::FaultKind, String) {
    use proto::wire::control::FaultKind;
    let said = words(reply);
    let has = |word: &str| said.to_ascii_lowercase().contains(word);
    let kind = match reply.code {
        552 | 452 => FaultKind::Full,
        553 => FaultKind::Denied,
        550 if has("permission") || has("denied") || has("allowed") => FaultKind::Denied,
        550 if has("no such") || has("not found") || has("failed to open") || has("exist") => FaultKind::Vanished,
        450 => FaultKind::InUse,
        _ => FaultKind::Other,
    };
    (kind, format!("the server said: {said}"))
}
