//! Connections of rdma_cm: dialled or let in, up to where a worker makes the queues.
//!
//! For: whoever dials queue pairs, and the door of a daemon. In and out: addresses and hellos in; [`Link`]s out.
//! Invariants: every wait has a deadline; a link has an event channel of its own, so that whoever owns it alone hears of it; nothing is accepted
//! here: that is the worker's, with its queues.
//! Absent on purpose: queues (`device`), what a hello means.

use std::ffi::{c_int, c_void};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use socket2::SockAddr;

use super::super::Facts;
use super::super::ffi::{self, event};
use super::own::answer;
use crate::event::{Interest, poll};

/// What the initiator says when it connects: at most what rdma_cm carries (56 bytes of private data in its port space TCP).
pub type Hello = [u8; 52];

/// Requests that wait for the door.
const BACKLOG: c_int = 64;

/// Makes the drivers that are in this program known, once. Before any other call.
pub(super) fn begin() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        for provider in super::providers::each() {
            let none = std::ptr::null_mut::<c_void>();
            // SAFETY: a list of pointers to `struct verbs_device_ops`, which live as long as the program, ended by a null pointer.
            unsafe { ffi::ibv_static_providers(none, provider, none) };
        }
    });
}

/// What an event says.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) id: NonNull<ffi::CmId>,
    pub(super) kind: c_int,
    pub(super) status: c_int,
    /// As many bytes as the wire has room for: what was said, and zeros.
    pub(super) data: Vec<u8>,
}

/// An event channel, which never blocks.
#[derive(Debug)]
pub(super) struct Channel(NonNull<ffi::EventChannel>);

// SAFETY: an event channel is a descriptor and may be used from any thread; this value is its only owner.
unsafe impl Send for Channel {}

impl Channel {
    fn new() -> io::Result<Channel> {
        begin();
        // SAFETY: no arguments; it opens /dev/infiniband/rdma_cm.
        let at = unsafe { ffi::rdma_create_event_channel() };
        let channel = Channel(NonNull::new(at).ok_or_else(io::Error::last_os_error)?);
        let flags = fcntl_getfl(&channel)?;
        fcntl_setfl(&channel, flags | OFlags::NONBLOCK)?;
        Ok(channel)
    }

    /// The next event, if there is one. It is acknowledged here: ids may be ended at any time.
    pub(super) fn next(&self) -> io::Result<Option<Said>> {
        let mut at = std::ptr::null_mut();
        // SAFETY: the channel is alive; the event's address is written to the local `at`.
        let code = unsafe { ffi::rdma_get_cm_event(self.0.as_ptr(), &raw mut at) };
        match answer(code) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            other => other?,
        }
        // SAFETY: a successful call has written the address of an event, which lives until it is acknowledged below.
        let event = unsafe { &*at };
        let mut data = Vec::new();
        if !event.conn.private_data.is_null() && event.kind_has_data() {
            let bytes = usize::from(event.conn.private_data_len);
            // SAFETY: the library promises `private_data_len` bytes at `private_data` for these events, until the acknowledgement.
            data.extend_from_slice(unsafe { std::slice::from_raw_parts(event.conn.private_data.cast::<u8>(), bytes) });
        }
        let id = NonNull::new(event.id).ok_or(io::ErrorKind::InvalidData)?;
        let said = Said { id, kind: event.event, status: event.status, data };
        // SAFETY: got above, acknowledged once, and not used after.
        answer(unsafe { ffi::rdma_ack_cm_event(at) })?;
        Ok(Some(said))
    }

    /// The event that is wanted next, or why it does not come.
    fn wait(&self, wanted: c_int, until: Instant) -> io::Result<()> {
        loop {
            match self.next()? {
                Some(said) if said.kind == wanted => return Ok(()),
                Some(said) => return Err(failed(&said)),
                None => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            poll(&[(self.as_fd(), Interest::Read)], Some(left))?;
        }
    }
}

impl ffi::CmEvent {
    /// Others leave the union as it was.
    fn kind_has_data(&self) -> bool {
        matches!(self.event, event::CONNECT_REQUEST | event::ESTABLISHED | event::REJECTED)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is alive as long as this value.
        let fd = unsafe { self.0.as_ref() }.fd;
        // SAFETY: the channel's descriptor is open until the channel is destroyed, which is when this value goes.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: alive until here; its ids are gone (`Link` and `PairListener` drop theirs first).
        unsafe { ffi::rdma_destroy_event_channel(self.0.as_ptr()) };
    }
}

/// An event that says no.
pub(super) fn failed(said: &Said) -> io::Error {
    let words = match said.kind {
        event::REJECTED => return io::Error::new(io::ErrorKind::ConnectionRefused, "the peer refused the queue pair"),
        event::DEVICE_REMOVAL => "the RDMA device is gone",
        1 => "no RDMA device leads to that address",
        3 => "no route between the RDMA devices",
        6 | 7 => "the peer's RDMA device does not answer",
        _ => "the RDMA connection failed",
    };
    match said.status {
        ..0 => io::Error::other(format!("{words} ({})", io::Error::from_raw_os_error(-said.status))),
        _ => io::Error::other(words),
    }
}

/// An id of rdma_cm; its queue pair, if it has one, ends before it.
#[derive(Debug)]
struct Id(NonNull<ffi::CmId>);

impl Id {
    fn new(channel: &Channel) -> io::Result<Id> {
        let mut at = std::ptr::null_mut();
        // SAFETY: the channel is alive; the id's address is written to the local `at`.
        answer(unsafe {
            ffi::rdma_create_id(channel.0.as_ptr(), &raw mut at, std::ptr::null_mut(), ffi::RDMA_PS_TCP)
        })?;
        NonNull::new(at).map(Id).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn get(&self) -> &ffi::CmId {
        // SAFETY: alive as long as this value, its only owner; the library writes to it in calls alone that are made through it.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        if !self.get().qp.is_null() {
            // SAFETY: the id is alive and has a queue pair, which nobody uses any more.
            unsafe { ffi::rdma_destroy_qp(self.0.as_ptr()) };
        }
        // SAFETY: alive until here; all its events were acknowledged when they were taken.
        let _ = unsafe { ffi::rdma_destroy_id(self.0.as_ptr()) };
    }
}

/// Which end of a connection this is, and what is said with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Dials(Hello),
    Accepts,
}

/// A connection that has a device and no queues yet. Dropped without them it is refused, or never was.
#[derive(Debug)]
pub struct Link {
    id: Id,
    channel: Channel,
    role: Role,
}

// SAFETY: one owner, and the library's calls may come from any thread.
unsafe impl Send for Link {}

impl Link {
    /// Finds the device and the way to a peer's door. `device`: no other. Waits at most `patience`.
    ///
    /// # Errors
    /// No device leads there, or not this one; TimedOut.
    pub fn dial(
        to: SocketAddr,
        from: Option<IpAddr>,
        device: Option<&str>,
        hello: Hello,
        patience: Duration,
    ) -> io::Result<Link> {
        let until = Instant::now() + patience;
        let ms = c_int::try_from(patience.as_millis()).unwrap_or(c_int::MAX);
        let channel = Channel::new()?;
        let id = Id::new(&channel)?;
        let to = SockAddr::from(to);
        let from = from.map(|it| SockAddr::from(SocketAddr::new(it, 0)));
        let source = from.as_ref().map_or(std::ptr::null(), |it| it.as_ptr()).cast_mut();
        // SAFETY: the id is alive; both addresses are whole, and read in the call alone.
        answer(unsafe { ffi::rdma_resolve_addr(id.0.as_ptr(), source.cast(), to.as_ptr().cast_mut().cast(), ms) })?;
        channel.wait(event::ADDR_RESOLVED, until)?;
        // SAFETY: the id is alive.
        answer(unsafe { ffi::rdma_resolve_route(id.0.as_ptr(), ms) })?;
        channel.wait(event::ROUTE_RESOLVED, until)?;
        let link = Link { id, channel, role: Role::Dials(hello) };
        match device {
            Some(wanted) if link.device() != wanted => {
                Err(io::Error::other(format!("the way there is over {}, not over {wanted}", link.device())))
            }
            _ => Ok(link),
        }
    }

    /// The name of its device.
    #[must_use]
    pub fn device(&self) -> String {
        name_of(self.context())
    }

    /// What carries it.
    #[must_use]
    pub fn facts(&self) -> Facts {
        let id = self.id.get();
        // enum ibv_mtu: 1 is 256 bytes, each further one twice that.
        let mtu = self.port().map_or(0, |port| 128 << port.active_mtu.clamp(0, 8));
        Facts { device: self.device(), port: id.port_num, gid: Ipv6Addr::from(id.sgid), mtu }
    }

    pub(super) fn port(&self) -> io::Result<ffi::PortAttr> {
        let mut port = ffi::PortAttr::default();
        // SAFETY: the context is open; what is known of the port is written to the local `port`, which has its size.
        answer(unsafe { ffi::ibv_query_port(self.context(), self.id.get().port_num, &raw mut port) })?;
        Ok(port)
    }

    pub(super) fn context(&self) -> *mut ffi::Context {
        self.id.get().verbs
    }

    pub(super) fn id(&self) -> *mut ffi::CmId {
        self.id.0.as_ptr()
    }

    pub(super) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Its queue pair; null before it was made, and after it was ended.
    pub(super) fn queue_pair(&self) -> *mut ffi::Qp {
        self.id.get().qp
    }

    /// Is this the end that dialled?
    pub(super) fn dials(&self) -> bool {
        self.role != Role::Accepts
    }

    /// Connects or accepts: the queue pair was made. What comes of it is told by an event.
    pub(super) fn go(&self) -> io::Result<()> {
        let mut param = ffi::ConnParam {
            private_data: std::ptr::null(),
            private_data_len: 0,
            // Of one-sided reads, which are not used.
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: 1,
            retry_count: 7,
            // Without end: credits make it unused, and it is the net below them.
            rnr_retry_count: 7,
            srq: 0,
            qp_num: 0,
        };
        if let Role::Dials(hello) = &self.role {
            (param.private_data, param.private_data_len) = (hello.as_ptr().cast(), hello.len() as u8);
            // SAFETY: the id is alive and has a queue pair; `param` and what it names are read in the call alone.
            return answer(unsafe { ffi::rdma_connect(self.id(), &raw mut param) });
        }
        // SAFETY: as above.
        answer(unsafe { ffi::rdma_accept(self.id(), &raw mut param) })
    }

    /// Takes leave; the queue pair then gives back what was posted. One that is not connected needs no leave.
    pub(super) fn leave(&self) {
        // SAFETY: the id is alive.
        let _ = unsafe { ffi::rdma_disconnect(self.id()) };
    }

    /// Ends the queue pair: from here on the device touches no memory for it.
    pub(super) fn end_queues(&self) {
        if !self.queue_pair().is_null() {
            // SAFETY: the id is alive and has a queue pair; it is null afterwards.
            unsafe { ffi::rdma_destroy_qp(self.id()) };
        }
    }
}

/// The name of a device.
pub(super) fn name_of(context: *mut ffi::Context) -> String {
    if context.is_null() {
        return String::new();
    }
    // SAFETY: contexts of rdma_cm stay open as long as the process.
    let device = unsafe { (*context).device };
    // SAFETY: a context names its device, whose name is 64 bytes.
    let name = unsafe { (*device).name };
    name.iter().take_while(|it| **it != 0).map(|it| *it as u8 as char).collect()
}

/// Somebody who dials.
#[derive(Debug)]
pub struct Request {
    /// What it says.
    pub hello: Hello,
    link: Link,
}

impl Request {
    /// To a worker.
    #[must_use]
    pub fn accept(self) -> Link {
        self.link
    }

    /// No.
    pub fn refuse(self) {
        // SAFETY: the id is alive, and was neither accepted nor refused.
        let _ = unsafe { ffi::rdma_reject(self.link.id(), std::ptr::null(), 0) };
    }

    /// The name of the device by which it came.
    #[must_use]
    pub fn device(&self) -> String {
        self.link.device()
    }
}

/// Where queue pairs are let in.
#[derive(Debug)]
pub struct PairListener {
    id: Id,
    channel: Channel,
}

// SAFETY: as for `Link`.
unsafe impl Send for PairListener {}

impl PairListener {
    /// Listens on every device that has this address (an unspecified one: all of them), in rdma_cm's own port space. The kernel takes calls
    /// on what is opened here from a process with the same rights alone: first those are given up.
    ///
    /// # Errors
    /// ENODEV: no such device, or the kernel has no rdma_cm; EADDRINUSE.
    pub fn open(at: SocketAddr) -> io::Result<PairListener> {
        let channel = Channel::new()?;
        let mut count = 0;
        // SAFETY: the number of devices is written to the local `count`. The list stays: so do the devices.
        let all = unsafe { ffi::rdma_get_devices(&raw mut count) };
        if all.is_null() || count == 0 {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        let id = Id::new(&channel)?;
        let at = SockAddr::from(at);
        // SAFETY: the id is alive; the address is read in the call alone.
        answer(unsafe { ffi::rdma_bind_addr(id.0.as_ptr(), at.as_ptr().cast_mut().cast()) })?;
        // SAFETY: the id is alive and bound.
        answer(unsafe { ffi::rdma_listen(id.0.as_ptr(), BACKLOG) })?;
        Ok(PairListener { id, channel })
    }

    /// Who dials next, if somebody does. Never waits: the door's descriptor is readable when there may be one.
    ///
    /// # Errors
    /// Descriptors; a request that is none is refused without a word.
    pub fn next(&self) -> io::Result<Option<Request>> {
        while let Some(said) = self.channel.next()? {
            if said.kind != event::CONNECT_REQUEST || said.id == self.id.0 {
                continue;
            }
            let id = Id(said.id);
            // Without a descriptor left for it, it is refused, and the next may have more luck.
            let Ok(channel) = Channel::new() else { continue };
            // SAFETY: both are alive; the request's event was acknowledged when it was taken.
            if answer(unsafe { ffi::rdma_migrate_id(id.0.as_ptr(), channel.0.as_ptr()) }).is_err() {
                continue;
            }
            let link = Link { id, channel, role: Role::Accepts };
            match said.data.first_chunk() {
                Some(&hello) => return Ok(Some(Request { hello, link })),
                None => Request { hello: [0; 52], link }.refuse(),
            }
        }
        Ok(None)
    }
}

impl AsFd for PairListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
