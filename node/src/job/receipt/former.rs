//! A former receipt that names the same entries as the one that is being written.
//!
//! For: a run that changed nothing, whose receipt refers to that one instead of naming ten million entries again.
//! In and out: this job's list and the receipts that are kept here → the former receipt, held so that nobody prunes it; a memo of which job had a
//! whole receipt for a destination.
//! Invariants: a former receipt is read whole, and its digest and both signatures hold, before anything refers to it; it names its entries itself;
//! memory does not grow with the lists (two sums); whatever cannot be read is no former receipt.
//! Absent on purpose: agreeing with the other end (`proto::receipt::agreement`), writing the receipt (receipt.rs), pruning (retention.rs).
//!
//! Lists are equal as sets if the sums of their lines' keyed BLAKE3 are, modulo 2^128: the key is made for one comparison and never leaves it, so no
//! name in a tree can be chosen to make two different lists sum to the same.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use proto::receipt::agreement::Named;
use proto::receipt::{Alike, Former, Head, Line, Reading, Signer, parse_line, signed_message};
use proto::wire::control::Digest;

use crate::identity::keys;
use crate::job::receipt::folder::{file_name, job_of};

/// Whole receipts remembered for one destination: so many sources may take turns in it.
const REMEMBERED: usize = 16;
/// Of these so many are read, at most: their totals are this run's, and yet they may be others.
const READ_MAX: usize = 4;
/// One read.
const BLOCK_BYTES: usize = 1 << 20;
/// The lines above the entries, and those below: 400 and 600 bytes.
const ENDS_BYTES: usize = 2048;
/// Lines between two looks whether anybody still waits: a millisecond's.
const LINES_PER_LOOK: u64 = 4096;

/// Where the receipts stand that a job's may refer to.
#[derive(Debug, Clone)]
pub struct Formers {
    /// `receipts/` of the home.
    pub folder: PathBuf,
    /// Receiver: which jobs had whole receipts for its destination.
    pub memo: Option<PathBuf>,
}

/// The entry lines of a receipt that is being written.
#[derive(Debug)]
pub struct List {
    /// Its part file.
    pub file: File,
    /// Where they begin and end in it.
    pub from: u64,
    pub to: u64,
    pub head: Head,
    pub files: u64,
    pub bytes: u64,
}

/// A former receipt that says the same.
#[derive(Debug)]
pub struct Found {
    pub former: Former,
    /// Locked: it is not pruned before the new receipt has its name.
    pub held: File,
}

impl Formers {
    /// The former receipt that says what `list` says; a sender was asked for `named`. None, once nobody waits for it: `stop`.
    #[must_use]
    pub fn find(&self, list: &List, named: Option<Named>, stop: &AtomicBool) -> Option<Found> {
        let jobs = match (named, &self.memo) {
            (Some((job, _)), _) => vec![job],
            (None, Some(memo)) => remembered(memo),
            (None, None) => Vec::new(),
        };
        let is_alike = |it: &Kept| named.is_none_or(|(_, body)| body == it.body);
        let likely = jobs.iter().filter_map(|job| Kept::open(&self.folder, job, list)).filter(is_alike);
        let mut key = [0; 32];
        aws_lc_rs::rand::fill(&mut key).ok()?;
        let mut own = None;
        for kept in likely.take(READ_MAX) {
            let own = match &own {
                Some(sums) => sums,
                None => own.insert(Sums::of_own(list, &key, stop).ok()?),
            };
            if let Ok(Some(alike)) = kept.compare(own, &key, stop) {
                let former = Former { job: kept.job, body: kept.body, alike };
                return Some(Found { former, held: kept.file });
            }
        }
        None
    }

    /// A job's whole receipt got its name: later ones may refer to it.
    pub fn remember(&self, job: &[u8; 16]) {
        let Some(memo) = &self.memo else { return };
        let mut jobs = remembered(memo);
        jobs.retain(|it| it != job);
        jobs.insert(0, *job);
        jobs.truncate(REMEMBERED);
        let lines: String = jobs.iter().map(|job| file_name(job) + "\n").collect();
        // Without the memo the next receipt is written whole.
        let new = memo.with_extension("new");
        let _ = fs::write(&new, lines).and_then(|()| fs::rename(&new, memo));
    }
}

fn remembered(memo: &Path) -> Vec<[u8; 16]> {
    let mut text = String::new();
    let read = File::open(memo).and_then(|file| file.take(ENDS_BYTES as u64).read_to_string(&mut text));
    read.map_or(Vec::new(), |_| text.lines().filter_map(job_of).take(REMEMBERED).collect())
}

/// A receipt that is likely to say the same: all is right but its entries, which were not read.
struct Kept {
    file: File,
    job: [u8; 16],
    body: Digest,
    /// Its body, and where in it the entries stand.
    body_bytes: u64,
    from: u64,
    to: u64,
}

impl Kept {
    fn open(folder: &Path, job: &[u8; 16], list: &List) -> Option<Kept> {
        let file = File::open(folder.join(file_name(job))).ok()?;
        // Where locks are not known it may be pruned at any time.
        file.try_lock_shared().ok()?;
        // One that was pruned before it was locked has no name any more.
        let bytes = file.metadata().ok().filter(|it| it.is_file() && it.nlink() > 0)?.len();
        let from = head_bytes(&file, &Head { job: *job, ..list.head })?;
        let (mut tail, tail_at) =
            (vec![0; ENDS_BYTES.min(usize::try_from(bytes).ok()?)], bytes.checked_sub(ENDS_BYTES as u64));
        file.read_exact_at(&mut tail, tail_at.unwrap_or(0)).ok()?;
        let end = tail.windows(5).rposition(|it| it == b"\nend ")? + 1;
        let to = tail_at.unwrap_or(0) + end as u64;
        let mut lines = tail[end..].split_inclusive(|&byte| byte == b'\n');
        let mut next = || parse_line(lines.next()?.strip_suffix(b"\n")?).ok();
        let Some(Line::End { files, bytes }) = next() else { return None };
        let Some(Line::BodyDigest(body)) = next() else { return None };
        if (files, bytes) != (list.files, list.bytes) || from > to {
            return None;
        }
        for (wanted, by) in [(Signer::Sender, list.head.sender), (Signer::Receiver, list.head.receiver)] {
            match next() {
                Some(Line::Signed { signer, key, signature })
                    if signer == wanted && key == by && keys::verify(&key, &signed_message(&body), &signature) => {}
                _ => return None,
            }
        }
        let end_line = tail[end..].iter().position(|&byte| byte == b'\n')? as u64 + 1;
        Some(Kept { file, job: *job, body, body_bytes: to + end_line, from, to })
    }

    /// How it says the same as `own`; `None`: it does not.
    fn compare(&self, own: &Sums, key: &[u8; 32], stop: &AtomicBool) -> io::Result<Option<Alike>> {
        let mut hasher = blake3::Hasher::new();
        let with_digests = own.digests > 0;
        let mut file = &self.file;
        file.rewind()?;
        let mut lines =
            BufReader::with_capacity(BLOCK_BYTES, Hashing { from: file.take(self.body_bytes), hasher: &mut hasher });
        io::copy(&mut (&mut lines).take(self.from), &mut io::sink())?;
        let theirs = Sums::of(&mut lines, self.to - self.from, with_digests, key, stop)?;
        io::copy(&mut lines, &mut io::sink())?;
        drop(lines);
        let is_whole = *hasher.finalize().as_bytes() == self.body;
        let is_same = theirs.lines == own.lines && theirs.sum == own.sum(with_digests);
        let alike = if with_digests && own.without == 0 { Alike::Contents } else { Alike::Times };
        Ok((is_whole && is_same).then_some(alike))
    }
}

/// How many bytes the lines above the entries are, if they are these. A line that refers to another receipt is no list, and never one of this length.
fn head_bytes(file: &File, wanted: &Head) -> Option<u64> {
    let mut bytes = vec![0; ENDS_BYTES];
    let got = file.read_at(&mut bytes, 0).ok()?;
    let (mut reading, mut at) = (Reading::new(), 0);
    for line in bytes[..got].split_inclusive(|&byte| byte == b'\n') {
        if reading.head().is_some() {
            return (reading.head() == Some(wanted)).then_some(at);
        }
        reading.take(line.strip_suffix(b"\n")?).ok()?;
        at += line.len() as u64;
    }
    None
}

/// Hashes what is read.
struct Hashing<'a, R> {
    from: R,
    hasher: &'a mut blake3::Hasher,
}

impl<R: Read> Read for Hashing<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = self.from.read(into)?;
        self.hasher.update(&into[..got]);
        Ok(got)
    }
}

/// What a list of entries comes to, in any order.
#[derive(Debug, Default)]
struct Sums {
    lines: u64,
    /// Files with bytes, with and without a digest.
    digests: u64,
    without: u64,
    /// Of all lines, with digests or without them, as was asked for.
    sum: u128,
    /// Of this job's own list: without them. Which one is wanted is known at its end.
    sum_without: u128,
}

impl Sums {
    fn of_own(list: &List, key: &[u8; 32], stop: &AtomicBool) -> io::Result<Sums> {
        let mut file = &list.file;
        file.seek(SeekFrom::Start(list.from))?;
        let mut with =
            Sums::of(&mut BufReader::with_capacity(BLOCK_BYTES, file), list.to - list.from, true, key, stop)?;
        with.sum_without = if with.digests == 0 {
            with.sum
        } else {
            file.seek(SeekFrom::Start(list.from))?;
            Sums::of(&mut BufReader::with_capacity(BLOCK_BYTES, file), list.to - list.from, false, key, stop)?.sum
        };
        Ok(with)
    }

    const fn sum(&self, with_digests: bool) -> u128 {
        if with_digests { self.sum } else { self.sum_without }
    }

    /// Of so many bytes of lines.
    fn of(
        from: &mut impl BufRead,
        bytes: u64,
        with_digests: bool,
        key: &[u8; 32],
        stop: &AtomicBool,
    ) -> io::Result<Sums> {
        let (mut sums, mut left) = (Sums::default(), bytes);
        let (mut line, mut plain) = (Vec::new(), Vec::new());
        while left > 0 {
            line.clear();
            let got = from.take(left).read_until(b'\n', &mut line)?;
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= got as u64;
            if sums.lines.is_multiple_of(LINES_PER_LOOK) && stop.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            sums.lines += 1;
            let hash = blake3::keyed_hash(key, sums.as_compared(&line, with_digests, &mut plain));
            let (low, _) = hash.as_bytes().split_first_chunk().expect("a hash has 32 bytes");
            sums.sum = sums.sum.wrapping_add(u128::from_le_bytes(*low));
        }
        Ok(sums)
    }

    /// A line as it is compared: an empty file has no digest, and others have none where they were not read.
    fn as_compared<'a>(&mut self, line: &'a [u8], with_digests: bool, plain: &'a mut Vec<u8>) -> &'a [u8] {
        let Some(words) = line.strip_prefix(b"f ") else { return line };
        let Some(space) = words.iter().position(|&byte| byte == b' ') else { return line };
        let (digest, rest) = words.split_at(space);
        let (is_empty, has_none) = (rest.starts_with(b" 0 "), digest == b"-");
        self.digests += u64::from(!is_empty && !has_none);
        self.without += u64::from(!is_empty && has_none);
        if has_none || (with_digests && !is_empty) {
            return line;
        }
        plain.clear();
        plain.extend_from_slice(b"f -");
        plain.extend_from_slice(rest);
        plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;
    use crate::job::receipt::{ReceiptFile, head_of_job};
    use proto::receipt::Signer;

    /// Receipts of one pair of hosts, in a folder that goes away with the test.
    struct Desk {
        formers: Formers,
        ends: [Identity; 2],
    }

    const FILES: u64 = 2000;

    impl Desk {
        fn new(name: &str) -> Desk {
            let folder = std::env::temp_dir().join(format!("longhaul-former-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).expect("a folder for the test");
            let memo = Some(folder.join("last-1"));
            let ends = [(); 2].map(|()| Identity::ephemeral().expect("a key"));
            Desk { formers: Formers { folder, memo }, ends }
        }

        fn begin(&self, job: u8, lines: &str) -> ReceiptFile {
            let head = Head { sender: self.ends[0].public(), receiver: self.ends[1].public(), ..head_of_job(job) };
            let path = self.formers.folder.join(file_name(&[job; 16]));
            let mut file = ReceiptFile::begin(path, Signer::Receiver, &head, None).expect("begun");
            file.lines(lines.as_bytes()).expect("written");
            file
        }

        fn sign(&self, mut file: ReceiptFile, former: Option<&Former>) {
            let body = file.end_with(former, FILES, 7 * FILES).expect("ended");
            let sign = |end: &Identity, signer| (signer, end.public(), end.sign(&signed_message(&body)));
            let signed = [sign(&self.ends[0], Signer::Sender), sign(&self.ends[1], Signer::Receiver)];
            file.sign(&body, &signed, Some(&self.formers)).expect("signed");
        }

        /// What a job with this list finds.
        fn find(&self, lines: &str) -> Option<Former> {
            let mut file = self.begin(99, lines);
            let list = file.list(FILES, 7 * FILES).expect("readable")?;
            Some(self.formers.find(&list, None, &AtomicBool::new(false))?.former)
        }

        fn path(&self, job: u8) -> PathBuf {
            self.formers.folder.join(file_name(&[job; 16]))
        }
    }

    impl Drop for Desk {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.formers.folder);
        }
    }

    /// So many files of seven bytes, an empty one and a folder; with digests, if `with`; in another order, if `turned`.
    fn lines(with: bool, turned: bool) -> String {
        let digest = |of: u64| if with { format!("{of:064x}") } else { "-".to_owned() };
        let mut all: Vec<String> =
            (1..FILES).map(|at| format!("f {} 7 644 1700000000.0 p file{at}\n", digest(at))).collect();
        all.push(format!("f {} 0 644 1700000000.0 p empty\n", if turned { "-".to_owned() } else { digest(0xEE) }));
        all.push("d - 0 755 1700000000.0 p .\n".to_owned());
        if turned {
            all.reverse();
        }
        all.concat()
    }

    #[test]
    fn a_list_of_the_same_entries_in_any_order_refers_to_the_former_one_and_says_by_what() {
        let desk = Desk::new("same");
        assert_eq!(desk.find(&lines(false, false)), None, "there is none");
        desk.sign(desk.begin(1, &lines(true, false)), None);
        let kept = desk.find(&lines(false, true)).expect("kept by size and time");
        assert_eq!((kept.job, kept.alike), ([1; 16], Alike::Times));
        let read = desk.find(&lines(true, true)).expect("compared by content");
        assert_eq!((read.body, read.alike), (kept.body, Alike::Contents));
        // The next one does as well, and refers to the first: there is no chain.
        desk.sign(desk.begin(2, &lines(false, true)), Some(&kept));
        assert!(fs::metadata(desk.path(2)).expect("it stands").len() < 1200);
        assert_eq!(desk.find(&lines(false, false)).map(|it| it.job), Some([1; 16]));
        desk.formers.remember(&[2; 16]);
        assert_eq!(desk.find(&lines(false, false)).map(|it| it.job), Some([1; 16]), "whatever the memo says");
    }

    #[test]
    fn a_list_that_differs_in_anything_is_written_whole() {
        let desk = Desk::new("differs");
        desk.sign(desk.begin(1, &lines(true, false)), None);
        let list = lines(false, false);
        for (from, to) in [
            (" 7 644 1700000000.0 p file5\n", " 7 600 1700000000.0 p file5\n"),
            (" 7 644 1700000000.0 p file5\n", " 7 644 1700000000.5 p file5\n"),
            (" 7 644 1700000000.0 p file5\n", " 7 644 1700000000.0 p file05\n"),
            (" 7 644 1700000000.0 p file5\n", " 7 644 1700000000.0 w file5\n"),
            ("f - 7 644 1700000000.0 p file5\n", ""),
            ("f - 7 644 1700000000.0 p file5\n", "f - 7 644 1700000000.0 p file6\n"),
            ("p file5\n", "p file5\nd - 0 755 1700000000.0 p more\n"),
        ] {
            assert_eq!(desk.find(&list.replacen(from, to, 1)), None, "{from:?} is {to:?}");
        }
        // A digest of this job's that is another one, and one that the former receipt does not have.
        let five = format!("{:064x}", 5);
        let with = lines(true, false);
        assert!(desk.find(&with).is_some());
        assert_eq!(desk.find(&with.replacen(&five, &format!("{:064x}", 6), 1)), None);
        assert_eq!(
            desk.find(&list.replacen(
                "f - 7 644 1700000000.0 p file5\n",
                &format!("f {five} 7 644 1700000000.0 p file5\n"),
                1
            )),
            None
        );
        assert_eq!(desk.find("d - 0 755 1700000000.0 p .\n"), None, "a short list is as soon written");
    }

    /// The receiver's signature with another last digit.
    fn turned(text: &str) -> String {
        let other = if text.ends_with("0\n") { "1\n" } else { "0\n" };
        text[..text.len() - 2].to_owned() + other
    }

    #[test]
    fn nothing_refers_to_a_receipt_that_does_not_hold_is_of_others_or_is_pruned() {
        let desk = Desk::new("holds");
        desk.sign(desk.begin(1, &lines(true, false)), None);
        let (path, list) = (desk.path(1), lines(false, false));
        let good = fs::read(&path).expect("it stands");
        let text = String::from_utf8(good.clone()).expect("ASCII");
        assert!(desk.find(&list).is_some());
        let end = text.find("end 2000").expect("an end");
        for (what, bad) in [
            ("one bit of a digest", text.replacen("0001 7 644", "0003 7 644", 1)),
            ("other totals", text.replacen("end 2000 14000", "end 2000 14001", 1)),
            (
                "a line less",
                text.replacen(&text[text.find("f ").expect("a file")..=text.find("file1\n").expect("it") + 5], "", 1),
            ),
            ("no signature of the receiver", text[..text.rfind("signed receiver").expect("signed")].to_owned()),
            ("a signature that does not hold", turned(&text)),
            ("a cut end", text[..text.len() - 3].to_owned()),
            ("nothing behind the entries", text[..end].to_owned()),
            ("nothing", String::new()),
        ] {
            fs::write(&path, bad).expect("written");
            assert_eq!(desk.find(&list), None, "{what}");
        }
        fs::write(&path, &good).expect("written");
        assert!(desk.find(&list).is_some());

        let stranger = Desk::new("stranger");
        fs::write(stranger.path(1), &good).expect("written");
        stranger.formers.remember(&[1; 16]);
        assert_eq!(stranger.find(&list), None, "other keys");

        let pruner = File::open(&path).expect("it stands");
        pruner.try_lock().expect("nobody reads it");
        assert_eq!(desk.find(&list), None, "it is about to be pruned");
        drop(pruner);
        let mut file = desk.begin(98, &list);
        let list = file.list(FILES, 7 * FILES).expect("readable").expect("long enough");
        let stop = &AtomicBool::new(false);
        assert!(
            desk.formers
                .find(&list, None, stop)
                .is_some_and(|it| File::open(&path).unwrap().try_lock().is_err() && it.former.job == [1; 16]),
            "held while it is referred to"
        );
        assert!(desk.formers.find(&list, None, &AtomicBool::new(true)).is_none(), "nobody waits any more");
        fs::remove_file(&path).expect("it stands");
        assert!(desk.formers.find(&list, None, stop).is_none());
    }

    #[test]
    fn a_sender_finds_only_the_receipt_that_it_was_asked_for() {
        let desk = Desk::new("asked");
        desk.sign(desk.begin(1, &lines(true, false)), None);
        let sender = Formers { memo: None, folder: desk.formers.folder.clone() };
        let mut file = desk.begin(97, &lines(false, false));
        let list = file.list(FILES, 7 * FILES).expect("readable").expect("long enough");
        let stop = &AtomicBool::new(false);
        let body = desk.formers.find(&list, None, stop).expect("the receiver's").former.body;
        let found = |job, body| sender.find(&list, Some((job, body)), stop).map(|it| it.former.job);
        assert_eq!(found([1; 16], body), Some([1; 16]));
        assert_eq!((found([1; 16], [0; 32]), found([2; 16], body)), (None, None));
        assert!(sender.find(&list, None, stop).is_none(), "it looks for none by itself");
    }
}
