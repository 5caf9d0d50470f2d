//! Giving up rights, for good.
//!
//! What it is for: a server that has opened what it needs keeps only what it needs. In: paths, ids. Out: what holds now.
//! Invariants: nothing here can be taken back by the process; a partial success of `drop_to` is an error.
//! Absent on purpose: deciding what to give up, and system-call filters (io_uring passes them by).
//!
//! Landlock and `no_new_privs` bind the calling thread and what it starts later: call them in the main thread before
//! it starts any.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// What Landlock has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Landlock {
    /// The kernel enforces it now.
    pub holds: bool,
    /// In words: how far it goes, or why it does not hold.
    pub reason: String,
}

/// linux/landlock.h, LANDLOCK_ACCESS_FS_*: bit numbers are the kernel's promise.
mod access {
    pub(super) const EXECUTE: u64 = 1;
    pub(super) const WRITE_FILE: u64 = 1 << 1;
    pub(super) const READ_FILE: u64 = 1 << 2;
    pub(super) const READ_DIR: u64 = 1 << 3;
    pub(super) const REMOVE_DIR: u64 = 1 << 4;
    pub(super) const REMOVE_FILE: u64 = 1 << 5;
    pub(super) const MAKE_CHAR: u64 = 1 << 6;
    pub(super) const MAKE_DIR: u64 = 1 << 7;
    pub(super) const MAKE_REG: u64 = 1 << 8;
    pub(super) const MAKE_SOCK: u64 = 1 << 9;
    pub(super) const MAKE_FIFO: u64 = 1 << 10;
    pub(super) const MAKE_BLOCK: u64 = 1 << 11;
    pub(super) const MAKE_SYM: u64 = 1 << 12;
    pub(super) const REFER: u64 = 1 << 13;
    pub(super) const TRUNCATE: u64 = 1 << 14;

    /// All rights the first version knows; execution among them, which nobody gets back.
    pub(super) const ALL_V1: u64 = (1 << 13) - 1;
    /// What may be granted for something that is not a folder.
    pub(super) const OF_FILES: u64 = WRITE_FILE | READ_FILE | TRUNCATE;
    pub(super) const READ: u64 = READ_FILE | READ_DIR;
    pub(super) const WRITE: u64 = WRITE_FILE
        | REMOVE_DIR
        | REMOVE_FILE
        | MAKE_DIR
        | MAKE_REG
        | MAKE_SOCK
        | MAKE_FIFO
        | MAKE_SYM
        | REFER
        | TRUNCATE;
    pub(super) const NODES: u64 = MAKE_CHAR | MAKE_BLOCK;

    /// What a version of the kernel's interface can take away.
    pub(super) fn handled(version: i64) -> u64 {
        let mut all = ALL_V1;
        if version >= 2 {
            all |= REFER;
        }
        if version >= 3 {
            all |= TRUNCATE;
        }
        all
    }
}

/// LANDLOCK_CREATE_RULESET_VERSION: asks for the version instead of making a ruleset.
const ASK_VERSION: u32 = 1;
/// LANDLOCK_RULE_PATH_BENEATH.
const RULE_PATH_BENEATH: u32 = 1;

/// struct landlock_path_beneath_attr, packed in the kernel's header.
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// From now on this thread and what it starts may read and execute, and write, make and remove nothing. Where the kernel has no Landlock, all stays as
/// it was. Errors: the kernel refuses the rules.
pub fn read_only() -> io::Result<()> {
    let Ok(version) = ruleset(None, ASK_VERSION) else { return Ok(()) };
    let number = ruleset(Some(&access::handled(version)), 0)?;
    // SAFETY: the kernel has just given this descriptor to us (`ruleset` without ASK_VERSION), and nobody else knows it.
    let rules = unsafe { OwnedFd::from_raw_fd(number as i32) };
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    add_rule(rules.as_fd(), root.as_fd(), access::READ | access::EXECUTE)?;
    // What stands on every other process's way to nowhere.
    if let Ok(null) = rustix::fs::open("/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        add_rule(rules.as_fd(), null.as_fd(), access::READ_FILE | access::WRITE_FILE)?;
    }
    enforce(&rules)
}

/// No program started from here gains rights by its file's bits, and the rules hold.
fn enforce(rules: &OwnedFd) -> io::Result<()> {
    no_new_privs()?;
    // SAFETY: a system call on an open descriptor; it touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0u32) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// From now on this thread and what it starts may open only what lies beneath `roots`, for writing only where the flag
/// says so, and make device nodes there only with `nodes`. Descriptors that are open already keep working. A kernel without Landlock is told in the answer, not as an
/// error. Errors: a root that cannot be opened, or that the kernel refuses.
pub fn landlock(roots: &[(&[u8], bool)], nodes: bool) -> io::Result<Landlock> {
    let version = match ruleset(None, ASK_VERSION) {
        Ok(version) => version,
        Err(error) => return Ok(not_held(&error)),
    };
    let handled = access::handled(version);
    let number = ruleset(Some(&handled), 0)?;
    // SAFETY: the kernel has just given this descriptor to us (`ruleset` without ASK_VERSION), and nobody else knows it.
    let rules = unsafe { OwnedFd::from_raw_fd(number as i32) };
    for (path, write) in roots {
        let nodes = if nodes { access::NODES } else { 0 };
        let granted = access::READ | if *write { access::WRITE | nodes } else { 0 };
        let root = rustix::fs::open(Path::new(OsStr::from_bytes(path)), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        add_rule(rules.as_fd(), root.as_fd(), granted & handled)?;
    }
    enforce(&rules)?;
    Ok(Landlock { holds: true, reason: format!("Landlock version {version} holds for {} roots", roots.len()) })
}

fn not_held(error: &io::Error) -> Landlock {
    let why = match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel is built without Landlock",
        Some(libc::EOPNOTSUPP) => "Landlock is switched off (kernel parameter lsm=)",
        _ => "the kernel refuses Landlock",
    };
    Landlock { holds: false, reason: format!("{why}: {error}") }
}

/// landlock_create_ruleset: with rights a descriptor, without them the version.
fn ruleset(handled: Option<&u64>, flags: u32) -> io::Result<i64> {
    let (at, bytes) = match handled {
        Some(handled) => (std::ptr::from_ref(handled), size_of::<u64>()),
        None => (std::ptr::null(), 0),
    };
    // SAFETY: the kernel reads `bytes` bytes at `at`, which is the caller's integer or nothing. Eight bytes are the first
    // version of struct landlock_ruleset_attr; the kernel takes the rest as zero.
    let result = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, at, bytes, flags) };
    if result >= 0 { Ok(result) } else { Err(io::Error::last_os_error()) }
}

fn add_rule(rules: BorrowedFd<'_>, root: BorrowedFd<'_>, granted: u64) -> io::Result<()> {
    let is_folder = FileType::from_raw_mode(rustix::fs::fstat(root)?.st_mode).is_dir();
    let allowed = if is_folder { granted } else { granted & access::OF_FILES };
    let rule = PathBeneath { allowed, parent: root.as_raw_fd() };
    let at = std::ptr::from_ref(&rule);
    // SAFETY: the kernel reads one struct landlock_path_beneath_attr at `at`, which is the local `rule`.
    let result = unsafe { libc::syscall(libc::SYS_landlock_add_rule, rules.as_raw_fd(), RULE_PATH_BENEATH, at, 0u32) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// No program started from here gains rights by its file's bits.
pub fn no_new_privs() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Becomes another user, in all threads, with that one group and no other, for good. Does nothing if it is that user
/// already. With `low_ports` the right to bind ports below 1024 stays, and no other: call it then before any thread is started, since capabilities
/// are the calling thread's. Errors: EPERM; and if the step could be taken back.
pub fn drop_to(uid: u32, gid: u32, low_ports: bool) -> io::Result<()> {
    let (uids, gids) = (ids(libc::getresuid)?, ids(libc::getresgid)?);
    if uids == [uid; 3] && gids == [gid; 3] {
        return Ok(());
    }
    // The groups first: afterwards there would be no right to. glibc does each in all threads (setxid).
    // SAFETY: the kernel reads one group id at the address of the local `gid`.
    check(unsafe { libc::setgroups(1, &gid) })?;
    // SAFETY: three numbers.
    check(unsafe { libc::setresgid(gid, gid, gid) })?;
    rustix::thread::set_keep_capabilities(low_ports)?;
    // SAFETY: three numbers.
    check(unsafe { libc::setresuid(uid, uid, uid) })?;
    if low_ports {
        let kept = CapabilitySet::NET_BIND_SERVICE;
        let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
        rustix::thread::set_capabilities(None, sets)?;
        rustix::thread::set_keep_capabilities(false)?;
    }
    let back = || {
        // SAFETY: three numbers.
        unsafe { libc::setresuid(0, 0, 0) }
    };
    if ids(libc::getresuid)? != [uid; 3] || ids(libc::getresgid)? != [gid; 3] || (uid != 0 && back() == 0) {
        return Err(io::Error::other("rights were not given up for good"));
    }
    Ok(())
}

/// Real, effective and saved ids.
fn ids(call: unsafe extern "C" fn(*mut u32, *mut u32, *mut u32) -> i32) -> io::Result<[u32; 3]> {
    let (mut real, mut effective, mut saved) = (0, 0, 0);
    // SAFETY: `call` is getresuid or getresgid (the two callers above), which write one number to each address.
    check(unsafe { call(&mut real, &mut effective, &mut saved) })?;
    Ok([real, effective, saved])
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What is started so is killed when the thread that starts it ends, however that does.
pub fn kill_with_parent(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    let ask = || Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?);
    // SAFETY: the closure runs between fork and exec, and makes one system call: no lock, no memory.
    unsafe { command.pre_exec(ask) };
}

/// The process gets SIGTERM when the thread that started it ends. Errors: ESRCH if that was already so.
pub fn die_with_parent() -> io::Result<()> {
    let parent = rustix::process::getppid();
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    if rustix::process::getppid() != parent {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    Ok(())
}
