//! What datagram rails saw of their path, as the report has it.
//!
//! For: round trip, loss, rate and redundancy beside the figures of the job.
//! In and out: the rails' meters in; a record of `--json`, and a line of text, out.
//! Invariants: what only the sender knows is left out at a receiver, never guessed; field names are a public contract.
//! Absent on purpose: judging, history.

use std::fmt::Write as _;

use engine::meter::PathStats;
use proto::negotiate::Pace;
use proto::session::transport::forecast::Carry;
use serde::{Deserialize, Serialize};

use super::clean;
use crate::job::driver::transport::TransportReport;
use text::units::{show_bits_per_second, show_count, show_seconds};

/// A shorter copy is all beginning and end, of which no forecast is made.
const TELLING_SECONDS: f64 = 1.0;

/// Losses from which on a short report has a word of them.
const TELLING_PERCENT: f64 = 0.1;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate that was found by trying")]
fn policer(bps: f64) -> String {
    format!("a policer at about {} on the path", proto::books::about(bps.max(0.0) as u64))
}

/// What datagram rails saw of their path. What only the sender knows is `null` at a receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathRecord {
    /// `delay`, `bbr`, `cubic`, `fixed`.
    pub controller: String,
    /// `fixed`, `high`, `fair`, `low`.
    pub policy: String,
    /// Smoothed round trip at the end.
    pub rtt_ms: Option<f64>,
    /// Packets lost, of all sent.
    pub loss_percent: Option<f64>,
    /// Wire rate in force at the end.
    pub rate_bps: Option<f64>,
    /// UDP payload of a packet at the end.
    pub packet_bytes: Option<u64>,
    /// Data packets sent, or taken.
    pub packets: u64,
    /// Bytes sent again since they were lost.
    pub repair_bytes: Option<u64>,
    /// Bytes sent again at the end of the job though not known to be lost.
    pub copy_bytes: Option<u64>,
    /// Bytes sent again for whatever reason, of all sent.
    #[serde(default)]
    pub resent_percent: Option<f64>,
    /// Wire rate that a policer on the path lets through, where the congestion controller found one.
    #[serde(default)]
    pub policer_bps: Option<f64>,
    /// Bytes that came and were there already.
    pub already_bytes: Option<u64>,
    /// What was sent beside what was needed: at a sender copies, at a receiver what was there already, of all.
    pub redundancy_percent: f64,
    /// Packets whose tag did not hold.
    pub forged: u64,
}

impl PathRecord {
    /// From the rails' figures; `sends`: they are a sender's.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
    pub fn of(pace: Pace, stats: &PathStats, sends: bool) -> Self {
        let percent = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
        let all_bytes = stats.fresh_bytes + stats.repair_bytes + stats.copy_bytes;
        let redundancy_percent =
            if sends { percent(stats.copy_bytes, all_bytes) } else { percent(stats.already_bytes, stats.wire_bytes) };
        Self {
            controller: pace.controller.name().to_owned(),
            policy: pace.policy.name().to_owned(),
            rtt_ms: sends.then_some(stats.rtt_ns as f64 / 1e6),
            loss_percent: sends.then_some(percent(stats.lost_packets, stats.packets)),
            rate_bps: sends.then_some(stats.rate as f64 * 8.0),
            packet_bytes: sends.then_some(stats.packet_bytes),
            packets: stats.packets,
            repair_bytes: sends.then_some(stats.repair_bytes),
            copy_bytes: sends.then_some(stats.copy_bytes),
            resent_percent: sends.then_some(percent(stats.repair_bytes + stats.copy_bytes, all_bytes)),
            policer_bps: Some(stats.policer as f64 * 8.0).filter(|_| sends && stats.policer > 0),
            already_bytes: (!sends).then_some(stats.already_bytes),
            redundancy_percent,
            forged: stats.forged,
        }
    }

    /// What a short report has room for: losses worth a word, and a policer.
    #[must_use]
    pub fn in_short(&self) -> Vec<String> {
        let (loss, resent) = (self.loss_percent.unwrap_or(0.0), self.resent_percent.unwrap_or(0.0));
        let mut words = Vec::new();
        if loss.max(resent) >= TELLING_PERCENT {
            words.push(format!("{loss:.1} % of the packets lost, {resent:.1} % of the bytes sent again"));
        }
        words.extend(self.policer_bps.map(policer));
        words
    }

    /// A line of the end report.
    pub fn show(&self, text: &mut String) {
        let mut words = vec![format!("{} controller, {}", clean(&self.controller), clean(&self.policy))];
        words.extend(self.rtt_ms.map(|ms| format!("RTT {ms:.1} ms")));
        words.extend(self.loss_percent.map(|percent| format!("loss {percent:.2} %")));
        words.extend(self.resent_percent.map(|percent| format!("{percent:.2} % of the bytes sent again")));
        words.extend(self.policer_bps.map(policer));
        words.extend(self.rate_bps.map(|rate| format!("at the end {}", show_bits_per_second(rate))));
        words.extend(self.packet_bytes.map(|bytes| format!("packets of {bytes} B")));
        words.push(format!("{:.2} % redundant", self.redundancy_percent));
        if self.forged > 0 {
            words.push(format!("{} forged packets thrown away", show_count(self.forged)));
        }
        let _ = writeln!(text, "  path        {}", words.join(", "));
    }
}

/// What was expected of the transport that was chosen, and how it came out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForecastRecord {
    /// `tcp`, `udp`, `both`.
    pub choice: String,
    /// The look at the path, as a sentence.
    pub seen: String,
    /// Payload rate expected once under way.
    pub rate_bps: f64,
    /// What was expected to limit it.
    pub limiter: String,
    /// Expected seconds for the bytes that went; where `unknown` says something, only what the path alone would take.
    pub seconds: f64,
    /// Seconds it took, from the plan to the end.
    pub took_seconds: f64,
    /// How much longer it took than expected; `null` for a copy too short to tell, and where nothing was forecast.
    pub error_percent: Option<f64>,
    /// Why nothing was forecast; `null`: it was.
    #[serde(default)]
    pub unknown: Option<String>,
    /// TCP alone, expected.
    pub tcp_bps: f64,
    /// UDP alone, expected.
    pub udp_bps: f64,
    /// How many times as fast as the alternative, expected.
    pub gain: f64,
    /// Changes while it ran.
    pub changes: u32,
}

impl ForecastRecord {
    /// From what was expected and what `bytes` in `files` took.
    #[must_use]
    pub fn of(told: &TransportReport, (bytes, files): (u64, u64), took: std::time::Duration) -> Self {
        let forecast = &told.forecast;
        let (chosen, took_seconds) = (forecast.expected(), took.as_secs_f64());
        let (seconds, unknown) = (forecast.seconds(bytes, files), forecast.unknown(bytes, files));
        let is_telling = took_seconds >= TELLING_SECONDS && unknown.is_none();
        Self {
            choice: name_of(forecast.carry).to_owned(),
            seen: told.path.clone(),
            rate_bps: chosen.rate_bps,
            limiter: chosen.limit.to_string(),
            seconds,
            took_seconds,
            error_percent: is_telling.then(|| (took_seconds / seconds - 1.0) * 100.0),
            unknown: unknown.map(|why| why.to_string()),
            tcp_bps: forecast.tcp.rate_bps,
            udp_bps: forecast.udp.rate_bps,
            gain: forecast.gain(),
            changes: told.changes,
        }
    }

    /// A line of the end report.
    pub fn show(&self, text: &mut String) {
        let changes = match self.changes {
            0 => String::new(),
            1 => ", changed once while it ran".to_owned(),
            count => format!(", changed {count} times while it ran"),
        };
        if let Some(why) = &self.unknown {
            let rate = show_bits_per_second(self.rate_bps);
            let (choice, why) = (clean(&self.choice), clean(why));
            let _ = writeln!(text, "  forecast    none: {why}; {choice} carries up to {rate}{changes}");
            return;
        }
        let error = self.error_percent.map_or_else(String::new, |percent| format!(" ({percent:+.0} %)"));
        let _ = writeln!(
            text,
            "  forecast    {} at {}, limited by {}: {} expected, {} taken{error}{changes}",
            clean(&self.choice),
            show_bits_per_second(self.rate_bps),
            clean(&self.limiter),
            show_seconds(self.seconds),
            show_seconds(self.took_seconds),
        );
    }
}

/// What is expected of a job that a dry run looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    /// `tcp`, `udp`, `both`.
    pub choice: String,
    /// The look at the path, as a sentence.
    pub seen: String,
    /// Payload rate expected once under way.
    pub rate_bps: f64,
    /// What would limit it.
    pub limiter: String,
    /// Expected seconds for what would be sent; `null`: not known.
    pub seconds: Option<f64>,
    /// Why that is not known; `null`: it is.
    pub unknown: Option<String>,
}

impl Expectation {
    /// Of `bytes` in `files`.
    #[must_use]
    pub fn of(told: &TransportReport, (bytes, files): (u64, u64)) -> Self {
        let (forecast, expected) = (&told.forecast, told.forecast.expected());
        let unknown = forecast.unknown(bytes, files);
        Self {
            choice: name_of(forecast.carry).to_owned(),
            seen: told.path.clone(),
            rate_bps: expected.rate_bps,
            limiter: expected.limit.to_string(),
            seconds: unknown.is_none().then(|| forecast.seconds(bytes, files)),
            unknown: unknown.map(|why| why.to_string()),
        }
    }

    /// A line of a dry run's report.
    pub fn show(&self, text: &mut String) {
        let rate = show_bits_per_second(self.rate_bps);
        let (choice, limiter) = (clean(&self.choice), clean(&self.limiter));
        let _ = match (self.seconds, &self.unknown) {
            (Some(seconds), _) => {
                let seconds = show_seconds(seconds);
                writeln!(text, "  forecast    {seconds}: {choice} at {rate}, limited by {limiter}")
            }
            (None, why) => {
                let why = clean(why.as_deref().unwrap_or_default());
                writeln!(text, "  forecast    not known: {why}; {choice} carries up to {rate}")
            }
        };
    }
}

fn name_of(carry: Carry) -> &'static str {
    match carry {
        Carry::Tcp => "tcp",
        Carry::Udp => "udp",
        Carry::Both => "both",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proto::session::transport::forecast::{Forecast, Guess, Limit, Storage, Unknown};

    use super::*;

    #[test]
    fn a_sender_tells_what_it_knows_and_a_receiver_leaves_out_what_it_does_not() {
        let stats = PathStats {
            rate: 125_000_000,
            rtt_ns: 50_400_000,
            packet_bytes: 1472,
            packets: 10_000,
            lost_packets: 105,
            fresh_bytes: 9_000_000,
            repair_bytes: 900_000,
            copy_bytes: 100_000,
            policer: 2_460_000,
            forged: 3,
            ..PathStats::default()
        };
        let mut text = String::new();
        let record = PathRecord::of(Pace::default(), &stats, true);
        record.show(&mut text);
        let wanted = "delay controller, fair, RTT 50.4 ms, loss 1.05 %, 10.00 % of the bytes sent again, a policer at about 20 Mbit/s on the path, at the end 1.00 Gbit/s, packets of 1472 B, 1.00 % redundant, 3 forged";
        assert!(text.contains(wanted), "{text}");
        let short =
            ["1.1 % of the packets lost, 10.0 % of the bytes sent again", "a policer at about 20 Mbit/s on the path"];
        assert_eq!(record.in_short(), short);
        let clean = PathStats { lost_packets: 9, repair_bytes: 5_000, copy_bytes: 0, policer: 0, ..stats };
        assert!(PathRecord::of(Pace::default(), &clean, true).in_short().is_empty(), "nothing worth a word");
        let there = PathStats { wire_bytes: 1_000, already_bytes: 20, packets: 7, ..PathStats::default() };
        let there = PathRecord::of(Pace::default(), &there, false);
        assert_eq!((there.rtt_ms, there.rate_bps, there.loss_percent), (None, None, None));
        assert_eq!((there.resent_percent, there.policer_bps), (None, None));
        let mut text = String::new();
        there.show(&mut text);
        assert_eq!(text, "  path        delay controller, fair, 2.00 % redundant\n");
    }

    #[test]
    fn a_time_is_said_only_where_it_was_forecast_and_an_error_only_of_that() {
        let storage = Storage { bps: 80e6, file_s: 0.0, unknown: None };
        let told = |storage, is_one_host| {
            let guess = Guess { rate_bps: 1e9, limit: Limit::Host, beside_s: 0.0 };
            let forecast = Forecast { carry: Carry::Tcp, tcp: guess, udp: guess, bytes: None, storage, is_one_host };
            TransportReport { forecast, path: "round trip 1.0 ms".to_owned(), changes: 0 }
        };
        let line = |report: &TransportReport, took| {
            let mut text = String::new();
            let record = ForecastRecord::of(report, (100_000_000, 1), Duration::from_secs_f64(took));
            record.show(&mut text);
            (text, record.error_percent)
        };
        let (text, error) = line(&told(storage, false), 12.0);
        assert_eq!(
            text,
            "  forecast    tcp at 80.0 Mbit/s, limited by the slower disk: 10.0 s expected, 12.0 s taken (+20 %)\n"
        );
        assert!(error.is_some_and(|error| (error - 20.0).abs() < 0.1), "{error:?}");
        assert_eq!(line(&told(storage, false), 0.9).1, None, "too short to tell");
        for (report, why) in [
            (
                told(Storage { unknown: Some(Unknown::Target), ..storage }, false),
                "the destination's storage was not measured",
            ),
            (told(Storage::default(), true), "both ends share the processors that limit it"),
        ] {
            let (text, error) = line(&report, 12.0);
            assert!(text.starts_with(&format!("  forecast    none: {why}; tcp carries up to ")), "{text}");
            assert_eq!((error, text.contains("expected")), (None, false));
            let mut text = String::new();
            Expectation::of(&report, (100_000_000, 1)).show(&mut text);
            assert!(text.starts_with(&format!("  forecast    not known: {why}; tcp")), "{text}");
        }
        let mut text = String::new();
        Expectation::of(&told(storage, false), (100_000_000, 1)).show(&mut text);
        assert_eq!(text, "  forecast    10.0 s: tcp at 80.0 Mbit/s, limited by the slower disk\n");
    }
}
