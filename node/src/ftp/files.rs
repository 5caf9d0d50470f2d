//! What a client asks of files, done.
//!
//! For: a session's tasks.
//! In and out: tasks with names beneath the user's root → outcomes, or faults.
//! Invariants: `sys::fs::Dir` follows no link at any component.
//! Absent on purpose: what a user may do, and what names may be (`proto::ftp::session`); files that move (`transfer`).

use std::io;

use engine::tree::sink::open_ended;
use proto::ftp::facts::{self, Facts};
use proto::ftp::session::fault::Fault;
use proto::ftp::session::{Outcome, Task};
use sys::fs::{Dir, Kind, Stat};

/// What an error of the file system is for a client. Numbers: errno(3).
pub fn fault_of(error: &io::Error) -> Fault {
    use io::ErrorKind as K;
    const EBUSY: i32 = 16;
    const EXDEV: i32 = 18;
    const EINVAL: i32 = 22;
    const ELOOP: i32 = 40;
    match error.kind() {
        K::NotFound => Fault::NotFound,
        K::PermissionDenied => Fault::Denied,
        K::ReadOnlyFilesystem => Fault::ReadOnly,
        K::StorageFull | K::QuotaExceeded => Fault::Full,
        K::FileTooLarge => Fault::TooLarge,
        K::IsADirectory => Fault::IsFolder,
        K::NotADirectory => Fault::NotFolder,
        K::AlreadyExists => Fault::Exists,
        K::DirectoryNotEmpty => Fault::NotEmpty,
        K::InvalidFilename => Fault::BadName,
        K::OutOfMemory => Fault::NoMemory,
        _ => match error.raw_os_error() {
            Some(ELOOP | EXDEV) => Fault::Link,
            Some(EBUSY) => Fault::Busy,
            Some(EINVAL) => Fault::NotRegular,
            _ => Fault::Other(error.to_string()),
        },
    }
}

/// What is said of a name.
#[must_use]
pub fn facts_of(stat: &Stat) -> Facts {
    Facts {
        kind: match stat.kind {
            Kind::File => facts::Kind::File,
            Kind::Folder => facts::Kind::Folder,
            Kind::Link => facts::Kind::Link,
            _ => facts::Kind::Special,
        },
        bytes: stat.bytes,
        mtime_s: stat.mtime_s,
        mode: stat.mode,
        links: stat.nlink,
        unique: (stat.dev, stat.ino),
    }
}

/// Does what is asked, beneath this root; all but `Task::Hash` (`digests`) and `Task::Size` (`size`).
///
/// # Errors
/// The file system's.
pub fn work(root: &Dir, task: Task) -> Result<Outcome, Fault> {
    let done = |done: io::Result<()>| done.map(|()| Outcome::Done);
    let outcome = match task {
        Task::Enter(path) => match root.stat(&path) {
            Ok(stat) if stat.kind != Kind::Folder => return Err(Fault::NotFolder),
            Ok(_) => root.open_dir(&path).map(|_| Outcome::Done),
            Err(error) => Err(error),
        },
        Task::Facts(path) => root.stat(&path).map(|stat| Outcome::Facts(facts_of(&stat))),
        Task::Space(path) => {
            root.open_dir(&path).and_then(|folder| folder.space()).map(|space| Outcome::Bytes(space.free_bytes))
        }
        Task::MakeFolder(path) => done(root.make_dir(&path, 0o755)),
        Task::RemoveFolder(path) => done(root.remove_dir(&path)),
        Task::RemoveFile(path) => done(root.remove_file(&path)),
        Task::Rename { from, to } => done(root.rename(&from, &to)),
        Task::Set(path, facts) => {
            done(root.set_meta(&path, facts.mode, facts.mtime_s.map(|seconds| (seconds, 0)), false))
        }
        Task::Hash(..) | Task::Size { .. } => return Err(Fault::Other("that is asked for elsewhere".to_owned())),
    };
    outcome.map_err(|error| fault_of(&error))
}

/// The bytes of a file, or of what stands of an upload that was cut, where there is no file; is it that?
///
/// # Errors
/// The file system's; that it is no file.
pub fn size(root: &Dir, path: &[u8], parts: bool) -> Result<(u64, bool), Fault> {
    match root.stat(path) {
        Ok(stat) if stat.kind == Kind::File => Ok((stat.bytes, false)),
        Ok(_) => Err(Fault::NotRegular),
        Err(error) => match open_ended::standing(root, path) {
            Ok(Some(bytes)) if parts => Ok((bytes, true)),
            _ => Err(fault_of(&error)),
        },
    }
}
