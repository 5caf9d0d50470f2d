//! What a job that was killed left of small files.
//!
//! For: parts of files without a journal, which have names that only their job knows, so that two jobs never write one part, with no lock
//! for each; and taking those away that a killed job left.
//! In and out: the destination's base; this job's tag; what to remove beside a name.
//! Invariants: while a job makes parts, a file in its base, locked, names its tag and the first components of the paths that it made them
//! at; a tag whose file can be locked is a dead job's; its line goes only after a later job came past all of these paths and ended well.
//! Absent on purpose: parts with a journal (`claims.rs`); file systems without locks, where nobody can tell a dead job from a living one.
//!
//! ```text
//! .longhaul-<16 hex of BLAKE3(name)>.<tag>.part     in the folder of the name; the tag is 16 hex
//! .longhaul-<slot>.run                              in the base: lines of `<tag> <first component in hex>`
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use sys::fs::{Dir, Kind, read_at_full, stat_file, truncate, try_lock, write_at_full};

use super::beside;

/// Jobs of one base whose left-overs are looked after, at the same time. What further ones leave when they are killed stays.
const SLOTS: usize = 8;
/// A slot's file that is longer is nothing of ours.
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
    slot: Option<(Vec<u8>, File)>,
    dead: Tops,
    own: BTreeSet<Vec<u8>>,
    last: Vec<u8>,
    /// Where this job came by, if others were killed here.
    past: BTreeSet<Vec<u8>>,
    /// All slots are others', or there can be none here.
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
        if state.slot.is_none() && !state.without {
            state.slot = (0..SLOTS).find_map(|slot| open(base, slot, true).ok().flatten());
            state.without = state.slot.is_none();
            // A job that was killed since this one looked left its lines there.
            if let Some(theirs) = state.slot.as_ref().and_then(|(_, file)| read(file).ok()) {
                state.dead.extend(theirs);
                self.any_dead.store(!state.dead.is_empty(), Ordering::Release);
            }
        }
        if let Some((_, file)) = &state.slot {
            // A line that cannot be put costs a left-over at a kill.
            let end = stat_file(file).map_or(0, |stat| stat.bytes);
            let _ = write_at_full(file, line(&self.tag, top).as_bytes(), end);
        }
    }

    /// Looks, once, whether jobs were killed here. Nothing is made.
    pub(super) fn look(&self, base: &Dir) {
        if self.looked.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, file) in (0..SLOTS).filter_map(|slot| open(base, slot, false).ok().flatten()) {
            let theirs = read(&file).unwrap_or_default();
            let text: String = lines(&theirs);
            theirs.into_iter().for_each(|(tag, tops)| state.dead.entry(tag).or_default().extend(tops));
            match &state.slot {
                None => state.slot = Some((name, file)),
                Some((_, own)) => {
                    let end = stat_file(own).map_or(0, |stat| stat.bytes);
                    if write_at_full(own, text.as_bytes(), end).is_ok() {
                        let _ = base.remove_file(&name);
                    }
                }
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner).slot = None;
    }

    /// The job ended well: of what it came past nothing is left.
    pub(super) fn end(&self, base: &Dir) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((name, file)) = state.slot.take() else { return };
        let past = std::mem::take(&mut state.past);
        state.dead.retain(|_, tops| !tops.is_subset(&past));
        // The folder has its time already.
        let before = base.stat_self();
        let left = lines(&state.dead);
        if left.is_empty() {
            let _ = base.remove_file(&name);
        } else {
            let _ = truncate(&file, 0).and_then(|()| write_at_full(&file, left.as_bytes(), 0));
        }
        if let Ok(before) = before {
            let _ = base.pin(b"", Kind::Folder).and_then(|it| it.set_mtime((before.mtime_s, before.mtime_ns)));
        }
    }
}

fn top_of(path: &[u8]) -> &[u8] {
    path.split(|&byte| byte == b'/').next().unwrap_or_default()
}

/// A slot's file, locked. `None`: it is not there, or another's.
fn open(base: &Dir, slot: usize, make: bool) -> io::Result<Option<(Vec<u8>, File)>> {
    let name = format!("{}{slot}.run", super::PREFIX).into_bytes();
    if !make && base.is_there(&name).is_err() {
        return Ok(None);
    }
    let file = base.create_file(&name, false, false)?;
    if !try_lock(&file)? {
        return Ok(None);
    }
    // Its holder may have removed it between opening and locking: then it is nobody's, and another slot does as well.
    let own = stat_file(&file)?;
    let is_there = base.stat(&name).is_ok_and(|there| (there.dev, there.ino) == (own.dev, own.ino));
    Ok(is_there.then_some((name, file)))
}

fn read(file: &File) -> io::Result<Tops> {
    let bytes = stat_file(file)?.bytes.min(RUN_BYTES_MAX);
    let mut text = vec![0; bytes as usize];
    let read = read_at_full(file, &mut text, 0)?;
    let mut tops = Tops::new();
    for line in String::from_utf8_lossy(&text[..read]).lines() {
        let Some((tag, top)) = line.split_once(' ') else { continue };
        let is_tag = tag.len() == 16 && tag.bytes().all(|it| it.is_ascii_hexdigit());
        if let (true, Some(top)) = (is_tag, unhex(top)) {
            tops.entry(tag.to_owned()).or_default().insert(top);
        }
    }
    Ok(tops)
}

fn lines(tops: &Tops) -> String {
    tops.iter().flat_map(|(tag, tops)| tops.iter().map(move |top| line(tag, top))).collect()
}

fn line(tag: &str, top: &[u8]) -> String {
    let hex: String = top.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{tag} {hex}\n")
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if digits.len().is_multiple_of(2) { digits.chunks(2).map(byte).collect() } else { None }
}
