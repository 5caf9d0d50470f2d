//! How many receipts are kept: `receipts_keep`, by age and by bytes.
//!
//! For: a home that does not grow for ever where somebody said so; without a word all stay.
//! In and out: `90d / 10GiB` and the folder of receipts in; the oldest removed, and what is left.
//! Invariants: no receipt goes that a kept one refers to, nor one that a running job reads to refer to it, nor what was signed within `TOLD`; a receipt
//! that is being written has another name; only files of the folder that are named as receipts are looked at; a process killed at any step leaves
//! receipts that can be verified.
//! Absent on purpose: receipts that the user gave a place, parts of killed jobs (sweep.rs).
//!
//! A former receipt is as old as the newest that refers to it, so that it never goes before that one. Referring ones go first, then the folder is
//! flushed, then former ones go.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use text::units::{exact_size, parse_size};

use super::folder::{LIST_BYTES_MIN, file_name, flush_names, job_of};
use crate::identity::Home;
use crate::verify::listing;

/// The file of the home that says it.
const FILE: &str = "receipts_keep";
/// Whoever was told of a receipt can take it away so long.
const TOLD: Duration = Duration::from_secs(3600);
/// A receipt that refers to another one is smaller: 450 bytes above that line and 600 below it, at most.
const REFERRING_BYTES_MAX: u64 = 2048;
/// Long receipts removed together, each with a descriptor for its lock; after each of these the folder is read again (0.1 s for 100,000 names).
const LONG_AT_ONCE: usize = 64;
/// So many times in one pass; what is left goes in the next.
const LONG_ROUNDS: usize = 16;
/// A daemon whose jobs end one after the other looks once in so long.
const EVERY: Duration = Duration::from_secs(60);
const DAY: u64 = 86_400;

/// What is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keep {
    /// Older ones go; `None`: none is too old.
    pub age: Option<Duration>,
    /// The oldest go while all have more bytes; `None`: any number.
    pub bytes: Option<u64>,
}

impl Keep {
    /// Does everything stay?
    #[must_use]
    pub const fn is_all(&self) -> bool {
        self.age.is_none() && self.bytes.is_none()
    }

    /// What this home's file says; without one all are kept.
    ///
    /// # Errors
    /// It cannot be read, or understood: then all are kept.
    pub fn of(home: &Home) -> Result<Keep, String> {
        match fs::read_to_string(home.path(FILE)) {
            Ok(text) => text
                .trim()
                .parse()
                .map_err(|wanted| format!("{}: \"{}\": {wanted}", home.path(FILE).display(), text.trim())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Keep::default()),
            Err(error) => Err(format!("{}: {error}", home.path(FILE).display())),
        }
    }

    /// Writes it into the home, for every process of this home from now on.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set(&self, home: &Home) -> io::Result<()> {
        let new = home.path(&format!(".{FILE}.{}.tmp", std::process::id()));
        fs::write(&new, format!("{self}\n"))?;
        fs::rename(new, home.path(FILE))
    }
}

impl FromStr for Keep {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Keep, &'static str> {
        const WANTED: &str = "write an age in days, a size, or both: \"90d / 10GiB\"; or \"all\"";
        let mut keep = Keep::default();
        if text.trim() == "all" {
            return Ok(keep);
        }
        for part in text.split('/') {
            let part: String = part.split_whitespace().collect();
            let days = part.strip_suffix('d').map(|days| days.parse().ok().filter(|&days: &u32| days > 0));
            let is_new = match days {
                Some(days) => keep.age.replace(Duration::from_secs(u64::from(days.ok_or(WANTED)?) * DAY)).is_none(),
                None => keep.bytes.replace(parse_size(&part).map_err(|_| WANTED)?).is_none(),
            };
            if !is_new {
                return Err(WANTED);
            }
        }
        Ok(keep)
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.age.map(|age| age.as_secs() / DAY), self.bytes.map(exact_size)) {
            (None, None) => write!(out, "all"),
            (Some(days), None) => write!(out, "{days}d"),
            (None, Some(size)) => write!(out, "{size}"),
            (Some(days), Some(size)) => write!(out, "{days}d / {size}"),
        }
    }
}

/// What a pass left, and what it removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Receipts that stand there.
    pub kept: u64,
    pub kept_bytes: u64,
    pub removed: u64,
    pub removed_bytes: u64,
}

/// A receipt of the folder.
#[derive(Debug, Clone, Copy)]
struct One {
    job: [u8; 16],
    signed: SystemTime,
    bytes: u64,
    former: Option<[u8; 16]>,
}

/// Passes of one process: one at a time, and not after each of many small jobs.
#[derive(Debug, Default)]
pub struct Turns(Mutex<Option<SystemTime>>);

impl Turns {
    /// After a job. `None`: it is not time yet, or another thread is at it.
    pub fn after_job(&self, home: &Home, keep: Keep, receipt: Option<&Path>) -> Option<Pruned> {
        let (mut last, now) = (self.0.try_lock().ok()?, SystemTime::now());
        let is_large = || receipt.and_then(|it| fs::metadata(it).ok()).is_some_and(|it| it.len() >= LIST_BYTES_MIN);
        if keep.is_all() || last.is_some_and(|it| now.duration_since(it).is_ok_and(|age| age < EVERY) && !is_large()) {
            return None;
        }
        let pruned = prune(&home.path("receipts"), keep, now);
        *last = Some(now);
        pruned.ok()
    }
}

/// What stands in the folder.
///
/// # Errors
/// It is there and cannot be read.
pub fn count(folder: &Path) -> io::Result<Pruned> {
    let all = all(folder)?;
    Ok(Pruned { kept: all.len() as u64, kept_bytes: all.iter().map(|it| it.bytes).sum(), ..Pruned::default() })
}

/// Removes what is not to be kept.
///
/// # Errors
/// The folder is there and cannot be read or flushed.
pub fn prune(folder: &Path, keep: Keep, now: SystemTime) -> io::Result<Pruned> {
    let mut all = all(folder)?;
    let mut left =
        Pruned { kept: all.len() as u64, kept_bytes: all.iter().map(|it| it.bytes).sum(), ..Pruned::default() };
    let age = |at: SystemTime| now.duration_since(at).unwrap_or_default();
    let is_old = |at: SystemTime| keep.age.is_some_and(|most| age(at) > most);
    if are_needed(folder, &all, is_old) && keep.bytes.is_none_or(|most| left.kept_bytes <= most) {
        return Ok(left);
    }
    for one in all.iter_mut().filter(|it| it.bytes < REFERRING_BYTES_MAX) {
        one.former = former_of(folder, &one.job);
    }
    let mut newest: HashMap<[u8; 16], SystemTime> = HashMap::new();
    for (former, signed) in all.iter().filter_map(|it| Some((it.former?, it.signed))) {
        newest.entry(former).and_modify(|it| *it = signed.max(*it)).or_insert(signed);
    }
    let as_old_as = |it: &One| newest.get(&it.job).map_or(it.signed, |&newest| newest.max(it.signed));
    all.sort_by_key(|it| (as_old_as(it), it.former.is_none()));
    let (mut going, mut bytes) = (Vec::new(), left.kept_bytes);
    for one in &all {
        let is_over = keep.bytes.is_some_and(|most| bytes > most) || is_old(as_old_as(one));
        if !is_over || age(as_old_as(one)) < TOLD {
            break;
        }
        bytes -= one.bytes;
        going.push(*one);
    }
    let (referring, whole): (Vec<One>, Vec<One>) = going.into_iter().partition(|it| it.former.is_some());
    // What is shorter is never referred to, and needs no lock.
    let (long, short): (Vec<One>, Vec<One>) = whole.into_iter().partition(|it| it.bytes >= LIST_BYTES_MIN);
    let mut stays: HashSet<[u8; 16]> = HashSet::new();
    for one in &referring {
        match fs::remove_file(folder.join(file_name(&one.job))) {
            Ok(()) => left.gone(one),
            Err(_) => stays.extend(one.former),
        }
    }
    // Otherwise a power cut might bring them back without what they refer to.
    flush_names(folder)?;
    for one in short.iter().filter(|it| !stays.contains(&it.job)) {
        if fs::remove_file(folder.join(file_name(&one.job))).is_ok() {
            left.gone(one);
        }
    }
    let known = all.iter().map(|it| it.job).collect();
    for some in long.chunks(LONG_AT_ONCE).take(LONG_ROUNDS) {
        remove_long(folder, some, &known, &mut stays, &mut left)?;
    }
    Ok(left)
}

/// Do newer receipts refer to all that are too old? Most are found in the newest few; without this every job would open all of them, for one that
/// stays for years.
fn are_needed(folder: &Path, all: &[One], is_old: impl Fn(SystemTime) -> bool) -> bool {
    let (old, mut new): (Vec<&One>, Vec<&One>) = all.iter().partition(|it| is_old(it.signed));
    let mut left: HashSet<[u8; 16]> = old.iter().map(|it| it.job).collect();
    if old.iter().any(|it| it.bytes < LIST_BYTES_MIN) {
        return false;
    }
    new.retain(|it| it.bytes < REFERRING_BYTES_MAX);
    new.sort_by_key(|it| std::cmp::Reverse(it.signed));
    for one in new {
        if left.is_empty() {
            break;
        }
        former_of(folder, &one.job).inspect(|former| _ = left.remove(former));
    }
    left.is_empty()
}

/// Removes long receipts that name their entries, unless somebody refers to them, or is about to.
fn remove_long(
    folder: &Path,
    long: &[One],
    known: &HashSet<[u8; 16]>,
    stays: &mut HashSet<[u8; 16]>,
    left: &mut Pruned,
) -> io::Result<()> {
    let mut held = Vec::new();
    for one in long {
        // A job that reads one holds it until its own receipt has its name.
        if let Ok(file) = File::open(folder.join(file_name(&one.job)))
            && file.try_lock().is_ok()
        {
            held.push((file, one));
        }
    }
    if held.is_empty() {
        return Ok(());
    }
    // From here on nobody begins to refer to these; who has done so since the folder was read is found now.
    let new = all(folder)?.into_iter().filter(|it| it.bytes < REFERRING_BYTES_MAX && !known.contains(&it.job));
    stays.extend(new.filter_map(|it| former_of(folder, &it.job)));
    for (_, one) in held.iter().filter(|(_, it)| !stays.contains(&it.job)) {
        if fs::remove_file(folder.join(file_name(&one.job))).is_ok() {
            left.gone(one);
        }
    }
    Ok(())
}

impl Pruned {
    fn gone(&mut self, one: &One) {
        self.kept -= 1;
        self.kept_bytes -= one.bytes;
        self.removed += 1;
        self.removed_bytes += one.bytes;
    }
}

fn former_of(folder: &Path, job: &[u8; 16]) -> Option<[u8; 16]> {
    listing::former(&folder.join(file_name(job))).map(|it| it.job)
}

/// Receipts by name, time and length; none is opened.
fn all(folder: &Path) -> io::Result<Vec<One>> {
    let list = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        list => list?,
    };
    let one = |entry: fs::DirEntry| {
        let job = job_of(entry.file_name().to_str()?)?;
        let facts = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(One { job, signed: facts.modified().ok()?, bytes: facts.len(), former: None })
    };
    Ok(list.flatten().filter_map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::receipt::{ReceiptFile, head_of_job};
    use proto::receipt::{Alike, Former, Signer};

    const HOUR: Duration = Duration::from_secs(3600);

    /// A folder of receipts that goes away with the test.
    struct Receipts {
        folder: std::path::PathBuf,
        now: SystemTime,
    }

    impl Receipts {
        fn new(name: &str) -> Receipts {
            let folder = std::env::temp_dir().join(format!("longhaul-keep-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).expect("a folder for the test");
            Receipts { folder, now: SystemTime::now() }
        }

        fn path(&self, job: u8) -> std::path::PathBuf {
            self.folder.join(file_name(&[job; 16]))
        }

        /// One of so many days ago; it refers to another job's, or has some KiB of its own.
        fn write(&self, job: u8, days: u32, former: Option<u8>) {
            let head = head_of_job(job);
            let mut file = ReceiptFile::begin(self.path(job), Signer::Sender, &head, None).expect("begun");
            if former.is_none() {
                file.lines("d - 0 755 1700000000.0 p name\n".repeat(3000).as_bytes()).expect("written");
            }
            let former = former.map(|it| Former { job: [it; 16], body: [7; 32], alike: Alike::Times });
            let body = file.end_with(former.as_ref(), 0, 0).expect("ended");
            let signed = [(Signer::Sender, [1; 32], [8; 64]), (Signer::Receiver, [2; 32], [9; 64])];
            file.sign(&body, &signed, None).expect("signed");
            let file = File::options().append(true).open(self.path(job)).expect("it stands");
            file.set_modified(self.now - days * 24 * HOUR - 2 * HOUR).expect("dated");
        }

        fn prune(&self, keep: &str) -> Vec<u8> {
            prune(&self.folder, keep.parse().expect("well said"), self.now).expect("pruned");
            let mut jobs: Vec<u8> = all(&self.folder).expect("read").iter().map(|it| it.job[0]).collect();
            jobs.sort_unstable();
            jobs
        }
    }

    impl Drop for Receipts {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    #[test]
    fn what_is_kept_is_said_by_age_and_size_and_nothing_else() {
        for (text, shown) in [
            ("90d / 10 GiB", "90d / 10GiB"),
            ("10GiB/90d", "90d / 10GiB"),
            (" 7 d ", "7d"),
            ("500MB", "500MB"),
            ("all", "all"),
        ] {
            assert_eq!(text.parse().map(|keep: Keep| keep.to_string()).as_deref(), Ok(shown), "{text}");
        }
        for text in ["", "90", "0d", "d", "90d / 1d", "1GiB / 2GiB", "90h", "-1d", "all / 1d", "90d /", "99999999999d"]
        {
            assert!(text.parse::<Keep>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_oldest_go_by_age_and_by_bytes_and_others_stay() {
        let receipts = Receipts::new("oldest");
        (1..=6).for_each(|job| receipts.write(job, 10 * u32::from(job), None));
        let each = fs::metadata(receipts.path(1)).expect("it stands").len();
        // What is no receipt is left alone, however old, and so is one that is being written.
        for name in ["notes.receipt", "carry-1", "ffffffffffffffffffffffffffffffff.receipt.sender.part"] {
            let file = File::create(receipts.folder.join(name)).expect("made");
            file.set_modified(receipts.now - 10_000 * HOUR).expect("dated");
        }
        assert_eq!(receipts.prune("all"), [1, 2, 3, 4, 5, 6]);
        assert_eq!(receipts.prune("61d"), [1, 2, 3, 4, 5, 6]);
        assert_eq!(receipts.prune("45d"), [1, 2, 3, 4]);
        assert_eq!(receipts.prune(&format!("{}B", 3 * each)), [1, 2, 3]);
        assert_eq!(receipts.prune(&format!("15d / {}B", 3 * each)), [1]);
        assert_eq!(fs::read_dir(&receipts.folder).expect("read").count(), 4);
        receipts.prune("1B");
        assert!(!receipts.path(1).exists(), "it was signed a day ago");
        receipts.write(9, 0, None);
        let just_now = File::options().append(true).open(receipts.path(9)).expect("it stands");
        just_now.set_modified(receipts.now - TOLD / 2).expect("dated");
        assert_eq!(receipts.prune("1B"), [9], "who was told of it half an hour ago finds it");
    }

    #[test]
    fn a_receipt_stays_while_a_kept_one_refers_to_it_and_goes_with_the_last_that_does() {
        let receipts = Receipts::new("former");
        receipts.write(1, 300, None);
        receipts.write(2, 200, Some(1));
        receipts.write(3, 20, Some(1));
        receipts.write(4, 250, None);
        assert_eq!(receipts.prune("90d"), [1, 3], "1 is as old as 3");
        let all = all(&receipts.folder).expect("read");
        assert!(are_needed(&receipts.folder, &all, |at| at < receipts.now - 90 * 24 * HOUR), "and looks no further");
        assert!(!are_needed(&receipts.folder, &all, |at| at < receipts.now - 10 * 24 * HOUR));
        receipts.write(5, 40, None);
        let small = fs::metadata(receipts.path(3)).expect("it stands").len();
        let whole = fs::metadata(receipts.path(1)).expect("it stands").len();
        assert_eq!(receipts.prune(&format!("{}B", small + whole)), [1, 3], "5 is older than 1");
        assert_eq!(receipts.prune("10d"), [0u8; 0]);
    }

    #[test]
    fn a_receipt_that_a_running_job_reads_stays_and_so_does_one_that_was_referred_to_meanwhile() {
        let receipts = Receipts::new("held");
        receipts.write(1, 300, None);
        let job = File::open(receipts.path(1)).expect("it stands");
        job.try_lock_shared().expect("nobody prunes");
        assert_eq!(receipts.prune("90d"), [1]);
        drop(job);
        // A job that ended after the folder was read, and before the lock was taken.
        let seen = all(&receipts.folder).expect("read");
        receipts.write(2, 0, Some(1));
        let (known, mut left) = (seen.iter().map(|it| it.job).collect(), Pruned::default());
        remove_long(&receipts.folder, &seen, &known, &mut HashSet::new(), &mut left).expect("looked at");
        assert!(receipts.path(1).exists() && left.removed == 0);
        // The same where nobody did.
        fs::remove_file(receipts.path(2)).expect("it stands");
        assert_eq!(receipts.prune("90d"), [0u8; 0]);
    }

    #[test]
    fn a_home_says_what_is_kept_and_a_word_that_nobody_understands_keeps_all() {
        let scratch = std::env::temp_dir().join(format!("longhaul-keep-home-{}", std::process::id()));
        let home = Home::at(&scratch).expect("a home");
        assert_eq!(Keep::of(&home), Ok(Keep::default()));
        let keep: Keep = "90d / 10GiB".parse().expect("well said");
        keep.set(&home).expect("written");
        assert_eq!(Keep::of(&home), Ok(keep));
        fs::write(home.path(FILE), "some").expect("written");
        let why = Keep::of(&home).expect_err("not understood");
        assert!(why.contains("receipts_keep: \"some\": write an age"), "{why}");
        fs::remove_dir_all(scratch).expect("it is there");
    }

    #[test]
    fn after_many_small_jobs_the_folder_is_read_once_a_minute_and_after_a_large_one_at_once() {
        let scratch = std::env::temp_dir().join(format!("longhaul-keep-turns-{}", std::process::id()));
        let home = Home::at(&scratch).expect("a home");
        let (turns, keep) = (Turns::default(), "1d".parse().expect("well said"));
        assert!(turns.after_job(&home, Keep::default(), None).is_none(), "all are kept");
        assert!(turns.after_job(&home, keep, None).is_some() && turns.after_job(&home, keep, None).is_none());
        let large = scratch.join("large");
        File::create(&large).and_then(|file| file.set_len(LIST_BYTES_MIN)).expect("made");
        assert!(turns.after_job(&home, keep, Some(&large)).is_some());
        fs::remove_dir_all(scratch).expect("it is there");
    }
}
