//! What is known of an entry: its kind, its facts, its times.
//!
//! For: everything else in this folder. In and out: the kernel's structures → plain values.
//! Invariants: a kind of entry that this program does not know is [`Kind::Other`], never a file.
//! Absent on purpose: names, and whatever would be asked of the kernel.

use rustix::fs::{FileType, Timespec, Timestamps};

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A FIFO.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device.
    Char,
    /// A block device.
    Block,
    /// What Linux may yet invent.
    Other,
}

impl Kind {
    pub(super) fn of(kind: FileType) -> Kind {
        match kind {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Folder,
            FileType::Symlink => Kind::Link,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharacterDevice => Kind::Char,
            FileType::BlockDevice => Kind::Block,
            _ => Kind::Other,
        }
    }
}

/// Facts of one entry. Times are seconds and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// File, folder, symbolic link, device, pipe or socket.
    pub kind: Kind,
    /// Size.
    pub bytes: u64,
    /// Permission bits, 0o7777.
    pub mode: u32,
    /// Last change of the contents.
    pub mtime_s: i64,
    /// Last change of the contents, nanoseconds.
    pub mtime_ns: u32,
    /// Last change of contents or metadata.
    pub ctime_s: i64,
    /// Last change of contents or metadata, nanoseconds.
    pub ctime_ns: u32,
    /// Device of the file system.
    pub dev: u64,
    /// Number on that device.
    pub ino: u64,
    /// Names it has.
    pub nlink: u64,
    /// 512-byte units stored; fewer than `bytes` / 512 means holes.
    pub blocks: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Of a device: its major number.
    pub major: u32,
    /// Of a device: its minor number.
    pub minor: u32,
}

impl Stat {
    pub(super) fn of(stat: &rustix::fs::Stat) -> Stat {
        Stat {
            kind: Kind::of(FileType::from_raw_mode(stat.st_mode)),
            bytes: stat.st_size as u64,
            mode: stat.st_mode & 0o7777,
            mtime_s: stat.st_mtime,
            mtime_ns: stat.st_mtime_nsec as u32,
            ctime_s: stat.st_ctime,
            ctime_ns: stat.st_ctime_nsec as u32,
            dev: stat.st_dev,
            ino: stat.st_ino,
            #[allow(clippy::unnecessary_cast, reason = "32 bits on arm64")]
            nlink: stat.st_nlink as u64,
            blocks: stat.st_blocks as u64,
            uid: stat.st_uid,
            gid: stat.st_gid,
            major: rustix::fs::major(stat.st_rdev),
            minor: rustix::fs::minor(stat.st_rdev),
        }
    }
}

/// Room on a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    /// Free for unprivileged users.
    pub free_bytes: u64,
    /// Size of the file system.
    pub total_bytes: u64,
    /// `ext4`, `xfs`, …; a hexadecimal magic number if it has no name here.
    pub fs_type: String,
}

/// The two numbers of a device, as `/sys/dev/block` names it.
#[must_use]
pub fn device_numbers(dev: u64) -> (u32, u32) {
    (rustix::fs::major(dev), rustix::fs::minor(dev))
}

/// For utimensat(2): this last change of the contents, and the last access as it is.
pub(super) fn times((seconds, nanoseconds): (i64, u32)) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds.min(999_999_999)) },
    }
}
