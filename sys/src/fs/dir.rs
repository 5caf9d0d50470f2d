//! A root that the user named, and the names beneath it.
//!
//! For: everything a job does with names. In: relative names in bytes. Out: open files, facts, changes.
//! Invariants: every call resolves its name beneath the root (`beneath.rs`) and follows no link.
//! Absent on purpose: an entry's own metadata (`meta.rs`), and what is done to a file once it is open (`file.rs`).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags};

use super::beneath::{self, Split, split};
use super::file;
use super::stat::{Kind, Space, Stat, times};

/// Folders whose descriptors a `Dir` keeps: scanner, workers and committer each sit in one or two at a time.
const PARENTS_KEPT: usize = 8;

/// A folder and everything beneath it. Clones are the same folder.
#[derive(Debug, Clone)]
pub struct Dir(Arc<Root>);

#[derive(Debug)]
struct Root {
    fd: OwnedFd,
    path: Vec<u8>,
    /// Folders used last, the latest at the end: thousands of files of one folder resolve it once. A folder that is moved
    /// away meanwhile stays the folder it was, which is as safe as if the name had been resolved a moment earlier.
    parents: Mutex<Vec<(Vec<u8>, Arc<OwnedFd>)>>,
}

impl Dir {
    /// Opens the folder a user named; follows links. Errors: ENOENT, ENOTDIR, EACCES.
    pub fn open(path: &[u8]) -> io::Result<Dir> {
        let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Dir::from_fd(fd, path.to_vec()))
    }

    fn from_fd(fd: OwnedFd, path: Vec<u8>) -> Dir {
        Dir(Arc::new(Root { fd, path, parents: Mutex::new(Vec::with_capacity(PARENTS_KEPT + 1)) }))
    }

    /// The path it was opened by; for messages.
    pub fn path(&self) -> &[u8] {
        &self.0.path
    }

    /// A folder beneath this one; the empty name is this folder itself. Errors: ENOENT, ENOTDIR, EACCES, ELOOP (a link in
    /// the way), EXDEV (the name leads out).
    pub fn open_dir(&self, rel: &[u8]) -> io::Result<Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = beneath::open(self.0.fd.as_fd(), rel, flags)?;
        let mut path = self.0.path.clone();
        if !rel.is_empty() {
            path.push(b'/');
            path.extend_from_slice(rel);
        }
        Ok(Dir::from_fd(fd, path))
    }

    /// Opens a regular file for reading; `direct` bypasses the page cache (offsets, sizes and memory aligned). Leaves
    /// the time of access alone where permitted. Errors: as `open_dir`, and EINVAL for what is no regular file.
    pub fn open_file(&self, rel: &[u8], direct: bool) -> io::Result<File> {
        let (file, flags, _) = self.open_to_read(rel, direct)?;
        // io_uring takes O_NONBLOCK by its word on file systems that cannot promise it (tmpfs) and answers EAGAIN.
        rustix::fs::fcntl_setfl(&file, flags.difference(OFlags::NONBLOCK))?;
        Ok(file)
    }

    /// As `open_file`, for plain calls only, with the facts that were needed to see that it is a regular file.
    pub fn open_file_stat(&self, rel: &[u8]) -> io::Result<(File, Stat)> {
        self.open_to_read(rel, false).map(|(file, _, stat)| (file, stat))
    }

    fn open_to_read(&self, rel: &[u8], direct: bool) -> io::Result<(File, OFlags, Stat)> {
        let mut flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOATIME;
        // A pipe must not make us wait for a writer before we can see that it is a pipe.
        flags |= OFlags::NONBLOCK;
        flags.set(OFlags::DIRECT, direct);
        let plain = flags.difference(OFlags::NOATIME);
        let (fd, flags) = self.at(rel, |parent, name| {
            match rustix::fs::openat(parent, name, flags, Mode::empty()) {
                // Only the owner may ask for O_NOATIME.
                Err(rustix::io::Errno::PERM) => Ok((rustix::fs::openat(parent, name, plain, Mode::empty())?, plain)),
                other => Ok((other?, flags)),
            }
        })?;
        let stat = regular(&fd)?;
        Ok((File::from(fd), flags, stat))
    }

    /// A file without a name in this folder, for reading and writing; it is gone when it is closed. Errors: EOPNOTSUPP where the file
    /// system has no such thing.
    pub fn create_unnamed(&self) -> io::Result<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.0.fd, c".", flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Opens a file for reading and writing, made with mode 0600 if it is not there. `exclusive`: it must not be there
    /// (EEXIST). `truncate`: it is emptied. Errors: as `open_file`.
    pub fn create_file(&self, rel: &[u8], exclusive: bool, truncate: bool) -> io::Result<File> {
        let mut flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // What this call itself makes is a regular file: nothing to look at, nothing to wait for.
        flags.set(OFlags::EXCL, exclusive);
        flags.set(OFlags::NONBLOCK, !exclusive);
        let fd = self.at(rel, |parent, name| rustix::fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR))?;
        if !exclusive {
            regular(&fd)?;
            rustix::fs::fcntl_setfl(&fd, OFlags::empty())?;
            // Not by O_TRUNC: what is emptied was seen to be a regular file first.
            if truncate {
                rustix::fs::ftruncate(&fd, 0)?;
            }
        }
        Ok(File::from(fd))
    }

    /// Opens a regular file that is there for reading and writing. Errors: as `open_file`.
    pub fn open_file_to_write(&self, rel: &[u8]) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = self.at(rel, |parent, name| rustix::fs::openat(parent, name, flags, Mode::empty()))?;
        regular(&fd)?;
        rustix::fs::fcntl_setfl(&fd, OFlags::empty())?;
        Ok(File::from(fd))
    }

    /// Facts of the entry itself, a link is not followed; the empty name is this folder.
    pub fn stat(&self, rel: &[u8]) -> io::Result<Stat> {
        if rel.is_empty() {
            return Ok(Stat::of(&rustix::fs::fstat(&self.0.fd)?));
        }
        self.at(rel, |parent, name| rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW))
            .map(|stat| Stat::of(&stat))
    }

    /// Is something there? Nothing is asked of it: on NFS its times are a flush of all that was written.
    pub fn is_there(&self, rel: &[u8]) -> io::Result<()> {
        self.at(rel, |parent, name| rustix::fs::accessat(parent, name, Access::EXISTS, AtFlags::empty()))
    }

    /// Makes one folder; the umask applies. Errors: EEXIST and others.
    pub fn make_dir(&self, rel: &[u8], mode: u32) -> io::Result<()> {
        self.at(rel, |parent, name| rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode & 0o7777)))
    }

    /// Makes a symbolic link with any text. Errors: EEXIST and others.
    pub fn make_link(&self, target: &[u8], rel: &[u8]) -> io::Result<()> {
        self.at(rel, |parent, name| rustix::fs::symlinkat(target, parent, name))
    }

    /// The text of a symbolic link. Errors: EINVAL if it is none.
    pub fn read_link(&self, rel: &[u8]) -> io::Result<Vec<u8>> {
        self.at(rel, |parent, name| rustix::fs::readlinkat(parent, name, Vec::new())).map(|text| text.into_bytes())
    }

    /// Renames, in one step, over whatever file has the name `to`.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        self.forget(from);
        self.forget(to);
        self.at(from, |from_parent, from_name| {
            // A failed `to` is told by its own error; only the kernel's numbers pass through here.
            self.at(to, |to_parent, to_name| rustix::fs::renameat(from_parent, from_name, to_parent, to_name))
                .map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
        })
    }

    /// Removes a file or link.
    pub fn remove_file(&self, rel: &[u8]) -> io::Result<()> {
        self.at(rel, |parent, name| rustix::fs::unlinkat(parent, name, AtFlags::empty()))
    }

    /// Removes an empty folder.
    pub fn remove_dir(&self, rel: &[u8]) -> io::Result<()> {
        self.forget(rel);
        self.at(rel, |parent, name| rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR))
    }

    /// Flushes the names in a folder to the disk; the empty name is this folder.
    pub fn sync(&self, rel_dir: &[u8]) -> io::Result<()> {
        if rel_dir.is_empty() {
            return Ok(rustix::fs::fsync(&self.0.fd)?);
        }
        let (folder, _) = self.folder(rel_dir)?;
        Ok(rustix::fs::fsync(&*folder)?)
    }

    /// What this folder itself is.
    pub fn stat_self(&self) -> io::Result<Stat> {
        Ok(Stat::of(&rustix::fs::fstat(&self.0.fd)?))
    }

    /// Sets this folder's own permission bits and time of change.
    pub fn set_meta_self(&self, mode: u32, mtime: (i64, u32)) -> io::Result<()> {
        rustix::fs::fchmod(&self.0.fd, rustix::fs::Mode::from_raw_mode(mode & 0o7777))?;
        Ok(rustix::fs::futimens(&self.0.fd, &times(mtime))?)
    }

    /// Returns when everything written to this file system, by whomever, is on the disk (syncfs).
    pub fn sync_fs(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.0.fd)?)
    }

    /// Sets permission bits and time of change, never through a link; `is_link` entries have no mode of their own.
    /// For open files `set_file_meta` is better.
    pub fn set_meta(&self, rel: &[u8], mode: Option<u32>, mtime: Option<(i64, u32)>, is_link: bool) -> io::Result<()> {
        if let Some(mode) = mode.filter(|_| !is_link) {
            self.at(rel, |parent, name| file::chmod_no_follow(parent, name, mode & 0o7777))?;
        }
        if let Some(mtime) = mtime {
            let times = times(mtime);
            self.at(rel, |parent, name| rustix::fs::utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW))?;
        }
        Ok(())
    }

    /// The names in this folder, without `.` and `..`, in the file system's order.
    pub fn list(&self) -> io::Result<List> {
        Ok(List(rustix::fs::Dir::read_from(&self.0.fd)?))
    }

    /// Room on the file system of this folder.
    pub fn space(&self) -> io::Result<Space> {
        let room = rustix::fs::fstatvfs(&self.0.fd)?;
        let facts = rustix::fs::fstatfs(&self.0.fd)?;
        Ok(Space {
            free_bytes: room.f_bavail.saturating_mul(room.f_frsize),
            total_bytes: room.f_blocks.saturating_mul(room.f_frsize),
            fs_type: file::fs_name(facts.f_type as u64),
        })
    }

    /// Runs `call` with the folder of `rel` and the last component of `rel`.
    pub(super) fn at<T>(
        &self,
        rel: &[u8],
        call: impl Fn(BorrowedFd<'_>, &[u8]) -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        let Split { parent, name } = split(rel)?;
        if parent.is_empty() {
            return Ok(call(self.0.fd.as_fd(), name)?);
        }
        let (folder, kept) = self.folder(parent)?;
        match call(folder.as_fd(), name) {
            // The folder we kept may have been removed and made anew by somebody else: then it has no name any more.
            Err(rustix::io::Errno::NOENT) if kept && rustix::fs::fstat(&*folder).is_ok_and(|it| it.st_nlink == 0) => {
                self.forget(parent);
                let (folder, _) = self.folder(parent)?;
                Ok(call(folder.as_fd(), name)?)
            }
            other => Ok(other?),
        }
    }

    /// The descriptor of a folder beneath, and whether it was kept from an earlier call.
    pub(super) fn folder(&self, rel: &[u8]) -> io::Result<(Arc<OwnedFd>, bool)> {
        let mut kept = self.0.parents.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().rposition(|(path, _)| path == rel) {
            kept[at..].rotate_left(1);
            return Ok((Arc::clone(&kept[kept.len() - 1].1), true));
        }
        drop(kept);
        let fd = Arc::new(beneath::open_folder(self.0.fd.as_fd(), rel)?);
        let mut kept = self.0.parents.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == PARENTS_KEPT {
            kept.remove(0);
        }
        kept.push((rel.to_vec(), Arc::clone(&fd)));
        Ok((fd, false))
    }

    /// Forgets kept folders that are `rel` or beneath it.
    fn forget(&self, rel: &[u8]) {
        let mut kept = self.0.parents.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(path, _)| !path.strip_prefix(rel).is_some_and(|rest| rest.is_empty() || rest[0] == b'/'));
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

/// One name of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name, without a path.
    pub name: Vec<u8>,
    /// What it is, if the file system says so without being asked for each.
    pub kind: Option<Kind>,
    /// Its number on the device.
    pub ino: u64,
}

/// The names of a folder; reads the folder as it is iterated.
#[derive(Debug)]
pub struct List(rustix::fs::Dir);

impl Iterator for List {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<io::Result<Entry>> {
        loop {
            let entry = match self.0.read()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error.into())),
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => None,
                kind => Some(Kind::of(kind)),
            };
            return Some(Ok(Entry { name: name.to_vec(), kind, ino: entry.ino() }));
        }
    }
}

/// Refuses what is no regular file.
fn regular(fd: &OwnedFd) -> io::Result<Stat> {
    let stat = Stat::of(&rustix::fs::fstat(fd)?);
    match stat.kind {
        Kind::File => Ok(stat),
        Kind::Folder => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}
