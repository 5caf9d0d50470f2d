//! Numbers of users and groups, and their names.
//!
//! For: owners that mean the same person on both hosts.
//! In and out: at the source: numbers in, names not told yet out; at the destination: names in, this host's numbers out.
//! Invariants: 0 stays 0; a name this host does not know leaves the number as it is; what is remembered is bounded by the number of
//! names that may be told.
//! Absent on purpose: name services other than `/etc/passwd` and `/etc/group`: a static binary has none.

use std::collections::{HashMap, HashSet};

use proto::manifest::{Entry, Xattr};
use proto::wire::control::{ID_NAME_BYTES_MAX, ID_NAMES_MAX, IdName};

/// A user's or (true) a group's number.
type Id = (bool, u32);

/// A POSIX ACL as the kernel hands it out (`linux/posix_acl_xattr.h`): version 2, then 8 bytes for each line.
const ACL_HEAD_BYTES: usize = 4;
const ACL_LINE_BYTES: usize = 8;
/// Tags of lines that name somebody (`linux/posix_acl.h`).
const ACL_USER: u16 = 0x02;
const ACL_GROUP: u16 = 0x08;

/// The source's half: tells each name once.
#[derive(Debug, Default)]
pub struct Told {
    names: HashMap<Id, Box<[u8]>>,
    seen: HashSet<Id>,
}

impl Told {
    /// With the names of this host.
    #[must_use]
    pub fn of_this_host() -> Told {
        let mut names = HashMap::new();
        each(|id, name| {
            names.entry(id).or_insert_with(|| name.into());
        });
        Told { names, seen: HashSet::new() }
    }

    /// Names of this entry's numbers that were not told before.
    pub fn add(&mut self, entry: &Entry, into: &mut Vec<IdName>) {
        let owner = entry.meta.uid.map(|uid| (false, uid));
        let group = entry.meta.gid.map(|gid| (true, gid));
        let mut ids: Vec<Id> = owner.into_iter().chain(group).collect();
        for xattr in acls(&entry.meta.xattrs) {
            each_acl_id(&xattr.value, |id, _| ids.push(id));
        }
        for id in ids.into_iter().filter(|id| id.1 != 0) {
            if self.seen.len() < ID_NAMES_MAX
                && self.seen.insert(id)
                && let Some(name) = self.names.get(&id)
            {
                into.push(IdName { is_group: id.0, id: id.1, name: name.clone() });
            }
        }
    }
}

/// The destination's half: their numbers to ours.
#[derive(Debug, Default)]
pub struct Mapped {
    own: HashMap<(bool, Box<[u8]>), u32>,
    theirs: HashMap<Id, u32>,
    loaded: bool,
}

impl Mapped {
    /// These names were told.
    pub fn learn(&mut self, names: &[IdName]) {
        if !std::mem::replace(&mut self.loaded, true) {
            each(|(is_group, id), name| {
                self.own.entry((is_group, name.into())).or_insert(id);
            });
        }
        for told in names {
            if let Some(&own) = self.own.get(&(told.is_group, told.name.clone())) {
                self.theirs.insert((told.is_group, told.id), own);
            }
        }
    }

    fn own(&self, id: Id) -> u32 {
        if id.1 == 0 { 0 } else { self.theirs.get(&id).copied().unwrap_or(id.1) }
    }

    /// Puts this host's numbers into an entry.
    pub fn localize(&self, entry: &mut Entry) {
        if self.theirs.is_empty() {
            return;
        }
        let meta = &mut entry.meta;
        meta.uid = meta.uid.map(|uid| self.own((false, uid)));
        meta.gid = meta.gid.map(|gid| self.own((true, gid)));
        for xattr in meta.xattrs.iter_mut().filter(|it| is_acl(it)) {
            let mut changed: Vec<(usize, u32)> = Vec::new();
            each_acl_id(&xattr.value, |id, at| changed.push((at, self.own(id))));
            for (at, id) in changed {
                xattr.value[at..at + 4].copy_from_slice(&id.to_le_bytes());
            }
        }
    }
}

fn is_acl(xattr: &Xattr) -> bool {
    xattr.name.starts_with(b"system.posix_acl_")
}

fn acls(xattrs: &[Xattr]) -> impl Iterator<Item = &Xattr> {
    xattrs.iter().filter(|it| is_acl(it))
}

/// The numbers in an ACL and where they stand. A value that is none has no numbers: the kernel will refuse it.
fn each_acl_id(value: &[u8], mut each: impl FnMut(Id, usize)) {
    for (index, line) in
        value.get(ACL_HEAD_BYTES..).unwrap_or_default().as_chunks::<ACL_LINE_BYTES>().0.iter().enumerate()
    {
        let id = u32::from_le_bytes([line[4], line[5], line[6], line[7]]);
        let at = ACL_HEAD_BYTES + index * ACL_LINE_BYTES + 4;
        match u16::from_le_bytes([line[0], line[1]]) {
            ACL_USER => each((false, id), at),
            ACL_GROUP => each((true, id), at),
            _ => {}
        }
    }
}

/// All users and groups of this host's own lists.
fn each(mut each: impl FnMut(Id, &[u8])) {
    for (is_group, path) in [(false, "/etc/passwd"), (true, "/etc/group")] {
        // A host without the list knows nobody by name.
        let text = std::fs::read(path).unwrap_or_default();
        for line in text.split(|&byte| byte == b'\n') {
            let mut fields = line.split(|&byte| byte == b':');
            let (name, id) = (fields.next().unwrap_or_default(), fields.nth(1).unwrap_or_default());
            let id = std::str::from_utf8(id).ok().and_then(|id| id.parse().ok());
            if let Some(id) = id.filter(|_| !name.is_empty() && name.len() <= ID_NAME_BYTES_MAX) {
                each((is_group, id), name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::manifest::{EntryKind, Meta};

    use super::*;

    fn entry(meta: Meta) -> Entry {
        let kind = EntryKind::File { bytes: 0 };
        Entry { id: 0, path: (*b"f").into(), kind, mode: 0, mtime_s: 0, mtime_ns: 0, meta }
    }

    fn acl(user: u32, group: u32) -> Xattr {
        let mut value = 2u32.to_le_bytes().to_vec();
        for (tag, id) in [(1u16, u32::MAX), (ACL_USER, user), (ACL_GROUP, group), (0x10, u32::MAX)] {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&[6, 0]);
            value.extend_from_slice(&id.to_le_bytes());
        }
        Xattr { name: (*b"system.posix_acl_access").into(), value: value.into() }
    }

    #[test]
    fn names_are_told_once_and_map_owners_and_acls_and_root_stays_root() {
        let mut told = Told {
            names: HashMap::from([
                ((false, 7), (*b"ann").into()),
                ((true, 8), (*b"lab").into()),
                ((false, 0), (*b"root").into()),
            ]),
            seen: HashSet::new(),
        };
        let meta = || Meta { uid: Some(7), gid: Some(0), xattrs: Box::new([acl(9, 8)]), ..Meta::default() };
        let mut names = Vec::new();
        told.add(&entry(meta()), &mut names);
        told.add(&entry(meta()), &mut names);
        let name = |is_group, id, name: &[u8]| IdName { is_group, id, name: name.into() };
        assert_eq!(names, [name(false, 7, b"ann"), name(true, 8, b"lab")]);
        let own = HashMap::from([((false, (*b"ann").into()), 1007), ((true, (*b"lab").into()), 1008)]);
        let mut mapped = Mapped { own, theirs: HashMap::new(), loaded: true };
        names.push(name(false, 0, b"ann"));
        mapped.learn(&names);
        let mut here = entry(meta());
        mapped.localize(&mut here);
        assert_eq!(
            here.meta,
            Meta { uid: Some(1007), gid: Some(0), xattrs: Box::new([acl(9, 1008)]), ..Meta::default() }
        );
    }
}
