//! What a job that was killed left of small files.
//!
//! For: parts of files without a journal, which have names that only their job knows, so that two jobs never write one part, with no lock
//! for each; and taking those away that a killed job left.
//! In and out: the destination's base; this job's tag; what to remove beside a name.
//! Invariants: while a job makes parts, a file named by its tag, locked, stands in a folder of its base, made and flushed before the first part, with
//! the first components of the paths that it made them at; a tag whose file can be locked is a dead job's; its file goes only after a later
//! job came past all of these paths and ended well.
//! Absent on purpose: parts with a journal (`claims.rs`); file systems without locks, where nobody can tell a dead job from a living one.
//!
//! ```text
//! .longhaul-<16 hex of BLAKE3(name)>.<tag>.part     in the folder of the name; the tag is 16 hex
//! .longhaul-runs/<tag>                              in the base: lines of first components in hex
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use sys::fs::{Dir, Kind, read_at_full, stat_file, try_lock, write_at_full};

use super::beside;

/// The folder with a file for each job.
pub(super) const FOLDER: &[u8] = b".longhaul-runs";
/// Dead jobs looked after at a time.
const DEAD_MAX: usize = 256;
/// A job's file that is longer is nothing of ours.
const RUN_BYTES_MAX: u64 = 1 << 20;
/// First components remembered of a job; of one that has more, parts are looked for wherever a later job comes by.
const TOPS_MAX: usize = 256;

/// First components of paths, by tag.
type Tops = BTreeMap<String, BTreeSet<Vec<u8>>>;

/// See the module.
#[derive(Debug)]
pub(super) struct Runs {
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
    pub(super) fn ending(&self, of: &str) -> String {
        format!("{}.{of}", self.tag)
    }

    /// This job makes a part at this path.
    pub(super) fn at(&self, base: &Dir, path: &[u8]) {
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
        let file = loop {
            match base.make_dir(FOLDER, 0o755) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            match base.create_file(&self.name(), true, false) {
                // A job that ended took the folder away.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => break other?,
            }
        };
        if !try_lock(&file)? {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        base.sync(FOLDER)?;
        base.sync(b"")?;
        let _ = base.pin(b"", Kind::Folder).and_then(|it| it.set_mtime((before.mtime_s, before.mtime_ns)));
        Ok(file)
    }

    /// Looks, once, whether jobs were killed here. Nothing is made.
    pub(super) fn look(&self, base: &Dir) {
        if self.looked.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(names) = base.open_dir(FOLDER).and_then(|folder| folder.list()) else { return };
        for name in names.flatten().map(|entry| entry.name).take(DEAD_MAX) {
            let Some(tag) = tag_of(&name).filter(|tag| *tag != self.tag) else { continue };
            // Locked for a moment only: a dead job's left-overs are nobody's, and several may take them away.
            let dead =
                base.open_file_to_write(&in_folder(&name)).ok().filter(|file| matches!(try_lock(file), Ok(true)));
            if let Some(tops) = dead.map(|file| read(&file).unwrap_or_default()) {
                state.dead.insert(tag, tops);
            }
        }
        self.any_dead.store(!state.dead.is_empty(), Ordering::Release);
    }

    /// Was a job killed here, and left something?
    pub(super) fn any_dead(&self) -> bool {
        self.any_dead.load(Ordering::Acquire)
    }

    /// Takes away what dead jobs left beside a name.
    pub(super) fn sweep(&self, base: &Dir, path: &[u8]) {
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

    /// The job is over, well or not: what it left is a dead job's.
    pub(super) fn let_go(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).file = None;
    }

    /// The job ended well: of what it came past nothing is left.
    pub(super) fn end(&self, base: &Dir) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let past = std::mem::take(&mut state.past);
        let done = state.dead.iter().filter(|(_, tops)| tops.is_subset(&past));
        let mut names: Vec<Vec<u8>> = done.map(|(tag, _)| in_folder(tag.as_bytes())).collect();
        names.extend(state.file.take().map(|_| self.name()));
        if names.is_empty() {
            return;
        }
        // The folder has its time already.
        let before = base.stat_self();
        for name in names {
            let _ = base.remove_file(&name);
        }
        let _ = base.remove_dir(FOLDER);
        if let Ok(before) = before {
            let _ = base.pin(b"", Kind::Folder).and_then(|it| it.set_mtime((before.mtime_s, before.mtime_ns)));
        }
    }
}

fn top_of(path: &[u8]) -> &[u8] {
    path.split(|&byte| byte == b'/').next().unwrap_or_default()
}

fn in_folder(name: &[u8]) -> Vec<u8> {
    [FOLDER, b"/", name].concat()
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
