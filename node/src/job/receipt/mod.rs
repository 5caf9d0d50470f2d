//! The receipt's file, and digests carried from an earlier run.
//!
//! For: the same signed list at both ends, whatever its length, without holding it in memory.
//! In and out: lines from a job end in; a file, its body's digest and two signatures out.
//! Invariants: the body's digest covers every byte before the trailer; the file has its final name only with both signatures, when its bytes are on the
//! disk, and nobody is told of it before its name is.
//! Absent on purpose: the lines' form (proto::receipt), checking (verify.rs), finding the one that it refers to (former.rs).

pub mod folder; // names in the folder of receipts
pub mod former; // a former receipt that says the same
pub mod retention; // how many are kept

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use engine::machine::recv::{Carried, carried_key};
use proto::manifest::EntryKind;

use crate::identity::Home;
use crate::job::endpoint::Target;
use crate::job::receipt::folder::{LIST_BYTES_MIN, file_name, flush_names};
use crate::job::receipt::former::{Formers, List};
use proto::receipt::{self, Former, Head, Line, Signer};
use proto::wire::control::Digest;

/// Digests carried at most: 80 bytes each.
const CARRIED_MAX: usize = 1_000_000;

/// The body's digest and two signatures with their keys, as text: 12 + 65 bytes and twice 15 + 65 + 129.
const TRAILER_BYTES: usize = 512;

/// A receipt being written.
#[derive(Debug)]
pub struct ReceiptFile {
    path: PathBuf,
    part: PathBuf,
    file: BufWriter<File>,
    carry: Option<(PathBuf, BufWriter<File>)>,
    hasher: blake3::Hasher,
    head: Head,
    head_bytes: u64,
    /// Of the entries' lines, so far.
    list_bytes: u64,
    /// It names its entries itself.
    is_whole: bool,
    signed: bool,
    /// Once signed it is on stable storage.
    is_flushed: bool,
    /// It stands below LONGHAUL_HOME under its job's id: one that stands there already is never replaced. Where the user named the file, it is.
    is_ours_to_name: bool,
}

impl ReceiptFile {
    /// Begins one that will stand at `path`, written by this end: both may write to one LONGHAUL_HOME, on one host or over NFS. `carry`: also keep the lines beside, for the next run if this one breaks.
    pub fn begin(path: PathBuf, by: Signer, head: &Head, carry: Option<PathBuf>) -> io::Result<ReceiptFile> {
        if let Some(parent) = path.parent()
            && !parent.is_dir()
        {
            fs::create_dir_all(parent)?;
            // A receipt's name is as durable as the name of the folder that it stands in.
            parent.parent().map_or(Ok(()), flush_names)?;
        }
        let mut part = path.clone().into_os_string();
        part.push(match by {
            Signer::Sender => ".sender.part",
            Signer::Receiver => ".receiver.part",
        });
        let part = PathBuf::from(part);
        let file = BufWriter::new(File::create(&part)?);
        // Where it cannot be locked nobody sweeps it either.
        let _ = super::sweep::hold(file.get_ref());
        let carry = match carry {
            Some(path) => {
                // In LONGHAUL_HOME, which a receipt that the user named elsewhere has not made.
                path.parent().map_or(Ok(()), fs::create_dir_all)?;
                let file = OpenOptions::new().create(true).append(true).open(&path)?;
                Some((path, BufWriter::new(file)))
            }
            None => None,
        };
        let is_ours_to_name = path.file_name().is_some_and(|name| *name == *file_name(&head.job));
        let hasher = blake3::Hasher::new();
        let mut lines = Vec::new();
        receipt::write_head(&mut lines, head);
        let mut receipt = ReceiptFile {
            path,
            part,
            file,
            carry,
            hasher,
            head: *head,
            head_bytes: lines.len() as u64,
            list_bytes: 0,
            is_whole: true,
            signed: false,
            is_flushed: true,
            is_ours_to_name,
        };
        receipt.body(&lines)?;
        Ok(receipt)
    }

    /// The same of one that goes as soon as the other end's stands, which is the same byte for byte: nobody waits for a disk.
    #[must_use]
    pub fn passing(mut self) -> ReceiptFile {
        self.is_flushed = false;
        self
    }

    /// Where it is to stand.
    pub fn place(&self) -> &Path {
        &self.path
    }

    fn body(&mut self, lines: &[u8]) -> io::Result<()> {
        self.hasher.update(lines);
        self.file.write_all(lines)
    }

    /// Appends entry lines.
    pub fn lines(&mut self, lines: &[u8]) -> io::Result<()> {
        if let Some((_, carry)) = &mut self.carry {
            carry.write_all(lines)?;
            carry.flush()?;
        }
        self.list_bytes += lines.len() as u64;
        self.body(lines)
    }

    /// The entries' lines so far, to be compared with a former receipt's; `None`: they are too few for that to be worth it.
    pub fn list(&mut self, files: u64, bytes: u64) -> io::Result<Option<List>> {
        if self.list_bytes < LIST_BYTES_MIN {
            return Ok(None);
        }
        self.file.flush()?;
        let (from, to) = (self.head_bytes, self.head_bytes + self.list_bytes);
        Ok(Some(List { file: File::open(&self.part)?, from, to, head: self.head, files, bytes }))
    }

    /// The body's digest, if this receipt refers to a former one.
    #[must_use]
    pub fn referring(&self, former: &Former, files: u64, bytes: u64) -> Digest {
        let mut lines = Vec::new();
        receipt::write_head(&mut lines, &self.head);
        receipt::write_former(&mut lines, former);
        receipt::write_end(&mut lines, files, bytes);
        *blake3::hash(&lines).as_bytes()
    }

    /// All entries are as the former receipt has them, and are not named again.
    fn refer(&mut self, former: &Former) -> io::Result<()> {
        self.file.rewind()?;
        self.file.get_ref().set_len(0)?;
        self.hasher = blake3::Hasher::new();
        self.is_whole = false;
        let mut lines = Vec::new();
        receipt::write_head(&mut lines, &self.head);
        receipt::write_former(&mut lines, former);
        self.body(&lines)
    }

    /// Ends the body, which names all entries, or refers to a former receipt; what both ends sign.
    pub fn end_with(&mut self, former: Option<&Former>, files: u64, bytes: u64) -> io::Result<Digest> {
        former.map_or(Ok(()), |former| self.refer(former))?;
        self.end(files, bytes)
    }

    /// Ends the body; what both ends sign. The trailer's room is taken as well: a disk that is full says so before anybody has signed.
    pub fn end(&mut self, files: u64, bytes: u64) -> io::Result<Digest> {
        let mut lines = Vec::new();
        receipt::write_end(&mut lines, files, bytes);
        self.body(&lines)?;
        let end = self.file.stream_position()?;
        self.file.write_all(&[b'\n'; TRAILER_BYTES])?;
        self.file.flush()?;
        self.file.seek(SeekFrom::Start(end))?;
        Ok(*self.hasher.finalize().as_bytes())
    }

    /// Writes the trailer and gives the file its name. `formers`: jobs to come may refer to it.
    pub fn sign(
        mut self,
        body: &Digest,
        signed: &[(Signer, [u8; 32], [u8; 64])],
        formers: Option<&Formers>,
    ) -> io::Result<PathBuf> {
        let mut lines = Vec::new();
        receipt::write_body_digest(&mut lines, body);
        for (signer, key, signature) in signed {
            receipt::write_signed(&mut lines, *signer, key, signature);
        }
        self.file.write_all(&lines)?;
        self.file.flush()?;
        let end = self.file.stream_position()?;
        self.file.get_ref().set_len(end)?;
        engine::fault::wait_if_asked("receipt");
        if self.is_flushed {
            self.file.get_ref().sync_all()?;
        }
        engine::fault::wait_if_asked("receipt flushed");
        if self.is_ours_to_name {
            place_anew(&self.part, &self.path)?;
        } else {
            fs::rename(&self.part, &self.path)?;
        }
        self.signed = true;
        engine::fault::wait_if_asked("receipt named");
        // Who is told of a receipt finds it after a power cut as well.
        self.path.parent().filter(|_| self.is_flushed).map_or(Ok(()), flush_names)?;
        if let Some((path, _)) = &self.carry {
            let _ = fs::remove_file(path);
        }
        if let Some(formers) = formers.filter(|_| self.is_whole && self.list_bytes >= LIST_BYTES_MIN) {
            formers.remember(&self.head.job);
        }
        Ok(std::mem::take(&mut self.path))
    }
}

impl Drop for ReceiptFile {
    /// A receipt that was not signed by both is none.
    fn drop(&mut self) {
        if !self.signed {
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// Gives a receipt its name, unless another one has it. Both ends of a job may have one LONGHAUL_HOME, and write the same bytes.
fn place_anew(part: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(part, path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if digest_of(part)? != digest_of(path)? {
                let cause = format!("another receipt stands at {}, and receipts are never replaced", path.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, cause));
            }
        }
        // A file system without hard links.
        Err(_) if !path.exists() => return fs::rename(part, path),
        Err(error) => return Err(error),
    }
    fs::remove_file(part)
}

fn digest_of(path: &Path) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize())
}

/// Could a receipt stand there? Asked before anything is moved. Errors: why not.
pub fn try_place(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let mut part = path.to_owned().into_os_string();
    part.push(format!(".{}.try", std::process::id()));
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let tried = File::create(&part).and_then(|mut file| file.write_all(&[0; TRAILER_BYTES]));
    let removed = fs::remove_file(&part);
    tried.and(removed)
}

/// Where a job's receipt stands when the user names no place.
#[must_use]
pub fn default_path(home: &Home, job: &[u8; 16]) -> PathBuf {
    home.path("receipts").join(file_name(job))
}

/// Where lines for a next run into the same destination stand.
fn carry_path(home: &Home, destination: &[u8]) -> PathBuf {
    let name = blake3::hash(destination).to_hex();
    home.path("receipts").join(format!("carry-{}", &name.as_str()[..32]))
}

/// Where receipts stand that a job's may refer to. `carry`: where a receiver's lines for a next run into its destination stand; `named`: the user gave
/// this one a place, where it is to be complete.
#[must_use]
pub fn formers(home: &Home, carry: Option<&Path>, sender: &[u8; 32], named: bool) -> Option<Formers> {
    let folder = home.path("receipts");
    let memo = carry.map(|carry| {
        let name =
            blake3::Hasher::new().update(carry.as_os_str().as_encoded_bytes()).update(sender).finalize().to_hex();
        folder.join(format!("last-{}", &name.as_str()[..32]))
    });
    (!named).then_some(Formers { folder, memo })
}

/// Where this job's lines stand for a next run, and what runs before it left there.
#[must_use]
pub fn carry(home: &Home, target: &Target, dry: bool) -> (PathBuf, Carried) {
    let path = carry_path(home, &target.name);
    if let Some((name, top)) = target.first.as_ref().filter(|_| !dry) {
        // Without these lines the receipt has no digests of what that run brought: worse, and not wrong.
        let _ = adopt(&carry_path(home, name), top, &path);
    }
    let carried = carried(&path);
    (path, carried)
}

/// The run that made the destination named what is in it below `top`; from now on it is named without. Its lines become those of later runs.
fn adopt(from: &Path, top: &[u8], to: &Path) -> io::Result<()> {
    let mut lines = BufReader::new(File::open(from)?);
    let mut file = BufWriter::new(OpenOptions::new().create(true).append(true).open(to)?);
    let (mut line, mut out) = (Vec::new(), Vec::new());
    while lines.read_until(b'\n', &mut line)? > 0 {
        let parsed = receipt::parse_line(line.strip_suffix(b"\n").unwrap_or(&line));
        if let Ok(Line::Entry(mut it)) = parsed
            && let Some((kind, digest)) = it.digest
            && let Some(below) = it.entry.path.strip_prefix(top).and_then(|it| it.strip_prefix(b"/"))
        {
            it.entry.path = below.into();
            out.clear();
            receipt::write_entry(&mut out, &it.entry, Some(&digest), kind, it.durability);
            file.write_all(&out)?;
        }
        line.clear();
    }
    file.flush()?;
    fs::remove_file(from)
}

/// What an earlier, broken run into the same destination had published.
#[must_use]
fn carried(path: &Path) -> Carried {
    let mut carried = HashMap::new();
    let Ok(file) = File::open(path) else { return carried };
    let mut lines = BufReader::new(file);
    let mut line = Vec::new();
    while carried.len() < CARRIED_MAX {
        line.clear();
        match lines.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        // The last line may be torn; the digests of other lines are worth having all the same.
        let Ok(Line::Entry(it)) = receipt::parse_line(text) else { continue };
        if let (EntryKind::File { bytes }, Some((_, digest))) = (&it.entry.kind, it.digest) {
            carried.insert(carried_key(&it.entry.path), (*bytes, it.entry.mtime_s, it.entry.mtime_ns, digest));
        }
    }
    carried
}

/// The head of a receipt of this job, between two keys, for the tests of what reads receipts.
#[cfg(test)]
pub(crate) fn head_of_job(job: u8) -> Head {
    Head {
        job: [job; 16],
        digest: proto::wire::control::DigestKind::Blake3,
        durability: proto::wire::control::Durability::Published,
        layout: None,
        bare: false,
        sender: [1; 32],
        receiver: [2; 32],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::wire::control::{DigestKind, Durability};

    #[test]
    fn lines_of_the_run_that_made_the_folder_are_those_of_the_next() {
        let folder = std::env::temp_dir().join(format!("longhaul-adopt-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for the test");
        let (first, then) = (folder.join("first"), folder.join("then"));
        let mut lines = Vec::new();
        for (path, digest) in [("new/a", 1), ("new/new/a", 2), ("new", 3), ("newer/a", 4)] {
            let path = path.as_bytes().into();
            let kind = EntryKind::File { bytes: 7 };
            let entry = proto::manifest::Entry {
                id: 0,
                path,
                kind,
                mode: 0o644,
                mtime_s: 1,
                mtime_ns: 2,
                meta: Default::default(),
            };
            receipt::write_entry(&mut lines, &entry, Some(&[digest; 32]), DigestKind::Blake3, Durability::Published);
        }
        lines.extend_from_slice(b"f torn");
        fs::write(&first, &lines).expect("written");
        adopt(&first, b"new", &then).expect("lines");
        let carried = carried(&then);
        let digest = |path: &[u8]| carried.get(&carried_key(path)).map(|it| it.3[0]);
        assert_eq!((digest(b"a"), digest(b"new/a"), carried.len()), (Some(1), Some(2), 2));
        assert!(!first.exists(), "they are not taken twice");
        fs::remove_dir_all(folder).expect("it was made");
    }

    #[test]
    fn a_receipt_is_never_replaced_by_that_of_another_job_of_the_same_id() {
        let folder = std::env::temp_dir().join(format!("longhaul-receipt-kept-{}", std::process::id()));
        let path = folder.join(file_name(&[7; 16]));
        let head = |sender: u8| Head {
            job: [7; 16],
            digest: DigestKind::Blake3,
            durability: Durability::Published,
            layout: None,
            bare: false,
            sender: [sender; 32],
            receiver: [2; 32],
        };
        let write = |sender: u8| {
            let mut file = ReceiptFile::begin(path.clone(), Signer::Receiver, &head(sender), None)?;
            let body = file.end(0, 0)?;
            file.sign(&body, &[], None)
        };
        write(1).expect("the first");
        let first = fs::read(&path).expect("it stands");
        assert!(write(9).is_err(), "another client's job of the same id");
        assert_eq!(fs::read(&path).expect("it stands"), first);
        write(1).expect("the other end's copy of the same");
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1, "and nothing is left beside it");
        fs::remove_dir_all(folder).expect("it is there");
    }

    #[test]
    fn two_ends_with_one_home_do_not_write_over_each_other() {
        let folder = std::env::temp_dir().join(format!("longhaul-receipt-{}", std::process::id()));
        let (path, carry) = (folder.join("job.receipt"), folder.join("home that nobody made/carry"));
        let head = head_of_job(7);
        let mut ends = [(Signer::Sender, None), (Signer::Receiver, Some(carry.clone()))]
            .map(|(by, carry)| ReceiptFile::begin(path.clone(), by, &head, carry).expect("a folder to write in"));
        let bodies = ends.each_mut().map(|end| end.end(0, 0).expect("written"));
        assert_eq!(bodies[0], bodies[1]);
        for end in ends {
            end.sign(&bodies[0], &[], None).expect("signed, whoever was first");
        }
        assert!(path.exists() && !carry.exists(), "and nothing is kept for a next run");
        fs::remove_dir_all(folder).expect("it is there");
    }
}
