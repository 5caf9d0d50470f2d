//! A receipt's lines back to values, and a whole receipt streamed line by line.
//!
//! For: `longhaul verify`, and checking what the other end signed.
//! In and out: one line's bytes to a `Line`; lines in order through `Reading` to head, totals and signatures.
//! Invariants: only what `receipt.rs` writes is accepted, so parse and write are inverse; memory does not grow with the number of lines.
//! Absent on purpose: checking digests and signatures (callers have BLAKE3 and keys).

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{
    Alike, EntryLine, Former, HEX, HEX_UPPER, Head, Line, RECEIPT_LINE_BYTES_MAX, ReceiptError, Signer,
    durability_word, stays,
};
use crate::layout::{Layout, Stripe, VOLUMES_MAX};
use crate::manifest::{ENTRY_PATH_BYTES_MAX, Entry, EntryKind, Meta, NodeKind, check_path};
use crate::wire::control::{Digest, DigestKind, Durability, FILE_BYTES_MAX};

/// What a line was, for the caller that hashes the body and compares files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// A line of the head, or the last line of the body: part of the signed bytes.
    Body,
    /// An entry: part of the signed bytes.
    Entry(Box<EntryLine>),
    /// A line after the body.
    Trailer,
}

/// A receipt being read from top to bottom. The caller hashes each line and its newline for which `Taken` is not `Trailer`.
#[derive(Debug, Clone)]
pub struct Reading {
    next: Next,
    head: Head,
    former: Option<Former>,
    files: u64,
    bytes: u64,
    body: Digest,
    signatures: [Option<[u8; 64]>; 2],
}

/// The line that may come now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// from: start; to: `Job`
    Title,
    /// to: `DigestKind`
    Job,
    /// to: `Durability`
    DigestKind,
    /// to: `SenderKey`
    Durability,
    /// A layout, and that the source is unread, may come before it; to: `ReceiverKey`
    SenderKey,
    /// to: `First`
    ReceiverKey,
    /// The head is over. from: `ReceiverKey`; to: `Entry`, `End` if it refers to a former receipt, `BodyDigest` if it names nothing
    First,
    /// to: `Entry`, at the body's end `BodyDigest`
    Entry,
    /// The totals are the former receipt's. to: `BodyDigest`
    End,
    /// to: `Signed`
    BodyDigest,
    /// to: `Signed`, once per end
    Signed,
}

/// What a whole receipt says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// What stands above the entries.
    pub head: Head,
    /// Its entries are those of this receipt; their totals are compared by whoever reads it.
    pub former: Option<Former>,
    /// Files in the body.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// BLAKE3 of the body as the trailer claims it; the caller compares it with its own.
    pub body: Digest,
    /// The sender's signature, unchecked; its key is the head's.
    pub sender: Option<[u8; 64]>,
    /// The receiver's signature, unchecked; its key is the head's.
    pub receiver: Option<[u8; 64]>,
}

impl Default for Reading {
    fn default() -> Self {
        Self::new()
    }
}

impl Reading {
    /// Nothing read yet.
    #[must_use]
    pub fn new() -> Reading {
        let head = Head {
            job: [0; 16],
            digest: DigestKind::Blake3,
            durability: Durability::Received,
            layout: None,
            bare: false,
            sender: [0; 32],
            receiver: [0; 32],
        };
        Reading { next: Next::Title, head, former: None, files: 0, bytes: 0, body: [0; 32], signatures: [None; 2] }
    }

    /// The head, once it is complete.
    #[must_use]
    pub fn head(&self) -> Option<&Head> {
        matches!(self.next, Next::First | Next::Entry | Next::End | Next::BodyDigest | Next::Signed)
            .then_some(&self.head)
    }

    /// Takes the next line, without its newline.
    ///
    /// # Errors
    /// A malformed line, one that cannot stand here, or totals that do not add up.
    pub fn take(&mut self, line: &[u8]) -> Result<Taken, ReceiptError> {
        let line = match parse_line(line) {
            Err(error) if self.next == Next::Title && error != ReceiptError::VersionUnknown => {
                return Err(ReceiptError::NotAReceipt);
            }
            other => other?,
        };
        let (next, taken) = match (self.next, line) {
            (Next::Title, Line::Title) => (Next::Job, Taken::Body),
            (Next::Job, Line::Job(job)) => {
                self.head.job = job;
                (Next::DigestKind, Taken::Body)
            }
            (Next::DigestKind, Line::DigestKind(kind)) => {
                self.head.digest = kind;
                (Next::Durability, Taken::Body)
            }
            (Next::Durability, Line::Durability(durability)) => {
                self.head.durability = durability;
                (Next::SenderKey, Taken::Body)
            }
            (Next::SenderKey, Line::Bare) if !self.head.bare => {
                self.head.bare = true;
                (Next::SenderKey, Taken::Body)
            }
            (Next::SenderKey, Line::Layout(layout)) if self.head.layout.is_none() && !self.head.bare => {
                self.head.layout = Some(layout);
                (Next::SenderKey, Taken::Body)
            }
            (Next::SenderKey, Line::Key(Signer::Sender, key)) => {
                self.head.sender = key;
                (Next::ReceiverKey, Taken::Body)
            }
            (Next::ReceiverKey, Line::Key(Signer::Receiver, key)) => {
                self.head.receiver = key;
                (Next::First, Taken::Body)
            }
            (Next::First, Line::Former(former)) => {
                // One that refers to itself would have no end.
                if former.job == self.head.job {
                    return Err(ReceiptError::Order);
                }
                self.former = Some(former);
                (Next::End, Taken::Body)
            }
            (Next::End, Line::End { files, bytes }) => {
                (self.files, self.bytes) = (files, bytes);
                (Next::BodyDigest, Taken::Body)
            }
            (Next::First | Next::Entry, Line::Entry(entry)) => (Next::Entry, self.take_entry(entry)?),
            (Next::First | Next::Entry, Line::End { files, bytes }) => {
                if (files, bytes) != (self.files, self.bytes) {
                    return Err(ReceiptError::Totals);
                }
                (Next::BodyDigest, Taken::Body)
            }
            (Next::BodyDigest, Line::BodyDigest(body)) => {
                self.body = body;
                (Next::Signed, Taken::Trailer)
            }
            (Next::Signed, Line::Signed { signer, key, signature }) => {
                self.take_signature(signer, &key, signature)?;
                (Next::Signed, Taken::Trailer)
            }
            _ => return Err(ReceiptError::Order),
        };
        self.next = next;
        Ok(taken)
    }

    fn take_entry(&mut self, line: Box<EntryLine>) -> Result<Taken, ReceiptError> {
        if line.digest.is_some_and(|(kind, _)| kind != self.head.digest) {
            return Err(ReceiptError::DigestKind);
        }
        if line.entry.is_file() {
            self.files += 1;
            self.bytes = self.bytes.checked_add(line.entry.bytes()).ok_or(ReceiptError::Totals)?;
        }
        Ok(Taken::Entry(line))
    }

    fn take_signature(&mut self, signer: Signer, key: &[u8; 32], signature: [u8; 64]) -> Result<(), ReceiptError> {
        let (at, expected) = match signer {
            Signer::Sender => (0, &self.head.sender),
            Signer::Receiver => (1, &self.head.receiver),
        };
        if key != expected {
            return Err(ReceiptError::Key);
        }
        match self.signatures[at].replace(signature) {
            None => Ok(()),
            Some(_) => Err(ReceiptError::Order),
        }
    }

    /// The text has ended.
    ///
    /// # Errors
    /// `Truncated` if it ended before the body's digest.
    pub fn finish(self) -> Result<Sealed, ReceiptError> {
        if self.next != Next::Signed {
            return Err(ReceiptError::Truncated);
        }
        let [sender, receiver] = self.signatures;
        let Reading { head, former, files, bytes, body, .. } = self;
        Ok(Sealed { head, former, files, bytes, body, sender, receiver })
    }
}

/// Reads one line, without its newline.
///
/// # Errors
/// Anything that no writer of this version writes.
pub fn parse_line(line: &[u8]) -> Result<Line, ReceiptError> {
    if line.len() > RECEIPT_LINE_BYTES_MAX {
        return Err(ReceiptError::LineTooLong);
    }
    let mut words = line.split(|&byte| byte == b' ');
    let first = words.next().unwrap_or_default();
    let mut next = || words.next().ok_or(ReceiptError::WordCount);
    let line = match first {
        b"longhaul-receipt" => match next()? {
            b"1" => Line::Title,
            _ => return Err(ReceiptError::VersionUnknown),
        },
        b"job" => Line::Job(hex(next()?)?),
        b"digest" => Line::DigestKind(match next()? {
            b"blake3" => DigestKind::Blake3,
            b"crc64" => DigestKind::Crc64,
            _ => return Err(ReceiptError::LineUnknown),
        }),
        b"rung" => Line::Durability(durability_of(next()?, Durability::name)?),
        b"stripe" => {
            let stripe = Stripe::by_name(next()?).ok_or(ReceiptError::LineUnknown)?;
            let volumes = u16::try_from(number(next()?)?).map_err(|_| ReceiptError::Number)?;
            if !(1..=VOLUMES_MAX).contains(&volumes) {
                return Err(ReceiptError::Number);
            }
            Line::Layout(Layout { stripe, volumes })
        }
        b"source" => match next()? {
            b"unread" => Line::Bare,
            _ => return Err(ReceiptError::LineUnknown),
        },
        b"unchanged" => Line::Former(Former {
            job: hex(next()?)?,
            body: hex(next()?)?,
            alike: match next()? {
                b"times" => Alike::Times,
                b"contents" => Alike::Contents,
                _ => return Err(ReceiptError::LineUnknown),
            },
        }),
        b"sender" => Line::Key(Signer::Sender, hex(next()?)?),
        b"receiver" => Line::Key(Signer::Receiver, hex(next()?)?),
        b"f" | b"d" | b"l" | b"h" | b"p" | b"k" | b"c" | b"b" => {
            Line::Entry(Box::new(parse_entry(first[0], &mut next)?))
        }
        b"end" => Line::End { files: number(next()?)?, bytes: number(next()?)? },
        b"body-blake3" => Line::BodyDigest(hex(next()?)?),
        b"signed" => {
            let signer = match next()? {
                b"sender" => Signer::Sender,
                b"receiver" => Signer::Receiver,
                _ => return Err(ReceiptError::LineUnknown),
            };
            Line::Signed { signer, key: hex(next()?)?, signature: hex(next()?)? }
        }
        _ => return Err(ReceiptError::LineUnknown),
    };
    if words.next().is_some() { Err(ReceiptError::WordCount) } else { Ok(line) }
}

fn parse_entry<'a>(
    letter: u8,
    next: &mut impl FnMut() -> Result<&'a [u8], ReceiptError>,
) -> Result<EntryLine, ReceiptError> {
    let digest = match next()? {
        b"-" => None,
        _ if letter != b'f' => return Err(ReceiptError::Hex),
        word if word.len() == 16 => {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&u64::from_be_bytes(hex(word)?).to_le_bytes());
            Some((DigestKind::Crc64, digest))
        }
        word => Some((DigestKind::Blake3, hex(word)?)),
    };
    let bytes = number(next()?)?;
    let mode = u32::try_from(radix(next()?, 8)?).map_err(|_| ReceiptError::Number)?;
    let (mtime_s, mtime_ns) = time(next()?)?;
    let durability = durability_of(next()?, durability_word)?;
    let path = match next()? {
        b"." => Vec::new(),
        b"" => return Err(ReceiptError::Path),
        word => unescape(word)?,
    };
    let kind = match letter {
        b'f' if bytes <= FILE_BYTES_MAX => EntryKind::File { bytes },
        b'd' if bytes == 0 => EntryKind::Folder,
        b'l' if bytes == 0 => EntryKind::Link { target: unescape(next()?)?.into_boxed_slice() },
        b'h' if bytes == 0 => EntryKind::Name { first: first_name(next()?)? },
        b'p' if bytes == 0 => EntryKind::Node { kind: NodeKind::Fifo, major: 0, minor: 0 },
        b'k' if bytes == 0 => EntryKind::Node { kind: NodeKind::Socket, major: 0, minor: 0 },
        b'c' | b'b' if bytes == 0 => EntryKind::Node {
            kind: if letter == b'c' { NodeKind::Char } else { NodeKind::Block },
            major: u32::try_from(number(next()?)?).map_err(|_| ReceiptError::Number)?,
            minor: u32::try_from(number(next()?)?).map_err(|_| ReceiptError::Number)?,
        },
        _ => return Err(ReceiptError::Number),
    };
    check_path(&path).map_err(|_| ReceiptError::Path)?;
    if mode > 0o7777 {
        return Err(ReceiptError::Number);
    }
    let entry = Entry { id: 0, path: path.into_boxed_slice(), kind, mode, mtime_s, mtime_ns, meta: Meta::default() };
    Ok(EntryLine { entry, digest, durability })
}

/// A first name is a path like any other, and never the destination itself.
fn first_name(word: &[u8]) -> Result<Box<[u8]>, ReceiptError> {
    let path = unescape(word)?;
    if path.is_empty() || check_path(&path).is_err() {
        return Err(ReceiptError::Path);
    }
    Ok(path.into_boxed_slice())
}

fn durability_of(word: &[u8], spelling: fn(Durability) -> &'static str) -> Result<Durability, ReceiptError> {
    [Durability::Received, Durability::Written, Durability::Flushed, Durability::Published]
        .into_iter()
        .find(|&durability| spelling(durability).as_bytes() == word)
        .ok_or(ReceiptError::LineUnknown)
}

fn hex<const N: usize>(word: &[u8]) -> Result<[u8; N], ReceiptError> {
    let (pairs, []) = word.as_chunks::<2>() else { return Err(ReceiptError::Hex) };
    if pairs.len() != N {
        return Err(ReceiptError::Hex);
    }
    let mut out = [0; N];
    for (out, [high, low]) in out.iter_mut().zip(pairs) {
        *out = nibble(*high, HEX).ok_or(ReceiptError::Hex)? << 4 | nibble(*low, HEX).ok_or(ReceiptError::Hex)?;
    }
    Ok(out)
}

fn nibble(digit: u8, digits: &[u8; 16]) -> Option<u8> {
    // By arithmetic, not by a search: a receipt of a million files has 64 million of them.
    let value = match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        b'A'..=b'F' => digit - b'A' + 10,
        _ => return None,
    };
    (digits[usize::from(value)] == digit).then_some(value)
}

fn number(word: &[u8]) -> Result<u64, ReceiptError> {
    radix(word, 10)
}

/// A number in its only spelling: digits, no sign, no zero in front.
fn radix(word: &[u8], radix: u64) -> Result<u64, ReceiptError> {
    if word.is_empty() || (word.len() > 1 && word[0] == b'0') {
        return Err(ReceiptError::Number);
    }
    word.iter().try_fold(0u64, |value, &digit| {
        let digit = u64::from(digit.wrapping_sub(b'0'));
        let value = value.checked_mul(radix).and_then(|value| value.checked_add(digit));
        value.filter(|_| digit < radix).ok_or(ReceiptError::Number)
    })
}

/// Seconds, which may be negative, and what is added to them after the point.
fn time(word: &[u8]) -> Result<(i64, u32), ReceiptError> {
    let point = word.iter().position(|&byte| byte == b'.').ok_or(ReceiptError::Number)?;
    let (seconds, digits) = (&word[..point], &word[point + 1..]);
    let seconds = match seconds {
        [b'-', digits @ ..] => match number(digits)? {
            0 => return Err(ReceiptError::Number),
            value => 0i64.checked_sub_unsigned(value),
        },
        digits => i64::try_from(number(digits)?).ok(),
    };
    let zero_at_end = digits.len() > 1 && digits.ends_with(b"0");
    if digits.is_empty() || digits.len() > 9 || zero_at_end || !digits.iter().all(u8::is_ascii_digit) {
        return Err(ReceiptError::Number);
    }
    let fraction = digits.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0'));
    Ok((seconds.ok_or(ReceiptError::Number)?, fraction * 10u32.pow(9 - digits.len() as u32)))
}

fn unescape(word: &[u8]) -> Result<Vec<u8>, ReceiptError> {
    let mut out = Vec::with_capacity(word.len().min(ENTRY_PATH_BYTES_MAX));
    let mut rest = word;
    loop {
        rest = match rest {
            [] => break,
            [b'%', high, low, rest @ ..] => {
                let digit = |digit| nibble(digit, HEX_UPPER).ok_or(ReceiptError::Escape);
                let byte = digit(*high)? << 4 | digit(*low)?;
                if stays(byte) || byte == 0 {
                    return Err(ReceiptError::Escape);
                }
                out.push(byte);
                rest
            }
            [byte, rest @ ..] if stays(*byte) => {
                out.push(*byte);
                rest
            }
            _ => return Err(ReceiptError::Escape),
        };
        if out.len() > ENTRY_PATH_BYTES_MAX {
            return Err(ReceiptError::Path);
        }
    }
    if out.is_empty() { Err(ReceiptError::Path) } else { Ok(out) }
}
