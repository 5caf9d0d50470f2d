//! A filter that makes system calls fail, for tests of what is done when they do, and of whether they are made at all.
//!
//! For: test binaries alone; the product never calls it.
//! In and out: calls by number and an error; every such call of this thread, and of threads that it starts later, ends with it.
//! Invariants: the filter is for good; nothing else of the process is touched.
//! Absent on purpose: looking at arguments.

use std::io;

/// Flushes of one file's bytes, of a folder's names (or a whole file), of a whole file system.
pub const FDATASYNC: libc::c_long = libc::SYS_fdatasync;
/// Flush of a folder's names, or of a whole file (`fsync(2)`).
pub const FSYNC: libc::c_long = libc::SYS_fsync;
/// Flush of a whole file system (`syncfs(2)`).
pub const SYNCFS: libc::c_long = libc::SYS_syncfs;

/// Makes these system calls fail in this thread from now on.
///
/// # Panics
/// Where the kernel takes no filter.
pub fn forbid(calls: &[libc::c_long], errno: i32) {
    super::confine::no_new_privs().expect("set");
    // linux/filter.h and linux/seccomp.h: load the call's number; for each forbidden one return the error, else allow.
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for call in calls {
        program.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, *call as u32));
        program.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32));
    }
    program.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies `len` steps from `program`, which lives until after the call.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}
