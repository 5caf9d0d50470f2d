//! The cells of the grid: links to measure on, what each can carry at most, and how long that takes.
//!
//! For: `bench wan`. In and out: lists of rates, round trips and losses → cells; a cell and the user's wishes → bytes and seconds of a run.
//! Invariants: pure; a transfer lasts the round trips that were asked for when it runs at the limit, unless the user set a shorter time.
//! Absent on purpose: who competes (contest.rs), and what came of it (record.rs).

use serde::Serialize;

use lab::settings::{AB, LinkSettings};
use text::units;

/// A packet of the lab's links, bytes of IP.
pub const PACKET_BYTES: f64 = 1500.0;
/// Of these, bytes of the user: less IPv4, UDP and our head with its tag (20 + 8 + 32; docs/protocol.md, "Packets").
pub const OURS_BYTES: f64 = 1440.0;
/// Less IPv4 and TCP with timestamps (20 + 32; RFC 9293, RFC 7323).
pub const TCP_BYTES: f64 = 1448.0;
/// Less IPv4 and UDP: of a program that is not known, the most that is possible.
pub const UDP_BYTES: f64 = 1472.0;
/// What a run costs beside its transfer: two programs started, a lab made and removed. Measured 2026-11-22: 0.3 to 0.6 s.
const RUN_SECONDS: f64 = 0.5;
/// Round trips of greeting and farewell.
const RUN_TRIPS: f64 = 6.0;

/// One link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// As the user wrote it.
    pub rate: String,
    /// As the user wrote it.
    pub rtt: String,
    /// As the user wrote it.
    pub loss: String,
    /// Bits of IP a second.
    pub rate_bps: u64,
    /// There and back.
    pub rtt_ms: f64,
    /// Share of packets lost, 0 to 1.
    pub loss_share: f64,
    #[serde(skip)]
    pub settings: LinkSettings,
}

impl Cell {
    /// A link with the same loss both ways. Errors: a word that means nothing, or no rate, of which there would be no share.
    #[expect(clippy::cast_precision_loss, reason = "milliseconds for the eye")]
    pub fn parse(rate: &str, rtt: &str, loss: &str) -> Result<Cell, String> {
        let mut settings = LinkSettings::default();
        settings.apply_all(&format!("rate={rate} rtt={rtt} loss={loss}"))?;
        let wire = &settings.wires[AB];
        if wire.rate_bps == 0 {
            return Err(format!("'rate={rate}': a share of the link needs a link with a rate: 1Gbit"));
        }
        Ok(Cell {
            rate: rate.to_owned(),
            rtt: rtt.to_owned(),
            loss: loss.to_owned(),
            rate_bps: wire.rate_bps,
            rtt_ms: settings.rtt_ns() as f64 / 1e6,
            loss_share: wire.loss.mean(),
            settings,
        })
    }

    /// What a transport can deliver at most, bit/s of the user: rate × (1 − loss) × payload share of the wire.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share with three digits")]
    pub fn limit_bps(&self, payload_bytes: f64) -> f64 {
        self.rate_bps as f64 * (1.0 - self.loss_share) * payload_bytes / PACKET_BYTES
    }

    /// Bytes and seconds of a run.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some gigabytes, never negative")]
    pub fn plan(&self, wish: Wish) -> Plan {
        let seconds = (wish.trips * self.rtt_ms / 1e3).max(wish.seconds_min).min(wish.seconds_max);
        // A chunk at least, so that even 64 kbit/s has something to measure.
        let bytes = (self.limit_bps(OURS_BYTES) / 8.0 * seconds).max(f64::from(1 << 20));
        Plan { seconds, bytes: bytes as u64 }
    }

    /// Like `1Gbit/s, 100ms, loss 1%`.
    #[must_use]
    pub fn words(&self) -> String {
        format!("{}, {}, loss {}", units::exact_rate(self.rate_bps), self.rtt, self.loss)
    }
}

/// How long a run is to last, at the limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wish {
    /// At least so many round trips.
    pub trips: f64,
    /// And so many seconds.
    pub seconds_min: f64,
    /// But no longer.
    pub seconds_max: f64,
}

/// A run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Of the transfer, at the limit.
    pub seconds: f64,
    /// To move in it.
    pub bytes: u64,
}

/// All combinations, by rate, then loss, then round trip. Errors: a word that means nothing.
pub fn cells(rates: &[String], trips: &[String], losses: &[String]) -> Result<Vec<Cell>, String> {
    let mut cells = Vec::new();
    for rate in rates {
        for loss in losses {
            for trip in trips {
                cells.push(Cell::parse(rate, trip, loss)?);
            }
        }
    }
    Ok(cells)
}

/// Seconds that all of it takes if every contestant runs at its limit.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub fn estimate_seconds(cells: &[Cell], wish: Wish, contestants: usize, rounds: usize) -> f64 {
    let one = |cell: &Cell| cell.plan(wish).seconds + RUN_SECONDS + RUN_TRIPS * cell.rtt_ms / 1e3;
    cells.iter().map(one).sum::<f64>() * contestants as f64 * rounds as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const WISH: Wish = Wish { trips: 100.0, seconds_min: 5.0, seconds_max: f64::INFINITY };

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn the_limit_is_rate_less_loss_less_headers() {
        let cell = Cell::parse("1Gbit", "100ms", "10%").unwrap();
        assert_eq!(cell.limit_bps(OURS_BYTES), 1e9 * 0.9 * 0.96);
        let bursts = Cell::parse("1Gbit", "100ms", "burst:10%/8").unwrap();
        assert!((bursts.limit_bps(1500.0) - 0.9e9).abs() < 1e3, "{bursts:?}");
        assert!(Cell::parse("none", "100ms", "0%").unwrap_err().contains("needs a link with a rate"));
        assert!(Cell::parse("1Gbit", "100", "0%").is_ok(), "a bare number is seconds");
        assert!(Cell::parse("1Gbit", "1m", "0%").is_err());
    }

    #[test]
    fn a_run_has_the_round_trips_and_the_seconds_that_were_asked_for() {
        let far = Cell::parse("1Gbit", "1s", "0%").unwrap();
        assert_eq!(far.plan(WISH), Plan { seconds: 100.0, bytes: 12_000_000_000 });
        let near = Cell::parse("1Gbit", "10ms", "0%").unwrap();
        assert_eq!(near.plan(WISH).seconds, 5.0);
        assert_eq!(far.plan(Wish { seconds_max: 30.0, ..WISH }).seconds, 30.0);
    }

    #[test]
    fn the_grid_is_every_combination_and_its_time_a_sum() {
        let cells = cells(&words(&["1Gbit"]), &words(&["10ms", "1s"]), &words(&["0%", "1%", "5%"])).unwrap();
        assert_eq!(cells.len(), 6);
        let seconds = estimate_seconds(&cells, WISH, 2, 3);
        let one_row = 5.0 + 0.5 + 0.06 + 100.0 + 0.5 + 6.0;
        assert!((seconds - 3.0 * one_row * 6.0).abs() < 1e-6, "{seconds}");
    }
}
