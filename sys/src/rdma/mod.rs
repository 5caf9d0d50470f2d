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

#[cfg(not(rdma_device))]
#[path = "absent.rs"]
mod device; // this build has no devices
#[cfg(rdma_device)]
mod device; // queue pairs of a device
mod emulated; // a queue pair over a connected stream socket
#[cfg(rdma_device)]
mod ffi; // verbs and rdma_cm, declared by hand
mod found; // which devices this host has

use std::fmt::Debug;
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use self::device::Device;
pub use self::device::{Hello, Link, PairListener, Request};
use self::emulated::Emulated;
pub use self::found::{Found, Verdict, devices};
use crate::mem::{Buf, HEADROOM, Pool};

/// Drivers of RDMA devices in this program; none: this build has no RDMA.
pub const PROVIDERS: &[&str] = &self::device::PROVIDERS;

/// A message that is no frame.
pub type Word = [u8; 8];

/// A connection that both ends agreed on, and whose queues are not made yet.
#[derive(Debug)]
pub enum Connection {
    /// A connected stream socket, which stands for the wire.
    Emulated(OwnedFd),
    /// Of a device.
    Device(Box<Link>),
}

/// What carries a queue pair, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The name of the device.
    pub device: String,
    /// From 1.
    pub port: u8,
    /// The port's address on the fabric.
    pub gid: Ipv6Addr,
    /// Bytes of a packet's payload; 0: the device does not say.
    pub mtu: u32,
}

/// When memory is made known to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registration {
    /// The whole pool, once.
    Whole,
    /// The part that a message needs, each time: what the other saves, for measuring.
    Each,
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

/// What a kind of queue pairs does; see [`Adapter`], whose methods these are.
trait Queues: Debug + Send {
    fn takes(&self, connection: &Connection) -> bool;
    fn attach(&mut self, connection: Connection, receives: Receives) -> io::Result<Arc<OwnedFd>>;
    fn has(&self, pair: RawFd) -> bool;
    fn post_send(&mut self, pair: RawFd, token: u64, buf: Buf, at: usize, len: usize);
    fn post_word(&mut self, pair: RawFd, word: Word);
    fn post_receive(&mut self, buf: Buf);
    fn receives(&self) -> usize;
    fn take_receive(&mut self) -> Option<Buf>;
    fn poll(&mut self, pair: RawFd) -> Option<Completion>;
    fn cut(&mut self, pair: RawFd);
    fn detach(&mut self, pair: RawFd, give: &mut dyn FnMut(Buf)) -> usize;
    fn counts(&self) -> Counts;
}

/// One worker's queue pairs on one device. Belongs to one thread.
#[derive(Debug)]
pub struct Adapter {
    queues: Box<dyn Queues>,
}

impl Adapter {
    /// Registers the pool's mapping, once and whole, for what carries this connection. Messages have a head of `head_bytes`, at most [`HEADROOM`].
    ///
    /// # Errors
    /// OutOfMemory: RLIMIT_MEMLOCK is too small, and the text says what to do; whatever else the device says.
    pub fn new(connection: &Connection, pool: &Pool, head_bytes: usize) -> io::Result<Adapter> {
        Adapter::registering(connection, pool, head_bytes, Registration::Whole)
    }

    /// The same, with memory registered as it is said.
    ///
    /// # Errors
    /// As `new`.
    pub fn registering(
        connection: &Connection,
        pool: &Pool,
        head_bytes: usize,
        how: Registration,
    ) -> io::Result<Adapter> {
        assert!(head_bytes <= HEADROOM, "a head stands in the headroom");
        let queues: Box<dyn Queues> = match connection {
            Connection::Emulated(_) => Box::new(Emulated::new(pool, head_bytes)),
            Connection::Device(link) => Box::new(Device::new(link, pool.mapping(), head_bytes, how)?),
        };
        Ok(Adapter { queues })
    }

    /// Is the connection carried by what this adapter is for?
    #[must_use]
    pub fn takes(&self, connection: &Connection) -> bool {
        self.queues.takes(connection)
    }

    /// Makes the queues of a connection. Returns the pair's completion descriptor, its name from here on. A device's pair is connected later: what
    /// is posted before waits.
    ///
    /// # Errors
    /// EMFILE, ENOMEM; the connection is then gone.
    pub fn attach(&mut self, connection: Connection, receives: Receives) -> io::Result<Arc<OwnedFd>> {
        self.queues.attach(connection, receives)
    }

    /// Is this the completion descriptor of a pair of this adapter?
    #[must_use]
    pub fn has(&self, pair: &OwnedFd) -> bool {
        self.queues.has(pair.as_raw_fd())
    }

    /// Sends `[at, at + len)` of a buf ([`Buf::whole`]) as one message. The buf comes back as `Completion::Sent` with the token.
    pub fn post_send(&mut self, pair: &OwnedFd, token: u64, buf: Buf, at: usize, len: usize) {
        crate::ring::check_range(buf.whole().len(), at, len);
        self.queues.post_send(pair.as_raw_fd(), token, buf, at, len);
    }

    /// Sends a word. On a dead pair it is nothing.
    pub fn post_word(&mut self, pair: &OwnedFd, word: Word) {
        self.queues.post_word(pair.as_raw_fd(), word);
    }

    /// Puts a buf of the registered pool into the shared receive queue.
    pub fn post_receive(&mut self, buf: Buf) {
        self.queues.post_receive(buf);
    }

    /// Receives that are posted.
    #[must_use]
    pub fn receives(&self) -> usize {
        self.queues.receives()
    }

    /// A posted receive back, while no pair is there that could use it.
    pub fn take_receive(&mut self) -> Option<Buf> {
        self.queues.take_receive()
    }

    /// The pair's next completion. Never waits. `None`: its descriptor is armed, and is readable when it is worth asking again.
    pub fn poll(&mut self, pair: &OwnedFd) -> Option<Completion> {
        self.queues.poll(pair.as_raw_fd())
    }

    /// Ends a pair: what was posted comes back with errors, then `Down`.
    pub fn cut(&mut self, pair: &OwnedFd) {
        self.queues.cut(pair.as_raw_fd());
    }

    /// Forgets a pair whose `Down` came. Whatever it still had is given to `give`. Returns how many receives of the shared queue it may have taken
    /// with it: a device does not say whether one was in use when its pair died.
    pub fn detach(&mut self, pair: &OwnedFd, mut give: impl FnMut(Buf)) -> usize {
        self.queues.detach(pair.as_raw_fd(), &mut give)
    }

    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.queues.counts()
    }
}
