//! Super-packets: what one read of a TUN device holds, cut back into the packets that the wire would have carried.
//!
//! For: the delay line, which asks how many packets there are and how long each is; the emulator, which writes runs of them.
//! In and out: a virtio header and an IP packet → its `Shape`; a run of its packets → the headers that run has by itself.
//! Invariants: a run's bytes are those that the kernel's own segmentation would have made (sequence number, IP id, lengths, flags,
//! checksum of the pseudo header); nothing here panics, whatever the bytes are: what is not understood is one packet, unchanged.
//! Absent on purpose: time and chance (link.rs), and copies of payload but for the rare packet that is to be harmed.
//!
//! ```text
//! 0       1       2         4         6           8            10
//! | flags | type  | hdr_len | gso_size| csum_start| csum_offset| IP header | TCP or UDP header | payload ...
//! |<- struct virtio_net_hdr, little endian (linux/virtio_net.h) ->|<-------- headers -------->|<- step ->|<- step ->|..
//! ```

use std::ops::Range;

use sys::tun::VNET_HEADER_BYTES as VNET;

/// Room for the headers of a run: virtio header, IPv4 with all options (60) or IPv6 with extensions, TCP with all options (60).
pub const HEAD_BYTES_MAX: usize = 256;

const NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;
const TCP: u8 = 6;
const UDP: u8 = 17;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// How a packet of the TUN device is made up. All in bytes, without the virtio header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Headers and payload.
    pub bytes: u32,
    /// Packets on the wire, at least 1.
    pub count: u16,
    /// Headers that each of them repeats; 0 when there is one packet.
    head_bytes: u16,
    /// Payload of each but the last; 0 when there is one packet.
    step: u16,
}

fn le(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |two| u16::from_le_bytes([two[0], two[1]]))
}

fn be(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |two| u16::from_be_bytes([two[0], two[1]]))
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[expect(clippy::cast_possible_truncation, reason = "lengths inside of one IP packet, at most 65535")]
fn short(bytes: usize) -> u16 {
    bytes as u16
}

impl Shape {
    /// Of what a read gave: virtio header and packet.
    #[must_use]
    pub fn of(read: &[u8]) -> Shape {
        let packet = read.get(VNET..).unwrap_or_default();
        let bytes = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        let single = Shape { bytes, count: 1, head_bytes: 0, step: 0 };
        if read.len() < VNET + 20 || read[1] == GSO_NONE {
            return single;
        }
        let step = le(read, 4);
        let start = usize::from(le(read, 6));
        let head = match read[1] & !GSO_ECN {
            GSO_TCPV4 | GSO_TCPV6 => packet.get(start + 12).map(|byte| start + (usize::from(byte >> 4) * 4).max(20)),
            GSO_UDP_L4 => Some(start + 8),
            _ => None,
        };
        match head {
            Some(head)
                if step != 0
                    && start >= 20
                    && head >= start + 8
                    && head < packet.len()
                    && head + VNET <= HEAD_BYTES_MAX =>
            {
                let count = (packet.len() - head).div_ceil(usize::from(step));
                if count == 1 {
                    return single;
                }
                Shape { bytes, count: u16::try_from(count).unwrap_or(u16::MAX), head_bytes: short(head), step }
            }
            _ => single,
        }
    }

    /// Bytes of the packet with this number, as IP counts them.
    #[must_use]
    pub fn packet_bytes(&self, index: u16) -> u32 {
        if self.count == 1 {
            return self.bytes;
        }
        let payload = self.payload(index..index + 1);
        u32::from(self.head_bytes) + u32::try_from(payload.len()).unwrap_or(0)
    }

    /// Headers that each packet repeats, 0 when there is one packet.
    #[must_use]
    pub fn head_bytes(&self) -> u16 {
        self.head_bytes
    }

    /// Where the payload of a run lies in the packet.
    fn payload(&self, run: Range<u16>) -> Range<usize> {
        let at = |index: u16| usize::from(self.head_bytes) + usize::from(index) * usize::from(self.step);
        let end = self.bytes as usize;
        at(run.start).min(end)..if run.end >= self.count { end } else { at(run.end).min(end) }
    }
}

/// The headers of a run of packets, and where its payload lies in `read`. A run of all of them needs none: the read itself goes out,
/// unless `marked` (congestion experienced) must be written into it.
pub fn cut<'a>(
    read: &'a [u8],
    shape: &Shape,
    run: Range<u16>,
    marked: bool,
    head: &'a mut [u8; HEAD_BYTES_MAX],
) -> (&'a [u8], &'a [u8]) {
    let is_all = run.start == 0 && run.end >= shape.count;
    if is_all && (!marked || read.len() < VNET) {
        return (&[], read);
    }
    if is_all {
        let bytes = (VNET + 40).min(read.len());
        head[..bytes].copy_from_slice(&read[..bytes]);
        mark(&mut head[VNET..bytes]);
        return (&head[..bytes], &read[bytes..]);
    }
    let head_bytes = VNET + usize::from(shape.head_bytes);
    let payload = shape.payload(run.clone());
    let head = &mut head[..head_bytes];
    head.copy_from_slice(&read[..head_bytes]);
    let is_tcp = head[1] & !GSO_ECN != GSO_UDP_L4;
    if run.len() == 1 {
        head[1] = GSO_NONE;
        head[4..6].fill(0);
    } else if run.start > 0 {
        head[1] &= !GSO_ECN;
    }
    head[2..4].copy_from_slice(&shape.head_bytes.to_le_bytes());
    let start = usize::from(le(head, 6));
    let headers = &mut head[VNET..];
    let (ip, transport) = headers.split_at_mut(start);
    let transport_bytes = transport.len() + payload.len();
    set_lengths(ip, transport_bytes, run.start);
    if is_tcp {
        set_tcp(transport, shape, &run);
    } else {
        put(transport, 4, short(transport_bytes));
    }
    let (protocol, at) = if is_tcp { (TCP, 16) } else { (UDP, 6) };
    put(transport, at, pseudo(ip, protocol, transport_bytes));
    if marked {
        mark(ip);
    }
    (head, &read[VNET + payload.start..VNET + payload.end])
}

fn set_tcp(tcp: &mut [u8], shape: &Shape, run: &Range<u16>) {
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    let sequence = sequence.wrapping_add(u32::from(run.start) * u32::from(shape.step));
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    // net/ipv4/tcp_offload.c, tcp_gso_segment: FIN and PSH belong to the last packet, CWR to the first.
    if run.end < shape.count {
        tcp[13] &= !(FIN | PSH);
    }
    if run.start > 0 {
        tcp[13] &= !CWR;
    }
}

/// Total length, id and header checksum of IPv4; payload length of IPv6.
fn set_lengths(ip: &mut [u8], transport_bytes: usize, first: u16) {
    if ip[0] >> 4 == 4 {
        put(ip, 2, short(ip.len() + transport_bytes));
        // net/ipv4/af_inet.c, inet_gso_segment: one id after the other.
        put(ip, 4, be(ip, 4).wrapping_add(first));
        set_ip_sum(ip);
    } else {
        put(ip, 4, short(ip.len() - 40.min(ip.len()) + transport_bytes));
    }
}

fn set_ip_sum(ip: &mut [u8]) {
    let header_bytes = (usize::from(ip[0] & 15) * 4).clamp(20, ip.len().max(20));
    let Some(header) = ip.get_mut(..header_bytes) else { return };
    put(header, 10, 0);
    let sum = !fold(add(0, header));
    put(header, 10, sum);
}

/// Writes "congestion experienced" into an IP header that says its transport understands it (RFC 3168, 5).
fn mark(ip: &mut [u8]) {
    if ip.len() >= 20 && ip[0] >> 4 == 4 && ip[1] & 3 != 0 {
        ip[1] |= 3;
        set_ip_sum(ip);
    } else if ip.len() >= 40 && ip[0] >> 4 == 6 && ip[1] >> 4 & 3 != 0 {
        ip[1] |= 3 << 4;
    }
}

/// Can the packet take a mark?
#[must_use]
pub fn takes_mark(read: &[u8]) -> bool {
    match read.get(VNET..VNET + 2) {
        Some(ip) if ip[0] >> 4 == 4 => ip[1] & 3 != 0,
        Some(ip) if ip[0] >> 4 == 6 => ip[1] >> 4 & 3 != 0,
        _ => false,
    }
}

/// The sum that the kernel expects in a checksum which is still to be made: of the pseudo header, not inverted (RFC 9293, 3.1).
fn pseudo(ip: &[u8], protocol: u8, transport_bytes: usize) -> u16 {
    let addresses = if ip[0] >> 4 == 4 { ip.get(12..20) } else { ip.get(8..40) };
    fold(add(u64::from(protocol) + transport_bytes as u64, addresses.unwrap_or_default()))
}

/// Adds 16-bit words in network order (RFC 1071).
fn add(mut sum: u64, bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(2);
    for word in &mut words {
        sum += u64::from(u16::from_be_bytes([word[0], word[1]]));
    }
    if let [last] = words.remainder() {
        sum += u64::from(*last) << 8;
    }
    sum
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the loop ends at 16 bits")]
    let sum = sum as u16;
    sum
}

/// Makes one packet of a super-packet whole in `out`, checksum included, and turns the bit with this number (counted over the
/// packet, modulo its length): as a wire would that the receiver's checksum sees through.
pub fn harm(read: &[u8], shape: &Shape, index: u16, bit: u64, out: &mut Vec<u8>) {
    let mut space = [0; HEAD_BYTES_MAX];
    let (head, payload) = cut(read, shape, index..index + 1, false, &mut space);
    out.clear();
    out.extend_from_slice(head);
    out.extend_from_slice(payload);
    finish_sum(out);
    let packet = out.get_mut(VNET..).unwrap_or_default();
    let bits = packet.len() as u64 * 8;
    if let Some(at) = bit.checked_rem(bits) {
        packet[usize::try_from(at / 8).unwrap_or(0)] ^= 1 << (at % 8);
    }
}

/// Does what the kernel left to the device: the checksum of the transport.
fn finish_sum(read: &mut [u8]) {
    if read.len() < VNET || read[0] & NEEDS_CSUM == 0 {
        return;
    }
    let (start, offset) = (usize::from(le(read, 6)), usize::from(le(read, 8)));
    read[..VNET].fill(0);
    let Some(transport) = read.get_mut(VNET + start..) else { return };
    if transport.len() < offset + 2 {
        return;
    }
    let sum = !fold(add(0, transport));
    // RFC 768: zero would say that there is none.
    put(transport, offset, if sum == 0 && offset == 6 { 0xffff } else { sum });
}

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
