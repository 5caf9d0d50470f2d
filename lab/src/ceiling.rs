//! What the emulator itself can carry.
//!
//! For: `longhaul lab measure --limit`, and the table of docs/lab.md. In and out: a link with neither rate nor delay → Gbit/s and
//! millions of wire packets a second that came through it, over TCP, UDP with segmentation, and UDP packet by packet.
//! Invariants: what is counted is what the receiver got; both ends and the emulator run on this machine's cores, so the figures
//! are the lab's, not the emulator's thread's alone.
//! Absent on purpose: verdicts.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use sys::clock::now_ns;
use sys::{netns, udp};

use crate::hosts::{Lab, Making, Side, address4};
use crate::settings::LinkSettings;

const PORT: u16 = 5742;
const SECONDS: u64 = 3;
/// Bytes that may be on their way: less than what the devices and the socket hold, so that the sender does not outrun the rest.
const WINDOW_BYTES: u64 = 4 << 20;
/// What was asked of the socket's buffers.
const BUFFER_BYTES: u64 = 32 << 20;
/// Headers of UDP and of TCP with timestamps, over IPv4.
const UDP_HEADERS: u64 = 28;
const TCP_HEADERS: u64 = 52;

/// What came through.
struct Passed {
    bytes: u64,
    packets: u64,
    ns: u64,
}

/// Measures and prints a line for each.
///
/// # Errors
/// A lab could not be made, or a socket not be used.
pub fn run(making: Making<'_>) -> anyhow::Result<u8> {
    println!("{:<6} {:<28} {:>10} {:>10}  emulator", "MTU", "what", "Gbit/s", "Mpackets/s");
    for mtu in [1500, 9000] {
        let payload = mtu - u32::try_from(UDP_HEADERS)?;
        // 65507 bytes are the most that one UDP send takes.
        let burst = 65_507 / payload;
        show(mtu, "TCP", making, |lab| tcp(lab, u64::from(mtu)))?;
        show(mtu, "UDP with segmentation", making, |lab| datagrams(lab, payload, burst))?;
        show(mtu, "UDP packet by packet", making, |lab| datagrams(lab, payload, 1))?;
    }
    show(1500, "UDP, 64 × 64 B", making, |lab| datagrams(lab, 64, 64))?;
    show(1500, "UDP, 64 B", making, |lab| datagrams(lab, 64, 1))?;
    Ok(0)
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn show(
    mtu: u32,
    what: &str,
    making: Making<'_>,
    measure: impl FnOnce(&Lab) -> anyhow::Result<Passed>,
) -> anyhow::Result<()> {
    let mut lab = Lab::make(&[LinkSettings { mtu, ..LinkSettings::default() }], making)?;
    let passed = measure(&lab)?;
    let told = lab.stop();
    let seconds = passed.ns as f64 / 1e9;
    let gigabits = passed.bytes as f64 * 8e-9 / seconds;
    let millions = passed.packets as f64 * 1e-6 / seconds;
    let [there, back] = told[0].map(|told| told.cpu_ns as f64 / passed.ns as f64 * 100.0);
    let lost = told[0][0].counts.packets_in - told[0][0].counts.packets_out;
    println!(
        "{mtu:<6} {what:<28} {gigabits:>10.2} {millions:>10.3}  {there:.0} % + {back:.0} % of a core, {lost} lost in it"
    );
    Ok(())
}

fn at(side: Side) -> SocketAddr {
    SocketAddr::from((address4(0, side), PORT))
}

fn tcp(lab: &Lab, mtu: u64) -> anyhow::Result<Passed> {
    let listener = netns::inside(&lab.hosts[1], || TcpListener::bind(at(Side::B))).context("a listener")?;
    let mut sender = netns::inside(&lab.hosts[0], || {
        let stream = TcpStream::connect(at(Side::B))?;
        // The machine's default may pace, which is not what is asked here; where there is no CUBIC it stays.
        let _ = sys::sock::set_congestion(&stream, "cubic");
        Ok(stream)
    })
    .context("a connection")?;
    let (mut receiver, _) = listener.accept()?;
    let mut got = vec![0_u8; 1 << 20];
    let start_ns = now_ns();
    let mut bytes = 0;
    std::thread::scope(|scope| -> anyhow::Result<()> {
        scope.spawn(move || {
            let block = vec![0x5a_u8; 1 << 20];
            // Ends when the receiver is dropped.
            while sender.write_all(&block).is_ok() {}
        });
        while now_ns() - start_ns < SECONDS * 1_000_000_000 {
            bytes += receiver.read(&mut got)? as u64;
        }
        drop(receiver);
        Ok(())
    })?;
    let ns = now_ns() - start_ns;
    let packets = bytes / (mtu - TCP_HEADERS);
    Ok(Passed { bytes: bytes + packets * TCP_HEADERS, packets, ns })
}

fn datagrams(lab: &Lab, payload: u32, burst: u32) -> anyhow::Result<Passed> {
    let open = |side: Side, other: Side| {
        let made = || udp::open(Some(at(side)), at(other), BUFFER_BYTES, BUFFER_BYTES);
        netns::inside(&lab.hosts[side.index()], made).map(|(fd, _)| fd).context("a socket")
    };
    let (a, b) = (open(Side::A, Side::B)?, open(Side::B, Side::A)?);
    udp::set_joining(&b, true)?;
    let (arrived, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let start_ns = now_ns();
    let mut packets = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| blast(&a, payload, burst, &arrived, &stop));
        let mut memory = vec![0_u8; 65_536];
        while now_ns() - start_ns < SECONDS * 1_000_000_000 {
            match udp::recv_burst(&b, &mut memory) {
                Ok(burst) => {
                    packets += burst.bytes.div_ceil(burst.segment.max(1)) as u64;
                    arrived.fetch_add(burst.bytes as u64, Ordering::Relaxed);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let _ = sys::event::poll(
                        &[(std::os::fd::AsFd::as_fd(&b), sys::event::Interest::Read)],
                        Some(Duration::from_millis(1)),
                    );
                }
                // An error of an earlier send, which is not this socket's.
                Err(_) => {}
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let ns = now_ns() - start_ns;
    Ok(Passed { bytes: packets * (u64::from(payload) + UDP_HEADERS), packets, ns })
}

/// Sends while less than a window is on its way. What was lost would close the window for good: after a pause it is written off.
fn blast(socket: &OwnedFd, payload: u32, burst: u32, arrived: &AtomicU64, stop: &AtomicBool) {
    let bytes = vec![0x5a_u8; (payload * burst) as usize];
    let (mut sent, mut written_off, mut moved_ns) = (0, 0, now_ns());
    while !stop.load(Ordering::Relaxed) {
        let done = arrived.load(Ordering::Relaxed) + written_off;
        if sent > done + WINDOW_BYTES {
            if now_ns() - moved_ns > 20_000_000 {
                written_off += sent - done;
            }
            std::thread::sleep(Duration::from_micros(50));
            continue;
        }
        moved_ns = now_ns();
        match udp::send_sealed(socket, &bytes, payload as usize) {
            Ok(packets) => sent += packets as u64 * u64::from(payload),
            Err(_) => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}
