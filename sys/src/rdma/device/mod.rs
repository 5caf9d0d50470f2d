//! Queue pairs of a device: verbs, one shared receive queue for all that receive.
//!
//! For: `rdma`, where the feature is in this build. In and out: as `rdma`.
//! Invariants: the pool's region outlives its registration, which outlives all queues; a buf whose work was posted stays here until its completion
//! came or its queue was destroyed (until then the device may touch it); a pair's completion descriptor is an epoll set of its completion channel,
//! its events of rdma_cm, and a timer for the time in which it has to be connected.
//! Absent on purpose: asynchronous events of the context: what ends a pair shows as a completion with an error or as an event of rdma_cm.

mod link; // connections of rdma_cm
mod own; // what the library made, and its answers
mod pair; // one queue pair
mod providers; // drivers in this program

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

pub use self::link::{Hello, Link, PairListener, Request};
use self::own::{Own, answer};
use self::pair::{Pair, What};
use super::{Completion, Connection, Counts, Queues, Receives, Registration, Word, ffi};
use crate::mem::{Buf, HEADROOM, Mapping};

/// Drivers of devices in this program.
pub(super) use self::providers::NAMES as PROVIDERS;

/// Memory that the device may touch.
#[derive(Debug)]
struct Region(Own<ffi::Mr>);

impl Region {
    /// Errors: ENOMEM where RLIMIT_MEMLOCK is too small.
    fn new(pd: &Own<ffi::Pd>, start: *mut u8, bytes: usize) -> io::Result<Region> {
        // SAFETY: the range is mapped and stays so: whoever makes a region owns the memory longer (fields in that order).
        let at = unsafe { ffi::ibv_reg_mr(pd.at(), start.cast(), bytes, ffi::IBV_ACCESS_LOCAL_WRITE) };
        Own::new(at, ffi::ibv_dereg_mr).map(Region).map_err(|error| locked(&error, bytes))
    }

    fn key(&self) -> u32 {
        // SAFETY: alive as long as this value.
        unsafe { (*self.0.at()).lkey }
    }
}

/// Memory that cannot be locked, in words that say what to do.
fn locked(error: &io::Error, bytes: usize) -> io::Error {
    let mib = bytes.div_ceil(1 << 20);
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EAGAIN | libc::EPERM) => io::Error::new(
            io::ErrorKind::OutOfMemory,
            format!(
                "{mib} MiB of bufs could not be locked for the RDMA device: raise RLIMIT_MEMLOCK (`ulimit -l`, or LimitMEMLOCK=infinity in the unit)"
            ),
        ),
        _ => io::Error::new(
            error.kind(),
            format!("{mib} MiB of bufs could not be registered with the RDMA device: {error}"),
        ),
    }
}

/// The shared receive queue, and what stands in it.
#[derive(Debug)]
struct Shared {
    /// Made when a pair receives, gone with the last of them: so that bufs come back.
    queue: Option<Own<ffi::Srq>>,
    /// Bufs in it by their slot of the pool, each with its own registration where there is no common one.
    posted: Vec<Option<(Buf, Option<Region>)>>,
    count: usize,
    /// The whole pool, registered.
    region: Option<Region>,
    pd: Own<ffi::Pd>,
    mapping: Arc<Mapping>,
    head_bytes: usize,
    counts: Counts,
    context: *mut ffi::Context,
}

// SAFETY: the context is used by calls that any thread may make, and stays open as long as the process.
unsafe impl Send for Shared {}

impl Shared {
    /// The key of a part of a buf, and its registration if it is its own.
    fn key(&mut self, buf: &Buf, at: usize, len: usize) -> io::Result<(u32, Option<Region>)> {
        if let Some(region) = &self.region {
            return Ok((region.key(), None));
        }
        // SAFETY: callers have checked that the part lies in the buf.
        let start = unsafe { buf.start().add(at) };
        let region = Region::new(&self.pd, start, len)?;
        self.counts.regions += 1;
        self.counts.registered_bytes += len as u64;
        Ok((region.key(), Some(region)))
    }

    /// Longest message.
    fn message_bytes(&self) -> usize {
        self.head_bytes + self.mapping.payload_bytes()
    }

    fn post(&mut self, buf: Buf) {
        let (index, len) = (buf.index(), self.message_bytes());
        let at = HEADROOM - self.head_bytes;
        let made = self.key(&buf, at, len);
        // SAFETY: head and payload end at the buf's end.
        let start = unsafe { buf.start().add(at) };
        // One that could not be registered, or that the queue did not take, waits here for the queue's end: its credit is never used.
        if let (Some(queue), Ok((lkey, _))) = (&self.queue, &made) {
            let mut sge = ffi::Sge { addr: start as u64, length: len as u32, lkey: *lkey };
            let mut work =
                ffi::RecvWr { wr_id: index as u64, next: std::ptr::null_mut(), sg_list: &raw mut sge, num_sge: 1 };
            let mut bad = std::ptr::null_mut();
            let srq = queue.at();
            // SAFETY: contexts of rdma_cm stay open as long as the process.
            let post = unsafe { (*self.context).ops.post_srq_recv };
            // SAFETY: the queue is alive; the work and its part list are read in the call; the memory stays until the completion (`posted`).
            let _ = unsafe { post(srq, &raw mut work, &raw mut bad) };
        }
        self.posted[index] = Some((buf, made.ok().and_then(|it| it.1)));
        self.count += 1;
    }

    /// A receive that was used.
    fn take(&mut self, index: usize) -> Option<Buf> {
        let (buf, _own) = self.posted.get_mut(index)?.take()?;
        self.count -= 1;
        Some(buf)
    }

    /// The queue is there from now on.
    fn open(&mut self, most: u32) -> io::Result<*mut ffi::Srq> {
        if let Some(queue) = &self.queue {
            return Ok(queue.at());
        }
        let wanted = u32::try_from(self.posted.len()).unwrap_or(u32::MAX).min(most);
        let mut attr = ffi::SrqInitAttr { srq_context: std::ptr::null_mut(), max_wr: wanted, max_sge: 1, srq_limit: 0 };
        // SAFETY: the domain is alive; `attr` is read and written in the call.
        let at = unsafe { ffi::ibv_create_srq(self.pd.at(), &raw mut attr) };
        let queue = Own::new(at, ffi::ibv_destroy_srq)?;
        let at = queue.at();
        self.queue = Some(queue);
        Ok(at)
    }
}

/// What a device allows.
#[derive(Debug, Clone, Copy)]
struct Limits {
    receives: u32,
    works: u32,
    completions: u32,
}

/// One worker's queue pairs on one device.
#[derive(Debug)]
pub(super) struct Device {
    // In the order in which they end.
    pairs: Vec<Pair>,
    shared: Shared,
    limits: Limits,
}

impl Device {
    /// Registers the pool's mapping on the link's device, once and whole, or each part when it is posted.
    ///
    /// # Errors
    /// OutOfMemory (RLIMIT_MEMLOCK), and whatever the driver says.
    pub(super) fn new(link: &Link, mapping: &Arc<Mapping>, head_bytes: usize, how: Registration) -> io::Result<Device> {
        let context = link.context();
        let mut attr = ffi::DeviceAttr { words: [0; 58] };
        // SAFETY: the context is open; the device's figures are written to the local `attr`, which has their size.
        answer(unsafe { ffi::ibv_query_device(context, &raw mut attr) })?;
        let of = |at: usize| attr.words[at];
        let (works, completions) = (of(ffi::device::MAX_QP_WR), of(ffi::device::MAX_CQE));
        let limits = Limits { works, completions, receives: of(ffi::device::MAX_SRQ_WR) };
        let port = link.port()?;
        let most = head_bytes + mapping.payload_bytes();
        if most > port.max_msg_sz as usize {
            let text = format!(
                "{} sends at most {} bytes at once, and a chunk has {most}: use a smaller --chunk",
                link.device(),
                port.max_msg_sz
            );
            return Err(io::Error::other(text));
        }
        // SAFETY: the context is open.
        let pd = Own::new(unsafe { ffi::ibv_alloc_pd(context) }, ffi::ibv_dealloc_pd)?;
        let mut counts = Counts::default();
        let region = match how {
            Registration::Each => None,
            Registration::Whole => {
                (counts.regions, counts.registered_bytes) = (1, mapping.bytes() as u64);
                Some(Region::new(&pd, mapping.start(), mapping.bytes())?)
            }
        };
        let slots = mapping.bytes() / mapping.stride();
        let posted = (0..slots).map(|_| None).collect();
        let mapping = Arc::clone(mapping);
        let shared = Shared { queue: None, posted, count: 0, region, pd, mapping, head_bytes, counts, context };
        Ok(Device { pairs: Vec::new(), shared, limits })
    }

    fn at(&mut self, pair: RawFd) -> (&mut Pair, &mut Shared) {
        let pair = self.pairs.iter_mut().find(|it| it.name() == pair);
        (pair.expect("a pair is named by its completion descriptor until it is detached"), &mut self.shared)
    }
}

impl Queues for Device {
    fn takes(&self, connection: &Connection) -> bool {
        matches!(connection, Connection::Device(link) if link.context() == self.shared.context)
    }

    fn attach(&mut self, connection: Connection, receives: Receives) -> io::Result<Arc<OwnedFd>> {
        let Connection::Device(link) = connection else { return Err(io::ErrorKind::Unsupported.into()) };
        let queue = match receives {
            Receives::Frames => self.shared.open(self.limits.receives)?,
            Receives::Words => std::ptr::null_mut(),
        };
        let pair = Pair::new(*link, receives, (queue, self.shared.posted.len()), self.limits, &self.shared.pd)?;
        let name = pair.descriptor();
        self.pairs.push(pair);
        Ok(name)
    }

    fn has(&self, pair: RawFd) -> bool {
        self.pairs.iter().any(|it| it.name() == pair)
    }

    fn post_send(&mut self, pair: RawFd, token: u64, buf: Buf, at: usize, len: usize) {
        let (pair, shared) = self.at(pair);
        assert!(Arc::ptr_eq(buf.mapping(), &shared.mapping), "what is sent is registered");
        pair.post(shared, What::Frame { token, buf, at, len });
    }

    fn post_word(&mut self, pair: RawFd, word: Word) {
        let (pair, shared) = self.at(pair);
        pair.post(shared, What::Word(word));
    }

    fn post_receive(&mut self, buf: Buf) {
        assert!(Arc::ptr_eq(buf.mapping(), &self.shared.mapping), "what is received into is registered");
        self.shared.post(buf);
    }

    fn receives(&self) -> usize {
        self.shared.count
    }

    fn take_receive(&mut self) -> Option<Buf> {
        if self.pairs.iter().any(|it| it.uses_queue()) {
            return None;
        }
        if let Some(queue) = self.shared.queue.take()
            && let Err((queue, error)) = queue.end()
            // Where the device is gone, so is the queue.
            && error.raw_os_error() != Some(libc::EIO)
        {
            self.shared.queue = Some(queue);
            return None;
        }
        let index = self.shared.posted.iter().position(Option::is_some)?;
        self.shared.take(index)
    }

    fn poll(&mut self, pair: RawFd) -> Option<Completion> {
        let (pair, shared) = self.at(pair);
        pair.poll(shared)
    }

    fn cut(&mut self, pair: RawFd) {
        let (pair, shared) = self.at(pair);
        pair.die(shared, Some(io::ErrorKind::ConnectionAborted.into()));
    }

    fn detach(&mut self, pair: RawFd, give: &mut dyn FnMut(Buf)) -> usize {
        self.cut(pair);
        let index = self.pairs.iter().position(|it| it.name() == pair).expect("seen by `cut`");
        self.pairs.swap_remove(index).give_rest(give)
    }

    fn counts(&self) -> Counts {
        self.shared.counts
    }
}
