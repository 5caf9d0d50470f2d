//! Pages of ours on their way into a socket, without the kernel's copy.
//!
//! What it is for: memory that the network reads itself: `vmsplice(2)` puts references to its pages into a pipe, `splice(2)` hands them to
//! a socket. In: bytes, a socket. Out: how many went.
//! Invariants: between calls of its user a pipe holds what `fill` put in and `empty_into` has not taken yet, in order. **The kernel reads
//! the memory after these calls have returned**: whoever calls them must keep it unchanged until the peer has it, or send nothing but
//! what may be seen and is guarded by a tag.
//! Absent on purpose: SPLICE_F_GIFT, which would give the page away and say nothing about when.
//! Sources: splice(2), vmsplice(2); kernel fs/splice.c (splice_to_socket: 16 pages per message; O_NONBLOCK of the socket counts).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

/// Pages on their way.
#[derive(Debug)]
pub(crate) struct Pipe {
    to: OwnedFd,
    from: OwnedFd,
}

impl Pipe {
    /// A pipe of 16 places: 64 KiB in pages.
    pub(crate) fn new() -> io::Result<Pipe> {
        let (from, to) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Pipe { to, from })
    }

    /// A pipe for so many bytes, or for as many as a user may have (fs.pipe-max-size, 1 MiB by default).
    pub(crate) fn with_room(bytes: usize) -> io::Result<Pipe> {
        let pipe = Pipe::new()?;
        for bytes in [bytes.next_power_of_two(), 1 << 20, 256 << 10] {
            if fcntl_setpipe_size(&pipe.to, bytes).is_ok() {
                break;
            }
        }
        Ok(pipe)
    }

    /// Puts pages in; less than all when the pipe is full. Errors: EAGAIN: there is no room at all; ENOMEM.
    pub(crate) fn fill(&self, bytes: &[u8]) -> io::Result<usize> {
        let place = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: the place is borrowed for the call. The kernel only reads the pages, and holds them itself for as long as it does, even
        // if they are unmapped meanwhile: no memory of others can be reached through them.
        let moved = unsafe { libc::vmsplice(self.to.as_raw_fd(), &place, 1, libc::SPLICE_F_NONBLOCK) };
        usize::try_from(moved).map_err(|_| io::Error::last_os_error())
    }

    /// Hands at most `bytes` bytes that are in the pipe to the socket. Errors: EAGAIN: the socket is full (only one that is non-blocking
    /// says so); those of sockets.
    pub(crate) fn empty_into(&self, socket: BorrowedFd<'_>, bytes: usize) -> io::Result<usize> {
        let (from, to, none) = (self.from.as_raw_fd(), socket.as_raw_fd(), std::ptr::null_mut());
        // SAFETY: both descriptors are borrowed for the call, and no offsets are given.
        let moved = unsafe { libc::splice(from, none, to, none, bytes, libc::SPLICE_F_NONBLOCK) };
        usize::try_from(moved).map_err(|_| io::Error::last_os_error())
    }
}

/// One stream send whose pages the network reads itself, step by step.
#[derive(Debug)]
pub(crate) struct Lending {
    pipe: Pipe,
    /// Bytes in the pipe.
    piped: usize,
    /// Bytes the socket has taken.
    pub(crate) moved: usize,
}

impl Lending {
    /// Through this empty pipe.
    pub(crate) fn new(pipe: Pipe) -> Lending {
        Lending { pipe, piped: 0, moved: 0 }
    }

    /// Goes on with a send of `bytes`, always the same, on a non-blocking socket. `None`: the socket is full. Otherwise it is over: bytes
    /// that went (an error after the first is met by the next operation), or the error.
    pub(crate) fn step(&mut self, socket: BorrowedFd<'_>, bytes: &[u8]) -> Option<io::Result<usize>> {
        loop {
            if self.piped == 0 {
                if self.moved == bytes.len() {
                    return Some(Ok(self.moved));
                }
                match self.pipe.fill(&bytes[self.moved..]) {
                    Ok(piped) => self.piped = piped,
                    Err(error) => return Some(self.over(error)),
                }
            }
            match self.pipe.empty_into(socket, self.piped) {
                Ok(moved) => {
                    self.piped -= moved;
                    self.moved += moved;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Some(self.over(error)),
            }
        }
    }

    fn over(&self, error: io::Error) -> io::Result<usize> {
        if self.moved > 0 { Ok(self.moved) } else { Err(error) }
    }

    /// The pipe back, if it is empty: what is left in another would go out before the next send.
    pub(crate) fn pipe(self) -> Option<Pipe> {
        (self.piped == 0).then_some(self.pipe)
    }
}
