//! The receipts that are kept on this host, by what their first and last lines say.
//!
//! For: `longhaul receipt list`.
//! In and out: the folder of receipts, and files elsewhere → a line for each that is one, newest first.
//! Invariants: some KiB of each are read, however many files it names; nothing is checked, so what is said here is what the file claims.
//! Absent on purpose: checking digests and signatures (receipt.rs), what a receipt's paths are below (the history knows).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use proto::receipt::{Former, Head, Line, Reading, Signer, parse_line};

use crate::identity::Home;

/// The head is some 350 bytes.
const HEAD_BYTES: usize = 1024;
/// The lines behind the entries are some 550 bytes; what stands before them here is the end of an entry's line, at most.
const TAIL_BYTES: usize = 2048;
/// Of other files than receipts nothing is wanted.
const ENDING: &str = "receipt";

/// A receipt, as far as its first and last lines tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Where it stands.
    pub path: PathBuf,
    /// Its job's name, hexadecimal.
    pub job: String,
    /// When both had signed and it got its name, seconds since 1970.
    pub signed_unix_s: u64,
    /// What stands above the entries.
    pub head: Head,
    /// Files that it names.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The job whose receipt names the entries of this one, hexadecimal.
    pub unchanged_since: Option<String>,
    /// Lines with signatures of both ends stand below it, unchecked.
    pub has_both_signatures: bool,
}

/// Receipts below this home and these `elsewhere`, newest first, `limit` at most. A file that is no receipt is left out.
///
/// # Errors
/// The folder is there and cannot be read.
pub fn list<'a>(home: &Home, elsewhere: impl Iterator<Item = &'a Path>, limit: usize) -> io::Result<Vec<Kept>> {
    let mut paths: BTreeSet<PathBuf> = elsewhere.map(Path::to_owned).collect();
    match fs::read_dir(home.path("receipts")) {
        Ok(list) => {
            let names = list.flatten().map(|entry| entry.path());
            paths.extend(names.filter(|path| path.extension().is_some_and(|it| it == ENDING)));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // Times first: of ten thousand only some are opened.
    let of_time = |path: PathBuf| Some((fs::metadata(&path).ok()?.modified().ok()?, path));
    let mut all: Vec<(SystemTime, PathBuf)> = paths.into_iter().filter_map(of_time).collect();
    all.sort_by(|a, b| b.cmp(a));
    Ok(all.into_iter().filter_map(|(time, path)| look(path, time)).take(limit).collect())
}

fn look(path: PathBuf, time: SystemTime) -> Option<Kept> {
    let file = File::open(&path).ok()?;
    let length = file.metadata().ok().filter(fs::Metadata::is_file)?.len();
    let (head, former) = head(&read(&file, 0, HEAD_BYTES)?)?;
    let from = length.saturating_sub(TAIL_BYTES as u64);
    let (mut totals, mut signed) = (None, BTreeSet::new());
    for line in read(&file, from, TAIL_BYTES)?.split(|&byte| byte == b'\n') {
        match parse_line(line) {
            Ok(Line::End { files, bytes }) => totals = Some((files, bytes)),
            Ok(Line::Signed { signer: Signer::Sender, key, .. }) if key == head.sender => drop(signed.insert(0)),
            Ok(Line::Signed { signer: Signer::Receiver, key, .. }) if key == head.receiver => drop(signed.insert(1)),
            // The first may be cut anywhere.
            _ => {}
        }
    }
    let (files, bytes) = totals?;
    let signed_unix_s = time.duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs());
    let hex = |job: [u8; 16]| job.iter().map(|byte| format!("{byte:02x}")).collect();
    let (job, unchanged_since) = (hex(head.job), former.map(|it| hex(it.job)));
    Some(Kept { path, job, unchanged_since, signed_unix_s, head, files, bytes, has_both_signatures: signed.len() == 2 })
}

/// The former receipt that this one refers to, as it claims.
#[must_use]
pub fn former(path: &Path) -> Option<Former> {
    head(&read(&File::open(path).ok()?, 0, HEAD_BYTES)?)?.1
}

/// What stands above the entries, and the former receipt that has them.
fn head(bytes: &[u8]) -> Option<(Head, Option<Former>)> {
    let mut reading = Reading::new();
    for line in bytes.split(|&byte| byte == b'\n') {
        if let Some(head) = reading.head() {
            let former = match parse_line(line) {
                Ok(Line::Former(former)) => Some(former),
                _ => None,
            };
            return Some((*head, former));
        }
        reading.take(line).ok()?;
    }
    None
}

/// So many bytes from there on, or what there is.
fn read(file: &File, from: u64, count: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; count];
    let mut got = 0;
    while got < count {
        match file.read_at(&mut bytes[got..], from + got as u64).ok()? {
            0 => break,
            more => got += more,
        }
    }
    bytes.truncate(got);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::receipt::{ReceiptFile, default_path, head_of_job};

    fn write(path: &Path, job: u8, signers: &[Signer], names: usize) {
        let head = head_of_job(job);
        let mut file = ReceiptFile::begin(path.to_owned(), Signer::Sender, &head, None).expect("begun");
        let lines: String = (0..names).map(|at| format!("d - 0 755 1700000000.0 p {at:0200}\n")).collect();
        file.lines(lines.as_bytes()).expect("written");
        let body = file.end(3, 1 << 20).expect("ended");
        let key = |signer: &Signer| if *signer == Signer::Sender { [1; 32] } else { [2; 32] };
        let signed: Vec<_> = signers.iter().map(|signer| (*signer, key(signer), [9; 64])).collect();
        file.sign(&body, &signed, None).expect("signed");
    }

    #[test]
    fn receipts_are_listed_newest_first_whatever_their_length_and_wherever_they_stand() {
        let folder = std::env::temp_dir().join(format!("longhaul-receipts-listed-{}", std::process::id()));
        let home = Home::at(&folder).expect("a home");
        assert_eq!(list(&home, std::iter::empty(), 9).expect("none"), []);
        let (long, half, elsewhere) =
            (default_path(&home, &[7; 16]), default_path(&home, &[8; 16]), folder.join("mine.txt"));
        write(&long, 7, &[Signer::Sender, Signer::Receiver], 2000);
        write(&half, 8, &[Signer::Receiver], 0);
        write(&elsewhere, 9, &[Signer::Sender, Signer::Receiver], 1);
        fs::write(folder.join("receipts/0.receipt"), "nonsense").expect("written");
        fs::write(folder.join("receipts/1.receipt.sender.part"), "longhaul-receipt 1\n").expect("written");
        for (path, age) in [(&long, 300), (&half, 200), (&elsewhere, 100)] {
            let time = SystemTime::now() - std::time::Duration::from_secs(age);
            File::options().append(true).open(path).expect("there").set_modified(time).expect("dated");
        }
        let all = list(&home, [elsewhere.as_path(), Path::new("/nowhere")].into_iter(), 9).expect("listed");
        let shown: Vec<_> = all.iter().map(|it| (it.job[..2].to_owned(), it.has_both_signatures, it.files)).collect();
        let wanted = [("09", true, 3), ("08", false, 3), ("07", true, 3)];
        assert_eq!(shown, wanted.map(|(job, both, files)| (job.to_owned(), both, files)));
        assert_eq!((all[2].bytes, all[2].head.receiver), (1 << 20, [2; 32]));
        assert_eq!(list(&home, std::iter::empty(), 1).expect("listed")[0].path, half);
        fs::remove_dir_all(folder).expect("it is there");
    }
}
