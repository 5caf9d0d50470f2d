//! Names that stay beneath their root.
//!
//! What it is for: the one place where a relative name of several components becomes a descriptor.
//! In: a folder and a name. Out: a descriptor, or EXDEV for a name that leads out, ELOOP for a link in the way.
//! Invariants: `openat2` with RESOLVE_BENEATH, NO_SYMLINKS and NO_MAGICLINKS where the kernel has it (5.6); elsewhere
//! component by component, each opened with O_NOFOLLOW from the descriptor of the one before, which gives the same.
//! Absent on purpose: `..`, which is refused before the kernel sees it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// Set once the kernel (or a container's filter) has refused `openat2` itself.
static NO_OPENAT2: AtomicBool = AtomicBool::new(false);

/// `openat2` answers EAGAIN when a rename ran at the same time; it rarely takes a second try.
const TRIES: usize = 32;

/// A name cut before its last component.
pub(super) struct Split<'a> {
    pub(super) parent: &'a [u8],
    pub(super) name: &'a [u8],
}

/// Cuts a name, and refuses one that is not plain.
pub(super) fn split(rel: &[u8]) -> io::Result<Split<'_>> {
    check(rel)?;
    Ok(match rel.iter().rposition(|byte| *byte == b'/') {
        Some(at) => Split { parent: &rel[..at], name: &rel[at + 1..] },
        None => Split { parent: b"", name: rel },
    })
}

/// A plain name has components that are neither empty nor `.` nor `..`.
fn check(rel: &[u8]) -> io::Result<()> {
    for component in rel.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
            b".." => return Err(io::Error::from_raw_os_error(libc::EXDEV)),
            _ => {}
        }
    }
    Ok(())
}

/// The kernel takes no longer name in one call than PATH_MAX with its zero (`linux/limits.h`).
const STEP_BYTES_MAX: usize = 4095;

/// Opens what `rel` names, beneath `root`; the empty name is the root itself. A name longer than one call takes goes in steps.
pub(super) fn open(root: BorrowedFd<'_>, rel: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    if rel.is_empty() {
        return Ok(openat(root, c".", flags, Mode::empty())?);
    }
    check(rel)?;
    let mut folder: Option<OwnedFd> = None;
    let mut rest = rel;
    while rest.len() > STEP_BYTES_MAX {
        let too_long = || io::Error::from_raw_os_error(libc::ENAMETOOLONG);
        let slash = rest[..STEP_BYTES_MAX].iter().rposition(|&byte| byte == b'/').ok_or_else(too_long)?;
        let at = folder.as_ref().map_or(root, AsFd::as_fd);
        folder = Some(open_step(at, &rest[..slash], OFlags::PATH | OFlags::DIRECTORY)?);
        rest = &rest[slash + 1..];
    }
    open_step(folder.as_ref().map_or(root, AsFd::as_fd), rest, flags)
}

fn open_step(root: BorrowedFd<'_>, rel: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if !NO_OPENAT2.load(Ordering::Relaxed) {
        match open_whole(root, rel, flags) {
            Err(Errno::NOSYS) => NO_OPENAT2.store(true, Ordering::Relaxed),
            // A container's filter, or the answer for this name: walking tells.
            Err(Errno::PERM) => {}
            other => return Ok(other?),
        }
    }
    Ok(walk(root, rel, flags)?)
}

/// Opens a folder for use with the *at calls and `fsync`; one that may be entered but not listed is good enough.
pub(super) fn open_folder(root: BorrowedFd<'_>, rel: &[u8]) -> io::Result<OwnedFd> {
    match open(root, rel, OFlags::RDONLY | OFlags::DIRECTORY) {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => open(root, rel, OFlags::PATH | OFlags::DIRECTORY),
        other => other,
    }
}

fn open_whole(root: BorrowedFd<'_>, rel: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // With O_NOFOLLOW a link at the end would be "no folder" (ENOTDIR) instead of what it is (ELOOP).
    let flags = flags.difference(OFlags::NOFOLLOW);
    let mut tries = 0;
    loop {
        match openat2(root, rel, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) if tries < TRIES => tries += 1,
            other => return other,
        }
    }
}

/// The same without `openat2`. O_PATH|O_NOFOLLOW|O_DIRECTORY answers ENOTDIR for a link; ELOOP says what it is.
fn walk(root: BorrowedFd<'_>, rel: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let mut folder: Option<OwnedFd> = None;
    let mut components = rel.split(|byte| *byte == b'/').peekable();
    while let Some(name) = components.next() {
        let at = folder.as_ref().map_or(root, AsFd::as_fd);
        let last = components.peek().is_none();
        let step = if last { flags } else { OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC };
        let fd = openat(at, name, step, Mode::empty()).map_err(|error| if_link(at, name, error))?;
        if last {
            return Ok(fd);
        }
        folder = Some(fd);
    }
    Err(Errno::INVAL)
}

fn if_link(at: BorrowedFd<'_>, name: &[u8], error: Errno) -> Errno {
    let is_link = || {
        rustix::fs::statat(at, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink())
    };
    if error == Errno::NOTDIR && is_link() { Errno::LOOP } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walking_refuses_what_openat2_refuses() {
        let root = std::env::temp_dir().join(format!("longhaul-walk-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(root.join("a/b")).expect("folders");
        std::fs::write(root.join("a/b/file"), b"x").expect("file");
        std::os::unix::fs::symlink("/etc", root.join("a/out")).expect("link");
        let dir = std::fs::File::open(&root).expect("root");
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for name in ["a/b/file", "a/b", "a", "a/out", "a/out/passwd", "a/none", "a/b/file/x"] {
            let whole = open_whole(dir.as_fd(), name.as_bytes(), flags).map(|_| ());
            let walked = walk(dir.as_fd(), name.as_bytes(), flags).map(|_| ());
            assert_eq!(whole, walked, "{name}");
        }
        for name in ["..", "a/../..", "../x", "a/.."] {
            assert_eq!(
                open(dir.as_fd(), name.as_bytes(), flags).err().and_then(|e| e.raw_os_error()),
                Some(libc::EXDEV)
            );
        }
        for name in ["/etc", "a//b", "a/", "./a"] {
            assert_eq!(
                open(dir.as_fd(), name.as_bytes(), flags).err().and_then(|e| e.raw_os_error()),
                Some(libc::EINVAL)
            );
        }
        std::fs::remove_dir_all(&root).expect("clean");
    }
}
