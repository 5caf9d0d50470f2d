//! Descriptors that whoever started this process has opened for it.
//!
//! What it is for: sockets that a service manager binds for a daemon (sd_listen_fds(3)). In: the environment. Out: owned, close-on-exec
//! descriptors.
//! Invariants: given out once; only those that are meant for this process and were inherited, never one that it opened itself.
//! Absent on purpose: what each of them is (`net` says), names of descriptors.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// SD_LISTEN_FDS_START.
const FIRST: RawFd = 3;
/// More sockets than a unit of one port has; a number that is a mistake does not make us look at a million.
const MOST: RawFd = 64;

/// The descriptors that LISTEN_FDS speaks of, if LISTEN_PID is this process; none if it is not, or if they were taken before. Errors: EINVAL, a
/// count that is none; EBADF, fewer were inherited.
pub fn take() -> io::Result<Vec<OwnedFd>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let word = |name| std::env::var(name).ok();
    let is_ours = word("LISTEN_PID").is_some_and(|pid| pid == std::process::id().to_string());
    let Some(count) = word("LISTEN_FDS").filter(|_| is_ours) else { return Ok(Vec::new()) };
    let count: RawFd = count.parse().map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    if !(0..=MOST).contains(&count) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    (FIRST..FIRST + count).map(own).collect()
}

fn own(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD reads flags of a descriptor by its number; a number that is no descriptor is an error.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    // What this process opened itself (std, this crate) has FD_CLOEXEC; what it inherited cannot have it.
    if flags < 0 || flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: F_SETFD changes flags of a descriptor by its number, and nothing else.
    unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    // SAFETY: it is open and was inherited (the flags above), so no code of this process owns it; `TAKEN` gives it out once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
