//! Where the paths of a job begin, and what one path means there.
//!
//! For: sources and destinations of one place, and each volume of a set.
//! In and out: paths as bytes in; a `LinuxSource`, or a base folder with the name a single source gets there, out.
//! Invariants: below a root nothing is resolved through a link or out of it; outside, the user's own path is followed as the shell would.
//! Absent on purpose: sets of volumes (`volumes`), rights (`serve::session`), reading and writing.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use engine::tree::io_mode::Chooser;
use engine::tree::source::{LinuxSource, Root};
use engine::tree::volumes::Gone;
use sys::fs::{Dir, Kind};

use text::attempt::Attempt;
use text::exit::{Exit, Failure};

/// Where paths begin.
#[derive(Debug, Clone)]
pub enum PathBase {
    /// This user's own file system: relative paths begin here.
    Free(PathBuf),
    /// A daemon's root: everything stays below.
    Root(Dir),
}

impl PathBase {
    /// The user's own file system, relative paths as seen by this process.
    #[must_use]
    pub fn here() -> PathBase {
        PathBase::Free(PathBuf::from("."))
    }

    /// The folder of this path.
    pub(super) fn open(&self, path: &[u8]) -> io::Result<Dir> {
        match self {
            PathBase::Free(base) => Dir::open(&absolute(base, path)),
            PathBase::Root(root) => {
                let rel = below(path);
                if rel.is_empty() { Ok(root.clone()) } else { root.open_dir(&rel) }
            }
        }
    }

    /// The folders above the one that a path stands in, from the nearest on.
    pub(super) fn above(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let full = self.full(path);
        let slashes = full.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
        let mut above: Vec<Vec<u8>> = slashes.map(|(at, _)| full[..at.max(1)].to_vec()).collect();
        if let PathBase::Root(_) = self {
            above.push(Vec::new());
        }
        above
    }

    /// A path as `above` cuts it.
    pub(super) fn full(&self, path: &[u8]) -> Vec<u8> {
        match self {
            PathBase::Free(base) => {
                let path = absolute(base, path);
                let known = std::fs::canonicalize(std::path::Path::new(std::ffi::OsStr::from_bytes(&path)));
                known.map_or(path, |it| it.into_os_string().into_encoded_bytes())
            }
            PathBase::Root(_) => below(path),
        }
    }

    /// Which part of a path that cannot be opened or made is at fault: where permission is wanting the folder that does not give it, else the
    /// first part that does not open; nothing if that is all of the path.
    fn culprit(&self, path: &[u8], error: &io::Error) -> Option<String> {
        let slashes = path.iter().enumerate().filter(|&(at, byte)| *byte == b'/' && at > 0).map(|(at, _)| at);
        let first = slashes.chain([path.len()]).find(|&end| self.open(&path[..end]).is_err())?;
        let is_denied = matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem);
        if !is_denied {
            return (first < path.len()).then(|| format!(": '{}'", show(&path[..first])));
        }
        let (folder, name) = split(&path[..first]);
        // It is seen and cannot be opened, or cannot be seen.
        let is_seen = !name.is_empty() && self.open(folder).is_ok_and(|folder| folder.stat(name).is_ok());
        let folder = if is_seen { &path[..first] } else { folder };
        Some(match (folder, self) {
            (b"", PathBase::Root(_)) => " in the folder that is served".to_owned(),
            (b"", PathBase::Free(_)) => " in '.'".to_owned(),
            (folder, _) => format!(" in '{}'", show(folder)),
        })
    }

    /// The failure of an attempt at this path, its cause with the part of the path that is at fault.
    fn fail(&self, attempt: Attempt, what: String, path: &[u8], error: &io::Error) -> Failure {
        if let Some(failure) = through_links(self, &what, error) {
            return failure;
        }
        let mut failure = attempt.fail(what, error);
        let is_pattern = path.iter().any(|byte| b"*?[".contains(byte));
        if error.kind() == io::ErrorKind::NotFound && attempt == Attempt::Source && is_pattern {
            failure.cause +=
                "; patterns are for the shell: it expands those that match, here, and hands on others as they are";
            return failure.next(
                "see with `ls` what the pattern matches; of another host name the folder, and choose with --include",
            );
        }
        if error.kind() != io::ErrorKind::CrossesDevices {
            failure.cause += &self.culprit(path, error).unwrap_or_default();
        }
        failure
    }

    fn make(&self, path: &[u8]) -> io::Result<()> {
        match self {
            PathBase::Free(base) => {
                let mut path = path;
                // A folder is made under its name alone.
                while let Some(shorter) = path.strip_suffix(b"/.").or_else(|| path.strip_suffix(b"/")) {
                    path = shorter;
                }
                let path = absolute(base, path);
                std::fs::create_dir_all(std::path::Path::new(std::ffi::OsStr::from_bytes(&path)))
            }
            PathBase::Root(root) => {
                let rel = below(path);
                let mut end = 0;
                while end < rel.len() {
                    end = rel[end..].iter().position(|&byte| byte == b'/').map_or(rel.len(), |slash| end + slash);
                    match root.make_dir(&rel[..end], 0o755) {
                        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                        _ => end += 1,
                    }
                }
                Ok(())
            }
        }
    }
}

use std::os::unix::ffi::OsStrExt;

fn absolute(base: &std::path::Path, path: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        return base.as_os_str().as_bytes().to_vec();
    }
    base.join(std::ffi::OsStr::from_bytes(path)).as_os_str().as_bytes().to_vec()
}

/// A path below a root: leading, trailing and doubled slashes and `.` mean nothing there; `..` is left for sys to refuse.
fn below(path: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    parts.join(&b'/')
}

/// The folder a path stands in and its name there; no name: the path means a folder's content (`dir/.`, `.`, `/`).
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let trimmed = match path.iter().rposition(|&byte| byte != b'/') {
        Some(last) => &path[..=last],
        None => return (path, b""),
    };
    let (parent, name) = match trimmed.iter().rposition(|&byte| byte == b'/') {
        Some(0) => (&trimmed[..1], &trimmed[1..]),
        Some(slash) => (&trimmed[..slash], &trimmed[slash + 1..]),
        None => (&b""[..], trimmed),
    };
    if matches!(name, b"." | b"..") { (path, b"") } else { (parent, name) }
}

pub(super) fn show(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Does this path mean a folder into which sources go, not the name of a copy?
#[must_use]
pub fn means_folder(path: &[u8]) -> bool {
    path.ends_with(b"/") || split(path).1.is_empty()
}

/// The name that a path leads to; `None`: it has none of its own.
#[must_use]
pub fn last_name(path: &[u8]) -> Option<&[u8]> {
    Some(split(path).1).filter(|name| !name.is_empty())
}

/// A folder that every process has and that no entry of a job can stand in.
const NOWHERE: &[u8] = b"/proc/self/fdinfo";

/// What sources are called at the destination.
#[derive(Debug, Clone, Copy)]
pub enum Called<'a> {
    /// Each by its own name.
    Own,
    /// The one source so.
    As(&'a [u8]),
    /// A folder stands where the one source's copy is to be: what is in a folder goes into it, all else by its own name.
    Content,
}

impl Called<'_> {
    /// As both ends agreed, see `Open`.
    #[must_use]
    pub fn of(top: &[u8], into_folder: bool) -> Called<'_> {
        match (top, into_folder) {
            (b"", true) => Called::Own,
            (b"", false) => Called::Content,
            (top, _) => Called::As(top),
        }
    }
}

/// What stands on one volume; or may stand there, if it need not.
pub(super) fn some_source(
    path_base: &PathBase,
    paths: &[Box<[u8]>],
    called: Called<'_>,
    chooser: Arc<Chooser>,
    must_stand: bool,
) -> Result<LinuxSource, Failure> {
    let mut roots: HashMap<Box<[u8]>, Root> = HashMap::new();
    if paths.is_empty() {
        return Err(Exit::Usage.fail("find the sources", "none was named"));
    }
    for path in paths {
        let failed = |error: io::Error| {
            path_base.fail(Attempt::Source, format!("read the source '{}'", show(path)), path, &error)
        };
        let (folder, mut name) = split(path);
        let mut parent = path_base.open(folder).map_err(failed)?;
        if must_stand && !name.is_empty() {
            parent.stat(name).map_err(failed)?;
        }
        let is_folder = |parent: &Dir| !name.is_empty() && parent.stat(name).is_ok_and(|it| it.kind == Kind::Folder);
        if matches!(called, Called::Content) && is_folder(&parent) {
            (parent, name) = (parent.open_dir(name).map_err(failed)?, b"");
        }
        let announced: Box<[u8]> = match called {
            Called::As(top) => top.into(),
            Called::Own | Called::Content => name.into(),
        };
        if roots.insert(announced, Root { parent, name: name.into() }).is_some() {
            let cause = format!("two sources would both become '{}' there", show(name));
            return Err(Exit::Usage
                .fail("find the sources", cause)
                .next("copy them one after another, under other names"));
        }
    }
    if roots.len() > 1 && roots.contains_key(&[][..]) {
        let cause = "a folder's content (`dir/.`) cannot be copied together with other sources";
        return Err(Exit::Usage
            .fail("find the sources", cause)
            .next("name the folder itself, or copy its content alone"));
    }
    Ok(LinuxSource::new(roots, chooser))
}

/// Where a job's entries go.
#[derive(Debug, Clone)]
pub struct Target {
    /// Entries are named below this folder: one, or one for each volume.
    pub volumes: Vec<Dir>,
    /// The same as the user named them.
    pub shown: Vec<String>,
    /// Volumes that failed when they were tried.
    pub gone: Vec<Gone>,
    /// The name a single source gets; empty: its own.
    pub top: Box<[u8]>,
    /// A dry run's destination that is not there: the folder only serves for looking, and has nothing of ours.
    pub is_absent: bool,
    /// The volumes are striped by chunk.
    pub by_chunk: bool,
    /// Names the destination for carried digests, the same in the next run.
    pub name: Vec<u8>,
    /// Where a run before this one made the folder that stands here now: the name it had for carried digests, and the source's name then.
    pub first: Option<(Vec<u8>, Box<[u8]>)>,
}

impl Target {
    /// One folder, in which a single source gets this name.
    fn one(base: Dir, top: &[u8], is_absent: bool) -> Target {
        let name = named(&base, top);
        let (volumes, top) = (vec![base], top.into());
        Target { name, volumes, shown: Vec::new(), gone: Vec::new(), top, is_absent, by_chunk: false, first: None }
    }

    /// A folder that stands where the one source's copy is to be.
    fn content(base: Dir) -> Target {
        let mut target = Target::one(base, b"", false);
        let name = target.name.strip_suffix(b"/").filter(|name| !name.is_empty());
        let last = name.and_then(|name| Some(name[name.iter().rposition(|&byte| byte == b'/')? + 1..].into()));
        target.first = name.map(<[u8]>::to_vec).zip(last);
        target
    }
}

/// One folder as the destination, or the name of the one source's copy. Folders that are missing above either are made.
pub(super) fn one_target(path_base: &PathBase, path: &[u8], into_folder: bool, dry: bool) -> Result<Target, Failure> {
    let failed = |error: io::Error| {
        path_base.fail(Attempt::Destination, format!("open the destination '{}'", show(path)), path, &error)
    };
    let path_is_folder = match path_base.open(path) {
        Ok(base) if into_folder => return Ok(Target::one(base, b"", false)),
        Ok(base) => return Ok(Target::content(base)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => into_folder,
        Err(error) if error.kind() == io::ErrorKind::NotADirectory && !into_folder => false,
        Err(error) => return Err(failed(error)),
    };
    let (folder, name) = if path_is_folder { (path, &b""[..]) } else { split(path) };
    if !path_is_folder && name.is_empty() {
        return Err(failed(io::ErrorKind::NotFound.into()));
    }
    let base = match path_base.open(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && dry => {
            // Nothing is there and nothing is to be made: a folder in which no name of ours can stand serves for looking.
            return Ok(Target::one(Dir::open(NOWHERE).map_err(failed)?, name, true));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            path_base.make(folder).and_then(|()| path_base.open(folder)).map_err(failed)?
        }
        opened => opened.map_err(failed)?,
    };
    if base.stat(name).is_ok_and(|stat| stat.kind == Kind::Link) && matches!(path_base, PathBase::Root(_)) {
        let cause = "a link stands there, and nothing is written through links below a daemon's root";
        return Err(Exit::Refused.fail(format!("open the destination '{}'", show(path)), cause));
    }
    Ok(Target::one(base, name, false))
}

/// What ELOOP means: below a daemon's root any link in a path, elsewhere links that lead in a circle.
pub(super) fn through_links(path_base: &PathBase, what: &str, error: &io::Error) -> Option<Failure> {
    if error.raw_os_error() != Some(rustix::io::Errno::LOOP.raw_os_error()) {
        return None;
    }
    Some(match path_base {
        PathBase::Root(_) => Exit::Refused
            .fail(what, "a link stands in this path, and below a daemon's root none is followed")
            .next("name the place by the path that the link leads to"),
        PathBase::Free(_) => Exit::Usage
            .fail(what, "its links lead in a circle")
            .next("see where they lead (`namei -l` shows each), and mend them or name another path"),
    })
}

/// A place's name, the same in the next run.
pub(super) fn named(base: &Dir, name: &[u8]) -> Vec<u8> {
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(base.path()));
    let mut named = std::fs::canonicalize(path)
        .map_or_else(|_| base.path().to_vec(), |it| it.into_os_string().into_encoded_bytes());
    named.push(b'/');
    named.extend_from_slice(name);
    named
}
