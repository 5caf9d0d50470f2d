//! Tail: what arrives of a flight once its losses began.
//!
//! For: the `delay` controller's start, where a flight was too much. A policer's bucket passes the first of it at the wire's rate; when the first packet is lost the
//! bucket is empty, and what arrives from then on is the rate that lasts.
//! In and out: reports of a flight's echo in; what passed, what arrived and how long that took, without what the bucket held, out.
//! Invariants: empty outside of an echo; a while in which little left is left out, since a bucket fills in it; lost packets far apart are no beginning.
//! Absent on purpose: whether the losses are the rate's doing (`ceiling`).

use super::look::{Look, Report};
use super::{Delay, FLIGHT_LOST_SHARE, Phase};
use crate::rate::Signal;

/// After so many packets of which less than `FLIGHT_LOST_SHARE` was lost the losses have not begun.
const BLOCK_PACKETS: f64 = 8.0;
/// So many lost packets make it a measure.
const LOST_PACKETS: f64 = 4.0;
/// What leaves at less than this part of the flight's rate is a pause.
const PAUSE: f64 = 0.5;

impl Delay {
    /// One report.
    pub(super) fn count_tail(&mut self, signal: &Signal) {
        if self.phase != Phase::Prove {
            self.tail = Look::default();
            return;
        }
        let packet = f64::from(self.config.packet_bytes);
        if self.tail.passed == 0.0 {
            // The time before the first loss is the bucket's.
            self.tail.passed = (self.passing - self.arriving).max(0.0);
        } else if self.passing * 1e9 >= PAUSE * self.rate * signal.sent_interval_ns as f64 {
            self.tail.passed += self.passing;
            self.tail.arrived += self.arriving;
            self.tail.ns += signal.interval_ns as f64;
        }
        if self.tail.passed >= BLOCK_PACKETS * packet && self.tail.share() < FLIGHT_LOST_SHARE {
            self.tail = Look::default();
        }
    }

    /// The same flight, without what a bucket passed of it; what was lost of it before stays out of it, too.
    pub(super) fn lasting(&self, flight: Report) -> Report {
        let tail = &self.tail;
        // Of few packets one more may have been on its way.
        let is_less = (tail.arrived + flight.packet_bytes) * flight.interval_ns < flight.arrived * tail.ns;
        if is_less && tail.lost() >= LOST_PACKETS * flight.packet_bytes {
            Report { passed: tail.passed, arrived: tail.arrived, interval_ns: tail.ns, ..flight }
        } else {
            flight
        }
    }
}
