//! Numbers of users and groups, and their names.
//!
//! For: owners that mean the same person on both hosts.
//! In and out: at the source: numbers in, names not told yet out; at the destination: names in, this host's numbers out.
//! Invariants: 0 stays 0; a name this host does not know leaves the number as it is, and is counted; this host's own lists come before any service;
//! what is remembered is bounded by the number of names that may be told, what is asked by `ASKS_MAX` calls.
//! Absent on purpose: asking a name service (whoever starts jobs gives one: a static binary has none of its own).

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use proto::manifest::{Entry, Xattr};
use proto::wire::control::{ID_NAME_BYTES_MAX, ID_NAMES_MAX, IdName, Unnamed};

/// A user's or (true) a group's number.
type Id = (bool, u32);

/// A POSIX ACL as the kernel hands it out (`linux/posix_acl_xattr.h`): version 2, then 8 bytes for each line.
const ACL_HEAD_BYTES: usize = 4;
const ACL_LINE_BYTES: usize = 8;
/// Tags of lines that name somebody (`linux/posix_acl.h`).
const ACL_USER: u16 = 0x02;
const ACL_GROUP: u16 = 0x08;

/// What a name service is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Question {
    /// Of a group, not of a user.
    pub is_group: bool,
    /// A number whose name is wanted, or a name whose number is.
    pub key: Key,
}

/// See `Question`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// A number.
    Number(u32),
    /// A name, as bytes of whoever had it: nothing is known of them.
    Name(Box<[u8]>),
}

/// What it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// This name and this number are one user or group.
    Known(Box<[u8]>, u32),
    /// There is none.
    Unknown,
    /// No answer in time, or no service.
    Silent,
}

/// Who is asked for what stands on none of this host's own lists: one answer for each question. It answers within a second, whatever it has to ask.
pub type NameService = dyn Fn(&[Question]) -> Vec<Answer> + Send + Sync;

static SERVICE: OnceLock<Box<NameService>> = OnceLock::new();

/// From now on this process asks there. Names are the host's, so there is one for all jobs: the first that was named.
pub fn ask_at(service: Box<NameService>) {
    let _ = SERVICE.set(service);
}

fn service() -> Option<&'static NameService> {
    SERVICE.get().map(|it| &**it)
}

/// A peer may make no more work than this: calls of the service in one job, each with many questions.
const ASKS_MAX: u32 = 256;

/// Asks for a job.
#[derive(Default)]
struct Asking {
    service: Option<&'static NameService>,
    calls: u32,
    unnamed: Unnamed,
}

impl std::fmt::Debug for Asking {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Asking").field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl Asking {
    /// Each question with the user or group that it found; those without one are counted.
    fn ask(&mut self, questions: &[Question]) -> Vec<Option<(Box<[u8]>, u32)>> {
        let silent = || vec![Answer::Silent; questions.len()];
        let answers = match self.service {
            None => vec![Answer::Unknown; questions.len()],
            Some(_) if self.calls == ASKS_MAX => silent(),
            Some(service) => {
                self.calls += 1;
                service(questions)
            }
        };
        let found = |answer| match answer {
            Answer::Known(name, id) if !name.is_empty() && name.len() <= ID_NAME_BYTES_MAX => Some((name, id)),
            other => {
                self.unnamed.count = self.unnamed.count.saturating_add(1);
                self.unnamed.is_silent |= other == Answer::Silent;
                None
            }
        };
        answers.into_iter().map(found).collect()
    }
}

/// The source's half: tells each name once.
#[derive(Debug, Default)]
pub struct Told {
    names: HashMap<Id, Box<[u8]>>,
    seen: HashSet<Id>,
    /// On none of this host's lists: asked for together.
    unlisted: Vec<Id>,
    asking: Asking,
}

impl Told {
    /// With the names of this host.
    #[must_use]
    pub fn of_this_host() -> Told {
        let mut names = HashMap::new();
        each(|id, name| {
            names.entry(id).or_insert_with(|| name.into());
        });
        Told { names, asking: Asking { service: service(), ..Asking::default() }, ..Told::default() }
    }

    /// Names of this entry's numbers that were not told before, as far as this host's lists have them; for the others see `ask`.
    pub fn add(&mut self, entry: &Entry, into: &mut Vec<IdName>) {
        let owner = entry.meta.uid.map(|uid| (false, uid));
        let group = entry.meta.gid.map(|gid| (true, gid));
        let mut ids: Vec<Id> = owner.into_iter().chain(group).collect();
        for xattr in acls(&entry.meta.xattrs) {
            each_acl_id(&xattr.value, |id, _| ids.push(id));
        }
        for id in ids.into_iter().filter(|id| id.1 != 0) {
            if self.seen.len() < ID_NAMES_MAX && self.seen.insert(id) {
                match self.names.get(&id) {
                    Some(name) => into.push(IdName { is_group: id.0, id: id.1, name: name.clone() }),
                    None => self.unlisted.push(id),
                }
            }
        }
    }

    /// Names of numbers that were met and stand on no list of this host. Before the entries that have them are announced.
    pub fn ask(&mut self, into: &mut Vec<IdName>) {
        let ids = std::mem::take(&mut self.unlisted);
        if ids.is_empty() {
            return;
        }
        let questions: Vec<Question> =
            ids.iter().map(|&(is_group, id)| Question { is_group, key: Key::Number(id) }).collect();
        for ((is_group, id), found) in ids.into_iter().zip(self.asking.ask(&questions)) {
            if let Some((name, _)) = found.filter(|(_, of)| *of == id) {
                into.push(IdName { is_group, id, name });
            }
        }
    }

    /// Numbers that were met and have no name here.
    #[must_use]
    pub const fn unnamed(&self) -> Unnamed {
        self.asking.unnamed
    }
}

/// The destination's half: their numbers to ours.
#[derive(Debug, Default)]
pub struct Mapped {
    own: HashMap<(bool, Box<[u8]>), u32>,
    theirs: HashMap<Id, u32>,
    loaded: bool,
    asking: Asking,
}

impl Mapped {
    /// These names were told.
    pub fn learn(&mut self, names: &[IdName]) {
        if !std::mem::replace(&mut self.loaded, true) {
            each(|(is_group, id), name| {
                self.own.entry((is_group, name.into())).or_insert(id);
            });
            self.asking.service = service();
        }
        let (mut unlisted, mut questions) = (Vec::new(), Vec::new());
        for told in names {
            match self.own.get(&(told.is_group, told.name.clone())) {
                Some(&own) => _ = self.theirs.insert((told.is_group, told.id), own),
                // 0 is 0 everywhere, whatever it is called.
                None if told.id == 0 => {}
                None => {
                    unlisted.push((told.is_group, told.id));
                    questions.push(Question { is_group: told.is_group, key: Key::Name(told.name.clone()) });
                }
            }
        }
        if questions.is_empty() {
            return;
        }
        for (id, found) in unlisted.into_iter().zip(self.asking.ask(&questions)) {
            // What a name service gives as all ones is no number to chown(2).
            if let Some((_, own)) = found.filter(|(_, own)| *own != u32::MAX) {
                self.theirs.insert(id, own);
            }
        }
    }

    /// Names that were told and that this host does not know.
    #[must_use]
    pub const fn unnamed(&self) -> Unnamed {
        self.asking.unnamed
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
            ..Told::default()
        };
        let meta = || Meta { uid: Some(7), gid: Some(0), xattrs: Box::new([acl(9, 8)]), ..Meta::default() };
        let mut names = Vec::new();
        told.add(&entry(meta()), &mut names);
        told.add(&entry(meta()), &mut names);
        let name = |is_group, id, name: &[u8]| IdName { is_group, id, name: name.into() };
        assert_eq!(names, [name(false, 7, b"ann"), name(true, 8, b"lab")]);
        let own = HashMap::from([((false, (*b"ann").into()), 1007), ((true, (*b"lab").into()), 1008)]);
        let mut mapped = Mapped { own, loaded: true, ..Mapped::default() };
        names.push(name(false, 0, b"ann"));
        mapped.learn(&names);
        let mut here = entry(meta());
        mapped.localize(&mut here);
        assert_eq!(
            here.meta,
            Meta { uid: Some(1007), gid: Some(0), xattrs: Box::new([acl(9, 1008)]), ..Meta::default() }
        );
    }

    /// Knows ann (1007) and 1007's group as `domain users`, not bob; of silent ones it does not speak.
    fn asked(questions: &[Question]) -> Vec<Answer> {
        let answer = |question: &Question| match &question.key {
            Key::Number(7) => Answer::Known((*b"ann").into(), 7),
            Key::Number(8) => Answer::Known((*b"other").into(), 9),
            Key::Name(name) if **name == *b"ann" => Answer::Known((*b"ann").into(), 1007),
            Key::Name(name) if **name == *b"all ones" => Answer::Known(name.clone(), u32::MAX),
            Key::Name(name) if **name == *b"late" => Answer::Silent,
            _ => Answer::Unknown,
        };
        questions.iter().map(answer).collect()
    }

    fn asking() -> Asking {
        Asking { service: Some(&asked), ..Asking::default() }
    }

    #[test]
    fn what_stands_on_no_list_is_asked_for_once_and_what_nobody_knows_is_counted_and_keeps_its_number() {
        let mut told = Told { asking: asking(), ..Told::default() };
        let owned = |uid, gid| entry(Meta { uid: Some(uid), gid: Some(gid), ..Meta::default() });
        let mut names = Vec::new();
        for _ in 0..2 {
            told.add(&owned(7, 0), &mut names);
            told.add(&owned(8, 9), &mut names);
            told.ask(&mut names);
        }
        let name = |id, name: &[u8]| IdName { is_group: false, id, name: name.into() };
        assert_eq!(names, [name(7, b"ann")], "8 was answered with another number's name, 9 has none");
        assert_eq!((told.unnamed(), told.asking.calls), (Unnamed { count: 1, is_silent: false }, 1));
        let mut mapped = Mapped { asking: asking(), loaded: true, ..Mapped::default() };
        mapped.learn(&[name(7, b"ann"), name(8, b"bob"), name(0, b"toor"), name(5, b"all ones")]);
        assert_eq!(mapped.unnamed(), Unnamed { count: 1, is_silent: false });
        mapped.learn(&[name(6, b"late")]);
        assert_eq!(mapped.unnamed(), Unnamed { count: 2, is_silent: true });
        for (theirs, ours) in [(7, 1007), (8, 8), (0, 0), (5, 5), (6, 6)] {
            let mut here = owned(theirs, 0);
            mapped.localize(&mut here);
            assert_eq!(here.meta.uid, Some(ours), "{theirs}");
        }
    }

    #[test]
    fn a_peer_makes_no_more_calls_of_the_name_service_than_a_job_has() {
        let mut mapped = Mapped { asking: asking(), loaded: true, ..Mapped::default() };
        for id in 1..=ASKS_MAX + 10 {
            mapped.learn(&[IdName { is_group: true, id, name: (*b"bob").into() }]);
        }
        assert_eq!(mapped.asking.calls, ASKS_MAX);
        assert_eq!(mapped.unnamed(), Unnamed { count: ASKS_MAX + 10, is_silent: true }, "the last were not asked for");
    }
}
