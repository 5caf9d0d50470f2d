//! Owners, attributes, nodes: what an entry has besides its content, mode and time.
//!
//! What it is for: reading and setting these without ever following a link. In: a [`Dir`] and a name, or an open file. Out: plain facts.
//! Invariants: what is set is set on an object that was pinned first (a descriptor of the entry itself) and whose kind was seen; a name
//! that is swapped meanwhile changes nothing of another file.
//! Absent on purpose: which attributes there should be, and who may set them.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, StatxAttributes, StatxFlags, Uid, XattrFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use super::beneath::{Split, split};
use super::dir::Dir;
use super::stat::{Kind, Stat, times};

/// Longest list of attribute names the kernel hands out (`XATTR_LIST_MAX` of `linux/limits.h`).
const LIST_BYTES_MAX: usize = 65_536;

/// Number of `listxattrat`, the same on every architecture (`include/uapi/asm-generic/unistd.h`); libc has no name for it yet.
const SYS_LISTXATTRAT: libc::c_long = 465;

/// This kernel has no `listxattrat`, or a filter forbids it: not asked again.
static NO_LISTXATTRAT: AtomicBool = AtomicBool::new(false);

/// Name and value of an extended attribute.
pub type Attribute = (Vec<u8>, Vec<u8>);

/// An entry by a descriptor of its own.
#[derive(Debug)]
pub struct Pin<'a> {
    fd: Fd<'a>,
}

#[derive(Debug)]
enum Fd<'a> {
    /// O_PATH: for calls by way of `/proc/self/fd`.
    Path(OwnedFd),
    /// Open for reading or writing.
    Open(BorrowedFd<'a>),
}

impl Dir {
    /// Facts of the entry itself, and whether it is immutable or append-only; the empty name is this folder.
    pub fn look(&self, rel: &[u8]) -> io::Result<(Stat, bool)> {
        let mask = StatxFlags::BASIC_STATS;
        let told = if rel.is_empty() {
            Ok(rustix::fs::statx(self.as_fd(), c"", AtFlags::EMPTY_PATH, mask)?)
        } else {
            self.at(rel, |parent, name| rustix::fs::statx(parent, name, AtFlags::SYMLINK_NOFOLLOW, mask))
        };
        match told {
            Ok(it) => {
                let kept = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
                Ok((of_statx(&it), it.stx_attributes.intersects(kept)))
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok((self.stat(rel)?, false)),
            Err(error) => Err(error),
        }
    }

    /// Names of the entry's extended attributes; a link's own. `into` is memory to use again. Errors: ENOTSUP where there are none.
    pub fn attribute_names(&self, rel: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
        if !rel.is_empty() && !NO_LISTXATTRAT.load(Ordering::Relaxed) {
            let into = RefCell::new(&mut *into);
            match self.at(rel, |parent, name| list_into(*into.borrow_mut(), |buffer| listxattrat(parent, name, buffer)))
            {
                // A filter of a container may forbid what it does not know; the call itself never answers that.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                    NO_LISTXATTRAT.store(true, Ordering::Relaxed);
                }
                told => return told,
            }
        }
        self.by_proc(rel, |path| list_into(into, |buffer| rustix::fs::llistxattr(path, buffer)))
    }

    /// One attribute's value. Errors: ENODATA, ERANGE (more than `bytes_max`).
    pub fn attribute(&self, rel: &[u8], name: &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut value = vec![0; bytes_max];
        let count = self.by_proc(rel, |path| rustix::fs::lgetxattr(path, name, &mut value[..]))?;
        value.truncate(count);
        value.shrink_to_fit();
        Ok(value)
    }

    /// Calls that know no folder are given `/proc/self/fd/FOLDER/NAME`: the folder is ours, the name one component, not followed.
    fn by_proc<T>(&self, rel: &[u8], mut call: impl FnMut(&[u8]) -> rustix::io::Result<T>) -> io::Result<T> {
        if rel.is_empty() {
            return Ok(call(proc_path(self.as_fd(), b".").as_slice())?);
        }
        let Split { parent, name } = split(rel)?;
        if parent.is_empty() {
            return Ok(call(proc_path(self.as_fd(), name).as_slice())?);
        }
        let (folder, _) = self.folder(parent)?;
        Ok(call(proc_path(folder.as_fd(), name).as_slice())?)
    }

    /// Takes hold of the entry itself, if it is of this kind. Errors: ENOENT; EINVAL for another kind.
    pub fn pin(&self, rel: &[u8], kind: Kind) -> io::Result<Pin<'static>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = if rel.is_empty() {
            rustix::fs::openat(self.as_fd(), c".", flags, Mode::empty())?
        } else {
            self.at(rel, |parent, name| rustix::fs::openat(parent, name, flags, Mode::empty()))?
        };
        if Stat::of(&rustix::fs::fstat(&fd)?).kind != kind {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        Ok(Pin { fd: Fd::Path(fd) })
    }

    /// Makes a FIFO, a socket's name or a device, for its owner alone. Errors: EPERM without the right to make devices, EEXIST.
    pub fn make_node(&self, rel: &[u8], kind: Kind, major: u32, minor: u32) -> io::Result<()> {
        let file_type = match kind {
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
            Kind::Char => FileType::CharacterDevice,
            Kind::Block => FileType::BlockDevice,
            _ => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
        let device = rustix::fs::makedev(major, minor);
        self.at(rel, |parent, name| rustix::fs::mknodat(parent, name, file_type, Mode::RUSR | Mode::WUSR, device))
    }

    /// Gives what has the name `from` a second name; a link is not followed. Errors: EEXIST, EMLINK, EXDEV, EPERM.
    pub fn add_name(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        self.at(from, |from_parent, from_name| {
            self.at(to, |to_parent, to_name| {
                rustix::fs::linkat(from_parent, from_name, to_parent, to_name, AtFlags::empty())
            })
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })
    }
}

/// Names of the attributes of an entry of a folder, without a way through `/proc` (Linux 6.13): a third of the time of `by_proc`.
fn listxattrat(parent: BorrowedFd<'_>, name: &[u8], into: &mut [u8]) -> rustix::io::Result<usize> {
    name.into_with_c_str(|name| {
        let (at, bytes) = (into.as_mut_ptr(), into.len());
        // SAFETY: the kernel reads the name up to its zero byte and writes at most `bytes` bytes at `at`, which is all of `into`; both
        // borrows outlive the call.
        let count = unsafe {
            libc::syscall(SYS_LISTXATTRAT, parent.as_raw_fd(), name.as_ptr(), libc::AT_SYMLINK_NOFOLLOW, at, bytes)
        };
        usize::try_from(count).map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    })
}

fn proc_path(folder: BorrowedFd<'_>, name: &[u8]) -> Vec<u8> {
    let mut path = format!("/proc/self/fd/{}/", folder.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    path
}

/// Grows the memory until the list fits: it may have grown since it was asked for.
fn list_into(
    into: &mut Vec<u8>,
    mut list: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<()> {
    into.resize(into.capacity().max(512), 0);
    loop {
        match list(&mut into[..]) {
            Err(Errno::RANGE) if into.len() < LIST_BYTES_MAX => into.resize((into.len() * 4).min(LIST_BYTES_MAX), 0),
            other => {
                into.truncate(*other.as_ref().unwrap_or(&0));
                return other.map(drop);
            }
        }
    }
}

/// The names of a list as the kernel gives it: each with a zero behind it.
pub fn each_name(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|&byte| byte == 0).filter(|name| !name.is_empty())
}

impl<'a> Pin<'a> {
    /// An open file.
    pub fn of(file: &'a File) -> Pin<'a> {
        Pin { fd: Fd::Open(file.as_fd()) }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.fd {
            Fd::Path(fd) => fd.as_fd(),
            Fd::Open(fd) => *fd,
        }
    }

    /// Facts.
    pub fn stat(&self) -> io::Result<Stat> {
        Ok(Stat::of(&rustix::fs::fstat(self.fd())?))
    }

    /// Changes owner, group, or both. Takes away setuid, setgid and file capabilities: set these afterwards. Errors: EPERM.
    pub fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        Ok(rustix::fs::chownat(self.fd(), c"", uid, gid, AtFlags::EMPTY_PATH)?)
    }

    /// Sets permission bits; not of links, which have none. Errors: EPERM.
    pub fn chmod(&self, mode: u32) -> io::Result<()> {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        match &self.fd {
            Fd::Open(fd) => Ok(rustix::fs::fchmod(fd, mode)?),
            Fd::Path(_) => Ok(rustix::fs::chmod(self.path().as_str(), mode)?),
        }
    }

    /// Sets the time of change of the content.
    pub fn set_mtime(&self, mtime: (i64, u32)) -> io::Result<()> {
        match &self.fd {
            Fd::Open(fd) => Ok(rustix::fs::futimens(fd, &times(mtime))?),
            Fd::Path(fd) => Ok(rustix::fs::utimensat(fd, c"", &times(mtime), AtFlags::EMPTY_PATH)?),
        }
    }

    /// Names of the extended attributes. Errors: ENOTSUP where there are none.
    pub fn attribute_names(&self, into: &mut Vec<u8>) -> io::Result<()> {
        match &self.fd {
            Fd::Open(fd) => Ok(list_into(into, |buffer| rustix::fs::flistxattr(fd, buffer))?),
            Fd::Path(_) => Ok(list_into(into, |buffer| rustix::fs::listxattr(self.path().as_str(), buffer))?),
        }
    }

    /// Is the attribute's value this one?
    pub fn has_attribute(&self, name: &[u8], value: &[u8]) -> bool {
        // One byte more than wanted, so that a longer value is seen as another one.
        let mut there = vec![0; value.len() + 1];
        let count = match &self.fd {
            Fd::Open(fd) => rustix::fs::fgetxattr(fd, name, &mut there[..]),
            Fd::Path(_) => rustix::fs::getxattr(self.path().as_str(), name, &mut there[..]),
        };
        count.is_ok_and(|count| there[..count] == *value)
    }

    /// Sets one. Errors: ENOTSUP, EPERM, ENOSPC, E2BIG.
    pub fn set_attribute(&self, name: &[u8], value: &[u8]) -> io::Result<()> {
        match &self.fd {
            Fd::Open(fd) => Ok(rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty())?),
            Fd::Path(_) => Ok(rustix::fs::setxattr(self.path().as_str(), name, value, XattrFlags::empty())?),
        }
    }

    /// Takes one away. Errors: ENODATA, EPERM.
    pub fn remove_attribute(&self, name: &[u8]) -> io::Result<()> {
        match &self.fd {
            Fd::Open(fd) => Ok(rustix::fs::fremovexattr(fd, name)?),
            Fd::Path(_) => Ok(rustix::fs::removexattr(self.path().as_str(), name)?),
        }
    }

    /// The object by its descriptor: the kernel goes to it directly and follows no link there.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd().as_raw_fd())
    }
}

fn of_statx(it: &rustix::fs::Statx) -> Stat {
    let kind = Kind::of(FileType::from_raw_mode(u32::from(it.stx_mode)));
    Stat {
        kind,
        bytes: it.stx_size,
        mode: u32::from(it.stx_mode) & 0o7777,
        mtime_s: it.stx_mtime.tv_sec,
        mtime_ns: it.stx_mtime.tv_nsec,
        ctime_s: it.stx_ctime.tv_sec,
        ctime_ns: it.stx_ctime.tv_nsec,
        dev: rustix::fs::makedev(it.stx_dev_major, it.stx_dev_minor),
        ino: it.stx_ino,
        nlink: u64::from(it.stx_nlink),
        blocks: it.stx_blocks,
        uid: it.stx_uid,
        gid: it.stx_gid,
        major: it.stx_rdev_major,
        minor: it.stx_rdev_minor,
    }
}
