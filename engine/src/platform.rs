//! The one generic: what the loop and the job ends need from a world.
//!
//! For: running the same worker and job ends on Linux (`linux.rs`) and in the simulator (`tests/sim`).
//! In and out: asynchronous reads, writes, sends and receives by token; the two trees' synchronous name calls.
//! Invariants: an op owns its memory until its `Done` gives it back; results may be short, the caller goes on.
//! Absent on purpose: retries, order, protocol.

use std::fmt::Debug;
use std::io;

pub use crate::tree::sink_tree::{
    Capabilities, Clones, Cloning, Firm, Found, Old, Owners, PartClaims, Parts, PreviousVersions, Prune, Publish,
    ReadBack, Sign, SinkTree, Striped, Volume, VolumeSet,
};
pub use crate::tree::source_tree::{HOLES_AT_ONCE, Holes, SourceTree};
use proto::PIECE_BYTES;
use proto::packet::PACKET_OVERHEAD;
use proto::wire::chunk::{CHUNK_BYTES_MAX, SEALED_HEADER_BYTES, TAG_BYTES};
use sys::mem::{Buf, Mem, Pool};
pub use sys::rdma::{Completion, Counts as PairCounts, Receives, Word};
pub use sys::udp::{Arrived, Splicer};

/// One asynchronous step. `at` and `len` index into the memory's bytes.
#[derive(Debug)]
pub enum Op<F, S> {
    /// Fill memory from a file.
    Read { file: F, offset: u64, mem: Mem, at: usize, len: usize },
    /// Put memory into a file.
    Write { file: F, offset: u64, mem: Mem, at: usize, len: usize },
    /// Put memory on a rail. `lend`: the network may read the memory itself, also after the `Done`; it stays unchanged until the peer's
    /// word that it has it.
    Send { socket: S, mem: Mem, at: usize, len: usize, lend: bool },
    /// Put memory on a rail, and behind it `bytes` of a file that nobody reads here. Errors: EINVAL, EOPNOTSUPP: it cannot be done so, and nothing
    /// went. Less than both together: the file was shorter, and zeros went in its place.
    SendFile { socket: S, mem: Mem, at: usize, len: usize, file: F, offset: u64, bytes: usize },
    /// Fill memory from a rail.
    Recv { socket: S, mem: Mem, at: usize, len: usize },
    /// A datagram socket, or the completion descriptor of a queue pair, has something (or was cut). Comes back with no bytes and an empty `Mem::Small`.
    Readable { socket: S },
}

/// What became of an op.
#[derive(Debug)]
pub struct Done {
    /// The submitter's own number.
    pub token: u64,
    /// Bytes moved; 0 is the end of file or of the stream.
    pub result: io::Result<usize>,
    /// The memory, back.
    pub mem: Mem,
}

/// Where a test may flip bits; on Linux nothing happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// After the source was hashed, before it is sealed.
    SourceBuf,
    /// After the received chunk's CRC was taken, before its digest is.
    SinkBuf,
}

/// Time, as the loop reads it.
pub trait Clock {
    /// Monotonic nanoseconds.
    fn now_ns(&self) -> u64;
    /// Nanoseconds this thread has been running, for telling work from waiting.
    fn busy_ns(&self) -> u64;
    /// By how many nanoseconds the clock that all hosts share (UTC) is ahead of `now_ns`. A clock that is wrong costs speed beside crowds, nothing else.
    fn shared_ahead_ns(&self) -> u64 {
        0
    }
}

/// Files, beyond the reads and writes that are ops.
pub trait Disk {
    /// An open file; clones share it.
    type File: Clone + Debug;
    /// Do reads and writes of this file never wait? Then they are made piece by piece, between hashing and sealing, on warm cache.
    fn is_at_once(&self, _file: &Self::File) -> bool {
        false
    }
    /// How many reads of this file its file system likes to have at once, as far as that is known; 0: it is not.
    fn reads_ahead(&self, _file: &Self::File) -> usize {
        0
    }
    /// Reads such a file.
    fn read_at_once(&self, _file: &Self::File, _offset: u64, _into: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Writes such a file.
    fn write_at_once(&self, _file: &Self::File, _offset: u64, _from: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// The same, unless another worker of this process is writing the file: `None`.
    fn try_write_at_once(&self, file: &Self::File, offset: u64, from: &[u8]) -> Option<io::Result<usize>> {
        Some(self.write_at_once(file, offset, from))
    }
    /// Bytes that devices read from bufs, or wrote into them, themselves, of all files so far.
    fn direct_bytes(&self) -> u64 {
        0
    }
}

/// Connected streams, beyond the sends and receives that are ops.
pub trait StreamIo {
    /// A connected rail; clones share it.
    type Socket: Clone + Debug;
    /// Cuts a rail: its pending ops end soon.
    fn cut(&mut self, socket: &Self::Socket);
    /// Makes a rail ready to be lent memory. False: it has to be copied.
    fn lend_ready(&mut self, _socket: &Self::Socket) -> bool {
        false
    }
    /// Bytes sent that the peer's kernel has not acknowledged, of a rail that is lent memory.
    fn unacknowledged(&self, _socket: &Self::Socket) -> u64 {
        0
    }
    /// Breaks a rail off at once: what it was lent is read no more.
    fn abort(&mut self, _socket: &Self::Socket) {}
}

/// Datagrams, in bursts. The loop makes these calls itself, and `Op::Readable` tells it when to look again.
///
/// A socket without a descriptor (AF_XDP in busy poll, DPDK, a ring in memory) has nothing that could be waited for: it is polled. The loop looks
/// at it in each iteration, does not sleep while it has such a rail, and never asks for a `Op::Readable` of it.
pub trait PacketIo: StreamIo {
    /// Is this socket polled? Asked once, when a rail begins with it.
    fn is_polled(&self, _socket: &Self::Socket) -> bool {
        false
    }
    /// Datagrams whose heads stand apart: packet `i` is `heads[i]` and the `i`-th `segment` bytes of `payload`, the last may have
    /// less. Returns how many went, from the front; `WouldBlock` for none. Never waits.
    fn send_burst(
        &mut self,
        socket: &Self::Socket,
        heads: &[[u8; PACKET_OVERHEAD]],
        payload: &[u8],
        segment: usize,
    ) -> io::Result<usize>;
    /// Datagrams that stand one after another, each `segment` bytes long, the last may be shorter; else as `send_burst`.
    fn send_sealed(&mut self, socket: &Self::Socket, bytes: &[u8], segment: usize) -> io::Result<usize>;
    /// Memory from which the network reads this socket's bursts itself; the caller fills a slot again only when the receiver's word on what
    /// left from it has come. `None`: it cannot be had here.
    fn burst_slots(&mut self, _socket: &Self::Socket, _bytes: usize) -> Option<Splicer> {
        None
    }
    /// Datagrams that came together, one after another; `WouldBlock` when there are none. Never waits.
    fn recv_burst(&mut self, socket: &Self::Socket, into: &mut [u8]) -> io::Result<Arrived>;
}

/// The head of a message: header and tags of the largest chunk, to a cache line. One size for all messages, since the queue of receives is shared by
/// jobs whose chunks differ, and payload has to stand page aligned behind it. 0.2 % of a chunk of 1 MiB.
pub const MESSAGE_HEAD_BYTES: usize =
    (SEALED_HEADER_BYTES + CHUNK_BYTES_MAX as usize / PIECE_BYTES * TAG_BYTES).next_multiple_of(64);

/// Queue pairs (RDMA, or what stands for it): messages with completions. The loop makes these calls itself; `Op::Readable` of the pair's socket, its
/// completion descriptor, tells it when to poll again. `cut` ends a pair as it does a stream.
pub trait PairIo: StreamIo {
    /// A connection that was agreed on, and whose queues are not made yet.
    type Connection: Debug + Send;
    /// Makes the queues. Errors: there is no such thing here, or no room for it.
    fn pair_up(&mut self, _connection: Self::Connection, _receives: Receives) -> io::Result<Self::Socket> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Sends a part of a buf as one message; the buf comes back as a completion with the token. See `sys::rdma`.
    fn post_send(&mut self, _pair: &Self::Socket, _token: u64, _buf: Buf, _at: usize, _len: usize) {
        unreachable!("no pair came up here")
    }
    /// Sends a word.
    fn post_word(&mut self, _pair: &Self::Socket, _word: Word) {
        unreachable!("no pair came up here")
    }
    /// One receive more in the queue that this pair shares with all of its device on this worker: one that a pair which is over has left, or a buf of
    /// the pool if more than `least` are free. False: neither is there.
    fn add_receive(&mut self, _pair: &Self::Socket, _least: usize) -> bool {
        unreachable!("no pair came up here")
    }
    /// The next completion of a pair. Never waits; after `None` its socket is readable when it is worth asking again.
    fn poll_pair(&mut self, _pair: &Self::Socket) -> Option<Completion> {
        unreachable!("no pair came up here")
    }
    /// A pair is over: its bufs go back to the pool. So many receives that were added for it were not used.
    fn pair_over(&mut self, _pair: &Self::Socket, _receives: usize) {}
    /// What this worker's pairs on the pair's device counted.
    fn pair_counts(&self, _pair: &Self::Socket) -> PairCounts {
        PairCounts::default()
    }
}

/// A world: the sum of what the loop needs, and the queue of ops.
pub trait Platform: Clock + Disk + StreamIo + PacketIo + PairIo {
    /// Where bytes come from.
    type Source: SourceTree<File = Self::File>;
    /// Where bytes go.
    type Sink: SinkTree<File = Self::File>;
    /// The bufs of this worker.
    fn pool(&mut self) -> &mut Pool;
    /// Queues an op.
    fn submit(&mut self, token: u64, op: Op<Self::File, Self::Socket>);
    /// Hands queued ops to the world without waiting.
    fn flush(&mut self);
    /// Hands over, then waits for a completion, a wake or the time; collects all completions there are.
    fn wait(&mut self, timeout_ns: u64, done: &mut Vec<Done>);
    /// The memory node that this worker and its bufs are held on, if they are.
    fn node(&self) -> Option<u16> {
        None
    }
    /// Test hook, see `Harm`.
    fn harm(&mut self, _at: Harm, _bytes: &mut [u8]) {}
}
