//! A listing as it comes: what stands at one path of the other end.
//!
//! For: the client that asked with `List`.
//! In and out: each frame of the answer, in order, in; whether it was the last, or the breach of whoever sent it, out.
//! Invariants: the first entry is what was named, under the empty path; an entry is one that stands there, never a word of a job (the end of a folder,
//! one more name of a file, contents of attributes); numbers come without gaps; without `recursive` no path has two components; the totals are of what
//! came. Nothing is remembered of an entry, so memory does not depend on how many come.
//! Absent on purpose: which kind of frame may come (`order`), what is done with an entry (the client).

use crate::error::Breach;
use crate::manifest::{Entry, EntryKind};
use crate::wire::control::{Frame, ID_NAMES_MAX};

/// What came of a listing so far.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    recursive: bool,
    /// What was named is a folder.
    is_folder: bool,
    entries: u64,
    files: u64,
    bytes: u64,
    faults: u64,
    names: usize,
}

impl Listing {
    /// Nothing came yet. `recursive`: as it was asked for.
    #[must_use]
    pub fn new(recursive: bool) -> Listing {
        Listing { recursive, ..Listing::default() }
    }

    /// A frame came: was it the last one?
    ///
    /// # Errors
    /// What the other end did.
    pub fn on_frame(&mut self, frame: &Frame) -> Result<bool, Breach> {
        match frame {
            Frame::Names(names) => {
                self.names += names.len();
                if self.names > ID_NAMES_MAX { Err(Breach::FieldTooLong) } else { Ok(false) }
            }
            Frame::Entries(entries) => {
                entries.iter().try_for_each(|entry| self.on_entry(entry))?;
                Ok(false)
            }
            Frame::Unseen(places) => {
                self.faults += places.len() as u64;
                Ok(false)
            }
            Frame::ScanEnd { entries, files, bytes, faults } => {
                let came = (self.entries, self.files, self.bytes, self.faults);
                if came == (*entries, *files, *bytes, *faults) { Ok(true) } else { Err(Breach::TotalsMismatch) }
            }
            _ => Err(Breach::WrongOrder),
        }
    }

    fn on_entry(&mut self, entry: &Entry) -> Result<(), Breach> {
        if entry.id != self.entries {
            return Err(Breach::EntryOutOfOrder);
        }
        let is_of_a_job = matches!(entry.kind, EntryKind::FolderEnd | EntryKind::Name { .. });
        if is_of_a_job || !entry.meta.xattrs.is_empty() {
            return Err(Breach::FieldOutOfRange);
        }
        let is_first = self.entries == 0;
        let is_deep = !self.recursive && entry.path.contains(&b'/');
        if is_first != entry.path.is_empty() || is_deep || !(is_first || self.is_folder) {
            return Err(Breach::EntryOutOfOrder);
        }
        self.is_folder |= is_first && entry.kind == EntryKind::Folder;
        self.entries += 1;
        self.files += u64::from(entry.is_file());
        // Sums of lengths that nobody has on a disk may overflow; the other end counts the same way.
        self.bytes = self.bytes.wrapping_add(entry.bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::vec;

    use super::*;
    use crate::manifest::{Meta, Xattr};
    use crate::wire::control::{EntryFault, FaultKind, IdName};

    fn entry(id: u64, path: &[u8], kind: EntryKind) -> Entry {
        Entry { id, path: path.into(), kind, mode: 0o644, mtime_s: 0, mtime_ns: 0, meta: Meta::default() }
    }

    fn file(id: u64, path: &[u8]) -> Entry {
        entry(id, path, EntryKind::File { bytes: 7 })
    }

    fn folder(id: u64, path: &[u8]) -> Entry {
        entry(id, path, EntryKind::Folder)
    }

    fn end(entries: u64, files: u64, bytes: u64, faults: u64) -> Frame {
        Frame::ScanEnd { entries, files, bytes, faults }
    }

    /// What the last of these frames is answered.
    fn heard(recursive: bool, frames: &[Frame]) -> Result<bool, Breach> {
        let mut listing = Listing::new(recursive);
        frames.iter().try_fold(false, |_, frame| listing.on_frame(frame))
    }

    #[test]
    fn a_listing_ends_with_totals_of_what_came() {
        let unseen = EntryFault { entry: u64::MAX, kind: FaultKind::Denied, errno: 13, step: "scan".into() };
        let frames = [
            Frame::Names(vec![IdName { is_group: false, id: 7, name: (*b"ann").into() }]),
            Frame::Entries(vec![folder(0, b""), file(1, b"a"), folder(2, b"b")]),
            Frame::Unseen(vec![(unseen, (*b"c").into())]),
            end(3, 1, 7, 1),
        ];
        assert_eq!(heard(false, &frames), Ok(true));
        for wrong in [end(2, 1, 7, 1), end(3, 0, 7, 1), end(3, 1, 8, 1), end(3, 1, 7, 0)] {
            let frames = [&frames[..3], &[wrong]].concat();
            assert_eq!(heard(false, &frames), Err(Breach::TotalsMismatch));
        }
        assert_eq!(heard(false, &[Frame::Entries(vec![file(0, b"")]), end(1, 1, 7, 0)]), Ok(true), "a file alone");
    }

    #[test]
    fn entries_that_no_listing_has_are_breaches() {
        let below = |entries: &[Entry]| heard(false, &[Frame::Entries([&[folder(0, b"")], entries].concat())]);
        assert_eq!(below(&[file(1, b"a"), file(2, b"b")]), Ok(false));
        assert_eq!(below(&[file(2, b"a")]), Err(Breach::EntryOutOfOrder), "a gap");
        assert_eq!(below(&[file(1, b"")]), Err(Breach::EntryOutOfOrder), "what was named comes once");
        assert_eq!(below(&[file(1, b"a/b")]), Err(Breach::EntryOutOfOrder), "deeper than was asked for");
        let deep = Frame::Entries(vec![folder(0, b""), folder(1, b"a"), file(2, b"a/b")]);
        assert_eq!(heard(true, &[deep]), Ok(false));
        let first = |entry: Entry| heard(false, &[Frame::Entries(vec![entry, file(1, b"a")])]);
        assert_eq!(first(file(0, b"")), Err(Breach::EntryOutOfOrder), "nothing stands below a file");
        assert_eq!(first(folder(0, b"x")), Err(Breach::EntryOutOfOrder), "what was named comes first");
        assert_eq!(below(&[entry(1, b"a", EntryKind::FolderEnd)]), Err(Breach::FieldOutOfRange));
        let name = EntryKind::Name { first: (*b"a").into() };
        assert_eq!(below(&[entry(1, b"b", name)]), Err(Breach::FieldOutOfRange));
        let xattrs: Box<[Xattr]> = vec![Xattr { name: (*b"user.a").into(), value: Box::default() }].into();
        let with = Entry { meta: Meta { xattrs, ..Meta::default() }, ..file(1, b"a") };
        assert_eq!(below(&[with]), Err(Breach::FieldOutOfRange));
        assert_eq!(heard(false, &[Frame::Bye]), Err(Breach::WrongOrder));
    }

    #[test]
    fn names_of_owners_are_no_more_than_of_a_job() {
        let names = |count: usize| {
            let name = |id| IdName { is_group: false, id, name: (*b"n").into() };
            Frame::Names((0..count as u32).map(name).collect())
        };
        assert_eq!(heard(false, &[names(ID_NAMES_MAX)]), Ok(false));
        assert_eq!(heard(false, &[names(ID_NAMES_MAX), names(1)]), Err(Breach::FieldTooLong));
    }
}
