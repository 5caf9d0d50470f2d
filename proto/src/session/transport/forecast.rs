//! What streams and datagrams would carry over a path, from what is known of it.
//!
//! For: `--transport auto`: a figure before, which is compared with what came of it.
//! In and out: a `View` of the path and a `Host` in; a `Forecast` with rates, times and what limits each, out.
//! Invariants: pure; whatever goes in, rates are finite and above 0; the same facts give the same words.
//! Absent on purpose: measuring and acting (the job driver).
//!
//! | what | equation | source |
//! |---|---|---|
//! | CUBIC's window, packets | max(1.054 × (RTT ÷ p)^¾, 1.22 ÷ √p) | RFC 9438 section 5.1, RFC 8312 section 5; with β = 0.7 the second is Reno's |
//! | its timeouts | rate ÷ (1 + p (1 + 32 p²) × 3 √(3p ÷ 8) × RTO ÷ RTT × W) | Padhye et al. 1998 (PFTK), equation 30, b = 1 |
//! | BBR | link ÷ (1 + 100 p), up to 20 % of loss, and ten round trips more in the beginning | the bound is Cardwell et al. 2016 (a gain of 1.25 carries 1 − 1 ÷ 1.25); what Linux makes of it was measured, docs/design/004 |
//! | a window's bound | bytes ÷ RTT for each rail | |
//! | slow start | (log2(rate × RTT ÷ 10 packets) − 1) × RTT lost | RFC 6928, RFC 5681 |

use core::fmt;

use crate::negotiate::{Offer, STORAGE_BPS_MAX};
use crate::rate::maths::{exp, ln, sqrt};

/// A path on which nothing was lost so far is taken to lose this: one packet in 100 000, a fibre's with its junctions. It decides what is
/// chosen where one loss would cost TCP much.
pub const LOSS_UNSEEN: f64 = 1e-5;
/// Round trips that a job has beside its data whichever way it goes: the first entries and wants, the last acknowledgement and signatures.
const BESIDE_RTTS: f64 = 2.5;
/// And these until streams carry: the connection and the rail's greeting.
const TCP_RTTS: f64 = 2.0;
/// Until datagrams are at the path's rate: greeting and train go while the plan is made and the first wants come; then the first data, at less
/// than half the rate until its echo (docs/design/003-rate-control.md). Measured: 1 MB over 200 ms takes 3.6 beside its data.
const UDP_RTTS: f64 = 1.5;
/// Of a link that nobody else uses, datagrams with the `delay` congestion controller take so much (docs/design/003-rate-control.md).
const UDP_SHARE: f64 = 0.96;
/// And streams, of a link that is all theirs.
const TCP_SHARE: f64 = 0.93;
/// Round trips that Linux' BBR loses in the beginning beside doubling its window: over clean links of 20 Mbit/s to 1 Gbit/s and 10 to 150 ms a job
/// took 13 to 24 more than its bytes at the link's rate (docs/design/039-auto-by-default.md). A share of the link, 0.75, was right for jobs of some
/// seconds over 20 ms, and too little for nearer and longer ones.
const BBR_RTTS: f64 = 10.0;
/// So much better must the other be: below, a forecast does not know.
const WORTH: f64 = 1.1;
/// Below this round trip a path that lost nothing is TCP's: CUBIC has its window again within some milliseconds of a loss, and what bounds both
/// are processors, of which no forecast knows more than the rough cost of a byte.
const NEAR_S: f64 = 5e-3;
/// There datagrams must be expected so much better, and both at once are never taken: on a LAN they were expected to carry 45.5 Gbit/s together, and
/// carried 2.4 where TCP alone had 4.2 (docs/design/004-auto-and-migration.md, "Auto by default").
const WORTH_NEAR: f64 = 1.5;
/// Both at once cost more than one: only for so much more.
const BOTH_WORTH: f64 = 1.25;
/// A job of no more than this does not wait for a look at the path that is not on its way already, and never takes both.
pub const SMALL_BYTES: u64 = 1 << 20;
/// Races are run for files from this length on (engine::tree::io_mode): shorter ones go through the page cache.
const DISK_BYTES_MIN: u64 = 16 << 20;
/// From so many files of fewer bytes each on, what a file costs may be more than its bytes.
const FILES_MIN: u64 = 500;
const SMALL_FILE_BYTES: u64 = 256 << 10;
/// Seconds of a small file beside its bytes and what its storage takes: announcing, wanting, naming. Trees of 4000 files took 0.4 to 0.7 s longer
/// than their bytes where the storage made a file in 18 µs (docs/design/027-forecast-and-cross-check.md).
const FILE_S: f64 = 150e-6;
/// Payload of a datagram over Ethernet: what one costs is counted in these.
const UDP_PAYLOAD_BYTES: f64 = 1440.0;
/// The longest packet that a datagram rail sends, whatever the MTU: a loopback interface has 64 KiB.
const DATAGRAM_BYTES_MAX: u32 = 9000;
/// Where the bytes are not known yet, rates are compared over so many seconds.
const OPEN_SECONDS: f64 = 10.0;
/// A path of which no rate is known is taken to carry what the hosts do.
const RATE_UNKNOWN_BPS: f64 = 100e9;

/// What the kernel does about loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpController {
    /// `cubic`, and whatever else takes a loss for congestion.
    Cubic,
    /// `bbr`.
    Bbr,
}

/// What is known of a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct View {
    /// Round trip of the empty path, seconds.
    pub rtt_s: f64,
    /// Packets that were looked at.
    pub looked: u64,
    /// Of these, lost by chance (a queue that ran over is none).
    pub lost: u64,
    /// What the narrowest link carries, bit/s of IP; `None`: not measured, or faster than could be seen.
    pub rate_bps: Option<f64>,
    /// Bytes of an IP packet.
    pub packet_bytes: u32,
    /// So long a queue was seen to stand without loss, seconds: the buffer is at least as deep.
    pub queue_s: f64,
}

impl View {
    /// A short path on which nothing was lost.
    #[must_use]
    pub fn is_near_and_clean(&self) -> bool {
        self.rtt_s < NEAR_S && self.lost == 0
    }

    /// Of 0 to 1, with what was not seen.
    #[must_use]
    pub fn loss(&self) -> f64 {
        if self.lost == 0 || self.looked == 0 {
            return LOSS_UNSEEN;
        }
        (self.lost as f64 / self.looked as f64).clamp(LOSS_UNSEEN, 0.99)
    }
}

/// What the two ends allow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Host {
    /// Of the sending kernel, as far as this end knows.
    pub controller: TcpController,
    /// TCP rails: those it begins with, and those it may grow to.
    pub rails: (u16, u16),
    /// Bytes that one TCP connection may have on its way: the smaller of both buffers.
    pub window_bytes: f64,
    /// What these cores carry over TCP, bit/s.
    pub tcp_bps: f64,
    /// What one core at each end carries over UDP, bit/s.
    pub udp_bps: f64,
    /// The user's cap, bit/s; 0: none.
    pub cap_bps: f64,
    /// Both ends' storage.
    pub storage: Storage,
    /// Both ends are one host: they share its cores.
    pub is_one_host: bool,
}

/// What both ends' storage does, as far as anybody looked.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Storage {
    /// Of the slower one, bit/s; 0: what is known bounds nothing.
    pub bps: f64,
    /// What a small file costs at the end where it costs more, seconds; 0: not known.
    pub file_s: f64,
    /// The end of which nothing is known.
    pub unknown: Option<Unknown>,
}

impl Storage {
    /// Of a job from one end's to the other's. An earlier race is of then, and as deep as pays; a look is of now, and a few operations deep: a disk
    /// does what the race says, and no more than twice what the look shows.
    #[must_use]
    pub fn of(source: &Offer, target: &Offer) -> Storage {
        let bps = |offer: &Offer| match offer.storage.bps {
            STORAGE_BPS_MAX.. => Some(f64::INFINITY),
            0 => Some(offer.disk_bps as f64).filter(|bps| *bps > 0.0),
            look if offer.disk_bps == 0 => Some(look as f64),
            look => Some(offer.disk_bps.min(look.saturating_mul(2)) as f64),
        };
        let (gives, takes) = (bps(source), bps(target));
        let slower = gives.unwrap_or(f64::INFINITY).min(takes.unwrap_or(f64::INFINITY));
        let file_ns = f64::from(source.storage.file_ns.max(target.storage.file_ns));
        Storage {
            bps: if slower.is_finite() { slower } else { 0.0 },
            // Files are made at the target; what it does not say nobody knows.
            file_s: if target.storage.file_ns > 0 { FILE_S + file_ns / 1e9 } else { 0.0 },
            unknown: match (gives, takes) {
                (None, _) => Some(Unknown::Source),
                (_, None) => Some(Unknown::Target),
                _ => None,
            },
        }
    }
}

/// Why no time is forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// The source's storage was not measured.
    Source,
    /// The destination's storage was not measured.
    Target,
    /// What limits the job is the processors, and both ends have the same ones.
    Processors,
    /// Neither the narrowest link nor the hosts bound the job in a way that was measured.
    Path,
    /// Many small files, and nobody measured what making one costs.
    Files,
}

impl fmt::Display for Unknown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Unknown::Source => "the source's storage was not measured",
            Unknown::Target => "the destination's storage was not measured",
            Unknown::Processors => "both ends share the processors that limit it",
            Unknown::Path => "what limits the path was not measured",
            Unknown::Files => "what its small files cost was not measured",
        })
    }
}

/// What keeps a transport from being faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The narrowest link.
    Link,
    /// What loss leaves a congestion window.
    Loss,
    /// Socket buffers.
    Window,
    /// Processors.
    Host,
    /// The user's word.
    Cap,
    /// The slower of both ends' disks.
    Disk,
}

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Limit::Link => "the link",
            Limit::Loss => "loss",
            Limit::Window => "socket buffers",
            Limit::Host => "processors",
            Limit::Cap => "the cap",
            Limit::Disk => "the slower disk",
        })
    }
}

/// What one transport would do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guess {
    /// Payload, bit/s, once it is under way.
    pub rate_bps: f64,
    /// What keeps it there.
    pub limit: Limit,
    /// Seconds that pass beside the data at that rate.
    pub beside_s: f64,
}

impl Guess {
    /// How long so many bytes take.
    #[must_use]
    pub fn seconds(&self, bytes: u64) -> f64 {
        self.beside_s + bytes as f64 * 8.0 / self.rate_bps
    }
}

/// What carries a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carry {
    /// Streams.
    Tcp,
    /// Datagrams.
    Udp,
    /// Both at once.
    Both,
}

impl fmt::Display for Carry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Carry::Tcp => "TCP",
            Carry::Udp => "UDP",
            Carry::Both => "TCP and UDP",
        })
    }
}

/// What is to be expected of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// What it is to go over.
    pub carry: Carry,
    /// Of TCP.
    pub tcp: Guess,
    /// Of UDP.
    pub udp: Guess,
    /// Bytes, where all were known.
    pub bytes: Option<u64>,
    /// Both ends' storage; nothing of it where the job is not a disk's matter.
    pub storage: Storage,
    /// Both ends are one host.
    pub is_one_host: bool,
}

impl Forecast {
    /// What the choice is expected to do.
    #[must_use]
    pub fn chosen(&self) -> Guess {
        match self.carry {
            Carry::Tcp => self.tcp,
            Carry::Udp => self.udp,
            Carry::Both => both(&self.tcp, &self.udp),
        }
    }

    /// What is expected of the job: what the choice does, or the slower disk if that does less. A remembered rate decides nothing: were it too low
    /// by far, only this would be wrong.
    #[must_use]
    pub fn expected(&self) -> Guess {
        self.by_disk(self.chosen())
    }

    /// The same bytes, to the slower disk.
    #[must_use]
    pub fn by_disk(&self, guess: Guess) -> Guess {
        if self.storage.bps > 0.0 && self.storage.bps < guess.rate_bps {
            return Guess { rate_bps: self.storage.bps.max(1.0), limit: Limit::Disk, ..guess };
        }
        guess
    }

    /// How long so many bytes in so many files are expected to take.
    #[must_use]
    pub fn seconds(&self, bytes: u64, files: u64) -> f64 {
        self.expected().seconds(bytes) + files as f64 * self.storage.file_s
    }

    /// Why that is no forecast; `None`: it is one.
    #[must_use]
    pub fn unknown(&self, bytes: u64, files: u64) -> Option<Unknown> {
        let expected = self.expected();
        let is_small = files >= FILES_MIN && bytes / files < SMALL_FILE_BYTES;
        match expected.limit {
            _ if is_small && self.storage.file_s == 0.0 => Some(Unknown::Files),
            // Whatever is not known of a disk: it takes no time from a job that the user holds, or that fits the page cache.
            _ if bytes >= DISK_BYTES_MIN && self.storage.unknown.is_some() => self.storage.unknown,
            Limit::Host if self.is_one_host => Some(Unknown::Processors),
            _ => None,
        }
    }

    /// How many times as fast as the alternative.
    #[must_use]
    pub fn gain(&self) -> f64 {
        let (chosen, other) = match self.carry {
            Carry::Tcp => (self.tcp, self.udp),
            Carry::Udp => (self.udp, self.tcp),
            Carry::Both => (self.chosen(), if self.udp.rate_bps > self.tcp.rate_bps { self.udp } else { self.tcp }),
        };
        match self.bytes {
            Some(bytes) => other.seconds(bytes) / chosen.seconds(bytes),
            None => chosen.rate_bps / other.rate_bps,
        }
    }
}

fn both(tcp: &Guess, udp: &Guess) -> Guess {
    Guess { rate_bps: tcp.rate_bps + udp.rate_bps, limit: tcp.limit, beside_s: tcp.beside_s.max(udp.beside_s) }
}

/// The smallest bound and its name.
fn least(bounds: &[(f64, Limit)]) -> (f64, Limit) {
    let floor = (1.0, Limit::Link);
    let found = bounds.iter().copied().filter(|(rate, _)| rate.is_finite());
    let (rate, limit) = found.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or(floor);
    (rate.max(1.0), limit)
}

/// Packets in CUBIC's window on average.
fn cubic_window(rtt_s: f64, loss: f64) -> f64 {
    let cubic = 1.054 * exp(0.75 * ln(rtt_s / loss));
    cubic.max(1.22 / sqrt(loss)).max(1.0)
}

/// What loss leaves one stream, bit/s of payload; infinite where it does not matter.
fn tcp_under_loss(view: &View, controller: TcpController, link_bps: f64) -> f64 {
    let (rtt_s, loss) = (view.rtt_s.max(1e-5), view.loss());
    let segment_bits = f64::from(view.packet_bytes.saturating_sub(52).max(500)) * 8.0;
    match controller {
        TcpController::Bbr if loss < 0.2 => link_bps / (1.0 + 100.0 * loss),
        _ => {
            let window = cubic_window(rtt_s, loss);
            let rto_s = (2.0 * rtt_s).max(0.2);
            let timeouts = (3.0 * sqrt(3.0 * loss / 8.0)).min(1.0) * loss * (1.0 + 32.0 * loss * loss);
            window * segment_bits / (rtt_s + window * timeouts * rto_s)
        }
    }
}

/// TCP, with as many rails as it may grow to if they bring something. A job may be over before its windows have grown.
fn guess_tcp(view: &View, host: &Host, bytes: Option<u64>) -> Guess {
    let rtt_s = view.rtt_s.max(1e-5);
    let share = f64::from(view.packet_bytes.saturating_sub(52).max(500)) / f64::from(view.packet_bytes.max(552));
    let wire = view.rate_bps.unwrap_or(RATE_UNKNOWN_BPS);
    let link = wire * share * (1.0 - view.loss()) * TCP_SHARE;
    let rails = f64::from(host.rails.0.max(1));
    let cap = if host.cap_bps > 0.0 { host.cap_bps } else { f64::INFINITY };
    let alone = tcp_under_loss(view, host.controller, link);
    // BBR's rails share what one of them finds, CUBIC's each have a window of their own.
    let under_loss = if host.controller == TcpController::Bbr && view.loss() < 0.2 { alone } else { rails * alone };
    let (rate_bps, limit) = least(&[
        (link, Limit::Link),
        (under_loss, Limit::Loss),
        (rails * host.window_bytes * 8.0 / rtt_s, Limit::Window),
        (host.tcp_bps, Limit::Host),
        (cap, Limit::Cap),
    ]);
    let first = rails * 10.0 * f64::from(view.packet_bytes) * 8.0;
    let all = bytes.map_or(f64::INFINITY, |bytes| bytes as f64 * 8.0);
    let log2 = |x: f64| ln(x) / core::f64::consts::LN_2;
    let doublings = log2((rate_bps * rtt_s / first).max(1.0)).min(log2(all / first + 1.0));
    // A job that is over before its windows have grown has lost none of it.
    let begins =
        if host.controller == TcpController::Bbr && doublings < log2(all / first + 1.0) { BBR_RTTS } else { 0.0 };
    let beside_s = rtt_s * (BESIDE_RTTS + TCP_RTTS + (doublings - 1.0).max(0.0) + begins);
    Guess { rate_bps, limit, beside_s }
}

fn guess_udp(view: &View, host: &Host) -> Guess {
    let packet_bytes = view.packet_bytes.min(DATAGRAM_BYTES_MAX);
    let payload = f64::from(packet_bytes.saturating_sub(28 + 32).max(500));
    let share = payload / f64::from(packet_bytes.max(560));
    let wire = view.rate_bps.unwrap_or(RATE_UNKNOWN_BPS);
    let cap = if host.cap_bps > 0.0 { host.cap_bps } else { f64::INFINITY };
    let (rate_bps, limit) = least(&[
        (wire * share * (1.0 - view.loss()) * UDP_SHARE, Limit::Link),
        // With segmentation offload a byte costs the same in packets of 1,440 bytes and of 8,940 (docs/design/002-datagrams.md); shorter ones cost more.
        (host.udp_bps * (payload / UDP_PAYLOAD_BYTES).min(1.0), Limit::Host),
        (cap, Limit::Cap),
    ]);
    Guess { rate_bps, limit, beside_s: view.rtt_s.max(1e-5) * (BESIDE_RTTS + UDP_RTTS) }
}

/// What each would do, and which is to be taken. `bytes`: all that the job has, if that is known.
#[must_use]
pub fn forecast(view: &View, host: &Host, bytes: Option<u64>) -> Forecast {
    let (tcp, udp) = (guess_tcp(view, host, bytes), guess_udp(view, host));
    let compared = bytes.unwrap_or((tcp.rate_bps.max(udp.rate_bps) * OPEN_SECONDS / 8.0) as u64);
    let (over_tcp, over_udp) = (tcp.seconds(compared), udp.seconds(compared));
    let link_bps = view.rate_bps.map_or(f64::INFINITY, |rate| rate * TCP_SHARE);
    let together = (tcp.rate_bps + udp.rate_bps).min(link_bps);
    let apart = |guess: &Guess| matches!(guess.limit, Limit::Loss | Limit::Window | Limit::Host);
    // Where processors bound both, the two only take them from each other.
    let own = !(tcp.limit == Limit::Host && udp.limit == Limit::Host);
    let small = bytes.is_some_and(|bytes| bytes <= SMALL_BYTES);
    let near = view.is_near_and_clean();
    let worth = if near { WORTH_NEAR } else { WORTH };
    let carry = if !small
        && !near
        && own
        && apart(&tcp)
        && apart(&udp)
        && together > BOTH_WORTH * tcp.rate_bps.max(udp.rate_bps)
    {
        Carry::Both
    } else if over_udp * worth < over_tcp {
        Carry::Udp
    } else {
        Carry::Tcp
    };
    // What is short is in the page cache long before a disk has it.
    let is_for_disks = bytes.is_none_or(|bytes| bytes >= DISK_BYTES_MIN);
    let storage = if is_for_disks { host.storage } else { Storage { bps: 0.0, unknown: None, ..host.storage } };
    Forecast { carry, tcp, udp, bytes, storage, is_one_host: host.is_one_host }
}
