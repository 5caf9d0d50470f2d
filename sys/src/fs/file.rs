//! What is done with one open file, and the few calls that need more than `rustix` gives.
//!
//! What it is for: metadata, room, flushing and cache advice of open files. In: a `&File`. Out: plain results.
//! Invariants: permission bits are never changed through a link.
//! Absent on purpose: reading and writing in bulk, which goes through the ring.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, FallocateFlags, Mode, OFlags, SeekFrom, openat};
use rustix::io::Errno;

use super::stat::{Stat, times};

/// Number of `fchmodat2` on all architectures (Linux 6.6); libc's name for it is younger than some libc.
const SYS_FCHMODAT2: libc::c_long = 452;

/// Which signal tells of a lease (asm-generic/fcntl.h; libc does not have it).
const F_SETSIG: libc::c_int = 10;

/// Facts of an open file.
pub fn stat_file(file: &File) -> io::Result<Stat> {
    Ok(Stat::of(&rustix::fs::fstat(file)?))
}

/// Makes all of a file's content that of another by sharing its blocks (FICLONE). Errors: EOPNOTSUPP or ENOTTY where the file system does
/// not share, EXDEV for one of another file system, EINVAL for files it does not share.
pub fn clone_content(from: &File, to: &File) -> io::Result<()> {
    Ok(rustix::fs::ioctl_ficlone(to, from)?)
}

/// Who may be writing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// Nobody has it open for writing, nor mapped so.
    None,
    /// Somebody has.
    Some,
    /// The kernel does not tell us: the file is another user's, or its file system knows no leases.
    Unknown,
}

/// Does anybody have this file open for writing, or still mapped for it? A read lease is granted only where nobody does (and only on a file
/// that was opened for reading alone); it is given back at once. Somebody who opens the file in this moment waits for some µs.
pub fn writers_of(file: &File) -> Writers {
    let fd = file.as_raw_fd();
    // SAFETY: a system call on an open descriptor with two numbers; it reads and writes no memory of ours. Who is told of a lease that
    // is broken in this moment is told by a signal that is ignored unless asked for, not by SIGIO, which would end the process.
    let quiet = unsafe { libc::fcntl(fd, F_SETSIG, libc::SIGURG) } == 0;
    // SAFETY: as above.
    if !quiet || unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) } != 0 {
        let held = quiet && io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN);
        return if held { Writers::Some } else { Writers::Unknown };
    }
    // SAFETY: as above.
    unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) };
    Writers::None
}

/// Has all dirty pages of a file written out, and waits for it. Promises nothing of the disk; but a page that is stored to through a mapping
/// afterwards is a clean one, and the kernel notes the time of such a store (not on file systems in memory, which write nothing out).
pub fn settle(file: &File) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: a system call on an open descriptor with three numbers; it reads and writes no memory of ours.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets permission bits and time of change of an open file.
pub fn set_file_meta(file: &File, mode: Option<u32>, mtime: Option<(i64, u32)>) -> io::Result<()> {
    if let Some(mode) = mode {
        rustix::fs::fchmod(file, Mode::from_raw_mode(mode & 0o7777))?;
    }
    if let Some(mtime) = mtime {
        rustix::fs::futimens(file, &times(mtime))?;
    }
    Ok(())
}

/// Makes the file `bytes` long with room for all of it, so that a full disk shows itself before the data comes. File
/// systems without this get the length only. Errors: ENOSPC, EFBIG, EDQUOT.
pub fn preallocate(file: &File, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let space = rustix::fs::fstatvfs(file)?;
    if bytes > space.f_bavail.saturating_mul(space.f_frsize) {
        // It may be sparse and fit all the same; asking for all of it would fill the disk before it fails.
        return Ok(rustix::fs::ftruncate(file, bytes)?);
    }
    if is_memory_file_system(file) {
        // Here it would take all pages at once, on the caller's time: 0.3 s/GB.
        return Ok(rustix::fs::ftruncate(file, bytes)?);
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            // Never shorter: fallocate would not be, either.
            if rustix::fs::fstat(file)?.st_size.cast_unsigned() < bytes {
                rustix::fs::ftruncate(file, bytes)?;
            }
            Ok(())
        }
        other => Ok(other?),
    }
}

/// Gives a range back to the file system: it reads as zeros. Errors: EOPNOTSUPP where holes cannot be.
pub fn punch(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(file, flags, offset, len)?)
}

/// Gives back to the file system what of the file is allocated and only zeros, in whole blocks of `HOLE_BYTES`. Reads what is allocated
/// once. Errors: those of reading; where holes cannot be, nothing happens.
pub fn dig(file: &File) -> io::Result<()> {
    let mut buffer = vec![0; 64 * HOLE_BYTES];
    let mut at = 0;
    while let Some((start, end)) = next_data(file, at)? {
        let mut offset = start - start % HOLE_BYTES as u64;
        while offset < end {
            let count = read_at_full(file, &mut buffer, offset)?;
            if count == 0 {
                return Ok(());
            }
            let mut zeros = 0;
            for (index, block) in buffer[..count].chunks(HOLE_BYTES).enumerate() {
                let is_zero = block.len() == HOLE_BYTES && block.iter().all(|&byte| byte == 0);
                zeros = if is_zero { zeros + 1 } else { 0 };
                // One call for each run, made when the run ends: at the last block, or before one that is not zeros.
                let ends = (index + 1) * HOLE_BYTES >= count
                    || buffer[(index + 1) * HOLE_BYTES..count].iter().take(HOLE_BYTES).any(|&byte| byte != 0);
                if is_zero && ends {
                    let first = (index + 1 - zeros) * HOLE_BYTES;
                    if punch(file, offset + first as u64, (zeros * HOLE_BYTES) as u64).is_err() {
                        return Ok(());
                    }
                }
            }
            offset += count as u64;
        }
        at = end;
    }
    Ok(())
}

/// The block of most file systems, and a page: holes begin and end there.
pub const HOLE_BYTES: usize = 4096;

/// Is the file on a file system over a block device, where O_DIRECT reaches the device?
pub fn is_block_file_system(on: impl AsFd) -> bool {
    rustix::fs::fstatfs(on)
        .is_ok_and(|facts| matches!(fs_name(facts.f_type as u64).as_str(), "ext4" | "xfs" | "btrfs" | "f2fs"))
}

/// Does the file live in memory alone (tmpfs, ramfs)? Its reads and writes never wait, but a ring, which cannot know that, hands
/// each to a thread of its own (measured here, 6.18: every one, shmem has no FMODE_NOWAIT).
pub fn is_memory_file_system(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|facts| matches!(fs_name(facts.f_type as u64).as_str(), "tmpfs" | "ramfs"))
}

/// Does the page cache hold the byte at `offset`? A read that may not wait tells (preadv2, RWF_NOWAIT).
pub fn is_cached_at(file: &File, offset: u64) -> bool {
    let mut byte = [0; 1];
    let mut parts = [std::io::IoSliceMut::new(&mut byte)];
    rustix::io::preadv2(file, &mut parts, offset, rustix::io::ReadWriteFlags::NOWAIT).is_ok()
}

/// Cuts or extends (with a hole) the file.
pub fn truncate(file: &File, bytes: u64) -> io::Result<()> {
    Ok(rustix::fs::ftruncate(file, bytes)?)
}

/// Returns when contents and size are on the disk.
pub fn sync_data(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fdatasync(file)?)
}

/// Starts writing a range out without waiting for it; `len` 0 is up to the end. Promises nothing: `sync_data` does.
pub fn start_write_out(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let (offset, len) = (signed(offset)?, signed(len)?);
    // SAFETY: a system call on an open descriptor with three numbers; it reads and writes no memory of ours.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Tells the kernel that a range will not be read again; pages not yet written out stay. `len` 0 is up to the end.
pub fn drop_cache(file: &File, offset: u64, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, offset, NonZeroU64::new(len), Advice::DontNeed)?)
}

/// Has the file's beginning read into the page cache and does not wait for it.
pub fn begin_read(file: &File, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, NonZeroU64::new(len), Advice::WillNeed)?)
}

/// Bypasses the page cache from now on, or no longer. Errors: EINVAL where the file system cannot.
pub fn set_direct(file: &File, direct: bool) -> io::Result<()> {
    let mut flags = rustix::fs::fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, direct);
    Ok(rustix::fs::fcntl_setfl(file, flags)?)
}

/// The next range at or after `offset` that holds data, as (start, end); `None`: only a hole up to the end. File systems
/// that know no holes say that all is data.
pub fn next_data(file: &File, offset: u64) -> io::Result<Option<(u64, u64)>> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
    Ok(Some((start, end)))
}

/// The next hole at or after `offset`, as (start, end), its end cut to the length of the file; `None`: only data up to the end.
pub fn next_hole(file: &File, offset: u64) -> io::Result<Option<(u64, u64)>> {
    let bytes = stat_file(file)?.bytes;
    if offset >= bytes {
        return Ok(None);
    }
    let start = rustix::fs::seek(file, SeekFrom::Hole(offset))?;
    if start >= bytes {
        return Ok(None); // the hole that begins where each file ends
    }
    match rustix::fs::seek(file, SeekFrom::Data(start)) {
        Ok(end) => Ok(Some((start, end.min(bytes)))),
        Err(Errno::NXIO) => Ok(Some((start, bytes))),
        Err(error) => Err(error.into()),
    }
}

/// Does the kernel itself say where the holes of this file are, from the file's own map and what is not written out yet? Others ask a
/// server or a process of the user's, or (ZFS, 2023) forgot what was not written out; they are read.
pub fn tells_holes(file: &File) -> bool {
    let is_told = |name: &str| matches!(name, "ext4" | "xfs" | "btrfs" | "tmpfs" | "f2fs");
    rustix::fs::fstatfs(file).is_ok_and(|facts| is_told(&fs_name(facts.f_type as u64)))
}

/// Reads until `bytes` is full or the file ends; says how many were read.
pub fn read_at_full(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Copies `len` bytes at `offset` to the same place of another file, within the kernel where it can (shared extents on btrfs and XFS).
/// Errors: `UnexpectedEof`, the source is shorter.
pub fn copy_range(from: &File, to: &File, offset: u64, len: u64) -> io::Result<()> {
    /// Copied through memory where the kernel cannot.
    const STEP_BYTES: usize = 1 << 20;
    let (mut at, end) = (offset, offset + len);
    while at < end {
        let (mut read_at, mut write_at) = (at, at);
        let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(1 << 30);
        match rustix::fs::copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), wanted) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => at += count as u64,
            Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => break,
            Err(error) => return Err(error.into()),
        }
    }
    let mut bytes = vec![0; if at < end { STEP_BYTES } else { 0 }];
    while at < end {
        let part = usize::try_from(end - at).unwrap_or(usize::MAX).min(STEP_BYTES);
        let read = read_at_full(from, &mut bytes[..part], at)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to.write_all_at(&bytes[..read], at)?;
        at += read as u64;
    }
    Ok(())
}

/// Fills several places from a file, one after the other, in one call. Returns how many bytes there were: fewer than the places have at the
/// file's end, or where the kernel stopped.
pub fn read_at_scattered(file: &File, places: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::preadv(file, places, offset)?)
}

/// Writes several runs of bytes, one after the other, all of them. At most 1024 (IOV_MAX, writev(2)).
pub fn write_at_gathered(file: &File, runs: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
    let (mut left, mut at) = (runs, offset);
    while !left.is_empty() {
        let moved = match rustix::io::pwritev(file, left, at) {
            Err(Errno::INTR) => continue,
            moved => moved?,
        };
        if moved == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        at += moved as u64;
        IoSlice::advance_slices(&mut left, moved);
    }
    Ok(())
}

/// Writes all of `bytes`.
pub fn write_at_full(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

/// Permission bits of an entry that is not a link.
pub(super) fn chmod_no_follow(parent: BorrowedFd<'_>, name: &[u8], mode: u32) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(parent, name, flags, Mode::empty()) {
        Ok(fd) => rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode)),
        // An entry whose owner may not read it (mode 0) has a mode all the same.
        Err(Errno::ACCESS) => fchmodat2(parent, name, mode),
        Err(error) => Err(error),
    }
}

fn fchmodat2(parent: BorrowedFd<'_>, name: &[u8], mode: u32) -> rustix::io::Result<()> {
    let name = std::ffi::CString::new(name).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel reads the name up to its zero byte, which `name` owns until after the call.
    let result =
        unsafe { libc::syscall(SYS_FCHMODAT2, parent.as_raw_fd(), name.as_ptr(), mode, libc::AT_SYMLINK_NOFOLLOW) };
    if result == 0 { Ok(()) } else { Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)) }
}

fn signed(number: u64) -> io::Result<i64> {
    i64::try_from(number).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Names of file systems by their magic number (linux/magic.h and the file systems' own sources).
pub(super) fn fs_name(magic: u64) -> String {
    let name = match magic & 0xffff_ffff {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0x794c_7630 => "overlay",
        0x6969 => "nfs",
        0xff53_4d42 | 0xfe53_4d42 => "cifs",
        0x2fc1_2fc1 => "zfs",
        0xf2f5_2010 => "f2fs",
        0x4d44 => "vfat",
        0x2011_bab0 => "exfat",
        0x6573_5546 => "fuse",
        0x0bd0_0bd0 => "lustre",
        0x4750_4653 => "gpfs",
        0x00c3_6400 => "ceph",
        0x1983_0326 => "beegfs",
        0xca45_1a4e => "bcachefs",
        0x0161_1970 => "gfs2",
        0x7461_636f => "ocfs2",
        0x0102_1997 => "9p",
        0x7371_7368 => "squashfs",
        other => return format!("{other:#x}"),
    };
    String::from(name)
}
