//! The entries of a folder that a job takes, where it does not take all.
//!
//! For: `--files-from`, at whichever end the scan runs.
//! In and out: names in any order; afterwards, folder by folder, what is picked in it.
//! Invariants: names are relative and climb nowhere; sorted so that what stands below a folder follows it; each is there once; at most
//! `PICK_BYTES_MAX` of them, so memory is bounded whoever sends them.
//! Absent on purpose: patterns (filter.rs), the walk (scan.rs).

use std::ops::Range;

use proto::error::Breach;
use proto::manifest::check_path;
use proto::wire::control::{PICK_BYTES_MAX, PICK_NAME_BYTES};

/// Where a name stands in `text`.
type Place = (u32, u32);

/// The names of `--files-from`, sorted so that what stands below a folder follows it.
#[derive(Debug, Default)]
pub struct IncludeList {
    text: Vec<u8>,
    names: Vec<Place>,
}

/// Why a name was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotIncluded {
    /// It is no name of something below a folder.
    #[error("{}", .0.what())]
    Name(Breach),
    /// There are too many.
    #[error("the names are together longer than {} MiB", PICK_BYTES_MAX >> 20)]
    Full,
}

/// Something picked in a folder.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::tree) struct Picked<'a> {
    /// One path component: the entry's name in that folder.
    pub name: &'a [u8],
    /// What of it is taken.
    pub taken: Taken,
}

/// What of an entry is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::tree) struct Taken {
    /// It is picked itself, not only something below it.
    pub itself: bool,
    /// What is picked below it.
    pub below: Range<usize>,
}

impl IncludeList {
    /// One more name. `.` and doubled slashes in it mean nothing; a name that is nothing else means the folder itself, which goes anyway.
    ///
    /// # Errors
    /// It is absolute, climbs, or is too long; or memory for names is used up.
    pub fn add(&mut self, name: &[u8]) -> Result<(), NotIncluded> {
        if name.first() == Some(&b'/') {
            return Err(NotIncluded::Name(Breach::PathAbsolute));
        }
        let from = self.text.len();
        for part in name.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
            if self.text.len() > from {
                self.text.push(b'/');
            }
            self.text.extend_from_slice(part);
        }
        let path = &self.text[from..];
        let checked = check_path(path).map_err(NotIncluded::Name);
        let full = self.text.len() + (self.names.len() + 1) * PICK_NAME_BYTES > PICK_BYTES_MAX;
        if path.is_empty() || checked.is_err() || full {
            self.text.truncate(from);
            checked?;
            return if full { Err(NotIncluded::Full) } else { Ok(()) };
        }
        let place = |at: usize| u32::try_from(at).expect("bounded above");
        self.names.push((place(from), place(self.text.len() - from)));
        Ok(())
    }

    /// Call it once, after the last name: lookups rely on the order.
    #[must_use]
    pub fn sorted(mut self) -> IncludeList {
        let text = &self.text;
        let at = |place: &Place| &text[place.0 as usize..][..place.1 as usize];
        // A slash before every other byte: then what is below a folder follows it at once.
        let key = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
        self.names.sort_unstable_by(|a, b| at(a).iter().map(key).cmp(at(b).iter().map(key)));
        self.names.dedup_by(|a, b| at(a) == at(b));
        self
    }

    /// What they take of memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.text.len() + self.names.len() * PICK_NAME_BYTES
    }

    /// All of them, in order.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names.iter().map(|place| self.at(place))
    }

    fn at(&self, place: &Place) -> &[u8] {
        &self.text[place.0 as usize..][..place.1 as usize]
    }

    /// All, for the folder they are named from.
    pub(in crate::tree) fn all(&self) -> Taken {
        Taken { itself: true, below: 0..self.names.len() }
    }

    /// Takes the next entry out of a folder's range. `from`: how many bytes of each name lead to the folder, its slash included.
    pub(in crate::tree) fn next(&self, range: &mut Range<usize>, from: usize) -> Option<Picked<'_>> {
        let rest = |place: &Place| &self.at(place)[from..];
        let first = rest(self.names[range.clone()].first()?);
        let end = first.iter().position(|&byte| byte == b'/');
        let name = &first[..end.unwrap_or(first.len())];
        let is_below = |place: &Place| rest(place).get(name.len()) == Some(&b'/') && rest(place).starts_with(name);
        let itself = end.is_none();
        let start = range.start + usize::from(itself);
        let below = self.names[start..range.end].iter().take_while(|place| is_below(place)).count();
        range.start = start + below;
        Some(Picked { name, taken: Taken { itself, below: start..start + below } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picks(names: &[&[u8]]) -> IncludeList {
        let mut picks = IncludeList::default();
        for name in names {
            picks.add(name).expect("a good name");
        }
        picks.sorted()
    }

    #[test]
    fn folders_come_before_what_is_below_them_and_nothing_twice() {
        let it = picks(&[b"b", b"./a//x", b"a-b", b"a/x", b"a/y/z", b"a", b".", b"a.c"]);
        assert_eq!(it.names().collect::<Vec<_>>(), [&b"a"[..], b"a/x", b"a/y/z", b"a-b", b"a.c", b"b"]);
        let picked = |name, itself, below| Some(Picked { name, taken: Taken { itself, below } });
        let mut top = it.all().below;
        assert_eq!(it.next(&mut top, 0), picked(&b"a"[..], true, 1..3));
        let mut below = 1..3;
        assert_eq!(it.next(&mut below, 2), picked(b"x", true, 2..2));
        assert_eq!(it.next(&mut below, 2), picked(b"y", false, 2..3));
        assert_eq!(it.next(&mut below, 2), None);
        assert_eq!(it.next(&mut top, 0), picked(b"a-b", true, 4..4));
        assert_eq!(it.next(&mut top, 0), picked(b"a.c", true, 5..5));
    }

    #[test]
    fn no_name_leads_out_and_their_sum_is_bounded() {
        let mut it = IncludeList::default();
        assert_eq!(it.add(b"/etc/passwd"), Err(NotIncluded::Name(Breach::PathAbsolute)));
        assert_eq!(it.add(b"a/../../b"), Err(NotIncluded::Name(Breach::PathEscapes)));
        assert_eq!(it.add(b"a\0"), Err(NotIncluded::Name(Breach::PathHasNul)));
        assert_eq!(it.add(&[b'x'; 256]), Err(NotIncluded::Name(Breach::PathTooLong)));
        let deep: Vec<u8> = b"d/".repeat(8000);
        while it.add(&deep).is_ok() {}
        assert_eq!(it.add(&deep), Err(NotIncluded::Full));
        assert!(it.bytes() <= PICK_BYTES_MAX);
        assert_eq!(it.sorted().names().count(), 1);
    }
}
