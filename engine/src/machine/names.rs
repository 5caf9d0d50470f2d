//! Files with several names, as they arrive.
//!
//! For: making further names once the first one stands, and not before.
//! In and out: entries as they are announced and as they are resolved; names that can be made now, or never.
//! Invariants: a further name is made only of something this job brought or kept; bounded as the sender's table is, and in step with it,
//! so a sender that announces more breaks the protocol.
//! Absent on purpose: making names (the sink).

use std::collections::HashMap;
use std::sync::Arc;

use proto::WINDOW;
use proto::error::Breach;
use proto::manifest::{Entry, EntryKind, LINK_GROUPS_MAX, LINK_NAME_BYTES_MAX};

/// What has become of a first name.
#[derive(Debug)]
enum First {
    /// On its way; these wait for it.
    Coming(Vec<Arc<Entry>>),
    /// It stands.
    There,
    /// It failed.
    Failed,
}

/// Hard links that wait for the first name of their file.
#[derive(Debug, Default)]
pub struct Names {
    firsts: HashMap<Box<[u8]>, (First, u32)>,
    name_bytes: usize,
}

/// What to do with a further name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Further {
    /// Its first name stands: make it.
    Make,
    /// Its first name is on its way: it is handed back by `resolved`.
    Wait,
    /// Its first name failed, and so does it.
    Fail,
}

impl Names {
    /// A first name of several is announced.
    ///
    /// # Errors
    /// `WindowExceeded` beyond the limits, `EntryOutOfOrder` for a path that was announced so before.
    pub fn announced(&mut self, entry: &Entry) -> Result<(), Breach> {
        if entry.meta.names == 0 {
            return Ok(());
        }
        self.name_bytes += entry.path.len();
        // The sender forgets a first name once all of its names are announced; here they may still wait, no more than the window has.
        if self.firsts.len() >= LINK_GROUPS_MAX + WINDOW || self.name_bytes > LINK_NAME_BYTES_MAX {
            return Err(Breach::WindowExceeded);
        }
        let first = (First::Coming(Vec::new()), entry.meta.names - 1);
        if self.firsts.insert(entry.path.clone(), first).is_some() { Err(Breach::EntryOutOfOrder) } else { Ok(()) }
    }

    /// A further name is announced.
    ///
    /// # Errors
    /// `EntryUnknown` for a first name that was never announced, or of which no more names can come.
    pub fn further(&mut self, entry: &Arc<Entry>) -> Result<Further, Breach> {
        let EntryKind::Name { first } = &entry.kind else { return Ok(Further::Make) };
        let (state, left) = self.firsts.get_mut(first).ok_or(Breach::EntryUnknown)?;
        *left = left.checked_sub(1).ok_or(Breach::EntryUnknown)?;
        if *left == 0 {
            // The sender forgets it here, too, and has room for another.
            self.name_bytes -= first.len();
        }
        let further = match state {
            First::Coming(waiting) => {
                waiting.push(entry.clone());
                Further::Wait
            }
            First::There => Further::Make,
            First::Failed => Further::Fail,
        };
        if *left == 0 && further != Further::Wait {
            self.firsts.remove(first);
        }
        Ok(further)
    }

    /// An entry is resolved: `stands`, or failed. Who waited for it comes back.
    pub fn resolved(&mut self, entry: &Entry, stands: bool) -> Vec<Arc<Entry>> {
        if entry.meta.names == 0 {
            return Vec::new();
        }
        let Some((state, left)) = self.firsts.get_mut(&entry.path) else { return Vec::new() };
        let after = if stands { First::There } else { First::Failed };
        let First::Coming(waiting) = std::mem::replace(state, after) else { return Vec::new() };
        if *left == 0 {
            self.firsts.remove(&entry.path);
        }
        waiting
    }
}

#[cfg(test)]
mod tests {
    use proto::manifest::Meta;

    use super::*;

    fn entry(path: &str, kind: EntryKind, names: u32) -> Arc<Entry> {
        let meta = Meta { names, ..Meta::default() };
        Arc::new(Entry { id: 0, path: path.as_bytes().into(), kind, mode: 0, mtime_s: 0, mtime_ns: 0, meta })
    }

    fn further(path: &str, first: &str) -> Arc<Entry> {
        entry(path, EntryKind::Name { first: first.as_bytes().into() }, 0)
    }

    #[test]
    fn names_wait_for_the_first_and_no_more_come_than_were_announced() {
        let mut names = Names::default();
        let first = entry("a", EntryKind::File { bytes: 1 }, 4);
        names.announced(&first).unwrap();
        assert_eq!(names.further(&further("b", "a")), Ok(Further::Wait));
        assert_eq!(names.resolved(&first, true).len(), 1);
        assert_eq!(names.further(&further("c", "a")), Ok(Further::Make));
        assert_eq!(names.further(&further("d", "a")), Ok(Further::Make));
        assert_eq!(names.further(&further("e", "a")), Err(Breach::EntryUnknown));
        assert_eq!(names.further(&further("f", "never")), Err(Breach::EntryUnknown));
        let lost = entry("x", EntryKind::File { bytes: 1 }, 2);
        names.announced(&lost).unwrap();
        assert_eq!(names.announced(&lost), Err(Breach::EntryOutOfOrder));
        assert!(names.resolved(&lost, false).is_empty());
        assert_eq!(names.further(&further("y", "x")), Ok(Further::Fail));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut names = Names::default();
        let path = "p".repeat(16_000);
        let told =
            (0..).map_while(|at| names.announced(&entry(&format!("{path}{at}"), EntryKind::Folder, 2)).ok()).count();
        assert!(told * 16_000 <= LINK_NAME_BYTES_MAX, "{told}");
        let mut many = Names::default();
        let told = (0..).map_while(|at| many.announced(&entry(&format!("{at}"), EntryKind::Folder, 2)).ok()).count();
        assert_eq!(told, LINK_GROUPS_MAX + WINDOW);
    }
}
