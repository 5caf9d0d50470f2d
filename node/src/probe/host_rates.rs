//! What a core of this host carries over TCP and over UDP: measured once for each process, in some milliseconds.
//!
//! For: the forecast, which said a fixed 2.5 Gbit/s for every core that was ever made.
//! In and out: nothing → bit/s of one core at one end, for each transport.
//! Invariants: processor time, so what else runs here does not count (the forecast counts that by itself); over loopback, so no packet leaves the
//! host; what cannot be measured is a figure of one machine of 2026.
//! Absent on purpose: NICs and their drivers (a loopback interface has none: what is found is an upper bound), disks, the other end.
//!
//! A byte costs an end: one copy from or to the page cache, its digest, its cipher, and the socket. Send and receive of a loopback pair are added
//! and halved, because the sender's call does most of the receiver's protocol work there.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::OnceLock;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use sys::clock::thread_cpu_ns;

/// Where it is not measured: what a core carried sealed over loopback-like links (docs/design/004-auto-and-migration.md).
const FALLBACK_BPS: f64 = 2.5e9;
/// Bytes of a round: they stay in a core's own cache, as what a worker has in hand does.
const ROUND_BYTES: usize = 57_600;
/// Payload of a datagram over Ethernet, 40 of which are one burst.
const PACKET_BYTES: usize = 1440;
/// Rounds of which the quickest counts: the first finds cold caches, and any may meet an interrupt.
const ROUNDS: usize = 8;

/// What a core of an end carries, bit/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostRates {
    /// Over TCP.
    pub tcp_core_bps: f64,
    /// Over UDP, in bursts of ordinary packets.
    pub udp_core_bps: f64,
}

impl HostRates {
    /// Where nobody measures.
    pub const UNMEASURED: HostRates = HostRates { tcp_core_bps: FALLBACK_BPS, udp_core_bps: FALLBACK_BPS };
}

/// Measured by whoever asks first; others wait for that.
#[must_use]
pub fn host_rates() -> HostRates {
    static RATES: OnceLock<HostRates> = OnceLock::new();
    *RATES.get_or_init(measure)
}

fn measure() -> HostRates {
    let mut bytes = vec![0x5a; ROUND_BYTES];
    let work = own_ns(&mut bytes, ROUND_BYTES);
    let tcp = tcp_ns(&mut bytes).map(|socket| work + socket / 2.0);
    let packets = own_ns(&mut bytes, PACKET_BYTES);
    let udp = udp_ns(&mut bytes).map(|socket| packets + socket / 2.0);
    let bps = |ns: io::Result<f64>| ns.map_or(FALLBACK_BPS, |ns| ROUND_BYTES as f64 * 8e9 / ns.max(1.0));
    HostRates { tcp_core_bps: bps(tcp), udp_core_bps: bps(udp) }
}

/// Of the quickest round, ns of this thread's processor time.
fn quickest(mut round: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let mut least = u64::MAX;
    for _ in 0..ROUNDS {
        let began = thread_cpu_ns();
        round()?;
        least = least.min(thread_cpu_ns() - began);
    }
    Ok(least as f64)
}

/// Copy, digest and cipher of a round, sealed in pieces of so many bytes.
fn own_ns(bytes: &mut [u8], piece_bytes: usize) -> f64 {
    let Ok(key) = UnboundKey::new(&AES_128_GCM, &[7; 16]).map(LessSafeKey::new) else { return 0.0 };
    let source = bytes.to_vec();
    let mut nonce = 0u64;
    let done = quickest(|| {
        bytes.copy_from_slice(&source);
        std::hint::black_box(blake3::hash(bytes));
        for piece in bytes.chunks_mut(piece_bytes) {
            nonce += 1;
            let mut words = [0; 12];
            words[4..].copy_from_slice(&nonce.to_le_bytes());
            let sealed = key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(words), Aad::empty(), piece);
            let _ = std::hint::black_box(sealed.is_ok());
        }
        Ok(())
    });
    done.unwrap_or(0.0)
}

/// A round there and its reading, over TCP.
fn tcp_ns(bytes: &mut [u8]) -> io::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    // Fits any send and receive buffer together, so that neither call waits for the other.
    near.set_nodelay(true)?;
    quickest(|| {
        near.write_all(bytes)?;
        far.read_exact(bytes)
    })
}

/// A round there and its reading, over UDP, with the offloads that the kernel has.
fn udp_ns(bytes: &mut [u8]) -> io::Result<f64> {
    let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let (near, _) = sys::udp::open(None, far.local_addr()?, 1 << 20, 1 << 20)?;
    let _ = sys::udp::set_joining(&far, true);
    // A datagram that was dropped is not waited for.
    far.set_nonblocking(true)?;
    quickest(|| {
        let mut sent = 0;
        while sent < bytes.len() {
            let packets = sys::udp::send_sealed(&near, &bytes[sent..], PACKET_BYTES)?;
            sent += packets * PACKET_BYTES;
        }
        let mut came = 0;
        while came < bytes.len() {
            came += sys::udp::recv_burst(&far, &mut bytes[came..])?.bytes;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_measured_once_in_milliseconds_and_carries_what_cores_carry() {
        let began = std::time::Instant::now();
        let rates = host_rates();
        let took = began.elapsed();
        // Built without optimisation a digest takes ten times as long; no host of today does less than 50 Mbit/s or more than 400 Gbit/s.
        for bps in [rates.tcp_core_bps, rates.udp_core_bps] {
            assert!((5e7..4e11).contains(&bps), "{rates:?} in {took:?}");
        }
        assert_eq!(host_rates(), rates, "the second question is answered from memory");
    }

    #[test]
    fn each_part_is_measured_here_and_not_made_up() {
        let mut bytes = vec![1; ROUND_BYTES];
        assert!(own_ns(&mut bytes, ROUND_BYTES) > 0.0);
        assert!(tcp_ns(&mut bytes).expect("a loopback pair") > 0.0);
        assert!(udp_ns(&mut bytes).expect("a loopback pair") > 0.0);
    }
}
