//! Sockets that a rail has left for another, which are still read.
//!
//! For: a receiver that does nothing for a while looks like an address that changed; all that was sent to it meanwhile waits in the socket that
//! it leaves, and what left before the other end moved still comes there.
//! In and out: sockets that are left in; the one to be read next out.
//! Invariants: a socket is read to its end in each go, and closed in the first one two seconds after it was left; the other end decides how often it moves, so
//! there is a bound.
//! Absent on purpose: what is read (`Wire`), who decides to move (`proto::session::migration`).

use std::collections::VecDeque;

/// How long a socket that was left is looked at, ns: what left before the other end moved is a round trip on its way at most (2 s are served).
const LEFT_NS: u64 = 2_000_000_000;
/// Sockets that are kept so, at most: descriptors are this end's.
const LEFT_MAX: usize = 4;

/// The sockets that were left, oldest first, each with the time, ns, until which it is read.
#[derive(Debug)]
pub(super) struct LeftSockets<S>(VecDeque<(S, u64)>);

impl<S> LeftSockets<S> {
    pub(super) fn new() -> Self {
        LeftSockets(VecDeque::new())
    }

    pub(super) fn leave(&mut self, now_ns: u64, socket: S) {
        self.0.push_back((socket, now_ns + LEFT_NS));
        if self.0.len() > LEFT_MAX {
            // Not the first: what came while this end stood still is in that one.
            self.0.remove(1);
        }
    }

    /// The one to be read, of which `read` are read to their end. `None`: all are.
    pub(super) fn at(&self, read: usize) -> Option<&S> {
        self.0.get(read).map(|(socket, _)| socket)
    }

    /// The one to be read has nothing more. False: there was none.
    pub(super) fn is_read(&mut self, now_ns: u64, read: &mut usize) -> bool {
        let Some((_, until_ns)) = self.0.get(*read) else { return false };
        if now_ns < *until_ns {
            *read += 1;
        } else {
            self.0.remove(*read);
        }
        true
    }
}
