//! The end of a copy that is this host: where files go, where they come from.
//!
//! For: `mod`.
//! In and out: a request and a session → the base and the first tasks.
//! Invariants: what DST means is what it means for every copy (`longhaul cp --help`); what is removed is what a whole listing did not name.
//! Absent on purpose: bytes.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use engine::tree::is_ours;
use sys::fs::{Dir, Kind};
use text::exit::{Exit, Failure};

use super::address::FtpAddress;
use super::control::{Control, Trouble, words};
use super::get::{Piece, joined};
use super::queue::{FileTask, FolderTask, Task};
use crate::request::JobRequest;
use proto::ftp::client::reply::Reply;

/// Where files go, and what is first to be done.
#[derive(Debug)]
pub struct Plan {
    /// The folder below which all is made.
    pub base: Dir,
    /// This copy made it, and one source goes into it: nothing stands at any name.
    pub is_new: bool,
    /// Folders and files.
    pub tasks: Vec<Task<Piece>>,
}

/// A path of the server, from its root if it tells where the login begins.
#[must_use]
pub fn absolute(home: &[u8], path: &[u8]) -> Vec<u8> {
    if path.starts_with(b"/") { path.to_vec() } else { [home, path].concat() }
}

/// A path without the `/` or `/.` at its end, and whether its content alone is meant.
pub(super) fn trimmed(path: &[u8]) -> (Vec<u8>, bool) {
    let is_content = path.is_empty() || path == b"." || path.ends_with(b"/.");
    let path = path.strip_suffix(b".").filter(|_| is_content).unwrap_or(path);
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(usize::from(path.starts_with(b"/")), |at| at + 1);
    (path[..end].to_vec(), is_content)
}

fn failed(what: impl Into<String>, error: std::io::Error) -> Trouble {
    Trouble::Failure(Exit::of_io(&error).fail(what, error))
}

/// What a download makes where.
///
/// # Errors
/// A source that is not there; a destination that cannot be made.
pub fn destination(request: &JobRequest, control: &mut Control<'_>, sources: &[&FtpAddress]) -> Result<Plan, Trouble> {
    let home = control.home()?;
    let text = request.destinations[0].as_bytes();
    let path = Path::new(OsStr::from_bytes(text));
    let is_folder = text.ends_with(b"/") || matches!(text, b"." | b"..") || text.ends_with(b"/..") || sources.len() > 1;
    let mut made: Vec<(PathBuf, Task<Piece>)> = Vec::new();
    for source in sources {
        let (far, is_content) = trimmed(&source.path);
        let far = absolute(&home, &far);
        let name = far.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec();
        let is_content = is_content || name.is_empty();
        let looked = if is_content || source.path.ends_with(b"/") { None } else { file(control, source, &far)? };
        match looked {
            Some(bytes) if is_folder || path.is_dir() => {
                let file = FileTask { far, near: name, bytes, ..FileTask::default() };
                made.push((path.to_path_buf(), Task::File(file)));
            }
            Some(bytes) => {
                let near = path.file_name().map(|it| it.as_bytes().to_vec()).unwrap_or_default();
                let parent = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
                made.push((parent.to_path_buf(), Task::File(FileTask { far, near, bytes, ..FileTask::default() })));
            }
            None if is_content || !is_folder => {
                made.push((path.to_path_buf(), Task::Folder(FolderTask { far, ..FolderTask::default() })));
            }
            None => {
                made.push((path.to_path_buf(), Task::Folder(FolderTask { far, near: name, ..FolderTask::default() })));
            }
        }
    }
    let base = made[0].0.clone();
    let mut tasks: Vec<Task<Piece>> = made.into_iter().map(|it| it.1).collect();
    let what = format!("make the folder '{}'", base.display());
    if request.dry_run {
        // Nothing is made: what is not there yet is below what is.
        let there = base.ancestors().find(|it| it.is_dir()).unwrap_or(Path::new("."));
        let below = base.strip_prefix(there).unwrap_or(&base).as_os_str().as_bytes();
        for task in &mut tasks {
            match task {
                Task::Folder(folder) => folder.near = joined(below, &folder.near),
                Task::File(file) => file.near = joined(below, &file.near),
                Task::Range(_) => {}
            }
        }
        let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
        let base = Dir::open(there.as_os_str().as_bytes()).map_err(|error| failed(what, error))?;
        return Ok(Plan { base, is_new: false, tasks });
    }
    // One whose parents are made with it counts as one that stood: its files are looked for in vain.
    let is_made = std::fs::create_dir(&base).is_ok();
    std::fs::create_dir_all(&base).map_err(|error| failed(&*what, error))?;
    let base = Dir::open(base.as_os_str().as_bytes()).map_err(|error| failed(&*what, error))?;
    Ok(Plan { base, is_new: is_made && sources.len() == 1, tasks })
}

/// Is a source a file? `Some(None)`: one of a length that nobody tells. `None`: a folder.
fn file(control: &mut Control<'_>, source: &FtpAddress, far: &[u8]) -> Result<Option<Option<u64>>, Trouble> {
    // GridFTP's server tells a size of folders too. Where nothing tells the folder of the login, CWD would move what all other paths begin at.
    let reply = if far.starts_with(b"/") { Some(control.ask("CWD", far)?) } else { None };
    if reply.as_ref().is_some_and(Reply::is_done) {
        return Ok(None);
    }
    if let Some(bytes) = control.size(far)? {
        return Ok(Some(Some(bytes)));
    }
    let reply = match reply {
        Some(reply) => reply,
        None => control.ask("CWD", far)?,
    };
    if reply.is_done() {
        return Ok(None);
    }
    if !control.features.size {
        return Ok(Some(None));
    }
    let cause = format!("the server said: {}", words(&reply));
    Err(Trouble::Failure(Exit::Vanished.fail(format!("find '{source}'"), cause)))
}

/// What of this host goes to a server.
#[derive(Debug)]
pub struct Upload {
    /// Files and folders: `near` is a path of this host.
    pub tasks: Vec<Task<()>>,
    /// Folders at the server that have to be there before.
    pub parents: Vec<Vec<u8>>,
    /// Files among them, and their bytes.
    pub found: (u64, u64),
}

/// What an upload makes where.
///
/// # Errors
/// A source that is not there; the session is lost.
pub fn sources(request: &JobRequest, control: &mut Control<'_>, to: &FtpAddress) -> Result<Upload, Trouble> {
    let home = control.home()?;
    let (far, _) = trimmed(&to.path);
    let far = absolute(&home, &far);
    let is_folder =
        to.path.is_empty() || to.path.ends_with(b"/") || to.path.ends_with(b"/.") || request.sources.len() > 1;
    let is_there = is_folder || control.ask("CWD", &far)?.is_done();
    let mut upload = Upload { tasks: Vec::new(), parents: Vec::new(), found: (0, 0) };
    for source in &request.sources {
        let (near, is_content) = trimmed(source.as_bytes());
        let near = if near.is_empty() { b".".to_vec() } else { near };
        let path = Path::new(OsStr::from_bytes(&near));
        let meta = std::fs::metadata(path).map_err(|error| failed(format!("read '{}'", path.display()), error))?;
        let whole = std::path::absolute(path).unwrap_or_default();
        let name = whole.file_name().map(|it| it.as_bytes().to_vec()).unwrap_or_default();
        if meta.is_dir() {
            let far = if is_folder && !is_content { joined(&far, &name) } else { far.clone() };
            upload.tasks.push(Task::Folder(FolderTask { far, near, mtime_s: None }));
        } else {
            let far = if is_there { joined(&far, &name) } else { far.clone() };
            upload.tasks.push(Task::File(FileTask { far, near, ..FileTask::default() }));
            upload.found = (upload.found.0 + 1, upload.found.1 + meta.len());
        }
    }
    if is_folder && !far.is_empty() && far != b"/" && far != home.strip_suffix(b"/").unwrap_or(&home) {
        upload.parents.push(far);
    }
    Ok(upload)
}

/// Removes what a whole listing did not name. Gives how many.
///
/// # Errors
/// More than allowed; the file system's.
pub fn prune(base: &Dir, seen: &HashSet<Vec<u8>>, most: u64, dry_run: bool) -> Result<u64, Failure> {
    let mut extras = Vec::new();
    let failed = |error: std::io::Error| Exit::of_io(&error).fail("remove what the source does not have", error);
    collect(base, b"", seen, false, &mut extras).map_err(failed)?;
    if extras.len() as u64 > most {
        return Err(Exit::Partial
            .fail(
                "remove what the source does not have",
                format!("{} entries are more than --max-delete {most}", extras.len()),
            )
            .next("look with --dry-run, then raise --max-delete"));
    }
    if !dry_run {
        // What is below a folder comes before it.
        for (path, kind) in &extras {
            let removed = if *kind == Kind::Folder { base.remove_dir(path) } else { base.remove_file(path) };
            removed.map_err(failed)?;
        }
    }
    Ok(extras.len() as u64)
}

fn collect(
    base: &Dir,
    folder: &[u8],
    seen: &HashSet<Vec<u8>>,
    all: bool,
    extras: &mut Vec<(Vec<u8>, Kind)>,
) -> std::io::Result<()> {
    let dir = if folder.is_empty() { base.clone() } else { base.open_dir(folder)? };
    for entry in dir.list()? {
        let name = entry?.name;
        if is_ours(&name) {
            continue;
        }
        let path = joined(folder, &name);
        let kind = base.stat(&path)?.kind;
        let is_extra = all || !seen.contains(&path);
        if kind == Kind::Folder {
            collect(base, &path, seen, is_extra, extras)?;
        }
        if is_extra {
            extras.push((path, kind));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_path_means_is_what_it_means_for_every_copy() {
        for (path, wanted) in [
            (&b"a/b"[..], (&b"a/b"[..], false)),
            (b"a/", (b"a", false)),
            (b"a/.", (b"a", true)),
            (b"", (b"", true)),
            (b"/", (b"/", false)),
            (b"/.", (b"/", true)),
            (b".", (b"", true)),
            (b"a.", (b"a.", false)),
        ] {
            let (trimmed, is_content) = trimmed(path);
            assert_eq!((&trimmed[..], is_content), wanted, "{}", path.escape_ascii());
        }
        assert_eq!(absolute(b"/home/ada/", b"x"), b"/home/ada/x");
        assert_eq!(absolute(b"/home/ada/", b"/x"), b"/x");
    }

    #[test]
    fn what_was_not_named_is_removed_and_no_more_than_is_allowed() {
        let path = std::env::temp_dir().join(format!("longhaul-ftp-prune-{}", std::process::id()));
        std::fs::create_dir_all(path.join("d/e")).unwrap();
        for name in ["a", "d/b", "d/e/c"] {
            std::fs::write(path.join(name), name).unwrap();
        }
        let base = Dir::open(path.as_os_str().as_bytes()).unwrap();
        let seen: HashSet<Vec<u8>> = [b"a".to_vec(), b"d".to_vec()].into();
        assert_eq!(prune(&base, &seen, 2, false).unwrap_err().exit, Exit::Partial);
        assert_eq!(prune(&base, &seen, 3, true).unwrap(), 3);
        assert!(path.join("d/e/c").exists());
        assert_eq!(prune(&base, &seen, 3, false).unwrap(), 3);
        assert!(path.join("a").exists() && path.join("d").exists() && !path.join("d/b").exists());
        std::fs::remove_dir_all(path).unwrap();
    }
}
