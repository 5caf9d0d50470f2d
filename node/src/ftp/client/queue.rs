//! What is to be done, and what was done: shared by the connections of a copy.
//!
//! For: `get` and `put`.
//! In and out: folders, files and ranges of files in; the next of them out; counts.
//! Invariants: a connection that waits is woken when there is work or no more will come; the queue has the entries of folders that are open, deepest
//! first, so its length is that of the listings on one path.
//! Absent on purpose: how any of it is done.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use engine::tree::sink::open_ended::Whole;
use proto::wire::control::{EntryFault, FaultKind};
use text::exit::Failure;

use crate::report::{Faults, PathFault};

/// A file.
#[derive(Debug, Clone, Default)]
pub struct FileTask {
    /// At the server.
    pub far: Vec<u8>,
    /// Here, below the base.
    pub near: Vec<u8>,
    /// Its length, if somebody knows it.
    pub bytes: Option<u64>,
    /// Its time, if somebody knows it to the second.
    pub mtime_s: Option<i64>,
    /// Its permission bits.
    pub mode: Option<u32>,
    /// It may be a link to anything.
    pub is_link: bool,
    /// Its folder here was made by this copy: nothing stands at its name.
    pub is_new: bool,
    /// Attempts that came to nothing because a connection was lost.
    pub tries: u8,
}

/// A folder.
#[derive(Debug, Clone, Default)]
pub struct FolderTask {
    /// At the server.
    pub far: Vec<u8>,
    /// Here, below the base; empty: the base.
    pub near: Vec<u8>,
    /// Its time.
    pub mtime_s: Option<i64>,
}

/// Something to do. `R`: a range of a file.
#[derive(Debug)]
pub enum Task<R> {
    /// A folder.
    Folder(FolderTask),
    /// A file.
    File(FileTask),
    /// A range.
    Range(R),
}

#[derive(Debug)]
struct Waiting<R> {
    folders: Vec<FolderTask>,
    files: VecDeque<FileTask>,
    ranges: VecDeque<R>,
    open: usize,
    ended: Option<Failure>,
    workers: usize,
}

/// The queue of a copy.
#[derive(Debug)]
pub struct Queue<R> {
    waiting: Mutex<Waiting<R>>,
    more: Condvar,
    /// What was done.
    pub tally: Mutex<Tally>,
}

/// Counts.
#[derive(Debug, Default)]
pub struct Tally {
    /// Files moved.
    pub files: u64,
    /// Their bytes that came now.
    pub bytes: u64,
    /// Bytes that an earlier run had brought.
    pub resumed: u64,
    /// Folders made.
    pub folders: u64,
    /// Files left alone.
    pub kept_files: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// Files and bytes found.
    pub found: (u64, u64),
    /// What failed.
    pub faults: Faults,
    /// Faults that nobody was told of.
    pub untold: Vec<PathFault>,
    /// Files whose digest the server told, and it was ours.
    pub verified: u64,
    /// Sentences that everybody should read.
    pub notes: Vec<String>,
    /// Folders whose time is to be set when all is done.
    pub times: Vec<(Vec<u8>, i64)>,
    /// Removed at the destination.
    pub removed: u64,
    /// What the server has and this host has not, and whether it is a folder.
    pub extras: Vec<(Vec<u8>, bool)>,
    /// Of the last file that came whole.
    pub last: Option<Whole>,
}

impl Tally {
    /// An entry failed.
    pub fn fault(&mut self, path: &[u8], kind: FaultKind, step: impl Into<String>, is_peers: bool) {
        let mut step: String = step.into();
        let end = (0..=step.len().min(200)).rev().find(|&at| step.is_char_boundary(at)).unwrap_or(0);
        step.truncate(end);
        let fault = PathFault {
            path: path.to_vec(),
            fault: EntryFault { entry: Default::default(), kind, errno: 0, step },
            is_peers,
        };
        self.faults.add(fault.clone());
        self.untold.push(fault);
    }

    /// A sentence, once.
    pub fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|it| it == text) {
            self.notes.push(text.to_owned());
        }
    }
}

impl<R> Queue<R> {
    /// Nothing to do yet, for so many connections.
    #[must_use]
    pub fn new(workers: usize) -> Queue<R> {
        let waiting = Waiting {
            folders: Vec::new(),
            files: VecDeque::new(),
            ranges: VecDeque::new(),
            open: 0,
            ended: None,
            workers,
        };
        Queue { waiting: Mutex::new(waiting), more: Condvar::new(), tally: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<R>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts.
    pub fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// More to do.
    pub fn add(&self, tasks: impl IntoIterator<Item = Task<R>>) {
        let mut waiting = self.lock();
        for task in tasks {
            match task {
                Task::Folder(folder) => waiting.folders.push(folder),
                Task::File(file) => waiting.files.push_back(file),
                Task::Range(range) => waiting.ranges.push_back(range),
            }
        }
        self.more.notify_all();
    }

    /// The next thing to do, once there is one. `None`: there will be no more. Each is to be followed by `done`.
    #[must_use]
    pub fn take(&self) -> Option<Task<R>> {
        let mut waiting = self.lock();
        loop {
            if waiting.ended.is_some() {
                return None;
            }
            let next = if let Some(range) = waiting.ranges.pop_front() {
                Some(Task::Range(range))
            } else if let Some(file) = waiting.files.pop_front() {
                Some(Task::File(file))
            } else {
                waiting.folders.pop().map(Task::Folder)
            };
            if next.is_some() {
                waiting.open += 1;
                return next;
            }
            if waiting.open == 0 {
                self.more.notify_all();
                return None;
            }
            waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until there is work for one more connection, the `nth` from 0. False: there will be none.
    #[must_use]
    pub fn wait(&self, nth: usize) -> bool {
        let mut waiting = self.lock();
        loop {
            if waiting.ended.is_some() {
                return false;
            }
            // A login costs as much as some small files; the first connection is there for all that is left.
            let is_enough = waiting.files.len() >= (4 * nth).max(1);
            if is_enough || waiting.ranges.len() + waiting.folders.len() >= nth.max(1) {
                return true;
            }
            let is_empty = waiting.files.is_empty() && waiting.ranges.is_empty() && waiting.folders.is_empty();
            if waiting.open == 0 && is_empty {
                return false;
            }
            waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// One more file, if there are more than each connection's share.
    #[must_use]
    pub fn take_ahead(&self) -> Option<FileTask> {
        let mut waiting = self.lock();
        if waiting.ended.is_some() || waiting.files.len() < waiting.workers || !waiting.ranges.is_empty() {
            return None;
        }
        let file = waiting.files.pop_front();
        waiting.open += usize::from(file.is_some());
        file
    }

    /// So many that were taken are done, or were given back.
    pub fn done(&self, count: usize) {
        let mut waiting = self.lock();
        waiting.open -= count;
        if waiting.open == 0 {
            self.more.notify_all();
        }
    }

    /// Gives back what was taken.
    pub fn give_back(&self, task: Task<R>) {
        self.add([task]);
        self.done(1);
    }

    /// The whole copy ends with this, if nothing else ended it.
    pub fn end(&self, failure: Failure) {
        self.lock().ended.get_or_insert(failure);
        self.more.notify_all();
    }

    /// A connection is there no more. False: it was the last, and there is work left.
    #[must_use]
    pub fn leave(&self) -> bool {
        let mut waiting = self.lock();
        waiting.workers -= 1;
        let is_left = !(waiting.files.is_empty() && waiting.folders.is_empty() && waiting.ranges.is_empty());
        waiting.workers > 0 || !is_left || waiting.ended.is_some()
    }

    /// Connections that are there.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.lock().workers
    }

    /// What ended the copy.
    #[must_use]
    pub fn ended(&self) -> Option<Failure> {
        self.lock().ended.clone()
    }

    /// Is there nothing to do, and nobody at it?
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let waiting = self.lock();
        waiting.ended.is_some()
            || waiting.workers == 0
            || (waiting.open == 0
                && waiting.files.is_empty()
                && waiting.folders.is_empty()
                && waiting.ranges.is_empty())
    }
}
