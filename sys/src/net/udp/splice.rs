//! Bursts out without the kernel's copy: pages of ours travel as they are.
//!
//! What it is for: sealed packets. Sealing writes each packet once into memory of the [`Splicer`]; the network then reads that memory
//! itself, where a plain send would copy it once more.
//! In: packets one after another in a slot. Out: how many were taken.
//! Invariants: the kernel reads a slot after `send` has returned, so the memory belongs to the `Splicer` alone, is handed out only for
//! filling, and holds nothing but what was to be sent anyway: whatever is read too late is a packet whose tag does not hold, which is a
//! loss, and never somebody's secret or a wrong byte that is believed. **So only bytes under a tag, or under a digest that is checked
//! before they are believed, may be sent from here.**
//! How it is known that a slot may be filled again: the kernel lets no more bytes wait unsent than the socket's send buffer, and
//! `new` insists on more slots than that. Where delivery is local (loopback, veth, a bridge) the socket is told "sent" when the packet
//! is in the receiver's queue, whose reader still reads our page: there the slots should hold that queue as well. A caller that hears
//! from the receiver what has arrived knows better (`for_answered`).
//! Absent on purpose: heads apart from payload (each piece takes one of the 16 to 17 fragments an skb has, so a burst would be six
//! packets long, and slower than a copy); SPLICE_F_GIFT, which would give the page away and say nothing about when.
//! Sources: splice(2), vmsplice(2); kernel fs/splice.c (splice_to_socket: 16 pages per message, Linux 6.5), net/ipv4/ip_output.c
//! (MSG_SPLICE_PAGES), net/ipv4/ip_input.c (ip_rcv_core drops the sender's hold).
//! Measured: Linux 6.18, 2 cores, veth, 2026-11, 1472-byte packets that are written (memcpy) before each send: 41 to 46 Gb/s against 25
//! to 31 of plain sends; from a ring of 8 MiB 36 to 44, from one of 32 MiB, beyond the cache, 26 to 40.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;

use super::send::{BURST_BYTES_MAX, HEAD_BYTES, SEGMENTS_MAX};
use crate::host::event::{Interest, poll};
use crate::mem::{Buf, Pool};
use crate::net::pipe::Pipe;
use crate::net::sock::set_option;

/// Memory of one burst: 16 pages, the most that one message takes, hold the longest burst.
const SLOT_BYTES: usize = 64 << 10;

/// Slots of memory, and a pipe through which their pages go to one socket.
#[derive(Debug)]
pub struct Splicer {
    socket: Arc<OwnedFd>,
    pipe: Pipe,
    slots: Vec<Buf>,
    /// The slot to be filled.
    next: usize,
    /// What the socket is set to.
    segment: usize,
}

impl Splicer {
    /// For a connected UDP socket, with so much memory (whole slots of 64 KiB). First it sends itself a burst over loopback, because
    /// kernels before 6.5 take the same calls and copy, or cut otherwise.
    /// Errors: EINVAL: less memory than the socket's send buffer may hold unsent; EOPNOTSUPP: the burst did not come as it was sent;
    /// ENOMEM, and those of pipes.
    pub fn new(socket: Arc<OwnedFd>, memory_bytes: usize) -> io::Result<Splicer> {
        // The kernel's figure: what may wait, and one burst more (sock_wait_for_wmem compares before it adds).
        let waiting = sockopt::socket_send_buffer_size(&socket)? + 2 * SLOT_BYTES;
        if memory_bytes < waiting {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        try_over_loopback()?;
        Splicer::open(socket, memory_bytes / SLOT_BYTES)
    }

    /// As `new`, for a caller that fills a slot again only when the receiver's word on all that left from it has come, however much the
    /// socket may hold: so that is not asked. Errors: as there, and EINVAL for less than a slot.
    pub fn for_answered(socket: Arc<OwnedFd>, memory_bytes: usize) -> io::Result<Splicer> {
        if memory_bytes < SLOT_BYTES {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        try_over_loopback()?;
        Splicer::open(socket, memory_bytes / SLOT_BYTES)
    }

    /// How many bursts its memory holds.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Whether `new` would find this kernel fit. Errors: as there.
    pub fn probe() -> io::Result<()> {
        try_over_loopback()
    }

    fn open(socket: Arc<OwnedFd>, count: usize) -> io::Result<Splicer> {
        let mut pool = Pool::new(count, SLOT_BYTES)?;
        let slots = std::iter::from_fn(|| pool.take()).collect();
        Ok(Splicer { socket, pipe: Pipe::new()?, slots, next: 0, segment: 0 })
    }

    /// Memory for the next burst: 65,507 bytes of it can be sent. What it holds was sent long ago.
    pub fn slot(&mut self) -> &mut [u8] {
        &mut self.slots[self.next].payload_mut()[..SLOT_BYTES]
    }

    /// As [`send_burst`](super::send_burst), by way of the slot: heads and slices are copied into it. What the kernel would do in fresh
    /// memory of its own, which it must find, and give back on the receiver's core, this does in memory that is warm. At most 64 packets
    /// and 65,507 bytes; more is a bug and panics. Errors: as `send`.
    pub fn send_burst(
        &mut self,
        heads: &[[u8; HEAD_BYTES]],
        payload: &[u8],
        segment_payload: usize,
    ) -> io::Result<usize> {
        assert!(segment_payload > 0 && heads.len() == payload.len().div_ceil(segment_payload), "one head per packet");
        let packets = self.slot().chunks_mut(HEAD_BYTES + segment_payload);
        for ((packet, head), part) in packets.zip(heads).zip(payload.chunks(segment_payload)) {
            packet[..HEAD_BYTES].copy_from_slice(head);
            packet[HEAD_BYTES..HEAD_BYTES + part.len()].copy_from_slice(part);
        }
        self.send(heads.len() * HEAD_BYTES + payload.len(), HEAD_BYTES + segment_payload)
    }

    /// Sends the first `bytes` bytes of the slot as packets of `segment` bytes, the last may be shorter; at most 64 packets and 65,507
    /// bytes, more is a bug and panics. Says how many packets were taken: all of them, and the next slot is to be filled; or none, and
    /// the error: see `udp`. The slot keeps its bytes then, for another try.
    ///
    /// The socket is left set to `segment`; `send_burst` and `send_sealed` name their own, but a plain send(2) would be cut by it.
    pub fn send(&mut self, bytes: usize, segment: usize) -> io::Result<usize> {
        let packets = bytes.div_ceil(segment);
        assert!(bytes <= BURST_BYTES_MAX && packets <= SEGMENTS_MAX, "{packets} packets in {bytes} bytes");
        if self.segment != segment {
            set_option(self.socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, segment as u32)?;
            self.segment = segment;
        }
        let filled = self.pipe.fill(&self.slots[self.next].payload()[..bytes]).and_then(|moved| whole(moved, bytes));
        let sent = filled.and_then(|()| self.pipe.empty_into(self.socket.as_fd(), bytes));
        if let Err(error) = sent.and_then(|moved| whole(moved, bytes)) {
            // What stays in the pipe would go out before the next burst.
            self.pipe = Pipe::new()?;
            return Err(error);
        }
        self.next = (self.next + 1) % self.slots.len();
        Ok(packets)
    }
}

/// A burst that went in part is no burst.
fn whole(moved: usize, wanted: usize) -> io::Result<()> {
    if moved == wanted { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)) }
}

/// A burst of three pages' worth must come as the packets it was.
fn try_over_loopback() -> io::Result<()> {
    const BYTES: usize = 10_500;
    const EACH: usize = 1000;
    const PATIENCE: Duration = Duration::from_millis(500);
    let here = super::bind(([127, 0, 0, 1], 0).into(), false)?;
    let (there, _) = super::open(None, super::local_addr(&here)?, 0, 0)?;
    let mut splicer = Splicer::open(Arc::new(there), 1)?;
    for (number, packet) in splicer.slot()[..BYTES].chunks_mut(EACH).enumerate() {
        packet.fill(number as u8);
    }
    splicer.send(BYTES, EACH)?;
    let mut into = vec![0; SLOT_BYTES];
    let mut came = 0;
    while came < BYTES.div_ceil(EACH) {
        // It comes within the send, or soon after on a busy machine.
        let ready = poll(&[(here.as_fd(), Interest::Read)], Some(PATIENCE))?;
        if !ready[0].any() {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let arrived = super::recv_burst(&here, &mut into)?;
        for packet in arrived.packets().map(|range| &into[range]) {
            let expected = EACH.min(BYTES - came * EACH);
            if packet.len() != expected || packet.iter().any(|byte| usize::from(*byte) != came) {
                return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
            }
            came += 1;
        }
    }
    Ok(())
}
