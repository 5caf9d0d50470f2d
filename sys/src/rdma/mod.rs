//! Queue pairs: messages between registered memory here and there, with completions.
//!
//! For: the rails that the engine calls RDMA. One [`Adapter`] per worker and device holds the worker's registered pool, one shared receive queue
//! of bufs for all of its queue pairs, and the queue pairs themselves.
//! In and out: connections and bufs in; bufs back with completions. Each queue pair has a completion descriptor, which is readable when there
//! may be a completion, and by which the pair is named.
//! Invariants: only SEND and RECEIVE are used, so no memory is ever opened to the peer; a buf that was posted belongs to the adapter until its
//! completion, also when the pair dies (its sends then complete with an error); completions of one pair come in the order of its messages.
//! Absent on purpose: credits (the engine's: it never posts more sends than the peer has receives; the net below is counted, see
//! [`Counts::not_ready`]), what a message means, greetings.
//!
//! A message is one SEND of `[head][payload]`: the head has one size for all messages of an adapter, so that it is received into a buf's headroom
//! and the payload page aligned behind it. What flows the other way on a pair is a [`Word`], received into small memory of the adapter's own.

mod emulated; // a queue pair over a connected stream socket

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use self::emulated::Emulated;
use crate::mem::{Buf, HEADROOM, Pool};

/// What this build can do with RDMA devices, for people.
pub const AVAILABLE: &str = "RDMA: not in this build; `cp --transport rdma --rdma-device emulated` shows how it works";

/// A message that is no frame.
pub type Word = [u8; 8];

/// A connection that both ends agreed on, and whose queues are not made yet.
#[derive(Debug)]
pub enum Connection {
    /// A connected stream socket, which stands for the wire.
    Emulated(OwnedFd),
}

/// What a queue pair receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receives {
    /// Messages into bufs of the shared receive queue. It sends words.
    Frames,
    /// Words. It sends bufs.
    Words,
}

/// What became of something that was posted, or what came.
#[derive(Debug)]
pub enum Completion {
    /// A buf is back: all of it left (or, with an error, the pair died before).
    Sent {
        /// As given to `post_send`.
        token: u64,
        /// The memory, back.
        buf: Buf,
        /// Errors: ECANCELED, flushed.
        result: io::Result<()>,
    },
    /// A message came into this buf of the shared queue.
    Frame {
        /// The head stands right before the payload.
        buf: Buf,
        /// Head and payload.
        bytes: usize,
    },
    /// A word came.
    Word(Word),
    /// The pair is dead, and nothing comes after this. `None`: the peer took leave between two messages.
    Down(Option<io::Error>),
}

/// What an adapter counted since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Memory regions registered.
    pub regions: u64,
    /// Bytes of them.
    pub registered_bytes: u64,
    /// Messages that found no receive posted and waited for one (RNR).
    pub not_ready: u64,
}

/// One worker's queue pairs on one device. Belongs to one thread.
#[derive(Debug)]
pub struct Adapter {
    emulated: Emulated,
}

impl Adapter {
    /// Registers the pool's mapping, once and whole. Messages have a head of `head_bytes`, at most [`HEADROOM`].
    #[must_use]
    pub fn emulated(pool: &Pool, head_bytes: usize) -> Adapter {
        assert!(head_bytes <= HEADROOM, "a head stands in the headroom");
        Adapter { emulated: Emulated::new(pool, head_bytes) }
    }

    /// Makes the queues of a connection. Returns the pair's completion descriptor, its name from here on.
    ///
    /// # Errors
    /// EMFILE, ENOMEM; the connection is then gone.
    pub fn attach(&mut self, connection: Connection, receives: Receives) -> io::Result<Arc<OwnedFd>> {
        match connection {
            Connection::Emulated(stream) => self.emulated.attach(stream, receives),
        }
    }

    /// Is this the completion descriptor of a pair of this adapter?
    #[must_use]
    pub fn has(&self, pair: &OwnedFd) -> bool {
        self.emulated.has(pair.as_raw_fd())
    }

    /// Sends `[at, at + len)` of a buf ([`Buf::whole`]) as one message. The buf comes back as `Completion::Sent` with the token.
    pub fn post_send(&mut self, pair: &OwnedFd, token: u64, buf: Buf, at: usize, len: usize) {
        crate::ring::check_range(buf.whole().len(), at, len);
        self.emulated.post_send(pair.as_raw_fd(), token, buf, at, len);
    }

    /// Sends a word. On a dead pair it is nothing.
    pub fn post_word(&mut self, pair: &OwnedFd, word: Word) {
        self.emulated.post_word(pair.as_raw_fd(), word);
    }

    /// Puts a buf of the registered pool into the shared receive queue.
    pub fn post_receive(&mut self, buf: Buf) {
        self.emulated.post_receive(buf);
    }

    /// Receives that are posted.
    #[must_use]
    pub fn receives(&self) -> usize {
        self.emulated.receives()
    }

    /// A posted receive back, while no pair is there that could use it.
    pub fn take_receive(&mut self) -> Option<Buf> {
        self.emulated.take_receive()
    }

    /// The pair's next completion. Never waits. `None`: its descriptor is armed, and is readable when it is worth asking again.
    pub fn poll(&mut self, pair: &OwnedFd) -> Option<Completion> {
        self.emulated.poll(pair.as_raw_fd())
    }

    /// Ends a pair: what was posted comes back with errors, then `Down`.
    pub fn cut(&mut self, pair: &OwnedFd) {
        self.emulated.cut(pair.as_raw_fd());
    }

    /// Forgets a pair whose `Down` came. Whatever it still had is given to `give`.
    pub fn detach(&mut self, pair: &OwnedFd, give: impl FnMut(Buf)) {
        self.emulated.detach(pair.as_raw_fd(), give);
    }

    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.emulated.counts()
    }
}
