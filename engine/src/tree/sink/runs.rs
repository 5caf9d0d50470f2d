//! What a job that was killed left of small files.
//!
//! For: parts of files without a journal, which have names that only their job knows, so that two jobs never write one part, with no lock
//! for each; and taking those away that a killed job left.
//! In and out: the destination's base; this job's tag; what to remove beside a name.
//! Invariants: while a job makes parts, and after one that left a large one for the next run to go on with, a file named by its tag stands in a folder
//! of its base, flushed before the first part, with the first components of the paths that it made them at; a living job has it locked, and it has
//! that name only once it is locked, so that a tag whose file can be locked is a dead job's; it goes only after a later job came past all of
//! these paths and ended well.
//! Absent on purpose: parts with a journal (`claims.rs`); file systems without locks, where nobody can tell a dead job from a living one.
//!
//! ```text
//! .longhaul-<16 hex of BLAKE3(name)>.<tag>.part     in the folder of the name; the tag is 16 hex
//! .longhaul-runs/<tag>                              in the base: lines of first components in hex
//! .longhaul-runs/<tag>.new                          the same, before it is locked: for a moment
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sys::fs::{Dir, Kind, read_at_full, stat_file, try_lock, write_at_full};

use crate::tree::{RUNS_FOLDER, beside};

/// Dead jobs looked after at a time.
const DEAD_MAX: usize = 256;
/// A job's file that is longer is nothing of ours.
const RUN_BYTES_MAX: u64 = 1 << 20;
/// First components remembered of a job; of one that has more, parts are looked for wherever a later job comes by.
const TOPS_MAX: usize = 256;
/// Times that a job's file is made while other jobs begin and end: more come in the same moment to no one.
const MAKE_ATTEMPTS: u32 = 64;
const MAKE_PAUSE: Duration = Duration::from_millis(1);
/// The ending of a job's file that is not locked yet.
const NEW: &[u8] = b".new";

/// First components of paths, by tag.
type Tops = BTreeMap<String, BTreeSet<Vec<u8>>>;

/// See the module.
#[derive(Debug)]
pub(in crate::tree) struct Runs {
    tag: String,
    /// Is there anything to take away? Looked at for each entry, and nearly always not.
    any_dead: AtomicBool,
    looked: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    file: Option<File>,
    dead: Tops,
    own: BTreeSet<Vec<u8>>,
    last: Vec<u8>,
    /// Where this job came by, if others were killed here.
    past: BTreeSet<Vec<u8>>,
    /// There can be none here.
    without: bool,
}

impl Default for Runs {
    fn default() -> Self {
        // Keyed by the system's randomness, as the standard library has it for its tables.
        let random = std::hash::RandomState::new().build_hasher().finish();
        Runs {
            tag: format!("{:016x}", random ^ u64::from(std::process::id())),
            any_dead: AtomicBool::new(false),
            looked: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }
}

impl Runs {
    /// The ending of this job's parts.
    pub(in crate::tree) fn ending(&self, of: &str) -> String {
        format!("{}.{of}", self.tag)
    }

    /// This job makes a part at this path.
    pub(in crate::tree) fn at(&self, base: &Dir, path: &[u8]) {
        let top = top_of(path);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last == top || state.own.len() >= TOPS_MAX {
            return;
        }
        state.last = top.to_vec();
        if !state.own.insert(top.to_vec()) {
            return;
        }
        if state.file.is_none() && !state.without {
            state.file = self.make(base).ok();
            state.without = state.file.is_none();
        }
        if let Some(file) = &state.file {
            // A line that cannot be put costs a left-over at a kill.
            let end = stat_file(file).map_or(0, |stat| stat.bytes);
            let _ = write_at_full(file, line(top).as_bytes(), end);
        }
    }

    fn name(&self) -> Vec<u8> {
        in_folder(self.tag.as_bytes())
    }

    /// This job's file, locked, and flushed: after a power cut it is there if any part is.
    fn make(&self, base: &Dir) -> io::Result<File> {
        let before = base.stat_self()?;
        let file = (0..MAKE_ATTEMPTS)
            .find_map(|_| {
                let made = self.begin(base).and_then(|file| self.finish(base, file));
                if made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy) {
                    std::thread::sleep(MAKE_PAUSE);
                }
                // A job that ended took the folder away, or one that looked for left-overs took this file for one, which is nobody's yet.
                let once_more =
                    |error: &io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ResourceBusy);
                if made.as_ref().is_err_and(once_more) { None } else { Some(made) }
            })
            .unwrap_or_else(|| Err(io::ErrorKind::ResourceBusy.into()))?;
        base.sync(RUNS_FOLDER)?;
        base.sync(b"")?;
        let _ = base.pin(b"", Kind::Folder).and_then(|it| it.set_mtime((before.mtime_s, before.mtime_ns)));
        Ok(file)
    }

    /// A file that is nobody's yet: until it is locked it has no tag's name, or another job would take this one for dead.
    fn begin(&self, base: &Dir) -> io::Result<File> {
        match base.make_dir(RUNS_FOLDER, 0o755) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        base.create_file(&self.new_name(), false, false)
    }

    /// Locks it, and gives it the tag's name: in this order.
    fn finish(&self, base: &Dir, file: File) -> io::Result<File> {
        if !try_lock(&file)? {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        base.rename(&self.new_name(), &self.name())?;
        Ok(file)
    }

    fn new_name(&self) -> Vec<u8> {
        [&self.name()[..], NEW].concat()
    }

    /// Looks, once, whether jobs were killed here. Nothing is made.
    pub(in crate::tree) fn look(&self, base: &Dir) {
        if self.looked.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(names) = base.open_dir(RUNS_FOLDER).and_then(|folder| folder.list()) else { return };
        for name in names.flatten().map(|entry| entry.name).take(DEAD_MAX) {
            if name.ends_with(NEW) {
                // Of a job that died before it had made a part. One that lives makes another.
                if open_locked(base, &name).is_some() {
                    let _ = base.remove_file(&in_folder(&name));
                }
                continue;
            }
            let Some(tag) = tag_of(&name).filter(|tag| *tag != self.tag) else { continue };
            // Locked for a moment only: a dead job's left-overs are nobody's, and several may take them away.
            if let Some(tops) = open_locked(base, &name).map(|file| read(&file).unwrap_or_default()) {
                state.dead.insert(tag, tops);
            }
        }
        self.any_dead.store(!state.dead.is_empty(), Ordering::Release);
    }

    /// Was a job killed here, and left something?
    pub(in crate::tree) fn any_dead(&self) -> bool {
        self.any_dead.load(Ordering::Acquire)
    }

    /// Takes away what dead jobs left beside a name.
    pub(in crate::tree) fn sweep(&self, base: &Dir, path: &[u8]) {
        if !self.any_dead() {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.past.contains(top_of(path)) {
            state.past.insert(top_of(path).to_vec());
        }
        for tag in state.dead.keys() {
            for of in ["part", "journal"] {
                let _ = base.remove_file(&beside(path, &format!("{tag}.{of}")));
            }
        }
    }

    /// The job is over, well or not, and its small parts were taken away: nobody needs its tag to find them. `leaves_parts`: but large ones stand,
    /// and a file that is small by the next run has no other reason to look for one.
    pub(in crate::tree) fn let_go(&self, base: &Dir, leaves_parts: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.file.take().is_some() && !leaves_parts {
            self.remove(base, &[self.name()]);
        }
    }

    fn remove(&self, base: &Dir, names: &[Vec<u8>]) {
        // The folder may have its time already.
        let before = base.stat_self();
        for name in names {
            let _ = base.remove_file(name);
        }
        let _ = base.remove_dir(RUNS_FOLDER);
        if let Ok(before) = before {
            let _ = base.pin(b"", Kind::Folder).and_then(|it| it.set_mtime((before.mtime_s, before.mtime_ns)));
        }
    }

    /// The job ended well: of what it came past nothing is left, but for large parts of its own, with `leaves_parts`.
    pub(in crate::tree) fn end(&self, base: &Dir, leaves_parts: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let past = std::mem::take(&mut state.past);
        let done = state.dead.iter().filter(|(_, tops)| tops.is_subset(&past));
        let mut names: Vec<Vec<u8>> = done.map(|(tag, _)| in_folder(tag.as_bytes())).collect();
        names.extend(state.file.take().filter(|_| !leaves_parts).map(|_| self.name()));
        if !names.is_empty() {
            self.remove(base, &names);
        }
    }
}

fn top_of(path: &[u8]) -> &[u8] {
    path.split(|&byte| byte == b'/').next().unwrap_or_default()
}

fn in_folder(name: &[u8]) -> Vec<u8> {
    [RUNS_FOLDER, b"/", name].concat()
}

/// A file of the folder, locked, if no job holds it.
fn open_locked(base: &Dir, name: &[u8]) -> Option<File> {
    base.open_file_to_write(&in_folder(name)).ok().filter(|file| matches!(try_lock(file), Ok(true)))
}

fn tag_of(name: &[u8]) -> Option<String> {
    let is_tag = name.len() == 16 && name.iter().all(u8::is_ascii_hexdigit);
    is_tag.then(|| String::from_utf8_lossy(name).into_owned())
}

fn read(file: &File) -> io::Result<BTreeSet<Vec<u8>>> {
    let bytes = stat_file(file)?.bytes.min(RUN_BYTES_MAX);
    let mut text = vec![0; bytes as usize];
    let read = read_at_full(file, &mut text, 0)?;
    Ok(String::from_utf8_lossy(&text[..read]).lines().filter_map(unhex).collect())
}

fn line(top: &[u8]) -> String {
    let hex: String = top.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{hex}\n")
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if digits.len().is_multiple_of(2) { digits.chunks(2).map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a job that looks at this moment takes for dead.
    fn dead(base: &Dir) -> usize {
        let other = Runs::default();
        other.look(base);
        other.state.into_inner().unwrap().dead.len()
    }

    #[test]
    fn a_job_that_begins_is_at_no_step_taken_for_a_dead_one() {
        let place = std::env::temp_dir().join(format!("longhaul-runs-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(&place).unwrap();
        let base = Dir::open(place.as_os_str().as_encoded_bytes()).unwrap();
        let runs = Runs::default();
        let file = runs.begin(&base).unwrap();
        let nobodys = base.open_file_to_write(&runs.new_name()).unwrap();
        assert_eq!(dead(&base), 0, "made, and not locked");
        // The other took the file that was nobody's away: it never becomes the job's.
        drop(nobodys);
        assert_eq!(runs.finish(&base, file).unwrap_err().kind(), io::ErrorKind::NotFound);
        let file = runs.begin(&base).unwrap();
        assert!(try_lock(&file).unwrap());
        assert_eq!(dead(&base), 0, "locked, and not named");
        let file = runs.finish(&base, file).unwrap();
        assert_eq!(dead(&base), 0, "named");
        drop(file);
        assert_eq!(dead(&base), 1, "its job died");
        // One whose name is held by a look at that moment waits for it.
        let runs = Runs::default();
        let looking = runs.begin(&base).unwrap();
        assert!(try_lock(&looking).unwrap());
        std::thread::scope(|scope| {
            let made = scope.spawn(|| runs.make(&base));
            std::thread::sleep(std::time::Duration::from_millis(20));
            drop(looking);
            drop(made.join().unwrap().unwrap());
        });
        std::fs::remove_dir_all(&place).unwrap();
    }
}
