//! How soon a perfect sender would have brought the job of a cell.
//!
//! For: telling what a path, its loss and the length of a job cost anybody from what we cost.
//! In and out: a cell, the share of its packets that its path lost → seconds.
//! Invariants: knows all of the path that a sender cannot; nothing of it was fitted to what our flow does.
//! Absent on purpose: headers of the connection, the time until the sender knows that all has arrived.
//!
//! ```text
//! seconds = R/2 + send + K R + J        R = round trip + jitter of both ways, J = jitter of one
//! send:   from round trip to round trip 16, 32, 64 … packets, until these fill the link; from then on all of it       (RFC 5681, 3.1; RFC 6928: 10)
//!         what the link carries: its rate less cross traffic, as they change; once the bucket of a policer or shaper  (RFC 2697)
//! of:     bytes × packet/payload / (1 − loss)                                                                         selective repeat, no copies
//! K:      least number with (1 − p^(K+1))^n ≥ 1/2                            n = packets of the last round trip, each repaired a round trip later
//! ```
//!
//! Doubling is what RFC 5681 permits who knows nothing; the perfect part is that it ends just at the link's rate, drops nothing and leaves no queue.
//! `seconds_least` has one round trip of 16 packets and then all of the link: what a train can show at best (Keshav 1991, Dovrolis et al. 2004).

use crate::cells::{Cell, Change, Limiter};
use crate::link::SECOND;

/// The first flight, packets: `proto::rate::TRAIN_PACKETS`.
const FIRST: f64 = 16.0;

/// What a perfect sender would have needed, and what the link could have carried.
#[derive(Debug, Clone, Copy)]
pub struct Ideal {
    pub seconds: f64,
    pub seconds_least: f64,
    /// Bytes of the file that the link could have carried in the time that the job took.
    pub limit_bytes: f64,
}

/// Wire bytes that the bottleneck lets through until then, what a bucket gives at once left out.
fn carried(cell: &Cell, ns: f64) -> f64 {
    let rate = cell.rate as f64;
    match cell.change {
        Change::None => rate * ns / SECOND as f64,
        Change::Rate { at_ns, rate: then } => {
            let at = (at_ns as f64).min(ns);
            (rate * at + then as f64 * (ns - at)) / SECOND as f64
        }
        Change::Cross(cross) => rate * ns / SECOND as f64 - cross.bytes(ns as u64),
    }
}

/// When so many bytes have been carried after `from_ns`.
fn carries(cell: &Cell, from_ns: f64, bytes: f64) -> f64 {
    let goal = carried(cell, from_ns) + bytes;
    let mut low = from_ns;
    let mut high = from_ns + cell.rtt_ns as f64;
    while carried(cell, high) < goal {
        high += high - from_ns;
    }
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if carried(cell, middle) < goal { low = middle } else { high = middle }
    }
    high
}

/// When the last of so many wire bytes has left, nanoseconds; each round trip has `growth` times the packets of the one before.
fn sends(cell: &Cell, wire: f64, growth: f64) -> f64 {
    let round = (cell.rtt_ns + 2 * cell.jitter_ns) as f64;
    let bucket = match cell.limiter {
        Limiter::Queue => 0.0,
        Limiter::Policer(bucket) | Limiter::Shaper(bucket) => bucket as f64,
    };
    let (mut now, mut left, mut credit) = (0.0, wire, bucket);
    let mut flight = FIRST * cell.packet as f64;
    loop {
        let carries_now = carried(cell, now + round) - carried(cell, now);
        if flight >= carries_now + credit || left <= flight {
            return carries(cell, now, (left - credit).max(0.0));
        }
        left -= flight;
        credit = (credit + carries_now - flight).min(bucket);
        (now, flight) = (now + round, flight * growth);
    }
}

/// Round trips of repair after the last packet has left once.
fn repairs(cell: &Cell, loss: f64, wire: f64) -> f64 {
    let round = (cell.product() / cell.packet as f64).min(wire / cell.packet as f64).max(1.0);
    let mut trips = 0;
    while loss > 0.0 && (1.0 - loss.powi(trips + 1)).powf(round) < 0.5 {
        trips += 1;
    }
    f64::from(trips)
}

/// `loss`: of the packets that were not dropped, so many the path lost by itself. `took_ns`: the time that the job took.
pub fn ideal(cell: &Cell, loss: f64, took_ns: u64) -> Ideal {
    let wire = cell.wire_bytes() / (1.0 - loss);
    let round = (cell.rtt_ns + 2 * cell.jitter_ns) as f64;
    let beside = cell.rtt_ns as f64 / 2.0 + cell.jitter_ns as f64 + repairs(cell, loss, wire) * round;
    let [seconds, seconds_least] = [2.0, 1e9].map(|growth| (sends(cell, wire, growth) + beside) / SECOND as f64);
    let bucket = match cell.limiter {
        Limiter::Queue => 0.0,
        Limiter::Policer(bucket) | Limiter::Shaper(bucket) => bucket as f64,
    };
    let limit_bytes = (carried(cell, took_ns as f64) + bucket) / wire * cell.bytes as f64;
    Ideal { seconds, seconds_least, limit_bytes }
}
