//! The engine's datagram rail, from an empty source to an empty sink.
//!
//! For: what the product itself reaches over UDP with everything that makes it reliable (numbers, tags, feedback, repairs, rate) and no disk.
//! In and out: a connected stream, over which the ends tell each other their ports, terms and a time → what this end moved and spent.
//! Invariants: worker, rail and flow are those of every job; the sender ends when the receiver has all that was sent, so each byte that is
//! counted has come, been held against its digest and landed; what the tail took is in the receiver's time.
//! Absent on purpose: the search for a larger packet (the caller names the size), job drivers and the control session, as in rail.rs.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use engine::job::{Cmd, Event, Path, RailEnd, Role};
use engine::meter::Meter;
use proto::flow::FlowConfig;
use proto::rate::{Policy, RateConfig};
use sys::clock;
use sys::event::{self, Interest};

use super::bare::STALL;
use super::datagram::beside;
use super::rail::{JOB, Lone, Nothing, TURN_NS_MAX, entry, key};
use super::sums::Sums;
use super::way::{PacketsWay, Seal, Side};

/// Chunks handed to the rail and not yet sent: two that are hashed, two behind them.
const AHEAD: usize = 4;
/// Nobody listens to another rail's packets here; any tag does.
const TAG: u32 = 0x5a_5a5a;
/// Heads of IPv4 and UDP, for the bytes on the wire.
const IP_UDP_BYTES: u32 = 28;
/// The sender asks so often whether the receiver has all; the meter is not written much more often.
const ASK_NS: u64 = 2_000_000;
/// What the meter says may be so old (`engine`, rail/datagram/mod.rs), and a little.
const METER: Duration = Duration::from_millis(12);
/// A receiver to which nothing came asks so often whether the sender has gone.
const GONE: Duration = Duration::from_millis(20);

/// A worker with the rail up.
fn rail(
    stream: &OwnedFd,
    way: PacketsWay,
    seal: Seal,
    role: Role<super::rail::Air>,
) -> anyhow::Result<(Lone, Arc<Meter>)> {
    let socket = beside(stream)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    let mut lone = Lone::new(way.driver, way.bufs.into(), way.layer, seal, role)?;
    let packet_bytes = u32::from(way.packet_bytes) + IP_UDP_BYTES;
    let rate = RateConfig {
        controller: way.controller.controller(),
        policy: Policy::Fair,
        target: way.rate / 8,
        min: 0,
        packet_bytes,
    };
    // The engine leaves a quarter of the bufs to receivers, and some are being filled.
    let units_open = u32::from(way.bufs) * 3 / 4 - AHEAD as u32 / 2;
    let (packet_bytes, packet_bytes_max) = (way.packet_bytes, way.packet_bytes);
    let flow =
        FlowConfig { packet_bytes, packet_bytes_max, unit_bytes_max: 0, rate, units_open, units_most: units_open };
    let meter = Arc::new(Meter::default());
    let path = Path {
        tag: TAG,
        flow,
        silence_ns: STALL.as_nanos() as u64,
        meter: Arc::clone(&meter),
        seen: None,
        job_bytes: 0,
    };
    lone.tell(Cmd::PacketsUp { job: JOB, rail: 0, socket: Arc::new(socket), key: key(), path });
    Ok((lone, meter))
}

/// Chunks until the time is over, then whatever is missing until nothing is.
///
/// # Errors
/// No memory, no such engine, or the rail died.
pub fn send(
    stream: &OwnedFd,
    way: PacketsWay,
    seal: Seal,
    ready: impl FnOnce(),
    time: Duration,
) -> anyhow::Result<Side> {
    let (mut lone, meter) = rail(stream, way, seal, Role::Send(Arc::new(Nothing)))?;
    let entry = entry();
    // The rail comes up when its receiver is there: its first packets are a measurement.
    ready();
    lone.worker.turn(0);
    let (watch, end) = (lone.watch(), Instant::now() + time);
    let (mut bytes, mut chunk, mut ahead, mut last) = (0, 0, 0, Instant::now());
    loop {
        let open = Instant::now() < end;
        while ahead < AHEAD && open {
            lone.hand_out(chunk, &entry);
            (chunk, ahead) = (chunk + 1, ahead + 1);
        }
        if ahead == 0 {
            break;
        }
        lone.worker.turn(if bytes == 0 { 0 } else { TURN_NS_MAX });
        for event in lone.events.try_iter() {
            match event {
                Event::Sent { payload, .. } => {
                    (bytes, ahead, last) = (bytes + payload, ahead - 1, Instant::now());
                }
                Event::Read { .. } => {}
                other => bail!("the rail failed: {other:?}"),
            }
        }
        ensure!(last.elapsed() < STALL, "nothing was sent for {} s: {:?}", STALL.as_secs(), meter.read());
    }
    // The rail goes when the receiver has all; before that the meter must have had time to speak of the last chunk.
    while meter.read().units > 0 || last.elapsed() < METER {
        lone.worker.turn(ASK_NS);
        if let Some(event) = lone.events.try_iter().find(|event| matches!(event, Event::RailDead { .. })) {
            bail!("the rail failed: {event:?}");
        }
        ensure!(last.elapsed() < 3 * STALL, "the receiver does not have all after {} s", 3 * STALL.as_secs());
    }
    let tail_ns = last.elapsed().as_nanos() as u64;
    let side = lone.side(&watch, bytes);
    lone.tell(Cmd::RailDown { job: JOB, rail: 0 });
    let ended = Instant::now();
    while !lone.events.try_iter().any(|event| matches!(event, Event::RailDead { .. })) {
        ensure!(ended.elapsed() < STALL, "the rail does not end");
        lone.worker.turn(ASK_NS);
    }
    Ok(Side { packets: Sums::of(&meter.read(), tail_ns), ..side })
}

/// Chunks until the other end closes.
///
/// # Errors
/// No memory, no such engine, the rail died, or a chunk came corrupt.
pub fn recv(stream: &OwnedFd, way: PacketsWay, seal: Seal, ready: impl FnOnce()) -> anyhow::Result<Side> {
    let (mut lone, meter) = rail(stream, way, seal, Role::Recv(Arc::new(Nothing)))?;
    lone.tell(Cmd::Expect { job: JOB, entries: vec![entry()] });
    lone.worker.turn(0);
    ready();
    let (mut watch, mut sum, mut last_ns, begun) = (None, 0, 0, Instant::now());
    let mut asked = begun;
    loop {
        lone.worker.turn(GONE.as_nanos() as u64);
        let (mut over, mut landed) = (false, 0);
        for event in lone.events.try_iter() {
            match event {
                Event::Landed { bytes, .. } => landed += u64::from(bytes),
                Event::RailDead { end: RailEnd::Closed, .. } => over = true,
                other => bail!("the rail failed: {other:?}"),
            }
        }
        if landed > 0 {
            last_ns = clock::now_ns();
            match &watch {
                Some(_) => sum += landed,
                // The first chunks start the clocks and are not counted.
                None => watch = Some(lone.watch()),
            }
        } else if asked.elapsed() >= GONE {
            asked = Instant::now();
            // The sender's last word may be lost, the stream's end is not.
            over |= event::poll(&[(stream.as_fd(), Interest::Read)], Some(Duration::ZERO))?[0].any();
        }
        if over {
            let side = watch.map_or_else(Side::default, |watch| Side {
                ns: watch.side_until(0, last_ns).ns,
                ..lone.side(&watch, sum)
            });
            return Ok(Side { packets: Sums::of(&meter.read(), 0), ..side });
        }
        let silent = last_ns == 0 && begun.elapsed() >= STALL;
        ensure!(!silent, "no chunk came for {} s: does a firewall drop UDP?", STALL.as_secs());
    }
}

#[cfg(test)]
mod tests {
    use super::super::way::{ControllerWanted, Driver, Layer};
    use super::*;

    fn moved(layer: Layer) -> (Side, Side) {
        let listener = sys::sock::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let here: OwnedFd = sys::sock::connect(listener.local_addr().unwrap(), STALL).unwrap().into();
        let there: OwnedFd = listener.accept().unwrap().0.into();
        let (controller, rate) = (ControllerWanted::Fixed, 400_000_000);
        let way = PacketsWay { driver: Driver::Plain, layer, packet_bytes: 1472, controller, rate, bufs: 16 };
        std::thread::scope(|scope| {
            let receiver = scope.spawn(move || recv(&there, way, Seal::Aes128, || {}).unwrap());
            let sent = send(&here, way, Seal::Aes128, || {}, Duration::from_millis(200)).unwrap();
            sys::sock::shutdown_send(&here).unwrap();
            (sent, receiver.join().unwrap())
        })
    }

    #[test]
    fn all_that_was_sent_lands_at_no_more_than_the_rate() {
        for layer in [Layer::Crc, Layer::Tagged, Layer::Sealed] {
            let (sent, received) = moved(layer);
            // The first chunks that landed started the clock: at this rate one, on a busy machine a few.
            assert!(received.bytes > 0 && received.bytes < sent.bytes, "{layer:?}: {sent:?} {received:?}");
            assert!(sent.packets.fresh_bytes > sent.bytes, "{layer:?}: each chunk has its header");
            let gbps = 8.0 * sent.bytes as f64 / sent.ns as f64;
            assert!(gbps < 0.42, "{layer:?}: {gbps} Gb/s where 0.4 was allowed");
        }
    }
}
