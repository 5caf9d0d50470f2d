//! User's paths → sources and sinks.
//!
//! For: what `SRC... DST` means, the same for a local path and for one below a daemon's root.
//! In and out: paths as bytes in; a `LinuxSource`, or a base folder with the name a single source gets there, out.
//! Invariants: below a root nothing is resolved through a link or out of it; outside, the user's own path is followed as the shell would.
//! Absent on purpose: rights (serve::session), reading and writing.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use engine::linux::Sources;
use engine::linux::choice::Chooser;
use engine::linux::source::{LinuxSource, Root};
use engine::sink::volumes::Gone;
use proto::layout::Layout;
use sys::fs::{Dir, Kind};

use crate::exit::{Exit, Failure};
use crate::job::volumes;

/// Where paths begin.
#[derive(Debug, Clone)]
pub enum Ground {
    /// This user's own file system: relative paths begin here.
    Free(PathBuf),
    /// A daemon's root: everything stays below.
    Root(Dir),
}

impl Ground {
    /// The user's own file system, relative paths as seen by this process.
    #[must_use]
    pub fn here() -> Ground {
        Ground::Free(PathBuf::from("."))
    }

    /// The folder of this path.
    pub(super) fn open(&self, path: &[u8]) -> io::Result<Dir> {
        match self {
            Ground::Free(base) => Dir::open(&absolute(base, path)),
            Ground::Root(root) => {
                let rel = below(path);
                if rel.is_empty() { Ok(root.clone()) } else { root.open_dir(&rel) }
            }
        }
    }

    /// The folders above the one that a path stands in, from the nearest on.
    pub(super) fn above(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let full = match self {
            Ground::Free(base) => {
                let path = absolute(base, path);
                let known = std::fs::canonicalize(std::path::Path::new(std::ffi::OsStr::from_bytes(&path)));
                known.map_or(path, |it| it.into_os_string().into_encoded_bytes())
            }
            Ground::Root(_) => below(path),
        };
        let slashes = full.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
        let mut above: Vec<Vec<u8>> = slashes.map(|(at, _)| full[..at.max(1)].to_vec()).collect();
        if let Ground::Root(_) = self {
            above.push(Vec::new());
        }
        above
    }

    fn make(&self, path: &[u8]) -> io::Result<()> {
        match self {
            Ground::Free(base) => {
                let path = absolute(base, path);
                std::fs::create_dir_all(std::path::Path::new(std::ffi::OsStr::from_bytes(&path)))
            }
            Ground::Root(root) => {
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

/// The sources of a job. `top`: the name a single source is announced under; empty: its own. `joined`: they are the volumes of one set.
pub fn source(
    ground: &Ground,
    paths: &[Box<[u8]>],
    top: &[u8],
    chooser: Arc<Chooser>,
    joined: bool,
) -> Result<Sources, Failure> {
    if joined {
        return volumes::source(ground, paths, top, &chooser);
    }
    let source = some_source(ground, paths, top, chooser, true)?;
    for path in paths {
        volumes::refuse_one_of_chunks(ground, path, "read the source")?;
    }
    Ok(Sources::from(source))
}

/// What stands on one volume; or may stand there, if it need not.
pub(super) fn some_source(
    ground: &Ground,
    paths: &[Box<[u8]>],
    top: &[u8],
    chooser: Arc<Chooser>,
    must_stand: bool,
) -> Result<LinuxSource, Failure> {
    let mut roots: HashMap<Box<[u8]>, Root> = HashMap::new();
    if paths.is_empty() {
        return Err(Exit::Usage.fail("find the sources", "none was named"));
    }
    for path in paths {
        let failed = |error: io::Error| {
            let exit = match error.kind() {
                io::ErrorKind::NotFound => Exit::Vanished,
                // `file/.`, or a path through a file: the user means something else.
                io::ErrorKind::NotADirectory => Exit::Usage,
                _ => Exit::of_io(&error),
            };
            exit.fail(format!("read the source '{}'", show(path)), error)
        };
        let (folder, name) = split(path);
        let parent = ground.open(folder).map_err(failed)?;
        if must_stand && !name.is_empty() {
            parent.stat(name).map_err(failed)?;
        }
        let announced: Box<[u8]> = if top.is_empty() { name.into() } else { top.into() };
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
}

impl Target {
    /// One folder, in which a single source gets this name.
    fn one(base: Dir, top: &[u8], is_absent: bool) -> Target {
        let name = named(&base, top);
        let (volumes, top) = (vec![base], top.into());
        Target { name, volumes, shown: Vec::new(), gone: Vec::new(), top, is_absent, by_chunk: false }
    }
}

/// The destination of a job. An existing folder (or `into_folder`) takes sources under their own names; else the last component is the name.
/// The volumes of a set are existing folders, all of them.
pub fn target(
    ground: &Ground,
    paths: &[Box<[u8]>],
    layout: Option<Layout>,
    into_folder: bool,
    dry: bool,
) -> Result<Target, Failure> {
    match (paths, layout) {
        (paths, Some(layout)) => volumes::target(ground, paths, layout, dry),
        ([path], None) => {
            volumes::refuse_one_of_chunks(ground, path, "write to")?;
            one_target(ground, path, into_folder, dry)
        }
        _ => Err(Exit::Usage.fail("find the destination", "it is one place, or a set of volumes")),
    }
}

fn one_target(ground: &Ground, path: &[u8], into_folder: bool, dry: bool) -> Result<Target, Failure> {
    let failed = |error: io::Error| Exit::of_io(&error).fail(format!("open the destination '{}'", show(path)), error);
    let path_is_folder = match ground.open(path) {
        Ok(base) => return Ok(Target::one(base, b"", false)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.ends_with(b"/") || into_folder,
        Err(error) if error.kind() == io::ErrorKind::NotADirectory && !into_folder => false,
        Err(error) => return Err(failed(error)),
    };
    if path_is_folder && dry {
        // Nothing is there and nothing is to be made: a folder in which no name of ours can stand serves for looking.
        let base = Dir::open(b"/proc/self/fdinfo").map_err(failed)?;
        return Ok(Target::one(base, b"", true));
    }
    if path_is_folder {
        ground.make(path).map_err(failed)?;
        let base = ground.open(path).map_err(failed)?;
        return Ok(Target::one(base, b"", false));
    }
    let (folder, name) = split(path);
    if name.is_empty() {
        return Err(failed(io::ErrorKind::NotFound.into()));
    }
    let base = ground.open(folder).map_err(failed)?;
    if base.stat(name).is_ok_and(|stat| stat.kind == Kind::Link) && matches!(ground, Ground::Root(_)) {
        let cause = "a link stands there, and nothing is written through links below a daemon's root";
        return Err(Exit::Refused.fail(format!("open the destination '{}'", show(path)), cause));
    }
    Ok(Target::one(base, name, false))
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
