//! Pages of ours on their way into a socket, without the kernel's copy.
//!
//! What it is for: memory that the network reads itself: `vmsplice(2)` puts references to its pages into a pipe, `splice(2)` hands them to
//! a socket. In: bytes, a socket. Out: how many went.
//! Invariants: between calls of its user a pipe holds what `fill` put in and `empty_into` has not taken yet, in order. **The kernel reads
//! the memory after these calls have returned**: whoever calls them must keep it unchanged until the peer has it, or send nothing but
//! what may be seen and is guarded by a tag.
//! Absent on purpose: SPLICE_F_GIFT, which would give the page away and say nothing about when.
//! Sources: splice(2), vmsplice(2); kernel fs/splice.c (splice_to_socket: 16 pages per message; O_NONBLOCK of the socket counts).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{SendFlags, send};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

/// What stands in for the end of a file that is not there any more.
static ZEROS: [u8; 4096] = [0; 4096];

/// What follows the memory of a send: bytes of a file, which this program does not read.
#[derive(Debug, Clone)]
pub struct Tail {
    /// Which file.
    pub file: Arc<File>,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: usize,
}

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

    /// Puts at most `bytes` bytes of a file in, by reference; 0: it ends there. Errors: EINVAL: its file system cannot.
    fn take_from(&self, file: &File, offset: u64, bytes: usize) -> io::Result<usize> {
        let mut at = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let (from, to, none) = (file.as_raw_fd(), self.to.as_raw_fd(), std::ptr::null_mut());
        // SAFETY: both descriptors are borrowed for the call, and the offset is a local that outlives it.
        let moved = unsafe { libc::splice(from, &mut at, to, none, bytes, libc::SPLICE_F_NONBLOCK) };
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
    /// Bytes of a file that follow those of the memory.
    tail: Option<Tail>,
    /// Bytes of the file that came into the pipe.
    taken: usize,
    /// No more of the file can be had.
    ended: bool,
}

impl Lending {
    /// Through this empty pipe.
    pub(crate) fn new(pipe: Pipe) -> Lending {
        Lending { pipe, piped: 0, moved: 0, tail: None, taken: 0, ended: false }
    }

    /// The same for a head that is copied, and what follows it out of a file.
    pub(crate) fn with_tail(pipe: Pipe, tail: Tail) -> Lending {
        Lending { tail: Some(tail), ..Lending::new(pipe) }
    }

    /// `step` where a file follows. An error before the first byte went costs nothing: the file is asked first. Over: bytes of the head and
    /// of the file; if the file had fewer than it should, zeros went in their place, for the peer was told a length.
    fn step_tail(&mut self, socket: BorrowedFd<'_>, head: &[u8], tail: &Tail) -> Option<io::Result<usize>> {
        loop {
            if self.piped == 0 && !self.ended && self.taken < tail.bytes {
                match self.pipe.take_from(&tail.file, tail.offset + self.taken as u64, tail.bytes - self.taken) {
                    Ok(0) => self.ended = true,
                    Ok(bytes) => (self.piped, self.taken) = (bytes, self.taken + bytes),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) if self.moved == 0 => return Some(Err(error)),
                    Err(_) => self.ended = true,
                }
            }
            let left = head.len() + tail.bytes - self.moved;
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let sent = if self.moved < head.len() {
                send(socket, &head[self.moved..], flags | SendFlags::MORE).map_err(io::Error::from)
            } else if self.piped > 0 {
                self.pipe.empty_into(socket, self.piped).inspect(|moved| self.piped -= moved)
            } else if left > 0 {
                send(socket, &ZEROS[..left.min(ZEROS.len())], flags).map_err(io::Error::from)
            } else {
                return Some(Ok(head.len() + self.taken));
            };
            match sent {
                Ok(moved) => self.moved += moved,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Half a frame is on its way: whatever it was, this connection is over.
                Err(_) if self.moved > 0 => return Some(Err(io::ErrorKind::ConnectionAborted.into())),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Goes on with a send of `bytes`, always the same, on a non-blocking socket. `None`: the socket is full. Otherwise it is over: bytes
    /// that went (an error after the first is met by the next operation), or the error.
    pub(crate) fn step(&mut self, socket: BorrowedFd<'_>, bytes: &[u8]) -> Option<io::Result<usize>> {
        if let Some(tail) = self.tail.take() {
            let result = self.step_tail(socket, bytes, &tail);
            self.tail = Some(tail);
            return result;
        }
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
