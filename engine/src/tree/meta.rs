//! What an entry has besides content and name: read at the source, set at the destination.
//!
//! For: owners, modes, times, attributes and ACLs, in the one order in which the kernel lets all of them stand.
//! In and out: an entry and a hold of what stands there; what could not be kept comes back.
//! Invariants: owner first, then attributes, then mode, then time: each of these undoes or moves what comes after it; nothing outside
//! of what is permitted is ever set; setuid stands only on a file whose owner is the source's.
//! Absent on purpose: who permits what (node), names (sink.rs).

use std::io;

use proto::manifest::{Aspects, Entry, EntryKind, Meta, XATTR_VALUE_BYTES_MAX, XATTRS_BYTES_MAX, Xattr};
use sys::fs::{Dir, Pin, Stat, each_name};

/// Labels that belong to the host's own policy and keys: another host's mean nothing here.
const OF_THE_HOST: [&[u8]; 3] = [b"security.selinux", b"security.evm", b"security.ima"];
/// setuid and setgid.
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
/// A file has holes if it holds so much less than its length: less can be the file system's way of counting.
const HOLE_BYTES_MIN: u64 = 4096;

/// All aspects that are extended attributes.
const ATTRIBUTES: Aspects = Aspects::XATTRS.with(Aspects::ACLS).with(Aspects::SECURITY);

/// What is asked for of an attribute; `None`: it stays where it is.
fn aspect(name: &[u8]) -> Option<Aspects> {
    if OF_THE_HOST.contains(&name) { None } else { Xattr::aspect(name) }
}

/// Reads what is wanted of an entry, which is no second name of a file. `names` is memory to use again.
pub(crate) fn read(dir: &Dir, rel: &[u8], stat: &Stat, flagged: bool, wanted: Aspects, names: &mut Vec<u8>) -> Meta {
    let holds = stat.blocks.saturating_mul(512);
    let mut meta = Meta {
        uid: wanted.has(Aspects::OWNER).then_some(stat.uid),
        gid: wanted.has(Aspects::GROUP).then_some(stat.gid),
        sparse: stat.kind == sys::fs::Kind::File && holds.saturating_add(HOLE_BYTES_MIN) <= stat.bytes,
        ..Meta::default()
    };
    if flagged {
        meta.lost = wanted.and(Aspects::FLAGS);
    }
    let wanted = wanted.and(ATTRIBUTES);
    if wanted.is_empty() {
        return meta;
    }
    match dir.attribute_names(rel, names) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::Unsupported => return meta,
        Err(_) => {
            meta.lost = meta.lost.with(wanted);
            return meta;
        }
    }
    let mut xattrs = Vec::new();
    let mut room = XATTRS_BYTES_MAX;
    for name in each_name(names) {
        let Some(aspect) = aspect(name).filter(|&it| wanted.has(it)) else { continue };
        let value = dir.attribute(rel, name, XATTR_VALUE_BYTES_MAX);
        // Taken away since it was listed: it is not there.
        if value.as_ref().is_err_and(|error| error.raw_os_error() == Some(NO_DATA)) {
            continue;
        }
        match value.ok().and_then(|value| Some((room.checked_sub(6 + name.len() + value.len())?, value))) {
            Some((left, value)) => {
                room = left;
                xattrs.push(Xattr { name: name.into(), value: value.into() });
            }
            None => meta.lost = meta.lost.with(aspect),
        }
    }
    meta.xattrs = xattrs.into();
    meta
}

/// ENODATA: there is no such attribute.
const NO_DATA: i32 = 61;

/// The mode as it crosses the wire.
pub(crate) fn mode(stat: &Stat, wanted: Aspects) -> u32 {
    let strip = stat.kind != sys::fs::Kind::Folder && !wanted.has(Aspects::SETID);
    if strip { stat.mode & 0o7777 & !(SETUID | SETGID) } else { stat.mode & 0o7777 }
}

/// Sets all that an entry carries, as far as permitted; says what of it is not there now. Errors: mode and time.
pub(crate) fn set(pin: &Pin<'_>, entry: &Entry, permitted: Aspects) -> io::Result<Aspects> {
    let is_link = matches!(entry.kind, EntryKind::Link { .. });
    let (mut lost, owner) = set_owner(pin, &entry.meta, permitted)?;
    lost = lost.with(set_attributes(pin, entry, permitted));
    if !is_link {
        let mut mode = entry.mode;
        if !matches!(entry.kind, EntryKind::Folder | EntryKind::FolderEnd) {
            let permitted = permitted.has(Aspects::SETID);
            let strip = if permitted && owner.0 { 0 } else { SETUID } | if permitted && owner.1 { 0 } else { SETGID };
            if mode & strip != 0 {
                lost = lost.with(Aspects::SETID);
            }
            mode &= !strip;
        }
        pin.chmod(mode)?;
    }
    pin.set_mtime((entry.mtime_s, entry.mtime_ns))?;
    Ok(lost)
}

/// Do owner and group stand as at the source?
type Owned = (bool, bool);

fn set_owner(pin: &Pin<'_>, meta: &Meta, permitted: Aspects) -> io::Result<(Aspects, Owned)> {
    if meta.uid.is_none() && meta.gid.is_none() {
        return Ok((Aspects::NONE, (false, false)));
    }
    let stat = pin.stat()?;
    let uid = meta.uid.filter(|&uid| uid != stat.uid);
    let gid = meta.gid.filter(|&gid| gid != stat.gid);
    let mut owned = (meta.uid.is_some() && uid.is_none(), meta.gid.is_some() && gid.is_none());
    let may = (uid.filter(|_| permitted.has(Aspects::OWNER)), gid.filter(|_| permitted.has(Aspects::GROUP)));
    if may != (None, None) && pin.chown(may.0, may.1).is_ok() {
        owned = (owned.0 || may.0.is_some(), owned.1 || may.1.is_some());
    } else if may.0.is_some() && may.1.is_some() && pin.chown(None, may.1).is_ok() {
        // Who may not give a file away may still give it to a group of their own.
        owned.1 = true;
    }
    let mut lost = Aspects::NONE;
    if uid.is_some() && !owned.0 {
        lost = lost.with(Aspects::OWNER);
    }
    if gid.is_some() && !owned.1 {
        lost = lost.with(Aspects::GROUP);
    }
    Ok((lost, owned))
}

fn set_attributes(pin: &Pin<'_>, entry: &Entry, permitted: Aspects) -> Aspects {
    let wanted = &entry.meta.xattrs;
    let mut lost = Aspects::NONE;
    let mut there = Vec::new();
    let may = permitted.and(ATTRIBUTES);
    if !may.is_empty() && pin.attribute_names(&mut there).is_err() {
        there.clear();
    }
    // What stands there and not at the source: inherited from the folder, or of an earlier run.
    for name in each_name(&there) {
        let goes = aspect(name).is_some_and(|it| may.has(it) && !entry.meta.lost.has(it));
        if goes && !wanted.iter().any(|it| *it.name == *name) {
            let _ = pin.remove_attribute(name);
        }
    }
    for xattr in wanted {
        let Some(aspect) = aspect(&xattr.name) else { continue };
        let is_there =
            each_name(&there).any(|name| name == &*xattr.name) && pin.has_attribute(&xattr.name, &xattr.value);
        let stands = is_there || (may.has(aspect) && pin.set_attribute(&xattr.name, &xattr.value).is_ok());
        if !stands {
            lost = lost.with(aspect);
        }
    }
    lost
}

/// Does all of it but the time stand there already? Then what is kept is not touched at all. Only looks, so it needs no hold of the file:
/// two calls where a hold costs six, a million times in a run that finds nothing to do.
pub(crate) fn is_set(dir: &Dir, stat: &Stat, entry: &Entry, permitted: Aspects) -> bool {
    let owned = entry.meta.uid.is_none_or(|uid| uid == stat.uid) && entry.meta.gid.is_none_or(|gid| gid == stat.gid);
    // A link has no mode of its own.
    if !owned || (stat.kind != sys::fs::Kind::Link && stat.mode & 0o7777 != entry.mode) {
        return false;
    }
    let may = permitted.and(ATTRIBUTES);
    let mut there = Vec::new();
    if may.is_empty() || dir.attribute_names(&entry.path, &mut there).is_err() {
        there.clear();
    }
    let count = each_name(&there).filter(|name| aspect(name).is_some_and(|it| may.has(it))).count();
    let value = |name: &[u8]| dir.attribute(&entry.path, name, XATTR_VALUE_BYTES_MAX).ok();
    let wanted = entry.meta.xattrs.iter();
    count == wanted.len() && wanted.clone().all(|it| value(&it.name).is_some_and(|there| *there == *it.value))
}
