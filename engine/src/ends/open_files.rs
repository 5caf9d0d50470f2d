//! Files that an end keeps open, for chunks that follow one another.
//!
//! For: sources and sinks of files.
//! In and out: an entry and a volume in; its open file out.
//! Invariants: a bounded number per job and worker: beyond it the one that was opened first is closed.
//! Absent on purpose: how a file is opened (the trees).

use std::collections::VecDeque;
use std::io;

use proto::manifest::EntryId;

/// Files kept open per job and worker.
const OPEN_MAX: usize = 16;

/// Open files by entry and volume: a file that is striped by chunk has one on each volume.
#[derive(Debug)]
pub(super) struct OpenFiles<F> {
    files: VecDeque<(EntryId, usize, F)>,
}

impl<F: Clone> OpenFiles<F> {
    pub(super) fn new() -> Self {
        OpenFiles { files: VecDeque::with_capacity(OPEN_MAX) }
    }

    /// The file, open still or opened now. `striped_over`: so many volumes have a piece of it; as many stay open as two such files have.
    pub(super) fn find_or_open(
        &mut self,
        id: EntryId,
        volume: usize,
        striped_over: Option<usize>,
        open: impl FnOnce() -> io::Result<F>,
    ) -> io::Result<F> {
        if let Some((.., file)) = self.files.iter().find(|(of, on, _)| (*of, *on) == (id, volume)) {
            return Ok(file.clone());
        }
        let file = open()?;
        if self.files.len() >= striped_over.map_or(OPEN_MAX, |volumes| OPEN_MAX.max(2 * volumes)) {
            self.files.pop_front();
        }
        self.files.push_back((id, volume, file.clone()));
        Ok(file)
    }

    /// These entries are over.
    pub(super) fn close(&mut self, entries: &[EntryId]) {
        self.files.retain(|(id, ..)| !entries.contains(id));
    }
}
