//! What processes that were killed left behind goes at a later start.
//!
//! For: a home and a TMPDIR that do not grow with every `kill -9`.
//! In and out: a start of this user's; files and sockets of dead processes removed.
//! Invariants: nothing of a living process goes: it holds a lock on what is its own or answers at its socket, and what is younger than `YOUNG` is
//! left alone; parts and journals at a destination are never touched: the next run of the same job wants them. Nobody waits for it.
//! Absent on purpose: reports; a file that cannot be removed is tried again at another start.
//!
//! ```text
//! receipts/JOB.receipt.{sender,receiver}.part     a job's receipt, not signed yet           locked by its writer
//! receipts/carry-…                                digests for a next run that never came     30 days
//! receipts/last-…  last-….new                     which receipts a next one may refer to     400 days; an hour
//! receipts/JOB.receipt                            what `receipts_keep` does not keep         receipt/retention.rs
//! .NAME.….tmp  engines.PID.new                    a list that was being replaced             an hour
//! run/BOOT/….sock  ….new                          where a process was asked                  nobody answers; or of an earlier boot of this machine
//! TMPDIR/longhaul-spool-…                         a pipe's stream                            locked by its process
//! ~/.cache/longhaul/bin/…                         builds that ssh brought                    30 days; broken off: a day
//! ```

use std::fs::{self, DirEntry, File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::receipt::retention::{Keep, prune};
use super::registry;
use crate::identity::Home;

/// Between a file's making and its lock lie microseconds; a clock may jump.
const YOUNG: Duration = Duration::from_secs(60);
/// Small files that are written and renamed at once.
const WRITTEN: Duration = Duration::from_secs(3600);
/// A broken-off copy of a binary.
const DAY: Duration = Duration::from_secs(86_400);
/// What a next run may want, or another client of this host.
const WANTED: Duration = Duration::from_secs(30 * 86_400);
/// A run that comes once a year still finds it.
const YEARLY: Duration = Duration::from_secs(400 * 86_400);
/// Commands that start within this time of a sweep make none: hundreds of clients of one home shall not all look.
const SWEPT: Duration = Duration::from_secs(600);

/// Sweeps beside the job. `keep`: a daemon's own word about receipts; `always`: a daemon, which starts rarely.
pub fn begin(home: &Home, keep: Option<Keep>, always: bool) {
    // Most commands make none, and need no thread for it.
    if !always && !claim(home) {
        return;
    }
    let home = home.clone();
    // Without a thread the next start does it.
    let _ = std::thread::Builder::new()
        .name("sweep".into())
        .spawn(move || sweep(&home, keep, &std::env::temp_dir(), SystemTime::now()));
}

/// Is it time again? Who is told so is the one to do it.
fn claim(home: &Home) -> bool {
    let stamp = home.path("run").join("swept");
    let is_due = fs::metadata(&stamp).map_or(true, |it| is_older(&it, SWEPT, SystemTime::now()));
    is_due && File::create(&stamp).and_then(|file| file.set_modified(SystemTime::now())).is_ok()
}

/// All of it, once. `keep`: which receipts; `None`: as the home says.
pub fn sweep(home: &Home, keep: Option<Keep>, temporary: &Path, now: SystemTime) {
    each(&home.path("receipts"), |entry, facts, name| {
        let is_part = name.ends_with(".sender.part") || name.ends_with(".receiver.part");
        let is_left = is_part && is_older(facts, YOUNG, now) && is_free(&entry.path());
        let is_memo = name.starts_with("last-");
        let age = if is_memo && name.ends_with(".new") { WRITTEN } else { YEARLY };
        let is_forgotten =
            (name.starts_with("carry-") && is_older(facts, WANTED, now)) || (is_memo && is_older(facts, age, now));
        if is_left || is_forgotten {
            let _ = fs::remove_file(entry.path());
        }
    });
    // A word that cannot be understood keeps them all.
    if let Some(keep) = keep.map_or_else(|| Keep::of(home).ok(), Some) {
        let _ = prune(&home.path("receipts"), keep, now);
    }
    each(&home.path(""), |entry, facts, name| {
        let is_list = name.starts_with('.') && name.ends_with(".tmp");
        let is_engines = name.starts_with("engines.") && name.ends_with(".new");
        if facts.is_file() && (is_list || is_engines) && is_older(facts, WRITTEN, now) {
            let _ = fs::remove_file(entry.path());
        }
    });
    each(temporary, |entry, facts, name| {
        let is_ours = facts.is_dir() && facts.uid() == rustix::process::geteuid().as_raw();
        if is_ours && name.starts_with("longhaul-spool-") && is_older(facts, YOUNG, now) && is_free(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    });
    registry::sweep(home, |facts| is_older(facts, YOUNG, now));
}

/// Builds that ssh brought to this host, in the folder that this one runs from; this one counts as used now.
pub fn builds(place: &str) {
    let Ok(own) = fs::read_link("/proc/self/exe") else { return };
    let Some(folder) = own.parent().filter(|folder| folder.ends_with(place)) else { return };
    let now = SystemTime::now();
    let _ = File::open(&own).and_then(|own| own.set_modified(now));
    each(folder, |entry, facts, name| {
        let is_broken = name.ends_with(".new") && is_older(facts, DAY, now);
        if facts.is_file() && name.starts_with("longhaul-") && (is_broken || is_older(facts, WANTED, now)) {
            let _ = fs::remove_file(entry.path());
        }
    });
}

fn each(folder: &Path, mut act: impl FnMut(&DirEntry, &Metadata, &str)) {
    let Ok(list) = fs::read_dir(folder) else { return };
    for entry in list.flatten() {
        // Of the entry itself, never of what a link leads to.
        if let (Ok(facts), Some(name)) = (entry.metadata(), entry.file_name().to_str()) {
            act(&entry, &facts, name);
        }
    }
}

fn is_older(facts: &Metadata, than: Duration, now: SystemTime) -> bool {
    facts.modified().is_ok_and(|it| now.duration_since(it).is_ok_and(|age| age >= than))
}

/// Does nobody hold its lock? Where locks are not known (some network file systems) nobody can say: it stays.
fn is_free(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

/// Marks a file or folder as this process's own, for as long as the descriptor is open.
pub fn hold(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dead_processes_left_goes_and_what_is_wanted_or_held_stays() {
        let scratch = std::env::temp_dir().join(format!("longhaul-sweep-{}", std::process::id()));
        let home = Home::at(&scratch.join("home")).expect("a home");
        let temporary = scratch.join("tmp");
        for folder in [home.path("receipts"), temporary.clone()] {
            fs::create_dir_all(folder).expect("made");
        }
        let now = SystemTime::now();
        let made = |path: std::path::PathBuf, age: Duration| {
            let file = File::create(&path).expect("made");
            file.set_modified(now - age).expect("dated");
            file
        };
        let receipts = |name: &str| home.path("receipts").join(name);
        let hour = Duration::from_secs(3601);
        let held = made(receipts("a.receipt.sender.part"), hour);
        hold(&held).expect("ours");
        for (name, age) in [
            ("b.receipt.receiver.part", hour),
            ("c.receipt.sender.part", Duration::ZERO),
            ("d.receipt", WANTED),
            ("carry-old", WANTED),
            ("carry-new", hour),
        ] {
            made(receipts(name), age);
        }
        for name in [".trusted.17.tmp", "engines.17.new", "engines", "key", "engines.toml"] {
            made(home.path(name), hour);
        }
        let spool = |name: &str| {
            let folder = temporary.join(name);
            fs::create_dir(&folder).expect("made");
            made(folder.join("stream"), hour);
            let open = File::open(&folder).expect("open");
            open.set_modified(now - hour).expect("dated");
            open
        };
        let (mine, _) = (spool("longhaul-spool-1-0"), spool("longhaul-spool-2-0"));
        hold(&mine).expect("ours");
        spool("another-folder");
        sweep(&home, None, &temporary, now);
        let names = |folder: &Path| {
            let mut names: Vec<String> =
                fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(
            names(&home.path("receipts")),
            ["a.receipt.sender.part", "c.receipt.sender.part", "carry-new", "d.receipt"]
        );
        assert_eq!(names(&home.path("")), ["engines", "engines.toml", "key", "receipts"]);
        assert_eq!(names(&temporary), ["another-folder", "longhaul-spool-1-0"]);
        // Their owners are gone, too.
        drop((held, mine));
        sweep(&home, None, &temporary, now + YOUNG);
        assert_eq!(names(&home.path("receipts")), ["carry-new", "d.receipt"]);
        assert_eq!(names(&temporary), ["another-folder"]);
        fs::remove_dir_all(scratch).expect("it is there");
    }

    #[test]
    fn of_many_that_start_together_one_sweeps() {
        let scratch = std::env::temp_dir().join(format!("longhaul-swept-{}", std::process::id()));
        let home = Home::at(&scratch).expect("a home");
        fs::create_dir(home.path("run")).expect("made");
        assert!(claim(&home) && !claim(&home));
        let stamp = File::options().write(true).open(home.path("run").join("swept")).expect("there");
        stamp.set_modified(SystemTime::now() - SWEPT).expect("dated");
        assert!(claim(&home) && !claim(&home));
        fs::remove_dir_all(scratch).expect("it is there");
    }
}
