//! One look at one rail.
//!
//! For: the trace of a job, and the rails of `--json`.
//! In and out: a datagram rail's meter, or the kernel's `TCP_INFO` of a stream → figures that both kinds have in common; two looks → a record.
//! Invariants: what an end cannot know is `None`, never guessed; counts only grow, so a rate between any two looks is a difference.
//! Absent on purpose: when to look (job driver), what is kept (series), how it is drawn.

use engine::meter::PathStats;
use proto::packet::WIRE_EXTRA;
use serde::{Deserialize, Serialize};
use sys::sock::TcpInfo;

/// The phase of a stream: the kernel's controller tells none.
const KERNEL: &str = "kernel";
/// The phase of a rail at the end that receives.
const RECEIVES: &str = "receives";
/// What the kernel says where nothing is paced.
const UNPACED: u64 = u64::MAX;

/// Which rail, of which session of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RailId {
    /// A session that was lost and made again is the next one.
    pub session: u32,
    /// Its number, as both ends name it.
    pub rail: u16,
}

/// What a rail is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RailFacts {
    /// `udp` or `tcp`.
    pub transport: &'static str,
    /// The congestion controller in force; empty where it is not at this end, or the kernel's.
    pub controller: &'static str,
    /// The path that it goes over, as the report names it.
    pub path: String,
}

/// How a rail goes, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sample {
    /// Since the trace began, ns.
    pub at_ns: u64,
    /// Wire bytes per second that may leave; TCP: as the kernel paces.
    pub rate: Option<u64>,
    /// TCP: bytes per second, as the kernel measured it last.
    pub kernel_rate: Option<u64>,
    /// Bytes that arrived so far: of UDP wire bytes, of TCP payload.
    pub delivered: u64,
    /// Of a packet, counted as `delivered` counts.
    pub packet_bytes: u64,
    /// Packets sent so far, or taken.
    pub sent: u64,
    /// Of these lost, as far as this end knows; TCP: sent again.
    pub lost: Option<u64>,
    /// Payload bytes that were sent again.
    pub resent_bytes: Option<u64>,
    /// Smoothed round trip, ns.
    pub rtt_ns: Option<u64>,
    /// Round trip of the empty path, ns.
    pub base_rtt_ns: Option<u64>,
    /// Delay above the empty path's, ns; TCP: of the round trip.
    pub queue_ns: Option<u64>,
    /// Bytes that may be on their way.
    pub window: Option<u64>,
    /// Bytes on their way.
    pub in_flight: Option<u64>,
    /// Wire bytes per second that a policer lets through.
    pub policer: Option<u64>,
    /// The controller's phase: letters, zeros behind them.
    pub(super) phase: [u8; 16],
}

fn letters(word: &str) -> [u8; 16] {
    let mut letters = [0; 16];
    let count = word.len().min(letters.len());
    letters[..count].copy_from_slice(&word.as_bytes()[..count]);
    letters
}

fn some(value: u64) -> Option<u64> {
    Some(value).filter(|value| *value > 0)
}

impl Sample {
    /// Of a datagram rail.
    #[must_use]
    pub fn of_packets(at_ns: u64, stats: &PathStats, sends: bool) -> Sample {
        if !sends {
            let (delivered, sent) = (stats.wire_bytes, stats.packets);
            return Sample { at_ns, delivered, sent, phase: letters(RECEIVES), ..Sample::default() };
        }
        Sample {
            at_ns,
            rate: Some(stats.rate),
            kernel_rate: None,
            delivered: stats.delivered_bytes,
            packet_bytes: stats.packet_bytes + WIRE_EXTRA as u64,
            sent: stats.packets,
            lost: Some(stats.lost_packets),
            resent_bytes: Some(stats.repair_bytes + stats.copy_bytes),
            rtt_ns: some(stats.rtt_ns),
            base_rtt_ns: some(stats.base_rtt_ns),
            queue_ns: some(stats.base_rtt_ns).map(|_| stats.queue_ns),
            window: some(stats.window).filter(|window| *window < u64::MAX),
            in_flight: Some(stats.in_flight),
            policer: some(stats.policer),
            phase: stats.phase(),
        }
    }

    /// Of a stream.
    #[must_use]
    pub fn of_stream(at_ns: u64, info: &TcpInfo, sends: bool) -> Sample {
        let ns = |us: u32| some(u64::from(us) * 1000);
        if !sends {
            let (delivered, rtt_ns) = (info.bytes_received, ns(info.recv_rtt_us));
            return Sample { at_ns, delivered, rtt_ns, phase: letters(RECEIVES), ..Sample::default() };
        }
        let bytes = |packets: u32| u64::from(packets) * u64::from(info.mss);
        let (rtt_ns, base_rtt_ns) = (ns(info.rtt_us), ns(info.min_rtt_us).filter(|_| info.min_rtt_us < u32::MAX));
        Sample {
            at_ns,
            rate: some(info.pacing_rate).filter(|rate| *rate != UNPACED),
            kernel_rate: some(info.delivery_rate),
            delivered: info.bytes_acked,
            packet_bytes: info.mss.into(),
            sent: info.segments_out.into(),
            lost: Some(info.retrans.into()),
            resent_bytes: Some(info.bytes_retrans),
            rtt_ns,
            base_rtt_ns,
            queue_ns: rtt_ns.zip(base_rtt_ns).map(|(rtt, base)| rtt.saturating_sub(base)),
            window: some(bytes(info.cwnd)),
            in_flight: Some(bytes(info.unacked)),
            policer: None,
            phase: letters(KERNEL),
        }
    }

    /// The controller's phase, in a word or two.
    #[must_use]
    pub fn phase(&self) -> String {
        String::from_utf8_lossy(&self.phase).trim_end_matches('\0').to_owned()
    }

    /// This look in the place of an earlier one and itself: counts are sums already; of a queue the peak stays.
    #[must_use]
    pub fn after(self, earlier: &Sample) -> Sample {
        Sample { queue_ns: self.queue_ns.max(earlier.queue_ns), ..self }
    }

    /// Bytes per second that arrived since an earlier look.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub fn delivered_since(&self, earlier: &Sample) -> f64 {
        let ns = self.at_ns.saturating_sub(earlier.at_ns).max(1);
        self.delivered.saturating_sub(earlier.delivered) as f64 * 1e9 / ns as f64
    }

    /// Packets known to be lost since an earlier look, percent of those of which it is known since then what became of them; `None`: this end does not know.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    pub fn loss_since(&self, earlier: &Sample) -> Option<f64> {
        let lost = self.lost?.saturating_sub(earlier.lost.unwrap_or(0));
        // Not of those sent since then: what is known to be lost now left a round trip ago, at another rate.
        let arrived = self.delivered.saturating_sub(earlier.delivered).div_ceil(self.packet_bytes.max(1));
        Some(if lost == 0 { 0.0 } else { lost as f64 * 100.0 / (lost + arrived) as f64 })
    }
}

/// `"event":"rail"`: how a rail goes, since the record before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RailRecord {
    event: String,
    /// Since the job began.
    pub at_s: f64,
    /// Counts from 0: a session that was lost and made again is the next one.
    pub session: u32,
    /// Its number, as both ends name it.
    pub rail: u16,
    /// The path that it goes over.
    pub path: String,
    /// `udp` or `tcp`.
    pub transport: String,
    /// `delay`, `bbr`, `cubic`, `fixed`; `null`: the kernel's, or the other end's.
    pub controller: Option<String>,
    /// The controller's phase; `kernel` of TCP, `receives` at the end that does.
    pub phase: String,
    /// Wire rate that may leave; TCP: as the kernel paces.
    pub rate_bps: Option<f64>,
    /// What arrived since the record before.
    pub delivered_bps: f64,
    /// TCP: as the kernel measured it last.
    pub kernel_delivery_bps: Option<f64>,
    /// Smoothed round trip.
    pub rtt_ms: Option<f64>,
    /// Round trip of the empty path.
    pub base_rtt_ms: Option<f64>,
    /// Delay above the empty path's.
    pub queue_ms: Option<f64>,
    /// Packets known to be lost since the record before, of those of which it is known since then what became of them.
    pub loss_percent: Option<f64>,
    /// Packets sent so far, or taken.
    pub packets: u64,
    /// Of these lost; TCP: sent again.
    pub lost_packets: Option<u64>,
    /// Payload bytes sent again so far.
    pub resent_bytes: Option<u64>,
    /// Bytes that may be on their way; `null`: no bound.
    pub window_bytes: Option<u64>,
    /// Bytes on their way.
    pub in_flight_bytes: Option<u64>,
    /// Wire rate that a policer on the path lets through; `null`: none was found.
    pub policer_bps: Option<f64>,
}

impl RailRecord {
    /// Of a rail that stood so before, and stands so now.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub fn of(id: RailId, facts: &RailFacts, before: &Sample, now: &Sample) -> RailRecord {
        let bps = |rate: Option<u64>| rate.map(|rate| rate as f64 * 8.0);
        let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e6);
        RailRecord {
            event: "rail".to_owned(),
            at_s: now.at_ns as f64 / 1e9,
            session: id.session,
            rail: id.rail,
            path: facts.path.clone(),
            transport: facts.transport.to_owned(),
            controller: Some(facts.controller.to_owned()).filter(|it| !it.is_empty()),
            phase: now.phase(),
            rate_bps: bps(now.rate),
            delivered_bps: now.delivered_since(before) * 8.0,
            kernel_delivery_bps: bps(now.kernel_rate),
            rtt_ms: ms(now.rtt_ns),
            base_rtt_ms: ms(now.base_rtt_ns),
            queue_ms: ms(now.queue_ns),
            loss_percent: now.loss_since(before),
            packets: now.sent,
            lost_packets: now.lost,
            resent_bytes: now.resent_bytes,
            window_bytes: now.window,
            in_flight_bytes: now.in_flight,
            policer_bps: bps(now.policer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_of_packets_tells_its_controller_and_a_receiver_what_came() {
        let word = u64::from_le_bytes(*b"steady\0\0");
        let stats = PathStats {
            rate: 2_500_000,
            rtt_ns: 60_000_000,
            base_rtt_ns: 50_000_000,
            queue_ns: 4_000_000,
            window: u64::MAX,
            policer: 2_400_000,
            phase_begin: word,
            packets: 100,
            lost_packets: 5,
            repair_bytes: 7,
            delivered_bytes: 1_000,
            wire_bytes: 9,
            ..PathStats::default()
        };
        let sample = Sample::of_packets(1, &stats, true);
        assert_eq!((sample.rate, sample.queue_ns, sample.window), (Some(2_500_000), Some(4_000_000), None));
        assert_eq!((sample.policer, sample.lost, sample.phase().as_str()), (Some(2_400_000), Some(5), "steady"));
        let there = Sample::of_packets(1, &stats, false);
        assert_eq!((there.rate, there.lost, there.delivered, there.phase().as_str()), (None, None, 9, "receives"));
        let cold = Sample::of_packets(1, &PathStats { base_rtt_ns: 0, ..stats }, true);
        assert_eq!(cold.queue_ns, None, "nothing is known of a queue before the path is");
    }

    #[test]
    fn a_stream_tells_what_the_kernel_does() {
        let info = TcpInfo {
            rtt_us: 61_000,
            min_rtt_us: 50_000,
            cwnd: 100,
            mss: 1448,
            unacked: 90,
            retrans: 3,
            bytes_retrans: 4_344,
            segments_out: 1_000,
            bytes_acked: 1_400_000,
            delivery_rate: 2_000_000,
            pacing_rate: u64::MAX,
            ..TcpInfo::default()
        };
        let sample = Sample::of_stream(1, &info, true);
        assert_eq!((sample.window, sample.in_flight), (Some(144_800), Some(130_320)));
        assert_eq!((sample.queue_ns, sample.lost, sample.rate), (Some(11_000_000), Some(3), None), "not paced");
        assert_eq!((sample.kernel_rate, sample.phase().as_str()), (Some(2_000_000), "kernel"));
    }

    #[test]
    fn a_record_has_what_happened_since_the_one_before() {
        let facts = RailFacts { transport: "udp", controller: "delay", path: "p".to_owned() };
        let before = Sample { delivered: 1_000, packet_bytes: 100, sent: 50, lost: Some(1), ..Sample::default() };
        let now = Sample { at_ns: 500_000_000, delivered: 2_000, sent: 11, lost: Some(11), ..before };
        let record = RailRecord::of(RailId { session: 0, rail: 7 }, &facts, &before, &now);
        assert_eq!((record.delivered_bps, record.loss_percent, record.at_s), (16_000.0, Some(50.0), 0.5));
        let line = serde_json::to_string(&record).expect("plain data");
        assert!(line.starts_with("{\"event\":\"rail\",\"at_s\":0.5,\"session\":0,\"rail\":7,"), "{line}");
        assert_eq!(serde_json::from_str::<RailRecord>(&line).expect("the same"), record);
        let clean = Sample { at_ns: 600_000_000, ..now };
        assert_eq!(clean.loss_since(&now), Some(0.0), "nothing came and nothing was lost");
        assert_eq!(Sample { lost: Some(12), ..clean }.loss_since(&now), Some(100.0), "only a loss is known");
    }
}
