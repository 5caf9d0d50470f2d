//! Is the lab what it says?
//!
//! For: `longhaul lab measure`, `make lab-accuracy`. In and out: a table of links → packets sent over each, and what came, beside
//! what should have come.
//! Invariants: what is measured is measured at sockets of the two hosts, never taken from the emulator's own counts; a value out of
//! its bounds makes the exit code 1.
//! Absent on purpose: TCP, and the emulator's ceiling (docs/lab.md: iperf3 over a link without a rate).

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::Context;
use rustix::net::sockopt;
use sys::clock::now_ns;
use sys::netns;

use crate::arguments::MeasureArguments;
use crate::ceiling;
use crate::hosts::{Lab, Making, Side, address4};
use crate::run::become_root;
use crate::settings::{AB, LinkSettings};
use crate::wire::link::Loss;
use text::units;

const PORT: u16 = 5741;
/// Headers of UDP over IPv4.
const HEADERS: usize = 28;
/// Room for 10^5 small packets, so that no packet is lost for want of a reader.
const RECEIVE_BYTES: usize = 256 << 20;
/// Issue 3's bound on the round trip.
const RTT_ERROR_NS: u64 = 300_000;
/// A round trip is waited for without sleeping from so long before its time: a sleeper of a virtual machine is woken 40 to 120 us late
/// (emulator.rs), which is the machine's error and not the link's.
const LOOK_NS: u64 = 1_500_000;
/// Times are measured up to so often, and the best counts: what else a machine does makes a link later, never truer.
const TRIES: usize = 3;
/// And up to so often, a second apart, while the emulator itself knows that it did not get the processor in time: what was seen then is no word
/// about the link.
const TRIES_LATE: usize = 10;
const PAUSE_LATE: Duration = Duration::from_secs(1);

/// What is looked at.
#[derive(Debug, Clone, Copy)]
enum Look {
    /// One packet there and back, and again.
    RoundTrip,
    /// More than the link carries.
    Rate,
    /// How many do not come.
    Lost,
    /// How many of one burst come.
    Queue,
    /// How delays spread.
    Jitter,
    /// How many come behind a later one.
    Late,
    /// How many come twice.
    Twice,
    /// How many are refused by the receiver's checksum.
    Harmed,
}

impl Look {
    /// How often it is looked at before it is called wrong: counts are the dice's own, times are the machine's too, and so is what stands in a
    /// queue or overtakes while the sender is not run. `late`: the emulator was. The dice are thrown from one seed, so that looking again is
    /// never a second throw.
    fn tries(self, late: bool) -> usize {
        match self {
            Look::RoundTrip | Look::Rate | Look::Jitter if late => TRIES_LATE,
            Look::RoundTrip | Look::Rate | Look::Jitter | Look::Queue | Look::Late => TRIES,
            Look::Lost | Look::Twice | Look::Harmed if late => TRIES,
            Look::Lost | Look::Twice | Look::Harmed => 1,
        }
    }
}

/// The table: what to look at, and a link to look at it on.
const CASES: [(Look, &str); 18] = [
    (Look::RoundTrip, "rtt=0"),
    (Look::RoundTrip, "rtt=10ms rate=1Gbit"),
    (Look::RoundTrip, "rtt=100ms rate=155Mbit"),
    (Look::RoundTrip, "rtt=550ms rate=10Gbit"),
    (Look::Rate, "rate=1Mbit"),
    (Look::Rate, "rate=10Mbit rtt=50ms"),
    (Look::Rate, "rate=155Mbit rtt=10ms"),
    (Look::Rate, "rate=1Gbit rtt=10ms"),
    (Look::Lost, "loss=0%"),
    (Look::Lost, "loss=0.1%"),
    (Look::Lost, "loss=1% rtt=20ms"),
    (Look::Lost, "loss=10%"),
    (Look::Lost, "loss=burst:2%/8"),
    (Look::Queue, "rate=1Mbit queue=150kB"),
    (Look::Jitter, "rtt=40ms jitter=5ms,overtakes"),
    (Look::Late, "rtt=2ms reorder=2%/5ms"),
    (Look::Twice, "duplicate=1%"),
    (Look::Harmed, "corrupt=3%"),
];

/// What came of a case.
struct Found {
    wanted: String,
    got: String,
    good: bool,
}

/// Measures all cases and prints a line for each; 0 only if all are within their bounds.
///
/// # Errors
/// A lab could not be made, or a socket not be used.
pub fn run(arguments: &MeasureArguments) -> anyhow::Result<u8> {
    become_root()?;
    let making = Making { seed: 1, memory_bytes: None, granule_ns: 50_000, tcp: None };
    if arguments.limit {
        return ceiling::run(making);
    }
    let packets = if arguments.quick { 200_000 } else { 1_000_000 };
    let mut all_good = true;
    println!("{:<12} {:<32} {:<34} {:<44}", "what", "link", "wanted", "got");
    for (look, words) in CASES {
        let mut settings = LinkSettings::default();
        settings.apply_all(words).map_err(anyhow::Error::msg)?;
        let (mut tries, mut found, mut late) = (0, None::<Found>, 0);
        while tries < look.tries(late > 0) && !found.as_ref().is_some_and(|found| found.good) {
            if tries >= TRIES {
                std::thread::sleep(PAUSE_LATE);
            }
            tries += 1;
            let (seen, seen_late) = visit(look, &settings, making, packets)?;
            (found, late) = (Some(seen), seen_late);
        }
        let Some(found) = found else { continue };
        let mut remark = if late > 0 { format!(" ({late} late)") } else { String::new() };
        if tries > 1 {
            remark += &format!(" (try {tries})");
        }
        let mark = if found.good { "ok" } else { "not ok" };
        let what = format!("{look:?}").to_lowercase();
        println!("{what:<12} {words:<32} {:<34} {:<44} {mark}{remark}", found.wanted, found.got);
        all_good &= found.good;
    }
    Ok(u8::from(!all_good))
}

/// Makes the link and looks at it; what was found, and how many packets the emulator knows to have been late.
fn visit(look: Look, settings: &LinkSettings, making: Making, packets: u64) -> anyhow::Result<(Found, u64)> {
    let mut lab = Lab::make(&[*settings], making)?;
    let ends = Ends::open(&lab)?;
    let found = std::thread::scope(|scope| {
        // A thread of its own, which may go before others without them.
        scope.spawn(|| look_at(look, settings, &ends, packets)).join()
    });
    let found = found.unwrap_or_else(|_| Err(anyhow::anyhow!("the measuring thread panicked")))?;
    let told = lab.stop();
    Ok((found, told.iter().flatten().map(|told| told.late_packets).sum()))
}

/// A socket on each host, connected to the other.
struct Ends {
    a: UdpSocket,
    b: UdpSocket,
}

impl Ends {
    fn open(lab: &Lab) -> anyhow::Result<Ends> {
        let open = |side: Side| {
            netns::inside(&lab.hosts[side.index()], || {
                let other = if side == Side::A { Side::B } else { Side::A };
                let socket = UdpSocket::bind((address4(0, side), PORT))?;
                socket.connect((address4(0, other), PORT))?;
                // Refused where the right is missing; then the packets are sent so slowly that less is enough.
                let _ = sockopt::set_socket_recv_buffer_size_force(socket.as_fd(), RECEIVE_BYTES);
                socket.set_read_timeout(Some(Duration::from_secs(3)))?;
                Ok(socket)
            })
        };
        Ok(Ends {
            a: open(Side::A).context("a socket on host a could not be had")?,
            b: open(Side::B).context("a socket on host b could not be had")?,
        })
    }
}

fn look_at(look: Look, link: &LinkSettings, ends: &Ends, packets: u64) -> anyhow::Result<Found> {
    sys::netns::exact_timers();
    // Where it is not permitted, the measured times hold the scheduler's delays too.
    let _ = sys::netns::be_prompt();
    let wire = &link.wires[AB];
    match look {
        Look::RoundTrip => round_trip(link, ends),
        Look::Rate => rate(wire.rate_bps, ends),
        Look::Lost => {
            let came = flow(ends, packets, 64, 100)?;
            let missing = packets - distinct(&came);
            Ok(share("lost", wire.loss.mean(), spread(wire.loss), missing, packets))
        }
        Look::Harmed => {
            let came = flow(ends, packets / 5, 256, 100)?;
            let missing = packets / 5 - distinct(&came);
            Ok(share("refused", wire.corrupt.value(), 1.0, missing, packets / 5))
        }
        Look::Twice => {
            let came = flow(ends, packets / 5, 64, 100)?;
            let again = came.len() as u64 - distinct(&came);
            Ok(share("twice", wire.duplicate.value(), 1.0, again, packets / 5))
        }
        Look::Late => {
            let came = flow(ends, packets / 10, 64, 20)?;
            let mut newest = 0;
            let late = came.iter().filter(|packet| {
                newest = newest.max(packet.number);
                packet.number < newest
            });
            let late = late.count() as u64;
            Ok(share("late", wire.reorder.value(), 1.0, late, packets / 10))
        }
        Look::Queue => queue(link, ends),
        Look::Jitter => jitter(link, ends, packets / 50),
    }
}

/// A packet that came.
#[derive(Debug, Clone, Copy)]
struct Came {
    number: u64,
    sent_ns: u64,
    came_ns: u64,
}

/// Sends numbered packets from a to b, `each_ms` of them every millisecond, and collects what comes.
fn flow(ends: &Ends, count: u64, payload: usize, each_ms: u64) -> anyhow::Result<Vec<Came>> {
    let mut came = Vec::with_capacity(usize::try_from(count + count / 10)?);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(ends, count, payload, each_ms));
        let mut bytes = [0; 2048];
        let mut silent = 0;
        // The end is 300 ms of silence after the last packet was sent: longer than any delay in the table but the RTT's own.
        ends.b.set_read_timeout(Some(Duration::from_millis(100)))?;
        while silent < 3 {
            match ends.b.recv(&mut bytes) {
                Ok(length) if length >= 16 => {
                    silent = 0;
                    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
                    came.push(Came { number: word(0), sent_ns: word(8), came_ns: now_ns() });
                }
                _ => silent += i32::from(sender.is_finished()),
            }
        }
        sender.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the sending thread panicked")))
    })?;
    Ok(came)
}

fn send(ends: &Ends, count: u64, payload: usize, each_ms: u64) -> anyhow::Result<()> {
    sys::netns::exact_timers();
    let _ = sys::netns::be_prompt();
    let mut bytes = vec![0x5a; payload];
    let start_ns = now_ns();
    for number in 0..count {
        if number.is_multiple_of(each_ms) {
            let due_ns = start_ns + number / each_ms * 1_000_000;
            std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns())));
        }
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..16].copy_from_slice(&now_ns().to_le_bytes());
        ends.a.send(&bytes).context("a packet could not be sent")?;
    }
    Ok(())
}

fn distinct(came: &[Came]) -> u64 {
    let mut numbers: Vec<u64> = came.iter().map(|packet| packet.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.len() as u64
}

/// How much wider than that of single losses the count of bursty ones spreads: the variance of a sum over a two-state chain whose
/// correlation falls by 1 - worse - better each step is (1 + r) / (1 - r) times as wide.
fn spread(loss: Loss) -> f64 {
    match loss {
        Loss::Random(_) => 1.0,
        Loss::Bursts { worse, better, .. } => {
            let kept = 1.0 - worse.value() - better.value();
            ((1.0 + kept) / (1.0 - kept)).sqrt()
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few millions")]
fn share(word: &str, wanted: f64, spread: f64, got: u64, of: u64) -> Found {
    let mean = wanted * of as f64;
    let sigma = (mean * (1.0 - wanted)).sqrt() * spread;
    let off = (got as f64 - mean) / if sigma > 0.0 { sigma } else { 1.0 };
    Found {
        wanted: format!("{mean:.0} of {of} ± {:.0} (3 sigma)", 3.0 * sigma),
        got: format!("{got} {word}, {:.4} %, {off:+.2} sigma", got as f64 * 100.0 / of as f64),
        good: off.abs() <= 3.0,
    }
}

fn show_ms(ns: u64) -> String {
    format!("{}.{:03} ms", ns / 1_000_000, ns / 1000 % 1000)
}

fn round_trip(link: &LinkSettings, ends: &Ends) -> anyhow::Result<Found> {
    const BYTES: usize = 100;
    let takes_ns = (BYTES + HEADERS) as u64 * 8_000_000_000 / link.wires[AB].rate_bps.max(1);
    let takes_ns = if link.wires[AB].rate_bps == 0 { 0 } else { 2 * takes_ns };
    let wanted_ns = link.rtt_ns() + takes_ns;
    let rounds = (5_000_000_000 / (wanted_ns + 1_000_000)).clamp(11, 1001);
    let bytes = [0; BYTES];
    let mut times = Vec::new();
    for _ in 0..rounds {
        let start_ns = now_ns();
        ends.a.send(&bytes)?;
        await_packet(&ends.b, start_ns + wanted_ns / 2)?;
        ends.b.send(&bytes)?;
        await_packet(&ends.a, start_ns + wanted_ns)?;
        times.push(now_ns() - start_ns);
        std::thread::sleep(Duration::from_micros(300));
    }
    times.sort_unstable();
    let (least, middle) = (times[0], times[times.len() / 2]);
    let most = times[times.len() * 99 / 100];
    Ok(Found {
        wanted: format!("{} + at most {}", show_ms(wanted_ns), show_ms(RTT_ERROR_NS)),
        got: format!("median {}, least {}, 99 % {}", show_ms(middle), show_ms(least), show_ms(most)),
        good: least >= wanted_ns && middle <= wanted_ns + RTT_ERROR_NS,
    })
}

/// Sleeps until shortly before a packet is due, and looks until it is there; 3 s after that it is given up.
fn await_packet(socket: &UdpSocket, due_ns: u64) -> anyhow::Result<()> {
    let mut bytes = [0; 2048];
    std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns() + LOOK_NS)));
    socket.set_nonblocking(true)?;
    let came = loop {
        match socket.recv(&mut bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && now_ns() < due_ns + 3_000_000_000 => {}
            other => break other,
        }
    };
    socket.set_nonblocking(false)?;
    came.context("a packet of a round trip did not come")?;
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "compared to one per cent")]
fn rate(rate_bps: u64, ends: &Ends) -> anyhow::Result<Found> {
    const PAYLOAD: usize = 1472;
    let wire_bits = ((PAYLOAD + HEADERS) * 8) as u64;
    // Two seconds of a third more than the link carries; at least two packets a millisecond would be more at low rates.
    let count = (rate_bps * 8 / 3 / wire_bits).max(150);
    let each_ms = (rate_bps * 4 / 3 / wire_bits / 1000).max(1);
    let came = flow(ends, count, PAYLOAD, each_ms)?;
    anyhow::ensure!(came.len() > 20, "only {} packets came", came.len());
    // What left the full queue: from the second tenth on, until the last.
    let from = came.len() / 10;
    let took_ns = came[came.len() - 1].came_ns - came[from].came_ns;
    let got_bps = (came.len() - 1 - from) as f64 * wire_bits as f64 * 1e9 / took_ns as f64;
    let off = got_bps / rate_bps as f64 - 1.0;
    Ok(Found {
        wanted: format!("{} ± 1 %", units::exact_rate(rate_bps)),
        got: format!("{} of IP ({:+.3} %)", units::show_bits_per_second(got_bps), off * 100.0),
        good: off.abs() <= 0.01,
    })
}

/// One burst, so long that the link cannot take it, so slow that hardly any of it leaves meanwhile.
fn queue(link: &LinkSettings, ends: &Ends) -> anyhow::Result<Found> {
    const PAYLOAD: usize = 1000;
    let bytes = link.wires[AB].queue_bytes(link.rtt_ns());
    let each = (PAYLOAD + HEADERS) as u64;
    let wanted = bytes / each;
    let came = flow(ends, wanted * 3, PAYLOAD, wanted * 3)?;
    let sending_ns = came.last().map_or(0, |last| last.sent_ns) - came.first().map_or(0, |first| first.sent_ns);
    let left = link.wires[AB].rate_bps * sending_ns / 8_000_000_000 / each + 1;
    let got = came.len() as u64;
    Ok(Found {
        wanted: format!("{wanted} packets of {each} B, and {left} that left"),
        got: format!("{got} packets, {}", units::show_bytes(got * each)),
        good: (wanted..=wanted + left).contains(&got),
    })
}

#[expect(clippy::cast_precision_loss, reason = "shown with three decimals")]
fn jitter(link: &LinkSettings, ends: &Ends, packets: u64) -> anyhow::Result<Found> {
    let wire = &link.wires[AB];
    let came = flow(ends, packets, 64, 4)?;
    let delays: Vec<f64> = came.iter().map(|packet| (packet.came_ns - packet.sent_ns) as f64 / 1e6).collect();
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    let width = (delays.iter().map(|delay| (delay - mean).powi(2)).sum::<f64>() / delays.len() as f64).sqrt();
    // Even over ± width: the standard deviation is width / sqrt(3).
    let (wanted_mean, wanted_width) = (wire.delay_ns as f64 / 1e6, wire.jitter.ns as f64 / 1e6 / 3_f64.sqrt());
    Ok(Found {
        wanted: format!("mean {wanted_mean:.3} ms, deviation {wanted_width:.3} ms"),
        got: format!("mean {mean:.3} ms, deviation {width:.3} ms"),
        // The mean of thousands is good to 3 %; half the bound of a round trip for the way.
        good: (mean - wanted_mean).abs() < 0.15 + 0.03 * wanted_width && (width / wanted_width - 1.0).abs() < 0.05,
    })
}
