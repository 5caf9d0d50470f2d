//! The socket's own ceilings over UDP: packets that nobody looks at.
//!
//! For: what the kernel gives on these cores by each way of handing packets over, before a transport takes its share.
//! In and out: a connected stream, over which the two ends tell each other their ports → what this end moved and spent.
//! Invariants: the sender never waits, so what is too fast for the receiver is lost, and the report says how much; the receiver's clock
//! runs from the first packet to the last.
//! Absent on purpose: repair, seals, rates (the datagram rail).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvFlags, SendFlags};
use sys::event::{self, Interest};
use sys::mem::{Buf, Pool};
use sys::udp::{self, Arrived, BURST_BYTES_MAX, HEAD_BYTES, How, SEGMENTS_MAX, Splicer};
use sys::{clock, sock};

use super::bare::{STALL, Watch};
use super::way::{Datagram, Side};

impl Datagram {
    /// This kernel can send so.
    #[must_use]
    pub fn is_possible(self) -> bool {
        !self.splices() || Splicer::probe().is_ok()
    }

    fn splices(self) -> bool {
        matches!(self, Datagram::Spliced | Datagram::Copied)
    }

    /// The receiver's socket joins packets.
    fn joins(self) -> bool {
        !matches!(self, Datagram::Each | Datagram::Batched | Datagram::Cut)
    }
}

/// Socket buffers of both ends: net.core.rmem_max of most systems is less, and then the kernel grants that.
const SOCKET_BYTES: u64 = 4 << 20;
/// Packets in a call of `Batched`; `sys` receives so many at most.
const BATCH: usize = 16;
/// What is sent from, again and again: a chunk.
const CHUNK_BYTES: usize = 1 << 20;
/// Pages that the network reads; more than SOCKET_BYTES of packets may wait.
const SPLICE_BYTES: usize = 12 << 20;
/// What a receiver sleeps that does not wait: so long that it then finds several bursts, so short that a path's jitter is more.
const NAP: Duration = Duration::from_micros(50);
/// How long a receiver waits before it asks whether the sender has ended.
const ASK: Duration = Duration::from_millis(5);

/// A UDP socket beside a stream, connected to the one that the other end has beside it; it blocks, for at most `ASK` when receiving.
pub(super) fn beside(stream: &OwnedFd) -> anyhow::Result<OwnedFd> {
    let (mut here, mut there): (SocketAddr, SocketAddr) = (sock::local_addr(stream)?, sock::peer_addr(stream)?);
    here.set_port(0);
    let socket = udp::bind(here, false)?;
    udp::size_buffers(&socket, SOCKET_BYTES, SOCKET_BYTES)?;
    // Both say theirs, then both listen: four bytes never wait for a buffer.
    rustix::io::write(stream, &udp::local_addr(&socket)?.port().to_be_bytes())?;
    let mut port = [0; 2];
    for byte in port.chunks_mut(1) {
        anyhow::ensure!(readable(stream, STALL)?, "the other end did not name its port");
        anyhow::ensure!(rustix::io::read(stream, byte)? == 1, "the other end has closed");
    }
    there.set_port(u16::from_be_bytes(port));
    udp::connect(&socket, there)?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(ASK))?;
    Ok(socket)
}

fn readable(stream: &OwnedFd, patience: Duration) -> io::Result<bool> {
    Ok(event::poll(&[(stream.as_fd(), Interest::Read)], Some(patience))?[0].any())
}

/// Packets until the time is over.
///
/// # Errors
/// No memory, no such way on this kernel, packets larger than the interface takes, or nobody there.
pub fn send(
    stream: &OwnedFd,
    (how, packet_bytes): (Datagram, u16),
    ready: impl FnOnce(),
    time: Duration,
) -> anyhow::Result<Side> {
    let socket = Arc::new(beside(stream)?);
    let mut sender = Sender::new(socket, how, packet_bytes.into())?;
    ready();
    let (watch, end) = (Watch::start(), Instant::now() + time);
    let mut bytes = 0;
    while Instant::now() < end {
        bytes += sender.send()? as u64;
    }
    Ok(watch.side(bytes))
}

struct Sender {
    socket: Arc<OwnedFd>,
    how: Datagram,
    packet_bytes: usize,
    buf: Buf,
    /// Where in the chunk the next burst begins.
    at: usize,
    heads: [[u8; HEAD_BYTES]; SEGMENTS_MAX],
    splicer: Option<Splicer>,
}

impl Sender {
    fn new(socket: Arc<OwnedFd>, how: Datagram, packet_bytes: usize) -> io::Result<Sender> {
        let mut buf = Pool::new(1, CHUNK_BYTES)?.take().expect("it was made with one");
        buf.payload_mut().fill(0x5a);
        let splicer = match how.splices() {
            true => Some(Splicer::new(Arc::clone(&socket), SPLICE_BYTES)?),
            false => None,
        };
        let heads = [[0x5a; HEAD_BYTES]; SEGMENTS_MAX];
        Ok(Sender { socket, how, packet_bytes, buf, at: 0, heads, splicer })
    }

    /// One burst; says how many bytes were sent.
    fn send(&mut self) -> io::Result<usize> {
        let longest = (BURST_BYTES_MAX / self.packet_bytes).min(SEGMENTS_MAX);
        let packets = if self.how == Datagram::Batched { BATCH.min(longest) } else { longest };
        let (each, whole) = (self.packet_bytes, packets * self.packet_bytes);
        let at = if self.at + whole > CHUNK_BYTES { 0 } else { self.at };
        self.at = at + whole;
        let bytes = &self.buf.payload()[at..at + whole];
        let taken = match (self.how, &mut self.splicer) {
            (Datagram::Each, _) => {
                for packet in bytes.chunks(each) {
                    rustix::net::send(&self.socket, packet, SendFlags::NOSIGNAL)?;
                }
                packets
            }
            (Datagram::Batched, _) => udp::send_by(&self.socket, How::Batched, bytes, each)?,
            (Datagram::Gathered, _) => {
                let part = each - HEAD_BYTES;
                udp::send_burst(&self.socket, &self.heads[..packets], &bytes[..packets * part], part)?
            }
            (Datagram::Copied, Some(splicer)) => {
                let part = each - HEAD_BYTES;
                splicer.send_burst(&self.heads[..packets], &bytes[..packets * part], part)?
            }
            (Datagram::Spliced, Some(splicer)) => splicer.send(whole, each)?,
            _ => udp::send_sealed(&self.socket, bytes, each)?,
        };
        Ok(taken * each)
    }
}

/// Packets until the stream beside them ends.
///
/// # Errors
/// No memory, the sender went away without a word, or nothing comes.
pub fn recv(stream: &OwnedFd, (how, packet_bytes): (Datagram, u16), ready: impl FnOnce()) -> anyhow::Result<Side> {
    let socket = beside(stream)?;
    udp::set_joining(&socket, how.joins())?;
    let each = if how.joins() { 1 << 16 } else { usize::from(packet_bytes) };
    let mut into = vec![0x5a; BATCH * each];
    let mut arrived = [Arrived::default(); BATCH];
    if how == Datagram::Napping {
        rustix::io::ioctl_fionbio(&socket, true)?;
        udp::fine_timers()?;
    }
    ready();
    let (mut watch, mut bytes, mut last_ns, begun) = (None, 0, 0, Instant::now());
    loop {
        let step = match how {
            Datagram::Each | Datagram::Cut => rustix::net::recv(&socket, &mut into[..each], RecvFlags::empty())
                .map(|(_, moved)| moved)
                .map_err(Into::into),
            Datagram::Batched | Datagram::Bursts => udp::recv_bursts(&socket, &mut into, each, &mut arrived)
                .map(|came| arrived[..came].iter().map(|it| it.bytes).sum()),
            Datagram::Burst | Datagram::Napping | Datagram::Gathered | Datagram::Spliced | Datagram::Copied => {
                udp::recv_burst(&socket, &mut into[..each]).map(|it| it.bytes)
            }
        };
        match step {
            Ok(moved) => {
                watch.get_or_insert_with(Watch::start);
                bytes += moved as u64;
                last_ns = clock::now_ns();
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                if how == Datagram::Napping {
                    std::thread::sleep(NAP);
                    if clock::now_ns().saturating_sub(last_ns) < ASK.as_nanos() as u64 {
                        continue;
                    }
                }
                // Its end comes after its last packet: what is not here by now was lost.
                if readable(stream, Duration::ZERO)? {
                    return Ok(watch.map_or_else(Side::default, |watch: Watch| watch.side_until(bytes, last_ns)));
                }
                let silent = last_ns == 0 && begun.elapsed() >= STALL;
                anyhow::ensure!(!silent, "no packet came for {} s: does a firewall drop UDP?", STALL.as_secs());
            }
            Err(error) => return Err(error.into()),
        }
    }
}
