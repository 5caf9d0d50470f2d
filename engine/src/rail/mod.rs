//! Rails: one path each: a stream (TCP, or the socket pair of a local copy), datagrams, or a queue pair (RDMA).
//!
//! For: frames and packets onto a path and off it.
//! In and out: filled chunks in, in the order of readiness out; the receiving half the other way.
//! Invariants: frames of a rail are sealed in the order in which they are sent (nonces count); a rail is over only when all its ops are back
//! (`worker::slots` counts them); a step knows its own rail only, and returns what is next to the loop, the only caller.
//! Absent on purpose: choosing a rail (`proto::send`), files (`ends`).
//!
//! A rail that places ranges by itself is one more variant: where it has put a chunk into memory or into its file, and checked it, it returns
//! `Next::Landed`, as a datagram rail does today for chunks that became whole on disk.

pub(crate) mod base; // what every rail has
mod slices; // what a bound lets pass of a frame
mod zero_copy; // frames whose memory the network reads itself
mod unread; // payloads that go from their file unread
pub mod stream; // steps for stream rails
pub mod datagram; // steps for datagram rails
pub(crate) mod rdma; // steps for queue pairs
pub mod plain; // a file's bytes and nothing else

use std::fmt::Debug;

use proto::rate::RateConfig;
use sys::mem::Buf;

use crate::ends::feed::Feed;
use crate::platform::Platform;
use crate::rail::base::Base;
use crate::rail::datagram::Datagram;
use crate::rail::rdma::Rdma;
use crate::rail::stream::Stream;

/// One path of one job.
#[derive(Debug)]
pub(crate) enum Rail<P: Platform> {
    /// Frames one after another.
    Stream(Box<Stream<P>>),
    /// Units in packets.
    Datagram(Box<Datagram<P>>),
    /// Frames as messages of a queue pair.
    Rdma(Box<Rdma<P>>),
}

impl<P: Platform> Rail<P> {
    /// What every rail has.
    pub(crate) fn base(&self) -> &Base<P> {
        match self {
            Rail::Stream(it) => &it.base,
            Rail::Datagram(it) => &it.wire.base,
            Rail::Rdma(it) => &it.base,
        }
    }

    /// The same, to be changed.
    pub(crate) fn base_mut(&mut self) -> &mut Base<P> {
        match self {
            Rail::Stream(it) => &mut it.base,
            Rail::Datagram(it) => &mut it.wire.base,
            Rail::Rdma(it) => &mut it.base,
        }
    }

    /// The chunks that wait for it, if it sends.
    pub(crate) fn feed(&mut self) -> Option<&mut Feed<P::File>> {
        match self {
            Rail::Stream(it) => it.feed(),
            Rail::Datagram(it) => it.feed(),
            Rail::Rdma(it) => it.feed(),
        }
    }

    /// Does it send in packets?
    pub(crate) fn datagram(&mut self) -> Option<&mut Datagram<P>> {
        match self {
            Rail::Stream(_) | Rail::Rdma(_) => None,
            Rail::Datagram(it) => Some(it),
        }
    }

    /// Has it nothing to send, although there is more to read?
    pub(crate) fn is_starved(&self) -> bool {
        match self {
            Rail::Stream(it) => it.is_starved(),
            Rail::Datagram(it) => it.is_starved(),
            Rail::Rdma(it) => it.is_starved(),
        }
    }

    /// Do chunks come in here?
    pub(crate) fn is_receiving(&self) -> bool {
        match self {
            Rail::Stream(it) => it.is_receiving(),
            Rail::Datagram(it) => it.is_receiving(),
            Rail::Rdma(it) => it.is_receiving(),
        }
    }

    /// Has it memory from which the network reads bursts itself?
    pub(crate) fn lends_bursts(&self) -> bool {
        matches!(self, Rail::Datagram(it) if it.lends_bursts())
    }

    /// Another rate from now on, where the rail keeps one.
    pub(crate) fn set_rate(&mut self, now_ns: u64, change: impl FnOnce(RateConfig) -> RateConfig) {
        match self {
            Rail::Stream(_) | Rail::Rdma(_) => {}
            Rail::Datagram(it) => it.set_rate(now_ns, change),
        }
    }

    /// May the network still read memory of this rail's frames?
    pub(crate) fn is_read_by_network(&self) -> bool {
        match self {
            Rail::Stream(it) => it.is_read_by_network(),
            // What left from its slots, and may be read still, is no buf.
            Rail::Datagram(_) => false,
            // A posted buf is an op in flight until its completion.
            Rail::Rdma(_) => false,
        }
    }

    /// The rail is over: its bufs, one after another.
    pub(crate) fn give_bufs(self, give: impl FnMut(Buf)) {
        match self {
            Rail::Stream(it) => it.give_bufs(give),
            Rail::Datagram(it) => it.give_bufs(give),
            Rail::Rdma(it) => it.give_bufs(give),
        }
    }
}
