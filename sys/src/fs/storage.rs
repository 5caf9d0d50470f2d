//! What the kernel tells of the storage below an open file: alignment, page cache, mount; and reading through a mapping.
//!
//! What it is for: choosing among storage engines and telling what a job left in the page cache. In: open files. Out: plain facts.
//! Invariants: a mapping never raises SIGBUS: its bytes are taken by the kernel, which answers EFAULT where the file has become shorter.
//! Absent on purpose: choosing, and facts of block devices (`bench disk` reads those from sysfs as text).

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use rustix::fs::{AtFlags, StatxFlags};
use rustix::mm::{MapFlags, ProtFlags};

use super::file::fs_name;

/// Number of `cachestat` on all architectures (Linux 6.5).
const SYS_CACHESTAT: libc::c_long = 451;
/// STATX_DIOALIGN (linux/stat.h, Linux 6.1).
const STATX_DIOALIGN: u32 = 0x2000;
/// STATX_MNT_ID (linux/stat.h, Linux 5.8).
const STATX_MNT_ID: u32 = 0x1000;

/// What O_DIRECT asks of a file; all in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectAlign {
    /// Of the memory; 0: the file cannot be read or written past the page cache.
    pub memory: u32,
    /// Of offset and length.
    pub offset: u32,
}

/// As the file system tells it; `None`: it does not tell (before Linux 6.1, and most network file systems).
pub fn direct_align(file: &File) -> Option<DirectAlign> {
    let flags = StatxFlags::from_bits_retain(STATX_DIOALIGN);
    let facts = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, flags).ok()?;
    (facts.stx_mask & STATX_DIOALIGN != 0)
        .then_some(DirectAlign { memory: facts.stx_dio_mem_align, offset: facts.stx_dio_offset_align })
}

/// Pages of a range of a file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cached {
    /// In the page cache.
    pub bytes: u64,
    /// Of these, not yet on the disk.
    pub dirty_bytes: u64,
}

#[repr(C)]
struct CachestatRange {
    offset: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// What the page cache holds of a range; `len` 0 is up to the end. Errors: ENOSYS before Linux 6.5, EPERM where a filter forbids it,
/// EOPNOTSUPP for huge pages.
pub fn cached(file: &File, offset: u64, len: u64) -> io::Result<Cached> {
    let range = CachestatRange { offset, len };
    let mut stat = Cachestat::default();
    // SAFETY: the kernel reads `range` and writes `stat`, both of the layout of linux/mman.h, both alive until the call returns.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), std::ptr::from_ref(&range), std::ptr::from_mut(&mut stat), 0)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: sysconf takes a number and touches no memory of ours.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    Ok(Cached { bytes: stat.cached * page, dirty_bytes: (stat.dirty + stat.writeback) * page })
}

/// The file system something stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// `ext4`, `tmpfs`, …
    pub fs_type: String,
    /// Device or server, as mounted; `?` where the mount table cannot be read.
    pub device: String,
    /// Options of the mount and of the file system, with commas.
    pub options: String,
    /// The file system's own number, the same after the next boot for those that live on a disk.
    pub id: u64,
}

/// Finds the file system below an open file or folder. Errors: those of fstatfs; a mount table that cannot be read gives `?`.
pub fn mount_of(fd: impl AsFd) -> io::Result<Mount> {
    let fd = fd.as_fd();
    let facts = rustix::fs::fstatfs(fd)?;
    // SAFETY: `f_fsid` is two integers without padding, for which any bits are a value; both types have the same size.
    let id: [u32; 2] = unsafe { std::mem::transmute(facts.f_fsid) };
    let id = u64::from(id[0]) << 32 | u64::from(id[1]);
    let flags = StatxFlags::from_bits_retain(STATX_MNT_ID);
    let number = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, flags)
        .ok()
        .filter(|facts| facts.stx_mask & STATX_MNT_ID != 0)
        .map(|facts| facts.stx_mnt_id);
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let found = number.and_then(|number| table.lines().find_map(|line| parse_mount(line, number)));
    let (fs_type, device, options) =
        found.unwrap_or_else(|| (fs_name(facts.f_type as u64), String::from("?"), String::from("?")));
    Ok(Mount { fs_type, device, options, id })
}

/// A line of mountinfo (proc(5)) if it is this mount's: type, device, options.
fn parse_mount(line: &str, number: u64) -> Option<(String, String, String)> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ');
    if left.next()?.parse::<u64>().ok()? != number {
        return None;
    }
    let options = left.nth(4)?;
    let mut right = right.split(' ');
    let (fs_type, device, more) = (right.next()?, right.next()?, right.next().unwrap_or_default());
    Some((fs_type.into(), device.into(), format!("{options},{more}")))
}

/// A file mapped for reading.
#[derive(Debug)]
pub struct Map {
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the mapping is read-only and never given out as a reference; the kernel copies out of it for any thread.
unsafe impl Send for Map {}
// SAFETY: as above: `read_at` takes bytes by a system call and changes nothing.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `bytes` of a file, to be read in order. Errors: EINVAL for no bytes, ENODEV where files cannot be mapped.
    pub fn new(file: &File, bytes: u64) -> io::Result<Map> {
        let map = Map::held(file, bytes)?;
        // SAFETY: the range is the mapping just made; the advice changes when pages are read, not what they hold.
        let _ = unsafe { rustix::mm::madvise(map.start.as_ptr(), map.bytes, rustix::mm::Advice::LinuxNoHugepage) };
        // SAFETY: as above.
        let _ = unsafe { rustix::mm::madvise(map.start.as_ptr(), map.bytes, rustix::mm::Advice::Sequential) };
        Ok(map)
    }

    /// Maps them without a word on how they are read, as a program does that wants them to stay in memory. Errors: as above.
    pub fn held(file: &File, bytes: u64) -> io::Result<Map> {
        let bytes = usize::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
        let start = NonNull::new(start).expect("the kernel maps nothing at null unless told to");
        Ok(Map { start, bytes })
    }

    /// Copies out of the mapping, by the kernel's hand: `process_vm_readv(2)` of this process. 0 at the end. Errors: EFAULT where the
    /// file has become shorter or its disk failed, EPERM or ENOSYS where a filter forbids the call.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes);
        let len = into.len().min(self.bytes - offset);
        if len == 0 {
            return Ok(0);
        }
        let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: len };
        let from = self.start.as_ptr().wrapping_byte_add(offset);
        let remote = libc::iovec { iov_base: from, iov_len: len };
        let pid = rustix::process::getpid().as_raw_pid();
        // SAFETY: `local` is `into`, which we hold uniquely for `len` bytes; the kernel checks `remote` page by page, and it lies in
        // the mapping, which `self` keeps.
        let moved = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
        usize::try_from(moved).map_err(|_| io::Error::last_os_error())
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping made in `new`, and nobody else has it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr(), self.bytes) };
    }
}

/// Reads through the mapping; where it cannot, the file itself tells why.
pub fn read_mapped(map: &Map, file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    match map.read_at(into, offset) {
        Err(_) => file.read_at(into, offset),
        moved => moved,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_mount_table_gives_its_parts() {
        let line = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let parts = parse_mount(line, 36).expect("it is this one");
        assert_eq!(parts, ("ext3".into(), "/dev/root".into(), "rw,noatime,rw,errors=continue".into()));
        assert_eq!(parse_mount(line, 35), None);
        assert_eq!(parse_mount("nonsense", 36), None);
    }
}
