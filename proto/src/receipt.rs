//! The receipt: the text file that both ends hold, byte for byte the same, and sign.
//!
//! For: saying later, without the source, what was moved, how durable it became, and who says so.
//! In and out: entries and digests to lines; one line at a time back (`parse_line`), or a whole receipt streamed through `Reading`.
//! Invariants: one value has one spelling, so a line that parses is written again byte for byte; paths pass `check_path`; nothing
//! here grows with the number of lines.
//! Absent on purpose: hashing and signatures (callers have keys and BLAKE3), time stamps (no clock here, and both ends must agree).
//!
//! ```text
//! longhaul-receipt 1
//! job 000102030405060708090a0b0c0d0e0f
//! digest blake3
//! durability level published
//! source unread                     (only if the sender did not look at what it sent: digests are of what arrived; after a stripe)
//! stripe file 16                    (only if the destination is a set of volumes: what is dealt out, to how many)
//! sender   KEY                      (one space; 64 hex digits)
//! receiver KEY
//! unchanged JOB DIGEST times         (instead of all entries: as that receipt has them, whose body has this digest; times or contents)
//! d - 0 755 1700000000.0 p photos
//! f DIGEST 5 644 1700000000.123456789 p photos/a%20b.jpg
//! l - 0 777 1700000000.0 p photos/latest a%20b.jpg
//! h - 0 644 1700000000.123456789 p photos/same photos/a%20b.jpg      (one more name of the latter)
//! p - 0 644 1700000000.0 p photos/pipe                               (FIFO; k: socket; c, b: device, its two numbers behind)
//! end 1 5                           (files, bytes; the body ends after this line)
//! body-blake3 HEX                   (of all bytes above)
//! signed sender KEY SIGNATURE       (Ed25519 of `signed_message`)
//! signed receiver KEY SIGNATURE
//! ```

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::layout::Layout;
use crate::manifest::{ENTRY_PATH_BYTES_MAX, Entry, EntryKind, NodeKind};
use crate::wire::control::{Digest, DigestKind, Durability};

pub mod agreement; // whether a receipt refers to a former one
mod parse; // lines back to values, and a whole receipt streamed

pub use parse::{Reading, Sealed, Taken, parse_line};

/// The version of the text that this build writes and reads.
pub const RECEIPT_VERSION: u16 = 1;
/// Longest line: two paths with every byte escaped, and 256 bytes for the rest. A reader may refuse more unread.
pub const RECEIPT_LINE_BYTES_MAX: usize = 2 * 3 * ENTRY_PATH_BYTES_MAX + 256;
const SIGN_CONTEXT: &[u8; 19] = b"longhaul-receipt 1\n";

/// Which end of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signer {
    /// The end that read the source.
    Sender,
    /// The end that wrote the destination.
    Receiver,
}

impl Signer {
    const fn name(self) -> &'static str {
        match self {
            Signer::Sender => "sender",
            Signer::Receiver => "receiver",
        }
    }
}

/// What stands above the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The job's random name.
    pub job: [u8; 16],
    /// What the digests are.
    pub digest: DigestKind,
    /// The durability level that was asked for.
    pub durability: Durability,
    /// The volumes of the destination, if it is a set of them.
    pub layout: Option<Layout>,
    /// The sender did not look at what it sent: digests are of what arrived.
    pub bare: bool,
    /// Ed25519 public key of the sender.
    pub sender: [u8; 32],
    /// Ed25519 public key of the receiver.
    pub receiver: [u8; 32],
}

/// The receipt that another one refers to, because nothing had changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Former {
    /// Its job.
    pub job: [u8; 16],
    /// BLAKE3 of its body: what it says cannot be changed any more.
    pub body: Digest,
    /// How that was found out.
    pub alike: Alike,
}

/// By what entries were found to be as a former receipt has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alike {
    /// Names, kinds, modes, lengths and times; contents were not read. The digests are the former receipt's word.
    Times,
    /// The contents of all files, too.
    Contents,
}

impl Alike {
    /// As receipts say it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Alike::Times => "times",
            Alike::Contents => "contents",
        }
    }
}

/// What both ends sign: a context, so that a signature is good for nothing else, and BLAKE3 of the body.
#[must_use]
pub fn signed_message(body: &Digest) -> [u8; 51] {
    let mut message = [0; 51];
    message[..19].copy_from_slice(SIGN_CONTEXT);
    message[19..].copy_from_slice(body);
    message
}

/// Appends the lines above the entries.
pub fn write_head(out: &mut Vec<u8>, head: &Head) {
    out.extend_from_slice(b"longhaul-receipt 1\njob ");
    put_hex(out, &head.job);
    for (word, value) in [("digest", head.digest.name()), ("rung", head.durability.name())] {
        out.push(b'\n');
        out.extend_from_slice(word.as_bytes());
        out.push(b' ');
        out.extend_from_slice(value.as_bytes());
    }
    if let Some(Layout { stripe, volumes }) = head.layout {
        let line = format_args!("\nstripe {} {volumes}", stripe.name());
        fmt::Write::write_fmt(&mut Text(out), line).expect("a Vec takes every byte");
    }
    if head.bare {
        out.extend_from_slice(b"\nsource unread");
    }
    for (signer, key) in [(Signer::Sender, &head.sender), (Signer::Receiver, &head.receiver)] {
        out.push(b'\n');
        out.extend_from_slice(signer.name().as_bytes());
        out.push(b' ');
        put_hex(out, key);
    }
    out.push(b'\n');
}

/// Appends the line that stands instead of all entries.
pub fn write_former(out: &mut Vec<u8>, former: &Former) {
    out.extend_from_slice(b"unchanged ");
    put_hex(out, &former.job);
    out.push(b' ');
    put_hex(out, &former.body);
    out.push(b' ');
    out.extend_from_slice(former.alike.name().as_bytes());
    out.push(b'\n');
}

/// Appends one line: a file with its digest, or anything else. A `FolderEnd` is written as its folder is, so callers
/// write a folder at one of the two only. `durability` is the one this entry reached.
pub fn write_entry(
    out: &mut Vec<u8>,
    entry: &Entry,
    digest: Option<&Digest>,
    kind: DigestKind,
    durability: Durability,
) {
    out.extend_from_slice(match entry.kind {
        EntryKind::File { .. } => b"f ",
        EntryKind::Folder | EntryKind::FolderEnd => b"d ",
        EntryKind::Link { .. } => b"l ",
        EntryKind::Node { kind: NodeKind::Fifo, .. } => b"p ",
        EntryKind::Node { kind: NodeKind::Socket, .. } => b"k ",
        EntryKind::Node { kind: NodeKind::Char, .. } => b"c ",
        EntryKind::Node { kind: NodeKind::Block, .. } => b"b ",
        EntryKind::Name { .. } => b"h ",
    });
    match digest.filter(|_| entry.is_file()) {
        Some(digest) => put_digest(out, digest, kind),
        None => out.push(b'-'),
    }
    let line = format_args!(
        " {} {:o} {}.{} {} ",
        entry.bytes(),
        entry.mode & 0o7777,
        entry.mtime_s,
        Fraction(entry.mtime_ns),
        durability_word(durability),
    );
    fmt::Write::write_fmt(&mut Text(out), line).expect("a Vec takes every byte");
    if entry.path.is_empty() {
        out.push(b'.');
    } else {
        put_escaped(out, &entry.path);
    }
    match &entry.kind {
        EntryKind::Link { target: other } | EntryKind::Name { first: other } => {
            out.push(b' ');
            put_escaped(out, other);
        }
        EntryKind::Node { kind: NodeKind::Char | NodeKind::Block, major, minor } => {
            let numbers = format_args!(" {major} {minor}");
            fmt::Write::write_fmt(&mut Text(out), numbers).expect("a Vec takes every byte");
        }
        _ => {}
    }
    out.push(b'\n');
}

/// Appends the last line of the body: how many files and bytes it speaks of.
pub fn write_end(out: &mut Vec<u8>, files: u64, bytes: u64) {
    fmt::Write::write_fmt(&mut Text(out), format_args!("end {files} {bytes}\n")).expect("a Vec takes every byte");
}

/// Appends the first line of the trailer.
pub fn write_body_digest(out: &mut Vec<u8>, body: &Digest) {
    out.extend_from_slice(b"body-blake3 ");
    put_hex(out, body);
    out.push(b'\n');
}

/// Appends one end's signature.
pub fn write_signed(out: &mut Vec<u8>, signer: Signer, key: &[u8; 32], signature: &[u8; 64]) {
    out.extend_from_slice(b"signed ");
    out.extend_from_slice(signer.name().as_bytes());
    out.push(b' ');
    put_hex(out, key);
    out.push(b' ');
    put_hex(out, signature);
    out.push(b'\n');
}

/// A digest as tools print it: BLAKE3 as `b3sum` does, CRC-64 as one number.
pub fn put_digest(out: &mut Vec<u8>, digest: &Digest, kind: DigestKind) {
    match kind {
        DigestKind::Blake3 => put_hex(out, digest),
        DigestKind::Crc64 => {
            let (crc, _) = digest.split_first_chunk::<8>().expect("a digest has 32 bytes");
            put_hex(out, &u64::from_le_bytes(*crc).to_be_bytes());
        }
    }
}

/// Nanoseconds as the digits after the point, without zeros at the end.
struct Fraction(u32);

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut ns, mut width) = (self.0, 9);
        while width > 1 && ns.is_multiple_of(10) {
            ns /= 10;
            width -= 1;
        }
        write!(f, "{ns:0width$}")
    }
}

/// Lets `format_args!` write into bytes.
struct Text<'a>(&'a mut Vec<u8>);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

const fn durability_word(durability: Durability) -> &'static str {
    match durability {
        Durability::Received => "r",
        Durability::Written => "w",
        Durability::Flushed => "f",
        Durability::Published => "p",
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";
const HEX_UPPER: &[u8; 16] = b"0123456789ABCDEF";

fn put_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
}

/// Printable ASCII but space and `%` stays; all else becomes `%` and two upper-case hex digits.
fn put_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        if stays(byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', HEX_UPPER[usize::from(byte >> 4)], HEX_UPPER[usize::from(byte & 15)]]);
        }
    }
}

const fn stays(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'%'
}

/// Why a text is not a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiptError {
    /// The first line is another.
    NotAReceipt,
    /// A later version's receipt.
    VersionUnknown,
    /// Longer than any line can be.
    LineTooLong,
    /// No line begins so.
    LineUnknown,
    /// Too few or too many words.
    WordCount,
    /// Not a number in its only spelling.
    Number,
    /// Not lower-case hex digits of the right count.
    Hex,
    /// An escape that no writer makes.
    Escape,
    /// A path that could leave the root.
    Path,
    /// A digest of another kind than the head says.
    DigestKind,
    /// A line where it cannot stand.
    Order,
    /// Files or bytes do not add up to the last line of the body.
    Totals,
    /// A signature's key is not the one the head names.
    Key,
    /// The end is missing.
    Truncated,
}

impl fmt::Display for ReceiptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReceiptError::NotAReceipt => "this is not a receipt",
            ReceiptError::VersionUnknown => "a receipt of a later version",
            ReceiptError::LineTooLong => "a line is too long",
            ReceiptError::LineUnknown => "a line begins with an unknown word",
            ReceiptError::WordCount => "a line has too few or too many words",
            ReceiptError::Number => "a number is malformed",
            ReceiptError::Hex => "a hex number is malformed",
            ReceiptError::Escape => "an escape is malformed",
            ReceiptError::Path => "a path could leave its root",
            ReceiptError::DigestKind => "a digest is of another kind than the head says",
            ReceiptError::Order => "a line stands where it cannot",
            ReceiptError::Totals => "files and bytes do not add up",
            ReceiptError::Key => "a signature is by another key than the head names",
            ReceiptError::Truncated => "the end is missing",
        })
    }
}

impl core::error::Error for ReceiptError {}

/// One entry as the receipt has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryLine {
    /// Path, kind, mode and times; `id` is 0, a receipt has no ids.
    pub entry: Entry,
    /// The file's digest and its kind.
    pub digest: Option<(DigestKind, Digest)>,
    /// The durability level it reached.
    pub durability: Durability,
}

/// One line of a receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// `longhaul-receipt 1`
    Title,
    /// `job …`
    Job([u8; 16]),
    /// `digest …`
    DigestKind(DigestKind),
    /// `durability level …`
    Durability(Durability),
    /// `stripe …`
    Layout(Layout),
    /// `source unread`
    Bare,
    /// `sender …`, `receiver …`
    Key(Signer, [u8; 32]),
    /// `unchanged …`
    Former(Former),
    /// `f …`, `d …`, `l …`, `h …`, `p …`, `k …`, `c …`, `b …`
    Entry(Box<EntryLine>),
    /// `end files bytes`
    End { files: u64, bytes: u64 },
    /// `body-blake3 …`
    BodyDigest(Digest),
    /// `signed …`
    Signed { signer: Signer, key: [u8; 32], signature: [u8; 64] },
}
