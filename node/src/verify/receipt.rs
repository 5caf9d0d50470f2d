//! The receipt as a file: read from top to bottom, believed only when its digest and signatures hold.
//!
//! For: `longhaul verify`.
//! In and out: a path → a `Paper` whose entries can be gone through again and again.
//! Invariants: every pass hashes the body anew, so a file that changes between two passes is noticed; one line in memory.
//! Absent on purpose: whose the keys are (the user compares fingerprints, or names one with `--signer`).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use proto::receipt::{EntryLine, RECEIPT_LINE_BYTES_MAX, Reading, ReceiptError, Sealed, Taken, signed_message};

use crate::identity::keys;
use text::attempt::Attempt;
use text::exit::{Exit, Failure};

/// A receipt that holds.
#[derive(Debug)]
pub struct Paper {
    path: PathBuf,
    file: File,
    sealed: Sealed,
}

impl Paper {
    /// Reads it whole, and checks its shape, its totals, its own digest and the signatures that are there.
    ///
    /// # Errors
    /// It cannot be read; it is no receipt; anything in it does not hold.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let file = File::open(path).map_err(|error| Attempt::Receipt.fail(what(path), &error))?;
        let sealed = pass(path, &file, |_| true)?.expect("a pass that is not stopped reads to the end");
        let paper = Self { path: path.to_owned(), file, sealed };
        let message = signed_message(&sealed.body);
        for (end, key, signature) in paper.signatures() {
            if !keys::verify(&key, &message, &signature) {
                return Err(broken(path, &format!("the signature of the {end} does not hold")));
            }
        }
        Ok(paper)
    }

    /// Head, totals, digest, signatures.
    pub fn sealed(&self) -> &Sealed {
        &self.sealed
    }

    /// Who signed, with fingerprints.
    pub fn signers(&self) -> Vec<(&'static str, String)> {
        self.signatures().map(|(end, key, _)| (end, keys::fingerprint(&key))).collect()
    }

    /// Is the fingerprint the user named among those who signed?
    ///
    /// # Errors
    /// `Exit::Identity` if it is not.
    pub fn demand_signer(&self, fingerprint: Option<&str>) -> Result<(), Failure> {
        let Some(wanted) = fingerprint else { return Ok(()) };
        let signers = self.signers();
        if signers.iter().any(|(_, signer)| signer == wanted.trim()) {
            return Ok(());
        }
        let found: Vec<&str> = signers.iter().map(|(_, signer)| signer.as_str()).collect();
        let found = if found.is_empty() { "nobody".to_owned() } else { found.join(" and ") };
        let failure = Exit::Identity.fail(what(&self.path), format!("it is signed by {found}, not by {wanted}"));
        Err(failure.next(
            "get the receipt again from the end you trust, or compare fingerprints with `longhaul key show` there",
        ))
    }

    /// Goes through the entries in order; `take` says whether to go on.
    ///
    /// # Errors
    /// It cannot be read any more, or is another one than it was.
    pub fn entries(&mut self, take: impl FnMut(Box<EntryLine>) -> bool) -> Result<(), Failure> {
        self.file.rewind().map_err(|error| Attempt::Receipt.fail(what(&self.path), &error))?;
        match pass(&self.path, &self.file, take)? {
            Some(sealed) if sealed != self.sealed => Err(broken(&self.path, "it changed while it was read")),
            _ => Ok(()),
        }
    }

    fn signatures(&self) -> impl Iterator<Item = (&'static str, [u8; 32], [u8; 64])> + use<> {
        let Sealed { head, sender, receiver, .. } = self.sealed;
        [("sender", head.sender, sender), ("receiver", head.receiver, receiver)]
            .into_iter()
            .filter_map(|(end, key, signature)| signature.map(|signature| (end, key, signature)))
    }
}

/// One pass from top to bottom. `None`: `take` stopped it.
fn pass(path: &Path, file: &File, mut take: impl FnMut(Box<EntryLine>) -> bool) -> Result<Option<Sealed>, Failure> {
    let mut reading = Reading::new();
    let mut body = blake3::Hasher::new();
    let mut lines = BufReader::with_capacity(256 << 10, file);
    let mut line = Vec::new();
    for number in 1_u64.. {
        let read = next_line(&mut lines, &mut line).map_err(|error| Attempt::Receipt.fail(what(path), &error))?;
        if !read {
            break;
        }
        let Some(text) = line.strip_suffix(b"\n") else {
            return Err(broken(path, &format!("line {number}: it is too long, or its end is missing")));
        };
        match reading.take(text) {
            Ok(Taken::Trailer) => {}
            Ok(Taken::Body) => drop(body.update(&line)),
            Ok(Taken::Entry(entry)) => {
                body.update(&line);
                if !take(entry) {
                    return Ok(None);
                }
            }
            Err(error) => return Err(wrong(path, number, error)),
        }
    }
    let sealed = reading.finish().map_err(|error| broken(path, &error.to_string()))?;
    if sealed.body != *body.finalize().as_bytes() {
        return Err(broken(path, "its own digest does not hold: it was altered or damaged"));
    }
    Ok(Some(sealed))
}

/// The next line with its newline; false at the end. A line longer than any can be comes without its newline.
fn next_line(lines: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    lines.take(RECEIPT_LINE_BYTES_MAX as u64 + 1).read_until(b'\n', line)?;
    Ok(!line.is_empty())
}

fn what(path: &Path) -> String {
    format!("read the receipt {}", path.display())
}

fn wrong(path: &Path, number: u64, error: ReceiptError) -> Failure {
    match error {
        ReceiptError::NotAReceipt => {
            Exit::Usage.fail(what(path), error).next("give the file that `longhaul cp` named as its receipt")
        }
        ReceiptError::VersionUnknown => {
            Exit::Negotiation.fail(what(path), error).next("use the longhaul version that wrote it, or a later one")
        }
        _ => broken(path, &format!("line {number}: {error}")),
    }
}

/// A receipt that does not hold proves nothing about the disk.
fn broken(path: &Path, cause: &str) -> Failure {
    Exit::Mismatch
        .fail(what(path), cause)
        .next("use the copy of the receipt that the other end keeps; nothing was compared with this one")
}
