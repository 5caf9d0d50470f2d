//! A striped file's earlier version: compared where it stands, and carried over chunk by chunk on the volume that has it.
//!
//! For: `sync` to a set that is striped by chunk.
//! In and out: an entry whose name stands with another length or time → that version's chunks by volume; ranges that are the same → pieces
//! of the new version.
//! Invariants: the earlier version is only read; a chunk stays on its volume, so the file system may share its blocks; what changed on any
//! volume since it was first looked at is worth nothing.
//! Absent on purpose: versions with holes, and files that are to have some: what is zeros is told without being read, which comparing
//! would end; comparing versions of the same length and time (a piece's name is made of these).

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use proto::manifest::{Entry, EntryId, EntryKind};
use proto::striped::{Join, Whole};

use crate::platform::{Old, Sign, Volume};
use crate::tree::volumes::Volumes;
use crate::tree::volumes::each::on_each;
use crate::tree::volumes::pieces::ExistingTarget;

impl<S: Volume> Volumes<S> {
    fn stood(&self, id: EntryId) -> io::Result<Arc<ExistingTarget>> {
        self.books().and_then(|books| books.stood.get(&id).cloned()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Are the pieces what they were?
    fn still_stands(&self, stood: &ExistingTarget) -> bool {
        let is_same = |(volume, sign): (&usize, &Sign)| {
            self.volumes[*volume].tree.sign_of_piece(&stood.entry).is_ok_and(|now| now == *sign)
        };
        stood.signs.iter().all(is_same)
    }

    /// See `PreviousVersions::previous_version`.
    pub(super) fn old_pieces(&self, entry: &Entry) -> io::Result<Option<Old>> {
        let stood = match self.stood(entry.id) {
            Ok(stood) => Some(stood).filter(|stood| self.still_stands(stood)),
            Err(_) => self.find_stood(entry)?,
        };
        let sign = |stood: &ExistingTarget| stood.signs.values().next().copied().unwrap_or(Sign([0; 6]));
        Ok(stood.map(|it| Old { bytes: it.entry.bytes(), sign: sign(&it), elsewhere: false }))
    }

    fn find_stood(&self, entry: &Entry) -> io::Result<Option<Arc<ExistingTarget>>> {
        let Some(home) = self.find(&entry.path)?.filter(|_| !entry.meta.sparse) else { return Ok(None) };
        let at_home = self.volumes[home].tree.striped_at(&entry.path);
        let Some(file) = at_home.filter(|&file| file != Whole::of(entry)) else { return Ok(None) };
        let kind = EntryKind::File { bytes: file.bytes };
        let old = Entry { kind, mtime_s: file.mtime_s, mtime_ns: file.mtime_ns, ..entry.clone() };
        let (mut maps, mut signs) = (Vec::new(), BTreeMap::new());
        for index in self.live() {
            let seen = self.ask(index, |tree| match tree.map_of(&old) {
                Ok(map) => Ok(Some((map, tree.sign_of_piece(&old)?))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            })?;
            if let Some((map, sign)) = seen.flatten() {
                maps.push((index as u16, map));
                signs.insert(index, sign);
            }
        }
        let Some(join) = Join::of(file, &maps).ok().filter(|join| join.holes(0, 1).0.is_empty()) else {
            return Ok(None);
        };
        let stood = Arc::new(ExistingTarget { entry: old, join, signs });
        if let Some(mut books) = self.books() {
            books.stood.insert(entry.id, Arc::clone(&stood));
        }
        Ok(Some(stood))
    }

    /// The volume that has this byte of the version that stood; `None`: there is none.
    pub(super) fn volume_of_old_piece(&self, entry: &Entry, offset: u64) -> Option<usize> {
        self.stood(entry.id).ok()?.join.volume_at(offset).map(usize::from)
    }

    /// See `PreviousVersions::read_previous`. What was cut in another way, and is on several volumes, is not to be had as one chunk.
    pub(super) fn read_old_piece(&self, entry: &Entry, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let stood = self.stood(entry.id)?;
        let volume = stood.volume_of(offset, into.len() as u64).ok_or(io::ErrorKind::Unsupported)?;
        self.judge(volume, self.volumes[volume].tree.read_piece(&stood.entry, offset, into))
    }

    /// See `PreviousVersions::carry`.
    pub(super) fn carry_pieces(&self, entry: &Entry, ranges: &[(u64, u64)]) -> io::Result<()> {
        let stood = self.stood(entry.id)?;
        self.trees().for_each(|tree| tree.discard(entry));
        let mut work: BTreeMap<usize, Vec<(u64, u64)>> = BTreeMap::new();
        let step = u64::from(stood.join.chunk_bytes());
        for &(offset, bytes) in ranges {
            let (mut at, end) = (offset, offset + bytes);
            while at < end {
                let next = end.min((at / step + 1) * step);
                let volume = stood.join.volume_at(at).ok_or(io::ErrorKind::UnexpectedEof)?;
                work.entry(volume.into()).or_default().push((at, next - at));
                at = next;
            }
        }
        let volumes: Vec<usize> = work.keys().copied().collect();
        let results = on_each(work, |volume, ranges| {
            self.judge(volume, self.volumes[volume].tree.carry_piece(&stood.entry, entry, &ranges))
        });
        results.into_iter().collect::<io::Result<()>>()?;
        if !self.still_stands(&stood) {
            return Err(io::ErrorKind::StaleNetworkFileHandle.into());
        }
        if let Some(mut books) = self.books() {
            for volume in volumes {
                books.piece(entry.id, volume);
            }
        }
        Ok(())
    }
}
