//! The history: one line for each job that ended here.
//!
//! For: `longhaul job history`, and the paths that a receipt does not hold.
//! In and out: a job that begins, what becomes known of it, and its end in; one line of JSON in a file of the home out; lines back, newest first.
//! Invariants: a line is one write at the end of the file, so that processes do not mix theirs; a file that was torn costs the line that was
//! torn; no ticket is in it; the file is bounded; what cannot be written fails no job and is reported once per process.
//! Absent on purpose: dry runs, which moved nothing; processes ended by SIGKILL, which write nothing any more; what a job did in detail (its receipt).
//!
//! ```text
//! $LONGHAUL_HOME/history.jsonl                       0600   one JSON object to a line, newest last
//! $LONGHAUL_HOME/history.jsonl.1  history.jsonl.2           the ones before, once the file has BYTES_MAX
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::identity::Home;
use crate::identity::ticket::Ticket;
use text::exit::{Exit, Failure};

/// The file that is written, below the home.
const FILE: &str = "history.jsonl";
/// A file that has so much is put aside: some 40,000 jobs.
const BYTES_MAX: u64 = 16 << 20;
/// So many files that were put aside are kept.
const OLD_KEPT: u32 = 2;

/// A job that ended, as the history has it. A field that an older line does not have is empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndedJob {
    /// When, seconds since 1970.
    pub ended_unix_s: u64,
    /// Its name, hexadecimal, the same at both ends and of the receipt; `null`: it ended before it had one.
    pub job: Option<String>,
    /// `client`: this host asked for it; `daemon`: a daemon here did it for a client.
    pub side: String,
    /// `cp` or `sync` of a client; `serve` or `relay` of a daemon.
    pub command: String,
    /// This end `sends`, `receives`, `copies` (both ends are here) or `steers` (both are elsewhere).
    pub end: String,
    /// The first source, as this host's user finds it again.
    pub source: String,
    /// The first destination, likewise.
    pub destination: String,
    /// Fingerprint of the other end's key; `null`: there was no other.
    pub peer: Option<String>,
    /// Payload that was moved, in all sessions of the command.
    pub bytes: u64,
    /// Files that were moved; of a job that did not reach its end, those that were done.
    pub files: u64,
    /// Sessions that were lost on the way, each with its bytes in `bytes`. A client's: at a daemon each session has its line.
    pub reconnected: u64,
    /// From its beginning to its end.
    pub seconds: f64,
    /// The exit code.
    pub exit: u8,
    /// Its word.
    pub exit_kind: String,
    /// Why it did not reach its end.
    pub error: Option<String>,
    /// The receipt on this host; its id is the job's name.
    pub receipt: Option<String>,
}

/// A job that runs, until it has its line.
#[derive(Debug)]
struct Open {
    number: u64,
    began: Instant,
    job: EndedJob,
}

/// The history of one home, and the jobs of this process that are not in it yet.
#[derive(Debug)]
pub struct History {
    home: Home,
    next: AtomicU64,
    open: Mutex<Vec<Open>>,
    warning: Mutex<Warning>,
}

/// What is to be said of a history that cannot be written.
#[derive(Debug)]
enum Warning {
    Never,
    Due(String),
    Told,
}

/// A job's place in the history. Clones are of the same job.
#[derive(Debug, Clone, Default)]
pub struct JobRecord {
    history: Option<Arc<History>>,
    number: u64,
}

impl History {
    /// Of this home.
    #[must_use]
    pub fn of(home: &Home) -> Arc<History> {
        let (next, open) = (AtomicU64::new(0), Mutex::default());
        Arc::new(History { home: home.clone(), next, open, warning: Mutex::new(Warning::Never) })
    }

    /// A job begins; what is known of it so far.
    #[must_use]
    pub fn begin(self: &Arc<Self>, job: EndedJob) -> JobRecord {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.open().push(Open { number, began: Instant::now(), job });
        JobRecord { history: Some(Arc::clone(self)), number }
    }

    /// The process ends now: all jobs that run have their line.
    pub fn end_all(&self, failure: &Failure) {
        let open = std::mem::take(&mut *self.open());
        open.into_iter().for_each(|one| self.write(one, failure.exit, Some(failure)));
    }

    /// Why jobs are not in it; said once in the life of a process.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let mut warning = self.warning.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *warning, Warning::Told) {
            Warning::Due(text) => Some(text),
            other => {
                *warning = other;
                None
            }
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, one: Open, exit: Exit, failure: Option<&Failure>) {
        let Open { began, mut job, .. } = one;
        job.ended_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs());
        job.seconds = began.elapsed().as_secs_f64();
        (job.exit, job.exit_kind) = (exit.code(), exit.line().word.to_owned());
        job.error = job.error.or_else(|| failure.map(|it| format!("failed to {}: {}", it.what, it.cause)));
        for text in [&mut job.source, &mut job.destination].into_iter().chain(&mut job.error) {
            *text = without_tickets(text);
        }
        let written = append(&self.home.path(FILE), &job, BYTES_MAX);
        let mut warning = self.warning.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Err(error), Warning::Never) = (written, &*warning) {
            let file = self.home.path(FILE);
            let text =
                format!("`longhaul job history` will not have this job: {} cannot be written: {error}", file.display());
            *warning = Warning::Due(text);
        }
    }
}

impl JobRecord {
    /// Something more is known of the job.
    pub fn set(&self, change: impl FnOnce(&mut EndedJob)) {
        let Some(history) = &self.history else { return };
        let mut open = history.open();
        if let Some(one) = open.iter_mut().find(|one| one.number == self.number) {
            change(&mut one.job);
        }
    }

    /// The job has ended, and has its line. One that has it already keeps that.
    pub fn end(&self, exit: Exit, failure: Option<&Failure>) {
        let Some(history) = &self.history else { return };
        let ended = {
            let mut open = history.open();
            let place = open.iter().position(|one| one.number == self.number);
            place.map(|place| open.swap_remove(place))
        };
        // Not under the lock: a disk may be slow.
        ended.into_iter().for_each(|one| history.write(one, exit, failure));
    }

    /// See `History::warning`.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        self.history.as_ref()?.warning()
    }
}

/// One line at the end of the file. A line that was torn there ends here.
fn append(path: &Path, job: &EndedJob, bytes_max: u64) -> io::Result<()> {
    let mut line = serde_json::to_string(job)?;
    line.push('\n');
    let mut file = opened(path, bytes_max)?;
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 && file.read_at(&mut last, length - 1)? == 1 && last != [b'\n'] {
        line.insert(0, '\n');
    }
    // One call: what another process writes meanwhile comes before or after. What a full disk did not take is not tried again.
    match file.write(line.as_bytes())? {
        count if count == line.len() => Ok(()),
        _ => Err(io::ErrorKind::StorageFull.into()),
    }
}

/// The file with room in it: one that is full is put aside, by one process.
fn opened(path: &Path, bytes_max: u64) -> io::Result<File> {
    let open = || OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
    let file = open()?;
    // Who finds it held writes to the file that is being put aside: it is read as well.
    if file.metadata()?.len() < bytes_max || file.try_lock().is_err() {
        return Ok(file);
    }
    let (held, named) = (file.metadata()?, fs::metadata(path)?);
    if (held.dev(), held.ino()) == (named.dev(), named.ino()) {
        for age in (1..OLD_KEPT).rev() {
            let _ = fs::rename(old(path, age), old(path, age + 1));
        }
        fs::rename(path, old(path, 1))?;
    }
    open()
}

fn old(path: &Path, age: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{age}"));
    name.into()
}

/// Jobs of the history that `is_wanted`, newest first, `limit` at most. Lines that cannot be read are left out.
///
/// # Errors
/// A file that is there and cannot be read.
pub fn read(home: &Home, limit: usize, is_wanted: impl FnMut(&EndedJob) -> bool) -> io::Result<Vec<EndedJob>> {
    read_from(&home.path(FILE), limit, is_wanted)
}

fn read_from(path: &Path, limit: usize, mut is_wanted: impl FnMut(&EndedJob) -> bool) -> io::Result<Vec<EndedJob>> {
    let mut found = Vec::new();
    for path in std::iter::once(path.to_owned()).chain((1..=OLD_KEPT).map(|age| old(path, age))) {
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let lines = bytes.split(|&byte| byte == b'\n').rev();
        let jobs = lines.filter_map(|line| serde_json::from_slice::<EndedJob>(line).ok());
        found.extend(jobs.filter(|job| is_wanted(job)).take(limit - found.len()));
        if found.len() >= limit {
            break;
        }
    }
    Ok(found)
}

/// Words of a user or a peer may have an address with its ticket in it, or a ticket by itself.
fn without_tickets(text: &str) -> String {
    const SCHEME: &str = "longhaul://";
    let is_secret = |word: &str| word.parse::<Ticket>().is_ok();
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|letter| !is_letter(letter)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        out.push_str(if is_secret(word) || (out.ends_with(SCHEME) && after.starts_with('@')) { "…" } else { word });
        let mut letters = after.chars();
        out.extend(letters.next());
        rest = letters.as_str();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("longhaul-history-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("made");
        folder
    }

    fn job(files: u64) -> EndedJob {
        EndedJob { files, source: "a".to_owned(), ..EndedJob::default() }
    }

    fn files(path: &Path, limit: usize) -> Vec<u64> {
        read_from(path, limit, |_| true).expect("it can be read").iter().map(|job| job.files).collect()
    }

    #[test]
    fn a_torn_line_costs_itself_alone() {
        let path = scratch("torn").join("h");
        append(&path, &job(1), BYTES_MAX).expect("written");
        let mut torn = OpenOptions::new().append(true).open(&path).expect("there");
        torn.write_all(b"{\"ended_unix_s\":17,\"jo").expect("written");
        assert_eq!(files(&path, 9), [1], "while it is the last");
        append(&path, &job(2), BYTES_MAX).expect("written");
        assert_eq!(files(&path, 9), [2, 1], "newest first");
        assert_eq!(files(&path, 1), [2]);
        torn.write_all(b"{\"files\":3,\"of a later version\":[]}\n").expect("written");
        assert_eq!(files(&path, 9), [3, 2, 1], "what a later version wrote is read as far as it is known");
        fs::remove_dir_all(path.parent().expect("a folder")).expect("it is there");
    }

    #[test]
    fn the_history_is_bounded_and_the_newest_stay() {
        let path = scratch("bounded").join("h");
        let each = serde_json::to_string(&job(10)).expect("text").len() as u64 + 1;
        for files in 10..30 {
            append(&path, &job(files), 3 * each).expect("written");
        }
        let sizes: Vec<u64> =
            [path.clone(), old(&path, 1), old(&path, 2)].map(|path| fs::metadata(path).expect("there").len()).into();
        assert_eq!(sizes, [2 * each, 3 * each, 3 * each]);
        assert!(!old(&path, 3).exists());
        assert_eq!(files(&path, 99), (22..30).rev().collect::<Vec<_>>());
        assert_eq!(files(&path, 3), [29, 28, 27], "over the border of a file");
        fs::remove_dir_all(path.parent().expect("a folder")).expect("it is there");
    }

    #[test]
    fn lines_of_many_writers_do_not_mix() {
        let path = scratch("many").join("h");
        let write = |bytes_max: u64| {
            std::thread::scope(|scope| {
                for writer in 0..4_u64 {
                    let path = &path;
                    let of = move |at: u64| append(path, &job(writer * 500 + at), bytes_max).expect("written");
                    scope.spawn(move || (0..500).for_each(of));
                }
            });
            let mut left = files(&path, usize::MAX);
            left.sort_unstable();
            left
        };
        assert_eq!(write(u64::MAX), (0..2000).collect::<Vec<_>>());
        // While it is put aside again and again: each line that is left is whole, and there once.
        fs::remove_file(&path).expect("there");
        let left = write(20_000);
        // A writer that saw another one's line half there has begun with a line end of its own: an empty line.
        let full = |path: &Path| fs::read_to_string(path).expect("there").lines().filter(|it| !it.is_empty()).count();
        let lines = full(&path) + full(&old(&path, 1)) + full(&old(&path, 2));
        assert!(left.len() == lines && left.windows(2).all(|two| two[0] < two[1]), "{} of {lines}", left.len());
        fs::remove_dir_all(path.parent().expect("a folder")).expect("it is there");
    }

    #[test]
    fn no_ticket_is_in_it_and_a_home_that_cannot_be_written_fails_nothing_and_is_said_once() {
        let folder = scratch("secret");
        let home = Home::at(&folder).expect("a home");
        let server_key = crate::identity::Identity::ephemeral().expect("a key").public();
        let ticket = Ticket { server_key, secret: [7; 16] }.to_string();
        let history = History::of(&home);
        let record = history.begin(EndedJob { source: format!("longhaul://{ticket}@h:1/a@b"), ..job(1) });
        record.set(|job| job.destination = format!("x/{ticket}"));
        record.end(Exit::Lost, Some(&Exit::Lost.fail("reach longhaul://damaged@h/", format!("{ticket} is away"))));
        record.end(Exit::Whole, None);
        let text = fs::read_to_string(home.path(FILE)).expect("there");
        assert!(!text.contains(&ticket[..20]) && !text.contains("damaged"), "{text}");
        let all = read(&home, 9, |_| true).expect("read");
        assert_eq!((all.len(), all[0].exit, all[0].exit_kind.as_str()), (1, 31, "lost"), "one line for one job");
        assert_eq!(all[0].source, "longhaul://…@h:1/a@b");
        let open = history.begin(job(2));
        history.end_all(&Exit::Interrupted.fail("go on", "a signal"));
        drop(open);
        assert_eq!(read(&home, 1, |_| true).expect("read")[0].exit, 32, "what ran when the process ended");
        assert_eq!(history.warning(), None);
        fs::remove_file(home.path(FILE)).expect("there");
        fs::create_dir(home.path(FILE)).expect("made");
        for _ in 0..2 {
            history.begin(job(3)).end(Exit::Whole, None);
        }
        assert!(history.warning().is_some_and(|text| text.contains(FILE)) && history.warning().is_none());
        fs::remove_dir_all(folder).expect("it is there");
    }
}
