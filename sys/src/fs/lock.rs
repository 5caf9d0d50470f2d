//! Locks between processes, hosts and jobs of one process.
//!
//! What it is for: one writer per file. In: an open file. Out: whether the lock was taken.
//! Invariants: a lock belongs to the open file description (F_OFD_SETLK of `fcntl_locking(2)`), so that two jobs of one process exclude each
//! other too; it goes when the description is closed, also by `kill -9`, and stays while its process is stopped.
//! Absent on purpose: waiting, shared locks, ranges.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::io::Errno;

/// Takes the write lock on a whole file that is open for writing, without waiting. `Ok(false)`: another open file description holds it, here
/// or, on a network file system, on another host. Errors: `Unsupported` where the file system has no locks (NFS mounted with `nolock` and no
/// lock manager, Lustre without `flock`); others as the kernel has them.
pub fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: flock is a plain C structure for which all bits zero is a value: from byte 0, to the end, pid 0 as F_OFD_SETLK demands.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open while `file` is borrowed, and the kernel reads one `flock` from the pointer.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if done == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match Errno::from_io_error(&error) {
        Some(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Some(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP) => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_open_file_has_the_lock_until_it_is_closed() {
        let path = std::env::temp_dir().join(format!("longhaul-lock-{}", std::process::id()));
        let first = File::create(&path).unwrap();
        let second = File::options().write(true).open(&path).unwrap();
        assert!(try_lock(&first).unwrap());
        assert!(!try_lock(&second).unwrap(), "two jobs of one process exclude each other, too");
        assert!(try_lock(&first).unwrap(), "who has it has it");
        drop(first);
        assert!(try_lock(&second).unwrap());
        std::fs::remove_file(path).unwrap();
    }
}
