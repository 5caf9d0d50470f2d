//! What is known of the path before data moves, and which transport that speaks for.
//!
//! For: `--transport auto`.
//! In and out: the kernel's word on the control session's connection in; datagrams or streams out, with the reason.
//! Invariants: pure; a path of which nothing is known gets streams.
//! Absent on purpose: packets of its own. The handshake has measured the round trip, and a greeting that is not answered says whether
//! UDP passes (job/udp.rs); a loss that hits none of the handshake's dozen packets is not seen.

use std::time::Duration;

use proto::negotiate::Choice;
use sys::sock::TcpInfo;

/// Below this round trip one loss costs a stream little time, and the kernel's offloads are worth more.
const SHORT: Duration = Duration::from_millis(5);
/// From this round trip on one loss in 100 000 packets holds a stream of CUBIC below 1 Gbit/s (RFC 9438 section 5.2: the average window
/// is 1.054 × (RTT ÷ loss)^¾ packets, RTT in seconds: 315 at 20 ms, 190 Mbit/s), and its start takes many round trips.
const LONG: Duration = Duration::from_millis(20);

/// Datagrams or not, and what to say about it.
#[must_use]
pub fn choose(info: Option<&TcpInfo>) -> (bool, Choice) {
    let rtt_us = info.map_or(0, |info| if info.min_rtt_us > 0 { info.min_rtt_us } else { info.rtt_us });
    let rtt = Duration::from_micros(rtt_us.into());
    let again = info.map_or(0, |info| info.retrans);
    let (datagrams, reason) = match (rtt, again) {
        (Duration::ZERO, _) => (false, "nothing is known of the path: TCP"),
        (rtt, _) if rtt >= LONG => (true, "from 20 ms on a loss costs TCP too much: datagrams"),
        (rtt, again) if rtt >= SHORT && again > 0 => (true, "from 5 ms on, with losses already: datagrams"),
        _ => (false, "a short path without losses so far: TCP"),
    };
    let ms = rtt.as_secs_f64() * 1e3;
    let value = format!("round trip {ms:.1} ms, {again} packets sent again while greeting");
    (datagrams, Choice { what: "path", value, reason: reason.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagrams(min_rtt_us: u32, rtt_us: u32, retrans: u32) -> bool {
        choose(Some(&TcpInfo { min_rtt_us, rtt_us, retrans, ..TcpInfo::default() })).0
    }

    #[test]
    fn long_paths_and_lossy_ones_get_datagrams() {
        assert!(!choose(None).0);
        let table = [
            ((0, 0, 0), false),
            ((100, 300, 5), false),
            ((4_999, 30_000, 0), false),
            ((5_000, 5_000, 0), false),
            ((5_000, 5_000, 1), true),
            ((20_000, 20_000, 0), true),
            ((0, 80_000, 0), true),
        ];
        for ((min, smoothed, again), wanted) in table {
            assert_eq!(datagrams(min, smoothed, again), wanted, "{min} {smoothed} {again}");
        }
    }
}
