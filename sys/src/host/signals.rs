//! Signals as something to read.
//!
//! What it is for: a keeper waits for signals in the same `poll` as for everything else. In: signal numbers. Out: a
//! readable descriptor.
//! Invariants: watched signals are blocked in the calling thread and in every thread it starts later; so `watch` is
//! called by the main thread before it starts any.
//! Absent on purpose: handlers. Nothing of ours ever runs in the middle of something else.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

pub use libc::{SIGCHLD, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};

/// A descriptor that is readable while a watched signal is pending.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

/// A signal that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    /// `SIGTERM`, `SIGINT`, …, as `signal(7)` numbers them.
    pub number: i32,
    /// The process that sent it; 0 if it was the kernel.
    pub from_process: u32,
}

/// Blocks the signals in this thread and its later children and makes them readable. Errors: EINVAL, EMFILE.
pub fn watch(numbers: &[i32]) -> io::Result<SignalFd> {
    let set = set_of(numbers)?;
    // SAFETY: `set` was initialised by `set_of`; the old mask is not asked for.
    let result = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
    if result != 0 {
        return Err(io::Error::from_raw_os_error(result));
    }
    // SAFETY: `set` was initialised by `set_of`; -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given this descriptor to us, and nobody else knows it.
    Ok(SignalFd(unsafe { OwnedFd::from_raw_fd(fd) }))
}

impl SignalFd {
    /// The next signal that is pending, without waiting.
    pub fn take(&self) -> Option<Signal> {
        let mut bytes = [0u8; size_of::<libc::signalfd_siginfo>()];
        let filled = rustix::io::read(&self.0, &mut bytes[..]).ok()?;
        if filled != bytes.len() {
            return None;
        }
        // man signalfd: ssi_signo, ssi_errno, ssi_code and ssi_pid are the first four 32-bit fields.
        let field = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        Some(Signal { number: field(0) as i32, from_process: field(12) })
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes a child start with no signal blocked: it would inherit what `watch` has blocked, and so outlive a Ctrl-C.
pub fn unblock_in_child(command: &mut Command) -> &mut Command {
    let unblock = || {
        let set = set_of(&[])?;
        // SAFETY: `set` was initialised by `set_of`; the old mask is not asked for.
        let result = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &set, std::ptr::null_mut()) };
        if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
    };
    // SAFETY: between fork and exec `unblock` makes only async-signal-safe calls (sigemptyset, sigprocmask) and allocates
    // nothing: an error holds a number.
    unsafe { command.pre_exec(unblock) }
}

fn set_of(numbers: &[i32]) -> io::Result<libc::sigset_t> {
    // SAFETY: a `sigset_t` is an array of integers, for which zero is a value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is writable.
    unsafe { libc::sigemptyset(&mut set) };
    for number in numbers {
        // SAFETY: `set` was initialised above; a number that is no signal is an error, not undefined.
        let result = unsafe { libc::sigaddset(&mut set, *number) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(set)
}
