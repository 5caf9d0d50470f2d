//! The receipt as a file: read from top to bottom, believed only when its digest and signatures hold.
//!
//! For: `longhaul verify`.
//! In and out: a path → a `Paper` whose entries can be gone through again and again; those of a receipt that refers to a former one stand in that one.
//! Invariants: every pass hashes the body anew, so a file that changes between two passes is noticed; one line in memory.
//! Absent on purpose: whose the keys are (the user compares fingerprints, or names one with `--signer`).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use proto::receipt::{
    EntryLine, Former, Head, RECEIPT_LINE_BYTES_MAX, Reading, ReceiptError, Sealed, Taken, signed_message,
};

use crate::identity::keys;
use crate::job::receipt::folder::file_name;
use text::attempt::Attempt;
use text::exit::{Exit, Failure};

/// A receipt that holds.
#[derive(Debug)]
pub struct Paper {
    own: Sheet,
    /// The former receipt, which names the entries of one that refers to it.
    former: Option<Sheet>,
}

/// A receipt's file.
#[derive(Debug)]
struct Sheet {
    path: PathBuf,
    file: File,
    sealed: Sealed,
}

impl Paper {
    /// Reads it whole, and checks its shape, its totals, its own digest and the signatures that are there; so, too, the former receipt that it refers
    /// to, which stands beside it or in `kept`, the folder of those that are kept here.
    ///
    /// # Errors
    /// One of the two cannot be read; it is no receipt; anything in it does not hold; the former one is not there, or another one.
    pub fn open(path: &Path, kept: Option<&Path>) -> Result<Self, Failure> {
        let own = Sheet::open(path)?;
        let former = own.sealed.former.map(|former| own.find(&former, kept)).transpose()?;
        Ok(Self { own, former })
    }

    /// Head, totals, digest, signatures.
    pub fn sealed(&self) -> &Sealed {
        &self.own.sealed
    }

    /// Where the former receipt stands, if this one refers to one.
    pub fn former(&self) -> Option<&Path> {
        self.former.as_ref().map(|sheet| sheet.path.as_path())
    }

    /// Who signed, with fingerprints.
    pub fn signers(&self) -> Vec<(&'static str, String)> {
        self.own.signatures().map(|(end, key, _)| (end, keys::fingerprint(&key))).collect()
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
        let failure = Exit::Identity.fail(what(&self.own.path), format!("it is signed by {found}, not by {wanted}"));
        Err(failure.next(
            "get the receipt again from the end you trust, or compare fingerprints with `longhaul key show` there",
        ))
    }

    /// Goes through the entries in order; `take` says whether to go on.
    ///
    /// # Errors
    /// It cannot be read any more, or is another one than it was.
    pub fn entries(&mut self, take: impl FnMut(Box<EntryLine>) -> bool) -> Result<(), Failure> {
        let sheet = self.former.as_mut().unwrap_or(&mut self.own);
        sheet.file.rewind().map_err(|error| Attempt::Receipt.fail(what(&sheet.path), &error))?;
        match pass(&sheet.path, &sheet.file, take)? {
            Some(sealed) if sealed != sheet.sealed => Err(broken(&sheet.path, "it changed while it was read")),
            _ => Ok(()),
        }
    }
}

impl Sheet {
    fn open(path: &Path) -> Result<Self, Failure> {
        let file = File::open(path).map_err(|error| Attempt::Receipt.fail(what(path), &error))?;
        let sealed = pass(path, &file, |_| true)?.expect("a pass that is not stopped reads to the end");
        let sheet = Self { path: path.to_owned(), file, sealed };
        let message = signed_message(&sheet.sealed.body);
        for (end, key, signature) in sheet.signatures() {
            if !keys::verify(&key, &message, &signature) {
                return Err(broken(path, &format!("the signature of the {end} does not hold")));
            }
        }
        Ok(sheet)
    }

    fn signatures(&self) -> impl Iterator<Item = (&'static str, [u8; 32], [u8; 64])> + use<> {
        let Sealed { head, sender, receiver, .. } = self.sealed;
        [("sender", head.sender, sender), ("receiver", head.receiver, receiver)]
            .into_iter()
            .filter_map(|(end, key, signature)| signature.map(|signature| (end, key, signature)))
    }

    /// The former receipt that this one refers to: the first of its name that is the one.
    fn find(&self, former: &Former, kept: Option<&Path>) -> Result<Self, Failure> {
        let name = file_name(&former.job);
        let mut wrong = None;
        for folder in [self.path.parent(), kept].into_iter().flatten() {
            let path = folder.join(&name);
            match Sheet::open(&path).and_then(|sheet| self.is_of(former, &sheet).map(|()| sheet)) {
                Ok(sheet) => return Ok(sheet),
                Err(failure) if path.exists() => wrong = Some(failure),
                Err(_) => {}
            }
        }
        Err(wrong.unwrap_or_else(|| {
            let cause = format!(
                "its entries are those of a former receipt, {name}, and that is neither beside it nor among those that are kept here"
            );
            let missing = io::Error::new(io::ErrorKind::NotFound, cause);
            let next = format!("put {name} beside it: this host or the other end kept it; its name is its job's");
            Attempt::Receipt.fail(what(&self.path), &missing).next(next)
        }))
    }

    /// Is this the former receipt that was meant? It was signed by the same two, and names its entries itself.
    fn is_of(&self, former: &Former, sheet: &Sheet) -> Result<(), Failure> {
        let (own, theirs) = (&self.sealed, &sheet.sealed);
        let of = self.path.display();
        let cause = if theirs.former.is_some() {
            format!("{of} refers to it, and it refers to a third one, which no end writes")
        } else if (theirs.head.job, theirs.body) != (former.job, former.body) {
            format!("it is not the receipt that {of} refers to: its job or its digest is another one")
        } else if (Head { job: own.head.job, ..theirs.head }, theirs.files, theirs.bytes)
            != (own.head, own.files, own.bytes)
        {
            format!("{of} refers to it, and says other keys, terms or totals")
        } else {
            return Ok(());
        };
        Err(broken(&sheet.path, &cause))
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
