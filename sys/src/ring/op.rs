//! What is asked of a ring, and its answer.
//!
//! For: both engines and whoever uses them. In and out: plain values that own their memory, their file or socket.
//! Invariants: none of these calls the kernel; a range is checked before a pointer is made from it.
//! Absent on purpose: the engines.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::mem::Mem;
use crate::net::pipe::Tail;

/// RWF_DONTCACHE (linux/fs.h, Linux 6.14); younger than the libraries' names.
pub(crate) const RWF_DONTCACHE: u32 = 0x80;

/// A pipe counts pages, of whatever size the kernel's are, and memory that is lent may begin and end within one.
pub(crate) fn pipe_slack() -> usize {
    2 * rustix::param::page_size()
}

/// One operation. `at` and `len` index into [`Mem::bytes`]; a range outside of it is a bug and panics.
#[derive(Debug)]
pub enum Op {
    /// Disk to memory; less than `len` at the end of the file.
    Read {
        /// Where from.
        file: Arc<File>,
        /// Byte in the file.
        offset: u64,
        /// Where to.
        mem: Mem,
        /// First byte in the memory.
        at: usize,
        /// Bytes.
        len: usize,
        /// Leave nothing in the page cache (RWF_DONTCACHE, Linux 6.14). Errors: EOPNOTSUPP where kernel or file system cannot.
        uncached: bool,
    },
    /// Memory to disk.
    Write {
        /// Where to.
        file: Arc<File>,
        /// Byte in the file.
        offset: u64,
        /// Where from.
        mem: Mem,
        /// First byte in the memory.
        at: usize,
        /// Bytes.
        len: usize,
        /// As with `Read`.
        uncached: bool,
    },
    /// Memory to network; never raises SIGPIPE.
    Send {
        /// A connected stream socket.
        socket: Arc<OwnedFd>,
        /// Where from.
        mem: Mem,
        /// First byte in the memory.
        at: usize,
        /// Bytes.
        len: usize,
    },
    /// Memory to network, but the network reads the memory itself, without a copy: **it must not change until the peer has it**, also after
    /// the `Done`. For a stream socket made ready by `sock::lend_ready`. Ends short only where `Send` does.
    ///
    /// With a tail the memory is copied (it may change after the `Done`), and bytes of a file follow that this program does not read. Nothing went
    /// if the error is EINVAL (the file system cannot) or EOPNOTSUPP (there is no pipe); less than both together: the file was shorter, zeros went.
    Lend {
        /// A connected, non-blocking stream socket.
        socket: Arc<OwnedFd>,
        /// Where from.
        mem: Mem,
        /// First byte in the memory.
        at: usize,
        /// Bytes.
        len: usize,
        /// What follows it.
        tail: Option<Tail>,
    },
    /// Network to memory; a result of 0 is the end of the stream.
    Recv {
        /// A connected stream socket.
        socket: Arc<OwnedFd>,
        /// Where to.
        mem: Mem,
        /// First byte in the memory.
        at: usize,
        /// Bytes.
        len: usize,
        /// Wait for all `len` bytes; otherwise the first bytes that come are the result.
        all: bool,
    },
    /// Waits until a socket has something to receive, or an error to tell: the next receive does not block. Moves nothing: the
    /// result is 0 and the memory an empty `Mem::Small`. For datagram sockets, whose bursts go by calls of their own ([`crate::udp`]).
    Readable {
        /// Any socket.
        socket: Arc<OwnedFd>,
    },
}

/// What became of an operation.
#[derive(Debug)]
pub struct Done {
    /// As given to `submit`.
    pub token: u64,
    /// Bytes moved, or the kernel's error.
    pub result: io::Result<usize>,
    /// The operation's memory, back in the caller's hands.
    pub mem: Mem,
}

/// Refuses a range outside of the memory: a bug of the caller, and the reason why pointers made from it are valid.
pub(crate) fn check_range(mem_bytes: usize, at: usize, len: usize) {
    assert!(
        at.checked_add(len).is_some_and(|end| end <= mem_bytes),
        "operation on bytes {at}..{at}+{len} of a memory of {mem_bytes}"
    );
}
