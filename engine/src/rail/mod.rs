//! Rails: one path each: a stream (TCP, or the socket pair of a local copy), or datagrams.
//!
//! For: frames and packets onto a path and off it.
//! In and out: filled chunks in, in the order of readiness out; the receiving half the other way.
//! Invariants: frames of a rail are sealed in the order in which they are sent (nonces count); a rail is over only when all its ops are back
//! (`worker::slots` counts them); a step knows its own rail only, and returns what is next to the loop, the only caller.
//! Absent on purpose: choosing a rail (`proto::send`), files (`ends`).
//!
//! A rail that places ranges by itself is one more variant: where it has put a chunk into memory or into its file, and checked it, it returns
//! `Next::Landed`, as a datagram rail does today for chunks that became whole on disk.

pub mod stream; // steps for stream rails
pub mod datagram; // steps for datagram rails

use std::fmt::Debug;
use std::sync::Arc;

use proto::rate::RateConfig;
use proto::wire::chunk::Header;
use proto::wire::control::Digest;
use sys::mem::Buf;

use crate::ends::feed::Feed;
use crate::job::{JobNo, RailEnd};
use crate::platform::Platform;
use crate::rail::datagram::Datagram;
use crate::rail::stream::Stream;
use crate::worker::bound::Bound;

/// What comes after a step; the loop does it.
#[derive(Debug)]
pub(crate) enum Next {
    /// Nothing: this rail has no more to do for now.
    Idle,
    /// A header came on a stream: once the sink admits it, its payload may be received.
    Announced(Header),
    /// A payload came: it is to be opened and to land.
    Received { header: Header, buf: Buf },
    /// A chunk is in its place already, and was checked there.
    Landed { header: Header, digest: Digest },
    /// A unit is to be read again, for which the loop finds a buf.
    WantsBuf,
    /// The rail ends.
    Broken(RailEnd),
}

/// What every rail has.
#[derive(Debug)]
pub(crate) struct Base<P: Platform> {
    /// Whose it is.
    pub(crate) job: JobNo,
    /// Its number, as both ends name it.
    pub(crate) number: u16,
    /// Its connection.
    pub(crate) socket: P::Socket,
    /// The bound of all rails of the job together.
    pub(crate) bound: Arc<Bound>,
    /// Backpressure: too much waits for the destination's disk, no new frames for now.
    pub(crate) paused: bool,
    end: Option<RailEnd>,
}

impl<P: Platform> Base<P> {
    /// Of a new rail.
    pub(crate) fn new(job: JobNo, number: u16, socket: P::Socket, bound: Arc<Bound>) -> Self {
        Base { job, number, socket, bound, paused: false, end: None }
    }

    /// The rail has ended; only the first reason counts.
    pub(crate) fn end(&mut self, end: RailEnd) {
        self.end.get_or_insert(end);
    }

    /// The rail ends for a reason of ours: its ops come back soon.
    pub(crate) fn break_off(&mut self, platform: &mut P, end: RailEnd) {
        self.end(end);
        platform.cut(&self.socket);
    }

    /// Does nothing new begin here?
    pub(crate) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Why it ended.
    pub(crate) fn take_end(&mut self) -> RailEnd {
        self.end.take().unwrap_or(RailEnd::Cut)
    }
}

/// One path of one job.
#[derive(Debug)]
pub(crate) enum Rail<P: Platform> {
    /// Frames one after another.
    Stream(Box<Stream<P>>),
    /// Units in packets.
    Datagram(Box<Datagram<P>>),
}

impl<P: Platform> Rail<P> {
    /// What every rail has.
    pub(crate) fn base(&self) -> &Base<P> {
        match self {
            Rail::Stream(it) => &it.base,
            Rail::Datagram(it) => &it.wire.base,
        }
    }

    /// The same, to be changed.
    pub(crate) fn base_mut(&mut self) -> &mut Base<P> {
        match self {
            Rail::Stream(it) => &mut it.base,
            Rail::Datagram(it) => &mut it.wire.base,
        }
    }

    /// The chunks that wait for it, if it sends.
    pub(crate) fn feed(&mut self) -> Option<&mut Feed<P::File>> {
        match self {
            Rail::Stream(it) => it.feed(),
            Rail::Datagram(it) => it.feed(),
        }
    }

    /// Does it send in packets?
    pub(crate) fn datagram(&mut self) -> Option<&mut Datagram<P>> {
        match self {
            Rail::Stream(_) => None,
            Rail::Datagram(it) => Some(it),
        }
    }

    /// Has it nothing to send, although there is more to read?
    pub(crate) fn is_starved(&self) -> bool {
        match self {
            Rail::Stream(it) => it.is_starved(),
            Rail::Datagram(it) => it.is_starved(),
        }
    }

    /// Do chunks come in here?
    pub(crate) fn is_receiving(&self) -> bool {
        match self {
            Rail::Stream(it) => it.is_receiving(),
            Rail::Datagram(it) => it.is_receiving(),
        }
    }

    /// Has it memory from which the network reads bursts itself?
    pub(crate) fn lends_bursts(&self) -> bool {
        matches!(self, Rail::Datagram(it) if it.lends_bursts())
    }

    /// Another rate from now on, where the rail keeps one.
    pub(crate) fn set_rate(&mut self, now_ns: u64, change: impl FnOnce(RateConfig) -> RateConfig) {
        match self {
            Rail::Stream(_) => {}
            Rail::Datagram(it) => it.set_rate(now_ns, change),
        }
    }

    /// May the network still read memory of this rail's frames?
    pub(crate) fn is_read_by_network(&self) -> bool {
        match self {
            Rail::Stream(it) => it.is_read_by_network(),
            // What left from its slots, and may be read still, is no buf.
            Rail::Datagram(_) => false,
        }
    }

    /// The rail is over: its bufs, one after another.
    pub(crate) fn give_bufs(self, give: impl FnMut(Buf)) {
        match self {
            Rail::Stream(it) => it.give_bufs(give),
            Rail::Datagram(it) => it.give_bufs(give),
        }
    }
}
